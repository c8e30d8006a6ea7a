//! The run of a script: its permissions, its shards, and the work after its end.

use commands::call::KeyRef;
use commands::error::{Error, Outcome};
use script::{Call, Failure, Loaded, Vm};

use super::world::{CalledScript, World};
use crate::scripts::busy::Caller;
use crate::scripts::cache::ScriptProfile;
use crate::scripts::rights::Rights;
use crate::services::monitors;
use crate::slow_path::{CUT_OFF, FEW_REPLICAS, REFUSES_WRITES};
use crate::worker::Worker;
use crate::worker::requirements::Requirement;
use crate::worker::turn::{Invocation, Turn};

/// The permissions of a script in one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallLimits {
    /// The script may only read.
    pub read_only: bool,
    /// The script may run commands that need memory although memory is full.
    pub allow_oom: bool,
    /// The script may use keys of several slots of a cluster.
    pub cross_slot: bool,
}

impl CallLimits {
    /// Returns the permissions of a script with these rights. `command_reads_only` is true for commands like EVAL_RO.
    /// Returns an error if the script may not run at all.
    fn of(worker: &Worker, rights: Rights, command_reads_only: bool) -> Result<CallLimits, Error> {
        let (engine, writes) = (worker.engine, !rights.has(Rights::NO_WRITES));
        if engine.slow_path.has(CUT_OFF) && worker.binds(Requirement::Fresh) && !rights.has(Rights::ALLOW_STALE) {
            return Err(Error::STALE);
        }
        if !rights.has(Rights::UNSAID) && writes {
            if let Some(error) = write_refusal(worker) {
                return Err(error);
            }
            if command_reads_only {
                return Err(Error::new("ERR Can not execute a script with write flag using *_ro command."));
            }
            let is_full = worker.memory.full && worker.binds(Requirement::Memory);
            if is_full && !rights.has(Rights::ALLOW_OOM) {
                return Err(Error::OUT_OF_MEMORY);
            }
        }
        Ok(CallLimits {
            read_only: command_reads_only || !writes,
            allow_oom: rights.has(Rights::ALLOW_OOM),
            // Like in Redis, scripts without a shebang line may.
            cross_slot: rights.has(Rights::CROSS_SLOT) || rights.has(Rights::UNSAID),
        })
    }
}

/// Returns the reason that nothing may be written now. The order of the checks is Redis's.
pub(super) fn write_refusal(worker: &Worker) -> Option<Error> {
    let (engine, slow_path) = (worker.engine, worker.engine.slow_path.get());
    if engine.is_read_only() && worker.binds(Requirement::Writable) {
        return Some(Error::READ_ONLY);
    }
    if slow_path & REFUSES_WRITES != 0 && worker.binds(Requirement::Disk) {
        return Some(engine.unsaved());
    }
    let are_few = slow_path & FEW_REPLICAS != 0 && !engine.is_replica();
    (are_few && worker.binds(Requirement::Replicas)).then_some(Error::FEW_REPLICAS)
}

/// One call of a loaded script or function.
pub(crate) struct Task<'t> {
    /// The machine's handle of it.
    pub loaded: Loaded,
    /// Its name in errors.
    pub name: &'t str,
    /// The rights that it declares.
    pub rights: Rights,
    /// True if the calling command may only read.
    pub reads_only: bool,
    /// The number of declared keys; they begin at the third argument.
    pub keys: usize,
    /// The remembered facts of its runs.
    pub profile: &'t ScriptProfile,
    /// True for a library's function.
    pub is_function: bool,
}

/// The first argument after the number of keys.
const FIRST_KEY: usize = 3;

/// Returns the number of keys that a call declares.
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
    if task.rights.has(Rights::NO_CLUSTER) && worker.view_for(session).is_some() {
        return Err(Error::new("ERR Can not run script on cluster, 'no-cluster' flag is set."));
    }
    let limits = CallLimits::of(worker, task.rights, task.reads_only)?;
    let Task { loaded: script, name, keys: count, is_function, .. } = *task;
    let call = Call { script, name, args: **args, first_key: FIRST_KEY, keys: count, is_function };
    let (database, proto) = (session.database, session.proto);
    let was_in_exec = std::mem::replace(&mut session.in_exec, true);
    let declared = task.profile.are_unknown().then(|| shards_of(worker, keys));
    worker.scripts.running = true;
    let caller = if is_function { Caller::Function } else { Caller::Eval };
    let called = CalledScript { caller, name, args: **args, keys };
    let mut world = World::new(worker, session, locked, limits, called, declared);
    let result = vm.run(call, &mut world, reply);
    let ended = world.end();
    worker.scripts.running = false;
    // The script's commands are recorded one by one instead.
    worker.effects.record_nothing();
    worker.scripts.start_over = ended.starts_over;
    worker.scripts.error_is_counted = ended.has_counted;
    task.profile.note(ended.reaches_beyond);
    session.in_exec = was_in_exec;
    if !was_in_exec {
        worker.engine.slots.release_bus(&mut session.holds_bus);
    }
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

/// Returns the shards of a script's declared keys, in ascending order.
fn shards_of(worker: &Worker, keys: &[KeyRef]) -> Vec<usize> {
    let mut shards: Vec<usize> = keys.iter().map(|key| worker.engine.keyspace.shard_of(key.hash)).collect();
    shards.sort_unstable();
    shards
}

/// Shows the command to monitors, before the script's own commands.
pub(crate) fn show(turn: &mut Turn<'_, '_>) {
    if turn.worker.is_monitored() && !turn.worker.scripts.is_again {
        let shown = Invocation { command: turn.command, args: turn.args, keys: turn.keys };
        monitors::show(turn.worker, turn.session, shown);
    }
}
