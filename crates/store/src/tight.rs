//! Boxes whose pointer may lie at any address: a value made of them has no padding, nor has what follows it.
//!
//! A key's entry holds its value between its header and its name, and allocations are rounded up to eight bytes: with
//! pointers that have to be aligned, a collection takes up to 14 bytes more.
//!
//! `unsafe` because a box of the standard library can't be borrowed at such an address. The invariant: **the pointer is
//! that of a box which was given up to it, and nothing else has it.**

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::compact::Mover;
use crate::prefetch::prefetch;

/// A box that takes eight bytes at any address.
#[repr(C, packed)]
pub struct TightBox<T>(NonNull<T>);

const _: () = assert!(align_of::<TightBox<u64>>() == 1 && size_of::<TightBox<u64>>() == 8);

// SAFETY: it owns what it points to, as a box does.
unsafe impl<T: Send> Send for TightBox<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for TightBox<T> {}

impl<T> TightBox<T> {
    /// Puts a value into an allocation of its own.
    #[must_use]
    pub fn new(value: T) -> Self {
        TightBox(NonNull::from(Box::leak(Box::new(value))))
    }

    /// The value, out of its allocation.
    #[must_use]
    pub fn into_inner(self) -> T {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: the pointer is that of a box, and is not used again.
        *unsafe { Box::from_raw({ this.0 }.as_ptr()) }
    }

    /// Moves the box to another allocation, if `mover` wants that. What its value owns stays where it is.
    pub fn compact_box(&mut self, mover: &mut Mover<'_>) {
        if mover.wants({ self.0 }.as_ptr().cast_const().cast()) {
            // SAFETY: the pointer is that of a box, and is replaced by that of another at once: nothing in between
            // panics.
            let value = unsafe { Box::from_raw({ self.0 }.as_ptr()) };
            self.0 = NonNull::from(Box::leak(Box::new(*value)));
        }
    }

    /// Asks the processor for the beginning of the value.
    #[inline]
    pub fn prefetch(&self) {
        prefetch({ self.0 }.as_ptr().cast_const().cast());
    }
}

impl<T> Deref for TightBox<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value is there as long as `self`, and borrowed as long.
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
        // SAFETY: the pointer is that of a box, and is not used again.
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
    fn is_a_box_at_any_address() {
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
