//! Blocking commands: connections that wait for a key, in the order in which they came.
//!
//! A waiter is registered under the locks of its keys' shards, when its command has found nothing. Whoever changes
//! such a key runs the waiter's command for it, right after its own command, and sends the reply to the thread that
//! owns the connection. Who may answer a waiter is decided by one atomic word: to serve it, to let its time run out,
//! or to forget it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use commands::call::{KeyRef, TimeoutReply, Wait};
use commands::spec::Group;
use resp::reply::{Output, Proto, Reply};
use resp::request::OwnedArgs;
use store::value::Type;

use crate::command_table::Command;
use crate::watch::DbKey;

const PARKED: u8 = 0;
const CLAIMED: u8 = 1;

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
    /// Until when, and what to answer then.
    pub wait: Wait,
    /// The keys under which it is registered, with their shards.
    pub registered: Vec<(usize, DbKey)>,
    state: AtomicU8,
}

impl Waiter {
    /// A waiter that is parked. It is not registered yet.
    #[must_use]
    #[expect(clippy::too_many_arguments, reason = "it is a record of all of these")]
    pub fn new(
        client: u64,
        worker: usize,
        command: &'static Command,
        args: OwnedArgs,
        keys: Vec<KeyRef>,
        database: usize,
        proto: Proto,
        wait: Wait,
        registered: Vec<(usize, DbKey)>,
    ) -> Waiter {
        Waiter { client, worker, command, args, keys, database, proto, wait, registered, state: AtomicU8::new(PARKED) }
    }

    /// Takes the right to answer; false if somebody else has it.
    #[must_use]
    pub fn claim(&self) -> bool {
        self.state.compare_exchange(PARKED, CLAIMED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives the right back: there was nothing for this waiter after all.
    pub fn park_again(&self) {
        self.state.store(PARKED, Ordering::Release);
    }

    /// The type of value that its command takes from.
    #[must_use]
    pub fn takes_from(&self) -> Option<Type> {
        match self.command.info.group {
            Group::List => Some(Type::List),
            Group::SortedSet => Some(Type::ZSet),
            _ => None,
        }
    }

    /// Whether it still waits.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.state.load(Ordering::Acquire) == PARKED
    }

    /// The reply when its time has run out: a null array, whatever the command.
    #[must_use]
    pub fn timeout_reply(&self) -> Output {
        let mut output = Output::default();
        Reply::new(&mut output, self.proto).null_array();
        output
    }
}

/// Writes what a blocking command answers when it found nothing and may not wait.
pub fn write_no_wait(reply: &mut Reply<'_>, kind: TimeoutReply) {
    match kind {
        TimeoutReply::Null => reply.null(),
        TimeoutReply::NullArray => reply.null_array(),
    }
}

type Queues = HashMap<DbKey, VecDeque<Arc<Waiter>>>;

/// The waiters of all keys, cut like the keyspace.
pub struct Waiters {
    shards: Box<[Mutex<Queues>]>,
    count: AtomicUsize,
}

impl Waiters {
    /// Nobody, for a keyspace of so many shards.
    #[must_use]
    pub fn new(shards: usize) -> Waiters {
        Waiters { shards: (0..shards).map(|_| Mutex::default()).collect(), count: AtomicUsize::new(0) }
    }

    fn with<T>(&self, shard: usize, run: impl FnOnce(&mut Queues) -> T) -> T {
        run(&mut self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether anybody waits for anything.
    #[inline]
    #[must_use]
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Connections that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.any()
    }

    /// Puts a waiter into the queues of all its keys. The caller holds their shards.
    pub fn add(&self, waiter: &Arc<Waiter>) {
        self.count.fetch_add(1, Ordering::Relaxed);
        for (shard, key) in &waiter.registered {
            self.with(*shard, |queues| queues.entry(key.clone()).or_default().push_back(waiter.clone()));
        }
    }

    /// Takes a waiter out of all queues. Whoever claimed it does so, once.
    pub fn remove(&self, waiter: &Arc<Waiter>) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        for (shard, key) in &waiter.registered {
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

    /// The waiter at a place in a key's queue.
    #[must_use]
    pub fn nth(&self, shard: usize, key: &DbKey, place: usize) -> Option<Arc<Waiter>> {
        self.with(shard, |queues| queues.get(key).and_then(|q| q.get(place).cloned()))
    }

    /// How many keys somebody waits for.
    #[must_use]
    pub fn key_count(&self) -> usize {
        (0..self.shards.len()).map(|shard| self.with(shard, |queues| queues.len())).sum()
    }

    /// All keys that anybody waits for in a database, with their shards.
    #[must_use]
    pub fn keys(&self, database: usize) -> Vec<(usize, DbKey)> {
        let mut all = Vec::new();
        for shard in 0..self.shards.len() {
            self.with(shard, |queues| {
                all.extend(queues.keys().filter(|k| k.0 == database).map(|k| (shard, k.clone())))
            });
        }
        all
    }
}
