//! The connections that show what MONITOR shows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Audience;
use crate::reasons::{EngineReasons, MONITORED};

/// The connections that show commands.
pub struct Monitors {
    shown: Mutex<Shown>,
    count: AtomicUsize,
    reasons: Arc<EngineReasons>,
}

/// What lines are shown to, and when the last was.
#[derive(Default)]
pub(crate) struct Shown {
    /// The connections.
    pub audience: Audience,
    /// The time of the last line: threads' clocks differ a little, and the next line must not be older.
    pub last_us: u64,
}

impl Monitors {
    /// None.
    #[must_use]
    pub fn new(reasons: Arc<EngineReasons>) -> Monitors {
        Monitors { shown: Mutex::default(), count: AtomicUsize::new(0), reasons }
    }

    /// How many there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locks them.
    pub(crate) fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds connections or removes some.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Audience)) {
        let mut shown = self.shown();
        change(&mut shown.audience);
        self.count.store(shown.audience.len(), Ordering::Relaxed);
        // While `shown` is locked, so that the reason is that of the last change.
        self.reasons.set(MONITORED, !shown.audience.is_empty());
    }
}
