//! The keyspace: every database's keys, cut into shards by hash, each shard behind a small lock.
//!
//! Reading and writing need a [`Locked`], which holds one shard, several, or all (alone behind the gate). A
//! [`Db`](crate::db::Db) is the view of one database through it; what commands do to keys is written on `Db`, in
//! `db.rs`.
//!
//! `unsafe` because tables are reached through locks that are taken before the command runs, not around each access.
//! The invariant: **a table is touched only through a `Locked` that holds its shard; a `Locked` is either the only one
//! that holds a shard, by its lock, or the only one at all, by the gate.** `Locked` checks this at every access. A
//! thread that keeps all others out of the gate takes no locks; it still has only one `Locked` at a time. The same holds
//! for what saves a shard for a snapshot.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::entry::Entry;
use crate::expiry::{ExpiryQueue, Note};
use crate::hash::{KeyHash, SHARD_BITS_MAX};
use crate::prefetch::{Ahead, prefetch_to_write};
use crate::reaper::Reaper;
use crate::snapshot::{Saver, Saving, Snapshots};
use crate::sync::{Alone, Gate, Inside, ShardLock};
use crate::table::{COMING_STEP, Table};
use crate::types::timed_hash::TimedHash;

/// Shards of an only thread, which never waits for one: they part what takes long into steps. Fewer under Miri, which is slow.
const SHARDS_ALONE: usize = if cfg!(miri) { 8 } else { 64 };
/// Shards of each of several threads. Between asking for a key's lock and taking it, a thread goes through some 64
/// keys, and each other thread through as many: with so many shards one lock in eight has gone to another core by then,
/// with 64 two in three.
const SHARDS_PER_THREAD: usize = 512;
/// Shards of all databases together for which threads have as many; they take about 30 MB. Where there are more
/// databases, threads have fewer, but no fewer than an only thread has.
const SHARDS_IN_ALL: usize = 1 << 18;
/// The most shards; a cursor of SCAN carries their number in its low bits.
const SHARDS_MAX: usize = 1 << SHARD_BITS_MAX;

/// How long a thread that holds higher shards waits for a lower one. Such a wait could close a circle (a deadlock).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Some milliseconds, long enough for ordinary commands to release it: for a thread that can begin anew.
    Short,
    /// Some hundred milliseconds, long enough for long commands, too (SUNIONSTORE of a million members): for a thread
    /// that would fail otherwise. A circle of waits lasts that long.
    Long,
}

impl Patience {
    /// How often it is looked whether the shard is free: see `sync::Backoff`.
    fn tries(self) -> u32 {
        match self {
            Patience::Short => 300,
            Patience::Long => 3000,
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

/// One shard of one database.
#[derive(Default)]
pub struct Shard {
    pub(crate) table: Table<Entry>,
    pub(crate) queue: ExpiryQueue,
    /// Keys that have an expiry.
    pub(crate) volatile: usize,
    /// When fields of hashes expire, once there has been one that does.
    pub(crate) fields: Option<Box<FieldQueue>>,
}

/// Which keys of a shard hold hashes with fields that may have expired: a queue as that of keys. Every key whose hash has fields that
/// expire has at least one note whose time isn't later than theirs.
#[derive(Default)]
pub(crate) struct FieldQueue {
    queue: ExpiryQueue,
    /// Notes that were left when the queue was last renewed.
    renewed: usize,
}

/// When the hash of a key with this hash has fields that expire next.
fn next_field(table: &Table<Entry>, hash: KeyHash) -> Option<u64> {
    let next = |entry: &Entry| entry.timed_hash().and_then(TimedHash::next_expiry);
    table.find_where(hash, |entry| next(entry).is_some()).and_then(|entry| next(&entry))
}

/// Asks for what [`next_field`] will read of the keys with these hashes: each step is worthwhile once the one before has arrived.
fn prefetch_fields(table: &Table<Entry>, hashes: &[KeyHash]) {
    table.prefetch_coming(&hashes[hashes.len().min(COMING_STEP)..]);
    if let Some(entry) = hashes.get(COMING_STEP).and_then(|&hash| table.peek_candidate(hash)) {
        entry.prefetch_value(Ahead::Value);
    }
}

impl Shard {
    pub(crate) fn note_expiry(&mut self, at_ms: u64, hash: KeyHash) {
        self.queue.note(at_ms, hash);
        self.tidy_queue();
    }

    /// Notes when the next field of a key's hash expires. A note at an earlier time serves as well.
    pub(crate) fn note_field(&mut self, at_ms: u64, hash: KeyHash) {
        let FieldQueue { queue, renewed } = &mut **self.fields.get_or_insert_default();
        queue.note(at_ms, hash);
        // To renew it takes a look at each key that it has. As long as each may hold such a hash, that would be in vain.
        if queue.len() > self.table.len() && queue.is_stale(*renewed) {
            queue.renew(|hash| next_field(&self.table, hash), |coming| prefetch_fields(&self.table, coming));
            *renewed = queue.len();
        }
    }

    /// Takes the note of a key whose hash may have fields that expired before `now_ms`.
    pub(crate) fn pop_due_field(&mut self, now_ms: u64) -> Option<Note> {
        self.fields.as_mut()?.queue.pop_due(now_ms)
    }

    /// How many keys hold hashes with fields that expire. Looks at each of them.
    pub(crate) fn count_timed_hashes(&mut self) -> usize {
        let Some(fields) = &mut self.fields else { return 0 };
        fields.queue.renew(|hash| next_field(&self.table, hash), |coming| prefetch_fields(&self.table, coming));
        fields.renewed = fields.queue.len();
        fields.renewed
    }

    /// Bytes of the queues.
    pub(crate) fn queue_bytes(&self) -> usize {
        let fields = self.fields.as_ref().map_or(0, |fields| size_of::<FieldQueue>() + fields.queue.memory_bytes());
        self.queue.memory_bytes() + fields
    }

    /// Has as many notes as keys that expire, if there are far more.
    pub(crate) fn tidy_queue(&mut self) {
        if self.queue.is_stale(self.volatile) {
            let notes = self.table.iter().filter_map(|e| e.expiry().map(|at_ms| Note { at_ms, hash: hash_of(&e) }));
            self.queue.rebuild(notes.collect::<Vec<_>>().into_iter());
        }
    }
}

fn hash_of(entry: &Entry) -> KeyHash {
    KeyHash::of(entry.key())
}

/// A lock on a cache line of its own, against false sharing.
#[derive(Default)]
#[repr(align(64))]
struct PaddedLock(ShardLock);

/// See the module's documentation.
pub struct Keyspace {
    locks: Box<[PaddedLock]>,
    /// By physical database, then by shard.
    shards: Box<[UnsafeCell<Shard>]>,
    /// By shard: what saves it for a snapshot, while one runs.
    savers: Box<[UnsafeCell<Option<Box<Saver>>>]>,
    /// The physical database of each that clients select: SWAPDB exchanges two. Changed only alone behind the gate.
    physical: Box<[AtomicUsize]>,
    /// By physical database.
    had: Box<[Had]>,
    gate: Gate,
    reaper: Reaper,
    snapshots: Snapshots,
    /// Whether there is more than one thread, so that locks are needed at all.
    contended: bool,
}

// SAFETY: see the module's invariant; everything in a shard is Send.
unsafe impl Sync for Keyspace {}

/// What a database has had since it was last emptied. The many shards of a database that had nothing aren't searched.
#[derive(Default)]
struct Had {
    keys: AtomicBool,
    expiries: AtomicBool,
    /// Fields of hashes that expire.
    fields: AtomicBool,
}

/// Where the shards of a database begin: looked up once for all that a command does there.
#[derive(Clone, Copy)]
pub(crate) struct FirstShard(usize);

/// A set of shards, a bit each. A command with many keys asks for each of them several times whether its shard is held.
#[derive(Debug, Default)]
pub struct ShardSet {
    words: Vec<u64>,
}

impl ShardSet {
    /// Makes it the set of the shards of these keys.
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

    /// The shards, ascending.
    fn iter(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            std::iter::successors(Some(word), |left| Some(left & left.wrapping_sub(1)))
                .take_while(|left| *left != 0)
                .map(move |left| 64 * index + left.trailing_zeros() as usize)
        })
    }
}

/// Which shards a [`Locked`] holds.
enum Held<'k> {
    /// None; shards are locked one at a time as they are visited, until a wait becomes long and this says so.
    Each(GiveUp<'k>),
    One(usize),
    /// One, without its lock: all others are kept out of the gate.
    Own(usize),
    /// Ascending, without duplicates.
    Many(&'k [usize]),
    /// Some, that are asked for often.
    Set(&'k ShardSet),
    /// As `Many`, and more may come; see [`Locked::extend`].
    Growing(Vec<usize>),
    /// Everything, proven by an [`Alone`].
    All,
}

/// When a visit of all shards ends in its midst.
#[derive(Clone, Copy)]
struct GiveUp<'k> {
    when: &'k dyn Fn() -> bool,
    /// Whether it has.
    done: bool,
}

/// The right to touch some shards. Dropping it gives the right back.
pub struct Locked<'k> {
    keyspace: &'k Keyspace,
    held: Held<'k>,
}

impl Keyspace {
    /// An empty keyspace of `databases` databases for `threads` worker threads, numbered from 0, and one with the next number that
    /// loads data.
    #[must_use]
    pub fn new(databases: usize, threads: usize) -> Keyspace {
        let threads = threads.max(1);
        let count = shards_of(databases, threads);
        Keyspace {
            locks: (0..count).map(|_| PaddedLock::default()).collect(),
            shards: (0..count * databases).map(|_| UnsafeCell::default()).collect(),
            savers: (0..count).map(|_| UnsafeCell::default()).collect(),
            physical: (0..databases).map(AtomicUsize::new).collect(),
            had: (0..databases).map(|_| Had::default()).collect(),
            // One place more, for a thread that loads data.
            gate: Gate::new(threads + 1),
            reaper: Reaper::default(),
            snapshots: Snapshots::default(),
            contended: threads > 1,
        }
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

    /// What is known of the snapshot that runs, and of those before.
    #[inline]
    pub(crate) fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }

    /// How many databases there are.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.physical.len()
    }

    /// How many shards each database has: a power of two.
    #[must_use]
    pub fn shard_count(&self) -> usize {
        self.locks.len()
    }

    /// The shard that keys of this hash live in.
    #[inline]
    #[must_use]
    pub fn shard_of(&self, hash: KeyHash) -> usize {
        hash.shard(self.locks.len())
    }

    #[inline]
    fn take(&self, shard: usize) {
        if self.contended {
            self.locks[shard].0.lock();
        }
    }

    /// Takes a shard, unless the wait becomes long and `give_up` says so.
    #[inline]
    fn take_unless(&self, shard: usize, give_up: &impl Fn() -> bool) -> bool {
        !self.contended || self.locks[shard].0.lock_unless(give_up)
    }

    /// Takes shards in ascending order; none of them, if the wait becomes long and `give_up` says so.
    fn take_all_unless(&self, shards: &[usize], give_up: &impl Fn() -> bool) -> bool {
        let taken = shards.iter().take_while(|&&shard| self.take_unless(shard, give_up)).count();
        if taken < shards.len() {
            shards[..taken].iter().rev().for_each(|&shard| self.give(shard));
        }
        taken == shards.len()
    }

    #[inline]
    fn give(&self, shard: usize) {
        if self.contended {
            self.locks[shard].0.unlock();
        }
    }

    /// Locks one shard. The caller is inside the gate and holds no shard.
    #[inline]
    #[must_use]
    pub fn lock_one(&self, shard: usize) -> Locked<'_> {
        self.take(shard);
        Locked { keyspace: self, held: Held::One(shard) }
    }

    /// Locks several shards, given in ascending order without duplicates. The caller is inside the gate and holds none.
    #[must_use]
    pub fn lock_many<'k>(&'k self, shards: &'k [usize]) -> Locked<'k> {
        debug_assert!(shards.is_sorted_by(|a, b| a < b));
        // All threads lock in ascending order: that rules a deadlock out.
        shards.iter().for_each(|&shard| self.take(shard));
        Locked { keyspace: self, held: Held::Many(shards) }
    }

    /// As [`Keyspace::lock_one`], if the shard is free at this moment.
    #[inline]
    #[must_use]
    pub fn try_lock_one(&self, shard: usize) -> Option<Locked<'_>> {
        let taken = !self.contended || self.locks[shard].0.try_lock();
        // Not `then_some`: what is not to be held must not be dropped.
        taken.then(|| Locked { keyspace: self, held: Held::One(shard) })
    }

    /// Lets another thread have a shard that it has waited for longer than a command takes. The locks are unfair: a thread that takes a shard
    /// again and again calls this in between, when it holds none.
    pub fn give_way(&self, shard: usize) {
        if self.contended {
            self.locks[shard].0.give_way();
        }
    }

    /// As [`Keyspace::lock_one`], unless the wait becomes long and `give_up` says so.
    #[inline]
    #[must_use]
    pub fn lock_one_unless(&self, shard: usize, give_up: impl Fn() -> bool) -> Option<Locked<'_>> {
        // Not `then_some`: what is not to be held must not be dropped.
        self.take_unless(shard, &give_up).then(|| Locked { keyspace: self, held: Held::One(shard) })
    }

    /// As [`Keyspace::lock_many`], unless the wait becomes long and `give_up` says so.
    #[must_use]
    pub fn lock_many_unless<'k>(&'k self, shards: &'k [usize], give_up: impl Fn() -> bool) -> Option<Locked<'k>> {
        debug_assert!(shards.is_sorted_by(|a, b| a < b));
        self.take_all_unless(shards, &give_up).then(|| Locked { keyspace: self, held: Held::Many(shards) })
    }

    /// As [`Keyspace::lock_many_unless`], for the commands with the most keys.
    #[inline]
    #[must_use]
    pub fn lock_set_unless<'k>(&'k self, shards: &'k ShardSet, give_up: impl Fn() -> bool) -> Option<Locked<'k>> {
        if self.contended
            && let Some(refused) = shards.iter().find(|&shard| !self.take_unless(shard, &give_up))
        {
            shards.iter().take_while(|&shard| shard < refused).for_each(|shard| self.give(shard));
            return None;
        }
        Some(Locked { keyspace: self, held: Held::Set(shards) })
    }

    /// The same for shards to which more can be added.
    #[must_use]
    pub fn lock_growing_unless(&self, shards: Vec<usize>, give_up: impl Fn() -> bool) -> Option<Locked<'_>> {
        debug_assert!(shards.is_sorted_by(|a, b| a < b));
        self.take_all_unless(&shards, &give_up).then(|| Locked { keyspace: self, held: Held::Growing(shards) })
    }

    /// Everything, for the only thread there is, or the only one that is inside this keyspace's gate; none, if others
    /// may be. The caller holds no shard.
    #[inline]
    #[must_use]
    pub fn own<'k>(&'k self, inside: Option<&'k Inside<'_>>) -> Option<Locked<'k>> {
        let is_only = !self.contended || inside.is_some_and(Inside::keeps_out);
        is_only.then(|| Locked { keyspace: self, held: Held::All })
    }

    /// One shard, for a thread that keeps all others out of this keyspace's gate. The caller holds no shard.
    #[inline]
    #[must_use]
    pub fn own_one<'k>(&'k self, shard: usize, inside: Option<&'k Inside<'_>>) -> Option<Locked<'k>> {
        inside.is_some_and(Inside::keeps_out).then(|| Locked { keyspace: self, held: Held::Own(shard) })
    }

    /// No shard yet: each is locked while it is visited. The caller is inside the gate and holds none.
    #[must_use]
    pub fn lock_each(&self) -> Locked<'_> {
        self.lock_each_unless(&|| false)
    }

    /// The same, unless the wait for one becomes long and `give_up` says so: neither that one nor those after it are
    /// visited then, and [`Locked::gave_up`].
    #[must_use]
    pub fn lock_each_unless<'k>(&'k self, give_up: &'k dyn Fn() -> bool) -> Locked<'k> {
        Locked { keyspace: self, held: Held::Each(GiveUp { when: give_up, done: false }) }
    }

    /// Everything at once, for a thread that is alone behind this keyspace's gate.
    #[must_use]
    pub fn all<'k>(&'k self, _alone: &'k Alone<'k>) -> Locked<'k> {
        Locked { keyspace: self, held: Held::All }
    }

    /// The physical number of a database. It stays while the caller is inside the gate.
    #[inline]
    pub(crate) fn physical(&self, database: usize) -> usize {
        self.physical[database].load(Ordering::Relaxed)
    }

    /// Whether a database has had a key since it was last emptied. A key that is just being added may be missed.
    #[must_use]
    pub fn had_keys(&self, database: usize) -> bool {
        self.had[self.physical(database)].keys.load(Ordering::Acquire)
    }

    /// The same of keys with an expiry, or with fields that have one.
    #[must_use]
    pub fn had_expiries(&self, database: usize) -> bool {
        self.had[self.physical(database)].expiries.load(Ordering::Acquire)
    }

    /// True if any database has had fields with an expiry since it was last emptied.
    #[must_use]
    pub fn had_timed_fields(&self) -> bool {
        self.had.iter().any(|had| had.fields.load(Ordering::Acquire))
    }

    /// A key was added to a database: the first of its shard, at least.
    #[inline]
    pub(crate) fn mark_keys(&self, database: usize) {
        mark(&self.had[self.physical(database)].keys);
    }

    /// A key of a database was given an expiry.
    #[inline]
    pub(crate) fn mark_expiries(&self, database: usize) {
        mark(&self.had[self.physical(database)].expiries);
    }

    /// A field of a database's hash was given an expiry.
    pub(crate) fn mark_timed_fields(&self, database: usize) {
        mark(&self.had[self.physical(database)].fields);
        self.mark_expiries(database);
    }

    /// A database has become empty. The caller holds all of it.
    pub(crate) fn mark_emptied(&self, database: usize) {
        let Had { keys, expiries, fields } = &self.had[self.physical(database)];
        [keys, expiries, fields].into_iter().for_each(|had| had.store(false, Ordering::Release));
    }

    /// Prefetches memory of a database, for a thread that is inside this keyspace's gate.
    #[inline]
    #[must_use]
    pub fn hints<'k>(&'k self, database: usize, inside: &'k Inside<'_>) -> Hints<'k> {
        let count = self.locks.len();
        let FirstShard(first) = self.first_shard(database);
        let contended = self.contended && !inside.keeps_out();
        Hints { shards: &self.shards[first..first + count], locks: &self.locks, contended }
    }

    /// Where the shards of a database begin. It stays while the caller is inside the gate.
    #[inline]
    pub(crate) fn first_shard(&self, database: usize) -> FirstShard {
        FirstShard(self.physical(database) * self.locks.len())
    }

    #[inline]
    fn cell(&self, first: FirstShard, shard: usize) -> &UnsafeCell<Shard> {
        &self.shards[first.0 + shard]
    }
}

/// Shards of each database: a power of two.
fn shards_of(databases: usize, threads: usize) -> usize {
    let least = threads.saturating_mul(SHARDS_ALONE);
    let wanted = if threads == 1 { least } else { threads.saturating_mul(SHARDS_PER_THREAD) };
    wanted.min(SHARDS_IN_ALL / databases.max(1)).max(least).min(SHARDS_MAX).next_power_of_two()
}

/// Writes once, since all threads read what lies beside it.
#[inline]
fn mark(flag: &AtomicBool) {
    if !flag.load(Ordering::Relaxed) {
        flag.store(true, Ordering::Release);
    }
}

/// Asks for memory of one database ahead of the commands that will read it. A hint may come too early or too late,
/// never amiss.
pub struct Hints<'k> {
    shards: &'k [UnsafeCell<Shard>],
    locks: &'k [PaddedLock],
    /// Whether other threads may hold shards.
    contended: bool,
}

impl Hints<'_> {
    /// Asks for the locks of these keys' shards, if there are any: every hint takes its shard, and a lock that another
    /// core has taken last is as far away as memory. Locked instructions wait for each other's cache lines; these
    /// don't.
    #[inline]
    pub fn locks(&self, hashes: impl Iterator<Item = KeyHash>) {
        if self.contended {
            hashes.for_each(|hash| prefetch_to_write(ptr::from_ref(&self.locks[self.shard_of(hash)]).cast()));
        }
    }

    #[inline]
    fn shard_of(&self, hash: KeyHash) -> usize {
        hash.shard(self.shards.len())
    }

    /// Asks for the bucket that a key of this hash would be in.
    #[inline]
    pub fn bucket(&self, hash: KeyHash) {
        self.look(hash, (), |shard| shard.table.prefetch_bucket(hash));
    }

    /// Asks for the entry itself; worthwhile once its bucket has arrived. Says whether that is full, and the next of
    /// its chain was asked for instead.
    #[inline]
    pub fn entry(&self, hash: KeyHash) -> bool {
        self.look(hash, false, |shard| shard.table.prefetch_record(hash))
    }

    /// Asks for an entry in a chain, once that has arrived, too.
    #[inline]
    pub fn chained_entry(&self, hash: KeyHash) {
        self.look(hash, (), |shard| shard.table.prefetch_chained(hash));
    }

    /// Asks for what the entry's value holds; worthwhile once the entry, or what was asked for before, has arrived.
    /// Says whether there is more to ask for: whether it is a collection in its big form.
    #[inline]
    pub fn value(&self, hash: KeyHash, ahead: Ahead<'_>) -> bool {
        self.look(hash, false, |shard| {
            shard.table.peek_candidate(hash).is_some_and(|entry| entry.prefetch_value(ahead))
        })
    }

    /// Reads a shard for a hint, unless another thread holds it.
    #[inline]
    fn look<T>(&self, hash: KeyHash, otherwise: T, look: impl FnOnce(&Shard) -> T) -> T {
        let shard = self.shard_of(hash);
        if self.contended && !self.locks[shard].0.try_lock() {
            return otherwise;
        }
        // SAFETY: the shard is locked, or there is one thread only, or inside only, and it holds no reference into a
        // shard while it asks: batches do so between commands.
        let result = look(unsafe { &*self.shards[shard].get() });
        if self.contended {
            self.locks[shard].0.unlock();
        }
        result
    }
}

impl<'k> Locked<'k> {
    /// The keyspace.
    #[must_use]
    pub fn keyspace(&self) -> &'k Keyspace {
        self.keyspace
    }

    /// Whether the shard may be touched.
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

    /// Adds a shard to those that are held, if they may grow and it can be had without the danger of a deadlock. Says
    /// whether it is held now. A wait that becomes long ends when `give_up` says so.
    ///
    /// There is no deadlock: a thread that waits without a limit, here or elsewhere, waits for a shard above all that it
    /// holds, and such waits can't form a circle. A wait for a lower shard could close one, and has a limit.
    pub fn extend(&mut self, shard: usize, patience: Patience, give_up: impl Fn() -> bool) -> bool {
        if self.holds(shard) {
            return true;
        }
        let Held::Growing(held) = &mut self.held else { return false };
        let at = held.partition_point(|&h| h < shard);
        if at == held.len() {
            if !self.keyspace.take_unless(shard, &give_up) {
                return false;
            }
        } else if !self.keyspace.locks[shard].0.try_lock_for(patience.tries()) {
            return false;
        }
        held.insert(at, shard);
        true
    }

    /// Gives everything back, and returns the shards that were held, if they may grow.
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

    /// Whether everything may be touched.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        matches!(self.held, Held::All)
    }

    /// Exchanges two databases. Every connection that has selected one sees the other's keys from now on. Everything
    /// must be held.
    pub fn swap(&mut self, a: usize, b: usize) {
        assert!(self.holds_all(), "databases are exchanged alone");
        let physical = &self.keyspace.physical;
        let (at_a, at_b) = (self.keyspace.physical(a), self.keyspace.physical(b));
        physical[a].store(at_b, Ordering::Relaxed);
        physical[b].store(at_a, Ordering::Relaxed);
    }

    /// Exchanges all databases with those of another keyspace, which was made for as many databases and threads: data that were put in there
    /// take the place of what is here. Everything must be held, and no snapshot run here but a cancelled one. False, and nothing is
    /// exchanged, if one does, or if the other keyspace isn't alike.
    pub fn exchange(&mut self, other: &mut Keyspace) -> bool {
        assert!(self.holds_all(), "keyspaces are exchanged alone");
        let keyspace = self.keyspace;
        let is_alike = other.shard_count() == keyspace.shard_count() && other.databases() == keyspace.databases();
        if !is_alike || keyspace.snapshots.saves() || other.snapshots.runs() {
            return false;
        }
        for database in 0..keyspace.databases() {
            let (ours, theirs) = (keyspace.first_shard(database), other.first_shard(database));
            for shard in 0..keyspace.shard_count() {
                // Entries that were made while no snapshot ran have the mark 0, which is good in any keyspace.
                std::mem::swap(self.shard_mut(ours, shard), other.shards[theirs.0 + shard].get_mut());
            }
            let (ours, theirs) = (&keyspace.had[keyspace.physical(database)], &other.had[other.physical(database)]);
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
        // SAFETY: the shard is held, and `self` is borrowed, so it doesn't change meanwhile.
        unsafe { &*self.keyspace.cell(first, shard).get() }
    }

    /// Asks for the buckets of keys with these hashes, then for their entries: for commands that look for many keys.
    /// Keys whose shards aren't held are passed over.
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
        // SAFETY: the shard is held, and `self` is borrowed mutably, so no other reference to it exists.
        unsafe { &mut *self.keyspace.cell(first, shard).get() }
    }

    /// A shard of a database with what saves it, if a snapshot runs.
    pub(crate) fn with_saver(&mut self, first: FirstShard, shard: usize) -> (&mut Shard, Option<Saving<'_>>) {
        self.check(shard);
        // SAFETY: the shard is held, and with it its saver, and `self` is borrowed mutably, so there is no other reference
        // to either. They are in different cells.
        let (of_database, saver) =
            unsafe { (&mut *self.keyspace.cell(first, shard).get(), &mut *self.keyspace.savers[shard].get()) };
        let physical = || first.0 / self.keyspace.shard_count();
        (of_database, saver.as_deref_mut().map(|saver| Saving::new(saver, physical())))
    }

    /// The same by the database's physical number.
    pub(crate) fn with_saver_of(&mut self, physical: usize, shard: usize) -> (&mut Shard, Option<Saving<'_>>) {
        self.with_saver(FirstShard(physical * self.keyspace.shard_count()), shard)
    }

    /// What saves a shard of all databases for a snapshot.
    pub(crate) fn saver_mut(&mut self, shard: usize) -> &mut Option<Box<Saver>> {
        self.check(shard);
        // SAFETY: the shard is held, and with it its saver, and `self` is borrowed mutably.
        unsafe { &mut *self.keyspace.savers[shard].get() }
    }

    /// Visits one shard, locking it for the visit if none are held. None, if it can't be had.
    pub(crate) fn visit<T>(&mut self, database: usize, shard: usize, visit: impl FnOnce(&mut Shard) -> T) -> Option<T> {
        self.visit_with_saver(database, shard, |of_database, _| visit(of_database))
    }

    /// The same with what saves the shard, if a snapshot runs.
    pub(crate) fn visit_with_saver<T>(
        &mut self,
        database: usize,
        shard: usize,
        visit: impl FnOnce(&mut Shard, Option<Saving<'_>>) -> T,
    ) -> Option<T> {
        let first = self.keyspace.first_shard(database);
        let visit_in = |locked: &mut Locked<'_>| {
            let (of_database, saving) = locked.with_saver(first, shard);
            visit(of_database, saving)
        };
        let Held::Each(give_up) = &mut self.held else { return Some(visit_in(self)) };
        let locked = if give_up.done { None } else { self.keyspace.lock_one_unless(shard, give_up.when) };
        give_up.done = locked.is_none();
        locked.map(|mut locked| visit_in(&mut locked))
    }

    /// Whether a shard was not visited, so that what has been found is not all there is.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        matches!(self.held, Held::Each(GiveUp { done: true, .. }))
    }

    /// A command that reaches for a key it did not declare is a defect of its entry in the table, and going on would
    /// be a data race.
    #[inline(always)]
    fn check(&self, shard: usize) {
        // Nearly all commands have one key. The rest isn't worth its room at every access.
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
    use crate::db::{Access, Clock, Db, Observed};
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
            let mut observed = Observed::default();
            let mut db = Db::new(&mut locked, database, &clock, &mut observed);
            db.set_string(Key::new(key), key, Ttl::Clear);
            if expires {
                db.set_expiry(Key::new(key), Some(1 << 40));
            }
        };
        let keys = |keyspace: &Keyspace| -> Vec<(usize, usize, bool, bool)> {
            let alone = keyspace.gate().close();
            let mut locked = keyspace.all(&alone);
            let mut sizes = |database| Db::new(&mut locked, database, &clock, &mut Observed::default()).sizes();
            let flags = |database| (keyspace.had_keys(database), keyspace.had_expiries(database));
            (0..3).map(|database| (sizes(database), flags(database))).map(|(s, f)| (s.0, s.1, f.0, f.1)).collect()
        };
        put(&ours, 0, b"a", true);
        put(&ours, 0, b"b", false);
        put(&theirs, 1, b"c", true);
        put(&theirs, 2, b"d", false);
        // The numbers of databases are those that clients have.
        ours.all(&ours.gate().close()).swap(0, 2);
        assert!(ours.all(&ours.gate().close()).exchange(&mut theirs));
        assert_eq!(keys(&ours), [(0, 0, false, false), (1, 1, true, true), (1, 0, true, false)]);
        assert_eq!(keys(&theirs), [(0, 0, false, false), (0, 0, false, false), (2, 1, true, true)]);
        assert!(!ours.all(&ours.gate().close()).exchange(&mut Keyspace::new(2, 1)));
    }

    #[test]
    fn a_set_holds_its_shards_and_gives_them_back() {
        let keyspace = Keyspace::new(1, 2);
        assert_eq!(keyspace.shard_count(), 1024);
        let hash_in = KeyHash::in_shard;
        let mut set = ShardSet::default();
        // Miri takes a minute for a thousand shards.
        let looked_at = || (0..1024).step_by(if cfg!(miri) { 20 } else { 1 });
        let many: Vec<_> = looked_at().rev().collect();
        for wanted in [&[5_usize][..], &[0, 1023], &[63, 64, 65, 64, 63, 300], &many] {
            set.assign(&keyspace, wanted.iter().map(|shard| hash_in(*shard)));
            let mut sorted = wanted.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(set.iter().collect::<Vec<_>>(), sorted);
            let locked = keyspace.lock_set_unless(&set, || true).unwrap();
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
        // Where one can't be had, none is kept.
        let other = keyspace.lock_one(300);
        set.assign(&keyspace, [7, 300, 400].into_iter().map(hash_in));
        assert!(keyspace.lock_set_unless(&set, || true).is_none());
        drop(other);
        assert!(looked_at().all(|shard| keyspace.locks[shard].0.try_lock()));
    }
}
