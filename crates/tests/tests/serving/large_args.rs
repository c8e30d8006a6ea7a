//! The memory that large arguments take, and their effects on the rest of the connection.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::io::Write;

use penstock_tests::bytes::{Command, command, encode, encode_all};
use penstock_tests::conn::closed;
use penstock_tests::reply::Reply;
use penstock_tests::scripts::text;
use penstock_tests::server::{Server, subject_is_penstock};

const MB: usize = 1_000_000;
const KIB: usize = 1024;

/// Bytes that show their position in the argument.
fn large(bytes: usize) -> Vec<u8> {
    let mut argument: Vec<u8> = (0..bytes / 8 + 1).flat_map(|i| i.to_le_bytes()).collect();
    argument.truncate(bytes);
    argument
}

fn words(words: &[&[u8]]) -> Command {
    words.iter().map(|word| word.to_vec()).collect()
}

fn line(kind: u8, text: impl ToString) -> Reply {
    Reply::Line(kind, text.to_string().into_bytes())
}

fn bulk(bytes: &[u8]) -> Reply {
    Reply::Blob(b'$', bytes.to_vec())
}

/// Returns by how much the server's memory has grown at its peak while `run` runs, in bytes.
fn peak(server: &Server, run: impl FnOnce()) -> usize {
    server.connect().cmd("PING").unwrap();
    server.forget_peak();
    let before = server.resident_kib() as usize;
    run();
    (server.resident_peak_kib() as usize).saturating_sub(before) * KIB
}

/// Checks that a stream of requests takes hardly more memory than the `bytes` that it stores.
fn check_peak(name: &str, requests: &[Command], bytes: usize) {
    for threads in ["1", "2"] {
        let server = Server::penstock(&["--threads", threads]);
        let mut conn = server.connect();
        let peak = peak(&server, || {
            for request in requests {
                let reply = conn.call(request).unwrap();
                assert!(!matches!(reply, Reply::Line(b'-', _)), "{name}: {reply:?}");
            }
        });
        assert!(peak >= bytes, "{name}: a peak of {peak} bytes is not measured right");
        assert!(peak < bytes + bytes / 4, "{name}: {peak} bytes at the peak for {bytes}");
    }
}

#[test]
fn a_stored_value_is_received_in_place() {
    if !subject_is_penstock() {
        return;
    }
    let value = large(200 * MB);
    check_peak("SET", &[words(&[b"SET", b"k", &value])], value.len());
    let half = &value[..100 * MB];
    check_peak("MSET", &[words(&[b"MSET", b"k", half, b"l", half])], value.len());
    check_peak("GETSET", &[command("SET k 1"), words(&[b"GETSET", b"k", half])], half.len());
    check_peak("SETEX", &[words(&[b"SETEX", b"k", b"100", half])], half.len());
    check_peak("APPEND", &[words(&[b"APPEND", b"k", half])], half.len());
    check_peak("EXEC", &[command("MULTI"), words(&[b"SET", b"k", half]), command("EXEC")], half.len());
}

#[test]
fn two_at_once_take_no_more_than_both() {
    if !subject_is_penstock() {
        return;
    }
    let server = Server::penstock(&["--threads", "2"]);
    let value = large(60 * MB);
    let peak = peak(&server, || {
        std::thread::scope(|scope| {
            for key in [b"a", b"b"] {
                let (mut conn, request) = (server.connect(), words(&[b"SET", key, &value]));
                scope.spawn(move || assert_eq!(text(&conn.call(&request).unwrap()), "OK"));
            }
        });
    });
    assert!(peak < 150 * MB, "{peak}");
    for key in [b"a", b"b"] {
        assert!(server.connect().call(&words(&[b"GET", key])).unwrap() == bulk(&value));
    }
}

#[test]
fn an_announced_length_takes_no_memory() {
    if !subject_is_penstock() {
        return;
    }
    let server = Server::penstock(&[]);
    let mut waiting = Vec::new();
    let peak = peak(&server, || {
        for _ in 0..20 {
            let mut conn = server.connect();
            conn.send(b"PING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nbegin").unwrap();
            assert_eq!(text(&conn.read().unwrap()), "PONG");
            waiting.push(conn);
        }
    });
    assert!(peak < 10 * MB, "{peak}");
}

#[test]
fn an_incomplete_argument_is_freed_with_its_connection() {
    if !subject_is_penstock() {
        return;
    }
    let server = Server::penstock(&[]);
    let before = server.figure("used_memory");
    let mut conn = server.connect();
    let id = text(&conn.cmd("CLIENT ID").unwrap());
    conn.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000000\r\n").unwrap();
    conn.send(&large(90 * MB)).unwrap();
    // The received bytes count for the client.
    server.wait_until("it is counted", |server| {
        let list = text(&server.connect().cmd(&format!("CLIENT LIST ID {id}")).unwrap());
        let figure = |name: &str| -> usize {
            list.split(' ').find_map(|word| word.strip_prefix(name)).unwrap().parse().unwrap()
        };
        figure("qbuf=") >= 90 * MB && figure("tot-mem=") >= 90 * MB && figure("tot-mem=") < 110 * MB
    });
    drop(conn);
    server.wait_until("the memory is given back", |server| {
        server.figure("used_memory") < before + MB as u64 && server.resident_kib() < 50 * 1024
    });
    assert_eq!(server.connect().cmd("EXISTS k").unwrap(), line(b':', 0));
}

#[test]
fn more_than_a_query_buffer_may_hold_ends_the_connection() {
    if !subject_is_penstock() {
        return;
    }
    let server = Server::penstock(&["--client-query-buffer-limit", "1mb"]);
    let request = encode(&words(&[b"SET", b"k", &large(40 * MB)]));
    let mut conn = server.connect();
    let sent = conn.writer().unwrap().write_all(&request);
    let read = conn.read();
    assert!(sent.is_err() || read.is_err(), "{read:?}");
    assert!(read.is_err_and(|error| closed(&error) || error.kind() == std::io::ErrorKind::UnexpectedEof));
    assert!(server.log().contains("max query buffer length"));
    // A smaller argument is accepted.
    let value = large(900_000);
    assert_eq!(text(&server.connect().call(&words(&[b"SET", b"k", &value])).unwrap()), "OK");
}

#[test]
fn commands_before_and_behind_it_run_in_order() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    let value = large(3 * MB);
    let requests = [
        command("SET k old"),
        words(&[b"SET", b"k", &value, b"GET"]),
        words(&[b"APPEND", b"k", &value]),
        command("STRLEN k"),
        words(&[b"SETRANGE", b"k", b"1", &value[..40_000]]),
        words(&[b"SET", b"k", &value]),
        command("SETRANGE k 0 changed"),
        command("GETRANGE k 0 6"),
        words(&[b"ECHO", &value]),
    ];
    let replies = conn.pipeline(&requests).unwrap();
    let expected = [
        line(b'+', "OK"),
        bulk(b"old"),
        line(b':', 6 * MB),
        line(b':', 6 * MB),
        line(b':', 6 * MB),
        line(b'+', "OK"),
        line(b':', 3 * MB),
        bulk(b"changed"),
        bulk(&value),
    ];
    for (i, (reply, expected)) in replies.iter().zip(&expected).enumerate() {
        assert!(reply == expected, "reply {i}");
    }
}

#[test]
fn a_pause_and_a_block_keep_what_comes_behind_them() {
    let server = Server::penstock(&[]);
    let (mut conn, mut other) = (server.connect(), server.connect());
    let value = large(3 * MB);
    let set = encode(&words(&[b"MSET", b"k", &value, b"l", &value]));
    let behind = encode_all(&[command("STRLEN k"), words(&[b"GET", b"l"])]);
    // The first part is in a block of its own when the pause begins; the request becomes complete during the pause.
    conn.send(&set[..set.len() / 3]).unwrap();
    other.cmd("CLIENT PAUSE 100000 WRITE").unwrap();
    conn.send(&set[set.len() / 3..]).unwrap();
    conn.send(&behind).unwrap();
    server.wait_until("it is held back", |server| server.figure("blocked_clients") == 1);
    other.cmd("CLIENT UNPAUSE").unwrap();
    assert_eq!(text(&conn.read().unwrap()), "OK");
    assert_eq!(conn.read().unwrap(), line(b':', value.len()));
    assert!(conn.read().unwrap() == bulk(&value));
    // Behind a blocking command.
    conn.send(&[&b"BLPOP list 0\r\nSET k 1\r\n"[..], &set, &behind].concat()).unwrap();
    server.wait_until("it waits", |server| server.figure("blocked_clients") == 1);
    other.cmd("RPUSH list x").unwrap();
    assert!(matches!(conn.read().unwrap(), Reply::Many(b'*', _)));
    assert_eq!(text(&conn.read().unwrap()), "OK");
    assert_eq!(text(&conn.read().unwrap()), "OK");
    assert_eq!(conn.read().unwrap(), line(b':', value.len()));
    assert!(conn.read().unwrap() == bulk(&value));
}
