//! Turns the directives of a cluster into the configuration of its node.

use ::cluster::config::{Announce, Config, SaveFailure};
use ::cluster::view::{EndpointKind, Ports};

use super::settings::{ClusterEndpoint, ClusterSave, Settings};

/// The bus's port is the clients' port plus this, unless `cluster-port` is set.
const BUS_PORT_OFFSET: u16 = 10_000;
/// Size in bytes of a bus message that publishes an empty text.
const MESSAGE_HEAD_BYTES: u64 = 2264;

impl Settings {
    /// Returns the port of the cluster's bus. None if it would exceed 65535.
    #[must_use]
    pub fn cluster_bus_port(&self) -> Option<u16> {
        match port(self.cluster_port.get()) {
            0 => self.bus_base_port().checked_add(BUS_PORT_OFFSET),
            given => Some(given),
        }
    }

    /// Returns the client port that the bus's port is derived from.
    fn bus_base_port(&self) -> u16 {
        let (plain, tls) = (port(self.port.get()), port(self.tls_port.get()));
        if self.tls_cluster.get() || plain == 0 { tls } else { plain }
    }

    /// Returns the configuration of the node at the start.
    #[must_use]
    pub fn cluster_config(&self) -> Config {
        self.cluster_config_at(self.cluster_bus_port().unwrap_or(0))
    }

    /// Returns the configuration of a node with its bus at this port. All of it may change at run time, except this port.
    #[must_use]
    pub fn cluster_config_at(&self, bus_port: u16) -> Config {
        let text = |cell: &super::Text| cell.get().to_string();
        let natural = |number: i64| number.unsigned_abs();
        Config {
            node_timeout_ms: natural(self.cluster_node_timeout_ms.get()),
            announce: Announce {
                ip: text(&self.cluster_announce_ip),
                ports: Ports {
                    plain: or(self.cluster_announce_port.get(), port(self.port.get())),
                    tls: or(self.cluster_announce_tls_port.get(), port(self.tls_port.get())),
                },
                bus_port: or(self.cluster_announce_bus_port.get(), bus_port),
                hostname: text(&self.cluster_announce_hostname),
                node_name: text(&self.cluster_announce_human_nodename),
                client_ipv4: text(&self.cluster_announce_client_ipv4),
                client_ipv6: text(&self.cluster_announce_client_ipv6),
                client_ports: Ports {
                    plain: port(self.cluster_announce_client_port.get()),
                    tls: port(self.cluster_announce_client_tls_port.get()),
                },
                zone: text(&self.availability_zone),
            },
            tls_bus: self.tls_cluster.get(),
            endpoint_kind: match self.cluster_preferred_endpoint_type.get() {
                ClusterEndpoint::Ip => EndpointKind::Ip,
                ClusterEndpoint::Hostname => EndpointKind::Hostname,
                ClusterEndpoint::Unknown => EndpointKind::Unknown,
            },
            require_full_coverage: self.cluster_require_full_coverage.get(),
            reads_when_down: self.cluster_allow_reads_when_down.get(),
            pubsubshard_when_down: self.cluster_allow_pubsubshard_when_down.get(),
            allow_replica_migration: self.cluster_allow_replica_migration.get(),
            migration_barrier: self.cluster_migration_barrier.get_usize(),
            replica_no_failover: self.cluster_replica_no_failover.get(),
            replica_validity_factor: natural(self.cluster_replica_validity_factor.get()),
            replica_ping_period_ms: natural(self.repl_ping_replica_period_s.get()) * 1000,
            blacklist_ttl_ms: natural(self.cluster_blacklist_ttl_s.get()) * 1000,
            manual_failover_timeout_ms: natural(self.cluster_manual_failover_timeout_ms.get()),
            link_buffer_bytes_max: self.cluster_link_sendbuf_limit.get(),
            gossip_percent: self.cluster_message_gossip_perc.get_usize(),
            message_bytes_max: usize::try_from(2 * self.proto_max_bulk_len.get() + MESSAGE_HEAD_BYTES)
                .unwrap_or(usize::MAX),
            save_failure: match self.cluster_config_save_behavior.get() {
                ClusterSave::Sync => SaveFailure::Exit,
                ClusterSave::BestEffort => SaveFailure::GoOn,
            },
        }
    }
}

/// Converts the value of a port directive, which accepts valid ports only.
fn port(number: i64) -> u16 {
    u16::try_from(number).unwrap_or(0)
}

/// Returns the announced port, or the own port if none is announced.
fn or(announced: i64, own: u16) -> u16 {
    match port(announced) {
        0 => own,
        announced => announced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loader;

    fn loaded(lines: &[&str]) -> Settings {
        let settings = Settings::new();
        let mut loader = Loader::new(&settings);
        for line in lines {
            let words: Vec<_> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            loader.directive(&words).unwrap();
        }
        settings
    }

    #[test]
    fn defaults_are_those_of_the_machine() {
        let config = loaded(&["port 0"]).cluster_config();
        let ports = Announce { bus_port: 10_000, ..Announce::default() };
        assert_eq!(config, Config { announce: ports, ..Config::default() });
    }

    #[test]
    fn every_directive_gets_there() {
        let settings = loaded(&[
            "port 7000",
            "cluster-node-timeout 5000",
            "cluster-announce-ip 10.0.0.1",
            "cluster-announce-port 7",
            "cluster-announce-client-port 8",
            "cluster-announce-client-ipv4 192.0.2.1",
            "cluster-announce-client-ipv6 2001:db8::1",
            "cluster-announce-hostname host",
            "cluster-announce-human-nodename name",
            "availability-zone zone",
            "cluster-preferred-endpoint-type unknown-endpoint",
            "cluster-config-save-behavior best-effort",
            "cluster-blacklist-ttl 3",
            "cluster-migration-barrier 2",
            "cluster-replica-validity-factor 0",
            "cluster-require-full-coverage no",
        ]);
        let Config { announce, .. } = settings.cluster_config();
        assert_eq!((announce.ports.plain, announce.client_ports.plain, announce.bus_port), (7, 8, 17_000));
        let texts = [&announce.ip, &announce.hostname, &announce.node_name, &announce.zone, &announce.client_ipv4];
        assert_eq!(texts, ["10.0.0.1", "host", "name", "zone", "192.0.2.1"]);
        let config = settings.cluster_config();
        assert_eq!((config.node_timeout_ms, config.blacklist_ttl_ms, config.migration_barrier), (5000, 3000, 2));
        assert_eq!((config.endpoint_kind, config.save_failure), (EndpointKind::Unknown, SaveFailure::GoOn));
        assert!(config.replica_validity_factor == 0 && !config.require_full_coverage);
    }

    #[test]
    fn the_port_of_the_bus_is_a_port() {
        let port_of = |lines: &[&str]| loaded(lines).cluster_bus_port();
        assert_eq!(port_of(&["port 6379"]), Some(16379));
        assert_eq!(port_of(&["port 55535"]), Some(65535));
        assert_eq!(port_of(&["port 55536"]), None);
        assert_eq!(port_of(&["port 60000", "cluster-port 7"]), Some(7));
        assert_eq!(port_of(&["port 6379", "tls-port 7000", "tls-cluster yes"]), Some(17000));
        assert_eq!(port_of(&["port 0", "tls-port 7000"]), Some(17000));
    }
}
