//! The replicas of this server from all threads' view: their progress, and the clients that wait for it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::id::NodeId;
use journal::order::Position;

use crate::slow_path::{EngineFlags, FEW_REPLICAS};
use crate::snapshots::SnapshotForm;

/// The first major version of Valkey with replicas that read Valkey's format. Redis's replicas announce no version.
const VALKEY_FORM_VERSION: u64 = 9;

/// The first major version of Valkey with replicas that take over when their primary ends.
const TAKEOVER_VERSION: u64 = 9;

/// The properties that a replica announces before it asks for the stream (REPLCONF).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaIntroduction {
    /// The port for clients.
    pub port: u16,
    /// The announced address for clients, if it differs from the address of the connection.
    pub address: Option<String>,
    /// True if it accepts a snapshot with an end mark.
    pub takes_marked: bool,
    /// True if it follows a history that changes its id.
    pub follows_names: bool,
    /// True if the replica is a Penstock server, which reads Redis's snapshots and Valkey's.
    pub reads_all_forms: bool,
    /// The version that it announces.
    pub version: String,
    /// The name of its node in the cluster.
    pub node: Option<NodeId>,
}

impl ReplicaIntroduction {
    /// Returns the first number of the announced version.
    fn major(&self) -> Option<u64> {
        self.version.split('.').next().and_then(|major| major.parse().ok())
    }

    /// Returns true if the replica can take over from a primary that ends: it executes the request in its stream.
    #[must_use]
    pub fn takes_over(&self) -> bool {
        self.major().is_some_and(|major| major >= TAKEOVER_VERSION)
    }

    /// Returns the form of the snapshots that the replica reads.
    #[must_use]
    pub fn form(&self) -> SnapshotForm {
        match self.major() {
            // Only Redis's form has the names of a stream's producers.
            Some(VALKEY_FORM_VERSION..) if !self.reads_all_forms => SnapshotForm::ValkeyRdb,
            _ => SnapshotForm::Rdb,
        }
    }
}

/// The data that a replica asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All data, and the stream after them.
    All,
    /// The stream after this offset of this history, or all data.
    Behind(replication::id::HistoryId, u64),
    /// All data without an announcement: SYNC, the predecessor of PSYNC.
    AllUnannounced,
}

/// The condition that a client waits for (WAIT, WAITAOF): this number of others has its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The client's last unit.
    pub position: Position,
    /// The number of replicas.
    pub replicas: u64,
    /// `Some` for WAITAOF, which counts the replicas' disks instead of their memory; true if this server's disk must
    /// have the writes, too.
    pub on_disk: Option<bool>,
    /// The timeout in milliseconds; `None` waits for ever.
    pub timeout_ms: Option<u64>,
}

/// The progress of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaStage {
    /// The replica waits for a snapshot.
    AwaitsSnapshot,
    /// The replica receives a snapshot.
    Receives,
    /// The replica receives the stream.
    Online,
}

impl ReplicaStage {
    /// Returns the name in INFO.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ReplicaStage::AwaitsSnapshot => "wait_bgsave",
            ReplicaStage::Receives => "send_bulk",
            ReplicaStage::Online => "online",
        }
    }
}

/// The figures of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFigures {
    /// Its connection.
    pub client: u64,
    /// The address at which clients find it.
    pub address: String,
    /// The port at which clients find it.
    pub port: u16,
    /// Its progress.
    pub stage: ReplicaStage,
    /// Bytes of the history that it has acknowledged.
    pub offset: u64,
    /// Bytes of the history that its append-only file has on disk.
    pub synced: u64,
    /// The last unit within `offset`.
    pub position: Position,
    /// The last unit within `synced`.
    pub synced_position: Position,
    /// The time of its last acknowledgement, in milliseconds of Unix time.
    pub heard_ms: u64,
    /// The name of its node in the cluster.
    pub node: Option<NodeId>,
    /// See [`ReplicaIntroduction::takes_over`].
    pub takes_over: bool,
}

/// The counts of synchronizations by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncFigures {
    /// Full: with a snapshot.
    pub full: u64,
    /// Partial: the stream from the replica's offset.
    pub partial: u64,
    /// Refused partial ones, which became full.
    pub refused: u64,
}

/// See the module's documentation.
pub struct Replicas {
    all: Mutex<Vec<ReplicaFigures>>,
    figures: Mutex<SyncFigures>,
    /// The number of replicas with a recent acknowledgement.
    good: AtomicU64,
    /// For each thread: true if one of its clients waits for acknowledgements.
    awaited: Box<[AtomicBool]>,
    /// True if the next snapshot must be in Valkey's form.
    wants_valkey_form: AtomicBool,
    slow_path: Arc<EngineFlags>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics with these values half changed, so a poisoned lock is harmless.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Replicas {
    pub(super) fn new(threads: usize, slow_path: Arc<EngineFlags>) -> Replicas {
        let awaited = (0..threads).map(|_| AtomicBool::new(false)).collect();
        Replicas {
            all: Mutex::default(),
            figures: Mutex::default(),
            good: AtomicU64::new(0),
            awaited,
            wants_valkey_form: false.into(),
            slow_path,
        }
    }

    /// Returns the figures of all replicas.
    #[must_use]
    pub fn all(&self) -> Vec<ReplicaFigures> {
        lock(&self.all).clone()
    }

    /// Returns the number of replicas that receive the stream.
    #[must_use]
    pub fn online(&self) -> u64 {
        lock(&self.all).iter().filter(|replica| replica.stage == ReplicaStage::Online).count() as u64
    }

    /// Sets the figures of all replicas.
    pub fn note(&self, all: Vec<ReplicaFigures>) {
        *lock(&self.all) = all;
    }

    /// Returns the number of replicas that have this unit, in memory or on their disks.
    #[must_use]
    pub fn having(&self, position: Position, on_disk: bool) -> u64 {
        let has = |replica: &&ReplicaFigures| {
            let reached = if on_disk { replica.synced_position } else { replica.position };
            replica.stage == ReplicaStage::Online && reached >= position
        };
        lock(&self.all).iter().filter(has).count() as u64
    }

    /// Notes whether a client of a thread waits for acknowledgements of replicas or of the disk.
    pub fn note_awaited(&self, thread: usize, is_awaited: bool) {
        if let Some(awaited) = self.awaited.get(thread) {
            awaited.store(is_awaited, Ordering::SeqCst);
        }
    }

    /// Sets the form of the next snapshot.
    pub fn want_form(&self, form: SnapshotForm) {
        self.wants_valkey_form.store(form == SnapshotForm::ValkeyRdb, Ordering::Relaxed);
    }

    /// Returns the form of the next snapshot.
    #[must_use]
    pub fn wanted_form(&self) -> SnapshotForm {
        if self.wants_valkey_form.load(Ordering::Relaxed) { SnapshotForm::ValkeyRdb } else { SnapshotForm::Rdb }
    }

    /// Returns whether any client waits for acknowledgements.
    #[must_use]
    pub fn are_awaited(&self) -> bool {
        self.awaited.iter().any(|awaited| awaited.load(Ordering::SeqCst))
    }

    /// Returns the counts of synchronizations.
    #[must_use]
    pub fn figures(&self) -> SyncFigures {
        *lock(&self.figures)
    }

    /// Changes the counts of synchronizations.
    pub fn change_figures(&self, change: impl FnOnce(&mut SyncFigures)) {
        change(&mut lock(&self.figures));
    }

    /// Notes the number of replicas with an acknowledgement within `min-replicas-max-lag`. Writes are refused if it is
    /// below `wanted`.
    pub fn note_good(&self, good: u64, wanted: u64) {
        self.good.store(good, Ordering::Relaxed);
        self.slow_path.set(FEW_REPLICAS, good < wanted);
    }

    /// Notes a change of the wanted number.
    pub fn want_good(&self, wanted: u64) {
        self.note_good(self.good(), wanted);
    }

    /// Returns the number of replicas with a recent acknowledgement.
    #[must_use]
    pub fn good(&self) -> u64 {
        self.good.load(Ordering::Relaxed)
    }
}
