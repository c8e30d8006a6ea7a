//! Recently freed allocations of blocks, which their thread keeps for the next block of the same size.
//!
//! A collection that grows one member at a time moves from one allocation to the next larger one. An allocator hands
//! out memory that has been free for long. Its cache line is fetched twice: for the free list, and for the write.
//! Memory that was freed last is still in the cache. With a million small sorted sets this was a fifth of ZADD's time.
//!
//! The cache is small and bounded: [`KEPT`] allocations of each size up to [`SIZE_MAX`], 27 KB per thread.
//!
//! This module uses `unsafe` because it holds allocations without an owner. The invariant: **an allocation that is kept
//! under a size has that layout, all its bytes are initialised, and no other pointer to it exists.**

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ptr::NonNull;

use super::ALIGN;

/// Maximum size of the allocations that are kept, in bytes. Larger ones are rare, and filling them costs more than
/// allocating them.
const SIZE_MAX: usize = 512;
/// Maximum number of allocations per size.
const KEPT: usize = 8;

/// Allocations of one size, with the latest on top.
struct Stack {
    len: Cell<usize>,
    kept: [Cell<Option<NonNull<u8>>>; KEPT],
}

/// A stack for each multiple of the alignment.
struct Spare([Stack; SIZE_MAX / ALIGN + 1]);

thread_local! {
    static SPARE: Spare =
        const { Spare([const { Stack { len: Cell::new(0), kept: [const { Cell::new(None) }; KEPT] } }; _]) };
}

/// Returns an allocation of this size, aligned to [`ALIGN`], if there is one; all its bytes are initialised.
#[inline]
pub(super) fn take(size: usize) -> Option<NonNull<u8>> {
    SPARE.try_with(|spare| spare.0.get(size / ALIGN)?.pop()).ok().flatten()
}

/// Keeps an allocation and returns true, or returns false if it does not fit.
///
/// # Safety
/// The caller owns the allocation, its size is a multiple of [`ALIGN`], and all its bytes are initialised. The caller
/// gives up ownership if the result is true.
#[inline]
pub(super) unsafe fn keep(allocation: NonNull<u8>, size: usize) -> bool {
    SPARE.try_with(|spare| spare.0.get(size / ALIGN).is_some_and(|stack| stack.push(allocation))).unwrap_or(false)
}

impl Stack {
    #[inline]
    fn pop(&self) -> Option<NonNull<u8>> {
        let last = self.len.get().checked_sub(1)?;
        self.len.set(last);
        self.kept.get(last)?.take()
    }

    #[inline]
    fn push(&self, allocation: NonNull<u8>) -> bool {
        let Some(place) = self.kept.get(self.len.get()) else { return false };
        place.set(Some(allocation));
        self.len.set(self.len.get() + 1);
        true
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        for (units, stack) in self.0.iter().enumerate() {
            while let Some(allocation) = stack.pop() {
                // SAFETY: the allocation has this layout, and no other pointer to it exists.
                unsafe {
                    alloc::dealloc(allocation.as_ptr(), Layout::from_size_align_unchecked(units * ALIGN, ALIGN));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_a_few_of_each_size_and_returns_the_latest_first() {
        let layout = Layout::from_size_align(48, ALIGN).unwrap();
        // SAFETY: the layout is not empty.
        let allocate = || NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).unwrap();
        let all: Vec<_> = (0..KEPT).map(|_| allocate()).collect();
        assert_eq!(take(48), None);
        // SAFETY: the test owns the allocations, and gives them up.
        assert!(all.iter().all(|&one| unsafe { keep(one, 48) }));
        let more = allocate();
        // SAFETY: as above; they are refused.
        assert!(!unsafe { keep(more, 48) } && !unsafe { keep(more, SIZE_MAX + ALIGN) });
        assert_eq!((take(56), take(40), take(SIZE_MAX * 2)), (None, None, None));
        for &one in all.iter().rev().take(KEPT - 2) {
            assert_eq!(take(48), Some(one));
            // SAFETY: the test owns it again.
            unsafe { alloc::dealloc(one.as_ptr(), layout) };
        }
        // SAFETY: the test still owns it. The two that are left are freed with the thread.
        unsafe { alloc::dealloc(more.as_ptr(), layout) };
    }
}
