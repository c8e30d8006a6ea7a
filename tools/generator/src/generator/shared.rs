//! State shared by the threads of a run: claimed requests, progress, and the stop flag.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Counters of one run. `claimed` divides the requests between the threads; all others only show progress.
#[derive(Default)]
pub struct Shared {
    stop: AtomicBool,
    claimed: AtomicU64,
    answered: AtomicU64,
    latency_sum_ns: AtomicU64,
    errors: AtomicU64,
    latest_error: Mutex<String>,
}

impl Shared {
    /// Claims up to `wanted` of `total` requests, and returns their numbers.
    pub fn claim(&self, wanted: u64, total: u64) -> Range<u64> {
        // The check keeps the counter from growing after the end.
        if self.all_claimed(total) {
            return total..total;
        }
        let before = self.claimed.fetch_add(wanted, Relaxed);
        before.min(total)..before.saturating_add(wanted).min(total)
    }

    /// Returns true if all requests are claimed.
    pub fn all_claimed(&self, total: u64) -> bool {
        self.claimed.load(Relaxed) >= total
    }

    /// Counts replies and their latencies.
    pub fn note_answered(&self, count: u64, latency_sum_ns: u64) {
        self.answered.fetch_add(count, Relaxed);
        self.latency_sum_ns.fetch_add(latency_sum_ns, Relaxed);
    }

    /// Counts an error and stores its text.
    pub fn note_error(&self, text: &[u8]) {
        self.errors.fetch_add(1, Relaxed);
        if let Ok(mut latest) = self.latest_error.lock() {
            *latest = String::from_utf8_lossy(text).into_owned();
        }
    }

    /// Returns the text of the last error; empty before the first.
    pub fn latest_error(&self) -> String {
        self.latest_error.lock().map(|text| text.clone()).unwrap_or_default()
    }

    /// Returns the number of replies, the sum of their latencies in nanoseconds, and the number of errors so far.
    pub fn so_far(&self) -> (u64, u64, u64) {
        (self.answered.load(Relaxed), self.latency_sum_ns.load(Relaxed), self.errors.load(Relaxed))
    }

    /// Asks all threads to end soon.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Returns true if the threads should end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_add_up_to_the_total() {
        let shared = Shared::default();
        assert_eq!((shared.claim(4, 10), shared.claim(4, 10), shared.claim(4, 10)), (0..4, 4..8, 8..10));
        assert!(shared.all_claimed(10));
        assert!(shared.claim(4, 10).is_empty());
    }
}
