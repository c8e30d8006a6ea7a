//! Several pipelined connections on several threads: commands on many keys and transactions are atomic, and a reader
//! that sees a connection's second write also sees its first.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{Command, command, encode};
use penstock_tests::conn::Conn;
use penstock_tests::linear::{Event, is_linearizable};
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// More threads than most test machines have cores, for many thread switches.
const THREADS: &[&str] = &["--threads", "4"];

fn server() -> Server {
    Server::penstock(THREADS)
}

/// Runs each of `workers` on a connection of its own until all are done, and `watchers` meanwhile.
fn side_by_side(server: &Server, workers: &[&(dyn Fn(&mut Conn) + Sync)], watchers: &[&(dyn Fn(&mut Conn) + Sync)]) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let working: Vec<_> = workers.iter().map(|work| scope.spawn(|| work(&mut server.connect()))).collect();
        let watching: Vec<_> = watchers
            .iter()
            .map(|watch| {
                scope.spawn(|| {
                    let mut conn = server.connect();
                    // At least once, even if the workers are quick.
                    while {
                        watch(&mut conn);
                        !over.load(Ordering::Relaxed)
                    } {}
                })
            })
            .collect();
        let ends: Vec<_> = working.into_iter().map(|thread| thread.join()).collect();
        over.store(true, Ordering::Relaxed);
        let ends = ends.into_iter().chain(watching.into_iter().map(|thread| thread.join()));
        assert!(ends.filter(|end| end.is_err()).count() == 0, "a client saw what it must not see (see above)");
    });
}

#[test]
fn a_flush_does_not_change_the_order_in_which_waiters_are_served() {
    for server in [Server::penstock(&["--threads", "1"]), server(), Server::oracle(&[])] {
        let mut other = server.connect();
        // Independent of the order of the keys' hashes.
        for i in 0..20 {
            let mut waiting = ["a", "b"].map(|key| {
                let mut conn = server.connect();
                conn.send(&encode(&command(&format!("BLMOVE {key}{i} to LEFT RIGHT 0")))).unwrap();
                conn
            });
            server.wait_until("both wait", |server| server.figure("blocked_clients") == 2);
            let flush = ["FLUSHALL", "FLUSHDB", "EVAL return(redis.call('flushall')) 0"][i % 3];
            let transaction = commands(&format!("MULTI\n{flush}\nRPUSH b{i} 2\nRPUSH a{i} 1\nEXEC"));
            other.pipeline(&transaction).unwrap();
            waiting.iter_mut().for_each(|conn| assert!(!conn.read().unwrap().is_error()));
            assert_eq!(integers(&other.cmd("LRANGE to 0 -1").unwrap()), [2, 1], "{flush} {i}");
        }
    }
}

/// Parses commands from lines of text.
fn commands(lines: &str) -> Vec<Command> {
    lines.lines().map(|line| command(line.trim())).collect()
}

fn integers(reply: &Reply) -> Vec<i64> {
    let number = |item: &Reply| {
        let text = std::str::from_utf8(item.text()).unwrap_or("");
        text.parse().unwrap_or_else(|_| panic!("not a number in {reply:?}"))
    };
    reply.items().iter().map(number).collect()
}

fn sum(reply: &Reply) -> i64 {
    integers(reply).iter().sum()
}

#[test]
fn mget_sees_all_of_an_mset_or_nothing() {
    let server = server();
    server.connect().cmd("MSET a 0 b 0 c 0 d 0 e 0").unwrap();
    let write = |seed: u64| {
        move |conn: &mut Conn| {
            for round in 0..150 {
                let batch: Vec<_> = (0..20)
                    .map(|i| {
                        let value = seed * 1_000_000 + round * 100 + i;
                        command(&format!("MSET a {value} b {value} c {value} d {value} e {value}"))
                    })
                    .collect();
                conn.pipeline(&batch).unwrap();
            }
        }
    };
    let read = |conn: &mut Conn| {
        let batch = vec![command("MGET e d c b a"); 20];
        for reply in conn.pipeline(&batch).unwrap() {
            let values = integers(&reply);
            assert!(values.iter().all(|value| *value == values[0]), "{reply:?}");
        }
    };
    side_by_side(&server, &[&write(1), &write(2), &write(3)], &[&read, &read]);
}

#[test]
fn writes_stay_atomic_when_threads_are_idle_between_bursts() {
    const ROUNDS: u64 = 12;
    let server = server();
    let all = (0..40).map(|i| format!("key{i}")).collect::<Vec<_>>();
    let mset =
        |value: u64| command(&format!("MSET{}", all.iter().map(|key| format!(" {key} {value}")).collect::<String>()));
    server.connect().call(&mset(0)).unwrap();
    // A pause between the bursts, long enough for the other threads to become idle, so that a busy thread takes no
    // locks.
    let work = |seed: u64| {
        let mset = &mset;
        move |conn: &mut Conn| {
            let mut rng = Rng::new(seed);
            for round in 0..ROUNDS {
                thread::sleep(Duration::from_millis(rng.below(30) as u64));
                let counts = vec![command("INCR count"); 500];
                let sets: Vec<_> = (0..50).map(|i| mset(seed * 1_000_000 + round * 100 + i)).collect();
                conn.pipeline(&[counts, sets].concat()).unwrap();
            }
        }
    };
    let mget = command(&format!("MGET {}", all.join(" ")));
    let look = |conn: &mut Conn| {
        thread::sleep(Duration::from_millis(7));
        for reply in conn.pipeline(&vec![mget.clone(); 20]).unwrap() {
            let values = integers(&reply);
            assert!(values.iter().all(|value| *value == values[0]), "{reply:?}");
        }
        conn.cmd("DBSIZE").unwrap();
    };
    side_by_side(&server, &[&work(1), &work(2), &work(3), &work(4)], &[&look]);
    assert_eq!(server.connect().cmd("GET count").unwrap().text(), (4 * ROUNDS * 500).to_string().as_bytes());
}

#[test]
fn a_renamed_key_is_always_somewhere() {
    let server = server();
    server.connect().cmd("SET here 1").unwrap();
    let move_about = |conn: &mut Conn| {
        for _ in 0..150 {
            let batch = commands(&"RENAME here there\nRENAME there here\n".repeat(10));
            for reply in conn.pipeline(&batch).unwrap() {
                assert!(reply.text() == b"OK" || reply.text() == b"ERR no such key", "{reply:?}");
            }
        }
    };
    let look = |conn: &mut Conn| {
        for reply in conn.pipeline(&vec![command("EXISTS here there"); 20]).unwrap() {
            assert_eq!(reply.integer(), Some(1));
        }
        let both = conn.pipeline(&commands("MULTI\nEXISTS here\nEXISTS there\nEXEC")).unwrap();
        assert_eq!(sum(&both[3]), 1, "{both:?}");
    };
    side_by_side(&server, &[&move_about, &move_about, &move_about], &[&look, &look]);
}

/// Moves elements between three keys, and checks that none is lost or duplicated.
fn conserve(fill: &str, step: impl Fn(&mut Rng, &str, &str) -> String + Sync, count: &str, members: &str) {
    const ELEMENTS: i64 = 30;
    const KEYS: [&str; 3] = ["a", "b", "c"];
    let server = server();
    let mut conn = server.connect();
    conn.pipeline(&(0..ELEMENTS).map(|i| command(&format!("{fill} {} {i}", KEYS[i as usize % 3]))).collect::<Vec<_>>())
        .unwrap();
    let work = |seed: u64| {
        let step = &step;
        move |conn: &mut Conn| {
            let mut rng = Rng::new(seed);
            for _ in 0..150 {
                let batch: Vec<_> = (0..20)
                    .map(|_| {
                        let (from, to) = (*rng.pick(&KEYS), *rng.pick(&KEYS));
                        command(&step(&mut rng, from, to))
                    })
                    .collect();
                for reply in conn.pipeline(&batch).unwrap() {
                    assert!(!reply.is_error(), "{reply:?}");
                }
            }
        }
    };
    let look = |conn: &mut Conn| {
        let counted = conn.pipeline(&commands(&format!("MULTI\n{count} a\n{count} b\n{count} c\nEXEC"))).unwrap();
        assert_eq!(sum(&counted[4]), ELEMENTS, "{counted:?}");
    };
    side_by_side(&server, &[&work(1), &work(2), &work(3)], &[&look, &look]);
    let mut left: Vec<i64> =
        KEYS.iter().flat_map(|key| integers(&conn.cmd(&members.replace("KEY", key)).unwrap())).collect();
    left.sort();
    assert_eq!(left, (0..ELEMENTS).collect::<Vec<_>>());
}

#[test]
fn smove_conserves_members() {
    conserve("SADD", |rng, from, to| format!("SMOVE {from} {to} {}", rng.below(30)), "SCARD", "SMEMBERS KEY");
}

#[test]
fn lmove_conserves_elements() {
    let step = |rng: &mut Rng, from: &str, to: &str| {
        let ends = ["LEFT", "RIGHT"];
        format!("LMOVE {from} {to} {} {}", rng.pick(&ends), rng.pick(&ends))
    };
    conserve("RPUSH", step, "LLEN", "LRANGE KEY 0 -1");
}

#[test]
fn transfers_conserve_the_sum() {
    const ACCOUNTS: usize = 6;
    let server = server();
    server.connect().cmd("MSET a0 100 a1 100 a2 100 a3 100 a4 100 a5 100").unwrap();
    let transfer = |seed: u64| {
        move |conn: &mut Conn| {
            let mut rng = Rng::new(seed);
            for _ in 0..100 {
                let batch: Vec<_> = (0..10)
                    .flat_map(|_| {
                        let (from, to, n) = (rng.below(ACCOUNTS), rng.below(ACCOUNTS), rng.below(50));
                        commands(&format!("MULTI\nDECRBY a{from} {n}\nINCRBY a{to} {n}\nEXEC"))
                    })
                    .collect();
                conn.pipeline(&batch).unwrap();
            }
        }
    };
    let look = |conn: &mut Conn| {
        let seen = conn.cmd("MGET a0 a1 a2 a3 a4 a5").unwrap();
        assert_eq!(sum(&seen), 600, "{seen:?}");
        let seen = conn.pipeline(&commands("MULTI\nGET a5\nGET a4\nGET a3\nGET a2\nGET a1\nGET a0\nEXEC")).unwrap();
        assert_eq!(sum(&seen[7]), 600, "{seen:?}");
    };
    side_by_side(&server, &[&transfer(1), &transfer(2), &transfer(3)], &[&look, &look]);
}

#[test]
fn a_watched_counter_loses_no_increment() {
    const ROUNDS: usize = 150;
    let server = server();
    server.connect().cmd("SET n 0").unwrap();
    let count = |conn: &mut Conn| {
        for _ in 0..ROUNDS {
            loop {
                let read = conn.pipeline(&commands("WATCH n\nGET n")).unwrap();
                let next = std::str::from_utf8(read[1].text()).unwrap().parse::<i64>().unwrap() + 1;
                let wrote = conn.pipeline(&commands(&format!("MULTI\nSET n {next}\nEXEC"))).unwrap();
                if !wrote[2].is_null() {
                    break;
                }
            }
        }
    };
    side_by_side(&server, &[&count, &count, &count, &count], &[]);
    let expected = (4 * ROUNDS).to_string();
    assert_eq!(server.connect().cmd("GET n").unwrap().text(), expected.as_bytes());
}

#[test]
fn incr_loses_no_increment() {
    let server = server();
    let count = |conn: &mut Conn| {
        for _ in 0..100 {
            conn.pipeline(&vec![command("INCR n"); 50]).unwrap();
        }
    };
    side_by_side(&server, &[&count, &count, &count, &count], &[]);
    assert_eq!(server.connect().cmd("GET n").unwrap().text(), b"20000");
}

#[test]
fn a_reader_that_sees_the_second_write_sees_the_first() {
    let server = server();
    server.connect().cmd("MSET first 0 second 0 third 0").unwrap();
    let write = |conn: &mut Conn| {
        for round in 0..300 {
            let batch: Vec<_> = (0..20)
                .flat_map(|i| {
                    let n = round * 20 + i;
                    commands(&format!("SET first {n}\nSET second {n}\nSET third {n}"))
                })
                .collect();
            conn.pipeline(&batch).unwrap();
        }
    };
    // Each reads the later write first, as several batches or as one pipeline.
    let read = |conn: &mut Conn| {
        let replies = conn.pipeline(&commands(&"GET third\nGET second\nGET first\n".repeat(10))).unwrap();
        let values = integers(&Reply::Many(b'*', replies));
        for seen in values.chunks(3) {
            assert!(seen[0] <= seen[1] && seen[1] <= seen[2], "third, second, first: {seen:?}");
        }
        assert!(values.chunks(3).is_sorted_by_key(|seen| seen[0]), "time went backwards: {values:?}");
    };
    side_by_side(&server, &[&write], &[&read, &read, &read]);
}

/// An operation of a client on a few registers, with its result.
#[derive(Clone, Debug)]
enum Op {
    Get(usize, i64),
    Set(usize, i64),
    GetSet(usize, i64, i64),
    Incr(usize, i64),
    MGet([i64; KEYS]),
    MSet(i64),
}

const KEYS: usize = 3;

fn apply(state: &[i64; KEYS], op: &Op) -> Option<[i64; KEYS]> {
    let mut after = *state;
    let possible = match op {
        Op::Get(key, value) => state[*key] == *value,
        Op::Set(key, value) => {
            after[*key] = *value;
            true
        }
        Op::GetSet(key, value, before) => {
            after[*key] = *value;
            state[*key] == *before
        }
        Op::Incr(key, value) => {
            after[*key] += 1;
            after[*key] == *value
        }
        Op::MGet(values) => state == values,
        Op::MSet(value) => {
            after = [*value; KEYS];
            true
        }
    };
    possible.then_some(after)
}

/// Parses the reply to a command.
type ReadReply = Box<dyn Fn(&Reply) -> Op + Send>;

/// Returns a random command with a unique value, and the function that parses its reply.
fn random_command(rng: &mut Rng, unique: i64) -> (Command, ReadReply) {
    let key = rng.below(KEYS);
    let number = |reply: &Reply| std::str::from_utf8(reply.text()).unwrap().parse().unwrap();
    match rng.below(8) {
        0..2 => (command(&format!("GET r{key}")), Box::new(move |reply| Op::Get(key, number(reply)))),
        2..4 => (command(&format!("SET r{key} {unique}")), Box::new(move |_| Op::Set(key, unique))),
        4 => {
            (command(&format!("GETSET r{key} {unique}")), Box::new(move |reply| Op::GetSet(key, unique, number(reply))))
        }
        5 => (command(&format!("INCR r{key}")), Box::new(move |reply| Op::Incr(key, number(reply)))),
        6 => (command("MGET r0 r1 r2"), Box::new(|reply| Op::MGet(integers(reply).try_into().unwrap()))),
        _ => (command(&format!("MSET r0 {unique} r1 {unique} r2 {unique}")), Box::new(move |_| Op::MSet(unique))),
    }
}

#[test]
fn histories_are_linearizable() {
    const CONNECTIONS: usize = 4;
    const ROUNDS: u64 = 400;
    /// Commands of one connection in one round, and most commands in a pipeline.
    const COMMANDS: usize = 8;
    const PIPELINE: usize = 4;
    let server = server();
    let mut conns: Vec<Conn> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    let clock = Instant::now();
    for round in 0..ROUNDS {
        conns[0].cmd("MSET r0 0 r1 0 r2 0").unwrap();
        let start = Barrier::new(CONNECTIONS);
        let (start, clock) = (&start, &clock);
        let events: Vec<Event<Op>> = thread::scope(|scope| {
            let threads: Vec<_> = conns
                .iter_mut()
                .enumerate()
                .map(|(connection, conn)| {
                    scope.spawn(move || {
                        let mut rng = Rng::new(round * CONNECTIONS as u64 + connection as u64);
                        let mut events = Vec::new();
                        start.wait();
                        while events.len() < COMMANDS {
                            let n = 1 + rng.below(PIPELINE);
                            let first = (connection as i64 + 1) * 1_000_000 + events.len() as i64 * 1000;
                            let (batch, read): (Vec<_>, Vec<_>) =
                                (0..n as i64).map(|i| random_command(&mut rng, first + i * 100)).unzip();
                            let sent = clock.elapsed().as_nanos() as u64;
                            let replies = conn.pipeline(&batch).unwrap();
                            let answered = clock.elapsed().as_nanos() as u64;
                            let ops = read.iter().zip(&replies).map(|(read, reply)| read(reply));
                            events.extend(ops.map(|op| Event { connection, sent, answered, op }));
                        }
                        events
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        if !is_linearizable(&[0; KEYS], &events, apply) {
            let shown: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
            panic!("no order explains round {round}:\n{}", shown.join("\n"));
        }
    }
}
