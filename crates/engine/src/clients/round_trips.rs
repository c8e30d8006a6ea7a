//! A worker's record of a connection's batches, to tell round trips from pipelines.

use statistics::ticks::Ticks;

/// The state between two batches of a connection.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrips {
    /// The connection's index among those that the thread samples for the advisor, if it still has one: see
    /// [`crate::advice`].
    pub(crate) place: u32,
    /// Number of commands of the incomplete batch so far.
    pub(crate) commands: u32,
    /// True if the client sent more before it could have received the replies to the last batch.
    pub(crate) overlaps: bool,
    /// True while replies to the last batch are unsent.
    pub(crate) is_unsent: bool,
    /// Start of the turn that received the first bytes of the present batch, if its commands did not run in that turn.
    pub(crate) begun: Option<Ticks>,
    /// Time at which the last replies were sent.
    pub(crate) replied: Option<Ticks>,
    /// Number of received commands of the present batch, if a monitor asks for it; 0 if not counted yet.
    pub(crate) depth: u32,
    /// Bits of the monitors that were told about the present batch.
    pub(crate) announced: u64,
    /// Number of redirected commands of the present batch (MOVED).
    pub(crate) redirected: u32,
    /// Number of its commands when all replies had last been sent.
    pub(crate) answered: u64,
    /// The network's part of a round trip in microseconds, if the kernel has measured it.
    pub(crate) network_us: Option<u32>,
    /// Number of sends so far, up to the next measurement, and the number of sends at which it is due.
    sent: u16,
    measured_at: u16,
}

/// Largest number of sends between two measurements of the network. The first ones follow each other after 1, 2, 4, ...
const MEASURED_EVERY: u16 = 1024;

impl Default for RoundTrips {
    fn default() -> RoundTrips {
        RoundTrips {
            place: u32::MAX,
            commands: 0,
            overlaps: false,
            is_unsent: false,
            begun: None,
            replied: None,
            depth: 0,
            announced: 0,
            redirected: 0,
            answered: 0,
            network_us: None,
            sent: 0,
            measured_at: 1,
        }
    }
}

impl RoundTrips {
    /// Notes the arrival of more input.
    #[inline]
    pub fn note_arrival(&mut self) {
        self.overlaps |= self.is_unsent;
    }

    /// Counts a send. Returns true if the network's round trip should be measured now.
    #[inline]
    pub fn is_measurement_due(&mut self) -> bool {
        self.sent += 1;
        if self.sent < self.measured_at {
            return false;
        }
        (self.sent, self.measured_at) = (0, (self.measured_at * 2).min(MEASURED_EVERY));
        true
    }

    /// Sets the network's part of a round trip, as measured by the kernel.
    pub fn set_network(&mut self, us: Option<u32>) {
        self.network_us = us;
    }

    /// Notes that all replies have been sent, at an unknown time.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn note_sent(&mut self) {
        self.is_unsent = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_is_measured_ever_more_seldom() {
        let mut trips = RoundTrips::default();
        let due: Vec<u32> = (1..=4096).filter(|_| trips.is_measurement_due()).collect();
        assert_eq!(due[..5], [1, 3, 7, 15, 31]);
        assert_eq!(due[due.len() - 1] - due[due.len() - 2], 1024);
    }
}
