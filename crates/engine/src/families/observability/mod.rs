//! Commands that show the state and the statistics of the server.

pub mod advise;
pub mod batchlog;
pub mod commandlog;
pub mod hotkeys;
pub mod info;
pub mod latency;
pub mod memory;
pub mod monitor;
pub mod slowlog;
