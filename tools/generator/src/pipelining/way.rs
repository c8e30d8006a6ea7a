//! One variant of an experiment, run and timed on one server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use client::{Connection, Request, Value, Window};
use nix::sys::resource::{UsageWho, getrusage};

use super::results::{Cell, Counts, TranscriptLine};
use super::target::Target;
use crate::failure::Failure;

/// A variant: its name, the amount of work, and the function that does it.
pub struct Way<'a> {
    /// Name in the tables.
    pub label: String,
    /// Number of parts of the work. A variant that is cut off has done some of them.
    pub parts: u64,
    /// The document's time in seconds.
    pub document_s: Option<f64>,
    /// True if the variant needs the keys of the previous one.
    pub keeps_keys: bool,
    /// Kind of work. Only variants of the same kind are compared.
    pub does: &'static str,
    /// Function that does the work. It must call [`Runner::next_part`] before each part.
    pub work: Work<'a>,
}

/// A function that does a variant's work.
pub type Work<'a> = Box<dyn Fn(&mut Runner<'_>) -> Result<(), Failure> + 'a>;

/// Connection and counters of a running variant.
pub struct Runner<'a> {
    connection: Connection,
    began: Instant,
    limit: Duration,
    interrupt: &'a AtomicBool,
    parts: u64,
    begun: u64,
    commands: u64,
    transcript: Vec<TranscriptLine>,
}

impl Runner<'_> {
    /// Begins the next part and returns its number, from 0. Returns `None` if all parts are done or the time is over.
    pub fn next_part(&mut self) -> Option<u64> {
        let over = self.begun == self.parts || self.began.elapsed() >= self.limit;
        if over || self.interrupt.load(Ordering::Relaxed) {
            return None;
        }
        self.begun += 1;
        Some(self.begun - 1)
    }

    /// Begins all parts at once.
    pub fn all_parts(&mut self) -> u64 {
        self.begun = self.parts;
        self.parts
    }

    /// Sends a command and waits for its reply.
    pub fn step(&mut self, request: &(impl Request + ?Sized)) -> Result<Value, Failure> {
        self.commands += 1;
        Ok(self.connection.command(request)?)
    }

    /// Sends commands without waiting in between. An error reply ends the variant.
    pub fn pipeline<R: Request>(&mut self, requests: impl IntoIterator<Item = R>) -> Result<(), Failure> {
        let mut refused = None;
        let sent = Window::default().run_each(&mut self.connection, requests, |_, reply| {
            if let (None, Some(text)) = (&refused, reply.error()) {
                refused = Some(client::ServerError::new(text));
            }
        })?;
        self.commands += sent;
        refused.map_or(Ok(()), |error| Err(client::Error::Server(error).into()))
    }

    /// Returns the connection, for a variant that sends and reads separately. `commands` is the number of commands that
    /// it will send.
    pub fn connection(&mut self, commands: u64) -> &mut Connection {
        self.commands += commands;
        &mut self.connection
    }

    /// Adds a line to the transcript, with the current time.
    pub fn note(&mut self, way: &str, speaker: &'static str, text: String) {
        let at_ms = self.began.elapsed().as_secs_f64() * 1e3;
        // A single run has only one server.
        self.transcript.push(TranscriptLine { server: 0, at_ms, way: way.to_owned(), speaker, text });
    }
}

/// Runs a variant once.
pub fn run(
    way: &Way<'_>,
    target: &mut Target,
    limit: Duration,
    interrupt: &AtomicBool,
) -> Result<(Cell, Vec<TranscriptLine>), Failure> {
    let connection = target.connect()?;
    let counts_before = target.counts();
    let server_before = target.usage();
    let cpu_before = cpu_times();
    let (began, transcript) = (Instant::now(), Vec::new());
    let mut runner =
        Runner { connection, began, limit, interrupt, parts: way.parts, begun: 0, commands: 0, transcript };
    (way.work)(&mut runner)?;
    let real_s = began.elapsed().as_secs_f64();
    let cpu = cpu_times();
    let used = target.usage().zip(server_before).map(|(now, before)| now.since(&before));
    let done = runner.begun;
    let cell = Cell {
        user_s: cpu.0 - cpu_before.0,
        system_s: cpu.1 - cpu_before.1,
        real_s: real_s * way.parts as f64 / done.max(1) as f64,
        times: 1.0,
        done,
        of: way.parts,
        commands: runner.commands,
        server_ns_per_command: used
            .and_then(|used| used.known_cpu_ns())
            .map(|ns| ns as f64 / runner.commands.max(1) as f64),
        server_bytes: used.map(|used| used.resident_bytes),
        counted: difference(&counts_before, target),
        impossible: None,
        ..Cell::default()
    };
    Ok((cell, runner.transcript))
}

/// Returns the server's counts since `before`, without the queries for counts.
fn difference(before: &Counts, target: &mut Target) -> Counts {
    let since = |(name, count): (String, u64)| {
        let new = count.saturating_sub(before.get(&name).copied().unwrap_or(0));
        (new > 0 && name != "info").then_some((name, new))
    };
    target.counts().into_iter().filter_map(since).collect()
}

/// Returns this thread's CPU times in user mode and in the kernel, in seconds. The process's times would include the
/// proxy's threads.
fn cpu_times() -> (f64, f64) {
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let usage = getrusage(UsageWho::RUSAGE_THREAD);
    usage.map_or((0.0, 0.0), |usage| (seconds(usage.user_time()), seconds(usage.system_time())))
}
