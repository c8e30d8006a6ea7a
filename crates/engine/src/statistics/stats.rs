//! Counters. Each thread has its own, which it alone writes, with plain stores; INFO adds them up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::statistics::histogram::Histogram;

/// Kinds of errors that are counted by name; more are counted together, as Redis does, since clients can make errors
/// of any name up in scripts.
const ERROR_KINDS_MAX: usize = 128;

/// A counter with one writer.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds, from the thread that owns the counter.
    #[inline]
    pub fn add(&self, amount: u64) {
        // One writer: a plain load and store do, and cost less than an atomic addition.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Takes back what was added, from the thread that owns the counter. What was reset since stays so.
    pub fn take_back(&self, amount: u64) {
        self.0.store(self.get().saturating_sub(amount), Ordering::Relaxed);
    }

    /// The value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Starts over (CONFIG RESETSTAT). What the owner adds at this moment may be lost.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Seconds for which [`RecentMax`] remembers: Redis's figure.
const RECENT_S: usize = 8;

/// The greatest of the values noted in the last seconds. It has one writer.
#[derive(Default, Debug)]
pub struct RecentMax([(AtomicU64, AtomicU64); RECENT_S]);

impl RecentMax {
    /// Notes a value, from the thread that owns this.
    pub fn note(&self, now_s: u64, value: u64) {
        let (second, max) = &self.0[now_s as usize % RECENT_S];
        if second.load(Ordering::Relaxed) != now_s {
            max.store(value, Ordering::Relaxed);
            second.store(now_s, Ordering::Relaxed);
        } else if max.load(Ordering::Relaxed) < value {
            max.store(value, Ordering::Relaxed);
        }
    }

    /// The greatest that was noted in the last seconds, 0 if there was none.
    #[must_use]
    pub fn get(&self, now_s: u64) -> u64 {
        let recent = self.0.iter().filter(|(second, _)| second.load(Ordering::Relaxed) + RECENT_S as u64 > now_s);
        recent.map(|(_, max)| max.load(Ordering::Relaxed)).max().unwrap_or(0)
    }
}

/// The counters of one command.
#[derive(Default, Debug)]
pub struct CommandStats {
    /// How often it ran.
    pub calls: Counter,
    /// How long, in ticks.
    pub ticks: Counter,
    /// How often it was refused before it ran.
    pub rejected: Counter,
    /// How often it ran and answered an error.
    pub failed: Counter,
    /// How long it took each time, in ticks (latency-tracking).
    pub histogram: Histogram,
}

/// One thread's counters.
#[derive(Debug)]
pub struct WorkerStats {
    /// By a command's place in the table.
    pub commands: Box<[CommandStats]>,
    /// Commands executed.
    pub executed: Counter,
    /// Windows of commands framed and run together.
    pub batches: Counter,
    /// Batches as their clients sent them.
    pub trips: Counter,
    /// Batches of one command.
    pub lone_commands: Counter,
    /// Lookups that found their key.
    pub hits: Counter,
    /// Lookups that did not.
    pub misses: Counter,
    /// Turns of the thread's loop.
    pub turns: Counter,
    /// Ticks that they took, waits for something to do not included.
    pub turn_ticks: Counter,
    /// Ticks in which commands ran, one after another.
    pub command_ticks: Counter,
    /// Keys removed because their time had come.
    pub expired: Counter,
    /// Fields of hashes removed because their time had come.
    pub expired_fields: Counter,
    /// Keys and fields among them that were looked for, and not met by a command.
    pub expired_by_search: Counter,
    /// See above.
    pub expired_fields_by_search: Counter,
    /// Ticks spent on looking for them.
    pub reclaim_ticks: Counter,
    /// Keys removed to make room.
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
    /// Bytes of memory that one connection's requests took while they waited to be complete.
    pub recent_input: RecentMax,
    /// The same of its replies while they waited to be read.
    pub recent_output: RecentMax,
    /// Bytes that the thread's machine for scripts uses; no counter, and not reset.
    pub lua_bytes: AtomicU64,
    /// Error replies by their code.
    errors_by_code: Mutex<BTreeMap<String, u64>>,
}

impl WorkerStats {
    /// All zero, for so many commands.
    #[must_use]
    pub fn new(commands: usize) -> WorkerStats {
        WorkerStats {
            commands: (0..commands).map(|_| CommandStats::default()).collect(),
            executed: Counter::default(),
            batches: Counter::default(),
            trips: Counter::default(),
            lone_commands: Counter::default(),
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

    /// Takes back that an error with this code was counted.
    pub fn count_error_not(&self, code: &[u8]) {
        self.errors.take_back(1);
        let mut all = self.errors_by_code.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&*String::from_utf8_lossy(code)) {
            *count = count.saturating_sub(1);
        }
        all.retain(|_, count| *count > 0);
    }

    /// Takes back that a command was counted which took so many ticks.
    pub fn executed_not(&self, command: usize, ticks: u64) {
        self.executed.take_back(1);
        let counters = &self.commands[command];
        counters.calls.take_back(1);
        counters.ticks.take_back(ticks);
        counters.histogram.take_back(ticks);
    }

    /// Error replies by their code.
    #[must_use]
    pub fn errors_by_code(&self) -> BTreeMap<String, u64> {
        self.errors_by_code.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts over (CONFIG RESETSTAT), but for the changes since the last snapshot, which are no statistics.
    pub fn reset(&self) {
        for c in &self.commands {
            [&c.calls, &c.ticks, &c.rejected, &c.failed].into_iter().for_each(Counter::reset);
            c.histogram.reset();
        }
        let counters = [
            &self.executed,
            &self.batches,
            &self.trips,
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
        self.errors_by_code.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The counters of all threads together.
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
    /// Fields of hashes removed because their time had come.
    pub expired_fields: u64,
    pub reclaim_ticks: u64,
    pub evicted: u64,
    /// Connections closed to keep within `maxmemory-clients`.
    pub evicted_clients: u64,
    pub dirty: u64,
    pub errors: u64,
    pub connections: u64,
    pub rejected_connections: u64,
    pub net_in: u64,
    pub net_out: u64,
    pub reads: u64,
    pub writes: u64,
    pub output_limit_closes: u64,
    /// Connections closed because of client-query-buffer-limit.
    pub input_limit_closes: u64,
    /// Keys removed because they were looked for.
    pub expired_by_search: u64,
    /// The same of fields of hashes.
    pub expired_fields_by_search: u64,
    pub batches: u64,
    /// Batches as their clients sent them.
    pub trips: u64,
    /// Batches of one command.
    pub lone_commands: u64,
}

impl Totals {
    /// The present sums. They are of slightly different moments, since the threads go on counting.
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
            net_in: sum(|s| &s.net_in),
            net_out: sum(|s| &s.net_out),
            reads: sum(|s| &s.reads),
            writes: sum(|s| &s.writes),
            output_limit_closes: sum(|s| &s.output_limit_closes),
            input_limit_closes: sum(|s| &s.input_limit_closes),
            expired_by_search: sum(|s| &s.expired_by_search),
            expired_fields_by_search: sum(|s| &s.expired_fields_by_search),
            batches: sum(|s| &s.batches),
            trips: sum(|s| &s.trips),
            lone_commands: sum(|s| &s.lone_commands),
        }
    }
}

/// Error replies of all threads, by their code.
#[must_use]
pub fn errors_by_code(all: &[WorkerStats]) -> BTreeMap<String, u64> {
    let mut total = BTreeMap::new();
    for (code, count) in all.iter().flat_map(WorkerStats::errors_by_code) {
        *total.entry(code).or_default() += count;
    }
    total
}

/// What is remembered of the memory in use, in bytes.
#[derive(Default, Debug)]
pub struct MemoryMarks {
    peak: AtomicU64,
    peak_s: AtomicU64,
    start: AtomicU64,
}

impl MemoryMarks {
    /// Notes what is in use now, at this time in seconds of Unix time. The first time is the start, before there are keys.
    pub fn note(&self, bytes: u64, now_s: u64) {
        let _ = self.start.compare_exchange(0, bytes, Ordering::Relaxed, Ordering::Relaxed);
        if self.peak.fetch_max(bytes, Ordering::Relaxed) < bytes {
            self.peak_s.store(now_s, Ordering::Relaxed);
        }
    }

    /// When that was, in seconds of Unix time.
    #[must_use]
    pub fn peak_s(&self) -> u64 {
        self.peak_s.load(Ordering::Relaxed)
    }

    /// The most that any look at it has shown.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// What was in use at the start.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_is_forgotten_after_some_seconds() {
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
