//! Key patterns: `user:17:name` and `user:4:name` are both `user:<n>:name`.
//!
//! A key is cut into tokens: runs of letters, digits and bytes beyond ASCII. Some tokens are holes by their form:
//! numbers, dates, UUIDs, hashes, long identifiers. A word becomes a hole once enough different words have been seen
//! behind the same beginning: five, some twenty if the key has no other token, or some sixty at the start of keys that
//! have more tokens, where a word is usually a kind of key. The words are kept in a table of fixed size ([`Words`]).

use crate::hash::{self, mix};

/// Bytes of a key that are examined; the rest is one hole.
const KEY_BYTES_MAX: usize = 128;
/// Longest text of a pattern, in bytes.
const TEXT_BYTES_MAX: usize = 96;

/// The form of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenKind {
    /// Digits.
    Number,
    /// A day, for example 2026-11-25 or 20261125.
    Date,
    /// A UUID.
    Uuid,
    /// Hexadecimal digits, both letters and decimal digits.
    Hash,
    /// A long mix of letters and digits.
    Identifier,
    /// Bytes that are not text, up to the end of the key.
    Binary,
    /// The rest of a key behind the examined part.
    Rest,
    /// Any other token; `stem` is the length before its trailing digits.
    Word { stem: usize },
}

impl TokenKind {
    /// The text of the hole.
    fn text(self) -> &'static str {
        match self {
            TokenKind::Number => "<n>",
            TokenKind::Date => "<date>",
            TokenKind::Uuid => "<uuid>",
            TokenKind::Hash => "<hash>",
            TokenKind::Identifier => "<id>",
            TokenKind::Binary => "<binary>",
            TokenKind::Rest => "<...>",
            TokenKind::Word { .. } => "<word>",
        }
    }

    /// A number for the hash of the pattern.
    #[inline]
    fn mark(self) -> u64 {
        match self {
            TokenKind::Number => 1,
            TokenKind::Date => 2,
            TokenKind::Uuid => 3,
            TokenKind::Hash => 4,
            TokenKind::Identifier => 5,
            TokenKind::Binary => 6,
            TokenKind::Rest => 7,
            TokenKind::Word { .. } => 8,
        }
    }
}

/// Classes of bytes, as bits.
const DIGIT: u8 = 1;
const HEX: u8 = 2;
const LETTER: u8 = 4;
const UPPER: u8 = 8;
const CONTROL: u8 = 16;

/// The class of each byte; 0 for bytes that separate tokens.
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'0'..=b'9' => DIGIT,
            b'a'..=b'f' => HEX,
            b'A'..=b'F' => HEX | UPPER,
            b'G'..=b'Z' => LETTER | UPPER,
            b'g'..=b'z' | 0x80.. => LETTER,
            0..0x20 | 0x7f => CONTROL,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

#[inline]
fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

/// A piece of a key: separator bytes, then a token. Either may be empty.
struct Piece<'a> {
    separator: &'a [u8],
    token: &'a [u8],
    kind: TokenKind,
    /// True for the last piece of the key.
    is_last: bool,
}

/// Cuts a key into pieces.
struct Pieces<'a> {
    key: &'a [u8],
    at: usize,
    /// True if the key is longer than the examined part.
    is_cut: bool,
}

impl<'a> Pieces<'a> {
    #[inline]
    fn of(key: &'a [u8]) -> Pieces<'a> {
        match key.get(..KEY_BYTES_MAX) {
            Some(start) => Pieces { key: start, at: 0, is_cut: key.len() > KEY_BYTES_MAX },
            None => Pieces { key, at: 0, is_cut: false },
        }
    }

    /// Returns the run of token bytes that begins at `from`. Most runs are letters, digits, or letters and then digits.
    #[inline]
    fn run(&self, from: usize) -> Characters {
        let bytes = self.key.get(from..).unwrap_or_default();
        let mut classes = 0;
        let mut letters = 0;
        while let Some(class) = bytes.get(letters).map(|byte| class(*byte)).filter(|class| class & !DIGIT != 0) {
            classes |= class;
            letters += 1;
        }
        let mut end = letters;
        while bytes.get(end).is_some_and(|byte| class(*byte) == DIGIT) {
            end += 1;
        }
        let digits = (end - letters) as u32;
        if bytes.get(end).is_some_and(|byte| class(*byte) != 0) {
            return mixed(bytes, from);
        }
        classes |= if digits > 0 { DIGIT } else { 0 };
        Characters { end: from + end, classes, digits, last_digits: digits }
    }
}

/// Returns the run of token bytes at the start of `bytes` if letters follow digits in it.
fn mixed(bytes: &[u8], from: usize) -> Characters {
    let mut run = Characters { end: from, classes: 0, digits: 0, last_digits: 0 };
    for class in bytes.iter().map(|byte| class(*byte)).take_while(|class| *class != 0) {
        run.end += 1;
        run.classes |= class;
        let is_digit = u32::from(class == DIGIT);
        run.digits += is_digit;
        run.last_digits = (run.last_digits + is_digit) * is_digit;
    }
    run
}

/// A run of bytes that may be a token.
struct Characters {
    end: usize,
    classes: u8,
    digits: u32,
    last_digits: u32,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    #[inline]
    fn next(&mut self) -> Option<Piece<'a>> {
        let key = self.key;
        if self.at >= key.len() {
            if !std::mem::take(&mut self.is_cut) {
                return None;
            }
            return Some(Piece { separator: b"", token: b"", kind: TokenKind::Rest, is_last: true });
        }
        let begin = self.at;
        let mut start = begin;
        while key.get(start).is_some_and(|&byte| class(byte) == 0) {
            start += 1;
        }
        let run = self.run(start);
        let separator = key.get(begin..start).unwrap_or_default();
        if run.classes & CONTROL != 0 {
            self.at = key.len();
            self.is_cut = false;
            let token = key.get(start..).unwrap_or_default();
            return Some(Piece { separator, token, kind: TokenKind::Binary, is_last: true });
        }
        let (kind, end) = form(key, start, &run);
        self.at = end;
        let token = key.get(start..end).unwrap_or_default();
        Some(Piece { separator, token, kind, is_last: end >= key.len() && !self.is_cut })
    }
}

/// Returns the form and the end of the token that begins at `start` with this run. Dates and UUIDs continue behind the
/// run.
#[inline]
fn form(key: &[u8], start: usize, run: &Characters) -> (TokenKind, usize) {
    let len = run.end - start;
    let digits = run.digits as usize;
    if len == 8 && run.classes & LETTER == 0 && is_uuid(key.get(start..).unwrap_or_default()) {
        return (TokenKind::Uuid, start + UUID_BYTES);
    }
    if digits == len && len > 0 {
        return number(key, start, run.end);
    }
    let is_hexadecimal = run.classes & LETTER == 0;
    if is_hexadecimal && len >= 8 && digits >= 2 && len > run.last_digits as usize + 2 {
        return (TokenKind::Hash, run.end);
    }
    let is_mixed = digits >= 3 && (run.last_digits as usize) < digits;
    if len >= 16 && is_mixed {
        return (TokenKind::Identifier, run.end);
    }
    (TokenKind::Word { stem: len - run.last_digits as usize }, run.end)
}

/// Returns a number, or the date that begins with it.
#[inline]
fn number(key: &[u8], start: usize, end: usize) -> (TokenKind, usize) {
    let is_year = |bytes: &[u8]| matches!(bytes, [b'1', b'9', ..] | [b'2', b'0', ..]);
    let token = key.get(start..end).unwrap_or_default();
    if token.len() == 4 && is_year(token) && is_rest_of_date(key.get(end..).unwrap_or_default()) {
        return (TokenKind::Date, end + REST_OF_DATE_BYTES);
    }
    if let [_, _, _, _, month_tens, month, day_tens, day] = *token
        && is_year(token)
        && is_month_and_day([month_tens, month], [day_tens, day])
    {
        return (TokenKind::Date, end);
    }
    (TokenKind::Number, end)
}

/// Length of "-11-25".
const REST_OF_DATE_BYTES: usize = 6;

/// True if the bytes begin with the month and day of a date.
fn is_rest_of_date(bytes: &[u8]) -> bool {
    match *bytes {
        [b'-' | b'/' | b'.' | b'_', month_tens, month, b'-' | b'/' | b'.' | b'_', day_tens, day, ref rest @ ..] => {
            is_month_and_day([month_tens, month], [day_tens, day])
                && rest.first().is_none_or(|&byte| class(byte) & DIGIT == 0)
        }
        _ => false,
    }
}

fn is_month_and_day(month: [u8; 2], day: [u8; 2]) -> bool {
    let value = |[tens, ones]: [u8; 2]| {
        let is_number = tens.is_ascii_digit() && ones.is_ascii_digit();
        is_number.then(|| (tens - b'0') * 10 + (ones - b'0'))
    };
    value(month).is_some_and(|month| (1..=12).contains(&month)) && value(day).is_some_and(|day| (1..=31).contains(&day))
}

/// Length of a UUID as text.
const UUID_BYTES: usize = 36;

/// True if bytes begin with a UUID.
fn is_uuid(bytes: &[u8]) -> bool {
    let Some(uuid) = bytes.get(..UUID_BYTES) else { return false };
    uuid.iter().enumerate().all(|(at, &byte)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    })
}

/// The beginning of a string that Java has serialized, for example for Spring Data Redis: the magic number, the version and the type. Its
/// length follows in two bytes.
const JAVA_STRING: &[u8] = &[0xac, 0xed, 0, 5, b't'];

/// Returns the text of a key that is a serialized Java string, and any other key as it is.
#[inline]
pub fn decoded(key: &[u8]) -> &[u8] {
    match key.strip_prefix(JAVA_STRING) {
        // A recording cuts long keys.
        Some([high, low, text @ ..]) if text.len() <= usize::from(u16::from_be_bytes([*high, *low])) => text,
        _ => key,
    }
}

/// Number of beginnings in one bucket.
const WAYS: usize = 4;
/// Number of buckets; a power of two.
const BUCKETS: usize = 1024;

/// Number of different words behind one beginning that makes the place a hole.
const WORDS_MAX: u32 = 5;
/// The limit at the start of keys with more tokens: set bits among the 64 of a place, which some sixty different words
/// reach.
const FIRST_WORDS_MAX: u32 = 40;
/// The limit for keys of one word, in set bits, which some twenty different words reach: few of them are names of objects.
const WHOLE_WORDS_MAX: u32 = 16;
/// Marks a place at which the word does not matter.
const HOLE: u64 = u64::MAX;

/// A beginning of keys, and the words seen behind it.
#[derive(Clone, Copy, Debug, Default)]
struct KeyBeginning {
    /// The hash of the beginning; 0 for a free entry.
    beginning: u64,
    /// A bit for each word, by its hash; [`HOLE`] after too many words.
    words: u64,
}

/// The known words, by the beginning of the key in front of them.
#[derive(Clone, Debug)]
pub struct Words {
    places: Vec<[KeyBeginning; WAYS]>,
}

impl Default for Words {
    fn default() -> Words {
        Words { places: vec![[KeyBeginning::default(); WAYS]; BUCKETS] }
    }
}

impl Words {
    #[inline]
    fn bucket(&self, beginning: u64) -> &[KeyBeginning; WAYS] {
        &self.places[beginning as usize % BUCKETS]
    }

    /// True if words behind this beginning vary.
    #[inline]
    fn is_hole(&self, beginning: u64) -> bool {
        self.bucket(beginning).iter().any(|place| place.beginning == beginning && place.words == HOLE)
    }

    /// Records that this word stands behind this beginning.
    fn learn(&mut self, beginning: u64, word: u64, words_max: u32) {
        let bucket = &mut self.places[beginning as usize % BUCKETS];
        let known = bucket.iter().position(|place| place.beginning == beginning);
        let least = || (0..WAYS).min_by_key(|&way| bucket[way].words.count_ones()).unwrap_or(0);
        let way = known.unwrap_or_else(least);
        let place = &mut bucket[way];
        if known.is_none() {
            *place = KeyBeginning { beginning, words: 0 };
        }
        place.words |= 1 << (word >> 58);
        if place.words.count_ones() >= words_max {
            place.words = HOLE;
        }
    }

    /// The hash of a key's pattern.
    #[inline]
    pub fn pattern(&self, seed: u64, key: &[u8]) -> u64 {
        Pieces::of(key).fold(seed, |hash, piece| self.hashes(hash, &piece).pattern)
    }

    /// The hash of a key's structure: its separators, the number of its tokens, and its first word. Keys of one structure
    /// may differ in their other words, and in the forms of their tokens.
    pub fn structure(&self, seed: u64, key: &[u8]) -> u64 {
        let (mut hash, mut structure, mut has_word) = (seed, 0, false);
        for piece in Pieces::of(key) {
            let hashes = self.hashes(hash, &piece);
            hash = hashes.pattern;
            structure = place(structure, &piece);
            if !hashes.is_hole && !has_word && !piece.token.is_empty() {
                structure = mix(structure, hashes.word);
                has_word = true;
            }
        }
        structure
    }

    /// Returns the hashes after one more piece.
    #[inline]
    fn hashes(&self, hash: u64, piece: &Piece) -> PieceHashes {
        let place = place(hash, piece);
        let TokenKind::Word { stem } = piece.kind else {
            return PieceHashes { place, word: 0, pattern: mix(place, piece.kind.mark()), is_hole: true };
        };
        let word = word(piece.token, stem);
        if self.is_hole(place) {
            return PieceHashes { place, word, pattern: mix(place, piece.kind.mark()), is_hole: true };
        }
        PieceHashes { place, word, pattern: mix(place, word), is_hole: false }
    }

    /// Learns the words of a key whose pattern is new.
    pub fn learn_key(&mut self, seed: u64, key: &[u8]) {
        let mut hash = seed;
        for (index, piece) in Pieces::of(key).enumerate() {
            let hashes = self.hashes(hash, &piece);
            if !hashes.is_hole && !piece.token.is_empty() {
                let words_max = match (index, piece.is_last) {
                    (0, false) => FIRST_WORDS_MAX,
                    (0, true) => WHOLE_WORDS_MAX,
                    _ => WORDS_MAX,
                };
                self.learn(hashes.place, hashes.word, words_max);
            }
            hash = hashes.pattern;
        }
    }

    /// The text of a key's pattern, in ASCII.
    pub fn text(&self, seed: u64, key: &[u8]) -> String {
        let mut text = String::new();
        let mut hash = seed;
        for piece in Pieces::of(key) {
            if text.len() >= TEXT_BYTES_MAX {
                text += TokenKind::Rest.text();
                break;
            }
            let hashes = self.hashes(hash, &piece);
            hash = hashes.pattern;
            text += &piece.separator.escape_ascii().to_string();
            match piece.kind {
                TokenKind::Word { stem } if !hashes.is_hole => {
                    let (stem, digits) = piece.token.split_at(stem.min(piece.token.len()));
                    text += &shown(stem);
                    text += if digits.is_empty() { "" } else { TokenKind::Number.text() };
                }
                kind => text += kind.text(),
            }
        }
        text
    }
}

/// Returns the pattern of the keys of two patterns. A token that differs becomes a hole. Returns None if the patterns
/// differ in more than their tokens.
pub fn merged(a: &str, b: &str) -> Option<String> {
    let (first, second) = (text_pieces(a), text_pieces(b));
    let is_alike = first.len() == second.len() && first.iter().zip(&second).all(|(one, other)| one.0 == other.0);
    let token = |one, other| match (one, other) {
        _ if one == other => one,
        _ if is_form(one) || is_form(other) => TokenKind::Identifier.text(),
        _ => TokenKind::Word { stem: 0 }.text(),
    };
    let pieces = first.iter().zip(&second).flat_map(|(one, other)| [one.0, token(one.1, other.1)]);
    is_alike.then(|| pieces.collect())
}

/// Cuts the text of a pattern into separators and the tokens behind them.
fn text_pieces(text: &str) -> Vec<(&str, &str)> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let begin = (0..rest.len()).find(|at| token_bytes(&rest.as_bytes()[*at..]) > 0).unwrap_or(rest.len());
        let mut end = begin;
        while let len @ 1.. = token_bytes(rest.as_bytes().get(end..).unwrap_or_default()) {
            end += len;
        }
        let (piece, after) = rest.split_at(end);
        pieces.push(piece.split_at(begin));
        rest = after;
    }
    pieces
}

/// The texts of all holes.
const HOLES: [TokenKind; 8] = [
    TokenKind::Number,
    TokenKind::Date,
    TokenKind::Uuid,
    TokenKind::Hash,
    TokenKind::Identifier,
    TokenKind::Binary,
    TokenKind::Rest,
    TokenKind::Word { stem: 0 },
];

/// True for the text of a hole that a token's form makes.
fn is_form(token: &str) -> bool {
    HOLES.iter().any(|kind| !matches!(kind, TokenKind::Word { .. }) && kind.text() == token)
}

/// Returns the length of the part of a token at the start of a pattern's text: a byte, or the text of a hole. Returns 0 for a
/// separator.
fn token_bytes(text: &[u8]) -> usize {
    match text.first() {
        Some(b'<') => {
            HOLES.iter().map(|kind| kind.text()).find(|hole| text.starts_with(hole.as_bytes())).map_or(0, str::len)
        }
        Some(&byte) => usize::from(class(byte) & !CONTROL != 0),
        None => 0,
    }
}

/// A word as text: UTF-8 stays, other bytes are escaped.
fn shown(word: &[u8]) -> String {
    match std::str::from_utf8(word) {
        Ok(text) => text.to_owned(),
        Err(_) => word.escape_ascii().to_string(),
    }
}

/// The hashes of one piece of a key.
struct PieceHashes {
    /// The hash of the key in front of the token, and of whether the token is the last one.
    place: u64,
    /// The hash of the word.
    word: u64,
    /// The hash of the pattern up to this piece.
    pattern: u64,
    /// True if the token is a hole.
    is_hole: bool,
}

/// Returns the hash of a word: of its part before the trailing digits, and of whether it has such digits.
#[inline]
fn word(token: &[u8], stem: usize) -> u64 {
    let has_digits = u64::from(stem < token.len());
    hash::bytes(has_digits, token.get(..stem).unwrap_or_default())
}

/// Returns the hash of a place: the pattern so far and the separator before the token.
#[inline]
fn place(hash: u64, piece: &Piece) -> u64 {
    let mut place = hash ^ u64::from(piece.is_last);
    match *piece.separator {
        [] => {}
        [byte] => place ^= u64::from(byte) << 8,
        ref bytes => place ^= hash::bytes(0, bytes),
    }
    mix(place, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 7;

    fn check(key: &[u8], expected: &str) {
        assert_eq!(Words::default().text(SEED, key), expected, "{}", key.escape_ascii());
    }

    #[test]
    fn serialized_strings_of_java_are_decoded() {
        assert_eq!(decoded(b"\xac\xed\0\x05t\0\x07user:17"), b"user:17");
        assert_eq!(decoded(b"\xac\xed\0\x05t\x01\0long: the rest is cut"), b"long: the rest is cut");
        for other in [&b"\xac\xed\0\x05t\0\x02user:17"[..], b"\xac\xed\0\x05t\0", b"\xac\xed\0\x05sr", b"user:17", b""]
        {
            assert_eq!(decoded(other), other);
        }
    }

    #[test]
    fn the_form_of_a_token_makes_a_hole() {
        check(b"user:17:name", "user:<n>:name");
        check(b"17", "<n>");
        check(b"user17", "user<n>");
        check(b"key_5", "key_<n>");
        check(b"rate:2026-11-25:api", "rate:<date>:api");
        check(b"rate:20261125", "rate:<date>");
        check(b"rate:20269925", "rate:<n>");
        check(b"rate:2026-11-251", "rate:<n>-<n>-<n>");
        check(b"s:123e4567-e89b-12d3-a456-426614174000:x", "s:<uuid>:x");
        check(b"s:deadbeef-e89b-12d3-a456-42661417400", "s:deadbeef-e89b-12d<n>-a<n>-<n>");
        check(b"etag:d41d8cd98f00b204e9800998ecf8427e", "etag:<hash>");
        check(b"session:Xk3n9Zq0aPw81LmNvB", "session:<id>");
        check(b"deadline", "deadline");
        check(b"feedface", "feedface");
        check(b"{user:4}:cart", "{user:<n>}:cart");
        check("straße:5".as_bytes(), "straße:<n>");
        check(b"", "");
        check(b"::", "::");
    }

    #[test]
    fn binary_bytes_are_one_hole() {
        check(b"blob:\x00\x01\xff:x:y", "blob:<binary>");
        check(b"\x00", "<binary>");
        check(b"a:\xff\xfe", "a:\\xff\\xfe");
    }

    #[test]
    fn long_keys_are_cut() {
        let key = [b"file:".as_slice(), &vec![b'a'; 1 << 20]].concat();
        let text = Words::default().text(SEED, &key);
        assert!(text.ends_with("<...>") && text.len() < 200, "{text}");
        let separators = vec![b':'; 1 << 20];
        assert!(Words::default().text(SEED, &separators).len() < 200);
    }

    fn learn(words: &mut Words, key: &str) {
        words.learn_key(SEED, key.as_bytes());
    }

    #[test]
    fn words_that_vary_become_holes() {
        let mut words = Words::default();
        let names = ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy"];
        for name in names {
            learn(&mut words, &format!("user:{name}:mail"));
        }
        assert_eq!(words.text(SEED, b"user:zoe:mail"), "user:<word>:mail");
        assert_eq!(words.text(SEED, b"user:zoe5:mail"), "user:<word>:mail");
        assert_eq!(words.text(SEED, b"group:zoe:mail"), "group:zoe:mail");
        let pattern = |key: &[u8]| words.pattern(SEED, key);
        assert_eq!(pattern(b"user:zoe:mail"), pattern(b"user:yves:mail"));
        assert_ne!(pattern(b"user:zoe:mail"), pattern(b"user:zoe:name"));
        assert_ne!(pattern(b"user:zoe:mail"), pattern(b"user:zoe"));
    }

    #[test]
    fn keys_of_one_word_keep_their_names() {
        let mut words = Words::default();
        for key in ["user", "settings", "config", "jobs", "events", "visitors", "board", "log"] {
            learn(&mut words, key);
        }
        assert_eq!(words.text(SEED, b"user"), "user");
        for number in 0..60_u8 {
            let letters = [number / 26, number % 26].map(|letter| (b'a' + letter) as char);
            learn(&mut words, &format!("{}{}", letters[0], letters[1]));
        }
        assert_eq!(words.text(SEED, b"user"), "<word>");
    }

    #[test]
    fn kinds_of_keys_stay_apart() {
        let mut words = Words::default();
        for kind in 0..20_u8 {
            learn(&mut words, &format!("kind{}:5", (b'a' + kind) as char));
        }
        assert_eq!(words.text(SEED, b"kinda:5"), "kinda:<n>");
        for kind in 0..200 {
            let letters = [kind / 26, kind % 26].map(|letter| (b'a' + letter as u8) as char);
            learn(&mut words, &format!("{}{}:5", letters[0], letters[1]));
        }
        assert_eq!(words.text(SEED, b"kinda:5"), "<word>:<n>");
    }

    #[test]
    fn the_hash_and_the_text_of_a_pattern_agree() {
        let words = Words::default();
        let keys = ["user:1", "user:2", "user:a", "user:b", "user", "user:", ":user", "1", "a1", "a2", "1:a", "2:a"];
        for a in keys {
            for b in keys {
                let same_text = words.text(SEED, a.as_bytes()) == words.text(SEED, b.as_bytes());
                let same_hash = words.pattern(SEED, a.as_bytes()) == words.pattern(SEED, b.as_bytes());
                assert_eq!(same_text, same_hash, "{a} {b}");
            }
        }
    }

    #[test]
    fn patterns_merge_where_their_tokens_differ() {
        let check = |a, b, expected: Option<&str>| assert_eq!(merged(a, b).as_deref(), expected, "{a} {b}");
        check("depot:HAM:stock", "depot:MUC:stock", Some("depot:<word>:stock"));
        check("depot:<word>:stock", "depot:MUC:stock", Some("depot:<word>:stock"));
        check("parcel:<hash>", "parcel:<n>", Some("parcel:<id>"));
        check("parcel:<hash>", "parcel:ab<n>", Some("parcel:<id>"));
        check("a:item<n>:x", "a:item<n>:x", Some("a:item<n>:x"));
        check("straße:x", "straße:ü", Some("straße:<word>"));
        check("<a>:x:", "<a>:y:", Some("<a>:<word>:"));
        check("", "", Some(""));
        check("a:b", "a.b", None);
        check("a:b", "a:b:c", None);
    }

    #[test]
    fn keys_of_one_structure_differ_in_words_behind_the_first() {
        let words = Words::default();
        let same = |a: &str, b: &str| words.structure(SEED, a.as_bytes()) == words.structure(SEED, b.as_bytes());
        assert!(same("depot:HAM:stock", "depot:MUC:stock"));
        assert!(same("parcel:12345678", "parcel:1234abcd"));
        assert!(same("17:name", "18:name"));
        for (a, b) in [("user:5", "cart:5"), ("17:name", "17:mail"), ("a:b", "a.b"), ("a:b", "a:b:c"), ("a", "b")] {
            assert!(!same(a, b), "{a} {b}");
        }
    }

    #[test]
    fn a_million_beginnings_take_no_more_memory() {
        let mut words = Words::default();
        for number in 0..1_000_000_u32 {
            let word: String = number.to_string().bytes().map(|digit| (digit + 50) as char).collect();
            learn(&mut words, &format!("x:{word}:{word}:y"));
        }
        assert_eq!(words.places.len(), BUCKETS);
    }
}
