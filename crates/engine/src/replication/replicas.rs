//! The replicas of this server, as all threads see them: how far each is, and what clients wait for that depends on it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::order::Position;

use crate::reasons::{EngineReasons, FEW_REPLICAS};

/// What a replica says of itself before it asks for the stream (REPLCONF).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaIntroduction {
    /// The port that clients find it at.
    pub port: u16,
    /// The address that clients find it at, if it isn't the one that it connects from.
    pub address: Option<String>,
    /// Whether it takes a snapshot that a mark ends.
    pub takes_marked: bool,
    /// Whether it follows a history that changes its name.
    pub follows_names: bool,
    /// The version that it says it is.
    pub version: String,
}

/// What a replica asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All data, and the stream from there on.
    All,
    /// The stream behind this offset of this history, or all data.
    Behind(replication::id::HistoryId, u64),
    /// All data without another word: SYNC, of before PSYNC.
    AllUnannounced,
}

/// What a client waits for (WAIT, WAITAOF): that so many others have what it has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// Its last unit.
    pub position: Position,
    /// So many replicas.
    pub replicas: u64,
    /// Whether this server's disk is to have it, too, and the disks of the replicas instead of their memory.
    pub on_disk: Option<bool>,
    /// How long it waits, in milliseconds; for ever, if none.
    pub timeout_ms: Option<u64>,
}

/// How far a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaStage {
    /// A snapshot is awaited.
    AwaitsSnapshot,
    /// A snapshot is being sent.
    Receives,
    /// The stream is being sent.
    Online,
}

impl ReplicaStage {
    /// As INFO says it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReplicaStage::AwaitsSnapshot => "wait_bgsave",
            ReplicaStage::Receives => "send_bulk",
            ReplicaStage::Online => "online",
        }
    }
}

/// What is known of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFigures {
    /// Its connection.
    pub client: u64,
    /// Where clients find it.
    pub address: String,
    /// See `address`.
    pub port: u16,
    /// How far it is.
    pub stage: ReplicaStage,
    /// Bytes of the history that it has acknowledged.
    pub offset: u64,
    /// Bytes of it that its append-only file has on disk.
    pub synced: u64,
    /// The last units that are in these.
    pub position: Position,
    /// See `position`.
    pub synced_position: Position,
    /// When it last said how far it is, in milliseconds of Unix time.
    pub heard_ms: u64,
}

/// How often replicas were given what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncFigures {
    /// Snapshots.
    pub full: u64,
    /// The stream from where they were.
    pub partial: u64,
    /// A snapshot, though they asked for the stream from where they were.
    pub refused: u64,
}

/// See the module's documentation.
pub struct Replicas {
    all: Mutex<Vec<ReplicaFigures>>,
    figures: Mutex<SyncFigures>,
    /// Those that have said how far they are not too long ago.
    good: AtomicU64,
    /// For each thread, whether a client of it waits for what they have.
    awaited: Box<[AtomicBool]>,
    reasons: Arc<EngineReasons>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is always whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replicas {
    pub(super) fn new(threads: usize, reasons: Arc<EngineReasons>) -> Replicas {
        let awaited = (0..threads).map(|_| AtomicBool::new(false)).collect();
        Replicas { all: Mutex::default(), figures: Mutex::default(), good: AtomicU64::new(0), awaited, reasons }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<ReplicaFigures> {
        lock(&self.all).clone()
    }

    /// Notes how far all of them are.
    pub fn note(&self, all: Vec<ReplicaFigures>) {
        *lock(&self.all) = all;
    }

    /// How many have this unit, in memory or on their disks.
    #[must_use]
    pub fn having(&self, position: Position, on_disk: bool) -> u64 {
        let has = |replica: &&ReplicaFigures| {
            let reached = if on_disk { replica.synced_position } else { replica.position };
            replica.stage == ReplicaStage::Online && reached >= position
        };
        lock(&self.all).iter().filter(has).count() as u64
    }

    /// Notes whether a client of a thread waits for what they have, or for what the disk has.
    pub fn note_awaited(&self, thread: usize, is_awaited: bool) {
        if let Some(awaited) = self.awaited.get(thread) {
            awaited.store(is_awaited, Ordering::SeqCst);
        }
    }

    /// Whether any client does.
    #[must_use]
    pub fn are_awaited(&self) -> bool {
        self.awaited.iter().any(|awaited| awaited.load(Ordering::SeqCst))
    }

    /// How often they were given what.
    #[must_use]
    pub fn figures(&self) -> SyncFigures {
        *lock(&self.figures)
    }

    /// Changes these figures.
    pub fn change_figures(&self, change: impl FnOnce(&mut SyncFigures)) {
        change(&mut lock(&self.figures));
    }

    /// Notes how many have said how far they are within `min-replicas-max-lag`; fewer than `wanted` have writes refused.
    pub fn note_good(&self, good: u64, wanted: u64) {
        self.good.store(good, Ordering::Relaxed);
        self.reasons.set(FEW_REPLICAS, good < wanted);
    }

    /// The same where only what is wanted has changed.
    pub fn want_good(&self, wanted: u64) {
        self.note_good(self.good(), wanted);
    }

    /// How many have said so.
    #[must_use]
    pub fn good(&self) -> u64 {
        self.good.load(Ordering::Relaxed)
    }
}
