//! The choice between the two ways to run a script, among others or alone: see `scripts`.

use commands::spec;
use resp::request::Args;

use crate::scripts::cache::{Script, ScriptProfile};
use crate::scripts::static_check;
use crate::worker::Worker;
use commands::table::Command;

/// Returns whether a command that runs a script runs it alone.
pub(crate) fn runs_alone(worker: &Worker, command: &Command, args: Args<'_>) -> bool {
    if command.info.script == Some(spec::Script::Function) {
        return function_runs_alone(worker, args);
    }
    let is_text = command.info.script == Some(spec::Script::Text);
    let machine = worker.scripts.machine.as_ref();
    let wants_everything =
        |script: &Script| wants_everything(worker, &script.profile, &script.text, static_check::SCRIPT);
    match machine.and_then(|machine| machine.loaded(args.get(1), is_text)) {
        Some(script) => wants_everything(script),
        // The script is new to this thread, but perhaps not to others.
        None => match worker.engine.scripts.look_up(args.get(1), is_text) {
            Some(script) => wants_everything(&script),
            None => is_text && is_new_text_alone(worker, args.get(1)),
        },
    }
}

/// Returns whether a call of a function runs alone.
fn function_runs_alone(worker: &Worker, args: Args<'_>) -> bool {
    let machine = worker.scripts.machine.as_ref();
    let libraries = &worker.engine.libraries;
    if let Some((profile, text)) = machine.and_then(|machine| machine.profile_of_function(args.get(1))) {
        return wants_everything(worker, profile, text, static_check::FUNCTION);
    }
    // The function is new to this thread, but perhaps not to others.
    let function = libraries.of_function(args.get(1));
    function.is_some_and(|(library, index)| {
        wants_everything(worker, &library.functions[index].profile, &library.text, static_check::FUNCTION)
    })
}

/// Returns whether a script runs alone if its text is new to all threads.
fn is_new_text_alone(worker: &Worker, text: &[u8]) -> bool {
    wants_everything(worker, &ScriptProfile::predicted(worker.engine.table, text), text, static_check::SCRIPT)
}

/// Returns whether a script or function runs alone: because it is known to access undeclared keys, or because its
/// behavior is unknown and this run may learn it. The text is only checked before the first run.
fn wants_everything(worker: &Worker, profile: &ScriptProfile, text: &[u8], keys: &[u8]) -> bool {
    if !profile.are_unknown() {
        return profile.reaches_beyond();
    }
    if static_check::uses_declared_keys_only(worker.engine.table, text, keys) {
        profile.note(false);
        return false;
    }
    worker.engine.scripts.may_learn(worker.clock.uptime_s)
}
