//! What other threads have for this thread's connections: pushes, replies to blocking commands, requests to close.
//!
//! Pushes are handed out in portions, one a turn: then the sockets concerned are written to, and the thread's own
//! connections have their turn, before the next. So nothing that a connection is yet to be sent grows by more than a
//! portion before its socket is tried. For subscribers that are behind, though they read, the next portion waits
//! (`event_loop::lagging`), and so do publishers as soon as their room in the inbox is full (`engine::inbox`).

use engine::inbox::{Message, Push};
use journal::order::Position;
use resp::reply::Output;

use super::EventLoop;
use crate::connection::Hold;

/// How much is handed out at once, roughly bytes to be sent to all connections together: what sending takes a
/// millisecond or two for.
const PORTION_WORK_MAX: usize = 2 * 1024 * 1024;

impl EventLoop {
    /// Hands out what other threads have for connections of this one, but for pushes.
    pub(super) fn deliver_messages(&mut self) {
        // Unparked commands run after all messages are handed out: a message may concern the connection of one.
        let mut unparked = Vec::new();
        let (mut look, mut room) = (false, false);
        for message in self.shared.engine.inboxes[self.worker.id].take() {
            match message {
                Message::Unpark { client, mut output, pushes, depends } => {
                    unparked.extend(self.unpark(client, &mut output, pushes, depends));
                }
                Message::Close { client } => match self.by_client.get(&client) {
                    Some(&key) => self.close(key),
                    // It may be a replica, which another thread serves.
                    None => self.shared.desk.close(client),
                },
                Message::Dropped { client, pushes } => {
                    if let Some(&key) = self.by_client.get(&client) {
                        self.drop_lines(key, pushes);
                    }
                }
                Message::Apply { stream, version, commands, cuts } => {
                    let applied = self.worker.apply_stream(stream, version, &commands, &cuts);
                    // No client is answered.
                    let _ = self.worker.take_depends();
                    self.shared.engine.replication.note_applied(applied);
                }
                Message::Lanes => self.worker.apply_lanes(),
                Message::Acknowledged => self.answer_acknowledged(),
                Message::Migrated => self.worker.end_migrations(),
                Message::Look => look = true,
                Message::Room { inbox } => {
                    self.worker.note_room(inbox);
                    room = true;
                }
            }
        }
        for client in unparked {
            let Some(&key) = self.by_client.get(&client) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            if connection.hold == Hold::Parked && connection.session.closing {
                connection.hold = Hold::Closing;
                self.queue_write(key);
            } else if connection.hold == Hold::Parked {
                self.go_on(key);
            } else {
                // It has said meanwhile that it sends nothing more, and is closed when it has its replies.
                self.queue_write(key);
            }
        }
        if look {
            self.run_paused();
        }
        if room {
            self.run_publishers();
        }
    }

    /// Hands out a portion of the pushes for connections of this thread, whichever thread they come from.
    pub(super) fn deliver_pushes(&mut self) {
        let inboxes = &self.shared.engine.inboxes;
        if !inboxes[self.worker.id].is_filled() || self.must_wait_for_readers() {
            return;
        }
        let portion = inboxes[self.worker.id].take_pushes(PORTION_WORK_MAX);
        for thread in portion.has_room {
            inboxes[thread].send(Message::Room { inbox: self.worker.id });
        }
        portion.pushes.iter().for_each(|push| self.push(push));
    }

    fn push(&mut self, push: &Push) {
        for client in push.clients.iter() {
            let Some(&key) = self.by_client.get(client) else { continue };
            let Some(connection) = self.connections.get(key) else { continue };
            if connection.session.awaits(push) {
                self.show(key, &push.bytes, push.may_be_dropped);
            }
        }
    }

    /// Shows a connection the pushes that wait for it, before a command of it runs: whatever makes a client send one
    /// because of something that was published gets to see that first.
    pub(super) fn catch_up(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        if connection.session.gets_pushes() {
            self.show_until(key, self.shared.engine.inboxes[self.worker.id].pushed());
        }
    }

    /// The same of the pushes up to this number.
    fn show_until(&mut self, key: usize, until: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let session = &mut connection.session;
        if session.pushes_seen >= until {
            return;
        }
        let after = std::mem::replace(&mut session.pushes_seen, until);
        let inbox = &self.shared.engine.inboxes[self.worker.id];
        for waiting in inbox.pushes_for(session.client.id, after, until) {
            self.show(key, &waiting.bytes, waiting.may_be_dropped);
        }
    }

    fn show(&mut self, key: usize, bytes: &std::sync::Arc<Vec<u8>>, may_be_dropped: bool) {
        // After the last reply of a connection, nothing more is said.
        if self.connections.get(key).is_none_or(|connection| connection.hold == Hold::Closing) {
            return;
        }
        if may_be_dropped && !self.has_room_for_line(key, bytes.len()) {
            return self.drop_lines(key, 1);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        // Whether that is too much shows when its socket has been tried.
        connection.replies_end().extend_push(bytes);
        self.queue_write(key);
    }

    /// Gives a parked connection its reply, behind what was pushed before; it can go on with the rest of its batch.
    fn unpark(&mut self, client: u64, reply: &mut Output, pushes: u64, depends: Position) -> Option<u64> {
        let key = *self.by_client.get(&client)?;
        if self.connections.get(key)?.session.gets_pushes() {
            self.show_until(key, pushes);
        }
        let connection = self.connections.get_mut(key)?;
        let mut replies = Output::default();
        self.worker.resume(&mut connection.session, reply, &mut replies);
        self.take_replies(key, &mut replies, depends);
        Some(client)
    }

    pub(super) fn go_on(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.hold = Hold::None;
        if connection.backlog.is_some() {
            // There may be no room for more replies.
            self.mind_backlog(key);
        }
        if self.connections.get(key).is_some_and(|c| c.hold == Hold::None) {
            self.run_input(key);
        }
    }

    pub(super) fn run_paused(&mut self) {
        for key in std::mem::take(&mut self.paused) {
            if self.connections.get(key).is_some_and(|c| c.hold == Hold::Paused) {
                self.go_on(key);
            }
        }
    }

    /// Goes on with the connections that wait for room in another thread's inbox, or this one's, in the order in which
    /// they came. Those that still find none keep their places before those that have run.
    fn run_publishers(&mut self) {
        let mut waited = std::mem::take(&mut self.publishers);
        waited.retain(|client| {
            let Some(&key) = self.by_client.get(client) else { return false };
            let Some(connection) = self.connections.get(key) else { return false };
            if connection.hold != Hold::Overfilled {
                return false;
            }
            let left = connection.input_left();
            self.go_on(key);
            let Some(connection) = self.connections.get(key) else { return false };
            match connection.hold {
                // Nothing of it has run: it is at the end of the new queue.
                Hold::Overfilled if connection.input_left() == left => self.publishers.pop_back().is_some(),
                Hold::Overfilled | Hold::Full | Hold::Unsettled | Hold::AwaitsLog | Hold::Closing => false,
                Hold::None | Hold::Parked | Hold::Paused | Hold::Yielded => {
                    let write = connection.wants_write;
                    self.watch(key, true, write);
                    false
                }
            }
        });
        waited.append(&mut self.publishers);
        self.publishers = waited;
    }
}
