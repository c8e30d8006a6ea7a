//! The progress of `penstock load` and `penstock bench` on a terminal.

// Clippy allows unwrap in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used)]

use penstock_tests::server::{Server, subject_program};
use penstock_tests::terminal::Terminal;
use std::{env, fs, process};

/// Runs `penstock TOOL -p PORT ARGS` in a terminal.
fn tool(server: &Server, tool: &str, args: &str) -> Terminal {
    Terminal::new(&format!("{} {tool} -p {} {args}", subject_program().display(), server.port()))
}

/// Returns the number in front of a word on the screen.
fn number_before(screen: &str, word: &str) -> Option<u64> {
    let before = screen.split(word).next()?;
    before.rsplit(' ').next()?.replace(',', "").parse().ok()
}

#[test]
fn a_load_has_a_bar_with_rate_and_time_left() {
    let server = Server::penstock(&[]);
    let file = env::temp_dir().join(format!("penstock-progress-{}", process::id()));
    fs::write(&file, "INCR n\nLPUSH n x\n".repeat(1_000_000)).unwrap();
    // One command at a time, which is slow enough to watch.
    let terminal = tool(&server, "load", &format!("--chunk 1 --errors /dev/null {}", file.display()));
    let is_bar = |screen: &str| {
        let first = screen.lines().next().unwrap_or_default();
        let figures = [" % ", " commands, ", "/s, ", " errors, ", "s left"];
        first.starts_with(['█', '░']) && figures.iter().all(|part| first.contains(part))
    };
    terminal.wait_until("a bar", is_bar);
    let (mut before, mut seen) = (0, 0);
    terminal.wait_until("a bar that moves on", |screen| {
        let now = number_before(screen, " commands, ").unwrap_or(0);
        seen += u32::from(now > before);
        before = before.max(now);
        seen >= 3
    });
    // The bar counts errors, and takes one line only.
    assert!(number_before(&terminal.screen(), " errors, ").is_some_and(|errors| errors > 0), "{}", terminal.screen());
    assert_eq!(terminal.screen().lines().count(), 1, "{}", terminal.screen());
    terminal.press("C-c");
    terminal.wait_until("how it ended", |screen| screen.contains("penstock load: interrupted after "));
    // The bar is removed, although the terminal has echoed ^C behind it.
    let first = terminal.screen().lines().next().unwrap_or_default().to_owned();
    assert!(first.contains(" commands executed, "), "{first}");
    fs::remove_file(file).unwrap();
}

#[test]
fn errors_appear_above_the_bar_which_is_removed_at_the_end() {
    let server = Server::penstock(&[]);
    // The rest arrives after the beginning has appeared.
    let seen = server.dir().join("seen");
    let wait = format!("until [ -e {} ]; do sleep 0.1; done", seen.display());
    let command = format!(
        "sh -c '(echo SET n x; echo INCR n; {wait}; echo INCR n; sleep 2) | {} load -p {}'",
        subject_program().display(),
        server.port()
    );
    let terminal = Terminal::new(&command);
    let error = "ERR value is not an integer or out of range: INCR n";
    // The size of a pipe's content is unknown.
    terminal.wait_until("an error above the bar", |screen| {
        screen.starts_with(&format!("stdin:2: {error}\n"))
            && screen.lines().nth(1).is_some_and(|bar| bar.contains(" read, 2 commands, ") && bar.contains(" 1 error"))
    });
    fs::write(seen, "").unwrap();
    terminal.wait_until("the end", |screen| {
        screen.starts_with(&format!(
            "stdin:2: {error}\nstdin:3: {error}\n3 commands executed, 2 failed, 0 lines rejected\n"
        ))
    });
}

/// At a terminal, the loader prints that it reads standard input, and how to end it.
#[test]
fn a_loader_without_input_announces_that_it_reads_the_terminal() {
    let server = Server::penstock(&[]);
    let terminal = tool(&server, "load", "");
    let waits = "penstock load: reading commands from standard input, one per line; Ctrl-D ends the input (see penstock load --help)";
    terminal.wait_until("what it waits for", |screen| screen.replace('\n', "") == waits);
    terminal.enter("SET k v", "SET k v");
    terminal.press("C-d");
    terminal.wait_until("the end", |screen| screen.contains("\n1 command executed, 0 failed, 0 lines rejected\n"));
    assert!(terminal.screen().contains("\nSET k v\n1 command"), "{}", terminal.screen());
}

/// Thousands of errors would be unreadable on a terminal.
#[test]
fn a_terminal_shows_a_hundred_errors_and_their_number() {
    let server = Server::penstock(&[]);
    let file = env::temp_dir().join(format!("penstock-errors-{}", process::id()));
    fs::write(&file, format!("SET n x\n{}", "INCR n\n".repeat(1_300))).unwrap();
    let terminal = tool(&server, "load", &format!("{}", file.display()));
    let end =
        "penstock load: 1,200 more errors not shown; --errors FILE lists all\n1,301 commands executed, 1,300 failed";
    terminal.wait_until("the end", |screen| screen.contains(end));
    assert_eq!(terminal.screen().matches(": INCR n\n").count(), 100, "{}", terminal.screen());
    // A pipe gets all of them.
    let mut piped = process::Command::new(subject_program());
    piped.args(["load", "-p", &server.port().to_string()]).arg(&file);
    let output = piped.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches(": INCR n\n").count(), 1_300);
    fs::remove_file(file).unwrap();
}

/// Messages about an earlier run have a line of their own, without the rest of the bar.
#[test]
fn a_remark_does_not_stand_in_the_bars_line() {
    let server = Server::penstock(&[]);
    let directory = env::temp_dir().join(format!("penstock-remark-{}", process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (file, state) = (directory.join("commands"), directory.join("state"));
    fs::write(&file, "INCR n\n".repeat(6_000_000)).unwrap();
    let args = format!("--resume --state {} {}", state.display(), file.display());
    let mut first = process::Command::new(subject_program());
    first.args(["load", "-q", "-p", &server.port().to_string()]).args(args.split(' '));
    let mut first = first.spawn().unwrap();
    let mut conn = server.connect();
    // So much that the next run reads for longer than it takes to draw the bar.
    server.wait_until("much has been loaded", |_| conn.cmd("GET n").unwrap().text().len() >= 7);
    first.kill().unwrap();
    first.wait().unwrap();
    let terminal = tool(&server, "load", &args);
    let is_remark = |line: &&str| line.contains(" executed in an earlier run, 0 of them failed; continuing");
    terminal.wait_until("the remark", |screen| screen.lines().any(|line| is_remark(&line)));
    let screen = terminal.screen();
    let remark = screen.lines().find(is_remark).unwrap();
    assert!(remark.starts_with("penstock load: "), "{screen}");
    drop(terminal);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_benchmark_has_a_line_of_its_speed() {
    let server = Server::penstock(&[]);
    let terminal = tool(&server, "bench", "-q -n 1000000000 -P 16 GET key");
    let is_line = |screen: &str| {
        screen.starts_with("GET key: rps=") && screen.contains("overall: ") && screen.contains("avg_msec=")
    };
    terminal.wait_until("a line", is_line);
    let first = terminal.screen();
    terminal.wait_until("a line that changes", |screen| is_line(screen) && screen != first);
    assert_eq!(terminal.screen().lines().count(), 1, "{}", terminal.screen());
    terminal.press("C-c");
    terminal.wait_until("how it ended", |screen| screen.ends_with("penstock bench: interrupted"));
}
