//! XREADGROUP's CLAIM, on Penstock with one thread and with several, and on Redis 8 if it is installed.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use penstock_tests::conn::Conn;
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;

use super::streams::{ask, waiting};

/// Number of histories that are compared with Redis 8.
const ROUNDS: u64 = 60;
/// Milliseconds between the delivery times that tests set: far more than a history takes.
const APART_MS: u64 = 100_000;
/// Longest delay of a blocked read on a busy machine, in milliseconds.
const LATE_MS: u64 = 3000;

fn on_all(test: impl Fn(&Server)) {
    let penstocks = [Server::penstock(&["--threads", "1"]), Server::penstock(&["--threads", "3"])];
    penstocks.iter().chain(&Server::redis8(&[])).for_each(test);
}

/// Creates a stream, "s", with three entries, all read by its group "g"; `pending` of them are pending for "a".
fn begin(server: &Server, pending: usize) -> Conn {
    let mut conn = server.connect();
    conn.cmd("FLUSHALL").unwrap();
    for id in 1..=3 {
        conn.cmd(&format!("XADD s {id}-1 f v")).unwrap();
    }
    conn.cmd("XGROUP CREATE s g 0").unwrap();
    if pending > 0 {
        conn.cmd(&format!("XREADGROUP GROUP g a COUNT {pending} STREAMS s >")).unwrap();
    }
    conn.cmd("XGROUP SETID s g 3-1").unwrap();
    conn
}

/// Returns the IDs in a reply of XREADGROUP, with their idle times and delivery counts.
fn claimed(reply: &Reply) -> Vec<(String, i64, i64)> {
    let stream = &reply.items()[0];
    let number = |reply: &Reply| reply.integer().unwrap();
    let of = |entry: &Reply| {
        let parts = entry.items();
        (String::from_utf8(parts[0].text().to_vec()).unwrap(), number(&parts[2]), number(&parts[3]))
    };
    stream.items()[1].items().iter().map(of).collect()
}

/// Reads the entries that were claimed at `at_ms` or later, for the first time.
fn expect_claims(conn: &mut Conn, ids: &[&str], at_ms: u64, deliveries: i64) {
    let got = claimed(&conn.read().unwrap());
    assert_eq!(got.iter().map(|(id, ..)| id.as_str()).collect::<Vec<_>>(), ids);
    for (id, idle_ms, count) in got {
        assert!((at_ms as i64..(at_ms + LATE_MS) as i64).contains(&idle_ms), "{id} after {idle_ms} ms");
        assert_eq!(count, deliveries, "{id}");
    }
}

#[test]
fn a_blocked_read_claims_entries_that_become_idle_enough() {
    on_all(|server| {
        let mut conn = begin(server, 2);
        let mut reader = waiting(server, "XREADGROUP GROUP g b BLOCK 0 CLAIM 300 STREAMS s >", 1);
        expect_claims(&mut reader, &["1-1", "2-1"], 300, 1);
        // Entries that become pending during the wait.
        conn.cmd("XACK s g 1-1 2-1").unwrap();
        let mut reader = waiting(server, "XREADGROUP GROUP g b BLOCK 0 CLAIM 200 STREAMS s >", 1);
        sleep(Duration::from_millis(50));
        conn.cmd("XCLAIM s g a 0 3-1 FORCE JUSTID").unwrap();
        expect_claims(&mut reader, &["3-1"], 200, 1);
        ask(&mut conn, "XPENDING s g", "*4|:1|$3|3-1|$3|3-1|*1|*2|$1|b|$1|1|");
    });
}

#[test]
fn readers_that_wait_claim_one_after_another() {
    on_all(|server| {
        let mut conn = begin(server, 1);
        let mut all: Vec<Conn> = ["b", "c", "d"]
            .iter()
            .zip(1..)
            .map(|(name, n)| waiting(server, &format!("XREADGROUP GROUP g {name} BLOCK 0 CLAIM 300 STREAMS s >"), n))
            .collect();
        for (reader, deliveries) in all.iter_mut().zip(1..) {
            expect_claims(reader, &["1-1"], 300, deliveries);
        }
        // The reader that gets a new entry acknowledges it after a while.
        conn.cmd("XACK s g 1-1").unwrap();
        let mut all: Vec<Conn> = ["b", "c"]
            .iter()
            .zip(1..)
            .map(|(name, n)| waiting(server, &format!("XREADGROUP GROUP g {name} BLOCK 0 CLAIM 200 STREAMS s >"), n))
            .collect();
        conn.cmd("XADD s 9-1 f v").unwrap();
        assert_eq!(claimed(&all[0].read().unwrap()), [("9-1".to_owned(), 0, 0)]);
        expect_claims(&mut all[1], &["9-1"], 200, 1);
    });
}

#[test]
fn a_read_that_waits_ends_in_time_if_there_is_nothing_to_claim() {
    on_all(|server| {
        let mut conn = begin(server, 2);
        let began = Instant::now();
        let mut reader = waiting(server, "XREADGROUP GROUP g b BLOCK 700 CLAIM 100 STREAMS s >", 1);
        conn.cmd("XACK s g 1-1").unwrap();
        conn.cmd("XDEL s 2-1").unwrap();
        assert_eq!(reader.read().unwrap().escaped(), "*-1\\r\\n");
        assert!(began.elapsed() >= Duration::from_millis(700));
        let mut reader = waiting(server, "XREADGROUP GROUP g b BLOCK 100 CLAIM 5000 STREAMS s >", 1);
        assert_eq!(reader.read().unwrap().escaped(), "*-1\\r\\n");
    });
}

#[test]
fn nothing_is_claimed_while_writes_are_paused() {
    for threads in ["1", "3"] {
        let server = Server::penstock(&["--threads", threads]);
        let mut conn = begin(&server, 1);
        let mut reader = waiting(&server, "XREADGROUP GROUP g b BLOCK 0 CLAIM 100 STREAMS s >", 1);
        conn.cmd("CLIENT PAUSE 1000 WRITE").unwrap();
        sleep(Duration::from_millis(500));
        ask(&mut conn, "XPENDING s g", "*4|:1|$3|1-1|$3|1-1|*1|*2|$1|a|$1|1|");
        expect_claims(&mut reader, &["1-1"], 1000, 1);
    }
}

/// Random commands about pending entries. Deliveries happen now, or have explicit times that are all different: Redis
/// orders deliveries with equal times, but loses that order in a restart.
fn lines(seed: u64, now_ms: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let mut times: Vec<u64> = (1..=200).collect();
    (0..times.len()).for_each(|at| times.swap(at, rng.below(200)));
    let mut lines: Vec<String> =
        (1..=20).flat_map(|id| ["s", "t"].map(|key| format!("XADD {key} {id}-1 f v{id}"))).collect();
    lines.extend(["s", "t"].map(|key| format!("XGROUP CREATE {key} g 0")));
    lines.push("XREADGROUP GROUP g a COUNT 12 STREAMS s t > >".to_owned());
    for time in times {
        let mut draw = |of: &[&'static str]| of[rng.below(of.len())];
        let (key, consumer, id) = (
            draw(&["s", "t"]),
            draw(&["a", "b", "c"]),
            draw(&["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"]),
        );
        let (count, no_ack) = (draw(&["", "", " COUNT 1", " COUNT 2", " COUNT 0"]), draw(&["", "", " NOACK"]));
        let claim = draw(&["10000", "5000000", "15000000", "x", "-1"]);
        lines.push(
            match draw(&["old", "old", "old", "read", "read", "two", "own", "ack", "del", "add", "show", "gone"]) {
                "old" => format!("XCLAIM {key} g {consumer} 0 {id}-1 TIME {} FORCE JUSTID", now_ms - time * APART_MS),
                "read" => format!("XREADGROUP GROUP g {consumer}{count}{no_ack} CLAIM {claim} STREAMS {key} >"),
                "two" => format!(
                    "XREADGROUP GROUP g {consumer} CLAIM 5000000{count} STREAMS s t {} {}",
                    draw(&[">", ">", "0", "5-1"]),
                    draw(&[">", ">", "0", "$"])
                ),
                "own" => format!("XREADGROUP GROUP g {consumer}{count} CLAIM 10000 STREAMS {key} {id}-0"),
                "ack" => format!("XACK {key} g {id}-1"),
                "del" => format!("XDEL {key} {id}-1"),
                "add" => format!("XADD {key} * f v"),
                "gone" => format!("XGROUP DELCONSUMER {key} g {consumer}"),
                _ => format!("XPENDING {key} g - + 100"),
            },
        );
    }
    lines
}

/// Rounds the times in a reply to the precision that two runs have in common, and removes IDs made from the clock.
fn rounded(reply: &Reply) -> Reply {
    match reply {
        Reply::Many(tag, items) => {
            let mut items: Vec<Reply> = items.iter().map(rounded).collect();
            // An entry or a pending delivery. Explicit times are multiples of APART_MS.
            if let [_, _, idle_ms @ Reply::Line(b':', _), _] = items.as_mut_slice() {
                let rounded = (idle_ms.integer().unwrap() as u64 + APART_MS / 2) / APART_MS;
                *idle_ms = Reply::Line(b':', rounded.to_string().into_bytes());
            }
            Reply::Many(*tag, items)
        }
        Reply::Blob(tag, text) if text.len() > 13 && text[13] == b'-' => Reply::Blob(*tag, b"now".to_vec()),
        _ => reply.clone(),
    }
}

#[test]
fn claims_are_those_of_redis_8() {
    let Some(oracle) = Server::redis8(&[]) else { return };
    let subject = Server::penstock(&["--threads", "2"]);
    let mut claims = 0;
    for seed in 0..ROUNDS {
        let mut conns = [subject.connect(), oracle.connect()];
        if seed % 2 == 1 {
            conns.each_mut().into_iter().for_each(|conn| drop(conn.cmd("HELLO 3").unwrap()));
        }
        conns.each_mut().into_iter().for_each(|conn| drop(conn.cmd("FLUSHALL").unwrap()));
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        for line in lines(seed, now_ms) {
            let [own, redis] = conns.each_mut().map(|conn| rounded(&conn.cmd(&line).unwrap()).escaped());
            assert_eq!(own, redis, "seed {seed}: {line}");
            claims += usize::from(line.contains("CLAIM 5000000") && own.contains("*4\\r\\n"));
        }
    }
    assert!(claims > 100, "{claims}");
}
