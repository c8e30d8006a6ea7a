//! The processing of received messages.

use core::net::IpAddr;

use crate::dialect;
use crate::id::ShardId;
use crate::io::{Action, Level};
use crate::links::LinkId;
use crate::machine::Machine;
use crate::node::{Acquaintance, Node, NodeKey, PeerRole};
use crate::wire::{self, Body, Gossip, Header, Kind, LightBody, Message, MessageFlags, NodeFlags, RawExtension};

/// The end of a message's work.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkFate {
    Stays,
    Closed,
}

impl Machine {
    /// Takes a message.
    pub(crate) fn received(&mut self, id: LinkId, bytes: &[u8]) {
        if self.facts.stalled || self.links.get(id).is_none() {
            return;
        }
        // Dropped messages count, too: an operator sees that something sends them.
        if let Some(kind) = wire::kind_of(bytes) {
            self.stats.received.note(kind, bytes.len());
        }
        match wire::read(bytes) {
            Ok(message) => self.take(id, message),
            Err(dropped) => self.log(Level::Verbose, format!("A message was dropped: {dropped:?}")),
        }
    }

    fn take(&mut self, id: LinkId, message: Message) {
        if self.faults.drop(message.kind()) {
            if self.faults.close_on_drop {
                self.close(id);
            }
            return;
        }
        match message {
            Message::Light(body) => self.take_light(id, body),
            Message::Full(header, body) => self.take_full(id, &header, body),
        }
    }

    /// Processes a message with a light header. The header names no sender, so the link must belong to a known node.
    fn take_light(&mut self, id: LinkId, body: LightBody) {
        let node = self.links.get(id).and_then(|link| link.node);
        let Some(key) = node.filter(|key| !self.table[*key].in_handshake()) else {
            self.log(Level::Notice, "Closing a link that began with a light message".into());
            return self.close(id);
        };
        self.table[key].data_received_ms = Some(self.now.ms);
        if let LightBody::Publish(published) = body {
            self.deliver(published);
        }
    }

    fn deliver(&mut self, published: wire::Published) {
        let wire::Published { channel, message, sharded } = published;
        self.actions.push(Action::Deliver { channel, message, sharded });
    }

    fn take_full(&mut self, id: LinkId, header: &Header, body: Body) {
        let sender = self.sender(id, header);
        if let Some(sender) = sender {
            self.take_header(id, sender, header);
            if matches!(body, Body::Ping { .. }) {
                self.take_paused_offset(id, sender, header);
            }
        }
        let body = match body {
            Body::Ping { kind, gossip, extensions } => {
                return self.take_ping(id, sender, header, kind, &gossip, &extensions);
            }
            other => other,
        };
        let Some(sender) = sender else {
            return self.log(Level::Verbose, format!("Ignoring a message of unknown node {}", header.sender));
        };
        match body {
            Body::Fail(node) => self.learn_failure(sender, header.current_epoch, &node),
            Body::Publish(published) => self.deliver(published),
            Body::Update { config_epoch, node, slots } => self.take_update(config_epoch, &node, &slots),
            Body::AuthRequest => self.consider_vote(sender, header),
            Body::AuthAck => self.count_vote(sender, header),
            Body::MfStart => self.start_handover(id, sender),
            Body::Module(_) | Body::Ping { .. } => {}
        }
    }

    /// The sender of a message, if it is another known node. An inbound link belongs to the node that its messages name.
    fn sender(&mut self, id: LinkId, header: &Header) -> Option<NodeKey> {
        let found = self.table.find(&header.sender).filter(|key| *key != self.me());
        let found = found.filter(|key| !self.table[*key].in_handshake());
        if id.is_inbound()
            && let Some(key) = found
        {
            self.bind_inbound(id, key);
        }
        let bound = self.links.get(id).and_then(|link| link.node);
        // On an outbound link only its own node may be the sender. A different sender has taken over the address.
        let is_foreign = !id.is_inbound() && bound != found && bound.is_some_and(|key| !self.table[key].in_handshake());
        found.filter(|_| !is_foreign)
    }

    /// Binds an inbound link to a node, in place of the node's older inbound link.
    fn bind_inbound(&mut self, id: LinkId, key: NodeKey) {
        let Some(link) = self.links.get_mut(id) else { return };
        if link.node == Some(key) {
            return;
        }
        if let Some(other) = link.node.replace(key) {
            self.table[other].inbound = None;
            self.table[other].no_inbound_since_ms = self.now.ms;
        }
        if let Some(older) = self.table[key].inbound.replace(id) {
            if let Some(link) = self.links.get_mut(older) {
                link.node = None;
            }
            self.close(older);
        }
    }

    /// Processes the parts of a header that don't depend on the kind of message.
    fn take_header(&mut self, id: LinkId, sender: NodeKey, header: &Header) {
        let reads_extensions = header.message_flags.has(MessageFlags::EXTENSIONS);
        if let Some(link) = self.links.get_mut(id) {
            link.reads_extensions |= reads_extensions;
        }
        let now_ms = self.now.ms;
        let node = &mut self.table[sender];
        node.announce(header.flags, reads_extensions || node.announced.has(NodeFlags::EXTENSIONS));
        node.data_received_ms = Some(now_ms);
        node.offset = header.offset;
        node.known_epoch = header.current_epoch;
        node.votes_for_epochs = header.message_flags.has(MessageFlags::EPOCH_VOTES);
        self.current_epoch = self.current_epoch.max(header.current_epoch);
    }

    fn take_ping(
        &mut self,
        id: LinkId,
        sender: Option<NodeKey>,
        header: &Header,
        kind: Kind,
        gossip: &[Gossip],
        extensions: &[RawExtension],
    ) {
        let sender_before = sender;
        if kind != Kind::Pong {
            self.learn_my_address(id, kind);
            self.answer_ping(id, sender, header, kind, gossip);
        }
        let (sender, link) = self.take_outbound(id, sender, header, kind);
        if link == LinkFate::Closed {
            return;
        }
        let Some(sender) = sender.or(sender_before) else { return };
        self.learn_dialect(sender, header, extensions);
        if kind == Kind::Ping && id.is_inbound() {
            self.take_address_of_header(id, sender, header);
        }
        let is_present = kind == Kind::Pong && !id.is_inbound() && self.table[sender].note_pong();
        self.take_role_and_slots(sender, header, is_present);
        self.read_gossip(sender, header.current_epoch, gossip);
        if header.message_flags.has(MessageFlags::EXTENSIONS) && self.is_known(sender, header) {
            self.take_extensions(sender, extensions);
        }
    }

    /// Returns true if the node is still in the table. Processing the message may have removed it.
    fn is_known(&self, key: NodeKey, header: &Header) -> bool {
        self.table.find(&header.sender) == Some(key)
    }

    /// Learns this node's own address from the connection of a MEET, or of any PING while the address is unknown.
    fn learn_my_address(&mut self, id: LinkId, kind: Kind) {
        let known = &self.table.myself().endpoints.ip;
        let local_ip = self.links.get(id).map_or("", |link| &link.local_ip);
        let is_wanted = kind == Kind::Meet || known.is_empty();
        if !is_wanted || !self.config.announce.ip.is_empty() || local_ip.is_empty() || local_ip == known {
            return;
        }
        let local_ip = local_ip.to_owned();
        self.log(Level::Notice, format!("IP address for this node updated to {local_ip}"));
        self.table.myself_mut().endpoints.ip = local_ip;
        self.changed();
    }

    /// Answers a PING or a MEET. A MEET of an unknown node begins a handshake with it, and its gossip is accepted.
    fn answer_ping(&mut self, id: LinkId, sender: Option<NodeKey>, header: &Header, kind: Kind, gossip: &[Gossip]) {
        if kind == Kind::Meet && header.sender != self.table.myself().id {
            match sender {
                Some(known) => self.meet_known(known),
                None => self.meet_unknown(id, header, gossip),
            }
        }
        self.ping(id, Kind::Pong);
    }

    /// Handles a MEET from a long-known node, which has forgotten this one: both links are made anew.
    fn meet_known(&mut self, key: NodeKey) {
        let age_ms = self.now.ms.saturating_sub(self.table[key].created_ms);
        if age_ms > self.config.handshake_timeout_ms()
            && let Some(link) = self.table[key].outbound
        {
            self.close(link);
            self.table[key].attempt_ms = None;
        }
    }

    fn meet_unknown(&mut self, id: LinkId, header: &Header, gossip: &[Gossip]) {
        let peer_ip = self.links.get(id).map(|link| link.peer_ip.clone()).unwrap_or_default();
        let ip = if header.ip.is_empty() { peer_ip } else { header.ip.clone() };
        let ports = self.ports_of(header.port, header.other_port);
        if let Some(key) = self.start_handshake(&ip, ports, header.bus_port, false) {
            let reads_extensions = header.message_flags.has(MessageFlags::EXTENSIONS);
            self.table[key].announced = NodeFlags::default().with(NodeFlags::EXTENSIONS, reads_extensions);
        }
        // A repeated MEET may know more nodes.
        if let Some(key) = self.handshake_at(&ip, header.bus_port) {
            self.read_gossip(key, header.current_epoch, gossip);
        }
    }

    /// The node at an address with which a handshake is under way.
    fn handshake_at(&self, ip: &str, bus_port: u16) -> Option<NodeKey> {
        let ip = ip.parse::<IpAddr>().ok()?.to_string();
        self.table.keys().find(|key| {
            let node = &self.table[*key];
            node.in_handshake() && node.endpoints.ip == ip && node.bus_port == bus_port
        })
    }

    /// Begins a handshake with the node at an address; `None` if one is under way or the address is none.
    pub(crate) fn start_handshake(
        &mut self,
        ip: &str,
        ports: crate::view::Ports,
        bus_port: u16,
        wants_meet: bool,
    ) -> Option<NodeKey> {
        let ip = ip.parse::<IpAddr>().ok().filter(|_| bus_port != 0)?.to_string();
        if self.handshake_at(&ip, bus_port).is_some() {
            return None;
        }
        let id = crate::id::NodeId::random(|| self.random.next());
        let shard = self.random_shard();
        let mut node = Node::new(id, shard, self.now.ms);
        node.acquaintance = Acquaintance::Handshake;
        node.wants_meet = wants_meet;
        node.endpoints.ip = ip;
        node.endpoints.ports = ports;
        node.bus_port = bus_port;
        self.table.add(node)
    }

    pub(crate) fn random_shard(&mut self) -> ShardId {
        ShardId::random(|| self.random.next())
    }

    /// Processes a message on an outbound link: the end of a handshake, or the reply to a PING.
    fn take_outbound(
        &mut self,
        id: LinkId,
        sender: Option<NodeKey>,
        header: &Header,
        kind: Kind,
    ) -> (Option<NodeKey>, LinkFate) {
        let Some(key) = self.links.get(id).and_then(|link| link.node).filter(|_| !id.is_inbound()) else {
            if let Some(sender) = sender {
                self.table[sender].wants_meet = false;
            }
            return (sender, LinkFate::Stays);
        };
        let is_me = header.sender == self.table.myself().id;
        if self.table[key].in_handshake() {
            if let Some(known) = sender {
                self.take_address_of_header(id, known, header);
            }
            if sender.is_some() || is_me {
                self.remove_node(key);
                return (None, LinkFate::Closed);
            }
            self.end_handshake(key, header);
        } else if self.table[key].id != header.sender {
            self.lose_address(key);
            return (None, LinkFate::Closed);
        }
        self.table[key].wants_meet = false;
        if kind == Kind::Pong {
            self.take_pong(id, key);
        }
        if sender.is_none() {
            self.take_header(id, key, header);
        }
        (Some(key), LinkFate::Stays)
    }

    fn end_handshake(&mut self, key: NodeKey, header: &Header) {
        self.table.rename(key, header.sender);
        let node = &mut self.table[key];
        node.acquaintance = Acquaintance::Known;
        if header.flags.has(NodeFlags::REPLICA) {
            node.role = PeerRole::Replica(None);
        }
        self.log(Level::Notice, format!("Handshake with node {} completed.", header.sender));
        self.changed();
    }

    /// Marks a node's address as unknown, because a different node answers there.
    fn lose_address(&mut self, key: NodeKey) {
        self.log(Level::Notice, format!("PONG contains mismatching sender ID. About node {}", self.name(key)));
        let node = &mut self.table[key];
        node.no_address = true;
        node.endpoints.ip.clear();
        node.bus_port = 0;
        if let Some(link) = node.outbound {
            self.close(link);
        }
        if !self.table[key].has_failed() {
            self.fail(key);
            let id = self.table[key].id;
            self.broadcast(&Body::Fail(id), MessageFlags::default());
        }
        self.changed();
    }

    fn take_pong(&mut self, id: LinkId, key: NodeKey) {
        if let Some(link) = self.links.get_mut(id) {
            link.has_ponged = true;
        }
        let now_ms = self.now.ms;
        let node = &mut self.table[key];
        node.pong_received_ms = Some(now_ms);
        node.ping_sent_ms = None;
        self.recover(key);
    }

    fn learn_dialect(&mut self, sender: NodeKey, header: &Header, extensions: &[RawExtension]) {
        let node = &mut self.table[sender];
        node.dialect = node.dialect.learned(header.flags, extensions);
    }

    /// Takes over the address in a header. An empty one stands for the peer's address of the connection.
    fn take_address_of_header(&mut self, id: LinkId, sender: NodeKey, header: &Header) {
        let peer_ip = self.links.get(id).map(|link| link.peer_ip.clone()).unwrap_or_default();
        let ip = if header.ip.is_empty() { peer_ip } else { header.ip.clone() };
        let ports = self.ports_of(header.port, header.other_port);
        self.take_address(sender, &ip, ports, header.bus_port);
    }

    fn take_extensions(&mut self, sender: NodeKey, raw: &[RawExtension]) {
        let extensions = dialect::read(raw, self.table[sender].dialect);
        if self.table[sender].extend(&extensions) {
            self.changed();
        }
        let primary = self.table[sender].primary();
        let shard = primary.map(|primary| self.table[primary].shard).or(extensions.shard);
        if let Some(shard) = shard.filter(|shard| *shard != self.table[sender].shard) {
            self.table.set_shard(sender, shard);
            self.changed();
        }
        for (id, seconds) in extensions.forgotten {
            self.forget_by_gossip(&id, seconds);
        }
    }

    /// Forgets a node that another one has forgotten, unless it is this node or its primary.
    fn forget_by_gossip(&mut self, id: &crate::id::NodeId, seconds: u64) {
        let Some(key) = self.table.find(id) else { return };
        if key == self.me() || self.table.myself().primary() == Some(key) {
            return;
        }
        let ttl_ms = seconds.saturating_mul(1000).min(self.config.blacklist_ttl_ms.max(60_000));
        self.table.forget(*id, self.now.ms + ttl_ms);
        self.log(Level::Notice, format!("Forgetting node {}, as others have.", self.name(key)));
        self.remove_node(key);
    }
}
