//! Histories of a primary, its replicas and their clients in one thread, with simulated disks, links and clocks: each follows from one
//! seed, so that one that fails fails again.
//!
//! A process ([`process`]) is an engine with its worker, its append-only file on a disk that loses what was not synced ([`log`]), its
//! snapshots ([`saving`]), the replicas that it serves and the link to its primary ([`link`]). The code is the server's as far as it has
//! neither sockets nor threads; what a thread of the server does in a loop is a step here, and steps are taken in an order and at times that
//! the seed says. Links ([`network`]) delay what they carry and break at any byte. Clients ([`writer`], [`reader`]) know what they have been
//! promised, and the [`world`] cuts links, stops processes and fails over, and looks in the end whether the promises were kept.

#![forbid(unsafe_code)]

pub mod link;
pub mod log;
pub mod network;
pub mod process;
pub mod reader;
pub mod reply;
pub mod saving;
pub mod world;
pub mod writer;

/// Why a history is wrong.
pub type Wrong = String;
