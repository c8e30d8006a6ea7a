//! Reading the append-only file at the start.

use std::io::{self, Read};
use std::time::Instant;

use engine::config::Settings;
use engine::engine::Engine;
use engine::replay::Replay;
use engine::snapshots::reading::{ExpiredKeys, LoadOptions};
use engine::worker::Worker;
use persistence::disk::{Directory, Disk, DiskFile};
use persistence::files::Files;
use persistence::manifest::{Part, Role};
use persistence::recovery::{Apply, Damage, Extent, read_file};

use crate::conf_file::system_text;
use crate::event_loop::now_us;
use crate::loading::{bad_snapshot, say_progress};
use crate::log;

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
pub fn load(
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
        loading.name = format!("{directory}/{}", part.name);
        let loaded = loading.part(files.disk(), part, index + 1 == parts.len())?;
        engine.snapshots.loading.note_file(loading.bytes);
        total += loaded;
        whole = if part.role == Role::Increment { loaded } else { 0 };
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

impl Loading<'_> {
    /// Loads a part. Says how much of it is whole.
    fn part(&mut self, disk: &Directory, part: &Part, is_last: bool) -> Result<u64, String> {
        let name = self.name.clone();
        let cannot_read = |error: io::Error| format!("Can't read {name}: {}", system_text(&error));
        let (mut reader, bytes) = disk.read(&part.name).map_err(cannot_read)?;
        self.bytes = bytes;
        let mut before = 0;
        if part.role == Role::Base && is_snapshot(disk, &part.name) {
            before = self.base(&name, reader)?;
            if before == bytes {
                return Ok(bytes);
            }
            // Of before Redis 7: commands follow in the same file.
            (reader, _) = disk.read(&part.name).map_err(cannot_read)?;
            io::copy(&mut (&mut reader).take(before), &mut io::sink()).map_err(cannot_read)?;
            self.name = format!("{name}, behind its snapshot of {before} bytes");
        }
        let extent = read_file(&mut reader, self).map_err(|damage| damaged(&self.name, &damage))?;
        check_end(&self.engine.settings, &self.name, extent, is_last)?;
        let whole = before + extent.whole;
        if part.role == Role::Base && before == 0 {
            self.engine.snapshots.change_figures(|figures| figures.base_bytes = whole);
        }
        if extent.torn > 0 && part.role == Role::Base {
            // Nothing is written to it again, and another file is to follow it.
            let (mut file, _) = disk.append(&part.name).map_err(cannot_read)?;
            file.truncate(whole).and_then(|()| file.sync()).map_err(cannot_read)?;
        }
        Ok(whole)
    }

    /// Loads the snapshot that a base is or begins with. Says how many bytes it has.
    fn base(&mut self, name: &str, reader: Box<dyn Read + Send>) -> Result<u64, String> {
        let (engine, bytes, mut said) = (self.engine, self.bytes, Instant::now());
        // What has expired is removed by the commands that follow, as they tell.
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

/// Whether a base has the form of a snapshot. Its name need not tell.
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
