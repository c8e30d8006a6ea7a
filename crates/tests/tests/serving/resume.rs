//! Pipelines that survive their connections: connections break at any point, and clients ask for their progress and
//! continue from there. No command may be lost or run twice.
//!
//! `PENSTOCK_RESUME_ROUNDS=N`: number of connections that each client loses. `PENSTOCK_SEED=N`: the seed of the first
//! client.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{Command, command, encode_all};
use penstock_tests::conn::{Conn, closed};
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Worker threads of the server, one run each. More than most test machines have cores, for many thread switches.
const THREADS: [&str; 3] = ["1", "2", "4"];
/// Number of clients, each with a token and keys of its own.
const CLIENTS: u64 = 3;
/// Number of connections that each client loses in a run.
const ROUNDS: u64 = 150;
/// Most old connections that stay open after another one has replaced them.
const ZOMBIES_MAX: usize = 3;
/// Most failures that the server keeps for a pipeline.
const FAILURES_MAX: usize = 32;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn rounds() -> u64 {
    number("PENSTOCK_RESUME_ROUNDS").unwrap_or(ROUNDS)
}

/// Busy-waits: a sleep would take far longer than the event to hit.
fn spin(microseconds: usize) {
    let until = Instant::now() + Duration::from_micros(microseconds as u64);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

fn integer(conn: &mut Conn, words: &str) -> u64 {
    let reply = conn.cmd(words).unwrap();
    reply.integer().unwrap_or_else(|| panic!("{words}: {reply:?}")) as u64
}

/// The reply of STATUS and RESUME.
#[derive(Debug)]
struct Progress {
    executed: u64,
    failed: u64,
    /// The positions of the first failures.
    failures: Vec<u64>,
}

impl Progress {
    fn of(reply: &Reply) -> Progress {
        let items = reply.items();
        let names: Vec<_> = items.iter().step_by(2).map(Reply::text).collect();
        assert_eq!(names, [&b"executed"[..], b"failed", b"failures", b"database"], "{reply:?}");
        let number = |reply: &Reply| reply.integer().unwrap() as u64;
        let failures = items[5].items().iter().map(|failure| number(&failure.items()[0])).collect();
        Progress { executed: number(&items[1]), failed: number(&items[3]), failures }
    }
}

/// A client's commands in order, and the effects of running each exactly once.
#[derive(Default)]
struct Stream {
    commands: Vec<Command>,
    /// Positions after which no transaction is open, ascending.
    boundaries: Vec<u64>,
    /// Positions of commands that fail, ascending.
    failing: Vec<u64>,
    /// Positions of the commands that push their own position to the list.
    log: Vec<u64>,
    increments: u64,
    pops: u64,
}

impl Stream {
    fn len(&self) -> u64 {
        self.commands.len() as u64
    }

    fn push(&mut self, words: &str) -> u64 {
        self.commands.push(command(words));
        self.len()
    }

    /// Adds a command on the keys of client `id`, or a transaction of such commands.
    fn grow(&mut self, id: u64, rng: &mut Rng) {
        match rng.below(40) {
            0 | 1 => drop(self.push("KEYS nothing")),
            // The list never gets an element.
            2 => drop(self.push(&format!("BLPOP {id}:nothing 0.001"))),
            3 | 4 => {
                self.push(&format!("BLPOP {id}:queue 0"));
                self.pops += 1;
            }
            5..8 => self.grow_transaction(id, rng),
            _ => self.grow_plain(id, rng, true),
        }
        let end = self.len();
        self.boundaries.push(end);
    }

    fn grow_plain(&mut self, id: u64, rng: &mut Rng, runs: bool) {
        let counts = u64::from(runs);
        match rng.below(20) {
            0 => {
                let at = self.push(&format!("LPUSH {id}:counter x"));
                self.failing.extend(runs.then_some(at));
            }
            1..10 => {
                let at = self.push(&format!("RPUSH {id}:log {}", self.len() + 1));
                self.log.extend(runs.then_some(at));
            }
            _ => {
                self.push(&format!("INCR {id}:counter"));
                self.increments += counts;
            }
        }
    }

    fn grow_transaction(&mut self, id: u64, rng: &mut Rng) {
        let runs = rng.chance(80);
        self.push("MULTI");
        (0..rng.below(4)).for_each(|_| self.grow_plain(id, rng, runs));
        if rng.chance(25) {
            // After KEYS, EXEC runs alone.
            self.push("KEYS nothing");
        }
        self.push(if runs { "EXEC" } else { "DISCARD" });
    }

    /// Checks the server's count, given the previous count and the number of commands sent.
    fn check(&self, progress: &Progress, counted: u64, sent: u64) {
        let executed = progress.executed;
        assert!((counted..=sent).contains(&executed), "{progress:?} after {counted}, sent {sent}");
        assert!(self.boundaries.binary_search(&executed).is_ok(), "{progress:?} is within a transaction");
        let failing: Vec<u64> = self.failing.iter().copied().take_while(|at| *at <= executed).collect();
        assert_eq!(progress.failed, failing.len() as u64, "{progress:?}");
        assert_eq!(progress.failures, failing[..failing.len().min(FAILURES_MAX)], "{progress:?}");
    }
}

/// A client that loses one connection after the other.
struct Client<'s> {
    server: &'s Server,
    id: u64,
    rng: Rng,
    stream: Stream,
    /// The current connection, after its RESUME.
    conn: Conn,
    /// The connection's id in the server.
    conn_id: u64,
    /// Connections that the client has left open.
    zombies: Vec<Conn>,
    counted: u64,
    sent: u64,
}

impl<'s> Client<'s> {
    fn new(server: &'s Server, id: u64, seed: u64) -> Client<'s> {
        let mut conn = server.connect();
        let conn_id = integer(&mut conn, "CLIENT ID");
        assert_eq!(conn.cmd(&format!("PIPELINE START token{id}")).unwrap().text(), b"OK");
        let stream = Stream { boundaries: vec![0], ..Stream::default() };
        let rng = Rng::new(seed);
        Client { server, id, rng, stream, conn, conn_id, zombies: Vec::new(), counted: 0, sent: 0 }
    }

    /// Sends the next commands: few or very many, in one piece or two, cut anywhere.
    fn send_some(&mut self) -> io::Result<()> {
        let most = *self.rng.pick(&[10, 10, 100, 1000, 5000]);
        let count = self.rng.below(most) as u64 + 1;
        while self.stream.len() < self.sent + count {
            self.stream.grow(self.id, &mut self.rng);
        }
        let bytes = encode_all(&self.stream.commands[self.sent as usize..(self.sent + count) as usize]);
        self.sent += count;
        let cut = self.rng.below(bytes.len() + 1);
        self.conn.send(&bytes[..cut])?;
        spin(self.rng.below(100));
        self.conn.send(&bytes[cut..])
    }

    /// Loses the connection in a random way, and continues with the next.
    fn lose_connection(&mut self) {
        if self.rng.chance(3) {
            self.server.connect().cmd("CLIENT PAUSE 1 WRITE").unwrap();
        }
        let _ = self.send_some();
        let patience = *self.rng.pick(&[1, 50, 500, 3000]);
        spin(self.rng.below(patience));
        if self.rng.chance(20) {
            // Some replies have arrived; the unread rest makes the kernel send a reset.
            let _ = self.conn.set_patience(Duration::from_millis(1));
            let _ = self.conn.read();
        }
        if self.rng.chance(10) {
            let _ = self.conn.finish();
        }
        let lost = std::mem::replace(&mut self.conn, self.server.connect());
        if self.rng.chance(70) {
            self.zombies.push(lost);
            self.zombies.drain(..self.zombies.len().saturating_sub(ZOMBIES_MAX));
        }
        if self.rng.chance(10) {
            // The connection may have ended by itself.
            let _ = self.conn.cmd(&format!("CLIENT KILL ID {}", self.conn_id)).unwrap();
        }
        self.conn_id = integer(&mut self.conn, "CLIENT ID");
        self.resume();
    }

    fn resume(&mut self) {
        let reply = self.conn.cmd(&format!("PIPELINE RESUME token{}", self.id)).unwrap();
        let progress = Progress::of(&reply);
        self.stream.check(&progress, self.counted, self.sent);
        self.counted = progress.executed;
        self.sent = progress.executed;
    }

    /// Runs the remaining commands, and compares the data with the expected effects.
    fn finish(mut self) {
        let rest = &self.stream.commands[self.sent as usize..];
        self.conn.send(&encode_all(rest)).unwrap();
        self.conn.read_n(rest.len()).unwrap();
        let (id, stream, conn) = (self.id, &self.stream, &mut self.conn);
        let progress = Progress::of(&conn.cmd(&format!("PIPELINE STATUS token{id}")).unwrap());
        stream.check(&progress, stream.len(), stream.len());
        assert_eq!(conn.cmd(&format!("PIPELINE END token{id}")).unwrap().text(), b"OK");
        let incremented = conn.cmd(&format!("GET {id}:counter")).unwrap();
        assert_eq!(incremented.text(), stream.increments.to_string().as_bytes(), "INCRs of {}", stream.len());
        let log = conn.cmd(&format!("LRANGE {id}:log 0 -1")).unwrap();
        let expected: Vec<String> = stream.log.iter().map(u64::to_string).collect();
        assert!(
            log.items().iter().map(Reply::text).eq(expected.iter().map(|at| at.as_bytes())),
            "the order of RPUSHes"
        );
    }
}

/// Pushes elements for the blocked client of this number, until the client has enough. Returns the number of elements.
fn feed(server: &Server, id: u64, seed: u64, over: &AtomicBool) -> u64 {
    let (mut conn, mut rng, mut fed) = (server.connect(), Rng::new(seed), 0);
    while !over.load(Ordering::Relaxed) {
        spin(rng.below(200));
        let count = rng.below(4) + 1;
        let words = ["x"; 4][..count].join(" ");
        integer(&mut conn, &format!("RPUSH {id}:queue {words}"));
        fed += count as u64;
    }
    fed
}

fn lose_connections(server: &Server, id: u64, seed: u64) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let feeder = scope.spawn(|| feed(server, id, !seed, &over));
        let pops = scope.spawn(|| {
            let mut client = Client::new(server, id, seed);
            client.stream.push(&format!("INCR {id}:counter"));
            client.stream.increments += 1;
            client.stream.boundaries.push(1);
            (0..rounds()).for_each(|_| client.lose_connection());
            let pops = client.stream.pops;
            client.finish();
            pops
        });
        let pops = pops.join();
        over.store(true, Ordering::Relaxed);
        let fed = feeder.join().unwrap();
        let Ok(pops) = pops else { panic!("client {id} with seed {seed} failed (see above)") };
        assert_eq!(integer(&mut server.connect(), &format!("LLEN {id}:queue")), fed - pops, "BLPOPs, seed {seed}");
    });
}

#[test]
fn nothing_is_lost_or_doubled_when_connections_break() {
    let first = number("PENSTOCK_SEED").unwrap_or(1);
    for (run, threads) in THREADS.iter().enumerate() {
        let server = Server::penstock(&["--threads", threads]);
        let (server, first) = (&server, first + 1000 * run as u64);
        thread::scope(|scope| {
            let clients: Vec<_> =
                (0..CLIENTS).map(|id| scope.spawn(move || lose_connections(server, id, first + id))).collect();
            let failed = clients.into_iter().filter_map(|client| client.join().err()).count();
            assert_eq!(failed, 0, "--threads {threads}, seeds from {first} (see above)");
        });
    }
}

/// The number of INCRs before a position of the stream that all contenders send: every fourth command is another one.
fn increments_until(position: u64) -> u64 {
    position - position / 4
}

/// Takes the token, and sends commands from the current position until another contender takes the token away. `seen`
/// is a position that has certainly run.
fn contend(server: &Server, rng: &mut Rng, seen: &AtomicU64) -> io::Result<()> {
    let mut conn = server.connect();
    let before = seen.load(Ordering::SeqCst);
    let executed = Progress::of(&conn.cmd("PIPELINE RESUME token")?).executed;
    seen.fetch_max(executed, Ordering::SeqCst);
    assert!(executed >= before, "{executed} have run after {before} had");
    let positions = executed + 1..executed + 1 + rng.below(300) as u64;
    let name = |position: u64| command(if position.is_multiple_of(4) { "KEYS nothing" } else { "INCR counter" });
    conn.send(&encode_all(&positions.clone().map(name).collect::<Vec<_>>()))?;
    for position in positions {
        let answer = conn.read()?.integer();
        let expected = (!position.is_multiple_of(4)).then_some(increments_until(position) as i64);
        assert_eq!(answer, expected, "at position {position} after {executed}");
        seen.fetch_max(position, Ordering::SeqCst);
    }
    Ok(())
}

#[test]
fn contenders_for_a_token_run_one_pipeline_together() {
    const CONTENDERS: u64 = 6;
    let server = &Server::penstock(&["--threads", "4"]);
    server.connect().cmd("PIPELINE START token").unwrap();
    let (seen, over) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let contend_often = &|seed: u64| {
        let mut rng = Rng::new(seed);
        for _ in 0..rounds() {
            if let Err(error) = contend(server, &mut rng, seen) {
                assert!(closed(&error), "{error}");
            }
        }
    };
    let watch = || {
        let mut conn = server.connect();
        while !over.load(Ordering::SeqCst) {
            let before = seen.load(Ordering::SeqCst);
            let progress = Progress::of(&conn.cmd("PIPELINE STATUS token").unwrap());
            assert!(progress.executed >= before, "{progress:?} after {before} had run");
            seen.fetch_max(progress.executed, Ordering::SeqCst);
        }
    };
    thread::scope(|scope| {
        let contenders: Vec<_> = (0..CONTENDERS).map(|seed| scope.spawn(move || contend_often(seed))).collect();
        let watcher = scope.spawn(watch);
        let failed = contenders.into_iter().filter_map(|contender| contender.join().err()).count();
        over.store(true, Ordering::SeqCst);
        assert!(watcher.join().is_ok() && failed == 0, "see above");
    });
    let mut conn = server.connect();
    let executed = Progress::of(&conn.cmd("PIPELINE RESUME token").unwrap()).executed;
    assert_eq!(conn.cmd("GET counter").unwrap().text(), increments_until(executed).to_string().as_bytes());
}

#[test]
fn http_ends_a_counted_pipeline_as_a_failure() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    conn.cmd("PIPELINE START token").unwrap();
    conn.send(b"SET a 1\r\nPOST / HTTP/1.1\r\nSET b 1\r\n").unwrap();
    assert_eq!(conn.read_to_close().unwrap(), b"+OK\r\n");
    let progress = Progress::of(&server.connect().cmd("PIPELINE RESUME token").unwrap());
    assert_eq!((progress.executed, progress.failed, progress.failures), (2, 1, vec![2]));
}
