//! Tests of the whole port, with a stub in the place of the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;

use crate::history::{Figure, FigureKind, Sample};
use crate::{ConsoleMode, Nature, Terms, Upstream};

/// Time for a response on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that answers OK to each command, sends lines after MONITOR, and refuses INFO if so configured. The password
/// of each user is "right".
#[derive(Default)]
struct Stub {
    edition: AtomicU64,
    is_unready: AtomicBool,
    refuses_info: AtomicBool,
}

impl Upstream for Stub {
    fn give_way(&self) {}

    fn connect(&self) -> Result<UnixStream, String> {
        let (ours, theirs) = UnixStream::pair().map_err(|error| error.to_string())?;
        let refuses_info = self.refuses_info.load(Relaxed);
        thread::spawn(move || answer(theirs, refuses_info));
        Ok(ours)
    }

    fn edition(&self) -> u64 {
        self.edition.load(Relaxed)
    }

    fn is_open(&self) -> bool {
        true
    }

    fn admits(&self, _: IpAddr) -> bool {
        true
    }

    fn nature(&self, _: &[Vec<u8>]) -> Nature {
        Nature::default()
    }

    fn encryption(&self) -> Option<Arc<ServerConfig>> {
        None
    }

    fn terms(&self) -> Terms {
        Terms {
            console: ConsoleMode::ReadOnly,
            rest: false,
            files: None,
            is_encrypted: false,
            connections_max: 100,
            body_bytes_max: 1 << 20,
            reply_bytes_max: 1 << 20,
            timeout: PATIENCE,
            unauthenticated_rate: 1,
        }
    }

    fn sample(&self) -> Sample {
        let figures = vec![Figure { name: "memory", kind: FigureKind::Gauge, value: 7.0 }];
        Sample { figures, ..Sample::default() }
    }

    fn readiness(&self) -> Result<(), &'static str> {
        if self.is_unready.load(Relaxed) { Err("not yet") } else { Ok(()) }
    }

    fn warn(&self, _: &str) {}
}

/// Reads commands, each one a line with the number of arguments and two lines per argument.
fn answer(mut socket: UnixStream, refuses_info: bool) -> Option<()> {
    let mut lines = BufReader::new(socket.try_clone().ok()?).lines().map_while(Result::ok);
    loop {
        let count = lines.next()?.trim_start_matches('*').parse::<usize>().ok()?;
        let words: Vec<String> = (0..count).filter_map(|_| lines.nth(1)).collect();
        let reply: &[u8] = match words.first().map(String::as_str) {
            Some("AUTH") if words.last().is_none_or(|word| word != "right") => b"-WRONGPASS invalid\r\n",
            Some("INFO") if refuses_info => b"-NOPERM no INFO\r\n",
            Some("SUBSCRIBE") => {
                b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n"
            }
            Some("MONITOR") => b"+OK\r\n+1.5 [0 a:1] \"GET\" \"hay\"\r\n+1.5 [0 a:1] \"GET\" \"needle\"\r\n",
            _ => b"+OK\r\n",
        };
        socket.write_all(reply).ok()?;
    }
}

fn start() -> (Arc<Stub>, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let stub = Arc::new(Stub::default());
    crate::start(vec![listener], 4, stub.clone()).unwrap();
    (stub, address)
}

/// Sends a request, and returns the connection.
fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    send_with(address, method, path, "", body)
}

/// Sends a request with further headers, each of which ends with a line break.
fn send_with(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
    );
    socket.write_all((head + body).as_bytes()).unwrap();
    socket
}

fn response(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let mut text = String::new();
    send(address, method, path, body).read_to_string(&mut text).unwrap();
    text
}

/// Reads until the response contains a text.
fn read_until(socket: &mut TcpStream, wanted: &str) -> String {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while !text.contains(wanted) {
        let count = socket.read(&mut bytes).unwrap();
        assert!(count > 0, "{wanted} is missing in {text}");
        text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    text
}

#[test]
fn probes_tell_whether_clients_can_use_the_server() {
    let (stub, address) = start();
    for path in ["/healthz", "/readyz"] {
        let text = response(address, "GET", path, "");
        assert!(text.starts_with("HTTP/1.1 200 ") && text.ends_with("\r\n\r\nok\n"), "{text}");
    }
    stub.is_unready.store(true, Relaxed);
    let text = response(address, "GET", "/readyz", "");
    assert!(text.starts_with("HTTP/1.1 503 ") && text.ends_with("\r\n\r\nnot yet\n"), "{text}");
    assert!(response(address, "GET", "/healthz", "").starts_with("HTTP/1.1 200 "));
}

#[test]
fn the_history_needs_the_right_to_info() {
    let (stub, address) = start();
    // The first sample is taken in the background.
    let history = || response(address, "GET", "/console/history?span=60", "");
    let is_sampled = |text: &String| text.contains(r#"{"step":1,"names":["memory"],"#);
    let texts = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(10));
        history()
    });
    assert!(texts.take(1000).any(|text| is_sampled(&text)), "{}", history());
    stub.refuses_info.store(true, Relaxed);
    stub.edition.fetch_add(1, Relaxed);
    let text = response(address, "GET", "/console/history?span=60", "");
    assert!(text.starts_with("HTTP/1.1 403 ") && text.contains("NOPERM no INFO"), "{text}");
}

#[test]
fn guesses_disturb_nobody_whose_password_was_known_before_the_users_changed() {
    let (stub, address) = start();
    let status = |password: &str| {
        let headers = format!("authorization: Bearer alice:{password}\r\n");
        let mut text = String::new();
        send_with(address, "GET", "/console/history?span=60", &headers, "").read_to_string(&mut text).unwrap();
        text.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status("right"), "200");
    let refused = |password: &str| (0..100).any(|_| status(password) == "429");
    assert!(refused("wrong"));
    stub.edition.fetch_add(1, Relaxed);
    assert_eq!((status("right"), status("right")), ("200".to_owned(), "200".to_owned()));
    // The change was no licence to guess.
    assert!(refused("wrong") && status("right") == "200");
}

#[test]
fn a_view_of_commands_is_filtered_and_ends_with_the_users_rights() {
    let (stub, address) = start();
    let mut socket = send(address, "POST", "/console/monitor", r#"["10","needle"]"#);
    let text = read_until(&mut socket, r#""matched""#);
    assert!(text.contains("application/x-ndjson") && !text.contains("hay"), "{text}");
    if !text.contains(r#"{"result":"1.5 [0 a:1] \"GET\" \"needle\""}"#) {
        read_until(&mut socket, "needle");
    }
    stub.edition.fetch_add(1, Relaxed);
    let mut rest = String::new();
    socket.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    assert!(response(address, "POST", "/console/monitor", r#"["0",""]"#).starts_with("HTTP/1.1 400 "));
}

#[test]
fn a_view_of_messages_begins_with_the_confirmation() {
    let (_, address) = start();
    let mut socket = send(address, "POST", "/console/messages", r#"["c"]"#);
    // The strings are in base64.
    let text = read_until(&mut socket, r#"{"result":["bWVzc2FnZQ==","Yw==","aGk="]}"#);
    assert!(text.contains(r#"{"result":["c3Vic2NyaWJl","Yw==",1]}"#), "{text}");
}

#[test]
fn the_number_of_views_is_limited() {
    let (_, address) = start();
    let open = || {
        let mut socket = send(address, "POST", "/console/monitor", r#"["10",""]"#);
        read_until(&mut socket, "\r\n\r\n");
        socket
    };
    let mut views: Vec<_> = (0..8).map(|_| open()).collect();
    let text = response(address, "POST", "/console/monitor", r#"["10",""]"#);
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("live views are open"), "{text}");
    // A closed view makes room for another.
    drop(views.pop());
    let has_room = || response_head(address).starts_with("HTTP/1.1 200 ");
    assert!((0..600).any(|_| has_room() || {
        thread::sleep(Duration::from_millis(100));
        false
    }));
}

fn response_head(address: SocketAddr) -> String {
    let mut socket = send(address, "POST", "/console/monitor", r#"["10",""]"#);
    read_until(&mut socket, "\r\n\r\n")
}
