//! The progress line of a running test, on terminals only.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::generator::RunProgress;

/// Minimum interval between error messages.
const ERROR_INTERVAL: Duration = Duration::from_secs(1);
/// Erases from the cursor to the end of the line (ECMA-48, EL).
const ERASE_TO_END: &str = "\x1b[K";

/// State of a test's progress line.
pub struct ProgressLine<'a> {
    title: &'a str,
    shown: bool,
    before: RunProgress,
    show_errors: bool,
    errors_told: u64,
    error_told_at: Option<Instant>,
}

impl<'a> ProgressLine<'a> {
    /// Creates the state. If standard error isn't a terminal, only errors are printed, and only with `-e`.
    #[must_use]
    pub fn new(title: &'a str, show_errors: bool) -> ProgressLine<'a> {
        let shown = io::stderr().is_terminal();
        ProgressLine { title, shown, before: RunProgress::default(), show_errors, errors_told: 0, error_told_at: None }
    }

    /// Shows the progress.
    pub fn update(&mut self, now: &RunProgress) {
        self.tell_errors(now, false);
        if self.shown {
            // A closed terminal is no reason to stop measuring.
            let _ = write!(io::stderr(), "\r{}{ERASE_TO_END}", describe(self.title, &self.before, now));
        }
        self.before = now.clone();
    }

    /// Removes the line, and prints the remaining errors.
    pub fn end(&mut self, last: &RunProgress) {
        self.tell_errors(last, true);
        if self.shown {
            let _ = write!(io::stderr(), "\r{ERASE_TO_END}");
        }
    }

    fn tell_errors(&mut self, now: &RunProgress, is_last: bool) {
        if let Some(text) = self.untold_errors(now, is_last) {
            let erase = if self.shown { "\r\x1b[K" } else { "" };
            let _ = writeln!(io::stderr(), "{erase}{text}");
        }
    }

    /// Returns a message about new errors, if it is due. The last call returns all remaining ones.
    fn untold_errors(&mut self, now: &RunProgress, is_last: bool) -> Option<String> {
        let due = is_last || self.error_told_at.is_none_or(|at| at.elapsed() >= ERROR_INTERVAL);
        let new = now.errors.saturating_sub(self.errors_told);
        if !self.show_errors || new == 0 || !due {
            return None;
        }
        (self.errors_told, self.error_told_at) = (now.errors, Some(Instant::now()));
        Some(format!("Error from server: {} ({new} new errors)", now.latest_error))
    }
}

/// Formats redis-benchmark's line: the last interval, and the whole run in parentheses.
fn describe(title: &str, before: &RunProgress, now: &RunProgress) -> String {
    let interval = RunProgress {
        elapsed: now.elapsed.saturating_sub(before.elapsed),
        answered: now.answered.saturating_sub(before.answered),
        latency_sum_ns: now.latency_sum_ns.saturating_sub(before.latency_sum_ns),
        ..RunProgress::default()
    };
    format!(
        "{title}: rps={:.1} (overall: {:.1}) avg_msec={:.3} (overall: {:.3})",
        per_second(&interval),
        per_second(now),
        mean_ms(&interval),
        mean_ms(now)
    )
}

fn per_second(progress: &RunProgress) -> f64 {
    let seconds = progress.elapsed.as_secs_f64();
    if seconds > 0.0 { progress.answered as f64 / seconds } else { 0.0 }
}

fn mean_ms(progress: &RunProgress) -> f64 {
    progress.latency_sum_ns as f64 / 1e6 / progress.answered.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_the_last_interval_and_the_whole() {
        let at = |ms, answered, latency_sum_ns| {
            let elapsed = Duration::from_millis(ms);
            RunProgress { elapsed, answered, latency_sum_ns, ..RunProgress::default() }
        };
        let line = describe("GET", &at(1000, 1000, 1_000_000_000), &at(1500, 2000, 4_000_000_000));
        assert_eq!(line, "GET: rps=2000.0 (overall: 1333.3) avg_msec=3.000 (overall: 2.000)");
        let line = describe("GET", &RunProgress::default(), &RunProgress::default());
        assert_eq!(line, "GET: rps=0.0 (overall: 0.0) avg_msec=0.000 (overall: 0.000)");
    }

    #[test]
    fn every_error_is_reported_at_the_end() {
        let mut line = ProgressLine::new("INCR", true);
        let at = |errors| RunProgress { errors, latest_error: "ERR no".to_owned(), ..RunProgress::default() };
        assert_eq!(line.untold_errors(&at(0), false), None);
        let first = line.untold_errors(&at(3), false);
        assert_eq!(first.as_deref(), Some("Error from server: ERR no (3 new errors)"));
        assert_eq!(line.untold_errors(&at(5), false), None, "a second hasn't passed");
        let last = line.untold_errors(&at(10), true);
        assert_eq!(last.as_deref(), Some("Error from server: ERR no (7 new errors)"));
        assert_eq!(line.untold_errors(&at(10), true), None);
    }
}
