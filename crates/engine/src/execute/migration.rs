//! The end of a MIGRATE: what the other server has is removed here, or sent again if it has changed, and the command is answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::call::KeyRef;
use commands::effects::Class;
use resp::reply::{Output, Reply};
use store::db::Db;
use store::keyspace::{Key, Locked};

use crate::clients::blocking::{Awaited, Waiter};
use crate::commit::{Changed, TokenCount};
use crate::machine::ticks::Ticks;
use crate::migrations::{CANNOT_CONNECT, MigratingKey, Migration, MigrationError};
use crate::services::migrating::{self, dump};
use crate::worker::Worker;

/// How often keys are sent again that change while they are sent: commands wait for that, so that only a script that reaches for keys
/// which it hasn't declared can change them.
const ROUNDS_MAX: u32 = 100;
/// What is answered beyond that.
const CHANGES_TOO_OFTEN: &[u8] =
    b"ERR Keys that are migrated are changed again and again: they are kept here, with copies on the target instance";

/// How far a migration is once what has arrived is removed.
struct SettledKeys {
    /// Keys that have changed since they were sent.
    again: Vec<MigratingKey>,
    /// Whether they are sent again.
    goes_on: bool,
    /// The wait that ends now, if this thread may answer it.
    waiter: Option<Arc<Waiter>>,
    /// What it is answered, if not that all is well.
    error: Option<Vec<u8>>,
}

impl Worker {
    /// Takes up the migrations of this thread's connections that have ended. Call it when it is told so
    /// (`Message::Migrated`), and many times a second: what can't be taken up at once, as long as writes wait, is later.
    pub fn end_migrations(&mut self) {
        for migration in self.engine.migrations.take_ended(self.id) {
            if let Err(migration) = self.end_migration(Box::new(migration)) {
                self.engine.migrations.leave(*migration);
            }
        }
    }

    /// Takes up one. It is given back if that isn't possible now.
    fn end_migration(&mut self, mut migration: Box<Migration>) -> Result<(), Box<Migration>> {
        self.clock.follow(Ticks::now());
        let mut inside = self.pass();
        if inside.is_none() || self.engine.is_paused(self.clock.now_ms) || !self.log_has_room() {
            return Err(migration);
        }
        let bytes = migration.bytes();
        // The reply depends on the migration's own unit.
        let depends = self.take_depends();
        let Some(settled) = self.settle(&mut migration) else {
            self.depends = depends;
            return Err(migration);
        };
        migrating::let_go(self.engine, &migration);
        self.engine.migrations.release(bytes);
        if let Some(waiter) = &settled.waiter {
            self.answer_migration(waiter, settled.error.as_deref());
        }
        self.depends = depends;
        migration.keys = settled.again;
        if settled.goes_on {
            self.migrate_again(migration);
        } else {
            migrating::let_go(self.engine, &migration);
        }
        if !self.ready.is_empty() {
            self.serve_ready(&mut inside);
        }
        self.note_observed();
        migrating::wake_held_up(self.engine);
        Ok(())
    }

    /// Removes what has arrived, in one unit, which counts the command if that ends now. None, if a script holds the keys for long.
    fn settle(&mut self, migration: &mut Migration) -> Option<SettledKeys> {
        let hashes: Vec<KeyRef> = migration.keys.iter().map(|key| KeyRef { arg: 0, hash: key.hash }).collect();
        let shards = self.take_shards(&hashes);
        let Some(mut locked) = self.lock(|keyspace, give_up| keyspace.lock_many_unless(&shards, give_up)) else {
            self.shards = shards;
            return None;
        };
        self.begin_effects(&hashes, None, self.engine.reasons.get());
        let again = self.remove_arrived(&mut locked, migration);
        let goes_on = !again.is_empty() && migration.error.is_none() && migration.rounds < ROUNDS_MAX;
        let waiter = if goes_on { None } else { self.waiter_of(migration) };
        let error = error_of(migration, !again.is_empty());
        if let Some(waiter) = &waiter {
            match &error {
                Some(error) => self.count_failed(waiter, error),
                None => self.count_ended(waiter),
            }
        }
        self.gather(None, Changed::Keys(&hashes));
        self.commit(waiter.as_ref().map_or(TokenCount::None, |waiter| TokenCount::Waiter(waiter)));
        drop(locked);
        self.shards = shards;
        Some(SettledKeys { again, goes_on, waiter, error })
    }

    /// Removes the keys that the other server has. Those that have changed since they were sent are taken out of the migration and returned
    /// as they are now. Their shards are held.
    fn remove_arrived(&mut self, locked: &mut Locked<'_>, migration: &mut Migration) -> Vec<MigratingKey> {
        let mut again = Vec::new();
        // A replica's keys are its primary's.
        if migration.copies || self.engine.is_replica() {
            return again;
        }
        let mut removed = Vec::new();
        let mut db = Db::new(locked, migration.database, &self.clock, &mut self.observed);
        let (arrived, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut migration.keys).into_iter().partition(|key| key.has_arrived);
        migration.keys = others;
        for sent in arrived {
            let key = Key { bytes: &sent.name, hash: sent.hash };
            if !sent.changed.swap(false, Ordering::Relaxed) {
                if db.remove(key) {
                    self.effects.changed(migration.database, key.bytes, Class::Generic, "del");
                    removed.push(sent.name.clone());
                }
            } else if let Some(fresh) = dump(&mut db, key) {
                let changed = sent.changed.clone();
                again.push(MigratingKey { changed, ..fresh });
                continue;
            }
            migration.keys.push(sent);
        }
        if !removed.is_empty() {
            let words: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(removed.iter().map(|name| &**name)).collect();
            self.effects.record_as(migration.database, words.into_iter());
        }
        again
    }

    /// The connection's wait for a migration, if it still waits and this thread may answer it.
    fn waiter_of(&self, migration: &Migration) -> Option<Arc<Waiter>> {
        let waiter = self.engine.clients.get(migration.client)?.waiter()?;
        let is_its = waiter.awaited == Some(Awaited::Migration { id: migration.id });
        (is_its && waiter.claim()).then_some(waiter)
    }

    fn answer_migration(&mut self, waiter: &Arc<Waiter>, error: Option<&[u8]>) {
        let mut output = Output::default();
        let mut reply = Reply::new(&mut output, waiter.proto);
        match error {
            Some(error) => reply.error(error),
            None => reply.ok(),
        }
        self.engine.waiters.remove(waiter);
        let depends = self.take_depends();
        self.engine.inboxes[self.id].unpark(waiter.client, output, depends);
    }

    /// Sends those keys again that have changed. What is there by now is what was sent before, and is replaced.
    fn migrate_again(&mut self, mut migration: Box<Migration>) {
        (migration.replaces, migration.rounds) = (true, migration.rounds + 1);
        self.engine.migrations.add_bytes(migration.bytes());
        if let Err((mut migration, why)) = self.engine.host.migrate(migration) {
            migration.error = Some(MigrationError::Refused(why.into_bytes()));
            self.engine.migrations.leave(*migration);
        }
    }
}

/// What a migration is answered, if it has failed: Redis's texts. `is_left`: keys that have changed are left.
fn error_of(migration: &Migration, is_left: bool) -> Option<Vec<u8>> {
    let text: &[u8] = match &migration.error {
        Some(MigrationError::Connecting) => CANNOT_CONNECT.as_bytes(),
        Some(MigrationError::Writing) => b"IOERR error or timeout writing to target instance",
        Some(MigrationError::Reading) => b"IOERR error or timeout reading to target instance",
        Some(MigrationError::Refused(why)) => {
            return Some([b"ERR Target instance replied with error: ", &**why].concat());
        }
        None if is_left => CHANGES_TOO_OFTEN,
        None => return None,
    };
    Some(text.to_vec())
}
