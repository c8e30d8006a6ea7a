//! Batches that callers have handed over and that aren't sent yet.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use super::ClientOptions;
use super::slot::Slot;
use crate::command::Request;
use crate::pipeline::Pipeline;
use crate::transaction::Transaction;

/// Number of the connection that a pipeline uses. All batches of a pipeline go over one connection, because another
/// connection's server may not have the effects of the first batch, for example loaded scripts.
pub(super) type Route = Arc<OnceLock<u64>>;

/// Requests of one caller that stay together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) requests: u64,
    /// Set if the batch belongs to a pipeline.
    pub(super) route: Option<Route>,
}

impl Batch {
    pub(super) fn new(bytes: Vec<u8>, requests: u64) -> Self {
        Self { bytes, requests, route: None }
    }

    /// Returns a batch with a whole transaction.
    pub(super) fn whole(transaction: &Transaction) -> Self {
        Self::new(transaction.whole().flatten().copied().collect(), transaction.whole().count() as u64)
    }
}

/// Splits a pipeline and the loading of its scripts into batches. Two of them fit into its window and into the queue.
pub(super) fn batches(pipeline: &Pipeline, options: &ClientOptions) -> impl Iterator<Item = Batch> {
    let requests_max = (pipeline.window().commands as u64).min(options.queue_commands_max) / 2;
    let bytes_max = options.queue_bytes_max / 2;
    let mut loads = pipeline.scripts().iter();
    let mut requests = pipeline.requests();
    let route = Route::default();
    std::iter::from_fn(move || {
        let mut batch = Batch { bytes: Vec::new(), requests: 0, route: Some(route.clone()) };
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

/// A batch whose bytes are in the queue's buffer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) bytes: usize,
    pub(super) requests: u64,
    route: Option<Route>,
    pub(super) slot: Arc<Slot>,
}

impl Waiting {
    /// Returns true if the batch may be sent over this connection. The first call fixes the connection.
    fn may_take(&self, connection: u64) -> bool {
        self.route.as_ref().is_none_or(|route| *route.get_or_init(|| connection) == connection)
    }
}

/// Batches in sending order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) bytes: Vec<u8>,
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) requests: u64,
}

impl Queue {
    pub(super) fn push(&mut self, batch: &Batch, slot: Arc<Slot>) {
        let Batch { bytes, requests, route } = batch;
        self.bytes.extend_from_slice(bytes);
        self.requests += requests;
        self.waiting.push_back(Waiting { bytes: bytes.len(), requests: *requests, route: route.clone(), slot });
    }

    /// Puts unsent batches back to the front.
    pub(super) fn push_front(&mut self, mut bytes: Vec<u8>, mut waiting: VecDeque<Waiting>) {
        self.requests += waiting.iter().map(|batch| batch.requests).sum::<u64>();
        bytes.append(&mut self.bytes);
        waiting.append(&mut self.waiting);
        self.bytes = bytes;
        self.waiting = waiting;
    }

    /// Removes the batches that must not be sent over this connection.
    pub(super) fn take_strays(&mut self, connection: u64) -> Vec<Waiting> {
        self.take_out(|waiting| !waiting.may_take(connection))
    }

    /// Removes batches. `is_out` must give the same answer if it is called again for a batch.
    pub(super) fn take_out(&mut self, mut is_out: impl FnMut(&Waiting) -> bool) -> Vec<Waiting> {
        if !self.waiting.iter().any(&mut is_out) {
            return Vec::new();
        }
        let (mut taken, mut start) = (Vec::new(), 0);
        let Queue { bytes, waiting, .. } = std::mem::take(self);
        for batch in waiting {
            let end = start + batch.bytes;
            if is_out(&batch) {
                taken.push(batch);
            } else {
                self.bytes.extend_from_slice(&bytes[start..end]);
                self.requests += batch.requests;
                self.waiting.push_back(batch);
            }
            start = end;
        }
        taken
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn has_room(&self, options: &ClientOptions) -> bool {
        self.requests < options.queue_commands_max.max(1) && self.bytes.len() < options.queue_bytes_max.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(queue: &mut Queue, text: &str, requests: u64, route: Option<&Route>) {
        let batch = Batch { bytes: text.into(), requests, route: route.cloned() };
        queue.push(&batch, Arc::new(Slot::new()));
    }

    #[test]
    fn removing_batches_keeps_the_others_in_order() {
        let mut queue = Queue::default();
        for (text, requests) in [("a", 1), ("bb", 2), ("", 1), ("ccc", 3), ("dd", 2)] {
            push(&mut queue, text, requests, None);
        }
        assert!(queue.take_out(|_| false).is_empty());
        assert_eq!((queue.bytes.as_slice(), queue.requests), (&b"abbcccdd"[..], 9));
        let taken = queue.take_out(|batch| batch.requests == 2);
        assert_eq!(taken.iter().map(|batch| batch.bytes).collect::<Vec<_>>(), [2, 2]);
        assert_eq!((queue.bytes.as_slice(), queue.requests, queue.waiting.len()), (&b"accc"[..], 5, 3));
        assert_eq!(queue.take_out(|_| true).len(), 3);
        assert!(queue.is_empty() && queue.bytes.is_empty() && queue.requests == 0);
    }

    #[test]
    fn a_pipeline_goes_over_one_connection() {
        let (mut queue, one, two) = (Queue::default(), Route::default(), Route::default());
        push(&mut queue, "one", 1, Some(&one));
        assert!(queue.take_strays(7).is_empty());
        queue = Queue::default();
        push(&mut queue, "none", 1, None);
        push(&mut queue, "one", 1, Some(&one));
        push(&mut queue, "two", 1, Some(&two));
        assert!(queue.take_strays(7).is_empty());
        assert_eq!(queue.take_strays(8).len(), 2);
        assert_eq!(queue.bytes, b"none");
    }
}
