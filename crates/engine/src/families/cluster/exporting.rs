//! The commands that move whole slots away from this node: MIGRATESLOTS and CANCELSLOTMIGRATIONS.
//!
//! Source of the semantics: the replies of a running Valkey 9.1.

use std::sync::Arc;

use cluster::{NodeId, SlotSet, SlotView};
use commands::error::{Error, Outcome};

use super::migrating::{check_start, name_of, node_named, parse_ranges, view};
use super::only_in_cluster;
use crate::slots::jobs::{JobNodes, JobState, NAME_BYTES, NewJob, Operation, SlotJob, SlotRanges};
use crate::worker::turn::Turn;

/// Begins moves: each group of ranges is a job with a target.
pub(super) fn migrateslots(turn: &mut Turn<'_, '_>) -> Outcome {
    let view = view(turn)?;
    check_start(&view)?;
    let engine = turn.engine();
    let (mut all, mut jobs, mut at) = (SlotSet::EMPTY, Vec::new(), 2);
    while at < turn.len() {
        // valkey-cli 9.1 sends a NUL behind the word, which Valkey ignores.
        if !turn.is(at, "slotsrange") && !turn.is(at, "slotsrange\0") {
            return Err(Error::SYNTAX);
        }
        let (ranges, owner, end) = parse_ranges(turn, &view, at + 1)?;
        if owner != Some(view.me) {
            return Err(Error::fixed("ERR Slots are not served by this node."));
        }
        let slots = ranges.set();
        check_exports(&engine.slots.jobs.under_way_as(Operation::Export), &ranges)?;
        if slots.intersects(&all) {
            return Err(Error::fixed("ERR Slot ranges in migrations overlap"));
        }
        all.add(&slots);
        if end + 1 >= turn.len() || !turn.is(end, "node") {
            return Err(Error::SYNTAX);
        }
        check_target(turn.arg(end + 1), &view)?;
        jobs.push((ranges, String::from_utf8_lossy(turn.arg(end + 1)).into_owned()));
        at = end + 2;
    }
    begin(turn, &view, jobs)?;
    turn.reply.ok();
    Ok(())
}

/// Checks that none of the slots is moving away already.
fn check_exports(exports: &[Arc<SlotJob>], ranges: &SlotRanges) -> Outcome {
    let is_exported = |slot: &cluster::Slot| exports.iter().any(|job| job.slots.contains(*slot));
    match ranges.0.iter().flat_map(|range| range.slots()).find(is_exported) {
        None => Ok(()),
        Some(slot) => Err(Error::new(format!("ERR I am already migrating slot {slot}."))),
    }
}

fn begin(turn: &mut Turn<'_, '_>, view: &SlotView, jobs: Vec<(SlotRanges, String)>) -> Outcome {
    let (engine, now_s) = (turn.engine(), turn.now_ms() / 1000);
    let source = name_of(view, view.me);
    let mut job_of = |(ranges, target): (SlotRanges, String)| {
        let name = NodeId::random(|| turn.worker.random.next()).to_string();
        let nodes = Some(JobNodes { target, source: source.clone() });
        let operation = Operation::Export;
        Arc::new(SlotJob::new(NewJob {
            name,
            operation,
            ranges,
            nodes,
            source: None,
            worker: 0,
            reports_progress: false,
            now_s,
        }))
    };
    let jobs: Vec<_> = jobs.into_iter().map(&mut job_of).collect();
    engine.slots.jobs.keep(engine.settings.cluster_slot_migration_log_max_len.get_usize());
    let needs_thread = engine.slots.jobs.begin_exports(jobs.clone(), |others| {
        let under_way = |job: &&Arc<SlotJob>| job.operation == Operation::Export && !job.state().has_ended();
        let exports: Vec<_> = others.iter().filter(under_way).cloned().collect();
        jobs.iter().try_for_each(|job| check_exports(&exports, &job.ranges))
    })?;
    if needs_thread && let Err(why) = engine.host.export_slots() {
        while let Some(job) = engine.slots.jobs.next_export() {
            engine.slots.jobs.end(&job, JobState::Failed, &why, now_s);
        }
    }
    Ok(())
}

fn check_target(name: &[u8], view: &SlotView) -> Outcome {
    let shown = || String::from_utf8_lossy(name).into_owned();
    if name.len() != NAME_BYTES {
        return Err(Error::new(format!("ERR Invalid node name: {}", shown())));
    }
    match node_named(view, name) {
        None => Err(Error::new(format!("ERR Unknown node name: {}", shown()))),
        Some(node) if node == view.me => Err(Error::fixed("ERR Target node can not be this node.")),
        Some(_) => Ok(()),
    }
}

/// Cancels all moves away from this node whose target can't have the slots yet.
pub(super) fn cancelslotmigrations(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let exports = turn.engine().slots.jobs.under_way_as(Operation::Export);
    if exports.is_empty() {
        return Err(Error::fixed("ERR No migrations ongoing"));
    }
    if exports.iter().filter(|job| job.cancel("")).count() == 0 {
        return Err(Error::fixed("ERR The target has been granted the slots already"));
    }
    turn.reply.ok();
    Ok(())
}
