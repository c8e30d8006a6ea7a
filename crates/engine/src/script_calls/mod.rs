//! The calls of scripts and functions: in which way one runs (`ways.rs`), on which machine (`machines.rs`), what
//! becomes of it (`run.rs`), and what it sees of the server (`world.rs`). Which scripts there are is `scripts`.
//!
//! A script's commands are run by `execute`, which stands above this room: it is asked by `Worker::run_nested`.

pub(crate) mod machines;
pub(crate) mod run;
pub(crate) mod ways;
mod world;
