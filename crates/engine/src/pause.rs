//! Pauses of all commands, or of those that may write: CLIENT PAUSE, and pauses by the server itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::slow_path::{EngineFlags, PAUSED};

/// The reason of a pause. Each reason has its own pause, and ending one doesn't end another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PausePurpose {
    /// CLIENT PAUSE, until CLIENT UNPAUSE.
    Client,
    /// The shutdown waits for replicas and may be aborted.
    Shutdown,
    /// Failover to a replica, which must receive all writes.
    Failover,
    /// The data are being reloaded or replaced.
    Reload,
    /// A replica takes this primary's place in the cluster, and must receive all writes.
    ManualFailover,
}

impl PausePurpose {
    const ALL: [PausePurpose; 5] = [
        PausePurpose::Client,
        PausePurpose::Shutdown,
        PausePurpose::Failover,
        PausePurpose::Reload,
        PausePurpose::ManualFailover,
    ];
}

/// The pause for one purpose.
#[derive(Default)]
struct Period {
    /// End in milliseconds of Unix time; 0 means no pause.
    until_ms: AtomicU64,
    /// True for a pause of all commands, not only of those that may write.
    all: AtomicBool,
}

impl Period {
    fn holds(&self, now_ms: u64) -> bool {
        self.until_ms.load(Ordering::Relaxed) > now_ms
    }
}

/// All pauses.
pub struct Pause {
    periods: [Period; PausePurpose::ALL.len()],
    /// Locked for every change, so that the flag reflects the latest one.
    slow_path: Mutex<Arc<EngineFlags>>,
}

impl Pause {
    /// Creates a state without pauses. [`PAUSED`] is set while there is one.
    #[must_use]
    pub fn new(slow_path: Arc<EngineFlags>) -> Pause {
        Pause { periods: Default::default(), slow_path: Mutex::new(slow_path) }
    }

    fn change(&self, change: impl FnOnce(&[Period])) {
        let slow_path = self.slow_path.lock().unwrap_or_else(PoisonError::into_inner);
        change(&self.periods);
        slow_path.set(PAUSED, self.periods.iter().any(|period| period.until_ms.load(Ordering::Relaxed) != 0));
    }

    /// Pauses commands until `until_ms`. For the same reason, a pause of all commands is never reduced to writes, and a
    /// long pause is never shortened.
    pub fn begin(&self, purpose: PausePurpose, all: bool, now_ms: u64, until_ms: u64) {
        self.change(|periods| {
            let period = &periods[purpose as usize];
            if all || !period.holds(now_ms) {
                period.all.store(all, Ordering::Relaxed);
            }
            period.until_ms.fetch_max(until_ms, Ordering::Relaxed);
        });
    }

    /// Ends the pause for a reason, if there is one.
    pub fn end(&self, purpose: PausePurpose) {
        self.change(|periods| periods[purpose as usize].until_ms.store(0, Ordering::Relaxed));
    }

    /// Ends the pauses that are over. Until then, each command is checked for a pause individually.
    pub fn end_if_due(&self, now_ms: u64) {
        let is_due = |period: &&Period| period.until_ms.load(Ordering::Relaxed) != 0 && !period.holds(now_ms);
        if self.periods.iter().any(|period| is_due(&period)) {
            // They may have been extended before this.
            self.change(|periods| {
                periods.iter().filter(is_due).for_each(|period| period.until_ms.store(0, Ordering::Relaxed));
            });
        }
    }

    /// Returns the remaining time of the pauses, in milliseconds.
    #[must_use]
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        let ends = self.periods.iter().map(|period| period.until_ms.load(Ordering::Relaxed));
        ends.max().unwrap_or(0).saturating_sub(now_ms)
    }

    /// Returns true if commands are paused now.
    #[must_use]
    pub fn holds(&self, now_ms: u64) -> bool {
        self.periods.iter().any(|period| period.holds(now_ms))
    }

    /// Returns true if commands are paused now for a reason.
    #[must_use]
    pub fn holds_for(&self, purpose: PausePurpose, now_ms: u64) -> bool {
        self.periods[purpose as usize].holds(now_ms)
    }

    /// Returns true if all commands are paused now, not only those that may write.
    #[must_use]
    pub fn holds_all(&self, now_ms: u64) -> bool {
        self.periods.iter().any(|period| period.holds(now_ms) && period.all.load(Ordering::Relaxed))
    }

    /// Returns true if there is a pause for this reason now.
    #[must_use]
    pub fn is_for(&self, purpose: PausePurpose, now_ms: u64) -> bool {
        self.periods[purpose as usize].holds(now_ms)
    }

    /// Returns the reason of the present pause; with several, of the longest one.
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
    fn a_second_pause_neither_weakens_nor_shortens_the_first() {
        let slow_path = Arc::<EngineFlags>::default();
        let pause = Pause::new(slow_path.clone());
        pause.begin(Client, true, 10, 100);
        pause.begin(Client, false, 20, 50);
        assert!(pause.holds(99) && pause.holds_all(99) && slow_path.has(PAUSED));
        pause.end_if_due(99);
        assert!(slow_path.has(PAUSED));
        pause.end_if_due(100);
        assert!(!pause.holds(99) && !slow_path.has(PAUSED));
        pause.begin(Client, false, 100, 200);
        assert!(!pause.holds_all(100));
        pause.end(Client);
        assert!(!pause.holds(100) && !slow_path.has(PAUSED));
    }

    #[test]
    fn the_end_of_a_pause_keeps_pauses_for_other_reasons() {
        let slow_path = Arc::<EngineFlags>::default();
        let pause = Pause::new(slow_path.clone());
        pause.begin(Failover, false, 10, u64::MAX);
        pause.begin(Client, true, 10, 100);
        assert_eq!((pause.holds_all(10), pause.purpose(10)), (true, Some(Failover)));
        pause.end(Client);
        assert!(pause.holds(10) && !pause.holds_all(10) && slow_path.has(PAUSED));
        pause.begin(Client, true, 10, 100);
        pause.begin(Shutdown, false, 20, u64::MAX);
        pause.end(Failover);
        pause.end(Shutdown);
        assert_eq!((pause.holds_all(20), pause.purpose(20), pause.left_ms(20)), (true, Some(Client), 80));
        pause.end_if_due(100);
        assert_eq!((pause.holds(99), pause.purpose(99), slow_path.has(PAUSED)), (false, None, false));
    }
}
