//! Simulated histories of a primary, its replicas and their clients, in one thread, with simulated disks, links and
//! clocks. Each history follows from one seed, so a failure can be repeated.
//!
//! A process ([`process`]) is an engine with its worker, its append-only file on a disk that loses unsynced data
//! ([`log`]), its snapshots ([`saving`]), the replicas that it serves and the link to its primary ([`link`]). The code
//! is the server's, except for sockets and threads: each iteration of a server thread's loop is a step here, and the
//! seed determines the order and the times of the steps. Links ([`network`]) delay bytes and break at any byte. Clients
//! ([`writer`], [`reader`]) record the promises that they get. The [`world`] cuts links, stops processes and fails
//! over, and checks in the end that the promises were kept.

#![forbid(unsafe_code)]

mod host;
pub mod link;
pub mod log;
pub mod moves;
pub mod network;
pub mod nodes;
pub mod process;
pub mod reader;
pub mod reply;
pub mod saving;
pub mod setup;
pub mod world;
pub mod writer;

/// The reason why a history is wrong.
pub type Wrong = String;
