//! A batch as the server has it run: what it is given, and what becomes of it.

use resp::reply::Output;
use resp::request::Input;
use store::keyspace::Locked;

use crate::clients::client::client_flag;
use crate::clients::session::Session;
use crate::engine::Engine;
use crate::registry;
use crate::worker::turn::Invocation;
use crate::worker::{Attendant, Hooks, Ran, Worker};

/// Runs a command of a script, which is part of the script's unit and never waits.
fn run_nested(
    worker: &mut Worker,
    session: &mut Session,
    invoked: Invocation<'_>,
    locked: &mut Locked<'_>,
    out: &mut Output,
) {
    worker.call(session, invoked, locked, out, false);
}

impl Worker {
    /// The worker with this number.
    #[must_use]
    pub fn new(id: usize, engine: &'static Engine, seed: u64) -> Worker {
        Worker::with_hooks(id, engine, seed, Hooks { runs: registry::runs(), run_nested })
    }

    /// Begins a turn at this time, in microseconds of Unix time. Should it last, what it runs later has a later time.
    pub fn begin_turn(&mut self, now_us: u64) {
        if self.begin_turn_at(now_us) {
            self.follow_client_limit();
        }
    }

    /// As [`Worker::run`], with an attendant that looks after other connections if a script takes too long.
    pub fn run_attended(
        &mut self,
        attendant: &mut dyn Attendant,
        session: &mut Session,
        input: Input<'_>,
        from: usize,
        out: &mut Output,
    ) -> (usize, Ran) {
        self.attended_by(attendant, |worker| worker.run(session, input, from, out))
    }

    /// Runs what may run in the midst of a script, and answers BUSY to the rest.
    pub fn run_busy(&mut self, session: &mut Session, input: Input<'_>, from: usize, out: &mut Output) -> (usize, Ran) {
        debug_assert!(self.scripts.busy_turn);
        self.run_with_tables(session, input, from, out)
    }

    /// Runs the complete requests of `input.bytes[from..]` and returns where the first byte that was not run is.
    pub fn run(&mut self, session: &mut Session, input: Input<'_>, from: usize, out: &mut Output) -> (usize, Ran) {
        if session.client.has(client_flag::BLOCKED) {
            // CLIENT PAUSE held it back.
            session.client.end_pause();
        }
        let ran = self.run_with_tables(session, input, from, out);
        self.note_observed();
        if self.wrote > 0 {
            session.wrote = std::mem::take(&mut self.wrote);
        }
        ran
    }
}
