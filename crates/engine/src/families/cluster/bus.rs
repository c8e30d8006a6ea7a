//! The subcommands of CLUSTER that the bus answers.
//!
//! A connection waits for the answer, and its thread goes on. A command in a transaction or a script is answered at once: its thread waits
//! for the bus, which never waits for a thread.
//!
//! Source of the semantics: the command pages of Redis and Valkey, and the replies of running servers (Valkey 9.1).

use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use cluster::FailoverMode;
use cluster::commands::{ClusterCommand, SetSlot};
use commands::error::{Error, Outcome};
use resp::num::parse_i64;

use super::slots::{has_keys, keys_in, slot};
use super::{bad_subcommand, only_in_cluster};
use crate::clients::blocking::Awaited;
use crate::clients::slot_changes::SlotChange;
use crate::services::bus_replies;
use crate::slots::Slot;
use crate::slots::bus::{Answer, BusRequest};
use crate::worker::turn::Turn;

/// The longest wait of a thread. The bus answers within microseconds, unless the machine is overloaded.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Passes a command to the bus.
pub(in crate::families) fn ask(turn: &mut Turn<'_, '_>, command: ClusterCommand) -> Outcome {
    ask_also(turn, command, false)
}

/// Passes a command to the bus, and to this server's replicas once it is accepted.
fn ask_also(turn: &mut Turn<'_, '_>, command: ClusterCommand, for_replicas: bool) -> Outcome {
    if turn.session.in_exec {
        return ask_at_once(turn, command, for_replicas);
    }
    only_in_cluster(turn)?;
    let engine = turn.engine();
    let wait = engine.slots.waits.next();
    let (client, worker) = (turn.session.client.id, turn.worker.id);
    // Before the bus can answer.
    turn.session.awaited = Some(Awaited::Bus { wait, for_replicas });
    let request = BusRequest { command, answer: Answer::Client { client, worker, wait } };
    engine.host.cluster(request).inspect_err(|_| turn.session.awaited = None).map_err(Error::new)
}

/// Passes a command of a transaction or a script to the bus, and waits for its answer, which comes before the change is on disk.
/// Commands of keys see the cluster's new state behind the transaction.
fn ask_at_once(turn: &mut Turn<'_, '_>, command: ClusterCommand, for_replicas: bool) -> Outcome {
    only_in_cluster(turn)?;
    turn.engine().slots.hold_bus(&mut turn.session.holds_bus);
    let (sender, answer) = sync_channel(1);
    turn.engine().host.cluster(BusRequest { command, answer: Answer::Thread(sender) }).map_err(Error::new)?;
    let answer = answer.recv_timeout(ANSWER_TIME_MAX).map_err(|_| Error::new("ERR The cluster bus does not answer"))?;
    match bus_replies::error_text(&answer) {
        Some(text) => Err(Error::new(text)),
        None => {
            bus_replies::write(&answer, &mut turn.reply);
            if for_replicas && turn.engine().replication.stream.is_own() {
                let args = turn.args;
                turn.worker.effects.record_message((0..args.len()).map(|at| args.get(at)));
            }
            Ok(())
        }
    }
}

/// An argument as text. Bytes that are no text name nothing.
fn text(turn: &Turn<'_, '_>, at: usize) -> String {
    String::from_utf8_lossy(turn.arg(at)).into_owned()
}

pub(super) fn info(turn: &mut Turn<'_, '_>) -> Outcome {
    ask(turn, ClusterCommand::Info)
}

pub(super) fn myid(turn: &mut Turn<'_, '_>) -> Outcome {
    ask(turn, ClusterCommand::MyId)
}

pub(super) fn myshardid(turn: &mut Turn<'_, '_>) -> Outcome {
    ask(turn, ClusterCommand::MyShardId)
}

pub(super) fn nodes(turn: &mut Turn<'_, '_>) -> Outcome {
    let path = turn.engine().client_path(&turn.session.client);
    turn.session.forwarding.decline();
    ask(turn, ClusterCommand::Nodes(path))
}

pub(super) fn show_slots(turn: &mut Turn<'_, '_>) -> Outcome {
    let path = turn.engine().client_path(&turn.session.client);
    turn.session.forwarding.decline();
    ask(turn, ClusterCommand::Slots(path))
}

pub(super) fn shards(turn: &mut Turn<'_, '_>) -> Outcome {
    let path = turn.engine().client_path(&turn.session.client);
    turn.session.forwarding.decline();
    ask(turn, ClusterCommand::Shards(path))
}

pub(super) fn links(turn: &mut Turn<'_, '_>) -> Outcome {
    ask(turn, ClusterCommand::Links)
}

pub(super) fn replicas(turn: &mut Turn<'_, '_>) -> Outcome {
    let path = turn.engine().client_path(&turn.session.client);
    ask(turn, ClusterCommand::Replicas(text(turn, 2), path))
}

pub(super) fn count_failure_reports(turn: &mut Turn<'_, '_>) -> Outcome {
    ask(turn, ClusterCommand::CountFailureReports(text(turn, 2)))
}

pub(super) fn meet(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    if turn.len() > 5 {
        return Err(bad_subcommand(turn));
    }
    let number = |at: usize, which: &str| {
        parse_i64(turn.arg(at))
            .ok_or_else(|| Error::new(format!("ERR Invalid {which} port specified: {}", text(turn, at))))
    };
    let port = number(3, "base")?;
    let bus_port = if turn.len() == 5 { Some(number(4, "bus")?) } else { None };
    ask(turn, ClusterCommand::Meet { ip: text(turn, 2), port, bus_port })
}

pub(super) fn forget(turn: &mut Turn<'_, '_>) -> Outcome {
    ask(turn, ClusterCommand::Forget(text(turn, 2)))
}

pub(super) fn reset(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let hard = match turn.len() {
        2 => false,
        3 if turn.is(2, "hard") => true,
        3 if turn.is(2, "soft") => false,
        3 => return Err(Error::SYNTAX),
        _ => return Err(bad_subcommand(turn)),
    };
    let has_keys = has_keys(turn);
    ask(turn, ClusterCommand::Reset { hard, has_keys })
}

/// The slots in the arguments.
fn slots(turn: &Turn<'_, '_>) -> Result<Vec<Slot>, Error> {
    (2..turn.len()).map(|at| slot(turn, at)).collect()
}

/// The ranges of slots in the arguments.
fn ranges(turn: &Turn<'_, '_>) -> Result<Vec<(Slot, Slot)>, Error> {
    if !turn.len().is_multiple_of(2) {
        return Err(Error::arity(&turn.command.name));
    }
    let slots = slots(turn)?;
    Ok(slots.chunks_exact(2).map(|range| (range[0], range[1])).collect())
}

pub(super) fn addslots(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let slots = slots(turn)?;
    ask(turn, ClusterCommand::AddSlots(slots))
}

pub(super) fn addslotsrange(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let ranges = ranges(turn)?;
    ask(turn, ClusterCommand::AddSlotsRange(ranges))
}

pub(super) fn delslots(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let slots = slots(turn)?;
    ask(turn, ClusterCommand::DelSlots(slots))
}

pub(super) fn delslotsrange(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let ranges = ranges(turn)?;
    ask(turn, ClusterCommand::DelSlotsRange(ranges))
}

pub(super) fn flushslots(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let has_keys = has_keys(turn);
    ask(turn, ClusterCommand::FlushSlots { has_keys })
}

/// Returns the time in milliseconds for which SETSLOT waits for replicas.
fn timeout_of_change(turn: &Turn<'_, '_>) -> Result<u64, Error> {
    let end = if turn.is(3, "stable") { 4 } else { 5 };
    match turn.len() {
        len if len == end => Ok(REPLICAS_TIME_MS),
        len if len == end + 2 && turn.is(end, "timeout") => {
            let timeout = turn.int(end + 1);
            let timeout = timeout.map_err(|_| Error::fixed("ERR timeout is not an integer or out of range"))?;
            u64::try_from(timeout).map_err(|_| Error::TIMEOUT_NEGATIVE)
        }
        len if len == end + 1 && turn.is(end, "timeout") => Err(Error::fixed("ERR Missing timeout value")),
        _ => Err(INVALID_SETSLOT),
    }
}

/// The time in milliseconds for which SETSLOT waits for replicas, unless TIMEOUT is given.
const REPLICAS_TIME_MS: u64 = 2000;

const INVALID_SETSLOT: Error =
    Error::fixed("ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP");

pub(super) fn setslot(turn: &mut Turn<'_, '_>) -> Outcome {
    let from_primary = turn.session.applies_stream();
    if !from_primary {
        only_in_cluster(turn)?;
    }
    let slot = slot(turn, 2)?;
    if !from_primary {
        super::migrating::check_no_job(turn)?;
    }
    let timeout_ms = timeout_of_change(turn)?;
    let node = || text(turn, 4);
    let change = match () {
        () if turn.is(3, "migrating") => SetSlot::Migrating(node()),
        () if turn.is(3, "importing") => SetSlot::Importing(node()),
        () if turn.is(3, "stable") => SetSlot::Stable,
        () if turn.is(3, "node") => SetSlot::Node(node()),
        () => return Err(INVALID_SETSLOT),
    };
    let has_keys = keys_in(turn, slot) > 0;
    let command = ClusterCommand::SetSlot { slot, change, has_keys, from_primary };
    if !from_primary {
        let for_replicas = turn.engine().slots.replicas_take_slots.load(Ordering::Relaxed);
        return match for_replicas && !turn.session.in_exec && turn.engine().replication.replicas.online() > 0 {
            true => replicate_first(turn, command, timeout_ms),
            false => ask_also(turn, command, for_replicas),
        };
    }
    // The stream goes on: the bus takes the primary's changes in their order.
    turn.engine().host.cluster(BusRequest { command, answer: Answer::Nobody }).map_err(Error::new)?;
    turn.reply.ok();
    Ok(())
}

/// Has the bus check a change of a slot. The replicas get it then, and the bus executes it last.
fn replicate_first(turn: &mut Turn<'_, '_>, command: ClusterCommand, timeout_ms: u64) -> Outcome {
    let ClusterCommand::SetSlot { slot, change, has_keys, .. } = &command else { return ask(turn, command) };
    let check = ClusterCommand::CheckSetSlot { slot: *slot, change: change.clone(), has_keys: *has_keys };
    ask(turn, check)?;
    if let Some(Awaited::Bus { wait, .. }) = turn.session.awaited {
        let client = turn.session.client.id;
        turn.worker.slot_changes.push(SlotChange { client, wait, command, timeout_ms, awaited: None });
    }
    Ok(())
}

pub(super) fn replicate(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    match turn.len() {
        3 => {
            let has_keys = has_keys(turn);
            ask(turn, ClusterCommand::Replicate { node: text(turn, 2), has_keys })
        }
        4 if turn.is(2, "no") && turn.is(3, "one") => ask(turn, ClusterCommand::ReplicateNoOne),
        _ => Err(bad_subcommand(turn)),
    }
}

pub(super) fn set_config_epoch(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let epoch = turn.int(2)?;
    ask(turn, ClusterCommand::SetConfigEpoch(epoch))
}

pub(super) fn bumpepoch(turn: &mut Turn<'_, '_>) -> Outcome {
    ask(turn, ClusterCommand::BumpEpoch)
}

pub(super) fn saveconfig(turn: &mut Turn<'_, '_>) -> Outcome {
    ask(turn, ClusterCommand::SaveConfig)
}

pub(super) fn failover(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.session.applies_stream() {
        return failover_at_shutdown(turn);
    }
    only_in_cluster(turn)?;
    let mode = match turn.len() {
        2 => FailoverMode::Planned,
        3 if turn.is(2, "force") => FailoverMode::Force,
        3 if turn.is(2, "takeover") => FailoverMode::Takeover,
        _ => return Err(Error::SYNTAX),
    };
    ask(turn, ClusterCommand::Failover(mode))
}

/// `FAILOVER FORCE REPLICAID id` at the end of the stream of a primary that shuts down.
fn failover_at_shutdown(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.len() != 5 || !turn.is(2, "force") || !turn.is(3, "replicaid") {
        return Err(Error::SYNTAX);
    }
    if turn.engine().slots.are_on() {
        let command = ClusterCommand::FailoverAtShutdown(text(turn, 4));
        turn.engine().host.cluster(BusRequest { command, answer: Answer::Nobody }).map_err(Error::new)?;
    }
    turn.reply.ok();
    Ok(())
}
