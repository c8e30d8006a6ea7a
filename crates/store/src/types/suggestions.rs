//! Suggestions: texts with scores, of which the best that begin with something are found at once.
//!
//! What RediSearch keeps behind FT.SUGADD and FT.SUGGET. A tree of forks and small blocks (`tree`, `bucket`), in which every branch
//! knows the best of what is below it, so that a search goes to its results and to little else (`best`), whatever the number of texts. Each
//! fork has the first few of them in a block (`kept`), where most searches find all that they ask for (`direct`). A text
//! takes about as many bytes as it differs from others, and 20 to 30 beside them.
//!
//! # Ranks
//! A suggestion's rank depends on what is searched for: its score, divided by the root of one more than the characters that its text is longer
//! ([`Query`]). Its **weight** is its rank if nothing is searched for. The rank grows with the weight and falls with the text's length,
//! and by both and the highest score a branch's ranks are bounded. Equal ranks are in the order of their texts.
//!
//! Scores are of 32 bits, as RediSearch has them, and never NaN. Source of the semantics: RediSearch's command pages of the group "suggestion", its
//! tests, and for what they leave open its behaviour.
//!
//! Knows nothing of keys or commands.

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
use crate::tight::TightBox;
use crate::value::{Object, Value};

pub use best::Best;
pub use query::{Fuzziness, QUERY_BYTES_MAX, Query, QueryTooLong};

/// Bytes that a text may have: RediSearch's figure.
pub const TEXT_BYTES_MAX: usize = 512;
/// Characters that a text may have: RediSearch's figure.
pub const TEXT_CHARACTERS_MAX: usize = 255;
/// Bytes that a payload may have. A block with it and another one stays far below 4 GB, which it may have.
pub const PAYLOAD_BYTES_MAX: usize = 512 * 1024 * 1024;

const _: () = assert!(TEXT_CHARACTERS_MAX <= u8::MAX as usize);

/// Buckets that a step of compaction looks at.
const COMPACTED_AT_ONCE: usize = 100;

/// A suggestion that is to be stored, beside its text.
struct Suggestion<'a> {
    score: f32,
    characters: u8,
    payload: Option<&'a [u8]>,
}

/// A suggestion as it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SuggestionOf<'a> {
    /// The text.
    pub text: &'a [u8],
    /// Its score.
    pub score: f32,
    /// What was added to it, if anything.
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
    /// What is saving them in pieces.
    walk: Option<Box<SuggestionWalk>>,
    /// The beginning of the texts that compaction looks at next.
    compacted: Vec<u8>,
}

impl Clone for Suggestions {
    /// The same suggestions. A snapshot that saves these doesn't save the copy.
    fn clone(&self) -> Self {
        let Suggestions { root, len, bytes, .. } = self;
        Suggestions { root: root.clone(), len: *len, bytes: *bytes, ..Suggestions::default() }
    }
}

impl Suggestions {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether a text can be one: it is neither empty nor too long.
    #[must_use]
    pub fn can_be(text: &[u8]) -> bool {
        !text.is_empty() && text.len() <= TEXT_BYTES_MAX && letters::count(text) <= TEXT_CHARACTERS_MAX
    }

    /// The score of a text, and what was added to it.
    #[must_use]
    pub fn get(&self, text: &[u8]) -> Option<(f32, Option<&[u8]>)> {
        self.root.find(text).map(|stored| (stored.score, stored.payload))
    }

    /// Adds a text, or gives it another score; without a payload, or with an empty one, it keeps the one that it has. Says whether it is new.
    /// A text that can't be one, a payload that is too long or a score that is no number changes nothing.
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

    /// Removes a text. Says whether it was there.
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

    /// The best, up to `count`, that begin with what is searched for.
    #[must_use]
    pub fn best(&self, query: &Query, count: usize) -> Best<'_> {
        let count = count.min(self.len);
        direct::find(&self.root, query, count).unwrap_or_else(|| best::find(&self.root, query, count))
    }

    /// Calls `visit` with each, in no order that means anything.
    pub fn for_each(&self, mut visit: impl FnMut(SuggestionOf<'_>)) {
        self.root.each(&mut Vec::new(), &mut visit);
    }

    /// The form's name in OBJECT ENCODING: Redis's of all modules' types.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        "raw"
    }

    /// Bytes of all allocations, without what the allocator adds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let walk = self.walk.as_ref().map_or(0, |walk| walk.memory_bytes());
        size_of::<Suggestions>() + self.bytes + self.compacted.capacity() + walk
    }

    /// Moves blocks that `mover` wants moved, a step from a cursor on: forks stay, which are few. Gives the cursor of the next step; 0
    /// is the beginning, and the end.
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

    /// A text is about to be added, changed or removed.
    fn save_before(&mut self, text: &[u8]) {
        if let Some(walk) = &mut self.walk {
            walk.settle(&self.root, text);
        }
    }

    /// Whether a snapshot is saving them in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        self.walk.is_some()
    }

    /// Begins to save them in pieces, or gives that up.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        self.walk = elements.map(SuggestionWalk::begin);
    }

    /// Saves a piece. Says why that has stopped before the end.
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
