//! Agreement of the nodes about the owners of slots.

use super::node::text_of;
use super::nodes_text::{self, NodeLine, parse_node_address};
use super::{Manager, Outcome};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

/// Pause between two looks at the nodes.
const SECOND: Duration = Duration::from_secs(1);

/// Number of looks before unreachable nodes are reported, for a small cluster.
const LOOKS_BEFORE_REPORT: usize = 20;

impl Manager<'_> {
    /// Returns true if all nodes agree about the owners of slots.
    pub(super) fn is_consistent(&mut self) -> bool {
        let mut first = None;
        self.nodes.len() <= 1
            || (0..self.nodes.len()).all(|node| match self.view_of(node).map(|lines| signature(&lines)) {
                Some(view) if !view.is_empty() => *first.get_or_insert_with(|| view.clone()) == view,
                _ => false,
            })
    }

    fn view_of(&mut self, node: usize) -> Option<Vec<NodeLine>> {
        let reply = self.request(node, &["CLUSTER", "NODES"]).ok()?;
        nodes_text::parse(&text_of(&reply))
    }

    /// Waits until the nodes agree. Unreachable nodes are reported now and then.
    pub(super) fn wait_for_join(&mut self) -> Outcome {
        self.say("Waiting for the cluster to join\n")?;
        let looks_max = LOOKS_BEFORE_REPORT + (self.nodes.len() as f32 * 0.15) as usize;
        let mut looks = 0;
        while !self.is_consistent() {
            self.say(".")?;
            self.output.flush()?;
            sleep(SECOND);
            looks += 1;
            if looks > looks_max {
                looks = 0;
                self.report_unreachable()?;
            }
        }
        self.say("\n")
    }

    /// Reports the nodes that others can't reach.
    fn report_unreachable(&mut self) -> Outcome {
        let mut unreachable: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for node in 0..self.nodes.len() {
            let place = self.nodes[node].place();
            for line in self.view_of(node).unwrap_or_default() {
                let is_handshaking = line.flags.iter().any(|flag| flag == "handshake");
                if !line.is_myself && (!line.is_connected || is_handshaking) {
                    unreachable.entry(line.address).or_default().push(place.clone());
                }
            }
        }
        if unreachable.is_empty() {
            return Ok(());
        }
        self.say("\n")?;
        self.error(format!("Warning: {} node(s) may be unreachable\n", unreachable.len()))?;
        for (address, from) in unreachable {
            let text = match parse_node_address(&address) {
                Some((host, _, bus_port @ 1..)) => {
                    format!(" - The port {bus_port} of node {host} may be unreachable from:\n")
                }
                _ => format!(" - Node {address} may be unreachable from:\n"),
            };
            self.error(text)?;
            for place in from {
                self.error(format!("   {place}\n"))?;
            }
            self.error(
                "Cluster bus ports must be reachable by every node.\nRemember that cluster bus ports are different \
                 from standard instance ports.\n",
            )?;
        }
        Ok(())
    }
}

/// Returns the owners of slots as a text that is equal for equal views.
fn signature(lines: &[NodeLine]) -> String {
    let owner = |line: &NodeLine| {
        let mut words = line.slot_words.clone();
        words.sort();
        (!words.is_empty()).then(|| format!("{}:{}", line.id, words.join(",")))
    };
    let mut owners: Vec<String> = lines.iter().filter_map(owner).collect();
    owners.sort();
    owners.join("|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_owners_have_equal_signatures() {
        let one = nodes_text::parse(
            "bb h:2@3 myself,master - 0 0 1 connected 9-16383 0-5\naa h:1@2 master - 0 1 2 connected 6-8 [7->-bb]\n",
        );
        let other = nodes_text::parse(
            "aa h:1@2 myself,master - 0 9 2 connected 6-8\nbb h:2@3 master - 0 0 1 connected 0-5 9-16383\n\
             cc h:3@4 slave aa 0 0 2 connected\n",
        );
        let expected = "aa:6-8|bb:0-5,9-16383";
        assert_eq!([one.unwrap(), other.unwrap()].map(|lines| signature(&lines)), [expected; 2]);
    }
}
