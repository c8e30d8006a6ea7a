//! BATCHLOG: slow batches, with the parts of their times.
//!
//! The family is Penstock's own. It is to batches as SLOWLOG is to commands.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, STALE};
use commands::spec::{Group, Spec, fact};
use statistics::batch_times::Part;
use statistics::slow_log::BatchLogEntry;
use statistics::ticks::to_microseconds;

use crate::families::help::help;
use crate::families::observability::slowlog::count;
use crate::machine::version::PENSTOCK_VERSION;
use crate::worker::turn::{Run, Turn};

/// Default number of entries in GET.
const SHOWN_BY_DEFAULT: i64 = 10;

const FLAGS: u32 = ADMIN | LOADING | STALE;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("batchlog", -2, 0, Run::Session(batchlog_help))
    .docs(Group::Server, PENSTOCK_VERSION, "Depends on subcommand.", "Shows batches that took long.", "")
    .subcommands(&[
        Spec::new("get", -2, FLAGS, Run::Session(get))
            .facts(fact::TELLS)
            .docs(
                Group::Server,
                PENSTOCK_VERSION,
                "O(N) where N is the number of entries returned",
                "Answers the latest slow batches, with the parts of their times.",
                "[count:integer]",
            )
            .tips(&["request_policy:all_nodes", "nondeterministic_output"]),
        Spec::new("help", 2, LOADING | STALE, Run::Session(batchlog_help)).docs(
            Group::Server,
            PENSTOCK_VERSION,
            "O(1)",
            "Describes the subcommands.",
            "",
        ),
        Spec::new("len", 2, FLAGS, Run::Session(len))
            .facts(fact::TELLS)
            .docs(
                Group::Server,
                PENSTOCK_VERSION,
                "O(1)",
                "Returns the number of entries of the log of slow batches.",
                "",
            )
            .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
        Spec::new("reset", 2, FLAGS, Run::Session(reset))
            .docs(
                Group::Server,
                PENSTOCK_VERSION,
                "O(N) where N is the number of entries in the log",
                "Removes all entries of the log of slow batches.",
                "",
            )
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ])];

fn get(turn: &mut Turn<'_, '_>) -> Outcome {
    let count = match turn.len() {
        2 => SHOWN_BY_DEFAULT,
        3 => count(turn, 2)?,
        _ => return Err(Error::SYNTAX),
    };
    let entries = turn.engine().batch_log.latest(usize::try_from(count).unwrap_or(usize::MAX));
    turn.reply.array(entries.len());
    entries.iter().for_each(|entry| write_entry(turn, entry));
    Ok(())
}

/// Converts ticks to whole microseconds.
fn us(ticks: u64) -> i64 {
    to_microseconds(ticks) as i64
}

fn write_entry(turn: &mut Turn<'_, '_>, entry: &BatchLogEntry) {
    let parts = Part::ALL.iter().zip(entry.parts).map(|(part, ticks)| (part.name(), us(ticks)));
    let numbers = [("id", entry.id as i64), ("time", entry.time_s as i64), ("usec", us(entry.parts.iter().sum()))];
    let sizes = [("depth", i64::from(entry.depth)), ("bytes", entry.bytes as i64)];
    let numbers: Vec<(&str, i64)> = numbers.into_iter().chain(parts).chain(sizes).collect();
    let texts =
        [("addr", &entry.addr), ("name", &entry.name), ("lib-name", &entry.library.0), ("lib-ver", &entry.library.1)];
    turn.reply.map(numbers.len() + 2 + texts.len());
    for (name, value) in numbers {
        turn.reply.bulk(name);
        turn.reply.int(value);
    }
    turn.reply.bulk("command");
    turn.reply.bulk_or_null(entry.command.as_ref().map(|(name, _)| name));
    turn.reply.bulk("command-usec");
    match &entry.command {
        Some((_, ticks)) => turn.reply.int(us(*ticks)),
        None => turn.reply.null(),
    }
    for (name, value) in texts {
        turn.reply.bulk(name);
        turn.reply.bulk(value);
    }
}

fn len(turn: &mut Turn<'_, '_>) -> Outcome {
    let len = turn.engine().batch_log.len();
    turn.reply.count(len);
    Ok(())
}

fn reset(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.engine().batch_log.trim(0);
    turn.reply.ok();
    Ok(())
}

fn batchlog_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "GET [<count>]",
        "    Return the latest slow batches (default: 10, -1 means all). Entries are maps:",
        "    id, time in seconds, usec from the arrival to the first reply, its parts in microseconds",
        "    (turn, execution, disk, replicas, client), depth, bytes, the longest command if one stands out,",
        "    client address and name, client library",
        "LEN",
        "    Return the number of entries.",
        "RESET",
        "    Remove all entries.",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests {
    use config::{Loader, Settings};

    use crate::clients::session::Session;
    use crate::testing::{Bench, request};

    /// Runs these commands as one batch.
    fn batch(bench: &mut Bench, session: &mut Session, lines: &[&str]) {
        let input = lines.iter().map(|line| request(&line.split(' ').collect::<Vec<_>>())).collect::<Vec<_>>().concat();
        bench.run(session, &input);
    }

    #[test]
    fn slow_batches_are_kept_with_their_parts() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        batch(&mut bench, &mut session, &["CLIENT SETINFO LIB-NAME lib", "CLIENT SETINFO LIB-VER 1.2", "PING"]);
        batch(&mut bench, &mut session, &["CONFIG SET batchlog-log-slower-than 0 batchlog-max-len 2"]);
        for lines in [&["PING"][..], &["SET k v", "GET k"]] {
            batch(&mut bench, &mut session, lines);
        }
        batch(&mut bench, &mut session, &["CONFIG SET batchlog-log-slower-than -1"]);
        bench.check(&mut session, &[("BATCHLOG LEN", ":2")]);
        let reply = bench.line(&mut session, "BATCHLOG GET 1");
        let (head, tail) = reply.split_once("|$4|usec|:").unwrap();
        assert_eq!(head, "*1|*32|$2|id|:2|$4|time|:1700000000");
        assert!(tail.contains("|$5|depth|:2|$5|bytes|:47|$7|command|"), "{tail}");
        let client = "|$4|addr|$11|127.0.0.1:1|$4|name|$0||$8|lib-name|$3|lib|$7|lib-ver|$3|1.2";
        assert!(tail.ends_with(client), "{tail}");
        let all = bench.line(&mut session, "BATCHLOG GET");
        assert!(all.contains("|$7|command|$4|ping|$12|command-usec|:"), "{all}");
        bench.check(
            &mut session,
            &[
                ("BATCHLOG GET -2", "-ERR count should be greater than or equal to -1"),
                ("BATCHLOG GET 1 2", "-ERR syntax error"),
                ("CONFIG SET batchlog-max-len 1", "+OK"),
                ("BATCHLOG LEN", ":1"),
                ("BATCHLOG RESET", "+OK"),
                ("BATCHLOG GET", "*0"),
            ],
        );
    }

    #[test]
    fn the_longest_command_is_named_if_it_stands_out() {
        let settings = Settings::new();
        Loader::new(&settings).directive(&[b"enable-debug-command".to_vec(), b"local".to_vec()]).unwrap();
        let mut bench = Bench::with(settings);
        let mut session = bench.open();
        bench.let_time_pass();
        batch(&mut bench, &mut session, &["PING", "DEBUG SLEEP 0.02", "PING"]);
        let reply = bench.line(&mut session, "BATCHLOG GET");
        assert!(reply.contains("|$5|depth|:3|"), "{reply}");
        let (_, behind) = reply.split_once("|$7|command|$5|debug|$12|command-usec|:").unwrap_or_default();
        let took_us = behind.split('|').next().and_then(|us| us.parse::<u64>().ok());
        assert!(took_us.is_some_and(|us| us >= 20_000), "{reply}");
    }
}
