//! `penstock advise` with a running server: through MONITOR, as a proxy, and from recordings of the proxy.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use penstock_tests::bytes::command;
use penstock_tests::certificates::Certificates;
use penstock_tests::conn::Conn;
use penstock_tests::ports::free_port;
use penstock_tests::server::{Server, comes_true, subject_program};
use penstock_tests::tls_conn::{TlsClient, TlsConn};

/// Time that a client thinks between two commands: longer than the delay that a busy machine usually adds to a round
/// trip.
const THINKS: Duration = Duration::from_millis(2);

/// The round trip of a proxy's network. It is longer than the delays of a busy machine, too.
const NETWORK: &str = "20ms";

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

/// Sends SETs one by one, thinking before each: without thinking even once, all other gaps would be pauses.
fn set_keys(conn: &mut Conn, count: usize) {
    for key in 0..count {
        sleep(THINKS);
        set_key(conn, key);
    }
}

fn set_key(conn: &mut Conn, key: usize) {
    conn.cmd(&format!("SET key:{key} value")).unwrap();
}

#[test]
fn watching_through_monitor_ends_by_itself() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    conn.cmd("CLIENT SETNAME importer").unwrap();
    let load = thread::spawn(move || {
        // The client begins before the tool and ends after it.
        set_keys(&mut conn, 1500);
    });
    let (status, text) = run(&["--for", "1500ms", "--code", "ruby", &url(server.port())]);
    load.join().unwrap();
    assert_eq!(status, Some(0), "{text}");
    for part in ["MONITOR slows down a busy server", "SET key:<n>", "one MSET of all keys", "importer", "redis.mset"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The number of commands is limited, too.
    let mut conn = server.connect();
    let load = thread::spawn(move || set_keys(&mut conn, 300));
    let began = Instant::now();
    let (status, text) = run(&["--for", "100s", "--commands", "20", &url(server.port())]);
    assert_eq!(status, Some(0), "{text}");
    assert!(began.elapsed() < Duration::from_secs(50));
    load.join().unwrap();
}

/// Penstock's MONITOR shows replies and batches. A log is never certain, so the confidence is medium and not low.
#[test]
fn monitor_of_penstock_gives_medium_confidence() {
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

/// Keys with markup do not become markup of the page.
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

#[test]
fn a_misspelt_option_is_answered_with_the_similar_one() {
    let meant =
        "penstock advise: unexpected argument '--prxy' found; did you mean '--proxy'? (see penstock advise --help)\n";
    assert_eq!(run(&["--prxy", "0"]), (Some(2), meant.to_owned()));
    let (status, text) = run(&["--nonsense"]);
    assert_eq!((status, text.lines().count()), (Some(2), 1), "{text}");
}

/// A proxy of the tool, and its output.
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

    /// Ends the proxy like Ctrl-C, and returns its report.
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
    let proxy = Proxy::before(&server, &["--rtt", NETWORK]);
    let mut direct = server.connect();
    let mut conn = proxy.connect();
    assert!(!conn.cmd("HELLO 3 SETNAME importer").unwrap().is_error());
    (0..100).for_each(|key| set_key(&mut conn, key));

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

    // Findings of a closed connection are included, too.
    drop(conn);
    let (report, recording) = proxy.end();
    assert!(report.contains(r#""kind":"loop","#) && report.contains("SET"), "{report}");
    assert!(report.contains(r#""name":"importer""#), "{report}");
    assert!(!report.contains("PING"), "{report}");

    // A recording gives the same report.
    let (status, replayed) = run(&["--json", "--replay", &recording]);
    assert_eq!((status, replayed), (Some(0), report));
    assert_eq!(run(&["--fail-over", "1ms", &recording]).0, Some(1));
    assert_eq!(run(&["--fail-over", "1000s", &recording]).0, Some(0));
    assert!(!fs::read(&recording).unwrap().windows(1000).any(|bytes| bytes.iter().all(|&byte| byte == b'x')));
}

/// The connection to the server is encrypted, without the client's knowledge.
#[test]
fn the_proxy_encrypts_to_a_server_that_asks_for_it() {
    let certificates = Certificates::create();
    let (server, port) = certificates.server(false);
    let on = free_port().unwrap();
    let ca = certificates.path("ca.pem").to_string_lossy().into_owned();
    let to = format!("rediss://localhost:{port}");
    let child =
        advise(&["--json", "--rtt", NETWORK, "--proxy", &on.to_string(), "--cacert", &ca, &to]).spawn().unwrap();
    assert!(comes_true(|| Conn::open(on).is_ok_and(|mut conn| conn.cmd("PING").is_ok())));
    let proxy = Proxy { child, port: on, recording: server.dir().join("none") };
    let mut conn = proxy.connect();
    (0..100).for_each(|key| set_key(&mut conn, key));
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
    let args =
        ["--json", "--rtt", NETWORK, "--proxy", &on.to_string(), "--tls-cert-file", &cert, "--tls-key-file", &key];
    let child = advise(&[&args[..], &[&url(server.port())]].concat()).spawn().unwrap();
    let client = TlsClient::new(&certificates, None);
    let ping = |mut conn: TlsConn| conn.asks("PING\r\n", "+PONG\r\n").unwrap_or(false);
    assert!(comes_true(|| client.connect(on).is_ok_and(ping)));
    let proxy = Proxy { child, port: on, recording: server.dir().join("none") };
    let mut conn = client.connect(on).unwrap();
    for key in 0..200 {
        conn.ask(&format!("SET key:{key} value\r\n"), "+OK\r\n");
    }
    let value = "x".repeat(5_000_000);
    conn.ask(&format!("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$5000000\r\n{value}\r\n"), "+OK\r\n");
    conn.ask("GET large\r\n", &format!("$5000000\r\n{value}\r\n"));
    drop(conn);
    let (report, _) = proxy.end();
    assert!(report.contains(r#""kind":"loop","#) && report.contains("SET"), "{report}");
}

/// A busy machine may hold the client up, and the advisor takes that for a pause. It does not do so three times.
#[test]
fn the_proxy_makes_the_way_longer() {
    let mut report = String::new();
    // 19 of the round trips could be saved.
    let is_complete = |lost_ns: u64| lost_ns >= 19 * 20_000_000;
    let found = (0..3).any(|_| {
        report = report_of_twenty_trips();
        let lost = report.split("\"lost_ns\":").nth(1).and_then(|rest| rest.split(',').next());
        lost.is_some_and(|lost| is_complete(lost.parse().unwrap()))
    });
    assert!(found, "{report}");
}

/// Returns the report of a proxy with a round trip of 20 ms after 20 trips.
fn report_of_twenty_trips() -> String {
    let server = Server::penstock(&[]);
    let proxy = Proxy::before(&server, &["--rtt", "20ms"]);
    let mut conn = proxy.connect();
    let began = Instant::now();
    for _ in 0..20 {
        conn.cmd("INCR visits").unwrap();
    }
    assert!(began.elapsed() >= Duration::from_millis(400));
    drop(conn);
    proxy.end().0
}

#[test]
fn a_server_that_closes_is_passed_on() {
    let mut server = Server::penstock(&[]);
    let proxy = Proxy::before(&server, &[]);
    let mut conn = proxy.connect();
    conn.cmd("PING").unwrap();
    server.kill();
    assert!(conn.read().is_err());
    // The proxy closes connections without a server, too.
    let mut other = proxy.connect();
    assert!(other.cmd("PING").is_err());
    proxy.end();
}

/// The needless reads are a matter of order, so a busy machine changes their number by no more than 0.2 percent.
#[test]
fn the_demonstration_counts_the_needless_reads() {
    let (status, text) = run(&["demo", "--movies", "1000"]);
    assert_eq!(status, Some(0), "{text}");
    for part in
        ["20,786 commands one by one", "-> ask once and keep the answer", "redis.zscore(", "8,893 commands less"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (before, _) = text.split_once(" too many").unwrap();
    let needless: String = before.rsplit(' ').next().unwrap().split(',').collect();
    let needless: u64 = needless.parse().unwrap();
    assert!(needless.abs_diff(8_893) * 500 <= 8_893, "{needless}: {text}");
}

/// Threads that keep the machine busy.
struct Busy {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Busy {
    fn start() -> Busy {
        let is_over = Arc::new(AtomicBool::new(false));
        let spin = |is_over: Arc<AtomicBool>| move || while !is_over.load(Ordering::Relaxed) {};
        let threads = (0..2).map(|_| thread::spawn(spin(Arc::clone(&is_over)))).collect();
        Busy { is_over, threads }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Imports movies as the article's script does. Returns the number of reads.
fn import(conn: &mut Conn, movies: u64) -> u64 {
    let mut reads = 0;
    for movie in 1..=movies {
        let words = ["the".to_owned(), format!("number{movie}")];
        for prefix in words.iter().flat_map(|word| (2..=word.len()).map(|len| &word[..len])) {
            conn.cmd(&format!("ZSCORE index:{prefix} movie{movie}")).unwrap();
            conn.cmd(&format!("ZADD index:{prefix} 0 movie{movie}")).unwrap();
            reads += 1;
        }
        conn.cmd(&format!("HSET data:{movie} movie{movie} text")).unwrap();
    }
    reads
}

/// The number behind this name in the finding of repeated reads.
fn of_repeated_reads(report: &str, name: &str) -> u64 {
    let found = report.split("\"kind\":").find(|found| found.starts_with("\"repeated-read\""));
    let (_, behind) = found.unwrap_or_else(|| panic!("{report}")).split_once(&format!("\"{name}\":")).unwrap();
    behind.split(',').next().unwrap().parse().unwrap()
}

/// Pauses of the scheduler split no movie in two, neither in the server nor in the proxy.
#[test]
fn repeated_reads_are_counted_by_order_on_a_busy_machine() {
    const MOVIES: u64 = 50;
    let server = Server::penstock(&[]);
    let proxy = Proxy::before(&server, &[]);
    let mut conn = proxy.connect();
    let busy = Busy::start();
    let reads = import(&mut conn, MOVIES);
    drop(busy);
    drop(conn);
    let mut direct = server.connect();
    let mut table = String::new();
    let numbers = [reads, MOVIES].map(|number| number.to_string());
    let is_seen = comes_true(|| {
        table = String::from_utf8_lossy(direct.cmd("ADVISE LIST TABLE").unwrap().text()).into_owned();
        let line = table.lines().find(|line| line.contains("ask once")).unwrap_or_default();
        numbers.iter().all(|number| line.split_whitespace().any(|word| word == number))
    });
    assert!(is_seen, "{numbers:?}: {table}");
    let (report, _) = proxy.end();
    let counted = ["trips_made", "trips_needed"].map(|name| of_repeated_reads(&report, name));
    assert_eq!(counted, [reads, MOVIES], "{report}");
}
