//! Slots that move between nodes key by key.

#![allow(clippy::unwrap_used)]

use penstock_tests::nodes::{Client, Make, Node, join, node, replicate, settle};
use penstock_tests::server::{comes_true, subject_program};
use std::process::Stdio;

/// Moves a slot as redis-cli's reshard does.
pub fn move_slot(slot: u64, from: &Node, to: &Node, others: &[&Node]) {
    let (from_id, to_id) = (from.id(), to.id());
    to.ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {from_id}"));
    from.ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {to_id}"));
    loop {
        let keys = from.reply(&format!("CLUSTER GETKEYSINSLOT {slot} 10"));
        if keys.items().is_empty() {
            break;
        }
        let keys: Vec<String> =
            keys.items().iter().map(|key| String::from_utf8_lossy(key.text()).into_owned()).collect();
        let command = format!("MIGRATE 127.0.0.1 {} \"\" 0 5000 KEYS {}", to.server.port(), keys.join(" "));
        assert_eq!(from.quoted(&command).text(), b"OK", "{command}");
    }
    to.ok(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
    from.ok(&format!("CLUSTER SETSLOT {slot} NODE {to_id}"));
    others.iter().for_each(|other| other.ok(&format!("CLUSTER SETSLOT {slot} NODE {to_id}")));
}

#[test]
fn slots_move_to_each_peer_and_back() {
    for peer in Make::peers() {
        let nodes = [node(Make::Penstock), node(peer), node(Make::Penstock)];
        join(&nodes.each_ref());
        let slot = nodes[0].reply("CLUSTER KEYSLOT {a}").integer().unwrap() as u64;
        let owner = (slot * 3 / penstock_tests::nodes::SLOTS) as usize;
        let mut client = Client::new(&nodes[0]);
        for key in 0..50 {
            client.run(&format!("SET {{a}}{key} {key}"));
        }
        let mut at = owner;
        for step in 1..=3 {
            let next = (owner + step) % 3;
            move_slot(slot, &nodes[at], &nodes[next], &[&nodes[(owner + step + 1) % 3]]);
            settle(&nodes.each_ref());
            for key in 0..50 {
                assert_eq!(client.run(&format!("GET {{a}}{key}")).text(), key.to_string().as_bytes(), "{peer:?}");
            }
            assert_eq!(nodes[next].reply(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).integer().unwrap(), 50);
            at = next;
        }
    }
}

/// The replicas of a slot's source and target know that the slot is open, so that it stays so after a failover.
#[test]
fn replicas_learn_of_open_slots() {
    for peer in Make::peers().into_iter().filter(|peer| *peer == Make::Valkey9).chain([Make::Penstock]) {
        let nodes = [node(Make::Penstock), node(Make::Penstock), node(Make::Penstock), node(peer)];
        join(&[&nodes[0], &nodes[1], &nodes[2]]);
        nodes[3].meet(&nodes[0]);
        settle(&nodes.each_ref());
        replicate(&nodes[3], &nodes[0]);
        settle(&nodes.each_ref());
        // The primary must know that its replica takes such changes from the stream.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let target = nodes[1].id();
        nodes[1].ok(&format!("CLUSTER SETSLOT 7 IMPORTING {}", nodes[0].id()));
        nodes[0].ok(&format!("CLUSTER SETSLOT 7 MIGRATING {target}"));
        let marker = format!("[7->-{target}]");
        assert!(nodes[0].own().slots.contains(&marker));
        nodes[3].wait_until("it knows that the slot is open", |node| node.own().slots.contains(&marker));
        nodes[0].ok("CLUSTER SETSLOT 7 STABLE");
        nodes[3].wait_until("it knows that the slot is closed", |node| !node.own().slots.contains(&marker));
    }
}

/// The snapshot of a full synchronization has the open slots, between Penstock and Valkey both ways.
#[test]
fn a_full_synchronization_brings_open_slots() {
    let pairs = [[Make::Penstock, Make::Penstock], [Make::Penstock, Make::Valkey9], [Make::Valkey9, Make::Penstock]];
    let peers = Make::peers();
    let is_here = |make: &Make| *make == Make::Penstock || peers.contains(make);
    for [primary, replica] in pairs.into_iter().filter(|pair| pair.iter().all(is_here)) {
        let nodes = [node(primary), node(Make::Penstock), node(Make::Penstock), node(replica)];
        join(&[&nodes[0], &nodes[1], &nodes[2]]);
        nodes[3].meet(&nodes[0]);
        settle(&nodes.each_ref());
        let other = nodes[1].id();
        nodes[0].ok(&format!("CLUSTER SETSLOT 7 MIGRATING {other}"));
        nodes[0].ok(&format!("CLUSTER SETSLOT 9000 IMPORTING {other}"));
        replicate(&nodes[3], &nodes[0]);
        for marker in [format!("[7->-{other}]"), format!("[9000-<-{other}]")] {
            assert!(nodes[0].own().slots.contains(&marker), "{marker}");
            nodes[3].wait_until("it knows the open slots", |node| node.own().slots.contains(&marker));
        }
        // The new primary continues the migration.
        nodes[3].ok("CLUSTER FAILOVER");
        nodes[3].wait_until("it leads", |node| node.own().is("master"));
        let marker = format!("[7->-{other}]");
        assert!(nodes[3].own().slots.contains(&marker), "{:?} after {primary:?}", nodes[3].own().slots);
    }
}

/// SETSLOT takes effect once the replicas have it. A replica that does not answer in time makes it fail without any effect.
#[test]
fn a_change_of_a_slot_waits_for_the_replicas() {
    for peer in Make::peers().into_iter().filter(|peer| *peer == Make::Valkey9).chain([Make::Penstock]) {
        let debugging = ["--enable-debug-command", "yes"];
        let nodes = [
            node(Make::Penstock),
            node(Make::Penstock),
            node(Make::Penstock),
            penstock_tests::nodes::node_with(peer, &debugging),
        ];
        join(&[&nodes[0], &nodes[1], &nodes[2]]);
        nodes[3].meet(&nodes[0]);
        settle(&nodes.each_ref());
        replicate(&nodes[3], &nodes[0]);
        settle(&nodes.each_ref());
        std::thread::sleep(std::time::Duration::from_millis(300));
        let target = nodes[1].id();
        let marker = format!("[7->-{target}]");
        for _ in 0..10 {
            nodes[0].ok(&format!("CLUSTER SETSLOT 7 MIGRATING {target} TIMEOUT 30000"));
            assert!(nodes[3].own().slots.contains(&marker), "{peer:?}");
            nodes[0].ok("CLUSTER SETSLOT 7 STABLE TIMEOUT 30000");
        }
        let mut sleeping = nodes[3].server.connect();
        sleeping.send(b"DEBUG SLEEP 1.5\r\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let refused = nodes[0].text(&format!("CLUSTER SETSLOT 7 MIGRATING {target} TIMEOUT 200"));
        assert_eq!(refused, "NOREPLICAS Not enough good replicas to write.", "{peer:?}");
        assert!(!nodes[0].own().slots.contains(&marker));
        sleeping.read().unwrap();
        // A refused command reaches no replica.
        assert_eq!(nodes[0].text("CLUSTER SETSLOT 16000 MIGRATING x"), "ERR I'm not the owner of hash slot 16000");
        nodes[0].ok(&format!("CLUSTER SETSLOT 7 NODE {} TIMEOUT 30000", nodes[0].id()));
        nodes[0].ok("CLUSTER SETSLOT 7 STABLE TIMEOUT 30000");
        assert!(!nodes[3].own().slots.contains(&marker), "{peer:?}");
    }
}

/// A primary refuses a change of a slot if its replica needs longer than two seconds. The manager repeats the change.
#[test]
fn a_reshard_survives_a_slow_replica() {
    let slow = penstock_tests::nodes::node_with(Make::Penstock, &["--enable-debug-command", "yes"]);
    let nodes = [node(Make::Penstock), node(Make::Penstock), node(Make::Penstock), slow];
    join(&[&nodes[0], &nodes[1], &nodes[2]]);
    nodes[3].meet(&nodes[0]);
    settle(&nodes.each_ref());
    replicate(&nodes[3], &nodes[0]);
    settle(&nodes.each_ref());
    let address = format!("127.0.0.1:{}", nodes[0].server.port());
    let (from, to) = (nodes[0].id(), nodes[1].id());
    let mut manager = std::process::Command::new(subject_program());
    manager.args(["cli", "--cluster", "reshard", &address, "--cluster-from", &from, "--cluster-to", &to]);
    let manager = manager.args(["--cluster-slots", "60", "--cluster-yes"]).stdout(Stdio::piped()).spawn().unwrap();
    let slots = || nodes[1].own().slots;
    assert!(comes_true(|| slots().contains(&"0".to_owned()) || slots().iter().any(|range| range.starts_with("0-"))));
    nodes[3].ok("DEBUG SLEEP 3");
    let output = manager.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(slots().contains(&"0-59".to_owned()));
}

/// Tools that repair clusters change slots in transactions.
#[test]
fn a_transaction_changes_slots() {
    let node = node(Make::Penstock);
    node.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    let mut conn = node.server.connect();
    for line in ["MULTI", "CLUSTER DELSLOTS 7", "CLUSTER ADDSLOTS 7", "CLUSTER SETSLOT 7 STABLE", "CLUSTER BUMPEPOCH"] {
        conn.cmd(line).unwrap();
    }
    let replies = conn.cmd("EXEC").unwrap();
    let texts: Vec<_> =
        replies.items().iter().map(|reply| String::from_utf8_lossy(reply.text()).into_owned()).collect();
    assert_eq!(texts, ["OK", "OK", "OK", "BUMPED 1"]);
    node.wait_until("it serves", |node| node.is_ok());
    assert_eq!(node.own().slots, ["0-16383"]);
}

/// SELECT in a transaction decides in which database the keys of an open slot are looked up. A SELECT that fails selects nothing.
#[test]
fn a_transaction_in_an_open_slot_looks_into_the_selected_databases() {
    let with = || penstock_tests::nodes::node_with(Make::Penstock, &["--cluster-databases", "16"]);
    let nodes = [with(), with(), with()];
    join(&nodes.each_ref());
    let slot = nodes[0].reply("CLUSTER KEYSLOT {a}").integer().unwrap() as u64;
    let from = (slot * 3 / penstock_tests::nodes::SLOTS) as usize;
    let (from, to) = (&nodes[from], &nodes[(from + 1) % 3]);
    let mut conn = from.server.connect();
    for command in ["SET {a}0 x", "SELECT 1", "SET {a}1 x", "SELECT 0"] {
        assert_eq!(conn.cmd(command).unwrap().text(), b"OK");
    }
    to.ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", from.id()));
    from.ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id()));
    let mut run = |commands: &[&str]| {
        conn.cmd("MULTI").unwrap();
        commands.iter().for_each(|command| assert_eq!(conn.cmd(command).unwrap().text(), b"QUEUED", "{command}"));
        conn.cmd("EXEC").unwrap()
    };
    let reply = run(&["EXISTS {a}0", "SELECT 1", "EXISTS {a}1", "SELECT 0"]);
    assert_eq!(reply.items().len(), 4, "{}", String::from_utf8_lossy(reply.text()));
    let try_again = b"TRYAGAIN Multiple keys request during rehashing of slot";
    assert_eq!(run(&["EXISTS {a}0", "SELECT 1", "EXISTS {a}0"]).text(), try_again);
    let reply = run(&["SELECT 100", "EXISTS {a}0", "SELECT x", "EXISTS {a}0"]);
    assert_eq!(reply.items().len(), 4, "{}", String::from_utf8_lossy(reply.text()));
    // COPY to the database that is selected by then stays within it.
    let reply = run(&["SELECT 1", "COPY {a}1 {a}1 DB 1"]);
    assert_eq!(reply.items().len(), 2, "{}", String::from_utf8_lossy(reply.text()));
    for command in ["MULTI", "SELECT 1"] {
        assert!(!conn.cmd(command).unwrap().is_error());
    }
    assert_eq!(conn.cmd("COPY {a}1 {a}1 DB 0").unwrap().text(), try_again);
    assert!(conn.cmd("EXEC").unwrap().text().starts_with(b"EXECABORT"));
}
