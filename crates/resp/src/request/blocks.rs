//! Large arguments that are received separately from the rest of their request.
//!
//! If framing stops within a large argument, it reports the argument ([`super::Framer::missing`]). The receiver may
//! then cut it out: the argument is received into a block of its exact size, and the remaining bytes continue in the
//! buffer as if the argument were empty. A command that stores the argument keeps the block instead of copying it.

use std::sync::Arc;

use super::Arg;

/// Smallest argument, in bytes, that is received separately.
pub const BLOCK_BYTES_MIN: usize = 32 * 1024;

/// An incomplete argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Offset of its first byte from the request's first byte. The byte may not have arrived.
    pub at: usize,
    /// Length in bytes, including the line end.
    pub bytes: usize,
}

impl Missing {
    /// True if it may be received separately.
    pub(super) fn is_large(self) -> bool {
        self.bytes >= BLOCK_BYTES_MIN + LINE_END_BYTES
    }

    /// The same argument, relative to a buffer that begins `by` bytes later.
    pub(super) fn behind(self, by: usize) -> Missing {
        Missing { at: self.at - by, ..self }
    }
}

/// A large argument, and the position in its request from which it was cut out.
#[derive(Clone, Debug)]
struct Block {
    at: usize,
    bytes: Arc<Vec<u8>>,
}

/// The large arguments of one request that were received separately, in order.
#[derive(Clone, Debug, Default)]
pub struct Blocks(Vec<Block>);

impl Blocks {
    /// No arguments.
    pub const NONE: &'static Blocks = &Blocks(Vec::new());

    /// True if there are no arguments.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes all arguments.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// Adds the argument that was missing at `at`; `bytes` includes its line end.
    pub fn push(&mut self, at: usize, mut bytes: Vec<u8>) {
        bytes.truncate(bytes.len() - LINE_END_BYTES);
        self.0.push(Block { at, bytes: Arc::new(bytes) });
    }

    /// The arguments.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Vec<u8>>> {
        self.0.iter().map(|block| &block.bytes)
    }

    /// Bytes of memory of the arguments.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.iter().map(|bytes| bytes.capacity()).sum()
    }

    /// The argument that was cut out at `at`.
    pub(super) fn find(&self, at: usize) -> Option<Arg> {
        self.0.iter().position(|block| block.at == at).map(Arg::in_block)
    }

    /// The bytes of an argument that isn't in the buffer.
    #[cold]
    pub(super) fn get(&self, arg: Arg) -> &[u8] {
        arg.block().and_then(|index| self.0.get(index)).map_or(b"", |block| &block.bytes)
    }
}

/// Length of the line end after an argument.
const LINE_END_BYTES: usize = b"\r\n".len();

/// Received input of a connection: bytes, and the large arguments of the first request that were received separately.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// All bytes except the large arguments.
    pub bytes: &'a [u8],
    /// The large arguments; empty if the bytes don't begin with their request.
    pub blocks: &'a Blocks,
}

impl<'a> From<&'a [u8]> for Input<'a> {
    fn from(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes, blocks: Blocks::NONE }
    }
}
