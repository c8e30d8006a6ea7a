//! The cluster bus of Redis and Valkey: a node of a cluster as a state machine.
//!
//! The crate knows no socket, clock, disk or thread. The caller passes messages, link events, commands, the time and
//! random numbers; the machine returns actions. The simulator and the tests run hundreds of machines in one process.

#![forbid(unsafe_code)]

mod claims;
pub mod commands;
pub mod config;
mod crc16;
mod debugging;
pub mod dialect;
mod election;
mod failure;
pub mod file;
mod gossip;
mod heartbeat;
pub mod id;
mod imported;
pub mod io;
pub mod links;
pub mod machine;
mod manual;
pub mod node;
mod open_slots;
mod orphans;
mod random;
mod receive;
mod reservation;
mod rules;
mod saves;
mod send;
pub mod slots;
mod state;
mod stats;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod view;
pub mod wire;

#[cfg(test)]
mod tests;

pub use config::Config;
pub use debugging::Debug;
pub use election::Obstacle;
pub use id::{NodeId, ShardId};
pub use io::{Action, CommandId, Facts, Generation, Input, Level, Moment};
pub use links::LinkId;
pub use machine::Machine;
pub use manual::FailoverMode;
pub use slots::{SLOTS, Slot, SlotSet, key_slot};
pub use view::SlotView;
