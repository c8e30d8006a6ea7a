//! The interface of scripts to the server, which the engine implements.

use resp::reply::{Output, Proto};
use resp::request::Args;

/// The host's decision about a running script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The script may go on.
    Go,
    /// The script has to end, whatever errors it catches.
    End,
}

/// Levels of `redis.log`, named `redis.LOG_DEBUG` and so on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "the names are Redis's")]
pub enum LogLevel {
    Debug,
    Verbose,
    Notice,
    Warning,
}

/// The access rules' decision about a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The script's user may run the command.
    Allowed,
    /// The user may not run the command.
    Denied,
    /// The command does not exist.
    NoCommand,
    /// The number of arguments is wrong.
    WrongArity,
}

/// The server, as a running script sees it.
pub trait Host {
    /// Runs a command for the script. Writes its reply, or the error that refuses it, to `reply`.
    fn call(&mut self, args: Args<'_>, proto: Proto, reply: &mut Output) -> Verdict;

    /// Called regularly while a script runs, in Lua code and in library functions: the host checks the script's time
    /// and whether it was killed. The host may serve other clients meanwhile, but must not run another script.
    fn poll(&mut self) -> Verdict;

    /// Writes to the server's log.
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// Returns whether the script's user may run a command.
    fn access(&mut self, args: Args<'_>) -> Access;

    /// Chooses whether the following commands go to the append-only file, to replicas, to both or to neither.
    fn replicate(&mut self, to_file: bool, to_replicas: bool);

    /// Called for every error in the script's reply: `text` begins with the error code. `is_new` is true if the error
    /// doesn't come from a command.
    fn error_returned(&mut self, text: &[u8], is_new: bool);
}
