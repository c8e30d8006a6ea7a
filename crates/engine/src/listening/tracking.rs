//! CLIENT TRACKING: the caching clients with their options, and the key prefixes of clients in BCAST mode, which are
//! told about all changes.
//!
//! Source of the semantics: Redis's "Client-side caching" page, and the output of a running server. The tracked keys
//! are in `tracked_keys.rs`; `services::invalidations` builds the messages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::name_bytes;
use super::tracked_keys::TrackedKeys;
use crate::slow_path::{BROADCAST, EngineFlags, TRACKED};

/// Options and state of a client.
pub mod tracking_flag {
    /// Tracking is on.
    pub const ON: u32 = 1;
    /// The client is told about all keys with its prefixes; no key is tracked for it.
    pub const BCAST: u32 = 1 << 1;
    /// Keys are tracked only after CLIENT CACHING YES.
    pub const OPTIN: u32 = 1 << 2;
    /// Keys are not tracked after CLIENT CACHING NO.
    pub const OPTOUT: u32 = 1 << 3;
    /// The client isn't told about its own changes.
    pub const NOLOOP: u32 = 1 << 4;
    /// CLIENT CACHING has been given for the next command.
    pub const CACHING: u32 = 1 << 5;
    /// The connection that receives its messages is gone.
    pub const BROKEN: u32 = 1 << 6;
    /// The client uses RESP3 and can receive messages itself.
    pub const RESP3: u32 = 1 << 7;
    /// The connection is closed.
    pub const GONE: u32 = 1 << 8;
    /// The flags that CLIENT TRACKING ON resets.
    pub const CHOSEN: u32 = ON | BCAST | OPTIN | OPTOUT | NOLOOP | BROKEN;
}

use tracking_flag::{BCAST, CACHING, CHOSEN, GONE, ON};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic cannot leave this data inconsistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client that uses tracking, or has used it. Its own thread changes the options.
#[derive(Debug)]
pub struct Tracker {
    /// The connection.
    pub client: u64,
    /// The worker that owns the connection.
    pub worker: usize,
    /// Flags of [`tracking_flag`].
    flags: AtomicU32,
    /// The connection that receives the messages; 0 for the client itself.
    redirect: AtomicU64,
    /// Prefixes for BCAST, ascending.
    prefixes: Mutex<Vec<Box<[u8]>>>,
    /// Memory of the prefixes, in bytes, with their entries among the prefixes of all clients.
    prefixes_bytes: AtomicU64,
}

impl Tracker {
    /// Creates a client without tracking.
    #[must_use]
    pub fn new(client: u64, worker: usize) -> Tracker {
        Tracker {
            client,
            worker,
            flags: AtomicU32::new(0),
            redirect: AtomicU64::new(0),
            prefixes: Mutex::default(),
            prefixes_bytes: AtomicU64::new(0),
        }
    }

    /// Returns all flags.
    #[inline]
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Returns true if one of these flags is set.
    #[inline]
    #[must_use]
    pub fn has(&self, flags: u32) -> bool {
        self.flags() & flags != 0
    }

    /// Sets or clears flags.
    pub fn set(&self, flags: u32, on: bool) {
        if on {
            self.flags.fetch_or(flags, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flags, Ordering::Relaxed);
        }
    }

    /// Returns the connection that receives the messages; 0 for the client itself.
    #[must_use]
    pub fn redirect(&self) -> u64 {
        self.redirect.load(Ordering::Relaxed)
    }

    /// Returns the memory of the prefixes for BCAST, in bytes.
    #[must_use]
    pub fn prefixes_bytes(&self) -> u64 {
        self.prefixes_bytes.load(Ordering::Relaxed)
    }

    /// Returns the prefixes for BCAST.
    #[must_use]
    pub fn prefixes(&self) -> Vec<Box<[u8]>> {
        lock(&self.prefixes).clone()
    }

    /// Returns true once the connection is closed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.has(GONE)
    }

    /// Notes that the connection is closed.
    pub fn note_gone(&self) {
        self.set(GONE, true);
    }
}

/// A prefix, and the clients that use it.
#[derive(Clone, Debug)]
pub struct PrefixAudience {
    /// The prefix; the empty one matches all keys.
    pub prefix: Box<[u8]>,
    /// Sorted by client.
    pub trackers: Vec<Arc<Tracker>>,
}

/// Prefixes in order.
type Prefixes = Arc<Vec<PrefixAudience>>;

/// All clients that use tracking.
pub struct Tracking {
    /// The tracked keys.
    pub keys: TrackedKeys,
    all: Mutex<BTreeMap<u64, Arc<Tracker>>>,
    prefixes: Mutex<Prefixes>,
    /// Number of changes of `prefixes`, so that threads notice them.
    version: AtomicU64,
    slow_path: Arc<EngineFlags>,
}

impl Tracking {
    /// Creates a set without clients.
    #[must_use]
    pub fn new(slow_path: Arc<EngineFlags>) -> Tracking {
        Tracking {
            keys: TrackedKeys::default(),
            all: Mutex::default(),
            prefixes: Mutex::default(),
            version: AtomicU64::new(0),
            slow_path,
        }
    }

    /// Returns the number of clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        lock(&self.all).len()
    }

    /// Returns all clients.
    #[must_use]
    pub fn trackers(&self) -> Vec<Arc<Tracker>> {
        lock(&self.all).values().cloned().collect()
    }

    /// Returns the number of prefixes.
    #[must_use]
    pub fn prefix_count(&self) -> usize {
        lock(&self.prefixes).len()
    }

    /// Turns tracking on for a client, or changes its options: the flags, the receiving connection, and with [`BCAST`]
    /// additional prefixes.
    pub fn begin(&self, tracker: &Arc<Tracker>, chosen: u32, redirect: u64, prefixes: &[&[u8]]) {
        let mut all = lock(&self.all);
        all.insert(tracker.client, tracker.clone());
        self.slow_path.set(TRACKED, true);
        tracker.redirect.store(redirect, Ordering::Relaxed);
        let kept = tracker.flags() & !CHOSEN;
        tracker.flags.store(kept | ON | (chosen & CHOSEN), Ordering::Relaxed);
        if chosen & BCAST != 0 {
            prefixes.iter().for_each(|prefix| self.add_prefix(tracker, prefix));
            self.slow_path.set(BROADCAST, true);
        }
    }

    fn add_prefix(&self, tracker: &Arc<Tracker>, prefix: &[u8]) {
        let mut own = lock(&tracker.prefixes);
        if let Err(place) = own.binary_search_by(|own| (**own).cmp(prefix)) {
            own.insert(place, prefix.into());
            tracker.prefixes_bytes.fetch_add(name_bytes(prefix), Ordering::Relaxed);
        }
        let mut shared = lock(&self.prefixes);
        let all = Arc::make_mut(&mut shared);
        let at = all.binary_search_by(|known| (*known.prefix).cmp(prefix)).unwrap_or_else(|at| {
            all.insert(at, PrefixAudience { prefix: prefix.into(), trackers: Vec::new() });
            at
        });
        let trackers = &mut all[at].trackers;
        if let Err(place) = trackers.binary_search_by_key(&tracker.client, |t| t.client) {
            trackers.insert(place, tracker.clone());
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Turns tracking off for a client.
    pub fn end(&self, tracker: &Tracker) {
        let mut all = lock(&self.all);
        if all.remove(&tracker.client).is_none() {
            return;
        }
        tracker.set(CHOSEN | CACHING, false);
        let own = std::mem::take(&mut *lock(&tracker.prefixes));
        tracker.prefixes_bytes.store(0, Ordering::Relaxed);
        if !own.is_empty() {
            let mut shared = lock(&self.prefixes);
            let prefixes = Arc::make_mut(&mut shared);
            for audience in prefixes.iter_mut() {
                audience.trackers.retain(|other| other.client != tracker.client);
            }
            prefixes.retain(|audience| !audience.trackers.is_empty());
            self.version.fetch_add(1, Ordering::Release);
            self.slow_path.set(BROADCAST, !prefixes.is_empty());
        }
        if all.is_empty() {
            // Remaining tracked keys are useless, and are removed a few at a time.
            self.slow_path.set(TRACKED, false);
        }
    }
}

/// A thread's copy of the prefixes, and its changed keys that aren't sent yet.
#[derive(Default)]
pub struct Broadcasts {
    version: u64,
    prefixes: Prefixes,
    /// Changed keys, with the client that changed each last; 0 for none.
    pending: BTreeMap<Box<[u8]>, u64>,
    bytes: usize,
}

impl Broadcasts {
    /// Takes over changed prefixes.
    #[inline]
    pub fn follow(&mut self, tracking: &Tracking) {
        let version = tracking.version.load(Ordering::Acquire);
        if version != self.version {
            (self.version, self.prefixes) = (version, lock(&tracking.prefixes).clone());
        }
    }

    /// Returns true if a prefix matches this key.
    #[must_use]
    pub fn concern(&self, key: &[u8]) -> bool {
        self.prefixes.iter().any(|audience| key.starts_with(&audience.prefix))
    }

    /// Notes that a client has changed a key; 0 for no client.
    pub fn note(&mut self, key: &[u8], source: u64) {
        if self.concern(key) && self.pending.insert(key.into(), source).is_none() {
            self.bytes += key.len();
        }
    }

    /// Returns the sum of the pending keys' bytes and their number.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes + self.pending.len()
    }

    /// Returns true if keys are pending.
    #[inline]
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes the pending keys, sorted, and the prefixes.
    #[must_use]
    pub fn take(&mut self) -> (BTreeMap<Box<[u8]>, u64>, Prefixes) {
        self.bytes = 0;
        (std::mem::take(&mut self.pending), self.prefixes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slow_path::has_listeners;

    #[test]
    fn flags_are_set_while_a_client_caches() {
        let slow_path = Arc::<EngineFlags>::default();
        let tracking = Tracking::new(slow_path.clone());
        let [a, b] = [1, 2].map(|client| Arc::new(Tracker::new(client, 0)));
        tracking.begin(&a, 0, 0, &[]);
        tracking.begin(&b, BCAST, 7, &[b"x", b"a"]);
        assert!(slow_path.has(TRACKED) && slow_path.has(BROADCAST) && has_listeners(slow_path.get()));
        assert_eq!((tracking.clients(), tracking.prefix_count(), b.redirect()), (2, 2, 7));
        tracking.end(&b);
        tracking.end(&b);
        assert!(slow_path.has(TRACKED) && !slow_path.has(BROADCAST) && !b.has(ON | BCAST));
        tracking.end(&a);
        assert_eq!(slow_path.get(), 0);
    }

    #[test]
    fn a_thread_notes_changed_keys_with_a_clients_prefix() {
        let tracking = Tracking::new(Arc::default());
        let [a, b] = [1, 2].map(|client| Arc::new(Tracker::new(client, 0)));
        tracking.begin(&a, BCAST, 0, &[b"user:"]);
        tracking.begin(&b, BCAST, 0, &[b"user:", b"x"]);
        let mut broadcasts = Broadcasts::default();
        assert!(!broadcasts.concern(b"user:1"));
        broadcasts.follow(&tracking);
        for (key, source) in [("user:2", 5), ("use", 5), ("user:1", 0), ("user:2", 6)] {
            broadcasts.note(key.as_bytes(), source);
        }
        let (pending, prefixes) = broadcasts.take();
        assert!(!broadcasts.is_pending());
        assert_eq!(pending.into_iter().collect::<Vec<_>>(), [(b"user:1"[..].into(), 0), (b"user:2"[..].into(), 6)]);
        let clients: Vec<Vec<u64>> =
            prefixes.iter().map(|audience| audience.trackers.iter().map(|t| t.client).collect()).collect();
        assert_eq!(clients, [vec![1, 2], vec![2]]);
        tracking.end(&b);
        broadcasts.follow(&tracking);
        assert!(broadcasts.concern(b"user:1") && !broadcasts.concern(b"x"));
    }
}
