//! MONITOR: shows every command that runs, in an order that is consistent with their execution.
//!
//! Source of the format: Redis's "MONITOR" page, and the output of a running server. MONITOR's options, which only Penstock has,
//! add two forms: a line at the start of a batch, and a reply behind its command, in the form that the client receives:
//!
//! ```text
//! 1700000000.000120 [0 127.0.0.1:50000] batch 2
//! 1700000000.000123 [0 127.0.0.1:50000] "get" "key" => "$5\r\nvalue\r\n"
//! 1700000000.000124 [0 127.0.0.1:50000] "get" "long" => "$100000\r\n" +100002
//! ```
//!
//! Only the first bytes of a reply are shown; the number behind the plus counts the others.

use std::sync::Arc;

use commands::spec::flag::{ADMIN, SKIP_MONITOR};
use resp::reply::{Mark, Output, Proto, Reply};
use resp::request::Args;
use store::glob;

use super::publishing::note_overfilled;
use super::secrets::{REDACTED, is_secret};
use crate::clients::client::{Client, client_flag};
use crate::clients::session::Session;
use crate::pubsub::monitors::{Chooser, ClientChoice};
use crate::pubsub::{Audience, Encoded, Origin, Subscriber};
use crate::scripts::MonitorLine;
use crate::worker::Worker;
use crate::worker::turn::Invocation;
use commands::table::Command;

/// Maximum difference between two threads' clocks. A thread reads the time once a turn and adds to it.
const CLOCKS_DIFFER_US_MAX: u64 = 100_000;
/// Maximum number of reply bytes that are shown.
const REPLY_BYTES_MAX: usize = 512;

/// Describes a session as a monitor. The lines are the same in both protocol versions.
pub(crate) fn subscriber(session: &Session) -> Subscriber {
    Subscriber { client: session.client.id, worker: session.client.worker, proto: Proto::Resp2 }
}

/// Ends a session's MONITOR, if it runs.
pub(crate) fn leave(worker: &mut Worker, session: &mut Session) {
    if session.is_monitoring() {
        session.set_monitoring(false);
        session.client.set(client_flag::MONITOR, false);
        worker.engine.monitors.change(|shown| shown.remove(subscriber(session)));
    }
}

/// Shows a command that has run to all monitors, with the reply since `start` for those that want it. Called while the
/// command's shards are still held, so that commands on the same keys are shown in the order of execution.
#[cold]
pub(crate) fn feed(worker: &mut Worker, session: &mut Session, run: Invocation<'_>, reply: Option<(&Output, Mark)>) {
    if run.command.info.has(ADMIN) {
        return;
    }
    // A command that shows itself before it runs is shown here only to monitors that want its reply.
    let is_shown = run.command.info.has(SKIP_MONITOR);
    offer(worker, session, run, |chooser| !is_shown || chooser.filter.replies, !is_shown, reply);
}

/// Shows a command that chooses its moment itself, before it runs. Monitors that want its reply see it afterwards.
#[cold]
pub(crate) fn show(worker: &mut Worker, session: &mut Session, run: Invocation<'_>) {
    offer(worker, session, run, |chooser| !chooser.filter.replies, true, None);
}

/// Shows a command to the monitors with a matching filter, and with `to_all` also to those without a filter.
fn offer(
    worker: &mut Worker,
    session: &mut Session,
    run: Invocation<'_>,
    is_for: impl Fn(&Chooser) -> bool,
    to_all: bool,
    reply: Option<(&Output, Mark)>,
) {
    worker.monitors.follow(&worker.engine.monitors);
    let choosers = Arc::clone(&worker.monitors.choosers);
    let mut line = MonitorLine { to_all: to_all && worker.monitors.shows_all, ..MonitorLine::default() };
    let mut wants_reply = false;
    for chooser in choosers.iter() {
        let is_chosen = is_for(chooser) && chooses(chooser, session, run);
        if !is_chosen || !worker.monitors.draws(chooser, &mut worker.random) {
            continue;
        }
        wants_reply |= chooser.filter.replies;
        line.to.push(chooser.serial);
        if chooser.filter.batches && session.round_trips.announced & chooser.bit() == 0 {
            session.round_trips.announced |= chooser.bit();
            line.begins.push(chooser.serial);
        }
    }
    if !line.to_all && line.to.is_empty() {
        return;
    }
    line.text = text(session.database, &source(worker, session, worker.scripts.running), run.command, *run.args);
    if !line.begins.is_empty() {
        let source = source(worker, session, false);
        line.batch = format!("[{} {source}] batch {}", session.database, session.round_trips.depth.max(1));
    }
    if let Some((output, start)) = reply.filter(|_| wants_reply) {
        line.reply = reply_text(output, start);
    }
    if let Some(noting) = worker.scripts.noting() {
        match noting.hold_back(line) {
            None => return,
            Some(no_room) => line = no_room,
        }
    }
    send(worker, session, &line);
}

/// Returns true if a monitor's filter selects this command of this connection.
fn chooses(chooser: &Chooser, session: &Session, run: Invocation<'_>) -> bool {
    let filter = &chooser.filter;
    let matches =
        |pattern: &[u8]| run.keys.iter().any(|key| glob::matches(pattern, run.args.get(key.arg as usize), false));
    (filter.commands.is_empty() || is_named(&filter.commands, run.command))
        && (filter.patterns.is_empty() || filter.patterns.iter().any(|pattern| matches(pattern)))
        && gives(&filter.clients, &session.client)
}

/// Returns true if a command or its container is among these.
fn is_named(commands: &[usize], command: &Command) -> bool {
    commands.contains(&command.id) || command.parent.is_some_and(|container| commands.contains(&container))
}

/// Returns true if the filter selects this client.
fn gives(choice: &ClientChoice, client: &Client) -> bool {
    let is = |wanted: &Option<Box<[u8]>>, text: &str| wanted.as_deref().is_none_or(|wanted| wanted == text.as_bytes());
    (choice.ids.is_empty() || choice.ids.contains(&client.id))
        && is(&choice.addr, &client.addr)
        && is(&choice.laddr, &client.laddr)
        && (choice.name.is_none() || is(&choice.name, &client.names().name))
        && (choice.user.is_none() || is(&choice.user, &client.user_name()))
}

/// Returns the displayed source of a command.
fn source(worker: &Worker, session: &Session, is_of_script: bool) -> String {
    if is_of_script {
        "lua".to_string()
    } else if session.client.has(client_flag::UNIX_SOCKET) {
        format!("unix:{}", worker.engine.settings.unixsocket.get())
    } else {
        session.client.addr.clone()
    }
}

/// Sends a line with the time to its monitors.
pub(crate) fn send(worker: &Worker, session: &mut Session, line: &MonitorLine) {
    let engine = worker.engine;
    let mut shown = engine.monitors.shown();
    let now_us = worker.clock.present_us();
    // A larger step back means that the system's clock was set.
    let is_late = now_us < shown.last_us && shown.last_us - now_us < CLOCKS_DIFFER_US_MAX;
    let time_us = if is_late { shown.last_us } else { now_us };
    shown.last_us = time_us;
    let mut overfilled = None;
    let mut tell = |audience: &Audience, text: &str| {
        // A closing connection, or one that isn't a monitor, doesn't receive its own line.
        let own = (session.is_monitoring() && !session.closing).then_some((session.client.id, &mut session.pushes));
        let mut origin = Origin { worker: worker.id, own, may_be_dropped: true, overfilled: None };
        let timed = timed(time_us, text);
        let mut bytes = Encoded::new(|reply: &mut Reply<'_>| reply.simple(&timed));
        audience.send(&engine.inboxes, &mut origin, &mut bytes);
        overfilled = overfilled.or(origin.overfilled);
    };
    if line.to_all {
        tell(&shown.audience, &line.text);
    }
    for chooser in shown.choosers.iter().filter(|chooser| line.to.contains(&chooser.serial)) {
        let audience = chooser.audience();
        if line.begins.contains(&chooser.serial) {
            tell(&audience, &line.batch);
        }
        if chooser.filter.replies && !line.reply.is_empty() {
            tell(&audience, &format!("{}{}", line.text, line.reply));
        } else {
            tell(&audience, &line.text);
        }
    }
    drop(shown);
    if let Some(inbox) = overfilled {
        note_overfilled(worker, inbox, Some(session));
    }
}

/// Formats a line: `1700000000.000123 [0 127.0.0.1:50000] "get" "key"`.
fn timed(time_us: u64, text: &str) -> String {
    format!("{}.{:06} {text}", time_us / 1_000_000, time_us % 1_000_000)
}

/// Formats the line that stands for `lines` dropped lines, because the monitor reads too slowly. The form is that of a
/// command, so that existing parsers read it; MONITOR itself is never shown otherwise.
#[must_use]
pub fn dropped_line(time_us: u64, lines: u64) -> Vec<u8> {
    format!("+{}\r\n", timed(time_us, &format!("[0 0.0.0.0:0] \"monitor\" \"dropped\" \"{lines}\""))).into_bytes()
}

/// Formats the line from its bracket on.
fn text(database: usize, source: &str, command: &Command, args: Args<'_>) -> String {
    let mut line = format!("[{database} {source}]");
    for (i, arg) in args.from(0).enumerate() {
        line.push(' ');
        quote(&mut line, if is_secret(command, args, i) { REDACTED } else { arg });
    }
    line
}

/// Formats the reply behind a command: its first bytes, and the number of further bytes.
fn reply_text(output: &Output, start: Mark) -> String {
    let beginning = output.since(start);
    let beginning = beginning.get(..REPLY_BYTES_MAX).unwrap_or(beginning);
    let more = output.len_since(start).saturating_sub(beginning.len());
    let mut text = String::from(" => ");
    quote(&mut text, beginning);
    if more > 0 {
        text += &format!(" +{more}");
    }
    text
}

/// Appends bytes in double quotes, with C's escapes for all but printable ASCII.
fn quote(line: &mut String, bytes: &[u8]) {
    line.push('"');
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => line.extend(['\\', char::from(byte)]),
            b'\n' => line.push_str("\\n"),
            b'\r' => line.push_str("\\r"),
            b'\t' => line.push_str("\\t"),
            0x07 => line.push_str("\\a"),
            0x08 => line.push_str("\\b"),
            b' '..=b'~' => line.push(char::from(byte)),
            _ => line.push_str(&format!("\\x{byte:02x}")),
        }
    }
    line.push('"');
}

#[cfg(test)]
mod tests;
