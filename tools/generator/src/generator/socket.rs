//! Nonblocking sockets for TCP and Unix addresses, including connecting and encryption.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use client::{Encryption, Stream};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A resolved TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Resolves a name to its first address. IPv4 comes before IPv6, because most servers listen there.
    pub fn resolve(address: &client::Address) -> io::Result<Address> {
        let (host, port) = match address {
            client::Address::Unix(path) => return Ok(Address::Unix(path.clone())),
            client::Address::Tcp { host, port } => (host.as_str(), *port),
        };
        let all: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
        let found = all.iter().find(|address| address.is_ipv4()).or_else(|| all.first());
        found
            .copied()
            .map(Address::Tcp)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Starts to connect and returns at once. The socket becomes writable at the end, and `outcome` returns the result.
fn begin_connect(address: &Address) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = match address {
        Address::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
        Address::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
        Address::Unix(_) => AddressFamily::UNIX,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    let begun = match address {
        Address::Tcp(to) => {
            sockopt::set_tcp_nodelay(&socket, true)?;
            rustix::net::connect(&socket, to)
        }
        Address::Unix(path) => rustix::net::connect(&socket, &SocketAddrUnix::new(path)?),
    };
    match begun {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// A connection's socket.
pub enum Socket {
    /// A plain socket.
    Plain(OwnedFd),
    /// An encrypted stream.
    Encrypted(Box<dyn Stream>),
}

impl Socket {
    /// Starts to connect.
    pub fn connect(address: &Address, encryption: Option<&Encryption>) -> io::Result<Socket> {
        let socket = begin_connect(address)?;
        match encryption {
            None => Ok(Socket::Plain(socket)),
            Some(encryption) => encryption.begin(socket.into()).map(Socket::Encrypted).map_err(io::Error::other),
        }
    }

    /// Returns the result of connecting.
    pub fn outcome(&self) -> io::Result<()> {
        sockopt::socket_error(self)?.map_err(Into::into)
    }

    /// Sends as many bytes as fit, possibly 0.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = match self {
            Socket::Plain(socket) => rustix::net::send(socket, bytes, SendFlags::NOSIGNAL).map_err(Into::into),
            Socket::Encrypted(stream) => stream.write(bytes),
        };
        or_none(sent).map(|sent| sent.unwrap_or(0))
    }

    /// Sends buffered encrypted bytes. Returns true if some are left.
    pub fn send_kept(&mut self) -> io::Result<bool> {
        match self {
            Socket::Encrypted(stream) if stream.wants_write() => or_none(stream.flush()).map(|sent| sent.is_none()),
            _ => Ok(false),
        }
    }

    /// Receives available bytes. Returns `None` if there are none, and 0 at the end of the stream.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let received = match self {
            Socket::Plain(socket) => rustix::io::read(socket, buffer).map_err(Into::into),
            Socket::Encrypted(stream) => stream.read(buffer),
        };
        or_none(received)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Plain(socket) => socket.as_fd(),
            Socket::Encrypted(stream) => stream.fd(),
        }
    }
}

/// Converts `WouldBlock` to `None`.
fn or_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}
