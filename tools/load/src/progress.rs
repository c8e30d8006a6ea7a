//! Progress of a load: a bar on a terminal, otherwise a line every ten seconds.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

/// Minimum interval between updates of the bar.
const REDRAW: Duration = Duration::from_millis(100);
/// Interval between lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Columns that the bar leaves free at the end of the line. The terminal echoes Ctrl-C there. If the echo wrapped to
/// the next line, clearing the bar would clear the wrong line.
const FREE_COLUMNS: u16 = 8;
/// Maximum number of redraws of the bar per second.
const DRAWN_HZ: u8 = 20;

/// Figures to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Number of finished commands.
    pub commands: u64,
    /// Number of errors.
    pub errors: u64,
    /// Number of finished input bytes.
    pub input_bytes: u64,
}

/// Shows figures on standard error.
pub struct ProgressDisplay {
    start: Instant,
    shown: Instant,
    /// Number of finished commands at the start. Commands of an earlier run don't count for the rate.
    first: Option<u64>,
    total_bytes: Option<u64>,
    kind: DisplayKind,
}

enum DisplayKind {
    Bar(ProgressBar),
    Lines,
    Silent,
}

impl ProgressDisplay {
    /// Starts the display. `total_bytes` is the size of the inputs, if known. If the input is typed, nothing is shown
    /// between its lines.
    pub fn new(total_bytes: Option<u64>, quiet: bool, is_typed: bool) -> ProgressDisplay {
        let kind = if quiet || is_typed {
            DisplayKind::Silent
        } else if io::stderr().is_terminal() {
            DisplayKind::Bar(bar(total_bytes))
        } else {
            DisplayKind::Lines
        };
        let now = Instant::now();
        ProgressDisplay { start: now, shown: now, first: None, total_bytes, kind }
    }

    /// Returns the bar. Other output must be printed above it.
    pub fn bar(&self) -> Option<ProgressBar> {
        match &self.kind {
            DisplayKind::Bar(bar) => Some(bar.clone()),
            _ => None,
        }
    }

    /// Prints a remark on standard error, on a separate line.
    pub fn say(&self, text: &str) {
        match &self.kind {
            DisplayKind::Bar(bar) => bar.suspend(|| say(text)),
            _ => say(text),
        }
    }

    /// Returns the time since the start of the load.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Sets the initial number of commands of a resumed load.
    pub fn begin_at(&mut self, commands: u64) {
        self.first.get_or_insert(commands);
    }

    /// Returns the average number of commands per second.
    pub fn rate(&self, commands: u64) -> f64 {
        commands.saturating_sub(self.first.unwrap_or(0)) as f64 / self.elapsed().as_secs_f64().max(1e-6)
    }

    /// Shows the figures if an update is due.
    pub fn show(&mut self, now: Instant, figures: Figures) {
        let every = if matches!(self.kind, DisplayKind::Lines) { LINE_EVERY } else { REDRAW };
        if now.duration_since(self.shown) < every {
            return;
        }
        self.shown = now;
        match &self.kind {
            DisplayKind::Bar(bar) => {
                bar.set_position(figures.input_bytes);
                bar.set_message(self.message(figures));
            }
            DisplayKind::Lines => drop(writeln!(io::stderr(), "penstock load: {}", self.message(figures))),
            DisplayKind::Silent => {}
        }
    }

    /// Formats `1,200,000 commands, 350,000/s, 3 errors`, with the remaining time if the total is known, and for lines
    /// the percentage, which the bar shows itself.
    fn message(&self, figures: Figures) -> String {
        let Figures { commands, errors, input_bytes } = figures;
        let (rate, commands) = (grouped(self.rate(commands) as u64), count(commands, "command"));
        let mut text = format!("{commands}, {rate}/s, {}", count(errors, "error"));
        if let Some(total) = self.total_bytes.filter(|total| *total > 0 && input_bytes > 0) {
            let share = input_bytes as f64 / total as f64;
            let left = self.elapsed().as_secs_f64() * (1.0 / share - 1.0);
            if matches!(self.kind, DisplayKind::Lines) {
                text += &format!(", {:.0} %", share * 100.0);
            }
            text += &format!(", {left:.0} s left");
        }
        text
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let DisplayKind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }
}

/// A terminal without its last columns.
#[derive(Debug)]
struct Margin(Term);

impl TermLike for Margin {
    fn width(&self) -> u16 {
        self.0.size().1.saturating_sub(FREE_COLUMNS).max(1)
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n)
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n)
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n)
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n)
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.0.write_line(text)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

fn bar(total_bytes: Option<u64>) -> ProgressBar {
    let template = match total_bytes {
        Some(_) => "{bar:30} {percent:>3} % {wide_msg}",
        None => "{spinner} {elapsed} {bytes} read, {wide_msg}",
    };
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(Margin(Term::buffered_stderr())), DRAWN_HZ);
    let bar = ProgressBar::with_draw_target(total_bytes, target);
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Formats a number with its noun: `1 error`, `2,000 errors`.
pub fn count(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats 12345 as 12,345, for people only.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// Prints a remark on standard error.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr(), "penstock load: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_for_people() {
        assert_eq!(count(1, "command"), "1 command");
        assert_eq!(count(0, "error"), "0 errors");
        assert_eq!(count(1_234_567, "command"), "1,234,567 commands");
    }

    #[test]
    fn the_message_has_singular_and_separators() {
        let progress = ProgressDisplay::new(None, true, false);
        let message = |commands, errors| progress.message(Figures { commands, errors, input_bytes: 0 });
        assert!(
            message(1, 1).starts_with("1 command, ") && message(1, 1).ends_with("/s, 1 error"),
            "{}",
            message(1, 1)
        );
        assert!(message(12_000, 0).starts_with("12,000 commands, "), "{}", message(12_000, 0));
    }
}
