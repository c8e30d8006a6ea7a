//! The logs of commands (COMMANDLOG, SLOWLOG): the latest that took long, had a large request, or a large reply.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A command that took long, or was large.
#[derive(Clone, Debug)]
pub struct SlowLogEntry {
    /// Its number in the log, which the log gives it.
    pub id: u64,
    /// When it had run, in seconds of Unix time.
    pub time_s: u64,
    /// Why it is there: how long it took, in microseconds, or how many bytes its request or its reply had.
    pub figure: u64,
    /// Its arguments as the log keeps them.
    pub args: Vec<Vec<u8>>,
    /// The address of the client.
    pub addr: String,
    /// The name that the client has given itself.
    pub name: String,
}

#[derive(Default)]
struct Entries {
    /// The latest first.
    entries: VecDeque<SlowLogEntry>,
    next_id: u64,
}

/// One of these logs, of all threads.
#[derive(Default)]
pub struct SlowLog(Mutex<Entries>);

impl SlowLog {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry, and removes the oldest beyond `len_max`.
    pub fn add(&self, mut entry: SlowLogEntry, len_max: usize) {
        let mut log = self.lock();
        entry.id = log.next_id;
        log.next_id += 1;
        log.entries.push_front(entry);
        log.entries.truncate(len_max);
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The latest entries, the latest first, `count` at most.
    #[must_use]
    pub fn latest(&self, count: usize) -> Vec<SlowLogEntry> {
        self.lock().entries.iter().take(count).cloned().collect()
    }

    /// Removes the oldest entries beyond `len_max`.
    pub fn trim(&self, len_max: usize) {
        self.lock().entries.truncate(len_max);
    }
}
