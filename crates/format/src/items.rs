//! The items of a block in which Redis stores a small collection.

use store::types::packed::{Item, Packed};

/// Reads the item at the beginning of some bytes, given the number of remaining items. Returns it with the remaining
/// bytes.
pub(crate) type ReadItem = for<'a> fn(&'a [u8], usize) -> Option<(Item<'a>, &'a [u8])>;

/// The items of a checked block. A listpack's or a ziplist's string of an integer's digits is returned as that integer;
/// a zipmap's fields and values alternate.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
    left: usize,
    read: ReadItem,
    /// True if each item has the shortest encoding of a listpack.
    is_shortest: bool,
}

impl<'a> Items<'a> {
    /// Creates an iterator over `count` items, given the bytes without the block's header and end.
    pub(crate) fn new(items: &'a [u8], count: usize, read: ReadItem) -> Items<'a> {
        Items { rest: items, left: count, read, is_shortest: false }
    }

    /// Marks items of a listpack, each in its shortest encoding.
    pub(crate) fn shortest(self, is_shortest: bool) -> Items<'a> {
        Items { is_shortest, ..self }
    }

    /// Returns the bytes of the items, if they are encoded as in a [`Packed`].
    pub(crate) fn encoded(&self) -> Option<&'a [u8]> {
        self.is_shortest.then_some(self.rest)
    }

    /// Packs the items.
    pub(crate) fn packed(self) -> Packed {
        if let Some(bytes) = self.encoded() {
            return Packed::of_items(bytes, self.left);
        }
        let mut packed = Packed::new();
        packed.extend(self);
        packed
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        let (item, rest) = (self.read)(self.rest, self.left)?;
        self.rest = rest;
        self.left -= 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Items<'_> {}
