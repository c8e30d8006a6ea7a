//! Commands that wait until a moment, all of them or those that may change something: CLIENT PAUSE, and what the server itself pauses
//! them for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::reasons::{EngineReasons, PAUSED};

/// What commands wait for. Each has a pause of its own: the end of one doesn't end another's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PausePurpose {
    /// CLIENT PAUSE, up to CLIENT UNPAUSE.
    Client,
    /// The server's end, which waits for replicas and may be aborted.
    Shutdown,
    /// A replica is to take this server's place: it must have all writes.
    Failover,
    /// The data are loaded again, or exchanged.
    Reload,
}

impl PausePurpose {
    const ALL: [PausePurpose; 4] =
        [PausePurpose::Client, PausePurpose::Shutdown, PausePurpose::Failover, PausePurpose::Reload];
}

/// The pause of a purpose.
#[derive(Default)]
struct Period {
    /// In milliseconds of Unix time; 0 is none.
    until_ms: AtomicU64,
    /// Whether it holds back all commands, not only those that may write.
    all: AtomicBool,
}

impl Period {
    fn holds(&self, now_ms: u64) -> bool {
        self.until_ms.load(Ordering::Relaxed) > now_ms
    }
}

/// See the module's documentation.
pub struct Pause {
    periods: [Period; PausePurpose::ALL.len()],
    /// Held for every change, so that the reason is that of the last one.
    reasons: Mutex<Arc<EngineReasons>>,
}

impl Pause {
    /// None. [`PAUSED`] is set and cleared with it.
    #[must_use]
    pub fn new(reasons: Arc<EngineReasons>) -> Pause {
        Pause { periods: Default::default(), reasons: Mutex::new(reasons) }
    }

    fn change(&self, change: impl FnOnce(&[Period])) {
        let reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        change(&self.periods);
        reasons.set(PAUSED, self.periods.iter().any(|period| period.until_ms.load(Ordering::Relaxed) != 0));
    }

    /// Pauses commands until then. A pause of everything is not lightened by another of writes for the same purpose, nor a long one
    /// shortened.
    pub fn begin(&self, purpose: PausePurpose, all: bool, now_ms: u64, until_ms: u64) {
        self.change(|periods| {
            let period = &periods[purpose as usize];
            if all || !period.holds(now_ms) {
                period.all.store(all, Ordering::Relaxed);
            }
            period.until_ms.fetch_max(until_ms, Ordering::Relaxed);
        });
    }

    /// Ends the pause for a purpose, if there is one.
    pub fn end(&self, purpose: PausePurpose) {
        self.change(|periods| periods[purpose as usize].until_ms.store(0, Ordering::Relaxed));
    }

    /// Ends the pauses that are over by now. As long as any has not been ended, each command is checked for a pause by itself.
    pub fn end_if_due(&self, now_ms: u64) {
        let is_due = |period: &&Period| period.until_ms.load(Ordering::Relaxed) != 0 && !period.holds(now_ms);
        if self.periods.iter().any(|period| is_due(&period)) {
            // They may have been made longer before this.
            self.change(|periods| {
                periods.iter().filter(is_due).for_each(|period| period.until_ms.store(0, Ordering::Relaxed));
            });
        }
    }

    /// For how long commands are still to wait, in milliseconds.
    #[must_use]
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        let ends = self.periods.iter().map(|period| period.until_ms.load(Ordering::Relaxed));
        ends.max().unwrap_or(0).saturating_sub(now_ms)
    }

    /// Whether commands wait now.
    #[must_use]
    pub fn holds(&self, now_ms: u64) -> bool {
        self.periods.iter().any(|period| period.holds(now_ms))
    }

    /// Whether all commands wait now, not only those that may write.
    #[must_use]
    pub fn holds_all(&self, now_ms: u64) -> bool {
        self.periods.iter().any(|period| period.holds(now_ms) && period.all.load(Ordering::Relaxed))
    }

    /// What commands wait for now; of several what lasts longest.
    #[must_use]
    pub fn purpose(&self, now_ms: u64) -> Option<PausePurpose> {
        let period = |purpose: &PausePurpose| &self.periods[*purpose as usize];
        let held = PausePurpose::ALL.into_iter().filter(|purpose| period(purpose).holds(now_ms));
        held.max_by_key(|purpose| period(purpose).until_ms.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use PausePurpose::{Client, Failover, Shutdown};

    #[test]
    fn a_pause_is_neither_lightened_nor_shortened_by_another() {
        let reasons = Arc::<EngineReasons>::default();
        let pause = Pause::new(reasons.clone());
        pause.begin(Client, true, 10, 100);
        pause.begin(Client, false, 20, 50);
        assert!(pause.holds(99) && pause.holds_all(99) && reasons.has(PAUSED));
        pause.end_if_due(99);
        assert!(reasons.has(PAUSED));
        pause.end_if_due(100);
        assert!(!pause.holds(99) && !reasons.has(PAUSED));
        pause.begin(Client, false, 100, 200);
        assert!(!pause.holds_all(100));
        pause.end(Client);
        assert!(!pause.holds(100) && !reasons.has(PAUSED));
    }

    #[test]
    fn the_end_of_a_pause_leaves_that_of_another_purpose() {
        let reasons = Arc::<EngineReasons>::default();
        let pause = Pause::new(reasons.clone());
        pause.begin(Failover, false, 10, u64::MAX);
        pause.begin(Client, true, 10, 100);
        assert_eq!((pause.holds_all(10), pause.purpose(10)), (true, Some(Failover)));
        pause.end(Client);
        assert!(pause.holds(10) && !pause.holds_all(10) && reasons.has(PAUSED));
        pause.begin(Client, true, 10, 100);
        pause.begin(Shutdown, false, 20, u64::MAX);
        pause.end(Failover);
        pause.end(Shutdown);
        assert_eq!((pause.holds_all(20), pause.purpose(20), pause.left_ms(20)), (true, Some(Client), 80));
        pause.end_if_due(100);
        assert_eq!((pause.holds(99), pause.purpose(99), reasons.has(PAUSED)), (false, None, false));
    }
}
