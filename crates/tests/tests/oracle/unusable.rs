//! What one side of a link can't use of the other's: snapshots that can't be loaded, commands that fail on the replica, and a connection that has
//! ended.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use penstock_tests::conn::Conn;
use penstock_tests::server::Server;

use super::links::{PRIMARY, is_up, oracle_of, penstock, replica_of, text, wait_until_equal};

/// How long the sides are watched: without pauses there are dozens of tries in it.
const WATCHED: Duration = Duration::from_secs(5);

/// Asks for all data as a replica of this port does, and waits for the beginning of the snapshot, but not beyond this time.
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

/// A replica that closes the connection instead of loading what it is sent waits ever longer for the next snapshot. Others don't.
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
}

/// A made-up primary. Its snapshots contain a value of a type that doesn't exist.
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
            // Until the replica has had enough of it.
            while socket.read(&mut buffer).unwrap_or(0) > 0 {}
        }
    });
    port
}

#[test]
fn a_snapshot_that_can_not_be_loaded_is_told_and_asked_for_less_and_less() {
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
    // It is told no longer when another primary is followed, or none.
    server.connect().cmd("REPLICAOF NO ONE").unwrap();
    assert!(!text(&server, "INFO replication").contains("master_link_error"));
}

/// A made-up primary without data that sends `stream` to the first replica that asks, and closes the connection without having read what it is told.
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
        // The snapshot is loaded, and the first acknowledgement waits here, unread: so the system ends the connection with a reset.
        socket.peek(&mut buffer).unwrap();
        socket.write_all(&stream).unwrap();
    });
    port
}

/// It can't tell how far it is any more, which is no reason to forget what it has been sent: another replica may have the same and no more.
#[test]
fn what_had_arrived_before_the_link_ended_is_applied() {
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

/// As Redis tells it: a line in the log, and a figure.
#[test]
fn a_command_that_fails_on_the_replica_is_told() {
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
