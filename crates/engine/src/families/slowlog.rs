//! SLOWLOG: commands that took long.

use resp::request::Args;

use crate::command_table::Command;
use crate::session::Session;
use crate::worker::Worker;

/// Records a slow command.
#[cold]
pub(crate) fn note(_worker: &mut Worker, _session: &Session, _command: &Command, _args: Args<'_>, _ticks: u64) {}
