//! Flags for reasons that keep commands off the fast path: one word for the engine, and one for each session.
//!
//! Nearly every command runs while no flag is set. Each reason is a bit, so an additional one needs no additional
//! check.

use std::sync::atomic::{AtomicU64, Ordering};

/// CLIENT PAUSE holds commands back, or did so until a moment ago.
pub const PAUSED: u64 = 1;
/// Keyspace notifications are on.
pub const NOTIFIES: u64 = 1 << 1;
/// MONITOR shows commands.
pub const MONITORED: u64 = 1 << 2;
/// The journal has a reader. Changed behind the closed gate.
pub const RECORDED: u64 = 1 << 3;
/// Replies wait until the data that they depend on is safe on disk.
pub const AWAITED: u64 = 1 << 4;
/// Changes can't be written to disk: commands that write are refused.
pub const UNSAVED: u64 = 1 << 5;
/// Snapshots are due but fail: commands that write are refused.
pub const UNSNAPPED: u64 = 1 << 6;
/// The data are being loaded: commands are refused unless their entry allows them.
pub const LOADING: u64 = 1 << 7;
/// The data are being reloaded (DEBUG LOADAOF): commands wait for the end of the pause.
pub const RELOADING: u64 = 1 << 8;
/// The server follows a primary, which decides on expiry, and clients may not write unless replicas are writable.
pub const REPLICA: u64 = 1 << 9;
/// The link to the primary is down, and old data must not be served.
pub const CUT_OFF: u64 = 1 << 10;
/// There are fewer replicas in sync than `min-replicas-to-write`: commands that write are refused.
pub const FEW_REPLICAS: u64 = 1 << 11;
/// Keys are migrating to another server: commands that would change them wait.
pub const MIGRATES: u64 = 1 << 12;
/// The server imports another server's data (`import-mode`): nothing expires or is evicted, and importing connections
/// see expired keys.
pub const IMPORTS: u64 = 1 << 13;
/// Slots of the cluster are open: commands on their keys may be redirected, depending on the keys that exist.
pub const SLOTS_OPEN: u64 = 1 << 14;
/// The server is a replica that is to take over soon: commands of clients that were told to move wait.
pub const AWAITS_PROMOTION: u64 = 1 << 15;
/// Whole slots move to or from this node: a command that empties a database ends the move.
pub const MOVES_SLOTS: u64 = 1 << 16;
/// Reasons to refuse write commands because of the disk.
pub const REFUSES_WRITES: u64 = UNSAVED | UNSNAPPED;
/// Reasons to keep keys in place: nothing expires, is evicted or moved.
pub const KEEPS_KEYS: u64 = PAUSED | LOADING | REPLICA | IMPORTS;
/// Reasons that stop the clock from reassigning pending entries of a stream's group.
pub const KEEPS_PENDING: u64 = PAUSED | REFUSES_WRITES | LOADING | REPLICA | FEW_REPLICAS | MIGRATES;
/// Reasons for which any command may have to wait or be refused.
pub const HOLDS: u64 =
    PAUSED | REFUSES_WRITES | LOADING | REPLICA | CUT_OFF | FEW_REPLICAS | MIGRATES | IMPORTS | AWAITS_PROMOTION;
/// A client caches the values that it reads (CLIENT TRACKING), so that keys may be tracked for it.
pub const TRACKED: u64 = 1 << 30;
/// A client has prefixes for tracking (CLIENT TRACKING BCAST).
pub const BROADCAST: u64 = 1 << 31;
/// The unit of the number of watched or awaited keys, in the upper bits of the word. The number itself thus tells if
/// there is any.
const LISTENER: u64 = 1 << 32;

/// The engine's flags, which apply to the commands of all sessions.
#[derive(Default)]
pub struct EngineFlags(AtomicU64);

impl EngineFlags {
    /// Returns all flags; 0 without any.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns true if one of these flags is set.
    #[inline]
    #[must_use]
    pub fn has(&self, slow_path: u64) -> bool {
        self.get() & slow_path != 0
    }

    /// Sets or clears a flag. Changes of the same flag must not be concurrent.
    pub fn set(&self, reason: u64, holds: bool) {
        if holds {
            self.0.fetch_or(reason, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!reason, Ordering::Relaxed);
        }
    }

    /// Adds a listener of a key. The caller holds the key's shard.
    pub fn add_listener(&self) {
        self.0.fetch_add(LISTENER, Ordering::Relaxed);
    }

    /// Removes a listener of a key.
    pub fn remove_listener(&self) {
        self.0.fetch_sub(LISTENER, Ordering::Relaxed);
    }
}

/// Returns true if any key has listeners: it is watched, awaited or tracked.
#[inline]
#[must_use]
pub const fn has_listeners(slow_path: u64) -> bool {
    slow_path >= TRACKED
}

/// Returns true if any key is watched or awaited.
#[inline]
#[must_use]
pub const fn has_watchers_or_waiters(slow_path: u64) -> bool {
    slow_path >= LISTENER
}

/// Returns true if some key has listeners, and no other flag is set.
#[inline]
#[must_use]
pub const fn are_listeners_only(slow_path: u64) -> bool {
    has_listeners(slow_path) && slow_path & (TRACKED - 1) == 0
}

/// A session's reasons. Each follows from one of its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum SessionFlag {
    /// The client has not authenticated.
    Unauthenticated = 1,
    /// A transaction is open: commands are queued.
    Queues = 1 << 1,
    /// The client has subscriptions.
    Subscribed = 1 << 2,
    /// The client doesn't want all replies.
    Silenced = 1 << 3,
    /// The client runs MONITOR.
    Monitors = 1 << 4,
    /// The session counts for a pipeline.
    Counts = 1 << 5,
    /// The connection was accepted beyond `maxclients`, only for administration commands.
    Reserved = 1 << 6,
    /// The client caches the values that it reads: keys are tracked for it.
    Caches = 1 << 7,
    /// The user is restricted: its commands are checked during planning.
    Restricted = 1 << 8,
    /// The plan is outdated, because the user, its permissions, the database or the cluster's slots have changed.
    Replan = 1 << 9,
    /// The server is a node of a cluster: the slots of commands are checked during planning.
    Clustered = 1 << 10,
    /// READONLY: a replica serves reads of its primary's keys.
    ReadsReplica = 1 << 11,
    /// ASKING: the next command may use keys of a slot that is being imported.
    Asking = 1 << 12,
    /// A failure has stopped the pipeline: commands are skipped until PIPELINE SYNC.
    Skips = 1 << 13,
    /// Another node runs a command of the client, and the client's next commands must run after it (`cluster-forward strict`).
    AwaitsNode = 1 << 14,
}

/// A set of [`SessionFlag`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionFlags(u32);

impl SessionFlags {
    /// Returns true if no flag is set.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if no other flags than these are set.
    #[inline]
    #[must_use]
    pub const fn are_only(self, slow_path: u32) -> bool {
        self.0 & !slow_path == 0
    }

    /// Returns true if any of these flags is set.
    #[inline]
    #[must_use]
    pub const fn any_of(self, slow_path: u32) -> bool {
        self.0 & slow_path != 0
    }

    /// Returns true if this flag is set.
    #[inline]
    #[must_use]
    pub fn has(self, reason: SessionFlag) -> bool {
        self.0 & reason as u32 != 0
    }

    /// Sets or clears a flag.
    pub fn set(&mut self, reason: SessionFlag, holds: bool) {
        self.0 = if holds { self.0 | reason as u32 } else { self.0 & !(reason as u32) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_counted_beside_the_bits() {
        let slow_path = EngineFlags::default();
        slow_path.add_listener();
        slow_path.set(PAUSED, true);
        slow_path.add_listener();
        slow_path.remove_listener();
        assert!(has_listeners(slow_path.get()) && slow_path.has(PAUSED) && !slow_path.has(MONITORED | NOTIFIES));
        slow_path.remove_listener();
        assert_eq!(slow_path.get(), PAUSED);
        slow_path.set(TRACKED, true);
        assert!(has_listeners(slow_path.get()) && !has_watchers_or_waiters(slow_path.get()));
        assert!(!are_listeners_only(slow_path.get()));
        slow_path.set(TRACKED, false);
        slow_path.set(PAUSED, false);
        assert_eq!(slow_path.get(), 0);
    }

    #[test]
    fn session_flags_are_independent() {
        let mut slow_path = SessionFlags::default();
        slow_path.set(SessionFlag::Queues, true);
        slow_path.set(SessionFlag::Counts, true);
        slow_path.set(SessionFlag::Queues, false);
        assert!(slow_path.has(SessionFlag::Counts) && !slow_path.has(SessionFlag::Queues) && !slow_path.is_empty());
    }
}
