//! Primaries and replicas: random work on a primary, and checks that all servers have the same data at the same offset.

#![allow(clippy::unwrap_used)]

use std::thread;
use std::time::Duration;

use penstock_tests::bytes::encode_all;
use penstock_tests::families::{self, Family};
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;
use penstock_tests::stream::generate;

/// Arguments of a primary that begins snapshots at once and keeps a large enough backlog for every replica.
pub(crate) const PRIMARY: &[&str] =
    &["--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb", "--enable-debug-command", "yes"];
/// Threads that work on the primary, and streams for each of them in an ordinary run.
const THREADS: u64 = 2;
pub(crate) const STREAMS: u64 = 40;
/// Longest wait for a stream's replies; a stream that takes longer is blocked.
const PATIENCE: Duration = Duration::from_millis(50);

/// Starts a server of some kind as a replica of the one at a port, with further arguments.
pub(crate) type Kind = fn(u16, &[&str]) -> Server;

/// Starts Penstock with two threads.
pub(crate) fn penstock() -> Server {
    Server::penstock(&["--threads", "2", "--enable-debug-command", "yes"])
}

/// Starts the oracle as a primary.
pub(crate) fn oracle() -> Server {
    Server::oracle(PRIMARY)
}

pub(crate) fn replica_of(port: u16, more: &[&str]) -> Server {
    let port = port.to_string();
    let args = ["--replicaof", "127.0.0.1", &port, "--threads", "2", "--enable-debug-command", "yes"];
    Server::penstock_that_loads(&[&args[..], more].concat())
}

/// Starts the oracle as a replica.
pub(crate) fn oracle_of(port: u16, more: &[&str]) -> Server {
    let port = port.to_string();
    Server::oracle(&[&["--replicaof", "127.0.0.1", &port, "--enable-debug-command", "yes"][..], more].concat())
}

pub(crate) fn text(server: &Server, command: &str) -> String {
    String::from_utf8_lossy(server.connect().cmd(command).unwrap().text()).into_owned()
}

pub(crate) fn is_up(server: &Server) -> bool {
    text(server, "INFO replication").contains("master_link_status:up")
}

/// Sends a signal to a server's process.
pub(crate) fn signal(server: &Server, name: &str) {
    let pid = server.pid().to_string();
    assert!(std::process::Command::new("kill").args([&format!("-{name}"), &*pid]).status().unwrap().success());
    // Other threads keep running until the thread that handles the signal is scheduled.
    let is_stopped = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ");
    assert!(penstock_tests::server::comes_true(|| is_stopped() == (name == "STOP")));
}

/// Runs random commands of all families on several threads.
pub(crate) fn work(server: &Server, seed: u64, streams: u64) {
    let replayed: Vec<_> = families::ALL.iter().filter(|family| family.is_replayed).collect();
    work_of(&replayed, server, seed, streams);
}

/// Runs random commands of these families.
pub(crate) fn work_of(families: &[&Family], server: &Server, seed: u64, streams: u64) {
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut rng = Rng::new(seed + thread);
                for _ in 0..streams {
                    let family = *rng.pick(families);
                    let stream = generate(family, rng.next_u64());
                    let mut conn = server.connect();
                    // A command after which the server closes the connection ends the stream.
                    if conn.send(&encode_all(&stream.commands)).is_ok() {
                        let _ = conn.read_for(PATIENCE);
                    }
                }
            });
        }
    });
}

/// Removes all expiries, so that data stays the same while no client writes.
pub(crate) fn persist_all(server: &Server) {
    let mut conn = server.connect();
    for database in 0..16 {
        conn.cmd(&format!("SELECT {database}")).unwrap();
        for key in conn.cmd("KEYS *").unwrap().items() {
            conn.call(&[b"PERSIST".to_vec(), key.text().to_vec()]).unwrap();
        }
    }
}

/// Waits until both servers have the same data at the same offset.
pub(crate) fn wait_until_equal(primary: &Server, replica: &Server) {
    let offset = |server: &Server, name: &str| server.figure(name);
    let mut last = String::new();
    let is_equal = || {
        let digests = [text(primary, "DEBUG DIGEST"), text(replica, "DEBUG DIGEST")];
        let offsets = [offset(primary, "master_repl_offset"), offset(replica, "slave_repl_offset")];
        last = format!("{digests:?} {offsets:?}");
        digests[0] == digests[1] && offsets[0] == offsets[1]
    };
    let equal = penstock_tests::server::comes_true(is_equal);
    assert!(equal, "{last} {:?}\n{}", differing_keys(primary, replica), replica.log());
}

/// Returns the keys with different values, in all databases.
fn differing_keys(primary: &Server, replica: &Server) -> Vec<String> {
    let (mut ours, mut theirs) = (replica.connect(), primary.connect());
    let mut found = Vec::new();
    for database in 0..16 {
        for conn in [&mut ours, &mut theirs] {
            conn.cmd(&format!("SELECT {database}")).unwrap();
        }
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for conn in [&mut ours, &mut theirs] {
            keys.extend(conn.cmd("KEYS *").unwrap().items().iter().map(|key| key.text().to_vec()));
        }
        keys.sort();
        keys.dedup();
        for key in keys {
            let command = [b"DEBUG".to_vec(), b"DIGEST-VALUE".to_vec(), key.clone()];
            let digests = [&mut ours, &mut theirs].map(|conn| conn.call(&command).unwrap());
            if digests[0] != digests[1] {
                let values =
                    [&mut ours, &mut theirs].map(|conn| conn.call(&[b"DUMP".to_vec(), key.clone()]).unwrap().escaped());
                found.push(format!("{database} {}: {values:?}", String::from_utf8_lossy(&key)));
            }
        }
    }
    found
}
