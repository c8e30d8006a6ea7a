//! Snapshots: each has the data of one moment, in spite of concurrent writes; Redis reads them; a start reads them or
//! reports why not.
//!
//! `PENSTOCK_ORACLE` selects a newer Redis, or Valkey, as the other server.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used)]

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::loader::signal as signal_to;
use penstock_tests::ports::free_port;
use penstock_tests::rng::Rng;
use penstock_tests::server::{Server, subject_program};

/// Elements of a collection that a snapshot saves in many steps.
const LARGE: usize = 10_000;
/// Connections that write while a snapshot is made.
const WRITERS: usize = 4;

fn start(directory: &Directory, args: &[&str]) -> Server {
    let own = ["--dir", directory.root(), "--threads", "2", "--enable-debug-command", "yes"];
    Server::penstock(&[&own[..], args].concat())
}

/// Starts Redis on a directory's data.
fn redis(directory: &Directory, args: &[&str]) -> Server {
    Server::oracle(&[&["--dir", directory.root(), "--enable-debug-command", "yes"][..], args].concat())
}

fn text(conn: &mut Conn, command: &str) -> String {
    String::from_utf8_lossy(conn.cmd(command).unwrap().text()).into_owned()
}

fn digest(server: &Server) -> String {
    let mut conn = server.connect();
    (0..2)
        .map(|database| {
            format!("{}{}", text(&mut conn, &format!("SELECT {database}")), text(&mut conn, "DEBUG DIGEST"))
        })
        .collect()
}

fn info(server: &Server, field: &str) -> String {
    let all = text(&mut server.connect(), "INFO persistence");
    let value = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {field} in {all}")).to_string()
}

fn wait_for_snapshot(server: &Server) {
    server.wait_until("the snapshot has been made", |server| {
        info(server, "rdb_bgsave_in_progress") == "0" && info(server, "aof_rewrite_in_progress") == "0"
    });
}

/// Sends commands, one in each line, and checks that none fails.
fn fill(server: &Server, lines: &str) {
    let mut conn = server.connect();
    let count = lines.lines().count();
    conn.send(lines.replace('\n', "\r\n").as_bytes()).unwrap();
    let failed: Vec<_> = conn.read_n(count).unwrap().into_iter().filter(|reply| reply.is_error()).collect();
    assert!(failed.is_empty(), "{}", failed[0].escaped());
}

/// Data of every type, small and large, in two databases.
fn every_type() -> String {
    let mut lines = String::from(
        "SET text hello\nSET number -12345\nSET expiring value EX 10000\nSET gone value PX 1\nRPUSH list a b 3 4\nSADD ints 1 2 300\n\
         SADD set a b c 1\nHSET hash f v n 12\nZADD zset 1 a 2.5 b -inf c\nXADD stream 5-1 f v\nXADD stream 5-2 f v g w\n\
         XGROUP CREATE stream group 0\nXREADGROUP GROUP group one COUNT 1 STREAMS stream >\nXDEL stream 5-1\nSELECT 1\n\
         SET other database\nSELECT 0\nSCRIPT LOAD return(1)\n",
    );
    for i in 0..2000 {
        lines += &format!("SET key:{i} value{i}\n");
    }
    for i in 0..LARGE / 100 {
        let range = i * 100..(i + 1) * 100;
        let words = |word: &dyn Fn(usize) -> String| range.clone().map(word).collect::<Vec<_>>().join(" ");
        lines += &format!("RPUSH long {}\n", words(&|n| format!("element{n}")));
        lines += &format!("SADD many {}\n", words(&|n| format!("member{n}")));
        lines += &format!("HSET wide {}\n", words(&|n| format!("field{n} value{n}")));
        lines += &format!("ZADD ranks {}\n", words(&|n| format!("{n} member{n}")));
    }
    lines
}

fn fill_every_type(server: &Server) {
    fill(server, &every_type());
    // An expired key counts in the digest until a command accesses it.
    std::thread::sleep(Duration::from_millis(5));
    assert!(server.connect().cmd("GET gone").unwrap().is_null());
}

#[test]
fn saved_data_of_every_type_are_loaded_again_and_by_redis() {
    let directory = Directory::new();
    let server = start(&directory, &[]);
    fill_every_type(&server);
    let mut conn = server.connect();
    let library = "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('one', function() return 1 end)\"\r\n";
    conn.send(library.as_bytes()).unwrap();
    assert_eq!(conn.read().unwrap().text(), b"lib");
    let sha = text(&mut conn, "SCRIPT LOAD return(2)");
    fill(&server, "PIPELINE START token\nINCR counted\n");
    let before = digest(&server);
    let saved = conn.cmd("LASTSAVE").unwrap().integer().unwrap();
    assert_eq!(text(&mut conn, "BGSAVE"), "Background saving started");
    wait_for_snapshot(&server);
    assert_eq!(info(&server, "rdb_last_bgsave_status"), "ok");
    assert_eq!(info(&server, "rdb_changes_since_last_save"), "0");
    assert!(conn.cmd("LASTSAVE").unwrap().integer().unwrap() >= saved);
    let by_steps = digest(&redis(&directory, &[]));
    assert_eq!(by_steps, before, "Redis reads what BGSAVE wrote");
    fs::remove_file(directory.join("dump.rdb")).unwrap();
    assert_eq!(text(&mut conn, "SAVE"), "OK");
    drop(server);
    assert_eq!(digest(&redis(&directory, &[])), before, "Redis reads what SAVE wrote");
    let server = start(&directory, &[]);
    assert_eq!(digest(&server), before);
    let mut conn = server.connect();
    assert_eq!(conn.cmd("FCALL one 0").unwrap().integer(), Some(1));
    assert_eq!(conn.cmd(&format!("EVALSHA {sha} 0")).unwrap().integer(), Some(2));
    assert_eq!(conn.cmd("PIPELINE RESUME token").unwrap().items()[1].integer(), Some(1));
    assert!(server.log().contains("DB loaded from disk"), "{}", server.log());
    assert_eq!(info(&server, "rdb_changes_since_last_save"), "0");
    // Penstock reads Redis's snapshot, too.
    let oracle = redis(&directory, &[]);
    assert_eq!(text(&mut oracle.connect(), "SAVE"), "OK");
    drop(oracle);
    assert_eq!(digest(&start(&directory, &[])), before);
}

#[test]
fn an_append_only_file_of_redis_is_loaded_and_goes_on() {
    let directory = Directory::new();
    let files = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];
    // A base in both formats, and commands behind it.
    for preamble in ["yes", "no"] {
        let oracle = redis(&directory, &[&files[..], &["--aof-use-rdb-preamble", preamble]].concat());
        fill(&oracle, "FLUSHALL\n");
        fill_every_type(&oracle);
        assert!(!oracle.connect().cmd("BGREWRITEAOF").unwrap().is_error());
        wait_for_snapshot(&oracle);
        fill(
            &oracle,
            "SET text changed\nMULTI\nSPOP set\nXADD stream * f v\nEXPIRE number 1000\nEXEC\nINCR counted\nLPOP long\n",
        );
        let before = digest(&oracle);
        drop(oracle);
        let mut server = start(&directory, &files);
        assert_eq!(digest(&server), before, "with the base in the form of a snapshot: {preamble}");
        fill(&server, "INCR counted\nSADD set again\n");
        let before = digest(&server);
        server.kill();
        assert_eq!(digest(&start(&directory, &files)), before);
        assert_eq!(digest(&redis(&directory, &files)), before);
    }
}

/// The file of a killed server ends with padding, and Redis appends behind it.
#[test]
fn redis_and_penstock_write_the_same_file_in_turns_though_each_is_killed() {
    let directory = Directory::new();
    let files = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];
    let mut before = None;
    for round in 0..12 {
        let is_redis = round % 3 != 0;
        let mut server = if is_redis { redis(&directory, &files) } else { start(&directory, &files) };
        before.iter().for_each(|before| assert_eq!(*before, digest(&server), "round {round}"));
        // Different lengths, so that the next block ends elsewhere.
        fill(&server, &format!("SET key:{round} {}\nINCR counted\n", "x".repeat(round * 5 + 1)));
        before = Some(digest(&server));
        server.kill();
        let manifest = directory.join("appendonlydir/appendonly.aof.manifest");
        let said = Command::new(subject_program()).arg("check").arg(manifest).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
    }
}

#[test]
fn a_reload_changes_nothing_and_obeys_its_options() {
    let directory = Directory::new();
    let server = start(&directory, &[]);
    fill_every_type(&server);
    let mut conn = server.connect();
    let library = "FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('one', function() return 1 end)\"\r\n";
    conn.send(library.as_bytes()).unwrap();
    assert_eq!(conn.read().unwrap().text(), b"lib");
    let before = digest(&server);
    assert_eq!(text(&mut conn, "DEBUG RELOAD"), "OK");
    assert_eq!(digest(&server), before);
    assert_eq!(conn.cmd("FCALL one 0").unwrap().integer(), Some(1));
    assert!(text(&mut conn, "DEBUG RELOAD NOW").contains("only supports the MERGE, NOFLUSH and NOSAVE options"));
    // Keys that aren't in the file are removed, or stay.
    fill(&server, "SET later 1\nSET text changed\nFUNCTION FLUSH\n");
    assert_eq!(text(&mut conn, "DEBUG RELOAD NOSAVE NOFLUSH MERGE"), "OK");
    assert_eq!((text(&mut conn, "GET later"), text(&mut conn, "GET text")), ("1".into(), "hello".into()));
    assert!(text(&mut conn, "DEBUG RELOAD NOSAVE NOFLUSH").starts_with("ERR Error trying to load the RDB dump"));
    assert_eq!(text(&mut conn, "DEBUG RELOAD NOSAVE"), "OK");
    assert_eq!(digest(&server), before);
    assert_eq!(conn.cmd("FCALL one 0").unwrap().integer(), Some(1));
}

#[test]
fn the_append_only_file_is_loaded_again_and_goes_on() {
    let (directory, args) = (Directory::new(), ["--appendonly", "yes", "--appendfsync", "everysec"]);
    let mut server = start(&directory, &args);
    fill_every_type(&server);
    let mut conn = server.connect();
    for round in 0..3 {
        fill(&server, "INCR counted\nXADD stream * f v\n");
        let before = digest(&server);
        // Commands behind it wait until the data is loaded.
        conn.send(b"DEBUG LOADAOF\r\nGET counted\r\nDBSIZE\r\n").unwrap();
        let replies = conn.read_n(3).unwrap();
        assert_eq!((replies[0].text(), replies[1].text()), (&b"OK"[..], (round + 1).to_string().as_bytes()));
        assert_eq!(digest(&server), before, "round {round}");
        assert_eq!(server.log().matches("DB loaded from append only file").count(), round + 1);
    }
    fill(&server, "INCR counted\nCONFIG SET appendfsync always\nINCR counted\n");
    let state = |server: &Server| (digest(server), text(&mut server.connect(), "GET counted"));
    let before = state(&server);
    server.kill();
    assert_eq!(state(&start(&directory, &args)), before);
    let directory = Directory::new();
    let mut off = start(&directory, &[]);
    assert!(text(&mut off.connect(), "DEBUG LOADAOF").contains("appendonly is off"));
    assert!(!directory.join("appendonlydir").exists());
    // A rewrite writes the file that is off, and it stays off.
    fill(&off, "SET a 1\nBGREWRITEAOF\n");
    off.wait_until("the file is written", |off| {
        directory.join("appendonlydir/appendonly.aof.manifest").exists()
            && text(&mut off.connect(), "INFO persistence").contains("aof_rewrite_in_progress:0")
    });
    fill(&off, "SET a 2\nSET b 2\n");
    assert_eq!(text(&mut off.connect(), "DEBUG LOADAOF"), "OK");
    assert_eq!((text(&mut off.connect(), "GET a"), text(&mut off.connect(), "DBSIZE")), ("1".into(), "1".into()));
    assert!(text(&mut off.connect(), "INFO persistence").contains("aof_enabled:0"));
    off.kill();
}

#[test]
fn a_server_that_ends_while_it_loads_the_append_only_file_again_saves_nothing() {
    let directory = Directory::new();
    let server = start(&directory, &["--appendonly", "yes", "--save", "3600 1"]);
    let mut conn = server.connect();
    // A file that takes a while to load.
    for n in 0..20 {
        let lines: String = (0..20_000).map(|i| format!("SET key:{n}:{i} value\r\n")).collect();
        conn.send(lines.as_bytes()).unwrap();
        conn.read_n(20_000).unwrap();
    }
    assert_eq!(text(&mut conn, "DEBUG LOADAOF"), "OK");
    signal_to(server.pid(), "TERM");
    server.wait_until("the server has ended", |server| server.log().contains("bye bye"));
    let log = server.log();
    let is_cut_off = !log.contains("DB loaded from append only file");
    assert_eq!(is_cut_off, log.contains("The data are being loaded: no snapshot is saved."), "{log}");
    assert_eq!(is_cut_off, !directory.join("dump.rdb").exists());
}

/// Writes units with related parts until it is told to stop: two keys with the same number, a member and its count.
fn write(server: &Server, writer: usize, stop: &AtomicBool, seed: u64) {
    let (mut conn, mut rng) = (server.connect(), Rng::new(seed));
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut batch = String::new();
        for _ in 0..20 {
            number += 1;
            let (a, b) = (rng.below(LARGE), rng.below(LARGE));
            // `ranks` and `mirror` change together, in collections that are saved in many steps; so do `wide` and
            // `long`.
            batch += &format!(
                "MULTI\r\nSET a{writer} {number}\r\nZADD ranks {number} member{a}\r\nHSET wide field{b} {number}\r\n\
                 ZADD mirror {number} member{a}\r\nHSET reflection field{b} {number}\r\nSET b{writer} {number}\r\n\
                 LSET long {a} x{number}\r\nLSET copy {a} x{number}\r\nSADD many w{writer}-{number}\r\n\
                 SADD much w{writer}-{number}\r\nEXEC\r\n"
            );
        }
        conn.send(batch.as_bytes()).unwrap();
        conn.read_n(20 * 12).unwrap();
    }
}

/// Calls `act` while connections write, then stops them.
fn beside_writers(server: &Server, round: u64, act: impl FnOnce(&mut Conn)) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let stop = &stop;
            scope.spawn(move || write(server, writer, stop, round * 10 + writer as u64));
        }
        act(&mut server.connect());
        stop.store(true, Ordering::Relaxed);
    });
}

/// Checks that the parts of each unit are consistent.
fn check_units(server: &Server, round: u64) {
    let mut conn = server.connect();
    for writer in 0..WRITERS {
        assert_eq!(
            text(&mut conn, &format!("GET a{writer}")),
            text(&mut conn, &format!("GET b{writer}")),
            "round {round}"
        );
    }
    for (one, other) in [("ranks", "mirror"), ("wide", "reflection"), ("long", "copy"), ("many", "much")] {
        let (one, other) = (format!("DEBUG DIGEST-VALUE {one}"), format!("DEBUG DIGEST-VALUE {other}"));
        assert_eq!(conn.cmd(&one).unwrap().escaped(), conn.cmd(&other).unwrap().escaped(), "round {round}: {one}");
    }
}

/// Fills the collections of [`write`], each with a partner of the same elements.
fn fill_pairs(server: &Server) {
    fill_every_type(server);
    fill(server, "ZUNIONSTORE mirror 1 ranks\nCOPY wide reflection\nCOPY long copy\nSUNIONSTORE much many\n");
}

#[test]
fn a_snapshot_has_the_data_of_one_moment_despite_writes() {
    let directory = Directory::new();
    let server = start(&directory, &[]);
    fill_pairs(&server);
    for round in 0..4 {
        beside_writers(&server, round, |conn| {
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(text(conn, "BGSAVE"), "Background saving started");
            wait_for_snapshot(&server);
        });
        assert_eq!(info(&server, "rdb_last_bgsave_status"), "ok");
        let loaded = start(&directory, &[]);
        check_units(&loaded, round);
        assert_eq!(digest(&redis(&directory, &[])), digest(&loaded), "round {round}");
    }
    check_units(&server, 99);
}

#[test]
fn a_rewrite_of_the_append_only_file_loses_nothing() {
    rewrite_under_writers("yes", "rdb");
}

#[test]
fn a_rewrite_as_commands_loses_nothing() {
    rewrite_under_writers("no", "aof");
}

fn rewrite_under_writers(preamble: &str, extension: &str) {
    let directory = Directory::new();
    let args = ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", preamble];
    let mut server = start(&directory, &args);
    fill_pairs(&server);
    fill(
        &server,
        "SET expiring value EX 10000\nSET negative -5\nEXPIRE ranks 10000\nEXPIRE mirror 10000\nPIPELINE START token\nINCR counted\n",
    );
    let mut conn = server.connect();
    conn.send(b"FUNCTION LOAD \"#!lua name=lib\\nredis.register_function('one', function() return 1 end)\"\r\n")
        .unwrap();
    assert_eq!(conn.read().unwrap().text(), b"lib");
    for round in 0..3 {
        beside_writers(&server, round, |conn| {
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(text(conn, "BGREWRITEAOF"), "Background append only file rewriting started");
            wait_for_snapshot(&server);
        });
        assert_eq!(info(&server, "aof_last_bgrewrite_status"), "ok");
        let before = digest(&server);
        server.kill();
        let names: Vec<_> =
            fs::read_dir(directory.join("appendonlydir")).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names.len(), 3, "a manifest, a base and an increment: {names:?}");
        let has_base = names.iter().any(|name| name.to_string_lossy().ends_with(&format!(".base.{extension}")));
        assert!(has_base, "{names:?}");
        // A copy, because Redis writes to the file.
        let copy = Directory::new();
        let status =
            Command::new("cp").arg("-r").arg(directory.join("appendonlydir")).arg(copy.root()).status().unwrap();
        assert!(status.success());
        assert_eq!(digest(&redis(&copy, &["--appendonly", "yes"])), before, "Redis, round {round}");
        server = start(&directory, &args);
        assert_eq!(digest(&server), before, "round {round}");
        check_units(&server, round);
        let mut conn = server.connect();
        assert_eq!(conn.cmd("FCALL one 0").unwrap().integer(), Some(1));
        assert_eq!(conn.cmd("PIPELINE RESUME token").unwrap().items()[1].integer(), Some(1));
    }
}

fn has_thread(server: &Server, name: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let names = threads.filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).ok());
    names.into_iter().any(|text| text.trim_end() == name)
}

#[test]
fn the_append_only_file_is_turned_on_and_off_under_writers() {
    let (directory, on) = (Directory::new(), ["--appendonly", "yes", "--appendfsync", "always"]);
    let mut server = start(&directory, &["--appendfsync", "always"]);
    fill_pairs(&server);
    for round in 0..3 {
        beside_writers(&server, round, |conn| {
            // In the last round the first base is still being written when the file is turned off.
            let pause = Duration::from_millis(30 * (2 - round));
            for (setting, has_log) in [("yes", "1"), ("no", "0"), ("yes", "1")] {
                std::thread::sleep(pause);
                // The previous file may still be being written.
                server.wait_until("it is turned", |_| text(conn, &format!("CONFIG SET appendonly {setting}")) == "OK");
                assert_eq!(info(&server, "aof_enabled"), has_log);
            }
            server.wait_until("there is a base", |server| {
                info(server, "aof_base_size") != "0" && info(server, "aof_rewrite_in_progress") == "0"
            });
            std::thread::sleep(Duration::from_millis(30));
        });
        assert_eq!(info(&server, "aof_last_bgrewrite_status"), "ok");
        let before = digest(&server);
        server.kill();
        server = start(&directory, &on);
        assert_eq!(digest(&server), before, "round {round}");
        check_units(&server, round);
        assert_eq!(text(&mut server.connect(), "CONFIG SET appendonly no"), "OK");
    }
    // Writes after the end of the thread are in no file.
    server.wait_until("the file has been closed", |server| !has_thread(server, "aof"));
    server.connect().cmd("SET later x").unwrap();
    server.kill();
    assert!(start(&directory, &on).connect().cmd("GET later").unwrap().is_null());
}

#[test]
fn append_only_files_of_redis_6_are_converted() {
    let command = |words: &[&str]| {
        let words: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
        format!("*{}\r\n{words}", words.matches('$').count())
    };
    let (set, torn) = (command(&["SET", "new", "1"]), &command(&["SET", "torn", "1"])[..20]);
    let source = Directory::new();
    let server = start(&source, &[]);
    fill(&server, "SET old 1\nRPUSH list a b\n");
    assert_eq!(text(&mut server.connect(), "SAVE"), "OK");
    drop(server);
    let snapshot = fs::read(source.join("dump.rdb")).unwrap();
    for (content, has_old) in [
        (format!("{set}{torn}").into_bytes(), false),
        ([&snapshot[..], set.as_bytes(), torn.as_bytes()].concat(), true),
    ] {
        let directory = Directory::new();
        fs::write(directory.join("appendonly.aof"), content).unwrap();
        for start_number in 0..3 {
            let mut server = start(&directory, &["--appendonly", "yes", "--appendfsync", "always"]);
            let mut conn = server.connect();
            assert_eq!(text(&mut conn, "GET new"), "1");
            assert_eq!(conn.cmd("EXISTS old list torn").unwrap().integer(), Some(if has_old { 2 } else { 0 }));
            assert_eq!(conn.cmd("INCR started").unwrap().integer(), Some(start_number + 1));
            server.kill();
        }
        assert!(!directory.join("appendonly.aof").exists());
        let oracle = redis(&directory, &["--appendonly", "yes"]);
        assert_eq!(text(&mut oracle.connect(), "GET started"), "3");
    }
}

#[test]
fn a_cancelled_snapshot_leaves_nothing_and_the_next_one_is_whole() {
    let directory = Directory::new();
    let server = start(&directory, &[]);
    fill_pairs(&server);
    let mut conn = server.connect();
    assert!(text(&mut conn, "BGSAVE CANCEL").contains("not in progress or scheduled"));
    let mut cancelled = 0;
    for round in 0..20 {
        // In one batch, so that the snapshot has not ended.
        conn.send(b"BGSAVE\r\nBGSAVE CANCEL\r\nSET x y\r\n").unwrap();
        let replies = conn.read_n(3).unwrap();
        assert_eq!(replies[0].text(), b"Background saving started", "round {round}");
        // The snapshot may have waited for the end of the previous one.
        let told = [&b"Background saving cancelled"[..], b"Scheduled background saving cancelled"];
        cancelled += u64::from(told.contains(&replies[1].text()));
        wait_for_snapshot(&server);
    }
    assert_eq!(cancelled, 20);
    server.wait_until("nothing is left", |_| fs::read_dir(directory.root()).unwrap().next().is_none());
    // A new snapshot begins although the marks of the cancelled one may have to be cleared first.
    conn.send(b"BGSAVE\r\nBGSAVE CANCEL\r\nBGSAVE\r\n").unwrap();
    conn.read_n(3).unwrap();
    server.wait_until("it is saved", |_| directory.join("dump.rdb").exists());
    wait_for_snapshot(&server);
    assert_eq!(digest(&start(&directory, &[])), digest(&server));
    // SAVE does not wait for the marks to be cleared.
    conn.send(b"BGSAVE\r\nBGSAVE CANCEL\r\nSET later 1\r\n").unwrap();
    conn.read_n(3).unwrap();
    server.wait_until("it is over", |_| info(&server, "rdb_bgsave_in_progress") == "0");
    assert_eq!(text(&mut conn, "SAVE"), "OK");
    assert_eq!(digest(&start(&directory, &[])), digest(&server));
}

#[test]
fn save_points_save_by_themselves_and_the_end_of_the_server_saves() {
    let directory = Directory::new();
    let mut server = start(&directory, &["--save", "1 10"]);
    let mut conn = server.connect();
    fill(&server, &"INCR n\n".repeat(9));
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!directory.join("dump.rdb").exists());
    conn.cmd("INCR n").unwrap();
    server.wait_until("the save point has saved", |_| directory.join("dump.rdb").exists());
    for (end, value) in [("SHUTDOWN", "11"), ("SHUTDOWN NOSAVE", "11"), ("SHUTDOWN SAVE", "12")] {
        let mut conn = server.connect();
        conn.cmd("INCR n").unwrap();
        let _ = conn.send(format!("{end}\r\n").as_bytes());
        assert_eq!(conn.read_to_close().unwrap(), b"", "{end}");
        server.wait_until_ended();
        server = start(&directory, &["--save", "3600 1"]);
        assert_eq!(text(&mut server.connect(), "GET n"), value, "{end}");
    }
    for (signal, value) in [("TERM", "13"), ("INT", "14")] {
        server.connect().cmd("INCR n").unwrap();
        signal_to(server.pid(), signal);
        server.wait_until_ended();
        server = start(&directory, &["--save", "3600 1", "--shutdown-on-sigint", "save"]);
        assert_eq!(text(&mut server.connect(), "GET n"), value, "{signal}");
    }
}

#[test]
fn writes_are_refused_while_snapshots_fail_and_taken_again_afterwards() {
    let directory = Directory::new();
    let args = ["--save", "3600 1", "--dir", directory.root(), "--threads", "2"];
    // Files of 100 KB at most.
    let server = Server::penstock_with_small_files(&args, 200);
    let mut conn = server.connect();
    for i in 0..100 {
        conn.cmd(&format!("SET key{i} {}", "value".repeat(1000))).unwrap();
    }
    conn.cmd("CONFIG SET rdbcompression no").unwrap();
    // A failed SAVE or SHUTDOWN stops no writes, as in Redis. A failed snapshot in the background does.
    assert!(conn.cmd("SAVE").unwrap().is_error());
    assert_eq!(text(&mut conn, "SHUTDOWN"), "ERR Errors trying to SHUTDOWN. Check logs.");
    assert_eq!(text(&mut conn, "SET x y"), "OK");
    assert_eq!(text(&mut conn, "BGSAVE"), "Background saving started");
    wait_for_snapshot(&server);
    assert!(text(&mut conn, "SET x y").starts_with("MISCONF Redis is configured to save RDB snapshots"));
    assert_eq!(text(&mut conn, "GET key1"), "value".repeat(1000));
    assert!(fs::read_dir(directory.root()).unwrap().next().is_none(), "nothing is left of it");
    conn.cmd("CONFIG SET stop-writes-on-bgsave-error no").unwrap();
    assert_eq!(text(&mut conn, "SET x y"), "OK");
    conn.cmd("CONFIG SET stop-writes-on-bgsave-error yes").unwrap();
    assert!(text(&mut conn, "SET x y").starts_with("MISCONF"));
    // The server does not end while it can't save.
    assert_eq!(text(&mut conn, "SHUTDOWN"), "ERR Errors trying to SHUTDOWN. Check logs.");
    server.lift_file_limit();
    assert_eq!(text(&mut conn, "BGSAVE"), "Background saving started");
    wait_for_snapshot(&server);
    assert_eq!(text(&mut conn, "SET x y"), "OK");
}

/// Makes a server load from a pipe, which provides only the bytes that the test has written.
fn start_on_pipe(directory: &Directory) -> (Server, fs::File) {
    let pipe = directory.join("dump.rdb");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let opened = std::thread::spawn(move || fs::OpenOptions::new().write(true).open(pipe).unwrap());
    let args = ["--dir", directory.root(), "--threads", "2", "--save", "3600 1"];
    let server = Server::penstock_that_loads(&args);
    (server, opened.join().unwrap())
}

#[test]
fn clients_get_an_error_during_loading() {
    let directory = Directory::new();
    let server = start(&directory, &[]);
    fill_every_type(&server);
    assert_eq!(text(&mut server.connect(), "SAVE"), "OK");
    let before = digest(&server);
    drop(server);
    let bytes = fs::read(directory.join("dump.rdb")).unwrap();
    fs::remove_file(directory.join("dump.rdb")).unwrap();
    let (server, mut pipe) = start_on_pipe(&directory);
    let half = bytes.len() / 2;
    pipe.write_all(&bytes[..half]).unwrap();
    let loaded = |server: &Server| info(server, "loading_loaded_bytes").parse::<usize>().unwrap();
    server.wait_until("half is loaded", |server| loaded(server) > half / 4);
    assert_eq!(info(&server, "loading"), "1");
    assert!(loaded(&server) <= half);
    // Connections of both threads.
    for _ in 0..4 {
        let mut conn = server.connect();
        for refused in
            ["GET text", "SET text x", "PING", "EVAL return(1) 0", "SUBSCRIBE c", "DBSIZE", "BGSAVE", "BLPOP list 1"]
        {
            let told = text(&mut conn, refused);
            let expected = if refused == "SUBSCRIBE c" { "" } else { "LOADING Redis is loading the dataset in memory" };
            assert!(told == expected || expected.is_empty(), "{refused}: {told}");
            if refused == "SUBSCRIBE c" {
                conn = server.connect();
            }
        }
        for taken in
            ["MULTI", "CLIENT ID", "DISCARD", "CONFIG GET port", "COMMAND COUNT", "CLIENT KILL ID 99", "SELECT 1"]
        {
            assert!(!text(&mut conn, taken).starts_with("LOADING"), "{taken}");
        }
        conn.send(b"MULTI\r\nGET a\r\nEXEC\r\n").unwrap();
        let replies = conn.read_n(3).unwrap();
        assert!(replies[1].text().starts_with(b"LOADING") && replies[2].text().starts_with(b"EXECABORT"));
        conn.cmd("CLIENT KILL TYPE normal").unwrap();
    }
    pipe.write_all(&bytes[half..]).unwrap();
    drop(pipe);
    server.wait_until("all is loaded", |server| info(server, "loading") == "0");
    fs::remove_file(directory.join("dump.rdb")).unwrap();
    fs::write(directory.join("dump.rdb"), &bytes).unwrap();
    assert_eq!(digest(&start(&directory, &[])), before);
    assert_eq!(text(&mut server.connect(), "GET key:7"), "value7");
}

#[test]
fn a_server_that_ends_while_it_loads_saves_nothing() {
    for end in ["TERM", "SHUTDOWN SAVE"] {
        let directory = Directory::new();
        let (mut server, mut pipe) = start_on_pipe(&directory);
        pipe.write_all(b"REDIS0010").unwrap();
        if end == "TERM" {
            signal_to(server.pid(), end);
        } else {
            let _ = server.connect().send(b"SHUTDOWN SAVE\r\n");
        }
        server.wait_until_ended();
        let left: Vec<_> = fs::read_dir(directory.root()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["dump.rdb"], "{end}: the pipe is there, and nothing else");
    }
}

fn run_on(directory: &Directory, args: &[&str]) -> Output {
    let port = free_port().unwrap().to_string();
    let own = ["server", "--port", &port, "--bind", "127.0.0.1", "--dir", directory.root()];
    Command::new(subject_program()).args(own).args(args).output().unwrap()
}

#[test]
fn a_file_that_cannot_be_read_ends_the_start() {
    let directory = Directory::new();
    let server = start(&directory, &[]);
    fill_every_type(&server);
    assert_eq!(text(&mut server.connect(), "SAVE"), "OK");
    drop(server);
    let (path, whole) = (directory.join("dump.rdb"), fs::read(directory.join("dump.rdb")).unwrap());
    let mut rotten = whole.clone();
    // A flipped bit in a value, which only the checksum reveals.
    let at = whole.windows(9).position(|bytes| bytes == b"value1999").unwrap();
    rotten[at] ^= 1;
    let databases = whole.clone();
    for (bytes, args, why) in [
        (&whole[..whole.len() / 2], &[][..], "at byte"),
        (&b"REDIS9999"[..], &[], "version"),
        (&b"nonsense and more"[..], &[], "it is not a snapshot"),
        (&rotten[..], &[], "checksum"),
        (&databases[..], &["--databases", "1"], "raise the setting databases"),
    ] {
        fs::write(&path, bytes).unwrap();
        let output = run_on(&directory, args);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!output.status.success() && output.status.signal().is_none(), "{why}: {said}");
        assert!(said.contains("dump.rdb") && said.contains(why), "{why}: {said}");
        assert_eq!(fs::read(&path).unwrap(), bytes, "{why}: it is as it was");
    }
}
