//! The two ways to run a script: see `scripts`.

use resp::reply::Output;
use store::keyspace::Shards;

use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::script_calls::{machines, scope};
use crate::worker::turn::Invocation;
use crate::worker::{GateGuard, Worker};

impl Worker {
    /// Runs a command that runs a script, in one of the two ways of `scripts`.
    pub(crate) fn execute_script(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        out: &mut Output,
        inside: &mut GateGuard,
    ) -> Progress {
        let keyspace = &self.engine.keyspace;
        // A script may take long, so it never keeps other threads out.
        if let Some(mut locked) = keyspace.own(None) {
            return self.call(session, invoked, &mut locked, out, true);
        }
        if !scope::runs_alone(self, invoked.command, *invoked.args) {
            let shards = self.take_shards(invoked.keys);
            let locked = self.lock(Shards::Growing(shards));
            let Some(mut locked) = locked else { return self.answer_busy(session, invoked, out) };
            let progress = self.call(session, invoked, &mut locked, out, true);
            if !std::mem::take(&mut self.scripts.start_over) {
                self.shards = locked.into_shards();
                return progress;
            }
            self.scripts.is_again = true;
        } else {
            // Compiled here, while other threads still run.
            machines::compile_ahead(self, invoked.command, *invoked.args);
        }
        let progress =
            self.alone(session, inside, |worker, session, locked| worker.call_allowed(session, invoked, locked, out));
        self.scripts.is_again = false;
        progress.unwrap_or_else(|| self.answer_busy(session, invoked, out))
    }
}
