//! The end of imports without success, and of imports that this node only followed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cluster::SlotSet;
use config::LogLevel;

use super::records::Recording;
use super::{MoveClock, MoveWait};
use crate::inbox::Message;
use crate::slots::Slot;
use crate::slots::bus::DeletionWait;
use crate::slots::jobs::{JobState, SlotJob};
use crate::state::Engine;

/// Returns the slots of a job that this node's shard has.
fn own_slots(engine: &Engine, job: &SlotJob) -> SlotSet {
    let Some(view) = engine.slots.view() else { return SlotSet::EMPTY };
    let mine = [Some(view.me), view.my_primary()];
    job.slots.iter().filter(|slot| view.owner(*slot).is_some_and(|owner| mine.contains(&Some(owner)))).collect()
}

/// Has the first worker delete the keys of slots.
fn delete(engine: &Engine, slots: SlotSet) -> DeletionWait {
    let dropped = engine.slots.dropped.add(slots);
    if let Some(inbox) = engine.inboxes.first() {
        inbox.send(Message::DropSlots);
    }
    dropped
}

/// Shows the keys of a job's slots, if there are any.
pub fn show(engine: &Engine, job: &SlotJob) {
    engine.keyspace.stage(job.slots.iter().map(Slot::index), false);
}

/// The stages of a failed import.
enum Stage {
    /// The first worker deletes the staged keys.
    Deletes(DeletionWait),
    /// Replicas and the append-only file learn the end.
    Records(Recording),
    Over,
}

/// The end of a failed import of this primary: the staged keys are deleted, and replicas learn that the import is over.
pub struct CleanUp {
    engine: &'static Engine,
    job: Arc<SlotJob>,
    message: String,
    stage: Stage,
}

impl CleanUp {
    /// Begins to delete the keys.
    pub fn begin(engine: &'static Engine, job: Arc<SlotJob>, message: &str, clock: &dyn MoveClock) -> CleanUp {
        engine.slots.jobs.explain(&job, message);
        job.enter(JobState::CleaningUp, clock.unix_s());
        let mut foreign = job.slots.clone();
        foreign.subtract(&own_slots(engine, &job));
        let stage = Stage::Deletes(delete(engine, foreign));
        CleanUp { engine, job, message: message.to_owned(), stage }
    }

    /// Takes a step.
    pub fn step(&mut self, clock: &dyn MoveClock) -> MoveWait {
        match &mut self.stage {
            Stage::Deletes(deletion) if !deletion.is_over() => MoveWait::Thread,
            Stage::Deletes(_) => {
                show(self.engine, &self.job);
                self.stage = Stage::Records(Recording::begin(self.engine, &self.job, "failed", &self.message));
                MoveWait::Nothing
            }
            Stage::Records(recording) => match recording.step(clock.now()) {
                MoveWait::Over => {
                    self.end(clock);
                    MoveWait::Over
                }
                wait => wait,
            },
            Stage::Over => MoveWait::Over,
        }
    }

    fn end(&mut self, clock: &dyn MoveClock) {
        let CleanUp { engine, job, message, .. } = self;
        let state = job.failed_state();
        engine.slots.jobs.end(job, state, message, clock.unix_s());
        let ended = if state == JobState::Cancelled { "was cancelled" } else { "has failed" };
        let line = format!("The import {} of the slots {} {ended}: {message}", job.name, job.ranges);
        engine.host.log(LogLevel::Warning, &line);
        self.stage = Stage::Over;
    }

    /// Waits for the worker, at most for this time.
    pub fn block(&mut self, longest: Duration) {
        match &mut self.stage {
            Stage::Deletes(deletion) => deletion.block(longest),
            Stage::Records(recording) => recording.block(longest),
            Stage::Over => {}
        }
    }
}

/// The end of an import that this node only followed.
enum FollowedEnd {
    /// The shard has the slots.
    Succeeds(Arc<SlotJob>, Recording),
    Fails(CleanUp),
}

/// The end of the imports that this node only followed, as a replica or in its append-only file, now that it is a primary. Slots that its
/// shard has are complete: their target claimed them after it had all their keys.
pub struct FollowedEnds {
    engine: &'static Engine,
    jobs: VecDeque<Arc<SlotJob>>,
    message: String,
    current: Option<FollowedEnd>,
}

impl FollowedEnds {
    /// Lists the imports. Returns `None` if there are none.
    #[must_use]
    pub fn begin(engine: &'static Engine, message: &str) -> Option<FollowedEnds> {
        let mut jobs: VecDeque<_> = engine.slots.jobs.under_way().into();
        jobs.retain(|job| job.nodes.is_none());
        (!jobs.is_empty()).then(|| FollowedEnds { engine, jobs, message: message.to_owned(), current: None })
    }

    /// Takes a step.
    pub fn step(&mut self, clock: &dyn MoveClock) -> MoveWait {
        let wait = match &mut self.current {
            None => match self.jobs.pop_front() {
                None => return MoveWait::Over,
                Some(job) => {
                    self.current = Some(self.begin_end(job, clock));
                    return MoveWait::Nothing;
                }
            },
            Some(FollowedEnd::Succeeds(job, recording)) => {
                let wait = recording.step(clock.now());
                if wait == MoveWait::Over {
                    self.engine.slots.jobs.end(job, JobState::Success, "", clock.unix_s());
                }
                wait
            }
            Some(FollowedEnd::Fails(clean_up)) => clean_up.step(clock),
        };
        match wait {
            MoveWait::Over => {
                self.current = None;
                MoveWait::Nothing
            }
            wait => wait,
        }
    }

    fn begin_end(&self, job: Arc<SlotJob>, clock: &dyn MoveClock) -> FollowedEnd {
        let engine = self.engine;
        if own_slots(engine, &job) == job.slots {
            show(engine, &job);
            let recording = Recording::begin(engine, &job, "success", "");
            return FollowedEnd::Succeeds(job, recording);
        }
        FollowedEnd::Fails(CleanUp::begin(engine, job, &self.message, clock))
    }

    /// Waits for the workers, at most for this time.
    pub fn block(&mut self, longest: Duration) {
        match &mut self.current {
            Some(FollowedEnd::Succeeds(_, recording)) => recording.block(longest),
            Some(FollowedEnd::Fails(clean_up)) => clean_up.block(longest),
            None => {}
        }
    }
}

/// Ends the imports that this replica followed: other data replace the present ones.
pub fn forget_followed(engine: &Engine, unix_s: u64) {
    for job in engine.slots.jobs.replaced_by_primary() {
        show(engine, &job);
        engine.slots.jobs.end(&job, JobState::Failed, "Full resynchronization occurred", unix_s);
    }
}
