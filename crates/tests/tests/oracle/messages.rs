//! Messages published at a primary reach the subscribers of its replicas, as in Redis.

#![allow(clippy::unwrap_used)]

use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::server::Server;

use super::links::{Kind, is_up, oracle, oracle_of, penstock, replica_of, wait_until_equal};

/// A client that subscribes to the channel `news`, to its shard channel, and to all channels that begin with `n`.
fn listener(server: &Server) -> Conn {
    let mut conn = server.connect();
    for (command, kind) in
        [("SUBSCRIBE news", "subscribe"), ("SSUBSCRIBE news", "ssubscribe"), ("PSUBSCRIBE n*", "psubscribe")]
    {
        assert_eq!(conn.cmd(command).unwrap().items()[0].text(), kind.as_bytes());
    }
    conn
}

/// Returns the last words of the next `count` messages.
fn heard(conn: &mut Conn, count: usize) -> Vec<String> {
    let mut heard: Vec<String> = (0..count)
        .map(|_| {
            let message = conn.read().unwrap();
            let words: Vec<_> =
                message.items().iter().map(|item| String::from_utf8_lossy(item.text()).into_owned()).collect();
            format!("{} {}", words[0], words[words.len() - 1])
        })
        .collect();
    // The order of deliveries by different subscriptions is undefined.
    heard.sort();
    heard
}

/// Messages published alone, in a transaction and by a script, through two links.
#[test]
fn messages_reach_the_subscribers_of_replicas() {
    for (first, second, third) in [
        (penstock as fn() -> Server, replica_of as Kind, replica_of as Kind),
        (penstock, oracle_of, replica_of),
        (oracle, replica_of, oracle_of),
    ] {
        let first = first();
        let second = second(first.port(), &[]);
        second.wait_until("the link is up", is_up);
        let third = third(second.port(), &[]);
        third.wait_until("the link is up", is_up);
        let mut listeners: Vec<Conn> = [&first, &second, &third].map(listener).into();
        let mut conn = first.connect();
        assert_eq!(conn.cmd("PUBLISH news alone").unwrap().integer(), Some(2));
        for listener in &mut listeners {
            assert_eq!(heard(listener, 2), ["message alone", "pmessage alone"]);
        }
        conn.cmd("SPUBLISH news sharded").unwrap();
        for listener in &mut listeners {
            assert_eq!(heard(listener, 1), ["smessage sharded"]);
        }
        for command in ["MULTI", "SET k v", "PUBLISH news queued", "EXEC"] {
            conn.cmd(command).unwrap();
        }
        for listener in &mut listeners {
            assert_eq!(heard(listener, 2), ["message queued", "pmessage queued"]);
        }
        let script = [&b"EVAL"[..], b"redis.call('INCR', 'n') return redis.call('PUBLISH', 'news', 'scripted')", b"0"];
        conn.call(&script.map(<[u8]>::to_vec)).unwrap();
        for listener in &mut listeners {
            assert_eq!(heard(listener, 2), ["message scripted", "pmessage scripted"]);
        }
        // A message published at a replica stays there.
        second.connect().cmd("PUBLISH news here").unwrap();
        assert_eq!(heard(&mut listeners[1], 2), ["message here", "pmessage here"]);
        conn.cmd("PUBLISH news last").unwrap();
        for listener in [0, 2] {
            assert_eq!(heard(&mut listeners[listener], 2), ["message last", "pmessage last"]);
        }
        wait_until_equal(&first, &second);
        wait_until_equal(&first, &third);
    }
}

/// Messages are in the stream but not in the file, even if replies wait for the disk.
#[test]
fn messages_are_not_in_the_file() {
    let directory = Directory::new();
    let root = directory.root();
    let args = ["--appendonly", "yes", "--appendfsync", "always", "--dir", root, "--enable-debug-command", "yes"];
    let primary = Server::penstock(&args);
    let replica = replica_of(primary.port(), &["--appendonly", "yes"]);
    replica.wait_until("the link is up", is_up);
    let mut conn = primary.connect();
    for number in 0..10 {
        assert_eq!(conn.cmd(&format!("PUBLISH news secret{number}")).unwrap().integer(), Some(0));
        conn.cmd(&format!("SET k {number}")).unwrap();
    }
    wait_until_equal(&primary, &replica);
    assert_eq!(conn.cmd("DEBUG LOADAOF").unwrap().text(), b"OK");
    assert_eq!(conn.cmd("GET k").unwrap().text(), b"9");
    let files: Vec<u8> = std::fs::read_dir(directory.join("appendonlydir"))
        .unwrap()
        .flat_map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    let has = |text: &[u8]| files.windows(text.len()).any(|window| window == text);
    assert!(has(b"SET") && !has(b"secret"));
}
