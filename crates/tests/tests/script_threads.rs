//! Scripts on several threads: atomic whatever keys they reach for, side by side where their keys are others; and scripts
//! that take too long, or too much.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{Command, command};
use penstock_tests::conn::Conn;
use penstock_tests::reply::Reply;
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const ACCOUNTS: u64 = 40;
const EACH: i64 = 1000;

fn eval(script: &str, keys: &[&str], args: &[&str]) -> Command {
    let keys_count = keys.len().to_string();
    let words = ["EVAL", script, &keys_count].into_iter().chain(keys.iter().copied()).chain(args.iter().copied());
    words.map(|word| word.as_bytes().to_vec()).collect()
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text()).into_owned()
}

/// Moves money between accounts by `scripts` on several connections, while others add all of it up.
fn accounts_keep_their_sum(scripts: &[String], declare_first: bool) {
    let server = Server::penstock(&["--threads", "4"]);
    let mut conn = server.connect();
    let all: Vec<String> = (0..ACCOUNTS).map(|i| format!("account{i}")).collect();
    for account in &all {
        conn.cmd(&format!("SET {account} {EACH}")).unwrap();
    }
    let mget = command(&format!("MGET {}", all.join(" ")));
    let over = AtomicBool::new(false);
    let over = &over;
    thread::scope(|scope| {
        let movers: Vec<_> = (0..4)
            .map(|seed| {
                let (server, all) = (&server, &all);
                scope.spawn(move || {
                    let (mut conn, mut rng) = (server.connect(), Rng::new(seed));
                    for _ in 0..40 {
                        let batch: Vec<Command> = (0..25)
                            .map(|_| {
                                let mut any = || rng.pick(all).as_str();
                                let (from, to) = (any(), any());
                                let script = rng.pick(scripts);
                                if declare_first {
                                    eval(script, &[from], &[to, "3"])
                                } else {
                                    eval(script, &[], &[from, to, "3"])
                                }
                            })
                            .collect();
                        for reply in conn.pipeline(&batch).unwrap() {
                            assert_eq!(text(&reply), "done", "{reply:?}");
                        }
                    }
                })
            })
            .collect();
        let (server, mget) = (&server, &mget);
        let watcher = scope.spawn(move || {
            let mut conn = server.connect();
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) || looks == 0 {
                let reply = conn.call(mget).unwrap();
                let sum: i64 = reply.items().iter().map(|item| text(item).parse::<i64>().unwrap()).sum();
                assert_eq!(sum, ACCOUNTS as i64 * EACH, "a script was seen half-way");
                looks += 1;
            }
        });
        let ended: Vec<_> = movers.into_iter().map(|mover| mover.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(watcher.join().is_ok() && ended.iter().all(Result::is_ok), "see above");
    });
}

#[test]
fn scripts_that_declare_nothing_are_atomic() {
    let scripts: Vec<String> = (0..30)
        .map(|i| {
            format!("redis.call('DECRBY', ARGV[1], ARGV[3]) redis.call('INCRBY', ARGV[2], ARGV[3]) return 'done' --{i}")
        })
        .collect();
    accounts_keep_their_sum(&scripts, false);
}

#[test]
fn scripts_that_declare_half_of_what_they_use_are_atomic() {
    // Half of the texts reach beyond their key in some runs only, after they have written: what is refused is undone.
    let scripts: Vec<String> = (0..30)
        .map(|i| {
            format!(
                "if {} and tonumber(redis.call('GET', KEYS[1])) % 2 == 0 then return 'done' end \
                 redis.call('DECRBY', KEYS[1], ARGV[2]) \
                 local moved = redis.pcall('INCRBY', ARGV[1], ARGV[2]) \
                 if type(moved) == 'table' then \
                   if not string.find(moved.err, 'not declared') then return moved end \
                   redis.call('INCRBY', KEYS[1], ARGV[2]) \
                 end \
                 return 'done' --{i}",
                i % 2 == 0
            )
        })
        .collect();
    accounts_keep_their_sum(&scripts, true);
}

/// A script that ends at once if it is told so, and else never.
const ENDLESS: &str = "if ARGV[1] == 'end' then return 'done' end while true do redis.call('GET', KEYS[1]) end";

/// Ends a script that takes too long, once it does.
fn kill(conn: &mut Conn) {
    for _ in 0..1000 {
        match text(&conn.cmd("SCRIPT KILL").unwrap()).as_str() {
            "OK" => return,
            reply => assert!(reply.starts_with("NOTBUSY"), "{reply}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the script is never busy");
}

#[test]
fn scripts_with_other_keys_run_at_the_same_time() {
    let server = Server::penstock(&["--threads", "2", "--busy-reply-threshold", "100"]);
    let mut conns: Vec<Conn> = (0..9).map(|_| server.connect()).collect();
    let mut first = conns.remove(0);
    // What they need is learnt in their first runs.
    let add = "return redis.call('INCR', KEYS[1])";
    first.call(&eval(ENDLESS, &["endless"], &["end"])).unwrap();
    first.call(&eval(add, &["other"], &[])).unwrap();
    first.send(&penstock_tests::bytes::encode(&eval(ENDLESS, &["endless"], &["go on"]))).unwrap();
    thread::sleep(Duration::from_millis(300));
    // Half of the connections are on the other thread, and nearly all keys in other shards than the first's.
    let mut at_once = 0;
    for (i, conn) in conns.iter_mut().enumerate() {
        let key = format!("key{i}");
        let reply = conn.call(&eval(add, &[&key], &[])).unwrap();
        at_once += usize::from(text(&reply) == "1");
    }
    assert!(at_once >= 2, "{at_once} scripts ran while another did");
    kill(&mut conns[0]);
    let reply = text(&first.read().unwrap());
    assert!(reply.starts_with("ERR Script killed by user with SCRIPT KILL."), "{reply}");
}

#[test]
fn others_are_told_that_a_script_takes_too_long() {
    for threads in ["1", "4"] {
        let server = Server::penstock(&["--threads", threads, "--busy-reply-threshold", "50"]);
        let (mut conn, mut other) = (server.connect(), server.connect());
        other.cmd("SET k v").unwrap();
        // Alone: it has declared nothing, and runs for the first time.
        conn.send(&penstock_tests::bytes::encode(&eval("while true do redis.pcall('GET', 'k') end", &[], &[])))
            .unwrap();
        thread::sleep(Duration::from_millis(300));
        let mut new = server.connect();
        for conn in [&mut other, &mut new] {
            for command in ["GET k", "PING", "SET k w", "EVAL return 0", "DBSIZE", "FLUSHALL"] {
                let reply = text(&conn.cmd(command).unwrap());
                assert!(
                    reply.starts_with("BUSY ") || reply.starts_with("ERR wrong"),
                    "{threads} threads, {command}: {reply}"
                );
            }
        }
        kill(&mut new);
        assert!(text(&conn.read().unwrap()).starts_with("ERR Script killed"));
        assert_eq!(text(&other.cmd("GET k").unwrap()), "v");
        // One that has written goes on, but the server can be ended.
        conn.send(&penstock_tests::bytes::encode(&eval("redis.call('SET', 'k', 'w') while true do end", &["k"], &[])))
            .unwrap();
        thread::sleep(Duration::from_millis(300));
        assert!(text(&new.cmd("SCRIPT KILL").unwrap()).starts_with("UNKILLABLE "));
        new.send(b"SHUTDOWN NOSAVE\r\n").unwrap();
        assert!(new.read_to_close().unwrap().is_empty());
    }
}

#[test]
fn a_pipeline_loads_a_script_and_uses_it() {
    let server = Server::penstock(&["--threads", "2"]);
    let mut conn = server.connect();
    let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let load: Command = ["SCRIPT", "LOAD", "return 1"].map(|word| word.as_bytes().to_vec()).to_vec();
    let uses = command(&format!("EVALSHA {digest} 0"));
    let flush = command("SCRIPT FLUSH");
    let replies =
        conn.pipeline(&[uses.clone(), load.clone(), uses.clone(), flush, uses.clone(), load, uses.clone()]).unwrap();
    let texts: Vec<String> = replies.iter().map(text).collect();
    let none = "NOSCRIPT No matching script. Please use EVAL.";
    assert_eq!(texts, [none, digest, "1", "OK", none, digest, "1"]);
    // On every thread.
    for _ in 0..4 {
        assert_eq!(text(&server.connect().call(&uses).unwrap()), "1");
    }
}

#[test]
fn a_script_takes_no_more_memory_than_it_may() {
    let server = Server::penstock(&["--lua-memory-limit", "4mb"]);
    let mut conn = server.connect();
    for script in [
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} while true do t[#t + 1] = redis.call('ECHO', string.rep('x', 100000)) end",
        "return string.rep('x', 100000000)",
        "local t = {} for i = 1, 100 do t[i] = string.rep('x', 30000) end return cjson.encode({t, t, t, t, t})",
    ] {
        let reply = text(&conn.call(&eval(script, &[], &[])).unwrap());
        assert!(reply.contains("not enough memory"), "{script}: {reply}");
    }
    assert_eq!(text(&conn.call(&eval("return 'fine'", &[], &[])).unwrap()), "fine");
}
