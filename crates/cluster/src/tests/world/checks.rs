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
use crate::machine::Machine;
use crate::slots::{Slot, SlotSet};
use crate::testing::{Observed, cycle, leftovers, picture};
use crate::wire::Message;

/// The observations so far.
#[derive(Default)]
pub(in crate::tests) struct Checks {
    /// All votes and claims.
    observed: Observed,
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
        let host = &self.hosts[at];
        let Some(machine) = &host.machine else { return };
        for text in self.checks.observed.check(&host.on_disk, machine.table().myself().shard, message) {
            self.violate(format!("{text} by host {at}"));
        }
    }

    /// Checks S1 for a winner: a majority of the primaries has voted in its epoch.
    pub(super) fn check_winner(&mut self, at: usize) {
        let Some(machine) = &self.hosts[at].machine else { return };
        let (me, quorum) = (machine.table().myself(), self.shards / 2 + 1);
        let epoch = me.config_epoch;
        self.checks.observed.note_winner(epoch, me.id, me.shard);
        let voters = self.checks.observed.voters(epoch);
        if voters < quorum {
            self.violate(format!("S1: host {at} wins epoch {epoch} with {voters} votes of {quorum}"));
        }
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
