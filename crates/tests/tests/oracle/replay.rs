//! The replay oracle: the journal of random work reproduces the data.
//!
//! Two threads run random commands of every family at the same time, with transactions, scripts, blocked clients, keys
//! that expire and keys that are evicted. The committed units are then replayed into an empty keyspace, and into
//! Debian's redis-server: all of them have the same data, and Penstock also the same consumer groups and pipeline
//! tokens. Fields that expire have separate histories; Redis 8 executes their units, if it is installed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::{Loader, Settings};
use engine::clients::progress::Progress;
use engine::clients::session::Session;
use engine::inbox::Message;
use engine::replay::Replay;
use engine::state::Engine;
use engine::testing::{Bench, request};
use engine::worker::Worker;
use journal::lane::Audience;
use journal::merge::Merge;
use journal::record::Kind;
use penstock_tests::bytes::{Command, encode, encode_all};
use penstock_tests::families::{self, EFFECTS, FIELD_EFFECTS, Family};
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;
use penstock_tests::stream::generate;

/// Number of histories in an ordinary run.
const ROUNDS: u64 = 12;
/// Threads, connections of each, and streams that a thread runs.
const THREADS: usize = 2;
const CONNECTIONS: usize = 4;
const STREAMS: usize = 12;

/// Replaces commas in a script by blanks.
fn with_blanks(mut command: Command) -> Command {
    let is_script = command.len() > 1 && (command[0] == b"EVAL" || command[0] == b"SCRIPT");
    if is_script {
        let at = if command[0] == b"EVAL" { 1 } else { 2 };
        if let Some(text) = command.get_mut(at) {
            // Commas between the arguments of a call stay: only commas behind Lua keywords are replaced.
            *text = String::from_utf8_lossy(text)
                .replace("local,", "local ")
                .replace("if,", "if ")
                .replace(",then,", " then ")
                .replace("),end", ") end")
                .replace("return,", "return ")
                .into_bytes();
        }
    }
    command
}

pub(crate) fn settings() -> Settings {
    let settings = Settings::new();
    let mut loader = Loader::new(&settings);
    for (name, value) in [
        ("databases", "4"),
        ("enable-debug-command", "yes"),
        ("stream-node-max-entries", "5"),
        ("maxmemory-policy", "allkeys-random"),
        ("maxmemory-eviction-tenacity", "1"),
    ] {
        loader.directive(&[name.into(), value.into()]).unwrap();
    }
    settings
}

/// The kinds of histories.
#[derive(Clone, Copy)]
pub(crate) enum Of {
    /// All families that the oracle knows.
    Everything,
    /// Hashes with fields that expire.
    Fields,
    /// Suggestions, which no other server has.
    Suggestions,
}

impl Of {
    fn families(self) -> Vec<Family> {
        let with = |all: &[Family], effects| all.iter().copied().chain([effects; 3]).collect();
        match self {
            Of::Everything => {
                let all: Vec<_> = families::ALL.iter().copied().filter(|family| family.is_replayed).collect();
                with(&all, EFFECTS)
            }
            // No sorted sets: Redis 8's DEBUG DIGEST prints scores with other digits.
            Of::Fields => with(&[families::FIELDS, families::HASHES], FIELD_EFFECTS),
            Of::Suggestions => vec![families::SUGGESTIONS],
        }
    }
}

/// The common time of all threads; each step advances it.
struct Time(AtomicU64);

impl Time {
    fn step(&self) -> u64 {
        self.0.fetch_add(300, Ordering::Relaxed)
    }
}

/// A thread with its connections.
struct Driver<'t> {
    worker: Worker,
    sessions: Vec<Session>,
    /// The unsent commands of each connection.
    queues: Vec<Vec<Command>>,
    time: &'t Time,
    used_memory: &'t AtomicU64,
    families: Vec<Family>,
    of: Of,
    rng: Rng,
}

impl Driver<'_> {
    fn refill(&mut self, connection: usize) {
        let family = *self.rng.pick(&self.families);
        let stream = generate(&family, self.rng.next_u64());
        let mut commands = stream.commands;
        if !matches!(self.of, Of::Everything) {
            // Commands of other families are replayed with their own oracle.
            commands.retain(|command| families::have(&self.families, command));
        }
        let commands = commands.into_iter().map(with_blanks);
        self.queues[connection] = commands.rev().collect();
    }

    fn run(&mut self, connection: usize, commands: &[Command]) -> Progress {
        self.worker.begin_turn(self.time.step());
        let bytes = encode_all(commands);
        let mut at = 0;
        loop {
            let mut out = resp::reply::Output::default();
            let (next, ran) = self.worker.run(&mut self.sessions[connection], bytes.as_slice().into(), at, &mut out);
            at = next;
            if ran != Progress::Yielded {
                return ran;
            }
        }
    }

    /// Handles messages from other threads for this thread's connections.
    fn take_inbox(&mut self) {
        for message in self.worker.engine.inboxes[self.worker.id].take() {
            if let Message::Unpark { client, mut output, .. } = message
                && let Some(session) = self.sessions.iter_mut().find(|session| session.client.id == client)
            {
                self.worker.resume(session, &mut output, &mut resp::reply::Output::default());
            }
        }
    }

    /// Does some periodic work of a server.
    fn do_housekeeping(&mut self) {
        self.take_inbox();
        self.worker.begin_turn(self.time.step());
        match self.rng.below(12) {
            0 => drop(self.worker.look_for_expired(Duration::from_millis(1))),
            1 => {
                // Above the memory limit for a moment.
                self.used_memory.store(2_000_000_000, Ordering::Relaxed);
                self.worker.relieve_memory();
                self.used_memory.store(0, Ordering::Relaxed);
            }
            2 => self.worker.serve_late(),
            _ => {}
        }
    }

    fn work(&mut self) {
        for connection in 0..self.sessions.len() {
            self.refill(connection);
            if connection % 2 == 0 {
                let token = format!("token-{}-{connection}", self.worker.id);
                self.run(connection, &[penstock_tests::bytes::command(&format!("PIPELINE START {token}"))]);
            }
        }
        let mut refills = 0;
        while refills < STREAMS {
            self.do_housekeeping();
            let connection = self.rng.below(self.sessions.len());
            if self.sessions[connection].client.waiter().is_some() {
                if self.rng.chance(10) {
                    let mut out = resp::reply::Output::default();
                    self.worker.time_out(&mut self.sessions[connection], &mut out);
                }
                continue;
            }
            if self.queues[connection].is_empty() {
                self.refill(connection);
                refills += 1;
            }
            let queue = &mut self.queues[connection];
            let count = (1 + self.rng.below(20)).min(queue.len());
            let batch: Vec<Command> = (0..count).filter_map(|_| queue.pop()).collect();
            self.run(connection, &batch);
        }
        // No command may stay half done.
        for connection in 0..self.sessions.len() {
            self.take_inbox();
            let mut out = resp::reply::Output::default();
            self.worker.time_out(&mut self.sessions[connection], &mut out);
            self.run(connection, &[penstock_tests::bytes::command("DISCARD")]);
        }
    }
}

/// Runs a history. Returns its engine with the reader of its journal.
pub(crate) fn history(seed: u64, of: Of, now_us: u64) -> (Bench, Merge) {
    let mut bench = Bench::with_threads(settings(), THREADS);
    bench.now_us = now_us;
    let engine: &'static Engine = bench.worker.engine;
    let journal = engine.journal.read(&engine.keyspace, Audience::File).expect("nothing reads the journal yet");
    let (time, used_memory) = (Time(AtomicU64::new(now_us)), bench.used_memory.clone());
    let mut session = bench.open();
    bench.line(&mut session, "CONFIG SET maxmemory 1000000000");
    let Bench { worker, used_memory: _, .. } = bench;
    let workers = [worker, Worker::new(1, engine, seed + 1)];
    let worker = std::thread::scope(|scope| {
        let (time, used_memory) = (&time, &*used_memory);
        let threads = workers.map(|worker| {
            scope.spawn(move || {
                let rng = Rng::new(seed * 10 + worker.id as u64);
                let queues = vec![Vec::new(); CONNECTIONS];
                let (sessions, families) = (Vec::new(), of.families());
                let mut driver = Driver { worker, sessions, queues, time, used_memory, families, of, rng };
                driver.worker.begin_turn(time.step());
                let worker = &mut driver.worker;
                // Not the address that CLIENT KILL uses in the streams.
                driver.sessions = (0..CONNECTIONS)
                    .map(|_| worker.open("127.0.0.1:50000".into(), "127.0.0.1:50001".into(), 8, 0, true))
                    .collect();
                driver.work();
                driver.worker
            })
        });
        let [first, _] = threads.map(|thread| thread.join().expect("a driver has failed"));
        first
    });
    let bench = Bench { worker, now_us: time.step(), used_memory };
    (bench, journal)
}

/// The lines of XINFO STREAM about producers' messages. The number of duplicates isn't recorded.
fn producers(info: &[u8]) -> String {
    let info = String::from_utf8_lossy(info).into_owned();
    let from = info.find("idmp-duration").unwrap_or(info.len());
    let to = info.find("iids-duplicates").unwrap_or(info.len());
    info[from..to].to_owned()
}

/// Returns a description of an engine's data, by topic.
pub(crate) fn contents(bench: &mut Bench) -> BTreeMap<String, String> {
    let mut session = bench.open();
    let mut all = BTreeMap::new();
    // The clock is stopped: keys that are due are present on both sides, or on none.
    all.insert("digest".to_owned(), bench.line(&mut session, "DEBUG DIGEST"));
    for database in 0..4 {
        bench.line(&mut session, &format!("SELECT {database}"));
        let keys = bench.run(&mut session, &request(&["KEYS", "*"])).0;
        let (keys, _) = Reply::parse(&keys).unwrap().expect("a whole reply");
        for key in keys.items() {
            let name = format!("{database} {}", String::from_utf8_lossy(key.text()));
            let mut ask = |words: &[&[u8]]| bench.run(&mut session, &request(words)).0;
            let digest = ask(&[b"DEBUG", b"DIGEST-VALUE", key.text()]);
            all.insert(name.clone(), String::from_utf8_lossy(&digest).into_owned());
            let expiry = ask(&[b"PEXPIRETIME", key.text()]);
            all.insert(format!("{name} expires"), String::from_utf8_lossy(&expiry).into_owned());
            if ask(&[b"TYPE", key.text()]) == b"+stream\r\n" {
                let groups = ask(&[b"XINFO", b"GROUPS", key.text()]);
                all.insert(format!("{name} groups"), String::from_utf8_lossy(&groups).into_owned());
                let info = ask(&[b"XINFO", b"STREAM", key.text()]);
                all.insert(format!("{name} producers"), producers(&info));
                for group in ["g1", "g2"] {
                    let pending = ask(&[b"XPENDING", key.text(), group.as_bytes(), b"-", b"+", b"1000"]);
                    all.insert(format!("{name} {group}"), String::from_utf8_lossy(&pending).into_owned());
                }
            }
        }
    }
    let states = bench.worker.engine.pipelines.states(0);
    for state in states {
        let progress = state.progress;
        let positions: Vec<u64> = progress.failures.iter().map(|failure| failure.position).collect();
        let text = format!("{} {} {} {positions:?}", progress.executed, progress.failed, progress.database);
        all.insert(format!("token {}", String::from_utf8_lossy(&state.token)), text);
    }
    all
}

/// The time an hour from now: keys that expire in the history are not due by Redis's clock.
pub(crate) fn in_an_hour_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64 + 3_600_000_000
}

fn check(seed: u64, of: Of) {
    let now_us = in_an_hour_us();
    let (mut bench, mut journal) = history(seed, of, now_us);
    let mut copy = Bench::with_threads(settings(), 1);
    copy.now_us = bench.now_us;
    let mut requests = Vec::new();
    {
        let mut replay = Replay::begin(&mut copy.worker, now_us);
        while let Some(unit) = journal.next_unit() {
            if let Err(mismatch) = replay.apply(&unit) {
                let command = String::from_utf8_lossy(&mismatch.command).into_owned();
                panic!("seed {seed}, unit {}: {command}: {}", unit.position, String::from_utf8_lossy(&mismatch.error));
            }
            requests.push(unit.entries().map(|e| (e.database, e.kind, e.command.to_vec())).collect::<Vec<_>>());
        }
    }
    assert_eq!(requests.len() as u64, bench.worker.engine.journal.position(), "every unit came");
    assert!(requests.len() > 100, "only {} units", requests.len());
    let log = || {
        let lines = requests.iter().enumerate().flat_map(|(at, unit)| {
            unit.iter().map(move |(database, _, command)| {
                format!("{} [{database}] {}", at + 1, String::from_utf8_lossy(command).replace("\r\n", " "))
            })
        });
        let path = env::temp_dir().join(format!("replay-{seed}.log"));
        std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
        path.display().to_string()
    };
    // Keys that are due are still present on neither side.
    let mut expected = contents(&mut bench);
    let mut got = contents(&mut copy);
    // Expired keys that no command has accessed count only in DEBUG DIGEST, on both sides.
    if expected != got {
        expected.retain(|key, value| got.get(key) != Some(value));
        let path = log();
        got.retain(|key, _| expected.contains_key(key));
        panic!("seed {seed} ({path}): expected {expected:#?}, got {got:#?}");
    }
    let args = ["--databases", "4", "--enable-debug-command", "yes", "--stream-node-max-entries", "5"];
    let oracle = match of {
        Of::Everything => Some(Server::oracle(&args)),
        Of::Fields => Server::redis8(&args),
        Of::Suggestions => None,
    };
    if let Some(oracle) = oracle {
        check_redis(&oracle, &requests, &expected["digest"], seed, log);
    }
}

/// Converts a command to a form that clients may send: Redis accepts a message with both an ID and a producer's id only
/// from its primary and from its own file.
fn as_of_client(command: &[u8]) -> Vec<u8> {
    let Ok(Some((request, _))) = Reply::parse(command) else { return command.to_vec() };
    let mut words: Vec<Vec<u8>> = request.items().iter().map(|word| word.text().to_vec()).collect();
    // Only options precede the ID.
    let found = words.iter().position(|word| matches!(word.as_slice(), b"IDMP" | b"IDMPAUTO"));
    if let Some(at) = found.filter(|_| words[0] == b"XADD") {
        let names = if words[at] == b"IDMP" { 2 } else { 1 };
        words.drain(at..=at + names);
    }
    encode(&words)
}

/// Runs the units in redis-server, and compares the digests.
fn check_redis(
    oracle: &Server,
    units: &[Vec<(usize, Kind, Vec<u8>)>],
    digest: &str,
    seed: u64,
    log: impl Fn() -> String,
) {
    let mut conn = oracle.connect();
    conn.cmd("DEBUG SET-ACTIVE-EXPIRE 0").unwrap();
    for (at, unit) in units.iter().enumerate() {
        let commands: Vec<_> = unit.iter().filter(|(_, kind, _)| *kind == Kind::Command).collect();
        let (mut bytes, mut replies) = (Vec::new(), 0);
        let mut add = |command: &[u8]| {
            bytes.extend_from_slice(command);
            replies += 1;
        };
        if commands.len() > 1 {
            add(b"MULTI\r\n");
        }
        for (database, _, command) in &commands {
            add(format!("SELECT {database}\r\n").as_bytes());
            add(&as_of_client(command));
        }
        if commands.len() > 1 {
            add(b"EXEC\r\n");
        }
        conn.send(&bytes).unwrap();
        let answered = conn.read_n(replies);
        let Ok(answered) = answered else {
            let asked = String::from_utf8_lossy(&bytes).into_owned();
            panic!("seed {seed} ({}), unit {}: no reply to {asked}: {}", log(), at + 1, oracle.log());
        };
        for reply in answered {
            let mut errors = std::iter::once(&reply).chain(reply.items()).filter(|reply| reply.is_error());
            let error = errors.next().map(Reply::escaped);
            assert!(error.is_none(), "seed {seed} ({}), unit {}: redis-server: {error:?}", log(), at + 1);
        }
    }
    let answered = String::from_utf8_lossy(conn.cmd("DEBUG DIGEST").unwrap().text()).into_owned();
    assert_eq!(format!("+{answered}"), digest, "seed {seed} ({}): redis-server's data differ", log());
}

fn check_all(of: Of) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("PENSTOCK_SEED") {
        return check(seed, of);
    }
    (0..number("PENSTOCK_REPLAY_ROUNDS").unwrap_or(ROUNDS)).for_each(|seed| check(seed, of));
}

#[test]
fn the_journal_reproduces_the_data() {
    check_all(Of::Everything);
}

#[test]
fn the_journal_reproduces_fields_that_expire() {
    check_all(Of::Fields);
}

#[test]
fn the_journal_reproduces_suggestions() {
    check_all(Of::Suggestions);
}
