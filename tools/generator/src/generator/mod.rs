//! The load generator: many connections on few threads. Rendering a request and counting a reply take a few nanoseconds
//! each, so that the measurement is dominated by the server.

mod connection;
mod distribution;
mod random;
mod scanner;
mod schedule;
mod shared;
mod slots;
mod socket;
mod template;
mod worker;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock, mpsc};
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use client::{Command, Config, Proto, Request};
use hdrhistogram::Histogram;

pub use distribution::{Distribution, Numbers};
pub use random::Random;
pub use scanner::Scanner;
pub use slots::NodeLoad;
pub use socket::Address;
pub use template::{Mix, TAG, Template};

use shared::Shared;
use worker::{Measured, Worker};

/// Maximum recorded latency, in nanoseconds: an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Exact digits of a latency.
const LATENCY_DIGITS: u8 = 3;
/// Interval between progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Requests that every connection sends first, and the number of their replies.
#[derive(Clone, Debug, Default)]
pub struct Greeting {
    /// Encoded requests.
    pub bytes: Vec<u8>,
    /// Number of requests.
    pub replies: u64,
}

impl Greeting {
    /// Returns the greeting for `config`: password, protocol and database.
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

/// Description of a load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The server, or the primaries of a cluster. The connections are distributed evenly.
    pub nodes: Vec<NodeLoad>,
    /// First requests of every connection.
    pub greeting: Greeting,
    /// The requests.
    pub mix: Mix,
    /// Total number of requests.
    pub requests: u64,
    /// Total number of connections; at least the number of threads.
    pub clients: usize,
    /// Number of threads.
    pub threads: usize,
    /// Maximum number of unanswered requests of one connection.
    pub depth: u64,
    /// Requests per second on a fixed schedule, instead of as fast as replies arrive.
    pub rate: Option<f64>,
    /// True if a connection serves more than one pipeline.
    pub keep_alive: bool,
    /// Random numbers in requests.
    pub numbers: Numbers,
    /// Seed of the random numbers.
    pub seed: u64,
    /// True if an error reply ends the run.
    pub stop_on_error: bool,
}

/// Progress of a run.
#[derive(Clone, Debug, Default)]
pub struct RunProgress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Number of replies.
    pub answered: u64,
    /// Sum of latencies in nanoseconds.
    pub latency_sum_ns: u64,
    /// Number of error replies.
    pub errors: u64,
    /// Text of the last error reply.
    pub latest_error: String,
}

/// Results of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// Time from the start to the last reply.
    pub took: Duration,
    /// Latencies in nanoseconds; with a rate, they count from the scheduled time.
    pub latencies: Histogram<u64>,
    /// Number of error replies.
    pub errors: u64,
    /// True if the run was stopped before all requests were answered.
    pub interrupted: bool,
}

/// Reason for a failed run.
#[derive(Debug)]
pub enum RunFailure {
    /// Connecting failed.
    Unreachable {
        /// Address of the server.
        address: String,
        /// The operating system's text.
        reason: String,
    },
    /// The server closed a connection.
    Closed,
    /// The server sent an error reply.
    Reply(String),
    /// The server sent an invalid reply.
    Malformed(String),
    /// The operating system reported an error.
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

/// Returns an empty histogram of latencies in nanoseconds.
#[must_use]
pub fn latencies() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS) {
        Ok(histogram) => histogram,
        Err(_) => unreachable!("the bounds are constant and valid"),
    }
}

/// Runs a load to its end, or until `interrupt` is set. `observe` gets the progress several times a second.
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
                // The receiver outlives all threads.
                let _ = report.send(result);
            });
        }
        gather(load, &shared, &started, interrupt, &reports, observe)
    })
}

/// Opens the connections of a load with one thread and keeps them idle until one of them ends. Returns the reason.
/// `connected` is called when all connections are open; the server may still refuse surplus ones afterwards.
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

/// Runs one thread. All threads begin together after all have connected or one has failed.
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
    // Both histograms have the same bounds, so that no value is out of range.
    let _ = outcome.latencies.add(&measured.latencies);
}

fn progress(shared: &Shared, started: Instant) -> RunProgress {
    let (answered, latency_sum_ns, errors) = shared.so_far();
    RunProgress { elapsed: started.elapsed(), answered, latency_sum_ns, errors, latest_error: shared.latest_error() }
}
