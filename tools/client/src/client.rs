//! One client for many threads: a shared connection that pipelines by itself, and connections of their own for what
//! can't be shared.

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

/// How a [`Client`] behaves: its limits, and what it does when the server has gone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Most flights of the shared connection that are in the air at a time. With 1, commands that come while others are
    /// awaited leave together when those have landed: largest flights, fewest system calls. More shorten the wait where
    /// the way to the server is long.
    pub flights_max: usize,
    /// Callers wait for room when so many commands wait to be sent.
    pub queue_commands_max: u64,
    /// Callers wait for room when so many bytes wait to be sent. A single request may be longer.
    pub queue_bytes_max: usize,
    /// Most connections beside the shared one, for blocking commands, watched keys, and [`Client::dedicated`].
    pub dedicated_max: usize,
    /// Most attempts of [`Client::optimistic`].
    pub attempts_max: u32,
    /// The pause after the first failed attempt to connect; doubled after each further one.
    pub retry_delay_first: Duration,
    /// The longest pause between attempts to connect. Each is shortened by up to half at random, so that not all clients
    /// of a server that comes back connect at the same moment.
    pub retry_delay_max: Duration,
    /// After so long without a connection, all callers that wait for one get an error. The next call tries anew.
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

/// A client that threads share; cloning it is cheap and shares all of it.
///
/// # Automatic pipelining
/// Commands of concurrent callers leave together, in one write, and their replies come back together. Nothing needs to
/// be set up for that. A caller that is alone waits hardly longer than on a [`Connection`]. Each thread's commands run
/// in the order in which they were given, but for blocking ones, which overtake what was submitted; between threads
/// there is no order.
///
/// # At most once
/// The client reconnects by itself (see [`ClientOptions`]), but never repeats a command that may have run. When the
/// connection breaks, [`Error::fate`] tells every caller in flight: [`crate::Fate::MayHaveRun`] if any byte of the
/// command had been sent, [`crate::Fate::NotRun`] if none had and it could not be sent later either.
///
/// What a thread hands over is one sequence, and no hole comes into it unawares: when one of its commands is lost,
/// those behind it don't run ([`crate::Fate::NotRun`]), up to the first that it hands over knowing of the loss: from
/// the error of the lost one, or of any behind it, whichever it gets first. If it has dropped all their tickets it
/// doesn't want to know. Other threads' commands of which nothing was sent go over the next connection.
///
/// # What can't be shared
/// Blocking commands (BLPOP...) get a connection of their own by themselves. Their replies may take their own timeout
/// (0: for ever) and [`Config::read_timeout`] on top. Commands that change their connection (SELECT, MULTI, SUBSCRIBE,
/// CLIENT TRACKING...) are refused with [`Error::NotShareable`]: use [`Config`], [`Client::transaction`],
/// [`Client::subscribe`], or [`Client::dedicated`]. So are WAIT and WAITAOF, which answer for the writes of their own
/// connection: write and wait on a dedicated one.
#[derive(Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
}

/// What the clones of a client share.
struct ClientInner {
    config: Config,
    options: ClientOptions,
    shared: Arc<SharedConnection>,
    pool: Pool,
    /// Hashes of scripts that were loaded at least once.
    scripts: Mutex<HashSet<String>>,
    /// The connection, by the count of those before it, over which MULTI was accepted.
    multi_accepted: AtomicU64,
}

/// No connection has this number.
const MULTI_UNKNOWN: u64 = u64::MAX;

impl Client {
    /// Connects, with default options.
    ///
    /// # Errors
    /// As [`Connection::connect`]; there is no second attempt.
    pub fn connect(config: &Config) -> Result<Self, Error> {
        Self::with_options(config, ClientOptions::default())
    }

    /// Connects.
    ///
    /// # Errors
    /// As [`Connection::connect`]; there is no second attempt.
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
    /// [`Error::Server`] for an error reply, [`Error::Lost`] or [`Error::Connect`] with the command's fate,
    /// [`Error::NotShareable`].
    pub fn command(&self, request: &(impl Request + ?Sized)) -> Result<Value, Error> {
        ServerError::check(self.exchange(request)?)
    }

    /// The same, but an error reply is a reply.
    ///
    /// # Errors
    /// As [`Self::command`], but for [`Error::Server`].
    pub fn exchange(&self, request: &(impl Request + ?Sized)) -> Result<Value, Error> {
        let mut bytes = Vec::new();
        request.pack(&mut bytes);
        match kind_of(&bytes) {
            Sharing::Shareable => self.one(self.inner.shared.run(&Batch::new(bytes, 1))),
            Sharing::Blocking(timeout) => self.blocking(request, timeout),
            Sharing::Unshareable(name) => Err(Error::NotShareable(name)),
        }
    }

    /// Hands a command over and returns at once; the reply is with [`Ticket::wait`]. Commands that one thread submits
    /// run in that order. Callers must wait for tickets now and then: bytes move only while a caller waits (a first
    /// attempt at sending is made here).
    ///
    /// # Errors
    /// [`Error::NotShareable`], also for blocking commands.
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

    /// Runs a pipeline. Other callers' commands may run in between. All of it goes over one connection: it doesn't go
    /// on over the next one.
    ///
    /// # Errors
    /// [`Interrupted`], also (with nothing sent) for commands that can't be shared, blocking ones among them.
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
    /// As [`Self::command`].
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

    /// Runs a transaction; the replies of its commands, errors among them.
    ///
    /// The first one over each connection takes a round trip more: it is sent after an empty one has been accepted.
    ///
    /// # Errors
    /// [`Error::Server`] when a command could not be queued, or MULTI was refused, so that none ran;
    /// [`Error::NoTransaction`] when MULTI was refused on a connection that had accepted it before;
    /// [`Error::NotShareable`] for a command that would change the connection, which EXEC doesn't take back;
    /// [`Error::Lost`] and so on.
    pub fn transaction(&self, transaction: &Transaction) -> Result<Vec<Value>, Error> {
        unshareable::check_inside(transaction.requests())?;
        self.know_multi().map_err(|error| error.with_fate(Fate::NotRun))?;
        let outcome = self.run_transaction(transaction);
        if matches!(outcome, Err(Error::NoTransaction { .. })) {
            self.inner.multi_accepted.store(MULTI_UNKNOWN, Ordering::Relaxed);
        }
        outcome
    }

    /// [`Connection::optimistic`] on a connection of its own: changes what stands at `keys` by what stands there. Each
    /// attempt finds a connection in the state in which [`Config`] puts a new one, whatever the one before has done to
    /// its.
    ///
    /// # Errors
    /// As [`Connection::optimistic`].
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

    /// A connection for one caller alone, in the state in which [`Config`] puts a new one. It closes when it is
    /// dropped.
    ///
    /// # Errors
    /// As [`Connection::connect`]; [`Error::Limit`] when all of `dedicated_max` are taken for longer than the
    /// `connect_timeout`.
    pub fn dedicated(&self) -> Result<Dedicated, Error> {
        self.inner.pool.take()
    }

    /// Subscribes to channels, on a connection of its own.
    ///
    /// # Errors
    /// As [`PubSub::connect`] and [`PubSub::subscribe`].
    pub fn subscribe<A: Argument>(&self, channels: &[A]) -> Result<PubSub, Error> {
        let mut subscriber = PubSub::connect(&self.inner.config)?;
        subscriber.subscribe(channels)?;
        Ok(subscriber)
    }

    /// Push messages that came over the shared connection (RESP3, such as invalidations that a dedicated connection
    /// redirects here), oldest first. They are noticed when replies are read, and kept as [`Config::pushes_max`] says.
    #[must_use]
    pub fn take_pushes(&self) -> Vec<Value> {
        self.inner.shared.take_pushes()
    }

    /// How often the shared connection has been made anew.
    #[must_use]
    pub fn reconnections(&self) -> u64 {
        self.inner.shared.reconnections()
    }

    /// Where and how it connects.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    fn one(&self, replies: Result<Vec<Value>, Interrupted>) -> Result<Value, Error> {
        replies?.pop().ok_or_else(|| missing("a command"))
    }

    /// Runs a command that blocks for up to `timeout`; `None`: for ever.
    fn blocking(&self, request: &(impl Request + ?Sized), timeout: Option<Duration>) -> Result<Value, Error> {
        let mut connection = self.inner.pool.take()?;
        // The server may be silent for as long as it was told to wait; beyond that, as with any other command.
        let silence = self.inner.config.read_timeout.zip(timeout);
        connection.set_read_timeout(silence.map(|(read_timeout, timeout)| read_timeout.saturating_add(timeout)));
        let reply = connection.exchange(request)?;
        connection.keep();
        Ok(reply)
    }

    /// Makes sure that MULTI was accepted over the connection there is. If that breaks before the transaction comes,
    /// the next one will hardly be another's; if it is, [`Error::NoTransaction`] says so.
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

    /// Runs batches one after the other, the next one on its way while one is awaited.
    fn run_in_batches(&self, batches: impl Iterator<Item = Batch>) -> Result<Vec<Value>, Interrupted> {
        /// So many batches of a pipeline wait or fly at a time.
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

    /// What an interrupted batch means for the pipeline, given those behind it, which share its fate or were never
    /// sent.
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

/// A reply to come; see [`Client::submit`]. Dropped unread, the command runs all the same.
pub struct Ticket {
    client: Client,
    slot: Arc<Slot>,
}

impl Ticket {
    /// The reply, waiting for it.
    ///
    /// # Errors
    /// As [`Client::command`].
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
