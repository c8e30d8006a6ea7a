//! The program's allocator, mimalloc, and a count of the memory in use around it.
//!
//! mimalloc is built with size steps of eight bytes up to 64 (`.cargo/config.toml`), because the usual entry of the keyspace takes 40.
//! Aligned memory is requested only where the alignment matters: mimalloc's functions for aligned memory take the next larger size class
//! for every size that isn't a power of two.
//!
//! Each thread has its own counter and is its only writer, with plain stores. The sum over all threads is the memory in use. A single
//! counter can be negative, if its thread frees blocks of other threads. The count adds up size classes, not requested sizes. This module
//! computes the class from the size, because a call to mimalloc for it costs as much as the allocation.
//!
//! Very large blocks are mappings of their own. They grow without a copy, since the kernel moves their pages, and return to the system at
//! once.
//!
//! `unsafe` because the interface of an allocator is. The invariant: **a block's layout alone tells its source, and every call and its
//! result are handed on unchanged**. The counting touches no memory but the counters, and allocates nothing.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libmimalloc_sys as mi;

/// Number of counters, more than the worker threads that a configuration allows. Threads beyond that number share the last one.
const COUNTERS: usize = 1100;

/// A counter on a cache line of its own.
#[repr(align(64))]
struct Counter(AtomicUsize);

static ALL: [Counter; COUNTERS] = [const { Counter(AtomicUsize::new(0)) }; COUNTERS];
/// Counters that threads have taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The thread's counter. Has no destructor and is usable until the thread ends.
    static MINE: Cell<Option<&'static Counter>> = const { Cell::new(None) };
}

/// Returns the bytes in use by all threads, or 0 if [`Counting`] isn't the program's allocator.
#[must_use]
pub fn allocated_bytes() -> u64 {
    let taken = TAKEN.load(Ordering::Relaxed).min(COUNTERS);
    let sum = ALL[..taken].iter().fold(0usize, |sum, c| sum.wrapping_add(c.0.load(Ordering::Relaxed)));
    // Threads keep counting during the sum, and a free may be seen before its allocation.
    (sum as isize).max(0) as u64
}

/// Returns mimalloc's own figures as text for people.
#[must_use]
pub fn statistics() -> String {
    /// Approximate size of the text. The buffer seldom grows, which would allocate while mimalloc prints.
    const TEXT_BYTES: usize = 16 << 10;
    extern "C" fn add(part: *const c_char, text: *mut c_void) {
        // SAFETY: mimalloc passes on the pointer given below, this function alone borrows the text, and the string ends in NUL.
        let (text, part) = unsafe { (&mut *text.cast::<Vec<u8>>(), CStr::from_ptr(part)) };
        text.extend_from_slice(part.to_bytes());
    }
    let mut text = Vec::<u8>::with_capacity(TEXT_BYTES);
    // SAFETY: `add` is called before this returns, and never again.
    unsafe { mi_stats_print_out(add, (&raw mut text).cast()) };
    String::from_utf8_lossy(&text).into_owned()
}

#[cold]
fn take_counter() -> &'static Counter {
    let counter = &ALL[TAKEN.fetch_add(1, Ordering::Relaxed).min(COUNTERS - 1)];
    MINE.set(Some(counter));
    counter
}

/// Adds to the thread's counter. A free adds a negative number, wrapping.
#[inline]
fn count(bytes: usize) {
    let counter = MINE.get().unwrap_or_else(take_counter);
    if std::ptr::eq(counter, &ALL[COUNTERS - 1]) {
        counter.0.fetch_add(bytes, Ordering::Relaxed);
    } else {
        // The thread is the only writer. A plain load and store are enough, and cost less than an atomic addition.
        counter.0.store(counter.0.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }
}

/// The compiler flag for mimalloc's alignment of all blocks.
const ALIGN_FLAG: &str = "-DMI_MAX_ALIGN_SIZE=8";
/// Step between block sizes up to [`STEPS_BYTES_MAX`], in bytes. mimalloc aligns all blocks to 16 by default.
const STEP_BYTES: usize = match option_env!("CFLAGS") {
    Some(flags) if contains(flags.as_bytes(), ALIGN_FLAG.as_bytes()) => 8,
    _ => 16,
};
/// Blocks up to this many bytes are in equal steps.
const STEPS_BYTES_MAX: usize = 64;
/// Blocks from this size on, in bytes, are whole pages of the system.
const PAGES_BYTES_MIN: usize = 512 * 1024;
const PAGE_BYTES: usize = 4096;
/// Every block of mimalloc is aligned to this many bytes at least.
const ALIGN: usize = 8;

const fn contains(text: &[u8], word: &[u8]) -> bool {
    let mut at = 0;
    while at + word.len() <= text.len() {
        let mut same = 0;
        while same < word.len() && text[at + same] == word[same] {
            same += 1;
        }
        if same == word.len() {
            return true;
        }
        at += 1;
    }
    false
}

/// Returns the bytes that an allocation of `size` takes in mimalloc 3: equal steps up to 64, then four sizes per doubling. (`mi_bin` and
/// `mi_good_size` in its `page-queue.c`.)
#[inline]
#[must_use]
pub fn block_bytes(size: usize) -> usize {
    if size <= 8 {
        return 8;
    }
    let step = if size <= STEPS_BYTES_MAX {
        STEP_BYTES
    } else if size <= PAGES_BYTES_MIN {
        1 << ((size - 1).ilog2() - 2)
    } else {
        PAGE_BYTES
    };
    (size + step - 1) & !(step - 1)
}

/// Pages below this share of use, in percent, are sparse, and their blocks are moved to others. Moving the blocks of a fuller page costs
/// more copying than the memory is worth.
const SPARSE_PERCENT: usize = 90;

unsafe extern "C" {
    /// Declared in `mimalloc.h`, but not by the crate.
    fn mi_unsafe_heap_page_is_under_utilized(heap: *mut c_void, block: *const c_void, percent: usize) -> bool;
    /// Declared in `mimalloc.h`, but not by the crate.
    fn mi_stats_print_out(out: extern "C" fn(*const c_char, *mut c_void), argument: *mut c_void);
}

/// Returns true if a block lies in a sparse page of mimalloc. A hint: other threads may be using the page.
#[must_use]
pub fn is_sparse(block: *const u8) -> bool {
    // SAFETY: the function reads the counts of the block's page, which exists as long as the block does. The page's thread changes these
    // counts with plain stores. By C's rules that is a data race, and mimalloc's comment asks for no other thread to use the page. The
    // values are aligned words, read by C code that isn't inlined into ours. Each is a value that was stored there. No value is used as an
    // address or index, and the divisor isn't zero while the page has a block.
    unsafe { mi_unsafe_heap_page_is_under_utilized(std::ptr::null_mut(), block.cast(), SPARSE_PERCENT) }
}

/// Blocks from this size on, in bytes, are mappings of their own.
pub const MAPPED_BYTES_MIN: usize = 32 * 1024 * 1024;

/// Returns true for a block that is a mapping of its own. Mappings are aligned to a page, no further.
#[inline]
fn is_mapped(size: usize, align: usize) -> bool {
    size >= MAPPED_BYTES_MIN && align <= PAGE_BYTES
}

/// Blocks that are mappings of their own. The kernel rounds their sizes up to pages.
mod mapping {
    use std::ptr;

    use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

    /// Returns a new block, all zeros, or null if there is no room.
    #[cold]
    pub fn new(size: usize) -> *mut u8 {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), size, protection, MapFlags::PRIVATE) };
        mapped.map_or(ptr::null_mut(), <*mut _>::cast)
    }

    /// Changes a block's size. Returns null and leaves the block unchanged if there is no room.
    ///
    /// # Safety
    ///
    /// The block comes from [`new`] or from this function and is `from` bytes large. No pointer to it is used after success.
    #[cold]
    pub unsafe fn resize(block: *mut u8, from: usize, to: usize) -> *mut u8 {
        // SAFETY: the caller's block is a mapping of that size.
        let moved = unsafe { mremap(block.cast(), from, to, MremapFlags::MAYMOVE) };
        moved.map_or(ptr::null_mut(), <*mut _>::cast)
    }

    /// Returns a block to the system.
    ///
    /// # Safety
    ///
    /// The block comes from this module and is `size` bytes large. No pointer to it is used afterwards.
    #[cold]
    pub unsafe fn free(block: *mut u8, size: usize) {
        // SAFETY: the caller's block is a mapping of that size. An error leaves the mapping in place, and there is no remedy.
        let _ = unsafe { munmap(block.cast(), size) };
    }
}

/// mimalloc, with no more alignment than needed, and the system for very large blocks.
pub struct Mimalloc;

impl Mimalloc {
    /// Resizes a block that is a mapping or becomes one.
    ///
    /// # Safety
    ///
    /// The contract of [`GlobalAlloc::realloc`].
    #[cold]
    unsafe fn realloc_mapped(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) && is_mapped(size, layout.align()) {
            // SAFETY: the block is a mapping, and the caller keeps to the contract.
            return unsafe { mapping::resize(block, layout.size(), size) };
        }
        // SAFETY: the caller guarantees that the size is valid for the alignment.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both blocks have at least that many bytes and don't overlap. The old block is freed with its own layout.
            unsafe {
                new.copy_from_nonoverlapping(block, size.min(layout.size()));
                self.dealloc(block, layout);
            }
        }
        new
    }
}

/// Returns the alignment to request: none if every block has it anyway, and at least a page for whole pages. mimalloc aligns whole pages in
/// any case, and enlarges all other blocks with a requested alignment.
#[inline]
fn aligned(layout: Layout) -> Option<usize> {
    match layout.align() {
        ..=ALIGN => None,
        align if layout.size().is_multiple_of(PAGE_BYTES) => Some(align.max(PAGE_BYTES)),
        align => Some(align),
    }
}

// SAFETY: mimalloc's blocks are aligned to eight bytes, and its functions for aligned memory serve larger alignments. mimalloc knows the
// size of each block that it frees. Mappings are aligned to pages and return to the system. The layout alone tells whether a block is a
// mapping.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) {
            return mapping::new(layout.size());
        }
        match aligned(layout) {
            // SAFETY: every size is valid.
            None => unsafe { mi::mi_malloc(layout.size()).cast() },
            // SAFETY: every size is valid, and the alignment is a power of two.
            Some(align) => unsafe { mi::mi_malloc_aligned(layout.size(), align).cast() },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout.size(), layout.align()) {
            return mapping::new(layout.size());
        }
        match aligned(layout) {
            // SAFETY: every size is valid.
            None => unsafe { mi::mi_zalloc(layout.size()).cast() },
            // SAFETY: every size is valid, and the alignment is a power of two.
            Some(align) => unsafe { mi::mi_zalloc_aligned(layout.size(), align).cast() },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_mapped(layout.size(), layout.align()) {
            // SAFETY: the caller's block is a mapping of that size.
            return unsafe { mapping::free(block, layout.size()) };
        }
        // SAFETY: the caller's block came from mimalloc.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_mapped(layout.size().max(size), layout.align()) {
            // SAFETY: the caller keeps the contract.
            return unsafe { self.realloc_mapped(block, layout, size) };
        }
        match layout.align() {
            // SAFETY: the caller's block came from mimalloc.
            ..=ALIGN => unsafe { mi::mi_realloc(block.cast(), size).cast() },
            // SAFETY: the caller's block came from mimalloc, and the alignment is a power of two.
            align => unsafe { mi::mi_realloc_aligned(block.cast(), size, align).cast() },
        }
    }
}

/// An allocator with counters around it.
pub struct Counting<A>(A);

impl<A> Counting<A> {
    /// Counts the memory that `inner` gives out.
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
    #[cfg_attr(miri, ignore = "calls C")]
    fn sizes_are_those_of_the_classes() {
        for size in (0..70_000).chain((70_000..5_000_000).step_by(997)) {
            // SAFETY: the function only calculates.
            assert_eq!(block_bytes(size), unsafe { mi::mi_good_size(size) }.max(8), "{size}");
        }
        assert_eq!(
            block_bytes(40),
            40,
            "{ALIGN_FLAG} of .cargo/config.toml did not reach the C compiler: is CFLAGS set?"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls C")]
    fn aligned_blocks_take_no_more_than_others() {
        for size in [64, 256, 4096, 16_384, 65_536] {
            let layout = Layout::from_size_align(size, 64).unwrap();
            // SAFETY: the block is given back with its layout.
            unsafe {
                let block = Mimalloc.alloc_zeroed(layout);
                assert_eq!(mi::mi_usable_size(block.cast()), block_bytes(size), "{size}");
                Mimalloc.dealloc(block, layout);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls C")]
    fn blocks_are_aligned_and_keep_their_bytes() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4096] {
            for size in [1, 8, 24, 40, 72, 100, 1000, 20_000] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the block is used within its size, and freed with its current layout.
                unsafe {
                    let block = Mimalloc.alloc_zeroed(layout);
                    assert!(block.addr().is_multiple_of(align));
                    assert_eq!(*block.add(size - 1), 0);
                    block.write_bytes(7, size);
                    let block = Mimalloc.realloc(block, layout, 2 * size);
                    assert!(block.addr().is_multiple_of(align));
                    assert_eq!((*block, *block.add(size - 1)), (7, 7));
                    Mimalloc.dealloc(block, Layout::from_size_align(2 * size, align).unwrap());
                    let block = Mimalloc.alloc(layout);
                    assert!(block.addr().is_multiple_of(align));
                    Mimalloc.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls C")]
    fn blocks_keep_their_bytes_on_the_way_into_mappings_and_back() {
        const MIN: usize = MAPPED_BYTES_MIN;
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        // SAFETY: the block is used within its size, and freed with its current layout.
        unsafe {
            for zeroed in [Mimalloc.alloc_zeroed(layout(MIN + 5)), Mimalloc.alloc(layout(MIN))] {
                assert_eq!((*zeroed, *zeroed.add(MIN - 1)), (0, 0));
                assert!(!is_sparse(zeroed) && !is_sparse(zeroed.add(MIN / 2)));
                Mimalloc.dealloc(zeroed, layout(MIN));
            }
            let mut size = 1000;
            let mut block = Mimalloc.alloc(layout(size));
            block.write_bytes(7, size);
            for next in [MIN - 1, MIN, MIN + 1, 3 * MIN, 2 * MIN, MIN, 5000] {
                block = Mimalloc.realloc(block, layout(size), next);
                assert!(!block.is_null() && block.addr().is_multiple_of(8));
                assert!((0..1000).all(|at| *block.add(at) == 7), "{size} {next}");
                *block.add(next - 1) = 7;
                size = next;
            }
            Mimalloc.dealloc(block, layout(size));
        }
    }

    #[test]
    fn memory_freed_by_another_thread_is_not_in_use() {
        let layout = |size| Layout::from_size_align(size, 8).unwrap();
        let counting: &'static Counting<System> = &Counting(System);
        // SAFETY: each block is freed with its current layout.
        let block = unsafe { counting.alloc(layout(100_000)) }.expose_provenance();
        let most = allocated_bytes();
        assert!(most >= 100_000);
        let other = std::thread::spawn(move || {
            // SAFETY: each block is freed with its current layout.
            unsafe {
                let block = counting.realloc(std::ptr::with_exposed_provenance_mut(block), layout(100_000), 50_000);
                counting.dealloc(block, layout(50_000));
            }
        });
        other.join().unwrap();
        assert_eq!(allocated_bytes(), most - block_bytes(100_000) as u64);
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls C")]
    fn the_allocator_tells_of_its_pages() {
        // mimalloc may leave out figures that are zero. SAFETY: the block is freed below, and not used.
        let block = unsafe { mi::mi_malloc(100) };
        let text = statistics();
        // SAFETY: it was allocated above.
        unsafe { mi::mi_free(block) };
        assert!(text.contains("pages"), "{text}");
    }
}
