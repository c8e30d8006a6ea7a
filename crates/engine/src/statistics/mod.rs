//! What is counted and timed: counters of each thread (`stats.rs`), how long commands take (`timings.rs`,
//! `histogram.rs`), how fast things happen now (`rates.rs`), and what took long (`latency_monitor.rs`, `slow_log.rs`).
//!
//! The room knows no commands: it is told their numbers.

pub mod histogram;
pub mod hot_keys;
pub mod latency_monitor;
pub mod rates;
pub mod slow_log;
pub mod stats;
pub(crate) mod timings;
