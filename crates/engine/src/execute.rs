//! The execution of one command: admission, queueing or a run under the locks of its keys, and then its effects.

mod admission;
mod backpressure;
mod batch;
mod batch_times;
mod bus;
mod caching;
mod connections;
mod dispatch;
mod forward;
mod gate;
mod guarded;
mod importing;
pub(crate) mod lanes;
pub mod lookahead;
mod maintenance;
mod migration;
mod round_trips;
mod script;
mod slot_changes;
mod slots;
mod transaction;
mod waiting;
pub(crate) mod windows;

use std::sync::atomic::Ordering;

use commands::Handler;
use commands::call::{Call, KEYS_AHEAD, KEYS_IN_BATCH, KeyRef, Wait};
use commands::error::{Error, Outcome};
use commands::spec::Scope;
use resp::reply::{Mark, Output, Proto, Reply};
use resp::request::Args;
use store::db::Db;
use store::keyspace::{Layout, Locked, Shards};

use crate::clients::blocking::{Awaited, write_no_wait};
use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::clients::transaction::is_exec;
use crate::commit::{Changed, TokenCount};
use crate::services::{monitors, slow, users};
use crate::slow_path::{AWAITED, MIGRATES, SLOTS_OPEN};
use crate::worker::turn::{Invocation, Run, SessionHandler, Turn};
use crate::worker::{GateGuard, Worker, hash_keys};
use access::Context;
use commands::table::Command;
use statistics::ticks::Ticks;

/// A command that has run, with the results of its handler.
struct Called {
    /// The end of the previous command.
    began: Ticks,
    /// The start of its reply.
    start: Mark,
    outcome: Outcome,
    wait: Option<Wait>,
    /// The number of error replies that the handler wrote itself.
    errors: u32,
}

/// The client for which a handler of commands on keys runs. A trait, because a copy of these values would cost
/// instructions in each command.
trait Caller {
    /// Returns the selected database.
    fn database(&self) -> usize;
    /// Returns the version of the protocol.
    fn proto(&self) -> Proto;
    /// Returns true if lookups do not count as accesses (CLIENT NO-TOUCH).
    fn no_touch(&self) -> bool;
}

impl Caller for Session {
    #[inline(always)]
    fn database(&self) -> usize {
        self.database
    }

    #[inline(always)]
    fn proto(&self) -> Proto {
        self.proto
    }

    #[inline(always)]
    fn no_touch(&self) -> bool {
        self.no_touch
    }
}

impl Worker {
    /// Runs a command under the locks that its scope requires.
    pub(crate) fn execute(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        out: &mut Output,
        inside: &mut GateGuard,
    ) -> Progress {
        let engine = self.engine;
        let keyspace = &engine.keyspace;
        let Invocation { command, args, keys } = invoked;
        let progress = match (command.info.scope_for(*args), keys) {
            (Scope::Keys | Scope::ByArgs(_), [key]) => {
                let Some(mut locked) = self.lock_one(keyspace.shard_of(key.hash)) else {
                    return self.answer_busy(session, invoked, out);
                };
                self.call(session, invoked, &mut locked, out, true)
            }
            // Debug builds lock the named shards instead, so that a command that touches other keys is found.
            (Scope::Keys | Scope::ByArgs(_), [_, _, ..])
                if !cfg!(debug_assertions)
                    && let Some(mut all) = keyspace.own(inside.as_ref()) =>
            {
                prefetch(&all, session.database, keys);
                self.call(session, invoked, &mut all, out, true)
            }
            // In a cluster, the keys nearly always have one slot.
            (Scope::Keys | Scope::ByArgs(_), [first, rest @ ..])
                if keyspace.layout() == Layout::Slots
                    && rest.iter().all(|key| key.hash.slot() == first.hash.slot()) =>
            {
                let Some(mut locked) = self.lock_one(keyspace.shard_of(first.hash)) else {
                    return self.answer_busy(session, invoked, out);
                };
                prefetch(&locked, session.database, keys);
                self.call(session, invoked, &mut locked, out, true)
            }
            (Scope::Keys | Scope::ByArgs(_), [_, _, ..]) => {
                let mut shards = std::mem::take(&mut self.shard_set);
                shards.assign(keyspace, keys.iter().map(|key| key.hash));
                let Some(mut locked) = self.lock(Shards::Set(&shards)) else {
                    return self.answer_busy(session, invoked, out);
                };
                prefetch(&locked, session.database, keys);
                let progress = self.call(session, invoked, &mut locked, out, true);
                drop(locked);
                self.shard_set = shards;
                progress
            }
            (Scope::Whole, _) => {
                let progress = self.alone(session, inside, |worker, session, locked| {
                    worker.call_allowed(session, invoked, locked, out)
                });
                progress.unwrap_or_else(|| self.answer_busy(session, invoked, out))
            }
            (Scope::Script, _) => self.execute_script(session, invoked, out, inside),
            // The command would wait for a busy script's shard in the middle of its visits.
            (Scope::Each, _) if engine.busy.any() => return self.answer_busy(session, invoked, out),
            (Scope::Keys | Scope::ByArgs(_) | Scope::Each, _) => {
                if is_exec(command) && session.multi.as_ref().is_some_and(|m| !m.aborted) {
                    self.exec(session, invoked, out, inside)
                } else {
                    self.call_on_each(session, invoked, out)
                }
            }
        };
        self.serve_if_ready(inside);
        progress
    }

    /// Like [`Worker::lock`], for a single shard, which usually no other thread holds.
    #[inline]
    fn lock_one(&mut self, shard: usize) -> Option<Locked<'static>> {
        let keyspace = &self.engine.keyspace;
        keyspace.try_lock_one(shard).or_else(|| self.wait_for_one(shard))
    }

    #[cold]
    fn wait_for_one(&mut self, shard: usize) -> Option<Locked<'static>> {
        self.lock(Shards::One(shard))
    }

    /// Serves the waiters of changed keys. The caller holds no shard.
    #[inline]
    fn serve_if_ready(&mut self, inside: &mut GateGuard) {
        // A thread that a busy script keeps outside of the gate serves waiters later.
        if !self.ready.is_empty() && inside.is_some() {
            self.serve_ready(inside);
            self.ticks = Ticks::now();
        }
    }

    /// Runs a command that visits all shards one by one, or answers BUSY if a shard is unavailable.
    fn call_on_each(&mut self, session: &mut Session, invoked: Invocation<'_>, out: &mut Output) -> Progress {
        self.on_each(session, invoked, out, |worker, session, locked, out| {
            worker.call(session, invoked, locked, out, true)
        })
    }

    /// Calls `run` for a command that may visit all shards one by one, or answers BUSY if a shard was unavailable.
    #[inline(always)]
    fn on_each(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        out: &mut Output,
        run: impl FnOnce(&mut Worker, &mut Session, &mut Locked<'_>, &mut Output) -> Progress,
    ) -> Progress {
        let engine = self.engine;
        let start = out.mark();
        let is_busy = engine.busy.ends_waits();
        let mut locked = engine.keyspace.lock_each(&is_busy);
        let progress = run(self, session, &mut locked, out);
        if !self.observed.due.is_empty() {
            self.expire_due(session);
        }
        if !locked.gave_up() {
            return progress;
        }
        out.truncate(start);
        self.answer_busy(session, invoked, out)
    }

    /// Answers BUSY to a command that a running script keeps from its shards. A command of a primary's stream waits
    /// instead.
    #[cold]
    pub(crate) fn answer_busy(&mut self, session: &mut Session, invoked: Invocation<'_>, out: &mut Output) -> Progress {
        if session.applies_stream() {
            // Skipping the command would make the data differ from the primary's.
            return Progress::Paused;
        }
        let error = self.engine.busy.error();
        self.refuse(session, Some(invoked.command), invoked.args, &error, out);
        Progress::Ready
    }

    /// Runs a command after the gate was closed for it, unless its user has lost the permission meanwhile.
    pub(crate) fn call_allowed(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        locked: &mut Locked<'_>,
        out: &mut Output,
    ) -> Progress {
        if session.has_changed()
            && let Err(denial) = self.allow(session, invoked.command, *invoked.args, Context::TopLevel)
        {
            let error = users::error(session, invoked.command, denial);
            self.refuse(session, Some(invoked.command), invoked.args, &error, out);
            return Progress::Ready;
        }
        if session.has_changed()
            && session.is_clustered()
            && let Err(redirect) = self.route_admitted(session, invoked)
        {
            return self.forward_or_redirect(session, invoked, redirect, out);
        }
        self.call(session, invoked, locked, out, true)
    }

    /// Runs a command with its shards held. `may_park` is false for a part of a transaction or a script.
    pub(crate) fn call(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        locked: &mut Locked<'_>,
        out: &mut Output,
        may_park: bool,
    ) -> Progress {
        let slow_path = self.slow_path();
        // The command may have been admitted before the key's migration began. The migration takes the same locks.
        let may_be_late = may_park && slow_path & MIGRATES != 0;
        if may_be_late && self.engine.changes_migrating(session.database, invoked.command, *invoked.args) {
            return Progress::Paused;
        }
        if slow_path & SLOTS_OPEN != 0
            && may_park
            && let Some(redirect) = self.redirect_late(session, invoked, locked)
        {
            return self.forward_or_redirect(session, invoked, redirect, out);
        }
        let caches = session.caches();
        if caches && !invoked.keys.is_empty() {
            self.show_invalidations(session, out);
        }
        let called = match *self.run_of(invoked.command) {
            Run::Keys(run) => self.call_keys::<false>(session, invoked, run, slow_path, locked, out),
            Run::Session(run) => self.call_session::<false>(session, invoked, run, slow_path, locked, out),
        };
        let progress = self.end_call(session, invoked, called, out, may_park);
        if caches {
            self.remember_reads(session, invoked);
        }
        progress
    }

    /// Finishes a command that had effects beside its reply, and returns the connection's next step.
    #[inline(always)]
    fn end_call(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        called: Option<Called>,
        out: &mut Output,
        may_park: bool,
    ) -> Progress {
        match called {
            Some(called) => self.finish(session, invoked, called, out, may_park),
            None if session.closing => Progress::Closing,
            None => Progress::Ready,
        }
    }

    /// Runs a handler that sees keys only. Accounts for the command and returns `None` if it had no effect beside its
    /// reply: the common case. Otherwise the caller finishes the returned command.
    #[inline(always)]
    fn call_keys<const COUNT_LATER: bool>(
        &mut self,
        session: &Session,
        invoked: Invocation<'_>,
        run: Handler,
        slow_path: u64,
        locked: &mut Locked<'_>,
        out: &mut Output,
    ) -> Option<Called> {
        let (began, start) = (self.ticks, out.mark());
        let slow_path = self.begin_effects(invoked.keys, Some(invoked.args), slow_path);
        if slow_path & AWAITED != 0 {
            self.depend_on(invoked.command, invoked.args, invoked.keys);
        }
        let mut call = self.begin_call(session, invoked, locked, out);
        let outcome = run(&mut call);
        let (wait, errors) = (call.wait, call.reply.errors());
        if outcome.is_ok() && errors == 0 && wait.is_none() {
            if slow_path == 0 {
                self.account_for::<COUNT_LATER>(session, invoked.command, invoked.args, began);
                return None;
            }
            // Only a command that is a unit of its own is counted later.
            if COUNT_LATER && self.effects.must_record() && !self.must_notify() {
                self.commit_record(session.database, invoked.args, invoked.keys, slow_path);
                self.account_for::<COUNT_LATER>(session, invoked.command, invoked.args, began);
                return None;
            }
            if !self.has_consequences() {
                self.account_for::<COUNT_LATER>(session, invoked.command, invoked.args, began);
                return None;
            }
        }
        Some(Called { began, start, outcome, wait, errors })
    }

    /// Like [`Worker::call_keys`], for a handler that sees the session.
    #[inline(always)]
    fn call_session<const COUNT_LATER: bool>(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        run: SessionHandler,
        slow_path: u64,
        locked: &mut Locked<'_>,
        out: &mut Output,
    ) -> Option<Called> {
        let (began, start) = (self.ticks, out.mark());
        let Invocation { command, args, keys } = invoked;
        let slow_path = self.begin_effects(keys, Some(args), slow_path);
        if slow_path & AWAITED != 0 {
            self.depend_on(command, args, keys);
        }
        let reply = Reply::new(out, session.proto);
        let mut turn = Turn { worker: self, session, command, args, keys, locked, reply };
        let outcome = run(&mut turn);
        let errors = turn.reply.errors();
        let wait = turn.session.awaited.as_ref().map(|awaited| awaited.wait());
        // `slow_path` covers a script's declared keys only. Its commands may have changed other keys, so the unit
        // decides.
        let has_consequences =
            if slow_path == 0 { self.scripts.start_over || !self.unit.is_empty() } else { self.has_consequences() };
        let has_consequences = has_consequences || wait.is_some();
        if outcome.is_ok() && errors == 0 && !has_consequences {
            self.account_for::<COUNT_LATER>(session, invoked.command, invoked.args, began);
            return None;
        }
        Some(Called { began, start, outcome, wait, errors })
    }

    /// Returns whether the command that has just run has effects beside its reply, or must run again.
    #[inline]
    fn has_consequences(&self) -> bool {
        self.must_notify() || self.effects.must_record()
    }

    /// Like [`Worker::has_consequences`], without the check for a record.
    #[inline]
    fn must_notify(&self) -> bool {
        !self.effects.is_empty()
            || !self.observed.seen.is_empty()
            || !self.unit.is_empty()
            || self.is_monitored()
            || self.scripts.start_over
    }

    /// Returns whether the current unit has anything to notify or record.
    #[inline]
    fn has_effects(&self) -> bool {
        !self.effects.is_empty()
            || !self.observed.seen.is_empty()
            || self.effects.must_record()
            || !self.unit.is_empty()
    }

    /// Does the work after a command. Its shards are still held.
    fn finish(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        called: Called,
        out: &mut Output,
        may_park: bool,
    ) -> Progress {
        let Called { began, start, outcome, wait, errors } = called;
        let engine = self.engine;
        if self.scripts.start_over {
            // The script's first run leaves no trace, except for the expired keys that it met.
            out.truncate(start);
            self.commit(TokenCount::None);
            return Progress::Ready;
        }
        if outcome.is_err() || errors > 0 {
            self.note_errors(session, invoked.command, outcome, start, out);
        }
        if self.has_effects() {
            self.collect_effects(Some((session.database, invoked.args)), Changed::Keys(invoked.keys));
            // Commands of a transaction or a script are parts of its unit.
            if may_park {
                self.commit(TokenCount::Session(session, wait.is_none()));
            }
        }
        if self.is_monitored() {
            // A command that waits has no reply yet.
            let reply = if wait.is_none() { Some((&*out, start)) } else { None };
            monitors::feed(self, session, invoked, reply);
        }
        if wait.is_some() && may_park {
            // The command is counted once, at the end of its wait.
            self.ticks = Ticks::now();
        } else {
            self.account(session, invoked.command, invoked.args, began);
        }
        match wait {
            Some(wait) if may_park => self.park(session, invoked, wait),
            Some(wait) => {
                let reply = &mut Reply::new(out, session.proto);
                match session.awaited.take() {
                    Some(Awaited::Acknowledgement(awaited)) => engine.write_acknowledged(&awaited, reply),
                    // MIGRATE and SHUTDOWN run neither in transactions nor in scripts.
                    Some(Awaited::Migration { .. } | Awaited::Bus { .. } | Awaited::Shutdown) | None => {
                        write_no_wait(reply, wait.reply);
                    }
                }
                Progress::Ready
            }
            None if session.closing => Progress::Closing,
            None => Progress::Ready,
        }
    }

    /// Returns the call that a handler of commands on keys gets.
    #[inline(always)]
    fn begin_call<'c, 'l, 'k>(
        &'c mut self,
        caller: &impl Caller,
        invoked: Invocation<'c>,
        locked: &'l mut Locked<'k>,
        out: &'c mut Output,
    ) -> Call<'c, 'l, 'k>
    where
        'c: 'l,
    {
        if let Some(frequency) = &mut self.clock.frequency {
            frequency.seed = self.random.next();
        }
        let clock = if caller.no_touch() { self.clock.untouching() } else { &self.clock };
        Call {
            args: invoked.args,
            db: Db::new(locked, caller.database(), clock, &mut self.observed),
            reply: Reply::new(out, caller.proto()),
            effects: &mut self.effects,
            rules: &self.rules,
            random: &mut self.random,
            keys: invoked.keys,
            in_script: self.scripts.running,
            wait: None,
        }
    }

    /// Writes a handler's error, and counts all its errors.
    #[cold]
    fn note_errors(
        &mut self,
        session: &mut Session,
        command: &Command,
        outcome: Result<(), Error>,
        start: Mark,
        out: &mut Output,
    ) {
        if let Err(error) = outcome {
            Reply::new(out, session.proto).error(error.text());
        }
        self.stats().commands[command.id].failed.add(1);
        if let Some(noting) = self.scripts.noting() {
            noting.failed(command.id);
        }
        let text = out.since(start);
        let text = text.strip_prefix(b"-").unwrap_or(b"ERR");
        if !std::mem::take(&mut self.scripts.error_is_counted) {
            self.stats().count_error(text);
            if let Some(noting) = self.scripts.noting() {
                noting.error(text);
            }
        }
        // A script may handle the error of its command, so that error does not count for the session.
        if !self.scripts.running {
            let line = text.split(|&b| b == b'\r').next().unwrap_or_default();
            session.count_failure(Some(command), line);
        }
    }

    /// Counts a command, and records it if it was slow.
    pub(crate) fn account(&mut self, session: &Session, command: &Command, args: &Args<'_>, began: Ticks) {
        self.account_for::<false>(session, command, args, began);
    }

    /// Like [`Worker::account`]. With `LATER`, the counters may receive the command together with later ones. The
    /// caller then guarantees that nobody reads the counters before `Meter::count`.
    #[inline(always)]
    fn account_for<const LATER: bool>(&mut self, session: &Session, command: &Command, args: &Args<'_>, began: Ticks) {
        // The end of one command is the start of the next: one clock read for each.
        self.ticks = Ticks::now();
        let ticks = self.ticks.since(began);
        self.meter.note(command.id, ticks);
        if !LATER {
            self.meter.count();
        }
        session.client.last_command.store(command.id as u32, Ordering::Relaxed);
        self.note_if_slow(session, command, args, ticks);
    }

    /// Records a command in the slow log and the latency monitor if it exceeds a threshold.
    #[inline(always)]
    pub(crate) fn note_if_slow(&self, session: &Session, command: &Command, args: &Args<'_>, ticks: u64) {
        if ticks >= self.engine.notable_ticks() {
            slow::note_command(self, session, command, *args, ticks);
        }
    }
}

/// Prefetches the first keys of a command with many keys.
#[inline]
fn prefetch(locked: &Locked<'_>, database: usize, keys: &[KeyRef]) {
    if keys.len() > KEYS_IN_BATCH {
        locked.prefetch(database, keys.iter().take(KEYS_AHEAD).map(|key| key.hash));
    }
}

/// Returns the keys of a command that has been taken out of its batch.
#[must_use]
pub fn keys_of(command: &Command, args: &Args<'_>) -> Vec<KeyRef> {
    let mut keys = Vec::new();
    hash_keys(command, *args, &mut keys);
    keys
}
