//! What a script sees of the server.

use commands::call::KeyRef;
use commands::error::Error;
use commands::spec::{Scope, flag};
use resp::reply::{Output, Proto, Reply};
use resp::request::Args;
use script::{Access, Host, LogLevel, Verdict};
use store::keyspace::{Locked, Patience};

use super::run::CallLimits;
use crate::access::Context;
use crate::clients::session::Session;
use crate::command_table::{Command, Table};
use crate::config;
use crate::machine::ticks::{Ticks, per_microsecond, to_microseconds};
use crate::reasons::REFUSES_WRITES;
use crate::scripts::busy::{BusyScript, Caller};
use crate::scripts::write_log;
use crate::services::monitors;
use crate::worker::turn::Invocation;
use crate::worker::{Worker, hash_keys};

/// How often a script is looked at that takes too long, when it does nothing but run commands, in microseconds.
const LOOK_EVERY_US: f64 = 1000.0;

/// The world of one call.
pub(super) struct World<'w, 'k> {
    worker: &'w mut Worker,
    session: &'w mut Session,
    locked: &'w mut Locked<'k>,
    limits: CallLimits,
    called: CalledScript<'w>,
    began: Ticks,
    /// Ticks since it began after which it is looked at even if it spends its time in commands.
    look_after: u64,
    /// Whether it has run for too long.
    is_busy: bool,
    /// When others were served last, once it has.
    attended: Ticks,
    /// The shards of the keys that it declares, if it is to be learnt whether it keeps to them.
    declared: Option<Vec<usize>>,
    /// The keys of the command that runs.
    keys: Vec<KeyRef>,
    /// Whether a command that writes has been let through.
    writes: bool,
    /// Whether a command has run with effects that can't be told from the keyspace (PUBLISH).
    has_effects: bool,
    /// The journal's revision when it began.
    revision_before: u64,
    reaches_beyond: bool,
    starts_over: bool,
    has_counted: bool,
}

impl<'w, 'k> World<'w, 'k> {
    pub(super) fn new(
        worker: &'w mut Worker,
        session: &'w mut Session,
        locked: &'w mut Locked<'k>,
        limits: CallLimits,
        called: CalledScript<'w>,
        declared: Option<Vec<usize>>,
    ) -> World<'w, 'k> {
        let (revision_before, began) = (worker.effects.revision(), worker.ticks);
        let keys = std::mem::take(&mut worker.scripts.keys);
        let threshold_ms = worker.engine.settings.busy_reply_threshold_ms.get();
        if !locked.holds_all() {
            worker.scripts.begin_tentatively(&worker.observed);
        }
        World {
            worker,
            session,
            locked,
            limits,
            called,
            began,
            look_after: if threshold_ms > 0 { to_ticks(threshold_ms as f64 * 1000.0) } else { u64::MAX },
            is_busy: false,
            attended: began,
            declared,
            keys,
            writes: false,
            has_effects: false,
            revision_before,
            reaches_beyond: false,
            starts_over: false,
            has_counted: false,
        }
    }

    /// Ends it: what is to be known of the call.
    pub(super) fn end(mut self) -> EndedCall {
        if self.starts_over {
            let worker = &mut *self.worker;
            worker.scripts.forget_tentative(worker.stats(), &mut worker.observed);
        } else {
            self.settle_tentative();
        }
        self.worker.scripts.keys = self.keys;
        if self.is_busy {
            self.worker.engine.busy.end(self.worker.id);
        }
        EndedCall { starts_over: self.starts_over, has_counted: self.has_counted, reaches_beyond: self.reaches_beyond }
    }

    /// All commands.
    fn table(&self) -> &'static Table {
        self.worker.engine.table
    }

    /// Whether the script could start over unnoticed.
    fn has_changed_nothing(&self) -> bool {
        self.worker.effects.revision() == self.revision_before && !self.has_effects
    }

    /// What its commands have left stays: it has changed something, or has ended.
    fn settle_tentative(&mut self) {
        if self.worker.scripts.may_start_over {
            for line in self.worker.scripts.settle_tentative() {
                monitors::send(self.worker, self.session, &line);
            }
        }
    }

    /// Why a command is not run for a script. The checks are in Redis's order, since their errors show it.
    fn refusal(&self, command: &Command, args: Args<'_>) -> Option<Error> {
        let info = command.info;
        if !info.accepts(args.len()) {
            return Some(Error::fixed("ERR Wrong number of args calling Redis command from script"));
        }
        if info.has(flag::NOSCRIPT) {
            return Some(Error::fixed("ERR This Redis command is not allowed from script"));
        }
        if let Err(denial) = self.worker.allow(self.session, command, args, Context::Script) {
            let user = self.session.user().map_or("", |user| user.shown());
            return Some(Error::quoting(
                format!("ERR ACL failure in script: {}", denial.text(user, command)).into_bytes(),
            ));
        }
        if self.limits.read_only && info.has(flag::WRITE | flag::MAY_REPLICATE) {
            return Some(Error::fixed("ERR Write commands are not allowed from read-only scripts."));
        }
        // Once it has written, it can't be stopped half-way.
        if self.worker.memory.full && !self.limits.allow_oom && !self.writes && info.has(flag::DENYOOM) {
            return Some(Error::OUT_OF_MEMORY);
        }
        if self.worker.clock.replays {
            return None;
        }
        if self.worker.engine.is_read_only() && info.has(flag::WRITE) {
            return Some(Error::READ_ONLY);
        }
        if self.worker.engine.reasons.has(REFUSES_WRITES) && !self.writes && info.has(flag::WRITE) {
            return Some(self.worker.engine.unsaved());
        }
        None
    }

    /// Makes sure that what a command needs is held; see the proof in `scripts`.
    fn reach(&mut self, command: &Command, args: Args<'_>) -> Reach {
        self.keys.clear();
        hash_keys(command, args, &mut self.keys);
        if self.locked.holds_all() {
            // What it would have needed if it were not alone.
            self.reaches_beyond |= self.declared.as_ref().is_some_and(|held| self.is_beyond(held, command, args));
            return Reach::Held;
        }
        let keyspace = self.locked.keyspace();
        let within_keys = is_within_keys(command, args);
        self.reaches_beyond |= !within_keys;
        let mut held = within_keys;
        // A script that can't start over fails, so it waits longer for what another thread has.
        let patience = if self.has_changed_nothing() { Patience::Short } else { Patience::Long };
        for key in &self.keys {
            let shard = keyspace.shard_of(key.hash);
            if !held {
                break;
            }
            if !self.locked.holds(shard) {
                self.reaches_beyond = true;
                let engine = self.worker.engine;
                let before = Ticks::now();
                held = self.locked.extend(shard, patience, engine.busy.ends_waits());
                // For a script, time stands still but where it waits.
                self.worker.clock.follow_after(before);
            }
        }
        match held {
            true => Reach::Held,
            false if self.has_changed_nothing() => Reach::Alone,
            false => Reach::Nowhere,
        }
    }

    fn is_beyond(&self, declared: &[usize], command: &Command, args: Args<'_>) -> bool {
        let keyspace = self.locked.keyspace();
        let is_declared = |key: &KeyRef| declared.binary_search(&keyspace.shard_of(key.hash)).is_ok();
        !is_within_keys(command, args) || !self.keys.iter().all(is_declared)
    }

    fn refuse(&mut self, command: Option<&Command>, error: &Error, reply: &mut Output) {
        if let Some(command) = command {
            self.worker.stats().commands[command.id].rejected.add(1);
        }
        self.worker.stats().count_error(error.text());
        if let Some(noting) = self.worker.scripts.noting() {
            command.inspect(|command| noting.rejected(command.id));
            noting.error(error.text());
        }
        Reply::new(reply, Proto::Resp2).error(error.text());
    }
}

/// Whether a command concerns its keys only.
fn is_within_keys(command: &Command, args: Args<'_>) -> bool {
    matches!(command.info.scope_for(args), Scope::Keys | Scope::ByArgs(_))
}

fn to_ticks(microseconds: f64) -> u64 {
    (microseconds * per_microsecond()) as u64
}

/// The script or function that is called, and how.
#[derive(Clone, Copy)]
pub(super) struct CalledScript<'c> {
    /// What calls it.
    pub caller: Caller,
    /// What it is called.
    pub name: &'c str,
    /// The command's arguments.
    pub args: Args<'c>,
}

/// Whether what a command needs is held.
enum Reach {
    /// It is.
    Held,
    /// It can be had alone, by a script that starts over.
    Alone,
    /// It can't be had any more.
    Nowhere,
}

/// What is to be known of a call that has ended.
pub(super) struct EndedCall {
    /// It has to be made again, alone.
    pub starts_over: bool,
    /// Its reply's errors have been counted.
    pub has_counted: bool,
    /// It has reached beyond the keys that it declared.
    pub reaches_beyond: bool,
}

impl Host for World<'_, '_> {
    fn call(&mut self, args: Args<'_>, proto: Proto, reply: &mut Output) -> Verdict {
        let Some(command) = self.table().find(args.get(0)).and_then(|c| self.table().resolve(c, args)) else {
            self.refuse(None, &Error::fixed("ERR Unknown Redis command called from script"), reply);
            return Verdict::Go;
        };
        if let Some(error) = self.refusal(command, args) {
            self.refuse(Some(command), &error, reply);
            return Verdict::Go;
        }
        match self.reach(command, args) {
            Reach::Held => {}
            Reach::Alone => {
                self.starts_over = true;
                return Verdict::End;
            }
            Reach::Nowhere => {
                let text = if is_within_keys(command, args) { NOT_DECLARED } else { NOT_NAMED };
                self.refuse(Some(command), &Error::fixed(text), reply);
                return Verdict::Go;
            }
        }
        if command.info.has(flag::WRITE) && !std::mem::replace(&mut self.writes, true) && self.is_busy {
            // The first of the two, it or SCRIPT KILL, has its way.
            if !self.worker.engine.busy.write(self.worker.id, self.called.caller) {
                return Verdict::End;
            }
        }
        self.has_effects |= command.info.has(flag::MAY_REPLICATE);
        self.session.proto = proto;
        let began = self.worker.ticks;
        let (keys, locked) = (&self.keys, &mut *self.locked);
        self.worker.with_lookups(self.session, command, args, |worker, session| {
            worker.run_nested(session, Invocation { command, args: &args, keys }, locked, reply);
        });
        let took = self.worker.ticks.since(began);
        if let Some(noting) = self.worker.scripts.noting() {
            noting.ran(command.id, took);
        }
        if self.worker.scripts.may_start_over && !self.has_changed_nothing() {
            self.settle_tentative();
        }
        // It may run few instructions of Lua's, and long commands.
        let ticks = self.worker.ticks.since(self.began);
        if ticks >= self.look_after {
            self.look_after = ticks.saturating_add(to_ticks(LOOK_EVERY_US));
            return self.poll();
        }
        Verdict::Go
    }

    fn poll(&mut self) -> Verdict {
        let engine = self.worker.engine;
        if !self.is_busy {
            let threshold_ms = engine.settings.busy_reply_threshold_ms.get();
            let ms = to_microseconds(Ticks::now().since(self.began)) / 1000.0;
            if threshold_ms <= 0 || ms < threshold_ms as f64 {
                return Verdict::Go;
            }
            self.is_busy = true;
            let CalledScript { caller, name, args } = self.called;
            engine.busy.begin(self.worker.id, caller, self.writes, BusyScript::new(name, args, self.began));
            let kill = if caller == Caller::Eval { "SCRIPT KILL" } else { "FUNCTION KILL" };
            let slow = format!(
                "Slow script detected: still in execution after {ms:.0} milliseconds. You can try killing the script \
                 using the {kill} command. Script name is: {name}."
            );
            engine.host.log(config::LogLevel::Warning, &slow);
        }
        // Others are served as often as while it runs commands, whatever it does and however often it asks.
        let now = Ticks::now();
        if now.since(self.attended) >= to_ticks(LOOK_EVERY_US) {
            self.worker.attend();
            self.attended = Ticks::now();
        }
        if engine.busy.is_killed(self.worker.id) {
            engine.host.log(config::LogLevel::Warning, "Lua script killed by user with SCRIPT KILL.");
            return Verdict::End;
        }
        Verdict::Go
    }

    fn log(&mut self, level: LogLevel, message: &[u8]) {
        write_log(&*self.worker.engine.host, level, message);
    }

    fn access(&mut self, args: Args<'_>) -> Access {
        let command = self.table().find(args.get(0)).and_then(|c| self.table().resolve(c, args));
        let Some(command) = command else { return Access::NoCommand };
        if !command.accepts(args.len()) {
            return Access::WrongArity;
        }
        let permissions = self.session.permissions();
        let asked = self.worker.asked(self.session.database, command, args);
        match permissions.is_none_or(|permissions| permissions.check(asked).is_ok()) {
            true => Access::Allowed,
            false => Access::Denied,
        }
    }

    fn error_returned(&mut self, text: &[u8], is_new: bool) {
        self.has_counted = true;
        if is_new {
            self.worker.stats().count_error(text);
            if let Some(noting) = self.worker.scripts.noting() {
                noting.error(text);
            }
        }
    }
}

/// What a command is told for which it is too late.
const NOT_DECLARED: &str = "ERR The script has written, and now reaches for a key that it has not declared and that \
    another script holds. Declare all keys that a script uses.";

/// The same of a command that concerns the whole keyspace.
const NOT_NAMED: &str = "ERR The script has written, and now runs a command that concerns all keys, which its text does not \
    name. Write the command's name into the script as a string, so that it runs alone from the start.";
