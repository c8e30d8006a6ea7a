//! Keys that migrate to other servers: their dumps, and the commands that wait meanwhile.

use format::payload::with_dumper;
use store::db::Db;
use store::keyspace::Key;

use crate::inbox::Message;
use crate::listening::watch::{DbKey, Mark};
use crate::migrations::{MigratingKey, Migration};
use crate::state::Engine;

/// Blocks commands that would change the keys of a migration, and tracks changes that happen nevertheless. The caller
/// holds their shards.
pub(crate) fn hold(engine: &Engine, migration: &Migration) {
    if migration.copies {
        return;
    }
    for key in &migration.keys {
        let name: DbKey = (migration.database, key.name.clone());
        engine.watchers.add(engine.keyspace.shard_of(key.hash), name.clone(), &key.changed);
        engine.migrations.hold(name);
    }
}

/// Ends the block and the tracking.
pub(crate) fn let_go(engine: &Engine, migration: &Migration) {
    if migration.copies {
        return;
    }
    for key in &migration.keys {
        let name: DbKey = (migration.database, key.name.clone());
        engine.watchers.remove(engine.keyspace.shard_of(key.hash), &name, &key.changed);
        engine.migrations.let_go(&name);
    }
}

/// Wakes all threads to retry the commands that waited for these keys.
pub(crate) fn wake_held_up(engine: &Engine) {
    engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
}

/// Returns a key with its value, if it exists.
pub(crate) fn dump(db: &mut Db<'_, '_>, key: Key<'_>) -> Option<MigratingKey> {
    let expires_ms = db.look(key)?.expiry();
    let payload = db.view(key).map(|view| with_dumper(|dumper| dumper.value(&view)))?;
    let (name, changed) = (key.bytes.into(), Mark::default());
    Some(MigratingKey { name, hash: key.hash, payload, expires_ms, changed, has_arrived: false })
}
