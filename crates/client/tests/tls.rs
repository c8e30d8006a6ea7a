//! Encrypted connections, against Redis itself.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use client::{Client, Command, Config, Connection, Error, Proto, Value, Window};
use common::{PATIENCE, bulk, ok};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tests::server::{Server, free_port};

/// An authority, a server's and a client's certificate of it, in files that go when the test ends.
struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    fn new() -> Certificates {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("penstock-client-tls-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let certificates = Certificates { directory: std::env::temp_dir().join(name) };
        fs::create_dir_all(&certificates.directory).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        certificates.write("ca.pem", &authority.pem());
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".to_owned(), "other.example".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, &authority).unwrap();
            certificates.write(&format!("{name}.pem"), &certificate.pem());
            certificates.write(&format!("{name}.key"), &key.serialize_pem());
        }
        certificates
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Redis with an encrypted port; whether it asks clients for a certificate.
    fn server(&self, asks: bool) -> (Server, Config) {
        let port = free_port().unwrap();
        let (cert, key, ca) = (self.text("server.pem"), self.text("server.key"), self.text("ca.pem"));
        let asks = if asks { "yes" } else { "no" };
        let server = Server::oracle(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &cert,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &ca,
            "--tls-auth-clients",
            asks,
        ]);
        let mut config = Config::parse(&format!("rediss://localhost:{port}")).unwrap();
        config.tls_options.ca_file = Some(self.path("ca.pem"));
        (server, config)
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn refusal(config: &Config) -> String {
    Connection::connect(config).unwrap_err().to_string()
}

#[test]
fn commands_pipelines_and_messages() {
    let certificates = Certificates::new();
    let (_server, mut config) = certificates.server(false);
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

/// Redis doesn't read while it can't write, over TLS; large values both ways fill every buffer there is.
#[test]
fn large_values_both_ways_at_once() {
    let certificates = Certificates::new();
    let (_server, config) = certificates.server(false);
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
fn whom_to_trust() {
    let certificates = Certificates::new();
    let (_server, config) = certificates.server(false);
    let with = |change: &dyn Fn(&mut Config)| {
        let mut config = config.clone();
        change(&mut config);
        config
    };
    let others = Certificates::new();
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
fn who_we_are() {
    let certificates = Certificates::new();
    let (_server, mut config) = certificates.server(true);
    let anonymous = Connection::connect(&config).and_then(|mut connection| connection.command(&["PING"]));
    assert!(anonymous.unwrap_err().is_connection_lost());
    config.tls_options.cert_file = Some(certificates.path("client.pem"));
    assert_eq!(refusal(&config), "TLS: a certificate needs its key, and a key its certificate");
    config.tls_options.key_file = Some(certificates.path("client.key"));
    assert!(Connection::connect(&config).unwrap().command(&["PING"]).is_ok());
    config.tls_options.ca_file = Some(certificates.path("client.key"));
    assert!(refusal(&config).ends_with("client.key can't be used: it has no certificate"));
    config.tls_options.ca_file = Some("/nowhere.pem".into());
    assert!(refusal(&config).starts_with("TLS: /nowhere.pem can't be used: "));
}

#[test]
fn who_speaks_no_tls() {
    let certificates = Certificates::new();
    let (server, mut config) = certificates.server(false);
    config.address = common::config(&server).address;
    let error = Connection::connect(&config).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    config.address = Config::tcp("127.0.0.1", listener.local_addr().unwrap().port()).address;
    config.connect_timeout = Duration::from_millis(50);
    let error = Connection::connect(&config).unwrap_err();
    assert!(error.is_timeout() && error.to_string().ends_with("the TLS handshake took too long"), "{error}");
}
