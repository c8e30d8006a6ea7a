//! `penstock cli --cluster` compared with redis-cli: the same steps on two clusters of redis-server nodes.
//!
//! Ids and ports differ between the clusters, and so does the order in which a node lists the others. The comparison
//! therefore replaces ids and ports, and sorts the lines.

// Clippy allows unwrap in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used)]

use penstock_tests::server::{Server, subject_program};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, thread};

/// Longest duration of a step, in seconds.
const STEP_SECONDS_MAX: &str = "120";

/// The two programs.
#[derive(Clone, Copy, Debug)]
enum Tool {
    Redis,
    Penstock,
}

const TOOLS: [Tool; 2] = [Tool::Redis, Tool::Penstock];

/// The result of a run, with ids and ports replaced.
#[derive(Debug, PartialEq)]
struct Outcome {
    output: Vec<String>,
    errors: Vec<String>,
    status: Option<i32>,
}

/// Nodes, and the tool that works on them.
struct Cluster {
    tool: Tool,
    nodes: Vec<Server>,
}

/// Replaces a port by a name, except within a longer number. Ports of tests are greater than every slot.
fn without_port(text: &str, port: u16, name: &str) -> String {
    let port = port.to_string();
    let mut parts = text.split(&port);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        let is_part = out.ends_with(|c: char| c.is_ascii_digit()) || rest.starts_with(|c: char| c.is_ascii_digit());
        out.push_str(if is_part { &port } else { name });
        out.push_str(rest);
    }
    out
}

#[test]
fn a_port_within_a_longer_number_stays() {
    let text = "127.0.0.1:16401 slots:[0-1640] of 1164012, node-16401-x";
    let expected = "127.0.0.1:@0 slots:[0-1640] of 1164012, node-@0-x";
    assert_eq!(without_port(text, 16_401, "@0"), expected);
}

impl Cluster {
    /// Starts empty nodes.
    fn start(tool: Tool, count: usize) -> Self {
        let args = ["--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--enable-debug-command", "yes"];
        Self { tool, nodes: (0..count).map(|_| Server::oracle(&args)).collect() }
    }

    fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.nodes[node].port())
    }

    fn id(&self, node: usize) -> String {
        self.ask(node, "CLUSTER MYID")
    }

    fn ask(&self, node: usize, command: &str) -> String {
        let reply = self.nodes[node].connect().cmd(command).unwrap();
        String::from_utf8_lossy(reply.text()).into_owned()
    }

    /// Runs a line in which `@0` is the address of node 0, `%0` its port, and `#0` its id.
    fn run(&self, line: &str, input: &str) -> Outcome {
        let words = line.split_whitespace().map(|word| self.filled_in(word));
        let mut command = Command::new("timeout");
        command.args(["-k1", STEP_SECONDS_MAX]);
        match self.tool {
            Tool::Redis => command.arg("redis-cli"),
            Tool::Penstock => command.arg(subject_program()).arg("cli"),
        };
        // redis-cli colours its output for a terminal of this name, even in a pipe.
        command.args(words).env("TERM", "dumb");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        Outcome { output: self.lines(&output.stdout), errors: self.lines(&output.stderr), status: output.status.code() }
    }

    fn filled_in(&self, word: &str) -> String {
        (0..self.nodes.len()).fold(word.to_owned(), |word, node| {
            let word = word.replace(&format!("@{node}"), &self.address(node));
            let word = word.replace(&format!("%{node}"), &self.nodes[node].port().to_string());
            match word.contains(&format!("#{node}")) {
                true => word.replace(&format!("#{node}"), &self.id(node)),
                false => word,
            }
        })
    }

    fn lines(&self, bytes: &[u8]) -> Vec<String> {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        for node in 0..self.nodes.len() {
            let id = self.id(node);
            text = text.replace(&id, &format!("#{node}")).replace(&id[..8], &format!("#{node}"));
            text = without_port(&text, self.nodes[node].port(), &format!("@{node}"));
        }
        // The dots of a wait for the others: none, if they are quick.
        let is_wait = |line: &&str| line.bytes().all(|byte| byte == b'.');
        let mut lines: Vec<String> = text.lines().filter(|line| !is_wait(line)).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    /// Waits until all nodes see the same owners, and the state is good.
    fn settle(&self) {
        let view = |node: usize| {
            let mut lines: Vec<String> = self.ask(node, "CLUSTER NODES").lines().map(owners).collect();
            lines.sort();
            lines
        };
        let is_settled =
            |node: usize| self.ask(node, "CLUSTER INFO").contains("cluster_state:ok") && view(node) == view(0);
        self.wait_until(|| (0..self.nodes.len()).all(is_settled));
    }

    /// Waits until each of the first nodes knows all of them by their ids.
    ///
    /// Gossip spreads a new node: a member that has not heard of it refuses CLUSTER FORGET.
    fn spread(&self, members: usize) {
        let ids: Vec<String> = (0..members).map(|node| self.id(node)).collect();
        let knows_all = |node: usize| {
            let view = self.ask(node, "CLUSTER NODES");
            let known = view.lines().filter(|line| !line.contains("handshake"));
            let known: Vec<&str> = known.filter_map(|line| line.split(' ').next()).collect();
            ids.iter().all(|id| known.contains(&id.as_str()))
        };
        self.wait_until(|| (0..members).all(knows_all));
    }

    fn wait_until(&self, is_done: impl Fn() -> bool) {
        let end = std::time::Instant::now() + Duration::from_secs(60);
        while !is_done() {
            assert!(std::time::Instant::now() < end, "{}", self.ask(0, "CLUSTER NODES"));
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Returns the parts of a line of CLUSTER NODES that all nodes agree about.
fn owners(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    format!("{} {} {:?}", words[0], words[3], words.iter().skip(8).filter(|w| !w.starts_with('[')).collect::<Vec<_>>())
}

/// Runs a step with both tools, and compares their outcomes.
fn check(clusters: &[Cluster; 2], line: &str, input: &str) {
    let [expected, found] = clusters.each_ref().map(|cluster| cluster.run(line, input));
    assert!(
        expected == found,
        "{line}\n== redis-cli {:?}\n{}\n--\n{}\n== penstock cli {:?}\n{}\n--\n{}",
        expected.status,
        expected.output.join("\n"),
        expected.errors.join("\n"),
        found.status,
        found.output.join("\n"),
        found.errors.join("\n"),
    );
}

fn start(count: usize) -> [Cluster; 2] {
    TOOLS.map(|tool| Cluster::start(tool, count))
}

fn settle(clusters: &[Cluster; 2]) {
    clusters.iter().for_each(Cluster::settle);
}

/// Sends a command to a node of both clusters.
fn both(clusters: &[Cluster; 2], node: usize, command: &str) {
    for cluster in clusters {
        let reply = cluster.nodes[node].connect().cmd(&cluster.filled_in(command)).unwrap();
        assert!(!reply.is_error(), "{command}: {}", reply.escaped());
    }
}

const CREATE: &str = "--cluster create @0 @1 @2 --cluster-yes";

#[test]
fn a_cluster_is_created_filled_and_resharded() {
    let clusters = start(3);
    check(&clusters, "--cluster create @0 @1", "");
    check(&clusters, "--cluster create @0 @1 @2", "no\n");
    check(&clusters, CREATE, "");
    settle(&clusters);
    check(&clusters, CREATE, "");
    for key in 0..200 {
        for cluster in &clusters {
            let found = cluster.run(&format!("-c -h 127.0.0.1 -p {} set key:{key} {key}", cluster.nodes[0].port()), "");
            assert_eq!(found.output, ["OK"]);
        }
    }
    check(&clusters, "--cluster info @1", "");
    check(&clusters, "--cluster check @1", "");
    check(&clusters, "--cluster check 127.0.0.1 %2", "");
    check(&clusters, "--cluster call @0 DBSIZE", "");
    check(&clusters, "--cluster call @0 nonsense", "");
    check(&clusters, "--cluster call @0 CONFIG GET maxmemory --cluster-only-masters", "");
    check(&clusters, "--cluster call @0 ECHO x --cluster-only-replicas", "");
    check(&clusters, "--cluster set-timeout @0 99", "");
    check(&clusters, "--cluster set-timeout @0 6000", "");

    let reshard = "--cluster reshard @0 --cluster-from #0 --cluster-to #1 --cluster-slots 20";
    check(&clusters, reshard, "no\n");
    check(&clusters, &format!("{reshard} --cluster-yes"), "");
    settle(&clusters);
    check(&clusters, "--cluster reshard @2 --cluster-slots 3 --cluster-to nobody --cluster-from #1 --cluster-yes", "");
    check(&clusters, "--cluster reshard @2 --cluster-slots 3 --cluster-to #1 --cluster-from #1 --cluster-yes", "");
    check(&clusters, "--cluster reshard @2 --cluster-slots 3 --cluster-to #1 --cluster-from #1,#2 --cluster-yes", "");
    settle(&clusters);
    check(&clusters, "--cluster rebalance @0 --cluster-threshold 50", "");
    check(&clusters, "--cluster rebalance @0 --cluster-weight #0=3 #1=1 --cluster-simulate --verbose", "");
    check(&clusters, "--cluster rebalance @0 --cluster-weight #nobody=3", "");
    check(&clusters, "--cluster rebalance @0 --cluster-weight #0=1.01", "");
    check(&clusters, "--cluster rebalance @0 --cluster-weight #0=1.1 #1=1", "");
    settle(&clusters);
    check(&clusters, "--cluster info @1", "");
    // All keys are there.
    check(&clusters, "--cluster call @0 DBSIZE", "");
}

/// With replicas the pairs are random, because all nodes have one host.
#[test]
fn replicas_and_members_come_and_go() {
    let clusters = start(8);
    for cluster in &clusters {
        let created = cluster.run("--cluster create @0 @1 @2 @3 @4 @5 --cluster-replicas 1 --cluster-yes", "");
        assert_eq!(created.status, Some(0), "{created:?}");
        let has = |text: &str| created.output.iter().any(|line| line.contains(text));
        assert!(has(">>> Trying to optimize slaves allocation for anti-affinity"));
        assert!(has("[WARNING] Some slaves are in the same host as their master"));
        assert!(has("Adding replica 127.0.0.1:@4 to 127.0.0.1:@0"), "{created:?}");
        assert!(has("[OK] All 16384 slots covered."));
        let is_replica = |node: usize| cluster.ask(node, "INFO replication").contains("role:slave");
        assert_eq!((0..6).map(is_replica).collect::<Vec<_>>(), [false, false, false, true, true, true]);
        let views = |node: usize| cluster.ask(node, "CLUSTER NODES").matches(" slave ").count();
        cluster.wait_until(|| (0..6).all(|node| views(node) + usize::from(is_replica(node)) >= 3));
        both_functions(cluster);
    }
    check(&clusters, "--cluster add-node @6", "");
    let add = |line: &str, members: usize, words: &[&str]| {
        for cluster in &clusters {
            let added = cluster.run(line, "");
            let has = |text: &&&str| !added.output.iter().any(|line| line.contains(**text));
            assert_eq!(words.iter().find(has), None, "{:?} {added:#?}", cluster.tool);
            assert_eq!(added.status, Some(0));
            cluster.spread(members);
        }
    };
    add(
        "--cluster add-node @6 @0",
        7,
        &[
            ">>> Adding node 127.0.0.1:@6 to cluster 127.0.0.1:@0",
            ">>> Getting functions from cluster",
            ">>> Send FUNCTION LIST to 127.0.0.1:@6 to verify there is no functions in it",
            ">>> Send FUNCTION RESTORE to 127.0.0.1:@6",
            ">>> Send CLUSTER MEET to node 127.0.0.1:@6 to make it join the cluster.",
            "[OK] New node added correctly.",
        ],
    );
    for cluster in &clusters {
        assert!(!cluster.nodes[6].connect().cmd("FUNCTION LIST").unwrap().items().is_empty());
    }
    add(
        "--cluster add-node @7 @0 --cluster-slave --cluster-master-id #6",
        8,
        &[">>> Configure node as replica of 127.0.0.1:@6.", "[OK] New node added correctly."],
    );
    let same = |line: &str| {
        let [expected, found] = clusters.each_ref().map(|cluster| {
            let found = cluster.run(line, "");
            (found.output.iter().filter(|line| line.starts_with("[ERR]")).cloned().collect::<Vec<_>>(), found.status)
        });
        assert_eq!(expected, found, "{line}");
    };
    same("--cluster add-node @7 @0");
    same("--cluster add-node @7 @0 --cluster-slave --cluster-master-id nobody");
    same("--cluster del-node @0 #1");
    same("--cluster del-node @0 nobody");
    for cluster in &clusters {
        let deleted = cluster.run("--cluster del-node @0 #7", "");
        let expected = [
            ">>> Removing node #7 from cluster 127.0.0.1:@0",
            ">>> Sending CLUSTER FORGET messages to the cluster...",
            ">>> Sending CLUSTER RESET SOFT to the deleted node.",
        ];
        assert_eq!((deleted.output, deleted.status), (expected.map(str::to_owned).to_vec(), Some(0)));
        assert!(cluster.ask(7, "CLUSTER INFO").contains("cluster_known_nodes:1"));
    }
}

fn both_functions(cluster: &Cluster) {
    let library = b"#!lua name=lib\nredis.register_function('f', function() return 1 end)".to_vec();
    for node in 0..3 {
        let command = [b"FUNCTION".to_vec(), b"LOAD".to_vec(), library.clone()];
        assert!(!cluster.nodes[node].connect().call(&command).unwrap().is_error());
    }
}

#[test]
fn broken_clusters_are_repaired() {
    let clusters = start(3);
    check(&clusters, CREATE, "");
    settle(&clusters);
    // The slot of `foo` is 12182, at node 2; of `bar` 5061, at node 0.
    both(&clusters, 0, "SET bar 1");
    both(&clusters, 2, "SET foo 1");

    // Case 1: an interrupted move.
    both(&clusters, 1, "CLUSTER SETSLOT 5061 IMPORTING #0");
    both(&clusters, 0, "CLUSTER SETSLOT 5061 MIGRATING #1");
    check(&clusters, "--cluster check @0", "");
    check(&clusters, "--cluster reshard @0 --cluster-from #0 --cluster-to #1 --cluster-slots 1 --cluster-yes", "");
    check(&clusters, "--cluster rebalance @0", "");
    check(&clusters, "--cluster fix @0", "");
    settle(&clusters);
    // Case 4: only the source is open.
    both(&clusters, 0, "CLUSTER SETSLOT 7 MIGRATING #1");
    check(&clusters, "--cluster fix @0", "");
    // Case 2: only a target is open.
    both(&clusters, 1, "CLUSTER SETSLOT 12182 IMPORTING #2");
    check(&clusters, "--cluster fix @1", "");
    // Case 3: several targets are open.
    both(&clusters, 2, "CLUSTER SETSLOT 16000 MIGRATING #1");
    both(&clusters, 1, "CLUSTER SETSLOT 16000 IMPORTING #2");
    both(&clusters, 0, "CLUSTER SETSLOT 16000 IMPORTING #2");
    check(&clusters, "--cluster fix @1", "");
    settle(&clusters);
    check(&clusters, "--cluster check @0", "");
    check(&clusters, "--cluster call @0 DBSIZE", "");

    // A slot with a key, and one without, lose their owner.
    for node in 0..3 {
        both(&clusters, node, "CLUSTER DELSLOTS 12182");
    }
    check(&clusters, "--cluster fix @0", "no\n");
    check(&clusters, "--cluster fix @0", "yes\n");
    settle(&clusters);
    for node in 0..3 {
        both(&clusters, node, "CLUSTER DELSLOTS 100");
    }
    for cluster in &clusters {
        // Each tool gives the slot to a primary of its choice. The reports of the check therefore differ.
        assert_eq!(cluster.run("--cluster fix @0", "yes\n").status, Some(0), "{:?}", cluster.tool);
        cluster.settle();
        let report = cluster.run("--cluster check @0 --cluster-search-multiple-owners", "");
        for line in ["[OK] All 16384 slots covered.", "[OK] No multiple owners found."] {
            assert!(report.output.iter().any(|found| found == line), "{:?}: {report:?}", cluster.tool);
        }
    }
}

/// Keys of a server that is no node come into the cluster.
#[test]
fn keys_are_imported_and_saved() {
    let clusters = start(3);
    check(&clusters, CREATE, "");
    settle(&clusters);
    let sources = TOOLS.map(|_| Server::oracle(&[]));
    for source in &sources {
        for key in 0..30 {
            source.connect().cmd(&format!("SET key:{key} {key}")).unwrap();
        }
    }
    let import = |options: &str| {
        let [expected, found] = [0, 1].map(|at: usize| {
            let port = sources[at].port().to_string();
            let mut outcome =
                clusters[at].run(&format!("--cluster import @0 --cluster-from 127.0.0.1:{port} {options}"), "");
            for line in outcome.output.iter_mut().chain(&mut outcome.errors) {
                *line = line.replace(&port, "source");
                // The first key that exists already is any, because each server has an order of its own.
                if line.starts_with("Migrating ") && !line.ends_with("OK") {
                    "Migrating key: error".clone_into(line);
                }
            }
            outcome.output.sort();
            outcome
        });
        assert_eq!(expected, found, "{options}");
    };
    check(&clusters, "--cluster import @0", "");
    check(&clusters, "--cluster import @0 --cluster-from nowhere", "");
    check(&clusters, "--cluster import @0 --cluster-from @1", "");
    import("--cluster-copy");
    import("");
    import("--cluster-replace");
    settle(&clusters);
    check(&clusters, "--cluster call @0 DBSIZE", "");
    assert!(sources.iter().all(|source| source.connect().cmd("DBSIZE").unwrap().integer() == Some(0)));

    let directories =
        TOOLS.map(|tool| env::temp_dir().join(format!("penstock-backup-{}-{tool:?}", std::process::id())));
    let outcomes = [0, 1].map(|at: usize| {
        fs::create_dir_all(&directories[at]).unwrap();
        let directory = directories[at].display().to_string();
        let mut outcome = clusters[at].run(&format!("--cluster backup @0 {directory}"), "");
        for line in outcome.output.iter_mut().chain(&mut outcome.errors) {
            // A file is as long as its fields need.
            *line = line.replace(&directory, "directory").replace(|letter: char| letter.is_ascii_digit(), "n");
        }
        outcome.errors.sort();
        let mut files: Vec<String> = fs::read_dir(&directories[at])
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let json = clusters[at].lines(&fs::read(directories[at].join("nodes.json")).unwrap());
        let snapshots = files.iter().filter(|name| name.ends_with(".rdb"));
        for name in snapshots {
            let bytes = fs::read(directories[at].join(name)).unwrap();
            assert!(bytes.starts_with(b"REDIS00") && bytes.len() > 100, "{name}");
            let checked = Command::new("redis-check-rdb").arg(directories[at].join(name)).output().unwrap();
            assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stdout));
        }
        let mut names: Vec<String> = files.iter().flat_map(|name| clusters[at].lines(name.as_bytes())).collect();
        names.sort();
        (outcome, json, names)
    });
    directories.iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
    assert_eq!(outcomes[0], outcomes[1]);
}

/// redis-cli reads answers without regard to lines, so that only a terminal can give it several.
#[test]
fn missing_options_of_a_reshard_are_asked_for() {
    let cluster = Cluster::start(Tool::Penstock, 3);
    assert_eq!(cluster.run(CREATE, "").status, Some(0));
    cluster.settle();
    let answers = |text: &str| cluster.filled_in(text);
    let asked = cluster.run("--cluster reshard @2", &answers("x\n0\n3\n#1\n#2\n#1\ndone\nyes\n"));
    assert_eq!(asked.status, Some(0), "{asked:#?}");
    let has = |text: &str| asked.output.iter().any(|line| line.contains(text));
    assert!(has("How many slots do you want to move (from 1 to 16384)? ") && has("What is the receiving node ID? "));
    assert!(has("Source node #2: *** It is not possible to use the target node as source node."));
    assert!(has("Moving slot 10923 from 127.0.0.1:@2 to 127.0.0.1:@1"));
    cluster.settle();
    let info = cluster.run("--cluster info @0", "");
    assert!(
        info.output.iter().any(|line| line.starts_with("127.0.0.1:@1 ") && line.contains("5465 slots")),
        "{info:?}"
    );
    // Standard input ends in the middle.
    let ended = cluster.run("--cluster reshard @2", "3\n");
    assert_eq!(ended.status, Some(1));
    assert_eq!(ended.errors, ["*** Standard input has ended, operation aborted."]);
}

#[test]
fn wrong_commands_and_nodes_are_reported() {
    let clusters = start(1);
    let plain = TOOLS.map(|_| Server::oracle(&[]));
    check(&clusters, "--cluster help", "");
    for line in [
        "--cluster nonsense",
        "--cluster create",
        "--cluster create @0",
        "--cluster check",
        "--cluster check nowhere",
        "--cluster check 127.0.0.1 0",
        "--cluster check 127.0.0.1:1",
        "--cluster info @0",
        "--cluster check @0",
        "--cluster del-node @0",
        "--cluster call @0",
        "--cluster create here @0 @0",
        "--cluster-weight a=1 --cluster-weight b=2 --cluster rebalance @0",
    ] {
        check(&clusters, line, "");
    }
    let outcomes = [0, 1].map(|at: usize| {
        let port = plain[at].port();
        let outcome = clusters[at].run(&format!("--cluster check 127.0.0.1:{port}"), "");
        (outcome.output[0].replace(&port.to_string(), "plain"), outcome.errors, outcome.status)
    });
    assert_eq!(outcomes[0], outcomes[1]);
}
