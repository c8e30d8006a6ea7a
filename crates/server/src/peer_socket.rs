//! A connection to another server that this one opens, plain or encrypted: to the primary that it follows, or to the target of MIGRATE.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use engine::config::Settings;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::tls::outgoing::client_config;

/// See the module's documentation.
pub enum PeerSocket {
    /// Bytes go as they are.
    Plain(TcpStream),
    /// They are encrypted.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// Why there is no connection.
#[derive(Debug)]
pub enum CannotOpen {
    /// The network's or the system's.
    Io(io::Error),
    /// What this server is configured for doesn't do.
    Unusable(String),
}

impl From<io::Error> for CannotOpen {
    fn from(error: io::Error) -> CannotOpen {
        CannotOpen::Io(error)
    }
}

impl PeerSocket {
    /// Opens a connection. Each step of that, and each write, may take `timeout`, and each read `read_timeout`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(
        (host, port): (&str, u16),
        encryption: Option<&Settings>,
        timeout: Duration,
        read_timeout: Duration,
    ) -> Result<PeerSocket, CannotOpen> {
        let socket = connect((host, port), timeout)?;
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
        // Its handshake waits for answers.
        tls.sock.set_read_timeout(Some(timeout))?;
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        tls.sock.set_read_timeout(Some(read_timeout))?;
        Ok(PeerSocket::Tls(Box::new(tls)))
    }

    /// Changes how long each read and each write may take.
    ///
    /// # Errors
    /// The system's.
    pub fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let socket = match self {
            PeerSocket::Plain(socket) => socket,
            PeerSocket::Tls(tls) => &tls.sock,
        };
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))
    }
}

fn connect(address: (&str, u16), timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the server's name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
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
