//! Saving many suggestions in pieces while commands continue to change them.
//!
//! The walk visits the texts in order, one bucket at a time: texts before its position have been saved, even if the
//! tree changes. A text at or behind the position is saved and noted before it is changed or removed, and noted when it
//! is added; the walk skips noted texts.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::SuggestionOf;
use super::tree::{TrieNode, Visited};
use crate::snapshot::pieces::ElementTarget;
use crate::snapshot::{Budget, Element, ElementSink, Step};

/// See the module's documentation.
pub(super) struct SuggestionWalk {
    target: ElementTarget,
    /// All texts before this have been saved.
    from: Vec<u8>,
    /// Texts from there on that the walk must skip.
    settled: BTreeSet<Box<[u8]>>,
    /// Bytes of these texts.
    settled_bytes: usize,
}

fn element(suggestion: SuggestionOf<'_>) -> Element<'_> {
    let SuggestionOf { text, score, payload } = suggestion;
    Element::Suggestion(text, score, payload)
}

impl SuggestionWalk {
    pub fn begin(elements: Box<dyn ElementSink>) -> Box<SuggestionWalk> {
        let target = ElementTarget::new(elements);
        Box::new(SuggestionWalk { target, from: Vec::new(), settled: BTreeSet::new(), settled_bytes: 0 })
    }

    /// Estimates its size in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<SuggestionWalk>() + self.settled.len() * size_of::<Box<[u8]>>() + self.settled_bytes
    }

    /// Call before a text is added, changed or removed.
    #[cold]
    pub fn settle(&mut self, root: &TrieNode, text: &[u8]) {
        if text < &*self.from || self.settled.contains(text) {
            return;
        }
        self.settled.insert(text.into());
        self.settled_bytes += text.len();
        if let Some(stored) = root.find(text) {
            let old = SuggestionOf { text, score: stored.score, payload: stored.payload };
            self.target.save(element(old), &mut Budget::unlimited());
        }
    }

    /// Saves suggestions until the budget is used up. Returns the reason if it stopped before the end.
    fn step(&mut self, root: &mut TrieNode, budget: &mut Budget) -> Option<Step> {
        let SuggestionWalk { target, from, settled, .. } = self;
        let (start, mut stopped) = (std::mem::take(from), None);
        let save = &mut |beginning: &[u8], visited: Visited<'_>| {
            let Visited::Bucket(bucket) = visited else { return ControlFlow::Continue(()) };
            stopped = target.stops(budget);
            if stopped.is_some() {
                return ControlFlow::Break(());
            }
            bucket.each(&mut beginning.to_vec(), &mut |suggestion| {
                // The bucket may be new here, and contain texts that have been saved.
                if suggestion.text >= &*start && !settled.contains(suggestion.text) {
                    target.save(element(suggestion), budget);
                }
            });
            ControlFlow::Continue(())
        };
        if let ControlFlow::Break(next) = root.visit_from(&mut Vec::new(), &start, save) {
            // All texts before the bucket are saved, and in the bucket those before the start.
            *from = next.max(start);
        }
        stopped
    }
}

/// Continues a walk, and ends it after the last text. Returns the reason if it stopped before the end.
pub(super) fn step(walk: &mut Option<Box<SuggestionWalk>>, root: &mut TrieNode, budget: &mut Budget) -> Option<Step> {
    let stopped = walk.as_mut()?.step(root, budget);
    if stopped.is_none()
        && let Some(walk) = walk.take()
    {
        walk.target.end();
    }
    stopped
}
