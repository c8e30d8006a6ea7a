//! A filter for keys that may have listeners: sessions that watch them (WATCH) or wait for them (BLPOP and others).
//!
//! Every command that may change a key checks for listeners, so the check must be cheap but may report false positives:
//! it is a counting Bloom filter with two hashes. Commands read its bits, which take 16 kB and stay in the first-level
//! cache; its counts are touched only when a listener comes or goes. With two thousand listeners, one command in a
//! thousand on another key takes the slow path in vain.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use store::hash::KeyHash;

use crate::slow_path::{EngineFlags, has_listeners};

/// Bits of the filter, a power of two.
const BITS: usize = 1 << 17;
/// Number of parts of the counts, each with its own lock.
const PARTS: usize = 64;

/// See the module's documentation.
pub struct Listeners {
    bits: Box<[AtomicU64]>,
    /// Number of listeners for each nonzero bit of the filter, in parts.
    counts: Box<[Mutex<HashMap<usize, u32>>]>,
    /// Has the total number of listeners.
    slow_path: Arc<EngineFlags>,
}

impl Default for Listeners {
    fn default() -> Listeners {
        Listeners::new(Arc::default())
    }
}

impl Listeners {
    /// Creates a filter without listeners.
    #[must_use]
    pub fn new(slow_path: Arc<EngineFlags>) -> Listeners {
        Listeners {
            bits: (0..BITS / 64).map(|_| AtomicU64::new(0)).collect(),
            counts: (0..PARTS).map(|_| Mutex::default()).collect(),
            slow_path,
        }
    }

    /// Adds a listener to a key. The caller holds the key's shard.
    pub fn add(&self, hash: KeyHash) {
        self.slow_path.add_listener();
        for bit in hash.listener_bits::<BITS>() {
            self.change(bit, |count| *count += 1);
        }
    }

    /// Removes a listener from a key.
    pub fn remove(&self, hash: KeyHash) {
        for bit in hash.listener_bits::<BITS>() {
            self.change(bit, |count| *count = count.saturating_sub(1));
        }
        self.slow_path.remove_listener();
    }

    fn change(&self, bit: usize, change: impl FnOnce(&mut u32)) {
        let mut counts = self.counts[bit % PARTS].lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(bit).or_default();
        change(count);
        // Under the lock, so that the bit agrees with the latest count.
        let (word, mask) = (&self.bits[bit / 64], 1 << (bit % 64));
        if *count == 0 {
            counts.remove(&bit);
            word.fetch_and(!mask, Ordering::Relaxed);
        } else {
            word.fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// Returns true if any key has listeners.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        has_listeners(self.slow_path.get())
    }

    /// Returns false if no key with this hash has listeners, in any database. The caller holds the key's shard.
    #[inline]
    #[must_use]
    pub fn may_hear(&self, hash: KeyHash) -> bool {
        let [first, second] = hash.listener_bits::<BITS>();
        let is_set = |bit: usize| self.bits[bit / 64].load(Ordering::Relaxed) & 1 << (bit % 64) != 0;
        is_set(first) && is_set(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn false_positives_of_the_listener_filter_are_rare() {
        let listeners = Listeners::default();
        assert!(!listeners.any());
        (0..2000u64).for_each(|key| listeners.add(KeyHash::of(&key.to_le_bytes())));
        assert!(listeners.any() && listeners.may_hear(KeyHash::of(&7u64.to_le_bytes())));
        let others = (2000..102_000u64).filter(|key| listeners.may_hear(KeyHash::of(&key.to_le_bytes())));
        assert!(others.count() < 200);
        (0..2000u64).for_each(|key| listeners.remove(KeyHash::of(&key.to_le_bytes())));
        assert!(!listeners.any() && !listeners.may_hear(KeyHash::of(&7u64.to_le_bytes())));
    }
}
