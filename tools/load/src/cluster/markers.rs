//! The markers of a resumable load: a key in each slot, with the number of the next command of that slot.

use std::collections::{BTreeMap, BTreeSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use client::cluster::{Cluster, Slot, SlotTransaction, Transacted, slot_tag};
use client::{Command, Config, Error, Pipeline, Value};

use super::chunk::{Chunk, CommandState, Results, Wire, executed};
use super::earlier;
use crate::args::ResumeOptions;
use crate::complete::LoadOutcome;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::progress::{count, say};
use crate::state::{Phase, Reported, StateFile};

/// Pause before commands are tried again over new connections.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The state of a load with `--resume`.
pub struct Markers {
    file: StateFile,
    ttl_s: u64,
    retry: Duration,
    /// Commands before this number were done when the run began.
    done_before: u64,
    reported_before: Reported,
    /// The name of the load's connections.
    client_name: Vec<u8>,
    /// True if another run may have written markers.
    may_be_marked: bool,
    /// The markers that this run has read or written. A chunk of an earlier run may have reached further than the present one.
    known: BTreeMap<Slot, u64>,
}

impl Markers {
    /// Continues from the state in a file. Names the connections of `config`, which the load uses.
    pub fn new(file: StateFile, resume: &ResumeOptions, config: &mut Config) -> Self {
        let progress = file.state.progress;
        Self {
            ttl_s: resume.ttl_s,
            retry: resume.retry,
            client_name: earlier::name_connections(config, &file.state.name.token),
            done_before: progress.answered,
            reported_before: progress.reported,
            may_be_marked: progress.phase != Phase::New,
            known: BTreeMap::new(),
            file,
        }
    }

    pub fn phase(&self) -> Phase {
        self.file.state.progress.phase
    }

    /// Returns the errors that earlier runs have reported.
    pub fn reported_before(&self) -> Reported {
        self.reported_before
    }

    /// Notes that markers may exist from now on. Waits for the end of an earlier run.
    pub fn start(&mut self, cluster: &mut Cluster) -> Result<(), Failure> {
        if self.phase() == Phase::New {
            return self.file.enter(Phase::Started);
        }
        earlier::wait_for_end(cluster, &self.client_name, self.retry).map_err(|node| {
            let text = format!("the node {node} still executes commands of an earlier run; load again to go on");
            Failure::new(Exit::Server, text)
        })
    }

    /// Notes that all commands before a number are done.
    pub fn note(&mut self, done: u64, reported: Reported) -> Result<(), Failure> {
        if done <= self.done_before { Ok(()) } else { self.file.note(done, reported) }
    }

    /// Removes the markers, and records the result of the load.
    pub fn finish(&mut self, cluster: &mut Cluster, outcome: LoadOutcome) -> Result<(), Failure> {
        self.file.finish(outcome)?;
        let marked = Slot::all().filter(|slot| self.may_be_marked || self.known.contains_key(slot));
        // A marker that stays expires by itself, and another run of the command line tries to remove it again.
        if remove(cluster, &self.file.state.name.token, marked) { self.file.enter(Phase::Complete) } else { Ok(()) }
    }

    fn key(&self, slot: Slot) -> Vec<u8> {
        key(&self.file.state.name.token, slot)
    }

    /// Loads a chunk. Commands that were executed before are omitted.
    pub fn load(
        &mut self,
        cluster: &mut Cluster,
        chunk: &Chunk,
        results: &mut Results,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        results.skip(usize::try_from(self.done_before.saturating_sub(chunk.first())).unwrap_or(usize::MAX));
        let mut unsettled: BTreeSet<Slot> = BTreeSet::new();
        let mut since: Option<Instant> = None;
        loop {
            self.omit_executed(chunk, results);
            let pending = by_slot(results);
            if pending.is_empty() {
                return Ok(());
            }
            let unseen =
                |slot: &&Slot| self.may_be_marked && !self.known.contains_key(slot) || unsettled.contains(slot);
            let unread: Vec<Slot> = pending.keys().filter(unseen).copied().collect();
            let outcome = match unread.is_empty() {
                true => self.send(cluster, chunk, results, &pending),
                false => self.read(cluster, &unread),
            };
            let Err((slots, error)) = outcome? else {
                unsettled.retain(|slot| !unread.contains(slot));
                continue;
            };
            let began = *since.get_or_insert_with(Instant::now);
            let is_over = || began.elapsed() >= self.retry || interrupt.was_asked();
            if is_over() {
                return Err(unsettled_failure(&error, results));
            }
            if unsettled.is_empty() {
                say(&format!("{error}; trying again"));
            }
            unsettled.extend(slots);
            sleep(RETRY_PAUSE);
            while earlier::wait_for_end(cluster, &self.client_name, RETRY_PAUSE).is_err() {
                if is_over() {
                    return Err(unsettled_failure(&error, results));
                }
            }
        }
    }

    /// Omits the commands before the known markers.
    fn omit_executed(&self, chunk: &Chunk, results: &mut Results) {
        for index in results.pending() {
            let next = results.slots[index].and_then(|slot| self.known.get(&slot));
            if next.is_some_and(|next| chunk.first() + (index as u64) < *next) {
                results.states[index] = CommandState::Earlier;
            }
        }
    }

    /// Reads the markers of slots. Returns the slots without an answer.
    fn read(&mut self, cluster: &mut Cluster, slots: &[Slot]) -> Result<Result<(), (Vec<Slot>, Error)>, Failure> {
        let mut pipeline = Pipeline::new();
        for &slot in slots {
            pipeline.add(&Command::new("GET").arg(self.key(slot)));
        }
        let mut lost: Option<(Vec<Slot>, Error)> = None;
        for (&slot, result) in slots.iter().zip(cluster.run(&pipeline)) {
            let reply = match result {
                Ok(reply) => reply,
                Err(error) => {
                    lost.get_or_insert((Vec::new(), error)).0.push(slot);
                    continue;
                }
            };
            let next = marker(&reply).map_err(|text| unreadable(slot, &text))?;
            self.known.insert(slot, next);
        }
        Ok(lost.map_or(Ok(()), Err))
    }

    /// Sends a transaction for each slot. Returns the slots with an unknown outcome.
    fn send(
        &mut self,
        cluster: &mut Cluster,
        chunk: &Chunk,
        results: &mut Results,
        pending: &BTreeMap<Slot, Vec<usize>>,
    ) -> Result<Result<(), (Vec<Slot>, Error)>, Failure> {
        let transactions: Vec<SlotTransaction> =
            pending.iter().map(|(slot, indexes)| self.transaction(chunk, *slot, indexes)).collect();
        let mut lost: Option<(Vec<Slot>, Error)> = None;
        for ((&slot, indexes), result) in pending.iter().zip(cluster.run_transactions(&transactions)) {
            match result {
                Ok(transacted) => {
                    // This run has read or written the marker, and goes on behind it.
                    self.known.entry(slot).or_insert(0);
                    settle(slot, indexes, transacted, results)?;
                }
                Err(error) => lost.get_or_insert((Vec::new(), error)).0.push(slot),
            }
        }
        Ok(lost.map_or(Ok(()), Err))
    }

    fn transaction(&self, chunk: &Chunk, slot: Slot, indexes: &[usize]) -> SlotTransaction {
        let mut transaction = SlotTransaction::new(slot);
        for &index in indexes {
            transaction.add(&Wire(chunk.command(index)));
        }
        let next = chunk.first() + indexes.last().map_or(0, |last| *last as u64 + 1);
        transaction.add(&Command::new("SET").arg(self.key(slot)).arg(next).arg("EX").arg(self.ttl_s));
        transaction
    }
}

/// Returns the name of the marker of a slot.
fn key(token: &str, slot: Slot) -> Vec<u8> {
    [b"penstock-", token.as_bytes(), b":{", &slot_tag(slot), b"}"].concat()
}

/// Removes the markers of slots. Returns false if a marker may be left.
pub fn remove(cluster: &mut Cluster, token: &str, slots: impl Iterator<Item = Slot>) -> bool {
    let mut pipeline = Pipeline::new();
    for slot in slots {
        pipeline.add(&Command::new("DEL").arg(key(token, slot)));
    }
    cluster.run(&pipeline).iter().all(|reply| matches!(reply, Ok(Value::Int(_))))
}

/// Returns the pending commands of each slot.
fn by_slot(results: &Results) -> BTreeMap<Slot, Vec<usize>> {
    let mut pending: BTreeMap<Slot, Vec<usize>> = BTreeMap::new();
    for index in results.pending() {
        if let Some(slot) = results.slots[index] {
            pending.entry(slot).or_default().push(index);
        }
    }
    pending
}

/// Returns the number in a marker: 0 without one.
fn marker(reply: &Value) -> Result<u64, String> {
    if reply.is_null() {
        return Ok(0);
    }
    let text = reply.bytes().or(reply.error()).unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let number = if reply.error().is_some() { None } else { text.parse().ok() };
    number.ok_or_else(|| text.into_owned())
}

fn unsettled_failure(error: &Error, results: &Results) -> Failure {
    let left = count(results.pending().len() as u64, "command");
    let text = format!("{error}; {left} of the chunk may have been executed or not; load again to go on");
    Failure::new(Exit::Server, text)
}

fn unreadable(slot: Slot, text: &str) -> Failure {
    Failure::new(Exit::Resume, format!("the progress of slot {slot} is unreadable: {text}"))
}

/// Notes the results of a slot's transaction.
fn settle(slot: Slot, indexes: &[usize], transacted: Transacted, results: &mut Results) -> Result<(), Failure> {
    match transacted {
        Transacted::Executed(replies) => {
            for (&index, reply) in indexes.iter().zip(&replies) {
                results.states[index] = executed(reply);
            }
        }
        Transacted::Refused(refused) => {
            for (at, reply) in refused {
                let error = reply.error().unwrap_or_default().to_vec();
                match indexes.get(at) {
                    // The others are sent again without it.
                    Some(&index) => results.states[index] = CommandState::Refused(error),
                    None => return Err(unwritable(slot, &error)),
                }
            }
        }
        Transacted::Aborted(reply) => return Err(unwritable(slot, reply.error().unwrap_or_default())),
    }
    Ok(())
}

fn unwritable(slot: Slot, error: &[u8]) -> Failure {
    let error = String::from_utf8_lossy(error);
    Failure::new(Exit::Server, format!("the progress of slot {slot} can't be written: {error}; load again to go on"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_numbers() {
        assert_eq!(marker(&Value::NullBulk), Ok(0));
        assert_eq!(marker(&Value::Bulk(b"17".to_vec())), Ok(17));
        assert_eq!(marker(&Value::Bulk(b"x".to_vec())), Err("x".to_owned()));
        assert_eq!(marker(&Value::Error(b"WRONGTYPE 1".to_vec())), Err("WRONGTYPE 1".to_owned()));
    }

    fn results(count: usize) -> Results {
        let slots = vec![Some(Slot::of_hash(1)); count];
        Results::of(slots)
    }

    #[test]
    fn refused_commands_are_left_out_of_the_next_attempt() {
        let mut results = results(3);
        let error = Value::Error(b"ERR wrong".to_vec());
        settle(Slot::of_hash(1), &[0, 1, 2], Transacted::Refused(vec![(1, error.clone())]), &mut results).unwrap();
        assert_eq!(results.pending(), [0, 2]);
        let replies = vec![Value::Int(1), error.clone(), Value::Int(3)];
        settle(Slot::of_hash(1), &[0, 2], Transacted::Executed(replies), &mut results).unwrap();
        assert_eq!(results.pending(), Vec::<usize>::new());
        let error = |state: &CommandState| match state {
            CommandState::Executed(error) => error.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!([error(&results.states[0]), error(&results.states[2])], [None, Some(b"ERR wrong".to_vec())]);
    }

    #[test]
    fn a_marker_that_cant_be_written_ends_the_load() {
        let refused = Transacted::Refused(vec![(1, Value::Error(b"OOM x".to_vec()))]);
        let failure = settle(Slot::of_hash(1), &[0], refused, &mut results(1)).unwrap_err();
        assert!(failure.message.contains("OOM x"), "{failure}");
    }
}
