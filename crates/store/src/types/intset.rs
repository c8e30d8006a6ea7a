//! Sorted sets of integers without slack: the smallest form of a set whose members are all integers.
//!
//! All integers of one set have the same width, the narrowest that holds them: 16, 32 or 64 bits. A wider one widens the
//! set; as in Redis, removing it doesn't narrow it again. A change moves what lies behind it, hence the owner (which
//! also knows the limit) converts to another form before that becomes slow.

use std::iter::FusedIterator;
use std::mem;
use std::ops::Range;

use crate::prefetch::prefetch;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct IntSet(Ints);

/// Ascending, without duplicates.
#[derive(Clone, Debug)]
enum Ints {
    W16(Box<[i16]>),
    W32(Box<[i32]>),
    W64(Box<[i64]>),
}

/// Runs an expression on the integers of whichever width.
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
    /// An empty set, which allocates nothing.
    #[must_use]
    pub fn new() -> Self {
        IntSet(Ints::W16(Box::default()))
    }

    /// Asks the processor for the middle, where every search begins.
    #[inline]
    pub fn prefetch(&self) {
        prefetch(of_any_width!(&self.0, ints => ints.as_ptr().wrapping_add(ints.len() / 2).cast()));
    }

    /// How many integers there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        of_any_width!(&self.0, ints => ints.len())
    }

    /// Whether there is none.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this integer is in the set.
    #[inline]
    #[must_use]
    pub fn contains(&self, value: i64) -> bool {
        self.position(value).is_some()
    }

    /// The index of this integer in ascending order.
    #[must_use]
    pub fn position(&self, value: i64) -> Option<usize> {
        match &self.0 {
            Ints::W16(ints) => ints.binary_search(&i16::try_from(value).ok()?).ok(),
            Ints::W32(ints) => ints.binary_search(&i32::try_from(value).ok()?).ok(),
            Ints::W64(ints) => ints.binary_search(&value).ok(),
        }
    }

    /// The integer at this index in ascending order.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<i64> {
        of_any_width!(&self.0, ints => get(ints, index))
    }

    /// Adds an integer; false if it was there.
    pub fn insert(&mut self, value: i64) -> bool {
        match &mut self.0 {
            Ints::W16(ints) => {
                if let Ok(narrow) = value.try_into() {
                    return insert_sorted(ints, narrow);
                }
            }
            Ints::W32(ints) => {
                if let Ok(narrow) = value.try_into() {
                    return insert_sorted(ints, narrow);
                }
            }
            Ints::W64(ints) => return insert_sorted(ints, value),
        }
        self.widen_with(value);
        true
    }

    /// Adds an integer that needs more bits than the set has.
    fn widen_with(&mut self, value: i64) {
        // It is beyond all others, hence the first or the last.
        let (below, above) = if value < 0 { (Some(value), None) } else { (None, Some(value)) };
        let all = below.into_iter().chain(self.iter()).chain(above);
        self.0 = if i32::try_from(value).is_ok() {
            // Whoever came before is narrower, so the cast loses nothing.
            Ints::W32(all.map(|int| int as i32).collect())
        } else {
            Ints::W64(all.collect())
        };
    }

    /// Removes an integer; false if it wasn't there.
    pub fn remove(&mut self, value: i64) -> bool {
        self.position(value).and_then(|index| self.remove_at(index)).is_some()
    }

    /// Removes and returns the integer at this index in ascending order.
    pub fn remove_at(&mut self, index: usize) -> Option<i64> {
        of_any_width!(&mut self.0, ints => remove_at(ints, index))
    }

    /// The integers in ascending order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter { set: self, indexes: 0..self.len() }
    }

    /// Bytes of the allocation.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        of_any_width!(&self.0, ints => mem::size_of_val::<[_]>(ints))
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

fn insert_sorted<T: Ord>(ints: &mut Box<[T]>, value: T) -> bool {
    let Err(index) = ints.binary_search(&value) else { return false };
    let mut all = mem::take(ints).into_vec();
    all.reserve_exact(1);
    all.insert(index, value);
    *ints = all.into_boxed_slice();
    true
}

#[inline]
fn get<T: Copy + Into<i64>>(ints: &[T], index: usize) -> Option<i64> {
    ints.get(index).map(|&int| int.into())
}

fn remove_at<T: Into<i64>>(ints: &mut Box<[T]>, index: usize) -> Option<i64> {
    if index >= ints.len() {
        return None;
    }
    let mut all = mem::take(ints).into_vec();
    let removed = all.remove(index);
    *ints = all.into_boxed_slice();
    Some(removed.into())
}

/// The integers of a set in ascending order; reversible.
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

    /// Integers about the borders of each width; the widest ones seldom, since they widen the set for good.
    fn border(random: &mut Random) -> i64 {
        let near = [0, i64::from(i16::MIN), i64::from(i16::MAX), i64::from(i32::MIN), i64::from(i32::MAX), i64::MIN];
        let count = if random.below(20) == 0 { near.len() } else { 3 };
        near[random.below(count)].wrapping_add(random.below(7) as i64 - 3)
    }

    #[test]
    fn behaves_like_an_ordered_set() {
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
    fn is_as_wide_as_its_widest_ever() {
        let mut set = IntSet::new();
        for (value, bytes) in [(1, 2), (-32_768, 4), (32_767, 6), (32_768, 16), (-1 << 31, 20), (-1 - (1 << 31), 48)] {
            assert!(set.insert(value));
            assert_eq!(set.memory_bytes(), bytes, "{value}");
        }
        assert!(set.remove(-1 - (1 << 31)));
        assert_eq!(set.memory_bytes(), 40);
    }

    #[test]
    fn integers_beyond_the_width_are_not_there() {
        let mut set: IntSet = [1, 2, 3].into_iter().collect();
        for value in [65_537, -65_535, i64::MAX, i64::MIN] {
            assert!(!set.contains(value));
            assert!(!set.remove(value));
        }
        assert_eq!(set.remove_at(3), None);
    }
}
