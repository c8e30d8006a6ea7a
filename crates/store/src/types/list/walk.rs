//! Saving a long list in pieces, while commands continue to change it.
//!
//! The walk saves the nodes in the order that they had at the beginning, and numbers them from 1. This writes 30
//! adjacent bytes per node, and takes a millisecond for a list with a million elements of a kilobyte. Before an unsaved
//! node is changed or removed, a copy is put aside under its number, and the node loses the number. Therefore each
//! number that the walk has not reached belongs to an unchanged node in the ring or to a copy, and numbers ascend in
//! the ring. The copies take at most the original size of the list.

use std::collections::{BTreeMap, VecDeque};

use super::node::ListNode;
use crate::snapshot::pieces::{Element, ElementTarget};
use crate::snapshot::{Budget, ElementSink, Step};
use crate::types::packed;

/// See the module's documentation.
pub struct ListWalk {
    target: ElementTarget,
    /// The number of the next node to save.
    next: u32,
    /// The number of the last node.
    last: u32,
    aside: BTreeMap<u32, ListNode>,
    /// Expected index of the next node in the ring, if no nodes were added or removed before it.
    expected_at: usize,
}

impl ListWalk {
    /// Begins to save the nodes of a ring.
    pub fn begin(elements: Box<dyn ElementSink>, nodes: &mut VecDeque<ListNode>) -> Box<ListWalk> {
        // A list with more nodes would take a terabyte; the rest would be missing, and the snapshot's reader would
        // report that.
        let numbers = 1..=u32::MAX;
        let numbered = nodes.iter_mut().zip(numbers).map(|(node, number)| node.set_number(number));
        let last = numbered.count() as u32;
        Box::new(ListWalk {
            target: ElementTarget::new(elements),
            next: 1,
            last,
            aside: BTreeMap::new(),
            expected_at: 0,
        })
    }

    /// Returns true if a node has not been saved.
    #[inline]
    pub fn needs(&self, node: &ListNode) -> bool {
        (self.next..=self.last).contains(&node.number())
    }

    /// Puts a copy of a node aside before the node changes.
    #[cold]
    pub fn keep(&mut self, node: &mut ListNode) {
        if self.needs(node) {
            self.aside.insert(node.number(), node.clone());
            node.set_number(0);
        }
    }

    /// Puts a removed node aside.
    #[cold]
    pub fn keep_removed(&mut self, node: ListNode) {
        if self.needs(&node) {
            self.aside.insert(node.number(), node);
        }
    }

    /// Saves elements until the budget is used up. Returns the reason if it stopped before the end.
    fn step(&mut self, nodes: &VecDeque<ListNode>, budget: &mut Budget) -> Option<Step> {
        while self.next <= self.last {
            let stopped = self.target.stops(budget);
            if stopped.is_some() {
                return stopped;
            }
            if let Some(node) = self.aside.remove(&self.next) {
                save(&node, &mut self.target, budget);
            } else if let Some(at) = self.find(nodes) {
                save(&nodes[at], &mut self.target, budget);
                self.expected_at = at + 1;
            }
            self.next += 1;
        }
        None
    }

    /// Returns the index of the next node in the ring.
    fn find(&self, nodes: &VecDeque<ListNode>) -> Option<usize> {
        let is_next = |at: &usize| nodes.get(*at).is_some_and(|node| node.number() == self.next);
        Some(self.expected_at).filter(is_next).or_else(|| (0..nodes.len()).find(is_next))
    }
}

fn save(node: &ListNode, target: &mut ElementTarget, budget: &mut Budget) {
    packed::Iter::of(node.items()).for_each(|item| target.save(Element::Item(item), budget));
}

/// Continues a walk, and ends it after the last node. Returns the reason if it stopped before the end.
pub fn step(walk: &mut Option<Box<ListWalk>>, nodes: &VecDeque<ListNode>, budget: &mut Budget) -> Option<Step> {
    let stopped = walk.as_mut()?.step(nodes, budget);
    if stopped.is_none()
        && let Some(walk) = walk.take()
    {
        walk.target.end();
    }
    stopped
}
