//! Reasons for an early end, with a one-line message and an exit status.

use std::fmt;
use std::io;
use std::process::ExitCode;

use crate::generator;

/// A reason for an early end.
#[derive(Debug)]
pub enum Failure {
    /// The arguments are invalid (status 2).
    Usage(String),
    /// The server is unreachable, refuses, or closes the connection (1).
    Server(String),
    /// Ctrl-C (130, as in shells).
    Interrupted,
    /// Ctrl-C before a report was complete that is only written as a whole (130).
    InterruptedReport,
    /// A local operation failed, for example writing a file (1).
    Local(String),
    /// The run ended for this reason and left keys of the benchmark on a server; the text names them. The status is the
    /// reason's, or 1 if the reason's is 0.
    KeysLeft(Box<Failure>, String),
    /// Standard output was closed (0: the reader of the pipe has seen enough).
    OutputClosed,
}

/// Exit statuses, as documented in `--help`.
const STATUS_FAILED: u8 = 1;
const STATUS_USAGE: u8 = 2;
pub const STATUS_INTERRUPTED: u8 = 130;

impl Failure {
    /// Returns the exit status.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => STATUS_USAGE.into(),
            Failure::Server(_) | Failure::Local(_) => STATUS_FAILED.into(),
            Failure::Interrupted | Failure::InterruptedReport => STATUS_INTERRUPTED.into(),
            Failure::KeysLeft(why, _) if matches!(**why, Failure::OutputClosed) => STATUS_FAILED.into(),
            Failure::KeysLeft(why, _) => why.exit_code(),
            Failure::OutputClosed => ExitCode::SUCCESS,
        }
    }

    /// Returns the failure with another reason. A note on remaining keys is kept.
    #[must_use]
    pub fn because(self, why: Failure) -> Failure {
        match self {
            Failure::KeysLeft(_, left) => Failure::KeysLeft(Box::new(why), left),
            _ => why,
        }
    }

    /// Returns the reason alone, if the remaining keys are determined later.
    #[must_use]
    pub fn reason(self) -> Failure {
        match self {
            Failure::KeysLeft(why, _) => *why,
            other => other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Server(text) | Failure::Local(text) => f.write_str(text),
            Failure::Interrupted => f.write_str("interrupted"),
            Failure::InterruptedReport => f.write_str("interrupted; no report was written"),
            Failure::KeysLeft(why, left) => write!(f, "{why}; {left}"),
            Failure::OutputClosed => f.write_str("the output was closed"),
        }
    }
}

/// Returns the first failure of two results. A note on remaining keys is kept in any case.
pub fn both<T>(first: Result<T, Failure>, then: Result<(), Failure>) -> Result<T, Failure> {
    match (first, then) {
        (Err(Failure::KeysLeft(why, these)), Err(Failure::KeysLeft(_, those))) => {
            Err(Failure::KeysLeft(why, format!("{these}; {those}")))
        }
        (Err(why), Err(left)) => Err(left.because(why)),
        (first, then) => first.and_then(|done| then.map(|()| done)),
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Failure {
        match error {
            client::Error::Config(text) => Failure::Usage(text),
            // redis-benchmark's text. Scripts search for it.
            client::Error::Server(error) => Failure::Server(format!("Error from server: {error}")),
            other => Failure::Server(other.to_string()),
        }
    }
}

impl From<client::Interrupted> for Failure {
    fn from(interrupted: client::Interrupted) -> Failure {
        Failure::Server(interrupted.to_string())
    }
}

impl From<generator::RunFailure> for Failure {
    fn from(failure: generator::RunFailure) -> Failure {
        Failure::Server(failure.to_string())
    }
}

/// Converts errors of printing. Errors of files get the file's name at their source.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::OutputClosed,
            _ => Failure::Local(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Failure {
        Failure::Server("gone".to_owned())
    }

    fn left(why: Failure, keys: &str) -> Failure {
        Failure::KeysLeft(Box::new(why), keys.to_owned())
    }

    #[test]
    fn remaining_keys_are_reported_with_the_first_reason() {
        let check = |first, then, text: &str| assert_eq!(both(first, then).unwrap_err().to_string(), text);
        check(Err(Failure::Interrupted), Err(left(server(), "a key")), "interrupted; a key");
        check(Err(left(server(), "a key")), Err(left(Failure::Interrupted, "another")), "gone; a key; another");
        check(Err(left(server(), "a key")), Ok(()), "gone; a key");
        check(Err(server()), Err(Failure::Interrupted), "gone");
        check(Ok(()), Err(left(server(), "a key")), "gone; a key");
        assert!(both(Ok(7), Ok(())).is_ok_and(|done| done == 7));
    }

    #[test]
    fn remaining_keys_are_always_a_failure() {
        let check = |failure: Failure, status: u8| assert_eq!(failure.exit_code(), ExitCode::from(status));
        check(left(Failure::OutputClosed, "a key"), STATUS_FAILED);
        check(left(Failure::Interrupted, "a key"), STATUS_INTERRUPTED);
        check(left(server(), "a key"), STATUS_FAILED);
    }
}
