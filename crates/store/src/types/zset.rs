//! Sorted sets: members with scores, ordered by score and then by their bytes.
//!
//! A set begins as one packed block, and is converted to a hash table plus a counted B+tree when it exceeds its
//! [limits](ZSetLimits). Both forms give the same answers. Every range by rank, score or bytes is first converted to a
//! range of ranks. Therefore counting is as cheap as finding, and skipping members of a range costs nothing.
//!
//! This module knows no commands, no text form of scores and no replies. Scores are never NaN: callers check the
//! results of their computations.

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
pub use small::score_of;

use crate::compact::Mover;
use crate::hash::ItemHash;
use crate::prefetch::Ahead;
use crate::random::Random;
use crate::snapshot::{Budget, ElementSink, Step};
use crate::types::bptree::Boundary;
use crate::types::packed::{Item, ItemText, Packed};
use crate::unaligned_box::TightBox;

/// Limits up to which a set stays packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZSetLimits {
    /// Maximum number of members: the directive `zset-max-listpack-entries`.
    pub entries_max: usize,
    /// Maximum length of a member in bytes: the directive `zset-max-listpack-value`.
    pub member_bytes_max: usize,
}

impl Default for ZSetLimits {
    /// Returns Redis's defaults.
    fn default() -> Self {
        Self { entries_max: 128, member_bytes_max: 64 }
    }
}

/// A range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreRange {
    /// The lowest score, or minus infinity.
    pub min: f64,
    /// The highest score, or infinity.
    pub max: f64,
    /// True if `min` itself is excluded.
    pub min_excluded: bool,
    /// True if `max` itself is excluded.
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

/// One end of a range by bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// Below every member: `-`.
    Lowest,
    /// Above every member: `+`.
    Highest,
    /// This member, which is in the range: `[member`.
    Included(&'a [u8]),
    /// This member, which is not in the range: `(member`.
    Excluded(&'a [u8]),
}

/// A range by bytes, in a set with equal scores only. In other sets the result is an arbitrary range of members, as in
/// Redis.
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

/// Skips the first `offset` of these ranks, counted from the end if `reverse`, and keeps `count` of the others: the
/// LIMIT of range commands.
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

/// A sorted set. See the module's documentation.
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
    /// Returns an empty set, which allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(Form::Small(PackedZSet::default()))
    }

    /// Returns a set of these members. If a member occurs more than once, its last score counts.
    #[must_use]
    pub fn from_pairs<B: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (B, f64)>, limits: ZSetLimits) -> Self {
        let mut map = ScoreMap::default();
        for (member, score) in pairs {
            map.begin_source(1);
            map.add(member.as_ref(), score, |_, score| score);
        }
        map.finish(limits)
    }

    /// Number of members.
    #[must_use]
    pub fn len(&self) -> usize {
        either!(self, form => form.len())
    }

    /// Returns true if there are no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves the block, if `mover` selects it. Members of the big form stay, because the tree points to them.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        if let Form::Small(small) = &mut self.0 {
            small.compact(mover);
        }
    }

    /// Returns true if it is in its small form.
    #[must_use]
    pub fn is_small(&self) -> bool {
        matches!(self.0, Form::Small(_))
    }

    /// Returns the block of the small form: members and scores in turn, in order ([`score_of`]).
    pub fn packed(&self) -> Option<&Packed> {
        match &self.0 {
            Form::Small(small) => Some(small.packed()),
            Form::Big(_) => None,
        }
    }

    /// Returns true if a snapshot can save it in pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(self.0, Form::Big(_))
    }

    /// Returns true while a snapshot saves it in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        matches!(&self.0, Form::Big(big) if big.has_walk())
    }

    /// Begins to save it in pieces, or stops that.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        if let Form::Big(big) = &mut self.0 {
            big.set_walk(elements);
        }
    }

    /// Saves a piece. Returns the reason if it stopped before the end.
    pub(crate) fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        if let Form::Big(big) = &mut self.0 { big.save_piece(budget) } else { None }
    }

    /// Returns the form's name in OBJECT ENCODING.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self.0 {
            Form::Small(_) => "listpack",
            Form::Big(_) => "skiplist",
        }
    }

    /// Estimates the bytes of the memory behind the set.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Form::Small(small) => small.allocated_bytes(),
            Form::Big(big) => big.memory_bytes(),
        }
    }

    /// Returns the score of a member.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        either!(self, form => form.score(member))
    }

    /// Prefetches the memory that an operation will read. Returns true if the set has a table.
    #[inline]
    pub fn prefetch(&self, ahead: Ahead<'_>) -> bool {
        match &self.0 {
            Form::Small(small) => small.prefetch(ahead),
            Form::Big(big) => IndexedZSet::prefetch(big, ahead),
        }
        matches!(self.0, Form::Big(_))
    }

    /// Chooses the form before ZADD adds up to `count` members, the first with `first_bytes` bytes. Like Redis, it uses
    /// the number as sent, even if some members already exist, and the first one's length only if the set is empty.
    pub fn prepare(&mut self, count: usize, first_bytes: usize, limits: ZSetLimits) {
        let too_large = count > limits.entries_max || self.is_empty() && first_bytes > limits.member_bytes_max;
        if let Form::Small(small) = &self.0
            && too_large
        {
            self.0 = Form::Big(grown(small, count));
        }
    }

    /// Adds a member or changes its score, and returns the old score. If both scores are equal, like 0 and -0, the old
    /// one stays.
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

    /// Removes a member. Returns true if it was present.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        either!(mut self, form => form.remove(member))
    }

    /// Returns the number of members before this one, or after it if `reverse`, and its score.
    #[must_use]
    pub fn rank(&self, member: &[u8], reverse: bool) -> Option<(usize, f64)> {
        let (rank, score) = either!(self, form => form.rank(member))?;
        Some((if reverse { self.len() - 1 - rank } else { rank }, score))
    }

    /// Returns the member of a rank, counted from the lowest.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<(ItemText<'_>, f64)> {
        self.range_by_rank(rank..rank.saturating_add(1), false).next()
    }

    /// Returns the ranks between two boundaries; an empty range if the second is before the first.
    fn ranks_between(&self, boundaries: [Boundary<'_>; 2]) -> Range<usize> {
        let [start, end] = boundaries.map(|boundary| either!(self, form => form.entries_before(boundary)));
        start..end.max(start)
    }

    /// Returns the ranks of the members in a range of scores.
    #[must_use]
    pub fn ranks_by_score(&self, range: &ScoreRange) -> Range<usize> {
        self.ranks_between(range.boundaries())
    }

    /// Returns the ranks of the members in a range of bytes.
    #[must_use]
    pub fn ranks_by_lex(&self, range: &LexRange<'_>) -> Range<usize> {
        self.ranks_between(range.boundaries())
    }

    /// Iterates over the members of these ranks, from the lowest or, if `reverse`, from the highest. Ranks always count
    /// from the lowest; ranks that are too high are skipped.
    #[must_use]
    pub fn range_by_rank(&self, ranks: Range<usize>, reverse: bool) -> Iter<'_> {
        Iter(match &self.0 {
            Form::Small(small) => FormIter::Small(small.iter(ranks, reverse)),
            Form::Big(big) => FormIter::Big(big.iter(ranks, reverse)),
        })
    }

    /// Passes the members of these ranks to `visit`, in the order of [`range_by_rank`](Self::range_by_rank). Faster
    /// than the iterator, because it passes members of the big form without conversion.
    #[inline]
    pub fn visit_ranks(&self, ranks: Range<usize>, reverse: bool, mut visit: impl FnMut(&[u8], f64)) {
        match &self.0 {
            Form::Small(small) => small.iter(ranks, reverse).for_each(|(member, score)| visit(&member, score)),
            Form::Big(big) => big.iter(ranks, reverse).for_each(|(member, score)| visit(member, score)),
        }
    }

    /// Passes all members and scores in order to `visit`, until it returns false; returns false then. Chooses the form
    /// once, while [`ZSet::iter`] does so for each member.
    pub fn visit_while(&self, mut visit: impl FnMut(&[u8], f64) -> bool) -> bool {
        let ranks = 0..self.len();
        match &self.0 {
            Form::Small(small) => small.iter(ranks, false).all(|(member, score)| visit(&member, score)),
            Form::Big(big) => big.iter(ranks, false).all(|(member, score)| visit(member, score)),
        }
    }

    /// Passes members with scores from `min` up to, but not including, `max` to `visit`, in order, if `wanted` returns
    /// true for the score. Stops and returns false when `visit` returns false. Reads only the scores of the other
    /// members.
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

    /// Iterates over the members in a range of scores.
    #[must_use]
    pub fn range_by_score(&self, range: &ScoreRange, reverse: bool) -> Iter<'_> {
        self.range_by_rank(self.ranks_by_score(range), reverse)
    }

    /// Iterates over the members in a range of bytes.
    #[must_use]
    pub fn range_by_lex(&self, range: &LexRange<'_>, reverse: bool) -> Iter<'_> {
        self.range_by_rank(self.ranks_by_lex(range), reverse)
    }

    /// Counts the members in a range of scores.
    #[must_use]
    pub fn count_by_score(&self, range: &ScoreRange) -> usize {
        self.ranks_by_score(range).len()
    }

    /// Counts the members in a range of bytes.
    #[must_use]
    pub fn count_by_lex(&self, range: &LexRange<'_>) -> usize {
        self.ranks_by_lex(range).len()
    }

    /// Iterates over all members, from the lowest.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        self.range_by_rank(0..self.len(), false)
    }

    /// Removes the members of these ranks and returns their number. To see them, iterate over the range first.
    pub fn remove_range_by_rank(&mut self, ranks: Range<usize>) -> usize {
        let before = self.len();
        either!(mut self, form => form.remove_ranks(ranks));
        before - self.len()
    }

    /// Removes the members in a range of scores and returns their number.
    pub fn remove_range_by_score(&mut self, range: &ScoreRange) -> usize {
        self.remove_range_by_rank(self.ranks_by_score(range))
    }

    /// Removes the members in a range of bytes and returns their number.
    pub fn remove_range_by_lex(&mut self, range: &LexRange<'_>) -> usize {
        self.remove_range_by_rank(self.ranks_by_lex(range))
    }

    /// Removes up to `count` members with the lowest scores, after passing them to `visit`, and returns their number.
    pub fn pop_min(&mut self, count: usize, mut visit: impl FnMut(&[u8], f64)) -> usize {
        let ranks = 0..count.min(self.len());
        self.visit_ranks(ranks.clone(), false, &mut visit);
        self.remove_range_by_rank(ranks)
    }

    /// Removes up to `count` members with the highest scores, after passing them to `visit`, the highest first, and
    /// returns their number.
    pub fn pop_max(&mut self, count: usize, mut visit: impl FnMut(&[u8], f64)) -> usize {
        let ranks = self.len().saturating_sub(count)..self.len();
        self.visit_ranks(ranks.clone(), true, &mut visit);
        self.remove_range_by_rank(ranks)
    }

    /// Passes some members to `visit` and returns the next cursor; 0 is both the beginning and the end.
    ///
    /// A complete scan visits every member that was in the set all the time, perhaps more than once. A packed set takes
    /// a single step.
    pub fn scan(&self, cursor: u64, visit: impl FnMut(&[u8], f64)) -> u64 {
        match &self.0 {
            Form::Big(big) => big.scan(cursor, visit),
            Form::Small(_) => {
                self.visit_ranks(0..self.len(), false, visit);
                0
            }
        }
    }

    /// Returns an evenly picked member.
    pub fn random(&self, random: &mut Random) -> Option<(ItemText<'_>, f64)> {
        self.get(random.below(self.len()))
    }
}

impl ZSet {
    /// Returns a set of these members, which are unique and in ascending order, in the form that suits their number and
    /// lengths: the longest has `longest` bytes, and all have `bytes` in total.
    pub fn from_sorted<'m>(
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

    /// Returns the small set of alternating members and scores, or none if the limits don't allow it. The scores are integers up to 2^53,
    /// and the pairs are unique and in ascending order. No member has more than `longest` bytes.
    pub fn from_packed(block: &[u8], members: usize, longest: usize, limits: ZSetLimits) -> Option<ZSet> {
        let fits = limits.packs(members, longest, block.len());
        fits.then(|| ZSet(Form::Small(PackedZSet::from_packed(Packed::of_items(block, 2 * members)))))
    }
}

/// Converts a set to the big form, with space for some more members.
#[cold]
fn grown(small: &PackedZSet, more: usize) -> TightBox<IndexedZSet> {
    let len = small.len();
    TightBox::new(IndexedZSet::from_sorted(len + more.min(GROW_MAX), small.iter(0..len, false)))
}

/// Maximum number of announced members that a table reserves space for, because a client chooses the number.
const GROW_MAX: usize = 1024;

impl ZSetLimits {
    /// Returns true if a set with this number of members and this maximum length may stay packed.
    fn fit(self, entries: usize, member_bytes: usize) -> bool {
        entries <= self.entries_max && member_bytes <= self.member_bytes_max
    }

    /// Returns true if a set built at once is packed: with this number of members, this maximum length and `bytes` in
    /// total.
    fn packs(self, entries: usize, longest: usize, bytes: usize) -> bool {
        self.fit(entries, longest) && PackedZSet::default().has_room_for(entries, bytes)
    }
}

/// Iterates over members and scores in order of rank.
pub struct Iter<'a>(FormIter<'a>);

/// The iterator of each form.
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

/// Collects members in any order and sorts them once, for loading.
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
    /// Returns a builder without members.
    #[must_use]
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Returns a builder with space for `len` members. A client must not be able to choose this number freely.
    #[must_use]
    pub fn with_capacity(len: usize) -> Self {
        Self { members: Unordered::with_capacity(len), longest: 0 }
    }

    /// Number of members to this point.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns true if there are no members yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Prefetches the memory that [`ZSetBuilder::insert_new`] reads for a member. Returns the member's hash.
    #[inline]
    pub fn prefetch(&self, member: &[u8]) -> ItemHash {
        let hash = ItemHash::of(member);
        self.members.prefetch(hash);
        hash
    }

    /// Adds a member with a score that is not NaN. Returns false if the member exists. `hash` is the member's hash.
    /// Members in ascending or descending order need no sorting.
    pub fn insert_new(&mut self, hash: ItemHash, member: &[u8], score: f64) -> bool {
        self.longest = self.longest.max(member.len());
        self.members.insert_new(hash, member, score)
    }

    /// Returns the set, in the form that suits its size.
    #[must_use]
    pub fn finish(mut self, limits: ZSetLimits) -> ZSet {
        ZSet(if limits.packs(self.len(), self.longest, self.members.members_bytes()) {
            Form::Small(PackedZSet::from_sorted(self.members.sorted()))
        } else {
            Form::Big(TightBox::new(self.members.into_big()))
        })
    }
}
