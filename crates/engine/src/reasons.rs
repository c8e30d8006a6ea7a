//! Reasons why a command can't take the shortest way, one word of them for the engine and one for each session.
//!
//! Nearly every command runs while there is none. Each reason is a bit, so that one more costs no question more.

use std::sync::atomic::{AtomicU64, Ordering};

/// CLIENT PAUSE holds commands back, or has done so until a moment ago.
pub const PAUSED: u64 = 1;
/// Keyspace notifications publish some class of events.
pub const NOTIFIES: u64 = 1 << 1;
/// MONITOR shows commands.
pub const MONITORED: u64 = 1 << 2;
/// The journal has a reader. Changed behind the closed gate.
pub const RECORDED: u64 = 1 << 3;
/// Replies wait until what they depend on is safe on disk.
pub const AWAITED: u64 = 1 << 4;
/// Changes can't be written to disk: commands that write are refused.
pub const UNSAVED: u64 = 1 << 5;
/// Snapshots are due and can't be written: commands that write are refused.
pub const UNSNAPPED: u64 = 1 << 6;
/// The data are being loaded: commands are refused unless they say that they may run then.
pub const LOADING: u64 = 1 << 7;
/// The data are being loaded again (DEBUG LOADAOF): commands wait for the pause that goes with it.
pub const RELOADING: u64 = 1 << 8;
/// The server follows a primary: keys change as that one says, and commands of clients don't write unless that is allowed.
pub const REPLICA: u64 = 1 << 9;
/// The link to the primary is down, and what there is of the data is not to be served meanwhile.
pub const CUT_OFF: u64 = 1 << 10;
/// Fewer replicas keep up than `min-replicas-to-write` asks for: commands that write are refused.
pub const FEW_REPLICAS: u64 = 1 << 11;
/// Keys are on their way to another server: commands that would change them wait.
pub const MIGRATES: u64 = 1 << 12;
/// The server imports another one's data (`import-mode`): nothing expires or is evicted, and connections that import see what is due.
pub const IMPORTS: u64 = 1 << 13;
/// Reasons for which commands that write are refused since there is something wrong with the disk.
pub const REFUSES_WRITES: u64 = UNSAVED | UNSNAPPED;
/// Reasons for which keys stay as they are: nothing expires, is evicted or moved.
pub const KEEPS_KEYS: u64 = PAUSED | LOADING | REPLICA | IMPORTS;
/// Reasons for which nothing that is pending in a stream's group changes its consumer by the clock.
pub const KEEPS_PENDING: u64 = PAUSED | REFUSES_WRITES | LOADING | REPLICA | FEW_REPLICAS | MIGRATES;
/// Reasons for which any command may have to wait, or be refused.
pub const HOLDS: u64 = PAUSED | REFUSES_WRITES | LOADING | REPLICA | CUT_OFF | FEW_REPLICAS | MIGRATES | IMPORTS;
/// A client caches what it reads (CLIENT TRACKING), so that keys may be remembered for it.
pub const TRACKED: u64 = 1 << 30;
/// Such a client is told of all keys that begin in some way (CLIENT TRACKING BCAST).
pub const BROADCAST: u64 = 1 << 31;
/// One key that is watched or waited for. The bits from this one on are the number of them: whether there is any changes
/// together with how many there are.
const LISTENER: u64 = 1 << 32;

/// The engine's reasons, which hold for the commands of all sessions.
#[derive(Default)]
pub struct EngineReasons(AtomicU64);

impl EngineReasons {
    /// All that there are; 0 if there is none.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Whether one of these holds.
    #[inline]
    #[must_use]
    pub fn has(&self, reasons: u64) -> bool {
        self.get() & reasons != 0
    }

    /// Sets or clears one. Changes of the same one must not be concurrent.
    pub fn set(&self, reason: u64, holds: bool) {
        if holds {
            self.0.fetch_or(reason, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!reason, Ordering::Relaxed);
        }
    }

    /// Something begins to listen to a key. The caller holds the key's shard.
    pub fn add_listener(&self) {
        self.0.fetch_add(LISTENER, Ordering::Relaxed);
    }

    /// Something has ceased to listen to a key.
    pub fn remove_listener(&self) {
        self.0.fetch_sub(LISTENER, Ordering::Relaxed);
    }
}

/// Whether any key is listened to: watched, waited for or tracked.
#[inline]
#[must_use]
pub const fn has_listeners(reasons: u64) -> bool {
    reasons >= TRACKED
}

/// Whether any key is watched or waited for.
#[inline]
#[must_use]
pub const fn has_watchers_or_waiters(reasons: u64) -> bool {
    reasons >= LISTENER
}

/// Whether some key is listened to, and there is no other reason.
#[inline]
#[must_use]
pub const fn are_listeners_only(reasons: u64) -> bool {
    has_listeners(reasons) && reasons & (TRACKED - 1) == 0
}

/// A session's reasons. Each follows from one of its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum SessionReason {
    /// The client has yet to authenticate.
    Unauthenticated = 1,
    /// A transaction has begun: commands are queued.
    Queues = 1 << 1,
    /// It has subscribed to something.
    Subscribed = 1 << 2,
    /// The client doesn't want all replies.
    Silenced = 1 << 3,
    /// It shows what MONITOR shows.
    Monitors = 1 << 4,
    /// It counts for a pipeline that survives it.
    Counts = 1 << 5,
    /// It was accepted beyond `maxclients`, for commands of administration alone.
    Reserved = 1 << 6,
    /// The client caches what it reads: the keys of what it reads are remembered for it.
    Caches = 1 << 7,
    /// Its user isn't allowed everything: what it sends is looked at as it is planned.
    Restricted = 1 << 8,
    /// What has been planned for it must be looked at again: its user, or what that may do, has changed, or its database.
    Replan = 1 << 9,
}

/// See [`SessionReason`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SessionReasons(u32);

impl SessionReasons {
    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether there is none but these.
    #[inline]
    #[must_use]
    pub const fn are_only(self, reasons: u32) -> bool {
        self.0 & !reasons == 0
    }

    /// Whether any of these holds.
    #[inline]
    #[must_use]
    pub const fn any_of(self, reasons: u32) -> bool {
        self.0 & reasons != 0
    }

    /// Whether this one holds.
    #[inline]
    #[must_use]
    pub fn has(self, reason: SessionReason) -> bool {
        self.0 & reason as u32 != 0
    }

    /// Sets or clears one.
    pub fn set(&mut self, reason: SessionReason, holds: bool) {
        self.0 = if holds { self.0 | reason as u32 } else { self.0 & !(reason as u32) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_counted_beside_the_bits() {
        let reasons = EngineReasons::default();
        reasons.add_listener();
        reasons.set(PAUSED, true);
        reasons.add_listener();
        reasons.remove_listener();
        assert!(has_listeners(reasons.get()) && reasons.has(PAUSED) && !reasons.has(MONITORED | NOTIFIES));
        reasons.remove_listener();
        assert_eq!(reasons.get(), PAUSED);
        reasons.set(TRACKED, true);
        assert!(has_listeners(reasons.get()) && !has_watchers_or_waiters(reasons.get()));
        assert!(!are_listeners_only(reasons.get()));
        reasons.set(TRACKED, false);
        reasons.set(PAUSED, false);
        assert_eq!(reasons.get(), 0);
    }

    #[test]
    fn a_session_has_each_reason_by_itself() {
        let mut reasons = SessionReasons::default();
        reasons.set(SessionReason::Queues, true);
        reasons.set(SessionReason::Counts, true);
        reasons.set(SessionReason::Queues, false);
        assert!(reasons.has(SessionReason::Counts) && !reasons.has(SessionReason::Queues) && !reasons.is_empty());
    }
}
