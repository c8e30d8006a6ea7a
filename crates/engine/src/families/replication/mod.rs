//! Commands about primaries, replicas and other servers.

pub mod failover;
pub mod migrate;
pub mod replicas;
pub mod roles;
