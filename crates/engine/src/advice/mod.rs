//! The advisor in the server. Each thread has an advisor, and shows it the batches of the thread's connections ([`watch`]). Every thread
//! can read the findings of all. The crate [`advisor`] has the rules by which findings are made.

pub mod watch;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use advisor::findings::Findings;

/// The findings of all threads.
pub struct Advice {
    threads: Vec<ThreadAdvice>,
}

/// What INFO shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdviceFigures {
    /// Connections that are watched at present.
    pub watched: usize,
    /// Findings.
    pub findings: usize,
    /// Those that had to make room.
    pub dropped: u64,
    /// Round trips that were made in vain.
    pub wasted: u64,
    /// The time that they took.
    pub lost_ns: u64,
    /// Bytes of memory that the findings take.
    pub memory_bytes: usize,
}

/// What other threads see of one thread's advisor.
#[derive(Clone)]
pub(crate) struct ThreadAdvice {
    /// What it has found.
    pub findings: Arc<Mutex<Findings>>,
    /// Connections that it watches at present.
    pub watched: Arc<AtomicUsize>,
}

impl ThreadAdvice {
    fn new() -> ThreadAdvice {
        ThreadAdvice { findings: Arc::new(Mutex::new(Findings::new(0))), watched: Arc::default() }
    }
}

impl Advice {
    /// No findings, of so many threads.
    #[must_use]
    pub fn new(threads: usize) -> Advice {
        Advice { threads: (0..threads).map(|_| ThreadAdvice::new()).collect() }
    }

    /// One thread's. A worker that serves no clients has one that nothing shows.
    pub(crate) fn of(&self, thread: usize) -> ThreadAdvice {
        self.threads.get(thread).cloned().unwrap_or_else(ThreadAdvice::new)
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The findings of all threads as one. Copies them.
    #[must_use]
    pub fn merged(&self) -> Findings {
        let mut all = Findings::new(usize::MAX);
        self.each().for_each(|findings| all.merge(&findings));
        all
    }

    /// Forgets what was found.
    pub fn reset(&self) {
        self.each().for_each(|mut findings| findings.clear());
    }

    /// Connections that are watched at present.
    fn watched(&self) -> usize {
        self.threads.iter().map(|thread| thread.watched.load(Ordering::Relaxed)).sum()
    }

    /// The findings' figures, added up without copying them: a finding counts once for each client and thread.
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
        // What is behind these locks is always whole.
        self.threads.iter().map(|thread| thread.findings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
