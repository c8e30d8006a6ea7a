//! Packed blocks: a sequence of byte strings in one allocation, the small form of every collection.
//!
//! A block knows only items and their order. Its owner knows that a hash has a value after each field, or a sorted set
//! a score after each member. The owner also knows the size limit: all items except those at the two ends are found by
//! walking, and every change moves all bytes behind it.
//!
//! # Format
//!
//! The bytes of a [`Block`] are the items in sequence, and its mark is their number.
//!
//! ```text
//! an item:
//! +--------------------------+------------------+--------------------------------------------+
//! | head: kind, and integer  | the string's     | back length: bytes of head and string,     |
//! | or length of the string  | bytes, if it is  | 1 to 5 bytes, 7 bits each, read from right |
//! | 1 to 9 bytes             | one              | to left while the top bit is set           |
//! +--------------------------+------------------+--------------------------------------------+
//!
//! heads:
//! 0vvvvvvv                        integer, 0 to 127
//! 10llllll                        string of up to 63 bytes
//! 110vvvvv vvvvvvvv               integer, 13 bits, two's complement
//! 1110llll llllllll               string of up to 4095 bytes
//! 11110000 l l l l                string of up to 4 GiB, 32 bits, little endian
//! 11110001 v v                    integer, 16 bits, two's complement, little endian
//! 11110010 v v v                  integer, 24 bits
//! 11110011 v v v v                integer, 32 bits
//! 11110100 v v v v v v v v        integer, 64 bits
//! ```
//!
//! A decimal integer in canonical form is stored as the narrowest integer, any other text as a string with the
//! narrowest length. The encoding is byte for byte that of Redis's listpacks (antirez/listpack, `listpack.md`), so that
//! a snapshot in Redis's format contains the items unchanged.

mod item;

use std::iter::FusedIterator;

use super::block::Block;
use crate::compact::Mover;

pub use item::{ITEM_BYTES_MAX, Item, ItemText, encoded_len};
pub(super) use item::{Needle, decode, encode, size, size_before};
use item::{SHORT_STR_BYTES_MAX, STR_6};

/// The offset of an item in its block, or of the block's end. Valid until the block changes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pos(u32);

impl Pos {
    #[inline]
    pub(super) fn new(offset: usize) -> Self {
        debug_assert!(u32::try_from(offset).is_ok());
        Self(offset as u32)
    }

    #[inline]
    pub(super) fn at(self) -> usize {
        self.0 as usize
    }
}

/// A sequence of byte strings in one allocation. See the module's documentation for its format.
///
/// A method that takes an item accepts everything that converts to one: a reference to bytes, an `i64`, or an [`Item`]
/// of another block. A `Pos` must come from the same block in its present state; otherwise the result is arbitrary or a
/// panic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packed(Block);

impl Packed {
    /// Moves the block, if `mover` selects it.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        self.0.compact(mover);
    }

    /// Maximum size of a block in bytes, as for Redis's listpacks. Small forms end far below it unless the configured
    /// thresholds are higher, so owners also check [`Packed::has_room_for`].
    pub const BYTES_MAX: usize = 1 << 30;

    /// Prefetches the beginning of the block.
    #[inline]
    pub fn prefetch(&self) {
        self.0.prefetch();
    }

    /// Returns an empty block, which allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.0.mark() as usize
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Size of the items in bytes.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }

    /// Size of the allocation in bytes.
    pub fn allocated_bytes(&self) -> usize {
        self.0.allocated_bytes()
    }

    /// Returns true if items with this many bytes in total fit within [`Packed::BYTES_MAX`].
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.bytes().saturating_add(bytes) <= Self::BYTES_MAX
    }

    /// Iterates over the items in order, from either end.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.items())
    }

    /// Iterates over the items from the last to the first.
    pub fn iter_rev(&self) -> std::iter::Rev<Iter<'_>> {
        self.iter().rev()
    }

    /// Returns the first item.
    pub fn first(&self) -> Option<Item<'_>> {
        self.iter().next()
    }

    /// Returns the last item.
    pub fn last(&self) -> Option<Item<'_>> {
        self.iter().next_back()
    }

    /// Returns the item with this index. Walks from the nearer end.
    pub fn get(&self, index: usize) -> Option<Item<'_>> {
        self.pos_of(index).map(|pos| self.item_at(pos))
    }

    /// Returns the position of the first item.
    pub fn first_pos(&self) -> Option<Pos> {
        (!self.is_empty()).then_some(Pos::new(0))
    }

    /// Returns the position of the last item.
    pub fn last_pos(&self) -> Option<Pos> {
        self.prev(self.end_pos())
    }

    /// Returns the position behind the last item, for appending.
    pub fn end_pos(&self) -> Pos {
        Pos::new(self.0.len())
    }

    /// Returns the position of the item with this index. Walks from the nearer end.
    pub fn pos_of(&self, index: usize) -> Option<Pos> {
        let len = self.len();
        if index >= len {
            return None;
        }
        Some(Pos::new(offset_of(self.items(), len, index)))
    }

    /// Returns the position of the item after the one at `pos`; None after the last.
    pub fn next(&self, pos: Pos) -> Option<Pos> {
        self.read(pos).map(|(_, next)| next).filter(|next| next.at() < self.0.len())
    }

    /// Returns the position of the item that ends at `pos`; None before the first.
    pub fn prev(&self, pos: Pos) -> Option<Pos> {
        (pos.at() > 0).then(|| Pos::new(pos.at() - size_before(&self.items()[..pos.at()])))
    }

    /// Returns the item at `pos`, which must not be the end.
    pub fn item_at(&self, pos: Pos) -> Item<'_> {
        decode(&self.items()[pos.at()..]).0
    }

    /// Returns the item at `pos` and the position of its end; None at the end of the block. For loops: `while let
    /// Some((item, next)) = block.read(pos)`.
    pub fn read(&self, pos: Pos) -> Option<(Item<'_>, Pos)> {
        let entry = self.items().get(pos.at()..).filter(|entry| !entry.is_empty())?;
        let (item, size) = decode(entry);
        Some((item, Pos::new(pos.at() + size)))
    }

    /// Returns the position of the first item equal to `needle`, among the items 0, `stride`, 2 × `stride` and so on.
    #[inline]
    pub fn find<'a>(&self, needle: impl Into<Item<'a>>, stride: usize) -> Option<Pos> {
        self.find_from(Pos::new(0), Needle::of(needle.into()), stride)
    }

    /// Like [`Packed::find`], but starts at a position, which counts as item 0.
    #[inline(always)]
    pub(super) fn find_from(&self, pos: Pos, needle: Needle<'_>, stride: usize) -> Option<Pos> {
        let items = self.items();
        let mut at = pos.at();
        while let Some(entry) = items.get(at..).filter(|entry| !entry.is_empty()) {
            if needle.is_at(entry) {
                return Some(Pos::new(at));
            }
            at += size(entry);
            for _ in 1..stride {
                at += items.get(at..).filter(|entry| !entry.is_empty()).map_or(0, size);
            }
        }
        None
    }

    /// Appends an item.
    pub fn push_back<'a>(&mut self, item: impl Into<Item<'a>>) {
        self.insert_at(self.end_pos(), item);
    }

    /// Prepends an item.
    pub fn push_front<'a>(&mut self, item: impl Into<Item<'a>>) {
        self.insert_at(Pos::new(0), item);
    }

    /// Inserts an item at `pos`, before the present one.
    pub fn insert_at<'a>(&mut self, pos: Pos, item: impl Into<Item<'a>>) {
        let item = item.into();
        encode(item, self.reshape(pos.at(), 0, encoded_len(item), 1));
    }

    /// Inserts two items at `pos`, for example a field and its value, with one reallocation.
    pub fn insert_pair_at<'a>(&mut self, pos: Pos, first: impl Into<Item<'a>>, second: impl Into<Item<'a>>) {
        let (first, second) = (first.into(), second.into());
        let first_len = encoded_len(first);
        let gap = self.reshape(pos.at(), 0, first_len + encoded_len(second), 2);
        let (left, right) = gap.split_at_mut(first_len);
        encode(first, left);
        encode(second, right);
    }

    /// Inserts items at `pos`, in this order, with one reallocation.
    pub fn insert_all_at<const N: usize>(&mut self, pos: Pos, all: [Item<'_>; N]) {
        let bytes = all.iter().map(|&item| encoded_len(item)).sum();
        let mut gap = self.reshape(pos.at(), 0, bytes, N as i64);
        for item in all {
            let (entry, rest) = gap.split_at_mut(encoded_len(item));
            encode(item, entry);
            gap = rest;
        }
    }

    /// Moves the items between two positions to `to`, which is not between them.
    pub fn move_items(&mut self, from: Pos, until: Pos, to: Pos) {
        let (from, until, to) = (from.at(), until.at(), to.at());
        if to > until {
            self.0.bytes_mut()[from..to].rotate_left(until - from);
        } else if to < from {
            self.0.bytes_mut()[to..until].rotate_right(until - from);
        }
    }

    /// Replaces the item at `pos`.
    pub fn replace_at<'a>(&mut self, pos: Pos, item: impl Into<Item<'a>>) {
        let item = item.into();
        let old = size(&self.items()[pos.at()..]);
        encode(item, self.reshape(pos.at(), old, encoded_len(item), 0));
    }

    /// Removes up to `count` items from `pos` on. Afterwards `pos` is the position of the next item, or the end.
    pub fn remove_at(&mut self, pos: Pos, count: usize) {
        let mut end = pos.at();
        let mut removed = 0;
        while removed < count && end < self.0.len() {
            end += size(&self.items()[end..]);
            removed += 1;
        }
        self.reshape(pos.at(), end - pos.at(), 0, -(removed as i64));
    }

    /// Removes the first item after passing it to `visit`; returns None if the block is empty.
    pub fn pop_front_with<R>(&mut self, visit: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        let result = self.first().map(visit)?;
        self.remove_at(Pos::new(0), 1);
        Some(result)
    }

    /// Removes the last item after passing it to `visit`; returns None if the block is empty.
    pub fn pop_back_with<R>(&mut self, visit: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        let last = self.last_pos()?;
        let result = visit(self.item_at(last));
        self.remove_at(last, 1);
        Some(result)
    }

    /// Appends items with one reallocation. Iterates over them twice, first for their sizes.
    pub fn extend<'a, I>(&mut self, items: I)
    where
        I: IntoIterator<Item: Into<Item<'a>>, IntoIter: Clone>,
    {
        let items = items.into_iter();
        let sizes = items.clone().map(|item| encoded_len(item.into()));
        let (count, bytes) = sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
        let mut gap = self.reshape(self.end_pos().at(), 0, bytes, count);
        for item in items {
            let item = item.into();
            let (entry, rest) = gap.split_at_mut(encoded_len(item));
            encode(item, entry);
            gap = rest;
        }
    }

    /// Splits the block: keeps the items before `index` and returns the others.
    pub fn split_off(&mut self, index: usize) -> Self {
        let Some(pos) = self.pos_of(index) else { return Self::new() };
        let moved = self.len() - index;
        let mut tail = Self::new();
        tail.reshape(0, 0, self.0.len() - pos.at(), moved as i64).copy_from_slice(&self.items()[pos.at()..]);
        self.reshape(pos.at(), self.0.len() - pos.at(), 0, -(moved as i64));
        tail
    }

    /// Appends all items of another block.
    pub fn append(&mut self, other: &Self) {
        let items = other.items();
        self.reshape(self.end_pos().at(), 0, items.len(), other.len() as i64).copy_from_slice(items);
    }

    /// Returns a block of `len` items that are encoded in these bytes, each in its shortest form.
    pub fn of_items(items: &[u8], len: usize) -> Self {
        Self(Block::of(items, len as u32))
    }

    /// Returns the items' bytes, which equal those of a Redis listpack between its header and its end mark.
    #[inline]
    pub fn items(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Replaces `removed` bytes at `at` by `added` arbitrary bytes, adds `more` to the count, and returns the new bytes
    /// for the caller to fill.
    #[inline]
    fn reshape(&mut self, at: usize, removed: usize, added: usize, more: i64) -> &mut [u8] {
        let count = self.len() as i64 + more;
        self.0.splice(at, removed, added);
        if more != 0 {
            self.0.set_mark(count as u32);
        }
        &mut self.0.bytes_mut()[at..at + added]
    }
}

/// Returns the first of some encoded items, and the others. The items must be valid, and there must be at least one.
#[inline]
pub fn split_first(items: &[u8]) -> (Item<'_>, &[u8]) {
    let (item, size) = decode(items);
    (item, &items[size..])
}

/// Appends an encoded item to the bytes of others.
#[inline]
pub fn append_item(out: &mut Vec<u8>, item: Item<'_>) {
    // Most items are short, and need no zeros in their place first.
    match item {
        Item::Int(small @ 0..=127) => out.extend_from_slice(&[small as u8, 1]),
        Item::Str(bytes) if bytes.len() <= SHORT_STR_BYTES_MAX => {
            out.reserve(bytes.len() + 2);
            out.push(STR_6 | bytes.len() as u8);
            out.extend_from_slice(bytes);
            out.push(bytes.len() as u8 + 1);
        }
        item => append_long_item(out, item),
    }
}

/// Appends an item of a text that is not an integer: the first bytes of an array.
#[inline]
pub fn append_short_str<const N: usize>(out: &mut Vec<u8>, (bytes, len): (&[u8; N], usize)) {
    const { assert!(N <= SHORT_STR_BYTES_MAX) };
    out.reserve(N + 2);
    out.push(STR_6 | len as u8);
    let at = out.len();
    out.extend_from_slice(bytes);
    out.truncate(at + len);
    out.push(len as u8 + 1);
}

#[inline(never)]
fn append_long_item(out: &mut Vec<u8>, item: Item<'_>) {
    let at = out.len();
    out.resize(at + encoded_len(item), 0);
    encode(item, &mut out[at..]);
}

impl<'a> IntoIterator for &'a Packed {
    type Item = Item<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// Returns the offset of the item with this index among `len` items, or of their end. Walks from the nearer end.
pub(super) fn offset_of(items: &[u8], len: usize, index: usize) -> usize {
    if index < len / 2 { skip(items, index) } else { skip_back(items, len.saturating_sub(index)) }
}

/// Returns the offset of the item with this index, or of the end.
#[inline]
fn skip(items: &[u8], index: usize) -> usize {
    let mut offset = 0;
    for _ in 0..index {
        if offset >= items.len() {
            break;
        }
        offset += size(&items[offset..]);
    }
    offset
}

/// Returns the offset of the item with this index, counted from the end beginning with 1, or of the start.
#[inline]
fn skip_back(items: &[u8], index: usize) -> usize {
    let mut offset = items.len();
    for _ in 0..index {
        if offset == 0 {
            break;
        }
        offset -= size_before(&items[..offset]);
    }
    offset
}

/// Iterates over the items of a block, or of a part of it, from either end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Iter<'a>(&'a [u8]);

impl<'a> Iter<'a> {
    /// Iterates over the items encoded in `items`, which has no header.
    pub(super) fn of(items: &'a [u8]) -> Self {
        Self(items)
    }

    /// Returns the items before `index`, of `len` items.
    pub(super) fn prefix(self, len: usize, index: usize) -> Self {
        Self(&self.0[..offset_of(self.0, len, index)])
    }

    /// Returns the items from `index` on, of `len` items.
    pub(super) fn suffix(self, len: usize, index: usize) -> Self {
        Self(&self.0[offset_of(self.0, len, index)..])
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        if self.0.is_empty() {
            return None;
        }
        let (item, size) = decode(self.0);
        self.0 = &self.0[size..];
        Some(item)
    }

    fn nth(&mut self, n: usize) -> Option<Item<'a>> {
        self.0 = &self.0[skip(self.0, n)..];
        self.next()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let (rest, entry) = self.0.split_at(self.0.len() - size_before(self.0));
        self.0 = rest;
        Some(decode(entry).0)
    }

    fn nth_back(&mut self, n: usize) -> Option<Self::Item> {
        self.0 = &self.0[..skip_back(self.0, n)];
        self.next_back()
    }
}

impl FusedIterator for Iter<'_> {}

/// Iterates, from either end, over the tails of the block that begin at each item: for searches, which read little of
/// most items.
#[derive(Clone, Debug)]
pub(super) struct ItemTails<'a>(&'a [u8]);

impl<'a> ItemTails<'a> {
    /// Returns the tails of the items encoded in `items`, which has no header.
    pub(super) fn of(items: &'a [u8]) -> Self {
        Self(items)
    }
}

impl<'a> Iterator for ItemTails<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let entry = Some(self.0).filter(|items| !items.is_empty())?;
        self.0 = &entry[size(entry)..];
        Some(entry)
    }
}

impl DoubleEndedIterator for ItemTails<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        let items = Some(self.0).filter(|items| !items.is_empty())?;
        let (rest, entry) = items.split_at(items.len() - size_before(items));
        self.0 = rest;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Random test data from a seed, so that a failure can be repeated.
    trait Draw {
        /// Returns bytes near the limits of the format: integers of every width, and strings around each limit of
        /// length.
        fn bytes(&mut self) -> Vec<u8>;
    }

    impl Draw for Random {
        fn bytes(&mut self) -> Vec<u8> {
            let borders = [0, 63, 64, 124, 125, 126, 127, 200];
            match self.below(8) {
                0 => (self.below(300) as i64 - 150).to_string().into_bytes(),
                1 => (1i64 << self.below(63)).wrapping_sub(self.below(3) as i64).to_string().into_bytes(),
                2 => (-(1i64 << self.below(63)) + self.below(3) as i64 - 1).to_string().into_bytes(),
                3 => format!("0{}", self.below(100)).into_bytes(),
                4 => vec![self.below(256) as u8; borders[self.below(borders.len())]],
                5 if self.below(8) == 0 => vec![b'7'; [4094, 4095, 4096, 16_377, 16_378][self.below(5)]],
                _ => vec![b'a' + self.below(4) as u8; self.below(20)],
            }
        }
    }

    fn check_same(packed: &Packed, model: &[Vec<u8>]) {
        assert_eq!(packed.len(), model.len());
        assert_eq!(packed.is_empty(), model.is_empty());
        assert!(packed.iter().map(Item::to_vec).eq(model.iter().cloned()));
        assert!(packed.iter_rev().map(Item::to_vec).eq(model.iter().rev().cloned()));
        assert_eq!(packed.first().map(Item::to_vec).as_ref(), model.first());
        assert_eq!(packed.last().map(Item::to_vec).as_ref(), model.last());
        let sizes: usize = packed.iter().map(encoded_len).sum();
        assert_eq!(packed.bytes(), sizes);
    }

    fn check_lookups(packed: &Packed, model: &[Vec<u8>], random: &mut Random) {
        let index = random.below(model.len() + 2);
        assert_eq!(packed.get(index).map(Item::to_vec).as_ref(), model.get(index));
        assert_eq!(packed.iter().nth(index).map(Item::to_vec).as_ref(), model.get(index));
        assert_eq!(packed.iter_rev().nth(index).map(Item::to_vec).as_ref(), model.iter().rev().nth(index));
        let stride = 1 + random.below(3);
        let needle = model.get(index).cloned().unwrap_or_else(|| random.bytes());
        let expected = model.iter().step_by(stride).position(|item| *item == needle).map(|at| at * stride);
        assert_eq!(packed.find(&needle, stride), expected.and_then(|at| packed.pos_of(at)));
        check_steps(packed, index.min(model.len()));
    }

    fn check_steps(packed: &Packed, index: usize) {
        let pos = packed.pos_of(index).unwrap_or(packed.end_pos());
        assert_eq!(packed.prev(pos), index.checked_sub(1).and_then(|before| packed.pos_of(before)));
        assert_eq!(packed.next(pos), packed.pos_of(index + 1));
        let read = packed.read(pos);
        assert_eq!(read.map(|(item, _)| item), packed.get(index));
        assert!(read.is_none_or(|(_, next)| next == packed.next(pos).unwrap_or(packed.end_pos())));
    }

    fn change(packed: &mut Packed, model: &mut Vec<Vec<u8>>, random: &mut Random) {
        let bytes = random.bytes();
        let index = random.below(model.len() + 1);
        let pos = packed.pos_of(index).unwrap_or(packed.end_pos());
        match random.below(14) {
            0..=2 => {
                packed.push_back(&bytes);
                model.push(bytes);
            }
            3 => {
                packed.push_front(&bytes);
                model.insert(0, bytes);
            }
            4 => {
                packed.insert_at(pos, &bytes);
                model.insert(index, bytes);
            }
            5 => {
                packed.insert_pair_at(pos, &bytes, 7);
                model.splice(index..index, [bytes, b"7".to_vec()]);
            }
            6 if index < model.len() => {
                packed.replace_at(pos, &bytes);
                model[index] = bytes;
            }
            7 => {
                let count = random.below(4);
                packed.remove_at(pos, count);
                model.drain(index..(index + count).min(model.len()));
            }
            8 => assert_eq!(packed.pop_back_with(|item| item.to_vec()), model.pop()),
            9 => {
                let expected = (!model.is_empty()).then(|| model.remove(0));
                assert_eq!(packed.pop_front_with(|item| item.to_vec()), expected);
            }
            10 => {
                packed.extend([&bytes, &bytes]);
                model.extend([bytes.clone(), bytes]);
            }
            11 => {
                let tail = packed.split_off(index);
                check_same(&tail, &model[index..]);
                check_same(packed, &model[..index]);
                packed.append(&tail);
            }
            12 if random.below(20) == 0 => {
                packed.split_off(index);
                model.truncate(index);
            }
            _ => {}
        }
    }

    #[test]
    fn a_packed_block_behaves_like_a_vector_of_vectors() {
        let rounds = if cfg!(miri) { 60 } else { 600 };
        for seed in 1..=if cfg!(miri) { 2 } else { 40 } {
            let random = &mut Random::new(seed * 0x9E37_79B9);
            let (mut packed, mut model) = (Packed::new(), Vec::new());
            for _ in 0..rounds {
                change(&mut packed, &mut model, random);
                check_same(&packed, &model);
                check_lookups(&packed, &model, random);
            }
        }
    }

    #[test]
    fn the_format_is_as_documented() {
        let mut packed = Packed::new();
        assert_eq!(packed.bytes(), 0);
        packed.extend(["ab", "5", "-2"]);
        assert_eq!((packed.len(), packed.items()), (3, &b"\x82ab\x03\x05\x01\xDF\xFE\x02"[..]));
        packed.remove_at(packed.end_pos(), 3);
        packed.remove_at(packed.first_pos().unwrap(), 9);
        assert_eq!(packed, Packed::new());
    }

    #[test]
    fn items_are_those_of_a_listpack() {
        // From a dump by Redis 7.0 of a hash with these values, and the end of one with a string of 16,378 bytes.
        let mut packed = Packed::new();
        packed.extend(["a", "-1", "b", "-4096", "c", "128", "d", "-32769", "e", "70000", "g", "1099511627776"]);
        let redis = b"\x81a\x02\xDF\xFF\x02\x81b\x02\xD0\0\x02\x81c\x02\xC0\x80\x02\x81d\x02\xF2\xFF\x7F\xFF\x04\
            \x81e\x02\xF2\x70\x11\x01\x04\x81g\x02\xF4\0\0\0\0\0\x01\0\0\x09";
        assert_eq!(packed.items(), redis);
        packed.push_back(&[b'x'; 16_378]);
        assert!(packed.items().ends_with(b"xxx\0\xFF\xFF"));
    }

    #[test]
    fn appended_items_equal_those_of_a_block() {
        let (mut out, mut packed) = (Vec::new(), Packed::new());
        for len in [0, 1, 62, 63, 64, 125, 126, 4095, 4096] {
            append_item(&mut out, Item::Str(&vec![b'x'; len]));
            packed.push_back(&vec![b'x'; len]);
        }
        for int in [0, 1, 127, 128, -1, 5000, i64::MIN, i64::MAX] {
            append_item(&mut out, Item::Int(int));
            packed.push_back(int);
        }
        assert_eq!(out, packed.items());
        let (mut rest, mut count) = (&out[..], 0);
        while !rest.is_empty() {
            let (item, others) = split_first(rest);
            assert_eq!(Some(item), packed.get(count));
            (rest, count) = (others, count + 1);
        }
        assert_eq!(count, packed.len());
    }

    #[test]
    fn an_item_converts_from_and_to_its_bytes() {
        for (bytes, item) in [(&b"12"[..], Item::Int(12)), (b"012", Item::Str(b"012")), (b"", Item::Str(b""))] {
            assert_eq!(Item::from(bytes), item);
            assert_eq!(&*item.text(), bytes);
            assert_eq!((item.to_vec(), item.text_len()), (bytes.to_vec(), bytes.len()));
            assert!(item.eq_bytes(bytes) && !item.eq_bytes(b"1"));
        }
    }
}
