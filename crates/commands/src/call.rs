//! One call of a command, as its handler sees it.

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

/// A key of the call, hashed while the batch was planned.
#[derive(Clone, Copy, Debug)]
pub struct KeyRef {
    /// Index of the argument that holds the key.
    pub arg: u32,
    /// Hash of the key.
    pub hash: KeyHash,
}

/// Number of keys that are prefetched together. Each takes two cache lines; all of them must stay in the first-level
/// cache, beside other data, until they are used.
pub const KEYS_AHEAD: usize = 64;
/// Limit for prefetching keys with the batch. A command with more keys prefetches them itself, once it holds their
/// shards.
pub const KEYS_IN_BATCH: usize = 16;

/// Kinds of deletion that free large values in the background. UNLINK and FLUSHALL ASYNC always do.
#[derive(Clone, Copy, Debug, Default)]
pub struct LazyFree {
    /// DEL and other commands that delete keys at the user's request (lazyfree-lazy-user-del).
    pub user_del: bool,
    /// FLUSHALL and FLUSHDB without SYNC or ASYNC (lazyfree-lazy-user-flush).
    pub user_flush: bool,
    /// Commands that overwrite a key (lazyfree-lazy-server-del).
    pub server_del: bool,
}

/// Settings that handlers depend on.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Largest size of a string, in bytes (proto-max-bulk-len).
    pub string_bytes_max: usize,
    /// Size of a full list block.
    pub list: ListLimits,
    /// Largest sizes of a set's compact encodings.
    pub set: SetLimits,
    /// Largest size of a hash's compact encoding.
    pub hash: HashLimits,
    /// Largest size of a sorted set's compact encoding.
    pub zset: ZSetLimits,
    /// Size of a full stream block.
    pub stream: StreamLimits,
    /// Number of entries in a full block; 0 means no limit.
    pub stream_block_entries: usize,
    /// Retention of producers' message ids in a new stream (stream-idmp-duration, stream-idmp-maxsize).
    pub identities: IdentityLimits,
    /// Largest size of a HyperLogLog in the sparse form, in bytes (hll-sparse-max-bytes).
    pub hll_sparse_bytes_max: usize,
    /// Kinds of deletion that free large values in the background.
    pub lazy_free: LazyFree,
    /// True if small integers count as shared objects (OBJECT REFCOUNT). Redis shares none while its eviction policy
    /// tracks the use of each object.
    pub shares_integers: bool,
    /// True if RESTORE accepts payloads with a wrong checksum (DEBUG SET-SKIP-CHECKSUM-VALIDATION).
    pub skips_checksums: bool,
    /// True if SORT must not look up keys through its patterns, because the session's user may not read every key. True
    /// only while such a command runs.
    pub denies_lookups: bool,
}

impl Rules {
    /// Size limits of compact encodings, for values that are decoded from bytes.
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
            skips_checksums: false,
            denies_lookups: false,
        }
    }
}

/// Reply of a blocking command that may not block because it runs inside a transaction or a script. After a timeout,
/// the reply is [`TimeoutReply::NullArray`] for every command, as in Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeoutReply {
    /// Null in place of a value.
    Null,
    /// Null in place of an array.
    NullArray,
}

/// Request of a call that found nothing: run it again when one of its keys changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// Timeout in milliseconds from the start of the wait; never, if none. A retried call keeps the original deadline;
    /// its own timeout is ignored.
    pub timeout_ms: Option<u64>,
    /// Immediate reply if the call may not block.
    pub reply: TimeoutReply,
    /// Time of an extra retry without a change of a key, in milliseconds of Unix time; never, if none.
    pub again_ms: Option<u64>,
}

/// One call of a command.
pub struct Call<'c, 'l, 'k> {
    /// The arguments, beginning with the name (for a subcommand, the container's name). All stages of a command pass
    /// them by reference: a copy made right after they were built would stall until those stores complete.
    pub args: &'c Args<'c>,
    /// The selected database.
    pub db: Db<'l, 'k>,
    /// Writer of the reply.
    pub reply: Reply<'c>,
    /// Journal of the call's effects.
    pub effects: &'c mut Effects,
    /// Settings that handlers depend on.
    pub rules: &'c Rules,
    /// Source of randomness.
    pub random: &'c mut Random,
    /// The keys in the order of their arguments, already hashed.
    pub keys: &'c [KeyRef],
    /// True if a script or a function called the command.
    pub in_script: bool,
    /// Set by a blocking command that found nothing. Such a command has written no reply.
    pub wait: Option<Wait>,
}

impl<'c> Call<'c, '_, '_> {
    /// The argument at `index`; index 0 is the name.
    #[inline]
    #[must_use]
    pub fn arg(&self, index: usize) -> &'c [u8] {
        self.args.get(index)
    }

    /// Number of arguments, including the name.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// True if there are no arguments besides the name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.args.len() <= 1
    }

    /// The argument at `index` as a key.
    #[inline]
    #[must_use]
    pub fn key(&self, index: usize) -> Key<'c> {
        let bytes = self.arg(index);
        // A single key, or keys in consecutive arguments, are found with the first try.
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

    /// All keys that the command's entry names, in the order of the arguments, split into windows. The caller calls
    /// [`Call::enter`] before it looks up a window's keys. The engine has prefetched the first window.
    #[inline]
    pub fn windows(&self) -> impl Iterator<Item = &'c [KeyRef]> + use<'c> {
        self.keys.chunks(KEYS_AHEAD)
    }

    /// Prefetches the memory that lookups of a window's keys will read, unless it is the first window.
    #[inline]
    pub fn enter(&self, window: &[KeyRef]) {
        if self.keys.first().map(|key| key.arg) != window.first().map(|key| key.arg) {
            self.db.prefetch(window.iter().map(|key| key.hash));
        }
    }

    /// Returns a key of the call with its bytes.
    #[inline]
    #[must_use]
    pub fn key_of(&self, key: &KeyRef) -> Key<'c> {
        Key { bytes: self.args.get(key.arg as usize), hash: key.hash }
    }

    /// All keys that the command's entry names, in the order of the arguments.
    pub fn each_key(&self) -> impl ExactSizeIterator<Item = Key<'c>> + Clone + use<'c> {
        let args = self.args;
        self.keys.iter().map(move |k| Key { bytes: args.get(k.arg as usize), hash: k.hash })
    }

    /// True if the argument at `index` is this word, ignoring case.
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

    /// Deletes a key that the client named, and records the deletion. Returns true if the key existed.
    pub fn delete(&mut self, key: Key<'_>) -> bool {
        let lazily = self.rules.lazy_free.user_del;
        let existed = if lazily { self.db.unlink(key) } else { self.db.remove(key) };
        if existed {
            self.changed(key, Class::Generic, "del");
        }
        existed
    }

    /// Deletes a key because the command stored an empty result in it, and records the deletion. As in Redis, the key's
    /// expiry isn't checked first, so an expired key also counts as deleted. Watchers aren't notified in that case: EXEC
    /// compares the key with its state at WATCH.
    pub fn store_nothing(&mut self, key: Key<'_>) {
        let concerns = if self.db.peek(key).is_some() { Concerns::All } else { Concerns::Waiters };
        if self.db.remove_overwritten(key) {
            self.changed_for(concerns, key, Class::Generic, "del");
        }
    }

    /// Frees the old value in the background, if the settings say so. Call this before a key is overwritten.
    #[inline]
    pub fn overwrite(&mut self, key: Key<'_>) {
        if self.rules.lazy_free.server_del {
            self.db.empty(key);
        }
    }

    /// Sets a key to a string, replacing a value of any type. Does the work of [`Call::overwrite`] and
    /// [`Db::set_string`] with one lookup of the key.
    #[inline]
    pub fn set_string(&mut self, key: Key<'_>, value: &[u8], ttl: Ttl) {
        if self.rules.lazy_free.server_del {
            self.db.set_string_over(key, value, ttl);
        } else {
            self.db.set_string(key, value, ttl);
        }
    }

    /// Sets a key to a string with encoding "raw" (OBJECT ENCODING), even if it looks like an integer.
    pub fn set_raw(&mut self, key: Key<'_>, value: &[u8], ttl: Ttl) {
        self.db.set_raw(key, value, ttl, self.rules.lazy_free.server_del);
    }

    /// Records that the command changed a key, with the change's event. Counts as one change.
    #[inline]
    pub fn changed(&mut self, key: Key<'_>, class: Class, event: &'static str) {
        self.effects.changed(self.db.index(), key.bytes, class, event);
    }

    /// Like [`Call::changed`], but counts `count` changes, for example the number of elements added or removed.
    #[inline]
    pub fn changed_by(&mut self, count: usize, key: Key<'_>, class: Class, event: &'static str) {
        self.effects.count(count as u64);
        self.event(key, class, event);
    }

    /// Like [`Call::changed`], for a change that concerns only some listeners.
    #[inline]
    pub fn changed_for(&mut self, concerns: Concerns, key: Key<'_>, class: Class, event: &'static str) {
        self.effects.count(1);
        self.event_for(concerns, key, class, event);
    }

    /// Records an event without counting a change.
    #[inline]
    pub fn event(&mut self, key: Key<'_>, class: Class, event: &'static str) {
        self.event_for(Concerns::All, key, class, event);
    }

    /// Records the event of the old key of RENAME or MOVE. The new key exists already; its own event comes next.
    pub fn moved_from(&mut self, key: Key<'_>, class: Class, event: &'static str) {
        self.effects.moved_from(self.db.index(), key.bytes, class, event);
    }

    /// Like [`Call::event`], for an event that concerns only some listeners.
    #[inline]
    pub fn event_for(&mut self, concerns: Concerns, key: Key<'_>, class: Class, event: &'static str) {
        self.effects.event_for(concerns, self.db.index(), key.bytes, class, event);
    }

    /// True if the journal has a reader, and a call of [`Call::record_as`] is therefore useful.
    #[inline]
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.effects.recording
    }

    /// Makes the journal reproduce the call by this command. `words` begins with the name. Several calls record several
    /// commands.
    pub fn record_as(&mut self, words: &[&[u8]]) {
        self.effects.record_as(self.db.index(), words.iter().copied());
    }

    /// Makes the journal reproduce the call by the key's new value and expiry.
    pub fn record_set(&mut self, key: Key<'_>, value: &[u8], ttl: Ttl) {
        if self.is_recorded() {
            match ttl {
                Ttl::Keep => self.record_as(&[b"SET", key.bytes, value, b"KEEPTTL"]),
                Ttl::Clear => self.record_as(&[b"SET", key.bytes, value]),
                Ttl::At(at) => self.record_as(&[b"SET", key.bytes, value, b"PXAT", num::IntText::new().u64(at)]),
            }
        }
    }

    /// Makes the journal reproduce the call by the key's new expiry, in milliseconds of Unix time.
    pub fn record_expiry(&mut self, key: Key<'_>, at: u64) {
        if self.is_recorded() {
            self.record_as(&[b"PEXPIREAT", key.bytes, num::IntText::new().u64(at)]);
        }
    }

    /// Asks the engine to run the call again when one of its keys changes. The handler must have written no reply.
    pub fn wait(&mut self, timeout_ms: Option<u64>, reply: TimeoutReply) {
        self.wait = Some(Wait { timeout_ms, reply, again_ms: None });
        self.effects.again = None;
    }

    /// Like [`Call::wait`], but the retry uses `args`, which have relative arguments (the current end of a stream)
    /// resolved.
    pub fn wait_as(&mut self, timeout_ms: Option<u64>, reply: TimeoutReply, args: OwnedArgs) {
        self.wait(timeout_ms, reply);
        self.effects.again = Some(args);
    }
}
