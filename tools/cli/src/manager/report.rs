//! Descriptions of nodes, and `info`.

use super::node::{Node, number_of};
use super::{Manager, Outcome, Stop};
use client::cluster::{SLOTS, SlotSet};

/// `info`: prints the keys, slots and replicas of each primary.
pub fn run(manager: &mut Manager<'_>, args: &[Vec<u8>]) -> Outcome {
    manager.load_cluster(args)?;
    manager.show_keys()
}

impl Manager<'_> {
    /// Prints the keys, slots and replicas of each primary.
    pub fn show_keys(&mut self) -> Outcome {
        let (mut keys, mut masters) = (0, 0);
        for master in self.masters() {
            let reply = self.must(master, &["DBSIZE"])?;
            let Some(count) = number_of(&reply) else {
                self.report_reply_error(master, "")?;
                return Err(Stop::Reported);
            };
            let Node { id, slots, .. } = &self.nodes[master];
            let replicas = self.nodes.iter().filter(|node| node.is_replica() && node.primary.as_ref() == Some(id));
            let line = format!(
                "{} ({}...) -> {count} keys | {} slots | {} slaves.\n",
                self.nodes[master].place(),
                id.get(..8).unwrap_or(id),
                slots.len(),
                replicas.count(),
            );
            self.say(line)?;
            masters += 1;
            keys += count;
        }
        self.ok(format!("[OK] {keys} keys in {masters} masters.\n"))?;
        self.say(format!("{:.2} keys per slot on average.\n", keys as f32 / SLOTS as f32))
    }

    /// Prints all nodes.
    pub fn show_nodes(&mut self) -> Outcome {
        for node in 0..self.nodes.len() {
            let text = description(&self.nodes[node], 0);
            self.say(format!("{text}\n"))?;
        }
        Ok(())
    }
}

/// Describes a node in two to three lines.
pub fn description(node: &Node, indent: usize) -> String {
    let spaces = " ".repeat(indent);
    let (id, place) = (&node.id, node.place());
    let mut text = match node.is_dirty && node.primary.is_some() {
        true => format!("{spaces}S: {id} {place}"),
        false => {
            let role = if node.is_replica() { 'S' } else { 'M' };
            let (slots, count, flags) = (slots_text(&node.slots), node.slots.len(), node.flags.join(","));
            format!("{spaces}{role}: {id} {place}\n{spaces}   slots:{slots} ({count} slots) {flags}")
        }
    };
    if let Some(primary) = &node.primary {
        text += &format!("\n{spaces}   replicates {primary}");
    } else if node.replicas > 0 {
        text += &format!("\n{spaces}   {} additional replica(s)", node.replicas);
    }
    text
}

/// Formats slots as `[0-99],[5]`.
pub fn slots_text(slots: &SlotSet) -> String {
    slots.ranges().map(|range| format!("[{range}]")).collect::<Vec<_>>().join(",")
}

/// Describes a node as JSON, for a backup.
pub fn json(node: &Node, errors: usize) -> String {
    let primary = node.primary.as_ref().map_or_else(|| "null".to_owned(), |primary| format!("\"{primary}\""));
    let slots = slots_text(&node.slots).replace('-', ",");
    let mut text = format!(
        "  {{\n    \"name\": \"{}\",\n    \"host\": \"{}\",\n    \"port\": {},\n    \"replicate\": {primary},\n    \
         \"slots\": [{slots}],\n    \"slots_count\": {},\n    \"flags\": \"{}\",\n    \"current_epoch\": {}",
        node.id,
        node.host,
        node.port,
        node.slots.len(),
        node.flags.join(","),
        node.epoch,
    );
    if errors > 0 {
        text += &format!(",\n    \"cluster_errors\": {errors}");
    }
    for (name, open) in [("migrating", &node.migrating), ("importing", &node.importing)] {
        if !open.is_empty() {
            let pairs: Vec<String> = open.iter().map(|(slot, id)| format!("\"{slot}\": \"{id}\"")).collect();
            text += &format!(",\n    \"{name}\": {{{}}}", pairs.join(","));
        }
    }
    text + "\n  }"
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::cluster::Slot;

    fn slots(ranges: &[(u64, u64)]) -> SlotSet {
        ranges.iter().flat_map(|&(first, last)| (first..=last).map(|slot| Slot::new(slot).unwrap())).collect()
    }

    fn node() -> Node {
        let mut node = Node::new("h".into(), 7000);
        node.id = "aa".into();
        node.flags = vec!["master".into()];
        node.slots = slots(&[(0, 2), (5, 5)]);
        node
    }

    #[test]
    fn descriptions() {
        let mut node = node();
        assert_eq!(description(&node, 0), "M: aa h:7000\n   slots:[0-2],[5] (4 slots) master");
        node.replicas = 1;
        let expected = "    M: aa h:7000\n       slots:[0-2],[5] (4 slots) master\n       1 additional replica(s)";
        assert_eq!(description(&node, 4), expected);
        node.primary = Some("bb".into());
        node.flags = vec!["slave".into()];
        node.slots = SlotSet::EMPTY;
        assert_eq!(description(&node, 0), "S: aa h:7000\n   slots: (0 slots) slave\n   replicates bb");
        node.is_dirty = true;
        assert_eq!(description(&node, 0), "S: aa h:7000\n   replicates bb");
    }

    #[test]
    fn json_of_a_node() {
        let mut node = node();
        node.epoch = 3;
        let plain = "  {\n    \"name\": \"aa\",\n    \"host\": \"h\",\n    \"port\": 7000,\n    \"replicate\": null,\n    \
                     \"slots\": [[0,2],[5]],\n    \"slots_count\": 4,\n    \"flags\": \"master\",\n    \
                     \"current_epoch\": 3\n  }";
        assert_eq!(json(&node, 0), plain);
        node.migrating = vec![(1, "bb".into()), (2, "cc".into())];
        assert!(json(&node, 2).ends_with(
            "\"current_epoch\": 3,\n    \"cluster_errors\": 2,\n    \"migrating\": {\"1\": \"bb\",\"2\": \"cc\"}\n  }"
        ));
    }
}
