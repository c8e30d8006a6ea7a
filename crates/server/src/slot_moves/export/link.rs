//! The connection to the target of moving slots.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use cluster::view::NodeView;
use config::Settings;
use resp::parse::encode_request;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::bus::socket::BusSocket;

/// Bytes read at once.
const READ_BYTES: usize = 4096;

/// A connection to the target, which never blocks.
pub struct TargetLink {
    socket: BusSocket,
    /// Bytes that have been read and not used.
    pub input: Vec<u8>,
}

impl TargetLink {
    /// Begins to connect.
    ///
    /// # Errors
    /// The address or the configuration is unusable.
    pub fn open(node: &NodeView, settings: &Settings) -> Result<TargetLink, String> {
        let is_encrypted = settings.tls_replication.get();
        let (ip, port) = (&node.endpoints.ip, node.endpoints.ports.of(is_encrypted));
        let tcp = BusSocket::connect(ip, port, &settings.bind_source_addr.get()).map_err(|error| error.to_string())?;
        let socket = match is_encrypted {
            true => BusSocket::encrypt_outbound(tcp, ip, settings)?,
            false => BusSocket::Plain(tcp),
        };
        Ok(TargetLink { socket, input: Vec::new() })
    }

    /// Continues to connect. Returns true once the connection stands. The caller waits for room to write before the first call.
    ///
    /// # Errors
    /// There is no connection.
    pub fn connect(&mut self) -> io::Result<bool> {
        self.socket.check_connected()?;
        self.socket.shake_hands()
    }

    /// Waits for bytes, or also for room to write. Returns true if there is either.
    pub fn wait(&self, writes: bool, timeout: Duration) -> bool {
        let writes = writes || self.socket.has_records();
        let flags = if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let timeout = Timespec::try_from(timeout).ok();
        // An interrupted wait is repeated by the caller.
        poll(&mut [PollFd::new(&self.socket.as_fd(), flags)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Waits until the socket has connected or failed.
    pub fn wait_for_connection(&self, timeout: Duration) -> bool {
        let timeout = Timespec::try_from(timeout).ok();
        poll(&mut [PollFd::new(&self.socket.as_fd(), PollFlags::OUT)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Writes as many bytes as the socket takes, and returns their number.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes).map(Option::unwrap_or_default)
    }

    /// Returns the bytes that the kernel has and the target's has not acknowledged.
    pub fn bytes_on_way(&self) -> u64 {
        tcp_info::bytes_on_way(self.socket.as_fd()).unwrap_or_default()
    }

    /// Sends encrypted bytes that were written before.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.socket.has_records() {
            self.socket.write(&[])?;
        }
        Ok(())
    }

    /// Sends a short request on a connection without other output.
    ///
    /// # Errors
    /// The connection is broken, or takes no bytes for this time.
    pub fn send(&mut self, words: &[&str], timeout: Duration) -> io::Result<()> {
        let (mut request, mut sent) = (Vec::new(), 0);
        encode_request(words, &mut request);
        while sent < request.len() || self.socket.has_records() {
            let taken = self.write(request.get(sent..).unwrap_or_default())?;
            sent += taken;
            if taken == 0 && !self.wait_for_connection(timeout) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Reads available bytes. Returns false if there are none.
    ///
    /// # Errors
    /// The connection is broken or closed.
    pub fn read(&mut self) -> io::Result<bool> {
        let mut part = [0; READ_BYTES];
        match self.socket.read(&mut part)? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(len) => {
                self.input.extend_from_slice(part.get(..len).unwrap_or_default());
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Takes a line of the input, without its end.
    pub fn take_line(&mut self) -> Option<String> {
        let end = self.input.windows(2).position(|end| end == b"\r\n")?;
        let line = self.input.drain(..end + 2).take(end).collect::<Vec<_>>();
        Some(String::from_utf8_lossy(&line).into_owned())
    }
}
