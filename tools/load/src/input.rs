//! A bounded buffer of an input's unread bytes, with the number of the line where they begin.

use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::limits::{BUFFER_BYTES_KEPT, READ_BYTES};

/// A source of bytes with a buffer.
///
/// `buffer[start..end]` holds the unread bytes. It grows only while a reader takes nothing.
pub struct Input {
    source: Box<dyn Read + Send>,
    /// The descriptor behind the source, if it is known.
    descriptor: Option<OwnedFd>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
    /// True before the first read.
    at_start: bool,
    line: u64,
}

impl Input {
    /// Creates an input at the start of `source`.
    pub fn new(source: Box<dyn Read + Send>) -> Input {
        Input { source, descriptor: None, buffer: Vec::new(), start: 0, end: 0, ended: false, at_start: true, line: 1 }
    }

    /// Sets the descriptor behind the source.
    pub fn with_descriptor(self, descriptor: OwnedFd) -> Input {
        Input { descriptor: Some(descriptor), ..self }
    }

    /// Returns true if a read is known not to block.
    pub fn has_more(&self) -> bool {
        const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = |descriptor| poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&AT_ONCE));
        self.descriptor.as_ref().is_some_and(|descriptor| ready(descriptor).is_ok_and(|count| count > 0))
    }

    /// Returns the bytes that were read and not taken.
    #[inline]
    pub fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns true if no bytes follow the unread ones.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the number of the line where the unread bytes begin, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Takes `bytes` bytes that contain `lines` line ends.
    #[inline]
    pub fn take(&mut self, bytes: usize, lines: u64) {
        self.start += bytes;
        self.line += lines;
    }

    /// Reads once. The unread bytes stay, so a caller that accepts no more bytes must not call this. A byte order mark
    /// at the start of the input is skipped.
    ///
    /// # Errors
    /// Returns errors of the source. After an error the input counts as ended.
    pub fn read_more(&mut self) -> io::Result<()> {
        self.read_once()?;
        if std::mem::take(&mut self.at_start) {
            self.skip_byte_order_mark()?;
        }
        Ok(())
    }

    fn skip_byte_order_mark(&mut self) -> io::Result<()> {
        const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
        while !self.ended && self.unread().len() < BYTE_ORDER_MARK.len() && BYTE_ORDER_MARK.starts_with(self.unread()) {
            self.read_once()?;
        }
        if self.unread().starts_with(BYTE_ORDER_MARK) {
            self.take(BYTE_ORDER_MARK.len(), 0);
        }
        Ok(())
    }

    fn read_once(&mut self) -> io::Result<()> {
        self.make_room();
        let read = loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.ended = !matches!(read, Ok(1..));
        self.end += read?;
        Ok(())
    }

    fn make_room(&mut self) {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == 0 && self.buffer.len() > BUFFER_BYTES_KEPT {
            self.buffer = Vec::new();
        }
        if self.buffer.len() - self.end < READ_BYTES {
            // The buffer doubles, so that unread bytes are copied and searched a bounded number of times.
            self.buffer.resize((2 * self.end).max(READ_BYTES) + READ_BYTES, 0);
        }
    }
}
