//! MIGRATE between Penstock and redis-server, in both directions, and its effects on other clients.

#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use penstock_tests::conn::Conn;
use penstock_tests::ports::free_port;
use penstock_tests::reply::Reply;
use penstock_tests::server::Server;

use super::links::{oracle, penstock, text};

/// Shorter than any wait here, and longer than the expected events.
const MEANWHILE: Duration = Duration::from_millis(100);
const DEBUG: &[&str] = &["--enable-debug-command", "yes"];

/// Sends a command given as a line: spaces separate the arguments, and `''` is an empty argument. Returns the reply.
fn run(conn: &mut Conn, line: &str) -> Reply {
    send(conn, line);
    conn.read().unwrap()
}

fn send(conn: &mut Conn, line: &str) {
    conn.send(&encode(line)).unwrap();
}

fn encode(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').map(|word| if word == "''" { "" } else { word }).collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes()));
    bytes
}

/// A key of each type, some of them large, some with an expiry.
const ALL_TYPES: &[&str] = &[
    "SET string some-value",
    "SET number 12345 PX 600000",
    "RPUSH list a b c 1 2 3",
    "SADD intset 1 2 3",
    "SADD set a b c",
    "HSET hash f v g w",
    "ZADD zset 1 a 2.5 b inf c",
    "XADD stream 5-1 f v",
    "XGROUP CREATE stream group 0",
    "SETRANGE long 100000 x",
    "PFADD hll a b c",
    "GEOADD geo 13 38 Palermo",
    "EXPIRE list 1000",
];
const NAMES: &str = "string number list intset set hash zset stream long hll geo";

fn fill(server: &Server) {
    let mut conn = server.connect();
    ALL_TYPES.iter().for_each(|line| assert!(!run(&mut conn, line).is_error(), "{line}"));
}

#[test]
fn values_arrive_whole_whichever_server_sends_them() {
    for (from, to) in [(penstock as fn() -> Server, oracle as fn() -> Server), (oracle, penstock), (penstock, penstock)]
    {
        let (from, to) = (from(), to());
        fill(&from);
        let digest = text(&from, "DEBUG DIGEST");
        let mut conn = from.connect();
        let port = to.port();
        assert_eq!(
            run(&mut conn, &format!("MIGRATE 127.0.0.1 {port} '' 0 5000 COPY KEYS {NAMES} missing")).text(),
            b"OK"
        );
        assert_eq!((text(&from, "DEBUG DIGEST"), text(&to, "DEBUG DIGEST")), (digest.clone(), digest.clone()));
        assert_eq!(
            run(&mut conn, &format!("MIGRATE 127.0.0.1 {port} '' 0 5000 REPLACE KEYS {NAMES} missing")).text(),
            b"OK"
        );
        assert_eq!(text(&to, "DEBUG DIGEST"), digest);
        assert_eq!(from.connect().cmd("DBSIZE").unwrap().integer(), Some(0));
        let ttl = to.connect().cmd("PTTL number").unwrap().integer().unwrap();
        assert!((590_000..=600_000).contains(&ttl), "{ttl}");
        // To another database, one key at a time.
        run(&mut conn, "SET k v");
        assert_eq!(run(&mut conn, &format!("MIGRATE 127.0.0.1 {port} k 3 5000")).text(), b"OK");
        let mut there = to.connect();
        run(&mut there, "SELECT 3");
        assert_eq!(run(&mut there, "GET k").text(), b"v");
    }
}

/// Ports of servers that close each connection at once, hang, or send replies that no server of this kind sends.
fn strange_servers() -> [u16; 3] {
    let serve = |answer: fn(&mut TcpStream)| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                thread::spawn(move || answer(&mut socket));
            }
        });
        port
    };
    let closes = serve(|socket| {
        let _ = socket.read(&mut [0; 1000]);
    });
    let hangs = serve(|_| thread::sleep(Duration::from_secs(60)));
    let refuses = serve(|socket| {
        let _ = socket.read(&mut [0; 1000]);
        let _ = socket.write_all(b"-NOAUTH Authentication required.\r\n-NOAUTH Authentication required.\r\n");
        thread::sleep(Duration::from_secs(60));
    });
    [closes, hangs, refuses]
}

#[test]
fn replies_are_redis_s() {
    let [closes, hangs, refuses] = strange_servers();
    let nowhere = free_port().unwrap();
    let targets = [oracle(), oracle()];
    for target in &targets {
        let mut conn = target.connect();
        run(&mut conn, "CONFIG SET requirepass secret");
        run(&mut conn, "AUTH secret");
        run(&mut conn, "SET there already");
    }
    let lines = [
        "MIGRATE 127.0.0.1 PORT missing 0 1000 AUTH secret",
        "MIGRATE 127.0.0.1 PORT missing 0 x",
        "MIGRATE 127.0.0.1 PORT missing x 1000",
        "MIGRATE 127.0.0.1 PORT '' 0 1000 KEYS",
        "MIGRATE 127.0.0.1 PORT '' 0 1000 KEYS missing gone",
        "MIGRATE 127.0.0.1 PORT '' 0 1000",
        "MIGRATE 127.0.0.1 PORT k 0 1000 KEYS l",
        "MIGRATE 127.0.0.1 PORT k 0 1000 AUTH",
        "MIGRATE 127.0.0.1 PORT k 0 1000 AUTH2 name",
        "MIGRATE 127.0.0.1 PORT k 0 1000 COPY BOGUS",
        "MIGRATE 127.0.0.1 PORT k 0 1000",
        "MIGRATE 127.0.0.1 PORT k 0 1000 AUTH wrong",
        "MIGRATE 127.0.0.1 PORT k 0 1000 AUTH2 default wrong",
        "MIGRATE 127.0.0.1 PORT k 99 1000 AUTH secret",
        "MIGRATE 127.0.0.1 PORT there 0 1000 AUTH secret",
        "MIGRATE 127.0.0.1 PORT '' 0 1000 AUTH secret KEYS k there l",
        "MIGRATE 127.0.0.1 PORT there 0 0 REPLACE AUTH secret",
        "MIGRATE 127.0.0.1 PORT m 0 -5 copy replace auth2 default secret",
        "MIGRATE 127.0.0.1 PORT m 0 1000 COPY AUTH secret",
        "MIGRATE 127.0.0.1 CLOSES m 0 100",
        "MIGRATE 127.0.0.1 HANGS m 0 100",
        "MIGRATE 127.0.0.1 REFUSES m 0 100",
        "MIGRATE 127.0.0.1 NOWHERE m 0 100",
        "MIGRATE 127.0.0.1 -1 m 0 100",
        "MIGRATE no.such.host.invalid PORT m 0 100",
        "EXISTS k l m there",
    ];
    let servers = [penstock(), oracle()];
    let answers = [0, 1].map(|i| {
        let mut conn = servers[i].connect();
        run(&mut conn, "MSET k 1 l 2 m 3 there 4");
        lines.map(|line| {
            let line = line.replace("PORT", &targets[i].port().to_string()).replace("CLOSES", &closes.to_string());
            let line = line.replace("HANGS", &hangs.to_string()).replace("REFUSES", &refuses.to_string());
            run(&mut conn, &line.replace("NOWHERE", &nowhere.to_string())).escaped()
        })
    });
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(answers[0][at], answers[1][at], "{line}");
    }
}

/// A target that replies to each command when the test tells it to.
struct SlowTarget {
    listener: TcpListener,
    socket: Option<TcpStream>,
}

impl SlowTarget {
    fn new() -> SlowTarget {
        SlowTarget { listener: TcpListener::bind("127.0.0.1:0").unwrap(), socket: None }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// Returns the received commands as text, once they contain this many RESTOREs.
    fn read(&mut self, restores: usize) -> String {
        let socket = self.socket.get_or_insert_with(|| self.listener.accept().unwrap().0);
        let (mut text, mut room) = (String::new(), [0; 4096]);
        while text.matches("RESTORE").count() < restores {
            let n = socket.read(&mut room).unwrap();
            assert!(n > 0, "{text}");
            text += &String::from_utf8_lossy(&room[..n]);
        }
        text
    }

    fn answer(&mut self, bytes: &[u8]) {
        self.socket.as_mut().unwrap().write_all(bytes).unwrap();
    }
}

#[test]
fn only_writes_of_the_key_wait_for_a_slow_target() {
    let server = Server::penstock(&["--threads", "1"]);
    let mut target = SlowTarget::new();
    let [mut mover, mut writer, mut reader] = [(); 3].map(|()| server.connect());
    run(&mut reader, "MSET k 1 other 1");
    send(&mut mover, &format!("MIGRATE 127.0.0.1 {} k 0 5000", target.port()));
    let sent = target.read(1);
    assert!(sent.contains("SELECT") && !sent.contains("REPLACE"), "{sent}");
    // The thread serves others meanwhile; the key still exists, and doesn't change.
    assert_eq!(run(&mut reader, "GET k").text(), b"1");
    assert_eq!(run(&mut reader, "INCR other").integer(), Some(2));
    assert_eq!(run(&mut reader, "CLIENT UNBLOCK 1").integer(), Some(0));
    send(&mut writer, "INCR k");
    let (early, _) = writer.read_for(MEANWHILE).unwrap();
    assert_eq!(early, b"");
    assert!(text(&server, "CLIENT LIST").contains("cmd=migrate"));
    target.answer(b"+OK\r\n+OK\r\n");
    assert_eq!(mover.read().unwrap().text(), b"OK");
    // The write ran after the move, on a missing key.
    assert_eq!(writer.read().unwrap().integer(), Some(1));
    // Likewise if the target refuses the key, which stays.
    send(&mut mover, &format!("MIGRATE 127.0.0.1 {} k 0 5000", target.port()));
    let sent = target.read(1);
    assert!(!sent.contains("SELECT"), "it is the same connection: {sent}");
    send(&mut writer, "EXISTS k");
    send(&mut writer, "INCR k");
    assert_eq!(writer.read().unwrap().integer(), Some(1));
    target.answer(b"-BUSYKEY Target key name already exists.\r\n");
    let refused: &[u8] = b"ERR Target instance replied with error: BUSYKEY Target key name already exists.";
    assert_eq!(mover.read().unwrap().text(), refused);
    assert_eq!(writer.read().unwrap().integer(), Some(2));
}

/// A blocked command that another command serves is not delayed.
#[test]
fn a_key_that_changes_during_the_move_is_sent_again() {
    let server = penstock();
    let mut target = SlowTarget::new();
    let [mut mover, mut waiter, mut writer] = [(); 3].map(|()| server.connect());
    run(&mut writer, "RPUSH k 1");
    run(&mut writer, "SET l 1");
    send(&mut waiter, "BLMOVE source k LEFT RIGHT 0");
    server.wait_until("it waits", |server| server.figure("blocked_clients") == 1);
    send(&mut mover, &format!("MIGRATE 127.0.0.1 {} '' 0 5000 KEYS k l", target.port()));
    target.read(2);
    run(&mut writer, "RPUSH source 2");
    assert_eq!(waiter.read().unwrap().text(), b"2");
    target.answer(b"+OK\r\n+OK\r\n+OK\r\n");
    let again = target.read(1);
    assert!(again.contains("$1\r\nk\r\n") && again.contains("REPLACE") && !again.contains("$1\r\nl\r\n"), "{again}");
    assert_eq!(run(&mut writer, "EXISTS k l").integer(), Some(1));
    target.answer(b"+OK\r\n");
    assert_eq!(mover.read().unwrap().text(), b"OK");
    assert_eq!(run(&mut writer, "EXISTS k l").integer(), Some(0));
}

#[test]
fn scripts_transactions_and_whole_databases_wait_as_far_as_they_may_change_the_key() {
    let server = penstock();
    let mut target = SlowTarget::new();
    let mut conns: Vec<Conn> = (0..7).map(|_| server.connect()).collect();
    let (mover, others) = conns.split_first_mut().unwrap();
    run(mover, "MSET k 1 other 1");
    send(mover, &format!("MIGRATE 127.0.0.1 {} k 0 5000", target.port()));
    target.read(1);
    let eval = |conn: &mut Conn, words: &[&str]| {
        let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        conn.send(&penstock_tests::bytes::encode(&words)).unwrap();
    };
    // These commands don't change the key.
    eval(&mut others[0], &["EVAL_RO", "return redis.call('GET', KEYS[1])", "1", "k"]);
    assert_eq!(others[0].read().unwrap().text(), b"1");
    for line in ["MULTI", "GET k", "INCR other", "EXEC"] {
        assert!(!run(&mut others[0], line).is_error());
    }
    // These commands may change the key.
    for line in ["MULTI", "GET other", "INCR k"] {
        assert!(!run(&mut others[0], line).is_error());
    }
    send(&mut others[0], "EXEC");
    eval(&mut others[1], &["EVAL", "return redis.call('INCR', KEYS[1])", "1", "k"]);
    eval(&mut others[2], &["EVAL", "return redis.call('INCR', 'k')", "0"]);
    send(&mut others[3], "SWAPDB 0 1");
    send(&mut others[4], "RENAME other k");
    send(&mut others[5], "PFCOUNT k");
    for conn in others.iter_mut() {
        let (early, _) = conn.read_for(Duration::from_millis(20)).unwrap();
        assert_eq!(early, b"");
    }
    target.answer(b"+OK\r\n+OK\r\n");
    assert_eq!(mover.read().unwrap().text(), b"OK");
    others.iter_mut().for_each(|conn| assert!(!conn.read().unwrap().encode().is_empty()));
}

#[test]
fn a_counter_that_moves_to_and_fro_loses_no_increment() {
    const MOVES: usize = 200;
    const INCREMENTS: i64 = 4000;
    let servers = [penstock(), oracle()];
    let ports = [servers[0].port(), servers[1].port()];
    run(&mut servers[0].connect(), "SET home:0 0");
    let writers: Vec<_> = ports
        .into_iter()
        .map(|port| {
            thread::spawn(move || {
                let mut conn = Conn::open(port).unwrap();
                // The script increments the key where it exists, and never creates it.
                let script =
                    [&b"EVAL"[..], b"return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('INCR', KEYS[1])", b"1"];
                let mut command: Vec<Vec<u8>> = script.map(<[u8]>::to_vec).into();
                command.push(b"home:0".to_vec());
                let (mut done, deadline) = (0, Instant::now() + Duration::from_secs(60));
                while done < INCREMENTS / 2 && Instant::now() < deadline {
                    done += i64::from(conn.call(&command).unwrap().integer().is_some());
                }
                done
            })
        })
        .collect();
    let mut conns = [servers[0].connect(), servers[1].connect()];
    for at in 0.. {
        let (here, there) = (at % 2, (at + 1) % 2);
        let moved = run(&mut conns[here], &format!("MIGRATE 127.0.0.1 {} home:0 0 5000", ports[there]));
        assert_eq!(moved.text(), b"OK");
        if at >= MOVES && writers.iter().all(thread::JoinHandle::is_finished) {
            break;
        }
    }
    let done: i64 = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
    let values = conns.map(|mut conn| run(&mut conn, "GET home:0"));
    let found: Vec<&[u8]> = values.iter().filter(|value| !value.is_null()).map(Reply::text).collect();
    assert_eq!((done, found), (INCREMENTS, vec![INCREMENTS.to_string().as_bytes()]));
}

#[test]
fn a_move_is_a_deletion_for_replicas_and_the_log() {
    let mut server = Server::penstock(&[&["--appendonly", "yes"], DEBUG].concat());
    let replica = super::links::replica_of(server.port(), &[]);
    replica.wait_until("the link is up", super::links::is_up);
    let target = oracle();
    let mut conn = server.connect();
    run(&mut conn, "MSET k 1 l 2 stays 3");
    assert_eq!(run(&mut conn, &format!("MIGRATE 127.0.0.1 {} '' 0 5000 KEYS k l", target.port())).text(), b"OK");
    super::links::wait_until_equal(&server, &replica);
    assert_eq!(run(&mut replica.connect(), "EXISTS k l stays").integer(), Some(1));
    run(&mut conn, "WAITAOF 1 0 5000");
    server.restart();
    assert_eq!(run(&mut server.connect(), "EXISTS k l stays").integer(), Some(1));
    // A replica does not move keys.
    let refused = run(&mut replica.connect(), &format!("MIGRATE 127.0.0.1 {} stays 0 5000", target.port()));
    assert_eq!(refused.text(), b"READONLY You can't write against a read only replica.");
}

#[test]
fn a_move_completes_although_its_connection_closes() {
    let server = penstock();
    let mut target = SlowTarget::new();
    let [mut mover, mut writer] = [(); 2].map(|()| server.connect());
    run(&mut writer, "SET k 1");
    send(&mut mover, &format!("MIGRATE 127.0.0.1 {} k 0 5000", target.port()));
    target.read(1);
    drop(mover);
    send(&mut writer, "SETNX k again");
    let (early, _) = writer.read_for(MEANWHILE).unwrap();
    assert_eq!(early, b"");
    target.answer(b"+OK\r\n+OK\r\n");
    assert_eq!(writer.read().unwrap().integer(), Some(1));
}
