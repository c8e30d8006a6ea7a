//! The large form of a list: a ring of nodes.
//!
//! Pushes, insertions and merges choose nodes like Redis's quicklist, so that `OBJECT ENCODING` and the nodes of a
//! snapshot equal Redis's: nodes are filled up to the limit, are not merged when they become emptier, and disappear
//! with their last element.

use std::collections::VecDeque;
use std::fmt;

use crate::types::packed::{self, Item};

use super::node::ListNode;
use super::walk::{self, ListWalk};
use super::{End, ListLimits};
use crate::snapshot::{Budget, ElementSink, Step};

/// Bytes that Redis adds to an element's length when it checks for space in a node. It is an upper bound for an item's
/// head and back length, for elements that fit into a node.
const ITEM_OVERHEAD_BYTES: usize = 8;

/// Largest node that is taken over from another list, in bytes: the highest limit that `list-max-listpack-size` allows.
const NODE_BYTES_MAX: usize = 64 * 1024;

/// Maximum size of a node after an element is replaced, in bytes. Replacements ignore the limits, so that their cost is
/// bounded by one node. But a node must stay far below 4 GiB, and elements of this size can have their own nodes
/// without loss.
const REPLACED_NODE_BYTES_MAX: usize = 1 << 20;

/// A ring of nodes, each of them not empty.
#[derive(Default)]
pub struct Quick {
    nodes: VecDeque<ListNode>,
    /// Number of elements.
    len: usize,
    /// Total capacity of all nodes' buffers, in bytes.
    buffers: usize,
    /// The walk of a snapshot that is saving it.
    walk: Option<Box<ListWalk>>,
}

impl Quick {
    /// Returns true while a snapshot saves it in pieces.
    pub fn has_walk(&self) -> bool {
        self.walk.is_some()
    }

    /// Begins to save it in pieces, or stops that.
    pub fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        self.walk = elements.map(|elements| ListWalk::begin(elements, &mut self.nodes));
    }

    /// Saves a piece. Returns the reason if it stopped before the end.
    pub fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        walk::step(&mut self.walk, &self.nodes, budget)
    }

    /// Number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the nodes, first to last.
    pub fn nodes(&self) -> &VecDeque<ListNode> {
        &self.nodes
    }

    /// Bytes allocated for the ring and its nodes.
    pub fn allocated(&self) -> usize {
        self.buffers + self.nodes.capacity() * size_of::<ListNode>()
    }

    /// Takes out the only node, if there is exactly one and `fits` returns true. A list that a snapshot is saving keeps
    /// this form.
    pub fn take_only(&mut self, fits: impl FnOnce(&ListNode) -> bool) -> Option<ListNode> {
        if self.has_walk() || self.nodes.len() != 1 || !self.nodes.front().is_some_and(fits) {
            return None;
        }
        self.nodes.pop_front()
    }

    /// Adds an element of `len` bytes at an end.
    #[inline]
    pub fn push(&mut self, end: End, item: Item<'_>, len: usize, limits: ListLimits) {
        let last = match end {
            End::Left => self.nodes.front_mut(),
            End::Right => self.nodes.back_mut(),
        };
        match last {
            Some(node) if has_room(node, len, limits) => {
                if let Some(walk) = &mut self.walk {
                    walk.keep(node);
                }
                let before = node.capacity();
                node.push(end, item);
                self.buffers += node.capacity() - before;
            }
            _ => self.push_node(end, item),
        }
        self.len += 1;
    }

    /// Adds a node of these items behind the last one, if that has no room for the first item of `first_bytes` bytes. Otherwise returns
    /// false.
    pub fn push_block(&mut self, items: &[u8], count: usize, first_bytes: usize, limits: ListLimits) -> bool {
        if self.nodes.back().is_some_and(|node| has_room(node, first_bytes, limits)) {
            return false;
        }
        self.add_node(End::Right, ListNode::of_items(items, count));
        self.len += count;
        true
    }

    #[cold]
    fn push_node(&mut self, end: End, item: Item<'_>) {
        let mut node = ListNode::default();
        node.push(end, item);
        self.add_node(end, node);
    }

    fn add_node(&mut self, end: End, node: ListNode) {
        self.buffers += node.capacity();
        match end {
            End::Left => self.nodes.push_front(node),
            End::Right => self.nodes.push_back(node),
        }
        // The previous node at this end is full.
        let full = match end {
            End::Left => 1,
            End::Right => self.nodes.len().wrapping_sub(2),
        };
        self.change(full, ListNode::seal);
    }

    /// Removes the element at an end after passing it to `visit`.
    #[inline]
    pub fn pop_with<R>(&mut self, end: End, visit: impl FnOnce(Item<'_>) -> R) -> Option<R> {
        let node = match end {
            End::Left => self.nodes.front_mut(),
            End::Right => self.nodes.back_mut(),
        }?;
        if let Some(walk) = &mut self.walk {
            walk.keep(node);
        }
        let result = node.pop_with(end, visit);
        self.len -= 1;
        if node.len() == 0 {
            self.remove_node(if end == End::Left { 0 } else { self.nodes.len() - 1 });
        }
        result
    }

    /// Returns the node that holds the element with this index, and the element's index there. Searches from the nearer
    /// end.
    pub fn locate(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.len {
            return None;
        }
        if index < self.len / 2 { self.locate_from_left(index) } else { self.locate_from_right(index) }
    }

    fn locate_from_left(&self, index: usize) -> Option<(usize, usize)> {
        let mut rest = index;
        for (at, node) in self.nodes.iter().enumerate() {
            if rest < node.len() {
                return Some((at, rest));
            }
            rest -= node.len();
        }
        None
    }

    fn locate_from_right(&self, index: usize) -> Option<(usize, usize)> {
        let mut behind = self.len - index;
        for (at, node) in self.nodes.iter().enumerate().rev() {
            if behind <= node.len() {
                return Some((at, node.len() - behind));
            }
            behind -= node.len();
        }
        None
    }

    /// Replaces the element with this index, if it exists, by one of `len` bytes.
    pub fn set(&mut self, index: usize, item: Item<'_>, len: usize) {
        let Some((at, within)) = self.locate(index) else { return };
        let node = &self.nodes[at];
        if node.len() == 1 || node.bytes().saturating_add(len) <= REPLACED_NODE_BYTES_MAX {
            self.change(at, |node| node.set(within, item));
        } else {
            self.set_apart(at, within, item);
        }
    }

    /// Replaces an element by one in its own node, between the elements before and after it.
    fn set_apart(&mut self, at: usize, within: usize, item: Item<'_>) {
        let mut tail = ListNode::default();
        self.change(at, |node| tail = node.split_off(within));
        tail.drop_front(1);
        let mut own = ListNode::default();
        own.push(End::Right, item);
        for node in [tail, own] {
            if node.len() > 0 {
                self.insert_node(at + 1, node);
            }
        }
        if within == 0 {
            self.remove_node(at);
        }
    }

    /// Inserts an element of `len` bytes beside the one with this index, to its left or to its right.
    pub fn insert(&mut self, pivot: usize, side: End, item: Item<'_>, len: usize, limits: ListLimits) {
        let Some((at, within)) = self.locate(pivot) else { return };
        let index = if side == End::Left { within } else { within + 1 };
        self.len += 1;
        if self.has_room(at, len, limits) {
            return self.change(at, |node| node.insert(index, item));
        }
        if index == 0 {
            self.insert_between(at, at.checked_sub(1), End::Right, item, len, limits);
        } else if index == self.nodes[at].len() {
            self.insert_between(at + 1, Some(at + 1), End::Left, item, len, limits);
        } else {
            self.insert_splitting(at, index, side, item, limits);
        }
    }

    /// Inserts an element at the near end of the neighbour, if that is not full, otherwise into a new node at `at`.
    fn insert_between(
        &mut self,
        at: usize,
        neighbour: Option<usize>,
        near: End,
        item: Item<'_>,
        len: usize,
        limits: ListLimits,
    ) {
        match neighbour {
            Some(neighbour) if self.has_room(neighbour, len, limits) => {
                self.change(neighbour, |node| node.push(near, item));
            }
            _ => {
                let mut node = ListNode::default();
                node.push(near, item);
                self.insert_node(at, node);
            }
        }
    }

    /// Splits a full node at the element's place, adds the element to the half without its pivot, and merges small
    /// neighbours around the half with the pivot.
    fn insert_splitting(&mut self, at: usize, index: usize, side: End, item: Item<'_>, limits: ListLimits) {
        let mut tail = ListNode::default();
        self.change(at, |node| tail = node.split_off(index));
        self.insert_node(at + 1, tail);
        let (target, end, centre) = match side {
            End::Left => (at, End::Right, at + 1),
            End::Right => (at + 1, End::Left, at),
        };
        self.change(target, |node| node.push(end, item));
        self.merge_about(centre, limits);
    }

    /// Merges neighbours that fit together into one node, in Redis's order: the two before the centre, the two after
    /// it, the centre with the one before it, and the result with the one after it.
    fn merge_about(&mut self, centre: usize, limits: ListLimits) {
        let mut centre = centre;
        if centre >= 2 && self.merge(centre - 2, limits) {
            centre -= 1;
        }
        self.merge(centre + 1, limits);
        if centre >= 1 && self.merge(centre - 1, limits) {
            centre -= 1;
        }
        self.merge(centre, limits);
    }

    /// Merges a node with the next one, if both exist and the limits allow it. Returns true if it did.
    fn merge(&mut self, at: usize, limits: ListLimits) -> bool {
        let (Some(left), Some(right)) = (self.nodes.get(at), self.nodes.get(at + 1)) else { return false };
        if limits.exceeded(left.bytes() + right.bytes(), left.len() + right.len()) {
            return false;
        }
        if let Some(right) = self.remove_node(at + 1) {
            self.change(at, |left| left.append(&right));
        }
        true
    }

    /// Removes up to `max` elements equal to `needle`, beginning at an end, and returns their number.
    pub fn remove_equal(&mut self, end: End, needle: Item<'_>, max: usize) -> usize {
        let mut removed = 0;
        let mut drained = false;
        let walk = &mut self.walk;
        let mut remove = |node: &mut ListNode| {
            if removed < max {
                if let Some(walk) = walk.as_mut()
                    && walk.needs(node)
                    && packed::Iter::of(node.items()).any(|item| item == needle)
                {
                    walk.keep(node);
                }
                removed += node.remove_equal(end, needle, max - removed);
                drained |= node.len() == 0;
            }
        };
        match end {
            End::Left => self.nodes.iter_mut().for_each(&mut remove),
            End::Right => self.nodes.iter_mut().rev().for_each(&mut remove),
        }
        self.len -= removed;
        if drained {
            self.nodes.retain(|node| node.len() > 0);
            self.buffers = self.nodes.iter().map(ListNode::capacity).sum();
        }
        removed
    }

    /// Removes the first `front` and the last `back` elements, in total at most the number of elements.
    pub fn trim(&mut self, front: usize, back: usize) {
        self.len -= front + back;
        let mut rest = front;
        while let Some(first) = self.nodes.front().filter(|first| first.len() <= rest) {
            rest -= first.len();
            self.drop_node(0);
        }
        self.change(0, |node| node.drop_front(rest));
        let mut rest = back;
        while let Some(last) = self.nodes.back().filter(|last| last.len() <= rest) {
            rest -= last.len();
            self.drop_node(self.nodes.len() - 1);
        }
        self.change(self.nodes.len().wrapping_sub(1), |node| node.truncate(node.len() - rest));
    }

    /// Applies a change to a node, if it exists, and updates the total capacity.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut ListNode)) {
        if let Some(node) = self.nodes.get_mut(at) {
            if let Some(walk) = &mut self.walk {
                walk.keep(node);
            }
            self.buffers -= node.capacity();
            change(node);
            self.buffers += node.capacity();
        }
    }

    fn has_room(&self, at: usize, len: usize, limits: ListLimits) -> bool {
        self.nodes.get(at).is_some_and(|node| has_room(node, len, limits))
    }

    fn insert_node(&mut self, at: usize, node: ListNode) {
        self.buffers += node.capacity();
        self.nodes.insert(at, node);
    }

    fn remove_node(&mut self, at: usize) -> Option<ListNode> {
        let mut node = self.nodes.remove(at)?;
        if let Some(walk) = &mut self.walk {
            walk.keep(&mut node);
        }
        self.buffers -= node.capacity();
        Some(node)
    }

    /// Removes a node without returning it.
    fn drop_node(&mut self, at: usize) {
        let Some(node) = self.nodes.remove(at) else { return };
        self.buffers -= node.capacity();
        if let Some(walk) = &mut self.walk {
            walk.keep_removed(node);
        }
    }
}

/// The copy does not belong to the snapshot that is saving the original.
impl Clone for Quick {
    fn clone(&self) -> Self {
        Self { nodes: self.nodes.clone(), len: self.len, buffers: self.buffers, walk: None }
    }
}

impl fmt::Debug for Quick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.nodes).finish()
    }
}

/// Converts a list's only node to a ring.
impl From<ListNode> for Quick {
    fn from(node: ListNode) -> Self {
        let mut quick = Self { len: node.len(), ..Self::default() };
        if node.len() > 0 {
            quick.insert_node(0, node);
        }
        quick
    }
}

/// Returns true if items that another list had in one node can stay together. Pushes of several elements at once, and other limits, make
/// nodes that exceed the limit in bytes. Redis keeps these, too.
pub fn is_node(items: &[u8], count: usize, limits: ListLimits) -> bool {
    items.len() <= NODE_BYTES_MAX && !limits.exceeded(0, count)
}

/// Returns true if an element of `len` bytes may be added to a node.
fn has_room(node: &ListNode, len: usize, limits: ListLimits) -> bool {
    !limits.exceeded(node.bytes().saturating_add(len).saturating_add(ITEM_OVERHEAD_BYTES), node.len() + 1)
}

#[cfg(test)]
impl Quick {
    /// Panics unless the sums match the nodes and every node has elements.
    pub fn check(&self) {
        assert!(self.nodes.iter().all(|node| node.len() > 0));
        assert_eq!(self.len, self.nodes.iter().map(ListNode::len).sum::<usize>());
        assert_eq!(self.buffers, self.nodes.iter().map(ListNode::capacity).sum::<usize>());
    }
}
