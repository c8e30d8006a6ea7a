//! Cluster mode compared with Valkey 9.1. Without it, the tests print a note and compare nothing.
//!
//! The conversations are the files under `cluster/`. Each one is held with a cluster of Penstock and with one of the
//! peer. A file consists of these lines:
//!
//! - `nodes N` begins it: the number of primaries, which divide the slots evenly. `nodes off`: one server without
//!   cluster mode. `nodes 0`: one node without any slot. `args ...`: more arguments of each server.
//! - `== title` begins a section with connections of its own.
//! - `0 GET x`: a command on node 0's connection, and its reply. `0a GET x`: on another connection of node 0.
//! - `0a! BLPOP x 0`: a command without its reply; `0a<`: a reply or a push; `0a-`: nothing arrives.
//! - `0? ...`: the types of the reply are compared, and its contents are not.
//! - `until 0 TEXT COMMAND`: repeats the command until its reply contains the text, which has no blank.
//! - `sleep MS`: a pause, for a directive that takes effect a moment later.
//! - `~ reason`: the next line is answered differently, and is to be.
//! - `#`: a comment.
//!
//! `$0` is the name of node 0, `$p0` its port, and `$b0` its port of the bus.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use penstock_tests::bytes::escape;
use penstock_tests::conn::{Conn, timed_out};
use penstock_tests::nodes::{Make, Node, SLOTS, join, node_with};
use penstock_tests::normalise::same_shape;
use penstock_tests::reply::Reply;
use penstock_tests::server::comes_true;

/// The longest wait for a reply that both servers may owe.
const REPLY_MAX: Duration = Duration::from_secs(10);

/// The time in which a line `-` expects nothing.
const SILENCE: Duration = Duration::from_millis(60);

/// The lines of CLUSTER INFO that only Penstock has, and those that depend on the traffic.
const OWN_LINES: &[&str] = &["cluster_state_reason", "cluster_failover_obstacle", "cluster_warning", "cluster_stats_"];

/// A word that the two sides write differently, and its common form.
type Names = Vec<(String, String)>;

/// One side of the comparison: its nodes, and the connections of a section.
struct Side {
    nodes: Vec<Node>,
    names: Names,
    conns: BTreeMap<String, Conn>,
}

/// A line of a file.
#[derive(Debug)]
enum Step<'a> {
    /// Sends a command, and reads its reply unless `is_open`.
    Say { conn: &'a str, words: &'a str, is_open: bool, by_shape: bool },
    /// Reads a reply or a push.
    Hear(&'a str),
    /// Expects silence.
    Silence(&'a str),
    /// Waits for a reply that contains a text.
    Until { conn: &'a str, text: &'a str, words: &'a str },
}

impl<'a> Step<'a> {
    fn of(line: &'a str) -> Step<'a> {
        if let Some(rest) = line.strip_prefix("until ") {
            let (conn, rest) = rest.split_once(' ').unwrap();
            let (text, words) = rest.split_once(' ').unwrap();
            return Step::Until { conn, text, words };
        }
        let (head, words) = line.split_once(' ').unwrap_or((line, ""));
        let conn = head.trim_end_matches(['!', '<', '-', '?']);
        match head.bytes().last() {
            Some(b'<') => Step::Hear(conn),
            Some(b'-') => Step::Silence(conn),
            end => Step::Say { conn, words, is_open: end == Some(b'!'), by_shape: end == Some(b'?') },
        }
    }
}

impl Side {
    fn new(make: Make, nodes: &str, args: &[&str]) -> Side {
        let nodes = match nodes {
            "off" => vec![Node { server: make.start(args).unwrap(), make, bus_port: 1 }],
            "0" => vec![node_with(make, args)],
            count => cluster(make, count.parse().unwrap(), args),
        };
        let names = names_of(&nodes);
        Side { nodes, names, conns: BTreeMap::new() }
    }

    fn conn(&mut self, name: &str) -> &mut Conn {
        let node = name.trim_end_matches(|c: char| c.is_ascii_lowercase()).parse::<usize>().unwrap();
        let open = || {
            let conn = self.nodes[node].server.connect();
            conn.set_patience(REPLY_MAX).unwrap();
            conn
        };
        self.conns.entry(name.to_owned()).or_insert_with(open)
    }

    /// Splits a line into words, and fills in names and ports.
    fn command(&self, words: &str) -> Vec<Vec<u8>> {
        let fill = |word: Vec<u8>| {
            let Some(name) = word.strip_prefix(b"$") else { return word };
            let name = String::from_utf8_lossy(name).into_owned();
            let of = |prefix: &str, value: fn(&Node) -> String| {
                let number = name.strip_prefix(prefix)?.parse::<usize>().ok()?;
                self.nodes.get(number).map(value)
            };
            let port = of("p", |node| node.server.port().to_string());
            let value = port.or_else(|| of("b", |node| node.bus_port.to_string()));
            value.or_else(|| of("", Node::id)).map_or(word, String::into_bytes)
        };
        split(words).into_iter().map(fill).collect()
    }

    /// Does a step, and returns its outcome in the common form, and the reply itself.
    fn take(&mut self, step: &Step<'_>) -> (String, Option<Reply>) {
        match step {
            Step::Say { conn, words, is_open, .. } => {
                let command = self.command(words);
                let sent = self.conn(conn).send(&penstock_tests::bytes::encode(&command));
                if let Err(error) = sent {
                    return (error.to_string(), None);
                }
                if *is_open { (String::new(), None) } else { self.hear(conn, words) }
            }
            Step::Hear(conn) => self.hear(conn, ""),
            Step::Silence(conn) => {
                let conn = self.conn(conn);
                let heard = conn.read_for(SILENCE);
                let text = heard.map_or_else(|error| error.to_string(), |(bytes, _)| escape(&bytes));
                conn.set_patience(REPLY_MAX).unwrap();
                (text, None)
            }
            Step::Until { conn, text, words } => {
                let command = self.command(words);
                let mut last = String::new();
                let conn = self.conn(conn);
                let holds = comes_true(|| {
                    last = conn.call(&command).map_or_else(|error| error.to_string(), |reply| rendered(&reply));
                    last.contains(*text)
                });
                (if holds { String::new() } else { format!("never: {last}") }, None)
            }
        }
    }

    fn hear(&mut self, conn: &str, words: &str) -> (String, Option<Reply>) {
        match self.conn(conn).read() {
            Ok(reply) => (self.common(words, &reply), Some(reply)),
            Err(error) if timed_out(&error) => ("no reply".to_owned(), None),
            Err(error) => (format!("no reply: {:?}", error.kind()), None),
        }
    }

    /// A reply's text, without the names, ports and times that differ between any two clusters.
    fn common(&self, words: &str, reply: &Reply) -> String {
        let words: Vec<String> = words.split(' ').map(str::to_ascii_uppercase).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // Names come first, because replies are sorted by their text.
        let has_ports = matches!(words[..], ["CLUSTER", "SHARDS" | "SLOTS", ..]);
        let reply = &self.with_names(reply, has_ports);
        let reply = match words[..] {
            ["CLUSTER", "NODES" | "REPLICAS" | "SLAVES", ..] => lines_without_times(reply),
            ["CLUSTER", "INFO", ..] => lines_of_both(reply),
            ["CLUSTER", "SHARDS" | "SLOTS", ..] => sorted(&without_values(reply, &["replication-offset"])),
            ["CLUSTER", "LINKS", ..] => {
                sorted(&without_values(reply, &["create-time", "send-buffer-allocated", "send-buffer-used", "events"]))
            }
            ["HELLO", ..] => without_modules(&without_values(reply, &["server", "version", "id"])),
            _ => reply.clone(),
        };
        let text = rendered(&reply);
        // The place of an error in a script has the script's name in Redis, and none in Valkey.
        without_hex(text.split(" script: ").next().unwrap_or_default())
    }

    /// Replaces the nodes' names and ports. Slots may have the numbers of ports: an integer is a port only if `has_ports`, and a number in a
    /// text only behind an address.
    fn with_names(&self, reply: &Reply, has_ports: bool) -> Reply {
        let replace = |bytes: &[u8]| {
            let mut text = String::from_utf8_lossy(bytes).into_owned();
            self.names.iter().for_each(|(own, common)| text = text.replace(own, common));
            text.into_bytes()
        };
        match reply {
            Reply::Line(b':', number) if has_ports => {
                let port = replace(&[b":", &number[..]].concat());
                Reply::Line(b':', port[1..].to_vec())
            }
            Reply::Line(tag, text) => Reply::Line(*tag, replace(text)),
            Reply::Blob(tag, text) => Reply::Blob(*tag, replace(text)),
            Reply::Many(tag, items) => {
                Reply::Many(*tag, items.iter().map(|item| self.with_names(item, has_ports)).collect())
            }
        }
    }
}

/// A cluster of primaries, after everything that its start changes.
fn cluster(make: Make, count: usize, args: &[&str]) -> Vec<Node> {
    let nodes: Vec<Node> = (0..count).map(|_| node_with(make, args)).collect();
    if count == 1 {
        nodes[0].ok(&format!("CLUSTER ADDSLOTSRANGE 0 {}", SLOTS - 1));
        nodes[0].ok("CLUSTER SET-CONFIG-EPOCH 1");
        nodes[0].wait_until("it serves", Node::is_ok);
    } else {
        join(&nodes.iter().collect::<Vec<_>>());
    }
    nodes
}

fn names_of(nodes: &[Node]) -> Names {
    let mut names = Names::new();
    for (at, node) in nodes.iter().enumerate() {
        if node.bus_port > 1 {
            names.push((node.id(), format!("<id{at}>")));
            names.push((format!("@{}", node.bus_port), format!("@<bus{at}>")));
        }
        names.push((format!(":{}", node.server.port()), format!(":<port{at}>")));
    }
    names
}

/// Splits a line into words. Words in double quotes may have blanks and the escapes `\n`, `\r`, `\"` and `\\`.
fn split(line: &str) -> Vec<Vec<u8>> {
    let (mut words, mut word, mut is_quoted, mut is_word) = (Vec::new(), Vec::new(), false, false);
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => (is_quoted, is_word) = (!is_quoted, true),
            b'\\' if is_quoted => word.push(match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                other => other.unwrap(),
            }),
            b' ' if !is_quoted => {
                if is_word || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            byte => word.push(byte),
        }
    }
    if is_word || !word.is_empty() {
        words.push(word);
    }
    words
}

/// A reply as one line. Blobs have no lengths, since names and ports of two clusters may differ in length.
fn rendered(reply: &Reply) -> String {
    match reply {
        Reply::Line(tag, text) => format!("{}{}", char::from(*tag), escape(text)),
        Reply::Blob(tag, text) => format!("{}\"{}\"", char::from(*tag), escape(text)),
        Reply::Many(tag, items) => {
            format!("{}[{}]", char::from(*tag), items.iter().map(rendered).collect::<Vec<_>>().join(", "))
        }
    }
}

/// Replaces unknown names of nodes and shards, and times.
fn without_hex(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, from) = rest.split_at(at);
        let word = &from[..from.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(from.len())];
        out.push_str(before);
        let is_time = word.len() >= 12 && word.bytes().all(|byte| byte.is_ascii_digit());
        out.push_str(if word.len() == 40 {
            "<hex>"
        } else if is_time {
            "<time>"
        } else {
            word
        });
        rest = &from[word.len()..];
    }
    out + rest
}

fn sorted(reply: &Reply) -> Reply {
    let Reply::Many(tag, items) = reply else { return reply.clone() };
    let mut items = items.clone();
    items.sort_by_key(rendered);
    Reply::Many(*tag, items)
}

/// Drops the last field of HELLO, the modules: Valkey counts its scripting engine among them.
fn without_modules(reply: &Reply) -> Reply {
    match reply {
        Reply::Many(tag, fields) if !fields.is_empty() => Reply::Many(*tag, fields[..fields.len() - 1].to_vec()),
        other => other.clone(),
    }
}

/// Drops the values of some fields of maps.
fn without_values(reply: &Reply, fields: &[&str]) -> Reply {
    let Reply::Many(tag, items) = reply else { return reply.clone() };
    let mut kept: Vec<Reply> = Vec::new();
    for item in items {
        let is_value = kept.last().is_some_and(|field| fields.iter().any(|name| name.as_bytes() == field.text()));
        kept.push(match item {
            Reply::Line(tag, _) | Reply::Blob(tag, _) if is_value => Reply::Line(*tag, b"value".to_vec()),
            item => without_values(item, fields),
        });
    }
    Reply::Many(*tag, kept)
}

fn with_text(reply: &Reply, change: impl Fn(String) -> String) -> Reply {
    let text = |bytes: &[u8]| change(String::from_utf8_lossy(bytes).into_owned()).into_bytes();
    match reply {
        Reply::Blob(tag, bytes) => Reply::Blob(*tag, text(bytes)),
        Reply::Many(tag, items) => Reply::Many(
            *tag,
            items
                .iter()
                .map(
                    |item| {
                        if let Reply::Blob(tag, bytes) = item { Reply::Blob(*tag, text(bytes)) } else { item.clone() }
                    },
                )
                .collect(),
        ),
        line @ Reply::Line(..) => line.clone(),
    }
}

/// The lines of CLUSTER NODES, sorted, without the times of PING and PONG.
fn lines_without_times(reply: &Reply) -> Reply {
    with_text(reply, |text| {
        let line = |line: &str| {
            let mut words: Vec<&str> = line.split(' ').collect();
            if words.len() > 5 {
                words[4] = "ping";
                words[5] = "pong";
            }
            words.join(" ")
        };
        let mut lines: Vec<String> = text.trim_start_matches("txt:").lines().map(line).collect();
        // The names differ, and the epochs and slots don't.
        lines.sort_by_key(|line| {
            line.split_once(' ').map(|(_, rest)| rest.rsplit_once("connected").map(|(_, slots)| slots.to_owned()))
        });
        lines.join("\n") + if text.ends_with('\n') { "\n" } else { "" }
    })
}

fn lines_of_both(reply: &Reply) -> Reply {
    with_text(reply, |text| {
        let is_common = |line: &&str| !OWN_LINES.iter().any(|own| line.starts_with(own));
        text.split("\r\n").filter(is_common).collect::<Vec<_>>().join("\r\n")
    })
}

/// Holds the conversation of a file, and reports all differences.
fn compare(file: &str) {
    if Make::Valkey9.start(&[]).is_none() {
        return;
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/cluster").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let directive = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
    let args: Vec<&str> = directive("args ").split(' ').filter(|word| !word.is_empty()).collect();
    let sides = [Make::Penstock, Make::Valkey9].map(|make| Side::new(make, directive("nodes "), &args));
    let found = Comparison { sides, found: Vec::new(), reason: None }.run(&text);
    assert!(found.is_empty(), "{file}: {} differences\n{}", found.len(), found.join("\n"));
}

/// True for a line that describes the servers.
fn is_head(line: &str) -> bool {
    line.starts_with("nodes ") || line.starts_with("args ")
}

/// A conversation with both sides.
struct Comparison<'a> {
    sides: [Side; 2],
    found: Vec<String>,
    /// The reason why the next line is answered differently.
    reason: Option<&'a str>,
}

impl<'a> Comparison<'a> {
    fn run(mut self, text: &'a str) -> Vec<String> {
        for (at, line) in text.lines().enumerate() {
            if line.starts_with("== ") {
                self.sides.iter_mut().for_each(|side| side.conns.clear());
            } else if !line.is_empty() && !line.starts_with('#') && !is_head(line) {
                self.line(at + 1, line);
            }
        }
        self.found
    }

    fn line(&mut self, number: usize, line: &'a str) {
        if let Some(reason) = line.strip_prefix("~ ") {
            self.reason = Some(reason);
            return;
        }
        if let Some(ms) = line.strip_prefix("sleep ") {
            return std::thread::sleep(Duration::from_millis(ms.parse().unwrap()));
        }
        let step = Step::of(line);
        let [(ours, our_reply), (theirs, their_reply)] = self.sides.each_mut().map(|side| side.take(&step));
        let by_shape = matches!(step, Step::Say { by_shape: true, .. });
        let have_one_shape = our_reply.zip(their_reply).is_some_and(|(ours, theirs)| same_shape(&ours, &theirs));
        let is_same = if by_shape { have_one_shape } else { ours == theirs };
        match (self.reason.take(), is_same) {
            (None, false) => self.found.push(format!("{number}: {line}\n  penstock {ours}\n  peer     {theirs}")),
            (Some(reason), true) => {
                self.found.push(format!("{number}: {line}\n  are the same, despite: {reason}\n  {ours}"));
            }
            _ => {}
        }
    }
}

#[test]
fn a_server_without_cluster_mode_answers_as_the_peer() {
    compare("off.txt");
}

#[test]
fn one_node_answers_as_the_peer() {
    compare("one.txt");
}

#[test]
fn a_node_without_slots_answers_as_the_peer() {
    compare("none.txt");
}

#[test]
fn three_nodes_answer_as_the_peers() {
    compare("three.txt");
}

#[test]
fn several_databases_answer_as_the_peers() {
    compare("databases.txt");
}
