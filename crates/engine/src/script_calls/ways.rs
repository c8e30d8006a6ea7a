//! In which of the two ways a script is to run, among others or alone: see `scripts`.

use commands::spec;
use resp::request::Args;

use crate::command_table::Command;
use crate::scripts::cache::{Habits, Script};
use crate::scripts::keeping;
use crate::worker::Worker;

/// Whether a command that runs a script is to run it alone.
pub(crate) fn runs_alone(worker: &Worker, command: &Command, args: Args<'_>) -> bool {
    if command.info.script == Some(spec::Script::Function) {
        return function_runs_alone(worker, args);
    }
    let is_text = command.info.script == Some(spec::Script::Text);
    let machine = worker.scripts.machine.as_ref();
    let wants_everything = |script: &Script| wants_everything(worker, &script.habits, &script.text, keeping::SCRIPT);
    match machine.and_then(|machine| machine.loaded(args.get(1), is_text)) {
        Some(script) => wants_everything(script),
        // It is new to this thread, but perhaps not to others.
        None => match worker.engine.scripts.look_up(args.get(1), is_text) {
            Some(script) => wants_everything(&script),
            None => is_text && is_new_text_alone(worker, args.get(1)),
        },
    }
}

/// Whether a call of a function is to be made alone.
fn function_runs_alone(worker: &Worker, args: Args<'_>) -> bool {
    let machine = worker.scripts.machine.as_ref();
    let libraries = &worker.engine.libraries;
    if let Some((habits, text)) = machine.and_then(|machine| machine.habits_of_function(args.get(1))) {
        return wants_everything(worker, habits, text, keeping::FUNCTION);
    }
    // It is new to this thread, but perhaps not to others.
    let function = libraries.of_function(args.get(1));
    function.is_some_and(|(library, index)| {
        wants_everything(worker, &library.functions[index].habits, &library.text, keeping::FUNCTION)
    })
}

/// Whether a script of a text that is new to all threads is to be run alone.
fn is_new_text_alone(worker: &Worker, text: &[u8]) -> bool {
    wants_everything(worker, &Habits::foretold(worker.engine.table, text), text, keeping::SCRIPT)
}

/// Whether a script or function is known to need everything, or is yet to be learnt about. Its text is looked at only if
/// it has not run yet, and there are several threads.
fn wants_everything(worker: &Worker, habits: &Habits, text: &[u8], keys: &[u8]) -> bool {
    if !habits.are_unknown() {
        return habits.reaches_beyond();
    }
    if keeping::keeps_to_its_keys(worker.engine.table, text, keys) {
        habits.note(false);
        return false;
    }
    worker.engine.scripts.may_learn(worker.clock.uptime_s)
}
