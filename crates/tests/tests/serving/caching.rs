//! Clients that cache reads (CLIENT TRACKING) on several threads: after a quiet moment no cache differs from the
//! server, and a client never sees a change before the invalidations of earlier changes.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use penstock_tests::bytes::{command, encode};
use penstock_tests::conn::Conn;
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;

const KEYS: usize = 40;

/// The options of the caching clients, one for each.
const OPTIONS: &[&str] = &["", "", "NOLOOP", "BCAST", "BCAST PREFIX key:1 PREFIX key:2"];

/// A client with a cache, as libraries have it: its requests in order, and its cached values.
struct Caching {
    conn: Conn,
    cache: HashMap<String, Option<String>>,
    asked: std::collections::VecDeque<String>,
}

fn value(reply: &Reply) -> Option<String> {
    let text = String::from_utf8_lossy(reply.text()).into_owned();
    (!reply.is_null()).then_some(text)
}

impl Caching {
    fn new(server: &Server, options: &str) -> Caching {
        let mut conn = server.connect();
        conn.cmd("HELLO 3").unwrap();
        conn.cmd(format!("CLIENT TRACKING ON {options}").trim()).unwrap();
        Caching { conn, cache: HashMap::new(), asked: Default::default() }
    }

    fn ask(&mut self, keys: &[String]) {
        let bytes: Vec<u8> = keys.iter().flat_map(|key| encode(&command(&format!("GET {key}")))).collect();
        self.asked.extend(keys.iter().cloned());
        self.conn.send(&bytes).unwrap();
    }

    /// Reads until all requests are answered; `read` gets each reply with its key, before it is cached.
    fn read_all(&mut self, mut read: impl FnMut(&HashMap<String, Option<String>>, &str, Option<&str>)) {
        while !self.asked.is_empty() {
            let reply = self.conn.read().unwrap();
            if let Some(keys) = invalidated(&reply) {
                self.forget(keys);
                continue;
            }
            let (key, value) = (self.asked.pop_front().unwrap(), value(&reply));
            read(&self.cache, &key, value.as_deref());
            self.cache.insert(key, value);
        }
    }

    fn forget(&mut self, keys: Option<Vec<String>>) {
        match keys {
            None => self.cache.clear(),
            Some(keys) => keys.iter().for_each(|key| drop(self.cache.remove(key))),
        }
    }

    /// Reads everything sent so far.
    fn settle(&mut self) {
        for _ in 0..2 {
            self.conn.send(&encode(&command("PING"))).unwrap();
            loop {
                let reply = self.conn.read().unwrap();
                match invalidated(&reply) {
                    Some(keys) => self.forget(keys),
                    None => break,
                }
            }
        }
    }
}

/// Returns the keys of an invalidation; an inner None means all keys.
fn invalidated(reply: &Reply) -> Option<Option<Vec<String>>> {
    if !reply.escaped().starts_with(">2\\r\\n$10\\r\\ninvalidate") {
        return None;
    }
    let keys = &reply.items()[1];
    let names = || keys.items().iter().map(|key| String::from_utf8_lossy(key.text()).into_owned()).collect();
    Some((!keys.is_null()).then(names))
}

fn key(rng: &mut Rng) -> String {
    format!("key:{}", rng.below(KEYS))
}

/// Returns a random command that changes keys.
fn change(rng: &mut Rng, number: u64) -> String {
    let (a, b) = (key(rng), key(rng));
    match rng.below(24) {
        0 => format!("DEL {a} {b}"),
        1 => format!("MSET {a} {number} {b} {number}"),
        2 => format!("RENAME {a} {b}"),
        3 => format!("SET {a} {number} PX 2"),
        4 => format!("EVAL redis.call('set',KEYS[1],ARGV[1]);redis.call('del',KEYS[2]) 2 {a} {b} {number}"),
        5 => format!("APPEND {a} {number}"),
        6 if rng.below(20) == 0 => "FLUSHALL".into(),
        7 => format!("COPY {a} {b} REPLACE"),
        8 => format!("GETDEL {a}"),
        9 => format!("PEXPIRE {a} 1"),
        _ => format!("SET {a} {number}"),
    }
}

#[test]
fn after_a_quiet_moment_all_caches_match_the_server() {
    const WRITERS: usize = 3;
    const ROUNDS: usize = 150;
    for (threads, table) in [("1", "1000000"), ("2", "1000000"), ("4", "10")] {
        let server = Server::penstock(&["--threads", threads, "--tracking-table-max-keys", table]);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let writing: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    // One of the writers caches, too.
                    let mut conn = server.connect();
                    scope.spawn(move || {
                        let mut rng = Rng::new(writer as u64 + 1);
                        for round in 0..ROUNDS {
                            let lines: Vec<_> =
                                (0..20).map(|n| command(&change(&mut rng, (round * 20 + n) as u64))).collect();
                            conn.pipeline(&lines).unwrap();
                        }
                    })
                })
                .collect();
            let reading: Vec<_> = OPTIONS
                .iter()
                .enumerate()
                .map(|(reader, options)| {
                    let (server, is_over) = (&server, &is_over);
                    scope.spawn(move || {
                        let mut rng = Rng::new(reader as u64 + 100);
                        let mut caching = Caching::new(server, options);
                        while !is_over.load(Ordering::Relaxed) {
                            let wanted: Vec<String> = (0..8).map(|_| key(&mut rng)).collect();
                            caching.ask(&wanted);
                            caching.read_all(|_, _, _| {});
                        }
                        caching
                    })
                })
                .collect();
            writing.into_iter().for_each(|writer| writer.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
            let mut plain = server.connect();
            // Keys with a short expiry are gone by then.
            thread::sleep(std::time::Duration::from_millis(200));
            for (reader, options) in reading.into_iter().zip(OPTIONS) {
                let mut caching = reader.join().unwrap();
                caching.settle();
                let knows =
                    |key: &str| !options.contains("PREFIX") || key.starts_with("key:1") || key.starts_with("key:2");
                for (key, cached) in caching.cache.iter().filter(|(key, _)| knows(key)) {
                    let present = value(&plain.cmd(&format!("GET {key}")).unwrap());
                    assert_eq!(*cached, present, "{key}, {threads} threads, {options:?}");
                }
            }
        });
        assert_eq!(server.figure("client_output_buffer_limit_disconnections"), 0);
    }
}

/// A writer changes one key and then a second one. A client that reads the second key's new value must have got the
/// first key's invalidation by then.
#[test]
fn a_client_is_told_to_forget_before_it_reads_what_came_later() {
    const CHANGES: usize = 4000;
    for threads in ["1", "2", "4"] {
        let server = Server::penstock(&["--threads", threads]);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut conn = server.connect();
            let writing = scope.spawn(move || {
                for round in (0..CHANGES).step_by(10) {
                    let lines: Vec<_> = (round..round + 10)
                        .flat_map(|n| [format!("SET first {n}"), format!("SET later {n}")])
                        .map(|line| command(&line))
                        .collect();
                    conn.pipeline(&lines).unwrap();
                }
            });
            for _ in 0..3 {
                let mut caching = Caching::new(&server, "");
                let is_over = &is_over;
                scope.spawn(move || {
                    let wanted: Vec<String> =
                        ["first", "later", "later", "later", "later"].iter().map(ToString::to_string).collect();
                    while !is_over.load(Ordering::Relaxed) {
                        caching.ask(&wanted);
                        caching.read_all(|cache, key, value| {
                            let number =
                                |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok()).unwrap_or(-1);
                            if key == "later"
                                && let Some(first) = cache.get("first")
                            {
                                let (first, later) = (number(first.as_deref()), number(value));
                                assert!(first >= later, "{threads} threads: {first} is known at {later}");
                            }
                        });
                    }
                });
            }
            writing.join().unwrap();
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
