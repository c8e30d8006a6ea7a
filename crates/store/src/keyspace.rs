//! The keyspace: all databases' keys, cut into shards by hash. A one-word lock guards each shard.
//!
//! Reads and writes need a [`Locked`], which holds one shard, several shards, or all of them (alone behind the gate). A
//! [`Db`](crate::db::Db) is the view of one database through a `Locked`; `db.rs` implements the operations of commands
//! on keys.
//!
//! This module uses `unsafe` because a command's locks are taken before it runs, not around each access to a table. The
//! invariant: **a table is touched only through a `Locked` that holds its shard; a `Locked` is either the only holder
//! of a shard, by its lock, or the only `Locked` at all, by the gate.** `Locked` checks this at every access. A thread
//! that keeps all others out of the gate takes no locks, and still has only one `Locked` at a time. The invariant also
//! covers the savers that a snapshot attaches to shards.

mod hints;
mod occupied;

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use self::occupied::Occupied;
use crate::entry::Entry;
use crate::expiry::{ExpiryQueue, Note};
use crate::hash::{self, KeyHash, SHARD_BITS_MAX, SLOTS};
use crate::prefetch::Ahead;
use crate::reaper::Reaper;
use crate::snapshot::{Saver, Saving, Snapshots};
use crate::sync::{Alone, Gate, Inside, ShardLock};
use crate::table::{COMING_STEP, Table};
use crate::types::timed_hash::TimedHash;

pub use hints::{Hints, ShardHints};

/// Shards of a single thread. They need no locks, but allow long work to proceed in steps. Miri is slow, so it gets fewer.
const SHARDS_ALONE: usize = if cfg!(miri) { 8 } else { 64 };
/// Shards per thread if there are several threads. A thread goes through some 64 keys between the prefetch of a key's lock and its
/// acquisition, and every other thread does the same. Meanwhile another core takes one lock in eight away. With 64 shards, it would be two
/// locks in three.
const SHARDS_PER_THREAD: usize = 512;
/// Maximum number of shards of all databases together while threads have [`SHARDS_PER_THREAD`] each; they take about 30
/// MB. With more databases each thread gets fewer, but at least [`SHARDS_ALONE`].
const SHARDS_IN_ALL: usize = 1 << 18;
/// Maximum number of shards. SCAN's cursor carries the shard's number in its low bits.
const SHARDS_MAX: usize = 1 << SHARD_BITS_MAX;

/// The rule that assigns keys to shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// Hashes decide. The number of shards suits the number of threads.
    Threads,
    /// Each slot of a cluster is a shard with the slot's number. Keys must be hashed by slot ([`crate::hash::hash_by_slot`]).
    Slots,
}

impl Layout {
    /// Returns the layout that fits this process's hash function.
    #[must_use]
    pub fn of_hashes() -> Layout {
        if hash::hashes_by_slot() { Layout::Slots } else { Layout::Threads }
    }
}

/// The time limit of a thread that holds higher shards and waits for a lower one. This wait could close a cycle (a
/// deadlock).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMax {
    /// Some milliseconds, enough for ordinary commands to release the shard. For a thread that can start over.
    Short,
    /// Some hundred milliseconds, enough for long commands (SUNIONSTORE of a million members). For a thread that would
    /// otherwise fail. A cycle of waits lasts this long.
    Long,
}

impl WaitMax {
    /// Number of attempts to take the lock: see `sync::Backoff`.
    fn tries(self) -> u32 {
        match self {
            WaitMax::Short => 300,
            WaitMax::Long => 3000,
        }
    }
}

/// A key's bytes with their hash.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The name.
    pub bytes: &'a [u8],
    /// Its hash by [`crate::hash::hash`].
    pub hash: KeyHash,
}

impl<'a> Key<'a> {
    /// Hashes a name.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: KeyHash::of(bytes) }
    }
}

/// One shard of one database. All that a lookup reads is in one cache line: a node of a cluster has a shard for each slot, and they don't fit
/// into the cache.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Shard {
    pub(crate) table: Table<Entry>,
    /// Keys that have an expiry.
    pub(crate) volatile: usize,
    /// None until the first expiry.
    expiries: Option<Box<Expiries>>,
}

const _: () = assert!(size_of::<Shard>() == 64, "a lookup would read two cache lines");

/// The expiry times of a shard.
#[derive(Default)]
struct Expiries {
    keys: ExpiryQueue,
    /// Expiry times of hash fields. None until the first field with an expiry.
    fields: Option<Box<FieldQueue>>,
}

/// The keys of a shard that hold hashes with fields that may have expired. Each key with expiring fields has at least
/// one note, with a time no later than its first expiry.
#[derive(Default)]
pub(crate) struct FieldQueue {
    queue: ExpiryQueue,
    /// Number of notes after the last renewal of the queue.
    renewed: usize,
}

/// Returns the next expiry of a field in the hash of a key with this hash.
fn next_field(table: &Table<Entry>, hash: KeyHash) -> Option<u64> {
    let next = |entry: &Entry| entry.timed_hash().and_then(TimedHash::next_expiry);
    table.find_where(hash, |entry| next(entry).is_some()).and_then(|entry| next(&entry))
}

/// Prefetches the memory that [`next_field`] reads for these keys. Each step is useful only after the previous one has
/// arrived.
fn prefetch_fields(table: &Table<Entry>, hashes: &[KeyHash]) {
    table.prefetch_coming(&hashes[hashes.len().min(COMING_STEP)..]);
    if let Some(entry) = hashes.get(COMING_STEP).and_then(|&hash| table.peek_candidate(hash)) {
        entry.prefetch_value(Ahead::Value);
    }
}

impl Shard {
    pub(crate) fn note_expiry(&mut self, at_ms: u64, hash: KeyHash) {
        self.expiries.get_or_insert_default().keys.note(at_ms, hash);
        self.tidy_queue();
    }

    /// Notes the next expiry of a field in a key's hash. A note with an earlier time is left as it is.
    pub(crate) fn note_field(&mut self, at_ms: u64, hash: KeyHash) {
        let expiries = self.expiries.get_or_insert_default();
        let FieldQueue { queue, renewed } = &mut **expiries.fields.get_or_insert_default();
        queue.note(at_ms, hash);
        // Renewal looks up every noted key. With no more notes than keys, every note may belong to a different key, and renewal would
        // remove none.
        if queue.len() > self.table.len() && queue.is_stale(*renewed) {
            queue.renew(|hash| next_field(&self.table, hash), |coming| prefetch_fields(&self.table, coming));
            *renewed = queue.len();
        }
    }

    /// The notes of the keys' expiry times. None if no key has had an expiry.
    pub(crate) fn noted_keys(&self) -> Option<&ExpiryQueue> {
        self.expiries.as_ref().map(|expiries| &expiries.keys)
    }

    /// Takes the note of a key that may have expired before `now_ms`.
    pub(crate) fn pop_due_key(&mut self, now_ms: u64) -> Option<Note> {
        self.expiries.as_mut()?.keys.pop_due(now_ms)
    }

    /// Takes the note of a key with fields that may have expired before `now_ms`.
    pub(crate) fn pop_due_field(&mut self, now_ms: u64) -> Option<Note> {
        self.expiries.as_mut()?.fields.as_mut()?.queue.pop_due(now_ms)
    }

    /// Counts the keys that hold hashes with expiring fields. Looks at each of them.
    pub(crate) fn count_timed_hashes(&mut self) -> usize {
        let fields = self.expiries.as_mut().and_then(|expiries| expiries.fields.as_mut());
        let Some(fields) = fields else { return 0 };
        fields.queue.renew(|hash| next_field(&self.table, hash), |coming| prefetch_fields(&self.table, coming));
        fields.renewed = fields.queue.len();
        fields.renewed
    }

    /// Bytes of both queues.
    pub(crate) fn queue_bytes(&self) -> usize {
        let Some(Expiries { keys, fields }) = self.expiries.as_deref() else { return 0 };
        let fields = fields.as_ref().map_or(0, |fields| size_of::<FieldQueue>() + fields.queue.memory_bytes());
        size_of::<Expiries>() + keys.memory_bytes() + fields
    }

    /// Rebuilds the queue with one note per expiring key if it has many more notes than expiring keys.
    pub(crate) fn tidy_queue(&mut self) {
        let Some(expiries) = self.expiries.as_mut().filter(|expiries| expiries.keys.is_stale(self.volatile)) else {
            return;
        };
        let notes = self.table.iter().filter_map(|e| e.expiry().map(|at_ms| Note { at_ms, hash: hash_of(&e) }));
        expiries.keys.rebuild(notes.collect::<Vec<_>>().into_iter());
    }
}

fn hash_of(entry: &Entry) -> KeyHash {
    KeyHash::of(entry.key())
}

/// A lock on its own cache line, against false sharing.
#[derive(Default)]
#[repr(align(64))]
struct PaddedLock(ShardLock);

/// See the module's documentation.
pub struct Keyspace {
    locks: Box<[PaddedLock]>,
    /// Indexed by physical database, then by shard.
    shards: Box<[UnsafeCell<Shard>]>,
    /// The saver of each shard, while a snapshot runs.
    savers: Box<[UnsafeCell<Option<Box<Saver>>>]>,
    /// Maps each database that clients select to its physical database. SWAPDB exchanges two. Changes only alone behind
    /// the gate.
    physical: Box<[AtomicUsize]>,
    /// Indexed by physical database.
    had: Box<[Had]>,
    /// The shards whose keys are incomplete: see [`Keyspace::stage`].
    staged: Occupied,
    gate: Gate,
    reaper: Reaper,
    snapshots: Snapshots,
    /// True if there are several threads, so that locks are needed.
    contended: bool,
    layout: Layout,
}

// SAFETY: the module's invariant makes accesses exclusive, and everything in a shard is `Send`.
unsafe impl Sync for Keyspace {}

/// The kinds of content that a database has had since it was last emptied. A search skips the many shards of a database
/// that had none.
struct Had {
    keys: AtomicBool,
    expiries: AtomicBool,
    /// Fields with an expiry.
    fields: AtomicBool,
    /// The shards that may have keys.
    shards: Occupied,
}

impl Had {
    fn new(shards: usize) -> Had {
        let [keys, expiries, fields] = [(); 3].map(|()| AtomicBool::new(false));
        Had { keys, expiries, fields, shards: Occupied::new(shards) }
    }
}

/// Index of a database's first shard. A command looks it up once.
#[derive(Clone, Copy)]
pub(crate) struct FirstShard(usize);

/// A set of shards, one bit each. Commands with many keys check several times per key that its shard is held.
#[derive(Debug, Default)]
pub struct ShardSet {
    words: Vec<u64>,
}

impl ShardSet {
    /// Replaces the set by the shards of these keys.
    pub fn assign(&mut self, keyspace: &Keyspace, hashes: impl Iterator<Item = KeyHash>) {
        self.words.clear();
        self.words.resize(keyspace.shard_count().div_ceil(64), 0);
        for shard in hashes.map(|hash| keyspace.shard_of(hash)) {
            self.words[shard / 64] |= 1 << (shard % 64);
        }
    }

    #[inline]
    fn contains(&self, shard: usize) -> bool {
        self.words.get(shard / 64).is_some_and(|word| word & 1 << (shard % 64) != 0)
    }

    /// Returns the shards in ascending order.
    fn iter(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            std::iter::successors(Some(word), |left| Some(left & left.wrapping_sub(1)))
                .take_while(|left| *left != 0)
                .map(move |left| 64 * index + left.trailing_zeros() as usize)
        })
    }
}

/// Shards to be locked, in ascending order without duplicates. The ways differ in the cost of [`Locked::holds`].
pub enum Shards<'k> {
    /// One shard.
    One(usize),
    /// Several shards, found by binary search.
    Many(&'k [usize]),
    /// Several shards of a command that checks them often, found by a bit each.
    Set(&'k ShardSet),
    /// Several shards; more may be added later by [`Locked::extend`].
    Growing(Vec<usize>),
}

/// Returns false: the condition of a wait without a limit.
#[must_use]
pub fn never() -> bool {
    false
}

/// The shards that a [`Locked`] holds.
enum Held<'k> {
    /// None. Each shard is locked for its visit, until a wait becomes long and the callback gives up.
    Each(GiveUp<'k>),
    One(usize),
    /// One, without its lock: all other threads are kept out of the gate.
    Own(usize),
    /// Ascending, without duplicates.
    Many(&'k [usize]),
    /// Several, for commands that check their shards often.
    Set(&'k ShardSet),
    /// Like `Many`, but more shards may be added; see [`Locked::extend`].
    Growing(Vec<usize>),
    /// All shards, proven by an [`Alone`].
    All,
}

/// The condition on which a visit of all shards stops early.
#[derive(Clone, Copy)]
struct GiveUp<'k> {
    when: &'k dyn Fn() -> bool,
    /// True if the visit has stopped.
    done: bool,
}

impl GiveUp<'_> {
    /// Locks a shard for its visit. The caller holds no shard. Returns None if an earlier visit, or this wait, was given up.
    #[inline]
    fn lock<'k>(&mut self, keyspace: &'k Keyspace, shard: usize) -> Option<OneVisit<'k>> {
        self.done = self.done || !keyspace.take_unless(shard, &self.when);
        // Not `then_some`: it would build the value in any case, and its drop would unlock a shard that is not held.
        (!self.done).then(|| OneVisit { keyspace, shard })
    }
}

/// A shard that is locked for one visit. It is simpler than a [`Locked`], because a walk through the keyspace makes one for each shard.
struct OneVisit<'k> {
    keyspace: &'k Keyspace,
    shard: usize,
}

impl OneVisit<'_> {
    #[inline]
    fn shard_mut(&mut self, first: FirstShard) -> &mut Shard {
        // SAFETY: the shard is locked, and `self` is borrowed mutably, so no other reference to the shard exists.
        unsafe { &mut *self.keyspace.cell(first, self.shard).get() }
    }
}

impl Drop for OneVisit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.keyspace.give(self.shard);
    }
}

/// The right to touch some shards. Dropping it releases them.
pub struct Locked<'k> {
    keyspace: &'k Keyspace,
    held: Held<'k>,
}

impl Keyspace {
    /// Returns an empty keyspace of `databases` databases for `threads` worker threads, numbered from 0. The next
    /// number belongs to a thread that loads data.
    #[must_use]
    pub fn new(databases: usize, threads: usize) -> Keyspace {
        Keyspace::with_layout(databases, threads, Layout::Threads)
    }

    /// Like [`Keyspace::new`], with this layout.
    #[must_use]
    pub fn with_layout(databases: usize, threads: usize, layout: Layout) -> Keyspace {
        // Unit tests share a process with tests that hash in another way. Any upper bits serve as the slot there.
        let tells_slots = cfg!(test) || hash::hashes_by_slot();
        assert!(layout == Layout::Threads || tells_slots, "hashes don't tell the slots");
        let threads = threads.max(1);
        let count = match layout {
            Layout::Threads => shards_of(databases, threads),
            Layout::Slots => SLOTS,
        };
        Keyspace {
            locks: (0..count).map(|_| PaddedLock::default()).collect(),
            shards: (0..count * databases).map(|_| UnsafeCell::default()).collect(),
            savers: (0..count).map(|_| UnsafeCell::default()).collect(),
            physical: (0..databases).map(AtomicUsize::new).collect(),
            had: (0..databases).map(|_| Had::new(count)).collect(),
            staged: Occupied::new(count),
            // The additional places are for the thread that loads data, and for the one that sends moving slots.
            gate: Gate::new(threads + 2),
            reaper: Reaper::default(),
            snapshots: Snapshots::default(),
            contended: threads > 1,
            layout,
        }
    }

    /// Returns the rule that assigns keys to shards.
    #[inline]
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The gate that worker threads pass.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The thread that frees large values.
    #[must_use]
    pub fn reaper(&self) -> &Reaper {
        &self.reaper
    }

    /// The running snapshot, and the state that earlier ones left.
    #[inline]
    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// Number of databases.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.physical.len()
    }

    /// Number of shards of each database: a power of two.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.locks.len()
    }

    /// Returns the shard of keys with this hash.
    #[inline]
    #[must_use]
    pub fn shard_of(&self, hash: KeyHash) -> usize {
        hash.shard(self.locks.len())
    }

    /// Locks a shard. Returns false if the wait becomes long and `give_up` returns true.
    #[inline]
    fn take_unless(&self, shard: usize, give_up: &impl Fn() -> bool) -> bool {
        !self.contended || self.locks[shard].0.lock_unless(give_up)
    }

    /// Locks shards in ascending order. Locks none and returns false if a wait becomes long and `give_up` returns true.
    fn take_all_unless(&self, shards: &[usize], give_up: &impl Fn() -> bool) -> bool {
        // All threads lock in ascending order, which rules out deadlocks.
        debug_assert!(shards.is_sorted_by(|a, b| a < b));
        let taken = shards.iter().take_while(|&&shard| self.take_unless(shard, give_up)).count();
        if taken < shards.len() {
            shards[..taken].iter().rev().for_each(|&shard| self.give(shard));
        }
        taken == shards.len()
    }

    /// Like [`Keyspace::take_all_unless`], for a set.
    fn take_set_unless(&self, set: &ShardSet, give_up: &impl Fn() -> bool) -> bool {
        if self.contended
            && let Some(refused) = set.iter().find(|&shard| !self.take_unless(shard, give_up))
        {
            set.iter().take_while(|&shard| shard < refused).for_each(|shard| self.give(shard));
            return false;
        }
        true
    }

    #[inline]
    fn give(&self, shard: usize) {
        if self.contended {
            self.locks[shard].0.unlock();
        }
    }

    /// Locks shards. Returns `None`, with none of them locked, if a wait becomes long and `give_up` returns true; see
    /// [`never()`]. The caller is inside the gate and holds no shard.
    #[inline]
    #[must_use]
    pub fn lock<'k>(&'k self, shards: Shards<'k>, give_up: impl Fn() -> bool) -> Option<Locked<'k>> {
        // Not `then_some`: it would build the `Locked` in any case, and its drop would unlock shards that are not held.
        match shards {
            Shards::One(shard) => {
                self.take_unless(shard, &give_up).then(|| Locked { keyspace: self, held: Held::One(shard) })
            }
            Shards::Many(shards) => {
                self.take_all_unless(shards, &give_up).then(|| Locked { keyspace: self, held: Held::Many(shards) })
            }
            Shards::Set(set) => {
                self.take_set_unless(set, &give_up).then(|| Locked { keyspace: self, held: Held::Set(set) })
            }
            Shards::Growing(shards) => {
                self.take_all_unless(&shards, &give_up).then(|| Locked { keyspace: self, held: Held::Growing(shards) })
            }
        }
    }

    /// Locks one shard, or returns `None` if it is taken. The caller is inside the gate and holds no shard.
    #[inline]
    #[must_use]
    pub fn try_lock_one(&self, shard: usize) -> Option<Locked<'_>> {
        let taken = !self.contended || self.locks[shard].0.try_lock();
        // Not `then_some`: it would build the `Locked` in any case, and its drop would unlock a shard that is not held.
        taken.then(|| Locked { keyspace: self, held: Held::One(shard) })
    }

    /// Yields a shard to another thread that has waited for it longer than a command takes. The locks are unfair: a
    /// thread that locks the same shard repeatedly calls this in between, while it holds no shard.
    pub fn give_way(&self, shard: usize) {
        if self.contended {
            self.locks[shard].0.give_way();
        }
    }

    /// Returns all shards, if this thread is the only one or keeps all others out of this keyspace's gate. The caller
    /// holds no shard.
    #[inline]
    #[must_use]
    pub fn own<'k>(&'k self, inside: Option<&'k Inside<'_>>) -> Option<Locked<'k>> {
        let is_only = !self.contended || inside.is_some_and(Inside::keeps_out);
        is_only.then(|| Locked { keyspace: self, held: Held::All })
    }

    /// Returns one shard, if this thread keeps all others out of this keyspace's gate. The caller holds no shard.
    #[inline]
    #[must_use]
    pub fn own_one<'k>(&'k self, shard: usize, inside: Option<&'k Inside<'_>>) -> Option<Locked<'k>> {
        inside.is_some_and(Inside::keeps_out).then(|| Locked { keyspace: self, held: Held::Own(shard) })
    }

    /// Returns a `Locked` that locks each shard for its visit only. When a wait becomes long and `give_up` returns true,
    /// the remaining shards are not visited, and [`Locked::gave_up`] returns true. The caller is inside the gate and
    /// holds no shard.
    #[must_use]
    pub fn lock_each<'k>(&'k self, give_up: &'k dyn Fn() -> bool) -> Locked<'k> {
        Locked { keyspace: self, held: Held::Each(GiveUp { when: give_up, done: false }) }
    }

    /// Returns all shards, for a thread that is alone behind this keyspace's gate.
    #[must_use]
    pub fn all<'k>(&'k self, _alone: &'k Alone<'k>) -> Locked<'k> {
        Locked { keyspace: self, held: Held::All }
    }

    /// Returns the physical number of a database. It does not change while the caller is inside the gate.
    #[inline]
    pub(crate) fn physical(&self, database: usize) -> usize {
        self.physical[database].load(Ordering::Relaxed)
    }

    /// Returns true if a database has had a key since it was last emptied. It may miss a key that another thread is
    /// adding.
    #[must_use]
    pub fn had_keys(&self, database: usize) -> bool {
        self.had[self.physical(database)].keys.load(Ordering::Acquire)
    }

    /// Returns true if a database has had keys with an expiry, or fields with one, since it was last emptied.
    #[must_use]
    pub fn had_expiries(&self, database: usize) -> bool {
        self.had[self.physical(database)].expiries.load(Ordering::Acquire)
    }

    /// Returns true if any database has had fields with an expiry since it was last emptied.
    #[must_use]
    pub fn had_timed_fields(&self) -> bool {
        self.had.iter().any(|had| had.fields.load(Ordering::Acquire))
    }

    /// Marks a shard of a database as one that has keys. Called at least for its first key. The caller holds the shard.
    #[inline]
    pub(crate) fn mark_keys(&self, database: usize, shard: usize) {
        let had = &self.had[self.physical(database)];
        mark(&had.keys);
        had.shards.mark(shard);
    }

    /// Marks a shard of a database as one without keys. Returns true if it was marked as one that has keys. The caller holds the shard.
    fn note_vacant(&self, first: FirstShard, shard: usize) -> bool {
        self.had[first.0 / self.shard_count()].shards.clear(shard)
    }

    /// Frees the buckets of a shard without keys, and the notes of removed keys. The caller holds the shard.
    #[inline]
    fn free_if_vacant(&self, first: FirstShard, shard: usize, of_database: &mut Shard) {
        if of_database.table.is_empty() && self.note_vacant(first, shard) {
            *of_database = Shard::default();
        }
    }

    /// Marks a database as one that has keys with an expiry.
    #[inline]
    pub(crate) fn mark_expiries(&self, database: usize) {
        mark(&self.had[self.physical(database)].expiries);
    }

    /// Marks a database as one that has fields with an expiry.
    pub(crate) fn mark_timed_fields(&self, database: usize) {
        mark(&self.had[self.physical(database)].fields);
        self.mark_expiries(database);
    }

    /// Marks a database as empty. The caller holds all of it.
    pub(crate) fn mark_emptied(&self, database: usize) {
        let Had { keys, expiries, fields, shards: _ } = &self.had[self.physical(database)];
        [keys, expiries, fields].into_iter().for_each(|had| had.store(false, Ordering::Release));
    }

    /// Returns the index of a database's first shard. It does not change while the caller is inside the gate.
    #[inline]
    pub(crate) fn first_shard(&self, database: usize) -> FirstShard {
        FirstShard(self.physical(database) * self.locks.len())
    }

    #[inline]
    fn cell(&self, first: FirstShard, shard: usize) -> &UnsafeCell<Shard> {
        &self.shards[first.0 + shard]
    }
}

/// Returns the number of shards of each database: a power of two.
fn shards_of(databases: usize, threads: usize) -> usize {
    let least = threads.saturating_mul(SHARDS_ALONE);
    let wanted = if threads == 1 { least } else { threads.saturating_mul(SHARDS_PER_THREAD) };
    wanted.min(SHARDS_IN_ALL / databases.max(1)).max(least).min(SHARDS_MAX).next_power_of_two()
}

/// Sets a flag, and writes only the first time, because all threads read the cache line.
#[inline]
fn mark(flag: &AtomicBool) {
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Release);
    }
}

impl<'k> Locked<'k> {
    /// The keyspace.
    #[must_use]
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// Returns true if the shard may be touched.
    #[inline]
    #[must_use]
    pub fn holds(&self, shard: usize) -> bool {
        match self.held {
            Held::One(one) | Held::Own(one) => one == shard,
            Held::Many(many) => many.binary_search(&shard).is_ok(),
            Held::Set(set) => set.contains(shard),
            Held::Growing(ref many) => many.binary_search(&shard).is_ok(),
            Held::All => true,
            Held::Each(_) => false,
        }
    }

    /// Adds a shard to the held ones, if they may grow and no deadlock threatens. Returns true if the shard is held
    /// now. A wait that becomes long ends when `give_up` returns true.
    ///
    /// Deadlocks are impossible: a thread that waits without a limit, here or elsewhere, waits for a shard above all
    /// that it holds, so no cycle of these waits is possible. A wait for a lower shard could close a cycle, so it has a
    /// limit.
    pub fn extend(&mut self, shard: usize, wait_max: WaitMax, give_up: impl Fn() -> bool) -> bool {
        if self.holds(shard) {
            return true;
        }
        let Held::Growing(held) = &mut self.held else { return false };
        let at = held.partition_point(|&h| h < shard);
        if at == held.len() {
            if !self.keyspace.take_unless(shard, &give_up) {
                return false;
            }
        } else if !self.keyspace.locks[shard].0.try_lock_for(wait_max.tries()) {
            return false;
        }
        held.insert(at, shard);
        true
    }

    /// Releases everything, and returns the shards that were held, if they could grow.
    #[must_use]
    pub fn into_shards(mut self) -> Vec<usize> {
        match std::mem::replace(&mut self.held, Held::Many(&[])) {
            Held::Growing(shards) => {
                shards.iter().rev().for_each(|&shard| self.keyspace.give(shard));
                shards
            }
            held => {
                self.held = held;
                Vec::new()
            }
        }
    }

    /// Returns true if everything may be touched.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        matches!(self.held, Held::All)
    }

    /// Exchanges two databases. Every connection that has selected one of them sees the other's keys from now on.
    /// Everything must be held.
    pub fn swap(&mut self, a: usize, b: usize) {
        assert!(self.holds_all(), "databases are exchanged alone");
        let physical = &self.keyspace.physical;
        let (at_a, at_b) = (self.keyspace.physical(a), self.keyspace.physical(b));
        physical[a].store(at_b, Ordering::Relaxed);
        physical[b].store(at_a, Ordering::Relaxed);
    }

    /// Exchanges all databases with those of another keyspace, which was made for the same number of databases and
    /// threads: the data loaded there replaces the data here. Everything must be held. Returns false and exchanges
    /// nothing if a snapshot runs here that is not cancelled, if one runs there, or if the keyspaces have different
    /// sizes.
    pub fn exchange(&mut self, other: &mut Keyspace) -> bool {
        assert!(self.holds_all(), "keyspaces are exchanged alone");
        let keyspace = self.keyspace;
        let is_alike = other.shard_count() == keyspace.shard_count()
            && other.layout == keyspace.layout
            && other.databases() == keyspace.databases();
        if !is_alike || keyspace.snapshots.saves() || other.snapshots.runs() {
            return false;
        }
        for database in 0..keyspace.databases() {
            let (ours, theirs) = (keyspace.first_shard(database), other.first_shard(database));
            for shard in 0..keyspace.shard_count() {
                // Entries made while no snapshot ran have the mark 0, which is valid in any keyspace.
                std::mem::swap(self.shard_mut(ours, shard), other.shards[theirs.0 + shard].get_mut());
            }
            let (ours, theirs) = (&keyspace.had[keyspace.physical(database)], &other.had[other.physical(database)]);
            ours.shards.exchange(&theirs.shards);
            for (ours, theirs) in
                [(&ours.keys, &theirs.keys), (&ours.expiries, &theirs.expiries), (&ours.fields, &theirs.fields)]
            {
                let had = ours.load(Ordering::Acquire);
                ours.store(theirs.load(Ordering::Acquire), Ordering::Release);
                theirs.store(had, Ordering::Release);
            }
        }
        true
    }

    #[inline]
    pub(crate) fn shard(&self, first: FirstShard, shard: usize) -> &Shard {
        self.check(shard);
        // SAFETY: the shard is held, and `self` is borrowed, so the shard does not change meanwhile.
        unsafe { &*self.keyspace.cell(first, shard).get() }
    }

    /// Prefetches the buckets of these keys, then their entries, for commands that look up many keys. Skips keys of
    /// shards that are not held.
    #[inline]
    pub fn prefetch(&self, database: usize, hashes: impl Iterator<Item = KeyHash> + Clone) {
        let first = self.keyspace.first_shard(database);
        let held = hashes.map(|hash| (hash, self.keyspace.shard_of(hash))).filter(|(_, shard)| self.holds(*shard));
        held.clone().for_each(|(hash, shard)| self.shard(first, shard).table.prefetch_bucket(hash));
        held.for_each(|(hash, shard)| _ = self.shard(first, shard).table.prefetch_record(hash));
    }

    #[inline]
    pub(crate) fn shard_mut(&mut self, first: FirstShard, shard: usize) -> &mut Shard {
        self.check(shard);
        // SAFETY: the shard is held, and `self` is borrowed mutably, so no other reference to the shard exists.
        unsafe { &mut *self.keyspace.cell(first, shard).get() }
    }

    /// Returns a shard of a database, and its saver if a snapshot runs.
    pub(crate) fn with_saver(&mut self, first: FirstShard, shard: usize) -> (&mut Shard, Option<Saving<'_>>) {
        self.check(shard);
        // SAFETY: the shard is held, and its saver with it, and `self` is borrowed mutably, so no other reference to
        // either exists. They are in different cells.
        let (of_database, saver) =
            unsafe { (&mut *self.keyspace.cell(first, shard).get(), &mut *self.keyspace.savers[shard].get()) };
        let physical = || first.0 / self.keyspace.shard_count();
        (of_database, saver.as_deref_mut().map(|saver| Saving::new(saver, physical())))
    }

    /// Like [`Locked::with_saver`], but takes the database's physical number.
    pub(crate) fn with_saver_of(&mut self, physical: usize, shard: usize) -> (&mut Shard, Option<Saving<'_>>) {
        self.with_saver(FirstShard(physical * self.keyspace.shard_count()), shard)
    }

    /// Returns the saver of a shard of all databases.
    pub(crate) fn saver_mut(&mut self, shard: usize) -> &mut Option<Box<Saver>> {
        self.check(shard);
        // SAFETY: the shard is held, and its saver with it, and `self` is borrowed mutably.
        unsafe { &mut *self.keyspace.savers[shard].get() }
    }

    /// Visits one shard, and locks it for the visit if no shard is held. Returns None if it cannot be locked.
    #[inline]
    pub(crate) fn visit<T>(&mut self, database: usize, shard: usize, visit: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        let keyspace = self.keyspace;
        let first = keyspace.first_shard(database);
        let visit_in = |of_database: &mut Shard| {
            let visited = visit(of_database);
            keyspace.free_if_vacant(first, shard, of_database);
            visited
        };
        let Held::Each(give_up) = &mut self.held else { return Some(visit_in(self.shard_mut(first, shard))) };
        let mut alone = give_up.lock(keyspace, shard)?;
        Some(visit_in(alone.shard_mut(first)))
    }

    /// Like [`Locked::visit`], but also passes the shard's saver if a snapshot runs.
    pub(crate) fn visit_with_saver<T>(
        &mut self,
        database: usize,
        shard: usize,
        visit: impl FnOnce(&mut Shard, Option<Saving<'_>>) -> T,
    ) -> Option<T> {
        let keyspace = self.keyspace;
        let first = keyspace.first_shard(database);
        let visit_in = |locked: &mut Locked<'_>| {
            let (of_database, saving) = locked.with_saver(first, shard);
            let visited = visit(of_database, saving);
            keyspace.free_if_vacant(first, shard, of_database);
            visited
        };
        let Held::Each(give_up) = &mut self.held else { return Some(visit_in(self)) };
        let _alone = give_up.lock(keyspace, shard)?;
        Some(visit_in(&mut Locked { keyspace, held: Held::Own(shard) }))
    }

    /// Returns true if a shard was not visited, so that the result is incomplete.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        matches!(self.held, Held::Each(GiveUp { done: true, .. }))
    }

    /// Panics if the shard is not held. A command that reaches for an undeclared key has a defective entry in the table
    /// of commands, and going on would be a data race.
    #[inline(always)]
    fn check(&self, shard: usize) {
        // Nearly all commands have one key. The other cases are out of line, because they would take space at every
        // access.
        if !matches!(self.held, Held::One(held) | Held::Own(held) if held == shard) {
            self.check_all(shard);
        }
    }

    #[inline(never)]
    fn check_all(&self, shard: usize) {
        assert!(self.holds(shard), "a command touched shard {shard}, which its keys do not name");
    }
}

impl Drop for Locked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.held {
            Held::One(shard) => self.keyspace.give(shard),
            Held::Many(shards) => shards.iter().rev().for_each(|&shard| self.keyspace.give(shard)),
            Held::Set(shards) => shards.iter().for_each(|shard| self.keyspace.give(shard)),
            Held::Growing(ref shards) => shards.iter().rev().for_each(|&shard| self.keyspace.give(shard)),
            Held::Each(_) | Held::Own(_) | Held::All => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Access, Clock, Db, SideEffects};
    use crate::expiry::Ttl;

    #[test]
    #[cfg_attr(miri, ignore = "there are fewer shards, and nothing here is unsafe")]
    fn threads_have_many_shards_unless_there_are_many_databases() {
        let cases = [(16, 1, 64), (16, 2, 1024), (16, 3, 2048), (16, 64, 1 << 14), (100, 16, 4096), (10_000, 2, 128)];
        for (databases, threads, shards) in cases {
            assert_eq!(shards_of(databases, threads), shards, "{databases} databases, {threads} threads");
        }
        assert_eq!(shards_of(usize::MAX, usize::MAX), SHARDS_MAX);
    }

    #[test]
    fn keyspaces_exchange_their_databases() {
        let (ours, mut theirs) = (Keyspace::new(3, 1), Keyspace::new(3, 1));
        let clock =
            Clock { now_ms: 1, due_ms: 1, uptime_s: 1, access: Access::Noted, frequency: None, keeps_due: false };
        let put = |keyspace: &Keyspace, database: usize, key: &[u8], expires: bool| {
            let alone = keyspace.gate().close();
            let mut locked = keyspace.all(&alone);
            let mut observed = SideEffects::default();
            let mut db = Db::new(&mut locked, database, &clock, &mut observed);
            db.set_string(Key::new(key), key, Ttl::Clear);
            if expires {
                db.set_expiry(Key::new(key), Some(1 << 40));
            }
        };
        let keys = |keyspace: &Keyspace| -> Vec<(usize, usize, bool, bool)> {
            let alone = keyspace.gate().close();
            let mut locked = keyspace.all(&alone);
            let mut sizes = |database| Db::new(&mut locked, database, &clock, &mut SideEffects::default()).sizes();
            let flags = |database| (keyspace.had_keys(database), keyspace.had_expiries(database));
            (0..3).map(|database| (sizes(database), flags(database))).map(|(s, f)| (s.0, s.1, f.0, f.1)).collect()
        };
        put(&ours, 0, b"a", true);
        put(&ours, 0, b"b", false);
        put(&theirs, 1, b"c", true);
        put(&theirs, 2, b"d", false);
        // Database numbers are those that clients select.
        ours.all(&ours.gate().close()).swap(0, 2);
        assert!(ours.all(&ours.gate().close()).exchange(&mut theirs));
        assert_eq!(keys(&ours), [(0, 0, false, false), (1, 1, true, true), (1, 0, true, false)]);
        assert_eq!(keys(&theirs), [(0, 0, false, false), (0, 0, false, false), (2, 1, true, true)]);
        assert!(!ours.all(&ours.gate().close()).exchange(&mut Keyspace::new(2, 1)));
    }

    #[test]
    fn a_set_holds_its_shards_and_releases_them() {
        let keyspace = Keyspace::new(1, 2);
        assert_eq!(keyspace.shard_count(), 1024);
        let hash_in = KeyHash::in_shard;
        let mut set = ShardSet::default();
        // A thousand shards take Miri a minute.
        let looked_at = || (0..1024).step_by(if cfg!(miri) { 20 } else { 1 });
        let many: Vec<_> = looked_at().rev().collect();
        for wanted in [&[5_usize][..], &[0, 1023], &[63, 64, 65, 64, 63, 300], &many] {
            set.assign(&keyspace, wanted.iter().map(|shard| hash_in(*shard)));
            let mut sorted = wanted.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(set.iter().collect::<Vec<_>>(), sorted);
            let locked = keyspace.lock(Shards::Set(&set), || true).unwrap();
            for shard in looked_at() {
                let is_held = sorted.contains(&shard);
                assert_eq!((locked.holds(shard), keyspace.locks[shard].0.try_lock()), (is_held, !is_held), "{shard}");
                if !is_held {
                    keyspace.give(shard);
                }
            }
            drop(locked);
            assert!(looked_at().all(|shard| keyspace.locks[shard].0.try_lock()));
            looked_at().for_each(|shard| keyspace.give(shard));
        }
        // If one shard cannot be locked, none is kept.
        let other = keyspace.lock(Shards::One(300), never).unwrap();
        set.assign(&keyspace, [7, 300, 400].into_iter().map(hash_in));
        assert!(keyspace.lock(Shards::Set(&set), || true).is_none());
        drop(other);
        assert!(looked_at().all(|shard| keyspace.locks[shard].0.try_lock()));
    }
}
