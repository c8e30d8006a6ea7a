//! `fix`: covers slots without owners, and leaves one owner to each slot.

use super::moves::MoveOptions;
use super::report::slots_text;
use super::{Manager, Outcome, Stop, check};
use client::cluster::{Slot, SlotSet};

/// `fix`: like `check`, with repairs.
pub fn run(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    manager.fixes = true;
    check::run(manager, args)
}

impl Manager<'_> {
    /// Stops if primaries can't be reached: their slots would go to other nodes, without the keys.
    pub(super) fn check_reachable(&mut self, action: &str) -> Outcome {
        if self.unreachable_masters == 0 || self.choices.fixes_unreachable {
            return Ok(());
        }
        let count = self.unreachable_masters;
        self.warn(format!(
            "*** Fixing {action} with {count} unreachable masters is dangerous: redis-cli will assume that slots about \
             masters that are not reachable are not covered, and will try to reassign them to the reachable nodes. This \
             can cause data loss and is rarely what you want to do. If you really want to proceed use the \
             --cluster-fix-with-unreachable-masters option.\n"
        ))?;
        Err(Stop::Reported)
    }

    /// Covers the other slots. Returns their number.
    pub(super) fn fix_coverage(&mut self, covered: &SlotSet) -> Outcome<usize> {
        self.check_reachable("slots coverage")?;
        self.info(">>> Fixing slots coverage...\n")?;
        let (mut none, mut single, mut several) = (Vec::new(), Vec::new(), Vec::new());
        for slot in Slot::all().filter(|slot| !covered.contains(*slot)) {
            let holders = self.holders(slot)?;
            match holders.as_slice() {
                [] => none.push(slot),
                [holder] => single.push((slot, *holder)),
                _ => several.push((slot, holders)),
            }
        }
        let fixed = self.cover_empty(&none)? + self.cover_by_holder(&single)?;
        Ok(fixed + self.cover_by_richest(&several)?)
    }

    /// Returns the primaries with keys of a slot.
    fn holders(&mut self, slot: Slot) -> Outcome<Vec<usize>> {
        let mut found = Vec::new();
        for master in self.masters() {
            if !self.keys_in_slot(master, slot, 1)?.is_empty() {
                found.push(master);
            }
        }
        Ok(found)
    }

    fn list_slots(&mut self, title: &str, slots: impl Iterator<Item = Slot>) -> Outcome {
        self.say(format!("{title}\n{}\n", slots_text(&slots.collect())))
    }

    /// Covers slots without keys.
    fn cover_empty(&mut self, slots: &[Slot]) -> Outcome<usize> {
        if slots.is_empty() {
            return Ok(0);
        }
        self.list_slots("The following uncovered slots have no keys across the cluster:", slots.iter().copied())?;
        if !self.confirms("Fix these slots by covering with a random node?", true)? {
            return Ok(0);
        }
        for &slot in slots {
            // redis-cli takes any primary. The one with the fewest slots keeps the cluster even.
            let poorest = self.masters().into_iter().min_by_key(|&node| self.nodes[node].slots.len());
            let Some(node) = poorest else { return Err(Stop::Reported) };
            let place = self.nodes[node].place();
            self.info(format!(">>> Covering slot {slot} with {place}\n"))?;
            self.take_slot(node, slot, false)?;
        }
        Ok(slots.len())
    }

    /// Covers slots with keys in one node.
    fn cover_by_holder(&mut self, slots: &[(Slot, usize)]) -> Outcome<usize> {
        if slots.is_empty() {
            return Ok(0);
        }
        let title = "The following uncovered slots have keys in just one node:";
        self.list_slots(title, slots.iter().map(|(slot, _)| *slot))?;
        if !self.confirms("Fix these slots by covering with those nodes?", true)? {
            return Ok(0);
        }
        for &(slot, node) in slots {
            let place = self.nodes[node].place();
            self.info(format!(">>> Covering slot {slot} with {place}\n"))?;
            self.take_slot(node, slot, false)?;
        }
        Ok(slots.len())
    }

    /// Covers slots with keys in several nodes.
    fn cover_by_richest(&mut self, slots: &[(Slot, Vec<usize>)]) -> Outcome<usize> {
        if slots.is_empty() {
            return Ok(0);
        }
        let title = "The following uncovered slots have keys in multiple nodes:";
        self.list_slots(title, slots.iter().map(|(slot, _)| *slot))?;
        if !self.confirms("Fix these slots by moving keys into a single node?", true)? {
            return Ok(0);
        }
        for (slot, holders) in slots {
            let Some(target) = self.richest(holders, *slot)? else { return Err(Stop::Reported) };
            let place = self.nodes[target].place();
            self.info(format!(">>> Covering slot {slot} moving keys to {place}\n"))?;
            self.take_slot(target, *slot, true)?;
            for &source in holders.iter().filter(|holder| **holder != target) {
                self.set_slot(source, *slot, "NODE", target)?;
                // An importing source doesn't redirect MIGRATE.
                self.set_slot(source, *slot, "IMPORTING", target)?;
                let options = MoveOptions { prints_dots: true, is_cold: true, ..MoveOptions::default() };
                self.move_slot(source, target, *slot, options)?;
                self.close_slot(source, *slot)?;
            }
        }
        Ok(slots.len())
    }

    /// Leaves one owner to a slot: the one with the most keys.
    pub(super) fn fix_owners(&mut self, slot: Slot, owners: &[usize]) -> Outcome {
        self.info(format!(">>> Fixing multiple owners for slot {slot}...\n"))?;
        let Some(owner) = self.richest(owners, slot)? else { return Err(Stop::Reported) };
        let place = self.nodes[owner].place();
        self.info(format!(">>> Setting slot {slot} owner: {place}\n"))?;
        self.take_slot(owner, slot, false)?;
        for other in self.masters().into_iter().filter(|node| *node != owner) {
            let count = self.count_keys(other, slot)?;
            match self.delete_slot(other, slot) {
                Ok(()) | Err(Stop::Reported) => {}
                Err(stop) => return Err(stop),
            }
            self.set_slot(other, slot, "node", owner)?;
            if count > 0 {
                let options = MoveOptions { prints_dots: true, is_cold: true, ..MoveOptions::default() };
                self.move_slot(other, owner, slot, options)?;
            }
        }
        Ok(())
    }
}
