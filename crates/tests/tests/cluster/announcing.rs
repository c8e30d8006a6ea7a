//! Announcements of moved slots to cluster clients.

#![allow(clippy::unwrap_used)]

use penstock_tests::conn::Conn;
use penstock_tests::nodes::{Make, Node, join, node};
use penstock_tests::reply::Reply;

use crate::moving::move_slot;

/// Opens a connection that hears of maintenance.
fn listen(node: &Node) -> Conn {
    let mut conn = node.server.connect();
    conn.cmd("HELLO 3").unwrap();
    assert_eq!(conn.cmd("CLIENT MAINT_NOTIFICATIONS ON MOVING-ENDPOINT-TYPE INTERNAL-IP").unwrap().text(), b"OK");
    conn
}

/// Waits for an announcement, and returns its words without the number.
fn next(conn: &mut Conn) -> Vec<String> {
    fn words(reply: &Reply) -> Vec<String> {
        match reply {
            Reply::Many(_, items) => items.iter().flat_map(words).collect(),
            other => vec![String::from_utf8_lossy(other.text()).into_owned()],
        }
    }
    let mut words = words(&conn.read().unwrap());
    let number = words.remove(1);
    assert!(number.parse::<u64>().unwrap() > 0);
    words
}

fn address(node: &Node) -> String {
    format!("127.0.0.1:{}", node.server.port())
}

#[test]
fn clients_hear_of_whole_slots_that_move() {
    let valkey = Make::peers().into_iter().filter(|make| *make == Make::Valkey9);
    for make in std::iter::once(Make::Penstock).chain(valkey) {
        let (target, source) = (node(make), node(Make::Penstock));
        join(&[&target, &source]);
        let mut conn = listen(&source);
        source.ok(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE 15000 15003 NODE {}", target.id()));
        assert_eq!(next(&mut conn), ["SMIGRATING", "15000-15003"]);
        let expected = ["SMIGRATED", &address(&source), &address(&target), "15000-15003"];
        assert_eq!(next(&mut conn), expected, "{make:?}");
    }
}

#[test]
fn clients_hear_of_slots_that_moved_key_by_key() {
    let (target, source) = (node(Make::Penstock), node(Make::Penstock));
    join(&[&target, &source]);
    let mut conn = listen(&source);
    move_slot(15000, &source, &target, &[]);
    assert_eq!(next(&mut conn), ["SMIGRATED", &address(&source), &address(&target), "15000"]);
}
