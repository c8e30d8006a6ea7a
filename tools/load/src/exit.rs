//! Why a load ended, and the exit status that says so.

use std::fmt;

/// The exit statuses, as `--help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything was executed, and no command failed.
    Complete = 0,
    /// Some commands failed, some lines were no commands, or the input ended within a transaction; each was reported.
    SomeFailed = 1,
    /// The command line is wrong, or its template doesn't fit the input.
    Usage = 2,
    /// An input can't be read, or not any further.
    Input = 3,
    /// The server can't be reached, refuses the login, or the connection broke for good.
    Server = 4,
    /// The report of errors or the state of the load can't be written.
    Output = 5,
    /// `--resume` can't promise what it is for.
    Resume = 6,
    /// A signal asked to stop: 128 and the number of SIGINT, as shells count.
    Interrupted = 130,
}

/// What ended a load before its time: one line for the user, and the status to leave with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The status.
    pub exit: Exit,
    /// One line, without the program's name.
    pub message: String,
}

impl Failure {
    /// A failure with this status and text.
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
