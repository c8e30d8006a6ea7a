//! Nodes: leaves and inner nodes, and changes that keep them ordered, counted, and neither too full nor too empty.

use std::mem::size_of;
use std::ops::Range;

use super::MemberHandle;
use super::entries::{NodeEntries, give_left, give_right, scores_below, slot_in};
use super::finger::Finger;
use super::hints::Sought;

/// Entries of a leaf, chosen to fill 1024 bytes with the allocator's header (16 bytes per entry, the length and
/// `skip`). Measured with 400,000 members (`examples/zset_speed.rs`): from 31 to 127 entries, inserts take the same
/// time within the noise. Ranges take a third longer with 31 entries. They take a sixth less with 127, but a newly
/// converted set fills only half of such a leaf.
pub(super) const LEAF_MAX: usize = 63;

const _: () = assert!(size_of::<Leaf<usize>>() <= 1024 - size_of::<usize>());

/// Children of an inner node: 40 bytes each, the length and `skip`, just below 2048 bytes. Half as many are a tenth
/// slower.
pub(super) const INNER_MAX: usize = 50;

/// Minimum number of items of a node; a node with fewer is merged with a neighbour or filled up from it. The minimum is
/// a quarter of the capacity and not a half, so that a set that alternately shrinks and grows does not alternately
/// merge and split.
pub(super) const fn items_min(items_max: usize) -> usize {
    items_max / 4
}

/// Maximum number of items of two neighbours that are merged. It is below the capacity, so that the next insertion does
/// not split the node again.
pub(super) const fn merged_max(items_max: usize) -> usize {
    items_max * 3 / 4
}

/// Number of items per node when a tree is built at once: leaves space for a few insertions, and wastes little.
pub(super) const fn build_fill(items_max: usize) -> usize {
    items_max * 7 / 8
}

// After neighbours share their items, neither is short of items again, which guarantees that `Tree::mend` ends.
const _: () = assert!(merged_max(LEAF_MAX) / 2 >= items_min(LEAF_MAX));
const _: () = assert!(merged_max(INNER_MAX) / 2 >= items_min(INNER_MAX));
const _: () = assert!(items_min(INNER_MAX) >= 2);

/// A leaf consists of its entries only.
pub(super) type Leaf<T> = NodeEntries<T, LEAF_MAX>;

/// Returns the index at which to split a full node of `len` items when one more is inserted at `at`: the middle, except
/// at the ends of the tree, where insertions in ascending or descending order would otherwise leave half-empty nodes
/// behind.
pub(super) fn cut(len: usize, at: usize, edge: Edge) -> usize {
    match at {
        0 if edge.first => 0,
        _ if at == len && edge.last => len,
        _ => len / 2,
    }
}

/// Tells if a node is the first or the last of its level.
#[derive(Clone, Copy)]
pub(super) struct Edge {
    pub(super) first: bool,
    pub(super) last: bool,
}

/// The state of an insertion's descent from the root.
pub(super) struct Descent<'a> {
    /// Records the path.
    finger: &'a mut Finger,
    /// The level; the root's is 0.
    level: usize,
    edge: Edge,
}

impl<'a> Descent<'a> {
    pub(super) fn new(finger: &'a mut Finger) -> Self {
        finger.start();
        Self { finger, level: 0, edge: Edge { first: true, last: true } }
    }
}

/// A node. `Empty` is a tree without entries, or an unused place of an inner node.
#[derive(Default)]
pub(super) enum Node<T> {
    #[default]
    Empty,
    Leaf(Box<Leaf<T>>),
    Inner(Box<Inner<T>>),
}

/// Children with their first entries and counts; `firsts.len` is their number.
pub(super) struct Inner<T> {
    pub(super) firsts: NodeEntries<T, INNER_MAX>,
    pub(super) counts: [usize; INNER_MAX],
    pub(super) kids: [Node<T>; INNER_MAX],
}

impl<T: MemberHandle> Node<T> {
    /// Returns true if it should be merged with a neighbour, or filled up from it.
    pub(super) fn is_short(&self) -> bool {
        match self {
            Self::Empty => false,
            Self::Leaf(leaf) => leaf.len() < items_min(LEAF_MAX),
            Self::Inner(inner) => inner.len() < items_min(INNER_MAX),
        }
    }

    /// See [`Tree::visit_scores`](super::Tree::visit_scores).
    pub(super) fn visit_scores<'a>(
        &'a self,
        min: f64,
        max: f64,
        visit: &mut impl FnMut(&'a [f64], &'a [T]) -> bool,
    ) -> bool {
        match self {
            Self::Empty => true,
            Self::Leaf(leaf) => {
                let part = scores_below(leaf.scores(), min)..scores_below(leaf.scores(), max);
                part.start >= part.end || visit(&leaf.scores()[part.clone()], &leaf.ties()[part])
            }
            Self::Inner(inner) => {
                // The last child with a first score below `min` may extend into the range.
                let start = scores_below(inner.firsts.scores(), min).saturating_sub(1);
                let end = scores_below(inner.firsts.scores(), max).max(start);
                inner.kids[start..end].iter().all(|kid| kid.visit_scores(min, max, visit))
            }
        }
    }

    /// Number of entries below.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Leaf(leaf) => leaf.len(),
            Self::Inner(inner) => inner.counts[..inner.len()].iter().sum(),
        }
    }

    pub(super) fn first(&self) -> Option<(f64, T)> {
        match self {
            Self::Empty => None,
            Self::Leaf(leaf) => leaf.get(0),
            Self::Inner(inner) => inner.firsts.get(0),
        }
    }

    /// Inserts an entry that does not exist. Returns a new right neighbour if the node was full, otherwise `Empty`.
    pub(super) fn insert(&mut self, score: f64, tie: T, descent: Descent<'_>) -> Node<T> {
        match self {
            Self::Empty => *self = leaf_of(&[(score, tie)]),
            Self::Inner(inner) => return inner.insert(score, tie, descent),
            Self::Leaf(leaf) => {
                let Descent { finger, level, edge } = descent;
                let at = leaf.position(score, tie.bytes());
                finger.arrive(level, at);
                if leaf.len() == LEAF_MAX {
                    return Self::Leaf(split_leaf(leaf, at, (score, tie), edge));
                }
                leaf.insert(at, score, tie);
            }
        }
        Self::Empty
    }

    /// Removes an entry. Returns true if it was present.
    pub(super) fn remove(&mut self, score: f64, tie: T) -> bool {
        match self {
            Self::Empty => false,
            Self::Inner(inner) => inner.remove(score, tie),
            Self::Leaf(leaf) => leaf.find(score, tie).map(|at| leaf.remove(at..at + 1)).is_some(),
        }
    }

    pub(super) fn remove_ranks(&mut self, ranks: Range<usize>, removed: &mut impl FnMut(f64, T)) {
        match self {
            Self::Empty => {}
            Self::Inner(inner) => inner.remove_ranks(ranks, removed),
            Self::Leaf(leaf) => {
                for at in ranks.clone() {
                    removed(leaf.scores[at], leaf.ties[at]);
                }
                leaf.remove(ranks);
            }
        }
    }

    /// Merges or fills up the short nodes on the path to `rank`, from the bottom. Returns true if there was one.
    pub(super) fn mend(&mut self, rank: usize) -> bool {
        let Self::Inner(inner) = self else { return false };
        let (kid, before) = inner.kid_of_rank(rank);
        let below = inner.kids[kid].mend(rank - before);
        inner.mend_kid(kid) || below
    }

    /// Bytes of this node and those below.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Leaf(_) => size_of::<Leaf<T>>(),
            Self::Inner(inner) => {
                let kids = &inner.kids[..inner.len()];
                let below = match kids.first() {
                    Some(Self::Leaf(_)) => kids.len() * size_of::<Leaf<T>>(),
                    _ => kids.iter().map(Self::bytes).sum(),
                };
                size_of::<Inner<T>>() + below
            }
        }
    }
}

/// Splits a full leaf and inserts an entry. Returns the right half.
#[cold]
pub(super) fn split_leaf<T: MemberHandle>(
    leaf: &mut Leaf<T>,
    at: usize,
    (score, tie): (f64, T),
    edge: Edge,
) -> Box<Leaf<T>> {
    let left_len = cut(leaf.len(), at, edge);
    let mut right = Box::new(Leaf::empty((score, tie)));
    leaf.give_right(&mut right, leaf.len() - left_len);
    if at > left_len || left_len == LEAF_MAX {
        right.insert(at - left_len, score, tie);
    } else {
        leaf.insert(at, score, tie);
    }
    right
}

impl<T: MemberHandle> Inner<T> {
    /// Returns a node without children. `filler` fills the unused places.
    pub(super) fn empty(filler: (f64, T)) -> Self {
        Self { firsts: NodeEntries::empty(filler), counts: [0; INNER_MAX], kids: [const { Node::Empty }; INNER_MAX] }
    }

    /// Returns a node of these children: at most [`INNER_MAX`], each not empty.
    pub(super) fn of(kids: impl IntoIterator<Item = Node<T>>) -> Node<T> {
        let mut kids = kids.into_iter().peekable();
        let Some(first) = kids.peek().and_then(Node::first) else { return Node::Empty };
        let mut inner = Box::new(Self::empty(first));
        for kid in kids {
            inner.put(inner.len(), kid);
        }
        Node::Inner(inner)
    }

    pub(super) fn len(&self) -> usize {
        self.firsts.len()
    }

    /// Inserts a child at `at`. The node must not be full.
    pub(super) fn put(&mut self, at: usize, kid: Node<T>) {
        let Some((score, tie)) = kid.first() else { return };
        let len = self.len();
        slot_in(&mut self.counts, len, at, kid.count());
        self.kids[at..=len].rotate_right(1);
        self.kids[at] = kid;
        self.firsts.insert(at, score, tie);
        self.firsts.mend_hints();
    }

    /// Drops children that have become empty.
    pub(super) fn drop_kids(&mut self, range: Range<usize>) {
        let len = self.len();
        self.kids[range.clone()].fill_with(Node::default);
        self.kids[range.start..len].rotate_left(range.len());
        self.counts.copy_within(range.end..len, range.start);
        self.firsts.remove(range);
    }

    /// Returns the index of the child that would hold this entry.
    #[inline]
    pub(super) fn kid_of(&self, score: f64, bytes: &[u8]) -> usize {
        self.firsts.before(score, Sought { bytes, past_equal: true }).saturating_sub(1)
    }

    /// Returns the index of the child that holds the entry of this rank, and the number of entries before that child.
    pub(super) fn kid_of_rank(&self, rank: usize) -> (usize, usize) {
        let mut before = 0;
        for (kid, count) in self.counts[..self.len()].iter().enumerate() {
            if rank - before < *count {
                return (kid, before);
            }
            before += count;
        }
        let last = self.len().saturating_sub(1);
        (last, before - self.counts[last])
    }

    pub(super) fn insert(&mut self, score: f64, tie: T, descent: Descent<'_>) -> Node<T> {
        let Descent { finger, level, edge } = descent;
        let at = self.kid_of(score, tie.bytes());
        finger.enter(level, at);
        let edge = Edge { first: edge.first && at == 0, last: edge.last && at + 1 == self.len() };
        let new = self.kids[at].insert(score, tie, Descent { finger, level: level + 1, edge });
        if matches!(new, Node::Empty) {
            self.counts[at] += 1;
            if at == 0 {
                self.refresh_first(0);
            }
            return Node::Empty;
        }
        self.counts[at] = self.kids[at].count();
        self.refresh_first(at);
        self.insert_kid(at + 1, new, edge)
    }

    /// Updates the stored first entry of a child.
    pub(super) fn refresh_first(&mut self, at: usize) {
        if let Some(first) = self.kids[at].first() {
            self.firsts.set(at, first);
        }
    }

    /// Inserts a child that was split off. Returns a new right neighbour if the node was full, otherwise `Empty`.
    #[cold]
    pub(super) fn insert_kid(&mut self, at: usize, kid: Node<T>, edge: Edge) -> Node<T> {
        if self.len() < INNER_MAX {
            self.put(at, kid);
            return Node::Empty;
        }
        let Some(first) = kid.first() else { return Node::Empty };
        let left_len = cut(INNER_MAX, at, edge);
        let mut right = Box::new(Self::empty(first));
        self.give_right(&mut right, INNER_MAX - left_len);
        if at > left_len || left_len == INNER_MAX {
            right.put(at - left_len, kid);
        } else {
            self.put(at, kid);
        }
        Node::Inner(right)
    }

    pub(super) fn remove(&mut self, score: f64, tie: T) -> bool {
        let at = self.kid_of(score, tie.bytes());
        if !self.kids[at].remove(score, tie) {
            return false;
        }
        self.counts[at] -= 1;
        if self.counts[at] == 0 {
            self.drop_kids(at..at + 1);
            return true;
        }
        self.refresh_first(at);
        self.mend_kid(at);
        true
    }

    /// Removes a range of ranks. Afterwards children may be short of items, and this node may have no child.
    pub(super) fn remove_ranks(&mut self, ranks: Range<usize>, removed: &mut impl FnMut(f64, T)) {
        let (mut before, mut emptied) = (0, 0..0);
        for at in 0..self.len() {
            let count = self.counts[at];
            let start = ranks.start.saturating_sub(before).min(count);
            let end = ranks.end.saturating_sub(before).min(count);
            before += count;
            if start == end {
                continue;
            }
            self.kids[at].remove_ranks(start..end, removed);
            self.counts[at] -= end - start;
            self.refresh_first(at);
            if self.counts[at] == 0 {
                emptied = if emptied.is_empty() { at..at + 1 } else { emptied.start..at + 1 };
            }
        }
        self.drop_kids(emptied);
    }

    pub(super) fn give_right(&mut self, right: &mut Self, n: usize) {
        give_right(&mut self.counts, self.firsts.len(), &mut right.counts, right.firsts.len(), n);
        give_right(&mut self.kids, self.firsts.len(), &mut right.kids, right.firsts.len(), n);
        self.firsts.give_right(&mut right.firsts, n);
    }

    pub(super) fn give_left(&mut self, right: &mut Self, n: usize) {
        give_left(&mut self.counts, self.firsts.len(), &mut right.counts, right.firsts.len(), n);
        give_left(&mut self.kids, self.firsts.len(), &mut right.kids, right.firsts.len(), n);
        self.firsts.give_left(&mut right.firsts, n);
    }

    /// Mends a short child that has a neighbour: merges them, or shares their items. Returns true if it did.
    pub(super) fn mend_kid(&mut self, at: usize) -> bool {
        if !self.kids[at].is_short() || self.len() < 2 {
            return false;
        }
        let left = at.saturating_sub(1);
        if let [a, b] = &mut self.kids[left..left + 2] {
            share(a, b);
        }
        for kid in [left, left + 1] {
            self.counts[kid] = self.kids[kid].count();
            self.refresh_first(kid);
        }
        if self.counts[left + 1] == 0 {
            self.drop_kids(left + 1..left + 2);
        }
        true
    }
}

/// Redistributes the items of two neighbours: all into `left` if they fit well, otherwise half to each.
pub(super) fn share<T: MemberHandle>(left: &mut Node<T>, right: &mut Node<T>) {
    /// Returns the number of items to move to the left, and to the right; one of them is 0.
    pub(super) fn moves(left: usize, right: usize, items_max: usize) -> (usize, usize) {
        let half = (left + right) / 2;
        if left + right <= merged_max(items_max) {
            (right, 0)
        } else {
            (half.saturating_sub(left), left.saturating_sub(half))
        }
    }
    match (left, right) {
        (Node::Leaf(left), Node::Leaf(right)) => {
            let (to_left, to_right) = moves(left.len(), right.len(), LEAF_MAX);
            left.give_left(right, to_left);
            left.give_right(right, to_right);
        }
        (Node::Inner(left), Node::Inner(right)) => {
            let (to_left, to_right) = moves(left.len(), right.len(), INNER_MAX);
            left.give_left(right, to_left);
            left.give_right(right, to_right);
        }
        _ => debug_assert!(false, "neighbours have the same level"),
    }
}

/// Cuts `len` items into the smallest number of nearly equal ranges of at most `fill`.
pub(super) fn spread(len: usize, fill: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = len.div_ceil(fill);
    let bound = move |part: usize| (len / parts) * part + part.min(len % parts);
    (0..parts).map(move |part| bound(part)..bound(part + 1))
}

/// Returns a leaf of at least one and at most [`LEAF_MAX`] entries.
pub(super) fn leaf_of<T: MemberHandle>(entries: &[(f64, T)]) -> Node<T> {
    Leaf::of(entries).map_or(Node::Empty, |leaf| Node::Leaf(Box::new(leaf)))
}
