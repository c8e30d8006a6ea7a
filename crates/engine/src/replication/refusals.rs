//! Replicas that have not taken their snapshots; each gets the next one after a growing pause.
//!
//! A replica that can't read a snapshot asks for another one at once, and would make this server produce one after the
//! other. Its connection is a new one each time, so the address and port for clients identify it.

use std::collections::VecDeque;
use std::time::Duration;

/// The greatest number of remembered replicas: far more than a server has. A new entry replaces the oldest one.
const REMEMBERED_MAX: usize = 64;
/// The pause after the first refused snapshot. Each further one doubles it.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

struct Refusing {
    place: (String, u16),
    times: u32,
    until: Duration,
}

/// See the module's documentation. Times count from any fixed moment of a monotonic clock.
#[derive(Default)]
pub(super) struct Refusals(VecDeque<Refusing>);

impl Refusals {
    /// Notes that a replica has not taken a snapshot. Returns the number of untaken snapshots in a row, and the
    /// pause before the next one.
    pub(super) fn note_refused(&mut self, place: (String, u16), now: Duration) -> (u32, Duration) {
        let times = self.forget(&place) + 1;
        let pause = PAUSE_MIN.saturating_mul(1 << (times - 1).min(16)).min(PAUSE_MAX);
        if self.0.len() >= REMEMBERED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Refusing { place, times, until: now + pause });
        (times, pause)
    }

    /// Forgets a replica that has taken its snapshot. Returns the number of refused ones before it.
    pub(super) fn forget(&mut self, place: &(String, u16)) -> u32 {
        let Some(index) = self.0.iter().position(|known| known.place == *place) else { return 0 };
        self.0.remove(index).map_or(0, |known| known.times)
    }

    /// Returns the time before which a replica receives no snapshot.
    pub(super) fn pause_of(&self, place: &(String, u16)) -> Option<Duration> {
        self.0.iter().find(|known| known.place == *place).map(|known| known.until)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> (String, u16) {
        ("10.0.0.1".into(), port)
    }

    #[test]
    fn pauses_grow_until_a_snapshot_is_taken() {
        let (mut refusals, now) = (Refusals::default(), Duration::from_secs(100));
        let pauses: Vec<u64> = (0..9).map(|_| refusals.note_refused(place(1), now).1.as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(refusals.pause_of(&place(1)), Some(Duration::from_secs(160)));
        assert_eq!((refusals.pause_of(&place(2)), refusals.forget(&place(1))), (None, 9));
        assert_eq!(refusals.note_refused(place(1), now), (1, PAUSE_MIN));
    }

    #[test]
    fn the_number_of_remembered_replicas_is_bounded() {
        let mut refusals = Refusals::default();
        for port in 0..1000 {
            refusals.note_refused(place(port), Duration::ZERO);
        }
        assert_eq!((refusals.0.len(), refusals.pause_of(&place(0))), (REMEMBERED_MAX, None));
        assert!(refusals.pause_of(&place(999)).is_some());
    }
}
