//! Sessions and batches: what a connection is to the server, how its batch runs, and everything that concerns more
//! than keys: transactions, blocking, publish and subscribe, administration.
//!
//! This room knows no socket and no poller, and reads no clock of its own but the processor's cycle counter, to time
//! commands. The server feeds it bytes that have arrived, and sends what it leaves in the outputs.
//!
//! The way of a batch is `worker/windows.rs`; of one command, `execute.rs`; what all threads share is `engine.rs`.

pub mod blocking;
pub mod client;
pub mod client_memory;
pub mod command_table;
pub mod compaction;
pub mod config;
pub mod durability;
pub mod engine;
pub mod eviction;
pub mod execute;
pub mod families;
pub mod histogram;
pub mod inbox;
pub mod journal;
pub mod latency_monitor;
pub mod listeners;
pub mod lookahead;
pub mod machine;
pub mod pause;
pub mod pipelines;
pub mod pubsub;
pub mod rates;
pub mod reasons;
pub mod replay;
pub mod replies;
pub mod room;
pub mod scripts;
pub mod session;
pub mod stats;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod ticks;
mod timings;
pub mod turn;
pub mod version;
pub mod watch;
pub mod worker;
