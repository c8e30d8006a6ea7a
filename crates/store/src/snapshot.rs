//! Snapshots of the whole keyspace at one point in time, without a second process and without a stall.
//!
//! # The cut
//! [`Locked::begin_snapshot`] runs alone behind the gate: that moment is the cut. It notes the databases' numbers and
//! chooses a mark, and visits no key. Each shard gets a **saver**: a cursor and a [`Sink`]. The lock that guards a
//! shard guards its saver, so a snapshot adds no lock.
//!
//! # The walk
//! Workers then call [`Locked::snapshot_step`] for each shard until it is done. A step goes on from the cursor, gives
//! the sink each entry that does not have the snapshot's mark, and marks it. Cursors are those of SCAN: they survive
//! growth and shrinking of the table, and may show an entry twice. The mark makes the second time harmless.
//!
//! # Changes meanwhile
//! Whatever changes, replaces or removes an entry gives it to the sink of its shard first, if it does not have the mark
//! (`db::saving`). New entries are born with the mark. So an unmarked entry is exactly as it was at the cut, and so is
//! its key. Access words (LRU, LFU) are no changes: they may be younger than the cut. Entries that have expired at the
//! cut but were not removed yet are saved with their expiry.
//!
//! - RENAME and MOVE save the entry under its old name, and put it in with the mark.
//! - Moving an entry to another allocation keeps its mark.
//! - FLUSHALL and FLUSHDB hand the flushed shards over to the savers, which walk them too and then leave them to the
//!   reaper.
//! - SWAPDB changes the numbers of databases. A snapshot has those of the cut.
//!
//! # Marks
//! An entry has three bits for the mark. No snapshot has the mark 0; entries that are created while none runs get it. A
//! complete snapshot leaves all entries with its mark or 0, so any other mark is good for the next one. A cancelled
//! snapshot leaves its mark on some entries and those of its predecessors on others. Nothing is done about that at
//! first: the next snapshot takes a mark that no entry can have, and begins at once. Only when all seven may be in use,
//! after as many cancelled snapshots in a row, the last one does not end: its walk goes on without sinks
//! ([`Ended::Sweeping`]) until all entries have its mark. So cancelling costs nothing, there is no walk at the gate, and
//! nothing is ever taken for saved that is not.
//!
//! # Cost
//! While no snapshot runs, each of those places tests one byte (`Snapshots::runs`).
//!
//! This room knows no file formats: they are the sinks'.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::entry::{Entry, MARK_MAX};
use crate::keyspace::{Keyspace, Locked, Shard};
use crate::reaper::Reaper;
use crate::sync::Alone;
use crate::table::Table;

/// What a step's budget is charged for a bucket that it looks at, in bytes: a cache line.
const BUCKET_BYTES: usize = 64;

/// Takes what one shard has at the cut: each entry once, in no order. Called with the shard's lock held, so it must not
/// wait; what it makes of the entries is handed on to another thread.
///
/// Writers give it what they are about to change, whether or not it is full. A limit for that needs the bytes of all
/// sinks together: count them where the sinks of a snapshot meet, and keep commands that may write from running before
/// they hold a shard.
pub trait Sink: Send {
    /// Saves an entry. `database` is the number that clients had for its database at the cut.
    fn entry(&mut self, database: usize, entry: &Entry);

    /// Whether the walk should pause: what takes the bytes is behind.
    fn is_full(&self) -> bool;

    /// The shard has been walked, and no more entries will come. Not called if the snapshot is cancelled.
    fn finish(&mut self);
}

/// How far a step has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The shard has been walked, or no snapshot runs.
    Done,
    /// The budget is used up.
    More,
    /// The sink is full.
    Full,
}

/// How a snapshot has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Ended {
    /// Its sinks got all that there was at the cut.
    Complete,
    /// It was cancelled.
    Cancelled,
    /// It was cancelled, its sinks are gone, but steps must go on until all shards are walked. No other snapshot can
    /// begin before that and another [`Keyspace::end_snapshot`].
    Sweeping,
}

/// Another snapshot runs, or a cancelled one is still being walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotRuns;

/// A snapshot that was begun, for those that look at its progress from any thread.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Cut>);

impl Snapshot {
    /// Shards that are not walked yet. Once there are none, [`Keyspace::end_snapshot`] may be called; until then that
    /// cancels the snapshot.
    #[must_use]
    pub fn shards_left(&self) -> usize {
        self.0.shards_left.load(Ordering::Acquire)
    }

    /// Keys saved so far: INFO's `current_save_keys_processed`.
    #[must_use]
    pub fn keys_saved(&self) -> usize {
        self.0.keys_saved.load(Ordering::Relaxed)
    }
}

/// What a snapshot knows of the moment that it shows, and its counts.
#[derive(Debug)]
struct Cut {
    mark: u8,
    /// The databases that had keys, by physical number, ascending.
    databases: Box<[Database]>,
    shards_left: AtomicUsize,
    keys_saved: AtomicUsize,
}

/// A database at the cut.
#[derive(Clone, Copy, Debug)]
struct Database {
    physical: usize,
    /// The number that clients had for it.
    number: usize,
}

impl Cut {
    /// The number at the cut of a database with this physical number; none, if it had no keys.
    fn number(&self, physical: usize) -> Option<usize> {
        let at = self.databases.binary_search_by_key(&physical, |database| database.physical).ok()?;
        Some(self.databases[at].number)
    }
}

/// The snapshot that runs, and what those before have left.
#[derive(Default)]
pub(crate) struct Snapshots {
    /// The mark of the snapshot that runs, 0 if none does. Changed only alone behind the gate.
    mark: AtomicU8,
    rounds: Mutex<Rounds>,
}

/// What only the beginning and the end of a snapshot look at.
#[derive(Default)]
struct Rounds {
    /// The marks that entries may have: a bit each.
    used: u8,
    running: Option<Arc<Cut>>,
    /// The one that runs was cancelled.
    is_sweep: bool,
}

/// The bits of all marks.
const ALL_MARKS: u8 = ((1u16 << (MARK_MAX + 1)) - 2) as u8;

impl Snapshots {
    /// Whether a snapshot runs, so that what is about to change must be saved.
    #[inline(always)]
    pub fn runs(&self) -> bool {
        self.mark() != 0
    }

    /// The mark of the snapshot that runs, 0 if none does.
    #[inline(always)]
    pub fn mark(&self) -> u8 {
        self.mark.load(Ordering::Relaxed)
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rounds {
    /// A mark that no entry has; there is one unless a sweep runs.
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
        sink: impl FnMut(usize) -> Box<dyn Sink>,
    ) -> Result<Snapshot, SnapshotRuns> {
        self.all(alone).begin_snapshot(sink)
    }

    /// Ends the snapshot that runs: see [`Locked::end_snapshot`].
    pub fn end_snapshot(&self, alone: &Alone<'_>) -> Option<Ended> {
        self.all(alone).end_snapshot()
    }

    /// The databases that have keys, by physical number.
    fn databases_at_cut(&self) -> Box<[Database]> {
        let with_keys = (0..self.databases()).filter(|number| self.had_keys(*number));
        let mut databases: Box<[_]> =
            with_keys.map(|number| Database { physical: self.physical(number), number }).collect();
        databases.sort_unstable_by_key(|database| database.physical);
        databases
    }
}

impl Locked<'_> {
    /// Begins a snapshot of this moment. `sink` makes the sink of each shard. Visits no keys. All shards are held, which is
    /// asserted.
    ///
    /// # Errors
    /// If another one runs.
    pub fn begin_snapshot(&mut self, mut sink: impl FnMut(usize) -> Box<dyn Sink>) -> Result<Snapshot, SnapshotRuns> {
        assert!(self.holds_all(), "a cut needs all shards");
        let keyspace = self.keyspace();
        let mut rounds = keyspace.snapshots().rounds();
        if rounds.running.is_some() {
            return Err(SnapshotRuns);
        }
        let mark = rounds.unused_mark();
        let cut = Arc::new(Cut {
            mark,
            databases: keyspace.databases_at_cut(),
            shards_left: AtomicUsize::new(keyspace.shard_count()),
            keys_saved: AtomicUsize::new(0),
        });
        for shard in 0..keyspace.shard_count() {
            *self.saver_mut(shard) = Some(Box::new(Saver::new(cut.clone(), sink(shard))));
        }
        rounds.used |= 1 << mark;
        rounds.running = Some(cut.clone());
        keyspace.snapshots().mark.store(mark, Ordering::Relaxed);
        Ok(Snapshot(cut))
    }

    /// Ends the snapshot that runs: it is complete if all shards have been walked, else cancelled. None, if none runs. All
    /// shards are held, which is asserted.
    pub fn end_snapshot(&mut self) -> Option<Ended> {
        assert!(self.holds_all(), "the end of a snapshot needs all shards");
        let keyspace = self.keyspace();
        let mut rounds = keyspace.snapshots().rounds();
        let cut = rounds.running.take()?;
        let is_walked = cut.shards_left.load(Ordering::Relaxed) == 0;
        if is_walked {
            rounds.used = 1 << cut.mark;
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

    fn drop_sinks(&mut self) {
        let keyspace = self.keyspace();
        for shard in 0..keyspace.shard_count() {
            if let Some(saver) = self.saver_mut(shard) {
                saver.drop_sink(keyspace.reaper());
            }
        }
    }

    /// Walks on in a shard, which is held, until entries of about `budget_bytes` of memory were looked at. A single
    /// entry may exceed that.
    pub fn snapshot_step(&mut self, shard: usize, budget_bytes: usize) -> Step {
        let reaper = self.keyspace().reaper();
        let mut budget = Budget(budget_bytes);
        loop {
            let Some(saver) = self.saver_mut(shard) else { return Step::Done };
            if let Some(stopped) = saver.walk_flushed(&mut budget, reaper) {
                return stopped;
            }
            let Some(physical) = saver.database() else {
                saver.finish();
                return Step::Done;
            };
            let (tables, saving) = self.with_saver_of(physical, shard);
            if let Some(stopped) = saving.and_then(|saving| saving.saver.walk(&mut tables.table, &mut budget)) {
                return stopped;
            }
        }
    }
}

/// Bytes that a step may still look at.
struct Budget(usize);

impl Budget {
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
    target: Target,
    /// The index of the database of the cut that is being walked.
    at: usize,
    /// The cursor in its table.
    cursor: u64,
    /// What was flushed before it was walked.
    flushed: Vec<Flushed>,
    is_finished: bool,
}

/// A shard of a database that has been flushed.
struct Flushed {
    number: usize,
    shard: Shard,
    cursor: u64,
}

/// Where a saver puts entries, and what it marks them with.
struct Target {
    /// None, if the snapshot was cancelled and entries are only marked.
    sink: Option<Box<dyn Sink>>,
    mark: u8,
    /// Entries saved since this was last added to the snapshot's count.
    saved: usize,
}

impl Target {
    /// Saves an entry unless that has been done. Says how many bytes were looked at.
    fn save(&mut self, number: usize, entry: &mut Entry) -> usize {
        if entry.mark() == self.mark {
            return 0;
        }
        if let Some(sink) = &mut self.sink {
            sink.entry(number, entry);
            self.saved += 1;
        }
        entry.set_mark(self.mark);
        entry.memory_bytes()
    }

    fn is_full(&self) -> bool {
        self.sink.as_ref().is_some_and(|sink| sink.is_full())
    }

    /// Walks a table from a cursor on. Says why it has stopped before the end.
    fn walk(&mut self, number: usize, table: &mut Table<Entry>, cursor: &mut u64, budget: &mut Budget) -> Option<Step> {
        loop {
            if self.is_full() {
                return Some(Step::Full);
            }
            if budget.is_used_up() {
                return Some(Step::More);
            }
            budget.charge(BUCKET_BYTES);
            *cursor = table.scan_mut(*cursor, |entry| budget.charge(self.save(number, entry)));
            if *cursor == 0 {
                return None;
            }
        }
    }
}

impl Saver {
    fn new(cut: Arc<Cut>, sink: Box<dyn Sink>) -> Saver {
        let target = Target { sink: Some(sink), mark: cut.mark, saved: 0 };
        Saver { cut, target, at: 0, cursor: 0, flushed: Vec::new(), is_finished: false }
    }

    /// The physical number of the database that is to be walked; none, if all have been.
    fn database(&self) -> Option<usize> {
        self.cut.databases.get(self.at).map(|database| database.physical)
    }

    /// Walks that database's table. Says why it has stopped before the end.
    fn walk(&mut self, table: &mut Table<Entry>, budget: &mut Budget) -> Option<Step> {
        let number = self.cut.databases.get(self.at)?.number;
        let stopped = self.target.walk(number, table, &mut self.cursor, budget);
        self.publish_count();
        self.at += usize::from(stopped.is_none());
        stopped
    }

    /// Walks what was flushed, and leaves it to the reaper. Says why it has stopped before the end.
    fn walk_flushed(&mut self, budget: &mut Budget, reaper: &Reaper) -> Option<Step> {
        while let Some(mut flushed) = self.flushed.pop() {
            let Flushed { number, shard, cursor } = &mut flushed;
            let stopped = self.target.walk(*number, &mut shard.table, cursor, budget);
            self.publish_count();
            if stopped.is_some() {
                self.flushed.push(flushed);
                return stopped;
            }
            free(flushed.shard, reaper);
        }
        None
    }

    fn publish_count(&mut self) {
        self.cut.keys_saved.fetch_add(std::mem::take(&mut self.target.saved), Ordering::Relaxed);
    }

    /// All has been walked.
    fn finish(&mut self) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        if let Some(sink) = &mut self.target.sink {
            sink.finish();
        }
        self.cut.shards_left.fetch_sub(1, Ordering::Release);
    }

    /// Forgets the sink, and leaves what was flushed to the reaper.
    fn drop_sink(&mut self, reaper: &Reaper) {
        self.target.sink = None;
        self.flushed.drain(..).for_each(|flushed| free(flushed.shard, reaper));
    }
}

/// Leaves a shard to the reaper, with its entries.
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

impl<'a> Saving<'a> {
    pub fn new(saver: &'a mut Saver, physical: usize) -> Saving<'a> {
        Saving { saver, physical }
    }

    /// Saves an entry that is about to be changed or removed, unless that has been done.
    pub fn save_early(&mut self, entry: &mut Entry) {
        if let Some(number) = self.saver.cut.number(self.physical) {
            self.saver.target.save(number, entry);
            self.saver.publish_count();
        }
    }

    /// Keeps a shard that is being flushed until it has been walked; gives it back, if it has been.
    pub fn keep(self, shard: Shard) -> Option<Shard> {
        let saver = self.saver;
        let is_left = saver.target.sink.is_some() && saver.database().is_some_and(|next| next <= self.physical);
        match saver.cut.number(self.physical).filter(|_| is_left && !shard.table.is_empty()) {
            Some(number) => {
                saver.flushed.push(Flushed { number, shard, cursor: 0 });
                None
            }
            None => Some(shard),
        }
    }
}
