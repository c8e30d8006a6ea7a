//! A round of a primary's stream, applied by several threads: see [`crate::replication::rounds`].
//!
//! Meanwhile no other thread is inside the gate, so that readers find either nothing of a round or all of it: the order in which the
//! primary's changes are seen is the primary's, though lanes are applied beside each other.

use std::sync::Arc;

use crate::clients::session::Session;
use crate::inbox::Message;
use crate::reasons::{MONITORED, NOTIFIES, PAUSED, REPLICA};
use crate::replication::Applied;
use crate::replication::rounds::{Lane, Round};
use crate::worker::Worker;

/// How often a thread looks, with ever longer pauses, whether the others have left the gate: some ten microseconds, as long as a batch of
/// commands takes.
const LOOKS: u32 = 150;

impl Worker {
    /// Applies a round together with other threads, as far as they have time. False if nothing was applied: others are inside the gate, or
    /// would be shown in which order things happen.
    pub(super) fn apply_round(
        &mut self,
        session: &mut Session,
        bytes: &[u8],
        lanes: Vec<Lane>,
        database: usize,
        applied: &mut Applied,
    ) -> bool {
        let engine = self.engine;
        let mut pass = self.pass();
        let Some(inside) = &mut pass else { return false };
        if !inside.keep_out_within(LOOKS) || !self.may_share(session) {
            return false;
        }
        let others = lanes.iter().skip(1).filter(|lane| !lane.commands.is_empty()).count();
        let round = Arc::new(Round::new(lanes));
        engine.replication.rounds.open(&round);
        inside.let_guests_in();
        for thread in (0..engine.inboxes.len()).filter(|&thread| thread != self.id).take(others) {
            if engine.replication.rounds.must_tell(thread) {
                engine.inboxes[thread].send(Message::Lanes);
            }
        }
        round.take_lanes(self.id, |lane| self.apply_lane(lane, &mut pass));
        if let Some(inside) = &mut pass {
            inside.see_guests_off();
        }
        engine.replication.rounds.close();
        for (thread, of_lane) in round.results() {
            applied.failures += of_lane.failures;
            applied.failure = applied.failure.take().or(of_lane.failure);
            engine.replication.rounds.count(thread != self.id);
        }
        session.select(database);
        // Before the gate is left, and once for all of it: what runs alone behind the gate finds data that are exactly those of the offset.
        let after = (engine.journal.position(), database);
        if let Some(followed) = &mut session.followed {
            followed.begin_run(None);
            followed.note_run(&engine.replication, after, bytes, false);
        }
        true
    }

    /// Whether other threads may apply some of the stream. The caller is inside the gate.
    fn may_share(&self, session: &Session) -> bool {
        let engine = self.engine;
        // These are shown in which order keys change.
        let is_watched = engine.reasons.has(MONITORED | NOTIFIES | PAUSED) || engine.waiters.any();
        let is_over = session.followed.as_ref().is_none_or(|followed| followed.is_over(&engine.replication));
        engine.reasons.has(REPLICA) && !is_watched && !is_over && self.log_has_room()
    }
}
