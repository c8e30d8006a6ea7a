//! The connection to a primary, plain or encrypted.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use engine::config::Settings;
use engine::replication::Primary;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::Trouble;
use crate::tls::outgoing::client_config;

/// See the module's documentation.
pub(super) enum LinkSocket {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl LinkSocket {
    /// Opens a connection, which reads for no longer than `look_every` at a time, and writes for no longer than `timeout`.
    pub(super) fn open(
        primary: &Primary,
        settings: &Settings,
        timeout: Duration,
        look_every: Duration,
    ) -> Result<LinkSocket, Trouble> {
        let socket = connect(primary, timeout)?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(timeout))?;
        if !settings.tls_replication.get() {
            socket.set_read_timeout(Some(look_every))?;
            return Ok(LinkSocket::Plain(socket));
        }
        let config = client_config(settings).map_err(Trouble::Refused)?;
        let name = ServerName::try_from(primary.host.clone());
        let name = name.map_err(|_| Trouble::Refused(format!("{} is no name of a server", primary.host)))?;
        let session = ClientConnection::new(config, name).map_err(|error| Trouble::Refused(error.to_string()))?;
        let mut tls = StreamOwned::new(session, socket);
        // Its handshake waits for answers.
        tls.sock.set_read_timeout(Some(timeout))?;
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        tls.sock.set_read_timeout(Some(look_every))?;
        Ok(LinkSocket::Tls(Box::new(tls)))
    }
}

fn connect(primary: &Primary, timeout: Duration) -> io::Result<TcpStream> {
    let addresses = (primary.host.as_str(), primary.port).to_socket_addrs()?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the primary's name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Read for LinkSocket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            LinkSocket::Plain(socket) => socket.read(room),
            LinkSocket::Tls(tls) => tls.read(room),
        }
    }
}

impl Write for LinkSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            LinkSocket::Plain(socket) => socket.write(bytes),
            LinkSocket::Tls(tls) => {
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
