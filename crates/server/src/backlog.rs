//! The state of a connection with unsent replies: its client reads none, or reads slower than replies arise. All times are of the thread's
//! own clock (`EventLoop::steady_ms`). The system's clock may be set back, and delays by it would not end.

use std::time::Duration;

use engine::replies::NoRoom;

/// A connection's place among those that take turns because the disk is behind.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Turn {
    /// Not among them.
    #[default]
    None,
    /// In their queue.
    Queued,
    /// Next to run.
    Given,
}

/// A client's grace period to show that it reads.
#[derive(Clone, Copy, Debug)]
pub struct GracePeriod {
    /// End of the period, in milliseconds.
    pub until_ms: u64,
    /// Unsent bytes at the start of the period.
    pub left: u64,
}

/// The time for which a client has read nothing, as far as the thread could notice.
///
/// The thread checks every [`TICK`]. One check adds a limited time: a long script or a busy machine keeps the thread from sending, and that
/// time must not count against the client.
///
/// [`TICK`]: crate::poller::TICK
#[derive(Clone, Copy, Default, Debug)]
pub struct Stall {
    moved: bool,
    time: Duration,
}

impl Stall {
    /// The most that one check adds.
    pub const LOOK_MAX: Duration = Duration::from_millis(200);

    /// Notes that replies begin to hold requests up. The time is kept if replies also held them up at the last check: the requests were
    /// released in between, but no reply moved.
    pub fn note_hold(&mut self) {
        self.moved |= self.time.is_zero();
    }

    /// Notes that replies hold no requests up.
    pub fn end(&mut self) {
        *self = Stall::default();
    }

    /// Notes that replies moved, to the client or to the disk.
    pub fn note_move(&mut self) {
        self.moved = true;
    }

    /// Adds the time since the thread's last check, unless replies have moved since. Returns the sum.
    pub fn look(&mut self, since_last: Duration) -> Duration {
        let moved = std::mem::take(&mut self.moved);
        self.time = if moved { Duration::ZERO } else { self.time + since_last.min(Stall::LOOK_MAX) };
        self.time
    }
}

/// The unsent replies of a connection, in figures.
#[derive(Default)]
pub struct Backlog {
    /// Bytes of memory that count towards the total of all connections. None for a subscriber or a monitor.
    pub counted: Option<u64>,
    /// Bytes of memory that count towards the total on its way to disk.
    pub leaving: u64,
    /// Bytes of its file on disk.
    pub disk_bytes: u64,
    /// The grace period while more replies are unsent than may stay in memory for long.
    pub grace_period: Option<GracePeriod>,
    /// Start of the time above the soft limit of client-output-buffer-limit, in milliseconds.
    pub over_soft_limit_since_ms: Option<u64>,
    /// The reason why no more can go to disk, and the time of the next try, in milliseconds.
    pub blocked_by: Option<(NoRoom, u64)>,
    /// Time of the next try to read from the file, in milliseconds.
    pub read_again_ms: u64,
    /// The reason why the connection's requests are held up, if they are.
    pub held: Option<NoRoom>,
    /// The connection's place among those that take turns.
    pub turn: Turn,
    /// Start of the hold on its requests, in milliseconds.
    pub held_since_ms: u64,
    /// The time for which no reply has moved while replies hold requests up.
    pub stall: Stall,
    /// The thread waits for this subscriber until its total time of waiting for subscribers reaches this limit: see `event_loop::lagging`.
    pub waited_for_until_us: u64,
    /// Lines of MONITOR dropped since the last notice to the client.
    pub lines_dropped: u64,
}

impl Backlog {
    /// The name of the lack of room: the obstacle that keeps replies from the disk, or else memory.
    #[must_use]
    pub fn cause(&self) -> NoRoom {
        self.blocked_by.map_or(NoRoom::Memory, |(cause, _)| cause)
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
    fn a_hold_that_returns_before_the_next_check_keeps_its_time() {
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
