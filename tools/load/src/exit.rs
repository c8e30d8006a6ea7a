//! Reasons for the end of a load, with their exit statuses.

use std::fmt;

/// The exit statuses, as listed by `--help`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything was executed, and no command failed.
    Complete = 0,
    /// Some commands failed, some lines were rejected, or the input ended within a transaction. Each was reported.
    SomeFailed = 1,
    /// The command line is wrong, or its template doesn't fit the input.
    Usage = 2,
    /// An input can't be read, or only up to some place.
    Input = 3,
    /// The server is unreachable, refuses the login, or the connection broke for good.
    Server = 4,
    /// The report of errors or the state of the load can't be written.
    Output = 5,
    /// `--resume` isn't possible.
    Resume = 6,
    /// A signal asked to stop: 128 plus the number of SIGINT, as in shells.
    Interrupted = 130,
}

/// Reason for an early end: a one-line message and an exit status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status.
    pub exit: Exit,
    /// One line, without the program's name.
    pub message: String,
}

impl Failure {
    /// Creates a failure.
    pub fn new(exit: Exit, message: impl Into<String>) -> Failure {
        Failure { exit, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
