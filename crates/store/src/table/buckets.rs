//! The buckets of a table, in segments of a fixed size: a table of any size grows by one bucket without moving the
//! others, never asks for much memory at once, and takes no more than a segment that it doesn't use yet.
//!
//! A table that fits into one segment has a smaller one, with room for a power of two of buckets.
//!
//! `unsafe` because a lookup goes through here: the directory is a list of plain addresses, and its bounds aren't
//! checked. The invariant: **`directory[i]` owns the buckets `i * SEGMENT..`, `SEGMENT` of them or, of an only segment,
//! `capacity` many; there are exactly as many segments as `len` buckets need; `mask + 1` is `len` rounded up to a power
//! of two.**

use std::ptr::NonNull;

use super::Bucket;

/// Buckets of a segment: 16 KB, whose memory is cleared within some microseconds. Fewer under Miri, which is slow.
const SEGMENT: usize = if cfg!(miri) { 8 } else { 256 };

/// A tag is a window of 16 bits of the hash. By so many of them, from the window's beginning on, the bucket will be
/// split: a split finds its bit in the tag, and needs not read the records to hash their keys again. Once the bits are
/// used up, which is in one of so many doublings of the table, it does, and the window moves on. The other six always
/// tell the records of a bucket apart. Fewer under Miri, which is slow.
const WINDOW_STEP: u32 = if cfg!(miri) { 2 } else { 10 };
const TAG_MASK: usize = u16::MAX as usize;

/// See the module's documentation.
#[derive(Default)]
pub struct Buckets {
    directory: Vec<NonNull<Bucket>>,
    len: usize,
    mask: usize,
    /// Where the tags' windows begin in the hash, in buckets that are chosen by all bits of the mask.
    shift: u8,
    /// Whether they begin a step before that in the others.
    is_window_moving: bool,
}

/// Where a hash belongs: its bucket, and its tag there.
#[derive(Clone, Copy)]
pub struct Home {
    /// The bucket's number.
    pub index: usize,
    /// The tag, of 16 bits.
    pub tag: usize,
}

/// Where the window of tags begins in a bucket that is chosen by `level` bits of the hash.
fn window_shift(level: u32) -> u8 {
    (level / WINDOW_STEP * WINDOW_STEP) as u8
}

/// The bits of a hash that choose a bucket among 2^`level`, and that are in its tag there.
#[cfg(test)]
pub(crate) fn bits_used(level: u32) -> u64 {
    ((1 << level) - 1) | (TAG_MASK as u64) << window_shift(level)
}

/// How many buckets the only segment of a table with `len` buckets has room for.
fn capacity(len: usize) -> usize {
    if len >= SEGMENT { SEGMENT } else { len.next_power_of_two() }
}

fn allocate(count: usize) -> NonNull<Bucket> {
    // SAFETY: all zero bytes are a valid bucket: every slot is empty (a null pointer).
    let segment = unsafe { Box::<[Bucket]>::new_zeroed_slice(count).assume_init() };
    NonNull::from(Box::leak(segment)).cast()
}

/// # Safety
/// `segment` came from [`allocate`] with the same count, and is used no more.
unsafe fn free(segment: NonNull<Bucket>, count: usize) {
    let segment = NonNull::slice_from_raw_parts(segment, count);
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(segment.as_ptr()) });
}

/// A bucket, and the one that was or will be split from it.
#[derive(Clone, Copy)]
pub struct Parting {
    /// The bucket that is split.
    pub lower: usize,
    /// The bucket that is added for it.
    pub upper: usize,
    /// The bit of the hash that tells which of the two buckets a record belongs to.
    level: u32,
}

impl Parting {
    /// How the bucket of this number, which is not 0, comes to be.
    pub fn of(upper: usize) -> Parting {
        let level = upper.ilog2();
        Parting { lower: upper & !(1 << level), upper, level }
    }

    /// The bit of the tag that tells which bucket a record belongs to; none, if the windows of the tags move on with it.
    pub fn bit_of_tag(&self) -> Option<u32> {
        let bit = self.level % WINDOW_STEP;
        (bit + 1 < WINDOW_STEP).then_some(bit)
    }

    /// What the tag of a record, which is in bucket `index` of the two, was before they were parted.
    pub fn tag_before(&self, tag: usize, index: usize) -> usize {
        if self.bit_of_tag().is_some() {
            return tag;
        }
        // The bits that the window has moved on by are the last that have chosen the bucket: they are in its number.
        let step = index >> window_shift(self.level) & ((1 << WINDOW_STEP) - 1);
        (tag << WINDOW_STEP | step) & TAG_MASK
    }
}

impl Buckets {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where keys of this hash are. There must be a bucket.
    #[inline(always)]
    pub fn home_of(&self, hash: u64) -> Home {
        let index = hash as usize & self.mask;
        let index = if index < self.len { index } else { index & self.mask >> 1 };
        let shift = if self.is_window_moving { self.shift_of(index) } else { self.shift };
        Home { index, tag: (hash >> shift) as usize & TAG_MASK }
    }

    /// Where the window of the tags in a bucket begins while it is not the same for all.
    #[cold]
    fn shift_of(&self, index: usize) -> u8 {
        let half = (self.mask >> 1) + 1;
        let has_been_split = (index & (half - 1)) + half < self.len;
        if has_been_split { self.shift } else { self.shift - WINDOW_STEP as u8 }
    }

    /// The address of a bucket that there is.
    #[inline]
    pub fn at(&self, index: usize) -> NonNull<Bucket> {
        debug_assert!(index < self.len);
        // SAFETY: the directory has a segment for every bucket, with room for it.
        unsafe { self.directory.get_unchecked(index / SEGMENT).add(index % SEGMENT) }
    }

    /// The mask of the largest power of two of buckets; none, if there are no buckets.
    pub fn unsplit_mask(&self) -> Option<usize> {
        let all_split = self.len == self.mask + 1;
        (!self.is_empty()).then_some(if all_split { self.mask } else { self.mask >> 1 })
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        let room = if self.directory.len() == 1 { capacity(self.len) } else { self.directory.len() * SEGMENT };
        room * size_of::<Bucket>() + self.directory.capacity() * size_of::<usize>()
    }

    /// Adds empty buckets until there are `count`. Only of use before there are records: none is moved to where it
    /// belongs then.
    pub fn grow_to(&mut self, count: usize) {
        if self.is_empty() && count > 0 {
            let first = count.min(SEGMENT);
            self.directory.reserve_exact(count.div_ceil(SEGMENT));
            self.directory.push(allocate(capacity(first)));
            self.set_len(first);
        }
        while self.len < count {
            self.push();
        }
    }

    /// Adds an empty bucket.
    pub fn push(&mut self) {
        if self.len.is_multiple_of(SEGMENT) {
            self.directory.push(allocate(capacity(self.len + 1)));
        } else if self.len < SEGMENT && self.len.is_power_of_two() {
            self.resize_only(self.len, capacity(self.len + 1));
        }
        self.set_len(self.len + 1);
    }

    /// Takes the last bucket away, which is empty.
    pub fn pop(&mut self) {
        let len = self.len - 1;
        if len.is_multiple_of(SEGMENT) {
            if let Some(segment) = self.directory.pop() {
                // SAFETY: the segment had the last bucket alone, and is out of the directory.
                unsafe { free(segment, capacity(self.len)) };
            }
        } else if len < SEGMENT && len.is_power_of_two() {
            self.resize_only(len, len);
        }
        self.set_len(len);
    }

    fn set_len(&mut self, len: usize) {
        self.len = len;
        self.mask = len.next_power_of_two() - 1;
        let level = (self.mask + 1).ilog2();
        self.shift = window_shift(level);
        self.is_window_moving = level > 0 && level.is_multiple_of(WINDOW_STEP);
    }

    /// Moves the first `kept` buckets of the only segment to another, with room for `count`.
    fn resize_only(&mut self, kept: usize, count: usize) {
        let new = allocate(count);
        // SAFETY: both segments have room for the buckets that are kept; the old one has the room that belongs to
        // `len`.
        unsafe {
            new.copy_from_nonoverlapping(self.directory[0], kept);
            free(self.directory[0], capacity(self.len));
        }
        self.directory[0] = new;
    }
}

impl Drop for Buckets {
    fn drop(&mut self) {
        let count = if self.directory.len() == 1 { capacity(self.len) } else { SEGMENT };
        for &segment in &self.directory {
            // SAFETY: the directory owns its segments.
            unsafe { free(segment, count) };
        }
    }
}
