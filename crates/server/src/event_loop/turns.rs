//! Turns of connections whose replies go to disk, while the disk is behind.
//!
//! A connection that already has replies waiting adds one turn's worth to what waits for the disk whenever it runs:
//! little, unless there is a large value among them. Hundreds that do so at once would be much. So connections with
//! waiting replies don't run while more than a little waits for the disk; they queue, and go on one after another as
//! fast as the disk does. Connections without waiting replies aren't concerned.

use super::EventLoop;
use crate::backlog::{Backlog, Turn};
use crate::connection::Hold;

impl EventLoop {
    /// Whether a connection with replies that wait has to let others run before it.
    pub(super) fn must_wait_for_turn(&self, backlog: &Backlog) -> bool {
        let is_next = backlog.turn == Turn::Given || self.turns.is_empty();
        !is_next || self.figures().is_behind(self.shared.settings())
    }

    /// Puts a connection at the end of those that wait for a turn, or back to the front if it has been given one.
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

    /// Lets as many connections go on as the disk has room for.
    pub(super) fn give_turns(&mut self) {
        if self.turns.is_empty() {
            return;
        }
        let turns_left = self.figures().turns_left(self.shared.settings(), self.share());
        let mut left = turns_left.unwrap_or(0);
        while left > 0
            && let Some(client) = self.turns.pop_front()
        {
            // One that is gone, or has been sent everything since.
            let Some(&key) = self.by_client.get(&client) else { continue };
            let Some(backlog) = self.connections.get_mut(key).and_then(|c| c.backlog.as_mut()) else { continue };
            if backlog.turn == Turn::Queued {
                backlog.turn = Turn::Given;
                self.hold_or_release(key);
                left -= 1;
            }
        }
    }

    /// Ends the turn of a connection that has run a request. One of which only the beginning of a request has arrived
    /// keeps its turn until it has been read from: else all that it is ever given would be spent on that beginning.
    pub(super) fn end_disk_turn(&mut self, key: usize) {
        if let Some(backlog) = self.connections.get_mut(key).and_then(|connection| connection.backlog.as_mut()) {
            backlog.turn = Turn::None;
        }
    }

    /// Whether a connection's requests may run now: what others have added since it was last looked at counts, too.
    pub(super) fn may_run(&mut self, key: usize) -> bool {
        if self.connections.get(key).is_some_and(|c| c.backlog.is_some()) {
            self.hold_or_release(key);
        }
        let block = self.share().block();
        let Some(connection) = self.connections.get_mut(key) else { return false };
        if connection.backlog.is_some() && connection.hold != Hold::Full {
            connection.replies.output.reserve_block(block);
        }
        connection.hold != Hold::Full
    }

    /// Has the turn that is to begin end early if the connection's replies wait.
    pub(super) fn limit_turn(&mut self, key: usize) {
        let waits = self.connections.get(key).is_some_and(|c| c.backlog.is_some());
        self.worker.end_turns_after(if waits { self.share().waiting_turn() } else { usize::MAX });
    }
}
