//! Sessions and batches: what a connection is to the server, how its batch runs, and everything that concerns more
//! than keys: transactions, blocking, publish and subscribe, administration.
//!
//! This crate knows no socket and no poller, and reads no clock of its own but the processor's cycle counter, to time
//! commands. The server feeds it bytes that have arrived, and sends what it leaves in the outputs.
//!
//! It is cut into rooms, the modules below. A room knows only those that `tests/all/rooms.rs` declares for it, and they are
//! declared from the bottom to the top. What all threads share is `engine.rs`, what a thread has of its own is
//! `worker.rs`; the way of a batch is `execute/windows.rs`, of one command `execute.rs`.

// At the bottom: each knows next to nothing of the others.
pub mod access;
pub mod command_table;
pub mod config;
pub mod durability;
pub mod host;
pub mod inbox;
pub mod journal;
pub mod listening;
pub mod machine;
pub mod migrations;
pub mod pause;
pub mod pipelines;
pub mod pubsub;
pub mod reasons;
pub mod replication;
pub mod replies;
pub mod statistics;

// What threads share, and what each has of its own.
pub mod advice;
pub mod clients;
pub mod engine;
pub mod memory;
pub mod scripts;
pub mod worker;

// What is done for sessions, and beside commands.
mod commit;
mod script_calls;
pub mod services;
pub mod snapshots;
pub mod upkeep;

// The commands.
pub mod families;
pub mod registry;

// The way of a batch.
pub mod execute;
pub mod replay;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
