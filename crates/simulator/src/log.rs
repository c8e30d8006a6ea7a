//! The append-only file of a process: the steps of the server's log thread and of its start, on a disk that may lose
//! unsynced data.

use std::io;
use std::time::Duration;

use config::AppendFsync;
use engine::durability::DurabilityTarget;
use engine::inbox::Message;
use engine::replay::Replay;
use engine::snapshots::reading::{ExpiredKeys, LoadOptions};
use engine::state::Engine;
use engine::worker::Worker;
use journal::lane::Audience;
use journal::merge::Merge;
use persistence::appender::Appender;
use persistence::disk::Disk;
use persistence::fake::{FakeDisk, FakeFile, FakeSync};
use persistence::files::Files;
use persistence::manifest::Role;
use persistence::recovery::{Apply, Extent, Place, read_file};
use persistence::writer::{Policy, Writer};

use crate::Wrong;

const NAME: &str = "appendonly.aof";
/// Speed of the file's clock relative to simulated time. Histories are short, so the second of `everysec` is a tenth of
/// a simulated second.
const TIMES_FASTER: u64 = 10;
/// The second of `everysec`, in microseconds of simulated time.
const SECOND_US: u64 = 1_000_000 / TIMES_FASTER;

/// Files that are open for writing.
pub struct OpenedFiles {
    files: Files<FakeDisk>,
    appender: Appender<FakeFile>,
}

/// See the module's documentation.
pub struct SimLog {
    writer: Writer<FakeDisk>,
    /// The append-only files and their manifest.
    pub files: Files<FakeDisk>,
    /// The sync that runs in the background.
    syncing: Option<FakeSync>,
    is_in_trouble: bool,
    times: SyncTimes,
}

/// Times of writes and syncs, for the promise of `everysec`, in microseconds of simulated time.
#[derive(Clone, Copy, Default)]
struct SyncTimes {
    /// The last time when all data was written.
    written_us: u64,
    /// The end of the last step that could begin a sync, and the longest time between two of these steps: since the
    /// last sync ended, and before.
    stepped_us: u64,
    gap_us: u64,
    gap_before_us: u64,
    /// The start of the running sync, and the duration of the last one.
    began_us: u64,
    took_us: u64,
    /// True if another increment was begun since the last sync ended.
    was_cut: bool,
    /// True if the disk has failed since the last sync ended.
    has_failed: bool,
}

fn policy(engine: &Engine) -> Policy {
    match engine.settings.appendfsync.get() {
        AppendFsync::Always => Policy::Always,
        AppendFsync::EverySecond => Policy::EverySecond,
        AppendFsync::No => Policy::Never,
    }
}

/// Opens files that begin with a new base.
///
/// # Errors
/// The disk's error.
pub fn open_anew(engine: &Engine, disk: &FakeDisk) -> Result<OpenedFiles, Wrong> {
    engine.durability.note_whole(false);
    let mut files = Files::open(disk.clone(), NAME).map_err(|why| format!("no files: {why:?}"))?;
    files.begin_anew();
    let appender = files.begin_increment().map_err(|error| error.to_string())?;
    engine.snapshots.change_figures(|figures| figures.base_bytes = 0);
    Ok(OpenedFiles { files, appender })
}

/// Applies the contents of files to a worker.
struct Reading<'w>(Replay<'w>);

impl Apply for Reading<'_> {
    fn commands(&mut self, commands: &[u8], _place: &Place) -> Result<(), (usize, String)> {
        self.0.commands(commands)
    }

    fn own(&mut self, record: &[u8]) -> Result<(), String> {
        self.0.own(record)
    }
}

/// Applies all files to a worker, and opens them for appending.
///
/// # Errors
/// A fault of the files: a crash must not leave one.
pub fn recover(engine: &Engine, worker: &mut Worker, disk: &FakeDisk, now_us: u64) -> Result<OpenedFiles, Wrong> {
    let mut files = Files::open(disk.clone(), NAME).map_err(|why| format!("no files after a crash: {why:?}"))?;
    let parts: Vec<_> = files.manifest().base().into_iter().chain(files.manifest().increments()).cloned().collect();
    let mut reading = Reading(Replay::begin(worker, now_us));
    let mut last = Extent::default();
    for (index, part) in parts.iter().enumerate() {
        let (mut reader, _) = disk.read(&part.name).map_err(|error| format!("{}: {error}", part.name))?;
        if part.role == Role::Base {
            let options = LoadOptions { expired: ExpiredKeys::Kept, checks: false, replaces: false, bytes: None };
            reading.0.snapshot(reader, options, |_| {}).map_err(|why| format!("{}: {why}", part.name))?;
            continue;
        }
        let extent = read_file(&mut reader, &mut reading).map_err(|damage| format!("{}: {damage}", part.name))?;
        if !extent.is_whole() && index + 1 < parts.len() {
            return Err(format!("{} is torn, and another file follows", part.name));
        }
        last = extent;
    }
    drop(reading);
    let appender = files.last_increment(last).map_err(|error| error.to_string())?;
    let _ = engine;
    Ok(OpenedFiles { files, appender })
}

/// Begins to read the journal for opened files. No command runs meanwhile.
#[must_use]
pub fn read_journal(engine: &Engine) -> Option<Merge> {
    engine.journal.read(&engine.keyspace, Audience::File)
}

impl SimLog {
    /// Begins to write the journal from now on. No unit is committed meanwhile.
    #[must_use]
    pub fn begin(engine: &Engine, opened: OpenedFiles, merge: Merge) -> SimLog {
        let last = engine.journal.position();
        let writer = Writer::new(merge, last, opened.appender, policy(engine), Duration::ZERO);
        engine.durability.note_safe(DurabilityTarget::Log, last, |_| {});
        let awaited = || policy(engine) == Policy::Always;
        engine.durability.begin_log(std::thread::current(), awaited, last);
        let times = SyncTimes::default();
        SimLog { writer, files: opened.files, syncing: None, is_in_trouble: false, times }
    }

    /// Returns the time before which all answered writes survive a kill or a loss of power at this moment: the promise
    /// of `everysec`. None while the disk fails.
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
        // A sync that takes longer than a second delays the next one, and data behind a cut is written after the
        // running sync.
        let wait_us = if times.was_cut { SECOND_US + times.took_us } else { SECOND_US.max(times.took_us) };
        let gap_us = times.gap_us.max(times.gap_before_us).max(now_us - times.stepped_us);
        now_us.checked_sub(wait_us + running_us + 3 * gap_us)
    }

    /// Runs a step of the log's thread. The step ends after the write if `stops_early`; the background sync ends if
    /// `ends_sync`. While the disk fails, commands that write are refused.
    pub fn step(&mut self, engine: &Engine, now_us: u64, stops_early: bool, ends_sync: bool) {
        match self.write_and_sync(engine, now_us, stops_early, ends_sync) {
            Ok(()) => {
                if std::mem::take(&mut self.is_in_trouble) {
                    engine.durability.set_disk_error(None);
                }
            }
            Err(error) => {
                self.is_in_trouble = true;
                self.times.has_failed = true;
                engine.durability.set_disk_error(Some(error.to_string()));
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
        self.writer.write(durability.cut(), |memory| durability.note_file_memory(memory))?;
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
            // Otherwise the log continues in the current increment.
            if let Ok(appender) = self.files.begin_increment() {
                self.writer.go_on_in(appender);
            }
            durability.end_cut();
        }
        durability.note_file(self.writer.len(), self.writer.unsettled() as u64, self.syncing.is_some());
        durability.note_safe(DurabilityTarget::Log, stepped.safe, |_| {});
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

    /// Handles a kill of the process: the system completes the running sync, unless the power is lost first.
    pub fn be_killed(&mut self) {
        if let Some(sync) = self.syncing.take() {
            // The process does not learn the result.
            let _ = sync.end();
        }
    }

    /// Ends the file: writes and syncs all data, if the disk works.
    pub fn end(mut self, engine: &Engine) {
        self.files.end();
        if let Some(sync) = self.syncing.take() {
            // Data that could not be synced is written and synced again.
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
