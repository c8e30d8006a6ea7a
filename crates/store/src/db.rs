//! One database as a command sees it: finding, setting, expiring and removing keys.
//!
//! A command never sees an expired key. A read or write that meets one removes it, and [`Db::reclaim`] removes the
//! others soon after their time. While [`Clock::keeps_due`] is set, only writes remove expired keys.
//!
//! Each change, replacement or removal of an entry calls `save_before` first (`saving`), and each entry that is put in
//! goes through `adopt`.

pub mod evict;
mod fields;
mod saving;
mod slots;

use std::ops::ControlFlow;

use crate::compact::{Compacted, Mover};
use crate::entry::{Entry, View};
use crate::frequency::Frequency;
use crate::hash::KeyHash;
use crate::keyspace::{FirstShard, Key, Layout, Locked, Shard};
use crate::reaper::Reaper;
use crate::shared_bytes::Long;
use crate::snapshot::Change;
use crate::table::{Ref, RefMut};
use crate::types::stream::Blocks;
use crate::types::timed_hash::TimedHash;
use crate::value::{Object, Type, Value};

pub use crate::expiry::Ttl;

/// The time that a command sees, and the effect of its accesses.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Milliseconds of Unix time.
    pub now_ms: u64,
    /// The time that decides if a key has expired: `now_ms`, or 0 while the journal is replayed, because the journal
    /// itself records each expiry.
    pub due_ms: u64,
    /// Seconds since the server started.
    pub uptime_s: u32,
    /// Says if reads and writes change a key's access word.
    pub access: Access,
    /// If set, access words count uses instead of holding the time of the last use.
    pub frequency: Option<Frequency>,
    /// Reads hide expired keys, but do not remove them.
    pub keeps_due: bool,
}

impl Clock {
    /// Returns the seconds since the last use of a key with this access word, if words are times. A time in the future,
    /// which another thread may have noted, counts as now.
    #[must_use]
    pub fn idle_s(&self, access: u32) -> u32 {
        u32::try_from(self.uptime_s.wrapping_sub(access).cast_signed()).unwrap_or(0)
    }

    /// Returns the access word of a key that was not used for `idle_s` seconds, up to 68 years. It may be a time before
    /// the server started.
    #[must_use]
    pub fn word_of_idle(&self, idle_s: u64) -> u32 {
        self.uptime_s.wrapping_sub(u32::try_from(idle_s).unwrap_or(u32::MAX).min(i32::MAX.cast_unsigned()))
    }
}

/// The effect of an access on a key's access word, for OBJECT IDLETIME, OBJECT FREQ and eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The access is noted: as the time in seconds since the server started, or in the count of uses, depending on
    /// [`Clock::frequency`].
    Noted,
    /// The word stays unchanged (CLIENT NO-TOUCH, and commands that only inspect).
    None,
}

/// Side effects of commands: always counted, and listed if there are listeners.
#[derive(Default, Debug)]
pub struct SideEffects {
    /// Lookups that found their key.
    pub hits: u64,
    /// Lookups that did not find their key.
    pub misses: u64,
    /// Keys removed because they had expired.
    pub expired: u64,
    /// Fields of hashes removed because they had expired.
    pub expired_fields: u64,
    /// The events to list in `seen`: the bits of [`Event`].
    pub list: u8,
    /// The listed events, in order.
    pub seen: Vec<Seen>,
    /// Expired keys, with their databases, that were met by a command that visits one shard after the other. The
    /// command does not remove them. Its caller does so by [`Db::expire`], and holds their shard until it has published
    /// the change.
    pub due: Vec<(usize, Box<[u8]>)>,
}

/// Maximum number of entries in [`SideEffects::due`]. The expiry cycle finds the others.
const DUE_MAX: usize = 16 * 1024;

/// Side effects on a key, in addition to the command's own changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The key was removed because it had expired.
    Expired = 1,
    /// The key was looked up for reading, and does not exist.
    Missed = 2,
    /// The key was created.
    Created = 4,
    /// Fields of its hash were removed because they had expired.
    FieldsExpired = 8,
    /// The key was removed because its hash lost the last field.
    Drained = 16,
}

/// An event with its key.
#[derive(Debug)]
pub struct Seen {
    /// The event.
    pub event: Event,
    /// The database.
    pub database: usize,
    /// The key.
    pub key: Box<[u8]>,
    /// The fields that have expired.
    pub fields: Vec<Box<[u8]>>,
}

impl SideEffects {
    #[inline]
    fn note(&mut self, event: Event, database: usize, key: &[u8]) {
        if self.list & event as u8 != 0 {
            self.list_event(event, database, key);
        }
    }

    #[cold]
    fn list_event(&mut self, event: Event, database: usize, key: &[u8]) {
        self.seen.push(Seen { event, database, key: key.into(), fields: Vec::new() });
    }

    fn note_expired(&mut self, database: usize, key: &[u8]) {
        self.expired += 1;
        self.note(Event::Expired, database, key);
    }

    #[inline]
    fn note_missed(&mut self, database: usize, key: &[u8]) {
        self.misses += 1;
        self.note(Event::Missed, database, key);
    }
}

/// Figures of a whole database, including expired keys that are not removed yet.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Survey {
    /// Keys.
    pub keys: usize,
    /// Keys that have an expiry.
    pub volatile: usize,
    /// Mean time to live in milliseconds, estimated from a sample; 0 if no key has an expiry.
    pub ttl_ms_mean: u64,
    /// Keys that hold hashes with expiring fields.
    pub timed_hashes: usize,
    /// Bytes of the tables and queues, without the keys and values.
    pub overhead_bytes: usize,
}

/// Error: the key holds another type than the command works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongType;

/// See the module's documentation.
pub struct Db<'l, 'k> {
    locked: &'l mut Locked<'k>,
    database: usize,
    first: FirstShard,
    clock: &'l Clock,
    observed: &'l mut SideEffects,
}

impl<'l, 'k> Db<'l, 'k> {
    /// Returns the view of a database through the held shards.
    #[inline]
    pub fn new(locked: &'l mut Locked<'k>, database: usize, clock: &'l Clock, observed: &'l mut SideEffects) -> Self {
        let first = locked.keyspace().first_shard(database);
        Db { locked, database, first, clock, observed }
    }

    /// Returns the view of another database through the held shards, for MOVE and COPY.
    pub fn other(&mut self, database: usize) -> Db<'_, 'k> {
        Db::new(self.locked, database, self.clock, self.observed)
    }

    /// Returns the number that SELECT takes.
    #[must_use]
    pub fn index(&self) -> usize {
        self.database
    }

    /// Number of databases.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.locked.keyspace().databases()
    }

    /// Milliseconds of Unix time, constant for the whole command.
    #[inline]
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms
    }

    /// The time that decides if a key has expired: see [`Clock::due_ms`].
    #[inline]
    #[must_use]
    pub fn due_ms(&self) -> u64 {
        self.clock.due_ms
    }

    /// True while the journal is replayed: times come from another clock, perhaps from another machine.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.clock.due_ms == 0
    }

    /// The command's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        *self.clock
    }

    /// Prefetches the memory that lookups of these keys read. The first-level cache must be able to hold two lines of
    /// each key until the lookups.
    #[inline]
    pub fn prefetch(&self, hashes: impl Iterator<Item = KeyHash> + Clone) {
        self.locked.prefetch(self.database, hashes);
    }

    /// Returns true if all shards are held, so that any key may be touched.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        self.locked.holds_all()
    }

    #[inline]
    fn shard(&self, hash: KeyHash) -> &Shard {
        self.locked.shard(self.first, self.locked.keyspace().shard_of(hash))
    }

    #[inline]
    fn shard_mut(&mut self, hash: KeyHash) -> &mut Shard {
        self.locked.shard_mut(self.first, self.locked.keyspace().shard_of(hash))
    }

    /// Returns the key's entry without any side effect: no access, no hit or miss, no removal. The borrow is shared, so
    /// that a caller can look at several keys together.
    #[inline]
    #[must_use]
    pub fn peek(&self, key: Key<'_>) -> Option<Ref<'_, Entry>> {
        let now = self.clock.due_ms;
        self.shard(key.hash).table.find(key.hash, key.bytes).filter(|e| !e.is_expired(now))
    }

    /// Removes the key if it has expired, for a write. Returns true if it did.
    #[inline(always)]
    fn expire_if_due(&mut self, key: Key<'_>) -> bool {
        self.shard(key.hash).volatile != 0 && self.expire_among_volatile(key, false)
    }

    /// Returns true if the key has expired, for a read. Removes it then, unless expired keys are kept.
    #[inline(always)]
    fn is_due(&mut self, key: Key<'_>) -> bool {
        self.shard(key.hash).volatile != 0 && self.expire_among_volatile(key, self.clock.keeps_due)
    }

    #[inline(never)]
    fn expire_among_volatile(&mut self, key: Key<'_>, keeps: bool) -> bool {
        let now = self.clock.due_ms;
        let shard = self.shard(key.hash);
        if !shard.table.find(key.hash, key.bytes).is_some_and(|e| e.is_expired(now)) {
            return false;
        }
        if keeps {
            return true;
        }
        if let Some(entry) = self.discard(key) {
            self.locked.keyspace().reaper().free_expired(entry);
        }
        self.observed.note_expired(self.database, key.bytes);
        true
    }

    /// Returns the key's entry for reading. Counts a hit or a miss, and counts as an access.
    #[inline(always)]
    pub fn get(&mut self, key: Key<'_>) -> Option<Ref<'_, Entry>> {
        if self.is_due(key) {
            self.observed.note_missed(self.database, key.bytes);
            return None;
        }
        let clock = self.clock;
        let shard = self.locked.shard_mut(self.first, self.locked.keyspace().shard_of(key.hash));
        match shard.table.find_mut(key.hash, key.bytes) {
            Some(mut entry) => {
                self.observed.hits += 1;
                touch(&mut entry, clock);
                Some(entry.into_ref())
            }
            None => {
                self.observed.note_missed(self.database, key.bytes);
                None
            }
        }
    }

    /// Returns true if the key exists, like [`Db::get`], but counts as an access even with [`Access::None`] (TOUCH).
    pub fn touch(&mut self, key: Key<'_>) -> bool {
        let clock = Clock { access: Access::Noted, ..*self.clock };
        Db::new(self.locked, self.database, &clock, self.observed).get(key).is_some()
    }

    /// Returns the key's value for reading, like [`Db::get`].
    #[inline(always)]
    pub fn view(&mut self, key: Key<'_>) -> Option<View<'_>> {
        self.get(key).map(Ref::into_view)
    }

    /// Returns the key's entry for writing. Counts as an access, but as neither hit nor miss, as in Redis.
    #[inline]
    pub fn get_mut(&mut self, key: Key<'_>) -> Option<RefMut<'_, Entry>> {
        self.expire_if_due(key);
        self.save_before(Change::Altered, key);
        let clock = self.clock;
        let mut entry = self.shard_mut(key.hash).table.find_mut(key.hash, key.bytes)?;
        touch(&mut entry, clock);
        Some(entry)
    }

    /// Returns the key's entry for reading. Counts a hit or a miss, but not as an access (TTL, TYPE).
    pub fn look(&mut self, key: Key<'_>) -> Option<Ref<'_, Entry>> {
        let database = self.database;
        self.look_or(key, |observed| observed.note_missed(database, key.bytes))
    }

    /// Like [`Db::look`], but a missing key causes no event (OBJECT).
    pub fn look_quietly(&mut self, key: Key<'_>) -> Option<Ref<'_, Entry>> {
        self.look_or(key, |observed| observed.misses += 1)
    }

    #[inline]
    fn look_or(&mut self, key: Key<'_>, note_missing: impl FnOnce(&mut SideEffects)) -> Option<Ref<'_, Entry>> {
        self.is_due(key);
        match self.peek(key).is_some() {
            true => self.observed.hits += 1,
            false => note_missing(self.observed),
        }
        self.peek(key)
    }

    /// Returns true if the key exists, like [`Db::look`].
    pub fn exists(&mut self, key: Key<'_>) -> bool {
        self.look(key).is_some()
    }

    /// Returns true if the key exists, for a command that is about to write it: neither a hit nor a miss.
    pub fn exists_for_write(&mut self, key: Key<'_>) -> bool {
        !self.expire_if_due(key) && self.peek(key).is_some()
    }

    /// The key's type.
    #[must_use]
    pub fn kind(&self, key: Key<'_>) -> Option<Type> {
        self.peek(key).map(|e| e.kind())
    }

    /// Returns the key's value as a `T` for reading, if the key exists.
    #[inline]
    pub fn object<T: Object>(&mut self, key: Key<'_>) -> Result<Option<&T>, WrongType> {
        match self.view(key) {
            None => Ok(None),
            Some(View::Object(value)) => T::of(value).map(Some).ok_or(WrongType),
            Some(_) => Err(WrongType),
        }
    }

    /// Like [`Db::object`], but without side effects. The borrow is shared, so that a caller can look at several keys
    /// together.
    pub fn peek_object<T: Object>(&self, key: Key<'_>) -> Result<Option<&T>, WrongType> {
        match self.peek(key).map(Ref::into_view) {
            None => Ok(None),
            Some(View::Object(value)) => T::of(value).map(Some).ok_or(WrongType),
            Some(_) => Err(WrongType),
        }
    }

    /// Returns the key's value as a `T` for writing, if the key exists.
    #[inline]
    pub fn object_mut<T: Object>(&mut self, key: Key<'_>) -> Result<Option<&mut T>, WrongType> {
        let Some(entry) = self.get_mut(key) else { return Ok(None) };
        entry.into_object().and_then(T::of_mut).map(Some).ok_or(WrongType)
    }

    /// Returns the key's value as a `T` for writing, and creates an empty one if the key does not exist. A caller that
    /// leaves it empty must remove the key.
    #[inline]
    pub fn object_or_new<T: Object>(&mut self, key: Key<'_>) -> Result<&mut T, WrongType> {
        self.expire_if_due(key);
        self.save_before(Change::Altered, key);
        let (clock, keyspace) = (self.clock, self.locked.keyspace());
        let shard = keyspace.shard_of(key.hash);
        let table = &mut self.locked.shard_mut(self.first, shard).table;
        let create = || Entry::object(key.bytes, T::empty(), None).born(keyspace.snapshots());
        let (mut entry, is_new) = table.find_or_insert(key.hash, key.bytes, create);
        if is_new {
            keyspace.mark_keys(self.database, shard);
            self.observed.note(Event::Created, self.database, key.bytes);
        }
        touch(&mut entry, clock);
        entry.into_object().and_then(T::of_mut).ok_or(WrongType)
    }

    /// Sets the key to a string.
    #[inline]
    pub fn set_string(&mut self, key: Key<'_>, value: &[u8], ttl: Ttl) {
        self.write(key, ttl, |entry| entry.set_string(value), |key, expiry| Entry::string(key, value, expiry));
    }

    /// Like [`Db::set_string`], but frees a large old value in the background.
    #[inline]
    pub fn set_string_over(&mut self, key: Key<'_>, value: &[u8], ttl: Ttl) {
        let reaper = self.locked.keyspace().reaper();
        let change = |entry: &mut Entry| {
            empty(entry, reaper);
            entry.set_string(value);
        };
        self.write(key, ttl, change, |key, expiry| Entry::string(key, value, expiry));
    }

    /// Sets the key to a string with the encoding "raw" in OBJECT ENCODING, never to an integer. With `lazily`, frees a
    /// large old value in the background.
    pub fn set_raw(&mut self, key: Key<'_>, value: &[u8], ttl: Ttl, lazily: bool) {
        let reaper = self.locked.keyspace().reaper();
        let change = |entry: &mut Entry| {
            if lazily {
                empty(entry, reaper);
            }
            entry.set_raw(value);
        };
        self.write(key, ttl, change, |key, expiry| Entry::raw(key, value, expiry));
    }

    /// Sets the key to an integer string.
    #[inline]
    pub fn set_int(&mut self, key: Key<'_>, value: i64, ttl: Ttl) {
        self.write(key, ttl, |entry| entry.set_int(value), |key, expiry| Entry::int(key, value, expiry));
    }

    /// Sets the key to a value of another type.
    pub fn set_object(&mut self, key: Key<'_>, value: Value, ttl: Ttl) {
        // The expiry of an expired key must not be kept.
        self.expire_if_due(key);
        let expiry = match ttl {
            Ttl::At(at) => Some(at),
            Ttl::Clear => None,
            Ttl::Keep => self.peek(key).and_then(|e| e.expiry()),
        };
        if self.place(key, Entry::object(key.bytes, value, expiry)) {
            self.observed.note(Event::Created, self.database, key.bytes);
        }
    }

    #[inline]
    fn write(
        &mut self,
        key: Key<'_>,
        ttl: Ttl,
        change: impl FnOnce(&mut Entry),
        create: impl FnOnce(&[u8], Option<u64>) -> Entry,
    ) {
        // The expiry of an expired key must not be kept.
        self.expire_if_due(key);
        self.save_before(Change::Lost, key);
        let clock = self.clock;
        let shard = self.locked.shard_mut(self.first, self.locked.keyspace().shard_of(key.hash));
        let existing = shard.table.find_mut(key.hash, key.bytes).map(|mut entry| {
            change(&mut entry);
            touch(&mut entry, clock);
            entry.expiry().is_some()
        });
        if let Some(has_expiry) = existing {
            match ttl {
                Ttl::Keep => {}
                Ttl::Clear if !has_expiry => {}
                Ttl::Clear => drop(self.change_expiry(key, None)),
                Ttl::At(at) => drop(self.change_expiry(key, Some(at))),
            }
        } else {
            let expiry = if let Ttl::At(at) = ttl { Some(at) } else { None };
            let mut entry = create(key.bytes, expiry);
            touch(&mut entry, clock);
            let is_first = self.insert(key, entry);
            self.note_created(key, is_first, expiry.is_some());
        }
    }

    /// Sets or removes the key's expiry, in milliseconds of Unix time. Returns true if the key exists.
    pub fn set_expiry(&mut self, key: Key<'_>, expiry: Option<u64>) -> bool {
        self.save_before(Change::Altered, key);
        self.change_expiry(key, expiry)
    }

    /// Like [`Db::set_expiry`], for a key that a running snapshot has already saved.
    fn change_expiry(&mut self, key: Key<'_>, expiry: Option<u64>) -> bool {
        let shard = self.shard_mut(key.hash);
        let Some(mut entry) = shard.table.find_mut(key.hash, key.bytes) else { return false };
        let before = entry.expiry();
        entry.set_expiry(expiry);
        drop(entry);
        shard.volatile = shard.volatile + usize::from(expiry.is_some()) - usize::from(before.is_some());
        if let Some(at) = expiry
            && before.is_none_or(|b| b > at)
        {
            // A note at an earlier time is enough: once due, it is replaced by one for the new time.
            shard.note_expiry(at, key.hash);
        }
        if expiry.is_some() {
            self.locked.keyspace().mark_expiries(self.database);
        }
        true
    }

    /// Takes the key out, expired or not, and returns its entry, which will move to another key.
    pub fn take(&mut self, key: Key<'_>) -> Option<Entry> {
        self.save_before(Change::Altered, key);
        self.take_saved(key)
    }

    /// Takes the key out for a caller that only frees the entry. A running snapshot may keep its value.
    fn discard(&mut self, key: Key<'_>) -> Option<Entry> {
        self.save_before(Change::Lost, key);
        self.take_saved(key)
    }

    fn take_saved(&mut self, key: Key<'_>) -> Option<Entry> {
        let shard = self.shard_mut(key.hash);
        let entry = shard.table.remove(key.hash, key.bytes)?;
        shard.volatile -= usize::from(entry.expiry().is_some());
        Some(entry)
    }

    /// Puts an entry in under its own key, in place of the old one. The key always counts as created, as in Redis,
    /// where RENAME and COPY remove the old key first.
    pub fn put(&mut self, key: Key<'_>, entry: Entry) {
        self.place(key, entry);
        self.observed.note(Event::Created, self.database, key.bytes);
    }

    /// Puts an entry in under its own key, in place of the old one. Returns true if there was none.
    fn place(&mut self, key: Key<'_>, mut entry: Entry) -> bool {
        debug_assert_eq!(entry.key(), key.bytes);
        let is_new = self.discard(key).is_none();
        touch(&mut entry, self.clock);
        let expires = entry.expiry().is_some();
        let next_field = entry.timed_hash().and_then(TimedHash::next_expiry);
        let is_first = self.insert(key, entry);
        self.mark_added(key.hash, is_first, expires);
        if let Some(at) = next_field {
            self.note_field(key.hash, at);
        }
        is_new
    }

    /// Adds an entry for a key that does not exist. Returns true if it is the first of its shard.
    fn insert(&mut self, key: Key<'_>, mut entry: Entry) -> bool {
        self.adopt(key, &mut entry);
        self.add(key.hash, entry)
    }

    fn add(&mut self, hash: KeyHash, entry: Entry) -> bool {
        let shard = self.shard_mut(hash);
        let (is_first, expiry) = (shard.table.is_empty(), entry.expiry());
        shard.table.insert(hash, entry);
        if let Some(at) = expiry {
            shard.volatile += 1;
            shard.note_expiry(at, hash);
        }
        is_first
    }

    /// Reserves space for about `keys` keys in empty shards, before data is loaded. Everything must be held. If the
    /// number is too high, its memory stays in use until keys are removed.
    pub fn expect(&mut self, keys: usize) {
        assert!(self.locked.holds_all(), "room is made alone");
        if self.locked.keyspace().layout() == Layout::Slots {
            // The keys may all belong to a few slots.
            return;
        }
        let shards = self.locked.keyspace().shard_count();
        let each = keys / shards;
        // Shards get different numbers of keys. Most get at least this many; the tables of those with more grow.
        let nearly_all_get = each - each.isqrt();
        (0..shards).for_each(|shard| self.locked.shard_mut(self.first, shard).table.expect(nearly_all_get));
    }

    /// Adds a loaded entry unchanged, including its access word. `hash` is the hash of its key.
    ///
    /// # Errors
    /// Returns the entry if the key already exists.
    pub fn restore(&mut self, hash: KeyHash, mut entry: Entry) -> Result<(), Entry> {
        if self.shard(hash).table.find(hash, entry.key()).is_some() {
            return Err(entry);
        }
        let expires = entry.expiry().is_some();
        let next_field = entry.timed_hash().and_then(TimedHash::next_expiry);
        entry.set_mark(self.locked.keyspace().snapshots().mark());
        let is_first = self.add(hash, entry);
        self.mark_added(hash, is_first, expires);
        if let Some(at) = next_field {
            self.note_field(hash, at);
        }
        Ok(())
    }

    /// Notes that a key was created, perhaps the first of its shard.
    #[inline]
    fn note_created(&mut self, key: Key<'_>, is_first: bool, expires: bool) {
        self.mark_added(key.hash, is_first, expires);
        self.observed.note(Event::Created, self.database, key.bytes);
    }

    /// Marks the database as one that has keys, or expiring keys, after an entry was added.
    #[inline]
    fn mark_added(&self, hash: KeyHash, is_first: bool, expires: bool) {
        let keyspace = self.locked.keyspace();
        if is_first {
            keyspace.mark_keys(self.database, keyspace.shard_of(hash));
        }
        if expires {
            keyspace.mark_expiries(self.database);
        }
    }

    /// Removes the key. Returns true if it existed.
    pub fn remove(&mut self, key: Key<'_>) -> bool {
        !self.expire_if_due(key) && self.discard(key).is_some()
    }

    /// Removes a key that is overwritten by an empty value. Returns true if there was one, even an expired one: the
    /// expiry is not checked.
    pub fn remove_overwritten(&mut self, key: Key<'_>) -> bool {
        self.discard(key).is_some()
    }

    /// Like [`Db::remove`], but frees a large value in the background.
    pub fn unlink(&mut self, key: Key<'_>) -> bool {
        !self.expire_if_due(key) && self.take_and_free(key)
    }

    /// Takes the key out, expired or not, and passes a large value to the reaper. Returns true if there was one.
    fn take_and_free(&mut self, key: Key<'_>) -> bool {
        let entry = self.discard(key);
        let existed = entry.is_some();
        if let Some(entry) = entry {
            self.locked.keyspace().reaper().free_entry(entry);
        }
        existed
    }

    /// Frees a key's large value in the background. The key holds an empty string until the caller overwrites it.
    pub fn empty(&mut self, key: Key<'_>) {
        self.save_before(Change::Lost, key);
        let keyspace = self.locked.keyspace();
        if let Some(mut entry) = self.shard_mut(key.hash).table.find_mut(key.hash, key.bytes) {
            empty(&mut entry, keyspace.reaper());
        }
    }

    /// Passes blocks that were cut out of a stream to the reaper.
    pub fn free_later(&self, blocks: Blocks) {
        if !blocks.is_empty() {
            self.locked.keyspace().reaper().free(blocks, 0);
        }
    }

    /// Like [`Db::scan`], but skips expired keys, and removes those for which `meets` returns true.
    pub fn scan_living(
        &mut self,
        cursor: u64,
        count: usize,
        meets: impl Fn(&Entry) -> bool,
        visit: impl FnMut(&Entry),
    ) -> u64 {
        self.living(meets, visit, |db, visit| db.scan(cursor, count, visit))
    }

    /// Lets `scan` visit entries, and passes the unexpired ones to `visit`. Expired entries for which `meets` returns true are removed.
    fn living(
        &mut self,
        meets: impl Fn(&Entry) -> bool,
        mut visit: impl FnMut(&Entry),
        scan: impl FnOnce(&mut Self, &mut dyn FnMut(&Entry)) -> u64,
    ) -> u64 {
        let (now, mut due) = (self.clock.due_ms, Vec::new());
        let next = scan(self, &mut |entry| match entry.is_expired(now) {
            true if meets(entry) => due.push(Box::<[u8]>::from(entry.key())),
            true => {}
            false => visit(entry),
        });
        due.iter().for_each(|key| self.remove_due(key));
        next
    }

    /// Removes an expired key, unless expired keys are kept: at once if everything is held, otherwise later (see
    /// [`SideEffects::due`]).
    fn remove_due(&mut self, key: &[u8]) {
        if self.clock.keeps_due {
            return;
        }
        if self.locked.holds_all() {
            self.expire(Key::new(key));
        } else if self.observed.due.len() < DUE_MAX {
            self.observed.due.push((self.database, key.into()));
        }
    }

    /// Removes the key if it has expired. Its shard is held.
    pub fn expire(&mut self, key: Key<'_>) {
        self.expire_if_due(key);
    }

    /// Visits the keys of at least `count` buckets from a cursor on, and returns the next cursor. The cursor 0 is both
    /// the beginning and the end. A cursor carries the shard's number in its low bits.
    pub fn scan(&mut self, cursor: u64, count: usize, mut visit: impl FnMut(&Entry)) -> u64 {
        if !self.locked.keyspace().had_keys(self.database) {
            return 0;
        }
        let keyspace = self.locked.keyspace();
        let shards = keyspace.shard_count();
        let bits = shards.trailing_zeros();
        let mut shard = cursor as usize & (shards - 1);
        let mut at = cursor >> bits;
        let (mut seen, mut steps) = (0, 0);
        let go_on = |shard, at| if at == 0 { keyspace.next_occupied(self.database, shard) } else { Some(shard) };
        while let Some(here) = go_on(shard, at) {
            shard = here;
            let next = self.locked.visit(self.database, shard, |s| {
                s.table.scan(at, |entry| {
                    seen += 1;
                    visit(entry);
                })
            });
            let Some(next) = next else { break };
            at = next;
            if at == 0 {
                shard += 1;
            }
            steps += 1;
            // In an almost empty table, one call must not walk all buckets, and a client must not need a call for each
            // empty one.
            if seen >= count || steps >= count.saturating_mul(10).max(shards) {
                break;
            }
        }
        go_on(shard, at).map_or(0, |shard| at << bits | shard as u64)
    }

    /// Calls `visit` with the number of each shard that may have keys, and the shard, until it breaks or a shard cannot be
    /// locked.
    fn visit_occupied(&mut self, mut visit: impl FnMut(usize, &mut Shard) -> ControlFlow<()>) -> ControlFlow<()> {
        for shard in self.locked.keyspace().occupied_shards(self.database) {
            self.locked.visit(self.database, shard, |s| visit(shard, s)).unwrap_or(ControlFlow::Break(()))?;
        }
        ControlFlow::Continue(())
    }

    /// Returns the number of keys, including expired keys that are not removed yet, and the number of those with an
    /// expiry.
    pub fn sizes(&mut self) -> (usize, usize) {
        let mut sizes = (0, 0);
        let _ = self.visit_occupied(|_, s| {
            sizes.0 += s.table.len();
            sizes.1 += s.volatile;
            ControlFlow::Continue(())
        });
        sizes
    }

    /// Returns figures of the whole database.
    pub fn survey(&mut self) -> Survey {
        /// Sample size per shard for the mean time to live.
        const SAMPLES: usize = 16;
        let now = self.clock.now_ms;
        let mut survey = Survey::default();
        let mut ttl_ms: u128 = 0;
        let _ = self.visit_occupied(|_, s| {
            survey.keys += s.table.len();
            survey.volatile += s.volatile;
            survey.timed_hashes += s.count_timed_hashes();
            survey.overhead_bytes += s.table.memory_bytes() + s.queue_bytes();
            let left_ms = s.noted_keys().map_or(0, |notes| notes.mean_left_ms(now, SAMPLES));
            ttl_ms += u128::from(left_ms) * s.volatile as u128;
            ControlFlow::Continue(())
        });
        survey.ttl_ms_mean = ttl_ms.checked_div(survey.volatile as u128).unwrap_or(0) as u64;
        survey
    }

    /// Returns an evenly picked key that has not expired, or None if there is none. Removes expired keys that it meets,
    /// unless they are kept.
    pub fn pick(&mut self, random: &mut dyn FnMut() -> u64) -> Option<Box<[u8]>> {
        /// Maximum number of expired keys that a pick may meet before it falls back to the first living key.
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let shard = self.pick_shard(random)?;
            match self.pick_in(shard, random) {
                Some((key, false)) => return Some(key),
                Some((key, true)) => self.remove_due(&key),
                None => {}
            }
        }
        self.first_living(random)
    }

    /// Returns the first living key, beginning at a random shard. Removes expired keys before it, unless they are kept.
    fn first_living(&mut self, random: &mut dyn FnMut() -> u64) -> Option<Box<[u8]>> {
        let now = self.clock.due_ms;
        for shard in self.locked.keyspace().occupied_from(random()) {
            let mut due = Vec::<Box<[u8]>>::new();
            let living = self.locked.visit(self.database, shard, |s| {
                let mut living = s.table.iter().filter(|e| {
                    let is_due = e.is_expired(now);
                    if is_due && due.len() < DUE_MAX {
                        due.push(e.key().into());
                    }
                    !is_due
                });
                living.next().map(|e| e.key().into())
            })?;
            due.iter().for_each(|key| self.remove_due(key));
            if living.is_some() {
                return living;
            }
        }
        None
    }

    /// Picks a shard with a probability in proportion to its number of keys. Returns None if there are no keys.
    fn pick_shard(&mut self, random: &mut dyn FnMut() -> u64) -> Option<usize> {
        let (mut total, mut picked) = (0_u64, None);
        let _ = self.visit_occupied(|shard, s| {
            let len = s.table.len() as u64;
            total += len;
            // Each shard takes the place of the earlier ones with the probability of its part of the keys so far, so that
            // one visit of the shards is enough.
            if (u128::from(random()) * u128::from(total)) >> 64 < u128::from(len) {
                picked = Some(shard);
            }
            ControlFlow::Continue(())
        });
        picked
    }

    /// Returns an evenly picked key of a shard, and true if it has expired. Returns None if other threads have removed the
    /// keys meanwhile, or if the shard cannot be locked.
    fn pick_in(&mut self, shard: usize, random: &mut dyn FnMut() -> u64) -> Option<(Box<[u8]>, bool)> {
        let now = self.clock.due_ms;
        let pick = |s: &mut Shard| s.table.pick(random).map(|e| (e.key().into(), e.is_expired(now)));
        self.locked.visit(self.database, shard, pick).flatten()
    }

    /// Removes all keys and returns their number. Everything must be held. With `lazily`, frees the memory in the
    /// background.
    pub fn flush(&mut self, lazily: bool) -> usize {
        assert!(self.locked.holds_all(), "databases are emptied alone");
        let keyspace = self.locked.keyspace();
        if !keyspace.had_keys(self.database) {
            return 0;
        }
        let (mut emptied, mut count, mut next) = (Vec::new(), 0, 0);
        while let Some(shard) = keyspace.next_with_keys(self.database, next) {
            next = shard + 1;
            let flushed = self.locked.visit_with_saver(self.database, shard, |s, saving| {
                count += s.table.len();
                saving::unless_unsaved(std::mem::take(s), saving)
            });
            emptied.extend(flushed.flatten());
        }
        keyspace.mark_emptied(self.database);
        if lazily && count > 0 {
            keyspace.reaper().free(emptied, count);
        }
        count
    }

    /// Defragments one step of a shard from a cursor on: moves the blocks that `mover` selects. Adds keys with values
    /// too large for one step to `large`. Returns the next cursor; 0 is the beginning and the end.
    pub fn compact(&mut self, shard: usize, cursor: u64, mover: &mut Mover<'_>, large: &mut Vec<Box<[u8]>>) -> u64 {
        let visit = |s: &mut Shard| {
            s.table.scan_mut(cursor, |entry| {
                if entry.compact(mover) == Compacted::InSteps {
                    large.push(entry.key().into());
                }
            })
        };
        self.locked.visit(self.database, shard, visit).unwrap_or(0)
    }

    /// Defragments one step of a large value, if the key still holds one.
    pub fn compact_large(&mut self, key: Key<'_>, cursor: u64, mover: &mut Mover<'_>) -> u64 {
        let found = self.shard_mut(key.hash).table.find_mut(key.hash, key.bytes);
        found.and_then(RefMut::into_object).map_or(0, |value| value.compact_step(cursor, mover))
    }

    /// Removes up to `limit` expired keys of a shard, or expired fields of hashes. Returns true if there may be more.
    pub fn reclaim(&mut self, shard: usize, limit: usize) -> bool {
        self.reclaim_keys(shard, limit) || self.reclaim_fields(shard, limit)
    }

    fn reclaim_keys(&mut self, shard: usize, limit: usize) -> bool {
        let (now, database) = (self.clock.due_ms, self.database);
        let observed = &mut *self.observed;
        let reaper = self.locked.keyspace().reaper();
        let more = self.locked.visit_with_saver(database, shard, |s, mut saving| {
            for _ in 0..limit {
                let Some(note) = s.pop_due_key(now) else { return false };
                let name: Option<Box<[u8]>> =
                    s.table.find_where(note.hash, |e| e.is_expired(now)).map(|e| e.key().into());
                if let Some(name) = name {
                    saving::save_in(s, saving.as_mut(), Change::Lost, Key { bytes: &name, hash: note.hash });
                    if let Some(entry) = s.table.remove(note.hash, &name) {
                        reaper.free_expired(entry);
                    }
                    s.volatile -= 1;
                    observed.note_expired(database, &name);
                } else if let Some(later) =
                    s.table.find_where(note.hash, |e| e.expiry().is_some()).and_then(|e| e.expiry())
                {
                    s.note_expiry(later, note.hash);
                }
            }
            true
        });
        more.unwrap_or(false)
    }
}

/// Frees an entry's large value in the background, and leaves an empty string in its place.
#[inline]
fn empty(entry: &mut Entry, reaper: &Reaper) {
    if let Some(value) = entry.object_mut() {
        reaper.free_value(std::mem::replace(value, Value::long(Long::default())));
    }
}

#[inline]
fn touch(entry: &mut Entry, clock: &Clock) {
    if clock.access == Access::None {
        return;
    }
    match clock.frequency {
        None => entry.set_access(clock.uptime_s),
        Some(frequency) => {
            let salt = entry.key().as_ptr().addr() as u64;
            entry.set_access(frequency.used(entry.access(), salt));
        }
    }
}

#[cfg(test)]
mod tests;
