//! Prefetching of the keyspace's memory. Each step is useful only after the previous one has arrived: the shard, the bucket, the entry, the
//! value.

use std::cell::UnsafeCell;
use std::ptr;

use super::{FirstShard, Keyspace, PaddedLock, Shard};
use crate::hash::KeyHash;
use crate::prefetch::{Ahead, prefetch, prefetch_to_write};
use crate::sync::Inside;

impl Keyspace {
    /// Returns the prefetcher of a database, for a thread that is inside this keyspace's gate.
    #[inline]
    #[must_use]
    pub fn hints<'k>(&'k self, database: usize, inside: &'k Inside<'_>) -> Hints<'k> {
        let count = self.locks.len();
        let FirstShard(first) = self.first_shard(database);
        let contended = self.contended && !inside.keeps_out();
        Hints { shards: &self.shards[first..first + count], locks: &self.locks, contended }
    }

    /// Returns the prefetcher of a database's shards. A thread need not be inside the gate.
    #[inline]
    #[must_use]
    pub fn shard_hints(&self, database: usize) -> ShardHints<'_> {
        let FirstShard(first) = self.first_shard(database);
        ShardHints(&self.shards[first..first + self.locks.len()])
    }
}

/// Prefetches the shards of keys whose buckets will be prefetched next. The shards of a cluster's slots don't fit into the cache; without
/// slots there are few shards, and they need no prefetch.
#[derive(Clone, Copy)]
pub struct ShardHints<'k>(&'k [UnsafeCell<Shard>]);

impl ShardHints<'_> {
    /// Prefetches the shard of a key with this hash.
    #[inline(always)]
    pub fn shard(&self, hash: KeyHash) {
        // Only the address matters, so no bounds check is necessary.
        prefetch(self.0.as_ptr().wrapping_add(hash.shard(self.0.len())).cast());
    }
}

/// Prefetches memory of one database for the next commands. A prefetch may come too early or too late, but it is always
/// harmless.
pub struct Hints<'k> {
    shards: &'k [UnsafeCell<Shard>],
    locks: &'k [PaddedLock],
    /// True if other threads may hold shards.
    contended: bool,
}

impl Hints<'_> {
    /// Prefetches the locks of these keys' shards, if there are locks. Each prefetch of a bucket or entry takes its
    /// shard's lock, and a lock that another core has used last is as far away as memory. Locked instructions wait for
    /// each other's cache lines; prefetches do not.
    #[inline]
    pub fn locks(&self, hashes: impl Iterator<Item = KeyHash>) {
        if self.contended {
            hashes.for_each(|hash| prefetch_to_write(ptr::from_ref(&self.locks[self.shard_of(hash)]).cast()));
        }
    }

    #[inline]
    fn shard_of(&self, hash: KeyHash) -> usize {
        hash.shard(self.shards.len())
    }

    /// Prefetches the bucket of a key with this hash.
    #[inline]
    pub fn bucket(&self, hash: KeyHash) {
        self.look(hash, (), |shard| shard.table.prefetch_bucket(hash));
    }

    /// Prefetches the entry; useful once its bucket has arrived. Returns true if the bucket is full, in which case the
    /// next bucket of the chain is prefetched instead.
    #[inline]
    pub fn entry(&self, hash: KeyHash) -> bool {
        self.look(hash, false, |shard| shard.table.prefetch_record(hash))
    }

    /// Prefetches an entry in a chained bucket; useful once that bucket has arrived.
    #[inline]
    pub fn chained_entry(&self, hash: KeyHash) {
        self.look(hash, (), |shard| shard.table.prefetch_chained(hash));
    }

    /// Prefetches the memory behind the entry's value; useful once the entry, or the memory of the previous call, has
    /// arrived. Returns true if there is more to prefetch, because the value is a collection in its big form.
    #[inline]
    pub fn value(&self, hash: KeyHash, ahead: Ahead<'_>) -> bool {
        self.look(hash, false, |shard| {
            shard.table.peek_candidate(hash).is_some_and(|entry| entry.prefetch_value(ahead))
        })
    }

    /// Reads a shard for a prefetch, unless another thread holds it.
    #[inline]
    fn look<T>(&self, hash: KeyHash, otherwise: T, look: impl FnOnce(&Shard) -> T) -> T {
        let shard = self.shard_of(hash);
        if self.contended && !self.locks[shard].0.try_lock() {
            return otherwise;
        }
        // SAFETY: either the shard is locked, or only this thread exists or is inside. The thread holds no reference
        // into a shard meanwhile, because batches prefetch between commands.
        let result = look(unsafe { &*self.shards[shard].get() });
        if self.contended {
            self.locks[shard].0.unlock();
        }
        result
    }
}
