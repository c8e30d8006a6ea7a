//! Sending replies: one system call per connection and turn, and none for one whose socket is known to be full.

use std::os::fd::AsFd;

use engine::machine::ticks::Ticks;

use super::EventLoop;
use crate::connection::{Hold, Sent};
use crate::log;
use crate::poller::Poller;

/// Bytes of replies from which on they are sent as soon as they are written: those of many connections would push each
/// other out of the cache, and each would need a buffer of its own.
const FLUSHED_BYTES_MIN: usize = 32 * 1024;

impl EventLoop {
    /// Notes that a connection may have something to be sent at the end of the turn.
    pub(super) fn queue_write(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let due = !connection.replies.is_empty() || connection.hold == Hold::Closing;
        if due && !connection.in_write_list {
            connection.in_write_list = true;
            self.to_write.push(key);
        }
    }

    /// The same, but sends at once what would take much of the cache, or of the memory, until then.
    pub(super) fn queue_or_flush(&mut self, key: usize) {
        self.queue_write(key);
        let Some(connection) = self.connections.get(key) else { return };
        if connection.replies.output.len() > self.worker.reply_bytes_max().min(FLUSHED_BYTES_MIN) {
            self.flush(key);
        }
    }

    /// Sends every connection's replies.
    pub(super) fn write(&mut self) {
        let mut keys = std::mem::take(&mut self.to_write);
        for key in keys.drain(..) {
            if self.connections.get(key).is_some_and(|c| c.in_write_list) {
                self.flush(key);
            }
        }
        // What came meanwhile is for the next turn. The list keeps its memory: it is filled again at once.
        keys.append(&mut self.to_write);
        self.to_write = keys;
    }

    /// Sends a connection's replies as far as its socket takes them, and finds a place for the rest.
    pub(super) fn flush(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.in_write_list = false;
        // Where the socket is full the poller says when there is room: to try would cost a system call for nothing.
        if connection.socket_is_full || self.send(key) {
            self.mind_backlog(key);
        }
    }

    /// Sends what the socket takes. Says whether there is, or was, a backlog to be minded.
    pub(super) fn send(&mut self, key: usize) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let began = Ticks::now();
        let (sent, bytes) = connection.send_replies(&mut self.spare_output, &mut self.worker, &self.shared);
        if bytes > 0 {
            self.worker.note_sent(&mut connection.session, began, sent == Sent::All);
        }
        if let Some(backlog) = &mut connection.backlog {
            if bytes > 0 {
                self.lagging.note_read(backlog, bytes);
            }
        } else if sent == Sent::All {
            if connection.hold == Hold::Closing && connection.unsettled.is_none() {
                self.close_drained(key);
            }
            return false;
        }
        if sent == Sent::Broken {
            self.close(key);
        }
        sent != Sent::Broken
    }

    /// Watches a connection for what it is to be watched for now.
    pub(super) fn watch(&mut self, key: usize, read: bool, write: bool) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if (connection.wants_read, connection.wants_write) == (read, write) {
            return;
        }
        (connection.wants_read, connection.wants_write) = (read, write);
        if let Err(error) = self.poller.watch(connection.socket.as_fd(), key as u64, read, write) {
            log::warning(format!("can't watch a connection: {error}"));
            self.close(key);
        } else if read {
            self.note_pending(key);
        }
    }
}
