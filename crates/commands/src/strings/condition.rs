//! Conditions on a string's value: those of SET, DELEX and DELIFEQ, and DIGEST, whose hash they compare with.
//!
//! Source of the semantics: Redis's pages of SET, DELEX and DIGEST. The digest is XXH3 with 64 bits.

use resp::request::Args;
use store::entry::View;
use twox_hash::XxHash3_64;

use super::text;
use crate::Call;
use crate::error::{Error, Outcome};
use crate::spec::key_flag::{ACCESS, DELETE, RM, RW};

/// Hexadecimal digits of a digest.
const DIGEST_LEN: usize = 16;

const NOT_A_DIGEST: Error = Error::fixed("ERR must be exactly 16 hexadecimal characters");
const NOT_A_STRING: Error = Error::fixed("ERR Key should be of string type if conditions are specified");
const NOT_A_CONDITION: Error = Error::fixed("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE");

/// The words by which SET compares.
pub(super) const WORDS: [&str; 4] = ["ifeq", "ifne", "ifdeq", "ifdne"];

/// What a value is compared with.
#[derive(Clone, Copy)]
pub(super) enum Comparison<'c> {
    /// IFEQ: it is this.
    Equal(&'c [u8]),
    /// IFNE: it is not this, or there is none.
    NotEqual(&'c [u8]),
    /// IFDEQ: its digest is this.
    DigestEqual(&'c [u8]),
    /// IFDNE: its digest is not this, or there is none.
    DigestNotEqual(&'c [u8]),
}

impl<'c> Comparison<'c> {
    /// The comparison that a word and the argument after it ask for.
    pub fn of(word: &[u8], operand: &'c [u8]) -> Option<Comparison<'c>> {
        match word {
            word if word.eq_ignore_ascii_case(b"ifeq") => Some(Comparison::Equal(operand)),
            word if word.eq_ignore_ascii_case(b"ifne") => Some(Comparison::NotEqual(operand)),
            word if word.eq_ignore_ascii_case(b"ifdeq") => Some(Comparison::DigestEqual(operand)),
            word if word.eq_ignore_ascii_case(b"ifdne") => Some(Comparison::DigestNotEqual(operand)),
            _ => None,
        }
    }

    /// True for a key that doesn't exist.
    pub fn holds_without_value(self) -> bool {
        matches!(self, Comparison::NotEqual(_) | Comparison::DigestNotEqual(_))
    }

    /// True if it holds for this value.
    ///
    /// # Errors
    /// A value that is no string; an operand that is no digest.
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

/// True if `operand` is the digest of a value, in whatever case. Anything else of the right length just isn't, as in
/// Redis.
fn is_digest_of(operand: &[u8], value: &[u8]) -> Result<bool, Error> {
    if operand.len() != DIGEST_LEN {
        return Err(NOT_A_DIGEST);
    }
    Ok(operand.eq_ignore_ascii_case(&digest_of(value)))
}

/// The digest of a value, in hexadecimal digits.
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

/// The flags of DELEX's key, which it only removes unless a condition has it look at the value.
pub(super) fn flags_of_key(args: Args<'_>) -> u32 {
    if args.len() > 2 { RW | ACCESS | DELETE } else { RM | DELETE }
}

pub(super) fn delex(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, args) = (call.key(1), call.args);
    if !matches!(args.len(), 2 | 4) {
        return Err(Error::arity("delex"));
    }
    let is_deleted = match call.db.get_mut(key) {
        None => false,
        Some(_) if args.len() == 2 => true,
        // As in Redis, the condition is looked at only if there is something to compare with.
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

/// Deletes the key if its condition holds, and replies with that.
fn reply_deleted(call: &mut Call<'_, '_, '_>, holds: bool) -> Outcome {
    let key = call.key(1);
    if holds {
        call.delete(key);
        call.record_as(&[b"DEL", key.bytes]);
    }
    call.reply.int(i64::from(holds));
    Ok(())
}
