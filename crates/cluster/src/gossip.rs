//! Gossip: news of other nodes in PINGs, PONGs and MEETs.

use std::collections::BTreeSet;

use crate::io::Level;
use crate::machine::Machine;
use crate::node::{Health, Node, NodeKey, PeerRole};
use crate::rules::Rule;
use crate::view::Ports;
use crate::wire::{Gossip, NodeFlags};

/// The greatest accepted difference between the clocks of two nodes.
const CLOCK_TOLERANCE_MS: u64 = 500;

impl Machine {
    /// Returns the gossip for a message to a node: some random nodes, and all suspected ones.
    pub(crate) fn gossip_for(&mut self, receiver: Option<NodeKey>) -> Vec<Gossip> {
        let known = self.table.count();
        let wanted = (known * self.config.gossip_percent / 100).max(3).min(known.saturating_sub(2));
        let mut chosen = BTreeSet::new();
        for _ in 0..wanted * 3 {
            if chosen.len() >= wanted {
                break;
            }
            let number = self.random.next();
            let key = self.table.nth(number).filter(|key| self.is_news(*key, receiver));
            chosen.extend(key);
        }
        let is_suspected = |key: &NodeKey| self.table[*key].health == Health::Suspected && self.has_address(*key);
        chosen.extend(self.table.keys().filter(is_suspected));
        chosen.into_iter().map(|key| self.gossip_about(key)).collect()
    }

    fn has_address(&self, key: NodeKey) -> bool {
        !self.table[key].in_handshake() && !self.table[key].no_address
    }

    /// Returns true if a node belongs into gossip. Nodes in a handshake, the two ends of the link, and unreachable nodes without slots are
    /// left out.
    fn is_news(&self, key: NodeKey, receiver: Option<NodeKey>) -> bool {
        let is_end = key == self.me() || Some(key) == receiver;
        let node = &self.table[key];
        let is_active = node.outbound.is_some() || node.slot_count > 0;
        !is_end && is_active && node.health != Health::Suspected && self.has_address(key)
    }

    fn gossip_about(&self, key: NodeKey) -> Gossip {
        let node = &self.table[key];
        let seconds = |ms: Option<u64>| ms.map_or(0, |ms| (self.now.unix_of(ms) / 1000) as u32);
        let ports = node.endpoints.ports;
        let (port, other_port) = if self.config.tls_bus { (ports.tls, ports.plain) } else { (ports.plain, ports.tls) };
        Gossip {
            id: node.id,
            ping_sent: seconds(node.ping_sent_ms),
            pong_received: seconds(node.pong_received_ms),
            ip: node.endpoints.ip.clone(),
            port,
            other_port,
            bus_port: node.bus_port,
            flags: node.flags(),
        }
    }

    /// Returns the ports for clients from the two ports in a header or in gossip.
    pub(crate) fn ports_of(&self, port: u16, other_port: u16) -> Ports {
        match self.config.tls_bus {
            true => Ports { tls: port, plain: other_port },
            false => Ports { plain: port, tls: other_port },
        }
    }

    /// Reads gossip. `sender` is a known node at an epoch, or a new one that has sent a MEET.
    pub(crate) fn read_gossip(&mut self, sender: NodeKey, sender_epoch: u64, gossip: &[Gossip]) {
        for entry in gossip {
            match self.table.find(&entry.id) {
                Some(key) if key == self.me() => {}
                Some(key) => self.read_news(sender, sender_epoch, key, entry),
                None => self.meet_by_gossip(entry),
            }
        }
    }

    fn read_news(&mut self, sender: NodeKey, sender_epoch: u64, key: NodeKey, entry: &Gossip) {
        let is_unwell = entry.flags.is_unwell();
        let is_old = is_unwell && self.is_old_failure(key, sender_epoch);
        if self.table[sender].is_voting() && !self.table[sender].in_handshake() && !is_old {
            self.take_report(sender, key, is_unwell);
        }
        if is_unwell {
            return;
        }
        let node = &self.table[key];
        if node.ping_sent_ms.is_none() && node.reports.is_empty() {
            self.take_pong_time(key, entry.pong_received);
        } else if node.health != Health::Well && !entry.flags.has(NodeFlags::NO_ADDRESS) {
            self.take_address_of_unwell(key, entry);
        }
    }

    /// Takes over the time of a later PONG that another node has received. It saves a PING of this node.
    fn take_pong_time(&mut self, key: NodeKey, unix_seconds: u32) {
        let unix_ms = u64::from(unix_seconds) * 1000;
        if unix_ms > self.now.unix_ms + CLOCK_TOLERANCE_MS {
            return;
        }
        let age_ms = self.now.unix_ms.saturating_sub(unix_ms);
        let at_ms = self.now.ms.saturating_sub(age_ms);
        let node = &mut self.table[key];
        node.pong_received_ms = node.pong_received_ms.max(Some(at_ms).filter(|_| unix_seconds != 0));
    }

    /// Takes over the address of a node that the sender reaches and this node doesn't. In all other cases stale gossip could bring back an
    /// old address.
    fn take_address_of_unwell(&mut self, key: NodeKey, entry: &Gossip) {
        let ports = self.ports_of(entry.port, entry.other_port);
        self.take_address(key, &entry.ip, ports, entry.bus_port);
    }

    /// Takes over an address, and reconnects if it differs.
    pub(crate) fn take_address(&mut self, key: NodeKey, ip: &str, ports: Ports, bus_port: u16) {
        let node = &self.table[key];
        let is_same = node.endpoints.ip == ip && node.endpoints.ports == ports && node.bus_port == bus_port;
        if is_same || ip.is_empty() || bus_port == 0 {
            return;
        }
        if let Some(link) = node.outbound {
            self.close(link);
        }
        let node = &mut self.table[key];
        node.endpoints.ip = ip.to_owned();
        node.endpoints.ports = ports;
        node.bus_port = bus_port;
        node.no_address = false;
        node.attempt_ms = None;
        self.log(Level::Notice, format!("Address updated for node {}, now {ip}:{}", self.name(key), ports.plain));
        self.changed();
        if self.table.myself().primary() == Some(key) {
            self.follow_at_address(key, false);
        }
    }

    /// Adds a node from gossip, with its name. A handshake with the address alone could reach a node of another cluster that has the
    /// address now.
    fn meet_by_gossip(&mut self, entry: &Gossip) {
        let is_forgotten = self.rules.hold(Rule::Blacklist) && self.table.is_forgotten(&entry.id, self.now.ms);
        let has_no_address = entry.flags.has(NodeFlags::NO_ADDRESS) || entry.ip.is_empty() || entry.bus_port == 0;
        if has_no_address || entry.flags.has(NodeFlags::HANDSHAKE) || is_forgotten {
            return;
        }
        let shard = self.random_shard();
        let mut node = Node::new(entry.id, shard, self.now.ms);
        node.endpoints.ip.clone_from(&entry.ip);
        node.endpoints.ports = self.ports_of(entry.port, entry.other_port);
        node.bus_port = entry.bus_port;
        if entry.flags.has(NodeFlags::REPLICA) {
            node.role = PeerRole::Replica(None);
        }
        if self.table.add(node).is_some() {
            self.changed();
        }
    }
}
