//! A worker thread's loop. [`EventLoop::run`] reads as the list of its phases; each phase is a method below it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::client::client_flag;
use engine::config::{ClientClass, Settings};
use engine::engine::Engine;
use engine::inbox::{Message, Push};
use engine::worker::{Ran, Worker};

use crate::busy_turn::{self, BusyTurn};
use crate::connection::{self, Connection, Hold, Sent};
use crate::connections::Connections;
use crate::doorway::{Doorway, LISTENERS};
use crate::listener::{Accepted, Listener};
use crate::log;
use crate::poller::{Epoll, Poller, Ready};

/// Bytes that are read from a socket at once, into the thread's own buffer: with the tables of a batch it has to stay
/// in the second-level cache.
const READ_BYTES: usize = 64 * 1024;
/// Bytes of an incomplete request from which on more is read to its end, instead of copying it in front of the
/// thread's buffer.
const READ_IN_PLACE_BYTES: usize = 16 * 1024;
/// How often expired keys are looked for and clients' timeouts checked.
const TICK: Duration = Duration::from_millis(100);
/// The same while there are more expired keys, or keys to be evicted, than one look could remove.
const BUSY_TICK: Duration = Duration::from_millis(4);
/// How long one look for expired keys may take, in microseconds: others wait for as long.
const RECLAIM_US: f64 = 1000.0;
/// Reads that a connection which is being closed may cost in one turn.
const DRAINS_MAX: usize = 16;
/// Deadlines that may be noted beyond twice the connections, before those of waits that have ended are removed.
const DEADLINES_SLACK: usize = 64;
/// What the threads of the server share beside the engine.
pub struct Shared {
    /// The engine.
    pub engine: &'static Engine,
    /// Connections accepted for each thread.
    handed_over: Vec<Mutex<Vec<Accepted>>>,
    /// Connections that there are, or are being handed over.
    connected: AtomicUsize,
    /// Whether the server is ending.
    stopping: Arc<AtomicBool>,
    /// Sockets that replace those the first thread listens on (CONFIG SET port, bind).
    new_listeners: NewListeners,
}

/// Sockets that replace those being listened on.
pub type NewListeners = Arc<Mutex<Option<Vec<Listener>>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is always whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// What is shared by as many threads as the engine has inboxes.
    #[must_use]
    pub fn new(engine: &'static Engine, stopping: Arc<AtomicBool>, new_listeners: NewListeners) -> Shared {
        Shared {
            engine,
            handed_over: engine.inboxes.iter().map(|_| Mutex::default()).collect(),
            connected: AtomicUsize::new(0),
            stopping,
            new_listeners,
        }
    }

    /// The connections that were accepted for a thread.
    pub(crate) fn take_accepted(&self, thread: usize) -> Vec<Accepted> {
        std::mem::take(&mut *lock(&self.handed_over[thread]))
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.handed_over.len()
    }

    /// Counts a connection, and hands it to a thread.
    pub(crate) fn hand_over(&self, accepted: Accepted, from: usize, to: usize) {
        self.connected.fetch_add(1, Ordering::Relaxed);
        lock(&self.handed_over[to]).push(accepted);
        if to != from {
            self.engine.inboxes[to].wake();
        }
    }

    /// How many connections there are, or are being handed over.
    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    pub(crate) fn settings(&self) -> &'static Settings {
        &self.engine.settings
    }
}

/// See the module's documentation.
pub struct EventLoop {
    shared: Arc<Shared>,
    worker: Worker,
    poller: Epoll,
    ready: Vec<Ready>,
    doorway: Doorway,
    connections: Connections,
    /// Those that have come in while a script takes too long.
    guests: Vec<Connection>,
    by_client: HashMap<u64, usize>,
    buffer: Box<[u8]>,
    to_write: Vec<usize>,
    yielded: VecDeque<usize>,
    paused: Vec<usize>,
    /// When blocking commands run out of time, by connection.
    deadlines: BinaryHeap<Reverse<(u64, u64)>>,
    next_tick: Instant,
    /// Seconds of Unix time at which clients' timeouts were last checked.
    timeouts_checked_s: u64,
}

/// A connection that is to run, and who looks after the others meanwhile. A macro, because the loop's fields are borrowed
/// apart.
macro_rules! attended {
    ($event_loop:expr, $key:expr) => {
        $event_loop.connections.apart($key).map(|(connection, others)| {
            let attendant = BusyTurn {
                others,
                poller: &mut $event_loop.poller,
                doorway: &mut $event_loop.doorway,
                guests: &mut $event_loop.guests,
                to_write: &mut $event_loop.to_write,
                shared: &$event_loop.shared,
            };
            (connection, attendant)
        })
    };
}

impl EventLoop {
    /// The loop of a worker. The first one gets the listeners.
    pub fn new(
        shared: Arc<Shared>,
        worker: Worker,
        poller: Epoll,
        listeners: Vec<Listener>,
    ) -> std::io::Result<EventLoop> {
        for (i, listener) in listeners.iter().enumerate() {
            poller.add(listener.as_fd(), LISTENERS + i as u64)?;
        }
        Ok(EventLoop {
            shared,
            worker,
            poller,
            ready: Vec::new(),
            doorway: Doorway::new(listeners),
            connections: Connections::default(),
            guests: Vec::new(),
            by_client: HashMap::new(),
            buffer: vec![0; READ_BYTES].into(),
            to_write: Vec::new(),
            yielded: VecDeque::new(),
            paused: Vec::new(),
            deadlines: BinaryHeap::new(),
            next_tick: Instant::now(),
            timeouts_checked_s: 0,
        })
    }

    /// Serves until the server ends.
    pub fn run(mut self) {
        while !self.shared.stopping.load(Ordering::Acquire) {
            self.wait();
            self.begin_turn();
            self.accept();
            self.adopt();
            self.read_and_run();
            self.run_yielded();
            // After the turn's commands, so that what they publish to this thread's own connections goes out with it.
            self.deliver();
            self.tick();
            // Last, so that each connection's replies of the whole turn leave with one system call.
            self.write();
        }
        self.worker.begin_turn(now_us());
        self.write();
    }

    fn wait(&mut self) {
        let mut timeout = self.next_tick.saturating_duration_since(Instant::now());
        if let Some(Reverse((deadline_ms, _))) = self.deadlines.peek() {
            let left_ms = deadline_ms.saturating_sub(now_us() / 1000);
            // A millisecond's part is still to pass when the difference is rounded to 0.
            timeout = timeout.min(Duration::from_millis(left_ms.max(1)));
        }
        let busy = !self.yielded.is_empty() || self.worker_inbox_filled();
        if busy {
            timeout = Duration::ZERO;
        }
        if let Err(error) = self.poller.wait(timeout, &mut self.ready) {
            log::warning(format!("epoll failed: {error}"));
            std::thread::sleep(TICK);
        }
    }

    fn worker_inbox_filled(&self) -> bool {
        self.shared.engine.inboxes[self.worker.id].is_filled()
    }

    fn begin_turn(&mut self) {
        self.worker.begin_turn(now_us());
    }

    /// Accepts connections and hands them to the threads in turn.
    fn accept(&mut self) {
        if self.worker.id == 0 {
            let new = lock(&self.shared.new_listeners).take();
            if let Some(listeners) = new {
                self.doorway.replace(listeners, &self.poller);
            }
        }
        self.doorway.accept(&self.ready, &self.worker, &self.shared);
    }

    /// Takes the connections that were accepted for this thread.
    fn adopt(&mut self) {
        for accepted in self.shared.take_accepted(self.worker.id) {
            let connection = busy_turn::open(accepted, &mut self.worker, &self.shared);
            self.add(connection);
        }
    }

    fn add(&mut self, connection: Connection) {
        let added = self.poller.add(connection.socket.as_fd(), self.connections.next_key() as u64);
        let client = connection.session.client.id;
        let key = self.connections.insert(connection);
        self.by_client.insert(client, key);
        if let Err(error) = added {
            log::warning(format!("can't watch a connection: {error}"));
            self.close(key);
        }
    }

    /// Adds the connections that have come in while a script took too long.
    #[cold]
    fn add_guests(&mut self) {
        for guest in std::mem::take(&mut self.guests) {
            let key = self.connections.next_key();
            self.add(guest);
            self.queue_write(key);
        }
    }

    /// Reads what has arrived, once from each connection, and runs it.
    fn read_and_run(&mut self) {
        for i in 0..self.ready.len() {
            let Ready { token, read, write } = self.ready[i];
            if token >= LISTENERS {
                continue;
            }
            let key = token as usize;
            if write && self.connections.contains(key) {
                self.queue_write(key);
            }
            if read {
                self.read(key);
            }
        }
    }

    fn read(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.hold {
            Hold::Closing => return self.drain(key),
            // It has enough to run. The rest waits in the kernel, and so does the news that it was the last.
            Hold::Yielded => return,
            Hold::None | Hold::Parked | Hold::Paused => {}
        }
        let runs = connection.hold == Hold::None;
        let have = connection.input.len();
        let result = if runs && have < READ_IN_PLACE_BYTES {
            // Into the thread's buffer, after the beginning of the request that was left last time.
            self.buffer[..have].copy_from_slice(&connection.input);
            connection::read(&connection.socket, &mut self.buffer[have..])
        } else {
            connection.input.reserve(have.max(READ_BYTES));
            connection::read_more(&connection.socket, &mut connection.input)
        };
        let stats = self.worker.stats();
        stats.reads.add(1);
        let count = match result {
            Ok(None) => return,
            Ok(Some(count @ 1..)) => count,
            Ok(Some(0)) => return self.input_ended(key),
            // The peer has broken the connection; nobody is left to answer.
            Err(_) => return self.close(key),
        };
        stats.net_in.add(count as u64);
        let client = &connection.session.client;
        client.active_ms.store(self.worker.clock.now_ms, Ordering::Relaxed);
        client.net_bytes[0].fetch_add(count as u64, Ordering::Relaxed);
        if !runs {
            return self.check_input_limit(key);
        }
        // Before what has just been read is run: whoever sends a command because of something that was published
        // gets to see that first.
        self.deliver();
        if have < READ_IN_PLACE_BYTES { self.run_buffer(key, have + count) } else { self.run_input(key) }
    }

    /// Throws away what a connection sends that is closed once it has its replies.
    fn drain(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        for _ in 0..DRAINS_MAX {
            match connection::read(&connection.socket, &mut self.buffer) {
                Ok(Some(1..)) => {}
                Ok(None) => return,
                Ok(Some(0)) => return self.input_ended(key),
                Err(_) => return self.close(key),
            }
        }
    }

    /// The peer sends nothing more. It may well read on (`printf 'PING\r\n' | nc -N`): the requests that it has sent
    /// are run, and their replies sent, before the connection is closed. A blocking command that finds nothing is not
    /// waited for.
    fn input_ended(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.hold {
            // The end is seen again when the requests have run.
            Hold::Yielded => {}
            Hold::None | Hold::Closing if !connection.output.is_empty() => {
                connection.hold = Hold::Closing;
                connection.wants_write = true;
                if self.poller.only_write(connection.socket.as_fd(), key as u64).is_err() {
                    self.close(key);
                }
            }
            _ => self.close(key),
        }
    }

    /// Closes a connection that has been sent all its replies. What it has sent meanwhile is read first: the kernel
    /// would answer unread bytes with a reset, which can overtake the replies.
    fn close_drained(&mut self, key: usize) {
        self.drain(key);
        self.close(key);
    }

    /// Runs what is in the thread's buffer, and keeps what is left of it for the connection.
    fn run_buffer(&mut self, key: usize, filled: usize) {
        let Some((connection, mut attendant)) = attended!(self, key) else { return };
        let buffer = &self.buffer[..filled];
        let output = &mut connection.output;
        let (at, ran) = self.worker.run_attended(&mut attendant, &mut connection.session, buffer, 0, output);
        connection.input.clear();
        connection.input.extend_from_slice(&buffer[at..]);
        self.after_run(key, ran);
    }

    /// Runs what the connection has kept.
    fn run_input(&mut self, key: usize) {
        let Some((connection, mut attendant)) = attended!(self, key) else { return };
        let input = std::mem::take(&mut connection.input);
        let (session, output) = (&mut connection.session, &mut connection.output);
        let (at, ran) = self.worker.run_attended(&mut attendant, session, &input, connection.input_run, output);
        connection.input = input;
        connection.drop_input(at, ran == Ran::Idle);
        self.after_run(key, ran);
    }

    fn after_run(&mut self, key: usize, ran: Ran) {
        if !self.guests.is_empty() {
            self.add_guests();
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        let client = &connection.session.client;
        client.input_bytes.store(connection.input_left() as u64, Ordering::Relaxed);
        client.input_free_bytes.store((connection.input.capacity() - connection.input.len()) as u64, Ordering::Relaxed);
        connection.hold = match ran {
            Ran::Idle => Hold::None,
            Ran::Yielded => Hold::Yielded,
            Ran::Parked => Hold::Parked,
            Ran::Paused => Hold::Paused,
            Ran::Closing => Hold::Closing,
        };
        match ran {
            Ran::Yielded => self.yielded.push_back(key),
            Ran::Paused => {
                self.paused.push(key);
                self.next_tick = self.next_tick.min(Instant::now() + BUSY_TICK);
            }
            Ran::Parked => {
                let deadline = connection.session.parked.as_ref().and_then(|w| w.wait.deadline_ms);
                if let Some(deadline_ms) = deadline {
                    let client = client.id;
                    self.note_deadline(deadline_ms, client);
                }
            }
            Ran::Idle | Ran::Closing => {}
        }
        self.queue_write(key);
        self.check_input_limit(key);
    }

    /// Closes a connection whose requests take too much memory while they wait.
    fn check_input_limit(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        let limit = self.shared.settings().client_query_buffer_limit.get();
        // What a transaction has queued waits as well.
        let queued = connection.session.multi.as_ref().map_or(0, |multi| multi.bytes);
        let bytes = connection.input_left().saturating_add(queued);
        if bytes as u64 > limit {
            log::warning(format!(
                "Closing client that reached max query buffer length: id={} addr={} qbuf={bytes} (client-query-buffer-limit {limit})",
                connection.session.client.id, connection.session.client.addr,
            ));
            self.close(key);
        }
    }

    /// Goes on with connections that have used up their last turn.
    fn run_yielded(&mut self) {
        for _ in 0..self.yielded.len() {
            let Some(key) = self.yielded.pop_front() else { return };
            if self.connections.get(key).is_some_and(|c| c.hold == Hold::Yielded) {
                self.run_input(key);
            }
        }
    }

    /// Hands out what other connections have for those of this thread.
    fn deliver(&mut self) {
        let inbox = &self.shared.engine.inboxes[self.worker.id];
        if !inbox.is_filled() {
            return;
        }
        // Commands run after all messages are handed out: UNSUBSCRIBE has to find what is still to come in the inbox.
        let mut unparked = Vec::new();
        let mut look = false;
        for message in inbox.take() {
            match message {
                Message::Push(push) => self.push(&push),
                Message::Unpark { client, mut output } => unparked.extend(self.unpark(client, &mut output)),
                Message::Close { client } => {
                    if let Some(&key) = self.by_client.get(&client) {
                        self.close(key);
                    }
                }
                Message::Look => look = true,
            }
        }
        for client in unparked {
            if let Some(&key) = self.by_client.get(&client) {
                self.go_on(key);
            }
        }
        if look {
            self.run_paused();
        }
    }

    fn push(&mut self, push: &Push) {
        for client in push.clients.iter() {
            let Some(&key) = self.by_client.get(client) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            // After the last reply of a connection, nothing more is said.
            if connection.session.awaits(push) && connection.hold != Hold::Closing {
                connection.output.extend_shared(push.bytes.clone());
                self.queue_write(key);
                self.check_output_limit(key);
            }
        }
    }

    /// Gives a parked connection its reply; it can go on with the rest of its batch.
    fn unpark(&mut self, client: u64, reply: &mut resp::reply::Output) -> Option<u64> {
        let connection = self.connections.get_mut(*self.by_client.get(&client)?)?;
        self.worker.resume(&mut connection.session, reply, &mut connection.output);
        Some(client)
    }

    fn go_on(&mut self, key: usize) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.hold = Hold::None;
        }
        self.run_input(key);
    }

    fn run_paused(&mut self) {
        for key in std::mem::take(&mut self.paused) {
            if self.connections.get(key).is_some_and(|c| c.hold == Hold::Paused) {
                self.go_on(key);
            }
        }
    }

    /// What happens by the clock: blocking commands that run out of time, expired keys, idle clients.
    fn tick(&mut self) {
        self.time_out();
        let now = Instant::now();
        if now < self.next_tick {
            return;
        }
        let more = self.worker.reclaim_expired(RECLAIM_US) | self.worker.relieve_memory();
        self.next_tick = now + if more { BUSY_TICK } else { TICK };
        self.end_pause();
        self.close_idle();
        if self.worker.id == 0 {
            self.shared.engine.sample(self.worker.clock.now_ms);
        }
    }

    fn note_deadline(&mut self, deadline_ms: u64, client: u64) {
        self.deadlines.push(Reverse((deadline_ms, client)));
        if self.deadlines.len() > 2 * self.connections.len() + DEADLINES_SLACK {
            let (connections, by_client, now_ms) = (&self.connections, &self.by_client, self.worker.clock.now_ms);
            let due = |client: &u64| {
                let waiter = connections.get(*by_client.get(client)?)?.session.parked.as_ref()?;
                waiter.wait.deadline_ms
            };
            // One that is overdue is noted for a later moment than its own.
            let counts = |noted_ms, due_ms| due_ms == noted_ms || due_ms <= now_ms;
            self.deadlines.retain(|Reverse((noted_ms, client))| due(client).is_some_and(|due| counts(*noted_ms, due)));
        }
    }

    fn time_out(&mut self) {
        let now_ms = self.worker.clock.now_ms;
        while let Some(&Reverse((deadline_ms, client))) = self.deadlines.peek() {
            if deadline_ms > now_ms {
                return;
            }
            self.deadlines.pop();
            let Some(&key) = self.by_client.get(&client) else { continue };
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let due = connection.session.parked.as_ref().and_then(|w| w.wait.deadline_ms);
            // The deadline may be that of an earlier wait.
            if due.is_none_or(|due| due > now_ms) {
                continue;
            }
            if self.worker.time_out(&mut connection.session, &mut connection.output) {
                self.go_on(key);
            } else {
                // Somebody is just serving it, or finding that there is nothing after all: look again.
                self.deadlines.push(Reverse((now_ms + 1, client)));
            }
        }
    }

    fn end_pause(&mut self) {
        let engine = self.shared.engine;
        let until_ms = engine.paused_until_ms.load(Ordering::Relaxed);
        if until_ms != 0 && until_ms <= self.worker.clock.now_ms {
            let _ = engine.paused_until_ms.compare_exchange(until_ms, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        if !self.paused.is_empty() {
            if engine.is_held_up() { self.next_tick = Instant::now() + BUSY_TICK } else { self.run_paused() }
        }
    }

    /// Closes connections that have been silent for longer than `timeout`.
    fn close_idle(&mut self) {
        let (now_ms, limit_s) = (self.worker.clock.now_ms, self.shared.settings().timeout_s.get());
        let now_s = now_ms / 1000;
        if limit_s <= 0 || now_s == self.timeouts_checked_s {
            return;
        }
        self.timeouts_checked_s = now_s;
        let idle = |c: &Connection| {
            let client = &c.session.client;
            let exempt = client_flag::BLOCKED | client_flag::PUBSUB | client_flag::MONITOR;
            let active_ms = client.active_ms.load(Ordering::Relaxed);
            !client.has(exempt) && now_ms.saturating_sub(active_ms) > (limit_s as u64).saturating_mul(1000)
        };
        let keys: Vec<usize> = self.connections.iter().filter(|(_, c)| idle(c)).map(|(key, _)| key).collect();
        keys.into_iter().for_each(|key| self.close(key));
    }

    fn queue_write(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let due = !connection.output.is_empty() || connection.hold == Hold::Closing;
        if due && !connection.in_write_list {
            connection.in_write_list = true;
            self.to_write.push(key);
        }
    }

    /// Sends every connection's replies.
    fn write(&mut self) {
        for key in std::mem::take(&mut self.to_write) {
            let Some(connection) = self.connections.get_mut(key) else { continue };
            connection.in_write_list = false;
            let (sent, bytes, calls) = connection.send();
            let stats = self.worker.stats();
            stats.net_out.add(bytes as u64);
            stats.writes.add(calls as u64);
            let client = &connection.session.client;
            client.net_bytes[1].fetch_add(bytes as u64, Ordering::Relaxed);
            client.output_bytes.store(connection.output.len() as u64, Ordering::Relaxed);
            client.output_segments.store(connection.output.segments() as u64, Ordering::Relaxed);
            match sent {
                Sent::Broken => self.close(key),
                Sent::All if connection.hold == Hold::Closing => self.close_drained(key),
                Sent::All => self.want_write(key, false),
                Sent::Some => {
                    self.want_write(key, true);
                    self.check_output_limit(key);
                }
            }
        }
    }

    fn want_write(&mut self, key: usize, write: bool) {
        let Some(connection) = self.connections.get(key) else { return };
        if connection.wants_write != write {
            let read = connection.wants_read;
            self.watch(key, read, write);
        }
    }

    fn watch(&mut self, key: usize, read: bool, write: bool) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        (connection.wants_read, connection.wants_write) = (read, write);
        if let Err(error) = self.poller.watch(connection.socket.as_fd(), key as u64, read, write) {
            log::warning(format!("can't watch a connection: {error}"));
            self.close(key);
        }
    }

    /// Closes a connection that doesn't read its replies (client-output-buffer-limit).
    fn check_output_limit(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let client = &connection.session.client;
        let class = if client.has(client_flag::PUBSUB) { ClientClass::PubSub } else { ClientClass::Normal };
        let limit = self.shared.settings().client_output_buffer_limit.get(class);
        let bytes = connection.output.len() as u64;
        let now_ms = self.worker.clock.now_ms;
        let over = |limit: u64| limit > 0 && bytes > limit;
        let since = if over(limit.soft_bytes) { connection.over_soft_limit_since_ms.or(Some(now_ms)) } else { None };
        connection.over_soft_limit_since_ms = since;
        let too_long =
            since.is_some_and(|since| now_ms.saturating_sub(since) > limit.soft_seconds.saturating_mul(1000));
        if over(limit.hard_bytes) || too_long {
            log::warning(format!(
                "Client id={} addr={} scheduled to be closed ASAP for overcoming of output buffer limits (omem={bytes})",
                client.id, client.addr
            ));
            self.worker.stats().output_limit_closes.add(1);
            self.close(key);
        }
    }

    fn close(&mut self, key: usize) {
        let Some(mut connection) = self.connections.try_remove(key) else { return };
        self.poller.remove(connection.socket.as_fd());
        self.by_client.remove(&connection.session.client.id);
        self.worker.close(&mut connection.session);
        self.shared.connected.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Microseconds of Unix time.
#[must_use]
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}
