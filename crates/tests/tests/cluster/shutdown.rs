//! The planned end of a primary: a replica takes over, and no acknowledged write is lost.

#![allow(clippy::unwrap_used)]

use std::thread;

use penstock_tests::conn::Conn;
use penstock_tests::nodes::{Client, Make, Node, join, node, node_with, replicate, settle};

/// Three primaries, and a replica of the first one.
fn cluster(primary: Make, replica: Make) -> [Node; 4] {
    let nodes = [node_with(primary, &["--save", ""]), node(Make::Penstock), node(Make::Penstock), node(replica)];
    join(&[&nodes[0], &nodes[1], &nodes[2]]);
    nodes[3].meet(&nodes[1]);
    settle(&nodes.each_ref());
    replicate(&nodes[3], &nodes[0]);
    settle(&nodes.each_ref());
    nodes
}

/// Increments a key until the node ends, and returns the last acknowledged number.
fn count_until_the_end(mut conn: Conn) -> i64 {
    let mut last = 0;
    loop {
        let sent = conn.send("INCR b\r\n".repeat(20).as_bytes());
        for _ in 0..20 {
            let Ok(reply) = conn.read() else { return last };
            let Some(number) = reply.integer() else { return last };
            last = number;
        }
        if sent.is_err() {
            return last;
        }
    }
}

/// Ends the primary under load, and checks that the replica takes over with all acknowledged writes.
fn hand_over(primary: Make, replica: Make, end: impl Fn(&Node)) {
    let mut nodes = cluster(primary, replica);
    let conn = nodes[0].server.connect();
    let writer = thread::spawn(move || count_until_the_end(conn));
    nodes[0].wait_until("writes arrive", |node| node.text("GET b").parse().unwrap_or(0) > 200);
    // No automatic failover elects it.
    nodes[3].ok("CONFIG SET cluster-replica-no-failover yes");
    end(&nodes[0]);
    let acknowledged = writer.join().unwrap();
    nodes[0].server.wait_until_ended();
    nodes[3].wait_until("it takes over", |node| node.leads("b"));
    assert!(nodes[3].server.log().contains("Forced failover primary request accepted"), "{}", nodes[3].server.log());
    let value = nodes[3].text("GET b");
    let value: i64 = value.parse().unwrap_or(-1);
    assert!(value >= acknowledged, "{value} after {acknowledged} acknowledged writes");
    nodes[3].ok("CONFIG SET cluster-replica-no-failover no");
    // The old primary comes back as a replica.
    nodes[0].server.restart();
    nodes[0].wait_until("it follows", |node| node.own().is("slave"));
    nodes[0].wait_until_linked();
    settle(&nodes.each_ref());
    assert_eq!(Client::new(&nodes[1]).run("INCR b").integer(), Some(value + 1));
}

/// Sends a command that gets no reply.
fn send(node: &Node, command: &str) {
    let mut conn = node.server.connect();
    conn.send(format!("{command}\r\n").as_bytes()).unwrap();
    let _ = conn.read();
}

#[test]
fn a_command_ends_a_primary_with_a_successor() {
    hand_over(Make::Penstock, Make::Penstock, |node| send(node, "SHUTDOWN NOSAVE FAILOVER"));
}

/// A replica connects right after its start, and must have told its name by then.
#[test]
fn a_replica_that_has_restarted_takes_over() {
    let mut nodes = cluster(Make::Penstock, Make::Penstock);
    nodes[3].server.kill();
    nodes[3].server.restart();
    nodes[3].wait_until_linked();
    settle(&nodes.each_ref());
    nodes[3].ok("CONFIG SET cluster-replica-no-failover yes");
    send(&nodes[0], "SHUTDOWN NOSAVE FAILOVER");
    nodes[0].server.wait_until_ended();
    assert!(nodes[0].server.log().contains("Perform auto failover to replica"), "{}", nodes[0].server.log());
    nodes[3].wait_until("it takes over", |node| node.own().is("master") && node.is_ok());
}

#[test]
fn a_signal_ends_a_primary_with_a_successor() {
    hand_over(Make::Penstock, Make::Penstock, |node| {
        node.ok("CONFIG SET shutdown-on-sigterm failover");
        node.signal("TERM");
    });
}

#[test]
fn a_save_at_the_end_loses_nothing() {
    hand_over(Make::Penstock, Make::Penstock, |node| send(node, "SHUTDOWN SAVE FAILOVER"));
}

#[test]
fn valkey_takes_over_at_the_end_of_penstock_and_the_other_way_round() {
    if Make::peers().contains(&Make::Valkey9) {
        hand_over(Make::Penstock, Make::Valkey9, |node| send(node, "SHUTDOWN NOSAVE FAILOVER"));
        hand_over(Make::Valkey9, Make::Penstock, |node| send(node, "SHUTDOWN NOSAVE FAILOVER"));
    }
}

/// A primary without a replica ends all the same, and its log says that nobody takes over. One with replicas of old versions, too.
#[test]
fn a_primary_without_a_successor_says_so() {
    for (replica, words) in [
        (None, "Unable to find a replica to perform the auto failover on shutdown"),
        (Some(Make::Redis7), "there are legacy replicas"),
    ] {
        let mut primary = node(Make::Penstock);
        primary.ok("CLUSTER ADDSLOTSRANGE 0 16383");
        let replica = replica.map(node);
        if let Some(replica) = &replica {
            replica.meet(&primary);
            settle(&[&primary, replica]);
            replicate(replica, &primary);
        }
        send(&primary, "SHUTDOWN NOSAVE FAILOVER");
        primary.server.wait_until_ended();
        assert!(primary.server.log().contains(words), "{}", primary.server.log());
    }
}

/// A signal doesn't end a primary with slots that is configured to end safely. The word `force` overrules it.
#[test]
fn a_safe_signal_keeps_a_primary_running() {
    let mut primary = node(Make::Penstock);
    primary.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    primary.ok("CONFIG SET shutdown-on-sigterm safe");
    primary.signal("TERM");
    primary.wait_until("it refuses", |node| node.server.log().contains("leaves its slots without a server"));
    primary.quoted("CONFIG SET shutdown-on-sigterm \"safe force\"");
    primary.signal("TERM");
    primary.server.wait_until_ended();
}
