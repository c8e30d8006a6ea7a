//! Servers that restart from a snapshot with a replication history: primaries, replicas, and servers that change roles.
//! They continue at the snapshot's offset if their data matches it.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use penstock_tests::conn::Conn;
use penstock_tests::server::Server;

use super::links::{Kind, is_up, oracle, oracle_of, penstock, persist_all, replica_of, text, wait_until_equal, work};

/// Each kind of primary with each kind of replica, except for redis-server with itself.
const PAIRS: [(fn() -> Server, Kind); 3] = [(penstock, replica_of), (oracle, replica_of), (penstock, oracle_of)];

/// Ends a server with a snapshot of all data.
fn end_with_snapshot(server: &mut Server) {
    let _ = server.connect().cmd("SHUTDOWN SAVE");
    server.wait_until_ended();
}

/// Ends a server without a snapshot.
fn end_without_snapshot(server: &mut Server) {
    let _ = server.connect().cmd("SHUTDOWN NOSAVE");
    server.wait_until_ended();
}

fn save(server: &Server) {
    assert_eq!(server.connect().cmd("SAVE").unwrap().text(), b"OK");
}

/// Numbers of full and partial syncs of a primary.
fn syncs(primary: &Server) -> (u64, u64) {
    (primary.figure("sync_full"), primary.figure("sync_partial_ok"))
}

fn linked(pair: (fn() -> Server, Kind), seed: u64) -> (Server, Server) {
    let primary = pair.0();
    let replica = pair.1(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    work(&primary, seed, 8);
    persist_all(&primary);
    wait_until_equal(&primary, &replica);
    (primary, replica)
}

fn wait_until_linked(primary: &Server, replica: &Server) {
    replica.wait_until("the link is up", is_up);
    persist_all(primary);
    wait_until_equal(primary, replica);
    let log = replica.log();
    assert!(!log.contains("could not be applied") && !log.contains("CRITICAL"), "{log}");
}

#[test]
fn a_replica_that_ends_and_starts_goes_on() {
    for (seed, pair) in (100..).step_by(10).zip(PAIRS) {
        let (primary, mut replica) = linked(pair, seed);
        let before = syncs(&primary);
        end_with_snapshot(&mut replica);
        work(&primary, seed + 3, 8);
        replica.restart();
        wait_until_linked(&primary, &replica);
        assert_eq!(syncs(&primary), (before.0, before.1 + 1), "{}", replica.log());
    }
}

/// The replica has lost the changes since its last snapshot, and gets them again.
#[test]
fn a_replica_that_is_killed_goes_on_from_its_last_snapshot() {
    for (seed, pair) in (200..).step_by(10).zip(PAIRS) {
        let (primary, mut replica) = linked(pair, seed);
        let before = syncs(&primary);
        // In a database other than 0, under load.
        let mut conn = primary.connect();
        conn.cmd("SELECT 1").unwrap();
        conn.cmd("INCR counted").unwrap();
        work(&primary, seed + 3, 4);
        save(&replica);
        conn.cmd("INCR counted").unwrap();
        work(&primary, seed + 5, 4);
        persist_all(&primary);
        wait_until_equal(&primary, &replica);
        replica.kill();
        work(&primary, seed + 7, 4);
        replica.restart();
        wait_until_linked(&primary, &replica);
        assert_eq!(syncs(&primary), (before.0, before.1 + 1), "{}", replica.log());
    }
}

/// A snapshot that is requested within a transaction contains no part of the transaction.
#[test]
fn a_snapshot_within_a_transaction_is_of_whole_units() {
    for start in [penstock as fn() -> Server, oracle] {
        let (mut primary, replica) = linked((start, replica_of), 300);
        let mut conn = primary.connect();
        for command in ["MULTI", "INCR counted", "BGSAVE", "INCR counted", "EXEC"] {
            assert!(!conn.cmd(command).unwrap().is_error(), "{command}");
        }
        primary.wait_until("it is saved", |primary| {
            let info = text(primary, "INFO persistence");
            info.contains("rdb_bgsave_in_progress:0") && !info.contains("rdb_last_save_time:0")
        });
        wait_until_equal(&primary, &replica);
        end_with_snapshot(&mut primary);
        primary.restart();
        wait_until_linked(&primary, &replica);
        assert_eq!(text(&primary, "GET counted"), "2");
    }
}

/// Replicas have all data when the primary ends, and continue when it is back.
#[test]
fn a_primary_that_ends_and_starts_goes_on() {
    for (seed, pair) in (400..).step_by(10).zip(PAIRS) {
        let (mut primary, replica) = linked(pair, seed);
        for round in 0..2 {
            work(&primary, seed + 3 + round, 8);
            // A further PING or message would be behind the snapshot.
            primary.connect().cmd("PUBLISH channel message").unwrap();
            end_with_snapshot(&mut primary);
            primary.restart();
            replica.wait_until("the link is up", is_up);
            assert_eq!(syncs(&primary), (0, 1), "{}", primary.log());
            wait_until_linked(&primary, &replica);
        }
    }
}

/// Keys that expire while the primary is down expire on the replicas, too.
#[test]
fn keys_that_expire_while_the_primary_is_down_are_deleted_on_replicas() {
    for pair in PAIRS {
        let (mut primary, replica) = linked(pair, 500);
        let mut conn = primary.connect();
        for number in 0..50 {
            conn.cmd(&format!("SET short:{number} v PX 1500")).unwrap();
        }
        end_with_snapshot(&mut primary);
        std::thread::sleep(std::time::Duration::from_millis(1600));
        primary.restart();
        replica.wait_until("the link is up", is_up);
        assert_eq!(syncs(&primary), (0, 1), "{}", primary.log());
        wait_until_linked(&primary, &replica);
        assert_eq!(replica.connect().cmd("DBSIZE").unwrap(), primary.connect().cmd("DBSIZE").unwrap());
    }
}

/// The primary's snapshot is older than its replica's data: the replica gets a full sync and drops its own data.
#[test]
fn a_primary_that_is_killed_does_not_go_on_from_an_older_snapshot() {
    for pair in PAIRS {
        let (mut primary, replica) = linked(pair, 600);
        save(&primary);
        primary.connect().cmd("SET lost v").unwrap();
        wait_until_equal(&primary, &replica);
        primary.kill();
        primary.restart();
        replica.wait_until("the link is down and up", |replica| is_up(replica) && syncs(&primary) == (1, 0));
        wait_until_linked(&primary, &replica);
        assert!(replica.connect().cmd("GET lost").unwrap().is_null());
    }
}

/// Writes before the replica is back reach it, whatever their database.
#[test]
fn a_primary_that_starts_and_is_written_to_first_goes_on() {
    let (mut primary, replica) = linked((penstock, replica_of), 700);
    let mut conn = primary.connect();
    conn.cmd("SELECT 1").unwrap();
    conn.cmd("SET k v").unwrap();
    end_with_snapshot(&mut primary);
    primary.restart();
    primary.wait_until("it is loaded", |primary| primary.connect().cmd("SET k w").unwrap().text() == b"OK");
    work(&primary, 703, 8);
    replica.wait_until("the link is up", is_up);
    assert_eq!(syncs(&primary), (0, 1), "{}", primary.log());
    wait_until_linked(&primary, &replica);
}

/// As with Sentinel: the replica has replaced the primary, which learns about it only after its restart.
#[test]
fn a_primary_that_was_replaced_while_it_was_gone_goes_on_as_a_replica() {
    for (old_is_killed, new_kind) in [(false, replica_of as Kind), (false, oracle_of), (true, replica_of)] {
        let (mut old, new) = linked((penstock, new_kind), 800);
        if old_is_killed {
            save(&old);
            old.kill();
        } else {
            end_with_snapshot(&mut old);
        }
        assert_eq!(new.connect().cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
        work(&new, 803, 8);
        old.restart();
        old.wait_until("it is loaded", |old| text(old, "INFO persistence").contains("\nloading:0"));
        let port = new.port();
        assert_eq!(old.connect().cmd(&format!("REPLICAOF 127.0.0.1 {port}")).unwrap().text(), b"OK");
        wait_until_linked(&new, &old);
        assert_eq!(syncs(&new), (0, 1), "{}", new.log());
    }
}

/// The restarted primary's own changes are in no history that the new primary knows.
#[test]
fn a_primary_that_was_replaced_and_written_to_begins_anew() {
    let (mut old, new) = linked((penstock, replica_of), 900);
    end_with_snapshot(&mut old);
    assert_eq!(new.connect().cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
    old.restart();
    old.wait_until("it is loaded", |old| old.connect().cmd("SET own v").unwrap().text() == b"OK");
    old.connect().cmd(&format!("REPLICAOF 127.0.0.1 {}", new.port())).unwrap();
    wait_until_linked(&new, &old);
    assert_eq!(syncs(&new), (1, 0), "{}", new.log());
    assert!(old.connect().cmd("GET own").unwrap().is_null());
}

/// A snapshot without replicas belongs to no history: a history begins with the first replica.
#[test]
fn a_server_without_replicas_has_no_history() {
    let mut server = penstock();
    server.connect().cmd("SET k v").unwrap();
    end_with_snapshot(&mut server);
    server.restart();
    server.wait_until("it is loaded", |server| text(server, "GET k") == "v");
    assert_eq!(server.figure("repl_backlog_active"), 0);
    assert!(!server.log().contains("history"), "{}", server.log());
}

/// A server that shuts down waits for its replicas, up to a time limit, and not at all if it is told so.
#[test]
fn a_server_that_ends_waits_for_its_replicas() {
    let (mut primary, replica) = linked((penstock, replica_of), 1000);
    let mut conn = primary.connect();
    super::links::signal(&replica, "STOP");
    for number in 0..1000 {
        conn.cmd(&format!("SET late:{number} v")).unwrap();
    }
    conn.send(b"SHUTDOWN NOSAVE\r\n").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(primary.is_alive());
    super::links::signal(&replica, "CONT");
    primary.wait_until_ended();
    assert_eq!(text(&replica, "GET late:999"), "v");
    assert!(!primary.log().contains("shutdown-timeout"), "{}", primary.log());
    for ends in ["SHUTDOWN NOSAVE NOW", "CONFIG SET shutdown-timeout 0"] {
        primary.restart();
        replica.wait_until("the link is up", is_up);
        super::links::signal(&replica, "STOP");
        let began = std::time::Instant::now();
        primary.connect().cmd("SET k v").unwrap();
        let _ = primary.connect().cmd(ends);
        if ends.starts_with("CONFIG") {
            end_without_snapshot(&mut primary);
        }
        primary.wait_until_ended();
        super::links::signal(&replica, "CONT");
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

/// The wait for replicas can be aborted, and a second signal ends it.
#[test]
fn a_server_that_waits_for_its_replicas_can_go_on_or_end_at_once() {
    let (mut primary, replica) = linked((penstock, replica_of), 10);
    let terminate = |server: &Server| {
        assert!(std::process::Command::new("kill").arg(server.pid().to_string()).status().unwrap().success());
    };
    super::links::signal(&replica, "STOP");
    let mut conn = primary.connect();
    assert_eq!(conn.cmd("SHUTDOWN ABORT").unwrap().text(), b"ERR No shutdown in progress.");
    for way in ["SHUTDOWN NOSAVE", "TERM"] {
        conn.cmd("SET k before").unwrap();
        match way {
            "TERM" => terminate(&primary),
            _ => primary.connect().send(format!("{way}\r\n").as_bytes()).unwrap(),
        }
        primary.wait_until("the end is near", |primary| primary.log().contains("User requested shutdown"));
        // For a moment the shutdown is requested but has not begun.
        primary.wait_until("it is aborted", |primary| text(primary, "SHUTDOWN ABORT") == "OK");
        assert_eq!(text(&primary, "SHUTDOWN ABORT"), "ERR No shutdown in progress.");
        assert_eq!(conn.cmd("SET k behind").unwrap().text(), b"OK");
        primary.wait_until("it is told", |primary| primary.log().contains("Shutdown manually aborted."));
    }
    super::links::signal(&replica, "CONT");
    wait_until_equal(&primary, &replica);
    super::links::signal(&replica, "STOP");
    conn.cmd("SET k last").unwrap();
    let began = std::time::Instant::now();
    terminate(&primary);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(primary.is_alive());
    terminate(&primary);
    primary.wait_until_ended();
    super::links::signal(&replica, "CONT");
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(primary.log().contains("at another signal"), "{}", primary.log());
}

/// A fake replica that reads the snapshot and the stream. Like Redis's, it doesn't count a GETACK in its reply to it,
/// and reports nothing unasked.
struct AnsweringReplica {
    conn: Conn,
    stream: Vec<u8>,
    /// The offset of the stream's first byte.
    offset: usize,
    answered: usize,
}

impl AnsweringReplica {
    const QUESTION: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";

    fn of(primary: &Server) -> AnsweringReplica {
        let mut conn = primary.connect();
        assert_eq!(conn.cmd("REPLCONF listening-port 7777").unwrap().text(), b"OK");
        conn.send(b"PSYNC ? -1\r\n").unwrap();
        let mut received = Vec::new();
        let (offset, start) = loop {
            received.extend(conn.read_for(Duration::from_millis(20)).unwrap().0);
            if let Some(begin) = AnsweringReplica::behind_snapshot(&received) {
                break begin;
            }
        };
        let stream = received.split_off(start);
        conn.send(format!("REPLCONF ACK {offset}\r\n").as_bytes()).unwrap();
        AnsweringReplica { conn, stream, offset, answered: 0 }
    }

    /// Returns the stream's offset, and its position behind the snapshot, once the snapshot is complete.
    fn behind_snapshot(received: &[u8]) -> Option<(usize, usize)> {
        let line = |from: usize| {
            let end = from + received.get(from..)?.windows(2).position(|pair| pair == b"\r\n")?;
            Some((String::from_utf8_lossy(&received[from..end]).into_owned(), end + 2))
        };
        let (resync, behind) = line(0)?;
        let (size, behind) = line(behind)?;
        let end = behind + size.trim().strip_prefix('$').unwrap().parse::<usize>().unwrap();
        let offset = resync.rsplit(' ').next().unwrap().parse().unwrap();
        (received.len() >= end).then_some((offset, end))
    }

    /// Reads the stream and answers questions until the primary closes the connection.
    fn answer_until_closed(mut self) {
        loop {
            let Ok((bytes, is_closed)) = self.conn.read_for(Duration::from_millis(20)) else { return };
            self.stream.extend(bytes);
            let rest = &self.stream[self.answered..];
            let found = rest.windows(Self::QUESTION.len()).position(|part| part == Self::QUESTION);
            if let Some(at) = found {
                let acknowledged = format!("REPLCONF ACK {}\r\n", self.offset + self.answered + at);
                self.answered += at + Self::QUESTION.len();
                _ = self.conn.send(acknowledged.as_bytes());
            }
            if is_closed {
                return;
            }
        }
    }
}

/// The server need not wait for the replica's next periodic report, up to a second later.
#[test]
fn a_shutdown_needs_only_the_reply_to_its_getack() {
    let mut primary = penstock();
    let replica = AnsweringReplica::of(&primary);
    assert_eq!(primary.connect().cmd("SET k v").unwrap().text(), b"OK");
    primary.connect().send(b"SHUTDOWN NOSAVE\r\n").unwrap();
    replica.answer_until_closed();
    primary.wait_until_ended();
    assert!(!primary.log().contains("shutdown-timeout"), "{}", primary.log());
}

/// Writes that are answered before the shutdown are on the replicas, and no command is answered while the server waits
/// for them.
#[test]
fn writes_answered_before_the_shutdown_are_on_the_replica() {
    for ends in ["SHUTDOWN NOSAVE", "SHUTDOWN SAVE"] {
        let (mut primary, replica) = linked((penstock, replica_of), 10);
        let (mut writer, began) = (primary.connect(), std::time::Instant::now());
        let answered = std::thread::spawn(move || {
            let is_answered =
                |number: &u64| writer.cmd(&format!("SET last {number}")).is_ok_and(|reply| reply.text() == b"OK");
            (1..).take_while(is_answered).last().unwrap()
        });
        replica.wait_until("it is written to", |replica| {
            text(replica, "GET last").parse().is_ok_and(|last: u64| last > 0)
        });
        primary.connect().send(format!("{ends}\r\n").as_bytes()).unwrap();
        primary.wait_until_ended();
        let answered = answered.join().unwrap();
        assert!(text(&replica, "GET last").parse::<u64>().unwrap() >= answered, "{ends}");
        assert!(began.elapsed() < std::time::Duration::from_secs(8), "{ends}: {:?}", began.elapsed());
        assert!(!primary.log().contains("lack some of the data"), "{ends}: {}", primary.log());
    }
}
