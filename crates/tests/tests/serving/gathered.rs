//! A thread reads all connections that are ready before it runs the first of their requests. Clients must not notice
//! this.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use penstock_tests::bytes::encode;
use penstock_tests::conn::Conn;
use penstock_tests::scripts::{ENDLESS, eval, kill, start_endless, text};
use penstock_tests::server::Server;

/// Several times the number of connections that a thread reads from at once.
const MANY: usize = 70;

/// Makes a server find everything that `send` sends at once.
fn at_once(server: &Server, send: impl FnOnce()) {
    let signal = |name: &str| {
        let pid = server.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    // A thread that has not slept since its last read may still have a connection at the head of its ready list.
    wait_until_threads_are(server, 'S');
    signal("-STOP");
    wait_until_threads_are(server, 'T');
    send();
    signal("-CONT");
}

/// Waits until all of a server's threads are in a state of /proc: S is asleep, T stopped.
fn wait_until_threads_are(server: &Server, wanted: char) {
    let state = |task: fs::DirEntry| fs::read_to_string(task.path().join("stat")).unwrap();
    let are_all = || {
        let mut tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        tasks.all(|task| state(task.unwrap()).rsplit(") ").next().unwrap().starts_with(wanted))
    };
    while !are_all() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Opens connections that the server knows.
fn open(server: &Server, count: usize) -> Vec<Conn> {
    let mut conns: Vec<Conn> = (0..count).map(|_| server.connect()).collect();
    conns.iter_mut().for_each(|conn| drop(conn.cmd("PING").unwrap()));
    conns
}

/// The first and the second part of a connection's input, and the replies, after which the server closes the
/// connection.
fn conversation(i: usize) -> [String; 3] {
    let (long, value) = ("x".repeat(3000), format!("value:{i}"));
    let set = format!("SET k{i} {value}\r\n");
    let get = format!("*2\r\n$3\r\nGET\r\n${}\r\nk{i}\r\n", format!("k{i}").len());
    let got = format!("${}\r\n{value}\r\n", value.len());
    let [first, then, replies] = match i % 7 {
        0 => [format!("{set}{get}"), String::new(), format!("+OK\r\n{got}")],
        1 => [format!("{set}{}", &get[..9]), get[9..].into(), format!("+OK\r\n{got}")],
        2 => ["PING\r\n".into(), "\r\nECHO a\r\n".into(), "+PONG\r\n$1\r\na\r\n".into()],
        3 => ["PING\r\n".repeat(200), "ECHO b\r\n".into(), format!("{}$1\r\nb\r\n", "+PONG\r\n".repeat(200))],
        4 => [format!("ECHO {long}\r\n"), String::new(), format!("$3000\r\n{long}\r\n")],
        5 => ["*2\r\n$3\r\nGET\r\n:1\r\n".into(), String::new(), String::new()],
        _ => {
            [format!("LPUSH k{i} a b\r\nLLEN k{i}\r\n*"), "1\r\n$4\r\nPING\r\n".into(), ":2\r\n:2\r\n+PONG\r\n".into()]
        }
    };
    let last = if i % 7 == 5 { "-ERR Protocol error: expected '$', got ':'\r\n" } else { "+OK\r\n" };
    [first, format!("{then}QUIT\r\n"), format!("{replies}{last}")]
}

#[test]
fn each_connection_is_answered_in_order_beside_others() {
    for threads in ["1", "2"] {
        let server = Server::penstock(&["--threads", threads]);
        let mut conns = open(&server, MANY);
        let conversations: Vec<_> = (0..MANY).map(conversation).collect();
        at_once(&server, || {
            for (conn, [first, ..]) in conns.iter_mut().zip(&conversations) {
                conn.send(first.as_bytes()).unwrap();
            }
        });
        for (i, (conn, [_, then, replies])) in conns.iter_mut().zip(&conversations).enumerate() {
            // A connection with a protocol error may be closed already.
            let _ = conn.send(then.as_bytes());
            let got = conn.read_to_close().unwrap();
            assert_eq!(String::from_utf8_lossy(&got), *replies, "{threads} threads, connection {i}");
        }
    }
}

#[test]
fn a_client_closed_by_another_runs_no_further_command() {
    let server = Server::penstock(&["--threads", "1"]);
    let mut conns = open(&server, 4);
    let id = conns[1].cmd("CLIENT ID").unwrap().integer().unwrap();
    at_once(&server, || {
        conns[0].send(format!("CLIENT KILL ID {id}\r\n").as_bytes()).unwrap();
        conns[1].send(b"SET k killed\r\n").unwrap();
        conns[2].send(b"GET k\r\n").unwrap();
    });
    assert_eq!(conns[0].read().unwrap().integer(), Some(1));
    assert_eq!(conns[1].read_to_close().unwrap(), b"");
    assert!(conns[2].read().unwrap().is_null());
    assert!(conns[3].cmd("GET k").unwrap().is_null());
}

#[test]
fn commands_after_a_pause_wait_for_its_end() {
    let server = Server::penstock(&["--threads", "1"]);
    let mut conns = open(&server, 3);
    at_once(&server, || {
        conns[0].send(b"CLIENT PAUSE 100000 WRITE\r\n").unwrap();
        conns[1].send(b"SET k paused\r\n").unwrap();
        conns[2].send(b"GET k\r\n").unwrap();
    });
    assert_eq!(text(&conns[0].read().unwrap()), "OK");
    assert!(conns[2].read().unwrap().is_null());
    assert_eq!(conns[1].read_for(Duration::from_millis(100)).unwrap(), (Vec::new(), false));
    conns[0].cmd("CLIENT UNPAUSE").unwrap();
    assert_eq!(text(&conns[1].read().unwrap()), "OK");
    assert_eq!(text(&conns[2].cmd("GET k").unwrap()), "paused");
}

/// The command that ends the script was read before the script began.
#[test]
fn a_script_can_be_ended_by_a_command_sent_before_it_began() {
    let server = Server::penstock(&["--threads", "1", "--busy-reply-threshold", "400"]);
    let mut conns = open(&server, 4);
    at_once(&server, || {
        conns[0].send(&encode(&eval(ENDLESS, &["endless"], &["go on"]))).unwrap();
        conns[1].send(b"GET k\r\n").unwrap();
        conns[2].send(b"SCRIPT KI").unwrap();
        conns[3].send(b"GET k\r\nGET k\r\nGE").unwrap();
    });
    for conn in [1, 3, 3] {
        assert!(text(&conns[conn].read().unwrap()).starts_with("BUSY "));
    }
    // The rest arrives while the script runs.
    conns[3].send(b"T k\r\n").unwrap();
    assert!(text(&conns[3].read().unwrap()).starts_with("BUSY "));
    conns[2].send(b"LL\r\nGET k\r\n").unwrap();
    assert_eq!(text(&conns[2].read().unwrap()), "OK");
    assert!(text(&conns[0].read().unwrap()).starts_with("ERR Script killed"));
    conns[2].read().unwrap();
    // The whole command was read.
    at_once(&server, || {
        conns[0].send(&encode(&eval(ENDLESS, &["endless"], &["go on"]))).unwrap();
        conns[1].send(b"SCRIPT KILL\r\n").unwrap();
    });
    assert_eq!(text(&conns[1].read().unwrap()), "OK");
    assert!(text(&conns[0].read().unwrap()).starts_with("ERR Script killed"));
    for conn in &mut conns {
        assert_eq!(text(&conn.cmd("PING").unwrap()), "PONG");
    }
}

/// The script begins at a point where requests were just read and are about to run.
#[test]
fn requests_read_before_a_script_begins_are_answered_first() {
    let server = Server::penstock(&["--threads", "1", "--busy-reply-threshold", "300"]);
    let mut conns = open(&server, 4);
    conns[0].cmd("CLIENT PAUSE 100000 WRITE").unwrap();
    conns[1].send(&encode(&eval(ENDLESS, &["endless"], &["go on"]))).unwrap();
    conns[2].send(b"*2\r\n$4\r\nECHO\r\n$10\r\nabc").unwrap();
    server.wait_until("it waits", |server| server.figure("blocked_clients") == 1);
    at_once(&server, || {
        conns[0].send(b"CLIENT UNPAUSE\r\n").unwrap();
        conns[2].send(b"defghij\r\n").unwrap();
    });
    let is_busy = |conn: &mut Conn| text(&conn.read().unwrap()).starts_with("BUSY ");
    assert!(is_busy(&mut conns[2]));
    conns[2].send(b"ECHO xy\r\n").unwrap();
    assert!(is_busy(&mut conns[2]));
    kill(&mut conns[3], "SCRIPT KILL").unwrap();
    assert!(text(&conns[1].read().unwrap()).starts_with("ERR Script killed"));
    assert_eq!(text(&conns[2].cmd("ECHO z").unwrap()), "z");
    assert_eq!(text(&conns[0].read().unwrap()), "OK");
}

#[test]
fn paused_commands_run_once_the_pause_and_the_busy_script_have_ended() {
    let server = Server::penstock(&["--threads", "2", "--busy-reply-threshold", "400"]);
    let mut conns = open(&server, 8);
    // The server has learned that the script keeps to its declared key.
    for _ in 0..3 {
        conns[0].call(&eval(ENDLESS, &["endless"], &["end"])).unwrap();
    }
    start_endless(&server, &mut conns[0], "endless").unwrap();
    // Half of the connections belong to the other thread, which serves them at once; the script's own thread refuses.
    let (script, others) = conns.split_first_mut().unwrap();
    assert!(others.iter_mut().any(|conn| text(&conn.cmd("CLIENT PAUSE 1500 ALL").unwrap()) == "OK"));
    thread::sleep(Duration::from_millis(500));
    // The pause blocks some of them, and the script the others.
    others.iter_mut().for_each(|conn| conn.send(b"SCRIPT KILL\r\n").unwrap());
    assert!(text(&script.read().unwrap()).starts_with("ERR Script killed"));
    for conn in others {
        loop {
            let reply = text(&conn.read().unwrap());
            if reply == "OK" || reply.starts_with("NOTBUSY") {
                break;
            }
            assert!(reply.starts_with("BUSY "), "{reply}");
        }
        assert_eq!(text(&conn.cmd("PING").unwrap()), "PONG");
    }
}
