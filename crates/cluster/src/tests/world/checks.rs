//! The invariants of the simulated world. Reports name them by letter and number.
//!
//! Safety, checked with every message and after every tick:
//! - S1: a node votes once in an epoch, and a winner has the votes of a majority.
//! - S2: two nodes neither claim nor serve the same slot in one epoch.
//! - S3: no message shows a vote, an epoch or a slot that is not on the sender's disk.
//! - S6: no node follows itself through a chain of primaries.
//!
//! Checked when all faults are over:
//! - S4: an acknowledged write is lost only if a fault hit its primary or the replicas at that time.
//! - L1: all nodes agree on nodes, roles, epochs and slots.
//! - L2: every slot is served.
//! - L3: no handshake, no manual failover and no missing link is left.

use std::collections::{BTreeMap, BTreeSet};

use super::{Host, TIMEOUT_MS, World};
use crate::id::NodeId;
use crate::machine::Machine;
use crate::node::NodeKey;
use crate::slots::{Slot, SlotSet};
use crate::wire::{Body, Header, Message};

/// The observations so far.
#[derive(Default)]
pub(in crate::tests) struct Checks {
    /// The candidate of each vote, by voter and epoch.
    votes: BTreeMap<(NodeId, u64), usize>,
    /// The claims of each epoch.
    claims: BTreeMap<u64, BTreeMap<NodeId, SlotSet>>,
    /// The time since which two hosts have served the same slot.
    overlaps: BTreeMap<(usize, usize), u64>,
    /// Violations, as text.
    pub(in crate::tests) violations: Vec<String>,
    /// The faulty times of each host: start and end.
    pub(super) faults: BTreeMap<usize, Vec<(u64, u64)>>,
}

impl World {
    pub(super) fn violate(&mut self, text: String) {
        if self.checks.violations.len() < 20 {
            self.checks.violations.push(format!("{} ms: {text}", self.now_ms));
        }
    }

    /// Checks S1 to S3 for a message that leaves a host.
    pub(super) fn check_message(&mut self, at: usize, message: &Message) {
        let Message::Full(header, body) = message else { return };
        self.check_disk(at, header, body);
        match body {
            Body::AuthAck => self.check_vote(header),
            _ => self.check_claim(header),
        }
    }

    fn check_disk(&mut self, at: usize, header: &Header, body: &Body) {
        let disk = self.hosts[at].on_disk.clone();
        let epoch = header.current_epoch;
        match body {
            Body::AuthAck if disk.vote < epoch => self.violate(format!("S3: host {at} shows an unsaved vote {epoch}")),
            Body::AuthRequest if disk.current_epoch < epoch => {
                self.violate(format!("S3: host {at} asks for votes in the unsaved epoch {epoch}"));
            }
            Body::Update { node, config_epoch, .. } if *node == header.sender && disk.config_epoch < *config_epoch => {
                self.violate(format!("S3: host {at} sends an UPDATE with its unsaved epoch {config_epoch}"));
            }
            _ => {}
        }
        if header.primary.is_some() || header.slots.is_empty() {
            return;
        }
        if !disk.is_primary || header.config_epoch > disk.config_epoch {
            self.violate(format!("S3: host {at} shows the unsaved epoch {}", header.config_epoch));
        } else if header.config_epoch == disk.config_epoch && !disk.slots.is_superset(&header.slots) {
            self.violate(format!("S3: host {at} shows unsaved slots"));
        }
    }

    /// Checks S1 for a winner: a majority of the primaries has voted in its epoch.
    pub(super) fn check_winner(&mut self, at: usize) {
        let Some(machine) = &self.hosts[at].machine else { return };
        let (epoch, quorum) = (machine.table().myself().config_epoch, self.shards / 2 + 1);
        let voters = self.checks.votes.keys().filter(|(_, voted)| *voted == epoch).count();
        if voters < quorum {
            self.violate(format!("S1: host {at} wins epoch {epoch} with {voters} votes of {quorum}"));
        }
    }

    fn check_vote(&mut self, header: &Header) {
        let count = self.checks.votes.entry((header.sender, header.current_epoch)).or_default();
        *count += 1;
        if *count > 1 {
            let (voter, epoch) = (header.sender, header.current_epoch);
            self.violate(format!("S1: {voter} votes twice in epoch {epoch}"));
        }
    }

    fn check_claim(&mut self, header: &Header) {
        if header.primary.is_some() || header.slots.is_empty() || header.config_epoch == 0 {
            return;
        }
        let claims = self.checks.claims.entry(header.config_epoch).or_default();
        let clash = claims.iter().find(|(id, slots)| **id != header.sender && slots.intersects(&header.slots));
        if let Some((other, _)) = clash {
            let text = format!("S2: {} and {other} claim slots in epoch {}", header.sender, header.config_epoch);
            claims.entry(header.sender).or_default().add(&header.slots);
            return self.violate(text);
        }
        claims.entry(header.sender).or_default().add(&header.slots);
    }

    /// Checks S6 for a host after its tick, and that no other host has served one of its slots for long (S2).
    pub(super) fn check_host(&mut self, at: usize) {
        let Some(machine) = &self.hosts[at].machine else { return };
        if let Some(text) = cycle(machine) {
            self.violate(format!("S6: host {at}: {text}"));
        }
        for other in 0..self.hosts.len() {
            self.check_overlap(at.min(other), at.max(other));
        }
    }

    fn check_overlap(&mut self, one: usize, other: usize) {
        let served =
            |host: &Host| host.view.as_ref().map(|view| view.served().clone()).filter(|_| host.machine.is_some());
        let both = served(&self.hosts[one]).zip(served(&self.hosts[other]));
        let is_stopped = self.hosts[one].stopped || self.hosts[other].stopped;
        let overlap = one != other && !is_stopped && both.is_some_and(|(one, other)| one.intersects(&other));
        if !overlap {
            self.checks.overlaps.remove(&(one, other));
            return;
        }
        let since = *self.checks.overlaps.entry((one, other)).or_insert(self.now_ms);
        if self.now_ms - since > TIMEOUT_MS + TIMEOUT_MS / 2 {
            self.violate(format!("S2: hosts {one} and {other} serve slots for {} ms", self.now_ms - since));
            self.checks.overlaps.insert((one, other), self.now_ms);
        }
    }

    /// Returns the violations of L1 to L3. A correct cluster has none some time after the last fault.
    pub(in crate::tests) fn disagreements(&self) -> Vec<String> {
        let machines: Vec<(usize, &Machine)> =
            self.hosts.iter().enumerate().filter_map(|(at, host)| Some((at, host.machine.as_ref()?))).collect();
        let Some((first, rest)) = machines.split_first() else { return Vec::new() };
        let mut found = Vec::new();
        let expected = picture(first.1);
        for (at, machine) in rest {
            let seen = picture(machine);
            if seen != expected {
                found.push(format!("L1: hosts {} and {at} differ\n{expected:#?}\n{seen:#?}", first.0));
            }
        }
        for (at, machine) in &machines {
            found.extend(leftovers(machine).into_iter().map(|text| format!("L3: host {at}: {text}")));
        }
        let epochs: Vec<u64> = machines
            .iter()
            .map(|(_, machine)| machine.table().myself())
            .filter(|me| me.is_voting())
            .map(|me| me.config_epoch)
            .collect();
        if epochs.iter().collect::<BTreeSet<_>>().len() != epochs.len() {
            found.push(format!("L1: epochs collide: {epochs:?}"));
        }
        let unserved = self.unserved();
        if !unserved.is_empty() {
            found.push(format!("L2: nobody serves {unserved}"));
        }
        found
    }

    /// Returns the slots without a serving node. The owner of an open slot serves it.
    pub(in crate::tests) fn unserved(&self) -> SlotSet {
        let mut slots = SlotSet::FULL;
        for host in self.hosts.iter().filter(|host| host.machine.is_some()) {
            for view in host.view.iter().filter(|view| view.is_up()) {
                slots.subtract(&view.mine);
                let own = view.open_slots().keys().filter(|slot| view.owner(**slot) == Some(view.me));
                own.for_each(|slot| _ = slots.remove(*slot));
            }
        }
        slots
    }

    /// Returns the violations of S4: lost writes without a fault that excuses the loss.
    pub(in crate::tests) fn lost_writes(&self) -> Vec<String> {
        let mut lost = Vec::new();
        let logs: BTreeMap<usize, BTreeSet<u32>> =
            self.hosts.iter().enumerate().map(|(at, host)| (at, host.log.iter().copied().collect())).collect();
        let owner = |slot: Slot| {
            let owns = |host: &Host| host.view.as_ref().is_some_and(|view| view.mine.contains(slot));
            self.hosts.iter().position(owns)
        };
        for (number, write) in self.writes.iter().enumerate() {
            let Some(owner) = owner(write.slot) else { continue };
            if logs[&owner].contains(&(number as u32 + 1)) {
                continue;
            }
            // A copy takes up to two ticks; a primary that is cut off notices within the timeout and a round.
            let window = (write.at_ms.saturating_sub(2 * TIMEOUT_MS), write.at_ms + 400);
            let is_faulty = |(from, to): &(u64, u64)| *from <= window.1 && *to >= window.0;
            let replicas = (0..self.hosts.len()).filter(|host| write.replicas[*host]);
            // Without a replica, a write lasts as long as its primary.
            let faults = self.checks.faults.get(&write.node);
            let is_alone = !write.replicas.contains(&true);
            if is_alone && faults.is_some_and(|faults| faults.iter().any(|(_, to)| *to >= write.at_ms)) {
                continue;
            }
            let mut involved = replicas.chain([write.node]).filter_map(|host| self.checks.faults.get(&host));
            if !involved.any(|faults| faults.iter().any(is_faulty)) {
                let (slot, at_ms, node) = (write.slot, write.at_ms, write.node);
                lost.push(format!("S4: write {} of slot {slot} at {at_ms} ms to host {node}", number + 1));
            }
        }
        lost
    }
}

/// A cycle of primaries in a machine's table.
fn cycle(machine: &Machine) -> Option<String> {
    let table = machine.table();
    for start in table.keys() {
        let mut at: NodeKey = start;
        for _ in 0..=table.count() {
            match table[at].primary() {
                Some(primary) => at = primary,
                None => break,
            }
        }
        if table[at].primary().is_some() {
            return Some(format!("{} is in a cycle", table[start].id));
        }
    }
    None
}

/// A machine's picture of the cluster: each node with its shard, role, epoch and slots.
fn picture(machine: &Machine) -> BTreeMap<NodeId, String> {
    let table = machine.table();
    let line = |key: NodeKey| {
        let node = &table[key];
        let primary = node.primary().map(|primary| table[primary].id);
        let slots = &node.slots;
        let epoch = table.epoch(key);
        (node.id, format!("{} {primary:?} epoch {epoch} [{slots}] {}", node.shard, node.has_failed()))
    };
    table.keys().map(line).collect()
}

/// Returns the violations of L3 in a machine: temporary states that have not ended.
fn leftovers(machine: &Machine) -> Vec<String> {
    let table = machine.table();
    let mut found = Vec::new();
    found.extend(table.keys().filter(|key| table[*key].in_handshake()).map(|_| "a handshake".to_owned()));
    if machine.handover.is_under_way() {
        found.push("a manual failover".into());
    }
    let links = table.keys().filter(|key| *key != table.me());
    let unlinked = links.filter(|key| table[*key].outbound.is_none() || table[*key].inbound.is_none());
    found.extend(unlinked.map(|key| format!("no link with {}", table[key].id)));
    found
}
