//! What has arrived and wasn't understood yet, and what is to be sent.

use std::io::{self, Read};

/// Room for one read of the socket. Larger reads save little: copying out of the kernel dominates by then.
const READ_BYTES: usize = 64 << 10;

/// A buffer that a large reply has blown up beyond this is given back when it is empty.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Bytes that have arrived. Invariant: `start <= end <= bytes.len()`.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    /// What stands before was consumed.
    start: usize,
    /// What stands behind is room.
    end: usize,
}

impl ReadBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0 }
    }

    /// What has arrived and wasn't consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Forgets the first `n` unread bytes.
    pub(crate) fn consume(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    /// Reads once; 0 at the stream's end.
    pub(crate) fn read_from(&mut self, stream: &mut (impl Read + ?Sized)) -> io::Result<usize> {
        self.make_room();
        let n = stream.read(&mut self.bytes[self.end..])?;
        self.end += n;
        Ok(n)
    }

    /// At least half a read's room behind the end, by moving what is unread to the front or by doubling.
    fn make_room(&mut self) {
        if self.bytes.len() - self.end >= READ_BYTES / 2 {
            return;
        }
        if self.start > 0 && self.start >= self.unread().len() {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.bytes.len() - self.end < READ_BYTES / 2 {
            self.bytes.resize((self.bytes.len() * 2).max(READ_BYTES), 0);
        }
    }
}

/// Bytes to be sent. Invariant: `sent <= bytes.len()`.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    pub(crate) bytes: Vec<u8>,
    sent: usize,
    /// Bytes that were ever given to the stream.
    total_sent: u64,
}

impl WriteBuffer {
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Notes that the stream has taken the first `n` unsent bytes.
    pub(crate) fn mark_sent(&mut self, n: usize) {
        self.sent += n;
        self.total_sent += n as u64;
        debug_assert!(self.sent <= self.bytes.len());
        if self.sent == self.bytes.len() {
            self.sent = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES_MAX {
                self.bytes = Vec::new();
            }
        }
    }

    /// Makes room in front before more is appended, as soon as what was sent is as much as what wasn't.
    pub(crate) fn compact(&mut self) {
        if self.sent > 0 && self.sent >= self.bytes.len() - self.sent {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Appends all of `more`, which is left empty.
    pub(crate) fn take_from(&mut self, more: &mut Vec<u8>) {
        match self.bytes.is_empty() {
            true => std::mem::swap(&mut self.bytes, more),
            false => self.bytes.append(more),
        }
    }

    /// Bytes that were ever given to the stream.
    pub(crate) fn total_sent(&self) -> u64 {
        self.total_sent
    }

    /// Where in the count of [`Self::total_sent`] the end of the buffer is.
    pub(crate) fn total_end(&self) -> u64 {
        self.total_sent + self.unsent().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_comes_out_in_order() {
        let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut source = data.as_slice();
        let (mut buffer, mut out) = (ReadBuffer::new(), Vec::new());
        let mut step = 1;
        while buffer.read_from(&mut source).unwrap() > 0 {
            let n = step.min(buffer.unread().len());
            out.extend_from_slice(&buffer.unread()[..n]);
            buffer.consume(n);
            step = step * 3 % 70_001 + 1;
        }
        out.extend_from_slice(buffer.unread());
        assert!(out == data);
    }

    #[test]
    fn a_large_buffer_is_given_back() {
        let data = vec![7; 5 * KEPT_BYTES_MAX];
        let mut source = data.as_slice();
        let mut buffer = ReadBuffer::new();
        while buffer.read_from(&mut source).unwrap() > 0 {}
        assert_eq!(buffer.unread().len(), data.len());
        buffer.consume(data.len());
        assert_eq!(buffer.bytes.capacity(), 0);
        let mut writes = WriteBuffer { bytes: data.clone(), ..WriteBuffer::default() };
        writes.mark_sent(data.len());
        assert_eq!(writes.bytes.capacity(), 0);
        assert_eq!(writes.total_sent(), data.len() as u64);
    }
}
