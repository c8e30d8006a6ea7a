//! Publish and subscribe between threads: subscribers that read get all messages, in order, and take little of the
//! server's memory; only those that don't read are closed; no client blocks for ever, even if clients publish in a
//! circle; and a client leaves nothing behind once QUIT is answered.

#![allow(clippy::panic, clippy::unwrap_used)]

use penstock_tests::bytes::{command, encode};
use penstock_tests::conn::{Conn, PATIENCE};
use penstock_tests::reply::Reply;
use penstock_tests::server::Server;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::sync::Barrier;
use std::thread;

const THREADS: &[&str] = &["2", "4"];

fn server(threads: &str) -> Server {
    Server::penstock(&["--threads", threads])
}

fn subscriber(server: &Server, channel: &str) -> Conn {
    let mut conn = server.connect();
    assert_eq!(conn.cmd(&format!("SUBSCRIBE {channel}")).unwrap().items().len(), 3);
    conn
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text()).into_owned()
}

/// The bytes of message `n` of a publisher. All messages have the same length.
fn payload(publisher: usize, n: usize, len: usize) -> String {
    let head = format!("{publisher}:{n:06}:");
    format!("{head}{}", "m".repeat(len - head.len()))
}

/// Reads messages of one length on a channel with a name of one letter, and checks each publisher's order. Returns a
/// hash of the whole order.
fn read_in_order(conn: &Conn, count: usize, len: usize) -> u64 {
    let mut stream = conn.writer().unwrap();
    stream.set_read_timeout(Some(3 * PATIENCE)).unwrap();
    let head = format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n${len}\r\n");
    let mut message = vec![0; head.len() + len + 2];
    let mut next = [0; 10];
    let mut order = DefaultHasher::new();
    for n in 0..count {
        stream.read_exact(&mut message).unwrap_or_else(|error| panic!("message {n}: {error}"));
        assert!(message.starts_with(head.as_bytes()), "message {n}");
        let body = std::str::from_utf8(&message[head.len()..head.len() + 9]).unwrap();
        let (publisher, number) = body.split_at(1);
        let publisher: usize = publisher.parse().unwrap();
        assert_eq!(number.trim_matches(':').parse(), Ok(next[publisher]));
        next[publisher] += 1;
        order.write_usize(publisher);
    }
    order.finish()
}

#[test]
fn readers_get_everything_and_take_little_memory() {
    const READERS: usize = 50;
    const PUBLISHERS: usize = 4;
    const MESSAGES: usize = 1500;
    const BYTES: usize = 10_000;
    for threads in THREADS {
        let server = server(threads);
        let readers: Vec<Conn> = (0..READERS).map(|_| subscriber(&server, "c")).collect();
        let orders: Vec<u64> = thread::scope(|scope| {
            for publisher in 0..PUBLISHERS {
                let mut conn = server.connect();
                scope.spawn(move || {
                    conn.set_patience(3 * PATIENCE).unwrap();
                    for n in 0..MESSAGES {
                        let reply = conn.cmd(&format!("PUBLISH c {}", payload(publisher, n, BYTES))).unwrap();
                        assert_eq!(text(&reply), READERS.to_string());
                    }
                });
            }
            let reading = readers.iter().map(|conn| scope.spawn(|| read_in_order(conn, PUBLISHERS * MESSAGES, BYTES)));
            let reading: Vec<_> = reading.collect();
            reading.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        assert!(orders.iter().all(|order| *order == orders[0]), "all see one order");
        assert_eq!(server.figure("client_output_buffer_limit_disconnections"), 0);
        let peak_kib = server.resident_peak_kib();
        assert!(peak_kib < 64 * 1024, "{peak_kib} KiB with {threads} threads");
    }
}

#[test]
fn a_subscriber_that_reads_keeps_up_with_batches() {
    const ROUNDS: usize = 40;
    const BATCH: usize = 200;
    for threads in THREADS {
        let server = server(threads);
        let reader = subscriber(&server, "c");
        let mut publisher = server.connect();
        thread::scope(|scope| {
            scope.spawn(|| read_in_order(&reader, ROUNDS * BATCH, 10_000));
            for round in 0..ROUNDS {
                let numbers = round * BATCH..(round + 1) * BATCH;
                let publish = |n| encode(&command(&format!("PUBLISH c {}", payload(0, n, 10_000))));
                publisher.send(&numbers.flat_map(publish).collect::<Vec<u8>>()).unwrap();
                assert!(publisher.read_n(BATCH).unwrap().iter().all(|reply| text(reply) == "1"));
            }
        });
    }
}

#[test]
fn connections_of_two_threads_publish_to_each_other_by_all_commands() {
    const CLIENTS: usize = 8;
    const ROUNDS: usize = 60;
    const LEN: usize = 3000;
    for threads in ["1", "2", "4"] {
        let server = server(threads);
        server.connect().cmd("CONFIG SET notify-keyspace-events K$").unwrap();
        // Each client subscribes to all channels, and to the events of one key.
        let readers: Vec<Conn> = (0..CLIENTS)
            .map(|_| {
                let mut conn = subscriber(&server, "c");
                conn.cmd("PSUBSCRIBE __keyspace@0__:*").unwrap();
                conn
            })
            .collect();
        let filler = "f".repeat(LEN);
        let key = "k".repeat(LEN);
        let round = [
            format!("PUBLISH c {filler}"),
            format!("SET {key} v"),
            "MULTI".into(),
            format!("PUBLISH c {filler}"),
            format!("PUBLISH c {filler}"),
            "EXEC".into(),
            format!("EVAL return(redis.call('publish','c',ARGV[1])) 0 {filler}"),
            format!("EVAL return(redis.call('set',KEYS[1],ARGV[1])) 1 {key} v"),
            "GET nothing".into(),
        ];
        let batch: Vec<u8> = round.iter().flat_map(|line| encode(&command(line))).collect();
        let start = Barrier::new(CLIENTS);
        thread::scope(|scope| {
            for mut conn in readers {
                scope.spawn(move || {
                    // Each round has four messages and two events for every client.
                    for n in 0..CLIENTS * ROUNDS * 6 {
                        let reply = conn.read().unwrap_or_else(|error| panic!("message {n}: {error}"));
                        assert!(matches!(&*text(&reply.items()[0]), "message" | "pmessage"));
                    }
                });
            }
            for _ in 0..CLIENTS {
                let (mut conn, batch, start, replies) = (server.connect(), &batch, &start, round.len());
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..ROUNDS {
                        conn.send(batch).unwrap();
                        let replies = conn.read_n(replies).unwrap();
                        assert!(replies.iter().all(|reply| !reply.is_error()), "{replies:?}");
                    }
                });
            }
        });
        assert_eq!(server.figure("client_output_buffer_limit_disconnections"), 0);
    }
}

#[test]
fn a_subscriber_that_does_not_read_is_closed_and_others_continue() {
    const MESSAGES: usize = 4000;
    for threads in THREADS {
        let server = Server::penstock(&["--threads", threads, "--client-output-buffer-limit", "pubsub 8mb 0 0"]);
        let readers: Vec<Conn> = (0..4).map(|_| subscriber(&server, "c")).collect();
        let idlers: Vec<Conn> = (0..4).map(|_| subscriber(&server, "c")).collect();
        thread::scope(|scope| {
            let reading: Vec<_> =
                readers.iter().map(|conn| scope.spawn(|| read_in_order(conn, MESSAGES, 10_000))).collect();
            let mut publisher = server.connect();
            for n in 0..MESSAGES {
                publisher.cmd(&format!("PUBLISH c {}", payload(0, n, 10_000))).unwrap();
            }
            reading.into_iter().for_each(|reader| assert_ne!(reader.join().unwrap(), 0));
        });
        server.wait_until("those that don't read are closed", |server| {
            server.figure("client_output_buffer_limit_disconnections") == idlers.len() as u64
        });
        let count = server.connect().cmd("PUBSUB NUMSUB c").unwrap().items()[1].clone();
        assert_eq!(text(&count), readers.len().to_string());
    }
}

#[test]
fn a_published_message_precedes_the_subscribers_next_reply() {
    for threads in THREADS {
        let server = server(threads);
        // On all threads.
        let mut readers: Vec<Conn> = (0..4).map(|_| subscriber(&server, "c")).collect();
        let mut publisher = server.connect();
        for n in 0..300 {
            assert_eq!(text(&publisher.cmd(&format!("PUBLISH c {n}")).unwrap()), "4");
            for (i, conn) in readers.iter_mut().enumerate() {
                conn.send(&encode(&command(if (n + i) % 2 == 0 { "PING" } else { "UNSUBSCRIBE other" }))).unwrap();
                let first = conn.read().unwrap();
                assert_eq!(text(&first.items()[2]), n.to_string(), "{first:?}");
                conn.read().unwrap();
            }
        }
    }
}

#[test]
fn nothing_is_left_of_a_connection_that_was_answered_quit() {
    for threads in THREADS {
        let server = server(threads);
        let mut other = server.connect();
        for round in 0..200 {
            let mut conn = subscriber(&server, "gone");
            conn.send(b"PSUBSCRIBE gone*\r\nSSUBSCRIBE gone\r\nCLIENT ID\r\nQUIT\r\n").unwrap();
            let replies = conn.read_n(4).unwrap();
            assert_eq!(text(&replies[3]), "OK");
            for (asked, left) in
                [("PUBSUB CHANNELS", "*0\\r\\n"), ("PUBSUB SHARDCHANNELS", "*0\\r\\n"), ("PUBSUB NUMPAT", ":0\\r\\n")]
            {
                assert_eq!(other.cmd(asked).unwrap().escaped(), left, "{asked} in round {round} of {threads} threads");
            }
            let clients = text(&other.cmd("CLIENT LIST").unwrap());
            assert_eq!(clients.lines().count(), 1, "{clients}");
        }
    }
}

#[test]
fn a_command_that_was_unblocked_counts_before_any_reply() {
    for threads in THREADS {
        let server = server(threads);
        let mut other = server.connect();
        // On all threads.
        let mut waiting: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
        let mut calls = 0;
        for _ in 0..100 {
            for conn in &mut waiting {
                let id = text(&conn.cmd("CLIENT ID").unwrap());
                conn.send(b"BLPOP nothing 0\r\n").unwrap();
                let unblock = format!("CLIENT UNBLOCK {id}");
                server.wait_until("it is unblocked", |_| text(&other.cmd(&unblock).unwrap()) == "1");
                calls += 1;
                let info = text(&other.cmd("INFO commandstats").unwrap());
                let counted = info.lines().find(|line| line.starts_with("cmdstat_blpop:")).unwrap_or("").to_string();
                assert!(counted.starts_with(&format!("cmdstat_blpop:calls={calls},")), "{calls}: {counted}");
                let info = text(&other.cmd("INFO clients").unwrap());
                assert!(info.contains("blocked_clients:0\r\n"), "{info}");
                conn.read().unwrap();
            }
        }
    }
}
