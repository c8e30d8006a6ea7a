//! Expiring fields of hashes: when a shard looks for them, and their removal.
//!
//! [`Db::reclaim`] removes expired fields soon after their time. Until then no command sees them: reads go through the
//! view of living fields ([`TimedHash::living`]). A command that writes fields first removes the expired ones among
//! them ([`Db::expire_fields`]), so that the journal records this removal before the command.

use super::{Change, Db, Event, Seen, SideEffects, WrongType, saving};
use crate::hash::KeyHash;
use crate::keyspace::{Key, Shard};
use crate::snapshot::Saving;
use crate::table::RefMut;
use crate::types::timed_hash::TimedHash;
use crate::value::Object;

impl SideEffects {
    /// Returns true if the names of expired fields are to be listed.
    fn lists_fields(&self) -> bool {
        self.list & Event::FieldsExpired as u8 != 0
    }

    /// Notes that `count` fields have expired. `names` holds their names, if these are listed.
    fn note_fields_expired(&mut self, database: usize, key: &[u8], count: usize, names: Vec<Box<[u8]>>) {
        self.expired_fields += count as u64;
        if count > 0 && self.lists_fields() {
            self.seen.push(Seen { event: Event::FieldsExpired, database, key: key.into(), fields: names });
        }
    }
}

impl Db<'_, '_> {
    /// Notes the next expiry of a field in a key's hash.
    pub(super) fn note_field(&mut self, hash: KeyHash, at_ms: u64) {
        self.shard_mut(hash).note_field(at_ms, hash);
        self.locked.keyspace().mark_timed_fields(self.database);
    }

    /// Runs `change` on the key's hash and converts it to one with expiring fields. Returns None if the key does not
    /// exist.
    ///
    /// # Errors
    /// If the key holds another type.
    pub fn change_timed<T>(
        &mut self,
        key: Key<'_>,
        change: impl FnOnce(&mut TimedHash) -> T,
    ) -> Result<Option<T>, WrongType> {
        let Some(entry) = self.get_mut(key) else { return Ok(None) };
        let hash = entry.into_object().and_then(|value| value.timed_hash_mut()).ok_or(WrongType)?;
        let before = hash.next_expiry();
        let changed = change(hash);
        // A note at an earlier time is enough.
        if let Some(at) = hash.next_expiry()
            && before.is_none_or(|before| before > at)
        {
            self.note_field(key.hash, at);
        }
        Ok(Some(changed))
    }

    /// Removes the expired ones among the named fields of a key's hash, for a command that is about to write them.
    /// Returns true if there were any; the hash may be empty then.
    pub fn expire_fields<'f>(&mut self, key: Key<'_>, names: impl Iterator<Item = &'f [u8]>) -> bool {
        let now = self.clock.due_ms;
        let shard = self.locked.keyspace().shard_of(key.hash);
        let (shard, mut saving) = self.locked.with_saver(self.first, shard);
        let Some(entry) = shard.table.find(key.hash, key.bytes) else { return false };
        let Some(hash) = entry.timed_hash().filter(|hash| hash.next_expiry().is_some_and(|at| at < now)) else {
            return false;
        };
        let mut due: Vec<_> = names.filter(|name| hash.has_due(name, now)).map(Box::<[u8]>::from).collect();
        // The same field may be named twice.
        due.sort_unstable();
        due.dedup();
        if due.is_empty() {
            return false;
        }
        saving::save_in(shard, saving.as_mut(), Change::Altered, key);
        if let Some(hash) = timed_in(shard, key) {
            due.iter().for_each(|name| _ = hash.remove(name));
        }
        self.observed.note_fields_expired(self.database, key.bytes, due.len(), due);
        true
    }

    /// Removes up to `limit` expired fields of a shard's hashes. Returns true if there may be more.
    pub(super) fn reclaim_fields(&mut self, shard: usize, limit: usize) -> bool {
        let (now, database) = (self.clock.due_ms, self.database);
        let observed = &mut *self.observed;
        let reaper = self.locked.keyspace().reaper();
        let more = self.locked.visit_with_saver(database, shard, |s, mut saving| {
            let mut left = limit;
            while left > 0 {
                let Some(note) = s.pop_due_field(now) else { return false };
                left -= 1;
                let next = |hash: &TimedHash| hash.next_expiry();
                let is_due = |hash: &TimedHash| next(hash).is_some_and(|at| at < now);
                let found = s.table.find_where(note.hash, |e| e.timed_hash().is_some_and(is_due));
                let Some(name) = found.map(|e| Box::<[u8]>::from(e.key())) else {
                    let later = s.table.find_where(note.hash, |e| e.timed_hash().and_then(next).is_some());
                    if let Some(at) = later.and_then(|e| e.timed_hash().and_then(next)) {
                        s.note_field(at, note.hash);
                    }
                    continue;
                };
                let key = Key { bytes: &name, hash: note.hash };
                left = left.saturating_sub(expire_in(s, saving.as_mut(), key, now, left.max(1), (database, observed)));
                match timed_in(s, key) {
                    Some(hash) if hash.is_empty() => {
                        saving::save_in(s, saving.as_mut(), Change::Lost, key);
                        if let Some(entry) = s.table.remove(key.hash, key.bytes) {
                            s.volatile -= usize::from(entry.expiry().is_some());
                            reaper.free_expired(entry);
                        }
                        observed.note(Event::Drained, database, &name);
                    }
                    Some(hash) => {
                        if let Some(at) = hash.next_expiry() {
                            s.note_field(at, note.hash);
                        }
                    }
                    None => {}
                }
            }
            true
        });
        more.unwrap_or(false)
    }
}

/// Returns the key's hash, if it has expiring fields.
fn timed_in<'s>(shard: &'s mut Shard, key: Key<'_>) -> Option<&'s mut TimedHash> {
    let entry = shard.table.find_mut(key.hash, key.bytes);
    entry.and_then(RefMut::into_object).and_then(TimedHash::of_mut)
}

/// Removes up to `limit` expired fields of a key's hash. Returns how much of `limit` it has used.
fn expire_in(
    shard: &mut Shard,
    saving: Option<&mut Saving<'_>>,
    key: Key<'_>,
    now_ms: u64,
    limit: usize,
    (database, observed): (usize, &mut SideEffects),
) -> usize {
    saving::save_in(shard, saving, Change::Altered, key);
    let Some(hash) = timed_in(shard, key) else { return 0 };
    let (lists, mut names, mut count) = (observed.lists_fields(), Vec::new(), 0);
    let used = hash.take_due(now_ms, limit, |name| {
        count += 1;
        if lists {
            names.push(Box::from(name));
        }
    });
    observed.note_fields_expired(database, key.bytes, count, names);
    used
}
