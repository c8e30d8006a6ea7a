//! Changes of slots by CLUSTER SETSLOT that the replicas have, and the bus has not executed. A snapshot for a replica that is cut in between must
//! show them: the view does not, and the stream behind the snapshot has them no more.

use std::sync::{Mutex, PoisonError};

use cluster::Slot;
use cluster::commands::SetSlot;

/// See the module's documentation. The change with each wait for the bus, in their order in the stream.
#[derive(Default)]
pub(crate) struct ChangesUnderWay(Mutex<Vec<(u64, Slot, SetSlot)>>);

impl ChangesUnderWay {
    fn with<T>(&self, run: impl FnOnce(&mut Vec<(u64, Slot, SetSlot)>) -> T) -> T {
        // No code panics with the list half changed.
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes a change that goes into the stream. The caller is inside the gate, so that no snapshot is cut in between.
    pub(crate) fn begin(&self, wait: u64, slot: Slot, change: SetSlot) {
        self.with(|changes| changes.push((wait, slot, change)));
    }

    /// Notes that the view shows a change, or that it is given up.
    pub(crate) fn end(&self, wait: u64) {
        self.with(|changes| changes.retain(|(of, ..)| *of != wait));
    }

    /// Returns the changes.
    pub(crate) fn all(&self) -> Vec<(Slot, SetSlot)> {
        self.with(|changes| changes.iter().map(|(_, slot, change)| (*slot, change.clone())).collect())
    }
}
