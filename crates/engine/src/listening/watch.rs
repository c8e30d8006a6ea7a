//! WATCH: the sessions to notify when a key changes.
//!
//! The thread that changes a key sets its watchers' marks under the lock of the key's shard. EXEC checks its mark while
//! it holds the shards of all watched keys, so that no change can fall between the check and the transaction.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use store::hash::KeyHash;

use crate::listening::listeners::Listeners;

/// Set when a watched key changes; one mark for all keys of a session.
pub type Mark = Arc<AtomicBool>;

/// A key of a database.
pub type DbKey = (usize, Box<[u8]>);

/// The watchers of the keys of one shard.
type ShardWatchers = HashMap<DbKey, Vec<Mark>>;

/// The watchers of all keys, divided into shards like the keyspace, to avoid contention.
pub struct Watchers {
    shards: Box<[Mutex<ShardWatchers>]>,
    count: AtomicUsize,
    listeners: Arc<Listeners>,
}

impl Watchers {
    /// Creates an empty set for a keyspace with this number of shards.
    #[must_use]
    pub fn new(shards: usize, listeners: Arc<Listeners>) -> Watchers {
        Watchers { shards: (0..shards).map(|_| Mutex::default()).collect(), count: AtomicUsize::new(0), listeners }
    }

    fn with<T>(&self, shard: usize, run: impl FnOnce(&mut ShardWatchers) -> T) -> T {
        run(&mut self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns true if any key is watched.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Adds a watcher. The caller holds the key's shard.
    pub fn add(&self, shard: usize, key: DbKey, mark: &Mark) {
        self.listeners.add(KeyHash::of(&key.1));
        self.with(shard, |all| all.entry(key).or_default().push(mark.clone()));
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a watcher.
    pub fn remove(&self, shard: usize, key: &DbKey, mark: &Mark) {
        let removed = self.with(shard, |all| {
            let Some(marks) = all.get_mut(key) else { return 0 };
            let before = marks.len();
            marks.retain(|m| !Arc::ptr_eq(m, mark));
            let removed = before - marks.len();
            if marks.is_empty() {
                all.remove(key);
            }
            removed
        });
        self.count.fetch_sub(removed, Ordering::Relaxed);
        (0..removed).for_each(|_| self.listeners.remove(KeyHash::of(&key.1)));
    }

    /// Marks the watchers of a changed key. The caller holds the key's shard.
    pub fn touch(&self, shard: usize, database: usize, key: &[u8]) {
        self.with(shard, |all| {
            if all.is_empty() {
                return;
            }
            if let Some(marks) = all.get(&(database, key.into())) {
                marks.iter().for_each(|m| m.store(true, Ordering::Relaxed));
            }
        });
    }

    /// Marks the watchers of all keys for which `concerns` is true. The caller holds all shards.
    pub fn touch_where(&self, concerns: impl Fn(usize, &[u8]) -> bool) {
        // No watcher can be added meanwhile.
        if !self.any() {
            return;
        }
        for shard in 0..self.shards.len() {
            self.with(shard, |all| {
                for (_, marks) in all.iter().filter(|((db, key), _)| concerns(*db, key)) {
                    marks.iter().for_each(|m| m.store(true, Ordering::Relaxed));
                }
            });
        }
    }
}
