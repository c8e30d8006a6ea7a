//! The state of a connection that has waiting replies because it doesn't read them, or not as fast as they come. Its
//! times are those of the thread's own clock (`EventLoop::steady_ms`): the system's may be set back, and the waits
//! would not end.

use std::time::Duration;

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

/// How long a client has read nothing, as far as the thread would have seen it read.
///
/// The thread looks every [`TICK`]. What it adds for one look is limited: a long script, or a busy machine, keeps the
/// thread from sending, and that time must not count against the client.
///
/// [`TICK`]: crate::poller::TICK
#[derive(Clone, Copy, Default, Debug)]
pub struct Stall {
    moved: bool,
    time: Duration,
}

impl Stall {
    /// The most that one look adds.
    pub const LOOK_MAX: Duration = Duration::from_millis(200);

    /// Notes that replies begin to hold requests up. If they also did when the thread last looked, the time is not
    /// reset: the requests were released in between, and no reply has moved.
    pub fn note_hold(&mut self) {
        self.moved |= self.time.is_zero();
    }

    /// Notes that replies hold no requests up.
    pub fn end(&mut self) {
        *self = Stall::default();
    }

    /// Notes that replies have moved, to the client or to the disk.
    pub fn note_move(&mut self) {
        self.moved = true;
    }

    /// Adds the time since the thread last looked, unless replies have moved since. Returns the sum.
    pub fn look(&mut self, since_last: Duration) -> Duration {
        let moved = std::mem::take(&mut self.moved);
        self.time = if moved { Duration::ZERO } else { self.time + since_last.min(Stall::LOOK_MAX) };
        self.time
    }
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
    /// How long replies have not moved while they hold requests up.
    pub stall: Stall,
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

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(100);

    #[test]
    fn replies_that_do_not_move_are_stalled_for_as_long_as_the_thread_looks() {
        let mut stall = Stall::default();
        stall.note_move();
        assert_eq!(stall.look(LOOK), Duration::ZERO);
        assert_eq!((1..=20).map(|_| stall.look(LOOK)).last(), Some(20 * LOOK));
        stall.note_move();
        assert_eq!((stall.look(LOOK), stall.look(LOOK)), (Duration::ZERO, LOOK));
    }

    #[test]
    fn what_holds_requests_up_again_before_the_next_look_has_not_moved() {
        let mut stall = Stall::default();
        stall.note_hold();
        assert_eq!((stall.look(LOOK), stall.look(LOOK)), (Duration::ZERO, LOOK));
        stall.note_hold();
        assert_eq!(stall.look(LOOK), 2 * LOOK);
        stall.end();
        stall.note_hold();
        assert_eq!(stall.look(LOOK), Duration::ZERO);
    }

    #[test]
    fn time_in_which_the_thread_did_not_look_does_not_count() {
        let mut stall = Stall::default();
        assert_eq!(stall.look(Duration::from_secs(3600)), Stall::LOOK_MAX);
    }
}
