//! Closing of connections by the server, and cleanup after a session.

use std::sync::Arc;

use crate::clients::client::Client;
use crate::clients::session::Session;
use crate::inbox::Message;
use crate::services::{maintenance, monitors, publishing};
use crate::state::Engine;
use crate::worker::Worker;

/// Closes another connection. Its own worker does so soon; from now on nobody finds it or sends to it.
pub(crate) fn close_client(engine: &Engine, client: &Arc<Client>) {
    // Must precede the check for a waiter: the worker that parks the connection checks the signal afterwards.
    client.pending_signals.kill();
    engine.clients.remove(client.id);
    if let Some(waiter) = client.waiter()
        && waiter.abandon()
    {
        engine.waiters.remove(&waiter);
    }
    engine.inboxes[client.worker].send(Message::Close { client: client.id });
}

/// Removes a session that ends from everything that its commands have registered it in.
pub(crate) fn leave(worker: &mut Worker, session: &mut Session) {
    session.unwatch(&worker.engine.watchers);
    publishing::leave_all(worker, session);
    monitors::leave(worker, session);
    maintenance::stop(worker, session);
    if let Some(tracker) = session.client.tracker() {
        worker.engine.tracking.end(tracker);
        session.set_caches(false);
    }
    // RESET ends the count within a batch. A connection that closes has recorded its last batch.
    if worker.effects.recording && session.has_unrecorded_count() {
        session.record_count(false, &mut worker.unit.record);
    }
    session.leave_pipeline(&worker.engine.pipelines, worker.clock.now_ms);
}
