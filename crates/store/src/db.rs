//! One database as a command sees it: keys that are found, set, expired and removed.
//!
//! An expired key is never seen. A read or a write that meets it removes it, and [`Db::reclaim`] does soon after its
//! time. While keys are to stay as they are ([`Clock::keeps_due`]), only a write removes it.
//!
//! What changes, replaces or removes an entry calls `save_before` first (`saving`), and what is put in goes through
//! `adopt`.

pub mod evict;
mod fields;
mod saving;

use crate::compact::{Compacted, Mover};
use crate::entry::{Entry, View};
use crate::frequency::Frequency;
use crate::hash::KeyHash;
use crate::keyspace::{FirstShard, Key, Locked, Shard};
use crate::long::Long;
use crate::reaper::Reaper;
use crate::snapshot::Change;
use crate::table::{Ref, RefMut};
use crate::types::stream::Blocks;
use crate::types::timed_hash::TimedHash;
use crate::value::{Object, Type, Value};

pub use crate::expiry::Ttl;

/// The time that a command sees, and what an access leaves behind.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Milliseconds of Unix time.
    pub now_ms: u64,
    /// The time by which keys expire: `now_ms`, but 0 while the journal is replayed, which says itself what has expired.
    pub due_ms: u64,
    /// Seconds since the server started.
    pub uptime_s: u32,
    /// Whether a key's access word changes when it is read or written.
    pub access: Access,
    /// How often keys are used is counted, instead of when they were used last.
    pub frequency: Option<Frequency>,
    /// Reads leave expired keys where they are, though they don't see them.
    pub keeps_due: bool,
}

impl Clock {
    /// For how many seconds a key with this access word wasn't used, if words are times. A word beyond now, as another thread may
    /// note it, counts as now.
    #[must_use]
    pub fn idle_s(&self, access: u32) -> u32 {
        u32::try_from(self.uptime_s.wrapping_sub(access).cast_signed()).unwrap_or(0)
    }

    /// The access word of a key that wasn't used for so many seconds, up to 68 years. It may be a time before the server started.
    #[must_use]
    pub fn word_of_idle(&self, idle_s: u64) -> u32 {
        self.uptime_s.wrapping_sub(u32::try_from(idle_s).unwrap_or(u32::MAX).min(i32::MAX.cast_unsigned()))
    }
}

/// What an access does to a key's access word, for OBJECT IDLETIME, OBJECT FREQ and eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Notes it: the time, in seconds since the server started, or how often, as [`Clock::frequency`] says.
    Noted,
    /// Leaves it alone (CLIENT NO-TOUCH, and commands that only look).
    None,
}

/// What happened beside the commands: always counted, and listed if there are listeners.
#[derive(Default, Debug)]
pub struct Observed {
    /// Lookups that found their key.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Keys removed because their time had come.
    pub expired: u64,
    /// Fields of hashes removed for the same reason.
    pub expired_fields: u64,
    /// What to list below: the bits of [`Event`].
    pub list: u8,
    /// What has been listed, in order.
    pub seen: Vec<Seen>,
    /// Keys, with their databases, that were met after their time by a command that visits one shard after the other.
    /// Such a command doesn't remove them: [`Db::expire`] does, for a caller that holds their shard until the change is
    /// told.
    pub due: Vec<(usize, Box<[u8]>)>,
}

/// Entries of [`Observed::due`] at most: the rest is left to the search for expired keys.
const DUE_MAX: usize = 16 * 1024;

/// What can happen to a key, beside what commands say themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It was removed because its time had come.
    Expired = 1,
    /// It was looked up for reading, and there was none.
    Missed = 2,
    /// It came into being.
    Created = 4,
    /// Fields of its hash were removed because their time had come.
    FieldsExpired = 8,
    /// It was removed because the last of its hash's fields was.
    Drained = 16,
}

/// An event with its key.
#[derive(Debug)]
pub struct Seen {
    /// What happened.
    pub event: Event,
    /// The database.
    pub database: usize,
    /// The key.
    pub key: Box<[u8]>,
    /// The fields that have expired.
    pub fields: Vec<Box<[u8]>>,
}

impl Observed {
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

/// Figures of a whole database, including expired keys that aren't removed yet.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Survey {
    /// Keys.
    pub keys: usize,
    /// Keys that have an expiry.
    pub volatile: usize,
    /// Milliseconds that these have left, estimated from a sample; 0 if there are none.
    pub ttl_ms_mean: u64,
    /// Keys that hold hashes with fields that expire.
    pub timed_hashes: usize,
    /// Bytes of the tables and queues beside the keys and values.
    pub overhead_bytes: usize,
}

/// The key holds another type than the command works on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrongType;

/// See the module's documentation.
pub struct Db<'l, 'k> {
    locked: &'l mut Locked<'k>,
    database: usize,
    first: FirstShard,
    clock: &'l Clock,
    observed: &'l mut Observed,
}

impl<'l, 'k> Db<'l, 'k> {
    /// The view of a database through the shards that are held.
    #[inline]
    pub fn new(locked: &'l mut Locked<'k>, database: usize, clock: &'l Clock, observed: &'l mut Observed) -> Self {
        let first = locked.keyspace().first_shard(database);
        Db { locked, database, first, clock, observed }
    }

    /// The same through another database's eyes, for MOVE and COPY.
    pub fn other(&mut self, database: usize) -> Db<'_, 'k> {
        Db::new(self.locked, database, self.clock, self.observed)
    }

    /// The number that SELECT takes.
    #[must_use]
    pub fn index(&self) -> usize {
        self.database
    }

    /// How many databases there are.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.locked.keyspace().databases()
    }

    /// Milliseconds of Unix time, the same for the whole command.
    #[inline]
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms
    }

    /// The time by which keys expire: see [`Clock::due_ms`].
    #[inline]
    #[must_use]
    pub fn due_ms(&self) -> u64 {
        self.clock.due_ms
    }

    /// True while the journal is replayed: times come from another clock, perhaps another machine's.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.clock.due_ms == 0
    }

    /// The command's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        *self.clock
    }

    /// Asks for the memory that looking for these keys will read. They should be few enough for the first-level cache
    /// to keep two lines of each until they are looked for.
    #[inline]
    pub fn prefetch(&self, hashes: impl Iterator<Item = KeyHash> + Clone) {
        self.locked.prefetch(self.database, hashes);
    }

    /// Whether every shard is held, so that any key may be touched.
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

    /// The key's entry without any trace of the look: no access, no hit or miss, nothing removed. Shared, so that
    /// several keys can be looked at together.
    #[inline]
    #[must_use]
    pub fn peek(&self, key: Key<'_>) -> Option<Ref<'_, Entry>> {
        let now = self.clock.due_ms;
        self.shard(key.hash).table.find(key.hash, key.bytes).filter(|e| !e.is_expired(now))
    }

    /// Removes the key if its time has come, for a write; says whether it is gone because of that.
    #[inline(always)]
    fn expire_if_due(&mut self, key: Key<'_>) -> bool {
        self.shard(key.hash).volatile != 0 && self.expire_among_volatile(key, false)
    }

    /// Whether the key's time has come, for a read: it is removed then, if it need not be kept.
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

    /// The key's entry for reading: counts a hit or a miss, and is an access.
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

    /// Whether the key exists, as [`Db::get`], but an access even where others leave no trace (TOUCH).
    pub fn touch(&mut self, key: Key<'_>) -> bool {
        let clock = Clock { access: Access::Noted, ..*self.clock };
        Db::new(self.locked, self.database, &clock, self.observed).get(key).is_some()
    }

    /// What the key holds, for reading: as [`Db::get`].
    #[inline(always)]
    pub fn view(&mut self, key: Key<'_>) -> Option<View<'_>> {
        self.get(key).map(Ref::into_view)
    }

    /// The key's entry for writing: an access, but neither hit nor miss, as in Redis.
    #[inline]
    pub fn get_mut(&mut self, key: Key<'_>) -> Option<RefMut<'_, Entry>> {
        self.expire_if_due(key);
        self.save_before(Change::Altered, key);
        let clock = self.clock;
        let mut entry = self.shard_mut(key.hash).table.find_mut(key.hash, key.bytes)?;
        touch(&mut entry, clock);
        Some(entry)
    }

    /// The key's entry for reading: counts a hit or a miss, but is no access (TTL, TYPE).
    pub fn look(&mut self, key: Key<'_>) -> Option<Ref<'_, Entry>> {
        let database = self.database;
        self.look_or(key, |observed| observed.note_missed(database, key.bytes))
    }

    /// The same without an event when it is missing (OBJECT).
    pub fn look_quietly(&mut self, key: Key<'_>) -> Option<Ref<'_, Entry>> {
        self.look_or(key, |observed| observed.misses += 1)
    }

    #[inline]
    fn look_or(&mut self, key: Key<'_>, note_missing: impl FnOnce(&mut Observed)) -> Option<Ref<'_, Entry>> {
        self.is_due(key);
        match self.peek(key).is_some() {
            true => self.observed.hits += 1,
            false => note_missing(self.observed),
        }
        self.peek(key)
    }

    /// Whether the key exists, as [`Db::look`].
    pub fn exists(&mut self, key: Key<'_>) -> bool {
        self.look(key).is_some()
    }

    /// Whether the key exists, for a command that is to write it: neither a hit nor a miss.
    pub fn exists_for_write(&mut self, key: Key<'_>) -> bool {
        !self.expire_if_due(key) && self.peek(key).is_some()
    }

    /// The key's type.
    #[must_use]
    pub fn kind(&self, key: Key<'_>) -> Option<Type> {
        self.peek(key).map(|e| e.kind())
    }

    /// The key's value as a `T` for reading, if it exists.
    #[inline]
    pub fn object<T: Object>(&mut self, key: Key<'_>) -> Result<Option<&T>, WrongType> {
        match self.view(key) {
            None => Ok(None),
            Some(View::Object(value)) => T::of(value).map(Some).ok_or(WrongType),
            Some(_) => Err(WrongType),
        }
    }

    /// The same without a trace, and shared, so that several keys can be looked at together.
    pub fn peek_object<T: Object>(&self, key: Key<'_>) -> Result<Option<&T>, WrongType> {
        match self.peek(key).map(Ref::into_view) {
            None => Ok(None),
            Some(View::Object(value)) => T::of(value).map(Some).ok_or(WrongType),
            Some(_) => Err(WrongType),
        }
    }

    /// The key's value as a `T` for writing, if it exists.
    #[inline]
    pub fn object_mut<T: Object>(&mut self, key: Key<'_>) -> Result<Option<&mut T>, WrongType> {
        let Some(entry) = self.get_mut(key) else { return Ok(None) };
        entry.into_object().and_then(T::of_mut).map(Some).ok_or(WrongType)
    }

    /// The key's value as a `T` for writing; a key that doesn't exist is created empty. A caller that leaves it empty
    /// removes it again.
    #[inline]
    pub fn object_or_new<T: Object>(&mut self, key: Key<'_>) -> Result<&mut T, WrongType> {
        self.expire_if_due(key);
        self.save_before(Change::Altered, key);
        let (clock, keyspace) = (self.clock, self.locked.keyspace());
        let table = &mut self.locked.shard_mut(self.first, keyspace.shard_of(key.hash)).table;
        let create = || Entry::object(key.bytes, T::empty(), None).born(keyspace.snapshots());
        if table.is_empty() {
            keyspace.mark_keys(self.database);
        }
        let (mut entry, is_new) = table.find_or_insert(key.hash, key.bytes, create);
        if is_new {
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

    /// The same; what the key holds until then is freed in the background, if it is large.
    #[inline]
    pub fn set_string_over(&mut self, key: Key<'_>, value: &[u8], ttl: Ttl) {
        let reaper = self.locked.keyspace().reaper();
        let change = |entry: &mut Entry| {
            empty(entry, reaper);
            entry.set_string(value);
        };
        self.write(key, ttl, change, |key, expiry| Entry::string(key, value, expiry));
    }

    /// Sets the key to a string of which OBJECT ENCODING says "raw", never an integer. What the key holds until then is freed in
    /// the background, if it is large and `lazily` says so.
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
        // An expired key's time must not be kept.
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
        // An expired key's time must not be kept.
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

    /// Sets or removes the key's expiry, in milliseconds of Unix time. Says whether the key exists.
    pub fn set_expiry(&mut self, key: Key<'_>, expiry: Option<u64>) -> bool {
        self.save_before(Change::Altered, key);
        self.change_expiry(key, expiry)
    }

    /// The same of a key that a snapshot has saved, if one runs.
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
            // A note at an earlier time serves as well: when it comes up, the key is noted again for its new time.
            shard.note_expiry(at, key.hash);
        }
        if expiry.is_some() {
            self.locked.keyspace().mark_expiries(self.database);
        }
        true
    }

    /// Takes the key out, expired or not, and gives its entry, which goes to another key.
    pub fn take(&mut self, key: Key<'_>) -> Option<Entry> {
        self.save_before(Change::Altered, key);
        self.take_saved(key)
    }

    /// The same for a caller that does nothing with the entry but free it: a snapshot may keep what it holds.
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

    /// Puts an entry in, under its own key, in place of what was there. The key counts as created in any case, as in
    /// Redis, where RENAME and COPY remove what is there first.
    pub fn put(&mut self, key: Key<'_>, entry: Entry) {
        self.place(key, entry);
        self.observed.note(Event::Created, self.database, key.bytes);
    }

    /// Puts an entry in, under its own key, in place of what was there. Says whether there was nothing.
    fn place(&mut self, key: Key<'_>, mut entry: Entry) -> bool {
        debug_assert_eq!(entry.key(), key.bytes);
        let is_new = self.discard(key).is_none();
        touch(&mut entry, self.clock);
        let expires = entry.expiry().is_some();
        let next_field = entry.timed_hash().and_then(TimedHash::next_expiry);
        let is_first = self.insert(key, entry);
        self.mark_added(is_first, expires);
        if let Some(at) = next_field {
            self.note_field(key.hash, at);
        }
        is_new
    }

    /// Adds an entry whose key isn't there. Says whether it is the shard's first.
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

    /// Makes room for about so many keys in shards that have none yet, for what is loaded. Everything must be held. A number that can't be
    /// relied on costs its memory until keys are removed.
    pub fn expect(&mut self, keys: usize) {
        assert!(self.locked.holds_all(), "room is made alone");
        let shards = self.locked.keyspace().shard_count();
        let each = keys / shards;
        // Of shards that get different numbers, most get this many; those that get more grow.
        let nearly_all_get = each - each.isqrt();
        (0..shards).for_each(|shard| self.locked.shard_mut(self.first, shard).table.expect(nearly_all_get));
    }

    /// Adds an entry as it is, access included, for what is loaded. `hash` is its key's.
    ///
    /// # Errors
    /// Gives it back if there is an entry of this key.
    pub fn restore(&mut self, hash: KeyHash, mut entry: Entry) -> Result<(), Entry> {
        if self.shard(hash).table.find(hash, entry.key()).is_some() {
            return Err(entry);
        }
        let expires = entry.expiry().is_some();
        let next_field = entry.timed_hash().and_then(TimedHash::next_expiry);
        entry.set_mark(self.locked.keyspace().snapshots().mark());
        let is_first = self.add(hash, entry);
        self.mark_added(is_first, expires);
        if let Some(at) = next_field {
            self.note_field(hash, at);
        }
        Ok(())
    }

    /// Notes that a key was created, which may be the first of its shard.
    #[inline]
    fn note_created(&mut self, key: Key<'_>, is_first: bool, expires: bool) {
        self.mark_added(is_first, expires);
        self.observed.note(Event::Created, self.database, key.bytes);
    }

    /// Marks the database as one that has keys, or keys that expire, as an entry was added.
    #[inline]
    fn mark_added(&self, is_first: bool, expires: bool) {
        let keyspace = self.locked.keyspace();
        if is_first {
            keyspace.mark_keys(self.database);
        }
        if expires {
            keyspace.mark_expiries(self.database);
        }
    }

    /// Removes the key. Says whether it existed.
    pub fn remove(&mut self, key: Key<'_>) -> bool {
        !self.expire_if_due(key) && self.discard(key).is_some()
    }

    /// Removes the key in place of an overwrite with nothing. Says whether there was one, though its time may have
    /// come: the expiry isn't checked.
    pub fn remove_overwritten(&mut self, key: Key<'_>) -> bool {
        self.discard(key).is_some()
    }

    /// Removes the key as [`Db::remove`], but frees a large value in the background.
    pub fn unlink(&mut self, key: Key<'_>) -> bool {
        !self.expire_if_due(key) && self.take_and_free(key)
    }

    /// Takes the key out, expired or not, and leaves a large value to the reaper. Says whether there was one.
    fn take_and_free(&mut self, key: Key<'_>) -> bool {
        let entry = self.discard(key);
        let existed = entry.is_some();
        if let Some(entry) = entry {
            self.locked.keyspace().reaper().free_entry(entry);
        }
        existed
    }

    /// Frees what a key holds in the background, if that is large: the key is about to be overwritten, and holds an
    /// empty string until then.
    pub fn empty(&mut self, key: Key<'_>) {
        self.save_before(Change::Lost, key);
        let keyspace = self.locked.keyspace();
        if let Some(mut entry) = self.shard_mut(key.hash).table.find_mut(key.hash, key.bytes) {
            empty(&mut entry, keyspace.reaper());
        }
    }

    /// Leaves what was taken out of a stream to the reaper.
    pub fn free_later(&self, blocks: Blocks) {
        if !blocks.is_empty() {
            self.locked.keyspace().reaper().free(blocks, 0);
        }
    }

    /// As [`Db::scan`] from a cursor on, but visits no expired keys, and removes those of them for which `meets` is
    /// true.
    pub fn scan_living(
        &mut self,
        cursor: u64,
        count: usize,
        meets: impl Fn(&Entry) -> bool,
        mut visit: impl FnMut(&Entry),
    ) -> u64 {
        let (now, mut due) = (self.clock.due_ms, Vec::new());
        let next = self.scan(cursor, count, |entry| match entry.is_expired(now) {
            true if meets(entry) => due.push(Box::<[u8]>::from(entry.key())),
            true => {}
            false => visit(entry),
        });
        due.iter().for_each(|key| self.remove_due(key));
        next
    }

    /// Removes a key that was met after its time, if it need not be kept: at once if everything is held, else later
    /// (see [`Observed::due`]).
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

    /// Removes the key if its time has come. Its shard is held.
    pub fn expire(&mut self, key: Key<'_>) {
        self.expire_if_due(key);
    }

    /// Visits keys from a cursor on, at least `count` buckets' worth, and gives the cursor to go on with; 0 is both
    /// the beginning and the end. The cursor carries the shard's number in its low bits.
    pub fn scan(&mut self, cursor: u64, count: usize, mut visit: impl FnMut(&Entry)) -> u64 {
        if !self.locked.keyspace().had_keys(self.database) {
            return 0;
        }
        let shards = self.locked.keyspace().shard_count();
        let bits = shards.trailing_zeros();
        let mut shard = cursor as usize & (shards - 1);
        let mut at = cursor >> bits;
        let (mut seen, mut steps) = (0, 0);
        while shard < shards {
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
            // An almost empty table must not make one call walk all of it, nor a client call for every empty bucket.
            if seen >= count || steps >= count.saturating_mul(10).max(shards) {
                break;
            }
        }
        if shard == shards { 0 } else { at << bits | shard as u64 }
    }

    /// Keys of the database, including expired ones that aren't removed yet, and how many of them have an expiry.
    pub fn sizes(&mut self) -> (usize, usize) {
        let mut sizes = (0, 0);
        if !self.locked.keyspace().had_keys(self.database) {
            return sizes;
        }
        for shard in 0..self.locked.keyspace().shard_count() {
            self.locked.visit(self.database, shard, |s| {
                sizes.0 += s.table.len();
                sizes.1 += s.volatile;
            });
        }
        sizes
    }

    /// Figures of the whole database.
    pub fn survey(&mut self) -> Survey {
        /// Keys of a shard that the mean is estimated from.
        const SAMPLES: usize = 16;
        let now = self.clock.now_ms;
        let mut survey = Survey::default();
        if !self.locked.keyspace().had_keys(self.database) {
            return survey;
        }
        let mut ttl_ms: u128 = 0;
        for shard in 0..self.locked.keyspace().shard_count() {
            self.locked.visit(self.database, shard, |s| {
                survey.keys += s.table.len();
                survey.volatile += s.volatile;
                survey.timed_hashes += s.count_timed_hashes();
                survey.overhead_bytes += s.table.memory_bytes() + s.queue_bytes();
                ttl_ms += u128::from(s.queue.mean_left_ms(now, SAMPLES)) * s.volatile as u128;
            });
        }
        survey.ttl_ms_mean = ttl_ms.checked_div(survey.volatile as u128).unwrap_or(0) as u64;
        survey
    }

    /// A key picked evenly among those that have not expired; none if there is none. Expired ones that it meets are
    /// removed, if they need not be kept.
    pub fn pick(&mut self, random: &mut dyn FnMut() -> u64) -> Option<Box<[u8]>> {
        /// Expired keys that a pick may meet before it takes the first living one that it finds.
        const TRIES: usize = 100;
        let total = self.sizes().0;
        if total == 0 {
            return None;
        }
        for _ in 0..TRIES {
            match self.pick_any(total, random) {
                Some((key, false)) => return Some(key),
                Some((key, true)) => self.remove_due(&key),
                None => {}
            }
        }
        self.first_living(random)
    }

    /// The first living key from a random shard on. Expired ones before it are removed, if they need not be kept.
    fn first_living(&mut self, random: &mut dyn FnMut() -> u64) -> Option<Box<[u8]>> {
        let (now, shards) = (self.clock.due_ms, self.locked.keyspace().shard_count());
        let first = random() as usize % shards;
        for shard in (0..shards).map(|i| (first + i) % shards) {
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

    /// A key picked evenly among all, of which there are `total`, and whether it has expired. None if others have
    /// removed some meanwhile, or a shard can't be had.
    fn pick_any(&mut self, total: usize, random: &mut dyn FnMut() -> u64) -> Option<(Box<[u8]>, bool)> {
        let now = self.clock.due_ms;
        let mut nth = ((u128::from(random()) * total as u128) >> 64) as usize;
        for shard in 0..self.locked.keyspace().shard_count() {
            let picked = self.locked.visit(self.database, shard, |s| {
                if nth >= s.table.len() {
                    nth -= s.table.len();
                    return None;
                }
                s.table.pick(random).map(|e| (e.key().into(), e.is_expired(now)))
            })?;
            if picked.is_some() {
                return picked;
            }
        }
        None
    }

    /// Removes all keys and gives how many there were. Everything must be held. `lazily`: the memory is freed in the
    /// background.
    pub fn flush(&mut self, lazily: bool) -> usize {
        assert!(self.locked.holds_all(), "databases are emptied alone");
        let keyspace = self.locked.keyspace();
        if !keyspace.had_keys(self.database) {
            return 0;
        }
        let (mut emptied, mut count) = (Vec::new(), 0);
        for shard in 0..keyspace.shard_count() {
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

    /// Moves what `mover` wants moved in one step of a shard, from a cursor on; keys whose values are too large for one
    /// go are told. Gives the cursor of the next step; 0 is the beginning, and the end.
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

    /// The same of one large value, if the key still has it.
    pub fn compact_large(&mut self, key: Key<'_>, cursor: u64, mover: &mut Mover<'_>) -> u64 {
        let found = self.shard_mut(key.hash).table.find_mut(key.hash, key.bytes);
        found.and_then(RefMut::into_object).map_or(0, |value| value.compact_step(cursor, mover))
    }

    /// Removes up to `limit` keys of a shard whose time has come, or fields of hashes. Says whether there may be more.
    pub fn reclaim(&mut self, shard: usize, limit: usize) -> bool {
        self.reclaim_keys(shard, limit) || self.reclaim_fields(shard, limit)
    }

    fn reclaim_keys(&mut self, shard: usize, limit: usize) -> bool {
        let (now, database) = (self.clock.due_ms, self.database);
        let observed = &mut *self.observed;
        let reaper = self.locked.keyspace().reaper();
        let more = self.locked.visit_with_saver(database, shard, |s, mut saving| {
            for _ in 0..limit {
                let Some(note) = s.queue.pop_due(now) else { return false };
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

/// Frees in the background what an entry holds, if that is large. It holds an empty string then.
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
