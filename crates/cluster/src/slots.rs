//! Hash slots: the slot of a key, and sets of slots.

use std::fmt;

use crate::crc16::crc16;

/// The number of slots of a cluster.
pub const SLOTS: usize = 16384;

const WORDS: usize = SLOTS / 64;

/// A hash slot, below [`SLOTS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// The slot of a number; `None` from [`SLOTS`] on.
    pub const fn new(number: u64) -> Option<Slot> {
        if number < SLOTS as u64 { Some(Slot(number as u16)) } else { None }
    }

    /// The slot in a number's lowest 14 bits.
    pub const fn of_hash(hash: u16) -> Slot {
        Slot(hash & (SLOTS as u16 - 1))
    }

    /// The slot's number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The slot's place in an array over all slots.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All slots in order.
    pub fn all() -> impl Iterator<Item = Slot> {
        (0..SLOTS as u16).map(Slot)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// The slot of a key: the checksum of its hash tag, or of all of it if it has none.
#[inline]
pub fn key_slot(key: &[u8]) -> Slot {
    Slot::of_hash(crc16(hash_tag(key)))
}

/// The bytes between the first `{` of a key and the next `}`; the whole key if there are none.
#[inline]
pub fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let inner = &key[open + 1..];
    match inner.iter().position(|&byte| byte == b'}') {
        None | Some(0) => key,
        Some(close) => &inner[..close],
    }
}

/// Adjacent slots, from the first to the last, both included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SlotRange {
    /// The first slot.
    pub first: Slot,
    /// The last slot, not below the first.
    pub last: Slot,
}

impl SlotRange {
    /// The range of two slots; `None` if the first is above the last.
    pub fn new(first: Slot, last: Slot) -> Option<SlotRange> {
        (first <= last).then_some(SlotRange { first, last })
    }

    /// The range's slots in order.
    pub fn slots(self) -> impl Iterator<Item = Slot> {
        (self.first.0..=self.last.0).map(Slot)
    }
}

impl fmt::Display for SlotRange {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(to),
            false => write!(to, "{}-{}", self.first, self.last),
        }
    }
}

/// A set of slots: a bitmap of 2 KB.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotSet {
    words: [u64; WORDS],
}

impl SlotSet {
    /// The bytes of a set on the wire.
    pub const BYTES: usize = SLOTS / 8;

    /// No slots.
    pub const EMPTY: SlotSet = SlotSet { words: [0; WORDS] };

    /// All slots.
    pub const FULL: SlotSet = SlotSet { words: [u64::MAX; WORDS] };

    /// Reads a set off the wire: slot `s` is bit `s % 8`, counted from the lowest, of byte `s / 8`.
    pub fn from_bytes(bytes: &[u8; SlotSet::BYTES]) -> SlotSet {
        let mut set = SlotSet::EMPTY;
        for (word, bytes) in set.words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        set
    }

    /// Writes the set as it is on the wire.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
    }

    /// The set as words: slot `s` is bit `s % 64`, counted from the lowest, of word `s / 64`.
    #[inline]
    pub fn words(&self) -> &[u64; SLOTS / 64] {
        &self.words
    }

    /// True if the set has a slot.
    #[inline]
    pub fn contains(&self, slot: Slot) -> bool {
        self.words[slot.index() / 64] >> (slot.index() % 64) & 1 != 0
    }

    /// Adds a slot. Returns true if the set didn't have it.
    pub fn insert(&mut self, slot: Slot) -> bool {
        let is_new = !self.contains(slot);
        self.words[slot.index() / 64] |= 1 << (slot.index() % 64);
        is_new
    }

    /// Removes a slot. Returns true if the set had it.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let was_there = self.contains(slot);
        self.words[slot.index() / 64] &= !(1 << (slot.index() % 64));
        was_there
    }

    /// Adds the slots of another set.
    pub fn add(&mut self, other: &SlotSet) {
        self.combine(other, |one, other| one | other);
    }

    /// Removes the slots of another set.
    pub fn subtract(&mut self, other: &SlotSet) {
        self.combine(other, |one, other| one & !other);
    }

    /// Keeps only the slots that another set has too.
    pub fn intersect(&mut self, other: &SlotSet) {
        self.combine(other, |one, other| one & other);
    }

    fn combine(&mut self, other: &SlotSet, combined: impl Fn(u64, u64) -> u64) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word = combined(*word, *other);
        }
    }

    /// True if the two sets share a slot.
    pub fn intersects(&self, other: &SlotSet) -> bool {
        self.words.iter().zip(&other.words).any(|(one, other)| one & other != 0)
    }

    /// True if the set has all slots of another one.
    pub fn is_superset(&self, other: &SlotSet) -> bool {
        self.words.iter().zip(&other.words).all(|(one, other)| other & !one == 0)
    }

    /// The number of slots.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if the set has no slot.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The slots in order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> {
        let (mut at, mut word) = (0, self.words[0]);
        std::iter::from_fn(move || {
            while word == 0 {
                at += 1;
                word = *self.words.get(at)?;
            }
            let slot = Slot((at * 64) as u16 + word.trailing_zeros() as u16);
            word &= word - 1;
            Some(slot)
        })
    }

    /// The slots as ranges in order, each as long as possible.
    pub fn ranges(&self) -> impl Iterator<Item = SlotRange> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let first = self.next(from, true)?;
            from = self.next(first, false).unwrap_or(SLOTS);
            Some(SlotRange { first: Slot(first as u16), last: Slot(from as u16 - 1) })
        })
    }

    /// The first slot from a number on that is, or isn't, in the set.
    fn next(&self, from: usize, is_in: bool) -> Option<usize> {
        let flip = if is_in { 0 } else { u64::MAX };
        let mut at = from / 64;
        let mut word = (self.words.get(at)? ^ flip) & u64::MAX << (from % 64);
        while word == 0 {
            at += 1;
            word = self.words.get(at)? ^ flip;
        }
        Some(at * 64 + word.trailing_zeros() as usize)
    }
}

impl Default for SlotSet {
    fn default() -> SlotSet {
        SlotSet::EMPTY
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(slots: I) -> SlotSet {
        let mut set = SlotSet::EMPTY;
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

impl fmt::Display for SlotSet {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.ranges().enumerate() {
            let space = if at > 0 { " " } else { "" };
            write!(to, "{space}{range}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "[{self}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_keys_are_those_of_the_peers() {
        let check = |key: &str, slot: u16| assert_eq!(key_slot(key.as_bytes()).number(), slot, "{key}");
        check("foo", 12182);
        check("bar", 5061);
        check("123456789", 12739);
        check("", 0);
        check("{user1000}.following", 3443);
        check("{user1000}.followers", 3443);
    }

    #[test]
    fn a_tag_is_the_first_pair_of_braces_that_is_not_empty() {
        let check = |key: &str, tag: &str| assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        check("a{b}c", "b");
        check("a{b}{c}", "b");
        check("foo{}{bar}", "foo{}{bar}");
        check("foo{{bar}}zap", "{bar");
        check("a{b", "a{b");
        check("a}b{c}", "c");
    }

    fn set(numbers: &[u64]) -> SlotSet {
        numbers.iter().filter_map(|number| Slot::new(*number)).collect()
    }

    #[test]
    fn ranges_are_as_long_as_possible() {
        let check = |numbers: &[u64], text: &str| {
            let set = set(numbers);
            assert_eq!(set.to_string(), text);
            assert_eq!(set.iter().map(|slot| u64::from(slot.number())).collect::<Vec<_>>(), numbers);
            assert_eq!(set.len(), numbers.len());
            assert_eq!(set.ranges().flat_map(SlotRange::slots).collect::<SlotSet>(), set);
        };
        check(&[], "");
        check(&[0], "0");
        check(&[62, 63, 64, 65, 127, 16383], "62-65 127 16383");
        check(&(0..16384).collect::<Vec<_>>(), "0-16383");
        check(&(64..256).collect::<Vec<_>>(), "64-255");
        check(&[0, 2, 4, 16382, 16383], "0 2 4 16382-16383");
    }

    #[test]
    fn bytes_of_the_wire() {
        let numbers = [0, 9, 8190, 16383];
        let mut bytes = Vec::new();
        set(&numbers).write_to(&mut bytes);
        let ones: Vec<(usize, u8)> = bytes.iter().copied().enumerate().filter(|(_, byte)| *byte != 0).collect();
        assert_eq!(ones, [(0, 1), (1, 2), (1023, 64), (2047, 128)]);
        assert_eq!(SlotSet::from_bytes(bytes.as_slice().try_into().unwrap()), set(&numbers));
    }

    #[test]
    fn sets_combine() {
        let (mut one, other) = (set(&[1, 2, 300]), set(&[2, 300, 9000]));
        assert!(one.intersects(&other) && !one.intersects(&set(&[3])));
        one.add(&other);
        assert_eq!(one, set(&[1, 2, 300, 9000]));
        one.subtract(&set(&[1, 9000]));
        assert_eq!(one, set(&[2, 300]));
        one.intersect(&set(&[300]));
        assert_eq!(one, set(&[300]));
        let slot = Slot::new(300).unwrap();
        assert!(!one.insert(slot) && one.remove(slot) && !one.remove(slot) && one.is_empty() && one.insert(slot));
        assert_eq!(Slot::new(16384), None);
        assert_eq!(SlotSet::FULL.len(), SLOTS);
    }
}
