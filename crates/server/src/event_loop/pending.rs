//! Connections that have something to be read which no poller announces: an encrypted one decrypts whole records, and its reader may have
//! no room for all of one.

use super::EventLoop;
use crate::poller::Ready;

impl EventLoop {
    /// Notes a connection if it is such a one. It is announced in the next turn, which begins at once.
    pub(super) fn note_pending(&mut self, key: usize) {
        if self.connections.get_mut(key).is_some_and(|connection| connection.socket.begins_to_be_pending()) {
            self.pending.push(key);
        }
    }

    /// Announces the connections that were noted as the poller does: each once a turn, and none that isn't read at the moment. Those are
    /// noted again when they are.
    #[cold]
    pub(super) fn announce_pending(&mut self) {
        for ready in &mut self.ready {
            // A listener's number is no connection's.
            let Some(connection) = self.connections.get_mut(ready.token as usize) else { continue };
            if connection.socket.ends_to_be_pending() {
                ready.read |= connection.wants_read;
            }
        }
        for key in std::mem::take(&mut self.pending) {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            if connection.socket.ends_to_be_pending() && connection.wants_read {
                self.ready.push(Ready { token: key as u64, read: true, write: false });
            }
        }
    }
}
