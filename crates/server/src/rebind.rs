//! CONFIG SET port and bind: other sockets in place of those that are listened on.
//!
//! The thread that accepts has the sockets, and the command may run on any other. So duplicates of them are kept here.

use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

use engine::config::Settings;
use rustix::net::Shutdown;

use crate::listener::{CannotListen, Listener, open_tcp};
use crate::log;

/// Duplicates of the TCP sockets that are listened on.
pub struct InUse(Mutex<Vec<TcpListener>>);

impl InUse {
    /// Of these sockets.
    #[must_use]
    pub fn of(listeners: &[Listener]) -> InUse {
        InUse(Mutex::new(duplicates(listeners)))
    }

    /// Opens what the settings ask for now, in place of what was listened on before.
    ///
    /// # Errors
    /// What is to be logged. All is as before then.
    pub fn replace(&self, settings: &Settings) -> Result<Vec<Listener>, String> {
        let mut in_use = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = match open_tcp(settings) {
            // Perhaps taken by this server itself: an address can't be listened on twice, nor beside all addresses.
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

/// Opens what the settings ask for while these are not listened on. Clients that connect just then are refused, as in
/// Redis, which closes its listeners first.
fn open_instead(in_use: &[TcpListener], settings: &Settings) -> Result<Vec<Listener>, CannotListen> {
    for listener in in_use {
        // The end of listening: the socket keeps its address, which others may have as well from now on.
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
    // One without a duplicate, for want of descriptors, is closed when it is replaced, and in the way only of itself.
    tcp.filter_map(Result::ok).collect()
}
