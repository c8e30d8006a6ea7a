//! Connections that are cut at any byte: the reported fate of each command must agree with the server's data.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{Fuse, NO_FUSE, Proxy, connect, on_both};
use client::{
    Client, ClientOptions, Command, Config, Connection, Error, Fate, Interrupted, Lost, Pipeline, Request, Transaction,
    Value, Window,
};
use tests::rng::Rng;
use tests::server::Server;

fn list_length(server: &Server, key: &str) -> u64 {
    match connect(server).command(&["LLEN", key]).unwrap() {
        Value::Int(length) => length as u64,
        other => panic!("{other:?}"),
    }
}

/// Returns fuses that cut connections at a random point of a test's traffic.
fn random_fuse(seed: u64, bytes_max: u64) -> impl Fn(u64) -> Fuse + Send + 'static {
    move |number| {
        let mut rng = Rng::new(seed * 1000 + number);
        match rng.below(2) {
            0 => Fuse { there: rng.below(bytes_max as usize) as u64, ..NO_FUSE },
            _ => Fuse { back: rng.below(bytes_max as usize / 4) as u64, ..NO_FUSE },
        }
    }
}

/// Checks the counts of an interrupted pipeline of RPUSH against the length of the list.
fn check_interrupted(server: &Server, key: &str, interrupted: &Interrupted) {
    assert!(matches!(interrupted.error, Error::Lost { .. }), "{interrupted:?}");
    let ran = list_length(server, key);
    assert!((interrupted.answered..=interrupted.sent).contains(&ran), "{ran} ran, {interrupted}");
}

#[test]
fn a_cut_pipeline_reports_its_progress() {
    const COMMANDS: u64 = 2000;
    on_both(&[], |server| {
        let mut cuts = 0;
        for seed in 0..40 {
            let proxy = Proxy::start(server.port(), random_fuse(seed, 100_000));
            let mut connection = Connection::connect(&proxy.config()).unwrap();
            let key = format!("list-{seed}");
            let requests = (0..COMMANDS).map(|i| Command::new("RPUSH").arg(&key).arg(i));
            let window = Window { commands: 1 + seed as usize * 20, bytes: 1 << (seed % 14) };
            let mut answered = 0;
            let run = window.run_each(&mut connection, requests, |index, reply| {
                assert_eq!(reply, Value::Int(index as i64 + 1));
                answered = index + 1;
            });
            match run {
                Ok(count) => assert_eq!((count, list_length(server, &key)), (COMMANDS, COMMANDS)),
                Err(interrupted) => {
                    cuts += 1;
                    assert_eq!(interrupted.answered, answered);
                    check_interrupted(server, &key, &interrupted);
                    // The connection stays unusable.
                    assert!(connection.command(&["PING"]).unwrap_err().is_connection_lost());
                }
            }
        }
        assert!(cuts > 10, "only {cuts} of 40 were cut");
    });
}

/// A thread's knowledge of its counter in the test below.
#[derive(Default)]
struct Tally {
    /// Number of answered commands.
    answered: u64,
    /// Number of commands that may have run.
    unknown: u64,
}

/// Increments a counter through a client with repeatedly broken connections.
fn count(client: &Client, key: &str, rounds: u64) -> Tally {
    let mut tally = Tally::default();
    let mut last = 0;
    for _ in 0..rounds {
        match client.command(&["INCR", key]) {
            Ok(Value::Int(value)) => {
                assert!(value > last, "{value} after {last}");
                last = value;
                tally.answered += 1;
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => match error.fate() {
                Fate::NotRun => {}
                Fate::MayHaveRun => tally.unknown += 1,
                Fate::Answered => panic!("{error}"),
            },
        }
    }
    tally
}

#[test]
fn a_shared_client_runs_nothing_twice() {
    const THREADS: u64 = 6;
    const ROUNDS: u64 = 300;
    on_both(&[], |server| {
        for (seed, flights_max) in [(1, 1), (2, 2), (3, 5)] {
            connect(server).command(&["FLUSHALL"]).unwrap();
            let proxy = Proxy::start(server.port(), random_fuse(seed, 6000));
            let mut options = ClientOptions::default();
            options.flights_max = flights_max;
            options.retry_delay_first = Duration::from_millis(1);
            let client = Client::with_options(&proxy.config(), options).unwrap();
            let unknown: u64 = thread::scope(|scope| {
                let client = &client;
                let count = move |key| move || count(client, key, ROUNDS);
                let keys: Vec<String> = (0..THREADS).map(|thread| format!("counter-{thread}")).collect();
                let keys: &'static [String] = keys.leak();
                let threads: Vec<_> = keys.iter().map(|key| scope.spawn(count(key.as_str()))).collect();
                let check = |(key, thread): (&String, thread::ScopedJoinHandle<'_, Tally>)| {
                    let tally = thread.join().unwrap();
                    let value = connect(server).command(&["GET", key]).unwrap();
                    let value: u64 = String::from_utf8_lossy(value.bytes().unwrap()).parse().unwrap();
                    let possible = tally.answered..=tally.answered + tally.unknown;
                    assert!(possible.contains(&value), "{key} is {value}, not within {possible:?}");
                    tally.unknown
                };
                keys.iter().zip(threads).map(check).sum()
            });
            assert!(client.reconnections() > 3, "only {} cuts", client.reconnections());
            assert!(unknown > 0);
        }
    });
}

#[test]
fn a_cut_shared_pipeline_reports_its_progress() {
    on_both(&[], |server| {
        let mut cuts = 0;
        for seed in 0..20 {
            let proxy = Proxy::start(server.port(), random_fuse(seed, 150_000));
            let client = Client::connect(&proxy.config()).unwrap();
            let key = format!("list-{seed}");
            let mut pipeline = Pipeline::with_window(Window::of(300));
            for i in 0..3000 {
                pipeline.add(&Command::new("RPUSH").arg(&key).arg(i));
            }
            match client.pipeline(&pipeline) {
                Ok(replies) => assert_eq!(replies.len(), 3000),
                Err(interrupted) => {
                    cuts += 1;
                    check_interrupted(server, &key, &interrupted);
                }
            }
        }
        assert!(cuts > 5, "only {cuts} of 20 were cut");
    });
}

#[test]
fn a_cut_transaction_reports_its_fate() {
    on_both(&[], |server| {
        let (mut not_run, mut unknown) = (0, 0);
        for there in 0..130 {
            let fuse = Fuse { there, ..NO_FUSE };
            let proxy = Proxy::start(server.port(), move |_| fuse);
            let key = format!("list-{there}");
            let mut transaction = Transaction::new();
            transaction.add(&["RPUSH", &key, "a"]).add(&["RPUSH", &key, "b"]);
            let mut options = ClientOptions::default();
            options.give_up_after = Duration::ZERO;
            let client = Client::with_options(&proxy.config(), options).unwrap();
            let outcome = client.transaction(&transaction);
            let ran = list_length(server, &key);
            match outcome {
                Ok(replies) => assert_eq!((replies.len(), ran), (2, 2)),
                Err(error) => match error.fate() {
                    Fate::NotRun => {
                        assert_eq!(ran, 0);
                        not_run += 1;
                    }
                    Fate::MayHaveRun => {
                        assert!(ran == 0 || ran == 2, "{ran}");
                        unknown += 1;
                    }
                    Fate::Answered => panic!("{error:?}"),
                },
            }
        }
        // The first 29 bytes are the empty transaction that precedes the real one.
        assert!(not_run >= 29 && unknown > 50, "{not_run} {unknown}");
    });
}

/// Returns the number of bytes that the requests take.
fn packed_length(requests: &[&str]) -> u64 {
    let mut bytes = Vec::new();
    requests.iter().for_each(|words| Command::new(words).pack(&mut bytes));
    bytes.len() as u64
}

#[test]
fn an_optimistic_change_that_is_cut_before_its_transaction_has_not_run() {
    on_both(&[], |server| {
        let (before, all) = (packed_length(&["WATCH k", "GET k", "MULTI"]), 140);
        let mut unknown = 0;
        for there in 0..all {
            let proxy = Proxy::start(server.port(), move |_| Fuse { there, ..NO_FUSE });
            let key = format!("list-{there}");
            let client = Client::connect(&proxy.config()).unwrap();
            let outcome = client.optimistic(&["k"], |connection| {
                connection.command(&["GET", "k"])?;
                let mut transaction = Transaction::new();
                transaction.add(&["RPUSH", &key, "a"]).add(&["RPUSH", &key, "b"]);
                Ok(Some(transaction))
            });
            let fate = outcome.map_or_else(|error| error.fate(), |_| Fate::Answered);
            let ran = list_length(server, &key);
            match fate {
                Fate::NotRun => assert_eq!(ran, 0),
                Fate::MayHaveRun => {
                    assert!(there >= before, "at {there}");
                    assert!(ran == 0 || ran == 2, "{ran}");
                    unknown += 1;
                }
                Fate::Answered => assert_eq!(ran, 2),
            }
        }
        assert!(unknown > 40, "{unknown}");
    });
}

#[test]
fn an_optimistic_change_that_does_nothing_has_not_run_either() {
    on_both(&[], |server| {
        let there = packed_length(&["WATCH k", "UNWATCH"]) - 1;
        let proxy = Proxy::start(server.port(), move |_| Fuse { there, ..NO_FUSE });
        let error = Connection::connect(&proxy.config()).unwrap().optimistic(&["k"], 1, |_| Ok(None)).unwrap_err();
        assert_eq!(error.fate(), Fate::NotRun, "{error:?}");
    });
}

#[test]
fn an_optimistic_change_returns_errors_of_other_connections_unchanged() {
    on_both(&[], |server| {
        let proxy = Proxy::start(server.port(), |_| Fuse { there: 5, ..NO_FUSE });
        let mut connection = connect(server);
        let lost = connection.optimistic(&["k"], 1, |_| {
            Connection::connect(&proxy.config())?.command(&["INCR", "other"])?;
            Ok(None)
        });
        assert_eq!(lost.unwrap_err().fate(), Fate::MayHaveRun);
        connect(server).command(&["SET", "k", "x"]).unwrap();
        // If a key were still watched, this transaction would not run.
        let mut transaction = Transaction::new();
        transaction.add(&["PING"]);
        assert!(transaction.run(&mut connection).unwrap().is_some());
    });
}

#[test]
fn commands_have_not_run_if_their_connection_breaks_in_the_handshake() {
    on_both(&[], |server| {
        // Only the client's first connection gets past its SELECT.
        let fuse = |connection| if connection == 0 { NO_FUSE } else { Fuse { there: 10, ..NO_FUSE } };
        let proxy = Proxy::start(server.port(), fuse);
        let mut config = proxy.config();
        config.db = 1;
        let client = Client::connect(&config).unwrap();
        for error in [
            client.command(&["BLPOP", "q", "1"]).unwrap_err(),
            client.optimistic(&["k"], |_| Ok(None)).unwrap_err(),
            client.dedicated().unwrap_err(),
            Connection::connect(&config).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Lost { fate: Fate::NotRun, .. }), "{error:?}");
        }
    });
}

#[test]
fn an_invalid_reply_ends_the_connection() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            use std::io::Write;
            stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        }
    });
    let mut connection = Connection::connect(&client::Config::tcp("127.0.0.1", port)).unwrap();
    let error = connection.command(&["PING"]).unwrap_err();
    assert!(matches!(error, Error::Lost { cause: Lost::Protocol(_), .. }), "{error:?}");
    assert!(error.to_string().contains("no reply begins with 'H'"), "{error}");
}

#[test]
fn a_reply_beyond_the_limits_ends_the_connection() {
    on_both(&[], |server| {
        let mut config = crate::common::config(server);
        config.limits.bulk_bytes_max = 1000;
        let mut connection = Connection::connect(&config).unwrap();
        let echo = |length: usize| vec!["ECHO".to_owned(), "x".repeat(length)];
        assert!(connection.command(&echo(1000)).is_ok());
        let error = connection.command(&echo(1001)).unwrap_err();
        assert!(error.to_string().contains("bulk_bytes_max"), "{error}");
        let mut bytes = Vec::new();
        echo(1).pack(&mut bytes);
        assert_eq!(connection.command(&echo(1)).unwrap_err().fate(), Fate::NotRun);
    });
}

/// Starts a server that reads from its first connection, answers nothing and closes it on request. Later connections
/// are relayed to `target`.
fn closing_at_first(target: u16) -> (Config, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Config::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    let close = Arc::new(AtomicBool::new(false));
    let told = close.clone();
    thread::spawn(move || {
        let (mut first, _) = listener.accept().unwrap();
        while !told.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = first.read(&mut vec![0; 1 << 20]);
        drop(first);
        for stream in listener.incoming() {
            crate::common::relay(stream.unwrap(), TcpStream::connect(("127.0.0.1", target)).unwrap(), NO_FUSE);
        }
    });
    (config, close)
}

/// Closes the first connection. Another thread notices the loss, so that the client knows of it and this thread
/// doesn't.
fn close_unnoticed(client: &Client, close: &AtomicBool) {
    close.store(true, Ordering::SeqCst);
    thread::scope(|scope| drop(scope.spawn(|| client.command(&["PING"])).join().unwrap()));
}

#[test]
fn later_commands_of_a_thread_do_not_run_after_a_loss() {
    on_both(&[], |server| {
        for flights_max in [1, 2] {
            connect(server).command(&["FLUSHALL"]).unwrap();
            let (config, close) = closing_at_first(server.port());
            let mut options = ClientOptions::default();
            options.flights_max = flights_max;
            let client = Client::with_options(&config, options).unwrap();
            let tickets: Vec<_> =
                ["a", "b", "c", "d"].iter().map(|key| client.submit(&["SET", key, "1"]).unwrap()).collect();
            let other = client.clone();
            // Another thread's command, which is queued behind these and isn't lost.
            let other = thread::spawn(move || other.command(&["SET", "others", "1"]));
            thread::sleep(Duration::from_millis(200));
            close.store(true, Ordering::SeqCst);
            let fates: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap_err().fate()).collect();
            let may_have_run = fates.iter().filter(|&&fate| fate == Fate::MayHaveRun).count();
            assert_eq!(may_have_run, flights_max, "{fates:?}");
            assert!(fates.is_sorted_by(|a, b| a >= b), "{fates:?}");
            assert_eq!(other.join().unwrap().unwrap(), Value::Simple(b"OK".into()));
            let keys = connect(server).command(&["KEYS", "*"]).unwrap();
            assert_eq!(keys, Value::Array(vec![Value::Bulk(b"others".into())]));
            // The thread has seen the loss, and its commands run again.
            client.command(&["SET", "e", "1"]).unwrap();
        }
    });
}

#[test]
fn a_pipeline_stops_if_its_beginning_is_lost() {
    on_both(&[], |server| {
        let (config, close) = closing_at_first(server.port());
        let mut options = ClientOptions::default();
        // The pipeline's second batch has to wait.
        options.flights_max = 1;
        let client = Client::with_options(&config, options).unwrap();
        let mut pipeline = Pipeline::new();
        for i in 0..9000 {
            pipeline.add(&Command::new("SET").arg(i).arg("x"));
        }
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            close.store(true, Ordering::SeqCst);
        });
        let interrupted = client.pipeline(&pipeline).unwrap_err();
        assert_eq!((interrupted.answered, interrupted.sent), (0, 5000), "{interrupted}");
        assert_eq!(connect(server).command(&["DBSIZE"]).unwrap(), Value::Int(0));
    });
}

#[test]
fn a_thread_learns_of_a_loss_before_its_next_command_runs() {
    on_both(&[], |server| {
        let (config, close) = closing_at_first(server.port());
        let client = Client::connect(&config).unwrap();
        let lost = client.submit(&["SET", "a", "1"]).unwrap();
        close.store(true, Ordering::SeqCst);
        // Another thread notices the loss. This thread doesn't know of it yet.
        thread::scope(|scope| {
            let other = scope.spawn(|| client.command(&["SET", "others", "1"]));
            let _ = other.join().unwrap();
        });
        let refused = client.submit(&["SET", "b", "1"]).unwrap();
        drop(client.submit(&["SET", "b", "1"]).unwrap());
        assert_eq!(refused.wait().unwrap_err().fate(), Fate::NotRun);
        client.command(&["SET", "c", "1"]).unwrap();
        // The loss is known already.
        assert_eq!(lost.wait().unwrap_err().fate(), Fate::MayHaveRun);
        client.command(&["SET", "d", "1"]).unwrap();
        assert_eq!(connect(server).command(&["EXISTS", "a", "b", "c", "d"]).unwrap(), Value::Int(2));
    });
}

#[test]
fn a_command_refused_after_a_loss_reports_it() {
    on_both(&[], |server| {
        let (config, close) = closing_at_first(server.port());
        let client = Client::connect(&config).unwrap();
        let lost = client.submit(&["SET", "a", "1"]).unwrap();
        close_unnoticed(&client, &close);
        assert_eq!(client.command(&["INCR", "b"]).unwrap_err().fate(), Fate::NotRun);
        assert_eq!(client.command(&["INCR", "b"]).unwrap(), Value::Int(1));
        drop(lost);
    });
}

#[test]
fn a_thread_that_dropped_its_tickets_is_not_informed() {
    on_both(&[], |server| {
        let (config, close) = closing_at_first(server.port());
        let client = Client::connect(&config).unwrap();
        drop(client.submit(&["SET", "a", "1"]).unwrap());
        let later = client.submit(&["SET", "b", "1"]).unwrap();
        close.store(true, Ordering::SeqCst);
        thread::scope(|scope| {
            let other = scope.spawn(|| client.command(&["SET", "others", "1"]));
            let _ = other.join().unwrap();
        });
        drop(later);
        client.command(&["SET", "c", "1"]).unwrap();
    });
}

#[test]
fn a_pipeline_reports_an_earlier_loss_too() {
    on_both(&[], |server| {
        let (config, close) = closing_at_first(server.port());
        let client = Client::connect(&config).unwrap();
        let lost = client.submit(&["SET", "a", "1"]).unwrap();
        close_unnoticed(&client, &close);
        let mut pipeline = Pipeline::with_window(Window::of(2));
        for _ in 0..10 {
            pipeline.add(&["INCR", "b"]);
        }
        let interrupted = client.pipeline(&pipeline).unwrap_err();
        assert_eq!((interrupted.answered, interrupted.sent), (0, 0), "{interrupted}");
        assert_eq!(client.pipeline(&pipeline).unwrap().len(), 10);
        assert_eq!(connect(server).command(&["GET", "b"]).unwrap(), Value::Bulk(b"10".into()));
        drop(lost);
    });
}
