//! MIGRATE: keys that are on their way to another server.
//!
//! The command dumps its keys while it holds their shards, and hands what is to be sent to the server ([`crate::host::Host::migrate`]),
//! which does the I/O on threads of its own; the connection waits, the thread does not. Until the other server has answered, commands
//! that would change the keys wait, and those that read them don't. When it has, the connection's thread removes what has arrived.
//! A key that has changed nevertheless, by a script that reached for it undeclared say, is not removed but sent again: each key is
//! watched as by WATCH.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use store::hash::KeyHash;

use crate::listening::watch::{DbKey, Mark};
use crate::reasons::{EngineReasons, MIGRATES};

/// Bytes of values that may be on their way at a time, for all connections together. A single command may have more.
const BYTES_MAX: usize = 1 << 30;
/// What is answered if there is no connection.
pub(crate) const CANNOT_CONNECT: &str = "IOERR error or timeout connecting to the client";

/// What a connection says of itself to the other server.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// The password of the default user.
    Password(Vec<u8>),
    /// A user's name and password.
    User(Vec<u8>, Vec<u8>),
}

/// A key with its value as it was dumped.
pub struct MigratingKey {
    /// Its name.
    pub name: Box<[u8]>,
    /// The hash of that.
    pub hash: KeyHash,
    /// The value, as RESTORE takes it.
    pub payload: Vec<u8>,
    /// When it expires, in milliseconds of Unix time.
    pub expires_ms: Option<u64>,
    /// Set when the key changes.
    pub changed: Mark,
    /// Whether the other server has it. The server sets it.
    pub has_arrived: bool,
}

/// Why keys haven't arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MigrationError {
    /// There is no connection.
    Connecting,
    /// It broke while they were sent.
    Writing,
    /// It broke before everything was answered.
    Reading,
    /// The other server has refused them.
    Refused(Vec<u8>),
}

/// One MIGRATE.
pub struct Migration {
    /// Its number; none is given twice.
    pub id: u64,
    /// The connection that waits for it, and the thread of that.
    pub client: u64,
    /// See `client`.
    pub worker: usize,
    /// The other server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What the other server is told first.
    pub credentials: Option<Credentials>,
    /// The database there; the other server says whether it has it.
    pub target_database: i64,
    /// The database here.
    pub database: usize,
    /// How long the other server may take for each step, in milliseconds.
    pub timeout_ms: u64,
    /// Whether keys here stay.
    pub copies: bool,
    /// Whether keys there are replaced.
    pub replaces: bool,
    /// What is to be sent.
    pub keys: Vec<MigratingKey>,
    /// What went wrong. The server sets it.
    pub error: Option<MigrationError>,
    /// How often keys were sent again, since they had changed.
    pub(crate) rounds: u32,
}

impl fmt::Debug for Migration {
    /// Without passwords and values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Migration of {} keys to {}:{}", self.keys.len(), self.host, self.port)
    }
}

impl Migration {
    /// Bytes of the values.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.iter().map(|key| key.payload.len()).sum()
    }
}

/// What all migrations share.
pub struct Migrations {
    /// How many migrations each key is part of.
    held: Mutex<HashMap<DbKey, usize>>,
    bytes: AtomicUsize,
    ids: AtomicU64,
    /// By the thread that takes them up again.
    ended: Box<[Mutex<Vec<Migration>>]>,
    reasons: Arc<EngineReasons>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is always whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Migrations {
    /// None, for so many threads. [`MIGRATES`] is set while there are some.
    #[must_use]
    pub fn new(threads: usize, reasons: Arc<EngineReasons>) -> Migrations {
        Migrations {
            held: Mutex::default(),
            bytes: AtomicUsize::new(0),
            ids: AtomicU64::new(1),
            ended: (0..threads).map(|_| Mutex::default()).collect(),
            reasons,
        }
    }

    /// The number of the next one.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes room for the values of a migration. False if too many bytes are on their way.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let fits = |now: usize| (now == 0 || now.saturating_add(bytes) <= BYTES_MAX).then(|| now + bytes);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Takes room for values that are sent again.
    pub(crate) fn add_bytes(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives that room back.
    pub(crate) fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Has commands that would change a key wait. The caller holds its shard.
    pub(crate) fn hold(&self, key: DbKey) {
        let mut held = lock(&self.held);
        *held.entry(key).or_insert(0) += 1;
        self.reasons.set(MIGRATES, true);
    }

    /// Has them go on, as far as this migration is concerned.
    pub(crate) fn let_go(&self, key: &DbKey) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                held.remove(key);
            }
        }
        if held.is_empty() {
            self.reasons.set(MIGRATES, false);
        }
    }

    /// Whether a key is on its way.
    #[must_use]
    pub(crate) fn holds(&self, database: usize, key: &[u8]) -> bool {
        lock(&self.held).contains_key(&(database, key.into()))
    }

    /// Leaves a migration that has ended, well or not, with the thread that takes it up again. That one is to be told
    /// ([`crate::inbox::Message::Migrated`]).
    pub fn leave(&self, migration: Migration) {
        if let Some(ended) = self.ended.get(migration.worker) {
            lock(ended).push(migration);
        }
    }

    /// Takes what has been left with a thread.
    pub(crate) fn take_ended(&self, worker: usize) -> Vec<Migration> {
        self.ended.get(worker).map(|ended| std::mem::take(&mut *lock(ended))).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_held_until_the_last_migration_lets_it_go() {
        let reasons = Arc::<EngineReasons>::default();
        let migrations = Migrations::new(1, reasons.clone());
        let key: DbKey = (3, b"k"[..].into());
        migrations.hold(key.clone());
        migrations.hold(key.clone());
        assert!(migrations.holds(3, b"k") && !migrations.holds(0, b"k") && reasons.has(MIGRATES));
        migrations.let_go(&key);
        assert!(migrations.holds(3, b"k") && reasons.has(MIGRATES));
        migrations.let_go(&key);
        assert!(!migrations.holds(3, b"k") && !reasons.has(MIGRATES));
    }

    #[test]
    fn a_single_value_may_be_larger_than_all_together() {
        let migrations = Migrations::new(1, Arc::default());
        assert!(migrations.reserve(BYTES_MAX * 2));
        assert!(!migrations.reserve(1));
        migrations.release(BYTES_MAX * 2);
        assert!(migrations.reserve(BYTES_MAX) && !migrations.reserve(1));
    }
}
