//! The hash function, and types for its results. A [`KeyHash`] and an [`ItemHash`] cannot be confused.
//!
//! The hash is seeded, so that clients cannot choose keys that collide. The server sets the seed once, before the first
//! key.
//!
//! # Uses of the bits
//!
//! | bits of a key's hash | user |
//! | --- | --- |
//! | from 0 up, log2 of the table's number of buckets | [`crate::table`]: the bucket |
//! | 16, from the last multiple of ten within those | the tag in the bucket: below bit 46 up to 2^39 buckets |
//! | 0 to 16 and 32 to 48 | the filter of listeners: [`KeyHash::listener_bits`] |
//! | 0 to 16 and 32 to 43 | the filter of tracked keys: [`KeyHash::tracked_place`] |
//! | 0 to 20 | the stamps of keys: [`KeyHash::place_in_shard`] |
//! | from 50 up, 14 at most | the shard: `KeyHash::shard` |
//!
//! All keys of a shard share the bits of the shard's number, so a table must not use these bits to tell keys apart. All
//! shards share one filter of listeners, so the filter may use any bits; only its own two halves must not overlap. In
//! cluster mode ([`hash_by_slot`]) the key's slot ([`slot_of`]) replaces the upper bits, and is the shard. All other
//! uses stay below [`SLOT_SHIFT`].
//!
//! Hashes of members and fields ([`ItemHash`]) are used by tables only.

mod slots;

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FoldHasher;

pub use slots::{SLOTS, pattern_slot, slot_of, tag_of};

/// The seed, a constant until [`set_seed`] runs, so that tests are reproducible.
static SEED: AtomicU64 = AtomicU64::new(0x9E37_79B9_7F4A_7C15);
/// The bit of the seed that is 0 if keys are hashed by their slots.
const WITHOUT_SLOTS: u64 = 1;

/// The first of the bits that choose the shard, above the bits that tables use.
const SHARD_SHIFT: u32 = SLOT_SHIFT;
/// The maximum number of bits that choose the shard.
pub(crate) const SHARD_BITS_MAX: u32 = 14;
/// The first bit of a cluster's slot.
pub const SLOT_SHIFT: u32 = u64::BITS - SLOTS.ilog2();
/// The maximum number of bits that choose a key's place within its shard.
const PLACE_BITS_MAX: u32 = 20;
/// The first bit of each half of the filter of listeners.
const LISTENER_SHIFTS: [u32; 2] = [0, 32];
/// The maximum number of bits in each half.
const LISTENER_BITS_MAX: u32 = 17;

/// Sets the seed of every table of this process. Call it before the first key is stored, because a table never rehashes
/// for a new seed.
pub fn set_seed(seed: u64) {
    let mode = SEED.load(Ordering::Relaxed) & WITHOUT_SLOTS;
    SEED.store(seed & !WITHOUT_SLOTS | mode, Ordering::Relaxed);
}

/// Makes the upper bits of every key's hash its slot, for the whole process. A node of a cluster calls this before the first key is stored.
pub fn hash_by_slot() {
    SEED.fetch_and(!WITHOUT_SLOTS, Ordering::Relaxed);
}

/// Returns true if [`hash_by_slot`] was called.
#[must_use]
pub fn hashes_by_slot() -> bool {
    SEED.load(Ordering::Relaxed) & WITHOUT_SLOTS == 0
}

/// Returns the 64-bit hash of bytes that are neither a key nor a member or field, for example of a channel's name or a
/// script.
#[inline]
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    seeded(SEED.load(Ordering::Relaxed), bytes)
}

#[inline]
fn seeded(seed: u64, bytes: &[u8]) -> u64 {
    let mut hasher = FoldHasher::with_seed(seed, foldhash::SharedSeed::global_fixed());
    hasher.write(bytes);
    hasher.finish()
}

/// The hash that a table uses to find a record.
pub trait TableHash: Copy + Eq {
    /// Hashes these bytes.
    fn of(bytes: &[u8]) -> Self;

    /// The bits of the hash. A table uses the lower ones.
    fn bits(self) -> u64;
}

/// The hash of a key of the keyspace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Hashes a key.
    #[inline]
    #[must_use]
    pub fn of(key: &[u8]) -> KeyHash {
        let seed = SEED.load(Ordering::Relaxed);
        let hash = seeded(seed, key);
        if seed & WITHOUT_SLOTS != 0 { KeyHash(hash) } else { KeyHash(slots::with_slot(hash, key)) }
    }

    /// Returns the slot of the key, if keys are hashed by their slots.
    #[inline]
    #[must_use]
    pub fn slot(self) -> u16 {
        (self.0 >> SLOT_SHIFT) as u16
    }

    /// Returns a hash that differs from the given one, if there is one.
    #[inline]
    #[must_use]
    pub fn unlike(hash: Option<KeyHash>) -> KeyHash {
        KeyHash(hash.map_or(0, |hash| !hash.0))
    }

    /// Returns the shard of the key among `shards`, a power of two. Call
    /// [`Keyspace::shard_of`](crate::keyspace::Keyspace::shard_of) instead, which knows the number.
    #[inline]
    pub(crate) fn shard(self, shards: usize) -> usize {
        (self.0 >> SHARD_SHIFT) as usize & (shards - 1)
    }

    /// Returns the key's place among `places` places of its shard, a power of two.
    #[inline]
    #[must_use]
    pub fn place_in_shard(self, places: usize) -> usize {
        const { assert!(PLACE_BITS_MAX <= SHARD_SHIFT, "all keys of a shard would have bits of it in common") };
        debug_assert!(places <= 1 << PLACE_BITS_MAX);
        self.0 as usize & (places - 1)
    }

    /// Returns the key's two bits in a filter of `BITS` bits, a power of two.
    #[inline]
    #[must_use]
    pub fn listener_bits<const BITS: usize>(self) -> [usize; 2] {
        const { assert!(BITS.is_power_of_two() && BITS <= 1 << LISTENER_BITS_MAX, "the halves would overlap") };
        LISTENER_SHIFTS.map(|shift| (self.0 >> shift) as usize % BITS)
    }

    /// Returns the key's bucket among `BUCKETS` buckets of tracked keys, and its two bits in the bucket's word.
    #[inline]
    #[must_use]
    pub fn tracked_place<const BUCKETS: usize>(self) -> (usize, u64) {
        const { assert!(BUCKETS.is_power_of_two() && BUCKETS <= 1 << LISTENER_BITS_MAX, "bucket and bits would overlap") };
        let bit = |shift: u32| 1_u64 << ((self.0 >> shift) % 64);
        (self.0 as usize % BUCKETS, bit(32) | bit(38))
    }

    /// Returns a number that breaks ties between keys, in an order that is unrelated to their places.
    #[inline]
    #[must_use]
    pub fn tie(self) -> u64 {
        self.0.reverse_bits()
    }

    /// Makes up the hash of a key in this shard.
    #[cfg(test)]
    pub(crate) fn in_shard(shard: usize) -> KeyHash {
        KeyHash((shard as u64) << SHARD_SHIFT)
    }
}

impl TableHash for KeyHash {
    #[inline]
    fn of(key: &[u8]) -> KeyHash {
        KeyHash::of(key)
    }

    #[inline]
    fn bits(self) -> u64 {
        self.0
    }
}

/// The hash of a set's or sorted set's member, or of a hash's field.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct ItemHash(u64);

impl ItemHash {
    /// Hashes a member or field.
    #[inline]
    #[must_use]
    pub fn of(item: &[u8]) -> ItemHash {
        ItemHash(hash(item))
    }
}

impl TableHash for ItemHash {
    #[inline]
    fn of(item: &[u8]) -> ItemHash {
        ItemHash::of(item)
    }

    #[inline]
    fn bits(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::bits_used;

    fn range(from: u32, count: u32) -> u64 {
        u64::MAX >> (u64::BITS - count) << from
    }

    #[test]
    fn bits_are_shared_only_where_this_is_harmless() {
        let shards = range(SHARD_SHIFT, SHARD_BITS_MAX);
        // 2^39 buckets are 32 TB. Under Miri the tags' windows move in smaller steps, so the limit is lower.
        for level in 0..=if cfg!(miri) { 31 } else { 39 } {
            let table = bits_used(level);
            assert_eq!(table & shards, 0, "the keys of a shard are alike to a table of 2^{level} buckets");
            assert!(table < 1 << SLOT_SHIFT);
        }
        let [first, second] = LISTENER_SHIFTS.map(|shift| range(shift, LISTENER_BITS_MAX));
        assert_eq!(first & second, 0, "the second bit of the filter says what the first has said");
        assert!(first | second < 1 << SLOT_SHIFT);
        const { assert!(SHARD_SHIFT + SHARD_BITS_MAX <= u64::BITS && SLOTS == 1 << SHARD_BITS_MAX) };
    }

    #[test]
    fn the_bits_are_used_as_documented() {
        for hash in [0, u64::MAX, 0x0123_4567_89AB_CDEF] {
            let key = KeyHash(hash);
            assert_eq!(key.shard(1 << 14), (hash >> 50) as usize & 0x3FFF);
            assert_eq!(key.shard(1), 0);
            let expected = [hash & 0x1_FFFF, hash >> 32 & 0x1_FFFF].map(|bit| bit as usize);
            assert_eq!(key.listener_bits::<{ 1 << 17 }>(), expected);
            assert_ne!(KeyHash::unlike(Some(key)), key);
        }
    }
}
