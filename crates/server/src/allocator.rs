//! Counts the memory in use, around whatever allocator gives it out.
//!
//! Each thread has a counter of its own that it alone writes, with plain stores; the sum over all threads is what is in
//! use, though a single counter, of a thread that frees what others have allocated, may well be negative. Counted is
//! what an allocation takes, not what was asked for: mimalloc's size classes are known here, and found from the size
//! alone, since to ask it costs as much as the allocation.
//!
//! `unsafe` because an allocator's interface is. The invariant: **every call is handed on unchanged, and its result
//! handed back unchanged**; the counting beside it touches no memory but the counters, and allocates nothing.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counters; the last is for all threads beyond their number. More than the worker threads that a configuration allows.
const COUNTERS: usize = 1100;

/// A counter on a cache line of its own.
#[repr(align(64))]
struct Counter(AtomicUsize);

static ALL: [Counter; COUNTERS] = [const { Counter(AtomicUsize::new(0)) }; COUNTERS];
/// Counters that threads have taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread's counter. Has no destructor, so it can be used to the thread's very end.
    static MINE: Cell<Option<&'static Counter>> = const { Cell::new(None) };
}

/// Bytes in use by all threads; 0 where [`Counting`] isn't the program's allocator.
#[must_use]
pub fn allocated_bytes() -> u64 {
    let taken = TAKEN.load(Ordering::Relaxed).min(COUNTERS);
    let sum = ALL[..taken].iter().fold(0usize, |sum, c| sum.wrapping_add(c.0.load(Ordering::Relaxed)));
    // The threads go on counting while they are summed up: what one has freed may be seen before another's allocation.
    (sum as isize).max(0) as u64
}

#[cold]
fn take_counter() -> &'static Counter {
    let counter = &ALL[TAKEN.fetch_add(1, Ordering::Relaxed).min(COUNTERS - 1)];
    MINE.set(Some(counter));
    counter
}

/// Adds to the thread's counter; what is freed is added as a negative number, wrapping.
#[inline]
fn count(bytes: usize) {
    let counter = MINE.get().unwrap_or_else(take_counter);
    if std::ptr::eq(counter, &ALL[COUNTERS - 1]) {
        counter.0.fetch_add(bytes, Ordering::Relaxed);
    } else {
        // One writer: a plain load and store do, and cost less than an atomic addition.
        counter.0.store(counter.0.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }
}

/// Bytes that an allocation of `size` takes in mimalloc 3: a multiple of 16 up to 64, then four sizes to each doubling.
/// (`mi_bin` in its `page-queue.c`.)
#[inline]
fn block_bytes(size: usize) -> usize {
    if size <= 8 {
        return 8;
    }
    let step = 1 << (size - 1).ilog2().saturating_sub(2).max(4);
    (size + step - 1) & !(step - 1)
}

/// An allocator with counters around it.
pub struct Counting<A>(A);

impl<A> Counting<A> {
    /// Counts what `inner` gives out.
    pub const fn new(inner: A) -> Counting<A> {
        Counting(inner)
    }
}

// SAFETY: all calls go to `A`, an allocator, unchanged.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(block_bytes(layout.size()));
        // SAFETY: the caller keeps the contract.
        unsafe { self.0.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(block_bytes(layout.size()));
        // SAFETY: the caller keeps the contract.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(block_bytes(layout.size()).wrapping_neg());
        // SAFETY: the caller keeps the contract.
        unsafe { self.0.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(block_bytes(size).wrapping_sub(block_bytes(layout.size())));
        // SAFETY: the caller keeps the contract.
        unsafe { self.0.realloc(block, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn sizes_are_those_of_the_classes() {
        let classes = [
            (0, 8),
            (8, 8),
            (9, 16),
            (16, 16),
            (17, 32),
            (33, 48),
            (49, 64),
            (65, 80),
            (81, 96),
            (128, 128),
            (129, 160),
            (1024, 1024),
            (1025, 1280),
            (1 << 20, 1 << 20),
            ((1 << 20) + 1, 1310720),
        ];
        for (size, takes) in classes {
            assert_eq!(block_bytes(size), takes, "{size}");
        }
    }

    #[test]
    fn what_is_given_back_elsewhere_is_not_in_use() {
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        let counting: &'static Counting<System> = &Counting(System);
        // SAFETY: each block is given back with the layout it has then.
        let block = unsafe { counting.alloc(layout(100_000)) }.expose_provenance();
        let most = allocated_bytes();
        assert!(most >= 100_000);
        let other = std::thread::spawn(move || {
            // SAFETY: as above.
            unsafe {
                let block = counting.realloc(std::ptr::with_exposed_provenance_mut(block), layout(100_000), 50_000);
                counting.dealloc(block, layout(50_000));
            }
        });
        other.join().unwrap();
        assert_eq!(allocated_bytes(), most - block_bytes(100_000) as u64);
    }
}
