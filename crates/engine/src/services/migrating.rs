//! Keys on their way to other servers: what is sent of each, and the commands that wait meanwhile.

use std::cell::RefCell;

use format::payload::Dumper;
use store::db::Db;
use store::keyspace::Key;

use crate::engine::Engine;
use crate::inbox::Message;
use crate::listening::watch::{DbKey, Mark};
use crate::migrations::{MigratingKey, Migration};

thread_local! {
    /// Made by the thread's first MIGRATE: it has a table of 256 KB.
    static DUMPER: RefCell<Dumper> = RefCell::new(Dumper::new());
}

/// Has commands that would change the keys of a migration wait, and notes the changes of those that do so nevertheless. Their shards are
/// held.
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

/// Ends that.
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

/// Has all threads look at the commands that have waited for what was let go.
pub(crate) fn wake_held_up(engine: &Engine) {
    engine.inboxes.iter().for_each(|inbox| inbox.send(Message::Look));
}

/// A key with its value, if there is one.
pub(crate) fn dump(db: &mut Db<'_, '_>, key: Key<'_>) -> Option<MigratingKey> {
    let expires_ms = db.look(key)?.expiry();
    let payload = db.view(key).map(|view| DUMPER.with_borrow_mut(|dumper| dumper.value(&view)))?;
    let (name, changed) = (key.bytes.into(), Mark::default());
    Some(MigratingKey { name, hash: key.hash, payload, expires_ms, changed, has_arrived: false })
}
