//! How a command ended, and how a batch did.

/// How a command ended, for its batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// The next may run.
    Next,
    /// The next may run, once it has been framed again: the session has changed how.
    Reframe,
    /// The command has parked the connection.
    Park,
    /// The command has to wait, and was not run.
    Pause,
    /// The same, for room in an inbox for what it publishes.
    AwaitRoom,
    /// Nothing more of this connection is run.
    Close,
    /// The same, and the command was not run either: the connection has been ended meanwhile.
    Gone,
}

/// What became of a connection's requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    /// All complete requests have run; more input is needed.
    Idle,
    /// The connection has used up its time for now, and has more to run.
    Yielded,
    /// It waits in a blocking command.
    Parked,
    /// CLIENT PAUSE holds it back; a primary's stream, a script that takes too long.
    Paused,
    /// There is no room in an inbox for what it publishes.
    Overfilled,
    /// There is no room in the log for what it writes.
    AwaitsLog,
    /// It is to be closed once its replies are sent.
    Closing,
}
