//! The walk of a snapshot of slots by the thread that sends it.
//!
//! The workers walk all other snapshots, and spend a quarter to a half of their time on it. On a machine without idle cores, the kernel then lets
//! other threads run before a worker that a client waits for. A snapshot of slots has a thread that sends it anyway. This thread walks the
//! slots, so that the workers serve clients only. Each slot is a shard with its own lock, and clients of other slots never wait for it.

use std::collections::VecDeque;

use cluster::SlotSet;
use store::keyspace::Shards;
use store::snapshot::Step;

use crate::inbox::Message;
use crate::slots::Slot;
use crate::snapshots::WalkClaim;
use crate::state::Engine;

/// Bytes of keys and values in a step, some ten microseconds for which writes to the slot may have to wait.
const STEP_BYTES: usize = 16 << 10;
/// Slots that are walked in turn. The locks of shards are unfair: a thread that takes a lock again at once can keep others waiting.
const BEGUN_SLOTS: usize = 4;

/// The walk of the present snapshot's slots. Its drop leaves the rest of the walk to the workers.
pub struct SlotWalk {
    engine: &'static Engine,
    /// None once the walk is dropped.
    claim: Option<WalkClaim>,
    /// The slots in turn, those that have begun first.
    begun: VecDeque<usize>,
    rest: VecDeque<usize>,
}

impl SlotWalk {
    /// Begins a walk of the slots of the snapshot that the claim is for.
    #[must_use]
    pub fn begin(engine: &'static Engine, claim: WalkClaim, slots: &SlotSet) -> SlotWalk {
        let rest = slots.iter().map(Slot::index).collect();
        SlotWalk { engine, claim: Some(claim), begun: VecDeque::new(), rest }
    }

    /// Walks some entries. Returns false if nothing can be done now, or all slots are walked.
    pub fn step(&mut self) -> bool {
        while self.begun.len() < BEGUN_SLOTS
            && let Some(slot) = self.rest.pop_front()
        {
            self.begun.push_back(slot);
        }
        let Some(&slot) = self.begun.front() else { return false };
        let (keyspace, ends) = (&self.engine.keyspace, self.engine.busy.ends_waits());
        // Behind the workers' places and the one of the thread that loads data.
        let Some(_inside) = keyspace.gate().enter_unless(self.engine.inboxes.len() + 1, &ends) else { return false };
        let Some(mut locked) = keyspace.lock(Shards::One(slot), ends) else { return false };
        let step = locked.snapshot_step(slot, STEP_BYTES);
        drop(locked);
        match step {
            Step::Done => _ = self.begun.pop_front(),
            Step::More if self.begun.len() == 1 => keyspace.give_way(slot),
            Step::More => self.begun.rotate_left(1),
            Step::Full => return false,
        }
        true
    }

    /// Returns true once all slots are walked.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.begun.is_empty() && self.rest.is_empty()
    }
}

impl Drop for SlotWalk {
    fn drop(&mut self) {
        self.claim = None;
        // A worker ends the snapshot, or walks the rest.
        if let Some(inbox) = self.engine.inboxes.first() {
            inbox.send(Message::Look);
        }
    }
}
