//! A few suggestions with a common text prefix, in one block that stores only the rest of each text.
//!
//! ```text
//! the block, whose mark is the number of suggestions:
//! | score, f32 | characters of the whole text, u8 | 2 * length of the rest + has payload | rest | [length of payload | payload] | ...
//!
//! lengths are in seven bits a byte, the lowest first, with the eighth set where another byte follows
//! ```
//!
//! The suggestions are in order of descending weight ([`weight`]); equal weights are in order of their texts.

use super::{Suggestion, SuggestionOf, weight};
use crate::compact::Mover;
use crate::types::block::Block;
use crate::types::suggestions::tree::Summary;

/// Maximum number of suggestions in a bucket; beyond it, a fork replaces the bucket. A lower limit makes searches
/// faster and takes more memory.
pub(super) const BUCKET_COUNT_MAX: usize = if cfg!(test) { 5 } else { 32 };
/// Maximum size of a bucket with several suggestions, in bytes.
pub(super) const BUCKET_BYTES_MAX: usize = 2048;

/// Bytes of a record before its length.
const HEAD: usize = 5;

/// See the module's documentation.
#[derive(Clone, Default)]
pub(super) struct TrieBucket(Block);

/// A suggestion in a bucket.
#[derive(Clone, Copy)]
pub(super) struct Stored<'a> {
    pub rest: &'a [u8],
    pub score: f32,
    pub characters: u8,
    pub payload: Option<&'a [u8]>,
}

/// The state of a suggestion before a change.
#[derive(Clone, Copy)]
pub(super) struct Old {
    pub score: f32,
    pub has_payload: bool,
}

impl Stored<'_> {
    pub fn weight(&self) -> f32 {
        weight(self.score, self.characters)
    }

    /// Size of its record in bytes.
    fn size(&self) -> usize {
        let head = HEAD + length_size(self.rest.len() * 2) + self.rest.len();
        head + self.payload.map_or(0, |payload| length_size(payload.len()) + payload.len())
    }

    fn write(&self, mut room: &mut [u8]) {
        let mut put = |bytes: &[u8]| {
            let (place, left) = std::mem::take(&mut room).split_at_mut(bytes.len());
            place.copy_from_slice(bytes);
            room = left;
        };
        put(&self.score.to_le_bytes());
        put(&[self.characters]);
        put_length(&mut put, self.rest.len() * 2 + usize::from(self.payload.is_some()));
        put(self.rest);
        if let Some(payload) = self.payload {
            put_length(&mut put, payload.len());
            put(payload);
        }
    }
}

/// Returns the size of a length in bytes.
fn length_size(length: usize) -> usize {
    (usize::BITS - (length | 1).leading_zeros()).div_ceil(7) as usize
}

fn put_length(put: &mut impl FnMut(&[u8]), mut length: usize) {
    while length >= 0x80 {
        put(&[length as u8 | 0x80]);
        length >>= 7;
    }
    put(&[length as u8]);
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = bytes.split_at_checked(count)?;
    *bytes = left;
    Some(taken)
}

#[inline]
fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    let (mut length, mut shift) = (0, 0);
    loop {
        let (byte, left) = bytes.split_first()?;
        *bytes = left;
        length |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(length);
        }
        shift += 7;
    }
}

/// Iterates over the suggestions of a bucket in order.
#[derive(Clone, Copy)]
pub(super) struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = Stored<'a>;

    #[inline]
    fn next(&mut self) -> Option<Stored<'a>> {
        let (score, bytes) = self.0.split_first_chunk::<4>()?;
        let (&characters, mut bytes) = bytes.split_first()?;
        let head = take_length(&mut bytes)?;
        let rest = take(&mut bytes, head / 2)?;
        let payload = if head % 2 == 1 {
            let length = take_length(&mut bytes)?;
            Some(take(&mut bytes, length)?)
        } else {
            None
        };
        self.0 = bytes;
        Some(Stored { rest, score: f32::from_le_bytes(*score), characters, payload })
    }
}

impl TrieBucket {
    #[inline]
    pub fn len(&self) -> usize {
        self.0.mark() as usize
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a fork should replace it.
    pub fn is_over(&self) -> bool {
        let count = self.len();
        count > BUCKET_COUNT_MAX || (count > 1 && self.0.len() > BUCKET_BYTES_MAX)
    }

    /// Bytes of the suggestions.
    pub fn stored_bytes(&self) -> usize {
        self.0.len()
    }

    /// Bytes of the allocation.
    pub fn allocated_bytes(&self) -> usize {
        self.0.allocated_bytes()
    }

    #[inline]
    pub fn records(&self) -> Records<'_> {
        Records(self.0.bytes())
    }

    pub fn find(&self, rest: &[u8]) -> Option<Stored<'_>> {
        self.records().find(|stored| stored.rest == rest)
    }

    /// Returns the summary of all suggestions.
    pub fn summary(&self) -> Summary {
        self.records().fold(Summary::NONE, |summary, stored| summary.and(Summary::of(&stored)))
    }

    /// Adds or changes a suggestion; without a new payload, an existing one stays. Returns its old state.
    pub fn set(&mut self, rest: &[u8], new: &Suggestion<'_>) -> Option<Old> {
        let Some((at, old)) = self.position(rest) else {
            self.insert(&Stored { rest, score: new.score, characters: new.characters, payload: new.payload });
            return None;
        };
        let (before, size) = (Old { score: old.score, has_payload: old.payload.is_some() }, old.size());
        let kept = if new.payload.is_none() { old.payload.map(<[u8]>::to_vec) } else { None };
        let payload = new.payload.or(kept.as_deref());
        self.cut(at, size);
        self.insert(&Stored { rest, score: new.score, characters: new.characters, payload });
        Some(before)
    }

    /// Removes a suggestion and returns its old score.
    pub fn remove(&mut self, rest: &[u8]) -> Option<f32> {
        let (at, old) = self.position(rest)?;
        let (score, size) = (old.score, old.size());
        self.cut(at, size);
        Some(score)
    }

    /// Adds a suggestion that belongs behind all others.
    pub fn push(&mut self, stored: &Stored<'_>) {
        self.insert_at(self.0.len(), stored);
    }

    /// Returns the offset of a suggestion's record, and the suggestion.
    fn position(&self, rest: &[u8]) -> Option<(usize, Stored<'_>)> {
        let mut records = self.records();
        loop {
            let at = self.0.len() - records.0.len();
            let stored = records.next()?;
            if stored.rest == rest {
                return Some((at, stored));
            }
        }
    }

    /// Adds a suggestion that does not exist.
    pub fn insert(&mut self, stored: &Stored<'_>) {
        let weight = stored.weight();
        let mut records = self.records();
        let at = loop {
            let at = self.0.len() - records.0.len();
            let is_place = |next: Stored<'_>| {
                let theirs = next.weight();
                theirs < weight || (theirs == weight && next.rest > stored.rest)
            };
            if records.next().is_none_or(is_place) {
                break at;
            }
        };
        self.insert_at(at, stored);
    }

    fn insert_at(&mut self, at: usize, stored: &Stored<'_>) {
        let count = self.0.mark() + 1;
        stored.write(self.0.splice(at, 0, stored.size()));
        self.0.set_mark(count);
    }

    fn cut(&mut self, at: usize, size: usize) {
        let count = self.0.mark() - 1;
        self.0.splice(at, size, 0);
        self.0.set_mark(count);
    }

    /// Moves the block, if `mover` selects it.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        self.0.compact(mover);
    }

    /// Passes the suggestions with their whole texts to `visit`, given their common prefix.
    pub fn each(&self, beginning: &mut Vec<u8>, visit: &mut impl FnMut(SuggestionOf<'_>)) {
        let len = beginning.len();
        for stored in self.records() {
            beginning.extend_from_slice(stored.rest);
            visit(SuggestionOf { text: beginning, score: stored.score, payload: stored.payload });
            beginning.truncate(len);
        }
    }
}
