//! The load generator: many connections on few threads, requests that are rendered and replies that are counted at a
//! few nanoseconds each, so that the server is what is measured.

mod connection;
mod random;
mod scanner;
mod schedule;
mod shared;
mod socket;
mod template;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use client::{Command, Config, Encryption, Proto, Request};
use hdrhistogram::Histogram;

pub use random::Random;
pub use scanner::Scanner;
pub use socket::Address;
pub use template::Template;

use shared::Shared;
use worker::{Measured, Worker};

/// Longest latency that is told apart, in nanoseconds: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Digits of a latency that are exact.
const LATENCY_DIGITS: u8 = 3;
/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// What every connection sends first, and how many replies answer it.
#[derive(Clone, Debug, Default)]
pub struct Greeting {
    /// Requests, encoded.
    pub bytes: Vec<u8>,
    /// How many they are.
    pub replies: u64,
}

impl Greeting {
    /// What `config` asks for: password, protocol, database.
    #[must_use]
    pub fn of(config: &Config) -> Greeting {
        let mut greeting = Greeting::default();
        let user = config.user.as_deref();
        match (config.proto, &config.password) {
            (Proto::Resp2, None) => {}
            (Proto::Resp2, Some(password)) => greeting.push(&Command::new("AUTH").args(user).arg(password)),
            (Proto::Resp3, None) => greeting.push(&Command::new("HELLO 3")),
            (Proto::Resp3, Some(password)) => {
                greeting.push(&Command::new("HELLO 3 AUTH").arg(user.unwrap_or(b"default")).arg(password));
            }
        }
        if config.db != 0 {
            greeting.push(&Command::new("SELECT").arg(config.db));
        }
        greeting
    }

    fn push(&mut self, command: &Command) {
        command.pack(&mut self.bytes);
        self.replies += 1;
    }
}

/// What is to be sent, and how.
#[derive(Clone, Debug)]
pub struct Load {
    /// The server.
    pub address: Address,
    /// How connections are encrypted, if they are.
    pub encryption: Option<Encryption>,
    /// What connections begin with.
    pub greeting: Greeting,
    /// The request.
    pub template: Template,
    /// How many requests in all.
    pub requests: u64,
    /// Connections of all threads together; at least as many as threads.
    pub clients: usize,
    /// Threads.
    pub threads: usize,
    /// Requests of one connection that may be unanswered at a time.
    pub depth: u64,
    /// Requests a second by the clock, instead of as fast as the replies come.
    pub rate: Option<f64>,
    /// Whether a connection serves more than one pipeline.
    pub keep_alive: bool,
    /// Random numbers in requests are below this.
    pub numbers: u64,
    /// Where random numbers begin.
    pub seed: u64,
    /// An error reply ends the run.
    pub stop_on_error: bool,
}

/// How far a run is.
#[derive(Clone, Debug, Default)]
pub struct RunProgress {
    /// Since the start.
    pub elapsed: Duration,
    /// Replies.
    pub answered: u64,
    /// Sum of their latencies in nanoseconds.
    pub latency_sum_ns: u64,
    /// Error replies.
    pub errors: u64,
    /// The text of the last of them.
    pub latest_error: String,
}

/// What a run has measured.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// From the start to the last reply.
    pub took: Duration,
    /// Latencies in nanoseconds; from when a request was due, where there was a rate.
    pub latencies: Histogram<u64>,
    /// Error replies.
    pub errors: u64,
    /// It was stopped before all requests were answered.
    pub interrupted: bool,
}

/// Why a run came to nothing.
#[derive(Debug)]
pub enum RunFailure {
    /// There is no connection.
    Unreachable {
        /// Of the server.
        address: String,
        /// In the operating system's words.
        reason: String,
    },
    /// The server closed a connection.
    Closed,
    /// The server answered with an error.
    Reply(String),
    /// The server answered something else than RESP.
    Malformed(String),
    /// The operating system failed.
    Io(io::Error),
}

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunFailure::Unreachable { address, reason } => write!(f, "could not connect to {address}: {reason}"),
            RunFailure::Closed => f.write_str("the server closed the connection"),
            RunFailure::Reply(text) => write!(f, "Error from server: {text}"),
            RunFailure::Malformed(text) => f.write_str(text),
            RunFailure::Io(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for RunFailure {
    fn from(error: io::Error) -> RunFailure {
        RunFailure::Io(error)
    }
}

/// An empty histogram of latencies in nanoseconds.
#[must_use]
pub fn latencies() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS) {
        Ok(histogram) => histogram,
        Err(_) => unreachable!("the bounds are constant and valid"),
    }
}

/// Runs a load to its end, or until `interrupt` is set; `observe` is told a few times a second how far it is.
pub fn run(
    load: &Load,
    interrupt: &AtomicBool,
    observe: &mut dyn FnMut(&RunProgress),
) -> Result<RunOutcome, RunFailure> {
    let shared = Shared::default();
    let ready = Barrier::new(load.threads);
    let started = OnceLock::new();
    let (report, reports) = mpsc::channel();
    thread::scope(|scope| {
        for index in 0..load.threads {
            let (shared, ready, started, report) = (&shared, &ready, &started, report.clone());
            scope.spawn(move || {
                let result = work(load, shared, index, ready, started);
                if result.is_err() {
                    shared.stop();
                }
                // The receiver lives until all have reported.
                let _ = report.send(result);
            });
        }
        gather(load, &shared, &started, interrupt, &reports, observe)
    })
}

/// Opens a load's connections with one thread and keeps them without a request, until one of them ends: the reason.
/// `connected` is called when all of them are there; a server may yet refuse those that are too many for it.
pub fn idle(load: &Load, connected: &mut dyn FnMut() -> io::Result<()>) -> RunFailure {
    let shared = Shared::default();
    let held = Worker::new(load, &shared, 0).and_then(|mut worker| {
        worker.connect()?;
        connected()?;
        worker.idle()
    });
    match held {
        Err(failure) => failure,
        Ok(never) => match never {},
    }
}

/// One thread's life. All begin together, when all are connected or one has failed.
fn work(
    load: &Load,
    shared: &Shared,
    index: usize,
    ready: &Barrier,
    started: &OnceLock<Instant>,
) -> Result<Measured, RunFailure> {
    let connected = Worker::new(load, shared, index).and_then(|mut worker| worker.connect().map(|()| worker));
    if connected.is_err() {
        shared.stop();
    }
    ready.wait();
    connected?.run(*started.get_or_init(Instant::now))
}

fn gather(
    load: &Load,
    shared: &Shared,
    started: &OnceLock<Instant>,
    interrupt: &AtomicBool,
    reports: &mpsc::Receiver<Result<Measured, RunFailure>>,
    observe: &mut dyn FnMut(&RunProgress),
) -> Result<RunOutcome, RunFailure> {
    let mut outcome = RunOutcome { took: Duration::ZERO, latencies: latencies(), errors: 0, interrupted: false };
    let mut failure = None;
    let mut to_come = load.threads;
    while to_come > 0 {
        match reports.recv_timeout(PROGRESS_INTERVAL) {
            Ok(report) => {
                to_come -= 1;
                match report {
                    Ok(measured) => add(&mut outcome, &measured),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            Err(_) => {
                if let Some(started) = started.get() {
                    observe(&progress(shared, *started));
                }
                if interrupt.load(Ordering::Relaxed) {
                    shared.stop();
                }
            }
        }
    }
    if let Some(started) = started.get() {
        observe(&progress(shared, *started));
    }
    outcome.interrupted = interrupt.load(Ordering::Relaxed);
    outcome.errors = shared.so_far().2;
    failure.map_or(Ok(outcome), Err)
}

fn add(outcome: &mut RunOutcome, measured: &Measured) {
    outcome.took = outcome.took.max(measured.took);
    // Both have the same bounds, so that nothing can be out of range.
    let _ = outcome.latencies.add(&measured.latencies);
}

fn progress(shared: &Shared, started: Instant) -> RunProgress {
    let (answered, latency_sum_ns, errors) = shared.so_far();
    RunProgress { elapsed: started.elapsed(), answered, latency_sum_ns, errors, latest_error: shared.latest_error() }
}
