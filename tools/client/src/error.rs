//! What can go wrong, and whether a command may have run all the same.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use resp::parse::{ReplyError, Value};

/// Why a call failed. The text is one line for the user.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A URL or setting that makes no sense; nothing was tried.
    Config(String),
    /// No connection came about.
    Connect {
        /// Where to.
        address: String,
        /// What the system said.
        cause: Arc<io::Error>,
    },
    /// The connection broke or is no longer usable.
    Lost {
        /// How.
        cause: Lost,
        /// What became of the command.
        fate: Fate,
    },
    /// The server answered with an error.
    Server(ServerError),
    /// [`crate::Connection::command`] was called while replies of so many commands sent before are unread.
    Unread(u64),
    /// Others changed the watched keys during each of so many attempts; nothing was done.
    Contended {
        /// How often it was tried.
        attempts: u32,
    },
    /// This command changes its connection, which a [`crate::Client`] shares between callers, or speaks of what was
    /// sent over it (WAIT), or is a request of nothing, which no server answers; nothing was sent.
    NotShareable(String),
    /// A limit of the caller's own settings (the field's name) was reached; nothing was sent.
    Limit(&'static str),
    /// The server refused the MULTI of a transaction that was sent in one flight, and answered the commands behind it
    /// each on its own: as far as the replies don't say otherwise they ran, one by one, perhaps with others' in
    /// between.
    NoTransaction {
        /// Why MULTI was refused.
        refused: ServerError,
        /// What the commands were answered.
        replies: Vec<Value>,
    },
    /// The server answered with something that the command never answers.
    Unexpected {
        /// What was asked.
        command: &'static str,
        /// What came.
        reply: String,
    },
}

/// How a connection ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Lost {
    /// The server closed it.
    Closed,
    /// The system reported an error.
    Io(Arc<io::Error>),
    /// No byte of an expected reply came for so long (`read_timeout`, and what a blocking command was given beside it).
    Silent(Duration),
    /// The server took no byte of a request for so long (`write_timeout`).
    Stuck(Duration),
    /// What came is no reply, or exceeds the limits on replies.
    Protocol(ReplyError),
}

/// What is known about a command whose reply didn't come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// No byte of it was sent: it has not run, and sending it again is safe.
    NotRun,
    /// It was sent at least in part, and no reply came: it may have run or not, and may yet: its bytes can reach the
    /// server after what is sent over a later connection.
    MayHaveRun,
    /// The server answered it.
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
    /// Why.
    pub error: Error,
    /// So many commands, from the first on, were answered.
    pub answered: u64,
    /// So many commands, from the first on, were sent at least in part. Those from `answered` to here may have run;
    /// those from here on have not.
    pub sent: u64,
}

impl Error {
    /// Whether the connection can't be used any further.
    #[must_use]
    pub fn is_connection_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Connect { .. })
    }

    /// Whether a time limit was the reason.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Lost { cause: Lost::Silent(_) | Lost::Stuck(_), .. } => true,
            Self::Connect { cause, .. } => cause.kind() == io::ErrorKind::TimedOut,
            _ => false,
        }
    }

    /// What became of the command that this error is about.
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

    /// The server's error reply, if it is one.
    #[must_use]
    pub fn server(&self) -> Option<&ServerError> {
        match self {
            Self::Server(error) => Some(error),
            _ => None,
        }
    }

    /// The same about a command of this fate.
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
                write!(f, "{name} concerns its connection, which callers share; use Client::dedicated for it")
            }
            Self::Limit(name) => write!(f, "the limit {name} is reached; try again later, or raise it"),
            Self::NoTransaction { refused, .. } => {
                write!(f, "MULTI was refused ({refused}); the commands behind it ran one by one, not as a transaction")
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
            Self::Protocol(error) => write!(f, "the server sent what is no reply: {error}"),
        }
    }
}

/// The system's words for an error, without what the standard library says around them.
#[must_use]
pub fn system_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

impl ServerError {
    /// From the reply's text, without the leading `-`.
    #[must_use]
    pub fn new(text: impl Into<Vec<u8>>) -> Self {
        Self { text: text.into() }
    }

    /// The reply itself, or the error that it is.
    pub(crate) fn check(reply: Value) -> Result<Value, Error> {
        match reply.error() {
            Some(text) => Err(Error::Server(Self::new(text))),
            None => Ok(reply),
        }
    }

    /// The whole text.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The first word, by which programs tell errors apart: `ERR`, `WRONGTYPE`, `NOSCRIPT`...
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
    /// The same about the commands without the first `n`.
    pub(crate) fn without_first(self, n: u64) -> Self {
        Self { answered: self.answered.saturating_sub(n), sent: self.sent.saturating_sub(n), ..self }
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The counts say more about a pipeline than the fate of a single command.
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

/// For callers of a pipeline that need no details: the fate of the whole.
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
