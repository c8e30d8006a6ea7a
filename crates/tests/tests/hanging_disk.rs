//! What clients see while the disk of the append-only file doesn't answer.

// A test fails by panicking.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

use std::time::Duration;

use penstock_tests::hanging_disk::HangingDisk;
use penstock_tests::loader::Directory;
use penstock_tests::server::Server;

/// A server whose append-only file is on the disk.
fn start(disk: &HangingDisk, directory: &Directory, fsync: &str) -> Server {
    let path = directory.path(".");
    Server::penstock_on(&["--appendonly", "yes", "--appendfsync", fsync, "--dir", &path, "--threads", "2"], disk)
}

fn info(server: &Server) -> String {
    server.connect().cmd("INFO persistence").unwrap().escaped()
}

#[test]
fn everysec_writes_on_while_a_sync_takes_long_so_that_a_kill_loses_nothing_of_that() {
    let (directory, disk) = (Directory::new(), HangingDisk::new());
    let mut server = start(&disk, &directory, "everysec");
    disk.hang("sync");
    let mut conn = server.connect();
    conn.cmd("SET k first").unwrap();
    server.wait_until("a sync runs", |server| info(server).contains("aof_pending_bio_fsync:1"));
    conn.cmd("SET k last").unwrap();
    // The log's thread looks every hundredth of a second.
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    disk.answer();
    let server = start(&disk, &directory, "everysec");
    assert_eq!(server.connect().cmd("GET k").unwrap().text(), b"last");
}
