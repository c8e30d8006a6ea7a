//! MIGRATE: keys on their way to another server.
//!
//! The command dumps its keys while it holds their shards, and hands the dumps to the server
//! ([`crate::host::Host::migrate`]), which does the I/O on its own threads; the connection waits, but its thread does
//! not. Until the other server has replied, commands that would change the keys wait, but readers don't. Then the
//! connection's thread deletes the keys that have arrived. A key that has changed nevertheless, for example by a script
//! with undeclared keys, is not deleted but sent again: each key is watched like with WATCH.
//!
//! The same block holds the keys of whole slots while another node takes them over (`Migrations::hold_slots`).

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::{Slot, SlotSet};
use store::hash::{self, KeyHash};

use crate::listening::watch::{DbKey, Mark};
use crate::slow_path::{EngineFlags, MIGRATES};

/// Maximum size of all values in transit, in bytes, over all connections. A single command may exceed it.
const BYTES_MAX: usize = 1 << 30;
/// Reply if there is no connection.
pub(crate) const CANNOT_CONNECT: &str = "IOERR error or timeout connecting to the client";

/// Login of a connection at the other server.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// The password of the default user.
    Password(Vec<u8>),
    /// A user's name and password.
    User(Vec<u8>, Vec<u8>),
}

/// A key with its dumped value.
pub struct MigratingKey {
    /// Its name.
    pub name: Box<[u8]>,
    /// The name's hash.
    pub hash: KeyHash,
    /// The value in RESTORE's format.
    pub payload: Vec<u8>,
    /// The expiry, in milliseconds of Unix time.
    pub expires_ms: Option<u64>,
    /// Set when the key changes.
    pub changed: Mark,
    /// True if the other server has stored it. Set by the server.
    pub has_arrived: bool,
}

/// The reason why keys haven't arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MigrationError {
    /// The connection could not be opened.
    Connecting,
    /// The connection broke while the keys were sent.
    Writing,
    /// The connection broke before all replies arrived.
    Reading,
    /// The other server has refused them.
    Refused(Vec<u8>),
}

/// A MIGRATE command in progress.
pub struct Migration {
    /// Number, never reused.
    pub id: u64,
    /// The waiting connection.
    pub client: u64,
    /// The worker that owns the connection.
    pub worker: usize,
    /// The other server's host.
    pub host: String,
    /// The other server's port.
    pub port: u16,
    /// The login, if one is needed.
    pub credentials: Option<Credentials>,
    /// The database in the other server, which checks it.
    pub target_database: i64,
    /// The database in this server.
    pub database: usize,
    /// Timeout of each step, in milliseconds.
    pub timeout_ms: u64,
    /// True if the keys stay here.
    pub copies: bool,
    /// True if existing keys there are replaced.
    pub replaces: bool,
    /// True between nodes of a cluster: the other node imports the slot, and stores keys of it only after ASKING.
    pub asks: bool,
    /// The keys to send.
    pub keys: Vec<MigratingKey>,
    /// The error, set by the server.
    pub error: Option<MigrationError>,
    /// Number of times that changed keys were sent again.
    pub(crate) rounds: u32,
}

impl fmt::Debug for Migration {
    /// Leaves out passwords and values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Migration of {} keys to {}:{}", self.keys.len(), self.host, self.port)
    }
}

impl Migration {
    /// Returns the name of the command that stores a key in the other server.
    #[must_use]
    pub fn restore(&self) -> &'static [u8] {
        if self.asks { b"RESTORE-ASKING" } else { b"RESTORE" }
    }

    /// Returns the size of the values in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.iter().map(|key| key.payload.len()).sum()
    }
}

/// Keys that do not change now.
#[derive(Default)]
struct Held {
    /// Number of migrations of each key.
    keys: HashMap<DbKey, usize>,
    /// Slots that another node is taking over.
    slots: SlotSet,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.slots.is_empty()
    }
}

/// The state that all migrations share.
pub struct Migrations {
    held: Mutex<Held>,
    bytes: AtomicUsize,
    ids: AtomicU64,
    /// Ended migrations, by the thread that continues them.
    ended: Box<[Mutex<Vec<Migration>>]>,
    slow_path: Arc<EngineFlags>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic cannot leave this data inconsistent.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Migrations {
    /// Creates an empty set, for this number of threads. [`MIGRATES`] is set while there are migrations.
    #[must_use]
    pub fn new(threads: usize, slow_path: Arc<EngineFlags>) -> Migrations {
        Migrations {
            held: Mutex::default(),
            bytes: AtomicUsize::new(0),
            ids: AtomicU64::new(1),
            ended: (0..threads).map(|_| Mutex::default()).collect(),
            slow_path,
        }
    }

    /// Returns the number of the next migration.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Reserves room for the values of a migration. Returns false if too many bytes are in transit.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let fits = |now: usize| (now == 0 || now.saturating_add(bytes) <= BYTES_MAX).then(|| now + bytes);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Reserves room for values that are sent again.
    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Releases reserved room.
    pub(crate) fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Blocks commands that would change a key. The caller holds its shard.
    pub(crate) fn hold(&self, key: DbKey) {
        let mut held = lock(&self.held);
        *held.keys.entry(key).or_insert(0) += 1;
        self.slow_path.set(MIGRATES, true);
    }

    /// Ends this migration's block of a key.
    pub(crate) fn let_go(&self, key: &DbKey) {
        let mut held = lock(&self.held);
        if let Some(count) = held.keys.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                held.keys.remove(key);
            }
        }
        self.slow_path.set(MIGRATES, !held.is_empty());
    }

    /// Blocks commands that would change a key of these slots. The caller is alone behind the gate.
    pub(crate) fn hold_slots(&self, slots: &SlotSet) {
        let mut held = lock(&self.held);
        held.slots.add(slots);
        self.slow_path.set(MIGRATES, !held.is_empty());
    }

    /// Ends the block of these slots.
    pub(crate) fn let_slots_go(&self, slots: &SlotSet) {
        let mut held = lock(&self.held);
        held.slots.subtract(slots);
        self.slow_path.set(MIGRATES, !held.is_empty());
    }

    /// Returns true while commands that would change a key of some slot are blocked.
    #[must_use]
    pub fn hold_any_slot(&self) -> bool {
        !lock(&self.held).slots.is_empty()
    }

    /// Returns true if a key is in transit, or in a slot that another node is taking over.
    #[must_use]
    pub(crate) fn holds(&self, database: usize, key: &[u8]) -> bool {
        let held = lock(&self.held);
        let is_in_slots = || held.slots.contains(Slot::of_hash(hash::slot_of(key)));
        !held.keys.is_empty() && held.keys.contains_key(&(database, key.into()))
            || !held.slots.is_empty() && is_in_slots()
    }

    /// Leaves a migration that has ended, successfully or not, for the thread that continues it. The caller notifies
    /// that thread ([`crate::inbox::Message::Migrated`]).
    pub fn leave(&self, migration: Migration) {
        if let Some(ended) = self.ended.get(migration.worker) {
            lock(ended).push(migration);
        }
    }

    /// Takes the ended migrations of a thread.
    pub(crate) fn take_ended(&self, worker: usize) -> Vec<Migration> {
        self.ended.get(worker).map(|ended| std::mem::take(&mut *lock(ended))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_held_until_the_last_migration_lets_it_go() {
        let slow_path = Arc::<EngineFlags>::default();
        let migrations = Migrations::new(1, slow_path.clone());
        let key: DbKey = (3, b"k"[..].into());
        migrations.hold(key.clone());
        migrations.hold(key.clone());
        assert!(migrations.holds(3, b"k") && !migrations.holds(0, b"k") && slow_path.has(MIGRATES));
        migrations.let_go(&key);
        assert!(migrations.holds(3, b"k") && slow_path.has(MIGRATES));
        migrations.let_go(&key);
        assert!(!migrations.holds(3, b"k") && !slow_path.has(MIGRATES));
    }

    #[test]
    fn the_keys_of_held_slots_are_held_in_all_databases() {
        let slow_path = Arc::<EngineFlags>::default();
        let migrations = Migrations::new(1, slow_path.clone());
        let slots: SlotSet = std::iter::once(Slot::of_hash(hash::slot_of(b"{a}"))).collect();
        migrations.hold((0, b"k"[..].into()));
        migrations.hold_slots(&slots);
        assert!(migrations.holds(0, b"{a}1") && migrations.holds(3, b"a") && !migrations.holds(0, b"b"));
        migrations.let_go(&(0, b"k"[..].into()));
        assert!(slow_path.has(MIGRATES));
        migrations.let_slots_go(&slots);
        assert!(!migrations.holds(0, b"{a}1") && !slow_path.has(MIGRATES));
    }

    #[test]
    fn a_single_value_may_exceed_the_limit() {
        let migrations = Migrations::new(1, Arc::default());
        assert!(migrations.reserve(BYTES_MAX * 2));
        assert!(!migrations.reserve(1));
        migrations.release(BYTES_MAX * 2);
        assert!(migrations.reserve(BYTES_MAX) && !migrations.reserve(1));
    }
}
