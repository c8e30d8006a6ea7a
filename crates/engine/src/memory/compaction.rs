//! Compaction (`activedefrag`): decides when to return memory that deletions and changed lengths have left in
//! half-empty pages of the allocator.
//!
//! Once a second the first thread compares the resident memory of the process with the memory in use. If the
//! difference, the waste, exceeds both `active-defrag-ignore-bytes` and `active-defrag-threshold-lower` percent, every
//! thread makes a pass over its part of the shards and moves blocks out of sparse pages (`store::compact`). A pass
//! takes a share of the thread's time that grows with the waste, from `active-defrag-cycle-min` to
//! `active-defrag-cycle-max` percent; beyond the minimum, it takes only idle time. It ends early if hardly any waste is
//! left, and the next pass continues at that shard. Unlike in Redis, compaction is on by default, to keep `used_memory`
//! close to the resident memory.
//!
//! Compaction can't remove all waste. After a pass with little effect, the pauses between passes grow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Interval of the check for waste, in milliseconds. Also the shortest pause after a pass, because the allocator
/// returns free pages only after some tenths of a second.
pub(crate) const LOOK_MS: u64 = 1000;
/// The longest pause after useless passes, in milliseconds.
const PAUSE_MS_MAX: u64 = 15 * 60 * 1000;
/// A pass was useful if it freed at least this part of the waste: one in eight.
const USEFUL_PART: u64 = 8;
/// A pass ends early when the waste falls below this part of the threshold to begin one: one half.
const ENOUGH_PART: u64 = 2;
/// A check finds the pass fruitless for now if fewer than one in this number of the blocks since the last check were
/// moved: scanning 64 blocks takes two microseconds, and a moved block returns some forty bytes. Sparse pages may be
/// clustered in another database or in large values, so the pass continues, with the minimum of time.
const FRUITLESS_PART: u64 = 64;
/// The state of compaction that all threads share.
#[derive(Default)]
pub struct Compaction {
    /// The number of the present pass; 0 before the first one.
    pub(crate) pass: AtomicU64,
    /// Number of threads that have not finished the pass.
    pub(crate) at_it: AtomicU64,
    /// Share of a thread's time for the pass, in percent; 0 ends the pass because hardly any waste is left.
    pub(crate) percent: AtomicU64,
    /// Number of moved blocks.
    pub moved: AtomicU64,
    /// Number of scanned blocks that stayed in place.
    pub stayed: AtomicU64,
    /// Time spent, in microseconds.
    pub spent_us: AtomicU64,
    pace: Mutex<CompactionPace>,
}

/// Schedule of the next pass.
#[derive(Default)]
struct CompactionPace {
    next_look_ms: u64,
    /// The waste when the last pass began.
    waste_before: u64,
    /// The pause after the last pass.
    pause_ms: u64,
    /// Earliest start of the next pass.
    resume_ms: u64,
    /// True if a pass has begun and its effect has not been judged yet.
    unjudged: bool,
    /// Share of a thread's time that the waste justifies, in percent, as long as the pass finds blocks to move.
    percent: u64,
    /// Numbers of moved and unmoved blocks at the last check.
    moved: u64,
    stayed: u64,
}

/// The directives that decide when a pass is worthwhile, and how much time it may take.
pub struct Thresholds {
    /// `active-defrag-ignore-bytes`.
    pub ignore_bytes: u64,
    /// `active-defrag-threshold-lower` and `-upper`, in percent of the memory in use.
    pub percent: [u64; 2],
    /// `active-defrag-cycle-min` and `-max`, in percent of a thread's time.
    pub cycle: [u64; 2],
}

impl Thresholds {
    /// Returns the share of a thread's time that this waste justifies, in percent; `None` if it is tolerable.
    fn share(&self, waste: u64, used: u64) -> Option<u64> {
        let percent = waste.saturating_mul(100) / used.max(1);
        let [lower, upper] = self.percent;
        if waste < self.ignore_bytes || percent < lower {
            return None;
        }
        let [min, max] = self.cycle;
        let above = percent.min(upper).saturating_sub(lower) as f64 / upper.saturating_sub(lower).max(1) as f64;
        Some(min + (above * max.saturating_sub(min) as f64) as u64)
    }

    /// Returns true if the remaining waste isn't worth a further scan.
    fn is_enough(&self, waste: u64, used: u64) -> bool {
        self.share(waste.saturating_mul(ENOUGH_PART), used).is_none()
    }
}

impl Compaction {
    /// Resets the counters (CONFIG RESETSTAT).
    pub fn reset(&self) {
        // The judgement of a pass compares these counters with earlier values, under this lock.
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        (pace.moved, pace.stayed) = (0, 0);
        [&self.moved, &self.stayed, &self.spent_us].into_iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// Returns the share of a thread's time that compaction takes at present, in percent.
    #[must_use]
    pub fn running_percent(&self) -> u64 {
        if self.at_it.load(Ordering::Relaxed) > 0 { self.percent.load(Ordering::Relaxed) } else { 0 }
    }

    /// Begins a pass if needed. Once a second it calls `memory`, which returns the resident memory and the memory in
    /// use.
    pub fn look(&self, now_ms: u64, threads: usize, thresholds: &Thresholds, memory: impl FnOnce() -> [u64; 2]) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ms < pace.next_look_ms {
            return;
        }
        pace.next_look_ms = now_ms + LOOK_MS;
        if self.at_it.load(Ordering::Acquire) > 0 {
            self.hasten(&mut pace, thresholds, memory());
            return;
        }
        if pace.unjudged && pace.resume_ms == 0 {
            // A pass has just ended; its effect shows a moment later.
            pace.resume_ms = now_ms + LOOK_MS;
        }
        if now_ms < pace.resume_ms {
            return;
        }
        let [held, used] = memory();
        let waste = held.saturating_sub(used);
        if std::mem::take(&mut pace.unjudged) {
            let useful = waste < pace.waste_before - pace.waste_before / USEFUL_PART;
            pace.pause_ms = if useful { LOOK_MS } else { (pace.pause_ms * 2).clamp(LOOK_MS, PAUSE_MS_MAX) };
            pace.resume_ms = now_ms + pace.pause_ms;
            if !useful {
                return;
            }
        }
        let Some(percent) = thresholds.share(waste, used) else { return };
        pace.percent = percent.max(1);
        self.is_fruitless(&mut pace);
        self.percent.store(pace.percent, Ordering::Relaxed);
        (pace.waste_before, pace.unjudged, pace.resume_ms) = (waste, true, 0);
        self.at_it.store(threads as u64, Ordering::Relaxed);
        self.pass.fetch_add(1, Ordering::Release);
    }

    /// Adjusts the time of the running pass. More waste than at its start gives it more time, and it is judged by the
    /// maximum; a small share would otherwise last for a minute. While it finds hardly any blocks to move, it gets the
    /// minimum. Ends the pass if hardly any waste is left.
    fn hasten(&self, pace: &mut CompactionPace, thresholds: &Thresholds, [held, used]: [u64; 2]) {
        // An ended pass stays ended, even if a thread has not noticed yet.
        if self.percent.load(Ordering::Relaxed) == 0 {
            return;
        }
        let waste = held.saturating_sub(used);
        pace.waste_before = pace.waste_before.max(waste);
        pace.percent = pace.percent.max(thresholds.share(waste, used).unwrap_or(0));
        let percent = match (thresholds.is_enough(waste, used), self.is_fruitless(pace)) {
            (true, _) => 0,
            (false, true) => thresholds.cycle[0].max(1).min(pace.percent),
            (false, false) => pace.percent,
        };
        self.percent.store(percent, Ordering::Relaxed);
    }

    /// Returns true if hardly any blocks were moved since the last call.
    fn is_fruitless(&self, pace: &mut CompactionPace) -> bool {
        let [moved, stayed] = [&self.moved, &self.stayed].map(|count| count.load(Ordering::Relaxed));
        let moved_since = moved - std::mem::replace(&mut pace.moved, moved);
        let stayed_since = stayed - std::mem::replace(&mut pace.stayed, stayed);
        moved_since.saturating_mul(FRUITLESS_PART) < stayed_since
    }
}

/// A thread's progress.
#[derive(Default)]
pub(crate) struct CompactionProgress {
    /// The pass that it has begun.
    pub pass: u64,
    /// Number of scanned parts.
    pub parts: usize,
    /// The next part among the thread's shards of all databases, and the cursor within it.
    pub part: usize,
    pub cursor: u64,
    /// True if the part's table has been scanned.
    pub swept: bool,
    /// Large values in the part, to be scanned after the table.
    pub large: Vec<Box<[u8]>>,
    pub large_cursor: u64,
    pub done: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MB: u64 = 1 << 20;
    const THRESHOLDS: Thresholds = Thresholds { ignore_bytes: MB, percent: [10, 60], cycle: [1, 51] };

    /// Checks with 100 MB in use and this waste, and returns the share of time of a pass.
    pub(crate) fn look(compaction: &Compaction, now_ms: u64, waste_mb: u64) -> u64 {
        compaction.look(now_ms, 1, &THRESHOLDS, || [(100 + waste_mb) * MB, 100 * MB]);
        compaction.running_percent()
    }

    #[test]
    fn a_pass_gets_more_time_when_waste_grows_and_keeps_it() {
        let compaction = Compaction::default();
        let look = |now_ms, waste_mb| look(&compaction, now_ms, waste_mb);
        assert_eq!(look(LOOK_MS, 9), 0);
        assert_eq!(look(2 * LOOK_MS, 11), 2);
        assert_eq!(look(3 * LOOK_MS - 1, 40), 2);
        assert_eq!(look(3 * LOOK_MS, 40), 31);
        assert_eq!(look(4 * LOOK_MS, 11), 31);
        // The pass is judged against the maximum waste: the next one follows after the shortest pause.
        compaction.at_it.store(0, Ordering::Relaxed);
        assert_eq!(look(5 * LOOK_MS, 20), 0);
        assert_eq!(look(6 * LOOK_MS, 20), 11);
    }

    #[test]
    fn a_fruitless_pass_gets_the_minimum_of_time() {
        let compaction = Compaction::default();
        let look = |now_ms| look(&compaction, now_ms, 40);
        let find = |moved, stayed| {
            compaction.moved.fetch_add(moved, Ordering::Relaxed);
            compaction.stayed.fetch_add(stayed, Ordering::Relaxed);
        };
        // Blocks that were found before the pass don't count.
        find(0, 1_000_000);
        assert_eq!(look(LOOK_MS), 31);
        find(10, 640);
        assert_eq!(look(2 * LOOK_MS), 31);
        find(9, 640);
        assert_eq!(look(3 * LOOK_MS), 1);
        find(0, 100);
        assert_eq!(look(4 * LOOK_MS), 1);
        find(10, 300);
        assert_eq!(look(5 * LOOK_MS), 31);
        // CONFIG RESETSTAT during the pass: later finds still count.
        compaction.reset();
        find(9, 640);
        assert_eq!(look(6 * LOOK_MS), 1);
    }

    #[test]
    fn a_pass_ends_when_hardly_any_waste_is_left() {
        let compaction = Compaction::default();
        let look = |now_ms, waste_mb| look(&compaction, now_ms, waste_mb);
        assert_eq!(look(LOOK_MS, 20), 11);
        // Slightly below the threshold to begin one.
        assert_eq!(look(2 * LOOK_MS, 6), 11);
        assert_eq!(look(3 * LOOK_MS, 4), 0);
        assert_eq!(look(4 * LOOK_MS, 40), 0);
        assert_eq!(compaction.at_it.load(Ordering::Relaxed), 1, "the thread has to see it first");
        // The pass was useful.
        compaction.at_it.store(0, Ordering::Relaxed);
        assert_eq!(look(5 * LOOK_MS, 12), 0);
        assert_eq!(look(6 * LOOK_MS, 12), 3);
    }
}
