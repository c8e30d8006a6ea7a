//! The engine's side of the bus: commands for it, and the slots whose keys it has deleted.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::commands::{ClusterCommand, ClusterReply};
use cluster::{NodeId, SlotSet};

use super::Slot;

/// The receiver of a command's answer.
#[derive(Debug)]
pub enum Answer {
    /// A connection that waits for it.
    Client {
        /// The connection.
        client: u64,
        /// The worker that owns it.
        worker: usize,
        /// The number of the wait.
        wait: u64,
    },
    /// A thread that waits for it: the command is one of a transaction or a script.
    Thread(SyncSender<ClusterReply>),
    /// A machine that looks for it later: a change is on disk before the answer.
    Machine(SyncSender<ClusterReply>),
    /// Nobody: the command is part of the primary's stream.
    Nobody,
}

/// A command for the bus.
#[derive(Debug)]
pub struct BusRequest {
    /// The command.
    pub command: ClusterCommand,
    /// The receiver of its answer.
    pub answer: Answer,
}

/// An answer that could not be given yet.
pub(crate) struct LateAnswer {
    /// The connection.
    pub(crate) client: u64,
    /// The number of its wait.
    pub(crate) wait: u64,
    /// The answer.
    pub(crate) reply: Box<ClusterReply>,
}

/// The numbers of waits for the bus.
#[derive(Default)]
pub struct Waits(AtomicU64);

impl Waits {
    /// Returns a number that no other wait has.
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The end of a deletion.
#[derive(Default)]
struct Deletion {
    is_done: Mutex<bool>,
    done: Condvar,
}

/// Waits for the end of a deletion.
pub struct DeletionWait(Arc<Deletion>);

impl DeletionWait {
    /// Waits until the keys are deleted.
    pub fn wait(&self) {
        let mut is_done = lock(&self.0.is_done);
        while !*is_done {
            is_done = self.0.done.wait(is_done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns true once the keys are deleted.
    #[must_use]
    pub fn is_over(&self) -> bool {
        *lock(&self.0.is_done)
    }

    /// Waits until the keys are deleted, at most for this time.
    pub fn block(&self, longest: Duration) {
        let is_done = lock(&self.0.is_done);
        // The caller checks the state after the wait.
        drop(self.0.done.wait_timeout_while(is_done, longest, |is_done| !*is_done));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics with the value half changed, so a poisoned lock is harmless.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lost slots with keys that must be deleted, in the order of the bus's decisions.
#[derive(Default)]
pub struct DroppedSlots(Mutex<VecDeque<(SlotSet, Arc<Deletion>)>>);

impl DroppedSlots {
    /// Adds slots. The caller notifies the worker that deletes ([`crate::inbox::Message::DropSlots`]).
    pub fn add(&self, slots: SlotSet) -> DeletionWait {
        let deletion = Arc::<Deletion>::default();
        lock(&self.0).push_back((slots, deletion.clone()));
        DeletionWait(deletion)
    }

    /// Returns true if keys of one of these slots must still be deleted.
    pub(crate) fn has_any(&self, slots: &SlotSet) -> bool {
        lock(&self.0).iter().any(|(dropped, _)| dropped.intersects(slots))
    }

    /// Returns the next slot with keys that must be deleted.
    pub(crate) fn next(&self) -> Option<Slot> {
        let mut queue = lock(&self.0);
        while let Some((slots, _)) = queue.front() {
            if let Some(slot) = slots.iter().next() {
                return Some(slot);
            }
            if let Some((_, deletion)) = queue.pop_front() {
                *lock(&deletion.is_done) = true;
                deletion.done.notify_all();
            }
        }
        None
    }

    /// Notes that a slot has no keys any more.
    pub(crate) fn note_empty(&self, slot: Slot) {
        if let Some((slots, _)) = lock(&self.0).front_mut() {
            slots.remove(slot);
        }
    }
}

/// Imports that the bus has opened without a command, on their way to the replicas: slots, and their source.
#[derive(Default)]
pub struct UntoldImports(Mutex<Vec<(SlotSet, NodeId)>>);

impl UntoldImports {
    /// Adds an import. The caller notifies the worker that tells the replicas ([`crate::inbox::Message::TellReplicas`]).
    pub fn add(&self, slots: SlotSet, source: NodeId) {
        lock(&self.0).push((slots, source));
    }

    pub(crate) fn has_any(&self) -> bool {
        !lock(&self.0).is_empty()
    }

    pub(crate) fn take(&self) -> Vec<(SlotSet, NodeId)> {
        std::mem::take(&mut lock(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(slots: &[u16]) -> SlotSet {
        slots.iter().filter_map(|slot| Slot::new(u64::from(*slot))).collect()
    }

    #[test]
    fn a_deletion_ends_with_its_last_slot() {
        let dropped = DroppedSlots::default();
        let (first, second) = (dropped.add(set(&[3, 7])), dropped.add(set(&[3])));
        let mut order = Vec::new();
        while let Some(slot) = dropped.next() {
            order.push(slot.number());
            dropped.note_empty(slot);
        }
        assert_eq!(order, [3, 7, 3]);
        first.wait();
        second.wait();
        assert!(!dropped.has_any(&set(&[3])));
        dropped.add(SlotSet::EMPTY);
        assert_eq!(dropped.next(), None);
    }
}
