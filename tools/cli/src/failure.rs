//! Reasons for a missing reply.

use client::{Error, Lost, system_text};
use resp::parse::ReplyError;
use std::fmt;
use std::io;

/// The reason for a missing reply.
#[derive(Debug)]
pub enum Failure {
    /// There is no connection. The error was printed already.
    NotConnected,
    /// The connection broke.
    Lost(Error),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// Standard output is closed or full.
    Output(io::Error),
    /// Any other reason, as a message for the user.
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

/// Formats the message for standard error. It is empty if the user needs no message.
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
    /// Returns true if the connection broke without a protocol error.
    pub fn is_broken_connection(&self) -> bool {
        matches!(self, Self::Lost(error) if !matches!(error, Error::Lost { cause: Lost::Protocol(_), .. }))
    }

    /// Returns the exit status for this failure.
    pub fn exit_status(&self) -> u8 {
        match self {
            // Shells report these statuses for a program that SIGPIPE or SIGINT ended.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => 141,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}

/// Formats a connection error in redis-cli's words.
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
