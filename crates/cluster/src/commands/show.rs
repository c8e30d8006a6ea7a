//! Subcommands that show the cluster.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{ClusterReply, Field, LinkEntry, ShardEntry, SlotsEntry, SlotsNode, error, unknown};
use crate::dialect::Dialect;
use crate::id::ShardId;
use crate::machine::Machine;
use crate::node::{Health, Node, NodeKey};
use crate::slots::{SlotRange, SlotSet};
use crate::view::{ClientPath, ClusterState, EndpointKind};

impl Machine {
    pub(super) fn show_info(&self) -> ClusterReply {
        let count = |matches: &dyn Fn(&Node) -> bool| {
            let nodes = self.table.keys().map(|key| &self.table[key]);
            nodes.filter(|node| matches(node)).count() as u64
        };
        let slots = |matches: &dyn Fn(&Node) -> bool| {
            let nodes = self.table.keys().map(|key| &self.table[key]);
            nodes.filter(|node| matches(node)).map(|node| node.slot_count as u64).sum::<u64>()
        };
        let suspected = |node: &Node| node.health == Health::Suspected;
        let numbers = [
            ("cluster_slots_assigned", slots(&|_| true)),
            ("cluster_slots_ok", slots(&|node| node.health == Health::Well)),
            ("cluster_slots_pfail", slots(&suspected)),
            ("cluster_slots_fail", slots(&Node::has_failed)),
            ("cluster_nodes_pfail", count(&suspected)),
            ("cluster_nodes_fail", count(&Node::has_failed)),
            ("cluster_voting_nodes_pfail", count(&|node| node.is_voting() && suspected(node))),
            ("cluster_voting_nodes_fail", count(&|node| node.is_voting() && node.has_failed())),
            ("cluster_known_nodes", self.table.count() as u64),
            ("cluster_size", self.table.size() as u64),
            ("cluster_current_epoch", self.current_epoch),
            ("cluster_my_epoch", self.table.epoch(self.me())),
        ];
        let state = if self.state == ClusterState::Ok { "ok" } else { "fail" };
        let mut text = format!("cluster_state:{state}\r\n");
        let numbers = numbers.into_iter().map(|(name, number)| (name.to_owned(), number));
        for (name, number) in numbers.chain(self.stats.lines()) {
            let _ = write!(text, "{name}:{number}\r\n");
        }
        self.show_warnings(&mut text);
        ClusterReply::Verbatim(text)
    }

    /// Adds Penstock's own lines, which explain problems in words.
    fn show_warnings(&self, text: &mut String) {
        if let ClusterState::Down(reason) = self.state {
            let _ = write!(text, "cluster_state_reason:{reason}\r\n");
        }
        if let Some(obstacle) = self.failover_obstacle() {
            let _ = write!(text, "cluster_failover_obstacle:{obstacle}\r\n");
        }
        let has = |dialect: Dialect| self.table.others().iter().any(|key| self.table[*key].dialect == dialect);
        if has(Dialect::Redis) && has(Dialect::Valkey) {
            text.push_str("cluster_warning:Redis 8 and Valkey nodes are mixed, and misread each other's messages\r\n");
        }
    }

    pub(super) fn show_nodes(&self, path: ClientPath) -> ClusterReply {
        let lines = self.table.keys().map(|key| self.node_line(key, Some(path)) + "\n");
        ClusterReply::Verbatim(lines.collect())
    }

    pub(super) fn show_replicas(&self, node: &str, path: ClientPath) -> ClusterReply {
        let Some(key) = self.named(node) else { return unknown(node) };
        if !self.table[key].is_primary() {
            return error("The specified node is not a master");
        }
        ClusterReply::Lines(self.table.replicas(key).map(|key| self.node_line(key, Some(path))).collect())
    }

    pub(super) fn show_reports(&mut self, node: &str) -> ClusterReply {
        match self.named(node) {
            Some(key) => ClusterReply::Integer(self.count_reports(key) as i64),
            None => unknown(node),
        }
    }

    pub(super) fn show_slots(&self, path: ClientPath) -> ClusterReply {
        let mut entries = Vec::new();
        for key in self.table.keys() {
            let replicas = self.table.replicas(key).filter(|key| self.is_available(*key));
            let nodes: Vec<SlotsNode> =
                [key].into_iter().chain(replicas).map(|key| self.slots_node(key, path)).collect();
            entries.extend(self.table[key].slots.ranges().map(|range| SlotsEntry { range, nodes: nodes.clone() }));
        }
        entries.sort_by_key(|entry| entry.range);
        ClusterReply::Slots(entries)
    }

    /// True if a replica can serve reads: it hasn't failed, and has data.
    fn is_available(&self, key: NodeKey) -> bool {
        !self.table[key].has_failed() && self.offset_of(key) != 0
    }

    fn offset_of(&self, key: NodeKey) -> u64 {
        if key == self.me() { self.facts.offset } else { self.table[key].offset }
    }

    fn slots_node(&self, key: NodeKey, path: ClientPath) -> SlotsNode {
        let node = &self.table[key];
        let kind = self.config.endpoint_kind;
        let shown = node.endpoints.shown(kind, path);
        let mut metadata = Vec::new();
        if kind != EndpointKind::Ip {
            metadata.push(("ip", node.endpoints.ip_for(path).to_owned()));
        }
        if kind != EndpointKind::Hostname && !node.endpoints.hostname.is_empty() {
            metadata.push(("hostname", node.endpoints.hostname.clone()));
        }
        if !node.zone.is_empty() {
            metadata.push(("availability-zone", node.zone.clone()));
        }
        let endpoint = (kind != EndpointKind::Unknown).then(|| shown.host.to_owned());
        SlotsNode { endpoint, port: shown.port, id: node.id, metadata }
    }

    pub(super) fn show_shards(&self, path: ClientPath) -> ClusterReply {
        let mut shards = BTreeMap::<ShardId, Vec<NodeKey>>::new();
        for key in self.table.keys().filter(|key| !self.table[*key].in_handshake()) {
            shards.entry(self.table[key].shard).or_default().push(key);
        }
        let entry = |(id, keys): (ShardId, Vec<NodeKey>)| {
            let mut slots = SlotSet::EMPTY;
            keys.iter().for_each(|key| slots.add(&self.table[*key].slots));
            let slots: Vec<SlotRange> = slots.ranges().collect();
            ShardEntry { slots, nodes: keys.iter().map(|key| self.shard_node(*key, path)).collect(), id }
        };
        ClusterReply::Shards(shards.into_iter().map(entry).collect())
    }

    fn shard_node(&self, key: NodeKey, path: ClientPath) -> Vec<(&'static str, Field)> {
        let node = &self.table[key];
        let text = |text: &str| Field::Text(text.to_owned());
        let offset = self.offset_of(key);
        let health = match (node.has_failed(), node.is_primary() || offset != 0) {
            (true, _) => "fail",
            (false, true) => "online",
            (false, false) => "loading",
        };
        let port = |tls: bool| node.endpoints.port_for(ClientPath { tls, ..path });
        let fields = [
            Some(("id", text(node.id.as_str()))),
            (port(false) != 0).then(|| ("port", Field::Number(i64::from(port(false))))),
            (port(true) != 0).then(|| ("tls-port", Field::Number(i64::from(port(true))))),
            Some(("ip", text(node.endpoints.ip_for(path)))),
            Some(("endpoint", text(node.endpoints.shown(self.config.endpoint_kind, path).host))),
            (!node.endpoints.hostname.is_empty()).then(|| ("hostname", text(&node.endpoints.hostname))),
            Some(("role", text(if node.is_primary() { "master" } else { "replica" }))),
            Some(("replication-offset", Field::Number(offset as i64))),
            Some(("health", text(health))),
            (!node.zone.is_empty()).then(|| ("availability-zone", text(&node.zone))),
        ];
        fields.into_iter().flatten().collect()
    }

    pub(super) fn show_links(&self) -> ClusterReply {
        let entry = |(id, link): (crate::links::LinkId, &crate::links::Link)| {
            Some(LinkEntry {
                inbound: id.is_inbound(),
                node: self.table[link.node?].id,
                create_time: self.now.unix_of(link.created_ms),
                is_writing: link.queued_bytes > 0,
                queued_bytes: link.queued_bytes,
            })
        };
        ClusterReply::Links(self.links.iter().filter_map(entry).collect())
    }
}
