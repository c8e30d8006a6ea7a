//! The latency monitor: times and durations of events above latency-monitor-threshold, by kind of event.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of samples that are kept of each event: Redis's figure.
pub const SAMPLES_MAX: usize = 160;

/// One slow event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Time of the event, in seconds of Unix time.
    pub time_s: u64,
    /// Duration in milliseconds.
    pub took_ms: u64,
}

/// The samples of one event.
#[derive(Clone, Default, Debug)]
pub struct Series {
    /// The oldest first, at most one a second.
    pub samples: VecDeque<Sample>,
    /// The longest duration so far, in milliseconds.
    pub max_ms: u64,
}

impl Series {
    fn add(&mut self, sample: Sample) {
        self.max_ms = self.max_ms.max(sample.took_ms);
        if let Some(last) = self.samples.back_mut().filter(|last| last.time_s == sample.time_s) {
            last.took_ms = last.took_ms.max(sample.took_ms);
            return;
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }
}

/// The samples of all events. Event names are fixed, so there are few of them.
#[derive(Default)]
pub struct LatencyMonitor(Mutex<BTreeMap<&'static str, Series>>);

impl LatencyMonitor {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event.
    pub fn add(&self, event: &'static str, sample: Sample) {
        self.lock().entry(event).or_default().add(sample);
    }

    /// Returns one event's samples.
    #[must_use]
    pub fn series(&self, event: &[u8]) -> Option<Series> {
        self.lock().iter().find(|(name, _)| name.as_bytes() == event).map(|(_, series)| series.clone())
    }

    /// Returns all events with samples.
    #[must_use]
    pub fn all(&self) -> Vec<(&'static str, Series)> {
        self.lock().iter().map(|(name, series)| (*name, series.clone())).collect()
    }

    /// Drops the samples of one event. Returns true if there were any.
    pub fn reset(&self, event: &[u8]) -> bool {
        let mut all = self.lock();
        let before = all.len();
        all.retain(|name, _| name.as_bytes() != event);
        all.len() < before
    }

    /// Drops all samples, and returns the number of events.
    pub fn reset_all(&self) -> usize {
        std::mem::take(&mut *self.lock()).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_one_sample_and_old_ones_are_forgotten() {
        let monitor = LatencyMonitor::default();
        for (time_s, took_ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            monitor.add("command", Sample { time_s, took_ms });
        }
        let series = monitor.series(b"command").unwrap();
        assert_eq!(series.samples, [Sample { time_s: 1, took_ms: 9 }, Sample { time_s: 2, took_ms: 3 }]);
        (0..1000).for_each(|i| monitor.add("fast-command", Sample { time_s: i, took_ms: 1000 - i }));
        let series = monitor.series(b"fast-command").unwrap();
        assert_eq!((series.samples.len(), series.max_ms), (SAMPLES_MAX, 1000));
        assert_eq!(series.samples.front().map(|s| s.time_s), Some(1000 - SAMPLES_MAX as u64));
        assert!(monitor.reset(b"command") && !monitor.reset(b"command"));
        assert_eq!((monitor.reset_all(), monitor.all().len()), (1, 0));
    }
}
