//! Writes snapshots to files, in a thread for each.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use engine::snapshots::{Outcome, Outlet, Piece, Purpose, SnapshotForm};
use engine::state::Engine;
use format::crc64::Crc64;
use format::rdb::trailer;
use journal::record::entries;
use persistence::block::{Encoder, FILE_START};
use persistence::disk::Directory;
use persistence::saving::{PartialRecords, SnapshotFile};

use crate::append_only::{SharedFiles, lock};
use crate::conf_file::system_text;
use crate::log;
use crate::primary::ReplicaHandoff;
use crate::primary::spool::{MARK_BYTES, SnapshotSpool};
use crate::process;
use crate::threads;
use crate::time::now_us;

/// The append-only file that gets a new base.
pub enum BaseFiles {
    /// The file is on. Changes after the base go to a new increment.
    Written(SharedFiles),
    /// The file is off. Only the base is written.
    Closed(SharedFiles),
}

/// The use of a complete file.
enum Destination {
    /// It gets this name.
    Named(String),
    /// It becomes the base of the append-only file. The increments after `last`, which the cut has begun, follow it. If `last` is `None`,
    /// no increment follows.
    Base { files: SharedFiles, last: Option<u64> },
    /// It is sent to replicas while it is written.
    Replicas(Arc<SnapshotSpool>),
}

/// Begins to write a snapshot. `files` are the files of the append-only file, if there is one.
///
/// # Errors
/// The reason why it can't be begun.
pub fn start(
    engine: &'static Engine,
    (purpose, form): (Purpose, SnapshotForm),
    files: Option<BaseFiles>,
    handoff: &Arc<ReplicaHandoff>,
    outlet: Arc<Outlet>,
    pieces: Receiver<Piece>,
) -> Result<(), String> {
    let settings = &engine.settings;
    let process = std::process::id();
    let (directory, temporary, place) = match purpose {
        Purpose::File => {
            let directory = Directory::open(settings.in_dir("")).map_err(|error| system_text(&error).to_string())?;
            (directory, format!("temp-{process}.rdb"), Destination::Named(settings.dbfilename.get().to_string()))
        }
        Purpose::Base => {
            let (files, is_written) = match files.ok_or("there is no append-only file to be rewritten")? {
                BaseFiles::Written(files) => (files, true),
                BaseFiles::Closed(files) => (files, false),
            };
            let (directory, last) = {
                let files = lock(&files);
                (files.disk().clone(), files.manifest().last_increment().map_or(0, |part| part.sequence))
            };
            let last = is_written.then_some(last);
            (directory, format!("temp-rewriteaof-bg-{process}.aof"), Destination::Base { files, last })
        }
        Purpose::Replicas => {
            let directory = Directory::open(settings.in_dir("")).map_err(|error| system_text(&error).to_string())?;
            let spool = Arc::new(SnapshotSpool::new(engine.replication.stream.cut(), mark(), form));
            handoff.begin_snapshot(spool.clone());
            (directory, format!("temp-replicas-{process}.rdb"), Destination::Replicas(spool))
        }
        Purpose::Slots => return Err("the snapshot of slots has no file".into()),
    };
    let encoding = match form {
        SnapshotForm::Rdb | SnapshotForm::ValkeyRdb => Encoding::Rdb(settings.rdbchecksum.get().then(Crc64::new)),
        SnapshotForm::Commands => Encoding::Blocks(Encoder::default()),
    };
    let mut saving = Saving { engine, outlet, pieces, encoding, place, handoff: handoff.clone(), has_all: false };
    let syncs_early = match purpose {
        Purpose::File => settings.rdb_save_incremental_fsync.get(),
        Purpose::Base => settings.aof_rewrite_incremental_fsync.get(),
        // A file that ends with the process needs no sync.
        Purpose::Replicas | Purpose::Slots => false,
    };
    let write = move || saving.run(directory, temporary, syncs_early);
    let thread = threads::spawn(&threads::SNAPSHOT, write);
    thread.map_err(threads::cannot_start)?;
    Ok(())
}

/// Returns random bytes that no snapshot contains.
fn mark() -> [u8; MARK_BYTES] {
    let digits =
        format!("{:016x}{:016x}{:016x}", process::random_seed(), process::random_seed(), process::random_seed());
    let mut mark = [0; MARK_BYTES];
    mark.iter_mut().zip(digits.bytes()).for_each(|(byte, digit)| *byte = digit);
    mark
}

/// The encoding of pieces on their way to the file.
enum Encoding {
    /// Redis's format, with a checksum if configured.
    Rdb(Option<Crc64>),
    /// Records in the form of an increment, with checksums.
    Blocks(Encoder),
}

impl Encoding {
    /// The beginning of a file, before all pieces.
    fn start(&self) -> &'static [u8] {
        match self {
            Encoding::Rdb(_) => b"",
            Encoding::Blocks(_) => FILE_START,
        }
    }

    /// Returns the encoded form of a piece.
    fn encode<'p>(&mut self, piece: &'p [u8]) -> Cow<'p, [u8]> {
        match self {
            Encoding::Rdb(sum) => {
                if let Some(sum) = sum {
                    sum.update(piece);
                }
                Cow::Borrowed(piece)
            }
            Encoding::Blocks(encoder) => {
                let mut out = Vec::with_capacity(piece.len());
                // Each on its own: together they would be a transaction.
                entries(piece).for_each(|entry| encoder.unit(std::iter::once(entry), &mut out));
                encoder.end_block(&mut out);
                Cow::Owned(out)
            }
        }
    }

    /// The end of a file, after all pieces.
    fn end(&self) -> Vec<u8> {
        match self {
            Encoding::Rdb(sum) => trailer(sum.as_ref()).to_vec(),
            Encoding::Blocks(_) => Vec::new(),
        }
    }

    /// The extension of a base's name.
    fn extension(&self) -> &'static str {
        match self {
            Encoding::Rdb(_) => "rdb",
            Encoding::Blocks(_) => "aof",
        }
    }
}

/// A snapshot that is being written.
struct Saving {
    engine: &'static Engine,
    outlet: Arc<Outlet>,
    pieces: Receiver<Piece>,
    encoding: Encoding,
    place: Destination,
    handoff: Arc<ReplicaHandoff>,
    /// True if all pieces have come.
    has_all: bool,
}

impl Saving {
    fn run(&mut self, directory: Directory, temporary: String, syncs_early: bool) {
        let began = Instant::now();
        let is_base = matches!(self.place, Destination::Base { .. });
        self.engine.durability.note_rewrite(is_base);
        let outcome = match self.write(directory, temporary, syncs_early) {
            Ok(Some(bytes)) => {
                log::notice(format!("Snapshot saved: {bytes} bytes, {:.3} seconds", began.elapsed().as_secs_f64()));
                Outcome::Saved { bytes }
            }
            Ok(None) => {
                log::notice("Snapshot cancelled");
                Outcome::Cancelled
            }
            Err(error) => {
                log::warning(format!("Failed saving the DB: {}", system_text(&error)));
                self.outlet.note_broken();
                self.wait_for_walk();
                Outcome::Failed
            }
        };
        if let Destination::Replicas(spool) = &self.place {
            spool.end(matches!(outcome, Outcome::Saved { .. }));
            self.handoff.note_progress();
        }
        self.engine.durability.note_rewrite(false);
        self.engine.snapshots.note_ended(outcome, now_us() / 1_000_000);
        self.engine.follow_snapshots();
    }

    /// Waits for the end of the walk, which continues after a failed write.
    fn wait_for_walk(&mut self) {
        while !self.has_all {
            match self.pieces.recv() {
                Ok(Piece::Bytes(bytes) | Piece::Part { bytes, .. }) => self.note_done(bytes),
                Ok(Piece::RecordEnd(_)) => {}
                Ok(Piece::Whole | Piece::Cancelled) | Err(_) => self.has_all = true,
            }
        }
    }

    /// Writes all pieces. Returns the size of the file, or `None` if the snapshot was cancelled.
    fn write(&mut self, directory: Directory, temporary: String, syncs_early: bool) -> io::Result<Option<u64>> {
        let mut records = PartialRecords::new(directory.clone(), format!("temp-{}", std::process::id()));
        let path = directory.path().join(&temporary);
        let mut file = SnapshotFile::begin(directory, temporary)?;
        if let Destination::Replicas(spool) = &self.place {
            spool.begin(&path)?;
        }
        file.syncs_early = syncs_early;
        file.write(self.encoding.start())?;
        loop {
            match self.pieces.recv() {
                Ok(Piece::Bytes(bytes)) => {
                    let written = file.write(&self.encoding.encode(&bytes));
                    self.note_done(bytes);
                    written?;
                    self.note_written(file.len());
                }
                Ok(Piece::Part { record, bytes }) => {
                    let written = records.add(record, &bytes);
                    self.note_done(bytes);
                    written?;
                }
                Ok(Piece::RecordEnd(record)) => {
                    records.take(record, |bytes| file.write(&self.encoding.encode(bytes)))?;
                }
                Ok(Piece::Whole) => break self.delay(),
                Ok(Piece::Cancelled) | Err(_) => {
                    self.has_all = true;
                    return Ok(None);
                }
            }
        }
        self.has_all = true;
        file.write(&self.encoding.end())?;
        let bytes = file.len();
        match &self.place {
            Destination::Named(name) => file.finish(name)?,
            Destination::Replicas(_) => self.note_written(bytes),
            Destination::Base { files, last } => return Ok(self.install(file, files, *last)?.then_some(bytes)),
        }
        Ok(Some(bytes))
    }

    /// Delays the end of the snapshot by `rdb-key-save-delay`, with which tests get slow snapshots.
    fn delay(&self) {
        let delay_us = || self.engine.settings.rdb_key_save_delay_us.get().max(0).unsigned_abs();
        while !self.engine.snapshots.delay_left(delay_us()).is_zero() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Announces the written bytes to replicas.
    fn note_written(&self, bytes: u64) {
        if let Destination::Replicas(spool) = &self.place {
            spool.note_len(bytes);
            self.handoff.note_progress();
        }
    }

    fn note_done(&self, bytes: Vec<u8>) {
        self.outlet.note_done(bytes.len());
        self.engine.snapshots.note_pending(self.outlet.pending());
    }

    /// Makes this base and the later increments the append-only file. Returns false if it was turned off meanwhile.
    fn install(&self, mut file: SnapshotFile<Directory>, files: &SharedFiles, last: Option<u64>) -> io::Result<bool> {
        // The log's thread begins the increment as soon as it has written the units before the cut.
        self.engine.durability.wait_for_cut();
        // Before the lock, because it may take long.
        file.sync()?;
        let mut files = lock(files);
        // The next files may have a base with this name.
        if files.are_ended() {
            return Ok(false);
        }
        let (name, sequence) = files.next_base(self.encoding.extension());
        file.finish(&name)?;
        let Some(last) = last else {
            files.install_base(name, sequence, u64::MAX)?;
            return Ok(true);
        };
        let first = files.manifest().last_increment().map(|part| part.sequence).filter(|&sequence| sequence > last);
        let first = first.ok_or_else(|| io::Error::other("no append-only file could be begun behind the snapshot"))?;
        files.install_base(name, sequence, first)?;
        self.engine.durability.note_whole(true);
        Ok(true)
    }
}
