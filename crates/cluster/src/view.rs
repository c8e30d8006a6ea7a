//! The map of slots that worker threads see: immutable, shared behind an `Arc`, replaced as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::dialect::NodeSecret;
use crate::id::{NodeId, ShardId};
use crate::slots::{SLOTS, Slot, SlotSet};

/// A node's index in one view. Other views have other indexes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeIndex(u16);

impl NodeIndex {
    /// The index of a node's place in [`ViewParts::nodes`].
    pub const fn new(place: u16) -> NodeIndex {
        NodeIndex(place)
    }

    /// The place.
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// The owner of a slot that nobody has.
const NOBODY: u16 = u16::MAX;

/// A node's role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The node is a primary, with or without slots.
    Primary,
    /// The node replicates a primary; `None` if that node is unknown.
    Replica(Option<NodeIndex>),
}

/// An open slot: keys of it are on their way between two nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Open {
    /// This node gives the slot to another one.
    Migrating {
        /// The target.
        to: NodeIndex,
    },
    /// This node takes the slot from another one.
    Importing {
        /// The source.
        from: NodeIndex,
    },
}

/// The reason for a cluster that is down, as this node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// A slot has no owner, and `cluster-require-full-coverage` is on.
    Unbound(Slot),
    /// A slot's owner has failed, and `cluster-require-full-coverage` is on.
    OwnerFailed(Slot),
    /// This node reaches too few of the primaries that have slots.
    Minority {
        /// The primaries with slots that this node reaches.
        reachable: usize,
        /// The majority.
        needed: usize,
    },
    /// This primary started a moment ago, and waits for messages of the other nodes.
    Starting,
    /// This primary was cut off from the majority until a moment ago, and waits for messages of the other nodes.
    Rejoining,
}

impl std::fmt::Display for DownReason {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DownReason::Unbound(slot) => write!(to, "slot {slot} has no owner"),
            DownReason::OwnerFailed(slot) => write!(to, "the owner of slot {slot} has failed"),
            DownReason::Minority { reachable, needed } => {
                write!(to, "{reachable} of the primaries with slots are reachable, {needed} are needed")
            }
            DownReason::Starting => write!(to, "this primary has just started"),
            DownReason::Rejoining => write!(to, "this primary was cut off from the majority a moment ago"),
        }
    }
}

/// The state of the cluster, as this node sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterState {
    /// The node serves.
    Ok,
    /// The node refuses commands with keys, except commands that the directives allow.
    Down(DownReason),
}

/// The kind of endpoint that clients are told: `cluster-preferred-endpoint-type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum EndpointKind {
    /// The node's address.
    #[default]
    Ip,
    /// The node's host name; `?` if it has none.
    Hostname,
    /// Nothing: the client keeps the host that it is connected to.
    Unknown,
}

/// The port of a service and the port of the same service with TLS; 0 for one that isn't served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ports {
    /// The plain port.
    pub plain: u16,
    /// The port with TLS.
    pub tls: u16,
}

impl Ports {
    /// The port for a kind of connection.
    pub fn of(self, tls: bool) -> u16 {
        if tls { self.tls } else { self.plain }
    }
}

/// The addresses and ports of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Endpoints {
    /// The address on the bus; empty if it is unknown. Even a node's own address can be unknown.
    pub ip: String,
    /// The address that clients with IPv4 are told; empty: `ip`.
    pub client_ipv4: String,
    /// The address that clients with IPv6 are told; empty: `ip`.
    pub client_ipv6: String,
    /// The announced host name; empty if there is none.
    pub hostname: String,
    /// The ports for clients, and for replication.
    pub ports: Ports,
    /// The ports that clients are told instead; 0 stands for the port in `ports`.
    pub client_ports: Ports,
}

/// The properties of a client's connection that decide the endpoint to show to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientPath {
    /// The client is connected with IPv6.
    pub ipv6: bool,
    /// The client is connected with TLS.
    pub tls: bool,
}

/// An endpoint to show to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint<'v> {
    /// The host. Empty: the client keeps its own. `?`: unknown.
    pub host: &'v str,
    /// The port.
    pub port: u16,
}

impl Endpoints {
    /// The address for a client.
    pub fn ip_for(&self, path: ClientPath) -> &str {
        let announced = if path.ipv6 { &self.client_ipv6 } else { &self.client_ipv4 };
        if announced.is_empty() { &self.ip } else { announced }
    }

    /// The port for a client.
    pub fn port_for(&self, path: ClientPath) -> u16 {
        match self.client_ports.of(path.tls) {
            0 => self.ports.of(path.tls),
            announced => announced,
        }
    }

    /// Returns true if the node, or its clients, may name it by this host and port.
    pub fn are_at(&self, host: &str, port: u16, tls: bool) -> bool {
        let hosts = [&self.ip, &self.client_ipv4, &self.client_ipv6, &self.hostname];
        let ports = [self.ports.of(tls), self.client_ports.of(tls)];
        !host.is_empty() && port != 0 && hosts.iter().any(|known| *known == host) && ports.contains(&port)
    }

    /// The endpoint of a kind for a client.
    pub fn shown(&self, kind: EndpointKind, path: ClientPath) -> Endpoint<'_> {
        let host = match kind {
            EndpointKind::Ip => self.ip_for(path),
            EndpointKind::Hostname if self.hostname.is_empty() => "?",
            EndpointKind::Hostname => &self.hostname,
            EndpointKind::Unknown => "",
        };
        Endpoint { host, port: self.port_for(path) }
    }
}

/// A node, as worker threads see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeView {
    /// The node's name.
    pub id: NodeId,
    /// The name of its shard.
    pub shard: ShardId,
    /// Its role.
    pub role: Role,
    /// Its addresses and ports.
    pub endpoints: Endpoints,
    /// True if the node is marked as failed.
    pub failed: bool,
    /// The secret of a Redis node.
    pub secret: Option<NodeSecret>,
}

/// Everything that a view is made of.
#[derive(Clone, Debug)]
pub struct ViewParts {
    /// The number of the view; each later view has a greater one.
    pub edition: u64,
    /// The state of the cluster.
    pub state: ClusterState,
    /// The known nodes, this one among them.
    pub nodes: Vec<NodeView>,
    /// This node.
    pub me: NodeIndex,
    /// The bound slots, by their owner. Slots of several owners belong to the last one.
    pub bound: Vec<(NodeIndex, SlotSet)>,
    /// The open slots.
    pub open: BTreeMap<Slot, Open>,
    /// The kind of endpoint that clients are told.
    pub endpoint_kind: EndpointKind,
    /// `cluster-allow-reads-when-down`.
    pub reads_when_down: bool,
    /// `cluster-allow-pubsubshard-when-down`.
    pub pubsubshard_when_down: bool,
}

/// The map of slots that worker threads see.
#[derive(Clone, Debug)]
pub struct SlotView {
    /// The number of the view; each later view has a greater one.
    pub edition: u64,
    /// The state of the cluster.
    pub state: ClusterState,
    /// This node.
    pub me: NodeIndex,
    /// The slots that are bound to this node and not open.
    pub mine: SlotSet,
    /// The slots of this node's primary that are not open; none if this node is a primary.
    pub served_as_replica: SlotSet,
    /// The known nodes, this one among them.
    pub nodes: Vec<NodeView>,
    /// The kind of endpoint that clients are told.
    pub endpoint_kind: EndpointKind,
    /// `cluster-allow-reads-when-down`.
    pub reads_when_down: bool,
    /// `cluster-allow-pubsubshard-when-down`.
    pub pubsubshard_when_down: bool,
    owners: Box<[u16]>,
    open: BTreeMap<Slot, Open>,
    /// Shared with the clones of the view.
    deadline_ms: Arc<AtomicU64>,
}

/// The deadline of the latest view. The bus extends it in each tick.
///
/// Each view has a deadline of its own, and only that of the latest one is extended. A worker that still uses an earlier view, for example
/// because the process was stopped, therefore can't serve by it for longer than the bus allowed when it made that view.
#[derive(Debug, Default)]
pub struct ViewDeadline {
    latest: Option<Arc<SlotView>>,
    until_ms: u64,
}

impl ViewDeadline {
    /// Notes the view that the workers shall use from now on. It has the present deadline.
    pub fn follow(&mut self, view: &Arc<SlotView>) {
        view.deadline_ms.store(self.until_ms, Ordering::Relaxed);
        self.latest = Some(view.clone());
    }

    /// Extends the deadline of the latest view to this Unix time, in milliseconds.
    pub fn extend(&mut self, until_ms: u64) {
        self.extend_next(until_ms);
        if let Some(latest) = &self.latest {
            latest.deadline_ms.store(until_ms, Ordering::Relaxed);
        }
    }

    /// Sets the deadline of the next view to this Unix time, in milliseconds. The latest view keeps its deadline.
    pub fn extend_next(&mut self, until_ms: u64) {
        self.until_ms = until_ms;
    }
}

impl SlotView {
    /// Makes a view. Indexes beyond the nodes count as nobody.
    pub fn new(parts: ViewParts) -> SlotView {
        let mut owners = vec![NOBODY; SLOTS].into_boxed_slice();
        for (owner, slots) in parts.bound.iter().filter(|(owner, _)| owner.place() < parts.nodes.len()) {
            slots.iter().for_each(|slot| owners[slot.index()] = owner.0);
        }
        let slots_of = |owner: NodeIndex| Slot::all().filter(|slot| owners[slot.index()] == owner.0).collect();
        let mut mine: SlotSet = slots_of(parts.me);
        let mut served_as_replica = match parts.nodes.get(parts.me.place()).map(|me| me.role) {
            Some(Role::Replica(Some(primary))) => slots_of(primary),
            _ => SlotSet::EMPTY,
        };
        for slot in parts.open.keys() {
            mine.remove(*slot);
            served_as_replica.remove(*slot);
        }
        SlotView {
            edition: parts.edition,
            state: parts.state,
            me: parts.me,
            mine,
            served_as_replica,
            nodes: parts.nodes,
            endpoint_kind: parts.endpoint_kind,
            reads_when_down: parts.reads_when_down,
            pubsubshard_when_down: parts.pubsubshard_when_down,
            owners,
            open: parts.open,
            deadline_ms: Arc::new(AtomicU64::new(u64::MAX)),
        }
    }

    /// Returns true if the deadline has passed at this Unix time, in milliseconds. A view without a [`ViewDeadline`] has none.
    #[inline]
    pub fn is_late(&self, now_ms: u64) -> bool {
        now_ms > self.deadline_ms.load(Ordering::Relaxed)
    }

    /// Returns the view of a primary that may have been replaced while its process was stopped.
    #[must_use]
    pub fn in_doubt(&self) -> SlotView {
        SlotView { state: ClusterState::Down(DownReason::Rejoining), ..self.clone() }
    }

    /// True if the cluster is up, as this node sees it.
    pub fn is_up(&self) -> bool {
        self.state == ClusterState::Ok
    }

    /// The slots that this node serves unconditionally: its own ones that are not open, while the cluster is up.
    pub fn served(&self) -> &SlotSet {
        static NONE: SlotSet = SlotSet::EMPTY;
        if self.is_up() { &self.mine } else { &NONE }
    }

    /// The owner of a slot.
    #[inline]
    pub fn owner(&self, slot: Slot) -> Option<NodeIndex> {
        let owner = self.owners[slot.index()];
        (owner != NOBODY).then_some(NodeIndex(owner))
    }

    /// The two ends of an open slot; `None` if the slot isn't open.
    pub fn open(&self, slot: Slot) -> Option<Open> {
        self.open.get(&slot).copied()
    }

    /// The open slots in order.
    pub fn open_slots(&self) -> &BTreeMap<Slot, Open> {
        &self.open
    }

    /// A node; `None` for an index of another view.
    pub fn node(&self, index: NodeIndex) -> Option<&NodeView> {
        self.nodes.get(index.place())
    }

    /// This node's role.
    pub fn my_role(&self) -> Role {
        self.node(self.me).map_or(Role::Primary, |me| me.role)
    }

    /// True if this node is a primary.
    pub fn is_primary(&self) -> bool {
        self.my_role() == Role::Primary
    }

    /// This node's primary; `None` if this node is a primary, or its primary is unknown.
    pub fn my_primary(&self) -> Option<NodeIndex> {
        match self.my_role() {
            Role::Primary => None,
            Role::Replica(primary) => primary,
        }
    }

    /// The endpoint of a node to show to a client. The endpoint of an unknown node is `?:0`.
    pub fn endpoint(&self, index: NodeIndex, path: ClientPath) -> Endpoint<'_> {
        match self.node(index) {
            Some(node) => node.endpoints.shown(self.endpoint_kind, path),
            None => Endpoint { host: "?", port: 0 },
        }
    }
}
