//! A worker thread's loop. [`EventLoop::run`] reads as the list of its phases; each phase is a method below it.

mod backlog;
mod clock;
mod deliver;
mod departing;
mod lagging;
mod monitors;
mod pending;
mod polling;
mod read;
mod settle;
mod turns;
mod write;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use engine::config::Settings;
use engine::engine::Engine;
use engine::reasons::AWAITED;
use engine::worker::{Ran, Worker};
use journal::order::Position;
use resp::reply::Output;
use resp::request::Input;

use crate::arrived::Arrived;
use crate::busy_turn::{self, BusyTurn};
use crate::connection::{self, Connection, Hold};
use crate::connections::Connections;
use crate::doorway::{Doorway, LISTENERS};
use crate::listener::{Accepted, Listener};
use crate::log;
use crate::mailbox::Mailbox;
use crate::poller::{Epoll, Poller, Ready, TICK};
use crate::primary::Desk;
use crate::spill::Spill;
use crate::tls::handshakes::Handshakes;

use self::clock::Idleness;
use self::lagging::Lagging;
use self::polling::{Permit, Polling, Waited};
use self::read::READ_BYTES;

/// How often expired keys are looked for, instead of at the poller's ticks, while there are more of them, or keys to be
/// evicted, than one look could remove. The shorter it is, the shorter are the looks, for which clients wait; a wake of
/// a thread that sleeps takes some three microseconds.
const BUSY_TICK: Duration = Duration::from_millis(1);
/// Reads that a connection which is being closed may cost in one turn.
const DRAINS_MAX: usize = 16;

/// What the threads of the server share beside the engine.
pub struct Shared {
    /// The engine.
    pub engine: &'static Engine,
    /// Connections accepted for each thread.
    handed_over: Vec<Mailbox<Accepted>>,
    /// Connections that there are, or are being handed over.
    connected: AtomicUsize,
    /// Whether the server is ending.
    stopping: Arc<AtomicBool>,
    /// Sockets that replace those the first thread listens on (CONFIG SET port, bind).
    new_listeners: NewListeners,
    /// The files of replies that wait.
    spill: Spill,
    /// Where connections go that are replicas.
    pub(crate) desk: Arc<Desk>,
    /// Where connections of the TLS port go before a thread has them.
    pub(crate) handshakes: Arc<Handshakes>,
}

/// Sockets that replace those being listened on.
pub type NewListeners = Arc<Mailbox<Vec<Listener>>>;

impl Shared {
    /// What is shared by as many threads as the engine has inboxes.
    #[must_use]
    pub fn new(
        engine: &'static Engine,
        stopping: Arc<AtomicBool>,
        new_listeners: NewListeners,
        spill: Spill,
        desk: Arc<Desk>,
        handshakes: Arc<Handshakes>,
    ) -> Shared {
        Shared {
            engine,
            handed_over: engine.inboxes.iter().map(|_| Mailbox::default()).collect(),
            connected: AtomicUsize::new(0),
            stopping,
            new_listeners,
            spill,
            desk,
            handshakes,
        }
    }

    /// Whether the server is ending.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// The connections that were accepted for a thread.
    pub(crate) fn take_accepted(&self, thread: usize) -> Vec<Accepted> {
        self.handed_over[thread].take()
    }

    /// How many threads there are.
    pub(crate) fn threads(&self) -> usize {
        self.handed_over.len()
    }

    /// Hands a connection, which has been counted, to a worker; `from` is the one that does so, if it is one.
    pub(crate) fn hand_to(&self, accepted: Accepted, from: Option<usize>, to: usize) {
        let was_empty = self.handed_over[to].leave(accepted);
        if from != Some(to) && was_empty {
            self.engine.inboxes[to].wake();
        }
    }

    /// Counts a connection that has left, or one more that is back.
    pub(crate) fn note_leaving(&self, leaves: bool) {
        if leaves {
            self.connected.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.connected.fetch_add(1, Ordering::Relaxed);
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
    /// Where what connections have sent is read to, and what it holds that is still to be run.
    buffer: Box<[u8]>,
    arrived: VecDeque<Arrived>,
    to_write: Vec<usize>,
    /// Memory for the replies of the connection that runs next.
    spare_output: Vec<u8>,
    /// Connections that have something to be read which no poller announces.
    pending: Vec<usize>,
    /// What the connection that has just run was answered, while replies may have to wait for the disk.
    fresh_replies: Output,
    /// How much of the log connections' replies wait for, with the connections.
    unsettled: BinaryHeap<Reverse<(Position, u64)>>,
    /// How often replies were given up that this thread has seen (`Durability::take_given_up`).
    given_up_seen: u64,
    /// Connections that wait until the log has room for what they write.
    log_waiters: Vec<u64>,
    /// The connections that wait for what replicas and the disk have.
    acknowledged_waiters: Vec<u64>,
    /// Connections with a backlog.
    waiting: BTreeSet<usize>,
    /// When clients must have read some of what waits for them, or have it put on disk; see
    /// [`EventLoop::steady_ms`].
    impatient: BinaryHeap<Reverse<(u64, u64)>>,
    /// Connections that wait for a turn while the disk is behind, in order.
    turns: VecDeque<u64>,
    yielded: VecDeque<usize>,
    paused: Vec<usize>,
    /// Connections that wait for room in an inbox for what they publish, in order.
    publishers: VecDeque<u64>,
    /// Subscribers that are behind.
    lagging: Lagging,
    /// When blocking commands run out of time, in microseconds of Unix time, by connection.
    deadlines: BinaryHeap<Reverse<(u64, u64)>>,
    /// Whether the next tick comes early.
    ticks_early: bool,
    /// When the thread last did what needn't happen at each of the ticks that come early.
    looked_around: Instant,
    /// Since the last tick, while memory is being given back.
    idleness: Option<Idleness>,
    polling: Polling,
    /// How the wait before this turn ended.
    waited: Waited,
    /// When the thread began.
    began: Instant,
    /// When this turn began, in microseconds of Unix time.
    turn_began_us: u64,
    /// Seconds of Unix time at which clients' timeouts were last checked.
    timeouts_checked_s: u64,
}

/// A connection that is to run, and the attendant that serves the others meanwhile. A macro, because the loop's fields
/// are borrowed apart.
macro_rules! attended {
    ($event_loop:expr, $key:expr) => {
        $event_loop.connections.apart($key).map(|(connection, others)| {
            let attendant = BusyTurn {
                others,
                poller: &mut $event_loop.poller,
                doorway: &mut $event_loop.doorway,
                arrived: &mut $event_loop.arrived,
                buffer: &$event_loop.buffer,
                yielded: &$event_loop.yielded,
                paused: &mut $event_loop.paused,
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
            buffer: vec![0; read::BUFFER_BYTES].into(),
            arrived: VecDeque::with_capacity(read::GATHERED_MAX),
            to_write: Vec::new(),
            pending: Vec::new(),
            spare_output: Vec::new(),
            fresh_replies: Output::default(),
            unsettled: BinaryHeap::new(),
            given_up_seen: 0,
            log_waiters: Vec::new(),
            acknowledged_waiters: Vec::new(),
            waiting: BTreeSet::new(),
            impatient: BinaryHeap::new(),
            turns: VecDeque::new(),
            yielded: VecDeque::new(),
            paused: Vec::new(),
            publishers: VecDeque::new(),
            lagging: Lagging::default(),
            deadlines: BinaryHeap::new(),
            ticks_early: false,
            looked_around: Instant::now(),
            idleness: None,
            polling: Polling::new(Instant::now()),
            waited: Waited::NotAtAll,
            began: Instant::now(),
            turn_began_us: now_us(),
            timeouts_checked_s: 0,
        })
    }

    /// Serves until the server ends.
    pub fn run(mut self) {
        while !self.shared.stopping.load(Ordering::Acquire) {
            self.wait();
            self.begin_turn();
            self.release_settled();
            self.accept();
            self.adopt();
            self.finish_spills();
            self.give_turns();
            self.read_and_run();
            self.run_yielded();
            // After the turn's commands, so that what they publish to this thread's own connections goes out with it.
            self.deliver_messages();
            self.deliver_pushes();
            self.tick();
            // Last, so that each connection's replies of the whole turn leave with one system call.
            self.write();
            self.worker.end_turn();
        }
        self.worker.begin_turn(now_us());
        self.write();
    }

    fn wait(&mut self) {
        let timeout = self.timeout();
        self.waited = if timeout.is_some_and(|timeout| timeout.is_zero()) {
            self.poll(timeout);
            Waited::NotAtAll
        } else if let Some((permit, now)) = self.polling.permit() {
            self.poll_busily(timeout, now, permit)
        } else {
            self.poll(timeout);
            Waited::Slept
        };
        if !self.pending.is_empty() {
            self.announce_pending();
        }
    }

    /// How long there is nothing to do, if that is known. The poller's tick ends the wait in any case, so that nothing
    /// has to be computed, nor the clock read, in most turns.
    fn timeout(&self) -> Option<Duration> {
        // Roused: in the midst of a script that takes too long, which looks at its others' sockets only.
        if !self.yielded.is_empty()
            || !self.pending.is_empty()
            || self.worker_inbox_filled()
            || self.poller.is_roused()
            || self.has_settled()
        {
            return Some(Duration::ZERO);
        }
        let parked_us = self.deadlines.peek().map(|Reverse((deadline_us, _))| *deadline_us);
        let parked = parked_us.map(|deadline_us| Duration::from_micros(deadline_us.saturating_sub(now_us())));
        let impatient = self.impatient.peek();
        let impatient = impatient.map(|Reverse((due_ms, _))| due_ms.saturating_sub(self.steady_ms()));
        let deadline = parked.into_iter().chain(impatient.map(Duration::from_millis)).min();
        // What they wait for may be written for another thread.
        let turn = (!self.turns.is_empty() || !self.log_waiters.is_empty()).then_some(BUSY_TICK);
        let readers = self.lagging.is_waited_for().then_some(lagging::LOOK_AFTER);
        deadline.into_iter().chain(turn).chain(readers).min()
    }

    fn poll(&mut self, timeout: Option<Duration>) {
        if let Err(error) = self.poller.wait(timeout, &mut self.ready) {
            log::warning(format!("epoll failed: {error}"));
            std::thread::sleep(TICK);
        }
    }

    /// Polls for as long as the configuration allows, then sleeps.
    fn poll_busily(&mut self, timeout: Option<Duration>, began: Instant, permit: Permit) -> Waited {
        let allowed = Duration::from_micros(self.shared.settings().busy_poll_us.get().unsigned_abs());
        let polled = timeout.map_or(allowed, |timeout| timeout.min(allowed));
        let mut waited = None;
        while waited.is_none() && began.elapsed() < polled {
            self.poll(Some(Duration::ZERO));
            if !self.ready.is_empty() || self.worker_inbox_filled() {
                waited = Some(Waited::Polled);
            } else if self.poller.is_roused() {
                // That says nothing of whether polling is worthwhile.
                waited = Some(Waited::NotAtAll);
            }
        }
        if let Some(idleness) = &mut self.idleness {
            idleness.note_polling(began.elapsed());
        }
        if let Some(waited) = waited {
            return waited;
        }
        drop(permit);
        self.poll(timeout.map(|timeout| timeout.saturating_sub(polled)));
        Waited::PolledInVain
    }

    /// Whether the thread's inbox has something that is handed out now.
    fn worker_inbox_filled(&self) -> bool {
        let inbox = &self.shared.engine.inboxes[self.worker.id];
        inbox.is_filled() && (inbox.has_messages() || !self.lagging.is_waited_for())
    }

    fn begin_turn(&mut self) {
        let before_us = std::mem::replace(&mut self.turn_began_us, now_us());
        let passed = Duration::from_micros(self.turn_began_us.saturating_sub(before_us));
        // A tick that comes early says nothing of how long clients are waited for.
        let is_tick = self.waited == Waited::Slept && self.ready.is_empty() && self.ticks_early;
        self.polling.note(if is_tick { Waited::NotAtAll } else { self.waited }, passed, self.ready.len());
        self.poller.take_wake();
        self.worker.begin_turn(self.turn_began_us);
    }

    /// Accepts connections and hands them to the threads in turn.
    fn accept(&mut self) {
        if self.worker.id == 0 {
            // Only the latest count: those before have been replaced.
            if let Some(listeners) = self.shared.new_listeners.take().pop() {
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
        self.note_pending(key);
    }

    /// Adds the connections that have come in while a script took too long.
    #[cold]
    fn add_guests(&mut self) {
        for guest in std::mem::take(&mut self.guests) {
            let (key, hold) = (self.connections.next_key(), guest.hold);
            self.add(guest);
            self.queue_write(key);
            if hold == Hold::Paused {
                self.paused.push(key);
            }
        }
    }

    /// Throws away what a connection sends that is closed once it has its replies.
    fn drain(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        // Not the thread's buffer, which may hold what others have sent.
        let mut thrown_away = vec![0; READ_BYTES];
        for _ in 0..DRAINS_MAX {
            match connection::read(&mut connection.socket, &mut thrown_away) {
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
            Hold::None | Hold::Closing | Hold::Parked | Hold::Unsettled if connection.has_replies() => {
                self.worker.unpark(&mut connection.session);
                connection.hold = Hold::Closing;
                let write = connection.wants_write;
                self.watch(key, false, write);
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

    /// Runs what is in a part of the thread's buffer, and keeps what is left of it for the connection.
    fn run_buffer(&mut self, key: usize, part: Range<usize>) {
        self.catch_up(key);
        self.limit_turn(key);
        let Some((connection, mut attendant)) = attended!(self, key) else { return };
        let bytes = &self.buffer[part];
        let input = Input { bytes, blocks: Connection::blocks(connection.apart.as_deref()) };
        let waits = connection.unsettled.is_some() || self.shared.engine.reasons.has(AWAITED);
        let output = if waits { &mut self.fresh_replies } else { &mut connection.replies.output };
        output.take_spare(&mut self.spare_output);
        let (at, ran) = self.worker.run_attended(&mut attendant, &mut connection.session, input, 0, output);
        connection.keep_rest(bytes, at, ran);
        if at > 0 {
            self.end_disk_turn(key);
        }
        self.after_run(key, ran);
    }

    /// Runs what the connection has kept.
    fn run_input(&mut self, key: usize) {
        self.catch_up(key);
        self.limit_turn(key);
        let Some((connection, mut attendant)) = attended!(self, key) else { return };
        let waits = connection.unsettled.is_some() || self.shared.engine.reasons.has(AWAITED);
        let apart = waits.then_some(&mut self.fresh_replies);
        let (has_run, ran) = connection.run_kept(apart, |session, input, at, output| {
            self.worker.run_attended(&mut attendant, session, input, at, output)
        });
        if has_run {
            self.end_disk_turn(key);
        }
        self.after_run(key, ran);
    }

    fn after_run(&mut self, key: usize, ran: Ran) {
        if !self.guests.is_empty() {
            self.add_guests();
        }
        let depends = self.worker.take_depends();
        if !self.fresh_replies.is_empty() {
            let mut replies = std::mem::take(&mut self.fresh_replies);
            self.take_replies(key, &mut replies, depends);
            self.fresh_replies = replies;
        }
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.note_input(&self.worker);
        if let Some(wanted) = connection.session.departs.take() {
            return self.depart(key, wanted);
        }
        connection.hold = match ran {
            Ran::Idle => Hold::None,
            Ran::Yielded => Hold::Yielded,
            Ran::Parked => Hold::Parked,
            Ran::Paused => Hold::Paused,
            Ran::Overfilled => Hold::Overfilled,
            Ran::AwaitsLog => Hold::AwaitsLog,
            Ran::Closing => Hold::Closing,
        };
        match ran {
            Ran::Yielded => self.yielded.push_back(key),
            Ran::Paused => {
                self.paused.push(key);
                self.tick_early();
            }
            Ran::Overfilled => self.publishers.push_back(connection.session.client.id),
            Ran::AwaitsLog => self.log_waiters.push(connection.session.client.id),
            Ran::Parked => {
                let timeout_ms = connection.session.client.waiter().and_then(|waiter| waiter.wait.timeout_ms);
                // From now on, by a clock that isn't rounded: Redis answers late rather than early, and so must this.
                if let Some(timeout_ms) = timeout_ms {
                    let deadline_us = now_us().saturating_add(timeout_ms.saturating_mul(1000));
                    connection.session.client.set_deadline(deadline_us);
                    let client = connection.session.client.id;
                    self.note_deadline(deadline_us, client);
                }
                self.note_acknowledged_waiter(key);
            }
            Ran::Idle | Ran::Closing => {}
        }
        self.hold_unsettled(key);
        self.queue_or_flush(key);
        self.limit_input(key);
    }

    /// Closes a connection whose requests take too much memory, and has others be closed if all take too much.
    fn limit_input(&mut self, key: usize) {
        self.check_input_limit(key);
        if let Some(connection) = self.connections.get(key) {
            self.worker.note_client_memory(&connection.session.client);
        }
    }

    /// Closes a connection whose requests take too much memory while they wait.
    fn check_input_limit(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        let limit = self.shared.settings().client_query_buffer_limit.get();
        if let Some(bytes) = connection.input_over(limit) {
            connection.log_input_over(bytes, limit);
            self.worker.stats().input_limit_closes.add(1);
            self.close(key);
        }
    }

    /// Goes on with connections that have used up their last turn.
    fn run_yielded(&mut self) {
        for _ in 0..self.yielded.len() {
            let Some(key) = self.yielded.pop_front() else { return };
            if self.connections.get(key).is_some_and(|c| c.hold == Hold::Yielded) && self.may_run(key) {
                self.run_input(key);
            }
        }
    }

    fn close(&mut self, key: usize) {
        self.forget_backlog(key);
        let Some(mut connection) = self.connections.try_remove(key) else { return };
        if connection.replies.is_spilling() || connection.replies.take_file_is_done() {
            self.shared.spill.end(self.worker.id, connection.session.client.id);
        }
        self.poller.remove(connection.socket.as_fd());
        self.by_client.remove(&connection.session.client.id);
        // Before the socket is closed, which is at the end: the peer may tell others.
        connection.leave(&mut self.worker, &self.shared);
    }
}

/// Microseconds of Unix time.
#[must_use]
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}
