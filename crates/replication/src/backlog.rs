//! The backlog: the last bytes of a history, from which replicas get their missing bytes.
//!
//! Offsets count the bytes of a history from its beginning, like Redis's `master_repl_offset`: a replica at offset 100 has the first
//! hundred bytes. The bytes are in blocks, and nothing is moved when the oldest are dropped. If a slow replica needs more of them than fit
//! into memory, the oldest go to an overflow file. The replica can catch up then, at any speed.

use std::collections::VecDeque;
use std::fmt;
use std::io;

/// Bytes of a block: no more than a socket takes at once.
const BLOCK_BYTES: usize = 128 << 10;

/// Bytes read from the overflow at once.
const READ_BYTES: usize = 256 << 10;

/// A store for bytes beyond the memory.
pub trait Overflow: Send {
    /// Adds bytes at its end.
    ///
    /// # Errors
    /// The disk's error.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Reads some bytes from this position on. Returns 0 only at the end.
    ///
    /// # Errors
    /// The disk's error.
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// The last bytes of a history.
#[derive(Default)]
pub struct Backlog {
    /// The bytes before those in memory, and the offset before the first of them.
    overflow: Option<(Box<dyn Overflow>, u64)>,
    /// Full blocks, except the last one, which grows.
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
    /// An empty backlog that begins at this offset.
    #[must_use]
    pub fn begin(offset: u64) -> Backlog {
        Backlog { overflow: None, blocks: VecDeque::new(), memory_start: offset, end: offset }
    }

    /// The offset behind the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The offset before the first byte that is kept.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.overflow.as_ref().map_or(self.memory_start, |(_, start)| *start)
    }

    /// The number of bytes kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start()
    }

    /// The number of bytes in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.end - self.memory_start
    }

    /// Returns true if a replica at this offset can get the following bytes.
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

    /// Drops the bytes after this offset. Returns false and changes nothing if the offset isn't in memory.
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

    /// Drops whole blocks that no replica needs, and keeps at least `size` bytes. `needed` is the least offset of a replica.
    pub fn trim(&mut self, size: u64, needed: u64) {
        if self.overflow.is_some() {
            if needed < self.memory_start {
                return;
            }
            self.overflow = None;
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

    /// Moves the oldest blocks to the overflow, until memory holds at most `memory_max` bytes plus one block. `make` creates an overflow.
    ///
    /// # Errors
    /// If it can't be created, or takes no more. Nothing is lost: the other bytes stay in memory.
    pub fn spill(&mut self, memory_max: u64, make: impl FnOnce() -> io::Result<Box<dyn Overflow>>) -> io::Result<()> {
        if self.memory_bytes() <= memory_max + BLOCK_BYTES as u64 {
            return Ok(());
        }
        let start = self.memory_start;
        let (overflow, _) = match &mut self.overflow {
            Some(overflow) => overflow,
            none => none.insert((make()?, start)),
        };
        while self.end - self.memory_start > memory_max
            && let Some(block) = self.blocks.front().filter(|block| block.len() == BLOCK_BYTES)
        {
            overflow.append(block)?;
            self.memory_start += BLOCK_BYTES as u64;
            self.blocks.pop_front();
        }
        Ok(())
    }

    /// Returns the contiguous bytes from this offset on, empty at the end. `scratch` holds them if they come from the overflow. Returns
    /// `None` if they are not kept.
    ///
    /// # Errors
    /// The overflow's error.
    pub fn piece<'b>(&'b self, offset: u64, scratch: &'b mut Vec<u8>) -> io::Result<Option<&'b [u8]>> {
        if let Some((overflow, start)) = &self.overflow
            && (*start..self.memory_start).contains(&offset)
        {
            let left = usize::try_from(self.memory_start - offset).unwrap_or(usize::MAX);
            scratch.resize(left.min(READ_BYTES), 0);
            let read = overflow.read(offset - start, scratch)?;
            if read == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has fewer bytes than were written"));
            }
            return Ok(scratch.get(..read));
        }
        Ok(self.from(offset).map(|mut pieces| pieces.find(|piece| !piece.is_empty()).unwrap_or_default()))
    }

    /// Returns the bytes in memory from this offset on, in pieces. Returns `None` if the offset isn't in memory.
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
    fn added_bytes_are_found_by_their_offset() {
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
    fn a_rewound_offset_may_get_other_bytes() {
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

    /// An overflow in memory with limited room.
    struct Small(Vec<u8>, usize);

    impl Overflow for Small {
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
    fn bytes_beyond_the_memory_are_read_from_the_overflow() {
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
        assert_eq!(backlog.start(), 50, "a replica needs the part in the overflow");
        backlog.trim(block, u64::MAX);
        assert!(backlog.bytes() <= 2 * block && backlog.overflow.is_none());
        assert_eq!(all(&backlog, backlog.start()).as_deref(), bytes.get(backlog.start() as usize - 50..));
    }

    #[test]
    fn a_full_overflow_loses_nothing() {
        let block = BLOCK_BYTES as u64;
        let mut backlog = Backlog::begin(0);
        backlog.append(&vec![7; BLOCK_BYTES * 6]);
        assert!(backlog.spill(block, || Ok(Box::new(Small(Vec::new(), BLOCK_BYTES * 2)))).is_err());
        assert_eq!((backlog.start(), backlog.memory_bytes()), (0, 4 * block));
        assert_eq!(all(&backlog, 3).unwrap().len(), BLOCK_BYTES * 6 - 3);
        assert!(backlog.spill(block, || Err(io::ErrorKind::NotFound.into())).is_err());
    }
}
