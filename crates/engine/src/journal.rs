//! The engine's end of the journal, which gives units their positions and hands them to readers.
//!
//! The crate `journal` defines units and their order. Without a reader nothing is recorded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use journal::lane::{Audience, Lane, Writer, lane};
use journal::merge::Merge;
use journal::order::{Order, Position};
use store::keyspace::Keyspace;

use crate::slow_path::{EngineFlags, RECORDED};

/// See the module's documentation.
pub struct Journal {
    order: Order,
    /// The flags, one of them set while there is a reader.
    slow_path: Arc<EngineFlags>,
    /// Each thread's end of its lane, until the thread takes it.
    writers: Mutex<Vec<Option<Writer>>>,
    /// The lanes that readers join.
    lanes: Vec<Lane>,
    readers: Mutex<Readers>,
}

/// The readers of the journal.
#[derive(Default)]
struct Readers {
    count: usize,
    /// True while changes are made that no reader gets.
    is_suspended: bool,
}

impl Readers {
    fn get_units(&self) -> bool {
        self.count > 0 && !self.is_suspended
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics with these values half changed, so a poisoned lock is harmless.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Journal {
    /// An empty journal for this number of threads.
    #[must_use]
    pub fn new(threads: usize, slow_path: Arc<EngineFlags>) -> Journal {
        let (writers, lanes): (Vec<_>, Vec<_>) = (0..threads).map(|_| lane()).unzip();
        let writers = Mutex::new(writers.into_iter().map(Some).collect());
        Journal { order: Order::new(threads), slow_path, writers, lanes, readers: Mutex::default() }
    }

    /// Returns a thread's end of its lane. A second worker with the same number gets a lane without a reader.
    #[must_use]
    pub(crate) fn writer(&self, worker: usize) -> Writer {
        let own = lock(&self.writers).get_mut(worker).and_then(Option::take);
        own.unwrap_or_else(|| lane().0)
    }

    /// Returns the memory of the lanes: of the bytes that readers have not taken, and of memory for the next ones.
    #[must_use]
    pub(crate) fn memory(&self) -> usize {
        self.lanes.iter().map(Lane::memory).sum()
    }

    /// Begins to record: the reader gets every unit that is committed after this returns, and no earlier one. Returns
    /// `None` if this audience has a reader already. The caller is outside the gate of `keyspace`.
    pub fn read(&self, keyspace: &Keyspace, audience: Audience) -> Option<Merge> {
        let _alone = keyspace.gate().close();
        self.read_alone(audience)
    }

    /// Like [`Journal::read`]. The caller is alone behind the gate.
    pub fn read_alone(&self, audience: Audience) -> Option<Merge> {
        let joined = self.lanes.iter().map(|lane| lane.join(audience)).collect::<Option<Vec<_>>>()?;
        self.change_readers(|readers| readers.count += 1);
        Some(Merge::new(joined, self.order.last()))
    }

    /// Ends this reading; units that the reader has not taken are dropped. The caller is outside the gate of
    /// `keyspace`.
    pub fn end(&self, keyspace: &Keyspace, reader: Merge) {
        let _alone = keyspace.gate().close();
        self.end_alone(reader);
    }

    /// Like [`Journal::end`]. The caller is alone behind the gate.
    pub fn end_alone(&self, reader: Merge) {
        drop(reader);
        self.change_readers(|readers| readers.count -= 1);
    }

    /// Begins or ends a suspension. Meanwhile nothing is recorded, for changes that readers have already or must not get.
    /// No client's command runs.
    pub fn suspend(&self, is_suspended: bool) {
        self.change_readers(|readers| readers.is_suspended = is_suspended);
    }

    fn change_readers(&self, change: impl FnOnce(&mut Readers)) {
        let mut readers = lock(&self.readers);
        change(&mut readers);
        self.slow_path.set(RECORDED, readers.get_units());
    }

    /// Returns whether there is a reader, and no suspension. The caller is inside the gate, or alone behind it.
    #[inline]
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.slow_path.has(RECORDED)
    }

    /// Returns the next position. The caller holds every shard that its unit changed.
    #[inline]
    pub(crate) fn next_position(&self) -> Position {
        self.order.next()
    }

    /// Returns the position of the latest unit, or 0.
    #[must_use]
    pub fn position(&self) -> Position {
        self.order.last()
    }
}
