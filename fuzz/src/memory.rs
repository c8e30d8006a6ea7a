//! An allocator that counts, and a check of the peak memory of a function.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: all calls go to the system's allocator; the rest is counting.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory that reading may take for any input, in bytes: buffers, tables and room for announced lengths.
const FIXED_BYTES: usize = 4 << 20;
/// Memory that each byte of input may take. A compressed string expands up to 88 times, and each two bytes of it may
/// become an element of a table.
const BYTES_PER_BYTE: usize = 88 * 64;

/// Runs a function on `input_bytes` bytes of input, and fails if it takes more memory than they justify.
pub fn bounded<T>(input_bytes: usize, run: impl FnOnce() -> T) -> T {
    let before = IN_USE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = run();
    let taken = MOST.load(Ordering::Relaxed) - before;
    assert!(taken <= FIXED_BYTES + input_bytes * BYTES_PER_BYTE, "{taken} bytes of memory for {input_bytes} of input");
    result
}
