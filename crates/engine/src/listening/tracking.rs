//! CLIENT TRACKING: the clients that cache what they read, what each has chosen, and the beginnings of keys that some are
//! told of whether they have read them or not (BCAST).
//!
//! Source of the semantics: Redis's "Client-side caching" page, and what a running server shows. The keys that are
//! remembered are in `tracked_keys.rs`; what is sent is put together by `services::invalidations`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::tracked_keys::TrackedKeys;
use crate::reasons::{BROADCAST, EngineReasons, TRACKED};

/// What a client has chosen, and what has become of it.
pub mod tracking_flag {
    /// It caches.
    pub const ON: u32 = 1;
    /// It is told of all keys that begin in some way, and none is remembered for it.
    pub const BCAST: u32 = 1 << 1;
    /// Only what follows CLIENT CACHING YES is remembered.
    pub const OPTIN: u32 = 1 << 2;
    /// What follows CLIENT CACHING NO is not remembered.
    pub const OPTOUT: u32 = 1 << 3;
    /// It isn't told of what it has changed itself.
    pub const NOLOOP: u32 = 1 << 4;
    /// CLIENT CACHING has been given for the next command.
    pub const CACHING: u32 = 1 << 5;
    /// The connection that gets its messages is gone.
    pub const BROKEN: u32 = 1 << 6;
    /// It speaks RESP3: it can be sent messages itself.
    pub const RESP3: u32 = 1 << 7;
    /// Its connection is closed.
    pub const GONE: u32 = 1 << 8;
    /// What CLIENT TRACKING ON sets anew.
    pub const CHOSEN: u32 = ON | BCAST | OPTIN | OPTOUT | NOLOOP | BROKEN;
}

use tracking_flag::{BCAST, CACHING, CHOSEN, GONE, ON};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is always whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client that caches, or has done so. Its own thread changes what it has chosen.
#[derive(Debug)]
pub struct Tracker {
    /// The connection.
    pub client: u64,
    /// The thread that owns it.
    pub worker: usize,
    /// See [`tracking_flag`].
    flags: AtomicU32,
    /// The connection that gets its messages; 0 is itself.
    redirect: AtomicU64,
    /// The beginnings of keys that it is told of, ascending.
    prefixes: Mutex<Vec<Box<[u8]>>>,
}

impl Tracker {
    /// A client that doesn't cache yet.
    #[must_use]
    pub fn new(client: u64, worker: usize) -> Tracker {
        Tracker { client, worker, flags: AtomicU32::new(0), redirect: AtomicU64::new(0), prefixes: Mutex::default() }
    }

    /// All its flags.
    #[inline]
    #[must_use]
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Whether it has one of these.
    #[inline]
    #[must_use]
    pub fn has(&self, flags: u32) -> bool {
        self.flags() & flags != 0
    }

    /// Sets or clears some.
    pub fn set(&self, flags: u32, on: bool) {
        if on {
            self.flags.fetch_or(flags, Ordering::Relaxed);
        } else {
            self.flags.fetch_and(!flags, Ordering::Relaxed);
        }
    }

    /// The connection that gets its messages; 0 is itself.
    #[must_use]
    pub fn redirect(&self) -> u64 {
        self.redirect.load(Ordering::Relaxed)
    }

    /// The beginnings of keys that it is told of.
    #[must_use]
    pub fn prefixes(&self) -> Vec<Box<[u8]>> {
        lock(&self.prefixes).clone()
    }

    /// True once its connection is closed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.has(GONE)
    }

    /// Notes that its connection is closed.
    pub fn note_gone(&self) {
        self.set(GONE, true);
    }
}

/// What begins in one way, and the clients that are told of it.
#[derive(Clone, Debug)]
pub struct PrefixAudience {
    /// The beginning; empty, it is that of all keys.
    pub prefix: Box<[u8]>,
    /// Ascending by client.
    pub trackers: Vec<Arc<Tracker>>,
}

/// The beginnings in their order.
type Prefixes = Arc<Vec<PrefixAudience>>;

/// All clients that cache.
pub struct Tracking {
    /// The keys that are remembered for them.
    pub keys: TrackedKeys,
    all: Mutex<BTreeMap<u64, Arc<Tracker>>>,
    prefixes: Mutex<Prefixes>,
    /// Counts changes of `prefixes`, so that threads notice them.
    version: AtomicU64,
    reasons: Arc<EngineReasons>,
}

impl Tracking {
    /// None.
    #[must_use]
    pub fn new(reasons: Arc<EngineReasons>) -> Tracking {
        Tracking {
            keys: TrackedKeys::default(),
            all: Mutex::default(),
            prefixes: Mutex::default(),
            version: AtomicU64::new(0),
            reasons,
        }
    }

    /// How many clients cache.
    #[must_use]
    pub fn clients(&self) -> usize {
        lock(&self.all).len()
    }

    /// All of them.
    #[must_use]
    pub fn trackers(&self) -> Vec<Arc<Tracker>> {
        lock(&self.all).values().cloned().collect()
    }

    /// How many beginnings of keys clients are told of.
    #[must_use]
    pub fn prefix_count(&self) -> usize {
        lock(&self.prefixes).len()
    }

    /// A client begins to cache, or chooses anew: these flags, this connection to get its messages, and with
    /// [`BCAST`] more beginnings of keys.
    pub fn begin(&self, tracker: &Arc<Tracker>, chosen: u32, redirect: u64, prefixes: &[&[u8]]) {
        let mut all = lock(&self.all);
        all.insert(tracker.client, tracker.clone());
        self.reasons.set(TRACKED, true);
        tracker.redirect.store(redirect, Ordering::Relaxed);
        let kept = tracker.flags() & !CHOSEN;
        tracker.flags.store(kept | ON | (chosen & CHOSEN), Ordering::Relaxed);
        if chosen & BCAST != 0 {
            prefixes.iter().for_each(|prefix| self.add_prefix(tracker, prefix));
            self.reasons.set(BROADCAST, true);
        }
    }

    fn add_prefix(&self, tracker: &Arc<Tracker>, prefix: &[u8]) {
        let mut own = lock(&tracker.prefixes);
        if let Err(place) = own.binary_search_by(|own| (**own).cmp(prefix)) {
            own.insert(place, prefix.into());
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

    /// A client doesn't cache any more.
    pub fn end(&self, tracker: &Tracker) {
        let mut all = lock(&self.all);
        if all.remove(&tracker.client).is_none() {
            return;
        }
        tracker.set(CHOSEN | CACHING, false);
        let own = std::mem::take(&mut *lock(&tracker.prefixes));
        if !own.is_empty() {
            let mut shared = lock(&self.prefixes);
            let prefixes = Arc::make_mut(&mut shared);
            for audience in prefixes.iter_mut() {
                audience.trackers.retain(|other| other.client != tracker.client);
            }
            prefixes.retain(|audience| !audience.trackers.is_empty());
            self.version.fetch_add(1, Ordering::Release);
            self.reasons.set(BROADCAST, !prefixes.is_empty());
        }
        if all.is_empty() {
            // What is remembered still is of use for none: it is forgotten a few keys at a time.
            self.reasons.set(TRACKED, false);
        }
    }
}

/// What a thread knows of beginnings, and the keys that it has changed and is yet to tell of.
#[derive(Default)]
pub struct Broadcasts {
    version: u64,
    prefixes: Prefixes,
    /// With the client that has changed each last; 0 is none.
    pending: BTreeMap<Box<[u8]>, u64>,
    bytes: usize,
}

impl Broadcasts {
    /// Takes over the beginnings, if they have changed.
    #[inline]
    pub fn follow(&mut self, tracking: &Tracking) {
        let version = tracking.version.load(Ordering::Acquire);
        if version != self.version {
            (self.version, self.prefixes) = (version, lock(&tracking.prefixes).clone());
        }
    }

    /// True if some client is told of this key.
    #[must_use]
    pub fn concern(&self, key: &[u8]) -> bool {
        self.prefixes.iter().any(|audience| key.starts_with(&audience.prefix))
    }

    /// Notes that a client has changed a key; 0 is none.
    pub fn note(&mut self, key: &[u8], source: u64) {
        if self.concern(key) && self.pending.insert(key.into(), source).is_none() {
            self.bytes += key.len();
        }
    }

    /// How many bytes and keys there are to tell of.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes + self.pending.len()
    }

    /// True if there is something to tell.
    #[inline]
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes what there is to tell, in the order of the keys, and the beginnings.
    #[must_use]
    pub fn take(&mut self) -> (BTreeMap<Box<[u8]>, u64>, Prefixes) {
        self.bytes = 0;
        (std::mem::take(&mut self.pending), self.prefixes.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reasons::has_listeners;

    #[test]
    fn reasons_hold_for_as_long_as_a_client_caches() {
        let reasons = Arc::<EngineReasons>::default();
        let tracking = Tracking::new(reasons.clone());
        let [a, b] = [1, 2].map(|client| Arc::new(Tracker::new(client, 0)));
        tracking.begin(&a, 0, 0, &[]);
        tracking.begin(&b, BCAST, 7, &[b"x", b"a"]);
        assert!(reasons.has(TRACKED) && reasons.has(BROADCAST) && has_listeners(reasons.get()));
        assert_eq!((tracking.clients(), tracking.prefix_count(), b.redirect()), (2, 2, 7));
        tracking.end(&b);
        tracking.end(&b);
        assert!(reasons.has(TRACKED) && !reasons.has(BROADCAST) && !b.has(ON | BCAST));
        tracking.end(&a);
        assert_eq!(reasons.get(), 0);
    }

    #[test]
    fn a_thread_notes_keys_that_begin_as_some_client_asks() {
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
