//! Reads the append-only file at startup.

use std::io::{self, Read};
use std::time::Instant;

use config::{PropagationErrors, Settings};
use engine::replay::{FailedCommand, Replay};
use engine::snapshots::reading::{ExpiredKeys, LoadOptions};
use engine::state::Engine;
use engine::worker::Worker;
use persistence::disk::{Directory, Disk};
use persistence::files::Files;
use persistence::manifest::{Part, Role};
use persistence::recovery::{Apply, Damage, Extent, Place, read_file};

use crate::conf_file::system_text;
use crate::loading::{bad_snapshot, say_progress};
use crate::log;
use crate::time::now_us;

/// Greatest number of failed commands that are logged one by one.
const LOGGED_FAILURES_MAX: u64 = 20;

/// A load in progress: the files' commands are given to a worker.
struct Loading<'w> {
    engine: &'static Engine,
    replay: Replay<'w>,
    name: String,
    bytes: u64,
    said: Instant,
}

impl Apply for Loading<'_> {
    fn commands(&mut self, commands: &[u8], place: &Place) -> Result<(), (usize, String)> {
        let (engine, name) = (self.engine, &self.name);
        self.replay.commands_or(commands, &mut |failed| note_failed(engine, name, place.offset(failed.before), failed))
    }

    fn own(&mut self, record: &[u8]) -> Result<(), String> {
        self.replay.own(record)
    }

    fn progress(&mut self, read: u64) {
        say_progress(self.engine, &self.name, read, self.bytes, &mut self.said);
    }
}

/// Logs a command that answered an error, as Redis does, or ends the loading (`propagation-error-behavior`).
fn note_failed(engine: &Engine, file: &str, offset: u64, failed: FailedCommand) -> Result<(), String> {
    let FailedCommand { name, error, .. } = failed;
    if engine.settings.propagation_error_behavior.get() == PropagationErrors::Panic {
        return Err(format!("the command '{name}' answers '{error}' (propagation-error-behavior panic)"));
    }
    let count = engine.snapshots.loading.note_failed();
    if count <= LOGGED_FAILURES_MAX {
        log::warning(format!(
            "== CRITICAL == This AOF-loading-client is sending an error to its server: '{error}' after processing the command \
             '{name}', at byte {offset} of {file}"
        ));
    }
    Ok(())
}

/// Logs the number of commands that answered an error, unless the log has a line for each.
fn log_failures(engine: &Engine) {
    let count = engine.snapshots.loading.failed();
    if count > LOGGED_FAILURES_MAX {
        log::warning(format!("== CRITICAL == {count} commands of the append-only file answered an error in all."));
    }
}

/// Has a worker apply all files. Returns the extent of the last increment.
pub fn load(
    engine: &'static Engine,
    worker: &mut Worker,
    files: &Files<Directory>,
    directory: &str,
) -> Result<Extent, String> {
    let manifest = files.manifest();
    let parts: Vec<&Part> = manifest.base().into_iter().chain(manifest.increments()).collect();
    let began = Instant::now();
    let replay = Replay::begin(worker, now_us());
    let mut loading = Loading { engine, replay, name: String::new(), bytes: 0, said: began };
    let sizes = parts.iter().map(|part| files.disk().read(&part.name).map_or(0, |(_, bytes)| bytes));
    engine.snapshots.loading.expect(sizes.sum());
    let (mut last, mut total) = (Extent::default(), 0);
    for (index, part) in parts.iter().enumerate() {
        loading.name = format!("{directory}/{}", part.name);
        let loaded = loading.part(files, part, index + 1 == parts.len())?;
        engine.snapshots.loading.note_file(loading.bytes);
        total += loaded.whole;
        last = if part.role == Role::Increment { loaded } else { Extent::default() };
    }
    log_failures(engine);
    if !parts.is_empty() {
        let seconds = began.elapsed().as_secs_f64();
        log::notice(format!(
            "DB loaded from append only file: {seconds:.3} seconds, {} files in {directory}, {total} bytes",
            parts.len()
        ));
    }
    Ok(last)
}

impl Loading<'_> {
    /// Loads a part. Returns its extent.
    fn part(&mut self, files: &Files<Directory>, part: &Part, is_last: bool) -> Result<Extent, String> {
        let (name, disk) = (self.name.clone(), files.disk());
        let cannot_read = |error: io::Error| format!("Can't read {name}: {}", system_text(&error));
        let (mut reader, bytes) = disk.read(&part.name).map_err(cannot_read)?;
        self.bytes = bytes;
        let mut before = 0;
        if part.role == Role::Base && is_snapshot(disk, &part.name) {
            before = self.base(&name, reader)?;
            if before == bytes {
                return Ok(Extent { whole: bytes, ..Extent::default() });
            }
            // A file from before Redis 7: commands follow the snapshot in the same file.
            (reader, _) = disk.read(&part.name).map_err(cannot_read)?;
            io::copy(&mut (&mut reader).take(before), &mut io::sink()).map_err(cannot_read)?;
            self.name = format!("{name}, behind its snapshot of {before} bytes");
        }
        let mut extent = read_file(&mut reader, self).map_err(|damage| damaged(&self.name, &damage))?;
        check_end(&self.engine.settings, &self.name, extent, is_last)?;
        extent.whole += before;
        if part.role == Role::Base && before == 0 {
            self.engine.snapshots.change_figures(|figures| figures.base_bytes = extent.whole);
        }
        if !extent.is_whole() && part.role == Role::Base {
            // The part gets no more writes, and another file is about to follow it.
            files.cut(&part.name, extent).map_err(cannot_read)?;
        }
        Ok(extent)
    }

    /// Loads the snapshot at the start of a base. Returns its length in bytes.
    fn base(&mut self, name: &str, reader: Box<dyn Read + Send>) -> Result<u64, String> {
        let (engine, bytes, mut said) = (self.engine, self.bytes, Instant::now());
        // Expired keys stay: the commands that follow contain their deletions.
        let checks = engine.settings.rdbchecksum.get();
        let options = LoadOptions { expired: ExpiredKeys::Kept, checks, replaces: false, bytes: Some(bytes) };
        let progress = |read| say_progress(engine, name, read, bytes, &mut said);
        let loaded =
            self.replay.snapshot_by_threads(reader, options, progress).map_err(|why| bad_snapshot(name, &why))?;
        engine.snapshots.change_figures(|figures| {
            (figures.base_bytes, figures.loaded_keys) = (loaded.bytes, loaded.keys);
        });
        Ok(loaded.bytes)
    }
}

/// Returns true if a base begins with a snapshot. Its name need not tell.
fn is_snapshot(disk: &Directory, name: &str) -> bool {
    let mut start = [0; 5];
    let read = disk.read(name).and_then(|(mut reader, _)| reader.read_exact(&mut start));
    read.is_ok() && (start.starts_with(b"REDIS") || start.starts_with(b"VALKE"))
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

/// Accepts or refuses a file with a torn end.
fn check_end(settings: &Settings, name: &str, extent: Extent, is_last: bool) -> Result<(), String> {
    let Extent { whole, torn, .. } = extent;
    if extent.is_whole() {
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
