//! Messages of other threads to the thread that serves replicas.

use std::sync::Arc;

use engine::clients::client::Client;
use engine::replication::replicas::{ReplicaIntroduction, Wanted};
use engine::state::Engine;

use super::spool::SnapshotSpool;
use crate::connection::Socket;
use crate::mailbox::Mailbox;

/// A connection that has asked for the stream.
pub struct Arrival {
    /// Its socket, after all earlier replies have been sent.
    pub socket: Socket,
    /// Its entry in the list of clients.
    pub client: Arc<Client>,
    /// The replica's description of itself.
    pub introduction: ReplicaIntroduction,
    /// The position that it asks for.
    pub wanted: Wanted,
}

/// The mailboxes of the thread.
#[derive(Default)]
pub struct ReplicaHandoff {
    pub(super) arrivals: Mailbox<Arrival>,
    pub(super) closed: Mailbox<u64>,
    pub(super) spools: Mailbox<Arc<SnapshotSpool>>,
    engine: std::sync::OnceLock<&'static Engine>,
}

impl ReplicaHandoff {
    /// Sets the engine with the waker of the thread. Called once.
    pub fn begin(&self, engine: &'static Engine) {
        let _ = self.engine.set(engine);
    }

    fn wake(&self) {
        if let Some(engine) = self.engine.get() {
            engine.replication.stream.wake();
        }
    }

    /// Hands a connection over.
    pub fn arrive(&self, arrival: Arrival) {
        self.arrivals.leave(arrival);
        self.wake();
    }

    /// Requests the close of a client's connection if it is a replica.
    pub fn close(&self, client: u64) {
        self.closed.leave(client);
        self.wake();
    }

    /// Announces a new snapshot for replicas.
    pub fn begin_snapshot(&self, spool: Arc<SnapshotSpool>) {
        self.spools.leave(spool);
        self.wake();
    }

    /// Announces more bytes of the snapshot.
    pub fn note_progress(&self) {
        self.wake();
    }
}
