//! Records of denials, for ACL LOG and INFO.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::check::Denied;

/// Number of entries searched for a similar one, and the maximum age of that one in milliseconds: Redis's figures.
const LOOKED_AT: usize = 10;
const GROUPED_MS: u64 = 60_000;

/// The reason of a denial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A wrong password, or no such user.
    Auth,
    /// A certificate for a user that doesn't exist or is off.
    Certificate,
    /// The user's rules.
    Rules(Denied),
}

impl Reason {
    const COUNT: usize = 6;

    /// Returns the reason's name in ACL LOG.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Auth => "auth",
            Reason::Certificate => "tls-cert",
            Reason::Rules(Denied::Command) => "command",
            Reason::Rules(Denied::Key) => "key",
            Reason::Rules(Denied::Channel) => "channel",
            Reason::Rules(Denied::Database) => "database",
        }
    }

    fn index(self) -> usize {
        match self {
            Reason::Auth => 0,
            Reason::Rules(Denied::Command) => 1,
            Reason::Rules(Denied::Key) => 2,
            Reason::Rules(Denied::Channel) => 3,
            Reason::Rules(Denied::Database) => 4,
            Reason::Certificate => 5,
        }
    }
}

/// The context of a denial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// A single command.
    TopLevel,
    /// A command of a transaction.
    Multi,
    /// A command of a script.
    Script,
}

impl Context {
    /// Returns the context's name in ACL LOG.
    pub fn name(self) -> &'static str {
        match self {
            Context::TopLevel => "toplevel",
            Context::Multi => "multi",
            Context::Script => "lua",
        }
    }
}

/// An entry of ACL LOG.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Number of occurrences.
    pub count: u64,
    /// The kind of the denied object.
    pub reason: Reason,
    /// The place of the command: alone, in a transaction, or in a script.
    pub context: Context,
    /// The command, the key, the channel or the database.
    pub object: Vec<u8>,
    /// The user.
    pub user: Vec<u8>,
    /// The connection's line in CLIENT LIST, as of the last occurrence.
    pub client: String,
    /// Time of the last occurrence, in milliseconds of Unix time.
    pub updated_ms: u64,
    /// Time of the first occurrence, in milliseconds of Unix time.
    pub created_ms: u64,
    /// The entry's number.
    pub id: u64,
}

impl Entry {
    /// Creates an entry for a denial that happens now.
    pub fn new(reason: Reason, context: Context, object: &[u8], user: &[u8], client: String, now_ms: u64) -> Entry {
        Entry {
            count: 1,
            reason,
            context,
            object: object.to_vec(),
            user: user.to_vec(),
            client,
            updated_ms: now_ms,
            created_ms: now_ms,
            id: 0,
        }
    }

    fn is_like(&self, other: &Entry) -> bool {
        self.reason == other.reason
            && self.context == other.context
            && self.updated_ms.abs_diff(other.updated_ms) <= GROUPED_MS
            && self.object == other.object
            && self.user == other.user
    }
}

#[derive(Default)]
struct Log {
    /// The latest first.
    entries: VecDeque<Entry>,
    next_id: u64,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Denials {
    log: Mutex<Log>,
    counts: [AtomicU64; Reason::COUNT],
}

impl Denials {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a denial. Returns true if the log needs an entry for it, given its maximum length (acllog-max-len).
    pub fn count(&self, reason: Reason, entries_max: usize) -> bool {
        self.counts[reason.index()].fetch_add(1, Ordering::Relaxed);
        if entries_max == 0 {
            self.log().entries.clear();
        }
        entries_max > 0
    }

    /// Adds a denial to the log, or counts it with a similar entry.
    pub fn enter(&self, entry: Entry, entries_max: usize) {
        let mut log = self.log();
        let like = log.entries.iter().take(LOOKED_AT).position(|known| known.is_like(&entry));
        let entry = match like.and_then(|at| log.entries.remove(at)) {
            Some(known) => Entry { count: known.count + 1, id: known.id, created_ms: known.created_ms, ..entry },
            None => {
                log.next_id += 1;
                Entry { id: log.next_id - 1, ..entry }
            }
        };
        log.entries.push_front(entry);
        log.entries.truncate(entries_max);
    }

    /// Returns the latest `count` entries.
    pub fn latest(&self, count: usize) -> Vec<Entry> {
        self.log().entries.iter().take(count).cloned().collect()
    }

    /// Forgets all entries (ACL LOG RESET).
    pub fn clear(&self) {
        self.log().entries.clear();
    }

    /// Returns the number of denials by reason: authentication, commands, keys, channels, databases.
    pub fn counts(&self) -> [u64; Reason::COUNT] {
        self.counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Resets the counters (CONFIG RESETSTAT).
    pub fn reset_counts(&self) {
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(denials: &Denials, object: &str, now_ms: u64, max: usize) {
        let reason = Reason::Rules(Denied::Key);
        if denials.count(reason, max) {
            let entry = Entry::new(reason, Context::TopLevel, object.as_bytes(), b"u", format!("at {now_ms}"), now_ms);
            denials.enter(entry, max);
        }
    }

    fn shown(denials: &Denials) -> Vec<(u64, u64, Vec<u8>)> {
        denials.latest(9).into_iter().map(|entry| (entry.id, entry.count, entry.object)).collect()
    }

    #[test]
    fn similar_denials_are_counted_together_for_a_minute() {
        let denials = Denials::default();
        for (object, now_ms) in [("a", 0), ("b", 1), ("a", GROUPED_MS), ("b", GROUPED_MS + 2)] {
            enter(&denials, object, now_ms, 8);
        }
        let of = |text: &str| text.as_bytes().to_vec();
        assert_eq!(shown(&denials), [(2, 1, of("b")), (0, 2, of("a")), (1, 1, of("b"))]);
        let first = &denials.latest(2)[1];
        assert_eq!((first.created_ms, first.updated_ms, &*first.client), (0, GROUPED_MS, "at 60000"));
        enter(&denials, "c", GROUPED_MS, 2);
        assert_eq!(shown(&denials), [(3, 1, of("c")), (2, 1, of("b"))]);
        enter(&denials, "c", GROUPED_MS, 0);
        assert!(shown(&denials).is_empty());
        assert_eq!(denials.counts(), [0, 0, 6, 0, 0, 0]);
    }
}
