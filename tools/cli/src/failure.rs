//! Why there is no reply to print.

use client::{Error, Lost, system_text};
use resp::parse::ReplyError;
use std::fmt;
use std::io;

/// Why a command has no reply.
#[derive(Debug)]
pub enum Failure {
    /// There is no connection, which was said already.
    NotConnected,
    /// The connection broke.
    Lost(Error),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// Standard output takes nothing more.
    Output(io::Error),
    /// Anything else, in a line for the user.
    Other(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Lost(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// What to say on standard error; empty where there is nothing to say.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected | Self::Interrupted => Ok(()),
            Self::Lost(error) => write!(f, "Error: {}", lost_text(error)),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Self::Output(error) => write!(f, "penstock cli: can't write to standard output: {}", system_text(error)),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl Failure {
    /// Whether the connection broke, to a server that spoke the protocol until then.
    pub fn is_broken_connection(&self) -> bool {
        matches!(self, Self::Lost(error) if !matches!(error, Error::Lost { cause: Lost::Protocol(_), .. }))
    }

    /// The exit status that tells a shell of it.
    pub fn exit_status(&self) -> u8 {
        match self {
            // What a shell reports of a program that SIGPIPE or SIGINT ended.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 141,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}

/// redis-cli's words for a broken connection.
fn lost_text(error: &Error) -> String {
    match error {
        Error::Lost { cause: Lost::Closed, .. } => "Server closed the connection".to_owned(),
        Error::Lost { cause: Lost::Io(error), .. } => system_text(error),
        Error::Lost { cause: Lost::Protocol(ReplyError::UnknownType(byte)), .. } => {
            format!("Protocol error, got \"{}\" as reply type byte", byte.escape_ascii())
        }
        other => other.to_string(),
    }
}
