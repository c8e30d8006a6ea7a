//! How a script runs: what it may do, in which way it gets its shards, and what becomes of its end.

use commands::call::KeyRef;
use commands::error::{Error, Outcome};
use resp::reply::Output;
use resp::splitargs::split_args;
use script::{Call, Failure, Loaded, Vm};

use super::busy::Caller;
use super::cache::Habits;
use super::keeping;
use super::world::{Called, World};
use crate::execute::Invocation;
use crate::families;
use crate::session::Session;
use crate::turn::Turn;
use crate::worker::{Pass, Step, Worker};

/// What a script says that it does, by the flags of its shebang.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rights(u8);

impl Rights {
    /// It writes nothing.
    pub const NO_WRITES: Rights = Rights(1);
    /// It may run, and write, though memory is over its limit.
    pub const ALLOW_OOM: Rights = Rights(2);
    /// It may run on a replica that has lost its source.
    pub const ALLOW_STALE: Rights = Rights(4);
    /// It must not run in a cluster.
    pub const NO_CLUSTER: Rights = Rights(8);
    /// It may reach for keys in several slots of a cluster.
    pub const CROSS_SLOT: Rights = Rights(16);
    /// It says nothing, since it has no shebang: what it does is looked at when it does it.
    pub const UNSAID: Rights = Rights(32);

    /// Each flag with its name.
    pub const NAMES: &[(Rights, &str)] = &[
        (Rights::NO_WRITES, "no-writes"),
        (Rights::ALLOW_OOM, "allow-oom"),
        (Rights::ALLOW_STALE, "allow-stale"),
        (Rights::NO_CLUSTER, "no-cluster"),
        (Rights::CROSS_SLOT, "allow-cross-slot-keys"),
    ];

    /// Whether it has this flag.
    #[must_use]
    pub fn has(self, flag: Rights) -> bool {
        self.0 & flag.0 != 0
    }

    /// These and another.
    #[must_use]
    pub fn with(self, flag: Rights) -> Rights {
        Rights(self.0 | flag.0)
    }

    /// The names of its flags.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }

    /// The flag of this name.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Rights> {
        Self::NAMES.iter().find(|(_, n)| n.as_bytes() == name).map(|(flag, _)| *flag)
    }

    /// The flags in a text's first line, if it begins with "#!", and where its code begins.
    pub(crate) fn of_shebang(text: &[u8]) -> Result<(Rights, usize), Error> {
        if !text.starts_with(b"#!") {
            return Ok((Rights::UNSAID, 0));
        }
        let Some(end) = text.iter().position(|&b| b == b'\n') else {
            return Err(Error::new("ERR Invalid script shebang"));
        };
        let words = split_args(&text[..end]).map_err(|_| Error::new("ERR Invalid engine in script shebang"))?;
        let (engine, words) = words.split_first().map_or((&b""[..], &[][..]), |(first, rest)| (&first[..], rest));
        if engine != b"#!lua" {
            return Err(Error::quoting([b"ERR Unexpected engine in script shebang: ", engine].concat()));
        }
        let mut rights = Rights::default();
        for word in words {
            let Some(flags) = word.strip_prefix(b"flags=") else {
                return Err(Error::quoting([b"ERR Unknown lua shebang option: ", &word[..]].concat()));
            };
            // None at all is nothing to say; an empty name among others is wrong, as in Redis.
            let names = (!flags.is_empty()).then(|| flags.split(|&b| b == b','));
            for name in names.into_iter().flatten() {
                let flag = Rights::named(name)
                    .ok_or_else(|| Error::quoting([b"ERR Unexpected flag in script shebang: ", name].concat()))?;
                rights = rights.with(flag);
            }
        }
        // The line's end stays, so that errors count lines from the shebang.
        Ok((rights, end))
    }
}

/// What a script may do in one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// It may only read.
    pub read_only: bool,
    /// It may take memory though there is none.
    pub allow_oom: bool,
}

impl Limits {
    /// What a script of these rights may do in a call by a command that may only read, or by any other; an error, if it
    /// may not run at all.
    fn of(rights: Rights, command_reads_only: bool, memory_full: bool) -> Result<Limits, Error> {
        let writes = !rights.has(Rights::NO_WRITES);
        if !rights.has(Rights::UNSAID) && writes {
            if command_reads_only {
                return Err(Error::new("ERR Can not execute a script with write flag using *_ro command."));
            }
            if memory_full && !rights.has(Rights::ALLOW_OOM) {
                return Err(Error::OUT_OF_MEMORY);
            }
        }
        Ok(Limits { read_only: command_reads_only || !writes, allow_oom: rights.has(Rights::ALLOW_OOM) })
    }
}

/// One call of a script or function that is loaded.
pub(crate) struct Task<'t> {
    /// What the machine knows it by.
    pub loaded: Loaded,
    /// What errors call it.
    pub name: &'t str,
    /// What it says that it does.
    pub rights: Rights,
    /// Whether the command that calls it may only read.
    pub reads_only: bool,
    /// How many keys are declared; they begin at the third argument.
    pub keys: usize,
    /// What is remembered of how it runs.
    pub habits: &'t Habits,
    /// Whether it is a library's function.
    pub is_function: bool,
}

/// The first argument after the number of keys.
const FIRST_KEY: usize = 3;

/// How many keys a call declares.
pub(crate) fn declared_keys(turn: &Turn<'_, '_>) -> Result<usize, Error> {
    let count = turn.int(2)?;
    if count > turn.len() as i64 - FIRST_KEY as i64 {
        return Err(Error::new("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(count).map_err(|_| Error::new("ERR Number of keys can't be negative"))
}

/// Runs a task, and writes its reply.
pub(crate) fn run(turn: &mut Turn<'_, '_>, vm: &mut Vm, task: &Task<'_>) -> Outcome {
    let Turn { worker, session, args, keys, locked, reply, .. } = turn;
    let limits = Limits::of(task.rights, task.reads_only, worker.memory.full)?;
    let Task { loaded: script, name, keys: count, is_function, .. } = *task;
    let call = Call { script, name, args: **args, first_key: FIRST_KEY, keys: count, is_function };
    let (database, proto) = (session.database, session.proto);
    let was_in_exec = std::mem::replace(&mut session.in_exec, true);
    let declared = task.habits.are_unknown().then(|| shards_of(worker, keys));
    worker.scripts.running = true;
    let caller = if is_function { Caller::Function } else { Caller::Eval };
    let mut world = World::new(worker, session, locked, limits, Called { caller, name, args: **args }, declared);
    let result = vm.run(call, &mut world, reply);
    let ended = world.end();
    worker.scripts.running = false;
    // Its commands are recorded, each for itself.
    worker.effects.record_nothing();
    worker.scripts.start_over = ended.starts_over;
    worker.scripts.error_is_counted = ended.has_counted;
    task.habits.note(ended.reaches_beyond);
    session.in_exec = was_in_exec;
    session.proto = proto;
    if session.database != database {
        session.select(database);
    }
    match result {
        Err(Failure { text, is_counted }) if !ended.starts_over => {
            worker.scripts.error_is_counted |= is_counted;
            Err(Error::quoting(text))
        }
        _ => Ok(()),
    }
}

/// The shards of the keys that a script declares, ascending.
fn shards_of(worker: &Worker, keys: &[KeyRef]) -> Vec<usize> {
    let mut shards: Vec<usize> = keys.iter().map(|key| worker.engine.keyspace.shard_of(key.hash)).collect();
    shards.sort_unstable();
    shards
}

impl Worker {
    /// Runs a command that runs a script, in one of the two ways that `scripts` tells of.
    pub(crate) fn execute_script(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        out: &mut Output,
        inside: &mut Pass,
    ) -> Step {
        let keyspace = &self.engine.keyspace;
        // Others are never kept out for a script, which may take long.
        if let Some(mut locked) = keyspace.own(None) {
            return self.call(session, invoked, &mut locked, out, true);
        }
        if !families::scripting::runs_alone(self, invoked.command, *invoked.args) {
            let shards = self.take_shards(invoked.keys);
            let locked = self.lock(|keyspace, give_up| keyspace.lock_growing_unless(shards, give_up));
            let Some(mut locked) = locked else { return self.answer_busy(session, invoked, out) };
            let step = self.call(session, invoked, &mut locked, out, true);
            if !std::mem::take(&mut self.scripts.start_over) {
                self.shards = locked.into_shards();
                return step;
            }
            self.scripts.is_again = true;
        } else {
            // While others run.
            families::scripting::compile_ahead(self, invoked.command, *invoked.args);
        }
        let step =
            self.alone(session, inside, |worker, session, locked| worker.call(session, invoked, locked, out, true));
        self.scripts.is_again = false;
        step.unwrap_or_else(|| self.answer_busy(session, invoked, out))
    }
}

/// Whether a script of a text that nobody knows yet is to be run alone.
pub(crate) fn is_new_text_alone(worker: &Worker, text: &[u8]) -> bool {
    wants_everything(worker, &Habits::foretold(text), text, keeping::SCRIPT)
}

/// Whether a script or function is known to need everything, or is yet to be learnt about. Its text is looked at only if
/// it has not run yet, and there are several threads.
pub(crate) fn wants_everything(worker: &Worker, habits: &Habits, text: &[u8], keys: &[u8]) -> bool {
    if !habits.are_unknown() {
        return habits.reaches_beyond();
    }
    if keeping::keeps_to_its_keys(text, keys) {
        habits.note(false);
        return false;
    }
    worker.engine.scripts.may_learn(worker.clock.uptime_s)
}
