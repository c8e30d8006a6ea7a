//! The paths from a request of a batch to its command's run. The plan of the request names its path
//! (`Planned`), and a fast path falls back to [`Worker::dispatch`] whenever its condition does not hold.
//!
//! | function | condition | skips |
//! | --- | --- | --- |
//! | `dispatch_one_key` | `one_key` is set; plain session; no flag of `HOLDS` | the pipeline count, admission, the choice of locks |
//! | `dispatch_keyless` | `is_keyless`; plain session; no flag of `HOLDS` | the pipeline count, admission, locks |
//! | `dispatch`, first part | `fits`; plain session, but counted; no need for care | admission |
//! | `dispatch`, second part (`dispatch_slow`) | none | nothing |
//!
//! Skipped checks would have passed: the plan covers the command, its user and its slot, the session covers
//! authentication, MULTI, modes of replies and subscriptions, and the flags of `slow_path` cover the server.

use std::sync::atomic::Ordering;

use commands::call::KeyRef;
use commands::spec::flag;
use resp::reply::{Mark, Output, Reply};
use resp::request::Args;

use super::Invocation;
use super::admission::{Admission, SENT_HTTP, is_http, is_of_pipeline};
use super::transaction::{queue, runs_within_multi};
use crate::clients::client::client_flag;
use crate::clients::progress::Progress;
use crate::clients::session::{ReplyMode, Session};
use crate::slow_path::{HOLDS, IMPORTS, REPLICA};
use crate::worker::tables::Planned;
use crate::worker::turn::Run;
use crate::worker::{GateGuard, Worker};
use commands::table::Command;

impl Worker {
    /// Runs one request of a batch.
    pub(crate) fn dispatch(
        &mut self,
        session: &mut Session,
        plan: &Planned,
        args: &Args<'_>,
        keys: &[KeyRef],
        out: &mut Output,
        inside: &mut GateGuard,
    ) -> Progress {
        // The command may read the counters.
        self.meter.count();
        if session.awaits_forwarded(|| is_of_pipeline(args.get(0))) {
            return Progress::AwaitsNodes;
        }
        // This thread may have left the gate since the last command, and another connection may have taken the token.
        if session.tally().is_some() && !session.begin_counted(plan.command) {
            return Progress::Gone;
        }
        let before = self.scripts.busy_turn;
        self.scripts.busy_turn |= inside.is_none();
        let progress = match self.plain(session, plan) {
            Some(command) => {
                let progress = self.execute(session, Invocation { command, args, keys }, out, inside);
                self.after_plain(session, progress, out, inside)
            }
            None => self.dispatch_slow(session, plan.command, args, keys, out, inside),
        };
        self.scripts.busy_turn = before;
        session.count(progress, &self.engine.watchers);
        progress
    }

    /// Returns whether the next command may run by [`Worker::dispatch_one_key`] or [`Worker::dispatch_keyless`] if its
    /// plan allows it. The session needs no check then, and only other commands can change that.
    #[inline]
    pub(crate) fn may_take_fast_path(&self, session: &Session) -> bool {
        session.is_plain() && !self.is_short()
    }

    /// Runs a command with one key that sees keys only.
    #[inline(always)]
    pub(crate) fn dispatch_one_key(
        &mut self,
        session: &mut Session,
        plan: &Planned,
        args: &Args<'_>,
        key: &KeyRef,
        out: &mut Output,
        inside: &mut GateGuard,
    ) -> Progress {
        let keys = std::slice::from_ref(key);
        let (Some(command), Some(run)) = (plan.command, plan.one_key) else {
            return self.dispatch(session, plan, args, keys, out, inside);
        };
        let engine = self.engine;
        let keyspace = &engine.keyspace;
        let shard = keyspace.shard_of(key.hash);
        let own = keyspace.own_one(shard, inside.as_ref());
        let Some(mut locked) = own.or_else(|| self.lock_one(shard)) else {
            return self.dispatch(session, plan, args, keys, out, inside);
        };
        // Read with the shard locked: see `begin_effects`.
        let slow_path = self.slow_path();
        if self.may_hold_back(slow_path) && !self.reads_replica(slow_path, command) {
            drop(locked);
            return self.dispatch(session, plan, args, keys, out, inside);
        }
        // A result of `None` means that the command has no effects on others or on this connection.
        let invoked = Invocation { command, args, keys };
        let Some(called) = self.call_keys::<true>(session, invoked, run, slow_path, &mut locked, out) else {
            return Progress::Ready;
        };
        let progress = self.finish(session, invoked, called, out, true);
        drop(locked);
        self.after_plain(session, progress, out, inside)
    }

    /// Runs a command without keys that sees the session, for example PING.
    #[inline(never)]
    pub(crate) fn dispatch_keyless(
        &mut self,
        session: &mut Session,
        plan: &Planned,
        args: &Args<'_>,
        out: &mut Output,
        inside: &mut GateGuard,
    ) -> Progress {
        let slow_path = self.slow_path();
        let run_of = |command| (command, self.run_of(command));
        let (Some((command, Run::Session(run))), false) = (plan.command.map(run_of), self.may_hold_back(slow_path))
        else {
            return self.dispatch(session, plan, args, &[], out, inside);
        };
        // The handler is known here; skipping `call` saves calls with half a dozen arguments each.
        let invoked = Invocation { command, args, keys: &[] };
        let progress = self.on_each(session, invoked, out, |worker, session, locked, out| {
            let called = worker.call_session::<true>(session, invoked, *run, slow_path, locked, out);
            worker.end_call(session, invoked, called, out, true)
        });
        self.after_plain(session, progress, out, inside)
    }

    /// Returns whether these flags may make a command wait or fail: because of CLIENT PAUSE, the disk, or backpressure.
    /// Replayed commands have been accepted already.
    #[inline]
    pub(super) fn may_hold_back(&self, slow_path: u64) -> bool {
        slow_path != 0 && (slow_path & HOLDS != 0 && !self.clock.replays || self.full_inboxes.any())
    }

    /// Returns whether a command only reads on a replica and needs no other check. Such a command treats expired keys
    /// as absent and leaves them in place.
    #[inline(never)]
    fn reads_replica(&mut self, slow_path: u64, command: &Command) -> bool {
        let reads = slow_path & HOLDS == REPLICA && command.info.has(flag::READONLY) && !self.full_inboxes.any();
        self.clock.keeps_due |= reads;
        reads
    }

    /// Returns whether this thread lacks memory, or room for published messages.
    #[inline]
    fn is_short(&self) -> bool {
        self.memory.full || self.full_inboxes.any()
    }

    /// Returns the command if neither it nor the session needs further checks. Pipeline counts need none: see
    /// [`Worker::dispatch`].
    #[inline]
    fn plain(&self, session: &Session, plan: &Planned) -> Option<&'static Command> {
        let is_held_up = self.engine.needs_care() && !self.clock.replays;
        let needs_care = !session.is_plain_but_counted() || self.is_short() || self.scripts.busy_turn || is_held_up;
        plan.command.filter(|_| plan.fits && !needs_care)
    }

    #[inline]
    fn after_plain(
        &mut self,
        session: &mut Session,
        progress: Progress,
        out: &mut Output,
        inside: &mut GateGuard,
    ) -> Progress {
        self.serve_if_ready(inside);
        if !session.pushes.is_empty() {
            out.append(&mut session.pushes);
        }
        if progress == Progress::Ready && session.must_replan() { Progress::Reframe } else { progress }
    }

    /// Runs a request that needs checks of its session or its command. All requests come here during CLIENT PAUSE, and
    /// while a busy script keeps this thread outside of the gate.
    #[cold]
    fn dispatch_slow(
        &mut self,
        session: &mut Session,
        command: Option<&'static Command>,
        args: &Args<'_>,
        keys: &[KeyRef],
        out: &mut Output,
        inside: &mut GateGuard,
    ) -> Progress {
        if command.is_none() && is_http(args.get(0)) {
            self.warn_of_http(session);
            session.count_failure(None, SENT_HTTP);
            session.closing = true;
            return Progress::Closing;
        }
        let was_asking = session.begin_asking();
        let start = out.mark();
        if session.reply_mode() == ReplyMode::SkipNext {
            session.set_reply_mode(ReplyMode::Skip);
        }
        // CLIENT LIST shows refused commands, too.
        let last = command.map_or(u32::MAX, |c| c.id as u32);
        session.client.last_command.store(last, Ordering::Relaxed);
        let wanted = session.reply_mode();
        let was_authenticated = session.is_authenticated();
        let mut progress = match self.admit(session, command, args, keys) {
            Ok(Admission::Later(progress)) => return progress,
            Ok(Admission::Skipped(command, error)) => {
                self.answer_refused(session, command, args, &error, out);
                Progress::Ready
            }
            Ok(Admission::Elsewhere(command, error)) => {
                self.redirect(session, command, args, &error, out);
                Progress::Ready
            }
            Ok(Admission::Forwarded(command, destination)) => {
                self.forward(session, Invocation { command, args, keys }, destination, out);
                Progress::Ready
            }
            Ok(Admission::Now(command)) if session.multi.is_some() && !runs_within_multi(command) => {
                queue(session, Invocation { command, args, keys });
                Reply::new(out, session.proto).simple("QUEUED");
                Progress::Ready
            }
            Ok(Admission::Now(command)) => {
                // While commands are held back, expired keys stay in place.
                self.clock.keeps_due = self.engine.keeps_due_keys(self.clock.now_ms);
                let imports = self.engine.slow_path.has(IMPORTS) && session.client.has(client_flag::IMPORT_SOURCE);
                self.clock.see_due(imports);
                let progress = self.with_lookups(session, command, *args, |worker, session| {
                    worker.execute(session, Invocation { command, args, keys }, out, inside)
                });
                self.clock.keeps_due = self.engine.always_keeps_due_keys();
                self.clock.see_due(false);
                if progress == Progress::Paused {
                    return progress;
                }
                progress
            }
            Err(error) => {
                self.refuse(session, command, args, &error, out);
                if session.closing { Progress::Closing } else { Progress::Ready }
            }
        };
        if progress == Progress::Ready && (session.has_changed() || session.is_authenticated() != was_authenticated) {
            progress = Progress::Reframe;
        }
        if session.caches() {
            self.end_caching(session, command);
        }
        if was_asking {
            session.end_asking();
        }
        silence(session, wanted, start, out);
        // The skipped reply may be one that is still to come.
        if session.reply_mode() == ReplyMode::Skip && progress != Progress::Parked {
            session.set_reply_mode(ReplyMode::On);
        }
        // This follows the reply's completion or removal: the messages neither split the reply nor vanish with it.
        if !session.pushes.is_empty() {
            out.append(&mut session.pushes);
        }
        progress
    }
}

/// Removes a reply that the client has suppressed. `before` is the mode before the command. A command that changes the
/// mode has written the right reply itself.
pub(super) fn silence(session: &Session, before: ReplyMode, start: Mark, out: &mut Output) {
    if before == session.reply_mode() && matches!(before, ReplyMode::Off | ReplyMode::Skip) {
        out.truncate(start);
    }
}
