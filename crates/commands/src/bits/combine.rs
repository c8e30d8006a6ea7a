//! BITOP: combines the bits of several strings position by position. Shorter strings count as if zeros followed them.

use std::borrow::Cow;
use std::iter;

use store::db::{Db, Ttl};
use store::entry::{EMBEDDED_BYTES_MAX, Entry, View};
use store::keyspace::Key;
use store::shared_bytes::Long;
use store::simd::{WideWork, with_wide_vectors};
use store::table::Ref;
use store::value::Value;

use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::strings::{len, text};

/// Number of bytes of the result that are computed at a time. Small enough for the first-level cache, so each string is
/// read from memory once and the result is written once.
const CHUNK_BYTES: usize = 8192;

/// Result size from which the destination's memory is reused. A new block of this size would cost page faults and
/// zeroing, and freeing the old one returns pages to the system.
const REUSED_BYTES_MIN: usize = 128 * 1024;

/// Operation on the bits of the strings X, Y1, Y2 and so on at one position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BitOperation {
    /// Set in all strings.
    And,
    /// Set in at least one string.
    Or,
    /// Set in an odd number of strings.
    Xor,
    /// Not set in the only string.
    Not,
    /// Set in X and in none of the others.
    Diff,
    /// Set in one of the others and not in X.
    Diff1,
    /// Set in X and in one of the others.
    AndOr,
    /// Set in exactly one string.
    One,
}

/// Combines bytes with another string's bytes in place. A macro, because a closure passed to a function might not be
/// inlined; see `WideWork`.
macro_rules! each {
    ($bits:expr, $other:expr, |$x:ident, $y:ident| $combined:expr) => {
        for (byte, other) in $bits.iter_mut().zip($other) {
            let ($x, $y) = (*byte, *other);
            *byte = $combined;
        }
    };
}

/// Combines the bytes of two strings into the result.
macro_rules! each_pair {
    ($bits:expr, $first:expr, $second:expr, |$x:ident, $y:ident| $combined:expr) => {
        for ((byte, first), second) in $bits.iter_mut().zip($first).zip($second) {
            let ($x, $y) = (*first, *second);
            *byte = $combined;
        }
    };
}

/// Combines bytes with each of several other strings in place.
macro_rules! each_of {
    ($bits:expr, $others:expr, |$x:ident, $y:ident| $combined:expr) => {
        for other in $others {
            each!($bits, other, |$x, $y| $combined);
        }
    };
}

impl BitOperation {
    const ALL: [(&str, BitOperation); 8] = [
        ("and", BitOperation::And),
        ("or", BitOperation::Or),
        ("xor", BitOperation::Xor),
        ("not", BitOperation::Not),
        ("diff", BitOperation::Diff),
        ("diff1", BitOperation::Diff1),
        ("andor", BitOperation::AndOr),
        ("one", BitOperation::One),
    ];

    /// Parses the operation's name and checks the number of strings.
    fn parse(word: &[u8], strings: usize) -> Result<BitOperation, Error> {
        let is_named = |(name, _): &&(&str, BitOperation)| word.eq_ignore_ascii_case(name.as_bytes());
        let (name, operation) = BitOperation::ALL.iter().find(is_named).ok_or(Error::SYNTAX)?;
        match operation {
            BitOperation::Not if strings != 1 => {
                Err(Error::fixed("ERR BITOP NOT must be called with a single source key."))
            }
            BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr if strings < 2 => {
                let name = name.to_ascii_uppercase();
                Err(Error::new(format!("ERR BITOP {name} must be called with at least two source keys.")))
            }
            _ => Ok(*operation),
        }
    }

    /// Computes a part of the result from parts of the strings, all of the same length.
    #[inline(always)]
    fn make<'s>(self, result: &mut [u8], mut parts: impl Iterator<Item = &'s [u8]> + Clone) {
        let x = parts.next().unwrap_or_default();
        let Some(y) = parts.next() else {
            return if self == BitOperation::Not { each!(result, x, |_r, x| !x) } else { result.copy_from_slice(x) };
        };
        let rest = parts;
        match self {
            // NOT has no second string.
            BitOperation::Not | BitOperation::And => {
                each_pair!(result, x, y, |x, y| x & y);
                each_of!(result, rest, |all, y| all & y);
            }
            BitOperation::Or => {
                each_pair!(result, x, y, |x, y| x | y);
                each_of!(result, rest, |any, y| any | y);
            }
            BitOperation::Xor => {
                each_pair!(result, x, y, |x, y| x ^ y);
                each_of!(result, rest, |odd, y| odd ^ y);
            }
            BitOperation::Diff => {
                each_pair!(result, x, y, |x, y| x & !y);
                each_of!(result, rest, |left, y| left & !y);
            }
            BitOperation::Diff1 => {
                each_pair!(result, x, y, |x, y| !x & y);
                each_of!(result, rest, |any, y| any | y);
                each!(result, x, |any, x| any & !x);
            }
            BitOperation::AndOr => {
                each_pair!(result, x, y, |x, y| x & y);
                each_of!(result, rest, |any, y| any | y);
                each!(result, x, |any, x| any & x);
            }
            BitOperation::One => {
                result.copy_from_slice(x);
                keep_single(result, iter::once(y).chain(rest));
            }
        }
    }
}

/// Keeps the bits that are set in exactly one of `bits` and `others`.
#[inline(always)]
fn keep_single<'s>(bits: &mut [u8], others: impl Iterator<Item = &'s [u8]>) {
    let mut several = [0; CHUNK_BYTES];
    for other in others {
        for ((any, several), other) in bits.iter_mut().zip(&mut several).zip(other) {
            *several |= *any & *other;
            *any |= *other;
        }
    }
    each!(bits, &several, |any, twice| any & !twice);
}

/// See [`BitOperation::make`].
struct MakeBits<'r, P> {
    operation: BitOperation,
    result: &'r mut [u8],
    parts: P,
}

impl<'s, P: Iterator<Item = &'s [u8]> + Clone> WideWork for MakeBits<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.operation.make(self.result, self.parts);
    }
}

/// A source string, padded with zeros on demand.
struct BitSource<'d> {
    string: Cow<'d, [u8]>,
    /// The last chunk padded with zeros, if the string ends within a chunk and another string is longer.
    last_chunk: Vec<u8>,
}

impl<'d> BitSource<'d> {
    fn new(string: Cow<'d, [u8]>, total: usize) -> BitSource<'d> {
        let mut last_chunk = Vec::new();
        if string.len() < total
            && let Some(last) = string.chunks(CHUNK_BYTES).next_back()
        {
            // The last chunk of the result may be short, and the strings' chunks have its length.
            let bytes = CHUNK_BYTES.min(total - (string.len() - last.len()));
            last_chunk.reserve_exact(bytes);
            last_chunk.extend_from_slice(last);
            last_chunk.resize(bytes, 0);
        }
        BitSource { string, last_chunk }
    }

    /// Returns `len` bytes, beginning at the start of a chunk.
    fn part(&self, start: usize, len: usize) -> &[u8] {
        const ZEROS: &[u8] = &[0; CHUNK_BYTES];
        match self.string.get(start..start + len) {
            Some(part) => part,
            None if start < self.string.len() => &self.last_chunk[..len],
            None => &ZEROS[..len],
        }
    }
}

/// Combines strings into a result of `total` bytes, the length of the longest one. Uses the memory of `buffer` if its
/// size fits.
fn combine(operation: BitOperation, strings: &[BitSource<'_>], total: usize, mut buffer: Vec<u8>) -> Vec<u8> {
    // A smaller buffer would be reallocated, and a much larger one would waste memory.
    let fits = (total..=total.saturating_mul(2)).contains(&buffer.capacity());
    let mut result = if fits {
        // All bytes are overwritten below.
        buffer.resize(total, 0);
        buffer
    } else {
        vec![0; total]
    };
    for (chunk, result) in result.chunks_mut(CHUNK_BYTES).enumerate() {
        let len = result.len();
        let parts = strings.iter().map(|string| string.part(chunk * CHUNK_BYTES, len));
        with_wide_vectors(MakeBits { operation, result, parts });
    }
    result
}

/// Takes the memory of the destination's string, if the result can be written over it; the key's value is then empty.
/// Nothing can fail after that.
fn buffer(call: &mut Call<'_, '_, '_>, result_bytes: usize) -> Vec<u8> {
    if result_bytes < REUSED_BYTES_MIN {
        return Vec::new();
    }
    let key = call.key(2);
    let is_source = call.each_key().skip(1).any(|source| source.bytes == key.bytes);
    let is_large =
        |entry: &Entry| matches!(entry.view(), View::Object(Value::Str(long)) if long.len() >= REUSED_BYTES_MIN);
    if is_source || !call.db.peek(key).is_some_and(|entry| is_large(&entry)) {
        return Vec::new();
    }
    let mut entry = call.db.get_mut(key);
    let value = entry.as_mut().and_then(|entry| entry.object_mut());
    match value.map(|value| std::mem::replace(value, Value::long(Long::default()))) {
        Some(Value::Str(long)) => long.into_inner().into_buffer().unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Returns the length of the longest string at the keys; an error if one holds another type.
fn longest<'k>(db: &mut Db<'_, '_>, mut keys: impl Iterator<Item = Key<'k>>) -> Result<usize, Error> {
    keys.try_fold(0, |longest, key| Ok(db.view(key).map_or(Ok(0), |view| len(&view))?.max(longest)))
}

/// Returns the strings at the keys in order; empty for a missing key.
fn strings_at<'d, 'k>(
    db: &'d Db<'_, '_>,
    keys: impl Iterator<Item = Key<'k>>,
    total: usize,
) -> Result<Vec<BitSource<'d>>, Error> {
    let string = |key| db.peek(key).map(Ref::into_view).map_or(Ok(Cow::Borrowed(&[][..])), text);
    keys.map(|key| Ok(BitSource::new(string(key)?, total))).collect()
}

pub(super) fn bitop(call: &mut Call<'_, '_, '_>) -> Outcome {
    let operation = BitOperation::parse(call.arg(1), call.len() - 3)?;
    let sources = call.each_key().skip(1);
    let longest = longest(&mut call.db, sources.clone())?;
    let buffer = buffer(call, longest);
    let result = combine(operation, &strings_at(&call.db, sources, longest)?, longest, buffer);
    let (key, len) = (call.key(2), result.len());
    if len > 0 {
        store(call, key, result);
        call.changed(key, Class::String, "set");
    } else {
        call.store_nothing(key);
    }
    call.reply.count(len);
    Ok(())
}

/// Sets a key to a string that is never encoded as an integer, as in Redis.
fn store(call: &mut Call<'_, '_, '_>, key: Key<'_>, result: Vec<u8>) {
    if result.len() > EMBEDDED_BYTES_MAX {
        call.overwrite(key);
        call.db.set_object(key, Value::long(Long::from(result)), Ttl::Clear);
        return;
    }
    call.set_raw(key, &result, Ttl::Clear);
}
