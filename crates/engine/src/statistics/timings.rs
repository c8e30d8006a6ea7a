//! What a run of one command has taken, until its counters get it.
//!
//! Pipelines are made of runs of one command, and every command is timed. To add each time to the counters at once has
//! the processor wait for the clock again and again, since where in the histogram a time belongs depends on it: an INCR
//! took a tenth more.

use crate::statistics::stats::WorkerStats;

/// Times that are kept at most. A thread that reads this one's counters, for INFO, may miss so many commands of the
/// batch that is just being run; one that is alone behind the gate misses none.
const KEPT: usize = 64;

/// Times of the commands of a run, in ticks, that are yet to be counted.
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
    /// Notes that the command of this number took so long.
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

    /// Whether there is something to be counted.
    #[inline(always)]
    fn holds_any(&self) -> bool {
        self.count > 0
    }

    /// Has the counters get all that was noted.
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

/// What a thread's commands take and do, counted for the thread.
pub(crate) struct Meter {
    stats: &'static WorkerStats,
    /// What the last commands took, as far as the counters are yet to get it.
    timings: Timings,
    /// True if a histogram of durations is kept for each command.
    pub tracks_latency: bool,
}

impl Meter {
    /// Counts for these counters.
    pub(crate) fn new(stats: &'static WorkerStats) -> Meter {
        Meter { stats, timings: Timings::default(), tracks_latency: false }
    }

    /// The counters.
    #[inline]
    pub(crate) fn stats(&self) -> &'static WorkerStats {
        self.stats
    }

    /// Notes that the command of this number took so long.
    #[inline(always)]
    pub(crate) fn note(&mut self, command: usize, ticks: u64) {
        self.timings.note(self.stats, self.tracks_latency, command, ticks);
    }

    /// Has the counters get what the last commands took.
    #[inline(always)]
    pub(crate) fn count(&mut self) {
        if self.timings.holds_any() {
            self.timings.count_all(self.stats, self.tracks_latency);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::table;
    use crate::testing::Bench;

    /// How often a command has run, by its counters and by its histogram.
    fn counted(bench: &Bench, command: &str) -> (u64, u64) {
        let id = table().find(command.as_bytes()).unwrap().id;
        let counters = &bench.worker.stats().commands[id];
        (
            counters.calls.get(),
            crate::statistics::histogram::Distribution::of([&counters.histogram].into_iter()).count(),
        )
    }

    #[test]
    fn all_of_a_batch_is_counted_when_it_ends() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let (get, ping) = ("get k\r\n".repeat(2 * KEPT + 3), "ping\r\n".repeat(KEPT));
        bench.run(&mut session, format!("{get}set k v\r\n{ping}get k\r\nget k").as_bytes());
        assert_eq!(counted(&bench, "get"), (2 * KEPT as u64 + 4, 2 * KEPT as u64 + 4));
        assert_eq!((counted(&bench, "set"), counted(&bench, "ping")), ((1, 1), (KEPT as u64, KEPT as u64)));
        assert_eq!(bench.worker.stats().executed.get(), 3 * KEPT as u64 + 5);
    }

    #[test]
    fn what_reads_the_counters_has_them_counted_first() {
        let readers =
            ["info", "latency", "config", "client", "command", "memory", "debug", "slowlog", "pipeline", "exec"];
        let reads = |name: &&str| readers.contains(&name.split('|').next().unwrap_or_default());
        let keyless = table().all().iter().filter(|command| command.is_keyless).map(|command| &*command.name);
        // These only begin and end what is counted under a token.
        let found: Vec<_> = keyless.filter(reads).filter(|name| !name.starts_with("pipeline|")).collect();
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn who_looks_in_the_midst_of_a_batch_sees_what_was_before() {
        let mut bench = Bench::default();
        let mut session = bench.open();
        let lines = [
            "get k",
            "get k",
            "ping",
            "info commandstats",
            "info commandstats",
            "eval 'redis.call(\"get\", \"k\") return redis.call(\"info\", \"commandstats\")' 1 k",
            "get k",
            "config resetstat",
            "get k",
            "info commandstats",
        ];
        let input = lines.map(|line| format!("{line}\r\n")).concat();
        let (replies, _) = bench.run(&mut session, input.as_bytes());
        let replies = String::from_utf8(replies).unwrap();
        let calls = |command: &str| {
            let before = format!("cmdstat_{command}:calls=");
            let counts = replies.split(&*before).skip(1).filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok());
            counts.collect::<Vec<_>>()
        };
        assert_eq!(calls("get"), [2, 2, 3, 1]);
        assert_eq!(calls("ping"), [1, 1, 1]);
        assert_eq!(calls("info"), [1, 2]);
    }
}
