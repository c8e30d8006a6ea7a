//! Sharing of one connection without a background thread: one of the waiting callers, the leader, drives it for all.
//!
//! The leader takes the connection out of the state, loads the queue as one flight, sends, reads, and puts replies into
//! the slots of their callers, until its own reply arrives. Then it appoints another waiting caller. A single caller
//! leads itself, without the cost of a hand-over. A caller that arrives during a flight queues its batch. If another
//! flight may leave, it rings the bell; the leader polls the bell together with the socket.
//!
//! When the connection breaks, partly sent batches are lost, and with them all later batches of the same callers, so
//! that their sequences have no gaps (see [`super::losses`]). The other queued batches go over the next connection.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use resp::parse::Value;
use rustix::event::{EventfdFlags, eventfd};

use super::ClientOptions;
use super::flight::{Broken, Flights, last_waiter, not_sent};
use super::losses::{Caller, Losses};
use super::queue::{Batch, Queue, Waiting};
use super::slot::{BatchOutcome, Call, Slot};
use crate::config::Config;
use crate::connection::Connection;
use crate::error::{Error, Fate, Interrupted, Lost};

/// A connection and the callers that share it.
pub(super) struct SharedConnection {
    config: Config,
    options: ClientOptions,
    state: Mutex<SharedState>,
    /// An eventfd that callers write to wake the leader.
    bell: OwnedFd,
    /// Notified when the queue has room again or there is no leader.
    room: Condvar,
    reconnections: AtomicU64,
    pushes: Mutex<VecDeque<Value>>,
}

struct SharedState {
    queue: Queue,
    losses: Losses,
    /// Present while there is no leader.
    flights: Option<Flights>,
    /// True if there is a leader, or a caller was appointed and is about to lead.
    led: bool,
    /// True if the leader wants a signal for queued batches.
    listening: bool,
    /// Number of callers that wait for room in the queue.
    waiting_for_room: usize,
}

type Guard<'a> = MutexGuard<'a, SharedState>;

impl SharedConnection {
    pub(super) fn new(config: &Config, options: &ClientOptions, connection: Connection) -> Result<Self, Error> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell
            .map_err(|error| Error::Connect { address: config.address.to_string(), cause: Arc::new(error.into()) })?;
        let flights = Some(Flights::new(connection, 0));
        Ok(Self {
            config: config.clone(),
            options: options.clone(),
            state: Mutex::new(SharedState {
                queue: Queue::default(),
                losses: Losses::default(),
                flights,
                led: false,
                listening: false,
                waiting_for_room: 0,
            }),
            bell,
            room: Condvar::new(),
            reconnections: AtomicU64::new(0),
            pushes: Mutex::default(),
        })
    }

    /// Sends a batch and waits for its outcome. If the caller has an unknown loss, the batch isn't sent and the outcome
    /// reports the loss.
    pub(super) fn run(&self, batch: &Batch) -> BatchOutcome {
        let slot = Arc::new(Slot::new());
        match self.enqueue(batch, &slot) {
            Ok(state) => self.wait_with(state, &slot),
            Err(loss) => {
                self.lock().losses.told(slot.caller());
                Err(not_sent(loss))
            }
        }
    }

    /// Hands over a batch. If the caller has an unknown loss, the batch fails at once. Its further batches fail, too,
    /// until it has taken this outcome or the outcome of a lost batch.
    pub(super) fn submit(&self, batch: &Batch) -> Arc<Slot> {
        self.hand_over(batch).unwrap_or_else(|loss| {
            let slot = Arc::new(Slot::new());
            finish(&slot, not_sent(loss), &mut self.lock().losses);
            slot
        })
    }

    fn hand_over(&self, batch: &Batch) -> Result<Arc<Slot>, Error> {
        let slot = Arc::new(Slot::new());
        let mut state = self.enqueue(batch, &slot)?;
        // Without a leader, this thread makes a first attempt to send, so that the reply is on its way before a caller
        // waits.
        if let Some(mut flights) = state.flights.take() {
            if flights.count() < self.options.flights_max && flights.is_connected() {
                load(&mut flights, &mut state);
                flights.send();
            }
            state.flights = Some(flights);
        }
        Ok(slot)
    }

    /// Waits for a batch that was handed over.
    pub(super) fn wait(&self, slot: &Slot) -> BatchOutcome {
        self.wait_with(self.lock(), slot)
    }

    pub(super) fn reconnections(&self) -> u64 {
        self.reconnections.load(Ordering::Relaxed)
    }

    pub(super) fn take_pushes(&self) -> Vec<Value> {
        let mut state = self.lock();
        if let Some(connection) = state.flights.as_mut().and_then(|flights| flights.connection.as_mut()) {
            connection.is_quiet();
            self.keep_pushes(connection);
        }
        drop(state);
        self.pushes.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    fn lock(&self) -> Guard<'_> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a batch when there is room for it.
    ///
    /// # Errors
    /// Returns an error if the caller has an unknown loss.
    fn enqueue(&self, batch: &Batch, slot: &Arc<Slot>) -> Result<Guard<'_>, Error> {
        let mut state = self.lock();
        while !state.queue.has_room(&self.options) {
            if state.led {
                state.waiting_for_room += 1;
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting_for_room -= 1;
            } else {
                state = self.lead(state, |state| state.queue.has_room(&self.options));
            }
        }
        if let Some(loss) = state.losses.untold(slot.caller()) {
            return Err(loss);
        }
        state.queue.push(batch, slot.clone());
        if state.listening {
            state.listening = false;
            // The write can only fail if the bell is ringing already.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
        Ok(state)
    }

    fn wait_with<'a>(&'a self, state: Guard<'a>, slot: &Slot) -> BatchOutcome {
        let outcome = self.await_outcome(state, slot);
        if outcome.is_err() {
            self.lock().losses.heard(slot);
        }
        outcome
    }

    fn await_outcome<'a>(&'a self, mut state: Guard<'a>, slot: &Slot) -> BatchOutcome {
        loop {
            if let Some(outcome) = slot.take() {
                return outcome;
            }
            if !state.led {
                state = self.lead(state, |_| slot.is_done());
                continue;
            }
            slot.announce();
            drop(state);
            match slot.wait() {
                Call::Done(outcome) => return outcome,
                Call::Lead => {
                    state = self.lock();
                    state.led = false;
                }
            }
        }
    }

    // --- leading ---

    /// Drives the connection until `enough` returns true.
    fn lead<'a>(&'a self, mut state: Guard<'a>, enough: impl Fn(&SharedState) -> bool) -> Guard<'a> {
        let Some(mut flights) = state.flights.take() else { return state };
        state.led = true;
        while !enough(&state) {
            if !state.queue.is_empty() && flights.count() < self.options.flights_max.max(1) {
                if !flights.is_connected() {
                    drop(state);
                    state = self.reconnect(&mut flights);
                    continue;
                }
                load(&mut flights, &mut state);
                self.tell_of_room(&state);
            }
            state.listening = flights.count() < self.options.flights_max;
            let listening = state.listening;
            drop(state);
            state = self.turn(&mut flights, listening);
        }
        state.listening = false;
        state.led = last_waiter(&flights, &state.queue).is_some();
        state.flights = Some(flights);
        if !state.led {
            self.tell_of_room(&state);
        }
        state
    }

    fn turn(&self, flights: &mut Flights, listening: bool) -> Guard<'_> {
        let turned = flights.turn(listening.then(|| self.bell.as_fd()));
        if let Some(connection) = &mut flights.connection {
            self.keep_pushes(connection);
        }
        if matches!(turned, Ok(true)) {
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        let mut state = self.lock();
        if let Err(error) = turned {
            give_up(flights.fail(&error), &mut state, &error);
            self.tell_of_room(&state);
        }
        state
    }

    /// Makes a new connection. On failure all waiting callers get an error.
    fn reconnect(&self, flights: &mut Flights) -> Guard<'_> {
        match self.connect_in_time() {
            Ok(connection) => {
                let before = self.reconnections.fetch_add(1, Ordering::Relaxed);
                *flights = Flights::new(connection, before + 1);
                self.lock()
            }
            Err(error) => {
                let mut state = self.lock();
                let queue = std::mem::take(&mut state.queue);
                finish_unsent(queue.waiting, &mut state.losses, &error);
                self.tell_of_room(&state);
                state
            }
        }
    }

    fn connect_in_time(&self) -> Result<Connection, Error> {
        let start = Instant::now();
        let mut delay = self.options.retry_delay_first;
        loop {
            let error = match Connection::connect(&self.config) {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            let pause = shortened_at_random(delay);
            if !may_pass(&error) || start.elapsed() + pause > self.options.give_up_after {
                return Err(error);
            }
            thread::sleep(pause);
            delay = (delay * 2).min(self.options.retry_delay_max);
        }
    }

    fn tell_of_room(&self, state: &SharedState) {
        if state.waiting_for_room > 0 {
            self.room.notify_all();
        }
    }

    fn keep_pushes(&self, connection: &mut Connection) {
        let more = connection.take_pushes();
        if more.is_empty() {
            return;
        }
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        pushes.extend(more);
        let excess = pushes.len().saturating_sub(self.config.pushes_max);
        pushes.drain(..excess);
    }
}

/// Loads all queued batches except those that must not go over this connection.
fn load(flights: &mut Flights, state: &mut SharedState) {
    let strays = state.queue.take_strays(flights.number);
    if !strays.is_empty() {
        // The previous connection was closed. Callers with commands in flight have got their errors.
        let error = Error::Lost { cause: Lost::Closed, fate: Fate::NotRun };
        finish_unsent(strays, &mut state.losses, &error);
    }
    flights.load(&mut state.queue);
}

/// Reports a loss to all affected callers. Queued batches of a caller with a lost batch fail, too.
fn give_up(broken: Broken, state: &mut SharedState, error: &Error) {
    state.losses.purge();
    state.queue.push_front(broken.unsent_bytes, broken.unsent);
    let losers: HashSet<Caller> = broken.lost.iter().map(|(slot, _)| slot.caller()).collect();
    for (slot, interrupted) in broken.lost {
        finish(&slot, interrupted, &mut state.losses);
    }
    let behind = state.queue.take_out(|waiting| losers.contains(&waiting.slot.caller()));
    finish_unsent(behind, &mut state.losses, error);
}

fn finish_unsent(batches: impl IntoIterator<Item = Waiting>, losses: &mut Losses, error: &Error) {
    batches.into_iter().for_each(|batch| finish(&batch.slot, not_sent(error.clone()), losses));
}

/// The loss is noted first, because the caller may wake up at once.
fn finish(slot: &Arc<Slot>, interrupted: Interrupted, losses: &mut Losses) {
    losses.note(slot, &interrupted.error);
    slot.finish(Err(interrupted));
}

/// Returns true if another attempt may succeed: the server is unreachable, starting, or full.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::Connect { .. } | Error::Lost { cause: Lost::Closed | Lost::Io(_) | Lost::Silent(_), .. } => true,
        Error::Server(error) => {
            matches!(error.code(), b"LOADING" | b"BUSY" | b"MASTERDOWN" | b"TRYAGAIN")
                || error.text().starts_with(b"ERR max number of clients")
        }
        _ => false,
    }
}

/// Returns a random duration between half of `delay` and `delay`.
fn shortened_at_random(delay: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish();
    delay.mul_f64(0.5 + 0.5 * (random as f64 / u64::MAX as f64))
}
