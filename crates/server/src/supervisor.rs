//! `supervised`: reports the server's readiness and end to systemd, by the protocol of sd_notify(3).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use config::{Settings, Supervised};

use crate::conf_file::system_text;
use crate::log;

/// The supervisor of the server, if it asked for notifications.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// The name of systemd's socket.
    socket: Option<OsString>,
}

impl Supervisor {
    /// Returns the supervisor of the configuration and the environment. Logs a warning if the environment lacks it.
    #[must_use]
    pub fn of(settings: &Settings) -> Supervisor {
        let supervisor = Supervisor::find(settings);
        if settings.supervised.get() == Supervised::Systemd && supervisor.socket.is_none() {
            log::warning("systemd supervision error: NOTIFY_SOCKET not found!");
        }
        supervisor
    }

    /// Returns the supervisor without a warning.
    #[must_use]
    pub fn find(settings: &Settings) -> Supervisor {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let is_asked_for = matches!(settings.supervised.get(), Supervised::Systemd | Supervised::Auto);
        Supervisor { socket: socket.filter(|_| is_asked_for) }
    }

    /// Its name in INFO.
    #[must_use]
    pub fn name(&self) -> &'static str {
        if self.socket.is_some() { "systemd" } else { "no" }
    }

    /// Reports that the server accepts connections.
    pub fn ready(&self) {
        self.notify("STATUS=Ready to accept connections\n");
        self.notify("READY=1\n");
    }

    /// Reports that the server is about to end.
    pub fn stopping(&self) {
        self.notify("STOPPING=1\n");
    }

    /// Sends a state. A failure is only logged, because the server runs without a supervisor, too.
    fn notify(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = send(socket, state) {
            log::warning(format!("systemd supervision error: sd_notify: {}", system_text(&error)));
        }
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address(socket)?).map(|_| ())
}

/// Returns the address for a path or an abstract name, which has an `@` for its leading zero byte.
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        [b'/', ..] => SocketAddr::from_pathname(socket),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "NOTIFY_SOCKET is neither a path nor an abstract name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_paths_or_abstract_names() {
        assert_eq!(address(OsStr::new("/run/x")).unwrap().as_pathname(), Some("/run/x".as_ref()));
        assert_eq!(address(OsStr::new("@x")).unwrap().as_abstract_name(), Some(&b"x"[..]));
        assert!(address(OsStr::new("x")).is_err() && address(OsStr::new("")).is_err());
    }
}
