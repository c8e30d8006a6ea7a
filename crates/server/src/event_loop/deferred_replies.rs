//! Replies held until they are durable, and commands held until the log has room.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use journal::order::Position;
use resp::reply::Output;
use statistics::batch_times::Part;

use engine::durability::GivenUp;

use super::EventLoop;
use crate::deferred_replies::errors_instead;
use engine::clients::progress::Progress;

/// The error in place of a reply that too few replicas have acknowledged in time.
const NOT_ACKNOWLEDGED: &[u8] =
    b"-NOREPLICAS Too few replicas have acknowledged within durability-timeout. What this command has changed is \
                                  changed here, and may be on replicas: look before you repeat it.\r\n";

impl EventLoop {
    /// Gives a connection the replies of its requests, which depend on the log up to `durable_after`.
    pub(super) fn take_replies(&mut self, key: usize, replies: &mut Output, durable_after: Position) {
        // In this order: given-up positions count as safe afterwards.
        let (safe, now_ms) = (self.shared.engine.durability.safe(), self.steady_ms());
        let given_up = self.give_up_where_replaced();
        if given_up.is_some_and(|given_up| given_up.concerns(durable_after)) {
            match errors_instead(replies, NOT_ACKNOWLEDGED) {
                Ok(errors) => *replies = errors,
                Err(_) => return self.close(key),
            }
        }
        let Some(connection) = self.connections.get_mut(key) else { return replies.clear(0) };
        if let Some(until) = connection.take_replies(replies, durable_after, safe, now_ms) {
            self.deferred.push(Reverse((until, connection.session.client.id)));
        }
    }

    /// Holds a connection's requests if many of its replies depend on the disk.
    pub(super) fn hold_for_disk(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if matches!(connection.progress, Progress::Ready | Progress::Yielded)
            && connection.deferred.as_ref().is_some_and(|deferred| deferred.is_much())
        {
            connection.progress = Progress::AwaitsDisk;
            connection.session.batches.note_hold(Part::Disk);
        }
    }

    /// Returns true if the first held replies are durable. Otherwise the log's thread wakes this thread once they are.
    pub(super) fn has_settled(&self) -> bool {
        let next = self.deferred.peek();
        next.is_some_and(|Reverse((until, _))| !self.shared.engine.durability.wait_for(self.worker.id, *until))
    }

    /// Releases the replies that are durable, and resumes connections that were held for them or for the log.
    pub(super) fn release_settled(&mut self) {
        // In this order: given-up positions count as safe afterwards.
        let safe = self.shared.engine.durability.safe();
        self.give_up_where_replaced();
        while let Some(&Reverse((until, client))) = self.deferred.peek()
            && until <= safe
        {
            self.deferred.pop();
            if let Some(&key) = self.by_client.get(&client) {
                self.release_connection(key, safe);
            }
        }
        if !self.log_waiters.is_empty() && self.worker.ends_wait_for_log() {
            for client in std::mem::take(&mut self.log_waiters) {
                if let Some(&key) = self.by_client.get(&client) {
                    self.go_on_reading(key, Progress::AwaitsLog);
                }
            }
        }
    }

    /// Replaces the replies that have waited too long for replicas with errors.
    pub(super) fn give_up_on_replicas(&mut self) {
        let engine = self.shared.engine;
        let timeout_ms = engine.settings.durability_timeout_ms.get().unsigned_abs();
        let next = self.deferred.peek().map(|Reverse((until, _))| *until);
        if timeout_ms == 0 || !next.is_some_and(|until| engine.durability.lacks_replicas(until)) {
            return;
        }
        let since_ms = self.steady_ms().saturating_sub(timeout_ms);
        self.give_up(|until, began_ms| until > 0 && began_ms <= since_ms);
    }

    /// Replaces held replies with errors on a server that has become a replica itself: their changes may be lost. Returns the replies
    /// concerned, if that has happened since the last check.
    fn give_up_where_replaced(&mut self) -> Option<GivenUp> {
        let given_up = self.shared.engine.durability.take_given_up(&mut self.given_up_seen)?;
        self.give_up(|until, _| given_up.concerns(until));
        Some(given_up)
    }

    fn give_up(&mut self, is_over: impl Fn(Position, u64) -> bool) {
        let engine = self.shared.engine;
        let waiting: BTreeSet<u64> = self.deferred.iter().map(|Reverse((_, client))| *client).collect();
        for client in waiting {
            let Some(&key) = self.by_client.get(&client) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let Some(deferred) = &mut connection.deferred else { continue };
            match deferred.give_up(&is_over, NOT_ACKNOWLEDGED) {
                Ok(false) => {}
                // Pushes tell a client which cached keys are invalid. No connection is better than a wrong cache.
                Ok(true) if connection.session.gets_pushes() => self.close(key),
                Ok(true) => self.release_connection(key, engine.durability.safe()),
                Err(_) => self.close(key),
            }
        }
    }

    pub(super) fn release_connection(&mut self, key: usize, safe: Position) {
        self.send_held(key, safe);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let ahead = connection.replies.len();
        connection.release_replies(safe);
        self.note_release(key, safe, ahead);
        let Some(connection) = self.connections.get_mut(key) else { return };
        let has_room = connection.deferred.as_ref().is_none_or(|left| !left.is_much());
        if has_room {
            self.go_on_reading(key, Progress::AwaitsDisk);
        }
        self.queue_or_flush(key);
    }

    /// Runs the input of a connection that was held for this reason, and reads on.
    pub(super) fn go_on_reading(&mut self, key: usize, held: Progress) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.progress != held {
            return;
        }
        connection.progress = Progress::Ready;
        if connection.input_left() > 0 {
            connection.progress = Progress::Yielded;
            self.yielded.push_back(key);
        }
        let write = connection.wants_write;
        self.watch(key, true, write);
    }
}
