//! Snapshots in progress: for replicas, or for a new base of the append-only file. Each step does a part of the work of
//! the server's thread.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::replication::peer::SentSnapshot;
use engine::snapshots::{Outcome, Outlet, Piece, Purpose};
use engine::state::Engine;
use persistence::fake::FakeDisk;
use persistence::saving::{PartialRecords, SnapshotFile};
use replication::transfer::MARK_BYTES;

use crate::log::SimLog;

/// The end of a snapshot without a checksum.
const NO_CHECKSUM: [u8; 8] = [0; 8];

/// A snapshot for replicas, in memory.
pub struct MemorySpool {
    cut: u64,
    mark: [u8; MARK_BYTES],
    bytes: Mutex<Vec<u8>>,
    /// 0 while it is written, then 1 for a complete snapshot, or 2 after a failure.
    end: AtomicU8,
}

impl MemorySpool {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns some of the bytes from `at` on.
    #[must_use]
    pub fn read(&self, at: u64, room: usize) -> Vec<u8> {
        self.lock().iter().skip(at as usize).take(room).copied().collect()
    }
}

impl SentSnapshot for MemorySpool {
    fn cut(&self) -> u64 {
        self.cut
    }

    fn mark(&self) -> [u8; MARK_BYTES] {
        self.mark
    }

    fn written(&self) -> (u64, bool) {
        (self.lock().len() as u64, self.end.load(Ordering::Relaxed) == 1)
    }

    fn has_ended(&self) -> bool {
        self.end.load(Ordering::Relaxed) != 0
    }

    fn has_failed(&self) -> bool {
        self.end.load(Ordering::Relaxed) == 2
    }
}

/// A snapshot that the engine has begun.
pub struct BegunSnapshot {
    /// The purpose of the snapshot.
    pub purpose: Purpose,
    /// The sender of its pieces.
    pub outlet: Arc<Outlet>,
    /// The receiver of its pieces.
    pub pieces: Receiver<Piece>,
    /// The number of the append-only file at the cut.
    pub log: u64,
    /// The last increment of the append-only file at the cut.
    pub last: u64,
}

enum Target {
    Replicas(Arc<MemorySpool>),
    /// The base of the append-only file of this number, and the last increment that it replaces; the next increment follows the base.
    Base {
        file: Option<SnapshotFile<FakeDisk>>,
        log: u64,
        last: u64,
    },
}

/// See the module's documentation.
pub struct SimSaving {
    outlet: Arc<Outlet>,
    pieces: Receiver<Piece>,
    target: Target,
    records: PartialRecords<FakeDisk>,
    has_all: bool,
    /// True if the disk has failed: the walk continues, but its data is discarded.
    is_broken: bool,
}

impl SimSaving {
    /// Begins to receive a snapshot's pieces. `mark` is a byte sequence that occurs in no snapshot.
    pub fn begin(
        engine: &Engine,
        begun: BegunSnapshot,
        disk: &FakeDisk,
        mark: [u8; MARK_BYTES],
    ) -> (SimSaving, Option<Arc<MemorySpool>>) {
        let records = PartialRecords::new(disk.clone(), "temp".into());
        let (target, spool) = if begun.purpose == Purpose::Replicas {
            let cut = engine.replication.stream.cut();
            let spool = Arc::new(MemorySpool { cut, mark, bytes: Mutex::default(), end: AtomicU8::new(0) });
            (Target::Replicas(spool.clone()), Some(spool))
        } else {
            let (log, last) = (begun.log, begun.last);
            engine.durability.note_rewrite(true);
            let file = SnapshotFile::begin(disk.clone(), "temp-base".into()).ok();
            (Target::Base { file, log, last }, None)
        };
        let is_broken = matches!(&target, Target::Base { file: None, .. });
        if is_broken {
            begun.outlet.note_broken();
        }
        let (outlet, pieces) = (begun.outlet, begun.pieces);
        (SimSaving { outlet, pieces, target, records, has_all: false, is_broken }, spool)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.target {
            Target::Replicas(spool) => spool.lock().extend_from_slice(bytes),
            Target::Base { file, .. } => {
                if let Some(file) = file {
                    file.write(bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Takes up to `count` pieces. `log` is the present append-only file, with its number. Returns the outcome once the snapshot has ended.
    pub fn step(&mut self, engine: &Engine, log: Option<(&mut SimLog, u64)>, count: usize) -> Option<Outcome> {
        if self.is_broken {
            return self.wait_for_walk(engine);
        }
        self.take(engine, log, count).unwrap_or_else(|_| {
            self.is_broken = true;
            self.outlet.note_broken();
            None
        })
    }

    /// Waits for the end of the walk and discards its pieces.
    fn wait_for_walk(&mut self, engine: &Engine) -> Option<Outcome> {
        while !self.has_all {
            match self.pieces.try_recv() {
                Ok(Piece::Bytes(bytes) | Piece::Part { bytes, .. }) => self.note_done(engine, bytes.len()),
                Ok(Piece::RecordEnd(_)) => {}
                Ok(Piece::Whole | Piece::Cancelled) | Err(TryRecvError::Disconnected) => self.has_all = true,
                Err(TryRecvError::Empty) => return None,
            }
        }
        Some(Outcome::Failed)
    }

    fn take(&mut self, engine: &Engine, log: Option<(&mut SimLog, u64)>, count: usize) -> io::Result<Option<Outcome>> {
        for _ in 0..count {
            if self.has_all {
                return self.finish(engine, log);
            }
            match self.pieces.try_recv() {
                Ok(Piece::Bytes(bytes)) => {
                    self.write(&bytes)?;
                    self.note_done(engine, bytes.len());
                }
                Ok(Piece::Part { record, bytes }) => {
                    self.records.add(record, &bytes)?;
                    self.note_done(engine, bytes.len());
                }
                Ok(Piece::RecordEnd(record)) => {
                    let mut whole = Vec::new();
                    self.records.take(record, |bytes| {
                        whole.extend_from_slice(bytes);
                        Ok(())
                    })?;
                    self.write(&whole)?;
                }
                Ok(Piece::Whole) => {
                    self.has_all = true;
                    self.write(&NO_CHECKSUM)?;
                }
                Ok(Piece::Cancelled) | Err(TryRecvError::Disconnected) => return Ok(Some(Outcome::Cancelled)),
                Err(TryRecvError::Empty) => return Ok(None),
            }
        }
        Ok(None)
    }

    fn note_done(&self, engine: &Engine, bytes: usize) {
        self.outlet.note_done(bytes);
        engine.snapshots.note_pending(self.outlet.pending());
    }

    fn finish(&mut self, engine: &Engine, log: Option<(&mut SimLog, u64)>) -> io::Result<Option<Outcome>> {
        let (file, number, last) = match &mut self.target {
            Target::Replicas(spool) => return Ok(Some(Outcome::Saved { bytes: spool.written().0 })),
            Target::Base { file, log, last } => (file, *log, *last),
        };
        // A later append-only file has other data.
        let log = log.filter(|(_, present)| *present == number).map(|(log, _)| log);
        // The log begins the increment once it has written everything before the cut.
        if engine.durability.is_cut() {
            return Ok(None);
        }
        let (Some(mut file), Some(log)) = (file.take(), log) else { return Ok(Some(Outcome::Cancelled)) };
        file.sync()?;
        let bytes = file.len();
        let (name, sequence) = log.files.next_base("rdb");
        let first = log.files.manifest().last_increment().map(|part| part.sequence).filter(|&sequence| sequence > last);
        let Some(first) = first else { return Ok(Some(Outcome::Cancelled)) };
        file.finish(&name)?;
        log.files.install_base(name, sequence, first)?;
        engine.durability.note_whole(true);
        Ok(Some(Outcome::Saved { bytes }))
    }

    /// Records the outcome.
    pub fn end(self, engine: &Engine, outcome: Outcome, now_s: u64) {
        if let Target::Replicas(spool) = &self.target {
            let end = if matches!(outcome, Outcome::Saved { .. }) { 1 } else { 2 };
            spool.end.store(end, Ordering::Relaxed);
        }
        engine.durability.note_rewrite(false);
        engine.snapshots.note_ended(outcome, now_s);
        engine.follow_snapshots();
    }
}
