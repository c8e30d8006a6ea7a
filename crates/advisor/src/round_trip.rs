//! The estimate of a connection's round trip, and the classification of gaps.
//!
//! A gap is the network's round trip plus the client's own time. The network's part is measured: by the kernel, or by
//! the gaps of a login, during which a client doesn't think. The rest is the client's. It belongs to a loop only if it is
//! short, and close to the shortest one. Without a measurement the lowest gaps stand for the round trip.

/// Without a measurement, a gap of up to this many times the lowest gaps looks like a round trip, unless only long client time explains
/// it. With one, so does a gap whose client time is up to this many times the lowest client time.
const TIMES_MAX: u64 = 4;
/// A gap above the lowest gaps by at most this much looks like a round trip, too: on a fast network the client's own
/// work varies.
const ABOVE_MAX_NS: u64 = 100_000;
/// Client time up to this is always short: a slow client library, on a busy machine, takes as long for a call.
const CLIENT_MIN_NS: u64 = 300_000;
/// Client time above this is never short. The slowest frameworks take a millisecond to prepare a command.
pub const CLIENT_MAX_NS: u64 = 1_500_000;
/// The network's delay varies by up to a quarter.
const JITTER_SHARE: u64 = 4;
/// So many gaps in a row of little client time, all longer than the earlier ones, are the client's usual pace.
const STEADY_GAPS: u8 = 8;
/// The longest possible round trip.
const ROUND_TRIP_MAX_NS: u64 = 500_000_000;
/// Lowest gaps below this are a round trip, even without another measurement.
const PLAIN_NS: u64 = 5_000_000;
/// The estimate before the first gap.
const UNKNOWN_NS: u64 = 0;

/// A gap between a reply and the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// No reply came before.
    First,
    /// The client sent the request before the reply arrived: it did not wait.
    Overlap,
    /// The gap looks like a round trip. Its length in nanoseconds.
    RoundTrip(u64),
    /// The client did something else. The length of the pause in nanoseconds.
    Pause(u64),
}

/// An estimate of the round trip.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    /// The lowest gaps, outside logins.
    low_ns: u64,
    /// The network's part, if it was measured.
    network_ns: Option<u64>,
    /// The network's part as the kernel measured it. A login shows only that the network is no slower.
    kernel_ns: Option<u64>,
    /// The last gaps in a row that look like pauses in spite of little client time: their number, and the lowest one.
    steady: u8,
    steady_ns: u64,
}

impl RoundTrip {
    /// The usual gap of a client that doesn't pause; 0 before the first gap.
    pub fn usual_ns(self) -> u64 {
        match self.network_ns {
            Some(network_ns) => self.low_ns.min(network_ns + CLIENT_MAX_NS),
            None => self.low_ns,
        }
    }

    /// The network's part of a round trip; the usual gap if it was not measured.
    pub fn network_ns(self) -> u64 {
        self.network_ns.unwrap_or(self.low_ns)
    }

    /// The longest gap that looks like a round trip; a longer gap is a pause.
    #[inline]
    pub fn longest_ns(self) -> u64 {
        if self.low_ns == UNKNOWN_NS && self.network_ns.is_none() {
            return ROUND_TRIP_MAX_NS;
        }
        let longest_ns = match self.network_ns {
            Some(network_ns) => {
                // The network can't be slower than the lowest gap.
                let network_ns = if self.low_ns == UNKNOWN_NS { network_ns } else { network_ns.min(self.low_ns) };
                let client_ns = self.low_ns.saturating_sub(network_ns) * TIMES_MAX;
                network_ns + network_ns / JITTER_SHARE + client_ns.clamp(CLIENT_MIN_NS, CLIENT_MAX_NS)
            }
            None => {
                let most_ns = self.low_ns + self.low_ns / JITTER_SHARE + CLIENT_MAX_NS;
                (self.low_ns * TIMES_MAX).max(self.low_ns + ABOVE_MAX_NS).min(most_ns)
            }
        };
        longest_ns.min(ROUND_TRIP_MAX_NS)
    }

    /// Sets a round trip that the kernel measured. A login may have shown a shorter one.
    pub fn set(&mut self, measured_ns: u64) {
        self.kernel_ns = Some(self.kernel_ns.map_or(measured_ns, |known_ns| known_ns.min(measured_ns)));
        self.learn_from_login(measured_ns);
    }

    /// True if a request after this gap was sent before the client had the reply: the gap is shorter than the network's
    /// part of a round trip. Half of it is left for the inaccuracy of the measurement.
    #[inline]
    pub fn is_too_soon(self, gap_ns: u64) -> bool {
        self.kernel_ns.is_some_and(|network_ns| gap_ns < network_ns / 2)
    }

    /// True if a gap is a round trip of a network that the kernel has measured, and that takes at least this time.
    #[inline]
    pub fn is_far_trip(self, gap_ns: u64, least_ns: u64) -> bool {
        let is_far = self.kernel_ns.is_some_and(|network_ns| network_ns >= least_ns);
        is_far && !self.is_too_soon(gap_ns) && gap_ns <= self.longest_ns()
    }

    /// True if a slow network can't be told from a client that thinks before each command. On a busy machine a login is
    /// slow, too.
    pub fn is_unsure(self) -> bool {
        let is_measured = self.kernel_ns.is_some() || self.network_ns.is_some_and(|network_ns| network_ns <= PLAIN_NS);
        !is_measured && self.low_ns > PLAIN_NS
    }

    /// Learns from a gap within a login, during which a client doesn't think: the network is no slower. The gap is no
    /// round trip of the client's usual work, which may take longer for each command.
    pub fn learn_from_login(&mut self, gap_ns: u64) {
        let gap_ns = gap_ns.min(ROUND_TRIP_MAX_NS);
        self.network_ns = Some(self.network_ns.map_or(gap_ns, |known_ns| known_ns.min(gap_ns)));
    }

    /// Classifies a gap, and learns from it.
    #[inline]
    pub fn classify(&mut self, gap_ns: u64) -> Gap {
        if self.low_ns == UNKNOWN_NS {
            self.low_ns = gap_ns.clamp(1, ROUND_TRIP_MAX_NS);
        }
        let is_pause = gap_ns > self.longest_ns();
        self.learn(gap_ns, is_pause);
        self.learn_pace(gap_ns, is_pause);
        if is_pause { Gap::Pause(gap_ns) } else { Gap::RoundTrip(gap_ns) }
    }

    /// Takes steady gaps for the client's usual pace. The first gaps of a connection may have been shorter, for example those of a PING and of
    /// commands that the library sends by itself.
    #[inline]
    fn learn_pace(&mut self, gap_ns: u64, is_pause: bool) {
        if !is_pause || gap_ns > self.network_ns().min(self.low_ns) + CLIENT_MAX_NS {
            self.steady = 0;
            return;
        }
        self.steady_ns = if self.steady == 0 { gap_ns } else { self.steady_ns.min(gap_ns) };
        self.steady += 1;
        if self.steady == STEADY_GAPS {
            (self.low_ns, self.steady) = (self.steady_ns, 0);
        }
    }

    /// Follows the lowest gaps: quickly down, slowly up, and hardly at all after pauses.
    #[inline]
    fn learn(&mut self, gap_ns: u64, is_pause: bool) {
        if gap_ns < self.low_ns && self.low_ns > PLAIN_NS {
            // The client may have paused before each of the gaps so far; the network cannot be slower than the lowest
            // gap.
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

    /// A slow network adds the same time to each gap, so its gaps differ by no more than those of a fast one.
    #[test]
    fn the_client_s_time_is_bounded_without_a_measurement() {
        for low_ms in [2, 10, 40] {
            let mut trips = RoundTrip::default();
            trips.classify(low_ms * 1000 * US);
            let (near, far) = ((low_ms * 1000 + 1000) * US, (low_ms * 1250 + 1600) * US);
            assert_eq!(trips.classify(near), Gap::RoundTrip(near), "{low_ms}");
            assert_eq!(trips.classify(far), Gap::Pause(far), "{low_ms}");
        }
    }

    #[test]
    fn pauses_hardly_raise_the_estimate() {
        let mut trips = RoundTrip::default();
        trips.classify(50 * US);
        for _ in 0..1000 {
            assert_eq!(trips.classify(20_000 * US), Gap::Pause(20_000 * US));
        }
    }

    /// A library sends PING and other commands when it connects. The client then takes a millisecond to make each message.
    #[test]
    fn a_steady_pace_replaces_shorter_gaps_before() {
        for network_us in [30, 1000] {
            let mut trips = RoundTrip::default();
            trips.set(network_us * US);
            for client_us in [100, 80, 110, 59_000] {
                trips.classify((network_us + client_us) * US);
            }
            let gap = (network_us + 1000) * US;
            let mut gaps = (0..20).map(|turn| trips.classify(gap + turn % 5 * 50 * US));
            assert!(gaps.by_ref().take(8).all(|gap| matches!(gap, Gap::Pause(_))), "{network_us}");
            assert!(gaps.all(|gap| matches!(gap, Gap::RoundTrip(_))), "{network_us}");
            assert_eq!(trips.classify((network_us + 2000) * US), Gap::Pause((network_us + 2000) * US));
        }
    }

    #[test]
    fn pauses_between_short_gaps_are_no_pace() {
        let mut trips = RoundTrip::default();
        trips.set(30 * US);
        for turn in 0..1000 {
            let (short, pause) = (80 * US, (900 + turn % 7 * 50) * US);
            assert_eq!(trips.classify(short), Gap::RoundTrip(short));
            for _ in 0..7 {
                assert_eq!(trips.classify(pause), Gap::Pause(pause));
            }
        }
    }

    #[test]
    fn no_round_trip_takes_seconds() {
        let mut trips = RoundTrip::default();
        assert_eq!(trips.classify(2_000_000 * US), Gap::Pause(2_000_000 * US));
    }

    /// A web worker of two milliseconds per request is no slow network.
    #[test]
    fn a_measured_network_shows_the_time_of_the_client() {
        for network_us in [0, 30, 1000] {
            let mut trips = RoundTrip::default();
            trips.set(network_us * US);
            for _ in 0..100 {
                let gap = (network_us + 2050) * US;
                assert_eq!(trips.classify(gap), Gap::Pause(gap), "{network_us}");
            }
            let gap = (network_us + 60) * US;
            assert_eq!(trips.classify(gap), Gap::RoundTrip(gap), "{network_us}");
        }
    }

    #[test]
    fn a_slow_login_is_no_measurement() {
        let mut trips = RoundTrip::default();
        trips.learn_from_login(30_000 * US);
        trips.classify(25_000 * US);
        assert!(trips.is_unsure());
        trips.learn_from_login(1_000 * US);
        assert!(!trips.is_unsure());
    }

    /// On a busy machine a login may take longer than later commands, which nevertheless wait for their replies.
    #[test]
    fn only_the_kernel_shows_that_a_request_came_too_soon() {
        let mut trips = RoundTrip::default();
        trips.learn_from_login(10_000 * US);
        assert!(!trips.is_too_soon(2_000 * US));
        trips.set(8_000 * US);
        assert!(trips.is_too_soon(2_000 * US) && !trips.is_too_soon(5_000 * US));
    }

    #[test]
    fn a_login_is_faster_than_the_usual_work() {
        let mut trips = RoundTrip::default();
        trips.learn_from_login(20 * US);
        for gap in [150, 160, 155, 250, 400] {
            assert_eq!(trips.classify(gap * US), Gap::RoundTrip(gap * US));
        }
        assert_eq!(trips.classify(2000 * US), Gap::Pause(2000 * US));
    }
}
