//! What `penstock load` and `penstock bench` show on a terminal while they are at work.

// Clippy knows that a test may unwrap, but not the functions that only tests call.
#![allow(clippy::unwrap_used)]

use penstock_tests::server::{Server, subject_program};
use penstock_tests::terminal::Terminal;
use std::{env, fs, process};

/// `penstock TOOL -p PORT ARGS` in a terminal.
fn tool(server: &Server, tool: &str, args: &str) -> Terminal {
    Terminal::new(&format!("{} {tool} -p {} {args}", subject_program().display(), server.port()))
}

/// The number in front of a word on the screen.
fn number_before(screen: &str, word: &str) -> Option<u64> {
    let before = screen.split(word).next()?;
    before.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_load_has_a_bar_with_rate_and_time_left() {
    let server = Server::penstock(&[]);
    let file = env::temp_dir().join(format!("penstock-progress-{}", process::id()));
    fs::write(&file, "INCR n\nLPUSH n x\n".repeat(1_000_000)).unwrap();
    // A command at a time, so that one can watch.
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
    // It counts errors, and takes no more than its line.
    assert!(number_before(&terminal.screen(), " errors, ").is_some_and(|errors| errors > 0), "{}", terminal.screen());
    assert_eq!(terminal.screen().lines().count(), 1, "{}", terminal.screen());
    terminal.press("C-c");
    terminal.wait_until("how it ended", |screen| screen.contains("penstock load: interrupted after "));
    // Nothing of the bar is left, though the terminal has echoed ^C behind it.
    let first = terminal.screen().lines().next().unwrap_or_default().to_owned();
    assert!(first.contains(" commands executed, "), "{first}");
    fs::remove_file(file).unwrap();
}

#[test]
fn errors_stand_above_a_bar_that_goes_at_the_end() {
    let server = Server::penstock(&[]);
    let command = format!(
        "sh -c '(echo SET n x; echo INCR n; sleep 2; echo INCR n; sleep 2) | {} load -p {}'",
        subject_program().display(),
        server.port()
    );
    let terminal = Terminal::new(&command);
    let error = "ERR value is not an integer or out of range: INCR n";
    // From a pipe nobody knows how much there is.
    terminal.wait_until("an error above the bar", |screen| {
        screen.starts_with(&format!("stdin:2: {error}\n"))
            && screen.lines().nth(1).is_some_and(|bar| bar.contains(" read, 2 commands, ") && bar.contains(" 1 error"))
    });
    terminal.wait_until("the end", |screen| {
        screen.starts_with(&format!(
            "stdin:2: {error}\nstdin:3: {error}\n3 commands executed, 2 failed, 0 lines rejected\n"
        ))
    });
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
