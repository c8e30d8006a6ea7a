//! Buffers for received bytes before parsing, and for bytes to send.

use std::io::{self, Read};

/// Room for one read of the socket. Larger reads save little, because copying out of the kernel dominates.
const READ_BYTES: usize = 64 << 10;

/// Maximum size of an empty buffer. A larger one, grown by a large reply, is freed.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Received bytes. Invariant: `start <= end <= bytes.len()`.
#[derive(Debug)]
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    /// End of the consumed bytes.
    start: usize,
    /// End of the received bytes.
    end: usize,
}

impl ReadBuffer {
    pub(crate) fn new() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0 }
    }

    /// Returns the received bytes that aren't consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Consumes the first `n` unread bytes.
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

    /// Reads once. Returns 0 at the end of the stream.
    pub(crate) fn read_from(&mut self, stream: &mut (impl Read + ?Sized)) -> io::Result<usize> {
        self.make_room();
        let n = stream.read(&mut self.bytes[self.end..])?;
        self.end += n;
        Ok(n)
    }

    /// Ensures room for at least half a read: moves the unread bytes to the front, or doubles the buffer.
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

/// Bytes to send. Invariant: `sent <= bytes.len()`.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    pub(crate) bytes: Vec<u8>,
    sent: usize,
    /// Total number of bytes written to the stream.
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

    /// Removes the sent bytes before an append, once they are at least half of the buffer.
    pub(crate) fn compact(&mut self) {
        if self.sent > 0 && self.sent >= self.bytes.len() - self.sent {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Appends `more` and empties it.
    pub(crate) fn take_from(&mut self, more: &mut Vec<u8>) {
        match self.bytes.is_empty() {
            true => std::mem::swap(&mut self.bytes, more),
            false => self.bytes.append(more),
        }
    }

    /// Returns the total number of bytes written to the stream.
    pub(crate) fn total_sent(&self) -> u64 {
        self.total_sent
    }

    /// Returns the value that [`Self::total_sent`] will have at the end of the buffer.
    pub(crate) fn total_end(&self) -> u64 {
        self.total_sent + self.unsent().len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order() {
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
