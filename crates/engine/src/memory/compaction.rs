//! When memory is given back that deletions and changed lengths have left in half-empty pages of the allocator
//! (`activedefrag`).
//!
//! Once a second the first thread compares what the process holds with what is in use. If more than
//! `active-defrag-ignore-bytes` and `active-defrag-threshold-lower` percent lie between them, every thread looks
//! through its part of the shards once and has what lies in sparse pages moved (`store::compact`), for a share of its
//! time that grows with the waste from `active-defrag-cycle-min` to `active-defrag-cycle-max` percent: beyond the
//! minimum, only of the time that clients leave it. It ends sooner if hardly any waste is left, and the next pass goes
//! on with the shard where it was. Unlike in Redis, it is on from the start: `used_memory` is to be what the process
//! holds.
//!
//! Not all waste can be cured this way. A pass that was of little use is followed by ever longer pauses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How often the waste is looked at, in milliseconds. It is also the shortest pause after a pass: the allocator gives
/// pages back some tenths of a second after they became free.
pub(crate) const LOOK_MS: u64 = 1000;
/// The longest pause after passes that were of no use, in milliseconds.
const PAUSE_MS_MAX: u64 = 15 * 60 * 1000;
/// A pass was of use if it freed one part in so many of the waste.
const USEFUL_PART: u64 = 8;
/// A pass ends before it has looked through everything when less than one part in so many of the waste is left from
/// which on one begins.
const ENOUGH_PART: u64 = 2;
/// A look finds the pass fruitless for now if fewer than one in so many of the blocks that were looked at since the
/// last have moved: to look at 64 takes two microseconds, and a block that moves gives back some forty bytes. What is
/// to be moved may lie together, in another database or in large values, so it goes on, with the least time.
const FRUITLESS_PART: u64 = 64;
/// What all threads know of it.
#[derive(Default)]
pub struct Compaction {
    /// The number of the pass that is wanted; 0 before the first.
    pub(crate) pass: AtomicU64,
    /// Threads that have not ended it yet.
    pub(crate) at_it: AtomicU64,
    /// The share of a thread's time that it may take, in percent; 0 ends the pass, since hardly any waste is left.
    pub(crate) percent: AtomicU64,
    /// Blocks moved.
    pub moved: AtomicU64,
    /// Blocks looked at that stayed.
    pub stayed: AtomicU64,
    /// Time spent, in microseconds.
    pub spent_us: AtomicU64,
    pace: Mutex<CompactionPace>,
}

/// When the next pass may begin.
#[derive(Default)]
struct CompactionPace {
    next_look_ms: u64,
    /// What lay between held and used when the last pass began.
    waste_before: u64,
    /// The pause after the last pass.
    pause_ms: u64,
    /// No pass begins before.
    resume_ms: u64,
    /// A pass has begun, and what it gave was not looked at yet.
    unjudged: bool,
    /// The share of a thread's time that the pass deserves, in percent, as long as it finds what is to be moved.
    percent: u64,
    /// Blocks that had been moved, and that had stayed, at the last look.
    moved: u64,
    stayed: u64,
}

/// When a pass is worthwhile, and how much time it may take: the directives.
pub struct Thresholds {
    /// `active-defrag-ignore-bytes`.
    pub ignore_bytes: u64,
    /// `active-defrag-threshold-lower` and `-upper`, in percent of what is in use.
    pub percent: [u64; 2],
    /// `active-defrag-cycle-min` and `-max`, in percent of a thread's time.
    pub cycle: [u64; 2],
}

impl Thresholds {
    /// The share of a thread's time, in percent, that so much waste deserves; none if it is tolerable.
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

    /// Whether so little waste is left that looking for more of it isn't worthwhile.
    fn is_enough(&self, waste: u64, used: u64) -> bool {
        self.share(waste.saturating_mul(ENOUGH_PART), used).is_none()
    }
}

impl Compaction {
    /// Starts the counters over (CONFIG RESETSTAT).
    pub fn reset(&self) {
        // What a pass has found is judged by how far they have come, with this lock.
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        (pace.moved, pace.stayed) = (0, 0);
        [&self.moved, &self.stayed, &self.spent_us].into_iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }

    /// The share of a thread's time that is spent on it at the moment, in percent.
    #[must_use]
    pub fn running_percent(&self) -> u64 {
        if self.at_it.load(Ordering::Relaxed) > 0 { self.percent.load(Ordering::Relaxed) } else { 0 }
    }

    /// Begins a pass if there is need. `memory` is asked for what the process holds and what is in use, once a second.
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
            // The pass has just ended: what it has freed shows a moment later.
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

    /// Gives the pass that goes on more time if there is more waste than when it began: what begins with little would
    /// go on at that pace for a minute. It is judged by the most that there was. While it finds next to nothing it has
    /// the least. Ends it if there is hardly any waste left.
    fn hasten(&self, pace: &mut CompactionPace, thresholds: &Thresholds, [held, used]: [u64; 2]) {
        // One that ends stays ended, also while a thread has yet to see it.
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

    /// Whether hardly any of the blocks that were looked at since this was last asked have moved.
    fn is_fruitless(&self, pace: &mut CompactionPace) -> bool {
        let [moved, stayed] = [&self.moved, &self.stayed].map(|count| count.load(Ordering::Relaxed));
        let moved_since = moved - std::mem::replace(&mut pace.moved, moved);
        let stayed_since = stayed - std::mem::replace(&mut pace.stayed, stayed);
        moved_since.saturating_mul(FRUITLESS_PART) < stayed_since
    }
}

/// How far a thread is.
#[derive(Default)]
pub(crate) struct CompactionProgress {
    /// The pass that it has begun.
    pub pass: u64,
    /// Parts that it has looked through.
    pub parts: usize,
    /// The part that is next, among the thread's shards of all databases, and the cursor within.
    pub part: usize,
    pub cursor: u64,
    /// The part's table has been looked through.
    pub swept: bool,
    /// Large values that were met in it, which come then.
    pub large: Vec<Box<[u8]>>,
    pub large_cursor: u64,
    pub done: bool,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MB: u64 = 1 << 20;
    const THRESHOLDS: Thresholds = Thresholds { ignore_bytes: MB, percent: [10, 60], cycle: [1, 51] };

    /// Has it look at 100 MB in use and so much waste, and says what share of the time a pass has then.
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
        // Its worth is what it has freed of the most that there was: the next follows after the shortest pause.
        compaction.at_it.store(0, Ordering::Relaxed);
        assert_eq!(look(5 * LOOK_MS, 20), 0);
        assert_eq!(look(6 * LOOK_MS, 20), 11);
    }

    #[test]
    fn a_pass_that_finds_next_to_nothing_has_the_least_time_until_it_does() {
        let compaction = Compaction::default();
        let look = |now_ms| look(&compaction, now_ms, 40);
        let find = |moved, stayed| {
            compaction.moved.fetch_add(moved, Ordering::Relaxed);
            compaction.stayed.fetch_add(stayed, Ordering::Relaxed);
        };
        // What others have found before it says nothing of this one.
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
        // CONFIG RESETSTAT in its midst: what it finds from then on counts.
        compaction.reset();
        find(9, 640);
        assert_eq!(look(6 * LOOK_MS), 1);
    }

    #[test]
    fn a_pass_ends_when_hardly_any_waste_is_left() {
        let compaction = Compaction::default();
        let look = |now_ms, waste_mb| look(&compaction, now_ms, waste_mb);
        assert_eq!(look(LOOK_MS, 20), 11);
        // Below where it begins, but not by much.
        assert_eq!(look(2 * LOOK_MS, 6), 11);
        assert_eq!(look(3 * LOOK_MS, 4), 0);
        assert_eq!(look(4 * LOOK_MS, 40), 0);
        assert_eq!(compaction.at_it.load(Ordering::Relaxed), 1, "the thread has to see it first");
        // It was of use.
        compaction.at_it.store(0, Ordering::Relaxed);
        assert_eq!(look(5 * LOOK_MS, 12), 0);
        assert_eq!(look(6 * LOOK_MS, 12), 3);
    }
}
