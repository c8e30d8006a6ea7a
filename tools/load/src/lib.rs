//! `penstock load`: reliable mass insertion.
//!
//! A thread reads the inputs (`plan`, `source`, `input`). A reader converts them to requests (`format`, `template`) and
//! collects these in blocks (`block`). Runs of the same command are merged (`merge`) and some are sorted (`order`), as
//! far as the server allows (`probe`). The blocks pass a bounded queue (`block_channel`) to the thread that talks to the server.
//! They are in flight (`flight`) until their last command is answered; `transaction` tracks queued commands. `transfer`
//! moves the bytes, and `report` reports failures. With `--resume`, the server counts executed requests (`token`), a
//! file keeps the state of the load (`state`), even after its end (`complete`), and `session` continues over a new
//! connection.
//!
//! `limits` bounds the memory for any input. This crate uses `client` and `resp`, and has no access to a server's
//! internals.

#![forbid(unsafe_code)]

pub mod admission;
pub mod args;
pub mod block;
pub mod block_channel;
mod cluster;
pub mod complete;
pub mod exit;
pub mod flight;
pub mod format;
pub mod input;
pub mod interrupt;
pub mod limits;
pub mod merge;
mod order;
pub mod plan;
pub mod probe;
pub mod progress;
pub mod report;
mod run;
pub mod session;
pub mod shown;
pub mod source;
pub mod state;
pub mod template;
pub mod token;
pub mod transaction;
pub mod transfer;

pub use args::command;
pub use run::run;
