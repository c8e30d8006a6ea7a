//! The report of errors: one line each, in the order of the input, with place, error and command.
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

/// Where the lines go.
pub enum Sink {
    /// To a file.
    File {
        /// The file.
        file: BufWriter<File>,
        /// Its name.
        name: String,
    },
    /// To standard error.
    Stderr {
        /// The progress bar above which they stand, if there is one.
        bar: Option<ProgressBar>,
        /// How many are written at most, on a terminal.
        shown_max: u64,
    },
}

/// Writes and counts errors.
pub struct Report {
    sink: Sink,
    /// The names of the inputs.
    names: Vec<String>,
    failed: u64,
    rejected: u64,
    unreadable: u64,
    /// Of the first two, those that an earlier life of this load has reported.
    earlier: (u64, u64),
    /// The place of the first error of this life.
    first: Option<String>,
    /// How many there are of this life.
    written: u64,
    trouble: Option<Failure>,
    /// What an earlier life of this load wrote into the file already: input and line of its last error.
    written_before: Option<(usize, u64)>,
}

impl Report {
    /// Nothing written yet.
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

    /// Errors up to this input and line are counted, but not written: they stand in the file already.
    pub fn skip_until(&mut self, written: (usize, u64)) {
        self.written_before = Some(written);
    }

    /// The first so many failures and rejected lines were reported in an earlier life of this load.
    pub fn expect_earlier(&mut self, failed: u64, rejected: u64) {
        self.earlier = (failed, rejected);
    }

    /// Notes that so many commands failed in an earlier life of this load and were reported; the first ones may have
    /// been heard of again.
    pub fn add_earlier(&mut self, failed: u64) {
        self.failed = self.failed.max(failed);
    }

    /// Commands that the server answered with an error.
    pub fn failures(&self) -> u64 {
        self.failed
    }

    /// Lines that were no commands, for the loader or for the server.
    pub fn rejections(&self) -> u64 {
        self.rejected + self.unreadable
    }

    /// Those that the loader rejected: none of them will be a command the next time.
    pub fn rejected_lines(&self) -> u64 {
        self.rejected
    }

    /// The first so many of those were reported in an earlier life of this load.
    pub fn earlier_rejected(&self) -> u64 {
        self.earlier.1
    }

    /// All errors.
    pub fn errors(&self) -> u64 {
        self.failed + self.rejections()
    }

    /// Whether there are errors that no earlier life of this load has reported.
    pub fn has_news(&self) -> bool {
        self.failed > self.earlier.0 || self.rejected > self.earlier.1
    }

    /// Where the first of those happened: `FILE:LINE`.
    pub fn first_place(&self) -> &str {
        self.first.as_deref().unwrap_or_default()
    }

    /// Sees to it that what was reported is on its way to the disk.
    ///
    /// # Errors
    /// It can't be written.
    pub fn flush(&mut self) -> Result<(), Failure> {
        if self.trouble.is_none()
            && let Sink::File { file, name } = &mut self.sink
            && let Err(error) = file.flush()
        {
            self.trouble = Some(cannot_write(name, &error));
        }
        self.trouble.clone().map_or(Ok(()), Err)
    }

    /// The name of an input.
    pub fn name(&self, input: usize) -> &str {
        self.names.get(input).map_or("", String::as_str)
    }

    /// Whether so many errors were written that the next ones aren't.
    fn is_cut_short(&self) -> bool {
        matches!(&self.sink, Sink::Stderr { shown_max, .. } if self.written > *shown_max)
    }

    /// What to say of errors that were counted and not shown.
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

/// Writes all of it, unless standard error was closed: then the text is dropped. The standard library takes a closed
/// descriptor for one that takes everything.
fn write_to_stderr(mut text: &[u8]) -> io::Result<()> {
    let mut stderr = io::stderr();
    while !text.is_empty() {
        match stderr.write(text) {
            Ok(written) => text = &text[written..],
            // Another program that shares it may have made it non-blocking.
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

/// The report can't be written.
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
