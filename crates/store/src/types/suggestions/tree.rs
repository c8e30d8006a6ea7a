//! The tree: forks, where texts diverge, and buckets of few texts as leaves.
//!
//! A fork's branches are in order of the greatest weight below each, so that a search visits the best first and skips
//! the rest. A full bucket becomes a fork; a fork with little below it becomes a bucket again.

use std::ops::ControlFlow;

use super::bucket::{BUCKET_BYTES_MAX, BUCKET_COUNT_MAX, Old, Stored, TrieBucket};
use super::kept::{AsciiPrefix, Kept};
use super::{Suggestion, SuggestionOf, weight};
use crate::unaligned_box::TightBox;

/// A node of the tree with everything below it.
#[derive(Clone)]
pub(super) enum TrieNode {
    Bucket(TrieBucket),
    Fork(TightBox<Fork>),
}

/// A place where texts diverge.
#[derive(Clone)]
pub(super) struct Fork {
    /// The common bytes of all texts below, behind the byte that led here.
    pub label: Box<[u8]>,
    /// The suggestion with a text that ends behind the label; empty if there is none.
    pub own: TrieBucket,
    pub branches: Vec<Branch>,
    /// The best of all these suggestions.
    pub kept: Kept,
}

/// A branch of a fork.
#[derive(Clone)]
pub(super) struct Branch {
    pub byte: u8,
    pub summary: Summary,
    pub node: TrieNode,
}

/// The summary stores its numbers as bytes, so that branches have no padding.
const _: () = assert!(size_of::<Branch>() == 19);

/// A summary of all suggestions below a node.
#[derive(Clone, Copy)]
pub(super) struct Summary {
    /// Characters of the shortest text.
    pub shortest: u8,
    highest: [u8; 4],
    heaviest: [u8; 4],
}

impl Summary {
    /// The summary of no suggestions.
    pub const NONE: Summary = Summary::new(u8::MAX, f32::NEG_INFINITY, f32::NEG_INFINITY);

    const fn new(shortest: u8, highest: f32, heaviest: f32) -> Summary {
        Summary { shortest, highest: highest.to_ne_bytes(), heaviest: heaviest.to_ne_bytes() }
    }

    pub fn of(stored: &Stored<'_>) -> Summary {
        Summary::new(stored.characters, stored.score, stored.weight())
    }

    /// Returns the highest score.
    #[inline]
    pub fn highest(&self) -> f32 {
        f32::from_ne_bytes(self.highest)
    }

    /// Returns the greatest weight.
    #[inline]
    pub fn heaviest(&self) -> f32 {
        f32::from_ne_bytes(self.heaviest)
    }

    /// Returns the summary of both nodes' suggestions.
    #[inline]
    pub fn and(self, other: Summary) -> Summary {
        let (highest, heaviest) = (self.highest().max(other.highest()), self.heaviest().max(other.heaviest()));
        Summary::new(self.shortest.min(other.shortest), highest, heaviest)
    }

    /// Returns true if the summary may change when a suggestion with this score and length is removed.
    fn may_be_by(&self, score: f32, characters: u8) -> bool {
        score >= self.highest() || weight(score, characters) >= self.heaviest() || characters <= self.shortest
    }
}

/// A block that [`TrieNode::visit_from`] visits.
pub(super) enum Visited<'a> {
    /// Suggestions.
    Bucket(&'a mut TrieBucket),
    /// A fork's copies of its best suggestions.
    Kept(&'a mut Kept),
}

/// Size of the allocations in bytes; updated with each change.
pub(super) type Bytes = usize;

impl Default for TrieNode {
    fn default() -> Self {
        TrieNode::Bucket(TrieBucket::default())
    }
}

/// Returns the length of the common prefix of two texts.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

impl TrieNode {
    fn is_empty(&self) -> bool {
        matches!(self, TrieNode::Bucket(bucket) if bucket.is_empty())
    }

    pub fn summary(&self) -> Summary {
        match self {
            TrieNode::Bucket(bucket) => bucket.summary(),
            TrieNode::Fork(fork) => {
                fork.branches.iter().fold(fork.own.summary(), |all, branch| all.and(branch.summary))
            }
        }
    }

    /// Returns the suggestion with this text.
    pub fn find(&self, text: &[u8]) -> Option<Stored<'_>> {
        let (mut node, mut rest) = (self, text);
        loop {
            match node {
                TrieNode::Bucket(bucket) => return bucket.find(rest),
                TrieNode::Fork(fork) => match rest.strip_prefix(&*fork.label)?.split_first() {
                    None => return fork.own.find(b""),
                    Some((byte, left)) => {
                        node = &fork.branches.iter().find(|branch| branch.byte == *byte)?.node;
                        rest = left;
                    }
                },
            }
        }
    }

    /// Adds or changes a suggestion, given the rest of its text behind the path to this node. Returns its old state.
    pub fn set(&mut self, rest: &[u8], prefix: AsciiPrefix, new: &Suggestion<'_>, bytes: &mut Bytes) -> Option<Old> {
        let fork = match self {
            TrieNode::Bucket(bucket) => {
                *bytes -= bucket.allocated_bytes();
                let before = bucket.set(rest, new);
                *bytes += bucket.allocated_bytes();
                self.burst(prefix, bytes);
                return before;
            }
            TrieNode::Fork(fork) => fork,
        };
        let at = common(&fork.label, rest);
        if at < fork.label.len() {
            self.split(at, prefix, bytes);
            return self.set(rest, prefix, new, bytes);
        }
        let (prefix, rest) = (prefix.and(&fork.label), &rest[at..]);
        let before = match rest.split_first() {
            None => {
                *bytes -= fork.own.allocated_bytes();
                let before = fork.own.set(b"", new);
                *bytes += fork.own.allocated_bytes();
                before
            }
            Some((byte, rest)) => fork.set_in_branch(*byte, rest, prefix, new, bytes),
        };
        fork.note_set(rest, prefix, new, before, bytes);
        before
    }

    /// Removes a suggestion, given the rest of its text behind the path to this node. Returns its old score.
    pub fn remove(&mut self, rest: &[u8], prefix: AsciiPrefix, characters: u8, bytes: &mut Bytes) -> Option<f32> {
        let fork = match self {
            TrieNode::Bucket(bucket) => {
                *bytes -= bucket.allocated_bytes();
                let before = bucket.remove(rest);
                *bytes += bucket.allocated_bytes();
                return before;
            }
            TrieNode::Fork(fork) => fork,
        };
        let (prefix, rest) = (prefix.and(&fork.label), rest.strip_prefix(&*fork.label)?);
        let before = match rest.split_first() {
            None => {
                *bytes -= fork.own.allocated_bytes();
                let before = fork.own.remove(b"");
                *bytes += fork.own.allocated_bytes();
                before
            }
            Some((byte, rest)) => fork.remove_in_branch(*byte, rest, prefix, characters, bytes),
        }?;
        if !self.gather(bytes)
            && let TrieNode::Fork(fork) = self
        {
            fork.note_lowered(rest, prefix, bytes);
        }
        Some(before)
    }

    /// Converts a bucket that exceeds its limits to a fork, recursively.
    fn burst(&mut self, prefix: AsciiPrefix, bytes: &mut Bytes) {
        let TrieNode::Bucket(bucket) = self else { return };
        if !bucket.is_over() {
            return;
        }
        let bucket = std::mem::take(bucket);
        *bytes -= bucket.allocated_bytes();
        let mut fork = Fork::of(&bucket);
        *bytes += fork.allocated_bytes();
        let prefix = prefix.and(&fork.label);
        fork.branches.iter_mut().for_each(|branch| branch.node.burst(prefix.and(&[branch.byte]), bytes));
        fork.keep(prefix, bytes);
        *self = TrieNode::Fork(TightBox::new(fork));
    }

    /// Splits a fork's label, and inserts a parent fork that gets the first part of the label.
    fn split(&mut self, at: usize, prefix: AsciiPrefix, bytes: &mut Bytes) {
        let TrieNode::Fork(fork) = self else { return };
        let label = std::mem::take(&mut fork.label);
        fork.label = label[at + 1..].into();
        let summary = self.summary();
        let below = std::mem::take(self);
        let mut above = Fork::new(&label[..at]);
        above.branches.reserve_exact(2);
        above.branches.push(Branch { byte: label[at], summary, node: below });
        // The byte between both labels belongs to the branch.
        *bytes = *bytes + above.shallow_bytes() - 1 - at;
        above.keep(prefix.and(&above.label), bytes);
        *self = TrieNode::Fork(TightBox::new(above));
    }

    /// Converts a fork with little below it to a bucket. Merges a fork that has a single branch with the fork at the
    /// branch's end, which already keeps the best of the same suggestions. Returns true if it did either.
    fn gather(&mut self, bytes: &mut Bytes) -> bool {
        let TrieNode::Fork(fork) = self else { return false };
        if let Some(bucket) = fork.gathered() {
            *bytes = *bytes - fork.allocated_bytes() + bucket.allocated_bytes();
            *self = TrieNode::Bucket(bucket);
            return true;
        }
        let is_passage = fork.own.is_empty() && fork.branches.len() == 1;
        if !is_passage || !matches!(fork.branches[0].node, TrieNode::Fork(_)) {
            return false;
        }
        *bytes -= fork.allocated_bytes();
        if let Some(Branch { byte, node: TrieNode::Fork(mut below), .. }) = fork.branches.pop() {
            *bytes += 1 + fork.label.len();
            below.label = [&fork.label, &[byte][..], &below.label].concat().into();
            *self = TrieNode::Fork(below);
        }
        true
    }

    /// Calls `visit` with every suggestion, best branches first. `beginning` is the path to this node.
    pub fn each(&self, beginning: &mut Vec<u8>, visit: &mut impl FnMut(SuggestionOf<'_>)) {
        let fork = match self {
            TrieNode::Bucket(bucket) => return bucket.each(beginning, visit),
            TrieNode::Fork(fork) => fork,
        };
        let len = beginning.len();
        beginning.extend_from_slice(&fork.label);
        fork.own.each(beginning, visit);
        for branch in &fork.branches {
            beginning.push(branch.byte);
            branch.node.each(beginning, visit);
            beginning.pop();
        }
        beginning.truncate(len);
    }

    /// Calls `visit` with every bucket that may have texts from `from` on, in text order, and with the common prefix of
    /// its texts. A fork's own suggestion is the first of its buckets; the fork's kept suggestions come before it. If
    /// `visit` breaks, returns the prefix at which it did.
    pub fn visit_from(
        &mut self,
        beginning: &mut Vec<u8>,
        from: &[u8],
        visit: &mut impl FnMut(&[u8], Visited<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<Vec<u8>> {
        let mut call = |beginning: &[u8], visited: Visited<'_>| match visit(beginning, visited) {
            ControlFlow::Break(()) => ControlFlow::Break(beginning.to_vec()),
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
        };
        let fork = match self {
            TrieNode::Bucket(bucket) => return call(beginning, Visited::Bucket(bucket)),
            TrieNode::Fork(fork) => fork,
        };
        let len = beginning.len();
        beginning.extend_from_slice(&fork.label);
        if from <= &**beginning {
            call(beginning, Visited::Kept(&mut fork.kept))?;
            if !fork.own.is_empty() {
                call(beginning, Visited::Bucket(&mut fork.own))?;
            }
        }
        let mut order: Vec<(u8, u16)> = (0u16..).zip(&fork.branches).map(|(at, branch)| (branch.byte, at)).collect();
        order.sort_unstable();
        for (byte, at) in order {
            beginning.push(byte);
            // If this condition is false, all texts with this prefix are before `from`.
            if from <= &**beginning || from.starts_with(beginning) {
                fork.branches[usize::from(at)].node.visit_from(beginning, from, visit)?;
            }
            beginning.pop();
        }
        beginning.truncate(len);
        ControlFlow::Continue(())
    }
}

impl Fork {
    fn new(label: &[u8]) -> Fork {
        Fork { label: label.into(), own: TrieBucket::default(), branches: Vec::new(), kept: Kept::default() }
    }

    /// Returns a fork of a bucket's suggestions.
    fn of(bucket: &TrieBucket) -> Fork {
        let first = bucket.records().next().map_or(&b""[..], |stored| stored.rest);
        let at = bucket.records().fold(first.len(), |len, stored| common(&first[..len], stored.rest));
        let mut fork = Fork::new(&first[..at]);
        // The bucket's order also puts the branches, and the suggestions of each branch, in order.
        for stored in bucket.records() {
            let Some((&byte, rest)) = stored.rest[at..].split_first() else {
                fork.own.push(&Stored { rest: b"", ..stored });
                continue;
            };
            let index = fork.position(byte).unwrap_or_else(|| fork.add_branch(byte));
            let branch = &mut fork.branches[index];
            branch.summary = branch.summary.and(Summary::of(&stored));
            if let TrieNode::Bucket(bucket) = &mut branch.node {
                bucket.push(&Stored { rest, ..stored });
            }
        }
        fork
    }

    #[inline]
    fn position(&self, byte: u8) -> Option<usize> {
        self.branches.iter().position(|branch| branch.byte == byte)
    }

    /// Adds an empty branch and returns its index.
    fn add_branch(&mut self, byte: u8) -> usize {
        let len = self.branches.len();
        if len == self.branches.capacity() {
            self.branches.reserve_exact(1 + len / 4);
        }
        self.branches.push(Branch { byte, summary: Summary::NONE, node: TrieNode::default() });
        len
    }

    /// Returns true if `one` must be behind `other`.
    fn is_after(one: &Branch, other: &Branch) -> bool {
        let (mine, theirs) = (one.summary.heaviest(), other.summary.heaviest());
        mine < theirs || (mine == theirs && one.byte > other.byte)
    }

    /// Moves a branch towards the front, to its place.
    fn raise(&mut self, index: usize) {
        let (before, at) = self.branches[..=index].split_at(index);
        let place = before.iter().rposition(|branch| !Fork::is_after(branch, &at[0])).map_or(0, |at| at + 1);
        self.branches[place..=index].rotate_right(1);
    }

    /// Moves a branch towards the back, to its place.
    fn lower(&mut self, index: usize) {
        let (at, behind) = self.branches[index..].split_at(1);
        let places = behind.iter().take_while(|branch| Fork::is_after(&at[0], branch)).count();
        self.branches[index..=index + places].rotate_left(1);
    }

    fn set_in_branch(
        &mut self,
        byte: u8,
        rest: &[u8],
        prefix: AsciiPrefix,
        new: &Suggestion<'_>,
        bytes: &mut Bytes,
    ) -> Option<Old> {
        let index = self.position(byte).unwrap_or_else(|| {
            *bytes -= self.branches_bytes();
            let index = self.add_branch(byte);
            *bytes += self.branches_bytes();
            index
        });
        let branch = &mut self.branches[index];
        let before = branch.node.set(rest, prefix.and(&[byte]), new, bytes);
        let is_lower = before
            .is_some_and(|before| new.score < before.score && branch.summary.may_be_by(before.score, new.characters));
        if is_lower {
            branch.summary = branch.node.summary();
            self.lower(index);
        } else {
            let own = Summary::new(new.characters, new.score, weight(new.score, new.characters));
            branch.summary = branch.summary.and(own);
            self.raise(index);
        }
        before
    }

    fn remove_in_branch(
        &mut self,
        byte: u8,
        rest: &[u8],
        prefix: AsciiPrefix,
        characters: u8,
        bytes: &mut Bytes,
    ) -> Option<f32> {
        let index = self.position(byte)?;
        let branch = &mut self.branches[index];
        let before = branch.node.remove(rest, prefix.and(&[byte]), characters, bytes)?;
        if branch.node.is_empty() {
            *bytes -= self.branches_bytes();
            self.branches.remove(index);
            if self.branches.capacity() > 2 * self.branches.len() {
                self.branches.shrink_to_fit();
            }
            *bytes += self.branches_bytes();
        } else if branch.summary.may_be_by(before, characters) {
            branch.summary = branch.node.summary();
            self.lower(index);
        }
        Some(before)
    }

    /// Updates the kept suggestions after one below this fork was added or changed. `rest` is the part of its text
    /// behind the label.
    fn note_set(
        &mut self,
        rest: &[u8],
        prefix: AsciiPrefix,
        new: &Suggestion<'_>,
        before: Option<Old>,
        bytes: &mut Bytes,
    ) {
        if before.is_some_and(|before| new.score < before.score) {
            return self.note_lowered(rest, prefix, bytes);
        }
        let has_payload = new.payload.is_some() || before.is_some_and(|before| before.has_payload);
        let payload = has_payload.then_some(&b""[..]);
        *bytes -= self.kept.allocated_bytes();
        self.kept.raise(&Stored { rest, score: new.score, characters: new.characters, payload }, prefix);
        *bytes += self.kept.allocated_bytes();
    }

    /// Updates the kept suggestions after one below this fork was removed or its score was lowered. `rest` is as in
    /// `note_set`.
    fn note_lowered(&mut self, rest: &[u8], prefix: AsciiPrefix, bytes: &mut Bytes) {
        if self.kept.has(rest) {
            self.keep(prefix, bytes);
        }
    }

    /// Rebuilds the kept suggestions. `prefix` describes the path, including the label.
    fn keep(&mut self, prefix: AsciiPrefix, bytes: &mut Bytes) {
        let Fork { own, branches, kept, .. } = self;
        *bytes -= kept.allocated_bytes();
        let mut is_whole = true;
        kept.make(prefix, |keep| {
            own.records().for_each(|stored| keep(&stored));
            let mut rest = Vec::new();
            for Branch { byte, node, .. } in branches {
                let (label, best) = match node {
                    TrieNode::Bucket(bucket) => (&b""[..], Some(&*bucket)),
                    TrieNode::Fork(fork) => (&*fork.label, fork.kept.records()),
                };
                is_whole &= best.is_some();
                for stored in best.into_iter().flat_map(|best| best.records()) {
                    rest.clear();
                    rest.push(*byte);
                    rest.extend_from_slice(label);
                    rest.extend_from_slice(stored.rest);
                    keep(&Stored { rest: &rest, ..stored });
                }
            }
        });
        // A branch that keeps nothing may contain any of the best.
        if !is_whole {
            *kept = Kept::default();
        }
        *bytes += kept.allocated_bytes();
    }

    fn branches_bytes(&self) -> usize {
        self.branches.capacity() * size_of::<Branch>()
    }

    /// Bytes of the fork itself, without its own suggestion and everything below its branches.
    fn shallow_bytes(&self) -> usize {
        size_of::<Fork>() + self.label.len() + self.branches_bytes()
    }

    /// Bytes of the fork with its buckets.
    fn allocated_bytes(&self) -> usize {
        let buckets = self.branches.iter().map(|branch| match &branch.node {
            TrieNode::Bucket(bucket) => bucket.allocated_bytes(),
            TrieNode::Fork(_) => 0,
        });
        let own = self.own.allocated_bytes() + self.kept.allocated_bytes();
        self.shallow_bytes() + own + buckets.sum::<usize>()
    }

    /// Returns all suggestions as one bucket, if that would be far from full.
    fn gathered(&self) -> Option<TrieBucket> {
        /// Divisor of a bucket's limits, so that the new bucket does not become a fork with the next suggestion.
        const PART: usize = 2;
        let (mut count, mut stored_bytes) = (self.own.len(), self.own.stored_bytes());
        for branch in &self.branches {
            let TrieNode::Bucket(bucket) = &branch.node else { return None };
            count += bucket.len();
            stored_bytes += bucket.stored_bytes() + bucket.len();
        }
        stored_bytes += count * self.label.len();
        if count > 1 && (count > BUCKET_COUNT_MAX / PART || stored_bytes > BUCKET_BYTES_MAX / PART) {
            return None;
        }
        let (mut bucket, mut rest) = (TrieBucket::default(), Vec::new());
        let mut put = |from: &TrieBucket, beginning: &[&[u8]]| {
            for stored in from.records() {
                rest.clear();
                beginning.iter().for_each(|part| rest.extend_from_slice(part));
                rest.extend_from_slice(stored.rest);
                let Stored { score, characters, payload, .. } = stored;
                bucket.set(&rest, &Suggestion { score, characters, payload });
            }
        };
        put(&self.own, &[&self.label]);
        for branch in &self.branches {
            if let TrieNode::Bucket(below) = &branch.node {
                put(below, &[&self.label, &[branch.byte]]);
            }
        }
        Some(bucket)
    }
}
