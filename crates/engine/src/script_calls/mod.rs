//! The calls of scripts and functions: the way to run one (`scope.rs`), its machine (`machines.rs`), the call itself
//! (`run.rs`), its view of the server (`world.rs`), and the slots that it may use (`script_slots.rs`). `scripts` has the
//! cache of scripts.
//!
//! `execute` is above this module and runs a script's commands; it is called by `Worker::run_nested`.

pub(crate) mod machines;
pub(crate) mod run;
pub(crate) mod scope;
mod script_slots;
mod world;
