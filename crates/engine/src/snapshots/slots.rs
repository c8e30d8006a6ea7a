//! Snapshots of slots, for another node that takes them over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::SlotSet;
use journal::merge::Merge;

use super::{Outlet, Piece};

/// The claim to walk the shards of a snapshot in place of the workers. Its drop leaves the walk to them.
pub struct WalkClaim(Arc<AtomicBool>);

impl WalkClaim {
    pub(super) fn new(is_claimed: Arc<AtomicBool>) -> WalkClaim {
        is_claimed.store(true, Ordering::Release);
        WalkClaim(is_claimed)
    }
}

impl Drop for WalkClaim {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A snapshot of slots that has begun.
pub struct BegunSlots {
    /// The way of the bytes. The receiver of the pieces reports each that is done.
    pub outlet: Arc<Outlet>,
    /// The entries of records with the slots' keys. The receiver takes all pieces up to the last, then calls
    /// [`super::Snapshots::note_ended`].
    pub pieces: Receiver<Piece>,
    /// The receiver walks the slots with it; `None` if the workers walk them.
    pub walk: Option<WalkClaim>,
    /// All units behind the cut, also those of other slots. The receiver ends the reading.
    pub changes: Merge,
}

/// The progress of a request.
#[derive(Default)]
enum Progress {
    #[default]
    Waits,
    Begun(BegunSlots),
    /// The snapshot can't begin, or nobody waits for it.
    Over,
}

/// Error: the snapshot can't begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CannotBegin;

/// The place where a snapshot is handed over. A snapshot that has begun always has a receiver.
#[derive(Default)]
pub struct SlotsHandover(Mutex<Progress>);

impl SlotsHandover {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        // No code panics with the value half changed, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the snapshot if it has begun.
    ///
    /// # Errors
    /// It can't begin.
    pub fn take(&self) -> Result<Option<BegunSlots>, CannotBegin> {
        let mut progress = self.lock();
        match std::mem::take(&mut *progress) {
            Progress::Waits => Ok(None),
            Progress::Begun(begun) => {
                *progress = Progress::Over;
                Ok(Some(begun))
            }
            Progress::Over => {
                *progress = Progress::Over;
                Err(CannotBegin)
            }
        }
    }

    /// Withdraws the request. Returns the snapshot if it has begun.
    pub fn withdraw(&self) -> Option<BegunSlots> {
        match std::mem::replace(&mut *self.lock(), Progress::Over) {
            Progress::Begun(begun) => Some(begun),
            Progress::Waits | Progress::Over => None,
        }
    }
}

/// A request for a snapshot of slots.
pub struct WantedSlots {
    slots: SlotSet,
    handover: Arc<SlotsHandover>,
}

impl WantedSlots {
    /// Returns a request for a snapshot of these slots.
    #[must_use]
    pub fn new(slots: SlotSet, handover: Arc<SlotsHandover>) -> WantedSlots {
        WantedSlots { slots, handover }
    }

    pub(crate) fn slots(&self) -> &SlotSet {
        &self.slots
    }

    /// Hands the snapshot over.
    ///
    /// # Errors
    /// The snapshot: nobody waits for it any more.
    pub(crate) fn hand_over(&self, begun: BegunSlots) -> Result<(), Box<BegunSlots>> {
        let mut progress = self.handover.lock();
        if !matches!(*progress, Progress::Waits) {
            return Err(Box::new(begun));
        }
        *progress = Progress::Begun(begun);
        Ok(())
    }
}

impl Drop for WantedSlots {
    fn drop(&mut self) {
        let mut progress = self.handover.lock();
        if matches!(*progress, Progress::Waits) {
            *progress = Progress::Over;
        }
    }
}
