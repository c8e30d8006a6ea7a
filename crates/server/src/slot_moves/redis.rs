//! The connections to a Redis node, the source of moving slots.

use std::io;
use std::time::Duration;

use cluster::view::NodeView;
use engine::slot_moves::{Channel, MoveClock, MoveWait, RedisLink};
use engine::state::Engine;
use replication::backlog::Overflow;
use rustix::event::{PollFd, Timespec, poll};

use super::Clock;
use super::node_socket::NodeSocket;
use crate::primary::backlog_file::BacklogFile;

/// Bytes read at once.
const PART_BYTES: usize = 256 << 10;

/// See the module's documentation.
pub struct RedisSockets {
    engine: &'static Engine,
    sockets: [Option<NodeSocket>; 2],
    part: Vec<u8>,
}

impl RedisSockets {
    pub fn new(engine: &'static Engine) -> RedisSockets {
        RedisSockets { engine, sockets: [None, None], part: vec![0; PART_BYTES] }
    }

    /// Waits for the condition of the import.
    pub fn wait(&self, wait: MoveWait) {
        let (writes, time) = match wait {
            MoveWait::Nothing | MoveWait::Thread | MoveWait::Over => return,
            MoveWait::Bytes(time) => (false, time),
            MoveWait::Room(time) => (true, time),
            MoveWait::Time(time) => return std::thread::sleep(time),
        };
        let open = self.sockets.iter().flatten();
        let mut awaited: Vec<_> = open.map(|socket| PollFd::new(socket, socket.awaited(writes))).collect();
        // An interrupted wait is repeated by the caller.
        _ = poll(&mut awaited, Timespec::try_from(time).ok().as_ref());
    }

    fn socket(&mut self, channel: Channel) -> io::Result<&mut NodeSocket> {
        self.sockets[channel as usize].as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl MoveClock for RedisSockets {
    fn now(&self) -> Duration {
        Clock.now()
    }

    fn unix_us(&self) -> u64 {
        Clock.unix_us()
    }
}

impl RedisLink for RedisSockets {
    fn open(&mut self, channel: Channel, node: &NodeView) -> Result<(), String> {
        self.sockets[channel as usize] = Some(NodeSocket::open(node, &self.engine.settings)?);
        Ok(())
    }

    fn connect(&mut self, channel: Channel) -> io::Result<bool> {
        self.socket(channel)?.connect()
    }

    fn read(&mut self, channel: Channel, into: &mut Vec<u8>) -> io::Result<bool> {
        let socket = self.sockets[channel as usize].as_mut().ok_or(io::ErrorKind::NotConnected)?;
        socket.flush()?;
        socket.read(&mut self.part, into)
    }

    fn write(&mut self, channel: Channel, bytes: &[u8]) -> io::Result<usize> {
        self.socket(channel)?.write(bytes)
    }

    fn close(&mut self, channel: Channel) {
        self.sockets[channel as usize] = None;
    }

    fn make_overflow(&self) -> io::Result<Box<dyn Overflow>> {
        BacklogFile::make(&self.engine.settings.in_dir(""), "slot-import")
    }
}
