//! The ways a request of a batch may take to its command's run: the fewer questions its session and its command raise, the
//! shorter.

use std::sync::atomic::Ordering;

use commands::call::KeyRef;
use commands::spec::flag;
use resp::reply::{Mark, Output, Reply};
use resp::request::Args;

use super::Invocation;
use super::admission::{Admission, SENT_HTTP, is_http};
use super::transaction::{queue, runs_within_multi};
use crate::clients::client::client_flag;
use crate::clients::session::{ReplyMode, Session};
use crate::command_table::Command;
use crate::reasons::{HOLDS, IMPORTS, REPLICA};
use crate::worker::tables::Planned;
use crate::worker::turn::Run;
use crate::worker::{Pass, Step, Worker};

impl Worker {
    /// Runs one request of a batch.
    pub(crate) fn step(
        &mut self,
        session: &mut Session,
        plan: &Planned,
        args: &Args<'_>,
        keys: &[KeyRef],
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        // It may read the counters.
        self.meter.count();
        // This thread may have left the gate since the last command, and another connection have got the token.
        if session.tally().is_some() && !session.begin_counted(plan.command) {
            return Step::Gone;
        }
        let before = self.scripts.busy_turn;
        self.scripts.busy_turn |= inside.is_none();
        let step = match self.plain(session, plan) {
            Some(command) => {
                let step = self.execute(session, Invocation { command, args, keys }, out, inside);
                self.after_plain(session, step, out, inside)
            }
            None => self.step_with_care(session, plan.command, args, keys, out, inside),
        };
        self.scripts.busy_turn = before;
        session.count(step);
        step
    }

    /// Whether the next command may run by [`Worker::step_quickly`] or [`Worker::step_keyless`] if its plan allows it:
    /// nothing about the session needs a look before it, and only other commands can change that.
    #[inline]
    pub(crate) fn may_be_quick(&self, session: &Session) -> bool {
        session.is_plain() && !self.is_short()
    }

    /// Runs a command with one key that sees keys only.
    #[inline(always)]
    pub(crate) fn step_quickly(
        &mut self,
        session: &mut Session,
        plan: &Planned,
        args: &Args<'_>,
        keys: &[KeyRef],
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        let (Some(command), Some(run), [key]) = (plan.command, plan.quick, keys) else {
            return self.step(session, plan, args, keys, out, inside);
        };
        let engine = self.engine;
        let keyspace = &engine.keyspace;
        let shard = keyspace.shard_of(key.hash);
        let own = keyspace.own_one(shard, inside.as_ref());
        let Some(mut locked) = own.or_else(|| self.lock_one(shard)) else {
            return self.step(session, plan, args, keys, out, inside);
        };
        // With the shard locked: see `begin_effects`.
        let reasons = self.reasons();
        if self.hold_up(reasons) && !self.reads_replica(reasons, command) {
            drop(locked);
            return self.step(session, plan, args, keys, out, inside);
        }
        // If it returns nothing, there is nothing to be told to anything else, nor to this connection.
        let invoked = Invocation { command, args, keys };
        let Some(called) = self.call_keys::<true>(session, invoked, run, reasons, &mut locked, out) else {
            return Step::Next;
        };
        let step = self.finish(session, invoked, called, out, true);
        drop(locked);
        self.after_plain(session, step, out, inside)
    }

    /// Runs a command without keys that sees the session, as PING.
    #[inline(never)]
    pub(crate) fn step_keyless(
        &mut self,
        session: &mut Session,
        plan: &Planned,
        args: &Args<'_>,
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        let reasons = self.reasons();
        let run_of = |command| (command, self.run_of(command));
        let (Some((command, Run::Session(run))), false) = (plan.command.map(run_of), self.hold_up(reasons)) else {
            return self.step(session, plan, args, &[], out, inside);
        };
        // Not by way of `call`: that its handler is known saves calls, each of which hands on half a dozen arguments.
        let invoked = Invocation { command, args, keys: &[] };
        let step = self.on_each(session, invoked, out, |worker, session, locked, out| {
            let called = worker.call_session::<true>(session, invoked, *run, reasons, locked, out);
            worker.end_call(session, invoked, called, out, true)
        });
        self.after_plain(session, step, out, inside)
    }

    /// Whether these reasons of the engine's may have a command wait or be refused: because of CLIENT PAUSE, of the disk, or
    /// until there is room for what is published. Without any reason nothing is. What is replayed has been accepted already.
    #[inline]
    fn hold_up(&self, reasons: u64) -> bool {
        reasons != 0 && (reasons & HOLDS != 0 && !self.clock.replays || self.overfilled.any())
    }

    /// True if a command only reads, of data that follow a primary's, and nothing else is to be looked at before it. It finds no key
    /// whose time has come, and leaves those where they are.
    #[inline(never)]
    fn reads_replica(&mut self, reasons: u64, command: &Command) -> bool {
        let reads = reasons & HOLDS == REPLICA && command.info.has(flag::READONLY) && !self.overfilled.any();
        self.clock.keeps_due |= reads;
        reads
    }

    /// Whether this thread lacks memory, or room for what its connections publish.
    #[inline]
    fn is_short(&self) -> bool {
        self.memory.full || self.overfilled.any()
    }

    /// The command, if neither it nor the session needs a second look before it runs. What it counts for a pipeline
    /// needs none: see [`Worker::step`].
    #[inline]
    fn plain(&self, session: &Session, plan: &Planned) -> Option<&'static Command> {
        let is_held_up = self.engine.needs_care() && !self.clock.replays;
        let needs_care = !session.is_plain_but_counted() || self.is_short() || self.scripts.busy_turn || is_held_up;
        plan.command.filter(|_| plan.fits && !needs_care)
    }

    #[inline]
    fn after_plain(&mut self, session: &mut Session, step: Step, out: &mut Output, inside: &mut Pass) -> Step {
        self.serve_if_ready(inside);
        if !session.pushes.is_empty() {
            out.append(&mut session.pushes);
        }
        if step == Step::Next && session.must_replan() { Step::Reframe } else { step }
    }

    /// Runs a request where its session or its command needs a second look, and any while CLIENT PAUSE holds some back or
    /// this thread can't pass the gate because of a script that takes too long.
    #[cold]
    fn step_with_care(
        &mut self,
        session: &mut Session,
        command: Option<&'static Command>,
        args: &Args<'_>,
        keys: &[KeyRef],
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        if command.is_none() && is_http(args.get(0)) {
            self.warn_of_http(session);
            session.count_failure(None, SENT_HTTP);
            session.closing = true;
            return Step::Close;
        }
        let start = out.mark();
        if session.reply_mode() == ReplyMode::SkipNext {
            session.set_reply_mode(ReplyMode::Skip);
        }
        // Commands that do not run show in CLIENT LIST too.
        let last = command.map_or(u32::MAX, |c| c.id as u32);
        session.client.last_command.store(last, Ordering::Relaxed);
        let wanted = session.reply_mode();
        let was_authenticated = session.is_authenticated();
        let mut step = match self.admit(session, command, args) {
            Ok(Admission::Later(step)) => return step,
            Ok(Admission::Now(command)) if session.multi.is_some() && !runs_within_multi(command) => {
                queue(session, Invocation { command, args, keys });
                Reply::new(out, session.proto).simple("QUEUED");
                Step::Next
            }
            Ok(Admission::Now(command)) => {
                // While commands are held back, keys stay as they are, as far as anybody can tell.
                self.clock.keeps_due = self.engine.keeps_due_keys(self.clock.now_ms);
                let imports = self.engine.reasons.has(IMPORTS) && session.client.has(client_flag::IMPORT_SOURCE);
                self.clock.see_due(imports);
                let step = self.with_lookups(session, command, *args, |worker, session| {
                    worker.execute(session, Invocation { command, args, keys }, out, inside)
                });
                self.clock.keeps_due = self.engine.always_keeps_due_keys();
                self.clock.see_due(false);
                if step == Step::Pause {
                    return step;
                }
                step
            }
            Err(error) => {
                self.refuse(session, command, args, &error, out);
                if session.closing { Step::Close } else { Step::Next }
            }
        };
        if step == Step::Next && (session.has_changed() || session.is_authenticated() != was_authenticated) {
            step = Step::Reframe;
        }
        if session.caches() {
            self.end_caching(session, command);
        }
        silence(session, wanted, start, out);
        // The reply that is skipped may be one that is still to come.
        if session.reply_mode() == ReplyMode::Skip && step != Step::Park {
            session.set_reply_mode(ReplyMode::On);
        }
        // After the reply is complete or taken back: they neither tear it nor are they silenced with it.
        if !session.pushes.is_empty() {
            out.append(&mut session.pushes);
        }
        step
    }
}

/// Takes a reply back that the client doesn't want, given what it wanted before the command. A command that changes
/// what it wants has written what is due.
pub(super) fn silence(session: &Session, before: ReplyMode, start: Mark, out: &mut Output) {
    if before == session.reply_mode() && matches!(before, ReplyMode::Off | ReplyMode::Skip) {
        out.truncate(start);
    }
}
