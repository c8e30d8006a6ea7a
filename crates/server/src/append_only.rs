//! The append-only file of a running server: the read at startup, and the threads that write and sync the file.

mod group_commit;
mod reading;
mod syncer;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use config::{AppendFsync, Settings};
use engine::durability::{DurabilityTarget, HANG_MAX, WriterState};
use engine::inbox::Message;
use engine::replay::Replay;
use engine::snapshots::Purpose;
use engine::state::Engine;
use engine::worker::Worker;
use journal::lane::Audience;
use journal::merge::Merge;
use persistence::appender::Appender;
use persistence::block::FILE_START;
use persistence::disk::Directory;
use persistence::files::{Files, NoFiles};
use persistence::manifest::Role;
use persistence::writer::{Policy, Writer};

use self::group_commit::GroupCommit;
use self::syncer::Syncer;
use crate::conf_file::system_text;
use crate::log;
use crate::threads;
use crate::time::now_us;

/// Time between two checks for new units while no reply depends on the file.
const DOZE: Duration = Duration::from_millis(10);
/// Number of consecutive checks without a new unit, after which the thread parks until a wake-up.
const DOZES_MAX: u32 = 100;
/// Time before the next try after a disk error.
const RETRY: Duration = Duration::from_millis(100);
/// Time before the next try to turn the file on after a failure.
const TURN_ON_AGAIN: Duration = Duration::from_secs(5);
/// Longest sleep. After it the thread checks for the server's end and a changed policy.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// The files and their manifest. The log's thread and the end of a rewrite change them.
pub type SharedFiles = Arc<Mutex<Files<Directory>>>;

/// Locks the files.
pub fn lock(files: &SharedFiles) -> MutexGuard<'_, Files<Directory>> {
    // The data behind the lock are consistent even if a holder panicked.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The append-only file of the server, on or off.
#[derive(Default)]
pub struct AppendOnly {
    state: Mutex<FileState>,
    /// True while a thread retries to turn the file on.
    is_retried: AtomicBool,
}

#[derive(Default)]
enum FileState {
    #[default]
    Off,
    /// Turned on. The file begins with the next snapshot.
    Ready(Box<Opened>),
    On(Running),
    /// Turned off. The thread writes the remaining units.
    Ending(Running),
}

/// Files that are open for writing.
struct Opened {
    files: Files<Directory>,
    appender: Appender<Arc<File>>,
    directory: String,
}

/// A running thread that writes the files.
struct Running {
    files: SharedFiles,
    /// One of [`WRITES`], [`LEAVES`], [`ENDS`] and [`GIVES_UP`].
    does: Arc<AtomicU8>,
    thread: JoinHandle<()>,
}

/// The thread writes new units.
const WRITES: u8 = 0;
/// The file has been turned off: the thread stops reading the journal, and no reply depends on the file any more.
const LEAVES: u8 = 1;
/// The server ends: replies that depend on the disk are never sent. The thread retries until everything is written.
const ENDS: u8 = 2;
/// The server has waited long enough. The thread gives up the units that it can't write.
const GIVES_UP: u8 = 3;
/// Time for the thread to give up and to log the number of lost units.
const GIVE_UP_MAX: Duration = Duration::from_secs(1);

impl AppendOnly {
    fn state(&self) -> MutexGuard<'_, FileState> {
        // The data behind the lock are consistent even if a holder panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files, has `worker` apply their commands, and begins to write new ones. No other thread changes data yet.
    ///
    /// # Errors
    /// Names the file that can't be read or is damaged, the place, and the remedy.
    pub fn start(&self, engine: &'static Engine, worker: &mut Worker) -> Result<(), String> {
        let (mut files, directory) = complete_files(&engine.settings)?;
        let extent = reading::load(engine, worker, &files, &directory)?;
        let appender =
            files.last_increment(extent).map_err(|e| format!("Can't write to {directory}: {}", system_text(&e)))?;
        let merge = engine.journal.read(&engine.keyspace, Audience::File);
        *self.state() = FileState::On(Running::begin(engine, Opened { files, appender, directory }, merge)?);
        Ok(())
    }

    /// Prepares the file for writing. It begins with the next snapshot as its base, and the caller requests that snapshot. Does nothing if
    /// the file is on.
    ///
    /// # Errors
    /// If its files can't be opened, or a previous turn-off is still being written ([`AppendOnly::turn_on_when_closed`]).
    pub fn turn_on(&self, engine: &Engine) -> Result<(), String> {
        let mut state = self.state();
        match &*state {
            FileState::Ready(_) | FileState::On(_) => return Ok(()),
            FileState::Ending(running) if !running.thread.is_finished() => {
                return Err("The append-only file is still being closed: try again in a moment".into());
            }
            FileState::Off | FileState::Ending(_) => {}
        }
        // The files on disk are stale, even if they can't be replaced.
        engine.durability.note_whole(false);
        let (mut files, directory) = open_files(&engine.settings)?;
        files.begin_anew();
        let appender =
            files.begin_increment().map_err(|e| format!("Can't write to {directory}: {}", system_text(&e)))?;
        engine.snapshots.change_figures(|figures| figures.base_bytes = 0);
        *state = FileState::Ready(Box::new(Opened { files, appender, directory }));
        Ok(())
    }

    /// Returns true if the file was turned off and its last units are still being written.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        matches!(&*self.state(), FileState::Ending(running) if !running.thread.is_finished())
    }

    /// Starts a thread that turns the file on once the old one is closed, if `appendonly` is still `yes` then. The caller can't wait
    /// itself: it may be inside the gate, which closing the file needs.
    ///
    /// # Errors
    /// If there can't be another thread.
    pub fn turn_on_when_closed(self: &Arc<Self>, engine: &'static Engine) -> Result<(), String> {
        // INFO reports a rewrite until the new file has its base.
        engine.durability.note_whole(false);
        let own = self.clone();
        let turn_on = move || {
            own.wait_until_off();
            // If data of a primary are being loaded, the end of the load turns the file on.
            if !engine.settings.appendonly.get() || engine.is_loading() {
                return;
            }
            match own.turn_on(engine) {
                Ok(()) if engine.durability.is_whole() => {}
                Ok(()) => engine.snapshots.want(Purpose::Base),
                Err(why) => own.turn_on_later(engine, &why),
            }
        };
        let thread = threads::spawn(&threads::AOF_OPEN, turn_on);
        thread.map(drop).map_err(threads::cannot_start)
    }

    /// Retries to turn the file on every few seconds until that succeeds or the setting is off. `why` is the reason for the failure.
    pub fn turn_on_later(self: &Arc<Self>, engine: &'static Engine, why: &str) {
        log::warning(format!(
            "{why}. The primary's data are not in the append-only file. Another try follows in {} s.",
            TURN_ON_AGAIN.as_secs()
        ));
        if self.is_retried.swap(true, Ordering::AcqRel) {
            return;
        }
        let own = self.clone();
        let retry = move || {
            while !own.try_again(engine) {}
            own.is_retried.store(false, Ordering::Release);
        };
        if let Err(error) = threads::spawn(&threads::AOF_RETRY, retry) {
            self.is_retried.store(false, Ordering::Release);
            log::warning(format!("can't start a thread: {error}"));
        }
    }

    /// Waits [`TURN_ON_AGAIN`] and tries to turn the file on. Returns true if no further try is needed.
    fn try_again(&self, engine: &Engine) -> bool {
        std::thread::sleep(TURN_ON_AGAIN);
        if !engine.settings.appendonly.get() {
            return true;
        }
        // The end of the load turns the file on.
        if engine.is_loading() {
            return false;
        }
        let is_on = self.turn_on(engine);
        if is_on.is_ok() && !engine.durability.is_whole() {
            engine.snapshots.want(Purpose::Base);
        }
        is_on.is_ok()
    }

    /// Begins to write if the file is ready. `read` returns a reader at the journal's end. The caller holds all shards.
    ///
    /// # Errors
    /// If no other thread can be started.
    pub fn begin(&self, engine: &'static Engine, read: &mut dyn FnMut() -> Option<Merge>) -> Result<(), String> {
        let mut state = self.state();
        match std::mem::take(&mut *state) {
            FileState::Ready(opened) => *state = FileState::On(Running::begin(engine, *opened, read())?),
            other => *state = other,
        }
        Ok(())
    }

    /// Ends the file after all present units are written and synced. Returns without waiting for that.
    pub fn turn_off(&self) {
        let mut state = self.state();
        match std::mem::take(&mut *state) {
            FileState::On(running) => {
                // A base that is being written is abandoned: the manifest will describe the next files.
                lock(&running.files).end();
                running.stop(LEAVES);
                *state = FileState::Ending(running);
            }
            FileState::Ending(running) => *state = FileState::Ending(running),
            FileState::Off | FileState::Ready(_) => {}
        }
    }

    /// Waits until a file that was turned off has been written completely.
    pub fn wait_until_off(&self) {
        while self.is_ending() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Turns the file off, waits until all units are written, empties the keyspace and loads the files into it. If `appendonly` is `yes`,
    /// the file continues. No client's command runs meanwhile.
    ///
    /// # Errors
    /// Like [`AppendOnly::start`]. The keyspace is incomplete then.
    pub fn restart(&self, engine: &'static Engine, worker: &mut Worker) -> Result<(), String> {
        self.turn_off();
        self.wait_until_off();
        // Replicas have these data. Their reader would wait for ever for the units of this worker, which has no lane.
        engine.journal.suspend(true);
        let emptied = Replay::begin(worker, now_us()).empty();
        let loaded = emptied.and_then(|()| self.load(engine, worker));
        engine.journal.suspend(false);
        loaded
    }

    /// Loads the files, and begins to write new ones if `appendonly` is `yes`.
    fn load(&self, engine: &'static Engine, worker: &mut Worker) -> Result<(), String> {
        if engine.settings.appendonly.get() {
            return self.start(engine, worker);
        }
        let (files, directory) = complete_files(&engine.settings)?;
        reading::load(engine, worker, &files, &directory).map(drop)
    }

    /// Returns true if there is a manifest that names files.
    pub fn has_files(settings: &Settings) -> bool {
        settings.in_dir(&settings.appenddirname.get()).is_dir()
            && open_files(settings).is_ok_and(|(files, _)| !files.manifest().parts.is_empty())
    }

    /// Opens the files for a new base while the append-only file is off. All present parts become history.
    ///
    /// # Errors
    /// If they can't be opened.
    pub fn closed_files(&self, engine: &Engine) -> Result<SharedFiles, String> {
        if self.is_ending() {
            return Err("the append-only file is still being closed".into());
        }
        let (files, _) = open_files(&engine.settings)?;
        Ok(Arc::new(Mutex::new(files)))
    }

    /// Returns the files if the server writes them.
    #[must_use]
    pub fn files(&self) -> Option<SharedFiles> {
        match &*self.state() {
            FileState::On(running) => Some(running.files.clone()),
            _ => None,
        }
    }

    /// Writes and syncs the remaining units, and ends the thread. No thread runs commands any more. If the disk is full or doesn't answer,
    /// the wait ends after [`HANG_MAX`], and the number of lost units is logged.
    pub fn end(&self, engine: &Engine) {
        let (FileState::On(running) | FileState::Ending(running)) = std::mem::take(&mut *self.state()) else { return };
        running.stop(ENDS);
        if running.has_ended_within(HANG_MAX) {
            return;
        }
        running.stop(GIVES_UP);
        if !running.has_ended_within(GIVE_UP_MAX) {
            let unsynced = engine.journal.position().saturating_sub(engine.durability.synced());
            log::warning(format!(
                "The disk of the append-only file doesn't answer: the server ends without having synced the last {unsynced} units."
            ));
        }
    }
}

impl Running {
    /// Begins to write the units of `merge`. No unit is committed meanwhile.
    fn begin(engine: &'static Engine, opened: Opened, merge: Option<Merge>) -> Result<Running, String> {
        let Some(merge) = merge else { return Err("The journal has a reader already".into()) };
        let settings = &engine.settings;
        let (began, last) = (Instant::now(), engine.journal.position());
        let writer = Writer::new(merge, last, opened.appender, policy_of(settings), Duration::ZERO);
        engine.durability.note_safe(DurabilityTarget::Log, last, |_| {});
        let does = Arc::new(AtomicU8::new(WRITES));
        let files = Arc::new(Mutex::new(opened.files));
        let syncer = Syncer::start().map_err(threads::cannot_start)?;
        let mut group_commit = GroupCommit::default();
        group_commit.follow(last);
        let mut thread = WriterThread {
            engine,
            writer,
            syncer,
            group_commit,
            sync_began: None,
            has_no_room: false,
            has_warned: false,
            directory: opened.directory,
            files: files.clone(),
            began,
            does: does.clone(),
            is_in_trouble: false,
        };
        let run = move || {
            thread.note_file_name();
            thread.run();
            thread.leave();
        };
        let thread = threads::spawn(&threads::AOF, run);
        let thread = thread.map_err(threads::cannot_start)?;
        let awaited = || policy_of(settings) == Policy::Always;
        engine.durability.begin_log(thread.thread().clone(), awaited, engine.journal.position());
        Ok(Running { files, does, thread })
    }

    /// Waits for the end of the thread, but no longer than this.
    fn has_ended_within(&self, duration: Duration) -> bool {
        let began = Instant::now();
        while !self.thread.is_finished() && began.elapsed() < duration {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.thread.is_finished()
    }

    /// Tells the thread to end in the given way, [`LEAVES`] or [`ENDS`].
    fn stop(&self, way: u8) {
        self.does.store(way, Ordering::Release);
        self.thread.thread().unpark();
    }
}

/// Opens the directory and its manifest. Returns the directory's path for messages, too.
fn open_files(settings: &Settings) -> Result<(Files<Directory>, String), String> {
    let path = settings.in_dir(&settings.appenddirname.get());
    let shown = path.display().to_string();
    let directory = Directory::open(path).map_err(|e| format!("Can't open {shown}: {}", system_text(&e)))?;
    let files = Files::open(directory, &settings.appendfilename.get());
    Ok((files.map_err(|why| no_files(&shown, why))?, shown))
}

/// Opens the files and checks that none of them is missing.
fn complete_files(settings: &Settings) -> Result<(Files<Directory>, String), String> {
    let (mut files, directory) = open_files(settings)?;
    if !files.manifest().parts.is_empty() {
        complete_adoption(settings, &files)?;
        check_parts(settings, &files, &directory)?;
    } else {
        check_no_parts(settings, files.disk().path())?;
        if !adopt_old_file(settings, &mut files)? {
            check_no_snapshot(settings)?;
        }
    }
    Ok((files, directory))
}

/// Adopts the single file of versions before Redis 7. Its name is the present prefix of all file names, and it lies in the server's own
/// directory. Returns true if there was one. The file is moved first, and a start after an interruption finds it at the new place.
fn adopt_old_file(settings: &Settings, files: &mut Files<Directory>) -> Result<bool, String> {
    move_old_file(settings, files)?;
    let path = files.disk().path().join(&*settings.appendfilename.get());
    files.adopt().map_err(|error| format!("Can't take over {}: {}", path.display(), system_text(&error)))
}

/// Moves the single file if the manifest already names it as the only part. Redis writes the manifest first, so an interruption leaves the
/// file in the server's own directory.
fn complete_adoption(settings: &Settings, files: &Files<Directory>) -> Result<(), String> {
    let name = settings.appendfilename.get();
    match &*files.manifest().parts {
        [part] if part.role == Role::Base && part.name == *name => move_old_file(settings, files),
        _ => Ok(()),
    }
}

/// Moves the single file into the directory of the parts, if it exists and is not there yet.
fn move_old_file(settings: &Settings, files: &Files<Directory>) -> Result<(), String> {
    let name = settings.appendfilename.get();
    let (old, new) = (settings.in_dir(&name), files.disk().path().join(&*name));
    if !old.is_file() || new.exists() {
        return Ok(());
    }
    let (old_text, new_text) = (old.display().to_string(), new.display().to_string());
    std::fs::rename(&old, &new)
        .map_err(|error| format!("Can't take {old_text} over into {new_text}: {}", system_text(&error)))?;
    log::notice(format!("{old_text} is now {new_text}, the base of an append-only file of several parts."));
    Ok(())
}

fn policy_of(settings: &Settings) -> Policy {
    match settings.appendfsync.get() {
        AppendFsync::Always => Policy::Always,
        AppendFsync::EverySecond => Policy::EverySecond,
        AppendFsync::No => Policy::Never,
    }
}

/// Checks that the manifest names all files with data of this server.
fn check_parts(settings: &Settings, files: &Files<Directory>, directory: &str) -> Result<(), String> {
    let there = sizes(files.disk().path()).map_err(|e| format!("{directory}: {}", system_text(&e)))?;
    let name = settings.appendfilename.get();
    files.manifest().contradiction(&name, &there).map_or(Ok(()), |why| {
        Err(format!(
            "{directory}/{name}.manifest doesn't fit the files beside it: {why}. Their data would not be in this server. Restore the \
             manifest, or move the file away to start without its data."
        ))
    })
}

/// Returns the files of a directory with their sizes in bytes.
fn sizes(directory: &Path) -> io::Result<Vec<(String, u64)>> {
    let entries = std::fs::read_dir(directory)?.flatten();
    let sizes = entries.map(|entry| {
        let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
        (entry.file_name().to_string_lossy().into_owned(), bytes)
    });
    Ok(sizes.collect())
}

/// Fails if the directory has parts that a start without a manifest would ignore or overwrite.
fn check_no_parts(settings: &Settings, directory: &Path) -> Result<(), String> {
    let name = settings.appendfilename.get();
    let entries = std::fs::read_dir(directory).map_err(|e| format!("{}: {}", directory.display(), system_text(&e)))?;
    let mut parts = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let is_part = path.file_name().is_some_and(|file| {
            let file = file.to_string_lossy();
            file.strip_prefix(&*name).is_some_and(|rest| rest.starts_with('.'))
        });
        // A part that was created but not yet named in the manifest has only its first line.
        is_part && path.metadata().is_ok_and(|file| file.len() > FILE_START.len() as u64)
    });
    match parts.next() {
        None => Ok(()),
        Some(path) => Err(format!(
            "{} is there, but no manifest in {} names it: its data would not be in this server. Restore the manifest, or move \
             the file away to start without its data.",
            path.display(),
            directory.display()
        )),
    }
}

/// Refuses to start with an empty append-only file beside a snapshot: the server would lack the snapshot's data.
fn check_no_snapshot(settings: &Settings) -> Result<(), String> {
    let path = settings.in_dir(&settings.dbfilename.get());
    if !path.is_file() {
        return Ok(());
    }
    Err(format!(
        "{} is there, and no append-only file: with appendonly yes its data would not be in this server. Start with appendonly \
         no, and have them written to an append-only file by CONFIG SET appendonly yes; or move the file away to start without them.",
        path.display()
    ))
}

fn no_files(directory: &str, why: NoFiles) -> String {
    match why {
        NoFiles::Io(name, error) => format!("Can't read {directory}/{name}: {}", system_text(&error)),
        NoFiles::Manifest(name, bad) => {
            format!("{directory}/{name} is no manifest of an append-only file, {bad}. Restore it from a backup.")
        }
    }
}

/// The thread that writes.
struct WriterThread {
    engine: &'static Engine,
    writer: Writer<Directory>,
    syncer: Syncer<Arc<File>>,
    group_commit: GroupCommit,
    /// Start of the running sync, and whether the thread takes no units from the journal until the sync ends.
    sync_began: Option<Instant>,
    has_no_room: bool,
    /// True if the log already has a warning about this slow sync.
    has_warned: bool,
    files: SharedFiles,
    /// Path of the files.
    directory: String,
    began: Instant,
    does: Arc<AtomicU8>,
    is_in_trouble: bool,
}

impl WriterThread {
    fn run(&mut self) {
        let mut dozes = 0;
        loop {
            let does = self.does.load(Ordering::Acquire);
            let stepped = match self.step() {
                Ok((false, _)) if does != WRITES => self.finish().map(|()| None),
                stepped => stepped.map(Some),
            };
            match stepped {
                Err(error) => {
                    self.note_trouble(&error);
                    match does {
                        LEAVES => return,
                        GIVES_UP => return self.give_up(),
                        _ => std::thread::park_timeout(RETRY),
                    }
                }
                Ok(None) => return,
                Ok(Some((true, _))) => dozes = 0,
                Ok(Some((false, again_after))) => {
                    dozes += 1;
                    self.wait(dozes, again_after);
                }
            }
        }
    }

    /// Writes and syncs new units. Returns whether there were any, and the time until the next call is due.
    fn step(&mut self) -> io::Result<(bool, Option<Duration>)> {
        self.engine.durability.note_wait(Some(Instant::now()));
        let stepped = self.write_and_sync();
        // With `always`, written units depend on a sync that `everysec` began. Units behind a cut depend on it in any case.
        let is_cut = self.engine.durability.is_cut();
        let waits = self.has_no_room || is_cut || policy_of(&self.engine.settings) == Policy::Always;
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
        if policy == Policy::Always {
            self.gather();
        }
        let began = Instant::now();
        let has_written = self.writer.write(durability.cut(), |memory| durability.note_file_memory(memory))?;
        if has_written {
            self.note_write(began.elapsed());
        }
        let began = Instant::now();
        let stepped = self.writer.sync_if_due(self.began.elapsed(), durability.cut())?;
        if stepped.has_synced && policy == Policy::Always {
            self.note_latency("aof-fsync-always", began.elapsed());
            self.group_commit.note_sync(
                began.elapsed(),
                Instant::now(),
                stepped.synced,
                self.engine.journal.position(),
            );
        }
        if policy != Policy::Always {
            self.group_commit.follow(stepped.synced);
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
            durability.set_disk_error(None);
        }
        durability.note_file(self.writer.len(), self.writer.unsettled() as u64, self.sync_began.is_some());
        durability.note_file_memory(self.writer.memory());
        // Units taken after a change of the policy keep the guarantee of the old policy until the next step.
        if policy_of(settings) == policy {
            let inboxes = &self.engine.inboxes;
            durability.note_safe(DurabilityTarget::Log, stepped.safe, |thread| inboxes[thread].wake());
            if durability.note_synced(stepped.synced) && self.engine.replication.replicas.are_awaited() {
                inboxes.iter().for_each(|inbox| inbox.send(Message::Acknowledged));
            }
        }
        Ok((has_written || stepped.has_synced || has_synced, stepped.again_after))
    }

    /// Waits briefly for units that are about to arrive, and lets them share the next sync.
    fn gather(&mut self) {
        let (durability, journal) = (&self.engine.durability, &self.engine.journal);
        let Some(wait) = self.group_commit.take() else { return };
        while journal.position() < wait.wanted && self.does.load(Ordering::Acquire) == WRITES {
            let left = wait.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            durability.note_gathering(wait.wanted);
            if journal.position() < wait.wanted {
                std::thread::park_timeout(left);
            }
            durability.note_writer_state(WriterState::Polling);
        }
        self.group_commit.note_end(wait, journal.position());
    }

    /// Records a write for the latency monitor, under Redis's name for the cause of the delay.
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

    /// Takes the result of the running sync if it has ended. Returns true if it has.
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

    /// Directs the next units to a new increment. The present increment stays in use if no new one can be created.
    fn begin_increment(&mut self) -> io::Result<()> {
        // An increment must be whole before another follows it.
        self.writer.finish_increment(self.began.elapsed())?;
        match lock(&self.files).begin_increment() {
            Ok(appender) => self.writer.go_on_in(appender),
            Err(error) => log::warning(format!("Can't begin another append-only file: {}", system_text(&error))),
        }
        self.engine.durability.end_cut();
        self.note_file_name();
        Ok(())
    }

    /// Waits until there may be work.
    fn wait(&mut self, dozes: u32, again_after: Option<Duration>) {
        let durability = &self.engine.durability;
        if policy_of(&self.engine.settings) != Policy::Always && dozes < DOZES_MAX {
            durability.note_writer_state(WriterState::Timed);
            std::thread::park_timeout(DOZE);
        } else {
            durability.note_writer_state(WriterState::Parked);
            // Units committed before the new state became visible caused no wake-up.
            if let Ok((false, _)) = self.step() {
                std::thread::park_timeout(again_after.unwrap_or(SLEEP_MAX).min(SLEEP_MAX));
            }
        }
        self.engine.durability.note_writer_state(WriterState::Polling);
    }

    fn note_trouble(&mut self, error: &io::Error) {
        let text = system_text(error);
        if !std::mem::replace(&mut self.is_in_trouble, true) {
            log::warning(format!(
                "Error writing to the append-only file: {text}. Commands that write are refused until the disk accepts the \
                 unwritten changes; no acknowledged change is lost."
            ));
        }
        self.engine.durability.set_disk_error(Some(text.to_string()));
    }

    /// Gives up the unwritten units, and logs their number.
    fn give_up(&mut self) {
        self.await_sync();
        let last = self.engine.journal.position();
        match self.writer.give_up() {
            Ok(kept) => log::warning(format!(
                "The append-only file could not be written: the server ends, and its last {} changes are lost.",
                last.saturating_sub(kept)
            )),
            Err(error) => log::warning(format!(
                "The append-only file could not be written: the server ends, and at most its last {} changes are lost. Its \
                 incomplete end could not be cut off: {}",
                last.saturating_sub(self.engine.durability.synced()),
                system_text(&error)
            )),
        }
    }

    /// Makes all units durable, and cuts off the filler after them.
    fn finish(&mut self) -> io::Result<()> {
        self.await_sync();
        self.writer.finish_increment(self.began.elapsed())
    }

    /// Waits for the running sync, if there is one.
    fn await_sync(&mut self) {
        while self.sync_began.is_some() {
            if let Some(result) = self.syncer.await_result(SLEEP_MAX) {
                self.sync_began = None;
                // Units that could not be synced are written and synced again.
                let _ = self.writer.end_sync(result);
            }
        }
    }

    /// Detaches the thread from the journal, writes and syncs the journal's last units, and releases the replies that depend on the file.
    /// Does nothing when the server ends: no thread commits a unit any more, and the pending replies are never sent.
    fn leave(self) {
        let engine = self.engine;
        let ends = || matches!(self.does.load(Ordering::Acquire), ENDS | GIVES_UP);
        let Some(alone) = engine.keyspace.gate().close_unless(ends) else { return };
        if ends() {
            return;
        }
        let (merge, mut appender) = self.writer.end();
        let last = engine.journal.position();
        engine.journal.end_alone(merge);
        drop(alone);
        // Outside of the gate, because the disk may take long.
        let synced = appender.write().and_then(|()| appender.sync()).and_then(|()| appender.trim());
        if let Err(error) = synced {
            log::warning(format!("Error syncing the append-only file: {}", system_text(&error)));
        }
        engine.durability.end_log(last, |thread| engine.inboxes[thread].wake());
    }
}
