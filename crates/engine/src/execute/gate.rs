//! The passage of a batch through the gate, and commands that run alone behind the closed gate.
//!
//! Every batch enters the gate once. `worker::gate` has the plain entry for all other work.

use store::keyspace::Locked;

use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::worker::{GateGuard, Worker};
use statistics::ticks::Ticks;

impl Worker {
    /// Enters the gate like [`Worker::enter_gate`], before a batch. While another thread keeps the gate closed for a
    /// round of a primary's stream, this thread applies lanes of the round.
    #[inline]
    pub(super) fn enter_gate_for_batch(&mut self) -> GateGuard {
        let engine = self.engine;
        let (gate, ends) = (engine.keyspace.gate(), engine.busy.ends_waits());
        loop {
            let may_help = || gate.admits_helpers() && engine.replication.rounds.current().is_some();
            let inside = gate.enter_unless(self.id, || may_help() || ends());
            if inside.is_some() || !may_help() && ends() {
                self.effects.recording = engine.journal.is_read();
                return inside;
            }
            self.apply_lanes();
        }
    }

    /// Leaves the gate, closes it, runs `run` alone, and enters the gate again. Returns `None` if a busy script
    /// prevented the run. Another busy script may keep this thread outside of the gate afterwards.
    pub(crate) fn alone(
        &mut self,
        session: &mut Session,
        inside: &mut GateGuard,
        run: impl FnOnce(&mut Worker, &mut Session, &mut Locked<'_>) -> Progress,
    ) -> Option<Progress> {
        let engine = self.engine;
        let keyspace = &engine.keyspace;
        *inside = None;
        let progress = keyspace.gate().close_unless(engine.busy.ends_waits()).map(|alone| {
            // The wait for other threads does not count as the command's time.
            self.ticks = Ticks::now();
            self.clock.follow(self.ticks);
            self.effects.recording = engine.journal.is_read();
            // The user or the cluster's slots may have changed during the wait.
            self.follow_changes(session);
            let is_over = session.followed.as_ref().is_some_and(|followed| followed.is_over(&engine.replication));
            if session.has_lost_token() || is_over {
                Progress::Gone
            } else {
                let progress = run(self, session, &mut keyspace.all(&alone));
                // This precedes the opening of the gate: another thread may then ask for the count.
                session.count(progress, &engine.watchers);
                if let Some(followed) = &mut session.followed {
                    let after = (engine.journal.position(), session.database);
                    followed.note_single(&engine.replication, after, session.multi.is_some());
                }
                progress
            }
        });
        *inside = self.enter_gate();
        self.follow_changes(session);
        // Another thread may have kept the gate closed for a long time. The wait does not count as time of the next
        // command.
        self.ticks = Ticks::now();
        self.clock.follow(self.ticks);
        progress
    }
}
