//! Penstock with other servers, as their primary and as their replica, under many simultaneous faults: random writes of
//! every family, transactions, scripts, expiry, eviction and blocked pops on two threads; links cut at any byte,
//! replicas that stall, are killed and have little memory, and a primary that restarts. In the end all have equal data
//! at equal offsets, and snapshots were sent only if the stream was not sufficient.
//!
//! `PENSTOCK_MATRIX_SECONDS` sets the duration for each pair, `PENSTOCK_SEED` the seed, `PENSTOCK_ORACLE` the other
//! server: bench/replication-matrix.sh runs all.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use penstock_tests::breaker::Breaker;
use penstock_tests::bytes::encode_all;
use penstock_tests::conn::Conn;
use penstock_tests::families::{self, Family};
use penstock_tests::rng::Rng;
use penstock_tests::server::{Server, comes_true};
use penstock_tests::stream::generate;

use super::links::{Kind, is_up, oracle_of, persist_all, replica_of, signal, text, wait_until_equal};

/// Threads for each kind of work.
const THREADS: u64 = 2;
/// Longest wait for a stream's replies; a stream that takes longer is blocked.
const PATIENCE: Duration = Duration::from_millis(20);
/// Pause of the work that fills the memory, so that a link with frequent cuts keeps up.
const FILL_PAUSE: Duration = Duration::from_millis(20);
/// Memory limit of the primary above its empty size, in bytes. Redis counts the backlog.
const ROOM_BYTES: u64 = 10 << 20;
/// A link that is cut after more bytes gets a snapshot through.
const SNAPSHOT_BYTES: usize = 4 << 20;
/// Like SNAPSHOT_BYTES, for the first link, when there is hardly any data.
const FIRST_BYTES: usize = 100_000;

/// Links must be cut more often than this.
const CUTS_MIN: u64 = 4;
/// Longest time of additional trouble on a busy machine.
const MATRIX_MAX: Duration = Duration::from_secs(60);

const PRIMARY: [&str; 16] = [
    "--repl-backlog-size",
    "8mb",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "1",
    "--maxmemory-policy",
    "allkeys-lru",
    "--enable-debug-command",
    "yes",
    "--client-output-buffer-limit",
    "replica 1gb 0 0",
    "--hz",
    "50",
    "--maxmemory-samples",
    "10",
];

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// A primary and the kinds of its replicas: each kind of server takes both roles.
struct Pair {
    primary: fn(&[&str]) -> Server,
    replica: Kind,
}

/// Counters of a pair's run.
#[derive(Default)]
struct Tally {
    cut: u64,
    partial: u64,
    evicted: u64,
    expired: u64,
    restarts: u64,
}

/// Number of snapshots that a replica has loaded, from its log.
fn loaded(replica: &Server) -> usize {
    let log = replica.log();
    let told = ["The primary's data are loaded", "sync: Finished with success"];
    told.iter().map(|line| log.matches(line).count()).sum()
}

/// Cuts links at any byte: most within some thousand bytes, some within the handshake or an acknowledgement, few after
/// a snapshot.
fn cutter(port: u16, seed: u64, is_calm: Arc<AtomicBool>) -> Breaker {
    let mut rng = Rng::new(seed);
    let mut is_first = true;
    Breaker::start_with(port, move || {
        if is_calm.load(Ordering::Relaxed) {
            return [usize::MAX; 2];
        }
        if std::mem::take(&mut is_first) {
            return [usize::MAX, FIRST_BYTES];
        }
        match rng.below(80) {
            0..4 => [1 + rng.below(400), usize::MAX],
            4..8 => [usize::MAX, 1 + rng.below(300)],
            8 => [usize::MAX, SNAPSHOT_BYTES],
            _ => [usize::MAX, 1 + rng.below(40_000)],
        }
    })
}

/// Calls `work` with a connection until `is_enough`. Connections may break, and the server may be down.
fn repeat(port: u16, is_enough: &AtomicBool, mut work: impl FnMut(&mut Conn) -> std::io::Result<()>) {
    while !is_enough.load(Ordering::Relaxed) {
        match Conn::open(port) {
            Ok(mut conn) => _ = work(&mut conn),
            Err(_) => sleep(PATIENCE),
        }
    }
}

/// True for commands that other versions handle differently: numbers in hexadecimal, which Valkey 9 refuses; an index
/// of LSET beyond 32 bits, of which Redis since 7.2 and Valkey use 32; the smallest count of LREM, which they refuse;
/// numbers at their limits, which Redis 8 sorts differently; BITFIELD with OVERFLOW FAIL, which in Redis creates a
/// missing key of zeros although it changes no field, and does not send this to replicas.
fn is_taken_otherwise(command: &[Vec<u8>]) -> bool {
    let is = |name: &str| command[0].eq_ignore_ascii_case(name.as_bytes());
    let has = |word: &str| command.iter().any(|given| given.eq_ignore_ascii_case(word.as_bytes()));
    let is_hexadecimal = |word: &Vec<u8>| {
        let digits = word.strip_prefix(b"+").or_else(|| word.strip_prefix(b"-")).unwrap_or(word);
        digits.strip_prefix(b"(").unwrap_or(digits).to_ascii_lowercase().starts_with(b"0x")
    };
    let index = command.get(2).and_then(|word| std::str::from_utf8(word).ok()?.parse::<i64>().ok());
    command.iter().any(is_hexadecimal)
        || (is("LSET") && index.is_some_and(|index| i32::try_from(index).is_err()))
        || (is("LREM") && index == Some(i64::MIN))
        || (is("BITFIELD") && has("FAIL"))
        || (is("SORT") && has("STORE") && !has("ALPHA") && !has("nosort"))
}

/// Runs commands of all families.
fn write_families(port: u16, seed: u64, is_enough: &AtomicBool) {
    let families: Vec<&Family> =
        families::ALL.iter().filter(|family| family.is_replayed).chain([&families::EFFECTS]).collect();
    let mut rng = Rng::new(seed);
    repeat(port, is_enough, |conn| {
        let family: &&Family = rng.pick(&families);
        let mut stream = generate(family, rng.next_u64());
        // Rarely flush, so that there is usually data.
        stream.commands.retain(|command| !command[0].to_ascii_uppercase().starts_with(b"FLUSH") || rng.chance(1));
        stream.commands.retain(|command| !is_taken_otherwise(command));
        conn.send(&encode_all(&stream.commands))?;
        conn.read_for(PATIENCE).map(|_| ())
    });
}

/// Writes values that fill the memory, keys that expire soon, transactions and scripts, in two databases.
fn fill(port: u16, seed: u64, is_enough: &AtomicBool) {
    let mut rng = Rng::new(seed);
    repeat(port, is_enough, |conn| {
        let mut batch = format!("SELECT {}\r\n", rng.below(2));
        let mut replies = 1;
        for _ in 0..20 {
            let (key, number) = (rng.below(2000), rng.below(100));
            let (text, count) = match rng.below(6) {
                0 => (format!("SET fill:{key} {}\r\n", "x".repeat(20 * number)), 1),
                1 => (format!("SET short:{key} v PX {}\r\nINCR count:{}\r\n", 1 + number % 9, number % 5), 2),
                2 => (format!("MULTI\r\nINCR count:{}\r\nRPUSH queue:{} {key}\r\nEXEC\r\n", number % 5, number % 3), 4),
                3 => (
                    format!(
                        "EVAL \"redis.call('INCR',KEYS[1]); return redis.call('LPUSH',KEYS[2],ARGV[1])\" 2 count:{} queue:{} {key}\r\n",
                        number % 5,
                        number % 3
                    ),
                    1,
                ),
                4 => (
                    format!("ZADD ranks:{} {number} {key}\r\nPEXPIRE ranks:{} {}\r\n", number % 3, number % 3, 1 + key),
                    2,
                ),
                _ => (
                    format!(
                        "HSET hash:{} {key} {number}\r\nXADD log:{} MAXLEN ~ 100 * f {number}\r\n",
                        number % 9,
                        number % 3
                    ),
                    2,
                ),
            };
            batch.push_str(&text);
            replies += count;
        }
        conn.send(batch.as_bytes())?;
        conn.read_n(replies)?;
        sleep(FILL_PAUSE);
        Ok(())
    });
}

/// Runs blocking pops of keys to which other clients push.
fn pop(port: u16, seed: u64, is_enough: &AtomicBool) {
    let mut rng = Rng::new(seed);
    repeat(port, is_enough, |conn| {
        conn.set_patience(Duration::from_secs(1))?;
        conn.cmd(&format!("SELECT {}", rng.below(2)))?;
        for _ in 0..20 {
            let (a, b) = (rng.below(3), rng.below(3));
            let command = match rng.below(4) {
                0 => format!("BLPOP queue:{a} queue:{b} 0.05"),
                1 => format!("BLMOVE queue:{a} done:{b} LEFT RIGHT 0.05"),
                2 => format!("BZPOPMIN ranks:{a} ranks:{b} 0.05"),
                _ => format!("BLMPOP 0.05 2 queue:{a} done:{b} RIGHT COUNT 30"),
            };
            conn.cmd(&command)?;
        }
        Ok(())
    });
}

/// A pair under test.
struct Works<'w> {
    primary: &'w mut Server,
    /// The replica behind links that are cut.
    cut: &'w Server,
    /// The replica that stalls.
    stalls: &'w Server,
    /// The replica that is killed as soon as it receives a snapshot, beside its own data if it has any.
    dies: &'w mut Server,
    rng: Rng,
    tally: Tally,
}

impl Works<'_> {
    fn go_wrong(&mut self, until: Instant) {
        while Instant::now() < until {
            sleep(Duration::from_millis(100));
            match self.rng.below(8) {
                0 | 1 => {
                    signal(self.stalls, "STOP");
                    sleep(Duration::from_millis(self.rng.below(300) as u64));
                    signal(self.stalls, "CONT");
                }
                2 | 3 => {
                    self.dies.kill();
                    self.dies.restart();
                    // During the handshake, during the snapshot, or later.
                    sleep(Duration::from_millis(self.rng.below(120) as u64));
                }
                _ => {}
            }
        }
    }

    /// True if all kinds of trouble have occurred that [`check`] asks for.
    fn has_had_enough(&self, breakers: [&Breaker; 2]) -> bool {
        let counted = |before: u64, name| before + self.primary.figure(name);
        let cut: u64 = breakers.iter().map(|breaker| breaker.broken()).sum();
        let has_lost_keys = [(self.tally.evicted, "evicted_keys"), (self.tally.expired, "expired_keys")];
        cut > CUTS_MIN && has_lost_keys.iter().all(|&(before, name)| counted(before, name) > 0)
    }

    /// Restarts the primary with a snapshot.
    fn restart_primary(&mut self) {
        let figure = |name| self.primary.figure(name);
        let (evicted, expired, partial) = (figure("evicted_keys"), figure("expired_keys"), figure("sync_partial_ok"));
        self.tally.evicted += evicted;
        self.tally.expired += expired;
        self.tally.partial += partial;
        self.tally.restarts += 1;
        let _ = self.primary.connect().cmd("SHUTDOWN SAVE");
        self.primary.wait_until_ended();
        self.primary.restart();
        limit_memory(self.primary);
    }
}

/// Sets a memory limit, so that the server evicts soon.
fn limit_memory(server: &Server) {
    server.wait_until("it is loaded", |server| text(server, "INFO persistence").contains("\r\nloading:0"));
    let limit = server.figure("used_memory") + ROOM_BYTES;
    assert_eq!(text(server, &format!("CONFIG SET maxmemory {limit}")), "OK");
}

/// Removes members with a score of zero from sorted sets. Redis keeps the sign of a zero in a large sorted set and
/// loses it in a small one, and the encoding depends on the history: even Redis's own replicas show the other sign
/// after a snapshot.
fn remove_zeros(primary: &Server) {
    let mut conn = primary.connect();
    for database in 0..16 {
        conn.cmd(&format!("SELECT {database}")).unwrap();
        for key in conn.cmd("KEYS *").unwrap().items() {
            let command = [&b"ZREMRANGEBYSCORE"[..], key.text(), b"0", b"0"];
            conn.call(&command.map(<[u8]>::to_vec)).unwrap();
        }
    }
}

fn matrix(pair: &Pair, seed: u64) {
    let seed = number("PENSTOCK_SEED", seed);
    let time = Duration::from_secs(number("PENSTOCK_MATRIX_SECONDS", 4));
    let mut primary = (pair.primary)(&PRIMARY);
    limit_memory(&primary);
    let is_calm = Arc::<AtomicBool>::default();
    let breaker = cutter(primary.port(), seed, is_calm.clone());
    let cut = (pair.replica)(breaker.port(), &["--repl-backlog-size", "8mb"]);
    let behind = cutter(cut.port(), seed + 1, is_calm.clone());
    let stalls = (pair.replica)(primary.port(), &["--maxmemory", "1mb", "--maxmemory-policy", "noeviction"]);
    let chained = (pair.replica)(behind.port(), &[]);
    let mut dies = (pair.replica)(primary.port(), &["--repl-diskless-load", "swapdb"]);
    [&cut, &stalls, &chained].iter().for_each(|replica| replica.wait_until("the link is up", is_up));
    let rounds = if time.as_secs() > 30 { 3 } else { 1 };
    let tally = thread::scope(|scope| {
        let (port, is_enough) = (primary.port(), Arc::<AtomicBool>::default());
        for thread in 0..THREADS {
            for work in [write_families, fill, pop] {
                let is_enough = is_enough.clone();
                scope.spawn(move || work(port, seed + thread, &is_enough));
            }
        }
        let rng = Rng::new(seed);
        let mut works =
            Works { primary: &mut primary, cut: &cut, stalls: &stalls, dies: &mut dies, rng, tally: Tally::default() };
        for round in 0..rounds {
            works.go_wrong(Instant::now() + time / rounds);
            if round + 1 < rounds || rounds == 1 {
                works.restart_primary();
                works.go_wrong(Instant::now() + time / rounds / 4);
            }
        }
        // On a busy machine the writers need longer until keys are evicted and links are cut.
        let end = Instant::now() + MATRIX_MAX;
        while !works.has_had_enough([&breaker, &behind]) && Instant::now() < end {
            works.go_wrong(Instant::now() + time / 4);
        }
        is_enough.store(true, Ordering::Relaxed);
        let _ = works.cut;
        works.tally
    });
    is_calm.store(true, Ordering::Relaxed);
    let replicas = [&cut, &stalls, &chained, &dies];
    replicas.iter().for_each(|replica| replica.wait_until("the link is up", is_up));
    persist_all(&primary);
    remove_zeros(&primary);
    replicas.iter().for_each(|replica| wait_until_equal(&primary, replica));
    check(&primary, replicas, [&breaker, &behind], tally);
}

fn check(primary: &Server, replicas: [&Server; 4], breakers: [&Breaker; 2], mut tally: Tally) {
    tally.cut = breakers.iter().map(|breaker| breaker.broken()).sum();
    tally.evicted += primary.figure("evicted_keys");
    tally.expired += primary.figure("expired_keys");
    tally.partial += primary.figure("sync_partial_ok") + replicas[0].figure("sync_partial_ok");
    let snapshots = replicas.map(loaded);
    let Tally { cut, partial, evicted, expired, restarts } = tally;
    println!(
        "{cut} links cut, {partial} went on, {evicted} keys evicted, {expired} expired, {restarts} restarts; snapshots loaded: {snapshots:?}"
    );
    for replica in replicas {
        let log = replica.log();
        assert!(!log.contains("could not be applied") && !log.contains("CRITICAL"), "{log}");
    }
    // A replica without a link when its primary shuts down lacks the end of the stream, and needs a full sync after the
    // restart.
    let most = 1 + restarts as usize;
    assert!(
        snapshots[0] <= most && snapshots[2] <= most,
        "{snapshots:?}\n{}\n{}",
        replicas[0].log(),
        replicas[2].log()
    );
    assert!(snapshots[1] <= most, "{snapshots:?}\n{}", replicas[1].log());
    assert!(evicted > 0 && expired > 0, "{evicted} {expired}");
    assert!(cut > CUTS_MIN && partial * 2 > cut, "{cut} {partial}");
    assert!(comes_true(|| is_up(replicas[3])));
}

fn penstock(args: &[&str]) -> Server {
    Server::penstock(&[args, &["--threads", "2"]].concat())
}

#[test]
fn penstock_follows_another_server_through_trouble() {
    matrix(&Pair { primary: Server::oracle, replica: replica_of }, 1);
}

#[test]
fn penstock_is_followed_by_another_server_through_trouble() {
    matrix(&Pair { primary: penstock, replica: oracle_of }, 2);
}

#[test]
fn penstock_follows_itself_through_trouble() {
    matrix(&Pair { primary: penstock, replica: replica_of }, 3);
}
