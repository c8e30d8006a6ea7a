//! Sends replies, with one system call per connection and turn, and none for a socket known to be full.

use std::os::fd::AsFd;

use statistics::ticks::Ticks;

use super::EventLoop;
use crate::connection::Sent;
use crate::log;
use crate::poller::Poller;
use engine::clients::progress::Progress;

/// Size of replies from which they are sent at once. The replies of many connections would evict each other from the cache, and each would
/// need a buffer of its own.
const FLUSHED_BYTES_MIN: usize = 32 * 1024;

impl EventLoop {
    /// Lists a connection that may have output at the end of the turn.
    pub(super) fn queue_write(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let due = !connection.replies.is_empty() || connection.progress == Progress::Closing;
        if due && !connection.in_write_list {
            connection.in_write_list = true;
            self.to_write.push(key);
        }
    }

    /// Lists a connection for the end of the turn. Sends output at once if it would take much of the cache or memory until then.
    pub(super) fn queue_or_flush(&mut self, key: usize) {
        self.queue_write(key);
        let Some(connection) = self.connections.get(key) else { return };
        if connection.replies.output.len() > self.worker.reply_bytes_max().min(FLUSHED_BYTES_MIN) {
            // Before the socket takes any of it: like in Redis, replies beyond the hard limit close even a client that reads.
            if !self.close_if_over_limit(key) {
                self.flush(key);
            }
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
        // New output is for the next turn. The list keeps its memory, because it is filled again at once.
        keys.append(&mut self.to_write);
        self.to_write = keys;
    }

    /// Sends as many of a connection's replies as its socket takes, and places the rest.
    pub(super) fn flush(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.in_write_list = false;
        // The poller reports room in a full socket. A write would only waste a system call.
        if connection.socket_is_full || self.send(key) {
            self.enforce_backlog_limit(key);
        }
    }

    /// Sends as much as the socket takes. Returns true if there is or was a backlog to check.
    pub(super) fn send(&mut self, key: usize) -> bool {
        let Some(connection) = self.connections.get_mut(key) else { return false };
        let began = Ticks::now();
        let (sent, bytes) = connection.send_replies(&mut self.spare_output, &mut self.worker, &self.shared);
        self.worker.note_answered(&mut connection.session, bytes, began);
        if bytes > 0 && self.worker.note_sent(&mut connection.session, began, sent == Sent::All) {
            let network_us = tcp_info::min_round_trip_us(connection.socket.as_fd());
            connection.session.round_trips.set_network(network_us);
        }
        if let Some(backlog) = &mut connection.backlog {
            if bytes > 0 {
                self.lagging.note_read(backlog, bytes);
            }
        } else if sent == Sent::All {
            if connection.progress == Progress::Closing && connection.deferred.is_none() {
                self.close_drained(key);
            }
            return false;
        }
        if sent == Sent::Broken {
            self.close(key);
        }
        sent != Sent::Broken
    }

    /// Changes the events that the poller watches for a connection.
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
