//! Lists: ordered byte strings, fast at both ends.
//!
//! A list has one of three forms, which clients see under two names:
//!
//! | form | name | use |
//! | --- | --- | --- |
//! | a packed block | `listpack` | up to [`PACKED_BYTES_MAX`]: hardly any slack, no further allocation |
//! | one node: a block with slack at both ends | `listpack` | up to the limit of `list-max-listpack-size` |
//! | a ring of such nodes | `quicklist` | more |
//!
//! Conversions between the two names follow Redis 7.2. A list becomes a `quicklist` before elements are added, if all
//! of them together would exceed the limit. It becomes a `listpack` after elements were removed, if a single node is
//! left with at most half the limit.
//!
//! This module knows no indexes from the end and no replies: callers translate negative indexes and format elements.

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
use crate::unaligned_box::TightBox;

pub use elements::Elements;

/// Maximum size of a packed block before it becomes a node, in bytes. Beyond it, moving the whole block with each push
/// costs more than a node's slack.
pub const PACKED_BYTES_MAX: usize = 512;

/// Maximum size at which a node becomes a packed block again, in bytes. It is well below [`PACKED_BYTES_MAX`], so that
/// a queue with a length around that limit does not change its form each time.
const PACKED_BYTES_BACK: usize = PACKED_BYTES_MAX / 2;

/// Number of bytes by which an integer's digits may be longer than its item: of 20 and 10 bytes.
const INT_GROWTH_BYTES_MAX: usize = 10;

/// Bytes of Redis's listpacks around their items: a header of six and an end mark. The limits include them.
const LISTPACK_FRAME_BYTES: usize = 7;

/// An end of a list, or a side of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The head, at index 0.
    Left,
    /// The tail.
    Right,
}

/// Maximum size of a node, and thereby of a list with the name listpack: `list-max-listpack-size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListLimits {
    bytes_max: usize,
    items_max: usize,
}

impl ListLimits {
    /// Returns the limits for a value of `list-max-listpack-size`. -1 to -5 mean 4, 8, 16, 32 and 64 KB per node (lower
    /// values count as -5); a positive value is a number of elements with up to 8 KB in total; 0 counts as 1.
    pub fn new(list_max_listpack_size: i64) -> Self {
        match usize::try_from(list_max_listpack_size) {
            Ok(items) => Self { bytes_max: 8192, items_max: items.max(1) },
            Err(_) => {
                let level = list_max_listpack_size.max(-5).unsigned_abs() - 1;
                Self { bytes_max: 4096 << level, items_max: usize::MAX }
            }
        }
    }

    /// Returns true if items with this total size and number exceed the limits.
    fn exceeded(self, item_bytes: usize, items: usize) -> bool {
        item_bytes.saturating_add(LISTPACK_FRAME_BYTES) > self.bytes_max || items > self.items_max
    }

    /// Returns true if a node is small enough for its list to become a listpack again: at most half the configured
    /// limit. The other limit is ignored.
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

/// Options of [`List::positions`], from LPOS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// The end to search from.
    pub from: End,
    /// Number of matches to skip: the absolute value of RANK, minus one.
    pub skip: usize,
    /// Maximum number of matches to report: COUNT, or `usize::MAX` for 0.
    pub matches_max: usize,
    /// Maximum number of elements to compare: MAXLEN, or `usize::MAX` for 0.
    pub compared_max: usize,
}

/// Finds the first match from the left.
impl Default for Search {
    fn default() -> Self {
        Self { from: End::Left, skip: 0, matches_max: 1, compared_max: usize::MAX }
    }
}

/// A list of byte strings. No element may be longer than [`ITEM_BYTES_MAX`](super::packed::ITEM_BYTES_MAX).
///
/// Methods that change the list take the current limits, because the configuration can change.
#[derive(Clone, Debug, Default)]
pub struct List(Form);

/// Two variants, so that a short list consists only of a packed block's pointer and a tag.
#[derive(Clone, Debug)]
enum Form {
    Packed(Packed),
    Big(TightBox<Big>),
}

/// A list that is too big for a packed block: one node, or several nodes.
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

/// The three forms, mutably borrowed.
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
    /// Returns an empty list, which allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Prefetches the memory that an operation will read. Returns false, because a list has no table.
    #[inline]
    pub fn prefetch(&self, ahead: Ahead<'_>) -> bool {
        match (&self.0, ahead) {
            (Form::Packed(block), Ahead::Value) => block.prefetch(),
            (Form::Big(big), Ahead::Value) => big.prefetch(),
            (_, Ahead::Bucket(_) | Ahead::Record(_)) => {}
        }
        false
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        match self.view() {
            FormRef::Packed(block) => block.len(),
            FormRef::Node(node) => node.len(),
            FormRef::Quick(quick) => quick.len(),
        }
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if a snapshot can save it in pieces.
    pub(crate) fn has_pieces(&self) -> bool {
        matches!(self.view(), FormRef::Quick(_))
    }

    /// Returns true while a snapshot saves it in pieces.
    pub(crate) fn has_walk(&self) -> bool {
        matches!(self.view(), FormRef::Quick(quick) if quick.has_walk())
    }

    /// Begins to save it in pieces, or stops that.
    pub(crate) fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        if let FormMut::Quick(quick) = self.view_mut() {
            quick.set_walk(elements);
        }
    }

    /// Saves a piece. Returns the reason if it stopped before the end.
    pub(crate) fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        if let FormMut::Quick(quick) = self.view_mut() { quick.save_piece(budget) } else { None }
    }

    /// Moves the block, if `mover` selects it. The nodes of a long list are large blocks, and stay.
    pub fn compact(&mut self, mover: &mut Mover<'_>) {
        if let Form::Packed(packed) = &mut self.0 {
            packed.compact(mover);
        }
    }

    /// Returns the form's name in OBJECT ENCODING.
    pub fn encoding(&self) -> &'static str {
        match self.view() {
            FormRef::Packed(_) | FormRef::Node(_) => "listpack",
            FormRef::Quick(_) => "quicklist",
        }
    }

    /// Number of blocks that hold the elements.
    pub fn node_count(&self) -> usize {
        match self.view() {
            FormRef::Packed(_) | FormRef::Node(_) => 1,
            FormRef::Quick(quick) => quick.node_count(),
        }
    }

    /// Iterates over the blocks of elements from left to right: the bytes of each, as returned by [`Packed::items`],
    /// and the number of elements. An empty list has one empty block.
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

    /// Bytes of the list's allocations, without the allocator's overhead. Takes constant time.
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

    /// Adds elements at an end, one after the other. The form is chosen once for all of them, so the result may differ
    /// from several single pushes.
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

    /// Adds the `count` items of a block behind the last element without reading them all. They become a node of their own, as in Redis,
    /// even if the node exceeds the limit in bytes. Returns false if the node before has room, or the block is too large for a node. The
    /// items are encoded as in [`Packed::items`].
    pub fn push_block(&mut self, items: &[u8], count: usize, limits: ListLimits) -> bool {
        if items.is_empty() || !quick::is_node(items, count, limits) {
            return false;
        }
        if self.is_empty() {
            return self.begin_with(items, count, limits);
        }
        let first_bytes = packed::decode(items).0.text_len();
        self.make_room(first_bytes, 1, limits);
        let FormMut::Quick(quick) = self.view_mut() else { return false };
        quick.push_block(items, count, first_bytes, limits)
    }

    /// Fills an empty list with a node. Returns false if single pushes may lead to another form.
    fn begin_with(&mut self, items: &[u8], count: usize, limits: ListLimits) -> bool {
        // The list becomes a quicklist if the last push exceeds the limit, or an earlier one with an integer.
        let last_at = items.len() - packed::size_before(items);
        let last_bytes = packed::decode(&items[last_at..]).0.text_len();
        if limits.exceeded(last_at + last_bytes, count) {
            self.become_big(Big::Quick(Quick::from(ListNode::of_items(items, count))));
        } else if limits.exceeded(last_at + INT_GROWTH_BYTES_MAX, count) {
            return false;
        } else if items.len() <= PACKED_BYTES_MAX {
            self.0 = Form::Packed(Packed::of_items(items, count));
        } else {
            self.become_big(Big::Node(ListNode::of_items(items, count)));
        }
        true
    }

    /// Removes the element at an end after passing it to `visit`, so that a reply can be written without a copy.
    pub fn pop_with<R>(&mut self, end: End, limits: ListLimits, visit: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        let result = self.take(end, visit);
        self.shrink(limits);
        result
    }

    /// Removes and returns the element at an end.
    pub fn pop(&mut self, end: End, limits: ListLimits) -> Option<Vec<u8>> {
        self.pop_with(end, limits, |item| item.to_vec())
    }

    /// Moves the element at one end to an end of the same list after passing it to `visit`: LMOVE with one key.
    pub fn rotate_with<R>(
        &mut self,
        from: End,
        to: End,
        limits: ListLimits,
        visit: impl FnOnce(&[u8]) -> R,
    ) -> Option<R> {
        // Does not use `pop` and `push`: Redis considers shrinking only after both, when the length is unchanged.
        let element = self.take(from, |item| item.to_vec())?;
        self.push(to, &element, limits);
        self.shrink(limits);
        Some(visit(&element))
    }

    /// Returns the element with this index.
    pub fn get(&self, index: usize) -> Option<Item<'_>> {
        self.range(index..index.saturating_add(1)).next()
    }

    /// Iterates over all elements, from either end.
    pub fn iter(&self) -> Elements<'_> {
        self.range(0..usize::MAX)
    }

    /// Iterates over the elements with indexes in this range, from either end; missing indexes are skipped. Each end is
    /// located only when it is first used, from the nearer end of the list.
    pub fn range(&self, indexes: Range<usize>) -> Elements<'_> {
        Elements::new(self, indexes)
    }

    /// Passes the indexes of the elements that equal `needle` to `found`, in the order of the search.
    pub fn positions(&self, needle: &[u8], search: Search, found: impl FnMut(usize)) {
        let needle = Needle::of(Item::from(needle));
        let len = self.len();
        let entries = self.blocks().flat_map(|(items, _)| ItemTails::of(items));
        match search.from {
            End::Left => matches(entries.enumerate(), needle, search).for_each(found),
            End::Right => matches((0..len).rev().zip(entries.rev()), needle, search).for_each(found),
        }
    }

    /// Replaces the element with this index. Returns true if it exists.
    pub fn set(&mut self, index: usize, element: &[u8], limits: ListLimits) -> bool {
        if self.is_empty() {
            return false;
        }
        // Runs even if the index does not exist, as in Redis, because it affects the encoding's name.
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

    /// Inserts an element beside the first one that equals `pivot`, on this side of it. Returns None if no element
    /// does.
    pub fn insert(&mut self, side: End, pivot: &[u8], element: &[u8], limits: ListLimits) -> Option<()> {
        if self.is_empty() {
            return None;
        }
        // Runs before the pivot is found, as in Redis, because it affects the encoding's name.
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

    /// Removes elements that equal `needle` and returns their number. A positive `count` removes up to that many from
    /// the left, a negative one from the right, and 0 removes all.
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

    /// Keeps the elements with indexes in the range, and removes all others.
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
            // Nothing to remove, which is common for capped lists.
            FormMut::Packed(_) => {}
            FormMut::Node(node) => {
                node.truncate(keep.end);
                node.drop_front(keep.start);
            }
            FormMut::Quick(quick) => quick.trim(keep.start, len - keep.end),
        }
        self.shrink(limits);
    }

    /// Removes the element at an end without changing the form.
    fn take<R>(&mut self, end: End, visit: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        match self.view_mut() {
            FormMut::Packed(block) if end == End::Left => block.pop_front_with(visit),
            FormMut::Packed(block) => block.pop_back_with(visit),
            FormMut::Node(node) => node.pop_with(end, visit),
            FormMut::Quick(quick) => quick.pop_with(end, visit),
        }
    }

    /// Converts the list to the form that can hold `count` more elements of `bytes` bytes in total.
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

    /// Converts the list to a smaller form after a removal, if Redis's rule says so.
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

    /// Converts a packed block to a node, because all changes except those at the ends need one.
    fn unpack(&mut self) {
        if matches!(self.0, Form::Packed(_)) {
            let node = self.take_node();
            self.become_big(Big::Node(node));
        }
    }

    /// Converts a small node to a packed block.
    #[inline]
    fn pack(&mut self) {
        if matches!(self.view(), FormRef::Node(node) if node.bytes() <= PACKED_BYTES_BACK) {
            self.0 = Form::Packed(self.take_node().into_packed());
        }
    }

    /// Takes the only node out of a list that is not a ring. The caller stores another form afterwards.
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

    /// Iterates over the items of the node with this index, if it exists. A list that is not a ring counts as one node.
    fn run(&self, node: usize) -> Option<packed::Iter<'_>> {
        let items = match self.view() {
            FormRef::Quick(quick) => quick.nodes().get(node)?.items(),
            FormRef::Packed(block) if node == 0 => block.items(),
            FormRef::Node(only) if node == 0 => only.items(),
            _ => return None,
        };
        Some(packed::Iter::of(items))
    }

    /// Returns the node that holds the element with this index, and the element's index there.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        match self.view() {
            FormRef::Quick(quick) => quick.locate(index),
            _ => (index < self.len()).then_some((0, index)),
        }
    }

    /// Number of elements in a node.
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
