//! A batch as the server runs it: its input and its result.

use resp::reply::Output;
use resp::request::Input;
use store::keyspace::Locked;

use crate::clients::client::client_flag;
use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::registry;
use crate::state::Engine;
use crate::worker::turn::Invocation;
use crate::worker::{BusyScriptHandler, Hooks, Worker};

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
    /// Returns the worker with this number.
    #[must_use]
    pub fn new(id: usize, engine: &'static Engine, seed: u64) -> Worker {
        Worker::with_hooks(id, engine, seed, Hooks { runs: registry::runs(), run_nested })
    }

    /// Begins a turn at this time, in microseconds of Unix time. Commands late in a long turn see a later time.
    pub fn begin_turn(&mut self, now_us: u64) {
        if self.begin_turn_at(now_us) {
            self.follow_client_limit();
        }
    }

    /// Like [`Worker::run`], with a handler that serves other connections while a script takes too long.
    pub fn run_attended(
        &mut self,
        busy_script_handler: &mut dyn BusyScriptHandler,
        session: &mut Session,
        input: Input<'_>,
        from: usize,
        out: &mut Output,
    ) -> (usize, Progress) {
        self.with_busy_script_handler(busy_script_handler, |worker| worker.run(session, input, from, out))
    }

    /// Runs commands that may run during a busy script, and answers BUSY to the rest.
    pub fn run_busy(
        &mut self,
        session: &mut Session,
        input: Input<'_>,
        from: usize,
        out: &mut Output,
    ) -> (usize, Progress) {
        debug_assert!(self.scripts.busy_turn);
        self.run_with_tables(session, input, from, out)
    }

    /// Runs the complete requests of `input.bytes[from..]`. Returns the index of the first byte that was not run.
    pub fn run(&mut self, session: &mut Session, input: Input<'_>, from: usize, out: &mut Output) -> (usize, Progress) {
        if session.client.has(client_flag::BLOCKED) {
            // CLIENT PAUSE held the connection back.
            session.client.end_pause();
        }
        let progress = self.run_with_tables(session, input, from, out);
        self.note_observed();
        if self.wrote > 0 {
            session.wrote = std::mem::take(&mut self.wrote);
        }
        progress
    }
}
