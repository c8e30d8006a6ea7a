//! Moves what lies in half-empty pages of the allocator. When that is done, and for how long, is `memory::compaction`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use store::compact::Mover;
use store::db::Db;
use store::keyspace::Key;

use crate::machine::ticks::{Ticks, per_microsecond};
use crate::memory::compaction::CompactionProgress;
use crate::services::slow;
use crate::worker::Worker;

/// Steps of a table between two looks at the time.
const STEPS_AT_ONCE: usize = 8;
/// Large values that a thread remembers to look through. Beyond that, they wait for the next pass.
const LARGE_MAX: usize = 1024;

/// So many percent of a tick, less what has been spent on removing keys, but no less than so many.
fn share_of(tick: Duration, percent: f64, min_percent: f64, removing: Duration) -> Duration {
    tick.mul_f64(percent / 100.0).saturating_sub(removing).max(tick.mul_f64(min_percent / 100.0))
}

impl Worker {
    /// Whether [`Worker::compact_memory`] may have something to do.
    #[must_use]
    pub fn may_compact(&self) -> bool {
        self.engine.compaction.at_it.load(Ordering::Relaxed) > 0
    }

    /// Spends its share of the next `tick` on moving what lies in sparse pages, if that is wanted, and no more than the
    /// minimum where removing keys has had that share already: clients wait for both. `idle` is the part of the time,
    /// from 0 to 1, in which the thread did not run, or only polled, of late. Says whether there is more to do.
    pub fn compact_memory(&mut self, tick: Duration, removing: Duration, idle: f64) -> bool {
        let compaction = &self.engine.compaction;
        let pass = compaction.pass.load(Ordering::Acquire);
        if pass != self.upkeep.compacting.pass {
            self.upkeep.compacting =
                CompactionProgress { pass, part: self.upkeep.compacting.part, ..CompactionProgress::default() };
        }
        if pass == 0 || self.upkeep.compacting.done {
            return false;
        }
        let percent = compaction.percent.load(Ordering::Relaxed);
        if percent == 0 || !self.engine.settings.activedefrag.get() {
            self.end_compaction();
            return false;
        }
        // While commands are held back, or a script has the keyspace, it waits.
        if self.engine.keeps_keys() {
            return true;
        }
        let inside = self.pass();
        if inside.is_none() {
            return true;
        }
        let began = Ticks::now();
        let min = self.engine.settings.active_defrag_cycle_min.get() as f64;
        let share = share_of(tick, percent as f64 * idle, min, removing);
        let budget = (share.as_secs_f64() * 1e6 * per_microsecond()) as u64;
        let is_sparse = |block: *const u8| self.engine.host.is_sparse(block);
        let mut mover = Mover::new(&is_sparse, self.engine.settings.active_defrag_max_scan_fields.get() as usize);
        let mut progress = std::mem::take(&mut self.upkeep.compacting);
        while !progress.done && Ticks::now().since(began) <= budget {
            self.compact_some(&mut progress, &mut mover);
        }
        let ticks = Ticks::now().since(began);
        compaction.moved.fetch_add(mover.moved, Ordering::Relaxed);
        compaction.stayed.fetch_add(mover.seen - mover.moved, Ordering::Relaxed);
        compaction.spent_us.fetch_add((ticks as f64 / per_microsecond()) as u64, Ordering::Relaxed);
        let done = progress.done;
        self.upkeep.compacting = progress;
        if done {
            self.end_compaction();
        }
        slow::note_moment(self, "active-defrag-cycle", ticks);
        !done
    }

    /// This thread has ended the pass, or gives it up.
    fn end_compaction(&mut self) {
        self.upkeep.compacting.done = true;
        self.engine.compaction.at_it.fetch_sub(1, Ordering::Release);
    }

    /// A few steps in one shard, behind its lock.
    fn compact_some(&mut self, progress: &mut CompactionProgress, mover: &mut Mover<'_>) {
        let engine = self.engine;
        let threads = engine.inboxes.len();
        // Threads share the work as they do in looking for expired keys.
        let shards = engine.keyspace.shard_count().saturating_sub(self.id).div_ceil(threads);
        let parts = shards * engine.keyspace.databases();
        if progress.parts >= parts {
            progress.done = true;
            return;
        }
        let (database, shard) = (progress.part / shards, self.id + progress.part % shards * threads);
        let Some(mut locked) = engine.keyspace.lock_one_unless(shard, engine.busy.ends_waits()) else { return };
        let mut db = Db::new(&mut locked, database, &self.clock, &mut self.observed);
        for _ in 0..STEPS_AT_ONCE {
            if !progress.swept {
                progress.cursor = db.compact(shard, progress.cursor, mover, &mut progress.large);
                progress.large.truncate(LARGE_MAX);
                progress.swept = progress.cursor == 0;
            } else if let Some(name) = progress.large.last() {
                progress.large_cursor = db.compact_large(Key::new(name), progress.large_cursor, mover);
                if progress.large_cursor == 0 {
                    progress.large.pop();
                }
            } else {
                progress.parts += 1;
                progress.part = (progress.part + 1) % parts;
                progress.swept = false;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::compaction::LOOK_MS;
    use crate::memory::compaction::tests::look;
    use crate::testing::Bench;

    const TICK: Duration = Duration::from_millis(1);

    #[test]
    fn what_removing_keys_has_taken_counts_as_time_that_clients_wait() {
        let share = |removing_us| share_of(TICK, 25.0, 1.0, Duration::from_micros(removing_us)).as_micros();
        assert_eq!([0, 100, 240, 250, 2000].map(share), [250, 150, 10, 10, 10]);
    }

    #[test]
    fn a_pass_goes_on_where_the_last_one_ended_and_looks_through_everything() {
        const KEYS: u64 = 500;
        let mut bench = Bench::default();
        let mut session = bench.open();
        for i in 0..KEYS {
            bench.check(&mut session, &[(&format!("SET key:{i} value"), "+OK")]);
        }
        let engine = bench.worker.engine;
        let look = |now_ms, waste_mb| look(&engine.compaction, now_ms, waste_mb);
        let stayed = || engine.compaction.stayed.load(Ordering::Relaxed);
        look(LOOK_MS, 100);
        while bench.worker.upkeep.compacting.part == 0 {
            assert!(bench.worker.compact_memory(Duration::from_micros(10), Duration::ZERO, 1.0));
        }
        look(2 * LOOK_MS, 1);
        assert!(!bench.worker.compact_memory(TICK, Duration::ZERO, 1.0) && !bench.worker.may_compact());
        let (ended, before) = (bench.worker.upkeep.compacting.part, stayed());
        assert!(ended > 0 && before < KEYS);
        // Seen to have been of use, it is followed by another.
        look(3 * LOOK_MS, 50);
        look(4 * LOOK_MS, 50);
        while bench.worker.compact_memory(TICK, Duration::ZERO, 1.0) {}
        assert_eq!((stayed() - before, bench.worker.upkeep.compacting.part), (KEYS, ended));
    }
}
