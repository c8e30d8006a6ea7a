//! The commands on sessions and the server, a file per family. They see a `Turn`, and know nothing of how commands are
//! run.

pub mod acl;
pub mod advise;
pub mod client;
mod client_filter;
mod client_kill;
mod client_tracking;
pub mod cluster;
pub mod command;
pub mod commandlog;
pub mod config;
pub mod connection;
pub mod debug;
pub mod failover;
pub mod functions;
mod help;
pub mod hotkeys;
pub mod info;
pub mod latency;
pub mod memory;
pub mod migrate;
pub mod module;
pub mod monitor;
pub mod persistence;
pub mod pipeline;
pub mod pubsub;
pub mod replicas;
pub mod replication;
pub mod scripting;
pub mod server;
pub mod slowlog;
pub mod transactions;

use commands::Spec;

use crate::worker::turn::Run;

/// Every command of this room, by family. A new family is a line here.
pub const ALL: &[&[Spec<Run>]] = &[
    acl::COMMANDS,
    advise::COMMANDS,
    command::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    commandlog::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    failover::COMMANDS,
    functions::COMMANDS,
    hotkeys::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    module::COMMANDS,
    monitor::COMMANDS,
    persistence::COMMANDS,
    pipeline::COMMANDS,
    pubsub::COMMANDS,
    replicas::COMMANDS,
    replication::COMMANDS,
    scripting::COMMANDS,
    server::COMMANDS,
    slowlog::COMMANDS,
    transactions::COMMANDS,
];
