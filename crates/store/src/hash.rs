//! The one hash function, and the types of what it gives: the hash of a key is no hash of a member or field.
//!
//! It is seeded, so that a client can't choose keys that collide; the server sets the seed once, before the first key.
//!
//! # Which bits are used for what
//!
//! | bits of a key's hash | what uses them |
//! | --- | --- |
//! | from 0 up, as many as a table has buckets by | [`crate::table`]: the bucket |
//! | the 16 that begin at the last multiple of ten of those | the tag in the bucket: below 46 for up to 2^39 buckets |
//! | 0 to 16 and 32 to 48 | the filter of listeners: [`KeyHash::listener_bits`] |
//! | 0 to 16 and 32 to 43 | the filter of tracked keys: [`KeyHash::tracked_place`] |
//! | 0 to 20 | the stamps of keys: [`KeyHash::place_in_shard`] |
//! | from 48 up, 14 at most | the shard: `KeyHash::shard` |
//!
//! All keys of a shard have the bits of its number in common, so a table must not tell keys apart by them. The filter is one
//! for all shards, and may share bits with both; its own two halves must not overlap. In a cluster, the upper bits, from
//! which the shard is taken, become the key's slot (CRC16, 14 bits): all else here keeps below [`SLOT_SHIFT`].
//!
//! Members and fields ([`ItemHash`]) are in tables alone.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FoldHasher;

/// The seed; a constant until [`set_seed`], so that tests are reproducible.
static SEED: AtomicU64 = AtomicU64::new(0x9E37_79B9_7F4A_7C15);

/// Where the bits begin that choose the shard: above those that a table uses.
const SHARD_SHIFT: u32 = 48;
/// The bits that choose the shard, at most.
pub(crate) const SHARD_BITS_MAX: u32 = 14;
/// Where a cluster's slot will begin.
pub const SLOT_SHIFT: u32 = u64::BITS - 14;
/// The bits that choose a place among those of a shard, at most.
const PLACE_BITS_MAX: u32 = 20;
/// Where the filter of listeners takes its two halves from.
const LISTENER_SHIFTS: [u32; 2] = [0, 32];
/// The bits of each half, at most.
const LISTENER_BITS_MAX: u32 = 17;

/// Sets the seed of every table of this process. Must happen before the first key is stored: a table never rehashes
/// for a new seed.
pub fn set_seed(seed: u64) {
    SEED.store(seed, Ordering::Relaxed);
}

/// The 64-bit hash of some bytes that are neither a key nor a member or field: a channel's name, a script.
#[inline]
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    let seed = SEED.load(Ordering::Relaxed);
    let mut hasher = FoldHasher::with_seed(seed, foldhash::SharedSeed::global_fixed());
    hasher.write(bytes);
    hasher.finish()
}

/// The hash of a record's key, by which a table finds it.
pub trait TableHash: Copy + Eq {
    /// That of these bytes.
    fn of(bytes: &[u8]) -> Self;

    /// Its bits, of which a table uses the lower ones.
    fn bits(self) -> u64;
}

/// The hash of a key of the keyspace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct KeyHash(u64);

impl KeyHash {
    /// That of a key.
    #[inline]
    #[must_use]
    pub fn of(key: &[u8]) -> KeyHash {
        KeyHash(hash(key))
    }

    /// A hash that differs from this one, if there is one.
    #[inline]
    #[must_use]
    pub fn unlike(hash: Option<KeyHash>) -> KeyHash {
        KeyHash(hash.map_or(0, |hash| !hash.0))
    }

    /// The shard of the key, where there are so many: a power of two. To be asked of the keyspace, which knows how many.
    #[inline]
    pub(crate) fn shard(self, shards: usize) -> usize {
        (self.0 >> SHARD_SHIFT) as usize & (shards - 1)
    }

    /// The place of the key among so many of its shard, a power of two.
    #[inline]
    #[must_use]
    pub fn place_in_shard(self, places: usize) -> usize {
        const { assert!(PLACE_BITS_MAX <= SHARD_SHIFT, "all keys of a shard would have bits of it in common") };
        debug_assert!(places <= 1 << PLACE_BITS_MAX);
        self.0 as usize & (places - 1)
    }

    /// The two bits of the key in a filter of `BITS`, a power of two.
    #[inline]
    #[must_use]
    pub fn listener_bits<const BITS: usize>(self) -> [usize; 2] {
        const { assert!(BITS.is_power_of_two() && BITS <= 1 << LISTENER_BITS_MAX, "the halves would overlap") };
        LISTENER_SHIFTS.map(|shift| (self.0 >> shift) as usize % BITS)
    }

    /// The bucket of the key among the tracked keys, of so many, and its two bits in the bucket's word.
    #[inline]
    #[must_use]
    pub fn tracked_place<const BUCKETS: usize>(self) -> (usize, u64) {
        const { assert!(BUCKETS.is_power_of_two() && BUCKETS <= 1 << LISTENER_BITS_MAX, "bucket and bits would overlap") };
        let bit = |shift: u32| 1_u64 << ((self.0 >> shift) % 64);
        (self.0 as usize % BUCKETS, bit(32) | bit(38))
    }

    /// A number that tells keys apart where nothing else does, in an order that has nothing to do with their places.
    #[inline]
    #[must_use]
    pub fn tie(self) -> u64 {
        self.0.reverse_bits()
    }

    /// The hash of a key that a test makes up.
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
    /// That of a member or field.
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
    fn bits_are_shared_only_where_that_does_no_harm() {
        let shards = range(SHARD_SHIFT, SHARD_BITS_MAX);
        // 2^39 buckets are 32 TB. Under Miri the tags' windows move in smaller steps.
        for level in 0..=if cfg!(miri) { 31 } else { 39 } {
            let table = bits_used(level);
            assert_eq!(table & shards, 0, "the keys of a shard are alike to a table of 2^{level} buckets");
            assert!(table < 1 << SLOT_SHIFT);
        }
        let [first, second] = LISTENER_SHIFTS.map(|shift| range(shift, LISTENER_BITS_MAX));
        assert_eq!(first & second, 0, "the second bit of the filter says what the first has said");
        assert!(first | second < 1 << SLOT_SHIFT);
        const { assert!(SHARD_SHIFT + SHARD_BITS_MAX <= u64::BITS) };
    }

    #[test]
    fn what_uses_the_bits_is_as_documented() {
        for hash in [0, u64::MAX, 0x0123_4567_89AB_CDEF] {
            let key = KeyHash(hash);
            assert_eq!(key.shard(1 << 14), (hash >> 48) as usize & 0x3FFF);
            assert_eq!(key.shard(1), 0);
            let expected = [hash & 0x1_FFFF, hash >> 32 & 0x1_FFFF].map(|bit| bit as usize);
            assert_eq!(key.listener_bits::<{ 1 << 17 }>(), expected);
            assert_ne!(KeyHash::unlike(Some(key)), key);
        }
    }
}
