//! Common arguments: IDs, bounds of ranges, and options for trimming.

use resp::num;
use store::types::stream::{Keep, StreamId, Trim};

use super::delete::References;
use super::idempotence::MessageAt;
use crate::Call;
use crate::error::Error;

pub(super) const INVALID_ID: Error = Error::fixed("ERR Invalid stream ID specified as stream command argument");
const BOTH_STRATEGIES: Error =
    Error::fixed("ERR syntax error, MAXLEN and MINID options at the same time are not compatible");
const NO_STRATEGY_TO_LIMIT: Error =
    Error::fixed("ERR syntax error, LIMIT cannot be used without specifying a trimming strategy");
const LIMIT_WITHOUT_TILDE: Error = Error::fixed("ERR syntax error, LIMIT cannot be used without the special ~ option");

/// Length from which Redis rejects an ID.
const ID_BYTES_LIMIT: usize = 128;

/// Default limit of blocks for a trim of whole blocks.
const TRIM_BLOCKS_MAX: u64 = 100;
/// Default limit of entries for a trim of whole blocks: the first if blocks have no limit, the second as the maximum.
const TRIM_ENTRIES_DEFAULT: u64 = 10_000;
const TRIM_ENTRIES_MAX: u64 = 1_000_000;

/// Parses an ID; `seq` replaces a missing second number.
pub(super) fn id_or(text: &[u8], seq: u64) -> Result<StreamId, Error> {
    let parse = || {
        if text.len() >= ID_BYTES_LIMIT {
            return None;
        }
        match text.iter().position(|&b| b == b'-') {
            None => Some(StreamId::new(num::parse_u64_lenient(text)?, seq)),
            Some(dash) => {
                Some(StreamId::new(num::parse_u64_lenient(&text[..dash])?, num::parse_u64_lenient(&text[dash + 1..])?))
            }
        }
    };
    parse().ok_or(INVALID_ID)
}

/// Parses an ID; the signs for the first and last ID are invalid.
pub(super) fn id(text: &[u8]) -> Result<StreamId, Error> {
    id_or(text, 0)
}

/// Checks that the arguments from `first` on are IDs.
pub(super) fn check_ids(call: &Call<'_, '_, '_>, first: usize) -> Result<(), Error> {
    call.args.from(first).try_for_each(|text| id(text).map(drop))
}

fn bound(text: &[u8], seq: u64) -> Result<(StreamId, bool), Error> {
    match text {
        b"-" => Ok((StreamId::MIN, false)),
        b"+" => Ok((StreamId::MAX, false)),
        [b'(', rest @ ..] if !rest.is_empty() => Ok((id_or(rest, seq)?, true)),
        _ => Ok((id_or(text, seq)?, false)),
    }
}

/// Parses the first ID of a range.
pub(super) fn start(text: &[u8]) -> Result<StreamId, Error> {
    match bound(text, 0)? {
        (id, false) => Ok(id),
        (id, true) => id.next().ok_or(Error::fixed("ERR invalid start ID for the interval")),
    }
}

/// Parses the last ID of a range.
pub(super) fn end(text: &[u8]) -> Result<StreamId, Error> {
    match bound(text, u64::MAX)? {
        (id, false) => Ok(id),
        (id, true) => id.previous().ok_or(Error::fixed("ERR invalid end ID for the interval")),
    }
}

/// XADD's ID argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NewId {
    /// `*`: the server generates the whole ID.
    Auto,
    /// `ms-*`: the server generates the second number.
    Time(u64),
    /// The complete ID.
    Given(StreamId),
}

/// Options of XADD and XTRIM.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddOptions {
    pub trim: Option<Trim>,
    /// Effect on deliveries of trimmed entries.
    pub references: References,
    /// A missing stream isn't created.
    pub no_create: bool,
    /// The message, if its producer identifies it.
    pub message: Option<MessageAt>,
    /// XADD's ID and its index.
    pub id: NewId,
    pub id_at: usize,
}

/// Parses the options; XADD's end with its ID.
pub(super) fn options(call: &Call<'_, '_, '_>, is_add: bool) -> Result<AddOptions, Error> {
    let mut found = AddOptions {
        trim: None,
        references: References::Keep,
        no_create: false,
        message: None,
        id: NewId::Auto,
        id_at: 0,
    };
    let (mut keep, mut whole_blocks, mut limit) = (None, false, None);
    let mut has_references = false;
    let mut at = 2;
    while at < call.len() {
        let has_more = at + 1 < call.len();
        let by_id = call.is(at, "minid");
        if is_add && call.arg(at) == b"*" {
            break;
        } else if has_more && (by_id || call.is(at, "maxlen")) {
            if keep.is_some() {
                return Err(BOTH_STRATEGIES);
            }
            let sign = if at + 2 < call.len() { call.arg(at + 1) } else { b"" };
            whole_blocks = sign == b"~";
            at += if matches!(sign, b"~" | b"=") { 2 } else { 1 };
            keep =
                Some(if by_id { Keep::From(id(call.arg(at))?) } else { Keep::Last(not_negative(call, at, "MAXLEN")?) });
        } else if has_more && call.is(at, "limit") {
            at += 1;
            limit = Some(not_negative(call, at, "LIMIT")?);
        } else if is_add && call.is(at, "nomkstream") {
            found.no_create = true;
        } else if let Some(references) = References::of(call.arg(at)).filter(|_| !has_references) {
            (found.references, has_references) = (references, true);
        } else if is_add && let Some((message, last)) = MessageAt::read(call, at, found.message)? {
            (found.message, at) = (Some(message), last);
        } else if is_add {
            found.id = new_id(call.arg(at))?;
            break;
        } else {
            return Err(Error::SYNTAX);
        }
        at += 1;
    }
    found.id_at = at;
    if found.message.is_some() {
        MessageAt::check(call, found.id)?;
    }
    found.trim = trim(call, keep, whole_blocks, limit, is_add)?;
    Ok(found)
}

fn not_negative(call: &Call<'_, '_, '_>, at: usize, name: &str) -> Result<u64, Error> {
    u64::try_from(call.int(at)?).map_err(|_| Error::new(format!("ERR The {name} argument must be >= 0.")))
}

fn new_id(text: &[u8]) -> Result<NewId, Error> {
    match text.strip_suffix(b"-*") {
        Some(ms) if text.len() < ID_BYTES_LIMIT => num::parse_u64_lenient(ms).map(NewId::Time).ok_or(INVALID_ID),
        _ => id(text).map(NewId::Given),
    }
}

fn trim(
    call: &Call<'_, '_, '_>,
    keep: Option<Keep>,
    whole_blocks: bool,
    limit: Option<u64>,
    is_add: bool,
) -> Result<Option<Trim>, Error> {
    let Some(keep) = keep else {
        return match limit {
            Some(1..) => Err(NO_STRATEGY_TO_LIMIT),
            Some(0) if is_add => Err(LIMIT_WITHOUT_TILDE),
            // XTRIM reports a different error.
            _ => Ok(None),
        };
    };
    let limit = match limit {
        // Redis records a trim of whole blocks as an exact one with its result, but keeps LIMIT.
        Some(_) if !whole_blocks && call.db.is_replay() => 0,
        Some(_) if !whole_blocks => return Err(LIMIT_WITHOUT_TILDE),
        Some(limit) => limit,
        None if !whole_blocks => 0,
        None => match call.rules.stream_block_entries as u64 {
            0 => TRIM_ENTRIES_DEFAULT,
            entries => entries.saturating_mul(TRIM_BLOCKS_MAX).min(TRIM_ENTRIES_MAX),
        },
    };
    Ok(Some(Trim { keep, whole_blocks, limit }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_requires_a_trim_of_whole_blocks() {
        let (strategy, tilde) = (NO_STRATEGY_TO_LIMIT, LIMIT_WITHOUT_TILDE);
        let text = |error: &Error| format!("-{}", String::from_utf8_lossy(error.text()));
        let missing = "-ERR syntax error, XTRIM must be called with a trimming strategy";
        crate::testing::check(&[
            ("XADD s LIMIT 0 1-1 f v", &text(&tilde)),
            ("XADD s LIMIT 0 NOMKSTREAM * f v", &text(&tilde)),
            ("XADD s LIMIT 5 * f v", &text(&strategy)),
            ("XADD s MAXLEN 5 LIMIT 0 * f v", &text(&tilde)),
            ("XADD s LIMIT 0 MAXLEN = 5 * f v", &text(&tilde)),
            ("EXISTS s", ":0"),
            ("XADD s LIMIT 0 MAXLEN ~ 5 1-1 f v", "$3|1-1"),
            ("XTRIM s LIMIT 0", missing),
            ("XTRIM s LIMIT 3", &text(&strategy)),
            ("XTRIM s MINID 5 LIMIT 0", &text(&tilde)),
            ("XTRIM s LIMIT 0 MINID ~ 1", ":0"),
        ]);
    }

    #[test]
    fn ids_are_parsed_as_in_redis() {
        let rows = [
            ("0", Some((0, 7))),
            ("5-3", Some((5, 3))),
            ("05", Some((5, 7))),
            ("+5", Some((5, 7))),
            (" 5", Some((5, 7))),
            ("18446744073709551615-18446744073709551615", Some((u64::MAX, u64::MAX))),
            ("18446744073709551616", None),
            ("1--5", None),
            ("1--05", Some((1, u64::MAX - 4))),
            ("-5", None),
            ("5-", None),
            ("", None),
            ("-", None),
            ("+", None),
            ("abc", None),
            ("5 ", None),
            ("5-*", None),
        ];
        for (text, expected) in rows {
            let expected = expected.map(|(ms, seq)| StreamId::new(ms, seq)).ok_or(INVALID_ID);
            assert_eq!(id_or(text.as_bytes(), 7), expected, "{text}");
        }
        assert_eq!(id_or(&[b'0'; ID_BYTES_LIMIT], 0), Err(INVALID_ID));
    }
}
