//! Sockets that never wait: to an address of either kind, connecting included.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A resolved TCP address.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Resolves a name; the first of its addresses, IPv4 before IPv6, as most servers listen there.
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

/// Begins to connect and returns at once; that the socket becomes writable tells the end, and `outcome` how it ended.
pub fn begin_connect(address: &Address) -> io::Result<OwnedFd> {
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

/// How a connecting that has ended, ended.
pub fn outcome(socket: &OwnedFd) -> io::Result<()> {
    sockopt::socket_error(socket)?.map_err(Into::into)
}
