//! The application of a round of a primary's stream by several threads: see [`crate::replication::rounds`].
//!
//! No other thread is inside the gate meanwhile, so readers see either nothing of a round or all of it. They see the
//! primary's changes in the primary's order, although lanes are applied concurrently.

use std::sync::Arc;

use crate::clients::session::Session;
use crate::inbox::Message;
use crate::replication::Applied;
use crate::replication::rounds::{Lane, Round};
use crate::slow_path::{MONITORED, NOTIFIES, PAUSED, REPLICA};
use crate::worker::Worker;

/// The number of checks, with ever longer pauses, for other threads to leave the gate: some ten microseconds, the time
/// of a batch.
const LOOKS: u32 = 150;

impl Worker {
    /// Applies a round together with other threads that have time. Returns false without applying anything if threads
    /// are inside the gate, or if observers would see the order of changes.
    pub(super) fn apply_round(
        &mut self,
        session: &mut Session,
        bytes: &[u8],
        lanes: Vec<Lane>,
        database: usize,
        applied: &mut Applied,
    ) -> bool {
        let engine = self.engine;
        let mut pass = self.enter_gate();
        let Some(inside) = &mut pass else { return false };
        if !inside.keep_out_within(LOOKS) || !self.may_share(session) {
            return false;
        }
        let others = lanes.iter().skip(1).filter(|lane| !lane.commands.is_empty()).count();
        let round = Arc::new(Round::new(lanes));
        engine.replication.rounds.open(&round);
        inside.let_helpers_in();
        for thread in (0..engine.inboxes.len()).filter(|&thread| thread != self.id).take(others) {
            if engine.replication.rounds.must_tell(thread) {
                engine.inboxes[thread].send(Message::Lanes);
            }
        }
        round.take_lanes(self.id, |lane| self.apply_lane(lane, &mut pass));
        if let Some(inside) = &mut pass {
            inside.await_helpers();
        }
        engine.replication.rounds.close();
        for (thread, of_lane) in round.results() {
            applied.failures += of_lane.failures;
            applied.failure = applied.failure.take().or(of_lane.failure);
            engine.replication.rounds.count(thread != self.id);
        }
        session.select(database);
        // This happens once for the whole round and before the exit from the gate. A command that runs alone behind the
        // gate thus finds data that match the offset exactly.
        let after = (engine.journal.position(), database);
        if let Some(followed) = &mut session.followed {
            followed.begin_run(None);
            followed.note_run(&engine.replication, after, bytes, false);
        }
        true
    }

    /// Returns whether other threads may apply parts of the stream. The caller is inside the gate.
    fn may_share(&self, session: &Session) -> bool {
        let engine = self.engine;
        // These observers see the order of changes.
        let is_watched = engine.slow_path.has(MONITORED | NOTIFIES | PAUSED) || engine.waiters.any();
        let is_over = session.followed.as_ref().is_none_or(|followed| followed.is_over(&engine.replication));
        engine.slow_path.has(REPLICA) && !is_watched && !is_over && self.log_has_room()
    }
}
