//! The engine's end of the journal: where units get their positions and their way to a reader.
//!
//! What a unit is, and the order of units, stands in the crate `journal`. Without a reader nothing is recorded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::lane::{Audience, Lane, Writer, lane};
use journal::merge::Merge;
use journal::order::{Order, Position};
use store::keyspace::Keyspace;

use crate::reasons::{EngineReasons, RECORDED};

/// See the module's documentation.
pub struct Journal {
    order: Order,
    /// Where it stands whether there is a reader.
    reasons: Arc<EngineReasons>,
    /// Each thread's end of its lane, until the thread has it.
    writers: Mutex<Vec<Option<Writer>>>,
    /// Where readers join.
    lanes: Vec<Lane>,
    /// How many there are.
    readers: Mutex<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is always whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    /// An empty journal of so many threads.
    #[must_use]
    pub fn new(threads: usize, reasons: Arc<EngineReasons>) -> Journal {
        let (writers, lanes): (Vec<_>, Vec<_>) = (0..threads).map(|_| lane()).unzip();
        let writers = Mutex::new(writers.into_iter().map(Some).collect());
        Journal { order: Order::new(threads), reasons, writers, lanes, readers: Mutex::new(0) }
    }

    /// A thread's end of its lane. A second worker of the same number gets one that nothing reads.
    #[must_use]
    pub(crate) fn writer(&self, worker: usize) -> Writer {
        let own = lock(&self.writers).get_mut(worker).and_then(Option::take);
        own.unwrap_or_else(|| lane().0)
    }

    /// Begins to record: the reader gets every unit that is committed after this returns, and none from before. None if
    /// there is a reader for this audience. The caller is outside the gate of `keyspace`.
    pub fn read(&self, keyspace: &Keyspace, audience: Audience) -> Option<Merge> {
        let _alone = keyspace.gate().close();
        self.read_alone(audience)
    }

    /// The same. The caller is alone behind the gate.
    pub fn read_alone(&self, audience: Audience) -> Option<Merge> {
        let joined = self.lanes.iter().map(|lane| lane.join(audience)).collect::<Option<Vec<_>>>()?;
        *lock(&self.readers) += 1;
        self.reasons.set(RECORDED, true);
        Some(Merge::new(joined, self.order.last()))
    }

    /// Ends this reading. What the reader has not taken is lost to it. The caller is outside the gate of `keyspace`.
    pub fn end(&self, keyspace: &Keyspace, reader: Merge) {
        let _alone = keyspace.gate().close();
        self.end_alone(reader);
    }

    /// The same. The caller is alone behind the gate.
    pub fn end_alone(&self, reader: Merge) {
        drop(reader);
        let mut readers = lock(&self.readers);
        *readers -= 1;
        self.reasons.set(RECORDED, *readers > 0);
    }

    /// True if there is a reader. The caller is inside the gate, or alone behind it.
    #[inline]
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.reasons.has(RECORDED)
    }

    /// The next position. The caller holds every shard that its unit changed.
    #[inline]
    pub(crate) fn next_position(&self) -> Position {
        self.order.next()
    }

    /// The position of the latest unit; 0 if there was none.
    #[must_use]
    pub fn position(&self) -> Position {
        self.order.last()
    }
}
