//! What MONITOR shows: every command that runs, in an order in which they could have run.
//!
//! Source of the format: Redis's "MONITOR" page, and what a running server shows.

use commands::spec::flag::{ADMIN, SKIP_MONITOR};
use resp::reply::{Proto, Reply};
use resp::request::Args;

use super::publishing::note_overfilled;
use super::secrets::{REDACTED, is_secret};
use crate::clients::client::client_flag;
use crate::clients::session::Session;
use crate::command_table::Command;
use crate::pubsub::{Encoded, Origin, Subscriber};
use crate::worker::Worker;

/// How much the clocks of two threads may differ: a turn's time is read once, and counted on from there.
const CLOCKS_DIFFER_US_MAX: u64 = 100_000;

/// A session among the monitors. The lines are the same in both versions of the protocol.
pub(crate) fn subscriber(session: &Session) -> Subscriber {
    Subscriber { client: session.client.id, worker: session.client.worker, proto: Proto::Resp2 }
}

/// Ends a session's MONITOR, if it has begun.
pub(crate) fn leave(worker: &mut Worker, session: &mut Session) {
    if session.is_monitoring() {
        session.set_monitoring(false);
        session.client.set(client_flag::MONITOR, false);
        worker.engine.monitors.change(|audience| audience.remove(subscriber(session)));
    }
}

/// Shows a command that has run to all monitors. Called while the command's shards are still held, so that commands on
/// the same keys are shown in the order in which they ran.
#[cold]
pub(crate) fn feed(worker: &mut Worker, session: &mut Session, command: &Command, args: Args<'_>) {
    if !command.info.has(SKIP_MONITOR | ADMIN) {
        show(worker, session, command, args);
    }
}

/// The same for a command that decides itself when it is shown.
#[cold]
pub(crate) fn show(worker: &mut Worker, session: &mut Session, command: &Command, args: Args<'_>) {
    let source = if worker.scripts.running {
        "lua".to_string()
    } else if session.client.has(client_flag::UNIX_SOCKET) {
        format!("unix:{}", worker.engine.settings.unixsocket.get())
    } else {
        session.client.addr.clone()
    };
    let mut text = text(session.database, &source, command, args);
    if let Some(noting) = worker.scripts.noting() {
        match noting.hold_back(text) {
            Ok(()) => return,
            Err(no_room) => text = no_room,
        }
    }
    send(worker, session, &text);
}

/// Shows a command's text to all monitors, with the time.
pub(crate) fn send(worker: &Worker, session: &mut Session, text: &str) {
    // A connection that is being closed, or shows nothing itself, has no use for its own line.
    let own = (session.is_monitoring() && !session.closing).then_some((session.client.id, &mut session.pushes));
    let mut origin = Origin { worker: worker.id, own, may_be_dropped: true, overfilled: None };
    let mut shown = worker.engine.monitors.shown();
    let now_us = worker.clock.present_us();
    // A larger step back is a system's clock that has been set.
    let is_late = now_us < shown.last_us && shown.last_us - now_us < CLOCKS_DIFFER_US_MAX;
    let time_us = if is_late { shown.last_us } else { now_us };
    shown.last_us = time_us;
    let line = line(time_us, text);
    let mut line = Encoded::new(|reply: &mut Reply<'_>| reply.simple(&line));
    shown.audience.send(&worker.engine.inboxes, &mut origin, &mut line);
    if let Some(inbox) = origin.overfilled {
        note_overfilled(worker, inbox, Some(session));
    }
}

/// What MONITOR shows: `1700000000.000123 [0 127.0.0.1:50000] "get" "key"`.
fn line(time_us: u64, text: &str) -> String {
    format!("{}.{:06} {text}", time_us / 1_000_000, time_us % 1_000_000)
}

/// The line that stands for so many that a monitor was not shown since it doesn't read them fast enough. It has the
/// form of the others, so that whatever reads those reads this, too; MONITOR itself is never shown otherwise.
#[must_use]
pub fn dropped_line(time_us: u64, lines: u64) -> Vec<u8> {
    format!("+{}\r\n", line(time_us, &format!("[0 0.0.0.0:0] \"monitor\" \"dropped\" \"{lines}\""))).into_bytes()
}

/// The line from its bracket on.
fn text(database: usize, source: &str, command: &Command, args: Args<'_>) -> String {
    let mut line = format!("[{database} {source}]");
    for (i, arg) in args.from(0).enumerate() {
        line.push(' ');
        quote(&mut line, if is_secret(command, args, i) { REDACTED } else { arg });
    }
    line
}

/// Appends bytes in double quotes, with C's escapes for whatever is no printable ASCII.
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
mod tests {
    use resp::request::OwnedArgs;

    use super::*;
    use crate::registry::table;
    use crate::testing::Bench;

    fn check(words: &[&[u8]], expected: &str) {
        let args = OwnedArgs::new(words.iter().copied());
        let command = table().find(words[0]).and_then(|c| table().resolve(c, args.args())).unwrap();
        let line = line(1_700_000_000_000_123, &text(3, "127.0.0.1:5", command, args.args()));
        assert_eq!(line, format!("1700000000.000123 [3 127.0.0.1:5] {expected}"));
    }

    #[test]
    fn arguments_are_quoted() {
        check(&[b"GET", b"a b"], r#""GET" "a b""#);
        check(&[b"set", b"", b"\"\\\n\r\t\x07\x08\0\x7f\xff"], r#""set" "" "\"\\\n\r\t\a\b\x00\x7f\xff""#);
    }

    #[test]
    fn monitors_see_what_runs_and_nothing_of_operators() {
        let mut bench = Bench::default();
        let (mut monitor, mut other) = (bench.open(), bench.open());
        let shown = |text: &str| {
            text.split('|').map(|l| l.split_once(' ').map_or("", |(_, l)| l).to_string()).collect::<Vec<_>>()
        };
        bench.check(&mut monitor, &[("monitor", "+OK"), ("monitor", "")]);
        let lines = ["set k 1", "nosuch", "get", "multi", "incr k", "exec", "config get port", "select 2", "auth x"];
        lines.iter().for_each(|line| drop(bench.line(&mut other, line)));
        let expected = [
            r#"[0 127.0.0.1:1] "set" "k" "1""#,
            r#"[0 127.0.0.1:1] "multi""#,
            r#"[0 127.0.0.1:1] "incr" "k""#,
            r#"[0 127.0.0.1:1] "exec""#,
            r#"[2 127.0.0.1:1] "select" "2""#,
            r#"[2 127.0.0.1:1] "auth" "(redacted)""#,
        ];
        assert_eq!(shown(&bench.arrived(&mut monitor)), expected);
        let own = bench.line(&mut monitor, "ping");
        assert_eq!(
            own.split_once('|').map(|(reply, line)| (reply, shown(line))),
            Some(("+PONG", vec![r#"[0 127.0.0.1:1] "ping""#.to_string()]))
        );
        bench.check(
            &mut monitor,
            &[("get k", "-ERR Replica can't interact with the keyspace"), ("reset", "+RESET"), ("get k", "$1|2")],
        );
        bench.line(&mut other, "ping");
        assert_eq!(bench.arrived(&mut monitor), "");
    }

    #[test]
    fn dropped_lines_are_told_in_the_form_of_a_line() {
        let expected = "+1700000000.000123 [0 0.0.0.0:0] \"monitor\" \"dropped\" \"7\"\r\n";
        assert_eq!(String::from_utf8_lossy(&dropped_line(1_700_000_000_000_123, 7)), expected);
    }

    #[test]
    fn passwords_are_hidden() {
        check(&[b"auth", b"p"], r#""auth" "(redacted)""#);
        check(&[b"auth", b"u", b"p"], r#""auth" "(redacted)" "(redacted)""#);
        check(&[b"auth", b"u", b"p", b"x"], r#""auth" "u" "p" "x""#);
        check(&[b"hello", b"3", b"auth", b"u", b"p"], r#""hello" "3" "auth" "(redacted)" "(redacted)""#);
        check(
            &[b"hello", b"3", b"setname", b"auth", b"AUTH", b"u", b"p", b"x"],
            r#""hello" "3" "setname" "auth" "AUTH" "(redacted)" "(redacted)" "x""#,
        );
        check(&[b"hello", b"3", b"auth", b"u"], r#""hello" "3" "auth" "u""#);
    }
}
