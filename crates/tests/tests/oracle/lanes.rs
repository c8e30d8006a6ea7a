//! A primary's stream that several threads apply gives the same data as with one thread.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ::replication::feed::Feed;
use ::replication::stream::Splitter;
use engine::replay::runs_by_itself;
use engine::replication::Primary;
use engine::replication::rounds::RoundBounds;
use engine::testing::Bench;
use engine::worker::Worker;
use journal::merge::Merge;
use penstock_tests::breaker::Breaker;
use penstock_tests::bytes::{command, encode_all};
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;

use super::links::{is_up, oracle, persist_all, replica_of, text, wait_until_equal};
use super::replay::{Of, contents, history, in_an_hour_us, settings};

/// Number of histories in an ordinary run.
const ROUNDS: u64 = 10;
/// Bytes of the stream that arrive at once, in rotation.
const PARTS: [usize; 3] = [300, 5_000, 60_000];

/// Returns the stream that a primary with this journal sends.
fn stream_of(journal: &mut Merge) -> Vec<u8> {
    let (mut feed, mut stream) = (Feed::default(), Vec::new());
    while let Some(unit) = journal.next_unit() {
        feed.unit(unit.entries(), &mut stream);
    }
    stream
}

/// Applies a stream in parts, with other threads that take lanes of it. Returns the number of lanes and the resulting
/// data.
fn applied(stream: &[u8], part: usize, now_us: u64, threads: usize) -> (u64, Vec<(String, String)>) {
    let mut bench = Bench::with_threads(settings(), threads);
    bench.now_us = now_us;
    bench.worker.applying.round_bounds = RoundBounds::least();
    let engine = bench.worker.engine;
    let alone = engine.keyspace.gate().close();
    assert!(engine.replication.follow(&engine.journal, Some(Primary { host: "primary".into(), port: 1 }), true));
    drop(alone);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for id in 1..threads {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut worker = Worker::new(id, engine, id as u64);
                worker.begin_turn(now_us);
                while !is_over.load(Ordering::Relaxed) {
                    worker.apply_lanes();
                    thread::yield_now();
                }
            });
        }
        let (mut splitter, mut at, mut end) = (Splitter::new(4, runs_by_itself), 0, 0);
        while at < stream.len() {
            end = (end + part).min(stream.len());
            let portion = splitter.portion(&stream[at..end]).expect("a stream");
            let commands = &stream[at..at + portion.commands];
            bench.worker.begin_turn(now_us);
            let applied = bench.worker.apply_stream(1, engine.replication.version(), commands, &portion.cuts);
            assert_eq!((applied.taken, applied.failure), (commands.len(), None));
            at += commands.len();
            assert_eq!(engine.replication.link().applied, at as u64);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    (engine.replication.rounds.figures().0, contents(&mut bench).into_iter().collect())
}

/// Random work of every family, with transactions, scripts, expiry, eviction and tokens.
#[test]
fn a_stream_of_every_family_is_applied_in_lanes_as_in_order() {
    let (mut lanes_in_all, now_us) = (0, in_an_hour_us());
    for seed in 0..ROUNDS {
        let (bench, mut journal) = history(seed + 1000, Of::Everything, now_us);
        let stream = stream_of(&mut journal);
        for part in PARTS {
            let (none, expected) = applied(&stream, part, bench.now_us, 1);
            let (lanes, got) = applied(&stream, part, bench.now_us, 3);
            let differing: Vec<_> = expected.iter().zip(&got).filter(|(a, b)| a != b).collect();
            assert!(expected == got, "seed {seed}, parts of {part}: {differing:#?}");
            assert_eq!(none, 0);
            lanes_in_all += lanes;
        }
    }
    assert!(lanes_in_all > 1000, "{lanes_in_all}");
}

/// Writes from several pipelined connections, mostly commands that can be applied in lanes.
fn write_much(server: &Server, seed: u64, batches: usize) {
    thread::scope(|scope| {
        for connection in 0..3 {
            scope.spawn(move || {
                let mut rng = Rng::new(seed + connection);
                let mut conn = server.connect();
                for batch in 0..batches {
                    let mut commands = Vec::new();
                    let mut add = |line: String| commands.push(command(&line));
                    for number in 0..300 {
                        let key = rng.below(500);
                        match rng.below(12) {
                            0 => add(format!("RPUSH l{key} {number} {batch}")),
                            1 => add(format!("LPOP l{key}")),
                            2 => add(format!("HSET h{key} f{} {number}", rng.below(9))),
                            3 => add(format!("ZADD z{key} {number} m{}", rng.below(9))),
                            4 => add(format!("SET e{key} v PX {}", 1 + rng.below(50))),
                            5 => add(format!("APPEND s{key} {}", rng.below(10))),
                            6 => add(format!("SREM t{key} {}", rng.below(9))),
                            7 => add(format!("SADD t{key} {}", rng.below(9))),
                            _ => add(format!("SET s{key} {number}")),
                        }
                    }
                    match rng.below(8) {
                        0 => add(format!("SELECT {}", rng.below(3))),
                        1 => {
                            add("MULTI".into());
                            (0..3).for_each(|_| add(format!("INCR n{}", rng.below(50))));
                            add("EXEC".into());
                        }
                        2 => add(format!(
                            "EVAL return(redis.call('incr',KEYS[1])+redis.call('incr',KEYS[2])) 2 n1 n{batch}"
                        )),
                        3 if batch % 7 == 0 => add("FLUSHALL".into()),
                        4 if batch % 5 == 0 => add("SWAPDB 0 1".into()),
                        5 => add(format!("MSET s1 {batch} s2 {batch} s3 {batch}")),
                        _ => {}
                    }
                    conn.send(&encode_all(&commands)).unwrap();
                    conn.read_n(commands.len()).unwrap();
                }
            });
        }
    });
}

/// A replica on two threads, a replica of it, and their snapshots and offsets under load.
#[test]
fn replicas_on_two_threads_have_what_their_primary_has() {
    let primary = oracle();
    let replica = replica_of(primary.port(), &["--appendonly", "yes"]);
    replica.wait_until("the link is up", is_up);
    let last = replica_of(replica.port(), &[]);
    last.wait_until("the link is up", is_up);
    write_much(&primary, 1, 25);
    // A snapshot taken in the middle of rounds begins exactly at the announced offset.
    let (late, ()) = thread::scope(|scope| {
        let writes = scope.spawn(|| write_much(&primary, 2, 25));
        let late = replica_of(replica.port(), &[]);
        late.wait_until("the link is up", is_up);
        (late, writes.join().unwrap())
    });
    persist_all(&primary);
    for server in [&replica, &last, &late] {
        wait_until_equal(&primary, server);
        assert!(!server.log().contains("could not be applied"), "{}", server.log());
    }
    let lanes = |server: &Server| server.figure("replication_lanes");
    assert!(lanes(&replica) > 100 && lanes(&last) > 100, "{} {}", lanes(&replica), lanes(&last));
    let digest = text(&replica, "DEBUG DIGEST");
    // The replica's append-only file has the same data.
    let mut conn = replica.connect();
    assert_eq!(conn.cmd("REPLICAOF NO ONE").unwrap().text(), b"OK");
    assert_eq!(conn.cmd("DEBUG LOADAOF").unwrap().text(), b"OK");
    assert_eq!(text(&replica, "DEBUG DIGEST"), digest);
}

/// A link that is cut continues behind the last whole round, or behind the last unit that was applied in order.
#[test]
fn a_link_that_is_cut_goes_on_between_rounds() {
    let primary = oracle();
    let (mut first, mut rng) = (true, Rng::new(31));
    let breaker = Breaker::start_with(primary.port(), move || {
        // A large budget, so that the snapshot gets through.
        let back = if std::mem::take(&mut first) { 50_000 } else { 1_000 + rng.below(100_000) };
        [1 << 30, back]
    });
    let replica = replica_of(breaker.port(), &[]);
    replica.wait_until("the link is up", is_up);
    write_much(&primary, 3, 30);
    persist_all(&primary);
    wait_until_equal(&primary, &replica);
    assert!(breaker.broken() > 5 && replica.figure("replication_lanes") > 50, "{}", breaker.broken());
    assert_eq!(primary.figure("sync_full"), 1, "{}", replica.log());
    assert!(!replica.log().contains("could not be applied"), "{}", replica.log());
}
