//! The beginning and the end of snapshots, and the workers' part in between.
//!
//! A snapshot begins where all shards are held, by a command or behind the closed gate. Then each worker walks through its share of
//! the shards in steps, and the one that finds that all have been walked ends the snapshot behind the gate. SAVE and the end of
//! the server do all of it at once.

use std::time::{Duration, Instant};

use commands::error::Error;
use format::rdb::{Options, Writer};
use journal::lane::Audience;
use journal::record::{Kind, Record};
use store::db::{Clock, Db, Observed};
use store::keyspace::Locked;
use store::snapshot::{Ended, Step};

use crate::config::{LogLevel, MaxmemoryPolicy};
use crate::engine::Engine;
use crate::inbox::Inbox;
use crate::machine::ticks::{Ticks, per_microsecond};
use crate::machine::version::{PENSTOCK_VERSION, REDIS_VERSION};
use crate::pause::PausePurpose;
use crate::services::slow;
use crate::snapshots::{
    AccessKind, CommandSink, HISTORY_FIELD, OFFSET_FIELD, Outlet, Purpose, Running, SCRIPT_FIELD,
    STREAM_DATABASE_FIELD, ShardSink, SinkOptions, SnapshotForm, TOKEN_FIELD, WalkProgress,
};
use crate::statistics::stats::Totals;
use crate::worker::Worker;

/// Bytes of keys and values that a step looks at: a tenth of a millisecond of writing, for which a client may have to wait.
const STEP_BYTES: usize = 64 << 10;
/// Shards that a worker walks in turn where there are other threads: the locks of shards are unfair, and a thread that takes one again
/// at once may keep others from it for dozens of steps. Few, for each has bytes that wait for more.
const BEGUN_SHARDS: usize = 4;
/// How long SAVE waits before it looks again whether the disk has taken what it has been given.
const DISK_WAIT: Duration = Duration::from_millis(1);

/// What a command is told that would save, while another snapshot is being made.
pub(crate) const ANOTHER_RUNS: &str = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in \
                                       order to schedule a BGSAVE whenever possible.";

/// Begins a snapshot of this moment, or of the moment when a cancelled one has ended and its marks are cleared away. All shards are
/// held.
///
/// # Errors
/// If there is one already, or the server can't begin to write it.
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
        Some(Purpose::Replicas) => return Err(Error::new(ANOTHER_RUNS)),
        None => {}
    }
    // It has to end before, for its file has the name of the next one's.
    if !engine.snapshots.are_idle() {
        engine.snapshots.want(purpose);
        return Ok(());
    }
    if purpose == Purpose::Base {
        let begun = engine.host.begin_append_only_file(&mut || engine.journal.read_alone(Audience::File));
        begun.map_err(|why| Error::new(format!("ERR {why}")))?;
    }
    if purpose == Purpose::Replicas {
        engine.replication.begin_stream(&engine.journal);
        engine.replication.stream.note_cut();
    }
    let (outlet, pieces) = Outlet::new();
    let (form, options) = (form(engine, purpose), options(engine, clock));
    let sink = |_| match form {
        SnapshotForm::Rdb => Box::new(ShardSink::new(outlet.clone(), options)) as Box<_>,
        SnapshotForm::Commands => Box::new(CommandSink::new(outlet.clone())) as Box<_>,
    };
    // Only a cancelled one that is still being walked stands against it.
    let Ok(snapshot) = locked.begin_snapshot(sink) else {
        engine.snapshots.want(purpose);
        return Ok(());
    };
    let sizes = sizes(engine, locked, clock);
    outlet.send(match form {
        SnapshotForm::Rdb => rdb_prologue(engine, clock, purpose, &sizes, options.options),
        SnapshotForm::Commands => command_prologue(engine, clock),
    });
    if let Err(why) = engine.host.save(purpose, form, outlet.clone(), pieces) {
        let _ = locked.end_snapshot();
        return Err(Error::new(format!("ERR {why}")));
    }
    let dirty_at_cut = Totals::of(&engine.stats).dirty;
    let (began, outlet) = (Instant::now(), Some(outlet));
    let keys = sizes.iter().map(|size| size.keys).sum();
    let running = Running { purpose, form, began, dirty_at_cut, keys, snapshot, outlet, is_cancelled: false };
    engine.snapshots.note_begun(running);
    // Those that sleep are to take part at once.
    engine.inboxes.iter().for_each(Inbox::wake);
    if purpose == Purpose::Base {
        engine.durability.cut_at(engine.journal.position());
    }
    Ok(())
}

fn form(engine: &Engine, purpose: Purpose) -> SnapshotForm {
    match purpose {
        Purpose::Base if !engine.settings.aof_use_rdb_preamble.get() => SnapshotForm::Commands,
        Purpose::Base | Purpose::File | Purpose::Replicas => SnapshotForm::Rdb,
    }
}

fn options(engine: &Engine, clock: &Clock) -> SinkOptions {
    let access = match engine.settings.maxmemory_policy.get() {
        MaxmemoryPolicy::AllkeysLru | MaxmemoryPolicy::VolatileLru => AccessKind::Idle(*clock),
        _ => clock.frequency.map_or(AccessKind::None, AccessKind::Frequency),
    };
    let options = Options { compress: engine.settings.rdbcompression.get(), ..Options::default() };
    SinkOptions { options, access }
}

/// How many keys a database has.
struct DatabaseSize {
    database: usize,
    keys: usize,
    expiring: usize,
}

/// The sizes of the databases that have keys.
fn sizes(engine: &Engine, locked: &mut Locked<'_>, clock: &Clock) -> Vec<DatabaseSize> {
    let had_keys = (0..engine.keyspace.databases()).filter(|&database| engine.keyspace.had_keys(database));
    let sizes = had_keys.map(|database| {
        let (keys, expiring) = Db::new(locked, database, clock, &mut Observed::default()).sizes();
        DatabaseSize { database, keys, expiring }
    });
    sizes.filter(|size| size.keys > 0).collect()
}

/// What comes before the keys in Redis's format.
fn rdb_prologue(engine: &Engine, clock: &Clock, purpose: Purpose, sizes: &[DatabaseSize], options: Options) -> Vec<u8> {
    let (mut out, mut writer) = (Vec::new(), Writer::new(options));
    writer.header(&mut out, engine.keyspace.had_timed_fields());
    let seconds = (clock.now_ms / 1000).to_string();
    let used = engine.host.used_memory().to_string();
    let is_base = if purpose == Purpose::Base { "1" } else { "0" };
    for (name, text) in [
        ("redis-ver", REDIS_VERSION),
        // Others pass over it.
        ("penstock-ver", PENSTOCK_VERSION),
        ("redis-bits", "64"),
        ("ctime", &seconds),
        ("used-mem", &used),
        ("aof-base", is_base),
    ] {
        writer.aux(&mut out, name.as_bytes(), text.as_bytes());
    }
    // The changes behind a base are in the append-only file: what is loaded with them is of no offset.
    if purpose != Purpose::Base
        && let Some(point) = engine.replication.point()
    {
        // A primary's stream goes on in the midst. This server's own selects a database first.
        writer.aux(&mut out, STREAM_DATABASE_FIELD, point.database.to_string().as_bytes());
        writer.aux(&mut out, HISTORY_FIELD, point.id.as_str().as_bytes());
        writer.aux(&mut out, OFFSET_FIELD, point.offset.to_string().as_bytes());
    }
    let tokens = match purpose {
        Purpose::File => engine.pipelines.states(clock.now_ms),
        Purpose::Base | Purpose::Replicas => engine.pipelines.states_before_units(clock.now_ms),
    };
    tokens.iter().for_each(|state| writer.aux(&mut out, TOKEN_FIELD, &state.record()));
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

/// What comes before the keys where they are commands.
fn command_prologue(engine: &Engine, clock: &Clock) -> Vec<u8> {
    let mut record = Record::default();
    for state in engine.pipelines.states_before_units(clock.now_ms) {
        record.push_written(0, Kind::Own, &state.record());
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
/// If there is one already, or it can't be written.
pub fn save_now(engine: &'static Engine, locked: &mut Locked<'_>, clock: &Clock) -> Result<(), Error> {
    let saves = engine.snapshots.figures().saves;
    if engine.snapshots.purpose().is_none() {
        // What is left of a cancelled one.
        engine.snapshots.wait_for_end();
        if engine.snapshots.walk() != 0 {
            walk_all(engine, locked);
        }
    }
    begin(engine, locked, clock, Purpose::File)?;
    walk_all(engine, locked);
    engine.snapshots.wait_for_end();
    // Before the client is answered, which may write at once.
    engine.follow_snapshots();
    // The reason stands in the server's log.
    if engine.snapshots.figures().saves == saves { Err(Error::new("ERR")) } else { Ok(()) }
}

/// Walks to the end, and ends the walk.
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

/// What is to be done before the server ends: a snapshot that is being made is given up, one is saved if `saves`, commands that write wait
/// from then on, and the stream for replicas ends where the snapshot does. All shards are held.
///
/// # Errors
/// If it can't be saved. Then nothing waits, and the stream goes on.
pub fn save_last(engine: &'static Engine, locked: &mut Locked<'_>, clock: &Clock, saves: bool) -> Result<(), Error> {
    engine.snapshots.forget_all_wanted();
    cancel(engine, locked);
    // One that has been walked is finished.
    engine.snapshots.wait_for_end();
    // Before the snapshot: a replica that has all of the stream has what the snapshot has, and goes on when the server is back.
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

/// Ends the walk: all shards have been walked, or the snapshot is cancelled. All shards are held.
pub(crate) fn finish(engine: &Engine, locked: &mut Locked<'_>) {
    let ended = locked.end_snapshot();
    let is_whole = ended == Some(Ended::Complete);
    let outlet = engine.snapshots.end_walk(ended == Some(Ended::Sweeping), is_whole);
    let Some((outlet, form)) = outlet else { return };
    if is_whole && form == SnapshotForm::Rdb {
        let (mut end, writer) = (Vec::new(), Writer::new(Options::default()));
        writer.end(&mut end);
        outlet.send(end);
    }
    outlet.end(is_whole);
}

/// Cancels the snapshot that is being made. All shards are held. False, if it has been walked already, or there is none.
pub fn cancel(engine: &Engine, locked: &mut Locked<'_>) -> bool {
    if engine.snapshots.walk() == 0 {
        return false;
    }
    finish(engine, locked);
    true
}

impl Worker {
    /// Whether [`Worker::walk_snapshot`] has something to do.
    #[must_use]
    pub fn walks_snapshot(&self) -> bool {
        let walk = self.engine.snapshots.walk();
        walk != 0 && !(self.upkeep.saving.walk == walk && self.upkeep.saving.is_done)
    }

    /// Spends up to `budget` on its share of the snapshot that is being made. Says whether there is more to do at once.
    pub fn walk_snapshot(&mut self, budget: Duration) -> bool {
        let engine = self.engine;
        let walk = engine.snapshots.walk();
        if walk == 0 {
            return false;
        }
        if self.upkeep.saving.walk != walk {
            self.upkeep.saving = WalkProgress { walk, next: self.id, ..WalkProgress::default() };
        }
        let began = Ticks::now();
        let budget_ticks = (budget.as_secs_f64() * 1e6 * per_microsecond()) as u64;
        let Some(inside) = self.look_inside() else { return true };
        let is_held_up = self.walk_shards(began, budget_ticks);
        drop(inside);
        slow::note_moment(self, "snapshot-cycle", Ticks::now().since(began));
        if self.upkeep.saving.is_done && engine.snapshots.shards_left() == Some(0) {
            self.end_walk();
        }
        !self.upkeep.saving.is_done && !is_held_up
    }

    /// Walks until the time is up. Says whether it has to wait: for the disk, a script, or other threads.
    fn walk_shards(&mut self, began: Ticks, budget_ticks: u64) -> bool {
        let engine = self.engine;
        while let Some(shard) = self.next_to_walk() {
            let give_up = engine.busy.ends_waits();
            let Some(mut locked) = engine.keyspace.lock_one_unless(shard, give_up) else { return true };
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

    /// The shard that is walked next. None, if all have been.
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
            // A script takes too long: tried again at the next tick.
            self.upkeep.saving.is_done = false;
            return;
        };
        // Another thread may have been first.
        if engine.snapshots.walk() == self.upkeep.saving.walk {
            finish(engine, &mut engine.keyspace.all(&alone));
        }
    }

    /// Begins the snapshot that is wanted, if there can be one now. The thread is outside of the gate.
    pub fn begin_wanted_snapshot(&mut self) {
        let engine = self.engine;
        if engine.snapshots.wanted().is_none() || !engine.snapshots.are_idle() {
            return;
        }
        let Some(alone) = engine.keyspace.gate().close_unless(engine.busy.ends_waits()) else { return };
        // Taken when no thread can look: it is wanted until it runs.
        let Some(purpose) = engine.snapshots.take_wanted() else { return };
        if let Err(why) = begin(engine, &mut engine.keyspace.all(&alone), &self.clock, purpose) {
            let why = String::from_utf8_lossy(why.text()).into_owned();
            engine.host.log(LogLevel::Warning, &format!("Can't begin to save: {why}"));
            engine.snapshots.change_figures(|figures| figures.note_not_begun(purpose, self.clock.now_ms / 1000));
            engine.follow_snapshots();
        }
    }
}
