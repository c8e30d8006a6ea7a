//! The decisions of a bus, carried out in the engine one after another: the steps of the server's thread for them.

use std::collections::VecDeque;
use std::sync::Arc;

use cluster::commands::ClusterReply;
use cluster::{NodeId, SlotSet, SlotView};
use engine::inbox::Message;
use engine::pause::PausePurpose;
use engine::replication::Primary;

use crate::process::SimProcess;

/// Most parts of a deletion in a step. All parts, unless the log has no room.
const PARTS_MAX: usize = 10_000;

/// A decision of the bus.
pub enum SimTask {
    /// Serve by another map of the slots.
    View(Arc<SlotView>),
    /// Replicate a primary.
    Follow(Primary),
    /// Stop replicating.
    Lead,
    /// Delete all data.
    Empty,
    /// Delete the keys of slots.
    DropSlots(Box<SlotSet>),
    /// Tell the replicas of imports from a node.
    TellReplicas(Box<SlotSet>, NodeId),
    /// Hold back writes until a time, and report the offset behind the last one.
    Pause {
        /// The simulated time, in microseconds.
        until_us: u64,
    },
    /// Let writes go on.
    Resume,
    /// Answer a command.
    Answer {
        /// The client.
        client: u64,
        /// The worker that owns its connection.
        worker: usize,
        /// The number of the wait.
        wait: u64,
        /// The answer.
        reply: Box<ClusterReply>,
    },
}

/// The queue. A view replaces an older one if only answers are between them.
#[derive(Default)]
pub struct SimRoles {
    tasks: VecDeque<SimTask>,
    /// True while keys of lost slots are being deleted. Later decisions wait, because they may allow keys in these slots again.
    is_dropping: bool,
    /// The number of changes of the role that are carried out.
    carried_out: u64,
}

/// The effect of a decision that concerns the bus or the world.
pub enum RoleEvent {
    /// The workers serve by this view.
    Viewed(Arc<SlotView>),
    /// Writes are held back, behind this offset.
    Paused(u64),
}

impl SimRoles {
    /// Appends a decision.
    pub fn push(&mut self, task: SimTask) {
        if matches!(task, SimTask::View(_)) {
            let before_answers = self.tasks.iter_mut().rev().find(|task| !matches!(task, SimTask::Answer { .. }));
            if let Some(older @ SimTask::View(_)) = before_answers {
                *older = task;
                return;
            }
        }
        self.tasks.push_back(task);
    }

    /// Returns true if all decisions are carried out.
    #[must_use]
    pub fn are_done(&self) -> bool {
        self.tasks.is_empty() && !self.is_dropping
    }

    /// The number of changes of the role that are carried out.
    #[must_use]
    pub fn carried_out(&self) -> u64 {
        self.carried_out
    }

    /// Carries out the next decision.
    pub fn step(&mut self, process: &mut SimProcess, now_us: u64) -> Option<RoleEvent> {
        if self.is_dropping {
            // A part of the deletion takes a real time, and a history must not depend on it.
            self.is_dropping = (0..PARTS_MAX).all(|_| process.drop_slots(now_us));
            return None;
        }
        let engine = process.engine();
        let now_ms = process.unix_us(now_us) / 1000;
        match self.tasks.pop_front()? {
            SimTask::View(view) => {
                engine.replace_slots(view.clone());
                return Some(RoleEvent::Viewed(view));
            }
            SimTask::Follow(primary) => {
                let _alone = engine.keyspace.gate().close();
                engine.follow(Some(primary), now_ms);
                self.carried_out += 1;
            }
            SimTask::Lead => {
                let _alone = engine.keyspace.gate().close();
                engine.follow(None, now_ms);
                self.carried_out += 1;
                process.end_followed("A failover occurred during slot import");
            }
            SimTask::DropSlots(slots) => {
                // The keys of an import under way are no leftovers.
                engine.slots.jobs.without_imported(*slots, |slots| drop(engine.slots.dropped.add(slots)));
                self.is_dropping = true;
            }
            SimTask::TellReplicas(slots, source) => {
                engine.slots.untold_imports.add(*slots, source);
                engine.inboxes[0].send(Message::TellReplicas);
            }
            SimTask::Empty => {
                engine::slot_moves::forget_followed(engine, now_ms / 1000);
                drop(engine.slots.dropped.add(cluster::Slot::all().collect()));
                self.is_dropping = true;
            }
            SimTask::Pause { until_us } => {
                let until_ms = now_ms + until_us.saturating_sub(now_us) / 1000;
                engine.pause.begin(PausePurpose::ManualFailover, false, now_ms, until_ms);
                let alone = engine.keyspace.gate().close();
                while engine.replication.stream.take() {}
                let offset = engine.replication.offset();
                drop(alone);
                engine.replication.stream.wake();
                return Some(RoleEvent::Paused(offset));
            }
            SimTask::Resume => {
                engine.pause.end(PausePurpose::ManualFailover);
                engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
            }
            SimTask::Answer { client, worker, wait, reply } => {
                engine.inboxes[worker].send(Message::ClusterAnswered { client, wait, reply });
            }
        }
        None
    }
}
