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
//! # Large collections
//! A hash, set, sorted set or list of over a thousand elements is saved in pieces (`pieces`, `list::walk`): the sink's
//! [`Sink::begin`] gives a target for its elements ([`ElementSink`]), and the walk through them belongs to the value. The
//! entry gets the mark when the walk ends. A change to such a collection begins its walk, if there is none yet. From
//! then on the collection itself saves what is changed in it. If its key is removed or overwritten, the value goes to the
//! saver, which walks it to the end and leaves it to the reaper. If its key is renamed or moved, the saver of the new key
//! goes on. So nothing is copied as a whole, and no command waits for more than one step. Streams, long strings and
//! packed blocks, which are large only by the configuration, are saved whole.
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

pub(crate) mod pieces;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::entry::{Entry, MARK_MAX};
use crate::keyspace::{Key, Keyspace, Locked, Shard};
use crate::reaper::Reaper;
use crate::sync::Alone;
use crate::table::{RefMut, Table};

pub use pieces::{Element, ElementSink};

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

    /// Begins to save an entry with a large collection in pieces. It has all its elements at this moment, and the result
    /// gets as many.
    fn begin(&mut self, database: usize, entry: &Entry) -> Box<dyn ElementSink>;

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
    /// The physical numbers of the databases that had keys, ascending.
    databases: Box<[usize]>,
    /// By physical number: the number that clients had for the database.
    numbers: Box<[usize]>,
    shards_left: AtomicUsize,
    keys_saved: AtomicUsize,
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

    /// Whether a snapshot runs that has not been cancelled.
    pub fn saves(&self) -> bool {
        let rounds = self.rounds();
        rounds.running.is_some() && !rounds.is_sweep
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

    /// The physical numbers of the databases that have keys, ascending.
    fn physical_with_keys(&self) -> Box<[usize]> {
        let with_keys = (0..self.databases()).filter(|number| self.had_keys(*number));
        let mut physical: Box<[_]> = with_keys.map(|number| self.physical(number)).collect();
        physical.sort_unstable();
        physical
    }

    /// By physical number: the number that clients have for the database now.
    fn numbers_of_physical(&self) -> Box<[usize]> {
        let mut numbers = vec![0; self.databases()];
        (0..self.databases()).for_each(|number| numbers[self.physical(number)] = number);
        numbers.into()
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
            databases: keyspace.physical_with_keys(),
            numbers: keyspace.numbers_of_physical(),
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

    /// Walks on in a shard, which is held, until entries of about `budget_bytes` of memory were looked at. A single
    /// entry may exceed that. 16 KB take some hundred microseconds.
    ///
    /// The locks of shards are unfair. A caller that goes on with the same shard calls [`Keyspace::give_way`] between two steps; otherwise other
    /// threads wait for it for many steps (`examples/snapshot_pauses.rs` shows 60 ms).
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

    /// Lets the saver of a shard work on the table that the shard has in one database.
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

/// Bytes that a step may still look at.
pub(crate) struct Budget(usize);

impl Budget {
    /// For what must be saved now.
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
    /// The index of the database of the cut that is being walked.
    at: usize,
    walk: ShardWalk,
    /// Keys whose values are being saved in pieces, of any database. Those that are there no more are passed over: their
    /// values are with the keys that they went to.
    begun: VecDeque<Begun>,
    /// What was flushed before it was walked.
    flushed: Vec<Flushed>,
    /// Large collections whose keys were removed before they were saved, with their databases' numbers.
    removed: Vec<(usize, Entry)>,
    is_finished: bool,
    /// Whether the sink knows that no entries will come.
    is_sink_finished: bool,
}

/// A key whose value is being saved in pieces.
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

/// What a saver has to do next.
enum Next {
    Removed,
    Flushed,
    /// To go on with the first of the keys that were begun, which is in this database.
    Begun(usize),
    /// To walk this database.
    Database(usize),
    Nothing,
}

/// How far the walk through a shard of a database has come.
#[derive(Default)]
struct ShardWalk {
    cursor: u64,
    /// Whether the cursor has come to the end.
    is_scanned: bool,
    /// Keys before the cursor whose values are to be saved in pieces.
    large: Vec<Box<[u8]>>,
}

/// Where a saver puts entries, and what it marks them with.
struct EntryTarget {
    /// None, if the snapshot was cancelled and entries are only marked.
    sink: Option<Box<dyn Sink>>,
    mark: u8,
    /// Entries saved since this was last added to the snapshot's count.
    saved: usize,
}

impl EntryTarget {
    /// Whether an entry is to be saved in pieces, if it is to be saved.
    fn is_piecewise(&self, entry: &Entry) -> bool {
        self.sink.is_some() && entry.mark() != self.mark && entry.is_piecewise()
    }

    /// Saves an entry whole unless that has been done. Says how many bytes were looked at.
    fn save(&mut self, number: usize, entry: &mut Entry) -> usize {
        if entry.mark() == self.mark {
            return 0;
        }
        if let Some(sink) = &mut self.sink {
            sink.entry(number, entry);
        }
        self.settle(entry);
        entry.memory_bytes()
    }

    /// Marks an entry that has been saved.
    fn settle(&mut self, entry: &mut Entry) {
        entry.set_mark(self.mark);
        self.saved += usize::from(self.sink.is_some());
    }

    /// Begins to save an entry in pieces, unless that has been done.
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

    /// Saves a piece of an entry, or all of it. Says why that has stopped before the end.
    fn save_piece(&mut self, number: usize, entry: &mut Entry, budget: &mut Budget) -> Option<Step> {
        if !self.is_piecewise(entry) {
            budget.charge(self.save(number, entry));
            return None;
        }
        self.begin(number, entry);
        let stopped = entry.object_mut().and_then(|value| value.save_piece(budget));
        if stopped.is_none() {
            self.settle(entry);
        }
        stopped
    }

    /// Saves a piece of the key's entry, if it is there.
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

    /// Why a walk must stop, if it must.
    fn stops(&self, budget: &Budget) -> Option<Step> {
        if self.sink.as_ref().is_some_and(|sink| sink.is_full()) {
            Some(Step::Full)
        } else {
            budget.is_used_up().then_some(Step::More)
        }
    }

    /// Walks on in a table of a database with this number. Says why it has stopped before the end.
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
    fn new(cut: Arc<Cut>, sink: Box<dyn Sink>) -> Saver {
        let target = EntryTarget { sink: Some(sink), mark: cut.mark, saved: 0 };
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

    /// The physical number of the database that is to be walked; none, if all have been.
    fn database(&self) -> Option<usize> {
        self.cut.databases.get(self.at).copied()
    }

    /// What is in use by others, or by none, comes first: it holds memory.
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

    /// Walks on in the table of the next database. Says why it has stopped before the end.
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

    /// Goes on with the first of the keys that were begun, whose database has this table. Says why it has stopped before
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

    /// Walks what was flushed, and leaves it to the reaper. Says why it has stopped before the end.
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

    /// Saves a piece of a collection whose key was removed, and leaves it to the reaper when it is done. Says why it has
    /// stopped before the end.
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

    /// All keys whose values may be in the midst of being saved, those that were flushed or removed excepted.
    fn take_begun(&mut self) -> Vec<Begun> {
        let walk = std::mem::take(&mut self.walk);
        let by_walk = self.database().map(|physical| walk.large.into_iter().map(move |key| Begun { physical, key }));
        self.begun.drain(..).chain(by_walk.into_iter().flatten()).collect()
    }

    fn publish_count(&mut self) {
        self.cut.keys_saved.fetch_add(std::mem::take(&mut self.target.saved), Ordering::Relaxed);
    }

    /// All has been walked.
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

    /// There is more to do.
    fn reopen(&mut self) {
        if std::mem::take(&mut self.is_finished) {
            self.cut.shards_left.fetch_add(1, Ordering::Release);
        }
    }

    /// Forgets the sink, and leaves to the reaper what has no key any more.
    fn drop_sink(&mut self, reaper: &Reaper) {
        self.target.sink = None;
        self.flushed.drain(..).for_each(|flushed| free(flushed.shard, reaper));
        self.removed.drain(..).for_each(|(_, entry)| reaper.free_entry(entry));
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

/// What is about to happen to an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// Its value or its expiry changes, or it goes to another key.
    Altered,
    /// It is removed, or its value is overwritten.
    Lost,
}

impl<'a> Saving<'a> {
    pub fn new(saver: &'a mut Saver, physical: usize) -> Saving<'a> {
        Saving { saver, physical }
    }

    /// Saves an entry that is about to be changed, unless that has been done. A large collection that is to be lost is
    /// taken out: its key holds an empty string then.
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

    /// Sees to an entry that is about to be put in: it isn't to be saved, unless it is a collection that is being saved
    /// and comes from another key.
    pub fn adopt(&mut self, entry: &mut Entry) {
        if entry.has_walk() {
            self.saver.begun.push_back(Begun { physical: self.physical, key: entry.key().into() });
            self.saver.reopen();
        } else {
            entry.set_mark(self.saver.target.mark);
        }
    }

    /// Keeps a shard that is being flushed until it has been walked; gives it back, if it has been.
    pub fn keep(self, shard: Shard) -> Option<Shard> {
        let saver = self.saver;
        let is_begun = |begun: &Begun| begun.physical == self.physical;
        let is_walked = saver.database().is_none_or(|next| next > self.physical);
        if saver.target.sink.is_none() || shard.table.is_empty() || is_walked && !saver.begun.iter().any(is_begun) {
            return Some(shard);
        }
        let number = saver.cut.numbers[self.physical];
        saver.flushed.push(Flushed { number, shard, walk: ShardWalk::default() });
        None
    }
}
