//! What a connection's round trip takes, and which gaps look like one.

/// A gap up to this many times the lowest ones looks like a round trip.
const TIMES_MAX: u64 = 4;
/// So does one that is longer than the lowest ones by no more than this: on a fast network a client's own work varies.
const ABOVE_MAX_NS: u64 = 100_000;
/// No round trip takes longer.
const ROUND_TRIP_MAX_NS: u64 = 500_000_000;
/// Below this the lowest gaps are taken for a round trip, even if nothing else tells.
const PLAIN_NS: u64 = 5_000_000;
/// What a time without a measurement is taken for.
const UNKNOWN_NS: u64 = 0;

/// A gap between a reply and the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// There was no reply before.
    First,
    /// The request was sent before the reply had arrived: no trip was waited for.
    Overlap,
    /// It looks like a round trip, and took so long.
    RoundTrip(u64),
    /// The client did something else, for so long.
    Pause(u64),
}

/// An estimate of the round trip, from the lowest gaps.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    low_ns: u64,
    /// True if it was measured by other means: by the kernel, or while the client logged in.
    is_known: bool,
}

impl RoundTrip {
    /// The estimate; 0 before the first gap.
    pub fn low_ns(self) -> u64 {
        self.low_ns
    }

    /// A longer gap is a pause.
    #[inline]
    pub fn longest_ns(self) -> u64 {
        if self.low_ns == UNKNOWN_NS {
            return ROUND_TRIP_MAX_NS;
        }
        (self.low_ns * TIMES_MAX).max(self.low_ns + ABOVE_MAX_NS).min(ROUND_TRIP_MAX_NS)
    }

    /// Sets what was measured by other means.
    pub fn set(&mut self, measured_ns: u64) {
        *self = RoundTrip { low_ns: measured_ns.clamp(1, ROUND_TRIP_MAX_NS), is_known: true };
    }

    /// True if a slow network can't be told from a client that thinks before each command.
    pub fn is_unsure(self) -> bool {
        !self.is_known && self.low_ns > PLAIN_NS
    }

    /// A gap within a login, where a client doesn't think.
    pub fn learn_from_login(&mut self, gap: Gap) {
        if let Gap::RoundTrip(_) = gap {
            self.is_known = true;
        }
    }

    /// What a gap looks like. Learns from it.
    #[inline]
    pub fn classify(&mut self, gap_ns: u64) -> Gap {
        if self.low_ns == UNKNOWN_NS {
            self.low_ns = gap_ns.clamp(1, ROUND_TRIP_MAX_NS);
        }
        let is_pause = gap_ns > self.longest_ns();
        self.learn(gap_ns, is_pause);
        if is_pause { Gap::Pause(gap_ns) } else { Gap::RoundTrip(gap_ns) }
    }

    /// Follows the lowest gaps: down quickly, up slowly, and by pauses hardly at all.
    #[inline]
    fn learn(&mut self, gap_ns: u64, is_pause: bool) {
        if gap_ns < self.low_ns && self.low_ns > PLAIN_NS {
            // A client may have thought before each of the gaps so far; no network is quicker than it is.
            self.low_ns = gap_ns.max(1);
        } else if gap_ns < self.low_ns {
            self.low_ns -= (self.low_ns - gap_ns).div_ceil(2);
            self.low_ns = self.low_ns.max(1);
        } else {
            let above = gap_ns.min(self.low_ns * 2) - self.low_ns;
            self.low_ns += above / if is_pause { 4096 } else { 64 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    #[test]
    fn gaps_near_the_lowest_are_round_trips() {
        let mut trips = RoundTrip::default();
        for gap in [50, 60, 55, 90, 140, 50] {
            assert_eq!(trips.classify(gap * US), Gap::RoundTrip(gap * US));
        }
        assert_eq!(trips.classify(5000 * US), Gap::Pause(5000 * US));
        assert!(!trips.is_unsure());
    }

    #[test]
    fn a_slow_network_that_was_not_measured_is_unsure() {
        let mut trips = RoundTrip::default();
        assert_eq!(trips.classify(30_000 * US), Gap::RoundTrip(30_000 * US));
        assert!(trips.is_unsure());
        trips.set(29_000 * US);
        assert!(!trips.is_unsure());
        assert_eq!(trips.classify(30_000 * US), Gap::RoundTrip(30_000 * US));
    }

    #[test]
    fn a_client_that_thought_at_first_is_no_slow_network() {
        let mut trips = RoundTrip::default();
        assert_eq!(trips.classify(20_000 * US), Gap::RoundTrip(20_000 * US));
        assert_eq!(trips.classify(2_000 * US), Gap::RoundTrip(2_000 * US));
        assert_eq!(trips.classify(20_000 * US), Gap::Pause(20_000 * US));
        assert!(!trips.is_unsure());
    }

    #[test]
    fn pauses_hardly_raise_the_estimate() {
        let mut trips = RoundTrip::default();
        trips.classify(50 * US);
        for _ in 0..1000 {
            assert_eq!(trips.classify(20_000 * US), Gap::Pause(20_000 * US));
        }
    }

    #[test]
    fn no_round_trip_takes_seconds() {
        let mut trips = RoundTrip::default();
        assert_eq!(trips.classify(2_000_000 * US), Gap::Pause(2_000_000 * US));
    }
}
