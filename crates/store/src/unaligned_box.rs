//! Boxes with an unaligned pointer: a value that consists of them has no padding, nor does the field after it.
//!
//! A key's entry holds its value between its header and its key, and allocations are rounded up to eight bytes. With
//! aligned pointers a collection would take up to 14 bytes more.
//!
//! This module uses `unsafe` because a box of the standard library cannot be borrowed at an unaligned address. The
//! invariant: **the pointer came from a leaked box, and has no other owner.**

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::compact::Mover;
use crate::prefetch::prefetch;

/// A box that takes eight bytes at any address.
#[repr(C, packed)]
pub struct TightBox<T>(NonNull<T>);

const _: () = assert!(align_of::<TightBox<u64>>() == 1 && size_of::<TightBox<u64>>() == 8);

// SAFETY: it owns its value, like a box.
unsafe impl<T: Send> Send for TightBox<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for TightBox<T> {}

impl<T> TightBox<T> {
    /// Moves a value into its own allocation.
    #[must_use]
    pub fn new(value: T) -> Self {
        TightBox(NonNull::from(Box::leak(Box::new(value))))
    }

    /// Moves the value out of its allocation.
    #[must_use]
    pub fn into_inner(self) -> T {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the pointer came from a box, and is not used again.
        *unsafe { Box::from_raw({ this.0 }.as_ptr()) }
    }

    /// Moves the box to another allocation, if `mover` selects it. Memory that the value owns stays.
    pub fn compact_box(&mut self, mover: &mut Mover<'_>) {
        if mover.wants({ self.0 }.as_ptr().cast_const().cast()) {
            // SAFETY: the pointer came from a box, and is replaced at once by the pointer of another: no panic can
            // happen in between.
            let value = unsafe { Box::from_raw({ self.0 }.as_ptr()) };
            self.0 = NonNull::from(Box::leak(Box::new(*value)));
        }
    }

    /// Prefetches the beginning of the value.
    #[inline]
    pub fn prefetch(&self) {
        prefetch({ self.0 }.as_ptr().cast_const().cast());
    }
}

impl<T> Deref for TightBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value lives as long as `self`, and is borrowed as long.
        unsafe { { self.0 }.as_ref() }
    }
}

impl<T> DerefMut for TightBox<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the box is the only owner.
        unsafe { { self.0 }.as_mut() }
    }
}

impl<T> Drop for TightBox<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a box, and is not used again.
        drop(unsafe { Box::from_raw({ self.0 }.as_ptr()) });
    }
}

impl<T: Clone> Clone for TightBox<T> {
    fn clone(&self) -> Self {
        TightBox::new(T::clone(self))
    }
}

impl<T: fmt::Debug> fmt::Debug for TightBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tight_box_works_at_any_address() {
        let mut boxes = (1u8, TightBox::new(String::from("a")), 2u8, TightBox::new(String::from("b")));
        boxes.1.push('!');
        let copy = boxes.1.clone();
        boxes.1 = TightBox::new(String::from("c"));
        boxes.3.prefetch();
        assert_eq!((&**copy, &**boxes.1, &**boxes.3, boxes.0, boxes.2), ("a!", "c", "b", 1, 2));
        assert_eq!(format!("{copy:?}"), "\"a!\"");
        assert_eq!(boxes.1.into_inner(), "c");
    }
}
