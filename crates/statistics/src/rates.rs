//! Present rates: differences of counters between samples, averaged over the last second and a half.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::stats::Totals;
use crate::ticks::to_microseconds;

/// Number of samples in an average: Redis's figure.
const SAMPLES: usize = 16;
/// Minimum time between samples, in milliseconds: Redis's figure.
const INTERVAL_MS: u64 = 100;
/// Sampled figures: four rates, and the duration of a turn.
const METRICS: usize = 5;
/// Counters behind these figures; the last one is the duration of all turns, in ticks.
const COUNTERS: usize = 5;

/// The last samples.
#[derive(Default)]
struct RateHistory {
    /// Time of the last sample, in milliseconds of a monotonic clock.
    last_ms: Option<u64>,
    last: [u64; COUNTERS],
    /// Figures per second; the last one is in microseconds per turn.
    samples: [[u64; METRICS]; SAMPLES],
    next: usize,
}

/// Figures per second.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct PerSecond {
    /// Commands.
    pub commands: u64,
    /// Bytes received.
    pub net_in: u64,
    /// Bytes sent.
    pub net_out: u64,
    /// Turns of all threads' loops.
    pub turns: u64,
    /// Average duration of a turn in microseconds; not a rate, but sampled along with them.
    pub turn_us: u64,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Rates(Mutex<RateHistory>);

impl Rates {
    fn lock(&self) -> MutexGuard<'_, RateHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sample if one is due, and only then calls `totals`. `now_ms` must come from a monotonic clock: after a
    /// step back, no sample would be due for that long.
    pub fn sample(&self, now_ms: u64, totals: impl FnOnce() -> Totals) {
        let mut history = self.lock();
        let passed_ms = history.last_ms.map(|last_ms| now_ms.saturating_sub(last_ms));
        if passed_ms.is_some_and(|passed_ms| passed_ms < INTERVAL_MS) {
            return;
        }
        let totals = totals();
        let now = [totals.executed, totals.net_in, totals.net_out, totals.turns, totals.turn_ticks];
        if let Some(passed_ms) = passed_ms {
            let next = history.next;
            // A counter that was reset restarts from zero.
            let new: [u64; COUNTERS] = std::array::from_fn(|i| now[i].saturating_sub(history.last[i]));
            let rate = |i: usize| new[i].saturating_mul(1000) / passed_ms;
            let turn_us = to_microseconds(new[4]) as u64 / new[3].max(1);
            history.samples[next] = [rate(0), rate(1), rate(2), rate(3), turn_us];
            history.next = (next + 1) % SAMPLES;
        }
        history.last_ms = Some(now_ms);
        history.last = now;
    }

    /// Returns the present averages.
    #[must_use]
    pub fn now(&self) -> PerSecond {
        let history = self.lock();
        let average = |i: usize| history.samples.iter().map(|s| s[i]).sum::<u64>() / SAMPLES as u64;
        let [commands, net_in, net_out, turns, turn_us] = std::array::from_fn(average);
        PerSecond { commands, net_in, net_out, turns, turn_us }
    }

    /// Drops all samples (CONFIG RESETSTAT).
    pub fn reset(&self) {
        *self.lock() = RateHistory::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticks::per_microsecond;

    #[test]
    fn rates_are_averages_a_second_and_survive_a_reset_of_the_counters() {
        let rates = Rates::default();
        let turn_ticks = |executed| (executed as f64 * 10.0 * per_microsecond()) as u64;
        let totals =
            |executed| Totals { executed, turns: executed, turn_ticks: turn_ticks(executed), ..Totals::default() };
        let sample = |now_ms, executed| rates.sample(now_ms, || totals(executed));
        sample(1000, 500);
        assert_eq!(rates.now().commands, 0, "one sample is no difference");
        for i in 1..=SAMPLES as u64 {
            sample(1000 + 200 * i, 500 + 20 * i);
            sample(1000 + 200 * i + 50, 1_000_000);
        }
        assert_eq!((rates.now().commands, rates.now().turns), (100, 100));
        // A tick may be rounded away.
        assert!((9..=10).contains(&rates.now().turn_us));
        sample(10_000, 0);
        assert_eq!(rates.now().commands, 100 * 15 / 16);
        rates.reset();
        assert_eq!(rates.now(), PerSecond::default());
    }
}
