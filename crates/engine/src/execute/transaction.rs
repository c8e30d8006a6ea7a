//! Transactions: commands that MULTI has queued, and EXEC, which runs them together.

use std::sync::atomic::Ordering;

use commands::error::Error;
use commands::spec::{Scope, fact};
use resp::num;
use resp::reply::{Output, Reply};
use store::db::Db;
use store::hash::KeyHash;
use store::keyspace::{Key, Locked, Shards};
use store::shared_bytes;

use super::Invocation;
use super::dispatch::silence;
use crate::clients::progress::Progress;
use crate::clients::session::{Queued, Session};
use crate::commit::TokenCount;
use crate::services::monitors;
use crate::services::slow::{self, LargeSizes};
use crate::worker::{GateGuard, Worker, is_whole};
use access::{Context, Denial, Denied};
use commands::table::Command;

/// The error that a counted pipeline notes for an EXEC with a null reply: the transaction has not run.
const WATCHED_CHANGED: &[u8] = b"EXECABORT Transaction discarded because a watched key has changed";

impl Worker {
    /// Runs the transaction that a session has queued.
    pub(super) fn exec(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        out: &mut Output,
        inside: &mut GateGuard,
    ) -> Progress {
        let began = self.ticks;
        let Some(multi) = session.multi.take() else { return Progress::Ready };
        let whole = multi.queue.iter().any(|q| is_whole(q.command, q.args.args()) || is_each(q));
        let progress = if whole {
            self.alone(session, inside, |worker, session, locked| {
                worker.exec_locked(session, invoked, &multi.queue, locked, out)
            })
        } else {
            let engine = self.engine;
            let mut shards: Vec<usize> = session.watched.values().map(|w| w.shard).collect();
            shards.extend(multi.queue.iter().flat_map(|q| &q.keys).map(|k| engine.keyspace.shard_of(k.hash)));
            shards.sort_unstable();
            shards.dedup();
            let locked = self.lock(Shards::Many(&shards));
            locked.map(|mut locked| self.exec_locked(session, invoked, &multi.queue, &mut locked, out))
        };
        let Some(progress) = progress else {
            session.multi = Some(multi);
            return self.answer_busy(session, invoked, out);
        };
        if progress == Progress::Paused {
            session.multi = Some(multi);
            return progress;
        }
        // The end of the transaction becomes visible to other threads only after its run.
        session.set_multi(None);
        if progress != Progress::Gone {
            self.account(session, invoked.command, invoked.args, began);
        }
        progress
    }

    fn exec_locked(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        queue: &[Queued],
        locked: &mut Locked<'_>,
        out: &mut Output,
    ) -> Progress {
        if self.engine.queue_changes_migrating(session.database, queue) {
            return Progress::Paused;
        }
        if session.is_clustered()
            && let Some(redirect) = self.redirect_transaction(session, queue, locked)
        {
            let keys = queue.iter().flat_map(|queued| queued.keys.iter().copied());
            self.durable_after = self.durable_after.max(self.removal_behind(redirect, keys));
            let error = self.redirect_error(session, redirect);
            self.redirect(session, invoked.command, invoked.args, &error, out);
            return Progress::Ready;
        }
        if session.caches() {
            self.show_invalidations(session, out);
        }
        let start = out.mark();
        let changed = self.watched_keys_changed(session, locked);
        session.unwatch(&self.engine.watchers);
        let mut reply = Reply::new(out, session.proto);
        if changed {
            reply.null_array();
            // The reply reveals another connection's change.
            self.depend_on_all();
            session.count_failure(Some(invoked.command), WATCHED_CHANGED);
        } else {
            self.exec_queue(session, queue, locked, out);
            self.commit(TokenCount::Session(session, true));
        }
        if self.is_monitored() {
            monitors::feed(self, session, invoked, Some((&*out, start)));
        }
        if session.closing { Progress::Closing } else { Progress::Ready }
    }

    /// Returns whether a watched key has changed or is gone. The watched keys' shards are held.
    fn watched_keys_changed(&mut self, session: &Session, locked: &mut Locked<'_>) -> bool {
        if session.mark.load(Ordering::Relaxed) {
            return true;
        }
        session.watched.iter().filter(|(_, w)| w.existed).any(|((database, key), w)| {
            debug_assert_eq!(w.hash, KeyHash::of(key));
            let db = Db::new(locked, *database, &self.clock, &mut self.observed);
            db.peek(Key { bytes: key, hash: w.hash }).is_none()
        })
    }

    /// Answers a queued command that its user has lost the permission for.
    fn deny_queued(&mut self, session: &mut Session, command: &'static Command, denial: Denial, out: &mut Output) {
        let error = denial_since(denial);
        self.stats().commands[command.id].rejected.add(1);
        self.stats().count_error(error.text());
        session.count_failure(Some(command), error.text());
        Reply::new(out, session.proto).error(error.text());
    }

    /// Runs a transaction's commands. CLIENT REPLY takes effect between them, as in Redis.
    fn exec_queue(&mut self, session: &mut Session, queue: &[Queued], locked: &mut Locked<'_>, out: &mut Output) {
        let start = out.mark();
        Reply::new(out, session.proto).array(queue.len());
        silence(session, session.reply_mode(), start, out);
        session.in_exec = true;
        let counts_keys = self.engine.counts_by_key();
        let queued_bytes = queue.iter().map(|queued| queued.args.memory_bytes()).sum();
        let large = LargeSizes::of(&self.engine.settings).among(queued_bytes);
        for queued in queue {
            let (start, wanted, began) = (out.mark(), session.reply_mode(), self.ticks);
            session.count_within(queued.command, queued.position);
            let args = &queued.args.args();
            let invoked = Invocation { command: queued.command, args, keys: &queued.keys };
            match self.allow(session, queued.command, *args, Context::Multi) {
                Ok(()) => shared_bytes::received(args.blocks().iter(), || {
                    self.with_lookups(session, queued.command, *args, |worker, session| {
                        worker.call(session, invoked, locked, out, false);
                    });
                }),
                Err(denial) => self.deny_queued(session, queued.command, denial, out),
            }
            let reply = out.len_since(start);
            if counts_keys {
                let ticks = self.ticks.since(began);
                slow::note_hot_keys(self, invoked, ticks, reply);
                slow::note_slot(self, invoked, ticks, reply);
            }
            if large.may_be(reply) {
                large.note(self, session, queued.command, *args, reply);
            }
            silence(session, wanted, start, out);
        }
        session.in_exec = false;
        self.engine.slots.release_bus(&mut session.holds_bus);
    }
}

/// Returns Redis's error for a command that was queued and may not run any more.
fn denial_since(denial: Denial) -> Error {
    let reason = match denial.object {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key => "no permission to touch the specified keys",
        Denied::Channel => "no permission to access one of the channels used as arguments",
        Denied::Database => "no permission to access the database",
    };
    Error::new(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is \
         no longer allowed for the following reason: {reason}"
    ))
}

fn is_each(queued: &Queued) -> bool {
    matches!(queued.command.info.scope_for(queued.args.args()), Scope::Each)
}

/// Returns whether a command runs at once although a transaction has begun.
pub(super) fn runs_within_multi(command: &Command) -> bool {
    command.info.is(fact::AT_ONCE)
}

/// Puts a command into a transaction's queue.
pub(super) fn queue(session: &mut Session, invoked: Invocation<'_>) {
    let Some(mut multi) = session.multi.take() else { return };
    let Invocation { command, args, keys } = invoked;
    if command.info.is(fact::SELECTS) {
        // EXEC refuses an index that is no number.
        let selected = num::parse_i64(args.get(1)).and_then(|index| usize::try_from(index).ok());
        multi.database = selected.or(multi.database);
    }
    let args = args.to_owned();
    multi.bytes += args.memory_bytes();
    multi.queue.push(Queued { command, args, keys: keys.to_vec(), position: session.position() });
    session.set_multi(Some(multi));
}
