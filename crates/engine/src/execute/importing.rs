//! Commands of the source of moving slots, which fill staged slots.
//!
//! They run like the stream of a primary: nothing expires by the clock, because the source sends expiries as commands, and no
//! check of clients' commands holds. Each changes only keys of the job's slots (`ImportSplitter`). They are
//! recorded for this node's own replicas and file like any other change.

use std::sync::Arc;

use resp::reply::Output;

use super::lanes::{KEPT_BYTES, failed};
use crate::commit::{Changed, TokenCount};
use crate::slots::jobs::{ImportAnswer, ImportTask, SlotJob};
use crate::worker::{ImportSession, Worker};
use statistics::ticks::Ticks;

const OUT_OF_MEMORY: &str = "Ran out of memory (OOM) during slot import";
const FAILED: &str = "Failed to process command during slot migration. Check logs for more information";

impl Worker {
    /// Does the oldest work for imports that has been left for this thread. Call it on each `Message::SlotImports`. Further work waits
    /// for its own message, so that clients have their turn in between.
    pub fn import_slots(&mut self) {
        match self.engine.slots.jobs.take(self.id) {
            Some(ImportTask::Apply { job, number, commands, answer }) => {
                let applied = self.apply_import(&job, number, &commands);
                // The thread may have given up.
                _ = answer.try_send(applied);
            }
            Some(ImportTask::Record { words, answer }) => _ = answer.try_send(self.record_for_import(&words)),
            Some(ImportTask::Forget(job)) => self.applying.imports.retain(|import| import.job.name != job.name),
            None => {}
        }
        // The source awaits no replies.
        _ = self.take_durable_after();
    }

    /// Applies a part of a source's stream, or nothing of it if it must wait.
    fn apply_import(&mut self, job: &Arc<SlotJob>, number: u64, commands: &[u8]) -> ImportAnswer {
        self.clock.follow(Ticks::now());
        let mut inside = self.enter_gate();
        // A pause may end with a replica's takeover: it must have all changes then.
        if inside.is_none() || self.engine.is_paused(self.clock.now_ms) || !self.log_has_room() {
            return ImportAnswer::Later;
        }
        if self.engine.is_replica() || !job.goes_on() {
            return ImportAnswer::Failed(String::new());
        }
        self.check_memory(1, &mut inside);
        if self.memory.full {
            return ImportAnswer::Failed(OUT_OF_MEMORY.into());
        }
        let mut import = self.import_session(job);
        if import.next != number {
            self.applying.imports.push(import);
            return ImportAnswer::Later;
        }
        let (mut out, mut at, mut failure) = (Output::default(), 0, None);
        self.set_replays(true);
        // Like a lane's commands, these never wait: they have keys, and the log has room.
        self.applying.is_lane = true;
        while at < commands.len() && failure.is_none() {
            let (before, errors) = (at, self.stats().errors.get());
            (at, _) = self.run_inside(&mut import.session, commands.into(), before, &mut out, &mut inside);
            if self.stats().errors.get() > errors || at == before {
                let text = failed(commands.get(before..).unwrap_or_default(), &out);
                failure = Some(text.unwrap_or_else(|| "a command has stopped".into()));
            }
            out.clear(KEPT_BYTES);
        }
        self.applying.is_lane = false;
        self.set_replays(false);
        import.next += u64::from(failure.is_none());
        self.applying.imports.push(import);
        if !self.ready.is_empty() {
            self.serve_ready(&mut inside);
        }
        self.note_observed();
        match failure {
            None => ImportAnswer::Applied,
            Some(text) => {
                let line = format!("Slot migration {}: a command of the source failed: {text}", job.name);
                self.engine.host.log(config::LogLevel::Warning, &line);
                ImportAnswer::Failed(FAILED.into())
            }
        }
    }

    fn import_session(&mut self, job: &Arc<SlotJob>) -> ImportSession {
        let imports = &mut self.applying.imports;
        match imports.iter().position(|import| import.job.name == job.name) {
            Some(at) => imports.swap_remove(at),
            None => {
                let mut session = Box::new(self.stream_session());
                session.select(0);
                ImportSession { job: job.clone(), session, next: 0 }
            }
        }
    }

    /// Records a command for replicas and the file. Returns false if that must wait.
    fn record_for_import(&mut self, words: &[Vec<u8>]) -> bool {
        self.clock.follow(Ticks::now());
        let inside = self.enter_gate();
        if inside.is_none() || self.engine.is_paused(self.clock.now_ms) {
            return false;
        }
        if self.engine.is_replica() {
            return true;
        }
        self.begin_effects(&[], None, self.engine.slow_path.get());
        self.effects.record_as(0, words.iter().map(Vec::as_slice));
        self.collect_effects(None, Changed::Keys(&[]));
        self.commit(TokenCount::None);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

    use super::*;
    use crate::slots::jobs::{NewJob, Operation, SlotRanges};
    use crate::testing::{Bench, request};

    fn give(bench: &Bench, job: &Arc<SlotJob>, number: u64, words: &[&str]) -> Receiver<ImportAnswer> {
        let (answer, answered) = sync_channel(1);
        let task = ImportTask::Apply { job: job.clone(), number, commands: request(words), answer };
        bench.worker.engine.slots.jobs.leave(0, task);
        answered
    }

    #[test]
    fn parts_of_a_stream_are_applied_in_order_and_one_at_a_time() {
        let mut bench = Bench::default();
        let job = Arc::new(SlotJob::new(NewJob {
            name: "job".into(),
            operation: Operation::Import,
            ranges: SlotRanges(Vec::new()),
            nodes: None,
            source: None,
            worker: 0,
            reports_progress: false,
            now_s: 5,
        }));
        let early = give(&bench, &job, 1, &["APPEND", "key", "2"]);
        let first = give(&bench, &job, 0, &["APPEND", "key", "1"]);
        let again = give(&bench, &job, 1, &["APPEND", "key", "2"]);
        bench.worker.import_slots();
        assert!(matches!(early.try_recv(), Ok(ImportAnswer::Later)));
        assert!(matches!(first.try_recv(), Err(TryRecvError::Empty)), "clients have their turn first");
        bench.worker.import_slots();
        bench.worker.import_slots();
        assert!(matches!((first.try_recv(), again.try_recv()), (Ok(ImportAnswer::Applied), Ok(ImportAnswer::Applied))));
        let wrong = give(&bench, &job, 2, &["LPUSH", "key", "x"]);
        let behind = give(&bench, &job, 3, &["APPEND", "key", "3"]);
        bench.worker.import_slots();
        bench.worker.import_slots();
        assert!(matches!(wrong.try_recv(), Ok(ImportAnswer::Failed(_))));
        assert!(matches!(behind.try_recv(), Ok(ImportAnswer::Later)), "a part behind a failure is not applied");
        let mut session = bench.open();
        bench.check(&mut session, &[("get key", "$2|12")]);
    }
}
