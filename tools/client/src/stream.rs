//! The bytes' way: TCP, Unix sockets, and whatever else a [`Connector`] opens.

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

/// A byte stream to a server that never blocks: reading and writing answer [`io::ErrorKind::WouldBlock`] where they
/// would have to wait. [`crate::Connection`] does the waiting, with poll(2) on the descriptor.
pub trait Stream: Read + Write + Send {
    /// What to wait on.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Whether written bytes wait inside the stream (encrypted, say) until the descriptor is writable. They leave with
    /// [`Write::flush`].
    fn wants_write(&self) -> bool {
        false
    }

    /// Whether reading would give bytes that have already left the descriptor.
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

/// Opens streams: the way to tunnel, to encrypt with another library, or to put a fault into a test.
pub trait Connector: Send + Sync {
    /// A new stream to the server that `config` names.
    ///
    /// # Errors
    /// [`Error::Connect`] or whatever fits.
    fn connect(&self, config: &Config) -> Result<Box<dyn Stream>, Error>;
}

impl<F: Fn(&Config) -> Result<Box<dyn Stream>, Error> + Send + Sync> Connector for F {
    fn connect(&self, config: &Config) -> Result<Box<dyn Stream>, Error> {
        self(config)
    }
}

/// Opens the stream that `config` asks for, encrypted or not, and says nothing on it.
///
/// # Errors
/// [`Error::Connect`]: no connection came about, or no encryption of it. [`Error::Config`]: the options make no sense.
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
        // What a socket says when its time is over.
        Err(HandshakeError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
            let text = "perhaps the server doesn't speak TLS at this port: the TLS handshake took too long";
            Err(cannot_connect(config, io::Error::new(io::ErrorKind::TimedOut, text)))
        }
        Err(HandshakeError::Io(error)) => Err(cannot_connect(config, error)),
    }
}

#[cfg(not(feature = "tls"))]
fn encrypt(_: TcpStream, _: &Config, _: &str) -> Result<Box<dyn Stream>, Error> {
    Err(Error::Config("this program was built without TLS, which the URL asks for".to_owned()))
}

fn cannot_connect(config: &Config, error: io::Error) -> Error {
    Error::Connect { address: config.address.to_string(), cause: Arc::new(error) }
}

/// A TCP connection to the first of the name's addresses that accepts one.
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
    // Requests leave in as few writes as possible anyway; Nagle's delay would only hold up their end.
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    if let Some(idle) = config.keep_alive {
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, idle)?;
    }
    Ok(stream)
}

/// What [`wait`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// The bell rings.
    pub(crate) bell: bool,
}

/// Waits until `fd` can be read or written, as far as `read` and `write` say so, or `bell` can be read. Nothing is true
/// when the time is over. An error or hang-up counts as both, so that reading or writing finds out which.
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
        // A signal: the caller looks at its clock and comes again.
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
