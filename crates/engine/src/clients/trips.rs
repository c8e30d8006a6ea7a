//! What a connection's thread remembers of its batches, so that round trips can be told from pipelines.

use crate::machine::ticks::Ticks;

/// The state between two batches of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Trips {
    /// Its place among those that the thread watches for the advisor, if it still has that: see [`crate::advice`].
    pub(crate) place: u32,
    /// Commands of the batch so far, while it is not complete.
    pub(crate) commands: u32,
    /// True if the client has sent more before it could have the replies to the last batch.
    pub(crate) overlaps: bool,
    /// True while replies to the last batch wait to be sent.
    pub(crate) is_unsent: bool,
    /// When the turn began in which the first bytes of the present batch arrived, if its commands did not run in that turn.
    pub(crate) begun: Option<Ticks>,
    /// When its last replies were sent.
    pub(crate) replied: Option<Ticks>,
    /// Commands of the present batch that have arrived, where a monitor wants to know; 0: not counted yet.
    pub(crate) depth: u32,
    /// Bits of the monitors that were told of the present batch.
    pub(crate) announced: u64,
    /// Its commands so far when it had last been sent all replies.
    pub(crate) answered: u64,
}

impl Default for Trips {
    fn default() -> Trips {
        Trips {
            place: u32::MAX,
            commands: 0,
            overlaps: false,
            is_unsent: false,
            begun: None,
            replied: None,
            depth: 0,
            announced: 0,
            answered: 0,
        }
    }
}

impl Trips {
    /// Notes that more has arrived.
    #[inline]
    pub fn note_arrival(&mut self) {
        self.overlaps |= self.is_unsent;
    }

    /// Notes that all replies have been sent, at an unknown time.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn note_sent(&mut self) {
        self.is_unsent = false;
    }
}
