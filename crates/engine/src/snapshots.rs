//! Snapshots: the one that is being made, its purpose and progress, and the results of the last ones.
//!
//! The store gives the keys of each shard, as they were at the cut, to a sink (`ShardSink`). The sink converts them to
//! Redis's format and hands the bytes over in pieces ([`Outlet`]). A thread of the server writes the pieces to a file
//! or another destination. `services::saving` begins and ends snapshots, and schedules the workers' walk.

mod commands;
mod figures;
mod key_reader;
mod loading;
pub mod reading;
mod sink;
mod slots;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use store::snapshot::Snapshot;

pub(crate) use self::commands::{CommandSink, piece_bytes};
pub use self::figures::{Outcome, SnapshotFigures};
pub use self::loading::LoadProgress;
pub(crate) use self::sink::ShardSink;
pub use self::sink::{AccessKind, SinkOptions};
pub use self::slots::{BegunSlots, CannotBegin, SlotsHandover, WalkClaim, WantedSlots};

/// The name of a snapshot's auxiliary field with a pipeline token. Other servers ignore it.
pub(crate) const TOKEN_FIELD: &[u8] = b"penstock-pipeline";
/// The name of the field with a script from SCRIPT LOAD; Redis used it before version 7.
pub(crate) const SCRIPT_FIELD: &[u8] = b"lua";

/// The name of the field with the database that the stream has selected after the data, as in Redis.
pub(crate) const STREAM_DATABASE_FIELD: &[u8] = b"repl-stream-db";
/// The name of the field with the open slots of a cluster's primary, for its replicas; Valkey's name.
pub(crate) const SLOT_STATES_FIELD: &[u8] = b"cluster-slot-states";
/// The name of the field with the history of the data.
pub(crate) const HISTORY_FIELD: &[u8] = b"repl-id";
/// The name of the field with the offset of the data in that history.
pub(crate) const OFFSET_FIELD: &[u8] = b"repl-offset";

/// The purpose of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// The file of snapshots (`dbfilename`).
    File,
    /// The base of the append-only file. Another increment of the file begins after it.
    Base,
    /// Replicas, which receive the stream after it.
    Replicas,
    /// Another node, which takes over slots and receives the later changes of their keys: a snapshot of these slots, as commands.
    Slots,
}

/// The form of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SnapshotForm {
    /// Redis's format.
    Rdb,
    /// Valkey's format, for Valkey's replicas from version 9 on. They refuse Redis's format if it has fields with an
    /// expiry.
    ValkeyRdb,
    /// Commands that recreate the data, as the entries of a record: a base with `aof-use-rdb-preamble no`.
    Commands,
}

/// A message to the thread that writes a snapshot.
pub enum Piece {
    /// Bytes of the snapshot's form. They begin and end between two keys or commands.
    Bytes(Vec<u8>),
    /// The next bytes of a record that comes in parts. Other pieces may come between them.
    Part {
        /// The number of the record.
        record: u64,
        /// The bytes, which may begin and end anywhere.
        bytes: Vec<u8>,
    },
    /// The end of this record's bytes: the record must be written in one piece at this place.
    RecordEnd(u64),
    /// The end of a complete snapshot.
    Whole,
    /// The end of a useless snapshot.
    Cancelled,
}

/// The number of pending bytes from which the walk pauses.
const FULL_BYTES: usize = 8 << 20;
/// The number of pending bytes from which commands that may write wait, because the values that they change must be
/// saved first.
const OVERFULL_BYTES: usize = 64 << 20;

/// The way of the bytes to the thread that writes them.
pub struct Outlet {
    sender: Sender<Piece>,
    pending: AtomicUsize,
    is_broken: AtomicBool,
    /// The number of records in parts so far.
    records: AtomicU64,
}

impl Outlet {
    /// Returns an outlet, and the receiver of its pieces. The receiver reports each piece that is done
    /// ([`Outlet::note_done`]).
    #[must_use]
    pub fn new() -> (Arc<Outlet>, Receiver<Piece>) {
        let (sender, receiver) = channel();
        (Arc::new(Outlet { sender, pending: 0.into(), is_broken: false.into(), records: 0.into() }), receiver)
    }

    /// Hands bytes over. No effect after a failed write.
    pub(crate) fn send(&self, bytes: Vec<u8>) {
        self.hand_over(bytes.len(), Piece::Bytes(bytes));
    }

    /// Returns the number of a new record that comes in parts.
    pub(crate) fn begin_record(&self) -> u64 {
        self.records.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands over the next bytes of a record.
    pub(crate) fn send_part(&self, record: u64, bytes: Vec<u8>) {
        self.hand_over(bytes.len(), Piece::Part { record, bytes });
    }

    /// Announces the end of a record.
    pub(crate) fn end_record(&self, record: u64) {
        if !self.is_broken() {
            // A missing receiver has reported its end already.
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

    /// Announces the end of the snapshot; it is useless unless `is_whole`.
    pub(crate) fn end(&self, is_whole: bool) {
        // A missing receiver has reported its end already.
        let _ = self.sender.send(if is_whole { Piece::Whole } else { Piece::Cancelled });
    }

    /// Returns the number of pending bytes.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Notes that this number of bytes has been written.
    pub fn note_done(&self, bytes: usize) {
        self.pending.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes that nothing more can be written.
    pub fn note_broken(&self) {
        self.is_broken.store(true, Ordering::Release);
    }

    /// Returns whether writing has failed.
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
    /// Its purpose.
    pub purpose: Purpose,
    /// Its form.
    pub form: SnapshotForm,
    /// Its start.
    pub began: Instant,
    /// The number of changes before its start.
    pub dirty_at_cut: u64,
    /// The number of keys at its start.
    pub keys: usize,
    /// The store's walk.
    pub snapshot: Snapshot,
    /// The destination of its bytes; `None` after the last one was sent.
    pub(crate) outlet: Option<Arc<Outlet>>,
    /// True if it was cancelled and only its end is awaited.
    pub(crate) is_cancelled: bool,
    /// True if SAVE or the end of the server waits for it. Its failure is that command's, not one of the background.
    pub(crate) is_awaited: bool,
    /// True if it must end without `rdb-key-save-delay`.
    pub(crate) is_hurried: bool,
}

/// A worker's progress in the walk of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct WalkProgress {
    /// The number of the walk.
    pub walk: u64,
    /// The next of its shards that it hasn't begun.
    pub next: usize,
    /// The shards that the worker walks in turn; the next step is for the first. Other threads can lock the others
    /// meanwhile.
    pub begun: VecDeque<usize>,
    /// True after the worker has walked all its shards.
    pub is_done: bool,
    /// [`Snapshot::reopened`] when it began.
    pub reopened: usize,
}

#[derive(Default)]
struct Making {
    running: Option<Running>,
    /// The snapshot that the workers walk. A cancelled one is walked to clear its marks.
    walked: Option<Snapshot>,
    /// The purposes of the next snapshots, in order and without duplicates.
    wanted: Vec<Purpose>,
    figures: SnapshotFigures,
}

/// See the module's documentation.
#[derive(Default)]
pub struct Snapshots {
    state: Mutex<Making>,
    /// The progress of loading data.
    pub loading: LoadProgress,
    /// The slots of the next snapshot for another node.
    wanted_slots: Mutex<Option<WantedSlots>>,
    /// Notified at the end of a snapshot.
    ended: Condvar,
    /// The number of the present walk; 0 if there is none.
    walk: AtomicU64,
    walks_so_far: AtomicU64,
    /// True while too many bytes are pending.
    overfull: AtomicBool,
    /// True while a snapshot is wanted.
    is_wanted: AtomicBool,
    /// True while there is a [`WalkClaim`]. The workers leave the shards alone.
    is_walk_claimed: Arc<AtomicBool>,
}

impl Snapshots {
    fn state(&self) -> MutexGuard<'_, Making> {
        // No code panics with the value half changed, so a poisoned lock is harmless.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the present walk, or 0 if there is none.
    #[inline]
    #[must_use]
    pub fn walk(&self) -> u64 {
        self.walk.load(Ordering::Acquire)
    }

    /// Returns true while a thread besides the workers walks the shards of the present snapshot.
    pub(crate) fn is_walk_claimed(&self) -> bool {
        self.is_walk_claimed.load(Ordering::Acquire)
    }

    /// Leaves the walk of the next snapshot to the owner of the claim.
    pub(crate) fn claim_walk(&self) -> WalkClaim {
        WalkClaim::new(self.is_walk_claimed.clone())
    }

    /// Returns whether too many bytes are pending, so that commands which may write have to wait.
    #[inline]
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.overfull.load(Ordering::Relaxed)
    }

    /// Returns the purpose of the present snapshot, unless it was cancelled.
    #[must_use]
    pub fn purpose(&self) -> Option<Purpose> {
        self.state().running.as_ref().filter(|running| !running.is_cancelled).map(|running| running.purpose)
    }

    /// Returns whether there is no snapshot, not even a cancelled one.
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

    /// Calls `look` with the present snapshot.
    pub fn with_running<T>(&self, look: impl FnOnce(&Running) -> T) -> Option<T> {
        self.state().running.as_ref().map(look)
    }

    /// Notes that a command waits for the present snapshot.
    pub(crate) fn note_awaited(&self) {
        if let Some(running) = &mut self.state().running {
            (running.is_awaited, running.is_hurried) = (true, true);
        }
    }

    /// Makes the present snapshot end without `rdb-key-save-delay`.
    pub(crate) fn hurry(&self) {
        if let Some(running) = &mut self.state().running {
            running.is_hurried = true;
        }
    }

    /// Returns the time from the start of the present snapshot to its earliest end. `delay_us` is `rdb-key-save-delay`.
    #[must_use]
    pub fn delay_left(&self, delay_us: u64) -> Duration {
        let left = self.with_running(|running| {
            let delay = Duration::from_micros(delay_us.saturating_mul(running.keys as u64));
            if running.is_hurried { Duration::ZERO } else { delay.saturating_sub(running.began.elapsed()) }
        });
        left.unwrap_or_default()
    }

    /// Returns the number of shards that are still to be walked, or `None` without a walk.
    #[must_use]
    pub fn shards_left(&self) -> Option<usize> {
        self.state().walked.as_ref().map(Snapshot::shards_left)
    }

    /// See [`Snapshot::reopened`]; 0 if there is no walk.
    pub(crate) fn reopened(&self) -> usize {
        self.state().walked.as_ref().map_or(0, Snapshot::reopened)
    }

    /// Ends the walk, or continues it only to clear marks on entries (`is_sweep`). `is_whole` is false for a cancelled
    /// snapshot. Returns the outlet and the snapshot's form, unless they were taken already.
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

    /// Updates whether too many bytes are pending. Called after each addition and removal.
    pub fn note_pending(&self, bytes: usize) {
        let is_overfull = bytes > OVERFULL_BYTES;
        if is_overfull != self.is_overfull() {
            self.overfull.store(is_overfull && self.walk() != 0, Ordering::Relaxed);
        }
    }

    /// Notes the result of the present snapshot. The writing thread calls it after the file got its name. `now_s` is
    /// Unix time in seconds.
    pub fn note_ended(&self, outcome: Outcome, now_s: u64) {
        let mut state = self.state();
        if let Some(running) = state.running.take() {
            state.figures.note_ended(&running, outcome, now_s);
        }
        drop(state);
        self.ended.notify_all();
    }

    /// Waits until there is no snapshot.
    pub fn wait_for_end(&self) {
        let mut state = self.state();
        while state.running.is_some() {
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until there is no snapshot, or until `deadline`.
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

    /// Requests a snapshot, which begins when there is no other.
    pub fn want(&self, purpose: Purpose) {
        let mut state = self.state();
        if !state.wanted.contains(&purpose) {
            state.wanted.push(purpose);
        }
        self.is_wanted.store(true, Ordering::Release);
    }

    /// Requests a snapshot of slots, instead of the request before.
    pub fn want_slots(&self, wanted: WantedSlots) {
        *self.wanted_slots.lock().unwrap_or_else(PoisonError::into_inner) = Some(wanted);
        self.want(Purpose::Slots);
    }

    /// Withdraws the request for a snapshot of slots.
    pub fn forget_slots(&self) {
        drop(self.take_slots());
        self.forget_wanted(Purpose::Slots);
    }

    /// Takes the request for a snapshot of slots.
    pub(crate) fn take_slots(&self) -> Option<WantedSlots> {
        self.wanted_slots.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the purpose of the next snapshot.
    #[must_use]
    pub fn wanted(&self) -> Option<Purpose> {
        if self.is_wanted.load(Ordering::Acquire) { self.state().wanted.first().copied() } else { None }
    }

    /// Returns whether a snapshot for this purpose is requested.
    #[must_use]
    pub fn is_wanted_for(&self, purpose: Purpose) -> bool {
        self.is_wanted.load(Ordering::Acquire) && self.state().wanted.contains(&purpose)
    }

    /// Takes the next request, if there is no snapshot now.
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

    /// Withdraws the request for this purpose; a snapshot that has begun goes on.
    pub(crate) fn forget_wanted(&self, purpose: Purpose) {
        let mut state = self.state();
        state.wanted.retain(|&wanted| wanted != purpose);
        self.is_wanted.store(!state.wanted.is_empty(), Ordering::Release);
    }

    /// Withdraws all requests.
    pub(crate) fn forget_all_wanted(&self) {
        self.state().wanted.clear();
        self.is_wanted.store(false, Ordering::Release);
    }

    /// Returns the figures of past snapshots.
    #[must_use]
    pub fn figures(&self) -> SnapshotFigures {
        self.state().figures.clone()
    }

    /// Changes the figures.
    pub fn change_figures(&self, change: impl FnOnce(&mut SnapshotFigures)) {
        change(&mut self.state().figures);
    }
}
