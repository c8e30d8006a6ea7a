//! Evidence that the way from key to key stands in the replies. A reply names the distance to the next key: a number, or the length of a value
//! that the next one follows. Or it names a direction, and the client walks from a place to a neighbour of it.

use crate::dates;
use crate::evidence::{Occurrences, Words};

/// Numbers of a key that are compared.
const NUMBERS: usize = 3;
/// Digits of the longest number.
const DIGITS_MAX: usize = 12;
/// Distance to the number that is looked for in place of the right one: chance finds both equally often.
const OTHER: u64 = 3;
/// Fewer turns to neighbours are chance.
const TURNS_MIN: u32 = 6;
/// Years of dates in keys.
const YEARS: std::ops::RangeInclusive<i64> = 1900..=2199;

/// The place that a key names: its numbers. A date counts as the number of its day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    numbers: [i64; NUMBERS],
    len: u8,
}

impl Place {
    /// Reads the numbers of a key. A minus sign counts if no letter or digit stands before it.
    pub fn of(key: &[u8]) -> Place {
        let mut place = Place::default();
        let mut at = 0;
        while let Some(skipped) = key[at..].iter().position(u8::is_ascii_digit) {
            let begin = at + skipped;
            let digits = key[begin..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            at = begin + digits;
            if digits > DIGITS_MAX {
                continue;
            }
            let value = key[begin..at].iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
            let is_negative =
                begin > 0 && key[begin - 1] == b'-' && (begin < 2 || !key[begin - 2].is_ascii_alphanumeric());
            place.push(if is_negative { -value } else { value });
        }
        place
    }

    fn push(&mut self, value: i64) {
        if let Some(number) = self.numbers.get_mut(usize::from(self.len)) {
            *number = value;
            self.len += 1;
        }
        if let [year, month @ 1..=12, day @ 1..=31] = self.numbers
            && usize::from(self.len) == NUMBERS
            && YEARS.contains(&year)
        {
            (self.numbers, self.len) = ([dates::days(year, month, day), 0, 0], 1);
        }
    }

    /// The index of the only number that differs from an earlier place, and its change.
    fn change(&self, before: &Place) -> Option<(u8, i64)> {
        let pairs = self.numbers.iter().zip(&before.numbers).take(self.len.into());
        let mut changes = (0..).zip(pairs).filter(|(_, (now, before))| now != before);
        let (index, (now, before_number)) = changes.next()?;
        (self.len == before.len && changes.next().is_none()).then(|| (index, now - before_number))
    }
}

/// The evidence about the keys of one step of a loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shifts {
    before: Place,
    change: (u8, i64),
    /// The length of the last reply's text.
    text_len: u64,
    /// The changes that stand in the last reply.
    named: Occurrences,
    /// Rounds that were compared, and rounds with a step to a neighbour in another direction than the step before.
    compared: u32,
    turns: u32,
}

impl Shifts {
    /// Compares a key with the one of the previous round, `distance` trips ago.
    pub fn compare(&mut self, key: &[u8], replies: &Words, trip: u32, distance: u16) {
        let place = Place::of(key);
        let before = std::mem::replace(&mut self.before, place);
        self.compared += 1;
        self.named.compare();
        let Some(change) = place.change(&before) else { return };
        let last = std::mem::replace(&mut self.change, change);
        let amount = change.1.unsigned_abs();
        let stands_there = |amount| amount == self.text_len || replies.named_last(amount, trip, distance);
        // Even steps are equal to a number of all replies by chance.
        if last.1.unsigned_abs() != amount {
            self.named.count(stands_there(amount), stands_there(amount + OTHER));
        }
        self.turns += u32::from(amount == 1 && last.1 != 0 && last != change);
    }

    /// Takes the length of the reply's text; 0 for replies of other kinds.
    pub fn answered(&mut self, text_len: u64) {
        self.text_len = text_len;
    }

    /// True if the replies name the distances from key to key, or the keys are those of a walk from neighbour to neighbour.
    pub fn lead_on(&self) -> bool {
        self.named.are_no_chance(70) || self.turns >= TURNS_MIN && self.turns * 10 >= self.compared * 3
    }

    /// Begins a new part of the same loop.
    pub fn begin_part(&mut self) {
        (self.compared, self.turns) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Command;

    fn place(key: &str) -> Vec<i64> {
        let place = Place::of(key.as_bytes());
        place.numbers[..usize::from(place.len)].to_vec()
    }

    #[test]
    fn places_are_numbers_and_days() {
        assert_eq!(place("cell:3:-17"), [3, -17]);
        assert_eq!(place("a-5:x9"), [5, 9]);
        assert_eq!(place("none"), []);
        assert_eq!(place("1:2:3:4"), [1, 2, 3]);
        assert_eq!(place("service:2026-03-01")[0] - place("service:2026-02-27")[0], 2);
        assert_eq!(place("service:2000-01-01")[0] - place("service:1999-12-31")[0], 1);
        assert_eq!(place("9999999999999:4"), [4]);
    }

    /// Runs a loop of reads; each has a key and a reply.
    fn lead_on(reads: impl Iterator<Item = (String, String)>) -> bool {
        let (mut shifts, mut words) = (Shifts::default(), Words::default());
        for (trip, (key, text)) in (1..).zip(reads) {
            shifts.compare(key.as_bytes(), &words, trip, 1);
            let reply = format!("${}\r\n{text}\r\n", text.len());
            words.learn(reply.as_bytes(), reply.len() as u64, trip, &Command::default(), None);
            shifts.answered(text.len() as u64);
        }
        shifts.lead_on()
    }

    fn amount(n: u64) -> u64 {
        n * n * 31 % 57 + 2
    }

    #[test]
    fn replies_that_name_the_distance_lead_on() {
        let back = |place: &mut u64, n: u64| {
            let (key, amount) = (format!("backup:{place}"), amount(n));
            *place -= amount;
            Some((key, format!("{{\"size\":{},\"back\":{amount}}}", n * 77 % 1000 + 1000)))
        };
        assert!(lead_on((1..40).scan(9000, |place, n| back(place, n))));
        let segment = |place: &mut u64, n: u64| {
            let (key, text) = (format!("segment:{place}"), "x".repeat(amount(n) as usize));
            *place += amount(n);
            Some((key, text))
        };
        assert!(lead_on((1..40).scan(0, |place, n| segment(place, n))));
    }

    #[test]
    fn other_numbers_do_not_lead_on() {
        assert!(!lead_on((1..60).map(|n| (format!("user:{}", n * n * 7 % 991), format!("{}", n * 13 % 50)))));
        assert!(!lead_on((1..60).map(|n| (format!("user:{n}"), format!("{}", n * 13 % 50)))));
        assert!(!lead_on((1..60).map(|n| (format!("cell:{}:{}", n / 8, n % 8), "x".into()))));
    }

    #[test]
    fn a_walk_leads_on() {
        let cell = |place: &mut (i64, i64), n: i64| {
            let key = format!("cell:{}:{}", place.0, place.1);
            match n * n % 7 {
                0..=2 => place.0 += 1,
                _ => place.1 -= 1,
            }
            Some((key, "E".to_owned()))
        };
        assert!(lead_on((1..60).scan((0, 5), |place, n| cell(place, n))));
    }
}
