//! One connection: its socket, what has arrived and not been run, and what waits to be sent.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use engine::session::Session;
use resp::reply::Output;
use rustix::io::Errno;

/// Slices given to one vectored write; the rest goes with the next.
const SLICES_AT_ONCE: usize = 64;
/// Bytes of an output buffer that a connection keeps when it has sent everything.
const OUTPUT_KEPT_BYTES: usize = 16 * 1024;

/// A client's socket.
pub enum Socket {
    /// Through TCP.
    Tcp(TcpStream),
    /// Through a Unix socket.
    Unix(UnixStream),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Why a connection's requests are not being run at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// They are.
    None,
    /// It waits in a blocking command.
    Parked,
    /// CLIENT PAUSE.
    Paused,
    /// It has used up its turn, and is in the queue for the next.
    Yielded,
    /// It is closed once everything is sent.
    Closing,
}

/// See the module's documentation.
pub struct Connection {
    /// The socket.
    pub socket: Socket,
    /// What the engine knows of it.
    pub session: Session,
    /// Bytes that have arrived and not been run: nothing, most of the time.
    pub input: Vec<u8>,
    /// Replies that wait to be sent.
    pub output: Output,
    /// Why nothing is run.
    pub hold: Hold,
    /// Whether the poller watches for room to write.
    pub wants_write: bool,
    /// Whether it is in the list of those to be written to at the end of the turn.
    pub in_write_list: bool,
    /// Since when its output has been over the soft limit, in milliseconds of Unix time.
    pub over_soft_limit_since_ms: Option<u64>,
}

/// How a write went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// Everything is sent.
    All,
    /// The socket takes no more at the moment.
    Some,
    /// The connection is broken.
    Broken,
}

impl Connection {
    /// A connection that has just been accepted.
    #[must_use]
    pub fn new(socket: Socket, session: Session) -> Connection {
        Connection {
            socket,
            session,
            input: Vec::new(),
            output: Output::default(),
            hold: Hold::None,
            wants_write: false,
            in_write_list: false,
            over_soft_limit_since_ms: None,
        }
    }

    /// Sends what waits, with as few system calls as the socket allows. Returns the bytes and calls it took.
    pub fn send(&mut self) -> (Sent, usize, usize) {
        let (mut bytes, mut calls) = (0, 0);
        while !self.output.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES_AT_ONCE];
            let mut count = 0;
            for (slot, slice) in slices.iter_mut().zip(self.output.slices()) {
                *slot = IoSlice::new(slice);
                count += 1;
            }
            calls += 1;
            match write(&self.socket, &slices[..count]) {
                Ok(0) => return (Sent::Broken, bytes, calls),
                Ok(sent) => {
                    bytes += sent;
                    self.output.advance(sent);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return (Sent::Some, bytes, calls),
                Err(_) => return (Sent::Broken, bytes, calls),
            }
        }
        self.output.shrink(OUTPUT_KEPT_BYTES);
        (Sent::All, bytes, calls)
    }
}

fn write(socket: &Socket, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    match slices {
        // The one-slice form is a little cheaper in the kernel.
        [slice] => rustix::net::send(socket, slice, rustix::net::SendFlags::NOSIGNAL),
        _ => rustix::io::writev(socket, slices),
    }
}

/// Reads into a slice. 0 is the end; an error that only means "later" is none.
pub fn read(socket: &Socket, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(socket, &mut *into, rustix::net::RecvFlags::empty()) {
            Ok((count, _)) => return Ok(Some(count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads to the end of a vector, within its spare capacity.
pub fn read_more(socket: &Socket, into: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        let spare = rustix::buffer::spare_capacity(into);
        match rustix::net::recv(socket, spare, rustix::net::RecvFlags::empty()) {
            Ok((count, _)) => return Ok(Some(count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}
