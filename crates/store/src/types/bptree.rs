//! A counted B+tree: the order of a large sorted set.
//!
//! Entries are ordered by score, then by their bytes. Every inner node knows the number of entries below each of its
//! children. Therefore the rank of an entry and the entry of a rank are found in O(log n), and a range by score, by
//! bytes or by rank is always a range of ranks. The scores of a node are adjacent: most comparisons never follow a
//! pointer.
//!
//! The tree does not own the members that it orders. It holds copies of small handles ([`MemberHandle`]). It compares bytes only
//! among equal scores: those of two or three members per node, which the handles' hints choose. It knows nothing of the
//! storage of members, of clients or of commands.
//!
//! ```text
//! inner   first scores | first handles | counts | children     entry i of each describes child i
//! leaf    scores | handles                                     ascending
//! ```
//!
//! "First" is exact: it is the smallest entry below that child, never a leftover of a removed one. Therefore the handle
//! of a removed entry is never compared again.

mod entries;
mod finger;
mod hints;
mod node;
#[cfg(all(test, not(miri)))] // There is nothing unsafe here; Miri would take minutes.
mod tests;

use std::mem::take;
use std::ops::Range;

pub(super) use entries::compare;
use entries::{NodeEntries, scores_below, scores_up_to};
use finger::Finger;
use hints::Sought;
use node::{Descent, INNER_MAX, Inner, LEAF_MAX, Leaf, Node, build_fill, leaf_of, spread};

/// A handle to a member, stored beside its score and cheap to copy. It leads to the bytes that order entries of equal
/// score. Two handles are equal if they refer to the same entry, even with different hints.
pub trait MemberHandle: Copy + PartialEq {
    /// Returns the bytes, which are unique among the entries of one tree and do not change while the handle is in it.
    fn bytes(&self) -> &[u8];

    /// Prefetches the memory that [`bytes`](MemberHandle::bytes) reads. Does nothing if that does not pay.
    #[inline]
    fn prefetch(self) {}

    /// Returns the latest hint. A handle without space for one returns 0.
    #[inline]
    fn hint(self) -> u16 {
        0
    }

    /// Returns the same handle with another hint. Only the tree knows the meaning of hints, and it trusts them only as
    /// starting points of searches.
    #[inline]
    #[must_use]
    fn with_hint(self, _hint: u16) -> Self {
        self
    }
}

/// Prefetch distance of an iterator, in entries: about the number of cache lines that a core has in flight.
const PREFETCH_ENTRIES: usize = 12;

/// A boundary between entries.
#[derive(Clone, Copy, Debug)]
pub enum Boundary<'a> {
    /// Before all entries.
    Start,
    /// After all entries.
    End,
    /// Before the first entry with this score or a higher one.
    BeforeScore(f64),
    /// After the last entry with this score or a lower one.
    AfterScore(f64),
    /// Before the first entry with these bytes or higher ones, if all scores are equal.
    BeforeBytes(&'a [u8]),
    /// After the last entry with these bytes or lower ones, if all scores are equal.
    AfterBytes(&'a [u8]),
}

impl Boundary<'_> {
    /// Returns true if an entry is before this boundary.
    #[must_use]
    pub fn is_after(&self, score: f64, bytes: &[u8]) -> bool {
        match *self {
            Self::Start => false,
            Self::End => true,
            Self::BeforeScore(at) => score < at,
            Self::AfterScore(at) => score <= at,
            Self::BeforeBytes(at) => bytes < at,
            Self::AfterBytes(at) => bytes <= at,
        }
    }

    /// Returns the number of entries before this boundary; `entries` is ascending.
    fn entries_before<T: MemberHandle, const N: usize>(&self, entries: &NodeEntries<T, N>) -> usize {
        match *self {
            Self::Start => 0,
            Self::End => entries.len(),
            Self::BeforeScore(at) => scores_below(entries.scores(), at),
            Self::AfterScore(at) => scores_up_to(entries.scores(), at),
            Self::BeforeBytes(bytes) => entries.before_bytes(Sought { bytes, past_equal: false }),
            Self::AfterBytes(bytes) => entries.before_bytes(Sought { bytes, past_equal: true }),
        }
    }
}

/// A counted B+tree of scores and handles. See the module's description.
pub struct Tree<T> {
    root: Node<T>,
    len: usize,
    /// The place of the last insertion.
    finger: Finger,
}

impl<T: MemberHandle> Default for Tree<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: MemberHandle> Tree<T> {
    /// Returns an empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self { root: Node::Empty, len: 0, finger: Finger::default() }
    }

    /// Returns a tree of these entries, which must be ascending and unique.
    #[must_use]
    pub fn from_sorted(entries: &[(f64, T)]) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| compare(a.0, a.1.bytes(), b.0, b.1.bytes()).is_lt()));
        let mut level: Vec<_> =
            spread(entries.len(), build_fill(LEAF_MAX)).map(|range| leaf_of(&entries[range])).collect();
        while level.len() > 1 {
            let mut kids = take(&mut level).into_iter();
            level = spread(kids.len(), build_fill(INNER_MAX))
                .map(|range| Inner::of(kids.by_ref().take(range.len())))
                .collect();
        }
        Self { root: level.pop().unwrap_or_default(), len: entries.len(), finger: Finger::default() }
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Inserts an entry that is not in the tree; `score` is not NaN.
    pub fn insert(&mut self, score: f64, tie: T) {
        self.len += 1;
        if self.finger.insert(&mut self.root, score, tie) {
            return;
        }
        let right = self.root.insert(score, tie, Descent::new(&mut self.finger));
        if !matches!(right, Node::Empty) {
            self.root = Inner::of([take(&mut self.root), right]);
        }
    }

    /// Removes the entry with this score and handle. Returns true if it was present.
    pub fn remove(&mut self, score: f64, tie: T) -> bool {
        let found = self.root.remove(score, tie);
        self.len -= usize::from(found);
        self.lower_root();
        found
    }

    /// Changes the score of an existing entry.
    pub fn rescore(&mut self, old: f64, tie: T, new: f64) {
        if !self.rescore_in_place(old, tie, new) && self.remove(old, tie) {
            self.insert(new, tie);
        }
    }

    /// Changes the score only if the entry keeps its place, which is usual for small changes.
    fn rescore_in_place(&mut self, old: f64, tie: T, new: f64) -> bool {
        let mut node = &mut self.root;
        loop {
            match node {
                Node::Empty => return false,
                Node::Inner(inner) => node = &mut inner.kids[inner.kid_of(old, tie.bytes())],
                Node::Leaf(leaf) => {
                    let Some(at) = leaf.find(old, tie).filter(|&at| leaf.may_rescore(at, new)) else {
                        return false;
                    };
                    leaf.scores[at] = new;
                    return true;
                }
            }
        }
    }

    /// Removes the entries of these ranks, and calls `removed` with each, in order. The range is clipped to the
    /// existing ranks.
    ///
    /// Takes O(log n) plus the time to visit the removed entries. Never reads the bytes of the removed handles, so
    /// `removed` may free them.
    pub fn remove_ranks(&mut self, ranks: Range<usize>, mut removed: impl FnMut(f64, T)) {
        let end = ranks.end.min(self.len);
        let start = ranks.start.min(end);
        self.root.remove_ranks(start..end, &mut removed);
        self.len -= end - start;
        if self.len == 0 {
            self.root = Node::Empty;
            return;
        }
        // Only nodes beside the gap can be short of items. Merging them may leave their parent short, or give a
        // neighbour to a short child that had none. The loop runs until there is nothing to do, at most one pass per
        // level.
        let last = self.len - 1;
        while self.root.mend(start.saturating_sub(1)) | self.root.mend(start.min(last)) {
            self.lower_root();
        }
        self.lower_root();
    }

    /// Replaces an inner root that has a single child by this child.
    fn lower_root(&mut self) {
        while let Node::Inner(inner) = &mut self.root {
            match inner.len() {
                0 => self.root = Node::Empty,
                1 => self.root = take(&mut inner.kids[0]),
                _ => return,
            }
        }
    }

    /// Returns the number of entries before a boundary.
    #[must_use]
    pub fn entries_before(&self, boundary: Boundary<'_>) -> usize {
        match boundary {
            Boundary::Start => return 0,
            Boundary::End => return self.len,
            _ => {}
        }
        let (mut node, mut before) = (&self.root, 0);
        loop {
            match node {
                Node::Empty => return before,
                Node::Leaf(leaf) => return before + boundary.entries_before(leaf),
                Node::Inner(inner) => {
                    let kid = boundary.entries_before(&inner.firsts).saturating_sub(1);
                    before += inner.counts[..kid].iter().sum::<usize>();
                    node = &inner.kids[kid];
                }
            }
        }
    }

    /// Returns the number of entries before the one with this score and handle, if it exists.
    #[must_use]
    pub fn rank(&self, score: f64, tie: T) -> Option<usize> {
        let bytes = tie.bytes();
        let (mut node, mut before) = (&self.root, 0);
        loop {
            match node {
                Node::Empty => return None,
                Node::Leaf(leaf) => return leaf.find(score, tie).map(|at| before + at),
                Node::Inner(inner) => {
                    let kid = inner.kid_of(score, bytes);
                    before += inner.counts[..kid].iter().sum::<usize>();
                    node = &inner.kids[kid];
                }
            }
        }
    }

    /// Returns the leaf that holds the entry of this rank, and the rank of the leaf's first entry.
    fn leaf_of_rank(&self, rank: usize) -> Option<(&Leaf<T>, usize)> {
        let (mut node, mut first) = (&self.root, 0);
        loop {
            match node {
                Node::Empty => return None,
                Node::Leaf(leaf) => return Some((leaf, first)),
                Node::Inner(inner) => {
                    let (kid, before) = inner.kid_of_rank(rank - first);
                    first += before;
                    node = &inner.kids[kid];
                }
            }
        }
    }

    /// Returns the entry of this rank, counted from 0 at the lowest.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<(f64, T)> {
        let (leaf, first) = self.leaf_of_rank(rank)?;
        leaf.get(rank - first)
    }

    /// Iterates over the entries of these ranks, from the lowest or, with `reverse`, from the highest. The range is
    /// clipped to the existing ranks.
    #[must_use]
    pub fn iter(&self, ranks: Range<usize>, reverse: bool) -> Iter<'_, T> {
        let end = ranks.end.min(self.len);
        Iter { tree: self, left: ranks.start.min(end)..end, reverse, leaf: None, first: 0 }
    }

    /// Passes the entries with scores from `min` up to, but not including, `max` to `visit`, in order, one leaf at a
    /// time, until it returns false. Returns false in that case.
    ///
    /// Descends once and without ranks, so it is cheaper than [`iter`](Self::iter) if the range is read once.
    pub fn visit_scores<'a>(&'a self, min: f64, max: f64, visit: &mut impl FnMut(&'a [f64], &'a [T]) -> bool) -> bool {
        self.root.visit_scores(min, max, visit)
    }

    /// Bytes of all nodes, without the allocator's overhead. Visits every inner node: one per two thousand entries.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.root.bytes()
    }
}

/// Iterates over a range of ranks. It looks up each leaf by rank, once per some dozens of entries, and stores no path.
pub struct Iter<'a, T> {
    tree: &'a Tree<T>,
    left: Range<usize>,
    reverse: bool,
    leaf: Option<&'a Leaf<T>>,
    /// The rank of the first entry of `leaf`.
    first: usize,
}

impl<T: MemberHandle> Iter<'_, T> {
    /// Moves to the leaf of `rank`, and prefetches the first entries to be read there.
    #[cold]
    fn enter_leaf(&mut self, rank: usize) {
        let Some((leaf, first)) = self.tree.leaf_of_rank(rank) else { return };
        (self.leaf, self.first) = (Some(leaf), first);
        let at = rank - first;
        let ahead = PREFETCH_ENTRIES.min(self.left.len() + 1);
        let ties = if self.reverse {
            &leaf.ties[(at + 1).saturating_sub(ahead)..=at]
        } else {
            &leaf.ties()[at..leaf.len().min(at + ahead)]
        };
        ties.iter().for_each(|tie| tie.prefetch());
    }
}

impl<T: MemberHandle> Iterator for Iter<'_, T> {
    type Item = (f64, T);

    fn next(&mut self) -> Option<(f64, T)> {
        let rank = if self.reverse { self.left.next_back() } else { self.left.next() }?;
        if self.leaf.is_none_or(|leaf| rank.wrapping_sub(self.first) >= leaf.len()) {
            self.enter_leaf(rank);
        }
        let (leaf, at) = (self.leaf?, rank - self.first);
        let ahead = if self.reverse { at.wrapping_sub(PREFETCH_ENTRIES) } else { at + PREFETCH_ENTRIES };
        if ahead < leaf.len() && self.left.len() >= PREFETCH_ENTRIES {
            leaf.ties[ahead].prefetch();
        }
        leaf.get(at)
    }

    /// Iterates leaf by leaf, which takes a third of the time of a call per entry.
    #[inline]
    fn fold<B, F: FnMut(B, (f64, T)) -> B>(mut self, init: B, mut visit: F) -> B {
        let mut result = init;
        while !self.left.is_empty() {
            let rank = if self.reverse { self.left.end - 1 } else { self.left.start };
            self.enter_leaf(rank);
            let Some(leaf) = self.leaf else { return result };
            let at = rank - self.first;
            let part = if self.reverse {
                (at + 1).saturating_sub(self.left.len())..at + 1
            } else {
                at..leaf.len().min(at + self.left.len())
            };
            let (scores, ties) = (&leaf.scores[part.clone()], &leaf.ties[part.clone()]);
            // One loop serves both directions: with two loops the compiler does not inline `visit`. An index below 0
            // wraps around, and ends the loop like one beyond the end.
            let (mut at, step) = if self.reverse {
                self.left.end -= part.len();
                (part.len().wrapping_sub(1), usize::MAX)
            } else {
                self.left.start += part.len();
                (0, 1)
            };
            let lead = step.wrapping_mul(PREFETCH_ENTRIES);
            while let (Some(&score), Some(&tie)) = (scores.get(at), ties.get(at)) {
                ties.get(at.wrapping_add(lead)).inspect(|ahead| ahead.prefetch());
                result = visit(result, (score, tie));
                at = at.wrapping_add(step);
            }
        }
        result
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<T: MemberHandle> ExactSizeIterator for Iter<'_, T> {}
