//! Saving many suggestions in pieces, while commands go on to change them.
//!
//! The walk goes through the texts in their order, a bucket at a time: what is before its place has been saved, however the tree
//! changes. A text behind it that is about to be changed or removed is saved at once, and noted, as is one that is added there;
//! the walk passes over these.

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
    /// Texts from there on that are not to be saved when the walk comes to them.
    settled: BTreeSet<Box<[u8]>>,
    /// Bytes of these.
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

    /// Bytes that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        size_of::<SuggestionWalk>() + self.settled.len() * size_of::<Box<[u8]>>() + self.settled_bytes
    }

    /// A text is about to be added, changed or removed.
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

    /// Saves what the budget allows. Says why it has stopped before the end.
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
                // A bucket may be new here, and have texts that have been saved, too.
                if suggestion.text >= &*start && !settled.contains(suggestion.text) {
                    target.save(element(suggestion), budget);
                }
            });
            ControlFlow::Continue(())
        };
        if let ControlFlow::Break(next) = root.visit_from(&mut Vec::new(), &start, save) {
            // What is before the bucket is saved; of its own, what was before the start.
            *from = next.max(start);
        }
        stopped
    }
}

/// Goes on with a walk, and ends it if nothing is left. Says why it has stopped before the end.
pub(super) fn step(walk: &mut Option<Box<SuggestionWalk>>, root: &mut TrieNode, budget: &mut Budget) -> Option<Step> {
    let stopped = walk.as_mut()?.step(root, budget);
    if stopped.is_none()
        && let Some(walk) = walk.take()
    {
        walk.target.end();
    }
    stopped
}
