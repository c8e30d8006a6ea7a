//! The faults of a world of nodes, and the jobs of its operator.

use cluster::testing::leftovers;
use cluster::{Machine, SlotSet};
use engine::slots::jobs::JobState;

use super::node::{NodeFaults, SimNode};
use super::operator::Move;
use super::world::{Actor, NodesWorld, TIMEOUT_US};

/// Longest duration of a fault, in microseconds.
const FAULT_US: usize = 3_000_000;
/// A process is struck at one of so many commands of the operator, more often at the end of a move, within this time, in microseconds.
const STRIKE_ODDS: usize = 60;
const STRIKE_ODDS_AT_END: usize = 10;
const STRIKE_US: usize = 60_000;
/// The last states of a move of whole slots are short.
const STRIKE_AT_END_US: usize = 12_000;
/// The operator begins a job in one of so many steps. Moves of whole slots end by themselves.
const JOB_ODDS: usize = 60;
const JOB_ODDS_WHOLE: usize = 15;
/// A party of a move of whole slots is struck at one of so many changes of its state, more often at the end of the move.
const STRIKE_ODDS_AT_MOVE: usize = 40;
/// Most slots of a move by one command.
const SLOTS_MAX: usize = 2000;
/// The shortest time between two moves of whole slots, in microseconds.
const NEXT_MOVE_US: u64 = 200_000;
/// If both parties of a move fail: the odds, the odds of other faults, the time after the target's claim, the time between the two failures, and the shortest duration, in
/// microseconds. Replicas win in this time.
const PAIR_ODDS: usize = 2;
const PAIR_OTHER_ODDS: usize = 5;
const PAIR_STRIKE_US: usize = 6_000;
const PAIR_US: usize = 4_000;
const PAIR_DOWN_US: u64 = 2 * TIMEOUT_US;
/// Longest jump of a clock, in microseconds.
const JUMP_US: i64 = 10_000_000;

impl NodesWorld {
    /// Causes a fault.
    pub(super) fn make_trouble(&mut self) {
        if self.is_peaceful {
            return;
        }
        self.later(900_000, Actor::Nemesis);
        // Other faults take the majority from the winners.
        if self.strikes_pairs && self.random.below(PAIR_OTHER_ODDS) > 0 {
            return;
        }
        let at = self.any_process();
        match self.random.below(14) {
            0 | 1 => self.kill_for_a_while(at),
            2 | 3 => {
                if let Some(primary) = self.any_primary() {
                    self.kill_for_a_while(primary);
                }
            }
            4 => self.cut_off(at, true),
            5 => self.cut_off(at, false),
            6 => self.split(),
            7 => self.change_faults(at, "is stopped", |faults| faults.is_stopped = true),
            8 => self.change_faults(at, "hangs", |faults| faults.hangs = true),
            9 => self.change_faults(at, "has a disk that hangs", |faults| faults.disk_hangs = true),
            10 => self.spoil_disk(at),
            11 => self.jump(at),
            12 => self.cut_links(),
            _ => {
                self.tell("the operator's program is killed".into());
                self.operator.be_killed(&mut self.network);
            }
        }
    }

    /// A process that serves slots.
    fn any_primary(&mut self) -> Option<usize> {
        let primaries = self.serving();
        primaries.get(self.random.below(primaries.len().max(1))).copied()
    }

    /// The processes that serve slots.
    fn serving(&self) -> Vec<usize> {
        (0..self.seats.len()).filter(|at| self.seats[*at].node.as_ref().is_some_and(SimNode::serves)).collect()
    }

    /// A primary with slots. It need not serve: a cluster with a slot that nobody has is down.
    fn voting_node(&self) -> Option<usize> {
        let is_voting = |at: &usize| {
            let node = self.seats[*at].node.as_ref();
            node.is_some_and(|node| node.bus.machine().table().myself().is_voting())
        };
        (0..self.seats.len()).find(is_voting)
    }

    fn kill_for_a_while(&mut self, at: usize) {
        let with_power = self.random.below(2) == 0;
        self.kill(at, with_power);
        self.later(FAULT_US, Actor::Restart(at));
    }

    /// Kills a process at the worst moment: while it executes a command, or before it has told other nodes of the change.
    pub(super) fn strike(&mut self, at: usize) {
        if !self.is_peaceful {
            self.kill_for_a_while(at);
        }
    }

    /// Kills both parties of a move now and then, before the target has told other nodes of its claim.
    pub(super) fn strike_pair(&mut self, target: usize) {
        let others = self.others_in_moves(target);
        let all_run = self.seats.iter().all(|seat| seat.node.is_some());
        if self.is_peaceful || !all_run || others.is_empty() || self.random.below(PAIR_ODDS) > 0 {
            return;
        }
        let first_us = self.random.below(PAIR_STRIKE_US);
        for at in others.into_iter().chain([target]) {
            let at_us = self.now_us + (first_us + self.random.below(PAIR_US)) as u64;
            self.push(at_us, Actor::Fall(at));
        }
    }

    /// Kills a process for so long that a replica takes its place.
    pub(super) fn fall(&mut self, at: usize) {
        if self.is_peaceful || self.seats[at].node.is_none() {
            return;
        }
        let with_power = self.random.below(2) == 0;
        self.kill(at, with_power);
        let until_us = self.now_us + PAIR_DOWN_US + self.random.below(FAULT_US) as u64;
        self.push(until_us, Actor::Restart(at));
    }

    /// The other parties of the moves of a process.
    fn others_in_moves(&self, at: usize) -> Vec<usize> {
        if !self.moves_whole {
            let parties = self.operator.parties().filter(|parties| parties.contains(&at));
            return parties.into_iter().flatten().filter(|party| *party != at).collect();
        }
        let Some(node) = &self.seats[at].node else { return Vec::new() };
        let jobs = node.process.engine().slots.jobs.under_way();
        let names = jobs.iter().filter_map(|job| job.nodes.as_ref()).flat_map(|nodes| [&nodes.source, &nodes.target]);
        let names: Vec<&String> = names.collect();
        let is_party = |id: &str| names.iter().any(|name| *name == id);
        let parties = self.machines().filter(|(_, machine)| is_party(machine.table().myself().id.as_str()));
        parties.map(|(party, _)| party).filter(|party| *party != at).collect()
    }

    /// Kills one of the parties of a move now and then.
    pub(super) fn strike_at_move(&mut self, at: usize) {
        let is_end = |(_, state): &(String, JobState)| {
            matches!(state, JobState::FailoverPaused | JobState::FailoverRequested | JobState::FailoverGranted)
        };
        let (odds, within_us) = match self.seats[at].moves.iter().any(is_end) {
            true => (STRIKE_ODDS_AT_END, STRIKE_AT_END_US),
            false => (STRIKE_ODDS_AT_MOVE, STRIKE_US),
        };
        if !self.is_peaceful && self.random.below(odds) == 0 {
            self.later(within_us, Actor::Strike(at));
        }
    }

    fn mend_later(&mut self, at: usize) {
        self.later(FAULT_US, Actor::Mend(at));
    }

    fn cut_off(&mut self, at: usize, both_ways: bool) {
        for other in (0..self.seats.len()).filter(|other| *other != at) {
            self.block_way(at, other);
            if both_ways {
                self.block_way(other, at);
            }
        }
        let all = 1 << at | if both_ways { 0 } else { u64::MAX };
        self.note_faults(all);
        self.tell(format!("process {at} is cut off{}", if both_ways { "" } else { " one way" }));
        self.mend_later(at);
    }

    fn split(&mut self) {
        let sides = self.random.next();
        for from in 0..self.seats.len() {
            for to in (0..self.seats.len()).filter(|to| sides >> from & 1 != sides >> *to & 1) {
                self.block_way(from, to);
            }
        }
        self.note_faults(u64::MAX);
        self.tell(format!("the network is split: {:09b}", sides & 0x1ff));
        self.later(FAULT_US, Actor::Unblock);
    }

    fn block_way(&mut self, from: usize, to: usize) {
        self.network.block_way(from, to, true);
        self.bus_network.block_way(from, to, true);
    }

    fn note_faults(&mut self, members: u64) {
        for at in (0..self.seats.len()).filter(|at| members >> at & 1 == 1) {
            self.promises.note_fault(at, self.now_us, true);
        }
    }

    /// Notes a fault of all processes at this moment.
    pub(super) fn excuse_all(&mut self) {
        (0..self.seats.len()).for_each(|at| self.promises.note_fault(at, self.now_us, false));
    }

    fn change_faults(&mut self, at: usize, what: &str, change: impl FnOnce(&mut NodeFaults)) {
        let Some(node) = &mut self.seats[at].node else { return };
        change(&mut node.faults);
        self.promises.note_fault(at, self.now_us, true);
        self.tell(format!("process {at} {what}"));
        self.mend_later(at);
    }

    fn spoil_disk(&mut self, at: usize) {
        let (after, count) = (self.random.below(20) as u64, 1 + self.random.below(30) as u64);
        let Some(node) = &mut self.seats[at].node else { return };
        node.faults.disk_fails = true;
        node.process.spoil_disk(after, count);
        self.promises.note_fault(at, self.now_us, true);
        self.tell(format!("the disk of process {at} fails {count} times"));
        self.mend_later(at);
    }

    fn jump(&mut self, at: usize) {
        let jump_us = self.random.below(2 * JUMP_US as usize) as i64 - JUMP_US;
        let Some(node) = &mut self.seats[at].node else { return };
        node.process.clock_skew_us += jump_us;
        self.tell(format!("the clock of process {at} jumps by {jump_us} us"));
    }

    fn cut_links(&mut self) {
        let network = if self.random.below(2) == 0 { &mut self.network } else { &mut self.bus_network };
        if let Some(wire) = network.any() {
            network.cut(wire);
            self.excuse_all();
            self.tell(format!("link {wire} is cut"));
        }
    }

    /// Ends the faults of a process.
    pub(super) fn mend(&mut self, at: usize) {
        for other in 0..self.seats.len() {
            for (from, to) in [(at, other), (other, at)] {
                self.network.block_way(from, to, false);
                self.bus_network.block_way(from, to, false);
            }
        }
        let (seat, now_us) = (&mut self.seats[at], self.now_us);
        if let Some(node) = &mut seat.node {
            if node.faults.is_stopped {
                // A stopped process serves nothing. It begins again now, until it hears that it was replaced.
                seat.serves_since.iter_mut().flatten().for_each(|since_us| *since_us = now_us);
            }
            node.faults = NodeFaults::default();
            node.process.spoil_disk(0, 0);
        }
        self.end_faults();
        self.wake_all();
    }

    /// Notes the end of the faults of all processes without any.
    pub(super) fn end_faults(&mut self) {
        for at in (0..self.seats.len()).filter(|at| self.is_mended(*at)).collect::<Vec<_>>() {
            self.promises.end_faults(at, self.now_us);
        }
    }

    fn is_mended(&self, at: usize) -> bool {
        let passes = |other: usize| self.bus_network.passes(at, other) && self.bus_network.passes(other, at);
        let faults = self.seats[at].node.as_ref().map(|node| node.faults);
        faults == Some(NodeFaults::default()) && (0..self.seats.len()).all(passes)
    }

    /// Ends all faults of the network.
    pub(super) fn unblock(&mut self) {
        self.network.unblock_all();
        self.bus_network.unblock_all();
        self.tell("the network is whole again".into());
        self.end_faults();
        self.wake_all();
    }

    /// Begins another job of the operator, or goes on with the present one.
    pub(super) fn step_operator(&mut self) {
        self.later(8_000, Actor::Operator);
        if let Some(ended) = self.operator.step(&mut self.network, self.now_us) {
            self.tell(ended);
        }
        if let Some((at, ends_move)) = self.operator.take_sent().filter(|_| !self.is_peaceful) {
            let odds = if ends_move { STRIKE_ODDS_AT_END } else { STRIKE_ODDS };
            if self.random.below(odds) == 0 {
                self.later(STRIKE_US, Actor::Strike(at));
            }
        }
        if !self.operator.is_idle() {
            return;
        }
        if self.is_peaceful {
            return self.repair();
        }
        let odds = if self.moves_whole || self.strikes_pairs { JOB_ODDS_WHOLE } else { JOB_ODDS };
        if self.now_us >= self.next_job_us && self.random.below(odds) == 0 {
            self.begin_job();
        }
    }

    fn begin_job(&mut self) {
        let at = self.any_process();
        match self.random.below(6) {
            0 => {
                let mode = self.random.below(6);
                let words: &[&str] = match mode {
                    // TAKEOVER takes an epoch without votes, which another node of the shard may win: nothing is promised then.
                    0 | 1 => &["CLUSTER", "FAILOVER", "FORCE"],
                    _ => &["CLUSTER", "FAILOVER"],
                };
                let has_data = self.seats[at].node.as_ref().is_some_and(|node| node.process.is_up());
                // A replica that is forced to take over without its primary's data loses them.
                if mode > 1 || has_data {
                    self.operator.give(format!("process {at}: {}", words.join(" ")), 0, &[(at, words)]);
                }
            }
            1 => self.hand_over(),
            2 => self.collide(),
            _ => {
                let at = if self.moves_whole { self.any_primary().unwrap_or(at) } else { at };
                let key = self.random.below(self.keys.len());
                self.move_slot(usize::from(store::hash::slot_of(self.keys[key].as_bytes())), at);
            }
        }
    }

    /// Has all primaries take the next epoch at the same time, each without knowing of the others. An epoch without votes may also be that of an
    /// election, and two nodes of a shard then claim their slots in it, as in Redis and Valkey. Epochs therefore collide in a cluster at
    /// rest only, and slots do not move until the collision is over.
    fn collide(&mut self) {
        let is_calm = |machine: &Machine| {
            let table = machine.table();
            leftovers(machine).is_empty() && table.keys().all(|key| !table[key].has_failed())
        };
        if self.moves_any()
            || !(0..self.seats.len()).all(|at| self.is_mended(at))
            || self.claims_overlap()
            || !self.machines().all(|(_, machine)| is_calm(machine))
        {
            return;
        }
        self.collides = true;
        self.next_job_us = self.now_us + TIMEOUT_US;
        self.tell("epochs collide".into());
        for at in self.serving() {
            self.bump_epoch(at);
        }
    }

    /// Returns true if two nodes claim a slot, each in an epoch of its own, and do not know of each other yet. With one epoch for both, nobody
    /// could tell the owner.
    fn claims_overlap(&self) -> bool {
        let mut claimed = SlotSet::EMPTY;
        self.machines().map(|(_, machine)| machine.table().myself()).filter(|me| me.is_primary()).any(|me| {
            let overlaps = claimed.intersects(&me.slots);
            claimed.add(&me.slots);
            overlaps
        })
    }

    /// Hands a slot without keys over by DELSLOTS and ADDSLOTS.
    fn hand_over(&mut self) {
        let slot = self.random.below(store::hash::SLOTS);
        let (Some(from), Some(to)) = (self.owner(slot), self.any_primary()) else { return };
        let is_used = self.keys.iter().any(|key| usize::from(store::hash::slot_of(key.as_bytes())) == slot);
        // A slot that changes hands without a new epoch could be claimed twice in the epoch of a collision.
        if from == to || is_used || self.collides {
            return;
        }
        let text = slot.to_string();
        let [remove, add] = ["DELSLOTS", "ADDSLOTS"].map(|change| ["CLUSTER", change, &text]);
        let commands: [(usize, &[&str]); 3] = [(from, &remove), (to, &remove), (to, &add)];
        self.operator.give(format!("slot {slot} goes from {from} to {to}"), 0, &commands);
    }

    fn move_slot(&mut self, slot: usize, to: usize) {
        let Some(from) = self.owner(slot).filter(|from| *from != to) else { return };
        let Some(target) = self.seats[to].node.as_ref().filter(|node| node.serves()) else { return };
        let id = |node: &SimNode| node.bus.machine().table().myself().id.to_string();
        let Some(source) = &self.seats[from].node else { return };
        if self.has_other_target(slot, from, to) {
            return;
        }
        let ids = [id(source), id(target)];
        if self.moves_whole {
            return self.move_whole(slot, from, to, &ids[1]);
        }
        self.tell(format!("slot {slot} begins to move from {from} to {to}"));
        self.operator.move_slot(Move { slot, from, to, ids, source_first: self.mutation.moves_source_first() });
    }

    /// Returns true if a slot is on its way to another target, which may have a part of the keys. Like redis-cli, the operator changes no target.
    fn has_other_target(&self, slot: usize, from: usize, to: usize) -> bool {
        let has_other = self.is_migrating(slot, from) && self.target_of(slot, from) != Some(to);
        has_other && self.mutation.minds_open_slots()
    }

    /// Moves a slot and its neighbours by one command.
    fn move_whole(&mut self, slot: usize, from: usize, to: usize, target: &str) {
        let last = slot + self.random.below(SLOTS_MAX);
        let last = (slot..=last).take_while(|at| self.owner(*at) == Some(from)).last().unwrap_or(slot);
        let (first, last) = (slot.to_string(), last.to_string());
        let words = ["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", &first, &last, "NODE", target];
        self.next_job_us = self.now_us + NEXT_MOVE_US;
        let name = format!("slots {first} to {last} move from {from} to {to}");
        let cancel: [&str; 2] = ["CLUSTER", "CANCELSLOTMIGRATIONS"];
        match self.random.below(8) {
            0 => self.operator.give(name, 2, &[(from, &words), (from, &cancel)]),
            _ => self.operator.give(name, 0, &[(from, &words)]),
        }
    }

    /// Gives slots without an owner to a node, because a cluster without all slots is down, and goes on with the moves of a killed program.
    fn repair(&mut self) {
        if self.now_us % TIMEOUT_US > TIMEOUT_US / 10 {
            return;
        }
        if let (Some(slot), Some(at)) = (self.unowned_slot(), self.voting_node()) {
            // The target of a move has the keys, and takes a slot that its source has given up. The winner of an election serves its slots in a
            // moment.
            if self.is_imported(slot) && self.mutation.minds_open_slots() || self.claimers(slot) > 0 {
                return;
            }
            let text = slot.to_string();
            let [remove, add] = ["DELSLOTS", "ADDSLOTS"].map(|change| ["CLUSTER", change, &text]);
            self.operator.give(format!("slot {slot} is added to {at}"), 1, &[(at, &remove), (at, &add)]);
        } else if let Some((slot, at, is_import)) = self.open_slot() {
            // A primary that has just started may not know the new owner yet. It names the target of an old move, which is a replica by now, and an
            // import with the only copies of keys would be closed for it.
            if self.claimers(slot) > 1 {
                return;
            }
            // The owner names the target, like the migrating node for redis-cli. After a failover of the target, another node of its shard may
            // import the slot as well. It has copies of keys, and deletes them at the end of the move.
            let target = self.owner(slot).and_then(|from| self.target_of(slot, from));
            let to = target.or_else(|| if is_import { Some(at) } else { self.target_of(slot, at) });
            let role = |to: &usize| self.seats[*to].node.as_ref().map(|node| (node.is_primary(), node.serves()));
            // A target that has become a replica takes no slots. A primary may have keys of the slot, and serves in a moment.
            let to = match to.and_then(|to| Some((to, role(&to)?))) {
                Some((to, (true, true))) => Some(to),
                Some((_, (true, false))) => return,
                _ => None,
            };
            match to.zip(self.owner(slot)) {
                Some((to, from)) if from != to && !self.has_other_target(slot, from, to) => self.move_slot(slot, to),
                _ => {
                    let text = slot.to_string();
                    let stable: &[&str] = &["CLUSTER", "SETSLOT", &text, "STABLE"];
                    self.operator.give(format!("slot {slot} is stable at {at}"), 0, &[(at, stable)]);
                }
            }
        }
    }
}
