//! The server's memory as the kernel sees it.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock_tests::bytes::Command;
use penstock_tests::conn::Conn;
use penstock_tests::reply::Reply;
use penstock_tests::server::{Server, subject_is_penstock};

const ARGS: &[&str] = &["--threads", "1", "--enable-debug-command", "yes"];

/// Returns the process's memory in huge pages, in MB.
fn huge_mb(server: &Server) -> u64 {
    let smaps = fs::read_to_string(format!("/proc/{}/smaps_rollup", server.pid())).unwrap();
    let line = smaps.lines().find(|line| line.starts_with("AnonHugePages:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Returns true if the kernel gives huge pages on request.
fn kernel_has_huge_pages() -> bool {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    !setting.is_empty() && !setting.contains("[never]")
}

/// Number of steps of about a megabyte in `fill`.
const STEPS: u64 = 60;

/// Fills about 60 MB.
fn fill(server: &Server) {
    let mut conn = server.connect();
    (0..STEPS).for_each(|step| fill_step(&mut conn, step));
}

fn fill_step(conn: &mut Conn, step: u64) {
    conn.cmd(&format!("DEBUG POPULATE 10000 key{step} 64")).unwrap();
}

/// The thread that prepares pages. It may use a tenth of the time.
struct Preparer {
    task: PathBuf,
    began: Instant,
}

impl Preparer {
    fn of(server: &Server) -> Preparer {
        let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap().map(|entry| entry.unwrap().path());
        let is_it =
            |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("penstock-heap"));
        Preparer { task: tasks.into_iter().find(is_it).unwrap(), began: Instant::now() }
    }

    /// Returns the number of times that the thread has run.
    fn runs(&self) -> u64 {
        let times = fs::read_to_string(self.task.join("schedstat")).unwrap();
        times.split_whitespace().nth(2).unwrap().parse().unwrap()
    }

    /// Waits until the thread is idle, and may use time again. `runs` is its number of runs before the last step. A busy system may run the
    /// woken thread late, and a step may not wake it, so the wait for its run is bounded.
    fn wait(&self, server: &Server, runs: u64) {
        let asked = Instant::now();
        while self.runs() == runs && asked.elapsed() < Duration::from_millis(50) {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.wait_until("the next pages are ready", |_| {
            let stat = fs::read_to_string(self.task.join("stat")).unwrap();
            let spent = fs::read_to_string(self.task.join("schedstat")).unwrap();
            let spent_ns: u64 = spent.split(' ').next().unwrap().parse().unwrap();
            stat.contains(") S ") && self.began.elapsed() > 10 * Duration::from_nanos(spent_ns)
        });
    }
}

#[test]
fn a_keyspace_that_grows_is_on_huge_pages() {
    if !subject_is_penstock() || !kernel_has_huge_pages() {
        eprintln!("skipped: no huge pages here");
        return;
    }
    let server = Server::penstock(ARGS);
    let (mut conn, preparer) = (server.connect(), Preparer::of(&server));
    // The first 48 MB of a heap are always on small pages, and some of the prepared blocks arrive too late. Half of the rest must be huge.
    let steps = 2 * STEPS;
    for step in 0..steps {
        let runs = preparer.runs();
        fill_step(&mut conn, step);
        preparer.wait(&server, runs);
    }
    assert!(huge_mb(&server) >= 36, "{} MB after {steps} steps", huge_mb(&server));
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
        // The allocator returns memory that has been free for a while when another allocation happens.
        server.connect().cmd("DEBUG POPULATE 1000 other").unwrap();
        server.resident_kib() < before + (full - before) / 4
    });
}

/// Returns the string of a key: both numbers determine its length and bytes.
fn value(i: usize, version: usize) -> Vec<u8> {
    let len = 8 + (i * 7919 + version * 104_729) % 200;
    format!("{i}:{version}:").bytes().chain(std::iter::repeat_n(b'v', len)).collect()
}

fn words(words: &[&[u8]]) -> Command {
    words.iter().map(|word| word.to_vec()).collect()
}

fn set(i: usize, version: usize) -> Command {
    words(&[b"SET", format!("key:{i}").as_bytes(), &value(i, version)])
}

fn run(conn: &mut Conn, commands: impl Iterator<Item = Command>) {
    let commands: Vec<_> = commands.collect();
    for part in commands.chunks(1000) {
        conn.pipeline(part).unwrap();
    }
}

/// Checks the values of all strings.
fn check_strings(conn: &mut Conn, keys: &[usize], version: usize) {
    for part in keys.chunks(1000) {
        let gets: Vec<_> = part.iter().map(|i| words(&[b"GET", format!("key:{i}").as_bytes()])).collect();
        let expected: Vec<_> = part.iter().map(|&i| Reply::Blob(b'$', value(i, version))).collect();
        assert_eq!(conn.pipeline(&gets).unwrap(), expected);
    }
}

/// Most strings are overwritten with other lengths or deleted, which leaves half-empty pages. Strings that are moved to
/// free these pages keep their values, in spite of other work on both threads.
#[test]
fn half_empty_pages_are_given_back() {
    const KEYS: usize = 300_000;
    if !subject_is_penstock() {
        return;
    }
    let server = Server::penstock(&["--threads", "2", "--active-defrag-ignore-bytes", "1mb"]);
    let mut conn = server.connect();
    run(&mut conn, (0..KEYS).map(|i| set(i, 1)));
    run(&mut conn, (0..KEYS).map(|i| set(i, 2)));
    let field = |i: usize| words(&[b"HSET", b"hash", format!("field:{i}").as_bytes(), &value(i, 3)]);
    run(&mut conn, (0..KEYS / 10).map(field));
    let small = |i: usize| words(&[b"RPUSH", format!("list:{i}").as_bytes(), &value(i, 4), &value(i, 5)]);
    run(&mut conn, (0..KEYS / 10).map(small));
    let gone = |i: &usize| !i.is_multiple_of(4);
    run(&mut conn, (0..KEYS).filter(gone).map(|i| words(&[b"DEL", format!("key:{i}").as_bytes()])));
    let gone_field = |i: usize| words(&[b"HDEL", b"hash", format!("field:{i}").as_bytes()]);
    run(&mut conn, (0..KEYS / 10).filter(gone).map(gone_field));
    let wasteful = server.resident_kib();

    let kept: Vec<_> = (0..KEYS).filter(|i| !gone(i)).collect();
    let mut other = server.connect();
    let mut version = 2;
    server.wait_until("half-empty pages are given back", |server| {
        check_strings(&mut conn, &kept[..5000], version);
        version += 1;
        run(&mut other, kept[..5000].iter().map(|&i| set(i, version)));
        check_strings(&mut conn, &kept[5000..10_000], 2);
        server.figure("active_defrag_hits") > 10_000 && server.resident_kib() < wasteful * 3 / 4
    });
    check_strings(&mut conn, &kept[..5000], version);
    check_strings(&mut conn, &kept[5000..], 2);
    for i in (0..KEYS / 10).filter(|i| !gone(i)) {
        let hash = conn.call(&words(&[b"HGET", b"hash", format!("field:{i}").as_bytes()])).unwrap();
        assert_eq!(hash, Reply::Blob(b'$', value(i, 3)));
        let list = conn.call(&words(&[b"LRANGE", format!("list:{i}").as_bytes(), b"0", b"-1"])).unwrap();
        let elements = [value(i, 4), value(i, 5)].map(|element| Reply::Blob(b'$', element));
        assert_eq!(list, Reply::Many(b'*', elements.into()));
    }
    assert_eq!(conn.cmd("HLEN hash").unwrap(), Reply::Line(b':', (KEYS / 40).to_string().into_bytes()));
}

#[test]
fn a_pass_over_half_empty_pages_ends_when_it_is_switched_off() {
    const KEYS: usize = 300_000;
    if !subject_is_penstock() {
        return;
    }
    // One percent of the time, so that a pass takes many seconds.
    let slow = ["--active-defrag-cycle-min", "1", "--active-defrag-cycle-max", "1"];
    let server = Server::penstock(&[&["--threads", "1", "--active-defrag-ignore-bytes", "1mb"], &slow[..]].concat());
    let mut conn = server.connect();
    run(&mut conn, (0..KEYS).map(|i| set(i, 1)));
    let gone = (0..KEYS).filter(|i| !i.is_multiple_of(4));
    run(&mut conn, gone.map(|i| words(&[b"DEL", format!("key:{i}").as_bytes()])));
    server.wait_until("a pass has begun", |server| server.figure("active_defrag_hits") > 0);
    conn.cmd("CONFIG SET activedefrag no").unwrap();
    server.wait_until("it has ended", |server| server.figure("active_defrag_running") == 0);
    let hits = server.figure("active_defrag_hits");
    assert!(hits < KEYS as u64 / 8, "half of what is left, and more, has moved: {hits}");
    sleep(Duration::from_millis(500));
    assert_eq!(server.figure("active_defrag_hits"), hits);
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
