//! Work that the machines leave for a worker.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use super::MoveWait;
use super::awaited::Awaited;
use crate::inbox::Message;
use crate::slots::jobs::{ImportAnswer, ImportTask, SlotJob};
use crate::state::Engine;

/// Wait before a worker gets work again that it could not do.
pub const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Leaves work for a worker, and wakes it.
fn leave(engine: &Engine, worker: usize, task: ImportTask) {
    engine.slots.jobs.leave(worker, task);
    if let Some(inbox) = engine.inboxes.get(worker) {
        inbox.send(Message::SlotImports);
    }
}

/// Has the worker of a job apply a part of the source's stream, whole commands.
pub fn apply(engine: &Engine, job: &Arc<SlotJob>, number: u64, commands: &[u8]) -> Awaited<ImportAnswer> {
    let (answer, answered) = sync_channel(1);
    leave(engine, job.worker, ImportTask::Apply { job: job.clone(), number, commands: commands.to_vec(), answer });
    Awaited::new(answered)
}

/// Has the worker of a job forget its session.
pub fn forget(engine: &Engine, job: &Arc<SlotJob>) {
    leave(engine, job.worker, ImportTask::Forget(job.clone()));
}

/// The message to replicas and the append-only file that an import has ended. A replica, and a server that ends, tell nobody.
pub struct Recording {
    engine: &'static Engine,
    worker: usize,
    words: Vec<Vec<u8>>,
    answer: Awaited<bool>,
    /// The time for the next attempt, after the worker could not record the message.
    again: Option<Duration>,
}

impl Recording {
    /// Begins to record the message. `state`: success or failed.
    pub fn begin(engine: &'static Engine, job: &SlotJob, state: &str, message: &str) -> Recording {
        let words = ["CLUSTER", "SYNCSLOTS", "FINISH", "STATE", state, "NAME", &job.name, "MESSAGE", message];
        let words = if message.is_empty() { &words[..7] } else { &words[..] };
        let words: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        Recording { engine, worker: job.worker, answer: ask(engine, job.worker, &words), words, again: None }
    }

    /// Takes a step.
    pub fn step(&mut self, now: Duration) -> MoveWait {
        match self.again {
            Some(again) if now < again => return MoveWait::Time(again - now),
            Some(_) => (self.answer, self.again) = (ask(self.engine, self.worker, &self.words), None),
            None => {}
        }
        match self.answer.take() {
            None => MoveWait::Thread,
            Some(Ok(false)) => {
                self.again = Some(now + RETRY_AFTER);
                MoveWait::Time(RETRY_AFTER)
            }
            Some(_) => MoveWait::Over,
        }
    }

    /// Waits for the worker, at most for this time.
    pub fn block(&mut self, longest: Duration) {
        self.answer.block(longest);
    }
}

fn ask(engine: &Engine, worker: usize, words: &[Vec<u8>]) -> Awaited<bool> {
    let (answer, answered) = sync_channel(1);
    leave(engine, worker, ImportTask::Record { words: words.to_vec(), answer });
    Awaited::new(answered)
}
