//! Replies that wait for the disk, and commands that wait for room in the log.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use journal::order::Position;
use resp::reply::Output;

use engine::durability::GivenUp;

use super::EventLoop;
use crate::connection::Hold;
use crate::unsettled::errors_instead;

/// What is answered in place of a reply that too few replicas have acknowledged in time.
const NOT_ACKNOWLEDGED: &[u8] =
    b"-NOREPLICAS Too few replicas have acknowledged within durability-timeout. What this command has changed is \
                                  changed here, and may be on replicas: look before you repeat it.\r\n";

impl EventLoop {
    /// Gives a connection what its requests were answered, which depends on the log up to `depends`.
    pub(super) fn take_replies(&mut self, key: usize, replies: &mut Output, depends: Position) {
        // In this order: what was given up counts as safe from then on.
        let (safe, now_ms) = (self.shared.engine.durability.safe(), self.steady_ms());
        let given_up = self.give_up_where_replaced();
        if given_up.is_some_and(|given_up| given_up.concerns(depends)) {
            match errors_instead(replies, NOT_ACKNOWLEDGED) {
                Ok(errors) => *replies = errors,
                Err(_) => return self.close(key),
            }
        }
        let Some(connection) = self.connections.get_mut(key) else { return replies.clear(0) };
        if let Some(until) = connection.take_replies(replies, depends, safe, now_ms) {
            self.unsettled.push(Reverse((until, connection.session.client.id)));
        }
    }

    /// Has a connection's requests wait if much of what it was answered waits for the disk.
    pub(super) fn hold_unsettled(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if matches!(connection.hold, Hold::None | Hold::Yielded)
            && connection.unsettled.as_ref().is_some_and(|unsettled| unsettled.is_much())
        {
            connection.hold = Hold::Unsettled;
        }
    }

    /// Whether replies wait no longer; if not, has the log's thread wake this one when they don't.
    pub(super) fn has_settled(&self) -> bool {
        let next = self.unsettled.peek();
        next.is_some_and(|Reverse((until, _))| !self.shared.engine.durability.wait_for(self.worker.id, *until))
    }

    /// Has replies be sent that wait no longer, and connections go on that have waited for that, or for the log.
    pub(super) fn release_settled(&mut self) {
        // In this order: what was given up counts as safe from then on.
        let safe = self.shared.engine.durability.safe();
        self.give_up_where_replaced();
        while let Some(&Reverse((until, client))) = self.unsettled.peek()
            && until <= safe
        {
            self.unsettled.pop();
            if let Some(&key) = self.by_client.get(&client) {
                self.release_connection(key, safe);
            }
        }
        if !self.log_waiters.is_empty() && self.worker.ends_wait_for_log() {
            for client in std::mem::take(&mut self.log_waiters) {
                if let Some(&key) = self.by_client.get(&client) {
                    self.go_on_reading(key, Hold::AwaitsLog);
                }
            }
        }
    }

    /// Answers errors in place of replies that have waited for replicas for longer than they may.
    pub(super) fn give_up_on_replicas(&mut self) {
        let engine = self.shared.engine;
        let timeout_ms = engine.settings.durability_timeout_ms.get().unsigned_abs();
        let next = self.unsettled.peek().map(|Reverse((until, _))| *until);
        if timeout_ms == 0 || !next.is_some_and(|until| engine.durability.lacks_replicas(until)) {
            return;
        }
        let since_ms = self.steady_ms().saturating_sub(timeout_ms);
        self.give_up(|until, began_ms| until > 0 && began_ms <= since_ms);
    }

    /// Answers errors in place of replies that wait for replicas on a server that has become one itself: what they tell of may be lost.
    /// Which those are, if it has since the last look.
    fn give_up_where_replaced(&mut self) -> Option<GivenUp> {
        let given_up = self.shared.engine.durability.take_given_up(&mut self.given_up_seen)?;
        self.give_up(|until, _| given_up.concerns(until));
        Some(given_up)
    }

    fn give_up(&mut self, is_over: impl Fn(Position, u64) -> bool) {
        let engine = self.shared.engine;
        let waiting: BTreeSet<u64> = self.unsettled.iter().map(|Reverse((_, client))| *client).collect();
        for client in waiting {
            let Some(&key) = self.by_client.get(&client) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let Some(unsettled) = &mut connection.unsettled else { continue };
            match unsettled.give_up(&is_over, NOT_ACKNOWLEDGED) {
                Ok(false) => {}
                // What is pushed to a client tells it what its cache may not have any more: better none than a wrong one.
                Ok(true) if connection.session.gets_pushes() => self.close(key),
                Ok(true) => self.release_connection(key, engine.durability.safe()),
                Err(_) => self.close(key),
            }
        }
    }

    fn release_connection(&mut self, key: usize, safe: Position) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.release_replies(safe);
        let has_room = connection.unsettled.as_ref().is_none_or(|left| !left.is_much());
        if has_room {
            self.go_on_reading(key, Hold::Unsettled);
        }
        self.queue_or_flush(key);
    }

    /// Has a connection that was held for this reason run what it has sent, and read on.
    pub(super) fn go_on_reading(&mut self, key: usize, held: Hold) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.hold != held {
            return;
        }
        connection.hold = Hold::None;
        if connection.input_left() > 0 {
            connection.hold = Hold::Yielded;
            self.yielded.push_back(key);
        }
        let write = connection.wants_write;
        self.watch(key, true, write);
    }
}
