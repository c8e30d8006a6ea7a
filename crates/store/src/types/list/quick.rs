//! The large form of a list: a ring of nodes.
//!
//! Where a push, an insertion or a merge puts an element follows Redis's quicklist, so that `OBJECT ENCODING` and the
//! nodes of a snapshot come out as its would: nodes are filled up to the limit, are not merged when they empty, and
//! disappear with their last element.

use std::collections::VecDeque;
use std::fmt;

use crate::types::packed::{self, Item};

use super::node::ListNode;
use super::walk::{self, ListWalk};
use super::{End, ListLimits};
use crate::snapshot::{Budget, ElementSink, Step};

/// What Redis adds to an element's length when it asks whether it fits a node, in bytes. An upper bound of an item's
/// head and back length for the elements that fit one at all.
const ITEM_OVERHEAD_BYTES: usize = 8;

/// What replacing an element may make of a node, in bytes. Limits aren't asked then, so that a replacement costs no
/// more than its node; but a node has to stay far below 4 GiB, and where elements are this large nothing is lost by
/// giving each a node of its own.
const REPLACED_NODE_BYTES_MAX: usize = 1 << 20;

/// A ring of nodes, none of them empty.
#[derive(Default)]
pub struct Quick {
    nodes: VecDeque<ListNode>,
    /// The number of elements.
    len: usize,
    /// The capacity of all nodes' buffers together, in bytes.
    buffers: usize,
    /// The walk of a snapshot that is saving it.
    walk: Option<Box<ListWalk>>,
}

impl Quick {
    /// Whether a snapshot is saving it in pieces.
    pub fn has_walk(&self) -> bool {
        self.walk.is_some()
    }

    /// Begins to save it in pieces, or gives that up.
    pub fn set_walk(&mut self, elements: Option<Box<dyn ElementSink>>) {
        self.walk = elements.map(|elements| ListWalk::begin(elements, &mut self.nodes));
    }

    /// Saves a piece. Says why that has stopped before the end.
    pub fn save_piece(&mut self, budget: &mut Budget) -> Option<Step> {
        walk::step(&mut self.walk, &self.nodes, budget)
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The nodes, first to last.
    pub fn nodes(&self) -> &VecDeque<ListNode> {
        &self.nodes
    }

    /// What the ring and its nodes have allocated, in bytes.
    pub fn allocated(&self) -> usize {
        self.buffers + self.nodes.capacity() * size_of::<ListNode>()
    }

    /// The only node, taken out, where there is exactly one and `fits` says so. A snapshot that is saving the list keeps
    /// it in this form.
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

    #[cold]
    fn push_node(&mut self, end: End, item: Item<'_>) {
        let mut node = ListNode::default();
        node.push(end, item);
        self.buffers += node.capacity();
        match end {
            End::Left => self.nodes.push_front(node),
            End::Right => self.nodes.push_back(node),
        }
        // The node that was at this end until now is full.
        let full = match end {
            End::Left => 1,
            End::Right => self.nodes.len().wrapping_sub(2),
        };
        self.change(full, ListNode::seal);
    }

    /// Removes the element at an end after handing it to `visit`.
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

    /// The node that holds the element with this index and the element's index there, sought from the nearer end.
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

    /// Replaces the element with this index, if there is one, by one of `len` bytes.
    pub fn set(&mut self, index: usize, item: Item<'_>, len: usize) {
        let Some((at, within)) = self.locate(index) else { return };
        let node = &self.nodes[at];
        if node.len() == 1 || node.bytes().saturating_add(len) <= REPLACED_NODE_BYTES_MAX {
            self.change(at, |node| node.set(within, item));
        } else {
            self.set_apart(at, within, item);
        }
    }

    /// Replaces an element by one that gets a node of its own, between what was before and what was behind it.
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

    /// Puts an element of `len` bytes beside the one with this index: to its left or to its right.
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

    /// Puts an element at the near end of the neighbour, where that has room, or else into a node of its own at `at`.
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

    /// Cuts a full node in two where the element belongs, adds it to the half that its pivot isn't in, and merges what
    /// fits together about the half that the pivot is in.
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

    /// Merges neighbours that fit one node together, in Redis's order: the two before the centre, the two after it, the
    /// centre with the one before it, and the result with the one after it.
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

    /// Merges a node with the one after it, if there are both and the limits allow it.
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

    /// Removes up to `max` elements equal to `needle`, from an end on, and returns how many there were.
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

    /// Removes the first `front` elements and the last `back` ones, which together are not more than there are.
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

    /// Applies a change to a node, if there is that node, and keeps the sum of capacities right.
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

    /// Removes a node that is not looked at any more.
    fn drop_node(&mut self, at: usize) {
        let Some(node) = self.nodes.remove(at) else { return };
        self.buffers -= node.capacity();
        if let Some(walk) = &mut self.walk {
            walk.keep_removed(node);
        }
    }
}

/// The copy is no part of the snapshot that is saving the original.
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

/// A list's only node becomes a ring.
impl From<ListNode> for Quick {
    fn from(node: ListNode) -> Self {
        let mut quick = Self { len: node.len(), ..Self::default() };
        if node.len() > 0 {
            quick.insert_node(0, node);
        }
        quick
    }
}

/// Whether an element of `len` bytes may be added to a node.
fn has_room(node: &ListNode, len: usize, limits: ListLimits) -> bool {
    !limits.exceeded(node.bytes().saturating_add(len).saturating_add(ITEM_OVERHEAD_BYTES), node.len() + 1)
}

#[cfg(test)]
impl Quick {
    /// Panics unless the sums are what the nodes say and no node is empty.
    pub fn check(&self) {
        assert!(self.nodes.iter().all(|node| node.len() > 0));
        assert_eq!(self.len, self.nodes.iter().map(ListNode::len).sum::<usize>());
        assert_eq!(self.buffers, self.nodes.iter().map(ListNode::capacity).sum::<usize>());
    }
}
