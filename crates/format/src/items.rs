//! The items of a block in which Redis stores a small collection.

use store::types::packed::{self, Item, Packed};

use crate::listpack::INT_TEXT_BYTES_MAX;

/// Reads the item at the beginning of some bytes, given the number of remaining items. Returns it with the remaining
/// bytes.
pub(crate) type ReadItem = for<'a> fn(&'a [u8], usize) -> Option<(Item<'a>, &'a [u8])>;

/// The items of a checked block. A listpack's or a ziplist's string of an integer's digits is returned as that integer;
/// a zipmap's fields and values alternate.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
    left: usize,
    encoding: Encoding,
    /// No text of an item has more bytes.
    longest: usize,
}

/// The encoding of checked items.
#[derive(Clone, Copy, Debug)]
enum Encoding {
    /// The shortest one of a listpack, as in a [`Packed`].
    Shortest,
    /// Another one, with the function that reads it.
    Other(ReadItem),
}

impl<'a> Items<'a> {
    /// Creates an iterator over `count` items, given the bytes without the block's header and end.
    pub(crate) fn new(items: &'a [u8], count: usize, read: ReadItem) -> Items<'a> {
        Items { rest: items, left: count, encoding: Encoding::Other(read), longest: usize::MAX }
    }

    /// Creates an iterator over `count` items of a checked listpack, each in its shortest encoding.
    pub(crate) fn shortest(items: &'a [u8], count: usize) -> Items<'a> {
        Items { rest: items, left: count, encoding: Encoding::Shortest, longest: usize::MAX }
    }

    /// Notes that no text of an item has more bytes.
    pub(crate) fn with_longest(self, longest: usize) -> Items<'a> {
        Items { longest, ..self }
    }

    /// No text of an item has more bytes than this.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns true if the text of each item has at most `longest` bytes.
    pub(crate) fn all_fit(&self, longest: usize) -> bool {
        let fits = |item: Item<'_>| match item {
            Item::Str(bytes) => bytes.len() <= longest,
            Item::Int(_) => longest >= INT_TEXT_BYTES_MAX || item.text_len() <= longest,
        };
        self.longest <= longest || self.clone().all(fits)
    }

    /// Returns the bytes of the items, if they are encoded as in a [`Packed`].
    pub(crate) fn encoded(&self) -> Option<&'a [u8]> {
        matches!(self.encoding, Encoding::Shortest).then_some(self.rest)
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

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        let (item, rest) = match self.encoding {
            Encoding::Shortest if self.rest.is_empty() => return None,
            Encoding::Shortest => packed::split_first(self.rest),
            Encoding::Other(read) => read(self.rest, self.left)?,
        };
        self.rest = rest;
        self.left -= 1;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Items<'_> {}
