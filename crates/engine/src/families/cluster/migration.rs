//! CLUSTER MIGRATION: moves of whole slots from a Redis node to this one, in the form of Redis's atomic slot migration.
//!
//! Source of the semantics: the replies of a running Redis 8.6, and its messages on the wire.

use std::sync::Arc;

use cluster::slots::SlotRange;
use cluster::view::{NodeIndex, Role};
use cluster::{NodeId, Slot, SlotSet, SlotView};
use commands::error::{Error, Outcome};

use super::migrating::{begin_import, name_of, view};
use super::only_in_cluster;
use crate::slots::jobs::{JobNodes, JobState, NewJob, Operation, SlotJob, SlotRanges, slot_of_text};
use crate::worker::turn::Turn;

const IN_TRANSACTION: Error = Error::fixed("ERR CLUSTER MIGRATION IMPORT can't be used in a transaction or script");
const UNKNOWN: Error = Error::fixed("ERR unknown argument");
const CANCELLED: &str = "Cancelled due to user request";

fn arity() -> Error {
    Error::arity("cluster|migration")
}

pub(super) fn migration(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    match () {
        () if turn.is(2, "import") => import(turn),
        () if turn.is(2, "status") => status(turn),
        () if turn.is(2, "cancel") => cancel(turn),
        () => Err(UNKNOWN),
    }
}

/// Parses ranges of slots. They are put in order, and neighbours are joined.
fn parse_ranges(turn: &Turn<'_, '_>) -> Result<SlotRanges, Error> {
    if turn.len() < 5 || turn.len().is_multiple_of(2) {
        return Err(arity());
    }
    let mut ranges = Vec::new();
    for at in (3..turn.len()).step_by(2) {
        let slot = |at: usize| slot_of_text(turn.arg(at)).ok_or(Error::fixed("ERR Invalid or out of range slot"));
        let (first, last) = (slot(at)?, slot(at + 1)?);
        ranges.push(SlotRange::new(first, last).ok_or_else(|| {
            Error::new(format!("ERR start slot number {first} is greater than end slot number {last}"))
        })?);
    }
    let mut slots = SlotSet::EMPTY;
    for slot in ranges.iter().flat_map(|range| range.slots()) {
        if slots.contains(slot) {
            return Err(Error::new(format!("ERR Slot {slot} specified multiple times")));
        }
        slots.insert(slot);
    }
    Ok(SlotRanges(slots.ranges().collect()))
}

/// Checks that slots may be imported. Returns their owner.
fn check_slots(turn: &Turn<'_, '_>, view: &SlotView, ranges: &SlotRanges) -> Result<NodeIndex, Error> {
    if !view.is_primary() {
        return Err(Error::fixed("ERR slot migration not allowed on replica."));
    }
    if !view.open_slots().is_empty() {
        return Err(Error::fixed("ERR all slot states must be STABLE to start a slot migration task."));
    }
    let imports = turn.engine().slots.jobs.under_way_as(Operation::Import);
    let is_imported = |slot: &Slot| imports.iter().any(|job| job.slots.contains(*slot));
    let mut owner = None;
    for range in &ranges.0 {
        if range.slots().any(|slot| is_imported(&slot)) {
            let SlotRange { first, last } = range;
            return Err(Error::new(format!("ERR overlapping import exists for slot range: {first}-{last}")));
        }
        for slot in range.slots() {
            let here = view.owner(slot).ok_or_else(|| Error::new(format!("ERR slot has no owner: {slot}")))?;
            if *owner.get_or_insert(here) != here {
                return Err(Error::fixed("ERR slots belong to different source nodes"));
            }
        }
    }
    owner.ok_or_else(arity)
}

fn check_source(turn: &Turn<'_, '_>, view: &SlotView, owner: NodeIndex) -> Outcome {
    if owner == view.me {
        return Err(Error::fixed("ERR this node is already the owner of the slot range"));
    }
    if turn.engine().slots.jobs.under_way().iter().any(|job| job.nodes.is_some()) {
        return Err(Error::fixed("ERR another ASM task is already in progress"));
    }
    match view.node(owner).is_some_and(|node| node.secret.is_some() && node.role == Role::Primary) {
        true => Ok(()),
        false => Err(Error::new(format!(
            "ERR the owner of the slots, {}, is not known as Redis 8.4 or later. Use CLUSTER MIGRATESLOTS at the owner",
            name_of(view, owner)
        ))),
    }
}

/// Begins to import slots. Replies with the name of the job.
fn import(turn: &mut Turn<'_, '_>) -> Outcome {
    let ranges = parse_ranges(turn)?;
    if turn.session.in_exec {
        return Err(IN_TRANSACTION);
    }
    let (engine, view) = (turn.engine(), view(turn)?);
    let owner = check_slots(turn, &view, &ranges)?;
    check_source(turn, &view, owner)?;
    let name = NodeId::random(|| turn.worker.random.next()).to_string();
    let (source, target) = (name_of(&view, owner), name_of(&view, view.me));
    let job = Arc::new(SlotJob::new(NewJob {
        name: name.clone(),
        operation: Operation::Import,
        ranges,
        nodes: Some(JobNodes { target, source: source.clone() }),
        source: Some(source.clone()),
        worker: turn.worker.id,
        // The source is told how many changes are applied.
        reports_progress: true,
        now_s: turn.now_ms() / 1000,
    }));
    begin_import(engine, &job, false)?;
    if let Err(why) = engine.host.import_slots(job.clone()) {
        engine.slots.jobs.end(&job, JobState::Failed, &why, turn.now_ms() / 1000);
        engine.keyspace.stage(job.slots.iter().map(Slot::index), false);
        return Err(Error::new(format!("ERR {why}")));
    }
    // Replicas and the append-only file learn which keys are staged before these come: the thread of the job has this worker apply them.
    let ends: Vec<_> =
        job.ranges.0.iter().flat_map(|range| [range.first, range.last]).map(|slot| slot.to_string()).collect();
    let mut words = vec!["CLUSTER", "SYNCSLOTS", "ESTABLISH", "SOURCE", &source, "NAME", &name, "SLOTSRANGE"];
    words.extend(ends.iter().map(String::as_str));
    turn.worker.effects.record_as(0, words.iter().map(|word| word.as_bytes()));
    turn.reply.bulk(&name);
    Ok(())
}

/// Returns the job that the arguments name; `None` stands for all.
fn parse_choice(turn: &Turn<'_, '_>) -> Result<Option<String>, Error> {
    match (turn.len(), turn.is(3, "id"), turn.is(3, "all")) {
        (5, true, _) => Ok(Some(String::from_utf8_lossy(turn.arg(4)).into_owned())),
        (4, _, true) => Ok(None),
        (4 | 5, false, false) => Err(UNKNOWN),
        _ => Err(arity()),
    }
}

fn cancel(turn: &mut Turn<'_, '_>) -> Outcome {
    let name = parse_choice(turn)?;
    let mut jobs = turn.engine().slots.jobs.under_way();
    jobs.retain(|job| job.nodes.is_some() && name.as_ref().is_none_or(|name| *name == job.name));
    let cancelled = jobs.iter().filter(|job| job.cancel(CANCELLED)).count();
    turn.reply.int(cancelled as i64);
    Ok(())
}

/// Lists moves: first those under way, then ended ones, each from the newest to the oldest.
fn status(turn: &mut Turn<'_, '_>) -> Outcome {
    let name = parse_choice(turn)?;
    let mut jobs = turn.engine().slots.jobs.with_all(|jobs| jobs.iter().cloned().collect::<Vec<_>>());
    jobs.retain(|job| job.nodes.is_some() && name.as_ref().is_none_or(|name| *name == job.name));
    jobs.sort_by_key(|job| job.state().has_ended());
    turn.reply.array(jobs.len());
    jobs.iter().for_each(|job| write_task(turn, job));
    Ok(())
}

/// Returns Redis's name of a state.
fn state_name(state: JobState) -> &'static str {
    match state {
        JobState::Connecting | JobState::WaitingForAck => "connecting",
        JobState::ReadingAuthResponse => "auth-reply",
        JobState::ReadingEstablishResponse => "wait-rdbchannel",
        JobState::WaitingToSnapshot => "wait-bgsave-start",
        JobState::Snapshotting => "send-bulk-and-stream",
        JobState::Replicating => "send-stream",
        JobState::WaitingToPause => "handoff-prep",
        JobState::FailoverPaused => "handoff",
        JobState::ReceivingSnapshot | JobState::OccurringOnPrimary => "accumulate-buffer",
        JobState::WaitingForPaused => "wait-stream-eof",
        JobState::FailoverRequested | JobState::FailoverGranted => "takeover",
        JobState::CleaningUp | JobState::Failed => "failed",
        JobState::Cancelled => "canceled",
        JobState::Success => "completed",
    }
}

fn write_task(turn: &mut Turn<'_, '_>, job: &SlotJob) {
    let progress = job.progress();
    let ranges = job.ranges.to_string();
    let nodes = job.nodes.clone().unwrap_or(JobNodes { target: String::new(), source: String::new() });
    let operation = match job.operation {
        Operation::Import => "import",
        Operation::Export => "migrate",
    };
    let texts = [
        ("id", job.name.as_str()),
        ("slots", &ranges),
        ("source", &nodes.source),
        ("dest", &nodes.target),
        ("operation", operation),
        ("state", state_name(progress.state)),
        ("last_error", &progress.message),
    ];
    let ms = |seconds: u64| i64::try_from(seconds * 1000).unwrap_or(i64::MAX);
    let has_paused = job.operation == Operation::Export && progress.state == JobState::Success;
    let numbers = [
        ("retries", 0),
        ("create_time", ms(job.created_s)),
        ("start_time", ms(job.created_s)),
        ("end_time", if progress.state.has_ended() { ms(progress.updated_s) } else { -1 }),
        ("write_pause_ms", if has_paused { i64::try_from(progress.hold_ms).unwrap_or(i64::MAX) } else { 0 }),
    ];
    let reply = &mut turn.reply;
    reply.map(texts.len() + numbers.len());
    for (name, value) in texts {
        reply.bulk(name);
        reply.bulk(value);
    }
    for (name, value) in numbers {
        reply.bulk(name);
        reply.int(value);
    }
}
