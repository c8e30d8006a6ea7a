//! The way of one command: admitted, queued or run under the locks of its keys, then its effects.

mod admission;
mod batch;
mod caching;
mod connections;
mod guarded;
pub(crate) mod lanes;
pub mod lookahead;
mod migration;
mod room;
mod script;
mod steps;
mod tending;
mod transaction;
mod trips;
mod waiting;
pub(crate) mod windows;

use std::sync::atomic::Ordering;

use commands::Handler;
use commands::call::{Call, KEYS_AHEAD, KEYS_IN_BATCH, KeyRef, Wait};
use commands::error::{Error, Outcome};
use commands::spec::Scope;
use resp::reply::{Mark, Output, Reply};
use resp::request::Args;
use store::db::Db;
use store::keyspace::Locked;

use crate::access::Context;
use crate::clients::blocking::{Awaited, write_no_wait};
use crate::clients::session::Session;
use crate::clients::transaction::is_exec;
use crate::command_table::Command;
use crate::commit::{Changed, TokenCount};
use crate::machine::ticks::Ticks;
use crate::reasons::{AWAITED, MIGRATES};
use crate::services::{access, monitors, slow};
use crate::worker::turn::{Invocation, Run, SessionHandler, Turn};
use crate::worker::{Pass, Step, Worker, hash_keys};

/// A command that has run, with what its handler left.
struct Called {
    /// When the command before it ended.
    began: Ticks,
    /// Where its reply begins.
    start: Mark,
    outcome: Outcome,
    wait: Option<Wait>,
    /// Error replies that it has written itself.
    errors: u32,
}

impl Worker {
    /// Runs a command under the locks that its scope asks for.
    pub(crate) fn execute(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        let engine = self.engine;
        let keyspace = &engine.keyspace;
        let Invocation { command, args, keys } = invoked;
        let step = match (command.info.scope_for(*args), keys) {
            (Scope::Keys | Scope::ByArgs(_), [key]) => {
                let Some(mut locked) = self.lock_one(keyspace.shard_of(key.hash)) else {
                    return self.answer_busy(session, invoked, out);
                };
                self.call(session, invoked, &mut locked, out, true)
            }
            // The check that a command touches its own keys only is for the development of commands.
            (Scope::Keys | Scope::ByArgs(_), [_, _, ..])
                if !cfg!(debug_assertions)
                    && let Some(mut all) = keyspace.own(inside.as_ref()) =>
            {
                prefetch(&all, session.database, keys);
                self.call(session, invoked, &mut all, out, true)
            }
            (Scope::Keys | Scope::ByArgs(_), [_, _, ..]) => {
                let mut shards = std::mem::take(&mut self.shard_set);
                shards.assign(keyspace, keys.iter().map(|key| key.hash));
                let Some(mut locked) = self.lock(|keyspace, give_up| keyspace.lock_set_unless(&shards, give_up)) else {
                    return self.answer_busy(session, invoked, out);
                };
                prefetch(&locked, session.database, keys);
                let step = self.call(session, invoked, &mut locked, out, true);
                drop(locked);
                self.shard_set = shards;
                step
            }
            (Scope::Whole, _) => {
                let step = self.alone(session, inside, |worker, session, locked| {
                    worker.call_allowed(session, invoked, locked, out)
                });
                step.unwrap_or_else(|| self.answer_busy(session, invoked, out))
            }
            (Scope::Script, _) => self.execute_script(session, invoked, out, inside),
            // It would wait for a shard in the midst of its visits.
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
        step
    }

    /// As [`Worker::lock`], a single shard, which mostly no other thread has.
    #[inline]
    fn lock_one(&mut self, shard: usize) -> Option<Locked<'static>> {
        let keyspace = &self.engine.keyspace;
        keyspace.try_lock_one(shard).or_else(|| self.wait_for_one(shard))
    }

    #[cold]
    fn wait_for_one(&mut self, shard: usize) -> Option<Locked<'static>> {
        self.lock(|keyspace, give_up| keyspace.lock_one_unless(shard, give_up))
    }

    /// Serves the waiters for what has changed. No shard is held.
    #[inline]
    fn serve_if_ready(&mut self, inside: &mut Pass) {
        // Outside of the gate, where a busy script has put this thread, it has to wait.
        if !self.ready.is_empty() && inside.is_some() {
            self.serve_ready(inside);
            self.ticks = Ticks::now();
        }
    }

    /// Runs a command that visits all shards one by one, or answers BUSY if one can't be had.
    fn call_on_each(&mut self, session: &mut Session, invoked: Invocation<'_>, out: &mut Output) -> Step {
        self.on_each(session, invoked, out, |worker, session, locked, out| {
            worker.call(session, invoked, locked, out, true)
        })
    }

    /// Has `run` run a command that may visit all shards one by one, or answers BUSY if one couldn't be had.
    #[inline(always)]
    fn on_each(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        out: &mut Output,
        run: impl FnOnce(&mut Worker, &mut Session, &mut Locked<'_>, &mut Output) -> Step,
    ) -> Step {
        let engine = self.engine;
        let start = out.mark();
        let is_busy = engine.busy.ends_waits();
        let mut locked = engine.keyspace.lock_each_unless(&is_busy);
        let step = run(self, session, &mut locked, out);
        if !self.observed.due.is_empty() {
            self.expire_due(session);
        }
        if !locked.gave_up() {
            return step;
        }
        out.truncate(start);
        self.answer_busy(session, invoked, out)
    }

    /// Answers a command that can't have what it needs as long as a script runs. One of a primary's stream waits.
    #[cold]
    pub(crate) fn answer_busy(&mut self, session: &mut Session, invoked: Invocation<'_>, out: &mut Output) -> Step {
        if session.applies_stream() {
            // Without the command, the data would not be the primary's any more: it waits.
            return Step::Pause;
        }
        let error = self.engine.busy.error();
        self.refuse(session, Some(invoked.command), invoked.args, &error, out);
        Step::Next
    }

    /// Leaves the gate, closes it, runs something of a connection's alone, and passes the gate again. None if it has
    /// not run, because of a script that takes too long; because of another one, this thread may be outside of the gate
    /// afterwards.
    pub(crate) fn alone(
        &mut self,
        session: &mut Session,
        inside: &mut Pass,
        run: impl FnOnce(&mut Worker, &mut Session, &mut Locked<'_>) -> Step,
    ) -> Option<Step> {
        let engine = self.engine;
        let keyspace = &engine.keyspace;
        *inside = None;
        let step = keyspace.gate().close_unless(engine.busy.ends_waits()).map(|alone| {
            // The wait for the others is not the command's time.
            self.ticks = Ticks::now();
            self.clock.follow(self.ticks);
            self.effects.recording = engine.journal.is_read();
            // The wait may have been for a change of its user.
            session.follow_summons();
            let is_over = session.followed.as_ref().is_some_and(|followed| followed.is_over(&engine.replication));
            if session.has_lost_token() || is_over {
                Step::Gone
            } else {
                let step = run(self, session, &mut keyspace.all(&alone));
                // Before the gate opens to a thread that asks what has run.
                session.count(step);
                if let Some(followed) = &mut session.followed {
                    let after = (engine.journal.position(), session.database);
                    followed.note_single(&engine.replication, after, session.multi.is_some());
                }
                step
            }
        });
        *inside = self.pass();
        session.follow_summons();
        // Another thread may have closed the gate meanwhile, for long; that time is not the next command's.
        self.ticks = Ticks::now();
        self.clock.follow(self.ticks);
        step
    }

    /// Runs a command for which the gate has been closed, unless its user has lost the right to it meanwhile.
    pub(crate) fn call_allowed(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        locked: &mut Locked<'_>,
        out: &mut Output,
    ) -> Step {
        if session.has_changed()
            && let Err(denial) = self.allow(session, invoked.command, *invoked.args, Context::TopLevel)
        {
            let error = access::error(session, invoked.command, denial);
            self.refuse(session, Some(invoked.command), invoked.args, &error, out);
            return Step::Next;
        }
        self.call(session, invoked, locked, out, true)
    }

    /// Runs a command whose shards are held. `may_park`: it is not part of a transaction.
    pub(crate) fn call(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        locked: &mut Locked<'_>,
        out: &mut Output,
        may_park: bool,
    ) -> Step {
        let reasons = self.reasons();
        // It may have been admitted before the key's migration began, which takes the same locks.
        let may_be_late = may_park && reasons & MIGRATES != 0;
        if may_be_late && self.engine.changes_migrating(session.database, invoked.command, *invoked.args) {
            return Step::Pause;
        }
        let caches = session.caches();
        if caches && !invoked.keys.is_empty() {
            self.show_invalidations(session, out);
        }
        let called = match *self.run_of(invoked.command) {
            Run::Keys(run) => self.call_keys::<false>(session, invoked, run, reasons, locked, out),
            Run::Session(run) => self.call_session::<false>(session, invoked, run, reasons, locked, out),
        };
        let step = self.end_call(session, invoked, called, out, may_park);
        if caches {
            self.remember_reads(session, invoked);
        }
        step
    }

    /// Finishes a command that had consequences beside its reply, and says how the connection goes on.
    #[inline(always)]
    fn end_call(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        called: Option<Called>,
        out: &mut Output,
        may_park: bool,
    ) -> Step {
        match called {
            Some(called) => self.finish(session, invoked, called, out, may_park),
            None if session.closing => Step::Close,
            None => Step::Next,
        }
    }

    /// Runs a handler that sees keys only, and accounts for it if it had no consequences beside its reply: the case
    /// worth being quick about. What is returned otherwise is to be finished.
    #[inline(always)]
    fn call_keys<const COUNT_LATER: bool>(
        &mut self,
        session: &Session,
        invoked: Invocation<'_>,
        run: Handler,
        reasons: u64,
        locked: &mut Locked<'_>,
        out: &mut Output,
    ) -> Option<Called> {
        let (began, start) = (self.ticks, out.mark());
        let reasons = self.begin_effects(invoked.keys, Some(invoked.args), reasons);
        if reasons & AWAITED != 0 {
            self.depend_on(invoked.command, invoked.args, invoked.keys);
        }
        let mut call = self.begin_call(session, invoked, locked, out);
        let outcome = run(&mut call);
        let (wait, errors) = (call.wait, call.reply.errors());
        if outcome.is_ok() && errors == 0 && wait.is_none() {
            if reasons == 0 {
                self.account_for::<COUNT_LATER>(session, invoked.command, invoked.args, began);
                return None;
            }
            // Only a command that is a unit of its own is counted later.
            if COUNT_LATER && self.effects.must_record() && !self.is_told() {
                self.commit_record(session.database, invoked.args, invoked.keys, reasons);
                self.account_for::<COUNT_LATER>(session, invoked.command, invoked.args, began);
                return None;
            }
            if !self.is_noted() {
                self.account_for::<COUNT_LATER>(session, invoked.command, invoked.args, began);
                return None;
            }
        }
        Some(Called { began, start, outcome, wait, errors })
    }

    /// The same for a handler that sees the session.
    #[inline(always)]
    fn call_session<const COUNT_LATER: bool>(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        run: SessionHandler,
        reasons: u64,
        locked: &mut Locked<'_>,
        out: &mut Output,
    ) -> Option<Called> {
        let (began, start) = (self.ticks, out.mark());
        let Invocation { command, args, keys } = invoked;
        let reasons = self.begin_effects(keys, Some(args), reasons);
        if reasons & AWAITED != 0 {
            self.depend_on(command, args, keys);
        }
        let reply = Reply::new(out, session.proto);
        let mut turn = Turn { worker: self, session, command, args, keys, locked, reply };
        let outcome = run(&mut turn);
        let errors = turn.reply.errors();
        let wait = turn.session.awaited.as_ref().map(|awaited| awaited.wait());
        // What listens to a script's declared keys isn't all that matters: its commands may have changed others.
        let is_noted = if reasons == 0 { self.scripts.start_over || !self.unit.is_empty() } else { self.is_noted() };
        let is_noted = is_noted || wait.is_some();
        if outcome.is_ok() && errors == 0 && !is_noted {
            self.account_for::<COUNT_LATER>(session, invoked.command, invoked.args, began);
            return None;
        }
        Some(Called { began, start, outcome, wait, errors })
    }

    /// True if a command that has just run leaves something behind beside its reply, or must run again.
    #[inline]
    fn is_noted(&self) -> bool {
        self.is_told() || self.effects.must_record()
    }

    /// The same, a record apart.
    #[inline]
    fn is_told(&self) -> bool {
        !self.effects.is_empty()
            || !self.observed.seen.is_empty()
            || !self.unit.is_empty()
            || self.is_monitored()
            || self.scripts.start_over
    }

    /// True if the command that has just run, or one before it in the same unit, has something to be told or recorded.
    #[inline]
    fn has_effects(&self) -> bool {
        !self.effects.is_empty()
            || !self.observed.seen.is_empty()
            || self.effects.must_record()
            || !self.unit.is_empty()
    }

    /// Does what is to be done after a command. Its shards are still held.
    fn finish(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        called: Called,
        out: &mut Output,
        may_park: bool,
    ) -> Step {
        let Called { began, start, outcome, wait, errors } = called;
        let engine = self.engine;
        if self.scripts.start_over {
            // As if it had never begun, but for the expired keys that it met.
            out.truncate(start);
            self.commit(TokenCount::None);
            return Step::Next;
        }
        if outcome.is_err() || errors > 0 {
            self.note_errors(session, invoked.command, outcome, start, out);
        }
        if self.has_effects() {
            self.gather(Some((session.database, invoked.args)), Changed::Keys(invoked.keys));
            // Commands of a transaction or a script are parts of its unit.
            if may_park {
                self.commit(TokenCount::Session(session, wait.is_none()));
            }
        }
        if self.is_monitored() {
            // What waits has no reply yet.
            let reply = if wait.is_none() { Some((&*out, start)) } else { None };
            monitors::feed(self, session, invoked, reply);
        }
        if wait.is_some() && may_park {
            // It counts once, when its wait is over.
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
                    // MIGRATE runs neither in transactions nor in scripts.
                    Some(Awaited::Migration { .. }) | None => write_no_wait(reply, wait.reply),
                }
                Step::Next
            }
            None if session.closing => Step::Close,
            None => Step::Next,
        }
    }

    #[inline(always)]
    fn begin_call<'c, 'l, 'k>(
        &'c mut self,
        session: &Session,
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
        let clock = if session.no_touch { self.clock.untouching() } else { &self.clock };
        Call {
            args: invoked.args,
            db: Db::new(locked, session.database, clock, &mut self.observed),
            reply: Reply::new(out, session.proto),
            effects: &mut self.effects,
            rules: &self.rules,
            random: &mut self.random,
            keys: invoked.keys,
            in_script: self.scripts.running,
            wait: None,
        }
    }

    /// Writes a handler's error, and counts all that it answered.
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
        // What a script does with a command's error is its own affair.
        if !self.scripts.running {
            let line = text.split(|&b| b == b'\r').next().unwrap_or_default();
            session.count_failure(Some(command), line);
        }
    }

    /// Counts a command, and records it if it was slow.
    pub(crate) fn account(&mut self, session: &Session, command: &Command, args: &Args<'_>, began: Ticks) {
        self.account_for::<false>(session, command, args, began);
    }

    /// The same; `LATER`: the counters may get it together with others. Then nothing that reads them runs before
    /// `Meter::count`.
    #[inline(always)]
    fn account_for<const LATER: bool>(&mut self, session: &Session, command: &Command, args: &Args<'_>, began: Ticks) {
        // The end of one command is the beginning of the next: one reading of the counter each.
        self.ticks = Ticks::now();
        let ticks = self.ticks.since(began);
        self.meter.note(command.id, ticks);
        if !LATER {
            self.meter.count();
        }
        session.client.last_command.store(command.id as u32, Ordering::Relaxed);
        self.note_if_slow(session, command, args, ticks);
    }

    /// Records a command if what it took is worth it.
    #[inline(always)]
    pub(crate) fn note_if_slow(&self, session: &Session, command: &Command, args: &Args<'_>, ticks: u64) {
        if ticks >= self.engine.notable_ticks() {
            slow::note_command(self, session, command, *args, ticks);
        }
    }
}

/// Asks for the memory that a command with many keys will read first.
#[inline]
fn prefetch(locked: &Locked<'_>, database: usize, keys: &[KeyRef]) {
    if keys.len() > KEYS_IN_BATCH {
        locked.prefetch(database, keys.iter().take(KEYS_AHEAD).map(|key| key.hash));
    }
}

/// The keys of a command that has been taken out of its batch.
#[must_use]
pub fn keys_of(command: &Command, args: &Args<'_>) -> Vec<KeyRef> {
    let mut keys = Vec::new();
    hash_keys(command, *args, &mut keys);
    keys
}
