//! The shared client, end to end, with Penstock and Redis.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{bulk, config, connect, ok, on_both};
use client::{Client, ClientOptions, Command, Config, Error, Fate, Lost, Pipeline, Proto, Transaction, Value, Window};
use tests::ports::{free_port, wait_until_refused};

fn client(server: &tests::server::Server) -> Client {
    Client::connect(&config(server)).unwrap()
}

#[test]
fn a_client_is_shared_between_threads() {
    fn check<T: Clone + Send + Sync>() {}
    check::<Client>();
}

#[test]
fn many_threads_each_in_its_order() {
    const THREADS: usize = 16;
    const ROUNDS: i64 = 500;
    on_both(&[], |server| {
        for flights_max in [1, 2, 8] {
            let mut options = ClientOptions::default();
            options.flights_max = flights_max;
            options.queue_commands_max = 5;
            let client = Client::with_options(&config(server), options).unwrap();
            client.command(&["FLUSHALL"]).unwrap();
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    let client = client.clone();
                    scope.spawn(move || {
                        let key = format!("counter-{thread}");
                        for round in 1..=ROUNDS {
                            assert_eq!(client.command(&["INCR", &key]).unwrap(), Value::Int(round));
                            assert_eq!(client.command(&["ECHO", &key]).unwrap(), bulk(&key));
                        }
                    });
                }
            });
            assert_eq!(client.command(&["DBSIZE"]).unwrap(), Value::Int(THREADS as i64));
            assert_eq!(client.reconnections(), 0);
        }
    });
}

/// Starts a server that answers on request, and reports the number of requests in each read.
fn slow_server(requests_per_read: mpsc::Sender<usize>, answer: mpsc::Receiver<()>) -> Config {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Config::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut chunk = [0; 1 << 16];
        while let Ok(n @ 1..) = stream.read(&mut chunk) {
            let requests = chunk[..n].iter().filter(|&&byte| byte == b'*').count();
            requests_per_read.send(requests).unwrap();
            if answer.recv().is_err() {
                return;
            }
            stream.write_all(&b"+PONG\r\n".repeat(requests)).unwrap();
        }
    });
    config
}

#[test]
fn concurrent_callers_share_a_flight() {
    const CALLERS: usize = 20;
    let (send_requests, requests) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let config = slow_server(send_requests, answers);
    let mut options = ClientOptions::default();
    options.flights_max = 1;
    let client = Client::with_options(&config, options).unwrap();
    let calling = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..=CALLERS)
        .map(|_| {
            let (client, calling) = (client.clone(), calling.clone());
            thread::spawn(move || {
                calling.fetch_add(1, Ordering::SeqCst);
                client.command(&["PING"]).unwrap()
            })
        })
        .collect();
    let mut flights = Vec::new();
    while flights.iter().sum::<usize>() <= CALLERS {
        flights.push(requests.recv_timeout(crate::common::PATIENCE).unwrap());
        while calling.load(Ordering::SeqCst) <= CALLERS {
            thread::sleep(Duration::from_millis(1));
        }
        // Time for the other callers to queue their commands.
        thread::sleep(Duration::from_millis(200));
        answer.send(()).unwrap();
    }
    callers.into_iter().for_each(|caller| drop(caller.join().unwrap()));
    assert!(flights.len() <= 3, "{flights:?}");
}

#[test]
fn tickets_are_answered_in_order() {
    on_both(&[], |server| {
        let client = client(server);
        let tickets: Vec<_> =
            (0..1000).map(|i| client.submit(&Command::new("RPUSH").arg("list").arg(i)).unwrap()).collect();
        // An intermediate command runs after all of them.
        assert_eq!(client.command(&["LLEN", "list"]).unwrap(), Value::Int(1000));
        for (i, ticket) in tickets.into_iter().enumerate() {
            assert_eq!(ticket.wait().unwrap(), Value::Int(i as i64 + 1));
        }
        drop(client.submit(&["SET", "dropped", "x"]).unwrap());
        assert_eq!(client.command(&["GET", "dropped"]).unwrap(), bulk("x"));
    });
}

#[test]
fn pipelines_of_any_size() {
    on_both(&[], |server| {
        let client = client(server);
        for (commands, window) in [(0, 10), (1, 1), (7, 2), (25_000, 10_000), (3000, 7)] {
            let mut pipeline = Pipeline::with_window(Window::of(window));
            for i in 0..commands {
                pipeline.add(&Command::new("ECHO").arg(i));
            }
            let replies = client.pipeline(&pipeline).unwrap();
            assert_eq!(replies.len(), commands);
            for (i, reply) in replies.iter().enumerate() {
                assert_eq!(reply, &bulk(&i.to_string()));
            }
        }
        let mut pipeline = Pipeline::new();
        pipeline.add(&["SET", "k", "v"]).add(&["INCR", "k"]).add(&["PING"]);
        let replies = client.pipeline(&pipeline).unwrap();
        assert!(replies[1].error().is_some() && replies[2].error().is_none());
    });
}

#[test]
fn blocking_commands_have_a_dedicated_connection() {
    on_both(&[], |server| {
        let client = client(server);
        thread::scope(|scope| {
            let blocked = scope.spawn(|| client.command(&["BLPOP", "list", "20"]));
            while client
                .command(&["INFO", "clients"])
                .unwrap()
                .bytes()
                .unwrap()
                .windows(17)
                .all(|w| w != b"blocked_clients:1")
            {
                thread::sleep(Duration::from_millis(5));
            }
            client.command(&["RPUSH", "list", "x"]).unwrap();
            assert_eq!(blocked.join().unwrap().unwrap(), Value::Array(vec![bulk("list"), bulk("x")]));
        });
        // The dedicated connection is reused.
        let clients =
            || client.command(&["CLIENT", "LIST"]).unwrap().bytes().unwrap().iter().filter(|&&b| b == b'\n').count();
        let before = clients();
        client.command(&["BLPOP", "list", "0.01"]).unwrap();
        assert_eq!(clients(), before);
    });
}

/// Starts a server that accepts connections and sends nothing.
fn silent_server() -> Config {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Config::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    thread::spawn(move || {
        let _open: Vec<_> = listener.incoming().collect();
    });
    config
}

/// Returns the outcome of a command within `patience`.
fn outcome_within(
    patience: Duration,
    client: &Client,
    command: &'static str,
) -> Result<Result<Value, Error>, mpsc::RecvTimeoutError> {
    let (send, outcome) = mpsc::channel();
    let client = client.clone();
    // The thread may never end.
    thread::spawn(move || send.send(client.command(&Command::new(command))));
    outcome.recv_timeout(patience)
}

#[test]
fn blocking_commands_time_out_on_a_silent_server() {
    let mut config = silent_server();
    config.read_timeout = Some(Duration::from_millis(100));
    let client = Client::connect(&config).unwrap();
    for (command, limit_ms) in [("BLPOP q 0.2", 300), ("XREAD BLOCK 50 STREAMS s $", 150), ("BLPOP q x", 100)] {
        let error = outcome_within(crate::common::PATIENCE, &client, command).unwrap().unwrap_err();
        let Error::Lost { cause: Lost::Silent(limit), fate: Fate::MayHaveRun } = error else { panic!("{error:?}") };
        assert_eq!(limit, Duration::from_millis(limit_ms), "{command}");
    }
}

#[test]
fn blocking_commands_without_a_timeout_keep_waiting() {
    const LONGER: Duration = Duration::from_millis(400);
    let mut config = silent_server();
    config.read_timeout = Some(Duration::from_millis(50));
    let limited = Client::connect(&config).unwrap();
    config.read_timeout = None;
    let unlimited = Client::connect(&config).unwrap();
    for (client, command) in
        [(&limited, "BLPOP q 0"), (&limited, "XREAD BLOCK 0 STREAMS s $"), (&unlimited, "BLPOP q 0.05")]
    {
        assert!(outcome_within(LONGER, client, command).is_err(), "{command}");
    }
    on_both(&[], |server| {
        let mut config = crate::common::config(server);
        config.read_timeout = Some(LONGER);
        let client = Client::connect(&config).unwrap();
        // The empty reply comes after the command's own timeout, which may be longer. The second timeout is beyond the
        // limits of servers.
        assert_eq!(client.command(&["BLPOP", "nothing", "0.6"]).unwrap(), Value::NullArray);
        assert!(outcome_within(LONGER, &client, "BLPOP nothing 9000000000000000").is_err());
    });
}

#[test]
fn commands_that_change_the_connection_are_refused() {
    on_both(&[], |server| {
        let client = client(server);
        for command in [
            "SELECT 1",
            "MULTI",
            "subscribe c",
            "MONITOR",
            "CLIENT REPLY OFF",
            "client tracking on",
            "SCRIPT DEBUG YES",
        ] {
            let error = client.command(&Command::new(command)).unwrap_err();
            assert!(matches!(error, Error::NotShareable(_)), "{error:?}");
            assert_eq!(error.fate(), Fate::NotRun);
        }
        let mut pipeline = Pipeline::new();
        pipeline.add(&["SET", "k", "v"]).add(&["BLPOP", "l", "0"]);
        assert_eq!(client.pipeline(&pipeline).unwrap_err().sent, 0);
        assert!(client.submit(&["BLPOP", "l", "0"]).is_err());
        assert_eq!(client.command(&["EXISTS", "k"]).unwrap(), Value::Int(0));
    });
}

#[test]
fn a_transaction_must_not_change_the_connection_either() {
    on_both(&[], |server| {
        let client = client(server);
        for command in ["EXEC", "SELECT 5", "CLIENT SETNAME x", "CLIENT TRACKING ON", "RESET", "SUBSCRIBE c"] {
            let mut transaction = Transaction::new();
            transaction.add(&Command::new(command)).add(&["SET", "k", "v"]);
            let error = client.transaction(&transaction).unwrap_err();
            assert!(matches!(error, Error::NotShareable(_)), "{command}: {error:?}");
        }
        assert_eq!(client.command(&["EXISTS", "k"]).unwrap(), Value::Int(0));
        // Blocking commands don't block within a transaction.
        let mut transaction = Transaction::new();
        transaction.add(&["BLPOP", "nothing", "0"]);
        assert_eq!(client.transaction(&transaction).unwrap().len(), 1);
    });
}

#[test]
fn an_empty_request_does_not_get_another_reply() {
    on_both(&[], |server| {
        let client = client(server);
        let nothing: [&str; 0] = [];
        let tickets = (client.submit(&nothing), client.submit(&["ECHO", "x"]));
        assert!(matches!(tickets.0, Err(Error::NotShareable(_))));
        assert_eq!(tickets.1.unwrap().wait().unwrap(), bulk("x"));
        let mut pipeline = Pipeline::new();
        pipeline.add(&nothing).add(&["ECHO", "x"]);
        assert!(client.pipeline(&pipeline).is_err());
        let mut transaction = Transaction::new();
        transaction.add(&nothing);
        assert!(matches!(client.transaction(&transaction), Err(Error::NotShareable(_))));
    });
}

#[test]
fn a_script_does_not_change_the_database_for_others() {
    crate::common::on_those_with_scripts(|server| {
        let client = client(server);
        let _ = client.command(&["EVAL", "return redis.call('SELECT', '5')", "0"]);
        client.command(&["SET", "k", "v"]).unwrap();
        assert_eq!(connect(server).command(&["GET", "k"]).unwrap(), bulk("v"));
    });
}

#[test]
fn wait_is_only_allowed_on_a_dedicated_connection() {
    let server = tests::server::Server::oracle(&[]);
    let client = client(&server);
    client.command(&["SET", "k", "v"]).unwrap();
    for command in ["WAIT 0 0", "WAITAOF 0 0 0"] {
        let error = client.command(&Command::new(command)).unwrap_err();
        assert!(matches!(error, Error::NotShareable(_)), "{error:?}");
        assert!(error.to_string().contains("Client::dedicated"), "{error}");
    }
    let mut own = client.dedicated().unwrap();
    own.command(&["SET", "k", "v2"]).unwrap();
    assert_eq!(own.command(&["WAIT", "0", "0"]).unwrap(), Value::Int(0));
}

#[test]
fn dedicated_connections_are_bounded() {
    on_both(&[], |server| {
        let mut config = config(server);
        config.connect_timeout = Duration::from_millis(50);
        let mut options = ClientOptions::default();
        options.dedicated_max = 2;
        let client = Client::with_options(&config, options).unwrap();
        let mut first = client.dedicated().unwrap();
        let second = client.dedicated().unwrap();
        assert!(matches!(client.dedicated(), Err(Error::Limit("dedicated_max"))));
        first.command(&["SELECT", "1"]).unwrap();
        first.command(&["SET", "k", "v"]).unwrap();
        drop(first);
        let mut third = client.dedicated().unwrap();
        // Changes that the first caller made to its connection end with it.
        assert_eq!(third.command(&["EXISTS", "k"]).unwrap(), Value::Int(0));
        drop((second, third));
    });
}

#[test]
fn a_killed_connection_is_made_anew() {
    on_both(&[], |server| {
        let mut config = config(server);
        config.client_name = Some(b"shared".to_vec());
        let client = Client::connect(&config).unwrap();
        let mut other = connect(server);
        for round in 1..=3 {
            assert_eq!(client.command(&["SET", "k", "v"]).unwrap(), ok());
            let Value::Int(id) = client.command(&["CLIENT", "ID"]).unwrap() else { panic!("no id") };
            other.command(&Command::new("CLIENT KILL ID").arg(id)).unwrap();
            while other.command(&Command::new("CLIENT LIST ID").arg(id)).unwrap() != bulk("") {
                thread::sleep(Duration::from_millis(1));
            }
            // Long enough that the idle connection is checked before use, and the caller doesn't notice the loss.
            thread::sleep(Duration::from_millis(150));
            assert_eq!(client.command(&["GET", "k"]).unwrap(), bulk("v"));
            assert_eq!(client.reconnections(), round);
        }
        assert_eq!(client.command(&["CLIENT", "GETNAME"]).unwrap(), bulk("shared"));
    });
}

#[test]
fn a_server_that_comes_back_is_found_again() {
    // No other test takes this port while nobody listens on it.
    let port = free_port().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let answer = |listener: &TcpListener| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut chunk = [0; 100];
        let n = stream.read(&mut chunk).unwrap();
        if n > 0 {
            stream.write_all(b"+PONG\r\n").unwrap();
        }
    };
    let away = thread::spawn(move || {
        answer(&listener);
        drop(listener);
        wait_until_refused(port).unwrap();
        thread::sleep(Duration::from_millis(300));
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        answer(&listener);
        drop(listener);
        wait_until_refused(port).unwrap();
    });
    let mut options = ClientOptions::default();
    options.give_up_after = Duration::from_secs(20);
    let client = Client::with_options(&Config::tcp("127.0.0.1", port), options).unwrap();
    client.command(&["PING"]).unwrap();
    thread::sleep(Duration::from_millis(150));
    client.command(&["PING"]).unwrap();
    assert_eq!(client.reconnections(), 1);
    away.join().unwrap();
    let mut options = ClientOptions::default();
    options.give_up_after = Duration::from_millis(100);
    let error = Client::with_options(&Config::tcp("127.0.0.1", port), options).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
}

#[test]
fn giving_up_is_reported_to_all_waiters() {
    let port = free_port().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let config = Config::tcp("127.0.0.1", port);
    let mut options = ClientOptions::default();
    options.give_up_after = Duration::from_millis(200);
    let client = Client::with_options(&config, options).unwrap();
    drop(listener);
    wait_until_refused(port).unwrap();
    thread::sleep(Duration::from_millis(150));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let error = client.command(&["INCR", "k"]).unwrap_err();
                assert!(matches!(error, Error::Connect { .. }), "{error:?}");
                assert_eq!(error.fate(), Fate::NotRun);
            });
        }
    });
}

#[test]
fn push_messages_of_the_shared_connection() {
    on_both(&[], |server| {
        let mut config = config(server);
        config.proto = Proto::Resp3;
        let client = Client::connect(&config).unwrap();
        let Value::Int(id) = client.command(&["CLIENT", "ID"]).unwrap() else { panic!("no id") };
        let mut reader = connect(server);
        let tracking = reader.command(&Command::new("CLIENT TRACKING ON REDIRECT").arg(id));
        // Penstock may lack client-side caching.
        if tracking.is_err() && server.log().contains("Penstock") {
            return;
        }
        reader.command(&["GET", "k"]).unwrap();
        connect(server).command(&["SET", "k", "v"]).unwrap();
        client.command(&["PING"]).unwrap();
        let expected = Value::Push(vec![bulk("invalidate"), Value::Array(vec![bulk("k")])]);
        assert_eq!(client.take_pushes(), [expected]);
        assert_eq!(client.take_pushes(), []);
    });
}
