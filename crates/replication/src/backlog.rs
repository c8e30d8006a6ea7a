//! The backlog: the last bytes of a history, from which replicas are sent what they lack.
//!
//! Offsets count the bytes of a history from its beginning, as `master_repl_offset` of Redis does: a replica at offset 100 has the
//! first hundred bytes. The bytes lie in blocks, so that nothing is moved when the oldest are given up. Where a replica that is far behind
//! needs more of them than there is memory for, the oldest go to a shelf, which is a file: so it can catch up, however long that takes.

use std::collections::VecDeque;
use std::fmt;
use std::io;

/// Bytes of a block: what a socket takes at once, or less.
const BLOCK_BYTES: usize = 128 << 10;

/// Bytes that are read from a shelf at once.
const READ_BYTES: usize = 256 << 10;

/// Where bytes are kept that memory has no room for.
pub trait Shelf: Send {
    /// Adds bytes at its end.
    ///
    /// # Errors
    /// The disk's.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Reads some bytes from this place on. None are read only at the end.
    ///
    /// # Errors
    /// The disk's.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// See the module's documentation.
#[derive(Default)]
pub struct Backlog {
    /// Bytes before those in memory, and the offset before the first of them.
    shelf: Option<(Box<dyn Shelf>, u64)>,
    /// Whole blocks but for the last one, which grows.
    blocks: VecDeque<Vec<u8>>,
    /// The offset before the first byte of the first block.
    memory_start: u64,
    end: u64,
}

impl fmt::Debug for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Backlog({}, {}, {})", self.start(), self.memory_start, self.end)
    }
}

impl Backlog {
    /// An empty one that begins behind this offset.
    #[must_use]
    pub fn begin(offset: u64) -> Backlog {
        Backlog { shelf: None, blocks: VecDeque::new(), memory_start: offset, end: offset }
    }

    /// The offset behind the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The offset before the first byte that is kept.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.shelf.as_ref().map_or(self.memory_start, |(_, start)| *start)
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start()
    }

    /// Those of them that are in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.end - self.memory_start
    }

    /// Whether a replica that has everything up to this offset can be sent the rest.
    #[must_use]
    pub fn reaches_back_to(&self, offset: u64) -> bool {
        (self.start()..=self.end).contains(&offset)
    }

    /// Adds bytes.
    pub fn append(&mut self, mut bytes: &[u8]) {
        self.end += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = self.blocks.back().map_or(0, |block| BLOCK_BYTES - block.len());
            if room == 0 {
                self.blocks.push_back(Vec::with_capacity(BLOCK_BYTES));
                continue;
            }
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            if let Some(block) = self.blocks.back_mut() {
                block.extend_from_slice(now);
            }
            bytes = later;
        }
    }

    /// Takes back what is behind this offset. False if that isn't in memory: then nothing changes.
    pub fn take_back(&mut self, offset: u64) -> bool {
        if !(self.memory_start..=self.end).contains(&offset) {
            return false;
        }
        while let Some(block) = self.blocks.back_mut() {
            let surplus = self.end - offset;
            if surplus < block.len() as u64 {
                block.truncate(block.len() - surplus as usize);
                self.end = offset;
                break;
            }
            self.end -= block.len() as u64;
            self.blocks.pop_back();
        }
        true
    }

    /// Gives up whole blocks of which `needed` has no need and without which `size` bytes are left. `needed` is the least offset that
    /// a replica is at.
    pub fn trim(&mut self, size: u64, needed: u64) {
        if self.shelf.is_some() {
            if needed < self.memory_start {
                return;
            }
            self.shelf = None;
        }
        while let Some(block) = self.blocks.front() {
            let next = self.memory_start + block.len() as u64;
            if next > needed || self.end - next < size {
                return;
            }
            self.memory_start = next;
            self.blocks.pop_front();
        }
    }

    /// Puts the oldest blocks on a shelf, until no more than `memory_max` bytes are in memory, or a block more. `make` makes a shelf.
    ///
    /// # Errors
    /// If there can't be one, or it takes no more. Nothing is lost: all that is not on it is in memory.
    pub fn spill(&mut self, memory_max: u64, make: impl FnOnce() -> io::Result<Box<dyn Shelf>>) -> io::Result<()> {
        if self.memory_bytes() <= memory_max + BLOCK_BYTES as u64 {
            return Ok(());
        }
        let start = self.memory_start;
        let (shelf, _) = match &mut self.shelf {
            Some(shelf) => shelf,
            none => none.insert((make()?, start)),
        };
        while self.end - self.memory_start > memory_max
            && let Some(block) = self.blocks.front().filter(|block| block.len() == BLOCK_BYTES)
        {
            shelf.append(block)?;
            self.memory_start += BLOCK_BYTES as u64;
            self.blocks.pop_front();
        }
        Ok(())
    }

    /// The next bytes from this offset on, as many as lie together; none at the end. `scratch` holds them if they come from a shelf. None
    /// if they are not kept.
    ///
    /// # Errors
    /// The shelf's.
    pub fn piece<'b>(&'b self, offset: u64, scratch: &'b mut Vec<u8>) -> io::Result<Option<&'b [u8]>> {
        if let Some((shelf, start)) = &self.shelf
            && (*start..self.memory_start).contains(&offset)
        {
            let left = usize::try_from(self.memory_start - offset).unwrap_or(usize::MAX);
            scratch.resize(left.min(READ_BYTES), 0);
            let read = shelf.read(offset - start, scratch)?;
            if read == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has fewer bytes than were written"));
            }
            return Ok(scratch.get(..read));
        }
        Ok(self.from(offset).map(|mut pieces| pieces.find(|piece| !piece.is_empty()).unwrap_or_default()))
    }

    /// The bytes in memory from this offset on, in pieces. None if they are not there.
    fn from(&self, offset: u64) -> Option<impl Iterator<Item = &[u8]>> {
        if !(self.memory_start..=self.end).contains(&offset) {
            return None;
        }
        // All blocks but the last are full.
        let skipped = usize::try_from(offset - self.memory_start).ok()?;
        let (first, within) = (skipped / BLOCK_BYTES, skipped % BLOCK_BYTES);
        let pieces = self.blocks.iter().skip(first).enumerate();
        Some(pieces.filter_map(move |(index, block)| block.get(if index == 0 { within } else { 0 }..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(backlog: &Backlog, offset: u64) -> Option<Vec<u8>> {
        if !backlog.reaches_back_to(offset) {
            return None;
        }
        let (mut all, mut scratch) = (Vec::new(), Vec::new());
        loop {
            match backlog.piece(offset + all.len() as u64, &mut scratch).unwrap()? {
                [] => return Some(all),
                piece => all.extend_from_slice(piece),
            }
        }
    }

    #[test]
    fn what_was_added_is_found_by_its_offset() {
        let bytes: Vec<u8> = (0..BLOCK_BYTES * 3 + 1000).map(|i| (i % 251) as u8).collect();
        let mut backlog = Backlog::begin(1000);
        assert_eq!((all(&backlog, 1000), all(&backlog, 999), all(&backlog, 1001)), (Some(Vec::new()), None, None));
        for piece in bytes.chunks(977) {
            backlog.append(piece);
        }
        assert_eq!((backlog.start(), backlog.end()), (1000, 1000 + bytes.len() as u64));
        for at in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES * 3, BLOCK_BYTES * 3 + 999, bytes.len()] {
            assert_eq!(all(&backlog, 1000 + at as u64).as_deref(), bytes.get(at..), "{at}");
        }
        assert_eq!(all(&backlog, backlog.end() + 1), None);
    }

    #[test]
    fn blocks_go_when_neither_a_replica_nor_the_size_needs_them() {
        let block = BLOCK_BYTES as u64;
        let mut backlog = Backlog::begin(0);
        backlog.append(&vec![1; BLOCK_BYTES * 5]);
        backlog.trim(block, block - 1);
        assert_eq!(backlog.start(), 0, "a replica is within the first");
        backlog.trim(block, block * 2 + 7);
        assert_eq!((backlog.start(), backlog.bytes()), (block * 2, block * 3));
        backlog.trim(block * 2, u64::MAX);
        assert_eq!(backlog.bytes(), block * 2);
        backlog.trim(0, u64::MAX);
        assert_eq!((backlog.bytes(), backlog.start()), (0, backlog.end()));
        backlog.append(b"x");
        assert_eq!(all(&backlog, block * 5), Some(b"x".to_vec()));
    }

    #[test]
    fn what_is_taken_back_may_be_other_bytes_afterwards() {
        let bytes: Vec<u8> = (0..BLOCK_BYTES * 3).map(|i| (i % 251) as u8).collect();
        for kept in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, BLOCK_BYTES * 3] {
            let mut backlog = Backlog::begin(10);
            backlog.append(&bytes);
            assert!(!backlog.take_back(9) && !backlog.take_back(backlog.end() + 1));
            assert!(backlog.take_back(10 + kept as u64));
            assert_eq!((backlog.end(), backlog.bytes()), (10 + kept as u64, kept as u64));
            backlog.append(b"other");
            assert_eq!(all(&backlog, 10), Some([&bytes[..kept], b"other"].concat()), "{kept}");
        }
    }

    /// A shelf in memory that takes so many bytes.
    struct Small(Vec<u8>, usize);

    impl Shelf for Small {
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            if self.0.len() + bytes.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.extend_from_slice(bytes);
            Ok(())
        }

        fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
            let bytes = &self.0[at as usize..];
            let len = bytes.len().min(into.len()).min(1000);
            into[..len].copy_from_slice(&bytes[..len]);
            Ok(len)
        }
    }

    #[test]
    fn what_memory_has_no_room_for_is_read_from_the_shelf() {
        let bytes: Vec<u8> = (0..BLOCK_BYTES * 7 + 500).map(|i| (i % 251) as u8).collect();
        let block = BLOCK_BYTES as u64;
        let mut backlog = Backlog::begin(50);
        for piece in bytes.chunks(BLOCK_BYTES / 3) {
            backlog.append(piece);
            backlog.spill(2 * block, || Ok(Box::new(Small(Vec::new(), usize::MAX)))).unwrap();
            assert!(backlog.memory_bytes() <= 3 * block);
        }
        for at in [0, 1, BLOCK_BYTES, BLOCK_BYTES * 5 - 1, BLOCK_BYTES * 6, bytes.len()] {
            assert_eq!(all(&backlog, 50 + at as u64).as_deref(), bytes.get(at..), "{at}");
        }
        backlog.trim(block, 50 + block);
        assert_eq!(backlog.start(), 50, "a replica needs what is on the shelf");
        backlog.trim(block, u64::MAX);
        assert!(backlog.bytes() <= 2 * block && backlog.shelf.is_none());
        assert_eq!(all(&backlog, backlog.start()).as_deref(), bytes.get(backlog.start() as usize - 50..));
    }

    #[test]
    fn a_shelf_that_is_full_loses_nothing() {
        let block = BLOCK_BYTES as u64;
        let mut backlog = Backlog::begin(0);
        backlog.append(&vec![7; BLOCK_BYTES * 6]);
        assert!(backlog.spill(block, || Ok(Box::new(Small(Vec::new(), BLOCK_BYTES * 2)))).is_err());
        assert_eq!((backlog.start(), backlog.memory_bytes()), (0, 4 * block));
        assert_eq!(all(&backlog, 3).unwrap().len(), BLOCK_BYTES * 6 - 3);
        assert!(backlog.spill(block, || Err(io::ErrorKind::NotFound.into())).is_err());
    }
}
