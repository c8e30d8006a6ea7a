//! The report of errors: one line each, in input order, with position, error and command.
//!
//! `movies.csv:17: ERR value is not a valid float: ZADD movies abc "The Hobbit"`

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Write};

use indicatif::ProgressBar;
use rustix::event::{PollFd, PollFlags, poll};

use crate::block::Rejected;
use crate::exit::{Exit, Failure};
use crate::flight::{CommandPlace, Witness};
use crate::progress::count;
use crate::shown;
use crate::transaction::Unended;

/// Destination of the lines.
pub enum Sink {
    /// A file.
    File {
        /// The file.
        file: BufWriter<File>,
        /// Its name.
        name: String,
    },
    /// Standard error.
    Stderr {
        /// The progress bar, if there is one. Lines are printed above it.
        bar: Option<ProgressBar>,
        /// Maximum number of lines, on a terminal.
        shown_max: u64,
    },
}

/// Writes and counts errors.
pub struct Report {
    sink: Sink,
    /// Names of the inputs.
    names: Vec<String>,
    failed: u64,
    rejected: u64,
    unreadable: u64,
    /// Numbers of failures and rejected lines that an earlier run of this load has reported.
    earlier: (u64, u64),
    /// Position of the first error of this run.
    first: Option<String>,
    /// Number of errors of this run.
    written: u64,
    trouble: Option<Failure>,
    /// Input and line of the last error that an earlier run of this load wrote to the file.
    written_before: Option<(usize, u64)>,
}

impl Report {
    /// Creates an empty report.
    pub fn new(sink: Sink, names: Vec<String>) -> Report {
        Report {
            sink,
            names,
            failed: 0,
            rejected: 0,
            unreadable: 0,
            earlier: (0, 0),
            first: None,
            written: 0,
            trouble: None,
            written_before: None,
        }
    }

    /// Counts errors up to this input and line without writing them, because the file contains them already.
    pub fn skip_until(&mut self, written: (usize, u64)) {
        self.written_before = Some(written);
    }

    /// Sets the numbers of failures and rejected lines that an earlier run of this load has reported.
    pub fn expect_earlier(&mut self, failed: u64, rejected: u64) {
        self.earlier = (failed, rejected);
    }

    /// Sets the minimum number of failed commands to those that an earlier run has reported. Some of them may have been
    /// reported again.
    pub fn add_earlier(&mut self, failed: u64) {
        self.failed = self.failed.max(failed);
    }

    /// Returns the number of commands with error replies.
    pub fn failures(&self) -> u64 {
        self.failed
    }

    /// Returns the number of invalid lines, found by the loader or by the server.
    pub fn rejections(&self) -> u64 {
        self.rejected + self.unreadable
    }

    /// Returns the number of lines that the loader rejected. A later run will reject them again.
    pub fn rejected_lines(&self) -> u64 {
        self.rejected
    }

    /// Returns the number of rejected lines that an earlier run of this load has reported.
    pub fn earlier_rejected(&self) -> u64 {
        self.earlier.1
    }

    /// Returns the number of all errors.
    pub fn errors(&self) -> u64 {
        self.failed + self.rejections()
    }

    /// Returns true if there are errors that no earlier run has reported.
    pub fn has_news(&self) -> bool {
        self.failed > self.earlier.0 || self.rejected > self.earlier.1
    }

    /// Returns the position of the first new error: `FILE:LINE`.
    pub fn first_place(&self) -> &str {
        self.first.as_deref().unwrap_or_default()
    }

    /// Passes the buffered lines to the system.
    ///
    /// # Errors
    /// Returns an error if the report can't be written.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if self.trouble.is_none()
            && let Sink::File { file, name } = &mut self.sink
            && let Err(error) = file.flush()
        {
            self.trouble = Some(cannot_write(name, &error));
        }
        self.trouble.clone().map_or(Ok(()), Err)
    }

    /// Returns the name of an input.
    pub fn name(&self, input: usize) -> &str {
        self.names.get(input).map_or("", String::as_str)
    }

    /// Returns true if the maximum number of lines was exceeded.
    fn is_cut_short(&self) -> bool {
        matches!(&self.sink, Sink::Stderr { shown_max, .. } if self.written > *shown_max)
    }

    /// Returns a message about errors that were counted and not shown.
    pub fn unshown(&self) -> Option<String> {
        let Sink::Stderr { shown_max, .. } = &self.sink else { return None };
        let left = self.written.checked_sub(*shown_max).filter(|left| *left > 0)?;
        Some(format!("{} not shown; --errors FILE lists all", count(left, "more error")))
    }

    fn write(&mut self, input: usize, line: u64, reason: &str, command: &str) {
        let place = format!("{}:{line}", self.name(input));
        if self.has_news() {
            self.first.get_or_insert_with(|| place.clone());
        }
        if self.trouble.is_some() || self.written_before.is_some_and(|written| (input, line) <= written) {
            return;
        }
        self.written += 1;
        if self.is_cut_short() {
            return;
        }
        let separator = if command.is_empty() { "" } else { ": " };
        let text = format!("{place}: {reason}{separator}{command}\n");
        let (written, name) = match &mut self.sink {
            Sink::File { file, name } => (file.write_all(text.as_bytes()), name.as_str()),
            Sink::Stderr { bar: Some(bar), .. } => (bar.suspend(|| write_to_stderr(text.as_bytes())), "standard error"),
            Sink::Stderr { bar: None, .. } => (write_to_stderr(text.as_bytes()), "standard error"),
        };
        if let Err(error) = written {
            self.trouble = Some(cannot_write(name, &error));
        }
    }
}

/// Writes all of the text, unless standard error was closed: then the text is dropped. The standard library ignores a
/// closed descriptor.
fn write_to_stderr(mut text: &[u8]) -> io::Result<()> {
    let mut stderr = io::stderr();
    while !text.is_empty() {
        match stderr.write(text) {
            Ok(written) => text = &text[written..],
            // Another program that shares the descriptor may have made it nonblocking.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the failure for an unwritable report.
pub fn cannot_write(name: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Output, format!("can't write the errors to {name}: {error}"))
}

impl Witness for Report {
    fn failed(&mut self, place: CommandPlace<'_>, error: &[u8]) {
        self.failed += 1;
        self.write(place.input, place.line, &shown::error(error), &shown::command(&place.command));
    }

    fn rejected(&mut self, input: usize, rejected: &Rejected) {
        let text = shown::line(&rejected.text);
        let Some((spoilt_in, line)) = rejected.spoilt_by else {
            self.rejected += 1;
            return self.write(input, rejected.line, &rejected.reason, &text);
        };
        self.failed += 1;
        let name = self.name(spoilt_in);
        let reason = format!("the transaction is discarded instead of executed, since {name}:{line} was rejected");
        self.write(input, rejected.line, &reason, &text);
    }

    fn unreadable(&mut self, place: CommandPlace<'_>, error: &[u8]) {
        self.unreadable += 1;
        self.write(place.input, place.line, &shown::error(error), &shown::command(&place.command));
    }

    fn unended(&mut self, transaction: &Unended) {
        let Unended { input, line, queued } = *transaction;
        self.failed += 1;
        let commands = count(queued, "command");
        let reason = format!("no EXEC follows this MULTI: its transaction of {commands} is never executed");
        self.write(input, line, &reason, "");
    }
}
