//! What is searched for, and how far a text agrees with it.
//!
//! A text is found if its beginning is what is searched for, whatever the case of either; if the search is fuzzy, also if one character has to be added,
//! left out or replaced for that. The **distance** is the least number of such edits with any beginning of the text.

use std::sync::LazyLock;

use super::TEXT_CHARACTERS_MAX;
use super::letters::{self, Letters};

/// Characters that may be searched for: RediSearch's figure.
const QUERY_CHARACTERS_MAX: usize = 100;
/// Bytes that these may have: RediSearch's figure.
pub const QUERY_BYTES_MAX: usize = 200;
/// More edits than any search allows.
const FAR: u8 = 2;
/// By what ranks are multiplied if one edit is needed: e^-2.
const EDIT_FACTOR: f64 = 0.135_335_283_236_612_7;

/// Lengths that a text or a query may have, with 0.
const LENGTHS: usize = 256;

const _: () = assert!(TEXT_CHARACTERS_MAX < LENGTHS && QUERY_BYTES_MAX < LENGTHS);

/// The square root of one more than a length, from a table: a search needs hundreds.
#[inline]
pub(super) fn root(length: usize) -> f64 {
    static ROOTS: LazyLock<[f64; LENGTHS]> =
        LazyLock::new(|| std::array::from_fn(|length| (1.0 + length as f64).sqrt()));
    ROOTS[length % LENGTHS]
}

/// Whether texts may differ from what is searched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fuzziness {
    /// They may not, but for their case.
    Exact,
    /// By one character.
    Fuzzy,
}

/// That a query has more bytes or characters than are searched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueryTooLong {
    /// More than 200 bytes.
    Bytes,
    /// More than 100 characters.
    Characters,
}

/// What is searched for.
pub struct Query {
    /// Its characters without their case.
    letters: Vec<u32>,
    /// The same as bytes.
    pub(super) folded: Vec<u8>,
    /// Bytes as they were given. Ranks go by these, though texts count in characters: so does RediSearch.
    pub(super) bytes: usize,
    pub(super) fuzziness: Fuzziness,
}

impl Query {
    /// A search for texts that begin with this.
    ///
    /// # Errors
    /// When it is too long.
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

    /// Whether all of it is ASCII, as it was given.
    pub(super) fn is_ascii(&self) -> bool {
        self.folded.len() == self.bytes && self.folded.is_ascii()
    }

    /// Its characters.
    pub(super) fn characters(&self) -> usize {
        self.letters.len()
    }

    fn distance_max(&self) -> u8 {
        u8::from(self.fuzziness == Fuzziness::Fuzzy)
    }

    /// The rank of a text with this score, so many characters, and this distance.
    #[inline]
    pub(super) fn rank(&self, score: f32, characters: u8, distance: u8) -> f32 {
        self.rank_at(score, self.bytes.abs_diff(usize::from(characters)), distance)
    }

    /// The same, given by how many characters the text is longer, or shorter.
    #[inline]
    pub(super) fn rank_at(&self, score: f32, difference: usize, distance: u8) -> f32 {
        let mut rank = score;
        if distance > 0 {
            rank = (f64::from(rank) * EDIT_FACTOR) as f32;
        }
        // In this order and precision, clients see RediSearch's digits.
        (f64::from(rank) / root(difference)) as f32
    }

    /// What no rank exceeds of texts that have at least so many characters, no higher score and no greater weight. It is the rank itself, to the
    /// bit, where one of them has all three and isn't shorter than the query.
    #[inline]
    pub(super) fn bound(&self, shortest: u8, highest: f32, weight: f32, distance: u8) -> f32 {
        /// What the rounding of weights may make out.
        const SLACK: f64 = 1.00001;
        if highest < 0.0 {
            return self.rank_at(highest, TEXT_CHARACTERS_MAX, distance);
        }
        let by_score = self.rank_at(highest, usize::from(shortest).saturating_sub(self.bytes), distance);
        if weight < 0.0 {
            return by_score.min(0.0);
        }
        // How much the rank exceeds the weight falls with the length, from the query's on.
        let length = usize::from(shortest).max(self.bytes);
        let stretch = root(length) / root(length - self.bytes);
        let by_weight = f64::from(weight) * stretch * SLACK * if distance > 0 { EDIT_FACTOR } else { 1.0 };
        by_score.min(by_weight as f32)
    }

    /// How far the empty text agrees.
    pub(super) fn start(&self) -> Agreement {
        let mut start = Agreement { letters: Letters::default(), read: 0, row: [FAR, 0, FAR], distance: FAR };
        if self.distance_max() > 0 && !self.letters.is_empty() {
            start.row[2] = 1;
        }
        self.note(&mut start);
        start
    }

    /// False if no text can be found that goes on with this byte: a quick look, before [`Query::go_on`].
    #[inline]
    pub(super) fn may_go_on(&self, agreement: &Agreement, byte: u8) -> bool {
        if self.fuzziness == Fuzziness::Fuzzy || !byte.is_ascii() || agreement.letters.is_within() {
            return true;
        }
        self.letters.get(usize::from(agreement.read)) == Some(&u32::from(byte.to_ascii_lowercase()))
    }

    /// The text goes on with this byte.
    #[inline]
    pub(super) fn go_on(&self, agreement: &mut Agreement, byte: u8) {
        let mut letters = agreement.letters;
        letters.feed(byte, &mut |letter| self.read(agreement, letter));
        agreement.letters = letters;
    }

    /// The text ends. Gives its distance, if it is found.
    pub(super) fn end(&self, mut agreement: Agreement) -> Option<u8> {
        let mut letters = agreement.letters;
        letters.finish(&mut |letter| self.read(&mut agreement, letter));
        self.found(&agreement)
    }

    /// The distance up to now, if that is near enough.
    fn found(&self, agreement: &Agreement) -> Option<u8> {
        (agreement.distance <= self.distance_max()).then_some(agreement.distance)
    }

    /// What is known of all texts that go on from here.
    #[inline]
    pub(super) fn outlook(&self, agreement: &Agreement) -> Outlook {
        let least = agreement.row[0].min(agreement.row[1]).min(agreement.row[2]);
        match self.found(agreement) {
            Some(distance) if least >= distance => Outlook::Found(distance),
            None if least > self.distance_max() => Outlook::Lost,
            _ => Outlook::Open,
        }
    }

    /// The text has another character: a row of the table by which edits are counted, as far as it matters.
    fn read(&self, agreement: &mut Agreement, letter: u32) {
        let letter = letters::fold(letter);
        let read = usize::from(agreement.read);
        let [before, same, after] = agreement.row;
        let differs = |at: usize| u8::from(self.letters.get(at) != Some(&letter));
        let is_there = |letters: usize| letters <= self.letters.len();
        // With as many letters of the query as of the text before this one; with as many as now; with one more.
        let fewer = if read == 0 { 1 } else { (before + differs(read - 1)).min(same + 1) };
        let equal = if is_there(read + 1) { (same + differs(read)).min(after + 1).min(fewer + 1) } else { FAR };
        let more = if is_there(read + 2) { (after + differs(read + 1)).min(equal + 1) } else { FAR };
        let fewer = if is_there(read) { fewer } else { FAR };
        let cap = |edits: u8| if edits > self.distance_max() { FAR } else { edits };
        agreement.row = [cap(fewer), cap(equal), cap(more)];
        agreement.read = agreement.read.saturating_add(1);
        self.note(agreement);
    }

    /// Notes the distance of the beginning that has been read.
    fn note(&self, agreement: &mut Agreement) {
        let place = (self.letters.len() + 1).wrapping_sub(usize::from(agreement.read));
        if let Some(edits) = agreement.row.get(place) {
            agreement.distance = agreement.distance.min(*edits);
        }
    }
}

/// How far a text agrees with a query, as far as the text has been read.
#[derive(Clone, Copy)]
pub(super) struct Agreement {
    letters: Letters,
    /// Characters of the text.
    read: u16,
    /// Edits between these and as many letters of the query: one fewer, as many, one more. [`FAR`], if there are more than allowed.
    row: [u8; 3],
    /// The fewest edits that any beginning needed to be the whole query.
    distance: u8,
}

/// What is known of texts by their beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outlook {
    /// All are found, with this distance.
    Found(u8),
    /// None is found.
    Lost,
    /// It depends on how they go on.
    Open,
}
