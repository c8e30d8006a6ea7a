//! Counters. Each thread writes its own counters, with plain stores; INFO sums them up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::batch_times::BatchHistograms;
use crate::histogram::Histogram;

/// Number of error codes that are counted by name. Further codes are counted together, as in Redis, because scripts can
/// invent error codes.
const ERROR_KINDS_MAX: usize = 128;

/// A counter with one writer.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only the owning thread calls this.
    #[inline]
    pub fn add(&self, amount: u64) {
        // With one writer a plain load and store suffice, and cost less than an atomic addition.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Subtracts an earlier addition, but not below zero, since the counter may have been reset. Only the owning thread
    /// calls this.
    pub fn take_back(&self, amount: u64) {
        self.0.store(self.get().saturating_sub(amount), Ordering::Relaxed);
    }

    /// Returns the value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Resets the counter (CONFIG RESETSTAT). A simultaneous addition by the owner may be lost.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Time span of [`RecentMax`] in seconds: Redis's figure.
const RECENT_S: usize = 8;

/// The maximum over the last seconds. There is one writer.
#[derive(Default, Debug)]
pub struct RecentMax([(AtomicU64, AtomicU64); RECENT_S]);

impl RecentMax {
    /// Notes a value. Only the owning thread calls this.
    pub fn note(&self, now_s: u64, value: u64) {
        let (second, max) = &self.0[now_s as usize % RECENT_S];
        if second.load(Ordering::Relaxed) != now_s {
            max.store(value, Ordering::Relaxed);
            second.store(now_s, Ordering::Relaxed);
        } else if max.load(Ordering::Relaxed) < value {
            max.store(value, Ordering::Relaxed);
        }
    }

    /// Returns the maximum over the last seconds; 0 without values.
    #[must_use]
    pub fn get(&self, now_s: u64) -> u64 {
        let recent = self.0.iter().filter(|(second, _)| second.load(Ordering::Relaxed) + RECENT_S as u64 > now_s);
        recent.map(|(_, max)| max.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

/// The counters of one command.
#[derive(Default, Debug)]
pub struct CommandStats {
    /// Number of executions.
    pub calls: Counter,
    /// Total duration, in ticks.
    pub ticks: Counter,
    /// Number of refusals before execution.
    pub rejected: Counter,
    /// Number of executions with an error reply.
    pub failed: Counter,
    /// Distribution of durations, in ticks (latency-tracking).
    pub histogram: Histogram,
}

/// One thread's counters.
#[derive(Debug)]
pub struct WorkerStats {
    /// Counters by the command's index in the table.
    pub commands: Box<[CommandStats]>,
    /// Commands executed.
    pub executed: Counter,
    /// Windows of commands framed and run together.
    pub batches: Counter,
    /// Batches as their clients sent them.
    pub round_trips: Counter,
    /// Batches of one command.
    pub lone_commands: Counter,
    /// The parts of the batches' times.
    pub batch_times: BatchHistograms,
    /// Lookups that found their key.
    pub hits: Counter,
    /// Lookups that did not.
    pub misses: Counter,
    /// Turns of the thread's loop.
    pub turns: Counter,
    /// Ticks spent in turns, excluding waits for events.
    pub turn_ticks: Counter,
    /// Ticks spent in commands, in sequence.
    pub command_ticks: Counter,
    /// Expired keys that were removed.
    pub expired: Counter,
    /// Expired hash fields that were removed.
    pub expired_fields: Counter,
    /// Expired keys that the background search found, rather than a command.
    pub expired_by_search: Counter,
    /// Expired hash fields that the background search found.
    pub expired_fields_by_search: Counter,
    /// Ticks spent in the background search.
    pub reclaim_ticks: Counter,
    /// Keys evicted under `maxmemory`.
    pub evicted: Counter,
    /// Connections closed to keep within `maxmemory-clients`.
    pub evicted_clients: Counter,
    /// Keys changed.
    pub dirty: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Connections accepted.
    pub connections: Counter,
    /// Connections refused.
    pub rejected_connections: Counter,
    /// Commands and transactions that other nodes of the cluster run for this node's clients.
    pub forwarded_commands: Counter,
    /// Forwarded commands without a reply of the other node.
    pub forwarding_failures: Counter,
    /// Bytes received.
    pub net_in: Counter,
    /// Bytes sent.
    pub net_out: Counter,
    /// System calls that read from sockets.
    pub reads: Counter,
    /// System calls that wrote to sockets.
    pub writes: Counter,
    /// Connections closed because of client-output-buffer-limit.
    pub output_limit_closes: Counter,
    /// Connections closed because of client-query-buffer-limit.
    pub input_limit_closes: Counter,
    /// Memory of one connection's incomplete requests, in bytes.
    pub recent_input: RecentMax,
    /// Memory of one connection's unread replies, in bytes.
    pub recent_output: RecentMax,
    /// Memory of the thread's script interpreter, in bytes; a gauge that is never reset.
    pub lua_bytes: AtomicU64,
    /// Error replies by their code.
    errors_by_code: Mutex<BTreeMap<String, u64>>,
}

impl WorkerStats {
    /// Creates zeroed counters for this number of commands.
    #[must_use]
    pub fn new(commands: usize) -> WorkerStats {
        WorkerStats {
            commands: (0..commands).map(|_| CommandStats::default()).collect(),
            executed: Counter::default(),
            batches: Counter::default(),
            round_trips: Counter::default(),
            lone_commands: Counter::default(),
            batch_times: BatchHistograms::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            turns: Counter::default(),
            turn_ticks: Counter::default(),
            command_ticks: Counter::default(),
            expired: Counter::default(),
            expired_fields: Counter::default(),
            expired_by_search: Counter::default(),
            expired_fields_by_search: Counter::default(),
            reclaim_ticks: Counter::default(),
            evicted: Counter::default(),
            evicted_clients: Counter::default(),
            dirty: Counter::default(),
            errors: Counter::default(),
            connections: Counter::default(),
            rejected_connections: Counter::default(),
            forwarded_commands: Counter::default(),
            forwarding_failures: Counter::default(),
            net_in: Counter::default(),
            net_out: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            output_limit_closes: Counter::default(),
            input_limit_closes: Counter::default(),
            recent_input: RecentMax::default(),
            recent_output: RecentMax::default(),
            lua_bytes: AtomicU64::new(0),
            errors_by_code: Mutex::default(),
        }
    }

    /// Counts an error reply by its first word.
    pub fn count_error(&self, text: &[u8]) {
        self.errors.add(1);
        let code = text.split(u8::is_ascii_whitespace).next().unwrap_or(b"");
        let code = String::from_utf8_lossy(code);
        let mut all = self.errors_by_code.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&*code) {
            *count += 1;
        } else if all.len() < ERROR_KINDS_MAX {
            all.insert(code.into_owned(), 1);
        }
    }

    /// Undoes the count of an error with this code.
    pub fn count_error_not(&self, code: &[u8]) {
        self.errors.take_back(1);
        let mut all = self.errors_by_code.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&*String::from_utf8_lossy(code)) {
            *count = count.saturating_sub(1);
        }
        all.retain(|_, count| *count > 0);
    }

    /// Undoes the count of a command that took this many ticks.
    pub fn executed_not(&self, command: usize, ticks: u64) {
        self.executed.take_back(1);
        let counters = &self.commands[command];
        counters.calls.take_back(1);
        counters.ticks.take_back(ticks);
        counters.histogram.take_back(ticks);
    }

    /// Returns the numbers of error replies by code.
    #[must_use]
    pub fn errors_by_code(&self) -> BTreeMap<String, u64> {
        self.errors_by_code.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Resets the counters (CONFIG RESETSTAT), except the number of changes since the last snapshot, which is not a
    /// statistic.
    pub fn reset(&self) {
        for c in &self.commands {
            [&c.calls, &c.ticks, &c.rejected, &c.failed].into_iter().for_each(Counter::reset);
            c.histogram.reset();
        }
        let counters = [
            &self.executed,
            &self.batches,
            &self.round_trips,
            &self.lone_commands,
            &self.hits,
            &self.misses,
            &self.turns,
            &self.turn_ticks,
            &self.command_ticks,
            &self.expired,
            &self.expired_fields,
            &self.reclaim_ticks,
            &self.evicted,
            &self.evicted_clients,
            &self.errors,
            &self.connections,
            &self.rejected_connections,
            &self.forwarded_commands,
            &self.forwarding_failures,
            &self.net_in,
            &self.net_out,
            &self.reads,
            &self.writes,
            &self.output_limit_closes,
            &self.input_limit_closes,
            &self.expired_by_search,
            &self.expired_fields_by_search,
        ];
        counters.into_iter().for_each(Counter::reset);
        self.batch_times.reset();
        self.errors_by_code.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The sums over all threads.
#[derive(Default, Debug)]
#[expect(missing_docs, reason = "named as in WorkerStats")]
pub struct Totals {
    pub executed: u64,
    pub hits: u64,
    pub misses: u64,
    pub turns: u64,
    pub turn_ticks: u64,
    pub command_ticks: u64,
    pub expired: u64,
    /// Expired hash fields that were removed.
    pub expired_fields: u64,
    pub reclaim_ticks: u64,
    pub evicted: u64,
    /// Connections closed to keep within `maxmemory-clients`.
    pub evicted_clients: u64,
    pub dirty: u64,
    pub errors: u64,
    pub connections: u64,
    pub rejected_connections: u64,
    pub forwarded_commands: u64,
    pub forwarding_failures: u64,
    pub net_in: u64,
    pub net_out: u64,
    pub reads: u64,
    pub writes: u64,
    pub output_limit_closes: u64,
    /// Connections closed because of client-query-buffer-limit.
    pub input_limit_closes: u64,
    /// Expired keys that the background search found.
    pub expired_by_search: u64,
    /// Expired hash fields that the background search found.
    pub expired_fields_by_search: u64,
    pub batches: u64,
    /// Batches as their clients sent them.
    pub round_trips: u64,
    /// Batches of one command.
    pub lone_commands: u64,
}

impl Totals {
    /// Returns the present sums. They are slightly inconsistent, because the threads continue to count.
    #[must_use]
    pub fn of(all: &[WorkerStats]) -> Totals {
        let sum = |counter: fn(&WorkerStats) -> &Counter| all.iter().map(|s| counter(s).get()).sum();
        Totals {
            executed: sum(|s| &s.executed),
            hits: sum(|s| &s.hits),
            misses: sum(|s| &s.misses),
            turns: sum(|s| &s.turns),
            turn_ticks: sum(|s| &s.turn_ticks),
            command_ticks: sum(|s| &s.command_ticks),
            expired: sum(|s| &s.expired),
            expired_fields: sum(|s| &s.expired_fields),
            reclaim_ticks: sum(|s| &s.reclaim_ticks),
            evicted: sum(|s| &s.evicted),
            evicted_clients: sum(|s| &s.evicted_clients),
            dirty: sum(|s| &s.dirty),
            errors: sum(|s| &s.errors),
            connections: sum(|s| &s.connections),
            rejected_connections: sum(|s| &s.rejected_connections),
            forwarded_commands: sum(|s| &s.forwarded_commands),
            forwarding_failures: sum(|s| &s.forwarding_failures),
            net_in: sum(|s| &s.net_in),
            net_out: sum(|s| &s.net_out),
            reads: sum(|s| &s.reads),
            writes: sum(|s| &s.writes),
            output_limit_closes: sum(|s| &s.output_limit_closes),
            input_limit_closes: sum(|s| &s.input_limit_closes),
            expired_by_search: sum(|s| &s.expired_by_search),
            expired_fields_by_search: sum(|s| &s.expired_fields_by_search),
            batches: sum(|s| &s.batches),
            round_trips: sum(|s| &s.round_trips),
            lone_commands: sum(|s| &s.lone_commands),
        }
    }
}

/// Returns the numbers of error replies of all threads, by code.
#[must_use]
pub fn errors_by_code(all: &[WorkerStats]) -> BTreeMap<String, u64> {
    let mut total = BTreeMap::new();
    for (code, count) in all.iter().flat_map(WorkerStats::errors_by_code) {
        *total.entry(code).or_default() += count;
    }
    total
}

/// Watermarks of the memory in use, in bytes.
#[derive(Default, Debug)]
pub struct MemoryMarks {
    peak: AtomicU64,
    peak_s: AtomicU64,
    start: AtomicU64,
}

impl MemoryMarks {
    /// Records the memory in use, at this time in seconds of Unix time. The first call is at the start, before there
    /// are keys.
    pub fn note(&self, bytes: u64, now_s: u64) {
        let _ = self.start.compare_exchange(0, bytes, Ordering::Relaxed, Ordering::Relaxed);
        if self.peak.fetch_max(bytes, Ordering::Relaxed) < bytes {
            self.peak_s.store(now_s, Ordering::Relaxed);
        }
    }

    /// Returns the time of the peak, in seconds of Unix time.
    #[must_use]
    pub fn peak_s(&self) -> u64 {
        self.peak_s.load(Ordering::Relaxed)
    }

    /// Returns the greatest recorded use.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns the use at the start.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_expires_after_some_seconds() {
        let max = RecentMax::default();
        assert_eq!(max.get(1_700_000_000), 0);
        for (now_s, value) in [(100, 5), (100, 9), (100, 7), (103, 4)] {
            max.note(now_s, value);
        }
        assert_eq!([100, 107, 108, 110, 111].map(|now_s| max.get(now_s)), [9, 9, 4, 4, 0]);
        max.note(108, 1);
        assert_eq!(max.get(108), 4);
    }
}
