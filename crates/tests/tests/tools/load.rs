//! `penstock load` as a user runs it: into Penstock and into Redis, with good and bad input. Resuming an interrupted
//! load is tested in `load_resume`.
//!
//! `PENSTOCK_SEED=N`: the seed of the mixed commands.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::certificates::Certificates;
use penstock_tests::directory::Directory;
use penstock_tests::loader::{Ran, ask, calls, loader, run, seed, signal, texts, wait_until, with_both};
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;
use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

#[test]
fn every_format_is_loaded() {
    let directory = Directory::new();
    let csv = directory.file("movies.csv", "title,year\r\nAlien,1979\r\n\"Heat, \"\"1995\"\"\",1995\r\n");
    let json = directory.file("movies.jsonl", "{\"year\":2012,\"t\":{\"en\":\"The \\\"Hobbit\\\"\"}}\n");
    let plain = directory.file("plain", "ZADD movies 1927 Metropolis\nZADD movies 1931 \"M\\x21\"\n");
    assert!(Command::new("gzip").args(["-k", &plain]).status().unwrap().success());
    let expected = ["Metropolis", "M!", "Alien", "Heat, \"1995\"", "The \"Hobbit\"", "Piped"];
    with_both(|server| {
        let args = [
            &*format!("{plain}.gz"),
            "--csv",
            &csv,
            "ZADD movies {year} {title}",
            "--json-lines",
            &json,
            "ZADD movies {year} {t.en}",
            "-",
        ];
        let ran = run(server.port(), &args, b"*4\r\n$4\r\nZADD\r\n$6\r\nmovies\r\n$4\r\n2020\r\n$5\r\nPiped\r\n");
        assert_eq!(
            (ran.status, ran.first_line(), &*ran.err),
            (0, "6 commands executed, 0 failed, 0 lines rejected", "")
        );
        assert_eq!(texts(&ask(server, "ZRANGE movies 0 -1")), expected);
        let ran = run(server.port(), &["-3", "-n", "7"], b"SELECT 8\nHSET h a 1\nHGETALL h\nKEYS *\nDEL h\n");
        assert_eq!((ran.status, &*ran.err), (0, ""));
    });
}

#[test]
fn errors_name_line_and_command() {
    let directory = Directory::new();
    let csv = directory.file("m.csv", "title,year\nAlien,1979\nX\nHeat,abc\nThe Third Man,1949,x\n");
    with_both(|server| {
        let errors = directory.path("errors");
        let ran = run(
            server.port(),
            &["--errors", &errors, "--csv", &csv, "ZADD m {year} {title}", "-"],
            b"
LPUSH m x
MULTI
SET a 1
LPUSH a 1
EXEC
NOSUCH
SET \"a
SUBSCRIBE x
",
        );
        assert_eq!(
            (ran.status, ran.first_line(), &*ran.err),
            (1, "8 commands executed, 4 failed, 4 lines rejected", "")
        );
        let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
        let found = directory.read("errors").replace(&csv, "m.csv").replace("'NOSUCH'", "`NOSUCH`");
        let found: Vec<_> = found.lines().map(|line| line.split(", with args").next().unwrap()).collect();
        assert_eq!(
            found,
            [
                "m.csv:3: 1 fields instead of 2: X",
                "m.csv:4: ERR value is not a valid float: ZADD m abc Heat",
                "m.csv:5: 3 fields instead of 2: The Third Man,1949,x",
                &format!("stdin:2: {wrong}: LPUSH m x"),
                &format!("stdin:6: in element 2 of the reply: {wrong}: EXEC"),
                "stdin:7: ERR unknown command `NOSUCH`",
                "stdin:8: a quote is not closed, or closes within a word: SET \"a",
                "stdin:9: the command doesn't get exactly one reply, so it can't be part of a load: SUBSCRIBE x",
            ]
        );
        let ran = run(
            server.port(),
            &["--stop-on-error", "--chunk", "1"],
            b"SET s 1\nLPUSH s 1\nSET t 1\nSET u 1\nSET v 1\n",
        );
        let stopped = ran.err.contains("\npenstock load: stopped after stdin:")
            && ran.err.ends_with("because of an error at stdin:2\n");
        assert!(ran.status == 1 && stopped, "{} {}", ran.status, ran.err);
        // One more command may have been in flight.
        let executed = ask(server, "EXISTS s t u v").integer().unwrap();
        assert!((1..=2).contains(&executed), "{executed}");
    });
}

#[test]
fn nothing_behind_a_rejected_line_is_sent_if_the_first_error_ends_the_load() {
    let directory = Directory::new();
    let many = "SET string x\nINCR n\nINCR n\nSET b \"x\n".to_owned() + &"INCR n\n".repeat(50_000);
    let csv = directory.file("m.csv", "k,v\na,1\nb\nc,3\n");
    let json = directory.file("m.jsonl", "{\"k\":\"a\",\"v\":1}\n{\n{\"k\":\"c\",\"v\":3}\n");
    with_both(|server| {
        let stop = |more: &[&str], text: &str| {
            ask(server, "FLUSHALL");
            let ran = run(server.port(), &[&["--stop-on-error"], more].concat(), text.as_bytes());
            assert_eq!(ran.status, 1, "{}", ran.err);
            ran
        };
        for more in [&["--chunk", "1"][..], &[], &["--no-merge"]] {
            let ran = stop(more, &many);
            assert_eq!(ran.first_line(), "3 commands executed, 0 failed, 1 line rejected", "{more:?}");
            assert_eq!(
                ran.err,
                "stdin:4: a quote is not closed, or closes within a word: SET b \"x\n\
                 penstock load: stopped after stdin:3, because of an error at stdin:4\n"
            );
            assert_eq!(texts(&ask(server, "MGET string n")), ["x", "2"], "{more:?}");
        }
        // Commands that would have been merged before the invalid line; then an error in the first line.
        stop(&[], "SET a 1\nSET b 1\n\"\nSET c 1\n");
        assert_eq!(ask(server, "EXISTS a b c").integer(), Some(2));
        let ran = stop(&[], "SUBSCRIBE x\nSET c 1\n");
        assert!(ran.err.ends_with("stopped before the first command, because of an error at stdin:1\n"), "{}", ran.err);
        assert_eq!(ask(server, "DBSIZE").integer(), Some(0));
        // An unfinished transaction, and one that is discarded because of an invalid line.
        let ran = stop(&[], "MULTI\nSET a 1\n\"\nSET b 1\nEXEC\nSET c 1\n");
        let end = "stopped after stdin:2, because of an error at stdin:3; the transaction that begins at stdin:1 was not executed\n";
        assert!(ran.err.ends_with(end), "{}", ran.err);
        assert_eq!(ran.first_line(), "1 command executed, 0 failed, 1 line rejected");
        assert_eq!(ask(server, "DBSIZE").integer(), Some(0));
        let errors = directory.path("errors");
        for records in [["--csv", &csv], ["--json-lines", &json]] {
            let ran = stop(&[&["--errors", &errors], &records[..], &["SET {k} {v}"]].concat(), "");
            assert_eq!(ran.first_line(), "1 command executed, 0 failed, 1 line rejected");
            assert_eq!((ask(server, "EXISTS a c").integer(), directory.read("errors").lines().count()), (Some(1), 1));
        }
    });
}

/// All data that the commands of [`mixed`] may leave.
fn data(server: &Server) -> Vec<Vec<String>> {
    let keys =
        ["LRANGE l 0 -1", "LRANGE m 0 -1", "ZRANGE z 0 -1 WITHSCORES", "MGET a b c d e", "SMEMBERS s", "HGETALL h"];
    let mut found: Vec<_> = keys.iter().map(|command| texts(&ask(server, command))).collect();
    found[4].sort();
    found[5] = found[5].chunks_exact(2).map(|pair| pair.join("=")).collect();
    found[5].sort();
    found
}

/// Commands with many similar ones in sequence, some failures, and many accesses to the same keys.
fn mixed(lines: usize, rng: &mut Rng) -> String {
    let mut text = "SET string x\n".to_owned();
    let mut kind = 0;
    for line in 0..lines {
        if rng.chance(20) {
            kind = rng.below(12);
        }
        let number = rng.below(30);
        let key = *rng.pick(&["a", "b", "c", "d", "e"]);
        match kind {
            0..3 => writeln!(text, "SET {key} {line}"),
            3 => writeln!(text, "HSET h {key} {line} f{number} 1"),
            4 => writeln!(text, "SADD s {number}"),
            5 => writeln!(text, "RPUSH l {line} {number}"),
            6 => writeln!(text, "LPUSH {} {line}", rng.pick(&["l", "m"])),
            7 => writeln!(text, "ZADD z {number} {}", rng.below(50)),
            8 => writeln!(text, "ZADD z {} {key}", rng.pick(&["1e1", "NX 1", "7", "x", "-3"])),
            9 => writeln!(text, "{} string {line}", rng.pick(&["RPUSH", "RPUSH", "SADD", "HSET"])),
            10 => writeln!(text, "MULTI\nSET a {line}\nSET b {line}\nRPUSH l {line}\nRPUSH l t\nEXEC"),
            _ => writeln!(text, "{}", rng.pick(&["\"", "DEL a", "APPEND b x", "SELECT 0", "SET a 1 PX 900000", "SET"])),
        }
        .unwrap();
    }
    text
}

#[test]
fn merged_commands_do_what_they_do_one_by_one() {
    with_both(|server| {
        for round in 0..12 {
            let text = mixed(2_000, &mut Rng::new(seed() + 3 + round));
            let mut found = Vec::new();
            for how in ["--no-merge", "--chunk=10000", "--chunk=7"] {
                ask(server, "FLUSHALL");
                ask(server, "CONFIG RESETSTAT");
                let ran = run(server.port(), &[how, "-"], text.as_bytes());
                assert_eq!(ran.status, 1, "{}", ran.err);
                let (sets, msets) = (calls(server, "set"), calls(server, "mset"));
                assert!(
                    if how == "--no-merge" { msets == 0 } else { msets > 50 && sets < 1_000 },
                    "{how} {sets} {msets}"
                );
                found.push((data(server), ran.first_line().to_owned(), ran.err));
            }
            assert!(found[0].1.contains(" failed, ") && found[0].2.contains("WRONGTYPE"));
            assert_eq!(found[0], found[1], "round {round}");
            assert_eq!(found[0], found[2], "round {round}");
        }
    });
}

#[test]
fn commands_that_would_be_refused_if_merged_are_not_merged() {
    let text = b"SET a1 x\nSET a2 x\nSET b1 x\nSET a3 x\nRPUSH al x\nRPUSH al y\nRPUSH bl x\nRPUSH bl y\n";
    let check = |server: &Server, args: &[&str], failed: u64, msets: u64, pushes: u64| {
        let unmerged = run(server.port(), &[args, &["--no-merge"]].concat(), text);
        ask(server, "CONFIG RESETSTAT");
        let merged = run(server.port(), args, text);
        assert_eq!(
            (merged.status, merged.first_line(), &merged.err),
            (unmerged.status, unmerged.first_line(), &unmerged.err)
        );
        assert_eq!(merged.err.lines().count() as u64, failed, "{args:?}: {}", merged.err);
        assert_eq!((calls(server, "mset"), calls(server, "rpush")), (msets, pushes), "{args:?}");
    };
    with_both(|server| check(server, &[], 0, 1, 2));
    let server = Server::oracle(&[]);
    for (user, rules) in [
        ("all", "~* +@all"),
        ("some-keys", "~a* +@all"),
        ("no-mset", "~* +@all -mset"),
        ("blind", "~* +@all -@admin"),
        ("careful", "~* +set +rpush +command +client +ping"),
    ] {
        ask(&server, &format!("ACL SETUSER {user} on >p {rules}"));
    }
    check(&server, &["--user", "all", "-a", "p"], 0, 1, 2);
    // For one key, either all pushes are allowed or none.
    check(&server, &["--user", "some-keys", "-a", "p"], 3, 0, 1);
    check(&server, &["--user", "no-mset", "-a", "p"], 0, 0, 2);
    check(&server, &["--user", "blind", "-a", "p"], 0, 0, 2);
    check(&server, &["--user", "careful", "-a", "p"], 0, 0, 2);
    let renamed = Server::oracle(&["--rename-command", "MSET", "", "--rename-command", "RPUSH", "append-to"]);
    check(&renamed, &[], 4, 0, 0);
    // Nothing is merged if the server has renamed COMMAND.
    check(&Server::oracle(&["--rename-command", "COMMAND", ""]), &[], 0, 0, 4);
    let cluster = Server::oracle(&["--cluster-enabled", "yes"]);
    check(&cluster, &[], 8, 0, 0);
}

#[test]
fn a_line_refused_for_lack_of_memory_is_reported() {
    let text: String = (0..20_000).map(|line| format!("SET key:{line} {}\n", "v".repeat(200))).collect();
    for server in [Server::penstock(&["--maxmemory", "3mb"]), Server::oracle(&["--maxmemory", "3mb"])] {
        let ran = run(server.port(), &[], text.as_bytes());
        let kept = ask(&server, "DBSIZE").integer().unwrap();
        let failed = ran.err.lines().filter(|line| line.contains("OOM command not allowed")).count() as i64;
        assert!(ran.status == 1 && kept > 0 && failed > 0, "{kept} {failed}");
        assert_eq!(kept + failed, 20_000);
    }
}

#[test]
fn a_merged_load_is_resumed_merged() {
    let directory = Directory::new();
    let server = Server::penstock(&[]);
    let file = directory.file("x", b"RPUSH list x\n".repeat(400_000));
    let state = directory.path("state");
    let args = ["--resume", "--state", &state, &file];
    let mut child = loader(server.port(), &args).stdin(Stdio::null()).spawn().unwrap();
    wait_until("something is executed", || ask(&server, "LLEN list").integer() > Some(0));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ask(&server, "LLEN list").integer() < Some(400_000));
    let ran = run(server.port(), &[&args[..], &["--no-merge"]].concat(), b"");
    assert!(ran.status == 6 && ran.err.contains("--restart to start again"), "{} {}", ran.status, ran.err);
    // The state of the resumed load decides about merging, whatever the chunk.
    let ran = run(server.port(), &[&args[..], &["--chunk", "1"]].concat(), b"");
    assert!(ran.status == 0 && ran.err.contains(" executed in an earlier run, 0 of them failed"), "{}", ran.err);
    assert_eq!(ran.first_line(), "400,000 commands executed, 0 failed, 0 lines rejected");
    assert_eq!(ask(&server, "LLEN list").integer(), Some(400_000));
    assert!(calls(&server, "rpush") < 20_000);
    // Input from a pipe arrives in arbitrary pieces, so merged runs would end at any line.
    let state = directory.path("of-stdin");
    let ran = run(server.port(), &["--resume", "--state", &state], &b"RPUSH piped x\n".repeat(1_000));
    assert_eq!((ran.status, ask(&server, "LLEN piped").integer()), (0, Some(1_000)));
}

#[test]
fn a_dry_run_sends_nothing() {
    let server = Server::penstock(&[]);
    let ran = run(server.port(), &["--dry-run"], b"SET a 1\n'\nSET b 1\n");
    assert_eq!((ran.status, ran.first_line()), (1, "2 commands, 1 line rejected; nothing was sent"));
    assert_eq!(ran.err, "stdin:2: a quote is not closed, or closes within a word: '\n");
    assert_eq!(ask(&server, "DBSIZE").integer(), Some(0));
    // No server is needed.
    assert_eq!(run(1, &["--dry-run"], b"SET a 1\n").status, 0);
}

#[test]
fn bad_input_gives_one_line_and_a_status() {
    let directory = Directory::new();
    let server = Server::penstock(&["--requirepass", "secret"]);
    let open = Server::penstock(&[]);
    let good = directory.file("good", "SET a 1\n");
    let csv = directory.file("a.csv", "a,b\n1,2\n");
    let mut torn = Command::new("gzip").args(["-c", &good]).output().unwrap().stdout;
    torn.truncate(torn.len() - 6);
    let torn = directory.file("torn.gz", torn);
    let missing = directory.path("missing");
    let check = |port: u16, args: &[&str], stdin: &str, status: i32, text: &str| {
        let ran = run(port, args, stdin.as_bytes());
        let is_one_line = ran.err.lines().count() == 1 && ran.err.starts_with("penstock load: ");
        assert!(ran.status == status && is_one_line && ran.err.contains(text), "{args:?}: {} {}", ran.status, ran.err);
    };
    check(1, &[&good], "", 4, "can't connect to 127.0.0.1:1: Connection refused");
    check(server.port(), &[&good], "", 4, "NOAUTH Authentication required; give a password with -a");
    check(server.port(), &[&good, "-a", "wrong"], "", 4, "WRONGPASS");
    check(open.port(), &[&good, "-u", "http://x"], "", 2, "its scheme is not redis, rediss or unix");
    check(open.port(), &[&good, "-n", "99"], "", 4, "DB index is out of range");
    check(open.port(), &[&missing], "", 3, "missing: No such file or directory");
    check(
        open.port(),
        &["SET {a} {b}"],
        "",
        3,
        "; a template needs --csv, --json-lines or --json with its file before it",
    );
    check(open.port(), &[&directory.path(".")], "", 3, "directory");
    check(open.port(), &[&torn], "", 3, "can't be read: unexpected end of file");
    check(open.port(), &[], "PING\n*1\r\n$4\r\nPI", 3, "stdin:3: the input ends in mid-command");
    check(open.port(), &["-"], "*1\r\n$3\r\nPING\r\n", 3, "stdin:2: an argument is not as long as its length says");
    check(open.port(), &["--csv", &csv, "SET {a} {c}"], "", 2, "no column 'c' for the template: the columns are a, b");
    check(open.port(), &["--csv", &csv, "SET {a} {c"], "", 2, "a { in the template is not closed");
    check(open.port(), &["-", "-"], "", 2, "standard input can only be read once");
    check(open.port(), &["--errors", "/dev/full"], "NOSUCH\n", 5, "can't write the errors to /dev/full: No space left");
    check(open.port(), &["--errors", "/no/such/x"], "PING\n", 5, "can't write the errors to /no/such/x: No such file");
    check(
        open.port(),
        &["--resume", "--state", "/dev/null/x", &good],
        "",
        5,
        "can't keep the load's state in /dev/null/x",
    );
    check(open.port(), &["--resume"], "PING\n", 2, "standard input has no name");
    // A summary that can't be written is not a failure.
    let full = std::fs::File::create("/dev/full").unwrap();
    assert_eq!(loader(open.port(), &[&good]).stdout(full).status().unwrap().code(), Some(0));
    for args in [&["--nonsense"][..], &["--chunk", "0"], &["--csv", "x"], &["--max-command", "x"], &["--state", "x"]] {
        check(open.port(), args, "", 2, "; see penstock load --help");
    }
    let password = loader(server.port(), &[&good]).env("REDISCLI_AUTH", "secret").status().unwrap();
    assert_eq!(password.code(), Some(0));
}

#[test]
fn a_report_of_errors_overwrites_no_input() {
    let directory = Directory::new();
    let server = Server::penstock(&[]);
    let (commands, csv) = (directory.file("commands", "SET a 1\n"), directory.file("a.csv", "a,b\n1,2\n"));
    let link = directory.path("link");
    std::fs::hard_link(&commands, &link).unwrap();
    let template = "SET {a} {b}";
    for args in [
        &["--errors", &commands, &commands][..],
        &["--errors", &link, &commands, "--dry-run"],
        &["--errors", &csv, "--csv", &csv, template],
        &["--errors", &csv, "--json-lines", &csv, template, "--resume"],
    ] {
        let ran = run(server.port(), args, b"");
        assert!(ran.status == 2 && ran.err.contains("is an input"), "{args:?}: {} {}", ran.status, ran.err);
    }
    let mut redirected = loader(server.port(), &["--errors", &commands]);
    let output = redirected.stdin(std::fs::File::open(&commands).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!((directory.read("commands").as_str(), directory.read("a.csv").as_str()), ("SET a 1\n", "a,b\n1,2\n"));
    assert_eq!(ask(&server, "DBSIZE").integer(), Some(0));
    // Files other than regular ones may be both input and report.
    assert_eq!(run(server.port(), &["--errors", "/dev/null", "/dev/null"], b"").status, 0);
}

#[test]
fn a_state_overwrites_nothing_else() {
    let (directory, server) = (Directory::new(), Server::penstock(&[]));
    let text = "RPUSH list a\nRPUSH list b\n";
    let (commands, other, errors) =
        (directory.file("commands", text), directory.file("x", text), directory.path("errors"));
    let link = directory.path("link");
    std::fs::hard_link(&commands, &link).unwrap();
    for (args, status, expected) in [
        (&["--state", &commands, &commands][..], 2, "is an input, and the state of the load would overwrite it"),
        (&["--state", &link, &commands], 2, "is an input"),
        (&["--state", &other, &commands], 6, "x is not a load's state; name another file with --state"),
        (&["--state", &errors, "--errors", &errors, &commands], 2, "can't be both the load's state and the report"),
        (&["--state", "/dev/null", &commands], 6, "is not a load's state"),
    ] {
        for restart in [&["--resume"][..], &["--resume", "--restart"]] {
            let ran = run(server.port(), &[restart, args].concat(), b"");
            assert!(ran.status == status && ran.err.contains(expected), "{args:?}: {} {}", ran.status, ran.err);
            assert_eq!(ran.err.lines().count(), 1);
        }
    }
    let mut redirected = loader(server.port(), &["--resume", "--restart", "--state", &commands]);
    let output = redirected.stdin(std::fs::File::open(&commands).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!((&*directory.read("commands"), &*directory.read("x")), (text, text));
    assert!(!Path::new(&errors).exists());
    assert_eq!(ask(&server, "DBSIZE").integer(), Some(0));
    // The state of another load may be overwritten.
    let state = directory.file("state", "");
    for input in [&other, &commands] {
        assert_eq!(run(server.port(), &["--resume", "--restart", "--state", &state, input], b"").status, 0);
    }
}

#[test]
fn errors_that_cannot_be_written_end_the_load() {
    let (directory, server) = (Directory::new(), Server::penstock(&[]));
    let file = directory.file("x", "NOSUCH\nSET a 1\n");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(run(server.port(), &["--errors", "/dev/full", &file], b"").status, 5);
    assert_eq!(loader(server.port(), &[&file]).stderr(full).status().unwrap().code(), Some(5));
    // A closed standard error discards the errors.
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(loader(server.port(), &[&file]).stderr(closed).status().unwrap().code(), Some(1));
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    let directory = Directory::new();
    let commands = directory.file("commands", "\u{feff}SET a 1\n");
    let resp = directory.file("resp", "\u{feff}*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\n2\r\n");
    let json = directory.file("json", "\u{feff}{\"k\":\"c\"}\n");
    let csv = directory.file("csv", "\u{feff}k,v\nd,4\n");
    with_both(|server| {
        let files = [&commands[..], &resp, "--json-lines", &json, "SET {k} 3", "--csv", &csv, "SET {k} {v}", "-"];
        let ran = run(server.port(), &files, b"X");
        assert_eq!(ran.first_line(), "5 commands executed, 1 failed, 0 lines rejected", "{}", ran.err);
        assert_eq!(texts(&ask(server, "MGET a b c d")), ["1", "2", "3", "4"]);
    });
}

/// The error for a transaction without an end.
fn unended(place: &str, commands: &str) -> String {
    format!("{place}: no EXEC follows this MULTI: its transaction of {commands} is never executed\n")
}

#[test]
fn a_transaction_without_an_end_is_an_error() {
    with_both(|server| {
        let ran = run(server.port(), &[], b"SET a 1\nMULTI\nSET a 2\nSET b 2\n");
        assert_eq!((ran.status, &ran.err), (1, &unended("stdin:2", "2 commands")));
        assert_eq!(ran.first_line(), "2 commands executed, 1 failed, 0 lines rejected");
        assert_eq!(ask(server, "GET a").text(), b"1");
        // A command that the server refuses to queue has an error of its own.
        let ran = run(server.port(), &["--chunk", "1"], b"MULTI\nNOSUCH\nSET a 2\nMULTI\n");
        assert_eq!((ran.status, ran.first_line()), (1, "3 commands executed, 3 failed, 0 lines rejected"));
        let places: Vec<_> = ran.err.lines().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(places, ["stdin:2", "stdin:4", "stdin:1"]);
        assert!(ran.err.ends_with(&unended("stdin:1", "1 command")), "{}", ran.err);
        for whole in ["MULTI\nSET a 3\nEXEC\n", "MULTI\nSET a 4\nDISCARD\n"] {
            assert_eq!(run(server.port(), &["--chunk", "1"], whole.as_bytes()).status, 0);
        }
        assert_eq!(ask(server, "GET a").text(), b"3");
        // The next input continues on the same connection.
        let directory = Directory::new();
        let (begin, end) = (directory.file("begin", "MULTI\nSET a 5\n"), directory.file("end", "EXEC\n"));
        let ran = run(server.port(), &[&begin, &end], b"");
        assert_eq!((ran.status, ran.first_line()), (0, "3 commands executed, 0 failed, 0 lines rejected"));
        assert_eq!(ask(server, "GET a").text(), b"5");
    });
    let dry = run(1, &["--dry-run"], b"PING\nMULTI\nSET a 2\n");
    assert_eq!((dry.status, &dry.err), (1, &unended("stdin:2", "1 command")));
    assert_eq!(dry.out, "3 commands, 0 lines rejected, 1 transaction without an end; nothing was sent\n");
}

#[test]
fn a_resumable_load_that_ends_within_a_transaction_is_complete() {
    let (directory, server) = (Directory::new(), Server::penstock(&[]));
    let input = directory.file("in", "INCR n\nMULTI\nINCR n\n\"\nNOSUCH\n");
    let (state, errors) = (directory.path("state"), directory.path("errors"));
    let args = ["--resume", "--state", &state, "--errors", &errors, &input];
    let ran = run(server.port(), &args, b"");
    assert_eq!((ran.status, ran.first_line()), (1, "3 commands executed, 2 failed, 1 line rejected"));
    // In the order of the input: the successor of a killed loader finds out from it which errors were already written.
    let report = directory.read("errors");
    let places: Vec<_> = report.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(places, [2, 4, 5].map(|line| format!("{input}:{line}")));
    assert!(report.starts_with(&unended(&format!("{input}:2"), "1 command")), "{report}");
    let again = run(server.port(), &args, b"");
    assert!(again.status == 1 && again.err.contains("this load was completed"), "{}", again.err);
    assert_eq!(ask(&server, "GET n").text(), b"1");
    assert_eq!(ask(&server, "PIPELINE LIST").items().len(), 0);
}

#[test]
fn a_load_that_stops_within_a_transaction_reports_it() {
    let server = Server::oracle(&[]);
    let left_out = "; the transaction that begins at stdin:1 was not executed\n";
    let ran = run(server.port(), &["--stop-on-error", "--chunk", "1"], b"MULTI\nNOSUCH\nSET a 1\nEXEC\n");
    assert!(ran.status == 1 && ran.err.contains("penstock load: stopped after stdin:"), "{}", ran.err);
    assert!(ran.err.ends_with(left_out), "{}", ran.err);
    let ran = run(server.port(), &[], b"MULTI\nSET a 1\n*1\r\n$x\r\n");
    assert!(ran.status == 3 && ran.err.ends_with(left_out), "{} {}", ran.status, ran.err);
    assert_eq!(ran.first_line(), "1 command executed, 0 failed, 0 lines rejected");
    // A transaction that the server doesn't begin needs no end.
    ask(&server, "ACL SETUSER default -multi");
    let ran = run(server.port(), &[], b"MULTI\nSET a 1\n");
    assert!(ran.status == 1 && ran.err.lines().count() == 1 && ran.err.contains("NOPERM"), "{}", ran.err);
    assert_eq!(ran.first_line(), "2 commands executed, 1 failed, 0 lines rejected");
    assert_eq!(ask(&server, "GET a").text(), b"1");
}

#[test]
fn a_transaction_that_cannot_be_kept_is_refused() {
    let (server, directory) = (Server::penstock(&[]), Directory::new());
    let sets = |count: usize, bytes: usize| format!("SET key {}\n", "v".repeat(bytes)).repeat(count);
    // Beyond the limit of a transaction, by one large command behind others, and by many commands.
    for (round, sets) in [sets(1_000, 1_000) + &sets(1, 9 << 20), sets(6_000, 1_000)].iter().enumerate() {
        let file = directory.file("transaction", format!("MULTI\n{sets}EXEC\n"));
        let state = directory.path(&format!("state-{round}"));
        let ran = run(server.port(), &["--resume", "--state", &state, &file], b"");
        assert!(ran.status == 6 && ran.err.contains("a transaction is longer than"), "{} {}", ran.status, ran.err);
        assert_eq!(ask(&server, "DBSIZE").integer(), Some(0));
        assert_eq!(run(server.port(), &[&file], b"").status, 0);
        ask(&server, "FLUSHALL");
    }
}

#[test]
fn commands_held_back_before_a_torn_file_are_reported() {
    let (server, directory) = (Server::penstock(&[]), Directory::new());
    let plain = directory.file("x", b"RPUSH list x\n".repeat(40));
    assert!(Command::new("gzip").arg(&plain).status().unwrap().success());
    let whole = std::fs::read(directory.path("x.gz")).unwrap();
    let file = directory.file("x.gz", &whole[..whole.len() - 4]);
    let ran = run(server.port(), &["--resume", "--state", &directory.path("state"), &file], b"");
    assert!(ran.status == 3 && ran.err.contains("the 8 commands before it may have to be merged"), "{}", ran.err);
    assert_eq!(ask(&server, "LLEN list").integer(), Some(32));
    assert_eq!((run(server.port(), &[&file], b"").status, ask(&server, "LLEN list").integer()), (3, Some(72)));
}

#[test]
fn an_input_that_is_named_twice_has_all_its_errors() {
    let (server, directory) = (Server::penstock(&[]), Directory::new());
    ask(&server, "SET string x");
    let rows: String = (0..300_000)
        .map(|row| if row % 60_000 == 5 { "string\n".to_owned() } else { format!("{}\n", row % 7) })
        .collect();
    let file = directory.file("rows", rows);
    let (state, errors) = (directory.path("state"), directory.path("errors"));
    let args = [
        "--resume",
        "--no-header",
        "--state",
        &state,
        "--errors",
        &errors,
        "--csv",
        &file,
        "LPUSH {1} a",
        "--csv",
        &file,
        "RPUSH {1} b",
    ];
    let mut child = loader(server.port(), &args).stdin(Stdio::null()).spawn().unwrap();
    wait_until("an error is reported", || std::fs::read(&errors).is_ok_and(|text| !text.is_empty()));
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = run(server.port(), &args, b"");
    assert_eq!(
        (ran.status, ran.first_line()),
        (1, "600,000 commands executed, 10 failed, 0 lines rejected"),
        "{}",
        ran.err
    );
    let expected = [6, 60_006, 120_006, 180_006, 240_006].map(|line| format!("{file}:{line}"));
    let found = directory.read("errors");
    let found: Vec<&str> = found.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(found, [&expected[..], &expected[..]].concat());
}

#[test]
fn the_last_of_equal_flags_counts() {
    let server = Server::penstock(&[]);
    let port = server.port().to_string();
    assert_eq!(run(1, &["-p", &port, "-n", "99", "-n", "3"], b"SET a 1\n").status, 0);
    assert_eq!(server.connect().cmd("DBSIZE").unwrap().integer(), Some(0));
}

#[test]
fn help_and_version_need_no_server() {
    for args in [&["--help"][..], &["--version"]] {
        let ran = run(1, args, b"");
        assert!(
            ran.status == 0 && ran.out.starts_with(if args == ["--help"] { "Load many" } else { "penstock load " })
        );
    }
}

#[test]
fn a_load_may_be_encrypted() {
    let certificates = Certificates::create();
    let (server, port) = certificates.server(true);
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| certificates.text(name));
    let tls = ["-h", "localhost", "--tls", "--cacert", &ca, "--cert", &cert, "--key", &key];
    let ran = run(port, &tls, &b"INCR n\n".repeat(100_000));
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
    assert_eq!(ask(&server, "GET n").text(), b"100000");
    let ran = run(port, &["-h", "localhost", "--tls"], b"INCR n\n");
    assert!(ran.status == 4 && ran.err.contains("certificate"), "{} {}", ran.status, ran.err);
}

#[test]
fn an_interrupt_ends_a_load_in_good_order() {
    with_both(|server| {
        for name in ["INT", "TERM"] {
            let mut child = loader(server.port(), &[]).spawn().unwrap();
            let mut pipe = child.stdin.take().unwrap();
            let before = ask(server, "INCRBY n 0").integer().unwrap();
            // The interrupt also ends a loader that waits for input.
            pipe.write_all(&b"INCR n\n".repeat(5_000)).unwrap();
            wait_until("all that has come is executed", || {
                ask(server, "GET n").text() == (before + 5_000).to_string().as_bytes()
            });
            signal(child.id(), name);
            let ran = Ran::of(&child.wait_with_output().unwrap());
            assert_eq!((ran.status, ran.first_line()), (130, "5,000 commands executed, 0 failed, 0 lines rejected"));
            assert_eq!(ran.err, "penstock load: interrupted after stdin:5000; all earlier commands were answered\n");
            drop(pipe);
        }
        let directory = Directory::new();
        let file = directory.file("incr", b"INCR m\n".repeat(1_000_000));
        let child = loader(server.port(), &[&file]).spawn().unwrap();
        wait_until("something is executed", || !ask(server, "GET m").is_null());
        signal(child.id(), "INT");
        let ran = Ran::of(&child.wait_with_output().unwrap());
        let executed = String::from_utf8(ask(server, "GET m").text().to_vec()).unwrap();
        assert!(ran.status == 130 && executed != "1000000", "{} {executed}", ran.status);
        let (number, rest) = ran.first_line().split_once(' ').unwrap();
        assert_eq!((number.replace(',', ""), rest), (executed, "commands executed, 0 failed, 0 lines rejected"));
    });
}

#[test]
fn a_broken_connection_is_reported() {
    with_both(|server| {
        let ran = run(server.port(), &[], b"SET a 1\nSET b 1\nCLIENT KILL TYPE normal SKIPME no\nSET c 1\n");
        assert_eq!(ran.status, 4, "{}", ran.err);
        assert!(ran.err.contains("commands were answered, the last of them at stdin:"), "{}", ran.err);
    });
    let directory = Directory::new();
    let (redis, file) = (Server::oracle(&[]), directory.file("x", "SET a 1\n"));
    let state = directory.path("state");
    let ran = run(redis.port(), &["--resume", "--state", &state, &file], b"");
    assert!(ran.status == 6 && ran.err.contains("the server has no PIPELINE command"), "{} {}", ran.status, ran.err);
    assert_eq!(ask(&redis, "DBSIZE").integer(), Some(0));
    assert!(!std::path::Path::new(&state).exists());
}

/// A process's memory according to the kernel, in KiB: a line of one of the files of proc(5).
fn memory_kib(child: &Child, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn memory_does_not_grow_with_the_input() {
    /// Far above the needed memory, far below the 64 MB of input.
    const PEAK_KIB_MAX: u64 = 40 << 10;
    let server = Server::penstock(&[]);
    let line = |length: usize| [&b"SET k "[..], &vec![b'v'; length], b"\n"].concat();
    let inputs = [(line(20), 2_000_000), (line(10_000), 6_400), (line(1 << 20), 64), (line(64 << 20), 1)];
    let rejected = ([&b"SUBSCRIBE "[..], &[b'x'; 180], b"\n"].concat(), 300_000);
    for (line, times) in inputs.into_iter().chain([rejected]) {
        let mut child = loader(server.port(), &["--max-command", "2mb"]).stderr(Stdio::null()).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let many = line.repeat((1 << 20) / line.len() + 1);
        let pieces = times / (many.len() / line.len());
        for _ in 0..pieces {
            pipe.write_all(&many).unwrap();
        }
        // When this command is executed, the whole input has been read.
        pipe.write_all(b"SET done 1\n").unwrap();
        wait_until("all is loaded", || !ask(&server, "GETDEL done").is_null());
        let peak = memory_kib(&child, "status", "VmHWM:");
        assert!(peak < PEAK_KIB_MAX, "{peak} KiB with lines of {} bytes", line.len());
        // The loader would wait for huge pages, and hardly use them.
        assert_eq!(memory_kib(&child, "smaps_rollup", "AnonHugePages:"), 0, "lines of {} bytes", line.len());
        drop(pipe);
        child.wait_with_output().unwrap();
    }
}

/// Records without a template are not commands: the loader reports this once, before it sends them to a server.
#[test]
fn records_without_a_template_are_reported() {
    with_both(|server| {
        let directory = Directory::new();
        let records: String = (0..300_000).map(|n| format!("Film {n},{}\n", 1900 + n % 100)).collect();
        let csv = directory.file("movies.csv", format!("title,year\n{records}"));
        let json = directory.file("movies.json", "{\"title\":\"Heat\"}\n".repeat(1_000));
        let with_template = "penstock load: movies: these are CSV records, not commands; use a template, for \
                             example --csv FILE 'SET {title} {year}'\n";
        let before = ask(server, "DBSIZE");
        for (file, template) in [(&csv, "--csv FILE 'SET {title} {year}'"), (&json, "--json-lines FILE 'SET {id} {.}'")]
        {
            for more in [&[][..], &["--dry-run"]] {
                let ran = run(server.port(), &[&[file.as_str()][..], more].concat(), b"");
                let summary = if more.is_empty() { "" } else { "0 commands, 0 lines rejected; nothing was sent\n" };
                assert_eq!((ran.status, ran.out.as_str()), (2, summary), "{}", ran.err);
                assert!(ran.err.ends_with(&format!("{template}\n")) && ran.err.lines().count() == 1, "{}", ran.err);
            }
        }
        let piped = run(server.port(), &[], format!("title,year\n{records}").as_bytes());
        assert_eq!((piped.status, piped.err.replace("stdin", "movies")), (2, with_template.to_owned()));
        assert_eq!(ask(server, "DBSIZE"), before);
        // The suggested command line works.
        let ran = run(server.port(), &["--csv", &csv, "SET {title} {year}"], b"");
        assert_eq!(ran.first_line(), "300,000 commands executed, 0 failed, 0 lines rejected", "{}", ran.err);
    });
}
