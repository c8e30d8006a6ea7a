//! What a command's changes bring about for others: those who watch, wait or are notified.

use commands::effects::{Class, Concerns};
use store::db::{Db, Event, Seen};
use store::hash::hash;

use crate::families;
use crate::session::Session;
use crate::worker::Worker;

impl Worker {
    /// Tells watchers of changed keys, collects those that somebody waits for, and publishes notifications; `session`
    /// is the one that caused it all, if it is this thread's. The changed keys' shards are still held.
    #[cold]
    pub(crate) fn settle(&mut self, mut session: Option<&mut Session>) {
        let effects = std::mem::take(&mut self.effects);
        let seen = std::mem::take(&mut self.observed.seen);
        let (created, before): (Vec<_>, Vec<_>) = seen.into_iter().partition(|s| s.event == Event::Created);
        // A key whose time has come needs no watcher told: EXEC looks whether those that existed are still there, and
        // those that were stale already when WATCH was given have not changed.
        for Seen { event, database, key } in &before {
            if *event == Event::Expired {
                self.note_ready(*database, key);
            }
            families::notify_seen(self, session.as_deref_mut(), *event, *database, key);
        }
        // A key is created before the change that the command says it made to it. RENAME and MOVE put the new key in
        // place before they say anything.
        let mut created = created.into_iter().peekable();
        for change in effects.changes() {
            if change.class == Class::Emptied {
                // Others can find nothing in what is gone, and must not stand in front of those whose keys change next.
                self.ready.extend(self.engine.waiters.group_keys(change.database));
                continue;
            }
            self.settle_key(change.database, change.key, change.concerns);
            let moves = matches!(change.event, "rename_from" | "move_from");
            let is_due = |c: &Seen| moves || (c.database == change.database && *c.key == *change.key);
            if let Some(new) = created.next_if(is_due) {
                families::notify_seen(self, session.as_deref_mut(), new.event, new.database, &new.key);
            }
            families::notify(self, session.as_deref_mut(), change.database, change.class, change.event, change.key);
        }
        for new in created {
            families::notify_seen(self, session.as_deref_mut(), new.event, new.database, &new.key);
        }
        self.effects = effects;
        self.effects.clear();
    }

    /// Tells those of a changed key's watchers and waiters whom it concerns.
    fn settle_key(&mut self, database: usize, key: &[u8], concerns: Concerns) {
        let engine = self.engine;
        if concerns.watchers() && engine.watchers.any() {
            engine.watchers.touch(engine.keyspace.shard_of(hash(key)), database, key);
        }
        if concerns.waiters() {
            self.note_ready(database, key);
        }
    }

    /// Has those looked at who wait for a key that has changed or is gone.
    fn note_ready(&mut self, database: usize, key: &[u8]) {
        let engine = self.engine;
        let shard = engine.keyspace.shard_of(hash(key));
        if engine.waiters.any() && engine.waiters.has(shard, database, key) {
            self.ready.push((shard, (database, key.into())));
        }
    }

    /// Removes keys of one shard whose time has come. Says whether there may be more.
    pub(crate) fn reclaim_shard(&mut self, database: usize, shard: usize, limit: usize) -> bool {
        let engine = self.engine;
        let Some(mut locked) = engine.keyspace.lock_one_unless(shard, engine.busy.ends_waits()) else { return false };
        // Under the lock: see `Engine::is_listening`.
        self.observed.list = if self.engine.is_listening() { self.engine.events_to_list() } else { 0 };
        let more = Db::new(&mut locked, database, &self.clock, &mut self.observed).reclaim(shard, limit);
        if !self.observed.seen.is_empty() {
            self.settle(None);
        }
        more
    }
}
