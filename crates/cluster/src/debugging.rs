//! Faults for tests, which DEBUG switches on and off: dropped messages, links that are closed or not made again, and
//! missing PINGs.

use crate::commands::{ClusterReply, error, unknown};
use crate::machine::Machine;
use crate::wire::Kind;

/// The number of the filter that drops messages of all kinds. Other numbers that belong to no kind drop none.
const ALL_KINDS: i64 = -2;

/// A subcommand of DEBUG that concerns the bus.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Debug {
    /// DROP-CLUSTER-PACKET-FILTER: the number of the kind.
    DropKind(i64),
    /// CLOSE-CLUSTER-LINK-ON-PACKET-DROP.
    CloseOnDrop(bool),
    /// DISABLE-CLUSTER-RANDOM-PING.
    NoRandomPing(bool),
    /// DISABLE-CLUSTER-RECONNECTION.
    NoReconnection(bool),
    /// CLUSTERLINK KILL.
    KillLink {
        /// The links: `from` the node, `to` it, or `all`.
        direction: String,
        /// The node at the other end.
        node: String,
    },
}

/// The active faults.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Faults {
    drop_kind: Option<i64>,
    /// A link is closed with the message that is dropped.
    pub(crate) close_on_drop: bool,
    /// No PING goes to random nodes.
    pub(crate) no_random_ping: bool,
    /// No outbound links are made.
    pub(crate) no_reconnection: bool,
}

impl Faults {
    /// Returns true if messages of a kind are dropped when they arrive.
    pub(crate) fn drop(&self, kind: Kind) -> bool {
        self.drop_kind.is_some_and(|dropped| dropped == ALL_KINDS || dropped == kind as i64)
    }
}

impl Machine {
    pub(crate) fn debug(&mut self, debug: Debug) -> ClusterReply {
        match debug {
            Debug::DropKind(kind) => self.faults.drop_kind = Some(kind),
            Debug::CloseOnDrop(on) => self.faults.close_on_drop = on,
            Debug::NoRandomPing(on) => self.faults.no_random_ping = on,
            Debug::NoReconnection(on) => self.faults.no_reconnection = on,
            Debug::KillLink { direction, node } => return self.kill_links(&direction, &node),
        }
        ClusterReply::Ok
    }

    fn kill_links(&mut self, direction: &str, name: &str) -> ClusterReply {
        let Some(key) = self.named(name) else { return unknown(name) };
        if key == self.me() {
            return error("Cannot free cluster link(s) to myself");
        }
        let node = &self.table[key];
        let links = match &*direction.to_ascii_lowercase() {
            "from" => [None, node.inbound],
            "to" => [node.outbound, None],
            "all" => [node.outbound, node.inbound],
            _ => return ClusterReply::Error(format!("Unknown direction {direction}")),
        };
        links.into_iter().flatten().for_each(|link| self.close(link));
        ClusterReply::Ok
    }
}
