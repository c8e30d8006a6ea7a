//! Data that the other side of a link can't use: snapshots that can't be loaded, commands that fail on the replica, and
//! a closed connection.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::server::Server;

use super::links::{PRIMARY, is_up, oracle_of, penstock, replica_of, text, wait_until_equal};

/// Duration of the observation: without pauses there would be dozens of attempts.
const WATCHED: Duration = Duration::from_secs(5);

/// Requests a full sync as a replica with this port does, and waits for the beginning of the snapshot, but only until
/// `until`.
fn ask_for_snapshot(port: u16, listens: u16, until: Instant) -> Conn {
    let mut conn = Conn::open(port).unwrap();
    for said in [&format!("REPLCONF listening-port {listens}"), "REPLCONF capa eof capa psync2"] {
        assert_eq!(conn.cmd(said).unwrap().text(), b"OK");
    }
    conn.send(b"PSYNC ? -1\r\n").unwrap();
    let mut received = Vec::new();
    while !received.windows(5).any(|window| window == b"REDIS") && Instant::now() < until {
        received.extend(conn.read_for(Duration::from_millis(50)).unwrap().0);
    }
    conn
}

/// A replica that closes the connection instead of loading its snapshot waits ever longer for the next one. Other
/// replicas don't.
#[test]
fn a_replica_that_can_not_load_is_sent_few_snapshots() {
    let primary = penstock();
    primary.connect().cmd("SET k v").unwrap();
    let until = Instant::now() + WATCHED;
    while Instant::now() < until {
        drop(ask_for_snapshot(primary.port(), 7777, until));
    }
    let sent = primary.figure("sync_full");
    assert!((2..=4).contains(&sent), "{sent} snapshots were sent");
    let log = primary.log();
    assert!(log.contains("127.0.0.1:7777 ends: it has closed the connection without loading the snapshot"), "{log}");
    assert!(log.contains("see its own log"), "{log}");
    let replica = replica_of(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    wait_until_equal(&primary, &replica);
    // As in Redis, replicas are no clients there.
    primary.wait_until("only this client is counted", |primary| primary.figure("connected_clients") == 1);
}

/// Tools read the snapshot and close the connection, for example `redis-cli --rdb` for each backup.
#[test]
fn a_tool_that_only_reads_snapshots_gets_each_at_once() {
    let primary = penstock();
    primary.connect().cmd("SET k v").unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    for _ in 0..6 {
        let mut tool = Conn::open(primary.port()).unwrap();
        tool.send(b"SYNC\r\n").unwrap();
        let mut received = Vec::new();
        while !received.windows(5).any(|window| window == b"REDIS") && Instant::now() < until {
            received.extend(tool.read_for(Duration::from_millis(20)).unwrap().0);
        }
    }
    // Growing pauses would add up to 31 seconds.
    assert!(Instant::now() + Duration::from_secs(40) < until);
}

/// A fake primary. Its snapshots contain a value of an unknown type.
fn unknown_primary(tries: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (mut socket, mut buffer) = (socket.unwrap(), [0; 4096]);
            let full = format!("+FULLRESYNC {} 0\r\n$12\r\n", "a".repeat(40));
            let snapshot = [full.as_bytes(), b"REDIS0011\xc8\x01k"].concat();
            for answer in [&b"+PONG\r\n"[..], b"+OK\r\n+OK\r\n+OK\r\n", &snapshot] {
                if socket.read(&mut buffer).unwrap_or(0) == 0 || socket.write_all(answer).is_err() {
                    break;
                }
            }
            tries.fetch_add(1, Ordering::SeqCst);
            // Until the replica gives up.
            while socket.read(&mut buffer).unwrap_or(0) > 0 {}
        }
    });
    port
}

#[test]
fn a_snapshot_that_cannot_be_loaded_is_reported_and_requested_ever_less() {
    let tries = Arc::new(AtomicUsize::new(0));
    let port = unknown_primary(tries.clone());
    let server = penstock();
    server.connect().cmd(&format!("REPLICAOF 127.0.0.1 {port}")).unwrap();
    thread::sleep(WATCHED);
    let tries = tries.load(Ordering::SeqCst);
    assert!((2..=7).contains(&tries), "{tries} tries");
    let told = "the primary's snapshot can't be loaded: ";
    let info = text(&server, "INFO replication");
    assert!(info.contains(&format!("master_link_error:{told}")), "{info}");
    assert!(server.log().contains(told) && server.log().contains("Another try follows"), "{}", server.log());
    // The error is reported no longer after another REPLICAOF.
    server.connect().cmd("REPLICAOF NO ONE").unwrap();
    assert!(!text(&server, "INFO replication").contains("master_link_error"));
}

/// A fake primary without data, which sends `stream` to the first replica, and closes the connection without having
/// read the acknowledgement.
fn ending_primary(stream: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut socket, mut buffer) = (listener.accept().unwrap().0, [0; 4096]);
        let full = format!("+FULLRESYNC {} 0\r\n$18\r\n", "a".repeat(40));
        let snapshot = [full.as_bytes(), b"REDIS0011\xff", &[0; 8]].concat();
        for answer in [&b"+PONG\r\n"[..], b"+OK\r\n+OK\r\n+OK\r\n", &snapshot] {
            assert!(socket.read(&mut buffer).unwrap() > 0);
            socket.write_all(answer).unwrap();
        }
        // The snapshot is loaded, and the first acknowledgement stays unread, so the system ends the connection with a
        // reset.
        socket.peek(&mut buffer).unwrap();
        socket.write_all(&stream).unwrap();
    });
    port
}

/// The replica can't report its offset any more, but must not discard the received data: no other replica may have
/// more.
#[test]
fn data_received_before_the_link_ended_is_applied() {
    const WRITES: usize = 400;
    let write = |number| {
        format!(
            "*3\r\n$3\r\nSET\r\n$4\r\n{number:04}\r\n$1\r\nv\r\n*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n"
        )
    };
    let port = ending_primary((0..WRITES).map(write).collect::<String>().into_bytes());
    let replica = replica_of(port, &["--replica-serve-stale-data", "yes"]);
    replica.wait_until("the link has ended", |replica| replica.log().contains("is down: Connection reset by peer"));
    assert_eq!(replica.connect().cmd("DBSIZE").unwrap().integer(), Some(WRITES as i64), "{}", replica.log());
}

/// As in Redis: a line in the log, and a figure.
#[test]
fn a_command_that_fails_on_the_replica_is_reported() {
    for (primary, kind) in [
        (penstock(), replica_of as fn(u16, &[&str]) -> Server),
        (penstock(), oracle_of),
        (Server::oracle(PRIMARY), replica_of),
    ] {
        let replica = kind(primary.port(), &["--replica-read-only", "no"]);
        replica.wait_until("the link is up", is_up);
        assert_eq!(replica.connect().cmd("SET k mine").unwrap().text(), b"OK");
        assert_eq!(replica.figure("unexpected_error_replies"), 0);
        primary.connect().cmd("RPUSH k a").unwrap();
        replica.wait_until("it is told", |replica| replica.log().contains("== CRITICAL =="));
        replica.wait_until("it is counted", |replica| replica.figure("unexpected_error_replies") == 1);
        assert!(text(&replica, "INFO errorstats").contains("errorstat_WRONGTYPE:count=1"));
    }
}

/// The changes that load a file again are no units of the stream.
#[test]
fn replicas_are_sent_changes_after_the_append_only_file_was_loaded_again() {
    let directory = Directory::new();
    let args = ["--appendonly", "yes", "--enable-debug-command", "yes", "--dir", directory.root()];
    let primary = Server::penstock(&args);
    let replica = replica_of(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    for command in ["SET a 1", "DEBUG LOADAOF", "SET b 2"] {
        assert_eq!(primary.connect().cmd(command).unwrap().text(), b"OK", "{command}");
    }
    wait_until_equal(&primary, &replica);
    assert_eq!(replica.connect().cmd("MGET a b").unwrap().items().len(), 2);
    assert_eq!(replica.connect().cmd("GET b").unwrap().text(), b"2");
}
