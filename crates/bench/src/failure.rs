//! Why a tool ends early: one line for the user, and the status that the shell sees.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::generator;

/// What the user is told and the status that goes with it.
#[derive(Debug)]
pub enum Failure {
    /// The arguments make no sense (2).
    Usage(String),
    /// The server can't be reached, refuses, or breaks off (1).
    Server(String),
    /// Ctrl-C (130, as shells report it).
    Interrupted,
    /// Ctrl-C before there was all of a report that is written only as a whole (130).
    InterruptedReport,
    /// Something on this machine failed: a file that can't be written (1).
    Local(String),
    /// Nobody reads what we print any more (0: whoever closed the pipe has seen enough).
    OutputClosed,
}

/// Statuses: documented in `--help`.
const STATUS_FAILED: u8 = 1;
const STATUS_USAGE: u8 = 2;
const STATUS_INTERRUPTED: u8 = 130;

impl Failure {
    /// The status of the process.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => STATUS_USAGE.into(),
            Failure::Server(_) | Failure::Local(_) => STATUS_FAILED.into(),
            Failure::Interrupted | Failure::InterruptedReport => STATUS_INTERRUPTED.into(),
            Failure::OutputClosed => ExitCode::SUCCESS,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Server(text) | Failure::Local(text) => f.write_str(text),
            Failure::Interrupted => f.write_str("interrupted"),
            Failure::InterruptedReport => f.write_str("interrupted; no report was written"),
            Failure::OutputClosed => f.write_str("the output was closed"),
        }
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Failure {
        match error {
            client::Error::Config(text) => Failure::Usage(text),
            client::Error::Server(error) => Failure::Server(format!("error from server: {error}")),
            other => Failure::Server(other.to_string()),
        }
    }
}

impl From<client::Interrupted> for Failure {
    fn from(interrupted: client::Interrupted) -> Failure {
        Failure::Server(interrupted.to_string())
    }
}

impl From<generator::Failure> for Failure {
    fn from(failure: generator::Failure) -> Failure {
        Failure::Server(failure.to_string())
    }
}

/// Errors of printing; those of files are given their names where they happen.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Local(error.to_string()),
        }
    }
}
