//! A counted B+tree: the order of a large sorted set.
//!
//! Entries are ordered by score, then by their bytes. Every inner node knows how many entries each of its children
//! holds, so that the rank of an entry and the entry of a rank are found in O(log n), and a range by score, by bytes or
//! by rank is always a range of ranks. Scores lie together in each node: most comparisons never follow a pointer.
//!
//! The tree doesn't own what it orders. It holds copies of small handles ([`Tie`]), and compares their bytes only where
//! scores are equal. It knows nothing of how those are stored, of clients or of commands.
//!
//! ```text
//! inner   first scores | first handles | counts | children     entry i of each describes child i
//! leaf    scores | handles                                     ascending
//! ```
//!
//! "First" is exact: it is the smallest entry below that child, never a leftover of one that was removed. So a handle
//! whose entry has been removed is never compared again.

use std::cmp::Ordering;
use std::mem::{size_of, take};
use std::ops::Range;

/// What lies beside a score: a handle, cheap to copy, that leads to the bytes which order entries of equal score.
pub trait Tie: Copy {
    /// The bytes, unique among the entries of one tree, and unchanged while the handle is in it.
    fn bytes(&self) -> &[u8];

    /// Asks the processor to load what [`bytes`](Tie::bytes) will read. Does nothing unless it pays.
    #[inline]
    fn prefetch(self) {}
}

/// Entries of a leaf, so that it fills 1024 bytes with the allocator's header (16 bytes each and the length).
/// Measured with a million random inserts: 31 and 127 are slower, by a tenth and by a quarter.
const LEAF_MAX: usize = 63;

/// Children of an inner node: 40 bytes each and the length, just below 2048 bytes.
const INNER_MAX: usize = 50;

/// A node with fewer items than this fraction of its capacity is merged or filled up from a neighbour. A quarter, not
/// a half, so that a set that shrinks and grows by turns doesn't merge and split by turns.
const fn items_min(items_max: usize) -> usize {
    items_max / 4
}

/// Two neighbours with no more than this many items between them become one. Below the capacity, so that the next
/// insert doesn't split it again.
const fn merged_max(items_max: usize) -> usize {
    items_max * 3 / 4
}

/// How full a node is made when a tree is built at once: room for a few inserts, little waste.
const fn build_fill(items_max: usize) -> usize {
    items_max * 7 / 8
}

/// How many entries ahead an iterator asks for: about as many cache lines as a core has under way at a time.
const PREFETCH_ENTRIES: usize = 12;

// After neighbours share their items, neither is short of items again: this is what ends `Tree::mend`.
const _: () = assert!(merged_max(LEAF_MAX) / 2 >= items_min(LEAF_MAX));
const _: () = assert!(merged_max(INNER_MAX) / 2 >= items_min(INNER_MAX));
const _: () = assert!(items_min(INNER_MAX) >= 2);

/// A place between entries: before or after everything that equals it.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// Before the first entry of this score or a higher one.
    BeforeScore(f64),
    /// After the last entry of this score or a lower one.
    AfterScore(f64),
    /// Before the entry of this score and these bytes.
    BeforeEntry(f64, &'a [u8]),
    /// Before the first entry with these bytes or higher ones, in a tree whose scores are all equal.
    BeforeBytes(&'a [u8]),
    /// After the last entry with these bytes or lower ones, in a tree whose scores are all equal.
    AfterBytes(&'a [u8]),
}

impl Place<'_> {
    /// How many of the ascending entries lie before this place.
    fn entries_before<T: Tie>(&self, scores: &[f64], ties: &[T]) -> usize {
        match *self {
            Self::BeforeScore(score) => scores_below(scores, score),
            Self::AfterScore(score) => scores_up_to(scores, score),
            Self::BeforeEntry(score, bytes) => search(scores, ties, score, |tie| tie < bytes),
            Self::BeforeBytes(bytes) => ties.partition_point(|tie| tie.bytes() < bytes),
            Self::AfterBytes(bytes) => ties.partition_point(|tie| tie.bytes() <= bytes),
        }
    }
}

/// How many scores are less than `score`. Counts instead of searching: the lines of a cold node are then loaded side by
/// side rather than one after another, and no branch is mispredicted.
#[inline]
fn scores_below(scores: &[f64], score: f64) -> usize {
    scores.iter().filter(|&&at| at < score).count()
}

/// How many scores are less than `score` or equal to it.
#[inline]
fn scores_up_to(scores: &[f64], score: f64) -> usize {
    scores.iter().filter(|&&at| at <= score).count()
}

/// How many entries have a lower score, or the same and bytes for which `tie_before` holds.
#[inline]
fn search<T: Tie>(scores: &[f64], ties: &[T], score: f64, tie_before: impl Fn(&[u8]) -> bool) -> usize {
    let below = scores_below(scores, score);
    if scores.get(below) != Some(&score) {
        return below;
    }
    let equal = scores_up_to(&scores[below..], score);
    below + ties[below..below + equal].partition_point(|tie| tie_before(tie.bytes()))
}

/// Orders by score, then by bytes: the order of a sorted set. NaN doesn't occur.
fn compare(a_score: f64, a: &[u8], b_score: f64, b: &[u8]) -> Ordering {
    a_score.partial_cmp(&b_score).unwrap_or(Ordering::Equal).then_with(|| a.cmp(b))
}

/// Inserts into the first `len` items of `items`, which has room behind them.
#[inline]
fn slot_in<T: Copy>(items: &mut [T], len: usize, at: usize, item: T) {
    items.copy_within(at..len, at + 1);
    items[at] = item;
}

/// Moves the last `n` of the `left_len` items of `left` to the front of `right`.
fn give_right<T>(left: &mut [T], left_len: usize, right: &mut [T], right_len: usize, n: usize) {
    right[..right_len + n].rotate_right(n);
    left[left_len - n..left_len].swap_with_slice(&mut right[..n]);
}

/// Moves the first `n` of the `right_len` items of `right` to the end of `left`.
fn give_left<T>(left: &mut [T], left_len: usize, right: &mut [T], right_len: usize, n: usize) {
    left[left_len..left_len + n].swap_with_slice(&mut right[..n]);
    right[..right_len].rotate_left(n);
}

/// Scores and handles side by side, ascending. Past `len` lie leftovers that nothing reads.
struct Entries<T, const N: usize> {
    len: usize,
    scores: [f64; N],
    ties: [T; N],
}

type Leaf<T> = Entries<T, LEAF_MAX>;

impl<T: Tie, const N: usize> Entries<T, N> {
    /// One entry; the others' room holds copies of it, which saves marking it as unused.
    fn one(score: f64, tie: T) -> Self {
        Self { len: 1, scores: [score; N], ties: [tie; N] }
    }

    fn scores(&self) -> &[f64] {
        &self.scores[..self.len]
    }

    fn ties(&self) -> &[T] {
        &self.ties[..self.len]
    }

    #[inline]
    fn get(&self, at: usize) -> Option<(f64, T)> {
        (at < self.len).then(|| (self.scores[at], self.ties[at]))
    }

    fn set(&mut self, at: usize, (score, tie): (f64, T)) {
        self.scores[at] = score;
        self.ties[at] = tie;
    }

    /// Inserts at `at`. There must be room.
    #[inline]
    fn insert(&mut self, at: usize, score: f64, tie: T) {
        slot_in(&mut self.scores, self.len, at, score);
        slot_in(&mut self.ties, self.len, at, tie);
        self.len += 1;
    }

    fn remove(&mut self, range: Range<usize>) {
        self.scores.copy_within(range.end..self.len, range.start);
        self.ties.copy_within(range.end..self.len, range.start);
        self.len -= range.len();
    }

    fn give_right(&mut self, right: &mut Self, n: usize) {
        give_right(&mut self.scores, self.len, &mut right.scores, right.len, n);
        give_right(&mut self.ties, self.len, &mut right.ties, right.len, n);
        self.len -= n;
        right.len += n;
    }

    fn give_left(&mut self, right: &mut Self, n: usize) {
        give_left(&mut self.scores, self.len, &mut right.scores, right.len, n);
        give_left(&mut self.ties, self.len, &mut right.ties, right.len, n);
        self.len += n;
        right.len -= n;
    }

    /// Where `score` and `bytes` belong.
    #[inline]
    fn position(&self, score: f64, bytes: &[u8]) -> usize {
        search(self.scores(), self.ties(), score, |tie| tie < bytes)
    }

    /// Where exactly that entry lies, if it does.
    fn find(&self, score: f64, bytes: &[u8]) -> Option<usize> {
        let at = self.position(score, bytes);
        self.get(at).filter(|(other, tie)| *other == score && tie.bytes() == bytes).map(|_| at)
    }

    /// Whether entry `at` may take the score `score` without changing its place among its neighbours here. Never true
    /// for the first and the last: those have neighbours elsewhere.
    fn may_rescore(&self, at: usize, score: f64) -> bool {
        let (Some(before), Some((here, after))) = (at.checked_sub(1), self.get(at).zip(self.get(at + 1))) else {
            return false;
        };
        let (low, low_tie) = (self.scores[before], self.ties[before]);
        compare(low, low_tie.bytes(), score, here.1.bytes()).is_lt()
            && compare(score, here.1.bytes(), after.0, after.1.bytes()).is_lt()
    }
}

/// Where to cut a full node of `len` items into which one more goes at `at`. In the middle, except at the very ends of
/// the tree: whoever adds in ascending or descending order would otherwise leave half-empty nodes behind.
fn cut(len: usize, at: usize, edge: Edge) -> usize {
    match at {
        0 if edge.first => 0,
        _ if at == len && edge.last => len,
        _ => len / 2,
    }
}

/// Whether a node is the first, or the last, of its level.
#[derive(Clone, Copy)]
struct Edge {
    first: bool,
    last: bool,
}

/// A leaf when `Leaf`, and so on; `Empty` is the tree without entries, and the unused room of an inner node.
#[derive(Default)]
enum Node<T> {
    #[default]
    Empty,
    Leaf(Box<Leaf<T>>),
    Inner(Box<Inner<T>>),
}

/// Children with what is known of each; `firsts.len` is their number.
struct Inner<T> {
    firsts: Entries<T, INNER_MAX>,
    counts: [usize; INNER_MAX],
    kids: [Node<T>; INNER_MAX],
}

impl<T: Tie> Node<T> {
    /// The number of entries or children directly in this node.
    fn items(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Leaf(leaf) => leaf.len,
            Self::Inner(inner) => inner.len(),
        }
    }

    fn is_short(&self) -> bool {
        match self {
            Self::Empty => false,
            Self::Leaf(leaf) => leaf.len < items_min(LEAF_MAX),
            Self::Inner(inner) => inner.len() < items_min(INNER_MAX),
        }
    }

    /// The number of entries below.
    fn count(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Leaf(leaf) => leaf.len,
            Self::Inner(inner) => inner.counts[..inner.len()].iter().sum(),
        }
    }

    fn first(&self) -> Option<(f64, T)> {
        match self {
            Self::Empty => None,
            Self::Leaf(leaf) => leaf.get(0),
            Self::Inner(inner) => inner.firsts.get(0),
        }
    }

    /// Inserts an entry that isn't there. What comes back is a new right neighbour, if the node had no room.
    fn insert(&mut self, score: f64, tie: T, edge: Edge) -> Node<T> {
        match self {
            Self::Empty => *self = Self::Leaf(Box::new(Leaf::one(score, tie))),
            Self::Inner(inner) => return inner.insert(score, tie, edge),
            Self::Leaf(leaf) => {
                let at = leaf.position(score, tie.bytes());
                if leaf.len == LEAF_MAX {
                    return Self::Leaf(split_leaf(leaf, at, (score, tie), edge));
                }
                leaf.insert(at, score, tie);
            }
        }
        Self::Empty
    }

    /// Removes an entry: whether it was there.
    fn remove(&mut self, score: f64, bytes: &[u8]) -> bool {
        match self {
            Self::Empty => false,
            Self::Inner(inner) => inner.remove(score, bytes),
            Self::Leaf(leaf) => leaf.find(score, bytes).map(|at| leaf.remove(at..at + 1)).is_some(),
        }
    }

    fn remove_ranks(&mut self, ranks: Range<usize>, removed: &mut impl FnMut(f64, T)) {
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

    /// Merges or fills up the short nodes on the way to `rank`, from below. Whether there was one.
    fn mend(&mut self, rank: usize) -> bool {
        let Self::Inner(inner) = self else { return false };
        let (kid, before) = inner.kid_of_rank(rank);
        let below = inner.kids[kid].mend(rank - before);
        inner.mend_kid(kid) || below
    }

    /// Bytes of this node and those below.
    fn bytes(&self) -> usize {
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

/// Cuts a full leaf in two and inserts; the right half comes back.
#[cold]
fn split_leaf<T: Tie>(leaf: &mut Leaf<T>, at: usize, (score, tie): (f64, T), edge: Edge) -> Box<Leaf<T>> {
    let left_len = cut(leaf.len, at, edge);
    let mut right = Box::new(Leaf::one(score, tie));
    right.len = 0;
    leaf.give_right(&mut right, leaf.len - left_len);
    if at > left_len || left_len == LEAF_MAX {
        right.insert(at - left_len, score, tie);
    } else {
        leaf.insert(at, score, tie);
    }
    right
}

impl<T: Tie> Inner<T> {
    /// A node without children. `filler` goes into the unused room.
    fn empty((score, tie): (f64, T)) -> Self {
        let mut firsts = Entries::one(score, tie);
        firsts.len = 0;
        Self { firsts, counts: [0; INNER_MAX], kids: [const { Node::Empty }; INNER_MAX] }
    }

    /// A node of these children: none of them empty, and at most [`INNER_MAX`].
    fn of(kids: impl IntoIterator<Item = Node<T>>) -> Node<T> {
        let mut kids = kids.into_iter().peekable();
        let Some(first) = kids.peek().and_then(Node::first) else { return Node::Empty };
        let mut inner = Box::new(Self::empty(first));
        for kid in kids {
            inner.put(inner.len(), kid);
        }
        Node::Inner(inner)
    }

    fn len(&self) -> usize {
        self.firsts.len
    }

    /// Inserts a child at `at`. There must be room.
    fn put(&mut self, at: usize, kid: Node<T>) {
        let Some((score, tie)) = kid.first() else { return };
        let len = self.len();
        slot_in(&mut self.counts, len, at, kid.count());
        self.kids[at..=len].rotate_right(1);
        self.kids[at] = kid;
        self.firsts.insert(at, score, tie);
    }

    /// Drops children that have become empty.
    fn drop_kids(&mut self, range: Range<usize>) {
        let len = self.len();
        self.kids[range.clone()].fill_with(Node::default);
        self.kids[range.start..len].rotate_left(range.len());
        self.counts.copy_within(range.end..len, range.start);
        self.firsts.remove(range);
    }

    /// The child that would hold this entry.
    #[inline]
    fn kid_of(&self, score: f64, bytes: &[u8]) -> usize {
        search(self.firsts.scores(), self.firsts.ties(), score, |tie| tie <= bytes).saturating_sub(1)
    }

    /// The child that holds the entry of this rank, and how many entries lie before that child.
    fn kid_of_rank(&self, rank: usize) -> (usize, usize) {
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

    fn insert(&mut self, score: f64, tie: T, edge: Edge) -> Node<T> {
        let at = self.kid_of(score, tie.bytes());
        let edge = Edge { first: edge.first && at == 0, last: edge.last && at + 1 == self.len() };
        let new = self.kids[at].insert(score, tie, edge);
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

    /// Sets what is known of a child's first entry.
    fn refresh_first(&mut self, at: usize) {
        if let Some(first) = self.kids[at].first() {
            self.firsts.set(at, first);
        }
    }

    /// Inserts a child that came of a split. What comes back is a new right neighbour, if there was no room.
    #[cold]
    fn insert_kid(&mut self, at: usize, kid: Node<T>, edge: Edge) -> Node<T> {
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

    fn remove(&mut self, score: f64, bytes: &[u8]) -> bool {
        let at = self.kid_of(score, bytes);
        if !self.kids[at].remove(score, bytes) {
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

    /// Children may be short afterwards, and this node may have none left.
    fn remove_ranks(&mut self, ranks: Range<usize>, removed: &mut impl FnMut(f64, T)) {
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

    fn give_right(&mut self, right: &mut Self, n: usize) {
        give_right(&mut self.counts, self.firsts.len, &mut right.counts, right.firsts.len, n);
        give_right(&mut self.kids, self.firsts.len, &mut right.kids, right.firsts.len, n);
        self.firsts.give_right(&mut right.firsts, n);
    }

    fn give_left(&mut self, right: &mut Self, n: usize) {
        give_left(&mut self.counts, self.firsts.len, &mut right.counts, right.firsts.len, n);
        give_left(&mut self.kids, self.firsts.len, &mut right.kids, right.firsts.len, n);
        self.firsts.give_left(&mut right.firsts, n);
    }

    /// If that child is short and has a neighbour: merges them, or shares their items. Whether it did.
    fn mend_kid(&mut self, at: usize) -> bool {
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

/// What two neighbours hold: all into `left`, if it fits well, or half to each.
fn share<T: Tie>(left: &mut Node<T>, right: &mut Node<T>) {
    /// How many items go to the left, or else to the right.
    fn moves(left: usize, right: usize, items_max: usize) -> (usize, usize) {
        let half = (left + right) / 2;
        if left + right <= merged_max(items_max) {
            (right, 0)
        } else {
            (half.saturating_sub(left), left.saturating_sub(half))
        }
    }
    match (left, right) {
        (Node::Leaf(left), Node::Leaf(right)) => {
            let (to_left, to_right) = moves(left.len, right.len, LEAF_MAX);
            left.give_left(right, to_left);
            left.give_right(right, to_right);
        }
        (Node::Inner(left), Node::Inner(right)) => {
            let (to_left, to_right) = moves(left.len(), right.len(), INNER_MAX);
            left.give_left(right, to_left);
            left.give_right(right, to_right);
        }
        _ => debug_assert!(false, "neighbours are of one level"),
    }
}

/// Cuts `len` items into as few near-equal ranges of at most `fill` as there can be.
fn spread(len: usize, fill: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = len.div_ceil(fill);
    let bound = move |part: usize| (len / parts) * part + part.min(len % parts);
    (0..parts).map(move |part| bound(part)..bound(part + 1))
}

/// A counted B+tree of scores and handles. See the module's description.
pub struct Tree<T> {
    root: Node<T>,
    len: usize,
}

impl<T: Tie> Default for Tree<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Tie> Tree<T> {
    /// An empty tree.
    #[must_use]
    pub const fn new() -> Self {
        Self { root: Node::Empty, len: 0 }
    }

    /// A tree of these entries, which must be ascending and unique.
    #[must_use]
    pub fn from_sorted(entries: &[(f64, T)]) -> Self {
        debug_assert!(entries.is_sorted_by(|a, b| compare(a.0, a.1.bytes(), b.0, b.1.bytes()).is_lt()));
        let mut level: Vec<_> =
            spread(entries.len(), build_fill(LEAF_MAX)).map(|range| leaf_of(&entries[range])).collect();
        while level.len() > 1 {
            let mut kids = std::mem::take(&mut level).into_iter();
            level = spread(kids.len(), build_fill(INNER_MAX))
                .map(|range| Inner::of(kids.by_ref().take(range.len())))
                .collect();
        }
        Self { root: level.pop().unwrap_or_default(), len: entries.len() }
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
        let right = self.root.insert(score, tie, Edge { first: true, last: true });
        if !matches!(right, Node::Empty) {
            self.root = Inner::of([take(&mut self.root), right]);
        }
    }

    /// Removes the entry with this score and these bytes. Whether it was there.
    pub fn remove(&mut self, score: f64, bytes: &[u8]) -> bool {
        let found = self.root.remove(score, bytes);
        self.len -= usize::from(found);
        self.lower_root();
        found
    }

    /// Gives an entry that is there another score.
    pub fn rescore(&mut self, old: f64, tie: T, new: f64) {
        if !self.rescore_in_place(old, tie, new) && self.remove(old, tie.bytes()) {
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
                    let Some(at) = leaf.find(old, tie.bytes()).filter(|&at| leaf.may_rescore(at, new)) else {
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
    /// Takes O(log n) and the time to visit what is removed. `removed` must not panic.
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

    /// How many entries lie before a place. With the place of an entry that is there, that is its rank.
    #[must_use]
    pub fn entries_before(&self, place: Place<'_>) -> usize {
        let (mut node, mut before) = (&self.root, 0);
        loop {
            match node {
                Node::Empty => return before,
                Node::Leaf(leaf) => return before + place.entries_before(leaf.scores(), leaf.ties()),
                Node::Inner(inner) => {
                    let kid = place.entries_before(inner.firsts.scores(), inner.firsts.ties()).saturating_sub(1);
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

    /// The entries of these ranks, from the lowest or, if `reverse`, from the highest. The range is cut to what is there.
    #[must_use]
    pub fn iter(&self, ranks: Range<usize>, reverse: bool) -> Iter<'_, T> {
        let end = ranks.end.min(self.len);
        Iter { tree: self, left: ranks.start.min(end)..end, reverse, leaf: None, first: 0 }
    }

    /// Bytes of all nodes, without the allocator's overhead. Visits every inner node: one per two thousand entries.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.root.bytes()
    }
}

/// A leaf of some entries, at least one and at most [`LEAF_MAX`].
fn leaf_of<T: Tie>(entries: &[(f64, T)]) -> Node<T> {
    let Some(&(score, tie)) = entries.first() else { return Node::Empty };
    let mut leaf = Box::new(Leaf::one(score, tie));
    leaf.len = entries.len();
    for (at, &entry) in entries.iter().enumerate() {
        leaf.set(at, entry);
    }
    Node::Leaf(leaf)
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
            &leaf.ties()[at..leaf.len.min(at + ahead)]
        };
        ties.iter().for_each(|tie| tie.prefetch());
    }
}

impl<T: Tie> Iterator for Iter<'_, T> {
    type Item = (f64, T);

    fn next(&mut self) -> Option<(f64, T)> {
        let rank = if self.reverse { self.left.next_back() } else { self.left.next() }?;
        if self.leaf.is_none_or(|leaf| rank.wrapping_sub(self.first) >= leaf.len) {
            self.enter_leaf(rank);
        }
        let (leaf, at) = (self.leaf?, rank - self.first);
        let ahead = if self.reverse { at.wrapping_sub(PREFETCH_ENTRIES) } else { at + PREFETCH_ENTRIES };
        if ahead < leaf.len && self.left.len() >= PREFETCH_ENTRIES {
            leaf.ties[ahead].prefetch();
        }
        leaf.get(at)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<T: Tie> ExactSizeIterator for Iter<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries that can be written down: the bytes are the number, big-endian.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Name([u8; 4]);

    impl Tie for Name {
        fn bytes(&self) -> &[u8] {
            &self.0
        }
    }

    fn name(n: u32) -> Name {
        Name(n.to_be_bytes())
    }

    /// A small generator (xorshift64*), so that a failure replays.
    struct Rng(u64);

    impl Rng {
        fn below(&mut self, n: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
        }
    }

    /// What the tree must equal: the entries in a sorted vector.
    #[derive(Default)]
    struct Model(Vec<(f64, Name)>);

    impl Model {
        fn position(&self, score: f64, tie: Name) -> Result<usize, usize> {
            self.0.binary_search_by(|(s, t)| compare(*s, t.bytes(), score, tie.bytes()))
        }
    }

    /// Checks every invariant below `node`; the depth comes back.
    fn check_node(node: &Node<Name>, entries: &mut Vec<(f64, Name)>) -> usize {
        match node {
            Node::Empty => 0,
            Node::Leaf(leaf) => {
                assert!(leaf.len > 0 && leaf.len <= LEAF_MAX);
                entries.extend((0..leaf.len).filter_map(|at| leaf.get(at)));
                1
            }
            Node::Inner(inner) => {
                assert!(inner.len() > 0 && inner.len() <= INNER_MAX);
                let depths: Vec<_> = (0..inner.len())
                    .map(|at| {
                        let start = entries.len();
                        let depth = check_node(&inner.kids[at], entries);
                        assert_eq!(inner.counts[at], entries.len() - start);
                        assert_eq!(inner.firsts.get(at), Some(entries[start]));
                        depth
                    })
                    .collect();
                assert!(depths.iter().all(|depth| *depth == depths[0]), "leaves lie at one depth");
                assert!(inner.kids[inner.len()..].iter().all(|kid| matches!(kid, Node::Empty)));
                depths[0] + 1
            }
        }
    }

    fn check(tree: &Tree<Name>, model: &Model) {
        let mut entries = Vec::new();
        check_node(&tree.root, &mut entries);
        assert_eq!(entries, model.0);
        assert_eq!(tree.len(), model.0.len());
        assert!(!matches!(&tree.root, Node::Inner(inner) if inner.len() < 2), "a root has a choice");
    }

    /// All lookups, at a random place.
    fn check_lookups(tree: &Tree<Name>, model: &Model, rng: &mut Rng, names: usize, scores: usize) {
        let (score, tie) = (rng.below(scores) as f64, name(rng.below(names) as u32));
        let before = |f: &dyn Fn(f64, Name) -> bool| model.0.iter().filter(|(s, t)| f(*s, *t)).count();
        assert_eq!(tree.entries_before(Place::BeforeScore(score)), before(&|s, _| s < score));
        assert_eq!(tree.entries_before(Place::AfterScore(score)), before(&|s, _| s <= score));
        let place = Place::BeforeEntry(score, tie.bytes());
        assert_eq!(tree.entries_before(place), before(&|s, t| compare(s, t.bytes(), score, tie.bytes()).is_lt()));
        if scores == 1 {
            assert_eq!(tree.entries_before(Place::BeforeBytes(tie.bytes())), before(&|_, t| t.0 < tie.0));
            assert_eq!(tree.entries_before(Place::AfterBytes(tie.bytes())), before(&|_, t| t.0 <= tie.0));
        }
        let rank = rng.below(names);
        assert_eq!(tree.get(rank), model.0.get(rank).copied());
        let (start, end) = (rng.below(names), rng.below(names));
        let end_cut = end.min(model.0.len());
        let wanted = &model.0[start.min(end_cut)..end_cut];
        assert!(tree.iter(start..end, false).eq(wanted.iter().copied()));
        assert!(tree.iter(start..end, true).eq(wanted.iter().rev().copied()));
    }

    /// One random operation on both.
    fn step(tree: &mut Tree<Name>, model: &mut Model, rng: &mut Rng, names: usize, scores: usize, grow: bool) {
        let tie = name(rng.below(names) as u32);
        let old = model.0.iter().position(|(_, t)| *t == tie);
        let score = rng.below(scores) as f64;
        match (old, rng.below(if grow { 8 } else { 3 })) {
            (Some(at), 0) => {
                let (old, _) = model.0.remove(at);
                assert!(tree.remove(old, tie.bytes()));
                assert!(!tree.remove(old, tie.bytes()));
            }
            (Some(at), _) => {
                let (old, _) = model.0.remove(at);
                let near = scores > 1 && rng.below(2) == 0;
                let score = if near { old + 1.0 } else { score };
                tree.rescore(old, tie, score);
                let at = model.position(score, tie).unwrap_err();
                model.0.insert(at, (score, tie));
            }
            (None, 0) if rng.below(4) == 0 => {
                let start = rng.below(model.0.len() + 1);
                let end = (start + rng.below(model.0.len() / 2 + 1)).min(model.0.len());
                let mut removed = Vec::new();
                tree.remove_ranks(start..end, |score, tie| removed.push((score, tie)));
                assert!(model.0.drain(start..end).eq(removed));
            }
            (None, _) => {
                tree.insert(score, tie);
                let at = model.position(score, tie).unwrap_err();
                model.0.insert(at, (score, tie));
            }
        }
    }

    fn random_steps(seed: u64, steps: usize, names: usize, scores: usize) {
        let (mut tree, mut model, mut rng) = (Tree::new(), Model::default(), Rng(seed));
        for at in 0..steps {
            // The mix changes by turns, so that the tree grows high and becomes low again.
            step(&mut tree, &mut model, &mut rng, names, scores, (at / names) % 3 < 2);
            if at % 16 == 0 {
                check_lookups(&tree, &model, &mut rng, names, scores);
            }
            if at % 64 == 0 {
                check(&tree, &model);
            }
        }
        check(&tree, &model);
    }

    #[test]
    fn agrees_with_a_sorted_vector() {
        let steps = if cfg!(miri) { 300 } else { 30_000 };
        for (seed, names, scores) in [(1, 300, 1), (2, 300, 5), (3, 3000, 1000), (4, 8000, 1_000_000), (5, 8000, 1)] {
            random_steps(seed, steps, if cfg!(miri) { 200 } else { names }, scores);
        }
    }

    #[test]
    fn ends_of_the_tree_stay_full() {
        for step in [1.0, -1.0] {
            let mut tree = Tree::new();
            let len = if cfg!(miri) { 300 } else { 20_000 };
            for n in 0..len {
                tree.insert(f64::from(n) * step, name(n));
            }
            let mut entries = Vec::new();
            check_node(&tree.root, &mut entries);
            assert_eq!(entries.len(), len as usize);
            let leaves_bytes = (len as usize).div_ceil(LEAF_MAX) * size_of::<Leaf<Name>>();
            assert!(tree.memory_bytes() < leaves_bytes * 5 / 4, "{} {leaves_bytes}", tree.memory_bytes());
        }
    }

    #[test]
    fn built_at_once() {
        for len in [0, 1, 55, 56, 2750, 10_000] {
            let entries: Vec<_> = (0..len).map(|n| (f64::from(n / 10), name(n))).collect();
            let tree = Tree::from_sorted(&entries);
            check(&tree, &Model(entries));
        }
    }

    #[test]
    fn every_range_of_ranks_can_go() {
        let len = if cfg!(miri) { 130 } else { 9000 };
        let entries: Vec<_> = (0..len).map(|n| (f64::from(n), name(n))).collect();
        let mut rng = Rng(7);
        for _ in 0..if cfg!(miri) { 4 } else { 300 } {
            let (mut tree, mut model) = (Tree::from_sorted(&entries), Model(entries.clone()));
            while !tree.is_empty() {
                let (a, b) = (rng.below(tree.len() + 1), rng.below(tree.len() + 1));
                let mut count = 0;
                tree.remove_ranks(a.min(b)..a.max(b), |_, _| count += 1);
                assert_eq!(model.0.drain(a.min(b)..a.max(b)).count(), count);
                check(&tree, &model);
            }
        }
    }

    #[test]
    fn short_nodes_dont_pile_up() {
        let mut tree = Tree::from_sorted(&(0..50_000).map(|n| (f64::from(n), name(n))).collect::<Vec<_>>());
        let mut rng = Rng(9);
        while tree.len() > 1000 {
            let at = rng.below(tree.len());
            tree.remove_ranks(at..at + 7, |_, _| {});
        }
        let fullest = tree.len().div_ceil(items_min(LEAF_MAX)) * size_of::<Leaf<Name>>();
        assert!(tree.memory_bytes() < fullest * 3 / 2, "{} {fullest}", tree.memory_bytes());
    }

    #[test]
    fn infinities_and_zeros() {
        let mut tree = Tree::new();
        for (n, score) in [f64::INFINITY, -0.0, f64::NEG_INFINITY, 0.0, f64::MIN_POSITIVE].into_iter().enumerate() {
            tree.insert(score, name(n as u32));
        }
        let order: Vec<_> = tree.iter(0..5, false).map(|(_, tie)| tie).collect();
        assert_eq!(order, [2, 1, 3, 4, 0].map(name));
        assert_eq!(tree.entries_before(Place::BeforeScore(0.0)), 1);
        assert_eq!(tree.entries_before(Place::AfterScore(-0.0)), 3);
        assert!(tree.remove(0.0, name(1).bytes()), "either zero finds it");
    }
}
