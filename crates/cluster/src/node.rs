//! A node, as this one knows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dialect::{Dialect, Extensions, NodeSecret, Reader};
use crate::id::{NodeId, ShardId};
use crate::links::LinkId;
use crate::slots::SlotSet;
use crate::view::Endpoints;
use crate::wire::NodeFlags;

/// A node's place in the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeKey(pub(crate) u16);

impl NodeKey {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node's role, and the table key of its primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerRole {
    /// The node is a primary.
    Primary,
    /// The node replicates a primary; `None` if that node is unknown.
    Replica(Option<NodeKey>),
}

/// A node's health, as this node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// Nothing is wrong.
    Well,
    /// The node doesn't answer this one.
    Suspected,
    /// A majority of the primaries has found that the node has failed.
    Failed {
        /// The time at which this node learned it.
        since_ms: u64,
    },
}

/// A node's progress in becoming known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acquaintance {
    /// The node's name is known.
    Known,
    /// The name is a temporary one until the node's first PONG.
    Handshake,
}

/// A node, as this one knows it.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name.
    pub id: NodeId,
    /// The name of its shard.
    pub shard: ShardId,
    /// The role.
    pub role: PeerRole,
    /// The health.
    pub health: Health,
    /// The progress in becoming known.
    pub acquaintance: Acquaintance,
    /// True if the next first message on a link is a MEET.
    pub wants_meet: bool,
    /// True if the address is unknown.
    pub no_address: bool,
    /// True if replicas of other primaries may move to this one.
    pub migrate_to: bool,
    /// The flags in its last header that the node decides itself.
    pub announced: NodeFlags,
    /// The epoch of its slots, for a primary.
    pub config_epoch: u64,
    /// The greatest epoch that it knew when it sent its last message.
    pub known_epoch: u64,
    /// The slots that are bound to it.
    pub slots: Arc<SlotSet>,
    /// The number of these slots.
    pub slot_count: usize,
    /// True if another node of its shard has taken its last slot, and no header has shown that it knows. It may still take its former slots for
    /// its own, and its next role is a replica's.
    pub(crate) is_replaced: bool,
    /// The replication offset of its last header.
    pub offset: u64,
    /// The addresses and ports.
    pub endpoints: Endpoints,
    /// The port of the bus.
    pub bus_port: u16,
    /// The name for people.
    pub node_name: String,
    /// The availability zone.
    pub zone: String,
    /// The family that it belongs to.
    pub dialect: Dialect,
    /// The secret that a Redis node has sent last.
    pub secret: Option<NodeSecret>,
    /// True if it has sent a shard id, as all peers from Redis 7.2 on do.
    pub has_sent_shard: bool,
    /// When this node learned of it.
    pub created_ms: u64,
    /// The time of the unanswered PING, if there is one.
    pub ping_sent_ms: Option<u64>,
    /// The time at which this node has voted for a replica of it.
    pub replaced_by_vote_ms: Option<u64>,
    /// True if it votes for epochs of primaries.
    pub votes_for_epochs: bool,
    /// The time of its last PONG, to this node or to another node that reported it in gossip.
    pub pong_received_ms: Option<u64>,
    /// When any data of it came.
    pub data_received_ms: Option<u64>,
    /// When a MEET was sent.
    pub meet_sent_ms: Option<u64>,
    /// When the last attempt to connect was made.
    pub attempt_ms: Option<u64>,
    /// The time since which it has had no inbound link.
    pub no_inbound_since_ms: u64,
    /// The time since which it has been a primary with slots and without a working replica.
    pub orphaned_since_ms: Option<u64>,
    /// The other voting primaries that reported it as unwell, and when they last did.
    pub reports: BTreeMap<NodeKey, u64>,
    /// The link that this node has made.
    pub outbound: Option<LinkId>,
    /// The PINGs on that link whose PONGs have not come.
    pub unanswered: u32,
    /// The PONGs among these that may be older than the node's known claims, because their PINGs were sent before the claims became known.
    pub old_pongs: u32,
    /// The link that the other node has made.
    pub inbound: Option<LinkId>,
}

impl Node {
    /// Returns a node with nothing but names, its own and a provisional one of its shard.
    pub(crate) fn new(id: NodeId, shard: ShardId, now_ms: u64) -> Node {
        Node {
            id,
            shard,
            role: PeerRole::Primary,
            health: Health::Well,
            acquaintance: Acquaintance::Known,
            wants_meet: false,
            no_address: false,
            migrate_to: false,
            announced: NodeFlags::default(),
            config_epoch: 0,
            known_epoch: 0,
            slots: Arc::default(),
            slot_count: 0,
            is_replaced: false,
            offset: 0,
            endpoints: Endpoints::default(),
            bus_port: 0,
            node_name: String::new(),
            zone: String::new(),
            dialect: Dialect::Unknown,
            secret: None,
            has_sent_shard: false,
            created_ms: now_ms,
            ping_sent_ms: None,
            replaced_by_vote_ms: None,
            votes_for_epochs: false,
            pong_received_ms: None,
            data_received_ms: None,
            meet_sent_ms: None,
            attempt_ms: None,
            no_inbound_since_ms: now_ms,
            orphaned_since_ms: None,
            reports: BTreeMap::new(),
            outbound: None,
            unanswered: 0,
            old_pongs: 0,
            inbound: None,
        }
    }

    /// Sets the link that this node has made. All PONGs on it will be newer than the known claims.
    pub(crate) fn connect_by(&mut self, link: LinkId) {
        self.outbound = Some(link);
        (self.unanswered, self.old_pongs) = (0, 0);
    }

    /// Notes that the node's claims have become known. A PONG is newer only if it answers a later PING.
    pub(crate) fn note_claims(&mut self) {
        self.old_pongs = self.unanswered;
    }

    /// Notes a PONG on the link that this node has made. Returns true if the node has sent it after all claims of it that are known here.
    ///
    /// A node answers the PINGs of a link in their order, and sends no other PONG on it. If it drops a PING, its later answers count as
    /// older than they are.
    pub(crate) fn note_pong(&mut self) -> bool {
        let is_newer = self.old_pongs == 0;
        self.old_pongs = self.old_pongs.saturating_sub(1);
        self.unanswered = self.unanswered.saturating_sub(1);
        is_newer
    }

    /// True if the node is a primary.
    pub fn is_primary(&self) -> bool {
        self.role == PeerRole::Primary
    }

    /// The primary that it replicates.
    pub fn primary(&self) -> Option<NodeKey> {
        match self.role {
            PeerRole::Primary => None,
            PeerRole::Replica(primary) => primary,
        }
    }

    /// True if the node is a primary with slots: only such nodes vote.
    pub fn is_voting(&self) -> bool {
        self.is_primary() && self.slot_count > 0
    }

    /// True if a majority has found that the node has failed.
    pub fn has_failed(&self) -> bool {
        matches!(self.health, Health::Failed { .. })
    }

    /// True if the node's name is a temporary one.
    pub fn in_handshake(&self) -> bool {
        self.acquaintance == Acquaintance::Handshake
    }

    /// The flags to show to others.
    pub fn flags(&self) -> NodeFlags {
        NodeFlags(self.announced.0 & ANNOUNCED)
            // The role is unknown until the handshake ends.
            .with(NodeFlags::PRIMARY, self.is_primary() && !self.in_handshake())
            .with(NodeFlags::REPLICA, !self.is_primary())
            .with(NodeFlags::SUSPECTED, self.health == Health::Suspected)
            .with(NodeFlags::FAILED, self.has_failed())
            .with(NodeFlags::HANDSHAKE, self.in_handshake())
            .with(NodeFlags::NO_ADDRESS, self.no_address)
            .with(NodeFlags::MEET, self.wants_meet)
            .with(NodeFlags::MIGRATE_TO, self.migrate_to)
    }

    /// Takes over the flags in a header that the node decides itself.
    pub(crate) fn announce(&mut self, flags: NodeFlags, reads_extensions: bool) {
        let known = self.announced.0 & NodeFlags::EXTENSIONS.0;
        self.announced = NodeFlags(flags.0 & ANNOUNCED & !NodeFlags::EXTENSIONS.0 | known);
        self.announced = self.announced.with(NodeFlags::EXTENSIONS, reads_extensions);
    }

    /// The form of extensions that the node reads.
    pub(crate) fn reader(&self) -> Reader {
        let is_new = self.has_sent_shard || self.announced.has(NodeFlags::LIGHT_PUBLISH);
        if is_new { Reader::All(self.dialect) } else { Reader::HostnameOnly }
    }

    /// Takes the fields that extensions replace.
    pub(crate) fn extend(&mut self, extensions: &Extensions) -> bool {
        let before = (self.endpoints.clone(), self.node_name.clone(), self.zone.clone(), self.secret);
        let new = extensions.clone();
        self.endpoints.hostname = new.hostname;
        self.endpoints.client_ipv4 = new.client_ipv4;
        self.endpoints.client_ipv6 = new.client_ipv6;
        self.endpoints.client_ports = new.client_ports;
        self.node_name = new.node_name;
        self.zone = new.zone;
        self.secret = new.secret.or(self.secret).filter(|_| self.dialect == Dialect::Redis);
        self.has_sent_shard |= extensions.shard.is_some();
        before != (self.endpoints.clone(), self.node_name.clone(), self.zone.clone(), self.secret)
    }
}

/// The flags that a node itself decides.
const ANNOUNCED: u16 = NodeFlags::NO_FAILOVER.0
    | NodeFlags::EXTENSIONS.0
    | NodeFlags::LIGHT_PUBLISH.0
    | NodeFlags::LIGHT_MODULE.0
    | NodeFlags::PRIMARY_FAILED.0;
