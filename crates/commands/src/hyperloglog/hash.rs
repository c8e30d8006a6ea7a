//! Selection of an element's register by Redis's hash: MurmurHash64A with Redis's seed. Servers must share the hash,
//! because they exchange HyperLogLogs.
//!
//! Source of the algorithm: Austin Appleby's MurmurHash2, 64-bit version for 64-bit platforms.

use super::dense::{INDEX_BITS, REGISTERS};

const SEED: u64 = 0xadc8_3b19;
const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// The register and value of an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    /// The element's register.
    pub(super) register: usize,
    /// The register's minimum value: 1 to 51.
    pub(super) value: u8,
}

impl Mark {
    /// Computes the mark of an element.
    #[inline]
    pub(super) fn of(element: &[u8]) -> Mark {
        let hash = murmur(element);
        // The added bit above the hash ends the run of zeros.
        let rest = hash >> INDEX_BITS | 1 << (u64::BITS - INDEX_BITS);
        Mark { register: hash as usize % REGISTERS, value: rest.trailing_zeros() as u8 + 1 }
    }
}

#[inline]
fn murmur(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        word ^= word >> SHIFT;
        hash = (hash ^ word.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let last = tail.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        hash = (hash ^ last).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}
