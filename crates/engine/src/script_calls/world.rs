//! The server from a script's view.

use commands::call::KeyRef;
use commands::error::Error;
use commands::spec::{Scope, flag};
use journal::record::Readers;
use resp::reply::{Output, Proto, Reply};
use resp::request::Args;
use script::{Access, Host, LogLevel, Verdict};
use store::keyspace::{Locked, WaitMax};

use super::run::{CallLimits, write_refusal};
use super::script_slots::ScriptSlots;
use crate::clients::session::Session;
use crate::scripts::busy::{BusyScript, Caller};
use crate::scripts::write_log;
use crate::services::monitors;
use crate::services::routing::Routed;
use crate::slots::check::{NOT_SAME_SLOT, Route};
use crate::slow_path::{CUT_OFF, SLOTS_OPEN};
use crate::worker::requirements::Requirement;
use crate::worker::turn::Invocation;
use crate::worker::{Worker, hash_keys};
use access::Context;
use commands::table::{Command, Table};
use statistics::ticks::{Ticks, per_microsecond, to_microseconds};

/// The interval in microseconds at which a busy script is polled while it only runs commands.
const LOOK_EVERY_US: f64 = 1000.0;

/// The world of one call.
pub(super) struct World<'w, 'k> {
    worker: &'w mut Worker,
    session: &'w mut Session,
    locked: &'w mut Locked<'k>,
    limits: CallLimits,
    called: CalledScript<'w>,
    began: Ticks,
    /// Ticks since the start after which the script is polled even if it spends its time in commands.
    look_after: u64,
    /// True if the script has run for too long.
    is_busy: bool,
    /// The last time that a busy script let this thread serve other connections.
    attended: Ticks,
    /// The shards of the declared keys, if this run learns whether the script stays within them.
    declared: Option<Vec<usize>>,
    /// The keys of the running command.
    keys: Vec<KeyRef>,
    /// True after a command that writes was admitted.
    writes: bool,
    /// True after a command with effects outside of the keyspace (PUBLISH).
    has_effects: bool,
    /// The journal's revision at the start.
    revision_before: u64,
    reaches_beyond: bool,
    starts_over: bool,
    has_counted: bool,
    /// The readers that its commands are recorded for.
    readers: Readers,
    /// The slots that the script may use. None if it may use all slots of this node.
    slots: Option<ScriptSlots>,
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
        let slots = match limits.cross_slot || worker.view_for(session).is_none() {
            true => None,
            false => Some(ScriptSlots::of(called.keys)),
        };
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
            readers: Readers::ALL,
            slots,
        }
    }

    /// Ends the call, and returns its facts.
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

    /// Returns all commands.
    fn table(&self) -> &'static Table {
        self.worker.engine.table
    }

    /// Returns whether the script could start over unnoticed.
    fn has_changed_nothing(&self) -> bool {
        self.worker.effects.revision() == self.revision_before && !self.has_effects
    }

    /// Makes the effects of the script's commands permanent, because it has changed data or has ended.
    fn settle_tentative(&mut self) {
        if self.worker.scripts.may_start_over {
            for line in self.worker.scripts.settle_tentative() {
                monitors::send(self.worker, self.session, &line);
            }
        }
    }

    /// Returns the reason that a script may not run a command. The checks are in Redis's order, because the order
    /// decides which error is answered.
    fn refusal(&self, command: &Command, args: Args<'_>) -> Option<Error> {
        let info = command.info;
        if !info.accepts(args.len()) {
            return Some(Error::fixed("ERR Wrong number of args calling Redis command from script"));
        }
        if info.has(flag::NOSCRIPT) {
            return Some(Error::fixed("ERR This Redis command is not allowed from script"));
        }
        let is_stale = self.worker.engine.slow_path.has(CUT_OFF) && self.worker.binds(Requirement::Fresh);
        if is_stale && !info.has(flag::STALE) {
            return Some(Error::fixed("ERR Can not execute the command on a stale replica"));
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
        // A script that has written runs to its end.
        if self.writes {
            return None;
        }
        if info.has(flag::WRITE)
            && let Some(error) = write_refusal(self.worker)
        {
            return Some(error);
        }
        let is_full = self.worker.memory.full && self.worker.binds(Requirement::Memory);
        (is_full && !self.limits.allow_oom && info.has(flag::DENYOOM)).then_some(Error::OUT_OF_MEMORY)
    }

    /// Returns the reason that a script may not run a command because of the slots of its keys. `held`: the shards of the
    /// keys are locked, so that the keys of an open slot can be looked up.
    fn slot_refusal(&mut self, command: &Command, args: Args<'_>, held: bool) -> Option<Error> {
        self.worker.view_for(self.session)?;
        let mut keys = Vec::new();
        hash_keys(command, args, &mut keys);
        let routed = || Routed { command, args, keys: &keys };
        let routed_here = match self.worker.route_one(self.session, &routed()) {
            Ok(Route::Open(open)) if held => {
                self.worker.settle_open(self.session, open, std::iter::once(routed()), self.locked)
            }
            route => route.map(drop),
        };
        if let Err(redirect) = routed_here {
            return Some(redirect.script_error(&command.name));
        }
        let is_admitted = self.slots.as_mut().is_none_or(|slots| slots.admit(&keys));
        (!is_admitted).then_some(NOT_SAME_SLOT)
    }

    /// Ensures that the command's shards are held; see the proof in `scripts`.
    fn reach(&mut self, command: &Command, args: Args<'_>) -> Reach {
        self.keys.clear();
        hash_keys(command, args, &mut self.keys);
        if self.locked.holds_all() {
            // Learns from a run alone whether a run among others would have gone beyond the declared keys.
            self.reaches_beyond |= self.declared.as_ref().is_some_and(|held| self.is_beyond(held, command, args));
            return Reach::Held;
        }
        let keyspace = self.locked.keyspace();
        let within_keys = is_within_keys(command, args);
        self.reaches_beyond |= !within_keys;
        let mut held = within_keys;
        // A script that can't start over fails, so it waits longer for another thread's shard.
        let wait_max = if self.has_changed_nothing() { WaitMax::Short } else { WaitMax::Long };
        for key in &self.keys {
            let shard = keyspace.shard_of(key.hash);
            if !held {
                break;
            }
            if !self.locked.holds(shard) {
                self.reaches_beyond = true;
                let engine = self.worker.engine;
                let before = Ticks::now();
                held = self.locked.extend(shard, wait_max, engine.busy.ends_waits());
                // A script's clock stands still except while it waits.
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

/// Returns whether a command concerns its keys only.
fn is_within_keys(command: &Command, args: Args<'_>) -> bool {
    matches!(command.info.scope_for(args), Scope::Keys | Scope::ByArgs(_))
}

fn to_ticks(microseconds: f64) -> u64 {
    (microseconds * per_microsecond()) as u64
}

/// The called script or function, with the call's arguments.
#[derive(Clone, Copy)]
pub(super) struct CalledScript<'c> {
    /// The kind of the calling command.
    pub caller: Caller,
    /// Its name.
    pub name: &'c str,
    /// The command's arguments.
    pub args: Args<'c>,
    /// The declared keys.
    pub keys: &'c [KeyRef],
}

/// The availability of a command's shards.
enum Reach {
    /// All are held.
    Held,
    /// The script can start over, alone.
    Alone,
    /// They are out of reach, and the script can't start over.
    Nowhere,
}

/// The facts of a call that has ended.
pub(super) struct EndedCall {
    /// The call has to be repeated, alone.
    pub starts_over: bool,
    /// The errors of its reply are counted already.
    pub has_counted: bool,
    /// The script has accessed undeclared keys.
    pub reaches_beyond: bool,
}

impl Host for World<'_, '_> {
    fn call(&mut self, args: Args<'_>, proto: Proto, reply: &mut Output) -> Verdict {
        let Some(command) = self.table().find(args.get(0)).and_then(|c| self.table().resolve(c, args)) else {
            self.refuse(None, &Error::fixed("ERR Unknown Redis command called from script"), reply);
            return Verdict::Go;
        };
        if let Some(error) = self.refusal(command, args).or_else(|| self.slot_refusal(command, args, false)) {
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
        if self.worker.engine.slow_path.has(SLOTS_OPEN)
            && let Some(error) = self.slot_refusal(command, args, true)
        {
            self.refuse(Some(command), &error, reply);
            return Verdict::Go;
        }
        if command.info.has(flag::WRITE) && !std::mem::replace(&mut self.writes, true) && self.is_busy {
            // Either this write or SCRIPT KILL comes first, and prevents the other.
            if !self.worker.engine.busy.write(self.worker.id, self.called.caller) {
                return Verdict::End;
            }
        }
        self.has_effects |= command.info.has(flag::MAY_REPLICATE);
        self.session.proto = proto;
        let began = self.worker.ticks;
        let (keys, locked) = (&self.keys, &mut *self.locked);
        self.worker.effects.readers = self.readers;
        self.worker.with_lookups(self.session, command, args, |worker, session| {
            worker.run_nested(session, Invocation { command, args: &args, keys }, locked, reply);
        });
        self.worker.effects.readers = Readers::ALL;
        let took = self.worker.ticks.since(began);
        if let Some(noting) = self.worker.scripts.noting() {
            noting.ran(command.id, took);
        }
        if self.worker.scripts.may_start_over && !self.has_changed_nothing() {
            self.settle_tentative();
        }
        // The script may run few Lua instructions and long commands, so the time is checked here, too.
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
            let CalledScript { caller, name, args, .. } = self.called;
            engine.busy.begin(self.worker.id, caller, self.writes, BusyScript::new(name, args, self.began));
            let kill = if caller == Caller::Eval { "SCRIPT KILL" } else { "FUNCTION KILL" };
            let slow = format!(
                "Slow script detected: still in execution after {ms:.0} milliseconds. You can try killing the script \
                 using the {kill} command. Script name is: {name}."
            );
            engine.host.log(config::LogLevel::Warning, &slow);
        }
        // Other connections are served at this interval, however often the script is polled.
        let now = Ticks::now();
        if now.since(self.attended) >= to_ticks(LOOK_EVERY_US) {
            self.worker.serve_others();
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

    fn replicate(&mut self, to_file: bool, to_replicas: bool) {
        self.readers = Readers { file: to_file, replicas: to_replicas };
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

/// The error of a command with a key that is out of reach.
const NOT_DECLARED: &str = "ERR The script has written, and now reaches for a key that it has not declared and that \
    another script holds. Declare all keys that a script uses.";

/// The error of a command on the whole keyspace that is out of reach.
const NOT_NAMED: &str = "ERR The script has written, and now runs a command that concerns all keys, which its text does not \
    name. Write the command's name into the script as a string, so that it runs alone from the start.";
