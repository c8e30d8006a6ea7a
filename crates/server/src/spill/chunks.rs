//! A file that the queues of many connections share, so that they need one descriptor and not one each.
//!
//! It is cut into chunks, which are numbered by their place. A queue takes the next ones as it grows and gives them up
//! as it is read. A chunk that no queue has takes no room on the disk: it is a hole, or behind the file's end.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};

/// Bytes of a chunk: many pieces, few chunks in a large queue. What isn't written of one takes nothing.
pub(super) const CHUNK_BYTES: u64 = 4 << 20;

/// Which chunks of a file are taken.
#[derive(Default)]
struct Chunks {
    /// All before this have been taken, and are still unless they are among `free`. Never is the last one free.
    count: u64,
    free: BTreeSet<u64>,
}

impl Chunks {
    /// Takes the foremost free chunk, so that the file stays as short as it can.
    fn take(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }

    /// Gives a chunk up, and says whether there are fewer in the file now.
    fn give_up(&mut self, chunk: u64) -> bool {
        self.free.insert(chunk);
        let before = self.count;
        while self.count > 0 && self.free.remove(&(self.count - 1)) {
            self.count -= 1;
        }
        self.count < before
    }
}

/// See the module's documentation.
pub(super) struct SharedFile {
    file: File,
    /// Where it is, or would be if it had a name.
    pub(super) directory: PathBuf,
    chunks: Chunks,
    /// Queues in it.
    pub(super) users: usize,
}

/// A queue's part of a shared file.
#[derive(Default)]
pub(super) struct Part {
    /// So many chunks of the queue were given up.
    before: u64,
    /// The chunks behind them.
    chunks: VecDeque<u64>,
}

impl Part {
    /// Where a position of the queue is in the file, and how many bytes from there on are in the same chunk.
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

    /// Writes at the end of a queue, or before: no more than the chunk has room for.
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

    /// Reads from a queue: no more than there is of it in one chunk.
    pub(super) fn read(&self, part: &Part, into: &mut [u8], at: u64) -> io::Result<usize> {
        let (place, there) = part.place(at).ok_or(io::ErrorKind::UnexpectedEof)?;
        let bytes = there.min(into.len() as u64) as usize;
        self.file.read_at(&mut into[..bytes], place)
    }

    /// Gives the space between two positions of a queue back to the disk, and whole chunks up.
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

    /// Gives all of a queue's space back. It begins anew then.
    pub(super) fn empty(&mut self, part: &mut Part) {
        for chunk in std::mem::take(part).chunks {
            // A disk that can't has the space back with the file's end; until then others write there.
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
    fn the_foremost_chunks_are_taken_and_the_file_ends_behind_the_last() {
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
