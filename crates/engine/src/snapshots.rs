//! Snapshots: which one is being made, for what, how far it has come, and how the last ones ended.
//!
//! The store gives each shard's keys as they were at the cut to a sink (`ShardSink`), which turns them into Redis's format and
//! hands the bytes over in pieces ([`Outlet`]). A thread of the server's writes them to a file, or to whatever else there is.
//! `services::saving` begins and ends snapshots, and has the workers walk.

mod commands;
mod figures;
mod key_reader;
mod loading;
pub mod reading;
mod sink;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use store::snapshot::Snapshot;

pub(crate) use self::commands::CommandSink;
pub use self::figures::{Outcome, SnapshotFigures};
pub use self::loading::LoadProgress;
pub(crate) use self::sink::ShardSink;
pub use self::sink::{AccessKind, SinkOptions};

/// How the auxiliary field of a snapshot is named that has a pipeline token: other servers pass over it.
pub(crate) const TOKEN_FIELD: &[u8] = b"penstock-pipeline";
/// The same of a script that SCRIPT LOAD has loaded: the name that Redis had for it before version 7.
pub(crate) const SCRIPT_FIELD: &[u8] = b"lua";

/// The same of the database that the stream has selected behind the data, as Redis names it.
pub(crate) const STREAM_DATABASE_FIELD: &[u8] = b"repl-stream-db";
/// The same of the history that the data are of.
pub(crate) const HISTORY_FIELD: &[u8] = b"repl-id";
/// The same of the bytes that the history has up to there.
pub(crate) const OFFSET_FIELD: &[u8] = b"repl-offset";

/// What a snapshot is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The file of snapshots (`dbfilename`).
    File,
    /// The base of the append-only file, which goes on in another increment behind it.
    Base,
    /// Replicas, which are sent the stream behind it.
    Replicas,
}

/// What a snapshot consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotForm {
    /// Redis's format.
    Rdb,
    /// Commands that make the data, as the entries of a record: a base with `aof-use-rdb-preamble no`.
    Commands,
}

/// What the thread that writes a snapshot gets.
pub enum Piece {
    /// Bytes of the snapshot's form, which begin and end between two keys or commands.
    Bytes(Vec<u8>),
    /// The next bytes of a record that comes in parts. Other pieces come between them.
    Part {
        /// Which record.
        record: u64,
        /// They may begin and end anywhere.
        bytes: Vec<u8>,
    },
    /// All bytes of this record have come: it is to stand in one piece at this place.
    RecordEnd(u64),
    /// That was all.
    Whole,
    /// That was all, and it is of no use.
    Cancelled,
}

/// Bytes on their way to that thread from which on the walk pauses.
const FULL_BYTES: usize = 8 << 20;
/// Bytes on their way from which on commands that may write wait: what they are about to change has to be saved first.
const OVERFULL_BYTES: usize = 64 << 20;

/// The way of the bytes to the thread that writes them.
pub struct Outlet {
    sender: Sender<Piece>,
    pending: AtomicUsize,
    is_broken: AtomicBool,
    /// Records in parts so far.
    records: AtomicU64,
}

impl Outlet {
    /// An outlet, and where its pieces arrive. The receiver tells of each piece that it is done with ([`Outlet::note_done`]).
    #[must_use]
    pub fn new() -> (Arc<Outlet>, Receiver<Piece>) {
        let (sender, receiver) = channel();
        (Arc::new(Outlet { sender, pending: 0.into(), is_broken: false.into(), records: 0.into() }), receiver)
    }

    /// Hands bytes over. Without effect once writing has failed.
    pub(crate) fn send(&self, bytes: Vec<u8>) {
        self.hand_over(bytes.len(), Piece::Bytes(bytes));
    }

    /// The name of another record that comes in parts.
    pub(crate) fn begin_record(&self) -> u64 {
        self.records.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands over the next bytes of such a record.
    pub(crate) fn send_part(&self, record: u64, bytes: Vec<u8>) {
        self.hand_over(bytes.len(), Piece::Part { record, bytes });
    }

    /// Tells that all bytes of a record have been handed over.
    pub(crate) fn end_record(&self, record: u64) {
        if !self.is_broken() {
            // Without a receiver, its end has been told of.
            let _ = self.sender.send(Piece::RecordEnd(record));
        }
    }

    fn hand_over(&self, len: usize, piece: Piece) {
        if self.is_broken() || len == 0 {
            return;
        }
        self.pending.fetch_add(len, Ordering::Relaxed);
        if self.sender.send(piece).is_err() {
            self.pending.fetch_sub(len, Ordering::Relaxed);
        }
    }

    /// Tells that all has been handed over; what there is may not be whole.
    pub(crate) fn end(&self, is_whole: bool) {
        // Without a receiver, its end has been told of.
        let _ = self.sender.send(if is_whole { Piece::Whole } else { Piece::Cancelled });
    }

    /// Bytes on their way.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Notes that so many bytes have been written.
    pub fn note_done(&self, bytes: usize) {
        self.pending.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes that nothing more can be written.
    pub fn note_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Whether writing has failed.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn is_full(&self) -> bool {
        self.pending() > FULL_BYTES
    }
}

/// The snapshot that is being made.
pub struct Running {
    /// What for.
    pub purpose: Purpose,
    /// What it consists of.
    pub form: SnapshotForm,
    /// When it began.
    pub began: Instant,
    /// Changes so far when it began.
    pub dirty_at_cut: u64,
    /// Keys that there were.
    pub keys: usize,
    /// Its walk, which is the store's.
    pub snapshot: Snapshot,
    /// Where its bytes go. None once all have gone there.
    pub(crate) outlet: Option<Arc<Outlet>>,
    /// Whether it is of no use, and only its end is waited for.
    pub(crate) is_cancelled: bool,
}

/// How far a worker is in the walk of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct WalkProgress {
    /// Which walk.
    pub walk: u64,
    /// The next of its shards that it hasn't begun.
    pub next: usize,
    /// The shards that the worker walks in turn; the next step is for the first. While one is walked, other threads can have the others.
    pub begun: VecDeque<usize>,
    /// It has walked all of them.
    pub is_done: bool,
}

#[derive(Default)]
struct Making {
    running: Option<Running>,
    /// What the workers walk: it may be one that was cancelled, while its marks are cleared away.
    walked: Option<Snapshot>,
    /// What is to be made next, in this order; each is there once.
    wanted: Vec<Purpose>,
    figures: SnapshotFigures,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Snapshots {
    state: Mutex<Making>,
    /// How far the loading of data is.
    pub loading: LoadProgress,
    /// Told when a snapshot has ended.
    ended: Condvar,
    /// Which walk the workers are to take part in; 0 if none.
    walk: AtomicU64,
    walks_so_far: AtomicU64,
    /// What is on its way is too much.
    overfull: AtomicBool,
    /// Whether one is wanted.
    is_wanted: AtomicBool,
}

impl Snapshots {
    fn state(&self) -> MutexGuard<'_, Making> {
        // What is behind the lock is always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which walk the workers are to take part in; 0 if none.
    #[inline]
    #[must_use]
    pub fn walk(&self) -> u64 {
        self.walk.load(Ordering::Acquire)
    }

    /// Whether so much is on its way to the disk that commands which may write have to wait.
    #[inline]
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.overfull.load(Ordering::Relaxed)
    }

    /// What the snapshot that is being made is for, if there is one. A cancelled one is none.
    #[must_use]
    pub fn purpose(&self) -> Option<Purpose> {
        self.state().running.as_ref().filter(|running| !running.is_cancelled).map(|running| running.purpose)
    }

    /// Whether there is none, and none that was cancelled and has yet to end.
    #[must_use]
    pub fn are_idle(&self) -> bool {
        self.state().running.is_none()
    }

    /// Notes that a snapshot has begun.
    pub(crate) fn note_begun(&self, running: Running) {
        let walk = self.walks_so_far.fetch_add(1, Ordering::Relaxed) + 1;
        let mut state = self.state();
        state.figures.note_begun(running.purpose);
        state.walked = Some(running.snapshot.clone());
        state.running = Some(running);
        self.walk.store(walk, Ordering::Release);
    }

    /// Calls `look` with the snapshot that is being made.
    pub fn with_running<T>(&self, look: impl FnOnce(&Running) -> T) -> Option<T> {
        self.state().running.as_ref().map(look)
    }

    /// Shards that have yet to be walked; none if there is no walk.
    #[must_use]
    pub fn shards_left(&self) -> Option<usize> {
        self.state().walked.as_ref().map(Snapshot::shards_left)
    }

    /// The walk is over, or goes on for nothing but the marks on entries (`is_sweep`); `is_whole` unless the snapshot was cancelled.
    /// Gives the outlet and the form of what goes there, unless another has it already.
    pub(crate) fn end_walk(&self, is_sweep: bool, is_whole: bool) -> Option<(Arc<Outlet>, SnapshotForm)> {
        let walk = if is_sweep { self.walks_so_far.fetch_add(1, Ordering::Relaxed) + 1 } else { 0 };
        let mut state = self.state();
        self.walk.store(walk, Ordering::Release);
        self.overfull.store(false, Ordering::Relaxed);
        if !is_sweep {
            state.walked = None;
        }
        let running = state.running.as_mut()?;
        let outlet = running.outlet.take()?;
        running.is_cancelled = !is_whole;
        Some((outlet, running.form))
    }

    /// Looks whether too much is on its way. Called by whatever adds to it or takes from it.
    pub fn note_pending(&self, bytes: usize) {
        let is_overfull = bytes > OVERFULL_BYTES;
        if is_overfull != self.is_overfull() {
            self.overfull.store(is_overfull && self.walk() != 0, Ordering::Relaxed);
        }
    }

    /// Notes how the snapshot has ended that was being made. Called by the thread that writes it, when its file has its name.
    /// `changes` are those so far, `now_s` is Unix time in seconds.
    pub fn note_ended(&self, outcome: Outcome, now_s: u64) {
        let mut state = self.state();
        if let Some(running) = state.running.take() {
            state.figures.note_ended(&running, outcome, now_s);
        }
        drop(state);
        self.ended.notify_all();
    }

    /// Waits until no snapshot is being made.
    pub fn wait_for_end(&self) {
        let mut state = self.state();
        while state.running.is_some() {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same, but no longer than until then.
    pub fn wait_for_end_until(&self, deadline: Instant) {
        let mut state = self.state();
        while state.running.is_some() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            (state, _) = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has a snapshot be made as soon as there is none.
    pub fn want(&self, purpose: Purpose) {
        let mut state = self.state();
        if !state.wanted.contains(&purpose) {
            state.wanted.push(purpose);
        }
        self.is_wanted.store(true, Ordering::Release);
    }

    /// What is to be made next.
    #[must_use]
    pub fn wanted(&self) -> Option<Purpose> {
        if self.is_wanted.load(Ordering::Acquire) { self.state().wanted.first().copied() } else { None }
    }

    /// Whether one is to be made for this.
    #[must_use]
    pub fn is_wanted_for(&self, purpose: Purpose) -> bool {
        self.is_wanted.load(Ordering::Acquire) && self.state().wanted.contains(&purpose)
    }

    /// Takes what is to be made next, if there is no snapshot now.
    pub(crate) fn take_wanted(&self) -> Option<Purpose> {
        if !self.is_wanted.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state();
        if state.running.is_some() || state.wanted.is_empty() {
            return None;
        }
        self.is_wanted.store(state.wanted.len() > 1, Ordering::Release);
        Some(state.wanted.remove(0))
    }

    /// Makes none for this any more, unless it has begun.
    pub(crate) fn forget_wanted(&self, purpose: Purpose) {
        let mut state = self.state();
        state.wanted.retain(|&wanted| wanted != purpose);
        self.is_wanted.store(!state.wanted.is_empty(), Ordering::Release);
    }

    /// The same for all purposes.
    pub(crate) fn forget_all_wanted(&self) {
        self.state().wanted.clear();
        self.is_wanted.store(false, Ordering::Release);
    }

    /// The figures of those that have ended.
    #[must_use]
    pub fn figures(&self) -> SnapshotFigures {
        self.state().figures.clone()
    }

    /// Changes the figures.
    pub fn change_figures(&self, change: impl FnOnce(&mut SnapshotFigures)) {
        change(&mut self.state().figures);
    }
}
