//! The commands on the keys of a slot: COUNTKEYSINSLOT, GETKEYSINSLOT, KEYSLOT, FLUSHSLOT, SLOT-STATS.
//!
//! Source of the semantics: the command pages of Redis and Valkey, and the replies of running servers (Valkey 9.1).

use commands::effects::Class;
use commands::error::{Error, Outcome};
use resp::num;
use store::db::Db;
use store::keyspace::{Key, Layout};

use super::only_in_cluster;
use crate::slots::Slot;
use crate::slots::stats::SlotFigures;
use crate::worker::turn::Turn;

/// Keys visited in one step of a search for a slot's keys, on a server without a shard for each slot.
const SCANNED: usize = 1000;

const OUT_OF_RANGE: Error = Error::fixed("ERR Invalid or out of range slot");

/// Parses an argument as a slot. `error` is for numbers out of range.
fn slot_or(turn: &Turn<'_, '_>, at: usize, error: Error) -> Result<Slot, Error> {
    u64::try_from(turn.int(at)?).ok().and_then(Slot::new).ok_or(error)
}

/// Parses an argument as a slot, with one error for all invalid arguments.
pub(super) fn slot(turn: &Turn<'_, '_>, at: usize) -> Result<Slot, Error> {
    slot_or(turn, at, OUT_OF_RANGE).map_err(|_| OUT_OF_RANGE)
}

pub(super) fn keyslot(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    turn.reply.int(i64::from(store::hash::slot_of(turn.arg(2))));
    Ok(())
}

/// Calls `run` with a database.
fn in_database<T>(turn: &mut Turn<'_, '_>, database: usize, run: impl FnOnce(&mut Db<'_, '_>) -> T) -> T {
    run(&mut Db::new(turn.locked, database, &turn.worker.clock, &mut turn.worker.observed))
}

/// Returns the number of a slot's keys in all databases.
pub(super) fn keys_in(turn: &mut Turn<'_, '_>, slot: Slot) -> usize {
    let databases = turn.engine().keyspace.databases();
    (0..databases).map(|database| in_database(turn, database, |db| db.slot_len(slot.number()))).sum()
}

/// Returns true if any database has keys.
pub(super) fn has_keys(turn: &mut Turn<'_, '_>) -> bool {
    let databases = turn.engine().keyspace.databases();
    (0..databases).any(|database| in_database(turn, database, |db| db.sizes().0 > 0))
}

pub(super) fn countkeysinslot(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    let slot = slot_or(turn, 2, Error::fixed("ERR Invalid slot"))?;
    // Valkey counts the selected database. SLOT-STATS counts all of them.
    let count = turn.db().slot_len(slot.number());
    turn.reply.count(count);
    Ok(())
}

pub(super) fn getkeysinslot(turn: &mut Turn<'_, '_>) -> Outcome {
    const INVALID: Error = Error::fixed("ERR Invalid slot or number of keys");
    only_in_cluster(turn)?;
    let (slot, count) = (turn.int(2)?, turn.int(3)?);
    let slot = u64::try_from(slot).ok().and_then(Slot::new).ok_or(INVALID)?;
    let count = usize::try_from(count).map_err(|_| INVALID)?;
    let mut keys = Vec::<Box<[u8]>>::new();
    turn.db().visit_slot(slot.number(), count, |entry| keys.push(entry.key().into()));
    turn.reply.array(keys.len());
    keys.iter().for_each(|key| turn.reply.bulk(key));
    Ok(())
}

pub(super) fn flushslot(turn: &mut Turn<'_, '_>) -> Outcome {
    // A server outside of a cluster can load the append-only file of a node, or replicate from one.
    let replays = turn.worker.clock.replays || turn.session.applies_stream();
    if !replays {
        only_in_cluster(turn)?;
    }
    let slot = slot(turn, 2)?;
    let lazily = match turn.len() {
        3 => turn.worker.rules.lazy_free.user_flush,
        4 if turn.is(3, "async") => true,
        4 if turn.is(3, "sync") => false,
        4 => return Err(Error::SYNTAX),
        _ => return Err(super::bad_subcommand(turn)),
    };
    let removed = remove_slot(turn, slot, lazily);
    turn.worker.effects.count(removed as u64);
    turn.reply.ok();
    Ok(())
}

/// Removes the keys of a slot from all databases, and returns their number. All shards are locked.
fn remove_slot(turn: &mut Turn<'_, '_>, slot: Slot, lazily: bool) -> usize {
    let engine = turn.engine();
    let is_listened = engine.tells_of_keys();
    let mut removed = 0;
    for database in (0..engine.keyspace.databases()).filter(|database| engine.keyspace.had_keys(*database)) {
        let is_shard = engine.keyspace.layout() == Layout::Slots;
        let keys = if is_listened || !is_shard { names_in(turn, database, slot) } else { Vec::new() };
        removed += match is_shard {
            true => in_database(turn, database, |db| db.flush_slot(slot.number(), lazily)),
            false => in_database(turn, database, |db| keys.iter().filter(|key| db.unlink(Key::new(key))).count()),
        };
        keys.iter().for_each(|key| turn.worker.effects.changed(database, key, Class::Generic, "del"));
    }
    removed
}

/// Returns the names of a slot's keys in a database.
fn names_in(turn: &mut Turn<'_, '_>, database: usize, slot: Slot) -> Vec<Box<[u8]>> {
    let is_shard = turn.engine().keyspace.layout() == Layout::Slots;
    let mut keys = Vec::<Box<[u8]>>::new();
    in_database(turn, database, |db| {
        if is_shard {
            db.visit_slot(slot.number(), usize::MAX, |entry| keys.push(entry.key().into()));
            return;
        }
        let mut cursor = 0;
        loop {
            cursor = db.scan(cursor, SCANNED, |entry| {
                if store::hash::slot_of(entry.key()) == slot.number() {
                    keys.push(entry.key().into());
                }
            });
            if cursor == 0 {
                break;
            }
        }
    });
    keys
}

/// A value that SLOT-STATS shows and sorts by.
#[derive(Clone, Copy)]
struct Metric {
    name: &'static str,
    of: fn(&SlotRow) -> u64,
}

/// A row of the reply.
struct SlotRow {
    slot: Slot,
    keys: u64,
    figures: SlotFigures,
}

const METRICS: [Metric; 4] = [
    Metric { name: "key-count", of: |row| row.keys },
    Metric { name: "cpu-usec", of: |row| row.figures.cpu_us },
    Metric { name: "network-bytes-in", of: |row| row.figures.bytes_in },
    Metric { name: "network-bytes-out", of: |row| row.figures.bytes_out },
];

/// Returns the values that are counted under the present configuration.
fn metrics(turn: &Turn<'_, '_>) -> &'static [Metric] {
    if turn.engine().settings.cluster_slot_stats_enabled.get() { &METRICS } else { &METRICS[..1] }
}

pub(super) fn slot_stats(turn: &mut Turn<'_, '_>) -> Outcome {
    only_in_cluster(turn)?;
    if turn.is(2, "slotsrange") {
        slots_range(turn)
    } else if turn.is(2, "orderby") {
        order_by(turn)
    } else {
        Err(super::bad_subcommand(turn))
    }
}

/// Returns the rows of those slots that this node owns.
fn rows(turn: &mut Turn<'_, '_>, slots: impl Iterator<Item = Slot>) -> Vec<SlotRow> {
    let Some(view) = turn.engine().slots.view() else { return Vec::new() };
    let own = slots.filter(|slot| view.owner(*slot) == Some(view.me));
    own.map(|slot| {
        let (keys, figures) = (keys_in(turn, slot) as u64, turn.engine().slot_stats.of(slot));
        SlotRow { slot, keys, figures }
    })
    .collect()
}

fn slots_range(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.len() != 5 {
        return Err(super::bad_subcommand(turn));
    }
    let (first, last) = (slot(turn, 3)?, slot(turn, 4)?);
    if first > last {
        return Err(Error::new(format!("ERR Start slot number {first} is greater than end slot number {last}")));
    }
    let rows = rows(turn, Slot::all().filter(|slot| (first..=last).contains(slot)));
    write_rows(turn, &rows);
    Ok(())
}

fn order_by(turn: &mut Turn<'_, '_>) -> Outcome {
    let named = metrics(turn).iter().find(|metric| turn.is(3, metric.name));
    let metric = *named.ok_or(Error::fixed("ERR Unrecognized sort metric for ORDERBY."))?;
    let (limit, ascends) = order_options(turn)?;
    let mut rows = rows(turn, Slot::all());
    // The sort is stable: slots with equal values stay in ascending order.
    rows.sort_by(|a, b| {
        let order = (metric.of)(a).cmp(&(metric.of)(b));
        if ascends { order } else { order.reverse() }
    });
    rows.truncate(limit);
    write_rows(turn, &rows);
    Ok(())
}

/// Parses the options of ORDERBY: the number of rows, and true for ascending order.
fn order_options(turn: &Turn<'_, '_>) -> Result<(usize, bool), Error> {
    let (mut limit, mut ascends, mut at) = (None, None, 4);
    while at < turn.len() {
        let is_repeated = if turn.is(at, "limit") && at + 1 < turn.len() {
            at += 1;
            limit.replace(limit_of(turn.arg(at))?).is_some()
        } else if turn.is(at, "asc") || turn.is(at, "desc") {
            ascends.replace(turn.is(at, "asc")).is_some()
        } else {
            return Err(Error::SYNTAX);
        };
        if is_repeated {
            return Err(Error::fixed("ERR Multiple filters of the same type are disallowed."));
        }
        at += 1;
    }
    Ok((limit.unwrap_or(cluster::SLOTS), ascends.unwrap_or(false)))
}

fn limit_of(text: &[u8]) -> Result<usize, Error> {
    let limit = num::parse_i64(text).and_then(|limit| usize::try_from(limit).ok());
    let error = "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).";
    limit.filter(|limit| (1..=cluster::SLOTS).contains(limit)).ok_or(Error::fixed(error))
}

fn write_rows(turn: &mut Turn<'_, '_>, rows: &[SlotRow]) {
    let metrics = metrics(turn);
    turn.reply.array(rows.len());
    for row in rows {
        turn.reply.array(2);
        turn.reply.int(i64::from(row.slot.number()));
        turn.reply.map(metrics.len());
        for metric in metrics {
            turn.reply.bulk(metric.name);
            turn.reply.int((metric.of)(row) as i64);
        }
    }
}
