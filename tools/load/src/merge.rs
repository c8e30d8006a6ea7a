//! Merging: a run of similar commands becomes one command with many arguments, so that the server parses, looks up and
//! answers once instead of many times. SETs become an MSET; HSET, SADD, RPUSH, LPUSH and ZADD on one key become one
//! command of the same name.
//!
//! Merging must not change the data. The parts of a merged command run in order and without interruption, as in a
//! transaction. A merged command fails as a whole, which is only correct if each of its commands would have failed
//! alone:
//!
//! - Commands on one key with the same name meet the same type, the same permissions and the same cluster slot. Errors
//!   of single arguments (an invalid score, a field without a value) are excluded by a check before a command joins a
//!   run. Commands that aren't certainly valid, and commands with options, stay alone.
//! - A SET can't fail because of its key's value. But MSET is another command with many keys. SETs are therefore merged
//!   only if the server knows both commands, is not a cluster, and permits the user all commands on all keys. `probe`
//!   checks this before anything is sent, so that no refusal can occur while later commands are in flight. Merging of
//!   SETs stops at the input's first ACL command, after which the user's permissions may differ. If another client
//!   changes the permissions during the load, a whole run may be refused although a part of it would have been
//!   accepted.
//! - A server that is out of memory, read-only or loading refuses commands on all keys. This state may begin between
//!   two commands of a run. A merged run is refused or accepted as a whole, as if its commands had come slightly
//!   earlier or later. Lines that aren't executed are reported in either case.
//!
//! A ZADD compares scores down a tree or list, and waits for memory at each step. ZADDs of different members have the
//! same effect in any order. Longer runs of ZADDs with one member each are therefore sorted by score before they are
//! merged (`order`), so that each visits the nodes that the previous one has just loaded. Their replies come in sorted
//! order, too, and reports wait for the end of the run, so that they appear in input order.
//!
//! The resulting requests depend only on the input and on [`Merging`], and not on the sizes of reads. A later loader
//! must find the same position by the server's count of executed requests.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::block::Head;
use crate::limits::{MERGED_BYTES, MERGED_COMMANDS, ORDERED_CHUNKS, ORDERED_COMMANDS, ORDERED_COMMANDS_FIRST};
use crate::order::Sorter;

/// Version of the rules for forming runs; a load's state contains it. It must change with every change that groups an
/// input differently: the conditions for joining a run, `MERGED_BYTES`, the size of a full block (which ends a run),
/// and the rules for rejection.
const RULES: u16 = 3;
/// Maximum number of arguments of a command in a run: enough for records with some fields, and few enough to check.
const ARGS_MAX: usize = 128;

/// Kinds of commands that can be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// SETs of any keys become an MSET.
    Set,
    /// HSETs on one key.
    Hset,
    /// SADDs on one key.
    Sadd,
    /// RPUSHes on one key.
    Rpush,
    /// LPUSHes on one key.
    Lpush,
    /// ZADDs on one key.
    Zadd,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 6] = [Family::Set, Family::Hset, Family::Sadd, Family::Rpush, Family::Lpush, Family::Zadd];

    /// Returns the command in upper case.
    pub fn name(self) -> &'static str {
        match self {
            Family::Set => "SET",
            Family::Hset => "HSET",
            Family::Sadd => "SADD",
            Family::Rpush => "RPUSH",
            Family::Lpush => "LPUSH",
            Family::Zadd => "ZADD",
        }
    }

    fn of(name: &[u8]) -> Option<Family> {
        let first = name.first()?.to_ascii_uppercase();
        let family = match (name.len(), first) {
            (3, b'S') => Family::Set,
            (4, b'H') => Family::Hset,
            (4, b'S') => Family::Sadd,
            (4, b'Z') => Family::Zadd,
            (5, b'R') => Family::Rpush,
            (5, b'L') => Family::Lpush,
            _ => return None,
        };
        name.eq_ignore_ascii_case(family.name().as_bytes()).then_some(family)
    }

    /// Returns true if a run's commands must have the same key.
    pub fn has_one_key(self) -> bool {
        self != Family::Set
    }
}

/// Families and limits of merging. Together with the input they determine the server's count of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merging {
    /// A bit for each family.
    families: u8,
    /// Maximum number of commands in a request.
    most: u16,
    /// Maximum number of commands that are sorted together; 0 disables sorting, which is always the case with
    /// `--resume`.
    #[serde(skip)]
    ordered: u32,
    rules: u16,
}

impl Merging {
    /// Enables these families.
    pub fn of(families: impl IntoIterator<Item = Family>) -> Merging {
        let families = families.into_iter().fold(0, |bits, family| bits | 1 << family as u8);
        if families == 0 {
            return Merging::default();
        }
        Merging { families, most: MERGED_COMMANDS, ordered: ORDERED_COMMANDS, rules: RULES }
    }

    /// Limits requests to the size of a chunk, and sorted groups to [`ORDERED_CHUNKS`] chunks.
    pub fn in_chunks(self, chunk: u64) -> Merging {
        let most = u16::try_from(chunk).unwrap_or(u16::MAX).min(self.most);
        let ordered = u32::try_from(chunk.saturating_mul(ORDERED_CHUNKS)).unwrap_or(u32::MAX).min(self.ordered);
        if most < 2 { Merging::default() } else { Merging { most, ordered, ..self } }
    }

    /// Sets the size of sorted groups.
    #[cfg(test)]
    pub fn in_groups(self, ordered: u32) -> Merging {
        Merging { ordered, ..self }
    }

    /// Disables sorting.
    pub fn in_order(self) -> Merging {
        Merging { ordered: 0, ..self }
    }

    /// Returns true if nothing is merged.
    pub fn is_none(self) -> bool {
        self.families == 0
    }

    fn has(self, family: Family) -> bool {
        self.families & 1 << family as u8 != 0
    }

    /// Returns the maximum number of commands in a request.
    pub fn most(self) -> u64 {
        u64::from(self.most.max(1))
    }

    /// Returns true if a load that began with these settings can continue where `possible` is allowed.
    pub fn can_go_on(self, possible: Merging) -> bool {
        self.is_none() || (self.rules == RULES && self.families & !possible.families == 0)
    }
}

/// A request that may be part of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Family of the command.
    pub family: Family,
    /// Start of the arguments that it adds to a run, relative to the request.
    pub adds_from: usize,
    /// Number of these arguments.
    pub adds: usize,
}

/// A run that may still grow. Ranges are relative to its request.
#[derive(Clone, Debug)]
pub struct MergeRun {
    /// The first command.
    pub candidate: Candidate,
    /// Range of the name.
    pub name: Range<usize>,
    /// Range of the first argument.
    pub key: Range<usize>,
    /// Start of its request in the block.
    pub start: usize,
    /// Index of its first command in the block.
    pub from: usize,
    /// Number of commands.
    pub commands: u64,
    /// Total number of added arguments, without the name and, for families with one key, the key.
    pub args: usize,
    /// True if the run is sorted at its end. It may then have far more commands than one request.
    pub is_ordered: bool,
}

/// State of merging between commands and blocks.
#[derive(Clone, Debug, Default)]
pub struct Merger {
    /// Families and limits.
    pub merging: Merging,
    /// True within a transaction. Nothing is merged there, because the replies of its commands are part of EXEC's
    /// reply.
    pub in_transaction: bool,
    /// Input and line of the first rejected line within the transaction, which must not be executed without it.
    pub spoilt_by: Option<(usize, u64)>,
    /// True if the input may have changed the user's permissions after they were checked. SETs are then not merged.
    pub rights_may_differ: bool,
    /// The run at the end of the block.
    pub run: Option<MergeRun>,
    /// Sorts runs.
    pub sorter: Sorter,
    /// Number of sorted runs that have reached their maximum length.
    doublings: u32,
}

impl Merger {
    /// Returns the initial state.
    pub fn new(merging: Merging) -> Merger {
        Merger { merging, ..Merger::default() }
    }

    /// Returns the form in which a request can be merged, if it can.
    #[inline]
    pub fn candidate(&self, request: &[u8], head: &Head) -> Option<Candidate> {
        if self.merging.is_none() || self.in_transaction || request.len() > MERGED_BYTES {
            return None;
        }
        let family = Family::of(&request[head.name.clone()]).filter(|family| self.merging.has(*family))?;
        if self.rights_may_differ && !family.has_one_key() {
            return None;
        }
        let args = args_of(request)?;
        let adds = args.checked_sub(if family.has_one_key() { 2 } else { 1 })?;
        let adds_from = if family.has_one_key() { head.argument.end + 2 } else { head.name.end + 2 };
        let fits = match family {
            Family::Set => adds == 2,
            Family::Sadd | Family::Rpush | Family::Lpush => adds >= 1,
            Family::Hset => adds >= 2 && adds.is_multiple_of(2),
            Family::Zadd => adds >= 2 && adds.is_multiple_of(2) && are_scores(request.get(adds_from..)?),
        };
        fits.then_some(Candidate { family, adds_from, adds })
    }

    /// Returns the maximum length of a sorted run.
    fn ordered_max(&self) -> u64 {
        let grown = ORDERED_COMMANDS_FIRST.saturating_mul(2_u32.saturating_pow(self.doublings));
        u64::from(grown.min(ORDERED_COMMANDS).min(self.merging.ordered))
    }

    /// Returns `None` if there is no open run for sorting; otherwise true if it has reached its maximum length.
    pub fn ordered_run(&self) -> Option<bool> {
        self.run.as_ref().filter(|run| run.is_ordered).map(|run| run.commands >= self.ordered_max())
    }

    /// Removes the run, for conversion to requests.
    pub fn take_run(&mut self) -> Option<MergeRun> {
        if self.ordered_run() == Some(true) && self.ordered_max() < u64::from(ORDERED_COMMANDS) {
            self.doublings += 1;
        }
        self.run.take().filter(|run| run.commands > 1)
    }

    /// Returns true if a run that begins with this candidate is sorted.
    pub fn orders(&self, candidate: &Candidate) -> bool {
        self.merging.ordered > 0 && candidate.family == Family::Zadd && candidate.adds == 2
    }

    /// Returns true if a candidate continues the run. `bytes` are the block's contents, and `start` is the start of its
    /// request.
    #[inline]
    pub fn continues(&self, bytes: &[u8], start: usize, candidate: &Candidate, head: &Head) -> bool {
        let Some(run) = &self.run else { return false };
        let (one, next) = (&bytes[run.start..start], &bytes[start..]);
        let is_alike = run.candidate.family == candidate.family
            && one[run.name.clone()] == next[head.name.clone()]
            && (!candidate.family.has_one_key() || one[run.key.clone()] == next[head.argument.clone()]);
        if !is_alike {
            return false;
        }
        if !run.is_ordered {
            return run.commands < self.merging.most()
                && one.len() + (next.len() - candidate.adds_from) <= MERGED_BYTES;
        }
        candidate.adds == 2 && run.commands < self.ordered_max()
    }
}

/// Returns the score and the member that a ZADD adds.
pub fn score_and_member(adds: &[u8]) -> Option<(&[u8], &[u8])> {
    let (score, rest) = split_argument(adds)?;
    Some((score, split_argument(rest)?.0))
}

/// Returns the number of arguments that a request announces, including its name, or `None` if it is large or has an
/// unusual notation.
fn args_of(request: &[u8]) -> Option<usize> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| usize::from(byte - b'0'));
    let args = match request {
        [b'*', ones, b'\r', ..] => digit(ones)?,
        [b'*', tens @ b'1'..=b'9', ones, b'\r', ..] => digit(tens)? * 10 + digit(ones)?,
        [b'*', hundreds @ b'1'..=b'9', tens, ones, b'\r', ..] => {
            digit(hundreds)? * 100 + digit(tens)? * 10 + digit(ones)?
        }
        _ => return None,
    };
    (args <= ARGS_MAX).then_some(args)
}

/// Returns true if the first, third and following odd arguments are certainly numbers.
fn are_scores(mut args: &[u8]) -> bool {
    while !args.is_empty() {
        let Some((score, rest)) = split_argument(args) else { return false };
        let Some((_, rest)) = split_argument(rest) else { return false };
        if !is_number(score) {
            return false;
        }
        args = rest;
    }
    true
}

/// Returns the first argument of a request and the rest.
#[inline]
pub fn split_argument(args: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match args {
        [b'$', ones @ b'0'..=b'9', b'\r', b'\n', rest @ ..] => (usize::from(ones - b'0'), rest),
        [b'$', tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', rest @ ..] => {
            (usize::from(tens - b'0') * 10 + usize::from(ones - b'0'), rest)
        }
        [b'$', rest @ ..] => {
            let end = rest.iter().take(20).position(|byte| *byte == b'\r')?;
            (usize::try_from(resp::num::parse_i64(&rest[..end])?).ok()?, rest.get(end + 2..)?)
        }
        _ => return None,
    };
    Some((rest.get(..length)?, rest.get(length.checked_add(2)?..)?))
}

/// Returns true if every server parses this text as a number: digits, possibly with a sign and a point. Servers differ
/// in other notations. A negative zero is excluded, because servers keep its sign or not, depending on the existing
/// members.
fn is_number(text: &[u8]) -> bool {
    /// Numbers of this length are exact.
    const BYTES_MAX: usize = 15;
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let (whole, fraction) = match digits.iter().position(|byte| *byte == b'.') {
        None => (digits, &b"0"[..]),
        Some(point) => (&digits[..point], &digits[point + 1..]),
    };
    let all_digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let is_negative_zero = text.len() > digits.len() && digits.iter().all(|byte| matches!(byte, b'0' | b'.'));
    text.len() <= BYTES_MAX && all_digits(whole) && all_digits(fraction) && !is_negative_zero
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_universal_notations_are_numbers() {
        for text in ["0", "7", "-7", "1979", "3.25", "-0.5", "0.0", "-10", "007", "123456789012345"] {
            assert!(is_number(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "-",
            "-0",
            "-0.00",
            "+1",
            "1.",
            ".5",
            "1e3",
            "inf",
            "-inf",
            "nan",
            "0x1",
            " 1",
            "1 ",
            "1.2.3",
            "NX",
            "--1",
            "1234567890123456",
        ] {
            assert!(!is_number(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn merging_continues_with_its_initial_settings() {
        let all = Merging::of(Family::ALL);
        let no_sets = Merging::of([Family::Hset, Family::Zadd]);
        assert!(all.in_chunks(1).is_none() && Merging::of([]).is_none());
        assert!(
            all.in_chunks(2).can_go_on(all)
                && all.can_go_on(all)
                && no_sets.can_go_on(all)
                && Merging::default().can_go_on(no_sets)
        );
        assert!(!all.can_go_on(no_sets) && !all.can_go_on(Merging::default()));
        assert!(!Merging { rules: RULES + 1, ..all }.can_go_on(all));
        assert_eq!((all.in_chunks(7).most(), all.in_chunks(10_000)), (7, all));
        assert_eq!((all.in_chunks(7).ordered, all.in_order().ordered), (42, 0));
    }
}
