//! Blocking commands: parked until a key has a value for them, then run by the thread that has changed the key.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::call::Wait;
use commands::spec::key_flag;
use resp::reply::{Output, Proto, Reply};
use store::db::Db;
use store::hash::KeyHash;
use store::keyspace::{Key, Shards};
use store::value::Type;

use super::{Caller, Invocation};
use crate::clients::blocking::{Parked, Waiter};
use crate::clients::client::Blocked;
use crate::clients::progress::Progress;
use crate::clients::session::Session;
use crate::commit::{Changed, TokenCount};
use crate::listening::watch::DbKey;
use crate::services::invalidations;
use crate::slow_path::{AWAITED, KEEPS_PENDING};
use crate::worker::turn::Run;
use crate::worker::{GateGuard, Worker};
use access::Context;
use statistics::ticks::Ticks;

/// The error that a busy script holds a needed shard.
#[derive(Debug)]
struct HeldByScript;

impl Caller for Waiter {
    fn database(&self) -> usize {
        self.database
    }

    fn proto(&self) -> Proto {
        self.proto
    }

    fn no_touch(&self) -> bool {
        false
    }
}

impl Worker {
    /// Parks the connection until one of the command's keys has a value for it.
    #[cold]
    pub(super) fn park(&mut self, session: &mut Session, invoked: Invocation<'_>, wait: Wait) -> Progress {
        let Invocation { command, args, keys } = invoked;
        let mut registered: Vec<(usize, DbKey)> = Vec::new();
        let mut known: HashSet<&[u8]> = HashSet::new();
        // Only keys that the command takes or reads from can end its wait. Waits for acknowledgements end by no key.
        let ends_by_keys = session.awaited.is_none();
        for spec in command.info.keys.iter().filter(|k| ends_by_keys && k.flags & key_flag::ACCESS != 0) {
            spec.visit(*args, |i| {
                let key = args.get(i);
                if known.insert(key) {
                    registered.push((self.engine.keyspace.shard_of(KeyHash::of(key)), (session.database, key.into())));
                }
            });
        }
        let waiter = Arc::new(Waiter::new(
            session.client.id,
            self.id,
            command,
            self.effects.again.take().unwrap_or_else(|| args.to_owned()),
            keys.to_vec(),
            session.database,
            session.proto,
            wait,
            registered,
            session.awaited.take(),
            session.user().cloned(),
            session.tally().map(|tally| tally.pipeline().clone()),
            self.engine.waiters.ticket(),
        ));
        self.engine.waiters.add(&waiter);
        session.client.block(Blocked::Waits(waiter, None));
        // The command is counted when it is answered; CLIENT LIST shows it now.
        session.client.last_command.store(command.id as u32, Ordering::Relaxed);
        // The killer of a connection checks for a wait after setting its signal. This check follows the registration of
        // the wait, so one of the two sees the other.
        if session.client.pending_signals.is_killed() {
            self.unpark(session);
            return Progress::Gone;
        }
        Progress::Parked
    }

    /// Runs the commands of the waiters for changed keys, until no waiter finds a value.
    #[cold]
    pub(crate) fn serve_ready(&mut self, inside: &mut GateGuard) {
        debug_assert!(inside.is_some());
        // The command that changed the keys may have taken long.
        self.clock.follow(Ticks::now());
        while !self.ready.is_empty() {
            for (shard, key) in std::mem::take(&mut self.ready) {
                if self.serve_key(shard, &key).is_err() {
                    self.late.push((shard, key));
                }
            }
        }
    }

    /// Retries the waiters that a busy script has delayed, and serves those that wait for a time. Call it many times a
    /// second.
    pub fn serve_late(&mut self) {
        self.serve_due();
        if (self.late.is_empty() && self.ready.is_empty()) || self.engine.busy.any() {
            return;
        }
        let mut inside = self.enter_gate();
        if inside.is_some() {
            self.ready.append(&mut self.late);
            self.serve_ready(&mut inside);
            self.note_observed();
        }
    }

    /// Serves the waiters that wait for a time as well as for keys: stream entries that become claimable. These waiters
    /// are served later while writes are held back, because keys stay unchanged then.
    fn serve_due(&mut self) {
        let due = self.engine.waiters.due(self.clock.now_ms);
        if due.is_empty() || self.engine.busy.any() || self.engine.slow_path.has(KEEPS_PENDING) {
            return;
        }
        let mut inside = self.enter_gate();
        if inside.is_none() {
            return;
        }
        self.clock.follow(Ticks::now());
        for waiter in due {
            if waiter.claim_to_serve() && self.serve(&waiter).is_err() {
                // The waiter stays due.
                break;
            }
        }
        self.serve_ready(&mut inside);
        self.note_observed();
    }

    /// Serves the waiters for a key in order of arrival. A waiter is tried if its command takes from the key's present
    /// type. A waiter for another type goes on waiting, although its command would answer an error. A waiter that reads
    /// for a consumer group is always tried: if the key is gone, its group is gone, and the waiter gets an error.
    fn serve_key(&mut self, shard: usize, key: &DbKey) -> Result<(), HeldByScript> {
        let mut tried = 0;
        while let Some(waiter) = self.engine.waiters.after(shard, key, tried) {
            let kind = self.kind_of(shard, key)?;
            if kind.is_none() && !self.engine.waiters.any_in_groups() {
                return Ok(());
            }
            tried = waiter.ticket();
            let is_due = waiter.reads_in_group() || kind.is_some() && waiter.takes_from() == kind;
            // An unclaimable waiter is about to leave the queue, or its claiming thread will check it again.
            if is_due && waiter.claim_to_serve() {
                self.serve(&waiter)?;
            }
        }
        Ok(())
    }

    /// Serves a claimed waiter, or lets it wait on.
    fn serve(&mut self, waiter: &Arc<Waiter>) -> Result<(), HeldByScript> {
        // The waiter's reply depends on the waiter's own unit. The reply of the command that serves it does not.
        let durable_after = self.take_durable_after();
        loop {
            self.durable_after = 0;
            let tried = self.try_for(waiter);
            if let Ok(Some(output)) = tried {
                self.engine.waiters.remove(waiter);
                self.engine.inboxes[waiter.worker].unpark(waiter.client, output, self.durable_after);
                self.durable_after = durable_after;
                return Ok(());
            }
            self.durable_after = durable_after;
            let outcome = tried.map(drop);
            match waiter.park_again() {
                Parked::Again => return outcome,
                Parked::Missed => {}
                Parked::Abandoned => {
                    self.engine.waiters.remove(waiter);
                    return outcome;
                }
            }
        }
    }

    /// Answers a waiter that was parked before its user lost the permission for its command. Returns true in that case.
    fn deny_waiter(&mut self, waiter: &Waiter, out: &mut Output) -> bool {
        let user = waiter.user.as_ref().filter(|_| self.engine.users.any_restricted());
        let Some(user) = user else { return false };
        let (command, args) = (waiter.command, waiter.args.args());
        let Err(denial) = user.permissions().check(self.asked(waiter.database, command, args)) else { return false };
        if let Some(client) = self.engine.clients.get(waiter.client) {
            self.note_denial(&client, user, command, args, denial, Context::TopLevel);
        }
        let text = format!("NOPERM {}", denial.text(user.shown(), command)).into_bytes();
        self.stats().commands[command.id].rejected.add(1);
        self.stats().count_error(&text);
        // The waiter counts as answered for its pipeline.
        waiter.count(Some(&text));
        self.commit(TokenCount::Waiter(waiter));
        Reply::new(out, waiter.proto).error(&text);
        true
    }

    fn kind_of(&mut self, shard: usize, key: &DbKey) -> Result<Option<Type>, HeldByScript> {
        let locked = self.lock(Shards::One(shard));
        let mut locked = locked.ok_or(HeldByScript)?;
        self.begin_effects(&[], None, self.engine.slow_path.get());
        let kind = Db::new(&mut locked, key.0, &self.clock, &mut self.observed).kind(Key::new(&key.1));
        // The lookup may have removed an expired key.
        self.collect_and_commit(TokenCount::None, shard);
        Ok(kind)
    }

    /// Runs a waiter's command. Returns `None` if there is still no value.
    fn try_for(&mut self, waiter: &Waiter) -> Result<Option<Output>, HeldByScript> {
        let Run::Keys(run) = *self.run_of(waiter.command) else { return Ok(None) };
        let mut output = Output::default();
        if self.deny_waiter(waiter, &mut output) {
            return Ok(Some(output));
        }
        let shards = self.take_shards(&waiter.keys);
        let Some(mut locked) = self.lock(Shards::Many(&shards)) else {
            self.shards = shards;
            return Err(HeldByScript);
        };
        let args = waiter.args.args();
        self.begin_effects(&waiter.keys, Some(&args), self.engine.slow_path.get());
        if self.engine.slow_path.has(AWAITED) {
            self.depend_on(waiter.command, &args, &waiter.keys);
        }
        let (outcome, wait) = {
            let invoked = Invocation { command: waiter.command, args: &args, keys: &waiter.keys };
            let mut call = self.begin_call(waiter, invoked, &mut locked, &mut output);
            (run(&mut call), call.wait)
        };
        let mut answer = match (outcome, wait) {
            (_, Some(wait)) => {
                waiter.run_again_at(wait.again_ms);
                None
            }
            (Ok(()), None) => {
                self.count_ended(waiter);
                Some(output)
            }
            (Err(error), None) => {
                self.count_failed(waiter, error.text());
                Reply::new(&mut output, waiter.proto).error(error.text());
                Some(output)
            }
        };
        self.collect_effects(Some((waiter.database, &args)), Changed::Keys(&waiter.keys));
        if let Some(output) = &mut answer {
            self.served_client = waiter.client;
            self.commit(TokenCount::Waiter(waiter));
            self.served_client = 0;
            invalidations::write_served(self, &mut Reply::new(output, waiter.proto));
            self.remember_reads_of(waiter);
        } else {
            self.commit(TokenCount::None);
        }
        drop(locked);
        self.shards = shards;
        Ok(answer)
    }
}
