//! A file's end: what is to be written there, and is kept until it is durable.
//!
//! After an error of a write or a sync, nothing is known of what the file has beyond the last sync that succeeded: the
//! kernel may have thrown pages away and take the next sync for a success. So bytes are kept until they are synced, and
//! after an error the file is cut to what is known to be durable and written again from there.

use std::io;

use crate::disk::DiskFile;

/// See the module's documentation.
pub struct Appender<F> {
    file: F,
    /// Bytes of the file that are durable, or taken to be.
    settled: u64,
    /// What comes after them.
    tail: Vec<u8>,
    /// Bytes of `tail` that have been written since.
    written: usize,
    /// Whether the file may have something else behind what is settled than the written part of `tail`.
    is_doubtful: bool,
}

/// Bytes of memory for what is to be written that are kept when it has been.
const KEPT_BYTES_MAX: usize = 4 << 20;

impl<F: DiskFile> Appender<F> {
    /// Goes on behind the first `len` bytes of a file, which are durable.
    pub fn new(file: F, len: u64) -> Appender<F> {
        Appender { file, settled: len, tail: Vec::new(), written: 0, is_doubtful: false }
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
        if self.is_doubtful {
            self.file.truncate(self.settled)?;
            self.written = 0;
            self.is_doubtful = false;
        }
        while self.written < self.tail.len() {
            match self.file.write(&self.tail[self.written..]) {
                Ok(0) => return self.doubt(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.doubt(error),
            }
        }
        Ok(())
    }

    /// Makes all that has been written durable. Everything must have been written.
    ///
    /// # Errors
    /// The disk's. Then it is to be written again.
    pub fn sync(&mut self) -> io::Result<()> {
        debug_assert_eq!(self.unwritten(), 0);
        match self.file.sync() {
            Ok(()) => {
                self.settle();
                Ok(())
            }
            Err(error) => self.doubt(error),
        }
    }

    /// Takes what has been written for durable.
    pub fn settle(&mut self) {
        self.settled += self.written as u64;
        self.tail.drain(..self.written);
        self.tail.shrink_to(KEPT_BYTES_MAX);
        self.written = 0;
    }

    fn doubt(&mut self, error: io::Error) -> io::Result<()> {
        self.is_doubtful = true;
        Err(error)
    }
}
