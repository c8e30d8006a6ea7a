//! What was acknowledged is there after the server was killed, and what was not is there as a whole or not at all.
//!
//! `PENSTOCK_KILLS=N`: how many times the server is killed (bench/kills.sh runs it for long). `PENSTOCK_SEED=N`: where the
//! random work begins.

// A test fails by panicking.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::{Server, free_port, subject_program};

/// Connections that write at a time.
const WRITERS: usize = 6;

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A directory of its own, removed in the end.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("penstock-durability-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(directory: &Directory, fsync: &str) -> Server {
    Server::penstock(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        fsync,
        "--dir",
        directory.path(),
        "--threads",
        "2",
        "--enable-debug-command",
        "yes",
    ])
}

/// What a writer knows of its keys.
#[derive(Clone, Copy, Default, Debug)]
struct Known {
    /// The number that the last acknowledged command gave, and the last one that was sent.
    acknowledged: u64,
    sent: u64,
}

/// Writes until the connection breaks: batches of random length of commands that each carry the next number, in every form
/// that a unit has. The first reply of a command is a number or +OK.
fn write(mut stream: TcpStream, writer: usize, mut known: Known, seed: u64, stop: &AtomicBool) -> Known {
    let mut rng = Rng::new(seed);
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut buffer = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let most = if rng.chance(30) { 200 } else { 8 };
        let count = 1 + rng.below(most);
        let mut batch = Vec::new();
        let mut lines = Vec::new();
        for number in known.sent + 1..=known.sent + count as u64 {
            let (w, n) = (writer, number);
            // Lines of reply that the command takes.
            let (text, replies) = match n % 4 {
                0 => (format!("MULTI\r\nSET {{w{w}}}a {n}\r\nSET {{w{w}}}b {n}\r\nEXEC\r\n"), 6),
                1 => (
                    format!(
                        "EVAL \"redis.call('SET', KEYS[1], ARGV[1]) redis.call('SET', KEYS[2], ARGV[1]) return 1\" 2 {{w{w}}}a {{w{w}}}b {n}\r\n"
                    ),
                    1,
                ),
                2 => (format!("MSET {{w{w}}}a {n} {{w{w}}}b {n}\r\n"), 1),
                _ => (format!("MULTI\r\nINCR {{w{w}}}a\r\nINCR {{w{w}}}b\r\nEXEC\r\n"), 6),
            };
            batch.extend_from_slice(text.as_bytes());
            lines.push(replies);
        }
        known.sent += count as u64;
        if stream.write_all(&batch).is_err() {
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
    }
    known
}

/// Takes a line of replies. False if there is none any more.
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

#[test]
fn no_acknowledged_write_is_lost_and_no_unit_is_there_in_part_when_the_server_is_killed() {
    let (kills, seed) = (env("PENSTOCK_KILLS", 8), env("PENSTOCK_SEED", 1));
    let directory = Directory::new("kills");
    let mut known = [Known::default(); WRITERS];
    let mut rng = Rng::new(seed);
    for kill in 0..kills {
        let mut server = start(&directory, "always");
        for (writer, known) in known.iter_mut().enumerate() {
            let (a, b) = (number(&server, &format!("{{w{writer}}}a")), number(&server, &format!("{{w{writer}}}b")));
            assert_eq!(a, b, "kill {kill}, writer {writer}: half a unit");
            assert!(a >= known.acknowledged, "kill {kill}, writer {writer}: {a} is there, {known:?}");
            assert!(a <= known.sent, "kill {kill}, writer {writer}: {a} is there, {known:?}");
            (known.acknowledged, known.sent) = (a, a);
        }
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let threads: Vec<_> = known
                .iter()
                .enumerate()
                .map(|(writer, &known)| {
                    let (stream, stop, seed) =
                        (TcpStream::connect(("127.0.0.1", server.port())).unwrap(), &stop, rng.next_u64());
                    scope.spawn(move || write(stream, writer, known, seed, stop))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(rng.below(150) as u64));
            server.kill();
            stop.store(true, Ordering::Relaxed);
            for (known, thread) in known.iter_mut().zip(threads) {
                *known = thread.join().unwrap();
            }
        });
    }
    assert!(known.iter().any(|known| known.acknowledged > 0));
}

#[test]
fn a_pipelines_count_and_what_it_counts_survive_together() {
    let directory = Directory::new("tokens");
    let mut counted = 0;
    for _ in 0..4 {
        let mut server = start(&directory, "always");
        let mut conn = server.connect();
        if counted == 0 {
            conn.cmd("PIPELINE START t").unwrap();
        } else {
            let progress = conn.cmd("PIPELINE RESUME t").unwrap();
            let executed = progress.items()[1].integer().unwrap() as u64;
            assert_eq!(number(&server, "n"), executed);
            assert!(executed >= counted, "{executed} of {counted}");
            counted = executed;
        }
        let mut stream = conn.writer().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(&b"INCR n\r\n".repeat(20_000)).unwrap();
        let mut buffer = Vec::new();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(30) && read_line(&mut stream, &mut buffer) {
            counted += 1;
        }
        server.kill();
        while read_line(&mut stream, &mut buffer) {
            counted += 1;
        }
    }
}

/// Lifts the limit of the files that a process may write, as if there were room on the disk again.
fn lift_limit(server: &Server) {
    let pid = server.pid().to_string();
    let status = std::process::Command::new("prlimit").args(["--fsize=unlimited", "--pid", &pid]).status().unwrap();
    assert!(status.success());
}

/// The reply to a command on a key that nothing has changed. One whose shard has another key that the disk has not taken yet
/// is not answered: then another key is tried.
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
    let directory = Directory::new("full");
    for fsync in ["always", "everysec"] {
        let args = ["--appendonly", "yes", "--appendfsync", fsync, "--dir", directory.path(), "--threads", "2"];
        // Files of 100 KB.
        let mut server = Server::penstock_with_small_files(&args, 200);
        let (mut conn, mut other) = (server.connect(), server.connect());
        let known = number(&server, "known");
        // With `always`, the reply to what the disk has not taken waits: it is another connection that is told.
        let mut stream = conn.writer().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let value = "v".repeat(9000);
        let sent = 30;
        let batch: String = (1..=sent).map(|i| format!("SET {fsync}{i} {value}\r\nINCR known\r\n")).collect();
        stream.write_all(batch.as_bytes()).unwrap();
        // Not by a write, whose reply would wait, too.
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
        lift_limit(&server);
        server.wait_until("writes are taken", |_| !other.cmd("SET x y").unwrap().is_error());
        assert_eq!(other.cmd("PING").unwrap().text(), b"PONG");
        // What was executed is acknowledged now; the rest was refused.
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
fn the_server_does_not_start_empty_beside_data_that_it_does_not_read() {
    let directory = Directory::new("unread");
    let refused = || {
        let port = free_port().unwrap().to_string();
        let output = std::process::Command::new(subject_program())
            .args(["server", "--port", &port, "--bind", "127.0.0.1", "--appendonly", "yes", "--dir", directory.path()])
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    std::fs::write(directory.0.join("dump.rdb"), "REDIS0011").unwrap();
    assert!(refused().contains("dump.rdb is there"));
    std::fs::remove_file(directory.0.join("dump.rdb")).unwrap();
    let mut server = start(&directory, "always");
    server.connect().cmd("SET k v").unwrap();
    server.kill();
    let manifest = directory.0.join("appendonlydir/appendonly.aof.manifest");
    let text = std::fs::read(&manifest).unwrap();
    std::fs::remove_file(&manifest).unwrap();
    assert!(refused().contains("appendonly.aof.1.incr.aof is there"));
    std::fs::write(&manifest, "file appendonly.aof.1.incr.aof seq 1\n").unwrap();
    assert!(refused().contains("line 1: a line without file, seq or type"));
    // Nothing was written over meanwhile.
    std::fs::write(&manifest, text).unwrap();
    assert_eq!(start(&directory, "always").connect().cmd("GET k").unwrap().text(), b"v");
}

#[test]
fn replies_wait_for_the_disk_as_soon_as_the_configuration_says_so() {
    let directory = Directory::new("switch");
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
