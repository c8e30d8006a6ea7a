//! How much memory is in use at most while something runs: an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: it is the system's allocator, beside counting.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What reading may take whatever the input, in bytes: buffers, tables and the room that a claim is worth.
const FIXED_BYTES: usize = 4 << 20;
/// What a byte of input may take. A compressed string is up to 88 times as long as its bytes, and an element of two bytes of it may
/// become a record of a table.
const BYTES_PER_BYTE: usize = 88 * 64;

/// Runs this on so many bytes of input, and fails if it takes more memory than they justify.
pub fn bounded<T>(input_bytes: usize, run: impl FnOnce() -> T) -> T {
    let before = IN_USE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = run();
    let taken = MOST.load(Ordering::Relaxed) - before;
    assert!(taken <= FIXED_BYTES + input_bytes * BYTES_PER_BYTE, "{taken} bytes of memory for {input_bytes} of input");
    result
}
