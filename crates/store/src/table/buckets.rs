//! The buckets of a table, in segments of a fixed size: a table of any size grows by one bucket without moving the others,
//! never asks for much memory at once, and takes no more than a segment that it doesn't use yet.
//!
//! A table that fits into one segment has a smaller one, with room for a power of two of buckets.
//!
//! `unsafe` because a lookup goes through here: the directory is a list of plain addresses, and its bounds aren't checked.
//! The invariant: **`directory[i]` owns the buckets `i * SEGMENT..`, `SEGMENT` of them or, of an only segment, `capacity`
//! many; there are exactly as many segments as `len` buckets need; `mask + 1` is `len` rounded up to a power of two; `split` is
//! how many buckets of the lower half of `mask + 1` have been split.**

use std::ptr::NonNull;

use super::Bucket;

/// Buckets of a segment: 16 KB, whose memory is cleared within some microseconds. Fewer under Miri, which is slow.
const SEGMENT: usize = if cfg!(miri) { 8 } else { 256 };

/// Bits of a tag that are of those by which buckets will be split: a split finds its bit there, and needs not read the records to hash
/// their keys again, but in one of so many doublings of the table. Not all of the tag's bits are, since the ones that have been
/// used tell a bucket's records no longer apart. Fewer under Miri, which is slow.
const WINDOW: u32 = if cfg!(miri) { 2 } else { 10 };
const WINDOW_MASK: usize = (1 << WINDOW) - 1;
/// Where the other bits of a tag begin in the hash: they are its top ones.
const TOP_SHIFT: u32 = u64::BITS - (u16::BITS - WINDOW);

/// See the module's documentation.
#[derive(Default)]
pub struct Buckets {
    directory: Vec<NonNull<Bucket>>,
    len: usize,
    mask: usize,
    split: usize,
    /// Where the windows of the tags begin in buckets that have not been split yet, and in those that have.
    shifts: [u8; 2],
}

/// Where a hash belongs: its bucket, and its tag there.
#[derive(Clone, Copy)]
pub struct Home {
    /// The bucket's number.
    pub index: usize,
    /// The tag, of 16 bits.
    pub tag: usize,
}

/// The tag of a hash where windows begin at bit `shift`: the hash's top bits, and the window below them.
#[inline(always)]
fn tag_at(hash: u64, shift: u8) -> usize {
    (hash >> TOP_SHIFT << WINDOW | hash >> shift & WINDOW_MASK as u64) as usize
}

/// Where the window of tags begins in a bucket that is chosen by `level` bits of the hash.
fn window_shift(level: u32) -> u8 {
    (level / WINDOW * WINDOW) as u8
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
    /// The bit of the hash that tells whose a record is.
    level: u32,
}

impl Parting {
    /// How the bucket of this number, which is not 0, comes to be.
    pub fn of(upper: usize) -> Parting {
        let level = upper.ilog2();
        Parting { lower: upper & !(1 << level), upper, level }
    }

    /// The bit of the tag that tells whose a record is; none, if the window of the tag ends with it: then both buckets'
    /// records have the next window's bits.
    pub fn bit_of_tag(&self) -> Option<u32> {
        let bit = self.level % WINDOW;
        (bit + 1 < WINDOW).then_some(bit)
    }

    /// What the tag of a record, which is in bucket `index` of the two, was before they were parted.
    pub fn tag_before(&self, tag: usize, index: usize) -> usize {
        if self.bit_of_tag().is_some() {
            return tag;
        }
        // All bits of the old window have chosen the bucket: they are in its number.
        tag & !WINDOW_MASK | index >> window_shift(self.level) & WINDOW_MASK
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
        let low = hash as usize & self.mask >> 1;
        let (index, shift) =
            if low < self.split { (hash as usize & self.mask, self.shifts[1]) } else { (low, self.shifts[0]) };
        Home { index, tag: tag_at(hash, shift) }
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

    /// Adds empty buckets until there are `count`. Only of use before there are records: none is moved to where it belongs
    /// then.
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
        self.split = len.saturating_sub((self.mask >> 1) + 1);
        let level = (self.mask + 1).ilog2();
        self.shifts = [window_shift(level.saturating_sub(1)), window_shift(level)];
    }

    /// Moves the first `kept` buckets of the only segment to another, with room for `count`.
    fn resize_only(&mut self, kept: usize, count: usize) {
        let new = allocate(count);
        // SAFETY: both segments have room for the buckets that are kept; the old one has the room that belongs to `len`.
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
