//! The content of one node: scores and handles side by side, and how they are searched.

use std::cmp::Ordering;
use std::ops::Range;

use super::Tie;
use super::hints::{SKIP_MAX, Sought, UNHINTED_MAX, bits_in_common, hint_of, hinted_ties_before, ties_before};

/// So many of a hint's bits, the same in all hints of a node, are too many: new hints say more.
const IDLE_BITS_MIN: u32 = 4;

/// How many entries behind a new one are asked for, next to which the next one may go.
const NEXT_NEIGHBOURS: usize = 4;

/// How many scores are less than `score`. Counts instead of searching: the lines of a cold node are then loaded side by
/// side rather than one after another. Measured with 400,000 members: finding a rank takes a quarter less time.
#[inline]
pub(super) fn scores_below(scores: &[f64], score: f64) -> usize {
    scores.iter().filter(|&&at| at < score).count()
}

/// How many scores are less than `score` or equal to it.
#[inline]
pub(super) fn scores_up_to(scores: &[f64], score: f64) -> usize {
    scores.iter().filter(|&&at| at <= score).count()
}

/// Orders by score, then by bytes: the order of a sorted set. NaN doesn't occur.
pub(in crate::types) fn compare(a_score: f64, a: &[u8], b_score: f64, b: &[u8]) -> Ordering {
    a_score.partial_cmp(&b_score).unwrap_or(Ordering::Equal).then_with(|| a.cmp(b))
}

/// Inserts into the first `len` items of `items`, which has room behind them.
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

/// Scores and handles side by side, ascending. Past `len` lie leftovers that nothing reads.
pub(super) struct NodeEntries<T, const N: usize> {
    len: u32,
    /// Of how many bits the handles' hints are those that follow. See [`hints`](super::hints).
    skip: u32,
    pub(super) scores: [f64; N],
    pub(super) ties: [T; N],
}

impl<T: Tie, const N: usize> NodeEntries<T, N> {
    /// Room for entries, filled with copies of one, which saves marking it as unused.
    pub(super) fn empty((score, tie): (f64, T)) -> Self {
        Self { len: 0, skip: 0, scores: [score; N], ties: [tie; N] }
    }

    /// These entries, ascending: at least one, and at most `N`.
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

    /// Puts another entry in the place of one. Looks at no bytes if it has the same handle, and else only at its own.
    pub(super) fn set(&mut self, at: usize, (score, tie): (f64, T)) {
        self.scores[at] = score;
        if self.ties[at] != tie {
            self.ties[at] = self.hinted(tie);
        }
    }

    /// Inserts at `at`. There must be room.
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

    /// Counts the `n` entries that were moved to a neighbour, and sees to the hints of both.
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

    /// The handle with the hint that it needs here.
    #[inline]
    fn hinted(&self, tie: T) -> T {
        tie.with_hint(hint_of(tie.bytes(), self.skip))
    }

    /// Whether the hint of entry `at`, if there is one, is not lower than that before it. Only equal scores matter.
    #[inline]
    fn hints_ascend(&self, at: usize) -> bool {
        at == 0
            || at >= self.len()
            || self.scores[at - 1] != self.scores[at]
            || self.ties[at - 1].hint() <= self.ties[at].hint()
    }

    /// Renews the hints if enough scores are equal, and the hints are out of order or say too little.
    ///
    /// Seldom enough: new hints are in order, and say as much as sixteen bits behind `skip` can. They get out of order
    /// only by an entry that has less in common with the others, which lowers `skip`; and whether they say too little
    /// is asked only when a node is made, split or shared, or its child was.
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

    /// Makes the hints those behind the bits that all entries have in common: in order, that is, and as telling as can
    /// be.
    fn renew_hints(&mut self) {
        self.ties().iter().for_each(|tie| tie.prefetch());
        self.skip = bits_in_common(self.ties());
        for at in 0..self.len() {
            self.ties[at] = self.hinted(self.ties[at]);
        }
    }

    /// The places of the entries of this score; where it belongs, if there is none.
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

    /// How many entries have a lower score, or the same and lower bytes than what is sought.
    #[inline]
    pub(super) fn before(&self, score: f64, sought: Sought<'_>) -> usize {
        let equal = self.equal(score);
        equal.start + hinted_ties_before(&self.ties[equal], self.skip, sought)
    }

    /// The place of what is sought, if it lies behind entry `at`, and scores and hints point to one before the next
    /// `most`.
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
        // Both neighbours side by side, and with them those of what is likely to come next.
        ties.get(low - 1..ties.len().min(high + NEXT_NEIGHBOURS))?.iter().for_each(|tie| tie.prefetch());
        let place = low + ties_before(&ties[low..high], sought);
        let is_confirmed =
            (place > low || is_lower(low - 1)) && (place < high || high == scores.len() || !is_lower(high));
        is_confirmed.then_some(at + place)
    }

    /// How many entries have lower bytes than what is sought, where all scores are equal.
    pub(super) fn before_bytes(&self, sought: Sought<'_>) -> usize {
        hinted_ties_before(self.ties(), self.skip, sought)
    }

    /// Where `score` and `bytes` belong.
    #[inline]
    pub(super) fn position(&self, score: f64, bytes: &[u8]) -> usize {
        self.before(score, Sought { bytes, past_equal: false })
    }

    /// Where the entry with this score and this handle lies, if it does. Looks at no bytes.
    #[inline]
    pub(super) fn find(&self, score: f64, tie: T) -> Option<usize> {
        let at = self.ties().iter().position(|other| *other == tie)?;
        (self.scores[at] == score).then_some(at)
    }

    /// Whether entry `at` may take the score `score` without changing its place among its neighbours here. Never true
    /// for the first and the last: those have neighbours elsewhere.
    pub(super) fn may_rescore(&self, at: usize, score: f64) -> bool {
        let (Some(before), Some((here, after))) = (at.checked_sub(1), self.get(at).zip(self.get(at + 1))) else {
            return false;
        };
        let (low, low_tie) = (self.scores[before], self.ties[before]);
        compare(low, low_tie.bytes(), score, here.1.bytes()).is_lt()
            && compare(score, here.1.bytes(), after.0, after.1.bytes()).is_lt()
    }
}
