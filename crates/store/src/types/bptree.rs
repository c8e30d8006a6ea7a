//! A counted B+tree: the order of a large sorted set.
//!
//! Entries are ordered by score, then by their bytes. Every inner node knows how many entries each of its children
//! holds, so that the rank of an entry and the entry of a rank are found in O(log n), and a range by score, by bytes or
//! by rank is always a range of ranks. Scores lie together in each node: most comparisons never follow a pointer.
//!
//! The tree doesn't own what it orders. It holds copies of small handles ([`Tie`]), and compares their bytes only where
//! scores are equal, two or three in a node, which the handles' hints choose. It knows nothing of how those are stored,
//! of clients or of commands.
//!
//! ```text
//! inner   first scores | first handles | counts | children     entry i of each describes child i
//! leaf    scores | handles                                     ascending
//! ```
//!
//! "First" is exact: it is the smallest entry below that child, never a leftover of one that was removed. So the handle
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

/// What lies beside a score: a handle, cheap to copy, that leads to the bytes which order entries of equal score. Two
/// are equal if they are handles of the same entry, whatever their hints.
pub trait Tie: Copy + PartialEq {
    /// The bytes, unique among the entries of one tree, and unchanged while the handle is in it.
    fn bytes(&self) -> &[u8];

    /// Asks the processor to load what [`bytes`](Tie::bytes) will read. Does nothing unless it pays.
    #[inline]
    fn prefetch(self) {}

    /// The hint that it was given last. A handle without room for one says 0.
    #[inline]
    fn hint(self) -> u16 {
        0
    }

    /// The same handle with another hint. The tree alone knows what that means, and trusts it in nothing but where to
    /// look first.
    #[inline]
    #[must_use]
    fn with_hint(self, _hint: u16) -> Self {
        self
    }
}

/// How many entries ahead an iterator asks for: about as many cache lines as a core has under way at a time.
const PREFETCH_ENTRIES: usize = 12;

/// A boundary between entries.
#[derive(Clone, Copy, Debug)]
pub enum Boundary<'a> {
    /// Before all entries.
    Start,
    /// After all entries.
    End,
    /// Before the first entry of this score or a higher one.
    BeforeScore(f64),
    /// After the last entry of this score or a lower one.
    AfterScore(f64),
    /// Before the first entry with these bytes or higher ones, where all scores are equal.
    BeforeBytes(&'a [u8]),
    /// After the last entry with these bytes or lower ones, where all scores are equal.
    AfterBytes(&'a [u8]),
}

impl Boundary<'_> {
    /// Whether an entry lies before this boundary.
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

    /// How many of the ascending entries lie before this boundary.
    fn entries_before<T: Tie, const N: usize>(&self, entries: &NodeEntries<T, N>) -> usize {
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
    /// Where the last insertion went.
    finger: Finger,
}

impl<T: Tie> Default for Tree<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Tie> Tree<T> {
    /// An empty tree.
    #[must_use]
    pub fn new() -> Self {
        Self { root: Node::Empty, len: 0, finger: Finger::default() }
    }

    /// A tree of these entries, which must be ascending and unique.
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

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Inserts an entry that isn't there yet; `score` is not NaN.
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

    /// Removes the entry with this score and this handle. Whether it was there.
    pub fn remove(&mut self, score: f64, tie: T) -> bool {
        let found = self.root.remove(score, tie);
        self.len -= usize::from(found);
        self.lower_root();
        found
    }

    /// Gives an entry that is there another score.
    pub fn rescore(&mut self, old: f64, tie: T, new: f64) {
        if !self.rescore_in_place(old, tie, new) && self.remove(old, tie) {
            self.insert(new, tie);
        }
    }

    /// Does it only if the entry keeps its place, as most do whose score changes by a little.
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

    /// Removes the entries of these ranks, and calls `removed` with each, in order. The range is cut to what is there.
    ///
    /// Takes O(log n) and the time to visit what is removed. Asks none of the removed handles for its bytes; so
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
        // Only nodes beside the gap can be short. Merging them may leave their parent short, or give a short child
        // that had no neighbour one: hence until there is nothing to do, which takes a pass per level at most.
        let last = self.len - 1;
        while self.root.mend(start.saturating_sub(1)) | self.root.mend(start.min(last)) {
            self.lower_root();
        }
        self.lower_root();
    }

    /// An inner root with a single child gives way to it.
    fn lower_root(&mut self) {
        while let Node::Inner(inner) = &mut self.root {
            match inner.len() {
                0 => self.root = Node::Empty,
                1 => self.root = take(&mut inner.kids[0]),
                _ => return,
            }
        }
    }

    /// How many entries lie before a boundary.
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

    /// How many entries lie before the one with this score and this handle, if that is there.
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

    /// The leaf that holds the entry of this rank, and the rank of its first entry.
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

    /// The entry of this rank, counted from 0 at the lowest.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<(f64, T)> {
        let (leaf, first) = self.leaf_of_rank(rank)?;
        leaf.get(rank - first)
    }

    /// The entries of these ranks, from the lowest or, if `reverse`, from the highest. The range is cut to what is
    /// there.
    #[must_use]
    pub fn iter(&self, ranks: Range<usize>, reverse: bool) -> Iter<'_, T> {
        let end = ranks.end.min(self.len);
        Iter { tree: self, left: ranks.start.min(end)..end, reverse, leaf: None, first: 0 }
    }

    /// Shows the entries whose scores are at least `min` and below `max`, in order, a leaf's at a time, until `visit` is
    /// false. False if it was.
    ///
    /// One way down, without ranks: cheaper than [`iter`](Self::iter) where a range is looked at once.
    pub fn visit_scores<'a>(&'a self, min: f64, max: f64, visit: &mut impl FnMut(&'a [f64], &'a [T]) -> bool) -> bool {
        self.root.visit_scores(min, max, visit)
    }

    /// Bytes of all nodes, without the allocator's overhead. Visits every inner node: one per two thousand entries.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.root.bytes()
    }
}

/// Iterates over a range of ranks. It looks each leaf up by rank: once per some dozens of entries, and without a path.
pub struct Iter<'a, T> {
    tree: &'a Tree<T>,
    left: Range<usize>,
    reverse: bool,
    leaf: Option<&'a Leaf<T>>,
    /// The rank of the first entry of `leaf`.
    first: usize,
}

impl<T: Tie> Iter<'_, T> {
    /// Goes to the leaf of `rank`, and asks for the first entries that will be read there.
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

impl<T: Tie> Iterator for Iter<'_, T> {
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

    /// Leaf by leaf, which takes a third of the time that asking for each entry does.
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
            // One loop for both directions: with two, the compiler calls `visit` for each entry instead of making it part of them.
            // An index below 0 wraps around, and ends the loop as one beyond the end does.
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

impl<T: Tie> ExactSizeIterator for Iter<'_, T> {}
