//! The beginning and end of snapshots, and the workers' share of the work.
//!
//! A snapshot begins while all shards are held, by a command or behind the closed gate. Then each worker walks its
//! share of the shards in steps, and the worker that finds all shards walked ends the snapshot behind the gate. SAVE
//! and the shutdown do the whole work at once. The thread of a move walks a snapshot of slots ([`WalkClaim`]).
//!
//! [`WalkClaim`]: crate::snapshots::WalkClaim

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use cluster::SlotSet;
use commands::error::Error;
use format::rdb::{Options, Target, Writer};
use journal::lane::Audience;
use journal::record::{Kind, Record};
use store::db::{Clock, Db, SideEffects};
use store::keyspace::{Locked, Shards};
use store::snapshot::{Ended, Sink, Step};

use crate::inbox::Inbox;
use crate::machine::version::{PENSTOCK_VERSION, REDIS_VERSION};
use crate::pause::PausePurpose;
use crate::services::slow;
use crate::slots::Slot;
use crate::snapshots::{
    AccessKind, BegunSlots, CommandSink, HISTORY_FIELD, OFFSET_FIELD, Outlet, Piece, Purpose, Running, SCRIPT_FIELD,
    SLOT_STATES_FIELD, STREAM_DATABASE_FIELD, ShardSink, SinkOptions, SnapshotForm, TOKEN_FIELD, WalkProgress,
    WantedSlots, piece_bytes,
};
use crate::state::Engine;
use crate::worker::Worker;
use config::{LogLevel, MaxmemoryPolicy};
use statistics::stats::Totals;
use statistics::ticks::{Ticks, per_microsecond};

/// Bytes of keys and values in a step: a tenth of a millisecond of writing, during which clients may have to wait.
const STEP_BYTES: usize = 64 << 10;
/// Number of shards that a worker walks in turn if there are other threads. Shard locks are unfair: a thread that
/// retakes one at once can starve others for dozens of steps. The number is small because each shard holds a partly
/// filled buffer.
const BEGUN_SHARDS: usize = 4;
/// Interval at which SAVE checks the progress of the disk.
const DISK_WAIT: Duration = Duration::from_millis(1);

/// Error for a command that would save while another snapshot is in progress.
pub(crate) const ANOTHER_RUNS: &str = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in \
                                       order to schedule a BGSAVE whenever possible.";

/// Begins a snapshot now, or after the end of a cancelled one and the cleanup of its marks. All shards are held.
///
/// # Errors
/// There is a snapshot already, or the server can't begin to write it.
pub(crate) fn begin(
    engine: &'static Engine,
    locked: &mut Locked<'_>,
    clock: &Clock,
    purpose: Purpose,
) -> Result<(), Error> {
    match engine.snapshots.purpose() {
        Some(Purpose::File) => return Err(Error::new("ERR Background save already in progress")),
        Some(Purpose::Base) => {
            return Err(Error::new("ERR Background append only file rewriting already in progress"));
        }
        Some(Purpose::Replicas | Purpose::Slots) => return Err(Error::new(ANOTHER_RUNS)),
        None => {}
    }
    // The previous snapshot must end first, because both use the same file name. A base replaces the files that were
    // turned off, once they are closed.
    if !engine.snapshots.are_idle() || purpose == Purpose::Base && engine.host.closes_append_only_file() {
        engine.snapshots.want(purpose);
        return Ok(());
    }
    if purpose == Purpose::Base && engine.settings.appendonly.get() {
        let begun = engine.host.begin_append_only_file(&mut || engine.journal.read_alone(Audience::File));
        begun.map_err(|why| Error::new(format!("ERR {why}")))?;
    }
    if purpose == Purpose::Replicas {
        // The new replica would get later changes of staged keys that its snapshot lacks.
        engine.slots.jobs.fail_imports("Full synchronization of a replica");
        engine.replication.begin_stream(&engine.journal);
        engine.replication.stream.note_cut();
    }
    let wanted_slots = if purpose == Purpose::Slots { engine.snapshots.take_slots() } else { None };
    if purpose == Purpose::Slots && wanted_slots.is_none() {
        // The request was withdrawn.
        return Ok(());
    }
    let (outlet, pieces) = Outlet::new();
    let form = form(engine, purpose);
    let options = options(engine, clock, form);
    let claimed = engine.slots.jobs.claimed();
    let is_wanted = |shard| match &wanted_slots {
        None => has_shard(engine, purpose, &claimed, shard),
        Some(wanted) => Slot::new(shard as u64).is_some_and(|slot| wanted.slots().contains(slot)),
    };
    let shards = (0..engine.keyspace.shard_count()).filter(|shard| is_wanted(*shard)).count();
    let sink = |shard| {
        is_wanted(shard).then(|| match purpose {
            Purpose::Slots => Box::new(CommandSink::of_slot(outlet.clone(), piece_bytes(shards))) as Box<dyn Sink>,
            Purpose::File | Purpose::Base | Purpose::Replicas => sink(form, &outlet, options, shards),
        })
    };
    // Only a cancelled snapshot that is still in the walk prevents a new one.
    let Ok(snapshot) = locked.begin_snapshot(sink) else {
        match wanted_slots {
            None => engine.snapshots.want(purpose),
            Some(wanted) => engine.snapshots.want_slots(wanted),
        }
        return Ok(());
    };
    let sizes = sizes(engine, locked, clock);
    let begun = match wanted_slots {
        Some(wanted) => begin_slots(engine, &wanted, outlet.clone(), pieces),
        None => {
            outlet.send(match form {
                SnapshotForm::Commands => command_prologue(engine, clock),
                SnapshotForm::Rdb | SnapshotForm::ValkeyRdb => {
                    rdb_prologue(engine, clock, purpose, &sizes, options.options)
                }
            });
            engine.host.save(purpose, form, outlet.clone(), pieces)
        }
    };
    if let Err(why) = begun {
        let _ = locked.end_snapshot();
        return Err(Error::new(format!("ERR {why}")));
    }
    let dirty_at_cut = Totals::of(&engine.stats).dirty;
    let (began, outlet) = (Instant::now(), Some(outlet));
    let keys = sizes.iter().map(|size| size.keys).sum();
    let running = Running {
        purpose,
        form,
        began,
        dirty_at_cut,
        keys,
        snapshot,
        outlet,
        is_cancelled: false,
        is_awaited: false,
        is_hurried: false,
    };
    engine.snapshots.note_begun(running);
    // Wakes sleeping workers to take part at once.
    engine.inboxes.iter().for_each(Inbox::wake);
    if purpose == Purpose::Base && engine.durability.has_log() {
        engine.durability.cut_at(engine.journal.position());
    }
    Ok(())
}

/// Hands a snapshot of slots, and the later changes, to the thread that has requested them. All shards are held.
fn begin_slots(
    engine: &Engine,
    wanted: &WantedSlots,
    outlet: Arc<Outlet>,
    pieces: Receiver<Piece>,
) -> Result<(), String> {
    let changes = engine.journal.read_alone(Audience::Slots).ok_or("other slots are moving away")?;
    // The shards of a single worker have no locks.
    let walk = (engine.inboxes.len() > 1).then(|| engine.snapshots.claim_walk());
    wanted.hand_over(BegunSlots { outlet, pieces, walk, changes }).map_err(|begun| {
        engine.journal.end_alone(begun.changes);
        "the move of slots has ended".to_owned()
    })
}

/// Returns the sink of a shard, one of `shards` that the snapshot has.
fn sink(form: SnapshotForm, outlet: &Arc<Outlet>, options: SinkOptions, shards: usize) -> Box<dyn Sink> {
    match form {
        SnapshotForm::Rdb | SnapshotForm::ValkeyRdb => Box::new(ShardSink::new(outlet.clone(), options)),
        SnapshotForm::Commands => Box::new(CommandSink::new(outlet.clone(), piece_bytes(shards))),
    }
}

/// Returns true if a snapshot has the keys of a shard. Staged keys are in the base of the append-only file, because the changes behind it
/// build upon them. Other snapshots have them once this node claims their slots: nothing ends the import any more.
fn has_shard(engine: &Engine, purpose: Purpose, claimed: &SlotSet, shard: usize) -> bool {
    let is_claimed = || Slot::new(shard as u64).is_some_and(|slot| claimed.contains(slot));
    purpose == Purpose::Base || !engine.keyspace.is_staged(shard) || is_claimed()
}

fn form(engine: &Engine, purpose: Purpose) -> SnapshotForm {
    match purpose {
        Purpose::Base if !engine.settings.aof_use_rdb_preamble.get() => SnapshotForm::Commands,
        Purpose::Base | Purpose::File => SnapshotForm::Rdb,
        Purpose::Replicas => engine.replication.replicas.wanted_form(),
        Purpose::Slots => SnapshotForm::Commands,
    }
}

fn options(engine: &Engine, clock: &Clock, form: SnapshotForm) -> SinkOptions {
    let access = match engine.settings.maxmemory_policy.get() {
        MaxmemoryPolicy::AllkeysLru | MaxmemoryPolicy::VolatileLru => AccessKind::Idle(*clock),
        _ => clock.frequency.map_or(AccessKind::None, AccessKind::Frequency),
    };
    let target = match form {
        SnapshotForm::ValkeyRdb => Target::Valkey90,
        SnapshotForm::Rdb | SnapshotForm::Commands => Target::default(),
    };
    let options = Options { target, compress: engine.settings.rdbcompression.get(), ..Options::default() };
    SinkOptions { options, access }
}

/// Number of keys of a database.
struct DatabaseSize {
    database: usize,
    keys: usize,
    expiring: usize,
}

/// Returns the sizes of the databases with keys.
fn sizes(engine: &Engine, locked: &mut Locked<'_>, clock: &Clock) -> Vec<DatabaseSize> {
    let had_keys = (0..engine.keyspace.databases()).filter(|&database| engine.keyspace.had_keys(database));
    let sizes = had_keys.map(|database| {
        let (keys, expiring) = Db::new(locked, database, clock, &mut SideEffects::default()).sizes();
        DatabaseSize { database, keys, expiring }
    });
    sizes.filter(|size| size.keys > 0).collect()
}

/// Writes the part before the keys, in Redis's format.
fn rdb_prologue(engine: &Engine, clock: &Clock, purpose: Purpose, sizes: &[DatabaseSize], options: Options) -> Vec<u8> {
    let (mut out, mut writer) = (Vec::new(), Writer::new(options));
    writer.header(&mut out, engine.keyspace.had_timed_fields());
    let seconds = (clock.now_ms / 1000).to_string();
    let used = engine.host.used_memory().to_string();
    let is_base = if purpose == Purpose::Base { "1" } else { "0" };
    for (name, text) in [
        ("redis-ver", REDIS_VERSION),
        // Other servers skip this field.
        ("penstock-ver", PENSTOCK_VERSION),
        ("redis-bits", "64"),
        ("ctime", &seconds),
        ("used-mem", &used),
        ("aof-base", is_base),
    ] {
        writer.aux(&mut out, name.as_bytes(), text.as_bytes());
    }
    // A base is loaded together with the changes in the append-only file, so it has no replication offset.
    if purpose != Purpose::Base
        && let Some(point) = engine.replication.point()
    {
        // A primary's stream continues in its selected database. This server's own stream selects one first.
        writer.aux(&mut out, STREAM_DATABASE_FIELD, point.database.to_string().as_bytes());
        writer.aux(&mut out, HISTORY_FIELD, point.id.as_str().as_bytes());
        writer.aux(&mut out, OFFSET_FIELD, point.offset.to_string().as_bytes());
    }
    if purpose == Purpose::Replicas
        && let Some(states) = engine.slots.states()
    {
        writer.aux(&mut out, SLOT_STATES_FIELD, states.as_bytes());
    }
    let tokens = match purpose {
        Purpose::File => engine.pipelines.states(clock.now_ms),
        Purpose::Base | Purpose::Replicas | Purpose::Slots => engine.pipelines.states_before_units(clock.now_ms),
    };
    for state in &tokens {
        state.records().iter().for_each(|record| writer.aux(&mut out, TOKEN_FIELD, record));
    }
    for text in engine.scripts.loaded() {
        writer.aux(&mut out, SCRIPT_FIELD, &text);
    }
    for library in engine.libraries.all() {
        writer.function(&mut out, &library.text);
    }
    for size in sizes {
        writer.select(&mut out, size.database as u64);
        writer.resize(&mut out, size.keys as u64, size.expiring as u64);
    }
    out
}

/// Writes the part before the keys, as commands.
fn command_prologue(engine: &Engine, clock: &Clock) -> Vec<u8> {
    let mut record = Record::default();
    for state in engine.pipelines.states_before_units(clock.now_ms) {
        state.records().iter().for_each(|own| record.push_written(0, Kind::Own, own));
    }
    for text in engine.scripts.loaded() {
        record.push(0, Kind::Command, [&b"SCRIPT"[..], b"LOAD", &text].into_iter());
    }
    for library in engine.libraries.all() {
        record.push(0, Kind::Command, [&b"FUNCTION"[..], b"LOAD", b"REPLACE", &library.text].into_iter());
    }
    record.bytes().to_vec()
}

/// Makes a snapshot now and waits until it is on disk. All shards are held, and nothing else runs meanwhile.
///
/// # Errors
/// There is a snapshot already, or it can't be written.
pub fn save_now(engine: &'static Engine, locked: &mut Locked<'_>, clock: &Clock) -> Result<(), Error> {
    let saves = engine.snapshots.figures().saves;
    if engine.snapshots.purpose().is_none() {
        // Ends the remains of a cancelled snapshot.
        engine.snapshots.wait_for_end();
        if engine.snapshots.walk() != 0 {
            walk_all(engine, locked);
        }
    }
    begin(engine, locked, clock, Purpose::File)?;
    engine.snapshots.note_awaited();
    walk_all(engine, locked);
    engine.snapshots.wait_for_end();
    // Must precede the reply, because the client may write at once.
    engine.follow_snapshots();
    // The server's log has the reason.
    if engine.snapshots.figures().saves == saves { Err(Error::new("ERR")) } else { Ok(()) }
}

/// Walks all shards, and ends the walk.
fn walk_all(engine: &Engine, locked: &mut Locked<'_>) {
    for shard in 0..engine.keyspace.shard_count() {
        loop {
            match locked.snapshot_step(shard, STEP_BYTES) {
                Step::Done => break,
                Step::More => {}
                Step::Full => std::thread::sleep(DISK_WAIT),
            }
        }
    }
    finish(engine, locked);
}

/// Prepares the shutdown: cancels a snapshot in progress, saves one if `saves`, blocks later write commands, and ends
/// the stream for replicas at the snapshot's offset. All shards are held.
///
/// # Errors
/// The snapshot can't be saved. Then nothing is blocked, and the stream continues.
pub fn save_last(engine: &'static Engine, locked: &mut Locked<'_>, clock: &Clock, saves: bool) -> Result<(), Error> {
    engine.snapshots.forget_all_wanted();
    cancel(engine, locked);
    // A snapshot after its walk is finished.
    engine.snapshots.wait_for_end();
    // Must precede the snapshot: a replica with the whole stream then has the snapshot's data, and continues after the
    // restart.
    engine.replication.stop_stream();
    if engine.is_loading() {
        engine.host.log(LogLevel::Notice, "The data are being loaded: no snapshot is saved.");
    } else if saves {
        engine.host.log(LogLevel::Notice, "Saving the final RDB snapshot before exiting.");
        save_now(engine, locked, clock).inspect_err(|_| engine.replication.resume_stream())?;
    }
    engine.pause.begin(PausePurpose::Shutdown, false, clock.now_ms, u64::MAX);
    Ok(())
}

/// Ends the walk after all shards or a cancellation. All shards are held.
pub(crate) fn finish(engine: &Engine, locked: &mut Locked<'_>) {
    let ended = locked.end_snapshot();
    let is_whole = ended == Some(Ended::Complete);
    let outlet = engine.snapshots.end_walk(ended == Some(Ended::Sweeping), is_whole);
    let Some((outlet, form)) = outlet else { return };
    if is_whole && form != SnapshotForm::Commands {
        let (mut end, writer) = (Vec::new(), Writer::new(Options::default()));
        writer.end(&mut end);
        outlet.send(end);
    }
    outlet.end(is_whole);
}

/// Cancels the snapshot in progress. All shards are held. Returns false if its walk has ended, or there is none.
pub fn cancel(engine: &Engine, locked: &mut Locked<'_>) -> bool {
    engine.snapshots.hurry();
    if engine.snapshots.walk() == 0 {
        return false;
    }
    finish(engine, locked);
    true
}

impl Worker {
    /// Returns true if [`Worker::walk_snapshot`] has work.
    #[must_use]
    pub fn walks_snapshot(&self) -> bool {
        let snapshots = &self.engine.snapshots;
        let walk = snapshots.walk();
        walk != 0 && !self.has_walked(walk) && !snapshots.is_walk_claimed()
    }

    /// Returns true if this worker has walked its shards and none of them was reopened since.
    fn has_walked(&self, walk: u64) -> bool {
        let saving = &self.upkeep.saving;
        saving.walk == walk && saving.is_done && saving.reopened == self.engine.snapshots.reopened()
    }

    /// Spends up to `budget` on its share of the snapshot. Returns true if there is more to do at once.
    pub fn walk_snapshot(&mut self, budget: Duration) -> bool {
        let engine = self.engine;
        let walk = engine.snapshots.walk();
        if walk == 0 || engine.snapshots.is_walk_claimed() {
            return false;
        }
        if self.upkeep.saving.walk != walk || self.upkeep.saving.is_done && !self.has_walked(walk) {
            let reopened = engine.snapshots.reopened();
            self.upkeep.saving = WalkProgress { walk, next: self.id, reopened, ..WalkProgress::default() };
        }
        let began = Ticks::now();
        let budget_ticks = (budget.as_secs_f64() * 1e6 * per_microsecond()) as u64;
        let Some(inside) = self.enter_gate_to_look() else { return true };
        let is_held_up = self.walk_shards(began, budget_ticks);
        drop(inside);
        slow::note_moment(self, "snapshot-cycle", Ticks::now().since(began));
        if self.upkeep.saving.is_done && engine.snapshots.shards_left() == Some(0) {
            self.end_walk();
        }
        !self.upkeep.saving.is_done && !is_held_up
    }

    /// Walks until the budget is used up. Returns true if it must wait for the disk, a script or other threads.
    fn walk_shards(&mut self, began: Ticks, budget_ticks: u64) -> bool {
        let engine = self.engine;
        while let Some(shard) = self.next_to_walk() {
            let give_up = engine.busy.ends_waits();
            let Some(mut locked) = engine.keyspace.lock(Shards::One(shard), give_up) else { return true };
            let step = locked.snapshot_step(shard, STEP_BYTES);
            drop(locked);
            let begun = &mut self.upkeep.saving.begun;
            match step {
                Step::Done => _ = begun.pop_front(),
                Step::More if begun.len() == 1 => engine.keyspace.give_way(shard),
                Step::More => begun.rotate_left(1),
                Step::Full => return true,
            }
            if Ticks::now().since(began) > budget_ticks {
                return false;
            }
        }
        self.upkeep.saving.is_done = true;
        false
    }

    /// Returns the next shard to walk; `None` after the last one.
    fn next_to_walk(&mut self) -> Option<usize> {
        let (shards, threads) = (self.engine.keyspace.shard_count(), self.engine.inboxes.len());
        let at_once = if threads == 1 { 1 } else { BEGUN_SHARDS };
        let WalkProgress { next, begun, .. } = &mut self.upkeep.saving;
        while begun.len() < at_once && *next < shards {
            begun.push_back(*next);
            *next += threads;
        }
        begun.front().copied()
    }

    /// Ends the walk, once all threads have walked their shards.
    fn end_walk(&mut self) {
        let engine = self.engine;
        let Some(alone) = engine.keyspace.gate().close_unless(engine.busy.ends_waits()) else {
            // A busy script prevents it; the next tick tries again.
            self.upkeep.saving.is_done = false;
            return;
        };
        // Another thread may have ended it already.
        if engine.snapshots.walk() == self.upkeep.saving.walk {
            finish(engine, &mut engine.keyspace.all(&alone));
        }
    }

    /// Begins the requested snapshot, if possible now. A snapshot of data that are being loaded would lack the rest of them, so the request
    /// waits for the end of the load. The thread is outside of the gate.
    pub fn begin_wanted_snapshot(&mut self) {
        let engine = self.engine;
        if engine.snapshots.wanted().is_none() || !engine.snapshots.are_idle() || engine.is_loading() {
            return;
        }
        let Some(alone) = engine.keyspace.gate().close_unless(engine.busy.ends_waits()) else { return };
        // A load may have begun before the gate was closed.
        if engine.is_loading() {
            return;
        }
        // Taken behind the gate, so that other threads see the request until the snapshot runs.
        let Some(purpose) = engine.snapshots.take_wanted() else { return };
        if let Err(why) = begin(engine, &mut engine.keyspace.all(&alone), &self.clock, purpose) {
            let why = String::from_utf8_lossy(why.text()).into_owned();
            engine.host.log(LogLevel::Warning, &format!("Can't begin to save: {why}"));
            engine.snapshots.change_figures(|figures| figures.note_not_begun(purpose, self.clock.now_ms / 1000));
            engine.follow_snapshots();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::Receiver;

    use store::keyspace::Key;

    use super::*;
    use crate::host::{Host, Shutdown};
    use crate::memory::compaction::LOOK_MS;
    use crate::memory::compaction::tests::look;
    use crate::snapshots::Piece;
    use crate::testing::{Bench, request};
    use config::{Apply, ConfigHost, Settings};

    /// A server that takes a snapshot's bytes and writes them nowhere.
    #[derive(Default)]
    struct Taker(Mutex<Vec<Receiver<Piece>>>);

    impl Host for Taker {
        fn save(&self, _: Purpose, _: SnapshotForm, _: Arc<Outlet>, pieces: Receiver<Piece>) -> Result<(), String> {
            self.0.lock().unwrap().push(pieces);
            Ok(())
        }

        fn shut_down(&self, _: Shutdown) {}
    }

    impl ConfigHost for Taker {
        fn apply(&self, _: Apply, _: &Settings) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn a_requested_snapshot_waits_for_the_end_of_a_load() {
        let mut bench = Bench::with_host(Settings::new(), 1, Box::<Taker>::default(), 1_700_000_000_000_000, 1);
        let snapshots = &bench.worker.engine.snapshots;
        snapshots.want(Purpose::File);
        bench.worker.engine.begin_reloading(1_700_000_000_000);
        bench.worker.begin_wanted_snapshot();
        assert_eq!((snapshots.purpose(), snapshots.wanted()), (None, Some(Purpose::File)));
        bench.worker.engine.end_reloading();
        bench.worker.begin_wanted_snapshot();
        assert_eq!((snapshots.purpose(), snapshots.wanted()), (Some(Purpose::File), None));
    }

    #[test]
    fn compaction_waits_for_the_end_of_a_walk() {
        let mut bench = Bench::with_host(Settings::new(), 1, Box::<Taker>::default(), 1_700_000_000_000_000, 1);
        let mut session = bench.open();
        look(&bench.worker.engine.compaction, LOOK_MS, 100);
        bench.check(&mut session, &[("set key value", "+OK"), ("bgsave", "+Background saving started")]);
        let tick = Duration::from_millis(1);
        assert!(!bench.worker.compact_memory(tick, Duration::ZERO, 1.0) && bench.worker.may_compact());
        while bench.worker.walk_snapshot(tick) {}
        while bench.worker.compact_memory(tick, Duration::ZERO, 1.0) {}
        assert!(!bench.worker.may_compact());
    }

    #[test]
    fn a_collection_that_comes_to_a_shard_after_its_walk_is_saved_there() {
        let mut bench = Bench::with_host(Settings::new(), 1, Box::<Taker>::default(), 1_700_000_000_000_000, 1);
        let mut session = bench.open();
        let engine = bench.worker.engine;
        let shard_of = |name: &String| engine.keyspace.shard_of(Key::new(name.as_bytes()).hash);
        let named = |shard: usize| (0..).map(|i| format!("key{i}")).find(|name| shard_of(name) == shard).unwrap();
        let (early, late) = (named(0), named(engine.keyspace.shard_count() - 1));
        let members: Vec<_> = (0..5000).map(|i| format!("member{i}")).collect();
        let words: Vec<_> = ["SADD", &late].into_iter().chain(members.iter().map(String::as_str)).collect();
        assert_eq!(bench.run(&mut session, &request(&words)).0, b":5000\r\n");
        bench.check(&mut session, &[("bgsave", "+Background saving started"), (&format!("srem {late} member7"), ":1")]);
        bench.worker.walk_snapshot(Duration::ZERO);
        bench.check(&mut session, &[(&format!("rename {late} {early}"), "+OK")]);
        for _ in 0..1000 {
            bench.worker.walk_snapshot(Duration::ZERO);
        }
        assert_eq!(engine.snapshots.shards_left(), None, "the walk has no end");
    }
}
