//! The primary that this server follows, if it does, and how far it is: what REPLICAOF asks for, and what the link's thread tells.
//!
//! The link itself is the server's affair. It takes from here what is wanted, and notes here what it has; it has a worker apply what has
//! arrived ([`Replication::applied`]).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use replication::id::HistoryId;

use crate::reasons::{CUT_OFF, EngineReasons, REPLICA};

/// A server that is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Primary {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// How far the link to the primary is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// There is none, and one will be tried.
    #[default]
    Down,
    /// It is being opened.
    Connecting,
    /// The two introduce themselves.
    Handshake,
    /// The primary's snapshot arrives.
    Receiving,
    /// Changes arrive as they happen.
    Up,
}

impl LinkState {
    /// As ROLE says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LinkState::Down => "connect",
            LinkState::Connecting => "connecting",
            LinkState::Handshake => "handshake",
            LinkState::Receiving => "sync",
            LinkState::Up => "connected",
        }
    }
}

/// What is known of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkFigures {
    /// How far it is.
    pub state: LinkState,
    /// Since when it has not been up, in seconds of Unix time; 0 if it never was.
    pub down_since_s: u64,
    /// When something last came through it, likewise.
    pub heard_s: u64,
    /// Bytes of the history that have arrived.
    pub read: u64,
    /// Bytes of the history that have been applied.
    pub applied: u64,
    /// Bytes of the snapshot that arrives, if that is known, and how many have arrived.
    pub snapshot_bytes: Option<u64>,
    /// See `snapshot_bytes`.
    pub snapshot_read: u64,
    /// Snapshots that were loaded, and times that the link went on where it was.
    pub full: u64,
    /// See `full`.
    pub partial: u64,
    /// Commands of the primary's that could not be applied: data differ.
    pub failed: u64,
}

/// Which history the data are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History {
    /// Its name.
    pub id: HistoryId,
    /// The one that it goes on from, and the first offset that is not that one's any more.
    pub before: Option<(HistoryId, u64)>,
    /// True if the data are what this history has up to the applied offset, so that a link can go on from there.
    pub is_known: bool,
}

#[derive(Debug)]
struct Followed {
    primary: Option<Primary>,
    /// Counts changes of `primary`.
    version: u64,
    link: LinkFigures,
    history: History,
    /// What a worker has applied of the portion that it was given last.
    applied: Option<Applied>,
}

/// What has become of a portion of the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Bytes of it that were taken: all, unless the log had no room for more.
    pub taken: usize,
    /// Commands that answered an error, and the first error.
    pub failures: u64,
    /// See `failures`.
    pub failure: Option<String>,
}

/// See the module's documentation.
pub struct Replication {
    state: Mutex<Followed>,
    changed: Condvar,
    reasons: Arc<EngineReasons>,
}

impl Replication {
    /// Nothing is followed; this server's own history has this name.
    #[must_use]
    pub fn new(id: HistoryId, reasons: Arc<EngineReasons>) -> Replication {
        let state = Followed {
            primary: None,
            version: 0,
            link: LinkFigures::default(),
            history: History { id, before: None, is_known: false },
            applied: None,
        };
        Replication { state: Mutex::new(state), changed: Condvar::new(), reasons }
    }

    fn lock(&self) -> MutexGuard<'_, Followed> {
        // What is behind the lock is always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a primary, or none from here on. Without one, this server's history goes on under the name `fresh`. False if it is so
    /// already. All threads see the change in what they run next.
    pub fn follow(&self, primary: Option<Primary>, fresh: HistoryId, stale_is_served: bool) -> bool {
        let mut state = self.lock();
        if state.primary == primary {
            return false;
        }
        self.reasons.set(REPLICA, primary.is_some());
        self.reasons.set(CUT_OFF, primary.is_some() && !stale_is_served);
        if primary.is_none() {
            let next = state.link.applied + 1;
            state.history = History { id: fresh, before: Some((state.history.id, next)), is_known: true };
        }
        state.primary = primary;
        state.version += 1;
        (state.link.state, state.link.snapshot_bytes) = (LinkState::Down, None);
        self.changed.notify_all();
        true
    }

    /// Refuses reads while the link is down, or serves what there is (`replica-serve-stale-data`).
    pub fn serve_stale(&self, served: bool) {
        let state = self.lock();
        let is_down = state.primary.is_some() && state.link.state != LinkState::Up;
        self.reasons.set(CUT_OFF, is_down && !served);
    }

    /// The primary that is followed, and how often that has changed.
    #[must_use]
    pub fn primary(&self) -> (Option<Primary>, u64) {
        let state = self.lock();
        (state.primary.clone(), state.version)
    }

    /// Waits until another primary is to be followed than at `version`, or none, but no longer than this. True if it is so.
    pub fn wait_for_change(&self, version: u64, timeout: Duration) -> bool {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, timeout, |state| state.version == version);
        waited.unwrap_or_else(PoisonError::into_inner).0.version != version
    }

    /// Notes what is new of the link, unless it belongs to an earlier `version`. True if it doesn't.
    pub fn note_link(&self, version: u64, stale_is_served: bool, note: impl FnOnce(&mut LinkFigures)) -> bool {
        let mut state = self.lock();
        if state.version != version {
            return false;
        }
        note(&mut state.link);
        let is_down = state.link.state != LinkState::Up;
        drop(state);
        self.reasons.set(CUT_OFF, is_down && !stale_is_served);
        true
    }

    /// What is known of the link.
    #[must_use]
    pub fn link(&self) -> LinkFigures {
        self.lock().link
    }

    /// The history that the data are from.
    #[must_use]
    pub fn history(&self) -> History {
        self.lock().history
    }

    /// Notes the history that the data are from.
    pub fn set_history(&self, history: History) {
        self.lock().history = history;
    }

    /// Notes what a worker has applied.
    pub fn note_applied(&self, applied: Applied) {
        self.lock().applied = Some(applied);
        self.changed.notify_all();
    }

    /// Waits until a worker has applied the portion that it was given. None if it hasn't after this time.
    pub fn applied(&self, timeout: Duration) -> Option<Applied> {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, timeout, |state| state.applied.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.applied.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> HistoryId {
        HistoryId::new([byte; 20])
    }

    #[test]
    fn a_server_that_follows_none_any_more_goes_on_from_the_history_it_had() {
        let reasons = Arc::<EngineReasons>::default();
        let replication = Replication::new(id(1), reasons.clone());
        let primary = Primary { host: "10.0.0.1".into(), port: 6379 };
        assert!(replication.follow(Some(primary.clone()), id(9), true));
        assert!(!replication.follow(Some(primary.clone()), id(9), true));
        assert!(reasons.has(REPLICA) && !reasons.has(CUT_OFF));
        let version = replication.primary().1;
        replication.set_history(History { id: id(2), before: None, is_known: true });
        assert!(replication.note_link(version, true, |link| (link.state, link.applied) = (LinkState::Up, 100)));
        assert!(replication.follow(None, id(3), true));
        assert!(!reasons.has(REPLICA));
        let expected = History { id: id(3), before: Some((id(2), 101)), is_known: true };
        assert_eq!((replication.history(), replication.primary().0), (expected, None));
        // What the old link notes is too late.
        assert!(!replication.note_link(version, true, |link| link.applied = 200));
        assert_eq!(replication.link().applied, 100);
    }

    #[test]
    fn reads_are_refused_while_cut_off_if_that_is_asked_for() {
        let reasons = Arc::<EngineReasons>::default();
        let replication = Replication::new(id(1), reasons.clone());
        replication.follow(Some(Primary { host: "a".into(), port: 1 }), id(9), false);
        assert!(reasons.has(CUT_OFF));
        let version = replication.primary().1;
        replication.note_link(version, false, |link| link.state = LinkState::Up);
        assert!(!reasons.has(CUT_OFF));
        replication.note_link(version, false, |link| link.state = LinkState::Down);
        assert!(reasons.has(CUT_OFF));
        replication.serve_stale(true);
        assert!(!reasons.has(CUT_OFF));
    }
}
