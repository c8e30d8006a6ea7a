//! Failovers between Penstock and its peers, after a crash and on demand.

#![allow(clippy::unwrap_used)]

use penstock_tests::nodes::{Client, Make, Node, TIMEOUT_MS, join, node, node_with, replicate, settle};

/// Three primaries, two of which are Penstock, and a replica of the first one.
fn cluster(primary: Make, replica: Make, others: [Make; 2]) -> [Node; 4] {
    let nodes = [node(primary), node(others[0]), node(others[1]), node(replica)];
    join(&[&nodes[0], &nodes[1], &nodes[2]]);
    nodes[3].meet(&nodes[1]);
    settle(&nodes.each_ref());
    replicate(&nodes[3], &nodes[0]);
    settle(&nodes.each_ref());
    nodes
}

fn write_keys(client: &mut Client, round: u64) {
    for key in 0..200 {
        assert_eq!(client.run(&format!("SET key:{key} {round}:{key}")).text(), b"OK");
    }
}

fn check_keys(client: &mut Client, round: u64) {
    for key in 0..200 {
        let reply = client.run(&format!("GET key:{key}"));
        assert_eq!(reply.text(), format!("{round}:{key}").as_bytes(), "{}", String::from_utf8_lossy(reply.text()));
    }
}

/// Waits until the replica has acknowledged everything.
fn wait_for_replica(primary: &Node) {
    let mut conn = primary.server.connect();
    conn.cmd("SET {probe}x 1").unwrap();
    primary.wait_until("the replica has everything", |primary| {
        let info = primary.text("INFO replication");
        let field = |name: &str| {
            info.split(name).nth(1).and_then(|rest| rest.split([',', '\r', '\n']).next().map(str::to_owned))
        };
        field("master_repl_offset:").is_some() && field("offset=") == field("master_repl_offset:")
    });
}

fn survive_a_crash(primary: Make, replica: Make, others: [Make; 2]) {
    let mut nodes = cluster(primary, replica, others);
    let mut client = Client::new(&nodes[1]);
    write_keys(&mut client, 1);
    wait_for_replica(&nodes[0]);
    nodes[0].server.kill();
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    check_keys(&mut client, 1);
    write_keys(&mut client, 2);
    // The old primary comes back as a replica, and may lead again on demand.
    nodes[0].server.restart();
    nodes[0].wait_until("it follows", |node| node.own().is("slave"));
    nodes[0].wait_until("it has the data", |node| node.text("INFO replication").contains("master_link_status:up"));
    settle(&nodes.each_ref());
    nodes[0].ok("CLUSTER FAILOVER");
    nodes[0].wait_until("it leads again", |node| node.own().is("master"));
    nodes[3].wait_until("it follows again", |node| {
        node.own().is("slave") && node.text("INFO replication").contains("master_link_status:up")
    });
    settle(&nodes.each_ref());
    check_keys(&mut client, 2);
    write_keys(&mut client, 3);
    check_keys(&mut client, 3);
}

#[test]
fn penstock_is_elected_by_penstock() {
    survive_a_crash(Make::Penstock, Make::Penstock, [Make::Penstock; 2]);
}

#[test]
fn penstock_is_elected_by_redis() {
    survive_a_crash(Make::Redis7, Make::Penstock, [Make::Redis7; 2]);
}

#[test]
fn redis_is_elected_by_penstock() {
    survive_a_crash(Make::Penstock, Make::Redis7, [Make::Penstock; 2]);
}

#[test]
fn newer_peers_and_penstock_elect_each_other() {
    for peer in Make::peers().into_iter().filter(|peer| *peer != Make::Redis7) {
        survive_a_crash(peer, Make::Penstock, [peer, Make::Penstock]);
        survive_a_crash(Make::Penstock, peer, [Make::Penstock, peer]);
    }
}

/// A long script doesn't keep a node from answering the bus. A node with workers that all stand still is replaced.
#[test]
fn a_node_that_hangs_is_replaced_and_one_with_a_long_script_is_not() {
    let debugging = ["--enable-debug-command", "yes", "--threads", "2"];
    let nodes = [node_with(Make::Penstock, &debugging), node(Make::Penstock), node(Make::Redis7), node(Make::Penstock)];
    join(&[&nodes[0], &nodes[1], &nodes[2]]);
    nodes[3].meet(&nodes[1]);
    settle(&nodes.each_ref());
    replicate(&nodes[3], &nodes[0]);
    settle(&nodes.each_ref());
    let seconds = 3 * TIMEOUT_MS / 1000;
    let mut conn = nodes[0].server.connect();
    let script = format!("local t = redis.call('time')[1]; while redis.call('time')[1] - t < {seconds} do end");
    conn.send(format!("EVAL \"{script}\" 0\r\n").as_bytes()).unwrap();
    conn.read().unwrap();
    assert!(nodes[3].own().is("slave") && nodes[0].own().is("master"));
    let log = nodes[1].server.log();
    assert!(!log.contains("possibly failing"), "{log}");
    conn.send(format!("DEBUG SLEEP {seconds}\r\n").as_bytes()).unwrap();
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    conn.read().unwrap();
    nodes[0].wait_until("it follows", |node| node.own().is("slave"));
    settle(&nodes.each_ref());
}

/// Three primaries of Penstock and a replica of the first one, which has data and then gets a new snapshot.
fn full_synchronization(primary: &[&str], replica: &[&str]) -> [Node; 4] {
    let with = |more: &[&str]| node_with(Make::Penstock, &[&["--enable-debug-command", "yes"], more].concat());
    let nodes = [with(primary), node(Make::Penstock), node(Make::Penstock), with(replica)];
    join(&[&nodes[0], &nodes[1], &nodes[2]]);
    nodes[3].meet(&nodes[1]);
    settle(&nodes.each_ref());
    replicate(&nodes[3], &nodes[0]);
    settle(&nodes.each_ref());
    write_keys(&mut Client::new(&nodes[1]), 1);
    wait_for_replica(&nodes[0]);
    nodes
}

/// Makes the replica need a new snapshot.
fn break_history(primary: &Node) {
    primary.ok("DEBUG CHANGE-REPL-ID");
    primary.reply("CLIENT KILL TYPE replica");
}

/// A snapshot replaces the data of a replica. Until it is loaded, the replica has a part of the data, and must not become a primary.
#[test]
fn a_replica_that_loads_is_not_elected_before_it_has_all_data() {
    let load = ["--repl-diskless-load", "flush-before-load"];
    let mut nodes = full_synchronization(&["--repl-diskless-sync", "no"], &load);
    nodes[3].ok("CONFIG SET key-load-delay 1000000");
    break_history(&nodes[0]);
    nodes[3].wait_until("it loads", |node| node.server.figure("loading") == 1);
    let port = nodes[3].server.port().to_string();
    let lists = |node: &Node| format!("{:?}", node.reply("CLUSTER SLOTS")).contains(&port);
    nodes[1].wait_until("it shows no replica without data", |node| !lists(node));
    nodes[0].server.kill();
    nodes[1].wait_until("the failure is known", |node| !node.is_ok());
    std::thread::sleep(std::time::Duration::from_millis(2 * TIMEOUT_MS));
    assert!(nodes[3].own().is("slave"));
    assert_eq!(nodes[3].server.figure("loading"), 1);
    nodes[3].ok("CONFIG SET key-load-delay 0");
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    check_keys(&mut Client::new(&nodes[1]), 1);
}

/// A replica with data stores a snapshot before it gives up its own data. These serve on if the primary fails meanwhile.
#[test]
fn a_replica_keeps_its_data_while_a_snapshot_arrives() {
    let mut nodes = full_synchronization(&[], &[]);
    nodes[0].ok("CONFIG SET rdb-key-save-delay 1000000");
    break_history(&nodes[0]);
    nodes[3].wait_until("a snapshot arrives", |node| node.server.figure("master_sync_in_progress") == 1);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(nodes[3].server.figure("loading"), 0);
    nodes[0].server.kill();
    nodes[3].wait_until("it is elected", |node| node.own().is("master"));
    check_keys(&mut Client::new(&nodes[1]), 1);
}

/// A failover sends blocked clients to the new primary. Readers in READONLY mode stay, and get entries that replication brings.
#[test]
fn blocked_clients_follow_a_failover() {
    let nodes = cluster(Make::Penstock, Make::Penstock, [Make::Penstock; 2]);
    let [mut writer, mut reader] = [nodes[0].server.connect(), nodes[0].server.connect()];
    let mut replica_reader = nodes[3].server.connect();
    writer.send(b"BLPOP {b}list 0\r\n").unwrap();
    for conn in [&mut reader, &mut replica_reader] {
        assert_eq!(conn.cmd("READONLY").unwrap().text(), b"OK");
        conn.send(b"XREAD BLOCK 0 STREAMS {b}stream 0-0\r\n").unwrap();
    }
    let blocked = |node: &Node, count: u64| {
        node.wait_until("its clients are blocked", |node| node.server.figure("blocked_clients") == count);
    };
    blocked(&nodes[0], 2);
    blocked(&nodes[3], 1);
    nodes[3].ok("CLUSTER FAILOVER");
    nodes[0].wait_until("it follows", |node| node.own().is("slave"));
    let moved = writer.read().unwrap();
    let port = nodes[3].server.port();
    assert_eq!(String::from_utf8_lossy(moved.text()), format!("MOVED 3300 127.0.0.1:{port}"));
    assert_eq!(writer.cmd("PING").unwrap().text(), b"PONG", "the connection stays open");
    nodes[0].wait_until_linked();
    blocked(&nodes[0], 1);
    blocked(&nodes[3], 1);
    let entry = Client::new(&nodes[1]).run("XADD {b}stream 5-1 field value");
    assert_eq!(entry.text(), b"5-1");
    for mut conn in [reader, replica_reader] {
        let read = format!("{:?}", conn.read().unwrap());
        assert!(read.contains("stream"), "{read}");
    }
}
