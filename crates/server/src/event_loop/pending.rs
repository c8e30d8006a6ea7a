//! Connections with unread input that no poller announces: an encrypted connection decrypts whole records, and its reader may have no room
//! for a whole one.

use super::EventLoop;
use crate::poller::Ready;

impl EventLoop {
    /// Lists a connection with such input. The next turn announces it, and begins at once.
    pub(super) fn note_pending(&mut self, key: usize) {
        if self.connections.get_mut(key).is_some_and(|connection| connection.socket.begins_to_be_pending()) {
            self.pending.push(key);
        }
    }

    /// Announces the listed connections like the poller, each once a turn. Connections that aren't read at the moment are listed again when
    /// they are.
    #[cold]
    pub(super) fn announce_pending(&mut self) {
        for ready in &mut self.ready {
            // A listener's token belongs to no connection.
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
