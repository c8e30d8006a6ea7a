//! Whole slots that move to Penstock: from Valkey 9, and from a test that speaks for the source.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use penstock_tests::bytes::{command, encode};
use penstock_tests::cluster_load::Load;
use penstock_tests::conn::Conn;
use penstock_tests::nodes::{Client, Make, Node, join, node, node_with, replicate, settle};
use penstock_tests::reply::Reply;
use penstock_tests::server::Server;

/// The name of a job.
const JOB: &str = "0123456789012345678901234567890123456789";
/// The null reply as text.
const NULL: &str = "-1";
const DEBUGGING: [&str; 2] = ["--enable-debug-command", "yes"];

fn valkey_is_here() -> bool {
    Make::peers().contains(&Make::Valkey9)
}

/// The value of a field of the newest job.
pub(crate) fn job_field(node: &Node, name: &str) -> String {
    let jobs = node.reply("CLUSTER GETSLOTMIGRATIONS");
    let Some(job) = jobs.items().first() else { return String::new() };
    let texts: Vec<_> = job.items().iter().map(text).collect();
    let value = texts.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone());
    value.unwrap_or_else(|| panic!("no field {name}: {texts:?}"))
}

pub(crate) fn text(reply: &Reply) -> String {
    reply.integer().map_or_else(|| String::from_utf8_lossy(reply.text()).into_owned(), |number| number.to_string())
}

pub(crate) fn wait_for_state(node: &Node, state: &str) {
    node.wait_until(&format!("its job is in the state {state}"), |node| job_field(node, "state") == state);
}

/// Checks that no list or count shows a key.
pub(crate) fn check_hidden(node: &Node) {
    assert_eq!(node.reply("DBSIZE").integer(), Some(0), "{:?}", node.make);
    assert!(node.reply("KEYS *").items().is_empty());
    assert!(node.reply("KEYS {a}*").items().is_empty());
    assert!(node.reply("SCAN 0 COUNT 1000").items()[1].items().is_empty());
    assert_eq!(node.text("RANDOMKEY"), NULL);
    assert!(!node.text("INFO keyspace").contains("db0"));
    assert!(node.text("GET {a}1").starts_with("MOVED"));
}

pub(crate) fn keys_in(node: &Node, slot: u64) -> i64 {
    node.reply(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).integer().unwrap()
}

/// Two nodes: the first one has the slot of `{a}`, and the second one has others.
pub(crate) fn pair(source: Node, target: Node) -> [Node; 2] {
    let nodes = [target, source];
    join(&[&nodes[0], &nodes[1]]);
    let [target, source] = nodes;
    [source, target]
}

pub(crate) fn slot_of_a(node: &Node) -> u64 {
    node.reply("CLUSTER KEYSLOT {a}").integer().unwrap() as u64
}

/// A test in the place of a source.
struct Source {
    conn: Conn,
}

impl Source {
    fn establish(source: &Node, target: &Node) -> Source {
        Source::establish_after(source, target, &[])
    }

    fn establish_after(source: &Node, target: &Node, before: &[&str]) -> Source {
        let mut conn = target.server.connect();
        conn.set_patience(Duration::from_secs(20)).unwrap();
        before.iter().for_each(|line| assert_eq!(conn.cmd(line).unwrap().text(), b"OK", "{line}"));
        let slot = slot_of_a(target);
        let line = format!("CLUSTER SYNCSLOTS ESTABLISH SOURCE {} NAME {JOB} SLOTSRANGE {slot} {slot}", source.id());
        let reply = conn.call(&command(&line)).unwrap();
        assert_eq!(reply.text(), b"OK", "{}", String::from_utf8_lossy(reply.text()));
        let mut source = Source { conn };
        source.send("CLUSTER SYNCSLOTS ACK");
        source
    }

    fn send(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        self.conn.send(bytes.as_bytes()).unwrap();
    }

    fn next(&mut self) -> Vec<String> {
        self.conn.read().unwrap().items().iter().map(text).collect()
    }

    /// Waits for a message other than signs of life and reports.
    fn expect(&mut self, message: &str) {
        loop {
            let words = self.next();
            if !["ACK", "APPLIED"].contains(&words[2].as_str()) {
                assert_eq!(words, ["CLUSTER", "SYNCSLOTS", message]);
                return;
            }
        }
    }

    /// Sends everything up to the request for the slots.
    fn hand_over(&mut self) {
        self.send("CLUSTER SYNCSLOTS SNAPSHOT-EOF");
        self.expect("REQUEST-PAUSE");
        self.send("INCR {a}1");
        self.send("CLUSTER SYNCSLOTS PAUSED");
        self.expect("REQUEST-FAILOVER");
    }
}

#[test]
fn slots_are_claimed_with_all_changes_and_shown_at_once() {
    let [source, target] = pair(node(Make::Penstock), node(Make::Penstock));
    let slot = slot_of_a(&target);
    let mut link = Source::establish(&source, &target);
    wait_for_state(&target, "receiving-snapshot");
    for line in ["SELECT 0", "SET {a}1 7", "RPUSH {a}l x y", "PEXPIREAT {a}l 1", "SET {a}2 x"] {
        link.send(line);
    }
    target.wait_until("the keys are there", |target| keys_in(target, slot) == 3);
    check_hidden(&target);
    assert_eq!(target.text(&format!("CLUSTER SETSLOT {slot} STABLE")), "ERR Slot import in progress.");
    link.hand_over();
    check_hidden(&target);
    link.send("CLUSTER SYNCSLOTS FAILOVER-GRANTED");
    wait_for_state(&target, "success");
    settle(&[&source, &target]);
    let mut client = Client::new(&source);
    assert_eq!(client.run("GET {a}1").text(), b"8");
    target.wait_until("the list has expired", |target| target.reply("DBSIZE").integer() == Some(2));
    assert_eq!(job_field(&target, "slot_ranges"), format!("{slot}-{slot}"));
}

/// A source of Penstock asks for reports before it asks for the import.
#[test]
fn applied_bytes_are_reported_if_the_source_wants_to_know() {
    let [source, target] = pair(node(Make::Penstock), node(Make::Penstock));
    let mut link = Source::establish_after(&source, &target, &["CLUSTER SYNCSLOTS REPORT-PROGRESS"]);
    let mut sent = encode(&command("CLUSTER SYNCSLOTS ACK")).len();
    for line in ["SELECT 0", "SET {a}1 7", "RPUSH {a}l x y"] {
        link.send(line);
        sent += encode(&command(line)).len();
        loop {
            let words = link.next();
            if words[2] == "APPLIED" && words[3] == sent.to_string() {
                break;
            }
        }
    }
    link.hand_over();
    link.send("CLUSTER SYNCSLOTS FAILOVER-GRANTED");
    wait_for_state(&target, "success");
    assert!(job_field(&target, "hold_ms").parse::<u64>().unwrap() < 60_000);
    settle(&[&source, &target]);
}

#[test]
fn a_move_that_fails_leaves_no_keys() {
    let [source, target] = pair(node(Make::Penstock), node(Make::Penstock));
    let slot = slot_of_a(&target);
    let fails = |link: Source, message: &str| {
        wait_for_state(&target, "failed");
        assert_eq!(job_field(&target, "message"), message);
        assert_eq!(keys_in(&target, slot), 0, "{message}");
        drop(link);
    };
    let begin = || {
        let mut link = Source::establish(&source, &target);
        link.send("SET {a}1 7");
        target.wait_until("the key is there", |target| keys_in(target, slot) == 1);
        link
    };
    let mut link = begin();
    link.send("SET b 7");
    fails(link, "The source has sent a command that does not belong to its slots: SET");
    let mut link = begin();
    link.send("LPUSH {a}1 x");
    fails(link, "Failed to process command during slot migration. Check logs for more information");
    let mut link = begin();
    link.send("CLUSTER SYNCSLOTS FAILOVER-GRANTED");
    fails(link, "Unexpected state machine transition");
    let link = begin();
    target.ok("FLUSHALL");
    fails(link, "Data was flushed");
    let link = begin();
    link.conn.writer().unwrap().shutdown(std::net::Shutdown::Both).unwrap();
    fails(link, "Connection lost to source. Check CLUSTER GETSLOTMIGRATIONS on the source node for more information.");
    // A source holds writes for a limited time only.
    let mut link = begin();
    link.hand_over();
    std::thread::sleep(Duration::from_millis(1600));
    link.send("CLUSTER SYNCSLOTS FAILOVER-GRANTED");
    fails(link, "The slots could not be claimed in time");
    assert_eq!(source.text("GET {a}1"), NULL, "the source still has the slot");
}

#[test]
fn a_request_that_does_not_fit_is_refused() {
    let [source, target] = pair(node(Make::Penstock), node(Make::Penstock));
    let (slot, other) = (slot_of_a(&target), target.id());
    let id = source.id();
    for (line, error) in [
        (format!("SOURCE {id} SLOTSRANGE {slot} {slot}"), "ERR syntax error".to_owned()),
        (format!("SOURCE {id} NAME x SLOTSRANGE {slot} {slot}"), "ERR syntax error".to_owned()),
        (
            format!("SOURCE {JOB} NAME {JOB} SLOTSRANGE {slot} {slot}"),
            "ERR Target node does not know the source node".into(),
        ),
        (format!("SOURCE {other} NAME {JOB} SLOTSRANGE {slot} {slot}"), "ERR Source node is target node itself".into()),
        (
            format!("SOURCE {id} NAME {JOB} SLOTSRANGE 0 0"),
            "ERR Target node does not agree about current slot ownership".into(),
        ),
        (format!("SOURCE {id} NAME {JOB} SLOTSRANGE {slot}"), "ERR No end slot for final slot range".into()),
        (format!("SOURCE {id} NAME {JOB} SLOTSRANGE 0 16383"), "ERR Requested slots span multiple shards".into()),
        (format!("SOURCE {id} NAME {JOB} SLOTSRANGE 0 99999"), "ERR Invalid or out of range slot".into()),
    ] {
        assert_eq!(target.text(&format!("CLUSTER SYNCSLOTS ESTABLISH {line}")), error, "{line}");
    }
    let _link = Source::establish(&source, &target);
    let again = format!("CLUSTER SYNCSLOTS ESTABLISH SOURCE {id} NAME {JOB} SLOTSRANGE {slot} {slot}");
    assert_eq!(target.text(&again), "ERR Slot is already being imported on the target by a different migration");
    let mut conn = target.server.connect();
    conn.cmd("MULTI").unwrap();
    conn.cmd(&again).unwrap();
    assert!(text(&conn.cmd("EXEC").unwrap().items()[0]).starts_with("ERR"));
}

/// A replica hides the keys, and shows them at the end. It takes the slots over, even if its primary ends right behind the claim.
#[test]
fn a_replica_follows_an_import() {
    for make in [Make::Penstock, Make::Valkey9] {
        if make == Make::Valkey9 && !valkey_is_here() {
            continue;
        }
        let [source, target] = pair(node(Make::Penstock), node(Make::Penstock));
        let (replica, voter) = (node(make), node(Make::Penstock));
        replica.meet(&target);
        voter.meet(&target);
        settle(&[&source, &target, &replica, &voter]);
        replicate(&replica, &target);
        settle(&[&source, &target, &replica, &voter]);
        let slot = slot_of_a(&target);
        let mut link = Source::establish(&source, &target);
        link.send("SET {a}1 7");
        replica.wait_until("it has the key", |replica| keys_in(replica, slot) == 1);
        check_hidden(&replica);
        assert_eq!(job_field(&replica, "state"), "occurring-on-primary");
        link.hand_over();
        link.send("CLUSTER SYNCSLOTS FAILOVER-GRANTED");
        wait_for_state(&target, "success");
        wait_for_state(&replica, "success");
        settle(&[&source, &target, &replica, &voter]);
        assert_eq!(replica.reply("DBSIZE").integer(), Some(1), "{make:?}");
        replica.ok("CLUSTER FAILOVER");
        replica.wait_until("it leads", |replica| replica.own().is("master"));
        assert_eq!(Client::new(&replica).run("GET {a}1").text(), b"8", "{make:?}");
    }
}

#[test]
fn a_failover_ends_an_import() {
    let [source, target] = pair(node(Make::Penstock), node(Make::Penstock));
    let replica = node(Make::Penstock);
    replica.meet(&target);
    settle(&[&source, &target, &replica]);
    replicate(&replica, &target);
    settle(&[&source, &target, &replica]);
    let slot = slot_of_a(&target);
    let mut link = Source::establish(&source, &target);
    link.send("SET {a}1 7");
    replica.wait_until("it has the key", |replica| keys_in(replica, slot) == 1);
    replica.ok("CLUSTER FAILOVER");
    replica.wait_until("it leads", |replica| replica.own().is("master"));
    for node in [&replica, &target] {
        wait_for_state(node, "failed");
        node.wait_until("the keys are deleted", |node| keys_in(node, slot) == 0);
    }
    assert_eq!(job_field(&replica, "message"), "A failover occurred during slot import");
    drop(link);
}

/// The append-only file has the staged keys, and a start deletes them.
#[test]
fn a_restart_ends_an_import() {
    for rewrites in [false, true] {
        let [source, mut target] =
            pair(node(Make::Penstock), node_with(Make::Penstock, &["--appendonly", "yes", "--appendfsync", "always"]));
        let slot = slot_of_a(&target);
        let mut link = Source::establish(&source, &target);
        link.send("SET {a}1 7");
        target.wait_until("the key is there", |target| keys_in(target, slot) == 1);
        if rewrites {
            target.reply("BGREWRITEAOF");
            target.wait_until("the file is rewritten", |target| {
                let info = target.text("INFO persistence");
                info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrites:1")
            });
        }
        link.send("SET {a}2 7");
        target.wait_until("both keys are there", |target| keys_in(target, slot) == 2);
        target.server.kill();
        target.server.restart();
        target.wait_until("the keys are deleted", |target| target.is_ok() && keys_in(target, slot) == 0);
        assert_eq!(target.reply("DBSIZE").integer(), Some(0));
        assert!(target.text("GET {a}1").starts_with("MOVED"));
    }
}

/// A claim that is on disk survives a crash, with the keys.
#[test]
fn a_restart_keeps_claimed_slots() {
    let [source, mut target] =
        pair(node(Make::Penstock), node_with(Make::Penstock, &["--appendonly", "yes", "--appendfsync", "always"]));
    let mut link = Source::establish(&source, &target);
    link.send("SET {a}1 7");
    link.hand_over();
    link.send("CLUSTER SYNCSLOTS FAILOVER-GRANTED");
    wait_for_state(&target, "success");
    target.server.kill();
    target.server.restart();
    settle(&[&source, &target]);
    assert_eq!(Client::new(&source).run("GET {a}1").text(), b"8");
}

#[test]
fn a_full_synchronization_ends_an_import() {
    let [source, target] = pair(node(Make::Penstock), node(Make::Penstock));
    let replica = node(Make::Penstock);
    replica.meet(&target);
    settle(&[&source, &target, &replica]);
    let slot = slot_of_a(&target);
    let mut link = Source::establish(&source, &target);
    link.send("SET {a}1 7");
    target.wait_until("the key is there", |target| keys_in(target, slot) == 1);
    replicate(&replica, &target);
    wait_for_state(&target, "failed");
    assert_eq!(job_field(&target, "message"), "Full synchronization of a replica");
    assert_eq!([keys_in(&target, slot), keys_in(&replica, slot)], [0, 0]);
    assert_eq!(replica.reply("DBSIZE").integer(), Some(0));
    drop(link);
}

/// Keys of all types, in slots that move.
pub(crate) const VALUES: [(&str, &str); 8] = [
    ("SET {a}string text", "GET {a}string"),
    ("RPUSH {a}list a b c", "LRANGE {a}list 0 -1"),
    ("HSET {a}hash f v g w", "HGET {a}hash g"),
    ("SADD {a}set 1 2 3", "SCARD {a}set"),
    ("ZADD {a}zset 1.5 a 2 b", "ZSCORE {a}zset a"),
    ("XADD {a}stream 1-1 f v", "XLEN {a}stream"),
    ("SET {a}ttl x PX 10000000", "GET {a}ttl"),
    ("PFADD {a}hll 1 2 3", "PFCOUNT {a}hll"),
];

/// Fills a node's slot with values of all types, a field that expires, and 3,000 strings. Returns the client.
pub(crate) fn filled(source: &Node) -> Client {
    let mut client = Client::new(source);
    for (write, _) in VALUES {
        client.run(write);
    }
    client.run("HSET {a}fields f v g w");
    client.run("HEXPIRE {a}fields 10000 FIELDS 1 f");
    for key in 0..3000 {
        client.run(&format!("SET {{a}}many:{key} {key}"));
    }
    client
}

fn migrate(source: &Node, target: &Node, ranges: &str) {
    source.ok(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {ranges} NODE {}", target.id()));
}

#[test]
fn valkey_moves_slots_here_under_load() {
    if !valkey_is_here() {
        return;
    }
    let nodes = [node(Make::Penstock), node(Make::Penstock), node(Make::Valkey9)];
    join(&nodes.each_ref());
    let mut client = filled(&nodes[2]);
    let before: Vec<_> = VALUES.iter().map(|(_, read)| client.run(read)).collect();
    let load = Load::start(&nodes, false);
    std::thread::sleep(Duration::from_millis(300));
    // All but the last slot, in several ranges.
    migrate(&nodes[2], &nodes[0], "10923 12000 12001 16000 16002 16382");
    for node in [&nodes[0], &nodes[2]] {
        wait_for_state(node, "success");
    }
    std::thread::sleep(Duration::from_millis(300));
    let written = load.stop();
    settle(&nodes.each_ref());
    written.check_moved(|command| client.run(command));
    let owner = nodes[0].nodes()[&nodes[0].id()].slots.clone();
    assert!(owner.contains(&"10923-16000".to_owned()) && owner.contains(&"16002-16382".to_owned()), "{owner:?}");
    for ((_, read), before) in VALUES.iter().zip(before) {
        assert_eq!(client.run(read), before, "{read}");
    }
    assert!(client.run("HTTL {a}fields FIELDS 1 f").items()[0].integer().unwrap() > 9000);
    assert!(client.run("PTTL {a}ttl").integer().unwrap() > 9_000_000);
    assert_eq!(client.run("GET {a}many:2999").text(), b"2999");
    nodes[2].wait_until("the source has deleted the keys", |node| keys_in(node, slot_of_a(node)) == 0);
}

/// The job is stopped at Valkey while it has sent the snapshot.
#[test]
fn valkey_cancels_or_dies() {
    if !valkey_is_here() {
        return;
    }
    for dies in [false, true] {
        let [mut source, target] = pair(node_with(Make::Valkey9, &DEBUGGING), node(Make::Penstock));
        let slot = slot_of_a(&target);
        source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 1");
        source.ok("SET {a}1 7");
        migrate(&source, &target, &format!("{slot} {slot}"));
        wait_for_state(&target, "waiting-for-paused");
        assert_eq!(keys_in(&target, slot), 1);
        check_hidden(&target);
        match dies {
            true => source.server.kill(),
            false => source.ok("CLUSTER CANCELSLOTMIGRATIONS"),
        }
        wait_for_state(&target, "failed");
        assert_eq!(keys_in(&target, slot), 0);
    }
}

/// The target dies before and after it has the slots. Valkey keeps them, or the claim counts.
#[test]
fn valkey_keeps_its_slots_if_the_target_dies() {
    if !valkey_is_here() {
        return;
    }
    let [source, mut target] = pair(node_with(Make::Valkey9, &DEBUGGING), node(Make::Penstock));
    let slot = slot_of_a(&target);
    source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 1");
    source.ok("SET {a}1 7");
    migrate(&source, &target, &format!("{slot} {slot}"));
    wait_for_state(&target, "waiting-for-paused");
    target.server.kill();
    wait_for_state(&source, "failed");
    target.server.restart();
    settle(&[&source, &target]);
    source.ok("SET {a}1 8");
    source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 0");
    migrate(&source, &target, &format!("{slot} {slot}"));
    wait_for_state(&target, "success");
    settle(&[&source, &target]);
    assert_eq!(Client::new(&target).run("GET {a}1").text(), b"8");
}

#[test]
fn valkey_cli_reshards_atomically() {
    if !valkey_is_here() {
        return;
    }
    let has_cli = std::process::Command::new("valkey-cli").arg("--version").output().is_ok();
    if !has_cli {
        return;
    }
    let [source, target] = pair(node(Make::Valkey9), node(Make::Penstock));
    source.ok("SET {a}1 7");
    let address = format!("127.0.0.1:{}", source.server.port());
    let (from, to) = (source.id(), target.id());
    let began = Instant::now();
    let output = std::process::Command::new("valkey-cli")
        .args(["--cluster", "reshard", &address, "--cluster-from", &from, "--cluster-to", &to])
        .args(["--cluster-slots", "8191", "--cluster-yes", "--cluster-use-atomic-slot-migration"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    settle(&[&source, &target]);
    assert_eq!(target.reply("DBSIZE").integer(), Some(1), "{:?}", began.elapsed());
}

/// The replies to requests that a source refuses.
#[test]
fn a_source_s_commands_are_refused() {
    let mut refused = Vec::new();
    for make in [Make::Penstock, Make::Valkey9] {
        if make == Make::Valkey9 && !valkey_is_here() {
            continue;
        }
        let [source, target] = pair(node(make), node(Make::Penstock));
        let (me, other, slot) = (source.id(), target.id(), slot_of_a(&target));
        let text = |line: String| source.text(&line).replace(&me, "me").replace(&other, "other");
        let migrate = |rest: String| text(format!("CLUSTER MIGRATESLOTS {rest}"));
        refused.push(vec![
            migrate("foo 1 2".into()),
            migrate("SLOTSRANGE 0".into()),
            migrate(format!("SLOTSRANGE {slot}")),
            migrate(format!("SLOTSRANGE {slot} {slot} NODE")),
            migrate(format!("SLOTSRANGE {slot} {slot} NODE x")),
            migrate(format!("SLOTSRANGE {slot} {slot} NODE {JOB}")),
            migrate(format!("SLOTSRANGE {slot} {slot} NODE {me}")),
            migrate(format!("SLOTSRANGE 9 1 NODE {other}")),
            migrate(format!("SLOTSRANGE 0 1 NODE {other}")),
            migrate(format!("SLOTSRANGE 0 16383 NODE {other}")),
            migrate(format!("SLOTSRANGE {slot} {slot} {slot} {slot} NODE {other}")),
            migrate(format!("SLOTSRANGE {slot} {slot} NODE {other} SLOTSRANGE {slot} {slot} NODE {other}")),
            migrate(format!("SLOTSRANGE NODE {other}")),
            text("CLUSTER CANCELSLOTMIGRATIONS".into()),
            text("CLUSTER SYNCSLOTS foo".into()),
            text("CLUSTER SYNCSLOTS ack".into()),
            text("CLUSTER SYNCSLOTS finish".into()),
            text("CLUSTER SYNCSLOTS establish".into()),
        ]);
    }
    assert!(refused.iter().all(|replies| *replies == refused[0]), "{refused:#?}");
    assert!(refused[0].iter().all(|reply| reply.starts_with("ERR")), "{refused:#?}");
}

#[test]
fn the_log_is_as_long_as_configured() {
    let [source, target] =
        pair(node(Make::Penstock), node_with(Make::Penstock, &["--cluster-slot-migration-log-max-len", "1"]));
    for _ in 0..3 {
        drop(Source::establish(&source, &target));
        wait_for_state(&target, "failed");
    }
    assert_eq!(target.reply("CLUSTER GETSLOTMIGRATIONS").items().len(), 1);
    let _server: &Server = &target.server;
}
