//! Upkeep as batches and the server ask for it: the waiters of keys that it removes are served.

use std::time::Duration;

use crate::services::invalidations;
use crate::upkeep::expiry::look_us;
use crate::worker::{Pass, Worker};

impl Worker {
    /// Evicts keys if too much memory is in use, and notes whether it still is, before so many commands. The caller is
    /// inside the gate and holds no shard.
    #[inline]
    pub(super) fn mind_memory(&mut self, commands: usize, inside: &mut Pass) {
        self.keep_to_limit(commands, |worker| {
            if !worker.ready.is_empty() {
                worker.serve_ready(inside);
            }
        });
    }

    /// The same between commands, so that a limit that was lowered does not wait for the next. Says whether there is
    /// more to do.
    pub fn relieve_memory(&mut self) -> bool {
        let max = self.engine.settings.maxmemory.get();
        if max == 0 || self.engine.limited_memory() <= max || self.engine.keeps_keys() {
            return false;
        }
        let mut inside = self.pass();
        if inside.is_none() {
            return false;
        }
        self.mind_memory(1, &mut inside);
        !self.memory.full && self.engine.limited_memory() > max
    }

    /// Removes expired keys, for as long as is due when that is done once a `tick`, and remembered keys that are too many. Says
    /// whether there are more.
    pub fn look_for_expired(&mut self, tick: Duration) -> bool {
        // The limit may have been lowered since the last batch, or the last client that caches have gone.
        let has_tracked_keys = invalidations::keep_table_small(self, None);
        self.reclaim_expired(look_us(tick, self.engine.settings.active_expire_effort.get()), Worker::serve_ready)
            | has_tracked_keys
    }
}
