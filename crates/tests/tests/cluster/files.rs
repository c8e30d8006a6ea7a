//! nodes.conf: restarts, the lock, damaged files, and files of other makes.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use penstock_tests::hanging_disk::HangingDisk;
use penstock_tests::nodes::{Client, Make, Node, TIMEOUT_MS, join, node, node_on, replicate, settle};
use penstock_tests::ports::free_port;
use penstock_tests::server::{Server, subject_program};

/// All nodes restart at once, and find their slots, their keys and each other again.
#[test]
fn a_cluster_restarts() {
    let mut nodes = [node(Make::Penstock), node(Make::Redis7), node(Make::Penstock)];
    join(&nodes.each_ref());
    let mut client = Client::new(&nodes[0]);
    for key in 0..100 {
        client.run(&format!("SET key:{key} {key}"));
    }
    let ids = nodes.each_ref().map(|node| node.id());
    for node in &mut nodes {
        assert_eq!(node.text("SAVE"), "OK");
        node.server.kill();
    }
    nodes.iter_mut().for_each(|node| node.server.restart());
    assert_eq!(nodes.each_ref().map(|node| node.id()), ids);
    settle(&nodes.each_ref());
    let mut client = Client::new(&nodes[2]);
    for key in 0..100 {
        assert_eq!(client.run(&format!("GET key:{key}")).text(), key.to_string().as_bytes());
    }
}

/// CONFIG REWRITE keeps the directives of a node, and not its primary: nodes.conf has that one.
#[test]
fn a_rewritten_configuration_names_no_primary() {
    let primary = node(Make::Penstock);
    primary.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    let file = std::env::temp_dir().join(format!("cluster-rewrite-{}.conf", std::process::id()));
    let mut replica = node_with_file(&file);
    replica.meet(&primary);
    settle(&[&primary, &replica]);
    replicate(&replica, &primary);
    replica.ok("CONFIG SET cluster-allow-reads-when-down yes");
    replica.ok("CONFIG SET cluster-announce-hostname name.example");
    replica.ok("CONFIG REWRITE");
    let text = std::fs::read_to_string(&file).unwrap();
    for line in
        ["cluster-enabled yes", "cluster-allow-reads-when-down yes", "cluster-announce-hostname \"name.example\""]
    {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("replicaof"), "{text}");
    replica.server.kill();
    replica.server.restart();
    assert!(replica.own().is("slave"));
    replica.wait_until_linked();
    settle(&[&primary, &replica]);
    assert!(replica.own().address.contains("name.example"));
    assert_eq!(replica.reply("CONFIG GET cluster-allow-reads-when-down").items()[1].text(), b"yes");
    let _ = std::fs::remove_file(&file);
}

/// Starts a node with a configuration file.
fn node_with_file(file: &std::path::Path) -> Node {
    let bus_port = free_port().unwrap();
    let text = format!("cluster-enabled yes\ncluster-port {bus_port}\ncluster-node-timeout {TIMEOUT_MS}\n");
    std::fs::write(file, text).unwrap();
    Node { server: Server::penstock(&[&file.to_string_lossy()]), make: Make::Penstock, bus_port }
}

/// Returns the output of a server that does not start.
fn refused(dir: &std::path::Path, file: &str) -> String {
    let mut command = Command::new(subject_program());
    command.args(["server", "--port", "0", "--unixsocket", "sock", "--cluster-enabled", "yes", "--cluster-port", "1"]);
    command.args(["--cluster-config-file", file, "--save", ""]).current_dir(dir);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// Two servers never share a file, and a file that is cut off is refused with the line.
#[test]
fn a_used_or_damaged_file_is_refused() {
    let running = node(Make::Penstock);
    let dir = running.server.dir();
    let output = refused(dir, "nodes.conf");
    assert!(output.contains("is already used by a different"), "{output}");
    let read = || std::fs::read_to_string(dir.join("nodes.conf")).unwrap();
    // The server locks its new file before it writes it.
    running.wait_until("its file is written", |_| read().contains("vars currentEpoch"));
    let text = read();
    for (damaged, reason) in
        [(&text[..text.len() - 10], "line 2"), (text.lines().next().unwrap(), "line 1"), ("garbage here\n", "line 1")]
    {
        std::fs::write(dir.join("damaged.conf"), damaged).unwrap();
        let output = refused(dir, "damaged.conf");
        assert!(output.contains("corrupted cluster config file") && output.contains(reason), "{reason}: {output}");
    }
}

/// Redis's node is replaced by Penstock on Redis's own file and data.
#[test]
fn penstock_goes_on_with_the_file_of_redis() {
    let mut first = node(Make::Redis7);
    let (second, third) = (node(Make::Penstock), node(Make::Redis7));
    join(&[&first, &second, &third]);
    let mut client = Client::new(&second);
    for key in 0..100 {
        client.run(&format!("SET key:{key} {key}"));
    }
    let id = first.id();
    assert_eq!(first.text("SAVE"), "OK");
    first.server.kill();
    first.server.change_program(subject_program());
    first.server.restart();
    first.make = Make::Penstock;
    assert_eq!(first.id(), id);
    settle(&[&first, &second, &third]);
    for key in 0..100 {
        assert_eq!(client.run(&format!("GET key:{key}")).text(), key.to_string().as_bytes());
    }
}

/// A node answers the bus while the disk of its file hangs. A change of its own waits for the disk.
#[test]
fn a_disk_that_hangs_delays_claims_and_no_pings() {
    let disk = HangingDisk::new();
    let nodes = [node_on(&disk), node(Make::Redis7), node(Make::Penstock)];
    join(&nodes.each_ref());
    let epoch = nodes[0].own().epoch;
    disk.hang("sync");
    let mut conn = nodes[0].server.connect();
    conn.send(b"CLUSTER BUMPEPOCH\r\n").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2 * TIMEOUT_MS));
    let id = nodes[0].id();
    for node in &nodes[1..] {
        let line = node.nodes().remove(&id).unwrap();
        assert!(line.is_connected && !line.is("fail") && !line.is("fail?"), "{line:?}");
        assert_eq!(line.epoch, epoch, "others see no epoch that isn't on disk");
    }
    disk.answer();
    assert!(String::from_utf8_lossy(conn.read().unwrap().text()).starts_with("BUMPED "));
    let bumped = nodes[0].own().epoch;
    assert!(bumped > epoch);
    nodes[1].wait_until("it sees the epoch", |node| node.nodes().remove(&id).unwrap().epoch == bumped);
    settle(&nodes.each_ref());
}
