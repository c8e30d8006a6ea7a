//! Transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! EXEC itself is run by `execute.rs`, since it takes the locks of all queued commands; its handler here only answers
//! where there is nothing to run. Source of the semantics: Redis's "Transactions" page.

use std::sync::atomic::Ordering;

use commands::error::{Error, Outcome};
use commands::spec::flag::{ALLOW_BUSY, FAST, LOADING, NOSCRIPT, SKIP_SLOWLOG, STALE};
use commands::spec::key_flag::RO;
use commands::spec::{Group, KeySpec, Spec, fact};
use store::db::Db;
use store::hash::KeyHash;
use store::keyspace::{Key, Locked};

use crate::client::client_flag;
use crate::client_memory::{forget_name, note_name};
use crate::command_table::{Command, Run};
use crate::session::{Multi, Session, Watched};
use crate::turn::Turn;
use crate::watch::DbKey;
use crate::worker::Worker;

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
                "Gives a transaction up.",
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

/// Whether this is EXEC: the command that runs a transaction's queue.
#[inline]
pub(crate) fn is_exec(command: &Command) -> bool {
    command.info.is(fact::RUNS_QUEUE)
}

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
    unwatch(turn.worker, turn.session);
    Err(Error::new("EXECABORT Transaction discarded because of previous errors."))
}

/// Ends a transaction whose EXEC is refused because of `error`; the error to answer instead.
pub(crate) fn abort(worker: &mut Worker, session: &mut Session, error: &Error) -> Error {
    session.set_multi(None);
    unwatch(worker, session);
    let reason = error.text().strip_prefix(b"ERR ").unwrap_or(error.text());
    Error::quoting([b"EXECABORT Transaction discarded because of: ", reason].concat())
}

fn discard(turn: &mut Turn<'_, '_>) -> Outcome {
    if turn.session.multi.is_none() {
        return Err(Error::new("ERR DISCARD without MULTI"));
    }
    turn.session.set_multi(None);
    unwatch(turn.worker, turn.session);
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
    turn.session.watched.insert(name, Watched { shard, hash: key.hash, existed });
}

fn stop_watching(turn: &mut Turn<'_, '_>) -> Outcome {
    unwatch(turn.worker, turn.session);
    turn.reply.ok();
    Ok(())
}

/// Forgets what a session watches.
pub(crate) fn unwatch(worker: &mut Worker, session: &mut Session) {
    for (key, watched) in session.watched.drain() {
        forget_name(&session.client, &key.1);
        worker.engine.watchers.remove(watched.shard, &key, &session.mark);
    }
    session.mark.store(false, Ordering::Relaxed);
    session.client.watched.store(0, Ordering::Relaxed);
    session.client.set(client_flag::DIRTY, false);
}

/// Whether a key that the session watches has changed or is gone. The watched keys' shards are held.
pub(crate) fn watched_keys_changed(worker: &mut Worker, session: &Session, locked: &mut Locked<'_>) -> bool {
    if session.mark.load(Ordering::Relaxed) {
        return true;
    }
    session.watched.iter().filter(|(_, w)| w.existed).any(|((database, key), w)| {
        debug_assert_eq!(w.hash, KeyHash::of(key));
        let db = Db::new(locked, *database, &worker.clock, &mut worker.observed);
        db.peek(Key { bytes: key, hash: w.hash }).is_none()
    })
}
