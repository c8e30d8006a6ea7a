//! Errors, and the fate of the commands that they affect.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use resp::parse::{ReplyError, Value};

/// The reason for a failed call. Its text is one line for the user.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// An invalid URL or setting. No connection was attempted.
    Config(String),
    /// Connecting failed.
    Connect {
        /// Address of the server.
        address: String,
        /// The system's error.
        cause: Arc<io::Error>,
    },
    /// The connection broke or is no longer usable.
    Lost {
        /// Cause of the loss.
        cause: Lost,
        /// Fate of the command.
        fate: Fate,
    },
    /// The server sent an error reply.
    Server(ServerError),
    /// [`crate::Connection::command`] was called while this number of replies to earlier commands were unread.
    Unread(u64),
    /// Other clients changed the watched keys during each attempt. No change was made.
    Contended {
        /// Number of attempts.
        attempts: u32,
    },
    /// The command can't use the shared connection of a [`crate::Client`]: it changes the connection, or concerns the
    /// commands sent over it (WAIT), or is an empty request, which no server answers. It wasn't sent.
    NotShareable(String),
    /// A limit of the caller's settings was reached. The string is the field's name. Nothing was sent.
    Limit(&'static str),
    /// The server refused the MULTI of a transaction that was sent in one flight, and executed the commands after it
    /// one by one, except those with error replies. Commands of other clients may have run in between.
    NoTransaction {
        /// The error reply to MULTI.
        refused: ServerError,
        /// The replies to the commands.
        replies: Vec<Value>,
    },
    /// The server sent a reply that the command never has.
    Unexpected {
        /// The command.
        command: &'static str,
        /// The reply.
        reply: String,
    },
}

/// Cause of the end of a connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Lost {
    /// The server closed it.
    Closed,
    /// The system reported an error.
    Io(Arc<io::Error>),
    /// The server sent no byte of a pending reply for this time (`read_timeout`, plus the timeout of a blocking
    /// command).
    Silent(Duration),
    /// The server took no byte of a request for this time (`write_timeout`).
    Stuck(Duration),
    /// The server sent an invalid reply, or one beyond the limits on replies.
    Protocol(ReplyError),
}

/// Fate of a command without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// No byte of the command was sent. It has not run, and sending it again is safe.
    NotRun,
    /// The command was sent at least in part. It may have run, or may still run: its bytes may reach the server after
    /// those of a later connection.
    MayHaveRun,
    /// The server answered the command.
    Answered,
}

/// An error reply.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerError {
    text: Vec<u8>,
}

/// A pipeline that ended before its last reply.
#[derive(Clone, Debug)]
pub struct Interrupted {
    /// Reason for the end.
    pub error: Error,
    /// Number of commands, counted from the first, that were answered.
    pub answered: u64,
    /// Number of commands, counted from the first, that were sent at least in part. Commands from `answered` up to this
    /// number may have run; later ones have not.
    pub sent: u64,
}

impl Error {
    /// Returns true if the connection is no longer usable.
    #[must_use]
    pub fn is_connection_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Connect { .. })
    }

    /// Returns true if the reason is a timeout.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Lost { cause: Lost::Silent(_) | Lost::Stuck(_), .. } => true,
            Self::Connect { cause, .. } => cause.kind() == io::ErrorKind::TimedOut,
            _ => false,
        }
    }

    /// Returns the fate of the command.
    #[must_use]
    pub fn fate(&self) -> Fate {
        match self {
            Self::Lost { fate, .. } => *fate,
            Self::Server(_) | Self::NoTransaction { .. } | Self::Unexpected { .. } => Fate::Answered,
            Self::Config(_)
            | Self::Connect { .. }
            | Self::Unread(_)
            | Self::Contended { .. }
            | Self::NotShareable(_)
            | Self::Limit(_) => Fate::NotRun,
        }
    }

    /// Returns the server's error reply, if this is one.
    #[must_use]
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server(error) => Some(error),
            _ => None,
        }
    }

    /// Returns this error with another fate.
    pub(crate) fn with_fate(self, fate: Fate) -> Self {
        match self {
            Self::Lost { cause, .. } => Self::Lost { cause, fate },
            other => other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(text) => f.write_str(text),
            Self::Connect { address, cause } => write!(f, "can't connect to {address}: {}", system_text(cause)),
            Self::Lost { cause, fate: Fate::MayHaveRun } => write!(f, "{cause}; the command may have run or not"),
            Self::Lost { cause, .. } => cause.fmt(f),
            Self::Server(error) => error.fmt(f),
            Self::Unread(count) => write!(f, "replies of {count} commands sent before have to be read first"),
            Self::Contended { attempts } => {
                write!(f, "gave up: in each of {attempts} attempts others changed the keys")
            }
            Self::NotShareable(name) => {
                write!(
                    f,
                    "{name} affects its connection; send it over one of its own: Client::dedicated, Cluster::node_of"
                )
            }
            Self::Limit(name) => write!(f, "the limit {name} is reached; try again later or raise the limit"),
            Self::NoTransaction { refused, .. } => {
                write!(f, "MULTI was refused ({refused}); the commands after it ran one by one, not as a transaction")
            }
            Self::Unexpected { command, reply } => write!(f, "{command} was answered with {reply}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { cause, .. } | Self::Lost { cause: Lost::Io(cause), .. } => Some(cause.as_ref()),
            Self::Lost { cause: Lost::Protocol(error), .. } => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the server closed the connection"),
            Self::Io(error) => write!(f, "the connection broke: {}", system_text(error)),
            Self::Silent(waited) => write!(f, "no reply within {waited:?}"),
            Self::Stuck(waited) => write!(f, "the server accepted nothing for {waited:?}"),
            Self::Protocol(error) => write!(f, "the server sent an invalid reply: {error}"),
        }
    }
}

/// Returns the system's text for an error, without the additions of the standard library.
#[must_use]
pub fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

impl ServerError {
    /// Creates an error from the reply's text, without the leading `-`.
    #[must_use]
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self { text: text.into() }
    }

    /// Returns the reply, or an error for an error reply.
    pub(crate) fn check(reply: Value) -> Result<Value, Error> {
        match reply.error() {
            Some(text) => Err(Error::Server(Self::new(text))),
            None => Ok(reply),
        }
    }

    /// Returns the whole text.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the first word, which is the error code: `ERR`, `WRONGTYPE`, `NOSCRIPT`...
    #[must_use]
    pub fn code(&self) -> &[u8] {
        self.text.split(|&byte| byte == b' ').next().unwrap_or_default()
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-{}", self.text.escape_ascii())
    }
}

impl Interrupted {
    /// Returns the interruption with counts that exclude the first `n` commands.
    pub(crate) fn without_first(self, n: u64) -> Self {
        Self { answered: self.answered.saturating_sub(n), sent: self.sent.saturating_sub(n), ..self }
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The counts describe a pipeline better than the fate of a single command.
        write!(f, "{}; {} commands were answered", self.error.clone().with_fate(Fate::NotRun), self.answered)?;
        match self.sent - self.answered {
            0 => Ok(()),
            more => write!(f, ", {more} more may have run or not"),
        }
    }
}

impl std::error::Error for Interrupted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Converts an interruption to the fate of the whole pipeline.
impl From<Interrupted> for Error {
    fn from(interrupted: Interrupted) -> Self {
        let fate = if interrupted.sent == 0 { Fate::NotRun } else { Fate::MayHaveRun };
        interrupted.error.with_fate(fate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_words() {
        assert_eq!(system_text(&io::Error::from_raw_os_error(111)), "Connection refused");
        let lookup = io::Error::other("failed to lookup address information: Name or service not known");
        assert_eq!(system_text(&lookup), "Name or service not known");
    }
}
