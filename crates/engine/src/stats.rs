//! Counters. Each thread has its own, which it alone writes, with plain stores; INFO adds them up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

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
    /// Lookups that found their key.
    pub hits: Counter,
    /// Lookups that did not.
    pub misses: Counter,
    /// Keys removed because their time had come.
    pub expired: Counter,
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
            hits: Counter::default(),
            misses: Counter::default(),
            expired: Counter::default(),
            dirty: Counter::default(),
            errors: Counter::default(),
            connections: Counter::default(),
            rejected_connections: Counter::default(),
            net_in: Counter::default(),
            net_out: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            output_limit_closes: Counter::default(),
            errors_by_code: Mutex::default(),
        }
    }

    /// Counts an error reply by its first word.
    pub fn count_error(&self, text: &[u8]) {
        self.errors.add(1);
        let code = text.split(|&b| b == b' ').next().unwrap_or(b"");
        let code = String::from_utf8_lossy(code);
        let mut all = self.errors_by_code.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&*code) {
            *count += 1;
        } else if all.len() < ERROR_KINDS_MAX {
            all.insert(code.into_owned(), 1);
        }
    }

    /// Error replies by their code.
    #[must_use]
    pub fn errors_by_code(&self) -> BTreeMap<String, u64> {
        self.errors_by_code.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts over (CONFIG RESETSTAT).
    pub fn reset(&self) {
        for c in &self.commands {
            [&c.calls, &c.ticks, &c.rejected, &c.failed].into_iter().for_each(Counter::reset);
        }
        let counters = [
            &self.executed,
            &self.batches,
            &self.hits,
            &self.misses,
            &self.expired,
            &self.dirty,
            &self.errors,
            &self.connections,
            &self.rejected_connections,
            &self.net_in,
            &self.net_out,
            &self.reads,
            &self.writes,
            &self.output_limit_closes,
        ];
        counters.into_iter().for_each(Counter::reset);
        self.errors_by_code.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
