//! Sorted sets of integers in one block: the smallest form of a set with integer members only.
//!
//! All integers of one set have the same width, the narrowest that holds them: 16, 32 or 64 bits. A wider integer
//! widens the set; as in Redis, its removal does not narrow the set again. A change moves all bytes behind it, so the
//! owner, which knows the limit, converts to another form before that becomes slow.

use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::Range;

use super::block::Block;
use crate::compact::Mover;

/// A set so many times as large as another one is searched for the other's integers instead of walked.
const SEARCHED_RATIO: usize = 16;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct IntSet(Ints);

#[derive(Clone, Debug)]
enum Ints {
    W16(Sorted<i16>),
    W32(Sorted<i32>),
    W64(Sorted<i64>),
}

/// Evaluates an expression on the integers of any width.
macro_rules! of_any_width {
    ($set:expr, $ints:ident => $result:expr) => {
        match $set {
            Ints::W16($ints) => $result,
            Ints::W32($ints) => $result,
            Ints::W64($ints) => $result,
        }
    };
}

impl Default for IntSet {
    fn default() -> Self {
        IntSet::new()
    }
}

impl IntSet {
    /// Returns an empty set, which allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        IntSet(Ints::W16(Sorted::new()))
    }

    /// Prefetches the beginning.
    #[inline]
    pub fn prefetch(&self) {
        of_any_width!(&self.0, ints => ints.block.prefetch());
    }

    /// Moves the integers, if `mover` selects them.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        of_any_width!(&mut self.0, ints => ints.block.compact(mover));
    }

    /// Number of integers.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        of_any_width!(&self.0, ints => ints.len())
    }

    /// Returns true if there are no integers.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the set contains this integer.
    #[inline]
    #[must_use]
    pub fn contains(&self, value: i64) -> bool {
        self.position(value).is_some()
    }

    /// Returns the index of this integer in ascending order.
    #[must_use]
    pub fn position(&self, value: i64) -> Option<usize> {
        match &self.0 {
            Ints::W16(ints) => ints.search(i16::try_from(value).ok()?).ok(),
            Ints::W32(ints) => ints.search(i32::try_from(value).ok()?).ok(),
            Ints::W64(ints) => ints.search(value).ok(),
        }
    }

    /// Returns the integer at this index in ascending order.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<i64> {
        of_any_width!(&self.0, ints => ints.get(index))
    }

    /// Adds an integer; returns false if it was present.
    pub fn insert(&mut self, value: i64) -> bool {
        match &mut self.0 {
            Ints::W16(ints) => {
                if let Ok(narrow) = value.try_into() {
                    return ints.insert(narrow);
                }
            }
            Ints::W32(ints) => {
                if let Ok(narrow) = value.try_into() {
                    return ints.insert(narrow);
                }
            }
            Ints::W64(ints) => return ints.insert(value),
        }
        self.widen_with(value);
        true
    }

    /// Adds an integer that needs more bits than the set's width.
    fn widen_with(&mut self, value: i64) {
        // It is less or greater than all others, so it becomes the first or the last.
        let (below, above) = if value < 0 { (Some(value), None) } else { (None, Some(value)) };
        let all = below.into_iter().chain(self.iter()).chain(above);
        self.0 = if i32::try_from(value).is_ok() {
            // The other integers are narrower, so the cast loses nothing.
            Ints::W32(Sorted::of(self.len() + 1, all.map(|int| int as i32)))
        } else {
            Ints::W64(Sorted::of(self.len() + 1, all))
        };
    }

    /// Returns a set of integers that are in ascending order without duplicates.
    #[must_use]
    pub fn of_ascending(ints: impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + Clone) -> IntSet {
        let ends = [ints.clone().next(), ints.clone().next_back()];
        let fits = |least: i64, greatest: i64| ends.iter().flatten().all(|end| (least..=greatest).contains(end));
        let count = ints.len();
        IntSet(if fits(i16::MIN.into(), i16::MAX.into()) {
            Ints::W16(Sorted::of(count, ints.map(|int| int as i16)))
        } else if fits(i32::MIN.into(), i32::MAX.into()) {
            Ints::W32(Sorted::of(count, ints.map(|int| int as i32)))
        } else {
            Ints::W64(Sorted::of(count, ints))
        })
    }

    /// Removes an integer; returns false if it was absent.
    pub fn remove(&mut self, value: i64) -> bool {
        self.position(value).and_then(|index| self.remove_at(index)).is_some()
    }

    /// Removes and returns the integer at this index in ascending order.
    pub fn remove_at(&mut self, index: usize) -> Option<i64> {
        of_any_width!(&mut self.0, ints => ints.remove_at(index))
    }

    /// Returns the width of each integer in bytes (2, 4 or 8), and the bytes of all: ascending, in two's complement,
    /// little endian.
    #[must_use]
    pub fn raw(&self) -> (usize, &[u8]) {
        let bytes = of_any_width!(&self.0, ints => ints.block.bytes());
        let width = match self.0 {
            Ints::W16(_) => size_of::<i16>(),
            Ints::W32(_) => size_of::<i32>(),
            Ints::W64(_) => size_of::<i64>(),
        };
        (width, bytes)
    }

    /// Keeps those of some ascending integers that this set has, or those that it lacks.
    pub fn filter(&self, ascending: &mut Vec<i64>, keeps_present: bool) {
        // Searches cost less than a walk if this set is much larger.
        if self.len() / SEARCHED_RATIO > ascending.len() {
            return ascending.retain(|&int| self.contains(int) == keeps_present);
        }
        let mut own = self.iter().peekable();
        ascending.retain(|&int| {
            while own.next_if(|&lower| lower < int).is_some() {}
            (own.peek() == Some(&int)) == keeps_present
        });
    }

    /// Iterates over the integers in ascending order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { set: self, indexes: 0..self.len() }
    }

    /// Bytes of the allocation.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        of_any_width!(&self.0, ints => ints.block.allocated_bytes())
    }
}

impl Extend<i64> for IntSet {
    fn extend<I: IntoIterator<Item = i64>>(&mut self, values: I) {
        values.into_iter().for_each(|value| {
            self.insert(value);
        });
    }
}

impl FromIterator<i64> for IntSet {
    fn from_iter<I: IntoIterator<Item = i64>>(values: I) -> Self {
        let mut set = IntSet::new();
        set.extend(values);
        set
    }
}

/// An integer of one width, as stored in a block.
trait Width: Copy + Ord + Into<i64> {
    /// Its bytes.
    type Bytes: Copy + AsRef<[u8]>;

    /// Returns the integers of a block.
    fn all(bytes: &[u8]) -> &[Self::Bytes];
    fn read(bytes: Self::Bytes) -> Self;
    fn bytes(self) -> Self::Bytes;
}

macro_rules! widths {
    ($($int:ident),*) => {$(
        impl Width for $int {
            type Bytes = [u8; size_of::<$int>()];

            #[inline]
            fn all(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }
            #[inline]
            fn read(bytes: Self::Bytes) -> Self {
                $int::from_le_bytes(bytes)
            }
            #[inline]
            fn bytes(self) -> Self::Bytes {
                self.to_le_bytes()
            }
        }
    )*};
}

widths!(i16, i32, i64);

/// Integers of one width, ascending, without duplicates.
#[derive(Clone, Debug)]
struct Sorted<T> {
    block: Block,
    width: PhantomData<T>,
}

impl<T: Width> Sorted<T> {
    fn new() -> Self {
        Sorted { block: Block::new(), width: PhantomData }
    }

    /// Returns a block of `count` integers that are in ascending order.
    fn of(count: usize, ints: impl Iterator<Item = T>) -> Self {
        let mut block = Block::new();
        let places = block.splice(0, 0, count * size_of::<T>()).chunks_exact_mut(size_of::<T>());
        places.zip(ints).for_each(|(place, int)| place.copy_from_slice(int.bytes().as_ref()));
        Sorted { block, width: PhantomData }
    }

    #[inline]
    fn all(&self) -> &[T::Bytes] {
        T::all(self.block.bytes())
    }

    fn len(&self) -> usize {
        self.all().len()
    }

    #[inline]
    fn get(&self, index: usize) -> Option<i64> {
        self.all().get(index).map(|&bytes| T::read(bytes).into())
    }

    /// Returns the index of an integer, or the index at which to insert it.
    fn search(&self, value: T) -> Result<usize, usize> {
        self.all().binary_search_by_key(&value, |&bytes| T::read(bytes))
    }

    /// Adds an integer; returns false if it was present.
    fn insert(&mut self, value: T) -> bool {
        let Err(index) = self.search(value) else { return false };
        let size = size_of::<T>();
        self.block.splice(index * size, 0, size).copy_from_slice(value.bytes().as_ref());
        true
    }

    fn remove_at(&mut self, index: usize) -> Option<i64> {
        let removed = self.get(index)?;
        self.block.splice(index * size_of::<T>(), size_of::<T>(), 0);
        Some(removed)
    }
}

/// Iterates over the integers of a set in ascending order, from either end.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    set: &'a IntSet,
    indexes: Range<usize>,
}

impl Iterator for Iter<'_> {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        self.set.get(self.indexes.next()?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.indexes.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<i64> {
        self.set.get(self.indexes.nth(n)?)
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<i64> {
        self.set.get(self.indexes.next_back()?)
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::random::Random;

    fn check(set: &IntSet, model: &BTreeSet<i64>) {
        assert_eq!(set.len(), model.len());
        assert_eq!(set.is_empty(), model.is_empty());
        assert!(set.iter().eq(model.iter().copied()));
        assert!(set.iter().rev().eq(model.iter().rev().copied()));
        assert_eq!(set.get(model.len()), None);
        assert_eq!(set.iter().nth(model.len() / 2), set.get(model.len() / 2));
    }

    /// Returns an integer near the limits of a width. The widest are rare, because they widen the set for good.
    fn border(random: &mut Random) -> i64 {
        let near = [0, i64::from(i16::MIN), i64::from(i16::MAX), i64::from(i32::MIN), i64::from(i32::MAX), i64::MIN];
        let count = if random.below(20) == 0 { near.len() } else { 3 };
        near[random.below(count)].wrapping_add(random.below(7) as i64 - 3)
    }

    #[test]
    fn a_set_of_integers_behaves_like_an_ordered_set() {
        for seed in 0..20 {
            let (mut set, mut model, random) = (IntSet::new(), BTreeSet::new(), &mut Random::new(seed));
            for _ in 0..if cfg!(miri) { 20 } else { 300 } {
                let value = border(random);
                assert_eq!(set.contains(value), model.contains(&value));
                match random.below(4) {
                    0 => assert_eq!(set.remove(value), model.remove(&value)),
                    1 if !model.is_empty() => {
                        let index = random.below(model.len());
                        let expected = model.iter().nth(index).copied();
                        assert_eq!(set.remove_at(index), expected);
                        expected.map(|value| model.remove(&value));
                    }
                    _ => assert_eq!(set.insert(value), model.insert(value)),
                }
                check(&set, &model);
            }
        }
    }

    #[test]
    fn a_set_is_as_wide_as_its_widest_integer_ever() {
        let mut set = IntSet::new();
        for (value, bytes) in [(1, 16), (-32_768, 16), (32_767, 16), (32_768, 24), (-1 << 31, 32), (-1 - (1 << 31), 56)]
        {
            assert!(set.insert(value));
            assert_eq!(set.memory_bytes(), bytes, "{value}");
        }
        assert!(set.remove(-1 - (1 << 31)));
        assert_eq!(set.memory_bytes(), 48);
    }

    #[test]
    fn a_set_of_ascending_integers_equals_one_by_insertion() {
        let (least, greatest) = (i64::from(i16::MIN), i64::from(i16::MAX));
        for ints in [
            &[][..],
            &[7],
            &[least, 0, greatest],
            &[least - 1, 0],
            &[0, greatest + 1],
            &[i64::from(i32::MIN), 1, i64::from(i32::MAX)],
            &[0, i64::from(i32::MAX) + 1],
            &[i64::MIN, i64::MAX],
        ] {
            let (made, inserted) =
                (IntSet::of_ascending(ints.iter().copied()), ints.iter().copied().collect::<IntSet>());
            assert_eq!(made.raw(), inserted.raw(), "{ints:?}");
            check(&made, &ints.iter().copied().collect());
        }
    }

    #[test]
    fn integers_are_filtered_by_walks_and_by_searches() {
        let random = &mut Random::new(3);
        for (few, many) in [(0, 9), (9, 0), (1, 200), (5, 79), (5, 81), (60, 60), (200, 3)] {
            let mut draw = |count: usize| (0..count).map(|_| random.below(300) as i64 - 150).collect::<BTreeSet<i64>>();
            let (first, other) = (draw(few), draw(many));
            let set: IntSet = other.iter().copied().collect();
            for keeps_present in [true, false] {
                let mut filtered: Vec<i64> = first.iter().copied().collect();
                set.filter(&mut filtered, keeps_present);
                let expected = first.iter().copied().filter(|int| other.contains(int) == keeps_present);
                assert!(filtered.iter().copied().eq(expected), "{few} {many} {keeps_present}");
            }
        }
    }

    #[test]
    fn integers_beyond_the_width_are_absent() {
        let mut set: IntSet = [1, 2, 3].into_iter().collect();
        for value in [65_537, -65_535, i64::MAX, i64::MIN] {
            assert!(!set.contains(value));
            assert!(!set.remove(value));
        }
        assert_eq!(set.remove_at(3), None);
    }
}
