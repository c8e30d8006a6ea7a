//! The backlog: the last bytes of a history, from which replicas are sent what they lack.
//!
//! Offsets count the bytes of a history from its beginning, as `master_repl_offset` of Redis does: a replica at offset 100 has the
//! first hundred bytes. The bytes lie in blocks, so that nothing is moved when the oldest are given up.

use std::collections::VecDeque;

/// Bytes of a block: what a socket takes at once, or less.
const BLOCK_BYTES: usize = 128 << 10;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Backlog {
    /// Whole blocks but for the last one, which grows.
    blocks: VecDeque<Vec<u8>>,
    /// The offset before the first byte of the first block.
    start: u64,
    end: u64,
}

impl Backlog {
    /// An empty one that begins behind this offset.
    #[must_use]
    pub fn begin(offset: u64) -> Backlog {
        Backlog { blocks: VecDeque::new(), start: offset, end: offset }
    }

    /// The offset behind the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The offset before the first byte that is kept.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Bytes that are kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether a replica that has everything up to this offset can be sent the rest.
    #[must_use]
    pub fn reaches_back_to(&self, offset: u64) -> bool {
        (self.start..=self.end).contains(&offset)
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

    /// Gives up whole blocks of which `needed` has no need and without which `size` bytes are left. `needed` is the least offset that
    /// a replica is at.
    pub fn trim(&mut self, size: u64, needed: u64) {
        while let Some(block) = self.blocks.front() {
            let next = self.start + block.len() as u64;
            if next > needed || self.end - next < size {
                return;
            }
            self.start = next;
            self.blocks.pop_front();
        }
    }

    /// The bytes from this offset on, in pieces. None if they are not kept.
    #[must_use]
    pub fn from(&self, offset: u64) -> Option<impl Iterator<Item = &[u8]>> {
        if !self.reaches_back_to(offset) {
            return None;
        }
        // All blocks but the last are full.
        let skipped = usize::try_from(offset - self.start).ok()?;
        let (first, within) = (skipped / BLOCK_BYTES, skipped % BLOCK_BYTES);
        let pieces = self.blocks.iter().skip(first).enumerate();
        Some(pieces.filter_map(move |(index, block)| block.get(if index == 0 { within } else { 0 }..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(backlog: &Backlog, offset: u64) -> Option<Vec<u8>> {
        backlog.from(offset).map(|pieces| pieces.collect::<Vec<_>>().concat())
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
}
