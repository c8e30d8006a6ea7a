//! Long strings with a reference count: a reply that sends one keeps the old bytes while the key changes.
//!
//! A string that was received into its own block can stay there ([`received`]), without a copy. The engine registers
//! these blocks beside the arguments. Handlers see plain slices and know nothing of blocks; a string without a
//! registered block is copied.

use std::cell::RefCell;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

use crate::compact::Mover;
use crate::popcount::blocks::{BlockCounts, STRING_BYTES_MIN};
use crate::popcount::count_ones;

/// Limit in bytes up to which a growing string doubles its capacity; beyond it the spare capacity is a quarter. Spare
/// capacity of long strings costs much memory, and growth by any constant factor keeps appends amortised.
const EAGER_GROWTH_BYTES_MAX: usize = 1024 * 1024;
/// Part of its length that a string without spare capacity gets at its first growth. Such a string was stored as a whole, and perhaps
/// grows only once. The allocator's blocks are larger than requested, so a small growth usually needs no other block.
const FIRST_GROWTH_PART: usize = 64;

/// Spare capacity of a string that was received into its own block: its line end.
const RECEIVED_SPARE_BYTES: usize = 2;

/// Returns the spare capacity of a string that grows to `len` bytes. `has_grown` is false if it had no spare capacity.
fn spare_bytes(len: usize, has_grown: bool) -> usize {
    match has_grown {
        false => len / FIRST_GROWTH_PART,
        true if len <= EAGER_GROWTH_BYTES_MAX => len,
        true => len / 4,
    }
}

thread_local! {
    /// The blocks that the running commands of this thread may keep as strings.
    static RECEIVED: RefCell<Vec<Arc<Vec<u8>>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `run` with these blocks registered: a string that fills a whole block is stored without a copy.
pub fn received<'b, T>(blocks: impl ExactSizeIterator<Item = &'b Arc<Vec<u8>>>, run: impl FnOnce() -> T) -> T {
    if blocks.len() == 0 {
        return run();
    }
    let outer = RECEIVED.replace(blocks.cloned().collect());
    let result = run();
    RECEIVED.set(outer);
    result
}

/// A string that can be shared.
#[derive(Debug, Default)]
pub struct Long {
    bytes: Arc<Vec<u8>>,
    /// Cached counts of set bits, once a large string was counted.
    counts: OnceLock<Box<BlockCounts>>,
}

impl From<Arc<Vec<u8>>> for Long {
    fn from(bytes: Arc<Vec<u8>>) -> Long {
        Long { bytes, counts: OnceLock::new() }
    }
}

impl From<Vec<u8>> for Long {
    fn from(bytes: Vec<u8>) -> Long {
        Arc::new(bytes).into()
    }
}

impl Clone for Long {
    /// Shares the bytes. The copy has no cached counts.
    fn clone(&self) -> Long {
        self.bytes.clone().into()
    }
}

impl Deref for Long {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Long {
    /// Returns a string of these bytes: a copy, unless they are a registered block.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Long {
        Long::kept(bytes).unwrap_or_else(|| bytes.to_vec().into())
    }

    /// Returns the string's buffer for reuse, if there is no other reference to it.
    #[must_use]
    pub fn into_buffer(self) -> Option<Vec<u8>> {
        Arc::into_inner(self.bytes)
    }

    /// Moves the string to another allocation if `mover` selects it and there is no other reference to it.
    pub(crate) fn compact(&mut self, mover: &mut Mover<'_>) {
        if mover.wants(self.bytes.as_ptr()) && Arc::get_mut(&mut self.bytes).is_some() {
            self.bytes = Arc::new(Vec::from(&**self));
        }
    }

    fn kept(bytes: &[u8]) -> Option<Long> {
        RECEIVED.with_borrow(|blocks| {
            let block = blocks.iter().find(|block| std::ptr::eq(block.as_slice(), bytes))?;
            Some(block.clone().into())
        })
    }

    /// Returns the shared bytes.
    #[must_use]
    pub fn shared(&self) -> &Arc<Vec<u8>> {
        &self.bytes
    }

    /// Returns the number of set bits in a part of the string. In a large string, reads only blocks that have changed
    /// since they were last counted.
    #[must_use]
    pub fn count_ones(&self, part: Range<usize>) -> u64 {
        if self.len() < STRING_BYTES_MIN {
            return count_ones(&self[part]);
        }
        let counts = self.counts.get_or_init(|| Box::new(BlockCounts::with_capacity(self.bytes.capacity())));
        counts.count_ones(self, part)
    }

    /// Bytes of memory of the string, without `self`.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let counts = self.counts.get().map_or(0, |counts| size_of::<BlockCounts>() + counts.memory_bytes());
        self.bytes.capacity() + size_of::<Vec<u8>>() + 2 * size_of::<usize>() + counts
    }

    /// Cuts the string to `len` bytes or fills it up with zeros, and returns a part of it for changes. The string grows
    /// in amortised constant time, and is copied if it is shared.
    pub(crate) fn part_mut(&mut self, len: usize, part: Range<usize>) -> &mut [u8] {
        let bytes = Arc::make_mut(&mut self.bytes);
        let before = bytes.len();
        if len > bytes.capacity() {
            bytes.reserve_exact(len - before + spare_bytes(len, bytes.capacity() > before + RECEIVED_SPARE_BYTES));
            // The counts have the old capacity.
            self.counts.take();
        }
        bytes.resize(len, 0);
        if let Some(counts) = self.counts.get_mut() {
            counts.forget(before.min(len)..before.max(len));
            counts.forget(part.clone());
        }
        &mut bytes[part]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_string_stays_in_the_block_it_was_received_in() {
        let blocks = [b'x', b'y'].map(|byte| Arc::new(vec![byte; 1000]));
        let mut kept = received(blocks.iter(), || [Long::new(&blocks[0]), Long::new(&blocks[1])]);
        for (long, block) in kept.iter_mut().zip(&blocks) {
            assert!(Arc::ptr_eq(long.shared(), block) && **long == ***block);
            // Later commands copy it.
            assert!(!Arc::ptr_eq(Long::new(block).shared(), block));
            long.part_mut(1001, 1000..1001).fill(b'!');
            assert!(long.ends_with(b"!") && !block.ends_with(b"!"));
        }
    }

    #[test]
    fn parts_of_blocks_and_other_bytes_are_copied() {
        let block = Arc::new(vec![b'x'; 1000]);
        received([&block].into_iter(), || {
            for bytes in [&block[1..], &block[..999], &vec![b'x'; 1000][..], b""] {
                let long = Long::new(bytes);
                assert!(!Arc::ptr_eq(long.shared(), &block) && *long == *bytes);
            }
        });
    }

    #[test]
    fn nested_commands_have_their_own_blocks() {
        let [outer, inner] = [b'x', b'y'].map(|byte| Arc::new(vec![byte; 1000]));
        let keeps = |block: &Arc<Vec<u8>>| Arc::ptr_eq(Long::new(block).shared(), block);
        received([&outer].into_iter(), || {
            received([&inner].into_iter(), || assert!(keeps(&inner) && !keeps(&outer)));
            assert!(keeps(&outer) && !keeps(&inner));
        });
    }

    #[test]
    fn spare_capacity_is_small_at_the_first_growth_and_large_at_the_next() {
        let mut long = Long::from(vec![0; 64_000]);
        let grow = |long: &mut Long, len: usize| {
            long.part_mut(len, len - 1..len);
            long.bytes.capacity()
        };
        let mut received = Vec::with_capacity(64_000 + RECEIVED_SPARE_BYTES);
        received.resize(64_000, 0);
        assert!((64_003..66_000).contains(&grow(&mut Long::from(received), 64_003)));
        let first = grow(&mut long, 64_001);
        assert!((64_001..66_000).contains(&first), "{first}");
        assert_eq!(grow(&mut long, first - 5), first);
        let second = grow(&mut long, first + 9);
        assert!(second >= 2 * first, "{second}");
        // A string that is full at each growth still grows seldom.
        let mut long = Long::from(vec![0; 64_000]);
        let capacities: std::collections::BTreeSet<usize> =
            (64_001..if cfg!(miri) { 66_000 } else { 200_000 }).map(|len| grow(&mut long, len)).collect();
        assert!(capacities.len() < 100, "{}", capacities.len());
    }

    #[test]
    fn bits_are_counted_after_every_kind_of_change() {
        let random = &mut Random::new(5);
        let [min, max] = [STRING_BYTES_MIN, 6 * STRING_BYTES_MIN];
        let mut long = Long::from(vec![0; min]);
        let mut model = vec![0; min];
        for round in 0..if cfg!(miri) { 8 } else { 3000 } {
            assert_eq!(long.count_ones(0..model.len()), count_ones(&model), "{round}");
            // In some rounds the string is shared, or it is cut.
            let other = random.below(4).eq(&0).then(|| long.clone());
            let cut = if random.below(20) == 0 { max - min } else { 0 };
            let len = model.len().saturating_sub(cut).max(min)
                + random.below(5).saturating_sub(3) * random.below(max - min) / 20;
            let len = len.min(max);
            let start = random.below(len);
            let part = start..(start + 1 + random.below(300)).min(len);
            let byte = random.next() as u8;
            long.part_mut(len, part.clone()).fill(byte);
            let before = std::mem::take(&mut model);
            model = before.clone();
            model.resize(len, 0);
            model[part].fill(byte);
            assert_eq!(*long, *model);
            if let Some(other) = other {
                assert_eq!(other.count_ones(0..before.len()), count_ones(&before));
            }
        }
    }
}
