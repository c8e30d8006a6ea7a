//! Penstock as a replica of redis-server: random work, cut links, equal data at equal offsets.
//!
//! `PENSTOCK_ORACLE` selects another primary: Valkey or a newer Redis.

#![allow(clippy::unwrap_used)]

use std::thread;
use std::time::Duration;

use penstock_tests::breaker::Breaker;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;

use super::links::{PRIMARY, STREAMS, is_up, persist_all, replica_of, text, wait_until_equal, work};

/// A library with a function that returns 2.
const FUNCTION: &str = "#!lua name=l\nredis.register_function{function_name='answer',callback=function() return 2 end,flags={'no-writes'}}";

#[test]
fn a_replica_has_what_its_primary_has() {
    let primary = Server::oracle(PRIMARY);
    work(&primary, 1, STREAMS);
    let replica = replica_of(primary.port(), &[]);
    work(&primary, 2, STREAMS);
    replica.wait_until("the link is up", is_up);
    work(&primary, 3, STREAMS);
    wait_until_equal(&primary, &replica);
    assert_eq!(primary.figure("sync_full"), 1);
    assert!(!replica.log().contains("could not be applied"), "{}", replica.log());
}

/// Redis sends trims with a limit in a form that clients can't use.
#[test]
fn commands_that_redis_sends_only_to_replicas_are_applied() {
    let primary = Server::oracle(PRIMARY);
    let replica = replica_of(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    let mut conn = primary.connect();
    for _ in 0..300 {
        conn.cmd("XADD s MAXLEN ~ 2 LIMIT 100 * f v").unwrap();
    }
    conn.cmd("XTRIM s MINID ~ 1 LIMIT 3").unwrap();
    wait_until_equal(&primary, &replica);
    assert!(!replica.log().contains("could not be applied"), "{}", replica.log());
}

/// A link that is cut continues at its position, even in the middle of a command or a transaction.
#[test]
fn a_link_that_is_cut_goes_on() {
    let primary = Server::oracle(PRIMARY);
    work(&primary, 11, STREAMS / 4);
    let mut first = true;
    let mut rng = Rng::new(12);
    let breaker = Breaker::start_with(primary.port(), move || {
        // A large budget, so that the snapshot gets through.
        let back = if std::mem::take(&mut first) { 1 << 20 } else { 200 + rng.below(20_000) };
        [1 << 30, back]
    });
    let replica = replica_of(breaker.port(), &[]);
    replica.wait_until("the link is up", is_up);
    work(&primary, 13, STREAMS);
    wait_until_equal(&primary, &replica);
    assert!(breaker.broken() > 5, "{}", breaker.broken());
    assert_eq!(primary.figure("sync_full"), 1, "{}", replica.log());
    assert!(primary.figure("sync_partial_ok") > 5);
    assert!(!replica.log().contains("could not be applied"), "{}", replica.log());
}

#[test]
fn clients_of_a_replica_read_and_do_not_write() {
    let primary = Server::oracle(PRIMARY);
    primary.connect().cmd("SET k v").unwrap();
    let replica = replica_of(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    let mut conn = replica.connect();
    let read_only = b"READONLY You can't write against a read only replica.";
    for command in ["SET k w", "DEL k", "FLUSHALL", "EVAL redis.call('set','k','w') 0"] {
        let reply = conn.cmd(command).unwrap();
        assert!(reply.is_error() && reply.text().starts_with(read_only), "{command}: {}", reply.escaped());
    }
    conn.cmd("MULTI").unwrap();
    assert_eq!(conn.cmd("SET k w").unwrap().text(), read_only);
    assert!(conn.cmd("EXEC").unwrap().text().starts_with(b"EXECABORT"));
    assert_eq!(conn.cmd("GET k").unwrap().text(), b"v");
    let role = conn.cmd("ROLE").unwrap();
    assert_eq!((role.items()[0].text(), role.items()[3].text()), (&b"slave"[..], &b"connected"[..]));
    conn.cmd("CONFIG SET replica-read-only no").unwrap();
    assert_eq!(conn.cmd("SET own 1").unwrap().text(), b"OK");
}

/// Expired keys are invisible, and stay until the primary deletes them.
#[test]
fn keys_expire_when_the_primary_deletes_them() {
    let primary = Server::oracle(PRIMARY);
    let replica = replica_of(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    let mut conn = primary.connect();
    conn.cmd("DEBUG SET-ACTIVE-EXPIRE 0").unwrap();
    conn.cmd("SET k v PX 100").unwrap();
    replica.wait_until("the key is there", |replica| {
        text(replica, "DBSIZE") == "1" || replica.connect().cmd("DBSIZE").unwrap().integer() == Some(1)
    });
    thread::sleep(Duration::from_millis(300));
    let mut reader = replica.connect();
    assert!(reader.cmd("GET k").unwrap().is_null());
    assert_eq!(reader.cmd("EXISTS k").unwrap().integer(), Some(0));
    assert_eq!(reader.cmd("DBSIZE").unwrap().integer(), Some(1));
    assert!(conn.cmd("GET k").unwrap().is_null());
    replica
        .wait_until("the primary has said so", |replica| replica.connect().cmd("DBSIZE").unwrap().integer() == Some(0));
}

#[test]
fn a_promoted_replica_keeps_its_data_and_can_return() {
    let primary = Server::oracle(PRIMARY);
    work(&primary, 21, 4);
    persist_all(&primary);
    let replica = replica_of(primary.port(), &[]);
    replica.wait_until("the link is up", is_up);
    wait_until_equal(&primary, &replica);
    let digest = text(&replica, "DEBUG DIGEST");
    let mut conn = replica.connect();
    assert_eq!(conn.cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
    assert_eq!(text(&replica, "DEBUG DIGEST"), digest);
    assert_eq!(conn.cmd("SET own 1").unwrap().text(), b"OK");
    let port = primary.port().to_string();
    assert_eq!(conn.cmd(&format!("REPLICAOF 127.0.0.1 {port}")).unwrap().text(), b"OK");
    let again = conn.cmd(&format!("REPLICAOF 127.0.0.1 {port}")).unwrap();
    assert_eq!(again.text(), b"OK Already connected to specified master");
    replica.wait_until("the link is up", is_up);
    wait_until_equal(&primary, &replica);
    assert!(conn.cmd("GET own").unwrap().is_null());
}

/// Commands behind a failed SELECT must not run in another database.
#[test]
fn a_primary_with_more_databases_is_not_followed_into_others() {
    let primary = Server::oracle(PRIMARY);
    let replica = replica_of(primary.port(), &["--databases", "4"]);
    replica.wait_until("the link is up", is_up);
    let mut conn = primary.connect();
    conn.cmd("SET k here").unwrap();
    conn.cmd("SELECT 9").unwrap();
    conn.cmd("SET k there").unwrap();
    replica.wait_until("the log says so", |replica| replica.log().contains("more databases"));
    assert_eq!(replica.connect().cmd("GET k").unwrap().text(), b"here");
}

#[test]
fn passwords_are_sent_and_wrong_ones_are_reported() {
    let primary = Server::oracle(&[PRIMARY, &["--requirepass", "hush"]].concat());
    let replica = replica_of(primary.port(), &["--masterauth", "wrong"]);
    replica.wait_until("the log says so", |replica| replica.log().contains("masterauth"));
    assert!(!is_up(&replica));
    replica.connect().cmd("CONFIG SET masterauth hush").unwrap();
    replica.wait_until("the link is up", is_up);
}

/// With an append-only file, replicated data survives a restart.
#[test]
fn a_replica_writes_its_own_append_only_file() {
    let primary = Server::oracle(PRIMARY);
    work(&primary, 31, 4);
    let dir = penstock_tests::directory::Directory::new();
    let files = ["--appendonly", "yes", "--dir", dir.root()];
    let mut replica = replica_of(primary.port(), &files);
    replica.wait_until("the link is up", is_up);
    work(&primary, 32, 8);
    persist_all(&primary);
    wait_until_equal(&primary, &replica);
    replica.wait_until("the base is written", |replica| {
        let info = text(replica, "INFO persistence");
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    });
    let digest = text(&replica, "DEBUG DIGEST");
    thread::sleep(Duration::from_millis(1500));
    replica.kill();
    let alone = Server::penstock_that_loads(&[&files[..], &["--enable-debug-command", "yes"]].concat());
    // DEBUG runs during loading, too.
    alone.wait_until("the data are loaded", |server| text(server, "INFO persistence").contains("\r\nloading:0\r\n"));
    assert_eq!(text(&alone, "DEBUG DIGEST"), digest);
}

/// With `repl-diskless-load swapdb` no command is refused, and none sees a part of the primary's data, even if the link
/// is cut during the snapshot.
#[test]
fn old_data_are_served_until_all_of_the_new_ones_are_there() {
    const KEYS: usize = 1500;
    let primary = Server::oracle(&[PRIMARY, &["--rdb-key-save-delay", "1000"]].concat());
    let mut conn = primary.connect();
    for key in 0..KEYS {
        conn.cmd(&format!("SET k:{key} {key} EX 10000")).unwrap();
    }
    conn.cmd("SELECT 3").unwrap();
    conn.cmd("HSET h f v").unwrap();
    conn.cmd("XADD s 1-1 f v").unwrap();
    conn.call(&["FUNCTION", "LOAD", FUNCTION].map(|word| word.as_bytes().to_vec())).unwrap();
    let mut is_first = true;
    let breaker = Breaker::start_with(primary.port(), move || {
        [usize::MAX, if std::mem::take(&mut is_first) { 10_000 } else { usize::MAX }]
    });
    let replica = Server::penstock(&[
        "--threads",
        "2",
        "--enable-debug-command",
        "yes",
        "--repl-diskless-load",
        "swapdb",
        "--appendonly",
        "yes",
    ]);
    let (mut conn, mut watcher) = (replica.connect(), replica.connect());
    for command in ["SET old 1", "SELECT 3", "SET old:too 1", "SELECT 0"] {
        conn.cmd(command).unwrap();
    }
    assert_eq!(watcher.cmd("WATCH k:0").unwrap().text(), b"OK");
    assert_eq!(conn.cmd(&format!("REPLICAOF 127.0.0.1 {}", breaker.port())).unwrap().text(), b"OK");
    let mut waiter = replica.connect();
    waiter.cmd("SELECT 3").unwrap();
    waiter.send(b"XREAD BLOCK 0 STREAMS s 0\r\n").unwrap();
    let last = format!("GET k:{}", KEYS - 1);
    let mut seen_beside = 0;
    loop {
        for command in ["MULTI", "GET old", "GET k:0", &last] {
            conn.cmd(command).unwrap();
        }
        let replies = conn.cmd("EXEC").unwrap();
        let is_there: Vec<bool> = replies.items().iter().map(|reply| !reply.is_null()).collect();
        if is_there == [false, true, true] {
            break;
        }
        assert_eq!(is_there, [true, false, false], "{}", replica.log());
        let info = text(&replica, "INFO persistence");
        seen_beside += usize::from(info.contains("async_loading:1") && info.contains("\r\nloading:0"));
        thread::sleep(Duration::from_millis(1));
    }
    assert!(seen_beside > 100 && breaker.broken() == 1, "{seen_beside} {}\n{}", breaker.broken(), replica.log());
    watcher.cmd("MULTI").unwrap();
    watcher.cmd("GET k:0").unwrap();
    assert!(watcher.cmd("EXEC").unwrap().is_null());
    assert_eq!(waiter.read_n(1).unwrap()[0].items().len(), 1, "what has been waited for is there");
    replica.wait_until("the link is up", is_up);
    assert_eq!(conn.cmd("FCALL_RO answer 0").unwrap(), conn.cmd("STRLEN k:10").unwrap());
    primary.connect().cmd("SET k:0 changed").unwrap();
    persist_all(&primary);
    wait_until_equal(&primary, &replica);
    // The file has exactly the current data.
    replica.wait_until("the file has it", |replica| {
        let info = text(replica, "INFO persistence");
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_last_bgrewrite_status:ok")
    });
    assert_eq!(conn.cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
    for command in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
        assert_eq!(conn.cmd(command).unwrap().text(), b"OK", "{command}");
        assert_eq!(text(&primary, "DEBUG DIGEST"), text(&replica, "DEBUG DIGEST"), "{command}");
    }
}
