//! One thread of the generator: its connections, and the loop that keeps them busy.
//!
//! Without a rate, every connection sends its next pipeline when the last reply of the one before has come. With a
//! rate, requests are due by the clock, whatever the server does; one that finds no connection free is sent late, and
//! its latency counts from when it was due.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::connection::{Connection, Flight, Phase};
use super::schedule::Schedule;
use super::shared::Shared;
use super::socket::Socket;
use super::template::Batch;
use super::{Load, RunFailure, latencies};

/// Bytes read at once: more than a socket's receive buffer holds by default on a loopback connection.
const READ_BYTES: usize = 256 << 10;
/// Events taken from the kernel at once.
const EVENTS_AT_ONCE: usize = 256;
/// Longest sleep, after which the thread looks whether it is to stop.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// How long connecting and greeting may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How the thread decides when to send.
enum Pace {
    /// When the replies to the last pipeline are there.
    Answered,
    /// When it is time.
    /// `issued` and `quota` count this thread's requests, of which `first` is the first one's number in the run.
    Clock { schedule: Schedule, issued: u64, quota: u64, first: u64, line: VecDeque<usize> },
}

/// A thread's state.
pub struct Worker<'a> {
    load: &'a Load,
    shared: &'a Shared,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    batch: Batch,
    pace: Pace,
    in_flight: u64,
    histogram: Histogram<u64>,
    buffer: Vec<u8>,
    started: Instant,
}

/// What a thread has measured.
pub struct Measured {
    /// Latencies in nanoseconds.
    pub latencies: Histogram<u64>,
    /// From the start to the last reply.
    pub took: Duration,
}

impl<'a> Worker<'a> {
    /// The `index`th of the load's threads, not connected yet.
    pub fn new(load: &'a Load, shared: &'a Shared, index: usize) -> Result<Worker<'a>, RunFailure> {
        let share = |total: u64| total / load.threads as u64 + u64::from((index as u64) < total % load.threads as u64);
        let shares_before = |total: u64| {
            let (threads, index) = (load.threads as u64, index as u64);
            total / threads * index + index.min(total % threads)
        };
        let pace = match load.rate {
            None => Pace::Answered,
            Some(rate) => Pace::Clock {
                schedule: Schedule::share(rate, index, load.threads),
                issued: 0,
                quota: share(load.requests),
                first: shares_before(load.requests),
                line: VecDeque::new(),
            },
        };
        let mut worker = Worker {
            load,
            shared,
            epoll: epoll::create(CreateFlags::CLOEXEC).map_err(io::Error::from)?,
            connections: Vec::new(),
            batch: Batch::new(&load.template, load.depth as usize, load.numbers, load.seed),
            pace,
            in_flight: 0,
            histogram: latencies(),
            buffer: vec![0; READ_BYTES],
            started: Instant::now(),
        };
        for _ in 0..share(load.clients as u64) {
            let connection = Connection::new(worker.begin_connect()?);
            worker.watch_new(&connection.socket, worker.connections.len())?;
            worker.connections.push(connection);
        }
        Ok(worker)
    }

    fn begin_connect(&self) -> Result<Socket, RunFailure> {
        let socket = Socket::connect(&self.load.address, self.load.encryption.as_ref());
        socket.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &io::Error) -> RunFailure {
        RunFailure::Unreachable { address: self.load.address.to_string(), reason: reason(error) }
    }

    fn watch_new(&self, socket: &Socket, index: usize) -> Result<(), RunFailure> {
        let flags = EventFlags::IN | EventFlags::OUT;
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(index as u64), flags).map_err(io::Error::from)?)
    }

    /// Waits until every connection may send requests.
    pub fn connect(&mut self) -> Result<(), RunFailure> {
        let began = Instant::now();
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        while self.connections.iter().any(|connection| connection.phase != Phase::Ready) {
            if began.elapsed() > CONNECT_MAX {
                let reason = format!("no answer within {} seconds", CONNECT_MAX.as_secs());
                return Err(RunFailure::Unreachable { address: self.load.address.to_string(), reason });
            }
            self.wait(SLEEP_MAX, &mut events)?;
            for event in &events {
                self.serve(event.data.u64() as usize, event.flags, false)?;
            }
            if self.shared.stopped() {
                break;
            }
        }
        Ok(())
    }

    /// Keeps connections that were connected, without a request, until one of them is refused or closed.
    pub fn idle(&mut self) -> Result<Infallible, RunFailure> {
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        loop {
            self.wait(SLEEP_MAX, &mut events)?;
            for event in &events {
                self.serve(event.data.u64() as usize, event.flags, false)?;
            }
        }
    }

    /// Sends and receives until all requests are answered or the run is stopped.
    pub fn run(mut self, started: Instant) -> Result<Measured, RunFailure> {
        self.started = started;
        // A sleeping thread is else woken up to 50 microseconds late, which would count as the server's latency.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        for index in 0..self.connections.len() {
            self.next_flight(index)?;
        }
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        while !self.shared.stopped() {
            self.send_due()?;
            if self.is_finished() {
                break;
            }
            self.wait(self.until_next_due(), &mut events)?;
            for event in &events {
                self.serve(event.data.u64() as usize, event.flags, true)?;
            }
        }
        Ok(Measured { latencies: self.histogram, took: self.started.elapsed() })
    }

    fn is_finished(&self) -> bool {
        let all_sent = match &self.pace {
            Pace::Answered => self.shared.all_claimed(self.load.requests),
            Pace::Clock { issued, quota, .. } => issued == quota,
        };
        all_sent && self.in_flight == 0
    }

    fn until_next_due(&self) -> Duration {
        match &self.pace {
            Pace::Clock { schedule, issued, quota, line, .. } if issued < quota && !line.is_empty() => {
                schedule.due(*issued).saturating_sub(self.started.elapsed()).min(SLEEP_MAX)
            }
            _ => SLEEP_MAX,
        }
    }

    fn wait(&self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), RunFailure> {
        events.clear();
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Does what a socket is ready for; requests are sent only once the run `goes`.
    fn serve(&mut self, index: usize, flags: EventFlags, goes: bool) -> Result<(), RunFailure> {
        if self.connections[index].phase == Phase::Connecting {
            self.greet(index)?;
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(index)?;
        }
        if goes {
            self.next_flight(index)?;
        }
        self.flush(index)
    }

    /// The kernel has connected or given up; queues what every connection begins with.
    fn greet(&mut self, index: usize) -> Result<(), RunFailure> {
        let connected = self.connections[index].socket.outcome();
        connected.map_err(|error| self.unreachable(&error))?;
        let connection = &mut self.connections[index];
        connection.queue(&self.load.greeting.bytes);
        connection.phase = match self.load.greeting.replies {
            0 => Phase::Ready,
            replies => Phase::Greeting(replies),
        };
        Ok(())
    }

    /// Reads once; what there is beyond is announced again.
    fn receive(&mut self, index: usize) -> Result<(), RunFailure> {
        let connection = &mut self.connections[index];
        let received = match connection.socket.receive(&mut self.buffer).map_err(closed_or_broken)? {
            Some(0) => return Err(RunFailure::Closed),
            Some(received) => received,
            None => return Ok(()),
        };
        let shared = self.shared;
        let tally = connection.scanner.feed(&self.buffer[..received], &mut |text| shared.note_error(text));
        let tally = tally.map_err(|malformed| RunFailure::Malformed(malformed.to_string()))?;
        if tally.errors > 0 && (self.load.stop_on_error || connection.phase != Phase::Ready) {
            return Err(RunFailure::Reply(self.shared.latest_error()));
        }
        match connection.phase {
            Phase::Greeting(left) if left > tally.replies => connection.phase = Phase::Greeting(left - tally.replies),
            Phase::Greeting(_) => connection.phase = Phase::Ready,
            _ => self.answered(index, tally.replies)?,
        }
        Ok(())
    }

    /// Records the latency of `replies` replies that have just become whole.
    fn answered(&mut self, index: usize, mut replies: u64) -> Result<(), RunFailure> {
        let now = self.started.elapsed();
        let (mut count, mut sum_ns) = (0, 0);
        while replies > 0 {
            let Some(flight) = self.connections[index].answered(replies) else {
                return Err(RunFailure::Malformed("the server sent more replies than there were requests".to_owned()));
            };
            let taken = match flight {
                Flight::Together { sent, count } => {
                    sum_ns += record(&mut self.histogram, now, sent, count) * count;
                    count
                }
                Flight::Scheduled { first, count } => {
                    if let Pace::Clock { schedule, .. } = &self.pace {
                        for number in first..first + count {
                            sum_ns += record(&mut self.histogram, now, schedule.due(number), 1);
                        }
                    }
                    count
                }
            };
            count += taken;
            replies -= taken;
        }
        self.in_flight -= count;
        self.shared.note_answered(count, sum_ns);
        Ok(())
    }

    /// Gives a connection that may send its next requests, or puts it into the line of those that wait for some.
    fn next_flight(&mut self, index: usize) -> Result<(), RunFailure> {
        let connection = &mut self.connections[index];
        let used = connection.unanswered == 0 && connection.used;
        if used && !self.load.keep_alive && connection.phase == Phase::Ready {
            return if self.anything_left() { self.reconnect(index) } else { Ok(()) };
        }
        if connection.phase != Phase::Ready {
            return Ok(());
        }
        match &mut self.pace {
            Pace::Answered if connection.unanswered == 0 => {
                let claimed = self.shared.claim(self.load.depth, self.load.requests);
                let count = claimed.end - claimed.start;
                if count > 0 {
                    connection.take_on(Flight::Together { sent: self.started.elapsed(), count }, claimed.start);
                    self.in_flight += count;
                }
                self.flush(index)
            }
            Pace::Clock { line, .. } if !connection.in_line && connection.unanswered < self.load.depth => {
                connection.in_line = true;
                line.push_back(index);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn anything_left(&self) -> bool {
        match &self.pace {
            Pace::Answered => !self.shared.all_claimed(self.load.requests),
            Pace::Clock { issued, quota, .. } => issued < quota,
        }
    }

    /// Sends what is due to the connections that stand in line, spread evenly.
    fn send_due(&mut self) -> Result<(), RunFailure> {
        loop {
            let Pace::Clock { schedule, issued, quota, first, line } = &mut self.pace else { return Ok(()) };
            let due = schedule.count(self.started.elapsed()).min(*quota).saturating_sub(*issued);
            let waiting = line.len() as u64;
            let Some(index) = (due > 0).then(|| line.pop_front()).flatten() else { return Ok(()) };
            let connection = &mut self.connections[index];
            connection.in_line = false;
            let count = due.div_ceil(waiting).min(self.load.depth - connection.unanswered);
            connection.take_on(Flight::Scheduled { first: *issued, count }, *first + *issued);
            *issued += count;
            self.in_flight += count;
            if self.load.keep_alive {
                self.next_flight(index)?;
            }
            self.flush(index)?;
        }
    }

    /// Replaces a connection by a new one.
    fn reconnect(&mut self, index: usize) -> Result<(), RunFailure> {
        let fresh = Connection::new(self.begin_connect()?);
        self.watch_new(&fresh.socket, index)?;
        self.connections[index] = fresh;
        Ok(())
    }

    fn flush(&mut self, index: usize) -> Result<(), RunFailure> {
        let connection = &mut self.connections[index];
        if connection.phase == Phase::Connecting {
            return Ok(());
        }
        connection.flush(&mut self.batch).map_err(closed_or_broken)?;
        let stuck = connection.is_stuck();
        if stuck != connection.watched_for_writing {
            connection.watched_for_writing = stuck;
            let flags = if stuck { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
            let data = EventData::new_u64(index as u64);
            epoll::modify(&self.epoll, &connection.socket, data, flags).map_err(io::Error::from)?;
        }
        Ok(())
    }
}

/// Notes a latency, not below a nanosecond, and returns it.
fn record(histogram: &mut Histogram<u64>, now: Duration, since: Duration, count: u64) -> u64 {
    let ns = now.saturating_sub(since).as_nanos().clamp(1, u128::from(super::LATENCY_NS_MAX)) as u64;
    histogram.saturating_record_n(ns, count);
    ns
}

fn closed_or_broken(error: io::Error) -> RunFailure {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => RunFailure::Closed,
        _ => error.into(),
    }
}

/// What an error says, without the number that std appends.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
