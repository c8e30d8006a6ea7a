//! Commands that wait: parked until a key has something for them, then run by the thread that has changed the key.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::call::{Call, Wait};
use commands::spec::key_flag;
use resp::reply::{Output, Reply};
use store::db::Db;
use store::hash::KeyHash;
use store::keyspace::Key;
use store::value::Type;

use super::Invocation;
use crate::access::Context;
use crate::clients::blocking::{Parked, Waiter};
use crate::clients::client::Blocked;
use crate::clients::session::Session;
use crate::commit::{Changed, TokenCount};
use crate::listening::watch::DbKey;
use crate::machine::ticks::Ticks;
use crate::reasons::{AWAITED, KEEPS_PENDING};
use crate::worker::turn::Run;
use crate::worker::{Pass, Step, Worker};

/// That a script which takes too long holds what is needed.
#[derive(Debug)]
struct HeldByScript;

impl Worker {
    /// Parks the connection until one of the command's keys has something for it.
    #[cold]
    pub(super) fn park(&mut self, session: &mut Session, invoked: Invocation<'_>, wait: Wait) -> Step {
        let Invocation { command, args, keys } = invoked;
        let mut registered: Vec<(usize, DbKey)> = Vec::new();
        let mut known: HashSet<&[u8]> = HashSet::new();
        // Only keys that the command takes or reads from can end its wait, if keys can.
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
        // It is counted when it is answered; CLIENT LIST shows it now.
        session.client.last_command.store(command.id as u32, Ordering::Relaxed);
        // After it is known to wait: what kills the connection looks at that afterwards.
        if session.client.summons.is_killed() {
            self.unpark(session);
            return Step::Gone;
        }
        Step::Park
    }

    /// Runs the commands of the waiters for the keys that have changed, until none finds anything any more.
    #[cold]
    pub(crate) fn serve_ready(&mut self, inside: &mut Pass) {
        debug_assert!(inside.is_some());
        // What made the keys ready may have taken long.
        self.clock.follow(Ticks::now());
        while !self.ready.is_empty() {
            for (shard, key) in std::mem::take(&mut self.ready) {
                if self.serve_key(shard, &key).is_err() {
                    self.late.push((shard, key));
                }
            }
        }
    }

    /// Looks again at the waiters that a busy script has kept from being served, and at those that the clock serves. Call it many
    /// times a second.
    pub fn serve_late(&mut self) {
        self.serve_due();
        if (self.late.is_empty() && self.ready.is_empty()) || self.engine.busy.any() {
            return;
        }
        let mut inside = self.pass();
        if inside.is_some() {
            self.ready.append(&mut self.late);
            self.serve_ready(&mut inside);
            self.note_observed();
        }
    }

    /// Serves the waiters that wait for a moment as well as for keys: entries that will have been pending for long enough. Keys stay
    /// as they are while something holds up commands that write; these waiters come afterwards then.
    fn serve_due(&mut self) {
        let due = self.engine.waiters.due(self.clock.now_ms);
        if due.is_empty() || self.engine.busy.any() || self.engine.reasons.has(KEEPS_PENDING) {
            return;
        }
        let mut inside = self.pass();
        if inside.is_none() {
            return;
        }
        self.clock.follow(Ticks::now());
        for waiter in due {
            if waiter.claim_to_serve() && self.serve(&waiter).is_err() {
                // It stays due.
                break;
            }
        }
        self.serve_ready(&mut inside);
        self.note_observed();
    }

    /// Serves the waiters for a key, in the order in which they came. A waiter is tried if its command takes from the type that the key
    /// has now; a waiter for another type goes on waiting, though its command would answer an error. A waiter that reads for a group is
    /// always tried: if the key is gone, so is the group, and the waiter gets an error.
    fn serve_key(&mut self, shard: usize, key: &DbKey) -> Result<(), HeldByScript> {
        let mut tried = 0;
        while let Some(waiter) = self.engine.waiters.after(shard, key, tried) {
            let kind = self.kind_of(shard, key)?;
            if kind.is_none() && !self.engine.waiters.any_in_groups() {
                return Ok(());
            }
            tried = waiter.ticket();
            let is_due = waiter.reads_in_group() || kind.is_some() && waiter.takes_from() == kind;
            // One that can't be claimed is about to leave the queue, or will be looked at again by the thread that has claimed it.
            if is_due && waiter.claim_to_serve() {
                self.serve(&waiter)?;
            }
        }
        Ok(())
    }

    /// Serves a waiter that has been claimed, or lets it wait on.
    fn serve(&mut self, waiter: &Arc<Waiter>) -> Result<(), HeldByScript> {
        // The waiter's reply depends on the waiter's own unit, and the reply of the command that serves it does not.
        let depends = self.take_depends();
        loop {
            self.depends = 0;
            let tried = self.try_for(waiter);
            if let Ok(Some(output)) = tried {
                self.engine.waiters.remove(waiter);
                self.engine.inboxes[waiter.worker].unpark(waiter.client, output, self.depends);
                self.depends = depends;
                return Ok(());
            }
            self.depends = depends;
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

    /// Answers a waiter whose user has lost the right to its command since it was parked. True if it has.
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
        // It has been answered, as far as its pipeline counts.
        waiter.count(Some(&text));
        self.commit(TokenCount::Waiter(waiter));
        Reply::new(out, waiter.proto).error(&text);
        true
    }

    fn kind_of(&mut self, shard: usize, key: &DbKey) -> Result<Option<Type>, HeldByScript> {
        let locked = self.lock(|keyspace, give_up| keyspace.lock_one_unless(shard, give_up));
        let mut locked = locked.ok_or(HeldByScript)?;
        self.begin_effects(&[], None, self.engine.reasons.get());
        let kind = Db::new(&mut locked, key.0, &self.clock, &mut self.observed).kind(Key::new(&key.1));
        // Its time may have come.
        self.gather_and_commit(TokenCount::None, shard);
        Ok(kind)
    }

    /// Runs a waiter's command for it; none if there is still nothing.
    fn try_for(&mut self, waiter: &Waiter) -> Result<Option<Output>, HeldByScript> {
        let Run::Keys(run) = *self.run_of(waiter.command) else { return Ok(None) };
        let mut output = Output::default();
        if self.deny_waiter(waiter, &mut output) {
            return Ok(Some(output));
        }
        let shards = self.take_shards(&waiter.keys);
        let Some(mut locked) = self.lock(|keyspace, give_up| keyspace.lock_many_unless(&shards, give_up)) else {
            self.shards = shards;
            return Err(HeldByScript);
        };
        let args = waiter.args.args();
        self.begin_effects(&waiter.keys, Some(&args), self.engine.reasons.get());
        if self.engine.reasons.has(AWAITED) {
            self.depend_on(waiter.command, &args, &waiter.keys);
        }
        let (outcome, wait) = {
            let mut call = Call {
                args: &args,
                db: Db::new(&mut locked, waiter.database, &self.clock, &mut self.observed),
                reply: Reply::new(&mut output, waiter.proto),
                effects: &mut self.effects,
                rules: &self.rules,
                random: &mut self.random,
                keys: &waiter.keys,
                in_script: false,
                wait: None,
            };
            (run(&mut call), call.wait)
        };
        let answer = match (outcome, wait) {
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
        self.gather(Some((waiter.database, &args)), Changed::Keys(&waiter.keys));
        self.commit(if answer.is_some() { TokenCount::Waiter(waiter) } else { TokenCount::None });
        if answer.is_some() {
            self.remember_reads_of(waiter);
        }
        drop(locked);
        self.shards = shards;
        Ok(answer)
    }
}
