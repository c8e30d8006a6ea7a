//! Commands of the source of moving slots, which fill staged slots.
//!
//! They run like the stream of a primary: nothing expires by the clock, because the source sends expiries as commands, and no
//! check of clients' commands holds. Each changes only keys of the job's slots (`ImportSplitter`). They are
//! recorded for this node's own replicas and file like any other change.

use std::sync::Arc;

use resp::reply::Output;

use super::lanes::{KEPT_BYTES, failed};
use crate::clients::session::Session;
use crate::commit::{Changed, TokenCount};
use crate::slots::jobs::{ImportAnswer, ImportTask, SlotJob};
use crate::worker::Worker;
use statistics::ticks::Ticks;

const OUT_OF_MEMORY: &str = "Ran out of memory (OOM) during slot import";
const FAILED: &str = "Failed to process command during slot migration. Check logs for more information";

impl Worker {
    /// Does the work for imports that has been left for this thread. Call it on `Message::SlotImports`.
    pub fn import_slots(&mut self) {
        while let Some(task) = self.engine.slots.jobs.take(self.id) {
            match task {
                ImportTask::Apply { job, commands, answer } => {
                    let applied = self.apply_import(&job, &commands);
                    // The thread may have given up.
                    _ = answer.try_send(applied);
                }
                ImportTask::Record { words, answer } => _ = answer.try_send(self.record_for_import(&words)),
                ImportTask::Forget(job) => self.applying.imports.retain(|(known, _)| known.name != job.name),
            }
        }
        // The source awaits no replies.
        _ = self.take_durable_after();
    }

    /// Applies commands of a source, or none of them if they must wait.
    fn apply_import(&mut self, job: &Arc<SlotJob>, commands: &[u8]) -> ImportAnswer {
        self.clock.follow(Ticks::now());
        let mut inside = self.enter_gate();
        // A pause may end with a replica's takeover: it must have all changes then.
        if inside.is_none() || self.engine.is_paused(self.clock.now_ms) || !self.log_has_room() {
            return ImportAnswer::Applied(0);
        }
        if self.engine.is_replica() || !job.goes_on() {
            return ImportAnswer::Failed(String::new());
        }
        self.check_memory(1, &mut inside);
        if self.memory.full {
            return ImportAnswer::Failed(OUT_OF_MEMORY.into());
        }
        let mut session = self.import_session(job);
        let (mut out, mut at, mut failure) = (Output::default(), 0, None);
        self.set_replays(true);
        // Like a lane's commands, these never wait: they have keys, and the log has room.
        self.applying.is_lane = true;
        while at < commands.len() && failure.is_none() {
            let (before, errors) = (at, self.stats().errors.get());
            (at, _) = self.run_inside(&mut session, commands.into(), before, &mut out, &mut inside);
            if self.stats().errors.get() > errors || at == before {
                let text = failed(commands.get(before..).unwrap_or_default(), &out);
                failure = Some(text.unwrap_or_else(|| "a command has stopped".into()));
            }
            out.clear(KEPT_BYTES);
        }
        self.applying.is_lane = false;
        self.set_replays(false);
        self.applying.imports.push((job.clone(), session));
        if !self.ready.is_empty() {
            self.serve_ready(&mut inside);
        }
        self.note_observed();
        match failure {
            None => ImportAnswer::Applied(at),
            Some(text) => {
                let line = format!("Slot migration {}: a command of the source failed: {text}", job.name);
                self.engine.host.log(config::LogLevel::Warning, &line);
                ImportAnswer::Failed(FAILED.into())
            }
        }
    }

    fn import_session(&mut self, job: &Arc<SlotJob>) -> Box<Session> {
        let imports = &mut self.applying.imports;
        match imports.iter().position(|(known, _)| known.name == job.name) {
            Some(at) => imports.swap_remove(at).1,
            None => {
                let mut session = Box::new(self.stream_session());
                session.select(0);
                session
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
