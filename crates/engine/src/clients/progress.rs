//! The progress of a batch.

/// The progress of a batch after a command, and of a connection after a batch: the next command may run, or the reason why it
/// may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The next command may run. Of a batch: all complete requests have run.
    Ready,
    /// The next command may run after it is framed again, because the session's framing has changed. A batch never ends
    /// with this outcome.
    Reframe,
    /// The connection has used up its time slice and has more to run.
    Yielded,
    /// The connection waits in a blocking command.
    Parked,
    /// CLIENT PAUSE, a primary's stream or a busy script holds the connection back. The command did not run.
    Paused,
    /// An inbox lacks room for the message that the command publishes. The command did not run.
    AwaitsRoom,
    /// The log lacks room for the commands that the connection writes.
    AwaitsLog,
    /// Many of the connection's replies wait for the disk. Only the server's loop gives this outcome.
    AwaitsDisk,
    /// Other nodes run earlier commands of the connection, and this one must run after them. The command did not run.
    AwaitsNodes,
    /// The unread replies fill their memory. Only the server's loop gives this outcome.
    AwaitsReader,
    /// The connection was ended by another thread, and the command did not run. A batch ends as `Closing` then.
    Gone,
    /// The connection runs no more commands and closes once its replies are sent.
    Closing,
}
