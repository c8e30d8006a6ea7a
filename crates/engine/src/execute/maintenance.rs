//! Upkeep for batches and for the server, including service of the waiters of removed keys.

use std::time::Duration;

use crate::services::invalidations;
use crate::upkeep::expiry::look_us;
use crate::worker::{GateGuard, Worker};

impl Worker {
    /// Evicts keys if too much memory is in use, and notes whether it still is, before `commands` commands. The caller
    /// is inside the gate and holds no shard.
    #[inline]
    pub(super) fn check_memory(&mut self, commands: usize, inside: &mut GateGuard) {
        self.keep_to_limit(commands, |worker| {
            if !worker.ready.is_empty() {
                worker.serve_ready(inside);
            }
        });
    }

    /// Evicts keys between commands, so that a lowered limit takes effect without a command. Returns whether there is
    /// more to do.
    pub fn relieve_memory(&mut self) -> bool {
        let max = self.engine.settings.maxmemory.get();
        if max == 0 || self.engine.limited_memory() <= max || self.engine.keeps_keys() {
            return false;
        }
        let mut inside = self.enter_gate();
        if inside.is_none() {
            return false;
        }
        self.check_memory(1, &mut inside);
        !self.memory.full && self.engine.limited_memory() > max
    }

    /// Deletes keys of slots that this node has lost, for a moment. Returns whether there are more.
    pub fn drop_slots(&mut self) -> bool {
        self.drop_slot_keys(Worker::serve_ready)
    }

    /// Removes expired keys within the time budget of one `tick`, and surplus remembered keys. Returns whether there
    /// are more.
    pub fn look_for_expired(&mut self, tick: Duration) -> bool {
        // The limit may have been lowered since the last batch, or the last caching client may have left.
        let has_tracked_keys = invalidations::keep_table_small(self, None);
        self.reclaim_expired(look_us(tick, self.engine.settings.active_expire_effort.get()), Worker::serve_ready)
            | has_tracked_keys
    }
}
