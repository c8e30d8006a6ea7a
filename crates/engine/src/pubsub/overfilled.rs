//! The inboxes that a thread has overfilled with what its connections publish: see `execute::room`.

use std::cell::Cell;

/// Inboxes by their threads. It belongs to one thread; cells, since whatever publishes only has the worker shared.
pub(crate) struct Overfilled {
    inboxes: Box<[Cell<bool>]>,
    count: Cell<usize>,
}

impl Overfilled {
    /// None, of so many threads' inboxes.
    pub(crate) fn new(threads: usize) -> Overfilled {
        Overfilled { inboxes: (0..threads).map(|_| Cell::new(false)).collect(), count: Cell::new(0) }
    }

    /// Whether there is any: the only question in most cases.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.count.get() > 0
    }

    /// Whether this thread's inbox is one.
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
