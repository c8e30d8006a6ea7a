//! `reshard`: moves a number of slots to one primary.

use super::moves::MoveOptions;
use super::report::description;
use super::{Manager, Outcome, Stop, plan};
use client::cluster::{SLOTS, Slot, SlotSet};

/// The source nodes that the user chose.
enum Sources {
    All,
    These(Vec<usize>),
}

/// `reshard`.
pub fn run(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    manager.load_cluster(args)?;
    manager.check(true)?;
    if !manager.errors.is_empty() {
        manager.complain("*** Please fix your cluster problems before resharding")?;
        return Err(Stop::Reported);
    }
    let count = manager.ask_count()?;
    let target = manager.ask_target()?;
    let sources = match manager.ask_sources(target)? {
        Sources::These(sources) => sources,
        Sources::All => manager.masters().into_iter().filter(|node| *node != target).collect(),
    };
    if sources.is_empty() {
        manager.complain("*** No source nodes given, operation aborted.")?;
        return Err(Stop::Reported);
    }
    let moves = manager.show_plan(&sources, target, count)?;
    if !manager.choices.yes {
        let answer = manager.ask("Do you want to proceed with the proposed reshard plan (yes/no)? ")?;
        if answer.as_deref() != Some("yes") {
            return Err(Stop::Reported);
        }
    }
    for (source, slot) in moves {
        let options = MoveOptions { prints_dots: true, ..MoveOptions::default() };
        manager.move_slot(source, target, slot, options)?;
    }
    Ok(())
}

impl Manager<'_> {
    /// Asks a question that needs an answer.
    fn must_ask(&mut self, question: &str) -> Outcome<String> {
        match self.ask(question)? {
            Some(answer) => Ok(answer),
            None => {
                self.say("\n")?;
                self.complain("*** Standard input has ended, operation aborted.")?;
                Err(Stop::Reported)
            }
        }
    }

    fn ask_count(&mut self) -> Outcome<usize> {
        if self.choices.slots > 0 {
            return Ok(self.choices.slots);
        }
        loop {
            let answer = self.must_ask(&format!("How many slots do you want to move (from 1 to {SLOTS})? "))?;
            match answer.parse() {
                Ok(count) if (1..=SLOTS).contains(&count) => return Ok(count),
                _ => {}
            }
        }
    }

    fn ask_target(&mut self) -> Outcome<usize> {
        let mut id = self.choices.to.clone().unwrap_or_default();
        while id.is_empty() {
            id = self.must_ask("What is the receiving node ID? ")?;
        }
        self.known_master(&id)
    }

    fn ask_sources(&mut self, target: usize) -> Outcome<Sources> {
        let mut sources = Vec::new();
        if let Some(from) = self.choices.from.clone() {
            for id in from.split(',').filter(|id| !id.is_empty()) {
                if id == "all" {
                    return Ok(Sources::All);
                }
                sources.extend(self.source(id, target)?);
            }
            return Ok(Sources::These(sources));
        }
        self.say(
            "Please enter all the source node IDs.\n  Type 'all' to use all the nodes as source nodes for the hash \
             slots.\n  Type 'done' once you entered all the source nodes IDs.\n",
        )?;
        loop {
            let id = self.must_ask(&format!("Source node #{}: ", sources.len() + 1))?;
            match id.as_str() {
                "done" => return Ok(Sources::These(sources)),
                "all" => return Ok(Sources::All),
                id => sources.extend(self.source(id, target)?),
            }
        }
    }

    fn known_master(&mut self, id: &str) -> Outcome<usize> {
        match self.node_by_id(id).filter(|&node| !self.nodes[node].is_replica()) {
            Some(node) => Ok(node),
            None => self.stop(format!("*** The specified node ({id}) is not known or not a master, please retry.\n")),
        }
    }

    /// Returns a source node. The target is none, which is reported.
    fn source(&mut self, id: &str, target: usize) -> Outcome<Option<usize>> {
        let node = self.known_master(id)?;
        if node == target {
            self.error("*** It is not possible to use the target node as source node.\n")?;
            return Ok(None);
        }
        Ok(Some(node))
    }

    fn show_plan(&mut self, sources: &[usize], target: usize, count: usize) -> Outcome<Vec<(usize, Slot)>> {
        self.say(format!("\nReady to move {count} slots.\n  Source nodes:\n"))?;
        for &source in sources {
            let text = description(&self.nodes[source], 4);
            self.say(format!("{text}\n"))?;
        }
        let text = description(&self.nodes[target], 4);
        self.say(format!("  Destination node:\n{text}\n"))?;
        let moves = self.plan_moves(sources, count);
        self.say("  Resharding plan:\n")?;
        for (source, slot) in &moves {
            let id = self.nodes[*source].id.clone();
            self.say(format!("    Moving slot {slot} from {id}\n"))?;
        }
        Ok(moves)
    }

    /// Chooses slots to move away from sources. Returns each with its source.
    pub(super) fn plan_moves(&self, sources: &[usize], count: usize) -> Vec<(usize, Slot)> {
        let slots: Vec<&SlotSet> = sources.iter().map(|&source| &self.nodes[source].slots).collect();
        plan::reshard(&slots, count).into_iter().map(|(source, slot)| (sources[source], slot)).collect()
    }
}
