//! One range of addresses for the allocator's memory. Its huge pages are prepared before they are needed.
//!
//! Reads of a keyspace are random. With pages of 4 KB most of them miss the TLB, too; with pages of 2 MB they don't. But a kernel that
//! provides a huge page on the first touch clears it in the midst of a command. That takes a tenth of a millisecond, and many times longer
//! on a virtual machine if the host has to find the memory first. The range is therefore kept from huge pages (`MADV_NOHUGEPAGE`), and a
//! background thread installs the next one before the allocator reaches it. No command waits for it, nor for the small pages that it
//! replaces. The page is filled elsewhere (`staging`) and moved to its place in some microseconds. If it were filled in place, a thread
//! that touched it too early would fill it, too, in the midst of a command.
//!
//! The allocator reports each part of the range that it begins to use or gives back (`mi_commit_fun_t` of mimalloc 3). At most a few
//! megabytes are prepared for each place where it is growing, and nothing as long as the heap is small. If the allocator is faster than the
//! thread, it gets small pages. All places together never have more than a small part of the heap prepared.
//!
//! A prepared page that is unused half a second later is returned to the system, in slices of the allocator.
//!
//! `unsafe` because it handles memory that the allocator gives out. The invariant: **pages are only ever exchanged or returned while they
//! aren't in use, and read as zeros before and after**. They aren't in use when the allocator gives them back, or while their block is
//! locked and the slices aren't in use.

mod staging;

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use libmimalloc_sys as mi;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::time::{ClockId, clock_gettime};

use self::staging::Staging;
use crate::process;
use crate::threads;

/// A block is the span of one huge page, in bytes: 2 MB on x86-64 and, with pages of 4 KB, on AArch64.
const BLOCK_BYTES: usize = 2 << 20;
/// The range is handed over in pieces of this size in bytes: mimalloc has room for the tables of 16 GB at most, and spreads its threads
/// over the pieces.
const PIECE_BYTES: usize = 8 << 30;
/// mimalloc can manage 160 pieces, and keeps some for itself. On a larger machine it takes the rest from the system by itself.
const PIECES_MAX: usize = 128;
/// Blocks in use below which nothing is prepared. mimalloc's pages for arrays of some KB are half a megabyte each, and their untouched
/// parts take memory inside a huge page. These are 2 to 4 MB in all, a tenth of a small server's memory, and not part of `used_memory`.
/// Reads of 50 MB lose 4 to 5 percent by this limit.
const SMALL_BLOCKS: usize = 24;
/// Blocks prepared ahead of the present one. A thread that only creates keys fills one in some five milliseconds.
const AHEAD_BLOCKS: usize = 2;
/// Blocks prepared ahead while fewer than [`LARGE_BLOCKS`] are in use: a small part of them.
const AHEAD_BLOCKS_AT_FIRST: usize = 1;
const LARGE_BLOCKS: usize = 64;
/// The blocks in use divided by this is the most that all places together have prepared. Each thread grows the heap at a place of its own,
/// and a prepared block takes memory until it is used or trimmed.
const AHEAD_PART: usize = 16;

/// Sleep between two checks of a locked block. The kernel turns the shortest sleep into some 60 microseconds.
const LOCKED_WAIT: Duration = Duration::from_micros(1);

/// Blocks of an area: see [`Heap::areas`].
const AREA_BLOCKS: usize = 64;
/// Areas of a word.
const AREAS: usize = u64::BITS as usize;

/// Interval at which free memory and unused prepared blocks are returned to the system.
const TRIM_EVERY: Duration = Duration::from_millis(500);

/// The thread spends at most one part in this many of the time on preparing blocks. A block takes a fifth of a millisecond with memory at
/// hand, and up to nine on a virtual machine with a host that has to find it first. The latter costs more than it gains while the heap
/// grows fast.
const SHARE: u32 = 10;
/// The most time that it may save up for the next growth of the heap.
const SAVED_MAX: Duration = Duration::from_millis(10);

/// mimalloc's number for the size of the ranges that it takes from the system, in KB: `mi_option_arena_reserve` in its version 3.
const ARENA_RESERVE: mi::mi_option_t = 23;
/// Its default.
const ARENA_RESERVE_KB: i64 = 1024 * 1024;

/// mimalloc's number for its actions at the end of the process: `mi_option_destroy_on_exit` in its version 3.
const DESTROY_ON_EXIT: mi::mi_option_t = 22;
/// No action at all: see `_mi_auto_process_done` in its `init.c`.
const LEAVE_ALL: i64 = 2;

/// mimalloc takes and returns parts in multiples of this size in bytes (`MI_ARENA_SLICE_SIZE`). A block has 32 slices.
const SLICE_BYTES: usize = 64 << 10;

// The state of a block in one word. These bits are the slices that the allocator uses (none while the block is wanted).
const SLICES: u64 = 0xFFFF_FFFF;
/// The preparing thread should prepare the block.
const WANTED: u64 = 1 << 32;
/// The block was prepared: its unused slices have memory.
const READY: u64 = 1 << 33;
/// The block's memory is being exchanged or returned: a thread that wants to use the block waits.
const LOCKED: u64 = 1 << 34;

unsafe extern "C" {
    /// Declared in `mimalloc.h`, but not by the crate.
    fn mi_manage_memory(
        start: *mut c_void,
        size: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
        exclusive: bool,
        commit: extern "C" fn(bool, *mut c_void, usize, *mut bool, *mut c_void) -> bool,
        commit_argument: *mut c_void,
        arena: *mut *mut c_void,
    ) -> bool;
}

/// Keeps mimalloc from taking a range of its own before [`reserve`] has offered one: it would use its own first. At the end of the process
/// mimalloc collects and closes nothing, because threads of the server may still run and allocate.
#[cfg_attr(miri, expect(dead_code, reason = "see `BEFORE_MAIN`"))]
extern "C" fn set_options() {
    // SAFETY: reads and sets a variable, which mimalloc allows at any time.
    unsafe {
        // Another value comes from the environment, or belongs to a different option of an unknown version.
        if mi::mi_option_get(ARENA_RESERVE) == ARENA_RESERVE_KB {
            mi::mi_option_set(ARENA_RESERVE, 0);
            mi::mi_option_set(DESTROY_ON_EXIT, LEAVE_ALL);
        }
    }
}

/// Runs before the first allocation, which is before `main`. Not under Miri, which has no mimalloc.
#[cfg(not(miri))]
#[used]
// SAFETY: the C library calls each function of this section once, with arguments that this one ignores.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = set_options;

static HEAP: OnceLock<Heap> = OnceLock::new();

/// The range and the states of its blocks.
struct Heap {
    start: usize,
    blocks: Box<[AtomicU64]>,
    /// The areas with wanted blocks: a bit for each [`AREA_BLOCKS`]. A large range has half a million blocks, too many to search for every
    /// block to prepare.
    areas: Box<[AtomicU64]>,
    /// Blocks that the allocator uses at least partly.
    used: AtomicUsize,
    /// Blocks that are prepared or wanted, and unused.
    ahead: AtomicUsize,
    /// The thread that prepares blocks, once it runs.
    preparer: OnceLock<Thread>,
}

/// Lets mimalloc take its memory from the system by itself.
pub fn leave_to_the_allocator() {
    // SAFETY: reads and sets a variable.
    unsafe {
        if mi::mi_option_get(ARENA_RESERVE) == 0 {
            mi::mi_option_set(ARENA_RESERVE, ARENA_RESERVE_KB);
        }
    }
}

/// Gives the allocator a range of addresses as large as the machine's memory. The allocator serves itself if there is no range (some limits
/// of address space forbid it) or the range is used up. To be called once, before there are other threads.
pub fn reserve() {
    offer();
    leave_to_the_allocator();
}

/// Maps the range and hands it to mimalloc.
fn offer() {
    let machine = rustix::system::sysinfo();
    let memory = (machine.totalram as usize).saturating_mul(machine.mem_unit as usize);
    let bytes = memory.clamp(1, PIECES_MAX * PIECE_BYTES).next_multiple_of(PIECE_BYTES);
    // One block more. The unaligned ends are unmapped.
    let (flags, protection) = (MapFlags::PRIVATE | MapFlags::NORESERVE, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new range at an address of the kernel's choice.
    let Ok(mapped) = (unsafe { mmap_anonymous(ptr::null_mut(), bytes + BLOCK_BYTES, protection, flags) }) else {
        return;
    };
    let head = mapped.addr().next_multiple_of(BLOCK_BYTES) - mapped.addr();
    let start = mapped.wrapping_byte_add(head);
    // SAFETY: there is no pointer into the range yet.
    unsafe {
        if head > 0 {
            let _ = munmap(mapped, head);
        }
        let _ = munmap(start.wrapping_byte_add(bytes), BLOCK_BYTES - head);
        // A kernel without huge pages returns an error, which does no harm.
        let _ = madvise(start, bytes, Advice::LinuxNoHugepage);
    }
    let heap = HEAP.get_or_init(|| Heap::new(start.expose_provenance(), bytes));
    let argument = ptr::from_ref(heap).cast_mut().cast();
    for at in (0..bytes).step_by(PIECE_BYTES) {
        let piece = start.wrapping_byte_add(at);
        // SAFETY: the range is readable, writable and zero, and is never unmapped; the heap is static.
        let managed = unsafe {
            mi_manage_memory(piece, PIECE_BYTES, false, false, true, -1, false, on_commit, argument, ptr::null_mut())
        };
        debug_assert!(managed, "mimalloc has no room for the tables of a piece");
    }
    // Up to here mimalloc has taken only its own tables, and uses little of them.
    heap.used.store(0, Ordering::Relaxed);
}

/// mimalloc's callback at the beginning and the end of the use of a part of the range. Must not allocate.
extern "C" fn on_commit(begins: bool, start: *mut c_void, bytes: usize, _zero: *mut bool, heap: *mut c_void) -> bool {
    // SAFETY: the pointer that `offer` has passed on.
    let heap: &'static Heap = unsafe { &*heap.cast() };
    if begins {
        heap.take(start.addr(), bytes);
    } else {
        // SAFETY: the part isn't in use. It reads as zeros from now on, and mimalloc calls again before it uses the part.
        let forgotten = unsafe { madvise(start, bytes, Advice::LinuxDontNeed) };
        if forgotten.is_ok() {
            heap.give_back(start.addr(), bytes);
        }
    }
    true
}

/// Returns the slices of a block within a part of the range, as bits. The part's offsets are from the range's beginning.
fn slices_within(block: usize, part: Range<usize>) -> u64 {
    let at = block * BLOCK_BYTES;
    let first = part.start.saturating_sub(at) / SLICE_BYTES;
    let end = (part.end - at).min(BLOCK_BYTES).div_ceil(SLICE_BYTES);
    (1 << end) - (1 << first)
}

/// Returns true if a block is ready or wanted, and the allocator uses no part of it.
fn is_ahead(state: u64) -> bool {
    state & SLICES == 0 && state & (WANTED | READY) != 0
}

impl Heap {
    fn new(start: usize, bytes: usize) -> Heap {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>();
        let blocks = zeros(bytes / BLOCK_BYTES);
        let areas = zeros(blocks.len().div_ceil(AREA_BLOCKS * AREAS));
        let (used, ahead) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Heap { start, blocks, areas, used, ahead, preparer: OnceLock::new() }
    }

    /// Changes a block's state once it isn't locked, and returns the previous state.
    fn change(&self, block: usize, change: impl Fn(u64) -> u64) -> u64 {
        let state = &self.blocks[block];
        let mut before = state.load(Ordering::Relaxed);
        loop {
            if before & LOCKED != 0 {
                // Rare and short. A yield isn't enough: the thread that holds the lock may need this core, and has the lowest priority.
                thread::sleep(LOCKED_WAIT);
                before = state.load(Ordering::Relaxed);
                continue;
            }
            let after = change(before);
            match state.compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    match (before & SLICES == 0, after & SLICES == 0) {
                        (true, false) => drop(self.used.fetch_add(1, Ordering::Relaxed)),
                        // mimalloc's tables, which aren't counted, are never given back.
                        (false, true) => drop(self.used.fetch_sub(1, Ordering::Relaxed)),
                        _ => {}
                    }
                    match (is_ahead(before), is_ahead(after)) {
                        (false, true) => drop(self.ahead.fetch_add(1, Ordering::Relaxed)),
                        (true, false) => drop(self.ahead.fetch_sub(1, Ordering::Relaxed)),
                        _ => {}
                    }
                    return before;
                }
                Err(now) => before = now,
            }
        }
    }

    /// Returns the blocks that overlap a part of the range, and the slices in each.
    fn parts(&self, start: usize, bytes: usize) -> impl Iterator<Item = (usize, u64)> + use<> {
        let part = start - self.start..start - self.start + bytes;
        let end = part.end.div_ceil(BLOCK_BYTES).min(self.blocks.len());
        (part.start / BLOCK_BYTES..end).map(move |block| (block, slices_within(block, part.clone())))
    }

    /// Notes that the allocator begins to use a part of the range.
    fn take(&self, start: usize, bytes: usize) {
        let (mut end, mut grows) = (0, false);
        for (block, slices) in self.parts(start, bytes) {
            let before = self.change(block, |state| (state | slices) & !WANTED);
            // Slices that were given back and are taken again are no growth.
            grows |= before & SLICES == 0;
            end = block + 1;
        }
        let used = self.used.load(Ordering::Relaxed);
        let Some(preparer) = self.preparer.get().filter(|_| grows && used >= SMALL_BLOCKS) else { return };
        let ahead = if used < LARGE_BLOCKS { AHEAD_BLOCKS_AT_FIRST } else { AHEAD_BLOCKS };
        let mut wanted = false;
        let ahead_max = (used / AHEAD_PART).max(1);
        for block in end..(end + ahead).min(self.blocks.len()) {
            if self.ahead.load(Ordering::Relaxed) >= ahead_max {
                break;
            }
            wanted |= self.blocks[block].load(Ordering::Relaxed) == 0 && self.want(block);
        }
        if wanted {
            preparer.unpark();
        }
    }

    /// Requests an unused block to be prepared. Returns true if the request is new.
    fn want(&self, block: usize) -> bool {
        let is_new = self.change(block, |state| if state == 0 { WANTED } else { state }) == 0;
        if is_new {
            let area = block / AREA_BLOCKS;
            // After the block's own word: a thread that sees this bit sees the word, too.
            self.areas[area / AREAS].fetch_or(1 << (area % AREAS), Ordering::Release);
        }
        is_new
    }

    /// Returns the blocks that may be wanted, once each.
    fn wanted(&self) -> impl Iterator<Item = usize> {
        let areas = self.areas.iter().enumerate().filter(|(_, word)| word.load(Ordering::Relaxed) != 0);
        let areas = areas.flat_map(|(index, word)| {
            let bits = word.swap(0, Ordering::Acquire);
            (0..AREAS).filter(move |area| bits >> area & 1 != 0).map(move |area| index * AREAS + area)
        });
        let blocks = areas.flat_map(|area| area * AREA_BLOCKS..((area + 1) * AREA_BLOCKS).min(self.blocks.len()));
        blocks.filter(|&block| self.blocks[block].load(Ordering::Relaxed) & WANTED != 0)
    }

    /// Notes that the allocator has given back a part of the range. Slices that are only partly in it are still in use.
    fn give_back(&self, start: usize, bytes: usize) {
        let end = (start + bytes) / SLICE_BYTES * SLICE_BYTES;
        let start = start.next_multiple_of(SLICE_BYTES);
        for (block, slices) in self.parts(start, end.saturating_sub(start)) {
            self.change(block, |state| state & !slices);
        }
    }

    /// Prepares wanted blocks and returns unneeded ones, forever.
    fn prepare(&self, mut staging: Staging) -> ! {
        let mut budget = Budget::new(Instant::now(), cpu_time());
        let mut trimmed = Instant::now();
        let mut ready = Vec::new();
        loop {
            for block in self.wanted() {
                self.prepare_block(block, &mut staging, budget.is_left(Instant::now(), cpu_time()));
            }
            if trimmed.elapsed() >= TRIM_EVERY {
                ready = self.trim_idle(&ready);
                staging.trim_idle();
                // SAFETY: may be called at any time. The thread has next to no memory of its own. Memory freed by other threads is returned
                // to the system, which mimalloc would otherwise do only at the next allocation.
                unsafe { mi::mi_collect(false) };
                trimmed = Instant::now();
            }
            thread::park_timeout(TRIM_EVERY);
        }
    }

    /// Prepares a block, unless it isn't wanted any more. Without time or memory the block must be requested again.
    fn prepare_block(&self, block: usize, staging: &mut Staging, in_time: bool) {
        if !in_time || !staging.fill(block) {
            self.change(block, |state| state & !WANTED);
            return;
        }
        let state = &self.blocks[block];
        // The allocator may have reached the block meanwhile. The filled page then serves the next block.
        if state.compare_exchange(WANTED, WANTED | LOCKED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // SAFETY: the block is unused, and stays unused while it is locked. It reads as zeros before and after.
            let is_ready = unsafe { staging.move_to(self.start + block * BLOCK_BYTES) };
            state.store(if is_ready { READY } else { 0 }, Ordering::Release);
            if !is_ready {
                self.ahead.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Trims the partly used blocks that are unchanged since the last call. Returns the present ones.
    fn trim_idle(&self, before: &[(usize, u64)]) -> Vec<(usize, u64)> {
        let states = self.blocks.iter().enumerate().map(|(block, state)| (block, state.load(Ordering::Relaxed)));
        let partly_used = |state: u64| state & READY != 0 && state & SLICES != SLICES;
        let now: Vec<_> = states.filter(|&(_, state)| partly_used(state)).collect();
        for unchanged in now.iter().filter(|now| before.binary_search(now).is_ok()) {
            self.trim(unchanged.0, unchanged.1);
        }
        now
    }

    /// Returns the unused memory of a prepared block, which doesn't grow any more.
    fn trim(&self, block: usize, state: u64) {
        let lock = self.blocks[block].compare_exchange(state, state | LOCKED, Ordering::AcqRel, Ordering::Relaxed);
        if lock.is_err() {
            return;
        }
        for slice in (0..BLOCK_BYTES / SLICE_BYTES).filter(|slice| state >> slice & 1 == 0) {
            let start = self.start + block * BLOCK_BYTES + slice * SLICE_BYTES;
            // SAFETY: the slice is unused, and stays unused while the block is locked. It reads as zeros before and after.
            let _ = unsafe { madvise(ptr::with_exposed_provenance_mut(start), SLICE_BYTES, Advice::LinuxDontNeed) };
        }
        self.blocks[block].store(state & SLICES, Ordering::Release);
        if is_ahead(state) {
            self.ahead.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The thread's time budget: [`SHARE`] of the elapsed time, with savings of up to [`SAVED_MAX`].
struct Budget {
    /// Time of the last check, and the thread's total processor time at that time.
    then: (Instant, Duration),
    saved: Duration,
    /// Time overspent: a block can take many times the remaining budget.
    owed: Duration,
}

impl Budget {
    fn new(now: Instant, spent: Duration) -> Budget {
        Budget { then: (now, spent), saved: SAVED_MAX, owed: Duration::ZERO }
    }

    /// Returns true if some budget is left, after a total processor time of `spent`.
    fn is_left(&mut self, now: Instant, spent: Duration) -> bool {
        let (earned, spent_since) =
            (self.saved + (now - self.then.0) / SHARE, self.owed + spent.saturating_sub(self.then.1));
        self.saved = earned.saturating_sub(spent_since).min(SAVED_MAX);
        self.owed = spent_since.saturating_sub(earned);
        self.then = (now, spent);
        !self.saved.is_zero()
    }
}

/// The processor time of the calling thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// Starts the thread that prepares blocks. The heap has small pages without it. Returns true if there is a range.
pub fn prepare_ahead() -> bool {
    let Some(heap) = HEAP.get() else { return false };
    let Some(staging) = Staging::new(PIECE_BYTES) else { return true };
    let started = threads::spawn(&threads::HEAP, || {
        // At normal priority it could delay a serving thread on the same core for some milliseconds.
        process::stand_back();
        heap.prepare(staging)
    });
    if let Ok(handle) = started {
        let _ = heap.preparer.set(handle.thread().clone());
    }
    true
}

/// Lets the kernel provide huge pages on the first touch.
pub fn huge_at_once() {
    let Some(heap) = HEAP.get() else { return };
    let start = ptr::with_exposed_provenance_mut(heap.start);
    // SAFETY: advice changes no byte.
    let _ = unsafe { madvise(start, heap.blocks.len() * BLOCK_BYTES, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: usize = 5 * BLOCK_BYTES;
    const ALL: u64 = SLICES;

    /// Blocks in use elsewhere in the heaps of tests. The heap counts as small until its second block is used.
    const ELSEWHERE: usize = SMALL_BLOCKS - 2;

    /// A heap of that many blocks with the test's own thread as its preparer.
    fn huge_pages(blocks: usize) -> Heap {
        let heap = Heap::new(START, blocks * BLOCK_BYTES);
        heap.used.store(ELSEWHERE, Ordering::Relaxed);
        heap.preparer.set(thread::current()).unwrap();
        heap
    }

    fn states(heap: &Heap) -> Vec<u64> {
        heap.blocks.iter().map(|state| state.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn the_next_block_is_wanted_once_the_heap_is_not_small() {
        let heap = huge_pages(6);
        heap.take(START, SLICE_BYTES);
        assert_eq!(states(&heap), [1, 0, 0, 0, 0, 0]);
        heap.take(START + BLOCK_BYTES + 2 * SLICE_BYTES, BLOCK_BYTES);
        assert_eq!(states(&heap), [1, ALL - 3, 3, WANTED, 0, 0]);
        heap.take(START + 2 * BLOCK_BYTES + 3 * SLICE_BYTES, SLICE_BYTES);
        assert_eq!(states(&heap), [1, ALL - 3, 3 | 8, WANTED, 0, 0]);
        heap.take(START + 5 * BLOCK_BYTES, BLOCK_BYTES);
        assert_eq!(states(&heap), [1, ALL - 3, 3 | 8, WANTED, 0, ALL]);
    }

    #[test]
    fn wanted_blocks_are_found_once_everywhere() {
        let heap = huge_pages(AREA_BLOCKS * AREAS + 5);
        let wanted = [3, AREA_BLOCKS - 1, AREA_BLOCKS, AREA_BLOCKS * AREAS + 4];
        for block in wanted {
            assert!(heap.want(block));
            assert!(!heap.want(block));
        }
        assert_eq!(heap.wanted().collect::<Vec<_>>(), wanted);
        assert_eq!(heap.wanted().count(), 0);
        // A block that the allocator has reached meanwhile is not wanted.
        heap.change(3, |state| state & !WANTED);
        assert!(heap.want(3));
        heap.take(START + 3 * BLOCK_BYTES, SLICE_BYTES);
        assert!(!heap.wanted().any(|block| block == 3));
    }

    #[test]
    fn a_block_that_the_allocator_reaches_first_is_left_to_it() {
        let heap = huge_pages(4);
        heap.take(START, 2 * BLOCK_BYTES);
        assert_eq!(states(&heap), [ALL, ALL, WANTED, 0]);
        heap.take(START + 2 * BLOCK_BYTES, SLICE_BYTES);
        assert_eq!(states(&heap), [ALL, ALL, 1, WANTED]);
        assert_eq!(heap.used.load(Ordering::Relaxed), ELSEWHERE + 3);
    }

    #[test]
    fn only_a_small_part_of_the_heap_is_prepared_ahead() {
        let heap = huge_pages(12);
        heap.take(START, 2 * BLOCK_BYTES);
        assert_eq!((states(&heap)[2], heap.ahead.load(Ordering::Relaxed)), (WANTED, 1));
        heap.take(START + 5 * BLOCK_BYTES, BLOCK_BYTES);
        assert_eq!(states(&heap)[6], 0);
        // The first place reaches its block and moves on.
        heap.take(START + 2 * BLOCK_BYTES, BLOCK_BYTES);
        assert_eq!((states(&heap)[3], heap.ahead.load(Ordering::Relaxed)), (WANTED, 1));
        // A larger heap.
        heap.used.store(2 * AHEAD_PART, Ordering::Relaxed);
        heap.take(START + 8 * BLOCK_BYTES, BLOCK_BYTES);
        assert_eq!((states(&heap)[9], heap.ahead.load(Ordering::Relaxed)), (WANTED, 2));
        assert!(heap.wanted().all(|block| [3, 9].contains(&block)));
        for block in [3, 9] {
            heap.change(block, |state| state & !WANTED);
        }
        assert_eq!(heap.ahead.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn no_block_is_wanted_without_growth() {
        let heap = huge_pages(4);
        heap.take(START, BLOCK_BYTES + 2 * SLICE_BYTES);
        assert_eq!(states(&heap), [ALL, 3, WANTED, 0]);
        // The block was prepared, and returned because it was unused.
        heap.change(2, |_| 0);
        heap.give_back(START + BLOCK_BYTES, SLICE_BYTES);
        heap.take(START + BLOCK_BYTES, SLICE_BYTES);
        assert_eq!(states(&heap), [ALL, 3, 0, 0]);
        heap.take(START + 2 * BLOCK_BYTES, SLICE_BYTES);
        assert_eq!(states(&heap), [ALL, 3, 1, WANTED]);
    }

    #[test]
    fn a_returned_block_can_be_wanted_again() {
        let heap = huge_pages(4);
        heap.take(START, 4 * BLOCK_BYTES);
        heap.give_back(START + 1, 3 * BLOCK_BYTES);
        assert_eq!(states(&heap), [1, 0, 0, ALL]);
        heap.give_back(START + 3 * BLOCK_BYTES + 1, 2 * SLICE_BYTES - 2);
        assert_eq!(states(&heap), [1, 0, 0, ALL]);
        assert_eq!(heap.used.load(Ordering::Relaxed), ELSEWHERE + 2);
        heap.take(START + BLOCK_BYTES, BLOCK_BYTES);
        assert_eq!(states(&heap), [1, ALL, WANTED, ALL]);
    }

    /// A mapped range of that many blocks, full of sevens.
    fn mapped_heap(blocks: usize) -> Heap {
        let bytes = blocks * BLOCK_BYTES;
        let (flags, protection) = (MapFlags::PRIVATE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new range, which stays until the test's process ends.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), bytes + BLOCK_BYTES, protection, flags) }.unwrap();
        let start = mapped.wrapping_byte_add(mapped.addr().next_multiple_of(BLOCK_BYTES) - mapped.addr());
        // SAFETY: within the range, which nothing else uses.
        unsafe { start.cast::<u8>().write_bytes(7, bytes) };
        Heap::new(start.expose_provenance(), bytes)
    }

    fn byte(heap: &Heap, at: usize) -> u8 {
        // SAFETY: within the range, which nothing else uses.
        unsafe { ptr::with_exposed_provenance::<u8>(heap.start + at).read() }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls the kernel")]
    fn a_wanted_block_is_exchanged_for_one_that_was_filled_elsewhere() {
        let heap = mapped_heap(3);
        let mut staging = Staging::new(2 * BLOCK_BYTES).unwrap();
        assert!(heap.want(1));
        heap.prepare_block(1, &mut staging, true);
        assert_eq!((states(&heap), heap.ahead.load(Ordering::Relaxed)), (vec![0, READY, 0], 1));
        let edges = [BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES - 1, 2 * BLOCK_BYTES];
        assert_eq!(edges.map(|at| byte(&heap, at)), [7, 0, 0, 7]);
        assert!(!staging.is_filled());
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls the kernel")]
    fn what_was_filled_too_late_is_for_the_next_block() {
        let heap = mapped_heap(3);
        let mut staging = Staging::new(2 * BLOCK_BYTES).unwrap();
        assert!(heap.want(0));
        heap.take(heap.start, SLICE_BYTES);
        heap.prepare_block(0, &mut staging, true);
        assert_eq!((states(&heap), byte(&heap, 0)), (vec![1, 0, 0], 7));
        assert!(staging.is_filled());
        assert!(heap.want(2));
        heap.prepare_block(2, &mut staging, true);
        assert_eq!((states(&heap), byte(&heap, 2 * BLOCK_BYTES)), (vec![1, 0, READY], 0));
        assert!(!staging.is_filled());
        // An unused page isn't kept for long, either.
        assert!(staging.fill(1));
        staging.trim_idle();
        assert!(staging.is_filled());
        staging.trim_idle();
        assert!(!staging.is_filled());
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls the kernel")]
    fn a_block_that_stays_as_it_is_gives_back_what_is_not_used() {
        let heap = mapped_heap(3);
        heap.take(heap.start, SLICE_BYTES);
        heap.blocks[0].fetch_or(READY, Ordering::Relaxed);
        heap.blocks[1].store(READY, Ordering::Relaxed);
        heap.take(heap.start + 2 * BLOCK_BYTES, SLICE_BYTES);
        let seen = heap.trim_idle(&[]);
        assert_eq!(seen, [(0, READY | 1), (1, READY)]);
        heap.take(heap.start + SLICE_BYTES, SLICE_BYTES);
        heap.trim_idle(&seen);
        // The first has changed since, the second has not, and the third was never prepared.
        assert_eq!(states(&heap), [READY | 3, 0, 1]);
        let byte = |at| byte(&heap, at);
        assert_eq!([0, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES - 1, 2 * BLOCK_BYTES].map(byte), [7, 7, 0, 0, 7]);
        let seen = heap.trim_idle(&[]);
        heap.trim_idle(&seen);
        assert_eq!(states(&heap), [3, 0, 1]);
        let edges = [0, 2 * SLICE_BYTES - 1, 2 * SLICE_BYTES, BLOCK_BYTES - 1, 2 * BLOCK_BYTES];
        assert_eq!(edges.map(byte), [7, 7, 0, 0, 7]);
    }

    #[test]
    fn a_budget_is_a_share_of_the_time_and_little_is_saved() {
        let began = Instant::now();
        let ms = Duration::from_millis;
        let mut budget = Budget::new(began, ms(7));
        assert!(budget.is_left(began, ms(7)));
        assert!(budget.is_left(began, ms(16)));
        assert!(!budget.is_left(began, ms(17)));
        assert!(!budget.is_left(began + ms(100), ms(27)));
        assert!(budget.is_left(began + ms(120), ms(28)));
        // A second earns a hundred milliseconds. At most ten can be saved.
        assert!(!budget.is_left(began + ms(1120), ms(130)));
        assert!(budget.is_left(began + ms(2120), ms(130)));
        assert!(!budget.is_left(began + ms(2120), ms(140)));
        // Overspent time is owed.
        assert!(!budget.is_left(began + ms(2120), ms(150)));
        assert!(!budget.is_left(began + ms(2200), ms(150)));
        assert!(budget.is_left(began + ms(2230), ms(150)));
    }
}
