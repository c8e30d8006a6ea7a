//! Writing a snapshot: every function appends to a buffer, so that it can be made in steps and by several threads.
//!
//! ```text
//! a hash with fields that expire, at times in milliseconds of Unix time (little endian):
//! type 24: | a time not later than the earliest, i64 | count | for each field: 0, or 1 and by how much it expires later; field; value |
//! type 25: | the same | listpack of fields, values and times in turn, in the order of times; 0: never |
//! ```

mod stream;
#[cfg(test)]
mod tests;

use resp::num::{IntText, seventeen_digits, write_f64};
use store::entry::{Entry, View};
use store::types::hash::Hash;
use store::types::list::List;
use store::types::packed::{Item, Packed};
use store::types::set::Set;
use store::types::timed_hash::TimedHash;
use store::types::zset::ZSet;
use store::value::Value;

use super::{NODE_PACKED, NODE_PLAIN, code, head, opcode};
use crate::crc64::Crc64;
use crate::lzf::Compressor;
use crate::{intset, listpack};

/// The oldest server that is to read what is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Target {
    /// Redis 7.0 and all later servers: version 10.
    #[default]
    Redis70,
    /// Redis 7.2, Valkey 7.2 and later: version 11, which has small sets as listpacks.
    Redis72,
}

impl Target {
    /// The version of the format.
    #[must_use]
    pub fn version(self) -> u16 {
        match self {
            Target::Redis70 => 10,
            Target::Redis72 => 11,
        }
    }
}

/// What a [`Writer`] is made with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// For which servers.
    pub target: Target,
    /// Whether strings of more than 20 bytes are compressed (`rdbcompression`).
    pub compress: bool,
}

impl Default for Options {
    /// As Redis without a configuration.
    fn default() -> Self {
        Options { target: Target::default(), compress: true }
    }
}

/// What is known of a key's use, for eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Nothing.
    #[default]
    Unknown,
    /// For how many seconds it wasn't used.
    IdleSeconds(u64),
    /// How often it was used, as the logarithmic counter of Redis's LFU.
    Frequency(u8),
}

/// A collection that is written in parts: its head first, then each part by the function named here, as often as is said here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collection {
    /// [`Writer::field`] for each of so many fields.
    Hash(u64),
    /// [`Writer::timed_field`] for each of so many fields, some of which expire, with this time: none of theirs may be earlier.
    TimedHash(u64, u64),
    /// [`Writer::element`] for each of so many members.
    Set(u64),
    /// [`Writer::member`] for each of so many members, best from the highest score down, which Redis loads fastest.
    ZSet(u64),
    /// [`Writer::list_block`] for each of so many blocks ([`List::blocks`]).
    List(u64),
    /// [`Writer::element`] for each of so many elements of a list, in their order.
    Elements(u64),
    /// [`Writer::suggestion`] for each of so many suggestions, then [`Writer::suggestions_end`].
    Suggestions(u64),
    /// [`Writer::stream_block`] for each of so many blocks, then [`Writer::stream_rest`]; and whether producers name its messages.
    Stream(u64, bool),
}

/// The first version that has fields that expire: Redis 7.4's.
const TIMED_FIELDS_VERSION: u16 = 12;
/// The first version that has streams with producers: Redis 8.6's.
const PRODUCERS_VERSION: u16 = 13;
/// A string of a listpack that has so many bytes or more has a node of its own, as Redis has it.
const PLAIN_NODE_BYTES_MIN: usize = 1 << 30;
/// A string that may be an integer has no more bytes.
const INT_BYTES_MAX: usize = 11;
/// Redis takes a score for an integer up to this magnitude.
const INT_SCORE_MAX: f64 = (i64::MAX / 2) as f64;

/// Writes the parts of a snapshot. Buffers are joined by the caller, which also counts the checksum ([`trailer`]).
pub struct Writer {
    options: Options,
    compressor: Compressor,
    /// The block that is being put together.
    block: Vec<u8>,
}

/// What follows [`Writer::end`], given the checksum of all before; 0 if there is none to be (`rdbchecksum no`).
#[must_use]
pub fn trailer(sum: Option<&Crc64>) -> [u8; 8] {
    sum.map_or(0, Crc64::value).to_le_bytes()
}

impl Writer {
    /// A writer with these options.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Writer { options, compressor: Compressor::new(), block: Vec::new() }
    }

    /// The version of the format that is written.
    fn version(&self) -> u16 {
        self.options.target.version()
    }

    /// The lowest version that has values of this type.
    pub(crate) fn version_of(&self, code: u8) -> u16 {
        match code {
            code::HASH_EXPIRING | code::HASH_LISTPACK_EXPIRING => self.version().max(TIMED_FIELDS_VERSION),
            code::STREAM_4 => self.version().max(PRODUCERS_VERSION),
            _ => self.version(),
        }
    }

    /// What a file begins with. `has_timed_fields`: whether there may be hashes in it with fields that expire, which older servers
    /// can't read.
    pub fn header(&self, out: &mut Vec<u8>, has_timed_fields: bool) {
        let version = if has_timed_fields { self.version().max(TIMED_FIELDS_VERSION) } else { self.version() };
        out.extend_from_slice(format!("REDIS{version:04}").as_bytes());
    }

    /// A fact about the file, which a reader may pass over.
    pub fn aux(&mut self, out: &mut Vec<u8>, name: &[u8], text: &[u8]) {
        out.push(opcode::AUX);
        self.string(out, name);
        self.string(out, text);
    }

    /// The text of a library of functions.
    pub fn function(&mut self, out: &mut Vec<u8>, text: &[u8]) {
        out.push(opcode::FUNCTION);
        self.string(out, text);
    }

    /// What follows is in this database.
    pub fn select(&self, out: &mut Vec<u8>, database: u64) {
        out.push(opcode::SELECT);
        length(out, database);
    }

    /// How many keys the database has, and how many of them expire.
    pub fn resize(&self, out: &mut Vec<u8>, keys: u64, expiring: u64) {
        out.push(opcode::RESIZE);
        length(out, keys);
        length(out, expiring);
    }

    /// The end; only the [`trailer`] follows.
    pub fn end(&self, out: &mut Vec<u8>) {
        out.push(opcode::END);
    }

    /// A key with all that belongs to it.
    pub fn entry(&mut self, out: &mut Vec<u8>, entry: &Entry, access: Access) {
        let view = entry.view();
        if let View::Object(Value::Stream(stream)) = &view {
            self.active_times(out, stream);
        }
        self.key_head(out, self.code(&view), entry.key(), entry.expiry(), access);
        self.value(out, &view);
    }

    /// The head of a key whose collection follows in parts. `expiry` is in milliseconds of Unix time. A stream whose consumers were
    /// active needs [`Writer::active_times`] before.
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
            Collection::TimedHash(count, _) => (code::HASH_EXPIRING, count),
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
        if let Collection::TimedHash(_, first_ms) = collection {
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

    /// An element of a set or a list that is written in parts.
    pub fn element(&mut self, out: &mut Vec<u8>, element: &[u8]) {
        self.string(out, element);
    }

    /// A field of a hash that is written in parts.
    pub fn field(&mut self, out: &mut Vec<u8>, field: &[u8], value: &[u8]) {
        self.string(out, field);
        self.string(out, value);
    }

    /// The same of a hash with fields that expire, given its own time, and the field's.
    pub fn timed_field(&mut self, out: &mut Vec<u8>, first_ms: u64, field: &[u8], value: &[u8], expiry: Option<u64>) {
        length(out, expiry.map_or(0, |at| at.saturating_sub(first_ms) + 1));
        self.field(out, field, value);
    }

    /// A member of a sorted set that is written in parts.
    pub fn member(&mut self, out: &mut Vec<u8>, member: &[u8], score: f64) {
        self.string(out, member);
        out.extend_from_slice(&score.to_le_bytes());
    }

    /// A block of a list that is written in parts, as [`List::blocks`] gives it.
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
            Value::Set(set) if set.packed().is_some() && self.options.target == Target::Redis72 => code::SET_LISTPACK,
            Value::Set(_) => code::SET,
            Value::Hash(hash) if hash.packed().is_some() => code::HASH_LISTPACK,
            Value::Hash(_) => code::HASH,
            // One whose fields don't expire any more is as any other.
            Value::TimedHash(hash) => match (hash.packed().is_some(), hash.timed_count() > 0) {
                (true, true) => code::HASH_LISTPACK_EXPIRING,
                (true, false) => code::HASH_LISTPACK,
                (false, true) => code::HASH_EXPIRING,
                (false, false) => code::HASH,
            },
            Value::ZSet(zset) if zset.is_small() => code::ZSET_LISTPACK,
            Value::ZSet(_) => code::ZSET_2,
            Value::Stream(stream) => self.stream_code(stream.producers.is_some()),
            Value::Suggestions(_) => code::MODULE,
        }
    }

    /// A value, without its type byte.
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
        match set.packed().filter(|_| self.options.target == Target::Redis72) {
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
        if let Some(first_ms) = first_ms {
            out.extend_from_slice(&first_ms.to_le_bytes());
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

    fn zset(&mut self, out: &mut Vec<u8>, zset: &ZSet) {
        if zset.is_small() {
            let mut pairs = Packed::new();
            let mut text = Vec::new();
            zset.visit_ranks(0..zset.len(), false, |member, score| {
                pairs.push_back(member);
                match score_int(score) {
                    Some(int) => pairs.push_back(int),
                    None => {
                        self.score_text(&mut text, score);
                        pairs.push_back(&text);
                    }
                }
            });
            return self.listpack(out, pairs.items(), pairs.len());
        }
        length(out, zset.len() as u64);
        // From the highest down, as Redis, which adds each in front of the one before when it loads them.
        zset.visit_ranks(0..zset.len(), true, |member, score| self.member(out, member, score));
    }

    /// A score as Redis writes it into a listpack: 7.0 with 17 digits, later ones with as few as tell it apart.
    fn score_text(&self, text: &mut Vec<u8>, score: f64) {
        text.clear();
        match self.options.target {
            Target::Redis70 if score.is_finite() => text.extend_from_slice(seventeen_digits(score).as_bytes()),
            _ => write_f64(text, score),
        }
    }

    /// A listpack of so many items.
    fn listpack(&mut self, out: &mut Vec<u8>, items: &[u8], count: usize) {
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        listpack::write_header(&mut block, items.len(), count);
        block.extend_from_slice(items);
        listpack::write_end(&mut block);
        self.bytes(out, &block);
        self.block = block;
    }

    /// A string in the shortest of its forms.
    pub(crate) fn string(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        match short_int(bytes) {
            Some(int) => self.int(out, int),
            None => self.bytes(out, bytes),
        }
    }

    /// An integer's digits.
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

    /// A string that is no integer, or is not to be taken for one.
    fn bytes(&mut self, out: &mut Vec<u8>, bytes: &[u8]) {
        if self.options.compress
            && let Some(packed) = self.compressor.compress(bytes)
        {
            out.push(head::LZF);
            length(out, packed.len() as u64);
            length(out, bytes.len() as u64);
            out.extend_from_slice(packed);
        } else {
            length(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

/// Appends a length, or another number that is mostly small.
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

/// The integer that a string is the digits of, if it has up to 32 bits.
fn short_int(bytes: &[u8]) -> Option<i64> {
    if bytes.len() > INT_BYTES_MAX {
        return None;
    }
    store::int::canonical_i64(bytes).filter(|&int| i32::try_from(int).is_ok())
}

/// The integer that a score is, if Redis stores it as one.
fn score_int(score: f64) -> Option<i64> {
    let int = score as i64;
    (score.abs() <= INT_SCORE_MAX && int as f64 == score).then_some(int)
}
