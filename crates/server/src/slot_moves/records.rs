//! Work that the threads of moves leave for a worker.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use engine::inbox::Message;
use engine::slots::jobs::{ImportAnswer, ImportTask, SlotJob};
use engine::state::Engine;

/// Wait before a worker gets work again that it could not do.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// Leaves work for a worker, and wakes it.
fn leave(engine: &'static Engine, worker: usize, task: ImportTask) {
    engine.slots.jobs.leave(worker, task);
    if let Some(inbox) = engine.inboxes.get(worker) {
        inbox.send(Message::SlotImports);
    }
}

/// Has the worker of a job apply whole commands, or none of them if they must wait.
pub fn apply(engine: &'static Engine, job: &Arc<SlotJob>, commands: &[u8]) -> ImportAnswer {
    let (answer, answered) = sync_channel(1);
    leave(engine, job.worker, ImportTask::Apply { job: job.clone(), commands: commands.to_vec(), answer });
    match answered.recv() {
        Ok(ImportAnswer::Applied(0)) => {
            std::thread::sleep(RETRY_AFTER);
            ImportAnswer::Applied(0)
        }
        Ok(answer) => answer,
        Err(_) => ImportAnswer::Failed("The server ends".into()),
    }
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
