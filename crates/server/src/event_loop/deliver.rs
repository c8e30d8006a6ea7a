//! Delivers the messages of other threads for this thread's connections: pushes, replies to blocking commands, requests to close.
//!
//! Pushes are delivered in portions, one a turn. Their sockets are then written to, and the thread's own connections have their turn before
//! the next portion. The output of a connection therefore grows by one portion at most before its socket is tried. The next portion is
//! delayed for subscribers that are behind but reading (`event_loop::lagging`). Publishers are held as soon as their room in the inbox is
//! full (`engine::inbox`).

use engine::inbox::{Message, Push};
use journal::order::Position;
use resp::reply::Output;

use super::EventLoop;
use crate::connection::Connection;
use engine::clients::client::client_flag;
use engine::clients::progress::Progress;

/// Size of a portion, roughly in bytes to send to all connections together. Sending them takes a millisecond or two.
const PORTION_WORK_MAX: usize = 2 * 1024 * 1024;

impl EventLoop {
    /// Delivers the messages of other threads, except pushes.
    pub(super) fn deliver_messages(&mut self) {
        // Unparked commands run after all messages are delivered: a message may concern the connection of one.
        let mut unparked = Vec::new();
        let (mut look, mut room) = (false, false);
        for message in self.shared.engine.inboxes[self.worker.id].take() {
            match message {
                Message::Unpark { client, mut output, pushes, durable_after } => {
                    unparked.extend(self.unpark(client, &mut output, pushes, durable_after));
                }
                Message::Close { client } => match self.by_client.get(&client) {
                    Some(&key) => self.close(key),
                    // The client may be a replica, which another thread serves.
                    None => self.shared.handoff.close(client),
                },
                Message::Dropped { client, pushes } => {
                    if let Some(&key) = self.by_client.get(&client) {
                        self.drop_lines(key, pushes);
                    }
                }
                Message::Apply { stream, version, commands, cuts } => {
                    let applied = self.worker.apply_stream(stream, version, &commands, &cuts);
                    // The primary's stream has no client that awaits a reply.
                    let _ = self.worker.take_durable_after();
                    self.shared.engine.replication.note_applied(applied);
                }
                Message::Lanes => self.worker.apply_lanes(),
                Message::Acknowledged => self.answer_acknowledged(),
                Message::SlotImports => self.worker.import_slots(),
                Message::Migrated => self.worker.end_migrations(),
                Message::ClientsMoved => self.close_moved(),
                Message::SlotsChanged => self.leave_lost_channels(),
                Message::ClusterAnswered { client, wait, reply } => self.worker.answer_for_bus(client, wait, reply),
                Message::DropSlots if self.worker.drop_slots() => self.tick_early(),
                Message::DropSlots => {}
                Message::TellReplicas => self.worker.tell_replicas(),
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
            if connection.progress == Progress::Parked && connection.session.closing {
                connection.progress = Progress::Closing;
                self.queue_write(key);
            } else if connection.progress == Progress::Parked {
                self.go_on(key);
            } else {
                // The peer has ended its input meanwhile. The connection is closed after its replies.
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

    /// Delivers a portion of the pushes for connections of this thread, from all threads.
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

    /// Delivers a connection's pending pushes before one of its commands runs: a published message precedes the replies to commands that
    /// are sent because of it.
    pub(super) fn catch_up(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        if connection.session.gets_pushes() {
            self.show_until(key, self.shared.engine.inboxes[self.worker.id].pushed());
        }
    }

    /// Delivers the connection's pushes up to this number.
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
        // No push follows the last reply of a closing connection.
        if self.connections.get(key).is_none_or(|connection| connection.progress == Progress::Closing) {
            return;
        }
        if may_be_dropped && !self.has_room_for_line(key, bytes.len()) {
            return self.drop_lines(key, 1);
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        // The limit is checked after the socket has been tried.
        connection.replies_end().extend_push(bytes);
        self.queue_write(key);
    }

    /// Closes idle connections of clients that were told to move. A client that has not read this yet reads it before the end of the
    /// connection. Subscribers keep theirs: messages reach them here, too.
    fn close_moved(&mut self) {
        let is_idle = |connection: &Connection| {
            let session = &connection.session;
            session.client.has(client_flag::HEARS_MAINTENANCE)
                && connection.progress == Progress::Ready
                && session.multi.is_none()
                && session.subscriptions.is_empty()
                && !connection.has_replies()
                && connection.input_left() == 0
        };
        let keys = self.by_client.values().copied();
        let idle: Vec<usize> = keys.filter(|&key| self.connections.get(key).is_some_and(is_idle)).collect();
        idle.into_iter().for_each(|key| self.close(key));
    }

    /// Ends the subscriptions to shard channels of slots that went to another node, and informs the clients.
    fn leave_lost_channels(&mut self) {
        let subscribed = |key: &usize| {
            let connection = self.connections.get(*key);
            connection.is_some_and(|connection| !connection.session.subscriptions.shard_channels.is_empty())
        };
        let keys: Vec<usize> = self.by_client.values().copied().filter(subscribed).collect();
        for key in keys {
            // Messages that were published earlier come first.
            self.catch_up(key);
            let Some(connection) = self.connections.get_mut(key) else { continue };
            for push in self.worker.leave_lost_channels(&mut connection.session) {
                self.show(key, &std::sync::Arc::new(push), false);
            }
        }
    }

    /// Gives a parked connection its reply, behind earlier pushes. The rest of its batch can run then.
    fn unpark(&mut self, client: u64, reply: &mut Output, pushes: u64, durable_after: Position) -> Option<u64> {
        let key = *self.by_client.get(&client)?;
        if self.connections.get(key)?.session.gets_pushes() {
            self.show_until(key, pushes);
        }
        let connection = self.connections.get_mut(key)?;
        let mut replies = Output::default();
        self.worker.resume(&mut connection.session, reply, &mut replies);
        self.take_replies(key, &mut replies, durable_after);
        Some(client)
    }

    pub(super) fn go_on(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.progress = Progress::Ready;
        if connection.backlog.is_some() {
            // There may be no room for more replies.
            self.enforce_backlog_limit(key);
        }
        if self.connections.get(key).is_some_and(|c| c.progress == Progress::Ready) {
            self.run_input(key, None);
        }
    }

    pub(super) fn run_paused(&mut self) {
        for key in std::mem::take(&mut self.paused) {
            if self.connections.get(key).is_some_and(|c| c.progress == Progress::Paused) {
                self.go_on(key);
            }
        }
    }

    /// Resumes the connections held for room in an inbox, in the order of their arrival. Connections that still have no room keep their
    /// places. Connections that have run queue behind them.
    fn run_publishers(&mut self) {
        let mut waited = std::mem::take(&mut self.publishers);
        waited.retain(|client| {
            let Some(&key) = self.by_client.get(client) else { return false };
            let Some(connection) = self.connections.get(key) else { return false };
            if connection.progress != Progress::AwaitsRoom {
                return false;
            }
            let left = connection.input_left();
            self.go_on(key);
            let Some(connection) = self.connections.get(key) else { return false };
            match connection.progress {
                // No request has run: the connection is at the end of the new queue.
                Progress::AwaitsRoom if connection.input_left() == left => self.publishers.pop_back().is_some(),
                Progress::Ready | Progress::Parked | Progress::Paused | Progress::Yielded => {
                    let write = connection.wants_write;
                    self.watch(key, true, write);
                    false
                }
                _ => false,
            }
        });
        waited.append(&mut self.publishers);
        self.publishers = waited;
    }
}
