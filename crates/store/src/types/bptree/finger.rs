//! A finger: the place of the last insertion, as a starting point for the next one.
//!
//! Insertions in ascending order (a bulk load, entries by time) go to the same leaf repeatedly, each time a few entries
//! further. The finger remembers that leaf: the new entry's neighbours in the leaf show if it belongs between them, and
//! no node above is searched. **A finger can only cost time, never order**: a place is used only if its neighbours
//! confirm it. Therefore the finger may point anywhere, and moves and removals of entries need not update it.

use super::MemberHandle;
use super::hints::Sought;
use super::node::{INNER_MAX, Inner, LEAF_MAX, Leaf, Node};

/// Bits of the path per level.
const LEVEL_BITS: u32 = u8::BITS;
/// Levels that a finger covers, from the root down. A higher tree has at least tens of millions of entries, even if its
/// inner nodes have the minimum of children; such trees have no finger.
const LEVELS: usize = (u64::BITS / LEVEL_BITS) as usize;

const _: () = assert!(INNER_MAX < 1 << LEVEL_BITS && LEAF_MAX < 1 << LEVEL_BITS);

/// Maximum distance behind the last place at which the next one is tried, in entries. Otherwise the leaf is searched.
const NEAR_MAX: usize = 16;

/// See the module's description.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Finger {
    /// The index of the last insertion's child on each level, and finally its place in the leaf. The root's index is in
    /// the highest bits.
    way: u64,
    /// True if the last insertion went to the same leaf as the one before it, or to the next leaf.
    is_near: bool,
}

impl Finger {
    /// Call before a descent from the root, which then reports its path through `enter` and `arrive`.
    #[inline]
    pub(super) fn start(&mut self) {
        self.is_near = true;
    }

    /// Records the child that the descent enters on this level.
    #[inline]
    pub(super) fn enter(&mut self, level: usize, kid: usize) {
        let steps = kid.wrapping_sub(self.at(level));
        self.is_near &= steps <= 1 && level < LEVELS;
        if steps != 0 {
            // In ascending order, another child is entered at its beginning.
            self.point(level, kid);
        }
    }

    /// Records the place in the leaf on this level.
    #[inline]
    pub(super) fn arrive(&mut self, level: usize, place: usize) {
        self.is_near &= level < LEVELS;
        self.point(level, place);
    }

    /// Returns the index on this level.
    #[inline]
    fn at(self, level: usize) -> usize {
        let rest = self.way.checked_shl(LEVEL_BITS * level as u32).unwrap_or(0);
        (rest >> (u64::BITS - LEVEL_BITS)) as usize
    }

    /// Sets the index on this level, and resets all levels below to the beginning.
    #[inline]
    fn point(&mut self, level: usize, at: usize) {
        if level < LEVELS {
            let bits = LEVEL_BITS * level as u32;
            let above = !(u64::MAX >> bits);
            self.way = self.way & above | (at as u64) << (u64::BITS - LEVEL_BITS - bits);
        }
    }

    /// Inserts into this tree if the place is near. With random order it rarely tries, because few insertions are near
    /// the previous one.
    #[inline]
    pub(super) fn insert<T: MemberHandle>(&mut self, root: &mut Node<T>, score: f64, tie: T) -> bool {
        if !self.is_near {
            return false;
        }
        let mut moved = *self;
        let found = root.insert_near(score, tie, Pointer { finger: &mut moved, level: 0, is_last: true });
        if found == Near::Inserted {
            *self = moved;
        }
        found == Near::Inserted
    }
}

/// A finger during its descent.
struct Pointer<'a> {
    finger: &'a mut Finger,
    level: usize,
    /// True if nothing is behind this node.
    is_last: bool,
}

impl Pointer<'_> {
    fn guess(&self) -> usize {
        self.finger.at(self.level)
    }
}

/// The result of an attempt with a finger.
#[derive(PartialEq)]
enum Near {
    Inserted,
    /// The place is behind this node.
    Beyond,
    /// The place is, or may be, elsewhere.
    Elsewhere,
}

impl<T: MemberHandle> Node<T> {
    fn insert_near(&mut self, score: f64, tie: T, pointer: Pointer<'_>) -> Near {
        match self {
            Self::Empty => Near::Elsewhere,
            Self::Inner(inner) => inner.insert_near(score, tie, pointer),
            Self::Leaf(leaf) => insert_near(leaf, score, tie, pointer),
        }
    }
}

impl<T: MemberHandle> Inner<T> {
    /// Inserts into the child that the finger points to, or at the beginning of the next one.
    fn insert_near(&mut self, score: f64, tie: T, pointer: Pointer<'_>) -> Near {
        let (mut kid, last) = (pointer.guess(), self.len() - 1);
        let Pointer { finger, level, is_last } = pointer;
        if kid > last {
            return Near::Elsewhere;
        }
        let mut try_kid = |kid: usize| {
            finger.enter(level, kid);
            let below = Pointer { finger, level: level + 1, is_last: is_last && kid == last };
            self.kids[kid].insert_near(score, tie, below)
        };
        let mut found = try_kid(kid);
        if found == Near::Beyond && kid < last {
            kid += 1;
            found = try_kid(kid);
        }
        self.counts[kid] += usize::from(found == Near::Inserted);
        found
    }
}

/// Inserts behind the entry that the finger points to, if the leaf is not full.
fn insert_near<T: MemberHandle>(leaf: &mut Leaf<T>, score: f64, tie: T, pointer: Pointer<'_>) -> Near {
    let sought = Sought { bytes: tie.bytes(), past_equal: false };
    match leaf.right_behind(pointer.guess(), NEAR_MAX, score, sought) {
        Some(place) if place == leaf.len() && !pointer.is_last => Near::Beyond,
        Some(place) if leaf.len() < LEAF_MAX => {
            leaf.insert(place, score, tie);
            pointer.finger.arrive(pointer.level, place);
            Near::Inserted
        }
        _ => Near::Elsewhere,
    }
}
