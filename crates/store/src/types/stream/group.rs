//! A group of consumers: its read position, and the deliveries to each consumer that were not acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::id::StreamId;

/// A delivery that was not acknowledged yet.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The consumer that received it.
    pub consumer: Arc<[u8]>,
    /// The time of the latest delivery, in milliseconds of Unix time.
    pub delivered_ms: u64,
    /// The number of deliveries.
    pub deliveries: u64,
}

/// Time and number of a delivery.
#[derive(Clone, Copy, Debug)]
pub struct Delivery {
    /// The time, in milliseconds of Unix time.
    pub at_ms: u64,
    /// The number of deliveries, including this one.
    pub deliveries: u64,
}

/// One of the consumers that share a group's entries.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Arc<[u8]>,
    /// The time of its last attempt to read, in milliseconds of Unix time.
    pub seen_ms: u64,
    /// The time of its last successful read.
    pub active_ms: Option<u64>,
    /// The IDs of its pending entries.
    pending: BTreeSet<StreamId>,
}

impl Consumer {
    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Returns the IDs of the entries that were delivered to it and not acknowledged.
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
    /// Number of entries that it has read, if it is known.
    pub entries_read: Option<u64>,
    consumers: BTreeMap<Arc<[u8]>, Consumer>,
    pending: BTreeMap<StreamId, Pending>,
    /// Pending entries by delivery time and ID; see [`Group::by_delivery`].
    by_delivery: Option<BTreeSet<(u64, StreamId)>>,
}

/// Estimates the bytes of a map or set: its nodes are about two thirds full.
fn map_bytes<K, V>(elements: usize) -> usize {
    elements * (size_of::<K>() + size_of::<V>()) * 3 / 2
}

/// Bytes of the counters in front of a shared name.
const SHARED_NAME_BYTES: usize = 16;

impl Group {
    /// Returns a group without consumers.
    #[must_use]
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Group {
        Group { last_id, entries_read, ..Group::default() }
    }

    /// Estimates the bytes of its memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let names: usize = self.consumers.keys().map(|name| name.len() + SHARED_NAME_BYTES).sum();
        // Each pending entry belongs to exactly one consumer.
        let pending =
            map_bytes::<StreamId, Pending>(self.pending.len()) + map_bytes::<StreamId, ()>(self.pending.len());
        let index = self.by_delivery.as_ref().map_or(0, |index| map_bytes::<(u64, StreamId), ()>(index.len()));
        size_of::<Group>() + map_bytes::<Arc<[u8]>, Consumer>(self.consumers.len()) + names + pending + index
    }

    /// Iterates over the consumers by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = &Consumer> {
        self.consumers.values()
    }

    /// Returns a consumer.
    #[must_use]
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name)
    }

    /// Returns a consumer for changes.
    pub fn consumer_mut(&mut self, name: &[u8]) -> Option<&mut Consumer> {
        self.consumers.get_mut(name)
    }

    /// Adds a consumer, seen now. Returns false if the name exists.
    pub fn add_consumer(&mut self, name: &[u8], now_ms: u64) -> bool {
        if self.consumers.contains_key(name) {
            return false;
        }
        let name: Arc<[u8]> = name.into();
        let consumer = Consumer { name: name.clone(), seen_ms: now_ms, active_ms: None, pending: BTreeSet::new() };
        self.consumers.insert(name, consumer);
        true
    }

    /// Removes a consumer and its pending entries, and returns their number. Returns None if there is no such consumer.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        for id in &consumer.pending {
            if let Some(pending) = self.pending.remove(id) {
                self.drop_from_index(pending.delivered_ms, *id);
            }
        }
        Some(consumer.pending.len())
    }

    /// Returns all pending entries, by ID.
    #[must_use]
    pub fn pending(&self) -> &BTreeMap<StreamId, Pending> {
        &self.pending
    }

    /// Iterates over all pending entries in order of delivery time; by ID if the times are equal.
    ///
    /// The first call sorts them. From then on the order is kept up to date, which takes memory: groups without such a
    /// call do not pay for it.
    pub fn by_delivery(&mut self) -> impl Iterator<Item = (StreamId, &Pending)> {
        let Group { pending, by_delivery, .. } = self;
        let sort = || pending.iter().map(|(id, pending)| (pending.delivered_ms, *id)).collect();
        let index = by_delivery.get_or_insert_with(sort);
        index.iter().filter_map(|(_, id)| pending.get(id).map(|pending| (*id, pending)))
    }

    fn drop_from_index(&mut self, delivered_ms: u64, id: StreamId) {
        if let Some(index) = &mut self.by_delivery {
            index.remove(&(delivered_ms, id));
        }
    }

    /// Notes that a pending entry was delivered again to its consumer. Returns false if the entry is not pending.
    pub fn deliver_again(&mut self, id: StreamId, at_ms: u64) -> bool {
        let Some(pending) = self.pending.get_mut(&id) else { return false };
        let before_ms = std::mem::replace(&mut pending.delivered_ms, at_ms);
        pending.deliveries += 1;
        if let Some(index) = &mut self.by_delivery {
            index.remove(&(before_ms, id));
            index.insert((at_ms, id));
        }
        true
    }

    /// Notes that an entry was delivered to an existing consumer, even if another one had it before.
    pub fn deliver(&mut self, id: StreamId, consumer: &[u8], delivery: Delivery) {
        let Some(to) = self.consumers.get_mut(consumer) else { return };
        to.pending.insert(id);
        let Delivery { at_ms, deliveries } = delivery;
        let pending = Pending { consumer: to.name.clone(), delivered_ms: at_ms, deliveries };
        let before = self.pending.insert(id, pending);
        if let Some(index) = &mut self.by_delivery {
            if let Some(before) = &before {
                index.remove(&(before.delivered_ms, id));
            }
            index.insert((at_ms, id));
        }
        if let Some(before) = before
            && *before.consumer != *consumer
            && let Some(from) = self.consumers.get_mut(&before.consumer)
        {
            from.pending.remove(&id);
        }
    }

    /// Acknowledges an entry. Returns true if it was pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        self.drop_from_index(pending.delivered_ms, id);
        if let Some(consumer) = self.consumers.get_mut(&pending.consumer) {
            consumer.pending.remove(&id);
        }
        true
    }
}
