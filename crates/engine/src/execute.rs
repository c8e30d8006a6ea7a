//! The way of one command: admitted, queued or run under the locks of its keys, then its effects.

mod transaction;
mod waiting;

use std::sync::atomic::Ordering;

use commands::Handler;
use commands::call::{Call, KEYS_AHEAD, KEYS_IN_BATCH, KeyRef, Wait};
use commands::effects::{Class, Concerns};
use commands::error::{Error, Outcome, SHOWN_BYTES, shown};
use commands::spec::{Scope, flag};
use resp::reply::{Mark, Output, Reply};
use resp::request::Args;
use store::db::{Access, Clock, Db, Event, Seen};
use store::hash::hash;
use store::keyspace::Locked;

use self::transaction::{queue, runs_within_multi};
use crate::blocking::write_no_wait;
use crate::command_table::{Command, Run, SessionHandler, table};
use crate::config::LogLevel;
use crate::families;
use crate::session::{ReplyMode, Session};
use crate::ticks::Ticks;
use crate::turn::Turn;
use crate::worker::{Pass, Planned, Step, Worker, hash_keys};

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
        self.count_timings();
        if session.tally.is_some() {
            return self.step_counted(session, plan, args, keys, out, inside);
        }
        match self.plain(session, plan) {
            Some(command) => self.step_plain(session, command, args, keys, out, inside),
            None => self.step_with_care(session, plan.command, args, keys, out, inside),
        }
    }

    /// Whether the next command may run by [`Worker::step_quickly`] or [`Worker::step_keyless`] if its plan allows it:
    /// nothing about the session needs a look before it, and only other commands can change that.
    #[inline]
    pub(crate) fn may_be_quick(&self, session: &Session) -> bool {
        session.tally.is_none() && session.is_plain() && !self.memory.full
    }

    /// Runs a command with one key that sees keys only.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "everything a call needs, none of it together elsewhere")]
    pub(crate) fn step_quickly(
        &mut self,
        session: &mut Session,
        plan: &Planned,
        run: Handler,
        args: &Args<'_>,
        keys: &[KeyRef],
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        let (Some(command), [key]) = (plan.command, keys) else {
            return self.step(session, plan, args, keys, out, inside);
        };
        let engine = self.engine;
        let keyspace = &engine.keyspace;
        let shard = keyspace.shard_of(key.hash);
        // Also while CLIENT PAUSE holds commands back.
        let Some(mut locked) = (if engine.is_held_up() {
            None
        } else {
            let own = keyspace.own_one(shard, inside.as_ref());
            own.or_else(|| self.lock_one(shard))
        }) else {
            return self.step(session, plan, args, keys, out, inside);
        };
        // Nothing else has happened that anybody would have to be told of, least of all this connection.
        let Some(called) = self.call_keys::<true>(session, command, run, args, keys, &mut locked, out) else {
            return Step::Next;
        };
        let step = self.finish(session, command, args, keys, called, out, true);
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
        let engine = self.engine;
        let (Some(command @ Command { run: Run::Session(run), .. }), false) = (plan.command, engine.is_held_up())
        else {
            return self.step(session, plan, args, &[], out, inside);
        };
        // Not by way of `call`: that its handler is known saves calls, each of which hands on half a dozen arguments.
        let step = self.on_each(session, command, args, out, |worker, session, locked, out| {
            let called = worker.call_session::<true>(session, command, *run, args, &[], locked, out);
            worker.end_call(session, command, args, &[], called, out, true)
        });
        self.after_plain(session, step, out, inside)
    }

    /// The command, if neither it nor the session needs a second look before it runs.
    #[inline]
    fn plain(&self, session: &Session, plan: &Planned) -> Option<&'static Command> {
        plan.command.filter(|_| session.is_plain() && plan.fits && !self.engine.is_held_up() && !self.memory.full)
    }

    #[inline]
    fn step_plain(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: &Args<'_>,
        keys: &[KeyRef],
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        let step = self.execute(session, command, args, keys, out, inside);
        self.after_plain(session, step, out, inside)
    }

    #[inline]
    fn after_plain(&mut self, session: &mut Session, step: Step, out: &mut Output, inside: &mut Pass) -> Step {
        self.serve_if_ready(inside);
        if !session.pushes.is_empty() {
            out.append(&mut session.pushes);
        }
        // RESET takes the authentication away.
        if step == Step::Next && !session.authenticated { Step::Reframe } else { step }
    }

    /// The same for a connection that counts for a pipeline.
    #[inline(never)]
    fn step_counted(
        &mut self,
        session: &mut Session,
        plan: &Planned,
        args: &Args<'_>,
        keys: &[KeyRef],
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        // This thread may have left the gate since the last command, and another connection have got the token.
        if !session.begin_counted(plan.command) {
            return Step::Gone;
        }
        let step = match self.plain(session, plan) {
            Some(command) => self.step_plain(session, command, args, keys, out, inside),
            None => self.step_with_care(session, plan.command, args, keys, out, inside),
        };
        session.count(step);
        step
    }

    /// The same while this thread can't pass the gate because of a script that takes too long, or is in the midst of
    /// it.
    #[cold]
    pub(crate) fn step_outside(
        &mut self,
        session: &mut Session,
        command: Option<&'static Command>,
        args: &Args<'_>,
        out: &mut Output,
    ) -> Step {
        if session.tally.is_some() && !session.begin_counted(command) {
            return Step::Gone;
        }
        self.count_timings();
        let before = std::mem::replace(&mut self.scripts.busy_turn, true);
        let step = self.step_with_care(session, command, args, &[], out, &mut None);
        self.scripts.busy_turn = before;
        session.count(step);
        step
    }

    /// The same for a session or a command that needs a second look, and for all while CLIENT PAUSE holds some back.
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
        if session.reply_mode == ReplyMode::SkipNext {
            session.reply_mode = ReplyMode::Skip;
        }
        // Commands that do not run show in CLIENT LIST too.
        let last = command.map_or(u32::MAX, |c| c.id as u32);
        session.client.last_command.store(last, Ordering::Relaxed);
        let wanted = session.reply_mode;
        let was_authenticated = session.authenticated;
        let mut step = match self.admit(session, command, args) {
            Ok(None) => return Step::Pause,
            Ok(Some(command)) if session.multi.is_some() && !runs_within_multi(command) => {
                queue(session, command, args, keys);
                Reply::new(out, session.proto).simple("QUEUED");
                Step::Next
            }
            Ok(Some(command)) => {
                // While commands are held back, keys stay as they are, as far as anybody can tell.
                self.clock.keeps_due = self.engine.is_paused(self.clock.now_ms);
                let step = self.execute(session, command, args, keys, out, inside);
                self.clock.keeps_due = false;
                step
            }
            Err(error) => {
                self.refuse(session, command, args, &error, out);
                Step::Next
            }
        };
        if step == Step::Next && session.authenticated != was_authenticated {
            step = Step::Reframe;
        }
        silence(session, wanted, start, out);
        // The reply that is skipped may be one that is still to come.
        if session.reply_mode == ReplyMode::Skip && step != Step::Park {
            session.reply_mode = ReplyMode::On;
        }
        // After the reply is complete or taken back: they neither tear it nor are they silenced with it.
        if !session.pushes.is_empty() {
            out.append(&mut session.pushes);
        }
        step
    }

    /// Says in the log who has sent HTTP, once a minute at most.
    fn warn_of_http(&self, session: &Session) {
        let (engine, now_ms) = (self.engine, self.clock.now_ms);
        let warned_ms = &engine.http_warned_ms;
        let before_ms = warned_ms.load(Ordering::Relaxed);
        // Of a clock that was set back since, it can't be told how long ago it was.
        if (now_ms < before_ms || now_ms - before_ms >= HTTP_WARNING_MS)
            && warned_ms.compare_exchange(before_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let text = format!(
                "Possible SECURITY ATTACK detected: {} has sent POST or Host:, as HTTP has it. Perhaps an attacker has had a \
                 browser or another program connect to this port; the connection was closed.",
                session.client.addr
            );
            engine.host.log(LogLevel::Warning, &text);
        }
    }

    /// Whether a command may run now; none: not yet (CLIENT PAUSE). The checks are in Redis's order, since their
    /// errors show it.
    fn admit(
        &mut self,
        session: &mut Session,
        command: Option<&'static Command>,
        args: &Args<'_>,
    ) -> Result<Option<&'static Command>, Error> {
        let Some(command) = command else { return Err(unknown(args)) };
        if !command.info.accepts(args.len()) {
            return Err(Error::arity(&command.name));
        }
        if self.engine.must_authenticate(session) && !command.info.has(flag::NO_AUTH) {
            return Err(Error::new("NOAUTH Authentication required."));
        }
        if session.multi.is_some() && command.info.has(flag::NO_MULTI) {
            return Err(Error::new("ERR Command not allowed inside a transaction"));
        }
        if self.memory.full && needs_memory(session, command) {
            return Err(Error::OUT_OF_MEMORY);
        }
        if session.is_subscriber() && !families::is_allowed_for_subscribers(command) {
            return Err(Error::new(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                command.name
            )));
        }
        // As long as this thread is held up by a script, only what touches no key runs.
        if self.scripts.busy_turn && !(command.info.has(flag::ALLOW_BUSY) && command.info.keys.is_empty()) {
            return Err(self.engine.busy.error());
        }
        if session.monitoring && command.info.has(flag::READONLY | flag::WRITE | flag::MAY_REPLICATE) {
            return Err(Error::new("ERR Replica can't interact with the keyspace"));
        }
        if self.engine.holds_up(session, command, self.clock.now_ms) { Ok(None) } else { Ok(Some(command)) }
    }

    /// Answers a command that does not run. Within a transaction, that makes EXEC refuse all of it; when it is EXEC
    /// itself, any transaction ends here.
    fn refuse(
        &mut self,
        session: &mut Session,
        command: Option<&'static Command>,
        args: &Args<'_>,
        error: &Error,
        out: &mut Output,
    ) {
        if let Some(command) = command {
            self.stats().commands[command.id].rejected.add(1);
        }
        let mut error = error.clone();
        if let Some(multi) = &mut session.multi {
            multi.aborted = true;
        }
        if command.is_some_and(families::transactions::is_exec) {
            error = families::transactions::abort(self, session, &error);
        }
        self.stats().count_error(error.text());
        if families::pipeline::is_own(args.get(0)) {
            session.count_not();
        }
        session.count_failure(command, error.text());
        Reply::new(out, session.proto).error(error.text());
    }

    /// Runs a command under the locks that its scope asks for.
    pub(crate) fn execute(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: &Args<'_>,
        keys: &[KeyRef],
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        let engine = self.engine;
        let keyspace = &engine.keyspace;
        let step = match (command.info.scope_for(*args), keys) {
            (Scope::Keys | Scope::ByArgs(_), [key]) => {
                let Some(mut locked) = self.lock_one(keyspace.shard_of(key.hash)) else {
                    return self.answer_busy(session, command, args, out);
                };
                self.call(session, command, args, keys, &mut locked, out, true)
            }
            // The check that a command touches its own keys only is for those who change commands.
            (Scope::Keys | Scope::ByArgs(_), [_, _, ..])
                if !cfg!(debug_assertions)
                    && let Some(mut all) = keyspace.own(inside.as_ref()) =>
            {
                prefetch(&all, session.database, keys);
                self.call(session, command, args, keys, &mut all, out, true)
            }
            (Scope::Keys | Scope::ByArgs(_), [_, _, ..]) => {
                let mut shards = std::mem::take(&mut self.shard_set);
                shards.assign(keyspace, keys.iter().map(|key| key.hash));
                let Some(mut locked) = self.lock(|keyspace, give_up| keyspace.lock_set_unless(&shards, give_up)) else {
                    return self.answer_busy(session, command, args, out);
                };
                prefetch(&locked, session.database, keys);
                let step = self.call(session, command, args, keys, &mut locked, out, true);
                drop(locked);
                self.shard_set = shards;
                step
            }
            (Scope::Whole, _) => {
                let step = self.alone(session, inside, |worker, session, locked| {
                    worker.call(session, command, args, keys, locked, out, true)
                });
                step.unwrap_or_else(|| self.answer_busy(session, command, args, out))
            }
            (Scope::Script, _) => self.execute_script(session, command, args, keys, out, inside),
            // It would wait for a shard in the midst of its visits.
            (Scope::Each, _) if engine.busy.any() => return self.answer_busy(session, command, args, out),
            (Scope::Keys | Scope::ByArgs(_) | Scope::Each, _) => {
                if families::is_exec(command) && session.multi.as_ref().is_some_and(|m| !m.aborted) {
                    self.exec(session, command, args, out, inside)
                } else {
                    self.call_on_each(session, command, args, out)
                }
            }
        };
        self.serve_if_ready(inside);
        step
    }

    /// As [`Worker::lock`], a single shard, which mostly nobody else has.
    #[inline]
    fn lock_one(&mut self, shard: usize) -> Option<Locked<'static>> {
        let keyspace = &self.engine.keyspace;
        keyspace.try_lock_one(shard).or_else(|| self.wait_for_one(shard))
    }

    #[cold]
    fn wait_for_one(&mut self, shard: usize) -> Option<Locked<'static>> {
        self.lock(|keyspace, give_up| keyspace.lock_one_unless(shard, give_up))
    }

    /// Serves those who wait for what has changed. No shard is held.
    #[inline]
    fn serve_if_ready(&mut self, inside: &mut Pass) {
        // Outside of the gate, where a busy script has put this thread, it has to wait.
        if !self.ready.is_empty() && inside.is_some() {
            self.serve_ready(inside);
            self.ticks = Ticks::now();
        }
    }

    /// Runs a command that visits all shards one by one, or answers BUSY if one can't be had.
    fn call_on_each(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: &Args<'_>,
        out: &mut Output,
    ) -> Step {
        self.on_each(session, command, args, out, |worker, session, locked, out| {
            worker.call(session, command, args, &[], locked, out, true)
        })
    }

    /// Has `run` run a command that may visit all shards one by one, or answers BUSY if one couldn't be had.
    #[inline(always)]
    fn on_each(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: &Args<'_>,
        out: &mut Output,
        run: impl FnOnce(&mut Worker, &mut Session, &mut Locked<'_>, &mut Output) -> Step,
    ) -> Step {
        let engine = self.engine;
        let start = out.mark();
        let is_busy = engine.busy.ends_waits();
        let mut locked = engine.keyspace.lock_each_unless(&is_busy);
        let step = run(self, session, &mut locked, out);
        if !locked.gave_up() {
            return step;
        }
        out.truncate(start);
        self.answer_busy(session, command, args, out)
    }

    /// Answers a command that can't have what it needs as long as a script runs.
    #[cold]
    pub(crate) fn answer_busy(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: &Args<'_>,
        out: &mut Output,
    ) -> Step {
        let error = self.engine.busy.error();
        self.refuse(session, Some(command), args, &error, out);
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
            self.follow_clock(self.ticks);
            if session.has_lost_token() {
                Step::Gone
            } else {
                let step = run(self, session, &mut keyspace.all(&alone));
                // Before the gate opens to whoever wants to know what has run.
                session.count(step);
                step
            }
        });
        *inside = self.pass();
        // Somebody else may have closed the gate meanwhile, for long; that time is not the next command's.
        self.ticks = Ticks::now();
        self.follow_clock(self.ticks);
        step
    }

    /// Passes the gate; not, if it is closed for a script that takes too long.
    pub(crate) fn pass(&self) -> Pass {
        let engine = self.engine;
        engine.keyspace.gate().enter_unless(self.id, engine.busy.ends_waits())
    }

    /// The shards of keys, ascending and without duplicates, in the worker's own vector.
    pub(crate) fn take_shards(&mut self, keys: &[KeyRef]) -> Vec<usize> {
        let mut shards = std::mem::take(&mut self.shards);
        shards.clear();
        shards.extend(keys.iter().map(|k| self.engine.keyspace.shard_of(k.hash)));
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Runs a command whose shards are held. `may_park`: it is not part of a transaction.
    #[expect(clippy::too_many_arguments, reason = "everything a call needs, none of it together elsewhere")]
    pub(crate) fn call(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: &Args<'_>,
        keys: &[KeyRef],
        locked: &mut Locked<'_>,
        out: &mut Output,
        may_park: bool,
    ) -> Step {
        let called = match command.run {
            Run::Keys(run) => self.call_keys::<false>(session, command, run, args, keys, locked, out),
            Run::Session(run) => self.call_session::<false>(session, command, run, args, keys, locked, out),
        };
        self.end_call(session, command, args, keys, called, out, may_park)
    }

    /// Finishes a command that had consequences beside its reply, and says how the connection goes on.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "everything a call needs, none of it together elsewhere")]
    fn end_call(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: &Args<'_>,
        keys: &[KeyRef],
        called: Option<Called>,
        out: &mut Output,
        may_park: bool,
    ) -> Step {
        match called {
            Some(called) => self.finish(session, command, args, keys, called, out, may_park),
            None if session.closing => Step::Close,
            None => Step::Next,
        }
    }

    /// Runs a handler that sees keys only, and accounts for it if it had no consequences beside its reply: the case
    /// worth being quick about. What is returned otherwise is to be finished.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "everything a call needs, none of it together elsewhere")]
    fn call_keys<const COUNT_LATER: bool>(
        &mut self,
        session: &Session,
        command: &'static Command,
        run: Handler,
        args: &Args<'_>,
        keys: &[KeyRef],
        locked: &mut Locked<'_>,
        out: &mut Output,
    ) -> Option<Called> {
        let (began, start) = (self.ticks, out.mark());
        self.listen();
        let mut call = self.begin_call(session, args, keys, locked, out);
        let outcome = run(&mut call);
        let (wait, errors) = (call.wait, call.reply.errors());
        if outcome.is_ok() && errors == 0 && wait.is_none() && !self.is_noted() {
            self.account_for::<COUNT_LATER>(session, command, args, began);
            return None;
        }
        Some(Called { began, start, outcome, wait, errors })
    }

    /// The same for a handler that sees the session.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "everything a call needs, none of it together elsewhere")]
    fn call_session<const COUNT_LATER: bool>(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        run: SessionHandler,
        args: &Args<'_>,
        keys: &[KeyRef],
        locked: &mut Locked<'_>,
        out: &mut Output,
    ) -> Option<Called> {
        let (began, start) = (self.ticks, out.mark());
        self.listen();
        let reply = Reply::new(out, session.proto);
        let mut turn = Turn { worker: self, session, command, args, keys, locked, reply };
        let outcome = run(&mut turn);
        let errors = turn.reply.errors();
        if outcome.is_ok() && errors == 0 && !self.is_noted() {
            self.account_for::<COUNT_LATER>(session, command, args, began);
            return None;
        }
        Some(Called { began, start, outcome, wait: None, errors })
    }

    /// Has the next command list what somebody listens for. Its shards are held: see `Engine::is_listening`.
    #[inline]
    fn listen(&mut self) {
        self.effects.listening = self.engine.is_listening();
        self.observed.list = if self.effects.listening { self.engine.events_to_list() } else { 0 };
    }

    /// Whether a command that has just run is to be told to anybody, or to be run again.
    #[inline]
    fn is_noted(&self) -> bool {
        !self.effects.is_empty()
            || !self.observed.seen.is_empty()
            || !self.engine.monitors.is_empty()
            || self.scripts.start_over
    }

    /// Does what is to be done after a command. Its shards are still held.
    #[expect(clippy::too_many_arguments, reason = "everything a call needs, none of it together elsewhere")]
    fn finish(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: &Args<'_>,
        keys: &[KeyRef],
        called: Called,
        out: &mut Output,
        may_park: bool,
    ) -> Step {
        let Called { began, start, outcome, wait, errors } = called;
        if self.scripts.start_over {
            // As if it had never begun.
            out.truncate(start);
            return Step::Next;
        }
        if outcome.is_err() || errors > 0 {
            self.note_errors(session, command, outcome, start, out);
        }
        if !self.effects.is_empty() || !self.observed.seen.is_empty() {
            self.settle(Some(session));
        }
        if !self.engine.monitors.is_empty() {
            families::feed_monitors(self, session, command, *args);
        }
        if wait.is_some() && may_park {
            // It counts once, when its wait is over.
            self.ticks = Ticks::now();
        } else {
            self.account(session, command, args, began);
        }
        match wait {
            Some(wait) if may_park => self.park(session, command, args, keys, wait),
            Some(wait) => {
                write_no_wait(&mut Reply::new(out, session.proto), wait.reply);
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
        args: &'c Args<'c>,
        keys: &'c [KeyRef],
        locked: &'l mut Locked<'k>,
        out: &'c mut Output,
    ) -> Call<'c, 'l, 'k>
    where
        'c: 'l,
    {
        if let Some(frequency) = &mut self.clock.frequency {
            frequency.seed = self.random.next();
        }
        let clock = if session.no_touch {
            self.untouching_clock = Clock { access: Access::None, ..self.clock };
            &self.untouching_clock
        } else {
            &self.clock
        };
        Call {
            args,
            db: Db::new(locked, session.database, clock, &mut self.observed),
            reply: Reply::new(out, session.proto),
            effects: &mut self.effects,
            rules: &self.rules,
            random: &mut self.random,
            keys,
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
    /// [`Worker::count_timings`].
    #[inline(always)]
    fn account_for<const LATER: bool>(&mut self, session: &Session, command: &Command, args: &Args<'_>, began: Ticks) {
        // The end of one command is the beginning of the next: one reading of the counter each.
        self.ticks = Ticks::now();
        let ticks = self.ticks.since(began);
        self.timings.note(self.stats(), self.tracks_latency, command.id, ticks);
        if !LATER {
            self.count_timings();
        }
        session.client.last_command.store(command.id as u32, Ordering::Relaxed);
        if ticks >= self.engine.notable_ticks() {
            families::note_slow(self, session, command, *args, ticks);
        }
    }

    /// Has the counters get what the last commands took.
    #[inline(always)]
    pub(crate) fn count_timings(&mut self) {
        if self.timings.holds_any() {
            self.timings.count_all(self.stats(), self.tracks_latency);
        }
    }

    /// Tells watchers of changed keys, collects those that somebody waits for, and publishes notifications; `session`
    /// is the one that caused it all, if it is this thread's. The changed keys' shards are still held.
    #[cold]
    pub(crate) fn settle(&mut self, mut session: Option<&mut Session>) {
        let effects = std::mem::take(&mut self.effects);
        let seen = std::mem::take(&mut self.observed.seen);
        let (created, before): (Vec<_>, Vec<_>) = seen.into_iter().partition(|s| s.event == Event::Created);
        // A key whose time has come needs no watcher told: EXEC looks whether those that existed are still there, and
        // those that were stale already when WATCH was given have not changed.
        for Seen { event, database, key } in &before {
            if *event == Event::Expired {
                self.note_ready(*database, key);
            }
            families::notify_seen(self, session.as_deref_mut(), *event, *database, key);
        }
        // A key is created before the change that the command says it made to it. RENAME and MOVE put the new key in
        // place before they say anything.
        let mut created = created.into_iter().peekable();
        for change in effects.changes() {
            if change.class == Class::Emptied {
                // Others can find nothing in what is gone, and must not stand in front of those whose keys change next.
                self.ready.extend(self.engine.waiters.group_keys(change.database));
                continue;
            }
            self.settle_key(change.database, change.key, change.concerns);
            let moves = matches!(change.event, "rename_from" | "move_from");
            let is_due = |c: &Seen| moves || (c.database == change.database && *c.key == *change.key);
            if let Some(new) = created.next_if(is_due) {
                families::notify_seen(self, session.as_deref_mut(), new.event, new.database, &new.key);
            }
            families::notify(self, session.as_deref_mut(), change.database, change.class, change.event, change.key);
        }
        for new in created {
            families::notify_seen(self, session.as_deref_mut(), new.event, new.database, &new.key);
        }
        self.effects = effects;
        self.effects.clear();
    }

    /// Tells those of a changed key's watchers and waiters whom it concerns.
    fn settle_key(&mut self, database: usize, key: &[u8], concerns: Concerns) {
        let engine = self.engine;
        if concerns.watchers() && engine.watchers.any() {
            engine.watchers.touch(engine.keyspace.shard_of(hash(key)), database, key);
        }
        if concerns.waiters() {
            self.note_ready(database, key);
        }
    }

    /// Has those looked at who wait for a key that has changed or is gone.
    fn note_ready(&mut self, database: usize, key: &[u8]) {
        let engine = self.engine;
        let shard = engine.keyspace.shard_of(hash(key));
        if engine.waiters.any() && engine.waiters.has(shard, database, key) {
            self.ready.push((shard, (database, key.into())));
        }
    }

    /// Removes keys of one shard whose time has come. Says whether there may be more.
    pub(crate) fn reclaim_shard(&mut self, database: usize, shard: usize, limit: usize) -> bool {
        let engine = self.engine;
        let Some(mut locked) = engine.keyspace.lock_one_unless(shard, engine.busy.ends_waits()) else { return false };
        // Under the lock: see `Engine::is_listening`.
        self.observed.list = if self.engine.is_listening() { self.engine.events_to_list() } else { 0 };
        let more = Db::new(&mut locked, database, &self.clock, &mut self.observed).reclaim(shard, limit);
        if !self.observed.seen.is_empty() {
            self.settle(None);
        }
        more
    }
}

/// Asks for the memory that a command with many keys will read first.
#[inline]
fn prefetch(locked: &Locked<'_>, database: usize, keys: &[KeyRef]) {
    if keys.len() > KEYS_IN_BATCH {
        locked.prefetch(database, keys.iter().take(KEYS_AHEAD).map(|key| key.hash));
    }
}

/// Takes a reply back that the client doesn't want, given what it wanted before the command. A command that changes
/// what it wants has written what is due.
fn silence(session: &Session, before: ReplyMode, start: Mark, out: &mut Output) {
    if before == session.reply_mode && matches!(before, ReplyMode::Off | ReplyMode::Skip) {
        out.truncate(start);
    }
}

/// Whether a command is refused when memory is over its limit: it takes more, or stands in a queue that does.
fn needs_memory(session: &Session, command: &Command) -> bool {
    let denied = |c: &Command| c.info.has(flag::DENYOOM);
    match &session.multi {
        None => denied(command),
        Some(multi) if families::is_exec(command) => multi.queue.iter().any(|q| denied(q.command)),
        Some(_) => !runs_within_multi(command),
    }
}

/// Whether a command's name is what an HTTP request begins with, or its header of the host. Whoever brings a browser
/// or another program to send one to the server's port could have commands in its body run; so the connection ends
/// there, as in Redis.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// What is noted of it for a counted pipeline. Nobody else is told.
const SENT_HTTP: &[u8] = b"ERR the connection was closed, since POST and Host: are HTTP's";

/// How often the log says so, in milliseconds.
const HTTP_WARNING_MS: u64 = 60_000;

/// The error for a name that no command has, with the beginning of what was given, as Redis words it.
fn unknown(args: &Args<'_>) -> Error {
    let name = args.get(0);
    if table().find(name).is_some() {
        return Error::unknown_subcommand(name, args.get(1));
    }
    let mut rest = Vec::new();
    for arg in args.from(1) {
        if rest.len() >= SHOWN_BYTES {
            break;
        }
        rest.extend([b"'", shown(arg, SHOWN_BYTES - rest.len()), b"' "].concat());
    }
    let name = shown(name, SHOWN_BYTES);
    Error::quoting([b"ERR unknown command '", name, b"', with args beginning with: ", rest.as_slice()].concat())
}

/// The keys of a command that has been taken out of its batch.
#[must_use]
pub fn keys_of(command: &Command, args: &Args<'_>) -> Vec<KeyRef> {
    let mut keys = Vec::new();
    hash_keys(command, *args, &mut keys);
    keys
}
