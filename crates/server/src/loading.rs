//! Loading data at the start, beside the threads that serve clients: those answer that the data are being loaded.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use engine::config::Settings;
use engine::engine::Engine;
use engine::replay::Replay;
use engine::snapshots::reading::{ExpiredKeys, LoadOptions};
use engine::worker::Worker;
use replication::id::HistoryPoint;

use crate::append_only::AppendOnly;
use crate::conf_file::system_text;
use crate::event_loop::now_us;
use crate::log;
use crate::process;
use crate::replica::configured_primary;

/// How often the log says how far a file has been read.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// How often it is looked whether loading is to be given up.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Whether data have been loaded, or why they can't be.
pub type LoadOutcome = Result<(), String>;

/// The thread that loads the data.
pub struct Loader(Receiver<LoadOutcome>);

impl Loader {
    /// Begins to load. Commands are refused until all is there; then the append-only file is written, if there is to be one.
    ///
    /// # Errors
    /// If there can't be another thread.
    pub fn start(engine: &'static Engine, append_only: Arc<AppendOnly>) -> Result<Loader, String> {
        let (sender, receiver) = channel();
        engine.begin_loading(now_us() / 1_000_000);
        let run = move || {
            // It has a number beyond those of the threads that serve clients.
            let mut worker = Worker::new(engine.inboxes.len(), engine, process::random_seed());
            let loaded = load(engine, &append_only, &mut worker);
            if loaded.is_ok() {
                // Before clients may write.
                follow_primary(engine);
                engine.end_loading();
            }
            // The receiver has gone if the server ends.
            let _ = sender.send(loaded);
        };
        let thread = std::thread::Builder::new().name("loader".into()).spawn(run);
        thread.map_err(|error| format!("can't start a thread: {error}"))?;
        Ok(Loader(receiver))
    }

    /// Waits for the end, but no longer than this. None if it isn't there yet.
    pub fn wait(&self, duration: Duration) -> Option<LoadOutcome> {
        match self.0.recv_timeout(duration) {
            Ok(loaded) => Some(loaded),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err("the thread that loads data has ended".into())),
        }
    }

    /// Waits for the end. None if `gives_up` says so before.
    pub fn wait_unless(&self, mut gives_up: impl FnMut() -> bool) -> Option<LoadOutcome> {
        loop {
            match self.wait(LOOK_EVERY) {
                None if gives_up() => return None,
                None => {}
                loaded => return loaded,
            }
        }
    }
}

/// Begins to follow the primary that the configuration names, if it names one.
fn follow_primary(engine: &'static Engine) {
    if let Some(primary) = configured_primary(&engine.settings) {
        let _alone = engine.keyspace.gate().close();
        engine.follow(Some(primary), now_us() / 1000);
    }
}

/// Has a thread load the append-only file again, and end the pause of all commands then. The process ends if the file can't be loaded, as
/// it does in Redis.
///
/// # Errors
/// If there can't be another thread.
pub fn reload(engine: &'static Engine, append_only: Arc<AppendOnly>) -> Result<(), String> {
    let run = move || {
        let mut worker = Worker::new(engine.inboxes.len(), engine, process::random_seed());
        if let Err(why) = append_only.restart(engine, &mut worker) {
            log::warning(why);
            std::process::exit(1);
        }
        engine.end_reloading();
    };
    let thread = std::thread::Builder::new().name("loader".into()).spawn(run);
    thread.map_err(|error| format!("can't start a thread: {error}"))?;
    Ok(())
}

/// Reads the append-only file if there is to be one, and begins to write it; else the snapshot, if there is one.
fn load(engine: &'static Engine, append_only: &AppendOnly, worker: &mut Worker) -> LoadOutcome {
    if engine.settings.appendonly.get() {
        return append_only.start(engine, worker);
    }
    warn_of_append_only_file(&engine.settings);
    load_snapshot(engine, worker)
}

/// Says that there is an append-only file that is not read.
fn warn_of_append_only_file(settings: &Settings) {
    // Kept since Redis 7 as a directory of this name, and before that as a file.
    for name in [settings.appenddirname.get(), settings.appendfilename.get()] {
        let path = settings.in_dir(&name);
        if !name.is_empty() && path.exists() {
            log::warning(format!(
                "{} exists and is not read, since appendonly is off: data that only it has are not in this server.",
                path.display()
            ));
        }
    }
}

/// Has a worker load the snapshot (`dbfilename`), if there is one.
///
/// # Errors
/// If it can't be read, or is damaged: its name, where, and what to do.
fn load_snapshot(engine: &'static Engine, worker: &mut Worker) -> Result<(), String> {
    let path = engine.settings.in_dir(&engine.settings.dbfilename.get());
    let name = path.display().to_string();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("Can't read {name}: {}", system_text(&error))),
    };
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    engine.snapshots.loading.expect(bytes);
    let (began, mut said) = (Instant::now(), Instant::now());
    let checks = engine.settings.rdbchecksum.get();
    let options = LoadOptions { expired: ExpiredKeys::KeptInHistory, checks, replaces: false, bytes: Some(bytes) };
    let progress = |read| say_progress(engine, &name, read, bytes, &mut said);
    let loaded = Replay::begin(worker, now_us()).snapshot_by_threads(file, options, progress);
    let loaded = loaded.map_err(|why| bad_snapshot(&name, &why))?;
    log::notice(format!(
        "DB loaded from disk: {:.3} seconds, {} keys of {name}, {} bytes; {} more had expired",
        began.elapsed().as_secs_f64(),
        loaded.keys,
        loaded.bytes,
        loaded.expired
    ));
    engine.snapshots.change_figures(|figures| {
        (figures.loaded_keys, figures.loaded_expired) = (loaded.keys, loaded.expired);
    });
    if let Some(point) = loaded.point() {
        resume_history(engine, point);
    }
    Ok(())
}

/// Goes on in the history that the data are of: with a primary, or with replicas that come back.
fn resume_history(engine: &'static Engine, point: HistoryPoint) {
    let HistoryPoint { id, offset, .. } = point;
    log::notice(format!("The data are those of the history {id} at offset {offset}"));
    let follows = configured_primary(&engine.settings).is_some();
    let _alone = engine.keyspace.gate().close();
    engine.replication.resume(&engine.journal, point, follows);
}

/// Notes how far a file has been read, and says so in the log now and then.
pub fn say_progress(engine: &Engine, name: &str, read: u64, bytes: u64, said: &mut Instant) {
    engine.snapshots.loading.note(read);
    if said.elapsed() >= PROGRESS_EVERY {
        *said = Instant::now();
        log::notice(format!("Loading {name}: {} of {} MB", read >> 20, bytes >> 20));
    }
}

/// What is said of a snapshot that can't be loaded.
pub fn bad_snapshot(name: &str, why: &str) -> String {
    format!(
        "Can't load the snapshot {name}: {why}. The server does not start without its data: restore the file from a backup, or move \
         it away to start empty."
    )
}
