//! The unit of change in progress: see `commit`.

use commands::effects::{Class, Concerns};
use journal::record::Record;
use store::db::Event;
use store::hash::KeyHash;

/// What happened to a key, or to a database.
#[derive(Clone, Copy)]
pub(crate) enum What {
    Changed {
        class: Class,
        event: &'static str,
        concerns: Concerns,
    },
    Seen(Event),
    /// All keys of the database are gone.
    Emptied,
}

pub(crate) struct Told {
    pub database: usize,
    /// Where the key's bytes end in [`Unit::keys`]; they begin where those of the one before end.
    pub key_end: usize,
    pub what: What,
}

/// What the commands of the unit that is in progress have left behind.
#[derive(Default)]
pub(crate) struct Unit {
    pub told: Vec<Told>,
    pub keys: Vec<u8>,
    /// Hashes of keys that it changed, while replies wait for what they depend on.
    pub hashes: Vec<KeyHash>,
    /// Shards of which it changed keys, the same.
    pub shards: Vec<usize>,
    /// True if it may have changed any.
    pub all_shards: bool,
    /// What reproduces the unit.
    pub record: Record,
}

impl Unit {
    /// True if there is nothing to commit.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.told.is_empty() && self.record.is_empty()
    }

    pub fn tell(&mut self, database: usize, key: &[u8], what: What) {
        self.keys.extend_from_slice(key);
        self.told.push(Told { database, key_end: self.keys.len(), what });
    }
}
