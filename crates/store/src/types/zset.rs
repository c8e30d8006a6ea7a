//! Sorted sets: members, each with a score, ordered by score and then by their bytes.
//!
//! A set begins as one packed block, and becomes a hash table beside a counted B+tree when it outgrows its
//! [limits](ZSetLimits). Both forms answer alike. Every range, whether by rank, score or bytes, is first turned into a
//! range of ranks; so counting is as cheap as finding, and skipping members of a range costs nothing.
//!
//! This module knows no commands, no texts of scores and no replies. Scores are never NaN: callers check what they
//! compute.

mod big;
mod member;
mod score_map;
mod small;
#[cfg(test)]
mod tests;

use std::ops::Range;

use big::{IndexedZSet, Unordered};
pub use score_map::ScoreMap;
use small::PackedZSet;

use crate::compact::Mover;
use crate::hash::ItemHash;
use crate::prefetch::Ahead;
use crate::random::Random;
use crate::snapshot::{Budget, ElementSink, Step};
use crate::tight::TightBox;
use crate::types::bptree::Boundary;
use crate::types::packed::{Item, ItemText};

/// Up to which size a set stays packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZSetLimits {
    /// Members: the directive `zset-max-listpack-entries`.
    pub entries_max: usize,
    /// Bytes of a member: the directive `zset-max-listpack-value`.
    pub member_bytes_max: usize,
}

impl Default for ZSetLimits {
    /// As in Redis without a configuration.
    fn default() -> Self {
        Self { entries_max: 128, member_bytes_max: 64 }
    }
}

/// The members whose scores lie between two bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreRange {
    /// The lowest score, infinite for none.
    pub min: f64,
    /// The highest score, infinite for none.
    pub max: f64,
    /// Whether `min` itself is out.
    pub min_excluded: bool,
    /// Whether `max` itself is out.
    pub max_excluded: bool,
}

impl ScoreRange {
    fn boundaries(&self) -> [Boundary<'static>; 2] {
        [
            if self.min_excluded { Boundary::AfterScore(self.min) } else { Boundary::BeforeScore(self.min) },
            if self.max_excluded { Boundary::BeforeScore(self.max) } else { Boundary::AfterScore(self.max) },
        ]
    }
}

/// One end of a range of members by their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// Below every member: `-`.
    Lowest,
    /// Above every member: `+`.
    Highest,
    /// This member, and it is in the range: `[member`.
    Included(&'a [u8]),
    /// This member, and it is not in the range: `(member`.
    Excluded(&'a [u8]),
}

/// The members whose bytes lie between two bounds, in a set whose scores are all equal. In any other the result is some
/// range of its members, as in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LexRange<'a> {
    /// The lower end.
    pub min: LexBound<'a>,
    /// The upper end.
    pub max: LexBound<'a>,
}

impl<'a> LexRange<'a> {
    fn boundaries(&self) -> [Boundary<'a>; 2] {
        [
            match self.min {
                LexBound::Lowest => Boundary::Start,
                LexBound::Highest => Boundary::End,
                LexBound::Included(bytes) => Boundary::BeforeBytes(bytes),
                LexBound::Excluded(bytes) => Boundary::AfterBytes(bytes),
            },
            match self.max {
                LexBound::Lowest => Boundary::Start,
                LexBound::Highest => Boundary::End,
                LexBound::Included(bytes) => Boundary::AfterBytes(bytes),
                LexBound::Excluded(bytes) => Boundary::BeforeBytes(bytes),
            },
        ]
    }
}

/// Leaves out the first `offset` of these ranks, counted from the end if `reverse`, and keeps `count` of the others:
/// the LIMIT of range commands.
#[must_use]
pub fn limit_ranks(ranks: Range<usize>, reverse: bool, offset: usize, count: Option<usize>) -> Range<usize> {
    let offset = offset.min(ranks.len());
    let count = count.unwrap_or(usize::MAX).min(ranks.len() - offset);
    if reverse {
        let end = ranks.end - offset;
        end - count..end
    } else {
        let start = ranks.start + offset;
        start..start + count
    }
}

/// A sorted set. See the module's description.
#[derive(Clone)]
pub struct ZSet(Form);

#[derive(Clone)]
enum Form {
    Small(PackedZSet),
    Big(TightBox<IndexedZSet>),
}

/// Calls the same method of either form.
macro_rules! either {
    ($set:expr, $form:ident => $call:expr) => {
        match &$set.0 {
            Form::Small($form) => $call,
            Form::Big($form) => $call,
        }
    };
    (mut $set:expr, $form:ident => $call:expr) => {
        match &mut $set.0 {
            Form::Small($form) => $call,
            Form::Big($form) => $call,
        }
    };
}

impl Default for ZSet {
    fn default() -> Self {
        Self::new()
    }
}

impl ZSet {
    /// An empty set, which allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(Form::Small(PackedZSet::default()))
    }

    /// A set of these members. If one occurs more than once, its last score counts.
    #[must_use]
    pub fn from_pairs<B: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (B, f64)>, limits: ZSetLimits) -> Self {
        let mut map = ScoreMap::default();
        for (member, score) in pairs {
            map.begin_source(1);
            map.add(member.as_ref(), score, |_, score| score);
        }
        map.finish(limits)
    }

    /// The number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        either!(self, form => form.len())
    }

    /// Whether there is no member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves what `mover` wants moved. Members of the big form have others pointing to them, and stay.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        if let Form::Small(small) = &mut self.0 {
            small.compact(mover);
        }
    }

    /// Whether it is in its small form.
    #[must_use]
    pub fn is_small(&self) -> bool {
        matches!(self.0, Form::Small(_))
    }

    /// Whether a snapshot can save it in pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(self.0, Form::Big(_))
    }

    /// Whether a snapshot is saving it in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        matches!(&self.0, Form::Big(big) if big.has_walk())
    }

    /// Begins to save it in pieces, or gives that up.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        if let Form::Big(big) = &mut self.0 {
            big.set_walk(elements);
        }
    }

    /// Saves a piece. Says why that has stopped before the end.
    pub(crate) fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        if let Form::Big(big) = &mut self.0 { big.save_piece(budget) } else { None }
    }

    /// What OBJECT ENCODING says of it.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self.0 {
            Form::Small(_) => "listpack",
            Form::Big(_) => "skiplist",
        }
    }

    /// Estimated bytes of what the set points to.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Form::Small(small) => small.allocated_bytes(),
            Form::Big(big) => big.memory_bytes(),
        }
    }

    /// The score of a member.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        either!(self, form => form.score(member))
    }

    /// Asks the processor for what an operation will read, without waiting for it. Says whether it has a table.
    #[inline]
    pub fn prefetch(&self, ahead: Ahead<'_>) -> bool {
        match &self.0 {
            Form::Small(small) => small.prefetch(ahead),
            Form::Big(big) => IndexedZSet::prefetch(big, ahead),
        }
        matches!(self.0, Form::Big(_))
    }

    /// Chooses the form before ZADD adds up to `count` members, of which the first has `first_bytes` bytes: Redis goes
    /// by their number as it was sent, even if some are in the set already, but by the first one's length only when it
    /// creates the set.
    pub fn prepare(&mut self, count: usize, first_bytes: usize, limits: ZSetLimits) {
        let too_large = count > limits.entries_max || self.is_empty() && first_bytes > limits.member_bytes_max;
        if let Form::Small(small) = &self.0
            && too_large
        {
            self.0 = Form::Big(grown(small, count));
        }
    }

    /// Adds a member, or gives it another score; the score that it had comes back. Where both are equal, as 0 and -0
    /// are, the old one stays.
    pub fn insert(&mut self, member: &[u8], score: f64, limits: ZSetLimits) -> Option<f64> {
        debug_assert!(!score.is_nan());
        match &mut self.0 {
            Form::Big(big) => big.insert(member, score),
            Form::Small(small) => {
                let seek = small.seek(member, score);
                if let Some((pos, old)) = seek.found {
                    if old != score {
                        small.update(pos, &seek, member, score);
                    }
                    return Some(old);
                }
                if limits.fit(small.len() + 1, member.len()) && small.has_room_for(1, member.len()) {
                    small.add(&seek, member, score);
                } else {
                    let mut big = grown(small, 1);
                    big.insert(member, score);
                    self.0 = Form::Big(big);
                }
                None
            }
        }
    }

    /// Removes a member: whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        either!(mut self, form => form.remove(member))
    }

    /// How many members come before this one, or after it if `reverse`, and its score.
    #[must_use]
    pub fn rank(&self, member: &[u8], reverse: bool) -> Option<(usize, f64)> {
        let (rank, score) = either!(self, form => form.rank(member))?;
        Some((if reverse { self.len() - 1 - rank } else { rank }, score))
    }

    /// The member of a rank, counted from the lowest.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<(ItemText<'_>, f64)> {
        self.range_by_rank(rank..rank.saturating_add(1), false).next()
    }

    /// The ranks between two boundaries; none if the second lies before the first.
    fn ranks_between(&self, boundaries: [Boundary<'_>; 2]) -> Range<usize> {
        let [start, end] = boundaries.map(|boundary| either!(self, form => form.entries_before(boundary)));
        start..end.max(start)
    }

    /// The ranks of the members in a range of scores.
    #[must_use]
    pub fn ranks_by_score(&self, range: &ScoreRange) -> Range<usize> {
        self.ranks_between(range.boundaries())
    }

    /// The ranks of the members in a range of bytes.
    #[must_use]
    pub fn ranks_by_lex(&self, range: &LexRange<'_>) -> Range<usize> {
        self.ranks_between(range.boundaries())
    }

    /// The members of these ranks from the lowest on, or if `reverse` from the highest down. Ranks count from the
    /// lowest in both cases; those that are too high are left out.
    #[must_use]
    pub fn range_by_rank(&self, ranks: Range<usize>, reverse: bool) -> Iter<'_> {
        Iter(match &self.0 {
            Form::Small(small) => FormIter::Small(small.iter(ranks, reverse)),
            Form::Big(big) => FormIter::Big(big.iter(ranks, reverse)),
        })
    }

    /// Shows the members of these ranks, in the order of [`range_by_rank`](Self::range_by_rank): quicker, since each is
    /// shown as it lies there.
    #[inline]
    pub fn visit_ranks(&self, ranks: Range<usize>, reverse: bool, mut visit: impl FnMut(&[u8], f64)) {
        match &self.0 {
            Form::Small(small) => small.iter(ranks, reverse).for_each(|(member, score)| visit(&member, score)),
            Form::Big(big) => big.iter(ranks, reverse).for_each(|(member, score)| visit(member, score)),
        }
    }

    /// Shows the members whose scores are at least `min` and below `max`, and `wanted`, in order, until `visit` is false.
    /// Nothing is read of the others but their scores. False if `visit` was.
    pub fn visit_wanted<'a>(
        &'a self,
        min: f64,
        max: f64,
        mut wanted: impl FnMut(f64) -> bool,
        mut visit: impl FnMut(ItemText<'a>, f64) -> bool,
    ) -> bool {
        match &self.0 {
            Form::Small(small) => {
                let pairs = small.iter(0..small.len(), false).skip_while(|pair| pair.1 < min);
                let mut pairs = pairs.take_while(|pair| pair.1 < max).filter(|pair| wanted(pair.1));
                pairs.all(|(member, score)| visit(member, score))
            }
            Form::Big(big) => {
                big.visit_wanted(min, max, wanted, |member, score| visit(Item::Str(member).text(), score))
            }
        }
    }

    /// The members in a range of scores.
    #[must_use]
    pub fn range_by_score(&self, range: &ScoreRange, reverse: bool) -> Iter<'_> {
        self.range_by_rank(self.ranks_by_score(range), reverse)
    }

    /// The members in a range of bytes.
    #[must_use]
    pub fn range_by_lex(&self, range: &LexRange<'_>, reverse: bool) -> Iter<'_> {
        self.range_by_rank(self.ranks_by_lex(range), reverse)
    }

    /// How many members lie in a range of scores.
    #[must_use]
    pub fn count_by_score(&self, range: &ScoreRange) -> usize {
        self.ranks_by_score(range).len()
    }

    /// How many members lie in a range of bytes.
    #[must_use]
    pub fn count_by_lex(&self, range: &LexRange<'_>) -> usize {
        self.ranks_by_lex(range).len()
    }

    /// All members, from the lowest on.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        self.range_by_rank(0..self.len(), false)
    }

    /// Removes the members of these ranks; how many there were. To see them, ask for the range before.
    pub fn remove_range_by_rank(&mut self, ranks: Range<usize>) -> usize {
        let before = self.len();
        either!(mut self, form => form.remove_ranks(ranks));
        before - self.len()
    }

    /// Removes the members in a range of scores; how many there were.
    pub fn remove_range_by_score(&mut self, range: &ScoreRange) -> usize {
        self.remove_range_by_rank(self.ranks_by_score(range))
    }

    /// Removes the members in a range of bytes; how many there were.
    pub fn remove_range_by_lex(&mut self, range: &LexRange<'_>) -> usize {
        self.remove_range_by_rank(self.ranks_by_lex(range))
    }

    /// Removes up to `count` members with the lowest scores, after it has shown them; how many there were.
    pub fn pop_min(&mut self, count: usize, mut visit: impl FnMut(&[u8], f64)) -> usize {
        let ranks = 0..count.min(self.len());
        self.visit_ranks(ranks.clone(), false, &mut visit);
        self.remove_range_by_rank(ranks)
    }

    /// Removes up to `count` members with the highest scores, the highest first, after it has shown them; how many
    /// there were.
    pub fn pop_max(&mut self, count: usize, mut visit: impl FnMut(&[u8], f64)) -> usize {
        let ranks = self.len().saturating_sub(count)..self.len();
        self.visit_ranks(ranks.clone(), true, &mut visit);
        self.remove_range_by_rank(ranks)
    }

    /// Shows some members and returns the cursor with which to go on; the first is 0, and so is the last.
    ///
    /// A scan that goes on until the end has shown every member that was in the set all the time, perhaps more than
    /// once. A packed set shows all at once.
    pub fn scan(&self, cursor: u64, visit: impl FnMut(&[u8], f64)) -> u64 {
        match &self.0 {
            Form::Big(big) => big.scan(cursor, visit),
            Form::Small(_) => {
                self.visit_ranks(0..self.len(), false, visit);
                0
            }
        }
    }

    /// A member, each as likely as any other.
    pub fn random(&self, random: &mut Random) -> Option<(ItemText<'_>, f64)> {
        self.get(random.below(self.len()))
    }
}

impl ZSet {
    /// A set of these members, unique and in ascending order, in the form that their number and their lengths ask for:
    /// the longest has `longest` bytes, and all together have `bytes`.
    fn from_sorted<'m>(
        sorted: impl ExactSizeIterator<Item = (&'m [u8], f64)>,
        longest: usize,
        bytes: usize,
        limits: ZSetLimits,
    ) -> ZSet {
        let len = sorted.len();
        ZSet(if limits.packs(len, longest, bytes) {
            Form::Small(PackedZSet::from_sorted(sorted))
        } else {
            Form::Big(TightBox::new(IndexedZSet::from_sorted(len, sorted)))
        })
    }
}

/// The big form of a set, with room for some more members.
#[cold]
fn grown(small: &PackedZSet, more: usize) -> TightBox<IndexedZSet> {
    let len = small.len();
    TightBox::new(IndexedZSet::from_sorted(len + more.min(GROW_MAX), small.iter(0..len, false)))
}

/// For how many members to come a table makes room at most: their number is a client's word.
const GROW_MAX: usize = 1024;

impl ZSetLimits {
    /// Whether a set may stay packed with so many members, of which the longest has so many bytes.
    fn fit(self, entries: usize, member_bytes: usize) -> bool {
        entries <= self.entries_max && member_bytes <= self.member_bytes_max
    }

    /// Whether a set of so many members, of which the longest has so many bytes and all together have `bytes`, is packed
    /// when it is made at once.
    fn packs(self, entries: usize, longest: usize, bytes: usize) -> bool {
        self.fit(entries, longest) && PackedZSet::default().has_room_for(entries, bytes)
    }
}

/// Members and scores in order of rank.
pub struct Iter<'a>(FormIter<'a>);

/// The iterator of a form.
enum FormIter<'a> {
    Small(small::Iter<'a>),
    Big(big::Iter<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = (ItemText<'a>, f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            FormIter::Small(iter) => iter.next(),
            FormIter::Big(iter) => iter.next().map(|(member, score)| (Item::Str(member).text(), score)),
        }
    }

    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut visit: F) -> B {
        match self.0 {
            FormIter::Small(iter) => iter.fold(init, visit),
            FormIter::Big(iter) => {
                iter.fold(init, |result, (member, score)| visit(result, (Item::Str(member).text(), score)))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            FormIter::Small(iter) => iter.size_hint(),
            FormIter::Big(iter) => iter.size_hint(),
        }
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// Gathers members in any order, and sorts them once: for loading.
pub struct ZSetBuilder {
    members: Unordered,
    longest: usize,
}

impl Default for ZSetBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl ZSetBuilder {
    /// A builder without members.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// A builder with room for so many members, which must not be a number that a client just says.
    #[must_use]
    pub fn with_capacity(len: usize) -> Self {
        Self { members: Unordered::with_capacity(len), longest: 0 }
    }

    /// The number of members so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there is no member so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Asks the processor for what [`ZSetBuilder::insert_new`] will read of a member, without waiting for it. Gives the member's hash.
    #[inline]
    pub fn prefetch(&self, member: &[u8]) -> ItemHash {
        let hash = ItemHash::of(member);
        self.members.prefetch(hash);
        hash
    }

    /// Adds a member with a score that is a number. False if it is there. `hash` is the member's. Members that come in the order of a set,
    /// or against it, need no sorting.
    pub fn insert_new(&mut self, hash: ItemHash, member: &[u8], score: f64) -> bool {
        self.longest = self.longest.max(member.len());
        self.members.insert_new(hash, member, score)
    }

    /// The set, in the form that its size asks for.
    #[must_use]
    pub fn finish(mut self, limits: ZSetLimits) -> ZSet {
        ZSet(if limits.packs(self.len(), self.longest, self.members.members_bytes()) {
            Form::Small(PackedZSet::from_sorted(self.members.sorted()))
        } else {
            Form::Big(TightBox::new(self.members.into_big()))
        })
    }
}
