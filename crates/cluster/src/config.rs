//! Directives of the cluster. They may be replaced at run time.

use crate::view::{EndpointKind, Endpoints, Ports};

/// The addresses that this node announces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Announce {
    /// The address; empty for the address at which the other nodes reach this one.
    pub ip: String,
    /// The ports for clients: the announced ones, or those that the server listens on; 0 for none.
    pub ports: Ports,
    /// The port of the bus.
    pub bus_port: u16,
    /// `cluster-announce-hostname`.
    pub hostname: String,
    /// `cluster-announce-human-nodename`.
    pub node_name: String,
    /// `cluster-announce-client-ipv4`.
    pub client_ipv4: String,
    /// `cluster-announce-client-ipv6`.
    pub client_ipv6: String,
    /// `cluster-announce-client-port` and `cluster-announce-client-tls-port`.
    pub client_ports: Ports,
    /// `availability-zone`.
    pub zone: String,
}

impl Announce {
    /// The endpoints of this node, at an address.
    pub fn endpoints(&self, ip: &str) -> Endpoints {
        Endpoints {
            ip: ip.to_owned(),
            client_ipv4: self.client_ipv4.clone(),
            client_ipv6: self.client_ipv6.clone(),
            hostname: self.hostname.clone(),
            ports: self.ports,
            client_ports: self.client_ports,
        }
    }
}

/// The reaction to a save of nodes.conf that fails: `cluster-config-save-behavior`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SaveFailure {
    /// The server exits.
    #[default]
    Exit,
    /// The node goes on without votes and elections until a save succeeds.
    GoOn,
}

/// Directives of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// `cluster-node-timeout`.
    pub node_timeout_ms: u64,
    /// The addresses that this node announces.
    pub announce: Announce,
    /// `tls-cluster`.
    pub tls_bus: bool,
    /// `cluster-preferred-endpoint-type`.
    pub endpoint_kind: EndpointKind,
    /// `cluster-require-full-coverage`.
    pub require_full_coverage: bool,
    /// `cluster-allow-reads-when-down`.
    pub reads_when_down: bool,
    /// `cluster-allow-pubsubshard-when-down`.
    pub pubsubshard_when_down: bool,
    /// `cluster-allow-replica-migration`.
    pub allow_replica_migration: bool,
    /// `cluster-migration-barrier`.
    pub migration_barrier: usize,
    /// `cluster-replica-no-failover`.
    pub replica_no_failover: bool,
    /// `cluster-replica-validity-factor`; 0: data of any age.
    pub replica_validity_factor: u64,
    /// `repl-ping-replica-period`.
    pub replica_ping_period_ms: u64,
    /// `cluster-blacklist-ttl`.
    pub blacklist_ttl_ms: u64,
    /// `cluster-manual-failover-timeout`.
    pub manual_failover_timeout_ms: u64,
    /// `cluster-link-sendbuf-limit`; 0: none.
    pub link_buffer_bytes_max: u64,
    /// `cluster-message-gossip-perc`: the nodes in a PING's gossip, in percent of the known ones.
    pub gossip_percent: usize,
    /// The longest message that a link takes.
    pub message_bytes_max: usize,
    /// `cluster-config-save-behavior`.
    pub save_failure: SaveFailure,
}

impl Config {
    /// The time that a handshake may take.
    pub(crate) fn handshake_timeout_ms(&self) -> u64 {
        self.node_timeout_ms.max(1000)
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            node_timeout_ms: 15_000,
            announce: Announce::default(),
            tls_bus: false,
            endpoint_kind: EndpointKind::Ip,
            require_full_coverage: true,
            reads_when_down: false,
            pubsubshard_when_down: true,
            allow_replica_migration: true,
            migration_barrier: 1,
            replica_no_failover: false,
            replica_validity_factor: 10,
            replica_ping_period_ms: 10_000,
            blacklist_ttl_ms: 60_000,
            manual_failover_timeout_ms: 5000,
            link_buffer_bytes_max: 0,
            gossip_percent: 10,
            message_bytes_max: (1 << 30) + 2264,
            save_failure: SaveFailure::Exit,
        }
    }
}
