//! Rounds: parts of the primary's stream that several threads apply. A round consists of lanes, and each lane is applied by one thread.
//!
//! The thread that applies the stream opens a round while it keeps all others out of the keyspace's gate, and lets them in as its guests.
//! Each lane is taken once, by a guest or by the thread itself, so that a thread that is busy or asleep holds nothing up. A lane is taken
//! inside the gate alone: when the guests have been seen off, all that were taken have been applied.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Applied;

/// What is worth a round, and how much a round has.
#[derive(Clone, Copy, Debug)]
pub struct RoundBounds {
    /// Bytes of the stream from which on it is looked for rounds.
    pub stream_bytes_min: usize,
    /// The fewest units that a round is worth: to wake a thread takes as long as some dozens of commands.
    pub units_min: usize,
    /// The fewest that are outside of the largest lane: what one thread would do meanwhile.
    pub shared_min: usize,
    /// What a round has at most: what the threads need some hundred microseconds for, for which readers wait.
    pub units_max: usize,
    /// See `units_max`.
    pub bytes_max: usize,
    /// Bytes of a unit beyond which it is applied by itself.
    pub unit_bytes_max: usize,
    /// Parts of the stream without a round, after the last of which so many at most are applied without looking for one.
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
    /// A round of whatever can be one: for tests.
    #[must_use]
    pub fn least() -> RoundBounds {
        let (stream_bytes_min, units_min, shared_min, rest_max) = (0, 2, 1, 0);
        RoundBounds { stream_bytes_min, units_min, shared_min, rest_max, ..RoundBounds::default() }
    }
}

/// What one thread applies of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Whole commands and transactions, all keys of which are in shards that no other lane has keys in.
    pub commands: Vec<u8>,
    /// The database that is selected before them.
    pub database: usize,
}

struct Seat {
    lane: Lane,
    is_taken: AtomicBool,
    /// What has come of it, and the thread that has applied it.
    result: Mutex<Option<(usize, Applied)>>,
}

/// See the module's documentation.
pub struct Round {
    seats: Box<[Seat]>,
    /// How many lanes may be taken yet.
    free: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is always whole.
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

    /// Takes lanes for a thread one after another, its own first, and has each be applied. The caller is inside the gate.
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

    /// What has come of the lanes, each with the thread that has applied it. All guests have been seen off.
    pub fn results(&self) -> impl Iterator<Item = (usize, Applied)> {
        self.seats.iter().filter_map(|seat| lock(&seat.result).take())
    }
}

/// Where the other threads find a round.
pub struct Rounds {
    current: Mutex<Option<Arc<Round>>>,
    /// By thread: whether it has been sent word of a round and has not looked since.
    told: Box<[AtomicBool]>,
    /// Lanes that have been applied, and those of them that a guest has applied.
    lanes: AtomicU64,
    lanes_of_guests: AtomicU64,
}

impl Rounds {
    /// No round yet, for so many threads.
    #[must_use]
    pub fn new(threads: usize) -> Rounds {
        let told = (0..threads).map(|_| AtomicBool::new(false)).collect();
        Rounds { current: Mutex::new(None), told, lanes: AtomicU64::new(0), lanes_of_guests: AtomicU64::new(0) }
    }

    /// Opens a round. The caller keeps other threads out.
    pub fn open(&self, round: &Arc<Round>) {
        *lock(&self.current) = Some(round.clone());
    }

    /// Closes it.
    pub fn close(&self) {
        *lock(&self.current) = None;
    }

    /// The round that is open, if a lane of it is free.
    #[must_use]
    pub fn current(&self) -> Option<Arc<Round>> {
        lock(&self.current).clone().filter(|round| round.free.load(Ordering::Relaxed) > 0)
    }

    /// Whether a thread is to be sent word that there is a round: it has not been since it last looked.
    #[must_use]
    pub fn must_tell(&self, thread: usize) -> bool {
        self.told.get(thread).is_some_and(|told| !told.swap(true, Ordering::AcqRel))
    }

    /// Counts a lane that has been applied.
    pub(crate) fn count(&self, is_of_guest: bool) {
        self.lanes.fetch_add(1, Ordering::Relaxed);
        self.lanes_of_guests.fetch_add(u64::from(is_of_guest), Ordering::Relaxed);
    }

    /// How many lanes have been applied, and how many of them by guests.
    #[must_use]
    pub fn figures(&self) -> (u64, u64) {
        (self.lanes.load(Ordering::Relaxed), self.lanes_of_guests.load(Ordering::Relaxed))
    }

    /// Notes that a thread looks for a round.
    pub fn note_look(&self, thread: usize) {
        if let Some(told) = self.told.get(thread) {
            told.store(false, Ordering::Release);
        }
    }
}

/// When a thread looks for rounds in a primary's stream.
#[derive(Debug, Default)]
pub(crate) struct RoundSearch {
    /// Parts of the stream that are yet to be applied without looking.
    rest: u32,
    /// How many that were at the last time.
    last_rest: u32,
}

impl RoundSearch {
    /// Whether to look at the next part of the stream.
    pub(crate) fn looks(&mut self) -> bool {
        let looks = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        looks
    }

    /// Notes whether a part that was looked at had a round.
    pub(crate) fn note(&mut self, had_round: bool, rest_max: u32) {
        self.last_rest = if had_round { 0 } else { (self.last_rest * 2 + 1).min(rest_max) };
        self.rest = self.last_rest;
    }
}
