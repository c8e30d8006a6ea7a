//! The connection of the source of moving slots.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use engine::slot_moves::{MoveClock, MoveWait, SourceLink};
use resp::reply::Output;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Clock;
use crate::connection::{self, Socket};

/// Bytes read at once.
const PART_BYTES: usize = 256 << 10;

/// See the module's documentation.
pub struct SourceSocket {
    socket: Option<Socket>,
    part: Vec<u8>,
}

impl SourceSocket {
    pub fn new(socket: Socket) -> SourceSocket {
        SourceSocket { socket: Some(socket), part: vec![0; PART_BYTES] }
    }

    /// Waits for the condition of the import.
    pub fn wait(&self, wait: MoveWait) {
        let (flags, time) = match wait {
            MoveWait::Nothing | MoveWait::Thread | MoveWait::Over => return,
            MoveWait::Bytes(time) => (PollFlags::IN, time),
            MoveWait::Room(time) => (PollFlags::OUT, time),
            MoveWait::Time(time) => return std::thread::sleep(time),
        };
        let Some(socket) = &self.socket else { return std::thread::sleep(time) };
        // An interrupted wait is repeated by the caller.
        _ = poll(&mut [PollFd::new(&socket.as_fd(), flags)], Timespec::try_from(time).ok().as_ref());
    }
}

impl MoveClock for SourceSocket {
    fn now(&self) -> Duration {
        Clock.now()
    }

    fn unix_us(&self) -> u64 {
        Clock.unix_us()
    }
}

impl SourceLink for SourceSocket {
    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        let Some(socket) = &mut self.socket else { return Err(io::ErrorKind::NotConnected.into()) };
        match connection::read(socket, &mut self.part)? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(len) => {
                into.extend_from_slice(self.part.get(..len).unwrap_or_default());
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(socket) = &mut self.socket else { return Err(io::ErrorKind::NotConnected.into()) };
        loop {
            match connection::write(socket, &Output::from(bytes.to_vec())) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                written => return Ok(written?),
            }
        }
    }

    fn close(&mut self) {
        self.socket = None;
    }
}
