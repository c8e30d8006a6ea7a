//! The unit of change in progress: see `commit`.

use commands::effects::{Class, Concerns};
use journal::record::Record;
use store::db::Event;
use store::hash::KeyHash;

/// An event of a key, or of a database.
#[derive(Clone, Copy)]
pub(crate) enum Cause {
    Changed {
        class: Class,
        event: &'static str,
        concerns: Concerns,
    },
    Seen(Event),
    /// All keys of the database are gone.
    Emptied,
}

pub(crate) struct Notification {
    pub database: usize,
    /// The end of the key's bytes in [`Unit::keys`]; they begin at the end of the previous key's.
    pub key_end: usize,
    pub cause: Cause,
}

/// The collected effects of the present unit's commands.
#[derive(Default)]
pub(crate) struct Unit {
    pub notifications: Vec<Notification>,
    pub keys: Vec<u8>,
    /// The hashes of changed keys, while replies wait for durability.
    pub hashes: Vec<KeyHash>,
    /// The shards with changed keys that are not named, while replies wait for durability.
    pub shards: Vec<usize>,
    /// True if any shard may have changed.
    pub all_shards: bool,
    /// The record that reproduces the unit.
    pub record: Record,
}

impl Unit {
    /// Returns whether there is nothing to commit.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.notifications.is_empty() && self.record.is_empty()
    }

    pub fn note(&mut self, database: usize, key: &[u8], cause: Cause) {
        self.keys.extend_from_slice(key);
        self.notifications.push(Notification { database, key_end: self.keys.len(), cause });
    }
}
