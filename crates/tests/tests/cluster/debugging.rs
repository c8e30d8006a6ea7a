//! DEBUG's faults of the bus, and changes of a node's own address.

#![allow(clippy::unwrap_used)]

use penstock_tests::ports::free_port;

use penstock_tests::nodes::{Make, join, node, node_with, settle};

const DEBUGGING: [&str; 2] = ["--enable-debug-command", "yes"];

#[test]
fn links_are_closed_and_messages_dropped() {
    let nodes = [node_with(Make::Penstock, &DEBUGGING), node(Make::Penstock), node(Make::Penstock)];
    join(&nodes.each_ref());
    let (first, id) = (&nodes[0], nodes[1].id());
    let is_connected = |id: &str| first.nodes()[id].is_connected;
    assert_eq!(first.text("DEBUG CLUSTERLINK KILL ALL nobody"), "ERR Unknown node nobody");
    first.ok("DEBUG DISABLE-CLUSTER-RECONNECTION 1");
    first.ok(&format!("DEBUG CLUSTERLINK KILL TO {id}"));
    assert!(!is_connected(&id) && is_connected(&nodes[2].id()));
    first.ok("DEBUG DISABLE-CLUSTER-RECONNECTION 0");
    first.wait_until("it connects again", |_| is_connected(&id));
    // A node that takes no PONG suspects the others.
    first.ok("DEBUG DROP-CLUSTER-PACKET-FILTER -2");
    first.wait_until("it suspects another", |node| node.nodes()[&id].is("fail?"));
    first.ok("DEBUG DROP-CLUSTER-PACKET-FILTER -1");
    settle(&nodes.each_ref());
    let bytes = |name: &str| first.info(name).parse::<u64>().unwrap();
    assert!(bytes("cluster_stats_bytes_sent") > 2256 && bytes("cluster_stats_bytes_received") > 2256);
    let sent = bytes("cluster_stats_messages_sent");
    first.ok("CONFIG RESETSTAT");
    assert!(bytes("cluster_stats_messages_sent") < sent);
}

#[test]
fn a_new_port_for_clients_is_announced_and_the_bus_stays() {
    let nodes = [node(Make::Penstock), node(Make::Redis7), node(Make::Penstock)];
    join(&nodes.each_ref());
    let (port, id) = (free_port().unwrap(), nodes[0].id());
    nodes[0].ok(&format!("CONFIG SET port {port}"));
    let address = format!("127.0.0.1:{port}@{}", nodes[0].bus_port);
    for other in &nodes[1..] {
        other.wait_until("it knows the new port", |node| node.nodes()[&id].address == address);
    }
}
