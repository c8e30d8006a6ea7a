//! The end of a history: all faults are over, all nodes agree, and all promises are kept.

use cluster::testing::{leftovers, picture};
use cluster::view::Open;
use cluster::{Machine, Slot, SlotSet};
use engine::slots::jobs::Operation;

use super::node::SimNode;
use super::world::{Actor, NodesWorld, TIMEOUT_US};
use crate::Wrong;

/// Interval between looks, in microseconds.
const LOOK_US: usize = 200_000;
/// The time for which all nodes agree before the data are compared, in microseconds.
const REST_US: u64 = TIMEOUT_US / 2;

impl NodesWorld {
    /// Ends all faults.
    pub(super) fn make_peace(&mut self) -> Result<(), Wrong> {
        self.is_peaceful = true;
        self.tell("peace".into());
        for number in 0..self.seats.len() {
            self.restart(number)?;
            self.mend(number);
        }
        self.unblock();
        Ok(())
    }

    fn nodes(&self) -> impl Iterator<Item = (usize, &SimNode)> {
        self.seats.iter().enumerate().filter_map(|(at, seat)| Some((at, seat.node.as_ref()?)))
    }

    pub(super) fn machines(&self) -> impl Iterator<Item = (usize, &Machine)> {
        self.nodes().map(|(at, node)| (at, node.bus.machine()))
    }

    /// An open slot of a primary, and true if the primary imports it. Imports are first, because their nodes may have keys of the slot.
    pub(super) fn open_slot(&self) -> Option<(usize, usize, bool)> {
        let open = self.nodes().filter_map(|(at, node)| {
            let view = node.view.as_ref().filter(|view| view.is_primary())?;
            let is_import = |open: &Open| matches!(open, Open::Importing { .. });
            let (slot, open) = view.open_slots().iter().max_by_key(|(_, open)| is_import(open))?;
            Some((slot.index(), at, is_import(open)))
        });
        open.max_by_key(|(_, _, is_import)| *is_import)
    }

    /// Returns true if a primary imports a slot.
    pub(super) fn is_imported(&self, slot: usize) -> bool {
        let imports = |node: &SimNode| {
            let view = node.view.as_ref().filter(|view| view.is_primary())?;
            Some(matches!(view.open(Slot::new(slot as u64)?)?, Open::Importing { .. }))
        };
        self.nodes().any(|(_, node)| imports(node) == Some(true))
    }

    /// The number of primaries that have a slot in their own tables. Their workers may not serve it yet.
    pub(super) fn claimers(&self, slot: usize) -> usize {
        let Some(slot) = Slot::new(slot as u64) else { return 0 };
        let has = |machine: &Machine| {
            let me = machine.table().myself();
            me.is_primary() && me.slots.contains(slot)
        };
        self.machines().filter(|(_, machine)| has(machine)).count()
    }

    /// Returns true if a process's slot is migrating.
    pub(super) fn is_migrating(&self, slot: usize, at: usize) -> bool {
        let open = |node: &SimNode| node.view.as_ref()?.open(Slot::new(slot as u64)?);
        matches!(self.seats[at].node.as_ref().and_then(open), Some(Open::Migrating { .. }))
    }

    /// The process to which a process's slot is migrating, if it is a primary.
    pub(super) fn target_of(&self, slot: usize, at: usize) -> Option<usize> {
        let view = self.seats[at].node.as_ref()?.view.as_ref()?;
        let Open::Migrating { to } = view.open(Slot::new(slot as u64)?)? else { return None };
        let id = view.node(to)?.id;
        self.machines().find(|(_, machine)| machine.table().myself().id == id).map(|(at, _)| at)
    }

    /// A slot that no process serves.
    pub(super) fn unowned_slot(&self) -> Option<usize> {
        let mut slots = SlotSet::FULL;
        for (_, node) in self.nodes() {
            if let Some(view) = node.view.as_ref().filter(|view| view.is_primary()) {
                slots.subtract(&view.mine);
                let open = view.open_slots().keys().filter(|slot| view.owner(**slot) == Some(view.me));
                open.for_each(|slot| _ = slots.remove(*slot));
            }
        }
        slots.iter().next().map(Slot::index)
    }

    /// Returns true if a whole slot moves.
    pub(super) fn moves_any(&self) -> bool {
        self.nodes().any(|(_, node)| !node.process.engine().slots.jobs.under_way().is_empty())
    }

    /// The moves of whole slots that have not ended, and the keys that they have left hidden.
    fn moves_left(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (at, node) in self.nodes() {
            let engine = node.process.engine();
            for job in engine.slots.jobs.under_way() {
                found.push(format!("L3: move {} is {} at process {at}", job.name, job.state().name()));
            }
            if (0..store::hash::SLOTS).any(|slot| engine.keyspace.is_staged(slot)) {
                found.push(format!("L3: process {at} has a staged slot"));
            }
            if engine.migrations.hold_any_slot() {
                found.push(format!("L3: process {at} holds writes"));
            }
        }
        found
    }

    /// Checks that no process lists a key of a slot that another node still has (S5).
    fn check_hidden(&mut self) {
        for at in 0..self.seats.len() {
            let Some(node) = &mut self.seats[at].node else { continue };
            let imports = node.process.engine().slots.jobs.under_way_as(Operation::Import);
            if imports.is_empty() {
                continue;
            }
            let listed = node.process.admin(&["KEYS", "*"], self.now_us);
            let view = node.view.clone();
            let has = |slot: Slot| view.as_ref().is_some_and(|view| view.owner(slot) == Some(view.me));
            let is_moving = |key: &&String| {
                let slot = Slot::of_hash(store::hash::slot_of(key.as_bytes()));
                imports.iter().any(|job| job.slots.contains(slot)) && !has(slot)
            };
            if let Some(key) = self.keys.iter().filter(is_moving).find(|key| listed.contains(key.as_str())) {
                return self.break_promise(format!("S5: process {at} lists {key}, which it has not imported yet"));
            }
        }
    }

    /// Returns everything in which the nodes do not agree, or that has not ended: L1 to L3.
    pub(super) fn disagreements(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut machines = self.machines();
        let Some((first, expected)) = machines.next().map(|(at, machine)| (at, picture(machine))) else { return found };
        for (at, machine) in machines {
            let seen = picture(machine);
            if seen != expected {
                found.push(format!("L1: processes {first} and {at} differ: {expected:#?} {seen:#?}"));
            }
        }
        for (at, machine) in self.machines() {
            found.extend(leftovers(machine).into_iter().map(|text| format!("L3: process {at}: {text}")));
        }
        let voting = self.machines().map(|(_, machine)| machine.table().myself()).filter(|me| me.is_voting());
        let mut epochs: Vec<u64> = voting.map(|me| me.config_epoch).collect();
        let count = epochs.len();
        epochs.sort_unstable();
        epochs.dedup();
        if epochs.len() < count {
            found.push(format!("L1: epochs collide: {epochs:?}"));
        }
        found.extend(self.unowned_slot().map(|slot| format!("L2: nobody has slot {slot}")));
        found.extend(self.moves_left());
        found.extend(self.open_slot().map(|(slot, at, _)| format!("L3: slot {slot} is open at {at}")));
        for (at, node) in self.nodes() {
            let is_replica = node.view.as_ref().is_some_and(|view| !view.is_primary());
            let serves = node.serves() || node.view.as_ref().is_some_and(|view| view.is_up());
            if !serves {
                found.push(format!("L2: process {at} does not serve"));
            }
            // The link is still the old primary's.
            if !node.is_settled() {
                found.push(format!("L2: process {at} has not carried out a decision of its bus"));
            }
            if is_replica && !node.process.is_up() {
                found.push(format!("L2: the link of process {at} is down"));
            }
        }
        found
    }

    /// Notes whether all nodes agree.
    pub(super) fn look(&mut self) {
        self.later(LOOK_US, Actor::Look);
        self.check_hidden();
        let is_done = self.is_peaceful
            && self.operator.is_idle()
            && self.clients_finish()
            && self.clients.iter().all(super::client::ClusterClient::is_idle)
            && self.disagreements().is_empty();
        match is_done {
            true => _ = self.agrees_since_us.get_or_insert(self.now_us),
            false => self.agrees_since_us = None,
        }
    }

    /// Returns true once the history is over. Compares the data then.
    pub(super) fn is_over(&mut self) -> Result<bool, Wrong> {
        let has_rested = self.agrees_since_us.is_some_and(|since_us| self.now_us > since_us + REST_US);
        // A replica may have begun to follow an orphaned primary since the last look. It has no data yet.
        let is_over = has_rested && self.disagreements().is_empty();
        if has_rested && !is_over {
            self.agrees_since_us = None;
        }
        if is_over {
            (0..self.keys.len()).try_for_each(|key| self.check_key(key))?;
        }
        Ok(is_over)
    }

    /// Returns true if a process is a replica of another one.
    fn follows(&self, replica: usize, primary: usize) -> bool {
        let Some((replica, primary)) = self.seats[replica].node.as_ref().zip(self.seats[primary].node.as_ref()) else {
            return false;
        };
        let (table, id) = (replica.bus.machine().table(), primary.bus.machine().table().myself().id);
        table.myself().primary().is_some_and(|key| table[key].id == id)
    }

    fn check_key(&mut self, key: usize) -> Result<(), Wrong> {
        let slot = usize::from(store::hash::slot_of(self.keys[key].as_bytes()));
        let owner = self.owner(slot).ok_or(format!("L2: nobody has list {key}"))?;
        let (found, members) = (self.list(owner, key), self.members(owner));
        let lost = self.promises.check_list(key, &found, self.lineage(owner), members)?;
        if lost > 0 {
            self.tell(format!("list {key} lacks {lost} acknowledged writes in the end"));
        }
        self.promises.check_content(key, &found)?;
        for other in 0..self.seats.len() {
            let other_list = self.list(other, key);
            // Another primary of the shard may have slots of its own.
            let follows = other == owner || self.follows(other, owner);
            if follows && other_list != found || !follows && !other_list.is_empty() {
                return Err(format!(
                    "S5: process {other} has {other_list:?} in list {key}, its owner {owner} has {found:?}"
                ));
            }
        }
        Ok(())
    }
}
