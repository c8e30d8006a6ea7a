//! MONITOR: shows every command that the server runs, or those that its options choose. `services::monitors` writes the
//! lines.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use commands::spec::{Group, Spec, fact};
use resp::num;

use crate::clients::client::client_flag;
use crate::pubsub::monitors::MonitorFilter;
use crate::services::monitors::subscriber;
use crate::worker::turn::{Run, Turn};

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] =
    &[Spec::new("monitor", -1, ADMIN | NOSCRIPT | LOADING | STALE, Run::Session(monitor)).facts(fact::HOLDS_CONNECTION).docs(
        Group::Server,
        "1.0.0",
        "O(1); each shown command then costs one more message per thread with monitors",
        "Shows all commands that the server runs, as they run, or those that its options choose.",
        "[SAMPLE count:integer] [MATCH pattern:pattern] [COMMAND name:string [name:string ...]] \
         [CLIENT <ID client-id:integer | ADDR ip:port:string | LADDR ip:port:string | NAME name:string | USER username:string>] \
         [BATCHES] [REPLIES]",
    )];

/// Maximum of SAMPLE.
const SAMPLE_MAX: u64 = 1_000_000_000;
/// Maximum number of names, patterns and ids in the options.
const CHOICES_MAX: usize = 1000;

fn monitor(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.session.in_exec {
        return Err(Error::new("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    let filter = if turn.len() > 1 { Some(parse(turn)?) } else { None };
    // A second MONITOR is ignored without a reply, as in Redis.
    if turn.session.is_monitoring() {
        let refused = Error::new("ERR this connection runs MONITOR already; RESET ends it");
        return filter.map_or(Ok(()), |_| Err(refused));
    }
    let subscriber = subscriber(turn.session);
    turn.session.set_monitoring(true);
    turn.session.client.set(client_flag::MONITOR, true);
    turn.engine().monitors.change(|shown| match filter {
        None => shown.audience.add(subscriber),
        Some(filter) => shown.add(subscriber, filter),
    });
    turn.reply.ok();
    Ok(())
}

/// Parses the options.
fn parse(turn: &Turn<'_, '_>) -> Result<MonitorFilter, Error> {
    let mut filter = MonitorFilter { sample: 1, ..MonitorFilter::default() };
    let mut at = 1;
    while at < turn.len() {
        at = parse_option(turn, at, &mut filter)?;
    }
    if [filter.patterns.len(), filter.commands.len(), filter.clients.ids.len()].iter().any(|len| *len > CHOICES_MAX) {
        return Err(Error::new("ERR too many names, patterns or numbers"));
    }
    Ok(filter)
}

/// Returns true if this argument is an option's name, which ends a list of command names.
fn is_option(turn: &Turn<'_, '_>, at: usize) -> bool {
    ["sample", "match", "command", "client", "batches", "replies"].iter().any(|option| turn.is(at, option))
}

/// Parses the option at `at`, and returns the next index.
fn parse_option(turn: &Turn<'_, '_>, at: usize, filter: &mut MonitorFilter) -> Result<usize, Error> {
    let has_value = at + 1 < turn.len();
    if turn.is(at, "batches") {
        filter.batches = true;
        return Ok(at + 1);
    }
    if turn.is(at, "replies") {
        filter.replies = true;
        return Ok(at + 1);
    }
    if !has_value {
        return Err(Error::SYNTAX);
    }
    let value = turn.arg(at + 1);
    if turn.is(at, "sample") {
        let count = positive(value).filter(|count| *count <= SAMPLE_MAX);
        filter.sample = count.ok_or_else(|| Error::new("ERR SAMPLE is not a number from 1 to 1000000000"))? as u32;
        Ok(at + 2)
    } else if turn.is(at, "match") {
        filter.patterns.push(value.into());
        Ok(at + 2)
    } else if turn.is(at, "command") {
        parse_commands(turn, at + 1, filter)
    } else if turn.is(at, "client") && at + 2 < turn.len() {
        parse_client(turn, at + 1, filter)?;
        Ok(at + 3)
    } else {
        Err(Error::SYNTAX)
    }
}

/// Parses the names of commands from `at` on, with subcommands as `client|list`.
fn parse_commands(turn: &Turn<'_, '_>, mut at: usize, filter: &mut MonitorFilter) -> Result<usize, Error> {
    let first = at;
    while at < turn.len() && !is_option(turn, at) {
        let name = turn.arg(at);
        let unknown = || Error::new(format!("ERR Unknown command '{}'", String::from_utf8_lossy(name)));
        filter.commands.push(turn.engine().table.find_full(name).ok_or_else(unknown)?.id);
        at += 1;
    }
    if at == first { Err(Error::SYNTAX) } else { Ok(at) }
}

/// Parses a condition on connections.
fn parse_client(turn: &Turn<'_, '_>, at: usize, filter: &mut MonitorFilter) -> Outcome {
    let (clients, value) = (&mut filter.clients, turn.arg(at + 1));
    let text = Some(value.into());
    if turn.is(at, "id") {
        clients.ids.push(positive(value).ok_or_else(|| Error::new("ERR client-id should be greater than 0"))?);
    } else if turn.is(at, "addr") {
        clients.addr = text;
    } else if turn.is(at, "laddr") {
        clients.laddr = text;
    } else if turn.is(at, "name") {
        clients.name = text;
    } else if turn.is(at, "user") {
        clients.user = text;
    } else {
        return Err(Error::SYNTAX);
    }
    Ok(())
}

fn positive(value: &[u8]) -> Option<u64> {
    num::parse_i64(value).and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0)
}
