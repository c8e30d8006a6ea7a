//! The two ways in which a script is run: see `scripts`.

use resp::reply::Output;

use crate::clients::session::Session;
use crate::script_calls::{machines, ways};
use crate::worker::turn::Invocation;
use crate::worker::{Pass, Step, Worker};

impl Worker {
    /// Runs a command that runs a script, in one of the two ways that `scripts` tells of.
    pub(crate) fn execute_script(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        let keyspace = &self.engine.keyspace;
        // Others are never kept out for a script, which may take long.
        if let Some(mut locked) = keyspace.own(None) {
            return self.call(session, invoked, &mut locked, out, true);
        }
        if !ways::runs_alone(self, invoked.command, *invoked.args) {
            let shards = self.take_shards(invoked.keys);
            let locked = self.lock(|keyspace, give_up| keyspace.lock_growing_unless(shards, give_up));
            let Some(mut locked) = locked else { return self.answer_busy(session, invoked, out) };
            let step = self.call(session, invoked, &mut locked, out, true);
            if !std::mem::take(&mut self.scripts.start_over) {
                self.shards = locked.into_shards();
                return step;
            }
            self.scripts.is_again = true;
        } else {
            // While others run.
            machines::compile_ahead(self, invoked.command, *invoked.args);
        }
        let step =
            self.alone(session, inside, |worker, session, locked| worker.call_allowed(session, invoked, locked, out));
        self.scripts.is_again = false;
        step.unwrap_or_else(|| self.answer_busy(session, invoked, out))
    }
}
