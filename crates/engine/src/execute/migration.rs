//! The end of a MIGRATE: arrived keys are removed here, or sent again if they have changed, and the command is
//! answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::call::KeyRef;
use commands::effects::Class;
use resp::reply::{Output, Reply};
use store::db::Db;
use store::keyspace::{Key, Locked, Shards};

use crate::clients::blocking::{Awaited, Waiter};
use crate::commit::{Changed, TokenCount};
use crate::migrations::{CANNOT_CONNECT, MigratingKey, Migration, MigrationError};
use crate::services::migrating::{self, dump};
use crate::worker::Worker;
use statistics::ticks::Ticks;

/// The greatest number of times that changed keys are sent again. Other commands wait for migrating keys, so only a
/// script that accesses undeclared keys can change them meanwhile.
const ROUNDS_MAX: u32 = 100;
/// The error beyond that number.
const CHANGES_TOO_OFTEN: &[u8] =
    b"ERR The keys changed too often during the migration: they stay here, with copies on the target instance";

/// The state of a migration after the removal of arrived keys.
struct SettledKeys {
    /// Keys that have changed since they were sent.
    again: Vec<MigratingKey>,
    /// True if the changed keys are sent again.
    goes_on: bool,
    /// The wait that ends now, if this thread may answer it.
    waiter: Option<Arc<Waiter>>,
    /// The error to answer; `None` for success.
    error: Option<Vec<u8>>,
}

impl Worker {
    /// Takes up the ended migrations of this thread's connections. Call it on `Message::Migrated`, and many times a
    /// second: migrations stay queued while writes have to wait.
    pub fn end_migrations(&mut self) {
        for migration in self.engine.migrations.take_ended(self.id) {
            if let Err(migration) = self.end_migration(Box::new(migration)) {
                self.engine.migrations.leave(*migration);
            }
        }
    }

    /// Takes up one migration. Returns it if that is impossible now.
    fn end_migration(&mut self, mut migration: Box<Migration>) -> Result<(), Box<Migration>> {
        self.clock.follow(Ticks::now());
        let mut inside = self.enter_gate();
        if inside.is_none() || self.engine.is_paused(self.clock.now_ms) || !self.log_has_room() {
            return Err(migration);
        }
        let bytes = migration.bytes();
        // The reply depends on the migration's own unit.
        let durable_after = self.take_durable_after();
        let Some(settled) = self.settle(&mut migration) else {
            self.durable_after = durable_after;
            return Err(migration);
        };
        migrating::let_go(self.engine, &migration);
        self.engine.migrations.release(bytes);
        if let Some(waiter) = &settled.waiter {
            self.answer_migration(waiter, settled.error.as_deref());
        }
        self.durable_after = durable_after;
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

    /// Removes the arrived keys in one unit, which also counts the command if it ends now. Returns `None` if a script
    /// holds the keys for long.
    fn settle(&mut self, migration: &mut Migration) -> Option<SettledKeys> {
        let hashes: Vec<KeyRef> = migration.keys.iter().map(|key| KeyRef { arg: 0, hash: key.hash }).collect();
        let shards = self.take_shards(&hashes);
        let Some(mut locked) = self.lock(Shards::Many(&shards)) else {
            self.shards = shards;
            return None;
        };
        self.begin_effects(&hashes, None, self.engine.slow_path.get());
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
        self.collect_effects(None, Changed::Keys(&hashes));
        self.commit(waiter.as_ref().map_or(TokenCount::None, |waiter| TokenCount::Waiter(waiter)));
        drop(locked);
        self.shards = shards;
        Some(SettledKeys { again, goes_on, waiter, error })
    }

    /// Removes the keys that the other server has. Keys that have changed since they were sent are taken out of the
    /// migration and returned with their present values. Their shards are held.
    fn remove_arrived(&mut self, locked: &mut Locked<'_>, migration: &mut Migration) -> Vec<MigratingKey> {
        let mut again = Vec::new();
        // A replica's keys belong to its primary.
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

    /// Returns the connection's wait for a migration, if it still waits and this thread may answer it.
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
        let durable_after = self.take_durable_after();
        self.engine.inboxes[self.id].unpark(waiter.client, output, durable_after);
    }

    /// Sends changed keys again. The copies from the previous round are replaced.
    fn migrate_again(&mut self, mut migration: Box<Migration>) {
        (migration.replaces, migration.rounds) = (true, migration.rounds + 1);
        self.engine.migrations.add_bytes(migration.bytes());
        if let Err((mut migration, why)) = self.engine.host.migrate(migration) {
            migration.error = Some(MigrationError::Refused(why.into_bytes()));
            self.engine.migrations.leave(*migration);
        }
    }
}

/// Returns the error of a failed migration, in Redis's words. `is_left` is true if changed keys are left.
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
