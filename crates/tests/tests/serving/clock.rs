//! The time that commands see after a slow command. A lock with a time to live must last for that time after its owner
//! can have the reply, even if something has delayed the reply.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{Command, command, encode, encode_all};
use penstock_tests::conn::Conn;
use penstock_tests::scripts::{eval, text};
use penstock_tests::server::Server;
use std::thread;
use std::time::{Duration, Instant};

/// Duration of the slow command.
const SLOW: Duration = Duration::from_millis(250);
/// Time to live of the lock: shorter than that, and longer than a busy machine takes to read it.
const LOCK: Duration = Duration::from_millis(200);

/// A Lua function that returns the server's time in microseconds.
const NOW: &str = "local function now() local t = redis.call('TIME') return t[1] * 1000000 + t[2] end ";

/// A script that takes a while, and that runs alone if it declares no keys. It sets its key, which would undo a lock
/// taken before it began, and returns the time of its end.
fn slow(keys: &[&str]) -> Command {
    let script = "if #KEYS == 0 then redis.call('DBSIZE') end local till = now() + tonumber(ARGV[1]) \
                  while now() < till do end redis.call('SET', KEYS[1] or 'lock', 'slow') return now()";
    eval(&format!("{NOW}{script}"), keys, &[&SLOW.as_micros().to_string()])
}

/// Returns the server's time in microseconds.
fn now_us(conn: &mut Conn) -> u64 {
    let time = conn.cmd("TIME").unwrap();
    let [seconds, micros] = [0, 1].map(|i| text(&time.items()[i]).parse::<u64>().unwrap());
    seconds * 1_000_000 + micros
}

fn read_integer(conn: &mut Conn) -> u64 {
    conn.read().unwrap().integer().unwrap().try_into().unwrap()
}

/// Takes the lock by each of the commands, which wait for the script, and checks how long it is held, by the server's
/// clock. So delays of the test process do not matter.
fn check_locks(server: &Server, script: &[Vec<u8>]) {
    let (mut busy, mut conn) = (server.connect(), server.connect());
    let millis = LOCK.as_millis().to_string();
    let set = command(&format!("SET lock mine PX {millis}"));
    let by_script = "return redis.call('SET', KEYS[1] or 'lock', 'mine', 'PX', ARGV[1])";
    let takes: [Vec<_>; 4] = [
        vec![set.clone()],
        vec![command("MULTI"), set, command("EXEC")],
        vec![eval(by_script, &["lock"], &[&millis])],
        vec![eval(by_script, &[], &[&millis])],
    ];
    for take in takes {
        let taken_after_script = (0..10).any(|_| {
            busy.send(&encode(script)).unwrap();
            // Waits until the script has begun, on either thread.
            thread::sleep(Duration::from_millis(30));
            conn.pipeline(&take).unwrap();
            let ended_us = read_integer(&mut busy);
            // The time seen by a command is up to a millisecond old.
            let held_until_us = ended_us + LOCK.as_micros() as u64 - 1000;
            let look = conn.pipeline(&[command("PEXPIRETIME lock"), command("GET lock")]).unwrap();
            let looked_us = now_us(&mut conn);
            match text(&look[1]).as_str() {
                "mine" => {
                    let until_ms = look[0].integer().unwrap();
                    assert!(until_ms as u64 >= held_until_us / 1000, "{take:?} {until_ms} {ended_us}");
                    true
                }
                // On a busy machine, the script may not have begun, or the check may come too late.
                "slow" => false,
                _ => {
                    assert!(looked_us >= held_until_us, "{take:?} {looked_us} {ended_us}");
                    false
                }
            }
        });
        assert!(taken_after_script, "{take:?}");
    }
}

#[test]
fn a_lock_lasts_from_when_it_is_taken_on() {
    check_locks(&Server::penstock(&["--threads", "1"]), &slow(&["lock"]));
    let server = Server::penstock(&["--threads", "2"]);
    check_locks(&server, &slow(&["lock"]));
    check_locks(&server, &slow(&[]));
}

/// Sends a slow script and a command in one batch. Returns the server's time from the script's end until after the
/// replies to the command and to `then`.
fn after_slow(conn: &mut Conn, line: &str, then: Option<&str>) -> Duration {
    conn.send(&encode_all(&[slow(&[]), command(line)])).unwrap();
    let ended_us = read_integer(conn);
    conn.read().unwrap();
    then.iter().for_each(|line| drop(conn.cmd(line).unwrap()));
    Duration::from_micros(now_us(conn) - ended_us)
}

#[test]
fn no_wait_is_shorter_than_its_timeout() {
    const TIMEOUT: Duration = Duration::from_millis(10);
    let server = Server::penstock(&[]);
    let lines =
        ["BLPOP none 0.01", "BZPOPMIN none 0.01", "XREAD BLOCK 10 STREAMS none $", "BLMOVE none n LEFT LEFT 0.01"];
    let shortest = |line: &str| {
        let (mut conn, request) = (server.connect(), encode(&command(line)));
        let waits = (0..100).map(|i| {
            // At another fraction of a millisecond each time.
            thread::sleep(Duration::from_micros(300 * (i % 4)));
            let began = Instant::now();
            conn.send(&request).unwrap();
            assert!(conn.read().unwrap().is_null());
            began.elapsed()
        });
        waits.min().unwrap()
    };
    let all: Vec<Duration> = thread::scope(|scope| {
        let asking: Vec<_> = lines.map(|line| scope.spawn(|| shortest(line))).into_iter().collect();
        asking.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // The machine may cause most of a longer time, but not of the shortest of a hundred.
    assert!(all.iter().all(|shortest| (TIMEOUT..2 * TIMEOUT).contains(shortest)), "{all:?}");
}

#[test]
fn no_pause_is_shorter_than_it_says() {
    const PAUSE: Duration = Duration::from_millis(4);
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    let batch = encode_all(&[command(&format!("CLIENT PAUSE {}", PAUSE.as_millis())), command("PING")]);
    let pauses = (0..200).map(|i| {
        thread::sleep(Duration::from_micros(300 * (i % 4)));
        let began = Instant::now();
        conn.send(&batch).unwrap();
        conn.read_n(2).unwrap();
        began.elapsed()
    });
    let shortest = pauses.min().unwrap();
    assert!(shortest >= PAUSE, "{shortest:?}");
}

#[test]
fn waits_begin_when_their_command_runs() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    assert!(after_slow(&mut conn, "BLPOP none 0.2", None) >= Duration::from_millis(199));
    assert!(after_slow(&mut conn, "CLIENT PAUSE 200 WRITE", Some("SET k v")) >= Duration::from_millis(199));
    // Keys that have expired meanwhile don't exist any more.
    conn.cmd("SET old v PX 100").unwrap();
    let batch = [slow(&[]), command("EXISTS old"), command("SET old new NX"), command("GET old")];
    let replies: Vec<String> = conn.pipeline(&batch).unwrap().iter().map(text).collect();
    assert_eq!(replies[1..], ["0", "OK", "new"]);
}

/// Returns how many messages a subscriber got since the last call.
fn count_told(conn: &mut Conn) -> usize {
    conn.send(&encode(&command("PING"))).unwrap();
    std::iter::from_fn(|| conn.read().ok()).take_while(|reply| text(&reply.items()[0]) != "pong").count()
}

#[test]
fn a_pause_keeps_keys_whose_time_comes_and_hides_them() {
    let server = Server::penstock(&["--notify-keyspace-events", "Ex"]);
    let (mut conn, mut listener) = (server.connect(), server.connect());
    listener.cmd("SUBSCRIBE __keyevent@0__:expired").unwrap();
    conn.pipeline(&[command("SET e v PX 100"), command("CLIENT PAUSE 100000 WRITE")]).unwrap();
    thread::sleep(Duration::from_millis(200));
    let replies = conn.pipeline(&[command("GET e"), command("DBSIZE")]).unwrap();
    assert_eq!(replies.iter().map(text).collect::<Vec<_>>(), ["-1", "1"]);
    assert_eq!(count_told(&mut listener), 0);
    conn.cmd("CLIENT UNPAUSE").unwrap();
    conn.cmd("GET e").unwrap();
    assert_eq!(text(&conn.cmd("DBSIZE").unwrap()), "0");
    assert_eq!(count_told(&mut listener), 1);
}
