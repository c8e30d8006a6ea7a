//! `penstock load --cluster` and `penstock bench --cluster` with three nodes of redis-server, and with three of Penstock.

// Clippy allows unwrap in tests, but not in functions that only tests call.
#![allow(clippy::unwrap_used)]

use penstock_tests::server::{Server, subject_program};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// Longest duration of a step, in seconds.
const STEP_SECONDS_MAX: u64 = 120;

struct Cluster {
    nodes: Vec<Server>,
}

/// Runs a test with a cluster of each make.
fn with_each_make(check: impl Fn(&Cluster)) {
    for start in [Server::oracle, Server::penstock] {
        check(&Cluster::start(start));
    }
}

impl Cluster {
    fn start(start: impl Fn(&[&str]) -> Server) -> Self {
        let nodes: Vec<Server> = (0..3).map(|_| start(&["--cluster-enabled", "yes"])).collect();
        let cluster = Self { nodes };
        let addresses: Vec<String> = (0..3).map(|node| cluster.address(node)).collect();
        let mut command = Command::new(subject_program());
        command.args(["cli", "--cluster", "create"]).args(&addresses).arg("--cluster-yes");
        let created = command.output().unwrap();
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
        cluster.wait_until_ok();
        cluster
    }

    fn address(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.nodes[node].port())
    }

    fn port(&self) -> String {
        self.nodes[0].port().to_string()
    }

    fn ask(&self, node: usize, command: &str) -> String {
        let reply = self.nodes[node].connect().cmd(command).unwrap();
        String::from_utf8_lossy(reply.text()).into_owned()
    }

    fn wait_until_ok(&self) {
        let is_ok = |node: usize| self.ask(node, "CLUSTER INFO").contains("cluster_state:ok");
        let end = Instant::now() + Duration::from_secs(60);
        while !(0..3).all(is_ok) {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the number of keys of all nodes.
    fn keys(&self) -> i64 {
        self.nodes.iter().map(|node| node.connect().cmd("DBSIZE").unwrap().integer().unwrap()).sum()
    }

    /// Waits for a key that matches `pattern`. Returns its node and its name.
    fn wait_for_key(&self, pattern: &str) -> (&Server, Vec<u8>) {
        let end = Instant::now() + Duration::from_secs(STEP_SECONDS_MAX);
        loop {
            for node in &self.nodes {
                let keys = node.connect().cmd(&format!("KEYS {pattern}")).unwrap();
                if let Some(key) = keys.items().first() {
                    return (node, key.text().to_vec());
                }
            }
            assert!(Instant::now() < end, "no key matches {pattern}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the sum of all counters in the cluster.
    fn sum(&self) -> i64 {
        let sum_of = |node: &Server| {
            let mut conn = node.connect();
            let keys = conn.cmd("KEYS counter:*").unwrap();
            let mut value = |key: &[u8]| -> i64 {
                let reply = conn.call(&[b"GET".to_vec(), key.to_vec()]).unwrap();
                text(reply.text()).parse().unwrap()
            };
            keys.items().iter().map(|key| value(key.text())).sum::<i64>()
        };
        self.nodes.iter().map(sum_of).sum()
    }

    /// Moves slots of the first node to the second one, until `child` ends.
    fn reshard_during(&self, child: &mut Child) -> u32 {
        let (from, to) = (self.ask(0, "CLUSTER MYID"), self.ask(1, "CLUSTER MYID"));
        let mut rounds = 0;
        while child.try_wait().unwrap().is_none() {
            let (from, to) = if rounds % 2 == 0 { (&from, &to) } else { (&to, &from) };
            let mut command = Command::new(subject_program());
            command.args(["cli", "--cluster", "reshard", &self.address(0), "--cluster-yes", "--cluster-slots", "200"]);
            let moved = command.args(["--cluster-from", from, "--cluster-to", to]).output().unwrap();
            assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stdout));
            rounds += 1;
        }
        rounds
    }
}

fn tool(words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(STEP_SECONDS_MAX.to_string()).arg(subject_program()).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn load(cluster: &Cluster, flags: &[&str], input: &str) -> Output {
    let port = cluster.port();
    let mut child = tool(&[&["load", "--cluster", "-p", &port][..], flags].concat()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory for the files of a test. It is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("penstock-cluster-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_load_goes_to_all_nodes_and_keeps_the_order_of_each_slot() {
    with_each_make(|cluster| {
        let mut input = String::new();
        for number in 0..6000 {
            input += &format!("RPUSH list:{} {number}\n", number % 50);
        }
        let loaded = load(cluster, &["--chunk", "700"], &input);
        assert!(loaded.status.success(), "{}", text(&loaded.stderr));
        assert!(text(&loaded.stdout).contains("6,000 commands executed, 0 failed, 0 lines rejected"));
        assert_eq!(cluster.keys(), 50);
        assert!((0..3).all(|node| cluster.nodes[node].connect().cmd("DBSIZE").unwrap().integer() > Some(0)));
        for node in &cluster.nodes {
            let mut conn = node.connect();
            for key in conn.cmd("KEYS *").unwrap().items() {
                let command = [b"LRANGE".to_vec(), key.text().to_vec(), b"0".to_vec(), b"-1".to_vec()];
                let reply = conn.call(&command).unwrap();
                let numbers: Vec<u32> = reply.items().iter().map(|item| text(item.text()).parse().unwrap()).collect();
                assert!(numbers.len() == 120 && numbers.is_sorted(), "{numbers:?}");
            }
        }
    });
}

#[test]
fn errors_of_a_load_are_reported_in_input_order() {
    with_each_make(|cluster| {
        let input = "SET a 1\nINCRBY b x\nPING\nRPUSH a 1\n\"unbalanced\nSELECT 1\nMSET a 1 b 2\nSET c 3\n";
        for flags in [&[][..], &["--resume", "--state", "STATE"]] {
            let folder = Folder::new("errors");
            let state = folder.file("state");
            let flags: Vec<&str> = flags.iter().map(|flag| if *flag == "STATE" { &state } else { *flag }).collect();
            let loaded = load(cluster, &flags, input);
            let errors = text(&loaded.stderr);
            let places: Vec<&str> = errors.lines().filter_map(|line| line.split(": ").next()).collect();
            assert_eq!(places, ["stdin:2", "stdin:3", "stdin:4", "stdin:5", "stdin:6", "stdin:7"], "{errors}");
            for expected in [
                "stdin:2: ERR value is not an integer",
                "stdin:3: the command has no key",
                "stdin:4: WRONGTYPE",
                "stdin:7: CROSSSLOT",
            ] {
                assert!(errors.contains(expected), "{expected}: {errors}");
            }
            assert_eq!(loaded.status.code(), Some(1));
            assert_eq!(cluster.keys(), 2, "a and c, and no marker");
        }
        let loaded = load(cluster, &[], "SET a 1\nMULTI\nSET a 2\nEXEC\n");
        assert!(text(&loaded.stderr).contains("stdin:2: a transaction can't be loaded into a cluster"));
        assert_eq!(loaded.status.code(), Some(2));
    });
}

/// Counters would show a command that was executed twice or not at all.
#[test]
fn a_killed_load_goes_on_while_slots_move() {
    with_each_make(|cluster| {
        const COMMANDS: usize = 60_000;
        let folder = Folder::new("resume");
        let (file, state, errors) = (folder.file("commands"), folder.file("state"), folder.file("errors"));
        let lines: String = (0..COMMANDS).map(|number| format!("INCR counter:{}\n", number % 777)).collect();
        fs::write(&file, lines).unwrap();
        let port = cluster.port();
        let flags = [
            "load",
            "--cluster",
            "-p",
            &port,
            "--resume",
            "--state",
            &state,
            "--errors",
            &errors,
            "--chunk",
            "500",
            &file,
        ];
        let mut runs = 0;
        loop {
            runs += 1;
            assert!(runs < 200);
            let mut child = Command::new(subject_program()).args(flags).stdout(Stdio::null()).spawn().unwrap();
            if runs <= 4 {
                thread::sleep(Duration::from_millis(60 * runs));
                child.kill().unwrap();
                child.wait().unwrap();
                continue;
            }
            let rounds = cluster.reshard_during(&mut child);
            let status = child.wait().unwrap();
            assert!(status.success(), "{status} after {rounds} rounds: {}", fs::read_to_string(&errors).unwrap());
            break;
        }
        assert_eq!(cluster.sum(), COMMANDS as i64);
        assert_eq!(cluster.keys(), 777, "no marker is left");
        assert_eq!(fs::read_to_string(&errors).unwrap(), "");
        // The same command line knows that all is done.
        let again = Command::new(subject_program()).args(flags).output().unwrap();
        assert!(again.status.success() && text(&again.stderr).contains("nothing was sent"), "{}", text(&again.stderr));
        assert_eq!(cluster.sum(), COMMANDS as i64);
    });
}

/// A chunk of the killed run reached further than the next run's chunks do.
#[test]
fn a_marker_counts_for_all_later_chunks() {
    let cluster = Cluster::start(Server::oracle);
    let folder = Folder::new("reach");
    let state = folder.file("state");
    let port = cluster.port();
    let flags = ["load", "--cluster", "-p", &port, "--chunk", "1", "--resume", "--state", &state];
    let mut child = Command::new(subject_program()).args(flags).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"INCR counter:a\n").unwrap();
    let (node, marker) = cluster.wait_for_key("penstock-*");
    child.kill().unwrap();
    child.wait().unwrap();
    // The end of the chunk.
    node.connect().call(&[b"SET".to_vec(), marker, b"60000".to_vec()]).unwrap();
    node.connect().cmd("SET counter:a 60000").unwrap();

    let mut child = tool(&flags).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&b"INCR counter:a\n".repeat(100_000)).unwrap();
    let again = child.wait_with_output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!((cluster.sum(), cluster.keys()), (100_000, 1));
}

#[test]
fn a_load_that_was_killed_before_it_removed_its_markers_removes_them_later() {
    let cluster = Cluster::start(Server::oracle);
    let folder = Folder::new("markers");
    let state = folder.file("state");
    let port = cluster.port();
    let flags = ["load", "--cluster", "-p", &port, "--chunk", "1", "--resume", "--state", &state];
    let mut child = tool(&flags).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"SET a 1\n").unwrap();
    let (node, marker) = cluster.wait_for_key("penstock-*");
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(cluster.keys(), 1);

    // The state and the data of a load that was killed behind its last command.
    let content = fs::read_to_string(&state).unwrap();
    assert!(content.contains("\"complete\""), "{content}");
    fs::write(&state, content.replacen("\"complete\"", "\"finished\"", 1)).unwrap();
    node.connect().call(&[b"SET".to_vec(), marker, b"1".to_vec()]).unwrap();

    let mut child = tool(&flags).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"SET a 1\n").unwrap();
    let again = child.wait_with_output().unwrap();
    assert!(again.status.success() && text(&again.stderr).contains("nothing was sent"), "{}", text(&again.stderr));
    assert_eq!(cluster.keys(), 1);
    assert!(fs::read_to_string(&state).unwrap().contains("\"complete\""));
}

#[test]
fn a_load_follows_slots_that_move() {
    with_each_make(|cluster| {
        let folder = Folder::new("moves");
        let file = folder.file("commands");
        let lines: String = (0..100_000).map(|number| format!("INCR counter:{}\n", number % 777)).collect();
        fs::write(&file, lines).unwrap();
        let port = cluster.port();
        let mut child = tool(&["load", "--cluster", "-p", &port, "--chunk", "300", &file]).spawn().unwrap();
        cluster.reshard_during(&mut child);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(cluster.sum(), 100_000);
    });
}

#[test]
fn a_load_into_no_cluster_is_refused() {
    let server = Server::oracle(&[]);
    let port = server.port().to_string();
    let mut child = tool(&["load", "--cluster", "-p", &port]).spawn().unwrap();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains("cluster support disabled"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn a_benchmark_reaches_all_primaries_with_keys_of_their_own() {
    with_each_make(|cluster| {
        let port = cluster.port();
        let bench = |words: &[&str]| {
            let output = tool(&[&["bench", "--cluster", "-p", &port][..], words].concat()).output().unwrap();
            assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
            text(&output.stdout)
        };
        let calls = |name: &str| -> Vec<u64> {
            let of_node = |node: usize| {
                let stats = cluster.ask(node, "INFO commandstats");
                let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
                line.and_then(|line| line.split(',').next()).map_or(0, |calls| calls.parse().unwrap())
            };
            (0..3).map(of_node).collect()
        };
        let all = bench(&["-n", "3000", "-q", "-r", "1000", "-P", "5", "--threads", "2"]);
        assert!(all.lines().count() >= 19, "{all}");
        let report = bench(&["-n", "3000", "-t", "set", "--full"]);
        assert!(report.contains("Cluster has 3 master nodes:") && report.contains("cluster mode: yes (3 masters)"));
        let sets = calls("set");
        assert_eq!(sets.iter().sum::<u64>(), 6000);
        assert!(sets.iter().all(|calls| *calls > 100), "{sets:?}");
        // One connection is asked for, and each node gets one.
        bench(&["-n", "300", "-c", "1", "-q", "MSET", "a{tag}", "1", "b{tag}", "2"]);
        assert!(calls("mset").iter().all(|calls| *calls > 0));
        // Slots move during the run.
        let words = ["bench", "--cluster", "-p", &port, "-n", "300000", "-t", "set", "-r", "100", "--json"];
        let mut child = tool(&words).spawn().unwrap();
        let rounds = cluster.reshard_during(&mut child);
        let mut json = String::new();
        std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut json).unwrap();
        assert!(child.wait().unwrap().success() && json.contains("\"requests\":300000"), "{rounds} rounds: {json}");
    });
}
