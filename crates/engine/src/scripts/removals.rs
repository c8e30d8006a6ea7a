//! Removals of scripts or libraries in order, so that each thread's machine unloads the removed ones without checking
//! all that it has loaded.

use std::collections::VecDeque;

/// The number of removals that are remembered by name. A machine that has missed more checks all that it has loaded.
pub(super) const KEPT_MAX: usize = 1024;

/// The last removals by name, and the number of all.
#[derive(Debug)]
pub(super) struct Removals<K> {
    last: VecDeque<K>,
    count: u64,
}

impl<K> Default for Removals<K> {
    fn default() -> Removals<K> {
        Removals { last: VecDeque::new(), count: 0 }
    }
}

/// The removed scripts or libraries.
pub(crate) enum Gone<K> {
    /// The ones with these names.
    Named(Vec<K>),
    /// More than are remembered.
    Many,
}

impl<K: Clone> Removals<K> {
    /// Notes a removal.
    pub(super) fn note(&mut self, name: K) {
        self.count += 1;
        if self.last.len() == KEPT_MAX {
            self.last.pop_front();
        }
        self.last.push_back(name);
    }

    /// Returns the number of all removals.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the removals after the first `seen`.
    pub(super) fn since(&self, seen: u64) -> Gone<K> {
        let missed = usize::try_from(self.count - seen).unwrap_or(usize::MAX);
        match self.last.len().checked_sub(missed) {
            Some(first) => Gone::Named(self.last.range(first..).cloned().collect()),
            None => Gone::Many,
        }
    }
}
