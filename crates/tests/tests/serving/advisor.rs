//! The advisor in the server: findings for single commands, no findings for pipelines, and its memory.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock_tests::bytes::{Command, command};
use penstock_tests::conn::Conn;
use penstock_tests::reply::Reply;
use penstock_tests::server::{Server, comes_true};

/// Time that some clients think between two commands. The advisor takes it for a pause.
const THINKS: Duration = Duration::from_millis(4);
/// Number of attempts to find a loop.
const TRIES: usize = 20;
const MOVIES: u64 = 10;

/// Converts a reply of keys and values.
fn fields(reply: &Reply) -> BTreeMap<String, Reply> {
    let pairs = reply.items().chunks(2);
    pairs.map(|pair| (String::from_utf8_lossy(pair[0].text()).into_owned(), pair[1].clone())).collect()
}

fn text(fields: &BTreeMap<String, Reply>, name: &str) -> String {
    String::from_utf8_lossy(fields[name].text()).into_owned()
}

fn number(fields: &BTreeMap<String, Reply>, name: &str) -> u64 {
    text(fields, name).parse().unwrap()
}

/// The findings of ADVISE LIST.
fn listed(conn: &mut Conn) -> Vec<BTreeMap<String, Reply>> {
    conn.cmd("ADVISE LIST COUNT -1").unwrap().items().iter().map(fields).collect()
}

/// The finding of this kind, from ADVISE GET.
fn find(conn: &mut Conn, kind: &str) -> Option<BTreeMap<String, Reply>> {
    let all = listed(conn);
    let id = all.iter().find(|finding| text(finding, "kind") == kind).map(|finding| text(finding, "id"))?;
    Some(fields(&conn.cmd(&format!("ADVISE GET {id}")).unwrap()))
}

/// Waits for a finding of this kind.
fn found(server: &Server, kind: &str) -> Option<BTreeMap<String, Reply>> {
    let mut conn = server.connect();
    let mut finding = None;
    comes_true(|| {
        finding = find(&mut conn, kind);
        finding.is_some()
    });
    finding
}

/// Returns the finding of this kind, if there is one after the connections have been silent for as long as a round trip
/// may take.
fn found_soon(server: &Server, kind: &str) -> Option<BTreeMap<String, Reply>> {
    sleep(Duration::from_secs(1));
    find(&mut server.connect(), kind)
}

fn words(words: &[&str]) -> Command {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// The prefixes of "The Number17", as the script makes them.
fn prefixes(movie: u64) -> Vec<String> {
    let words = ["the".to_owned(), format!("number{movie}")];
    words.iter().flat_map(|word| (2..=word.len()).map(|len| word[..len].to_owned())).collect()
}

/// The script of "How I used 98840 commands less and saved 4 seconds": it reads a movie's score once for each of its
/// prefixes. Returns the number of reads, and the time of the quickest command.
fn add_movies(conn: &mut Conn, thinks: Duration) -> (u64, Duration) {
    let mut quickest = Duration::MAX;
    let mut wait_for = |line: &[&str]| {
        sleep(thinks);
        let began = Instant::now();
        conn.call(&words(line)).unwrap();
        quickest = quickest.min(began.elapsed());
    };
    let mut reads = 0;
    for movie in 1..=MOVIES {
        let name = format!("The Number{movie}");
        for prefix in prefixes(movie) {
            let key = format!("testing:redis:index:{prefix}");
            wait_for(&["ZSCORE", &key, &name]);
            wait_for(&["ZADD", &key, "0", &name]);
            reads += 1;
        }
        wait_for(&["HSET", &format!("testing:redis:data:Number{movie}"), &name, "{}"]);
    }
    (reads, quickest)
}

/// The repeated reads are a matter of order, so a busy machine does not change their number.
#[test]
fn the_movie_script_reads_each_score_once_for_each_prefix() {
    let server = Server::penstock(&["--threads", "2"]);
    let mut conn = server.connect();
    conn.cmd("CLIENT SETNAME importer").unwrap();
    let (reads, quickest) = add_movies(&mut conn, Duration::ZERO);
    let finding = found_soon(&server, "repeated-read").unwrap();
    let (made, needed) = (number(&finding, "round-trips-made"), number(&finding, "round-trips-needed"));
    assert_eq!((made, needed), (reads, MOVIES), "{finding:?}");
    assert!(text(&finding, "client").starts_with("importer"), "{finding:?}");
    assert_eq!(finding["steps"].items()[0].text(), b"ZSCORE testing:redis:index:<word>");
    // The server sees less of a round trip than the client, by a write and a read of the socket.
    let (lost_us, quickest_us) = (number(&finding, "time-lost-us"), quickest.as_micros() as u64);
    assert!(lost_us * 4 >= (made - needed) * quickest_us, "{lost_us} {quickest_us} {finding:?}");
    assert_eq!(number(&finding, "without-replies"), 0);
    assert!(text(&finding, "remedy").contains("ask once"), "{finding:?}");
    // Twelve libraries, and the commands alone.
    assert_eq!(fields(&finding["code"]).len(), 13);
    let sample = finding["samples"].items()[0].text();
    assert!(sample.starts_with(b"testing:redis:index:"), "{finding:?}");
    let list = server.connect().cmd("ADVISE LIST CLIENT nobody").unwrap();
    assert!(list.items().is_empty());
}

/// The time of a client that thinks is its own, but its reads are repeated nevertheless.
#[test]
fn reads_are_repeated_whatever_the_client_does_between() {
    let server = Server::penstock(&[]);
    let (reads, _) = add_movies(&mut server.connect(), THINKS);
    let finding = found_soon(&server, "repeated-read").unwrap();
    let (made, needed) = (number(&finding, "round-trips-made"), number(&finding, "round-trips-needed"));
    assert_eq!((made, needed), (reads, MOVIES), "{finding:?}");
    let thought_us = (made - needed) * THINKS.as_micros() as u64;
    assert!(number(&finding, "time-lost-us") < thought_us / 2, "{finding:?}");
}

#[test]
fn a_pipelined_client_wastes_nothing() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    for movie in 1..=200 {
        let name = format!("The Number{movie}");
        conn.call(&words(&["ZSCORE", "scores", &name])).unwrap();
        let adds = prefixes(movie).iter().map(|prefix| words(&["ZADD", prefix, "0", &name])).collect::<Vec<_>>();
        conn.pipeline(&adds).unwrap();
    }
    // Large values arrive in parts, one command at a time.
    let value = "x".repeat(100_000);
    let sets: Vec<Command> = (0..50).map(|i| words(&["SET", &format!("key:{i}"), &value])).collect();
    conn.pipeline(&sets).unwrap();
    drop(conn);
    server.wait_until("the connection is closed", |server| server.figure("connected_clients") == 1);
    assert_eq!(listed(&mut server.connect()), []);
}

/// Reads a counter and writes the next number, 99 times.
fn count(conn: &mut Conn, thinks: Duration) {
    conn.cmd("SET visits 1000").unwrap();
    for count in 1001..1100 {
        sleep(thinks);
        conn.cmd("GET visits").unwrap();
        sleep(thinks);
        conn.cmd(&format!("SET visits {count}")).unwrap();
    }
}

/// With replies, the finding has high confidence: the client writes a value that depends on the one it has read.
#[test]
fn a_counter_that_is_read_and_written_is_found() {
    let server = Server::penstock(&[]);
    count(&mut server.connect(), Duration::ZERO);
    let finding = found(&server, "read-compute-write").unwrap();
    assert_eq!(text(&finding, "confidence"), "high");
    assert!(text(&finding, "remedy").contains("INCRBY"), "{finding:?}");
}

/// A client that thinks between the read and the write may need the value for its work.
#[test]
fn a_counter_of_a_client_that_thinks_is_found_with_medium_confidence() {
    let server = Server::penstock(&[]);
    count(&mut server.connect(), THINKS);
    let finding = found(&server, "read-compute-write").unwrap();
    assert_eq!(text(&finding, "confidence"), "medium");
    assert_eq!((number(&finding, "round-trips-made"), number(&finding, "round-trips-needed")), (198, 99));
}

#[test]
fn without_the_advisor_nothing_is_found() {
    let server = Server::penstock(&["--advisor", "no"]);
    let mut conn = server.connect();
    let send = |conn: &mut Conn| {
        // Without a pause: the time of a client that thinks is not lost.
        for i in 0..100 {
            conn.cmd(&format!("GET key:{i}")).unwrap();
        }
    };
    send(&mut conn);
    assert_eq!(listed(&mut server.connect()), []);
    assert_eq!(server.figure("advisor_enabled"), 0);
    conn.cmd("CONFIG SET advisor yes advisor-samples no").unwrap();
    // A busy machine may hold the client up so often that it seems to pause.
    let finding = (0..TRIES).find_map(|_| {
        send(&mut conn);
        found_soon(&server, "loop")
    });
    let finding = finding.unwrap();
    assert!(finding["samples"].items().is_empty(), "{finding:?}");
    // Findings stay until ADVISE RESET.
    conn.cmd("CONFIG SET advisor no").unwrap();
    assert_eq!(listed(&mut conn).len(), 1);
    assert_eq!(conn.cmd("ADVISE RESET").unwrap().text(), b"OK");
    assert_eq!(listed(&mut conn), []);
}

#[test]
fn findings_of_any_number_of_patterns_and_connections_take_bounded_memory() {
    let server = Server::penstock(&["--threads", "1", "--advisor-memory", "1mb"]);
    let before_kib = server.resident_kib();
    let mut last = Vec::new();
    for round in 0..400_u32 {
        let mut conn = server.connect();
        for shape in 0..20 {
            // Only letters, so that each name is a pattern of its own.
            let letters =
                |number: u32| format!("{number:05}").bytes().map(|digit| char::from(digit + 49)).collect::<String>();
            let key = format!("{}{}", letters(round), letters(shape));
            for _ in 0..5 {
                conn.cmd(&format!("INCR {key}:{shape}")).unwrap();
            }
        }
        last.push(conn);
        if last.len() > 300 {
            last.remove(0);
        }
    }
    let used = server.figure("advisor_memory_bytes");
    assert!((1..=512 << 10).contains(&used), "{used}");
    let watched = server.figure("advisor_watched_connections");
    assert!((8..=200).contains(&watched), "{watched}");
    let grown_kib = server.resident_kib() - before_kib;
    assert!(grown_kib < 16 << 10, "{grown_kib}");
}

/// CLIENT LIST shows the counters of a connection.
#[test]
fn batches_and_commands_are_counted() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    for depth in [1, 10, 100, 1000] {
        conn.pipeline(&vec![command("PING"); depth]).unwrap();
    }
    let list = conn.cmd("CLIENT LIST").unwrap();
    let line = String::from_utf8_lossy(list.text()).into_owned();
    let field = |name: &str| -> u64 {
        let value = line.split(' ').find_map(|word| word.trim().strip_prefix(name)?.strip_prefix('='));
        value.unwrap().parse().unwrap()
    };
    assert_eq!(field("tot-cmds"), 1111);
    assert_eq!(field("avg-pipeline-len-sum"), 1111);
    // The network may split a pipeline.
    assert!((4..50).contains(&field("avg-pipeline-len-cnt")), "{line}");
    assert!(field("tot-net-in") > 1111 * 14 && field("tot-net-out") >= 1111 * 7, "{line}");
}

#[test]
fn connections_for_a_command_are_found() {
    let server = Server::penstock(&[]);
    for i in 0..40 {
        let mut conn = server.connect();
        conn.cmd("HELLO 3 SETNAME web").unwrap();
        conn.cmd(&format!("GET session:{i}")).unwrap();
    }
    let finding = found(&server, "connection-per-command").unwrap();
    assert!(text(&finding, "client").starts_with("web"), "{finding:?}");
    assert_eq!(finding["steps"].items()[0].text(), b"GET session:<n>");
}
