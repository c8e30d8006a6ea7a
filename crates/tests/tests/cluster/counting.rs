//! Pipeline tokens over `cluster-forward`: each command runs once, whatever breaks.
//!
//! With three nodes that have a third of the slots each, `f`, `g` and `foo` are keys of the first, the second and the third node.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_tests::bytes::{Command, command};
use penstock_tests::conn::Conn;
use penstock_tests::nodes::{Make, Node, join, node_with, replicate, settle};
use penstock_tests::reply::Reply;
use penstock_tests::server::comes_true;

use crate::moving::move_slot;

/// A key of each node.
const KEYS: [&str; 3] = ["f", "g", "foo"];
/// The longest time that a client tries to go on.
const PATIENCE: Duration = Duration::from_secs(120);
/// The number of commands that a client sends at once. A token lists the positions of 32 failures, so that it lists all.
const PIECE: usize = 20;

fn cluster(directives: &[&str]) -> [Node; 3] {
    let directives: Vec<&str> = ["--cluster-forward", "yes"].iter().chain(directives).copied().collect();
    let nodes = [(); 3].map(|()| node_with(Make::Penstock, &directives));
    join(&nodes.each_ref());
    nodes
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text()).into_owned()
}

/// Returns the field of a reply of STATUS or RESUME in RESP2.
fn field<'r>(reply: &'r Reply, name: &str) -> &'r Reply {
    let at = reply.items().iter().position(|item| item.text() == name.as_bytes());
    assert!(at.is_some(), "{}", reply.escaped());
    &reply.items()[at.unwrap() + 1]
}

/// A client that runs each of its commands once.
struct OnceClient {
    /// The nodes that may have the tokens. The client tries the last one first.
    ports: Vec<u16>,
    name: String,
    conn: Option<Conn>,
    tokens: u64,
    /// The number of connections that broke within a pipeline.
    breaks: u64,
}

impl OnceClient {
    fn new(homes: &[u16], name: &str) -> OnceClient {
        OnceClient { ports: homes.to_vec(), name: name.to_owned(), conn: None, tokens: 0, breaks: 0 }
    }

    fn token(&self) -> String {
        format!("{}:{}", self.name, self.tokens)
    }

    /// Calls `attempt` with connections until it returns a result.
    fn persist<T>(&mut self, mut attempt: impl FnMut(&mut OnceClient, &mut Conn) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            let port = self.ports[self.ports.len() - 1];
            if let Ok(mut conn) = self.conn.take().map_or_else(|| Conn::open(port), Ok)
                && let Some(result) = attempt(self, &mut conn)
            {
                self.conn = Some(conn);
                return result;
            }
            assert!(began.elapsed() < PATIENCE, "{} can't go on", self.name);
            self.ports.rotate_right(1);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Begins a new token.
    fn start(&mut self) {
        self.persist(|client, conn| {
            client.tokens += 1;
            let reply = conn.cmd(&format!("PIPELINE START {}", client.token())).ok()?;
            (text(&reply) == "OK").then_some(())
        });
    }

    /// Resumes the token. Returns the number of executed commands, and the positions of failed ones.
    fn resume(&mut self) -> (usize, Vec<usize>) {
        self.breaks += 1;
        self.persist(|client, conn| {
            let reply = conn.cmd(&format!("PIPELINE RESUME {}", client.token())).ok()?;
            assert!(!text(&reply).starts_with("NOTOKEN"), "{}", reply.escaped());
            if reply.is_error() {
                return None;
            }
            let failures = field(&reply, "failures").items();
            let positions = failures.iter().map(|failure| failure.items()[0].integer().unwrap() as usize);
            Some((field(&reply, "executed").integer().unwrap() as usize, positions.collect()))
        })
    }

    /// Sends commands and reads as many replies as come. Returns them, and true if all have come.
    fn exchange(&mut self, commands: &[Command]) -> (Vec<Reply>, bool) {
        let Some(mut conn) = self.conn.take() else { return (Vec::new(), false) };
        let sent = conn.send(&penstock_tests::bytes::encode_all(commands));
        let mut replies = Vec::new();
        while sent.is_ok() && replies.len() < commands.len() {
            match conn.read() {
                Ok(reply) => replies.push(reply),
                Err(_) => break,
            }
        }
        let is_whole = replies.len() == commands.len();
        self.conn = is_whole.then_some(conn);
        (replies, is_whole)
    }

    /// Runs each command once, and in order unless one fails. A failed command is tried again at the end.
    fn run(&mut self, commands: Vec<Command>) {
        let mut left: VecDeque<Command> = commands.into();
        let began = Instant::now();
        while !left.is_empty() {
            assert!(began.elapsed() < PATIENCE, "{} commands are left", left.len());
            let piece: Vec<Command> = left.drain(..left.len().min(PIECE)).collect();
            self.start();
            let mut failed = Vec::new();
            let mut done = 0;
            while done < piece.len() {
                let (replies, is_whole) = self.exchange(&piece[done..]);
                failed.extend((done..).zip(&replies).filter(|(_, reply)| reply.is_error()).map(|(at, _)| at));
                let answered = done + replies.len();
                done = piece.len();
                if !is_whole {
                    let (executed, positions) = self.resume();
                    assert!((answered..=piece.len()).contains(&executed), "{answered} answered, {executed} executed");
                    done = executed;
                    failed.extend(positions.into_iter().map(|position| position - 1).filter(|at| *at >= answered));
                }
            }
            if !failed.is_empty() {
                std::thread::sleep(Duration::from_millis(50));
            }
            left.extend(failed.into_iter().map(|at| piece[at].clone()));
            let end = command(&format!("PIPELINE END {}", self.token()));
            self.exchange(&[end]);
        }
    }
}

/// The keys of a client's commands in one round, in no regular order of their nodes.
fn keys_of(client: &str) -> impl Iterator<Item = String> {
    (0..60).map(move |at| format!("{{{}}}{client}", KEYS[(at % 7 + at / 5) % 3]))
}

/// Ends the clients, also when the test fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs increments of keys of all nodes through the first node until `disturb` returns, and checks the numbers. Returns the number of
/// pipelines that broke.
fn count_while(nodes: &mut [Node], disturb: impl FnOnce(&mut [Node])) -> u64 {
    count_at(nodes, &[0], disturb)
}

/// Like [`count_while`]. One of the nodes `homes` runs the pipelines.
fn count_at(nodes: &mut [Node], homes: &[usize], disturb: impl FnOnce(&mut [Node])) -> u64 {
    let homes: Vec<u16> = homes.iter().map(|home| nodes[*home].server.port()).collect();
    let stop = AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        let at_end = Stop(&stop);
        let clients = ["a", "b"].map(|name| {
            let (stop, mut client) = (&stop, OnceClient::new(&homes, name));
            scope.spawn(move || {
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) || rounds < 3 {
                    client.run(keys_of(name).map(|key| command(&format!("INCR {key}"))).collect());
                    rounds += 1;
                }
                (name, rounds, client.breaks)
            })
        });
        disturb(nodes);
        drop(at_end);
        clients.map(|client| client.join().unwrap())
    });
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for (name, rounds, _) in ran {
        keys_of(name).for_each(|key| *expected.entry(key).or_default() += rounds);
    }
    for (key, count) in expected {
        // Nodes with replicas agree on the owner a little later.
        let mut owner = None;
        let is_led = comes_true(|| {
            owner = nodes.iter().find(|node| node.leads(&key));
            owner.is_some()
        });
        assert!(is_led, "nobody leads {key}");
        let owner = owner.unwrap();
        assert_eq!(owner.text(&format!("GET {key}")), count.to_string(), "{key}");
    }
    ran.iter().map(|(_, _, breaks)| breaks).sum()
}

/// Closes all links for forwarded commands at a node.
fn cut_links(node: &Node) {
    for line in node.text("CLIENT LIST").lines().filter(|line| line.contains("lib-name=penstock-forward")) {
        let id = line.split_once("id=").unwrap().1.split(' ').next().unwrap();
        node.reply(&format!("CLIENT KILL ID {id}"));
    }
}

#[test]
fn a_token_counts_commands_of_all_nodes() {
    let nodes = cluster(&[]);
    let mut conn = nodes[0].server.connect();
    assert_eq!(text(&conn.cmd("PIPELINE START t").unwrap()), "OK");
    let words = "INCR f|INCR g|INCR foo|LPUSH g x|NOSUCH|MULTI|INCR {g}1|LPUSH g x|EXEC|GET foo|INCR g|BLPOP g 1";
    let commands: Vec<Command> = words.split('|').map(command).collect();
    let replies = conn.pipeline(&commands).unwrap();
    assert_eq!([0, 1, 2].map(|at| replies[at].integer()), [Some(1); 3]);
    assert_eq!(replies[8].items()[0].integer(), Some(1));
    assert_eq!((replies[9].text(), replies[10].integer()), (&b"1"[..], Some(2)));
    let status = conn.cmd("PIPELINE STATUS t").unwrap();
    assert_eq!(field(&status, "executed").integer(), Some(12));
    let failures = |reply: &Reply| -> Vec<i64> {
        field(reply, "failures").items().iter().map(|failure| failure.items()[0].integer().unwrap()).collect()
    };
    assert_eq!(failures(&status), [4, 5, 8, 12]);
    // The owners count in the same way.
    let lists: Vec<String> = nodes[1..].iter().map(|node| node.reply("PIPELINE LIST").escaped()).collect();
    assert!(lists.iter().all(|list| list.contains("forwarded:")), "{lists:?}");
    for more in 0..2 {
        let mut other = nodes[0].server.connect();
        let resumed = other.cmd("PIPELINE RESUME t").unwrap();
        assert_eq!((field(&resumed, "executed").integer(), failures(&resumed)), (Some(12 + more), vec![4, 5, 8, 12]));
        assert_eq!(other.cmd("INCR g").unwrap().integer(), Some(3 + more));
        conn = other;
    }
    assert_eq!(text(&conn.cmd("PIPELINE END t").unwrap()), "OK");
    for node in &nodes[1..] {
        node.wait_until("it has forgotten the count", |node| node.reply("PIPELINE LIST").items().is_empty());
    }
    // The connection goes on without a count.
    assert_eq!(conn.cmd("INCR g").unwrap().integer(), Some(5));
}

/// A link breaks before its command runs, and the token tells so.
#[test]
fn a_broken_link_closes_the_client_who_learns_the_count() {
    let nodes = cluster(&[]);
    let mut conn = nodes[0].server.connect();
    assert_eq!(text(&conn.cmd("PIPELINE START t").unwrap()), "OK");
    assert_eq!(conn.cmd("INCR g").unwrap().integer(), Some(1));
    nodes[1].ok("CLIENT PAUSE 100000 WRITE");
    conn.send(b"INCR g\r\nINCR f\r\n").unwrap();
    nodes[1].wait_until("the command has arrived", |node| node.text("INFO clients").contains("blocked_clients:1"));
    cut_links(&nodes[1]);
    assert_eq!(conn.read_to_close().unwrap(), b"");
    // While the owner doesn't answer, the token stays free.
    nodes[1].signal("STOP");
    let mut conn = nodes[0].server.connect();
    assert!(text(&conn.cmd("PIPELINE RESUME t").unwrap()).starts_with("CLUSTERDOWN "));
    nodes[1].signal("CONT");
    nodes[1].ok("CLIENT UNPAUSE");
    let mut client =
        OnceClient { conn: Some(conn), tokens: 0, breaks: 0, ports: vec![nodes[0].server.port()], name: "t".into() };
    client.persist(|_, conn| {
        let resumed = conn.cmd("PIPELINE RESUME t").unwrap();
        (!resumed.is_error()).then(|| assert_eq!(field(&resumed, "executed").integer(), Some(1)))
    });
    let mut conn = client.conn.unwrap();
    let numbers = conn.pipeline(&["INCR g", "INCR f"].map(command)).unwrap();
    assert_eq!([numbers[0].integer(), numbers[1].integer()], [Some(2), Some(1)]);
}

/// The owner has run the command, but the link breaks before the reply.
#[test]
fn a_command_whose_reply_is_lost_counts() {
    let nodes = cluster(&[]);
    let mut conn = nodes[0].server.connect();
    assert_eq!(text(&conn.cmd("PIPELINE START t").unwrap()), "OK");
    assert_eq!(conn.cmd("INCR g").unwrap().integer(), Some(1));
    // Replies wait for a replica that does not exist.
    nodes[1].ok("CONFIG SET durability-timeout 0");
    nodes[1].ok("CONFIG SET durability-replicas 1");
    conn.send(b"MULTI\r\nINCR g\r\nLPUSH g x\r\nEXEC\r\nINCR f\r\n").unwrap();
    nodes[1].wait_until("the command has run", |node| node.text("INFO commandstats").contains("cmdstat_exec:calls=1,"));
    cut_links(&nodes[1]);
    conn.read_to_close().unwrap();
    nodes[1].ok("CONFIG SET durability-replicas 0");
    let mut conn = nodes[0].server.connect();
    let resumed = conn.cmd("PIPELINE RESUME t").unwrap();
    assert_eq!((field(&resumed, "executed").integer(), field(&resumed, "failed").integer()), (Some(5), Some(1)));
    assert_eq!(field(&resumed, "failures").items()[0].items()[0].integer(), Some(4), "{}", resumed.escaped());
    assert_eq!(conn.cmd("INCR g").unwrap().integer(), Some(3));
}

#[test]
fn each_command_runs_once_although_links_and_clients_are_cut() {
    let breaks = count_while(&mut cluster(&[]), |nodes| {
        for round in 0..60 {
            match round % 3 {
                0 => cut_links(&nodes[1]),
                1 => cut_links(&nodes[2]),
                _ => _ = nodes[0].reply("CLIENT KILL TYPE normal"),
            }
            std::thread::sleep(Duration::from_millis(40));
        }
    });
    assert!(breaks > 5, "{breaks}");
}

#[test]
fn each_command_runs_once_while_slots_move() {
    count_while(&mut cluster(&[]), |nodes| {
        let slot = nodes[0].reply("CLUSTER KEYSLOT g").integer().unwrap() as u64;
        for step in 0..9 {
            let [from, to, other] = [1, 2, 3].map(|more| &nodes[(step + more) % 3]);
            move_slot(slot, from, to, &[other]);
            cut_links(&nodes[step % 3]);
            nodes[0].reply("CLIENT KILL TYPE normal");
        }
    });
}

/// The forwarding node, or an owner, ends at once and starts again.
#[test]
fn each_command_runs_once_although_nodes_are_killed() {
    let mut nodes = cluster(&["--appendonly", "yes", "--appendfsync", "always"]);
    let breaks = count_while(&mut nodes, |nodes| {
        for victim in [0, 1, 0, 2, 0] {
            nodes[victim].server.kill();
            nodes[victim].server.restart();
            nodes[victim].wait_until("it serves", |node| node.is_ok());
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    assert!(breaks > 2, "{breaks}");
}
/// Waits until a node has had others run more commands of the pipelines.
fn wait_for_pipelines(home: &Node) {
    let forwarded = |home: &Node| home.server.figure("cluster_forwarded_commands");
    let before = forwarded(home);
    home.wait_until("pipelines run", |home| forwarded(home) > before + 10);
}

/// Has a replica take its primary's place, once all nodes know of its role.
fn take_over(nodes: &[Node], replica: usize) {
    nodes[replica].wait_until_linked();
    settle(&nodes.iter().collect::<Vec<_>>());
    nodes[replica].ok("CLUSTER FAILOVER");
    nodes[replica].wait_until("it has taken over", |node| node.own().is("master"));
}

/// Returns three nodes with the slots, and a replica of one of them.
fn cluster_with_replica(of: usize) -> [Node; 4] {
    let [first, second, third] = cluster(&[]);
    let replica = node_with(Make::Penstock, &["--cluster-forward", "yes"]);
    replica.meet(&first);
    let nodes = [first, second, third, replica];
    replicate(&nodes[3], &nodes[of]);
    settle(&nodes.each_ref());
    nodes
}

/// A replica takes the place of an owner, and the owner takes it back.
#[test]
fn each_command_runs_once_despite_failovers_of_an_owner() {
    count_while(&mut cluster_with_replica(1), |nodes| {
        for next in [3, 1] {
            wait_for_pipelines(&nodes[0]);
            take_over(nodes, next);
        }
    });
}

/// Returns a client that is in the middle of a pipeline at the first of these homes.
fn in_the_middle(nodes: &[Node], homes: [usize; 2]) -> OnceClient {
    let mut client = OnceClient::new(&homes.map(|home| nodes[home].server.port()), &format!("t{}", homes[0]));
    client.start();
    let (replies, _) = client.exchange(&["INCR {f}t", "INCR {g}t", "LPUSH {g}t x"].map(command));
    assert_eq!(replies.len(), 3);
    client
}

/// Resumes the client's pipeline at the other home.
fn check_resumed(mut client: OnceClient) {
    client.conn = None;
    assert_eq!(client.resume(), (3, vec![3]));
}

/// A replica takes the place of the node that the clients are connected to, and that node takes it back. The clients resume at the other one.
#[test]
fn each_command_runs_once_despite_failovers_of_the_home() {
    count_at(&mut cluster_with_replica(0), &[0, 3], |nodes| {
        for (home, next) in [(0, 3), (3, 0), (0, 3)] {
            wait_for_pipelines(&nodes[home]);
            let client = in_the_middle(nodes, [home, next]);
            take_over(nodes, next);
            check_resumed(client);
        }
    });
}

/// The node that the clients are connected to dies, and its replica has all that was acknowledged.
#[test]
fn each_command_runs_once_although_the_home_is_lost() {
    let mut nodes = cluster_with_replica(0);
    nodes[0].ok("CONFIG SET durability-replicas 1");
    count_at(&mut nodes, &[0, 3], |nodes| {
        wait_for_pipelines(&nodes[0]);
        let client = in_the_middle(nodes, [0, 3]);
        nodes[0].server.kill();
        nodes[3].wait_until("it has taken over", |node| node.leads(KEYS[0]));
        check_resumed(client);
        nodes[0].server.restart();
        nodes[0].wait_until("it follows", |node| node.own().is("slave"));
        nodes[0].wait_until_linked();
    });
}

/// A node that may have lost its place to a replica tells no count, knows of no token that is missing, and starts none.
#[test]
fn a_node_of_a_cluster_that_is_down_does_not_count() {
    let node = node_with(Make::Penstock, &["--cluster-forward", "yes"]);
    for command in ["ATTACH t 1 60", "RESUME t", "START t"] {
        assert_eq!(text(&node.reply(&format!("PIPELINE {command}"))), "CLUSTERDOWN The cluster is down");
    }
    node.ok("CLUSTER ADDSLOTSRANGE 0 16383");
    node.wait_until("it counts", |node| !node.reply("PIPELINE ATTACH t 1 60").is_error());
    assert!(text(&node.reply("PIPELINE RESUME u")).starts_with("NOTOKEN "));
    node.ok("PIPELINE START u");
}
