//! Scripts on several threads: atomic whatever keys they access, parallel on different keys; and scripts that exceed
//! limits.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{Command, command};
use penstock_tests::conn::Conn;
use penstock_tests::rng::Rng;
use penstock_tests::scripts::{ENDLESS, eval, kill, text, wait_until_busy};
use penstock_tests::server::Server;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const ACCOUNTS: u64 = 40;
const EACH: i64 = 1000;

/// Moves money between accounts by `scripts` on several connections, while others compute the sum.
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
    // Half of the scripts access undeclared keys in some runs only, after they have written: a refused run is rolled
    // back.
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

/// Commands about all keys, in scripts that have written before.
const WHOLE: [&str; 4] = [
    "return redis.call('DBSIZE')",
    "return #redis.call('KEYS', '*')",
    "return #redis.call(\"scan\", 0)[2]",
    "redis.call('SORT', KEYS[1] .. ':list', 'BY', 'weight*') return 1",
];

#[test]
fn a_script_that_has_written_may_access_all_keys_in_any_run() {
    let server = Server::penstock(&["--threads", "2"]);
    let mut conns: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
    for look in WHOLE {
        let script = format!("if ARGV[1] == 'no' then return 0 end redis.call('SET', KEYS[1], 1) {look}");
        for conn in &mut conns {
            for (argument, expected) in [("no", "0"), ("yes", "1")] {
                assert_eq!(text(&conn.call(&eval(&script, &["k"], &[argument])).unwrap()), expected, "{look}");
            }
        }
    }
}

#[test]
fn a_function_may_access_all_keys_in_its_first_run_on_every_thread() {
    let server = Server::penstock(&["--threads", "2"]);
    let mut conns: Vec<Conn> = (0..8).map(|_| server.connect()).collect();
    for (i, look) in WHOLE.iter().enumerate() {
        let look = look.replace("KEYS", "keys").replace("'keys'", "'KEYS'");
        let body = format!("redis.call('SET', keys[1], 1) {look}");
        let library = format!("#!lua name=l{i}\nredis.register_function('f{i}', function(keys, args) {body} end)");
        let load: Command = ["FUNCTION", "LOAD", &library].map(|word| word.as_bytes().to_vec()).to_vec();
        conns[0].call(&load).unwrap();
        for conn in &mut conns {
            assert_eq!(text(&conn.cmd(&format!("FCALL f{i} 1 k")).unwrap()), "1", "{look}");
        }
    }
}

#[test]
fn any_number_of_new_scripts_may_access_all_keys_after_writing() {
    let server = Server::penstock(&["--threads", "2"]);
    let mut conn = server.connect();
    let batch: Vec<Command> = (0..3000)
        .map(|i| eval(&format!("redis.call('SET', KEYS[1], {i}) return redis.call('DBSIZE')"), &["k"], &[]))
        .collect();
    for reply in conn.pipeline(&batch).unwrap() {
        assert_eq!(text(&reply), "1");
    }
}

#[test]
fn a_script_that_computes_such_a_commands_name_gets_a_helpful_error() {
    let server = Server::penstock(&["--threads", "2"]);
    let mut conn = server.connect();
    let script = "if ARGV[1] == 'no' then return 0 end redis.call('SET', KEYS[1], 1) return redis.call('db' .. 'size')";
    let mut call = |argument| text(&conn.call(&eval(script, &["k"], &[argument])).unwrap());
    assert_eq!(call("no"), "0");
    let refused = call("yes");
    assert!(refused.contains("Write the command's name into the script"), "{refused}");
    assert_eq!(call("yes"), "1", "it is known now");
}

#[test]
fn a_script_that_has_written_waits_for_a_long_command_that_has_its_key() {
    let server = Server::penstock(&["--threads", "2"]);
    let mut conns: Vec<Conn> = (0..9).map(|_| server.connect()).collect();
    for part in 0..10 {
        let members: Vec<String> = (0..10_000).map(|i| format!("{part}-{i}")).collect();
        conns[0].cmd(&format!("SADD big {}", members.join(" "))).unwrap();
    }
    let (slow, others) = conns.split_at_mut(1);
    for (i, conn) in others.iter_mut().enumerate() {
        let script = format!(
            "if ARGV[1] == 'no' then return 0 end redis.call('SET', KEYS[1], 1) return redis.call('SCARD', ARGV[2]) --{i}"
        );
        conn.call(&eval(&script, &["k"], &["no"])).unwrap();
        slow[0].send(&penstock_tests::bytes::encode(&command("SUNIONSTORE copy big big big"))).unwrap();
        thread::sleep(Duration::from_millis(5));
        let reply = text(&conn.call(&eval(&script, &[&format!("k{i}")], &["yes", "big"])).unwrap());
        assert_eq!(reply, "100000");
        slow[0].read().unwrap();
    }
}

#[test]
fn scripts_with_other_keys_run_at_the_same_time() {
    let server = Server::penstock(&["--threads", "2", "--busy-reply-threshold", "100"]);
    let mut conns: Vec<Conn> = (0..9).map(|_| server.connect()).collect();
    let mut first = conns.remove(0);
    // The server learns in their first runs which keys they access.
    let add = "return redis.call('INCR', KEYS[1])";
    first.call(&eval(ENDLESS, &["endless"], &["end"])).unwrap();
    first.call(&eval(add, &["other"], &[])).unwrap();
    first.send(&penstock_tests::bytes::encode(&eval(ENDLESS, &["endless"], &["go on"]))).unwrap();
    wait_until_busy(&mut server.connect(), "GET endless").unwrap();
    // Half of the connections are on the other thread, and nearly all keys are in other shards than the first script's
    // key.
    let mut at_once = 0;
    for (i, conn) in conns.iter_mut().enumerate() {
        let key = format!("key{i}");
        let reply = conn.call(&eval(add, &[&key], &[])).unwrap();
        at_once += usize::from(text(&reply) == "1");
    }
    assert!(at_once >= 2, "{at_once} scripts ran while another did");
    kill(&mut conns[0], "SCRIPT KILL").unwrap();
    let reply = text(&first.read().unwrap());
    assert!(reply.starts_with("ERR Script killed by user with SCRIPT KILL."), "{reply}");
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
        "local t = {} while true do t[#t + 1] = redis.call('ECHO', #t .. string.rep('x', 100000)) end",
        "return string.rep('x', 100000000)",
        "local t = {} for i = 1, 100 do t[i] = string.rep('x', 30000) end return cjson.encode({t, t, t, t, t})",
    ] {
        let reply = text(&conn.call(&eval(script, &[], &[])).unwrap());
        assert!(reply.contains("not enough memory"), "{script}: {reply}");
    }
    assert_eq!(text(&conn.call(&eval("return 'fine'", &[], &[])).unwrap()), "fine");
}

#[test]
fn text_that_grows_by_quoting_stays_within_the_limit() {
    // CVE-2022-24834: an escape takes six bytes for one.
    let server = Server::penstock(&["--lua-memory-limit", "100mb"]);
    let mut conn = server.connect();
    let fill = eval("return #string.rep('\\1', 6e7)", &[], &[]);
    assert_eq!(text(&conn.call(&fill).unwrap()), "60000000");
    server.forget_peak();
    let before_kib = server.resident_peak_kib();
    for script in ["return cjson.encode(string.rep('\\1', 6e7))", "return cjson.encode({[string.rep('\\1', 6e7)] = 1})"]
    {
        let reply = text(&conn.call(&eval(script, &[], &[])).unwrap());
        assert!(reply.contains("not enough memory"), "{reply}");
    }
    let grown_kib = server.resident_peak_kib().saturating_sub(before_kib);
    assert!(grown_kib < 150 * 1024, "{grown_kib} KiB");
}

#[test]
fn the_limit_of_memory_can_be_changed() {
    let server = Server::penstock(&["--threads", "2"]);
    let mut conns: Vec<Conn> = (0..8).map(|_| server.connect()).collect();
    let greedy = eval("return #string.rep('x', 10000000)", &[], &[]);
    // All threads have a Lua machine then.
    for conn in &mut conns {
        assert_eq!(text(&conn.call(&greedy).unwrap()), "10000000");
    }
    conns[0].cmd("CONFIG SET lua-memory-limit 2mb").unwrap();
    for conn in &mut conns {
        let reply = text(&conn.call(&greedy).unwrap());
        assert!(reply.contains("not enough memory"), "{reply}");
    }
    conns[0].cmd("CONFIG SET lua-memory-limit 64mb").unwrap();
    for conn in &mut conns {
        assert_eq!(text(&conn.call(&greedy).unwrap()), "10000000");
    }
}

#[test]
fn a_script_that_starts_over_is_counted_and_shown_once() {
    let server = Server::penstock(&["--threads", "2", "--latency-tracking", "yes"]);
    let (mut conn, mut monitor) = (server.connect(), server.connect());
    conn.cmd("SET k v").unwrap();
    let script = "redis.call('GET', KEYS[1]) redis.pcall('LPOP', KEYS[1]) redis.pcall('GET') \
                  if ARGV[1] == 'all' then redis.call('DBSIZE') end return redis.call('STRLEN', KEYS[1])";
    // So far the script has kept to its keys.
    conn.call(&eval(script, &["k"], &["one"])).unwrap();
    conn.cmd("CONFIG RESETSTAT").unwrap();
    monitor.cmd("MONITOR").unwrap();
    assert_eq!(text(&conn.call(&eval(script, &["k"], &["all"])).unwrap()), "1");
    conn.cmd("PING").unwrap();
    let shown: Vec<String> = std::iter::from_fn(|| Some(text(&monitor.read().unwrap())))
        .map(|line| line.split_once("] ").map_or("", |(_, shown)| shown).chars().take(9).collect())
        .take_while(|line| line != "\"PING\"")
        .collect();
    assert_eq!(shown, ["\"EVAL\" \"r", "\"GET\" \"k\"", "\"LPOP\" \"k", "\"DBSIZE\"", "\"STRLEN\" "]);
    let info = text(&conn.cmd("INFO all").unwrap());
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("no {name} in {info}")).to_string()
    };
    for command in ["get", "lpop", "dbsize", "strlen", "eval"] {
        assert!(field(&format!("cmdstat_{command}")).starts_with("calls=1,"), "{command}: {info}");
    }
    assert!(field("cmdstat_get").ends_with("rejected_calls=1,failed_calls=0"), "{info}");
    assert!(field("cmdstat_lpop").ends_with("rejected_calls=0,failed_calls=1"), "{info}");
    assert_eq!(field("keyspace_hits"), "2");
    assert_eq!(field("total_error_replies"), "2");
    assert_eq!(field("errorstat_WRONGTYPE"), "count=1");
}

#[test]
fn a_script_logs_what_the_level_lets_through() {
    let server = Server::penstock(&["--loglevel", "notice"]);
    let mut conn = server.connect();
    let script = "for _, level in ipairs({'DEBUG', 'VERBOSE', 'NOTICE', 'WARNING'}) do \
                    redis.log(redis['LOG_' .. level], ARGV[1], level) end";
    conn.call(&eval(script, &[], &["first"])).unwrap();
    conn.cmd("CONFIG SET loglevel debug").unwrap();
    conn.call(&eval(script, &[], &["second"])).unwrap();
    let log = server.log();
    let has = |line: &str| log.lines().any(|l| l.ends_with(line));
    assert!(!has("first DEBUG") && !has("first VERBOSE"), "{log}");
    assert!(has("* first NOTICE") && has("# first WARNING"), "{log}");
    assert!(has(". second DEBUG") && has("- second VERBOSE"), "{log}");
}
