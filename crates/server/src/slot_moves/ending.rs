//! The end of imports without success: the staged keys are deleted, and replicas learn that the import is over.

use engine::inbox::Message;
use engine::slots::Slot;
use engine::slots::jobs::{JobState, SlotJob};
use engine::state::Engine;

use cluster::SlotSet;

use super::records;
use crate::log;
use crate::threads;
use crate::time::now_us;

/// Returns the slots of a job that this node's shard has.
fn own_slots(engine: &Engine, job: &SlotJob) -> SlotSet {
    let Some(view) = engine.slots.view() else { return SlotSet::EMPTY };
    let mine = [Some(view.me), view.my_primary()];
    job.slots.iter().filter(|slot| view.owner(*slot).is_some_and(|owner| mine.contains(&Some(owner)))).collect()
}

/// Deletes the keys of slots, and waits for the end.
fn delete(engine: &'static Engine, slots: SlotSet) {
    let dropped = engine.slots.dropped.add(slots);
    if let Some(inbox) = engine.inboxes.first() {
        inbox.send(Message::DropSlots);
    }
    dropped.wait();
}

/// Deletes the staged keys of a failed import of this primary, and ends the job.
pub fn clean_up(engine: &'static Engine, job: &SlotJob, message: &str) {
    engine.slots.jobs.explain(job, message);
    job.enter(JobState::CleaningUp, now_us() / 1_000_000);
    let mut foreign = job.slots.clone();
    foreign.subtract(&own_slots(engine, job));
    delete(engine, foreign);
    engine.keyspace.stage(job.slots.iter().map(Slot::index), false);
    records::finish(engine, job, "failed", message);
    engine.slots.jobs.end(job, JobState::Failed, message, now_us() / 1_000_000);
    log::warning(format!("The import {} of the slots {} has failed: {message}", job.name, job.ranges));
}

/// Ends the imports that this node only followed, as a replica or in its append-only file, now that it is a primary. Slots that its
/// shard has are complete: their target claimed them after it had all their keys.
pub fn end_followed(engine: &'static Engine, message: &str) {
    for job in engine.slots.jobs.under_way().into_iter().filter(|job| job.nodes.is_none()) {
        if own_slots(engine, &job) == job.slots {
            engine.keyspace.stage(job.slots.iter().map(Slot::index), false);
            records::finish(engine, &job, "success", "");
            engine.slots.jobs.end(&job, JobState::Success, "", now_us() / 1_000_000);
        } else {
            clean_up(engine, &job, message);
        }
    }
}

/// Like [`end_followed`], without a wait for the workers.
pub fn end_followed_later(engine: &'static Engine, message: &'static str) {
    if engine.slots.jobs.under_way().iter().any(|job| job.nodes.is_none()) {
        let started = threads::spawn(&threads::SLOT_IMPORT, move || end_followed(engine, message));
        if let Err(error) = started {
            log::warning(format!("Staged keys are left: {}", threads::cannot_start(error)));
        }
    }
}

/// Ends the imports that this replica followed: other data replace the present ones.
pub fn forget_followed(engine: &Engine) {
    for job in engine.slots.jobs.replaced_by_primary() {
        engine.keyspace.stage(job.slots.iter().map(Slot::index), false);
        engine.slots.jobs.end(&job, JobState::Failed, "Full resynchronization occurred", now_us() / 1_000_000);
    }
}
