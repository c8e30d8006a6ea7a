//! A finger: where the last insertion went, for the next one that goes there.
//!
//! Insertions in ascending order (a bulk load, entries by time) go to the same leaf again and again, a few entries
//! further each time. The finger remembers that leaf: the new entry's neighbours in the leaf say whether it belongs
//! between them, and no node above is searched. **A finger can only cost time, never order**: a place is only taken if
//! its neighbours confirm it. So it may point anywhere, and moving or removing entries needn't update it.

use super::Tie;
use super::hints::Sought;
use super::node::{INNER_MAX, Inner, LEAF_MAX, Leaf, Node};

/// Bits of the way for each level.
const LEVEL_BITS: u32 = u8::BITS;
/// Levels of a tree that a finger knows, from the root down. With the fewest children that an inner node is left
/// with, a tree of more has tens of millions of entries; those have no finger.
const LEVELS: usize = (u64::BITS / LEVEL_BITS) as usize;

const _: () = assert!(INNER_MAX < 1 << LEVEL_BITS && LEAF_MAX < 1 << LEVEL_BITS);

/// How far behind the last place the next one is looked for, in entries. The leaf is searched otherwise.
const NEAR_MAX: usize = 16;

/// See the module's description.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Finger {
    /// On each level the child that the last insertion went into, and at the end its place in the leaf; the root's in
    /// the highest bits.
    way: u64,
    /// Whether the last insertion went to the leaf of the one before it, or to the next.
    is_near: bool,
}

impl Finger {
    /// To be called before an entry's place is sought from the root down, which says what is found there.
    #[inline]
    pub(super) fn start(&mut self) {
        self.is_near = true;
    }

    /// Takes note of the child that is entered from the node on this level.
    #[inline]
    pub(super) fn enter(&mut self, level: usize, kid: usize) {
        let steps = kid.wrapping_sub(self.at(level));
        self.is_near &= steps <= 1 && level < LEVELS;
        if steps != 0 {
            // In ascending order, another child is entered at its beginning.
            self.point(level, kid);
        }
    }

    /// Takes note of the place in the leaf on this level.
    #[inline]
    pub(super) fn arrive(&mut self, level: usize, place: usize) {
        self.is_near &= level < LEVELS;
        self.point(level, place);
    }

    /// Where it points on this level.
    #[inline]
    fn at(self, level: usize) -> usize {
        let rest = self.way.checked_shl(LEVEL_BITS * level as u32).unwrap_or(0);
        (rest >> (u64::BITS - LEVEL_BITS)) as usize
    }

    /// Points there on this level, and to the beginning of everything below.
    #[inline]
    fn point(&mut self, level: usize, at: usize) {
        if level < LEVELS {
            let bits = LEVEL_BITS * level as u32;
            let above = !(u64::MAX >> bits);
            self.way = self.way & above | (at as u64) << (u64::BITS - LEVEL_BITS - bits);
        }
    }

    /// Inserts into this tree if the place is near. In random order it hardly ever tries, since one of many is near
    /// the last one.
    #[inline]
    pub(super) fn insert<T: Tie>(&mut self, root: &mut Node<T>, score: f64, tie: T) -> bool {
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

/// A finger on its way down.
struct Pointer<'a> {
    finger: &'a mut Finger,
    level: usize,
    /// Whether nothing lies behind this node.
    is_last: bool,
}

impl Pointer<'_> {
    fn guess(&self) -> usize {
        self.finger.at(self.level)
    }
}

/// What a finger finds.
#[derive(PartialEq)]
enum Near {
    Inserted,
    /// The place is not before the end of this node.
    Beyond,
    /// It is somewhere else, or may be.
    Elsewhere,
}

impl<T: Tie> Node<T> {
    fn insert_near(&mut self, score: f64, tie: T, pointer: Pointer<'_>) -> Near {
        match self {
            Self::Empty => Near::Elsewhere,
            Self::Inner(inner) => inner.insert_near(score, tie, pointer),
            Self::Leaf(leaf) => insert_near(leaf, score, tie, pointer),
        }
    }
}

impl<T: Tie> Inner<T> {
    /// Inserts into the child that the finger points to, or at the beginning of the one behind it.
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

/// Inserts behind the entry that the finger points to, if there is room.
fn insert_near<T: Tie>(leaf: &mut Leaf<T>, score: f64, tie: T, pointer: Pointer<'_>) -> Near {
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
