//! The slots of a cluster, as the threads of its node see them: the commands that run here, and the redirects of the others.
//!
//! The cluster's own thread makes a view of the slots ([`SlotView`]) and replaces it as a whole, behind the closed gate. A
//! plan that was made inside the gate is therefore valid until the gate is left. A thread that has been outside compares
//! versions, and plans again after a change (`SeenSlots::follow`).
//!
//! The commands of a window are checked against the view when they are planned (`guard`). Nearly all have keys in stable
//! slots of this node and take the fast path. The others go through the checks of Redis and Valkey, in their order
//! (`check`).
//!
//! This module does not know sessions or keys.

pub mod bus;
pub(crate) mod check;
pub mod forward;
pub(crate) mod guard;
pub mod jobs;
pub(crate) mod stats;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cluster::view::{ClusterState, DownReason, EndpointKind, NodeIndex, ViewParts};
pub use cluster::{Slot, SlotView};

use crate::slow_path::{EngineFlags, SLOTS_OPEN};

/// The current view.
pub struct Slots {
    /// None if the server is not a node of a cluster.
    view: Option<Mutex<Arc<SlotView>>>,
    /// Number of the current view.
    version: AtomicU64,
    /// The Unix time in milliseconds up to which the view of a primary counts. The cluster's thread extends it in each tick. After this
    /// process was stopped, a replica may have replaced it, and its threads may run before the cluster's thread does.
    valid_until_ms: AtomicU64,
    /// The numbers of waits for the bus.
    pub(crate) waits: bus::Waits,
    /// True if the replicas of this primary apply SETSLOT from its stream. Replicas of Valkey do, replicas of Redis do not.
    pub replicas_take_slots: AtomicBool,
    /// Number of transactions and scripts between two of their commands for the bus.
    holding: AtomicUsize,
    /// Moves of whole slots.
    pub jobs: jobs::SlotJobs,
    /// Lost slots with keys that must be deleted.
    pub dropped: bus::DroppedSlots,
    slow_path: Arc<EngineFlags>,
}

impl Slots {
    /// Creates the state of a node without slots, or of a server outside of a cluster.
    #[must_use]
    pub(crate) fn new(is_node: bool, workers: usize, slow_path: Arc<EngineFlags>) -> Slots {
        let view = is_node.then(|| Mutex::new(Arc::new(SlotView::new(nothing_known()))));
        Slots {
            view,
            version: AtomicU64::new(1),
            valid_until_ms: AtomicU64::new(u64::MAX),
            waits: bus::Waits::default(),
            replicas_take_slots: AtomicBool::new(false),
            holding: AtomicUsize::new(0),
            jobs: jobs::SlotJobs::new(workers, slow_path.clone()),
            dropped: bus::DroppedSlots::default(),
            slow_path,
        }
    }

    /// Returns true if the server is a node of a cluster.
    #[inline]
    #[must_use]
    pub fn are_on(&self) -> bool {
        self.view.is_some()
    }

    /// Returns the view. None if the server is not a node of a cluster.
    #[must_use]
    pub fn view(&self) -> Option<Arc<SlotView>> {
        self.view.as_ref().map(|view| view.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Returns true if this server is a primary of a cluster with slots.
    #[must_use]
    pub fn are_mine(&self) -> bool {
        self.view().is_some_and(|view| Slot::all().any(|slot| view.owner(slot) == Some(view.me)))
    }

    /// Notes that a transaction or a script gives the bus a command. Until its end, the bus takes no messages of other nodes
    /// between its commands: they could change the slots that the next command concerns.
    pub(crate) fn hold_bus(&self, holds: &mut bool) {
        if !std::mem::replace(holds, true) {
            self.holding.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Notes the end of the transaction or the script.
    #[inline]
    pub(crate) fn release_bus(&self, holds: &mut bool) {
        if std::mem::take(holds) {
            self.holding.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Returns true while a transaction or a script may have another command for the bus.
    #[must_use]
    pub fn hold_the_bus(&self) -> bool {
        self.holding.load(Ordering::Acquire) > 0
    }

    /// Lets a primary serve by its view until this Unix time, in milliseconds.
    pub fn extend(&self, until_ms: u64) {
        self.valid_until_ms.store(until_ms, Ordering::Relaxed);
    }

    /// Replaces the view. The caller has closed the gate.
    pub(crate) fn replace(&self, view: Arc<SlotView>) {
        let Some(held) = &self.view else { return };
        self.slow_path.set(SLOTS_OPEN, !view.open_slots().is_empty());
        *held.lock().unwrap_or_else(PoisonError::into_inner) = view;
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// Returns the view of a node that has just started.
fn nothing_known() -> ViewParts {
    ViewParts {
        edition: 0,
        state: ClusterState::Down(DownReason::Starting),
        nodes: Vec::new(),
        me: NodeIndex::new(0),
        bound: Vec::new(),
        open: std::collections::BTreeMap::new(),
        endpoint_kind: EndpointKind::default(),
        reads_when_down: false,
        pubsubshard_when_down: true,
    }
}

/// The view that a thread has seen most recently.
#[derive(Default)]
pub(crate) struct SeenSlots {
    view: Option<Arc<SlotView>>,
    version: u64,
    /// True if the view doesn't count any more.
    is_old: bool,
}

impl SeenSlots {
    /// Returns the view. None if the server is not a node of a cluster.
    #[inline]
    pub fn view(&self) -> Option<&Arc<SlotView>> {
        self.view.as_ref()
    }

    /// Adopts the current view, and returns true if it is a new one. The caller is inside the gate; the view stays current
    /// until it leaves. `now_ms`: the Unix time in milliseconds.
    #[inline]
    pub fn follow(&mut self, slots: &Slots, now_ms: u64) -> bool {
        let version = slots.version.load(Ordering::Acquire);
        let is_old = now_ms > slots.valid_until_ms.load(Ordering::Relaxed);
        if version == self.version && is_old == self.is_old {
            return false;
        }
        self.adopt(slots.view(), is_old);
        self.version = version;
        true
    }

    #[cold]
    fn adopt(&mut self, view: Option<Arc<SlotView>>, is_old: bool) {
        let doubts = |view: &Arc<SlotView>| is_old && view.is_up() && view.is_primary();
        self.view = view.map(|view| if doubts(&view) { Arc::new(view.in_doubt()) } else { view });
        self.is_old = is_old;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_view_of_a_primary_serves_nothing() {
        let slots = Slots::new(true, 1, Arc::default());
        slots.replace(Arc::new(SlotView::new(ViewParts { state: ClusterState::Ok, ..nothing_known() })));
        let mut seen = SeenSlots::default();
        let mut is_up = |now_ms| {
            let is_new = seen.follow(&slots, now_ms);
            (is_new, seen.view().unwrap().is_up())
        };
        assert_eq!(is_up(5000), (true, true));
        slots.extend(6000);
        assert_eq!([is_up(6000), is_up(6001), is_up(6002)], [(false, true), (true, false), (false, false)]);
        slots.extend(7000);
        assert_eq!([is_up(6900), is_up(6901)], [(true, true), (false, true)]);
    }
}
