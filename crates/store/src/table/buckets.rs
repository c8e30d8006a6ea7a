//! The buckets of a table, in segments of a fixed size. A table of any size grows by one bucket without moving the
//! others, never allocates much at once, and has at most one segment that is not full.
//!
//! A table that fits into one segment has a smaller one, with space for a power of two of buckets.
//!
//! This module uses `unsafe` because every lookup passes through it: the directory is a list of plain addresses, and
//! accesses skip the bounds check. The invariant: **`directory[i]` owns the buckets `i * SEGMENT..`: `SEGMENT` of them
//! or, if it is the only segment, `capacity` many; there are exactly as many segments as `len` buckets need; `mask + 1`
//! is `len` rounded up to a power of two.**

use std::ptr::NonNull;

use smallvec::SmallVec;

use super::Bucket;

/// Buckets of a segment: 16 KB, which are cleared within some microseconds. Miri is slow, so it gets fewer.
const SEGMENT: usize = if cfg!(miri) { 8 } else { 256 };

/// Maximum number of buckets, 128 GB of them. A table with more records has longer chains.
pub const BUCKETS_MAX: usize = 1 << 31;

/// Distance between two windows of tags. A tag is a window of 16 bits of the hash. The first `WINDOW_STEP` bits of the
/// window serve for splits: a split finds its bit in the tag and need not read the records to hash their keys. After
/// that many doublings of the table the bits are used up; then the split does read the records, and the window moves
/// on. The other six bits always tell the records of a bucket apart. Miri is slow, so it gets fewer.
const WINDOW_STEP: u32 = if cfg!(miri) { 2 } else { 10 };
const TAG_MASK: usize = u16::MAX as usize;

/// The addresses of the segments. A lookup in a table of few segments reads no memory besides the table and the bucket.
type Directory = SmallVec<[NonNull<Bucket>; 2]>;

const _: () = assert!(size_of::<Directory>() == size_of::<Vec<NonNull<Bucket>>>());

/// See the module's documentation.
#[derive(Default)]
#[repr(C)]
pub struct Buckets {
    directory: Directory,
    len: u32,
    mask: u32,
    /// Number of chained buckets, for the memory estimate. As many as the type can count would take 256 GB.
    pub(super) chained: u32,
    /// First bit of the tags' window in buckets that are chosen by all bits of the mask.
    shift: u8,
    /// True if the window begins one step earlier in the other buckets.
    is_window_moving: bool,
}

/// The place of a hash: its bucket, and its tag there.
#[derive(Clone, Copy)]
pub struct Home {
    /// The bucket's number.
    pub index: usize,
    /// The tag, of 16 bits.
    pub tag: usize,
}

/// Returns the first bit of the tags' window in a bucket that is chosen by `level` bits of the hash.
fn window_shift(level: u32) -> u8 {
    (level / WINDOW_STEP * WINDOW_STEP) as u8
}

/// Returns the bits of a hash that choose a bucket among 2^`level` or are in the tag there.
#[cfg(test)]
pub(crate) fn bits_used(level: u32) -> u64 {
    ((1 << level) - 1) | (TAG_MASK as u64) << window_shift(level)
}

/// Capacity of the only segment of a table with `len` buckets.
fn capacity(len: usize) -> usize {
    if len >= SEGMENT { SEGMENT } else { len.next_power_of_two() }
}

fn allocate(count: usize) -> NonNull<Bucket> {
    // SAFETY: all zero bytes are a valid bucket: every slot is empty (a null pointer).
    let segment = unsafe { Box::<[Bucket]>::new_zeroed_slice(count).assume_init() };
    NonNull::from(Box::leak(segment)).cast()
}

/// # Safety
/// `segment` came from [`allocate`] with the same count, and is not used afterwards.
unsafe fn free(segment: NonNull<Bucket>, count: usize) {
    let segment = NonNull::slice_from_raw_parts(segment, count);
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(segment.as_ptr()) });
}

/// A bucket and its split partner, which was or will be split from it.
#[derive(Clone, Copy)]
pub struct SplitPair {
    /// The number of the bucket that is split.
    pub lower: usize,
    /// The number of the bucket that is added.
    pub upper: usize,
    /// The bit of the hash that assigns a record to one of the two buckets.
    level: u32,
}

impl SplitPair {
    /// Returns the pair that creates the bucket `upper`, which is not 0.
    pub fn of(upper: usize) -> SplitPair {
        let level = upper.ilog2();
        SplitPair { lower: upper & !(1 << level), upper, level }
    }

    /// Returns the bit of the tag that assigns a record to a bucket; None if this split moves the windows of the tags.
    pub fn bit_of_tag(&self) -> Option<u32> {
        let bit = self.level % WINDOW_STEP;
        (bit + 1 < WINDOW_STEP).then_some(bit)
    }

    /// Returns the tag that a record in bucket `index` of the pair had before the split.
    pub fn tag_before(&self, tag: usize, index: usize) -> usize {
        if self.bit_of_tag().is_some() {
            return tag;
        }
        // The window has moved past the last bits that chose the bucket, so these bits are in the bucket's number.
        let step = index >> window_shift(self.level) & ((1 << WINDOW_STEP) - 1);
        (tag << WINDOW_STEP | step) & TAG_MASK
    }
}

impl Buckets {
    /// Number of buckets.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there are no buckets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the place of keys with this hash. There must be a bucket.
    #[inline(always)]
    pub fn home_of(&self, hash: u64) -> Home {
        let index = hash as u32 & self.mask;
        let index = if index < self.len { index } else { index & self.mask >> 1 } as usize;
        let shift = if self.is_window_moving { self.shift_of(index) } else { self.shift };
        Home { index, tag: (hash >> shift) as usize & TAG_MASK }
    }

    /// Returns the first bit of a bucket's window while the buckets have different windows.
    #[cold]
    fn shift_of(&self, index: usize) -> u8 {
        let half = (self.mask as usize >> 1) + 1;
        let has_been_split = (index & (half - 1)) + half < self.len();
        if has_been_split { self.shift } else { self.shift - WINDOW_STEP as u8 }
    }

    /// Returns the address of an existing bucket.
    #[inline]
    pub fn at(&self, index: usize) -> NonNull<Bucket> {
        debug_assert!(index < self.len());
        // SAFETY: the directory has a segment for every bucket below `len`, and the segment has space for it.
        unsafe { self.directory.get_unchecked(index / SEGMENT).add(index % SEGMENT) }
    }

    /// Returns the mask of the largest power of two of buckets; None if there are no buckets.
    pub fn unsplit_mask(&self) -> Option<usize> {
        let mask = self.mask as usize;
        let all_split = self.len() == mask + 1;
        (!self.is_empty()).then_some(if all_split { mask } else { mask >> 1 })
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let room = if self.directory.len() == 1 { capacity(self.len()) } else { self.directory.len() * SEGMENT };
        let directory = if self.directory.spilled() { self.directory.capacity() * size_of::<usize>() } else { 0 };
        room * size_of::<Bucket>() + directory
    }

    /// Adds empty buckets until there are `count`, or [`BUCKETS_MAX`]. Call it only while there are no records, because it moves none to
    /// their new place.
    pub fn grow_to(&mut self, count: usize) {
        let count = count.min(BUCKETS_MAX);
        if self.is_empty() && count > 0 {
            let first = count.min(SEGMENT);
            self.directory.reserve_exact(count.div_ceil(SEGMENT));
            self.directory.push(allocate(capacity(first)));
            self.set_len(first);
        }
        while self.len() < count {
            self.push();
        }
    }

    /// Adds an empty bucket. There must be fewer than `u32::MAX`.
    pub fn push(&mut self) {
        let len = self.len();
        if len.is_multiple_of(SEGMENT) {
            self.directory.push(allocate(capacity(len + 1)));
        } else if len < SEGMENT && len.is_power_of_two() {
            self.resize_only(len, capacity(len + 1));
        }
        self.set_len(len + 1);
    }

    /// Removes the last bucket, which must be empty.
    pub fn pop(&mut self) {
        let len = self.len() - 1;
        if len.is_multiple_of(SEGMENT) {
            if let Some(segment) = self.directory.pop() {
                // SAFETY: the segment held only the last bucket, and is no longer in the directory.
                unsafe { free(segment, capacity(len + 1)) };
            }
        } else if len < SEGMENT && len.is_power_of_two() {
            self.resize_only(len, len);
        }
        self.set_len(len);
    }

    fn set_len(&mut self, len: usize) {
        let buckets = len.next_power_of_two();
        (self.len, self.mask) = (len as u32, (buckets - 1) as u32);
        let level = buckets.ilog2();
        self.shift = window_shift(level);
        self.is_window_moving = level > 0 && level.is_multiple_of(WINDOW_STEP);
    }

    /// Moves the first `kept` buckets of the only segment to a new one, with space for `count`.
    fn resize_only(&mut self, kept: usize, count: usize) {
        let new = allocate(count);
        // SAFETY: both segments have space for the kept buckets. The old one has the capacity that belongs to `len`.
        unsafe {
            new.copy_from_nonoverlapping(self.directory[0], kept);
            free(self.directory[0], capacity(self.len()));
        }
        self.directory[0] = new;
    }
}

impl Drop for Buckets {
    fn drop(&mut self) {
        let count = if self.directory.len() == 1 { capacity(self.len()) } else { SEGMENT };
        for &segment in &self.directory {
            // SAFETY: the directory owns its segments.
            unsafe { free(segment, count) };
        }
    }
}
