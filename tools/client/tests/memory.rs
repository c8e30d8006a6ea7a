//! The memory of a pipeline doesn't grow with its length. This test is a separate program, because it measures the
//! whole process.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use client::{Connection, Request, Window};
use common::{config, on_both};

/// Far less than the gigabyte of traffic, and far more than a window needs.
const GROWTH_KIB_MAX: u64 = 24 << 10;

/// Returns the peak memory of this process, in KiB (`VmHWM` of proc(5)).
///
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn pump(connection: &mut Connection, count: usize, request: &(impl Request + Clone)) {
    let requests = std::iter::repeat_n(request.clone(), count);
    let answered = Window::default().run_each(connection, requests, |_, reply| assert!(reply.bytes().is_some()));
    assert_eq!(answered.unwrap(), count as u64);
}

#[test]
fn memory_does_not_grow_with_the_length_of_a_pipeline() {
    on_both(&["--proto-max-bulk-len", "512mb"], |server| {
        let mut connection = Connection::connect(&config(server)).unwrap();
        let value = "x".repeat(10_000);
        let (set, get) = (["SET", "big", value.as_str()], ["GET", "big"]);
        pump(&mut connection, 10, &set);
        let before = peak_kib();
        pump(&mut connection, 50_000, &get);
        pump(&mut connection, 50_000, &set);
        pump(&mut connection, 200_000, &["PING"]);
        let growth = peak_kib() - before;
        assert!(growth < GROWTH_KIB_MAX, "{growth} KiB more");
    });
}
