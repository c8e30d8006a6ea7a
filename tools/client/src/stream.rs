//! Byte streams: TCP, Unix sockets, and streams of a [`Connector`].

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use crate::config::{Address, Config};
use crate::error::Error;

/// A nonblocking byte stream to a server. Instead of waiting, reads and writes return [`io::ErrorKind::WouldBlock`].
/// [`crate::Connection`] waits with poll(2) on the descriptor.
pub trait Stream: Read + Write + Send {
    /// Returns the descriptor for poll(2).
    fn fd(&self) -> BorrowedFd<'_>;

    /// Returns true if written bytes are buffered inside the stream (for example encrypted ones) until the descriptor
    /// is writable. [`Write::flush`] sends them.
    fn wants_write(&self) -> bool {
        false
    }

    /// Returns true if a read would return bytes that have already left the descriptor.
    fn has_buffered(&self) -> bool {
        false
    }
}

impl Stream for TcpStream {
    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

impl Stream for UnixStream {
    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }
}

/// Opens streams. Use it for tunnels, for other encryption libraries, or for fault injection in tests.
pub trait Connector: Send + Sync {
    /// Opens a stream to the server that `config` names.
    ///
    /// # Errors
    /// Returns [`Error::Connect`] or another suitable error.
    fn connect(&self, config: &Config) -> Result<Box<dyn Stream>, Error>;
}

impl<F: Fn(&Config) -> Result<Box<dyn Stream>, Error> + Send + Sync> Connector for F {
    fn connect(&self, config: &Config) -> Result<Box<dyn Stream>, Error> {
        self(config)
    }
}

/// Opens the stream for `config`, with or without TLS, and sends nothing on it.
///
/// # Errors
/// Returns [`Error::Connect`] if connecting or the TLS handshake failed, and [`Error::Config`] for invalid options.
pub fn open_stream(config: &Config) -> Result<Box<dyn Stream>, Error> {
    if let Some(connector) = &config.connector {
        return connector.connect(config);
    }
    match &config.address {
        Address::Tcp { host, port } => {
            let tcp = open_tcp(config, host, *port)?;
            if config.tls { encrypt(tcp, config, host) } else { Ok(Box::new(tcp)) }
        }
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).and_then(|stream| stream.set_nonblocking(true).map(|()| stream));
            stream.map(|stream| Box::new(stream) as Box<dyn Stream>).map_err(|error| cannot_connect(config, error))
        }
    }
}

#[cfg(feature = "tls")]
fn encrypt(tcp: TcpStream, config: &Config, host: &str) -> Result<Box<dyn Stream>, Error> {
    use crate::tls::{self, HandshakeError};
    match tls::encrypt(tcp, host, &config.tls_options, config.connect_timeout) {
        Ok(stream) => Ok(Box::new(stream)),
        Err(HandshakeError::Config(error)) => Err(error),
        // Socket timeouts are reported as `WouldBlock`.
        Err(HandshakeError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
            let text = "the TLS handshake took too long; the server may not speak TLS at this port";
            Err(cannot_connect(config, io::Error::new(io::ErrorKind::TimedOut, text)))
        }
        Err(HandshakeError::Io(error)) => Err(cannot_connect(config, error)),
    }
}

#[cfg(not(feature = "tls"))]
fn encrypt(_: TcpStream, _: &Config, _: &str) -> Result<Box<dyn Stream>, Error> {
    Err(Error::Config("the URL asks for TLS, but this program was built without it".to_owned()))
}

fn cannot_connect(config: &Config, error: io::Error) -> Error {
    Error::Connect { address: config.address.to_string(), cause: Arc::new(error) }
}

/// Connects to the first reachable address of a name.
fn open_tcp(config: &Config, host: &str, port: u16) -> Result<TcpStream, Error> {
    let addresses = (host, port).to_socket_addrs().map_err(|error| cannot_connect(config, error))?;
    let mut trouble = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match open_tcp_at(config, &address) {
            Ok(stream) => return Ok(stream),
            Err(error) => trouble = error,
        }
    }
    Err(cannot_connect(config, trouble))
}

fn open_tcp_at(config: &Config, address: &SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, config.connect_timeout)?;
    // Requests leave in few writes anyway. Nagle's algorithm would only delay their last segment.
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    if let Some(idle) = config.keep_alive {
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, idle)?;
    }
    Ok(stream)
}

/// Result of [`wait`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// True if the bell rings.
    pub(crate) bell: bool,
}

/// Waits until `fd` is readable or writable, as requested by `read` and `write`, or until `bell` is readable. On
/// timeout all fields are false. An error or hang-up sets both directions, so that the next read or write reports it.
pub(crate) fn wait(
    fd: BorrowedFd<'_>,
    read: bool,
    write: bool,
    bell: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let mut interest = PollFlags::empty();
    interest.set(PollFlags::IN, read);
    interest.set(PollFlags::OUT, write);
    let mut fds = [PollFd::from_borrowed_fd(fd, interest), PollFd::from_borrowed_fd(bell.unwrap_or(fd), PollFlags::IN)];
    let watched = if bell.is_some() { &mut fds[..] } else { &mut fds[..1] };
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(watched, timeout.as_ref()) {
        Ok(_) => {}
        // A signal arrived: the caller checks its clock and calls again.
        Err(rustix::io::Errno::INTR) => return Ok(Ready::default()),
        Err(error) => return Err(error.into()),
    }
    let found = fds[0].revents();
    let trouble = found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
    Ok(Ready {
        read: found.contains(PollFlags::IN) || trouble,
        write: write && (found.contains(PollFlags::OUT) || trouble),
        bell: bell.is_some() && !fds[1].revents().is_empty(),
    })
}
