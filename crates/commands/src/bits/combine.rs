//! BITOP: the bits of several strings, combined place by place. A string that is shorter than others counts as if zeros
//! followed it.

use std::borrow::Cow;
use std::iter;

use store::db::{Db, Ttl};
use store::entry::{EMBEDDED_BYTES_MAX, Entry, View};
use store::keyspace::Key;
use store::long::Long;
use store::table::Ref;
use store::value::Value;
use store::wide::{WideWork, with_wide_vectors};

use crate::Call;
use crate::effects::Class;
use crate::error::{Error, Outcome};
use crate::strings::{len, text};

/// Bytes of the result that are made at a time: few enough for the first-level cache, so that each string is read from
/// memory once and the result is written once.
const CHUNK_BYTES: usize = 8192;

/// Bytes from which on a result is written over what the destination holds: the pages of a new block of this size would have to be
/// cleared first, and those of the old one given back.
const REUSED_BYTES_MIN: usize = 128 * 1024;

/// What becomes of the bits of the strings X, Y1, Y2 and so on at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BitOperation {
    /// Set in all.
    And,
    /// Set in one at least.
    Or,
    /// Set in an odd number of them.
    Xor,
    /// Not set in the only one.
    Not,
    /// Set in X and in no Y.
    Diff,
    /// Set in a Y and not in X.
    Diff1,
    /// Set in X and in a Y.
    AndOr,
    /// Set in exactly one.
    One,
}

/// Changes bytes by those of another string. No function, since its closure might not be inlined: see `WideWork`.
macro_rules! each {
    ($bits:expr, $other:expr, |$x:ident, $y:ident| $combined:expr) => {
        for (byte, other) in $bits.iter_mut().zip($other) {
            let ($x, $y) = (*byte, *other);
            *byte = $combined;
        }
    };
}

/// Makes bytes of those of two strings.
macro_rules! each_pair {
    ($bits:expr, $first:expr, $second:expr, |$x:ident, $y:ident| $combined:expr) => {
        for ((byte, first), second) in $bits.iter_mut().zip($first).zip($second) {
            let ($x, $y) = (*first, *second);
            *byte = $combined;
        }
    };
}

/// Changes bytes by those of each of several others.
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

    /// Reads the operation's name, and checks that it works on so many strings.
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

    /// Makes a part of the result of these parts of the strings, which are all as long as it is.
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

/// Leaves of these bits and those of the others what is set in one of them alone.
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

/// A string that is combined, as if zeros followed it.
struct BitSource<'d> {
    string: Cow<'d, [u8]>,
    /// Its last chunk filled up with zeros, if it ends within one and another string goes on.
    last_chunk: Vec<u8>,
}

impl<'d> BitSource<'d> {
    fn new(string: Cow<'d, [u8]>, total: usize) -> BitSource<'d> {
        let mut last_chunk = Vec::new();
        if string.len() < total
            && let Some(last) = string.chunks(CHUNK_BYTES).next_back()
        {
            // As long as the result's chunk, which may be short, too.
            let bytes = CHUNK_BYTES.min(total - (string.len() - last.len()));
            last_chunk.reserve_exact(bytes);
            last_chunk.extend_from_slice(last);
            last_chunk.resize(bytes, 0);
        }
        BitSource { string, last_chunk }
    }

    /// So many bytes from the beginning of a chunk on.
    fn part(&self, start: usize, len: usize) -> &[u8] {
        const ZEROS: &[u8] = &[0; CHUNK_BYTES];
        match self.string.get(start..start + len) {
            Some(part) => part,
            None if start < self.string.len() => &self.last_chunk[..len],
            None => &ZEROS[..len],
        }
    }
}

/// Combines strings, of which the longest has `total` bytes, in the memory of `buffer` if that has the right size.
fn combine(operation: BitOperation, strings: &[BitSource<'_>], total: usize, mut buffer: Vec<u8>) -> Vec<u8> {
    // One that is too small would be copied to a larger one, and one that is too large keep what nothing needs.
    let fits = (total..=total.saturating_mul(2)).contains(&buffer.capacity());
    let mut result = if fits {
        // All of it is written over.
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

/// The memory of the string at the destination, if the result can be written over it: the key's value is empty then. Nothing fails
/// after that.
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

/// The length of the longest string that the keys hold; an error if any holds another type.
fn longest<'k>(db: &mut Db<'_, '_>, mut keys: impl Iterator<Item = Key<'k>>) -> Result<usize, Error> {
    keys.try_fold(0, |longest, key| Ok(db.view(key).map_or(Ok(0), |view| len(&view))?.max(longest)))
}

/// The strings that the keys hold, in their order; empty for a key that doesn't exist.
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

/// Sets a key to a string that is never taken for an integer, as in Redis.
fn store(call: &mut Call<'_, '_, '_>, key: Key<'_>, result: Vec<u8>) {
    if result.len() > EMBEDDED_BYTES_MAX {
        call.overwrite(key);
        call.db.set_object(key, Value::long(Long::from(result)), Ttl::Clear);
        return;
    }
    call.set_raw(key, &result, Ttl::Clear);
}
