//! Connections that the server ends, and what a session that ends is taken out of.

use std::sync::Arc;

use crate::clients::client::Client;
use crate::clients::session::Session;
use crate::engine::Engine;
use crate::inbox::Message;
use crate::services::{monitors, publishing};
use crate::worker::Worker;

/// Ends another connection. Its own thread closes it soon; from now on it is not found any more, and is given nothing.
pub(crate) fn close_client(engine: &Engine, client: &Arc<Client>) {
    // Before its wait is looked at: the thread that parks it looks at this afterwards.
    client.summons.kill();
    engine.clients.remove(client.id);
    if let Some(waiter) = client.waiter()
        && waiter.abandon()
    {
        engine.waiters.remove(&waiter);
    }
    engine.inboxes[client.worker].send(Message::Close { client: client.id });
}

/// Takes a session that ends out of what its commands have entered it into.
pub(crate) fn leave(worker: &mut Worker, session: &mut Session) {
    session.unwatch(&worker.engine.watchers);
    publishing::leave_all(worker, session);
    monitors::leave(worker, session);
    if let Some(tracker) = session.client.tracker() {
        worker.engine.tracking.end(tracker);
        session.set_caches(false);
    }
    // RESET ends the count in the midst of a batch. A connection that closes has had its last batch counted.
    if worker.effects.recording && session.has_unrecorded_count() {
        session.record_count(false, &mut worker.unit.record);
    }
    session.leave_pipeline(&worker.engine.pipelines, worker.clock.now_ms);
}
