//! Moves of whole slots: their list, GETSLOTMIGRATIONS, and the messages between the nodes, SYNCSLOTS. The commands that begin and
//! cancel moves are in `exporting`.
//!
//! Source of the semantics: the replies of a running Valkey 9.1, and its messages on the wire.

use std::sync::Arc;

use cluster::SlotView;
use cluster::commands::ClusterCommand;
use cluster::slots::SlotRange;
use cluster::view::{NodeIndex, Open};
use commands::error::{Error, Outcome};
use commands::spec::{Group, Spec};
use resp::num::parse_i64;

use super::only_in_cluster;
use crate::slots::bus::{Answer, BusRequest};
use crate::slots::jobs::{JobNodes, JobState, NAME_BYTES, NewJob, Operation, SlotJob, SlotRanges, slot_of_text};
use crate::state::Engine;
use crate::worker::turn::{Run, Turn};

const IN_TRANSACTION: Error = Error::fixed("ERR CLUSTER SYNCSLOTS can't be used in a transaction or script");

/// The entry of SYNCSLOTS.
pub(super) const fn syncslots_entry(flags: u32) -> Spec<Run> {
    Spec::new("syncslots", -3, flags, Run::Session(syncslots)).docs(
        Group::Cluster,
        "9.0.0",
        "Depends on subcommand.",
        "Messages between two nodes that move slots.",
        "word:string [word:string ...]",
    )
}

/// Returns the view of the slots.
pub(super) fn view(turn: &Turn<'_, '_>) -> Result<Arc<SlotView>, Error> {
    only_in_cluster(turn)?;
    turn.engine().slots.view().ok_or(Error::SYNTAX)
}

/// Returns the name of a node.
pub(super) fn name_of(view: &SlotView, node: NodeIndex) -> String {
    view.node(node).map(|node| node.id.to_string()).unwrap_or_default()
}

/// Returns the node of a name.
pub(super) fn node_named(view: &SlotView, name: &[u8]) -> Option<NodeIndex> {
    let at = view.nodes.iter().position(|node| node.id.as_str().as_bytes() == name)?;
    u16::try_from(at).ok().map(NodeIndex::new)
}

/// Checks that slots may begin to move to or from this node.
pub(super) fn check_start(view: &SlotView) -> Result<(), Error> {
    if !view.is_primary() {
        return Err(Error::fixed("ERR Slot migration can only be used on primary nodes."));
    }
    let mut open = view.open_slots().values();
    if open.any(|open| matches!(open, Open::Importing { .. })) {
        return Err(Error::fixed("ERR Slots are being manually imported"));
    }
    match view.open_slots().is_empty() {
        true => Ok(()),
        false => Err(Error::fixed("ERR Slots are being manually migrated")),
    }
}

/// Parses ranges of slots from the argument `from` on, up to the first argument that is no number. Returns them, their owner, and the
/// index behind them.
pub(super) fn parse_ranges(
    turn: &Turn<'_, '_>,
    view: &SlotView,
    from: usize,
) -> Result<(SlotRanges, Option<NodeIndex>, usize), Error> {
    let (mut ranges, mut owner, mut at) = (Vec::<SlotRange>::new(), None, from);
    while at < turn.len() && parse_i64(turn.arg(at)).is_some() {
        let slot = |at: usize| slot_of_text(turn.arg(at)).ok_or(Error::fixed("ERR Invalid or out of range slot"));
        let first = slot(at)?;
        if at + 1 >= turn.len() {
            return Err(Error::fixed("ERR No end slot for final slot range"));
        }
        let last = slot(at + 1)?;
        let range = SlotRange::new(first, last).ok_or_else(|| {
            Error::new(format!("ERR Start slot number {first} is greater than end slot number {last}."))
        })?;
        for slot in range.slots() {
            let here = view.owner(slot).ok_or_else(|| Error::new(format!("ERR Slot {slot} has no node served.")))?;
            if *owner.get_or_insert(here) != here {
                return Err(Error::fixed("ERR Requested slots span multiple shards"));
            }
        }
        let overlaps = |other: &&SlotRange| range.first <= other.last && other.first <= range.last;
        if let Some(other) = ranges.iter().find(overlaps) {
            return Err(Error::new(format!(
                "ERR Slot range {first}-{last} overlaps with previous range {}-{}.",
                other.first, other.last
            )));
        }
        ranges.push(range);
        at += 2;
    }
    match ranges.is_empty() {
        true => Err(Error::fixed("ERR No slot ranges specified")),
        false => Ok((SlotRanges(ranges), owner, at)),
    }
}

pub(super) fn getslotmigrations(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let jobs = turn.engine().slots.jobs.with_all(|jobs| jobs.iter().cloned().collect::<Vec<_>>());
    turn.reply.array(jobs.len());
    jobs.iter().for_each(|job| write_job(turn, job));
    Ok(())
}

fn write_job(turn: &mut Turn<'_, '_>, job: &SlotJob) {
    let progress = job.progress();
    let ranges = job.ranges.to_string();
    let fields = [("name", job.name.as_str()), ("operation", job.operation.name()), ("slot_ranges", ranges.as_str())];
    let reply = &mut turn.reply;
    reply.map(if job.nodes.is_some() { 13 } else { 10 });
    for (name, value) in fields {
        reply.bulk(name);
        reply.bulk(value);
    }
    if let Some(nodes) = &job.nodes {
        for (name, value) in [("target_node", &nodes.target), ("source_node", &nodes.source)] {
            reply.bulk(name);
            reply.bulk(value);
        }
    }
    let times = [("create_time", job.created_s), ("last_update_time", progress.updated_s)];
    for (name, value) in times.into_iter().chain([("last_ack_time", progress.acked_s)]) {
        reply.bulk(name);
        reply.int(value as i64);
    }
    for (name, value) in [("state", progress.state.name()), ("message", progress.message.as_str())] {
        reply.bulk(name);
        reply.bulk(value);
    }
    // The snapshot takes no copy of the memory.
    for (name, value) in [("cow_size", 0), ("remaining_repl_size", progress.remaining_bytes)] {
        reply.bulk(name);
        reply.int(value as i64);
    }
    if job.nodes.is_some() {
        // Not in Valkey.
        reply.bulk("hold_ms");
        reply.int(i64::try_from(progress.hold_ms).unwrap_or(i64::MAX));
    }
}

/// Refuses SETSLOT while whole slots move.
pub(super) fn check_no_job(turn: &Turn<'_, '_>) -> Result<(), Error> {
    match turn.engine().slots.jobs.under_way().first().map(|job| job.operation) {
        None => Ok(()),
        Some(Operation::Export) => Err(Error::fixed("ERR Slot export in progress.")),
        Some(Operation::Import) => Err(Error::fixed("ERR Slot import in progress.")),
    }
}

/// A message of the other node of a job, or of this replica's primary. On the connection of a job, the job's thread reads the
/// messages; all but ESTABLISH and FINISH are errors here.
pub(super) fn syncslots(turn: &mut Turn<'_, '_>) -> Outcome {
    if !is_from_log(turn) {
        only_in_cluster(turn)?;
    }
    if turn.is(2, "establish") {
        return establish(turn);
    }
    if turn.is(2, "finish") {
        return finish(turn);
    }
    if turn.session.applies_stream() {
        // A Valkey primary's own messages to the source.
        turn.reply.ok();
        return Ok(());
    }
    if turn.is(2, "report-progress") {
        // A source of Penstock asks before ESTABLISH. Other targets answer an error, and the connection stays usable.
        turn.session.reports_import = true;
        turn.reply.ok();
        return Ok(());
    }
    const MESSAGES: [&str; 6] =
        ["SNAPSHOT-EOF", "REQUEST-PAUSE", "PAUSED", "REQUEST-FAILOVER", "FAILOVER-GRANTED", "ACK"];
    match MESSAGES.into_iter().find(|message| turn.is(2, message)) {
        Some(message) => {
            Err(Error::new(format!("ERR CLUSTER SYNCSLOTS {message} should only be used by slot migration clients")))
        }
        None => Err(Error::SYNTAX),
    }
}

/// True for the stream of a primary and the append-only file.
fn is_from_log(turn: &Turn<'_, '_>) -> bool {
    turn.worker.clock.replays || turn.session.applies_stream()
}

/// The arguments of ESTABLISH.
struct Establish {
    source: Option<String>,
    name: String,
    ranges: SlotRanges,
    owner: Option<NodeIndex>,
}

/// Parses ESTABLISH.
fn parse_establish(turn: &Turn<'_, '_>, view: &SlotView, is_from_log: bool) -> Result<Establish, Error> {
    let (mut source, mut name, mut slots, mut at) = (None, None, None, 3);
    while at < turn.len() {
        let value = || (at + 1 < turn.len()).then(|| turn.arg(at + 1)).filter(|value| value.len() == NAME_BYTES);
        let text = |value: Option<&[u8]>| value.map(|value| String::from_utf8_lossy(value).into_owned());
        match () {
            () if turn.is(at, "source") && source.is_none() => {
                source = Some(text(value()).ok_or(Error::SYNTAX)?);
                if !is_from_log {
                    check_source(turn.arg(at + 1), view)?;
                }
                at += 2;
            }
            () if turn.is(at, "name") && name.is_none() => {
                name = Some(text(value()).ok_or(Error::SYNTAX)?);
                at += 2;
            }
            () if turn.is(at, "slotsrange") && slots.is_none() => {
                let (ranges, owner, end) = match is_from_log {
                    true => parse_logged_ranges(turn, at + 1)?,
                    false => parse_ranges(turn, view, at + 1)?,
                };
                if !is_from_log && turn.engine().slots.jobs.import_any(&ranges.set()) {
                    return Err(ALREADY_IMPORTED);
                }
                slots = Some((ranges, owner));
                at = end;
            }
            () => return Err(Error::SYNTAX),
        }
    }
    let (name, (ranges, owner)) = name.zip(slots).ok_or(Error::SYNTAX)?;
    if source.is_none() && !is_from_log {
        return Err(Error::SYNTAX);
    }
    Ok(Establish { source, name, ranges, owner })
}

const ALREADY_IMPORTED: Error =
    Error::fixed("ERR Slot is already being imported on the target by a different migration");

/// Parses ranges without regard to their owners, which may have changed since.
fn parse_logged_ranges(turn: &Turn<'_, '_>, from: usize) -> Result<(SlotRanges, Option<NodeIndex>, usize), Error> {
    let slots: Vec<_> = (from..turn.len()).map_while(|at| slot_of_text(turn.arg(at))).collect();
    let ranges = slots.chunks_exact(2).filter_map(|range| SlotRange::new(range[0], range[1])).collect::<Vec<_>>();
    match ranges.is_empty() || !slots.len().is_multiple_of(2) {
        true => Err(Error::SYNTAX),
        false => Ok((SlotRanges(ranges), None, from + slots.len())),
    }
}

fn check_source(name: &[u8], view: &SlotView) -> Result<(), Error> {
    match node_named(view, name) {
        None => Err(Error::fixed("ERR Target node does not know the source node")),
        Some(node) if node == view.me => Err(Error::fixed("ERR Source node is target node itself")),
        Some(_) => Ok(()),
    }
}

/// Begins an import: the connection moves to a thread of its own, which sends the reply.
fn establish(turn: &mut Turn<'_, '_>) -> Outcome {
    let engine = turn.engine();
    let is_from_log = is_from_log(turn);
    let view = match engine.slots.view() {
        Some(view) => view,
        None => {
            // The file or stream of a node, on a server outside of a cluster: there are no slots.
            turn.reply.ok();
            return Ok(());
        }
    };
    if turn.session.in_exec {
        return Err(IN_TRANSACTION);
    }
    if !is_from_log {
        check_start(&view)?;
    }
    let Establish { source, name, ranges, owner } = parse_establish(turn, &view, is_from_log)?;
    let is_of_source = |source: &String| owner.map(|owner| name_of(&view, owner)).as_ref() == Some(source);
    if !is_from_log && !source.as_ref().is_some_and(is_of_source) {
        return Err(Error::fixed("ERR Target node does not agree about current slot ownership"));
    }
    let target = name_of(&view, view.me);
    let nodes = source.clone().filter(|_| !is_from_log).map(|source| JobNodes { target, source });
    let (worker, now_s) = (turn.worker.id, turn.now_ms() / 1000);
    let (operation, reports_progress) = (Operation::Import, turn.session.reports_import);
    let new = NewJob { name, operation, ranges, nodes, source, worker, reports_progress, now_s };
    let job = Arc::new(SlotJob::new(new));
    match begin_import(engine, &job, is_from_log) {
        // The file is loaded while one of its imports is under way.
        Err(_) if is_from_log => {}
        begun => begun?,
    }
    let args = turn.args;
    // Replicas and the append-only file learn which keys are staged before these come.
    turn.worker.effects.record_as(0, (0..args.len()).map(|at| args.get(at)));
    match is_from_log {
        true => turn.reply.ok(),
        false => (turn.session.imports, turn.session.closing) = (Some(job), true),
    }
    Ok(())
}

/// Adds an import, and stages its slots. Slots with keys, and slots whose keys are being deleted, are refused: the deletion would also
/// delete new keys.
pub(super) fn begin_import(engine: &'static Engine, job: &Arc<SlotJob>, is_from_log: bool) -> Outcome {
    engine.slots.jobs.keep(engine.settings.cluster_slot_migration_log_max_len.get_usize());
    engine.slots.jobs.begin(job.clone(), |others| {
        let overlaps = |other: &Arc<SlotJob>| !other.state().has_ended() && other.slots.intersects(&job.slots);
        if others.iter().any(overlaps) {
            return Err(ALREADY_IMPORTED);
        }
        let keyspace = &engine.keyspace;
        let has_keys = |shard: usize| (0..keyspace.databases()).any(|at| keyspace.has_keys_in(at, shard));
        let is_clean =
            || !engine.slots.dropped.has_any(&job.slots) && !job.slots.iter().any(|slot| has_keys(slot.index()));
        if !is_from_log && !is_clean() {
            return Err(Error::fixed("ERR Target node still has keys of the slots, which it is deleting. Try again"));
        }
        keyspace.stage(job.slots.iter().map(cluster::Slot::index), true);
        Ok(())
    })
}

/// The end of an import of this replica's primary, or in the append-only file.
fn finish(turn: &mut Turn<'_, '_>) -> Outcome {
    let (mut state, mut name, mut message, mut at) = (None, None, None, 3);
    while at < turn.len() {
        let value =
            if at + 1 < turn.len() { Some(String::from_utf8_lossy(turn.arg(at + 1)).into_owned()) } else { None };
        let slot = match () {
            () if turn.is(at, "state") => &mut state,
            () if turn.is(at, "name") => &mut name,
            () if turn.is(at, "message") => &mut message,
            () => return Err(Error::SYNTAX),
        };
        if slot.is_some() || value.is_none() {
            return Err(Error::SYNTAX);
        }
        *slot = value;
        at += 2;
    }
    let (state, name) = state.zip(name.filter(|name| name.len() == NAME_BYTES)).ok_or(Error::SYNTAX)?;
    let engine = turn.engine();
    if !engine.slots.are_on() {
        turn.reply.ok();
        return Ok(());
    }
    let has_slots = match () {
        () if state.eq_ignore_ascii_case("success") => true,
        () if state.eq_ignore_ascii_case("failed") => false,
        () => return Err(Error::SYNTAX),
    };
    if !is_from_log(turn) {
        // The jobs of this node end by themselves.
        return Err(Error::fixed("ERR No such slot migration job"));
    }
    // The beginning may be in an earlier file, which a snapshot has replaced.
    if let Some(job) = engine.slots.jobs.ended_by_primary(&name) {
        end_logged_import(engine, &job, has_slots, &message.unwrap_or_default(), turn.now_ms() / 1000)?;
    }
    let args = turn.args;
    turn.worker.effects.record_as(0, (0..args.len()).map(|at| args.get(at)));
    turn.reply.ok();
    Ok(())
}

/// Ends an import that this node only follows. A replica notes the owner of the slots, so that it has them after a failover.
fn end_logged_import(engine: &'static Engine, job: &SlotJob, has_slots: bool, message: &str, now_s: u64) -> Outcome {
    let had_slots = job.state() == JobState::Success;
    engine.keyspace.stage(job.slots.iter().map(cluster::Slot::index), false);
    let state = if has_slots { JobState::Success } else { JobState::Failed };
    engine.slots.jobs.end(job, state, message, now_s);
    if engine.is_replica() && (has_slots || had_slots) {
        let owner = if has_slots { None } else { job.source.clone() };
        if has_slots || owner.is_some() {
            let command = ClusterCommand::NoteOwner { slots: Box::new(job.slots.clone()), owner };
            engine.host.cluster(BusRequest { command, answer: Answer::Nobody }).map_err(Error::new)?;
        }
    }
    Ok(())
}
