//! A worker thread's loop. [`EventLoop::run`] reads as the list of its phases; each phase is a method below it.

mod backlog;
mod batches;
mod clock;
mod deferred_replies;
mod deliver;
mod forwarding;
mod handoff;
mod lagging;
mod monitors;
mod pending;
mod polling;
mod read;
mod turns;
mod write;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::clients::progress::Progress;
use engine::slow_path::AWAITED;
use engine::worker::Worker;
use journal::order::Position;
use resp::reply::Output;

use crate::acceptor::{Acceptor, LISTENERS};
use crate::busy_turn::{self, BusyTurn};
use crate::connection::{self, Connection};
use crate::connections::Connections;
use crate::forward::Links;
use crate::listener::Listener;
use crate::log;
use crate::pending_input::PendingInput;
use crate::poller::{Epoll, Poller, Ready, TICK};
use crate::process;
use crate::shared::Shared;
use crate::time::now_us;

use self::clock::Idleness;
use self::lagging::Lagging;
use self::polling::{Permit, Polling, Waited};
use self::read::READ_BYTES;

/// The tick while more keys are expired, or due for eviction, than one pass could remove. A shorter tick makes shorter passes, during which
/// clients are delayed. A wake-up of a sleeping thread costs some three microseconds.
const BUSY_TICK: Duration = Duration::from_millis(1);
/// Reads from a closing connection in one turn.
const DRAINS_MAX: usize = 16;

/// The loop of one worker thread, and its connections.
pub struct EventLoop {
    shared: Arc<Shared>,
    worker: Worker,
    poller: Epoll,
    ready: Vec<Ready>,
    acceptor: Acceptor,
    connections: Connections,
    /// Connections accepted during a script that takes too long.
    accepted_during_script: Vec<Connection>,
    by_client: HashMap<u64, usize>,
    /// The buffer for received bytes, and a queue of its parts that have not run.
    buffer: Box<[u8]>,
    arrived: VecDeque<PendingInput>,
    to_write: Vec<usize>,
    /// Memory for the replies of the next connection.
    spare_output: Vec<u8>,
    /// Connections with unread input that no poller announces.
    pending: Vec<usize>,
    /// The replies of the connection that has just run, while replies may depend on the disk.
    fresh_replies: Output,
    /// The log positions that held replies depend on, with the connections.
    deferred: BinaryHeap<Reverse<(Position, u64)>>,
    /// The number of give-ups that this thread has seen (`Durability::take_given_up`).
    given_up_seen: u64,
    /// Connections held until the log has room for their writes.
    log_waiters: Vec<u64>,
    /// The connections that wait for acknowledgements of replicas and the disk.
    acknowledged_waiters: Vec<u64>,
    /// Connections with a backlog.
    waiting: BTreeSet<usize>,
    /// Ends of grace periods. By then a client must have read some of its replies, or they go to disk; see [`EventLoop::steady_ms`].
    grace_ends: BinaryHeap<Reverse<(u64, u64)>>,
    /// Connections queued for a turn while the disk is behind.
    turns: VecDeque<u64>,
    yielded: VecDeque<usize>,
    paused: Vec<usize>,
    /// Connections queued for room in an inbox for their published messages.
    publishers: VecDeque<u64>,
    /// Subscribers that are behind.
    lagging: Lagging,
    /// Deadlines of blocking commands, in microseconds of Unix time, by connection.
    deadlines: BinaryHeap<Reverse<(u64, u64)>>,
    /// True if the next tick is early.
    ticks_early: bool,
    /// Its links to other nodes of the cluster, for forwarded commands.
    links: Links,
    /// Time of the last work that is not due at every early tick.
    last_cron: Instant,
    /// Measured since the last tick, while memory is compacted or a snapshot walked.
    idleness: Option<Idleness>,
    polling: Polling,
    /// How the wait before this turn ended.
    waited: Waited,
    /// Start of the thread.
    began: Instant,
    /// Start of this turn, in microseconds of Unix time.
    turn_began_us: u64,
    /// Unix time of the last check of client timeouts, in seconds.
    timeouts_checked_s: u64,
}

/// A connection that is about to run, and the busy-script handler that serves the others meanwhile. A macro, because it borrows the loop's
/// fields separately.
macro_rules! with_busy_handler {
    ($event_loop:expr, $key:expr) => {
        $event_loop.connections.split_at($key).map(|(connection, others)| {
            let busy_script_handler = BusyTurn {
                others,
                poller: &mut $event_loop.poller,
                acceptor: &mut $event_loop.acceptor,
                arrived: &mut $event_loop.arrived,
                buffer: &$event_loop.buffer,
                yielded: &$event_loop.yielded,
                paused: &mut $event_loop.paused,
                accepted_during_script: &mut $event_loop.accepted_during_script,
                to_write: &mut $event_loop.to_write,
                shared: &$event_loop.shared,
            };
            (connection, busy_script_handler)
        })
    };
}

impl EventLoop {
    /// Returns the loop of a worker. The first worker gets the listeners.
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
            acceptor: Acceptor::new(listeners),
            connections: Connections::default(),
            accepted_during_script: Vec::new(),
            by_client: HashMap::new(),
            buffer: vec![0; read::BUFFER_BYTES].into(),
            arrived: VecDeque::with_capacity(read::GATHERED_MAX),
            to_write: Vec::new(),
            pending: Vec::new(),
            spare_output: Vec::new(),
            fresh_replies: Output::default(),
            deferred: BinaryHeap::new(),
            given_up_seen: 0,
            log_waiters: Vec::new(),
            acknowledged_waiters: Vec::new(),
            waiting: BTreeSet::new(),
            grace_ends: BinaryHeap::new(),
            turns: VecDeque::new(),
            yielded: VecDeque::new(),
            paused: Vec::new(),
            publishers: VecDeque::new(),
            lagging: Lagging::default(),
            deadlines: BinaryHeap::new(),
            ticks_early: false,
            links: Links::default(),
            last_cron: Instant::now(),
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
            self.serve_links();
            self.read_and_run();
            self.run_yielded();
            // After the turn's commands: their messages to this thread's own connections are delivered in the same turn.
            self.deliver_messages();
            self.deliver_pushes();
            self.tick();
            self.send_forwarded();
            // Last: one system call per connection sends the replies of the whole turn.
            self.write();
            self.worker.end_turn();
        }
        self.worker.begin_turn(now_us());
        self.write();
    }

    fn wait(&mut self) {
        self.waited =
            if self.links.has_to_send() && self.has_more_input() { Waited::NotAtAll } else { self.wait_for_work() };
        if !self.pending.is_empty() {
            self.announce_pending();
        }
    }

    /// Waits for the next work.
    fn wait_for_work(&mut self) -> Waited {
        let timeout = self.timeout();
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            self.poll(timeout);
            Waited::NotAtAll
        } else if let Some((permit, now)) = self.polling.permit() {
            self.poll_busily(timeout, now, permit)
        } else {
            self.poll(timeout);
            Waited::Slept
        }
    }

    /// Returns the time until the next work, if known. The poller's tick ends the wait in any case. Most turns therefore compute nothing
    /// and don't read the clock.
    fn timeout(&self) -> Option<Duration> {
        // The poller may have been roused during a script that took too long: only the other connections' sockets were served then.
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
        let grace_ends = self.grace_ends.peek();
        let grace_ends = grace_ends.map(|Reverse((due_ms, _))| due_ms.saturating_sub(self.steady_ms()));
        let deadline = parked.into_iter().chain(grace_ends.map(Duration::from_millis)).min();
        // Another thread may have written the data that these connections wait for.
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

    /// Polls within the configured time, then sleeps.
    fn poll_busily(&mut self, timeout: Option<Duration>, began: Instant, permit: Permit) -> Waited {
        let allowed = Duration::from_micros(self.shared.settings().busy_poll_us.get().unsigned_abs());
        let polled = timeout.map_or(allowed, |timeout| timeout.min(allowed));
        let mut waited = None;
        while waited.is_none() && began.elapsed() < polled {
            self.poll(Some(Duration::ZERO));
            if !self.ready.is_empty() || self.worker_inbox_filled() {
                waited = Some(Waited::Polled);
            } else if self.poller.is_roused() {
                // A tick or the waker ended the wait, which tells nothing about polling.
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

    /// Returns true if the thread's inbox has messages or pushes to deliver now.
    fn worker_inbox_filled(&self) -> bool {
        let inbox = &self.shared.engine.inboxes[self.worker.id];
        inbox.is_filled() && (inbox.has_messages() || !self.lagging.is_waited_for())
    }

    fn begin_turn(&mut self) {
        // Before the clock is read: a process may be stopped in a system call.
        self.poller.take_wake();
        let before_us = std::mem::replace(&mut self.turn_began_us, now_us());
        let passed = Duration::from_micros(self.turn_began_us.saturating_sub(before_us));
        // An early tick tells nothing about the time until clients send.
        let is_tick = self.waited == Waited::Slept && self.ready.is_empty() && self.ticks_early;
        self.polling.note(if is_tick { Waited::NotAtAll } else { self.waited }, passed, self.ready.len());
        self.worker.begin_turn(self.turn_began_us);
        self.look_at_load();
    }

    /// Tells the advisor if threads wait for a core while a client's request is here.
    fn look_at_load(&mut self) {
        if !self.ready.is_empty() {
            self.worker.look_at_load(self.turn_began_us * 1000, process::load_average);
        }
    }

    /// Accepts connections and hands them to the threads in turn.
    fn accept(&mut self) {
        if self.worker.id == 0 {
            // Only the latest listeners: they replace all earlier ones.
            if let Some(listeners) = self.shared.new_listeners.take().pop() {
                self.acceptor.replace(listeners, &self.poller);
            }
        }
        self.acceptor.accept(&self.ready, &self.worker, &self.shared);
    }

    /// Adopts the connections that were accepted for this thread.
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

    /// Adds the connections accepted during a script that took too long.
    #[cold]
    fn add_accepted_during_script(&mut self) {
        for connection in std::mem::take(&mut self.accepted_during_script) {
            let (key, progress) = (self.connections.next_key(), connection.progress);
            self.add(connection);
            self.queue_write(key);
            if progress == Progress::Paused {
                self.paused.push(key);
            }
        }
    }

    /// Discards the input of a connection that is closed after its replies.
    fn drain(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        // Not the thread's buffer, which may hold the input of others.
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

    /// Handles the end of the peer's input. The peer may still read (`printf 'PING\r\n' | nc -N`): its requests run, and the connection is
    /// closed after their replies. A blocking command ends at once.
    fn input_ended(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        match connection.progress {
            // The end is seen again after the requests have run.
            Progress::Yielded => {}
            Progress::Ready | Progress::Closing | Progress::Parked | Progress::AwaitsDisk | Progress::AwaitsNodes
                if connection.has_replies() =>
            {
                self.worker.unpark(&mut connection.session);
                connection.progress = Progress::Closing;
                let write = connection.wants_write;
                self.watch(key, false, write);
            }
            _ => self.close(key),
        }
    }

    /// Closes a connection whose replies are sent. Its unread input is discarded first: the kernel would answer unread bytes with a reset,
    /// which can overtake the replies.
    fn close_drained(&mut self, key: usize) {
        self.drain(key);
        self.close(key);
    }

    /// Runs a connection's requests: those in a part of the thread's buffer, or else those that the connection has kept. The connection
    /// keeps the unrun rest.
    fn run_input(&mut self, key: usize, part: Option<Range<usize>>) {
        self.catch_up(key);
        self.limit_turn(key);
        let Some((connection, mut busy_script_handler)) = with_busy_handler!(self, key) else { return };
        let may_forward = self.shared.engine.forwards();
        connection.session.forwarding.is_possible = may_forward;
        let are_held = connection.deferred.is_some() || may_forward || self.shared.engine.slow_path.has(AWAITED);
        let held_replies = are_held.then_some(&mut self.fresh_replies);
        let received = part.map(|part| &self.buffer[part]);
        let (has_run, progress) = connection.run_requests(received, held_replies, |session, input, at, output| {
            output.take_spare(&mut self.spare_output);
            self.worker.run_attended(&mut busy_script_handler, session, input, at, output)
        });
        if has_run {
            self.end_disk_turn(key);
        }
        self.after_run(key, progress);
    }

    fn after_run(&mut self, key: usize, progress: Progress) {
        if !self.accepted_during_script.is_empty() {
            self.add_accepted_during_script();
        }
        let durable_after = self.worker.take_durable_after();
        if let Some(forwarded) = self.worker.take_forwarded() {
            let mut replies = std::mem::take(&mut self.fresh_replies);
            self.take_spliced(key, forwarded, &mut replies, durable_after);
            self.fresh_replies = replies;
        } else if !self.fresh_replies.is_empty() {
            let mut replies = std::mem::take(&mut self.fresh_replies);
            self.take_replies(key, &mut replies, durable_after);
            self.fresh_replies = replies;
        }
        self.end_tokens(key);
        let Some(connection) = self.connections.get_mut(key) else { return };
        batches::place(connection);
        connection.note_input(&self.worker);
        if let Some(wanted) = connection.session.departs.take() {
            return self.depart(key, wanted);
        }
        if let Some(job) = connection.session.imports.take() {
            return self.hand_to_import(key, job);
        }
        connection.progress = progress;
        match progress {
            Progress::Yielded => self.yielded.push_back(key),
            Progress::Paused => {
                self.paused.push(key);
                self.tick_early();
            }
            // The other nodes may have failed at once.
            Progress::AwaitsNodes if connection.deferred.as_ref().is_none_or(|deferred| deferred.missing() == 0) => {
                self.go_on_reading(key, Progress::AwaitsNodes);
            }
            Progress::AwaitsRoom => self.publishers.push_back(connection.session.client.id),
            Progress::AwaitsLog => self.log_waiters.push(connection.session.client.id),
            Progress::Parked => {
                let timeout_ms = connection.session.client.waiter().and_then(|waiter| waiter.wait.timeout_ms);
                // Counted from now, by an unrounded clock: Redis replies late rather than early, and this server must, too.
                if let Some(timeout_ms) = timeout_ms {
                    let deadline_us = now_us().saturating_add(timeout_ms.saturating_mul(1000));
                    connection.session.client.set_deadline(deadline_us);
                    let client = connection.session.client.id;
                    self.note_deadline(deadline_us, client);
                }
                self.note_acknowledged_waiter(key);
            }
            _ => {}
        }
        self.hold_for_disk(key);
        self.queue_or_flush(key);
        self.limit_input(key);
    }

    /// Closes a connection whose requests take too much memory, and has others closed if all together take too much.
    fn limit_input(&mut self, key: usize) {
        self.check_input_limit(key);
        if let Some(connection) = self.connections.get(key) {
            self.worker.note_client_memory(&connection.session.client);
        }
    }

    /// Closes a connection whose pending requests take too much memory.
    fn check_input_limit(&mut self, key: usize) {
        let Some(connection) = self.connections.get(key) else { return };
        let limit = self.shared.settings().client_query_buffer_limit.get();
        if let Some(bytes) = connection.input_over(limit) {
            connection.log_input_over(bytes, limit);
            self.worker.stats().input_limit_closes.add(1);
            self.close(key);
        }
    }

    /// Resumes connections that had used up their turn.
    fn run_yielded(&mut self) {
        for _ in 0..self.yielded.len() {
            let Some(key) = self.yielded.pop_front() else { return };
            if self.connections.get(key).is_some_and(|c| c.progress == Progress::Yielded) && self.may_run(key) {
                self.run_input(key, None);
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
        self.end_links_of(connection.session.client.id);
        // Before the socket is closed at the end of this function: the peer may tell others.
        connection.leave(&mut self.worker, &self.shared);
    }
}
