//! `penstock load --resume`: loaders and connections are killed at random points; no line may be lost or applied twice,
//! and reports about errors in earlier runs must be true.
//!
//! `PENSTOCK_SEED=N`: the seed of the random points. `PENSTOCK_LOAD_KILLS=N`: the minimum number of kills of each kind.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::breaker::Breaker;
use penstock_tests::directory::Directory;
use penstock_tests::loader::{
    Ran, ask, calls, interrupt, load_by_killed_loaders, loader, number, run, seed, signal, texts, wait_until,
};
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};

#[test]
fn a_load_that_stopped_at_an_error_goes_on_behind_it() {
    let server = Server::penstock(&[]);
    let errors = "SET string x\nLPUSH string 1\nINCR n\nINCR n\nLPUSH string 2\n\"\nINCR n\nINCR n\nINCR n\n";
    let text = format!("\"\n{errors}MULTI\nLPUSH string 3\nEXEC\nINCR n\nINCR n\nINCR n\n");
    // With one command in a chunk, at most two commands are sent behind an error.
    for (chunk, stops_min) in [("1", 3), ("10000", 1)] {
        let directory = Directory::new();
        let (file, state, errors) = (directory.file("x", &text), directory.path("state"), directory.path("errors"));
        let args = ["--resume", "--stop-on-error", "--chunk", chunk, "--state", &state, "--errors", &errors, &file];
        ask(&server, "DEL n");
        let mut stops = vec![0];
        let ran = loop {
            let ran = run(server.port(), &args, b"");
            assert_eq!(ran.status, 1, "{}", ran.err);
            let Some((_, place)) = ran.err.split_once(&format!("because of an error at {file}:")) else { break ran };
            let line: u64 = place.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
            assert!(stops.last() < Some(&line), "{stops:?}: {}", ran.err);
            stops.push(line);
        };
        assert!(stops.len() > stops_min, "{stops:?}");
        assert_eq!(ran.first_line(), "14 commands executed, 3 failed, 2 lines rejected", "{}", ran.err);
        assert_eq!((ask(&server, "GET n").text(), directory.read("errors").lines().count()), (&b"8"[..], 5));
    }
}

#[test]
fn each_run_sends_the_commands_before_the_next_rejected_line() {
    let (server, directory) = (Server::penstock(&[]), Directory::new());
    let text = "INCR n\n\"\nINCR n\n\"\nMULTI\nINCR n\n\"\nINCR n\nEXEC\nINCR n\n";
    for chunk in ["1", "10000"] {
        let (file, state, errors) = (directory.file("x", text), directory.path("state"), directory.path("errors"));
        let args = ["--resume", "--stop-on-error", "--chunk", chunk, "--state", &state, "--errors", &errors, &file];
        ask(&server, "DEL n");
        for (stop, n) in [(2, "1"), (4, "2"), (7, "2"), (9, "2")] {
            let ran = run(server.port(), &args, b"");
            let since = format!("because of an error at {file}:{stop}");
            assert!(ran.status == 1 && ran.err.contains(&since), "{chunk} {stop}: {} {}", ran.status, ran.err);
            assert_eq!(ask(&server, "GET n").text(), n.as_bytes(), "{chunk} {stop}: {}", ran.err);
        }
        let ran = run(server.port(), &args, b"");
        assert_eq!(ran.first_line(), "7 commands executed, 1 failed, 3 lines rejected", "{}", ran.err);
        let places: Vec<_> =
            directory.read("errors").lines().map(|line| line[file.len() + 1..][..1].to_owned()).collect();
        assert_eq!((ask(&server, "GET n").text(), places.concat()), (&b"3"[..], "2479".to_owned()));
        std::fs::remove_file(&state).unwrap();
        std::fs::remove_file(&errors).unwrap();
    }
}

#[test]
fn a_successor_stops_at_an_error_that_was_not_reported() {
    let (server, directory) = (Server::penstock(&[]), Directory::new());
    let increments = "INCR n\n".repeat(1_000);
    let file = directory.file("x", "BLPOP gate 0\nHSET string f v\nSET done 1\n".to_owned() + &increments);
    let args = ["--resume", "--stop-on-error", "--chunk", "10", "--state", &directory.path("state"), &file];
    ask(&server, "SET string x");
    let mut child = loader(server.port(), &args).stdin(Stdio::null()).spawn().unwrap();
    wait_until("it is blocked", || blocked(&server) == 1);
    // Commands executed from here on are answered, and nobody reads the replies.
    signal(child.id(), "STOP");
    ask(&server, "RPUSH gate x");
    wait_until("all that was sent is executed", || ask(&server, "GET n").text() == b"17");
    child.kill().unwrap();
    child.wait().unwrap();
    let ran = run(server.port(), &args, b"");
    assert!(ran.status == 1 && ran.err.contains("x:2\n"), "{} {}", ran.status, ran.err);
    assert_eq!(ask(&server, "GET n").text(), b"17");
    let ran = run(server.port(), &args, b"");
    assert_eq!(
        (ran.status, ran.first_line()),
        (1, "1,003 commands executed, 1 failed, 0 lines rejected"),
        "{}",
        ran.err
    );
    assert_eq!(ask(&server, "GET n").text(), b"1000");
}

/// Begins a load of a thousand failing commands, a blocking one and fifty failing ones, and waits until it blocks.
fn blocked_load(server: &Server, directory: &Directory, more: &[&str]) -> (Child, Vec<String>) {
    let failing = |count: usize| (0..count).map(|field| format!("HSET string {field} v\n")).collect::<String>();
    let file = directory.file("x", failing(1_000) + "BLPOP gate 0\n" + &failing(50) + "SET done 1\n");
    let (state, errors) = (directory.path("state"), directory.path("errors"));
    let args: Vec<String> = ["--resume", "--state", &state, "--errors", &errors, &file].map(str::to_owned).to_vec();
    let args = [args, more.iter().map(|arg| (*arg).to_owned()).collect()].concat();
    ask(server, "FLUSHALL");
    ask(server, "SET string x");
    let child = loader(server.port(), &args.iter().map(String::as_str).collect::<Vec<_>>()).spawn().unwrap();
    wait_until("it is blocked", || {
        let noted = std::fs::read_to_string(&state).is_ok_and(|text| text.contains("\"failed\":1000"));
        noted && blocked(server) == 1
    });
    (child, args)
}

fn blocked(server: &Server) -> u32 {
    let info = ask(server, "INFO clients");
    let text = String::from_utf8_lossy(info.text()).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("blocked_clients:")).unwrap();
    line.trim().parse().unwrap()
}

fn go_on(server: &Server, args: &[String]) -> Ran {
    run(server.port(), &args.iter().map(String::as_str).collect::<Vec<_>>(), b"")
}

#[test]
fn a_successor_knows_how_many_failed_and_were_reported() {
    let server = Server::penstock(&[]);
    for (end, more) in [("INT", &[][..]), ("KILL", &[]), ("KILL", &["--no-merge"])] {
        let directory = Directory::new();
        let (mut child, args) = blocked_load(&server, &directory, &[&["--chunk", "20"], more].concat());
        if end == "INT" {
            interrupt(child.id());
            // The commands that the loader has sent by then are answered.
            ask(&server, "RPUSH gate x");
        } else {
            signal(child.id(), end);
        }
        child.wait().unwrap();
        wait_until("no client is blocked", || blocked(&server) == 0);
        ask(&server, "RPUSH gate x");
        let before = directory.read("errors").lines().count();
        assert!((1_000..1_050).contains(&before), "{before}");
        let ran = go_on(&server, &args);
        let earlier = format!("executed in an earlier run, 1,{:03} of them failed; continuing\n", before - 1_000);
        assert!(ran.status == 1 && ran.err.ends_with(&earlier), "{end} {more:?}: {}", ran.err);
        assert_eq!(ran.first_line(), "1,052 commands executed, 1,050 failed, 0 lines rejected");
        assert_eq!(directory.read("errors").lines().count(), 1_050);
    }
}

#[test]
fn errors_that_a_killed_loader_may_have_reported_are_not_called_missing() {
    let server = Server::penstock(&[]);
    // A merged command represents at most 32 lines.
    for (more, failed, lacks) in [(&[][..], "at least 1,002", 64), (&["--no-merge"], "1,050", 50)] {
        let directory = Directory::new();
        let (mut child, args) = blocked_load(&server, &directory, more);
        // Commands executed from here on are answered, and nobody reads the replies.
        signal(child.id(), "STOP");
        ask(&server, "RPUSH gate x");
        wait_until("all is executed", || !ask(&server, "GET done").is_null());
        child.kill().unwrap();
        child.wait().unwrap();
        let ran = go_on(&server, &args);
        let expected = format!(
            "penstock load: 1,052 commands executed in an earlier run, {failed} of them failed; continuing\n\
             penstock load: the report may lack up to {lacks} errors of commands whose replies were lost\n"
        );
        assert_eq!((ran.status, ran.err.as_str()), (1, expected.as_str()));
        assert_eq!(ran.first_line(), format!("1,052 commands executed, {failed} failed, 0 lines rejected"));
        assert_eq!(directory.read("errors").lines().count(), 1_000);
        let again = go_on(&server, &args);
        assert!(again.status == 1 && again.err.contains(ran.first_line()), "{}", again.err);
    }
}

/// A load in which every command leaves a mark: ordered numbers in a list, in two databases; increments; errors.
struct Marks {
    text: String,
    /// Elements of the list in database 0 and in database 1.
    listed: [Vec<String>; 2],
    increments: u64,
    /// Lines that are invalid or fail.
    errors: Vec<u64>,
}

impl Marks {
    fn new(lines: u64, rng: &mut Rng) -> Marks {
        let mut marks =
            Marks { text: String::new(), listed: [Vec::new(), Vec::new()], increments: 0, errors: Vec::new() };
        // Both databases have a key that isn't a list.
        marks.text.push_str("INCR n\nSELECT 1\nINCR n\nSELECT 0\n");
        marks.increments = 2;
        let mut line = 4;
        let mut database = 0;
        while line < lines {
            line += 1;
            match rng.below(100) {
                // As many failures as the server remembers at most, even without merging.
                0 if marks.errors.len() < 20 && rng.chance(30) => {
                    let run = 1 + rng.below(8) as u64;
                    for failing in line..line + run {
                        marks.errors.push(failing);
                        writeln!(marks.text, "RPUSH n {failing}").unwrap();
                    }
                    line += run - 1;
                }
                0 if marks.errors.len() < 32 => {
                    marks.errors.push(line);
                    let wrong = ["EXPIRE list soon\n", "\"unbalanced\n", "SELECT 99\n", "SELECT 1 x\n"];
                    marks.text.push_str(wrong[rng.below(wrong.len())]);
                }
                1 => {
                    let other = 1 - database;
                    let (begin, end) = *rng.pick(&[("", ""), ("MULTI\n", "EXEC\n"), ("MULTI\n", "DISCARD\n")]);
                    write!(marks.text, "{begin}SELECT {other}\n{end}").unwrap();
                    database = if end == "DISCARD\n" { database } else { other };
                    line += if end.is_empty() { 0 } else { 2 };
                }
                2 => {
                    writeln!(marks.text, "MULTI\nRPUSH list {line}\nINCR n\nEXEC").unwrap();
                    marks.listed[database].push(line.to_string());
                    marks.increments += 1;
                    line += 3;
                }
                3..30 => {
                    marks.text.push_str("INCR n\n");
                    marks.increments += 1;
                }
                _ => {
                    writeln!(marks.text, "RPUSH list {line}").unwrap();
                    marks.listed[database].push(line.to_string());
                }
            }
        }
        // The increments of both databases are added up.
        marks
    }

    fn check(&self, server: &Server, errors: &str, name: &str) {
        let mut conn = server.connect();
        let mut increments = 0;
        for database in [0, 1] {
            conn.cmd(&format!("SELECT {database}")).unwrap();
            let listed = texts(&conn.cmd("LRANGE list 0 -1").unwrap());
            let first_wrong = listed.iter().zip(&self.listed[database]).find(|(found, expected)| found != expected);
            assert_eq!((listed.len(), first_wrong), (self.listed[database].len(), None), "database {database}");
            increments += conn.cmd("INCRBY n 0").unwrap().integer().unwrap() as u64;
        }
        assert_eq!(increments, self.increments);
        let place = |line: &u64| format!("{name}:{line}");
        let expected: Vec<_> = self.errors.iter().map(place).collect();
        let found: Vec<_> = errors.lines().map(|line| line.split(": ").next().unwrap().to_owned()).collect();
        assert_eq!(found, expected);
        assert_eq!(conn.cmd("PIPELINE LIST").unwrap().items().len(), 0);
    }

    /// Returns true if fewer commands than lines were executed.
    fn were_merged(&self, server: &Server) -> bool {
        calls(server, "rpush") < self.listed.iter().map(Vec::len).sum::<usize>() as u64
    }
}

fn kills() -> u64 {
    number("PENSTOCK_LOAD_KILLS").unwrap_or(200)
}

#[test]
fn killed_loaders_lose_and_double_nothing() {
    let mut rng = Rng::new(seed());
    let (mut killed, mut round, mut longest_us) = (0, 0, 15_000);
    while killed < kills() {
        round += 1;
        let directory = Directory::new();
        let marks = Marks::new(20_000, &mut rng);
        let server = Server::penstock(&["--threads", *rng.pick(&["1", "2"])]);
        let file = directory.file("marks", &marks.text);
        let (errors, state) = (directory.path("errors"), directory.path("state"));
        let merge = rng.chance(75);
        let chunk = if merge { "--chunk=100" } else { "--no-merge" };
        let args = ["--resume", "--state", &state, chunk, "--errors", &errors, &file];
        let (ran, now) = load_by_killed_loaders(server.port(), &args, longest_us, &mut rng);
        // On a fast machine a loader finishes before it is killed.
        longest_us -= if now == 0 { longest_us / 10 } else { 0 };
        // Either this loader or an earlier one has loaded the last commands.
        assert_eq!(ran.status, 1, "{} {}", ran.out, ran.err);
        marks.check(&server, &directory.read("errors"), &file);
        assert_eq!(marks.were_merged(&server), merge);
        let again = run(server.port(), &args, b"");
        assert!(again.status == 1 && again.err.contains("this load was completed"), "{} {}", again.status, again.err);
        marks.check(&server, &directory.read("errors"), &file);
        killed += now;
        assert!(round < 200.max(kills()), "only {killed} loaders were killed in time");
    }
}

#[test]
fn broken_connections_lose_and_double_nothing() {
    let mut rng = Rng::new(seed() + 1);
    let mut broken = 0;
    while broken < kills() {
        let directory = Directory::new();
        let marks = Marks::new(20_000, &mut rng);
        let server = Server::penstock(&["--threads", *rng.pick(&["1", "2"])]);
        let breaker = Breaker::start(server.port(), 30_000, rng.next_u64());
        let file = directory.file("marks", &marks.text);
        let (errors, state) = (directory.path("errors"), directory.path("state"));
        let chunk = rng.pick(&["1", "17", "10000"]).to_string();
        let args = ["--resume", "--state", &state, "--chunk", &chunk, "--errors", &errors, &file];
        let ran = run(breaker.port(), &args, b"");
        assert_eq!(ran.status, 1, "{} {}", ran.out, ran.err);
        marks.check(&server, &directory.read("errors"), &file);
        assert_eq!(marks.were_merged(&server), chunk != "1");
        broken += breaker.broken();
    }
}

/// Starts a breaker with limits for the replies of the first connections; later connections have no limit.
fn breaker_of_first_connections(server: &Server, bytes: &'static [usize]) -> Breaker {
    let mut bytes = bytes.iter();
    Breaker::start_with(server.port(), move || [usize::MAX, bytes.next().copied().unwrap_or(usize::MAX)])
}

#[test]
fn a_first_connection_that_breaks_is_tried_again() {
    let failing = "NOSUCH\n".to_owned() + &"INCR n\n".repeat(10);
    // The replies to CLIENT SETNAME, PING, RESUME and START are cut off; a load that has begun had a connection before.
    let first: &[usize] = &[0, 3, 8, 12, 15, 67, 40];
    for (bytes, lives) in [(first, 1), (&[usize::MAX, 0, 3, 8, 12, 15, 67, 40], 2)] {
        let (server, directory) = (Server::penstock(&[]), Directory::new());
        let (file, state) = (directory.file("x", &failing), directory.path("state"));
        let args = ["--resume", "--no-merge", "--chunk", "1", "--state", &state, &file];
        let breaker = breaker_of_first_connections(&server, bytes);
        if lives == 2 {
            let ran = run(breaker.port(), &[&["--stop-on-error"], &args[..]].concat(), b"");
            assert!(ran.status == 1 && ran.err.contains("stopped after"), "{}", ran.err);
        }
        let ran = run(breaker.port(), &args, b"");
        assert_eq!(
            (ran.status, ran.first_line()),
            (1, "11 commands executed, 1 failed, 0 lines rejected"),
            "{}",
            ran.err
        );
        assert!(ran.err.contains("; trying again\n") && !ran.err.contains("the command"), "{}", ran.err);
        assert_eq!((ask(&server, "GET n").text(), breaker.broken()), (&b"10"[..], 7));
    }
}

#[test]
fn a_first_connection_is_not_tried_for_ever() {
    let (server, directory) = (Server::penstock(&[]), Directory::new());
    let (file, state) = (directory.file("x", "INCR n\n"), directory.path("state"));
    for (bytes, said) in [(&[0; 99], "; trying again\n"), (&[12; 99], "; nothing was sent\n")] {
        let breaker = breaker_of_first_connections(&server, bytes);
        for retry in ["0", "1"] {
            let args = ["--resume", "--no-merge", "--restart", "--retry", retry, "--state", &state, &file];
            let ran = run(breaker.port(), &args, b"");
            assert!(ran.status == 4 && ran.err.starts_with("penstock load: the "), "{}", ran.err);
            assert!(!ran.err.contains("the command") && ran.err.lines().count() <= 2, "{}", ran.err);
            assert_eq!(ran.err.contains(said), retry == "1" || bytes[0] == 12, "{retry}: {}", ran.err);
        }
    }
    // Without a server, the loader doesn't wait.
    let port = penstock_tests::ports::free_port().unwrap();
    let start = std::time::Instant::now();
    let ran = run(port, &["--resume", "--state", &state, "--restart", &file], b"");
    assert!(ran.status == 4 && ran.err.contains("can't connect"), "{} {}", ran.status, ran.err);
    assert!(start.elapsed() < std::time::Duration::from_secs(10));
    assert!(ask(&server, "GET n").is_null());
}

#[test]
fn loaders_and_connections_may_break_together() {
    let mut rng = Rng::new(seed() + 2);
    let directory = Directory::new();
    let marks = Marks::new(8_000, &mut rng);
    let server = Server::penstock(&["--threads", "2"]);
    let breaker = Breaker::start(server.port(), 60_000, rng.next_u64());
    let file = directory.file("marks", &marks.text);
    let (errors, state) = (directory.path("errors"), directory.path("state"));
    let args = ["--resume", "--state", &state, "--chunk", "100", "--errors", &errors, &file];
    loop {
        let (ran, _) = load_by_killed_loaders(breaker.port(), &args, 60_000, &mut rng);
        match ran.status {
            4 => {}
            0 | 1 => break,
            status => panic!("{status}: {}", ran.err),
        }
    }
    marks.check(&server, &directory.read("errors"), &file);
}

#[test]
fn a_resumed_load_must_be_the_same() {
    let directory = Directory::new();
    let (file, state) = (directory.file("x", b"INCR n\n".repeat(200_000)), directory.path("state"));
    let args = ["--resume", "--state", &state, &file];
    let interrupted = |server: &Server| {
        let mut child = loader(server.port(), &args).stdin(Stdio::null()).spawn().unwrap();
        wait_until("something is executed", || !ask(server, "GET n").is_null());
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let server = Server::penstock(&[]);
    interrupted(&server);
    // A different server at the same port would not know the token: this appears as another state, or as a lost token.
    let token = std::fs::read_to_string(&state).unwrap();
    let token = token.split("\"token\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let resumed = |text: &str| {
        let ran = run(server.port(), &args, b"");
        assert!(ran.status == 6 && ran.err.contains(text), "{} {}", ran.status, ran.err);
    };
    std::fs::write(&file, b"INCR n\n".repeat(200_001)).unwrap();
    resumed("was changed since the load began");
    let state_text = std::fs::read_to_string(&state).unwrap();
    assert!(ask(&server, &format!("PIPELINE END {token}")).text() == b"OK");
    let ran = run(server.port(), &["--resume", "--restart", "--state", &state, &file], b"");
    assert_eq!((ran.status, ran.first_line()), (0, "200,001 commands executed, 0 failed, 0 lines rejected"));
    // After an expired token or a restarted server, the executed commands are unknown.
    std::fs::write(&file, b"INCR n\n".repeat(200_000)).unwrap();
    interrupted_again(&server, &args);
    let token = std::fs::read_to_string(&state).unwrap();
    assert_ne!(token, state_text);
    let token = token.split("\"token\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    ask(&server, &format!("PIPELINE END {token}"));
    resumed("the server has forgotten the progress of this load");
}

#[test]
fn a_complete_load_is_not_loaded_again() {
    let server = Server::penstock(&[]);
    let directory = Directory::new();
    let (file, state) = (directory.file("x", "INCR n\nLPUSH n x\n"), directory.path("state"));
    let args = ["--resume", "--state", &state, &file];
    let check = |args: &[&str], stdin: &str, status: i32, text: &str, n: &str| {
        let ran = run(server.port(), args, stdin.as_bytes());
        assert!(ran.status == status, "{} {} {}", ran.status, ran.out, ran.err);
        assert!(ran.out.starts_with(text) || ran.err.contains(text), "{} {}", ran.out, ran.err);
        assert_eq!(ask(&server, "GET n").text(), n.as_bytes());
    };
    check(&args, "", 1, "2 commands executed, 1 failed, 0 lines rejected", "1");
    let again = run(server.port(), &args, b"");
    let as_said = |age: &str| {
        let ended = "2 commands executed, 1 failed, 0 lines rejected; nothing was sent";
        again.err.contains(&format!("this load was completed {age} ago: {ended}"))
    };
    // A second may have passed meanwhile.
    assert!(again.status == 1 && (as_said("0 seconds") || as_said("1 second")), "{} {}", again.status, again.err);
    assert_eq!(ask(&server, "GET n").text(), b"1");
    // The token no longer exists, whichever loader ended it.
    assert_eq!(ask(&server, "PIPELINE LIST").items().len(), 0);
    let restart = ["--resume", "--restart", "--state", &state, &file];
    check(&restart, "", 1, "2 commands executed", "2");
    // A replaced file is another load.
    std::fs::write(&file, "INCR n\n").unwrap();
    check(&args, "", 0, "1 command executed", "3");
    check(&args, "", 0, "this load was completed", "3");
    // Standard input is identified by its content.
    let state = directory.path("of-stdin");
    let args = ["--resume", "--state", &state];
    check(&args, "INCR n\n", 0, "1 command executed", "4");
    check(&args, "INCR n\n", 0, "this load was completed", "4");
    for other in ["INCR m\n", "INCR n\nINCR n\n", ""] {
        check(&args, other, 6, "standard input differs from the complete load", "4");
    }
    // The state tells this without the server.
    let port = server.port();
    drop(server);
    let ran = run(port, &args, b"INCR n\n");
    assert!(ran.status == 0 && ran.err.contains("this load was completed"), "{} {}", ran.status, ran.err);
}

#[test]
fn a_load_stays_at_a_broken_line() {
    let server = Server::penstock(&[]);
    let directory = Directory::new();
    let (file, state) = (directory.file("x", "INCR n\n*1\r\n$9\r\nPING\r\n"), directory.path("state"));
    let args = ["--resume", "--state", &state, &file];
    for _ in 0..3 {
        let ran = run(server.port(), &args, b"");
        assert!(ran.status == 3 && ran.err.contains("x:3: "), "{} {}", ran.status, ran.err);
        assert_eq!(ask(&server, "GET n").text(), b"1");
    }
    // If no command preceded the broken line, there is no state to keep.
    std::fs::write(directory.path("y"), "*1\r\n$9\r\nPING\r\n").unwrap();
    let (file, state) = (directory.path("y"), directory.path("state-y"));
    assert_eq!(run(server.port(), &["--resume", "--state", &state, &file], b"").status, 3);
    assert!(!Path::new(&state).exists());
    assert_eq!(ask(&server, "PIPELINE LIST").items().len(), 1);
}

/// Loads a text by a loader that is killed while a command blocks, and by its successor. The text waits for an element
/// of `gate` in this database.
fn load_in_two_lives(server: &Server, text: &str, database: usize) -> Ran {
    let directory = Directory::new();
    let (file, state) = (directory.file("x", text), directory.path("state"));
    let args = ["--resume", "--state", &state, "--chunk", "50", &file];
    let mut child = loader(server.port(), &args).stdin(Stdio::null()).spawn().unwrap();
    wait_until("it is blocked", || blocked(server) == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the server has noticed", || blocked(server) == 0);
    let mut conn = server.connect();
    conn.cmd(&format!("SELECT {database}")).unwrap();
    conn.cmd("RPUSH gate x").unwrap();
    run(server.port(), &args, b"")
}

#[test]
fn a_load_goes_on_in_the_database_in_which_it_was() {
    const INCREMENTS: usize = 100_000;
    let failing = "GET\n".repeat(33);
    // More failures than the server keeps precede a SELECT that fails.
    let beyond = |select: &str| format!("{failing}{select}\n");
    for (select, database) in [
        ("SELECT 2\n", 2),
        ("MULTI\nSELECT 2\nEXEC\n", 2),
        ("MULTI\nSELECT 2\nDISCARD\n", 0),
        ("MULTI\nSELECT 2\nNOSUCH\nEXEC\n", 0),
        ("SELECT 2\nMULTI\nSELECT 3\nNOSUCH\nEXEC\n", 2),
        (&beyond("SELECT 99"), 0),
        (&beyond("SELECT 3 x"), 0),
    ] {
        let server = Server::penstock(&[]);
        let half = "INCR n\n".repeat(INCREMENTS / 2);
        let ran = load_in_two_lives(&server, &format!("{select}{half}BLPOP gate 0\n{half}"), database);
        assert!(ran.err.contains("executed in an earlier run"), "{select:?}: {}", ran.err);
        let mut conn = server.connect();
        conn.cmd(&format!("SELECT {database}")).unwrap();
        assert_eq!(conn.cmd("GET n").unwrap().text(), INCREMENTS.to_string().as_bytes(), "{select:?}");
        let keyspace = ask(&server, "INFO keyspace");
        assert_eq!(String::from_utf8_lossy(keyspace.text()).matches("db").count(), 1, "{select:?}");
    }
}

fn interrupted_again(server: &Server, args: &[&str]) {
    ask(server, "DEL n");
    let mut child = loader(server.port(), args).stdin(Stdio::null()).spawn().unwrap();
    wait_until("something is executed", || !ask(server, "GET n").is_null());
    child.kill().unwrap();
    child.wait().unwrap();
}
