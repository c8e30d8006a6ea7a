//! An outgoing connection to another server, plain or encrypted: to the primary of this replica, or to the target of MIGRATE.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use config::Settings;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::tls::outgoing::client_config;

/// An outgoing connection.
pub enum PeerSocket {
    /// Unencrypted.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// The reason why there is no connection.
#[derive(Debug)]
pub enum CannotOpen {
    /// A network or system error.
    Io(io::Error),
    /// The configuration doesn't work.
    Unusable(String),
}

impl From<io::Error> for CannotOpen {
    fn from(error: io::Error) -> CannotOpen {
        CannotOpen::Io(error)
    }
}

impl PeerSocket {
    /// Opens a connection, from the address `source` if the system permits it. Each step and each write may take `timeout`, and each read
    /// `read_timeout`.
    ///
    /// # Errors
    /// The reason for the failure.
    pub fn open(
        (host, port): (&str, u16),
        source: &str,
        encryption: Option<&Settings>,
        timeout: Duration,
        read_timeout: Duration,
    ) -> Result<PeerSocket, CannotOpen> {
        let socket = connect((host, port), source, timeout)?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(timeout))?;
        let Some(settings) = encryption else {
            socket.set_read_timeout(Some(read_timeout))?;
            return Ok(PeerSocket::Plain(socket));
        };
        let config = client_config(settings).map_err(CannotOpen::Unusable)?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| CannotOpen::Unusable(format!("{host} is no name of a server")))?;
        let session = ClientConnection::new(config, name).map_err(|error| CannotOpen::Unusable(error.to_string()))?;
        let mut tls = StreamOwned::new(session, socket);
        // The handshake awaits replies.
        tls.sock.set_read_timeout(Some(timeout))?;
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        tls.sock.set_read_timeout(Some(read_timeout))?;
        Ok(PeerSocket::Tls(Box::new(tls)))
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            PeerSocket::Plain(socket) => socket,
            PeerSocket::Tls(tls) => &tls.sock,
        }
    }

    /// Returns the addresses of the other server and of this one, in the form of CLIENT LIST.
    #[must_use]
    pub fn addresses(&self) -> [String; 2] {
        [self.tcp().peer_addr(), self.tcp().local_addr()]
            .map(|address| address.map(|it| it.to_string()).unwrap_or_default())
    }

    /// The number of the descriptor.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.tcp().as_raw_fd()
    }

    /// Changes the timeout of reads and writes.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let socket = self.tcp();
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))
    }
}

fn connect(address: (&str, u16), source: &str, timeout: Duration) -> io::Result<TcpStream> {
    let sources: Vec<IpAddr> = if source.is_empty() { Vec::new() } else { source_addresses(source) };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the server's name has no address");
    for address in address.to_socket_addrs()? {
        let source = sources.iter().find(|source| source.is_ipv4() == address.is_ipv4());
        // Like in Redis, an unusable address is ignored.
        let bound = source.and_then(|&source| bound_socket(SocketAddr::new(source, 0)).ok());
        let connected = match bound {
            Some(socket) => connect_bound(socket, &address, timeout),
            None => TcpStream::connect_timeout(&address, timeout),
        };
        match connected {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the addresses of a name, empty if there are none.
fn source_addresses(name: &str) -> Vec<IpAddr> {
    (name, 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect()).unwrap_or_default()
}

/// Returns a non-blocking socket with this local address.
fn bound_socket(source: SocketAddr) -> io::Result<OwnedFd> {
    let family = if source.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    bind(&socket, &source)?;
    Ok(socket)
}

fn connect_bound(socket: OwnedFd, address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    match rustix::net::connect(&socket, address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let timeout = Timespec::try_from(timeout).map_err(|_| io::ErrorKind::InvalidInput)?;
            if poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&timeout))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(false)?;
    Ok(socket)
}

impl Read for PeerSocket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            PeerSocket::Plain(socket) => socket.read(room),
            PeerSocket::Tls(tls) => tls.read(room),
        }
    }
}

impl Write for PeerSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            PeerSocket::Plain(socket) => socket.write(bytes),
            PeerSocket::Tls(tls) => {
                let written = tls.write(bytes)?;
                tls.flush()?;
                Ok(written)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_comes_from_the_address_that_is_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // The last one is no address of this machine.
        for (source, seen) in
            [("", "127.0.0.1"), ("127.0.0.2", "127.0.0.2"), ("::1", "127.0.0.1"), ("192.0.2.1", "127.0.0.1")]
        {
            let timeout = Duration::from_secs(5);
            let _socket = PeerSocket::open(("127.0.0.1", port), source, None, timeout, timeout).unwrap();
            assert_eq!(listener.accept().unwrap().1.ip().to_string(), seen, "{source}");
        }
    }

    #[test]
    fn a_bound_connection_that_is_refused_fails() {
        let timeout = Duration::from_secs(5);
        // No program listens on the first port, and no outgoing connection gets it.
        let opened = PeerSocket::open(("127.0.0.1", 1), "127.0.0.2", None, timeout, timeout);
        assert!(matches!(opened, Err(CannotOpen::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused));
    }
}
