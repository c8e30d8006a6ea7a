//! What other threads have for this thread's connections: pushes, replies to blocking commands, requests to close.

use engine::inbox::{Message, Push};

use super::EventLoop;
use crate::connection::Hold;

impl EventLoop {
    /// Hands out what other connections have for those of this thread.
    pub(super) fn deliver(&mut self) {
        let inbox = &self.shared.engine.inboxes[self.worker.id];
        if !inbox.is_filled() {
            return;
        }
        // Commands run after all messages are handed out: UNSUBSCRIBE has to find what is still to come in the inbox.
        let mut unparked = Vec::new();
        let mut look = false;
        for message in inbox.take() {
            match message {
                Message::Push(push) => self.push(&push),
                Message::Unpark { client, mut output } => unparked.extend(self.unpark(client, &mut output)),
                Message::Close { client } => {
                    if let Some(&key) = self.by_client.get(&client) {
                        self.close(key);
                    }
                }
                Message::Dropped { client, pushes } => {
                    if let Some(&key) = self.by_client.get(&client) {
                        self.drop_lines(key, pushes);
                    }
                }
                Message::Look => look = true,
            }
        }
        for client in unparked {
            let Some(&key) = self.by_client.get(&client) else { continue };
            if self.connections.get(key).is_some_and(|connection| connection.hold == Hold::Parked) {
                self.go_on(key);
            } else {
                // It has said meanwhile that it sends nothing more, and is closed when it has its replies.
                self.queue_write(key);
            }
        }
        if look {
            self.run_paused();
        }
    }

    fn push(&mut self, push: &Push) {
        for client in push.clients.iter() {
            let Some(&key) = self.by_client.get(client) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            // After the last reply of a connection, nothing more is said.
            if connection.session.awaits(push) && connection.hold != Hold::Closing {
                if push.may_be_dropped && !self.has_room_for_line(key, push.bytes.len()) {
                    self.drop_lines(key, 1);
                    continue;
                }
                let Some(connection) = self.connections.get_mut(key) else { continue };
                connection.replies.output.extend_shared(push.bytes.clone());
                self.queue_write(key);
                self.close_if_over_limit(key);
            }
        }
    }

    /// Gives a parked connection its reply; it can go on with the rest of its batch.
    fn unpark(&mut self, client: u64, reply: &mut resp::reply::Output) -> Option<u64> {
        let connection = self.connections.get_mut(*self.by_client.get(&client)?)?;
        self.worker.resume(&mut connection.session, reply, &mut connection.replies.output);
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
}
