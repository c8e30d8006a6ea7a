//! `maxmemory-clients`: if connections take too much memory together, the server closes the largest ones, as Redis
//! does; `unauthenticated-input-total` does the same for connections without authentication.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::io;

use penstock_tests::bytes::{command, encode};
use penstock_tests::conn::{Conn, closed};
use penstock_tests::scripts::text;
use penstock_tests::server::Server;

/// Makes a connection take memory: sends the bytes of a request that never becomes complete.
fn begin_request(server: &Server, name: &str, bytes: usize) -> Conn {
    let mut conn = server.connect();
    conn.cmd(&format!("CLIENT SETNAME {name}")).unwrap();
    let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", bytes + 1);
    // The server may close the connection while it sends.
    let _ = conn.send(head.as_bytes()).and_then(|()| conn.send(&vec![b'x'; bytes]));
    conn
}

fn is_listed(server: &Server, name: &str) -> bool {
    text(&server.connect().cmd("CLIENT LIST").unwrap()).contains(&format!(" name={name} "))
}

/// Returns the bytes of a connection in CLIENT LIST.
fn tot_mem(server: &Server, name: &str) -> usize {
    let list = text(&server.connect().cmd("CLIENT LIST").unwrap());
    let line = list.lines().find(|line| line.contains(&format!(" name={name} "))).unwrap_or_default();
    let value = line.split(' ').find_map(|word| word.strip_prefix("tot-mem=")).unwrap_or("0");
    value.parse().unwrap()
}

fn has_ended(conn: &mut Conn) -> bool {
    matches!(conn.read(), Err(error) if closed(&error) || error.kind() == io::ErrorKind::UnexpectedEof)
}

fn on_both(args: &[&str], check: impl Fn(&Server)) {
    for threads in ["1", "2"] {
        check(&Server::penstock(&[args, &["--threads", threads]].concat()));
    }
    check(&Server::oracle(args));
}

#[test]
fn the_largest_connection_is_closed() {
    on_both(&["--maxmemory-clients", "6mb"], |server| {
        let mut small = begin_request(server, "small", 1 << 20);
        server.wait_until("the small one is seen", |s| tot_mem(s, "small") >= 1 << 20);
        let mut large = begin_request(server, "large", 20 << 20);
        assert!(has_ended(&mut large), "the large one goes on");
        server.wait_until("it is counted", |s| s.figure("evicted_clients") == 1);
        assert!(!is_listed(server, "large") && is_listed(server, "small"));
        small.send(b"x\r\n").unwrap();
        assert_eq!(text(&small.read().unwrap()), "OK");
    });
}

#[test]
fn the_largest_goes_first_and_no_more_than_have_to() {
    on_both(&[], |server| {
        let mut conns: Vec<Conn> = [1, 3, 2].iter().map(|n| begin_request(server, &format!("n{n}"), n << 20)).collect();
        server.wait_until("all are seen", |s| [1, 2, 3].iter().all(|n| tot_mem(s, &format!("n{n}")) >= n << 20));
        let taken: usize = [1, 2, 3].iter().map(|n| tot_mem(server, &format!("n{n}"))).sum();
        let limit = format!("CONFIG SET maxmemory-clients {}", taken - (1 << 20));
        assert_eq!(text(&server.connect().cmd(&limit).unwrap()), "OK");
        assert!(has_ended(&mut conns.remove(1)), "the one that takes three megabytes goes on");
        for mut conn in conns {
            conn.send(b"x\r\n").unwrap();
            assert_eq!(text(&conn.read().unwrap()), "OK");
        }
        assert_eq!(server.figure("evicted_clients"), 1);
    });
}

#[test]
fn a_connection_that_says_no_evict_stays() {
    on_both(&["--maxmemory-clients", "6mb"], |server| {
        let mut bystander = begin_request(server, "bystander", 1 << 10);
        let mut spared = server.connect();
        spared.cmd("CLIENT NO-EVICT on").unwrap();
        spared.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20971521\r\n").unwrap();
        spared.send(&vec![b'x'; 20 << 20]).unwrap();
        assert!(has_ended(&mut bystander), "the bystander goes on");
        spared.send(b"x\r\n").unwrap();
        assert_eq!(text(&spared.read().unwrap()), "OK");
        assert_eq!(text(&spared.cmd("STRLEN k").unwrap()), (20 * (1 << 20) + 1).to_string());
    });
}

#[test]
fn a_limit_holds_for_present_clients_and_may_be_a_percentage() {
    on_both(&[], |server| {
        let mut conn = begin_request(server, "held", 8 << 20);
        server.wait_until("it is seen", |s| tot_mem(s, "held") >= 8 << 20);
        let mut admin = server.connect();
        // A percentage without a limit means no limit.
        for words in ["maxmemory-clients 5%", "maxmemory 1gb"] {
            assert_eq!(text(&admin.cmd(&format!("CONFIG SET {words}")).unwrap()), "OK");
            assert!(is_listed(server, "held"), "{words}");
        }
        assert_eq!(text(&admin.cmd("CONFIG SET maxmemory 100mb").unwrap()), "OK");
        assert!(has_ended(&mut conn), "it goes on");
        assert_eq!(text(&admin.cmd("PING").unwrap()), "PONG");
    });
}

#[test]
fn prefixes_of_tracking_and_the_keys_of_a_blocked_client_count() {
    let name = |number: usize| format!("{number:05}{}", "x".repeat(1000));
    let server = Server::penstock(&["--maxmemory-clients", "3mb"]);
    let mut tracking = server.connect();
    tracking.cmd("HELLO 3").unwrap();
    let ended = (0..3000)
        .map(|number| tracking.cmd(&format!("CLIENT TRACKING ON BCAST PREFIX {}", name(number))))
        .find(Result::is_err);
    assert!(ended.is_some(), "3,000 prefixes of 1,000 bytes are below a limit of 3 MB");
    let mut blocked = server.connect();
    let keys: Vec<String> = (0..3000).map(name).collect();
    blocked.send(format!("BLPOP {} 0\r\n", keys[..10].join(" ")).as_bytes()).unwrap();
    server.wait_until("the small one waits", |s| s.figure("blocked_clients") == 1);
    let mut large = server.connect();
    large.send(&encode(&command(&format!("BLPOP {} 0", keys.join(" "))))).unwrap();
    assert!(has_ended(&mut large), "the client that waits for 3,000 keys goes on");
    assert_eq!(server.figure("blocked_clients"), 1);
}

#[test]
fn transactions_and_arguments_that_wait_count() {
    on_both(&["--maxmemory-clients", "3mb"], |server| {
        let mut queueing = server.connect();
        queueing.cmd("MULTI").unwrap();
        let value = "v".repeat(1 << 20);
        let ended = (0..8).any(|_| queueing.cmd(&format!("SET k {value}")).is_err());
        assert!(ended, "a transaction of eight megabytes waits");
        let mut framing = server.connect();
        let args = b"$1\r\nx\r\n".repeat(400_000);
        let sent = framing.send(b"*1000000\r\n$4\r\nMSET\r\n").and_then(|()| framing.send(&args));
        assert!(sent.is_err() || has_ended(&mut framing), "an unfinished request of 400,000 arguments waits");
        server.wait_until("both are counted", |s| s.figure("evicted_clients") == 2);
    });
}

#[test]
fn watched_keys_and_subscriptions_count() {
    // Redis counts less for them.
    let server = Server::penstock(&["--maxmemory-clients", "3mb"]);
    for (n, what) in (1..).zip(["WATCH", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"]) {
        let mut conn = server.connect();
        let ended = (0..4000).any(|n| conn.cmd(&format!("{what} {n}{}", "n".repeat(2000))).is_err());
        assert!(ended, "{what} of 4000 names of two kilobytes goes on");
        server.wait_until("it is counted", |s| s.figure("evicted_clients") == n);
    }
}

#[test]
fn released_memory_does_not_count() {
    on_both(&["--maxmemory-clients", "3mb"], |server| {
        let (mut conn, name) = (server.connect(), "n".repeat(2000));
        // The replies are in RESP3: in RESP2 a subscriber couldn't send UNWATCH.
        conn.cmd("HELLO 3").unwrap();
        for n in 0..4000 {
            for words in [format!("WATCH {n}{name}"), "UNWATCH".into()] {
                assert_eq!(text(&conn.cmd(&words).unwrap()), "OK");
            }
            for what in ["SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE"] {
                conn.cmd(&format!("{what} {n}{name}")).unwrap();
            }
        }
        conn.cmd("CLIENT SETNAME forgetful").unwrap();
        assert!(tot_mem(server, "forgetful") < 100_000, "{} bytes are left", tot_mem(server, "forgetful"));
    });
}

/// Sends about 120 KB of an incomplete request: the most that Redis and Penstock accept without authentication.
fn begin_large_request(server: &Server) -> Conn {
    let mut conn = server.connect();
    let bulk = [b"$16000\r\n".as_slice(), &[b'x'; 16_000], b"\r\n"].concat();
    let _ = conn.send(b"*10\r\n$4\r\nAUTH\r\n").and_then(|()| conn.send(&bulk.repeat(7)));
    conn
}

/// Ends the sending side, and waits until the server has closed the connection.
fn end_and_wait(mut conn: Conn) {
    // The connection may be closed already.
    let _ = conn.finish();
    conn.read_to_close().unwrap();
}

#[test]
fn requests_before_authentication_are_limited_together() {
    const LIMIT_KIB: u64 = 2048;
    for threads in ["1", "2"] {
        let args = ["--requirepass", "secret", "--unauthenticated-input-total", "2mb", "--threads", threads];
        let server = Server::penstock(&args);
        let mut served = server.connect();
        assert_eq!(text(&served.cmd("AUTH secret").unwrap()), "OK");
        // Neither this connection, which is authenticated, nor the next, which has sent little, counts.
        served.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4000000\r\n").unwrap();
        served.send(&vec![b'x'; 3_999_999]).unwrap();
        let mut late = server.connect();
        late.send(b"*2\r\n$4\r\nAUTH\r\n$6\r\nsec").unwrap();
        let before_kib = server.resident_kib();
        let hostile: Vec<Conn> = (0..200).map(|_| begin_large_request(&server)).collect();
        let closing = "Closing client that has not authenticated";
        server.wait_until("most have been closed", |s| s.log().matches(closing).count() >= 180);
        let grown_kib = server.resident_kib().saturating_sub(before_kib);
        assert!(grown_kib < 6 * LIMIT_KIB, "{grown_kib} KiB");
        server.wait_until("they are gone", |s| text(&list_with_password(s)).lines().count() < 30);
        late.send(b"ret\r\n").unwrap();
        assert_eq!(text(&late.read().unwrap()), "OK");
        served.send(b"x\r\n").unwrap();
        assert_eq!(text(&served.read().unwrap()), "OK");
        // Closed connections don't count any more.
        hostile.into_iter().for_each(end_and_wait);
        let count = server.log().matches(closing).count();
        for _ in 0..100 {
            let mut conn = begin_large_request(&server);
            conn.send(b"$16000\r\n").unwrap();
            end_and_wait(conn);
        }
        assert_eq!(server.log().matches(closing).count(), count);
    }
}

/// Returns CLIENT LIST of a server with a password.
fn list_with_password(server: &Server) -> penstock_tests::reply::Reply {
    let mut conn = server.connect();
    conn.cmd("AUTH secret").unwrap();
    conn.cmd("CLIENT LIST").unwrap()
}
