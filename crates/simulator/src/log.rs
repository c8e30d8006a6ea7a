//! The append-only file of a process: what the server's log thread and its start do, step by step, on a disk that may lose what was not
//! synced.

use std::io;
use std::time::Duration;

use engine::config::AppendFsync;
use engine::durability::Safety;
use engine::engine::Engine;
use engine::inbox::Message;
use engine::replay::Replay;
use engine::snapshots::reading::{ExpiredKeys, LoadOptions};
use engine::worker::Worker;
use journal::lane::Audience;
use journal::merge::Merge;
use persistence::appender::Appender;
use persistence::disk::Disk;
use persistence::fake::{FakeDisk, FakeFile, FakeSync};
use persistence::files::Files;
use persistence::manifest::Role;
use persistence::recovery::{Apply, read_file};
use persistence::writer::{Policy, Writer};

use crate::Wrong;

const NAME: &str = "appendonly.aof";
/// How much faster than the simulation's time the time of the file passes, since a history is short: a second of `everysec` is a tenth of one.
const TIMES_FASTER: u64 = 10;
/// What `everysec` calls a second, in microseconds of the simulation.
const SECOND_US: u64 = 1_000_000 / TIMES_FASTER;

/// Files that are open to be written.
pub struct OpenedFiles {
    files: Files<FakeDisk>,
    appender: Appender<FakeFile>,
}

/// See the module's documentation.
pub struct SimLog {
    writer: Writer<FakeDisk>,
    /// The files and their manifest.
    pub files: Files<FakeDisk>,
    /// The sync that runs beside.
    syncing: Option<FakeSync>,
    is_in_trouble: bool,
    times: SyncTimes,
}

/// When the file was written and synced, for what `everysec` promises. Times are the simulation's, in microseconds.
#[derive(Clone, Copy, Default)]
struct SyncTimes {
    /// When all there was had been written last.
    written_us: u64,
    /// When the last step came to its end that could begin a sync, and the longest time between two such steps, since the last sync ended and
    /// before that.
    stepped_us: u64,
    gap_us: u64,
    gap_before_us: u64,
    /// When the sync began that runs, and how long the last one took.
    began_us: u64,
    took_us: u64,
    /// Whether another increment has begun since the last sync ended.
    was_cut: bool,
    /// Whether the disk has failed since then.
    has_failed: bool,
}

fn policy(engine: &Engine) -> Policy {
    match engine.settings.appendfsync.get() {
        AppendFsync::Always => Policy::Always,
        AppendFsync::EverySecond => Policy::EverySecond,
        AppendFsync::No => Policy::Never,
    }
}

/// Opens files that begin anew with the next base.
///
/// # Errors
/// The disk's.
pub fn open_anew(engine: &Engine, disk: &FakeDisk) -> Result<OpenedFiles, Wrong> {
    engine.durability.note_whole(false);
    let mut files = Files::open(disk.clone(), NAME).map_err(|why| format!("no files: {why:?}"))?;
    files.begin_anew();
    let appender = files.begin_increment().map_err(|error| error.to_string())?;
    engine.snapshots.change_figures(|figures| figures.base_bytes = 0);
    Ok(OpenedFiles { files, appender })
}

/// What files have is given to a worker.
struct Reading<'w>(Replay<'w>);

impl Apply for Reading<'_> {
    fn commands(&mut self, commands: &[u8]) -> Result<(), (usize, String)> {
        self.0.commands(commands)
    }

    fn own(&mut self, record: &[u8]) -> Result<(), String> {
        self.0.own(record)
    }
}

/// Has a worker apply all files, and opens them to be written on.
///
/// # Errors
/// What is wrong with the files: a crash must not leave anything that is.
pub fn recover(engine: &Engine, worker: &mut Worker, disk: &FakeDisk, now_us: u64) -> Result<OpenedFiles, Wrong> {
    let mut files = Files::open(disk.clone(), NAME).map_err(|why| format!("no files after a crash: {why:?}"))?;
    let parts: Vec<_> = files.manifest().base().into_iter().chain(files.manifest().increments()).cloned().collect();
    let mut reading = Reading(Replay::begin(worker, now_us));
    let mut whole = 0;
    for (index, part) in parts.iter().enumerate() {
        let (mut reader, _) = disk.read(&part.name).map_err(|error| format!("{}: {error}", part.name))?;
        if part.role == Role::Base {
            let options = LoadOptions { expired: ExpiredKeys::Kept, checks: false, replaces: false, bytes: None };
            reading.0.snapshot(reader, options, |_| {}).map_err(|why| format!("{}: {why}", part.name))?;
            continue;
        }
        let extent = read_file(&mut reader, &mut reading).map_err(|damage| format!("{}: {damage}", part.name))?;
        if extent.torn > 0 && index + 1 < parts.len() {
            return Err(format!("{} is torn, and another file follows", part.name));
        }
        whole = extent.whole;
    }
    drop(reading);
    let appender = files.last_increment(whole).map_err(|error| error.to_string())?;
    let _ = engine;
    Ok(OpenedFiles { files, appender })
}

/// Begins to read the journal for files that were opened. No command runs meanwhile.
#[must_use]
pub fn read_journal(engine: &Engine) -> Option<Merge> {
    engine.journal.read(&engine.keyspace, Audience::File)
}

impl SimLog {
    /// Begins to write what `merge` has from now on. No unit is committed meanwhile.
    #[must_use]
    pub fn begin(engine: &Engine, opened: OpenedFiles, merge: Merge) -> SimLog {
        let last = engine.journal.position();
        let writer = Writer::new(merge, last, opened.appender, policy(engine), Duration::ZERO);
        engine.durability.note_safe(Safety::Log, last, |_| {});
        let awaited = || policy(engine) == Policy::Always;
        engine.durability.begin_log(std::thread::current(), awaited, last);
        let times = SyncTimes::default();
        SimLog { writer, files: opened.files, syncing: None, is_in_trouble: false, times }
    }

    /// What was answered before this moment is there after the process is killed now, or after the power is lost: what `everysec` promises. None
    /// while the disk fails.
    #[must_use]
    pub fn kept_until_us(&self, engine: &Engine, now_us: u64, with_power: bool) -> Option<u64> {
        let times = &self.times;
        if times.has_failed || times.stepped_us == 0 {
            return None;
        }
        if !with_power {
            return (!engine.durability.is_cut()).then_some(times.written_us);
        }
        let running_us = self.syncing.as_ref().map_or(0, |_| now_us - times.began_us);
        // A sync that takes longer than a second has the next one wait, and what follows a cut is written when the sync of then has ended.
        let wait_us = if times.was_cut { SECOND_US + times.took_us } else { SECOND_US.max(times.took_us) };
        let gap_us = times.gap_us.max(times.gap_before_us).max(now_us - times.stepped_us);
        now_us.checked_sub(wait_us + running_us + 3 * gap_us)
    }

    /// A step of the log's thread. It stops behind the write if `stops_early`, and the sync beside ends if `ends_sync`. While the disk fails,
    /// commands that write are refused.
    pub fn step(&mut self, engine: &Engine, now_us: u64, stops_early: bool, ends_sync: bool) {
        match self.write_and_sync(engine, now_us, stops_early, ends_sync) {
            Ok(()) => {
                if std::mem::take(&mut self.is_in_trouble) {
                    engine.durability.set_trouble(None);
                }
            }
            Err(error) => {
                self.is_in_trouble = true;
                self.times.has_failed = true;
                engine.durability.set_trouble(Some(error.to_string()));
            }
        }
    }

    fn write_and_sync(&mut self, engine: &Engine, now_us: u64, stops_early: bool, ends_sync: bool) -> io::Result<()> {
        let (durability, now) = (&engine.durability, Duration::from_micros(now_us * TIMES_FASTER));
        let policy = policy(engine);
        self.writer.set_policy(policy);
        if ends_sync && let Some(sync) = self.syncing.take() {
            self.writer.end_sync(sync.end())?;
            self.note_sync(now_us - self.times.began_us);
        }
        let is_cut = durability.is_cut();
        self.writer.write(durability.cut())?;
        if !is_cut {
            self.times.written_us = now_us;
        }
        if stops_early {
            return Ok(());
        }
        if self.times.stepped_us > 0 {
            self.times.gap_us = self.times.gap_us.max(now_us - self.times.stepped_us);
        }
        self.times.stepped_us = now_us;
        let stepped = self.writer.sync_if_due(now, durability.cut())?;
        if stepped.has_synced {
            self.note_sync(0);
        }
        if let Some(file) = stepped.sync {
            self.syncing = Some(file.begin_sync());
            self.times.began_us = now_us;
        }
        if stepped.reached_cut {
            self.writer.finish_increment(now)?;
            self.times.was_cut = true;
            // Else the log goes on in the present one.
            if let Ok(appender) = self.files.begin_increment() {
                self.writer.go_on_in(appender);
            }
            durability.end_cut();
        }
        durability.note_file(self.writer.len(), self.writer.unsettled() as u64, self.syncing.is_some());
        durability.note_safe(Safety::Log, stepped.safe, |_| {});
        if durability.note_synced(stepped.synced) && engine.replication.replicas.are_awaited() {
            engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Acknowledged));
        }
        Ok(())
    }

    fn note_sync(&mut self, took_us: u64) {
        let times = &mut self.times;
        (times.took_us, times.was_cut, times.has_failed) = (took_us, false, false);
        (times.gap_before_us, times.gap_us) = (times.gap_us, 0);
    }

    /// The process is killed: the system ends the sync that runs, or the power is gone before.
    pub fn be_killed(&mut self) {
        if let Some(sync) = self.syncing.take() {
            // The process doesn't learn of it.
            let _ = sync.end();
        }
    }

    /// Ends the file: what there is is written and synced, if the disk takes it.
    pub fn end(mut self, engine: &Engine) {
        self.files.end();
        if let Some(sync) = self.syncing.take() {
            // What could not be synced is written and synced again.
            let _ = self.writer.end_sync(sync.end());
        }
        let alone = engine.keyspace.gate().close();
        let (merge, mut appender) = self.writer.end();
        let last = engine.journal.position();
        engine.journal.end_alone(merge);
        drop(alone);
        let _ = appender.write().and_then(|()| appender.sync()).and_then(|()| appender.trim());
        engine.durability.end_log(last, |_| {});
    }
}
