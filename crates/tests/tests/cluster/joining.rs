//! Nodes that meet: from either side, by a third one, and after they have been forgotten.

#![allow(clippy::unwrap_used)]

use penstock_tests::server::comes_true;

use penstock_tests::nodes::{Client, Make, SLOTS, join, node, node_with, replicate, settle};

/// Penstock and a peer in one cluster serve all slots, and agree on the map.
#[test]
fn a_cluster_of_penstock_and_each_peer_serves() {
    for peer in Make::peers() {
        let nodes = [node(Make::Penstock), node(peer), node(Make::Penstock)];
        let nodes: Vec<_> = nodes.iter().collect();
        join(&nodes);
        let mut client = Client::new(nodes[1]);
        for key in 0..300 {
            assert_eq!(client.run(&format!("SET key:{key} {key}")).text(), b"OK", "{peer:?}");
        }
        for key in 0..300 {
            assert_eq!(client.run(&format!("GET key:{key}")).text(), key.to_string().as_bytes(), "{peer:?}");
        }
        let keys: u64 = nodes.iter().map(|node| node.reply("DBSIZE").integer().unwrap() as u64).sum();
        assert_eq!(keys, 300, "{peer:?}");
    }
}

/// A node that meets one node of a cluster learns of the others by gossip, whoever begins.
#[test]
fn one_meeting_is_enough_from_either_side() {
    for peer in Make::peers() {
        for penstock_begins in [true, false] {
            let (first, second) = (node(peer), node(Make::Penstock));
            first.ok(&format!("CLUSTER ADDSLOTSRANGE 0 {}", SLOTS - 1));
            if penstock_begins {
                second.meet(&first);
            } else {
                first.meet(&second);
            }
            settle(&[&first, &second]);
            let third = node(Make::Penstock);
            third.meet(&second);
            settle(&[&first, &second, &third]);
        }
    }
}

/// A forgotten node isn't brought back by gossip.
#[test]
fn a_forgotten_node_stays_away() {
    let nodes = [node(Make::Penstock), node(Make::Redis7), node(Make::Penstock), node(Make::Penstock)];
    let [first, second, third, leaves] = &nodes;
    join(&[first, second, third]);
    leaves.meet(first);
    settle(&[first, second, third, leaves]);
    let id = leaves.id();
    // Redis 7.0 doesn't tell others that it has forgotten a node.
    for node in [first, second, third] {
        let reply = node.text(&format!("CLUSTER FORGET {id}"));
        assert!(reply == "OK" || reply == format!("ERR Unknown node {id}"), "{reply}");
    }
    leaves.ok("CLUSTER RESET HARD");
    assert_ne!(leaves.id(), id);
    let none_knows = || [first, second, third].iter().all(|node| !node.nodes().contains_key(&id));
    for _ in 0..20 {
        assert!(none_knows());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    settle(&[first, second, third]);
}

/// A replica gives up its data and its shard, and can join again.
#[test]
fn a_replica_with_data_is_reset() {
    let makes = Make::peers().into_iter().filter(|make| *make == Make::Valkey9).chain([Make::Penstock]);
    for (make, how) in makes.flat_map(|make| [(make, "SOFT"), (make, "HARD")]) {
        let [primary, replica] = [node(Make::Penstock), node(make)];
        primary.ok("CLUSTER ADDSLOTSRANGE 0 16383");
        replica.meet(&primary);
        settle(&[&primary, &replica]);
        replicate(&replica, &primary);
        for key in 0..100 {
            primary.ok(&format!("SET key:{key} value"));
        }
        replica.wait_until("it has the data", |node| node.reply("DBSIZE").integer() == Some(100));
        let id = replica.id();
        assert_eq!(replica.text("CLUSTER MYSHARDID"), primary.text("CLUSTER MYSHARDID"));
        replica.ok(&format!("CLUSTER RESET {how}"));
        assert_eq!(replica.reply("DBSIZE").integer(), Some(0), "{make:?} {how}");
        assert_eq!((replica.id() == id, replica.nodes().len()), (how == "SOFT", 1));
        assert!(replica.text("INFO replication").contains("role:master"));
        assert_ne!(replica.text("CLUSTER MYSHARDID"), primary.text("CLUSTER MYSHARDID"), "{make:?} {how}");
        primary.ok(&format!("CLUSTER FORGET {id}"));
        assert_eq!(primary.reply("DBSIZE").integer(), Some(100));
        // It joins again.
        replica.meet(&primary);
        settle(&[&primary, &replica]);
        replicate(&replica, &primary);
        replica.wait_until("it has the data again", |node| node.reply("DBSIZE").integer() == Some(100));
    }
}

/// Host names and names for people reach the other nodes, and clients get the announced addresses.
#[test]
fn announcements_reach_the_other_nodes() {
    let first = node_with(Make::Penstock, &["--cluster-announce-hostname", "one.example"]);
    // Redis 7.0 takes names only if it has one itself.
    let second = node_with(Make::Redis7, &["--cluster-announce-hostname", "redis.example"]);
    let third = node(Make::Penstock);
    join(&[&first, &second, &third]);
    for other in [&second, &third] {
        other.wait_until("it knows the name", |other| other.text("CLUSTER NODES").contains(",one.example "));
    }
    first.ok("CONFIG SET cluster-announce-hostname two.example");
    for other in [&second, &third] {
        other.wait_until("it knows the new name", |other| other.text("CLUSTER NODES").contains(",two.example "));
    }
    third.ok("CONFIG SET cluster-preferred-endpoint-type hostname");
    let moved = |key: &str| third.text(&format!("GET {key}"));
    let tells_names = || (0..100).any(|key| moved(&format!("k{key}")).contains(" two.example:"));
    assert!(comes_true(tells_names), "{}", moved("k1"));
}

/// Commands in transactions and scripts are answered, too, also those that change the cluster.
#[test]
fn the_bus_answers_in_transactions_and_scripts() {
    let node = node(Make::Penstock);
    node.ok(&format!("CLUSTER ADDSLOTSRANGE 0 {}", SLOTS - 1));
    node.wait_until("it serves", |node| node.is_ok());
    let id = node.id();
    let mut conn = node.server.connect();
    for command in ["MULTI", "CLUSTER MYID", "CLUSTER BUMPEPOCH"] {
        conn.cmd(command).unwrap();
    }
    let replies = conn.cmd("EXEC").unwrap();
    assert_eq!(replies.items()[0].text(), id.as_bytes());
    let bumped = String::from_utf8_lossy(replies.items()[1].text()).into_owned();
    assert!(bumped.starts_with("BUMPED ") || bumped.starts_with("STILL "), "{bumped}");
    assert_eq!(node.quoted("EVAL \"return redis.call('cluster', 'myid')\" 0").text(), id.as_bytes());
    // A batch goes on behind the answer, in its order.
    conn.send(b"SET a 1\r\nCLUSTER MYID\r\nINCR a\r\n").unwrap();
    let texts = [0; 3].map(|_| String::from_utf8_lossy(conn.read().unwrap().text()).into_owned());
    assert_eq!(texts, ["OK", &id, "2"]);
}

/// CLUSTER REPLICATE is answered, and its connection goes on. The replica serves reads to those who ask for them.
#[test]
fn a_node_answers_the_command_that_changes_its_role() {
    let nodes = [node(Make::Penstock), node(Make::Redis7), node(Make::Penstock)];
    join(&[&nodes[0], &nodes[1]]);
    nodes[2].meet(&nodes[0]);
    settle(&nodes.each_ref());
    let (id, own) = (nodes[1].id(), nodes[2].id());
    let mut conn = nodes[2].server.connect();
    conn.send(format!("CLUSTER REPLICATE {id}\r\nPING\r\n").as_bytes()).unwrap();
    assert_eq!(conn.read().unwrap().text(), b"OK");
    // The connection goes on.
    conn.read().unwrap();
    nodes[2].wait_until("it follows", |node| node.text("INFO replication").contains("master_link_status:up"));
    assert_eq!(nodes[2].id(), own);
    // A client that says READONLY reads there, others are sent to the primary.
    let key = (0..).map(|n| format!("k{n}")).find(|key| !nodes[1].reply(&format!("SET {key} v")).is_error()).unwrap();
    nodes[2].wait_until("the key is there", |node| node.reply("DBSIZE").integer() != Some(0));
    let mut conn = nodes[2].server.connect();
    assert!(conn.cmd(&format!("GET {key}")).unwrap().text().starts_with(b"MOVED "));
    assert_eq!(conn.cmd("READONLY").unwrap().text(), b"OK");
    assert_eq!(conn.cmd(&format!("GET {key}")).unwrap().text(), b"v");
    assert!(conn.cmd(&format!("SET {key} w")).unwrap().text().starts_with(b"MOVED "));
    assert!(nodes[2].text("REPLICAOF NO ONE").contains("not allowed in cluster mode"));
}
