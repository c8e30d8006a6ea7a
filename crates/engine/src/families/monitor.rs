//! MONITOR: shows every command that the server runs. How that is shown stands in `services::monitors`.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Spec};

use crate::clients::client::client_flag;
use crate::services::monitors::subscriber;
use crate::worker::turn::{Run, Turn};

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] =
    &[Spec::new("monitor", 1, ADMIN | NOSCRIPT | LOADING | STALE, Run::Session(monitor)).docs(
        Group::Server,
        "1.0.0",
        "O(1); every command then costs one more message per thread with monitors",
        "Shows all commands that the server runs, as they run.",
        "",
    )];

fn monitor(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.session.in_exec {
        return Err(Error::new("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    // A second one is ignored, without an answer, as in Redis.
    if !turn.session.is_monitoring() {
        let who = subscriber(turn.session);
        turn.session.set_monitoring(true);
        turn.session.client.set(client_flag::MONITOR, true);
        turn.engine().monitors.change(|audience| audience.add(who));
        turn.reply.ok();
    }
    Ok(())
}
