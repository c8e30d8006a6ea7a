//! Busy scripts and functions: clients that would have to wait get an error, and the script can be ended.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{Command, encode};
use penstock_tests::conn::Conn;
use penstock_tests::reply::Reply;
use penstock_tests::scripts::{self, ENDLESS, eval, kill, text, wait_until_busy};
use penstock_tests::server::Server;

fn busy_server(threads: &str) -> Server {
    Server::penstock(&["--threads", threads, "--busy-reply-threshold", "300"])
}

fn open(server: &Server, count: usize) -> Vec<Conn> {
    (0..count).map(|_| server.connect()).collect()
}

/// Starts an endless script after a run that has shown that it keeps to its key; returns when it runs.
fn start_endless(server: &Server, conn: &mut Conn, key: &str) {
    assert_eq!(text(&conn.call(&eval(ENDLESS, &[key], &["end"])).unwrap()), "done");
    scripts::start_endless(server, conn, key).unwrap();
}

fn end(conn: &mut Conn, script: &mut Conn) {
    kill(conn, "SCRIPT KILL").unwrap();
    let reply = text(&script.read().unwrap());
    assert!(reply.starts_with("ERR Script killed by user with SCRIPT KILL... script: "), "{reply}");
}

#[test]
fn other_clients_get_an_error_while_a_script_is_busy() {
    for threads in ["1", "4"] {
        let server = Server::penstock(&["--threads", threads, "--busy-reply-threshold", "50"]);
        let (mut conn, mut other) = (server.connect(), server.connect());
        other.cmd("SET k v").unwrap();
        // Alone: the script has declared no keys, and runs for the first time.
        conn.send(&penstock_tests::bytes::encode(&eval("while true do redis.pcall('GET', 'k') end", &[], &[])))
            .unwrap();
        wait_until_busy(&mut other, "GET k").unwrap();
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
        kill(&mut new, "SCRIPT KILL").unwrap();
        assert!(text(&conn.read().unwrap()).starts_with("ERR Script killed"));
        assert_eq!(text(&other.cmd("GET k").unwrap()), "v");
        // A script that has written can't be killed, but the server can be shut down.
        conn.send(&penstock_tests::bytes::encode(&eval("redis.call('SET', 'k', 'w') while true do end", &["k"], &[])))
            .unwrap();
        wait_until_busy(&mut other, "GET k").unwrap();
        assert!(text(&new.cmd("SCRIPT KILL").unwrap()).starts_with("UNKILLABLE "));
        new.send(b"SHUTDOWN NOSAVE\r\n").unwrap();
        assert!(new.read_to_close().unwrap().is_empty());
    }
}

/// A thread reads several connections together with the script's, and runs some of their requests before the script:
/// their replies must not wait for the script's end.
#[test]
fn clients_that_share_a_wakeup_with_an_endless_script_are_answered() {
    for threads in ["1", "2"] {
        let server =
            Server::penstock(&["--threads", threads, "--busy-reply-threshold", "100", "--enable-debug-command", "yes"]);
        let mut killer = server.connect();
        let (mut sleeper, mut script) = (server.connect(), server.connect());
        let mut clients = open(&server, 10);
        // Another thread need not be busy, and the script may not have begun.
        let check = |reply: &Reply| {
            let reply = text(reply);
            assert!(["PONG", "OK", "a"].contains(&&*reply) || reply.starts_with("BUSY "), "{reply}");
        };
        let slow = format!("{}PING\r\n", "DEBUG SLEEP 0.002\r\n".repeat(2));
        for round in 0..4 {
            // So that all requests of the others have arrived when the threads read.
            sleeper.send(b"DEBUG SLEEP 0.05\r\n").unwrap();
            let endless = encode(&eval("while true do end", &[], &[]));
            let before = if round % 2 == 0 { clients.len() } else { clients.len() / 2 };
            let mut requests: Vec<(&str, usize)> = vec![("PING\r\n", 1); clients.len()];
            requests[1] = ("PING\r\nECHO a\r\nPING\r\n", 3);
            requests[2] = ("*1\r\n$4\r\nPI", 0);
            requests[3] = (&slow, 3);
            requests[7] = ("PING\r\nECHO a\r\n", 2);
            requests[8] = ("PING\r\n*1\r\n$4\r\nP", 1);
            for (i, (conn, (request, _))) in clients.iter_mut().zip(&requests).enumerate() {
                if i == before {
                    script.send(&endless).unwrap();
                }
                conn.send(request.as_bytes()).unwrap();
            }
            if before == clients.len() {
                script.send(&endless).unwrap();
            }
            for (i, (conn, (request, replies))) in clients.iter_mut().zip(&requests).enumerate() {
                for n in 0..*replies {
                    let reply =
                        conn.read().unwrap_or_else(|e| panic!("{threads}, {round}, {i}, {request:?}, {n}: {e}"));
                    check(&reply);
                }
            }
            for (rest, i) in [("NG\r\n", 2), ("ING\r\n", 8)] {
                clients[i].send(rest.as_bytes()).unwrap();
                check(&clients[i].read().unwrap());
            }
            check(&sleeper.read().unwrap());
            end(&mut killer, &mut script);
        }
    }
}

/// The client has more replies than its socket takes at once.
#[test]
fn earlier_long_replies_are_sent_during_a_script() {
    let server =
        Server::penstock(&["--threads", "1", "--busy-reply-threshold", "100", "--enable-debug-command", "yes"]);
    let (mut script, mut reader, mut killer) = (server.connect(), server.connect(), server.connect());
    let value = "x".repeat(64 << 20);
    reader.call(&["SET", "large", &value].map(|word| word.as_bytes().to_vec())).unwrap();
    killer.send(b"DEBUG SLEEP 0.05\r\n").unwrap();
    reader.send(b"GET large\r\n").unwrap();
    script.send(&encode(&eval("while true do end", &[], &[]))).unwrap();
    assert_eq!(reader.read().unwrap().text().len(), value.len());
    assert_eq!(text(&killer.read().unwrap()), "OK");
    end(&mut killer, &mut script);
    assert_eq!(text(&reader.cmd("PING").unwrap()), "PONG");
}

#[test]
fn input_of_a_busy_server_is_limited_and_counted() {
    let server =
        Server::penstock(&["--threads", "1", "--busy-reply-threshold", "50", "--client-query-buffer-limit", "1mb"]);
    let mut script = server.connect();
    start_endless(&server, &mut script, "endless");
    let mut other = server.connect();
    wait_until_busy(&mut other, "PING").unwrap();

    let mut long = server.connect();
    long.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\n").unwrap();
    // The limit, twice the kernel's buffers, and more.
    let sent = (0..1000).map(|_| long.send(&[b'x'; 1 << 16])).find_map(Result::err);
    assert!(sent.is_some(), "65 MB of one request were taken");

    let ping = "PING ".to_owned() + &"x".repeat(1000);
    for _ in 0..2000 {
        assert!(text(&other.cmd(&ping).unwrap()).starts_with("BUSY "));
    }
    end(&mut other, &mut script);
    let info = text(&other.cmd("INFO stats").unwrap());
    let read = info.lines().find_map(|line| line.strip_prefix("total_net_input_bytes:")).unwrap();
    assert!(read.trim_end().parse::<u64>().unwrap() > 2_000_000, "{info}");
}

#[test]
fn a_command_that_visits_all_keys_gets_the_error_while_it_waits() {
    let server = Server::penstock(&["--threads", "2", "--busy-reply-threshold", "1500"]);
    let mut script = server.connect();
    // The command skips shards without keys, so the script's own key must exist.
    script.cmd("SET endless v").unwrap();
    start_endless(&server, &mut script, "endless");
    // The script runs but is not busy yet: the other thread reads these requests, begins, and waits for the script's
    // shard.
    let mut conns = open(&server, 12);
    for (i, conn) in conns.iter_mut().enumerate() {
        let command = ["SCAN 0 COUNT 100000", "RANDOMKEY", "INFO keyspace"][i / 4];
        conn.send(format!("{command}\r\n").as_bytes()).unwrap();
    }
    for conn in &mut conns {
        let reply = text(&conn.read().unwrap());
        assert!(reply.starts_with("BUSY "), "{reply}");
    }
    end(&mut conns[0], &mut script);
    assert_eq!(text(&conns[0].cmd("DBSIZE").unwrap()), "1");
}

#[test]
fn only_the_waiter_to_be_served_waits_for_the_script() {
    let server = busy_server("2");
    let (mut script, mut taker) = (server.connect(), server.connect());
    // The element must go to a key that the script blocks.
    taker.send(b"BLMOVE source endless LEFT LEFT 0\r\n").unwrap();
    server.wait_until("a client waits", |server| server.figure("blocked_clients") == 1);
    start_endless(&server, &mut script, "endless");
    wait_until_busy(&mut server.connect(), "GET endless").unwrap();
    // Either thread accepts new connections; the test needs three of the other thread's.
    let (mut conns, mut given) = (Vec::new(), 0);
    for i in 0..300 {
        if given == 3 {
            break;
        }
        conns.push(server.connect());
        let Some(conn) = conns.last_mut() else { break };
        let reply = text(&conn.cmd(&format!("RPUSH source {i}")).unwrap());
        given += usize::from(!reply.starts_with("BUSY "));
        // The thread continues.
        let reply = text(&conn.cmd("GET endless").unwrap());
        assert!(reply.starts_with("BUSY "), "{reply}");
    }
    assert!(given > 0, "all connections are on the script's thread");
    end(&mut conns[0], &mut script);
    assert!(!taker.read().unwrap().is_error());
    assert_eq!(text(&conns[0].cmd("LLEN source").unwrap()), (given - 1).to_string());
    assert_eq!(text(&conns[0].cmd("LLEN endless").unwrap()), "1");
}

#[test]
fn a_wait_that_ends_during_a_script_holds_no_other_client_up() {
    let server = busy_server("2");
    let (mut script, mut waiting, mut conns) = (server.connect(), open(&server, 4), open(&server, 8));
    for conn in &mut waiting {
        conn.send(b"BLPOP nothing 0.2\r\n").unwrap();
    }
    server.wait_until("all wait", |server| server.figure("blocked_clients") == 4);
    // The script runs alone, since it declares no keys.
    script.send(&encode(&eval("while true do redis.call('GET', 'k') end", &[], &[]))).unwrap();
    // The script takes longer than the others wait.
    wait_until_busy(&mut conns[0], "PING").unwrap();
    for conn in &mut conns {
        let reply = text(&conn.cmd("PING").unwrap());
        assert!(reply.starts_with("BUSY "), "{reply}");
    }
    end(&mut conns[0], &mut script);
    for conn in &mut waiting {
        assert!(conn.read().unwrap().is_null());
    }
}

/// The script's text shows that it keeps to its key.
#[test]
fn a_first_run_on_declared_keys_holds_no_other_thread_up() {
    let server = busy_server("2");
    let (mut script, mut function, mut conns) = (server.connect(), server.connect(), open(&server, 16));
    let library = "#!lua name=l\nredis.register_function('endless', function(keys) \
                   while true do redis.call('GET', keys[1]) end end)";
    let load: Command = ["FUNCTION", "LOAD", library].map(|word| word.as_bytes().to_vec()).to_vec();
    assert_eq!(text(&function.call(&load).unwrap()), "l");
    for kill in ["SCRIPT KILL", "FUNCTION KILL"] {
        let running = if kill == "SCRIPT KILL" {
            script.send(&encode(&eval("while true do redis.call('GET', KEYS[1]) end", &["endless"], &[]))).unwrap();
            &mut script
        } else {
            function.send(b"FCALL endless 1 endless\r\n").unwrap();
            &mut function
        };
        wait_until_busy(&mut conns[0], "GET endless").unwrap();
        let mut answer = |(i, conn): (usize, &mut Conn)| text(&conn.cmd(&format!("SET {i} v")).unwrap());
        let answers: Vec<String> = conns.iter_mut().enumerate().map(&mut answer).collect();
        assert!(answers.iter().any(|answer| answer == "OK"), "{answers:?}");
        assert!(answers.iter().any(|answer| answer.starts_with("BUSY ")), "{answers:?}");
        penstock_tests::scripts::kill(&mut conns[0], kill).unwrap();
        assert!(text(&running.read().unwrap()).contains("Script killed by user"));
    }
}

#[test]
fn a_script_of_long_commands_is_busy_too() {
    let server = busy_server("1");
    let (mut script, mut conn) = (server.connect(), server.connect());
    let fill = "for i = 1, 20000 do redis.call('RPUSH', KEYS[1], math.random()) end";
    script.call(&eval(fill, &["list"], &[])).unwrap();
    let sort = "while true do redis.call('SORT_RO', KEYS[1], 'ALPHA', 'LIMIT', 0, 1) end";
    script.send(&encode(&eval(sort, &["list"], &[]))).unwrap();
    end(&mut conn, &mut script);
}

#[test]
fn a_match_without_end_is_ended() {
    let server = busy_server("2");
    let (mut script, mut conn) = (server.connect(), server.connect());
    for pathological in [
        "return string.find(string.rep('a', 40), string.rep('a*', 40) .. 'b')",
        "return pcall(string.gsub, string.rep('x', 100000), '.-.-.-.-.-y', '')",
        "local t = {} for i = 1, 100000 do t[i] = math.random() end while true do table.sort(t, nil) end",
        "while true do local s = string.rep('x', 2e7) end",
        "local s = string.rep('x', 2e6) while true do local t = s:upper() end",
        "local s = string.rep('x', 1e7) while true do local t = s .. '' .. #s end",
        "local s = string.rep('x', 1e6) while true do local t = redis.sha1hex(s) end",
        "local s = string.rep('a', 1e7) while true do local t = s:find('b') end",
        "local t = {} for i = 1, 2e5 do t[i] = 'x' end while true do local s = table.concat(t) end",
        "local t = {} for i = 1, 1e6 do t[i] = i end while true do table.remove(t, 1) table.insert(t, 1) end",
    ] {
        script.send(&encode(&eval(pathological, &["k"], &[]))).unwrap();
        kill(&mut conn, "SCRIPT KILL").unwrap_or_else(|error| panic!("{pathological}: {error}"));
        let reply = text(&script.read().unwrap());
        assert!(reply.contains("Script killed by user with SCRIPT KILL."), "{pathological}: {reply}");
    }
}

#[test]
fn a_function_that_takes_too_long_is_shown_and_ended() {
    for threads in ["1", "2"] {
        let server = busy_server(threads);
        let (mut caller, mut conn) = (server.connect(), server.connect());
        let library = "#!lua name=lib\nredis.register_function('spin', function(keys, args) \
                       if args[1] then redis.call('SET', keys[1], args[1]) end while true do end end)";
        let load: Command = ["FUNCTION", "LOAD", library].map(|word| word.as_bytes().to_vec()).to_vec();
        assert_eq!(text(&conn.call(&load).unwrap()), "lib");
        let stats = conn.cmd("FUNCTION STATS").unwrap();
        assert!(stats.items()[1].is_null());
        assert!(text(&conn.cmd("FUNCTION KILL").unwrap()).starts_with("NOTBUSY "));
        caller.send(b"FCALL spin 1 k\r\n").unwrap();
        wait_until_busy(&mut conn, "GET k").unwrap();
        let reply = text(&conn.cmd("GET k").unwrap());
        assert_eq!(reply, "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.");
        let reply = text(&conn.cmd("SCRIPT KILL").unwrap());
        assert!(reply.starts_with("BUSY "), "{reply}");
        let stats = conn.cmd("FUNCTION STATS").unwrap();
        let running = stats.items()[1].items();
        assert_eq!([text(&running[0]), text(&running[1])], ["name", "spin"]);
        let command: Vec<String> = running[3].items().iter().map(text).collect();
        assert_eq!(command, ["FCALL", "spin", "1", "k"]);
        assert!(running[5].integer().unwrap() >= 300, "{stats:?}");
        kill(&mut conn, "FUNCTION KILL").unwrap();
        let reply = text(&caller.read().unwrap());
        assert!(
            reply.starts_with("ERR Script killed by user with SCRIPT KILL... script: spin, on @user_function:"),
            "{reply}"
        );
        assert!(conn.cmd("GET k").unwrap().is_null());
        // A function that has written is not ended.
        caller.send(b"FCALL spin 1 k v\r\n").unwrap();
        wait_until_busy(&mut conn, "GET k").unwrap();
        assert!(text(&conn.cmd("FUNCTION KILL").unwrap()).starts_with("UNKILLABLE "));
        conn.send(b"SHUTDOWN NOSAVE\r\n").unwrap();
        assert!(conn.read_to_close().unwrap().is_empty());
    }
}
