//! A plain socket to a server: sends raw bytes and reads whole replies, without pipelining logic or retries.

use crate::bytes::{Command, encode, encode_all};
use crate::reply::Reply;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Longest wait for a reply before the test fails. The machine may be busy, and successful tests never wait for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to a server under test.
pub struct Conn {
    stream: TcpStream,
    received: Vec<u8>,
    consumed: usize,
}

impl Conn {
    /// Connects to `port` on the loopback address, without Nagle's delay, so that each write is its own packet.
    pub fn open(port: u16) -> io::Result<Conn> {
        Conn::of(TcpStream::connect(("127.0.0.1", port))?)
    }

    /// Takes a stream over, for example one that a test has accepted.
    pub fn of(stream: TcpStream) -> io::Result<Conn> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Conn { stream, received: Vec::new(), consumed: 0 })
    }

    /// Sets the longest wait of a read, instead of [`PATIENCE`].
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// Writes `bytes` unchanged.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads one reply (a push counts as one).
    pub fn read(&mut self) -> io::Result<Reply> {
        loop {
            let pending = &self.received[self.consumed..];
            match Reply::parse(pending).map_err(|text| Error::new(ErrorKind::InvalidData, text))? {
                Some((reply, len)) => {
                    self.consumed += len;
                    self.drop_consumed();
                    return Ok(reply);
                }
                None => self.fill()?,
            }
        }
    }

    /// Reads `n` replies.
    pub fn read_n(&mut self, n: usize) -> io::Result<Vec<Reply>> {
        (0..n).map(|_| self.read()).collect()
    }

    /// Sends one command and reads its reply.
    pub fn call(&mut self, command: &[Vec<u8>]) -> io::Result<Reply> {
        self.send(&encode(command))?;
        self.read()
    }

    /// Sends a command given as words with single spaces between them, and reads its reply.
    pub fn cmd(&mut self, words: &str) -> io::Result<Reply> {
        self.call(&crate::bytes::command(words))
    }

    /// Sends all commands at once and reads one reply for each.
    pub fn pipeline(&mut self, commands: &[Command]) -> io::Result<Vec<Reply>> {
        self.send(&encode_all(commands))?;
        self.read_n(commands.len())
    }

    /// Reads until the server closes the connection, and returns the bytes. A reset counts as closed: the kernel sends
    /// one if the server closes with unread input.
    pub fn read_to_close(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.fill() {
                Ok(()) => {}
                Err(e) if closed(&e) => return Ok(self.received.split_off(self.consumed)),
                Err(e) => return Err(e),
            }
        }
    }

    /// Returns the bytes that arrive within `patience`, and whether the server closed the connection.
    pub fn read_for(&mut self, patience: Duration) -> io::Result<(Vec<u8>, bool)> {
        self.set_patience(patience)?;
        let end = self.read_to_close();
        self.set_patience(PATIENCE)?;
        match end {
            Ok(bytes) => Ok((bytes, true)),
            Err(e) if timed_out(&e) => Ok((self.received.split_off(self.consumed), false)),
            Err(e) => Err(e),
        }
    }

    /// Shuts down the sending side; replies can still be read.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Returns a second handle of the socket, for writing from another thread.
    pub fn writer(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 1 << 16];
        let read = loop {
            match self.stream.read(&mut chunk) {
                // A signal interrupted the read.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        match read {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            n => {
                self.received.extend_from_slice(&chunk[..n]);
                Ok(())
            }
        }
    }

    /// Limits the buffer's size in a long pipeline, without moving the rest after every reply.
    fn drop_consumed(&mut self) {
        if self.consumed == self.received.len() || self.consumed > 1 << 20 {
            self.received.drain(..self.consumed);
            self.consumed = 0;
        }
    }
}

/// True if the error means that the other side has closed the connection.
pub fn closed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// True if the error is a timeout.
pub fn timed_out(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
