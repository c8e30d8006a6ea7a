//! Which keys may have listeners: sessions that watch them (WATCH) or wait for them (BLPOP and others).
//!
//! Every command that may change a key asks whether anything listens to it, so the answer must be cheap and need not be
//! exact: a counting Bloom filter of two hashes. Its bits, which commands read, take 16 KB and stay in the first-level
//! cache; its counts are touched only where something begins or ceases to listen. With two thousand listeners, one
//! command in a thousand on another key takes the long way in vain.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use store::hash::KeyHash;

use crate::reasons::{EngineReasons, has_listeners};

/// Bits of the filter, a power of two.
const BITS: usize = 1 << 17;
/// Parts into which the counts are cut, each with its own lock.
const PARTS: usize = 64;

/// See the module's documentation.
pub struct Listeners {
    bits: Box<[AtomicU64]>,
    /// How many listeners have set each bit, where there are any, by some of the bit's own bits.
    counts: Box<[Mutex<HashMap<usize, u32>>]>,
    /// Where it is counted how many there are.
    reasons: Arc<EngineReasons>,
}

impl Default for Listeners {
    fn default() -> Listeners {
        Listeners::new(Arc::default())
    }
}

impl Listeners {
    /// None.
    #[must_use]
    pub fn new(reasons: Arc<EngineReasons>) -> Listeners {
        Listeners {
            bits: (0..BITS / 64).map(|_| AtomicU64::new(0)).collect(),
            counts: (0..PARTS).map(|_| Mutex::default()).collect(),
            reasons,
        }
    }

    /// Something begins to listen to a key. The caller holds the key's shard.
    pub fn add(&self, hash: KeyHash) {
        self.reasons.add_listener();
        for bit in hash.listener_bits::<BITS>() {
            self.change(bit, |count| *count += 1);
        }
    }

    /// Something has ceased to listen to a key.
    pub fn remove(&self, hash: KeyHash) {
        for bit in hash.listener_bits::<BITS>() {
            self.change(bit, |count| *count = count.saturating_sub(1));
        }
        self.reasons.remove_listener();
    }

    fn change(&self, bit: usize, change: impl FnOnce(&mut u32)) {
        let mut counts = self.counts[bit % PARTS].lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(bit).or_default();
        change(count);
        // Under the lock, so that the bit is that of the last change.
        let (word, mask) = (&self.bits[bit / 64], 1 << (bit % 64));
        if *count == 0 {
            counts.remove(&bit);
            word.fetch_and(!mask, Ordering::Relaxed);
        } else {
            word.fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// True if anything listens to any key.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        has_listeners(self.reasons.get())
    }

    /// False if nothing listens to a key with this hash, in any database. The caller holds the key's shard.
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
    fn hardly_any_other_key_is_taken_for_one_that_is_listened_to() {
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
