//! Simulated clusters of whole nodes: nine processes, three shards of a primary and two replicas, in one thread, with simulated disks, links
//! and clocks. Each history follows from one seed.
//!
//! A node ([`node`]) is a process with an engine, its append-only file and its replication, the machine of the crate `cluster` with its bus
//! ([`bus`]), the executor of the bus's decisions ([`roles`]), and nodes.conf on the same disk ([`state_file`]). Clients ([`client`]) follow
//! redirects, pipeline writes and call WAIT. An operator ([`operator`]) moves slots key by key and has replicas take over. The world stops
//! and kills processes, loses their power, lets disks hang and fail, cuts links, also one way, and lets clocks jump.
//!
//! The checked promises, by their names in reports:
//! - S1: an epoch has one winner, and nobody votes twice in an epoch, also after a loss of power.
//! - S2: a slot has one owner in an epoch. Two nodes take its writes only for a moment.
//! - S3: no message shows a vote, an epoch or a claim that the sender's disk does not have.
//! - S4: an acknowledged write is lost only in the documented windows ([`promises`]).
//! - S5: a move of a slot, key by key, loses no write outside of these windows, and leaves no key twice.
//! - S6: no node follows itself through a chain of primaries.
//! - L1: all nodes agree after the last fault. L2: every slot is served. L3: no temporary state is left.
//!
//! In clusters of five shards with two nodes each, both parties of a move are killed together, right after the target's new epoch.
//!
//! One rule can be left out ([`Mutation`]). A world must break a promise then.

pub mod bus;
pub mod client;
mod faults;
pub mod migrator;
pub mod node;
pub mod operator;
mod peace;
pub mod promises;
pub mod roles;
pub mod state_file;
mod world;

pub use world::{Mutation, NodesFigures, SlotMoves, run_history};
