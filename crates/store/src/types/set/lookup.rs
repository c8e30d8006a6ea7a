//! Looking for many members in one set, which operations on several sets do.

use super::{Form, Set};
use crate::types::packed::{Item, Packed, Pos};
use crate::words::order_word;

/// A set in which members are to be looked for. A packed block is read once for all of them: what leads from one item to
/// the next is in the item, so that each walk through a block takes the time that the processor waits for every item.
pub struct Lookup<'s> {
    set: &'s Set,
    /// Of a packed block's items, in their order: the [mark](mark_of) above, and below where the item begins.
    marks: Option<(&'s Packed, Vec<u64>)>,
}

/// Where the mark begins.
const MARK_SHIFT: u32 = 32;
/// Lookups from which on it pays to read a block first.
const LOOKUPS_MIN: usize = 6;

/// Some bits by which most members differ.
#[inline]
fn mark_of(member: &[u8]) -> u64 {
    /// An odd number with bits in no pattern: the upper half of a product with it depends on all bits.
    const MIX: u64 = 0x9E37_79B9_7F4A_7C15;
    // Names that differ often begin alike, hence the end.
    let end = member.last_chunk().map_or(0, |end| u64::from_le_bytes(*end));
    (order_word(member) ^ end).wrapping_mul(MIX) >> MARK_SHIFT
}

impl<'s> Lookup<'s> {
    /// Of about so many members.
    #[must_use]
    pub fn of(set: &'s Set, lookups: usize) -> Self {
        let marks = match &set.0 {
            Form::Packed(packed) if lookups >= LOOKUPS_MIN => Some((packed, marks(packed))),
            _ => None,
        };
        Self { set, marks }
    }

    /// Whether this is a member.
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

/// Whether the item that a mark belongs to is this member.
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
    fn finds_what_the_set_has_in_every_form() {
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
