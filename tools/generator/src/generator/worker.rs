//! One thread of the generator: its connections, and the loop that serves them.
//!
//! Without a rate, every connection sends its next pipeline after the last reply of the previous one. With a rate,
//! requests are due at fixed times, regardless of the server. If no connection is free, a request is sent late, and its
//! latency counts from its due time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use client::cluster::slot_tag;
use hdrhistogram::Histogram;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::connection::{Connection, Flight, Phase};
use super::schedule::Schedule;
use super::shared::Shared;
use super::slots::{Moved, NodeLoad, moved};
use super::socket::Socket;
use super::template::Batch;
use super::{Load, RunFailure, latencies};

/// Bytes per read: more than the default receive buffer of a loopback socket.
const READ_BYTES: usize = 256 << 10;
/// Maximum number of events per poll.
const EVENTS_AT_ONCE: usize = 256;
/// Maximum sleep, after which the thread checks the stop flag.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Time limit for connecting and the greeting.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Pause after a reply that a moving slot or a failover causes.
const UNSETTLED_PAUSE: Duration = Duration::from_millis(10);

/// Pacing of requests.
enum Pace {
    /// A connection sends after the replies to its last pipeline.
    Answered,
    /// Requests are sent on schedule. `issued` and `quota` count this thread's requests; `first` is the number of its
    /// first one in the run.
    Clock { schedule: Schedule, issued: u64, quota: u64, first: u64, line: VecDeque<usize> },
}

/// State of a thread.
pub struct Worker<'a> {
    load: &'a Load,
    shared: &'a Shared,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// The requests for each node.
    batches: Vec<Batch>,
    pace: Pace,
    in_flight: u64,
    histogram: Histogram<u64>,
    buffer: Vec<u8>,
    started: Instant,
}

/// Results of a thread.
pub struct Measured {
    /// Latencies in nanoseconds.
    pub latencies: Histogram<u64>,
    /// Time from the start to the last reply.
    pub took: Duration,
}

impl<'a> Worker<'a> {
    /// Creates thread number `index` of the load, without connections.
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
            batches: load.nodes.iter().map(|node| batch(load, node)).collect(),
            pace,
            in_flight: 0,
            histogram: latencies(),
            buffer: vec![0; READ_BYTES],
            started: Instant::now(),
        };
        let first = shares_before(load.clients as u64);
        for number in first..first + share(load.clients as u64) {
            let node = number as usize % load.nodes.len();
            let connection = Connection::new(node, worker.begin_connect(node)?);
            worker.watch_new(&connection.socket, worker.connections.len())?;
            worker.connections.push(connection);
        }
        Ok(worker)
    }

    fn begin_connect(&self, node: usize) -> Result<Socket, RunFailure> {
        let NodeLoad { address, encryption, .. } = &self.load.nodes[node];
        Socket::connect(address, encryption.as_ref()).map_err(|error| self.unreachable(node, reason(&error)))
    }

    fn unreachable(&self, node: usize, reason: String) -> RunFailure {
        RunFailure::Unreachable { address: self.load.nodes[node].address.to_string(), reason }
    }

    fn watch_new(&self, socket: &Socket, index: usize) -> Result<(), RunFailure> {
        let flags = EventFlags::IN | EventFlags::OUT;
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(index as u64), flags).map_err(io::Error::from)?)
    }

    /// Waits until every connection is ready for requests.
    pub fn connect(&mut self) -> Result<(), RunFailure> {
        let began = Instant::now();
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        while let Some(pending) = self.connections.iter().find(|connection| connection.phase != Phase::Ready) {
            if began.elapsed() > CONNECT_MAX {
                let reason = format!("no answer within {} seconds", CONNECT_MAX.as_secs());
                return Err(self.unreachable(pending.node, reason));
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

    /// Keeps open connections idle until one of them is refused or closed.
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
        // By default a thread wakes up to 50 microseconds late, which would count as the server's latency.
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

    /// Handles the events of a socket. Requests are sent only if `goes` is true.
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

    /// Handles the end of connecting, and queues the greeting.
    fn greet(&mut self, index: usize) -> Result<(), RunFailure> {
        let connected = self.connections[index].socket.outcome();
        connected.map_err(|error| self.unreachable(self.connections[index].node, reason(&error)))?;
        let connection = &mut self.connections[index];
        connection.queue(&self.load.greeting.bytes);
        connection.phase = match self.load.greeting.replies {
            0 => Phase::Ready,
            replies => Phase::Greeting(replies),
        };
        Ok(())
    }

    /// Reads once. The poller reports remaining bytes again.
    fn receive(&mut self, index: usize) -> Result<(), RunFailure> {
        let connection = &mut self.connections[index];
        let received = match connection.socket.receive(&mut self.buffer).map_err(closed_or_broken)? {
            Some(0) => return Err(RunFailure::Closed),
            Some(received) => received,
            None => return Ok(()),
        };
        let (shared, node) = (self.shared, connection.node);
        let is_cluster = self.load.nodes[node].name.is_some();
        let mut changes = Vec::new();
        let tally = connection.scanner.feed(&self.buffer[..received], &mut |text| {
            shared.note_error(text);
            changes.extend(if is_cluster { moved(text) } else { None });
        });
        let tally = tally.map_err(|malformed| RunFailure::Malformed(malformed.to_string()))?;
        let stops = self.load.stop_on_error && tally.errors > changes.len() as u64;
        if tally.errors > 0 && (stops || connection.phase != Phase::Ready) {
            return Err(RunFailure::Reply(self.shared.latest_error()));
        }
        let is_temporary = changes.contains(&Moved::Temporarily);
        for change in changes {
            self.note_moved(node, change);
        }
        if is_temporary {
            // redis-benchmark waits as well. The slot's next owner is known soon.
            std::thread::sleep(UNSETTLED_PAUSE);
        }
        let connection = &mut self.connections[index];
        match connection.phase {
            Phase::Greeting(left) if left > tally.replies => connection.phase = Phase::Greeting(left - tally.replies),
            Phase::Greeting(_) => connection.phase = Phase::Ready,
            _ => self.answered(index, tally.replies)?,
        }
        Ok(())
    }

    /// Sends the next requests of a slot to its new owner. A node that joined after the start gets none.
    fn note_moved(&mut self, from: usize, change: Moved) {
        let Moved::To(slot, owner) = change else { return };
        self.batches[from].remove_tag(slot_tag(slot));
        let to = self.load.nodes.iter().position(|node| node.name.as_ref() == Some(&owner));
        if let Some(to) = to.filter(|to| *to != from) {
            self.batches[to].add_tag(slot_tag(slot));
        }
    }

    /// Records the latency of `replies` completed replies.
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

    /// Sends the next requests on a free connection, or appends it to the queue for scheduled requests.
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

    /// Sends due requests on the queued connections, evenly distributed.
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
        let node = self.connections[index].node;
        let fresh = Connection::new(node, self.begin_connect(node)?);
        self.watch_new(&fresh.socket, index)?;
        self.connections[index] = fresh;
        Ok(())
    }

    fn flush(&mut self, index: usize) -> Result<(), RunFailure> {
        let connection = &mut self.connections[index];
        if connection.phase == Phase::Connecting {
            return Ok(());
        }
        connection.flush(&mut self.batches[connection.node]).map_err(closed_or_broken)?;
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

/// Returns the requests of a node.
fn batch(load: &Load, node: &NodeLoad) -> Batch {
    let mut batch = Batch::new(&load.mix, load.depth as usize, load.numbers.clone(), load.seed);
    batch.set_tags(node.slots.iter().map(|slot| slot_tag(*slot)).collect());
    batch
}

/// Records a latency of at least one nanosecond, and returns it.
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

/// Returns an error's text without the number that std appends.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
