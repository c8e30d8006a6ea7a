//! `penstock load`: mass insertion that one can trust.
//!
//! The way of a command: a thread reads the inputs (`plan`, `source`, `input`), a reader makes requests of them
//! (`format`, `template`) and collects those in blocks (`block`), where runs of the same command become one (`merge`)
//! and some are put into another order (`order`), as far as the server allows (`probe`). The blocks travel over a
//! bounded belt (`belt`) to the thread that talks to the server. There they are in flight (`flight`) until their last
//! command is answered, and `transaction` knows what is only queued; `transfer` moves the bytes, `report` names what
//! failed. With `--resume`, the server counts what it executes (`token`), a file remembers the load (`state`), even
//! when it is done (`complete`), and `session` goes on over a new connection.
//!
//! Memory is bounded by `limits`, whatever the input. This room knows `client` and `resp`, and no server's inside.

#![forbid(unsafe_code)]

pub mod args;
pub mod belt;
pub mod block;
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
pub mod verdict;

pub use args::command;
pub use run::run;
