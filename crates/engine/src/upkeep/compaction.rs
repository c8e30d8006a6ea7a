//! The step that moves values out of half-empty pages of the allocator. `memory::compaction` decides the time and the
//! budget.

use std::sync::atomic::Ordering;
use std::time::Duration;

use store::compact::Mover;
use store::db::Db;
use store::keyspace::{Key, Shards};

use crate::memory::compaction::CompactionProgress;
use crate::services::slow;
use crate::worker::Worker;
use statistics::ticks::{Ticks, per_microsecond};

/// Steps of a table between two reads of the clock.
const STEPS_AT_ONCE: usize = 8;
/// The greatest number of large values that a thread remembers for a later scan. The others wait for the next pass.
const LARGE_MAX: usize = 1024;

/// Returns `percent` of a tick, minus the time spent on removing keys, but at least `min_percent` of a tick.
fn share_of(tick: Duration, percent: f64, min_percent: f64, removing: Duration) -> Duration {
    tick.mul_f64(percent / 100.0).saturating_sub(removing).max(tick.mul_f64(min_percent / 100.0))
}

impl Worker {
    /// Returns whether [`Worker::compact_memory`] may have work.
    #[must_use]
    pub fn may_compact(&self) -> bool {
        self.engine.compaction.at_it.load(Ordering::Relaxed) > 0
    }

    /// Moves values out of sparse pages during this thread's share of the next `tick`, if that is wanted. Time spent on
    /// removing keys counts against the share, down to the minimum, because clients wait for both. `idle` is the recent
    /// fraction of time, from 0 to 1, in which the thread slept or polled. Returns whether there is more to do.
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
        // Compaction waits while keys must stay, which may last: a replica's keys are its primary's. It also waits for the walk of a
        // snapshot, as in Redis, because both take time from clients. No tick is early for that.
        if self.engine.keeps_keys() || self.engine.snapshots.walk() != 0 {
            return false;
        }
        // It also waits while a script has the keyspace.
        let inside = self.enter_gate();
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

    /// Ends this thread's part of the pass, or gives it up.
    fn end_compaction(&mut self) {
        self.upkeep.compacting.done = true;
        self.engine.compaction.at_it.fetch_sub(1, Ordering::Release);
    }

    /// Does a few steps in one shard, under its lock.
    fn compact_some(&mut self, progress: &mut CompactionProgress, mover: &mut Mover<'_>) {
        let engine = self.engine;
        let threads = engine.inboxes.len();
        // Threads divide the shards as in the search for expired keys.
        let shards = engine.keyspace.shard_count().saturating_sub(self.id).div_ceil(threads);
        let parts = shards * engine.keyspace.databases();
        if progress.parts >= parts {
            progress.done = true;
            return;
        }
        let (database, nth) = (progress.part / shards, progress.part % shards);
        let shard = self.id + nth * threads;
        if !progress.swept && progress.cursor == 0 {
            let next = engine.keyspace.next_occupied_by(database, shard, threads);
            let skipped = next.map_or(shards - nth, |next| (next - shard) / threads);
            if skipped > 0 {
                progress.parts += skipped;
                progress.part = (progress.part + skipped) % parts;
                return;
            }
        }
        let Some(mut locked) = engine.keyspace.lock(Shards::One(shard), engine.busy.ends_waits()) else { return };
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
    fn time_for_removing_keys_reduces_the_share() {
        let share = |removing_us| share_of(TICK, 25.0, 1.0, Duration::from_micros(removing_us)).as_micros();
        assert_eq!([0, 100, 240, 250, 2000].map(share), [250, 150, 10, 10, 10]);
    }

    #[test]
    fn a_pass_starts_where_the_last_one_ended_and_covers_everything() {
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
        // A pass that has been useful is followed by another.
        look(3 * LOOK_MS, 50);
        look(4 * LOOK_MS, 50);
        while bench.worker.compact_memory(TICK, Duration::ZERO, 1.0) {}
        assert_eq!((stayed() - before, bench.worker.upkeep.compacting.part), (KEYS, ended));
    }

    #[test]
    fn a_pass_that_waits_asks_for_no_early_tick() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        bench.check(&mut session, &[("SET key value", "+OK"), ("CLIENT PAUSE 1000 WRITE", "+OK")]);
        look(&bench.worker.engine.compaction, LOOK_MS, 100);
        assert!(!bench.worker.compact_memory(TICK, Duration::ZERO, 1.0) && bench.worker.may_compact());
        bench.check(&mut session, &[("CLIENT UNPAUSE", "+OK")]);
        while bench.worker.compact_memory(TICK, Duration::ZERO, 1.0) {}
        assert!(!bench.worker.may_compact());
    }
}
