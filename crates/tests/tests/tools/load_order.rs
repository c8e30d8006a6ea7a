//! `penstock load` with reordered ZADDs: only the speed differs from the input's order.
//!
//! `PENSTOCK_SEED=N`: the seed of the random points.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::directory::Directory;
use penstock_tests::loader::{ask, calls, load_by_killed_loaders, loader, run, texts, wait_until, with_both};
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;
use std::fmt::Write as _;
use std::io::Write;
use std::process::{Child, Command, Stdio};

fn seed() -> u64 {
    std::env::var("PENSTOCK_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_122)
}

/// ZADDs to a key, with random scores, of members with `distinct` different numbers.
fn zadds(key: &str, commands: usize, distinct: usize, rng: &mut Rng) -> String {
    let mut text = String::new();
    for number in 0..commands {
        let (score, member) = (rng.below(2_000) as i64 - 1_000, number % distinct);
        writeln!(text, "ZADD {key} {score}.5 member:{member}").unwrap();
    }
    text
}

#[test]
fn the_sorted_set_is_the_same() {
    let directory = Directory::new();
    with_both(|server| {
        for (round, distinct) in [40_000, 7_000, 500, 33].into_iter().enumerate() {
            let mut rng = Rng::new(seed() + round as u64);
            // A negative zero among the first members of a set loses its sign; among many members it keeps it.
            let zeros: String = (0..9).map(|number| format!("ZADD z -0 zero:{number}\n")).collect();
            let text = zeros + &zadds("z", 40_000, distinct, &mut rng) + "ZCARD z\n" + &zadds("y", 100, 100, &mut rng);
            let file = directory.file("zadds", text);
            let mut found = Vec::new();
            for how in ["--no-merge", "--chunk=10000", "--chunk=50"] {
                ask(server, "FLUSHALL");
                let ran = run(server.port(), &[how, &file], b"");
                assert_eq!((ran.status, &*ran.err), (0, ""));
                let set = texts(&ask(server, "ZRANGE z 0 -1 WITHSCORES"));
                assert_eq!(set.len(), 2 * (9 + distinct));
                found.push((set, texts(&ask(server, "ZRANGE y 0 -1 WITHSCORES")), ran.first_line().to_owned()));
            }
            assert!(found[0] == found[1] && found[0] == found[2], "round {round}");
        }
    });
}

#[test]
fn scores_come_in_order() {
    let server = Server::oracle(&[]);
    let directory = Directory::new();
    let zadds: String = (0..300).map(|number| format!("ZADD z {} m{number}\n", 999 - number)).collect();
    let file = directory.file("zadds", zadds);
    for (args, expected) in [
        (vec![&*file], "\"700\" \"m299\" \"701\" \"m298\" "),
        // A load that stops at an error has executed no command behind it.
        (vec!["--stop-on-error", &file], "\"999\" \"m0\" \"998\" \"m1\" "),
    ] {
        let mut monitor = server.connect();
        monitor.cmd("MONITOR").unwrap();
        assert_eq!(run(server.port(), &args, b"").status, 0);
        let first = loop {
            let line = String::from_utf8(monitor.read().unwrap().text().to_vec()).unwrap();
            if let Some((_, first)) = line.split_once("\"ZADD\" \"z\" ") {
                break first.to_owned();
            }
        };
        assert!(first.starts_with(expected), "{first}");
    }
}

#[test]
fn errors_come_in_the_inputs_order() {
    let directory = Directory::new();
    with_both(|server| {
        ask(server, "SET string x");
        let mut rng = Rng::new(seed());
        let text = zadds("string", 5_000, 5_000, &mut rng) + "INCR n\n" + &zadds("string", 40, 40, &mut rng);
        let file = directory.file("zadds", &text);
        let ran = run(server.port(), &[&file], b"");
        assert_eq!((ran.status, ran.first_line()), (1, "5,041 commands executed, 5,040 failed, 0 lines rejected"));
        let expected = (1..).zip(text.lines()).filter(|(_, line)| line.starts_with("ZADD")).map(|(number, line)| {
            format!("{file}:{number}: WRONGTYPE Operation against a key holding the wrong kind of value: {line}")
        });
        assert!(ran.err.lines().eq(expected), "{}", ran.err);
    });
}

#[test]
fn killed_loaders_lose_and_double_nothing() {
    let mut rng = Rng::new(seed());
    let directory = Directory::new();
    let text = zadds("z", 50_000, 50_000, &mut rng)
        + &zadds("string", 300, 300, &mut rng)
        + &zadds("z", 50_000, 700, &mut rng);
    let file = directory.file("zadds", &text);
    let fresh = || {
        let server = Server::penstock(&[]);
        ask(&server, "SET string x");
        server
    };
    let whole = fresh();
    let of_whole = directory.path("state-of-whole");
    let args = ["--resume", "--state", &of_whole, "--errors", &directory.path("expected"), &file];
    // A load that can be resumed keeps the input's order.
    let ran = run(whole.port(), &args, b"");
    assert_eq!((ran.status, ran.first_line()), (1, "100,300 commands executed, 300 failed, 0 lines rejected"));
    let mut killed = 0;
    while killed < 60 {
        let server = fresh();
        let (errors, state) = (directory.path("errors"), directory.path("state"));
        let args = ["--resume", "--restart", "--state", &state, "--errors", &errors, &file];
        // The first loader discards the state of the previous round.
        let mut first = loader(server.port(), &args).stdin(Stdio::null()).spawn().unwrap();
        wait_until("something is executed", || calls(&server, "zadd") > 0);
        first.kill().unwrap();
        first.wait().unwrap();
        let args = ["--resume", "--state", &state, "--errors", &errors, &file];
        let (ran, now) = load_by_killed_loaders(server.port(), &args, 40_000, &mut rng);
        assert_eq!(ran.status, 1, "{} {}", ran.out, ran.err);
        killed += now;
        // Each command was executed once, and the summary is the same as without kills.
        assert_eq!(calls(&server, "zadd"), calls(&whole, "zadd"));
        assert_eq!(texts(&ask(&server, "ZRANGE z 0 -1 WITHSCORES")), texts(&ask(&whole, "ZRANGE z 0 -1 WITHSCORES")));
        assert!(directory.read("errors") == directory.read("expected"), "{}", directory.read("errors"));
    }
}

#[test]
fn slow_input_is_sent_without_delay() {
    with_both(|server| {
        let mut child = loader(server.port(), &[]).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        for lines in [1, 3, 1_000, 5] {
            let before = ask(server, "ZCARD z").integer().unwrap();
            let zadds: String =
                (0..lines).map(|line| format!("ZADD z {} m{}\n", lines - line, before + line)).collect();
            pipe.write_all(zadds.as_bytes()).unwrap();
            wait_until("all that has come is executed", || ask(server, "ZCARD z").integer() == Some(before + lines));
        }
        drop(pipe);
        let output = child.wait_with_output().unwrap();
        assert!(String::from_utf8(output.stdout).unwrap().starts_with("1,009 commands executed, 0 failed"));
    });
}

#[test]
fn available_input_is_sorted_together() {
    let server = Server::oracle(&[]);
    let mut monitor = server.connect();
    monitor.cmd("MONITOR").unwrap();
    // More than one read returns.
    let zadds: String =
        (0..10_000).map(|line| format!("ZADD z {} member-with-a-long-name-{line}\n", 99_999 - line)).collect();
    let directory = Directory::new();
    let stdin = std::fs::File::open(directory.file("zadds", zadds)).unwrap();
    assert!(loader(server.port(), &[]).stdin(stdin).status().unwrap().success());
    let mut firsts = Vec::new();
    while firsts.iter().map(|(_, count)| count).sum::<usize>() < 10_000 {
        let line = String::from_utf8(monitor.read().unwrap().text().to_vec()).unwrap();
        if let Some((_, scores)) = line.split_once("\"ZADD\" \"z\" ") {
            let words: Vec<&str> = scores.split(' ').collect();
            firsts.push((words[0].trim_matches('"').parse::<u32>().unwrap(), words.len() / 2));
        }
    }
    // A run ends where the next score is lower.
    let runs = 1 + firsts.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
    assert_eq!(runs, 3, "of 2,500, of 5,000 and of the rest");
}

/// Runs `test` with both servers, the name of an input of 1,500,000 ZADDs, and the output of a loader that `cut`
/// interrupts. Members have the numbers of their lines, from 0.
fn cut_off(cut: impl Fn(&Server, &Child), test: impl Fn(&Server, &str, &str)) {
    let directory = Directory::new();
    let file = directory.file("zadds", zadds("z", 1_500_000, 1_500_000, &mut Rng::new(seed())));
    with_both(|server| {
        let child = loader(server.port(), &[&file]).spawn().unwrap();
        wait_until("something is executed", || ask(server, "ZCARD z").integer() > Some(50_000));
        cut(server, &child);
        let output = child.wait_with_output().unwrap();
        test(server, &file, &String::from_utf8(output.stderr).unwrap());
    });
}

#[test]
fn an_interrupt_ends_between_lines() {
    let interrupt = |_: &Server, child: &Child| {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    };
    cut_off(interrupt, |server, file, said| {
        let line = said.strip_prefix(&format!("penstock load: interrupted after {file}:"));
        let line = line.and_then(|rest| rest.strip_suffix("; all earlier commands were answered\n"));
        let lines: i64 = line.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
        // Exactly these members exist.
        assert_eq!(ask(server, "ZCARD z").integer(), Some(lines));
        assert!(lines < 1_500_000);
        assert!(ask(server, &format!("ZSCORE z member:{lines}")).is_null());
        assert!(!ask(server, &format!("ZSCORE z member:{}", lines - 1)).is_null());
    });
}

#[test]
fn a_broken_connection_reports_the_known_progress() {
    let kill = |server: &Server, _: &Child| drop(ask(server, "CLIENT KILL TYPE normal SKIPME yes"));
    cut_off(kill, |server, file, said| {
        let known = said.split(&format!("{file}:")).nth(1).and_then(|rest| rest.split(',').next());
        let known: usize = known.unwrap_or_else(|| panic!("{said}")).trim().parse().unwrap();
        // All members up to that line exist.
        for member in [0, known / 2, known - 2, known - 1] {
            assert!(!ask(server, &format!("ZSCORE z member:{member}")).is_null(), "{said}");
        }
        let missing = (0..known)
            .find(|member| member % 1_000 == 0 && ask(server, &format!("ZSCORE z member:{member}")).is_null());
        assert_eq!(missing, None, "{said}");
    });
}
