//! The record of one member of a large sorted set: one allocation, owned by the hash table and ordered by the tree.
//!
//! ```text
//! | score, f64 | length, 1 byte              | bytes |     up to 254 bytes
//! | score, f64 | 255 | length, usize         | bytes |     any other
//! ```
//!
//! This module uses `unsafe` because the table and the tree both point to a record, with a thin pointer: that saves 16
//! bytes per member and a cache miss per lookup. The invariant: **a [`ScoredMember`] is the only owner of a live
//! allocation of this layout. The length and the bytes are never written again. The score is written only through `&mut
//! ScoredMember`, and never during another read.** A [`Handle`] is a copy of the pointer; the caller that takes one
//! promises not to use it after its `ScoredMember`.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::mem::size_of;
use std::ptr::NonNull;
use std::slice;

use crate::prefetch::prefetch;
use crate::table::Record;
use crate::types::bptree::MemberHandle;

/// Offset of the length in bytes, behind the score.
const LENGTH: usize = size_of::<f64>();
/// Value of the length byte that marks a long length behind it.
const LONG: u8 = u8::MAX;

/// Returns the offset of the bytes in a record of `len` bytes.
const fn head_len(len: usize) -> usize {
    LENGTH + 1 + if len < LONG as usize { 0 } else { size_of::<usize>() }
}

/// Returns the layout of a record for `len` bytes, which exist as a slice.
fn layout(len: usize) -> Layout {
    debug_assert!(len < isize::MAX as usize - 64);
    // SAFETY: the alignment is a power of two. The size cannot approach isize::MAX: the bytes are already in memory,
    // and no address space is large enough for their copy and a head of 17 bytes to exceed it.
    unsafe { Layout::from_size_align_unchecked(head_len(len) + len, align_of::<f64>()) }
}

/// Returns the bytes of a record.
///
/// # Safety
/// `raw` points to a record that is alive for `'a`.
#[inline]
unsafe fn bytes_of<'a>(raw: NonNull<u8>) -> &'a [u8] {
    // SAFETY: the layout has a byte at this offset, and an unaligned long length behind it if the byte says so. The
    // bytes follow, and their number is the length. Nothing writes to them again.
    unsafe {
        let short = raw.add(LENGTH).read();
        let len = if short == LONG { raw.add(LENGTH + 1).cast::<usize>().read_unaligned() } else { usize::from(short) };
        slice::from_raw_parts(raw.add(head_len(len)).as_ptr(), len)
    }
}

/// A member and its score, with ownership of the record.
pub struct ScoredMember(NonNull<u8>);

// SAFETY: a member is the only owner of its allocation, and allows no writes through a shared reference.
unsafe impl Send for ScoredMember {}
// SAFETY: as above.
unsafe impl Sync for ScoredMember {}

impl ScoredMember {
    /// Returns a record with a copy of `bytes`.
    pub fn new(bytes: &[u8], score: f64) -> Self {
        let layout = layout(bytes.len());
        // SAFETY: the layout's size is not zero.
        let Some(raw) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        let head = head_len(bytes.len());
        // SAFETY: the allocation has room for the score, which is aligned at its start, for the head's length and for
        // `bytes`. They do not overlap, because the allocation is new.
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

    /// Returns the member's bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the record lives as long as `self`.
        unsafe { bytes_of(self.0) }
    }

    /// Returns its score.
    #[inline]
    pub fn score(&self) -> f64 {
        // SAFETY: the record is alive and begins with its score.
        unsafe { self.0.cast::<f64>().read() }
    }

    /// Changes its score. The caller must update the tree as well.
    pub fn set_score(&mut self, score: f64) {
        // SAFETY: the record is alive and begins with its score, and no reference to the score exists.
        unsafe { self.0.cast::<f64>().write(score) }
    }

    /// Size of its allocation in bytes.
    pub fn allocated_bytes(&self) -> usize {
        layout(self.bytes().len()).size()
    }

    /// Returns a pointer to it for the tree.
    ///
    /// # Safety
    /// The bytes of the handle and its copies must not be read after this member is dropped.
    pub unsafe fn handle(&self) -> Handle {
        debug_assert!(self.0.addr().get() & !ADDRESS == 0);
        Handle(self.0)
    }
}

impl Drop for ScoredMember {
    fn drop(&mut self) {
        let layout = layout(self.bytes().len());
        // SAFETY: the allocation was made with the layout of this length, and is no longer used: see `handle`.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

// SAFETY: the address belongs to an allocation aligned to 8 bytes in user space, `from_raw` undoes `into_raw`, and the
// bytes never change.
unsafe impl Record for ScoredMember {
    type Hash = crate::hash::ItemHash;

    fn into_raw(self) -> NonNull<u8> {
        std::mem::ManuallyDrop::new(self).0
    }

    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Self(raw)
    }

    unsafe fn key<'a>(raw: NonNull<u8>) -> &'a [u8] {
        // SAFETY: the caller promises that the record is alive for `'a`.
        unsafe { bytes_of(raw) }
    }
}

/// The tree's reference to a member: its address, and above it a hint of the tree. See [`ScoredMember::handle`].
#[derive(Clone, Copy)]
pub struct Handle(NonNull<u8>);

/// First bit of the hint in a handle. Addresses of user space stay below it on every supported machine, which the
/// table's records need, too.
const HINT_SHIFT: u32 = 48;
/// Mask of the address.
const ADDRESS: usize = (1 << HINT_SHIFT) - 1;

// SAFETY: a handle only reads bytes that never change, and only while they exist: see `ScoredMember::handle`.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Returns the record's address.
    #[inline]
    fn raw(self) -> NonNull<u8> {
        // SAFETY: a record's address is not zero, and is below the hint.
        unsafe { NonNull::new_unchecked(self.0.as_ptr().map_addr(|address| address & ADDRESS)) }
    }

    /// Returns the bytes, for longer than this handle lives.
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

impl MemberHandle for Handle {
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
    fn a_member_keeps_bytes_of_every_length() {
        for len in [0, 1, 7, 8, 253, 254, 255, 256, 70_000] {
            let bytes: Vec<_> = (0..len).map(|at| at as u8).collect();
            let mut member = ScoredMember::new(&bytes, -0.5);
            member.set_score(f64::INFINITY);
            // SAFETY: the handle is not used after the member.
            let handle = unsafe { member.handle() };
            assert_eq!((handle.bytes(), member.bytes()), (&*bytes, &*bytes));
            // SAFETY: the pointer came from `member` just now.
            let member = unsafe { ScoredMember::from_raw(member.into_raw()) };
            assert_eq!(member.score(), f64::INFINITY);
            assert!(member.allocated_bytes() <= len + 17);
        }
    }

    #[test]
    fn a_hint_does_not_change_the_address() {
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
