//! Acknowledged writes survive a kill of the server, and other units are there completely or not at all.
//!
//! `PENSTOCK_KILLS=N`: number of kills with `appendfsync always`; a quarter as many with `everysec` (bench/kills.sh
//! runs it for long). `PENSTOCK_SEED=N`: seed of the random work.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_tests::directory::Directory;
use penstock_tests::ports::free_port;
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::{Server, subject_program};

/// Number of connections that write units of several commands.
const WRITERS: usize = 6;
/// Number of connections that count under a pipeline token at the same time.
const COUNTERS: usize = 2;
/// Number of kills after which the next server starts empty: the file grows with each, and so does the time to read it.
const KILLS_OF_A_FILE: u64 = 50;

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn start(directory: &Directory, fsync: &str) -> Server {
    Server::penstock(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        fsync,
        "--dir",
        directory.root(),
        "--threads",
        "2",
        "--enable-debug-command",
        "yes",
    ])
}

/// A writer's knowledge of its keys.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    /// The number of the last acknowledged command, and of the last command sent.
    acknowledged: u64,
    sent: u64,
}

/// One command or several that are one unit, and the number of reply lines.
type Unit = (String, usize);

/// Returns the unit that sets a writer's two keys to a number, in one of the possible forms of a unit.
fn pair_unit(writer: usize, number: u64) -> Unit {
    let (w, n) = (writer, number);
    match n % 4 {
        0 => (format!("MULTI\r\nSET {{w{w}}}a {n}\r\nSET {{w{w}}}b {n}\r\nEXEC\r\n"), 6),
        1 => (
            format!(
                "EVAL \"redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1]) return 1\" 2 {{w{w}}}a {{w{w}}}b {n}\r\n"
            ),
            1,
        ),
        2 => (format!("MSET {{w{w}}}a {n} {{w{w}}}b {n}\r\n"), 1),
        _ => (format!("MULTI\r\nINCR {{w{w}}}a\r\nINCR {{w{w}}}b\r\nEXEC\r\n"), 6),
    }
}

/// Returns the command that increments a counter's key and that its token counts.
fn counted_unit(counter: usize, number: u64) -> Unit {
    match number % 3 {
        0 => (format!("EVAL \"return redis.call('INCR', KEYS[1])\" 1 counted{counter}\r\n"), 1),
        _ => (format!("INCR counted{counter}\r\n"), 1),
    }
}

/// Writes until the connection breaks: batches of random length, of units with consecutive numbers. Calls `note` for
/// each acknowledged batch.
fn write(
    mut stream: TcpStream,
    mut known: Known,
    seed: u64,
    stop: &AtomicBool,
    unit: impl Fn(u64) -> Unit,
    mut note: impl FnMut(Known),
) -> Known {
    let mut rng = Rng::new(seed);
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut buffer = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let most = if rng.chance(30) { 200 } else { 8 };
        let count = 1 + rng.below(most) as u64;
        let (texts, lines): (Vec<_>, Vec<_>) = (known.sent + 1..=known.sent + count).map(&unit).unzip();
        known.sent += count;
        if stream.write_all(texts.concat().as_bytes()).is_err() {
            return known;
        }
        for replies in lines {
            for _ in 0..replies {
                if !read_line(&mut stream, &mut buffer) {
                    return known;
                }
            }
            known.acknowledged += 1;
        }
        note(known);
    }
    known
}

/// Reads a reply line. Returns false at the end of the stream.
fn read_line(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> bool {
    loop {
        if let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
            assert!(buffer[0] != b'-', "{}", String::from_utf8_lossy(&buffer[..end]));
            buffer.drain(..=end);
            return true;
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk) {
            Ok(count @ 1..) => buffer.extend_from_slice(&chunk[..count]),
            Ok(_) => return false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

fn number(server: &Server, key: &str) -> u64 {
    let reply = server.connect().cmd(&format!("GET {key}")).unwrap();
    if reply.is_null() { 0 } else { String::from_utf8_lossy(reply.text()).parse().unwrap() }
}

/// Checks that a writer's acknowledged units are there and no unit is incomplete; continues with the current number.
fn check_pair(server: &Server, writer: usize, known: &mut Known, kill: u64) {
    let (a, b) = (number(server, &format!("{{w{writer}}}a")), number(server, &format!("{{w{writer}}}b")));
    assert_eq!(a, b, "kill {kill}, writer {writer}: half a unit");
    assert!(a >= known.acknowledged, "kill {kill}, writer {writer}: {a} is there, {known:?}");
    assert!(a <= known.sent, "kill {kill}, writer {writer}: {a} is there, {known:?}");
    *known = Known { acknowledged: a, sent: a };
}

/// Takes over a counter's token, or creates it if `is_new`, and checks that the token's count matches the counter's
/// key.
fn resume_counter(server: &Server, counter: usize, known: &mut Known, is_new: bool, kill: u64) -> TcpStream {
    let mut conn = server.connect();
    if is_new {
        assert_eq!(conn.cmd(&format!("PIPELINE START token{counter}")).unwrap().text(), b"OK");
        return conn.writer().unwrap();
    }
    let progress = conn.cmd(&format!("PIPELINE RESUME token{counter}")).unwrap();
    let executed = progress.items()[1].integer().unwrap() as u64;
    let there = number(server, &format!("counted{counter}"));
    assert_eq!(there, executed, "kill {kill}, counter {counter}: what the key has, and the token");
    assert!(there >= known.acknowledged, "kill {kill}, counter {counter}: {there} is there, {known:?}");
    assert!(there <= known.sent, "kill {kill}, counter {counter}: {there} is there, {known:?}");
    *known = Known { acknowledged: there, sent: there };
    conn.writer().unwrap()
}

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(("127.0.0.1", server.port())).unwrap()
}

/// The knowledge of all writers.
#[derive(Default)]
struct Everything {
    pairs: [Known; WRITERS],
    counted: [Known; COUNTERS],
    has_tokens: bool,
}

/// Checks a server that has just read its file, and continues from its state. Returns the counters' connections.
fn check_everything(server: &Server, known: &mut Everything, kill: u64) -> Vec<TcpStream> {
    for (writer, known) in known.pairs.iter_mut().enumerate() {
        check_pair(server, writer, known, kill);
    }
    let is_new = !std::mem::replace(&mut known.has_tokens, true);
    let counted = known.counted.iter_mut().enumerate();
    counted.map(|(counter, known)| resume_counter(server, counter, known, is_new, kill)).collect()
}

/// Starts a server, checks its data, and kills it under load. Returns the number of acknowledged units.
fn kill_under_writers(directory: &Directory, known: &mut Everything, kill: u64, rng: &mut Rng) -> u64 {
    let mut server = start(directory, "always");
    let counters = check_everything(&server, known, kill);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mut threads, stop) = (Vec::new(), &stop);
        for (writer, &known) in known.pairs.iter().enumerate() {
            let (stream, seed) = (connect(&server), rng.next_u64());
            threads.push(scope.spawn(move || write(stream, known, seed, stop, |n| pair_unit(writer, n), |_| {})));
        }
        for ((counter, &known), stream) in known.counted.iter().enumerate().zip(counters) {
            let seed = rng.next_u64();
            threads.push(scope.spawn(move || write(stream, known, seed, stop, |n| counted_unit(counter, n), |_| {})));
        }
        std::thread::sleep(Duration::from_millis(rng.below(150) as u64));
        server.kill();
        stop.store(true, Ordering::Relaxed);
        let mut acknowledged = 0;
        for (known, thread) in known.pairs.iter_mut().chain(&mut known.counted).zip(threads) {
            let now = thread.join().unwrap();
            acknowledged += now.acknowledged - known.acknowledged;
            *known = now;
        }
        acknowledged
    })
}

#[test]
fn a_kill_loses_no_acknowledged_write_and_splits_no_unit() {
    let (kills, mut rng) = (env("PENSTOCK_KILLS", 8), Rng::new(env("PENSTOCK_SEED", 1)));
    let mut acknowledged = 0;
    for first in (0..kills).step_by(KILLS_OF_A_FILE as usize) {
        let directory = Directory::new();
        let mut known = Everything::default();
        let end = kills.min(first + KILLS_OF_A_FILE);
        for kill in first..end {
            acknowledged += kill_under_writers(&directory, &mut known, kill, &mut rng);
        }
        check_everything(&start(&directory, "always"), &mut known, end);
    }
    eprintln!("always: {kills} kills, {acknowledged} units acknowledged, all there");
    assert!(acknowledged > 0);
}

/// A writer's batch: the time of its acknowledgement, and its last number.
type Acknowledged = (Instant, u64);

/// Kills a server under load, with `everysec`. Returns the time of the kill, and each writer's acknowledgements.
fn kill_with_everysec(directory: &Directory, rng: &mut Rng) -> (Instant, Vec<(Known, Vec<Acknowledged>)>) {
    let mut server = start(directory, "everysec");
    let known: Vec<_> = (0..WRITERS).map(|writer| number(&server, &format!("{{w{writer}}}a"))).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (writer, there) in known.into_iter().enumerate() {
            let (stream, stop, seed) = (connect(&server), &stop, rng.next_u64());
            let known = Known { acknowledged: there, sent: there };
            threads.push(scope.spawn(move || {
                let mut batches = vec![(Instant::now(), there)];
                let note = |known: Known| batches.push((Instant::now(), known.acknowledged));
                let known = write(stream, known, seed, stop, |n| pair_unit(writer, n), note);
                (known, batches)
            }));
        }
        std::thread::sleep(Duration::from_millis(rng.below(1800) as u64));
        let killed = Instant::now();
        server.kill();
        stop.store(true, Ordering::Relaxed);
        (killed, threads.into_iter().map(|thread| thread.join().unwrap()).collect())
    })
}

#[test]
fn everysec_loses_at_most_its_second_when_the_server_is_killed() {
    let (kills, mut rng) = (env("PENSTOCK_KILLS", 8).div_ceil(4), Rng::new(env("PENSTOCK_SEED", 1)));
    let (mut lost, mut longest) = (0, Duration::ZERO);
    for kill in 0..kills {
        let directory = Directory::new();
        let (killed, writers) = kill_with_everysec(&directory, &mut rng);
        // A stalled disk blocks the writers, so later writes can't be lost.
        let acknowledged = writers.iter().filter_map(|(_, batches)| batches.last());
        let ended = acknowledged.map(|&(when, _)| when).max().map_or(killed, |last| last.min(killed));
        let server = start(&directory, "everysec");
        for (writer, (mut known, batches)) in writers.into_iter().enumerate() {
            let (settled, last): (Vec<_>, Vec<_>) =
                batches.into_iter().partition(|&(when, _)| when + Duration::from_secs(1) <= ended);
            // All acknowledged writes must be there, except those of the last second.
            let acknowledged =
                std::mem::replace(&mut known.acknowledged, settled.last().map_or(0, |&(_, number)| number));
            check_pair(&server, writer, &mut known, kill);
            lost += acknowledged.saturating_sub(known.acknowledged);
            let first_lost = last.into_iter().find(|&(_, number)| number > known.acknowledged);
            longest = longest.max(first_lost.map_or(Duration::ZERO, |(when, _)| ended.saturating_duration_since(when)));
        }
    }
    eprintln!("everysec: {kills} kills, {lost} acknowledged units lost, the oldest {longest:?} before the last one");
}

/// Returns the reply to a command on an unchanged key. If the key's shard has another key that isn't on disk yet, there
/// is no reply; then another key is tried.
fn reply_of_settled(server: &Server, words: &[&str]) -> Reply {
    let tried = (0..8).find_map(|number| {
        let mut conn = server.connect();
        conn.set_patience(Duration::from_secs(2)).unwrap();
        let key = format!("settled{number}");
        let words: Vec<Vec<u8>> = words.iter().chain([&&*key]).map(|word| word.as_bytes().to_vec()).collect();
        conn.call(&words).ok()
    });
    tried.expect("settled keys are answered")
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else_until_there_is_room() {
    let directory = Directory::new();
    for fsync in ["always", "everysec"] {
        let args = ["--appendonly", "yes", "--appendfsync", fsync, "--dir", directory.root(), "--threads", "2"];
        // Files of 100 KB at most.
        let mut server = Server::penstock_with_small_files(&args, 200);
        let (mut conn, mut other) = (server.connect(), server.connect());
        let known = number(&server, "known");
        // With `always`, the replies to writes that aren't on disk wait, so another connection must detect the full
        // disk.
        let mut stream = conn.writer().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let value = "v".repeat(9000);
        let sent = 30;
        let batch: String = (1..=sent).map(|i| format!("INCR known\r\nSET {fsync}{i} {value}\r\n")).collect();
        stream.write_all(batch.as_bytes()).unwrap();
        // Not by a write: its reply would wait, too.
        server.wait_until("the disk is full", |_| {
            other.cmd("INFO persistence").unwrap().escaped().contains("aof_last_write_status:err")
        });
        let refusal = other.cmd("SET x y").unwrap();
        assert!(
            refusal.escaped().contains("MISCONF Errors writing to the AOF file: File too large"),
            "{}",
            refusal.escaped()
        );
        assert!(other.cmd("PING").unwrap().text().starts_with(b"MISCONF"));
        let refusal = reply_of_settled(&server, &["EVAL", "return redis.call('set', KEYS[1], 'y')", "1"]);
        assert!(refusal.text().starts_with(b"MISCONF"));
        assert!(reply_of_settled(&server, &["GET"]).is_null());
        server.lift_file_limit();
        server.wait_until("writes are taken", |_| !other.cmd("SET x y").unwrap().is_error());
        assert_eq!(other.cmd("PING").unwrap().text(), b"PONG");
        // Executed writes are acknowledged now; the others were refused.
        let mut acknowledged = known;
        for _ in 0..2 * sent {
            let reply = conn.read().unwrap();
            acknowledged = acknowledged.max(reply.integer().unwrap_or(0) as u64);
        }
        assert!(acknowledged > known);
        if fsync == "everysec" {
            server.wait_until("all is synced", |_| {
                other.cmd("INFO persistence").unwrap().escaped().contains("aof_unsynced_bytes:0")
            });
        }
        server.kill();
        let server = start(&directory, fsync);
        assert_eq!(number(&server, "known"), acknowledged);
    }
}

#[test]
fn the_server_does_not_start_empty_next_to_unread_data() {
    let directory = Directory::new();
    let refused = || {
        let port = free_port().unwrap().to_string();
        let output = std::process::Command::new(subject_program())
            .args(["server", "--port", &port, "--bind", "127.0.0.1", "--appendonly", "yes", "--dir", directory.root()])
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    std::fs::write(directory.join("dump.rdb"), "REDIS0011").unwrap();
    assert!(refused().contains("dump.rdb is there"));
    std::fs::remove_file(directory.join("dump.rdb")).unwrap();
    let mut server = start(&directory, "always");
    server.connect().cmd("SET k v").unwrap();
    server.kill();
    let manifest = directory.join("appendonlydir/appendonly.aof.manifest");
    let text = std::fs::read(&manifest).unwrap();
    std::fs::remove_file(&manifest).unwrap();
    assert!(refused().contains("appendonly.aof.1.incr.aof is there"));
    std::fs::write(&manifest, "file appendonly.aof.1.incr.aof seq 1\n").unwrap();
    assert!(refused().contains("line 1: a line without file, seq or type"));
    // The failed starts have changed no file.
    std::fs::write(&manifest, text).unwrap();
    assert_eq!(start(&directory, "always").connect().cmd("GET k").unwrap().text(), b"v");
}

/// The replica begins new files behind a primary's snapshot. It retries if the directory can't be opened at that
/// moment.
#[test]
fn a_replica_whose_file_could_not_be_begun_behind_a_snapshot_begins_it_later() {
    let directory = Directory::new();
    let primary = Server::penstock(&[]);
    primary.connect().cmd("SET k of-the-primary").unwrap();
    let mut replica = start(&directory, "always");
    let files = directory.join("appendonlydir");
    std::fs::rename(&files, directory.join("elsewhere")).unwrap();
    std::fs::write(&files, "in the way").unwrap();
    replica.connect().cmd(&format!("REPLICAOF 127.0.0.1 {}", primary.port())).unwrap();
    replica.wait_until("it has the data", |replica| {
        replica.connect().cmd("GET k").is_ok_and(|reply| reply.text() == b"of-the-primary")
    });
    std::fs::remove_file(&files).unwrap();
    let manifest = files.join("appendonly.aof.manifest");
    replica.wait_until("the file has a base", |_| {
        std::fs::read_to_string(&manifest).is_ok_and(|text| text.contains("type b"))
    });
    replica.kill();
    assert_eq!(start(&directory, "always").connect().cmd("GET k").unwrap().text(), b"of-the-primary");
}

#[test]
fn replies_wait_for_the_disk_as_soon_as_the_configuration_says_so() {
    let directory = Directory::new();
    let mut server = start(&directory, "everysec");
    let mut conn = server.connect();
    for number in 1..=200 {
        let fsync = if number % 2 == 0 { "everysec" } else { "always" };
        conn.cmd(&format!("CONFIG SET appendfsync {fsync}")).unwrap();
        conn.cmd(&format!("SET n {number}")).unwrap();
    }
    conn.cmd("CONFIG SET appendfsync always").unwrap();
    conn.cmd("SET n last").unwrap();
    server.kill();
    assert_eq!(start(&directory, "always").connect().cmd("GET n").unwrap().text(), b"last");
}

/// Runs `redis-check-aof` on the manifest. Returns its output and whether it succeeded; None if it isn't installed.
fn check_by_redis(directory: &Directory, args: &[&str]) -> Option<(String, bool)> {
    let manifest = directory.join("appendonlydir/appendonly.aof.manifest");
    let mut command = std::process::Command::new("redis-check-aof");
    let mut child = command
        .args(args)
        .arg(manifest)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take().unwrap().write_all(b"y\n").unwrap();
    let output = child.wait_with_output().unwrap();
    Some((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success()))
}

#[test]
fn redis_can_cut_a_file_with_timestamps_at_a_time() {
    let directory = Directory::new();
    let args = ["--appendonly", "yes", "--appendfsync", "always", "--dir", directory.root()];
    let mut server = Server::penstock(&[&args[..], &["--aof-timestamp-enabled", "yes"]].concat());
    let mut conn = server.connect();
    conn.cmd("SET before 1").unwrap();
    let cut_s: u64 = String::from_utf8_lossy(conn.cmd("TIME").unwrap().items()[0].text()).parse().unwrap();
    std::thread::sleep(Duration::from_millis(2100));
    conn.cmd("SET after 1").unwrap();
    server.kill();
    let server = Server::oracle(&args);
    assert_eq!(server.connect().cmd("DBSIZE").unwrap().integer(), Some(2));
    drop(server);
    let mut server = start(&directory, "always");
    assert_eq!(server.connect().cmd("DBSIZE").unwrap().integer(), Some(2));
    server.kill();
    let Some((said, is_content)) = check_by_redis(&directory, &[]) else { return eprintln!("no redis-check-aof") };
    assert!(is_content && said.contains("All AOF files and manifest are valid"), "{said}");
    let cut = check_by_redis(&directory, &["--truncate-to-timestamp", &(cut_s + 1).to_string()]);
    assert!(cut.as_ref().is_some_and(|(_, is_content)| *is_content), "{cut:?}");
    let server = start(&directory, "always");
    let counts = ["before", "after"].map(|key| number(&server, key));
    assert_eq!(counts, [1, 0], "{cut:?}");
}

/// Loading a file ignores conditions that refuse new writes: its commands were accepted when they were written.
#[test]
fn a_file_is_loaded_though_new_writes_are_refused() {
    let directory = Directory::new();
    let mut server = start(&directory, "always");
    let mut conn = server.connect();
    for command in ["SET a 1", "MSET b 2 c 3", "RPUSH list x y", "MULTI", "SET d 4", "INCR a", "EXEC"] {
        conn.cmd(command).unwrap();
    }
    server.kill();
    let args = ["--appendonly", "yes", "--dir", directory.root(), "--min-replicas-to-write", "1", "--maxmemory", "1"];
    let server = Server::penstock(&args);
    let mut conn = server.connect();
    assert_eq!(conn.cmd("DBSIZE").unwrap().integer(), Some(5));
    assert_eq!(conn.cmd("GET a").unwrap().text(), b"2");
    assert_eq!(conn.cmd("DEL a").unwrap().escaped(), "-NOREPLICAS Not enough good replicas to write.\\r\\n");
}
