//! How long one connection may have the thread, and when the thread tries to be alone among all keys.

use crate::machine::ticks::{Ticks, per_microsecond};

/// How long one connection may keep its thread from the others, in microseconds. Another one waits for two such turns,
/// if its request comes when the first has just begun and the next is read before it.
const YIELD_AFTER_US: f64 = 500.0;

/// Bytes of units of one thread that the log has not taken, beyond which commands that write wait: a tenth of a second of
/// writing at full speed.
pub(crate) const LANE_BYTES_MAX: usize = 64 << 20;

/// Back-off after two threads met at the gate, in microseconds: neither keeps others out for so long. Where several are
/// busy they wait once in that time for what one runs meanwhile, some ten microseconds.
const MEETING_US: f64 = 10_000.0;

/// How long one connection may keep the thread from the others.
pub(crate) struct Pace {
    /// In time.
    pub turn_ticks: u64,
    /// Bytes of replies after which a connection's turn ends, so that they are sent or put elsewhere.
    pub reply_bytes_max: usize,
    /// The same for the connection that is to run, if less.
    pub turn_bytes_max: usize,
}

impl Default for Pace {
    fn default() -> Pace {
        let turn_ticks = (YIELD_AFTER_US * per_microsecond()) as u64;
        Pace { turn_ticks, reply_bytes_max: 0, turn_bytes_max: usize::MAX }
    }
}

impl Pace {
    /// Bytes of replies after which the turn of the connection that is to run ends.
    pub(crate) fn reply_bytes_max(&self) -> usize {
        self.reply_bytes_max.min(self.turn_bytes_max)
    }
}

/// What a thread remembers of meeting others at the gate.
pub(crate) struct Company {
    /// How long it does not keep others out after it has met one.
    pub pause_ticks: u64,
    /// How often threads had found the gate closed then.
    waits: usize,
    met_at: Ticks,
}

impl Company {
    /// What a thread remembers at its start. One that is the only one never needs to keep others out.
    pub(crate) fn new(is_alone: bool) -> Company {
        let pause_ticks = if is_alone { u64::MAX } else { (MEETING_US * per_microsecond()) as u64 };
        Company { pause_ticks, waits: 0, met_at: Ticks::now() }
    }

    /// True if it has met another thread a moment ago.
    #[inline]
    pub(crate) fn has_just_met(&self, now: Ticks) -> bool {
        now.since(self.met_at) < self.pause_ticks
    }

    /// True if a thread has found the gate closed since the last meeting.
    #[inline]
    pub(crate) fn has_made_wait(&self, waits: usize) -> bool {
        waits != self.waits
    }

    /// It has met another thread.
    #[inline]
    pub(crate) fn meet(&mut self, waits: usize, now: Ticks) {
        (self.waits, self.met_at) = (waits, now);
    }

    /// When it last met one.
    #[cfg(test)]
    pub(crate) fn met_at(&self) -> Ticks {
        self.met_at
    }
}
