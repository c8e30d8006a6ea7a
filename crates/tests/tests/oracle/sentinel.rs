//! Redis's and Valkey's Sentinel watches Penstock servers and mixed groups: it discovers them, replaces a failed
//! primary, and turns a returning one into a replica.
//!
//! `PENSTOCK_ORACLE` selects another Redis or Valkey, as the program of the sentinels and of the servers that aren't
//! Penstock.

#![allow(clippy::unwrap_used)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::server::{Server, comes_true};

use super::links::{is_up, signal, text, wait_until_equal};

/// Number of sentinels in a group, and the quorum.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
/// Time without a reply after which a server counts as down: longer than a busy machine delays one.
const DOWN_AFTER_MS: u32 = 2000;
/// Number of clients that write during the failover.
const CLIENTS: usize = 6;
/// Longest time for a write to reach the replicas. After that it does not count as safe.
const WAIT_MS: u32 = 1000;

/// Seconds between PINGs in the stream: practically never. A PING that the primary sends just before it is replaced is
/// in its stream and not in its successor's, so a Redis replica needs a snapshot to follow the successor.
const PING_S: &str = "3600";

/// The kinds of servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Penstock,
    Other,
}

impl Kind {
    fn start(self, more: &[&str]) -> Server {
        let args =
            ["--enable-debug-command", "yes", "--repl-backlog-size", "64mb", "--repl-ping-replica-period", PING_S];
        match self {
            Kind::Penstock => Server::penstock_that_loads(&[&args[..], &["--threads", "2"], more].concat()),
            Kind::Other => Server::oracle(&[&args[..], &["--repl-diskless-sync-delay", "0"], more].concat()),
        }
    }
}

/// A primary, its replicas, and the sentinels that watch them.
struct Group {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
    _conf: Directory,
}

/// Starts a group. The first server is the primary; the second is the replica that will replace it.
fn group(kinds: &[Kind], sentinel: impl Fn(&str) -> Server) -> Group {
    let primary = kinds[0].start(&[]);
    let port = primary.port().to_string();
    let mut servers = vec![primary];
    for (index, kind) in kinds.iter().enumerate().skip(1) {
        let priority = (10 * index).to_string();
        let replica = kind.start(&["--replicaof", "127.0.0.1", &port, "--replica-priority", &priority]);
        replica.wait_until("the link is up", is_up);
        servers.push(replica);
    }
    let conf = Directory::new();
    let lines = format!(
        "sentinel monitor group 127.0.0.1 {port} {QUORUM}\nsentinel down-after-milliseconds group {DOWN_AFTER_MS}\n\
         sentinel failover-timeout group 10000\nsentinel parallel-syncs group 2\n"
    );
    let sentinels: Vec<Server> =
        (0..SENTINELS).map(|number| sentinel(&conf.file(&format!("{number}.conf"), &lines))).collect();
    let group = Group { servers, sentinels, _conf: conf };
    let replicas = (kinds.len() - 1).to_string();
    let others = (SENTINELS - 1).to_string();
    group.until("the sentinels know all", |group| {
        let knows = |sentinel: &Server| {
            let one = fields(sentinel, "SENTINEL MASTER group");
            one("num-slaves") == replicas && one("num-other-sentinels") == others && one("flags") == "master"
        };
        group.sentinels.iter().all(knows)
    });
    group
}

/// Sends a command to a sentinel, and returns a function that looks up fields of the reply.
fn fields(sentinel: &Server, command: &str) -> impl Fn(&str) -> String + use<> {
    let reply = sentinel.connect().cmd(command).unwrap();
    let words: Vec<String> =
        reply.items().iter().map(|word| String::from_utf8_lossy(word.text()).into_owned()).collect();
    move |name| {
        let found = words.chunks(2).find(|pair| pair[0] == name);
        found.map_or_else(String::new, |pair| pair[1].clone())
    }
}

/// Returns a server's replication info; an empty text if its connections are just being closed, which happens when a
/// sentinel changes its role.
fn info(server: &Server) -> String {
    let told = Conn::open(server.port()).and_then(|mut conn| conn.cmd("INFO replication"));
    told.map_or_else(|_| String::new(), |reply| String::from_utf8_lossy(reply.text()).into_owned())
}

fn oracle_sentinel(conf: &str) -> Server {
    Server::oracle(&[conf, "--sentinel"])
}

impl Group {
    fn until(&self, what: &str, holds: impl Fn(&Group) -> bool) {
        // Sentinel's timeouts are in seconds, whatever the speed of the machine, so the wait is repeated.
        let came = (0..6).any(|_| comes_true(|| holds(self)));
        let logs = || {
            let all = self.servers.iter().chain(&self.sentinels);
            all.map(|server| format!("-- {}\n{}", server.port(), server.log())).collect::<String>()
        };
        assert!(came, "waited in vain until {what}\n{}", logs());
    }

    /// Returns the primary's port according to a sentinel.
    fn primary_port(&self) -> u16 {
        let reply = self.sentinels[0].connect().cmd("SENTINEL GET-MASTER-ADDR-BY-NAME group").unwrap();
        String::from_utf8_lossy(reply.items()[1].text()).parse().unwrap()
    }

    /// Writes from several clients, which ask a sentinel for the primary, during `run` and for a while longer. Returns
    /// the writes that all replicas of the first primary have acknowledged.
    fn under_load(&self, run: impl FnOnce()) -> Vec<(String, String)> {
        let replicas = self.servers.len() - 1;
        let is_over = AtomicBool::new(false);
        let port = AtomicU16::new(self.primary_port());
        let safe = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (is_over, port, safe) = (&is_over, &port, &safe);
                scope.spawn(move || {
                    let mut conn: Option<Conn> = None;
                    let mut number = 0u32;
                    while !is_over.load(Ordering::Relaxed) {
                        number += 1;
                        let (key, value) = (format!("{client}:{}", number % 500), number.to_string());
                        let written = conn.take().or_else(|| Conn::open(port.load(Ordering::Relaxed)).ok());
                        let written = written.and_then(|conn| write(conn, &key, &value, replicas));
                        match written {
                            Some((reached, kept)) => {
                                if reached {
                                    safe.lock().unwrap().push((key, value));
                                }
                                conn = Some(kept);
                            }
                            None => {
                                thread::sleep(Duration::from_millis(50));
                                port.store(self.primary_port(), Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
            thread::sleep(Duration::from_secs(1));
            run();
            thread::sleep(Duration::from_secs(1));
            is_over.store(true, Ordering::Relaxed);
        });
        safe.into_inner().unwrap()
    }

    /// Returns how many of these servers got more of the killed primary's stream than the second server did. They have
    /// data that the new primary lacks, and need a snapshot.
    fn ahead_of_the_second(&self, others: &[usize]) -> u64 {
        let reached = |index: usize| {
            let server = &self.servers[index];
            server.wait_until("the link is down", |server| info(server).contains("master_link_status:down"));
            server.figure("slave_repl_offset")
        };
        let second = reached(1);
        others.iter().filter(|&&index| reached(index) > second).count() as u64
    }

    /// Checks that the promoted server has every write that all replicas had acknowledged, or a later one of the same
    /// key.
    fn has_all(&self, safe: &[(String, String)]) {
        let mut conn = self.servers[1].connect();
        for (key, value) in safe {
            let found = conn.cmd(&format!("GET {key}")).unwrap();
            let number = |text: &[u8]| String::from_utf8_lossy(text).parse::<u32>().unwrap_or(0);
            assert!(number(found.text()) >= number(value.as_bytes()), "{key} {value} {}", found.escaped());
        }
        assert!(safe.len() > 20, "{} writes were acknowledged", safe.len());
    }

    /// Checks that the second server is the primary, and that the others follow it with the same data.
    fn follows_the_second(&self, among: &[usize]) {
        let port = self.servers[1].port();
        self.until("the sentinels name the replica", |group| group.primary_port() == port);
        self.until("it is a primary", |group| info(&group.servers[1]).contains("role:master"));
        let followed = format!("master_port:{port}\r\n");
        self.until("the others follow it", |group| {
            let follows = |&index: &usize| {
                let info = info(&group.servers[index]);
                info.contains(&followed) && info.contains("master_link_status:up")
            };
            among.iter().all(follows)
        });
        for &index in among {
            wait_until_equal(&self.servers[1], &self.servers[index]);
        }
    }
}

/// Writes once, and returns whether this many replicas have the write. Returns None if the connection is unusable.
fn write(mut conn: Conn, key: &str, value: &str, replicas: usize) -> Option<(bool, Conn)> {
    conn.set_patience(Duration::from_secs(3)).ok()?;
    conn.send(format!("SET {key} {value}\r\nWAIT {replicas} {WAIT_MS}\r\n").as_bytes()).ok()?;
    let (set, waited) = (conn.read().ok()?, conn.read().ok()?);
    (set.text() == b"OK").then(|| (waited.integer() == Some(replicas as i64), conn))
}

/// The primary is killed under load, and returns without data.
fn survives_the_primary(kinds: &[Kind], sentinel: impl Fn(&str) -> Server) {
    let mut group = group(kinds, sentinel);
    let pid = group.servers[0].pid().to_string();
    let others: Vec<usize> = (2..kinds.len()).collect();
    let before = group.servers[1].figure("sync_full");
    let mut ahead = 0;
    let safe = group.under_load(|| {
        assert!(std::process::Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        ahead = group.ahead_of_the_second(&others);
        group.until("the replica is promoted", |group| group.primary_port() == group.servers[1].port());
    });
    group.servers[0].kill();
    group.follows_the_second(&others);
    group.has_all(&safe);
    let full = group.servers[1].figure("sync_full") - before;
    let partial = group.servers[1].figure("sync_partial_ok");
    assert_eq!(full + partial, others.len() as u64, "{}", group.servers[1].log());
    assert!(full <= ahead, "{full} of {ahead}\n{}", group.servers[1].log());
    group.servers[0].restart();
    let all: Vec<usize> = [0].into_iter().chain(others).collect();
    group.follows_the_second(&all);
}

#[test]
fn a_penstock_is_replaced_by_a_penstock() {
    survives_the_primary(&[Kind::Penstock, Kind::Penstock, Kind::Penstock], oracle_sentinel);
}

#[test]
fn a_penstock_is_replaced_by_another_server() {
    survives_the_primary(&[Kind::Penstock, Kind::Other, Kind::Penstock], oracle_sentinel);
}

#[test]
fn another_server_is_replaced_by_a_penstock() {
    survives_the_primary(&[Kind::Other, Kind::Penstock, Kind::Other, Kind::Penstock], oracle_sentinel);
}

#[test]
fn a_penstock_that_valkey_watches_is_replaced() {
    if Server::valkey9(&[]).is_none() {
        return;
    }
    let sentinel = |conf: &str| Server::valkey9(&[conf, "--sentinel"]).unwrap();
    survives_the_primary(&[Kind::Penstock, Kind::Penstock, Kind::Penstock], sentinel);
}

/// The primary is suspended until it has been replaced. When it continues, it still believes to be the primary, until a
/// sentinel tells it otherwise.
#[test]
fn a_suspended_primary_becomes_a_replica() {
    let group = group(&[Kind::Penstock, Kind::Penstock, Kind::Penstock], oracle_sentinel);
    let old = &group.servers[0];
    let mut waits = old.connect();
    waits.send(b"BLPOP nothing 0\r\n").unwrap();
    let safe = group.under_load(|| {
        signal(old, "STOP");
        group.until("the replica is promoted", |group| group.primary_port() == group.servers[1].port());
        signal(old, "CONT");
    });
    group.follows_the_second(&[0, 2]);
    group.has_all(&safe);
    // Sentinel closes its clients' connections, in the transaction that makes it a replica.
    let end = waits.read_to_close().unwrap();
    let end = String::from_utf8_lossy(&end);
    assert!(end.is_empty() || end.starts_with("-UNBLOCKED force unblock from blocking operation"), "{end}");
    assert!(old.log().contains("REPLICAOF 127.0.0.1:"));
}

/// SENTINEL FAILOVER without a fault, and back again.
#[test]
fn a_requested_failover_costs_no_snapshot() {
    let group = group(&[Kind::Penstock, Kind::Penstock], oracle_sentinel);
    let ports = [group.servers[0].port(), group.servers[1].port()];
    for (from, to) in [(0, 1), (1, 0)] {
        group.until("the sentinels have seen the last one", |group| {
            let replica = fields(&group.sentinels[0], "SENTINEL MASTER group");
            replica("num-slaves") == "1" && replica("flags") == "master" && group.primary_port() == ports[from]
        });
        group.until("it is accepted", |group| {
            text(&group.sentinels[0], "SENTINEL FAILOVER group") == "OK" || group.primary_port() == ports[to]
        });
        group.until("the other one is the primary", |group| group.primary_port() == ports[to]);
        group.until("the old one follows it", |group| {
            let info = info(&group.servers[from]);
            info.contains("role:slave") && info.contains("master_link_status:up")
        });
        wait_until_equal(&group.servers[to], &group.servers[from]);
    }
    let full = [0, 1].map(|index| group.servers[index].figure("sync_full"));
    let told = |index: usize| format!("{}\n{}", info(&group.servers[index]), group.servers[index].log());
    assert_eq!(full, [1, 0], "{}\n{}", told(0), told(1));
}
