//! The work of each tick: links, PINGs and suspicion.

use crate::io::{Action, Level};
use crate::links::LinkId;
use crate::machine::Machine;
use crate::node::NodeKey;
use crate::rules::Rule;
use crate::view::ClusterState;
use crate::wire::{Kind, NodeFlags};

/// Ticks between two PINGs to random nodes: a second.
const RANDOM_PING_TICKS: u64 = 10;

/// The number of random nodes to choose from. The PING goes to the node with the oldest PONG among them.
const RANDOM_PING_CHOICES: usize = 5;

/// Attempts to connect to a node within half a node timeout.
const ATTEMPTS: u64 = 10;

/// The shortest time between two attempts.
const ATTEMPT_MIN_MS: u64 = 100;

impl Machine {
    /// Does the work of a tick.
    pub(crate) fn tick(&mut self) {
        self.ticks += 1;
        // The workers count as hanging in the first tick of a process that was stopped. The time of silence goes on in this tick.
        if self.facts.stalled {
            return;
        }
        let slept_ms = self.last_tick_ms.map_or(0, |last_ms| self.now.ms.saturating_sub(last_ms));
        self.last_tick_ms = Some(self.now.ms);
        if slept_ms > self.config.node_timeout_ms / 2 {
            self.forgive_silence(slept_ms);
        }
        self.table.forget_forgotten(self.now.ms);
        self.close_overfull_links();
        self.tend_links();
        self.ping_random();
        for key in self.table.others() {
            self.tend(key);
        }
        self.take_abandoned_imports();
        self.expire_imports();
        self.tell_replicas_again();
        self.tick_failover();
        if self.state != ClusterState::Ok {
            self.todo.state = true;
        }
    }

    /// Restarts all timeouts after this process was stopped or its workers hung, because the silence of that time was its own. A PONG on a
    /// new link is no message from before.
    fn forgive_silence(&mut self, slept_ms: u64) {
        self.log(Level::Warning, format!("This process was stopped, or all of its workers hung, for {slept_ms} ms"));
        let now_ms = self.now.ms;
        for key in self.table.others() {
            let node = &mut self.table[key];
            node.ping_sent_ms = node.ping_sent_ms.map(|_| now_ms);
            if let Some(link) = node.outbound.filter(|_| !node.in_handshake()) {
                self.close(link);
            }
        }
        self.wake();
    }

    /// Ends handshakes that took too long, and connects to nodes that have no link.
    fn tend_links(&mut self) {
        for key in self.table.others() {
            let node = &self.table[key];
            let is_late = self.now.ms.saturating_sub(node.created_ms) > self.config.handshake_timeout_ms();
            if node.in_handshake() && is_late && self.rules.hold(Rule::HandshakeTimeout) {
                self.remove_node(key);
            } else if node.outbound.is_none() && !node.no_address {
                self.connect(key);
            } else {
                self.meet_again(key);
            }
        }
    }

    /// Connects to a node, unless the last attempt was a moment ago.
    fn connect(&mut self, key: NodeKey) {
        let node = &self.table[key];
        let interval_ms = (self.config.node_timeout_ms / 2 / ATTEMPTS).max(ATTEMPT_MIN_MS);
        // Jitter spreads the attempts to many nodes that have failed at the same time.
        let jitter_ms = self.random.below(interval_ms / 4 + 1);
        let next_ms = node.attempt_ms.map_or(0, |attempt_ms| attempt_ms + interval_ms - jitter_ms);
        let is_early = node.inbound.is_none() && self.now.ms < next_ms;
        if is_early || self.faults.no_reconnection {
            return;
        }
        let (ip, port) = (node.endpoints.ip.clone(), node.bus_port);
        let link = self.links.make(key, &ip, self.now.ms);
        let node = &mut self.table[key];
        node.attempt_ms = Some(self.now.ms);
        node.connect_by(link);
        // The timeout of a PING is the only cause of a suspicion, so an unreachable node gets one that counts as sent.
        node.ping_sent_ms = node.ping_sent_ms.or(Some(self.now.ms));
        self.actions.push(Action::Connect { link, ip, port });
    }

    /// Notes that a connection is established, and sends the first PING, or the MEET.
    pub(crate) fn linked(&mut self, id: LinkId, local_ip: &str) {
        let Some(link) = self.links.get_mut(id) else { return };
        link.is_up = true;
        link.local_ip = local_ip.to_owned();
        let Some(key) = link.node else { return };
        let kind = if self.table[key].wants_meet { Kind::Meet } else { Kind::Ping };
        self.ping(id, kind);
    }

    /// Sends another MEET to a node that never connects to this one, because it does not know this one.
    fn meet_again(&mut self, key: NodeKey) {
        let timeout_ms = self.config.handshake_timeout_ms();
        let node = &self.table[key];
        let since_ms = node.no_inbound_since_ms.max(node.meet_sent_ms.unwrap_or_default());
        let is_one_sided = node.inbound.is_none() && self.now.ms.saturating_sub(since_ms) > timeout_ms;
        let reads_it = node.announced.has(NodeFlags::LIGHT_MODULE) && !node.in_handshake();
        if !is_one_sided || !reads_it || !self.rules.hold(Rule::MeetAgain) {
            return;
        }
        if let Some(link) = self.link_to(key) {
            self.log(Level::Notice, format!("Sending MEET again to node {}: it doesn't connect.", self.name(key)));
            self.ping(link, Kind::Meet);
        }
    }

    fn ping_random(&mut self) {
        if !self.ticks.is_multiple_of(RANDOM_PING_TICKS) || self.faults.no_random_ping {
            return;
        }
        let mut choices = Vec::new();
        for _ in 0..RANDOM_PING_CHOICES {
            let number = self.random.next();
            choices.extend(self.table.nth(number));
        }
        let is_idle = |key: &NodeKey| {
            let node = &self.table[*key];
            *key != self.me() && !node.in_handshake() && node.ping_sent_ms.is_none() && self.link_to(*key).is_some()
        };
        let oldest = choices.into_iter().filter(is_idle).min_by_key(|key| self.table[*key].pong_received_ms);
        if let Some(link) = oldest.and_then(|key| self.link_to(key)) {
            self.ping(link, Kind::Ping);
        }
    }

    /// Checks one node: closes a silent link, sends a due PING, and suspects a node that doesn't answer.
    fn tend(&mut self, key: NodeKey) {
        let node = &self.table[key];
        if node.in_handshake() || node.no_address {
            return;
        }
        let timeout_ms = self.config.node_timeout_ms;
        let age = |at_ms: Option<u64>| at_ms.map_or(u64::MAX, |at_ms| self.now.ms.saturating_sub(at_ms));
        let ping_age_ms = node.ping_sent_ms.map(|at_ms| self.now.ms.saturating_sub(at_ms));
        let (data_age_ms, pong_age_ms) = (age(node.data_received_ms), age(node.pong_received_ms));
        let is_silent = ping_age_ms.is_some_and(|age_ms| age_ms > timeout_ms / 2) && data_age_ms > timeout_ms / 2;
        if let Some(link) = node.outbound.filter(|link| is_silent && self.is_old(*link)) {
            self.close(link);
        }
        if let Some(link) = self.link_to(key)
            && (ping_age_ms.is_none() && pong_age_ms > timeout_ms / 2 || self.hands_over_to(key))
        {
            self.ping(link, Kind::Ping);
            return;
        }
        if ping_age_ms.is_some_and(|age_ms| age_ms.min(data_age_ms) > timeout_ms) {
            self.suspect(key);
        }
    }

    /// True if a link is older than the node timeout.
    fn is_old(&self, link: LinkId) -> bool {
        let age_ms = |created_ms: u64| self.now.ms.saturating_sub(created_ms);
        self.links.get(link).is_some_and(|link| age_ms(link.created_ms) > self.config.node_timeout_ms)
    }
}
