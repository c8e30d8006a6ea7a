//! Replicas of replicas: the state in a snapshot taken in the middle of a primary's stream, and the stream behind it.

#![allow(clippy::unwrap_used)]

use penstock_tests::conn::Conn;
use penstock_tests::server::Server;

use super::links::{Kind, is_up, oracle, oracle_of, penstock, replica_of, wait_until_equal};

fn set(conn: &mut Conn, key: &str) {
    assert_eq!(conn.cmd(&format!("SET {key} v")).unwrap().text(), b"OK");
}

/// Returns true if a key is in database 1, and in no other.
fn is_in_database_1(server: &Server, key: &str) -> bool {
    let mut conn = server.connect();
    let mut exists = |database: usize| {
        conn.cmd(&format!("SELECT {database}")).unwrap();
        conn.cmd(&format!("EXISTS {key}")).unwrap().integer() == Some(1)
    };
    exists(1) && !exists(0)
}

/// The commands behind a replica's snapshot apply to the database that is selected at its end, in chains of any length.
#[test]
fn commands_behind_a_replicas_snapshot_use_the_selected_database() {
    for (first, second, third) in [
        (penstock as fn() -> Server, replica_of as Kind, replica_of as Kind),
        (oracle, replica_of, oracle_of),
        (penstock, oracle_of, replica_of),
    ] {
        let first = first();
        let second = second(first.port(), &[]);
        second.wait_until("the link is up", is_up);
        let mut writes = first.connect();
        writes.cmd("SELECT 1").unwrap();
        set(&mut writes, "a");
        wait_until_equal(&first, &second);
        let third = third(second.port(), &[]);
        third.wait_until("the link is up", is_up);
        set(&mut writes, "b");
        wait_until_equal(&first, &third);
        let last = replica_of(third.port(), &[]);
        last.wait_until("the link is up", is_up);
        set(&mut writes, "c");
        wait_until_equal(&first, &last);
        for (server, key) in [(&third, "b"), (&third, "c"), (&last, "b"), (&last, "c")] {
            assert!(is_in_database_1(server, key), "{key}: {}", server.log());
        }
    }
}

/// A replica that replaces its primary sends SELECT again, whatever the old stream had selected, both to replicas that
/// continue and to new ones.
#[test]
fn a_new_primary_selects_its_database_anew() {
    let old = penstock();
    let new = replica_of(old.port(), &[]);
    let other = replica_of(old.port(), &[]);
    [&new, &other].iter().for_each(|server| server.wait_until("the link is up", is_up));
    let mut writes = old.connect();
    writes.cmd("SELECT 1").unwrap();
    set(&mut writes, "a");
    [&new, &other].iter().for_each(|server| wait_until_equal(&old, server));
    // Back and forth: each server has been a primary and a replica.
    for (round, (from, to)) in [(&old, &new), (&new, &old), (&old, &new)].into_iter().enumerate() {
        assert_eq!(to.connect().cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
        for server in [from, &other] {
            server.connect().cmd(&format!("REPLICAOF 127.0.0.1 {}", to.port())).unwrap();
            server.wait_until("the link is up", is_up);
        }
        let mut writes = to.connect();
        set(&mut writes, &format!("zero{round}"));
        writes.cmd("SELECT 1").unwrap();
        set(&mut writes, &format!("one{round}"));
        for server in [from, &other] {
            wait_until_equal(to, server);
            assert!(is_in_database_1(server, &format!("one{round}")));
        }
    }
    assert_eq!((new.figure("sync_full"), old.figure("sync_full")), (0, 2), "{} {}", new.log(), old.log());
}

/// A PING behind the last change is no data: a replica that has received one PING more than the new primary continues
/// without a snapshot.
#[test]
fn a_ping_before_a_failover_costs_no_snapshot() {
    for kind in [replica_of as Kind, oracle_of] {
        let old =
            Server::penstock(&["--threads", "2", "--enable-debug-command", "yes", "--repl-ping-replica-period", "1"]);
        let new = kind(old.port(), &[]);
        let other = replica_of(old.port(), &[]);
        [&new, &other].iter().for_each(|server| server.wait_until("the link is up", is_up));
        set(&mut old.connect(), "a");
        [&new, &other].iter().for_each(|server| wait_until_equal(&old, server));
        assert_eq!(new.connect().cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
        let offset = |server: &Server| server.figure("master_repl_offset");
        let before = offset(&old);
        old.wait_until("it has given a sign of life", |old| offset(old) > before + 14);
        other.wait_until("it has had it", |other| offset(other) > before);
        for server in [&old, &other] {
            server.connect().cmd(&format!("REPLICAOF 127.0.0.1 {}", new.port())).unwrap();
            server.wait_until("the link is up", is_up);
        }
        set(&mut new.connect(), "b");
        [&old, &other].iter().for_each(|server| wait_until_equal(&new, server));
        assert_eq!((new.figure("sync_full"), new.figure("sync_partial_ok")), (0, 2), "{}", new.log());
    }
}
