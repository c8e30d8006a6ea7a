//! Long strings, by reference: what sends one keeps it as it was while its key changes.
//!
//! A string that has just been received can stay in the buffer it arrived in ([`received`]): whoever keeps it keeps the
//! buffer, and nothing is copied. The buffer's owner says that it may be kept, for as long as it runs what is in it,
//! beside the way that arguments take as plain slices: no handler needs to know, and where nobody says so strings are
//! copied.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use crate::compact::Mover;

/// Strings below this many bytes are copied out of the buffer that they arrived in.
pub const KEPT_BYTES_MIN: usize = 32 * 1024;
/// The part of a string that its buffer may take beside it.
const WASTED_PART_MAX: usize = 8;

thread_local! {
    /// The buffer whose requests this thread is running, if it may be kept.
    static RECEIVED: RefCell<Option<Arc<Vec<u8>>>> = const { RefCell::new(None) };
}

/// Lets strings be kept within `buffer` while `run` runs what has arrived in it.
pub fn received<T>(buffer: &Arc<Vec<u8>>, run: impl FnOnce() -> T) -> T {
    RECEIVED.set(Some(buffer.clone()));
    let result = run();
    RECEIVED.set(None);
    result
}

/// A string that can be shared: all of a buffer but its ends.
#[derive(Clone, Debug, Default)]
pub struct Long {
    buffer: Arc<Vec<u8>>,
    /// Bytes of the buffer before the string and behind it.
    before: u32,
    behind: u32,
}

impl From<Vec<u8>> for Long {
    fn from(bytes: Vec<u8>) -> Long {
        Long { buffer: Arc::new(bytes), before: 0, behind: 0 }
    }
}

impl Deref for Long {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.buffer[self.before as usize..self.buffer.len() - self.behind as usize]
    }
}

impl Long {
    /// A string of these bytes: a copy, unless they are most of a buffer that may be kept.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Long {
        Long::kept(bytes).unwrap_or_else(|| bytes.to_vec().into())
    }

    /// Moves the string to another allocation if `mover` wants that, and nobody else has it.
    pub(crate) fn compact(&mut self, mover: &mut Mover<'_>) {
        if mover.wants(self.buffer.as_ptr()) && Arc::get_mut(&mut self.buffer).is_some() {
            *self = Vec::from(&**self).into();
        }
    }

    fn kept(bytes: &[u8]) -> Option<Long> {
        if bytes.len() < KEPT_BYTES_MIN {
            return None;
        }
        RECEIVED.with_borrow(|received| {
            let buffer = received.as_ref()?;
            let before = bytes.as_ptr().addr().checked_sub(buffer.as_ptr().addr())?;
            let behind = buffer.len().checked_sub(before)?.checked_sub(bytes.len())?;
            let wasted = buffer.capacity() - bytes.len();
            let (before, behind) = (u32::try_from(before).ok()?, u32::try_from(behind).ok()?);
            (wasted <= bytes.len() / WASTED_PART_MAX).then(|| Long { buffer: buffer.clone(), before, behind })
        })
    }

    /// The buffer, and where in it the string begins and ends.
    #[must_use]
    pub fn parts(&self) -> (&Arc<Vec<u8>>, usize, usize) {
        (&self.buffer, self.before as usize, self.buffer.len() - self.behind as usize)
    }

    /// Bytes of memory that the string takes beside itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.buffer.capacity() + size_of::<Vec<u8>>() + 2 * size_of::<usize>()
    }

    /// The string alone in a buffer that nobody else has, to be changed.
    pub(crate) fn make_mut(&mut self) -> &mut Vec<u8> {
        if (self.before, self.behind) != (0, 0) {
            *self = Long::from(self.to_vec());
        }
        Arc::make_mut(&mut self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_stays_in_the_buffer_it_has_arrived_in_if_that_is_hardly_larger() {
        let buffer = |rest: usize| Arc::new([&b"header"[..], &vec![b'x'; KEPT_BYTES_MIN], &vec![b'y'; rest]].concat());
        for (rest, kept) in [(0, true), (2, true), (1000, true), (KEPT_BYTES_MIN, false)] {
            let buffer = buffer(rest);
            let part = &buffer[6..6 + KEPT_BYTES_MIN];
            let mut long = received(&buffer, || Long::new(part));
            assert_eq!(Arc::strong_count(&buffer) == 2, kept, "{rest}");
            assert!(*long == *part);
            // Nobody runs anything any more: what is kept now is a copy.
            assert!(!Arc::ptr_eq(Long::new(part).parts().0, &buffer));
            long.make_mut().push(b'!');
            assert!(long.starts_with(part) && long.ends_with(b"x!"));
            assert!(buffer.starts_with(b"headerx"));
        }
    }

    #[test]
    fn what_is_short_or_elsewhere_is_copied() {
        let buffer = Arc::new(vec![b'x'; KEPT_BYTES_MIN]);
        received(&buffer, || {
            for bytes in [&buffer[1..], &vec![b'x'; KEPT_BYTES_MIN][..], b""] {
                assert!(!Arc::ptr_eq(Long::new(bytes).parts().0, &buffer));
            }
            assert!(Arc::ptr_eq(Long::new(&buffer).parts().0, &buffer));
        });
    }
}
