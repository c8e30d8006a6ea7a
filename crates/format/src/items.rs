//! The items of a block that Redis keeps a small collection in, one after the other.

use store::types::packed::Item;

/// Reads the item that some bytes begin with, when so many are left; gives what is behind it, too.
pub(crate) type ReadItem = for<'a> fn(&'a [u8], usize) -> Option<(Item<'a>, &'a [u8])>;

/// The items of a block that has been checked. A listpack's or a ziplist's string that is an integer's digits comes as that
/// integer; a zipmap's fields and values come in turn.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    rest: &'a [u8],
    left: usize,
    read: ReadItem,
}

impl<'a> Items<'a> {
    /// As many items as `count` says, in bytes without the block's header and end.
    pub(crate) fn new(items: &'a [u8], count: usize, read: ReadItem) -> Items<'a> {
        Items { rest: items, left: count, read }
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
