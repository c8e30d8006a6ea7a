//! The machine's view of the links to other nodes.

use std::collections::BTreeMap;

use crate::node::NodeKey;

/// The memory of an empty queue. A limit below it closes every link at the next tick, as in Valkey and Redis.
const EMPTY_QUEUE_BYTES: u64 = 48;

/// A connection. The machine numbers those that it makes, the caller those that it accepts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkId {
    /// A connection that this node has made.
    Outbound(u64),
    /// A connection that this node has accepted.
    Inbound(u64),
}

impl LinkId {
    /// True for a connection that this node has accepted.
    pub fn is_inbound(self) -> bool {
        matches!(self, LinkId::Inbound(_))
    }
}

/// A link.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// The node at the other end; `None` until a message names a known node.
    pub(crate) node: Option<NodeKey>,
    /// True if the connection is established.
    pub(crate) is_up: bool,
    /// When the link was made.
    pub(crate) created_ms: u64,
    /// True if a PONG of the node has come on this link. Light headers may be used from then on.
    pub(crate) has_ponged: bool,
    /// True if the other end has shown that it reads extensions.
    pub(crate) reads_extensions: bool,
    /// The address of the other end.
    pub(crate) peer_ip: String,
    /// The address of this end.
    pub(crate) local_ip: String,
    /// The bytes that wait to be sent.
    pub(crate) queued_bytes: u64,
}

/// The links.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    links: BTreeMap<LinkId, Link>,
    made: u64,
}

impl Links {
    /// A new outbound link to a node.
    pub(crate) fn make(&mut self, node: NodeKey, peer_ip: &str, now_ms: u64) -> LinkId {
        self.made += 1;
        let id = LinkId::Outbound(self.made);
        let link = Link::new(Some(node), peer_ip, "", now_ms);
        self.links.insert(id, link);
        id
    }

    /// A new inbound link.
    pub(crate) fn accept(&mut self, id: LinkId, peer_ip: &str, local_ip: &str, now_ms: u64) {
        self.links.insert(id, Link { is_up: true, ..Link::new(None, peer_ip, local_ip, now_ms) });
    }

    pub(crate) fn get(&self, id: LinkId) -> Option<&Link> {
        self.links.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: LinkId) -> Option<Link> {
        self.links.remove(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links.iter().map(|(id, link)| (*id, link))
    }
}

impl Link {
    /// The memory of the queue, which `cluster-link-sendbuf-limit` bounds.
    pub(crate) fn queue_memory(&self) -> u64 {
        EMPTY_QUEUE_BYTES + self.queued_bytes
    }

    fn new(node: Option<NodeKey>, peer_ip: &str, local_ip: &str, now_ms: u64) -> Link {
        Link {
            node,
            is_up: false,
            created_ms: now_ms,
            has_ponged: false,
            reads_extensions: false,
            peer_ip: peer_ip.to_owned(),
            local_ip: local_ip.to_owned(),
            queued_bytes: 0,
        }
    }
}
