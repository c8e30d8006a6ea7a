//! The connection to the target of moving slots.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use cluster::view::NodeView;
use engine::slot_moves::{MoveClock, MoveWait, TargetLink};
use engine::state::Engine;
use replication::backlog::Overflow;

use super::Clock;
use super::node_socket::NodeSocket;
use crate::primary::backlog_file::BacklogFile;

/// Bytes read at once.
const READ_BYTES: usize = 4096;

/// See the module's documentation.
pub struct TargetSocket {
    engine: &'static Engine,
    link: Option<NodeSocket>,
}

impl TargetSocket {
    pub fn new(engine: &'static Engine) -> TargetSocket {
        TargetSocket { engine, link: None }
    }

    /// Waits for the condition of the export.
    pub fn wait(&self, wait: MoveWait) {
        let (writes, time) = match wait {
            MoveWait::Nothing | MoveWait::Thread | MoveWait::Over => return,
            MoveWait::Bytes(time) => (false, time),
            MoveWait::Room(time) => (true, time),
            MoveWait::Time(time) => return std::thread::sleep(time),
        };
        match &self.link {
            None => std::thread::sleep(time),
            Some(link) => _ = link.wait(link.awaited(writes), time),
        }
    }

    fn link(&mut self) -> io::Result<&mut NodeSocket> {
        self.link.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl MoveClock for TargetSocket {
    fn now(&self) -> Duration {
        Clock.now()
    }

    fn unix_us(&self) -> u64 {
        Clock.unix_us()
    }
}

impl TargetLink for TargetSocket {
    fn open(&mut self, node: &NodeView) -> Result<(), String> {
        self.link = Some(NodeSocket::open(node, &self.engine.settings)?);
        Ok(())
    }

    fn connect(&mut self) -> io::Result<bool> {
        self.link()?.connect()
    }

    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        self.link()?.read(&mut [0; READ_BYTES], into)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.link()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.link()?.flush()
    }

    fn bytes_on_way(&self) -> u64 {
        self.link.as_ref().and_then(|link| tcp_info::bytes_on_way(link.as_fd())).unwrap_or_default()
    }

    fn close(&mut self) {
        self.link = None;
    }

    fn make_overflow(&self, purpose: &str) -> io::Result<Box<dyn Overflow>> {
        BacklogFile::make(&self.engine.settings.in_dir(""), purpose)
    }
}
