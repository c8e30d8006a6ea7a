//! The server: pollers, connections, buffers, configuration files, wiring and the loop.
//!
//! This crate knows all others below it, and is the only one that knows sockets, the clock and the process. The engine interprets the
//! requests.

pub mod acceptor;
pub mod allocator;
mod append_only;
pub mod backlog;
mod bus;
pub mod busy_turn;
pub mod cli_args;
pub mod conf_file;
pub mod connection;
pub mod connections;
mod control_group;
pub mod daemon;
mod deferred_replies;
pub mod event_loop;
pub mod figures;
mod forward;
pub mod heartbeats;
pub mod http;
pub mod huge_pages;
pub mod large_args;
pub mod listener;
mod loading;
pub mod log;
mod mailbox;
mod migrating;
mod peer_socket;
pub mod pending_input;
pub mod pid_file;
pub mod poller;
mod primary;
pub mod process;
pub mod rebind;
mod replica;
pub mod reply_queue;
mod restart;
pub mod run;
mod saving;
pub mod shared;
mod slot_moves;
pub mod spill;
mod splice;
pub mod supervisor;
pub mod syslog;
#[cfg(test)]
mod testing;
pub mod threads;
pub mod time;
mod time_slice;
pub mod title;
pub mod tls;
