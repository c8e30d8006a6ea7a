//! The text of nodes.conf: one line a node, and a last line of variables.

mod parse;

use std::fmt::Write;

use crate::imported::SavedImport;
use crate::machine::{Machine, OpenSlot};
use crate::node::{Node, NodeKey};
use crate::slots::SlotSet;
use crate::view::{ClientPath, Endpoints};
use crate::wire::NodeFlags;

pub use parse::{FileError, NodesFile};

/// The names of flags, in the order of a line.
const FLAG_NAMES: [(NodeFlags, &str); 8] = [
    (NodeFlags::MYSELF, "myself"),
    (NodeFlags::PRIMARY, "master"),
    (NodeFlags::REPLICA, "slave"),
    (NodeFlags::SUSPECTED, "fail?"),
    (NodeFlags::FAILED, "fail"),
    (NodeFlags::HANDSHAKE, "handshake"),
    (NodeFlags::NO_ADDRESS, "noaddr"),
    (NodeFlags::NO_FAILOVER, "nofailover"),
];

impl Machine {
    /// The text of nodes.conf.
    pub(crate) fn file_text(&self) -> String {
        let known = self.table.keys().filter(|key| !self.table[*key].in_handshake());
        let mut text: String = known.map(|key| self.node_line(key, None) + "\n").collect();
        let (current, vote) = (self.current_epoch, self.last_vote_epoch);
        text.push_str("vars");
        self.write_unclaimed(&mut text);
        let _ = write!(text, " currentEpoch {current} lastVoteEpoch {vote}");
        self.write_imports(&mut text);
        text.push('\n');
        text
    }

    /// Writes the slots that their owners do not claim: `unclaimedSlots SLOTS`. Without this mark, a node that starts again would defend such a
    /// slot for an owner with a great epoch, against the node that has it. The peers skip variables that they do not know.
    fn write_unclaimed(&self, text: &mut String) {
        if !self.table.unclaimed.is_empty() {
            let _ = write!(text, " unclaimedSlots {}", comma_separated(&self.table.unclaimed));
        }
    }

    /// Writes the imports that a restart must not forget: `importedSlots SLOTS:SOURCE:SHARD[;...]`.
    fn write_imports(&self, text: &mut String) {
        for (at, SavedImport { slots, source, shard }) in self.imports_to_save().iter().enumerate() {
            let before = if at == 0 { " importedSlots " } else { ";" };
            let _ = write!(text, "{before}{}:{source}:{shard}", comma_separated(slots));
        }
    }

    /// A node's line: for a client, or for the file.
    pub(crate) fn node_line(&self, key: NodeKey, client: Option<ClientPath>) -> String {
        let node = &self.table[key];
        let mut line = format!("{} ", node.id);
        match client {
            Some(path) => write_address(&mut line, node, node.endpoints.ip_for(path), node.endpoints.port_for(path)),
            None => {
                write_address(&mut line, node, &node.endpoints.ip, node.endpoints.ports.plain);
                write_fields(&mut line, node);
            }
        }
        let primary = node.primary().map_or("-".to_owned(), |primary| self.table[primary].id.to_string());
        let unix = |ms: Option<u64>| ms.map_or(0, |ms| self.now.unix_of(ms));
        let is_connected = key == self.me() || self.link_to(key).is_some();
        let _ = write!(
            line,
            " {} {primary} {} {} {} {}",
            flag_names(node, key == self.me()),
            unix(node.ping_sent_ms),
            unix(node.pong_received_ms),
            self.table.epoch(key),
            if is_connected { "connected" } else { "disconnected" },
        );
        for range in node.slots.ranges() {
            let _ = write!(line, " {range}");
        }
        if key == self.me() {
            self.write_open(&mut line);
        }
        line
    }

    fn write_open(&self, line: &mut String) {
        for (slot, open) in &self.open {
            let arrow = if matches!(open, OpenSlot::Migrating(_)) { "->-" } else { "-<-" };
            let _ = write!(line, " [{slot}{arrow}{}]", self.table[open.peer()].id);
        }
    }
}

/// Returns ranges of slots without spaces.
fn comma_separated(slots: &SlotSet) -> String {
    slots.ranges().map(|range| range.to_string()).collect::<Vec<_>>().join(",")
}

fn write_address(line: &mut String, node: &Node, ip: &str, port: u16) {
    let _ = write!(line, "{ip}:{port}@{}", node.bus_port);
    if !node.endpoints.hostname.is_empty() {
        let _ = write!(line, ",{}", node.endpoints.hostname);
    }
}

/// Writes the auxiliary fields that are set. The peers refuse a file with a field that they don't know.
fn write_fields(line: &mut String, node: &Node) {
    let Endpoints { client_ipv4, client_ipv6, hostname, ports, client_ports, .. } = &node.endpoints;
    if hostname.is_empty() {
        line.push(',');
    }
    let number = |number: u16| if number == 0 { String::new() } else { number.to_string() };
    let fields = [
        ("availability-zone", node.zone.clone()),
        ("client-tls-port", number(client_ports.tls)),
        ("client-tcp-port", number(client_ports.plain)),
        ("client-ipv6", client_ipv6.clone()),
        ("client-ipv4", client_ipv4.clone()),
        ("tls-port", ports.tls.to_string()),
        ("nodename", node.node_name.clone()),
        ("shard-id", node.shard.to_string()),
    ];
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(line, ",{name}={value}");
    }
}

fn flag_names(node: &Node, is_me: bool) -> String {
    let flags = node.flags().with(NodeFlags::MYSELF, is_me);
    let set = FLAG_NAMES.iter().filter(|(flag, _)| flags.has(*flag)).map(|(_, name)| *name);
    let names: Vec<&str> = set.collect();
    if names.is_empty() { "noflags".into() } else { names.join(",") }
}
