//! The append-only file of a running server: reading it at the start, and the threads that write and sync it.

mod syncer;

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::config::{AppendFsync, Settings};
use engine::durability::{HANG_MAX, LogThread};
use engine::engine::Engine;
use engine::replay::{LoadOptions, Replay};
use engine::worker::Worker;
use persistence::block::FILE_START;
use persistence::disk::{Directory, Disk};
use persistence::files::{Files, NoFiles};
use persistence::manifest::{Part, Role};
use persistence::recovery::{Apply, Damage, Extent, read_file};
use persistence::writer::{Policy, Writer};

use self::syncer::Syncer;
use crate::conf_file::system_text;
use crate::event_loop::now_us;
use crate::loading::{bad_snapshot, say_progress};
use crate::log;

/// How long the thread waits before it looks for units again, where no reply waits for it.
const DOZE: Duration = Duration::from_millis(10);
/// How many times in a row it looks in vain before it sleeps until it is woken.
const DOZES_MAX: u32 = 100;
/// How long it waits before a disk that failed is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// How long it sleeps at most: it looks whether the server ends, and whether the policy has changed.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// The files and their manifest, which the log's thread changes, and the end of a rewrite.
pub type SharedFiles = Arc<Mutex<Files<Directory>>>;

/// The files behind their lock.
pub fn lock(files: &SharedFiles) -> MutexGuard<'_, Files<Directory>> {
    // What is behind the lock is always whole.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The running append-only file.
pub struct AppendOnly {
    files: SharedFiles,
    stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl AppendOnly {
    /// Reads the files, has `worker` apply what they have, and begins to write on. No other thread changes data yet.
    ///
    /// # Errors
    /// If a file can't be read, or is damaged: its name, where, and what to do.
    pub fn start(engine: &'static Engine, worker: &mut Worker) -> Result<AppendOnly, String> {
        let settings = &engine.settings;
        let path = settings.in_dir(&settings.appenddirname.get());
        let shown = path.display().to_string();
        let directory = Directory::open(path).map_err(|e| format!("Can't open {shown}: {}", system_text(&e)))?;
        let files = Files::open(directory, &settings.appendfilename.get());
        let mut files = files.map_err(|why| no_files(&shown, why))?;
        if files.manifest().parts.is_empty() {
            check_nothing_is_left(settings)?;
        }
        let whole = load(engine, worker, &files, &shown)?;
        let appender =
            files.last_increment(whole).map_err(|e| format!("Can't write to {shown}: {}", system_text(&e)))?;
        let Some(merge) = engine.journal.read(&engine.keyspace) else {
            return Err("The journal has a reader already".into());
        };
        let (began, last) = (Instant::now(), engine.journal.position());
        let writer = Writer::new(merge, last, appender, policy_of(settings), Duration::ZERO);
        engine.durability.note_safe(last, |_| {});
        engine.durability.have_replies_wait(policy_of(settings) == Policy::Always, last);
        let stopping = Arc::<AtomicBool>::default();
        let files = Arc::new(Mutex::new(files));
        let syncer = Syncer::start().map_err(|e| format!("can't start a thread: {e}"))?;
        let mut thread = Thread {
            engine,
            writer,
            syncer,
            sync_began: None,
            has_no_room: false,
            has_warned: false,
            directory: shown,
            files: files.clone(),
            began,
            stopping: stopping.clone(),
            is_in_trouble: false,
        };
        let run = move || {
            thread.note_file_name();
            thread.engine.durability.set_log_thread(std::thread::current());
            thread.run();
        };
        let thread = std::thread::Builder::new().name("log".into()).spawn(run);
        Ok(AppendOnly { files, stopping, thread: thread.map_err(|e| format!("can't start a thread: {e}"))? })
    }

    /// The files.
    #[must_use]
    pub fn files(&self) -> SharedFiles {
        self.files.clone()
    }

    /// Writes and syncs what there is, and ends. No thread runs commands any more. A disk that doesn't answer is waited for no
    /// longer than before writes are refused.
    pub fn end(self) {
        self.stopping.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let began = Instant::now();
        while !self.thread.is_finished() {
            if began.elapsed() >= HANG_MAX {
                return log::warning(
                    "The disk of the append-only file doesn't answer: the server ends without having synced it.",
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn policy_of(settings: &Settings) -> Policy {
    match settings.appendfsync.get() {
        AppendFsync::Always => Policy::Always,
        AppendFsync::EverySecond => Policy::EverySecond,
        AppendFsync::No => Policy::Never,
    }
}

/// Makes sure that there are no data that a start without a manifest would leave out, or write over.
fn check_nothing_is_left(settings: &Settings) -> Result<(), String> {
    let (directory, name) = (settings.in_dir(&settings.appenddirname.get()), settings.appendfilename.get());
    let entries = std::fs::read_dir(&directory).map_err(|e| format!("{}: {}", directory.display(), system_text(&e)))?;
    let parts = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let is_part = path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&*name));
        // One that was begun and not named yet has its first line alone.
        is_part && path.metadata().is_ok_and(|file| file.len() > FILE_START.len() as u64)
    });
    let others = [settings.in_dir(&name), settings.in_dir(&settings.dbfilename.get())];
    match parts.chain(others.into_iter().filter(|path| path.is_file())).next() {
        None => Ok(()),
        Some(path) => Err(format!(
            "{} is there, but no manifest in {} names it, and this version of Penstock can't read it: its data would not be in \
             this server. Restore the manifest, or move the file away to start without its data.",
            path.display(),
            directory.display()
        )),
    }
}

fn no_files(directory: &str, why: NoFiles) -> String {
    match why {
        NoFiles::Io(name, error) => format!("Can't read {directory}/{name}: {}", system_text(&error)),
        NoFiles::Manifest(name, bad) => {
            format!("{directory}/{name} is no manifest of an append-only file, {bad}. Restore it from a backup.")
        }
    }
}

/// What the files have is given to a worker.
struct Loading<'w> {
    engine: &'static Engine,
    replay: Replay<'w>,
    name: String,
    bytes: u64,
    said: Instant,
}

impl Apply for Loading<'_> {
    fn commands(&mut self, commands: &[u8]) -> Result<(), (usize, String)> {
        self.replay.commands(commands)
    }

    fn own(&mut self, record: &[u8]) -> Result<(), String> {
        self.replay.own(record)
    }

    fn progress(&mut self, read: u64) {
        say_progress(self.engine, &self.name, read, self.bytes, &mut self.said);
    }
}

/// Has a worker apply all files. Says how much of the last increment is whole.
fn load(
    engine: &'static Engine,
    worker: &mut Worker,
    files: &Files<Directory>,
    directory: &str,
) -> Result<u64, String> {
    let manifest = files.manifest();
    let parts: Vec<&Part> = manifest.base().into_iter().chain(manifest.increments()).collect();
    let began = Instant::now();
    let replay = Replay::begin(worker, now_us());
    let mut loading = Loading { engine, replay, name: String::new(), bytes: 0, said: began };
    let sizes = parts.iter().map(|part| files.disk().read(&part.name).map_or(0, |(_, bytes)| bytes));
    engine.snapshots.loading.expect(sizes.sum());
    let (mut whole, mut total) = (0, 0);
    for (index, part) in parts.iter().enumerate() {
        let name = format!("{directory}/{}", part.name);
        let opened = files.disk().read(&part.name);
        let (mut reader, bytes) = opened.map_err(|e| format!("Can't read {name}: {}", system_text(&e)))?;
        (loading.name, loading.bytes) = (name.clone(), bytes);
        if part.role == Role::Base && is_snapshot(files.disk(), &part.name) {
            total += load_base(engine, &mut loading, &name, reader)?;
            engine.snapshots.loading.note_file(bytes);
            continue;
        }
        let extent = read_file(&mut reader, &mut loading).map_err(|damage| damaged(&name, &damage))?;
        let is_last = index + 1 == parts.len();
        check_end(&engine.settings, &name, extent, is_last)?;
        total += extent.whole;
        engine.snapshots.loading.note_file(bytes);
        whole = if part.role == Role::Increment { extent.whole } else { 0 };
    }
    if !parts.is_empty() {
        let seconds = began.elapsed().as_secs_f64();
        log::notice(format!(
            "DB loaded from append only file: {seconds:.3} seconds, {} files in {directory}, {total} bytes",
            parts.len()
        ));
    }
    Ok(whole)
}

/// Whether a base has the form of a snapshot. Its name need not tell.
fn is_snapshot(disk: &Directory, name: &str) -> bool {
    let mut start = [0; 5];
    let read = disk.read(name).and_then(|(mut reader, _)| reader.read_exact(&mut start));
    read.is_ok() && (start.starts_with(b"REDIS") || start.starts_with(b"VALKE"))
}

/// Loads a base in the form of a snapshot. Says how many bytes it has.
fn load_base(engine: &Engine, loading: &mut Loading<'_>, name: &str, reader: Box<dyn Read>) -> Result<u64, String> {
    // What has expired is removed by the commands that follow, as they tell.
    let options = LoadOptions { keeps_expired: true, checks: engine.settings.rdbchecksum.get() };
    let (bytes, mut said) = (loading.bytes, Instant::now());
    let progress = |read| say_progress(engine, name, read, bytes, &mut said);
    let loaded = loading.replay.snapshot(reader, options, progress).map_err(|why| bad_snapshot(name, &why))?;
    engine.snapshots.change_figures(|figures| {
        (figures.base_bytes, figures.loaded_keys) = (loaded.bytes, loaded.keys);
    });
    Ok(loaded.bytes)
}

fn damaged(name: &str, damage: &Damage) -> String {
    match damage {
        Damage::Io(error) => format!("Can't read {name}: {}", system_text(error)),
        Damage::Bytes { .. } => format!(
            "Bad file format reading the append only file {name}, {damage}. Make a backup of the directory, then restore the \
             file from an older one or from a replica."
        ),
    }
}

/// Whether a file whose end is torn may be used.
fn check_end(settings: &Settings, name: &str, extent: Extent, is_last: bool) -> Result<(), String> {
    let Extent { whole, torn } = extent;
    if torn == 0 {
        return Ok(());
    }
    if !is_last {
        return Err(format!(
            "{name} ends in the midst of something, at byte {whole}, though another file follows: it has been damaged. Restore \
             it from a backup."
        ));
    }
    if !settings.aof_load_truncated.get() {
        return Err(format!(
            "Unexpected end of file reading {name}: its last {torn} bytes, from byte {whole} on, were not written whole. Set \
             aof-load-truncated to yes to start without them."
        ));
    }
    log::warning(format!(
        "{name}: the last {torn} bytes, from byte {whole} on, were not written whole when the server ended, and are cut off \
         (aof-load-truncated)."
    ));
    Ok(())
}

/// The thread that writes.
struct Thread {
    engine: &'static Engine,
    writer: Writer<Directory>,
    syncer: Syncer<Arc<File>>,
    /// When the sync began that the syncer runs, and whether nothing is taken from the journal until it has ended.
    sync_began: Option<Instant>,
    has_no_room: bool,
    /// Whether the log says already that this sync takes long.
    has_warned: bool,
    files: SharedFiles,
    /// Where the files are.
    directory: String,
    began: Instant,
    stopping: Arc<AtomicBool>,
    is_in_trouble: bool,
}

impl Thread {
    fn run(&mut self) {
        let mut dozes = 0;
        loop {
            let ends = self.stopping.load(Ordering::Acquire);
            match self.step() {
                Err(error) => {
                    self.note_trouble(&error);
                    if ends {
                        return;
                    }
                    std::thread::park_timeout(RETRY);
                }
                Ok((true, _)) => dozes = 0,
                Ok((false, _)) if ends => return self.finish(),
                Ok((false, again_after)) => {
                    dozes += 1;
                    self.wait(dozes, again_after);
                }
            }
        }
    }

    /// Writes and syncs what there is. Says whether there was anything, and when it is to be called again.
    fn step(&mut self) -> io::Result<(bool, Option<Duration>)> {
        self.engine.durability.note_wait(Some(Instant::now()));
        let stepped = self.write_and_sync();
        // With `always`, what is written waits for a sync that `everysec` began.
        let waits = self.has_no_room || policy_of(&self.engine.settings) == Policy::Always;
        self.engine.durability.note_wait(self.sync_began.filter(|_| waits));
        stepped
    }

    fn write_and_sync(&mut self) -> io::Result<(bool, Option<Duration>)> {
        let (settings, durability) = (&self.engine.settings, &self.engine.durability);
        let policy = policy_of(settings);
        self.writer.set_policy(policy);
        self.writer.hold_syncs(durability.is_rewriting() && settings.no_appendfsync_on_rewrite.get());
        let has_synced = self.end_sync()?;
        self.writer.set_time(settings.aof_timestamp_enabled.get().then(|| now_us() / 1_000_000));
        let began = Instant::now();
        let has_written = self.writer.write(durability.cut())?;
        if has_written {
            self.note_write(began.elapsed());
        }
        let began = Instant::now();
        let stepped = self.writer.sync_if_due(self.began.elapsed(), durability.cut())?;
        if stepped.has_synced && policy == Policy::Always {
            self.note_latency("aof-fsync-always", began.elapsed());
        }
        if let Some(file) = stepped.sync {
            self.syncer.begin(file);
            self.sync_began = Some(Instant::now());
        }
        if stepped.has_no_room && !self.has_no_room {
            durability.note_delay();
        }
        self.has_no_room = stepped.has_no_room;
        if stepped.reached_cut {
            self.begin_increment()?;
        }
        if std::mem::take(&mut self.is_in_trouble) {
            log::notice("The append-only file can be written again.");
            durability.set_trouble(None);
        }
        durability.note_file(self.writer.len(), self.writer.unsettled() as u64, self.sync_began.is_some());
        // What was taken after a change of the policy is as safe as the policy of before promised: it is looked at again.
        if policy_of(settings) == policy {
            let inboxes = &self.engine.inboxes;
            durability.note_safe(stepped.safe, |thread| inboxes[thread].wake());
        }
        Ok((has_written || stepped.has_synced || has_synced, stepped.again_after))
    }

    /// Records a write for the latency monitor, by Redis's names: one that nothing else kept the disk from, or what did.
    fn note_write(&self, took: Duration) {
        let beside = if self.sync_began.is_some() {
            "aof-write-pending-fsync"
        } else if self.engine.durability.is_rewriting() {
            "aof-write-active-child"
        } else {
            "aof-write-alone"
        };
        self.note_latency(beside, took);
        self.note_latency("aof-write", took);
    }

    fn note_latency(&self, event: &'static str, took: Duration) {
        self.engine.note_latency(event, took, now_us() / 1_000_000);
    }

    /// Takes the result of the sync that runs, if it has ended. Says whether it had.
    fn end_sync(&mut self) -> io::Result<bool> {
        let Some(result) = self.syncer.result() else {
            self.warn_of_slow_sync();
            return Ok(false);
        };
        (self.sync_began, self.has_warned) = (None, false);
        self.writer.end_sync(result)?;
        Ok(true)
    }

    fn warn_of_slow_sync(&mut self) {
        if !self.has_warned && self.sync_began.is_some_and(|began| began.elapsed() >= HANG_MAX) {
            self.has_warned = true;
            log::warning(format!(
                "Syncing the append-only file takes longer than {} seconds. A loss of power would lose what was written since it \
                 began.",
                HANG_MAX.as_secs()
            ));
        }
    }

    fn note_file_name(&self) {
        let name = lock(&self.files).manifest().last_increment().map(|part| part.name.clone());
        self.engine.durability.note_file_name(format!("{}/{}", self.directory, name.unwrap_or_default()));
    }

    /// Has what comes next be written to another increment. If there can't be one, the log goes on in the present one.
    fn begin_increment(&mut self) -> io::Result<()> {
        // An increment that another follows must be whole.
        self.writer.sync(self.began.elapsed())?;
        match lock(&self.files).begin_increment() {
            Ok(appender) => self.writer.go_on_in(appender),
            Err(error) => log::warning(format!("Can't begin another append-only file: {}", system_text(&error))),
        }
        self.engine.durability.end_cut();
        self.note_file_name();
        Ok(())
    }

    /// Waits until there may be something to be done.
    fn wait(&mut self, dozes: u32, again_after: Option<Duration>) {
        let durability = &self.engine.durability;
        if policy_of(&self.engine.settings) != Policy::Always && dozes < DOZES_MAX {
            durability.note_log_thread(LogThread::Dozes);
            std::thread::park_timeout(DOZE);
        } else {
            durability.note_log_thread(LogThread::Sleeps);
            // What was committed before that was not told of.
            if let Ok((false, _)) = self.step() {
                std::thread::park_timeout(again_after.unwrap_or(SLEEP_MAX).min(SLEEP_MAX));
            }
        }
        self.engine.durability.note_log_thread(LogThread::Looks);
    }

    fn note_trouble(&mut self, error: &io::Error) {
        let text = system_text(error);
        if !std::mem::replace(&mut self.is_in_trouble, true) {
            log::warning(format!(
                "Error writing to the append-only file: {text}. Commands that write are refused until the disk takes what waits; \
                 nothing that was acknowledged is lost."
            ));
        }
        self.engine.durability.set_trouble(Some(text.to_string()));
    }

    fn finish(&mut self) {
        while self.sync_began.is_some() {
            if let Some(result) = self.syncer.await_result(SLEEP_MAX) {
                self.sync_began = None;
                // What could not be synced is written and synced again.
                let _ = self.writer.end_sync(result);
            }
        }
        if let Err(error) = self.writer.sync(self.began.elapsed()) {
            log::warning(format!("Error syncing the append-only file: {}", system_text(&error)));
        }
    }
}
