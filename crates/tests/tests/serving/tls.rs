//! TLS from outside: everything that plain connections can do, certificates, broken and hostile clients, and changes at
//! run time.

// Tests fail by panicking.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_tests::certificates::Certificates;
use penstock_tests::conn::{Conn, PATIENCE};
use penstock_tests::directory::Directory;
use penstock_tests::ports::free_port;
use penstock_tests::server::{Server, comes_true, subject_program};
use penstock_tests::tls_conn::{TlsClient, TlsConn};

/// Starts a server that needs no client certificate. Returns it with its certificates and a client.
fn subject(args: &[&str]) -> (Certificates, Server, u16, TlsClient) {
    let certificates = Certificates::create();
    let (server, port) = certificates.penstock("no", args);
    let client = TlsClient::new(&certificates, None);
    (certificates, server, port, client)
}

/// Encodes a request.
fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.len()).bytes());
        bytes.extend(*word);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn is_served(client: &TlsClient, port: u16) -> bool {
    client.connect(port).and_then(|mut conn| conn.asks("PING\r\n", "+PONG\r\n")).unwrap_or(false)
}

#[test]
fn commands_pipelines_and_large_values_go_both_ways_in_both_versions() {
    let (certificates, server, port, _) = subject(&["--threads", "2"]);
    for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12]] {
        let mut conn = TlsClient::with_versions(&certificates, None, versions).connect(port).unwrap();
        conn.ask("PING\r\n", "+PONG\r\n");
        conn.ask("SET k v\r\nGET k\r\n", "+OK\r\n$1\r\nv\r\n");
        // Several megabytes in both directions at once.
        let value = vec![b'x'; 10_000];
        let many = 500;
        let writes = request(&[b"SET", b"large", &value]).repeat(many);
        let reads = request(&[b"GET", b"large"]).repeat(many);
        let expected = [b"$10000\r\n", &value[..], b"\r\n"].concat().repeat(many);
        conn.0.write_all(&writes).unwrap();
        conn.expect(&b"+OK\r\n".repeat(many));
        conn.0.write_all(&reads).unwrap();
        conn.expect(&expected);
        // A value of 100 MB, which the server receives in a buffer of its own, and so does the client.
        let huge: Vec<u8> = (0..100_000_000u32).map(|i| (i % 251) as u8).collect();
        conn.0.write_all(&request(&[b"SET", b"huge", &huge])).unwrap();
        conn.expect(b"+OK\r\n");
        conn.0.write_all(b"GET huge\r\n").unwrap();
        conn.expect(&[b"$100000000\r\n", &huge[..], b"\r\n"].concat());
        conn.ask("DEL huge\r\nQUIT\r\n", ":1\r\n+OK\r\n");
        // The server announces the end (close_notify), so the client can distinguish it from a cut.
        assert_eq!(conn.0.read(&mut [0; 10]).unwrap(), 0);
    }
    assert_eq!(server.connect().cmd("GET k").unwrap().text(), b"v");
}

#[test]
fn waits_messages_and_transactions_work_between_threads() {
    let (_certificates, server, port, client) = subject(&["--threads", "2"]);
    let mut conns: Vec<TlsConn> = (0..4).map(|_| client.connect(port).unwrap()).collect();
    for conn in &mut conns {
        conn.0.write_all(b"BLPOP list 0\r\n").unwrap();
    }
    server.wait_until("all wait", |server| server.figure("blocked_clients") == 4);
    for _ in 0..4 {
        server.connect().cmd("RPUSH list x").unwrap();
    }
    for conn in &mut conns {
        conn.expect(b"*2\r\n$4\r\nlist\r\n$1\r\nx\r\n");
        conn.ask("SUBSCRIBE c\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n");
    }
    let mut publisher = client.connect(port).unwrap();
    let text = "m".repeat(100_000);
    for _ in 0..20 {
        publisher.0.write_all(&request(&[b"PUBLISH", b"c", text.as_bytes()])).unwrap();
        publisher.expect(b":4\r\n");
    }
    let message = format!("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$100000\r\n{text}\r\n");
    for conn in &mut conns {
        conn.expect(message.repeat(20).as_bytes());
    }
    publisher.ask("MULTI\r\nINCR n\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n");
}

#[test]
fn a_stream_cut_at_any_byte_runs_only_complete_requests() {
    let (_certificates, mut server, port, client) = subject(&[]);
    let whole = {
        let mut conn = client.connect(port).unwrap();
        conn.encrypted(b"INCR cut\r\n").len()
    };
    for cut in 0..=whole {
        let mut conn = client.connect(port).unwrap();
        let bytes = conn.encrypted(b"INCR cut\r\n");
        conn.0.sock.write_all(&bytes[..cut]).unwrap();
        conn.0.sock.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _ = conn.0.sock.read_to_end(&mut rest);
    }
    // Byte by byte the effect is the same.
    let mut conn = client.connect(port).unwrap();
    for byte in conn.encrypted(b"INCR cut\r\n") {
        conn.0.sock.write_all(&[byte]).unwrap();
    }
    conn.expect(b":2\r\n");
    // A byte changed on its way ends the connection.
    let mut conn = client.connect(port).unwrap();
    let mut bytes = conn.encrypted(b"INCR cut\r\n");
    *bytes.last_mut().unwrap() ^= 1;
    conn.0.sock.write_all(&bytes).unwrap();
    assert!(conn.0.read(&mut [0; 10]).is_err());
    assert_eq!(server.connect().cmd("GET cut").unwrap().text(), b"2");
    assert!(server.is_alive());
    server.wait_until("they are gone", |server| server.figure("connected_clients") <= 2);
}

#[test]
fn a_client_that_has_closed_its_sending_side_gets_all_replies() {
    let (_certificates, _server, port, client) = subject(&["--threads", "1"]);
    let list: String = (0..500).map(|i| format!(" {i}")).collect();
    let mut conn = client.connect(port).unwrap();
    conn.ask(&format!("RPUSH list{list}\r\n"), ":500\r\n");
    for is_cut in [false, true] {
        let mut conn = client.connect(port).unwrap();
        // Too much to run in one turn.
        let many = 3000;
        conn.0.write_all(&b"LPOS list 499\r\n".repeat(many)).unwrap();
        conn.0.conn.send_close_notify();
        conn.0.flush().unwrap();
        if is_cut {
            conn.0.sock.shutdown(Shutdown::Write).unwrap();
        }
        conn.expect(&b":499\r\n".repeat(many));
        assert_eq!(conn.0.read(&mut [0; 10]).unwrap(), 0);
    }
}

#[test]
fn invalid_handshakes_are_refused_and_slow_ones_delay_no_other() {
    let (_certificates, server, port, client) = subject(&["--loglevel", "verbose"]);
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain.write_all(b"PING\r\n*1\r\n$4\r\nPING\r\n").unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"+PONG"));
    // Other clients that stay silent, or send only the beginning of a handshake.
    let slow: Vec<TcpStream> = (0..200)
        .map(|i| {
            let mut slow = TcpStream::connect(("127.0.0.1", port)).unwrap();
            slow.write_all(&[22, 3, 1, 1, 0][..i % 6]).unwrap();
            slow
        })
        .collect();
    assert!(is_served(&client, port));
    server.wait_until("slow ones are given up", |server| {
        server.log().matches("the handshake took too long").count() >= 200
    });
    drop(slow);
    assert!(is_served(&client, port));
}

#[test]
fn clients_are_known_by_their_certificates() {
    let certificates = Certificates::create();
    for (asks, nothing) in [("yes", false), ("optional", true), ("no", true)] {
        let (_server, port) = certificates.penstock(asks, &[]);
        let served = |shows: Option<&str>| is_served(&TlsClient::new(&certificates, shows), port);
        assert_eq!(served(None), nothing, "{asks}");
        assert!(served(Some("client")), "{asks}");
        // A certificate that isn't required isn't checked.
        assert_eq!(served(Some("expired")), asks == "no", "{asks}");
        assert_eq!(served(Some("stranger")), asks == "no", "{asks}");
    }
}

#[test]
fn a_certificate_may_stand_for_the_password() {
    let certificates = Certificates::create();
    let (server, port) = certificates.penstock("yes", &["--requirepass", "secret", "--tls-auth-clients-user", "CN"]);
    let refused = "-NOAUTH Authentication required.\r\n";
    let mut conn = TlsClient::new(&certificates, Some("client")).connect(port).unwrap();
    conn.ask("GET k\r\n", refused);
    conn.ask("AUTH secret\r\nGET k\r\n", "+OK\r\n$-1\r\n");
    let user = TlsClient::new(&certificates, Some("default"));
    user.connect(port).unwrap().ask("GET k\r\n", "$-1\r\n");
    server.connect().pipeline(&[["AUTH", "secret"].map(|w| w.as_bytes().to_vec()).to_vec()]).unwrap();
    let mut admin = user.connect(port).unwrap();
    admin.ask("CONFIG SET tls-auth-clients-user off\r\n", "+OK\r\n");
    user.connect(port).unwrap().ask("GET k\r\n", refused);
}

/// A slow handshake makes way for others, and all unfinished handshakes share the memory of unauthenticated clients.
#[test]
fn unfinished_handshakes_take_bounded_memory_and_block_no_other() {
    const HALVES: usize = 1200;
    let (_certificates, server, port, client) = subject(&["--unauthenticated-input-total", "1mb"]);
    assert!(is_served(&client, port));
    let hello = client.hello();
    // A message of 60,000 bytes, two records of which have arrived.
    let record = [&[22, 3, 1, 0x40, 0][..], &[1, 0, 0xea, 0x60], &[0; 0x3ffc]].concat();
    let rest = [&[22, 3, 3, 0x40, 0][..], &[0; 0x4000]].concat();
    let long = [record, rest].concat();
    let before = server.resident_kib();
    let halves: Vec<TcpStream> = (0..HALVES)
        .map(|number| {
            let mut half = TcpStream::connect(("127.0.0.1", port)).unwrap();
            // A connection that was closed refuses the bytes.
            let _ = half.write_all([&b""[..], &hello[..9], &hello, &long][number % 4]);
            half
        })
        .collect();
    let began = Instant::now();
    assert!(is_served(&client, port), "after {:?}", began.elapsed());
    let grown = server.resident_kib().saturating_sub(before);
    assert!(grown < 8 * 1024, "{HALVES} halves of handshakes take {grown} KiB");
    assert!(is_served(&client, port));
    drop(halves);
    server.wait_until("they are gone", |server| server.figure("connected_clients") <= 2);
    assert!(began.elapsed() < Duration::from_secs(30) && is_served(&client, port));
}

/// A handshake that began late is not late itself.
#[test]
fn clients_behind_silent_ones_are_all_served() {
    const SILENT: usize = 500;
    const CLIENTS: usize = 150;
    let (_certificates, _server, port, client) = subject(&["--unauthenticated-input-total", "1mb"]);
    let (client, hello) = (client.forgetful(), client.hello());
    let silent: Vec<TcpStream> = (0..SILENT)
        .map(|_| {
            let mut silent = TcpStream::connect(("127.0.0.1", port)).unwrap();
            silent.write_all(&hello).unwrap();
            silent
        })
        .collect();
    let served = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| is_served(&client, port))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).filter(|served| *served).count()
    });
    assert_eq!((served, silent.len()), (CLIENTS, SILENT));
}

#[test]
fn files_are_read_again_when_they_are_set_and_when_they_have_changed() {
    let (certificates, server, port, client) = subject(&["--tls-auto-reload-interval", "0"]);
    let shown = |client: &TlsClient| {
        let conn = client.connect(port).unwrap();
        conn.0.conn.peer_certificates().unwrap()[0].to_vec()
    };
    let before = shown(&client);
    let mut old = client.connect(port).unwrap();
    // Under load.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut served = 0;
            while !stop.load(Ordering::Relaxed) {
                assert!(is_served(&client, port));
                served += 1;
            }
            served
        });
        certificates.replace("server", "renewed");
        assert_eq!(shown(&client), before, "nothing has asked for it");
        let mut admin = server.connect();
        let set = format!("CONFIG SET tls-cert-file {} ", certificates.text("server.pem"));
        let set = set + &format!("tls-key-file {}", certificates.text("server.key"));
        assert_eq!(admin.cmd(&set).unwrap().text(), b"OK");
        assert_ne!(shown(&client), before);
        // Invalid files change nothing.
        let error = admin.cmd("CONFIG SET tls-cert-file /nonexistent").unwrap();
        let expected = "ERR CONFIG SET failed (possibly related to argument 'tls-cert-file') - Unable to update TLS \
                        configuration. Check server logs.";
        assert_eq!(String::from_utf8_lossy(error.text()), expected);
        assert_ne!(shown(&client), before);
        // A changed file is noticed if this is configured.
        let renewed = shown(&client);
        assert_eq!(admin.cmd("CONFIG SET tls-auto-reload-interval 1").unwrap().text(), b"OK");
        certificates.replace("server", "client");
        assert!(comes_true(|| client
            .connect(port)
            .is_ok_and(|conn| { conn.0.conn.peer_certificates().unwrap()[0].to_vec() != renewed })));
        stop.store(true, Ordering::Relaxed);
        assert!(traffic.join().unwrap() > 0);
    });
    old.ask("PING\r\n", "+PONG\r\n");
}

#[test]
fn a_client_that_does_not_read_has_its_replies_put_on_disk_and_gets_all_of_them() {
    let (_certificates, server, port, client) = subject(&["--reply-memory-limit", "1mb"]);
    let mut conn = client.connect(port).unwrap();
    let value = "v".repeat(1_000_000);
    conn.0.write_all(&request(&[b"SET", b"k", value.as_bytes()])).unwrap();
    conn.expect(b"+OK\r\n");
    let many = 60;
    conn.0.write_all("GET k\r\n".repeat(many).as_bytes()).unwrap();
    server.wait_until("they are on disk", |server| server.nameless_files().iter().sum::<u64>() > 10_000_000);
    let expected = format!("$1000000\r\n{value}\r\n");
    for _ in 0..many {
        conn.expect(expected.as_bytes());
    }
    conn.ask("PING\r\n", "+PONG\r\n");
}

#[test]
fn a_client_that_writes_without_reading_is_held_up_and_then_served() {
    let (_certificates, _server, port, client) = subject(&["--reply-spill-limit", "0"]);
    let mut conn = client.connect(port).unwrap();
    let value = "v".repeat(100_000);
    conn.0.write_all(&request(&[b"SET", b"k", value.as_bytes()])).unwrap();
    conn.expect(b"+OK\r\n");
    conn.0.sock.set_nonblocking(true).unwrap();
    let mut bytes = conn.encrypted("GET k\r\n".repeat(100_000).as_bytes());
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) && !bytes.is_empty() {
        match conn.0.sock.write(&bytes) {
            Ok(written) => drop(bytes.drain(..written)),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    conn.0.sock.set_nonblocking(false).unwrap();
    let expected = format!("$100000\r\n{value}\r\n");
    for _ in 0..500 {
        conn.expect(expected.as_bytes());
    }
}

#[test]
fn the_port_can_be_opened_and_closed_while_it_runs() {
    let certificates = Certificates::create();
    let server = Server::penstock(&["--tls-auth-clients", "no"]);
    let port = penstock_tests::ports::free_port().unwrap();
    let mut admin = server.connect();
    let refusal = admin.cmd(&format!("CONFIG SET tls-port {port}")).unwrap();
    assert!(refusal.text().ends_with(b"Unable to update TLS configuration. Check server logs."), "{refusal:?}");
    assert!(server.log().contains("No tls-cert-file configured"), "{}", server.log());
    let (cert, key) = (certificates.text("server.pem"), certificates.text("server.key"));
    let set = format!("CONFIG SET tls-port {port} tls-cert-file {cert} tls-key-file {key}");
    assert_eq!(admin.cmd(&set).unwrap().text(), b"OK");
    let client = TlsClient::new(&certificates, None);
    assert!(comes_true(|| is_served(&client, port)));
    let info = admin.cmd("INFO server").unwrap();
    assert!(String::from_utf8_lossy(info.text()).contains(&format!("name=tls,bind=127.0.0.1,port={port}\r\n")));
    assert_eq!(admin.cmd("CONFIG SET tls-port 0").unwrap().text(), b"OK");
    assert!(comes_true(|| TcpStream::connect(("127.0.0.1", port)).is_err()));
}

#[test]
fn protocols_and_ciphers_are_those_configured() {
    let certificates = Certificates::create();
    let only_old = TlsClient::with_versions(&certificates, None, &[&rustls::version::TLS12]);
    let cipher = "ECDHE-ECDSA-CHACHA20-POLY1305";
    let (_server, port) = certificates.penstock("no", &["--tls-protocols", "TLSv1.2", "--tls-ciphers", cipher]);
    let conn = only_old.connect(port).unwrap();
    let suite = conn.0.conn.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, rustls::CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256);
    let (_server, port) = certificates.penstock("no", &["--tls-protocols", "TLSv1.3"]);
    assert!(only_old.connect(port).is_err() && is_served(&TlsClient::new(&certificates, None), port));
}

#[test]
fn returning_clients_resume_their_session_unless_disabled() {
    use rustls::HandshakeKind;
    let (_certificates, server, port, client) = subject(&[]);
    let kind = |client: &TlsClient| {
        let mut conn = client.connect(port).unwrap();
        conn.ask("PING\r\n", "+PONG\r\n");
        conn.0.conn.handshake_kind().unwrap()
    };
    assert_eq!(kind(&client), HandshakeKind::Full);
    assert_eq!(kind(&client), HandshakeKind::Resumed);
    assert_eq!(kind(&client.forgetful()), HandshakeKind::Full);
    server.connect().cmd("CONFIG SET tls-session-caching no").unwrap();
    assert_eq!(kind(&client), HandshakeKind::Full);
}

#[test]
fn a_key_may_have_a_password() {
    let certificates = Certificates::create();
    let locked = certificates.path("locked.key");
    let made = Command::new("openssl")
        .args(["pkcs8", "-topk8", "-v2", "aes256", "-passout", "pass:open sesame", "-in"])
        .arg(certificates.path("server.key"))
        .arg("-out")
        .arg(&locked)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("left out: there is no openssl");
        return;
    }
    let locked = locked.to_str().unwrap().to_owned();
    let (_server, port) =
        certificates.penstock("no", &["--tls-key-file", &locked, "--tls-key-file-pass", "open sesame"]);
    assert!(is_served(&TlsClient::new(&certificates, None), port));
}

#[test]
fn redis_cli_and_openssl_understand_it() {
    let certificates = Certificates::create();
    let (_server, port) = certificates.penstock("yes", &[]);
    let port = port.to_string();
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(|name| certificates.text(name));
    let cli = Command::new("redis-cli")
        .args(["-h", "localhost", "-p", &port, "--tls", "--cacert", &ca, "--cert", &cert, "--key", &key, "PING"])
        .output();
    match cli {
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout), "PONG\n", "{output:?}"),
        Err(_) => eprintln!("left out: there is no redis-cli"),
    }
    let command = format!(
        "printf 'PING\\r\\nQUIT\\r\\n' | openssl s_client -quiet -verify_return_error -CAfile {ca} -cert {cert} -key {key} \
         -connect localhost:{port} 2>&1"
    );
    if Command::new("openssl").arg("version").output().is_ok() {
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("+PONG\r\n+OK\r\n"), "{said}");
    }
}

/// CONFIG REWRITE writes the TLS settings of CONFIG SET, and the next start uses them.
#[test]
fn a_rewritten_configuration_encrypts_as_before() {
    let certificates = Certificates::create();
    let directory = Directory::new();
    let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| certificates.text(name));
    let ports = [free_port().unwrap(), free_port().unwrap()];
    let conf =
        directory.file("server.conf", format!("# mine\nport {}\nsave \"\"\ndir {}\n", ports[0], directory.root()));
    let start = || {
        let mut child = Command::new(subject_program()).arg(&conf).spawn().unwrap();
        assert!(comes_true(|| Conn::open(ports[0]).is_ok() || child.try_wait().unwrap().is_some()));
        child
    };
    let mut child = start();
    let mut conn = Conn::open(ports[0]).unwrap();
    let port = ports[1].to_string();
    let words: Vec<Vec<u8>> = [
        "CONFIG",
        "SET",
        "tls-cert-file",
        &cert,
        "tls-key-file",
        &key,
        "tls-ca-cert-file",
        &ca,
        "tls-auth-clients",
        "no",
        "tls-protocols",
        "TLSv1.3",
        "tls-port",
        &port,
    ]
    .map(|word| word.as_bytes().to_vec())
    .into();
    assert_eq!(conn.call(&words).unwrap().text(), b"OK");
    assert_eq!(conn.cmd("CONFIG REWRITE").unwrap().text(), b"OK");
    drop(conn);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(directory.read("server.conf").starts_with("# mine\n"));
    let mut child = start();
    let client = TlsClient::new(&certificates, None);
    // The server opens its ports one after the other.
    assert!(comes_true(|| is_served(&client, ports[1])));
    child.kill().unwrap();
    child.wait().unwrap();
}
