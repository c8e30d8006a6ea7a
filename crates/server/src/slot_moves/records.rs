//! Work that the threads of moves leave for a worker.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use engine::inbox::Message;
use engine::slots::jobs::{ImportAnswer, ImportTask, SlotJob};
use engine::state::Engine;

/// Wait before a worker gets work again that it could not do.
pub const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Leaves work for a worker, and wakes it.
fn leave(engine: &'static Engine, worker: usize, task: ImportTask) {
    engine.slots.jobs.leave(worker, task);
    if let Some(inbox) = engine.inboxes.get(worker) {
        inbox.send(Message::SlotImports);
    }
}

/// Has the worker of a job apply a part of the source's stream, whole commands. Returns the receiver of the result.
pub fn apply(engine: &'static Engine, job: &Arc<SlotJob>, number: u64, commands: &[u8]) -> Receiver<ImportAnswer> {
    let (answer, answered) = sync_channel(1);
    leave(engine, job.worker, ImportTask::Apply { job: job.clone(), number, commands: commands.to_vec(), answer });
    answered
}

/// Tells replicas and the append-only file the end of an import. A replica, and a server that ends, tell nobody.
pub fn finish(engine: &'static Engine, job: &SlotJob, state: &str, message: &str) {
    let words = ["CLUSTER", "SYNCSLOTS", "FINISH", "STATE", state, "NAME", &job.name, "MESSAGE", message];
    let words = if message.is_empty() { &words[..7] } else { &words[..] };
    loop {
        let words = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let (answer, answered) = sync_channel(1);
        leave(engine, job.worker, ImportTask::Record { words, answer });
        match answered.recv() {
            Ok(false) => std::thread::sleep(RETRY_AFTER),
            Ok(true) | Err(_) => return,
        }
    }
}

/// Has the worker of a job forget its session.
pub fn forget(engine: &'static Engine, job: &Arc<SlotJob>) {
    leave(engine, job.worker, ImportTask::Forget(job.clone()));
}
