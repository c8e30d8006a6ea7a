//! The ID of an entry: a time and a sequence number.

use std::fmt;

/// The ID by which entries are ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId {
    /// Milliseconds of Unix time, if the server made the ID.
    pub ms: u64,
    /// Sequence number among IDs with the same time.
    pub seq: u64,
}

impl StreamId {
    /// The lowest ID, which is before every entry; no entry has it.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The highest ID.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// Returns the ID of these two numbers.
    #[must_use]
    pub const fn new(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    /// Returns the next ID; None after the last.
    #[must_use]
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// Returns the previous ID; None before the first.
    #[must_use]
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Returns the ID of an entry that is added now: with the present time, or the next after this ID if the clock was
    /// ahead once. None if the highest ID is used.
    #[must_use]
    pub fn after(self, now_ms: u64) -> Option<StreamId> {
        if now_ms > self.ms { Some(StreamId { ms: now_ms, seq: 0 }) } else { self.next() }
    }

    /// Returns true if it is 0-0.
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
