//! How a script runs: what it may do, in which way it gets its shards, and what becomes of its end.

use commands::call::KeyRef;
use commands::error::{Error, Outcome};
use script::{Call, Failure, Loaded, Vm};

use super::world::{CalledScript, World};
use crate::scripts::busy::Caller;
use crate::scripts::cache::Habits;
use crate::scripts::rights::Rights;
use crate::services::monitors;
use crate::worker::Worker;
use crate::worker::turn::{Invocation, Turn};

/// What a script may do in one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallLimits {
    /// It may only read.
    pub read_only: bool,
    /// It may take memory though there is none.
    pub allow_oom: bool,
}

impl CallLimits {
    /// What a script of these rights may do in a call by a command that may only read, or by any other; an error, if it
    /// may not run at all.
    fn of(rights: Rights, command_reads_only: bool, memory_full: bool) -> Result<CallLimits, Error> {
        let writes = !rights.has(Rights::NO_WRITES);
        if !rights.has(Rights::UNSAID) && writes {
            if command_reads_only {
                return Err(Error::new("ERR Can not execute a script with write flag using *_ro command."));
            }
            if memory_full && !rights.has(Rights::ALLOW_OOM) {
                return Err(Error::OUT_OF_MEMORY);
            }
        }
        Ok(CallLimits { read_only: command_reads_only || !writes, allow_oom: rights.has(Rights::ALLOW_OOM) })
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
    let limits = CallLimits::of(task.rights, task.reads_only, worker.memory.full)?;
    let Task { loaded: script, name, keys: count, is_function, .. } = *task;
    let call = Call { script, name, args: **args, first_key: FIRST_KEY, keys: count, is_function };
    let (database, proto) = (session.database, session.proto);
    let was_in_exec = std::mem::replace(&mut session.in_exec, true);
    let declared = task.habits.are_unknown().then(|| shards_of(worker, keys));
    worker.scripts.running = true;
    let caller = if is_function { Caller::Function } else { Caller::Eval };
    let mut world = World::new(worker, session, locked, limits, CalledScript { caller, name, args: **args }, declared);
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

/// Shows the command to monitors: before what the script does.
pub(crate) fn show(turn: &mut Turn<'_, '_>) {
    if turn.worker.is_monitored() && !turn.worker.scripts.is_again {
        let shown = Invocation { command: turn.command, args: turn.args, keys: turn.keys };
        monitors::show(turn.worker, turn.session, shown);
    }
}
