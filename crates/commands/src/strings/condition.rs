//! Conditions on a string's value: the options of SET, DELEX and DELIFEQ, and DIGEST, which returns the hash for
//! comparisons.
//!
//! Source of the semantics: Redis's pages of SET, DELEX and DIGEST. The digest is 64-bit XXH3.

use resp::request::Args;
use store::entry::View;
use twox_hash::XxHash3_64;

use super::text;
use crate::Call;
use crate::error::{Error, Outcome};
use crate::spec::key_flag::{ACCESS, DELETE, RM, RW};

/// Number of hexadecimal digits of a digest.
const DIGEST_LEN: usize = 16;

const NOT_A_DIGEST: Error = Error::fixed("ERR must be exactly 16 hexadecimal characters");
const NOT_A_STRING: Error = Error::fixed("ERR Key should be of string type if conditions are specified");
const NOT_A_CONDITION: Error = Error::fixed("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");

/// SET's options that compare the old value.
pub(super) const WORDS: [&str; 4] = ["ifeq", "ifne", "ifdeq", "ifdne"];

/// A comparison with the current value.
#[derive(Clone, Copy)]
pub(super) enum Comparison<'c> {
    /// IFEQ: the value is equal.
    Equal(&'c [u8]),
    /// IFNE: the value is different or missing.
    NotEqual(&'c [u8]),
    /// IFDEQ: the digest is equal.
    DigestEqual(&'c [u8]),
    /// IFDNE: the digest is different, or the value is missing.
    DigestNotEqual(&'c [u8]),
}

impl<'c> Comparison<'c> {
    /// Parses a comparison from an option and its argument.
    pub fn of(word: &[u8], operand: &'c [u8]) -> Option<Comparison<'c>> {
        match word {
            word if word.eq_ignore_ascii_case(b"ifeq") => Some(Comparison::Equal(operand)),
            word if word.eq_ignore_ascii_case(b"ifne") => Some(Comparison::NotEqual(operand)),
            word if word.eq_ignore_ascii_case(b"ifdeq") => Some(Comparison::DigestEqual(operand)),
            word if word.eq_ignore_ascii_case(b"ifdne") => Some(Comparison::DigestNotEqual(operand)),
            _ => None,
        }
    }

    /// True if the comparison holds for a missing key.
    pub fn holds_without_value(self) -> bool {
        matches!(self, Comparison::NotEqual(_) | Comparison::DigestNotEqual(_))
    }

    /// True if the comparison holds for this value.
    ///
    /// # Errors
    /// The value is not a string, or the operand is not a digest.
    pub fn holds_for(self, view: View<'_>) -> Result<bool, Error> {
        let value = text(view)?;
        match self {
            Comparison::Equal(operand) => Ok(*value == *operand),
            Comparison::NotEqual(operand) => Ok(*value != *operand),
            Comparison::DigestEqual(operand) => is_digest_of(operand, &value),
            Comparison::DigestNotEqual(operand) => is_digest_of(operand, &value).map(|equal| !equal),
        }
    }
}

/// True if `operand` is the digest of a value, ignoring case. As in Redis, an operand of the right length that isn't
/// hexadecimal never matches.
fn is_digest_of(operand: &[u8], value: &[u8]) -> Result<bool, Error> {
    if operand.len() != DIGEST_LEN {
        return Err(NOT_A_DIGEST);
    }
    Ok(operand.eq_ignore_ascii_case(&digest_of(value)))
}

/// Returns the digest of a value in hexadecimal.
fn digest_of(value: &[u8]) -> [u8; DIGEST_LEN] {
    let hash = XxHash3_64::oneshot(value);
    let mut digits = [0; DIGEST_LEN];
    for (at, digit) in digits.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(hash >> (4 * (DIGEST_LEN - 1 - at)) & 15) as usize];
    }
    digits
}

pub(super) fn digest(call: &mut Call<'_, '_, '_>) -> Outcome {
    match call.db.view(call.key(1)) {
        None => call.reply.null(),
        Some(view) => call.reply.bulk(digest_of(&text(view)?)),
    }
    Ok(())
}

/// Flags of DELEX's key: it is only removed, unless a condition reads the value.
pub(super) fn flags_of_key(args: Args<'_>) -> u32 {
    if args.len() > 2 { RW | ACCESS | DELETE } else { RM | DELETE }
}

pub(super) fn delex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    if !matches!(args.len(), 2 | 4) {
        return Err(Error::arity("delex"));
    }
    if args.len() == 2 {
        let is_deleted = call.db.exists_for_write(key);
        return reply_deleted(call, is_deleted);
    }
    // Its condition reads the key, so that a missing one is a miss.
    let is_deleted = match call.db.get(key) {
        None => false,
        // As in Redis, the condition is parsed only if the key exists.
        Some(entry) if !entry.is_string() => return Err(NOT_A_STRING),
        Some(entry) => Comparison::of(args.get(2), args.get(3)).ok_or(NOT_A_CONDITION)?.holds_for(entry.view())?,
    };
    reply_deleted(call, is_deleted)
}

pub(super) fn delifeq(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, comparison) = (call.key(1), Comparison::Equal(call.arg(2)));
    let is_deleted = match call.db.get_mut(key) {
        None => false,
        Some(entry) => comparison.holds_for(entry.view())?,
    };
    reply_deleted(call, is_deleted)
}

/// Deletes the key if its condition holds, and replies with the number of deleted keys.
fn reply_deleted(call: &mut Call<'_, '_, '_>, holds: bool) -> Outcome {
    let key = call.key(1);
    if holds {
        call.delete(key);
        call.record_as(&[b"DEL", key.bytes]);
    }
    call.reply.int(i64::from(holds));
    Ok(())
}
