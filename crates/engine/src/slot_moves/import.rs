//! An import: the target's side of a move of slots.
//!
//! The source connects like a client and sends ESTABLISH. From then on this machine owns the connection. It passes the source's
//! commands to a worker, which stores them in staged slots, and answers the source's messages. After FAILOVER-GRANTED, the replicas
//! get all changes and the end of the import first; then the bus claims the slots. The claim is on disk before others see it.
//!
//! A source holds writes for a limited time. A target that was stopped in between must not claim the slots later, because the source
//! may have taken new writes: see [`CLAIM_TIME_MAX`].

mod claiming;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::LogLevel;
use resp::parse::encode_request;

use self::claiming::{Claim, Claimed};
use super::awaited::{Awaited, Gone};
use super::ending::{self, CleanUp};
use super::{MoveWait, SourceLink, records};
use crate::replay::{ImportSplitter, ImportStep, SourceMessage};
use crate::slots::jobs::{ImportAnswer, JobNodes, JobState, NewJob, Operation, SlotJob};
use crate::state::Engine;

/// Wait for bytes before the next check that the job goes on.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval of signs of life to the source.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// Parts of the stream that a worker has at once: it applies one while the machine reads the next.
const PARTS_MAX: usize = 2;
/// Interval between checks that the source has the slots.
const OWNER_EVERY: Duration = Duration::from_millis(20);
/// The time between the request for the slots and their claim. A source holds writes for at least two seconds after its grant; the
/// rest of that time is for the disk and the network.
const CLAIM_TIME_MAX: Duration = Duration::from_millis(1500);

/// The failure of an import whose source has ended the connection.
pub const LOST_SOURCE: &str =
    "Connection lost to source. Check CLUSTER GETSLOTMIGRATIONS on the source node for more information.";
const UNEXPECTED: &str = "Unexpected state machine transition";
const SILENT: &str = "Timed out after too long with no interaction";
const FAILED_OVER: &str = "A failover occurred during slot import";

/// The reason that an import ends without success.
enum Ended {
    /// The staged keys are deleted.
    Failed(String),
    /// This node is a replica now. Its new primary ends the import.
    Demoted,
}

impl From<&str> for Ended {
    fn from(text: &str) -> Ended {
        Ended::Failed(text.to_owned())
    }
}

/// A part of the stream that the worker has.
struct Part {
    number: u64,
    /// Its bytes. The input has them until they are applied.
    len: usize,
    answer: Awaited<ImportAnswer>,
}

/// The result of an attempt to take a step of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Taken,
    /// More bytes are needed.
    NeedsMore,
    /// The worker must apply a part first.
    NeedsWorker,
}

/// The stages of an import.
enum Stage {
    /// The source's stream is applied.
    Follows,
    /// The slots are granted.
    Claims(Claim),
    /// The import is over, and the worker still has parts. It must not apply one after the staged keys are deleted.
    Drains(Result<(), Ended>),
    /// The staged keys are being deleted.
    CleansUp(CleanUp),
    Over,
}

/// See the module's documentation.
pub struct Import {
    engine: &'static Engine,
    job: Arc<SlotJob>,
    splitter: ImportSplitter,
    input: Vec<u8>,
    /// The start of the input that has not been applied.
    at: usize,
    /// The start of the input that the worker has not been given.
    given: usize,
    /// The step at `given`, while the worker must apply a part first. Finding it again would read all its commands again.
    next: Option<ImportStep>,
    /// The parts that the worker has, in order.
    parts: VecDeque<Part>,
    /// The number of the next part.
    number: u64,
    /// The time at which the worker gets its parts again, after it has refused the first one.
    again: Option<Duration>,
    /// Bytes that were applied before the input.
    drained: u64,
    /// Memory of the input that the figures of INFO include.
    noted: u64,
    /// Bytes for the source that the connection has not taken.
    output: Vec<u8>,
    /// The time since when there is output.
    unsent_since: Duration,
    heard: Duration,
    told: Duration,
    looked: Duration,
    /// The time of the request for the slots.
    asked: Option<Duration>,
    stage: Stage,
}

impl Import {
    /// Begins an import on a source's connection.
    #[must_use]
    pub fn begin(engine: &'static Engine, job: Arc<SlotJob>, link: &dyn SourceLink) -> Import {
        let splitter = ImportSplitter::new(job.slots.clone(), engine.settings.proto_max_bulk_len.get());
        let now = link.now();
        engine.host.log(LogLevel::Notice, &format!("The import {} of the slots {} begins", job.name, job.ranges));
        Import {
            engine,
            job,
            splitter,
            input: Vec::new(),
            at: 0,
            given: 0,
            next: None,
            parts: VecDeque::new(),
            number: 0,
            again: None,
            drained: 0,
            noted: 0,
            output: b"+OK\r\n".to_vec(),
            unsent_since: now,
            heard: now,
            told: now,
            looked: now,
            asked: None,
            stage: Stage::Follows,
        }
    }

    /// Takes a step.
    pub fn step(&mut self, link: &mut dyn SourceLink) -> MoveWait {
        let (stage, wait) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Follows => match self.follow(link) {
                Ok(_) if self.job.state() == JobState::FailoverGranted => {
                    (Stage::Claims(Claim::begin(link.now())), MoveWait::Nothing)
                }
                Ok(wait) => (Stage::Follows, wait),
                Err(ended) => (Stage::Drains(Err(ended)), MoveWait::Nothing),
            },
            Stage::Claims(claim) => match self.claim(claim, link) {
                Ok(Claimed::NotYet(claim, wait)) => (Stage::Claims(claim), wait),
                Ok(Claimed::All) => (Stage::Drains(Ok(())), MoveWait::Nothing),
                Err(ended) => (Stage::Drains(Err(ended)), MoveWait::Nothing),
            },
            Stage::Drains(ended) => match self.parts.iter_mut().all(|part| part.answer.is_here()) {
                true => self.end(ended, link),
                false => (Stage::Drains(ended), MoveWait::Thread),
            },
            Stage::CleansUp(mut clean_up) => {
                let wait = clean_up.step(link);
                (Stage::CleansUp(clean_up), wait)
            }
            Stage::Over => (Stage::Over, MoveWait::Over),
        };
        self.stage = stage;
        wait
    }

    /// Waits for the result of another thread, at most for this time.
    pub fn block(&mut self, longest: Duration) {
        match &mut self.stage {
            Stage::Follows | Stage::Drains(_) => {
                let mut missing = self.parts.iter_mut().filter_map(|part| (!part.answer.is_here()).then_some(part));
                if let Some(part) = missing.next() {
                    part.answer.block(longest);
                }
            }
            Stage::Claims(claim) => claim.block(longest),
            Stage::CleansUp(clean_up) => clean_up.block(longest),
            Stage::Over => {}
        }
    }

    /// Ends the import. The source learns a failure from the end of the connection.
    fn end(&mut self, ended: Result<(), Ended>, link: &mut dyn SourceLink) -> (Stage, MoveWait) {
        self.parts.clear();
        records::forget(self.engine, &self.job);
        self.engine.slots.jobs.bytes.import_memory.fetch_sub(self.noted, Ordering::Relaxed);
        match ended {
            Ok(()) => {
                self.engine.slots.jobs.end(&self.job, JobState::Success, "", link.unix_s());
                let (name, ms) = (&self.job.name, self.job.progress().hold_ms);
                self.log(format!(
                    "The import {name} is complete: this node has the slots, {ms} ms after the last change"
                ));
                link.close();
            }
            Err(Ended::Demoted) => {
                self.keep_as_followed(link.unix_s());
                link.close();
            }
            Err(Ended::Failed(why)) => {
                link.close();
                let clean_up = CleanUp::begin(self.engine, self.job.clone(), &why, link);
                return (Stage::CleansUp(clean_up), MoveWait::Nothing);
            }
        }
        (Stage::Over, MoveWait::Over)
    }

    fn log(&self, text: String) {
        self.engine.host.log(LogLevel::Notice, &text);
    }

    /// Goes on to hide the staged keys until the new primary ends the import, unless it has done so already.
    fn keep_as_followed(&self, now_s: u64) {
        let (jobs, job) = (&self.engine.slots.jobs, &self.job);
        let followed = Arc::new(SlotJob::new(NewJob {
            name: job.name.clone(),
            operation: Operation::Import,
            ranges: job.ranges.clone(),
            nodes: None,
            source: job.source.clone(),
            worker: job.worker,
            reports_progress: false,
            now_s,
        }));
        if job.is_orphaned() {
            followed.orphan();
        }
        // Under the lock of the jobs, so that an end is never missed.
        let goes_on = jobs.begin(followed, |_| if job.is_ended_by_primary() { Err(()) } else { Ok(()) });
        if goes_on.is_err() {
            ending::show(self.engine, job);
        }
        jobs.end(job, JobState::Failed, FAILED_OVER, now_s);
    }

    fn nodes(&self) -> Result<&JobNodes, Ended> {
        self.job.nodes.as_ref().ok_or(Ended::Demoted)
    }

    /// Applies a part of the source's stream.
    fn follow(&mut self, link: &mut dyn SourceLink) -> Result<MoveWait, Ended> {
        // The source reads all the time, so a connection that takes no bytes means that it is stuck.
        if !self.send(link)? {
            return Ok(MoveWait::Room(LOOK_EVERY));
        }
        let step = loop {
            match self.take_step(link)? {
                Step::Taken if self.job.state() == JobState::FailoverGranted => return Ok(MoveWait::Nothing),
                Step::Taken => {}
                step => break step,
            }
        };
        self.drained += self.at as u64;
        self.given -= self.at;
        self.input.drain(..std::mem::take(&mut self.at));
        // The worker has work while bytes are read. The machine waits for either, and for the worker first.
        let wait = match step == Step::NeedsMore && self.read(link)? {
            true => MoveWait::Nothing,
            false if self.parts.is_empty() => MoveWait::Bytes(LOOK_EVERY),
            false => self.take_answer(link)?,
        };
        self.check(link)?;
        Ok(wait)
    }

    /// Takes the next step of the input.
    fn take_step(&mut self, link: &mut dyn SourceLink) -> Result<Step, Ended> {
        let rest = self.input.get(self.given..).unwrap_or_default();
        let next = match self.next.take() {
            Some(next) => next,
            None => self.splitter.next_step(rest).map_err(Ended::Failed)?,
        };
        match next {
            ImportStep::NeedsMore => Ok(Step::NeedsMore),
            ImportStep::Message { end, message } => {
                if !self.parts.is_empty() {
                    self.next = Some(next);
                    return Ok(Step::NeedsWorker);
                }
                self.given += end;
                self.at = self.given;
                self.obey(message, link)?;
                Ok(Step::Taken)
            }
            ImportStep::Changes { end } => {
                if !matches!(self.job.state(), JobState::ReceivingSnapshot | JobState::WaitingForPaused) {
                    return Err(UNEXPECTED.into());
                }
                if self.parts.len() >= PARTS_MAX {
                    self.next = Some(next);
                    return Ok(Step::NeedsWorker);
                }
                let commands = self.input.get(self.given..self.given + end).unwrap_or_default();
                let answer = records::apply(self.engine, &self.job, self.number, commands);
                self.parts.push_back(Part { number: self.number, len: end, answer });
                self.number += 1;
                self.given += end;
                Ok(Step::Taken)
            }
        }
    }

    /// Takes the worker's answer to the first of its parts.
    fn take_answer(&mut self, link: &mut dyn SourceLink) -> Result<MoveWait, Ended> {
        if let Some(again) = self.again {
            return Ok(self.give_again(again, link.now()));
        }
        let Some(part) = self.parts.front_mut() else { return Ok(MoveWait::Nothing) };
        match part.answer.take() {
            None => return Ok(MoveWait::Thread),
            Some(Ok(ImportAnswer::Applied)) => {
                self.at += part.len;
                self.parts.pop_front();
                if self.job.reports_progress {
                    self.tell_all(&["APPLIED", &(self.drained + self.at as u64).to_string()], link)?;
                }
            }
            Some(Ok(ImportAnswer::Later)) => self.again = Some(link.now() + records::RETRY_AFTER),
            Some(Ok(ImportAnswer::Failed(why))) => {
                self.parts.pop_front();
                self.check(link)?;
                return Err(Ended::Failed(why));
            }
            Some(Err(Gone)) => return Err("The server ends".into()),
        }
        Ok(MoveWait::Nothing)
    }

    /// Gives the worker its parts once more, after it has refused the first one. It refuses the others, too, and must have done so before it
    /// sees the first one again.
    fn give_again(&mut self, again: Duration, now: Duration) -> MoveWait {
        if !self.parts.iter_mut().skip(1).all(|part| part.answer.is_here()) {
            return MoveWait::Thread;
        }
        if now < again {
            return MoveWait::Time(again - now);
        }
        let mut at = self.at;
        for part in &mut self.parts {
            let commands = self.input.get(at..at + part.len).unwrap_or_default();
            part.answer = records::apply(self.engine, &self.job, part.number, commands);
            at += part.len;
        }
        self.again = None;
        MoveWait::Thread
    }

    fn obey(&mut self, message: SourceMessage, link: &mut dyn SourceLink) -> Result<(), Ended> {
        let (state, now_s) = (self.job.state(), link.unix_s());
        match (message, state) {
            (SourceMessage::Ack, JobState::WaitingForAck) => {
                self.job.note_ack(now_s);
                self.job.enter(JobState::ReceivingSnapshot, now_s);
            }
            (SourceMessage::Ack, _) => self.job.note_ack(now_s),
            (SourceMessage::Other, _) => {}
            (SourceMessage::SnapshotEof, JobState::ReceivingSnapshot) => {
                self.tell("REQUEST-PAUSE", link)?;
                self.job.enter(JobState::WaitingForPaused, now_s);
            }
            (SourceMessage::Paused, JobState::WaitingForPaused) => {
                self.asked = Some(link.now());
                self.tell("REQUEST-FAILOVER", link)?;
                self.prepare_claim()?;
                self.job.enter(JobState::FailoverRequested, now_s);
            }
            (SourceMessage::FailoverGranted, JobState::FailoverRequested) => {
                self.job.enter(JobState::FailoverGranted, now_s);
            }
            _ => return Err(UNEXPECTED.into()),
        }
        Ok(())
    }

    /// The time of silence after which the source is gone.
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.engine.settings.repl_timeout_s.get().unsigned_abs())
    }

    /// Checks that the job goes on, and sends a sign of life if one is due.
    fn check(&mut self, link: &mut dyn SourceLink) -> Result<(), Ended> {
        self.check_asked()?;
        let now = link.now();
        if now.saturating_sub(self.heard) > self.timeout() {
            return Err(SILENT.into());
        }
        if now.saturating_sub(self.looked) >= OWNER_EVERY {
            self.looked = now;
            self.check_owner()?;
        }
        if now.saturating_sub(self.told) >= ACK_EVERY && self.job.state() != JobState::WaitingForAck {
            self.tell("ACK", link)?;
        }
        Ok(())
    }

    /// Checks the role of this node, and that nobody has asked for a failure.
    fn check_asked(&self) -> Result<(), Ended> {
        if self.engine.is_replica() {
            return Err(Ended::Demoted);
        }
        self.job.asked_failure().map_or(Ok(()), |why| Err(Ended::Failed(why)))
    }

    /// Checks that the source still has all slots.
    fn check_owner(&self) -> Result<(), Ended> {
        let Some(view) = self.engine.slots.view() else { return Err(Ended::Demoted) };
        if !view.is_primary() {
            return Err(Ended::Demoted);
        }
        let source = &self.nodes()?.source;
        let mut owners = self.job.slots.iter().map(|slot| view.owner(slot));
        let first = owners.next().flatten();
        let is_of_one = owners.all(|owner| owner == first);
        let name = first.and_then(|owner| view.node(owner)).map(|node| node.id.to_string());
        match is_of_one && name.as_ref() == Some(source) {
            true => Ok(()),
            false if is_of_one && first == Some(view.me) => {
                Err("Slots were unexpectedly assigned to myself during import".into())
            }
            false => Err("Slots are no longer owned by source node".into()),
        }
    }

    /// Reads some bytes. Returns false if there are none now.
    fn read(&mut self, link: &mut dyn SourceLink) -> Result<bool, Ended> {
        let before = self.input.len();
        let has_read = link.read(&mut self.input).map_err(|_| Ended::from(LOST_SOURCE))?;
        if has_read {
            self.heard = link.now();
            let figures = &self.engine.slots.jobs.bytes;
            figures.imported.fetch_add((self.input.len() - before) as u64, Ordering::Relaxed);
            let memory = self.input.capacity() as u64;
            let before = std::mem::replace(&mut self.noted, memory);
            figures.import_memory.fetch_add(memory.wrapping_sub(before), Ordering::Relaxed);
        }
        Ok(has_read)
    }

    fn tell(&mut self, message: &str, link: &mut dyn SourceLink) -> Result<(), Ended> {
        self.tell_all(&[message], link)
    }

    /// Sends a message of several words.
    fn tell_all(&mut self, words: &[&str], link: &mut dyn SourceLink) -> Result<(), Ended> {
        self.told = link.now();
        if self.output.is_empty() {
            self.unsent_since = self.told;
        }
        encode_request(&[&["CLUSTER", "SYNCSLOTS"], words].concat(), &mut self.output);
        self.send(link).map(drop)
    }

    /// Sends the output. Returns true if the connection has taken all of it.
    fn send(&mut self, link: &mut dyn SourceLink) -> Result<bool, Ended> {
        while !self.output.is_empty() {
            match link.write(&self.output) {
                Ok(0) if link.now().saturating_sub(self.unsent_since) < self.timeout() => return Ok(false),
                Ok(0) | Err(_) => return Err(LOST_SOURCE.into()),
                Ok(sent) => _ = self.output.drain(..sent),
            }
        }
        Ok(true)
    }
}
