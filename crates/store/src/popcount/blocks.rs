//! Cached numbers of set bits in the blocks of a long string. A count reads only the blocks that have changed since the
//! last one.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::count_ones;

/// Bytes of a block. Recounting a changed block takes a fraction of a microsecond, and the counts take a
/// four-thousandth of the string's memory. Miri takes seconds to count that much, so its blocks are smaller.
const BLOCK_BYTES: usize = if cfg!(miri) { 512 } else { 16 << 10 };
/// Shorter strings are counted in a microsecond, without a cache.
pub const STRING_BYTES_MIN: usize = 4 * BLOCK_BYTES;
/// A number greater than the bits of a block.
const UNKNOWN: u32 = u32::MAX;

const _: () = assert!(BLOCK_BYTES * 8 < UNKNOWN as usize);

/// The known counts of a string's blocks. Concurrent threads store the same counts.
#[derive(Debug)]
pub struct BlockCounts(Vec<AtomicU32>);

impl BlockCounts {
    /// Returns a cache with no known counts, for a string of `bytes` bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> BlockCounts {
        BlockCounts((0..bytes.div_ceil(BLOCK_BYTES)).map(|_| AtomicU32::new(UNKNOWN)).collect())
    }

    /// Returns the number of set bits in a part of the string that belongs to these counts. Blocks beyond the capacity
    /// are counted each time.
    #[must_use]
    pub fn count_ones(&self, string: &[u8], part: Range<usize>) -> u64 {
        let blocks = part.start / BLOCK_BYTES..part.end.div_ceil(BLOCK_BYTES);
        let ones = blocks.map(|block| {
            let whole = block * BLOCK_BYTES..((block + 1) * BLOCK_BYTES).min(string.len());
            let wanted = whole.start.max(part.start)..whole.end.min(part.end);
            match self.0.get(block) {
                Some(count) if wanted == whole => kept(count, &string[whole]),
                _ => count_ones(&string[wanted]),
            }
        });
        ones.sum()
    }

    /// Forgets the counts of all blocks that overlap these bytes.
    pub fn forget(&mut self, bytes: Range<usize>) {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES).min(self.0.len());
        for count in self.0.get_mut(blocks).unwrap_or_default() {
            *count.get_mut() = UNKNOWN;
        }
    }

    /// Estimates the bytes of memory, without `self`.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<AtomicU32>()
    }
}

/// Returns the count of a whole block, and counts it if the count is unknown.
fn kept(count: &AtomicU32, block: &[u8]) -> u64 {
    // Relaxed: only the number itself passes between threads, and the string has already been synchronised by other
    // means.
    let known = count.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return u64::from(known);
    }
    let ones = count_ones(block);
    count.store(ones as u32, Ordering::Relaxed);
    ones
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_known_block_is_not_read_again_until_it_changes() {
        let mut string = vec![0xff; 3 * BLOCK_BYTES + 5];
        let mut counts = BlockCounts::with_capacity(string.len());
        let all = 0..string.len();
        let ones = string.len() as u64 * 8;
        assert_eq!(counts.count_ones(&string, all.clone()), ones);
        string[BLOCK_BYTES] = 0;
        string[3 * BLOCK_BYTES + 4] = 0;
        assert_eq!(counts.count_ones(&string, all.clone()), ones);
        counts.forget(BLOCK_BYTES..BLOCK_BYTES + 1);
        assert_eq!(counts.count_ones(&string, all.clone()), ones - 8);
        counts.forget(3 * BLOCK_BYTES + 4..string.len());
        assert_eq!(counts.count_ones(&string, all), ones - 16);
    }

    #[test]
    fn counts_of_any_part_are_right() {
        let random = &mut Random::new(3);
        let longest = 4 * BLOCK_BYTES;
        let mut string: Vec<u8> = (0..longest).map(|_| random.next() as u8).collect();
        // Blocks beyond the capacity are counted without the cache.
        let mut counts = BlockCounts::with_capacity(3 * BLOCK_BYTES);
        for _ in 0..if cfg!(miri) { 10 } else { 2000 } {
            let mut ends = [random.below(longest + 1), random.below(longest + 1)];
            ends.sort_unstable();
            let part = ends[0]..ends[1];
            assert_eq!(counts.count_ones(&string, part.clone()), count_ones(&string[part.clone()]), "{part:?}");
            let changed = part.start..part.end.min(part.start + 50);
            string[changed.clone()].fill(random.next() as u8);
            counts.forget(changed);
        }
    }
}
