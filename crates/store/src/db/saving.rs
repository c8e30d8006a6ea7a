//! What a change to a database owes a snapshot that runs: see [`crate::snapshot`].

use super::Db;
use crate::entry::Entry;
use crate::keyspace::{Key, Keyspace, Shard};
use crate::snapshot::Saving;

impl Db<'_, '_> {
    /// Saves the key's entry, if a snapshot runs that has not done so. To be called before an entry is changed, replaced
    /// or removed.
    #[inline(always)]
    pub(super) fn save_before_change(&mut self, key: Key<'_>) {
        if self.locked.keyspace().snapshots().runs() {
            self.save_now(key);
        }
    }

    #[cold]
    #[inline(never)]
    fn save_now(&mut self, key: Key<'_>) {
        let shard = self.locked.keyspace().shard_of(key.hash);
        let (shard, mut saving) = self.locked.with_saver(self.first, shard);
        save_in(shard, saving.as_mut(), key);
    }
}

/// The same in a shard that is visited.
pub(super) fn save_in(shard: &mut Shard, saving: Option<&mut Saving<'_>>, key: Key<'_>) {
    if let Some(saving) = saving
        && let Some(mut entry) = shard.table.find_mut(key.hash, key.bytes)
    {
        saving.save_early(&mut entry);
    }
}

/// An entry that is about to be put into a table: a snapshot that runs must not save it.
#[inline]
pub(super) fn born(keyspace: &Keyspace, mut entry: Entry) -> Entry {
    if keyspace.snapshots().runs() {
        entry.set_mark(keyspace.snapshots().mark());
    }
    entry
}

/// A shard that is being flushed, unless a snapshot keeps it.
pub(super) fn unless_unsaved(shard: Shard, saving: Option<Saving<'_>>) -> Option<Shard> {
    match saving {
        Some(saving) => saving.keep(shard),
        None => Some(shard),
    }
}
