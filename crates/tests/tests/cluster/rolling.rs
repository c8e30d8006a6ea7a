//! Clusters that change under load: nodes that are replaced by another program on their own files, and slots that the peers'
//! tools move.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use penstock_tests::cluster_load::{Load, Written};
use penstock_tests::nodes::{Client, Make, Node, join, node, replicate, settle};

/// The number of slots that a tool moves. It is more than a hundredth of a primary's share, so that a rebalance moves slots back.
const MOVED: &str = "60";

/// Three primaries and a replica of each.
fn cluster(make: Make) -> Vec<Node> {
    let nodes: Vec<Node> = (0..6).map(|_| node(make)).collect();
    join(&nodes[..3].iter().collect::<Vec<_>>());
    nodes[3..].iter().for_each(|node| node.meet(&nodes[0]));
    settle(&nodes.iter().collect::<Vec<_>>());
    (0..3).for_each(|at| replicate(&nodes[at + 3], &nodes[at]));
    settle(&nodes.iter().collect::<Vec<_>>());
    nodes
}

/// Replaces a replica's program: it saves its data, dies, and comes back as another program on its own files.
fn replace(node: &mut Node, make: Make) {
    let id = node.id();
    assert_eq!(node.text("SAVE"), "OK");
    node.server.kill();
    node.server.change_program(&make.program());
    node.server.restart();
    node.make = make;
    node.wait_until("it has its name again", |node| node.text("CLUSTER MYID") == id);
    node.wait_until_linked();
}

/// Replaces all nodes, replicas first. A planned failover makes each primary a replica.
fn replace_all(nodes: &mut [Node], make: Make) {
    for _ in 0..2 {
        let is_replica = |node: &&mut Node| node.make != make && node.own().is("slave");
        nodes.iter_mut().filter(is_replica).for_each(|node| replace(node, make));
        settle(&nodes.iter().collect::<Vec<_>>());
        for node in nodes.iter().filter(|node| node.make == make && node.own().is("slave")) {
            let primary = node.own().primary;
            let is_old = nodes.iter().any(|other| other.make != make && other.id() == primary);
            if is_old {
                // A node that has just started does not vote for two seconds.
                sleep(Duration::from_millis(2500));
                node.ok("CLUSTER FAILOVER");
                node.wait_until("it leads", |node| node.own().is("master"));
            }
        }
        for node in nodes.iter().filter(|node| node.own().is("slave")) {
            node.wait_until_linked();
        }
        settle(&nodes.iter().collect::<Vec<_>>());
    }
    assert!(nodes.iter().all(|node| node.make == make));
}

fn check(written: &Written, nodes: &[Node]) {
    assert!(written.rounds > 10, "{} rounds", written.rounds);
    let mut client = Client::new(&nodes[0]);
    written.check(|words| client.run(words));
}

/// All nodes of a peer's cluster are replaced by Penstock under load. `returns`: and back.
fn replace_under_load(peer: Make, returns: bool) {
    let mut nodes = cluster(peer);
    let load = Load::start(&nodes, true);
    sleep(Duration::from_millis(500));
    replace_all(&mut nodes, Make::Penstock);
    if returns {
        replace_all(&mut nodes, peer);
    }
    sleep(Duration::from_millis(500));
    let written = load.stop();
    check(&written, &nodes);
    assert!(written.values.iter().all(|[_, confirmed]| *confirmed > 0), "WAIT confirms nothing");
    // All nodes restart at once.
    for node in &mut nodes {
        assert_eq!(node.text("SAVE"), "OK");
        node.server.kill();
    }
    nodes.iter_mut().for_each(|node| node.server.restart());
    settle(&nodes.iter().collect::<Vec<_>>());
    check(&written, &nodes);
}

#[test]
fn penstock_replaces_a_cluster_node_by_node_under_load() {
    let peers = Make::peers();
    let peer = if peers.contains(&Make::Valkey9) { Make::Valkey9 } else { Make::Redis7 };
    replace_under_load(peer, false);
}

#[test]
#[ignore = "takes one to two minutes with all peers: cargo test -p penstock-tests --test cluster -- --ignored replaced_and_back"]
fn each_peers_cluster_is_replaced_and_back_under_load() {
    Make::peers().into_iter().for_each(|peer| replace_under_load(peer, true));
}

/// The tools of the peers that are installed.
fn tools() -> Vec<PathBuf> {
    let runs = |tool: &PathBuf| {
        Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    ["redis-cli", "valkey-cli"].map(PathBuf::from).into_iter().filter(runs).collect()
}

fn run_tool(tool: &Path, words: &[&str]) -> String {
    let output = Command::new(tool).arg("--cluster").args(words).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{} --cluster {words:?}: {text}", tool.display());
    text
}

/// The peers' tools add a node to a mixed cluster, and move slots while clients write.
#[test]
#[ignore = "takes one to two minutes with all peers: cargo test -p penstock-tests --test cluster -- --ignored peers_tools"]
fn the_peers_tools_move_slots_of_a_mixed_cluster_under_load() {
    for tool in tools() {
        let peer = if tool.ends_with("valkey-cli") { Make::Valkey9 } else { Make::Redis7 };
        if !Make::peers().contains(&peer) {
            continue;
        }
        let mut nodes = vec![node(Make::Penstock), node(peer), node(Make::Penstock)];
        join(&nodes.iter().collect::<Vec<_>>());
        let load = Load::start(&nodes, false);
        let at = |node: &Node| format!("127.0.0.1:{}", node.server.port());
        let entry = at(&nodes[0]);
        let reshard = |from: &Node, to: &Node| {
            let (from, to) = (from.id(), to.id());
            let words = ["--cluster-from", &from, "--cluster-to", &to, "--cluster-slots", MOVED, "--cluster-yes"];
            run_tool(&tool, &[&["reshard", &entry], &words[..]].concat());
        };
        // From Penstock to the peer, and back by the tool's own choice.
        reshard(&nodes[0], &nodes[1]);
        settle(&nodes.iter().collect::<Vec<_>>());
        run_tool(&tool, &["rebalance", &entry, "--cluster-threshold", "1"]);
        settle(&nodes.iter().collect::<Vec<_>>());
        for make in [Make::Penstock, peer] {
            let new = node(make);
            run_tool(&tool, &["add-node", &at(&new), &entry]);
            nodes.push(new);
            // The tool adds nodes only to a cluster that agrees.
            settle(&nodes.iter().collect::<Vec<_>>());
        }
        reshard(&nodes[1], &nodes[3]);
        reshard(&nodes[2], &nodes[4]);
        settle(&nodes.iter().collect::<Vec<_>>());
        let said = run_tool(&tool, &["check", &entry]);
        assert!(said.contains("All 16384 slots covered"), "{said}");
        let written = load.stop();
        assert!(written.redirections > 0);
        check(&written, &nodes);
        // Without replicas, each acknowledged value is the last one.
        let mut client = Client::new(&nodes[0]);
        for (number, [acknowledged, _]) in written.values.iter().enumerate() {
            let found = client.run(&format!("GET {}", penstock_tests::cluster_load::key(number)));
            assert_eq!(
                found.text(),
                acknowledged.to_string().as_bytes(),
                "{}",
                penstock_tests::cluster_load::key(number)
            );
        }
    }
}
