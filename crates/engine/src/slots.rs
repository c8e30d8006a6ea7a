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
pub(crate) mod changes;
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
    /// The numbers of waits for the bus.
    pub(crate) waits: bus::Waits,
    /// True if the replicas of this primary apply SETSLOT from its stream (`Machine::replicas_take_slots`).
    pub replicas_take_slots: AtomicBool,
    /// Number of transactions and scripts between two of their commands for the bus.
    holding: AtomicUsize,
    /// Moves of whole slots.
    pub jobs: jobs::SlotJobs,
    /// Changes that the replicas have, and the bus has not executed.
    pub(crate) under_way: changes::ChangesUnderWay,
    /// Lost slots with keys that must be deleted.
    pub dropped: bus::DroppedSlots,
    /// Imports that the replicas have not heard of.
    pub untold_imports: bus::UntoldImports,
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
            waits: bus::Waits::default(),
            replicas_take_slots: AtomicBool::new(false),
            holding: AtomicUsize::new(0),
            jobs: jobs::SlotJobs::new(workers, slow_path.clone()),
            under_way: changes::ChangesUnderWay::default(),
            dropped: bus::DroppedSlots::default(),
            untold_imports: bus::UntoldImports::default(),
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

    /// Returns the states of the open slots, for a snapshot that is cut now; `None` if no slot is open, or outside of a cluster.
    pub(crate) fn states(&self) -> Option<String> {
        self.view()?.slot_states(&self.under_way.all())
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
    /// True if the view's deadline had passed when the thread looked last. After this process was stopped, a replica may have replaced it,
    /// and its threads may run before the cluster's thread does.
    is_late: bool,
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
        let is_late = self.view.as_ref().is_some_and(|view| view.is_late(now_ms));
        if version == self.version && is_late == self.is_late {
            return false;
        }
        self.adopt(slots.view(), now_ms);
        self.version = version;
        true
    }

    #[cold]
    fn adopt(&mut self, view: Option<Arc<SlotView>>, now_ms: u64) {
        self.is_late = view.as_ref().is_some_and(|view| view.is_late(now_ms));
        let doubts = |view: &Arc<SlotView>| self.is_late && view.is_up() && view.is_primary();
        self.view = view.map(|view| if doubts(&view) { Arc::new(view.in_doubt()) } else { view });
    }
}

#[cfg(test)]
mod tests {
    use cluster::view::ViewDeadline;

    use super::*;

    fn view(edition: u64) -> Arc<SlotView> {
        Arc::new(SlotView::new(ViewParts { edition, state: ClusterState::Ok, ..nothing_known() }))
    }

    #[test]
    fn a_late_view_of_a_primary_serves_nothing() {
        let slots = Slots::new(true, 1, Arc::default());
        let view = view(1);
        slots.replace(view.clone());
        let mut seen = SeenSlots::default();
        let mut is_up = |now_ms| {
            let is_new = seen.follow(&slots, now_ms);
            (is_new, seen.view().unwrap().is_up())
        };
        assert_eq!(is_up(5000), (true, true));
        let mut deadline = ViewDeadline::default();
        deadline.follow(&view);
        deadline.extend(6000);
        assert_eq!([is_up(6000), is_up(6001), is_up(6002)], [(false, true), (true, false), (false, false)]);
        deadline.extend(7000);
        assert_eq!([is_up(6900), is_up(6901)], [(true, true), (false, true)]);
    }

    /// The bus of a process that was stopped may have learned of the successor, and extend the deadline, before a worker gets the new view.
    #[test]
    fn a_view_is_not_extended_by_a_later_one() {
        let slots = Slots::new(true, 1, Arc::default());
        let (first, second) = (view(1), view(2));
        let mut deadline = ViewDeadline::default();
        deadline.extend_next(5000);
        deadline.follow(&first);
        slots.replace(first);
        let mut seen = SeenSlots::default();
        assert!(seen.follow(&slots, 5000) && seen.view().unwrap().is_up());
        deadline.extend_next(9000);
        assert!(seen.follow(&slots, 8000) && !seen.view().unwrap().is_up());
        deadline.follow(&second);
        deadline.extend(9500);
        assert!(!seen.follow(&slots, 8000) && !seen.view().unwrap().is_up());
        slots.replace(second);
        assert!(seen.follow(&slots, 9500) && seen.view().unwrap().is_up());
    }
}
