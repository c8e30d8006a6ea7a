//! Partitions, stopped processes and bad disks: the nodes that are elected, the nodes that stop serving, and the reasons that
//! they give.

#![allow(clippy::unwrap_used)]

use std::thread::sleep;
use std::time::Duration;

use penstock_tests::bus_proxy::BusNetwork;
use penstock_tests::hanging_disk::HangingDisk;
use penstock_tests::nodes::{
    Client, Make, Node, TIMEOUT_MS, join, node, node_on_with, node_with, node_with_small_files, replicate, settle,
};

/// A key in the slots of the first of three primaries.
const KEY: &str = "b";

/// Makes a cluster of these nodes: three primaries, and a replica of the first one.
fn assemble(nodes: &[Node; 4]) {
    join(&[&nodes[0], &nodes[1], &nodes[2]]);
    nodes[3].meet(&nodes[1]);
    settle(&nodes.each_ref());
    replicate(&nodes[3], &nodes[0]);
    settle(&nodes.each_ref());
}

/// Writes a key, and waits until a replica has it.
fn write_safely(primary: &Node, value: &str) {
    let mut conn = primary.server.connect();
    assert_eq!(conn.cmd(&format!("SET {KEY} {value}")).unwrap().text(), b"OK");
    assert_eq!(conn.cmd("WAIT 1 20000").unwrap().integer(), Some(1));
}

fn value(client: &mut Client) -> String {
    String::from_utf8_lossy(client.run(&format!("GET {KEY}")).text()).into_owned()
}

/// Checks that the old primary follows its successor, and that the data is the successor's.
fn check_succession(nodes: &[Node; 4], last: &str) {
    nodes[0].wait_until("it follows its successor", |node| node.own().is("slave"));
    nodes[0].wait_until_linked();
    settle(&nodes.each_ref());
    assert_eq!(value(&mut Client::new(&nodes[2])), last);
    let logs = || format!("{}\n{}", nodes[0].server.log(), nodes[3].server.log());
    assert!(nodes[3].own().is("master"), "the successor leads no more:\n{}", logs());
}

/// A primary that is cut off stops serving, and its replica replaces it.
fn survive_isolation(primary: Make, replica: Make, others: [Make; 2]) {
    let net = BusNetwork::new();
    let nodes = [net.node(primary), net.node(others[0]), net.node(others[1]), net.node(replica)];
    assemble(&nodes);
    write_safely(&nodes[0], "before");
    net.cut(&[&nodes[0]], &[&nodes[1], &nodes[2], &nodes[3]]);
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    nodes[0].wait_until("it stops serving", |node| !node.is_ok());
    let refused = nodes[0].text(&format!("SET {KEY} lost"));
    assert!(refused.starts_with("CLUSTERDOWN"), "{refused}");
    if primary == Make::Penstock {
        let reason = nodes[0].info("cluster_state_reason");
        assert!(reason.contains("of the primaries with slots are reachable"), "{reason}");
        assert!(nodes[0].server.log().contains(&reason));
    }
    let mut client = Client::new(&nodes[1]);
    assert_eq!(value(&mut client), "before");
    assert_eq!(client.run(&format!("SET {KEY} after")).text(), b"OK");
    net.mend();
    check_succession(&nodes, "after");
}

#[test]
fn a_primary_that_is_cut_off_is_replaced() {
    survive_isolation(Make::Penstock, Make::Penstock, [Make::Penstock, Make::Redis7]);
}

#[test]
fn a_peer_that_is_cut_off_is_replaced_by_penstock() {
    let peer = *Make::peers().iter().find(|peer| **peer != Make::Redis8).unwrap();
    survive_isolation(peer, Make::Penstock, [Make::Penstock, peer]);
}

#[test]
fn a_primary_that_is_cut_off_is_replaced_by_valkey() {
    if Make::peers().contains(&Make::Valkey9) {
        survive_isolation(Make::Penstock, Make::Valkey9, [Make::Penstock, Make::Valkey9]);
    }
}

/// A primary with messages that reach nobody is replaced, although it hears all others. Its successor tells it.
#[test]
fn a_primary_that_nobody_hears_is_replaced() {
    let net = BusNetwork::new();
    let nodes = [net.node(Make::Penstock), net.node(Make::Penstock), net.node(Make::Redis7), net.node(Make::Penstock)];
    assemble(&nodes);
    write_safely(&nodes[0], "before");
    nodes[1..].iter().for_each(|other| net.cut_one_way(&nodes[0], other));
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    // The way to the old primary is open.
    nodes[0].wait_until("it knows of its successor", |node| node.own().is("slave"));
    net.mend();
    check_succession(&nodes, "before");
}

/// A primary that hears nobody stops serving. Nobody replaces it, since the others hear it.
#[test]
fn a_primary_that_hears_nobody_stops_serving() {
    let net = BusNetwork::new();
    let nodes = [net.node(Make::Penstock), net.node(Make::Penstock), net.node(Make::Redis7), net.node(Make::Penstock)];
    assemble(&nodes);
    write_safely(&nodes[0], "before");
    nodes[1..].iter().for_each(|other| net.cut_one_way(other, &nodes[0]));
    nodes[0].wait_until("it stops serving", |node| !node.is_ok());
    assert!(nodes[0].text(&format!("SET {KEY} x")).starts_with("CLUSTERDOWN"));
    net.mend();
    settle(&nodes.each_ref());
    let mut client = Client::new(&nodes[2]);
    assert_eq!(client.run(&format!("SET {KEY} after")).text(), b"OK");
    assert_eq!(value(&mut client), "after");
    let primaries = nodes.iter().filter(|node| node.own().is("master") && !node.own().slots.is_empty()).count();
    assert_eq!(primaries, 3);
}

/// A slow network causes no failover while round trips take less than the timeout.
#[test]
fn a_slow_network_is_no_failure() {
    let net = BusNetwork::new();
    let nodes = [net.node(Make::Penstock), net.node(Make::Penstock), net.node(Make::Redis7), net.node(Make::Penstock)];
    assemble(&nodes);
    net.delay_ms(200);
    sleep(Duration::from_millis(3 * TIMEOUT_MS));
    assert!(nodes.iter().all(Node::is_ok));
    assert!(nodes[0].own().is("master") && nodes[3].own().is("slave"));
    for node in &nodes {
        assert!(!node.server.log().contains("is failing"), "{}", node.server.log());
    }
}

/// Two cut links leave each primary with a majority, so that nobody is replaced.
#[test]
fn one_cut_between_two_primaries_is_no_failure() {
    let net = BusNetwork::new();
    let nodes = [net.node(Make::Penstock), net.node(Make::Penstock), net.node(Make::Redis7), net.node(Make::Penstock)];
    assemble(&nodes);
    net.cut(&[&nodes[0]], &[&nodes[1]]);
    sleep(Duration::from_millis(3 * TIMEOUT_MS));
    assert!(nodes[0].own().is("master") && nodes[3].own().is("slave"));
    assert_eq!(nodes[0].text(&format!("SET {KEY} x")), "OK");
    net.mend();
    settle(&nodes.each_ref());
}

/// A replica without a majority of the primaries says so, and is elected when the majority is back.
#[test]
fn a_replica_without_a_majority_says_so() {
    let net = BusNetwork::new();
    let nodes = [net.node(Make::Penstock), net.node(Make::Penstock), net.node(Make::Redis7), net.node(Make::Penstock)];
    assemble(&nodes);
    write_safely(&nodes[0], "before");
    // Votes are lost on their way: the replica learns of the failure, and asks nobody with success.
    nodes[1..3].iter().for_each(|voter| net.cut_one_way(&nodes[3], voter));
    net.cut(&[&nodes[0]], &[&nodes[1], &nodes[2], &nodes[3]]);
    nodes[3].wait_until("its election expires", |node| node.info("cluster_failover_obstacle").contains("of 2 votes"));
    let log = nodes[3].server.log();
    assert!(log.contains("Failover attempt expired with 0 of 2 votes"), "{log}");
    assert!(nodes[3].own().is("slave"));
    nodes[1..3].iter().for_each(|voter| net.mend_one_way(&nodes[3], voter));
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    assert_eq!(nodes[3].info("cluster_failover_obstacle"), "");
    // The voters have not heard from the winner for long. While they suspect it, they would elect its old primary once that one is back.
    let winner = nodes[3].id();
    for voter in &nodes[1..3] {
        voter.wait_until("it hears from the winner", |node| {
            let nodes = node.nodes();
            nodes[&winner].is("master") && !["fail", "fail?"].iter().any(|flag| nodes[&winner].is(flag))
        });
    }
    net.mend();
    check_succession(&nodes, "before");
}

/// A stopped process is replaced. It acknowledges no write when it continues.
#[test]
fn a_stopped_primary_is_replaced_and_acknowledges_nothing() {
    let peers = Make::peers();
    let other = if peers.contains(&Make::Valkey9) { Make::Valkey9 } else { Make::Redis7 };
    let nodes = [node(Make::Penstock), node(Make::Penstock), node(other), node(Make::Penstock)];
    assemble(&nodes);
    write_safely(&nodes[0], "before");
    nodes[0].signal("STOP");
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    let mut client = Client::new(&nodes[1]);
    assert_eq!(client.run(&format!("SET {KEY} after")).text(), b"OK");
    // The command is there when the process continues.
    let mut conn = penstock_tests::conn::Conn::open(nodes[0].server.port()).unwrap();
    conn.send(format!("SET {KEY} lost\r\n").as_bytes()).unwrap();
    nodes[0].signal("CONT");
    let reply = conn.read().unwrap();
    assert!(reply.is_error(), "{reply:?}");
    check_succession(&nodes, "after");
}

/// A replica with a hanging disk asks for no votes, says why it waits, and is elected when the disk answers.
#[test]
fn a_hanging_disk_delays_an_election() {
    let disk = HangingDisk::new();
    let mut nodes = [
        node(Make::Penstock),
        node(Make::Penstock),
        node(Make::Redis7),
        node_on_with(&disk, &["--cluster-replica-validity-factor", "0"]),
    ];
    assemble(&nodes);
    write_safely(&nodes[0], "before");
    disk.hang("sync");
    nodes[0].server.kill();
    nodes[1].wait_until("the failure is known", |node| !node.is_ok());
    sleep(Duration::from_millis(2 * TIMEOUT_MS));
    assert!(nodes[3].own().is("slave"));
    assert_eq!(nodes[3].info("cluster_failover_obstacle"), "waiting for the disk of nodes.conf");
    assert_eq!(nodes[1].info("cluster_stats_messages_auth-req_received"), "", "nobody was asked for a vote");
    let id = nodes[3].id();
    assert!(!nodes[1].nodes()[&id].is("fail"), "the bus answers");
    disk.answer();
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    nodes[0].server.restart();
    check_succession(&nodes, "before");
}

/// A replica on a full disk asks for no votes, says why, and is elected when the disk has room.
#[test]
fn a_full_disk_forbids_an_election() {
    let best_effort = ["--cluster-config-save-behavior", "best-effort", "--cluster-replica-validity-factor", "0"];
    // nodes.conf of two nodes fits into 512 bytes, and that of four nodes doesn't.
    let replica = node_with_small_files(&[&best_effort[..], &["--logfile", "/dev/null"]].concat(), 1);
    let mut nodes = [node(Make::Penstock), node(Make::Penstock), node(Make::Redis7), replica];
    assemble(&nodes);
    write_safely(&nodes[0], "before");
    nodes[0].server.kill();
    nodes[3].wait_until("it says why it is not elected", |node| {
        node.info("cluster_failover_obstacle") == "nodes.conf can't be written"
    });
    sleep(Duration::from_millis(TIMEOUT_MS));
    assert!(nodes[3].own().is("slave"));
    nodes[3].server.lift_file_limit();
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    nodes[0].server.restart();
    check_succession(&nodes, "before");
}

/// A pipeline token answers exactly on the promoted node, and `durability-replicas` holds replies across a failover.
#[test]
fn tokens_and_durability_survive_a_failover() {
    let durable = ["--durability-replicas", "1", "--durability-timeout", "60000"];
    let mut nodes = [
        node_with(Make::Penstock, &durable),
        node(Make::Penstock),
        node(Make::Redis7),
        node_with(Make::Penstock, &durable),
    ];
    assemble(&nodes);
    let mut conn = nodes[0].server.connect();
    assert_eq!(conn.cmd("PIPELINE START loader").unwrap().text(), b"OK");
    let increments = 500;
    conn.send(format!("INCR {KEY}\r\n").repeat(increments).as_bytes()).unwrap();
    let acknowledged = increments / 2;
    for number in 1..=acknowledged {
        assert_eq!(conn.read().unwrap().integer(), Some(number as i64));
    }
    nodes[0].server.kill();
    // Replies that were on their way count, too.
    let mut known = acknowledged as i64;
    while let Ok(reply) = conn.read() {
        known = reply.integer().unwrap();
    }
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    nodes[3].wait_until("it serves", Node::is_ok);
    let mut conn = nodes[3].server.connect();
    let told = conn.cmd("PIPELINE RESUME loader").unwrap();
    let executed = told.items()[1].integer().unwrap();
    assert!(executed >= known, "{executed} of {known} acknowledged: {told:?}");
    // The writes behind the last counted one follow. Their replies wait for the old primary, which comes back as a replica.
    let left = increments as i64 - executed;
    conn.send(format!("INCR {KEY}\r\n").repeat(left as usize + 1).as_bytes()).unwrap();
    sleep(Duration::from_millis(300));
    nodes[0].server.restart();
    for number in executed + 1..=increments as i64 + 1 {
        let reply = conn.read().unwrap();
        assert_eq!(reply.integer(), Some(number), "{reply:?}");
    }
    check_succession(&nodes, &(increments + 1).to_string());
}
