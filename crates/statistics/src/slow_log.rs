//! The latest slow or large events: the command logs (COMMANDLOG, SLOWLOG), and the log of slow batches (BATCHLOG).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::batch_times::PartTicks;

/// An entry with a number that its log assigns.
pub trait Numbered: Clone {
    /// Sets the number.
    fn set_id(&mut self, id: u64);
}

/// A slow or large command.
#[derive(Clone, Debug)]
pub struct SlowLogEntry {
    /// The entry's number, assigned by the log.
    pub id: u64,
    /// Time at the command's end, in seconds of Unix time.
    pub time_s: u64,
    /// The logged figure: duration in microseconds, or bytes of the request or the reply.
    pub figure: u64,
    /// The logged arguments.
    pub args: Vec<Vec<u8>>,
    /// The address of the client.
    pub addr: String,
    /// The name that the client has given itself.
    pub name: String,
}

impl Numbered for SlowLogEntry {
    fn set_id(&mut self, id: u64) {
        self.id = id;
    }
}

/// A slow batch.
#[derive(Clone, Debug)]
pub struct BatchLogEntry {
    /// The entry's number, assigned by the log.
    pub id: u64,
    /// Time of the first reply, in seconds of Unix time.
    pub time_s: u64,
    /// The time of each part, in ticks.
    pub parts: PartTicks,
    /// Number of commands.
    pub depth: u32,
    /// Bytes of the requests.
    pub bytes: u64,
    /// The command that took longest, with its ticks, if known.
    pub command: Option<(String, u64)>,
    /// The address of the client.
    pub addr: String,
    /// The name that the client has given itself.
    pub name: String,
    /// The name and the version of the client's library.
    pub library: (String, String),
}

impl Numbered for BatchLogEntry {
    fn set_id(&mut self, id: u64) {
        self.id = id;
    }
}

struct Entries<E> {
    /// The latest first.
    entries: VecDeque<E>,
    next_id: u64,
}

/// One of the logs, shared by all threads.
pub struct RecentLog<E>(Mutex<Entries<E>>);

/// A log of commands.
pub type SlowLog = RecentLog<SlowLogEntry>;
/// The log of slow batches.
pub type BatchLog = RecentLog<BatchLogEntry>;

impl<E> Default for RecentLog<E> {
    fn default() -> Self {
        RecentLog(Mutex::new(Entries { entries: VecDeque::new(), next_id: 0 }))
    }
}

impl<E: Numbered> RecentLog<E> {
    fn lock(&self) -> MutexGuard<'_, Entries<E>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an entry, and removes the oldest beyond `len_max`.
    pub fn add(&self, mut entry: E, len_max: usize) {
        let mut log = self.lock();
        entry.set_id(log.next_id);
        log.next_id += 1;
        log.entries.push_front(entry);
        log.entries.truncate(len_max);
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Returns true if the log is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the latest entries, the latest first, `count` at most.
    #[must_use]
    pub fn latest(&self, count: usize) -> Vec<E> {
        self.lock().entries.iter().take(count).cloned().collect()
    }

    /// Removes the oldest entries beyond `len_max`.
    pub fn trim(&self, len_max: usize) {
        self.lock().entries.truncate(len_max);
    }
}
