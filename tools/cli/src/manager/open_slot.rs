//! Repairs a slot whose move between nodes was interrupted.

use super::moves::MoveOptions;
use super::{Manager, Outcome, Stop};
use client::cluster::Slot;

/// The nodes that are concerned by an open slot.
#[derive(Debug, Default)]
struct OpenSlot {
    /// Primaries that own the slot or have keys of it.
    owners: Vec<usize>,
    migrating: Vec<usize>,
    importing: Vec<usize>,
    owner: Option<usize>,
    /// The lists as they were found, for messages.
    migrating_text: String,
    importing_text: String,
}

impl Manager<'_> {
    /// Closes an open slot: its keys go to one node.
    pub(super) fn fix_open_slot(&mut self, slot: Slot) -> Outcome {
        self.check_reachable("open slots")?;
        self.info(format!(">>> Fixing open slot {slot}\n"))?;
        let mut open = OpenSlot { owners: self.find_owners(slot)?, ..OpenSlot::default() };
        if let [owner] = open.owners.as_slice() {
            open.owner = Some(*owner);
        }
        self.find_states(slot, &mut open)?;
        let owner = match open.owner {
            Some(owner) => owner,
            None => self.choose_owner(slot, &mut open)?,
        };
        if open.owners.len() > 1 {
            self.subordinate_owners(slot, owner, &mut open)?;
        }
        self.close_by_case(slot, owner, &open)
    }

    fn find_owners(&mut self, slot: Slot) -> Outcome<Vec<usize>> {
        let mut owners = Vec::new();
        for master in self.masters() {
            if self.nodes[master].slots.contains(slot) {
                owners.push(master);
            } else if self.count_keys(master, slot)? > 0 {
                let place = self.nodes[master].place();
                self.warn(format!("*** Found keys about slot {slot} in non-owner node {place}!\n"))?;
                owners.push(master);
            }
        }
        Ok(owners)
    }

    /// Finds the nodes that the slot leaves or enters. A node with keys that isn't the owner counts as entered.
    fn find_states(&mut self, slot: Slot, open: &mut OpenSlot) -> Outcome {
        let is_open = |slots: &[(u16, String)]| slots.iter().any(|(number, _)| *number == slot.number());
        for master in self.masters() {
            let node = &self.nodes[master];
            if is_open(&node.migrating) {
                open.migrating.push(master);
            } else if is_open(&node.importing) {
                open.importing.push(master);
            } else if open.owner != Some(master) && self.count_keys(master, slot)? > 0 {
                let place = self.nodes[master].place();
                self.warn(format!("*** Found keys about slot {slot} in node {place}!\n"))?;
                open.importing.push(master);
            }
        }
        let text = |nodes: &[usize]| nodes.iter().map(|&node| self.nodes[node].place()).collect::<Vec<_>>().join(",");
        (open.migrating_text, open.importing_text) = (text(&open.migrating), text(&open.importing));
        if !open.migrating.is_empty() {
            self.say(format!("Set as migrating in: {}\n", open.migrating_text))?;
        }
        if !open.importing.is_empty() {
            self.say(format!("Set as importing in: {}\n", open.importing_text))?;
        }
        Ok(())
    }

    /// Makes the node with the most keys the owner.
    fn choose_owner(&mut self, slot: Slot, open: &mut OpenSlot) -> Outcome<usize> {
        self.info(">>> No single clear owner for the slot, selecting an owner by # of keys...\n")?;
        let masters = self.masters();
        let Some(owner) = self.richest(&masters, slot)? else {
            return self.stop("[ERR] Can't select a slot owner. Impossible to fix.\n");
        };
        let place = self.nodes[owner].place();
        self.warn(format!("*** Configuring {place} as the slot owner\n"))?;
        self.close_slot(owner, slot)?;
        self.take_slot(owner, slot, false)?;
        open.migrating.retain(|node| *node != owner);
        open.importing.retain(|node| *node != owner);
        open.owner = Some(owner);
        Ok(owner)
    }

    /// Puts all owners but one into the importing state, so that their keys can leave.
    fn subordinate_owners(&mut self, slot: Slot, owner: usize, open: &mut OpenSlot) -> Outcome {
        for other in open.owners.clone().into_iter().filter(|other| *other != owner) {
            self.delete_slot(other, slot)?;
            self.nodes[other].slots.remove(slot);
            self.set_slot(other, slot, "node", owner)?;
            self.set_slot(other, slot, "importing", owner)?;
            open.importing.retain(|node| *node != other);
            open.importing.push(other);
            open.migrating.retain(|node| *node != other);
        }
        Ok(())
    }

    fn close_by_case(&mut self, slot: Slot, owner: usize, open: &OpenSlot) -> Outcome {
        match (open.migrating.as_slice(), open.importing.as_slice()) {
            ([source], [target]) => {
                let (from, to) = (self.nodes[*source].place(), self.nodes[*target].place());
                self.info(format!(">>> Case 1: Moving slot {slot} from {from} to {to}\n"))?;
                let options = MoveOptions { prints_dots: true, updates_nodes: true, ..MoveOptions::default() };
                self.move_slot(*source, *target, slot, options)
            }
            ([], [_, ..]) => self.move_all_to_owner(slot, owner, &open.importing),
            ([source], [_, _, ..]) => self.finish_one_of_many(slot, *source, owner, open),
            ([source], []) if self.can_close(*source, owner, slot)? => {
                let place = self.nodes[*source].place();
                self.info(format!(">>> Case 4: Closing slot {slot} on {place}\n"))?;
                self.close_slot(*source, slot)
            }
            _ => self.give_up(owner, open),
        }
    }

    /// Returns true if a node without target may keep the slot: it is the owner, or has no keys.
    fn can_close(&mut self, source: usize, owner: usize, slot: Slot) -> Outcome<bool> {
        Ok(source == owner || self.keys_in_slot(source, slot, 1)?.is_empty())
    }

    /// Case 2: nodes import the slot that no node gives away, as after a restart with keys of the slot.
    fn move_all_to_owner(&mut self, slot: Slot, owner: usize, importing: &[usize]) -> Outcome {
        let place = self.nodes[owner].place();
        self.info(format!(">>> Case 2: Moving all the {slot} slot keys to its owner {place}\n"))?;
        for &source in importing.iter().filter(|node| **node != owner) {
            let options = MoveOptions { prints_dots: true, is_cold: true, ..MoveOptions::default() };
            self.move_slot(source, owner, slot, options)?;
            let place = self.nodes[source].place();
            self.info(format!(">>> Setting {slot} as STABLE in {place}\n"))?;
            self.close_slot(source, slot)?;
        }
        // The other nodes may still know another owner.
        for other in self.masters().into_iter().filter(|node| *node != owner) {
            self.set_slot(other, slot, "NODE", owner)?;
        }
        Ok(())
    }

    /// Case 3: the slot leaves one node, and several nodes without keys import it.
    fn finish_one_of_many(&mut self, slot: Slot, source: usize, owner: usize, open: &OpenSlot) -> Outcome {
        let goals = &self.nodes[source].migrating;
        let goal = goals.iter().find(|(number, _)| *number == slot.number()).map(|(_, id)| id.clone());
        for &node in &open.importing {
            if self.count_keys(node, slot)? > 0 {
                return self.give_up(owner, open);
            }
        }
        let is_goal = |node: &&usize| goal.as_ref() == Some(&self.nodes[**node].id);
        match open.importing.iter().find(is_goal).copied() {
            Some(target) => {
                let (from, to) = (self.nodes[source].place(), self.nodes[target].place());
                self.info(format!(
                    ">>> Case 3: Moving slot {slot} from {from} to {to} and closing it on all the other importing nodes.\n"
                ))?;
                let options = MoveOptions { prints_dots: true, ..MoveOptions::default() };
                self.move_slot(source, target, slot, options)?;
                self.close_all(slot, open.importing.iter().copied().filter(|node| *node != target))
            }
            None => {
                self.info(format!(">>> Case 3: Closing slot {slot} on both migrating and importing nodes.\n"))?;
                self.close_all(slot, [source].into_iter().chain(open.importing.iter().copied()))
            }
        }
    }

    fn close_all(&mut self, slot: Slot, nodes: impl Iterator<Item = usize>) -> Outcome {
        for node in nodes {
            self.close_slot(node, slot)?;
        }
        Ok(())
    }

    fn give_up(&mut self, owner: usize, open: &OpenSlot) -> Outcome {
        let place = self.nodes[owner].place();
        self.error(format!(
            "[ERR] Sorry, redis-cli can't fix this slot yet (work in progress). Slot is set as migrating in {}, as \
             importing in {}, owner is {place}\n",
            open.migrating_text, open.importing_text
        ))?;
        Err(Stop::Reported)
    }
}
