//! BITOP: the bits of several strings, combined place by place. A string that is shorter than others counts as if zeros
//! followed it.

use std::borrow::Cow;

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

/// Changes bytes by those of another string, as far as it goes. No function, since its closure might not be inlined: see `WideWork`.
macro_rules! each {
    ($bits:expr, $other:expr, |$x:ident, $y:ident| $combined:expr) => {
        for (byte, other) in $bits.iter_mut().zip($other) {
            let ($x, $y) = (*byte, *other);
            *byte = $combined;
        }
    };
}

/// The same by each of several others.
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

    /// Appends `len` bytes to `result`: what becomes of these parts of the strings, none of which is longer.
    #[inline(always)]
    fn append<'s>(self, parts: impl Iterator<Item = &'s [u8]> + Clone, len: usize, result: &mut Vec<u8>) {
        let start = result.len();
        let mut rest = parts.clone();
        let x = rest.next().unwrap_or_default();
        match self {
            BitOperation::Diff1 | BitOperation::AndOr => {}
            _ => result.extend_from_slice(x),
        }
        result.resize(start + len, 0);
        let bits = &mut result[start..];
        match self {
            BitOperation::And => {
                for y in rest {
                    keep(bits, y);
                }
            }
            BitOperation::Or => each_of!(bits, rest, |x, y| x | y),
            BitOperation::Xor => each_of!(bits, rest, |x, y| x ^ y),
            BitOperation::Not => {
                for byte in bits {
                    *byte = !*byte;
                }
            }
            BitOperation::Diff => each_of!(bits, rest, |x, y| x & !y),
            BitOperation::Diff1 => {
                each_of!(bits, rest, |all, y| all | y);
                each!(bits, x, |all, x| all & !x);
            }
            BitOperation::AndOr => {
                each_of!(bits, rest, |all, y| all | y);
                keep(bits, x);
            }
            BitOperation::One => keep_single(bits, rest),
        }
    }
}

/// Clears the bits of `bits` that aren't set in `other`. Bits behind the end of `other` count as not set.
#[inline(always)]
fn keep(bits: &mut [u8], other: &[u8]) {
    each!(bits, other, |bit, mask| bit & mask);
    bits[other.len()..].fill(0);
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

/// See [`BitOperation::append`].
struct Append<'r, P> {
    operation: BitOperation,
    parts: P,
    len: usize,
    result: &'r mut Vec<u8>,
}

impl<'s, P: Iterator<Item = &'s [u8]> + Clone> WideWork for Append<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.operation.append(self.parts, self.len, self.result);
    }
}

/// Combines strings, of which the longest has `total` bytes, in the memory of `buffer` if that has the right size.
fn combine(operation: BitOperation, strings: &[Cow<'_, [u8]>], total: usize, mut buffer: Vec<u8>) -> Vec<u8> {
    buffer.clear();
    // One that is too small would be copied to a larger one, and one that is too large keep what nothing needs.
    let fits = (total..=total.saturating_mul(2)).contains(&buffer.capacity());
    let mut result = if fits { buffer } else { Vec::with_capacity(total) };
    for start in (0..total).step_by(CHUNK_BYTES) {
        let end = (start + CHUNK_BYTES).min(total);
        let parts = strings.iter().map(|string| &string[start.min(string.len())..end.min(string.len())]);
        with_wide_vectors(Append { operation, parts, len: end - start, result: &mut result });
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
fn strings_at<'d, 'k>(db: &'d Db<'_, '_>, keys: impl Iterator<Item = Key<'k>>) -> Result<Vec<Cow<'d, [u8]>>, Error> {
    keys.map(|key| db.peek(key).map(Ref::into_view).map_or(Ok(Cow::Borrowed(&[][..])), text)).collect()
}

pub(super) fn bitop(call: &mut Call<'_, '_, '_>) -> Outcome {
    let operation = BitOperation::parse(call.arg(1), call.len() - 3)?;
    let sources = call.each_key().skip(1);
    let longest = longest(&mut call.db, sources.clone())?;
    let buffer = buffer(call, longest);
    let result = combine(operation, &strings_at(&call.db, sources)?, longest, buffer);
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
