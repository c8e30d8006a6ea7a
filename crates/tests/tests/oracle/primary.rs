//! Penstock with replicas that are Penstock or redis-server: random work, cut links, chains, failovers, equal data at
//! equal offsets.
//!
//! `PENSTOCK_ORACLE` selects another server as the replica: Valkey or a newer Redis.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::thread;
use std::time::{Duration, Instant};

use penstock_tests::breaker::Breaker;
use penstock_tests::certificates::Certificates;
use penstock_tests::families;
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;

use super::links::{
    Kind, PRIMARY, STREAMS, is_up, oracle_of, persist_all, replica_of, signal, text, wait_until_equal, work, work_of,
};

/// Starts a primary on two threads with a large enough backlog for every replica.
fn primary(more: &[&str]) -> Server {
    let args = ["--threads", "2", "--repl-backlog-size", "64mb", "--enable-debug-command", "yes"];
    Server::penstock(&[&args[..], more].concat())
}

fn has_all(primary: &Server, kind: Kind, seed: u64) {
    work(primary, seed, STREAMS);
    let replica = kind(primary.port(), &[]);
    work(primary, seed + 10, STREAMS);
    replica.wait_until("the link is up", is_up);
    work(primary, seed + 20, STREAMS);
    persist_all(primary);
    wait_until_equal(primary, &replica);
    assert_eq!(primary.figure("sync_full"), 1);
    assert_no_failures(&replica);
}

/// Asserts that no replicated command failed.
fn assert_no_failures(replica: &Server) {
    let log = replica.log();
    assert!(!log.contains("could not be applied") && !log.contains("CRITICAL"), "{log}");
}

#[test]
fn a_penstock_has_what_its_primary_has() {
    has_all(&primary(&[]), replica_of, 100);
}

#[test]
fn another_server_has_what_its_primary_has() {
    has_all(&primary(&[]), oracle_of, 200);
}

/// Suggestions written before the replica connects, during its snapshot, and afterwards: increments, payloads,
/// removals.
#[test]
fn a_penstock_has_the_suggestions_that_its_primary_has() {
    let families = [&families::SUGGESTIONS];
    let primary = primary(&[]);
    work_of(&families, &primary, 1000, STREAMS);
    let replica = replica_of(primary.port(), &[]);
    work_of(&families, &primary, 1010, STREAMS);
    replica.wait_until("the link is up", is_up);
    work_of(&families, &primary, 1020, STREAMS);
    let mut conn = primary.connect();
    for line in [
        "FT.SUGADD kept text 0.1",
        "FT.SUGADD kept text 0.2 INCR PAYLOAD p",
        "FT.SUGADD kept t 3 PAYLOAD q",
        "FT.SUGDEL kept t",
    ] {
        assert!(!conn.cmd(line).unwrap().is_error(), "{line}");
    }
    persist_all(&primary);
    wait_until_equal(&primary, &replica);
    assert_no_failures(&replica);
    let found = "FT.SUGGET kept t WITHSCORES WITHPAYLOADS";
    let best = replica.connect().cmd(found).unwrap();
    assert_eq!(best.items().len(), 3, "{}", best.escaped());
    assert_eq!(best, conn.cmd(found).unwrap());
}

/// The snapshot is complete before it is sent, with its length in front.
#[test]
fn a_snapshot_is_sent_whole() {
    has_all(&primary(&["--repl-diskless-sync", "no"]), oracle_of, 300);
    has_all(&primary(&["--repl-diskless-sync", "no"]), replica_of, 400);
}

fn goes_on(kind: Kind, seed: u64) {
    let primary = primary(&[]);
    work(&primary, seed, STREAMS / 4);
    let mut first = true;
    let mut rng = Rng::new(seed);
    let breaker = Breaker::start_with(primary.port(), move || {
        // A large budget, so that the snapshot gets through.
        let back = if std::mem::take(&mut first) { 1 << 20 } else { 200 + rng.below(20_000) };
        [1 << 30, back]
    });
    let replica = kind(breaker.port(), &[]);
    replica.wait_until("the link is up", is_up);
    work(&primary, seed + 1, STREAMS);
    persist_all(&primary);
    wait_until_equal(&primary, &replica);
    assert!(breaker.broken() > 5, "{}", breaker.broken());
    assert_eq!(primary.figure("sync_full"), 1, "{}", primary.log());
    assert!(primary.figure("sync_partial_ok") > 5);
    assert_no_failures(&replica);
}

#[test]
fn a_penstock_whose_link_is_cut_goes_on() {
    goes_on(replica_of, 500);
}

#[test]
fn another_server_whose_link_is_cut_goes_on() {
    goes_on(oracle_of, 600);
}

/// A client with the reply to a write reads an offset that includes the write: tools wait until a replica has this offset.
#[test]
fn the_offset_includes_all_writes_with_a_reply() {
    let primary = primary(&[]);
    let replica = replica_of(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    let (mut conn, mut role) = (primary.connect(), primary.connect());
    let before = primary.figure("master_repl_offset");
    for n in 0..500_u64 {
        conn.cmd("SET k v").unwrap();
        // The stream has 27 bytes for each write at least, and pings.
        let Reply::Many(_, fields) = role.cmd("ROLE").unwrap() else { panic!("ROLE returns an array") };
        let offset: u64 = String::from_utf8_lossy(fields[1].text()).parse().unwrap();
        assert!(offset >= before + 27 * (n + 1), "{offset} after {n} writes, {before} before");
    }
    let offset = primary.figure("master_repl_offset");
    assert!(offset >= before + 500 * 27);
}

/// A replica has replicas of its own, with the same offsets everywhere.
#[test]
fn chains_have_what_the_first_has() {
    for (first, seed) in [(primary(&[]), 700), (Server::oracle(PRIMARY), 800)] {
        work(&first, seed, STREAMS / 2);
        let second = replica_of(first.port(), &["--repl-backlog-size", "64mb"]);
        second.wait_until("the link is up", is_up);
        let third = [oracle_of(second.port(), &[]), replica_of(second.port(), &[])];
        third.iter().for_each(|server| server.wait_until("the link is up", is_up));
        work(&first, seed + 1, STREAMS);
        persist_all(&first);
        for server in [&second, &third[0], &third[1]] {
            wait_until_equal(&first, server);
            assert_no_failures(server);
        }
        assert_eq!(second.figure("sync_full"), 2);
    }
}

fn follow(server: &Server, primary: &Server) {
    let command = format!("REPLICAOF 127.0.0.1 {}", primary.port());
    assert_eq!(server.connect().cmd(&command).unwrap().text(), b"OK");
}

/// A replica replaces its primary: the other replicas and the old primary continue without a snapshot.
#[test]
fn a_failover_costs_no_snapshot() {
    let old = primary(&[]);
    work(&old, 900, STREAMS / 4);
    let new = replica_of(old.port(), &["--repl-backlog-size", "64mb"]);
    let others = [oracle_of(old.port(), &[]), replica_of(old.port(), &[])];
    for server in [&new, &others[0], &others[1]] {
        server.wait_until("the link is up", is_up);
    }
    work(&old, 901, STREAMS / 4);
    persist_all(&old);
    for server in [&new, &others[0], &others[1]] {
        wait_until_equal(&old, server);
    }
    assert_eq!(new.connect().cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
    work(&new, 902, STREAMS / 4);
    for server in [&old, &others[0], &others[1]] {
        follow(server, &new);
        server.wait_until("the link is up", is_up);
    }
    work(&new, 903, STREAMS / 4);
    persist_all(&new);
    for server in [&old, &others[0], &others[1]] {
        wait_until_equal(&new, server);
        assert_no_failures(server);
    }
    assert_eq!((new.figure("sync_full"), new.figure("sync_partial_ok")), (0, 3), "{}", new.log());
}

/// Replicas that connect at the same time get one common snapshot.
#[test]
fn several_replicas_share_a_snapshot() {
    let primary = primary(&[]);
    primary.connect().cmd("DEBUG POPULATE 300000 key 100").unwrap();
    let replicas: Vec<Server> = thread::scope(|scope| {
        let started: Vec<_> = (0..3).map(|_| scope.spawn(|| replica_of(primary.port(), &[]))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for replica in &replicas {
        replica.wait_until("the link is up", is_up);
        wait_until_equal(&primary, replica);
    }
    assert_eq!(primary.figure("sync_full"), 3);
    let made = primary.log().matches("Snapshot saved").count();
    assert!(made < 3, "{made} snapshots were made");
}

/// DEBUG POPULATE stays on its server, as in Redis and Valkey, which would refuse it as a replica.
#[test]
fn made_up_keys_are_not_replicated() {
    let primary = primary(&[]);
    for kind in [replica_of as Kind, oracle_of] {
        // A replica must not begin with the keys of the previous one: it would seem to have the later write at once.
        let mut conn = primary.connect();
        conn.cmd("FLUSHALL").unwrap();
        let replica = kind(primary.port(), &[]);
        replica.wait_until("the link is up", is_up);
        assert_eq!(conn.cmd("DEBUG POPULATE 20 made").unwrap().text(), b"OK");
        conn.cmd("SET after 1").unwrap();
        replica.wait_until("it has the later write", |replica| text(replica, "GET after") == "1");
        let size = |server: &Server| server.connect().cmd("DBSIZE").unwrap().integer();
        assert_eq!((size(&primary), size(&replica)), (Some(21), Some(1)));
        assert_no_failures(&replica);
    }
}

#[test]
fn wait_returns_how_many_replicas_have_the_writes() {
    let primary = primary(&[]);
    let mut conn = primary.connect();
    assert_eq!(conn.cmd("WAIT 0 0").unwrap().integer(), Some(0));
    assert_eq!(conn.cmd("WAIT 1 50").unwrap().integer(), Some(0));
    let replicas = [replica_of(primary.port(), &[]), oracle_of(primary.port(), &[])];
    replicas.iter().for_each(|replica| replica.wait_until("the link is up", is_up));
    primary.wait_until("both are online", |primary| primary.log().matches("asks for all data").count() == 2);
    for number in 0..50 {
        conn.cmd(&format!("SET k {number}")).unwrap();
        let began = Instant::now();
        assert_eq!(conn.cmd("WAIT 2 20000").unwrap().integer(), Some(2));
        assert!(began.elapsed() < Duration::from_secs(10));
        for replica in &replicas {
            assert_eq!(replica.connect().cmd("GET k").unwrap().text(), number.to_string().as_bytes());
        }
    }
    // Several pipelined clients on both threads.
    thread::scope(|scope| {
        for client in 0..8 {
            let primary = &primary;
            scope.spawn(move || {
                let mut conn = primary.connect();
                for round in 0..20 {
                    conn.send(format!("SET {client}:{round} v\r\nWAIT 2 20000\r\nGET {client}:{round}\r\n").as_bytes())
                        .unwrap();
                    let replies = [conn.read().unwrap(), conn.read().unwrap(), conn.read().unwrap()];
                    assert_eq!((replies[1].integer(), replies[2].text()), (Some(2), &b"v"[..]));
                }
            });
        }
    });
    let refused = replicas[0].connect().cmd("WAIT 1 1").unwrap();
    assert!(refused.text().starts_with(b"ERR WAIT cannot be used with replica instances"), "{}", refused.escaped());
    conn.cmd("MULTI").unwrap();
    conn.cmd("SET k last").unwrap();
    conn.cmd("WAIT 5 0").unwrap();
    // WAIT does not block within a transaction, and the transaction's changes are not sent yet.
    assert_eq!(conn.cmd("EXEC").unwrap().items()[1].integer(), Some(2));
    // A stopped replica does not get the write.
    conn.cmd("WAIT 2 20000").unwrap();
    signal(&replicas[0], "STOP");
    conn.cmd("SET k stopped").unwrap();
    assert_eq!(conn.cmd("WAIT 2 300").unwrap().integer(), Some(1));
    signal(&replicas[0], "CONT");
    assert_eq!(conn.cmd("WAIT 2 20000").unwrap().integer(), Some(2));
}

#[test]
fn writes_are_refused_with_too_few_replicas() {
    let primary = primary(&["--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"]);
    let mut conn = primary.connect();
    let mut refused = || {
        let reply = conn.cmd("SET k v").unwrap();
        reply.text() == b"NOREPLICAS Not enough good replicas to write."
    };
    assert!(penstock_tests::server::comes_true(&mut refused));
    let replica = replica_of(primary.port(), &[]);
    assert!(penstock_tests::server::comes_true(|| !refused()));
    assert!(penstock_tests::server::comes_true(|| text(&replica, "GET k") == "v"));
    signal(&replica, "STOP");
    assert!(penstock_tests::server::comes_true(&mut refused));
    signal(&replica, "CONT");
    assert!(penstock_tests::server::comes_true(|| !refused()));
}

/// The replica that replaces the primary knows the progress of a pipeline under its token.
#[test]
fn a_token_is_resumed_after_a_failover() {
    let primary = primary(&[]);
    let replicas = [replica_of(primary.port(), &[]), oracle_of(primary.port(), &[])];
    replicas.iter().for_each(|replica| replica.wait_until("the link is up", is_up));
    let mut conn = primary.connect();
    assert_eq!(conn.cmd("PIPELINE START loader").unwrap().text(), b"OK");
    for number in 0..100 {
        conn.cmd(&format!("INCR n{}", number % 7)).unwrap();
    }
    conn.cmd("MULTI").unwrap();
    conn.cmd("INCR n0").unwrap();
    conn.cmd("EXEC").unwrap();
    conn.cmd("LPUSH n0 x").unwrap();
    conn.cmd("GET n0").unwrap();
    let told = |conn: &mut penstock_tests::conn::Conn| conn.cmd("PIPELINE RESUME loader").unwrap().escaped();
    wait_until_equal(&primary, &replicas[0]);
    wait_until_equal(&primary, &replicas[1]);
    drop(conn);
    let [new, other] = &replicas;
    assert_eq!(new.connect().cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
    let (here, there) = (told(&mut new.connect()), told(&mut primary.connect()));
    assert_eq!(here, there);
    assert!(here.contains("105"), "{here}");
    assert_no_failures(other);
}

const NOT_ACKNOWLEDGED: &[u8] = b"NOREPLICAS Too few replicas have acknowledged within durability-timeout.";

/// With `durability-replicas`, acknowledged writes survive the primary, at full pipeline depth.
#[test]
fn acknowledged_writes_are_on_replicas() {
    for kind in [replica_of as Kind, oracle_of] {
        let mut primary = primary(&["--durability-replicas", "2", "--durability-timeout", "60000"]);
        let replicas = [kind(primary.port(), &[]), kind(primary.port(), &[])];
        replicas.iter().for_each(|replica| replica.wait_until("the link is up", is_up));
        let acknowledged: Vec<Vec<u64>> = thread::scope(|scope| {
            let clients: Vec<_> = (0..4)
                .map(|client| {
                    let port = primary.port();
                    scope.spawn(move || write_until_the_end(port, client))
                })
                .collect();
            thread::sleep(Duration::from_millis(1500));
            primary.kill();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let all: usize = acknowledged.iter().map(Vec::len).sum();
        assert!(all > 200, "only {all} writes");
        for replica in &replicas {
            let mut conn = replica.connect();
            for (client, numbers) in acknowledged.iter().enumerate() {
                for number in numbers {
                    let value = conn.cmd(&format!("GET {client}:{number}")).unwrap();
                    assert_eq!(value.text(), number.to_string().as_bytes(), "{client}:{number}");
                }
            }
        }
    }
}

/// Writes pipelines of 32 until the server ends. Returns the acknowledged writes.
fn write_until_the_end(port: u16, client: usize) -> Vec<u64> {
    let mut acknowledged = Vec::new();
    let Ok(mut conn) = penstock_tests::conn::Conn::open(port) else { return acknowledged };
    for first in (0..).step_by(32) {
        let sets: String = (first..first + 32).map(|number| format!("SET {client}:{number} {number}\r\n")).collect();
        if conn.send(sets.as_bytes()).is_err() {
            break;
        }
        for number in first..first + 32 {
            match conn.read() {
                Ok(reply) if reply.text() == b"OK" => acknowledged.push(number),
                _ => return acknowledged,
            }
        }
    }
    acknowledged
}

#[test]
fn replies_report_that_replicas_were_not_reached() {
    let primary = primary(&["--durability-replicas", "1", "--durability-timeout", "400"]);
    let mut conn = primary.connect();
    let refused = conn.cmd("SET k v").unwrap();
    assert!(refused.text().starts_with(NOT_ACKNOWLEDGED), "{}", refused.escaped());
    // Commands that depend on no write are answered.
    assert!(conn.cmd("GET other").unwrap().is_null());
    assert_eq!(conn.cmd("PING").unwrap().text(), b"PONG");
    let replica = replica_of(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    assert!(penstock_tests::server::comes_true(|| conn.cmd("SET k w").unwrap().text() == b"OK"));
    signal(&replica, "STOP");
    conn.send(b"SET k x\r\nINCR n\r\nGET other\r\nGET k\r\n").unwrap();
    let replies: Vec<_> = (0..4).map(|_| conn.read().unwrap()).collect();
    assert!(replies.iter().all(|reply| reply.text().starts_with(NOT_ACKNOWLEDGED)), "{replies:?}");
    signal(&replica, "CONT");
    assert!(penstock_tests::server::comes_true(|| conn.cmd("SET k y").unwrap().text() == b"OK"));
    assert_eq!(conn.cmd("GET n").unwrap().text(), b"1");
    // The setting can be turned off and on while the server runs.
    signal(&replica, "STOP");
    assert_eq!(conn.cmd("CONFIG SET durability-replicas 0").unwrap().text(), b"OK");
    assert_eq!(conn.cmd("SET k z").unwrap().text(), b"OK");
    assert_eq!(conn.cmd("CONFIG SET durability-replicas 1").unwrap().text(), b"OK");
    let refused = conn.cmd("SET k z").unwrap();
    assert!(refused.text().starts_with(NOT_ACKNOWLEDGED), "{}", refused.escaped());
    signal(&replica, "CONT");
}

#[test]
fn waitaof_returns_which_disks_have_the_writes() {
    let primary = primary(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let replica = replica_of(primary.port(), &["--appendonly", "yes", "--appendfsync", "everysec"]);
    let without = replica_of(primary.port(), &[]);
    [&replica, &without].iter().for_each(|replica| replica.wait_until("the link is up", is_up));
    let mut conn = primary.connect();
    conn.cmd("SET k v").unwrap();
    let has = |reply: penstock_tests::reply::Reply| {
        reply.items().iter().map(|item| item.integer().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(has(conn.cmd("WAITAOF 1 1 30000").unwrap()), [1, 1]);
    conn.cmd("SET k w").unwrap();
    assert_eq!(has(conn.cmd("WAITAOF 1 2 3000").unwrap()), [1, 1]);
    let refused = replica.connect().cmd("WAITAOF 1 0 0").unwrap();
    assert!(refused.text().starts_with(b"ERR WAITAOF cannot be used with replica instances"), "{}", refused.escaped());
    conn.cmd("CONFIG SET appendonly no").unwrap();
    let refused = conn.cmd("WAITAOF 1 0 0").unwrap();
    assert_eq!(refused.text(), b"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
    assert_eq!(conn.cmd("WAITAOF 2 0 0").unwrap().text(), b"ERR value is out of range, value must between 0 and 1");
    assert_eq!(has(conn.cmd("WAITAOF 0 1 30000").unwrap()), [0, 1], "without a file, nothing is on this disk");
    assert_eq!(conn.cmd("WAIT -1 0").unwrap().integer(), Some(2), "fewer than none is none");
}

#[test]
fn waitaof_for_the_local_disk_ends_with_the_file() {
    let server = primary(&["--appendonly", "yes", "--appendfsync", "no"]);
    let (mut conn, mut operator) = (server.connect(), server.connect());
    conn.cmd("SET k v").unwrap();
    // The system syncs the file at an unknown time.
    assert_eq!(conn.cmd("WAITAOF 1 0 100").unwrap().items()[0].integer(), Some(0));
    conn.send(b"WAITAOF 1 0 0\r\n").unwrap();
    server.wait_until("it waits", |server| server.figure("blocked_clients") == 1);
    operator.cmd("CONFIG SET appendonly no").unwrap();
    let ended = conn.read().unwrap();
    assert_eq!(ended.text(), b"ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.");
}

/// FAILOVER: a replica replaces the primary under load, and no acknowledged write is lost.
#[test]
fn a_requested_failover_loses_nothing() {
    for (first, second) in
        [(primary as fn(&[&str]) -> Server, replica_of as Kind), (primary, oracle_of), (oracle, replica_of)]
    {
        let old = first(&[]);
        let [new, other] = [second(old.port(), &["--repl-backlog-size", "64mb"]), replica_of(old.port(), &[])];
        [&new, &other].iter().for_each(|replica| replica.wait_until("the link is up", is_up));
        old.wait_until("both are online", |old| text(old, "INFO replication").matches("state=online").count() == 2);
        let acknowledged: Vec<u64> = thread::scope(|scope| {
            let writer = scope.spawn(|| write_until_refused(&old));
            thread::sleep(Duration::from_millis(300));
            let command = format!("FAILOVER TO 127.0.0.1 {} TIMEOUT 20000", new.port());
            assert_eq!(old.connect().cmd(&command).unwrap().text(), b"OK");
            writer.join().unwrap()
        });
        assert!(acknowledged.len() > 30, "{}", acknowledged.len());
        old.wait_until("it follows the new one", is_up);
        assert!(text(&new, "INFO replication").contains("role:master"));
        assert!(text(&old, "INFO replication").contains("master_failover_state:no-failover"));
        let mut conn = new.connect();
        for number in &acknowledged {
            assert_eq!(conn.cmd(&format!("GET n:{number}")).unwrap().text(), b"v", "{number}");
        }
        assert_eq!(conn.cmd("SET after 1").unwrap().text(), b"OK");
        follow(&other, &new);
        other.wait_until("it follows the new one", is_up);
        wait_until_equal(&new, &old);
        wait_until_equal(&new, &other);
        assert_eq!(new.figure("sync_full"), 0, "{}", new.log());
    }
}

fn oracle(more: &[&str]) -> Server {
    Server::oracle(&[PRIMARY, more].concat())
}

/// Writes one by one until the server reports that it is a replica.
fn write_until_refused(server: &Server) -> Vec<u64> {
    let mut conn = server.connect();
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let reply = conn.cmd(&format!("SET n:{number} v")).unwrap();
        match reply.text() {
            b"OK" => acknowledged.push(number),
            text => {
                assert!(text.starts_with(b"READONLY"), "{}", reply.escaped());
                break;
            }
        }
    }
    acknowledged
}

#[test]
fn a_failover_is_aborted_by_timeout_or_command() {
    let primary = primary(&[]);
    let replica = replica_of(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    primary.wait_until("it is online", |old| text(old, "INFO replication").contains("state=online"));
    let mut conn = primary.connect();
    assert_eq!(conn.cmd("SET k v").unwrap().text(), b"OK");
    signal(&replica, "STOP");
    conn.cmd("SET k w").unwrap();
    assert_eq!(conn.cmd("FAILOVER TIMEOUT 700").unwrap().text(), b"OK");
    assert!(text(&primary, "INFO replication").contains("master_failover_state:waiting-for-sync"));
    assert_eq!(conn.cmd("FAILOVER").unwrap().text(), b"ERR FAILOVER already in progress.");
    // The write waits until the failover has ended.
    assert_eq!(conn.cmd("SET k x").unwrap().text(), b"OK");
    assert!(text(&primary, "INFO replication").contains("master_failover_state:no-failover"));
    assert_eq!(conn.cmd("FAILOVER").unwrap().text(), b"OK");
    assert_eq!(conn.cmd("FAILOVER ABORT").unwrap().text(), b"OK");
    assert_eq!(conn.cmd("SET k y").unwrap().text(), b"OK");
    assert_eq!(conn.cmd("FAILOVER ABORT").unwrap().text(), b"ERR No failover in progress.");
    let unknown = conn.cmd("FAILOVER TO 127.0.0.1 1").unwrap();
    assert_eq!(unknown.text(), b"ERR FAILOVER target HOST and PORT is not a replica.");
    let unlimited = conn.cmd(&format!("FAILOVER TO 127.0.0.1 {} FORCE", replica.port())).unwrap();
    assert!(unlimited.text().starts_with(b"ERR FAILOVER with force option requires both a timeout"));
    signal(&replica, "CONT");
    wait_until_equal(&primary, &replica);
    let refused = replica.connect().cmd("FAILOVER").unwrap();
    assert_eq!(refused.text(), b"ERR FAILOVER is not valid when server is a replica.");
}

/// A large backlog for a replica goes to disk, and the replica catches up without a snapshot.
#[test]
fn a_replica_that_is_far_behind_catches_up_from_disk() {
    let limits = ["--client-output-buffer-limit", "replica", "8mb", "2mb", "60", "--repl-backlog-size", "1mb"];
    for kind in [replica_of as Kind, oracle_of] {
        let primary = Server::penstock(&[&["--threads", "2", "--enable-debug-command", "yes"], &limits[..]].concat());
        let replica = kind(primary.port(), &[]);
        replica.wait_until("the link is up", is_up);
        signal(&replica, "STOP");
        let before_kib = primary.resident_kib();
        let value = "v".repeat(100_000);
        let mut conn = primary.connect();
        // The thread that writes the file may wait for a core meanwhile: 5 MB at most are on their way to it.
        for round in 1..=12 {
            for key in 0..50 {
                assert_eq!(conn.cmd(&format!("SET k{key} {value}")).unwrap().text(), b"OK");
            }
            let on_disk = (round * 50 * 100_000_u64).saturating_sub(20 << 20);
            let is_on_disk = |primary: &Server| primary.nameless_files().iter().sum::<u64>() > on_disk;
            primary.wait_until("most is on disk", |primary| on_disk == 0 || is_on_disk(primary));
        }
        let grown_kib = primary.resident_kib().saturating_sub(before_kib);
        assert!(grown_kib < 40 << 10, "{grown_kib} KiB more");
        signal(&replica, "CONT");
        wait_until_equal(&primary, &replica);
        assert_eq!(primary.figure("sync_full"), 1, "{}", primary.log());
        primary.wait_until("the file is gone", |primary| primary.nameless_files().is_empty());
    }
}

/// Buffered data for a replica evicts no keys: the deletions would add to the buffer.
#[test]
fn a_replica_that_is_far_behind_has_no_keys_evicted() {
    let primary = primary(&["--maxmemory-policy", "allkeys-lru", "--repl-backlog-size", "1mb"]);
    let replica = replica_of(primary.port(), &["--maxmemory", "1mb"]);
    replica.wait_until("the link is up", is_up);
    signal(&replica, "STOP");
    let mut conn = primary.connect();
    let limit = primary.figure("used_memory") + (16 << 20);
    assert_eq!(conn.cmd(&format!("CONFIG SET maxmemory {limit}")).unwrap().text(), b"OK");
    let value = "v".repeat(10_000);
    let mut write = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            assert_eq!(conn.cmd(&format!("SET k{number} {value}")).unwrap().text(), b"OK");
        }
    };
    write(0..1000);
    // As many writes again, but no more data.
    (0..3).for_each(|_| write(0..1000));
    assert_eq!(primary.figure("evicted_keys"), 0);
    assert!(primary.figure("mem_not_counted_for_evict") > 10 << 20);
    assert_eq!(primary.figure("mem_replication_backlog"), 1 << 20);
    // More data evicts keys.
    write(1000..3000);
    assert!(primary.figure("evicted_keys") > 0);
    assert!(primary.connect().cmd("DBSIZE").unwrap().integer().unwrap() > 1000);
    signal(&replica, "CONT");
    wait_until_equal(&primary, &replica);
    primary.wait_until("nothing waits", |primary| primary.figure("mem_not_counted_for_evict") < 1 << 20);
}

/// A replica with data and without room for the primary's snapshot keeps its data, says what to do, and tries again.
#[test]
fn a_replica_without_room_for_a_snapshot_keeps_its_data() {
    let primary = primary(&[]);
    let mut conn = primary.connect();
    let mut rng = Rng::new(5);
    for number in 0..300 {
        let value: String = (0..1000).map(|_| char::from(b'!' + rng.below(90) as u8)).collect();
        assert_eq!(conn.call(&[b"SET".to_vec(), format!("k{number}").into(), value.into()]).unwrap().text(), b"OK");
    }
    let replica = Server::penstock_with_small_files(&["--save", "", "--enable-debug-command", "yes"], 200);
    assert_eq!(replica.connect().cmd("SET old 1").unwrap().text(), b"OK");
    let follow = format!("REPLICAOF 127.0.0.1 {}", primary.port());
    assert_eq!(replica.connect().cmd(&follow).unwrap().text(), b"OK");
    replica.wait_until("it says what to do", |replica| replica.log().contains("set repl-diskless-load to"));
    assert_eq!(replica.connect().cmd("GET old").unwrap().text(), b"1");
    replica.lift_file_limit();
    replica.wait_until("the link is up", is_up);
    wait_until_equal(&primary, &replica);
}

/// Without room on disk for its data, a replica is dropped, and gets a snapshot.
#[test]
fn a_replica_that_is_too_far_behind_gets_a_snapshot() {
    let limits = ["--client-output-buffer-limit", "replica", "0", "1mb", "60", "--reply-spill-limit", "2mb"];
    let primary = Server::penstock(&[&["--threads", "2", "--enable-debug-command", "yes"], &limits[..]].concat());
    let replica = replica_of(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    signal(&replica, "STOP");
    let value = "v".repeat(100_000);
    let mut conn = primary.connect();
    for number in 0..300 {
        assert_eq!(conn.cmd(&format!("SET k{} {value}", number % 50)).unwrap().text(), b"OK");
    }
    primary.wait_until("it is left behind", |primary| primary.log().contains("reply-spill-limit"));
    signal(&replica, "CONT");
    wait_until_equal(&primary, &replica);
    assert_eq!(primary.figure("sync_full"), 2, "{}", primary.log());
}

/// Encrypted links in both directions with redis-server; a replica that doesn't trust the primary's authority gets no
/// link.
#[test]
fn links_are_encrypted() {
    let certificates = Certificates::create();
    let files = ["client.pem", "client.key", "ca.pem"].map(|name| certificates.text(name));
    let [cert, key, ca] = &files;
    let as_replica = [
        "--tls-replication",
        "yes",
        "--tls-ca-cert-file",
        ca,
        "--tls-client-cert-file",
        cert,
        "--tls-client-key-file",
        key,
    ];
    let (mine, my_port) = certificates.penstock("yes", &["--threads", "2", "--enable-debug-command", "yes"]);
    let (other, other_port) = certificates.server(true);
    other.connect().cmd("CONFIG SET repl-diskless-sync-delay 0").unwrap();
    let redis_files = ["--tls-cert-file", cert, "--tls-key-file", key];
    for (primary, port, kind, more) in [
        (&mine, my_port, replica_of as Kind, &[][..]),
        (&mine, my_port, oracle_of, &redis_files[..]),
        (&other, other_port, replica_of, &[]),
    ] {
        work(primary, 1000 + u64::from(port), 4);
        let replica = kind(port, &[&as_replica[..], more].concat());
        replica.wait_until("the link is up", is_up);
        let value = "v".repeat(3_000_000);
        let mut conn = primary.connect();
        for number in 0..5 {
            conn.cmd(&format!("SET large{number} {value}")).unwrap();
        }
        let has_all = || replica.connect().cmd("STRLEN large4").unwrap().integer() == Some(3_000_000);
        assert!(penstock_tests::server::comes_true(has_all));
        // The last of these writes may be in the snapshot already.
        let is_equal = || primary.figure("master_repl_offset") == replica.figure("slave_repl_offset");
        assert!(penstock_tests::server::comes_true(is_equal));
    }
    // Without the authority's certificate, and without a client certificate.
    let stranger =
        replica_of(my_port, &["--tls-replication", "yes", "--tls-ca-cert-file", &certificates.text("stranger.pem")]);
    stranger.wait_until("it says so", |stranger| stranger.log().contains("invalid peer certificate"));
    let plain = replica_of(my_port, &[]);
    plain.wait_until("it says so", |plain| plain.log().contains("The link to the primary"));
    let nameless = replica_of(my_port, &["--tls-replication", "yes"]);
    nameless.wait_until("it says what to do", |server| server.log().contains("tls-replication needs tls-ca-cert-file"));
    assert!(![stranger, plain, nameless].iter().any(is_up));
}

/// A primary that is replaced doesn't know whether replicas have the pending writes: its replies say so, and never
/// claim that the writes are safe.
#[test]
fn pending_replies_report_that_the_primary_was_replaced() {
    for more in [&[][..], &["--appendonly", "yes", "--appendfsync", "always"]] {
        let old = primary(&[&["--durability-replicas", "1", "--durability-timeout", "0"], more].concat());
        let replica = replica_of(old.port(), &[]);
        replica.wait_until("the link is up", is_up);
        let mut conn = old.connect();
        assert!(penstock_tests::server::comes_true(|| conn.cmd("SET k v").unwrap().text() == b"OK"));
        signal(&replica, "STOP");
        conn.send(b"SET k w\r\nINCR n\r\nGET other\r\n").unwrap();
        thread::sleep(Duration::from_millis(200));
        assert_eq!(old.connect().cmd("REPLICAOF 127.0.0.1 1").unwrap().text(), b"OK");
        for _ in 0..3 {
            let reply = conn.read().unwrap();
            assert!(reply.text().starts_with(NOT_ACKNOWLEDGED), "{}", reply.escaped());
        }
        // Later replies wait for no replica.
        assert_eq!(conn.cmd("GET k").unwrap().text(), b"w");
        signal(&replica, "CONT");
        assert_eq!(old.connect().cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
        assert!(penstock_tests::server::comes_true(|| conn.cmd("SET k x").unwrap().text() == b"OK"));
    }
}
