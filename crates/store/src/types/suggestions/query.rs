//! The query of a search, and its match with texts.
//!
//! A text matches if it begins with the query, regardless of case; in a fuzzy search also if adding, removing or
//! replacing one character makes it so. The **distance** is the minimum number of such edits with any prefix of the
//! text.

use std::sync::LazyLock;

use super::TEXT_CHARACTERS_MAX;
use super::letters::{self, Letters};

/// Maximum length of a query in characters: RediSearch's figure.
const QUERY_CHARACTERS_MAX: usize = 100;
/// Maximum length of a query in bytes: RediSearch's figure.
pub const QUERY_BYTES_MAX: usize = 200;
/// More edits than any search allows.
const FAR: u8 = 2;
/// Factor for the ranks of texts with one edit: e^-2.
const EDIT_FACTOR: f64 = 0.135_335_283_236_612_7;

/// Number of possible lengths of a text or a query, including 0.
const LENGTHS: usize = 256;

const _: () = assert!(TEXT_CHARACTERS_MAX < LENGTHS && QUERY_BYTES_MAX < LENGTHS);

/// Returns the square root of one plus a length, from a table, because a search needs hundreds.
#[inline]
pub(super) fn root(length: usize) -> f64 {
    static ROOTS: LazyLock<[f64; LENGTHS]> =
        LazyLock::new(|| std::array::from_fn(|length| (1.0 + length as f64).sqrt()));
    ROOTS[length % LENGTHS]
}

/// Says if texts may differ from the query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fuzziness {
    /// They may differ only in case.
    Exact,
    /// They may differ by one character.
    Fuzzy,
}

/// Error: a query exceeds a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueryTooLong {
    /// More than 200 bytes.
    Bytes,
    /// More than 100 characters.
    Characters,
}

/// The query of a search.
pub struct Query {
    /// Its characters without their case.
    letters: Vec<u32>,
    /// The folded characters as bytes.
    pub(super) folded: Vec<u8>,
    /// Number of bytes as given. Ranks use it, though they count texts in characters, as in RediSearch.
    pub(super) bytes: usize,
    pub(super) fuzziness: Fuzziness,
}

impl Query {
    /// Returns a query for texts with this prefix.
    ///
    /// # Errors
    /// If it is too long.
    pub fn new(text: &[u8], fuzziness: Fuzziness) -> Result<Query, QueryTooLong> {
        if text.len() > QUERY_BYTES_MAX {
            return Err(QueryTooLong::Bytes);
        }
        let (mut all, mut folded) = (Vec::with_capacity(text.len()), Vec::with_capacity(text.len()));
        letters::each(text, |letter| {
            let letter = letters::fold(letter);
            all.push(letter);
            letters::push(&mut folded, letter);
        });
        if all.len() > QUERY_CHARACTERS_MAX {
            return Err(QueryTooLong::Characters);
        }
        Ok(Query { letters: all, folded, bytes: text.len(), fuzziness })
    }

    /// Returns true if the given query is entirely ASCII.
    pub(super) fn is_ascii(&self) -> bool {
        self.folded.len() == self.bytes && self.folded.is_ascii()
    }

    /// Number of characters.
    pub(super) fn characters(&self) -> usize {
        self.letters.len()
    }

    fn distance_max(&self) -> u8 {
        u8::from(self.fuzziness == Fuzziness::Fuzzy)
    }

    /// Returns the rank of a text with this score, this number of characters and this distance.
    #[inline]
    pub(super) fn rank(&self, score: f32, characters: u8, distance: u8) -> f32 {
        self.rank_at(score, self.bytes.abs_diff(usize::from(characters)), distance)
    }

    /// Returns the rank for a difference in length.
    #[inline]
    pub(super) fn rank_at(&self, score: f32, difference: usize, distance: u8) -> f32 {
        let mut rank = score;
        if distance > 0 {
            rank = (f64::from(rank) * EDIT_FACTOR) as f32;
        }
        // This order and precision gives clients the same digits as RediSearch.
        (f64::from(rank) / root(difference)) as f32
    }

    /// Returns an upper bound for the ranks of texts with at least this length, at most this score and at most this
    /// weight. It is exact, to the bit, if one text has all three values and is not shorter than the query.
    #[inline]
    pub(super) fn bound(&self, shortest: u8, highest: f32, weight: f32, distance: u8) -> f32 {
        /// Allows for the rounding of weights.
        const SLACK: f64 = 1.00001;
        if highest < 0.0 {
            return self.rank_at(highest, TEXT_CHARACTERS_MAX, distance);
        }
        let by_score = self.rank_at(highest, usize::from(shortest).saturating_sub(self.bytes), distance);
        if weight < 0.0 {
            return by_score.min(0.0);
        }
        // The quotient of rank and weight falls with the length, from the query's length on.
        let length = usize::from(shortest).max(self.bytes);
        let stretch = root(length) / root(length - self.bytes);
        let by_weight = f64::from(weight) * stretch * SLACK * if distance > 0 { EDIT_FACTOR } else { 1.0 };
        by_score.min(by_weight as f32)
    }

    /// Returns the state before the first byte of a text.
    pub(super) fn start(&self) -> Agreement {
        let mut start = Agreement { letters: Letters::default(), read: 0, row: [FAR, 0, FAR], distance: FAR };
        if self.distance_max() > 0 && !self.letters.is_empty() {
            start.row[2] = 1;
        }
        self.note(&mut start);
        start
    }

    /// Returns false if no text that continues with this byte can match: a quick check before [`Query::go_on`].
    #[inline]
    pub(super) fn may_go_on(&self, agreement: &Agreement, byte: u8) -> bool {
        if self.fuzziness == Fuzziness::Fuzzy || !byte.is_ascii() || agreement.letters.is_within() {
            return true;
        }
        self.letters.get(usize::from(agreement.read)) == Some(&u32::from(byte.to_ascii_lowercase()))
    }

    /// Processes the next byte of the text.
    #[inline]
    pub(super) fn go_on(&self, agreement: &mut Agreement, byte: u8) {
        let mut letters = agreement.letters;
        letters.feed(byte, &mut |letter| self.read(agreement, letter));
        agreement.letters = letters;
    }

    /// Ends the text. Returns its distance if it matches.
    pub(super) fn end(&self, mut agreement: Agreement) -> Option<u8> {
        let mut letters = agreement.letters;
        letters.finish(&mut |letter| self.read(&mut agreement, letter));
        self.found(&agreement)
    }

    /// Returns the distance to this point, if it is small enough.
    fn found(&self, agreement: &Agreement) -> Option<u8> {
        (agreement.distance <= self.distance_max()).then_some(agreement.distance)
    }

    /// Returns the outlook for all texts that continue from here.
    #[inline]
    pub(super) fn outlook(&self, agreement: &Agreement) -> Outlook {
        let least = agreement.row[0].min(agreement.row[1]).min(agreement.row[2]);
        match self.found(agreement) {
            Some(distance) if least >= distance => Outlook::Found(distance),
            None if least > self.distance_max() => Outlook::Lost,
            _ => Outlook::Open,
        }
    }

    /// Processes the next character: computes a row of the edit-distance table, as far as it is relevant.
    fn read(&self, agreement: &mut Agreement, letter: u32) {
        let letter = letters::fold(letter);
        let read = usize::from(agreement.read);
        let [before, same, after] = agreement.row;
        let differs = |at: usize| u8::from(self.letters.get(at) != Some(&letter));
        let is_there = |letters: usize| letters <= self.letters.len();
        // For as many letters of the query as the text had before this one, for as many as it has now, and for one
        // more.
        let fewer = if read == 0 { 1 } else { (before + differs(read - 1)).min(same + 1) };
        let equal = if is_there(read + 1) { (same + differs(read)).min(after + 1).min(fewer + 1) } else { FAR };
        let more = if is_there(read + 2) { (after + differs(read + 1)).min(equal + 1) } else { FAR };
        let fewer = if is_there(read) { fewer } else { FAR };
        let cap = |edits: u8| if edits > self.distance_max() { FAR } else { edits };
        agreement.row = [cap(fewer), cap(equal), cap(more)];
        agreement.read = agreement.read.saturating_add(1);
        self.note(agreement);
    }

    /// Notes the distance of the prefix that has been read.
    fn note(&self, agreement: &mut Agreement) {
        let place = (self.letters.len() + 1).wrapping_sub(usize::from(agreement.read));
        if let Some(edits) = agreement.row.get(place) {
            agreement.distance = agreement.distance.min(*edits);
        }
    }
}

/// The match of a text's prefix with a query.
#[derive(Clone, Copy)]
pub(super) struct Agreement {
    letters: Letters,
    /// Number of characters that were read.
    read: u16,
    /// Edits between these characters and a prefix of the query with one letter fewer, the same number, and one more.
    /// [`FAR`] if there are more than allowed.
    row: [u8; 3],
    /// The minimum number of edits between any prefix of the text and the whole query.
    distance: u8,
}

/// The outlook for texts with a common prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outlook {
    /// All texts match, with this distance.
    Found(u8),
    /// No text matches.
    Lost,
    /// The continuation decides.
    Open,
}
