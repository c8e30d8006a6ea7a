//! Obligations of changes towards a running snapshot: see [`crate::snapshot`].

use super::Db;
use crate::entry::Entry;
use crate::keyspace::{Key, Shard};
use crate::snapshot::{Change, Saving};

impl Db<'_, '_> {
    /// Saves the key's entry, if a running snapshot has not saved it yet. Call it before an entry is changed or
    /// removed.
    #[inline(always)]
    pub(super) fn save_before(&mut self, change: Change, key: Key<'_>) {
        if self.locked.keyspace().snapshots().runs() {
            self.save_now(change, key);
        }
    }

    #[cold]
    #[inline(never)]
    fn save_now(&mut self, change: Change, key: Key<'_>) {
        let shard = self.locked.keyspace().shard_of(key.hash);
        let (shard, mut saving) = self.locked.with_saver(self.first, shard);
        save_in(shard, saving.as_mut(), change, key);
    }

    /// Prepares a new entry for a running snapshot.
    #[inline(always)]
    pub(super) fn adopt(&mut self, key: Key<'_>, entry: &mut Entry) {
        if self.locked.keyspace().snapshots().runs() {
            self.adopt_now(key, entry);
        }
    }

    #[cold]
    #[inline(never)]
    fn adopt_now(&mut self, key: Key<'_>, entry: &mut Entry) {
        let shard = self.locked.keyspace().shard_of(key.hash);
        if entry.has_walk() {
            self.locked.add_saver(shard);
        }
        if let (_, Some(mut saving)) = self.locked.with_saver(self.first, shard) {
            saving.adopt(entry);
        }
    }
}

/// Like [`Db::save_before`], for a shard that is being visited.
pub(super) fn save_in(shard: &mut Shard, saving: Option<&mut Saving<'_>>, change: Change, key: Key<'_>) {
    if let Some(saving) = saving
        && let Some(mut entry) = shard.table.find_mut(key.hash, key.bytes)
    {
        saving.save_before(change, &mut entry);
    }
}

/// Returns a shard that is being flushed, unless a snapshot keeps it.
pub(super) fn unless_unsaved(shard: Shard, saving: Option<Saving<'_>>) -> Option<Shard> {
    match saving {
        Some(saving) => saving.keep(shard),
        None => Some(shard),
    }
}
