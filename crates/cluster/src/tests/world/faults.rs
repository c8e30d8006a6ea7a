//! Clusters, and the faults that they must survive.

use super::{Host, SLOW_SAVE_MS, TIMEOUT_MS, World};
use crate::commands::{ClusterCommand, ClusterReply, SetSlot};
use crate::id::NodeId;
use crate::manual::FailoverMode;
use crate::slots::{SLOTS, Slot, SlotSet};

fn slot(number: usize) -> Slot {
    Slot::new(number as u64).unwrap()
}

impl World {
    /// A cluster of so many shards, the hosts spread over them.
    pub(in crate::tests) fn cluster(
        hosts: usize,
        shards: usize,
        seed: u64,
        without: Option<crate::rules::Rule>,
    ) -> World {
        let mut world = World::new(hosts, seed, without);
        world.shards = shards;
        world.run_ms(200);
        for shard in 0..shards {
            let range = (slot(SLOTS * shard / shards), slot(SLOTS * (shard + 1) / shards - 1));
            assert_eq!(world.command(shard, ClusterCommand::AddSlotsRange(vec![range])), Some(ClusterReply::Ok));
            world.command(shard, ClusterCommand::SetConfigEpoch(shard as i64 + 1));
        }
        for host in 1..hosts {
            world.meet(0, host);
        }
        world.settle_within(40);
        for host in shards..hosts {
            let primary = world.id(host % shards);
            world.command(host, ClusterCommand::Replicate { node: primary, has_keys: false });
        }
        world.settle_within(40);
        world
    }

    pub(in crate::tests) fn meet(&mut self, from: usize, to: usize) {
        let bus_port = Some(10_000 + to as i64);
        self.command(from, ClusterCommand::Meet { ip: "10.0.0.1".into(), port: to as i64 + 1, bus_port });
    }

    pub(in crate::tests) fn id(&self, at: usize) -> String {
        self.hosts[at].machine.as_ref().map(|machine| machine.table().myself().id.to_string()).unwrap_or_default()
    }

    pub(in crate::tests) fn is_primary(&self, at: usize) -> bool {
        self.hosts[at].machine.as_ref().is_some_and(|machine| machine.table().myself().is_primary())
    }

    /// Waits until all agree, at most so many node timeouts.
    pub(in crate::tests) fn settle_within(&mut self, timeouts: u64) {
        for _ in 0..timeouts * 2 {
            self.run_ms(TIMEOUT_MS / 2);
            if self.disagreements().is_empty() {
                return;
            }
        }
        let found = self.disagreements();
        if let Some(first) = found.into_iter().next() {
            self.checks.violations.push(first);
        }
    }

    /// Notes that a host is faulty until it is mended.
    fn begin_fault(&mut self, at: usize) {
        let now_ms = self.now_ms;
        self.checks.faults.entry(at).or_default().push((now_ms, u64::MAX));
    }

    /// A primary that others found failed may lose its last writes, even if it works again by now. A planned failover excuses
    /// nothing. A winner with a slow disk tells nobody before its save is done, and the old primary goes on until then.
    pub(super) fn excuse_replaced(&mut self, winner: usize) {
        let now_ms = self.now_ms;
        if std::mem::take(&mut self.hosts[winner].planned) {
            return;
        }
        let known_ms = now_ms + if self.hosts[winner].slow_disk { SLOW_SAVE_MS } else { 0 };
        let replaced = self.hosts[winner].follows.and_then(|id| self.host_of(id));
        if let Some(host) = replaced {
            self.checks.faults.entry(host).or_default().push((now_ms, known_ms));
        }
    }

    fn end_faults(&mut self) {
        let now_ms = self.now_ms;
        let lasts = self.checks.faults.values_mut().flatten().filter(|(_, end)| *end == u64::MAX);
        lasts.for_each(|(_, end)| *end = now_ms);
    }

    /// A random fault.
    pub(in crate::tests) fn fault(&mut self) {
        let hosts = self.hosts.len();
        let at = self.dice.below(hosts as u64) as usize;
        let kind = self.dice.below(9);
        self.trace(|| format!("fault {kind} of host {at}"));
        match kind {
            0 | 1 => self.crash(at),
            2 => self.isolate(at),
            3 => self.cut_one_way(at),
            4 => self.partition(),
            5 => self.stop_process(at),
            6 => self.hosts[at].slow_disk = true,
            7 => self.fail_over(at),
            _ => self.restart_dead(),
        }
    }

    pub(in crate::tests) fn crash(&mut self, at: usize) {
        if self.hosts[at].machine.is_some() && self.hosts[at].disk.is_some() {
            self.begin_fault(at);
            self.kill(at);
        }
    }

    pub(in crate::tests) fn isolate(&mut self, at: usize) {
        self.begin_fault(at);
        for other in (0..self.hosts.len()).filter(|other| *other != at) {
            self.net.set_cut(at, other, true);
            self.net.set_cut(other, at, true);
        }
    }

    fn cut_one_way(&mut self, at: usize) {
        let other = self.dice.below(self.hosts.len() as u64) as usize;
        if at != other {
            self.begin_fault(at);
            self.begin_fault(other);
            self.net.set_cut(at, other, true);
        }
    }

    fn partition(&mut self) {
        let sides = self.dice.next();
        let side = |host: usize| sides >> (host % 64) & 1;
        for from in 0..self.hosts.len() {
            self.begin_fault(from);
            for to in 0..self.hosts.len() {
                if side(from) != side(to) {
                    self.net.set_cut(from, to, true);
                }
            }
        }
    }

    fn stop_process(&mut self, at: usize) {
        self.begin_fault(at);
        self.hosts[at].stopped = true;
    }

    fn fail_over(&mut self, at: usize) {
        let modes = [FailoverMode::Planned, FailoverMode::Force];
        let mode = modes[self.dice.below(2) as usize];
        let has_copied = self.hosts[at].heard_ms.is_some();
        if mode == FailoverMode::Force && !has_copied {
            // As in Valkey, an operator who forces a replica without its primary's data loses them.
            return;
        }
        if mode == FailoverMode::Force {
            // Writes that the replica has not copied are lost.
            for host in 0..self.hosts.len() {
                self.begin_fault(host);
            }
        }
        self.command(at, ClusterCommand::Failover(mode));
    }

    /// Asks a replica to take over, without waiting for an answer.
    pub(in crate::tests) fn start_election(&mut self, at: usize, mode: FailoverMode) {
        self.begin_command(at, ClusterCommand::Failover(mode));
    }

    pub(in crate::tests) fn restart_dead(&mut self) {
        let now_ms = self.now_ms;
        for at in 0..self.hosts.len() {
            if self.hosts[at].machine.is_none() {
                self.checks.faults.entry(at).or_default().push((now_ms, now_ms));
                self.start(at);
            }
        }
    }

    /// Ends all faults.
    pub(in crate::tests) fn mend(&mut self) {
        self.trace(|| "mended".into());
        self.net.mend_all();
        for host in &mut self.hosts {
            host.stopped = false;
            host.slow_disk = false;
        }
        self.restart_dead();
        self.end_faults();
        debug_assert!(self.net.cut_hosts().is_empty());
    }

    /// Moves a slot from its owner to another primary, in the order of the manual: target, source, then everybody else.
    pub(in crate::tests) fn move_slot(&mut self, number: usize, to: usize) {
        let slot = slot(number);
        let owns = |world: &World, at: usize| {
            world.hosts[at].machine.as_ref().is_some_and(|machine| machine.table().myself().slots.contains(slot))
        };
        let Some(from) = (0..self.hosts.len()).find(|at| owns(self, *at)) else { return };
        if from == to || !self.is_primary(to) || !self.is_primary(from) {
            return;
        }
        let (source, target) = (self.id(from), self.id(to));
        let is_done = self.set_slot(to, slot, SetSlot::Importing(source))
            && self.set_slot(from, slot, SetSlot::Migrating(target.clone()));
        if !is_done || !self.is_primary(from) || !self.is_primary(to) {
            return;
        }
        self.copy_slot(slot, from, to);
        self.run_ms(300);
        if self.set_slot(to, slot, SetSlot::Node(target.clone())) {
            self.set_slot(from, slot, SetSlot::Node(target));
        }
    }

    /// Gives a primary's replicas changes of slots by its stream.
    pub(super) fn tell_replicas(&mut self, at: usize, slots: &SlotSet, source: NodeId) {
        let me = self.hosts[at].machine.as_ref().map(|machine| machine.table().myself().id);
        let hears = |host: &Host| host.machine.is_some() && host.follows == me && !host.misses_stream;
        let replicas: Vec<usize> = (0..self.hosts.len()).filter(|host| hears(&self.hosts[*host])).collect();
        for host in replicas {
            for slot in slots.iter() {
                let change = SetSlot::Importing(source.to_string());
                self.begin_command(host, ClusterCommand::SetSlot { slot, change, has_keys: true, from_primary: true });
            }
        }
    }

    /// Sets a slot at a primary's replicas, as its stream does, then at the primary. Returns true if it is done.
    fn set_slot(&mut self, at: usize, slot: Slot, change: SetSlot) -> bool {
        let set =
            |from_primary| ClusterCommand::SetSlot { slot, change: change.clone(), has_keys: false, from_primary };
        let is_replica = |world: &World, host: usize| {
            let primary = world.hosts[host].follows.and_then(|id| world.host_of(id));
            primary == Some(at) && !world.is_primary(host)
        };
        for host in (0..self.hosts.len()).filter(|host| is_replica(self, *host)).collect::<Vec<_>>() {
            if self.command(host, set(true)) != Some(ClusterReply::Ok) {
                return false;
            }
        }
        self.command(at, set(false)) == Some(ClusterReply::Ok)
    }
}
