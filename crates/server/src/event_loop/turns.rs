//! Turns of connections with replies on disk, while the disk is behind.
//!
//! Each run of a connection with a backlog adds one turn's worth of replies for the disk: little, unless there is a large value among them.
//! Hundreds of connections that run at once would add much more than the disk takes. Connections with a backlog therefore don't run while
//! more than a little is on its way to disk. They queue, and resume one after another at the speed of the disk. Connections without a
//! backlog aren't concerned.

use super::EventLoop;
use crate::backlog::{Backlog, Turn};
use engine::clients::progress::Progress;

impl EventLoop {
    /// Returns true if a connection with a backlog must let others run first.
    pub(super) fn must_wait_for_turn(&self, backlog: &Backlog) -> bool {
        let is_next = backlog.turn == Turn::Given || self.turns.is_empty();
        !is_next || self.figures().is_behind(self.shared.settings())
    }

    /// Appends a connection to the queue for turns, or puts it back to the front if it has been given one.
    pub(super) fn queue_for_turn(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(backlog) = &mut connection.backlog else { return };
        let client = connection.session.client.id;
        match std::mem::replace(&mut backlog.turn, Turn::Queued) {
            Turn::None => self.turns.push_back(client),
            Turn::Queued => {}
            Turn::Given => self.turns.push_front(client),
        }
    }

    /// Resumes as many connections as the disk has room for.
    pub(super) fn give_turns(&mut self) {
        if self.turns.is_empty() {
            return;
        }
        let turns_left = self.figures().turns_left(self.shared.settings(), self.share());
        let mut left = turns_left.unwrap_or(0);
        while left > 0
            && let Some(client) = self.turns.pop_front()
        {
            // The connection is gone, or all its replies were sent meanwhile.
            let Some(&key) = self.by_client.get(&client) else { continue };
            let Some(backlog) = self.connections.get_mut(key).and_then(|c| c.backlog.as_mut()) else { continue };
            if backlog.turn == Turn::Queued {
                backlog.turn = Turn::Given;
                self.hold_or_release(key);
                left -= 1;
            }
        }
    }

    /// Ends the turn of a connection that has run a request. A connection with only the beginning of a request keeps its turn for another
    /// read. Otherwise it would spend every turn on that beginning.
    pub(super) fn end_disk_turn(&mut self, key: usize) {
        if let Some(backlog) = self.connections.get_mut(key).and_then(|connection| connection.backlog.as_mut()) {
            backlog.turn = Turn::None;
        }
    }

    /// Returns true if a connection's requests may run now. The replies that others have added since the last check count.
    pub(super) fn may_run(&mut self, key: usize) -> bool {
        if self.connections.get(key).is_some_and(|c| c.backlog.is_some()) {
            self.hold_or_release(key);
        }
        let block = self.share().block();
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if connection.backlog.is_some() && connection.progress != Progress::AwaitsReader {
            connection.replies.output.reserve_block(block);
        }
        connection.progress != Progress::AwaitsReader
    }

    /// Makes the next turn end early if the connection has a backlog.
    pub(super) fn limit_turn(&mut self, key: usize) {
        let waits = self.connections.get(key).is_some_and(|c| c.backlog.is_some());
        self.worker.end_turns_after(if waits { self.share().waiting_turn() } else { usize::MAX });
    }
}
