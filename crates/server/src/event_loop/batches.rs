//! The times of batches: the events that only the loop sees. Most batches have none of them: their replies leave at the
//! end of the turn.

use journal::order::Position;
use statistics::ticks::Ticks;

use super::EventLoop;
use crate::connection::Connection;

/// Places the replies of a batch that has become complete, unless the next send begins with them.
#[inline]
pub(super) fn place(connection: &mut Connection) {
    if connection.deferred.is_some() || connection.socket_is_full || connection.replies.is_spilling() {
        place_behind(connection);
    }
}

#[cold]
fn place_behind(connection: &mut Connection) {
    let in_file = connection.replies.len() - connection.replies.output.len() as u64;
    if connection.deferred.as_ref().is_some_and(|deferred| deferred.missing() > 0) {
        // No part is the time that other nodes take.
        return connection.session.batches.drop_present();
    }
    let until = connection.deferred.as_ref().and_then(|deferred| deferred.until());
    connection.session.batches.place(in_file, until, connection.socket_is_full);
}

impl EventLoop {
    /// Notes that a connection's replies are released up to `safe`, behind `ahead` bytes of replies.
    pub(super) fn note_release(&mut self, key: usize, safe: Position, ahead: u64) {
        let durability = &self.shared.engine.durability;
        let Some(connection) = self.connections.get_mut(key) else { return };
        // Without held replies all are released: errors may have replaced the last ones.
        let safe = if connection.deferred.is_none() { Position::MAX } else { safe };
        connection.session.batches.release(safe, Ticks::now(), ahead, |position| durability.on_disk_at(position));
    }
}
