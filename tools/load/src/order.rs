//! Sorts a run of ZADDs like a sorted set: by score and then by member.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::ops::Range;

use foldhash::fast::FixedState;

use crate::limits::ORDERED_COMMANDS_MIN;
use crate::merge::score_and_member;

/// A command of the run.
#[derive(Clone, Copy, Debug)]
struct Command {
    /// The score as an integer with the same order.
    score: u64,
    /// The first bytes of the member after the common prefix of all members. They are decisive in most cases.
    first: u64,
    /// Start and end of the bytes that the command adds, and start of its member.
    start: u32,
    end: u32,
    member: u32,
    /// Position in input order.
    place: u32,
    /// Line of the input where it began.
    line: u64,
}

impl Command {
    /// Creates a command. The bytes at `range` hold the score and the member as arguments in wire format.
    fn new(range: Range<usize>, place: u32, line: u64) -> Command {
        let (start, end) = (range.start as u32, range.end as u32);
        Command { score: 0, first: 0, start, end, member: end, place, line }
    }

    /// Finds the score and the member. Returns false if they aren't valid.
    fn look(&mut self, bytes: &[u8]) -> bool {
        let Some((score, member)) = score_and_member(&bytes[self.start as usize..self.end as usize]) else {
            return false;
        };
        // Only a line end follows the member.
        self.member = self.end - 2 - member.len() as u32;
        let score = number(score);
        self.score = score.map_or(0, comparable);
        score.is_some()
    }

    fn member<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.member as usize..self.end as usize - 2]
    }

    fn key(&self) -> (u64, u64) {
        (self.score, self.first)
    }
}

/// Returns the number in a text of digits, possibly with a sign and a point. Returns `None` for any other text, and for
/// more digits than certainly give the nearest number.
fn number(text: &[u8]) -> Option<f64> {
    /// An integer with this number of digits is exact, and so is the power of ten.
    const DIGITS_MAX: usize = 15;
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.len() > DIGITS_MAX + 1 {
        return None;
    }
    let (mut integer, mut scale, mut has_point) = (0_u64, 1_u64, false);
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                integer = integer * 10 + u64::from(byte - b'0');
                scale *= if has_point { 10 } else { 1 };
            }
            b'.' if !has_point => has_point = true,
            _ => return None,
        }
    }
    let exact = digits.len() - usize::from(has_point) <= DIGITS_MAX && digits.len() > usize::from(has_point);
    let number = integer as f64 / scale as f64;
    exact.then_some(if digits.len() < text.len() { -number } else { number })
}

/// Returns an integer with the same order. The larger of two negative numbers has the smaller bits.
fn comparable(score: f64) -> u64 {
    let bits = score.to_bits();
    if score.is_sign_negative() { !bits } else { bits | 1 << 63 }
}

/// Sorts runs. Its memory is reused for the next run.
#[derive(Clone, Debug, Default)]
pub struct Sorter {
    bytes: Vec<u8>,
    commands: Vec<Command>,
    members: Members,
}

impl Sorter {
    /// Takes a run. The commands are in `bytes`, the first one from `start` on; `marks` are their ends and lines.
    pub fn take(&mut self, bytes: &[u8], start: usize, marks: impl Iterator<Item = (usize, u64)>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        self.commands.clear();
        let mut start = start;
        for (place, (end, line)) in (0..).zip(marks) {
            self.commands.push(Command::new(std::mem::replace(&mut start, end)..end, place, line));
        }
    }

    /// Sorts the run as far as the effect stays the same: a repeated member keeps its position relative to the commands
    /// before and after it. Returns false if the run is in input order.
    pub fn sort(&mut self) -> bool {
        let Sorter { bytes, commands, members } = self;
        if commands.len() < ORDERED_COMMANDS_MIN || !commands.iter_mut().all(|command| command.look(bytes)) {
            return false;
        }
        if commands.is_sorted_by(|one, next| (one.score, one.member(bytes)) <= (next.score, next.member(bytes))) {
            return false;
        }
        let mut is_reordered = false;
        let mut rest = &mut commands[..];
        while !rest.is_empty() {
            let different = members.different(rest.iter().map(|command| command.member(bytes)));
            let (run, behind) = rest.split_at_mut(different);
            if run.len() >= ORDERED_COMMANDS_MIN {
                sort(run, bytes);
                is_reordered = true;
            }
            rest = behind;
        }
        is_reordered
    }

    /// Returns the bytes of the run.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the range of each command in the bytes, its position in input order, and its line.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = (Range<usize>, u32, u64)> + Clone {
        let range = |command: &Command| command.start as usize..command.end as usize;
        self.commands.iter().map(move |command| (range(command), command.place, command.line))
    }
}

/// Sorts commands with different members.
fn sort(commands: &mut [Command], bytes: &[u8]) {
    look_at_members(commands, bytes);
    // Integers are sorted several times faster than texts.
    commands.sort_unstable_by_key(Command::key);
    for alike in commands.chunk_by_mut(|one, next| one.key() == next.key()) {
        alike.sort_unstable_by(|one, next| one.member(bytes).cmp(next.member(bytes)));
    }
}

/// Reads the bytes of each member after the common prefix.
fn look_at_members(commands: &mut [Command], bytes: &[u8]) {
    let mut members = commands.iter().map(|command| command.member(bytes));
    let Some(one) = members.next() else { return };
    let common = members.fold(one.len(), |common, other| {
        let alike = |(one, other): &(&u8, &u8)| one == other;
        one[..common].iter().zip(other).take_while(alike).count()
    });
    for command in commands {
        let mut first = [0; 8];
        let behind = &command.member(bytes)[common..];
        let length = behind.len().min(first.len());
        first[..length].copy_from_slice(&behind[..length]);
        command.first = u64::from_be_bytes(first);
    }
}

/// Hashes of the members so far. Two different members with the same hash count as equal, which only makes the order
/// slightly worse.
#[derive(Clone, Debug, Default)]
struct Members(HashSet<u64, BuildHasherDefault<Hash>>);

impl Members {
    /// Clearing a set takes time proportional to its capacity. It is replaced if its capacity is this many times its
    /// size.
    const SHRINKS_AT: usize = 8;

    /// Returns the number of members before the first repeated one.
    fn different<'b>(&mut self, members: impl Iterator<Item = &'b [u8]>) -> usize {
        if self.0.capacity() > Self::SHRINKS_AT * self.0.len() {
            self.0 = HashSet::default();
        }
        self.0.clear();
        members.take_while(|member| self.0.insert(FixedState::default().hash_one(member))).count().max(1)
    }
}

/// A hasher for values that are hashes already.
#[derive(Clone, Copy, Debug, Default)]
struct Hash(u64);

impl Hasher for Hash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(text: &str) -> String {
        format!("${}\r\n{text}\r\n", text.len())
    }

    /// Returns the positions of these scores and members in sorted order, between other commands.
    fn ordered(pairs: &[(&str, &str)]) -> Vec<u64> {
        let all: Vec<(String, String)> = (0..ORDERED_COMMANDS_MIN)
            .map(|number| ("-99999".to_owned(), format!("~{number:04}")))
            .chain(pairs.iter().map(|(score, member)| ((*score).to_owned(), (*member).to_owned())))
            .collect();
        let (mut bytes, mut ends) = ("head".to_owned(), Vec::new());
        for (score, member) in &all {
            bytes += &(arg(score) + &arg(member));
            ends.push(bytes.len());
        }
        let mut sorter = Sorter::default();
        sorter.take(bytes.as_bytes(), 4, ends.into_iter().zip(0..));
        let is_reordered = sorter.sort();
        let lines: Vec<u64> = sorter.commands().map(|(.., line)| line).collect();
        assert_eq!(is_reordered, !lines.is_sorted());
        for (range, place, line) in sorter.commands() {
            assert_eq!(u64::from(place), line);
            let (score, member) = &all[line as usize];
            assert_eq!(sorter.bytes()[range], *(arg(score) + &arg(member)).as_bytes());
        }
        let others = ORDERED_COMMANDS_MIN as u64;
        lines.into_iter().filter(|line| *line >= others).map(|line| line - others).collect()
    }

    #[test]
    fn scores_then_members() {
        assert_eq!(ordered(&[("10", "a"), ("9", "b"), ("-1.5", "c")]), [2, 1, 0]);
        assert_eq!(ordered(&[("-1", "a"), ("-2.5", "b"), ("0", "c"), ("-10", "d")]), [3, 1, 0, 2]);
        assert_eq!(ordered(&[("1", "b"), ("1", "a"), ("0", "c")]), [2, 1, 0]);
        let long = [("1", "the film number 2"), ("1", "the film number 10"), ("1", "the film"), ("1", "the film\0")];
        assert_eq!(ordered(&long), [2, 3, 1, 0]);
        assert_eq!(
            ordered(&[("1", "the same eight and c"), ("1", "the same eight and b"), ("1", "the"), ("0", "")]),
            [3, 2, 1, 0]
        );
    }

    #[test]
    fn common_prefixes_are_skipped() {
        let member = |number: usize| format!("the same beginning {:04}", (number * 7919) % 1000);
        let text: Vec<String> = (0..1000).map(|number| arg("7") + &arg(&member(number))).collect();
        let ends: Vec<usize> = (1..=text.len()).map(|count| text[..count].iter().map(String::len).sum()).collect();
        let mut sorter = Sorter::default();
        sorter.take(text.concat().as_bytes(), 0, ends.into_iter().zip(0..));
        assert!(sorter.sort());
        let members: Vec<String> = sorter.commands().map(|(.., line)| member(line as usize)).collect();
        assert!(members.is_sorted());
    }

    #[test]
    fn sorted_runs_stay_unchanged() {
        assert_eq!(ordered(&[("1", "a"), ("1", "b"), ("2", "c")]), [0, 1, 2]);
        assert_eq!(ordered(&[("1", "the same eight a"), ("1", "the same eight b")]), [0, 1]);
        assert!(ordered(&[]).is_empty());
    }

    #[test]
    fn a_run_with_an_invalid_score_is_not_sorted() {
        assert_eq!(ordered(&[("2", "a"), ("x", "b"), ("0", "c")]), [0, 1, 2]);
    }

    #[test]
    fn repeated_members_keep_their_relative_order() {
        assert_eq!(ordered(&[("3", "a"), ("1", "b"), ("2", "a"), ("0", "c")]), [1, 0, 3, 2]);
        let members: Vec<String> = (0..300).map(|number| format!("{}", number % 150)).collect();
        let pairs: Vec<(String, &String)> = (0..300).map(|number| format!("{}", 300 - number)).zip(&members).collect();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(score, member)| (&**score, &***member)).collect();
        let found = ordered(&pairs);
        assert!(found[..150].iter().rev().eq((0..150).collect::<Vec<u64>>().iter()), "{found:?}");
        assert!(found[150..].iter().rev().eq((150..300).collect::<Vec<u64>>().iter()), "{found:?}");
    }

    #[test]
    fn numbers_are_the_nearest() {
        for text in [
            "0",
            "7",
            "-7",
            "007",
            "0.1",
            "-0.5",
            "3.25",
            "1979",
            "123456789012345",
            "12345678901234.5",
            "0.00000000000001",
            "999999999999999",
            "1700000000.123",
            "0.3",
            "-123.456",
            "5.",
            ".5",
        ] {
            assert_eq!(number(text.as_bytes()), text.parse().ok(), "{text}");
        }
        for text in ["", "-", ".", "-.", "1e3", "inf", "nan", "+1", "1.2.3", "--1", "1234567890123456", "0x1", " 1"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn scores_compare_as_their_integers() {
        let scores =
            [f64::NEG_INFINITY, -1e300, -2.0, -1.0, -1e-300, -0.0, 0.0, 1e-300, 1.0, 2.0, 1e300, f64::INFINITY];
        assert!(scores.map(comparable).is_sorted());
    }
}
