//! `penstock load` with refused lines, commands and users, and with a silent server.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::directory::Directory;
use penstock_tests::loader::{Ran, ask, interrupt, loader, run, signal, texts, with_both};
use penstock_tests::server::Server;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A transfer with one invalid half, and a valid one.
const TRANSFERS: &str =
    "SET from 100\nMULTI\nDECRBY from 10\nINCRBY \"to 10\nEXEC\nMULTI\nINCRBY from 1\nEXEC\nGET from\n";

#[test]
fn a_transaction_is_not_executed_without_a_line() {
    let directory = Directory::new();
    let (whole, half) = (directory.file("begin", "MULTI\nSET a 1\n"), directory.file("end", "EXEC\nSET b 1\n"));
    let csv = directory.file("c.csv", "key\nx\ny,z\n");
    with_both(|server| {
        let ran = run(server.port(), &[], TRANSFERS.as_bytes());
        let expected = "stdin:4: a quote is not closed, or closes within a word: INCRBY \"to 10\n\
                        stdin:5: the transaction is discarded instead of executed, since stdin:4 was rejected: EXEC\n";
        assert_eq!((ran.status, &*ran.err), (1, expected));
        assert_eq!(ran.first_line(), "8 commands executed, 1 failed, 1 line rejected");
        assert_eq!(texts(&ask(server, "MGET from to")), ["101", "-1"]);
        // A refused command, and the protocol.
        let text = "MULTI\nSET a 1\nSUBSCRIBE x\n*1\r\n$4\r\nEXEC\r\nSET c 1\n";
        assert_eq!(
            run(server.port(), &[], text.as_bytes()).first_line(),
            "4 commands executed, 1 failed, 1 line rejected"
        );
        let ran = run(server.port(), &[&whole, "--csv", &csv, "SET {key} 1", &half], b"");
        let reason = format!("the transaction is discarded instead of executed, since {csv}:3 was rejected: EXEC\n");
        assert!(ran.status == 1 && ran.err.ends_with(&format!("{half}:1: {reason}")), "{}", ran.err);
        assert_eq!(ask(server, "EXISTS a x").integer(), Some(0));
        assert_eq!(ask(server, "EXISTS b c").integer(), Some(2));
    });
}

#[test]
fn a_resumable_load_and_a_dry_run_discard_it_too() {
    let directory = Directory::new();
    let (file, state) = (directory.file("transfers", TRANSFERS), directory.path("state"));
    let server = Server::penstock(&[]);
    let args = ["--resume", "--state", &state, &file];
    for run in [
        run(server.port(), &args, b""),
        run(server.port(), &["--no-merge", "--resume", "--state", &directory.path("other"), &file], b""),
    ] {
        assert_eq!((run.status, run.err.lines().count()), (1, 2), "{}", run.err);
        assert_eq!(run.first_line(), "8 commands executed, 1 failed, 1 line rejected");
        assert_eq!(texts(&ask(&server, "MGET from to")), ["101", "-1"]);
    }
    let again = run(server.port(), &args, b"");
    assert!(
        again.err.contains("this load was completed")
            && again.err.contains(": 8 commands executed, 1 failed, 1 line rejected")
    );
    assert_eq!(ask(&server, "PIPELINE LIST").items().len(), 0);
    let dry = run(1, &["--dry-run"], TRANSFERS.as_bytes());
    assert_eq!((dry.status, dry.err.lines().count()), (1, 2), "{}", dry.err);
    assert_eq!(dry.first_line(), "8 commands, 1 line rejected, 1 transaction discarded; nothing was sent");
}

#[test]
fn a_user_needs_rights_for_the_loaded_commands_only() {
    let server = Server::oracle(&[]);
    ask(&server, "ACL SETUSER w on >pw ~key:* +set");
    let user = ["--user", "w", "-a", "pw"];
    let ran = run(server.port(), &user, b"SET key:1 2\nSET other 2\n");
    assert_eq!((ran.status, ran.first_line()), (1, "2 commands executed, 1 failed, 0 lines rejected"));
    let renamed = Server::oracle(&["--rename-command", "CLIENT", ""]);
    assert_eq!(run(renamed.port(), &[], b"SET a 1\n").status, 0);
    // A connection name that the user requests needs the right to set it.
    let url = format!("redis://w:pw@127.0.0.1:{}?client_name=x", server.port());
    let ran = run(server.port(), &["-u", &url], b"SET key:1 2\n");
    assert!(ran.status == 4 && ran.err.contains("NOPERM"), "{} {}", ran.status, ran.err);
}

#[test]
fn sets_are_not_merged_behind_a_change_of_rights() {
    let server = Server::oracle(&[]);
    let sets: String = (0..40).map(|number| format!("SET key:{number} {number}\n")).collect();
    let text = format!("ACL SETUSER w resetkeys ~key:1*\n{sets}");
    let mut found = Vec::new();
    for how in ["--no-merge", "--chunk=10000"] {
        ask(&server, "ACL SETUSER w on >pw ~* +@all");
        let ran = run(server.port(), &[how, "--user", "w", "-a", "pw"], text.as_bytes());
        found.push((ran.first_line().to_owned(), ran.err));
    }
    assert_eq!(found[0].0, "41 commands executed, 29 failed, 0 lines rejected");
    assert_eq!(found[0], found[1]);
}

/// A value above the server's limit of a megabyte, for which it closes the connection.
fn unreadable() -> String {
    format!("SET a 1\nSET b {}\nSET c 1\n", "v".repeat(1_100_000))
}

#[test]
fn a_request_that_the_server_cannot_parse_ends_the_load_by_name() {
    let text = unreadable();
    for server in [Server::penstock(&["--proto-max-bulk-len", "1mb"]), Server::oracle(&["--proto-max-bulk-len", "1mb"])]
    {
        let ran = run(server.port(), &[], text.as_bytes());
        assert_eq!((ran.status, ran.first_line()), (4, "1 command executed, 0 failed, 1 line rejected"));
        check_unreadable(&ran, "stdin");
    }
}

fn check_unreadable(ran: &Ran, name: &str) {
    let lines: Vec<&str> = ran.err.lines().collect();
    let error = "ERR Protocol error: invalid bulk length";
    let reported = lines.iter().any(|line| line.starts_with(&format!("{name}:2: {error}: SET b vvvv")));
    let said = "the server can't parse this command and executed nothing after it";
    assert_eq!((reported, lines.last().copied()), (true, Some(&*format!("penstock load: {name}:2: {said}: {error}"))));
}

#[test]
fn a_request_that_the_server_cannot_parse_is_not_reported_as_a_lost_token() {
    let directory = Directory::new();
    let (file, state) = (directory.file("unreadable", unreadable()), directory.path("state"));
    let server = Server::penstock(&["--proto-max-bulk-len", "1mb"]);
    for _ in 0..2 {
        let ran = run(server.port(), &["--resume", "--state", &state, &file], b"");
        assert_eq!((ran.status, ran.first_line()), (4, "1 command executed, 0 failed, 1 line rejected"));
        check_unreadable(&ran, &file);
    }
    ask(&server, "CONFIG SET proto-max-bulk-len 2mb");
    let ran = run(server.port(), &["--resume", "--state", &state, &file], b"");
    assert_eq!((ran.status, ran.first_line()), (0, "3 commands executed, 0 failed, 0 lines rejected"));
}

#[test]
fn a_command_has_as_many_arguments_as_the_server_takes() {
    const ARGS: usize = 1_100_000;
    let line = format!("RPUSH list{}\nSET a 1\n", " x".repeat(ARGS));
    let request = format!("*{}\r\n$5\r\nRPUSH\r\n$4\r\nlist\r\n{}SET a 1\n", ARGS + 2, "$1\r\nx\r\n".repeat(ARGS));
    for server in [Server::penstock(&[]), Server::oracle(&[])] {
        for text in [&line, &request] {
            let ran = run(server.port(), &[], text.as_bytes());
            assert_eq!((ran.status, ran.first_line()), (0, "2 commands executed, 0 failed, 0 lines rejected"));
            assert_eq!(ask(&server, "LLEN list").integer(), Some(ARGS as i64));
            ask(&server, "DEL list");
        }
    }
}

#[test]
fn an_interrupt_does_not_wait_for_a_server_that_says_nothing() {
    let directory = Directory::new();
    let file = directory.file("sets", "SET a 1\n");
    let resumable = ["--resume", "--state", &directory.path("state"), &file];
    for (server, args) in [(Server::oracle(&[]), &[&*file][..]), (Server::penstock(&[]), &resumable)] {
        signal(server.pid(), "STOP");
        let child = loader(server.port(), args).stdin(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        interrupt(child.id());
        let ran = Ran::of(&child.wait_with_output().unwrap());
        signal(server.pid(), "CONT");
        assert_eq!((ran.status, &*ran.err), (130, "penstock load: interrupted before anything was sent\n"));
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(ask(&server, "EXISTS a").integer(), Some(0));
    }
}
