//! Options of commands on fields with an expiry: fields, times and conditions.
//!
//! The order of checks and the error texts come from Redis 8.6.

use std::ops::Range;

use resp::num;
use store::db::Ttl;
use store::types::timed_hash::EXPIRY_MS_MAX;

use crate::Call;
use crate::error::{Error, shown};
use crate::strings::TimeUnit;

const NEGATIVE: Error = Error::fixed("ERR invalid expire time, must be >= 0");
const NO_TIME: Error = Error::fixed("ERR missing expire time");
const FIELDS_MISSING: Error = Error::fixed("ERR missing FIELDS argument");
const FIELDS_MISPLACED: Error = Error::fixed("ERR Mandatory argument FIELDS is missing or not at the right position");
const FIELDS_TWICE: Error = Error::fixed("ERR FIELDS keyword specified multiple times");
const FIELDS_ALONE: Error = Error::fixed("ERR FIELDS requires at least numfields and one field argument");
const TOO_FEW: Error = Error::fixed("ERR wrong number of arguments");
const COUNT_NOT_POSITIVE: Error = Error::fixed("ERR Number of fields must be a positive integer");
const COUNT_MISMATCH: Error = Error::fixed("ERR The `numfields` parameter must match the number of arguments");

/// Parses `FIELDS numfields field ...` from `at` on, as the only option, and returns the range of the fields.
pub(super) fn only_fields(call: &Call<'_, '_, '_>, at: usize) -> Result<Range<usize>, Error> {
    if !call.is(at, "fields") {
        return Err(FIELDS_MISPLACED);
    }
    let count = num::parse_i64(call.arg(at + 1)).filter(|count| *count > 0).ok_or(COUNT_NOT_POSITIVE)?;
    let fields = at + 2..call.len();
    if usize::try_from(count) == Ok(fields.len()) { Ok(fields) } else { Err(COUNT_MISMATCH) }
}

/// Parses FIELDS at this position and returns the range of its arguments. Each item has `per_item` arguments; `found`
/// is the range of an earlier FIELDS.
fn fields(
    call: &Call<'_, '_, '_>,
    at: usize,
    found: Option<&Range<usize>>,
    per_item: usize,
    bad_count: Error,
) -> Result<Range<usize>, Error> {
    if found.is_some() {
        return Err(FIELDS_TWICE);
    }
    let count = num::parse_i64(call.arg(at + 1)).and_then(|count| i32::try_from(count).ok());
    let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0).ok_or(bad_count)?;
    let (first, args) = (at + 2, count.saturating_mul(per_item));
    if args > call.len() - first { Err(TOO_FEW) } else { Ok(first..first + args) }
}

/// Parses the time in the argument at `at` and returns milliseconds of Unix time. `name` is the command's name, for the
/// error.
pub(super) fn time(call: &Call<'_, '_, '_>, unit: TimeUnit, at: usize, name: &str) -> Result<u64, Error> {
    let time = call.int(at)?;
    if time < 0 {
        return Err(NEGATIVE);
    }
    let ms = unit.to_unix_ms(time, call.db.now_ms()).and_then(|ms| u64::try_from(ms).ok());
    ms.filter(|ms| *ms <= EXPIRY_MS_MAX).ok_or_else(|| Error::invalid_expire(name))
}

fn unknown(argument: &[u8]) -> Error {
    Error::quoting([b"ERR unknown argument: ", shown(argument, usize::MAX)].concat())
}

/// Condition for setting a field's expiry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TtlCondition {
    Always,
    /// The field has no expiry.
    Nx,
    /// The field has an expiry.
    Xx,
    /// The new expiry is later; no expiry counts as infinitely late.
    Gt,
    /// The new expiry is earlier.
    Lt,
}

impl TtlCondition {
    fn of(word: &[u8]) -> Option<TtlCondition> {
        let words =
            [("nx", TtlCondition::Nx), ("xx", TtlCondition::Xx), ("gt", TtlCondition::Gt), ("lt", TtlCondition::Lt)];
        words.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes())).map(|&(_, condition)| condition)
    }

    pub fn allows(self, at_ms: u64, current_ms: Option<u64>) -> bool {
        match self {
            TtlCondition::Always => true,
            TtlCondition::Nx => current_ms.is_none(),
            TtlCondition::Xx => current_ms.is_some(),
            TtlCondition::Gt => current_ms.is_some_and(|current| current < at_ms),
            TtlCondition::Lt => current_ms.is_none_or(|current| current > at_ms),
        }
    }

    /// Parses HEXPIRE's condition and the range of its fields, from the argument at `at` on.
    pub fn and_fields(call: &Call<'_, '_, '_>, mut at: usize) -> Result<(TtlCondition, Range<usize>), Error> {
        let (mut condition, mut several, mut found) = (TtlCondition::Always, false, None);
        while at < call.len() {
            let word = call.arg(at);
            if let Some(given) = TtlCondition::of(word) {
                several |= condition != TtlCondition::Always && condition != given;
                condition = given;
                at += 1;
            } else if call.is(at, "fields") {
                if found.is_none() && at + 2 >= call.len() {
                    return Err(FIELDS_ALONE);
                }
                let bad_count = Error::fixed("ERR Parameter `numFields` should be greater than 0");
                let args = fields(call, at, found.as_ref(), 1, bad_count)?;
                at = args.end;
                found = Some(args);
            } else {
                return Err(unknown(word));
            }
        }
        let found = found.ok_or(FIELDS_MISSING)?;
        if several { Err(Error::fixed("ERR Multiple condition flags specified")) } else { Ok((condition, found)) }
    }
}

/// The command that the options belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HashCommand {
    HGetEx,
    HSetEx,
}

impl HashCommand {
    fn name(self) -> &'static str {
        match self {
            HashCommand::HGetEx => "hgetex",
            HashCommand::HSetEx => "hsetex",
        }
    }

    fn one_time_only(self) -> Error {
        match self {
            HashCommand::HGetEx => {
                Error::fixed("ERR Only one of EX, PX, EXAT, PXAT or PERSIST arguments can be specified")
            }
            HashCommand::HSetEx => {
                Error::fixed("ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified")
            }
        }
    }
}

/// HSETEX's condition on existing fields.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Requires {
    Nothing,
    /// FXX: all fields exist.
    AllFields,
    /// FNX: all fields are missing.
    NoField,
}

/// The options of HGETEX and HSETEX.
pub(super) struct HashOptions {
    /// Effect on the fields' expiry; none, if no option sets it.
    pub ttl: Option<Ttl>,
    pub requires: Requires,
    /// HSETEX's options XX and NX, which come from Valkey: true if the key must exist, false if it must not.
    pub key_exists: Option<bool>,
    /// Range of the fields, and their values if there are any.
    pub fields: Range<usize>,
}

impl HashOptions {
    /// Parses the options from the third argument on.
    pub fn parse(call: &Call<'_, '_, '_>, of: HashCommand) -> Result<HashOptions, Error> {
        let (mut keeps, mut ttl, mut persists, mut requires, mut key_exists, mut found) =
            (false, None, false, Requires::Nothing, None, None);
        let mut at = 2;
        while at < call.len() {
            let word = call.arg(at);
            let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
            let unit = TimeUnit::of(word);
            let is_timed = matches!(ttl, Some(Ttl::At(_)));
            // KEEPTTL and PERSIST need no check against each other: no command has both.
            let excluded = unit.is_some() && ttl.is_some()
                || is("keepttl") && (is_timed || keeps)
                || is("persist") && (is_timed || persists);
            if excluded {
                return Err(of.one_time_only());
            }
            if let Some(unit) = unit {
                at += 1;
                if at >= call.len() {
                    return Err(NO_TIME);
                }
                ttl = Some(Ttl::At(time(call, unit, at, of.name())?));
            } else if is("keepttl") {
                (ttl, keeps) = (Some(Ttl::Keep), true);
            } else if is("persist") {
                (ttl, persists) = (Some(Ttl::Clear), true);
            } else if is("fxx") || is("fnx") {
                if requires != Requires::Nothing {
                    return Err(Error::fixed("ERR Only one of FXX or FNX arguments can be specified"));
                }
                requires = if is("fxx") { Requires::AllFields } else { Requires::NoField };
            } else if of == HashCommand::HSetEx
                && (is("nx") || is("xx"))
                && key_exists.is_none_or(|exists| exists == is("xx"))
            {
                key_exists = Some(is("xx"));
            } else if is("fields") {
                let per_item = if of == HashCommand::HSetEx { 2 } else { 1 };
                if found.is_none() && at + 1 >= call.len() {
                    return Err(Error::arity(of.name()));
                }
                let args = fields(call, at, found.as_ref(), per_item, Error::fixed("ERR invalid number of fields"))?;
                at = args.end - 1;
                found = Some(args);
            } else {
                return Err(unknown(word));
            }
            at += 1;
        }
        let fields = found.ok_or(FIELDS_MISSING)?;
        // An option of the other command is recognized, but rejected.
        let is_others = match of {
            HashCommand::HGetEx => keeps || requires != Requires::Nothing,
            HashCommand::HSetEx => persists,
        };
        if is_others {
            Err(Error::fixed("ERR unknown argument"))
        } else {
            Ok(HashOptions { ttl, requires, key_exists, fields })
        }
    }
}
