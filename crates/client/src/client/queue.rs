//! What callers have handed over and nobody has sent yet.

use std::collections::VecDeque;
use std::sync::Arc;

use super::ClientOptions;
use super::slot::Slot;
use crate::command::Request;
use crate::pipeline::Pipeline;
use crate::transaction::Transaction;

/// Requests of one caller that stay together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) requests: u64,
    /// Whether it may wait for the next connection when nothing of it was sent over this one. Not so if the caller has
    /// handed over more than this batch: what comes first must not be lost while what comes second runs.
    pub(super) alone: bool,
}

impl Batch {
    pub(super) fn new(bytes: Vec<u8>, requests: u64) -> Self {
        Self { bytes, requests, alone: true }
    }

    /// All of a transaction.
    pub(super) fn whole(transaction: &Transaction) -> Self {
        Self::new(transaction.whole().flatten().copied().collect(), transaction.whole().count() as u64)
    }
}

/// A pipeline and the loading of its scripts in batches that two of them fit into its window and into the queue.
pub(super) fn batches(pipeline: &Pipeline, options: &ClientOptions) -> impl Iterator<Item = Batch> {
    let requests_max = (pipeline.window().commands as u64).min(options.queue_commands_max) / 2;
    let bytes_max = options.queue_bytes_max / 2;
    let mut loads = pipeline.scripts().iter();
    let mut requests = pipeline.requests();
    std::iter::from_fn(move || {
        let mut batch = Batch { bytes: Vec::new(), requests: 0, alone: false };
        while batch.requests == 0 || (batch.requests < requests_max && batch.bytes.len() < bytes_max) {
            if let Some(script) = loads.next() {
                script.load().pack(&mut batch.bytes);
            } else if let Some(request) = requests.next() {
                batch.bytes.extend_from_slice(request);
            } else {
                break;
            }
            batch.requests += 1;
        }
        Some(batch).filter(|batch| batch.requests > 0)
    })
}

/// A batch whose bytes are among those of the queue.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) bytes: usize,
    pub(super) requests: u64,
    pub(super) alone: bool,
    pub(super) slot: Arc<Slot>,
}

/// Batches in the order in which they are to be sent.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) bytes: Vec<u8>,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) requests: u64,
}

impl Queue {
    pub(super) fn push(&mut self, batch: &Batch, slot: Arc<Slot>) {
        let Batch { bytes, requests, alone } = batch;
        self.bytes.extend_from_slice(bytes);
        self.requests += requests;
        self.waiting.push_back(Waiting { bytes: bytes.len(), requests: *requests, alone: *alone, slot });
    }

    /// Puts batches that could not be sent in front of all others.
    pub(super) fn push_front(&mut self, mut bytes: Vec<u8>, mut waiting: VecDeque<Waiting>) {
        self.requests += waiting.iter().map(|batch| batch.requests).sum::<u64>();
        bytes.append(&mut self.bytes);
        waiting.append(&mut self.waiting);
        self.bytes = bytes;
        self.waiting = waiting;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn has_room(&self, options: &ClientOptions) -> bool {
        self.requests < options.queue_commands_max.max(1) && self.bytes.len() < options.queue_bytes_max.max(1)
    }
}
