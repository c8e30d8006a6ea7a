//! MONITOR: shows every command that the server runs, in an order in which they could have run.

use commands::spec::flag::SKIP_MONITOR;
use resp::request::Args;

use crate::command_table::Command;
use crate::session::Session;
use crate::worker::Worker;

/// Shows a command that is about to run to all monitors. Called while the command's shards are held, so that commands
/// on the same keys are shown in the order in which they run.
#[cold]
pub(crate) fn feed(_worker: &mut Worker, _session: &Session, command: &Command, _args: Args<'_>) {
    if command.info.has(SKIP_MONITOR) {}
}
