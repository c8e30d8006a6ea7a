//! Sessions and batches: the state of a connection, the run of its batch, and all features beyond single keys:
//! transactions, blocking, publish and subscribe, administration.
//!
//! This crate has no sockets and no poller. Its only clock is the processor's cycle counter, which times commands. The
//! server passes it received bytes, and sends the contents of its outputs.
//!
//! The crate consists of rooms, the modules below. A room may use only those that `tests/all/rooms.rs` declares for it;
//! the declarations go from the bottom to the top. `state.rs` has the state that all threads share, `worker.rs` has a
//! thread's own state. `execute/windows.rs` runs a batch, `execute.rs` runs one command.

// The bottom: modules that know almost nothing of each other.
pub mod durability;
pub mod host;
pub mod inbox;
pub mod journal;
pub mod listening;
pub mod machine;
pub mod maintenance;
pub mod migrations;
pub mod pause;
pub mod pipelines;
pub mod pubsub;
pub mod replication;
pub mod replies;
pub mod slow_path;

// The state that threads share, and each thread's own.
pub mod advice;
pub mod clients;
pub mod memory;
pub mod scripts;
pub mod state;
pub mod worker;

// Work for sessions, and beside commands.
mod commit;
mod script_calls;
pub mod services;
pub mod slots;
pub mod snapshots;
pub mod upkeep;

// The commands.
pub mod families;
pub mod registry;

// The run of a batch.
pub mod execute;
pub mod replay;

// Work of threads beside those for clients.
pub mod slot_moves;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
