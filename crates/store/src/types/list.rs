//! Lists: byte strings in an order, fast at both ends.
//!
//! A list is in one of three forms, of which clients see two names:
//!
//! | form | named | for |
//! | --- | --- | --- |
//! | a packed block | `listpack` | up to [`PACKED_BYTES_MAX`]: hardly any slack, nothing allocated besides |
//! | one node: a block with slack at both ends | `listpack` | up to what `list-max-listpack-size` allows |
//! | a ring of such nodes | `quicklist` | more |
//!
//! When a list gets the other name is Redis 7.2's rule: before elements are added, if all of them together would exceed
//! the limit; and after elements were removed, if a single node is left at half the limit.
//!
//! Knows no indexes from the end and no replies: callers translate negative indexes and format.

mod elements;
mod node;
mod quick;
#[cfg(test)]
mod tests;
mod walk;

use std::mem;
use std::ops::Range;

use super::packed::{self, Item, ItemTails, Needle, Packed};
use node::ListNode;
use quick::Quick;

use crate::compact::Mover;
use crate::prefetch::Ahead;
use crate::snapshot::{Budget, ElementSink, Step};
use crate::tight::TightBox;

pub use elements::Elements;

/// A packed block with more than this becomes a node, in bytes: from here on moving the whole block with each push
/// costs more than the slack of a node does.
pub const PACKED_BYTES_MAX: usize = 512;

/// A node with less than this becomes a packed block again, in bytes. It is well below [`PACKED_BYTES_MAX`] so that a
/// queue whose length swings there doesn't change its form each time.
const PACKED_BYTES_BACK: usize = PACKED_BYTES_MAX / 2;

/// What Redis's listpacks have around their items, in bytes: a header of six and an end mark. Limits include it.
const LISTPACK_FRAME_BYTES: usize = 7;

/// An end of a list, or a side of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The head, where index 0 is.
    Left,
    /// The tail.
    Right,
}

/// How large a node, and with it a list that is called a listpack, may be: `list-max-listpack-size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListLimits {
    bytes_max: usize,
    items_max: usize,
}

impl ListLimits {
    /// The limits that a value of `list-max-listpack-size` stands for: -1 to -5 are 4, 8, 16, 32 and 64 KB a node (less
    /// is as -5); a positive one is a number of elements, of up to 8 KB together; 0 is as 1.
    pub fn new(list_max_listpack_size: i64) -> Self {
        match usize::try_from(list_max_listpack_size) {
            Ok(items) => Self { bytes_max: 8192, items_max: items.max(1) },
            Err(_) => {
                let level = list_max_listpack_size.max(-5).unsigned_abs() - 1;
                Self { bytes_max: 4096 << level, items_max: usize::MAX }
            }
        }
    }

    /// Whether so many items of so many bytes together are too much.
    fn exceeded(self, item_bytes: usize, items: usize) -> bool {
        item_bytes.saturating_add(LISTPACK_FRAME_BYTES) > self.bytes_max || items > self.items_max
    }

    /// Whether a node is small enough for its list to be called a listpack again: half the limit that was set, of the
    /// two only that one.
    fn allow_listpack_again(self, node: &ListNode) -> bool {
        if self.items_max == usize::MAX {
            node.bytes() + LISTPACK_FRAME_BYTES <= self.bytes_max / 2
        } else {
            node.len() <= self.items_max / 2
        }
    }
}

/// Redis's default, -2: nodes of 8 KB.
impl Default for ListLimits {
    fn default() -> Self {
        Self::new(-2)
    }
}

/// What [`List::positions`] looks for besides the element: LPOS's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The end from which to search.
    pub from: End,
    /// How many matches to pass over: RANK's absolute value less one.
    pub skip: usize,
    /// How many matches to report at most: COUNT, `usize::MAX` where it is 0.
    pub matches_max: usize,
    /// How many elements to compare at most: MAXLEN, `usize::MAX` where it is 0.
    pub compared_max: usize,
}

/// The first match from the left.
impl Default for Search {
    fn default() -> Self {
        Self { from: End::Left, skip: 0, matches_max: 1, compared_max: usize::MAX }
    }
}

/// A list of byte strings. No element may be longer than [`ITEM_BYTES_MAX`](super::packed::ITEM_BYTES_MAX).
///
/// Methods that change the list take the limits that hold at the time, since the configuration can change.
#[derive(Clone, Debug, Default)]
pub struct List(Form);

/// Two variants, so that a short list is nothing but a packed block's pointer beside a tag.
#[derive(Clone, Debug)]
enum Form {
    Packed(Packed),
    Big(TightBox<Big>),
}

/// A list that is too big for a packed block: one node, or several.
#[derive(Clone, Debug)]
enum Big {
    Node(ListNode),
    Quick(Quick),
}

/// The three forms, borrowed.
enum FormRef<'a> {
    Packed(&'a Packed),
    Node(&'a ListNode),
    Quick(&'a Quick),
}

/// The three forms, to be changed.
enum FormMut<'a> {
    Packed(&'a mut Packed),
    Node(&'a mut ListNode),
    Quick(&'a mut Quick),
}

impl Default for Form {
    fn default() -> Self {
        Self::Packed(Packed::new())
    }
}

impl List {
    /// An empty list, which allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the processor for what an operation will read, without waiting for it. Says whether it has a table.
    #[inline]
    pub fn prefetch(&self, ahead: Ahead<'_>) -> bool {
        match (&self.0, ahead) {
            (Form::Packed(block), Ahead::Value) => block.prefetch(),
            (Form::Big(big), Ahead::Value) => big.prefetch(),
            (_, Ahead::Bucket(_) | Ahead::Record(_)) => {}
        }
        false
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        match self.view() {
            FormRef::Packed(block) => block.len(),
            FormRef::Node(node) => node.len(),
            FormRef::Quick(quick) => quick.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a snapshot can save it in pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(self.view(), FormRef::Quick(_))
    }

    /// Whether a snapshot is saving it in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        matches!(self.view(), FormRef::Quick(quick) if quick.has_walk())
    }

    /// Begins to save it in pieces, or gives that up.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        if let FormMut::Quick(quick) = self.view_mut() {
            quick.set_walk(elements);
        }
    }

    /// Saves a piece. Says why that has stopped before the end.
    pub(crate) fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        if let FormMut::Quick(quick) = self.view_mut() { quick.save_piece(budget) } else { None }
    }

    /// Moves what `mover` wants moved. A long list's nodes are large blocks, and stay.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        if let Form::Packed(packed) = &mut self.0 {
            packed.compact(mover);
        }
    }

    /// The name of the list's form, as `OBJECT ENCODING` gives it.
    pub fn encoding(&self) -> &'static str {
        match self.view() {
            FormRef::Packed(_) | FormRef::Node(_) => "listpack",
            FormRef::Quick(_) => "quicklist",
        }
    }

    /// How many blocks the elements are in.
    pub fn node_count(&self) -> usize {
        match self.view() {
            FormRef::Packed(_) | FormRef::Node(_) => 1,
            FormRef::Quick(quick) => quick.node_count(),
        }
    }

    /// The blocks of elements from left to right: the bytes of each, as [`Packed::items`] gives them, and how many
    /// elements they hold. An empty list has one empty block.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = (&[u8], usize)> + DoubleEndedIterator {
        (0..self.node_count()).map(|node| self.block(node))
    }

    fn block(&self, node: usize) -> (&[u8], usize) {
        match self.view() {
            FormRef::Packed(block) => (block.items(), block.len()),
            FormRef::Node(only) => (only.items(), only.len()),
            FormRef::Quick(quick) => quick.nodes().get(node).map_or((&[], 0), |node| (node.items(), node.len())),
        }
    }

    /// What the list has allocated besides itself, in bytes; the allocator's own overhead is not included. Takes no
    /// longer for a long list.
    pub fn memory_bytes(&self) -> usize {
        match self.view() {
            FormRef::Packed(block) => block.allocated_bytes(),
            FormRef::Node(node) => size_of::<Big>() + node.capacity(),
            FormRef::Quick(quick) => size_of::<Big>() + quick.allocated(),
        }
    }

    /// Adds an element at an end.
    pub fn push(&mut self, end: End, element: &[u8], limits: ListLimits) {
        self.push_all(end, [element], limits);
    }

    /// Adds elements at an end, one after the other. This is not the same as pushing each: whether the list stays a
    /// listpack is decided once, for all together.
    pub fn push_all<'a, I>(&mut self, end: End, elements: I, limits: ListLimits)
    where
        I: IntoIterator<Item = &'a [u8], IntoIter: Clone>,
    {
        let elements = elements.into_iter();
        let sizes = elements.clone().map(<[u8]>::len);
        let (count, bytes) = sizes.fold((0, 0usize), |(count, sum), len| (count + 1, sum.saturating_add(len)));
        self.make_room(bytes, count, limits);
        match self.view_mut() {
            FormMut::Packed(block) if end == End::Right => block.extend(elements),
            FormMut::Packed(block) => elements.for_each(|element| block.push_front(element)),
            FormMut::Node(node) => elements.for_each(|element| node.push(end, Item::from(element))),
            FormMut::Quick(quick) => {
                elements.for_each(|element| quick.push(end, Item::from(element), element.len(), limits));
            }
        }
    }

    /// Removes the element at an end after handing it to `visit`, so that a reply can be written without a copy.
    pub fn pop_with<R>(&mut self, end: End, limits: ListLimits, visit: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        let result = self.take(end, visit);
        self.shrink(limits);
        result
    }

    /// Removes and returns the element at an end.
    pub fn pop(&mut self, end: End, limits: ListLimits) -> Option<Vec<u8>> {
        self.pop_with(end, limits, |item| item.to_vec())
    }

    /// Moves the element at one end to another end of the same list after handing it to `visit`: LMOVE with one key.
    pub fn rotate_with<R>(
        &mut self,
        from: End,
        to: End,
        limits: ListLimits,
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        // Not by `pop` and `push`: Redis thinks of shrinking only after both, when the list is as long as before.
        let element = self.take(from, |item| item.to_vec())?;
        self.push(to, &element, limits);
        self.shrink(limits);
        Some(visit(&element))
    }

    /// The element with this index.
    pub fn get(&self, index: usize) -> Option<Item<'_>> {
        self.range(index..index.saturating_add(1)).next()
    }

    /// All elements, reversible.
    pub fn iter(&self) -> Elements<'_> {
        self.range(0..usize::MAX)
    }

    /// The elements whose indexes are in a range, as far as there are such; reversible. Either end is sought only when
    /// an element is asked for there, and from the nearer end of the list.
    pub fn range(&self, indexes: Range<usize>) -> Elements<'_> {
        Elements::new(self, indexes)
    }

    /// Hands the indexes of the elements that equal `needle` to `found`, in the order of the search.
    pub fn positions(&self, needle: &[u8], search: Search, found: impl FnMut(usize)) {
        let needle = Needle::of(Item::from(needle));
        let len = self.len();
        let entries = self.blocks().flat_map(|(items, _)| ItemTails::of(items));
        match search.from {
            End::Left => matches(entries.enumerate(), needle, search).for_each(found),
            End::Right => matches((0..len).rev().zip(entries.rev()), needle, search).for_each(found),
        }
    }

    /// Replaces the element with this index and says whether there is one.
    pub fn set(&mut self, index: usize, element: &[u8], limits: ListLimits) -> bool {
        if self.is_empty() {
            return false;
        }
        // Whether or not there is that index, as Redis: what the list is called depends on it.
        self.make_room(element.len(), 1, limits);
        if index >= self.len() {
            return false;
        }
        let item = Item::from(element);
        self.unpack();
        match self.view_mut() {
            FormMut::Packed(_) => {}
            FormMut::Node(node) => node.set(index, item),
            FormMut::Quick(quick) => quick.set(index, item, element.len()),
        }
        self.shrink(limits);
        true
    }

    /// Puts an element beside the first one that equals `pivot`, on this side of it; none if there is no such.
    pub fn insert(&mut self, side: End, pivot: &[u8], element: &[u8], limits: ListLimits) -> Option<()> {
        if self.is_empty() {
            return None;
        }
        // Before the pivot is known to exist, as Redis: what the list is called depends on it.
        self.make_room(element.len(), 1, limits);
        let pivot = Item::from(pivot);
        let index = self.iter().position(|own| own == pivot)?;
        let item = Item::from(element);
        self.unpack();
        match self.view_mut() {
            FormMut::Packed(_) => {}
            FormMut::Node(node) => node.insert(if side == End::Left { index } else { index + 1 }, item),
            FormMut::Quick(quick) => quick.insert(index, side, item, element.len(), limits),
        }
        self.pack();
        Some(())
    }

    /// Removes elements that equal `needle` and returns how many there were: with a positive `count` up to so many from
    /// the left, with a negative one from the right, with 0 all.
    pub fn remove(&mut self, count: i64, needle: &[u8], limits: ListLimits) -> usize {
        let needle = Item::from(needle);
        let end = if count < 0 { End::Right } else { End::Left };
        let max = if count == 0 { usize::MAX } else { usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX) };
        self.unpack();
        let removed = match self.view_mut() {
            FormMut::Packed(_) => 0,
            FormMut::Node(node) => node.remove_equal(end, needle, max),
            FormMut::Quick(quick) => quick.remove_equal(end, needle, max),
        };
        if removed > 0 {
            self.shrink(limits);
        } else {
            self.pack();
        }
        removed
    }

    /// Keeps the elements whose indexes are in the range, and removes all others.
    pub fn trim(&mut self, keep: Range<usize>, limits: ListLimits) {
        let len = self.len();
        let keep = keep.start.min(len)..keep.end.min(len);
        if keep.is_empty() && !self.has_walk() {
            *self = Self::new();
            return;
        }
        let keep = if keep.is_empty() { 0..0 } else { keep };
        if keep.len() < len {
            self.unpack();
        }
        match self.view_mut() {
            // Nothing is to go: a list that is kept short is trimmed more often than it needs to be.
            FormMut::Packed(_) => {}
            FormMut::Node(node) => {
                node.truncate(keep.end);
                node.drop_front(keep.start);
            }
            FormMut::Quick(quick) => quick.trim(keep.start, len - keep.end),
        }
        self.shrink(limits);
    }

    /// Removes the element at an end without thought of the form.
    fn take<R>(&mut self, end: End, visit: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        match self.view_mut() {
            FormMut::Packed(block) if end == End::Left => block.pop_front_with(visit),
            FormMut::Packed(block) => block.pop_back_with(visit),
            FormMut::Node(node) => node.pop_with(end, visit),
            FormMut::Quick(quick) => quick.pop_with(end, visit),
        }
    }

    /// Brings the list into the form that holds `count` more elements of `bytes` together.
    fn make_room(&mut self, bytes: usize, count: usize, limits: ListLimits) {
        let (own_bytes, own_count) = match self.view() {
            FormRef::Packed(block) => (block.bytes(), block.len()),
            FormRef::Node(node) => (node.bytes(), node.len()),
            FormRef::Quick(_) => return,
        };
        if limits.exceeded(own_bytes.saturating_add(bytes), own_count + count) {
            let quick = Quick::from(self.take_node());
            self.become_big(Big::Quick(quick));
        } else if own_bytes.saturating_add(bytes) > PACKED_BYTES_MAX {
            self.unpack();
        }
    }

    /// Brings the list into a smaller form after elements have gone, if it is due.
    #[inline]
    fn shrink(&mut self, limits: ListLimits) {
        if let FormMut::Quick(quick) = self.view_mut() {
            if quick.nodes().len() > 1 || quick.has_walk() {
                return;
            }
            if quick.len() == 0 {
                self.0 = Form::default();
            } else if let Some(node) = quick.take_only(|node| limits.allow_listpack_again(node)) {
                self.become_big(Big::Node(node));
            }
        }
        self.pack();
    }

    /// Turns a packed block into a node, on which all changes but those at the ends are made.
    fn unpack(&mut self) {
        if matches!(self.0, Form::Packed(_)) {
            let node = self.take_node();
            self.become_big(Big::Node(node));
        }
    }

    /// Turns a small node into a packed block.
    #[inline]
    fn pack(&mut self) {
        if matches!(self.view(), FormRef::Node(node) if node.bytes() <= PACKED_BYTES_BACK) {
            self.0 = Form::Packed(self.take_node().into_packed());
        }
    }

    /// Takes the only node out of a list that is not a ring; another form is to follow.
    fn take_node(&mut self) -> ListNode {
        match self.view_mut() {
            FormMut::Packed(block) => ListNode::from(mem::take(block)),
            FormMut::Node(node) => mem::take(node),
            FormMut::Quick(_) => ListNode::default(),
        }
    }

    fn become_big(&mut self, big: Big) {
        match &mut self.0 {
            Form::Packed(_) => self.0 = Form::Big(TightBox::new(big)),
            Form::Big(own) => **own = big,
        }
    }

    #[inline]
    fn view(&self) -> FormRef<'_> {
        match &self.0 {
            Form::Packed(block) => FormRef::Packed(block),
            Form::Big(big) => match &**big {
                Big::Node(node) => FormRef::Node(node),
                Big::Quick(quick) => FormRef::Quick(quick),
            },
        }
    }

    #[inline]
    fn view_mut(&mut self) -> FormMut<'_> {
        match &mut self.0 {
            Form::Packed(block) => FormMut::Packed(block),
            Form::Big(big) => match &mut **big {
                Big::Node(node) => FormMut::Node(node),
                Big::Quick(quick) => FormMut::Quick(quick),
            },
        }
    }

    /// The node with this index as a run of items, if there is one; a list that is no ring is one node.
    fn run(&self, node: usize) -> Option<packed::Iter<'_>> {
        let items = match self.view() {
            FormRef::Quick(quick) => quick.nodes().get(node)?.items(),
            FormRef::Packed(block) if node == 0 => block.items(),
            FormRef::Node(only) if node == 0 => only.items(),
            _ => return None,
        };
        Some(packed::Iter::of(items))
    }

    /// The node that holds the element with this index, and the element's index there.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        match self.view() {
            FormRef::Quick(quick) => quick.locate(index),
            _ => (index < self.len()).then_some((0, index)),
        }
    }

    /// The number of elements in a node.
    fn run_len(&self, node: usize) -> usize {
        match self.view() {
            FormRef::Quick(quick) => quick.nodes().get(node).map_or(0, ListNode::len),
            _ => self.len(),
        }
    }
}

impl<'a> IntoIterator for &'a List {
    type Item = Item<'a>;
    type IntoIter = Elements<'a>;

    fn into_iter(self) -> Elements<'a> {
        self.iter()
    }
}

fn matches<'a>(
    entries: impl Iterator<Item = (usize, &'a [u8])>,
    needle: Needle<'_>,
    search: Search,
) -> impl Iterator<Item = usize> {
    entries
        .take(search.compared_max)
        .filter(move |(_, entry)| needle.is_at(entry))
        .map(|(index, _)| index)
        .skip(search.skip)
        .take(search.matches_max)
}
