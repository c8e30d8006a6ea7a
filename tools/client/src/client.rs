//! A client for many threads: a shared connection with automatic pipelining, and dedicated connections for commands
//! that can't share one.

mod dedicated;
mod flight;
mod losses;
mod queue;
mod shared;
mod slot;

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use resp::parse::Value;

use crate::command::{Argument, Request};
use crate::config::Config;
use crate::connection::Connection;
use crate::error::{Error, Fate, Interrupted, ServerError};
use crate::pipeline::Pipeline;
use crate::pubsub::PubSub;
use crate::script::{self, Script};
use crate::transaction::{self, Attempt, Transaction};
use crate::unshareable::{self, Sharing, kind_of};
pub use dedicated::Dedicated;
use dedicated::Pool;
use queue::Batch;
use shared::SharedConnection;
use slot::Slot;

/// Options of a [`Client`]: its limits, and its behaviour while the server is unreachable.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Maximum number of flights in progress on the shared connection. With 1, commands that arrive during a flight
    /// leave together after it: flights are largest, and system calls fewest. More flights reduce the delay on slow
    /// networks.
    pub flights_max: usize,
    /// Maximum number of queued commands. Callers wait for room above it.
    pub queue_commands_max: u64,
    /// Maximum number of queued bytes. Callers wait for room above it. A single request may be longer.
    pub queue_bytes_max: usize,
    /// Maximum number of connections beside the shared one. Blocking commands, watched keys and [`Client::dedicated`]
    /// use them.
    pub dedicated_max: usize,
    /// Maximum number of attempts of [`Client::optimistic`].
    pub attempts_max: u32,
    /// Pause after the first failed attempt to connect. It doubles after each further failure.
    pub retry_delay_first: Duration,
    /// Maximum pause between attempts to connect. Each pause is shortened by up to half at random, so that the clients
    /// of a restarted server don't all connect at the same moment.
    pub retry_delay_max: Duration,
    /// Time without a connection after which all waiting callers get an error. The next call tries to connect again.
    pub give_up_after: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            flights_max: 2,
            queue_commands_max: 10_000,
            queue_bytes_max: 1 << 20,
            dedicated_max: 64,
            attempts_max: 100,
            retry_delay_first: Duration::from_millis(10),
            retry_delay_max: Duration::from_secs(1),
            give_up_after: Duration::from_secs(5),
        }
    }
}

/// A client that threads share. Cloning is cheap, and clones share everything.
///
/// # Automatic pipelining
/// Commands of concurrent callers leave in one write, and their replies come back together. This needs no setup. A
/// single caller waits hardly longer than on a [`Connection`]. Commands of one thread run in the order of the calls,
/// except blocking commands, which overtake submitted ones. Commands of different threads have no order.
///
/// # At most once
/// The client reconnects by itself (see [`ClientOptions`]), but never repeats a command that may have run. When the
/// connection breaks, every caller in flight gets an error. [`Error::fate`] is [`crate::Fate::MayHaveRun`] if any byte
/// of the command was sent, and [`crate::Fate::NotRun`] if no byte was sent and the command can't be sent later.
///
/// The commands of a thread are a sequence without gaps. After a lost command, its later commands don't run
/// ([`crate::Fate::NotRun`]) until the thread has seen an error of the lost command or of a later one. A thread that
/// has dropped all these tickets is not informed, and its next command runs. Unsent commands of other threads go over
/// the next connection.
///
/// # Commands that can't be shared
/// Blocking commands (BLPOP...) automatically get a dedicated connection. Their replies may take the command's timeout
/// (0: forever) plus [`Config::read_timeout`]. Commands that change their connection (SELECT, MULTI, SUBSCRIBE, CLIENT
/// TRACKING...) are refused with [`Error::NotShareable`]: use [`Config`], [`Client::transaction`],
/// [`Client::subscribe`], or [`Client::dedicated`]. WAIT and WAITAOF are refused, too, because they report on the
/// writes of their own connection: write and wait on a dedicated connection.
#[derive(Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
}

/// State shared by the clones of a client.
struct ClientInner {
    config: Config,
    options: ClientOptions,
    shared: Arc<SharedConnection>,
    pool: Pool,
    /// Hashes of scripts that were loaded at least once.
    scripts: Mutex<HashSet<String>>,
    /// Number of the connection that has accepted MULTI.
    multi_accepted: AtomicU64,
}

/// A number that no connection has.
const MULTI_UNKNOWN: u64 = u64::MAX;

impl Client {
    /// Connects with default options.
    ///
    /// # Errors
    /// Returns the errors of [`Connection::connect`]. There is no second attempt.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        Self::with_options(config, ClientOptions::default())
    }

    /// Connects.
    ///
    /// # Errors
    /// Returns the errors of [`Connection::connect`]. There is no second attempt.
    pub fn with_options(config: &Config, options: ClientOptions) -> Result<Self, Error> {
        let shared = Arc::new(SharedConnection::new(config, &options, Connection::connect(config)?)?);
        let pool = Pool::new(config.clone(), options.dedicated_max);
        let multi_accepted = AtomicU64::new(MULTI_UNKNOWN);
        let inner =
            ClientInner { config: config.clone(), options, shared, pool, scripts: Mutex::default(), multi_accepted };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs a command.
    ///
    /// # Errors
    /// Returns [`Error::Server`] for an error reply, [`Error::Lost`] or [`Error::Connect`] with the command's fate, and
    /// [`Error::NotShareable`].
    pub fn command(&self, request: &(impl Request + ?Sized)) -> Result<Value, Error> {
        ServerError::check(self.exchange(request)?)
    }

    /// Runs a command and returns its reply, even if it is an error reply.
    ///
    /// # Errors
    /// Returns the errors of [`Self::command`] except [`Error::Server`].
    pub fn exchange(&self, request: &(impl Request + ?Sized)) -> Result<Value, Error> {
        let mut bytes = Vec::new();
        request.pack(&mut bytes);
        match kind_of(&bytes) {
            Sharing::Shareable => self.one(self.inner.shared.run(&Batch::new(bytes, 1))),
            Sharing::Blocking(timeout) => self.blocking(request, timeout),
            Sharing::Unshareable(name) => Err(Error::NotShareable(name)),
        }
    }

    /// Queues a command and returns at once. [`Ticket::wait`] returns the reply. Commands that one thread submits run
    /// in this order. Callers must wait for tickets now and then: bytes move only while a caller waits, except for a
    /// first attempt to send in this call.
    ///
    /// # Errors
    /// Returns [`Error::NotShareable`], also for blocking commands.
    pub fn submit(&self, request: &(impl Request + ?Sized)) -> Result<Ticket, Error> {
        let mut bytes = Vec::new();
        request.pack(&mut bytes);
        match kind_of(&bytes) {
            Sharing::Shareable => {
                Ok(Ticket { client: self.clone(), slot: self.inner.shared.submit(&Batch::new(bytes, 1)) })
            }
            Sharing::Blocking(_) => Err(Error::NotShareable("a blocking command".to_owned())),
            Sharing::Unshareable(name) => Err(Error::NotShareable(name)),
        }
    }

    /// Runs a pipeline over one connection. Other callers' commands may run in between. After a broken connection, the
    /// pipeline doesn't continue on the next one.
    ///
    /// # Errors
    /// Returns [`Interrupted`]. If the pipeline contains a blocking command or another one that can't be shared, it
    /// returns this error without sending anything.
    pub fn pipeline(&self, pipeline: &Pipeline) -> Result<Vec<Value>, Interrupted> {
        let refuse = |error| Interrupted { error, answered: 0, sent: 0 };
        unshareable::check_all(pipeline.requests()).map_err(refuse)?;
        self.know_scripts(pipeline.scripts()).map_err(refuse)?;
        let loads = pipeline.scripts().len() as u64;
        let run = self.run_in_batches(queue::batches(pipeline, &self.inner.options));
        run.map(|replies| replies.into_iter().skip(loads as usize).collect())
            .map_err(|interrupted| interrupted.without_first(loads))
    }

    /// Runs a script by its hash, and loads it if the server doesn't know it.
    ///
    /// # Errors
    /// Returns the errors of [`Self::command`].
    pub fn script<K: Argument, A: Argument>(&self, script: &Script, keys: &[K], args: &[A]) -> Result<Value, Error> {
        let call = script.call(keys, args);
        let reply = self.exchange(&call)?;
        if !script::is_unknown(&reply) {
            return ServerError::check(reply);
        }
        let mut bytes = Vec::new();
        script.load().pack(&mut bytes);
        call.pack(&mut bytes);
        let mut replies = self.inner.shared.run(&Batch::new(bytes, 2))?.into_iter();
        let (Some(loaded), Some(reply)) = (replies.next(), replies.next()) else { return Err(missing("EVALSHA")) };
        ServerError::check(loaded).and_then(|_| ServerError::check(reply))
    }

    /// Runs a transaction and returns the replies of its commands, including error replies.
    ///
    /// The first transaction on each connection needs one more round trip: an empty transaction is sent and accepted
    /// before it.
    ///
    /// # Errors
    /// Returns [`Error::Server`] if a command could not be queued or MULTI was refused, and no command ran;
    /// [`Error::NoTransaction`] if MULTI was refused on a connection that had accepted it before;
    /// [`Error::NotShareable`] for a command that changes the connection, which EXEC doesn't undo; [`Error::Lost`] and
    /// others.
    pub fn transaction(&self, transaction: &Transaction) -> Result<Vec<Value>, Error> {
        unshareable::check_inside(transaction.requests())?;
        self.know_multi().map_err(|error| error.with_fate(Fate::NotRun))?;
        let outcome = self.run_transaction(transaction);
        if matches!(outcome, Err(Error::NoTransaction { .. })) {
            self.inner.multi_accepted.store(MULTI_UNKNOWN, Ordering::Relaxed);
        }
        outcome
    }

    /// Runs [`Connection::optimistic`] on a dedicated connection: updates the values of `keys` based on their current
    /// values. Each attempt gets a connection in its initial state, as [`Config`] defines it.
    ///
    /// # Errors
    /// Returns the errors of [`Connection::optimistic`].
    pub fn optimistic<K: Argument>(
        &self,
        keys: &[K],
        mut attempt: impl FnMut(&mut Connection) -> Result<Option<Transaction>, Error>,
    ) -> Result<Option<Vec<Value>>, Error> {
        let attempts = self.inner.options.attempts_max;
        let mut connection = self.inner.pool.take()?;
        for _ in 0..attempts {
            let mut altered = false;
            let tried = connection.attempt(keys, |connection| {
                connection.watch_state();
                let made = attempt(connection);
                altered = connection.was_altered();
                if let Ok(Some(transaction)) = &made {
                    altered |= transaction.requests().any(unshareable::any_alters);
                }
                made
            })?;
            match tried {
                Attempt::Done(replies) => {
                    if !altered {
                        connection.keep();
                    }
                    return Ok(replies);
                }
                Attempt::Interfered if altered => connection.renew()?,
                Attempt::Interfered => connection.restore(&self.inner.config),
            }
        }
        Err(Error::Contended { attempts })
    }

    /// Returns a connection for one caller, in its initial state, as [`Config`] defines it. It closes when it is
    /// dropped.
    ///
    /// # Errors
    /// Returns the errors of [`Connection::connect`], and [`Error::Limit`] if all `dedicated_max` connections stay in
    /// use for longer than the `connect_timeout`.
    pub fn dedicated(&self) -> Result<Dedicated, Error> {
        self.inner.pool.take()
    }

    /// Subscribes to channels on a dedicated connection.
    ///
    /// # Errors
    /// Returns the errors of [`PubSub::connect`] and [`PubSub::subscribe`].
    pub fn subscribe<A: Argument>(&self, channels: &[A]) -> Result<PubSub, Error> {
        let mut subscriber = PubSub::connect(&self.inner.config)?;
        subscriber.subscribe(channels)?;
        Ok(subscriber)
    }

    /// Returns push messages from the shared connection, oldest first (RESP3, for example invalidations that a
    /// dedicated connection redirects to it). They are read together with replies, and [`Config::pushes_max`] limits
    /// their number.
    #[must_use]
    pub fn take_pushes(&self) -> Vec<Value> {
        self.inner.shared.take_pushes()
    }

    /// Returns the number of reconnections of the shared connection.
    #[must_use]
    pub fn reconnections(&self) -> u64 {
        self.inner.shared.reconnections()
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    fn one(&self, replies: Result<Vec<Value>, Interrupted>) -> Result<Value, Error> {
        replies?.pop().ok_or_else(|| missing("a command"))
    }

    /// Runs a command that blocks for up to `timeout`; `None` blocks forever.
    fn blocking(&self, request: &(impl Request + ?Sized), timeout: Option<Duration>) -> Result<Value, Error> {
        let mut connection = self.inner.pool.take()?;
        // The server may be silent for the command's timeout plus the usual read timeout.
        let silence = self.inner.config.read_timeout.zip(timeout);
        connection.set_read_timeout(silence.map(|(read_timeout, timeout)| read_timeout.saturating_add(timeout)));
        let reply = connection.exchange(request)?;
        connection.keep();
        Ok(reply)
    }

    /// Ensures that the current connection has accepted MULTI. If this connection breaks before the transaction is
    /// sent, the transaction may meet a new connection that refuses MULTI. [`Error::NoTransaction`] reports this rare
    /// case.
    fn know_multi(&self) -> Result<(), Error> {
        let connection = self.reconnections();
        if self.inner.multi_accepted.load(Ordering::Relaxed) != connection {
            self.run_transaction(&Transaction::new())?;
            self.inner.multi_accepted.store(connection, Ordering::Relaxed);
        }
        Ok(())
    }

    fn run_transaction(&self, transaction: &Transaction) -> Result<Vec<Value>, Error> {
        let replies = self.inner.shared.run(&Batch::whole(transaction))?;
        transaction::outcome_of(replies)?.ok_or_else(|| missing("EXEC"))
    }

    fn know_scripts(&self, scripts: &[Script]) -> Result<(), Error> {
        scripts.iter().try_for_each(|script| {
            let known = |scripts: &Mutex<HashSet<String>>| {
                scripts.lock().unwrap_or_else(PoisonError::into_inner).contains(script.sha1())
            };
            if !known(&self.inner.scripts) {
                self.command(&script.load())?;
                let mut scripts = self.inner.scripts.lock().unwrap_or_else(PoisonError::into_inner);
                scripts.insert(script.sha1().to_owned());
            }
            Ok(())
        })
    }

    /// Runs batches one after the other. The next batch is sent while the previous one is awaited.
    fn run_in_batches(&self, batches: impl Iterator<Item = Batch>) -> Result<Vec<Value>, Interrupted> {
        /// Maximum number of batches of one pipeline in the queue or in flight.
        const BATCHES_MAX: usize = 2;
        let shared = &self.inner.shared;
        let mut replies = Vec::new();
        let mut flying: VecDeque<(u64, Arc<Slot>)> = VecDeque::new();
        let mut batches = batches.fuse();
        loop {
            if flying.len() < BATCHES_MAX
                && let Some(batch) = batches.next()
            {
                flying.push_back((batch.requests, shared.submit(&batch)));
                continue;
            }
            let Some((_, slot)) = flying.pop_front() else { return Ok(replies) };
            match shared.wait(&slot) {
                Ok(more) => replies.extend(more),
                Err(interrupted) => return Err(self.sum_up(interrupted, replies.len() as u64, flying)),
            }
        }
    }

    /// Combines an interrupted batch with the batches behind it into the result of the pipeline.
    fn sum_up(&self, interrupted: Interrupted, before: u64, behind: VecDeque<(u64, Arc<Slot>)>) -> Interrupted {
        let mut sent = before + interrupted.sent;
        for (requests, slot) in behind {
            match self.inner.shared.wait(&slot) {
                Ok(_) => sent += requests,
                Err(interrupted) => sent += interrupted.sent,
            }
        }
        Interrupted { error: interrupted.error, answered: before + interrupted.answered, sent }
    }
}

fn missing(command: &'static str) -> Error {
    Error::Unexpected { command, reply: "nothing".to_owned() }
}

/// A pending reply; see [`Client::submit`]. If the ticket is dropped, the command runs all the same.
pub struct Ticket {
    client: Client,
    slot: Arc<Slot>,
}

impl Ticket {
    /// Waits for the reply.
    ///
    /// # Errors
    /// Returns the errors of [`Client::command`].
    pub fn wait(self) -> Result<Value, Error> {
        ServerError::check(self.client.one(self.client.inner.shared.wait(&self.slot))?)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}
