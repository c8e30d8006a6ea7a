//! Rounds: parts of the primary's stream that several threads apply. A round consists of lanes, and one thread applies
//! each lane.
//!
//! The thread that applies the stream opens a round while it excludes all other threads from the keyspace's gate, and
//! admits them as its helpers. Each lane is taken once, by a helper or by the thread itself, so a busy or sleeping
//! thread delays nobody. Lanes are only taken inside the gate: after the helpers have left it, all taken lanes have
//! been applied.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Applied;

/// The limits of rounds.
#[derive(Clone, Copy, Debug)]
pub struct RoundBounds {
    /// The least number of stream bytes for which a search for rounds pays.
    pub stream_bytes_min: usize,
    /// The least number of units for which a round pays: waking a thread takes as long as some dozens of commands.
    pub units_min: usize,
    /// The least number of units outside of the largest lane. These are the work that one thread alone would have in
    /// addition.
    pub shared_min: usize,
    /// The greatest number of units of a round. The threads need some hundred microseconds for them, and readers wait
    /// meanwhile.
    pub units_max: usize,
    /// The greatest number of bytes of a round.
    pub bytes_max: usize,
    /// The size of a unit beyond which it is applied alone.
    pub unit_bytes_max: usize,
    /// The greatest number of parts of the stream that are applied without a search after parts without a round.
    pub rest_max: u32,
}

impl Default for RoundBounds {
    fn default() -> RoundBounds {
        RoundBounds {
            stream_bytes_min: 4 << 10,
            units_min: 64,
            shared_min: 16,
            units_max: 1024,
            bytes_max: 128 << 10,
            unit_bytes_max: 16 << 10,
            rest_max: 32,
        }
    }
}

impl RoundBounds {
    /// The least bounds, which make a round of everything possible: for tests.
    #[must_use]
    pub fn least() -> RoundBounds {
        let (stream_bytes_min, units_min, shared_min, rest_max) = (0, 2, 1, 0);
        RoundBounds { stream_bytes_min, units_min, shared_min, rest_max, ..RoundBounds::default() }
    }
}

/// One thread's share of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Whole commands and transactions. No other lane has keys in the shards of their keys.
    pub commands: Vec<u8>,
    /// The database that is selected before them.
    pub database: usize,
}

struct Seat {
    lane: Lane,
    is_taken: AtomicBool,
    /// The applying thread and its result.
    result: Mutex<Option<(usize, Applied)>>,
}

/// See the module's documentation.
pub struct Round {
    seats: Box<[Seat]>,
    /// The number of lanes that are not taken.
    free: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics with these values half changed, so a poisoned lock is harmless.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Round {
    /// A round of these lanes.
    #[must_use]
    pub fn new(lanes: Vec<Lane>) -> Round {
        let seat = |lane| Seat { lane, is_taken: AtomicBool::new(false), result: Mutex::new(None) };
        let seats: Box<[_]> = lanes.into_iter().map(seat).collect();
        let free = AtomicUsize::new(seats.len());
        Round { seats, free }
    }

    /// Takes lanes for a thread one after another, its own first, and applies each. The caller is inside the gate.
    pub fn take_lanes(&self, thread: usize, mut apply: impl FnMut(&Lane) -> Applied) {
        let count = self.seats.len();
        for seat in (0..count).filter_map(|index| self.seats.get((thread + index) % count)) {
            if !seat.is_taken.swap(true, Ordering::Relaxed) {
                self.free.fetch_sub(1, Ordering::Relaxed);
                let applied = apply(&seat.lane);
                *lock(&seat.result) = Some((thread, applied));
            }
        }
    }

    /// Returns the results of the lanes, each with the thread that applied it. All helpers have left the gate.
    pub fn results(&self) -> impl Iterator<Item = (usize, Applied)> {
        self.seats.iter().filter_map(|seat| lock(&seat.result).take())
    }
}

/// The place where the other threads find a round.
pub struct Rounds {
    current: Mutex<Option<Arc<Round>>>,
    /// For each thread: true if it was notified of a round and has not looked since.
    told: Box<[AtomicBool]>,
    /// The number of applied lanes, and the number of those that helpers applied.
    lanes: AtomicU64,
    lanes_of_helpers: AtomicU64,
}

impl Rounds {
    /// The state without a round, for this number of threads.
    #[must_use]
    pub fn new(threads: usize) -> Rounds {
        let told = (0..threads).map(|_| AtomicBool::new(false)).collect();
        Rounds { current: Mutex::new(None), told, lanes: AtomicU64::new(0), lanes_of_helpers: AtomicU64::new(0) }
    }

    /// Opens a round. The caller excludes other threads.
    pub fn open(&self, round: &Arc<Round>) {
        *lock(&self.current) = Some(round.clone());
    }

    /// Closes the round.
    pub fn close(&self) {
        *lock(&self.current) = None;
    }

    /// Returns the open round, if one of its lanes is free.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Round>> {
        lock(&self.current).clone().filter(|round| round.free.load(Ordering::Relaxed) > 0)
    }

    /// Returns whether a thread must be notified of a round, because it has looked since its last notification.
    #[must_use]
    pub fn must_tell(&self, thread: usize) -> bool {
        self.told.get(thread).is_some_and(|told| !told.swap(true, Ordering::AcqRel))
    }

    /// Counts an applied lane.
    pub(crate) fn count(&self, is_of_guest: bool) {
        self.lanes.fetch_add(1, Ordering::Relaxed);
        self.lanes_of_helpers.fetch_add(u64::from(is_of_guest), Ordering::Relaxed);
    }

    /// Returns the number of applied lanes, and the number of those that helpers applied.
    #[must_use]
    pub fn figures(&self) -> (u64, u64) {
        (self.lanes.load(Ordering::Relaxed), self.lanes_of_helpers.load(Ordering::Relaxed))
    }

    /// Notes that a thread looks for a round.
    pub fn note_look(&self, thread: usize) {
        if let Some(told) = self.told.get(thread) {
            told.store(false, Ordering::Release);
        }
    }
}

/// Decides when a thread searches a primary's stream for rounds.
#[derive(Debug, Default)]
pub(crate) struct RoundSearch {
    /// The number of parts that will be applied without a search.
    rest: u32,
    /// The initial value of `rest` at the last search.
    last_rest: u32,
}

impl RoundSearch {
    /// Returns whether to search the next part of the stream.
    pub(crate) fn looks(&mut self) -> bool {
        let looks = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        looks
    }

    /// Notes whether a searched part had a round.
    pub(crate) fn note(&mut self, had_round: bool, rest_max: u32) {
        self.last_rest = if had_round { 0 } else { (self.last_rest * 2 + 1).min(rest_max) };
        self.rest = self.last_rest;
    }
}
