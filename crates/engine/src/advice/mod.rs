//! The advisor in the server. Each thread has an advisor, and shows it the batches of the thread's connections
//! ([`watch`]). Every thread can read the findings of all advisors. The crate [`advisor`] has the rules behind the
//! findings.

pub mod watch;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use advisor::findings::Findings;

/// The findings of all threads.
pub struct Advice {
    threads: Vec<ThreadAdvice>,
}

/// Figures for INFO.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdviceFigures {
    /// Number of connections under observation.
    pub watched: usize,
    /// Number of findings.
    pub findings: usize,
    /// Number of findings dropped for lack of memory.
    pub dropped: u64,
    /// Number of avoidable round trips.
    pub wasted: u64,
    /// Time of the avoidable round trips.
    pub lost_ns: u64,
    /// Memory of the findings, in bytes.
    pub memory_bytes: usize,
}

/// The part of a thread's advisor that other threads read.
#[derive(Clone)]
pub(crate) struct ThreadAdvice {
    /// The findings of the thread.
    pub findings: Arc<Mutex<Findings>>,
    /// Number of connections under observation.
    pub watched: Arc<AtomicUsize>,
    /// Number of resets so far. The thread follows them.
    pub resets: Arc<AtomicUsize>,
}

impl ThreadAdvice {
    fn new() -> ThreadAdvice {
        ThreadAdvice {
            findings: Arc::new(Mutex::new(Findings::new(0))),
            watched: Arc::default(),
            resets: Arc::default(),
        }
    }
}

impl Advice {
    /// Creates empty findings for this number of threads.
    #[must_use]
    pub fn new(threads: usize) -> Advice {
        Advice { threads: (0..threads).map(|_| ThreadAdvice::new()).collect() }
    }

    /// Returns one thread's part. A worker without clients gets one that is never shown.
    pub(crate) fn of(&self, thread: usize) -> ThreadAdvice {
        self.threads.get(thread).cloned().unwrap_or_else(ThreadAdvice::new)
    }

    /// Returns the number of threads.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Merges the findings of all threads, as a copy.
    #[must_use]
    pub fn merged(&self) -> Findings {
        let mut all = Findings::new(usize::MAX);
        self.each().for_each(|findings| all.merge(&findings));
        all
    }

    /// Drops all findings. Each thread forgets the words of keys a moment later.
    pub fn reset(&self) {
        self.each().for_each(|mut findings| findings.clear());
        for thread in &self.threads {
            thread.resets.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of connections under observation.
    fn watched(&self) -> usize {
        self.threads.iter().map(|thread| thread.watched.load(Ordering::Relaxed)).sum()
    }

    /// Returns the figures of the findings, summed up without a copy: a finding counts once for each client and thread.
    #[must_use]
    pub fn figures(&self) -> AdviceFigures {
        let mut figures = AdviceFigures { watched: self.watched(), ..AdviceFigures::default() };
        for findings in self.each() {
            figures.dropped += findings.dropped();
            figures.memory_bytes += findings.memory_bytes();
            for finding in findings.iter().filter(|finding| finding.is_significant()) {
                figures.findings += 1;
                figures.wasted += finding.wasted();
                figures.lost_ns = figures.lost_ns.saturating_add(finding.lost_ns());
            }
        }
        figures
    }

    fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Findings>> {
        // A panic cannot leave this data inconsistent.
        self.threads.iter().map(|thread| thread.findings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
