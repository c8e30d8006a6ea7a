//! A plain socket to a server: raw bytes out, whole replies in. No pipelining logic, no retry, nothing hidden.

use crate::bytes::{Command, encode, encode_all};
use crate::reply::Reply;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// How long a reply may take before the test fails. Long, because the machine may be busy; never waited for otherwise.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to a server under test.
pub struct Conn {
    stream: TcpStream,
    received: Vec<u8>,
    consumed: usize,
}

impl Conn {
    /// Connects to `port` on the loopback address, with Nagle's delay off so that each write is its own packet.
    pub fn open(port: u16) -> io::Result<Conn> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Conn { stream, received: Vec::new(), consumed: 0 })
    }

    /// How long a read may wait from now on, instead of [`PATIENCE`].
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))
    }

    /// Writes `bytes` as they are.
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

    /// Sends the command that `words`, separated by single spaces, are, and reads its reply.
    pub fn cmd(&mut self, words: &str) -> io::Result<Reply> {
        self.call(&crate::bytes::command(words))
    }

    /// Sends all commands at once and reads one reply for each.
    pub fn pipeline(&mut self, commands: &[Command]) -> io::Result<Vec<Reply>> {
        self.send(&encode_all(commands))?;
        self.read_n(commands.len())
    }

    /// Reads until the server closes the connection; what came, as bytes. A reset counts as closed: a server that
    /// closes with unread input makes the kernel send one.
    pub fn read_to_close(&mut self) -> io::Result<Vec<u8>> {
        loop {
            match self.fill() {
                Ok(()) => {}
                Err(e) if closed(&e) => return Ok(self.received.split_off(self.consumed)),
                Err(e) => return Err(e),
            }
        }
    }

    /// What has arrived within `patience`, as bytes, and whether the server closed the connection.
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

    /// Says that nothing more will be sent; replies can still be read.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// A second handle of the same socket, to write from another thread.
    pub fn writer(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 1 << 16];
        let read = loop {
            match self.stream.read(&mut chunk) {
                // A signal that stopped this process, and has it go on.
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

    /// Keeps the buffer from growing over a long pipeline, without moving its rest after every reply.
    fn drop_consumed(&mut self) {
        if self.consumed == self.received.len() || self.consumed > 1 << 20 {
            self.received.drain(..self.consumed);
            self.consumed = 0;
        }
    }
}

/// True when the error says that the other side has gone.
pub fn closed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// True when the error says that nothing came in time.
pub fn timed_out(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
