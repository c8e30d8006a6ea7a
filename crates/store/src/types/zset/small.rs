//! The small form of a sorted set: a packed block of alternating members and scores, in ascending order.
//!
//! An integer score is stored as an integer; any other score is stored as the 8 bytes of its binary form, little
//! endian. Both are exact, and need no parsing, in contrast to Redis's text.

use std::ops::Range;

use crate::byte_order::compare;
use crate::compact::Mover;
use crate::prefetch::Ahead;
use crate::types::bptree::Boundary;
use crate::types::packed::{Item, ItemText, Needle, Packed, Pos, decode, size};

/// Items of a pair.
const PAIR: usize = 2;
/// Upper bound for the size of a score and of two items' heads, in bytes.
const PAIR_OVERHEAD_MAX: usize = 32;

/// A score to be written into a block.
struct Score {
    score: f64,
    binary: [u8; size_of::<f64>()],
}

impl Score {
    fn new(score: f64) -> Self {
        Self { score, binary: score.to_bits().to_le_bytes() }
    }

    fn item(&self) -> Item<'_> {
        // Out of range, the cast saturates. Minus zero loses its sign, as in Redis's small form (but not in its big
        // one).
        let integer = self.score as i64;
        if integer as f64 == self.score { Item::Int(integer) } else { Item::Str(&self.binary) }
    }
}

/// Returns the score in an item of a small sorted set.
#[inline]
#[must_use]
pub fn score_of(item: Item<'_>) -> f64 {
    match item {
        Item::Int(integer) => integer as f64,
        Item::Str(binary) => binary.first_chunk().map_or(0.0, |binary| f64::from_bits(u64::from_le_bytes(*binary))),
    }
}

/// The result of one walk. Valid until the set changes.
pub struct Seek {
    /// The position of the member's pair and its score, if it exists.
    pub found: Option<(Pos, f64)>,
    /// The position of the first pair not below the sought one, or the end.
    goal: Pos,
}

/// See the module's documentation.
#[derive(Clone, Default)]
pub struct PackedZSet(Packed);

impl PackedZSet {
    /// Moves the block, if `mover` selects it.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        self.0.compact(mover);
    }
}

impl PackedZSet {
    /// Returns a set of these members, which are unique and in ascending order.
    pub fn from_sorted<'a>(sorted: impl IntoIterator<Item = (&'a [u8], f64)>) -> Self {
        let pairs: Vec<_> = sorted.into_iter().map(|(member, score)| (member, Score::new(score))).collect();
        let mut block = Packed::new();
        block.extend(pairs.iter().flat_map(|(member, score)| [Item::from(*member), score.item()]));
        Self(block)
    }

    /// Returns the set of a block of alternating members and integer scores, which are unique and in ascending order.
    pub fn from_packed(block: Packed) -> Self {
        Self(block)
    }

    /// The block of members and scores.
    pub fn packed(&self) -> &Packed {
        &self.0
    }

    #[inline]
    pub fn prefetch(&self, ahead: Ahead<'_>) {
        if let Ahead::Value = ahead {
            self.0.prefetch();
        }
    }

    pub fn len(&self) -> usize {
        self.0.len() / PAIR
    }

    pub fn allocated_bytes(&self) -> usize {
        self.0.allocated_bytes()
    }

    /// Returns true if a block can take this many more members with `bytes` bytes in total.
    pub fn has_room_for(&self, members: usize, bytes: usize) -> bool {
        self.0.has_room_for(members.saturating_mul(PAIR_OVERHEAD_MAX).saturating_add(bytes))
    }

    /// Returns the pair at `pos`: the member, the position of its score, the score, and the position of the end.
    #[inline]
    fn pair(&self, pos: Pos) -> Option<(Item<'_>, Pos, f64, Pos)> {
        let (member, score_pos) = self.0.read(pos)?;
        let (score, end) = self.0.read(score_pos)?;
        Some((member, score_pos, score_of(score), end))
    }

    /// Returns the position of a member's pair.
    fn find(&self, member: &[u8]) -> Option<Pos> {
        self.0.find(member, PAIR)
    }

    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.pair(self.find(member)?).map(|(_, _, score, _)| score)
    }

    /// Finds a member, and the place for it with this score, in one walk.
    #[inline]
    pub fn seek(&self, member: &[u8], score: f64) -> Seek {
        let (needle, items) = (Needle::of(Item::from(member)), self.0.items());
        let (mut at, mut found) = (0, None);
        while at < items.len() {
            let (other, member_size) = decode(&items[at..]);
            let (other_score, score_size) = decode(&items[at + member_size..]);
            let other_score = score_of(other_score);
            if other_score < score {
                if needle.is(other) {
                    found = Some(Pos::new(at));
                }
            } else if other_score > score || other.with_bytes(|other| compare(other, member)).is_ge() {
                break;
            }
            at += member_size + score_size;
        }
        let goal = Pos::new(at);
        let found = found.or_else(|| self.0.find_from(goal, needle, PAIR));
        Seek { found: found.and_then(|pos| Some((pos, self.pair(pos)?.2))), goal }
    }

    /// Adds a member that is absent, at the place that was found.
    #[inline]
    pub fn add(&mut self, seek: &Seek, member: &[u8], score: f64) {
        self.0.insert_pair_at(seek.goal, member, Score::new(score).item());
    }

    /// Changes the score of the member at `pos` to the one that was sought, which differs from the present one.
    pub fn update(&mut self, pos: Pos, seek: &Seek, member: &[u8], score: f64) {
        let Some((_, score_pos, _, end)) = self.pair(pos) else { return };
        let (goal, new) = (seek.goal, Score::new(score));
        if goal == pos || goal == end {
            self.0.replace_at(score_pos, new.item());
        } else if goal < pos {
            self.0.remove_at(pos, PAIR);
            self.0.insert_pair_at(goal, member, new.item());
        } else {
            self.0.insert_pair_at(goal, member, new.item());
            self.0.remove_at(pos, PAIR);
        }
    }

    pub fn remove(&mut self, member: &[u8]) -> bool {
        self.find(member).map(|pos| self.0.remove_at(pos, PAIR)).is_some()
    }

    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        let (needle, items) = (Needle::of(Item::from(member)), self.0.items());
        let (mut at, mut rank) = (0, 0);
        while at < items.len() {
            let score_at = at + size(&items[at..]);
            if needle.is_at(&items[at..]) {
                return Some((rank, score_of(decode(&items[score_at..]).0)));
            }
            at = score_at + size(&items[score_at..]);
            rank += 1;
        }
        None
    }

    /// Counts the pairs before `boundary`.
    pub fn entries_before(&self, boundary: Boundary<'_>) -> usize {
        let Some(mut pos) = self.0.first_pos() else { return 0 };
        let mut count = 0;
        while let Some((member, _, score, end)) = self.pair(pos) {
            if !member.with_bytes(|member| boundary.is_after(score, member)) {
                break;
            }
            (pos, count) = (end, count + 1);
        }
        count
    }

    /// Returns the position of the pair of this rank, or the end.
    fn pos_of(&self, rank: usize) -> Pos {
        rank.checked_mul(PAIR).and_then(|index| self.0.pos_of(index)).unwrap_or_else(|| self.0.end_pos())
    }

    pub fn iter(&self, ranks: Range<usize>, reverse: bool) -> Iter<'_> {
        let end = ranks.end.min(self.len());
        let start = ranks.start.min(end);
        Iter { block: &self.0, pos: self.pos_of(if reverse { end } else { start }), left: end - start, reverse }
    }

    pub fn remove_ranks(&mut self, ranks: Range<usize>) {
        let end = ranks.end.min(self.len());
        if ranks.start < end {
            self.0.remove_at(self.pos_of(ranks.start), (end - ranks.start) * PAIR);
        }
    }
}

/// Iterates over members and scores by rank.
pub struct Iter<'a> {
    block: &'a Packed,
    pos: Pos,
    left: usize,
    reverse: bool,
}

impl<'a> Iterator for Iter<'a> {
    type Item = (ItemText<'a>, f64);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        if self.reverse {
            let score = self.block.prev(self.pos)?;
            self.pos = self.block.prev(score)?;
            return Some((self.block.item_at(self.pos).text(), score_of(self.block.item_at(score))));
        }
        let (member, score) = self.block.read(self.pos)?;
        let (score, end) = self.block.read(score)?;
        self.pos = end;
        Some((member.text(), score_of(score)))
    }

    #[inline]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(mut self, init: B, mut visit: F) -> B {
        let mut result = init;
        if self.reverse {
            for pair in self.by_ref() {
                result = visit(result, pair);
            }
            return result;
        }
        let mut items = self.block.items().get(self.pos.at()..).unwrap_or_default();
        for _ in 0..self.left {
            let (member, member_size) = decode(items);
            let (score, score_size) = decode(&items[member_size..]);
            result = visit(result, (member.text(), score_of(score)));
            items = &items[member_size + score_size..];
        }
        result
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_return_bit_for_bit() {
        let big = (1u64 << 63) as f64;
        let integers = [0.0, 1.0, -1.0, 127.0, 4096.0, (1u64 << 53) as f64, big, -big, big / -8.0];
        let others = [0.1, -2.5, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, f64::NEG_INFINITY, big * 2.0];
        for score in integers.into_iter().chain(others) {
            let stored = Score::new(score);
            assert_eq!(score_of(stored.item()).to_bits(), score.to_bits(), "{score}");
            assert_eq!(matches!(stored.item(), Item::Int(_)), integers.iter().any(|n| n.to_bits() == score.to_bits()));
        }
        assert_eq!(score_of(Score::new(-0.0).item()).to_bits(), 0);
    }
}
