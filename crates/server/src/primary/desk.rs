//! What other threads leave for the one that serves replicas.

use std::sync::Arc;

use engine::clients::client::Client;
use engine::engine::Engine;
use engine::replication::replicas::{ReplicaIntroduction, Wanted};

use super::spool::SnapshotSpool;
use crate::connection::Socket;
use crate::mailbox::Mailbox;

/// A connection that has asked for the stream.
pub struct Arrival {
    /// Its socket: all that was answered before has been sent.
    pub socket: Socket,
    /// As it is listed.
    pub client: Arc<Client>,
    /// What the replica has said of itself.
    pub introduction: ReplicaIntroduction,
    /// What it asks for.
    pub wanted: Wanted,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Desk {
    pub(super) arrivals: Mailbox<Arrival>,
    pub(super) closed: Mailbox<u64>,
    pub(super) spools: Mailbox<Arc<SnapshotSpool>>,
    engine: std::sync::OnceLock<&'static Engine>,
}

impl Desk {
    /// Names the engine whose thread is woken. Done once.
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

    /// Has a replica's connection be closed, if it is one.
    pub fn close(&self, client: u64) {
        self.closed.leave(client);
        self.wake();
    }

    /// Tells that a snapshot for replicas is being made.
    pub fn begin_snapshot(&self, spool: Arc<SnapshotSpool>) {
        self.spools.leave(spool);
        self.wake();
    }

    /// Tells that there is more of it.
    pub fn note_progress(&self) {
        self.wake();
    }
}
