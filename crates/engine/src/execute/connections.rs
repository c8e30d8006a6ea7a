//! Connections that come and go, and the end of their waits.

use std::sync::Arc;

use resp::reply::Output;

use crate::clients::client::Client;
use crate::clients::session::{ReplyMode, Session};
use crate::services;
use crate::worker::Worker;

impl Worker {
    /// The state of a connection that has just been accepted by this thread.
    pub fn open(&mut self, addr: String, laddr: String, fd: i32, flags: u32, authenticated: bool) -> Session {
        let id = self.engine.clients.next_id();
        let client = Arc::new(Client::new(id, self.id, addr, laddr, fd, self.clock.now_ms, flags));
        self.engine.clients.add(client.clone());
        self.stats().connections.add(1);
        let mut session = Session::new(client, authenticated);
        // After it is listed: a change of the user is told to it from then on.
        session.become_user(self.engine.users.default_user().clone());
        session
    }

    /// Takes a connection that is being closed out of everything that knows it.
    pub fn close(&mut self, session: &mut Session) {
        self.unpark(session);
        self.end_trips(session);
        self.record_last_count(session);
        services::closing::leave(self, session);
        self.engine.clients.remove(session.client.id);
    }

    /// Records what a connection that ends has counted since its last batch, as the end of a wait. It must not become a part of the next unit:
    /// another connection's reply would wait for it, be it that of a replica's handshake, which replicas can't acknowledge.
    fn record_last_count(&mut self, session: &mut Session) {
        if !session.has_unrecorded_count() {
            return;
        }
        let inside = self.pass();
        if inside.is_some() {
            let depends = self.depends;
            self.commit_count(session);
            self.depends = depends;
        }
    }

    /// Lists a connection again that is closed once its peer has read its replies.
    pub fn come_back(&self, session: &Session) {
        if !session.client.summons.is_killed() {
            self.engine.clients.add(session.client.clone());
        }
    }

    /// Forgets the blocking command that a connection waits in which is being closed.
    pub fn unpark(&mut self, session: &mut Session) {
        let Some(waiter) = session.client.end_wait() else { return };
        if waiter.abandon() {
            self.engine.waiters.remove(&waiter);
        }
    }

    /// Answers a blocking command that has waited for as long as it may. False if it has been answered, or is just
    /// being, or can't be as long as a script takes too long.
    pub fn time_out(&mut self, session: &mut Session, out: &mut Output) -> bool {
        let Some(waiter) = session.client.waiter() else { return false };
        {
            // Its end counts for its pipeline, which no other connection may take over at this moment.
            let inside = self.pass();
            if inside.is_none() || !waiter.claim() {
                return false;
            }
            self.count_ended(&waiter);
        }
        self.engine.waiters.remove(&waiter);
        // It tells that the keys have nothing: what they had may just have been taken by others.
        self.depend_on_all();
        self.resume(session, &mut self.engine.timeout_reply(&waiter), out);
        true
    }

    /// Whether a connection waits for what replicas and the disk have.
    #[must_use]
    pub fn awaits_acknowledgement(&self, session: &Session) -> bool {
        session.client.waiter().is_some_and(|waiter| waiter.acknowledgement().is_some())
    }

    /// Whether a connection waits for what replicas and the disk have, and they have it.
    #[must_use]
    pub fn has_acknowledged(&self, session: &Session) -> bool {
        let waiter = session.client.waiter();
        let awaited = waiter.as_ref().and_then(|waiter| waiter.acknowledgement());
        awaited.is_some_and(|awaited| self.engine.has_acknowledged(awaited))
    }

    /// Ends a connection's wait with the reply that it waited for. The session may be `closing` afterwards: then that reply is its last.
    pub fn resume(&mut self, session: &mut Session, reply: &mut Output, out: &mut Output) {
        if self.engine.journal.is_read() {
            // Another thread may have committed what the command has changed.
            session.wrote = self.engine.journal.position();
        }
        if let Some(waiter) = session.client.end_wait() {
            // It was counted when its wait was ended.
            self.note_if_slow(session, waiter.command, &waiter.args.args(), 0);
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
