//! Accepts new connections on the first thread and hands them to the threads in turn.

use std::os::fd::AsFd;

use engine::state::Engine;
use engine::worker::Worker;

use crate::listener::{self, Accepted, Listener, Reserve};
use crate::log;
use crate::poller::{Epoll, Poller, Ready};
use crate::shared::Shared;

/// The poller's token of the first listener. Connections have the tokens from 0.
pub const LISTENERS: u64 = 1 << 62;
/// Connections accepted in one turn. The kernel's queue holds the others.
const ACCEPTS_AT_ONCE: usize = 1000;

/// The listening sockets and the choice of a thread for each new connection.
pub struct Acceptor {
    /// Empty on all threads but the first.
    listeners: Vec<Listener>,
    reserve: Reserve,
    /// The thread that gets the next connection.
    next_thread: usize,
}

impl Acceptor {
    /// An acceptor for sockets that the poller already watches.
    #[must_use]
    pub fn new(listeners: Vec<Listener>) -> Acceptor {
        Acceptor { listeners, reserve: Reserve::new(), next_thread: 0 }
    }

    /// Replaces the sockets (CONFIG SET port, bind).
    pub fn replace(&mut self, listeners: Vec<Listener>, poller: &Epoll) {
        // Unix sockets stay: they can't be changed while the server runs.
        let (unix, tcp): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.listeners).into_iter().partition(|l| matches!(l, Listener::Unix(..)));
        drop(tcp);
        unix.iter().for_each(|l| poller.remove(l.as_fd()));
        self.listeners = listeners.into_iter().chain(unix).collect();
        for (i, listener) in self.listeners.iter().enumerate() {
            if let Err(error) = poller.add(listener.as_fd(), LISTENERS + i as u64) {
                log::warning(format!("can't watch a listening socket: {error}"));
            }
        }
    }

    /// Accepts connections and hands them to the threads in turn.
    pub fn accept(&mut self, ready: &[Ready], worker: &Worker, shared: &Shared) {
        for index in ready.iter().filter_map(|ready| ready.token.checked_sub(LISTENERS)) {
            self.accept_from(index as usize, worker, shared);
        }
    }

    fn accept_from(&mut self, index: usize, worker: &Worker, shared: &Shared) {
        for _ in 0..ACCEPTS_AT_ONCE {
            let Some(listener) = self.listeners.get(index) else { return };
            match listener::accept(listener) {
                Ok(Some(accepted)) => {
                    let is_tls = matches!(listener, Listener::Tls(_));
                    self.welcome(accepted, is_tls, worker, shared);
                }
                Ok(None) => return,
                Err(error) if listener::is_out_of_descriptors(&error) => {
                    worker.stats().rejected_connections.add(1);
                    return self.reserve.turn_away(listener);
                }
                Err(error) => return log::warning(format!("Accepting client connection: {error}")),
            }
        }
    }

    /// Refuses a connection, or assigns it to a thread.
    fn welcome(&mut self, mut accepted: Accepted, is_tls: bool, worker: &Worker, shared: &Shared) {
        let settings = shared.settings();
        let (connected, limit) = (shared.connected() as i64, settings.maxclients.get());
        accepted.is_on_reserve = connected >= limit;
        if connected >= limit.saturating_add(settings.operator_connections.get()) {
            worker.stats().rejected_connections.add(1);
            return refuse(accepted, is_tls, b"-ERR max number of clients reached\r\n");
        }
        if !accepted.is_local && is_protected(shared.engine) {
            worker.stats().rejected_connections.add(1);
            return refuse(accepted, is_tls, PROTECTED.as_bytes());
        }
        listener::keep_alive(&accepted.socket, settings.tcp_keepalive_s.get());
        shared.note_leaving(false);
        if is_tls {
            return shared.handshakes.take(accepted, shared);
        }
        shared.hand_to(accepted, Some(worker.id), self.next_thread);
        self.next_thread = (self.next_thread + 1) % shared.threads();
    }
}

/// Sends the reason for a refusal and closes the connection. A TLS connection gets no text, because it expects a handshake first.
fn refuse(accepted: Accepted, is_tls: bool, text: &[u8]) {
    if !is_tls {
        listener::refuse(accepted, text);
    }
}

/// True if connections from other machines are refused: protected mode is on, and the default user has no password.
pub(crate) fn is_protected(engine: &Engine) -> bool {
    engine.settings.protected_mode.get() && engine.users.default_needs_no_password()
}

/// The reply to a connection from another machine in protected mode. Clients look for its first word.
const PROTECTED: &str = "-DENIED Redis is running in protected mode because protected mode is enabled and no password \
is set for the default user. In this mode connections are only accepted from the loopback interface. If you want to \
connect from external computers, you may adopt one of the following solutions: 1) Disable protected mode by sending \
the command 'CONFIG SET protected-mode no' from the loopback interface, by connecting from the same host the server is \
running on. Make sure the server is not publicly accessible from the internet if you do so. Use CONFIG REWRITE to make \
this change permanent. 2) Disable protected mode in the configuration file by setting the protected-mode option to \
'no', and then restarting the server. 3) Start the server with the '--protected-mode no' option. 4) Set up an \
authentication password for the default user. NOTE: You only need to do one of the above things in order for the \
server to start accepting connections from the outside.\r\n";
