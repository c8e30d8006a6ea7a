//! Keys that clients have written on a writable replica (`replica-read-only no`).
//!
//! A replica leaves expiry to its primary, but the primary doesn't know these keys. The replica therefore removes them
//! by its own clock, as in Redis, and keeps the primary's keys. A key counts as the replica's own until the primary's
//! next snapshot.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A key and its database.
pub(crate) type OwnKey = (usize, Box<[u8]>);

#[derive(Default)]
struct Known {
    /// Keys that were written since the last check of their expiry.
    written: HashSet<OwnKey>,
    /// Keys with an expiry, ordered by the time that the last check found.
    timed: BTreeSet<(u64, OwnKey)>,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct OwnKeys {
    known: Mutex<Known>,
    /// True if there are any keys, so that a check without keys takes no lock.
    any: AtomicBool,
}

impl OwnKeys {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // No code panics with the sets half changed, so a poisoned lock is harmless.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a client has written a key.
    pub(crate) fn note_written(&self, database: usize, key: &[u8]) {
        self.lock().written.insert((database, key.into()));
        self.any.store(true, Ordering::Relaxed);
    }

    /// Notes the expiry of a key, which is checked again at that time.
    pub(crate) fn note_expiry(&self, key: OwnKey, at_ms: u64) {
        self.lock().timed.insert((at_ms, key));
        self.any.store(true, Ordering::Relaxed);
    }

    /// Takes up to `most` keys to check: written ones, and those that are due at `now_ms`.
    pub(crate) fn take(&self, now_ms: u64, most: usize) -> Vec<OwnKey> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut known = self.lock();
        let written: Vec<OwnKey> = known.written.iter().take(most).cloned().collect();
        written.iter().for_each(|key| _ = known.written.remove(key));
        let mut taken = written;
        while taken.len() < most
            && known.timed.first().is_some_and(|(at_ms, _)| *at_ms <= now_ms)
            && let Some((_, key)) = known.timed.pop_first()
        {
            taken.push(key);
        }
        self.any.store(!known.written.is_empty() || !known.timed.is_empty(), Ordering::Relaxed);
        taken
    }

    /// Forgets all keys, because the data are the primary's, or this server expires all keys by itself.
    pub(crate) fn clear(&self) {
        if self.any.swap(false, Ordering::Relaxed) {
            *self.lock() = Known::default();
        }
    }
}
