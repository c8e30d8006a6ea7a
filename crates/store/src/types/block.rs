//! Thin blocks: bytes in one allocation behind an unaligned pointer of one word.
//!
//! ```text
//! +----------+-----------+-------------+------------+
//! | len, u32 | mark, u32 | bytes (len) | spare room |
//! +----------+-----------+-------------+------------+
//! ```
//!
//! The length determines the allocation's size, which is rounded up to the allocator's size classes. Therefore spare
//! room costs no memory, and nearly all small changes stay in place. The mark belongs to the owner, for example as a
//! count. An empty block has no allocation, and its mark is 0.
//!
//! This module uses `unsafe` because the length is in the allocation and not beside the pointer. The invariant: **the
//! pointer either points to `EMPTY`, or owns an allocation of `room(len)` bytes, which is not 0 then, and all of these
//! bytes are initialised.**

mod spare;

use std::alloc::{self, Layout, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;
use std::slice;

use crate::compact::Mover;
use crate::prefetch::prefetch_block;

/// The fields before the bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct BlockHeader {
    len: u32,
    mark: u32,
}

const HEADER: usize = size_of::<BlockHeader>();

/// Alignment of all allocations, in bytes.
const ALIGN: usize = align_of::<BlockHeader>();

/// The target of all empty blocks' pointers.
static EMPTY: BlockHeader = BlockHeader { len: 0, mark: 0 };

/// Allocations up to this many bytes are multiples of 8.
const STEPS_BYTES_MAX: usize = 64;
/// Upper limit of the rounding step, in bytes.
const STEP_BYTES_MAX: usize = 64 * 1024;

/// Returns the allocation's size for `len` bytes, in mimalloc's size classes: first multiples of 8, then four classes
/// per doubling.
#[inline]
const fn room(len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let needed = HEADER + len;
    let step = if needed <= STEPS_BYTES_MAX { 8 } else { 1 << ((needed - 1).ilog2() - 2) };
    needed.next_multiple_of(if step < STEP_BYTES_MAX { step } else { STEP_BYTES_MAX })
}

fn layout(len: usize) -> Layout {
    // SAFETY: the alignment is a power of two, and a length of 32 bits is far below isize::MAX.
    unsafe { Layout::from_size_align_unchecked(room(len), ALIGN) }
}

/// Bytes behind a thin pointer. See the module's documentation.
#[repr(C, packed)]
pub struct Block(NonNull<BlockHeader>);

const _: () = assert!(align_of::<Block>() == 1 && size_of::<Block>() == 8);

// SAFETY: a block owns its bytes like a box, and shares them for reading only.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Default for Block {
    fn default() -> Self {
        Self::new()
    }
}

impl Block {
    /// Returns an empty block, which allocates nothing.
    #[inline]
    pub fn new() -> Self {
        Self(NonNull::from(&EMPTY))
    }

    /// Returns a block of these bytes.
    pub fn of(bytes: &[u8], mark: u32) -> Self {
        let mut block = Self::new();
        block.splice(0, 0, bytes.len()).copy_from_slice(bytes);
        block.set_mark(mark);
        block
    }

    #[inline]
    fn header(&self) -> BlockHeader {
        // SAFETY: every block has a header, including the empty one.
        unsafe { { self.0 }.read() }
    }

    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.header().len as usize
    }

    /// Returns true if there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The owner's mark.
    #[inline]
    pub fn mark(&self) -> u32 {
        self.header().mark
    }

    /// Sets the mark, unless the block is empty.
    #[inline]
    pub fn set_mark(&mut self, mark: u32) {
        let header = self.header();
        if header.len > 0 {
            // SAFETY: a block that is not empty owns its allocation.
            unsafe { { self.0 }.write(BlockHeader { mark, ..header }) }
        }
    }

    /// Size of the allocation in bytes.
    pub fn allocated_bytes(&self) -> usize {
        room(self.len())
    }

    /// Moves the block to another allocation, if it has one and `mover` selects it.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        // Compares the address, because most blocks stay, and a read of the header would wait for memory.
        let is_empty = { self.0 } == NonNull::from(&EMPTY);
        if is_empty || !mover.wants({ self.0 }.as_ptr().cast_const().cast()) {
            return;
        }
        let layout = layout(self.len());
        // Bypasses `spare`, which would keep the old allocation and give it to the next block. SAFETY: a block that is
        // not empty owns an allocation of this layout, which is not empty and is fully initialised. It is not used
        // after it is freed.
        unsafe {
            let Some(new) = NonNull::new(alloc::alloc(layout)) else { handle_alloc_error(layout) };
            new.copy_from_nonoverlapping({ self.0 }.cast(), layout.size());
            alloc::dealloc({ self.0 }.as_ptr().cast(), layout);
            self.0 = new.cast();
        }
    }

    /// Prefetches the beginning of the block.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_block({ self.0 }.as_ptr().cast_const().cast());
    }

    /// Address of the first byte.
    #[inline]
    fn start(&self) -> NonNull<u8> {
        // SAFETY: the bytes follow the header; the empty block has none.
        unsafe { { self.0 }.add(1).cast() }
    }

    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: this many bytes exist, are initialised, and do not change while `self` is borrowed.
        unsafe { slice::from_raw_parts(self.start().as_ptr(), self.len()) }
    }

    /// Returns the bytes for changes.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `&mut self` is the only reference. The empty block has no bytes.
        unsafe { slice::from_raw_parts_mut(self.start().as_ptr(), self.len()) }
    }

    /// Replaces `removed` bytes at `at` by `added` arbitrary bytes, and returns these for the caller to fill. Works in
    /// place if the allocation's size stays the same. Panics if the range does not exist or the result is too long.
    #[inline]
    pub fn splice(&mut self, at: usize, removed: usize, added: usize) -> &mut [u8] {
        if removed != added {
            self.shift(at, removed, added);
        }
        &mut self.bytes_mut()[at..at + added]
    }

    /// Moves the bytes behind a change of the length.
    fn shift(&mut self, at: usize, removed: usize, added: usize) {
        let len = self.len();
        assert!(at <= len && removed <= len - at, "the range exceeds the block");
        let new_len = len - removed + added;
        if room(len) != room(new_len) {
            return self.relocate(at, removed, added);
        }
        // SAFETY: both ranges are within the allocation, which has room for either length.
        unsafe {
            let from = self.start().add(at + removed);
            from.copy_to(self.start().add(at + added), len - at - removed);
            { self.0 }.write(BlockHeader { len: new_len as u32, ..self.header() });
        }
    }

    /// Moves the remaining bytes into an allocation of another size, or into none: see `shift`, which has checked the
    /// range.
    #[inline(never)]
    fn relocate(&mut self, at: usize, removed: usize, added: usize) {
        let len = self.len();
        let behind = len - at - removed;
        let new_len = at + added + behind;
        assert!(u32::try_from(new_len).is_ok(), "the block exceeds its maximum length");
        let mut new = Self::new();
        if new_len > 0 {
            let layout = layout(new_len);
            // SAFETY: the layout is not empty. All writes are within it: the header, the bytes before the change, zeros
            // in place of the added bytes, the bytes behind the change, and zeros in the spare room. All reads are
            // within this block.
            unsafe {
                let raw = spare::take(layout.size()).or_else(|| NonNull::new(alloc::alloc(layout)));
                let Some(raw) = raw else { handle_alloc_error(layout) };
                new.0 = raw.cast();
                { new.0 }.write(BlockHeader { len: new_len as u32, mark: self.mark() });
                let (from, to) = (self.start(), new.start());
                to.copy_from_nonoverlapping(from, at);
                to.add(at).write_bytes(0, added);
                to.add(at + added).copy_from_nonoverlapping(from.add(at + removed), behind);
                to.add(new_len).write_bytes(0, layout.size() - HEADER - new_len);
            }
        }
        *self = new;
    }
}

impl Drop for Block {
    #[inline]
    fn drop(&mut self) {
        let len = self.len();
        if len > 0 {
            let (allocation, layout) = ({ self.0 }.cast(), layout(len));
            // SAFETY: the allocation was made with the layout of this length, and is fully initialised.
            unsafe {
                if !spare::keep(allocation, layout.size()) {
                    alloc::dealloc(allocation.as_ptr(), layout);
                }
            }
        }
    }
}

impl Clone for Block {
    fn clone(&self) -> Self {
        Self::of(self.bytes(), self.mark())
    }
}

impl PartialEq for Block {
    fn eq(&self, other: &Self) -> bool {
        self.mark() == other.mark() && self.bytes() == other.bytes()
    }
}

impl Eq for Block {}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} marked {}", self.bytes().escape_ascii(), self.mark())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn allocations_have_the_allocators_size_classes() {
        for (len, bytes) in [(0, 0), (1, 16), (8, 16), (9, 24), (56, 64), (57, 80), (100, 112), (121, 160), (249, 320)]
        {
            assert_eq!(room(len), bytes, "{len}");
        }
        assert_eq!(room((1 << 30) - 8 + 1), (1 << 30) + STEP_BYTES_MAX);
        for len in 1..5000 {
            assert!(room(len) >= len + HEADER && room(len).is_multiple_of(ALIGN));
        }
    }

    #[test]
    fn a_block_behaves_like_a_vector() {
        for seed in 0..if cfg!(miri) { 3 } else { 50 } {
            let (mut block, mut model, random) = (Block::new(), Vec::new(), &mut Random::new(seed));
            for step in 0..if cfg!(miri) { 60 } else { 500 } {
                let at = random.below(model.len() + 1);
                let removed =
                    if random.below(40) == 0 { model.len() - at } else { random.below(20).min(model.len() - at) };
                let added: Vec<u8> = (0..random.below(24)).map(|byte| byte as u8).collect();
                block.splice(at, removed, added.len()).copy_from_slice(&added);
                model.splice(at..at + removed, added);
                block.set_mark(step);
                assert_eq!((block.bytes(), block.len()), (&*model, model.len()));
                assert_eq!(block.mark(), if model.is_empty() { 0 } else { step });
                assert_eq!(block.clone(), block);
            }
            block.splice(0, model.len(), 0);
            assert_eq!((block.len(), block.allocated_bytes(), block.mark()), (0, 0, 0));
        }
    }

    #[test]
    #[should_panic(expected = "the range exceeds the block")]
    fn a_range_beyond_the_end_cannot_be_removed() {
        Block::of(b"abc", 0).splice(2, 2, 0);
    }
}
