//! Members and scores collected from several collections, for ZUNIONSTORE and similar commands.
//!
//! Members have no allocations of their own: their bytes share one, because most results are sent to a client or
//! packed, and need no records.

use super::{ZSet, ZSetLimits};
use crate::byte_order::{common_prefix, is_same, number_word, order_word};
use crate::hash::{ItemHash, TableHash};

/// A member and its score to this point.
struct ScoredSpan {
    score: f64,
    /// The range of its bytes.
    start: usize,
    end: usize,
}

/// First bit of the part of the hash in a slot. Below it is the entry's number, counted from one.
const HASH_SHIFT: u32 = 40;
/// Mask of an entry's number.
const NUMBER: u64 = (1 << HASH_SHIFT) - 1;

/// See the module's documentation.
#[derive(Default)]
pub struct ScoreMap {
    entries: Vec<ScoredSpan>,
    bytes: Vec<u8>,
    longest: usize,
    /// An open hash table of the members of all sources except the last: at least twice as many slots, a power of two.
    /// Free slots are 0.
    slots: Vec<u64>,
    /// Number of entries in the hash table.
    indexed: usize,
}

impl ScoreMap {
    /// Number of members to this point.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there are no members yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Begins the next source, with `len` members. They are looked up among those of all previous sources.
    pub fn begin_source(&mut self, len: usize) {
        self.entries.reserve(len);
        if self.entries.len() * 2 > self.slots.len() {
            self.slots = vec![0; (self.entries.len() * 2).next_power_of_two()];
            self.indexed = 0;
        }
        for index in self.indexed..self.entries.len() {
            let hash = ItemHash::of(self.member(index)).bits();
            let mask = self.slots.len() - 1;
            let mut at = hash as usize & mask;
            while self.slots[at] != 0 {
                at = (at + 1) & mask;
            }
            self.slots[at] = hash & !NUMBER | (index as u64 + 1);
        }
        self.indexed = self.entries.len();
    }

    /// Adds a member of a source, which contains it once. If previous sources contain it, its score is the result of
    /// `combine` for the old and the new score. Neither score may be NaN.
    #[inline]
    pub fn add(&mut self, member: &[u8], score: f64, combine: impl FnOnce(f64, f64) -> f64) {
        match self.find(member) {
            Some(index) => {
                let entry = &mut self.entries[index];
                entry.score = combine(entry.score, score);
            }
            None => self.push(member, score),
        }
    }

    /// Adds a member that is absent.
    #[inline]
    pub fn push(&mut self, member: &[u8], score: f64) {
        debug_assert!(!score.is_nan());
        let start = self.bytes.len();
        self.bytes.extend_from_slice(member);
        self.entries.push(ScoredSpan { score, start, end: self.bytes.len() });
        self.longest = self.longest.max(member.len());
    }

    fn member(&self, index: usize) -> &[u8] {
        let entry = &self.entries[index];
        &self.bytes[entry.start..entry.end]
    }

    /// Returns the entry of a member of the previous sources.
    #[inline]
    fn find(&self, member: &[u8]) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let hash = ItemHash::of(member).bits();
        let mut at = hash as usize & mask;
        loop {
            // The loop ends, because some slots are free.
            let slot = self.slots[at];
            let index = (slot & NUMBER).checked_sub(1)? as usize;
            if (slot ^ hash) >> HASH_SHIFT == 0 && is_same(self.member(index), member) {
                return Some(index);
            }
            at = (at + 1) & mask;
        }
    }

    /// Iterates over all members and their scores in the order of a sorted set.
    pub fn sorted(&self) -> impl ExactSizeIterator<Item = (&[u8], f64)> {
        let common = common_prefix((0..self.len()).map(|index| self.member(index)));
        let rank = |index: usize| Rank {
            score: number_word(self.entries[index].score),
            text: order_word(&self.member(index)[common..]),
            index,
        };
        let mut ranks: Vec<_> = (0..self.len()).map(rank).collect();
        ranks.sort_unstable_by(|a, b| {
            a.words().cmp(&b.words()).then_with(|| self.member(a.index).cmp(self.member(b.index)))
        });
        ranks.into_iter().map(|rank| (self.member(rank.index), self.entries[rank.index].score))
    }

    /// Returns the set of the members, in the form that suits its size.
    #[must_use]
    pub fn finish(self, limits: ZSetLimits) -> ZSet {
        ZSet::from_sorted(self.sorted(), self.longest, self.bytes.len(), limits)
    }
}

/// A member's sort key, as far as words express it.
struct Rank {
    score: u64,
    text: u64,
    index: usize,
}

impl Rank {
    /// Returns both words together, which are compared without a branch.
    #[inline]
    fn words(&self) -> u128 {
        u128::from(self.score) << u64::BITS | u128::from(self.text)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::random::Random;

    #[test]
    fn combined_sources_are_in_the_order_of_a_set() {
        let mut random = Random::new(5);
        for round in 0..if cfg!(miri) { 5 } else { 300 } {
            let mut map = ScoreMap::default();
            let mut model = BTreeMap::new();
            let names = &["prefix-", "prefix-other-", ""][..1 + random.below(3)];
            for _ in 0..1 + random.below(4) {
                let mut source = BTreeMap::new();
                for _ in 0..random.below(if cfg!(miri) { 20 } else { 300 }) {
                    let member = format!("{}{}", names[random.below(names.len())], random.below(400));
                    source.insert(member.into_bytes(), random.below(5) as f64 - 2.0);
                }
                map.begin_source(source.len());
                for (member, score) in source {
                    map.add(&member, score, |a, b| a + b);
                    *model.entry(member).or_insert(0.0) += score;
                }
            }
            let mut expected: Vec<(&[u8], f64)> = model.iter().map(|(member, score)| (&**member, *score)).collect();
            expected.sort_by(|a, b| a.1.partial_cmp(&b.1).unwrap().then(a.0.cmp(b.0)));
            assert_eq!(map.len(), expected.len());
            assert!(map.sorted().eq(expected.iter().copied()));
            let limits =
                ZSetLimits { entries_max: if round % 2 == 0 { 0 } else { usize::MAX }, ..ZSetLimits::default() };
            let encoding = if round % 2 == 0 && !expected.is_empty() { "skiplist" } else { "listpack" };
            let members: Vec<_> = expected.iter().map(|(member, score)| (member.to_vec(), *score)).collect();
            let set = map.finish(limits);
            assert_eq!(set.encoding(), encoding);
            assert!(set.iter().map(|(member, score)| (member.to_vec(), score)).eq(members));
        }
    }
}
