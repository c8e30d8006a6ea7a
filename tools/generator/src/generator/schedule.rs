//! Due times of requests at a given rate. This module reads no clock: times are durations since the start.

use std::time::Duration;

/// A constant rate, counted from the start, so that delays never reduce the number of requests.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    per_second: f64,
    /// Time of this schedule's first request within the interval. Threads that share a rate take turns.
    offset_s: f64,
}

impl Schedule {
    /// Returns one of `shares` schedules that together make `per_second` requests per second.
    #[must_use]
    pub fn share(per_second: f64, index: usize, shares: usize) -> Schedule {
        Schedule { per_second: per_second / shares as f64, offset_s: index as f64 / per_second }
    }

    /// Returns the due time of a request, numbered from 0.
    #[must_use]
    pub fn due(&self, number: u64) -> Duration {
        Duration::try_from_secs_f64(self.offset_s + number as f64 / self.per_second).unwrap_or(Duration::MAX)
    }

    /// Returns the number of requests that are due by `elapsed`.
    #[must_use]
    pub fn count(&self, elapsed: Duration) -> u64 {
        let since_first = elapsed.as_secs_f64() - self.offset_s;
        if since_first < 0.0 { 0 } else { (since_first * self.per_second) as u64 + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_due_one_interval_apart() {
        let schedule = Schedule::share(1000.0, 0, 1);
        assert_eq!(schedule.due(0), Duration::ZERO);
        assert_eq!(schedule.due(1500), Duration::from_millis(1500));
        assert_eq!(schedule.count(Duration::ZERO), 1);
        assert_eq!(schedule.count(Duration::from_micros(999)), 1);
        assert_eq!(schedule.count(Duration::from_micros(2500)), 3);
    }

    #[test]
    fn shares_take_turns_and_add_up() {
        let shares: Vec<Schedule> = (0..4).map(|i| Schedule::share(1000.0, i, 4)).collect();
        assert_eq!(shares[1].due(0), Duration::from_millis(1));
        assert_eq!(shares[1].due(1), Duration::from_millis(5));
        assert_eq!(shares[3].count(Duration::from_millis(2)), 0);
        let in_all: u64 = shares.iter().map(|s| s.count(Duration::from_micros(9_500))).sum();
        assert_eq!(in_all, 10);
    }
}
