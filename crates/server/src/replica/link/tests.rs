use std::net::TcpListener;

use journal::lane::Audience;

use super::*;
use crate::testing::engine;

/// A snapshot of one key, without a checksum, behind the line with its length.
fn snapshot() -> Vec<u8> {
    let rdb = [&b"REDIS0011\xfe\x00\x00\x03key\x05value\xff"[..], &[0; 8]].concat();
    [format!("${}\r\n", rdb.len()).as_bytes(), &rdb].concat()
}

/// A failover has made this server a primary before the load began to replace the data, and its stream has a reader. The reader gets the
/// writes of clients after the load.
#[test]
fn a_load_does_not_hold_up_the_stream_of_a_new_primary() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for diskless_load in ["flush-before-load", "swapdb"] {
        let engine = engine(&[("repl-diskless-load", diskless_load)]);
        let mut worker = Worker::new(0, engine, 1);
        let append_only = Arc::default();
        let version = engine.replication.primary().1;
        let mut link = Link::new(engine, &append_only, version, 0, HandOver::None);
        let mut socket = Patient {
            socket: PeerSocket::open(("127.0.0.1", port), "", None, link.timeout(), LOOK_EVERY).unwrap(),
            link: Wanted::of(&link),
            heard: Instant::now(),
            ended: None,
            listed: None,
        };
        let mut stream = engine.journal.read(&engine.keyspace, Audience::Replicas).unwrap();
        link.load(&mut socket, snapshot(), HistoryId::new([1; 20]), 0).unwrap();
        Replay::begin(&mut worker, now_us()).commands(b"*2\r\n$3\r\nDEL\r\n$3\r\nkey\r\n").unwrap();
        let unit = stream.next_unit().map(|unit| unit.entries().map(|entry| entry.command.to_vec()).collect());
        let unit: Vec<Vec<u8>> = unit.unwrap_or_default();
        let unit = String::from_utf8_lossy(&unit.concat()).into_owned();
        assert!(unit.contains("DEL") && unit.contains("key"), "{diskless_load}: {unit:?}");
    }
}
