//! The encrypted HTTP port, with the certificate of the TLS port, and on servers without a TLS port.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;

use penstock_tests::certificates::Certificates;
use penstock_tests::conn::PATIENCE;
use penstock_tests::ports::free_port;
use penstock_tests::server::{Server, comes_true};
use penstock_tests::tls_conn::TlsClient;

/// Starts a server with TLS on its HTTP port only. Returns it with the port's number.
fn subject(certificates: &Certificates, asks: &str, args: &[&str]) -> (Server, u16) {
    let port = free_port().unwrap();
    let (number, cert, key) = (port.to_string(), certificates.text("server.pem"), certificates.text("server.key"));
    let own = ["--http-port", &number, "--http-tls", "yes", "--tls-cert-file", &cert, "--tls-key-file", &key];
    let ca = certificates.text("ca.pem");
    let asks = ["--tls-ca-cert-file", &ca, "--tls-auth-clients", asks];
    (Server::penstock(&[&own[..], &asks, args].concat()), port)
}

/// Sends a request, and reads the whole response until the server closes the connection.
fn answer(stream: &mut (impl Read + Write), request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn ask(client: &TlsClient, port: u16, body: &str) -> String {
    let head =
        format!("POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    client.connect(port).map_or_else(|error| error.to_string(), |mut conn| answer(&mut conn.0, &(head + body)))
}

#[test]
fn commands_and_figures_are_answered_encrypted() {
    let certificates = Certificates::create();
    let (server, port) = subject(&certificates, "no", &[]);
    let client = TlsClient::new(&certificates, None);
    assert!(ask(&client, port, r#"["SET", "k", "v"]"#).ends_with(r#"{"result":"OK"}"#));
    assert_eq!(server.connect().cmd("GET k").unwrap().text(), b"v");
    let mut conn = client.connect(port).unwrap();
    let figures = answer(&mut conn.0, "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(figures.starts_with("HTTP/1.1 200 OK\r\n") && figures.contains("\nredis_up 1\n"), "{figures}");
    // A reply larger than all buffers on its way.
    let large = "x".repeat(8_000_000);
    assert!(ask(&client, port, &format!(r#"["SET", "large", "{large}"]"#)).ends_with(r#"{"result":"OK"}"#));
    assert!(ask(&client, port, r#"["GET", "large"]"#).ends_with(&format!("{large}\"}}")));
}

#[test]
fn plain_http_gets_an_error_and_runs_no_command() {
    let certificates = Certificates::create();
    let (mut server, port) = subject(&certificates, "no", &["--http-max-connections", "2"]);
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    let answer = answer(&mut plain, "GET /set/k/v HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
    // Silent clients, broken connections and invalid handshakes do no harm.
    let client = TlsClient::new(&certificates, None);
    for begin in [&b""[..], b"\x16", b"\x16\x03\x01\x00\x05hello", &[0x16; 2000]] {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.write_all(begin).unwrap();
    }
    assert!(comes_true(|| ask(&client, port, r#"["GET", "k"]"#).ends_with(r#"{"result":null}"#)));
    assert!(server.is_alive());
}

#[test]
fn clients_need_certificates_like_on_the_tls_port() {
    let certificates = Certificates::create();
    let (server, port) = subject(&certificates, "yes", &["--tls-auth-clients-user", "CN", "--requirepass", "secret"]);
    let refused = ask(&TlsClient::new(&certificates, None), port, r#"["PING"]"#);
    assert!(!refused.contains("HTTP/1.1"), "{refused}");
    let stranger = ask(&TlsClient::new(&certificates, Some("stranger")), port, r#"["PING"]"#);
    assert!(!stranger.contains("HTTP/1.1"), "{stranger}");
    // The certificate admits the connection, but the token selects the user.
    let shown = ask(&TlsClient::new(&certificates, Some("default")), port, r#"["PING"]"#);
    assert!(shown.starts_with("HTTP/1.1 401 "), "{shown}");
    drop(server);
}

#[test]
fn certificates_are_read_again_and_the_port_becomes_plain_and_encrypted() {
    let certificates = Certificates::create();
    let (server, port) = subject(&certificates, "no", &["--tls-auto-reload-interval", "1"]);
    let client = TlsClient::new(&certificates, None);
    let shown = || client.connect(port).ok().map(|conn| conn.0.conn.peer_certificates().unwrap()[0].to_vec());
    let before = shown();
    assert!(before.is_some());
    certificates.replace("server", "renewed");
    assert!(comes_true(|| shown().is_some_and(|now| Some(now) != before)));
    let mut admin = server.connect();
    assert_eq!(admin.cmd("CONFIG SET http-tls no").unwrap().text(), b"OK");
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    let answer = answer(&mut plain, "GET /ping HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    assert!(answer.ends_with(r#"{"result":"PONG"}"#), "{answer}");
    assert_eq!(admin.cmd("CONFIG SET http-tls yes").unwrap().text(), b"OK");
    assert!(shown().is_some());
}

#[test]
fn there_is_no_port_without_a_certificate() {
    let (number, server) = (free_port().unwrap().to_string(), Server::penstock(&["--http-tls", "yes"]));
    assert_eq!(server.connect().cmd("PING").unwrap().text(), b"PONG");
    let plain = Server::penstock(&["--http-port", &number]);
    let refusal = plain.connect().cmd("CONFIG SET http-tls yes").unwrap();
    assert!(
        refusal.text().ends_with(b"Unable to update TLS configuration. Check server logs."),
        "{}",
        refusal.escaped()
    );
    assert!(plain.log().contains("No tls-cert-file configured"), "{}", plain.log());
    assert_eq!(plain.connect().cmd("CONFIG GET http-tls").unwrap().items()[1].text(), b"no");
}
