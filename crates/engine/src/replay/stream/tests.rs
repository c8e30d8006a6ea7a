use std::sync::atomic::{AtomicBool, Ordering};

use store::hash::KeyHash;
use store::random::Random;
use store::sync::Inside;

use super::*;
use crate::clients::client::client_flag;
use crate::replication::Primary;
use crate::replication::rounds::RoundBounds;
use crate::scripts::busy::Caller;
use crate::testing::{Bench, request};
use config::{Loader, Settings};

/// Returns a bench that follows a primary, with this number of threads.
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

/// Applies commands, cut into runs like the link does, as far as they can be applied now.
fn apply(bench: &mut Bench, commands: &[u8]) -> Applied {
    bench.worker.begin_turn(bench.now_us);
    let mut splitter = replication::stream::Splitter::new(16, runs_by_itself);
    let portion = splitter.portion(commands).unwrap();
    let version = bench.worker.engine.replication.version();
    bench.worker.apply_stream(1, version, commands, &portion.cuts)
}

/// A busy script must not make a replica skip commands of its primary: they wait for the script.
#[test]
fn the_stream_waits_for_a_busy_script() {
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
            // Results from the time of the script are checked after its end.
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

/// Returns a worker that serves no clients, beside the one of the bench.
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

/// Random changes in several databases. Most of them can be applied in lanes.
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
        // Every other block of 500 has few commands that are applied alone.
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
fn several_threads_apply_the_same_data_as_one() {
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

/// Readers see the primary's changes in the primary's order, independent of the applying threads, and transactions as a
/// whole.
#[test]
fn readers_see_the_order_of_the_primary() {
    const ROUNDS: usize = 40;
    // The other thread may be descheduled for long on a busy machine.
    const ROUNDS_MAX: usize = 800;
    let mut together = following(2);
    together.worker.applying.round_bounds = RoundBounds { units_max: 100, ..RoundBounds::default() };
    let engine = together.worker.engine;
    // Keys in two lanes: a stream with a single lane is not shared.
    let lane_of = |key: &str| engine.keyspace.shard_of(KeyHash::of(key.as_bytes())) % 2;
    let key_in = |lane: usize, name: &str| -> String {
        let keys = (0..100).map(|number| format!("{name}{number}"));
        keys.into_iter().find(|key| lane_of(key) == lane).unwrap()
    };
    let (first, then, last) = (key_in(0, "first"), key_in(1, "then"), key_in(0, "last"));
    // Without a round, a reader may see any command. Numbers grow from one stream to the next, so that the order also holds where a
    // stream begins.
    let stream_of = |round: usize| -> Vec<u8> {
        let numbers = round * 4000..(round + 1) * 4000;
        let each = |i| [&first, &then, &last].map(|key| words(&format!("SET {key} {i}")));
        numbers.flat_map(each).flatten().collect()
    };
    let read = request(&["MGET", &last, &then, &first]);
    let (mut lanes, mut of_guests) = (0, 0);
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS && of_guests > 0 {
            break;
        }
        let (stream, is_over) = (stream_of(round), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (mut worker, is_over, read) = (beside(&together, 1), &is_over, &read);
            scope.spawn(move || {
                let mut session = worker.open("127.0.0.1:2".into(), "127.0.0.1:6379".into(), 9, 0, true);
                while !is_over.load(Ordering::Relaxed) {
                    let reply = String::from_utf8(ask(&mut worker, &mut session, read)).unwrap();
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

/// Rounds are not used while an observer sees the order of changes, or while another thread is inside the gate.
#[test]
fn rounds_are_applied_only_without_observers() {
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
    // Another thread stays inside the gate for a long time.
    assert!(!has_round(&|bench| Some(bench.worker.engine.keyspace.gate().enter(1))));
}

/// The primary has accepted the command already, so clients' limits don't bind it.
#[test]
fn the_stream_may_have_longer_arguments_than_clients() {
    let mut bench = following(1);
    let mut client = bench.open();
    assert_eq!(bench.line(&mut client, "config set proto-max-bulk-len 1mb"), "+OK");
    let long = vec![b'x'; (1 << 20) + 1];
    let commands = [request(&[&b"set"[..], b"k", &long]), words("set j v")].concat();
    let applied = apply(&mut bench, &commands);
    assert_eq!((applied.taken, applied.failures, applied.stopped), (commands.len(), 0, None));
    assert_eq!(bench.line(&mut client, "strlen k"), format!(":{}", long.len()));
}

/// The link ends if the stream can't be applied, because an immediate retry would fail again.
#[test]
fn a_stream_that_is_no_request_is_stopped() {
    let mut bench = following(1);
    bench.worker.begin_turn(bench.now_us);
    let version = bench.worker.engine.replication.version();
    let whole = words("set k v");
    let applied = bench.worker.apply_stream(1, version, &[&whole[..], b"*1\r\n$-5\r\n"].concat(), &[]);
    assert_eq!(
        (applied.taken, applied.stopped.as_deref()),
        (whole.len(), Some("ERR Protocol error: invalid bulk length"))
    );
    // The next link begins anew.
    let applied = bench.worker.apply_stream(1, version, &whole, &[]);
    assert_eq!((applied.taken, applied.stopped), (whole.len(), None));
}
