//! The state of a connection: the part that all threads see (`client.rs`) and its line in CLIENT LIST (`line.rs`), the
//! part that only its own worker sees (`session.rs`), the distinction of round trips and pipelines (`round_trips.rs`),
//! the progress of its batch (`progress.rs`) and the parts of its time (`batch_times.rs`), signals from other threads (`pending_signals.rs`), its
//! blocking command (`blocking.rs`), its commands at other nodes (`forwarding.rs`), its count under a pipeline token (`counting.rs`), and its memory
//! (`client_memory.rs`).
//!
//! This module knows neither threads nor the keyspace: sessions are data, and the modules above act on them.

pub mod batch_times;
pub mod blocking;
pub mod client;
pub mod client_memory;
mod counting;
pub mod forwarding;
pub(crate) mod line;
pub mod pending_signals;
pub mod progress;
pub mod round_trips;
pub mod session;
pub(crate) mod slot_changes;
pub(crate) mod transaction;
