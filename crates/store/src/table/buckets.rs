//! The buckets of a table, in segments of a fixed size: a table of any size grows by one bucket without moving the others,
//! never asks for much memory at once, and takes no more than a segment that it doesn't use yet.
//!
//! A table that fits into one segment has a smaller one, with room for a power of two of buckets.
//!
//! `unsafe` because a lookup goes through here: the directory is a list of plain addresses, and its bounds aren't checked.
//! The invariant: **`directory[i]` owns the buckets `i * SEGMENT..`, `SEGMENT` of them or, of an only segment, `capacity`
//! many; there are exactly as many segments as `len` buckets need; `mask + 1` is `len` rounded up to a power of two.**

use std::ptr::NonNull;

use super::Bucket;

/// Buckets of a segment: 16 KB, whose memory is cleared within some microseconds. Fewer under Miri, which is slow.
const SEGMENT: usize = if cfg!(miri) { 8 } else { 256 };

/// See the module's documentation.
#[derive(Default)]
pub struct Buckets {
    directory: Vec<NonNull<Bucket>>,
    len: usize,
    mask: usize,
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

    /// The bucket that keys of this hash are in. There must be one.
    #[inline]
    pub fn index_of(&self, hash: u64) -> usize {
        let index = hash as usize & self.mask;
        if index < self.len { index } else { index & self.mask >> 1 }
    }

    /// The address of a bucket that there is.
    #[inline]
    pub fn at(&self, index: usize) -> NonNull<Bucket> {
        debug_assert!(index < self.len);
        // SAFETY: the directory has a segment for every bucket, with room for it.
        unsafe { self.directory.get_unchecked(index / SEGMENT).add(index % SEGMENT) }
    }

    /// The bucket that the last one, `last`, was split from.
    pub fn mate_of(&self, last: usize) -> usize {
        last & self.mask >> 1
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
