//! The effects on clients while the disk of the append-only file hangs.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

use std::io::Write;
use std::time::{Duration, Instant};

use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::hanging_disk::HangingDisk;
use penstock_tests::reply::Reply;
use penstock_tests::server::Server;

/// Starts a server with an append-only file on the disk, without automatic rewrites.
fn start(disk: &HangingDisk, directory: &Directory, fsync: &str) -> Server {
    let own = ["--appendonly", "yes", "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0"];
    Server::penstock_on(&[&own[..], &["--dir", directory.root(), "--threads", "2"]].concat(), disk)
}

fn info(server: &Server) -> String {
    server.connect().cmd("INFO persistence").unwrap().escaped()
}

#[test]
fn everysec_writes_to_the_file_during_a_slow_sync() {
    let (directory, disk) = (Directory::new(), HangingDisk::new());
    let mut server = start(&disk, &directory, "everysec");
    disk.hang("sync");
    let mut conn = server.connect();
    conn.cmd("SET k first").unwrap();
    server.wait_until("a sync runs", |server| info(server).contains("aof_pending_bio_fsync:1"));
    conn.cmd("SET k last").unwrap();
    // The log's thread writes every hundredth of a second.
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    disk.answer();
    let server = start(&disk, &directory, "everysec");
    assert_eq!(server.connect().cmd("GET k").unwrap().text(), b"last");
}

/// The file's unsynced bytes, and the memory reserved for more of them, are not the data's.
#[test]
fn unsynced_bytes_evict_no_keys() {
    const KEYS: usize = 500;
    const VALUE_BYTES: usize = 10_000;
    let (directory, disk) = (Directory::new(), HangingDisk::new());
    let server = start(&disk, &directory, "everysec");
    let mut conn = server.connect();
    conn.cmd("CONFIG SET maxmemory-policy allkeys-lru").unwrap();
    let value = "v".repeat(VALUE_BYTES);
    let batch: String = (0..KEYS).map(|key| format!("SET key{key} {value}\r\n")).collect();
    let set_all = |conn: &mut Conn| {
        conn.send(batch.as_bytes()).unwrap();
        conn.read_n(KEYS).unwrap().iter().filter(|reply| reply.is_error()).count()
    };
    set_all(&mut conn);
    // Sent buffers and freed values need some room as well.
    let limit = server.figure("used_memory") + (16 << 20);
    conn.cmd(&format!("CONFIG SET maxmemory {limit}")).unwrap();
    disk.hang("sync");
    // Before the log stops taking units, at 128 MB.
    for round in 0..20 {
        assert_eq!((round, set_all(&mut conn)), (round, 0));
    }
    server.wait_until("the log has all changes", |server| server.figure("aof_unsynced_bytes") > 90 << 20);
    assert!(server.figure("used_memory") > limit);
    assert!(server.figure("mem_aof_buffer") > 90 << 20);
    assert_eq!(server.figure("evicted_keys"), 0);
    assert_eq!(conn.cmd("DBSIZE").unwrap().integer(), Some(KEYS as i64));
    disk.answer();
}

/// Returns true for a refusal that names the file and the time for which the disk has hung.
fn is_refusal(reply: &Reply) -> bool {
    let text = String::from_utf8_lossy(reply.text()).into_owned();
    text.starts_with("MISCONF Errors writing to the AOF file: ")
        && text.contains("appendonlydir/appendonly.aof.1.incr.aof: the disk has not answered for 1")
}

#[test]
fn with_always_a_hanging_disk_refuses_writes_and_loses_nothing() {
    let (directory, disk) = (Directory::new(), HangingDisk::new());
    let mut server = start(&disk, &directory, "always");
    let mut conns = [server.connect(), server.connect(), server.connect()];
    let [waiting, greedy, other] = &mut conns;
    other.cmd("SET settled v").unwrap();
    disk.hang("sync");
    let began = Instant::now();
    waiting.send(b"SET waiting v\r\n").unwrap();
    // Replies that wait behind one that depends on the disk: some 100 MB if all of them were produced.
    let before_kib = server.resident_kib();
    other.cmd("GET settled").unwrap();
    let mut writer = greedy.writer().unwrap();
    let gets = format!("SET greedy v\r\n{}", "COMMAND\r\n".repeat(1000)).into_bytes();
    let sender = std::thread::spawn(move || writer.write_all(&gets));
    server.wait_until("writes are refused", |_| is_refusal(&other.cmd("PING").unwrap()));
    assert!(began.elapsed() >= Duration::from_secs(9), "{:?}", began.elapsed());
    assert!(is_refusal(&other.cmd("SET refused v").unwrap()));
    assert_eq!(other.cmd("GET settled").unwrap().text(), b"v");
    assert!(info(&server).contains("aof_last_write_status:err"));
    let taken_kib = server.resident_kib().saturating_sub(before_kib);
    assert!(taken_kib < 50 << 10, "{taken_kib} KiB");
    waiting.set_patience(Duration::from_millis(100)).unwrap();
    assert!(waiting.read().is_err(), "a reply that the disk doesn't have");
    disk.answer();
    server.wait_until("writes are taken", |_| other.cmd("PING").unwrap().text() == b"PONG");
    waiting.set_patience(Duration::from_secs(20)).unwrap();
    assert_eq!(waiting.read().unwrap().text(), b"OK");
    assert_eq!(greedy.read().unwrap().text(), b"OK");
    assert!(greedy.read_n(1000).unwrap().iter().all(|reply| !reply.is_error()));
    sender.join().unwrap().unwrap();
    server.kill();
    let server = start(&disk, &directory, "always");
    let values: Vec<_> =
        ["waiting", "greedy", "refused"].map(|key| server.connect().cmd(&format!("GET {key}")).unwrap()).into();
    assert!(values[0].text() == b"v" && values[1].text() == b"v" && values[2].is_null());
}

/// Writes wait for a late log, so that `kill -9` loses at most the second that `everysec` may lose.
#[test]
fn with_everysec_a_write_that_hangs_costs_a_killed_server_a_second_at_most() {
    let (directory, disk) = (Directory::new(), HangingDisk::new());
    let mut server = start(&disk, &directory, "everysec");
    let mut conn = server.connect();
    conn.set_patience(Duration::from_millis(200)).unwrap();
    let began = Instant::now();
    disk.hang("write");
    // The time of each reply.
    let mut answered = Vec::new();
    while began.elapsed() < Duration::from_secs(3) {
        if let Ok(reply) = conn.cmd("INCR n") {
            answered.push((reply.integer().unwrap(), Instant::now()));
        } else {
            break;
        }
    }
    while began.elapsed() < Duration::from_secs(3) {
        std::thread::sleep(Duration::from_millis(10));
    }
    server.kill();
    disk.answer();
    let server = start(&disk, &directory, "everysec");
    let kept = server.connect().cmd("GET n").unwrap();
    let kept: usize = if kept.is_null() { 0 } else { String::from_utf8_lossy(kept.text()).parse().unwrap() };
    // The lost writes were answered within a second, before the server stopped accepting writes.
    let (first, last) = (answered[kept], answered[answered.len() - 1]);
    assert!(last.1 - first.1 < Duration::from_secs(1), "{kept} of {}, {:?}", last.0, last.1 - first.1);
}

#[test]
fn with_everysec_a_write_that_hangs_refuses_writes_until_it_returns() {
    let (directory, disk) = (Directory::new(), HangingDisk::new());
    let mut server = start(&disk, &directory, "everysec");
    let mut conn = server.connect();
    disk.hang("write");
    let mut count = 0;
    server.wait_until("writes are refused", |_| {
        let reply = conn.cmd("INCR n").unwrap();
        count = reply.integer().unwrap_or(count);
        is_refusal(&reply)
    });
    assert_eq!(conn.cmd("GET n").unwrap().text(), count.to_string().as_bytes());
    disk.answer();
    server.wait_until("writes are taken", |_| !conn.cmd("SET m 1").unwrap().is_error());
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    let server = start(&disk, &directory, "everysec");
    assert_eq!(server.connect().cmd("GET n").unwrap().text(), count.to_string().as_bytes());
}

#[test]
fn with_everysec_a_sync_that_hangs_refuses_writes_once_much_is_unsynced() {
    const VALUE_BYTES: usize = 1 << 20;
    let (directory, disk) = (Directory::new(), HangingDisk::new());
    let server = start(&disk, &directory, "everysec");
    let mut conn = server.connect();
    disk.hang("sync");
    let set = [b"SET".to_vec(), b"k".to_vec(), vec![b'x'; VALUE_BYTES]];
    let mut taken = 0;
    server.wait_until("writes are refused", |_| {
        let reply = conn.call(&set).unwrap();
        taken += usize::from(!reply.is_error());
        is_refusal(&reply)
    });
    // The data kept in case the sync fails, and the data that waits to be written.
    assert!((128..128 + 64 + 16).contains(&taken), "{taken} MB");
    assert!(info(&server).contains("aof_delayed_fsync:1"));
    disk.answer();
    server.wait_until("writes are taken", |_| !conn.call(&set).unwrap().is_error());
}

#[test]
fn a_rewrite_on_a_hanging_disk_refuses_writes_and_goes_on_afterwards() {
    let (directory, disk) = (Directory::new(), HangingDisk::new());
    let mut server = start(&disk, &directory, "everysec");
    let mut conn = server.connect();
    conn.cmd("SET k first").unwrap();
    disk.hang("sync");
    server.wait_until("a sync runs", |server| info(server).contains("aof_pending_bio_fsync:1"));
    assert!(!conn.cmd("BGREWRITEAOF").unwrap().is_error());
    let mut count = 0;
    server.wait_until("writes are refused", |_| {
        let reply = conn.cmd("INCR n").unwrap();
        count = reply.integer().unwrap_or(count);
        is_refusal(&reply)
    });
    disk.answer();
    server.wait_until("writes are taken", |_| !conn.cmd("SET m 1").unwrap().is_error());
    server.wait_until("it is rewritten", |server| info(server).contains("aof_rewrite_in_progress:0"));
    assert!(info(&server).contains("aof_last_bgrewrite_status:ok"));
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    let server = start(&disk, &directory, "everysec");
    assert_eq!(server.connect().cmd("GET n").unwrap().text(), count.to_string().as_bytes());
    assert_eq!(server.connect().cmd("GET k").unwrap().text(), b"first");
}

#[test]
fn a_server_with_a_hanging_disk_can_be_shut_down() {
    let (directory, disk) = (Directory::new(), HangingDisk::new());
    let mut server = start(&disk, &directory, "always");
    disk.hang("sync");
    server.connect().send(b"SET k v\r\n").unwrap();
    let killed = std::process::Command::new("kill").arg(server.pid().to_string()).status().unwrap();
    assert!(killed.success());
    let began = Instant::now();
    while server.is_alive() {
        assert!(began.elapsed() < Duration::from_secs(40), "it waits for the disk");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(server.log().contains("doesn't answer"), "{}", server.log());
    server.kill();
}

#[test]
fn the_latency_monitor_names_slow_writes_and_syncs() {
    let disk = HangingDisk::new();
    for (fsync, calls, events) in [
        ("always", "sync", &["aof-fsync-always"][..]),
        ("always", "write", &["aof-write-alone", "aof-write"]),
        ("everysec", "write", &["aof-write"]),
    ] {
        let directory = Directory::new();
        let server = start(&disk, &directory, fsync);
        let mut conn = server.connect();
        conn.cmd("CONFIG SET latency-monitor-threshold 20").unwrap();
        disk.hang(calls);
        conn.send(b"SET k v\r\n").unwrap();
        std::thread::sleep(Duration::from_millis(100));
        disk.answer();
        assert_eq!(conn.read().unwrap().text(), b"OK");
        for event in events {
            server.wait_until(event, |_| conn.cmd("LATENCY LATEST").unwrap().escaped().contains(event));
        }
    }
}
