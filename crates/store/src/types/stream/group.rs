//! A group of consumers: how far it has read, and what was delivered to which consumer without being acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::id::StreamId;

/// A delivery that wasn't acknowledged yet.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The consumer that got it.
    pub consumer: Arc<[u8]>,
    /// When, in milliseconds of Unix time.
    pub delivered_ms: u64,
    /// How often.
    pub deliveries: u64,
}

/// How something is delivered.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// When, in milliseconds of Unix time.
    pub at_ms: u64,
    /// How often it was delivered, this time included.
    pub deliveries: u64,
}

/// One of the consumers that share a group's entries.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Arc<[u8]>,
    /// When it last tried to get something, in milliseconds of Unix time.
    pub seen_ms: u64,
    /// When it last got something.
    pub active_ms: Option<u64>,
    /// What is pending for it.
    pending: BTreeSet<StreamId>,
}

impl Consumer {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// What was delivered to it and not acknowledged.
    #[must_use]
    pub fn pending(&self) -> &BTreeSet<StreamId> {
        &self.pending
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The last entry that was delivered to a consumer.
    pub last_id: StreamId,
    /// How many entries it has read, if that is known.
    pub entries_read: Option<u64>,
    consumers: BTreeMap<Arc<[u8]>, Consumer>,
    pending: BTreeMap<StreamId, Pending>,
}

/// Bytes of a node of a map or set for each element, beside the element: they are about two thirds full.
fn map_bytes<K, V>(elements: usize) -> usize {
    elements * (size_of::<K>() + size_of::<V>()) * 3 / 2
}

/// Bytes of the counters in front of a shared name.
const SHARED_NAME_BYTES: usize = 16;

impl Group {
    /// A group without consumers.
    #[must_use]
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Group {
        Group { last_id, entries_read, ..Group::default() }
    }

    /// Estimated bytes of what it points to.
    pub(super) fn memory_bytes(&self) -> usize {
        let names: usize = self.consumers.keys().map(|name| name.len() + SHARED_NAME_BYTES).sum();
        // What is pending is so for one consumer each.
        let pending =
            map_bytes::<StreamId, Pending>(self.pending.len()) + map_bytes::<StreamId, ()>(self.pending.len());
        size_of::<Group>() + map_bytes::<Arc<[u8]>, Consumer>(self.consumers.len()) + names + pending
    }

    /// The consumers by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &Consumer> {
        self.consumers.values()
    }

    /// A consumer.
    #[must_use]
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name)
    }

    /// A consumer, to be changed.
    pub fn consumer_mut(&mut self, name: &[u8]) -> Option<&mut Consumer> {
        self.consumers.get_mut(name)
    }

    /// Adds a consumer, seen now. False if there is one of this name.
    pub fn add_consumer(&mut self, name: &[u8], now_ms: u64) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        let name: Arc<[u8]> = name.into();
        let consumer = Consumer { name: name.clone(), seen_ms: now_ms, active_ms: None, pending: BTreeSet::new() };
        self.consumers.insert(name, consumer);
        true
    }

    /// Removes a consumer, and with it what is pending for it. Says how much that was; none if there is no such
    /// consumer.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    /// All that is pending, by ID.
    #[must_use]
    pub fn pending(&self) -> &BTreeMap<StreamId, Pending> {
        &self.pending
    }

    /// A pending delivery, to be changed; its consumer must stay the same.
    pub fn pending_mut(&mut self, id: StreamId) -> Option<&mut Pending> {
        self.pending.get_mut(&id)
    }

    /// Notes that an entry was delivered to a consumer that exists, even if another one had it before.
    pub fn deliver(&mut self, id: StreamId, consumer: &[u8], delivery: Delivery) {
        let Some(to) = self.consumers.get_mut(consumer) else { return };
        to.pending.insert(id);
        let Delivery { at_ms, deliveries } = delivery;
        let pending = Pending { consumer: to.name.clone(), delivered_ms: at_ms, deliveries };
        if let Some(before) = self.pending.insert(id, pending)
            && *before.consumer != *consumer
            && let Some(from) = self.consumers.get_mut(&before.consumer)
        {
            from.pending.remove(&id);
        }
    }

    /// An entry needs no delivery any more. Says whether it was pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.remove(&id);
        }
        true
    }
}
