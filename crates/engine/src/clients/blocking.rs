//! Blocking commands: connections that wait for a key, in the order in which they came.
//!
//! A waiter is registered under the locks of its keys' shards, when its command has found nothing. The thread that changes such a key
//! runs the waiter's command for it, right after the command that changed it, and sends the reply to the thread that owns the
//! connection. One atomic word decides which thread may answer a waiter: to serve it, to let its time run out, or to forget it. The
//! word also tells a thread that has tried in vain to serve a waiter what happened meanwhile: another thread changed a key and left the
//! waiter to it, or the connection went away.

mod claim;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use commands::call::{KeyRef, TimeoutReply, Wait};
use journal::record::Record;
use resp::reply::{Output, Proto, Reply};
use resp::request::OwnedArgs;
use store::hash::KeyHash;
use store::value::Type;

use self::claim::Claim;
use crate::access::User;
use crate::command_table::Command;
use crate::listening::listeners::Listeners;
use crate::listening::watch::DbKey;
use crate::pipelines::{Hold, Pipeline};
use crate::replication::replicas::Acknowledgement;

pub use claim::Parked;

/// What a command waits for, other than keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// Replicas and the disk (WAIT, WAITAOF).
    Acknowledgement(Acknowledgement),
    /// The end of a migration.
    Migration {
        /// Its number.
        id: u64,
    },
}

impl Awaited {
    /// The wait as a blocking command's. What it answers when its time has run out is counted then.
    pub(crate) fn wait(&self) -> Wait {
        let timeout_ms = match self {
            Awaited::Acknowledgement(awaited) => awaited.timeout_ms,
            // The server ends it, which has a time limit for each step.
            Awaited::Migration { .. } => None,
        };
        Wait { timeout_ms, reply: TimeoutReply::NullArray, again_ms: None }
    }
}

/// A parked connection with its command.
pub struct Waiter {
    /// The connection.
    pub client: u64,
    /// The thread that owns it.
    pub worker: usize,
    /// The command.
    pub command: &'static Command,
    /// Its arguments.
    pub args: OwnedArgs,
    /// Its keys, hashed.
    pub keys: Vec<KeyRef>,
    /// The database it was given in.
    pub database: usize,
    /// The version of the protocol that its reply has to be in.
    pub proto: Proto,
    /// For how long, and what to answer if it may not.
    pub wait: Wait,
    /// The keys under which it is registered, with their shards.
    pub registered: Vec<(usize, DbKey)>,
    /// What it waits for instead of keys.
    pub awaited: Option<Awaited>,
    /// The user that the connection is; none of what the server runs itself.
    pub(crate) user: Option<Arc<User>>,
    /// What the connection counts for. The command counts when it is answered.
    pipeline: Option<Arc<Pipeline>>,
    /// Its place among all waiters: later ones have higher numbers.
    ticket: u64,
    right: Claim,
    /// When its command is run again though no key has changed, in milliseconds of Unix time; [`NEVER`] if not. The command says
    /// when each time that it has found nothing.
    again_ms: AtomicU64,
    /// Whether its connection is closed once it is answered.
    ends_connection: AtomicBool,
}

impl Waiter {
    /// A waiter that is parked. It is not registered yet. `ticket` is from [`Waiters::ticket`], drawn under the locks
    /// of its keys' shards.
    #[must_use]
    #[expect(clippy::too_many_arguments, reason = "it is a record of all of these")]
    pub(crate) fn new(
        client: u64,
        worker: usize,
        command: &'static Command,
        args: OwnedArgs,
        keys: Vec<KeyRef>,
        database: usize,
        proto: Proto,
        wait: Wait,
        registered: Vec<(usize, DbKey)>,
        awaited: Option<Awaited>,
        user: Option<Arc<User>>,
        pipeline: Option<Arc<Pipeline>>,
        ticket: u64,
    ) -> Waiter {
        let right = Claim::parked();
        Waiter {
            client,
            worker,
            command,
            args,
            keys,
            database,
            proto,
            wait,
            registered,
            awaited,
            user,
            pipeline,
            ticket,
            right,
            again_ms: AtomicU64::new(wait.again_ms.unwrap_or(NEVER)),
            ends_connection: AtomicBool::new(false),
        }
    }

    /// Has its command be run again at this time though no key has changed.
    pub(crate) fn run_again_at(&self, ms: Option<u64>) {
        self.again_ms.store(ms.unwrap_or(NEVER), Ordering::Relaxed);
    }

    /// Has its connection be closed once it is answered. The caller has claimed the right to answer, and not used it yet.
    pub(crate) fn end_connection(&self) {
        self.ends_connection.store(true, Ordering::Release);
    }

    /// Whether its connection is closed once it is answered.
    pub(crate) fn ends_connection(&self) -> bool {
        self.ends_connection.load(Ordering::Acquire)
    }

    /// Takes the right to answer; false if another thread has it.
    #[must_use]
    pub fn claim(&self) -> bool {
        self.right.take()
    }

    /// Takes the right to serve, after one of its keys has changed. If another thread has the right, it is told to look again before
    /// it gives the right back: what it looks at may be from before the change.
    #[must_use]
    pub fn claim_to_serve(&self) -> bool {
        self.right.take_to_serve()
    }

    /// Gives the right back: there was nothing for this waiter after all.
    #[must_use]
    pub fn park_again(&self) -> Parked {
        self.right.give_back()
    }

    /// The connection is gone. False if another thread has the right to answer, which takes the waiter out of the queues then.
    #[must_use]
    pub fn abandon(&self) -> bool {
        self.right.abandon()
    }

    /// Counts the command, which its connection's pipeline has executed now that it is answered, be it with an error.
    /// The caller is inside the gate and has claimed the right to answer.
    pub fn count(&self, error: Option<&[u8]>) {
        // The token may have been taken back since the connection parked.
        if let Some(pipeline) = self.pipeline.as_ref().filter(|pipeline| pipeline.hold_of(self.client) != Hold::Lost) {
            pipeline.count_one(error);
        }
    }

    /// Records the count of its connection's pipeline, if there is one.
    pub(crate) fn record_count(&self, record: &mut Record) {
        if let Some(pipeline) = &self.pipeline {
            pipeline.record(0, 0, &[], pipeline.database(), record);
        }
    }

    /// What it waits for of replicas and the disk, if it does.
    #[must_use]
    pub(crate) fn acknowledgement(&self) -> Option<&Acknowledgement> {
        match &self.awaited {
            Some(Awaited::Acknowledgement(awaited)) => Some(awaited),
            _ => None,
        }
    }

    /// Whether it waits for a migration, which only its server or its connection ends.
    #[must_use]
    pub(crate) fn is_migrating(&self) -> bool {
        matches!(self.awaited, Some(Awaited::Migration { .. }))
    }

    /// Its place among all waiters.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The type of value that its command takes from.
    #[must_use]
    pub fn takes_from(&self) -> Option<Type> {
        self.command.info.waits.map(|waits| waits.kind)
    }

    /// Whether it waits for what a group of consumers is given. Its command fails when the group is gone.
    #[must_use]
    pub fn reads_in_group(&self) -> bool {
        self.command.info.waits.is_some_and(|waits| waits.ends_without_key)
    }

    /// The reply when its time has run out: a null array, whatever the command.
    #[must_use]
    pub fn timeout_reply(&self) -> Output {
        let mut output = Output::default();
        Reply::new(&mut output, self.proto).null_array();
        output
    }
}

/// The time of waiters that only keys and deadlines end.
const NEVER: u64 = u64::MAX;

/// Writes what a blocking command answers when it found nothing and may not wait.
pub fn write_no_wait(reply: &mut Reply<'_>, kind: TimeoutReply) {
    match kind {
        TimeoutReply::Null => reply.null(),
        TimeoutReply::NullArray => reply.null_array(),
    }
}

/// Whether a waiter in a key's queue reads for a group.
fn is_read_in_group(queue: &VecDeque<Arc<Waiter>>) -> bool {
    queue.iter().any(|waiter| waiter.reads_in_group())
}

type Queues = HashMap<DbKey, VecDeque<Arc<Waiter>>>;

/// The waiters of all keys, cut like the keyspace.
pub struct Waiters {
    shards: Box<[Mutex<Queues>]>,
    count: AtomicUsize,
    /// Those of them that read in a group.
    in_groups: AtomicUsize,
    tickets: AtomicU64,
    /// Those that the clock serves, too, by ticket.
    by_clock: Mutex<BTreeMap<u64, Arc<Waiter>>>,
    /// How many these are.
    clocked: AtomicUsize,
    listeners: Arc<Listeners>,
}

impl Waiters {
    /// No waiters, for a keyspace of so many shards.
    #[must_use]
    pub fn new(shards: usize, listeners: Arc<Listeners>) -> Waiters {
        Waiters {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            count: AtomicUsize::new(0),
            in_groups: AtomicUsize::new(0),
            tickets: AtomicU64::new(1),
            by_clock: Mutex::default(),
            clocked: AtomicUsize::new(0),
            listeners,
        }
    }

    fn with<T>(&self, shard: usize, run: impl FnOnce(&mut Queues) -> T) -> T {
        run(&mut self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn with_clocked<T>(&self, run: impl FnOnce(&mut BTreeMap<u64, Arc<Waiter>>) -> T) -> T {
        let mut waiters = self.by_clock.lock().unwrap_or_else(PoisonError::into_inner);
        let result = run(&mut waiters);
        self.clocked.store(waiters.len(), Ordering::Relaxed);
        result
    }

    /// The waiters that are to be tried again at this time though no key has changed, in the order in which they came.
    #[must_use]
    pub fn due(&self, now_ms: u64) -> Vec<Arc<Waiter>> {
        if self.clocked.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let is_due = |waiter: &&Arc<Waiter>| waiter.again_ms.load(Ordering::Relaxed) <= now_ms;
        self.with_clocked(|waiters| waiters.values().filter(is_due).cloned().collect())
    }

    /// Whether anybody waits for anything.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether anybody waits for what a group is given.
    #[must_use]
    pub fn any_in_groups(&self) -> bool {
        self.in_groups.load(Ordering::Relaxed) > 0
    }

    /// Connections that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are no waiters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.any()
    }

    /// The number of the next waiter. Those of a key are drawn one after another, under the lock of its shard, so that
    /// its queue is in their order.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a waiter into the queues of all its keys. The caller holds their shards.
    pub fn add(&self, waiter: &Arc<Waiter>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.in_groups.fetch_add(usize::from(waiter.reads_in_group()), Ordering::Relaxed);
        if waiter.wait.again_ms.is_some() {
            self.with_clocked(|waiters| waiters.insert(waiter.ticket, waiter.clone()));
        }
        for (shard, key) in &waiter.registered {
            self.listeners.add(KeyHash::of(&key.1));
            self.with(*shard, |queues| queues.entry(key.clone()).or_default().push_back(waiter.clone()));
        }
    }

    /// Takes a waiter out of all queues. The thread that claimed it does so, once.
    pub fn remove(&self, waiter: &Arc<Waiter>) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.in_groups.fetch_sub(usize::from(waiter.reads_in_group()), Ordering::Relaxed);
        if waiter.wait.again_ms.is_some() {
            self.with_clocked(|waiters| waiters.remove(&waiter.ticket));
        }
        for (shard, key) in &waiter.registered {
            self.listeners.remove(KeyHash::of(&key.1));
            self.with(*shard, |queues| {
                let Some(queue) = queues.get_mut(key) else { return };
                queue.retain(|w| !Arc::ptr_eq(w, waiter));
                if queue.is_empty() {
                    queues.remove(key);
                }
            });
        }
    }

    /// Whether anybody waits for this key.
    #[must_use]
    pub fn has(&self, shard: usize, database: usize, key: &[u8]) -> bool {
        self.with(shard, |queues| !queues.is_empty() && queues.contains_key(&(database, key.into())))
    }

    /// The first waiter of a key's queue after the one with this ticket, which may have left meanwhile; 0 is before
    /// the first.
    #[must_use]
    pub fn after(&self, shard: usize, key: &DbKey, ticket: u64) -> Option<Arc<Waiter>> {
        self.with(shard, |queues| {
            let queue = queues.get(key)?;
            queue.get(queue.partition_point(|w| w.ticket <= ticket)).cloned()
        })
    }

    /// How many keys have waiters.
    #[must_use]
    pub fn key_count(&self) -> usize {
        (0..self.shards.len()).map(|shard| self.with(shard, |queues| queues.len())).sum()
    }

    /// How many keys have waiters that read for a group: their end ends the wait.
    #[must_use]
    pub fn group_key_count(&self) -> usize {
        let count = |queues: &mut Queues| queues.values().filter(|queue| is_read_in_group(queue)).count();
        (0..self.shards.len()).map(|shard| self.with(shard, count)).sum()
    }

    /// All keys with waiters in a database, with their shards.
    #[must_use]
    pub fn keys(&self, database: usize) -> Vec<(usize, DbKey)> {
        self.keys_where(database, |_| true)
    }

    /// Those with waiters that read for a group.
    #[must_use]
    pub fn group_keys(&self, database: usize) -> Vec<(usize, DbKey)> {
        if self.any_in_groups() { self.keys_where(database, is_read_in_group) } else { Vec::new() }
    }

    fn keys_where(&self, database: usize, wanted: impl Fn(&VecDeque<Arc<Waiter>>) -> bool) -> Vec<(usize, DbKey)> {
        let mut all = Vec::new();
        for shard in 0..self.shards.len() {
            self.with(shard, |queues| {
                let of_database = queues.iter().filter(|(key, queue)| key.0 == database && wanted(queue));
                all.extend(of_database.map(|(key, _)| (shard, key.clone())));
            });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::table;

    fn waiter(client: u64, ticket: u64, registered: &[(usize, DbKey)]) -> Arc<Waiter> {
        let command = table().find(b"blpop").unwrap();
        let args = OwnedArgs::new([&b"blpop"[..], b"k", b"0"].into_iter());
        let wait = Wait { timeout_ms: None, reply: TimeoutReply::NullArray, again_ms: None };
        Arc::new(Waiter::new(
            client,
            0,
            command,
            args,
            Vec::new(),
            0,
            Proto::Resp2,
            wait,
            registered.to_vec(),
            None,
            None,
            None,
            ticket,
        ))
    }

    #[test]
    fn one_who_tried_in_vain_learns_of_a_change_that_came_meanwhile() {
        let waiter = waiter(1, 1, &[]);
        assert!(waiter.claim_to_serve());
        assert!(!waiter.claim_to_serve() && !waiter.claim());
        assert_eq!(waiter.park_again(), Parked::Missed);
        assert!(!waiter.claim(), "it is to be tried again first");
        assert_eq!(waiter.park_again(), Parked::Again);
        assert!(waiter.claim_to_serve());
    }

    #[test]
    fn a_connection_that_goes_while_it_is_served_does_not_wait_again() {
        let waiter = waiter(1, 1, &[]);
        assert!(waiter.claim_to_serve());
        assert!(!waiter.abandon(), "the other takes it out of the queues");
        assert!(!waiter.claim_to_serve());
        assert_eq!(waiter.park_again(), Parked::Abandoned);
        assert!(!waiter.claim());
    }

    #[test]
    fn nobody_is_passed_over_when_another_leaves_the_queue() {
        let waiters = Waiters::new(1, Arc::default());
        let key: DbKey = (0, b"k"[..].into());
        let all: Vec<_> = (1..=4).map(|i| waiter(i, waiters.ticket(), &[(0, key.clone())])).collect();
        all.iter().for_each(|w| waiters.add(w));
        let next = |ticket| waiters.after(0, &key, ticket).map(|w| w.client);
        assert_eq!(next(0), Some(1));
        assert_eq!(next(all[0].ticket()), Some(2));
        waiters.remove(&all[0]);
        assert_eq!(next(all[0].ticket()), Some(2));
        waiters.remove(&all[1]);
        assert_eq!((next(all[0].ticket()), next(all[3].ticket())), (Some(3), None));
        (2..4).for_each(|i| waiters.remove(&all[i]));
        assert_eq!((next(0), waiters.len(), waiters.key_count()), (None, 0, 0));
    }
}
