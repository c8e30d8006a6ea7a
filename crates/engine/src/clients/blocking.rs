//! Blocking commands: connections that wait for a key, in order of arrival.
//!
//! A waiter is registered under the locks of its keys' shards, after its command found nothing. The thread that changes
//! a key runs the waiter's command right after its own command, and sends the reply to the worker that owns the
//! connection. One atomic word decides which thread may answer a waiter: the thread that serves it, times it out or
//! forgets it. The word also tells a thread that tried in vain to serve a waiter about events in the meantime: another
//! thread changed a key and left the waiter to this one, or the connection closed.

mod claim;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use commands::call::{KeyRef, TimeoutReply, Wait};
use journal::record::Record;
use resp::reply::{Output, Proto, Reply};
use resp::request::OwnedArgs;
use store::hash::KeyHash;
use store::value::Type;

use self::claim::Claim;
use crate::listening::listeners::Listeners;
use crate::listening::name_bytes;
use crate::listening::watch::DbKey;
use crate::pipelines::{Ownership, Pipeline};
use crate::replication::replicas::Acknowledgement;
use access::User;
use commands::table::Command;

pub use claim::Parked;

/// The event that a command waits for, other than a change of its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// Replicas and the disk (WAIT, WAITAOF).
    Acknowledgement(Acknowledgement),
    /// The end of a key migration.
    Migration {
        /// The migration's number.
        id: u64,
    },
    /// The answer of the cluster's bus.
    Bus {
        /// The number of the wait.
        wait: u64,
        /// True if replicas get the command once the bus has accepted it.
        for_replicas: bool,
    },
    /// The end of the server, or its abort (SHUTDOWN).
    Shutdown,
}

impl Awaited {
    /// Describes this wait as that of a blocking command. The reply at the timeout is computed then.
    pub(crate) fn wait(&self) -> Wait {
        let timeout_ms = match self {
            Awaited::Acknowledgement(awaited) => awaited.timeout_ms,
            // The server's migration thread ends the wait; it has a time limit for each step.
            Awaited::Migration { .. } => None,
            // The bus answers every command; it waits for nothing but its disk.
            Awaited::Bus { .. } => None,
            // The main thread ends it after `shutdown-timeout`.
            Awaited::Shutdown => None,
        };
        Wait { timeout_ms, reply: TimeoutReply::NullArray, again_ms: None }
    }
}

/// A parked connection with its command.
pub struct Waiter {
    /// The connection's number.
    pub client: u64,
    /// The worker that owns the connection.
    pub worker: usize,
    /// The command.
    pub command: &'static Command,
    /// Its arguments.
    pub args: OwnedArgs,
    /// Its keys, hashed.
    pub keys: Vec<KeyRef>,
    /// The database that was selected when the command arrived.
    pub database: usize,
    /// The protocol version of the reply.
    pub proto: Proto,
    /// The timeout, and the reply when it expires or when waiting is not allowed.
    pub wait: Wait,
    /// The keys under which it is registered, with their shards.
    pub registered: Vec<(usize, DbKey)>,
    /// The event that the connection waits for instead of keys.
    pub awaited: Option<Awaited>,
    /// The connection's user; absent if the server itself runs the command.
    pub(crate) user: Option<Arc<User>>,
    /// The pipeline that counts the command, at the time of the answer.
    pipeline: Option<Arc<Pipeline>>,
    /// The position in the queue: later waiters have higher tickets.
    ticket: u64,
    right: Claim,
    /// Time at which the command runs again without a change of its keys, in milliseconds of Unix time; [`NEVER`] if
    /// there is no such time. The command sets it each time it finds nothing.
    again_ms: AtomicU64,
    /// True if the connection is closed after the answer.
    ends_connection: AtomicBool,
    /// The error that ended the wait, if another thread than a worker decided so. The waiter's own thread counts the
    /// error.
    refused: OnceLock<Box<[u8]>>,
}

impl Waiter {
    /// Returns the memory of its arguments and of its places in the queues, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let queues: u64 = self.registered.iter().map(|(_, (_, key))| name_bytes(key)).sum();
        self.args.memory_bytes() as u64 + queues
    }

    /// Creates a waiter that is parked but not registered yet. `ticket` comes from [`Waiters::ticket`], called under
    /// the locks of the keys' shards.
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
            refused: OnceLock::new(),
        }
    }

    /// Notes the error with which another thread than a worker ends the wait. The caller has closed the gate and claimed
    /// the right to answer.
    pub(crate) fn refuse(&self, error: &[u8]) {
        self.count(Some(error));
        let _ = self.refused.set(error.into());
    }

    /// Returns the error of [`Waiter::refuse`].
    pub(crate) fn refused(&self) -> Option<&[u8]> {
        self.refused.get().map(|error| &**error)
    }

    /// Sets the time at which the command runs again without a change of its keys.
    pub(crate) fn run_again_at(&self, ms: Option<u64>) {
        self.again_ms.store(ms.unwrap_or(NEVER), Ordering::Relaxed);
    }

    /// Closes the connection after the answer. The caller has claimed the right to answer and has not used it yet.
    pub(crate) fn end_connection(&self) {
        self.ends_connection.store(true, Ordering::Release);
    }

    /// Returns true if the connection is closed after the answer.
    pub(crate) fn ends_connection(&self) -> bool {
        self.ends_connection.load(Ordering::Acquire)
    }

    /// Takes the right to answer; false if another thread has it.
    #[must_use]
    pub fn claim(&self) -> bool {
        self.right.take()
    }

    /// Takes the right to serve, after one of the keys has changed. If another thread has the right, that thread is
    /// told to try again before it gives the right back, because it may have read the key before the change.
    #[must_use]
    pub fn claim_to_serve(&self) -> bool {
        self.right.take_to_serve()
    }

    /// Gives the right back after a failed attempt to serve the waiter.
    #[must_use]
    pub fn park_again(&self) -> Parked {
        self.right.give_back()
    }

    /// Reports that the connection is gone. Returns false if another thread has the right to answer; that thread then
    /// removes the waiter from the queues.
    #[must_use]
    pub fn abandon(&self) -> bool {
        self.right.abandon()
    }

    /// Counts the command in its connection's pipeline, now that it is answered, even if with an error. The caller is
    /// inside the gate and has claimed the right to answer.
    pub fn count(&self, error: Option<&[u8]>) {
        // Another connection may have taken the token over since this one parked.
        if let Some(pipeline) =
            self.pipeline.as_ref().filter(|pipeline| pipeline.ownership_of(self.client) != Ownership::Lost)
        {
            pipeline.count_one(error);
        }
    }

    /// Records the count of the connection's pipeline, if there is one.
    pub(crate) fn record_count(&self, record: &mut Record) {
        if let Some(pipeline) = &self.pipeline {
            pipeline.record(0, 0, &[], pipeline.database(), record);
        }
    }

    /// Returns the acknowledgement by replicas or the disk that it waits for, if any.
    #[must_use]
    pub(crate) fn acknowledgement(&self) -> Option<&Acknowledgement> {
        match &self.awaited {
            Some(Awaited::Acknowledgement(awaited)) => Some(awaited),
            _ => None,
        }
    }

    /// Returns true if it waits for another thread of this server. Only that thread or the connection ends this wait.
    #[must_use]
    pub(crate) fn awaits_server(&self) -> bool {
        matches!(self.awaited, Some(Awaited::Migration { .. } | Awaited::Bus { .. } | Awaited::Shutdown))
    }

    /// Returns true if it waits for the cluster's bus.
    #[must_use]
    pub(crate) fn awaits_bus(&self) -> bool {
        matches!(self.awaited, Some(Awaited::Bus { .. }))
    }

    /// Returns the position in the queue.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Returns the type of value that its command takes elements from.
    #[must_use]
    pub fn takes_from(&self) -> Option<Type> {
        self.command.info.waits.map(|waits| waits.kind)
    }

    /// Returns true if its command reads for a consumer group. The command fails when the group is deleted.
    #[must_use]
    pub fn reads_in_group(&self) -> bool {
        self.command.info.waits.is_some_and(|waits| waits.ends_without_key)
    }

    /// Returns the reply at the timeout: a null array for every command.
    #[must_use]
    pub fn timeout_reply(&self) -> Output {
        let mut output = Output::default();
        Reply::new(&mut output, self.proto).null_array();
        output
    }
}

/// Marks a waiter that only keys and deadlines end.
const NEVER: u64 = u64::MAX;

/// Writes the reply of a blocking command that found nothing and may not wait.
pub fn write_no_wait(reply: &mut Reply<'_>, kind: TimeoutReply) {
    match kind {
        TimeoutReply::Null => reply.null(),
        TimeoutReply::NullArray => reply.null_array(),
    }
}

/// Returns true if a waiter in a key's queue reads for a consumer group.
fn is_read_in_group(queue: &VecDeque<Arc<Waiter>>) -> bool {
    queue.iter().any(|waiter| waiter.reads_in_group())
}

type Queues = HashMap<DbKey, VecDeque<Arc<Waiter>>>;

/// The waiters of all keys, divided into shards like the keyspace.
pub struct Waiters {
    shards: Box<[Mutex<Queues>]>,
    count: AtomicUsize,
    /// Number of waiters that read for a consumer group.
    in_groups: AtomicUsize,
    tickets: AtomicU64,
    /// Waiters with a time for the next attempt, by ticket.
    by_clock: Mutex<BTreeMap<u64, Arc<Waiter>>>,
    /// Number of entries in `by_clock`.
    clocked: AtomicUsize,
    listeners: Arc<Listeners>,
}

impl Waiters {
    /// Creates an empty set of waiters for a keyspace with this number of shards.
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

    /// Returns the waiters that are due for another attempt without a change of their keys, in order of arrival.
    #[must_use]
    pub fn due(&self, now_ms: u64) -> Vec<Arc<Waiter>> {
        if self.clocked.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let is_due = |waiter: &&Arc<Waiter>| waiter.again_ms.load(Ordering::Relaxed) <= now_ms;
        self.with_clocked(|waiters| waiters.values().filter(is_due).cloned().collect())
    }

    /// Returns true if there are waiters.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns true if there are waiters that read for a consumer group.
    #[must_use]
    pub fn any_in_groups(&self) -> bool {
        self.in_groups.load(Ordering::Relaxed) > 0
    }

    /// Returns the number of waiting connections.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns true if there are no waiters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.any()
    }

    /// Returns the ticket of the next waiter. Callers hold the shard's lock, so the queue of each key is in ticket
    /// order.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a waiter to the queues of all its keys. The caller holds their shards.
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

    /// Removes a waiter from all queues. The thread that claimed it calls this once.
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

    /// Returns true if this key has waiters.
    #[must_use]
    pub fn has(&self, shard: usize, database: usize, key: &[u8]) -> bool {
        self.with(shard, |queues| !queues.is_empty() && queues.contains_key(&(database, key.into())))
    }

    /// Returns the first waiter in a key's queue after this ticket, even if that waiter has left; 0 is before the
    /// first.
    #[must_use]
    pub fn after(&self, shard: usize, key: &DbKey, ticket: u64) -> Option<Arc<Waiter>> {
        self.with(shard, |queues| {
            let queue = queues.get(key)?;
            queue.get(queue.partition_point(|w| w.ticket <= ticket)).cloned()
        })
    }

    /// Returns the number of keys with waiters.
    #[must_use]
    pub fn key_count(&self) -> usize {
        if !self.any() {
            return 0;
        }
        (0..self.shards.len()).map(|shard| self.with(shard, |queues| queues.len())).sum()
    }

    /// Returns the number of keys with waiters that read for a consumer group. Deletion of these keys ends the wait.
    #[must_use]
    pub fn group_key_count(&self) -> usize {
        if !self.any_in_groups() {
            return 0;
        }
        let count = |queues: &mut Queues| queues.values().filter(|queue| is_read_in_group(queue)).count();
        (0..self.shards.len()).map(|shard| self.with(shard, count)).sum()
    }

    /// Returns all keys with waiters in a database, with their shards.
    #[must_use]
    pub fn keys(&self, database: usize) -> Vec<(usize, DbKey)> {
        if self.any() { self.keys_where(database, |_| true) } else { Vec::new() }
    }

    /// Returns the keys with waiters that read for a consumer group.
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
    fn a_failed_attempt_learns_about_a_concurrent_change() {
        let waiter = waiter(1, 1, &[]);
        assert!(waiter.claim_to_serve());
        assert!(!waiter.claim_to_serve() && !waiter.claim());
        assert_eq!(waiter.park_again(), Parked::Missed);
        assert!(!waiter.claim(), "it is to be tried again first");
        assert_eq!(waiter.park_again(), Parked::Again);
        assert!(waiter.claim_to_serve());
    }

    #[test]
    fn a_connection_closed_while_served_does_not_wait_again() {
        let waiter = waiter(1, 1, &[]);
        assert!(waiter.claim_to_serve());
        assert!(!waiter.abandon(), "the other takes it out of the queues");
        assert!(!waiter.claim_to_serve());
        assert_eq!(waiter.park_again(), Parked::Abandoned);
        assert!(!waiter.claim());
    }

    #[test]
    fn no_waiter_is_skipped_when_another_leaves_the_queue() {
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
