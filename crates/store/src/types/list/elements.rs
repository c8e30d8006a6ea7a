//! Iteration over a range of a list's elements from both ends.

use std::iter::FusedIterator;
use std::ops::Range;

use crate::types::packed::{self, Item};

use super::List;

/// Iterates over the elements of a range of a list, from either end.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    list: &'a List,
    left: Range<usize>,
    /// The position at each end. None until the first element is requested there, so that a range read from one end is
    /// not located from the other.
    front: Option<Cursor<'a>>,
    back: Option<Cursor<'a>>,
}

/// A node, and its items on this side of the cursor's last element.
#[derive(Clone, Debug)]
struct Cursor<'a> {
    node: usize,
    run: packed::Iter<'a>,
}

impl<'a> Elements<'a> {
    pub(super) fn new(list: &'a List, indexes: Range<usize>) -> Self {
        let end = indexes.end.min(list.len());
        Self { list, left: indexes.start.min(end)..end, front: None, back: None }
    }
}

impl<'a> Cursor<'a> {
    /// Returns a cursor in front of the element with this index.
    fn before(list: &'a List, index: usize) -> Option<Self> {
        let (node, within) = list.locate(index)?;
        let run = list.run(node)?.suffix(list.run_len(node), within);
        Some(Self { node, run })
    }

    /// Returns a cursor behind the element with this index.
    fn behind(list: &'a List, index: usize) -> Option<Self> {
        let (node, within) = list.locate(index)?;
        let run = list.run(node)?.prefix(list.run_len(node), within + 1);
        Some(Self { node, run })
    }

    #[inline]
    fn next(&mut self, list: &'a List) -> Option<Item<'a>> {
        loop {
            if let Some(item) = self.run.next() {
                return Some(item);
            }
            self.run = list.run(self.node + 1)?;
            self.node += 1;
        }
    }

    #[inline]
    fn next_back(&mut self, list: &'a List) -> Option<Item<'a>> {
        loop {
            if let Some(item) = self.run.next_back() {
                return Some(item);
            }
            let node = self.node.checked_sub(1)?;
            self.run = list.run(node)?;
            self.node = node;
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Item<'a>;

    #[inline]
    fn next(&mut self) -> Option<Item<'a>> {
        if self.left.is_empty() {
            return None;
        }
        if self.front.is_none() {
            self.front = Cursor::before(self.list, self.left.start);
        }
        self.left.start += 1;
        self.front.as_mut()?.next(self.list)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }

    #[inline]
    fn fold<B, F: FnMut(B, Item<'a>) -> B>(self, init: B, mut visit: F) -> B {
        let Self { list, left, front, .. } = self;
        let first = if left.is_empty() { None } else { front.or_else(|| Cursor::before(list, left.start)) };
        let Some(mut cursor) = first else { return init };
        left.fold(init, |result, _| match cursor.next(list) {
            Some(item) => visit(result, item),
            None => result,
        })
    }

    fn nth(&mut self, n: usize) -> Option<Item<'a>> {
        if n > 0 {
            self.left.start = self.left.start.saturating_add(n).min(self.left.end);
            self.front = None;
        }
        self.next()
    }
}

impl DoubleEndedIterator for Elements<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        self.left.end -= 1;
        if self.back.is_none() {
            self.back = Cursor::behind(self.list, self.left.end);
        }
        self.back.as_mut()?.next_back(self.list)
    }

    fn nth_back(&mut self, n: usize) -> Option<Self::Item> {
        if n > 0 {
            self.left.end = self.left.end.saturating_sub(n).max(self.left.start);
            self.back = None;
        }
        self.next_back()
    }
}

impl ExactSizeIterator for Elements<'_> {}
impl FusedIterator for Elements<'_> {}
