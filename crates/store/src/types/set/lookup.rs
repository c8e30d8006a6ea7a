//! Lookups of many members in one set, for operations on several sets.

use super::{Form, Set};
use crate::byte_order::order_word;
use crate::types::packed::{Item, Packed, Pos};

/// A set prepared for lookups of many members. A packed block is read only once for all of them: the offset of each
/// item depends on the item before, so every walk through a block waits for one item after another.
pub struct Lookup<'s> {
    set: &'s Set,
    /// The items of a packed block, in order: the upper half is the [mark](mark_of), the lower half is the item's
    /// offset.
    marks: Option<(&'s Packed, Vec<u64>)>,
}

/// First bit of the mark.
const MARK_SHIFT: u32 = 32;
/// Minimum number of lookups for which reading the block first pays off.
const LOOKUPS_MIN: usize = 6;

/// Returns some bits that differ between most members.
#[inline]
fn mark_of(member: &[u8]) -> u64 {
    /// An odd number with irregular bits: the upper half of its product depends on all bits of the factor.
    const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
    // Names often share a prefix, so the end is mixed in.
    let end = member.last_chunk().map_or(0, |end| u64::from_le_bytes(*end));
    (order_word(member) ^ end).wrapping_mul(MIX) >> MARK_SHIFT
}

impl<'s> Lookup<'s> {
    /// Prepares a set for about `lookups` lookups.
    #[must_use]
    pub fn of(set: &'s Set, lookups: usize) -> Self {
        let marks = match &set.0 {
            Form::Packed(packed) if lookups >= LOOKUPS_MIN => Some((packed, marks(packed))),
            _ => None,
        };
        Self { set, marks }
    }

    /// Returns true if the set contains this member.
    #[inline]
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        let Some((packed, marks)) = &self.marks else { return self.set.contains(member) };
        let sought = mark_of(member);
        marks.iter().any(|mark| mark >> MARK_SHIFT == sought && is_at(packed, *mark, member))
    }
}

fn marks(packed: &Packed) -> Vec<u64> {
    let mut marks = Vec::with_capacity(packed.len());
    let mut pos = Pos::default();
    while let Some((item, next)) = packed.read(pos) {
        marks.push(item.with_bytes(mark_of) << MARK_SHIFT | pos.at() as u64);
        pos = next;
    }
    marks
}

/// Returns true if the item with this mark equals the member.
#[inline]
fn is_at(packed: &Packed, mark: u64, member: &[u8]) -> bool {
    let item: Item<'_> = packed.item_at(Pos::new((mark & u64::from(u32::MAX)) as usize));
    item.eq_bytes(member)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::types::set::SetLimits;

    #[test]
    fn lookups_agree_with_the_set_in_every_form() {
        let mut random = Random::new(11);
        let mut drawn = |words: &[&str]| -> Vec<u8> {
            let number = random.below(40);
            format!("{}{number}{}", words[random.below(words.len())], words[random.below(words.len())]).into_bytes()
        };
        let many = if cfg!(miri) { 12 } else { 120 };
        for (words, entries_max) in [(&[""][..], 128), (&["", "m:", "-", "a longer one:"], 128), (&["", "x"], 2)] {
            let limits = SetLimits { listpack_entries: entries_max, ..SetLimits::default() };
            for count in [0, 1, 5, many] {
                let mut set = Set::new();
                (0..count).for_each(|_| _ = set.insert(&drawn(words), &limits));
                for lookups in [0, LOOKUPS_MIN, 100] {
                    let lookup = Lookup::of(&set, lookups);
                    set.for_each(|member| assert!(lookup.contains(member)));
                    for _ in 0..many {
                        let member = drawn(words);
                        assert_eq!(lookup.contains(&member), set.contains(&member), "{member:?}");
                    }
                }
            }
        }
    }
}
