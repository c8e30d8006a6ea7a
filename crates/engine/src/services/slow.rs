//! Slow or large commands, for the command logs, and slow operations, for the latency monitor.

use commands::spec::flag::{FAST, SKIP_SLOWLOG};
use resp::request::Args;

use super::secrets::{REDACTED, is_secret};
use crate::clients::session::Session;
use crate::slots::check::KeySlots;
use crate::state::LogKind;
use crate::worker::Worker;
use crate::worker::turn::Invocation;
use commands::table::Command;
use config::Settings;
use statistics::hot_keys::CountedCommand;
use statistics::latency_monitor::Sample;
use statistics::slow_log::SlowLogEntry;
use statistics::ticks::to_microseconds;

/// Maximum number of arguments in an entry; the last one then states the number of others.
const ARGS_MAX: usize = 32;
/// Maximum bytes of an argument.
const ARG_BYTES_MAX: usize = 128;

/// Records a slow command in the slow log and the latency monitor, according to their thresholds.
#[cold]
pub(crate) fn note_command(worker: &Worker, session: &Session, command: &Command, args: Args<'_>, ticks: u64) {
    if worker.longest.get().is_none_or(|(_, longest)| longest < ticks) {
        worker.longest.set(Some((command.id, ticks)));
    }
    if ticks >= worker.engine.slow_ticks() {
        add_to_log(worker, session, command, args, ticks);
    }
    note_moment(worker, event_of(command), ticks);
}

/// Records a command in the slow log, unless it is exempt.
fn add_to_log(worker: &Worker, session: &Session, command: &Command, args: Args<'_>, ticks: u64) {
    add(worker, session, command, args, LogKind::Slow, to_microseconds(ticks) as u64);
}

/// Records a command in a log, unless it is exempt.
fn add(worker: &Worker, session: &Session, command: &Command, args: Args<'_>, kind: LogKind, figure: u64) {
    let len_max = kind.len_max(&worker.engine.settings);
    // A command that isn't kept gets no number either.
    if len_max == 0 || command.info.has(SKIP_SLOWLOG) {
        return;
    }
    let entry = SlowLogEntry {
        id: 0,
        time_s: worker.clock.present_us() / 1_000_000,
        figure,
        args: shown_args(command, args),
        addr: session.client.addr.clone(),
        name: session.client.names().name.clone(),
    };
    worker.engine.command_log(kind).add(entry, len_max);
}

/// Minimum sizes of logged requests and replies, in bytes; `usize::MAX` if the log is off.
#[derive(Clone, Copy)]
pub(crate) struct LargeSizes {
    pub request: usize,
    pub reply: usize,
}

impl LargeSizes {
    pub(crate) fn of(settings: &Settings) -> LargeSizes {
        let size = |bytes: i64, kind: LogKind| match usize::try_from(bytes) {
            Ok(bytes) if kind.len_max(settings) > 0 => bytes,
            _ => usize::MAX,
        };
        LargeSizes {
            request: size(settings.commandlog_request_larger_than.get(), LogKind::LargeRequest),
            reply: size(settings.commandlog_reply_larger_than.get(), LogKind::LargeReply),
        }
    }

    /// Returns the thresholds for requests with this total size: a batch below the threshold has no large request.
    pub(crate) fn among(mut self, bytes: usize) -> LargeSizes {
        if bytes < self.request {
            self.request = usize::MAX;
        }
        self
    }

    /// Returns true if a command with this reply size may have to be logged.
    #[inline]
    pub(crate) fn may_be(self, reply: usize) -> bool {
        reply >= self.reply || self.request != usize::MAX
    }

    /// Records a command with this reply size in the logs, according to their thresholds.
    #[cold]
    pub(crate) fn note(self, worker: &Worker, session: &Session, command: &Command, args: Args<'_>, reply: usize) {
        let request = if self.request == usize::MAX { 0 } else { wire_bytes(args) };
        for (bytes, least, kind) in
            [(request, self.request, LogKind::LargeRequest), (reply, self.reply, LogKind::LargeReply)]
        {
            if bytes >= least && least != usize::MAX {
                add(worker, session, command, args, kind, bytes as u64);
            }
        }
    }
}

/// Counts a command by its keys, if HOTKEYS samples it.
#[cold]
pub(crate) fn note_hot_keys(worker: &mut Worker, run: Invocation<'_>, ticks: u64, reply: usize) {
    let ratio = worker.engine.hot_keys.ratio();
    if ratio == 0 || worker.random.below(usize::try_from(ratio).unwrap_or(usize::MAX)) != 0 {
        return;
    }
    let args = *run.args;
    let mut keys = run.keys.iter().map(|key| args.get(key.arg as usize));
    let bytes = wire_bytes(args) + reply;
    worker.engine.hot_keys.note(CountedCommand { keys: &mut keys, us: to_microseconds(ticks), bytes });
}

/// Counts a command for the slot of its keys, if these statistics are on. A command with keys in several slots counts
/// for none of them, because its work can't be divided.
#[cold]
pub(crate) fn note_slot(worker: &Worker, run: Invocation<'_>, ticks: u64, reply: usize) {
    if worker.engine.counts_slots()
        && let KeySlots::One(slot) = KeySlots::of(run.keys.iter().map(|key| key.hash))
    {
        worker.engine.slot_stats.note(worker.id, slot, ticks, wire_bytes(*run.args) as u64, reply as u64);
    }
}

/// Returns the size of a request in the protocol: the lines with lengths, and the arguments.
fn wire_bytes(args: Args<'_>) -> usize {
    let digits = |number: usize| number.checked_ilog10().unwrap_or(0) as usize + 1;
    let line = |number: usize| 1 + digits(number) + 2;
    line(args.len()) + args.from(0).map(|arg| line(arg.len()) + arg.len() + 2).sum::<usize>()
}

/// Returns the arguments for the log: limited in number and length, and without secrets.
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

/// Records an operation of this duration in the latency monitor, if it exceeds the threshold.
pub(crate) fn note_moment(worker: &Worker, event: &'static str, ticks: u64) {
    if ticks < worker.engine.latency_ticks() {
        return;
    }
    let sample =
        Sample { time_s: worker.clock.present_us() / 1_000_000, took_ms: to_microseconds(ticks) as u64 / 1000 };
    worker.engine.latency.add(event, sample);
}

/// Returns the latency event of a slow command.
fn event_of(command: &Command) -> &'static str {
    if command.info.has(FAST) { "fast-command" } else { "command" }
}
