//! Redirects commands that another node of the cluster must run. Admission checks every command with keys; while a slot is
//! open, a second check runs with its shard locked.

use commands::call::KeyRef;
use commands::error::Error;
use journal::order::Position;
use resp::reply::Output;
use resp::request::Args;
use store::keyspace::Locked;

use super::Invocation;
use super::admission::Admission;
use super::transaction::runs_within_multi;
use crate::clients::progress::Progress;
use crate::clients::session::{Queued, Session};
use crate::clients::transaction::is_exec;
use crate::services::routing::Routed;
use crate::slots::check::{Redirect, Route};
use crate::slow_path::AWAITED;
use crate::worker::Worker;
use commands::table::Command;

/// Returns a transaction's commands for routing.
fn queued(queue: &[Queued]) -> impl Iterator<Item = Routed<'_>> + Clone {
    queue.iter().map(|queued| Routed { command: queued.command, args: queued.args.args(), keys: &queued.keys })
}

impl Worker {
    /// Checks during admission that this node runs a command. EXEC is checked with all commands of its transaction, a
    /// second time for each.
    ///
    /// # Errors
    /// The redirect or the refusal.
    pub(super) fn route_admitted(&self, session: &Session, invoked: Invocation<'_>) -> Result<(), Redirect> {
        let Invocation { command, args, keys } = invoked;
        let route = match &session.multi {
            Some(multi) if is_exec(command) && !multi.aborted => self.route_all(session, queued(&multi.queue)),
            _ => self.route_one(session, &Routed { command, args: *args, keys }),
        };
        route.map(drop)
    }

    /// Returns the admission of a command that this node does not run, or not yet. A command of another node is queued in a transaction that
    /// may be forwarded: EXEC decides.
    pub(super) fn admit_elsewhere(&self, session: &Session, invoked: Invocation<'_>) -> Option<Admission> {
        let Invocation { command, args, .. } = invoked;
        let redirect = self.route_admitted(session, invoked).err();
        if session.awaits_node() && self.follows_strictly(session, redirect) {
            return Some(Admission::Later(Progress::AwaitsNodes));
        }
        let redirect = redirect?;
        Some(match self.destination(session, command, args, redirect) {
            // The state of this server, for example as a replica, does not concern the transaction if EXEC forwards it. EXEC checks it
            // otherwise.
            Some(_) if session.multi.is_some() && !is_exec(command) => Admission::Now(command),
            Some(_) if self.engine.holds_up(session, command, args, self.clock.now_ms) => {
                Admission::Later(Progress::Paused)
            }
            Some(destination) => Admission::Forwarded(command, destination),
            None => Admission::Elsewhere(command, self.redirect_error(session, redirect)),
        })
    }

    /// Returns the redirect of a command that depends on the keys of an open slot and can't run here. Its shards are locked.
    #[cold]
    pub(super) fn redirect_late(
        &mut self,
        session: &Session,
        invoked: Invocation<'_>,
        locked: &mut Locked<'_>,
    ) -> Option<Redirect> {
        let Invocation { command, args, keys } = invoked;
        let routed = || Routed { command, args: *args, keys };
        let settled = match self.route_one(session, &routed()) {
            Ok(Route::Open(open)) => self.settle_open(session, open, std::iter::once(routed()), locked),
            route => route.map(drop),
        };
        settled.err()
    }

    /// Like [`Worker::redirect_late`], for a transaction.
    #[cold]
    pub(super) fn redirect_transaction(
        &mut self,
        session: &Session,
        queue: &[Queued],
        locked: &mut Locked<'_>,
    ) -> Option<Redirect> {
        let settled = match self.route_all(session, queued(queue)) {
            Ok(Route::Open(open)) => self.settle_open(session, open, queued(queue), locked),
            route => route.map(drop),
        };
        let routed: Result<(), Redirect> = settled.and_then(|()| self.route_watched(session, queued(queue)));
        routed.err()
    }

    /// Has another node run a redirected command, or replies with the redirect. Returns `Progress::Paused` if the command must run again:
    /// it can't be forwarded before the removal of its key is durable.
    pub(super) fn forward_or_redirect(
        &mut self,
        session: &mut Session,
        invoked: Invocation<'_>,
        redirect: Redirect,
        out: &mut Output,
    ) -> Progress {
        let Invocation { command, args, keys } = invoked;
        let removed = self.removal_behind(redirect, keys.iter().copied());
        match self.destination(session, command, args, redirect) {
            Some(_) if removed > self.engine.durability.safe() => return Progress::Paused,
            Some(destination) => self.forward(session, invoked, destination, out),
            None => {
                self.durable_after = self.durable_after.max(removed);
                let error = self.redirect_error(session, redirect);
                self.redirect(session, command, args, &error, out);
            }
        }
        Progress::Ready
    }

    /// Returns the last unit that changed the keys of a command with the redirect ASK, or 0 for other redirects and if replies do not wait
    /// for durability. MIGRATE has removed a key in this unit, and clients write to the key at the target from now on. If a crash undid the
    /// removal, the older copy would come back here, and the next MIGRATE would replace the target's copy by it.
    pub(super) fn removal_behind(&self, redirect: Redirect, keys: impl Iterator<Item = KeyRef>) -> Position {
        let engine = self.engine;
        if !matches!(redirect, Redirect::Ask(..)) || !engine.slow_path.has(AWAITED) {
            return 0;
        }
        let change = |key: KeyRef| engine.durability.last_change(engine.keyspace.shard_of(key.hash), key.hash);
        keys.map(change).max().unwrap_or(0)
    }

    /// Replies to a command that another node must run. A queued command spoils its transaction, so that EXEC refuses it.
    /// A redirected EXEC discards its transaction.
    pub(super) fn redirect(
        &mut self,
        session: &mut Session,
        command: &'static Command,
        args: &Args<'_>,
        error: &Error,
        out: &mut Output,
    ) {
        self.stats().commands[command.id].rejected.add(1);
        session.round_trips.redirected += u32::from(error.text().starts_with(b"MOVED "));
        if is_exec(command) {
            session.set_multi(None);
            session.unwatch(&self.engine.watchers);
        } else if let Some(multi) = &mut session.multi
            && !runs_within_multi(command)
        {
            multi.aborted = true;
        }
        session.count_redirected();
        self.answer_refused(session, Some(command), args, error, out);
    }
}
