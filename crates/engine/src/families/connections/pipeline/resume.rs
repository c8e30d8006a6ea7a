//! PIPELINE RESUME, which takes a token over from a broken connection. If other nodes count for the token, they are asked first: see
//! `pipelines::nodes`.

use std::sync::Arc;

use cluster::view::{NodeIndex, NodeView, Role};
use cluster::{Slot, SlotView};
use commands::error::{Error, Outcome};
use resp::num;
use resp::parse::{ReplyLimits, Value, parse};
use resp::reply::{Output, Reply};

use super::{NO_TOKEN, OTHER_TOKEN, check_cluster, check_primary, find, write_progress};
use crate::clients::session::{ReplyMode, Session};
use crate::pipelines::nodes::OwnersCount;
use crate::pipelines::{Failure, Pipeline, Tally};
use crate::services::closing::close_client;
use crate::worker::Worker;
use crate::worker::turn::Turn;

const NEEDS_FORWARDING: Error = Error::fixed(
    "ERR Other nodes may have counted for this pipeline token, so that PIPELINE RESUME needs cluster-forward, and CLIENT REPLY ON",
);

pub(super) fn resume(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.count_not();
    check_primary(turn)?;
    let (engine, now_ms, me) = (turn.engine(), turn.now_ms(), turn.session.client.id);
    let pipeline = match find(turn) {
        Err(error) if error == NO_TOKEN && turn.session.forwarding.is_possible => {
            return check_cluster(turn).and(Err(error));
        }
        found => found?,
    };
    let is_other = |tally: &Tally| tally.pipeline().has_token() && !Arc::ptr_eq(tally.pipeline(), &pipeline);
    if turn.session.tally().is_some_and(is_other) {
        return Err(OTHER_TOKEN);
    }
    let view = if pipeline.forward().is_some() { view_of_owners(turn)? } else { None };
    let Some((pipeline, before)) = engine.pipelines.hand_over(turn.arg(2), me, now_ms) else { return Err(NO_TOKEN) };
    if let Some(client) = before.filter(|&before| before != me).and_then(|before| engine.clients.get(before)) {
        close_client(engine, &client);
    }
    let before = turn.session.tally().map(|tally| tally.pipeline().clone());
    if before.as_ref().is_none_or(|before| !before.has_token()) {
        // The token's own mode prevails, so that the rest of the pipeline is answered as on the old connection.
        if let Some(before) = before.filter(|_| pipeline.abort().is_none()) {
            pipeline.take_abort(&before);
        }
        turn.session.set_tally(Some(Box::new(Tally::new(pipeline.clone()))));
    }
    // The client's next commands expect the database of the old connection.
    turn.session.select(pipeline.database());
    turn.worker.depend_on_all();
    // WAIT in this connection covers the writes of the old one.
    turn.worker.wrote = turn.engine().journal.position();
    match view {
        Some(view) if ask_owners(turn, &pipeline, &view) => {}
        _ => write_progress(&mut turn.reply, &pipeline.progress()),
    }
    Ok(())
}

/// Returns the view with the owners that must be asked; `None` if this server is no node of a cluster any more.
fn view_of_owners(turn: &Turn<'_, '_>) -> Result<Option<Arc<SlotView>>, Error> {
    let Some(view) = turn.worker.slots.view().cloned() else { return Ok(None) };
    if !turn.session.forwarding.is_possible || turn.session.reply_mode() != ReplyMode::On {
        return Err(NEEDS_FORWARDING);
    }
    if !view.is_up() {
        return Err(Error::fixed(
            "CLUSTERDOWN The cluster is down, and other nodes may have counted for this pipeline token",
        ));
    }
    Ok(Some(view))
}

/// Asks all owners for their counts, under a new generation. The reply follows their answers: see [`end_resume`]. Returns false if there
/// are no owners.
fn ask_owners(turn: &mut Turn<'_, '_>, pipeline: &Pipeline, view: &SlotView) -> bool {
    // The journal needs no record of the generation, because the owners know it: see `end_resume`.
    let Some(forward) = pipeline.next_generation(turn.now_ms()) else { return false };
    let counts_here = turn.engine().pipelines.get(&forward.name, turn.now_ms()).is_some();
    let uses_tls = turn.engine().settings.tls_cluster.get();
    let (at, resp3) = (turn.reply.output().len(), turn.reply.is_resp3());
    let forwarded = &mut turn.worker.forwarded;
    forwarded.counter = turn.session.counter();
    for (index, node) in owners(view, counts_here) {
        let address = || (node.endpoints.ip.as_str(), node.endpoints.ports.of(uses_tls));
        forwarded.push_attach((view.edition, index), address, resp3, at);
    }
    if forwarded.is_empty() {
        forwarded.counter = None;
        return false;
    }
    if let Some(me) = view.nodes.get(view.me.place()) {
        turn.session.forwarding.note(view.edition, me.id);
    }
    true
}

/// Returns the nodes that may have run forwarded commands: all primaries. A primary without slots counts unless another primary of its
/// shard has slots, because that one has taken its place. This node is among them if it has such a token (`counts_here`): a slot may have
/// moved here while a command was on its way.
fn owners(view: &SlotView, counts_here: bool) -> impl Iterator<Item = (NodeIndex, &NodeView)> {
    let mut has_slots = vec![false; view.nodes.len()];
    for owner in Slot::all().filter_map(|slot| view.owner(slot)) {
        if let Some(has_slots) = has_slots.get_mut(owner.place()) {
            *has_slots = true;
        }
    }
    let serving: Vec<_> =
        view.nodes.iter().zip(&has_slots).filter(|(_, has)| **has).map(|(node, _)| node.shard).collect();
    view.nodes.iter().zip(has_slots).zip(0..).filter_map(move |((node, has_slots), at)| {
        let index = NodeIndex::new(at);
        let is_replaced = !has_slots && serving.contains(&node.shard);
        (node.role == Role::Primary && !is_replaced && (index != view.me || counts_here)).then_some((index, node))
    })
}

/// Ends RESUME once all owners have answered. Returns its reply. If an owner has not told its count, the session doesn't get the token.
pub fn end_resume(worker: &mut Worker, session: &mut Session, answers: &[&[u8]]) -> Output {
    let mut out = Output::default();
    // Behind the gate, because roles change behind the closed gate.
    let _inside = worker.enter_gate();
    let loses_place = worker.engine.is_replica() || worker.engine.fails_over(worker.clock.now_ms);
    let counts: Result<Vec<OwnersCount>, Vec<u8>> = match loses_place {
        // The replica that takes this server's place would miss the record of the count, and a replica's tokens have no connections.
        true => Err(b"CLUSTERDOWN A replica is taking this server's place; send PIPELINE RESUME to it".to_vec()),
        false => answers.iter().map(|answer| count_of(answer)).collect(),
    };
    let pipelines = &worker.engine.pipelines;
    let pipeline = session.tally().map(|tally| tally.pipeline().clone());
    let reply = &mut Reply::new(&mut out, session.proto);
    match (pipeline, counts) {
        (Some(pipeline), Ok(counts)) if pipelines.add_owners(&pipeline, session.client.id, &counts) => {
            write_progress(reply, &pipeline.progress());
        }
        (pipeline, Err(error)) => {
            // The clock of this node may be behind that of the home before it. The next attempt then gets a greater generation.
            let known = answers.iter().filter_map(|answer| generation_in(answer)).max();
            if let (Some(pipeline), Some(known)) = (pipeline, known) {
                pipeline.raise_generation(known);
            }
            session.leave_pipeline(pipelines, worker.clock.now_ms);
            reply.error(error);
        }
        // Another connection has the token, or it has ended.
        _ => reply.error(NO_TOKEN.text()),
    }
    out
}

/// Returns the count in an owner's answer to PIPELINE ATTACH.
///
/// # Errors
/// The error for the client.
fn count_of(answer: &[u8]) -> Result<OwnersCount, Vec<u8>> {
    let failed = |why: &[u8]| {
        [b"CLUSTERDOWN A node that may have run commands of the pipeline can't tell; send PIPELINE RESUME again: ", why]
            .concat()
    };
    let value = parse(answer, &ReplyLimits::default()).ok().flatten().map(|(value, _)| value);
    match value {
        // A server that doesn't know the command counts nothing.
        Some(Value::Error(error)) if error.starts_with(b"ERR unknown ") || error.starts_with(b"ERR Unknown ") => {
            Ok(OwnersCount::default())
        }
        Some(Value::Error(error)) => Err(failed(&error)),
        Some(Value::Array(values)) => count_in(&values).ok_or_else(|| failed(b"its answer makes no sense")),
        _ => Err(failed(b"its answer makes no sense")),
    }
}

/// Returns the known generation in the answer of an owner that knows a greater one.
fn generation_in(answer: &[u8]) -> Option<u64> {
    let number = answer.strip_prefix(b"-FENCED ")?.split(|&byte| byte == b' ').next()?;
    num::parse_i64(number).and_then(|number| u64::try_from(number).ok())
}

fn count_in(values: &[Value]) -> Option<OwnersCount> {
    let number = |value: &Value| if let Value::Int(number) = value { u64::try_from(*number).ok() } else { None };
    let ([executed, failed], failures) = values.split_first_chunk::<2>()?;
    let failures = failures.chunks(2).map(|pair| match pair {
        [position, Value::Bulk(error)] => Some(Failure::new(number(position)?, error)),
        _ => None,
    });
    Some(OwnersCount {
        executed: number(executed)?,
        failed: number(failed)?,
        failures: failures.collect::<Option<_>>()?,
    })
}
