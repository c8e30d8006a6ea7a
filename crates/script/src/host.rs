//! What a script needs of the world: the engine implements it.

use resp::reply::{Output, Proto};
use resp::request::Args;

/// Whether a script may go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It may.
    Go,
    /// It has to end, whatever it catches.
    End,
}

/// Levels of `redis.log`, as `redis.LOG_DEBUG` and its like name them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the names are Redis's")]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
}

/// What access rules say of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The script's user may give it.
    Allowed,
    /// It may not.
    Denied,
    /// There is no such command.
    NoCommand,
    /// It takes another number of arguments.
    WrongArity,
}

/// The world around a script that runs.
pub trait Host {
    /// Runs a command for the script. Its reply, or the error by which it is refused, goes to `reply`.
    fn call(&mut self, args: Args<'_>, proto: Proto, reply: &mut Output) -> Verdict;

    /// Called from time to time while a script runs, wherever it is: the host checks how long it has run and whether it
    /// was killed. The host may serve other clients meanwhile, but run no script.
    fn poll(&mut self) -> Verdict;

    /// Writes into the server's log.
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// Whether the script's user may give a command.
    fn access(&mut self, args: Args<'_>) -> Access;

    /// Told of every error that the script's reply contains: `text` begins with the error's code. `is_new`: no command
    /// has made it.
    fn error_returned(&mut self, text: &[u8], is_new: bool);
}
