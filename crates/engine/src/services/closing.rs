//! Connections that the server ends, and what a session that ends is taken out of.

use std::sync::Arc;

use resp::reply::{Output, Reply};

use crate::clients::client::Client;
use crate::clients::session::Session;
use crate::engine::Engine;
use crate::inbox::Message;
use crate::services::{monitors, publishing};
use crate::worker::Worker;

/// What a blocking command answers whose server becomes a replica: Redis's text.
const FORCED: &str = "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";

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

/// Ends all blocking commands with an error, and their connections with them: this server follows another primary from now on, and what
/// they wait for is that one's to give. The caller is alone behind the gate, so that no other thread has a waiter.
pub(crate) fn end_waits(worker: &mut Worker) {
    let engine = worker.engine;
    if engine.waiters.is_empty() {
        return;
    }
    for client in engine.clients.all() {
        let Some(waiter) = client.waiter().filter(|waiter| waiter.claim()) else { continue };
        engine.waiters.remove(&waiter);
        waiter.end_connection();
        let mut output = Output::default();
        Reply::new(&mut output, waiter.proto).error(FORCED);
        worker.count_failed(&waiter, FORCED.as_bytes());
        client.note_answer(&waiter);
        engine.inboxes[waiter.worker].unpark(waiter.client, output, 0);
    }
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
