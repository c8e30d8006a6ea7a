//! Where the server's memory comes from, as the kernel sees it.

// A test fails by panicking.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use penstock_tests::reply::Reply;
use penstock_tests::server::{Server, subject_is_penstock};

const ARGS: &[&str] = &["--threads", "1", "--enable-debug-command", "yes"];

/// Megabytes of the process in huge pages.
fn huge_mb(server: &Server) -> u64 {
    let smaps = fs::read_to_string(format!("/proc/{}/smaps_rollup", server.pid())).unwrap();
    let line = smaps.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Whether the kernel has huge pages for those who ask.
fn kernel_has_huge_pages() -> bool {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    !setting.is_empty() && !setting.contains("[never]")
}

/// Fills about 60 MB, slowly enough for the thread that makes pages ready on a busy machine.
fn fill(server: &Server) {
    let mut conn = server.connect();
    for step in 0..60 {
        conn.cmd(&format!("DEBUG POPULATE 10000 key{step} 64")).unwrap();
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_keyspace_that_grows_is_on_huge_pages() {
    if !subject_is_penstock() || !kernel_has_huge_pages() {
        eprintln!("skipped: no huge pages here");
        return;
    }
    let server = Server::penstock(ARGS);
    fill(&server);
    assert!(huge_mb(&server) >= 16, "{} MB", huge_mb(&server));
}

#[test]
fn memory_is_given_back_to_the_system() {
    if !subject_is_penstock() {
        return;
    }
    let server = Server::penstock(ARGS);
    let before = server.resident_kib();
    fill(&server);
    let full = server.resident_kib();
    assert!(full > before + 50 * 1024, "{before} {full}");
    server.connect().cmd("FLUSHALL").unwrap();
    server.wait_until("the memory is given back", |server| {
        // The allocator gives back what has been free for a while when something else happens.
        server.connect().cmd("DEBUG POPULATE 1000 other").unwrap();
        server.resident_kib() < before + (full - before) / 4
    });
}

#[test]
fn a_limit_of_address_space_is_no_hindrance() {
    if !subject_is_penstock() {
        return;
    }
    // 4 GB: less than the machine's memory, and more than threads and buffers take.
    let server = Server::penstock_with_address_space(ARGS, 4 << 20);
    fill(&server);
    assert_eq!(server.connect().cmd("DBSIZE").unwrap(), Reply::Line(b':', b"600000".to_vec()));
}
