//! `check`: agreement, open slots, coverage, and several owners of a slot.

use super::{Manager, Outcome, Stop};
use client::cluster::{SLOTS, Slot, SlotSet};
use std::collections::BTreeSet;

/// `check`: prints the nodes and their problems.
pub fn run(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    manager.load_cluster(args)?;
    // A primary that doesn't answer is one more problem.
    match manager.show_keys() {
        Ok(()) | Err(Stop::Reported) => {}
        Err(stop) => return Err(stop),
    }
    match manager.check(true)? {
        true => Ok(()),
        false => Err(Stop::Reported),
    }
}

impl Manager<'_> {
    /// Prints the problems of the cluster. With `fix` it repairs them. Returns true if there are none left.
    pub(super) fn check(&mut self, shows_nodes: bool) -> Outcome<bool> {
        let place = self.nodes[0].place();
        self.info(format!(">>> Performing Cluster Check (using node {place})\n"))?;
        if shows_nodes {
            self.show_nodes()?;
        }
        let mut is_fine = self.check_agreement()?;
        is_fine &= self.check_open_slots()?;
        let coverage = self.check_coverage()?;
        // Slots that were covered just now count as repaired, like in redis-cli.
        is_fine = coverage.unwrap_or(is_fine);
        if self.choices.searches_owners {
            is_fine &= self.check_owners()?;
        }
        Ok(is_fine)
    }

    /// Prints a problem and notes it.
    fn note(&mut self, problem: String) -> Outcome {
        self.error(format!("{problem}\n"))?;
        self.errors.push(problem);
        Ok(())
    }

    fn check_agreement(&mut self) -> Outcome<bool> {
        let agrees = self.is_consistent();
        match agrees {
            true => self.ok("[OK] All nodes agree about slots configuration.\n")?,
            false => self.note("[ERR] Nodes don't agree about configuration!".to_owned())?,
        }
        Ok(agrees)
    }

    fn check_open_slots(&mut self) -> Outcome<bool> {
        self.info(">>> Check for open slots...\n")?;
        let mut open = BTreeSet::new();
        for at in 0..self.nodes.len() {
            let node = &self.nodes[at];
            let problems = [("migrating", &node.migrating), ("importing", &node.importing)].map(|(state, slots)| {
                open.extend(slots.iter().map(|(slot, _)| *slot));
                let list: Vec<String> = slots.iter().map(|(slot, _)| slot.to_string()).collect();
                let place = node.place();
                (!list.is_empty())
                    .then(|| format!("[WARNING] Node {place} has slots in {state} state {}.", list.join(",")))
            });
            for problem in problems.into_iter().flatten() {
                self.note(problem)?;
            }
        }
        if open.is_empty() {
            return Ok(true);
        }
        let list: Vec<String> = open.iter().map(u16::to_string).collect();
        self.error(format!("[WARNING] The following slots are open: {}.\n", list.join(",")))?;
        if !self.fixes {
            return Ok(false);
        }
        for slot in open.iter().filter_map(|slot| Slot::new(u64::from(*slot))) {
            match self.fix_open_slot(slot) {
                Ok(()) => {}
                Err(Stop::Reported) => return Ok(false),
                Err(stop) => return Err(stop),
            }
        }
        Ok(true)
    }

    /// Returns `None` if all slots are covered, and otherwise true if `fix` has covered them.
    fn check_coverage(&mut self) -> Outcome<Option<bool>> {
        self.info(">>> Check slots coverage...\n")?;
        let mut covered = SlotSet::EMPTY;
        self.nodes.iter().for_each(|node| covered.add(&node.slots));
        if covered.len() == SLOTS {
            self.ok(format!("[OK] All {SLOTS} slots covered.\n"))?;
            return Ok(None);
        }
        self.note(format!("[ERR] Not all {SLOTS} slots are covered by nodes.\n"))?;
        if !self.fixes {
            return Ok(Some(false));
        }
        match self.fix_coverage(&covered) {
            Ok(fixed) => Ok(Some(fixed > 0)),
            Err(Stop::Reported) => Ok(Some(false)),
            Err(stop) => Err(stop),
        }
    }

    fn check_owners(&mut self) -> Outcome<bool> {
        self.info(">>> Check for multiple slot owners...\n")?;
        let (mut is_fine, mut found) = (true, 0);
        for slot in Slot::all() {
            let owners = self.claimants(slot)?;
            if owners.len() <= 1 {
                continue;
            }
            is_fine = false;
            self.error(format!("[WARNING] Slot {slot} has {} owners:\n", owners.len()))?;
            for &owner in &owners {
                let place = self.nodes[owner].place();
                self.error(format!("    {place}\n"))?;
            }
            found += 1;
            if self.fixes {
                match self.fix_owners(slot, &owners) {
                    Ok(()) => (found, is_fine) = (found - 1, true),
                    Err(Stop::Reported) => {
                        self.error(format!("Failed to fix multiple owners for slot {slot}\n"))?;
                        return Ok(false);
                    }
                    Err(stop) => return Err(stop),
                }
            }
        }
        if found == 0 {
            self.ok("[OK] No multiple owners found.\n")?;
        }
        Ok(is_fine && found == 0)
    }

    /// Returns the primaries that own a slot or have keys of it.
    fn claimants(&mut self, slot: Slot) -> Outcome<Vec<usize>> {
        let mut found = Vec::new();
        for master in self.masters() {
            if self.nodes[master].slots.contains(slot) || self.count_keys(master, slot)? > 0 {
                found.push(master);
            }
        }
        Ok(found)
    }
}
