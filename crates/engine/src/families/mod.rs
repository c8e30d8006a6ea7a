//! The commands on sessions and the server, one file per family, grouped by subject. Handlers see a `Turn`, and don't know how commands are
//! run.

pub mod administration;
pub mod cluster;
pub mod connections;
mod help;
pub mod observability;
pub mod replication;
pub mod scripts;

use commands::Spec;

use crate::worker::turn::Run;

/// All commands of this module, by family. A new family needs a line here.
pub const ALL: &[&[Spec<Run>]] = &[
    administration::acl::COMMANDS,
    observability::advise::COMMANDS,
    observability::batchlog::COMMANDS,
    administration::command::COMMANDS,
    connections::client::COMMANDS,
    cluster::COMMANDS,
    observability::commandlog::COMMANDS,
    administration::config::COMMANDS,
    connections::session::COMMANDS,
    administration::debug::COMMANDS,
    replication::failover::COMMANDS,
    scripts::functions::COMMANDS,
    observability::hotkeys::COMMANDS,
    observability::info::COMMANDS,
    observability::latency::COMMANDS,
    observability::memory::COMMANDS,
    replication::migrate::COMMANDS,
    administration::module::COMMANDS,
    observability::monitor::COMMANDS,
    administration::persistence::COMMANDS,
    connections::pipeline::COMMANDS,
    connections::pubsub::COMMANDS,
    replication::replicas::COMMANDS,
    replication::roles::COMMANDS,
    scripts::scripting::COMMANDS,
    administration::server::COMMANDS,
    observability::slowlog::COMMANDS,
    connections::transactions::COMMANDS,
];
