//! The thread's machine for scripts, which is taken and put back.

use std::sync::atomic::Ordering;

use commands::error::Error;
use commands::spec::Script;
use resp::request::Args;

use crate::scripts::ScriptMachine;
use crate::worker::Worker;
use crate::worker::turn::Turn;
use commands::table::Command;

/// Compiles the script of a command. The run reports any error again.
pub(crate) fn compile_ahead(worker: &mut Worker, command: &Command, args: Args<'_>) {
    let name = args.get(1);
    // The command reports the lack of a machine, too.
    let Ok(mut machine) = take_machine(worker) else { return };
    match command.info.script {
        Some(Script::Function) => machine.load_ahead(&worker.engine.libraries, name),
        script => machine.compile_ahead(&worker.engine.scripts, name, script == Some(Script::Text)),
    }
    put_back(worker, machine);
}

impl Worker {
    /// Unloads scripts and libraries that any thread has removed. The caller runs this once a tick, because a thread
    /// without script calls would otherwise keep them.
    pub fn unload_scripts(&mut self) {
        if self.scripts.machine.is_some() && !self.scripts.running {
            // The machine exists, so this can't fail.
            if let Ok(machine) = take_machine(self) {
                put_back(self, machine);
            }
        }
    }
}

/// Takes the thread's machine for a moment, and makes it at the first call.
pub(crate) fn with_machine<T>(
    turn: &mut Turn<'_, '_>,
    then: impl FnOnce(&mut Turn<'_, '_>, &mut ScriptMachine) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut machine = take_machine(turn.worker)?;
    let result = then(turn, &mut machine);
    put_back(turn.worker, machine);
    result
}

#[inline]
fn take_machine(worker: &mut Worker) -> Result<Box<ScriptMachine>, Error> {
    let engine = worker.engine;
    let bytes_max = engine.settings.lua_memory_limit.get_usize();
    let mut machine = match worker.scripts.machine.take() {
        Some(mut machine) => {
            machine.vm.limit_memory(bytes_max);
            machine
        }
        None => Box::new(ScriptMachine::new(bytes_max)?),
    };
    machine.follow(&engine.scripts, &engine.libraries);
    Ok(machine)
}

#[inline]
fn put_back(worker: &mut Worker, machine: Box<ScriptMachine>) {
    worker.stats().lua_bytes.store(machine.used_bytes() as u64, Ordering::Relaxed);
    worker.scripts.machine = Some(machine);
}
