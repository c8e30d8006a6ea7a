//! CONFIG SET port and bind: replaces the listening sockets.
//!
//! The accepting thread owns the sockets, and the command may run on any other thread. This module therefore keeps duplicates.

use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

use config::Settings;
use rustix::net::Shutdown;

use crate::listener::{CannotListen, Listener, open_tcp};
use crate::log;

/// Duplicates of the listening TCP sockets.
pub struct InUse(Mutex<Vec<TcpListener>>);

impl InUse {
    /// Duplicates these sockets.
    #[must_use]
    pub fn of(listeners: &[Listener]) -> InUse {
        InUse(Mutex::new(duplicates(listeners)))
    }

    /// Opens the sockets for the present settings in place of the old ones.
    ///
    /// # Errors
    /// The text for the log. Nothing has changed then.
    pub fn replace(&self, settings: &Settings) -> Result<Vec<Listener>, String> {
        let mut in_use = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match open_tcp(settings) {
            // This server itself may occupy the address: an address can't be bound twice, nor in addition to the wildcard address.
            Err(error) if error.is_taken && has_port(&in_use, settings) => open_instead(&in_use, settings),
            opened => opened,
        };
        let listeners = opened.map_err(|error| error.text)?;
        *in_use = duplicates(&listeners);
        Ok(listeners)
    }
}

fn has_port(in_use: &[TcpListener], settings: &Settings) -> bool {
    let ports = [settings.port.get(), settings.tls_port.get()];
    in_use.iter().any(|listener| listener.local_addr().is_ok_and(|address| ports.contains(&i64::from(address.port()))))
}

/// Opens the sockets while the old ones don't listen. Clients that connect meanwhile are refused, like in Redis, which closes its listeners
/// first.
fn open_instead(in_use: &[TcpListener], settings: &Settings) -> Result<Vec<Listener>, CannotListen> {
    for listener in in_use {
        // Ends the listening. The socket keeps its address, which others may use as well from now on.
        let _ = rustix::net::shutdown(listener, Shutdown::Read);
    }
    let opened = open_tcp(settings);
    if opened.is_err() {
        let backlog = i32::try_from(settings.tcp_backlog.get()).unwrap_or(i32::MAX);
        for listener in in_use {
            if let Err(error) = rustix::net::listen(listener, backlog) {
                log::warning(format!("Can't go on listening on {:?}: {error}", listener.local_addr().ok()));
            }
        }
    }
    opened
}

fn duplicates(listeners: &[Listener]) -> Vec<TcpListener> {
    let tcp = listeners.iter().filter_map(|listener| match listener {
        Listener::Tcp(listener) | Listener::Tls(listener) => Some(listener.try_clone()),
        Listener::Unix(..) => None,
    });
    // A socket without a duplicate, for lack of descriptors, is closed when it is replaced, and blocks only its own address.
    tcp.filter_map(Result::ok).collect()
}
