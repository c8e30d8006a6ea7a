//! Sockets of the bus: non-blocking, plain or encrypted (`tls-cluster`).

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use config::Settings;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::tls::outgoing::client_config;

/// Bytes of a session's unsent records. A write beyond them waits for the socket.
const TLS_BUFFER_BYTES: usize = 128 << 10;

/// A socket of the bus.
pub enum BusSocket {
    /// Unencrypted.
    Plain(TcpStream),
    /// Encrypted.
    Tls(TcpStream, Box<Connection>),
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Returns `None` instead of the error that a socket isn't ready.
fn unless_blocked<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(error),
    }
}

impl BusSocket {
    /// Begins to connect to an address, from the address `source` if the system permits it. The socket is writable once the connection
    /// stands, or has failed.
    ///
    /// # Errors
    /// The system's error.
    pub fn connect(ip: &str, port: u16, source: &str) -> io::Result<TcpStream> {
        let ip: IpAddr = ip.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        if let Some(source) = source_address(source, ip.is_ipv4()) {
            // Like in Redis, an unusable address is ignored.
            let _ = bind(&socket, &source);
        }
        match connect(&socket, &SocketAddr::new(ip, port)) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let socket = TcpStream::from(socket);
        socket.set_nodelay(true)?;
        Ok(socket)
    }

    /// Checks that a connection stands.
    ///
    /// # Errors
    /// The reason why it doesn't.
    pub fn check_connected(&self) -> io::Result<()> {
        Ok(sockopt::socket_error(self.tcp())??)
    }

    /// Encrypts a new connection to another node.
    ///
    /// # Errors
    /// The configuration is unusable.
    pub fn encrypt_outbound(tcp: TcpStream, ip: &str, settings: &Settings) -> Result<BusSocket, String> {
        let config = client_config(settings)?;
        let name = ServerName::try_from(ip.to_owned()).map_err(|_| format!("{ip} is no name of a server"))?;
        let session = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        Ok(BusSocket::tls(tcp, Connection::Client(session)))
    }

    /// Encrypts an accepted connection.
    ///
    /// # Errors
    /// The configuration is unusable.
    pub fn encrypt_inbound(tcp: TcpStream, config: Arc<ServerConfig>) -> Result<BusSocket, String> {
        let session = ServerConnection::new(config).map_err(|error| error.to_string())?;
        Ok(BusSocket::tls(tcp, Connection::Server(session)))
    }

    fn tls(tcp: TcpStream, mut session: Connection) -> BusSocket {
        session.set_buffer_limit(Some(TLS_BUFFER_BYTES));
        BusSocket::Tls(tcp, Box::new(session))
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            BusSocket::Plain(tcp) | BusSocket::Tls(tcp, _) => tcp,
        }
    }

    /// The addresses of the other end and of this one.
    pub fn ips(&self) -> [String; 2] {
        let ip = |address: io::Result<SocketAddr>| address.map(|it| it.ip().to_canonical().to_string());
        [self.tcp().peer_addr(), self.tcp().local_addr()].map(|address| ip(address).unwrap_or_default())
    }

    /// Continues the handshake. Returns true once it is done; a plain socket has none.
    ///
    /// # Errors
    /// The other end is gone or does not agree.
    pub fn shake_hands(&mut self) -> io::Result<bool> {
        let BusSocket::Tls(tcp, session) = self else { return Ok(true) };
        while session.is_handshaking() {
            send_records(tcp, session)?;
            if session.is_handshaking() && !receive_records(tcp, session)? {
                break;
            }
        }
        send_records(tcp, session)?;
        Ok(!session.is_handshaking())
    }

    /// Reads. Returns 0 at the end of data, and `None` if there are none yet.
    ///
    /// # Errors
    /// The connection is broken, or the data are not authentic.
    pub fn read(&mut self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let (tcp, session) = match self {
            BusSocket::Plain(tcp) => return unless_blocked(tcp.read(room)),
            BusSocket::Tls(tcp, session) => (tcp, session),
        };
        loop {
            if let Some(bytes) = unless_blocked(session.reader().read(room))? {
                return Ok(Some(bytes));
            }
            if !receive_records(tcp, session)? {
                return Ok(None);
            }
        }
    }

    /// Writes as much as the socket takes. Returns `None` if that is nothing.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let (tcp, session) = match self {
            BusSocket::Plain(tcp) => return unless_blocked(tcp.write(bytes)),
            BusSocket::Tls(tcp, session) => (tcp, session),
        };
        send_records(tcp, session)?;
        let taken = session.writer().write(bytes)?;
        send_records(tcp, session)?;
        Ok((taken > 0 || bytes.is_empty()).then_some(taken))
    }

    /// Returns true if the session has records that the socket has not taken.
    pub fn has_records(&self) -> bool {
        matches!(self, BusSocket::Tls(_, session) if session.wants_write())
    }
}

/// Receives records. Returns false if there are none yet.
fn receive_records(tcp: &mut TcpStream, session: &mut Connection) -> io::Result<bool> {
    match unless_blocked(session.read_tls(tcp))? {
        None => Ok(false),
        // The session's reader tells a regular end from a cut connection.
        Some(0) if session.is_handshaking() => Err(io::ErrorKind::UnexpectedEof.into()),
        Some(_) => {
            session.process_new_packets().map_err(invalid)?;
            send_records(tcp, session)?;
            Ok(true)
        }
    }
}

/// Sends the session's records as far as the socket takes them.
fn send_records(tcp: &mut TcpStream, session: &mut Connection) -> io::Result<()> {
    while session.wants_write() {
        if unless_blocked(session.write_tls(tcp))?.is_none() {
            break;
        }
    }
    Ok(())
}

fn source_address(source: &str, is_ipv4: bool) -> Option<SocketAddr> {
    if source.is_empty() {
        return None;
    }
    (source, 0).to_socket_addrs().ok()?.find(|address| address.is_ipv4() == is_ipv4)
}

impl AsFd for BusSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp().as_fd()
    }
}
