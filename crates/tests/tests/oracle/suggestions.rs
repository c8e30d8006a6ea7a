//! Suggestions in files and payloads: loaded data equals saved data, in spite of concurrent writes. No oracle has
//! suggestions without a module.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{Command, encode_all};
use penstock_tests::conn::Conn;
use penstock_tests::directory::Directory;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;

/// Suggestions of a key that a snapshot saves in many steps.
const LARGE: usize = 20_000;
/// Changes during a snapshot.
const CHANGES: usize = 5000;

fn start(directory: &Directory, args: &[&str]) -> Server {
    let own = ["--dir", directory.root(), "--threads", "2", "--enable-debug-command", "yes"];
    Server::penstock(&[&own[..], args].concat())
}

fn words(words: &[&str]) -> Command {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn text(conn: &mut Conn, command: &str) -> String {
    String::from_utf8_lossy(conn.cmd(command).unwrap().text()).into_owned()
}

fn title(rng: &mut Rng) -> String {
    let of = ["the ", "The ", "a ", "star ", "los ", "élan ", "of ", "night ", "war ", "2 ", "😀 "];
    (0..2 + rng.below(5)).map(|_| *rng.pick(&of)).collect::<String>() + &rng.below(300).to_string()
}

/// Sends changes, and checks that none fails.
fn change(conn: &mut Conn, rng: &mut Rng, count: usize) {
    let mut commands = Vec::new();
    for _ in 0..count {
        let (title, score) = (title(rng), rng.below(1000).to_string());
        commands.push(match rng.below(8) {
            0 => words(&["FT.SUGDEL", "large", &title]),
            1 => words(&["FT.SUGADD", "large", &title, "0.1", "INCR"]),
            2 => words(&["FT.SUGADD", "large", &title, &score, "PAYLOAD", "{\"year\": 1999}"]),
            _ => words(&["FT.SUGADD", "large", &title, &score]),
        });
    }
    conn.send(&encode_all(&commands)).unwrap();
    let failed: Vec<_> = conn.read_n(count).unwrap().into_iter().filter(|reply| reply.is_error()).collect();
    assert!(failed.is_empty(), "{}", failed[0].escaped());
}

fn fill(server: &Server) {
    let mut conn = server.connect();
    change(&mut conn, &mut Rng::new(1), LARGE);
    for command in ["FT.SUGADD small one 1 PAYLOAD p", "FT.SUGADD small two 2.5", "PEXPIREAT small 4102444800000"] {
        assert!(!conn.cmd(command).unwrap().is_error(), "{command}");
    }
}

/// Returns the data, by all commands that read it.
fn state(server: &Server) -> Vec<String> {
    let mut conn = server.connect();
    let mut all: Vec<_> = ["DEBUG DIGEST", "PEXPIRETIME small", "FT.SUGLEN large"]
        .iter()
        .map(|line| conn.cmd(line).unwrap().escaped())
        .collect();
    for prefix in ["t", "the", "THE", "él", "2", "star"] {
        conn.send(&encode_all(&[words(&[
            "FT.SUGGET",
            "large",
            prefix,
            "FUZZY",
            "WITHSCORES",
            "WITHPAYLOADS",
            "MAX",
            "50",
        ])]))
        .unwrap();
        all.push(conn.read().unwrap().escaped());
    }
    all
}

/// Waits for the snapshot or rewrite in progress, while making changes.
fn change_beside(server: &Server, begin: &str) {
    let mut conn = server.connect();
    assert!(!conn.cmd(begin).unwrap().is_error());
    change(&mut conn, &mut Rng::new(2), CHANGES);
    server.wait_until("it has been written", |server| {
        let info = text(&mut server.connect(), "INFO persistence");
        info.contains("rdb_bgsave_in_progress:0") && info.contains("aof_rewrite_in_progress:0")
    });
}

#[test]
fn a_snapshot_has_them_as_they_were() {
    let directory = Directory::new();
    let mut server = start(&directory, &[]);
    fill(&server);
    let before = state(&server);
    change_beside(&server, "BGSAVE");
    assert_ne!(state(&server), before);
    server.kill();
    assert_eq!(state(&start(&directory, &[])), before);
}

#[test]
fn the_append_only_file_has_them_in_both_forms() {
    for preamble in ["yes", "no"] {
        let directory = Directory::new();
        let args = ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", preamble];
        let mut server = start(&directory, &args);
        fill(&server);
        let before = state(&server);
        server.kill();
        let mut server = start(&directory, &args);
        assert_eq!(state(&server), before, "{preamble}: by commands");
        change_beside(&server, "BGREWRITEAOF");
        let before = state(&server);
        server.kill();
        assert_eq!(state(&start(&directory, &args)), before, "{preamble}: by a rewrite");
    }
}

#[test]
fn a_payload_has_them() {
    let server = start(&Directory::new(), &[]);
    fill(&server);
    let before = state(&server);
    let mut conn = server.connect();
    let dumped = conn.cmd("DUMP large").unwrap().text().to_vec();
    let digest = text(&mut conn, "DEBUG DIGEST-VALUE large");
    conn.cmd("DEL large").unwrap();
    conn.send(&encode_all(&[vec![b"RESTORE".to_vec(), b"large".to_vec(), b"0".to_vec(), dumped.clone()]])).unwrap();
    assert_eq!(conn.read().unwrap().text(), b"OK");
    assert_eq!(text(&mut conn, "DEBUG DIGEST-VALUE large"), digest);
    assert_eq!(text(&mut conn, "DEBUG RELOAD"), "OK");
    assert_eq!(state(&server), before);
    // A truncated payload is refused completely.
    conn.send(&encode_all(&[vec![
        b"RESTORE".to_vec(),
        b"cut".to_vec(),
        b"0".to_vec(),
        dumped[..dumped.len() - 30].to_vec(),
    ]]))
    .unwrap();
    assert!(conn.read().unwrap().is_error());
    assert_eq!(conn.cmd("EXISTS cut").unwrap().integer(), Some(0));
}

#[test]
fn memory_usage_is_reported() {
    let server = start(&Directory::new(), &[]);
    let mut conn = server.connect();
    let mut usage = |titles: usize| {
        for title in 0..titles {
            conn.cmd(&format!("FT.SUGADD key title{title} 1")).unwrap();
        }
        conn.cmd("MEMORY USAGE key").unwrap().integer().unwrap()
    };
    let (one, thousand) = (usage(1), usage(1000));
    assert!(one < 250 && (10_000..40_000).contains(&thousand), "{one} {thousand}");
}
