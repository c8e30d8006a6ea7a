//! Large arguments that are received apart from the rest of their request.
//!
//! Framing that stops within a large argument says so ([`super::Framer::missing`]). What receives the request may then
//! cut it there: the argument goes into a block of its very size, and the bytes behind it follow those before it as if
//! it had no bytes. A command that stores the argument keeps the block instead of copying it.

use std::sync::Arc;

use super::Arg;

/// Arguments from this many bytes on are received apart.
pub const BLOCK_BYTES_MIN: usize = 32 * 1024;

/// An argument of which not all bytes are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Where its first byte is, or would be, from the request's first byte on.
    pub at: usize,
    /// Bytes that it has, with the line end behind it.
    pub bytes: usize,
}

impl Missing {
    /// Whether it may be received apart.
    pub(super) fn is_large(self) -> bool {
        self.bytes >= BLOCK_BYTES_MIN + LINE_END_BYTES
    }

    /// The same, if its buffer begins so many bytes later.
    pub(super) fn behind(self, by: usize) -> Missing {
        Missing { at: self.at - by, ..self }
    }
}

/// A large argument, and where in its request it was cut out.
#[derive(Clone, Debug)]
struct Block {
    at: usize,
    bytes: Arc<Vec<u8>>,
}

/// The large arguments of one request that were received apart, in order.
#[derive(Clone, Debug, Default)]
pub struct Blocks(Vec<Block>);

impl Blocks {
    /// None at all.
    pub const NONE: &'static Blocks = &Blocks(Vec::new());

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }

    /// Adds the argument that was missing at `at`, with the line end behind it.
    pub fn push(&mut self, at: usize, mut bytes: Vec<u8>) {
        bytes.truncate(bytes.len() - LINE_END_BYTES);
        self.0.push(Block { at, bytes: Arc::new(bytes) });
    }

    /// The arguments.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Vec<u8>>> {
        self.0.iter().map(|block| &block.bytes)
    }

    /// Bytes of memory that the arguments take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.iter().map(|bytes| bytes.capacity()).sum()
    }

    /// The argument that was cut out at `at`.
    pub(super) fn find(&self, at: usize) -> Option<Arg> {
        self.0.iter().position(|block| block.at == at).map(Arg::in_block)
    }

    /// The bytes of an argument that isn't in its buffer.
    #[cold]
    pub(super) fn get(&self, arg: Arg) -> &[u8] {
        arg.block().and_then(|index| self.0.get(index)).map_or(b"", |block| &block.bytes)
    }
}

/// Bytes of the line end behind an argument.
const LINE_END_BYTES: usize = b"\r\n".len();

/// What a connection has sent: bytes, and the large arguments of the first request that were received apart from them.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// All but the large arguments.
    pub bytes: &'a [u8],
    /// The large arguments. Without any, if the bytes don't begin with their request.
    pub blocks: &'a Blocks,
}

impl<'a> From<&'a [u8]> for Input<'a> {
    fn from(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes, blocks: Blocks::NONE }
    }
}
