//! The large arguments of a request that a connection is sending, each in a block of its own.
//!
//! A complete block has exactly the argument's size, so that a command can keep it. A length that is only announced
//! costs nothing: beyond what is set aside at once, a block grows as its bytes arrive. Large blocks grow without being
//! copied (`crate::allocator`), and pages without bytes take no memory.

use std::io;

use resp::request::{Blocks, Missing};

use crate::allocator::MAPPED_BYTES_MIN;
use crate::connection::{Socket, read_more};

/// Bytes that are set aside at once because a request announces them.
const AT_ONCE_BYTES_MAX: usize = MAPPED_BYTES_MIN;

/// See the module's documentation.
#[derive(Default)]
pub struct Apart {
    /// Those that are complete, of the request that the connection's input begins with.
    pub blocks: Blocks,
    filling: Option<Filling>,
}

/// An argument that is arriving.
struct Filling {
    missing: Missing,
    bytes: Vec<u8>,
}

impl Filling {
    fn make_room(&mut self) {
        let have = self.bytes.len();
        if have == self.bytes.capacity() {
            let enough = self.missing.bytes.min(AT_ONCE_BYTES_MAX.max(2 * have));
            self.bytes.reserve_exact(enough - have);
        }
    }
}

impl Apart {
    /// Begins to receive an argument, of which these bytes have arrived.
    pub fn begin(&mut self, missing: Missing, bytes: &[u8]) {
        let mut filling = Filling { missing, bytes: Vec::new() };
        filling.make_room();
        filling.bytes.extend_from_slice(bytes);
        self.filling = Some(filling);
    }

    /// Whether an argument is arriving.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.filling.is_some()
    }

    /// Reads more of the argument that is arriving, and says how much.
    pub fn read(&mut self, socket: &mut Socket) -> io::Result<Option<usize>> {
        let Some(filling) = &mut self.filling else { return Ok(None) };
        filling.make_room();
        let result = read_more(socket, &mut filling.bytes);
        if filling.bytes.len() == filling.missing.bytes
            && let Some(Filling { missing, bytes }) = self.filling.take()
        {
            self.blocks.push(missing.at, bytes);
        }
        result
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Apart::default();
    }

    /// Bytes that have arrived.
    #[must_use]
    pub fn arrived_bytes(&self) -> usize {
        self.blocks.memory_bytes() + self.filling.as_ref().map_or(0, |filling| filling.bytes.len())
    }

    /// Bytes that are set aside for what is to arrive.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.filling.as_ref().map_or(0, |filling| filling.bytes.capacity() - filling.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_block_is_of_its_arguments_size_and_grows_as_that_arrives() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut socket = Socket::Unix(socket);
        let mut apart = Apart::default();
        let missing = Missing { at: 5, bytes: 100_002 };
        apart.begin(missing, b"begun");
        assert_eq!((apart.arrived_bytes(), apart.free_bytes()), (5, missing.bytes - 5));
        assert_eq!(apart.read(&mut socket).unwrap(), None);
        let sent = [&[b'x'; 99_995][..], b"\r\n", b"what follows"].concat();
        for piece in sent.chunks(40_000) {
            assert!(apart.is_filling());
            peer.write_all(piece).unwrap();
            apart.read(&mut socket).unwrap();
        }
        assert!(!apart.is_filling());
        let block = apart.blocks.iter().next().unwrap();
        assert!(block.starts_with(b"begunx") && block.ends_with(b"x") && block.len() == 100_000);
        assert_eq!((block.capacity(), apart.free_bytes()), (missing.bytes, 0));
        // What follows is left to be read.
        assert_eq!(apart.read(&mut socket).unwrap(), None);
        assert_eq!(read_more(&mut socket, &mut Vec::with_capacity(100)).unwrap(), Some(12));
    }

    #[test]
    fn what_is_only_announced_is_not_set_aside_beyond_a_limit() {
        let missing = Missing { at: 0, bytes: 1 << 40 };
        let mut filling = Filling { missing, bytes: Vec::new() };
        filling.make_room();
        assert_eq!(filling.bytes.capacity(), AT_ONCE_BYTES_MAX);
        filling.make_room();
        assert_eq!(filling.bytes.capacity(), AT_ONCE_BYTES_MAX);
        // As much again as there is, and no more than is missing.
        for (missing_bytes, room) in [(1 << 40, 2 * AT_ONCE_BYTES_MAX), (AT_ONCE_BYTES_MAX + 9, AT_ONCE_BYTES_MAX + 9)]
        {
            let missing = Missing { at: 0, bytes: missing_bytes };
            let mut filling = Filling { missing, bytes: vec![0; AT_ONCE_BYTES_MAX] };
            filling.make_room();
            assert_eq!(filling.bytes.capacity(), room);
        }
    }
}
