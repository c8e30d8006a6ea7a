//! The commit point: the one place where changes become a unit that others learn of.
//!
//! A unit is a set of changes that others see all at once: a command, a transaction, a script or function call, a
//! served waiter, a step of expiry or eviction. Each command within a unit adds its effects
//! ([`Worker::collect_effects`]). [`Worker::commit`] gives the unit its position in the journal, appends its record,
//! and informs watchers, waiters and keyspace notifications. The caller holds the shards that the unit changed until
//! `commit` returns.

use commands::call::KeyRef;
use commands::effects::{ALL_CLASSES, Class, Concerns};
use commands::spec::{Scope, fact, flag};
use journal::order::Position;
use journal::record::{Kind, entry_head};
use resp::request::Args;
use store::db::{Db, Event, Seen};
use store::hash::KeyHash;
use store::keyspace::{Key, Shards};

use crate::clients::blocking::Waiter;
use crate::clients::session::Session;
use crate::services::{invalidations, notifications};
use crate::slow_path::{
    AWAITED, BROADCAST, MOVES_SLOTS, REPLICA, TRACKED, are_listeners_only, has_listeners, has_watchers_or_waiters,
};
use crate::worker::Worker;
use crate::worker::unit::{Cause, Notification};
use commands::table::Command;

/// The events of expired keys and fields that are listed for listeners and for the journal.
const EXPIRIES: u8 = Event::Expired as u8 | Event::FieldsExpired as u8 | Event::Drained as u8;

/// An upper bound of the keys that a command changed.
#[derive(Clone, Copy)]
pub(crate) enum Changed<'c> {
    /// The command's keys. An empty list stands for any key.
    Keys(&'c [KeyRef]),
    /// Keys of this shard.
    Shard(usize),
}

/// The pipeline count that is committed with a unit.
pub(crate) enum TokenCount<'c> {
    /// The unit belongs to no connection: expiry, eviction.
    None,
    /// The current command of this connection. The flag is true if the command counts because it is answered now.
    Session(&'c mut Session, bool),
    /// The blocking command that this waiter belongs to; it is counted already.
    Waiter(&'c Waiter),
}

impl Worker {
    /// Begins a command on these keys: sets which effects the command lists, and whether it records them. `slow_path`
    /// holds the engine's flags. The caller read them with the shards locked. A session begins to watch or wait under
    /// the same locks, so the next command with these keys sees its flag. Returns the flags that concern these keys;
    /// the command needs no further work after it ran if the result is 0.
    #[inline]
    pub(crate) fn begin_effects(&mut self, keys: &[KeyRef], args: Option<&Args<'_>>, slow_path: u64) -> u64 {
        let slow_path = match keys {
            // The usual case beside idle waiters and clients that cache: they listen to other keys.
            [key] if are_listeners_only(slow_path) && !self.may_be_heard(key, args, slow_path) => 0,
            _ => slow_path,
        };
        if slow_path == 0 {
            (self.effects.listening, self.observed.list) = (0, 0);
        } else {
            self.begin_noted(keys, args, slow_path);
        }
        slow_path
    }

    /// Returns false if these flags stand for no listener of this key. The key's name is unknown without arguments.
    #[inline]
    fn may_be_heard(&mut self, key: &KeyRef, args: Option<&Args<'_>>, slow_path: u64) -> bool {
        let engine = self.engine;
        (has_watchers_or_waiters(slow_path) && engine.listeners.may_hear(key.hash))
            || (slow_path & TRACKED != 0 && engine.tracking.keys.may_have(key.hash))
            || (slow_path & BROADCAST != 0 && self.is_broadcast(key, args))
    }

    /// Returns whether a client tracks a prefix of this key in broadcast mode.
    #[inline(never)]
    fn is_broadcast(&mut self, key: &KeyRef, args: Option<&Args<'_>>) -> bool {
        self.broadcasts.follow(&self.engine.tracking);
        args.is_none_or(|args| self.broadcasts.concern(args.get(key.arg as usize)))
    }

    /// The slow part of [`Worker::begin_effects`]: effects may have to be notified or recorded.
    #[inline(never)]
    fn begin_noted(&mut self, keys: &[KeyRef], args: Option<&Args<'_>>, slow_path: u64) {
        let (mut classes, mut events) = self.engine.published();
        // A command without keys may concern every key.
        if has_listeners(slow_path)
            && (keys.is_empty() || keys.iter().any(|key| self.may_be_heard(key, args, slow_path)))
        {
            (classes, events) = (ALL_CLASSES, events | EXPIRIES);
        }
        if self.writes_own_keys(slow_path) {
            classes = ALL_CLASSES;
        }
        if slow_path & MOVES_SLOTS != 0 {
            classes |= Class::Emptied.bit();
        }
        if self.effects.recording {
            events |= EXPIRIES;
        }
        (self.effects.listening, self.observed.list) = (classes, events);
        self.effects.begin();
    }

    /// Returns whether commands write keys that the primary doesn't know, because this server is a writable replica.
    fn writes_own_keys(&self, slow_path: u64) -> bool {
        slow_path & REPLICA != 0 && !self.clock.replays && !self.engine.settings.replica_read_only.get()
    }

    /// Adds the effects of the command that has run to the unit. `invoked` holds the database and arguments of a
    /// client's command.
    #[cold]
    pub(crate) fn collect_effects(&mut self, invoked: Option<(usize, &Args<'_>)>, changed: Changed<'_>) {
        if self.engine.slow_path.has(AWAITED) {
            match changed {
                Changed::Keys([]) => self.unit.all_shards = true,
                Changed::Keys(keys) => self.unit.hashes.extend(keys.iter().map(|key| key.hash)),
                Changed::Shard(shard) => self.unit.shards.push(shard),
            }
        }
        let seen = std::mem::take(&mut self.observed.seen);
        let (created, before): (Vec<_>, Vec<_>) = seen.into_iter().partition(|s| s.event == Event::Created);
        // An expired key needs no watcher notification: EXEC checks itself that watched keys still exist, and a key
        // that was already expired when WATCH ran has not changed.
        for Seen { event, database, key, fields } in &before {
            // The deletion precedes the command's own record because the command did not find the key or field.
            match event {
                Event::Expired if self.effects.recording => {
                    self.unit.record.push(*database, Kind::Command, [&b"DEL"[..], key].into_iter());
                }
                Event::FieldsExpired if self.effects.recording => {
                    let words: Vec<&[u8]> =
                        [&b"HDEL"[..], key].into_iter().chain(fields.iter().map(AsRef::as_ref)).collect();
                    self.unit.record.push(*database, Kind::Command, words.into_iter());
                }
                // The key goes with its last field.
                _ => {}
            }
            self.unit.note(*database, key, Cause::Seen(*event));
        }
        if self.effects.must_record() {
            let database = invoked.map_or(0, |(database, _)| database);
            self.effects.record(database, invoked.map(|(_, args)| args), &mut self.unit.record);
        }
        // A key's creation is notified before the change that created it. A command that moves a key creates the new
        // key before it lists any change.
        let writes_own_keys = self.writes_own_keys(self.engine.slow_path.get());
        let mut created = created.into_iter().peekable();
        for change in self.effects.changes() {
            if change.class == Class::Emptied {
                self.unit.note(change.database, b"", Cause::Emptied);
                continue;
            }
            if writes_own_keys {
                self.engine.replication.own_keys.note_written(change.database, change.key);
            }
            let is_due = |c: &Seen| change.is_moved || (c.database == change.database && *c.key == *change.key);
            if let Some(new) = created.next_if(is_due) {
                self.unit.note(new.database, &new.key, Cause::Seen(new.event));
            }
            let cause = Cause::Changed { class: change.class, event: change.event, concerns: change.concerns };
            self.unit.note(change.database, change.key, cause);
        }
        for new in created {
            self.unit.note(new.database, &new.key, Cause::Seen(new.event));
        }
        self.effects.clear();
    }

    /// Collects and commits a unit of one command that has a record and no other effect. This case is the common one,
    /// so it is fast.
    #[inline]
    pub(crate) fn commit_record(&mut self, database: usize, args: &Args<'_>, keys: &[KeyRef], slow_path: u64) {
        let position = if let Some(command) = self.effects.as_it_came(args) {
            let position = self.engine.journal.next_position();
            self.lane.append_command(position, entry_head(database, Kind::Command, command), command);
            position
        } else {
            let record = &mut self.unit.record;
            self.effects.record(database, Some(args), record);
            if record.is_empty() {
                return;
            }
            let position = self.engine.journal.next_position();
            self.lane.append(position, record.bytes());
            record.clear();
            position
        };
        self.wrote = position;
        if slow_path & AWAITED != 0 {
            self.durable_after = position;
            for key in keys {
                self.engine.durability.note_change(self.engine.keyspace.shard_of(key.hash), key.hash, position);
            }
        }
    }

    /// Raises `durable_after` to the last changes of the keys that the beginning command reads. The caller holds the
    /// shards.
    ///
    /// A command that may read any key, or has no keys, depends on all changes. These commands reveal nothing of the
    /// data, so they depend on nothing:
    ///
    /// - commands that may run during loading, for example INFO and PUBLISH,
    /// - an operator's commands that may run on a stale replica: REPLICAOF is answered although it may discard earlier
    ///   changes,
    /// - commands that turn the connection into a replica's: a replica can't acknowledge anything during its own
    ///   handshake.
    ///
    /// Commands of scripts and transactions come here one by one.
    #[cold]
    pub(crate) fn depend_on(&mut self, command: &Command, args: &Args<'_>, keys: &[KeyRef]) {
        let engine = self.engine;
        let makes_replica = command.info.is(fact::HOLDS_CONNECTION);
        let is_operators = command.info.has(flag::ADMIN) && (command.info.has(flag::STALE) || makes_replica);
        let tells_nothing =
            !command.sees_keys && (command.is_keyless || command.info.has(flag::LOADING) || is_operators);
        if keys.is_empty() && tells_nothing {
            return;
        }
        if keys.is_empty() || matches!(command.info.scope_for(*args), Scope::Whole) {
            return self.depend_on_all();
        }
        let changes =
            keys.iter().map(|key| engine.durability.last_change(engine.keyspace.shard_of(key.hash), key.hash));
        self.durable_after = changes.fold(self.durable_after, Position::max);
    }

    /// Makes the next reply depend on all changes so far, if replies wait for durability.
    pub(crate) fn depend_on_all(&mut self) {
        if self.engine.slow_path.has(AWAITED) {
            self.durable_after = self.engine.journal.position();
        }
    }

    /// Commits the unit: see the module's documentation. An empty unit has no effect.
    #[inline]
    pub(crate) fn commit(&mut self, counter: TokenCount<'_>) {
        if !self.unit.is_empty() {
            self.commit_unit(counter);
        }
    }

    fn commit_unit(&mut self, mut counter: TokenCount<'_>) {
        if !self.unit.record.is_empty() {
            let record = &mut self.unit.record;
            // The count belongs to the same unit: a reader has both the change and its count, or neither.
            match &mut counter {
                TokenCount::None => {}
                TokenCount::Session(session, counts) => session.record_count(*counts, record),
                TokenCount::Waiter(waiter) => waiter.record_count(record),
            }
            let position = self.engine.journal.next_position();
            self.lane.append(position, record.bytes());
            record.clear();
            self.wrote = position;
            self.stamp(position);
        }
        let session = if let TokenCount::Session(session, _) = counter { Some(session) } else { None };
        self.notify(session);
    }

    /// Notes the unit's position for its keys, so that later readers of these keys depend on it.
    fn stamp(&mut self, position: Position) {
        if !self.engine.slow_path.has(AWAITED) {
            return;
        }
        self.durable_after = self.durable_after.max(position);
        let (durability, keyspace) = (&self.engine.durability, &self.engine.keyspace);
        for hash in self.unit.hashes.drain(..) {
            durability.note_change(keyspace.shard_of(hash), hash, position);
        }
        self.unit.shards.drain(..).for_each(|shard| durability.note_change_of_shard(shard, position));
        if std::mem::take(&mut self.unit.all_shards) {
            durability.note_change_of_all(position);
        }
    }

    /// Records how far a connection's pipeline has got with commands that changed nothing. The caller is inside the
    /// gate.
    pub(crate) fn commit_count(&mut self, session: &mut Session) {
        if self.effects.recording && session.has_unrecorded_count() {
            session.record_count(false, &mut self.unit.record);
            self.commit(TokenCount::None);
        }
    }

    /// Informs watchers, waiters and notifications of the unit's changes so far. `session` is the connection that
    /// caused them, if it belongs to this thread. A command that publishes in the middle of a unit calls this first, so
    /// that its message follows the earlier changes.
    pub(crate) fn notify(&mut self, mut session: Option<&mut Session>) {
        if self.unit.notifications.is_empty() {
            return;
        }
        let unit = std::mem::take(&mut self.unit);
        let (mut key_start, mut is_emptied) = (0, false);
        for &Notification { database, key_end, cause } in &unit.notifications {
            let key = &unit.keys[key_start..key_end];
            key_start = key_end;
            match cause {
                // Waiters for a consumer group can't be served after their stream is gone. They would only stand in
                // front of waiters for later values of the key.
                Cause::Emptied => {
                    self.ready.extend(self.engine.waiters.group_keys(database));
                    is_emptied = true;
                }
                Cause::Seen(event) => {
                    match event {
                        Event::Expired | Event::Drained => {
                            self.note_ready(database, key);
                            invalidations::invalidate(self, session.as_deref_mut(), key);
                        }
                        Event::FieldsExpired => {
                            self.tell_listeners(database, key, Concerns::Watchers);
                            invalidations::invalidate(self, session.as_deref_mut(), key);
                        }
                        Event::Missed | Event::Created => {}
                    }
                    notifications::notify_seen(self, session.as_deref_mut(), event, database, key);
                }
                Cause::Changed { class, event, concerns } => {
                    self.tell_listeners(database, key, concerns);
                    if concerns.watchers() {
                        invalidations::invalidate(self, session.as_deref_mut(), key);
                    }
                    notifications::notify(self, session.as_deref_mut(), database, class, event, key);
                }
            }
        }
        if is_emptied {
            self.engine.slots.jobs.fail_all("Data was flushed");
            // One message for FLUSHALL, independent of the number of databases.
            invalidations::invalidate_all(self, session.as_deref_mut());
        }
        invalidations::broadcast_if_many(self, session);
        self.unit = unit;
        self.unit.notifications.clear();
        self.unit.keys.clear();
    }

    /// Informs a changed key's watchers, its waiters, or both, as `concerns` says.
    fn tell_listeners(&mut self, database: usize, key: &[u8], concerns: Concerns) {
        let engine = self.engine;
        if concerns.watchers() && engine.watchers.any() {
            engine.watchers.touch(engine.keyspace.shard_of(KeyHash::of(key)), database, key);
        }
        if concerns.waiters() {
            self.note_ready(database, key);
        }
    }

    /// Marks the waiters of a changed or removed key for a check.
    fn note_ready(&mut self, database: usize, key: &[u8]) {
        let engine = self.engine;
        let shard = engine.keyspace.shard_of(KeyHash::of(key));
        if engine.waiters.any() && engine.waiters.has(shard, database, key) {
            self.ready.push((shard, (database, key.into())));
        }
    }

    /// Removes expired keys of one shard. Returns whether there may be more.
    pub(crate) fn reclaim_shard(&mut self, database: usize, shard: usize, limit: usize) -> bool {
        let engine = self.engine;
        let Some(mut locked) = engine.keyspace.lock(Shards::One(shard), engine.busy.ends_waits()) else { return false };
        self.begin_effects(&[], None, engine.slow_path.get());
        let more = Db::new(&mut locked, database, &self.clock, &mut self.observed).reclaim(shard, limit);
        self.commit_upkeep(shard);
        more
    }

    /// Commits changes that upkeep made in a shard. No reply depends on them: otherwise a replica's handshake would
    /// wait for replicas.
    pub(crate) fn commit_upkeep(&mut self, shard: usize) {
        let durable_after = self.durable_after;
        self.collect_and_commit(TokenCount::None, shard);
        self.durable_after = durable_after;
    }

    /// Removes expired keys that a command met while it visited one shard after the other, each in a unit of its own.
    /// The caller holds no shard.
    #[cold]
    pub(crate) fn expire_due(&mut self, session: &mut Session) {
        let engine = self.engine;
        for (database, key) in std::mem::take(&mut self.observed.due) {
            let key = Key::new(&key);
            let shard = engine.keyspace.shard_of(key.hash);
            // The periodic search for expired keys removes those in shards that a busy script holds.
            let Some(mut locked) = engine.keyspace.lock(Shards::One(shard), engine.busy.ends_waits()) else { continue };
            self.begin_effects(&[], None, engine.slow_path.get());
            Db::new(&mut locked, database, &self.clock, &mut self.observed).expire(key);
            self.collect_and_commit(TokenCount::Session(session, false), shard);
        }
    }

    /// Ends a unit that no command began, on one shard.
    pub(crate) fn collect_and_commit(&mut self, counter: TokenCount<'_>, shard: usize) {
        if !self.observed.seen.is_empty() || !self.effects.is_empty() || self.effects.must_record() {
            self.collect_effects(None, Changed::Shard(shard));
            self.commit(counter);
        }
    }
}

#[cfg(test)]
mod tests {
    use journal::lane::Audience;
    use journal::merge::Merge;
    use resp::reply::Output;

    use crate::durability::DurabilityTarget;
    use crate::testing::Bench;

    /// Returns a server with replies that wait for the append-only file, and the file's end of the journal.
    fn logged() -> (Bench, Option<Merge>) {
        let bench = Bench::default();
        let engine = bench.worker.engine;
        let reader = engine.journal.read(&engine.keyspace, Audience::File);
        engine.durability.have_replies_wait(DurabilityTarget::Log, true, engine.journal.position());
        (bench, reader)
    }

    #[test]
    fn a_reply_depends_on_the_changes_that_its_command_may_have_read() {
        let (mut bench, _reader) = logged();
        let (mut holder, mut session) = (bench.open(), bench.open());
        bench.line(&mut holder, "pipeline start t");
        bench.line(&mut session, "rpush l 1 2");
        bench.line(&mut session, "set settled v");
        let settled = bench.worker.take_durable_after();
        assert_eq!(settled, bench.worker.engine.journal.position());
        bench.line(&mut session, "set k v");
        let last = bench.worker.take_durable_after();
        assert!(last > settled);
        let cases = [
            ("get k", last),
            ("get settled", settled),
            ("mget settled k", last),
            ("ping", 0),
            ("info persistence", 0),
            ("publish c m", 0),
            ("psync 0000000000000000000000000000000000000000 5 failover", 0),
            ("dbsize", last),
            ("scan 0", last),
            ("sort l by w_* get k_*", last),
            ("pipeline status t", last),
            ("eval 'return redis.call(\"get\", KEYS[1])' 1 settled", settled),
            ("script exists x", last),
        ];
        for (line, expected) in cases {
            bench.line(&mut session, line);
            assert_eq!(bench.worker.take_durable_after(), expected, "{line}");
        }
    }

    /// The count of a blocking command that timed out is recorded with its connection's next batch, or when the
    /// connection closes. It is not recorded with another connection's reply.
    #[test]
    fn no_reply_depends_on_the_count_of_a_closed_connection() {
        let (mut bench, _reader) = logged();
        let (mut holder, mut session) = (bench.open(), bench.open());
        bench.line(&mut holder, "pipeline start t");
        bench.line(&mut holder, "blpop l 1");
        assert!(bench.worker.time_out(&mut holder, &mut Output::default()));
        let _ = bench.worker.take_durable_after();
        let engine = bench.worker.engine;
        let before = engine.journal.position();
        bench.worker.close(&mut holder);
        assert_eq!((engine.journal.position(), bench.worker.take_durable_after()), (before + 1, 0));
        bench.line(&mut session, "ping");
        assert_eq!((engine.journal.position(), bench.worker.take_durable_after()), (before + 1, 0));
    }
}
