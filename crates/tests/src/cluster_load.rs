//! A cluster's client under load: pipelines of writes to the owners of their slots, which follow redirections and are sent again
//! after errors. The client knows the value of each key that a replica has confirmed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::bytes::command;
use crate::conn::Conn;
use crate::nodes::Node;
use crate::reply::Reply;

/// The number of keys.
const KEYS: usize = 64;

/// Longest time for a write to succeed.
const WRITE_MAX: Duration = Duration::from_secs(30);

/// The pause before a write is tried again.
const RETRY: Duration = Duration::from_millis(10);

/// A thread that writes.
pub struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Writer>,
}

/// The results of a load.
pub struct Written {
    /// For each key, the last value that is acknowledged, and the last one that a replica has confirmed.
    pub values: Vec<[u64; 2]>,
    /// The number of pipelines.
    pub rounds: u64,
    /// The number of replies that were redirections.
    pub redirections: u64,
}

struct Writer {
    conns: BTreeMap<u16, Conn>,
    /// The port of each key's owner.
    owners: Vec<u16>,
    ports: Vec<u16>,
    waits: bool,
    written: Written,
}

/// The name of a key.
#[must_use]
pub fn key(number: usize) -> String {
    format!("load:{number}")
}

impl Load {
    /// Begins to write to a cluster. `waits`: each pipeline ends with WAIT, for a replica of each primary.
    #[must_use]
    pub fn start(nodes: &[Node], waits: bool) -> Load {
        let ports: Vec<u16> = nodes.iter().map(|node| node.server.port()).collect();
        let written = Written { values: vec![[0; 2]; KEYS], rounds: 0, redirections: 0 };
        let mut writer = Writer { conns: BTreeMap::new(), owners: vec![ports[0]; KEYS], ports, waits, written };
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                writer.round();
            }
            writer
        });
        Load { stop, thread }
    }

    /// Ends the load.
    pub fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().written
    }
}

impl Written {
    /// Checks that slots with load have moved, and that no acknowledged value is lost.
    pub fn check_moved(&self, mut get: impl FnMut(&str) -> Reply) {
        assert!(self.redirections > 0, "no slot with load has moved");
        for (number, [acknowledged, _]) in self.values.iter().enumerate() {
            let text = String::from_utf8_lossy(get(&format!("GET {}", key(number))).text()).into_owned();
            let found: u64 = text.parse().unwrap_or(0);
            assert!(found >= *acknowledged, "{}: {found} of {acknowledged} acknowledged", key(number));
        }
    }

    /// Checks that a cluster has the values that must be there.
    pub fn check(&self, mut get: impl FnMut(&str) -> Reply) {
        for (number, [acknowledged, confirmed]) in self.values.iter().enumerate() {
            let text = String::from_utf8_lossy(get(&format!("GET {}", key(number))).text()).into_owned();
            let found: u64 = text.parse().unwrap_or(0);
            assert!(
                found >= *confirmed,
                "{}: {found} of {confirmed} confirmed, {acknowledged} acknowledged",
                key(number)
            );
            // The last value may have been written without an acknowledgement.
            assert!(found <= self.rounds, "{}: {found} of {} written", key(number), self.rounds);
        }
    }
}

impl Writer {
    /// Writes the next value of each key: in pipelines first, and one by one where that fails.
    fn round(&mut self) {
        self.written.rounds += 1;
        let mut groups: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (number, port) in self.owners.iter().enumerate() {
            groups.entry(*port).or_default().push(number);
        }
        let mut rest = Vec::new();
        for (port, numbers) in groups {
            match self.pipeline(port, &numbers) {
                Ok(failed) => rest.extend(failed),
                Err(_) => {
                    self.conns.remove(&port);
                    rest.extend(numbers);
                }
            }
        }
        rest.into_iter().for_each(|number| self.write_alone(number));
    }

    fn conn(&mut self, port: u16) -> io::Result<&mut Conn> {
        match self.conns.entry(port) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let conn = Conn::open(port)?;
                conn.set_patience(Duration::from_secs(5))?;
                Ok(entry.insert(conn))
            }
        }
    }

    /// Writes keys of one node, and returns those that failed.
    fn pipeline(&mut self, port: u16, numbers: &[usize]) -> io::Result<Vec<usize>> {
        let value = self.written.rounds;
        let waits = self.waits;
        let conn = self.conn(port)?;
        let mut commands: Vec<_> =
            numbers.iter().map(|number| command(&format!("SET {} {value}", key(*number)))).collect();
        if waits {
            commands.push(command("WAIT 1 1000"));
        }
        let replies = conn.pipeline(&commands)?;
        let confirmed = replies.last().and_then(Reply::integer).is_some_and(|replicas| replicas > 0);
        let mut failed = Vec::new();
        for (number, reply) in numbers.iter().zip(&replies) {
            if reply.text() == b"OK" {
                self.note(*number, confirmed);
            } else {
                failed.push(*number);
            }
        }
        Ok(failed)
    }

    fn note(&mut self, number: usize, confirmed: bool) {
        let value = self.written.rounds;
        self.written.values[number][0] = value;
        if confirmed {
            self.written.values[number][1] = value;
        }
    }

    /// Writes a key until it is acknowledged.
    fn write_alone(&mut self, number: usize) {
        let begin = Instant::now();
        let words = format!("SET {} {}", key(number), self.written.rounds);
        let (mut port, mut asks, mut last) = (self.owners[number], false, String::new());
        while begin.elapsed() < WRITE_MAX {
            match self.try_at(port, asks, &words) {
                Ok(reply) if reply.text() == b"OK" => return self.note(number, false),
                Ok(reply) => {
                    last = String::from_utf8_lossy(reply.text()).into_owned();
                    let words: Vec<&str> = last.split(' ').collect();
                    asks = words[0] == "ASK";
                    let is_passing = ["TRYAGAIN", "CLUSTERDOWN", "LOADING", "NOREPLICAS"].contains(&words[0]);
                    if asks || words[0] == "MOVED" {
                        self.written.redirections += 1;
                        port = words[2].rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap();
                        if !asks {
                            self.owners[number] = port;
                        }
                        continue;
                    }
                    assert!(is_passing, "{last}");
                    port = self.owners[number];
                }
                Err(error) => {
                    last = error.to_string();
                    self.conns.remove(&port);
                    // Another node knows the owner.
                    let at = self.ports.iter().position(|other| *other == port).unwrap_or(0);
                    port = self.ports[(at + 1) % self.ports.len()];
                    asks = false;
                }
            }
            thread::sleep(RETRY);
        }
        panic!("{words} fails for {WRITE_MAX:?}: {last}");
    }

    fn try_at(&mut self, port: u16, asks: bool, words: &str) -> io::Result<Reply> {
        let conn = self.conn(port)?;
        if asks {
            conn.cmd("ASKING")?;
        }
        conn.cmd(words)
    }
}
