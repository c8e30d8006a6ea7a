//! What took long: commands for the slow log, and moments for the latency monitor.

use commands::spec::flag::{FAST, SKIP_SLOWLOG};
use resp::request::Args;

use super::secrets::{REDACTED, is_secret};
use crate::clients::session::Session;
use crate::command_table::Command;
use crate::machine::ticks::to_microseconds;
use crate::statistics::latency_monitor::Sample;
use crate::statistics::slow_log::Entry;
use crate::worker::Worker;

/// Arguments of an entry; if there are more, the last says how many.
const ARGS_MAX: usize = 32;
/// Bytes of an argument.
const ARG_BYTES_MAX: usize = 128;

/// Records a command that took long in the slow log and for the latency monitor, each if it is long enough for that.
#[cold]
pub(crate) fn note_command(worker: &Worker, session: &Session, command: &Command, args: Args<'_>, ticks: u64) {
    if ticks >= worker.engine.slow_ticks() {
        add_to_log(worker, session, command, args, ticks);
    }
    note_moment(worker, event_of(command), ticks);
}

/// Records a command that took so many ticks, if it is one that may be recorded.
fn add_to_log(worker: &Worker, session: &Session, command: &Command, args: Args<'_>, ticks: u64) {
    let len_max = worker.engine.settings.slowlog_max_len.get_usize();
    // What isn't kept takes no number either.
    if len_max == 0 || command.info.has(SKIP_SLOWLOG) {
        return;
    }
    let entry = Entry {
        id: 0,
        time_s: worker.clock.present_us() / 1_000_000,
        took_us: to_microseconds(ticks) as u64,
        args: shown_args(command, args),
        addr: session.client.addr.clone(),
        name: session.client.names().name.clone(),
    };
    worker.engine.slow_log.add(entry, len_max);
}

/// The arguments as the log keeps them: not too many, not too long, and no secrets.
fn shown_args(command: &Command, args: Args<'_>) -> Vec<Vec<u8>> {
    let whole = if args.len() > ARGS_MAX { ARGS_MAX - 1 } else { args.len() };
    let shown = |(i, arg): (usize, &[u8])| if is_secret(command, args, i) { REDACTED.to_vec() } else { shown(arg) };
    let mut all: Vec<Vec<u8>> = args.from(0).take(whole).enumerate().map(shown).collect();
    if whole < args.len() {
        all.push(format!("... ({} more arguments)", args.len() - whole).into_bytes());
    }
    all
}

fn shown(arg: &[u8]) -> Vec<u8> {
    let mut shown = arg[..arg.len().min(ARG_BYTES_MAX)].to_vec();
    if arg.len() > ARG_BYTES_MAX {
        shown.extend_from_slice(format!("... ({} more bytes)", arg.len() - ARG_BYTES_MAX).as_bytes());
    }
    shown
}

/// Records something that took so many ticks for the latency monitor, if that is long.
pub(crate) fn note_moment(worker: &Worker, event: &'static str, ticks: u64) {
    if ticks < worker.engine.latency_ticks() {
        return;
    }
    let sample =
        Sample { time_s: worker.clock.present_us() / 1_000_000, took_ms: to_microseconds(ticks) as u64 / 1000 };
    worker.engine.latency.add(event, sample);
}

/// The event that a slow command is.
fn event_of(command: &Command) -> &'static str {
    if command.info.has(FAST) { "fast-command" } else { "command" }
}
