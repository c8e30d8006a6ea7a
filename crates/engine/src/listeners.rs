//! Which keys may have listeners: sessions that watch them (WATCH) or wait for them (BLPOP and others).
//!
//! Every command that may change a key asks whether anything listens to it, so the answer must be cheap and need not be
//! exact: a table counts listeners by some bits of their keys' hashes. A thousand listeners touch 1.5 percent of the
//! slots, so that nearly every command on other keys learns that nothing listens.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Slots of the table, a power of two: 256 KB.
const SLOTS: usize = 1 << 16;

/// See the module's documentation. Counts change under the lock of the key's shard, and are read under it.
pub struct Listeners {
    slots: Box<[AtomicU32]>,
    count: AtomicUsize,
}

impl Default for Listeners {
    fn default() -> Listeners {
        Listeners { slots: (0..SLOTS).map(|_| AtomicU32::new(0)).collect(), count: AtomicUsize::new(0) }
    }
}

impl Listeners {
    #[inline]
    fn slot(&self, hash: u64) -> &AtomicU32 {
        &self.slots[hash as usize % SLOTS]
    }

    /// Something begins to listen to a key. The caller holds the key's shard.
    pub fn add(&self, hash: u64) {
        self.slot(hash).fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Something has ceased to listen to a key.
    pub fn remove(&self, hash: u64) {
        self.slot(hash).fetch_sub(1, Ordering::Relaxed);
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// True if anything listens to any key.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) != 0
    }

    /// False if nothing listens to a key with this hash, in any database. The caller holds the key's shard.
    #[inline]
    #[must_use]
    pub fn may_hear(&self, hash: u64) -> bool {
        self.slot(hash).load(Ordering::Relaxed) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_share_a_slot_are_taken_for_listened_to() {
        let listeners = Listeners::default();
        assert!(!listeners.any());
        (0..1000u64).for_each(|key| listeners.add(store::hash::hash(&key.to_le_bytes())));
        assert!(listeners.any() && listeners.may_hear(store::hash::hash(&7u64.to_le_bytes())));
        let others = (1000..101_000u64).filter(|key| listeners.may_hear(store::hash::hash(&key.to_le_bytes())));
        assert!(others.count() < 3000);
        (0..1000u64).for_each(|key| listeners.remove(store::hash::hash(&key.to_le_bytes())));
        assert!(!listeners.any() && !listeners.may_hear(store::hash::hash(&7u64.to_le_bytes())));
    }
}
