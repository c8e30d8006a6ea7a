//! Pipeline tokens on servers that change roles: the writes that a resumed pipeline covers, and the knowledge of
//! replicas.

#![allow(clippy::unwrap_used)]

use penstock_tests::server::Server;

use super::links::{is_up, penstock, replica_of, signal, text, wait_until_equal};

fn follow(server: &Server, primary: &Server) {
    let command = format!("REPLICAOF 127.0.0.1 {}", primary.port());
    assert_eq!(server.connect().cmd(&command).unwrap().text(), b"OK");
    server.wait_until("the link is up", is_up);
}

/// WAIT on a resumed connection covers the writes of the broken one.
#[test]
fn wait_behind_resume_covers_what_the_broken_connection_wrote() {
    let primary = penstock();
    let replicas =
        [replica_of(primary.port(), &["--appendonly", "yes"]), replica_of(primary.port(), &["--appendonly", "yes"])];
    replicas.iter().for_each(|replica| replica.wait_until("the link is up", is_up));
    let mut conn = primary.connect();
    conn.cmd("PIPELINE START loader").unwrap();
    conn.cmd("SET k v").unwrap();
    assert_eq!(conn.cmd("WAIT 2 20000").unwrap().integer(), Some(2));
    signal(&replicas[0], "STOP");
    conn.cmd("SET k w").unwrap();
    drop(conn);
    let mut conn = primary.connect();
    conn.send(b"PIPELINE RESUME loader\r\nWAIT 2 300\r\n").unwrap();
    let replies = [conn.read().unwrap(), conn.read().unwrap()];
    assert_eq!(replies[1].integer(), Some(1), "{}", replies[0].escaped());
    let mut on_disk = |command: &str| conn.cmd(command).unwrap().items()[1].integer();
    assert_eq!(on_disk("WAITAOF 0 1 20000"), Some(1));
    // Longer than a write stays unsynced.
    assert_eq!(on_disk("WAITAOF 0 2 4000"), Some(1));
    signal(&replicas[0], "CONT");
    assert_eq!(conn.cmd("WAIT 2 20000").unwrap().integer(), Some(2));
}

/// A replica's refusals count nowhere, so the count and the positions of failures match the history.
#[test]
fn a_token_counts_on_the_primary_alone() {
    let [a, b] = [penstock(), penstock()];
    follow(&b, &a);
    let mut conn = a.connect();
    for command in ["PIPELINE START loader", "SET k v", "LPUSH k x"] {
        conn.cmd(command).unwrap();
    }
    wait_until_equal(&a, &b);
    for command in ["PIPELINE RESUME loader", "PIPELINE START another", "PIPELINE END loader"] {
        let refused = b.connect().cmd(command).unwrap();
        assert!(refused.text().starts_with(b"READONLY"), "{}", refused.escaped());
    }
    // The servers exchange roles, back and forth, while connections hold the token: one is blocked, and one continues
    // to write.
    for (from, to) in [(&a, &b), (&b, &a)] {
        conn.send(b"BLPOP nothing 0\r\n").unwrap();
        from.wait_until("it waits", |from| from.figure("blocked_clients") == 1);
        assert_eq!(to.connect().cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
        follow(from, to);
        conn.read_to_close().unwrap();
        conn = to.connect();
        conn.cmd("PIPELINE RESUME loader").unwrap();
        let failed = conn.cmd("LPUSH k y").unwrap();
        assert!(failed.text().starts_with(b"WRONGTYPE"), "{}", failed.escaped());
        wait_until_equal(to, from);
        let told = |server: &Server| server.connect().cmd("PIPELINE STATUS loader").unwrap().escaped();
        to.wait_until("both know the same", |to| told(to) == told(from));
    }
    assert_eq!(b.connect().cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
    follow(&a, &b);
    assert!(text(&a, "INFO replication").contains("role:slave"));
    // The connection that still has the token on the new replica is closed.
    assert!(conn.cmd("LPUSH k z").is_err());
    let told = b.connect().cmd("PIPELINE RESUME loader").unwrap();
    let numbers: Vec<_> = told.items().iter().filter_map(|item| item.integer()).collect();
    let places: Vec<_> = told.items()[5].items().iter().map(|failure| failure.items()[0].integer().unwrap()).collect();
    assert_eq!((numbers, places), (vec![4, 3, 0], vec![2, 3, 4]), "{}", told.escaped());
}
