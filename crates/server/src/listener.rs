//! Listening sockets for `bind`, `port` and `unixsocket`, and the acceptance of connections.

use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::Settings;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::conf_file::system_text;
use crate::connection::Socket;
use crate::log;

/// A socket that accepts connections.
pub enum Listener {
    /// Through TCP.
    Tcp(TcpListener),
    /// Through TCP, encrypted.
    Tls(TcpListener),
    /// Through a Unix socket.
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket. It is removed when this value is dropped.
pub struct SocketFile {
    /// The name in the configuration.
    name: String,
    /// Absolute, because `dir` may change before the file is removed.
    path: PathBuf,
    /// Device and inode of the created file.
    made: Option<(u64, u64)>,
}

impl SocketFile {
    /// Returns the newly created file.
    fn of(name: &str, path: PathBuf) -> SocketFile {
        SocketFile { name: name.to_owned(), made: identity(&path), path }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may use the path by now.
        if self.made.is_some() && identity(&self.path) == self.made {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.symlink_metadata().ok().map(|file| (file.dev(), file.ino()))
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listener::Tcp(listener) | Listener::Tls(listener) => match listener.local_addr() {
                Ok(address) if matches!(self, Listener::Tls(_)) => write!(f, "{address} (TLS)"),
                Ok(address) => address.fmt(f),
                Err(error) => error.fmt(f),
            },
            Listener::Unix(_, file) => file.name.fmt(f),
        }
    }
}

/// A connection that has been accepted.
pub struct Accepted {
    /// The socket.
    pub socket: Socket,
    /// The peer's address in the form of CLIENT LIST.
    pub addr: String,
    /// The server's address.
    pub laddr: String,
    /// True if the peer is on this machine.
    pub is_local: bool,
    /// True if there are `maxclients` other connections already.
    pub is_on_reserve: bool,
    /// The user named by its certificate.
    pub user: Option<String>,
}

/// Opens all configured sockets. The error names the address that failed and the setting to change. It is also an error to have no socket
/// at all, which only CONFIG SET can cause.
pub fn open_all(settings: &Settings) -> Result<Vec<Listener>, String> {
    let mut all = open_tcp(settings).map_err(|error| error.text)?;
    let path = settings.unixsocket.get();
    if !path.is_empty() {
        let listener =
            open_unix(&path, settings).map_err(|e| format!("Failed opening Unix socket: bind: {path}: {e}"))?;
        all.push(listener);
    }
    match all.is_empty() {
        true => Err("Configured to not listen anywhere, exiting.".into()),
        false => Ok(all),
    }
}

/// The reason why an address can't be listened on.
pub struct CannotListen {
    /// Names the address and the setting to change.
    pub text: String,
    /// True if another socket has the address.
    pub is_taken: bool,
}

/// Opens only the TCP sockets.
pub fn open_tcp(settings: &Settings) -> Result<Vec<Listener>, CannotListen> {
    let mut all = open_port(settings, settings.port.get())?;
    for listener in open_port(settings, settings.tls_port.get())? {
        all.push(match listener {
            Listener::Tcp(listener) => Listener::Tls(listener),
            other => other,
        });
    }
    Ok(all)
}

fn open_port(settings: &Settings, port: i64) -> Result<Vec<Listener>, CannotListen> {
    open_addresses(&settings.bind.get(), port, settings)
}

/// Opens a port on all addresses of `bind`, or none if the port is 0.
pub(crate) fn open_addresses(bind: &str, port: i64, settings: &Settings) -> Result<Vec<Listener>, CannotListen> {
    let port = u16::try_from(port).unwrap_or(0);
    let mut all = Vec::new();
    if port == 0 {
        return Ok(all);
    }
    for word in bind.split_whitespace() {
        let (address, optional) = word.strip_prefix('-').map_or((word, false), |rest| (rest, true));
        match open_one(address, port, settings.tcp_backlog.get()) {
            Ok(listener) => all.push(listener),
            // An optional address may be missing (no IPv6 here) and is skipped. An address in use is always an error.
            Err(error) if optional && error.kind() != io::ErrorKind::AddrInUse => warn_of(address, port, &error),
            Err(error) => return Err(cannot_listen(address, port, &error)),
        }
    }
    Ok(all)
}

/// Logs that an address is skipped.
fn warn_of(address: &str, port: u16, error: &io::Error) {
    // An unknown name is no error of a system call.
    let call = if error.raw_os_error().is_some() { "bind: " } else { "" };
    let why = system_text(error);
    log::warning(format!("Warning: Could not create server TCP listening socket {address}:{port}: {call}{why}"));
}

/// The first port that every user may listen on, by Linux's default.
const UNPRIVILEGED_PORT_MIN: u16 = 1024;

fn cannot_listen(address: &str, port: u16, error: &io::Error) -> CannotListen {
    let is_taken = error.kind() == io::ErrorKind::AddrInUse;
    let hint = if is_taken {
        ": another server uses this port; choose another one with --port, or end the other server"
    } else if error.kind() == io::ErrorKind::PermissionDenied && port < UNPRIVILEGED_PORT_MIN {
        ": a port below 1024 takes the capability CAP_NET_BIND_SERVICE; choose one from 1024 on with --port"
    } else {
        ": choose another address with --bind"
    };
    let text = format!("Could not create server TCP listening socket {address}:{port}: {error}{hint}");
    CannotListen { text, is_taken }
}

fn open_one(address: &str, port: u16, backlog: i64) -> io::Result<Listener> {
    let address = match address {
        "*" => SocketAddr::from(([0, 0, 0, 0], port)),
        "::*" => SocketAddr::from(([0u16; 8], port)),
        name => (name, port).to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?,
    };
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        // `*` and `::*` are separate sockets side by side.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, i32::try_from(backlog).unwrap_or(i32::MAX))?;
    Ok(Listener::Tcp(TcpListener::from(socket)))
}

fn open_unix(path: &str, settings: &Settings) -> io::Result<Listener> {
    let absolute = settings.in_dir(path);
    let _ = std::fs::remove_file(&absolute);
    // The given name if it means the same place: the absolute name may exceed the system's limit.
    let is_here = std::path::absolute(path).is_ok_and(|here| here == absolute);
    let listener = UnixListener::bind(if is_here { Path::new(path) } else { &absolute })?;
    let file = SocketFile::of(path, absolute);
    listener.set_nonblocking(true)?;
    give_to_group(&file.path, &settings.unixsocketgroup.get())?;
    let mode = settings.unixsocketperm.get();
    if mode != 0 {
        std::fs::set_permissions(&file.path, std::fs::Permissions::from_mode(mode as u32))?;
    }
    Ok(Listener::Unix(listener, file))
}

/// Gives a socket's file to the named group.
fn give_to_group(path: &Path, name: &str) -> io::Result<()> {
    if name.is_empty() {
        return Ok(());
    }
    let group = nix::unistd::Group::from_name(name)?;
    let group = group.ok_or_else(|| io::Error::other(format!("there is no group {name}; change unixsocketgroup")))?;
    std::os::unix::fs::chown(path, None, Some(group.gid.as_raw()))
}

/// A descriptor in reserve. It lets the server accept a connection and refuse it with a text when no other descriptor is left.
pub struct Reserve(Option<OwnedFd>);

impl Reserve {
    /// Takes a descriptor.
    #[must_use]
    pub fn new() -> Reserve {
        Reserve(rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok())
    }

    /// Uses the reserved descriptor to refuse a connection.
    pub fn turn_away(&mut self, listener: &Listener) {
        self.0 = None;
        // A client that expects a handshake gets no text.
        if let Ok(Some(accepted)) = accept(listener)
            && !matches!(listener, Listener::Tls(_))
        {
            refuse(accepted, b"-ERR max number of clients reached\r\n");
        }
        *self = Reserve::new();
    }
}

impl Default for Reserve {
    fn default() -> Self {
        Reserve::new()
    }
}

/// Sends a connection the reason for the refusal, and closes it.
pub fn refuse(accepted: Accepted, text: &[u8]) {
    // The socket's buffer is empty, and a short text always fits. If not, the client is gone.
    let _ = match accepted.socket {
        Socket::Tcp(mut stream) => stream.write(text),
        Socket::Unix(mut stream) => stream.write(text),
        // The refusal precedes the handshake.
        Socket::Tls(_) => Ok(0),
    };
}

/// Returns true if no descriptor was left for accepting.
#[must_use]
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Returns true if no connection is left to accept: the client has gone, or the socket is about to be replaced and doesn't listen any more
/// ([`crate::rebind`]).
fn is_gone(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::CONNABORTED | Errno::INTR | Errno::INVAL))
}

/// Accepts a connection, if one is queued.
pub fn accept(listener: &Listener) -> io::Result<Option<Accepted>> {
    let accepted = match listener {
        Listener::Tcp(listener) | Listener::Tls(listener) => {
            listener.accept().and_then(|(stream, peer)| tcp(stream, peer))
        }
        Listener::Unix(listener, file) => listener.accept().and_then(|(stream, _)| {
            stream.set_nonblocking(true)?;
            let addr = format!("{}:0", file.name);
            Ok(Accepted {
                socket: Socket::Unix(stream),
                laddr: addr.clone(),
                addr,
                is_local: true,
                is_on_reserve: false,
                user: None,
            })
        }),
    };
    match accepted {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn tcp(stream: TcpStream, peer: SocketAddr) -> io::Result<Accepted> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let is_local = peer.ip().is_loopback();
    let laddr = stream.local_addr().map_or_else(|_| String::new(), |a| a.to_string());
    Ok(Accepted {
        socket: Socket::Tcp(stream),
        addr: peer.to_string(),
        laddr,
        is_local,
        is_on_reserve: false,
        user: None,
    })
}

/// Makes TCP probe silent peers (tcp-keepalive).
pub fn keep_alive(socket: &Socket, seconds: i64) {
    let (Socket::Tcp(stream), Ok(seconds @ 1..)) = (socket, u64::try_from(seconds)) else { return };
    // Redis's figures: three probes, a third of the interval apart. A failure leaves the system's defaults.
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(seconds));
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs((seconds / 3).max(1)));
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
}
