//! Merging: a run of commands that do the same becomes one command with many arguments, so that the server reads, looks
//! up and answers once for what the input asks many times. SETs become an MSET; HSET, SADD, RPUSH, LPUSH and ZADD of
//! one key become one of their own.
//!
//! It must not be noticed in the data. What runs in one merged command runs in order and without anything between, as
//! in a transaction. And it fails as one, which is exact only where each of its commands would have failed alone:
//!
//! - Commands on one key, with the name unchanged, meet the same type, the same permissions and the same slot of a
//!   cluster. What an argument alone could be refused for (a score that is no number, a field without a value) is looked
//!   at before a command joins; what isn't surely right stays alone, and so does any option.
//! - A SET fails for nothing that its key holds, but MSET is another command, and its keys may be many. So SETs are
//!   merged only where the server knows both, is no cluster, and lets the user run everything on every key (`probe`
//!   asks for that before anything is sent, so that no refusal can come when what follows is on its way already), and
//!   up to the input's first ACL, behind which the user's rights may be others. Should another client change them
//!   meanwhile, a run may be refused of which a part would not have been.
//! - A server that is out of memory, read-only or loading refuses commands of all keys alike. It may become so between
//!   two of a run's commands, and with them merged it refuses or takes all: as if they had come a moment earlier or
//!   later. A line that is not executed is reported either way.
//!
//! A ZADD finds its place by comparing scores down a tree or list, and waits for each of them. ZADDs of different
//! members have the same effect in any order, so longer runs of those, with a member each, are put into the order of
//! their scores before they are merged (`order`): then each passes what the one before has just looked at. Their
//! replies come in that order, too; what is said of them waits for the run's end, so that everything is said in the
//! input's.
//!
//! What the commands become is a function of the input and of [`Merging`] alone, never of how the input arrives: a
//! successor must find the same place in it by the server's count of what it executed.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::block::Head;
use crate::limits::{MERGED_BYTES, MERGED_COMMANDS, ORDERED_CHUNKS, ORDERED_COMMANDS, ORDERED_COMMANDS_FIRST};
use crate::order::Sorter;

/// The version of the rules by which runs are made, which a load's state names. It changes with whatever groups an
/// input otherwise: what may join a run, `MERGED_BYTES`, when a block is full (a run ends with it), what is rejected.
const RULES: u16 = 3;
/// Arguments of a command that may join a run: enough for records with some fields, and few enough to be looked at.
const ARGS_MAX: usize = 128;

/// What can be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// SETs of any keys, to MSET.
    Set,
    /// HSETs of one key.
    Hset,
    /// SADDs of one key.
    Sadd,
    /// RPUSHes to one key.
    Rpush,
    /// LPUSHes to one key.
    Lpush,
    /// ZADDs of one key.
    Zadd,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 6] = [Family::Set, Family::Hset, Family::Sadd, Family::Rpush, Family::Lpush, Family::Zadd];

    /// The command, in upper case.
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

    /// Whether a run's commands must name the same key.
    pub fn has_one_key(self) -> bool {
        self != Family::Set
    }
}

/// What is merged, and how much at most: with the input, all that decides what the server counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merging {
    /// A bit for each family.
    families: u8,
    /// Commands of a run.
    most: u16,
    /// Commands that are put into order together; 0: none are, as in every load that can go on.
    #[serde(skip)]
    ordered: u32,
    rules: u16,
}

impl Merging {
    /// These families.
    pub fn of(families: impl IntoIterator<Item = Family>) -> Merging {
        let families = families.into_iter().fold(0, |bits, family| bits | 1 << family as u8);
        if families == 0 {
            return Merging::default();
        }
        Merging { families, most: MERGED_COMMANDS, ordered: ORDERED_COMMANDS, rules: RULES }
    }

    /// The same in runs of no more commands than a chunk has, and no more put into order together than
    /// [`ORDERED_CHUNKS`] have.
    pub fn in_chunks(self, chunk: u64) -> Merging {
        let most = u16::try_from(chunk).unwrap_or(u16::MAX).min(self.most);
        let ordered = u32::try_from(chunk.saturating_mul(ORDERED_CHUNKS)).unwrap_or(u32::MAX).min(self.ordered);
        if most < 2 { Merging::default() } else { Merging { most, ordered, ..self } }
    }

    /// The same, with so many commands put into order together.
    #[cfg(test)]
    pub fn in_groups(self, ordered: u32) -> Merging {
        Merging { ordered, ..self }
    }

    /// The same with all commands in the order of the input.
    pub fn in_order(self) -> Merging {
        Merging { ordered: 0, ..self }
    }

    /// Whether nothing is merged.
    pub fn is_none(self) -> bool {
        self.families == 0
    }

    fn has(self, family: Family) -> bool {
        self.families & 1 << family as u8 != 0
    }

    /// Commands that one on the wire may stand for.
    pub fn most(self) -> u64 {
        u64::from(self.most.max(1))
    }

    /// Whether a load that began so can go on where this is possible.
    pub fn can_go_on(self, possible: Merging) -> bool {
        self.is_none() || (self.rules == RULES && self.families & !possible.families == 0)
    }
}

/// A request that may stand in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its family.
    pub family: Family,
    /// Where what it adds to a run begins, relative to the request.
    pub adds_from: usize,
    /// How many arguments that is.
    pub adds: usize,
}

/// A run that may still grow. Ranges are relative to its request.
#[derive(Clone, Debug)]
pub struct MergeRun {
    /// Its first command's.
    pub candidate: Candidate,
    /// The name as it was written.
    pub name: Range<usize>,
    /// The first argument.
    pub key: Range<usize>,
    /// Where its request begins in the block.
    pub start: usize,
    /// Its first command's index in the block.
    pub from: usize,
    /// How many commands it has.
    pub commands: u64,
    /// Arguments that its commands add up to, without name and, if they have one key, key.
    pub args: usize,
    /// Whether it is put into order when it ends; then it may have far more commands than one request.
    pub is_ordered: bool,
}

/// What is known of the input between commands and blocks.
#[derive(Clone, Debug, Default)]
pub struct Merger {
    /// What is merged.
    pub merging: Merging,
    /// Within a transaction everything stays as it is: its commands' replies are EXEC's.
    pub in_transaction: bool,
    /// The input and line of the first that was rejected within the transaction: it must not be executed without.
    pub spoilt_by: Option<(usize, u64)>,
    /// Whether the input may have changed what the user may do, which was asked before: SETs stay as they are then.
    pub rights_may_differ: bool,
    /// The run at the block's end.
    pub run: Option<MergeRun>,
    /// What puts runs into order.
    pub sorter: Sorter,
    /// How often such a run has become as long as it may.
    doublings: u32,
}

impl Merger {
    /// Nothing has come yet.
    pub fn new(merging: Merging) -> Merger {
        Merger { merging, ..Merger::default() }
    }

    /// What a request can be merged as.
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

    /// Commands of a run that is put into order.
    fn ordered_max(&self) -> u64 {
        let grown = ORDERED_COMMANDS_FIRST.saturating_mul(2_u32.saturating_pow(self.doublings));
        u64::from(grown.min(ORDERED_COMMANDS).min(self.merging.ordered))
    }

    /// Whether there is a run that is to be put into order, and whether it is as long as it may be.
    pub fn ordered_run(&self) -> Option<bool> {
        self.run.as_ref().filter(|run| run.is_ordered).map(|run| run.commands >= self.ordered_max())
    }

    /// Takes the run away, to be made one or more requests.
    pub fn take_run(&mut self) -> Option<MergeRun> {
        if self.ordered_run() == Some(true) && self.ordered_max() < u64::from(ORDERED_COMMANDS) {
            self.doublings += 1;
        }
        self.run.take().filter(|run| run.commands > 1)
    }

    /// Whether a run that begins with this candidate is put into order.
    pub fn orders(&self, candidate: &Candidate) -> bool {
        self.merging.ordered > 0 && candidate.family == Family::Zadd && candidate.adds == 2
    }

    /// Whether a candidate continues the run; `bytes` is all that the block holds, `start` where its request begins.
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

/// What a ZADD with one member adds.
pub fn score_and_member(adds: &[u8]) -> Option<(&[u8], &[u8])> {
    let (score, rest) = split_argument(adds)?;
    Some((score, split_argument(rest)?.0))
}

/// How many arguments a request announces, its name included; none if they are many or it says so in an unusual way.
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

/// Whether of these arguments the first, third and so on are numbers for sure.
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

/// The first of a request's arguments, and what is behind it.
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

/// Whether every server reads this text as a number: digits with perhaps a sign and a point. Others are numbers, too,
/// but which ones differs; and of a negative zero the sign is kept or not, depending on the members that are there
/// already.
fn is_number(text: &[u8]) -> bool {
    /// No precision is lost, nor could be.
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
    fn only_what_is_a_number_everywhere_is_one() {
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
    fn merging_goes_on_as_it_began() {
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
