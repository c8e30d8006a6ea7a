//! Writer of snapshots. Every function appends to a buffer, so a snapshot can be written in steps and by several
//! threads.
//!
//! ```text
//! a hash with fields that expire, at times in milliseconds of Unix time (little endian):
//! type 24: | a time not later than the earliest, i64 | count | for each field: 0, or 1 and by how much it expires later; field; value |
//! type 25: | the same | listpack of fields, values and times in turn, in the order of times; 0: never |
//! type 22 of Valkey: | count | for each field: field; value; its time, i64, -1: never |
//! ```

mod stream;
#[cfg(test)]
mod tests;

use resp::num::{FloatText, IntText, SeventeenDigits};
use store::entry::{Entry, View};
use store::types::hash::Hash;
use store::types::list::List;
use store::types::packed::{self, Item, Packed};
use store::types::set::Set;
use store::types::timed_hash::TimedHash;
use store::types::zset::{self, ZSet};
use store::value::Value;

use super::{NODE_PACKED, NODE_PLAIN, code, head, opcode};
use crate::crc64::Crc64;
use crate::lzf::Compressor;
use crate::{intset, listpack};

/// The oldest server that must be able to read the snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Target {
    /// Redis 7.0 and all later servers: version 10.
    #[default]
    Redis70,
    /// Redis 7.2, Valkey 7.2 and later: version 11, which stores small sets as listpacks.
    Redis72,
    /// Valkey 9 and later: version 80 of Valkey's format, which has times of fields in a form of its own.
    Valkey90,
}

impl Target {
    /// Version of the format.
    #[must_use]
    pub fn version(self) -> u16 {
        match self {
            Target::Redis70 => 10,
            Target::Redis72 => 11,
            Target::Valkey90 => 80,
        }
    }

    /// Appends a score to the items of a listpack, as text like Redis: with 17 digits for 7.0, with the shortest text for later versions.
    fn append_score(self, items: &mut Vec<u8>, score: f64) {
        match self {
            Target::Redis70 if score.is_finite() => {
                let text = SeventeenDigits::new(score);
                match Item::from(text.as_bytes()) {
                    Item::Str(_) => packed::append_short_str(items, text.padded()),
                    item => packed::append_item(items, item),
                }
            }
            _ => packed::append_item(items, Item::from(FloatText::new(score).as_bytes())),
        }
    }
}

/// Options of a [`Writer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The target servers.
    pub target: Target,
    /// True to compress strings of more than 20 bytes (`rdbcompression`).
    pub compress: bool,
    /// True to write the expiry times of fields. Servers without field expiry read such hashes without the times.
    pub field_times: bool,
}

impl Default for Options {
    /// Redis's default configuration.
    fn default() -> Self {
        Options { target: Target::default(), compress: true, field_times: true }
    }
}

/// Information about a key's use, for eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Nothing.
    #[default]
    Unknown,
    /// Number of seconds since its last use.
    IdleSeconds(u64),
    /// Frequency of use, as the logarithmic counter of Redis's LFU.
    Frequency(u8),
}

/// A collection that is written in parts: first its head, then each part with the named function, as often as stated
/// here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collection {
    /// [`Writer::field`] for each of this number of fields.
    Hash(u64),
    /// [`Writer::timed_field`] for each of this number of fields, some of which expire. The second number is a time
    /// that must not be later than any field's expiry.
    TimedHash(u64, u64),
    /// [`Writer::element`] for each of this number of members.
    Set(u64),
    /// [`Writer::member`] for each of this number of members. Descending order of scores loads fastest in Redis.
    ZSet(u64),
    /// [`Writer::list_block`] for each of this number of blocks ([`List::blocks`]).
    List(u64),
    /// [`Writer::element`] for each of this number of elements of a list, in order.
    Elements(u64),
    /// [`Writer::suggestion`] for each of this number of suggestions, then [`Writer::suggestions_end`].
    Suggestions(u64),
    /// [`Writer::stream_block`] for each of this number of blocks, then [`Writer::stream_rest`]. The flag is set if the
    /// stream has producers.
    Stream(u64, bool),
}

/// First version with expiries of fields: Redis 7.4's.
const TIMED_FIELDS_VERSION: u16 = 12;
/// First version with producers of streams: Redis 8.6's.
const PRODUCERS_VERSION: u16 = 13;
/// Minimum size of a string, in bytes, that gets its own node instead of a listpack, as in Redis.
const PLAIN_NODE_BYTES_MIN: usize = 1 << 30;
/// Two lengths, and the footer of a payload.
const SPARE_BYTES: usize = 32;
/// Largest size of a string that may be an integer.
const INT_BYTES_MAX: usize = 11;
/// Largest magnitude of a score that Redis stores as an integer.
const INT_SCORE_MAX: f64 = (i64::MAX / 2) as f64;

/// Writes the parts of a snapshot. The caller joins the buffers and computes the checksum ([`trailer`]).
pub struct Writer {
    options: Options,
    compressor: Compressor,
    /// The block that is being built.
    block: Vec<u8>,
}

/// Returns the bytes after [`Writer::end`]: the checksum of everything before, or 0 without a checksum (`rdbchecksum
/// no`).
#[must_use]
pub fn trailer(sum: Option<&Crc64>) -> [u8; 8] {
    sum.map_or(0, Crc64::value).to_le_bytes()
}

impl Writer {
    /// Creates a writer with these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Writer { options, compressor: Compressor::new(), block: Vec::new() }
    }

    /// Version of the written format.
    fn version(&self) -> u16 {
        self.options.target.version()
    }

    /// The lowest version that supports values of this type.
    pub(crate) fn version_of(&self, code: u8) -> u16 {
        match code {
            code::HASH_EXPIRING | code::HASH_LISTPACK_EXPIRING => self.version().max(TIMED_FIELDS_VERSION),
            code::STREAM_4 => self.version().max(PRODUCERS_VERSION),
            _ => self.version(),
        }
    }

    /// Writes the beginning of a file. `has_timed_fields` must be true if the file may contain hashes with expiring
    /// fields, which older servers can't read.
    pub fn header(&self, out: &mut Vec<u8>, has_timed_fields: bool) {
        let version = if has_timed_fields { self.version().max(TIMED_FIELDS_VERSION) } else { self.version() };
        let magic = match self.options.target {
            Target::Redis70 | Target::Redis72 => format!("REDIS{version:04}"),
            Target::Valkey90 => format!("VALKEY{version:03}"),
        };
        out.extend_from_slice(magic.as_bytes());
    }

    /// Writes a fact about the file, which a reader may ignore.
    pub fn aux(&mut self, out: &mut Vec<u8>, name: &[u8], text: &[u8]) {
        out.push(opcode::AUX);
        self.string(out, name);
        self.string(out, text);
    }

    /// Writes the text of a function library.
    pub fn function(&mut self, out: &mut Vec<u8>, text: &[u8]) {
        out.push(opcode::FUNCTION);
        self.string(out, text);
    }

    /// Selects the database of the following keys.
    pub fn select(&self, out: &mut Vec<u8>, database: u64) {
        out.push(opcode::SELECT);
        length(out, database);
    }

    /// Writes the database's numbers of keys and of keys with an expiry.
    pub fn resize(&self, out: &mut Vec<u8>, keys: u64, expiring: u64) {
        out.push(opcode::RESIZE);
        length(out, keys);
        length(out, expiring);
    }

    /// Writes the end; only the [`trailer`] follows.
    pub fn end(&self, out: &mut Vec<u8>) {
        out.push(opcode::END);
    }

    /// Writes a key with its value, expiry and use.
    pub fn entry(&mut self, out: &mut Vec<u8>, entry: &Entry, access: Access) {
        let view = entry.view();
        if let View::Object(Value::Stream(stream)) = &view {
            self.active_times(out, stream);
        }
        self.key_head(out, self.code(&view), entry.key(), entry.expiry(), access);
        self.value(out, &view);
    }

    /// Writes the head of a key with a collection that follows in parts. `expiry` is in milliseconds of Unix time. A
    /// stream with active consumers needs [`Writer::active_times`] first.
    pub fn begin(
        &mut self,
        out: &mut Vec<u8>,
        key: &[u8],
        expiry: Option<u64>,
        access: Access,
        collection: Collection,
    ) {
        let (code, count) = match collection {
            Collection::Hash(count) => (code::HASH, count),
            Collection::TimedHash(count, _) => (self.timed_hash_code(), count),
            Collection::Set(count) => (code::SET, count),
            Collection::ZSet(count) => (code::ZSET_2, count),
            Collection::List(count) => (code::LIST_QUICKLIST_2, count),
            Collection::Elements(count) => (code::LIST, count),
            Collection::Stream(count, has_producers) => (self.stream_code(has_producers), count),
            Collection::Suggestions(count) => (code::MODULE, count),
        };
        self.key_head(out, code, key, expiry, access);
        if let Collection::Suggestions(count) = collection {
            return self.suggestions_head(out, count);
        }
        if let Collection::TimedHash(_, first_ms) = collection
            && self.timed_hash_code() == code::HASH_EXPIRING
        {
            out.extend_from_slice(&first_ms.to_le_bytes());
        }
        length(out, count);
    }

    fn key_head(&mut self, out: &mut Vec<u8>, code: u8, key: &[u8], expiry: Option<u64>, access: Access) {
        if let Some(expiry) = expiry {
            out.push(opcode::EXPIRY_MS);
            out.extend_from_slice(&expiry.to_le_bytes());
        }
        match access {
            Access::Unknown => {}
            Access::IdleSeconds(seconds) => {
                out.push(opcode::IDLE);
                length(out, seconds);
            }
            Access::Frequency(frequency) => out.extend_from_slice(&[opcode::FREQUENCY, frequency]),
        }
        out.push(code);
        self.string(out, key);
    }

    /// Writes an element of a set or a list that is written in parts.
    pub fn element(&mut self, out: &mut Vec<u8>, element: &[u8]) {
        self.string(out, element);
    }

    /// Writes a field of a hash that is written in parts.
    pub fn field(&mut self, out: &mut Vec<u8>, field: &[u8], value: &[u8]) {
        self.string(out, field);
        self.string(out, value);
    }

    /// Writes a field of a hash with expiring fields that is written in parts. `first_ms` is the hash's time.
    pub fn timed_field(&mut self, out: &mut Vec<u8>, first_ms: u64, field: &[u8], value: &[u8], expiry: Option<u64>) {
        match self.timed_hash_code() {
            code::HASH_EXPIRING => {
                length(out, expiry.map_or(0, |at| at.saturating_sub(first_ms) + 1));
                self.field(out, field, value);
            }
            code::HASH_EXPIRING_OF_VALKEY => {
                self.field(out, field, value);
                out.extend_from_slice(&expiry.unwrap_or(u64::MAX).to_le_bytes());
            }
            _ => self.field(out, field, value),
        }
    }

    /// The type byte of a hash with expiring fields that is written field by field.
    fn timed_hash_code(&self) -> u8 {
        match self.options.target {
            _ if !self.options.field_times => code::HASH,
            Target::Valkey90 => code::HASH_EXPIRING_OF_VALKEY,
            Target::Redis70 | Target::Redis72 => code::HASH_EXPIRING,
        }
    }

    /// True if small sets are written as listpacks.
    fn has_packed_sets(&self) -> bool {
        self.options.target != Target::Redis70
    }

    /// Writes a member of a sorted set that is written in parts.
    pub fn member(&mut self, out: &mut Vec<u8>, member: &[u8], score: f64) {
        self.string(out, member);
        out.extend_from_slice(&score.to_le_bytes());
    }

    /// Writes a block of a list that is written in parts, as returned by [`List::blocks`].
    pub fn list_block(&mut self, out: &mut Vec<u8>, items: &[u8], count: usize) {
        let only = (count == 1 && items.len() >= PLAIN_NODE_BYTES_MIN).then(|| listpack::first(items)).flatten();
        match only {
            Some(Item::Str(element)) => {
                length(out, NODE_PLAIN);
                self.string(out, element);
            }
            _ => {
                length(out, NODE_PACKED);
                self.listpack(out, items, count);
            }
        }
    }

    /// The type byte of a value.
    pub(crate) fn code(&self, view: &View<'_>) -> u8 {
        let View::Object(value) = view else { return code::STRING };
        match value {
            Value::Str(_) => code::STRING,
            Value::List(_) => code::LIST_QUICKLIST_2,
            Value::Set(set) if set.ints().is_some() => code::SET_INTSET,
            Value::Set(set) if set.packed().is_some() && self.has_packed_sets() => code::SET_LISTPACK,
            Value::Set(_) => code::SET,
            Value::Hash(hash) if hash.packed().is_some() => code::HASH_LISTPACK,
            Value::Hash(_) => code::HASH,
            // A hash whose fields have lost their expiries is written as a plain one.
            Value::TimedHash(hash) => {
                let code = if hash.timed_count() > 0 { self.timed_hash_code() } else { code::HASH };
                match (hash.packed().is_some(), code) {
                    (true, code::HASH_EXPIRING) => code::HASH_LISTPACK_EXPIRING,
                    (true, code::HASH) => code::HASH_LISTPACK,
                    _ => code,
                }
            }
            Value::ZSet(zset) if zset.is_small() => code::ZSET_LISTPACK,
            Value::ZSet(_) => code::ZSET_2,
            Value::Stream(stream) => self.stream_code(stream.producers.is_some()),
            Value::Suggestions(_) => code::MODULE,
        }
    }

    /// Writes a value without its type byte.
    pub(crate) fn value(&mut self, out: &mut Vec<u8>, view: &View<'_>) {
        match view {
            View::Bytes(bytes) => self.string(out, bytes),
            View::Int(int) => self.int(out, *int),
            View::Object(value) => match value {
                Value::Str(bytes) => self.string(out, bytes),
                Value::List(list) => self.list(out, list),
                Value::Set(set) => self.set(out, set),
                Value::Hash(hash) => self.hash(out, hash),
                Value::TimedHash(hash) => self.timed_hash(out, hash),
                Value::ZSet(zset) => self.zset(out, zset),
                Value::Stream(stream) => self.stream(out, stream),
                Value::Suggestions(suggestions) => self.suggestions(out, suggestions),
            },
        }
    }

    fn list(&mut self, out: &mut Vec<u8>, list: &List) {
        length(out, list.node_count() as u64);
        list.blocks().for_each(|(items, count)| self.list_block(out, items, count));
    }

    fn set(&mut self, out: &mut Vec<u8>, set: &Set) {
        if let Some(ints) = set.ints() {
            let (width, bytes) = ints.raw();
            let mut block = std::mem::take(&mut self.block);
            block.clear();
            intset::write(&mut block, width, bytes);
            self.bytes(out, &block);
            self.block = block;
            return;
        }
        match set.packed().filter(|_| self.has_packed_sets()) {
            Some(packed) => self.listpack(out, packed.items(), packed.len()),
            None => {
                length(out, set.len() as u64);
                set.for_each(|member| self.string(out, member));
            }
        }
    }

    fn hash(&mut self, out: &mut Vec<u8>, hash: &Hash) {
        match hash.packed() {
            Some(packed) => self.listpack(out, packed.items(), packed.len()),
            None => {
                length(out, hash.len() as u64);
                hash.for_each(|field, value| self.field(out, field, value));
            }
        }
    }

    fn timed_hash(&mut self, out: &mut Vec<u8>, hash: &TimedHash) {
        let mut first_ms = None;
        hash.for_each(|_, _, expiry| first_ms = first_ms.into_iter().chain(expiry).min());
        match (self.timed_hash_code(), first_ms) {
            (code::HASH_EXPIRING_OF_VALKEY, Some(_)) => return self.timed_hash_of_valkey(out, hash),
            (code::HASH_EXPIRING, Some(first_ms)) => out.extend_from_slice(&first_ms.to_le_bytes()),
            _ => first_ms = None,
        }
        match (hash.packed(), first_ms) {
            (Some(packed), Some(_)) => self.listpack(out, packed.items(), packed.len()),
            (Some(_), None) => {
                let mut pairs = Packed::new();
                hash.for_each(|field, value, _| pairs.insert_pair_at(pairs.end_pos(), field, value));
                self.listpack(out, pairs.items(), pairs.len());
            }
            (None, first_ms) => {
                length(out, hash.len() as u64);
                hash.for_each(|field, value, expiry| match first_ms {
                    Some(first_ms) => self.timed_field(out, first_ms, field, value, expiry),
                    None => self.field(out, field, value),
                });
            }
        }
    }

    fn timed_hash_of_valkey(&mut self, out: &mut Vec<u8>, hash: &TimedHash) {
        length(out, hash.len() as u64);
        hash.for_each(|field, value, expiry| self.timed_field(out, 0, field, value, expiry));
    }

    fn zset(&mut self, out: &mut Vec<u8>, zset: &ZSet) {
        if let Some(pairs) = zset.packed() {
            return self.packed_zset(out, pairs);
        }
        length(out, zset.len() as u64);
        // Descending order, as in Redis, which inserts each member before the previous one while loading.
        zset.visit_ranks(0..zset.len(), true, |member, score| self.member(out, member, score));
    }

    /// Writes members and scores in turn. A score that Redis doesn't store as an integer becomes text.
    fn packed_zset(&mut self, out: &mut Vec<u8>, pairs: &Packed) {
        let as_in_redis = |score: Item<'_>| score_int(zset::score_of(score)).is_some();
        if pairs.iter().skip(1).step_by(2).all(as_in_redis) {
            return self.listpack(out, pairs.items(), pairs.len());
        }
        let target = self.options.target;
        self.listpack_of(out, |items| {
            for (index, item) in pairs.iter().enumerate() {
                if index % 2 == 0 || as_in_redis(item) {
                    packed::append_item(items, item);
                } else {
                    target.append_score(items, zset::score_of(item));
                }
            }
            pairs.len()
        });
    }

    /// Writes a listpack of `count` items.
    fn listpack(&mut self, out: &mut Vec<u8>, items: &[u8], count: usize) {
        self.listpack_of(out, |block| {
            block.extend_from_slice(items);
            count
        });
    }

    /// Writes a listpack. `append` appends the items to a buffer and returns their number.
    fn listpack_of(&mut self, out: &mut Vec<u8>, append: impl FnOnce(&mut Vec<u8>) -> usize) {
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        block.resize(listpack::HEADER_BYTES, 0);
        let count = append(&mut block);
        listpack::finish(&mut block, count);
        self.bytes(out, &block);
        self.block = block;
    }

    /// Writes a string in its shortest encoding.
    pub(crate) fn string(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        match short_int(bytes) {
            Some(int) => self.int(out, int),
            None => self.bytes(out, bytes),
        }
    }

    /// Writes the digits of an integer.
    fn int(&mut self, out: &mut Vec<u8>, int: i64) {
        if let Ok(int) = i8::try_from(int) {
            out.extend_from_slice(&[head::INT_8, int as u8]);
        } else if let Ok(int) = i16::try_from(int) {
            out.push(head::INT_16);
            out.extend_from_slice(&int.to_le_bytes());
        } else if let Ok(int) = i32::try_from(int) {
            out.push(head::INT_32);
            out.extend_from_slice(&int.to_le_bytes());
        } else {
            self.bytes(out, IntText::new().i64(int));
        }
    }

    /// Writes a string that isn't an integer or must not be treated as one.
    fn bytes(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        if self.options.compress
            && let Some(packed) = self.compressor.compress(bytes)
        {
            // With the room for the footer of a payload, so that a long string moves only once.
            out.reserve(packed.len() + SPARE_BYTES);
            out.push(head::LZF);
            length(out, packed.len() as u64);
            length(out, bytes.len() as u64);
            out.extend_from_slice(packed);
        } else {
            out.reserve(bytes.len() + SPARE_BYTES);
            length(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

/// Appends a length, or another number that is usually small.
pub(crate) fn length(out: &mut Vec<u8>, value: u64) {
    if value < 1 << 6 {
        out.push(value as u8);
    } else if value < 1 << 14 {
        out.extend_from_slice(&[head::LENGTH_14 | (value >> 8) as u8, value as u8]);
    } else if let Ok(value) = u32::try_from(value) {
        out.push(head::LENGTH_32);
        out.extend_from_slice(&value.to_be_bytes());
    } else {
        out.push(head::LENGTH_64);
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Parses a string as an integer of up to 32 bits; none for any other string.
fn short_int(bytes: &[u8]) -> Option<i64> {
    if bytes.len() > INT_BYTES_MAX {
        return None;
    }
    store::int::canonical_i64(bytes).filter(|&int| i32::try_from(int).is_ok())
}

/// Converts a score to an integer, if Redis would store it as one.
fn score_int(score: f64) -> Option<i64> {
    let int = score as i64;
    (score.abs() <= INT_SCORE_MAX && int as f64 == score).then_some(int)
}
