//! The commit point: the one place where what changed becomes a unit that others learn of.
//!
//! A unit is what others see at once or not at all: a command, a transaction, a script or function call, a waiter that is
//! served, a step of expiry or eviction. Each command that runs within it adds what it leaves behind
//! ([`Worker::gather`]); [`Worker::commit`] gives the unit its position in the journal, appends its record, and tells
//! watchers, waiters and notifications. Shards that the unit changed are held until `commit` returns.

use commands::call::KeyRef;
use commands::effects::{ALL_CLASSES, Class, Concerns};
use commands::spec::{Scope, fact, flag};
use journal::order::Position;
use journal::record::{Kind, entry_head};
use resp::request::Args;
use store::db::{Db, Event, Seen};
use store::hash::KeyHash;
use store::keyspace::Key;

use crate::clients::blocking::Waiter;
use crate::clients::session::Session;
use crate::command_table::Command;
use crate::reasons::{AWAITED, BROADCAST, TRACKED, are_listeners_only, has_listeners, has_watchers_or_waiters};
use crate::services::{invalidations, notifications};
use crate::worker::Worker;
use crate::worker::unit::{Told, What};

/// What is listed of keys and fields whose time has come, for listeners and the journal.
const EXPIRIES: u8 = Event::Expired as u8 | Event::FieldsExpired as u8 | Event::Drained as u8;

/// What a command has changed, at most.
#[derive(Clone, Copy)]
pub(crate) enum Changed<'c> {
    /// Its keys; any if it has none.
    Keys(&'c [KeyRef]),
    /// Keys of this shard.
    Shard(usize),
}

/// The pipeline count that is committed with a unit.
pub(crate) enum TokenCount<'c> {
    /// No connection's: expiry, eviction.
    None,
    /// The command of this connection, which counts if it is answered now.
    Session(&'c mut Session, bool),
    /// The command that a connection waited in, which has been counted.
    Waiter(&'c Waiter),
}

impl Worker {
    /// Begins a command on these keys: tells it which effects to list and whether to record them. `reasons` are the
    /// engine's, read with the shards locked: a session begins to watch or wait under them, too, and is seen by the next
    /// command that has them. Those that concern these keys are returned: nothing has to be done after the command if there
    /// are none.
    #[inline]
    pub(crate) fn begin_effects(&mut self, keys: &[KeyRef], args: Option<&Args<'_>>, reasons: u64) -> u64 {
        let reasons = match keys {
            // The usual case beside idle waiters and clients that cache: what they listen to are other keys.
            [key] if are_listeners_only(reasons) && !self.may_be_heard(key, args, reasons) => 0,
            _ => reasons,
        };
        if reasons == 0 {
            (self.effects.listening, self.observed.list) = (0, 0);
        } else {
            self.begin_noted(keys, args, reasons);
        }
        reasons
    }

    /// False if nothing listens to a key of this command, for these reasons. Without arguments, the key's name isn't known.
    #[inline]
    fn may_be_heard(&mut self, key: &KeyRef, args: Option<&Args<'_>>, reasons: u64) -> bool {
        let engine = self.engine;
        (has_watchers_or_waiters(reasons) && engine.listeners.may_hear(key.hash))
            || (reasons & TRACKED != 0 && engine.tracking.keys.may_have(key.hash))
            || (reasons & BROADCAST != 0 && self.is_broadcast(key, args))
    }

    /// True if some client is told of all keys that begin as this one does.
    #[inline(never)]
    fn is_broadcast(&mut self, key: &KeyRef, args: Option<&Args<'_>>) -> bool {
        self.broadcasts.follow(&self.engine.tracking);
        args.is_none_or(|args| self.broadcasts.concern(args.get(key.arg as usize)))
    }

    /// The same where something may have to be told or recorded.
    #[inline(never)]
    fn begin_noted(&mut self, keys: &[KeyRef], args: Option<&Args<'_>>, reasons: u64) {
        let (mut classes, mut events) = self.engine.published();
        // A command without keys may concern all of them.
        if has_listeners(reasons) && (keys.is_empty() || keys.iter().any(|key| self.may_be_heard(key, args, reasons))) {
            (classes, events) = (ALL_CLASSES, events | EXPIRIES);
        }
        if self.effects.recording {
            events |= EXPIRIES;
        }
        (self.effects.listening, self.observed.list) = (classes, events);
        self.effects.begin();
    }

    /// Adds what the command that has run leaves behind to the unit. `invoked`: its database and arguments, if it is a
    /// client's.
    #[cold]
    pub(crate) fn gather(&mut self, invoked: Option<(usize, &Args<'_>)>, changed: Changed<'_>) {
        if self.engine.reasons.has(AWAITED) {
            match changed {
                Changed::Keys([]) => self.unit.all_shards = true,
                Changed::Keys(keys) => self.unit.hashes.extend(keys.iter().map(|key| key.hash)),
                Changed::Shard(shard) => self.unit.shards.push(shard),
            }
        }
        let seen = std::mem::take(&mut self.observed.seen);
        let (created, before): (Vec<_>, Vec<_>) = seen.into_iter().partition(|s| s.event == Event::Created);
        // A key whose time has come needs no watcher told: EXEC looks whether those that existed are still there, and
        // those that were stale already when WATCH was given have not changed.
        for Seen { event, database, key, fields } in &before {
            // Before the command's own record: for the command, the key or field was not there.
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
            self.unit.tell(*database, key, What::Seen(*event));
        }
        if self.effects.must_record() {
            let database = invoked.map_or(0, |(database, _)| database);
            self.effects.record(database, invoked.map(|(_, args)| args), &mut self.unit.record);
        }
        // A key is created before the change that the command says it made to it. What moves a key puts it in its new
        // place before it says anything.
        let mut created = created.into_iter().peekable();
        for change in self.effects.changes() {
            if change.class == Class::Emptied {
                self.unit.tell(change.database, b"", What::Emptied);
                continue;
            }
            let is_due = |c: &Seen| change.is_moved || (c.database == change.database && *c.key == *change.key);
            if let Some(new) = created.next_if(is_due) {
                self.unit.tell(new.database, &new.key, What::Seen(new.event));
            }
            let what = What::Changed { class: change.class, event: change.event, concerns: change.concerns };
            self.unit.tell(change.database, change.key, what);
        }
        for new in created {
            self.unit.tell(new.database, &new.key, What::Seen(new.event));
        }
        self.effects.clear();
    }

    /// Gathers and commits a unit of one command that has nothing but its record: the case worth being quick about.
    #[inline]
    pub(crate) fn commit_record(&mut self, database: usize, args: &Args<'_>, keys: &[KeyRef], reasons: u64) {
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
        if reasons & AWAITED != 0 {
            self.depends = position;
            for key in keys {
                self.engine.durability.note_change(self.engine.keyspace.shard_of(key.hash), key.hash, position);
            }
        }
    }

    /// Notes what the reply of a command depends on that begins to run, with its shards held: the last changes of its keys.
    /// One that may look at any key, or has none, depends on all changes; one that may run while data are loaded, as INFO and
    /// PUBLISH may, tells nothing of the data, nor does an operator's that may run on a replica which is cut off: REPLICAOF is answered
    /// though what was changed before may be lost by it. Nor does what makes a connection a replica's: replicas can't acknowledge what a
    /// replica's own handshake waits for. Each command that a script or a transaction runs comes here, too.
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
        self.depends = changes.fold(self.depends, Position::max);
    }

    /// Notes that what is answered depends on all changes so far, if replies wait for the disk.
    pub(crate) fn depend_on_all(&mut self) {
        if self.engine.reasons.has(AWAITED) {
            self.depends = self.engine.journal.position();
        }
    }

    /// Commits the unit: see the module's documentation. Nothing happens if no command has left anything.
    #[inline]
    pub(crate) fn commit(&mut self, counter: TokenCount<'_>) {
        if !self.unit.is_empty() {
            self.commit_unit(counter);
        }
    }

    fn commit_unit(&mut self, mut counter: TokenCount<'_>) {
        if !self.unit.record.is_empty() {
            let record = &mut self.unit.record;
            // In the same unit: a reader has both the change and its count, or neither.
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
        self.tell(session);
    }

    /// Notes the position of the unit where what reads its keys finds it.
    fn stamp(&mut self, position: Position) {
        if !self.engine.reasons.has(AWAITED) {
            return;
        }
        self.depends = self.depends.max(position);
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

    /// Tells watchers, waiters and notifications what the unit has done so far. `session` is the one that caused it, if
    /// it is this thread's. A command that publishes in the midst of a unit calls this first, so that its message comes
    /// behind what happened before it.
    pub(crate) fn tell(&mut self, mut session: Option<&mut Session>) {
        if self.unit.told.is_empty() {
            return;
        }
        let unit = std::mem::take(&mut self.unit);
        let (mut key_start, mut is_emptied) = (0, false);
        for &Told { database, key_end, what } in &unit.told {
            let key = &unit.keys[key_start..key_end];
            key_start = key_end;
            match what {
                // What waits for other values can find nothing in what is gone, and must not stand in front of those
                // whose keys change next.
                What::Emptied => {
                    self.ready.extend(self.engine.waiters.group_keys(database));
                    is_emptied = true;
                }
                What::Seen(event) => {
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
                What::Changed { class, event, concerns } => {
                    self.tell_listeners(database, key, concerns);
                    if concerns.watchers() {
                        invalidations::invalidate(self, session.as_deref_mut(), key);
                    }
                    notifications::notify(self, session.as_deref_mut(), database, class, event, key);
                }
            }
        }
        if is_emptied {
            // Once for FLUSHALL, whatever there was in each database.
            invalidations::invalidate_all(self, session.as_deref_mut());
        }
        invalidations::broadcast_if_many(self, session);
        self.unit = unit;
        self.unit.told.clear();
        self.unit.keys.clear();
    }

    /// Tells a changed key's watchers, its waiters, or both, as `concerns` says.
    fn tell_listeners(&mut self, database: usize, key: &[u8], concerns: Concerns) {
        let engine = self.engine;
        if concerns.watchers() && engine.watchers.any() {
            engine.watchers.touch(engine.keyspace.shard_of(KeyHash::of(key)), database, key);
        }
        if concerns.waiters() {
            self.note_ready(database, key);
        }
    }

    /// Has the waiters of a key that has changed or is gone looked at.
    fn note_ready(&mut self, database: usize, key: &[u8]) {
        let engine = self.engine;
        let shard = engine.keyspace.shard_of(KeyHash::of(key));
        if engine.waiters.any() && engine.waiters.has(shard, database, key) {
            self.ready.push((shard, (database, key.into())));
        }
    }

    /// Removes expired keys of one shard. True if there may be more.
    pub(crate) fn reclaim_shard(&mut self, database: usize, shard: usize, limit: usize) -> bool {
        let engine = self.engine;
        let Some(mut locked) = engine.keyspace.lock_one_unless(shard, engine.busy.ends_waits()) else { return false };
        self.begin_effects(&[], None, engine.reasons.get());
        let more = Db::new(&mut locked, database, &self.clock, &mut self.observed).reclaim(shard, limit);
        self.commit_upkeep(shard);
        more
    }

    /// Commits what upkeep has changed in a shard. No reply depends on it, or a replica's handshake would wait for replicas.
    pub(crate) fn commit_upkeep(&mut self, shard: usize) {
        let depends = self.depends;
        self.gather_and_commit(TokenCount::None, shard);
        self.depends = depends;
    }

    /// Removes the keys that a command has met after their time while it visited one shard after the other, each in a
    /// unit of its own. No shard is held.
    #[cold]
    pub(crate) fn expire_due(&mut self, session: &mut Session) {
        let engine = self.engine;
        for (database, key) in std::mem::take(&mut self.observed.due) {
            let key = Key::new(&key);
            let shard = engine.keyspace.shard_of(key.hash);
            // The search for expired keys gets what a busy script holds.
            let Some(mut locked) = engine.keyspace.lock_one_unless(shard, engine.busy.ends_waits()) else { continue };
            self.begin_effects(&[], None, engine.reasons.get());
            Db::new(&mut locked, database, &self.clock, &mut self.observed).expire(key);
            self.gather_and_commit(TokenCount::Session(session, false), shard);
        }
    }

    /// Ends a unit that no command began, on one shard.
    pub(crate) fn gather_and_commit(&mut self, counter: TokenCount<'_>, shard: usize) {
        if !self.observed.seen.is_empty() || !self.effects.is_empty() || self.effects.must_record() {
            self.gather(None, Changed::Shard(shard));
            self.commit(counter);
        }
    }
}

#[cfg(test)]
mod tests {
    use journal::lane::Audience;
    use journal::merge::Merge;
    use resp::reply::Output;

    use crate::durability::Safety;
    use crate::testing::Bench;

    /// A server whose replies wait for the append-only file, and the file's end of the journal.
    fn logged() -> (Bench, Option<Merge>) {
        let bench = Bench::default();
        let engine = bench.worker.engine;
        let reader = engine.journal.read(&engine.keyspace, Audience::File);
        engine.durability.have_replies_wait(Safety::Log, true, engine.journal.position());
        (bench, reader)
    }

    #[test]
    fn a_reply_depends_on_what_its_command_may_have_seen() {
        let (mut bench, _reader) = logged();
        let (mut holder, mut session) = (bench.open(), bench.open());
        bench.line(&mut holder, "pipeline start t");
        bench.line(&mut session, "rpush l 1 2");
        bench.line(&mut session, "set settled v");
        let settled = bench.worker.take_depends();
        assert_eq!(settled, bench.worker.engine.journal.position());
        bench.line(&mut session, "set k v");
        let last = bench.worker.take_depends();
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
            assert_eq!(bench.worker.take_depends(), expected, "{line}");
        }
    }

    /// What the end of a wait has counted is recorded with its connection's next batch, or with its end, and not with another's reply.
    #[test]
    fn no_reply_depends_on_what_a_connection_has_counted_that_is_gone() {
        let (mut bench, _reader) = logged();
        let (mut holder, mut session) = (bench.open(), bench.open());
        bench.line(&mut holder, "pipeline start t");
        bench.line(&mut holder, "blpop l 1");
        assert!(bench.worker.time_out(&mut holder, &mut Output::default()));
        let _ = bench.worker.take_depends();
        let engine = bench.worker.engine;
        let before = engine.journal.position();
        bench.worker.close(&mut holder);
        assert_eq!((engine.journal.position(), bench.worker.take_depends()), (before + 1, 0));
        bench.line(&mut session, "ping");
        assert_eq!((engine.journal.position(), bench.worker.take_depends()), (before + 1, 0));
    }
}
