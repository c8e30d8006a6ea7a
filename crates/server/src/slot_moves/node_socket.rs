//! A connection that this node makes to another node's port for clients.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cluster::view::NodeView;
use config::Settings;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::bus::socket::BusSocket;

/// See the module's documentation.
pub struct NodeSocket {
    socket: BusSocket,
    /// True once the socket has connected or failed.
    has_connected: bool,
}

impl NodeSocket {
    /// Begins to connect, encrypted with `tls-replication`.
    ///
    /// # Errors
    /// The address or the configuration is unusable.
    pub fn open(node: &NodeView, settings: &Settings) -> Result<NodeSocket, String> {
        let is_encrypted = settings.tls_replication.get();
        let (ip, port) = (&node.endpoints.ip, node.endpoints.ports.of(is_encrypted));
        let tcp = BusSocket::connect(ip, port, &settings.bind_source_addr.get()).map_err(|error| error.to_string())?;
        let socket = match is_encrypted {
            true => BusSocket::encrypt_outbound(tcp, ip, settings)?,
            false => BusSocket::Plain(tcp),
        };
        Ok(NodeSocket { socket, has_connected: false })
    }

    /// Continues to connect. Returns true once the connection stands.
    ///
    /// # Errors
    /// There is no connection.
    pub fn connect(&mut self) -> io::Result<bool> {
        if !self.has_connected && !self.wait(PollFlags::OUT, Duration::ZERO) {
            return Ok(false);
        }
        self.has_connected = true;
        self.socket.check_connected()?;
        self.socket.shake_hands()
    }

    /// Reads at most as many bytes as `part` has, and appends them. Returns false if there are none.
    ///
    /// # Errors
    /// The connection is broken or closed.
    pub fn read(&mut self, part: &mut [u8], into: &mut Vec<u8>) -> io::Result<bool> {
        match self.socket.read(part)? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(len) => {
                into.extend_from_slice(part.get(..len).unwrap_or_default());
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Writes as many bytes as the connection takes, and returns their number.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes).map(Option::unwrap_or_default)
    }

    /// Sends bytes that were taken before, and that the connection still has.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.socket.has_records() {
            self.socket.write(&[])?;
        }
        Ok(())
    }

    /// Returns the events to wait for: bytes have come, or, if the caller `writes`, bytes can be sent.
    pub fn awaited(&self, writes: bool) -> PollFlags {
        match self.has_connected {
            false => PollFlags::OUT,
            true if writes || self.socket.has_records() => PollFlags::IN | PollFlags::OUT,
            true => PollFlags::IN,
        }
    }

    /// Waits until the connection has one of these events. Returns true if it has.
    pub fn wait(&self, flags: PollFlags, time: Duration) -> bool {
        let time = Timespec::try_from(time).ok();
        // An interrupted wait is repeated by the caller.
        poll(&mut [PollFd::new(&self.socket.as_fd(), flags)], time.as_ref()).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for NodeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
