//! Evidence for and against the independence of a loop's commands.
//!
//! A command *depends* on an earlier reply if its new words stand in that reply: in a list, in a hash, inside JSON, alone
//! or as a number plus one. A word is new if the same step of the previous round did not have it. Replies are kept as
//! hashes of their words ([`Words`]).
//!
//! A command is *predictable* if it differs from the command of the previous round only in its numbers, by the same
//! amounts as in the rounds before. A loop of predictable commands was known before it began, unless its commands stand
//! in the replies.

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};

use crate::binary::{self, Filter};
use crate::dates;
use crate::digest;
use crate::hash::{self, mix};
use crate::shifts::Shifts;

/// Number of words of replies and commands that are remembered: enough for a walk through a tree of some hundred nodes, level by level.
const REMEMBERED: usize = 512;
/// Places for a word, by its hash.
const WAYS: usize = 4;
const SETS: usize = REMEMBERED / WAYS;
/// Bytes of a reply that are examined.
const REPLY_BYTES_MAX: usize = 512;
/// Behind these first bytes of a reply, only words with digits are remembered: they often are parts of keys. There is no room for all words, so
/// this part counts as hidden.
const FIRST_BYTES: usize = 256;
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
const DIGESTS_MAX: u32 = 4;
/// Number of rounds after which binary numbers are no longer looked for in vain.
const BINARY_MAX: u32 = 32;
/// Texts in quotes of a reply whose digests are looked for.
const QUOTED_MAX: usize = 8;
/// Marks the hashes of numbers.
const NUMBER: u64 = 0x4e55_4d42;
/// Difference between the hashes of a number and the next one.
const NEXT: u32 = 0x9e37_79b1;
/// Marks the hashes of words of commands.
const ASKED: u64 = 0x4153_4b44;
/// Number of digits of hexadecimal numbers. Shorter ones stand in replies by chance.
const HEX_DIGITS: std::ops::RangeInclusive<usize> = 4..=16;

/// Bytes of Unix times, and of texts in Base64 that are decoded.
const TOKEN_BYTES: std::ops::RangeInclusive<usize> = 8..=64;
/// Tokens often lack their padding: it is no part of the word.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A word, reduced to a hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Word {
    hash: u32,
    /// A small number plus one; 0 for any other word.
    small: u16,
    kind: WordKind,
    /// False if the word stands in replies by chance.
    is_telling: bool,
}

/// The form of a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WordKind {
    #[default]
    Text,
    Number,
    Digest,
}

/// Cuts a text into words: runs of letters, digits and bytes beyond ASCII. Returns each word with its place.
fn words_at(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let is_separator = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte < 0x80;
    let mut next = 0;
    let words = text.split(is_separator).map(move |word| {
        let begin = next;
        next += word.len() + 1;
        let is_escaped = begin > 0 && text.get(begin - 1) == Some(&b'%');
        (begin, if is_escaped { behind_escape(word) } else { word })
    });
    words.filter(|(_, word)| !word.is_empty())
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    words_at(text).map(|(_, word)| word)
}

/// Returns a word without the two digits of an escaped character, as in `New%20York`.
fn behind_escape(word: &[u8]) -> &[u8] {
    match word {
        [high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
        _ => word,
    }
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

/// Returns the number of a word of hexadecimal digits, with a letter among them. Such a word may be another form of a decimal number.
fn hexadecimal(word: &[u8]) -> Option<u64> {
    if !HEX_DIGITS.contains(&word.len()) {
        return None;
    }
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(u64::from);
    word.iter().try_fold(0_u64, |value, byte| Some(value << 4 | digit(byte)?))
}

/// The hash of a number. The hash of the next number is larger by [`NEXT`].
pub fn number_hash(value: u64) -> u32 {
    (value as u32).wrapping_mul(NEXT).wrapping_add(mix(NUMBER, value >> 32) as u32)
}

fn hashed_number(value: u64) -> Word {
    let is_telling = value >= TELLING_NUMBER;
    let small = if is_telling { 0 } else { value as u16 + 1 };
    Word { hash: number_hash(value), small, kind: WordKind::Number, is_telling }
}

/// Returns the word's hash: of its number if it ends with one or is a hexadecimal number, otherwise of its letters. A prefix before a
/// number changes nothing, because applications add and remove it.
fn hashed(word: &[u8]) -> Word {
    match number(word).1.or_else(|| hexadecimal(word)) {
        Some(value) => hashed_number(value),
        None => Word {
            // Applications change the case of letters.
            hash: hash::letters(word) as u32,
            small: 0,
            kind: if digest::is_digest(word) { WordKind::Digest } else { WordKind::Text },
            is_telling: word.len() >= TELLING_BYTES,
        },
    }
}

/// The hash of a word of a command, which differs from the hash of the same word in a reply.
fn asked(hash: u32) -> u32 {
    mix(ASKED, hash.into()) as u32
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

/// A remembered word.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// A part of the word's hash; the other part selects the set.
    tag: u16,
    /// The number of its trip, as far as it fits.
    trip: u16,
}

/// The words of the last replies, and of the commands of searches.
#[derive(Clone, Debug)]
pub struct Words {
    /// In each set, the words in the order of their trips. The last one makes room for a new one.
    places: [[Place; WAYS]; SETS],
    /// The small numbers of all replies since the loop began, a bit each.
    small: [u64; TELLING_NUMBER as usize / 64 + 1],
    /// The numbers of the last binary reply, and the digests that were computed of the last reply.
    numbers: Filter,
    digests: Filter,
    /// The steps of the loop, and its first trip.
    frames: u32,
    since: u32,
}

impl Default for Words {
    fn default() -> Words {
        Words {
            places: [[Place::default(); WAYS]; SETS],
            small: [0; TELLING_NUMBER as usize / 64 + 1],
            numbers: Filter::default(),
            digests: Filter::default(),
            frames: 0,
            since: 0,
        }
    }
}

impl Words {
    /// Forgets the words if a loop with other steps than the last one begins: its commands may need the replies to the last loop, but the
    /// client had those before.
    pub fn begin(&mut self, frames: u32, trip: u32) {
        if std::mem::replace(&mut self.frames, frames) != frames {
            self.since = trip;
            self.small = Default::default();
            self.numbers.clear();
            self.digests.clear();
        }
    }

    /// Returns the index of a hash's set, and its tag, which is not 0. The hashes of numbers differ little, so their bits are mixed.
    fn set_and_tag(hash: u32) -> (usize, u16) {
        let mixed = u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 57) as usize % SETS, (mixed >> 32) as u16 | 1)
    }

    /// Remembers a word, with its last trip.
    fn push(&mut self, hash: u32, trip: u32) {
        let (set, tag) = Words::set_and_tag(hash);
        let set = &mut self.places[set];
        let known = set.iter().position(|place| place.tag == tag).unwrap_or(WAYS - 1);
        set.copy_within(..known, 1);
        set[0] = Place { tag, trip: trip as u16 };
    }

    /// Remembers the words of a reply that its command does not contain. Returns false if a part of the reply is
    /// hidden. `binary` tells if texts that are binary are of interest, and their numbers.
    pub fn learn(&mut self, reply: &[u8], len: u64, trip: u32, command: &Command, binary: Option<bool>) -> bool {
        let reply = reply.get(..REPLY_BYTES_MAX).unwrap_or(reply);
        let mut rest = reply;
        while let Some((payload, after)) = element(rest) {
            let begin = reply.len() - rest.len();
            if begin + payload.len() <= FIRST_BYTES {
                words(payload).for_each(|word| self.learn_with_token(word, trip, command));
            } else {
                self.learn_end(payload, FIRST_BYTES.saturating_sub(begin), trip, command);
            }
            if let Some(has_numbers) = binary
                && binary::is_binary(payload)
            {
                self.learn_binary(payload, has_numbers, trip, command);
            }
            rest = after;
        }
        reply.len() as u64 == len && reply.len() <= FIRST_BYTES
    }

    /// Remembers the words of a text that is only partly within the first bytes of the reply: all words that begin before the place `first`,
    /// and words with digits behind it.
    #[cold]
    fn learn_end(&mut self, text: &[u8], first: usize, trip: u32, command: &Command) {
        let has_digit = |word: &[u8]| word.iter().any(u8::is_ascii_digit);
        let known = words_at(text).filter(|(at, word)| *at < first || has_digit(word));
        known.for_each(|(_, word)| self.learn_with_token(word, trip, command));
    }

    /// Remembers the ASCII words of a binary text, and its numbers if they are of use.
    #[cold]
    fn learn_binary(&mut self, text: &[u8], has_numbers: bool, trip: u32, command: &Command) {
        if has_numbers {
            self.numbers.set_numbers(text);
        }
        // The lengths of texts are bytes beyond ASCII.
        let texts = text.split(|byte| !byte.is_ascii()).skip(1);
        texts.flat_map(words).for_each(|word| self.learn_word(word, trip, command));
    }

    /// Remembers the digests of a reply, and of the texts in quotes in it, in the form of `like` as words of the reply.
    #[cold]
    pub fn learn_digests(&mut self, reply: &[u8], like: &[u8], trip: u32) {
        self.digests.clear();
        let Some((payload, [])) = element(reply) else { return };
        let quoted = payload.split(|byte| matches!(byte, b'"' | b'\'')).skip(1).step_by(2).take(QUOTED_MAX);
        for text in std::iter::once(payload).chain(quoted) {
            digest::digests(text, like, |digest| {
                let hash = hashed(digest).hash;
                self.digests.add(hash);
                self.push(hash, trip);
            });
        }
    }

    /// Returns the last word of a key if a look for digests of replies in its form is worth its time: few rounds were compared, or the word
    /// is such a digest.
    #[inline]
    pub fn digest_of<'a>(&self, key: &'a [u8], compared: u32) -> Option<&'a [u8]> {
        if compared >= DIGESTS_MAX && self.digests.is_empty() {
            return None;
        }
        digest::of_key(key).filter(|word| compared < DIGESTS_MAX || self.digests.has(hashed(word).hash))
    }

    /// Remembers the dates of a Unix time, and the words of a text in Base64.
    fn learn_token(&mut self, word: &[u8], trip: u32, command: &Command) {
        if let Some(dates) = number(word).1.and_then(dates::of_time) {
            dates.into_iter().for_each(|date| self.push(number_hash(date), trip));
        }
        let is_mixed = word.iter().any(u8::is_ascii_uppercase) && word.iter().any(u8::is_ascii_lowercase);
        let decoded = is_mixed.then(|| BASE64.decode(word).ok()).flatten();
        if let Some(text) = decoded.filter(|text| text.iter().all(|byte| matches!(byte, b' '..=b'~'))) {
            words(&text).for_each(|word| self.learn_word(word, trip, command));
        }
    }

    fn learn_with_token(&mut self, word: &[u8], trip: u32, command: &Command) {
        self.learn_word(word, trip, command);
        if TOKEN_BYTES.contains(&word.len()) {
            self.learn_token(word, trip, command);
        }
    }

    fn learn_word(&mut self, word: &[u8], trip: u32, command: &Command) {
        let known = hashed(word);
        if command.has(known.hash) {
            return;
        }
        self.push(known.hash, trip);
        if known.small > 0 {
            self.small[usize::from(known.small / 64)] |= 1 << (known.small % 64);
        }
    }

    /// True if a reply since the beginning of the loop has this small number.
    fn has_small(&self, word: &Word) -> bool {
        self.small.get(usize::from(word.small / 64)).is_some_and(|bits| bits >> (word.small % 64) & 1 != 0)
    }

    /// Returns how many trips ago a word was remembered.
    fn distance(&self, hash: u32, trip: u32) -> Option<u16> {
        let (set, tag) = Words::set_and_tag(hash);
        let place = self.places[set].iter().find(|place| place.tag == tag)?;
        let distance = (trip as u16).wrapping_sub(place.trip);
        (distance > 0 && u32::from(distance) <= trip.wrapping_sub(self.since)).then_some(distance)
    }

    /// Returns how many trips ago a reply with this word was sent. A reply also stands for its next number.
    fn replied(&self, word: &Word, trip: u32) -> Option<u16> {
        let before = (word.kind == WordKind::Number).then(|| word.hash.wrapping_sub(NEXT));
        [Some(word.hash), before].into_iter().flatten().filter_map(|hash| self.distance(hash, trip)).min()
    }

    /// True if the reply of this many trips ago, or a later one, has a number.
    pub fn named_last(&self, number: u64, trip: u32, trips: u16) -> bool {
        self.distance(number_hash(number), trip).is_some_and(|distance| distance <= trips)
    }

    /// Remembers the words of a command that the command before did not have.
    fn ask(&mut self, command: &Command, before: &Command, trip: u32) {
        for word in command.new_words(before) {
            self.push(asked(word.hash), trip);
        }
    }

    /// True if an earlier command had this word.
    fn was_asked(&self, hash: u32, trip: u32) -> bool {
        self.distance(asked(hash), trip).is_some()
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
    /// True if one of the new words does not stand in replies by chance.
    pub names: bool,
}

/// Evidence from words that also occur by chance: each is looked for together with another word that is as frequent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Occurrences {
    compared: u32,
    found: u32,
    /// Rounds in which the word was found and not the other one, and rounds with the other one only.
    only_found: u32,
    only_other: u32,
}

impl Occurrences {
    /// Counts a round.
    pub fn compare(&mut self) {
        self.compared += 1;
    }

    /// Counts a round in which a word was looked for, and another one in its place.
    pub fn count(&mut self, is_found: bool, is_other: bool) {
        self.found += u32::from(is_found);
        self.only_found += u32::from(is_found && !is_other);
        self.only_other += u32::from(is_other && !is_found);
    }

    /// True if at least this share of the words was found, in percent, and more often than the other words by three standard deviations.
    /// Rounds in which both occur say nothing (McNemar's test).
    pub fn are_no_chance(&self, percent: u32) -> bool {
        let Occurrences { compared, found, only_found, only_other } = *self;
        let surplus = u64::from(only_found.saturating_sub(only_other));
        let variance = u64::from(only_found) + u64::from(only_other);
        found * 100 >= compared * percent && surplus * surplus > 9 * variance
    }
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
    /// Rounds with several new words, and rounds with new words that an earlier command had.
    several: u32,
    again: u32,
    /// The small numbers that stand in replies, over all parts of the loop.
    small: Occurrences,
    /// The keys of a tree whose parent an earlier command has read.
    descents: Occurrences,
    /// The numbers that stand in binary replies.
    binary: Occurrences,
    /// The way from key to key.
    shifts: Shifts,
    /// Replies that told something new.
    pub telling: u32,
    /// Replies with a hidden part.
    pub hidden: u32,
    /// Arrays with a hidden part. The next command may begin where such an array ends.
    pub pages: u32,
    /// The hash of the previous reply.
    reply: u64,
    /// The number that the previous reply was, and the replies that were the next number.
    number: Option<u64>,
    counts_up: u32,
    /// True if the last command was equal to the one before.
    repeats: bool,
    /// Number of commands that were equal to the one before.
    repeated: u32,
}

impl StepEvidence {
    /// Compares a command with the one of the previous round, `period` trips ago. Returns the reply that its new words come from. `read` is
    /// the key if the command reads it.
    pub fn compare(
        &mut self,
        command: &Command,
        read: Option<&[u8]>,
        words: &mut Words,
        (trip, period): (u32, u16),
    ) -> Source {
        let before = std::mem::replace(&mut self.before, *command);
        if before.len == 0 && before.template == 0 {
            return Source::default();
        }
        self.compared += 1;
        self.small.compare();
        self.descents.compare();
        self.binary.compare();
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
            self.look_for_small(command, &before, words);
        }
        if let Some(key) = read {
            self.shifts.compare(key, words, trip, period);
            self.look_for_binary(command, &before, words);
            self.look_for_asked(command, &before, key, words, trip);
        }
        source(command, &before, words, trip)
    }

    /// Looks for the first new small number in the replies, and for another number in its place.
    fn look_for_small(&mut self, command: &Command, before: &Command, replies: &Words) {
        let Some(word) = command.new_words(before).find(|word| word.small > 0) else { return };
        let other = hashed_number(u64::from(word.small - 1) + OTHER_NUMBER);
        self.small.count(replies.has_small(word), replies.has_small(&other));
    }

    /// Looks for the new numbers of a read in the last binary reply, and for other numbers in their place.
    #[inline]
    fn look_for_binary(&mut self, command: &Command, before: &Command, replies: &Words) {
        if replies.numbers.is_empty() {
            return;
        }
        let numbers = || command.new_words(before).filter(|word| word.kind == WordKind::Number);
        let other = NEXT.wrapping_mul(OTHER_NUMBER as u32);
        self.binary.count(
            numbers().any(|word| replies.numbers.has(word.hash)),
            numbers().any(|word| replies.numbers.has(word.hash.wrapping_add(other))),
        );
    }

    /// True if a look for binary numbers is worth its time: few rounds were compared, or many of them had such numbers.
    pub fn may_be_binary(&self) -> bool {
        self.compared < BINARY_MAX || self.binary.are_no_chance(50)
    }

    /// Looks for the new words of a read, and for the parent of its key, in the earlier commands.
    fn look_for_asked(&mut self, command: &Command, before: &Command, key: &[u8], words: &mut Words, trip: u32) {
        self.again += u32::from(command.new_words(before).any(|word| words.was_asked(word.hash, trip)));
        let (is_child, is_other) = descent(key, |hash| words.was_asked(hash, trip));
        self.descents.count(is_child, is_other);
        words.ask(command, before, trip);
    }

    /// True if the small numbers of most commands stand in replies, and not by chance: more often than other numbers do.
    pub fn follows_small_numbers(&self) -> bool {
        self.small.are_no_chance(50)
    }

    /// True if the client goes down a tree with paths or numbers as keys. A reply decides about the way, although it names no child.
    pub fn descends(&self) -> bool {
        self.descents.are_no_chance(70)
    }

    /// Takes the length of the present reply's text, and the number of a reply that is one.
    pub fn measured(&mut self, text_len: u64, number: Option<u64>) {
        self.shifts.answered(text_len);
        let before = std::mem::replace(&mut self.number, number);
        self.counts_up += u32::from(number.is_some() && number == before.map(|before| before + 1));
    }

    /// True if nearly each reply is the number behind that of the reply before: the length of a list that grows, for example.
    pub fn counts_up(&self) -> bool {
        self.compared > 2 && self.counts_up * 10 >= self.compared * 9
    }

    /// True if the replies lead from key to key.
    pub fn is_led_on(&self) -> bool {
        self.shifts.lead_on() || self.binary.are_no_chance(70)
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

    /// True if many commands have new words that an earlier command had. A search through a graph comes back to a node from which it goes on,
    /// or to a neighbour of two nodes. The words of further keys are not seen, so not all commands show this.
    pub fn comes_back(&self) -> bool {
        self.again * 10 >= self.compared * 3
    }

    /// True if the commands of all rounds follow from the first two.
    pub fn is_predictable(&self) -> bool {
        self.compared > 1 && self.predicted + 1 >= self.compared
    }

    /// Begins a new part of the same loop.
    pub fn begin_part(&mut self) {
        let StepEvidence { before, change, reply, number, small, descents, binary, mut shifts, .. } = *self;
        shifts.begin_part();
        *self =
            StepEvidence { before, change, reply, number, small, descents, binary, shifts, ..StepEvidence::default() };
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
    let found = new().filter_map(|word| Some((replies.replied(word, trip)?, word.is_telling)));
    let nearest = found.min_by_key(|(distance, is_telling)| (*distance, !is_telling));
    let names = new().any(|word| word.is_telling);
    match nearest {
        Some((distance, is_telling)) => Source { distance, is_telling, is_derived: false, names },
        None => Source { is_derived: new().any(|word| word.kind == WordKind::Digest), names, ..Source::default() },
    }
}

/// Looks for the parent of a key in a tree: its last word without the last character, or half of its number. Returns true if `was_asked` knows
/// the parent's word, and true if it knows another word in the parent's place.
fn descent(key: &[u8], was_asked: impl Fn(u32) -> bool) -> (bool, bool) {
    let Some(word) = words(key).last().filter(|word| word.len() <= ARGUMENT_BYTES_MAX) else { return (false, false) };
    let (mut is_child, mut is_other) = (false, false);
    if let [parent @ .., _] = word
        && let [stem @ .., last] = parent
    {
        let mut other = [0; ARGUMENT_BYTES_MAX];
        let other = &mut other[..parent.len()];
        other[..stem.len()].copy_from_slice(stem);
        other[stem.len()] = other_character(*last);
        (is_child, is_other) = (was_asked(hashed(parent).hash), was_asked(hashed(other).hash));
    }
    if let (_, Some(value @ 2..)) = number(word) {
        is_child |= was_asked(number_hash(value / 2));
        is_other |= was_asked(number_hash(value / 2 + OTHER_NUMBER));
    }
    (is_child, is_other)
}

/// Returns a character that is as frequent as the given one, but not the other child of a node in a binary tree.
fn other_character(character: u8) -> u8 {
    match character {
        b'8' | b'9' => character - 8,
        _ => character.wrapping_add(2),
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
        step.compare(&command(first), None, &mut replies, (1, 1));
        replies.learn(reply.as_bytes(), reply.len() as u64, 1, &command(first), None);
        step.compare(&command(second), None, &mut replies, (2, 1)).distance
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
            step.compare(&command(text), None, &mut Words::default(), (1, 1));
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
            replies.learn(reply.as_bytes(), reply.len() as u64, round, &Command::default(), None);
            step.compare(&command(&format!("GET node:{number}")), None, &mut replies, (round + 1, 1));
        }
        assert!(step.follows_small_numbers());
    }

    #[test]
    fn truncated_replies_are_hidden() {
        let reply = format!("$1000\r\n{}", "x".repeat(500));
        assert!(!Words::default().learn(reply.as_bytes(), 1009, 1, &Command::default(), None));
        assert!(Words::default().learn(b"$-1\r\n", 5, 1, &Command::default(), None));
        for len in 0..reply.len() {
            Words::default().learn(&reply.as_bytes()[..len], 1009, 1, &Command::default(), None);
        }
    }
}
