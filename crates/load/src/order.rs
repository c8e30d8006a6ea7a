//! The order in which a run of ZADDs leaves: that of a sorted set, by score and then by member.

use std::ops::Range;

use crate::limits::BLOCK_BYTES_KEPT;
use crate::merge::score_and_member;

/// One of the run's commands.
#[derive(Clone, Copy, Debug)]
struct Command {
    /// The score, so that it can be compared as an integer.
    score: u64,
    /// The member's first bytes behind what all members begin with: they decide in most cases.
    first: u64,
    /// Where what the command adds begins and ends, and its member begins.
    start: u32,
    end: u32,
    member: u32,
    /// The line of the input on which it began.
    line: u64,
}

impl Command {
    /// What a ZADD adds, score and member, each as an argument in the wire format: what is at `range` of `bytes`. Nothing has a
    /// score if it isn't that.
    fn new(bytes: &[u8], range: Range<usize>, line: u64) -> (Command, Option<f64>) {
        let parts = score_and_member(&bytes[range.clone()]);
        let score = parts.and_then(|(score, _)| std::str::from_utf8(score).ok()?.parse().ok());
        // Behind the member there is but the end of its line.
        let member = range.end - parts.map_or(0, |(_, member)| member.len() + 2);
        let (start, end, member) = (range.start as u32, range.end as u32, member as u32);
        (Command { score: score.map_or(0, comparable), first: 0, start, end, member, line }, score)
    }

    fn member<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        bytes.get(self.member as usize..(self.end as usize).saturating_sub(2)).unwrap_or_default()
    }

    fn key(&self) -> (u64, u64) {
        (self.score, self.first)
    }
}

/// A number of the same order: of two negative ones the larger has the smaller bits.
fn comparable(score: f64) -> u64 {
    let bits = score.to_bits();
    if score.is_sign_negative() { !bits } else { bits | 1 << 63 }
}

/// Sorts runs, in memory that it keeps from one to the next.
#[derive(Clone, Debug, Default)]
pub struct Sorter {
    commands: Vec<Command>,
    /// For the block's bytes, as they are made anew.
    spare: Vec<u8>,
}

impl Sorter {
    /// Takes the commands that stand in `bytes`, each up to its `end`, the first one from `start` on, and puts them into
    /// order. False if they keep the input's: they have it, or something isn't as it should be.
    pub fn sort(&mut self, bytes: &[u8], start: usize, marks: impl Iterator<Item = (usize, u64)>) -> bool {
        let (mut start, mut have_scores) = (start, true);
        self.commands.clear();
        for (end, line) in marks {
            let (command, score) = Command::new(bytes, std::mem::replace(&mut start, end)..end, line);
            have_scores &= score.is_some();
            self.commands.push(command);
        }
        if !have_scores {
            return false;
        }
        self.look_at_members(bytes);
        let member = |command: &Command| command.member(bytes);
        let in_order = |one: &Command, next: &Command| {
            one.key() < next.key() || one.key() == next.key() && member(one) <= member(next)
        };
        if self.commands.is_sorted_by(in_order) {
            return false;
        }
        // Integers are sorted several times faster than texts.
        self.commands.sort_unstable_by_key(Command::key);
        for alike in self.commands.chunk_by_mut(|one, next| one.key() == next.key()) {
            alike.sort_unstable_by(|one, next| member(one).cmp(member(next)));
        }
        true
    }

    /// Of each member, the bytes behind those that all begin with.
    fn look_at_members(&mut self, bytes: &[u8]) {
        let mut members = self.commands.iter().map(|command| command.member(bytes));
        let Some(one) = members.next() else { return };
        let common = members.fold(one.len(), |common, other| {
            let alike = |(one, other): &(&u8, &u8)| one == other;
            one[..common].iter().zip(other).take_while(alike).count()
        });
        for command in &mut self.commands {
            let mut first = [0; 8];
            let behind = &command.member(bytes)[common..];
            let length = behind.len().min(first.len());
            first[..length].copy_from_slice(&behind[..length]);
            command.first = u64::from_be_bytes(first);
        }
    }

    /// Where in the bytes each of the commands stands, and its line.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = (Range<usize>, u64)> + Clone {
        self.commands.iter().map(|command| (command.start as usize..command.end as usize, command.line))
    }

    /// An empty buffer.
    pub fn take_spare(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.spare)
    }

    /// A buffer that isn't needed any more.
    pub fn give_spare(&mut self, mut spare: Vec<u8>) {
        spare.clear();
        spare.shrink_to(BLOCK_BYTES_KEPT);
        self.spare = spare;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(pairs: &[(&str, &str)]) -> Vec<u64> {
        let arg = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let (mut bytes, mut ends) = ("head".to_owned(), Vec::new());
        for (score, member) in pairs {
            bytes += &(arg(score) + &arg(member));
            ends.push(bytes.len());
        }
        let mut sorter = Sorter::default();
        let is_other = sorter.sort(bytes.as_bytes(), 4, ends.into_iter().zip(0..));
        let lines: Vec<u64> = sorter.commands().map(|(_, line)| line).collect();
        assert_eq!(is_other, !lines.is_sorted());
        for (range, line) in sorter.commands() {
            let (score, member) = pairs[line as usize];
            assert_eq!(bytes[range], arg(score) + &arg(member));
        }
        lines
    }

    #[test]
    fn scores_then_members() {
        assert_eq!(ordered(&[("10", "a"), ("9", "b"), ("-1.5", "c")]), vec![2, 1, 0]);
        assert_eq!(ordered(&[("-1", "a"), ("-2.5", "b"), ("0", "c"), ("-10", "d")]), vec![3, 1, 0, 2]);
        assert_eq!(ordered(&[("1", "b"), ("1", "a"), ("0", "c")]), vec![2, 1, 0]);
        let long = [("1", "the film number 2"), ("1", "the film number 10"), ("1", "the film"), ("1", "the film\0")];
        assert_eq!(ordered(&long), vec![2, 3, 1, 0]);
        let longer = [("1", "the same eight and c"), ("1", "the same eight and b"), ("1", "the"), ("0", "")];
        assert_eq!(ordered(&longer), vec![3, 2, 1, 0]);
    }

    #[test]
    fn what_is_in_order_stays() {
        assert_eq!(ordered(&[("1", "a"), ("1", "b"), ("2", "a")]), vec![0, 1, 2]);
        assert_eq!(ordered(&[("1", "the same eight a"), ("1", "the same eight b")]), vec![0, 1]);
        assert!(ordered(&[]).is_empty());
    }

    #[test]
    fn where_something_is_no_number_nothing_is_sorted() {
        assert_eq!(ordered(&[("2", "a"), ("x", "b"), ("0", "c")]), [0, 1, 2]);
    }

    #[test]
    fn scores_compare_as_their_integers() {
        let scores =
            [f64::NEG_INFINITY, -1e300, -2.0, -1.0, -1e-300, -0.0, 0.0, 1e-300, 1.0, 2.0, 1e300, f64::INFINITY];
        assert!(scores.map(comparable).is_sorted());
    }
}
