//! The connection to the target of moving slots.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use cluster::view::NodeView;
use engine::slot_moves::{MoveClock, MoveWait, TargetLink};
use engine::state::Engine;
use replication::backlog::Overflow;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Clock;
use crate::bus::socket::BusSocket;
use crate::primary::backlog_file::BacklogFile;

/// Bytes read at once.
const READ_BYTES: usize = 4096;

/// A connection.
struct Link {
    socket: BusSocket,
    /// True once the socket has connected or failed.
    has_connected: bool,
}

impl Link {
    /// Waits until the connection has one of these events. Returns true if it has.
    fn wait(&self, flags: PollFlags, time: Duration) -> bool {
        let time = Timespec::try_from(time).ok();
        // An interrupted wait is repeated by the caller.
        poll(&mut [PollFd::new(&self.socket.as_fd(), flags)], time.as_ref()).is_ok_and(|ready| ready > 0)
    }
}

/// See the module's documentation.
pub struct TargetSocket {
    engine: &'static Engine,
    link: Option<Link>,
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
            Some(link) if !link.has_connected => _ = link.wait(PollFlags::OUT, time),
            Some(link) if writes || link.socket.has_records() => _ = link.wait(PollFlags::IN | PollFlags::OUT, time),
            Some(link) => _ = link.wait(PollFlags::IN, time),
        }
    }

    fn link(&mut self) -> io::Result<&mut Link> {
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
        let settings = &self.engine.settings;
        let is_encrypted = settings.tls_replication.get();
        let (ip, port) = (&node.endpoints.ip, node.endpoints.ports.of(is_encrypted));
        let tcp = BusSocket::connect(ip, port, &settings.bind_source_addr.get()).map_err(|error| error.to_string())?;
        let socket = match is_encrypted {
            true => BusSocket::encrypt_outbound(tcp, ip, settings)?,
            false => BusSocket::Plain(tcp),
        };
        self.link = Some(Link { socket, has_connected: false });
        Ok(())
    }

    fn connect(&mut self) -> io::Result<bool> {
        let link = self.link()?;
        if !link.has_connected && !link.wait(PollFlags::OUT, Duration::ZERO) {
            return Ok(false);
        }
        link.has_connected = true;
        link.socket.check_connected()?;
        link.socket.shake_hands()
    }

    fn read(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        let mut part = [0; READ_BYTES];
        match self.link()?.socket.read(&mut part)? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(len) => {
                into.extend_from_slice(part.get(..len).unwrap_or_default());
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.link()?.socket.write(bytes).map(Option::unwrap_or_default)
    }

    fn flush(&mut self) -> io::Result<()> {
        let link = self.link()?;
        if link.socket.has_records() {
            link.socket.write(&[])?;
        }
        Ok(())
    }

    fn bytes_on_way(&self) -> u64 {
        self.link.as_ref().and_then(|link| tcp_info::bytes_on_way(link.socket.as_fd())).unwrap_or_default()
    }

    fn close(&mut self) {
        self.link = None;
    }

    fn make_overflow(&self, purpose: &str) -> io::Result<Box<dyn Overflow>> {
        BacklogFile::make(&self.engine.settings.in_dir(""), purpose)
    }
}
