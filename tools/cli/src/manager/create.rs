//! `create`: makes a cluster of empty nodes.

use super::affinity::{self, Affinity, Place};
use super::node::Node;
use super::{Manager, Outcome, Stop, parse_address, plan};
use client::cluster::Slot;
use std::hash::{BuildHasher, RandomState};
use std::thread::sleep;
use std::time::Duration;

/// A cluster needs a majority of primaries.
const MASTERS_MIN: usize = 3;

/// Time for the nodes to hear of each other. Before that they agree that no slot has an owner.
const JOIN_START: Duration = Duration::from_secs(1);

/// `create`.
pub fn run(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    manager.load_empty_nodes(args)?;
    manager.allocate()?;
    manager.show_nodes()?;
    if !manager.confirms("Can I set the above configuration?", false)? {
        return Ok(());
    }
    manager.flush_all()?;
    manager.info(">>> Nodes configuration updated\n")?;
    manager.set_epochs()?;
    manager.info(">>> Sending CLUSTER MEET messages to join the cluster\n")?;
    for node in 1..manager.nodes.len() {
        manager.meet(node, 0)?;
    }
    manager.output.flush()?;
    sleep(JOIN_START);
    manager.wait_for_join()?;
    manager.flush_all()?;
    let (host, port) = (manager.nodes[0].host.clone(), manager.nodes[0].port);
    manager.load_from(host, port)?;
    manager.check(true).map(drop)
}

impl Manager<'_> {
    fn load_empty_nodes(&mut self, args: &[Vec<u8>]) -> Outcome {
        for arg in args {
            let address = String::from_utf8_lossy(arg).into_owned();
            let Some((host, port)) = parse_address(&address) else {
                self.complain(&format!("Invalid address format: {address}"))?;
                return Err(Stop::Reported);
            };
            let mut node = Node::new(host, port);
            self.connect(&mut node)?;
            self.check_cluster_mode(&mut node)?;
            self.read_nodes(&mut node)?;
            self.check_empty(&mut node)?;
            self.nodes.push(node);
        }
        Ok(())
    }

    /// Gives slots to primaries, and primaries to replicas.
    fn allocate(&mut self) -> Outcome {
        let (count, replicas) = (self.nodes.len(), self.choices.replicas);
        let masters = count / (replicas + 1);
        if masters < MASTERS_MIN {
            self.error(format!(
                "*** ERROR: Invalid configuration for cluster creation.\n*** Redis Cluster requires at least \
                 {MASTERS_MIN} master nodes.\n*** This is not possible with {count} nodes and {replicas} replicas per \
                 node."
            ))?;
            return self.stop(format!("\n*** At least {} nodes are required.\n", MASTERS_MIN * (replicas + 1)));
        }
        self.info(format!(">>> Performing hash slots allocation on {count} nodes...\n"))?;
        let place = |node: &Node| Place { host: node.host.clone(), primary: None };
        let mut places: Vec<Place> = self.nodes.iter().map(place).collect();
        let order = affinity::interleaved(&places);
        for (index, (&master, (first, last))) in order.iter().zip(plan::ranges(masters)).enumerate() {
            self.say(format!("Master[{index}] -> Slots {first} - {last}\n"))?;
            let node = &mut self.nodes[master];
            node.slots = (first..=last).filter_map(Slot::new).collect();
            node.is_dirty = true;
        }
        self.assign_replicas(&mut places, &order, masters)
    }

    fn assign_replicas(&mut self, places: &mut [Place], order: &[usize], masters: usize) -> Outcome {
        let (pairs, regular) = affinity::assign(places, order, masters, self.choices.replicas);
        for (index, (replica, master)) in pairs.into_iter().enumerate() {
            if index == regular {
                self.say("Adding extra replicas...\n")?;
            }
            let (ours, theirs) = (self.nodes[replica].place(), self.nodes[master].place());
            self.say(format!("Adding replica {ours} to {theirs}\n"))?;
            places[replica].primary = Some(master);
        }
        self.optimize(places)?;
        for (index, place) in places.iter().enumerate() {
            if let Some(primary) = place.primary {
                self.nodes[index].primary = Some(self.nodes[primary].id.clone());
                self.nodes[index].is_dirty = true;
            }
        }
        Ok(())
    }

    fn optimize(&mut self, places: &mut [Place]) -> Outcome {
        let seed = RandomState::new();
        let mut drawn = 0_u64;
        let random = |below: usize| {
            drawn += 1;
            seed.hash_one(drawn) as usize % below
        };
        let Some(affinity) = affinity::optimize(places, random) else { return Ok(()) };
        self.info(">>> Trying to optimize slaves allocation for anti-affinity\n")?;
        match affinity {
            Affinity::Perfect => self.ok("[OK] Perfect anti-affinity obtained!\n"),
            Affinity::WithPrimary => self.warn("[WARNING] Some slaves are in the same host as their master\n"),
            Affinity::WithReplicas => self.warn("[WARNING] Some slaves of the same master are in the same host\n"),
        }
    }

    /// Sends slots and primaries to the nodes. A replica that doesn't know its primary yet stays dirty.
    fn flush_all(&mut self) -> Outcome {
        for node in 0..self.nodes.len() {
            if !self.nodes[node].is_dirty {
                continue;
            }
            match self.nodes[node].primary.clone() {
                Some(primary) => {
                    let replicates = self.request(node, &["CLUSTER", "REPLICATE", &primary]);
                    self.nodes[node].is_dirty = replicates.is_err();
                }
                None => {
                    self.add_slots(node)?;
                    self.nodes[node].is_dirty = false;
                }
            }
        }
        Ok(())
    }

    fn add_slots(&mut self, node: usize) -> Outcome {
        let slots: Vec<String> = self.nodes[node].slots.iter().map(|slot| slot.to_string()).collect();
        let request: Vec<&str> = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
        self.must(node, &request).map(drop)
    }

    /// Gives each node an epoch of its own. A node with a later epoch refuses, which is no problem.
    fn set_epochs(&mut self) -> Outcome {
        self.info(">>> Assign a different config epoch to each node\n")?;
        for node in 0..self.nodes.len() {
            let _ = self.request(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(node + 1).to_string()]);
        }
        Ok(())
    }
}
