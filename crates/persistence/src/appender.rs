//! The end of a file: unwritten bytes, and written bytes that are kept until they are durable.
//!
//! After a failed sync, the state of the file beyond the last successful sync is unknown: the kernel may have dropped pages, and the next
//! sync would succeed without them. Bytes are therefore kept until they are synced. After a failed sync the file is cut to its durable
//! length and written again from there. A failed write may have left some of its own bytes in the file, and only these are cut.
//!
//! ```text
//! file:   | durable                  | written           | to be written, over filler if there is some
//! tail:                              0        syncing    written       end
//!                                    settled: bytes of the file up to here
//! ```
//!
//! After a file has grown, a sync also writes the file's new length, in another place of the disk, and waits for that write. With small
//! writes this takes about half of the time, and more on a file system with a journal. If each write is synced, the file is therefore
//! extended ahead of the data with filler ([`crate::block`]), and later writes overwrite the filler. Readers of the file skip it. A mark
//! precedes each filler. The mark and the first block behind it are written together, at the end of the file. A block that doesn't fit into
//! the rest of the filler begins after the filler, so no torn block can be mistaken for commands of another server.

use std::io;

use crate::block::{FILLER_PAD, MARK_BYTES, empty_block, filler, filler_end, is_before_line_end, mark};
use crate::disk::DiskFile;
use crate::saving::write_all;
use crate::tail::Tail;

/// A file and its unsettled end.
pub struct Appender<F> {
    file: F,
    /// Bytes of the file that are durable, or regarded as durable.
    settled: u64,
    /// The bytes after them. Offsets below count from its start.
    tail: Tail,
    /// Written bytes of `tail`.
    written: usize,
    /// Bytes of `tail` that the sync in another thread makes durable, if one runs.
    syncing: Option<usize>,
    /// After a failure: bytes of `tail` that are certainly in the file. The next write cuts the file to this length first.
    cut_at: Option<usize>,
    /// The length of `tail` after the last complete write.
    whole: usize,
    /// Bytes of `tail` with a final place in the file. The necessary marks and the skipped rest of filler are already inserted.
    placed: usize,
    /// True if the file is extended ahead of the data, and the file's length on disk.
    fills: bool,
    file_len: u64,
    /// The end of the filler that the last mark names, and the end of all filler that may be on the disk. The second one is greater after
    /// the file was cut without a sync.
    marked: u64,
    filler_end: u64,
    /// The checksum of the file's last block when it was opened.
    link: u32,
    /// The largest sizes of `tail` since the last call of [`Appender::give_back`], and between that call and the one before.
    most: [usize; 2],
}

/// The most and the least bytes for whose next writes memory is kept. Freed memory costs page faults when it is needed
/// again: a third of the log's CPU time with a sync every second.
const KEPT_BYTES_MAX: usize = 64 << 20;
const KEPT_BYTES_MIN: usize = 1 << 20;
/// The length of filler, in writes of the last size. Only one sync in so many is then slow. Filler is worthwhile while writing it costs
/// little compared with a sync, so the other constants limit its size.
const FILLED_WRITES: usize = 64;
const FILLED_WRITE_MAX: usize = 64 << 10;
const FILLER_BYTES_MIN: usize = 4 << 10;
const FILLER_BYTES_MAX: usize = 1 << 20;

impl<F: DiskFile> Appender<F> {
    /// Continues a file after its first `len` bytes, which are durable. The last block among them has the checksum `link`.
    pub fn new(file: F, len: u64, link: u32) -> Appender<F> {
        Appender {
            file,
            settled: len,
            tail: Tail::default(),
            written: 0,
            syncing: None,
            cut_at: None,
            whole: 0,
            placed: 0,
            fills: false,
            file_len: len,
            marked: 0,
            filler_end: len,
            link,
            most: [0; 2],
        }
    }

    /// Turns the extension ahead of the data on or off.
    pub fn set_fills(&mut self, fills: bool) {
        self.fills = fills;
    }

    /// Returns the checksum of the file's last block when it was opened: the link of the next block.
    #[must_use]
    pub fn link(&self) -> u32 {
        self.link
    }

    /// Closes a torn block, which a start has cut behind its last whole checkpoint, by an empty block.
    pub fn close_cut_block(&mut self) {
        let block = empty_block(self.settled, self.link);
        // The empty block's checksum is at the end of its first line.
        self.link = crate::block::Head::parse(&block).map_or(0, |head| head.checksum);
        self.tail.latest().extend_from_slice(&block);
    }

    /// Returns the buffer of the latest bytes. The caller appends whole blocks, and then calls [`Appender::write`].
    pub fn tail(&mut self) -> &mut Vec<u8> {
        self.tail.latest()
    }

    /// Memory of the bytes that are not durable yet, including unused capacity.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.tail.memory()
    }

    /// Durable bytes of the file.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Bytes that are not durable yet.
    #[must_use]
    pub fn unsettled(&self) -> usize {
        self.tail.len()
    }

    /// Bytes that are not written yet.
    #[must_use]
    pub fn unwritten(&self) -> usize {
        self.tail.len() - self.written
    }

    /// Length of the file including unwritten bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.settled + self.tail.len() as u64
    }

    /// Returns true if the file is empty and nothing is unwritten.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the unwritten bytes.
    ///
    /// # Errors
    /// The disk's error. The next call tries again.
    pub fn write(&mut self) -> io::Result<()> {
        if let Some(cut_at) = self.cut_at {
            self.file.truncate(self.settled + cut_at as u64)?;
            self.file_len = self.settled + cut_at as u64;
            self.written = cut_at;
            self.cut_at = None;
        }
        self.place();
        while self.written < self.tail.len() {
            match self.file.write_at(self.end(), self.tail.bytes_from(self.written)) {
                Ok(0) => return self.doubt(self.written, io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.doubt(self.written, error),
            }
        }
        self.whole = self.tail.len();
        self.tail.keep_latest();
        self.file_len = self.file_len.max(self.end());
        self.fill();
        Ok(())
    }

    /// The end of the written bytes in the file.
    fn end(&self) -> u64 {
        self.settled + self.written as u64
    }

    /// Places the bytes that were added to `tail` in the file.
    fn place(&mut self) {
        let bytes = self.tail.len() - self.placed;
        if bytes == 0 {
            return;
        }
        let mut at = self.settled + self.placed as u64;
        let mut before = Vec::new();
        let fits = at + (bytes + FILLER_PAD.len()) as u64 <= self.filler_end;
        if at < self.filler_end && !fits {
            before = filler_from(at, self.filler_end);
            at = self.filler_end;
        }
        if at >= self.filler_end && self.fills && bytes <= FILLED_WRITE_MAX {
            let more = (bytes * FILLED_WRITES).clamp(FILLER_BYTES_MIN, FILLER_BYTES_MAX);
            self.marked = filler_end(at + (MARK_BYTES + bytes + more) as u64);
            before.extend_from_slice(&mark(self.marked));
        }
        let unplaced = self.placed - self.tail.latest_at();
        self.tail.latest().splice(unplaced..unplaced, before);
        if (self.fills || self.filler_end > self.len()) && is_before_line_end(self.len()) {
            self.tail.latest().extend_from_slice(FILLER_PAD);
        }
        self.placed = self.tail.len();
    }

    /// Extends the file with filler to the end that the last mark names.
    fn fill(&mut self) {
        if self.file_len >= self.marked || self.end() < self.settled + self.placed as u64 {
            return;
        }
        let (from, to) = (self.file_len, self.marked);
        self.filler_end = self.filler_end.max(to);
        // Filler is optional: the next real write reports a full or failing disk.
        self.file_len = match write_all(&mut self.file, from, &filler(from, to)) {
            Ok(()) => to,
            // A partial line may be in the file, and another server could not append after it.
            Err(_) => self.file.truncate(from).map_or(to, |()| from),
        };
        // No filler is written before the next mark.
        self.marked = 0;
    }

    /// Cuts filler off the end of a file and syncs the cut, because a crash in between may leave a partial line. All data must have been
    /// synced.
    ///
    /// # Errors
    /// The disk's error.
    pub fn trim(&mut self) -> io::Result<()> {
        debug_assert_eq!(self.unsettled(), 0, "the unwritten bytes would be lost");
        if self.file_len > self.settled {
            self.file.truncate(self.settled)?;
            // The lengths are updated only after the sync, so the next call tries again after a failure.
            self.file.sync()?;
            (self.file_len, self.filler_end) = (self.settled, self.settled);
        }
        Ok(())
    }

    /// Gives up the unwritten bytes: cuts the file to its length after the last complete write. Returns true if that was possible.
    /// Otherwise the file is cut to its durable length. No sync may run.
    ///
    /// # Errors
    /// The disk's error. A part of the unwritten bytes may then be in the file.
    pub fn give_up(&mut self) -> io::Result<bool> {
        let certain = self.cut_at.take().unwrap_or(self.written).min(self.written);
        let keeps = self.whole <= certain;
        let len = self.settled + if keeps { self.whole as u64 } else { 0 };
        self.file.truncate(len)?;
        self.file.sync()?;
        Ok(keeps)
    }

    /// Makes all written bytes durable. Everything must have been written, and no other sync may run.
    ///
    /// # Errors
    /// The disk's error. The bytes must be written again.
    pub fn sync(&mut self) -> io::Result<()> {
        debug_assert!(self.unwritten() == 0 && !self.is_syncing());
        match self.file.sync() {
            Ok(()) => {
                self.filler_end = self.file_len;
                self.settle();
                Ok(())
            }
            Err(error) => self.doubt(0, error),
        }
    }

    /// Begins a sync of all written bytes. The caller has another thread sync the returned file, and passes the result to
    /// [`Appender::end_sync`]. Everything must have been written, and no other sync may run.
    pub fn begin_sync(&mut self) -> F {
        debug_assert!(self.unwritten() == 0 && !self.is_syncing());
        self.syncing = Some(self.written);
        self.tail.seal();
        self.file.clone()
    }

    /// Returns true while a sync runs that [`Appender::begin_sync`] has begun.
    #[must_use]
    pub fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// Notes the result of the running sync.
    ///
    /// # Errors
    /// The sync's error. All bytes that aren't durable must be written again, including those written during the sync.
    pub fn end_sync(&mut self, result: io::Result<()>) -> io::Result<()> {
        let synced = self.syncing.take().unwrap_or(0);
        match result {
            Ok(()) => {
                self.settle_first(synced);
                Ok(())
            }
            Err(error) => self.doubt(0, error),
        }
    }

    /// Regards all written bytes as durable. No sync may run.
    pub fn settle(&mut self) {
        debug_assert!(!self.is_syncing());
        self.settle_first(self.written);
    }

    fn settle_first(&mut self, bytes: usize) {
        self.most[0] = self.most[0].max(self.tail.len());
        self.settled += bytes as u64;
        self.tail.drop_first(bytes);
        self.written -= bytes;
        self.placed -= bytes;
        self.whole = self.whole.saturating_sub(bytes);
        self.cut_at = self.cut_at.map(|cut_at| cut_at.saturating_sub(bytes));
    }

    /// Frees memory that was not needed since the call before the last one. Called every few seconds.
    pub fn give_back(&mut self) {
        let needed = self.most[0].max(self.most[1]).max(self.tail.len());
        // Chunks may be half empty.
        self.tail.give_back(2 * needed.clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX));
        self.most = [0, self.most[0]];
    }

    /// Notes that only the first `certain` bytes of `tail` are certainly in the file.
    fn doubt(&mut self, certain: usize, error: io::Error) -> io::Result<()> {
        self.cut_at = Some(self.cut_at.map_or(certain, |before| before.min(certain)));
        Err(error)
    }
}

/// Returns filler from one offset of a file to another. If `from` is just before a line's end, the filler starts with the padding of a
/// whole line.
fn filler_from(from: u64, to: u64) -> Vec<u8> {
    let pad = if is_before_line_end(from) { FILLER_PAD } else { b"" };
    [pad, &filler(from + pad.len() as u64, to)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::fake::FakeDisk;

    #[test]
    fn memory_is_kept_while_it_is_needed_and_given_back_afterwards() {
        const NEEDED: usize = 16 << 20;
        let mut appender = Appender::new(FakeDisk::new(1).create("a").unwrap(), 0, 0);
        let write = |appender: &mut Appender<_>, bytes: usize| {
            appender.tail().extend(std::iter::repeat_n(b'x', bytes));
            appender.write().unwrap();
            appender.settle();
        };
        write(&mut appender, NEEDED);
        for _ in 0..3 {
            appender.give_back();
            write(&mut appender, NEEDED);
            assert!(appender.memory() >= NEEDED);
        }
        for _ in 0..3 {
            write(&mut appender, 1000);
            appender.give_back();
        }
        assert!(appender.memory() <= 2 * KEPT_BYTES_MIN);
        appender.tail().reserve(4 * KEPT_BYTES_MAX);
        appender.give_back();
        assert!(appender.memory() <= 2 * KEPT_BYTES_MAX);
    }
}
