//! Durations of a run of one command, buffered for the counters.
//!
//! Pipelines consist of runs of one command, and every command is timed. Adding each duration to the counters at once
//! would stall the processor on the clock each time, because the histogram's bucket depends on it: an INCR took a tenth
//! longer.

use crate::stats::WorkerStats;

/// Maximum number of buffered durations. A thread that reads this thread's counters for INFO may miss this many
/// commands of the running batch; a thread alone behind the gate misses none.
pub const KEPT: usize = 64;

/// Durations of the commands of a run, in ticks, that aren't counted yet.
struct Timings {
    command: usize,
    count: usize,
    ticks: [u64; KEPT],
}

impl Default for Timings {
    fn default() -> Self {
        Timings { command: 0, count: 0, ticks: [0; KEPT] }
    }
}

impl Timings {
    /// Notes the duration of a command.
    #[inline(always)]
    fn note(&mut self, stats: &WorkerStats, tracks_latency: bool, command: usize, ticks: u64) {
        if self.command != command || self.count == KEPT {
            if self.holds_any() {
                self.count_all(stats, tracks_latency);
            }
            self.command = command;
        }
        if let Some(kept) = self.ticks.get_mut(self.count) {
            *kept = ticks;
            self.count += 1;
        }
    }

    /// Returns true if there are uncounted durations.
    #[inline(always)]
    fn holds_any(&self) -> bool {
        self.count > 0
    }

    /// Moves all durations to the counters.
    #[inline(never)]
    fn count_all(&mut self, stats: &WorkerStats, tracks_latency: bool) {
        let ticks = &self.ticks[..std::mem::take(&mut self.count)];
        let counters = &stats.commands[self.command];
        stats.executed.add(ticks.len() as u64);
        counters.calls.add(ticks.len() as u64);
        counters.ticks.add(ticks.iter().sum());
        if tracks_latency {
            counters.histogram.record(ticks);
        }
    }
}

/// Counts and times the commands of a thread.
pub struct Meter {
    stats: &'static WorkerStats,
    /// The latest durations that the counters don't include yet.
    timings: Timings,
    /// True if each command has a histogram of durations.
    pub tracks_latency: bool,
}

impl Meter {
    /// Creates a meter for these counters.
    pub fn new(stats: &'static WorkerStats) -> Meter {
        Meter { stats, timings: Timings::default(), tracks_latency: false }
    }

    /// Returns the counters.
    #[inline]
    pub fn stats(&self) -> &'static WorkerStats {
        self.stats
    }

    /// Notes the duration of a command.
    #[inline(always)]
    pub fn note(&mut self, command: usize, ticks: u64) {
        self.timings.note(self.stats, self.tracks_latency, command, ticks);
    }

    /// Moves the latest durations to the counters.
    #[inline(always)]
    pub fn count(&mut self) {
        if self.timings.holds_any() {
            self.timings.count_all(self.stats, self.tracks_latency);
        }
    }
}
