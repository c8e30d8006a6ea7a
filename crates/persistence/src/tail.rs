//! The bytes of a file that are not durable yet: written ones in chunks, and the latest ones in a buffer.
//!
//! Chunks keep the memory close to the number of bytes. A single buffer would double its memory when it grows, and a server with a memory
//! limit would evict keys for it.

use std::collections::VecDeque;

/// Capacity of an ordinary chunk, in bytes. Fewer written bytes are copied into the last chunk; a buffer with more becomes a chunk.
const CHUNK_BYTES: usize = 256 << 10;

/// See the module's documentation. Offsets count from the first byte that is not durable.
#[derive(Default)]
pub(crate) struct Tail {
    /// Written bytes.
    chunks: VecDeque<Vec<u8>>,
    chunk_bytes: usize,
    /// True if the last chunk takes no more bytes, because a sync covers exactly the chunks up to it.
    is_sealed: bool,
    /// The bytes after the chunks.
    latest: Vec<u8>,
    /// Empty chunks for reuse. New ones cost page faults.
    spares: Vec<Vec<u8>>,
    /// Capacity of the chunks and the spares.
    capacity: usize,
}

impl Tail {
    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.chunk_bytes + self.latest.len()
    }

    /// Offset of the buffer of the latest bytes.
    pub(crate) fn latest_at(&self) -> usize {
        self.chunk_bytes
    }

    /// The buffer of the latest bytes, for appending.
    pub(crate) fn latest(&mut self) -> &mut Vec<u8> {
        &mut self.latest
    }

    /// Memory in bytes, including unused capacity.
    pub(crate) fn memory(&self) -> usize {
        self.capacity + self.latest.capacity()
    }

    /// Returns some bytes from an offset on: at least one, unless the offset is the end.
    pub(crate) fn bytes_from(&self, at: usize) -> &[u8] {
        if let Some(at) = at.checked_sub(self.chunk_bytes) {
            return self.latest.get(at..).unwrap_or_default();
        }
        // Only after a failure of the disk.
        let mut at = at;
        for chunk in &self.chunks {
            match at.checked_sub(chunk.len()) {
                None => return chunk.get(at..).unwrap_or_default(),
                Some(rest) => at = rest,
            }
        }
        &[]
    }

    /// Moves the latest bytes to the chunks, once they are written.
    pub(crate) fn keep_latest(&mut self) {
        let bytes = self.latest.len();
        if bytes == 0 {
            return;
        }
        self.chunk_bytes += bytes;
        if bytes > CHUNK_BYTES / 2 {
            let next = self.spares.pop().unwrap_or_default();
            self.capacity = self.capacity - next.capacity() + self.latest.capacity();
            self.chunks.push_back(std::mem::replace(&mut self.latest, next));
            self.is_sealed = false;
            return;
        }
        let has_room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= bytes;
        match self.chunks.back_mut().filter(|chunk| !self.is_sealed && has_room(chunk)) {
            Some(chunk) => chunk.append(&mut self.latest),
            None => {
                // A spare was an ordinary chunk, or a buffer with more than half as many bytes.
                let mut chunk = self.spares.pop().unwrap_or_else(|| {
                    self.capacity += CHUNK_BYTES;
                    Vec::with_capacity(CHUNK_BYTES)
                });
                chunk.append(&mut self.latest);
                self.chunks.push_back(chunk);
                self.is_sealed = false;
            }
        }
    }

    /// Begins another chunk with the next bytes.
    pub(crate) fn seal(&mut self) {
        self.is_sealed = true;
    }

    /// Drops the first bytes, which are durable.
    pub(crate) fn drop_first(&mut self, bytes: usize) {
        let mut left = bytes;
        while left > 0 {
            let Some(chunk) = self.chunks.front_mut() else { break };
            if left < chunk.len() {
                chunk.drain(..left);
                self.chunk_bytes -= left;
                return;
            }
            left -= chunk.len();
            self.chunk_bytes -= chunk.len();
            if let Some(mut chunk) = self.chunks.pop_front() {
                chunk.clear();
                self.spares.push(chunk);
            }
        }
        self.latest.drain(..left.min(self.latest.len()));
    }

    /// Frees spare chunks beyond this memory.
    pub(crate) fn give_back(&mut self, kept: usize) {
        while self.memory() > kept
            && let Some(spare) = self.spares.pop()
        {
            self.capacity -= spare.capacity();
        }
        self.spares.shrink_to_fit();
        if self.latest.capacity() > kept {
            self.latest.shrink_to(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all bytes from an offset on.
    fn rest(tail: &Tail, at: usize) -> Vec<u8> {
        let mut found = Vec::new();
        while at + found.len() < tail.len() {
            let part = tail.bytes_from(at + found.len());
            assert!(!part.is_empty());
            found.extend_from_slice(part);
        }
        found
    }

    #[test]
    fn bytes_stay_in_order_across_chunks() {
        let mut tail = Tail::default();
        let mut expected = Vec::new();
        for (step, bytes) in
            [1, CHUNK_BYTES, 10, 3 * CHUNK_BYTES, CHUNK_BYTES / 2, CHUNK_BYTES / 3, 7].into_iter().enumerate()
        {
            let more = vec![step as u8; bytes];
            tail.latest().extend_from_slice(&more);
            expected.extend_from_slice(&more);
            assert_eq!((tail.len(), rest(&tail, 0)), (expected.len(), expected.clone()));
            tail.keep_latest();
            assert_eq!(tail.latest_at(), expected.len());
            assert_eq!(rest(&tail, expected.len() / 2), expected[expected.len() / 2..]);
        }
        for dropped in [1, CHUNK_BYTES - 3, 20, 2 * CHUNK_BYTES] {
            tail.drop_first(dropped);
            expected.drain(..dropped);
            assert_eq!(rest(&tail, 0), expected);
        }
        tail.latest().extend_from_slice(b"last");
        tail.drop_first(expected.len() + 2);
        assert_eq!(rest(&tail, 0), b"st");
    }

    #[test]
    fn a_sealed_chunk_ends_where_the_sync_does() {
        let mut tail = Tail::default();
        tail.latest().extend_from_slice(b"synced");
        tail.keep_latest();
        tail.seal();
        tail.latest().extend_from_slice(b"later");
        tail.keep_latest();
        tail.latest().extend_from_slice(b", too");
        tail.keep_latest();
        assert_eq!(tail.chunks.iter().map(Vec::len).collect::<Vec<_>>(), [6, 10]);
        tail.drop_first(6);
        assert_eq!((rest(&tail, 0), tail.spares.len()), (b"later, too".to_vec(), 1));
    }

    #[test]
    fn memory_follows_the_bytes() {
        let mut tail = Tail::default();
        for _ in 0..200 {
            tail.latest().extend_from_slice(&[b'x'; 150_000]);
            tail.keep_latest();
            assert!(tail.memory() <= tail.len() * 2 + 2 * CHUNK_BYTES, "{} for {}", tail.memory(), tail.len());
        }
        let most = tail.memory();
        tail.drop_first(tail.len());
        assert_eq!(tail.memory(), most);
        tail.give_back(1 << 20);
        assert!(tail.memory() <= 1 << 20);
        let spares: usize = tail.spares.iter().map(Vec::capacity).sum();
        assert_eq!(tail.capacity, spares);
    }
}
