//! ZRANGE, which reads a range of places, of scores or of words.

use resp::request::Args;

use crate::catalogue::{Catalogue, Found};

/// Name, key and bounds of ZRANGE. Options follow.
const RANGE_ARGUMENTS: usize = 4;

/// Returns the entry of a command. ZRANGE between two values counts as the older command that does only this.
#[inline]
pub(super) fn find(catalogue: &Catalogue, command: &Args<'_>) -> Found {
    let found = catalogue.find(command.get(0));
    let is_short = command.len() <= RANGE_ARGUMENTS;
    if is_short || found.verb.name != "ZRANGE" { found } else { catalogue.find(range_name(command)) }
}

/// The name of the range that a ZRANGE with options reads. A range of places may go backwards.
fn range_name(command: &Args<'_>) -> &'static [u8] {
    let has = |option: &[u8]| command.from(RANGE_ARGUMENTS).any(|argument| argument.eq_ignore_ascii_case(option));
    match (has(b"BYSCORE"), has(b"BYLEX")) {
        (true, _) if has(b"REV") => b"ZREVRANGEBYSCORE",
        (true, _) => b"ZRANGEBYSCORE",
        (_, true) => b"ZRANGEBYLEX",
        _ => b"ZRANGE",
    }
}
