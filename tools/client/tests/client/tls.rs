//! Encrypted connections, with Redis.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use crate::common::{PATIENCE, bulk, ok};
use client::{Client, Command, Config, Connection, Error, Proto, Value, Window};
use tests::certificates::Certificates;
use tests::server::Server;

/// Starts Redis with a TLS port, and returns its configuration.
fn server(certificates: &Certificates, asks: bool) -> (Server, Config) {
    let (server, port) = certificates.server(asks);
    let mut config = Config::parse(&format!("rediss://localhost:{port}")).unwrap();
    config.tls_options.ca_file = Some(certificates.path("ca.pem"));
    (server, config)
}

fn refusal(config: &Config) -> String {
    Connection::connect(config).unwrap_err().to_string()
}

#[test]
fn commands_pipelines_and_messages() {
    let certificates = Certificates::create();
    let (_server, mut config) = server(&certificates, false);
    config.proto = Proto::Resp3;
    let mut connection = Connection::connect(&config).unwrap();
    assert_eq!(connection.command(&["SET", "k", "v"]).unwrap(), ok());
    let requests = (0..50_000).map(|i| Command::new("ECHO").arg(i));
    let answered = Window::default().run_each(&mut connection, requests, |index, reply| {
        assert_eq!(reply, bulk(&index.to_string()));
    });
    assert_eq!(answered.unwrap(), 50_000);
    let client = Client::connect(&config).unwrap();
    let mut subscriber = client.subscribe(&["news"]).unwrap();
    client.command(&["PUBLISH", "news", "x"]).unwrap();
    assert_eq!(subscriber.next(PATIENCE).unwrap().unwrap().payload, b"x");
    thread::scope(|scope| {
        for thread in 0..8 {
            let client = &client;
            scope.spawn(move || {
                for round in 1..=200 {
                    assert_eq!(client.command(&["INCR", &format!("k{thread}")]).unwrap(), Value::Int(round));
                }
            });
        }
    });
}

/// Over TLS, Redis doesn't read while it can't write. Large values in both directions fill every buffer.
#[test]
fn large_values_both_ways_at_once() {
    let certificates = Certificates::create();
    let (_server, config) = server(&certificates, false);
    let mut connection = Connection::connect(&config).unwrap();
    let value = "x".repeat(1_000_000);
    connection.command(&["SET", "k", &value]).unwrap();
    let requests = (0..100).map(|i| match i % 2 {
        0 => vec!["GET", "k"],
        _ => vec!["SET", "other", value.as_str()],
    });
    let answered = Window::default().run_each(&mut connection, requests, |index, reply| {
        assert_eq!(reply.bytes().unwrap().len(), if index % 2 == 0 { value.len() } else { 2 });
    });
    assert_eq!(answered.unwrap(), 100);
}

#[test]
fn trusted_certificates() {
    let certificates = Certificates::create();
    let (_server, config) = server(&certificates, false);
    let with = |change: &dyn Fn(&mut Config)| {
        let mut config = config.clone();
        change(&mut config);
        config
    };
    let others = Certificates::create();
    let of_others = with(&|config| config.tls_options.ca_file = Some(others.path("ca.pem")));
    assert!(refusal(&of_others).contains("invalid peer certificate"), "{}", refusal(&of_others));
    let insecure = with(&|config| {
        config.tls_options.ca_file = None;
        config.tls_options.insecure = true;
    });
    assert!(Connection::connect(&insecure).is_ok());
    let by_name = |name: &str| with(&|config| config.tls_options.server_name = Some(name.to_owned()));
    assert!(Connection::connect(&by_name("other.example")).is_ok());
    assert!(refusal(&by_name("elsewhere.example")).contains("not valid for name"));
    assert!(refusal(&by_name("not a name")).starts_with("TLS: "));
}

#[test]
fn the_client_shows_its_certificate() {
    let certificates = Certificates::create();
    let (_server, mut config) = server(&certificates, true);
    let anonymous = Connection::connect(&config).and_then(|mut connection| connection.command(&["PING"]));
    assert!(anonymous.unwrap_err().is_connection_lost());
    config.tls_options.cert_file = Some(certificates.path("client.pem"));
    assert_eq!(refusal(&config), "TLS: a certificate needs its key, and a key its certificate");
    config.tls_options.key_file = Some(certificates.path("client.key"));
    assert!(Connection::connect(&config).unwrap().command(&["PING"]).is_ok());
    config.tls_options.ca_file = Some(certificates.path("client.key"));
    assert!(refusal(&config).ends_with("client.key can't be used: the file has no certificate"));
    config.tls_options.ca_file = Some("/nowhere.pem".into());
    assert!(refusal(&config).starts_with("TLS: /nowhere.pem can't be used: "));
}

#[test]
fn a_server_without_tls_is_explained() {
    let certificates = Certificates::create();
    let (server, mut config) = server(&certificates, false);
    config.address = crate::common::config(&server).address;
    let error = Connection::connect(&config).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    config.address = Config::tcp("127.0.0.1", listener.local_addr().unwrap().port()).address;
    config.connect_timeout = Duration::from_millis(50);
    let error = Connection::connect(&config).unwrap_err();
    assert!(
        error.is_timeout() && error.to_string().contains("the TLS handshake took too long; the server may"),
        "{error}"
    );
    // Another kind of server takes the first TLS message for a command, and answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    config.address = Config::tcp("127.0.0.1", listener.local_addr().unwrap().port()).address;
    config.connect_timeout = PATIENCE;
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"-ERR Protocol error: unbalanced quotes in request\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let refusal = refusal(&config);
    assert!(refusal.contains("the server doesn't speak TLS at this port"), "{refusal}");
    answering.join().unwrap();
}
