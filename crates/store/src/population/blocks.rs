//! How many bits are set in each block of a long string, kept from one count to the next: what has changed since is
//! counted anew, and nothing else is read.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::count_ones;

/// A block, in bytes. A changed block takes a fraction of a microsecond to count again, and the counts take a four thousandth of
/// the string's memory. Miri takes seconds to count as much.
const BLOCK_BYTES: usize = if cfg!(miri) { 512 } else { 16 << 10 };
/// Strings of fewer bytes are counted in a microsecond, without this.
pub const STRING_BYTES_MIN: usize = 4 * BLOCK_BYTES;
/// More than a block has bits.
const UNKNOWN: u32 = u32::MAX;

const _: () = assert!(BLOCK_BYTES * 8 < UNKNOWN as usize);

/// The counts of a string's blocks, as far as they are known. Threads that count at once find the same.
#[derive(Debug)]
pub struct BlockCounts(Vec<AtomicU32>);

impl BlockCounts {
    /// Counts, of which none is known yet, with room for a string of so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> BlockCounts {
        BlockCounts((0..bytes.div_ceil(BLOCK_BYTES)).map(|_| AtomicU32::new(UNKNOWN)).collect())
    }

    /// How many bits are set in a part of the string that these are the counts of. What doesn't fit in is counted each time.
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

    /// Forgets the blocks that have any of these bytes.
    pub fn forget(&mut self, bytes: Range<usize>) {
        let blocks = bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES).min(self.0.len());
        for count in self.0.get_mut(blocks).unwrap_or_default() {
            *count.get_mut() = UNKNOWN;
        }
    }

    /// Estimated bytes of memory beside itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<AtomicU32>()
    }
}

/// The count of a whole block, which is counted if it isn't known.
fn kept(count: &AtomicU32, block: &[u8]) -> u64 {
    // Relaxed: the number is all that is handed on, and threads have come by the string itself in an order already.
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
    fn any_part_has_the_bits_that_it_has() {
        let random = &mut Random::new(3);
        let longest = 4 * BLOCK_BYTES;
        let mut string: Vec<u8> = (0..longest).map(|_| random.next() as u8).collect();
        // A string that grows beyond the room is counted there without being kept.
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
