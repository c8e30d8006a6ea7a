//! One call of a command: what its handler sees.

use resp::num;
use resp::reply::Reply;
use resp::request::{Args, OwnedArgs};
use store::db::{Db, Ttl};
use store::hash::KeyHash;
use store::keyspace::Key;
use store::random::Random;
use store::types::hash::HashLimits;
use store::types::list::ListLimits;
use store::types::set::SetLimits;
use store::types::stream::{IdentityLimits, StreamLimits};
use store::types::zset::ZSetLimits;

use crate::effects::{Class, Concerns, Effects};
use crate::error::Error;

/// A key of the call, hashed when the batch was planned.
#[derive(Clone, Copy, Debug)]
pub struct KeyRef {
    /// The argument that it is.
    pub arg: u32,
    /// Its hash.
    pub hash: KeyHash,
}

/// How many keys are prefetched together. Each takes two cache lines, which must stay in the first-level cache until
/// they are used, beside everything else that is read.
pub const KEYS_AHEAD: usize = 64;
/// A command with more keys prefetches them once it holds their shards; one with fewer is prefetched with its batch.
pub const KEYS_IN_BATCH: usize = 16;

/// Which commands leave large values to be freed in the background. UNLINK and FLUSHALL ASYNC always do.
#[derive(Clone, Copy, Debug, Default)]
pub struct LazyFree {
    /// DEL and other commands that delete what they name (lazyfree-lazy-user-del).
    pub user_del: bool,
    /// FLUSHALL and FLUSHDB, if they don't say (lazyfree-lazy-user-flush).
    pub user_flush: bool,
    /// Commands that overwrite a key (lazyfree-lazy-server-del).
    pub server_del: bool,
}

/// Figures of the configuration that handlers go by.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Bytes that a string may have (proto-max-bulk-len).
    pub string_bytes_max: usize,
    /// When a list's block is full.
    pub list: ListLimits,
    /// How large the small forms of a set may be.
    pub set: SetLimits,
    /// How large the small form of a hash may be.
    pub hash: HashLimits,
    /// How large the small form of a sorted set may be.
    pub zset: ZSetLimits,
    /// When a stream's block is full.
    pub stream: StreamLimits,
    /// Entries of a full block; no limit, if 0.
    pub stream_block_entries: usize,
    /// What a new stream keeps of producers' messages (stream-idmp-duration, stream-idmp-maxsize).
    pub identities: IdentityLimits,
    /// Bytes that a HyperLogLog may have in the sparse form (hll-sparse-max-bytes).
    pub hll_sparse_bytes_max: usize,
    /// Which kinds of deletion free large values in the background.
    pub lazy_free: LazyFree,
    /// Whether small integers count as shared objects (OBJECT REFCOUNT). Redis shares none while eviction goes by the
    /// use of each.
    pub shares_integers: bool,
    /// Whether SORT may not look up the keys that its patterns lead to: the user of the session that runs it may not read
    /// every key. True only while such a command runs.
    pub denies_lookups: bool,
}

impl Rules {
    /// Up to which size collections are small, for values that are read from their bytes.
    #[must_use]
    pub fn limits(&self) -> format::Limits {
        format::Limits { list: self.list, set: self.set, hash: self.hash, zset: self.zset }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            string_bytes_max: 512 * 1024 * 1024,
            list: ListLimits::default(),
            set: SetLimits::default(),
            hash: HashLimits::default(),
            zset: ZSetLimits::default(),
            stream: StreamLimits::default(),
            stream_block_entries: 100,
            identities: IdentityLimits::default(),
            hll_sparse_bytes_max: 3000,
            lazy_free: LazyFree::default(),
            shares_integers: true,
            denies_lookups: false,
        }
    }
}

/// What a blocking command answers when it may not wait, within a transaction or a script. When its time is up, the
/// answer is [`TimeoutReply::NullArray`] whatever the command, as in Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeoutReply {
    /// Nothing, where a value would be.
    Null,
    /// Nothing, where an array would be.
    NullArray,
}

/// That a call found nothing and wants to be run again when one of its keys changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// When to give up, in milliseconds from when the wait begins; never, if none. What a call that is run again asks
    /// for is of no account: the wait keeps the end that it began with.
    pub timeout_ms: Option<u64>,
    /// What to answer at once if it may not wait.
    pub reply: TimeoutReply,
    /// When to run it again though no key has changed, in milliseconds of Unix time; never, if none.
    pub again_ms: Option<u64>,
}

/// One call of a command.
pub struct Call<'c, 'l, 'k> {
    /// The arguments; the name (of a subcommand: the container's) is the first. By reference, on all of a command's
    /// way: a copy of it that is made as soon as it has been put together waits until that has arrived.
    pub args: &'c Args<'c>,
    /// The selected database.
    pub db: Db<'l, 'k>,
    /// Where the reply goes.
    pub reply: Reply<'c>,
    /// The journal.
    pub effects: &'c mut Effects,
    /// Figures of the configuration.
    pub rules: &'c Rules,
    /// Randomness.
    pub random: &'c mut Random,
    /// The keys in the order of their arguments, already hashed.
    pub keys: &'c [KeyRef],
    /// Whether a script or a function has called it.
    pub in_script: bool,
    /// Set by a blocking command that found nothing; it has then written no reply.
    pub wait: Option<Wait>,
}

impl<'c> Call<'c, '_, '_> {
    /// The argument at `index`, the name being at 0.
    #[inline]
    #[must_use]
    pub fn arg(&self, index: usize) -> &'c [u8] {
        self.args.get(index)
    }

    /// How many arguments there are, the name included.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether there is nothing but the name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.args.len() <= 1
    }

    /// The argument at `index` as a key.
    #[inline]
    #[must_use]
    pub fn key(&self, index: usize) -> Key<'c> {
        let bytes = self.arg(index);
        // The first key and, with keys in a row, the `index - first`-th are where one looks at once.
        let guess = self.keys.first().map_or(0, |k| index.wrapping_sub(k.arg as usize));
        match self.keys.get(guess) {
            Some(key) if key.arg as usize == index => Key { bytes, hash: key.hash },
            _ => self.find_key(index),
        }
    }

    fn find_key(&self, index: usize) -> Key<'c> {
        let bytes = self.arg(index);
        match self.keys.iter().find(|k| k.arg as usize == index) {
            Some(key) => Key { bytes, hash: key.hash },
            None => Key::new(bytes),
        }
    }

    /// Every key that the command's entry names, in the order of the arguments, in windows: the memory that looking for
    /// a window's keys reads is asked for together, by [`Call::enter`], shortly before. That of the first has been.
    #[inline]
    pub fn windows(&self) -> impl Iterator<Item = &'c [KeyRef]> + use<'c> {
        self.keys.chunks(KEYS_AHEAD)
    }

    /// Asks for the memory that looking for a window's keys will read, unless it is the first.
    #[inline]
    pub fn enter(&self, window: &[KeyRef]) {
        if self.keys.first().map(|key| key.arg) != window.first().map(|key| key.arg) {
            self.db.prefetch(window.iter().map(|key| key.hash));
        }
    }

    /// A key of the call with its bytes.
    #[inline]
    #[must_use]
    pub fn key_of(&self, key: &KeyRef) -> Key<'c> {
        Key { bytes: self.args.get(key.arg as usize), hash: key.hash }
    }

    /// Every key that the command's entry names, in the order of the arguments.
    pub fn each_key(&self) -> impl ExactSizeIterator<Item = Key<'c>> + Clone + use<'c> {
        let args = self.args;
        self.keys.iter().map(move |k| Key { bytes: args.get(k.arg as usize), hash: k.hash })
    }

    /// Whether the argument at `index` is this word, in whatever case.
    #[inline]
    #[must_use]
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.arg(index).eq_ignore_ascii_case(word.as_bytes())
    }

    /// The argument at `index` as an integer.
    #[inline]
    pub fn int(&self, index: usize) -> Result<i64, Error> {
        num::parse_i64(self.arg(index)).ok_or(Error::NOT_INTEGER)
    }

    /// The argument at `index` as a floating point number.
    pub fn float(&self, index: usize) -> Result<f64, Error> {
        num::parse_f64(self.arg(index)).ok_or(Error::NOT_FLOAT)
    }

    /// Deletes a key that the client named, and notes that. Says whether it existed.
    pub fn delete(&mut self, key: Key<'_>) -> bool {
        let lazily = self.rules.lazy_free.user_del;
        let existed = if lazily { self.db.unlink(key) } else { self.db.remove(key) };
        if existed {
            self.changed(key, Class::Generic, "del");
        }
        existed
    }

    /// Deletes a key because an empty result was stored in it, and notes that. As in Redis, the key's expiry isn't
    /// checked first, so an expired key counts as deleted, too. Watchers aren't told of that: EXEC compares with what
    /// WATCH saw.
    pub fn store_nothing(&mut self, key: Key<'_>) {
        let concerns = if self.db.peek(key).is_some() { Concerns::All } else { Concerns::Waiters };
        if self.db.remove_overwritten(key) {
            self.changed_for(concerns, key, Class::Generic, "del");
        }
    }

    /// To be called before a key is overwritten: frees what it holds in the background, if the rules say so.
    #[inline]
    pub fn overwrite(&mut self, key: Key<'_>) {
        if self.rules.lazy_free.server_del {
            self.db.empty(key);
        }
    }

    /// Sets a key to a string, whatever it holds: as [`Call::overwrite`] and [`Db::set_string`], with one look for the
    /// key.
    #[inline]
    pub fn set_string(&mut self, key: Key<'_>, value: &[u8], ttl: Ttl) {
        if self.rules.lazy_free.server_del {
            self.db.set_string_over(key, value, ttl);
        } else {
            self.db.set_string(key, value, ttl);
        }
    }

    /// The same for a string of which OBJECT ENCODING says "raw", never an integer.
    pub fn set_raw(&mut self, key: Key<'_>, value: &[u8], ttl: Ttl) {
        self.db.set_raw(key, value, ttl, self.rules.lazy_free.server_del);
    }

    /// Notes that the command changed a key, and the event that it is. It counts as one change.
    #[inline]
    pub fn changed(&mut self, key: Key<'_>, class: Class, event: &'static str) {
        self.effects.changed(self.db.index(), key.bytes, class, event);
    }

    /// The same for something that counts as so many changes, as the number of elements added or removed.
    #[inline]
    pub fn changed_by(&mut self, count: usize, key: Key<'_>, class: Class, event: &'static str) {
        self.effects.count(count as u64);
        self.event(key, class, event);
    }

    /// [`Call::changed`] for a change that concerns only some listeners.
    #[inline]
    pub fn changed_for(&mut self, concerns: Concerns, key: Key<'_>, class: Class, event: &'static str) {
        self.effects.count(1);
        self.event_for(concerns, key, class, event);
    }

    /// Notes an event beside a change that has been counted.
    #[inline]
    pub fn event(&mut self, key: Key<'_>, class: Class, event: &'static str) {
        self.event_for(Concerns::All, key, class, event);
    }

    /// The event of RENAME's or MOVE's old key. The new key exists already; its own event comes next.
    pub fn moved_from(&mut self, key: Key<'_>, class: Class, event: &'static str) {
        self.effects.moved_from(self.db.index(), key.bytes, class, event);
    }

    /// [`Call::event`] for an event that concerns only some listeners.
    #[inline]
    pub fn event_for(&mut self, concerns: Concerns, key: Key<'_>, class: Class, event: &'static str) {
        self.effects.event_for(concerns, self.db.index(), key.bytes, class, event);
    }

    /// True if the journal has a reader, so that [`Call::record_as`] is worth preparing for.
    #[inline]
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.effects.recording
    }

    /// Has the journal reproduce the call by this command, which begins with its name; by several, if called again.
    pub fn record_as(&mut self, words: &[&[u8]]) {
        self.effects.record_as(self.db.index(), words.iter().copied());
    }

    /// Has the journal reproduce the call by the key's present value and expiry, which it was just given.
    pub fn record_set(&mut self, key: Key<'_>, value: &[u8], ttl: Ttl) {
        if self.is_recorded() {
            match ttl {
                Ttl::Keep => self.record_as(&[b"SET", key.bytes, value, b"KEEPTTL"]),
                Ttl::Clear => self.record_as(&[b"SET", key.bytes, value]),
                Ttl::At(at) => self.record_as(&[b"SET", key.bytes, value, b"PXAT", num::IntText::new().u64(at)]),
            }
        }
    }

    /// Has the journal reproduce the call by the key's new expiry, in milliseconds of Unix time.
    pub fn record_expiry(&mut self, key: Key<'_>, at: u64) {
        if self.is_recorded() {
            self.record_as(&[b"PEXPIREAT", key.bytes, num::IntText::new().u64(at)]);
        }
    }

    /// Asks for the call to be run again when one of its keys changes. The handler must have written no reply.
    pub fn wait(&mut self, timeout_ms: Option<u64>, reply: TimeoutReply) {
        self.wait = Some(Wait { timeout_ms, reply, again_ms: None });
        self.effects.again = None;
    }

    /// The same, but when it is run again, it is with these arguments: what "now" meant in its own is settled.
    pub fn wait_as(&mut self, timeout_ms: Option<u64>, reply: TimeoutReply, args: OwnedArgs) {
        self.wait(timeout_ms, reply);
        self.effects.again = Some(args);
    }
}
