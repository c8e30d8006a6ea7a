//! Loads the data at startup, beside the threads that serve clients. Their replies say that the data are being loaded.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use config::Settings;
use engine::replay::Replay;
use engine::snapshots::reading::{ExpiredKeys, LoadOptions};
use engine::state::Engine;
use engine::worker::Worker;
use replication::id::HistoryPoint;

use crate::append_only::AppendOnly;
use crate::conf_file::system_text;
use crate::log;
use crate::process;
use crate::replica::configured_primary;
use crate::threads;
use crate::time::now_us;

/// Interval between lines about the progress in the log.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Interval between checks for a cancelled load.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Success, or the reason why the data can't be loaded.
pub type LoadOutcome = Result<(), String>;

/// The thread that loads the data.
pub struct Loader(Receiver<LoadOutcome>);

impl Loader {
    /// Begins to load. Commands are refused until all data are loaded. The append-only file is written from then on, if it is on.
    ///
    /// # Errors
    /// If no other thread can be started.
    pub fn start(engine: &'static Engine, append_only: Arc<AppendOnly>) -> Result<Loader, String> {
        let (sender, receiver) = channel();
        engine.begin_loading(now_us() / 1_000_000);
        let run = move || {
            // Its number is beyond the numbers of the threads that serve clients.
            let mut worker = Worker::new(engine.inboxes.len(), engine, process::random_seed());
            let loaded = load(engine, &append_only, &mut worker);
            if loaded.is_ok() {
                // Before clients may write.
                follow_primary(engine);
                engine.end_loading();
            }
            // The receiver is gone if the server ends.
            let _ = sender.send(loaded);
        };
        let thread = threads::spawn(&threads::LOADER, run);
        thread.map_err(threads::cannot_start)?;
        Ok(Loader(receiver))
    }

    /// Waits for the end of the load up to `duration`. Returns `None` if it continues.
    pub fn wait(&self, duration: Duration) -> Option<LoadOutcome> {
        match self.0.recv_timeout(duration) {
            Ok(loaded) => Some(loaded),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err("the thread that loads data has ended".into())),
        }
    }

    /// Waits for the end of the load, or until `gives_up` returns true.
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

/// Begins to follow the configured primary, if there is one.
fn follow_primary(engine: &'static Engine) {
    if let Some(primary) = configured_primary(&engine.settings) {
        let _alone = engine.keyspace.gate().close();
        engine.follow(Some(primary), now_us() / 1000);
    }
}

/// Starts a thread that reloads the append-only file and then ends the pause of all commands. The process ends if the file can't be loaded,
/// like in Redis.
///
/// # Errors
/// If no other thread can be started.
pub fn reload(engine: &'static Engine, append_only: Arc<AppendOnly>) -> Result<(), String> {
    let run = move || {
        let mut worker = Worker::new(engine.inboxes.len(), engine, process::random_seed());
        if let Err(why) = append_only.restart(engine, &mut worker) {
            log::warning(why);
            std::process::exit(1);
        }
        engine.end_reloading();
    };
    let thread = threads::spawn(&threads::LOADER, run);
    thread.map_err(threads::cannot_start)?;
    Ok(())
}

/// Reads the append-only file and begins to write it, if it is on. Otherwise reads the snapshot, if there is one.
fn load(engine: &'static Engine, append_only: &AppendOnly, worker: &mut Worker) -> LoadOutcome {
    if engine.settings.appendonly.get() {
        return append_only.start(engine, worker);
    }
    warn_of_append_only_file(&engine.settings);
    load_snapshot(engine, worker)
}

/// Warns of an append-only file that is not read.
fn warn_of_append_only_file(settings: &Settings) {
    // A directory of this name since Redis 7, and a file before.
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
/// Names the file that can't be read or is damaged, the place, and the remedy.
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

/// Resumes the history of the loaded data, with a primary or with returning replicas.
fn resume_history(engine: &'static Engine, point: HistoryPoint) {
    let HistoryPoint { id, offset, .. } = point;
    log::notice(format!("The data belong to the history {id}, at offset {offset}"));
    let follows = configured_primary(&engine.settings).is_some();
    let _alone = engine.keyspace.gate().close();
    engine.replication.resume(&engine.journal, point, follows);
}

/// Notes the progress in a file, and logs it now and then.
pub fn say_progress(engine: &Engine, name: &str, read: u64, bytes: u64, said: &mut Instant) {
    engine.snapshots.loading.note(read);
    if said.elapsed() >= PROGRESS_EVERY {
        *said = Instant::now();
        log::notice(format!("Loading {name}: {} of {} MB", read >> 20, bytes >> 20));
    }
}

/// The message for a snapshot that can't be loaded.
pub fn bad_snapshot(name: &str, why: &str) -> String {
    format!(
        "Can't load the snapshot {name}: {why}. The server does not start without its data: restore the file from a backup, or move \
         it away to start empty."
    )
}
