//! The opening and closing of connections, and the end of their waits.

use std::sync::Arc;

use resp::reply::Output;

use crate::clients::client::Client;
use crate::clients::session::{ReplyMode, Session};
use crate::services;
use crate::worker::Worker;

impl Worker {
    /// Returns the state of a connection that this thread has just accepted.
    pub fn open(&mut self, addr: String, laddr: String, fd: i32, flags: u32, authenticated: bool) -> Session {
        let id = self.engine.clients.next_id();
        let client = Arc::new(Client::new(id, self.id, addr, laddr, fd, self.clock.now_ms, flags));
        self.engine.clients.add(client.clone());
        self.stats().connections.add(1);
        let mut session = Session::new(client, authenticated);
        // The client is listed before this, so later changes of the user reach it.
        session.become_user(self.engine.users.default_user().clone());
        session
    }

    /// Removes a closing connection from everything that refers to it.
    pub fn close(&mut self, session: &mut Session) {
        self.unpark(session);
        self.end_trips(session);
        self.record_last_count(session);
        services::closing::leave(self, session);
        self.engine.clients.remove(session.client.id);
    }

    /// Records the count that a closing connection has added since its last batch, for example at the end of a wait.
    /// The count must not join the next unit: another connection's reply would wait for it, even one in a replica's
    /// handshake, which replicas can't acknowledge.
    fn record_last_count(&mut self, session: &mut Session) {
        if !session.has_unrecorded_count() {
            return;
        }
        let inside = self.enter_gate();
        if inside.is_some() {
            let durable_after = self.durable_after;
            self.commit_count(session);
            self.durable_after = durable_after;
        }
    }

    /// Lists a connection again that will close after its peer has read its replies.
    pub fn come_back(&self, session: &Session) {
        if !session.client.pending_signals.is_killed() {
            self.engine.clients.add(session.client.clone());
        }
    }

    /// Removes the blocking command of a closing connection.
    pub fn unpark(&mut self, session: &mut Session) {
        let Some(waiter) = session.client.end_wait() else { return };
        if waiter.abandon() {
            self.engine.waiters.remove(&waiter);
        }
    }

    /// Answers a blocking command that has timed out. Returns false if the command is answered already, is being
    /// served, or can't be answered because of a busy script.
    pub fn time_out(&mut self, session: &mut Session, out: &mut Output) -> bool {
        let Some(waiter) = session.client.waiter() else { return false };
        {
            // The end counts for the connection's pipeline. The gate keeps other connections from taking the pipeline
            // over at this moment.
            let inside = self.enter_gate();
            if inside.is_none() || !waiter.claim() {
                return false;
            }
            self.count_ended(&waiter);
        }
        self.engine.waiters.remove(&waiter);
        // The reply says that the keys are empty; others may just have taken their values. It depends on all changes
        // therefore.
        self.depend_on_all();
        self.resume(session, &mut self.engine.timeout_reply(&waiter), out);
        true
    }

    /// Returns whether a connection waits for acknowledgements by replicas or the disk.
    #[must_use]
    pub fn awaits_acknowledgement(&self, session: &Session) -> bool {
        session.client.waiter().is_some_and(|waiter| waiter.acknowledgement().is_some())
    }

    /// Returns whether a connection waits for acknowledgements, and they have arrived.
    #[must_use]
    pub fn has_acknowledged(&self, session: &Session) -> bool {
        let waiter = session.client.waiter();
        let awaited = waiter.as_ref().and_then(|waiter| waiter.acknowledgement());
        awaited.is_some_and(|awaited| self.engine.has_acknowledged(awaited))
    }

    /// Ends a connection's wait with the awaited reply. The session may be `closing` afterwards: that reply is its last
    /// one then.
    pub fn resume(&mut self, session: &mut Session, reply: &mut Output, out: &mut Output) {
        if self.engine.journal.is_read() {
            // Another thread may have committed the command's changes.
            session.wrote = self.engine.journal.position();
        }
        if let Some(waiter) = session.client.end_wait() {
            // The command was counted at the end of its wait.
            self.note_if_slow(session, waiter.command, &waiter.args.args(), 0);
            if let Some(error) = waiter.refused() {
                self.count_refused(&waiter, error);
            }
            if waiter.ends_connection() {
                self.count_ended_by_following(&waiter);
                session.closing = true;
            }
        }
        match session.reply_mode() {
            ReplyMode::On => out.append(reply),
            ReplyMode::Skip => session.set_reply_mode(ReplyMode::On),
            ReplyMode::Off | ReplyMode::SkipNext => {}
        }
    }
}
