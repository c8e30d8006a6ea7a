//! Long strings, counted by reference: a reply that sends one keeps it as it was while its key changes.
//!
//! A string that was received into a block of its own can stay there ([`received`]), and nothing is copied. The engine
//! registers these blocks beside the arguments, which handlers see as plain slices: handlers don't know of blocks, and a
//! string without a registered block is copied.

use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

use crate::compact::Mover;

thread_local! {
    /// The blocks that strings may be kept in of the commands that this thread is running.
    static RECEIVED: RefCell<Vec<Arc<Vec<u8>>>> = const { RefCell::new(Vec::new()) };
}

/// Lets strings that are all of one of these blocks be kept as they are while `run` runs the commands that have them.
pub fn received<'b, T>(blocks: impl ExactSizeIterator<Item = &'b Arc<Vec<u8>>>, run: impl FnOnce() -> T) -> T {
    if blocks.len() == 0 {
        return run();
    }
    let outer = RECEIVED.replace(blocks.cloned().collect());
    let result = run();
    RECEIVED.set(outer);
    result
}

/// A string that can be shared.
#[derive(Clone, Debug, Default)]
pub struct Long(Arc<Vec<u8>>);

impl From<Vec<u8>> for Long {
    fn from(bytes: Vec<u8>) -> Long {
        Long(Arc::new(bytes))
    }
}

impl Deref for Long {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Long {
    /// A string of these bytes: a copy, unless they are a block that may be kept.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Long {
        Long::kept(bytes).unwrap_or_else(|| bytes.to_vec().into())
    }

    /// The string's bytes to be written over, if nothing else refers to them.
    #[must_use]
    pub fn into_buffer(self) -> Option<Vec<u8>> {
        Arc::into_inner(self.0)
    }

    /// Moves the string to another allocation if `mover` wants that and there is no other reference to it.
    pub(crate) fn compact(&mut self, mover: &mut Mover<'_>) {
        if mover.wants(self.0.as_ptr()) && Arc::get_mut(&mut self.0).is_some() {
            *self = Vec::from(&**self).into();
        }
    }

    fn kept(bytes: &[u8]) -> Option<Long> {
        RECEIVED.with_borrow(|blocks| {
            let block = blocks.iter().find(|block| std::ptr::eq(block.as_slice(), bytes))?;
            Some(Long(block.clone()))
        })
    }

    /// The string as others may keep it.
    #[must_use]
    pub fn shared(&self) -> &Arc<Vec<u8>> {
        &self.0
    }

    /// Bytes of memory that the string takes beside itself.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.capacity() + size_of::<Vec<u8>>() + 2 * size_of::<usize>()
    }

    /// The string, to be changed: a copy, if others have it, too.
    pub(crate) fn make_mut(&mut self) -> &mut Vec<u8> {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_stays_in_the_block_it_was_received_in() {
        let blocks = [b'x', b'y'].map(|byte| Arc::new(vec![byte; 1000]));
        let mut kept = received(blocks.iter(), || [Long::new(&blocks[0]), Long::new(&blocks[1])]);
        for (long, block) in kept.iter_mut().zip(&blocks) {
            assert!(Arc::ptr_eq(long.shared(), block) && **long == ***block);
            // What runs later copies it.
            assert!(!Arc::ptr_eq(Long::new(block).shared(), block));
            long.make_mut().push(b'!');
            assert!(long.ends_with(b"!") && !block.ends_with(b"!"));
        }
    }

    #[test]
    fn what_is_a_part_of_a_block_or_elsewhere_is_copied() {
        let block = Arc::new(vec![b'x'; 1000]);
        received([&block].into_iter(), || {
            for bytes in [&block[1..], &block[..999], &vec![b'x'; 1000][..], b""] {
                let long = Long::new(bytes);
                assert!(!Arc::ptr_eq(long.shared(), &block) && *long == *bytes);
            }
        });
    }

    #[test]
    fn what_runs_within_another_command_has_its_own_blocks() {
        let [outer, inner] = [b'x', b'y'].map(|byte| Arc::new(vec![byte; 1000]));
        let keeps = |block: &Arc<Vec<u8>>| Arc::ptr_eq(Long::new(block).shared(), block);
        received([&outer].into_iter(), || {
            received([&inner].into_iter(), || assert!(keeps(&inner) && !keeps(&outer)));
            assert!(keeps(&outer) && !keeps(&inner));
        });
    }
}
