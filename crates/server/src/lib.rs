//! The server: pollers, connections, buffers, configuration files, wiring and the loop.
//!
//! This room knows all others below it, and is the only one that knows sockets, the clock and the process. What a
//! request means it leaves to the engine.

pub mod allocator;
pub mod apart;
mod append_only;
pub mod arrived;
pub mod backlog;
pub mod busy_turn;
pub mod cli_args;
pub mod conf_file;
pub mod connection;
pub mod connections;
pub mod daemon;
pub mod doorway;
pub mod event_loop;
pub mod heap;
pub mod http;
pub mod listener;
mod loading;
pub mod log;
mod mailbox;
mod migrating;
mod peer_socket;
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
pub mod spill;
pub mod supervisor;
pub mod syslog;
pub mod title;
pub mod tls;
mod unsettled;
