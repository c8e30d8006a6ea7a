//! A file shared by the queues of many connections, with one descriptor for all.
//!
//! It is divided into chunks, numbered by their place. A queue takes chunks as it grows and frees them as it is read. A free chunk takes no
//! space on the disk: it is a hole, or behind the file's end.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};

/// Bytes of a chunk: many pieces, and few chunks in a large queue. The unwritten part of a chunk takes no space.
pub(super) const CHUNK_BYTES: u64 = 4 << 20;

/// The chunks of a file in use.
#[derive(Default)]
struct Chunks {
    /// All chunks before this one are in use, except those in `free`. The last one is never free.
    count: u64,
    free: BTreeSet<u64>,
}

impl Chunks {
    /// Takes the first free chunk, which keeps the file short.
    fn take(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }

    /// Frees a chunk. Returns true if the file has fewer chunks now.
    fn give_up(&mut self, chunk: u64) -> bool {
        self.free.insert(chunk);
        let before = self.count;
        while self.count > 0 && self.free.remove(&(self.count - 1)) {
            self.count -= 1;
        }
        self.count < before
    }
}

/// A file divided into chunks.
pub(super) struct SharedFile {
    file: File,
    /// The directory of the nameless file.
    pub(super) directory: PathBuf,
    chunks: Chunks,
    /// Number of queues in it.
    pub(super) users: usize,
}

/// A queue's part of a shared file.
#[derive(Default)]
pub(super) struct Part {
    /// Number of chunks that the queue has freed.
    before: u64,
    /// The chunks after them.
    chunks: VecDeque<u64>,
}

impl Part {
    /// Returns the place of a queue's position in the file, and the number of bytes from there to the end of the chunk.
    fn place(&self, at: u64) -> Option<(u64, u64)> {
        let index = (at / CHUNK_BYTES).checked_sub(self.before)?;
        let (chunk, within) = (self.chunks.get(index as usize)?, at % CHUNK_BYTES);
        Some((chunk * CHUNK_BYTES + within, CHUNK_BYTES - within))
    }
}

impl SharedFile {
    pub(super) fn new(file: File, directory: PathBuf) -> SharedFile {
        SharedFile { file, directory, chunks: Chunks::default(), users: 0 }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Writes at the end of a queue or before, within one chunk.
    pub(super) fn write(&mut self, part: &mut Part, slices: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        while part.before + part.chunks.len() as u64 <= at / CHUNK_BYTES {
            part.chunks.push_back(self.chunks.take());
        }
        let (place, mut room) = part.place(at).ok_or(io::ErrorKind::InvalidInput)?;
        let mut fitting = Vec::with_capacity(slices.len());
        for slice in slices {
            let bytes = (slice.len() as u64).min(room);
            fitting.push(IoSlice::new(&slice[..bytes as usize]));
            room -= bytes;
            if room == 0 {
                break;
            }
        }
        Ok(rustix::io::pwritev(&self.file, &fitting, place)?)
    }

    /// Reads from a queue, within one chunk.
    pub(super) fn read(&self, part: &Part, into: &mut [u8], at: u64) -> io::Result<usize> {
        let (place, there) = part.place(at).ok_or(io::ErrorKind::UnexpectedEof)?;
        let bytes = there.min(into.len() as u64) as usize;
        self.file.read_at(&mut into[..bytes], place)
    }

    /// Returns the space between two positions of a queue to the disk, and frees whole chunks.
    pub(super) fn give_back(&mut self, part: &mut Part, from: u64, until: u64) -> io::Result<()> {
        let mut at = from.max(part.before * CHUNK_BYTES);
        while at < until {
            let (place, there) = part.place(at).ok_or(io::ErrorKind::InvalidInput)?;
            let bytes = there.min(until - at);
            self.make_hole(place, bytes)?;
            at += bytes;
            if at.is_multiple_of(CHUNK_BYTES) {
                part.before += 1;
                let chunk = part.chunks.pop_front();
                self.give_up(chunk);
            }
        }
        Ok(())
    }

    /// Returns all space of a queue to the disk. The queue begins anew.
    pub(super) fn empty(&mut self, part: &mut Part) {
        for chunk in std::mem::take(part).chunks {
            // A disk without holes frees the space with the file's end. Until then other queues write there.
            let _ = self.make_hole(chunk * CHUNK_BYTES, CHUNK_BYTES);
            self.give_up(Some(chunk));
        }
    }

    fn make_hole(&self, at: u64, bytes: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, bytes)?)
    }

    fn give_up(&mut self, chunk: Option<u64>) {
        if chunk.is_some_and(|chunk| self.chunks.give_up(chunk)) {
            // Most disks have the space back already.
            let _ = self.file.set_len(self.chunks.count * CHUNK_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_chunks_are_taken_and_the_file_ends_after_the_last() {
        let mut chunks = Chunks::default();
        assert_eq!([chunks.take(), chunks.take(), chunks.take(), chunks.take()], [0, 1, 2, 3]);
        assert!(!chunks.give_up(2) && !chunks.give_up(0));
        assert_eq!(chunks.take(), 0);
        assert!(chunks.give_up(3));
        assert_eq!((chunks.count, chunks.take(), chunks.take()), (2, 2, 3));
        for chunk in [0, 1, 2] {
            assert!(!chunks.give_up(chunk));
        }
        assert!(chunks.give_up(3) && chunks.count == 0 && chunks.free.is_empty());
    }
}
