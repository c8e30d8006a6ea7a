//! The content of one node: scores and handles in parallel arrays, and their search.

use std::cmp::Ordering;
use std::ops::Range;

use super::MemberHandle;
use super::hints::{SKIP_MAX, Sought, UNHINTED_MAX, bits_in_common, hint_of, hinted_ties_before, ties_before};

/// Minimum number of leading bits that are equal in all hints of a node to make new hints worthwhile.
const IDLE_BITS_MIN: u32 = 4;

/// Number of entries behind a new one to prefetch, because the next insertion may be beside them.
const NEXT_NEIGHBOURS: usize = 4;

/// Counts the scores less than `score`. Counting instead of binary search lets a cold node's cache lines load in
/// parallel. Measured with 400,000 members: finding a rank takes a quarter less time.
#[inline]
pub(super) fn scores_below(scores: &[f64], score: f64) -> usize {
    scores.iter().filter(|&&at| at < score).count()
}

/// Counts the scores less than or equal to `score`.
#[inline]
pub(super) fn scores_up_to(scores: &[f64], score: f64) -> usize {
    scores.iter().filter(|&&at| at <= score).count()
}

/// Orders by score, then by bytes: the order of a sorted set. NaN does not occur.
pub(in crate::types) fn compare(a_score: f64, a: &[u8], b_score: f64, b: &[u8]) -> Ordering {
    a_score.partial_cmp(&b_score).unwrap_or(Ordering::Equal).then_with(|| a.cmp(b))
}

/// Inserts into the first `len` items of `items`, which is longer.
#[inline]
pub(super) fn slot_in<T: Copy>(items: &mut [T], len: usize, at: usize, item: T) {
    items.copy_within(at..len, at + 1);
    items[at] = item;
}

/// Moves the last `n` of the `left_len` items of `left` to the front of `right`.
pub(super) fn give_right<T>(left: &mut [T], left_len: usize, right: &mut [T], right_len: usize, n: usize) {
    right[..right_len + n].rotate_right(n);
    left[left_len - n..left_len].swap_with_slice(&mut right[..n]);
}

/// Moves the first `n` of the `right_len` items of `right` to the end of `left`.
pub(super) fn give_left<T>(left: &mut [T], left_len: usize, right: &mut [T], right_len: usize, n: usize) {
    left[left_len..left_len + n].swap_with_slice(&mut right[..n]);
    right[..right_len].rotate_left(n);
}

/// Scores and handles in parallel arrays, ascending. Beyond `len` are leftovers that nothing reads.
pub(super) struct NodeEntries<T, const N: usize> {
    len: u32,
    /// Number of common leading bits that the handles' hints skip. See [`hints`](super::hints).
    skip: u32,
    pub(super) scores: [f64; N],
    pub(super) ties: [T; N],
}

impl<T: MemberHandle, const N: usize> NodeEntries<T, N> {
    /// Returns a node without entries. Copies of one entry fill the unused places, which saves marking them as unused.
    pub(super) fn empty((score, tie): (f64, T)) -> Self {
        Self { len: 0, skip: 0, scores: [score; N], ties: [tie; N] }
    }

    /// Returns a node of these entries, ascending: at least one, and at most `N`.
    pub(super) fn of(entries: &[(f64, T)]) -> Option<Self> {
        let mut new = Self::empty(*entries.first()?);
        for (at, &(score, tie)) in entries.iter().enumerate() {
            new.scores[at] = score;
            new.ties[at] = tie.with_hint(0);
        }
        new.set_len(entries.len());
        new.mend_hints();
        Some(new)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    fn set_len(&mut self, len: usize) {
        debug_assert!(len <= N);
        self.len = len as u32;
    }

    #[inline]
    pub(super) fn scores(&self) -> &[f64] {
        &self.scores[..self.len()]
    }

    #[inline]
    pub(super) fn ties(&self) -> &[T] {
        &self.ties[..self.len()]
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<(f64, T)> {
        (at < self.len()).then(|| (self.scores[at], self.ties[at]))
    }

    /// Replaces an entry. Reads no bytes if the handle is the same, otherwise only those of the new one.
    pub(super) fn set(&mut self, at: usize, (score, tie): (f64, T)) {
        self.scores[at] = score;
        if self.ties[at] != tie {
            self.ties[at] = self.hinted(tie);
        }
    }

    /// Inserts at `at`. The node must not be full.
    #[inline]
    pub(super) fn insert(&mut self, at: usize, score: f64, tie: T) {
        let (len, tie) = (self.len(), self.hinted(tie));
        slot_in(&mut self.scores, len, at, score);
        slot_in(&mut self.ties, len, at, tie);
        self.set_len(len + 1);
        if !(self.hints_ascend(at) && self.hints_ascend(at + 1)) {
            self.mend_hints();
        }
    }

    pub(super) fn remove(&mut self, range: Range<usize>) {
        let len = self.len();
        self.scores.copy_within(range.end..len, range.start);
        self.ties.copy_within(range.end..len, range.start);
        self.set_len(len - range.len());
    }

    /// Moves the last `n` entries to the front of `right`.
    pub(super) fn give_right(&mut self, right: &mut Self, n: usize) {
        let (len, right_len) = (self.len(), right.len());
        give_right(&mut self.scores, len, &mut right.scores, right_len, n);
        give_right(&mut self.ties, len, &mut right.ties, right_len, n);
        self.after_giving(right, n);
    }

    /// Moves the first `n` entries of `right` to the end.
    pub(super) fn give_left(&mut self, right: &mut Self, n: usize) {
        let (len, right_len) = (self.len(), right.len());
        give_left(&mut self.scores, len, &mut right.scores, right_len, n);
        give_left(&mut self.ties, len, &mut right.ties, right_len, n);
        right.after_giving(self, n);
    }

    /// Updates the lengths after `n` entries were moved to a neighbour, and the hints of both.
    fn after_giving(&mut self, taker: &mut Self, n: usize) {
        let taken = taker.len();
        self.set_len(self.len() - n);
        taker.set_len(taken + n);
        if taken == 0 {
            taker.skip = self.skip;
        }
        if n > 0 && taker.skip != self.skip {
            taker.renew_hints();
        } else {
            taker.mend_hints();
        }
        self.mend_hints();
    }

    /// Returns the handle with its hint for this node.
    #[inline]
    fn hinted(&self, tie: T) -> T {
        tie.with_hint(hint_of(tie.bytes(), self.skip))
    }

    /// Returns true if the hint of entry `at`, if it exists, is not lower than the one before it. Only hints of equal
    /// scores matter.
    #[inline]
    fn hints_ascend(&self, at: usize) -> bool {
        at == 0
            || at >= self.len()
            || self.scores[at - 1] != self.scores[at]
            || self.ties[at - 1].hint() <= self.ties[at].hint()
    }

    /// Renews the hints if enough scores are equal and the hints are out of order or unselective.
    ///
    /// This happens rarely: new hints are in order, and are as selective as sixteen bits behind `skip` can be. They get
    /// out of order only through an entry with a shorter common prefix, which lowers `skip`. Selectivity is checked
    /// only when a node, or a child of it, is created, split or shared.
    #[cold]
    pub(super) fn mend_hints(&mut self) {
        let equal = self.scores().windows(2).filter(|pair| pair[0] == pair[1]).count();
        if equal < UNHINTED_MAX {
            return;
        }
        let varying = self.ties().iter().fold(0, |bits, tie| bits | (tie.hint() ^ self.ties[0].hint()));
        let idle = varying.leading_zeros() >= IDLE_BITS_MIN && self.skip < SKIP_MAX;
        if idle || !(1..self.len()).all(|at| self.hints_ascend(at)) {
            self.renew_hints();
        }
    }

    /// Sets the hints to the bits behind the common prefix of all entries, which puts them in order and makes them as
    /// selective as possible.
    fn renew_hints(&mut self) {
        self.ties().iter().for_each(|tie| tie.prefetch());
        self.skip = bits_in_common(self.ties());
        for at in 0..self.len() {
            self.ties[at] = self.hinted(self.ties[at]);
        }
    }

    /// Returns the range of the entries with this score, or an empty range at the place for it.
    #[inline]
    fn equal(&self, score: f64) -> Range<usize> {
        let scores = self.scores();
        if scores.first() == Some(&score) && scores.last() == Some(&score) {
            return 0..scores.len();
        }
        let below = scores_below(scores, score);
        if scores.get(below) != Some(&score) {
            return below..below;
        }
        below..below + scores_up_to(&scores[below..], score)
    }

    /// Counts the entries with a lower score, or with the same score and lower bytes than those sought.
    #[inline]
    pub(super) fn before(&self, score: f64, sought: Sought<'_>) -> usize {
        let equal = self.equal(score);
        equal.start + hinted_ties_before(&self.ties[equal], self.skip, sought)
    }

    /// Returns the place of the sought bytes, if it is behind entry `at`, and scores and hints point to a place within
    /// the next `most` entries.
    #[inline]
    pub(super) fn right_behind(&self, at: usize, most: usize, score: f64, sought: Sought<'_>) -> Option<usize> {
        let (scores, ties) = (self.scores().get(at..).filter(|rest| !rest.is_empty())?, self.ties().get(at..)?);
        let hint = hint_of(sought.bytes, self.skip);
        let seems_lower = |at: &usize| scores[*at] < score || scores[*at] == score && ties[*at].hint() < hint;
        let seems_equal = |at: &usize| scores[*at] == score && ties[*at].hint() == hint;
        let is_lower = |at: usize| scores[at] < score || scores[at] == score && sought.is_past(ties[at].bytes());
        let end = scores.len().min(most);
        let low = (1..end).find(|at| !seems_lower(at)).unwrap_or(end);
        let high = (low..end).find(|at| !seems_equal(at)).unwrap_or(end);
        // Prefetches both neighbours, and those of the next likely insertion, in parallel.
        ties.get(low - 1..ties.len().min(high + NEXT_NEIGHBOURS))?.iter().for_each(|tie| tie.prefetch());
        let place = low + ties_before(&ties[low..high], sought);
        let is_confirmed =
            (place > low || is_lower(low - 1)) && (place < high || high == scores.len() || !is_lower(high));
        is_confirmed.then_some(at + place)
    }

    /// Counts the entries with lower bytes than those sought, if all scores are equal.
    pub(super) fn before_bytes(&self, sought: Sought<'_>) -> usize {
        hinted_ties_before(self.ties(), self.skip, sought)
    }

    /// Returns the place for `score` and `bytes`.
    #[inline]
    pub(super) fn position(&self, score: f64, bytes: &[u8]) -> usize {
        self.before(score, Sought { bytes, past_equal: false })
    }

    /// Returns the place of the entry with this score and handle, if it is here. Reads no bytes.
    #[inline]
    pub(super) fn find(&self, score: f64, tie: T) -> Option<usize> {
        let at = self.ties().iter().position(|other| *other == tie)?;
        (self.scores[at] == score).then_some(at)
    }

    /// Returns true if entry `at` may take the score `score` without changing its place among its neighbours in this
    /// node. Always false for the first and the last entry, which have neighbours in other nodes.
    pub(super) fn may_rescore(&self, at: usize, score: f64) -> bool {
        let (Some(before), Some((here, after))) = (at.checked_sub(1), self.get(at).zip(self.get(at + 1))) else {
            return false;
        };
        let (low, low_tie) = (self.scores[before], self.ties[before]);
        compare(low, low_tie.bytes(), score, here.1.bytes()).is_lt()
            && compare(score, here.1.bytes(), after.0, after.1.bytes()).is_lt()
    }
}
