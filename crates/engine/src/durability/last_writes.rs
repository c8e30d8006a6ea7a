//! The positions of the last changes of keys, kept while replies wait for units to be safe.
//!
//! A stamp is the position of a unit. A key shares its stamp with few other keys of its shard, so reading a settled key
//! seldom waits for another client's recent write. Each shard has one more stamp, for changes without named keys, and
//! one stamp covers all shards. The caller holds the shard for every read and write.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use journal::order::Position;
use store::hash::KeyHash;

/// The least number of key stamps: 256 KB. With a thousand writes during a sync, one in thirty other keys shares a
/// changed stamp.
const KEY_STAMPS: usize = 32 * 1024;

/// See the module's documentation.
pub(super) struct LastWrites {
    shards: Box<[AtomicU64]>,
    /// An equal number of stamps for each shard, a power of two. Allocated when replies begin to wait.
    keys: OnceLock<Box<[AtomicU64]>>,
    /// The binary logarithm of the number of stamps per shard.
    bits: u32,
    all: AtomicU64,
}

fn zeros(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl LastWrites {
    /// The stamps of this number of shards, a power of two.
    pub fn new(shards: usize) -> LastWrites {
        let bits = (KEY_STAMPS.max(shards) / shards).ilog2();
        LastWrites { shards: zeros(shards), keys: OnceLock::new(), bits, all: AtomicU64::new(0) }
    }

    /// Prepares for replies that wait. Units up to `last` have left no stamps.
    pub fn begin(&self, last: Position) {
        self.set_all(last);
        self.keys.get_or_init(|| zeros(self.shards.len() << self.bits));
    }

    /// Returns the stamp of a key of this shard.
    #[inline]
    fn of_key(&self, shard: usize, hash: KeyHash) -> Option<&AtomicU64> {
        self.keys.get()?.get((shard << self.bits) + hash.place_in_shard(1 << self.bits))
    }

    /// Returns the last unit that may have changed a key of this shard.
    #[inline]
    pub fn last(&self, shard: usize, hash: KeyHash) -> Position {
        let of_key = self.of_key(shard, hash).map_or(0, |stamp| stamp.load(Ordering::Relaxed));
        of_key.max(self.shards[shard].load(Ordering::Relaxed)).max(self.all.load(Ordering::Relaxed))
    }

    /// Notes that a unit has changed a key of this shard.
    #[inline]
    pub fn set(&self, shard: usize, hash: KeyHash, position: Position) {
        match self.of_key(shard, hash) {
            Some(stamp) => stamp.store(position, Ordering::Relaxed),
            None => self.set_shard(shard, position),
        }
    }

    /// Notes that a unit has changed keys of this shard.
    pub fn set_shard(&self, shard: usize, position: Position) {
        self.shards[shard].store(position, Ordering::Relaxed);
    }

    /// Notes that a unit may have changed any key.
    pub fn set_all(&self, position: Position) {
        self.all.fetch_max(position, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_seldom_shares_its_stamp_and_never_misses_a_change() {
        const SHARDS: usize = 64;
        let last_writes = LastWrites::new(SHARDS);
        let keys: Vec<(usize, KeyHash)> =
            (0..2000u32).map(|n| (n as usize % SHARDS, KeyHash::of(format!("key:{n}").as_bytes()))).collect();
        let last = |n: usize| last_writes.last(keys[n].0, keys[n].1);
        // Before replies wait, a change counts for all keys of its shard.
        last_writes.set(keys[0].0, keys[0].1, 5);
        assert_eq!((last(0), last(SHARDS), last(1)), (5, 5, 0));
        last_writes.begin(7);
        assert_eq!((last(0), last(1)), (7, 7));
        (0..1000).for_each(|n| last_writes.set(keys[n].0, keys[n].1, 10 + n as u64));
        assert!((0..1000).all(|n| last(n) >= 10 + n as u64));
        let waits = (1000..2000).filter(|&n| last(n) > 7).count();
        assert!((1..60).contains(&waits), "{waits} of 1000 other keys wait");
        last_writes.set_shard(3, 2000);
        assert!((0..keys.len()).all(|n| (last(n) == 2000) == (keys[n].0 == 3)));
        last_writes.set_all(3000);
        assert!((0..keys.len()).all(|n| last(n) == 3000));
    }
}
