//! Signs of life of the worker threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Heartbeats of the workers. The cluster bus is silent while none of the workers gives one.
pub struct Heartbeats {
    began: Instant,
    /// The time of each worker's last heartbeat, in milliseconds since `began`.
    workers: Box<[AtomicU64]>,
}

impl Heartbeats {
    /// Creates the state of workers that have just started.
    #[must_use]
    pub fn new(workers: usize) -> Heartbeats {
        Heartbeats { began: Instant::now(), workers: (0..workers).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes a heartbeat of a worker.
    pub fn beat(&self, worker: usize) {
        if let Some(beat) = self.workers.get(worker) {
            beat.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
        }
    }

    /// Returns the time since the last heartbeat of any worker.
    pub fn silence(&self) -> Duration {
        let last_ms = self.workers.iter().map(|beat| beat.load(Ordering::Relaxed)).max().unwrap_or(0);
        self.began.elapsed().saturating_sub(Duration::from_millis(last_ms))
    }
}
