//! One connection, end to end, with Penstock and Redis.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::common::{bulk, config, connect, ok, on_both};
use client::{Command, Config, Connection, Error, Fate, Lost, Pipeline, Proto, Value};
use tests::server::Server;

#[test]
fn commands_and_their_replies() {
    on_both(&[], |server| {
        let mut connection = connect(server);
        assert_eq!(connection.command(&["SET", "k", "v"]).unwrap(), Value::Simple(b"OK".into()));
        assert_eq!(connection.command(&Command::new("GET").arg("k")).unwrap(), bulk("v"));
        assert_eq!(connection.command(&["GET", "none"]).unwrap(), Value::NullBulk);
        let refused = connection.command(&["INCR", "k"]).unwrap_err();
        assert_eq!(refused.to_string(), "ERR value is not an integer or out of range");
        assert_eq!(refused.server().unwrap().code(), b"ERR");
        assert_eq!(refused.fate(), Fate::Answered);
        assert!(matches!(connection.exchange(&["INCR", "k"]).unwrap(), Value::Error(_)));
        assert_eq!(connection.command(&["PING"]).unwrap(), Value::Simple(b"PONG".into()));
    });
}

#[test]
fn requests_and_replies_apart() {
    on_both(&[], |server| {
        let mut connection = connect(server);
        for i in 0..3 {
            connection.send(&Command::new("RPUSH").arg("list").arg(i));
        }
        connection.send_packed(b"PING\r\nPING\r\n", 2);
        assert!(matches!(connection.command(&["PING"]), Err(Error::Unread(5))));
        connection.flush().unwrap();
        for length in 1..=3 {
            assert_eq!(connection.read_reply().unwrap(), Value::Int(length));
        }
        assert_eq!(connection.owed(), 2);
        connection.read_reply().unwrap();
        assert!(connection.poll_reply(Duration::from_secs(20)).unwrap().is_some());
        assert_eq!(connection.poll_reply(Duration::from_millis(1)).unwrap(), None);
        assert_eq!(connection.try_reply().unwrap(), None);
    });
}

#[test]
fn the_handshake_sets_everything() {
    on_both(&["--requirepass", "hush"], |server| {
        for proto in [2, 3] {
            let port = server.port();
            let url = format!("redis://default:hush@127.0.0.1:{port}/5?protocol={proto}&client_name=some-name");
            let mut connection = Connection::connect(&Config::parse(&url).unwrap()).unwrap();
            let info = connection.command(&["CLIENT", "INFO"]).unwrap();
            let info = String::from_utf8_lossy(info.bytes().unwrap()).into_owned();
            for part in [" name=some-name ", " db=5 ", &format!(" resp={proto}")] {
                assert!(info.contains(part), "{part} in {info}");
            }
        }
    });
}

#[test]
fn refusals_of_the_server_are_reported() {
    on_both(&["--requirepass", "hush"], |server| {
        let refusal = |config: &Config| Connection::connect(config).unwrap_err().server().unwrap().code().to_vec();
        for proto in [Proto::Resp2, Proto::Resp3] {
            let mut config = config(server);
            config.proto = proto;
            config.password = Some(b"wrong".into());
            assert_eq!(refusal(&config), b"WRONGPASS");
        }
        let mut config = config(server);
        config.db = 1;
        assert_eq!(refusal(&config), b"NOAUTH");
        config.password = Some(b"hush".into());
        config.db = 99_999;
        assert_eq!(refusal(&config), b"ERR");
    });
}

#[test]
fn a_default_name_may_be_refused() {
    let server = Server::oracle(&[]);
    connect(&server).command(&["ACL", "SETUSER", "w", "on", ">pw", "~*", "+set"]).unwrap();
    let mut config = config(&server);
    config.fallback_name = Some(b"a-tool".into());
    let name = Connection::connect(&config).unwrap().command(&["CLIENT", "GETNAME"]).unwrap();
    assert_eq!(name, bulk("a-tool"));
    (config.user, config.password) = (Some(b"w".into()), Some(b"pw".into()));
    let mut connection = Connection::connect(&config).unwrap();
    assert_eq!(connection.command(&["SET", "k", "v"]).unwrap(), ok());
    config.client_name = Some(b"a-user".into());
    assert!(Connection::connect(&config).unwrap_err().to_string().starts_with("NOPERM "));
}

#[test]
fn a_full_server_says_so_even_if_the_name_is_sent_first() {
    let full = ["--maxclients", "1"];
    // With reserved connections, Penstock would accept the connection and refuse its first command on keys.
    let penstock = Server::penstock(&[&full[..], &["--operator-connections", "0"]].concat());
    for server in [penstock, Server::oracle(&full)] {
        let mut first = connect(&server);
        first.command(&["PING"]).unwrap();
        let mut config = config(&server);
        config.fallback_name = Some(b"a-tool".into());
        for db in [0, 1] {
            config.db = db;
            let error = Connection::connect(&config).unwrap_err();
            assert_eq!(error.to_string(), "ERR max number of clients reached");
        }
    }
}

#[test]
fn a_unix_socket() {
    let path = std::env::temp_dir().join(format!("penstock-client-{}.sock", std::process::id()));
    let path = path.to_str().unwrap();
    on_both(&["--unixsocket", path], |_| {
        let mut connection = Connection::connect(&Config::parse(&format!("unix://{path}")).unwrap()).unwrap();
        assert_eq!(connection.command(&["ECHO", "x"]).unwrap(), bulk("x"));
    });
}

#[test]
fn a_server_that_is_not_there() {
    let port = tests::ports::free_port().unwrap();
    let error = Connection::connect(&Config::tcp("127.0.0.1", port)).unwrap_err();
    assert_eq!(error.to_string(), format!("can't connect to 127.0.0.1:{port}: Connection refused"));
    assert_eq!(error.fate(), Fate::NotRun);
    let error = Connection::connect(&Config::unix("/nowhere")).unwrap_err();
    assert_eq!(error.to_string(), "can't connect to /nowhere: No such file or directory");
}

#[test]
fn silence_ends_with_a_timeout() {
    on_both(&[], |server| {
        let mut config = config(server);
        config.read_timeout = Some(Duration::from_millis(50));
        let mut connection = Connection::connect(&config).unwrap();
        let error = connection.command(&["BLPOP", "nothing", "0"]).unwrap_err();
        assert!(error.is_timeout() && error.is_connection_lost(), "{error:?}");
        assert_eq!(error.fate(), Fate::MayHaveRun);
        assert_eq!(error.to_string(), "no reply within 50ms; the command may have run or not");
        // The late reply must not be mistaken for another command's.
        assert_eq!(connection.command(&["PING"]).unwrap_err().fate(), Fate::NotRun);
    });
}

#[test]
fn the_end_of_a_connection_is_noticed() {
    on_both(&[], |server| {
        let mut connection = connect(server);
        let id = connection.command(&["CLIENT", "ID"]).unwrap();
        let Value::Int(id) = id else { panic!("{id:?}") };
        connect(server).command(&Command::new("CLIENT KILL ID").arg(id)).unwrap();
        let error = connection.command(&["PING"]).unwrap_err();
        assert!(matches!(error, Error::Lost { cause: Lost::Closed | Lost::Io(_), .. }), "{error:?}");
    });
}

#[test]
fn a_server_full_of_clients_says_so() {
    on_both(&["--maxclients", "1"], |server| {
        let mut first = connect(server);
        first.command(&["PING"]).unwrap();
        let error = Connection::connect(&config(server)).unwrap().command(&["PING"]).unwrap_err();
        assert_eq!(error.to_string(), "ERR max number of clients reached");
    });
}

#[test]
fn pushes_are_set_aside() {
    on_both(&[], |server| {
        let mut config = config(server);
        config.proto = Proto::Resp3;
        config.pushes_max = 2;
        let mut connection = Connection::connect(&config).unwrap();
        connection.send_unanswered(&["SUBSCRIBE", "news"]);
        let confirmed = connection.next_push(Duration::from_secs(20)).unwrap().unwrap();
        assert_eq!(confirmed, Value::Push(vec![bulk("subscribe"), bulk("news"), Value::Int(1)]));
        for text in ["a", "b", "c"] {
            // A message to the publisher itself precedes the reply.
            connection.command(&["PUBLISH", "news", text]).unwrap();
        }
        connection.command(&["PING"]).unwrap();
        assert_eq!(connection.pushes_dropped(), 1);
        for text in ["b", "c"] {
            let push = connection.next_push(Duration::ZERO).unwrap();
            assert_eq!(push, Some(Value::Push(vec![bulk("message"), bulk("news"), bulk(text)])));
        }
        assert_eq!(connection.next_push(Duration::ZERO).unwrap(), None);
        // A reply that arrives during the wait for a push isn't lost.
        connection.send(&["ECHO", "x"]);
        assert_eq!(connection.next_push(Duration::from_millis(50)).unwrap(), None);
        assert_eq!(connection.read_reply().unwrap(), bulk("x"));
    });
}

#[test]
fn a_pipeline_keeps_order_and_errors() {
    on_both(&[], |server| {
        let mut connection = connect(server);
        let mut pipeline = Pipeline::new();
        pipeline.add(&["SET", "k", "v"]).add(&["INCR", "k"]).add(&["GET", "k"]).add(&["NONSENSE"]).add(&["PING"]);
        let replies = pipeline.run(&mut connection).unwrap();
        assert_eq!(replies.len(), pipeline.len());
        assert_eq!(replies[2], bulk("v"));
        assert!(replies[1].error().is_some() && replies[3].error().is_some());
        assert_eq!(replies[4], Value::Simple(b"PONG".into()));
        assert_eq!(pipeline.run(&mut connection).unwrap(), replies);
        pipeline.clear();
        assert_eq!(pipeline.run(&mut connection).unwrap(), []);
    });
}

#[test]
fn a_pipeline_beyond_all_buffers() {
    on_both(&[], |server| {
        let mut connection = connect(server);
        let value = "x".repeat(100_000);
        connection.command(&["SET", "big", &value]).unwrap();
        let mut pipeline = Pipeline::new();
        for _ in 0..500 {
            pipeline.add(&["SET", "other", &value]).add(&["GET", "big"]);
        }
        let mut count = 0;
        let answered = pipeline.run_each(&mut connection, |index, reply| {
            assert_eq!(index, count);
            assert_eq!(reply.bytes().unwrap().len(), if index % 2 == 0 { 2 } else { value.len() });
            count += 1;
        });
        assert_eq!(answered.unwrap(), 1000);
        assert_eq!(count, 1000);
    });
}

/// Returns the CPU time of this thread, in hundredths of a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
    fields.map(|n| n.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_connection_that_has_read_ahead_enough_sleeps_until_it_can_write() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut config = client::Config::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    config.write_timeout = Some(std::time::Duration::from_secs(2));
    // Sends far more than the client reads ahead, and doesn't read until all is taken. The client ends before.
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut first = [0; 1];
        stream.read_exact(&mut first).unwrap();
        let chunk = b"+OK\r\n".repeat(1 << 16);
        while stream.write_all(&chunk).is_ok() {}
    });
    let mut connection = client::Connection::connect(&config).unwrap();
    connection.send(&client::Command::new("ECHO").arg(vec![b'x'; 32 << 20]));
    // Reading ahead takes CPU time; waiting takes none.
    let (began, before) = (std::time::Instant::now(), cpu_ticks());
    let error = connection.flush().unwrap_err();
    assert!(error.is_connection_lost() && began.elapsed().as_secs() >= 2, "{error}");
    let used = cpu_ticks() - before;
    assert!(used < 100, "{used} ticks");
    drop(connection);
    server.join().unwrap();
}
