//! Evidence for and against the independence of a loop's commands.
//!
//! A command *depends* on an earlier reply if its new words stand in that reply: in a list, in a hash, inside JSON, alone
//! or as a number plus one. A word is new if the same step of the previous round did not have it. Replies are kept as
//! hashes of their words ([`Words`]).
//!
//! A command is *predictable* if it differs from the command of the previous round only in its numbers, by the same
//! amounts as in the rounds before. A loop of predictable commands was known before it began, unless its commands stand
//! in the replies.

use crate::digest;
use crate::hash::{self, mix};

/// Number of words of replies that are remembered: enough for a walk through a tree of a hundred nodes, level by level.
const REMEMBERED: usize = 256;
/// The last words, among which a new one is looked for.
const REPEATED: u8 = 16;
/// Bytes of a reply that are examined.
const REPLY_BYTES_MAX: usize = 256;
/// Number of words of a command that are examined.
pub const COMMAND_WORDS: usize = 8;
/// Bytes of an argument that are examined: a key with a digest of SHA-256 is shorter. A longer argument is predictable only if it does not
/// change.
const ARGUMENT_BYTES_MAX: usize = 96;
/// Smaller numbers stand in replies by chance.
const TELLING_NUMBER: u64 = 1000;
/// Shorter words stand in replies by chance.
const TELLING_BYTES: usize = 4;
/// Digits of the longest number.
const DIGITS_MAX: usize = 18;
/// Distance from a small number to the one that is looked for in its place: chance finds both equally often. Replies also stand for the
/// next number.
const OTHER_NUMBER: u64 = 3;
/// Number of rounds after which digests of replies are no longer looked for in vain.
const DIGESTS_MAX: u32 = 8;
/// Marks the hashes of numbers.
const NUMBER: u64 = 0x4e55_4d42;

/// A word, reduced to a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Word {
    hash: u32,
    /// A small number plus one; 0 for any other word.
    small: u16,
    /// False if the word stands in replies by chance.
    is_telling: bool,
    /// True if the word has the form of a digest.
    is_digest: bool,
}

/// Cuts a text into words: runs of letters, digits and bytes beyond ASCII.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_separator = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte < 0x80;
    text.split(is_separator).filter(|word| !word.is_empty())
}

/// Cuts a word of letters and then digits before its digits. Any other word has no number.
fn number(word: &[u8]) -> (&[u8], Option<u64>) {
    let letters = word.iter().take_while(|byte| !byte.is_ascii_digit()).count();
    let (stem, digits) = word.split_at(letters);
    if digits.is_empty() || digits.len() > DIGITS_MAX || !digits.iter().all(u8::is_ascii_digit) {
        return (word, None);
    }
    (stem, Some(digits.iter().fold(0_u64, |value, digit| value * 10 + u64::from(digit - b'0'))))
}

fn hashed_number(value: u64) -> Word {
    let is_telling = value >= TELLING_NUMBER;
    let small = if is_telling { 0 } else { value as u16 + 1 };
    Word { hash: mix(NUMBER, value) as u32, small, is_telling, is_digest: false }
}

/// Returns the word's hash: of its number if it ends with one, otherwise of its letters. A prefix before a number
/// changes nothing, because applications add and remove it.
fn hashed(word: &[u8]) -> Word {
    match number(word) {
        (_, Some(value)) => hashed_number(value),
        _ => Word {
            hash: hash::bytes(0, word) as u32,
            small: 0,
            is_telling: word.len() >= TELLING_BYTES,
            is_digest: digest::is_digest(word),
        },
    }
}

/// A command, reduced to hashes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Command {
    words: [Word; COMMAND_WORDS],
    len: u8,
    /// The hash of everything but the numbers.
    template: u64,
    /// The sum of the numbers, each with a weight of its own: it grows evenly if all numbers do.
    numbers: u64,
    /// The weight of the last number.
    weight: u64,
}

impl Command {
    /// Reduces a command's arguments.
    pub fn of<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> Command {
        let mut command = Command::default();
        for argument in arguments {
            command.add(argument);
        }
        command
    }

    fn add(&mut self, argument: &[u8]) {
        if argument.len() > ARGUMENT_BYTES_MAX {
            self.template = mix(self.template, hash::argument(1, argument));
            return;
        }
        self.template = mix(self.template, argument.iter().filter(|byte| !byte.is_ascii_digit()).count() as u64);
        for word in words(argument) {
            let (stem, value) = number(word);
            self.template = mix(self.template, hash::bytes(u64::from(value.is_some()), stem));
            if let Some(value) = value {
                self.weight = mix(self.template, NUMBER) | 1;
                self.numbers = self.numbers.wrapping_add(value.wrapping_mul(self.weight));
            }
            if let Some(place) = self.words.get_mut(usize::from(self.len)) {
                *place = hashed(word);
                self.len += 1;
            }
        }
    }

    fn words(&self) -> &[Word] {
        self.words.get(..usize::from(self.len)).unwrap_or_default()
    }

    fn has(&self, hash: u32) -> bool {
        self.words().iter().any(|word| word.hash == hash)
    }

    /// The words that the command before did not have.
    fn new_words(&self, before: &Command) -> impl Iterator<Item = &Word> {
        self.words().iter().filter(|word| !before.has(word.hash))
    }

    /// True if the command has at least two different words that the command before did not have.
    fn has_several_new(&self, before: &Command) -> bool {
        let mut new = self.new_words(before);
        new.next().is_some_and(|first| new.any(|word| word.hash != first.hash))
    }
}

/// The words of the last replies.
#[derive(Clone, Debug)]
pub struct Words {
    hashes: [u32; REMEMBERED],
    /// The numbers of their trips, as far as they fit.
    trips: [u16; REMEMBERED],
    next: u8,
}

impl Default for Words {
    fn default() -> Words {
        Words { hashes: [0; REMEMBERED], trips: [0; REMEMBERED], next: 0 }
    }
}

impl Words {
    /// Remembers a word. Names of fields are the same in each reply and take one place.
    fn push(&mut self, hash: u32, trip: u32) {
        let before = |back: u8| usize::from(self.next.wrapping_sub(back)) % REMEMBERED;
        if let Some(known) = (1..=REPEATED).map(before).find(|place| self.hashes[*place] == hash) {
            self.trips[known] = trip as u16;
            return;
        }
        let place = usize::from(self.next) % REMEMBERED;
        (self.hashes[place], self.trips[place]) = (hash, trip as u16);
        self.next = self.next.wrapping_add(1);
    }

    /// Remembers the words of a reply that its command does not contain. Returns false if a part of the reply is
    /// hidden.
    pub fn learn(&mut self, reply: &[u8], len: u64, trip: u32, command: &Command) -> bool {
        let reply = reply.get(..REPLY_BYTES_MAX).unwrap_or(reply);
        let mut rest = reply;
        while let Some((payload, after)) = element(rest) {
            for word in words(payload) {
                self.learn_word(word, trip, command);
            }
            rest = after;
        }
        reply.len() as u64 == len
    }

    /// Remembers the digest of a reply in the form of `like` as a word of the reply.
    #[cold]
    pub fn learn_digest(&mut self, reply: &[u8], like: &[u8], trip: u32) {
        let Some((payload, [])) = element(reply) else { return };
        if let Some(digest) = digest::digest(payload, like) {
            self.push(hashed(digest.as_bytes()).hash, trip);
        }
    }

    fn learn_word(&mut self, word: &[u8], trip: u32, command: &Command) {
        let known = hashed(word);
        if command.has(known.hash) {
            return;
        }
        self.push(known.hash, trip);
        if let (_, Some(value)) = number(word) {
            let next = hashed_number(value + 1);
            if !command.has(next.hash) {
                self.push(next.hash, trip);
            }
        }
    }

    /// Returns how many trips ago the reply with this word was sent.
    fn distance(&self, hash: u32, trip: u32) -> Option<u16> {
        let places = self.hashes.iter().zip(&self.trips).filter(|(known, _)| **known == hash);
        places.map(|(_, sent)| (trip as u16).wrapping_sub(*sent)).filter(|distance| *distance > 0).min()
    }
}

/// Takes the first element of a reply in the protocol: its text, and the rest. Heads of arrays and statuses have no text.
fn element(reply: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&kind, rest) = reply.split_first()?;
    let end = rest.iter().position(|&byte| byte == b'\r').unwrap_or(rest.len());
    let (line, after) = (rest.get(..end)?, rest.get(end + 2..).unwrap_or_default());
    match kind {
        b':' | b',' | b'(' => Some((line, after)),
        b'$' | b'=' => match resp::num::parse_i64(line).and_then(|len| usize::try_from(len).ok()) {
            Some(len) => {
                let payload = after.get(..len).unwrap_or(after);
                Some((payload, after.get(payload.len() + 2..).unwrap_or_default()))
            }
            None => Some((b"", after)),
        },
        _ => Some((b"", after)),
    }
}

/// The origin of a command's new words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// How many trips ago the server sent the reply; 0 if no reply has a new word.
    pub distance: u16,
    /// True if the word does not stand in replies by chance.
    pub is_telling: bool,
    /// True if no reply has the new words, and one of them is a digest: it may be the digest of a reply.
    pub is_derived: bool,
}

/// The evidence that small numbers give.
#[derive(Clone, Copy, Debug, Default)]
struct SmallNumbers {
    compared: u32,
    found: u32,
    /// Rounds in which a reply had the small number and not the other one, and rounds with the other one only.
    only_found: u32,
    only_other: u32,
}

/// The evidence about one step of a loop.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepEvidence {
    /// The command of the previous round.
    before: Command,
    /// The change of its numbers.
    change: u64,
    /// Rounds that were compared with the previous one.
    pub compared: u32,
    /// Rounds that were predictable.
    pub predicted: u32,
    /// Rounds in which a number moved by half of its previous move, or became twice as large: a binary search.
    pub halved: u32,
    /// Rounds with several new words.
    several: u32,
    /// The counts for the test of small numbers, over all parts of the loop.
    small: SmallNumbers,
    /// Replies that told something new.
    pub telling: u32,
    /// Replies with a hidden part.
    pub hidden: u32,
    /// Arrays with a hidden part. The next command may begin where such an array ends.
    pub pages: u32,
    /// The hash of the previous reply.
    reply: u64,
    /// True if the last command was equal to the one before.
    repeats: bool,
    /// Number of commands that were equal to the one before.
    repeated: u32,
}

impl StepEvidence {
    /// Compares a command with the one of the previous round. Returns the reply that its new words come from.
    pub fn compare(&mut self, command: &Command, replies: &Words, trip: u32) -> Source {
        let before = std::mem::replace(&mut self.before, *command);
        if before.len == 0 && before.template == 0 {
            return Source::default();
        }
        self.compared += 1;
        self.small.compared += 1;
        let change = command.numbers.wrapping_sub(before.numbers);
        let is_alike = command.template == before.template;
        // The first change is the example for the others.
        let is_predicted = is_alike && (change == self.change || self.compared == 1);
        self.predicted += u32::from(is_predicted);
        let is_halved = is_half(self.change, change, command.weight) || is_doubled(command, &before);
        self.halved += u32::from(is_alike && is_halved);
        self.several += u32::from(command.has_several_new(&before));
        self.change = change;
        self.repeats = is_alike && change == 0;
        self.repeated += u32::from(self.repeats);
        if !is_predicted {
            self.look_for_small(command, &before, replies, trip);
        }
        source(command, &before, replies, trip)
    }

    /// Looks for the first new small number in the replies, and for another number in its place.
    fn look_for_small(&mut self, command: &Command, before: &Command, replies: &Words, trip: u32) {
        let Some(word) = command.new_words(before).find(|word| word.small > 0) else { return };
        let other = hashed_number(u64::from(word.small - 1) + OTHER_NUMBER);
        let (is_found, is_other) =
            (replies.distance(word.hash, trip).is_some(), replies.distance(other.hash, trip).is_some());
        self.small.found += u32::from(is_found);
        self.small.only_found += u32::from(is_found && !is_other);
        self.small.only_other += u32::from(is_other && !is_found);
    }

    /// True if the small numbers of most commands stand in replies, and not by chance: more often than other numbers do, by three standard
    /// deviations. Rounds in which both numbers stand in replies say nothing (McNemar's test).
    pub fn follows_small_numbers(&self) -> bool {
        let SmallNumbers { compared, found, only_found, only_other } = self.small;
        let surplus = u64::from(only_found.saturating_sub(only_other));
        let variance = u64::from(only_found) + u64::from(only_other);
        found * 2 >= compared && surplus * surplus > 9 * variance
    }

    /// Takes the reply of the present round.
    pub fn answered(&mut self, reply: u64, is_silent: bool, is_whole: bool, is_array: bool) {
        let is_new = std::mem::replace(&mut self.reply, reply) != reply;
        let is_hidden = is_new && !is_silent && !is_whole;
        self.telling += u32::from(is_new && !is_silent);
        self.hidden += u32::from(is_hidden);
        self.pages += u32::from(is_hidden && is_array);
    }

    /// True if the last command was equal to the one before, so that no reply changed it.
    pub fn is_repeated(&self) -> bool {
        self.compared > 0 && self.repeats
    }

    /// True if nearly all commands are equal, and their replies mostly, too.
    pub fn asks_again(&self) -> bool {
        self.compared > 2 && self.repeated * 10 >= self.compared * 9 && self.telling * 2 < self.compared
    }

    /// True if most commands have several new words.
    pub fn asks_about_several(&self) -> bool {
        self.several * 10 >= self.compared * 7
    }

    /// True if a look for digests of replies is worth its time: few rounds were compared, or the last command had such a digest.
    pub fn may_be_digests(&self, source: Source) -> bool {
        self.compared < DIGESTS_MAX || source.distance > 0
    }

    /// True if the commands of all rounds follow from the first two.
    pub fn is_predictable(&self) -> bool {
        self.compared > 1 && self.predicted + 1 >= self.compared
    }

    /// Begins a new part of the same loop.
    pub fn begin_part(&mut self) {
        let StepEvidence { before, change, reply, small, .. } = *self;
        *self = StepEvidence { before, change, reply, small, ..StepEvidence::default() };
    }
}

/// True if a weighted number moved by half of its previous move, in either direction, give or take one.
fn is_half(before: u64, change: u64, weight: u64) -> bool {
    let twice = change.wrapping_mul(2);
    let rests = [before.wrapping_sub(twice), before.wrapping_add(twice)];
    let is_small = |rest: u64| rest == 0 || rest == weight || rest == weight.wrapping_neg();
    // Even steps of one are no halves, give or take one.
    let is_even = change == before || change == before.wrapping_neg();
    before != 0 && change != 0 && !is_even && rests.into_iter().any(is_small)
}

/// True if a small number is twice the one before, or one more. The client searches a binary tree with numbered
/// nodes, or looks for the end of a list.
fn is_doubled(command: &Command, before: &Command) -> bool {
    let is_left = before.words().iter().filter(|word| word.small > 2 && !command.has(word.hash));
    let doubled = is_left.map(|word| 2 * u64::from(word.small - 1));
    doubled.into_iter().any(|even| command.has(hashed_number(even).hash) || command.has(hashed_number(even + 1).hash))
}

fn source(command: &Command, before: &Command, replies: &Words, trip: u32) -> Source {
    let new = || command.new_words(before);
    let found = new().filter_map(|word| Some((replies.distance(word.hash, trip)?, word.is_telling)));
    let nearest = found.min_by_key(|(distance, _)| *distance);
    match nearest {
        Some((distance, is_telling)) => Source { distance, is_telling, is_derived: false },
        None => Source { is_derived: new().any(|word| word.is_digest), ..Source::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Command {
        Command::of(text.split(' ').skip(1).map(str::as_bytes))
    }

    /// The distance to the reply that the second command's new words come from.
    fn distance(first: &str, reply: &str, second: &str) -> u16 {
        let (mut replies, mut step) = (Words::default(), StepEvidence::default());
        step.compare(&command(first), &replies, 1);
        replies.learn(reply.as_bytes(), reply.len() as u64, 1, &command(first));
        step.compare(&command(second), &replies, 2).distance
    }

    #[test]
    fn a_new_word_that_stands_in_a_reply_depends_on_it() {
        assert_eq!(distance("GET node:1", "$2\r\n17\r\n", "GET node:17"), 1);
        assert_eq!(distance("GET node:1", "$16\r\n{\"next\":\"n-170\"}\r\n", "GET node:170"), 1);
        assert_eq!(distance("HGETALL n:a", "*2\r\n$4\r\nnext\r\n$5\r\nalice\r\n", "HGETALL n:alice"), 1);
        assert_eq!(distance("GET last", ":41\r\n", "GET item42"), 1, "one step derived");
        assert_eq!(distance("GET node:1", "$2\r\n17\r\n", "GET node:2"), 0);
    }

    #[test]
    fn a_reply_that_repeats_its_command_tells_nothing() {
        let reply = "$24\r\n{\"id\":5,\"name\":\"user 5\"}\r\n";
        assert_eq!(distance("HGET user:5 name", reply, "HGET user:6 name"), 0);
        assert_eq!(distance("GET user:5", "*2\r\n$6\r\nuser:5\r\n$1\r\nx\r\n", "GET user:6"), 0);
        // The field was part of the previous command, too.
        assert_eq!(distance("HGET user:5 name", "$6\r\nname 9\r\n", "HGET user:6 name"), 0);
    }

    #[test]
    fn lengths_are_no_words() {
        assert_eq!(distance("GET node:5", "$6\r\nabcdef\r\n", "GET node:6"), 0);
        assert_eq!(distance("GET node:5", "*6\r\n", "GET node:6"), 0);
    }

    fn evidence(commands: &[&str]) -> StepEvidence {
        let mut step = StepEvidence::default();
        for text in commands {
            step.compare(&command(text), &Words::default(), 1);
        }
        step
    }

    #[test]
    fn numbers_that_grow_evenly_are_predictable() {
        assert!(evidence(&["SET a:1 x7", "SET a:2 x14", "SET a:3 x21", "SET a:4 x28"]).is_predictable());
        assert!(evidence(&["GET a:9 f", "GET a:8 f", "GET a:7 f"]).is_predictable());
        assert!(!evidence(&["GET a:1", "GET a:2", "GET a:4", "GET a:5", "GET a:9"]).is_predictable());
        assert!(!evidence(&["GET a", "GET b", "GET c"]).is_predictable());
    }

    #[test]
    fn a_binary_search_moves_by_halves() {
        let search = evidence(&["LINDEX l 499", "LINDEX l 749", "LINDEX l 624", "LINDEX l 562", "LINDEX l 531"]);
        assert_eq!(search.halved, 3);
        assert_eq!(evidence(&["LINDEX l 1", "LINDEX l 2", "LINDEX l 3"]).halved, 0);
    }

    /// Each number stands in a reply. In three of five rounds, so does the other number.
    #[test]
    fn small_numbers_are_compared_round_by_round() {
        let (mut replies, mut step) = (Words::default(), StepEvidence::default());
        for round in 1..40_u32 {
            let number = round * round * 7 % 89 * 10;
            let other = if round % 5 < 3 { number + 3 } else { 0 };
            let reply = format!("{number} {other}");
            let reply = format!("${}\r\n{reply}\r\n", reply.len());
            replies.learn(reply.as_bytes(), reply.len() as u64, round, &Command::default());
            step.compare(&command(&format!("GET node:{number}")), &replies, round + 1);
        }
        assert!(step.follows_small_numbers());
    }

    #[test]
    fn truncated_replies_are_hidden() {
        let reply = format!("$1000\r\n{}", "x".repeat(500));
        assert!(!Words::default().learn(reply.as_bytes(), 1009, 1, &Command::default()));
        assert!(Words::default().learn(b"$-1\r\n", 5, 1, &Command::default()));
        for len in 0..reply.len() {
            Words::default().learn(&reply.as_bytes()[..len], 1009, 1, &Command::default());
        }
    }
}
