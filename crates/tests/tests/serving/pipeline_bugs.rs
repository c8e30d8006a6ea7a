//! Pipeline defects of other servers, and the correct behaviour. Tests with one connection compare the bytes with
//! Redis; tests with several connections have a script.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{command, encode, encode_all, escape};
use penstock_tests::conn::Conn;
use penstock_tests::reply::Reply;
use penstock_tests::server::Server;
use penstock_tests::transcript::transcript;
use std::io::Write;
use std::thread;
use std::time::Duration;

/// The input of a connection, sent at once. Redis sends the same replies.
const CONVERSATIONS: &[(&str, &str)] = &[
    ("wrong arity", "SET k 1\r\nGET\r\nSET k\r\nMGET\r\nGET k\r\nSET k 2 EX\r\nGET k k\r\nGET k\r\n"),
    ("unknown commands", "SET k 1\r\nNOPE k\r\nnope \"a b\" 'c'\r\nGET k\r\nCLIENT NOPE\r\nOBJECT NOPE k\r\nPING\r\n"),
    ("empty commands", "PING\r\n\r\n\r\n*0\r\nPING\r\n*1\r\n$0\r\n\r\nPING\r\n"),
    ("wrong type", "RPUSH l a\r\nGET l\r\nINCR l\r\nLRANGE l 0 -1\r\n"),
    ("quit", "SET k 1\r\nQUIT\r\nSET k 2\r\nGET k\r\n"),
    ("quit in a transaction", "MULTI\r\nSET k 1\r\nQUIT\r\nEXEC\r\n"),
    ("reset", "SELECT 1\r\nSET k 1\r\nMULTI\r\nSET k 2\r\nRESET\r\nGET k\r\nSELECT 1\r\nGET k\r\n"),
    ("reset of a protocol", "HELLO 3 SETNAME n\r\nGET k\r\nRESET\r\nGET k\r\nCLIENT GETNAME\r\n"),
    ("reset of subscriptions", "SUBSCRIBE a b\r\nPSUBSCRIBE c*\r\nRESET\r\nGET k\r\n"),
    ("subscribe", "SET k 1\r\nSUBSCRIBE a\r\nGET k\r\nSET k 2\r\nPING\r\nPING x\r\nUNSUBSCRIBE a\r\nGET k\r\nPING\r\n"),
    (
        "subscribe twice",
        "SUBSCRIBE a a b\r\nUNSUBSCRIBE a a\r\nUNSUBSCRIBE b\r\nUNSUBSCRIBE\r\nPUNSUBSCRIBE\r\nPING\r\n",
    ),
    ("subscribe in RESP3", "HELLO 3\r\nSUBSCRIBE a\r\nGET k\r\nPING\r\nUNSUBSCRIBE a\r\nPING\r\n"),
    ("subscribe in a transaction", "MULTI\r\nSUBSCRIBE a\r\nPING\r\nEXEC\r\nPING\r\n"),
    ("transaction", "MULTI\r\nSET k 1\r\nINCR k\r\nEXEC\r\nGET k\r\n"),
    ("failing command in a transaction", "MULTI\r\nSET k a\r\nINCR k\r\nSET k b\r\nEXEC\r\nGET k\r\n"),
    ("aborted transaction", "MULTI\r\nSET k 1\r\nSET k\r\nNOPE\r\nEXEC\r\nGET k\r\nEXEC\r\n"),
    ("discarded transaction", "SET k 0\r\nMULTI\r\nSET k 1\r\nDISCARD\r\nGET k\r\nDISCARD\r\n"),
    ("nested transaction", "MULTI\r\nMULTI\r\nWATCH k\r\nSET k 1\r\nEXEC\r\nGET k\r\n"),
    ("watched by itself", "WATCH k\r\nSET k 1\r\nMULTI\r\nSET k 2\r\nEXEC\r\nGET k\r\nMULTI\r\nGET k\r\nEXEC\r\n"),
    ("unwatched", "WATCH k\r\nSET k 1\r\nUNWATCH\r\nMULTI\r\nSET k 2\r\nEXEC\r\nGET k\r\n"),
    ("exec with an argument", "EXEC x\r\nMULTI\r\nSET k 1\r\nEXEC x\r\nEXEC\r\nGET k\r\n"),
    ("protocol change in a transaction", "MULTI\r\nHELLO 3\r\nGET k\r\nEXEC\r\nGET k\r\n"),
    ("database change in a transaction", "MULTI\r\nSELECT 1\r\nSET k 1\r\nEXEC\r\nGET k\r\nSELECT 0\r\nGET k\r\n"),
    ("reply off and on", "ECHO 1\r\nCLIENT REPLY OFF\r\nECHO 2\r\nNOPE\r\nSET k 1\r\nCLIENT REPLY ON\r\nGET k\r\n"),
    (
        "reply skip",
        "ECHO 1\r\nCLIENT REPLY SKIP\r\nECHO 2\r\nECHO 3\r\nCLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nECHO 4\r\nECHO 5\r\n",
    ),
    (
        "reply off in a transaction",
        "MULTI\r\nCLIENT REPLY OFF\r\nSET k 1\r\nEXEC\r\nGET k\r\nCLIENT REPLY ON\r\nGET k\r\n",
    ),
    (
        "blocking commands that find something",
        "RPUSH l a b c\r\nBLPOP l 0\r\nBLMOVE l l LEFT RIGHT 0\r\nBRPOP l 0\r\nLLEN l\r\n",
    ),
    (
        "blocking commands in a transaction",
        "MULTI\r\nBLPOP l 0\r\nBLMOVE l l LEFT LEFT 0\r\nBZPOPMIN z 0\r\nEXEC\r\nPING\r\n",
    ),
    ("authentication without a password", "AUTH x\r\nAUTH default x\r\nHELLO 3 AUTH default x\r\nPING\r\n"),
    ("selecting", "SET k 0\r\nSELECT 1\r\nSET k 1\r\nSELECT 99\r\nGET k\r\nSELECT 0\r\nGET k\r\n"),
];

/// The input of a connection that subscribes to its own messages, and its output after HELLO's reply. The order is that
/// of Redis 7.2: a push follows the reply of the command that caused it, and is never inside a reply. (Redis 7.0 sends
/// it before, and into EXEC's reply.)
const OWN_PUSHES: &[(&str, &[&str])] = &[
    (
        "SUBSCRIBE a\r\nPUBLISH a 1\r\nPUBLISH a 2\r\nGET k\r\nPUBLISH a 3\r\n",
        &[">subscribe a :1", ":1", ">message a 1", ":1", ">message a 2", "_", ":1", ">message a 3"],
    ),
    (
        "SUBSCRIBE a\r\nMULTI\r\nPUBLISH a 1\r\nECHO x\r\nPUBLISH a 2\r\nEXEC\r\nPING\r\n",
        &[
            ">subscribe a :1",
            "+OK",
            "+QUEUED",
            "+QUEUED",
            "+QUEUED",
            "*:1 x :1",
            ">message a 1",
            ">message a 2",
            "+PONG",
        ],
    ),
    (
        "PSUBSCRIBE a*\r\nSUBSCRIBE ab\r\nPUBLISH ab m\r\nPUBLISH ac n\r\nPUNSUBSCRIBE a*\r\nPUBLISH ab o\r\n",
        &[
            ">psubscribe a* :1",
            ">subscribe ab :2",
            ":2",
            ">message ab m",
            ">pmessage a* ab m",
            ":1",
            ">pmessage a* ac n",
            ">punsubscribe a* :1",
            ":1",
            ">message ab o",
        ],
    ),
    (
        "SSUBSCRIBE a\r\nSPUBLISH a m\r\nPUBLISH a n\r\nSUNSUBSCRIBE a\r\nSPUBLISH a o\r\n",
        &[">ssubscribe a :1", ":1", ">smessage a m", ":0", ">sunsubscribe a :0", ":0"],
    ),
];

/// A reply in the notation of [`OWN_PUSHES`]: an aggregate's elements after its tag, and only the text of blobs.
fn brief(reply: &Reply) -> String {
    match reply {
        Reply::Line(tag, text) => format!("{}{}", *tag as char, escape(text)),
        Reply::Blob(_, data) => escape(data),
        Reply::Many(tag, items) => format!("{}{}", *tag as char, items.iter().map(brief).collect::<Vec<_>>().join(" ")),
    }
}

#[test]
fn pushes_follow_the_reply_of_their_command() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    for (requests, expected) in OWN_PUSHES {
        // The previous connection may still exist.
        conn.cmd("RESET").unwrap();
        conn.cmd("HELLO 3").unwrap();
        conn.send(requests.as_bytes()).unwrap();
        let replies = conn.read_n(expected.len()).unwrap();
        assert_eq!(replies.iter().map(brief).collect::<Vec<_>>(), *expected, "{}", escape(requests.as_bytes()));
    }
}

fn without_version(transcript: &[u8]) -> String {
    let text = escape(transcript);
    let mut out = String::new();
    let mut rest = text.as_str();
    // HELLO's reply up to the protocol, then the connection's number.
    while let Some((before, after)) = rest.split_once("$6\\r\\nserver\\r\\n") {
        out.push_str(before);
        rest = after.split_once("$5\\r\\nproto").map_or("", |(_, after)| after);
    }
    let mut text = out + rest;
    while let Some(at) = text.find("$2\\r\\nid\\r\\n:") {
        let end = text[at..].find("$4\\r\\nmode").map_or(text.len(), |n| at + n);
        text.replace_range(at..end, "");
    }
    text
}

#[test]
fn conversations_are_the_same_as_with_redis() {
    let (penstock, oracle) = (Server::penstock(&[]), Server::oracle(&[]));
    let mut differ = Vec::new();
    for (name, requests) in CONVERSATIONS {
        let bytes = [b"FLUSHALL\r\n", requests.as_bytes()].concat();
        let ours = without_version(&transcript(&penstock, &bytes).unwrap());
        let theirs = without_version(&transcript(&oracle, &bytes).unwrap());
        if ours != theirs {
            differ.push(format!("{name}: {}\npenstock: {ours}\noracle:   {theirs}", escape(requests.as_bytes())));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
}

/// Reads replies and compares their bytes with `expected`.
fn expect(conn: &mut Conn, expected: &[&str]) {
    for text in expected {
        let reply = conn.read().unwrap_or_else(|e| panic!("{e} instead of {}", escape(text.as_bytes())));
        assert_eq!(reply.escaped(), escape(text.as_bytes()));
    }
}

/// Runs a scenario on Penstock and on the oracle, which verifies that the expectations match Redis.
fn on_both(scenario: impl Fn(&Server)) {
    scenario(&Server::oracle(&[]));
    scenario(&Server::penstock(&[]));
}

/// Waits until INFO reports `n` blocked clients.
fn wait_until_blocked(server: &Server, n: usize) {
    let mut conn = server.connect();
    let wanted = format!("blocked_clients:{n}\r\n");
    for _ in 0..2000 {
        if conn.cmd("INFO clients").unwrap().text().windows(wanted.len()).any(|w| w == wanted.as_bytes()) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("there never were {n} blocked clients");
}

#[test]
fn half_a_command_behind_a_blocking_one_waits() {
    on_both(|server| {
        let (mut waiting, mut other) = (server.connect(), server.connect());
        waiting.send(b"BLPOP l 0\r\n*2\r\n$3\r\nGET\r\n$1").unwrap();
        wait_until_blocked(server, 1);
        assert_eq!(other.cmd("RPUSH l a").unwrap().escaped(), ":1\\r\\n");
        expect(&mut waiting, &["*2\r\n$1\r\nl\r\n$1\r\na\r\n"]);
        assert_eq!(other.cmd("SET k v").unwrap().escaped(), "+OK\\r\\n");
        waiting.send(b"\r\nk\r\nPING\r\n").unwrap();
        expect(&mut waiting, &["$1\r\nv\r\n", "+PONG\r\n"]);
    });
}

#[test]
fn commands_behind_a_blocking_one_wait_and_keep_their_order() {
    on_both(|server| {
        let (mut waiting, mut other) = (server.connect(), server.connect());
        waiting.send(b"SET k 0\r\nBLPOP l 0\r\nINCR k\r\nBLPOP l 0\r\nINCR k\r\nBLPOP l 0.01\r\nGET k\r\n").unwrap();
        expect(&mut waiting, &["+OK\r\n"]);
        wait_until_blocked(server, 1);
        assert_eq!(other.cmd("GET k").unwrap().escaped(), "$1\\r\\n0\\r\\n");
        other.cmd("RPUSH l a").unwrap();
        expect(&mut waiting, &["*2\r\n$1\r\nl\r\n$1\r\na\r\n", ":1\r\n"]);
        wait_until_blocked(server, 1);
        assert_eq!(other.cmd("GET k").unwrap().escaped(), "$1\\r\\n1\\r\\n");
        other.cmd("RPUSH l b").unwrap();
        expect(&mut waiting, &["*2\r\n$1\r\nl\r\n$1\r\nb\r\n", ":2\r\n", "*-1\r\n", "$1\r\n2\r\n"]);
    });
}

#[test]
fn a_waiter_is_served_between_the_commands_of_a_pipeline() {
    on_both(|server| {
        let (mut waiting, mut other) = (server.connect(), server.connect());
        waiting.send(&encode(&command("BLPOP l 0"))).unwrap();
        wait_until_blocked(server, 1);
        other.send(b"RPUSH l a\r\nLPOP l\r\nLLEN l\r\n").unwrap();
        expect(&mut other, &[":1\r\n", "$-1\r\n", ":0\r\n"]);
        expect(&mut waiting, &["*2\r\n$1\r\nl\r\n$1\r\na\r\n"]);
    });
}

#[test]
fn a_waiter_is_served_after_a_transaction() {
    on_both(|server| {
        let (mut waiting, mut other) = (server.connect(), server.connect());
        waiting.send(&encode(&command("BLPOP l 0"))).unwrap();
        wait_until_blocked(server, 1);
        other.send(b"MULTI\r\nRPUSH l a b\r\nLPOP l\r\nEXEC\r\nLLEN l\r\n").unwrap();
        expect(&mut other, &["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n:2\r\n$1\r\na\r\n", ":0\r\n"]);
        expect(&mut waiting, &["*2\r\n$1\r\nl\r\n$1\r\nb\r\n"]);
    });
}

#[test]
fn the_longest_waiters_are_served_first() {
    on_both(|server| {
        let mut waiting: Vec<Conn> = (0..3).map(|_| server.connect()).collect();
        for (i, conn) in waiting.iter_mut().enumerate() {
            conn.send(b"BLPOP l 0\r\n").unwrap();
            wait_until_blocked(server, i + 1);
        }
        server.connect().cmd("RPUSH l 0 1 2 3").unwrap();
        for (i, conn) in waiting.iter_mut().enumerate() {
            expect(conn, &[&format!("*2\r\n$1\r\nl\r\n$1\r\n{i}\r\n")]);
        }
        assert_eq!(server.connect().cmd("LLEN l").unwrap().escaped(), ":1\\r\\n");
    });
}

#[test]
fn an_unblocked_client_goes_on_with_its_pipeline() {
    on_both(|server| {
        let (mut waiting, mut other) = (server.connect(), server.connect());
        let id = waiting.cmd("CLIENT ID").unwrap().integer().unwrap();
        for (how, reply) in [("TIMEOUT", "*-1\r\n"), ("ERROR", "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n")] {
            waiting.send(b"BLPOP l 0\r\nPING\r\n").unwrap();
            wait_until_blocked(server, 1);
            assert_eq!(other.cmd(&format!("CLIENT UNBLOCK {id} {how}")).unwrap().escaped(), ":1\\r\\n");
            expect(&mut waiting, &[reply, "+PONG\r\n"]);
        }
    });
}

#[test]
fn a_blocked_client_that_leaves_pops_no_element() {
    on_both(|server| {
        let mut waiting = server.connect();
        waiting.send(b"BLPOP l 0\r\n").unwrap();
        wait_until_blocked(server, 1);
        drop(waiting);
        wait_until_blocked(server, 0);
        let mut other = server.connect();
        other.send(b"RPUSH l a\r\nLRANGE l 0 -1\r\n").unwrap();
        expect(&mut other, &[":1\r\n", "*1\r\n$1\r\na\r\n"]);
    });
}

#[test]
fn a_push_is_never_torn() {
    on_both(|server| {
        let (mut reader, mut writer) = (server.connect(), server.connect());
        reader.cmd("HELLO 3").unwrap();
        reader.cmd("SUBSCRIBE c").unwrap();
        let value = vec![b'v'; 10_000];
        reader.cmd("SET big x").unwrap();
        reader.call(&[b"SET".to_vec(), b"big".to_vec(), value.clone()]).unwrap();
        const N: usize = 2000;
        let messages = thread::spawn(move || {
            for i in 0..N {
                writer.send(&encode(&command(&format!("PUBLISH c {i}")))).unwrap();
            }
            writer.read_n(N).unwrap();
        });
        let (mut pushes, mut replies) = (0, 0);
        reader.send(&b"GET big\r\n".repeat(N)).unwrap();
        while pushes < N || replies < N {
            let reply = reader.read().unwrap();
            if reply.tag() == b'>' {
                assert_eq!(reply.items()[2].text(), pushes.to_string().as_bytes());
                pushes += 1;
            } else {
                assert!(reply.text() == value, "{reply:?}");
                replies += 1;
            }
        }
        messages.join().unwrap();
    });
}

#[test]
fn a_hundred_thousand_commands_at_once() {
    const N: usize = 100_000;
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    let mut writer = conn.writer().unwrap();
    let sets: Vec<_> = (0..N).map(|i| command(&format!("SET key:{i} {i}"))).collect();
    let gets: Vec<_> = (0..N).map(|i| command(&format!("GET key:{i}"))).collect();
    let bytes = [encode_all(&sets), encode_all(&gets)].concat();
    // From another thread, so that the client reads meanwhile. A test below covers clients that write everything before
    // they read.
    let sending = thread::spawn(move || writer.write_all(&bytes).unwrap());
    for _ in 0..N {
        assert_eq!(conn.read().unwrap().escaped(), "+OK\\r\\n");
    }
    for i in 0..N {
        assert_eq!(conn.read().unwrap().text(), i.to_string().as_bytes());
    }
    sending.join().unwrap();
    assert_eq!(conn.cmd("DBSIZE").unwrap().integer(), Some(N as i64));
}

/// The server reads several times in a turn from a connection with long requests, in parts of different sizes.
#[test]
fn long_and_short_requests_follow_each_other() {
    let server = Server::penstock(&[]);
    let lens = [10, 32_700, 100_000, 4_000, 65_536, 5, 1_000_000, 70_000, 16_384, 300_000];
    let text = |i: usize| -> Vec<u8> { (0..lens[i % lens.len()]).map(|at| ((at + i) % 251) as u8).collect() };
    let (mut commands, mut expected) = (Vec::new(), Vec::new());
    for i in 0..3 * lens.len() {
        let key = format!("key:{}", i % 7).into_bytes();
        commands.push(vec![b"SET".to_vec(), key.clone(), text(i)]);
        expected.push(Reply::Line(b'+', b"OK".to_vec()));
        if i % 2 == 0 {
            commands.push(vec![b"GET".to_vec(), key]);
            expected.push(Reply::Blob(b'$', text(i)));
        }
        if i % 3 == 0 {
            commands.push(vec![b"ECHO".to_vec(), text(i + 1)]);
            expected.push(Reply::Blob(b'$', text(i + 1)));
        }
    }
    let replies = server.connect().pipeline(&commands).unwrap();
    assert_eq!(replies.len(), expected.len());
    assert!(replies == expected, "the replies are not those of the requests");
}

#[test]
fn a_client_may_write_everything_before_it_reads() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    // 50 MB of replies: more than any socket buffer holds.
    let value = "v".repeat(10_000);
    conn.cmd(&format!("SET k {value}")).unwrap();
    const N: usize = 5000;
    conn.send(&b"GET k\r\n".repeat(N)).unwrap();
    conn.send(&encode_all(&(0..N).map(|i| command(&format!("SET n {i}"))).collect::<Vec<_>>())).unwrap();
    for _ in 0..N {
        assert!(conn.read().unwrap().text() == value.as_bytes());
    }
    for _ in 0..N {
        assert_eq!(conn.read().unwrap().escaped(), "+OK\\r\\n");
    }
}

#[test]
fn monitor_shows_what_runs_in_order() {
    on_both(|server| {
        let (mut monitor, mut other) = (server.connect(), server.connect());
        assert_eq!(monitor.cmd("MONITOR").unwrap().escaped(), "+OK\\r\\n");
        other.send(b"SELECT 1\r\nSET \"a b\" \"\\x00\\r\\n\\\"\\xff\\a\"\r\nGET\r\nNOPE x\r\nMULTI\r\nINCR n\r\nEXEC\r\nPING\r\n").unwrap();
        other.read_n(8).unwrap();
        let shown = [
            r#"[1 ADDR] "SELECT" "1""#,
            r#"[1 ADDR] "SET" "a b" "\x00\r\n\"\xff\a""#,
            r#"[1 ADDR] "MULTI""#,
            r#"[1 ADDR] "INCR" "n""#,
            r#"[1 ADDR] "EXEC""#,
            r#"[1 ADDR] "PING""#,
        ];
        for expected in shown {
            let line = String::from_utf8(monitor.read().unwrap().text().to_vec()).unwrap();
            let (time, rest) = line.split_once(' ').unwrap();
            assert!(time.split_once('.').is_some_and(|(s, us)| s.parse::<u64>().is_ok() && us.len() == 6), "{line}");
            let (before, after) = rest.split_once("127.0.0.1:").unwrap();
            let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
            assert_eq!(format!("{before}ADDR{after}"), expected, "{line}");
        }
    });
}

#[test]
fn a_client_that_has_sent_everything_still_gets_all_replies() {
    const N: usize = 3000;
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    let value = "v".repeat(10_000);
    conn.cmd(&format!("SET k {value}")).unwrap();
    // More than the sockets' buffers hold, from a client that closes its sending side before it reads.
    conn.send(&b"GET k\r\n".repeat(N)).unwrap();
    conn.finish().unwrap();
    for _ in 0..N {
        assert!(conn.read().unwrap().text() == value.as_bytes());
    }
    assert!(conn.read_to_close().unwrap().is_empty());
}

#[test]
fn a_watched_key_that_had_expired_before_has_not_changed() {
    on_both(|server| {
        let mut conn = server.connect();
        conn.cmd("SET k v PX 1").unwrap();
        thread::sleep(Duration::from_millis(5));
        conn.send(b"WATCH k\r\nEXISTS k\r\nMULTI\r\nPING\r\nEXEC\r\n").unwrap();
        expect(&mut conn, &["+OK\r\n", ":0\r\n", "+OK\r\n", "+QUEUED\r\n", "*1\r\n+PONG\r\n"]);
    });
}

#[test]
fn clients_that_are_paused_count_as_blocked_and_go_on() {
    on_both(|server| {
        let (mut paused, mut other) = (server.connect(), server.connect());
        other.cmd("CLIENT PAUSE 100000 WRITE").unwrap();
        paused.send(b"GET k\r\nSET k v\r\nGET k\r\n").unwrap();
        expect(&mut paused, &["$-1\r\n"]);
        wait_until_blocked(server, 1);
        assert_eq!(other.cmd("GET k").unwrap().escaped(), "$-1\\r\\n");
        other.cmd("CLIENT UNPAUSE").unwrap();
        expect(&mut paused, &["+OK\r\n", "$1\r\nv\r\n"]);
        wait_until_blocked(server, 0);
    });
}

#[test]
fn a_blocking_command_is_counted_when_its_wait_is_over() {
    // As in Redis since 7.2; 7.0 counts the command at once.
    let server = Server::penstock(&[]);
    let (mut waiting, mut other) = (server.connect(), server.connect());
    other.cmd("CONFIG SET slowlog-log-slower-than 0").unwrap();
    let mut noted = |what: &str| {
        let told = other.pipeline(&[command("SLOWLOG GET -1"), command("INFO commandstats")]).unwrap();
        let told: Vec<u8> = told.iter().flat_map(Reply::encode).collect();
        escape(&told).to_lowercase().matches(what).count()
    };
    waiting.send(b"BLPOP l 0\r\n").unwrap();
    wait_until_blocked(&server, 1);
    assert_eq!(noted("blpop"), 0);
    server.connect().cmd("RPUSH l a").unwrap();
    waiting.read().unwrap();
    assert_eq!(noted("cmdstat_blpop:calls=1"), 1);
    assert!(noted("$5\\r\\nblpop") >= 1);
}
