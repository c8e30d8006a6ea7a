//! The locks that a thread takes before it touches keys: the gate and the shards.

use commands::call::KeyRef;
use store::keyspace::{Locked, Shards};
use store::sync::Inside;

use super::Worker;
use statistics::ticks::Ticks;

/// The guard of a thread inside the gate; `None` while the thread is alone behind it, or outside.
pub(crate) type GateGuard = Option<Inside<'static>>;

impl Worker {
    /// Enters the gate. Returns `None` if the gate stays closed because of a busy script.
    #[inline]
    pub(crate) fn enter_gate(&mut self) -> GateGuard {
        let inside = self.enter_gate_to_look();
        // Readers join and leave the journal behind the closed gate.
        self.effects.recording = self.engine.journal.is_read();
        inside
    }

    /// Like [`Worker::enter_gate`], for a thread that runs no command.
    #[inline]
    pub(crate) fn enter_gate_to_look(&self) -> GateGuard {
        let engine = self.engine;
        engine.keyspace.gate().enter_unless(self.id, engine.busy.ends_waits())
    }

    /// Returns the shards of keys, ascending and without duplicates, in the worker's own vector.
    pub(crate) fn take_shards(&mut self, keys: &[KeyRef]) -> Vec<usize> {
        let mut shards = std::mem::take(&mut self.shards);
        shards.clear();
        shards.extend(keys.iter().map(|k| self.engine.keyspace.shard_of(k.hash)));
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Locks shards, or returns `None` if a busy script holds one of them. The clock follows, because the wait may have
    /// been long.
    #[inline]
    pub(crate) fn lock<'k>(&mut self, shards: Shards<'k>) -> Option<Locked<'k>> {
        let engine = self.engine;
        let locked = engine.keyspace.lock(shards, engine.busy.ends_waits());
        self.clock.follow(Ticks::now());
        locked
    }
}
