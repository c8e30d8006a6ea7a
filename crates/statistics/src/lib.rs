//! Counters and timings: counters of each thread (`stats.rs`), durations of commands (`timings.rs`, `histogram.rs`)
//! and of batches (`batch_times.rs`), hot keys (`hot_keys.rs`), present rates (`rates.rs`), and slow events
//! (`latency_monitor.rs`, `slow_log.rs`).
//!
//! Commands are timed by the processor's cycle counter (`ticks.rs`). This crate doesn't know the commands, only their
//! numbers.

pub mod batch_times;
pub mod histogram;
pub mod hot_keys;
pub mod latency_monitor;
pub mod rates;
pub mod slow_log;
pub mod stats;
pub mod ticks;
pub mod timings;
