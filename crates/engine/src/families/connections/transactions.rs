//! Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! `execute.rs` runs EXEC, because it takes the locks of all queued commands; the handler here only replies if there is
//! nothing to run. Source of the semantics: Redis's "Transactions" page.

use std::sync::atomic::Ordering;

use commands::error::{Error, Outcome};
use commands::spec::flag::{ALLOW_BUSY, FAST, LOADING, NOSCRIPT, SKIP_SLOWLOG, STALE};
use commands::spec::key_flag::RO;
use commands::spec::{Group, KeySpec, Spec, fact};
use store::keyspace::Key;

use crate::clients::client_memory::note_name;
use crate::clients::session::{Multi, WatchedKey};
use crate::listening::watch::DbKey;
use crate::worker::turn::{Run, Turn};

/// The family's entries.
pub const COMMANDS: &[Spec<Run>] =
    &[
        Spec::new("multi", 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY, Run::Session(multi))
            .facts(fact::AT_ONCE)
            .brief()
            .docs(Group::Transactions, "1.2.0", "O(1)", "Begins a transaction.", ""),
        Spec::new("exec", 1, NOSCRIPT | LOADING | STALE | SKIP_SLOWLOG, Run::Session(exec))
            .facts(fact::AT_ONCE | fact::RUNS_QUEUE)
            .docs(
                Group::Transactions,
                "1.2.0",
                "Depends on the commands of the transaction",
                "Runs all commands of a transaction.",
                "",
            ),
        Spec::new("discard", 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY, Run::Session(discard))
            .facts(fact::AT_ONCE)
            .brief()
            .docs(
                Group::Transactions,
                "2.0.0",
                "O(N), where N is the number of queued commands",
                "Discards a transaction.",
                "",
            ),
        Spec::new("watch", -2, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY, Run::Session(watch))
            .facts(fact::AT_ONCE)
            .keys(&[KeySpec::range(1, -1, 1, RO)])
            .docs(
                Group::Transactions,
                "2.2.0",
                "O(1) for every key",
                "Makes the next transaction depend on keys that do not change before it.",
                "key [key ...]",
            ),
        Spec::new("unwatch", 1, NOSCRIPT | LOADING | STALE | FAST | ALLOW_BUSY, Run::Session(stop_watching))
            .brief()
            .docs(Group::Transactions, "2.2.0", "O(1)", "Forgets all watched keys.", ""),
    ];

fn multi(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.session.multi.is_some() {
        return Err(Error::new("ERR MULTI calls can not be nested"));
    }
    turn.session.set_multi(Some(Box::<Multi>::default()));
    turn.reply.ok();
    Ok(())
}

fn exec(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.session.multi.is_none() {
        return Err(Error::new("ERR EXEC without MULTI"));
    }
    turn.session.set_multi(None);
    turn.session.unwatch(&turn.worker.engine.watchers);
    Err(Error::new("EXECABORT Transaction discarded because of previous errors."))
}

fn discard(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.session.multi.is_none() {
        return Err(Error::new("ERR DISCARD without MULTI"));
    }
    turn.session.set_multi(None);
    turn.session.unwatch(&turn.worker.engine.watchers);
    turn.reply.ok();
    Ok(())
}

fn watch(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.session.multi.is_some() {
        return Err(Error::new("ERR WATCH inside MULTI is not allowed"));
    }
    for key in turn.each_key() {
        watch_key(turn, key);
    }
    turn.session.client.watched.store(turn.session.watched.len() as u32, Ordering::Relaxed);
    turn.reply.ok();
    Ok(())
}

fn watch_key(turn: &mut Turn<'_, '_>, key: Key<'_>) {
    let name: DbKey = (turn.session.database, key.bytes.into());
    if turn.session.watched.contains_key(&name) {
        return;
    }
    let existed = turn.db().peek(key).is_some();
    let engine = turn.engine();
    let shard = engine.keyspace.shard_of(key.hash);
    engine.watchers.add(shard, name.clone(), &turn.session.mark);
    note_name(&turn.session.client, key.bytes);
    turn.session.watched.insert(name, WatchedKey { shard, hash: key.hash, existed });
}

fn stop_watching(turn: &mut Turn<'_, '_>) -> Outcome {
    turn.session.unwatch(&turn.worker.engine.watchers);
    turn.reply.ok();
    Ok(())
}
