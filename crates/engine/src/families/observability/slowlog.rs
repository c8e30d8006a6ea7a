//! SLOWLOG: slow commands.
//!
//! Source of the semantics: Redis's pages of SLOWLOG GET, LEN and RESET.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, STALE};
use commands::spec::{Group, Spec, fact};

use crate::families::help::help;
use crate::state::LogKind;
use crate::worker::turn::{Run, Turn};

/// Default number of entries in GET.
const SHOWN_BY_DEFAULT: i64 = 10;

const FLAGS: u32 = ADMIN | LOADING | STALE;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("slowlog", -2, 0, Run::Session(slowlog_help))
    .docs(Group::Server, "2.2.12", "Depends on subcommand.", "Shows commands that took long.", "")
    .subcommands(&[
        Spec::new("get", -2, FLAGS, Run::Session(get))
            .facts(fact::TELLS)
            .docs(
                Group::Server,
                "2.2.12",
                "O(N) where N is the number of entries returned",
                "Answers the latest entries of the slow log.",
                "[count:integer]",
            )
            .history(&[("4.0.0", "The client's address and name.")])
            .tips(&["request_policy:all_nodes", "nondeterministic_output"]),
        Spec::new("help", 2, LOADING | STALE, Run::Session(slowlog_help)).docs(
            Group::Server,
            "6.2.0",
            "O(1)",
            "Describes the subcommands.",
            "",
        ),
        Spec::new("len", 2, FLAGS, Run::Session(len))
            .facts(fact::TELLS)
            .docs(Group::Server, "2.2.12", "O(1)", "Returns the number of entries of the slow log.", "")
            .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
        Spec::new("reset", 2, FLAGS, Run::Session(reset))
            .docs(
                Group::Server,
                "2.2.12",
                "O(N) where N is the number of entries in the slowlog",
                "Removes all entries of the slow log.",
                "",
            )
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ])];

fn get(turn: &mut Turn<'_, '_>) -> Outcome {
    let count = match turn.len() {
        2 => SHOWN_BY_DEFAULT,
        3 => count(turn, 2)?,
        _ => {
            return Err(Error::new(format!(
                "ERR unknown subcommand or wrong number of arguments for '{}'. Try SLOWLOG HELP.",
                String::from_utf8_lossy(turn.arg(1))
            )));
        }
    };
    write_entries(turn, LogKind::Slow, count);
    Ok(())
}

/// Replies with the latest entries of a log; -1 means all.
pub(super) fn write_entries(turn: &mut Turn<'_, '_>, kind: LogKind, count: i64) {
    let entries = turn.engine().command_log(kind).latest(usize::try_from(count).unwrap_or(usize::MAX));
    turn.reply.array(entries.len());
    for entry in &entries {
        turn.reply.array(6);
        turn.reply.int(entry.id as i64);
        turn.reply.int(entry.time_s as i64);
        turn.reply.int(entry.figure as i64);
        turn.reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| turn.reply.bulk(arg));
        turn.reply.bulk(&entry.addr);
        turn.reply.bulk(&entry.name);
    }
}

/// Parses GET's number of entries.
pub(super) fn count(turn: &Turn<'_, '_>, at: usize) -> Result<i64, Error> {
    let count = turn.int(at).ok().filter(|&count| count >= -1);
    count.ok_or(Error::fixed("ERR count should be greater than or equal to -1"))
}

fn len(turn: &mut Turn<'_, '_>) -> Outcome {
    let len = turn.engine().command_log(LogKind::Slow).len();
    turn.reply.count(len);
    Ok(())
}

fn reset(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.engine().command_log(LogKind::Slow).trim(0);
    turn.reply.ok();
    Ok(())
}

fn slowlog_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "GET [<count>]",
        "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
        "    Entries are made of:",
        "    id, timestamp, time in microseconds, arguments array, client IP and port,",
        "    client name",
        "LEN",
        "    Return the length of the slowlog.",
        "RESET",
        "    Reset the slowlog.",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests {
    use crate::state::LogKind;
    use crate::testing::Bench;

    /// Returns the entries' arguments, the latest first.
    fn logged(bench: &mut Bench) -> Vec<String> {
        let text = |args: &Vec<Vec<u8>>| String::from_utf8_lossy(&args.join(&b' ')).into_owned();
        bench.worker.engine.command_log(LogKind::Slow).latest(usize::MAX).iter().map(|e| text(&e.args)).collect()
    }

    #[test]
    fn entries_that_are_not_kept_get_no_number() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        for line in ["CONFIG SET slowlog-max-len 0 slowlog-log-slower-than 0", "PING", "PING", "PING"] {
            bench.line(&mut session, line);
        }
        bench.check(&mut session, &[("SLOWLOG LEN", ":0"), ("CONFIG SET slowlog-max-len 1", "+OK")]);
        let reply = bench.line(&mut session, "SLOWLOG GET");
        assert!(reply.starts_with("*1|*6|:0|"), "{reply}");
    }

    #[test]
    fn slow_commands_are_kept_without_their_secrets() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let many = format!("SADD s{}", " 1".repeat(40));
        let long = format!("SET k {}", "x".repeat(130));
        for line in [
            "CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3",
            "MULTI",
            "EXEC",
            "CONFIG SET requirepass secret",
            &many,
            &long,
        ] {
            bench.line(&mut session, line);
        }
        assert_eq!(
            logged(&mut bench),
            [
                format!("SET k {}... (2 more bytes)", "x".repeat(128)),
                format!("SADD s{} ... (11 more arguments)", " 1".repeat(29)),
                "CONFIG SET requirepass (redacted)".to_string(),
            ]
        );
        let reply = bench.line(&mut session, "SLOWLOG GET 1");
        let (head, tail) = reply.split_once("|:1700000000|:").unwrap();
        assert_eq!(head, "*1|*6|:4", "the fifth entry");
        assert!(tail.ends_with("|$11|127.0.0.1:1|$0|"), "{tail}");
        bench.check(
            &mut session,
            &[
                ("CONFIG SET slowlog-log-slower-than -1 slowlog-max-len 2", "+OK"),
                ("SLOWLOG LEN", ":2"),
                ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1"),
                ("SLOWLOG GET x", "-ERR count should be greater than or equal to -1"),
                (
                    "SLOWLOG GET 1 2",
                    "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
                ),
                ("SLOWLOG RESET", "+OK"),
                ("SLOWLOG GET", "*0"),
                ("SLOWLOG LEN", ":0"),
            ],
        );
    }
}
