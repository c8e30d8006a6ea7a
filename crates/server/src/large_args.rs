//! The large arguments of an arriving request, each in a block of its own.
//!
//! A complete block has exactly the argument's size, and a command can keep it. An announced length alone costs nothing: beyond a first
//! allocation, a block grows as its bytes arrive. Large blocks grow without a copy (`crate::allocator`), and pages without bytes take no
//! memory.

use std::io;

use resp::request::{Blocks, Missing};

use crate::allocator::MAPPED_BYTES_MIN;
use crate::connection::{Socket, read_more};

/// The most bytes allocated at once for an announced argument.
const AT_ONCE_BYTES_MAX: usize = MAPPED_BYTES_MIN;

/// The large arguments of a connection's incomplete request.
#[derive(Default)]
pub struct LargeArgs {
    /// The complete arguments of the first request in the connection's input.
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

impl LargeArgs {
    /// Begins to receive an argument with its first `bytes`.
    pub fn begin(&mut self, missing: Missing, bytes: &[u8]) {
        let mut filling = Filling { missing, bytes: Vec::new() };
        filling.make_room();
        filling.bytes.extend_from_slice(bytes);
        self.filling = Some(filling);
    }

    /// Returns true while an argument is arriving.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.filling.is_some()
    }

    /// Reads more of the arriving argument. Returns the number of bytes.
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
        *self = LargeArgs::default();
    }

    /// Bytes that have arrived.
    #[must_use]
    pub fn arrived_bytes(&self) -> usize {
        self.blocks.memory_bytes() + self.filling.as_ref().map_or(0, |filling| filling.bytes.len())
    }

    /// Bytes allocated for the rest of the arriving argument.
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
    fn a_block_has_its_arguments_size_and_grows_as_bytes_arrive() {
        let (socket, mut peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut socket = Socket::Unix(socket);
        let mut large_args = LargeArgs::default();
        let missing = Missing { at: 5, bytes: 100_002 };
        large_args.begin(missing, b"begun");
        assert_eq!((large_args.arrived_bytes(), large_args.free_bytes()), (5, missing.bytes - 5));
        assert_eq!(large_args.read(&mut socket).unwrap(), None);
        let sent = [&[b'x'; 99_995][..], b"\r\n", b"what follows"].concat();
        for piece in sent.chunks(40_000) {
            assert!(large_args.is_filling());
            peer.write_all(piece).unwrap();
            large_args.read(&mut socket).unwrap();
        }
        assert!(!large_args.is_filling());
        let block = large_args.blocks.iter().next().unwrap();
        assert!(block.starts_with(b"begunx") && block.ends_with(b"x") && block.len() == 100_000);
        assert_eq!((block.capacity(), large_args.free_bytes()), (missing.bytes, 0));
        // The next request's bytes are left in the socket.
        assert_eq!(large_args.read(&mut socket).unwrap(), None);
        assert_eq!(read_more(&mut socket, &mut Vec::with_capacity(100)).unwrap(), Some(12));
    }

    #[test]
    fn announced_bytes_are_allocated_only_up_to_a_limit() {
        let missing = Missing { at: 0, bytes: 1 << 40 };
        let mut filling = Filling { missing, bytes: Vec::new() };
        filling.make_room();
        assert_eq!(filling.bytes.capacity(), AT_ONCE_BYTES_MAX);
        filling.make_room();
        assert_eq!(filling.bytes.capacity(), AT_ONCE_BYTES_MAX);
        // The block doubles, up to the missing bytes.
        for (missing_bytes, room) in [(1 << 40, 2 * AT_ONCE_BYTES_MAX), (AT_ONCE_BYTES_MAX + 9, AT_ONCE_BYTES_MAX + 9)]
        {
            let missing = Missing { at: 0, bytes: missing_bytes };
            let mut filling = Filling { missing, bytes: vec![0; AT_ONCE_BYTES_MAX] };
            filling.make_room();
            assert_eq!(filling.bytes.capacity(), room);
        }
    }
}
