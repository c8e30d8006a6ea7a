//! The parts of batches' times: each grows when its cause exists, and only then.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

use std::time::Duration;

use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::hanging_disk::HangingDisk;
use penstock_tests::reply::Reply;
use penstock_tests::server::{Server, comes_true};

/// Time for which a cause lasts, and the least part of it that must be found, in microseconds.
const CAUSE: Duration = Duration::from_millis(300);
const FOUND_US_MIN: i64 = 200_000;
/// The greatest time of a part without a cause. A busy machine delays everything.
const NONE_US_MAX: i64 = 100_000;

/// Returns a field of a map in its RESP2 form.
fn field<'r>(map: &'r Reply, name: &str) -> Option<&'r Reply> {
    map.items().chunks_exact(2).find(|pair| pair[0].text() == name.as_bytes()).map(|pair| &pair[1])
}

/// Returns the sum of one part of all batches of a class, in microseconds.
fn sum_us(conn: &mut Conn, depth: &str, part: &str) -> i64 {
    let classes = conn.cmd("LATENCY BATCHES").unwrap();
    let part = field(&classes, depth).and_then(|class| field(class, part));
    part.and_then(|part| field(part, "usec")).and_then(Reply::integer).unwrap_or(0)
}

/// Returns the number of bytes that the server has read from a client.
fn read_from(conn: &mut Conn, client: i64) -> i64 {
    let line = conn.cmd(&format!("CLIENT LIST ID {client}")).unwrap();
    let line = String::from_utf8_lossy(line.text()).into_owned();
    line.split(' ').find_map(|field| field.strip_prefix("tot-net-in=")?.parse().ok()).unwrap()
}

/// Checks that this part alone has a cause.
fn check_only(conn: &mut Conn, depth: &str, caused: &[&str]) {
    let mut sums = Vec::new();
    for part in ["turn", "execution", "disk", "replicas", "client"] {
        let us = sum_us(conn, depth, part);
        sums.push((part, us, if caused.contains(&part) { us >= FOUND_US_MIN } else { us <= NONE_US_MAX }));
    }
    assert!(sums.iter().all(|(_, _, fits)| *fits), "{depth}, {caused:?}: {sums:?}");
    assert!(sum_us(conn, depth, "total") >= FOUND_US_MIN);
}

#[test]
fn depths_have_their_own_class() {
    let server = Server::penstock(&["--threads", "1"]);
    let mut conn = server.connect();
    conn.cmd("LATENCY BATCHES RESET").unwrap();
    for depth in [1, 2, 16, 128, 300] {
        conn.send("PING\r\n".repeat(depth).as_bytes()).unwrap();
        conn.read_n(depth).unwrap();
    }
    let classes = conn.cmd("LATENCY BATCHES").unwrap();
    // The reset itself is a batch of one command.
    for (depth, count) in [("1", 2), ("2-15", 1), ("16-127", 1), ("128+", 2)] {
        let class = field(&classes, depth).unwrap();
        assert_eq!(field(class, "batches").and_then(Reply::integer), Some(count), "{depth}");
    }
    assert_eq!(conn.cmd("LATENCY BATCHES RESET").unwrap().text(), b"OK");
    let left = conn.cmd("LATENCY BATCHES").unwrap();
    assert_eq!(left.items().len(), 2, "only the reset itself: {}", left.escaped());
}

#[test]
fn a_long_script_takes_execution_and_makes_others_wait_for_a_turn() {
    let server = Server::penstock(&["--threads", "1"]);
    let (mut slow, mut other) = (server.connect(), server.connect());
    other.cmd("PING").unwrap();
    let script = "local began = os.clock() while os.clock() - began < 0.5 do end return 1";
    let eval = format!("PING\r\n*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len());
    // On a busy machine the system may interrupt the thread between two turns, and the server then cannot know that the
    // input has arrived during the script.
    for _ in 0..10 {
        other.cmd("LATENCY BATCHES RESET").unwrap();
        slow.send(eval.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        other.send(b"PING\r\n").unwrap();
        other.read().unwrap();
        slow.read_n(2).unwrap();
        if sum_us(&mut other, "1", "turn") >= FOUND_US_MIN {
            break;
        }
    }
    check_only(&mut other, "2-15", &["execution"]);
    check_only(&mut other, "1", &["turn"]);
}

#[test]
fn a_slow_disk_is_waited_for_with_always() {
    let (directory, disk) = (Directory::new(), HangingDisk::new());
    let own = ["--appendonly", "yes", "--appendfsync", "always", "--threads", "1", "--dir", directory.root()];
    let server = Server::penstock_on(&own, &disk);
    let (mut writer, mut reader) = (server.connect(), server.connect());
    writer.cmd("SET k 0").unwrap();
    reader.cmd("LATENCY BATCHES RESET").unwrap();
    disk.hang("sync");
    writer.send(b"SET k 1\r\nSET k 2\r\n").unwrap();
    std::thread::sleep(CAUSE);
    disk.answer();
    writer.read_n(2).unwrap();
    check_only(&mut reader, "2-15", &["disk"]);
}

#[test]
fn missing_replicas_are_waited_for() {
    let server = Server::penstock(&["--threads", "1"]);
    let mut conn = server.connect();
    conn.cmd("LATENCY BATCHES RESET").unwrap();
    conn.send(b"SET k v\r\nWAIT 1 300\r\n").unwrap();
    assert_eq!(conn.read_n(2).unwrap()[1].integer(), Some(0));
    check_only(&mut conn, "2-15", &["replicas"]);
    let settings = "CONFIG SET durability-replicas 1 durability-timeout 300";
    assert_eq!(conn.cmd(settings).unwrap().text(), b"OK");
    conn.cmd("LATENCY BATCHES RESET").unwrap();
    conn.send(b"SET k v\r\nSET k w\r\nSET k x\r\n").unwrap();
    assert!(conn.read_n(3).unwrap().iter().all(|reply| reply.text().starts_with(b"NOREPLICAS")));
    conn.cmd("CONFIG SET durability-replicas 0").unwrap();
    check_only(&mut conn, "2-15", &["replicas"]);
}

#[test]
fn replies_behind_unread_ones_wait_for_the_client() {
    let server = Server::penstock(&["--threads", "1"]);
    let (mut lazy, mut other) = (server.connect(), server.connect());
    let lazy_id = lazy.cmd("CLIENT ID").unwrap().integer().unwrap();
    other.cmd(&format!("SET big {}", "x".repeat(1 << 20))).unwrap();
    other.cmd("LATENCY BATCHES RESET").unwrap();
    lazy.send("GET big\r\n".repeat(40).as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let before = read_from(&mut other, lazy_id);
    let batch = b"PING\r\nPING\r\n";
    lazy.send(batch).unwrap();
    // The time of a batch begins when the server reads it, which a busy machine delays.
    assert!(comes_true(|| read_from(&mut other, lazy_id) >= before + batch.len() as i64));
    std::thread::sleep(CAUSE);
    lazy.read_n(42).unwrap();
    check_only(&mut other, "2-15", &["client"]);
}

#[test]
fn waits_for_data_are_not_batch_time() {
    let server = Server::penstock(&["--threads", "1"]);
    let (mut waiting, mut other) = (server.connect(), server.connect());
    waiting.send(b"BLPOP q 0\r\nPING\r\n").unwrap();
    std::thread::sleep(CAUSE);
    waiting.send(b"PING\r\n").unwrap();
    other.cmd("LPUSH q x").unwrap();
    waiting.read_n(3).unwrap();
    for depth in ["1", "2-15"] {
        let us = sum_us(&mut other, depth, "total");
        assert!(us <= NONE_US_MAX, "{depth}: {us}");
    }
}

#[test]
fn slow_batches_are_logged_with_their_client() {
    let server = Server::penstock(&["--threads", "1", "--enable-debug-command", "yes"]);
    let mut conn = server.connect();
    for line in ["CLIENT SETNAME importer", "CLIENT SETINFO LIB-NAME mylib", "CLIENT SETINFO LIB-VER 1.2"] {
        conn.cmd(line).unwrap();
    }
    conn.send(b"PING\r\nDEBUG SLEEP 0.05\r\nPING\r\n").unwrap();
    conn.read_n(3).unwrap();
    let entries = conn.cmd("BATCHLOG GET 1").unwrap();
    let entry = &entries.items()[0];
    let text = |name: &str| String::from_utf8_lossy(field(entry, name).unwrap().text()).into_owned();
    let int = |name: &str| field(entry, name).and_then(Reply::integer).unwrap();
    assert_eq!([text("name"), text("lib-name"), text("lib-ver")], ["importer", "mylib", "1.2"]);
    assert!(text("command").starts_with("debug") && text("addr").starts_with("127.0.0.1:"), "{}", entry.escaped());
    assert!(int("depth") == 3 && int("usec") >= 50_000 && int("execution") >= 50_000 && int("command-usec") >= 50_000);
    let parts: i64 = ["turn", "execution", "disk", "replicas", "client"].map(int).iter().sum();
    assert!((int("usec") - 5..=int("usec")).contains(&parts), "{}", entry.escaped());
}
