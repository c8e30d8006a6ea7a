//! Suggestions: texts with scores, and fast search for the best ones with a given prefix.
//!
//! This is the data structure behind RediSearch's FT.SUGADD and FT.SUGGET. A tree of forks and small blocks (`tree`,
//! `bucket`) stores for each branch a summary of the best suggestions below it, so that a search visits its results and
//! little else (`best`) at any number of texts. Each fork also keeps its best suggestions in a block (`kept`), where
//! most searches find all their results (`direct`). A text takes about as many bytes as its suffix that differs from
//! other texts, plus 20 to 30.
//!
//! # Ranks
//! A suggestion's rank depends on the query: its score, divided by the square root of one plus the number of characters
//! that its text is longer than the query ([`Query`]). Its **weight** is its rank for an empty query. The rank grows
//! with the weight and falls with the text's length. These two and the highest score give upper bounds for the ranks in
//! a branch. Equal ranks are ordered by their texts.
//!
//! Scores have 32 bits, as in RediSearch, and are never NaN. Source of the semantics: RediSearch's command pages of the
//! group "suggestion", its tests, and its behaviour in cases that these leave open.
//!
//! This module knows nothing of keys or commands.

mod best;
mod bucket;
mod direct;
mod kept;
mod letters;
mod query;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

use std::ops::ControlFlow;

use self::kept::AsciiPrefix;
use self::tree::{Bytes, TrieNode, Visited};
use self::walk::SuggestionWalk;
use crate::compact::Mover;
use crate::snapshot::{Budget, ElementSink, Step};
use crate::unaligned_box::TightBox;
use crate::value::{Object, Value};

pub use best::Best;
pub use query::{Fuzziness, QUERY_BYTES_MAX, Query, QueryTooLong};

/// Maximum length of a text in bytes: RediSearch's figure.
pub const TEXT_BYTES_MAX: usize = 512;
/// Maximum length of a text in characters: RediSearch's figure.
pub const TEXT_CHARACTERS_MAX: usize = 255;
/// Maximum size of a payload in bytes. A block with two of them stays far below its limit of 4 GB.
pub const PAYLOAD_BYTES_MAX: usize = 512 * 1024 * 1024;

const _: () = assert!(TEXT_CHARACTERS_MAX <= u8::MAX as usize);

/// Buckets per step of a defragmentation.
const COMPACTED_AT_ONCE: usize = 100;

/// A suggestion to be stored, without its text.
struct Suggestion<'a> {
    score: f32,
    characters: u8,
    payload: Option<&'a [u8]>,
}

/// A stored suggestion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SuggestionOf<'a> {
    /// The text.
    pub text: &'a [u8],
    /// Its score.
    pub score: f32,
    /// Its payload, if it has one.
    pub payload: Option<&'a [u8]>,
}

/// See the module's documentation.
fn weight(score: f32, characters: u8) -> f32 {
    score / (1.0 + f32::from(characters)).sqrt()
}

/// Texts with scores. See the module's documentation.
#[derive(Default)]
pub struct Suggestions {
    root: TrieNode,
    len: usize,
    bytes: Bytes,
    /// The walk of a snapshot that is saving them in pieces.
    walk: Option<Box<SuggestionWalk>>,
    /// The prefix at which the defragmentation continues.
    compacted: Vec<u8>,
}

impl Clone for Suggestions {
    /// Copies the suggestions. The copy does not belong to the snapshot that is saving the original.
    fn clone(&self) -> Self {
        let Suggestions { root, len, bytes, .. } = self;
        Suggestions { root: root.clone(), len: *len, bytes: *bytes, ..Suggestions::default() }
    }
}

impl Suggestions {
    /// Number of suggestions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no suggestions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if a text is valid: neither empty nor too long.
    #[must_use]
    pub fn can_be(text: &[u8]) -> bool {
        !text.is_empty() && text.len() <= TEXT_BYTES_MAX && letters::count(text) <= TEXT_CHARACTERS_MAX
    }

    /// Returns a text's score and payload.
    #[must_use]
    pub fn get(&self, text: &[u8]) -> Option<(f32, Option<&[u8]>)> {
        self.root.find(text).map(|stored| (stored.score, stored.payload))
    }

    /// Adds a text or changes its score. Without a payload, or with an empty one, an existing payload stays. Returns
    /// true if the text is new. An invalid text, an oversized payload or a score of NaN changes nothing.
    pub fn set(&mut self, text: &[u8], score: f32, payload: Option<&[u8]>) -> bool {
        let is_wrong = score.is_nan() || payload.is_some_and(|payload| payload.len() > PAYLOAD_BYTES_MAX);
        if is_wrong || !Suggestions::can_be(text) {
            return false;
        }
        self.save_before(text);
        let payload = payload.filter(|payload| !payload.is_empty());
        let characters = letters::count(text) as u8;
        let before =
            self.root.set(text, AsciiPrefix::default(), &Suggestion { score, characters, payload }, &mut self.bytes);
        self.len += usize::from(before.is_none());
        before.is_none()
    }

    /// Removes a text. Returns true if it existed.
    pub fn remove(&mut self, text: &[u8]) -> bool {
        if !Suggestions::can_be(text) {
            return false;
        }
        self.save_before(text);
        let characters = letters::count(text) as u8;
        let is_removed = self.root.remove(text, AsciiPrefix::default(), characters, &mut self.bytes).is_some();
        self.len -= usize::from(is_removed);
        is_removed
    }

    /// Returns up to `count` of the best suggestions that match the query.
    #[must_use]
    pub fn best(&self, query: &Query, count: usize) -> Best<'_> {
        let count = count.min(self.len);
        direct::find(&self.root, query, count).unwrap_or_else(|| best::find(&self.root, query, count))
    }

    /// Calls `visit` with each suggestion, in an arbitrary order.
    pub fn for_each(&self, mut visit: impl FnMut(SuggestionOf<'_>)) {
        self.root.each(&mut Vec::new(), &mut visit);
    }

    /// Returns the form's name in OBJECT ENCODING: Redis's name for all types of modules.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        "raw"
    }

    /// Bytes of all allocations, without the allocator's overhead.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let walk = self.walk.as_ref().map_or(0, |walk| walk.memory_bytes());
        size_of::<Suggestions>() + self.bytes + self.compacted.capacity() + walk
    }

    /// Runs one step of a defragmentation from a cursor on: moves the blocks that `mover` selects. Forks stay, because
    /// there are few. Returns the next cursor; 0 is the beginning and the end.
    pub fn compact(&mut self, cursor: u64, mover: &mut Mover<'_>) -> u64 {
        if cursor == 0 {
            self.compacted.clear();
        }
        let from = std::mem::take(&mut self.compacted);
        let mut left = COMPACTED_AT_ONCE;
        let stopped = self.root.visit_from(&mut Vec::new(), &from, &mut |_, visited| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            match visited {
                Visited::Bucket(bucket) => bucket.compact(mover),
                Visited::Kept(kept) => kept.records_mut().compact(mover),
            }
            ControlFlow::Continue(())
        });
        match stopped {
            ControlFlow::Break(next) => {
                self.compacted = next;
                1
            }
            ControlFlow::Continue(()) => 0,
        }
    }

    /// Saves a text before it is added, changed or removed.
    fn save_before(&mut self, text: &[u8]) {
        if let Some(walk) = &mut self.walk {
            walk.settle(&self.root, text);
        }
    }

    /// Returns true while a snapshot saves them in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        self.walk.is_some()
    }

    /// Begins to save them in pieces, or stops that.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        self.walk = elements.map(SuggestionWalk::begin);
    }

    /// Saves a piece. Returns the reason if it stopped before the end.
    pub(crate) fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        walk::step(&mut self.walk, &mut self.root, budget)
    }
}

impl Object for Suggestions {
    #[inline]
    fn of(value: &Value) -> Option<&Self> {
        if let Value::Suggestions(suggestions) = value { Some(suggestions) } else { None }
    }

    #[inline]
    fn of_mut(value: &mut Value) -> Option<&mut Self> {
        if let Value::Suggestions(suggestions) = value { Some(suggestions) } else { None }
    }

    fn empty() -> Value {
        Value::Suggestions(TightBox::new(Suggestions::default()))
    }
}
