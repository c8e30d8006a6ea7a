//! The advisor in the server: what it finds of a connection's round trips, what it doesn't of pipelines, and what it takes.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use penstock_tests::bytes::{Command, command};
use penstock_tests::conn::Conn;
use penstock_tests::reply::Reply;
use penstock_tests::server::{Server, comes_true};

/// What a client does between two commands. Longer than what a busy machine adds to a round trip, so that none looks like a pause,
/// but by chance.
const THINKS: Duration = Duration::from_millis(4);
/// How often a test that the machine may disturb is tried.
const TRIES: usize = 20;
const MOVIES: u64 = 10;

/// A reply of keys and values.
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

/// What ADVISE LIST answers.
fn listed(conn: &mut Conn) -> Vec<BTreeMap<String, Reply>> {
    conn.cmd("ADVISE LIST COUNT -1").unwrap().items().iter().map(fields).collect()
}

/// The finding of this kind, as ADVISE GET has it.
fn find(conn: &mut Conn, kind: &str) -> Option<BTreeMap<String, Reply>> {
    let all = listed(conn);
    let id = all.iter().find(|finding| text(finding, "kind") == kind).map(|finding| text(finding, "id"))?;
    Some(fields(&conn.cmd(&format!("ADVISE GET {id}")).unwrap()))
}

/// The same, once there is one.
fn found(server: &Server, kind: &str) -> Option<BTreeMap<String, Reply>> {
    let mut conn = server.connect();
    let mut finding = None;
    comes_true(|| {
        finding = find(&mut conn, kind);
        finding.is_some()
    });
    finding
}

/// The same, if there is one when connections have been silent for as long as a round trip may take.
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

/// The script of "How I used 98840 commands less and saved 4 seconds": a movie's score is read once for each of its prefixes.
/// Returns how often.
fn add_movies(conn: &mut Conn, score: &str) -> u64 {
    let mut wait_for = |line: &[&str]| {
        sleep(THINKS);
        conn.call(&words(line)).unwrap()
    };
    let mut reads = 0;
    for movie in 1..=MOVIES {
        let name = format!("The Number{movie}");
        for prefix in prefixes(movie) {
            let key = format!("testing:redis:index:{prefix}");
            wait_for(&["ZSCORE", &key, &name]);
            wait_for(&["ZADD", &key, score, &name]);
            reads += 1;
        }
        wait_for(&["HSET", &format!("testing:redis:data:Number{movie}"), &name, "{}"]);
    }
    reads
}

/// What is found never exceeds what was made in vain, and is nearly all of that unless the machine is too busy.
#[test]
fn the_movie_script_reads_each_score_once_for_each_prefix() {
    let server = Server::penstock(&["--threads", "2"]);
    let mut found_ones = Vec::new();
    for _ in 0..TRIES {
        let mut other = server.connect();
        other.cmd("FLUSHALL").unwrap();
        other.cmd("ADVISE RESET").unwrap();
        // It never sends two commands without thinking in between: what it would do then would be a pause.
        let mut conn = server.connect();
        conn.cmd("CLIENT SETNAME importer").unwrap();
        let reads = add_movies(&mut conn, "0");
        let Some(finding) = found_soon(&server, "repeated-read") else { continue };
        let (made, needed) = (number(&finding, "round-trips-made"), number(&finding, "round-trips-needed"));
        let (wasted, in_vain) = (made - needed, reads - MOVIES);
        found_ones.push((made, needed));
        assert!(made <= reads && wasted <= in_vain, "{finding:?}");
        if wasted * 10 < in_vain * 9 {
            // The machine was busy for longer than a round trip takes, again and again.
            continue;
        }
        assert!(text(&finding, "client").starts_with("importer"), "{finding:?}");
        assert_eq!(finding["steps"].items()[0].text(), b"ZSCORE testing:redis:index:<word>");
        assert!(number(&finding, "time-lost-us") >= wasted * THINKS.as_micros() as u64);
        assert_eq!(number(&finding, "without-replies"), 0);
        assert!(text(&finding, "remedy").contains("ask once"), "{finding:?}");
        assert_eq!(fields(&finding["code"]).len(), 5);
        let sample = finding["samples"].items()[0].text();
        assert!(sample.starts_with(b"testing:redis:index:"), "{finding:?}");
        let list = server.connect().cmd("ADVISE LIST CLIENT nobody").unwrap();
        assert!(list.items().is_empty());
        return;
    }
    panic!("{found_ones:?}");
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
    // Large values arrive in parts, a command at a time.
    let value = "x".repeat(100_000);
    let sets: Vec<Command> = (0..50).map(|i| words(&["SET", &format!("key:{i}"), &value])).collect();
    conn.pipeline(&sets).unwrap();
    drop(conn);
    server.wait_until("the connection is closed", |server| server.figure("connected_clients") == 1);
    assert_eq!(listed(&mut server.connect()), []);
}

/// Replies that others wait for are facts: what is written is what was read.
#[test]
fn a_counter_that_is_read_and_written_is_found() {
    let server = Server::penstock(&[]);
    let mut conn = server.connect();
    conn.cmd("SET visits 1000").unwrap();
    for count in 1001..1100 {
        sleep(THINKS);
        conn.cmd("GET visits").unwrap();
        sleep(THINKS);
        conn.cmd(&format!("SET visits {count}")).unwrap();
    }
    let finding = found(&server, "read-compute-write").unwrap();
    assert_eq!(text(&finding, "confidence"), "high");
    assert!(text(&finding, "remedy").contains("INCRBY"), "{finding:?}");
}

#[test]
fn without_the_advisor_nothing_is_found() {
    let server = Server::penstock(&["--advisor", "no"]);
    let mut conn = server.connect();
    let send = |conn: &mut Conn| {
        for i in 0..100 {
            sleep(THINKS);
            conn.cmd(&format!("GET key:{i}")).unwrap();
        }
    };
    send(&mut conn);
    assert_eq!(listed(&mut server.connect()), []);
    assert_eq!(server.figure("advisor_enabled"), 0);
    conn.cmd("CONFIG SET advisor yes advisor-samples no").unwrap();
    send(&mut conn);
    let finding = found(&server, "loop").unwrap();
    assert!(finding["samples"].items().is_empty(), "{finding:?}");
    // What was found stays until it is forgotten.
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
            // Letters only, so that each is a pattern of its own.
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

/// What is known of a connection is seen in CLIENT LIST.
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
    // The network may cut a pipeline.
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
