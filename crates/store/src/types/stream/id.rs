//! The ID of an entry: a time and a number within it.

use std::fmt;

/// What entries are ordered by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId {
    /// Milliseconds of Unix time, where the server made the ID.
    pub ms: u64,
    /// Which of those with the same time.
    pub seq: u64,
}

impl StreamId {
    /// Before every entry, and none's ID.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The last that there can be.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The ID of these two numbers.
    #[must_use]
    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// The next one; none after the last.
    #[must_use]
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The one before; none before the first.
    #[must_use]
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// The ID that an entry gets which is added now: with the present time, or, if the clock was ahead once, the next
    /// after the last. None if the last possible one is used.
    #[must_use]
    pub fn after(self, now_ms: u64) -> Option<StreamId> {
        if now_ms > self.ms { Some(StreamId { ms: now_ms, seq: 0 }) } else { self.next() }
    }

    /// Whether it is 0-0.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == StreamId::MIN
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}
