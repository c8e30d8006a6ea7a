//! COMMANDLOG: slow commands, and commands with large requests or replies.
//!
//! Source of the semantics: Valkey's pages of COMMANDLOG GET, LEN and RESET. SLOWLOG has the log of slow commands.

use commands::error::{Error, Outcome};
use commands::spec::flag::{ADMIN, LOADING, STALE};
use commands::spec::{Group, Spec, fact};

use crate::families::help::help;
use crate::families::observability::slowlog::{count, write_entries};
use crate::state::LogKind;
use crate::worker::turn::{Run, Turn};

const FLAGS: u32 = ADMIN | LOADING | STALE;

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] = &[Spec::new("commandlog", -2, 0, Run::Session(commandlog_help))
    .docs(Group::Server, "8.1.0", "Depends on subcommand.", "Shows commands that were slow or large.", "")
    .subcommands(&[
        Spec::new("get", 4, FLAGS, Run::Session(get))
            .facts(fact::TELLS)
            .docs(
                Group::Server,
                "8.1.0",
                "O(N) where N is the number of entries returned",
                "Answers the latest entries of a log of commands.",
                "count:integer <SLOW | LARGE-REQUEST | LARGE-REPLY>:type",
            )
            .tips(&["request_policy:all_nodes", "nondeterministic_output"]),
        Spec::new("help", 2, LOADING | STALE, Run::Session(commandlog_help)).docs(
            Group::Server,
            "8.1.0",
            "O(1)",
            "Describes the subcommands.",
            "",
        ),
        Spec::new("len", 3, FLAGS, Run::Session(len))
            .facts(fact::TELLS)
            .docs(
                Group::Server,
                "8.1.0",
                "O(1)",
                "Returns the number of entries of a command log.",
                "<SLOW | LARGE-REQUEST | LARGE-REPLY>:type",
            )
            .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
        Spec::new("reset", 3, FLAGS, Run::Session(reset))
            .docs(
                Group::Server,
                "8.1.0",
                "O(N) where N is the number of entries in the commandlog",
                "Removes all entries of a log of commands.",
                "<SLOW | LARGE-REQUEST | LARGE-REPLY>:type",
            )
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ])];

fn kind(turn: &Turn<'_, '_>, at: usize) -> Result<LogKind, Error> {
    let unknown = Error::fixed("ERR type should be one of the following: slow, large-request, large-reply");
    LogKind::named(turn.arg(at)).ok_or(unknown)
}

fn get(turn: &mut Turn<'_, '_>) -> Outcome {
    let count = count(turn, 2)?;
    let kind = kind(turn, 3)?;
    write_entries(turn, kind, count);
    Ok(())
}

fn len(turn: &mut Turn<'_, '_>) -> Outcome {
    let kind = kind(turn, 2)?;
    let len = turn.engine().command_log(kind).len();
    turn.reply.count(len);
    Ok(())
}

fn reset(turn: &mut Turn<'_, '_>) -> Outcome {
    let kind = kind(turn, 2)?;
    turn.engine().command_log(kind).trim(0);
    turn.reply.ok();
    Ok(())
}

fn commandlog_help(turn: &mut Turn<'_, '_>) -> Outcome {
    const LINES: &[&str] = &[
        "GET <count> <type>",
        "    Answer the latest <count> entries of a log (-1: all). Entries are made of:",
        "    id, timestamp, microseconds (slow) or bytes (large-request, large-reply),",
        "    arguments array, client IP and port, client name",
        "LEN <type>",
        "    Answer how many entries a log has.",
        "RESET <type>",
        "    Remove all entries of a log.",
    ];
    help(turn, LINES)
}

#[cfg(test)]
mod tests {
    use crate::state::LogKind;
    use crate::testing::Bench;

    /// Returns the entries' figures and arguments, the latest first.
    fn logged(bench: &Bench, kind: LogKind) -> Vec<(u64, String)> {
        let text = |args: &Vec<Vec<u8>>| String::from_utf8_lossy(&args.join(&b' ')).into_owned();
        bench.worker.engine.command_log(kind).latest(usize::MAX).iter().map(|e| (e.figure, text(&e.args))).collect()
    }

    #[test]
    fn large_commands_are_logged_with_their_size() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let value = "v".repeat(1000);
        bench.check(
            &mut session,
            &[
                ("CONFIG SET commandlog-request-larger-than 1000 commandlog-reply-larger-than 1000", "+OK"),
                ("GET k", "$-1"),
            ],
        );
        let small = b"*2\r\n$3\r\nGET\r\n$1\r\ns\r\n".repeat(3);
        let set = crate::testing::request(&["SET", "k", &value]);
        let get = crate::testing::request(&["GET", "k"]);
        let [multi, exec] = ["MULTI", "EXEC"].map(|word| crate::testing::request(&[word]));
        let transaction = [&multi[..], &get, &set, &exec].concat();
        // Large commands among small ones in one batch.
        bench.run(&mut session, &[&small[..], &set, &small, &get, &get, &small, &transaction, &small].concat());
        let shown = format!("SET k {}... (872 more bytes)", "v".repeat(128));
        assert_eq!(logged(&bench, LogKind::LargeRequest), vec![(set.len() as u64, shown); 2]);
        let reply = (4 + value.len() + 2 + 3) as u64;
        assert_eq!(logged(&bench, LogKind::LargeReply), vec![(reply, "GET k".to_owned()); 3]);
        assert!(logged(&bench, LogKind::Slow).is_empty());
        bench.check(
            &mut session,
            &[
                ("COMMANDLOG LEN large-reply", ":3"),
                ("COMMANDLOG GET 1 LARGE-REPLY", "*1|*6|:2|:1700000000|:1009|*2|$3|GET|$1|k|$11|127.0.0.1:1|$0|"),
                ("COMMANDLOG RESET large-reply", "+OK"),
                ("COMMANDLOG LEN large-reply", ":0"),
                ("COMMANDLOG LEN slow", ":0"),
                ("COMMANDLOG GET -2 slow", "-ERR count should be greater than or equal to -1"),
                ("COMMANDLOG LEN x", "-ERR type should be one of the following: slow, large-request, large-reply"),
                ("CONFIG SET commandlog-reply-larger-than -1 commandlog-large-request-max-len 0", "+OK"),
                ("COMMANDLOG LEN large-request", ":0"),
            ],
        );
        bench.run(&mut session, &[&set[..], &get].concat());
        assert!(logged(&bench, LogKind::LargeRequest).is_empty() && logged(&bench, LogKind::LargeReply).is_empty());
        // All commands.
        bench.line(&mut session, "CONFIG SET commandlog-reply-larger-than 0 commandlog-large-request-max-len 2");
        bench.line(&mut session, "CONFIG SET commandlog-request-larger-than 0");
        bench.run(&mut session, &small);
        assert_eq!(logged(&bench, LogKind::LargeRequest), vec![(20, "GET s".to_owned()); 2]);
        assert_eq!(logged(&bench, LogKind::LargeReply)[..3], vec![(5, "GET s".to_owned()); 3]);
    }
}
