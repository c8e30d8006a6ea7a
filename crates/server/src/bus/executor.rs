//! The thread that carries out the bus's decisions in the engine: another view of the slots, another role, deleted slots, answers.
//!
//! Most of them close the gate, and so wait for running commands. The bus doesn't wait: its PINGs go on during a long script. Decisions are
//! carried out one after another, in their order. The answer of a command therefore follows the view that the command has changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cluster::commands::ClusterReply;
use cluster::slots::SlotSet;
use cluster::{NodeId, SlotView};
use engine::inbox::Message;
use engine::pause::PausePurpose;
use engine::replication::Primary;
use engine::state::Engine;

use super::mailbox::{BusMail, BusMailbox};
use super::tasks::TaskQueue;
use crate::log;
use crate::slot_moves;
use crate::threads;
use crate::time::now_us;

/// Interval between checks of a condition that other threads fulfil.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The client that awaits a command's answer.
#[derive(Clone, Copy, Debug)]
pub struct WaitingClient {
    /// The client.
    pub client: u64,
    /// The worker that owns its connection.
    pub worker: usize,
    /// The number of the wait.
    pub wait: u64,
}

/// A decision of the bus.
pub enum Task {
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
        /// The end of the pause.
        until: Instant,
    },
    /// Let writes go on.
    Resume,
    /// Answer a command.
    Answer(WaitingClient, Box<ClusterReply>),
}

impl Task {
    /// Returns true for a change of roles or data. It must not run while the server loads its data at the start.
    fn awaits_load(&self) -> bool {
        !matches!(self, Task::View(_) | Task::Answer(..))
    }
}

/// Starts the thread. `roles` counts the changes of the role that it has carried out.
///
/// # Errors
/// If no other thread can be started.
pub fn start(
    engine: &'static Engine,
    mailbox: Arc<BusMailbox>,
    roles: Arc<AtomicU64>,
) -> Result<Arc<TaskQueue>, String> {
    let queue = Arc::<TaskQueue>::default();
    let tasks = queue.clone();
    let run = move || {
        let executor = Executor { engine, mailbox, roles };
        loop {
            executor.carry_out(tasks.take());
        }
    };
    let thread = threads::spawn(&threads::CLUSTER_ROLES, run);
    thread.map_err(threads::cannot_start)?;
    Ok(queue)
}

/// The state of the thread.
struct Executor {
    engine: &'static Engine,
    mailbox: Arc<BusMailbox>,
    roles: Arc<AtomicU64>,
}

impl Executor {
    fn carry_out(&self, task: Task) {
        while task.awaits_load() && !self.mailbox.is_loaded() {
            std::thread::sleep(LOOK_EVERY);
        }
        match task {
            Task::View(view) => self.engine.replace_slots(view),
            Task::Follow(primary) => {
                log::notice(format!("The cluster has this server follow {}:{}", primary.host, primary.port));
                self.follow(Some(primary));
            }
            Task::Lead => {
                self.follow(None);
                slot_moves::end_followed_later(self.engine, "A failover occurred during slot import");
            }
            Task::Empty => {
                slot_moves::forget_followed(self.engine);
                self.drop_slots(cluster::Slot::all().collect());
            }
            Task::DropSlots(slots) => self.drop_slots(*slots),
            Task::TellReplicas(slots, source) => {
                self.engine.slots.untold_imports.add(*slots, source);
                self.engine.inboxes[0].send(Message::TellReplicas);
            }
            Task::Pause { until } => self.pause(until),
            Task::Resume => {
                self.engine.pause.end(PausePurpose::ManualFailover);
                self.engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
            }
            Task::Answer(client, reply) => self.answer(client, reply),
        }
    }

    fn follow(&self, primary: Option<Primary>) {
        let _alone = self.engine.keyspace.gate().close();
        self.engine.follow(primary, now_us() / 1000);
        self.roles.fetch_add(1, Ordering::Release);
    }

    /// Has the first worker delete the keys, and waits for it, because a later decision may allow keys in these slots again.
    fn drop_slots(&self, lost: SlotSet) {
        // The keys of an import under way are no leftovers. A slot with leftovers begins no import.
        let slots = &self.engine.slots;
        let dropped = slots.jobs.without_imported(lost, |lost| slots.dropped.add(lost));
        self.engine.inboxes[0].send(Message::DropSlots);
        dropped.wait();
    }

    fn pause(&self, until: Instant) {
        let now_ms = now_us() / 1000;
        let left = until.saturating_duration_since(Instant::now());
        let until_ms = now_ms + left.as_millis() as u64;
        self.engine.pause.begin(PausePurpose::ManualFailover, false, now_ms, until_ms);
        // Commands that run after the gate was closed have seen the pause, so none of them writes.
        let alone = self.engine.keyspace.gate().close();
        while self.engine.replication.stream.take() {}
        let offset = self.engine.replication.offset();
        drop(alone);
        self.engine.replication.stream.wake();
        self.mailbox.leave(BusMail::Paused(offset));
    }

    fn answer(&self, to: WaitingClient, reply: Box<ClusterReply>) {
        if let Some(inbox) = self.engine.inboxes.get(to.worker) {
            inbox.send(Message::ClusterAnswered { client: to.client, wait: to.wait, reply });
        }
    }
}
