//! `penstock advise` before a running server: through MONITOR, as a proxy, and from what the proxy recorded.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use penstock_tests::bytes::command;
use penstock_tests::certificates::Certificates;
use penstock_tests::conn::Conn;
use penstock_tests::server::{Server, comes_true, free_port, subject_program};
use penstock_tests::tls_conn::{TlsClient, TlsConn};

/// What a client does between two commands: more than what a busy machine adds to a round trip, but by chance.
const THINKS: Duration = Duration::from_millis(2);

fn advise(args: &[&str]) -> Command {
    let mut advise = Command::new(subject_program());
    advise.arg("advise").args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    advise
}

fn run(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = advise(args).output().unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (status.code(), text)
}

fn url(port: u16) -> String {
    format!("redis://127.0.0.1:{port}")
}

/// Sends SETs one by one, after thinking: without it once, all other times would be pauses.
fn set_keys(conn: &mut Conn, count: usize) {
    for key in 0..count {
        sleep(THINKS);
        conn.cmd(&format!("SET key:{key} value")).unwrap();
    }
}

#[test]
fn a_look_through_monitor_ends_by_itself() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    conn.cmd("CLIENT SETNAME importer").unwrap();
    let load = thread::spawn(move || {
        // It begins before the look and ends after it.
        set_keys(&mut conn, 1500);
    });
    let (status, text) = run(&["--for", "1500ms", "--code", "ruby", &url(server.port())]);
    load.join().unwrap();
    assert_eq!(status, Some(0), "{text}");
    for part in ["MONITOR makes a busy server slower", "SET key:<n>", "one MSET of all keys", "importer", "redis.mset"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // It is bounded by the number of commands, too.
    let mut conn = server.connect();
    let load = thread::spawn(move || set_keys(&mut conn, 300));
    let began = Instant::now();
    let (status, text) = run(&["--for", "100s", "--commands", "20", &url(server.port())]);
    assert_eq!(status, Some(0), "{text}");
    assert!(began.elapsed() < Duration::from_secs(50));
    load.join().unwrap();
}

/// Penstock shows a monitor replies and batches, so that what depends on them is certain.
#[test]
fn from_penstock_facts_are_had_through_monitor() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    conn.cmd("SET flag enabled").unwrap();
    let load = thread::spawn(move || {
        for key in 0..700 {
            sleep(THINKS);
            conn.cmd("GET flag").unwrap();
            sleep(THINKS);
            let sets: Vec<_> = (0..3).map(|field| command(&format!("HSET item:{key} f{field} x"))).collect();
            conn.pipeline(&sets).unwrap();
        }
        conn
    });
    let mut page = None;
    for _ in 0..3 {
        let file = server.dir().join("report.html");
        let (status, text) = run(&["--for", "700ms", "--html", &file.to_string_lossy(), &url(server.port())]);
        assert_eq!(status, Some(0), "{text}");
        assert!(!text.contains("HSET"), "what was sent together is no loop: {text}");
        page = fs::read_to_string(file).ok();
    }
    drop(load.join().unwrap());
    let page = page.unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"), "{page}");
    assert!(
        page.contains(&format!("127.0.0.1:{}", server.port())) && page.contains("Content-Security-Policy"),
        "{page}"
    );
}

/// A page of keys with markup in them has none of it.
#[test]
fn a_page_shows_hostile_keys_as_text() {
    let server = Server::penstock(&[]);
    let log = server.dir().join("monitor.log");
    let line = |n: u32| format!("1600000000.{:06} [0 10.0.0.5:5000] \"GET\" \"<script>alert({n})</script>\"\n", n * 80);
    fs::write(&log, (0..200).map(line).collect::<String>()).unwrap();
    let page = server.dir().join("page.html");
    let (status, text) = run(&["--html", &page.to_string_lossy(), &log.to_string_lossy()]);
    assert_eq!(status, Some(0), "{text}");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("&lt;script&gt;alert("), "{page}");
    assert!(!page.contains("<script"), "{page}");
    for language in ["Ruby", "Python", "JavaScript", "Go", "Java"] {
        assert!(page.contains(&format!("<span>{language}, ")), "{language}");
    }
    assert_eq!(run(&["--html", "/nonexistent/page.html", &log.to_string_lossy()]).0, Some(4));
}

#[test]
fn a_server_that_is_not_there_is_an_input_that_cannot_be_read() {
    let (status, text) = run(&[&url(free_port().unwrap())]);
    assert_eq!(status, Some(3), "{text}");
    assert_eq!(run(&["--proxy", "0"]).0, Some(2));
    assert_eq!(run(&[&url(1), "file"]).0, Some(2));
    assert_eq!(run(&["/nonexistent/file"]).0, Some(3));
}

/// A proxy of the tool's, and what it is to be ended by.
struct Proxy {
    child: Child,
    port: u16,
    recording: PathBuf,
}

impl Proxy {
    fn before(server: &Server, more: &[&str]) -> Proxy {
        let port = free_port().unwrap();
        let recording = server.dir().join(format!("trips-{port}"));
        let (on, url) = (port.to_string(), url(server.port()));
        let record = recording.to_string_lossy().into_owned();
        let child = advise(&[&["--json", "--proxy", &on, "--record", &record, &url], more].concat()).spawn().unwrap();
        assert!(comes_true(|| Conn::open(port).is_ok_and(|mut conn| conn.cmd("PING").is_ok())));
        Proxy { child, port, recording }
    }

    fn connect(&self) -> Conn {
        Conn::open(self.port).unwrap()
    }

    /// Ends it as Ctrl-C does, and returns its report.
    fn end(mut self) -> (String, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let mut report = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        (report, self.recording.to_string_lossy().into_owned())
    }
}

#[test]
fn the_proxy_passes_everything_on_and_reports_what_was_wasted() {
    let server = Server::penstock(&[]);
    let proxy = Proxy::before(&server, &[]);
    let mut direct = server.connect();
    let mut conn = proxy.connect();
    assert!(!conn.cmd("HELLO 3 SETNAME importer").unwrap().is_error());
    set_keys(&mut conn, 100);

    let mut subscriber = proxy.connect();
    subscriber.cmd("SUBSCRIBE news").unwrap();
    direct.cmd("PUBLISH news hello").unwrap();
    assert_eq!(subscriber.read().unwrap().items()[2].text(), b"hello");

    let mut waiter = proxy.connect();
    waiter.send(b"BLPOP queue 0\r\n").unwrap();
    server.wait_until("it waits", |server| server.figure("blocked_clients") == 1);
    direct.cmd("RPUSH queue job").unwrap();
    assert_eq!(waiter.read().unwrap().items()[1].text(), b"job");

    let mut pipeline = proxy.connect();
    assert_eq!(pipeline.pipeline(&vec![command("PING"); 10_000]).unwrap().len(), 10_000);
    let value = "x".repeat(3_000_000);
    pipeline.call(&[b"SET".to_vec(), b"large".to_vec(), value.clone().into_bytes()]).unwrap();
    assert_eq!(pipeline.cmd("GET large").unwrap().text(), value.as_bytes());
    assert!(pipeline.cmd("NOSUCH").unwrap().is_error());

    // What a client that has gone has left is found, too.
    drop(conn);
    let (report, recording) = proxy.end();
    assert!(report.contains(r#""kind":"loop","#) && report.contains("SET"), "{report}");
    assert!(report.contains(r#""name":"importer""#), "{report}");
    assert!(!report.contains("PING"), "{report}");

    // A recording says the same.
    let (status, replayed) = run(&["--json", "--replay", &recording]);
    assert_eq!((status, replayed), (Some(0), report));
    assert_eq!(run(&["--fail-over", "1ms", &recording]).0, Some(1));
    assert_eq!(run(&["--fail-over", "1000s", &recording]).0, Some(0));
    assert!(!fs::read(&recording).unwrap().windows(1000).any(|bytes| bytes.iter().all(|&byte| byte == b'x')));
}

/// The way to the server is encrypted, and the client knows nothing of it.
#[test]
fn the_proxy_encrypts_to_a_server_that_asks_for_it() {
    let certificates = Certificates::create();
    let (server, port) = certificates.server(false);
    let on = free_port().unwrap();
    let ca = certificates.path("ca.pem").to_string_lossy().into_owned();
    let to = format!("rediss://localhost:{port}");
    let child = advise(&["--json", "--proxy", &on.to_string(), "--cacert", &ca, &to]).spawn().unwrap();
    assert!(comes_true(|| Conn::open(on).is_ok_and(|mut conn| conn.cmd("PING").is_ok())));
    let proxy = Proxy { child, port: on, recording: server.dir().join("none") };
    let mut conn = proxy.connect();
    set_keys(&mut conn, 100);
    assert_eq!(conn.pipeline(&vec![command("PING"); 10_000]).unwrap().len(), 10_000);
    let value = "x".repeat(5_000_000);
    for _ in 0..3 {
        conn.call(&[b"SET".to_vec(), b"large".to_vec(), value.clone().into_bytes()]).unwrap();
        assert_eq!(conn.cmd("GET large").unwrap().text(), value.as_bytes());
    }
    let mut waiter = proxy.connect();
    waiter.send(b"BLPOP queue 0\r\n").unwrap();
    conn.cmd("RPUSH queue job").unwrap();
    assert_eq!(waiter.read().unwrap().items()[1].text(), b"job");
    drop(conn);
    let (report, _) = proxy.end();
    assert!(report.contains(r#""kind":"loop","#) && report.contains("SET"), "{report}");
}

#[test]
fn clients_of_the_proxy_may_speak_tls_too() {
    let certificates = Certificates::create();
    let server = Server::penstock(&[]);
    let (cert, key) = (certificates.text("server.pem"), certificates.text("server.key"));
    let on = free_port().unwrap();
    let args = ["--json", "--proxy", &on.to_string(), "--tls-cert-file", &cert, "--tls-key-file", &key];
    let child = advise(&[&args[..], &[&url(server.port())]].concat()).spawn().unwrap();
    let client = TlsClient::new(&certificates, None);
    let ping = |mut conn: TlsConn| conn.asks("PING\r\n", "+PONG\r\n").unwrap_or(false);
    assert!(comes_true(|| client.connect(on).is_ok_and(ping)));
    let proxy = Proxy { child, port: on, recording: server.dir().join("none") };
    let mut conn = client.connect(on).unwrap();
    for key in 0..200 {
        sleep(THINKS);
        conn.ask(&format!("SET key:{key} value\r\n"), "+OK\r\n");
    }
    let value = "x".repeat(5_000_000);
    conn.ask(&format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$5000000\r\n{value}\r\n"), "+OK\r\n");
    conn.ask("GET large\r\n", &format!("$5000000\r\n{value}\r\n"));
    drop(conn);
    let (report, _) = proxy.end();
    assert!(report.contains(r#""kind":"loop","#) && report.contains("SET"), "{report}");
}

#[test]
fn the_proxy_makes_the_way_longer() {
    let server = Server::penstock(&[]);
    let proxy = Proxy::before(&server, &["--rtt", "20ms"]);
    let mut conn = proxy.connect();
    let began = Instant::now();
    for _ in 0..20 {
        conn.cmd("INCR visits").unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(400));
    drop(conn);
    let (report, _) = proxy.end();
    let lost = report.split("\"lost_ns\":").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    // 19 of the round trips would fall away.
    assert!(lost.parse::<u64>().unwrap() >= 19 * 20_000_000, "{report}");
}

#[test]
fn a_server_that_closes_is_passed_on() {
    let mut server = Server::penstock(&[]);
    let proxy = Proxy::before(&server, &[]);
    let mut conn = proxy.connect();
    conn.cmd("PING").unwrap();
    server.kill();
    assert!(conn.read().is_err());
    // Nor is a connection kept that has no server.
    let mut other = proxy.connect();
    assert!(other.cmd("PING").is_err());
    proxy.end();
}
