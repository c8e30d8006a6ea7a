//! Messages of the bus: from bytes and to bytes.
//!
//! Reading is total: any bytes yield a message or a reason to drop them, and each length is checked before the read. All integers are
//! big-endian. The version is 1.

mod read;
mod write;

use std::sync::Arc;

use crate::id::NodeId;
use crate::slots::SlotSet;

pub(crate) use read::kind_of;
pub use read::{Dropped, Frame, frame, read};

/// The bytes of a full header.
pub const HEADER_LEN: usize = 2256;

/// The bytes of a light header.
pub const LIGHT_LEN: usize = 16;

/// The bytes of an entry of gossip.
pub const GOSSIP_LEN: usize = 104;

/// The bytes of an address as text.
const IP_LEN: usize = 46;

/// The lengths of messages that are longer than the header and have one length.
const FAIL_LEN: usize = HEADER_LEN + 40;
const UPDATE_LEN: usize = HEADER_LEN + 8 + 40 + SlotSet::BYTES;

/// Places in a full header.
mod at {
    pub(super) const TOTAL: usize = 4;
    pub(super) const VERSION: usize = 8;
    pub(super) const PORT: usize = 10;
    pub(super) const TYPE: usize = 12;
    pub(super) const COUNT: usize = 14;
    pub(super) const CURRENT_EPOCH: usize = 16;
    pub(super) const CONFIG_EPOCH: usize = 24;
    pub(super) const OFFSET: usize = 32;
    pub(super) const SENDER: usize = 40;
    pub(super) const SLOTS: usize = 80;
    pub(super) const PRIMARY: usize = 2128;
    pub(super) const IP: usize = 2168;
    pub(super) const EXTENSIONS: usize = 2214;
    pub(super) const OTHER_PORT: usize = 2246;
    pub(super) const BUS_PORT: usize = 2248;
    pub(super) const FLAGS: usize = 2250;
    pub(super) const STATE: usize = 2252;
    pub(super) const MESSAGE_FLAGS: usize = 2253;
}

const SIGNATURE: &[u8; 4] = b"RCmb";
const VERSION: u16 = 1;

/// The bit of a type that says that the header is a light one.
const LIGHT: u16 = 0x8000;

/// A kind of message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum Kind {
    /// "Are you there?"
    Ping = 0,
    /// The answer to a PING or a MEET; also sent without one, as news.
    Pong = 1,
    /// A PING of a node that wants to be known.
    Meet = 2,
    /// A node has failed.
    Fail = 3,
    /// A message for the subscribers of a channel.
    Publish = 4,
    /// A replica asks for votes.
    AuthRequest = 5,
    /// A vote.
    AuthAck = 6,
    /// The slots of another node.
    Update = 7,
    /// A replica asks its primary to pause, and to hand over.
    MfStart = 8,
    /// A message between modules.
    Module = 9,
    /// A message for the subscribers of a sharded channel.
    PublishShard = 10,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 11] = [
        Kind::Ping,
        Kind::Pong,
        Kind::Meet,
        Kind::Fail,
        Kind::Publish,
        Kind::AuthRequest,
        Kind::AuthAck,
        Kind::Update,
        Kind::MfStart,
        Kind::Module,
        Kind::PublishShard,
    ];

    /// The kind of a number.
    pub fn of(number: u16) -> Option<Kind> {
        Kind::ALL.get(usize::from(number)).copied()
    }

    /// The name in CLUSTER INFO.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ping => "ping",
            Kind::Pong => "pong",
            Kind::Meet => "meet",
            Kind::Fail => "fail",
            Kind::Publish => "publish",
            Kind::AuthRequest => "auth-req",
            Kind::AuthAck => "auth-ack",
            Kind::Update => "update",
            Kind::MfStart => "mfstart",
            Kind::Module => "module",
            Kind::PublishShard => "publishshard",
        }
    }
}

/// Flags of a node, in headers and in gossip.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NodeFlags(pub u16);

impl NodeFlags {
    /// The node is a primary.
    pub const PRIMARY: NodeFlags = NodeFlags(1);
    /// The node is a replica.
    pub const REPLICA: NodeFlags = NodeFlags(2);
    /// The sender suspects the node.
    pub const SUSPECTED: NodeFlags = NodeFlags(4);
    /// The node has failed.
    pub const FAILED: NodeFlags = NodeFlags(8);
    /// The node is the sender.
    pub const MYSELF: NodeFlags = NodeFlags(16);
    /// The node isn't known yet.
    pub const HANDSHAKE: NodeFlags = NodeFlags(32);
    /// The node's address is unknown.
    pub const NO_ADDRESS: NodeFlags = NodeFlags(64);
    /// The node will be sent a MEET.
    pub const MEET: NodeFlags = NodeFlags(128);
    /// Replicas of other primaries may move to the node.
    pub const MIGRATE_TO: NodeFlags = NodeFlags(256);
    /// The node doesn't start elections.
    pub const NO_FAILOVER: NodeFlags = NodeFlags(512);
    /// The node reads extensions.
    pub const EXTENSIONS: NodeFlags = NodeFlags(1024);
    /// The node reads light headers of published messages.
    pub const LIGHT_PUBLISH: NodeFlags = NodeFlags(2048);
    /// The node reads light headers of modules, and a MEET of a node that it knows.
    pub const LIGHT_MODULE: NodeFlags = NodeFlags(4096);
    /// The node is a replica, and sees its primary as failed.
    pub const PRIMARY_FAILED: NodeFlags = NodeFlags(8192);

    /// True if all flags of another set are set.
    pub fn has(self, flags: NodeFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags, with others set if a condition holds.
    #[must_use]
    pub fn with(self, flags: NodeFlags, condition: bool) -> NodeFlags {
        if condition { NodeFlags(self.0 | flags.0) } else { self }
    }

    /// True if the node is suspected or failed.
    pub fn is_unwell(self) -> bool {
        self.0 & (NodeFlags::SUSPECTED.0 | NodeFlags::FAILED.0) != 0
    }
}

/// Flags of a message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MessageFlags(pub u8);

impl MessageFlags {
    /// The sender is a primary that has paused its clients for a manual failover.
    pub const PAUSED: MessageFlags = MessageFlags(1);
    /// The vote is wanted even if the primary is up.
    pub const FORCE_VOTE: MessageFlags = MessageFlags(2);
    /// The sender reads extensions, and the message may have some.
    pub const EXTENSIONS: MessageFlags = MessageFlags(4);
    /// The sender is a node of Penstock, and votes for epochs of primaries at the ends of moves. Other peers do not use this bit, and ignore it.
    pub const EPOCH_VOTES: MessageFlags = MessageFlags(0x80);

    /// True if all flags of another set are set.
    pub fn has(self, flags: MessageFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These flags, with others set if a condition holds.
    #[must_use]
    pub fn with(self, flags: MessageFlags, condition: bool) -> MessageFlags {
        if condition { MessageFlags(self.0 | flags.0) } else { self }
    }
}

/// The header of a message: the sender's view of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// The sender's client port: the one with TLS if the bus has TLS, else the plain one.
    pub port: u16,
    /// The sender's other client port; 0 if there is none.
    pub other_port: u16,
    /// The sender's port of the bus.
    pub bus_port: u16,
    /// The greatest epoch that the sender knows.
    pub current_epoch: u64,
    /// The epoch of the sender's slots; a replica sends its primary's.
    pub config_epoch: u64,
    /// The sender's replication offset.
    pub offset: u64,
    /// The sender.
    pub sender: NodeId,
    /// The sender's slots; a replica sends its primary's.
    pub slots: Arc<SlotSet>,
    /// The sender's primary; `None` if the sender is a primary.
    pub primary: Option<NodeId>,
    /// The sender's address; empty: the peer's address of the connection.
    pub ip: String,
    /// The sender's flags.
    pub flags: NodeFlags,
    /// True if the cluster is down, as the sender sees it.
    pub is_down: bool,
    /// The message's flags.
    pub message_flags: MessageFlags,
}

/// The sender's view of another node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gossip {
    /// The node.
    pub id: NodeId,
    /// When the sender sent the PING that isn't answered yet, in Unix seconds; 0 if there is none.
    pub ping_sent: u32,
    /// When the sender received the node's last PONG, in Unix seconds; 0 if it has received none.
    pub pong_received: u32,
    /// The node's address.
    pub ip: String,
    /// The node's client port, as in [`Header::port`].
    pub port: u16,
    /// The node's other client port.
    pub other_port: u16,
    /// The node's port of the bus.
    pub bus_port: u16,
    /// The node's flags, as the sender sees it.
    pub flags: NodeFlags,
}

/// An extension of a PING, PONG or MEET: a type and the data behind it, with its padding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RawExtension {
    /// The type.
    pub kind: u16,
    /// The data; a multiple of eight bytes.
    pub data: Vec<u8>,
}

/// The payload of a published message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// The channel.
    pub channel: Arc<[u8]>,
    /// The message.
    pub message: Arc<[u8]>,
    /// True if the channel is a sharded one.
    pub sharded: bool,
}

/// The payload of a module's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModuleData {
    /// The module, in the sender's byte order.
    pub module: [u8; 8],
    /// The type, which the module chooses.
    pub kind: u8,
    /// The payload.
    pub payload: Vec<u8>,
}

/// The part of a message behind a full header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// PING, PONG or MEET.
    Ping {
        /// One of the three kinds.
        kind: Kind,
        /// News of other nodes.
        gossip: Vec<Gossip>,
        /// More about the sender.
        extensions: Vec<RawExtension>,
    },
    /// A node has failed.
    Fail(NodeId),
    /// A published message.
    Publish(Published),
    /// A request for votes.
    AuthRequest,
    /// A vote.
    AuthAck,
    /// The slots of another node.
    Update {
        /// The epoch of the node's slots.
        config_epoch: u64,
        /// The node.
        node: NodeId,
        /// Its slots.
        slots: Arc<SlotSet>,
    },
    /// A request to hand over.
    MfStart,
    /// A module's message.
    Module(ModuleData),
}

impl Body {
    /// The kind of message.
    pub fn kind(&self) -> Kind {
        match self {
            Body::Ping { kind, .. } => *kind,
            Body::Fail(_) => Kind::Fail,
            Body::Publish(published) => published.kind(),
            Body::AuthRequest => Kind::AuthRequest,
            Body::AuthAck => Kind::AuthAck,
            Body::Update { .. } => Kind::Update,
            Body::MfStart => Kind::MfStart,
            Body::Module(_) => Kind::Module,
        }
    }
}

impl Published {
    /// The kind of message.
    pub fn kind(&self) -> Kind {
        if self.sharded { Kind::PublishShard } else { Kind::Publish }
    }
}

/// The payload behind a light header, which names no sender.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LightBody {
    /// A published message.
    Publish(Published),
    /// A module's message.
    Module(ModuleData),
}

/// A message of the bus.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// A message with a full header.
    Full(Box<Header>, Body),
    /// A message with a light header.
    Light(LightBody),
}

impl Message {
    /// The kind of message.
    pub fn kind(&self) -> Kind {
        match self {
            Message::Full(_, body) => body.kind(),
            Message::Light(LightBody::Publish(published)) => published.kind(),
            Message::Light(LightBody::Module(_)) => Kind::Module,
        }
    }

    /// The message as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        write::to_bytes(self)
    }
}
