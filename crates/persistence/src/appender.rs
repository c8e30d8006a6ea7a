//! A file's end: what is to be written there, and is kept until it is durable.
//!
//! After a sync that failed, nothing is known of what the file has beyond the last sync that succeeded: the kernel may have
//! thrown pages away and take the next sync for a success. So bytes are kept until they are synced, and after a sync that failed
//! the file is cut to what is known to be durable and written again from there. A write that failed may have left part of
//! its bytes behind those of the last one: only these are cut.
//!
//! ```text
//! file:   | durable                  | written           | to be written, over filler if there is some
//! tail:                              0        syncing    written       tail.len()
//!                                    settled: bytes of the file up to here
//! ```
//!
//! A sync of a file that has grown writes its length, too, in another place of the disk, and waits for that: with small writes it takes
//! about half of the time, and more where the file system keeps a journal. So the file is made longer ahead where each write is synced,
//! by filler ([`crate::block`]), which what comes next is written over. Readers of the file pass over it.

use std::io;

use crate::block::{FILLER_PAD, filler, filler_end, is_before_line_end};
use crate::disk::DiskFile;
use crate::saving::write_all;

/// See the module's documentation.
pub struct Appender<F> {
    file: F,
    /// Bytes of the file that are durable, or taken to be.
    settled: u64,
    /// What comes after them.
    tail: Vec<u8>,
    /// Bytes of `tail` that have been written since.
    written: usize,
    /// Bytes of `tail` that are durable once the sync succeeds that another thread runs, while one runs.
    syncing: Option<usize>,
    /// Bytes of `tail` that the file has for sure, if it may have something else behind them.
    cut_at: Option<usize>,
    /// Whether the file is made longer ahead, and how long it is.
    fills: bool,
    file_len: u64,
    /// The most bytes that `tail` has had since the last call of [`Appender::give_back`], and between that one and the one before.
    most: [usize; 2],
}

/// Bytes of memory for what is to be written that are kept for what comes next, at most and in any case. Memory that is given
/// back costs page faults when it is needed again: a third of the log's CPU time with a sync every second.
const KEPT_BYTES_MAX: usize = 64 << 20;
const KEPT_BYTES_MIN: usize = 1 << 20;
/// Filler is written in the place of so many writes that are each as long as the last one: few syncs take longer then. It is worth its
/// bytes while they are few beside what a sync costs, and no more than this many at once.
const FILLED_WRITES: usize = 64;
const FILLED_WRITE_MAX: usize = 64 << 10;
const FILLER_BYTES_MIN: usize = 4 << 10;
const FILLER_BYTES_MAX: usize = 1 << 20;

impl<F: DiskFile> Appender<F> {
    /// Goes on behind the first `len` bytes of a file, which are durable.
    pub fn new(file: F, len: u64) -> Appender<F> {
        Appender {
            file,
            settled: len,
            tail: Vec::new(),
            written: 0,
            syncing: None,
            cut_at: None,
            fills: false,
            file_len: len,
            most: [0; 2],
        }
    }

    /// Has the file be made longer ahead from now on, or no longer.
    pub fn set_fills(&mut self, fills: bool) {
        self.fills = fills;
    }

    /// Where what is to be written is added, at its end.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Bytes of the file that are durable.
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

    /// How long the file is with all that is to be written.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.settled + self.tail.len() as u64
    }

    /// Whether it is empty, and nothing is to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes what has not been written.
    ///
    /// # Errors
    /// The disk's. The next call tries again.
    pub fn write(&mut self) -> io::Result<()> {
        if let Some(cut_at) = self.cut_at {
            self.file.truncate(self.settled + cut_at as u64)?;
            self.file_len = self.settled + cut_at as u64;
            self.written = cut_at;
            self.cut_at = None;
        }
        let has_filler = self.fills || self.file_len > self.len();
        if has_filler && self.unwritten() > 0 && is_before_line_end(self.len()) {
            self.tail.extend_from_slice(FILLER_PAD);
        }
        while self.written < self.tail.len() {
            match self.file.write_at(self.end(), &self.tail[self.written..]) {
                Ok(0) => return self.doubt(self.written, io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.doubt(self.written, error),
            }
        }
        if self.file_len < self.end() {
            self.file_len = self.end();
            self.fill();
        }
        Ok(())
    }

    /// Where what has been written ends in the file.
    fn end(&self) -> u64 {
        self.settled + self.written as u64
    }

    /// Makes the file longer than what has been written, if that is of use.
    fn fill(&mut self) {
        if !self.fills || self.written > FILLED_WRITE_MAX {
            return;
        }
        let bytes = (self.written * FILLED_WRITES).clamp(FILLER_BYTES_MIN, FILLER_BYTES_MAX) as u64;
        let (from, to) = (self.end(), filler_end(self.end() + bytes));
        // Without it all goes on as before: a disk that is full or fails is told of by what has to be written.
        self.file_len = match write_all(&mut self.file, from, &filler(from, to)) {
            Ok(()) => to,
            // Part of a line may be there, behind which nothing could be written by another server.
            Err(_) => self.file.truncate(from).map_or(to, |()| from),
        };
    }

    /// Cuts filler off, when nothing follows, and makes that durable: a crash may leave part of a line. Everything must have been synced.
    ///
    /// # Errors
    /// The disk's.
    pub fn trim(&mut self) -> io::Result<()> {
        debug_assert_eq!(self.unsettled(), 0, "what is to be written would be lost");
        if self.file_len > self.settled {
            self.file.truncate(self.settled)?;
            // Before the sync: until it has succeeded, it is tried again.
            self.file.sync()?;
            self.file_len = self.settled;
        }
        Ok(())
    }

    /// Makes all that has been written durable. Everything must have been written, and no other sync may run.
    ///
    /// # Errors
    /// The disk's. Then it is to be written again.
    pub fn sync(&mut self) -> io::Result<()> {
        debug_assert!(self.unwritten() == 0 && !self.is_syncing());
        match self.file.sync() {
            Ok(()) => {
                self.settle();
                Ok(())
            }
            Err(error) => self.doubt(0, error),
        }
    }

    /// Begins a sync of all that has been written. The caller has another thread sync the file that this returns, and passes
    /// the result to [`Appender::end_sync`]. Everything must have been written, and no other sync may run.
    pub fn begin_sync(&mut self) -> F {
        debug_assert!(self.unwritten() == 0 && !self.is_syncing());
        self.syncing = Some(self.written);
        self.file.clone()
    }

    /// Whether a sync runs that [`Appender::begin_sync`] has begun.
    #[must_use]
    pub fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// Notes the result of the sync that was begun.
    ///
    /// # Errors
    /// The sync's. Then all that isn't durable is to be written again, also what was written while the sync ran.
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

    /// Takes what has been written for durable. No sync may run.
    pub fn settle(&mut self) {
        debug_assert!(!self.is_syncing());
        self.settle_first(self.written);
    }

    fn settle_first(&mut self, bytes: usize) {
        self.most[0] = self.most[0].max(self.tail.len());
        self.settled += bytes as u64;
        self.tail.drain(..bytes);
        self.written -= bytes;
        self.cut_at = self.cut_at.map(|cut_at| cut_at.saturating_sub(bytes));
    }

    /// Gives memory back that was not needed since the call before the last one. Called every few seconds.
    pub fn give_back(&mut self) {
        let needed = self.most[0].max(self.most[1]).max(self.tail.len());
        let kept = needed.clamp(KEPT_BYTES_MIN, KEPT_BYTES_MAX);
        // Growing doubles it, so that up to twice as much is in use.
        if self.tail.capacity() / 2 > kept {
            self.tail.shrink_to(kept);
        }
        self.most = [0, self.most[0]];
    }

    /// Notes that of `tail` the file has only so many bytes for sure.
    fn doubt(&mut self, certain: usize, error: io::Error) -> io::Result<()> {
        self.cut_at = Some(self.cut_at.map_or(certain, |before| before.min(certain)));
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::fake::FakeDisk;

    #[test]
    fn memory_is_kept_while_it_is_needed_and_given_back_afterwards() {
        const NEEDED: usize = 16 << 20;
        let mut appender = Appender::new(FakeDisk::new(1).create("a").unwrap(), 0);
        let write = |appender: &mut Appender<_>, bytes: usize| {
            appender.tail().extend(std::iter::repeat_n(b'x', bytes));
            appender.write().unwrap();
            appender.settle();
        };
        write(&mut appender, NEEDED);
        for _ in 0..3 {
            appender.give_back();
            write(&mut appender, NEEDED);
            assert!(appender.tail().capacity() >= NEEDED);
        }
        for _ in 0..3 {
            write(&mut appender, 1000);
            appender.give_back();
        }
        assert!(appender.tail().capacity() <= 2 * KEPT_BYTES_MIN);
        appender.tail().reserve(4 * KEPT_BYTES_MAX);
        appender.give_back();
        assert!(appender.tail().capacity() <= 2 * KEPT_BYTES_MAX);
    }
}
