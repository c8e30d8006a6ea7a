//! The state of a connection that has waiting replies because it doesn't read them, or not as fast as they come. Its
//! times are those of the thread's own clock (`EventLoop::steady_ms`): the system's may be set back, and the waits
//! would not end.

use engine::replies::NoRoom;

/// A connection among those that take turns because the disk is behind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Turn {
    /// It is none of them.
    #[default]
    None,
    /// It waits in their queue.
    Queued,
    /// It is the next to run.
    Given,
}

/// The time that a client has to show that it reads.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Its end, in milliseconds.
    pub until_ms: u64,
    /// Bytes that waited when it was given.
    pub left: u64,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Backlog {
    /// Bytes of memory that count among those of all connections; none of a subscriber's or a monitor's.
    pub counted: Option<u64>,
    /// Bytes of memory that count among those that wait for the disk.
    pub leaving: u64,
    /// Bytes of disk that its file takes.
    pub disk_bytes: u64,
    /// Given while more waits than may stay in memory for long.
    pub patience: Option<Patience>,
    /// Since when more has waited than client-output-buffer-limit's soft limit, in milliseconds.
    pub over_soft_limit_since_ms: Option<u64>,
    /// Why more can't be put on disk, and when to try again, in milliseconds.
    pub trouble: Option<(NoRoom, u64)>,
    /// When to try again to read from the file, in milliseconds.
    pub read_again_ms: u64,
    /// Why the connection's requests wait, if they do.
    pub held: Option<NoRoom>,
    /// Whether it waits for a turn.
    pub turn: Turn,
    /// Since when they do, in milliseconds.
    pub held_since_ms: u64,
    /// When replies last got on, to the client or to the disk, or began to keep requests waiting; in
    /// milliseconds.
    pub moved_ms: u64,
    /// How long its thread may have waited for subscribers, all in all, while it still waits for this one; see
    /// `event_loop::lagging`.
    pub waited_for_until_us: u64,
    /// Lines of MONITOR that were dropped since it was last told.
    pub lines_dropped: u64,
}

impl Backlog {
    /// What to call the lack of room: what keeps replies from the disk, if anything does.
    #[must_use]
    pub fn cause(&self) -> NoRoom {
        self.trouble.map_or(NoRoom::Memory, |(cause, _)| cause)
    }
}
