//! An import: the target's side of a move of slots.
//!
//! The source connects like a client and sends ESTABLISH. From then on this thread owns the connection. It passes the source's
//! commands to a worker, which stores them in staged slots, and answers the source's messages. After FAILOVER-GRANTED, the replicas
//! get all changes and the end of the import first; then the bus claims the slots. The claim is on disk before others see it.
//!
//! A source holds writes for a limited time. A target that was stopped in between must not claim the slots later, because the source
//! may have taken new writes: see [`CLAIM_TIME_MAX`].

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use cluster::commands::{ClusterCommand, ClusterReply};
use engine::replay::{ImportSplitter, ImportStep, SourceMessage};
use engine::slots::bus::{Answer, BusRequest};
use engine::slots::jobs::{ImportAnswer, JobNodes, JobState, NewJob, Operation, SlotJob};
use engine::state::Engine;
use resp::parse::encode_request;
use resp::reply::Output;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{ending, in_ms, records};
use crate::connection::{self, Socket};
use crate::log;
use crate::threads;
use crate::time::now_us;

/// Wait for bytes before the thread checks that the job goes on.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval of signs of life to the source.
const ACK_EVERY: Duration = Duration::from_secs(1);
/// Bytes read at once.
const PART_BYTES: usize = 256 << 10;
/// Parts of the stream that a worker has at once: it applies one while the thread reads the next.
const PARTS_MAX: usize = 2;
/// Interval between checks that the source has the slots.
const OWNER_EVERY: Duration = Duration::from_millis(20);
/// Interval between checks of a condition that other threads fulfil.
const WAIT_STEP: Duration = Duration::from_millis(1);
/// The time between the request for the slots and their claim. A source holds writes for at least two seconds after its grant; the
/// rest of that time is for the disk and the network.
const CLAIM_TIME_MAX: Duration = Duration::from_millis(1500);
/// The longest wait for the bus.
const BUS_TIME_MAX: Duration = Duration::from_secs(5);

const LOST: &str =
    "Connection lost to source. Check CLUSTER GETSLOTMIGRATIONS on the source node for more information.";
const UNEXPECTED: &str = "Unexpected state machine transition";
const SILENT: &str = "Timed out after too long with no interaction";
const FAILED_OVER: &str = "A failover occurred during slot import";

/// Starts the thread of an import.
pub fn start(engine: &'static Engine, socket: Socket, job: Arc<SlotJob>) {
    let run = {
        let job = job.clone();
        move || Import::new(engine, socket, job).run()
    };
    if let Err(error) = threads::spawn(&threads::SLOT_IMPORT, run) {
        log::warning(format!("No slots can be imported: {}", threads::cannot_start(error)));
        engine.slots.jobs.end(&job, JobState::Failed, "Failed to start a thread", now_us() / 1_000_000);
        engine.keyspace.stage(job.slots.iter().map(engine::slots::Slot::index), false);
    }
}

/// Ends an import that has no connection. It has no keys yet.
pub fn give_up(engine: &'static Engine, job: Arc<SlotJob>) {
    job.ask_for_failure(LOST);
    let run = {
        let job = job.clone();
        move || ending::clean_up(engine, &job, LOST)
    };
    // Not on the calling worker, which deletes the keys.
    if threads::spawn(&threads::SLOT_IMPORT, run).is_err() {
        engine.slots.jobs.end(&job, JobState::Failed, LOST, now_us() / 1_000_000);
    }
}

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
    answer: Receiver<ImportAnswer>,
}

/// The state of the thread.
struct Import {
    engine: &'static Engine,
    socket: Socket,
    job: Arc<SlotJob>,
    splitter: ImportSplitter,
    input: Vec<u8>,
    /// The start of the input that has not been applied.
    at: usize,
    /// The start of the input that the worker has not been given.
    given: usize,
    /// The parts that the worker has, in order.
    parts: VecDeque<Part>,
    /// The number of the next part.
    number: u64,
    /// Bytes that were applied before the input.
    drained: u64,
    /// Memory of the input that the figures of INFO include.
    noted: u64,
    heard: Instant,
    told: Instant,
    looked: Instant,
    /// The time of the request for the slots.
    asked: Option<Instant>,
}

impl Import {
    fn new(engine: &'static Engine, socket: Socket, job: Arc<SlotJob>) -> Import {
        let splitter = ImportSplitter::new(job.slots.clone(), engine.settings.proto_max_bulk_len.get());
        let now = Instant::now();
        Import {
            engine,
            socket,
            job,
            splitter,
            input: Vec::new(),
            at: 0,
            given: 0,
            parts: VecDeque::new(),
            number: 0,
            drained: 0,
            noted: 0,
            heard: now,
            told: now,
            looked: now,
            asked: None,
        }
    }

    fn run(mut self) {
        log::notice(format!("The import {} of the slots {} begins", self.job.name, self.job.ranges));
        let ended = self.send(b"+OK\r\n").and_then(|()| self.follow());
        // The worker must not apply a part after the staged keys are deleted.
        self.parts.drain(..).for_each(|part| _ = part.answer.recv());
        records::forget(self.engine, &self.job);
        self.engine.slots.jobs.bytes.import_memory.fetch_sub(self.noted, Ordering::Relaxed);
        match ended {
            Ok(()) => {
                self.engine.slots.jobs.end(&self.job, JobState::Success, "", now_s());
                let (name, ms) = (&self.job.name, self.job.progress().hold_ms);
                log::notice(format!(
                    "The import {name} is complete: this node has the slots, {ms} ms after the last change"
                ));
            }
            Err(Ended::Demoted) => self.keep_as_followed(),
            Err(Ended::Failed(why)) => self.fail(&why),
        }
    }

    /// Closes the connection and deletes the staged keys. The source learns the end from the connection.
    fn fail(self, why: &str) {
        let Import { engine, socket, job, .. } = self;
        drop(socket);
        ending::clean_up(engine, &job, why);
    }

    /// Goes on to hide the staged keys until the new primary ends the import, unless it has done so already.
    fn keep_as_followed(self) {
        let (jobs, job) = (&self.engine.slots.jobs, &self.job);
        let followed = Arc::new(SlotJob::new(NewJob {
            name: job.name.clone(),
            operation: Operation::Import,
            ranges: job.ranges.clone(),
            nodes: None,
            source: job.source.clone(),
            worker: job.worker,
            reports_progress: false,
            now_s: now_s(),
        }));
        // Under the lock of the jobs, so that an end is never missed.
        let goes_on = jobs.begin(followed, |_| if job.is_ended_by_primary() { Err(()) } else { Ok(()) });
        if goes_on.is_err() {
            self.engine.keyspace.stage(job.slots.iter().map(engine::slots::Slot::index), false);
        }
        jobs.end(job, JobState::Failed, FAILED_OVER, now_s());
    }

    fn nodes(&self) -> Result<&JobNodes, Ended> {
        self.job.nodes.as_ref().ok_or(Ended::Demoted)
    }

    /// Applies the source's stream until this node has claimed the slots.
    fn follow(&mut self) -> Result<(), Ended> {
        let mut bytes = vec![0; PART_BYTES];
        loop {
            while self.take_step()? {
                if self.job.state() == JobState::FailoverGranted {
                    return self.claim();
                }
            }
            self.drained += self.at as u64;
            self.given -= self.at;
            self.input.drain(..std::mem::take(&mut self.at));
            // The worker has work while bytes are read. The thread waits for either, and for the worker first.
            if !self.read(&mut bytes)? {
                match self.parts.is_empty() {
                    true => self.wait_for(PollFlags::IN),
                    false => self.await_part()?,
                }
            }
            self.check()?;
        }
    }

    /// Takes the next step of the input. Returns false if more bytes are needed.
    fn take_step(&mut self) -> Result<bool, Ended> {
        let rest = self.input.get(self.given..).unwrap_or_default();
        match self.splitter.next_step(rest).map_err(Ended::Failed)? {
            ImportStep::NeedsMore => Ok(false),
            ImportStep::Message { end, message } => {
                while !self.parts.is_empty() {
                    self.await_part()?;
                }
                self.given += end;
                self.at = self.given;
                self.obey(message)?;
                Ok(true)
            }
            ImportStep::Changes { end } => {
                if !matches!(self.job.state(), JobState::ReceivingSnapshot | JobState::WaitingForPaused) {
                    return Err(UNEXPECTED.into());
                }
                while self.parts.len() >= PARTS_MAX {
                    self.await_part()?;
                }
                let commands = self.input.get(self.given..self.given + end).unwrap_or_default();
                let answer = records::apply(self.engine, &self.job, self.number, commands);
                self.parts.push_back(Part { number: self.number, len: end, answer });
                self.number += 1;
                self.given += end;
                Ok(true)
            }
        }
    }

    /// Waits until the worker has applied the first of its parts, or refused it.
    fn await_part(&mut self) -> Result<(), Ended> {
        let Some(part) = self.parts.front() else { return Ok(()) };
        match part.answer.recv() {
            Ok(ImportAnswer::Applied) => {
                self.at += part.len;
                self.parts.pop_front();
                if self.job.reports_progress {
                    self.tell_all(&["APPLIED", &(self.drained + self.at as u64).to_string()])?;
                }
            }
            Ok(ImportAnswer::Later) => self.give_again(),
            Ok(ImportAnswer::Failed(why)) => {
                self.parts.pop_front();
                self.check()?;
                return Err(Ended::Failed(why));
            }
            Err(_) => return Err("The server ends".into()),
        }
        self.check()
    }

    /// Gives the worker its parts once more, after it has refused the first one.
    fn give_again(&mut self) {
        // It refuses the others, too, and must have done so before it sees the first one again.
        self.parts.iter().skip(1).for_each(|part| _ = part.answer.recv());
        std::thread::sleep(records::RETRY_AFTER);
        let mut at = self.at;
        for part in &mut self.parts {
            let commands = self.input.get(at..at + part.len).unwrap_or_default();
            part.answer = records::apply(self.engine, &self.job, part.number, commands);
            at += part.len;
        }
    }

    fn obey(&mut self, message: SourceMessage) -> Result<(), Ended> {
        let state = self.job.state();
        match (message, state) {
            (SourceMessage::Ack, JobState::WaitingForAck) => {
                self.job.note_ack(now_s());
                self.job.enter(JobState::ReceivingSnapshot, now_s());
            }
            (SourceMessage::Ack, _) => self.job.note_ack(now_s()),
            (SourceMessage::Other, _) => {}
            (SourceMessage::SnapshotEof, JobState::ReceivingSnapshot) => {
                self.tell("REQUEST-PAUSE")?;
                self.job.enter(JobState::WaitingForPaused, now_s());
            }
            (SourceMessage::Paused, JobState::WaitingForPaused) => {
                self.asked = Some(Instant::now());
                self.tell("REQUEST-FAILOVER")?;
                self.job.enter(JobState::FailoverRequested, now_s());
            }
            (SourceMessage::FailoverGranted, JobState::FailoverRequested) => {
                self.job.enter(JobState::FailoverGranted, now_s());
            }
            _ => return Err(UNEXPECTED.into()),
        }
        Ok(())
    }

    /// Checks that the job goes on, and sends a sign of life if one is due.
    fn check(&mut self) -> Result<(), Ended> {
        if self.engine.is_replica() {
            return Err(Ended::Demoted);
        }
        if let Some(why) = self.job.asked_failure() {
            return Err(Ended::Failed(why));
        }
        let limit = Duration::from_secs(self.engine.settings.repl_timeout_s.get().unsigned_abs());
        if self.heard.elapsed() > limit {
            return Err(SILENT.into());
        }
        if self.looked.elapsed() >= OWNER_EVERY {
            self.looked = Instant::now();
            self.check_owner()?;
        }
        if self.told.elapsed() >= ACK_EVERY && self.job.state() != JobState::WaitingForAck {
            self.tell("ACK")?;
        }
        Ok(())
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
    fn read(&mut self, into: &mut [u8]) -> Result<bool, Ended> {
        match connection::read(&mut self.socket, into) {
            Ok(Some(0)) | Err(_) => Err(LOST.into()),
            Ok(Some(len)) => {
                self.heard = Instant::now();
                self.input.extend_from_slice(into.get(..len).unwrap_or_default());
                let figures = &self.engine.slots.jobs.bytes;
                figures.imported.fetch_add(len as u64, Ordering::Relaxed);
                let memory = self.input.capacity() as u64;
                let before = std::mem::replace(&mut self.noted, memory);
                figures.import_memory.fetch_add(memory.wrapping_sub(before), Ordering::Relaxed);
                Ok(true)
            }
            Ok(None) => Ok(false),
        }
    }

    fn wait_for(&self, flags: PollFlags) {
        let timeout = Timespec::try_from(LOOK_EVERY).ok();
        // An interrupted wait is repeated by the caller.
        _ = poll(&mut [PollFd::new(&self.socket.as_fd(), flags)], timeout.as_ref());
    }

    fn tell(&mut self, message: &str) -> Result<(), Ended> {
        self.tell_all(&[message])
    }

    /// Sends a message of several words.
    fn tell_all(&mut self, words: &[&str]) -> Result<(), Ended> {
        self.told = Instant::now();
        let mut request = Vec::new();
        encode_request(&[&["CLUSTER", "SYNCSLOTS"], words].concat(), &mut request);
        self.send(&request)
    }

    /// Sends bytes. The source reads all the time, so a full socket means that it is stuck.
    fn send(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let limit = Duration::from_secs(self.engine.settings.repl_timeout_s.get().unsigned_abs());
        let (began, mut sent) = (Instant::now(), 0);
        while sent < bytes.len() {
            let rest = bytes.get(sent..).unwrap_or_default();
            match connection::write(&mut self.socket, &Output::from(rest.to_vec())) {
                Ok(len) => sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if began.elapsed() < limit => self.wait_for(PollFlags::OUT),
                Err(_) => return Err(LOST.into()),
            }
        }
        Ok(())
    }

    /// Claims the slots. The replicas get all changes first, then the end of the import.
    fn claim(&mut self) -> Result<(), Ended> {
        while self.engine.slots.jobs.prevents_failover.load(Ordering::Relaxed) {
            self.check_time()?;
            std::thread::sleep(WAIT_STEP);
        }
        let granted = Instant::now();
        self.wait_until_safe()?;
        records::finish(self.engine, &self.job, "success", "");
        // After a failure from here on, the replicas believe that this node has the slots, until they learn the end of the job.
        self.wait_until_safe()?;
        let safe = Instant::now();
        self.check_owner()?;
        self.take_slots()?;
        self.wait_until_shown()?;
        let asked = self.asked.unwrap_or(granted);
        self.job.note_hold(asked.elapsed());
        log::notice(format!(
            "The slots of {} were granted {:.3} ms after the request, replicas and the append-only file had all changes {:.3} ms later, \
             and {} was saved and workers served them another {:.3} ms later",
            self.job.name,
            in_ms(granted.saturating_duration_since(asked)),
            in_ms(safe.saturating_duration_since(granted)),
            self.engine.settings.cluster_config_file.get(),
            in_ms(safe.elapsed())
        ));
        Ok(())
    }

    /// Waits until the replicas, and the disk if it is awaited, have all changes so far.
    fn wait_until_safe(&self) -> Result<(), Ended> {
        let position = self.engine.journal.position();
        self.engine.replication.request_answers();
        while !self.engine.is_safe(position) {
            self.check_time()?;
            std::thread::sleep(WAIT_STEP);
        }
        self.check_time()
    }

    /// Checks that the source still holds writes.
    fn check_time(&self) -> Result<(), Ended> {
        if self.engine.is_replica() {
            return Err(Ended::Demoted);
        }
        if let Some(why) = self.job.asked_failure() {
            return Err(Ended::Failed(why));
        }
        match self.asked.is_some_and(|asked| asked.elapsed() < CLAIM_TIME_MAX) {
            true => Ok(()),
            false => Err("The slots could not be claimed in time".into()),
        }
    }

    fn take_slots(&self) -> Result<(), Ended> {
        let (sender, answer) = sync_channel(1);
        let (slots, source) = (Box::new(self.job.slots.clone()), self.nodes()?.source.clone());
        let request =
            BusRequest { command: ClusterCommand::ClaimSlots { slots, source }, answer: Answer::Thread(sender) };
        self.engine.host.cluster(request).map_err(Ended::Failed)?;
        match answer.recv_timeout(BUS_TIME_MAX) {
            Ok(ClusterReply::Error(why)) => Err(Ended::Failed(why)),
            // The bus answers late at most: the claim is made, and its view will come.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Waits until the workers serve the slots, which is after the claim is on disk.
    fn wait_until_shown(&self) -> Result<(), Ended> {
        loop {
            let view = self.engine.slots.view();
            let is_mine = view.is_some_and(|view| self.job.slots.iter().all(|slot| view.owner(slot) == Some(view.me)));
            if is_mine {
                return Ok(());
            }
            if self.engine.is_replica() {
                return Err(Ended::Demoted);
            }
            std::thread::sleep(WAIT_STEP);
        }
    }
}

fn now_s() -> u64 {
    now_us() / 1_000_000
}
