//! The inboxes that a thread's publishers have filled: see `execute::backpressure`.

use std::cell::Cell;

/// A flag for each inbox. Belongs to one thread; the flags are cells, because publishers have only a shared reference
/// to the worker.
pub(crate) struct FullInboxes {
    inboxes: Box<[Cell<bool>]>,
    count: Cell<usize>,
}

impl FullInboxes {
    /// Creates the flags for `threads` inboxes.
    pub(crate) fn new(threads: usize) -> FullInboxes {
        FullInboxes { inboxes: (0..threads).map(|_| Cell::new(false)).collect(), count: Cell::new(0) }
    }

    /// Returns true if any inbox is full; the fast check.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.get() > 0
    }

    /// Returns true if this thread's inbox is full.
    pub(crate) fn has(&self, inbox: usize) -> bool {
        self.inboxes.get(inbox).is_some_and(Cell::get)
    }

    pub(crate) fn set(&self, inbox: usize, is_overfilled: bool) {
        let Some(cell) = self.inboxes.get(inbox) else { return };
        match (cell.replace(is_overfilled), is_overfilled) {
            (false, true) => self.count.set(self.count.get() + 1),
            (true, false) => self.count.set(self.count.get() - 1),
            _ => {}
        }
    }
}
