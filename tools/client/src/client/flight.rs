//! The shared connection with what is on its way: batches that were loaded, in order, and how their replies find home.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use resp::parse::Value;

use super::queue::{Queue, Waiting};
use super::slot::Slot;
use crate::connection::Connection;
use crate::error::{Error, Fate, Interrupted};

/// A connection that rested longer is looked at before it is used: the server may have closed it meanwhile, which would
/// otherwise be noticed only when a command is on its way.
const REST_MAX: Duration = Duration::from_millis(100);

/// The shared connection, which one thread at a time drives.
#[derive(Debug)]
pub(super) struct Flights {
    pub(super) connection: Option<Connection>,
    /// Its number: how many there were before.
    pub(super) number: u64,
    /// Batches that were loaded and aren't answered, oldest first.
    pub(super) flying: VecDeque<Flying>,
    /// How many requests of each flight aren't answered.
    flights: VecDeque<u64>,
    /// When bytes last moved.
    since: Instant,
}

/// A batch on its way.
#[derive(Debug)]
pub(super) struct Flying {
    /// Where it begins in the connection's count of sent bytes.
    start: u64,
    replies: Vec<Value>,
    pub(super) batch: Waiting,
}

/// What was on its way when the connection broke.
#[derive(Debug, Default)]
pub(super) struct Broken {
    /// Where batches are awaited that were sent, at least in part, and what is known of them.
    pub(super) lost: Vec<(Arc<Slot>, Interrupted)>,
    /// The batches behind those, of which nothing was sent.
    pub(super) unsent: VecDeque<Waiting>,
    pub(super) unsent_bytes: Vec<u8>,
}

impl Flights {
    pub(super) fn new(connection: Connection, number: u64) -> Self {
        let since = Instant::now();
        Self { connection: Some(connection), number, flying: VecDeque::new(), flights: VecDeque::new(), since }
    }

    /// Flights in the air.
    pub(super) fn count(&self) -> usize {
        self.flights.len()
    }

    /// Whether there is a connection on which something can be sent.
    pub(super) fn is_connected(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let closed = self.flying.is_empty() && self.since.elapsed() > REST_MAX && !connection.is_quiet();
        if closed {
            self.connection = None;
        }
        !closed
    }

    /// Loads everything that waits, as one flight.
    pub(super) fn load(&mut self, queue: &mut Queue) {
        let Some(connection) = &mut self.connection else { return };
        if queue.is_empty() {
            return;
        }
        if self.flying.is_empty() {
            self.since = Instant::now();
        }
        let output = connection.output();
        output.compact();
        let mut start = output.total_end();
        output.take_from(&mut queue.bytes);
        connection.owe(queue.requests);
        self.flights.push_back(queue.requests);
        queue.requests = 0;
        for batch in queue.waiting.drain(..) {
            let bytes = batch.bytes as u64;
            self.flying.push_back(Flying { start, replies: Vec::new(), batch });
            start += bytes;
        }
    }

    /// Sends what goes without waiting.
    pub(super) fn send(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.try_write();
        }
    }

    /// Sends, hands out replies that are here, or else waits for either, or for the bell; whether that rang.
    ///
    /// # Errors
    /// [`Error::Lost`]; then [`Self::fail`] is due.
    pub(super) fn turn(&mut self, bell: Option<BorrowedFd<'_>>) -> Result<bool, Error> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        connection.try_write();
        let mut landed = false;
        while let Some(first) = self.flying.front_mut()
            && let Some(reply) = connection.buffered_reply()?
        {
            landed = true;
            first.replies.push(reply);
            let complete = first.replies.len() as u64 == first.batch.requests;
            if complete && let Some(flying) = self.flying.pop_front() {
                flying.batch.slot.finish(Ok(flying.replies));
            }
            if let Some(missing) = self.flights.front_mut() {
                *missing -= 1;
                self.flights.pop_front_if(|missing| *missing == 0);
            }
        }
        if landed || self.flying.is_empty() {
            return Ok(false);
        }
        connection.step(&mut self.since, bell)
    }

    /// Gives the broken connection up, and back what was on its way.
    pub(super) fn fail(&mut self, error: &Error) -> Broken {
        let mut broken = Broken::default();
        let Some(mut connection) = self.connection.take() else { return broken };
        self.flights.clear();
        let sent_bytes = connection.output().total_sent();
        let rest = connection.output().unsent();
        for Flying { start, replies, batch } in self.flying.drain(..) {
            let unsent_at = start.checked_sub(sent_bytes).map(|at| at as usize);
            if let Some(bytes) = unsent_at.and_then(|at| rest.get(at..at + batch.bytes)) {
                broken.unsent_bytes.extend_from_slice(bytes);
                broken.unsent.push_back(batch);
            } else {
                let error = error.clone().with_fate(Fate::MayHaveRun);
                let answered = replies.len() as u64;
                broken.lost.push((batch.slot, Interrupted { error, answered, sent: batch.requests }));
            }
        }
        broken
    }
}

/// What a batch hears of which nothing was sent.
pub(super) fn not_sent(error: Error) -> Interrupted {
    Interrupted { error: error.with_fate(Fate::NotRun), answered: 0, sent: 0 }
}

/// The slot of the batch that will be answered last and that a caller waits for.
pub(super) fn last_waiter<'a>(flights: &'a Flights, queue: &'a Queue) -> Option<&'a Arc<Slot>> {
    let flying = flights.flying.iter().map(|flying| &flying.batch.slot);
    let queued = queue.waiting.iter().map(|waiting| &waiting.slot);
    flying.chain(queued).rev().find(|slot| slot.appoint())
}
