//! The limits of one connection's turn, and the back-off between attempts to exclude other threads.

use statistics::ticks::{Ticks, per_microsecond};

/// The longest time of one connection's turn, in microseconds. Another connection waits for two turns if its request
/// arrives at the start of a turn and the next connection is read before it.
const YIELD_AFTER_US: f64 = 500.0;

/// The number of bytes in one thread's lane that the log has not taken beyond which commands that write wait: a tenth
/// of a second of writing at full speed.
pub(crate) const LANE_BYTES_MAX: usize = 64 << 20;

/// The back-off after two threads met at the gate, in microseconds: neither excludes others for this time. Busy threads
/// thus wait once in that time for one excluded group, some ten microseconds.
const MEETING_US: f64 = 10_000.0;

/// The limits of one connection's turn.
pub(crate) struct Pace {
    /// The time.
    pub turn_ticks: u64,
    /// The number of reply bytes after which a turn ends, so that they are sent or spilled.
    pub reply_bytes_max: usize,
    /// A lower limit of reply bytes for the next connection.
    pub turn_bytes_max: usize,
}

impl Default for Pace {
    fn default() -> Pace {
        let turn_ticks = (YIELD_AFTER_US * per_microsecond()) as u64;
        Pace { turn_ticks, reply_bytes_max: 0, turn_bytes_max: usize::MAX }
    }
}

impl Pace {
    /// Returns the number of reply bytes after which the next connection's turn ends.
    pub(crate) fn reply_bytes_max(&self) -> usize {
        self.reply_bytes_max.min(self.turn_bytes_max)
    }
}

/// A thread's memory of meeting others at the gate.
pub(crate) struct ExclusiveBackoff {
    /// The time after a meeting in which it doesn't exclude others.
    pub pause_ticks: u64,
    /// The number of waits at the closed gate at the last meeting.
    waits: usize,
    met_at: Ticks,
}

impl ExclusiveBackoff {
    /// The state at the start. A single thread never needs to exclude others.
    pub(crate) fn new(is_alone: bool) -> ExclusiveBackoff {
        let pause_ticks = if is_alone { u64::MAX } else { (MEETING_US * per_microsecond()) as u64 };
        ExclusiveBackoff { pause_ticks, waits: 0, met_at: Ticks::now() }
    }

    /// Returns whether it has met another thread a moment ago.
    #[inline]
    pub(crate) fn has_just_met(&self, now: Ticks) -> bool {
        now.since(self.met_at) < self.pause_ticks
    }

    /// Returns whether a thread has found the gate closed since the last meeting.
    #[inline]
    pub(crate) fn has_made_wait(&self, waits: usize) -> bool {
        waits != self.waits
    }

    /// Notes a meeting with another thread.
    #[inline]
    pub(crate) fn meet(&mut self, waits: usize, now: Ticks) {
        (self.waits, self.met_at) = (waits, now);
    }

    /// Returns the time of the last meeting.
    #[cfg(test)]
    pub(crate) fn met_at(&self) -> Ticks {
        self.met_at
    }
}
