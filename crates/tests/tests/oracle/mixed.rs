//! A primary with replicas of Redis 8 and Valkey 9 at once, and formats that one of them can't read. Servers that
//! aren't installed are left out.

#![allow(clippy::unwrap_used)]

use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock_tests::server::Server;

use super::links::{is_up, replica_of, text};

/// A time in the year 2100, in milliseconds of Unix time.
const FAR_MS: u64 = 4_102_444_800_000;

/// Starts a replica of each kind.
fn replicas(port: u16) -> Vec<Server> {
    let number = port.to_string();
    let args = ["--replicaof", "127.0.0.1", &number];
    let others = [Server::redis8(&args), Server::valkey9(&args)];
    let all: Vec<Server> = others.into_iter().flatten().chain([replica_of(port, &[])]).collect();
    all.iter().for_each(|replica| replica.wait_until("the link is up", is_up));
    all
}

/// Returns a reply's lines, with a bar between them.
fn shown(server: &Server, command: &str) -> String {
    let reply = server.connect().cmd(command).unwrap().encode();
    String::from_utf8_lossy(&reply).trim_end().replace("\r\n", "|")
}

/// Like [`shown`], for a command with these arguments.
fn call(server: &Server, args: &[&[u8]]) -> String {
    let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.to_vec()).collect();
    let reply = server.connect().call(&args).unwrap().encode();
    String::from_utf8_lossy(&reply).trim_end().replace("\r\n", "|")
}

/// Waits until a replica has the expected reply to a command.
fn wait_for(replica: &Server, command: &str, expected: &str) {
    replica.wait_until(&format!("{command} is answered {expected}"), |replica| shown(replica, command) == expected);
}

/// Checks that each replica has the hash `h`, the list `l` and the last written key of the primary.
fn check(primary: &Server, replicas: &[Server]) {
    let questions =
        ["LRANGE l 0 -1", "HGETALL h", "HPEXPIRETIME h FIELDS 2 a b", "HPEXPIRETIME wide FIELDS 1 f1", "HLEN wide"];
    let answers = questions.map(|question| shown(primary, question));
    assert!(answers[2].contains(&FAR_MS.to_string()), "{answers:?}");
    for replica in replicas {
        for (question, answer) in questions.iter().zip(&answers) {
            wait_for(replica, question, answer);
        }
        assert!(!replica.log().contains("CRITICAL"), "{}", replica.log());
    }
}

/// Creates a list, a small hash with a field that expires, and a large one.
fn fill(server: &Server) {
    let mut conn = server.connect();
    conn.cmd("RPUSH l a b c").unwrap();
    conn.cmd("HSET h a 1 b 2").unwrap();
    conn.cmd(&format!("HPEXPIREAT h {FAR_MS} FIELDS 1 a")).unwrap();
    for n in 0..300 {
        conn.cmd(&format!("HSET wide f{n} {}", "x".repeat(100))).unwrap();
    }
    conn.cmd(&format!("HPEXPIREAT wide {FAR_MS} FIELDS 2 f1 f2")).unwrap();
}

#[test]
fn fields_that_expire_reach_replicas_of_all_kinds() {
    let primary = Server::penstock(&["--threads", "2"]);
    fill(&primary);
    let replicas = replicas(primary.port());
    check(&primary, &replicas);
    // The same values in the stream.
    primary.connect().cmd("DEL l h wide").unwrap();
    fill(&primary);
    check(&primary, &replicas);
    let mut conn = primary.connect();
    for command in [
        "HSETEX h PX 100000000 FIELDS 1 c 3",
        "HGETEX h PERSIST FIELDS 1 c",
        "HINCRBYFLOAT h a 0.5",
        "HGETDEL h FIELDS 1 b",
    ] {
        assert!(!conn.cmd(command).unwrap().is_error(), "{command}");
    }
    check(&primary, &replicas);
    assert_eq!(shown(&primary, "HPEXPIRE h 1 FIELDS 1 c"), "*1|:1");
    replicas.iter().for_each(|replica| wait_for(replica, "HEXISTS h c", ":0"));
}

#[test]
fn payloads_of_other_servers_reach_replicas_of_all_kinds() {
    let primary = Server::penstock(&["--threads", "2"]);
    let replicas = replicas(primary.port());
    for source in [Server::redis8(&[]), Server::valkey9(&[])].into_iter().flatten() {
        fill(&source);
        let port = primary.port().to_string();
        let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "REPLACE", "KEYS", "l", "h", "wide"];
        assert_eq!(call(&source, &migrate.map(str::as_bytes)), "+OK");
        check(&primary, &replicas);
        let library = b"#!lua name=l\nredis.register_function('f', function() return 1 end)";
        assert_eq!(call(&source, &[b"FUNCTION", b"LOAD", library]), "$1|l");
        let payload = source.connect().cmd("FUNCTION DUMP").unwrap();
        assert_eq!(call(&primary, &[b"FUNCTION", b"RESTORE", payload.text(), b"FLUSH"]), "+OK");
        replicas.iter().for_each(|replica| wait_for(replica, "FCALL f 0", ":1"));
        primary.connect().cmd("FLUSHALL").unwrap();
        primary.connect().cmd("FUNCTION FLUSH").unwrap();
    }
}

/// Valkey sends them only to replicas that announce a sufficient version.
#[test]
fn fields_that_expire_come_from_primaries_of_all_kinds() {
    let args = ["--repl-diskless-sync-delay", "0"];
    for primary in [Server::redis8(&args), Server::valkey9(&args)].into_iter().flatten() {
        fill(&primary);
        let replica = [replica_of(primary.port(), &[])];
        replica[0].wait_until("the link is up", is_up);
        check(&primary, &replica);
        primary.connect().cmd("DEL l h wide").unwrap();
        fill(&primary);
        check(&primary, &replica);
    }
}

/// The primary is empty; its writable replica has a key of its own.
#[test]
fn emptying_an_empty_primary_empties_its_replicas() {
    let primary = Server::penstock(&["--threads", "2"]);
    for command in ["FLUSHALL", "FLUSHDB"] {
        for replica in replicas(primary.port()) {
            replica.connect().cmd("CONFIG SET replica-read-only no").unwrap();
            replica.connect().cmd("SET own v").unwrap();
            primary.connect().cmd(command).unwrap();
            wait_for(&replica, "DBSIZE", ":0");
        }
    }
}

#[test]
fn a_primary_with_a_smaller_limit_for_arguments_is_followed() {
    let primary = Server::penstock(&["--threads", "2"]);
    let replica = replica_of(primary.port(), &["--proto-max-bulk-len", "1mb"]);
    replica.wait_until("the link is up", is_up);
    let long = "x".repeat(3 << 20);
    primary.connect().cmd(&format!("SET long {long}")).unwrap();
    wait_for(&replica, "STRLEN long", &format!(":{}", long.len()));
    assert!(!replica.log().contains("is down"), "{}", replica.log());
}

#[test]
fn the_link_to_the_primary_is_among_the_clients() {
    let primary = Server::penstock(&[]);
    let address = format!("127.0.0.1:{}", primary.port());
    let kinds = [replica_of(primary.port(), &[])];
    for replica in &kinds {
        replica.wait_until("the link is up", is_up);
        for kill in [format!("CLIENT KILL {address}"), "CLIENT KILL TYPE master".to_owned()] {
            wait_for_link(replica, &address);
            let before = primary.figure("sync_partial_ok");
            let killed = shown(replica, &kill);
            assert!(["+OK", ":1"].contains(&&*killed), "{kill}: {killed}");
            primary.wait_until("the link goes on", |primary| primary.figure("sync_partial_ok") == before + 1);
        }
        wait_for_link(replica, &address);
        assert!(text(&primary, "CLIENT LIST TYPE replica").contains(" flags=S "));
    }
}

fn wait_for_link(replica: &Server, address: &str) {
    replica.wait_until("the link is listed", |replica| {
        let line = text(replica, "CLIENT LIST TYPE master");
        line.contains(&format!(" addr={address} ")) && line.contains(" flags=M ") && line.contains(" user=(superuser) ")
    });
}

/// Redis's replicas report their offset once a second, unless they are asked.
#[test]
fn a_failover_asks_the_replica_how_far_it_is() {
    let primary = Server::penstock(&[]);
    let port = primary.port().to_string();
    let replica = Server::oracle(&["--replicaof", "127.0.0.1", &port]);
    replica.wait_until("the link is up", is_up);
    // Just after a report, the next one is a second away.
    sleep(Duration::from_millis(1500));
    primary.connect().cmd("SET k v").unwrap();
    let began = Instant::now();
    assert_eq!(text(&primary, "FAILOVER"), "OK");
    primary.wait_until("the replica has taken the place", |primary| {
        text(primary, "INFO replication").contains("role:slave") && is_up(primary)
    });
    println!("the failover took {:?}", began.elapsed());
    assert_eq!(text(&replica, "GET k"), "v");
    assert_eq!(primary.figure("sync_full"), 1);
}
