//! The shared connection with its batches in flight, in order, and the distribution of their replies.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use resp::parse::Value;

use super::queue::{Queue, Waiting};
use super::slot::Slot;
use crate::connection::Connection;
use crate::error::{Error, Fate, Interrupted};

/// Idle time after which the connection is checked before use. The server may have closed it, and otherwise the loss
/// would only be noticed with a command in flight.
const REST_MAX: Duration = Duration::from_millis(100);

/// The shared connection. One thread at a time drives it.
#[derive(Debug)]
pub(super) struct Flights {
    pub(super) connection: Option<Connection>,
    /// Number of connections before this one.
    pub(super) number: u64,
    /// Unanswered batches, oldest first.
    pub(super) flying: VecDeque<Flying>,
    /// Number of unanswered requests of each flight.
    flights: VecDeque<u64>,
    /// Time of the last transfer of bytes.
    since: Instant,
}

/// A batch in flight.
#[derive(Debug)]
pub(super) struct Flying {
    /// Start of the batch in the connection's count of sent bytes.
    start: u64,
    replies: Vec<Value>,
    pub(super) batch: Waiting,
}

/// Batches that were in flight when the connection broke.
#[derive(Debug, Default)]
pub(super) struct Broken {
    /// Slots of batches that were sent at least in part, with their outcome.
    pub(super) lost: Vec<(Arc<Slot>, Interrupted)>,
    /// Later batches that weren't sent.
    pub(super) unsent: VecDeque<Waiting>,
    pub(super) unsent_bytes: Vec<u8>,
}

impl Flights {
    pub(super) fn new(connection: Connection, number: u64) -> Self {
        let since = Instant::now();
        Self { connection: Some(connection), number, flying: VecDeque::new(), flights: VecDeque::new(), since }
    }

    /// Returns the number of flights in progress.
    pub(super) fn count(&self) -> usize {
        self.flights.len()
    }

    /// Returns true if a usable connection exists.
    pub(super) fn is_connected(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let closed = self.flying.is_empty() && self.since.elapsed() > REST_MAX && !connection.is_quiet();
        if closed {
            self.connection = None;
        }
        !closed
    }

    /// Loads all queued batches as one flight.
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

    /// Sends as many bytes as possible without waiting.
    pub(super) fn send(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.try_write();
        }
    }

    /// Sends, and distributes available replies. If there are none, it waits for I/O or the bell. Returns true if the
    /// bell rang.
    ///
    /// # Errors
    /// Returns [`Error::Lost`]. The caller must then call [`Self::fail`].
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

    /// Drops the broken connection and returns the batches in flight.
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

/// Returns the outcome of a batch that wasn't sent.
pub(super) fn not_sent(error: Error) -> Interrupted {
    Interrupted { error: error.with_fate(Fate::NotRun), answered: 0, sent: 0 }
}

/// Appoints a waiting caller as leader: the one with the last batch. Returns its slot.
pub(super) fn last_waiter<'a>(flights: &'a Flights, queue: &'a Queue) -> Option<&'a Arc<Slot>> {
    let flying = flights.flying.iter().map(|flying| &flying.batch.slot);
    let queued = queue.waiting.iter().map(|waiting| &waiting.slot);
    flying.chain(queued).rev().find(|slot| slot.appoint())
}
