//! `rebalance`: gives each primary a number of slots in proportion to its weight.

use super::moves::MoveOptions;
use super::plan::{self, Balance, Share};
use super::{Manager, Outcome, Stop};

/// `rebalance`.
pub fn run(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    manager.load_cluster(args)?;
    manager.set_weights()?;
    let involved = manager.involved();
    manager.check(false)?;
    if !manager.errors.is_empty() {
        return manager.stop("*** Please fix your cluster problems before rebalancing\n");
    }
    let share = |&node: &usize| {
        let node = &manager.nodes[node];
        Share { slots: node.slots.len(), weight: node.weight }
    };
    let shares: Vec<Share> = involved.iter().map(share).collect();
    let threshold = manager.choices.threshold;
    let Balance { surplus, is_needed } = plan::balance(&shares, threshold);
    if !is_needed {
        return manager
            .warn(format!("*** No rebalancing needed! All nodes are within the {threshold:.2}% threshold.\n"));
    }
    let weight: f32 = shares.iter().map(|share| share.weight).sum();
    manager.info(format!(">>> Rebalancing across {} nodes. Total weight = {weight:.2}\n", involved.len()))?;
    if manager.choices.is_verbose {
        manager.show_balance(&involved, &surplus)?;
    }
    for (source, target, count) in plan::transfers(&surplus) {
        manager.transfer(involved[source], involved[target], count)?;
    }
    Ok(())
}

impl Manager<'_> {
    /// Applies `--cluster-weight`: `id=weight`, with an abbreviated id.
    fn set_weights(&mut self) -> Outcome {
        for word in self.choices.weights.clone() {
            let (id, weight) = word.split_once('=').unwrap_or((&word, ""));
            let Some(weight) = weight.parse::<f32>().ok().filter(|weight| weight.is_finite() && *weight >= 0.0) else {
                return self.stop(format!("*** invalid input {word}\n"));
            };
            let id = id.to_ascii_lowercase();
            match self.nodes.iter_mut().find(|node| node.id.starts_with(&id)) {
                Some(node) => node.weight = weight,
                None => return self.stop(format!("*** No such master node {id}\n")),
            }
        }
        Ok(())
    }

    /// Returns the primaries that take part.
    fn involved(&self) -> Vec<usize> {
        let takes_part = |node: &usize| self.choices.uses_empty_masters || !self.nodes[*node].slots.is_empty();
        self.masters().into_iter().filter(takes_part).collect()
    }

    fn show_balance(&mut self, involved: &[usize], surplus: &[i64]) -> Outcome {
        let mut lines: Vec<(i64, String)> =
            involved.iter().zip(surplus).map(|(&node, &surplus)| (surplus, self.nodes[node].place())).collect();
        lines.sort_by_key(|(surplus, _)| *surplus);
        for (surplus, place) in lines {
            self.say(format!("{place} balance is {surplus} slots\n"))?;
        }
        Ok(())
    }

    fn transfer(&mut self, source: usize, target: usize, count: usize) -> Outcome {
        let (from, to) = (self.nodes[source].place(), self.nodes[target].place());
        self.say(format!("Moving {count} slots from {from} to {to}\n"))?;
        let moves = self.plan_moves(&[source], count);
        if moves.len() != count {
            return self.stop("*** Assertion failed: Reshard table != number of slots");
        }
        if self.choices.simulates {
            return self.say("#".repeat(count) + "\n");
        }
        let options = MoveOptions { is_quiet: true, updates_nodes: true, ..MoveOptions::default() };
        for (source, slot) in moves {
            match self.move_slot(source, target, slot, options) {
                Ok(()) => {}
                Err(Stop::Reported) => return self.stop(format!("*** clusterManagerMoveSlot: slot {slot}\n")),
                Err(stop) => return Err(stop),
            }
            self.say("#")?;
            self.output.flush()?;
        }
        self.say("\n")
    }
}
