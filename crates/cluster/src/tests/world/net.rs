//! Connections: bytes arrive in order after a delay, and wait while a direction is cut.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::World;
use crate::io::Input;
use crate::links::LinkId;
use crate::wire::Message;

/// An event of the world.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::tests) enum Event {
    Tick(usize),
    Saved { at: usize, life: u64, generation: u64, text: String },
    Connected { connection: u64 },
    Deliver { connection: u64, from: usize },
    Lost { at: usize, link: LinkId },
}

/// One end of a connection.
struct End {
    host: usize,
    link: LinkId,
    /// Messages on their way from this end, and when they arrive.
    sent: VecDeque<(u64, Vec<u8>)>,
}

struct Connection {
    ends: [End; 2],
    is_up: bool,
}

/// The network.
#[derive(Default)]
pub(in crate::tests) struct Net {
    connections: BTreeMap<u64, Connection>,
    by_end: BTreeMap<(usize, LinkId), u64>,
    made: u64,
    cut: BTreeSet<(usize, usize)>,
    /// The last message that each host has delivered to each other one on a link of its own.
    delivered: BTreeMap<(usize, usize), Vec<u8>>,
    /// The share of messages that are late.
    pub(in crate::tests) late_percent: u64,
}

impl Net {
    /// True if messages pass from one host to another.
    pub(super) fn is_open(&self, from: usize, to: usize) -> bool {
        !self.cut.contains(&(from, to))
    }

    /// Cuts or mends one direction between two hosts.
    pub(in crate::tests) fn set_cut(&mut self, from: usize, to: usize, is_cut: bool) {
        if is_cut {
            self.cut.insert((from, to));
        } else {
            self.cut.remove(&(from, to));
        }
    }

    pub(in crate::tests) fn mend_all(&mut self) {
        self.cut.clear();
    }

    pub(super) fn cut_hosts(&self) -> BTreeSet<usize> {
        self.cut.iter().flat_map(|(from, to)| [*from, *to]).collect()
    }

    fn remove(&mut self, id: u64) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        for end in &connection.ends {
            self.by_end.remove(&(end.host, end.link));
        }
        Some(connection)
    }

    /// Drops the connections of a host. Returns the other ends.
    pub(super) fn drop_host(&mut self, host: usize) -> Vec<(usize, LinkId)> {
        let is_its = |connection: &Connection| connection.ends.iter().any(|end| end.host == host);
        let ids: Vec<u64> =
            self.connections.iter().filter(|(_, connection)| is_its(connection)).map(|(id, _)| *id).collect();
        let dropped = ids.into_iter().filter_map(|id| self.remove(id));
        let ends = dropped.flat_map(|connection| connection.ends);
        ends.filter(|end| end.host != host).map(|end| (end.host, end.link)).collect()
    }
}

impl World {
    fn delay_ms(&mut self) -> u64 {
        if self.dice.chance(self.net.late_percent) { 50 + self.dice.below(300) } else { 1 + self.dice.below(5) }
    }

    pub(super) fn connect(&mut self, at: usize, link: LinkId, port: u16) {
        let to = usize::from(port) - 10_000;
        self.net.made += 1;
        let id = self.net.made;
        let accepted = LinkId::Inbound(id);
        let end = |host, link| End { host, link, sent: VecDeque::new() };
        self.net.connections.insert(id, Connection { ends: [end(at, link), end(to, accepted)], is_up: false });
        self.net.by_end.insert((at, link), id);
        self.net.by_end.insert((to, accepted), id);
        let due = self.now_ms + self.delay_ms();
        self.schedule(due, Event::Connected { connection: id });
    }

    pub(super) fn connected(&mut self, id: u64) {
        let Some(connection) = self.net.connections.get(&id) else { return };
        let [(at, link), (to, accepted)] = [0, 1].map(|end| (connection.ends[end].host, connection.ends[end].link));
        if self.hosts[to].machine.is_none() {
            self.net.remove(id);
            return self.input(at, Input::Lost(link));
        }
        if !self.net.is_open(at, to) || !self.net.is_open(to, at) || self.hosts[to].stopped {
            // The connection hangs until the network is mended.
            let due = self.now_ms + 500;
            return self.schedule(due, Event::Connected { connection: id });
        }
        if let Some(connection) = self.net.connections.get_mut(&id) {
            connection.is_up = true;
        }
        let local_ip = "10.0.0.1";
        self.input(to, Input::Accepted { link: accepted, peer_ip: local_ip, local_ip });
        self.input(at, Input::Linked { link, local_ip });
    }

    pub(super) fn send(&mut self, at: usize, link: LinkId, message: &Message) {
        let Some(id) = self.net.by_end.get(&(at, link)).copied() else { return };
        let bytes = message.to_bytes();
        let delay_ms = self.delay_ms();
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        let end = usize::from(connection.ends[1].host == at && connection.ends[1].link == link);
        let last = connection.ends[end].sent.back().map_or(0, |(due, _)| *due);
        let due = (self.now_ms + delay_ms).max(last);
        connection.ends[end].sent.push_back((due, bytes));
        self.schedule(due, Event::Deliver { connection: id, from: end });
    }

    pub(super) fn deliver(&mut self, id: u64, from: usize) {
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        let (source, target) = (connection.ends[from].host, connection.ends[1 - from].host);
        let link = connection.ends[1 - from].link;
        if self.net.cut.contains(&(source, target)) || self.hosts[target].stopped {
            let due = self.now_ms + 100;
            return self.schedule(due, Event::Deliver { connection: id, from });
        }
        if let Some((_, bytes)) = connection.ends[from].sent.pop_front() {
            if link.is_inbound() {
                self.net.delivered.insert((source, target), bytes.clone());
            }
            self.input(target, Input::Received { link, bytes: &bytes });
        }
    }

    /// The last message from one host to another.
    pub(in crate::tests) fn last_message(&self, from: usize, to: usize) -> Vec<u8> {
        self.net.delivered.get(&(from, to)).cloned().unwrap_or_default()
    }

    /// Delivers a message once more.
    pub(in crate::tests) fn replay(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let is_it = |connection: &&Connection| connection.ends[0].host == from && connection.ends[1].host == to;
        let connection = self.net.connections.values().find(is_it);
        if let Some(link) = connection.map(|connection| connection.ends[1].link) {
            self.input(to, Input::Received { link, bytes });
        }
    }

    pub(super) fn close(&mut self, at: usize, link: LinkId) {
        let Some(id) = self.net.by_end.get(&(at, link)).copied() else { return };
        let Some(connection) = self.net.remove(id) else { return };
        let is_other = |end: &&End| end.host != at || end.link != link;
        let other = connection.ends.iter().find(is_other).map(|end| (end.host, end.link));
        if let Some((host, link)) = other.filter(|_| connection.is_up) {
            let due = self.now_ms + 5;
            self.schedule(due, Event::Lost { at: host, link });
        }
    }
}
