use std::sync::atomic::{AtomicBool, Ordering};

use store::random::Random;
use store::sync::Inside;

use super::*;
use crate::clients::client::client_flag;
use crate::config::{Loader, Settings};
use crate::replication::Primary;
use crate::replication::rounds::RoundBounds;
use crate::scripts::busy::Caller;
use crate::testing::{Bench, request};

/// A bench that follows a primary, with so many threads.
fn following(threads: usize) -> Bench {
    let settings = Settings::new();
    for [name, value] in [["busy-reply-threshold", "1"], ["enable-debug-command", "yes"]] {
        Loader::new(&settings).directive(&[name.into(), value.into()]).unwrap();
    }
    let bench = Bench::with_threads(settings, threads);
    let engine = bench.worker.engine;
    let alone = engine.keyspace.gate().close();
    let primary = Primary { host: "primary".into(), port: 1 };
    assert!(engine.replication.follow(&engine.journal, Some(primary), true));
    drop(alone);
    bench
}

/// Applies commands in the runs that the link would have them applied in, as far as they can be applied now.
fn apply(bench: &mut Bench, commands: &[u8]) -> Applied {
    bench.worker.begin_turn(bench.now_us);
    let mut splitter = replication::stream::Splitter::new(16, runs_by_itself);
    let portion = splitter.portion(commands).unwrap();
    let version = bench.worker.engine.replication.version();
    bench.worker.apply_stream(1, version, commands, &portion.cuts)
}

/// A script that takes too long must not cost a replica any of its primary's commands: they wait for it.
#[test]
fn the_stream_waits_for_what_a_busy_script_holds() {
    let streams: [&[&str]; 6] = [
        &["set k v"],
        &["ping", "mset k v j v"],
        &["flushall", "set k v"],
        &["multi", "set j v", "set k v", "exec"],
        &["set j v", "eval return(redis.call('set',KEYS[1],'v')) 1 k"],
        &["multi", "flushall", "set k v", "exec"],
    ];
    for script in ["eval while(true)do(function()end)()end 1 k", "eval while(true)do(redis).call('dbsize')end 0"] {
        for stream in streams {
            let mut bench = following(2);
            let engine = bench.worker.engine;
            let commands = stream.iter().flat_map(|line| words(line)).collect::<Vec<_>>();
            let (script, now_us) = (words(script), bench.now_us);
            // What is found in the midst of the script is looked at when it has ended.
            let (mut taken, mut before) = (0, Vec::new());
            std::thread::scope(|scope| {
                let thread = scope.spawn(move || {
                    let mut worker = Worker::new(1, engine, 2);
                    worker.begin_turn(now_us);
                    let mut session = worker.open("127.0.0.1:2".into(), "127.0.0.1:6379".into(), 9, 0, true);
                    let mut out = Output::default();
                    worker.run(&mut session, script[..].into(), 0, &mut out);
                });
                while !engine.busy.any() && !thread.is_finished() {
                    std::thread::yield_now();
                }
                for _ in 0..3 {
                    let applied = apply(&mut bench, &commands[taken..]);
                    taken += applied.taken;
                    before.push(applied);
                }
                engine.busy.kill(Caller::Eval).unwrap();
            });
            assert!(
                taken < commands.len() && before.iter().all(|applied| applied.failures == 0),
                "{stream:?} {before:?}"
            );
            let applied = apply(&mut bench, &commands[taken..]);
            assert_eq!((taken + applied.taken, applied.failures), (commands.len(), 0), "{stream:?}");
            assert_eq!(engine.replication.link().applied, commands.len() as u64, "{stream:?}");
            let mut session = bench.open();
            assert_eq!(bench.line(&mut session, "get k"), "$1|v", "{stream:?}");
            assert!(!bench.worker.applying.stream.as_ref().unwrap().1.client.has(client_flag::BLOCKED));
        }
    }
}

fn words(line: &str) -> Vec<u8> {
    request(&line.split(' ').collect::<Vec<_>>())
}

/// A worker that serves no clients, beside the one of the bench.
fn beside(bench: &Bench, id: usize) -> Worker {
    let mut worker = Worker::new(id, bench.worker.engine, id as u64);
    worker.begin_turn(bench.now_us);
    worker
}

/// Runs one line of a client of this worker.
fn ask(worker: &mut Worker, session: &mut Session, line: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Output::default(), 0);
    while at < line.len() {
        (at, _) = worker.run(session, line.into(), at, &mut out);
    }
    out.slices().collect::<Vec<_>>().concat()
}

/// Random changes in several databases, most of which can be applied in lanes.
fn random_stream(random: &mut Random, commands: usize) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut below = |end: u64| random.next() % end;
    for number in 0..commands {
        let key = below(300);
        let one = |below: &mut dyn FnMut(u64) -> u64| match below(9) {
            0 => format!("RPUSH l{key} {number}"),
            1 => format!("HSET h{key} f{} {number}", below(5)),
            2 => format!("APPEND s{key} {}", below(10)),
            3 => format!("DEL s{key}"),
            4 => format!("LPOP l{key}"),
            5 => format!("ZADD z{key} {number} m{}", below(5)),
            _ => format!("SET s{key} {number}"),
        };
        // Now and then come many others between two that are applied by themselves.
        let spread = if number / 500 % 2 == 0 { 60 } else { 2000 };
        match below(spread) {
            0 => stream.extend(words(&format!("SELECT {}", below(4)))),
            1 => stream.extend(words(&format!("MSET s{key} x s{} {number}", below(300)))),
            2 => {
                stream.extend(words("MULTI"));
                (0..below(4)).for_each(|_| stream.extend(words(&one(&mut below))));
                stream.extend(words("EXEC"));
            }
            3 if below(20) == 0 => stream.extend(words("FLUSHDB")),
            4 if below(4) == 0 => stream.extend(words("SWAPDB 0 1")),
            5 => stream.extend(words(&format!("LTRIM l{key} -3 -1"))),
            _ => stream.extend(words(&one(&mut below))),
        }
    }
    stream
}

/// Applies a stream in parts, as it arrives.
fn apply_in_parts(bench: &mut Bench, stream: &[u8], part: usize) {
    let (mut splitter, mut at, mut end) = (replication::stream::Splitter::new(16, runs_by_itself), 0, 0);
    let version = bench.worker.engine.replication.version();
    while at < stream.len() {
        end = (end + part).min(stream.len());
        let portion = splitter.portion(&stream[at..end]).unwrap();
        bench.worker.begin_turn(bench.now_us);
        let applied = bench.worker.apply_stream(1, version, &stream[at..at + portion.commands], &portion.cuts);
        assert_eq!((applied.taken, applied.failure), (portion.commands, None));
        at += portion.commands;
        assert_eq!(bench.worker.engine.replication.link().applied, at as u64);
    }
}

#[test]
fn what_several_threads_apply_is_what_one_applies() {
    let mut random = Random::new(5);
    for history in 0..20 {
        let stream = random_stream(&mut random, 3000);
        let part = [500, 5_000, 50_000][history % 3];
        let mut alone = following(1);
        apply_in_parts(&mut alone, &stream, part);
        let mut together = following(3);
        if history % 2 == 0 {
            together.worker.applying.round_bounds = RoundBounds::least();
        }
        let engine = together.worker.engine;
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for id in 1..3 {
                let (mut worker, is_over) = (beside(&together, id), &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        worker.apply_lanes();
                        std::thread::yield_now();
                    }
                });
            }
            apply_in_parts(&mut together, &stream, part);
            is_over.store(true, Ordering::Relaxed);
        });
        let digests = [&mut alone, &mut together].map(|bench| {
            let mut session = bench.open();
            let size = bench.line(&mut session, "dbsize");
            (bench.line(&mut session, "debug digest"), size)
        });
        assert_eq!(digests[0], digests[1], "{history}");
        assert_eq!(
            engine.replication.stream_database(),
            alone.worker.engine.replication.stream_database(),
            "{history}"
        );
        let (lanes, _) = engine.replication.rounds.figures();
        assert_eq!(alone.worker.engine.replication.rounds.figures(), (0, 0));
        assert_eq!(lanes > 0, part > 4096 || history % 2 == 0, "{history}");
    }
}

/// Readers find the primary's changes in the primary's order, whichever threads apply them, and all of a transaction or nothing.
#[test]
fn readers_see_the_order_of_the_primary() {
    const ROUNDS: usize = 40;
    // On a busy machine, the other thread may be away for long.
    const ROUNDS_MAX: usize = 800;
    let mut together = following(2);
    together.worker.applying.round_bounds = RoundBounds { units_max: 100, ..RoundBounds::default() };
    let engine = together.worker.engine;
    let stream: Vec<u8> = (0..4000)
        .flat_map(|i| {
            [words(&format!("SET first {i}")), words(&format!("SET then {i}")), words(&format!("SET last {i}"))]
        })
        .flatten()
        .collect();
    let (mut lanes, mut of_guests) = (0, 0);
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS && of_guests > 0 {
            break;
        }
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (mut worker, is_over) = (beside(&together, 1), &is_over);
            scope.spawn(move || {
                let mut session = worker.open("127.0.0.1:2".into(), "127.0.0.1:6379".into(), 9, 0, true);
                let read = request(&["MGET", "last", "then", "first"]);
                while !is_over.load(Ordering::Relaxed) {
                    let reply = String::from_utf8(ask(&mut worker, &mut session, &read)).unwrap();
                    let numbers: Vec<_> = reply.lines().filter_map(|line| line.parse::<i64>().ok()).collect();
                    if let [last, then, first] = numbers[..] {
                        assert!(last <= then && then <= first && first <= last + 1, "{numbers:?}");
                    }
                    worker.apply_lanes();
                }
            });
            apply_in_parts(&mut together, &stream, 20_000);
            let end = engine.replication.link().applied;
            engine.replication.note_link(engine.replication.version(), true, |link| link.applied -= end);
            is_over.store(true, Ordering::Relaxed);
        });
        (lanes, of_guests) = engine.replication.rounds.figures();
    }
    assert!(lanes > 100 && of_guests > 0, "{lanes} {of_guests}");
}

/// What is shown to others in its order is applied in it, and what no thread may write is not.
#[test]
fn rounds_are_applied_while_nothing_looks_on() {
    let stream: Vec<u8> = (0..200).flat_map(|i| words(&format!("SET k{i} v"))).collect();
    let has_round = |prepare: &dyn Fn(&mut Bench) -> Option<Inside<'static>>| {
        let mut bench = following(2);
        let other = prepare(&mut bench);
        apply_in_parts(&mut bench, &stream, stream.len());
        drop(other);
        let mut session = bench.open();
        assert_eq!(bench.line(&mut session, "dbsize"), ":200");
        bench.worker.engine.replication.rounds.figures().0 > 0
    };
    assert!(has_round(&|_| None));
    for line in ["monitor", "config set notify-keyspace-events KEA", "xread block 0 streams s $"] {
        let prepare = |bench: &mut Bench| {
            let session = Box::leak(Box::new(bench.open()));
            bench.line(session, line);
            None
        };
        assert!(!has_round(&prepare), "{line}");
    }
    // Another thread is inside the gate for long.
    assert!(!has_round(&|bench| Some(bench.worker.engine.keyspace.gate().enter(1))));
}
