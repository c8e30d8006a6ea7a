//! CLIENT PAUSE: commands that wait until a moment, all of them or those that may change something.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::reasons::{EngineReasons, PAUSED};

/// See the module's documentation.
pub struct Pause {
    /// In milliseconds of Unix time; 0 is none.
    until_ms: AtomicU64,
    /// Whether it holds back all commands, not only those that may write.
    all: AtomicBool,
    /// Held for every change, so that the reason is that of the last one.
    reasons: Mutex<Arc<EngineReasons>>,
}

impl Pause {
    /// None. [`PAUSED`] is set and cleared with it.
    #[must_use]
    pub fn new(reasons: Arc<EngineReasons>) -> Pause {
        Pause { until_ms: AtomicU64::new(0), all: AtomicBool::new(false), reasons: Mutex::new(reasons) }
    }

    fn change(&self) -> MutexGuard<'_, Arc<EngineReasons>> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses commands until then. A pause of everything is not lightened by another of writes, nor a long one
    /// shortened.
    pub fn begin(&self, all: bool, now_ms: u64, until_ms: u64) {
        let reasons = self.change();
        if all || !self.holds(now_ms) {
            self.all.store(all, Ordering::Relaxed);
        }
        let before_ms = self.until_ms.fetch_max(until_ms, Ordering::Relaxed);
        reasons.set(PAUSED, before_ms.max(until_ms) != 0);
    }

    /// Ends any pause.
    pub fn end(&self) {
        let reasons = self.change();
        self.until_ms.store(0, Ordering::Relaxed);
        reasons.set(PAUSED, false);
    }

    /// Ends a pause whose time is up. Until then commands are looked at one by one.
    pub fn end_if_due(&self, now_ms: u64) {
        if self.until_ms.load(Ordering::Relaxed) == 0 || self.holds(now_ms) {
            return;
        }
        let reasons = self.change();
        if !self.holds(now_ms) {
            self.until_ms.store(0, Ordering::Relaxed);
            reasons.set(PAUSED, false);
        }
    }

    /// For how long commands are still to wait, in milliseconds.
    #[must_use]
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        self.until_ms.load(Ordering::Relaxed).saturating_sub(now_ms)
    }

    /// Whether commands wait now.
    #[must_use]
    pub fn holds(&self, now_ms: u64) -> bool {
        self.until_ms.load(Ordering::Relaxed) > now_ms
    }

    /// Whether all commands wait, not only those that may write.
    #[must_use]
    pub fn is_of_all(&self) -> bool {
        self.all.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_neither_lightened_nor_shortened_by_another() {
        let reasons = Arc::<EngineReasons>::default();
        let pause = Pause::new(reasons.clone());
        pause.begin(true, 10, 100);
        pause.begin(false, 20, 50);
        assert!(pause.holds(99) && pause.is_of_all() && reasons.has(PAUSED));
        pause.end_if_due(99);
        assert!(reasons.has(PAUSED));
        pause.end_if_due(100);
        assert!(!pause.holds(99) && !reasons.has(PAUSED));
        pause.begin(false, 100, 200);
        assert!(!pause.is_of_all());
        pause.end();
        assert!(!pause.holds(100) && !reasons.has(PAUSED));
    }
}
