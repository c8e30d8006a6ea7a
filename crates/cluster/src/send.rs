//! The sending of messages.

use std::sync::Arc;

use crate::dialect::{self, Extensions};
use crate::io::{Action, Level};
use crate::links::LinkId;
use crate::machine::Machine;
use crate::node::NodeKey;
use crate::rules::Rule;
use crate::slots::SlotSet;
use crate::view::ClusterState;
use crate::wire::{Body, Header, Kind, LightBody, Message, MessageFlags, NodeFlags, Published};

impl Machine {
    /// Counts the bytes of a message that the caller has encoded, for CLUSTER INFO.
    pub fn note_sent_bytes(&mut self, kind: Kind, bytes: usize) {
        self.stats.sent.note_bytes(kind, bytes);
    }

    /// The header of a message. It shows this node's claims as they are on disk.
    pub(crate) fn header(&self, message_flags: MessageFlags) -> Box<Header> {
        let claims = self.shown_claims();
        let me = self.table.myself();
        let is_primary = claims.primary.is_none();
        let ports = me.endpoints.ports;
        let (port, other_port) = if self.config.tls_bus { (ports.tls, ports.plain) } else { (ports.plain, ports.tls) };
        let flags = NodeFlags(me.flags().0 & !(NodeFlags::PRIMARY.0 | NodeFlags::REPLICA.0))
            .with(NodeFlags::PRIMARY, is_primary)
            .with(NodeFlags::REPLICA, !is_primary)
            .with(NodeFlags::MYSELF, true)
            .with(NodeFlags::PRIMARY_FAILED, me.primary().is_some_and(|primary| self.table[primary].has_failed()));
        Box::new(Header {
            port,
            other_port,
            bus_port: me.bus_port,
            current_epoch: self.current_epoch,
            config_epoch: claims.config_epoch,
            offset: self.facts.offset,
            sender: me.id,
            slots: claims.slots,
            primary: claims.primary,
            ip: self.config.announce.ip.clone(),
            flags,
            is_down: self.state != ClusterState::Ok,
            message_flags: message_flags.with(MessageFlags::EXTENSIONS, true).with(MessageFlags::EPOCH_VOTES, true),
        })
    }

    /// Sends a message on a link, if the link stands.
    pub(crate) fn send(&mut self, link: LinkId, body: Body, flags: MessageFlags) {
        let header = self.header(flags);
        self.send_as(link, header, body);
    }

    /// Sends a message with a header that differs from the usual one in its epoch.
    pub(crate) fn send_at_epoch(&mut self, link: LinkId, body: Body, flags: MessageFlags, current_epoch: u64) {
        let mut header = self.header(flags);
        header.current_epoch = current_epoch;
        self.send_as(link, header, body);
    }

    pub(crate) fn send_as(&mut self, link: LinkId, header: Box<Header>, body: Body) {
        if self.links.get(link).is_some_and(|link| link.is_up) {
            self.stats.sent.note_message(body.kind());
            self.actions.push(Action::Send { link, message: Message::Full(header, body) });
        }
    }

    /// Sends a message to every known node that has a link.
    pub(crate) fn broadcast(&mut self, body: &Body, flags: MessageFlags) {
        for link in self.links_to_all() {
            self.send(link, body.clone(), flags);
        }
    }

    pub(crate) fn links_to_all(&self) -> Vec<LinkId> {
        let known = self.table.keys().filter(|key| !self.table[*key].in_handshake());
        known.filter_map(|key| self.link_to(key)).collect()
    }

    /// Sends a PING, PONG or MEET on a link.
    pub(crate) fn ping(&mut self, link: LinkId, kind: Kind) {
        let Some(state) = self.links.get(link).filter(|state| state.is_up) else { return };
        let node = state.node;
        let reader = node
            .filter(|_| kind != Kind::Meet)
            .filter(|key| state.reads_extensions || self.table[*key].announced.has(NodeFlags::EXTENSIONS));
        let extensions = reader.map(|key| dialect::write(&self.extensions(), self.table[key].reader()));
        let gossip = self.gossip_for(node);
        if let Some(node) = node.filter(|_| !link.is_inbound()) {
            self.note_ping(node, kind);
        }
        let flags = MessageFlags::default().with(MessageFlags::PAUSED, self.is_paused());
        let extensions = extensions.unwrap_or_default();
        self.send(link, Body::Ping { kind, gossip, extensions }, flags);
    }

    fn note_ping(&mut self, node: NodeKey, kind: Kind) {
        let now_ms = self.now.ms;
        let node = &mut self.table[node];
        match kind {
            Kind::Ping => node.ping_sent_ms = node.ping_sent_ms.or(Some(now_ms)),
            Kind::Meet => node.meet_sent_ms = Some(now_ms),
            // Nobody answers a PONG.
            _ => return,
        }
        node.unanswered = node.unanswered.saturating_add(1);
    }

    /// Returns the extensions about this node.
    fn extensions(&self) -> Extensions {
        let me = self.table.myself();
        let left = |until_ms: u64| until_ms.saturating_sub(self.now.ms).div_ceil(1000);
        let forgotten = self.table.forgotten().map(|(id, until_ms)| (id, left(until_ms)));
        Extensions {
            hostname: me.endpoints.hostname.clone(),
            node_name: me.node_name.clone(),
            forgotten: forgotten.filter(|(_, seconds)| *seconds > 0).collect(),
            shard: Some(me.shard),
            client_ipv4: me.endpoints.client_ipv4.clone(),
            client_ipv6: me.endpoints.client_ipv6.clone(),
            client_ports: me.endpoints.client_ports,
            zone: me.zone.clone(),
            secret: None,
        }
    }

    /// Sends a PONG to every known node that has a link.
    pub(crate) fn pong_all(&mut self) {
        for link in self.links_to_all() {
            self.ping(link, Kind::Pong);
        }
    }

    /// Sends a node the slots of another node, without slots that the other node has given up.
    ///
    /// An election or a new slot of this node is news only once it is on disk. The PONG to all nodes follows the save.
    pub(crate) fn send_update(&mut self, to: NodeKey, about: NodeKey) {
        // A replica's claims are its primary's.
        if about == self.me() && !(self.table.myself().is_primary() && self.shows_all_claims()) {
            return;
        }
        let Some(link) = self.link_to(to) else { return };
        let (to, of) = (self.name(to), self.name(about));
        self.log(
            Level::Verbose,
            format!("Node {to} has old slots configuration, sending an UPDATE message about {of}"),
        );
        let node = self.table[about].id;
        let (config_epoch, slots) = match about == self.me() {
            true => {
                let claims = self.shown_claims();
                (claims.config_epoch, claims.slots)
            }
            false => self.claims_of_other(about),
        };
        self.send(link, Body::Update { config_epoch, node, slots }, MessageFlags::default());
    }

    fn claims_of_other(&self, key: NodeKey) -> (u64, Arc<SlotSet>) {
        let mut slots = self.known_claims(key);
        if self.rules.hold(Rule::UnclaimedSlots) && slots.intersects(&self.table.unclaimed) {
            Arc::make_mut(&mut slots).subtract(&self.table.unclaimed);
        }
        (self.table[key].config_epoch, slots)
    }

    /// Sends a message for subscribers: to all nodes, or to this shard's.
    pub(crate) fn publish(&mut self, channel: Arc<[u8]>, message: Arc<[u8]>, sharded: bool) {
        let me = self.me();
        let published = Published { channel, message, sharded };
        for key in self.table.others() {
            if self.table[key].in_handshake() || sharded && !self.table.same_shard(key, me) {
                continue;
            }
            let Some(id) = self.link_to(key) else { continue };
            let has_ponged = self.links.get(id).is_some_and(|link| link.has_ponged);
            if has_ponged && self.table[key].announced.has(NodeFlags::LIGHT_PUBLISH) {
                self.stats.sent.note_message(published.kind());
                let message = Message::Light(LightBody::Publish(published.clone()));
                self.actions.push(Action::Send { link: id, message });
            } else {
                self.send(id, Body::Publish(published.clone()), MessageFlags::default());
            }
        }
    }
}
