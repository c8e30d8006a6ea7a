//! The record of one member of a large sorted set: one allocation, owned by the hash table, ordered by the tree.
//!
//! ```text
//! | score, f64 | length, 1 byte              | bytes |     up to 254 bytes
//! | score, f64 | 255 | length, usize         | bytes |     any other
//! ```
//!
//! This module is `unsafe` because the table and the tree both point to a record, and a pointer to it must be thin:
//! that saves 16 bytes a member and a cache miss a lookup. The invariant: **a [`ScoredMember`] is the only owner of a live
//! allocation of this layout. The length and the bytes are never written again. The score is, through `&mut ScoredMember` alone,
//! and never while something else reads it.** A [`Handle`] is a copy of the pointer; the caller that takes one promises
//! not to use it after its `ScoredMember`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::size_of;
use std::ptr::NonNull;
use std::slice;

use crate::prefetch::prefetch;
use crate::table::Record;
use crate::types::bptree::Tie;

/// Where the length begins, in bytes: behind the score.
const LENGTH: usize = size_of::<f64>();
/// In the place of a short length: a long one follows.
const LONG: u8 = u8::MAX;

/// Where the bytes begin in the record of so many bytes.
const fn head_len(len: usize) -> usize {
    LENGTH + 1 + if len < LONG as usize { 0 } else { size_of::<usize>() }
}

/// The layout of the record of so many bytes, which exist as a slice.
fn layout(len: usize) -> Layout {
    debug_assert!(len < isize::MAX as usize - 64);
    // SAFETY: the alignment is a power of two, and the size can't come near isize::MAX: the bytes are in memory
    // already, and no address space is so large that their copy and a head of 17 bytes would exceed it.
    unsafe { Layout::from_size_align_unchecked(head_len(len) + len, align_of::<f64>()) }
}

/// The bytes of a record.
///
/// # Safety
/// `raw` points to a record that is alive for `'a`.
#[inline]
unsafe fn bytes_of<'a>(raw: NonNull<u8>) -> &'a [u8] {
    // SAFETY: the layout has a byte there, and a long length behind it (without alignment) if it says so; then come as
    // many bytes as were counted when they were copied. Nothing writes to them again.
    unsafe {
        let short = raw.add(LENGTH).read();
        let len = if short == LONG { raw.add(LENGTH + 1).cast::<usize>().read_unaligned() } else { usize::from(short) };
        slice::from_raw_parts(raw.add(head_len(len)).as_ptr(), len)
    }
}

/// A member and its score, owned.
pub struct ScoredMember(NonNull<u8>);

// SAFETY: a member owns its allocation alone, and gives no way to write through a shared reference.
unsafe impl Send for ScoredMember {}
// SAFETY: as above.
unsafe impl Sync for ScoredMember {}

impl ScoredMember {
    /// A record with a copy of `bytes`.
    pub fn new(bytes: &[u8], score: f64) -> Self {
        let layout = layout(bytes.len());
        // SAFETY: the layout's size is not zero.
        let Some(raw) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        let head = head_len(bytes.len());
        // SAFETY: the allocation has room for the score, aligned as it is at its start, for the head's length and for
        // `bytes`, which it doesn't overlap because it is new.
        unsafe {
            raw.cast::<f64>().write(score);
            if head == LENGTH + 1 {
                raw.add(LENGTH).write(bytes.len() as u8);
            } else {
                raw.add(LENGTH).write(LONG);
                raw.add(LENGTH + 1).cast::<usize>().write_unaligned(bytes.len());
            }
            raw.add(head).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
        Self(raw)
    }

    /// The member itself.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the record is alive as long as `self`.
        unsafe { bytes_of(self.0) }
    }

    /// Its score.
    #[inline]
    pub fn score(&self) -> f64 {
        // SAFETY: the record is alive and begins with its score.
        unsafe { self.0.cast::<f64>().read() }
    }

    /// Gives it another score. The tree that orders it must be told.
    pub fn set_score(&mut self, score: f64) {
        // SAFETY: the record is alive and begins with its score, to which there is no reference.
        unsafe { self.0.cast::<f64>().write(score) }
    }

    /// The bytes of its allocation.
    pub fn allocated_bytes(&self) -> usize {
        layout(self.bytes().len()).size()
    }

    /// A pointer to it for the tree.
    ///
    /// # Safety
    /// No copy of the handle may be asked for its bytes once this member is dropped.
    pub unsafe fn handle(&self) -> Handle {
        debug_assert!(self.0.addr().get() & !ADDRESS == 0);
        Handle(self.0)
    }
}

impl Drop for ScoredMember {
    fn drop(&mut self) {
        let layout = layout(self.bytes().len());
        // SAFETY: the allocation was made with the layout of this length, and isn't used any more: see `handle`.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

// SAFETY: the address is that of an allocation aligned to 8 bytes in user space, `from_raw` rebuilds what `into_raw`
// took apart, and the bytes never change.
unsafe impl Record for ScoredMember {
    type Hash = crate::hash::ItemHash;

    fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw)
    }

    unsafe fn key<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the caller says that the record is alive for `'a`.
        unsafe { bytes_of(raw) }
    }
}

/// A member as the tree knows it: its address, and above that a hint of the tree's. See [`ScoredMember::handle`].
#[derive(Clone, Copy)]
pub struct Handle(NonNull<u8>);

/// Where the hint begins in a handle; addresses of user space stay below it on every supported machine, as the table's
/// records must, too.
const HINT_SHIFT: u32 = 48;
/// The bits of the address.
const ADDRESS: usize = (1 << HINT_SHIFT) - 1;

// SAFETY: a handle can only read bytes that never change, and only while they are there: see `ScoredMember::handle`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// The record's address.
    #[inline]
    fn raw(self) -> NonNull<u8> {
        // SAFETY: a record's address is not zero, and lies below the hint.
        unsafe { NonNull::new_unchecked(self.0.as_ptr().map_addr(|address| address & ADDRESS)) }
    }

    /// The bytes, for longer than this handle lives.
    ///
    /// # Safety
    /// The member is not dropped during `'a`.
    pub unsafe fn bytes_for<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { bytes_of(self.raw()) }
    }
}

impl PartialEq for Handle {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }
}

impl Tie for Handle {
    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: the caller of `handle` promised that the member is alive.
        unsafe { bytes_of(self.raw()) }
    }

    #[inline]
    fn prefetch(self) {
        prefetch(self.raw().as_ptr());
    }

    #[inline]
    fn hint(self) -> u16 {
        (self.0.addr().get() >> HINT_SHIFT) as u16
    }

    #[inline]
    fn with_hint(self, hint: u16) -> Self {
        Self(self.raw().map_addr(|address| address | usize::from(hint) << HINT_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_bytes_of_every_length() {
        for len in [0, 1, 7, 8, 253, 254, 255, 256, 70_000] {
            let bytes: Vec<_> = (0..len).map(|at| at as u8).collect();
            let mut member = ScoredMember::new(&bytes, -0.5);
            member.set_score(f64::INFINITY);
            // SAFETY: the handle is not used after the member.
            let handle = unsafe { member.handle() };
            assert_eq!((handle.bytes(), member.bytes()), (&*bytes, &*bytes));
            // SAFETY: the pointer is that of `member`, given up just now.
            let member = unsafe { ScoredMember::from_raw(member.into_raw()) };
            assert_eq!(member.score(), f64::INFINITY);
            assert!(member.allocated_bytes() <= len + 17);
        }
    }

    #[test]
    fn a_hint_lies_beside_the_address() {
        let (member, other) = (ScoredMember::new(b"abc", 1.0), ScoredMember::new(b"abc", 1.0));
        // SAFETY: the handles are not used after the members.
        let (handle, other) = unsafe { (member.handle(), other.handle()) };
        for hint in [0, 1, 0x8000, u16::MAX, 0] {
            let hinted = handle.with_hint(!hint).with_hint(hint);
            assert_eq!((hinted.hint(), hinted.bytes()), (hint, &b"abc"[..]));
            assert!(hinted == handle && hinted != other.with_hint(hint));
        }
    }
}
