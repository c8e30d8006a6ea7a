//! The state that the server's threads share, beside the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use config::Settings;
use engine::state::Engine;

use crate::heartbeats::Heartbeats;
use crate::listener::{Accepted, Listener};
use crate::mailbox::Mailbox;
use crate::primary::ReplicaHandoff;
use crate::spill::Spill;
use crate::tls::handshakes::Handshakes;

/// The state shared by the server's threads beside the engine.
pub struct Shared {
    /// The engine.
    pub engine: &'static Engine,
    /// Connections accepted for each thread.
    handed_over: Vec<Mailbox<Accepted>>,
    /// Number of connections, including those being handed over.
    connected: AtomicUsize,
    /// True once the server is ending.
    pub(crate) stopping: Arc<AtomicBool>,
    /// Sockets that replace the first thread's listeners (CONFIG SET port, bind).
    pub(crate) new_listeners: NewListeners,
    /// The files of unsent replies.
    pub(crate) spill: Spill,
    /// Takes over the connections of replicas.
    pub(crate) handoff: Arc<ReplicaHandoff>,
    /// Handshakes of the TLS port, before a thread gets the connection.
    pub(crate) handshakes: Arc<Handshakes>,
    /// Heartbeats of the threads.
    pub(crate) heartbeats: Arc<Heartbeats>,
}

/// Sockets that replace the present listeners.
pub type NewListeners = Arc<Mailbox<Vec<Listener>>>;

impl Shared {
    /// The shared state for as many threads as the engine has inboxes.
    #[must_use]
    pub fn new(
        engine: &'static Engine,
        stopping: Arc<AtomicBool>,
        new_listeners: NewListeners,
        spill: Spill,
        handoff: Arc<ReplicaHandoff>,
        handshakes: Arc<Handshakes>,
        heartbeats: Arc<Heartbeats>,
    ) -> Shared {
        Shared {
            engine,
            handed_over: engine.inboxes.iter().map(|_| Mailbox::default()).collect(),
            connected: AtomicUsize::new(0),
            stopping,
            new_listeners,
            spill,
            handoff,
            handshakes,
            heartbeats,
        }
    }

    /// Returns true once the server is ending.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Takes the connections that were accepted for a thread.
    pub(crate) fn take_accepted(&self, thread: usize) -> Vec<Accepted> {
        self.handed_over[thread].take()
    }

    /// The number of threads.
    pub(crate) fn threads(&self) -> usize {
        self.handed_over.len()
    }

    /// Hands a connection, already counted, to the worker `to`. `from` is the calling worker, if the caller is one.
    pub(crate) fn hand_to(&self, accepted: Accepted, from: Option<usize>, to: usize) {
        let was_empty = self.handed_over[to].leave(accepted);
        if from != Some(to) && was_empty {
            self.engine.inboxes[to].wake();
        }
    }

    /// Counts a connection out, or in again.
    pub(crate) fn note_leaving(&self, leaves: bool) {
        if leaves {
            self.connected.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.connected.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of connections, including those being handed over.
    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    pub(crate) fn settings(&self) -> &'static Settings {
        &self.engine.settings
    }
}
