//! Snapshots of the whole keyspace at one point in time, without a fork and without a stall.
//!
//! # The cut
//! [`Locked::begin_snapshot`] runs alone behind the gate: that moment is the cut. It notes the databases' numbers and
//! chooses a mark, and visits no key. Each shard gets a **saver**: a cursor and a [`Sink`]. The lock of a shard also
//! guards its saver, so a snapshot adds no lock.
//!
//! # The walk
//! Workers then call [`Locked::snapshot_step`] for each shard until it is done. A step continues from the cursor,
//! passes each entry without the snapshot's mark to the sink, and marks it. Like SCAN's cursors, these survive growth
//! and shrinking of the table, and may visit an entry twice. The mark makes the second visit harmless.
//!
//! # Changes meanwhile
//! Each change, replacement or removal of an entry without the mark first passes the entry to the sink of its shard
//! (`db::saving`). New entries get the mark at once. Therefore an unmarked entry, and its key, is exactly as it was at
//! the cut. Access words (LRU, LFU) are exempt: they may be younger than the cut. Entries that had expired at the cut
//! but were not removed yet are saved with their expiry.
//!
//! - RENAME and MOVE save the entry under its old name, and put it in with the mark.
//! - An entry that moves to another allocation keeps its mark.
//! - FLUSHALL and FLUSHDB pass the flushed shards to the savers, which walk them, too, and then pass them to the
//!   reaper.
//! - SWAPDB changes the numbers of databases. A snapshot keeps those of the cut.
//!
//! # Large collections
//! A hash, set, sorted set or list with over a thousand elements is saved in pieces (`pieces`, `list::walk`):
//! [`Sink::begin`] returns a target for its elements ([`ElementSink`]), and the value stores the state of the walk
//! through them. The entry gets the mark when the walk ends. A change to a large collection begins its walk, if there
//! is none yet. From then on the collection itself saves each element before a change. If its key is removed or
//! overwritten, the saver takes the value, walks it to the end and passes it to the reaper. If its key is renamed or
//! moved, the saver of the new key continues the walk. Nothing is copied as a whole, and no command waits for more than
//! one step. Streams, long strings and packed blocks, which are large only if configured so, are saved whole.
//!
//! # Marks
//! An entry has three bits for the mark. No snapshot has the mark 0, which entries get that are created while no
//! snapshot runs. After a complete snapshot all entries have its mark or 0, so any other mark is free for the next one.
//! A cancelled snapshot leaves its mark on some entries and older marks on others. The next snapshot takes a mark that
//! no entry can have, and begins at once. After seven cancelled snapshots in a row all marks may be in use. Then the
//! last one does not end: its walk continues without sinks ([`Ended::Sweeping`]) until all entries have its mark. In
//! this way a cancellation costs nothing, nothing is walked at the gate, and an unsaved entry never counts as saved.
//!
//! A snapshot that leaves out shards does not visit their entries, which keep their older marks, as after a cancellation. It marks
//! the entries of all shards if no mark would be left for the next snapshot.
//!
//! # Cost
//! While no snapshot runs, each of these places tests one byte (`Snapshots::runs`).
//!
//! This module knows no file formats: they belong to the sinks.

pub(crate) mod pieces;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::entry::{Entry, MARK_MAX};
use crate::keyspace::{Key, Keyspace, Layout, Locked, Shard};
use crate::reaper::Reaper;
use crate::sync::Alone;
use crate::table::{RefMut, Table};

pub use pieces::{Element, ElementSink};

/// Bytes charged to a step's budget for each bucket that it visits: a cache line.
const BUCKET_BYTES: usize = 64;

/// Receives the content of one shard at the cut: each entry once, in no particular order. Called under the shard's
/// lock, so it must not wait; another thread takes over its output.
///
/// Writers pass entries to it before a change even if it is full. A limit on that needs the bytes of all sinks
/// together: count them in an object that the sinks of a snapshot share, and stop commands that may write before they
/// hold a shard.
pub trait Sink: Send {
    /// Saves an entry. `database` is the number that clients used for its database at the cut.
    fn entry(&mut self, database: usize, entry: &Entry);

    /// Begins to save an entry with a large collection in pieces. The entry still has all elements at this moment, and
    /// the returned sink gets the same number of elements.
    fn begin(&mut self, database: usize, entry: &Entry) -> Box<dyn ElementSink>;

    /// Returns true if the walk should pause, because the consumer of the bytes is behind.
    fn is_full(&self) -> bool;

    /// Called when the shard has been walked and no more entries will come. Not called if the snapshot is cancelled.
    fn finish(&mut self);
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The shard has been walked, or no snapshot runs.
    Done,
    /// The budget is used up.
    More,
    /// The sink is full.
    Full,
}

/// The outcome of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Ended {
    /// Its sinks received everything that existed at the cut.
    Complete,
    /// It was cancelled.
    Cancelled,
    /// It was cancelled and its sinks are gone, but steps must continue until all shards are walked. No other snapshot
    /// can begin before that and another [`Keyspace::end_snapshot`].
    Sweeping,
}

/// Error: another snapshot runs, or a cancelled one is still being walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotRuns;

/// A handle to a running snapshot, which shows its progress to any thread.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Cut>);

impl Snapshot {
    /// Shards that are not walked yet. Once there are none, [`Keyspace::end_snapshot`] completes the snapshot; an
    /// earlier call cancels it.
    #[must_use]
    pub fn shards_left(&self) -> usize {
        self.0.shards_left.load(Ordering::Acquire)
    }

    /// Keys saved to this point: INFO's `current_save_keys_processed`.
    #[must_use]
    pub fn keys_saved(&self) -> usize {
        self.0.keys_saved.load(Ordering::Relaxed)
    }

    /// Returns the number of reopened shards. A shard that was walked, or needed no walk, is reopened when a partly saved collection moves
    /// there. A thread that has finished its shards checks them again when this number changes.
    #[must_use]
    pub fn reopened(&self) -> usize {
        self.0.reopened.load(Ordering::Acquire)
    }
}

/// The state of a snapshot at its cut, and its counts.
#[derive(Debug)]
struct Cut {
    mark: u8,
    /// The physical numbers of the databases that had keys, ascending.
    databases: Box<[usize]>,
    /// The number that clients used for each database, by physical number.
    numbers: Box<[usize]>,
    shards_left: AtomicUsize,
    keys_saved: AtomicUsize,
    reopened: AtomicUsize,
}

impl Cut {
    /// Notes that a shard must be walked, or walked again.
    fn reopen(&self) {
        self.shards_left.fetch_add(1, Ordering::Release);
        self.reopened.fetch_add(1, Ordering::Release);
    }
}

/// The running snapshot, and the marks of earlier ones.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// The mark of the running snapshot, or 0. Changes only alone behind the gate.
    mark: AtomicU8,
    rounds: Mutex<Rounds>,
}

/// State that only the beginning and the end of a snapshot access.
#[derive(Default)]
struct Rounds {
    /// The marks that entries may have, one bit each.
    used: u8,
    running: Option<Arc<Cut>>,
    /// True if the running snapshot was cancelled.
    is_sweep: bool,
    /// True if the running snapshot leaves out shards, whose entries keep their marks.
    is_partial: bool,
}

/// The bits of all marks.
const ALL_MARKS: u8 = ((1u16 << (MARK_MAX + 1)) - 2) as u8;

impl Snapshots {
    /// Returns true if a snapshot runs, so that entries must be saved before a change.
    #[inline(always)]
    pub fn runs(&self) -> bool {
        self.mark() != 0
    }

    /// The mark of the running snapshot, or 0.
    #[inline(always)]
    pub fn mark(&self) -> u8 {
        self.mark.load(Ordering::Relaxed)
    }

    /// Returns true if a snapshot runs that has not been cancelled.
    pub fn saves(&self) -> bool {
        let rounds = self.rounds();
        rounds.running.is_some() && !rounds.is_sweep
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rounds {
    /// Returns a mark that no entry has. There is one unless a sweep runs.
    fn unused_mark(&self) -> u8 {
        (!self.used & ALL_MARKS).trailing_zeros() as u8
    }
}

impl Keyspace {
    /// Begins a snapshot of this moment: see [`Locked::begin_snapshot`].
    ///
    /// # Errors
    /// If another one runs.
    pub fn begin_snapshot(
        &self,
        alone: &Alone<'_>,
        sink: impl FnMut(usize) -> Option<Box<dyn Sink>>,
    ) -> Result<Snapshot, SnapshotRuns> {
        self.all(alone).begin_snapshot(sink)
    }

    /// Ends the running snapshot: see [`Locked::end_snapshot`].
    pub fn end_snapshot(&self, alone: &Alone<'_>) -> Option<Ended> {
        self.all(alone).end_snapshot()
    }

    /// The physical numbers of the databases that have keys, ascending.
    fn physical_with_keys(&self) -> Box<[usize]> {
        let with_keys = (0..self.databases()).filter(|number| self.had_keys(*number));
        let mut physical: Box<[_]> = with_keys.map(|number| self.physical(number)).collect();
        physical.sort_unstable();
        physical
    }

    /// The number that clients use for each database now, by physical number.
    fn numbers_of_physical(&self) -> Box<[usize]> {
        let mut numbers = vec![0; self.databases()];
        (0..self.databases()).for_each(|number| numbers[self.physical(number)] = number);
        numbers.into()
    }
}

impl Locked<'_> {
    /// Begins a snapshot of this moment. `sink` makes the sink of each shard, or none for a shard that the snapshot leaves out.
    /// The walk skips such a shard while marks are left for the next snapshot; otherwise it marks the shard's entries. Visits no
    /// keys. Panics unless all shards are held.
    ///
    /// # Errors
    /// If another one runs.
    pub fn begin_snapshot(
        &mut self,
        mut sink: impl FnMut(usize) -> Option<Box<dyn Sink>>,
    ) -> Result<Snapshot, SnapshotRuns> {
        assert!(self.holds_all(), "a cut needs all shards");
        let keyspace = self.keyspace();
        let mut rounds = keyspace.snapshots().rounds();
        if rounds.running.is_some() {
            return Err(SnapshotRuns);
        }
        let mark = rounds.unused_mark();
        // Most slots may be empty, because they belong to other nodes.
        let is_saved = |shard: &usize| keyspace.layout() == Layout::Threads || keyspace.is_occupied(*shard);
        let mut saved: Vec<_> =
            (0..keyspace.shard_count()).filter(is_saved).map(|shard| (shard, sink(shard))).collect();
        rounds.used |= 1 << mark;
        rounds.is_partial = rounds.used != ALL_MARKS && saved.iter().any(|(_, sink)| sink.is_none());
        if rounds.is_partial {
            saved.retain(|(_, sink)| sink.is_some());
        }
        let cut = Arc::new(Cut {
            mark,
            databases: keyspace.physical_with_keys(),
            numbers: keyspace.numbers_of_physical(),
            shards_left: AtomicUsize::new(saved.len()),
            keys_saved: AtomicUsize::new(0),
            reopened: AtomicUsize::new(0),
        });
        for (shard, sink) in saved {
            *self.saver_mut(shard) = Some(Box::new(Saver::new(cut.clone(), sink)));
        }
        rounds.running = Some(cut.clone());
        keyspace.snapshots().mark.store(mark, Ordering::Relaxed);
        Ok(Snapshot(cut))
    }

    /// Ends the running snapshot: it is complete if all shards have been walked, otherwise cancelled. Returns None if
    /// no snapshot runs. Panics unless all shards are held.
    pub fn end_snapshot(&mut self) -> Option<Ended> {
        assert!(self.holds_all(), "the end of a snapshot needs all shards");
        let keyspace = self.keyspace();
        let mut rounds = keyspace.snapshots().rounds();
        let cut = rounds.running.take()?;
        let is_walked = cut.shards_left.load(Ordering::Relaxed) == 0;
        if is_walked {
            // Entries of the shards that were left out have older marks.
            rounds.used = if rounds.is_partial { rounds.used } else { 1 << cut.mark };
        } else if rounds.is_sweep || rounds.used == ALL_MARKS {
            self.drop_sinks();
            (rounds.running, rounds.is_sweep) = (Some(cut), true);
            return Some(Ended::Sweeping);
        }
        self.drop_sinks();
        (0..keyspace.shard_count()).for_each(|shard| *self.saver_mut(shard) = None);
        keyspace.snapshots().mark.store(0, Ordering::Relaxed);
        let is_sweep = std::mem::take(&mut rounds.is_sweep);
        Some(if is_walked && !is_sweep { Ended::Complete } else { Ended::Cancelled })
    }

    /// Adds a saver to a shard that had no keys at the cut. It saves the rest of a collection that moves there while it is saved in pieces.
    pub(crate) fn add_saver(&mut self, shard: usize) {
        let rounds = self.keyspace().snapshots().rounds();
        if let (Some(cut), saver @ None) = (&rounds.running, self.saver_mut(shard)) {
            cut.reopen();
            *saver = Some(Box::new(Saver::of_new_keys(cut.clone())));
        }
    }

    fn drop_sinks(&mut self) {
        let keyspace = self.keyspace();
        for shard in 0..keyspace.shard_count() {
            let Some(saver) = self.saver_mut(shard) else { continue };
            saver.drop_sink(keyspace.reaper());
            for Begun { physical, key } in saver.take_begun() {
                let key = Key::new(&key);
                let (tables, _) = self.with_saver_of(physical, shard);
                let entry = tables.table.find_mut(key.hash, key.bytes);
                if let Some(value) = entry.and_then(RefMut::into_object) {
                    value.set_walk(None);
                }
            }
        }
    }

    /// Continues the walk of a shard, which is held, through entries with about `budget_bytes` of memory. A single
    /// entry may exceed the budget. 16 KB take some hundred microseconds.
    ///
    /// The locks of shards are unfair. A caller that continues with the same shard calls [`Keyspace::give_way`] between
    /// two steps; otherwise other threads wait for many steps (`examples/snapshot_pauses.rs` shows 60 ms).
    pub fn snapshot_step(&mut self, shard: usize, budget_bytes: usize) -> Step {
        let reaper = self.keyspace().reaper();
        let mut budget = Budget(budget_bytes);
        loop {
            let Some(saver) = self.saver_mut(shard) else { return Step::Done };
            let stopped = match saver.next() {
                Next::Removed => saver.save_removed(&mut budget, reaper),
                Next::Flushed => saver.walk_flushed(&mut budget, reaper),
                Next::Begun(physical) => {
                    self.in_tables(physical, shard, |table, saver| saver.go_on(table, &mut budget))
                }
                Next::Database(physical) => {
                    self.in_tables(physical, shard, |table, saver| saver.walk(table, &mut budget))
                }
                Next::Nothing => {
                    saver.finish();
                    Some(Step::Done)
                }
            };
            if let Some(stopped) = stopped {
                return stopped;
            }
        }
    }

    /// Runs `work` on the shard's table in one database and on its saver.
    fn in_tables(
        &mut self,
        physical: usize,
        shard: usize,
        work: impl FnOnce(&mut Table<Entry>, &mut Saver) -> Option<Step>,
    ) -> Option<Step> {
        let (tables, saving) = self.with_saver_of(physical, shard);
        work(&mut tables.table, saving?.saver)
    }
}

/// The bytes that are left of a step's budget.
pub(crate) struct Budget(usize);

impl Budget {
    /// Returns a budget for entries that must be saved now.
    pub(crate) fn unlimited() -> Budget {
        Budget(usize::MAX)
    }

    fn charge(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }

    fn is_used_up(&self) -> bool {
        self.0 == 0
    }
}

/// Saves one shard of all databases.
pub(crate) struct Saver {
    cut: Arc<Cut>,
    target: EntryTarget,
    /// Index of the database that is being walked, among those of the cut.
    at: usize,
    walk: ShardWalk,
    /// Keys with values that are being saved in pieces, in any database. Missing keys are skipped: their values went to
    /// other keys, which are listed as well.
    begun: VecDeque<Begun>,
    /// Shards that were flushed before they were walked.
    flushed: Vec<Flushed>,
    /// Large collections with keys that were removed before they were saved, and the numbers of their databases.
    removed: Vec<(usize, Entry)>,
    is_finished: bool,
    /// True once the sink was told that no more entries will come.
    is_sink_finished: bool,
}

/// A key with a value that is being saved in pieces.
struct Begun {
    physical: usize,
    key: Box<[u8]>,
}

/// A shard of a database that has been flushed.
struct Flushed {
    number: usize,
    shard: Shard,
    walk: ShardWalk,
}

/// The next work of a saver.
enum Next {
    Removed,
    Flushed,
    /// Continue with the first key of `begun`, which is in this database.
    Begun(usize),
    /// Walk this database.
    Database(usize),
    Nothing,
}

/// Progress of the walk through a shard of a database.
#[derive(Default)]
struct ShardWalk {
    cursor: u64,
    /// True if the cursor has reached the end.
    is_scanned: bool,
    /// Keys before the cursor with values that are saved in pieces.
    large: Vec<Box<[u8]>>,
}

/// The sink and the mark of a saver's entries.
struct EntryTarget {
    /// None if entries are only marked: the snapshot was cancelled or leaves the shard out, or the shard had no keys at the cut.
    sink: Option<Box<dyn Sink>>,
    mark: u8,
    /// Entries saved since the last update of the snapshot's count.
    saved: usize,
}

impl EntryTarget {
    /// Returns true if an entry is unsaved and must be saved in pieces.
    fn is_piecewise(&self, entry: &Entry) -> bool {
        entry.mark() != self.mark && (entry.has_walk() || self.sink.is_some() && entry.is_piecewise())
    }

    /// Saves an entry whole, unless it has been saved. Returns the bytes that were read.
    fn save(&mut self, number: usize, entry: &mut Entry) -> usize {
        if entry.mark() == self.mark {
            return 0;
        }
        if let Some(sink) = &mut self.sink {
            sink.entry(number, entry);
        }
        self.settle(entry, self.sink.is_some());
        entry.memory_bytes()
    }

    /// Marks an entry as saved, or as one that need not be saved.
    fn settle(&mut self, entry: &mut Entry, is_saved: bool) {
        entry.set_mark(self.mark);
        self.saved += usize::from(is_saved);
    }

    /// Begins to save an entry in pieces, unless this has begun.
    fn begin(&mut self, number: usize, entry: &mut Entry) {
        if let Some(sink) = &mut self.sink
            && !entry.has_walk()
        {
            let elements = sink.begin(number, entry);
            if let Some(value) = entry.object_mut() {
                value.set_walk(Some(elements));
            }
        }
    }

    /// Saves a piece of an entry, or all of it. Returns the reason if it stopped before the end.
    fn save_piece(&mut self, number: usize, entry: &mut Entry, budget: &mut Budget) -> Option<Step> {
        if !self.is_piecewise(entry) {
            budget.charge(self.save(number, entry));
            return None;
        }
        self.begin(number, entry);
        let stopped = entry.object_mut().and_then(|value| value.save_piece(budget));
        if stopped.is_none() {
            self.settle(entry, true);
        }
        stopped
    }

    /// Saves a piece of the key's entry, if the key exists.
    fn save_piece_in(
        &mut self,
        number: usize,
        table: &mut Table<Entry>,
        key: &[u8],
        budget: &mut Budget,
    ) -> Option<Step> {
        let key = Key::new(key);
        let mut entry = table.find_mut(key.hash, key.bytes)?;
        self.save_piece(number, &mut entry, budget)
    }

    /// Returns the reason if a walk must stop.
    fn stops(&self, budget: &Budget) -> Option<Step> {
        if self.sink.as_ref().is_some_and(|sink| sink.is_full()) {
            Some(Step::Full)
        } else {
            budget.is_used_up().then_some(Step::More)
        }
    }

    /// Continues the walk in a table of the database `number`. Returns the reason if it stopped before the end.
    fn walk(
        &mut self,
        number: usize,
        table: &mut Table<Entry>,
        walk: &mut ShardWalk,
        budget: &mut Budget,
    ) -> Option<Step> {
        loop {
            while let Some(key) = walk.large.last() {
                let stopped = self.save_piece_in(number, table, key, budget);
                if stopped.is_some() {
                    return stopped;
                }
                walk.large.pop();
            }
            if walk.is_scanned {
                return None;
            }
            let stopped = self.stops(budget);
            if stopped.is_some() {
                return stopped;
            }
            budget.charge(BUCKET_BYTES);
            walk.cursor = table.scan_mut(walk.cursor, |entry| match self.is_piecewise(entry) {
                true => walk.large.push(entry.key().into()),
                false => budget.charge(self.save(number, entry)),
            });
            walk.is_scanned = walk.cursor == 0;
        }
    }
}

impl Saver {
    fn new(cut: Arc<Cut>, sink: Option<Box<dyn Sink>>) -> Saver {
        let target = EntryTarget { sink, mark: cut.mark, saved: 0 };
        Saver {
            cut,
            target,
            at: 0,
            walk: ShardWalk::default(),
            begun: VecDeque::new(),
            flushed: Vec::new(),
            removed: Vec::new(),
            is_finished: false,
            is_sink_finished: false,
        }
    }

    /// Returns a saver for a shard that had no keys at the cut.
    fn of_new_keys(cut: Arc<Cut>) -> Saver {
        let at = cut.databases.len();
        Saver { at, ..Saver::new(cut, None) }
    }

    /// Returns the physical number of the next database to walk; None if all have been walked.
    fn database(&self) -> Option<usize> {
        self.cut.databases.get(self.at).copied()
    }

    /// Work on values that others use, or that have no key any more, comes first, because it holds memory.
    fn next(&self) -> Next {
        if !self.removed.is_empty() {
            Next::Removed
        } else if !self.flushed.is_empty() {
            Next::Flushed
        } else if let Some(begun) = self.begun.front() {
            Next::Begun(begun.physical)
        } else {
            self.database().map_or(Next::Nothing, Next::Database)
        }
    }

    /// Continues the walk in the table of the next database. Returns the reason if it stopped before the end.
    fn walk(&mut self, table: &mut Table<Entry>, budget: &mut Budget) -> Option<Step> {
        let number = self.cut.numbers[self.database()?];
        let stopped = self.target.walk(number, table, &mut self.walk, budget);
        self.publish_count();
        if stopped.is_none() {
            self.at += 1;
            self.walk = ShardWalk::default();
        }
        stopped
    }

    /// Continues with the first key of `begun`, in the table of its database. Returns the reason if it stopped before
    /// the end.
    fn go_on(&mut self, table: &mut Table<Entry>, budget: &mut Budget) -> Option<Step> {
        let Begun { physical, key } = self.begun.front()?;
        let number = self.cut.numbers[*physical];
        let stopped = self.target.save_piece_in(number, table, key, budget);
        self.publish_count();
        if stopped.is_none() {
            self.begun.pop_front();
        }
        stopped
    }

    /// Walks a flushed shard, and passes it to the reaper at the end. Returns the reason if it stopped before the end.
    fn walk_flushed(&mut self, budget: &mut Budget, reaper: &Reaper) -> Option<Step> {
        let mut flushed = self.flushed.pop()?;
        let Flushed { number, shard, walk } = &mut flushed;
        let stopped = self.target.walk(*number, &mut shard.table, walk, budget);
        self.publish_count();
        match stopped {
            Some(_) => self.flushed.push(flushed),
            None => free(flushed.shard, reaper),
        }
        stopped
    }

    /// Saves a piece of a collection that has lost its key, and passes it to the reaper at the end. Returns the reason
    /// if it stopped before the end.
    fn save_removed(&mut self, budget: &mut Budget, reaper: &Reaper) -> Option<Step> {
        let (number, mut entry) = self.removed.pop()?;
        let stopped = self.target.save_piece(number, &mut entry, budget);
        self.publish_count();
        match stopped {
            Some(_) => self.removed.push((number, entry)),
            None => reaper.free_entry(entry),
        }
        stopped
    }

    /// Takes all keys with values that may be partly saved, except for flushed and removed ones.
    fn take_begun(&mut self) -> Vec<Begun> {
        let walk = std::mem::take(&mut self.walk);
        let by_walk = self.database().map(|physical| walk.large.into_iter().map(move |key| Begun { physical, key }));
        self.begun.drain(..).chain(by_walk.into_iter().flatten()).collect()
    }

    fn publish_count(&mut self) {
        self.cut.keys_saved.fetch_add(std::mem::take(&mut self.target.saved), Ordering::Relaxed);
    }

    /// Notes that everything has been walked.
    fn finish(&mut self) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        if let Some(sink) = &mut self.target.sink
            && !std::mem::replace(&mut self.is_sink_finished, true)
        {
            sink.finish();
        }
        self.cut.shards_left.fetch_sub(1, Ordering::Release);
    }

    /// Notes that there is more to do.
    fn reopen(&mut self) {
        if std::mem::take(&mut self.is_finished) {
            self.cut.reopen();
        }
    }

    /// Drops the sink, and passes values without a key to the reaper.
    fn drop_sink(&mut self, reaper: &Reaper) {
        self.target.sink = None;
        self.flushed.drain(..).for_each(|flushed| free(flushed.shard, reaper));
        self.removed.drain(..).for_each(|(_, entry)| reaper.free_entry(entry));
    }
}

/// Passes a shard with its entries to the reaper.
fn free(shard: Shard, reaper: &Reaper) {
    let keys = shard.table.len();
    if keys > 0 {
        reaper.free(shard, keys);
    }
}

/// The saver of a shard of one database.
pub(crate) struct Saving<'a> {
    saver: &'a mut Saver,
    physical: usize,
}

/// The kind of change that an entry is about to undergo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Its value or its expiry changes, or it moves to another key.
    Altered,
    /// It is removed, or its value is overwritten.
    Lost,
}

impl<'a> Saving<'a> {
    pub fn new(saver: &'a mut Saver, physical: usize) -> Saving<'a> {
        Saving { saver, physical }
    }

    /// Saves an entry before a change, unless it has been saved. A large collection that is about to be lost is taken
    /// out, and its key holds an empty string then.
    pub fn save_before(&mut self, change: Change, entry: &mut Entry) {
        let saver = &mut *self.saver;
        let number = saver.cut.numbers[self.physical];
        if !saver.target.is_piecewise(entry) {
            saver.target.save(number, entry);
        } else if change == Change::Lost {
            saver.removed.push((number, entry.take_value()));
            entry.set_mark(saver.target.mark);
            saver.reopen();
        } else if !entry.has_walk() {
            saver.target.begin(number, entry);
            saver.begun.push_back(Begun { physical: self.physical, key: entry.key().into() });
        }
        saver.publish_count();
    }

    /// Prepares a new entry: marks it as saved, unless it is a partly saved collection that comes from another key.
    pub fn adopt(&mut self, entry: &mut Entry) {
        if entry.has_walk() {
            self.saver.begun.push_back(Begun { physical: self.physical, key: entry.key().into() });
            self.saver.reopen();
        } else {
            entry.set_mark(self.saver.target.mark);
        }
    }

    /// Keeps a shard that is being flushed until it has been walked. Returns the shard if that is unnecessary.
    pub fn keep(self, shard: Shard) -> Option<Shard> {
        let saver = self.saver;
        let is_begun = |begun: &Begun| begun.physical == self.physical;
        let is_walked = saver.target.sink.is_none() || saver.database().is_none_or(|next| next > self.physical);
        if shard.table.is_empty() || is_walked && !saver.begun.iter().any(is_begun) {
            return Some(shard);
        }
        let number = saver.cut.numbers[self.physical];
        saver.flushed.push(Flushed { number, shard, walk: ShardWalk::default() });
        None
    }
}
