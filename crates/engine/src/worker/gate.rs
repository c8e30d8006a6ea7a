//! What a thread passes, and holds, before it may touch keys: the gate and the shards.

use commands::call::KeyRef;
use store::keyspace::{Keyspace, Locked};
use store::sync::Inside;

use super::Worker;
use crate::machine::ticks::Ticks;

/// A thread's pass through the gate, given up while it is alone.
pub(crate) type Pass = Option<Inside<'static>>;

impl Worker {
    /// Passes the gate; not, if it is closed for a script that takes too long.
    #[inline]
    pub(crate) fn pass(&mut self) -> Pass {
        let inside = self.look_inside();
        // The journal gets and loses its reader behind the closed gate.
        self.effects.recording = self.engine.journal.is_read();
        inside
    }

    /// The same to run no command.
    #[inline]
    pub(crate) fn look_inside(&self) -> Pass {
        let engine = self.engine;
        engine.keyspace.gate().enter_unless(self.id, engine.busy.ends_waits())
    }

    /// The shards of keys, ascending and without duplicates, in the worker's own vector.
    pub(crate) fn take_shards(&mut self, keys: &[KeyRef]) -> Vec<usize> {
        let mut shards = std::mem::take(&mut self.shards);
        shards.clear();
        shards.extend(keys.iter().map(|k| self.engine.keyspace.shard_of(k.hash)));
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    /// Has `lock` take shards, which is to give up when it is told so, because of a script that takes too long; none
    /// then. The thread that had them may have had them for long.
    #[inline]
    pub(crate) fn lock<'k>(
        &mut self,
        lock: impl FnOnce(&'static Keyspace, &dyn Fn() -> bool) -> Option<Locked<'k>>,
    ) -> Option<Locked<'k>> {
        let engine = self.engine;
        let locked = lock(&engine.keyspace, &engine.busy.ends_waits());
        self.clock.follow(Ticks::now());
        locked
    }
}
