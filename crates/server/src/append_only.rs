//! The append-only file of a running server: reading it at the start, and the threads that write and sync it.

mod gathering;
mod reading;
mod syncer;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::config::{AppendFsync, Settings};
use engine::durability::{HANG_MAX, LogThread, Safety};
use engine::engine::Engine;
use engine::inbox::Message;
use engine::replay::Replay;
use engine::snapshots::Purpose;
use engine::worker::Worker;
use journal::lane::Audience;
use journal::merge::Merge;
use persistence::appender::Appender;
use persistence::block::FILE_START;
use persistence::disk::Directory;
use persistence::files::{Files, NoFiles};
use persistence::writer::{Policy, Writer};

use self::gathering::Gathering;
use self::syncer::Syncer;
use crate::conf_file::system_text;
use crate::event_loop::now_us;
use crate::log;

/// How long the thread waits before it looks for units again, where no reply waits for it.
const DOZE: Duration = Duration::from_millis(10);
/// How many times in a row it looks in vain before it sleeps until it is woken.
const DOZES_MAX: u32 = 100;
/// How long it waits before a disk that failed is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// How long is waited before a file is turned on again that couldn't be.
const TURN_ON_AGAIN: Duration = Duration::from_secs(5);
/// How long it sleeps at most: it looks whether the server ends, and whether the policy has changed.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// The files and their manifest, which the log's thread changes, and the end of a rewrite.
pub type SharedFiles = Arc<Mutex<Files<Directory>>>;

/// The files behind their lock.
pub fn lock(files: &SharedFiles) -> MutexGuard<'_, Files<Directory>> {
    // What is behind the lock is always whole.
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The append-only file as the server has it.
#[derive(Default)]
pub struct AppendOnly {
    state: Mutex<FileState>,
    /// Whether a thread tries to turn it on again.
    is_retried: AtomicBool,
}

#[derive(Default)]
enum FileState {
    #[default]
    Off,
    /// It has been turned on, and begins with the next snapshot.
    Ready(Opened),
    On(Running),
    /// It has been turned off; what there is is written.
    Ending(Running),
}

/// Files that are open to be written.
struct Opened {
    files: Files<Directory>,
    appender: Appender<Arc<File>>,
    directory: String,
}

/// A thread that writes them.
struct Running {
    files: SharedFiles,
    /// One of [`WRITES`], [`LEAVES`] and [`ENDS`].
    does: Arc<AtomicU8>,
    thread: JoinHandle<()>,
}

/// The thread writes what there is.
const WRITES: u8 = 0;
/// The file has been turned off: the thread leaves the journal, and nothing waits for it any more.
const LEAVES: u8 = 1;
/// The server ends: what waits for the disk is never answered.
const ENDS: u8 = 2;

impl AppendOnly {
    fn state(&self) -> MutexGuard<'_, FileState> {
        // What is behind the lock is always whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the files, has `worker` apply what they have, and begins to write on. No other thread changes data yet.
    ///
    /// # Errors
    /// If a file can't be read, or is damaged: its name, where, and what to do.
    pub fn start(&self, engine: &'static Engine, worker: &mut Worker) -> Result<(), String> {
        let settings = &engine.settings;
        let (mut files, directory) = open_files(settings)?;
        if files.manifest().parts.is_empty() {
            check_no_parts(settings, files.disk().path())?;
            if !adopt_old_file(settings, &mut files)? {
                check_no_snapshot(settings)?;
            }
        }
        let whole = reading::load(engine, worker, &files, &directory)?;
        let appender =
            files.last_increment(whole).map_err(|e| format!("Can't write to {directory}: {}", system_text(&e)))?;
        let merge = engine.journal.read(&engine.keyspace, Audience::File);
        *self.state() = FileState::On(Running::begin(engine, Opened { files, appender, directory }, merge)?);
        Ok(())
    }

    /// Gets ready to write the file: it begins with the next snapshot for a base, which is the caller's to ask for. Without effect if it
    /// is on.
    ///
    /// # Errors
    /// If its files can't be opened, or it was turned off a moment ago and is still written.
    pub fn turn_on(&self, engine: &Engine) -> Result<(), String> {
        let mut state = self.state();
        match &*state {
            FileState::Ready(_) | FileState::On(_) => return Ok(()),
            FileState::Ending(running) if !running.thread.is_finished() => {
                return Err("The append-only file is still being closed: try again in a moment".into());
            }
            FileState::Off | FileState::Ending(_) => {}
        }
        // What there is on disk is of before, though nothing can be written there.
        engine.durability.note_whole(false);
        let (mut files, directory) = open_files(&engine.settings)?;
        files.begin_anew();
        let appender =
            files.begin_increment().map_err(|e| format!("Can't write to {directory}: {}", system_text(&e)))?;
        engine.snapshots.change_figures(|figures| figures.base_bytes = 0);
        *state = FileState::Ready(Opened { files, appender, directory });
        Ok(())
    }

    /// Tries again to turn it on, every few seconds until it can be or isn't wanted any more. `why` says why it couldn't be now.
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
        if let Err(error) = std::thread::Builder::new().name("log-retry".into()).spawn(retry) {
            self.is_retried.store(false, Ordering::Release);
            log::warning(format!("can't start a thread: {error}"));
        }
    }

    /// Waits a while, and tries to turn it on. True if that is done, or not to be done.
    fn try_again(&self, engine: &Engine) -> bool {
        std::thread::sleep(TURN_ON_AGAIN);
        if !engine.settings.appendonly.get() {
            return true;
        }
        // The end of the loading turns it on.
        if engine.is_loading() {
            return false;
        }
        let is_on = self.turn_on(engine);
        if is_on.is_ok() && !engine.durability.is_whole() {
            engine.snapshots.want(Purpose::Base);
        }
        is_on.is_ok()
    }

    /// Begins to write if it is ready to. `read` gives the journal's end. All shards are held.
    ///
    /// # Errors
    /// If there can't be another thread.
    pub fn begin(&self, engine: &'static Engine, read: &mut dyn FnMut() -> Option<Merge>) -> Result<(), String> {
        let mut state = self.state();
        match std::mem::take(&mut *state) {
            FileState::Ready(opened) => *state = FileState::On(Running::begin(engine, opened, read())?),
            other => *state = other,
        }
        Ok(())
    }

    /// Has all that there is written and synced, and ends the file. Doesn't wait for that.
    pub fn turn_off(&self) {
        let mut state = self.state();
        match std::mem::take(&mut *state) {
            FileState::On(running) => {
                // A base that is being written is not taken any more: the manifest will be that of the next files.
                lock(&running.files).end();
                running.stop(LEAVES);
                *state = FileState::Ending(running);
            }
            FileState::Ending(running) => *state = FileState::Ending(running),
            FileState::Off | FileState::Ready(_) => {}
        }
    }

    /// Waits until a file that was turned off is written to its end.
    pub fn wait_until_off(&self) {
        while matches!(&*self.state(), FileState::Ending(running) if !running.thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Turns it off, waits until all that there is has been written, and starts anew with what the files have, in place of what the
    /// keyspace has. No client's command runs meanwhile.
    ///
    /// # Errors
    /// As [`AppendOnly::start`]. Then the keyspace has not all that it had.
    pub fn restart(&self, engine: &'static Engine, worker: &mut Worker) -> Result<(), String> {
        self.turn_off();
        self.wait_until_off();
        Replay::begin(worker, now_us()).empty()?;
        self.start(engine, worker)
    }

    /// The files, if they are written.
    #[must_use]
    pub fn files(&self) -> Option<SharedFiles> {
        match &*self.state() {
            FileState::On(running) => Some(running.files.clone()),
            _ => None,
        }
    }

    /// Writes and syncs what there is, and ends. No thread runs commands any more. A disk that doesn't answer is waited for no
    /// longer than before writes are refused.
    pub fn end(&self) {
        let (FileState::On(running) | FileState::Ending(running)) = std::mem::take(&mut *self.state()) else { return };
        running.stop(ENDS);
        let began = Instant::now();
        while !running.thread.is_finished() {
            if began.elapsed() >= HANG_MAX {
                return log::warning(
                    "The disk of the append-only file doesn't answer: the server ends without having synced it.",
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Running {
    /// Begins to write what `merge` has from now on. No unit is committed meanwhile.
    fn begin(engine: &'static Engine, opened: Opened, merge: Option<Merge>) -> Result<Running, String> {
        let Some(merge) = merge else { return Err("The journal has a reader already".into()) };
        let settings = &engine.settings;
        let (began, last) = (Instant::now(), engine.journal.position());
        let writer = Writer::new(merge, last, opened.appender, policy_of(settings), Duration::ZERO);
        engine.durability.note_safe(Safety::Log, last, |_| {});
        let does = Arc::new(AtomicU8::new(WRITES));
        let files = Arc::new(Mutex::new(opened.files));
        let syncer = Syncer::start().map_err(|e| format!("can't start a thread: {e}"))?;
        let mut gathering = Gathering::default();
        gathering.follow(last);
        let mut thread = WriterThread {
            engine,
            writer,
            syncer,
            gathering,
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
        let thread = std::thread::Builder::new().name("log".into()).spawn(run);
        let thread = thread.map_err(|e| format!("can't start a thread: {e}"))?;
        let awaited = || policy_of(settings) == Policy::Always;
        engine.durability.begin_log(thread.thread().clone(), awaited, engine.journal.position());
        Ok(Running { files, does, thread })
    }

    /// Tells the thread to end, in this way.
    fn stop(&self, way: u8) {
        self.does.store(way, Ordering::Release);
        self.thread.thread().unpark();
    }
}

/// Opens the directory and its manifest. Says where it is, too.
fn open_files(settings: &Settings) -> Result<(Files<Directory>, String), String> {
    let path = settings.in_dir(&settings.appenddirname.get());
    let shown = path.display().to_string();
    let directory = Directory::open(path).map_err(|e| format!("Can't open {shown}: {}", system_text(&e)))?;
    let files = Files::open(directory, &settings.appendfilename.get());
    Ok((files.map_err(|why| no_files(&shown, why))?, shown))
}

/// Takes over the file of before Redis 7, which has the name that all files begin with now, in the server's own directory. Says whether
/// there was one. It is moved first: a start that ends in between finds it where it has gone.
fn adopt_old_file(settings: &Settings, files: &mut Files<Directory>) -> Result<bool, String> {
    let name = settings.appendfilename.get();
    let (old, new) = (settings.in_dir(&name), files.disk().path().join(&*name));
    let cannot =
        |error: &io::Error| format!("Can't take {} over into {}: {}", old.display(), new.display(), system_text(error));
    if old.is_file() && !new.exists() {
        std::fs::rename(&old, &new).map_err(|error| cannot(&error))?;
        log::notice(format!(
            "{} is now {}, the base of an append-only file of several parts.",
            old.display(),
            new.display()
        ));
    }
    files.adopt().map_err(|error| cannot(&error))
}

fn policy_of(settings: &Settings) -> Policy {
    match settings.appendfsync.get() {
        AppendFsync::Always => Policy::Always,
        AppendFsync::EverySecond => Policy::EverySecond,
        AppendFsync::No => Policy::Never,
    }
}

/// Makes sure that there are no parts that a start without a manifest would leave out, or write over.
fn check_no_parts(settings: &Settings, directory: &Path) -> Result<(), String> {
    let name = settings.appendfilename.get();
    let entries = std::fs::read_dir(directory).map_err(|e| format!("{}: {}", directory.display(), system_text(&e)))?;
    let mut parts = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let is_part = path.file_name().is_some_and(|file| {
            let file = file.to_string_lossy();
            file.starts_with(&*name) && file != *name
        });
        // One that was begun and not named yet has its first line alone.
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

/// Refuses to start without an append-only file where there is a snapshot: the server would not have the snapshot's data.
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
    gathering: Gathering,
    /// When the sync began that the syncer runs, and whether nothing is taken from the journal until it has ended.
    sync_began: Option<Instant>,
    has_no_room: bool,
    /// Whether the log says already that this sync takes long.
    has_warned: bool,
    files: SharedFiles,
    /// Where the files are.
    directory: String,
    began: Instant,
    does: Arc<AtomicU8>,
    is_in_trouble: bool,
}

impl WriterThread {
    fn run(&mut self) {
        let mut dozes = 0;
        loop {
            let ends = self.does.load(Ordering::Acquire) != WRITES;
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
        // With `always`, what is written waits for a sync that `everysec` began; and so does all that is behind a cut.
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
        let has_written = self.writer.write(durability.cut())?;
        if has_written {
            self.note_write(began.elapsed());
        }
        let began = Instant::now();
        let stepped = self.writer.sync_if_due(self.began.elapsed(), durability.cut())?;
        if stepped.has_synced && policy == Policy::Always {
            self.note_latency("aof-fsync-always", began.elapsed());
            self.gathering.note_sync(began.elapsed(), Instant::now(), stepped.synced, self.engine.journal.position());
        }
        if policy != Policy::Always {
            self.gathering.follow(stepped.synced);
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
            durability.note_safe(Safety::Log, stepped.safe, |thread| inboxes[thread].wake());
            if durability.note_synced(stepped.synced) && self.engine.replication.replicas.are_awaited() {
                inboxes.iter().for_each(|inbox| inbox.send(Message::Acknowledged));
            }
        }
        Ok((has_written || stepped.has_synced || has_synced, stepped.again_after))
    }

    /// Waits a moment for units that are about to come, so that they share the next sync.
    fn gather(&mut self) {
        let (durability, journal) = (&self.engine.durability, &self.engine.journal);
        let Some(wait) = self.gathering.take() else { return };
        while journal.position() < wait.wanted && self.does.load(Ordering::Acquire) == WRITES {
            let left = wait.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            durability.note_gathering(wait.wanted);
            if journal.position() < wait.wanted {
                std::thread::park_timeout(left);
            }
            durability.note_log_thread(LogThread::Looks);
        }
        self.gathering.note_end(wait, journal.position());
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
        self.writer.finish_increment(self.began.elapsed())?;
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
        if let Err(error) = self.writer.finish_increment(self.began.elapsed()) {
            log::warning(format!("Error syncing the append-only file: {}", system_text(&error)));
        }
    }

    /// Ends the thread's part as the journal's reader, writes and syncs the journal's last units, and releases the replies that wait for
    /// the file. Does nothing when the server ends: no thread commits a unit any more, and replies that wait are never sent.
    fn leave(self) {
        let engine = self.engine;
        let ends = || self.does.load(Ordering::Acquire) == ENDS;
        let Some(alone) = engine.keyspace.gate().close_unless(ends) else { return };
        if ends() {
            return;
        }
        let (merge, mut appender) = self.writer.end();
        let last = engine.journal.position();
        engine.journal.end_alone(merge);
        drop(alone);
        // Outside of the gate, for the disk may take long.
        let synced = appender.write().and_then(|()| appender.sync()).and_then(|()| appender.trim());
        if let Err(error) = synced {
            log::warning(format!("Error syncing the append-only file: {}", system_text(&error)));
        }
        engine.durability.end_log(last, |thread| engine.inboxes[thread].wake());
    }
}
