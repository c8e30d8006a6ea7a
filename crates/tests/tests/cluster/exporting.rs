//! Whole slots that move away from Penstock: to Penstock, to Valkey 9, and to a test that speaks for the target.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::TcpListener;
use std::time::Duration;

use penstock_tests::bytes::{command, encode};
use penstock_tests::certificates::Certificates;
use penstock_tests::cluster_load::Load;
use penstock_tests::conn::Conn;
use penstock_tests::nodes::{Client, Make, Node, join, node, node_with, replicate, settle};
use penstock_tests::reply::Reply;

const DEBUGGING: [&str; 2] = ["--enable-debug-command", "yes"];

/// The programs of targets.
fn targets() -> Vec<Make> {
    let valkey = Make::peers().into_iter().filter(|make| *make == Make::Valkey9);
    std::iter::once(Make::Penstock).chain(valkey).collect()
}

fn text(reply: &Reply) -> String {
    reply.integer().map_or_else(|| String::from_utf8_lossy(reply.text()).into_owned(), |number| number.to_string())
}

/// The values of a field of all jobs, from the newest to the oldest.
fn job_fields(node: &Node, name: &str) -> Vec<String> {
    let jobs = node.reply("CLUSTER GETSLOTMIGRATIONS");
    let field = |job: &Reply| {
        let texts: Vec<_> = job.items().iter().map(text).collect();
        let value = texts.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone());
        value.unwrap_or_else(|| panic!("no field {name}: {texts:?}"))
    };
    jobs.items().iter().map(field).collect()
}

fn job_field(node: &Node, name: &str) -> String {
    job_fields(node, name).first().cloned().unwrap_or_default()
}

fn wait_for_state(node: &Node, state: &str) {
    node.wait_until(&format!("its job is in the state {state}"), |node| {
        let now = job_field(node, "state");
        let has_ended = ["failed", "cancelled", "success"].contains(&now.as_str());
        assert!(now == state || !has_ended, "{now}: {}\n{}", job_field(node, "message"), node.server.log());
        now == state
    });
}

fn keys_in(node: &Node, slot: u64) -> i64 {
    node.reply(&format!("CLUSTER COUNTKEYSINSLOT {slot}")).integer().unwrap()
}

fn slot_of_a(node: &Node) -> u64 {
    node.reply("CLUSTER KEYSLOT {a}").integer().unwrap() as u64
}

/// Two nodes: the first one has the slot of `{a}`, and the second one has others.
fn pair(source: Node, target: Node) -> [Node; 2] {
    let nodes = [target, source];
    join(&[&nodes[0], &nodes[1]]);
    let [target, source] = nodes;
    [source, target]
}

fn migrate(source: &Node, target: &Node, ranges: &str) {
    source.ok(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {ranges} NODE {}", target.id()));
}

/// Keys of all types, in a slot that moves.
const VALUES: [(&str, &str); 9] = [
    ("SET {a}string text", "GET {a}string"),
    ("SET {a}number 12", "GET {a}number"),
    ("RPUSH {a}list a b c", "LRANGE {a}list 0 -1"),
    ("HSET {a}hash f v g w", "HGET {a}hash g"),
    ("SADD {a}set 1 2 3", "SCARD {a}set"),
    ("ZADD {a}zset 1.5 a 2 b", "ZSCORE {a}zset a"),
    ("XADD {a}stream 1-1 f v", "XLEN {a}stream"),
    ("SET {a}ttl x PX 10000000", "GET {a}ttl"),
    ("PFADD {a}hll 1 2 3", "PFCOUNT {a}hll"),
];

#[test]
fn keys_of_all_types_move_with_their_expiries() {
    for make in targets() {
        let [source, target] = pair(node(Make::Penstock), node(make));
        let slot = slot_of_a(&source);
        let mut client = Client::new(&source);
        for (write, _) in VALUES {
            assert!(!client.run(write).is_error(), "{write}");
        }
        client.run("XGROUP CREATE {a}stream group 0");
        client.run("XREADGROUP GROUP group me COUNT 1 STREAMS {a}stream >");
        client.run("HSET {a}fields f v g w");
        client.run("HPEXPIRE {a}fields 10000000 FIELDS 1 f");
        for member in 0..3000 {
            client.run(&format!("SADD {{a}}large {member}"));
        }
        // Short strings share commands.
        for number in 0..200 {
            client.run(&format!("SET {{a}}many:{number} {number}"));
        }
        source.ok("SET d stays");
        let before: Vec<_> = VALUES.iter().map(|(_, read)| client.run(read)).collect();
        migrate(&source, &target, &format!("{slot} {slot}"));
        wait_for_state(&source, "success");
        wait_for_state(&target, "success");
        settle(&[&source, &target]);
        for ((_, read), before) in VALUES.iter().zip(before) {
            assert_eq!(client.run(read), before, "{read} from {make:?}");
        }
        assert!(target.reply("HPTTL {a}fields FIELDS 1 f").items()[0].integer().unwrap() > 9_000_000);
        assert!(target.reply("PTTL {a}ttl").integer().unwrap() > 9_000_000);
        assert_eq!(target.reply("SCARD {a}large").integer(), Some(3000));
        for number in 0..200 {
            assert_eq!(target.text(&format!("GET {{a}}many:{number}")), number.to_string());
        }
        assert_eq!(target.reply("XPENDING {a}stream group").items()[0].integer(), Some(1));
        source.wait_until("it has deleted the keys", |source| keys_in(source, slot) == 0);
        assert!(source.text("GET {a}string").starts_with("MOVED"));
        assert_eq!(source.reply("DBSIZE").integer(), Some(1));
        for node in [&source, &target] {
            assert_eq!(job_field(node, "slot_ranges"), format!("{slot}-{slot}"));
            assert_eq!([job_field(node, "source_node"), job_field(node, "target_node")], [source.id(), target.id()]);
        }
        assert_eq!(job_field(&source, "operation"), "EXPORT");
    }
}

#[test]
fn slots_move_under_load() {
    for make in targets() {
        let nodes = [node(make), node(Make::Penstock), node(Make::Penstock)];
        join(&nodes.each_ref());
        let mut client = Client::new(&nodes[2]);
        for key in 0..3000 {
            client.run(&format!("SET {{a}}many:{key} {key}"));
        }
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
        assert_eq!(client.run("GET {a}many:2999").text(), b"2999");
        nodes[2].wait_until("the source has deleted the keys", |node| keys_in(node, slot_of_a(node)) == 0);
    }
}

#[test]
fn an_operator_cancels_a_move() {
    for make in targets() {
        let [source, target] = pair(node_with(Make::Penstock, &DEBUGGING), node(make));
        let slot = slot_of_a(&source);
        source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 1");
        source.ok("SET {a}1 7");
        migrate(&source, &target, &format!("{slot} {slot}"));
        wait_for_state(&source, "waiting-to-pause");
        assert_eq!(keys_in(&target, slot), 1);
        let again = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", target.id());
        assert_eq!(source.text(&again), format!("ERR I am already migrating slot {slot}."));
        assert_eq!(source.text(&format!("CLUSTER SETSLOT {slot} STABLE")), "ERR Slot export in progress.");
        source.ok("CLUSTER CANCELSLOTMIGRATIONS");
        wait_for_state(&source, "cancelled");
        wait_for_state(&target, "failed");
        assert_eq!(source.text("CLUSTER CANCELSLOTMIGRATIONS"), "ERR No migrations ongoing");
        assert_eq!(keys_in(&target, slot), 0);
        assert_eq!(source.text("GET {a}1"), "7");
        source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 0");
        migrate(&source, &target, &format!("{slot} {slot}"));
        wait_for_state(&source, "success");
    }
}

/// A test in the place of a target: the target's node announces the port of a listener of the test.
struct Target {
    conn: Conn,
}

/// The time limit of a manual failover, and half of the longest hold of writes.
const HOLD: [&str; 2] = ["--cluster-manual-failover-timeout", "500"];

/// A source that holds writes for a second, and a target that is a test.
fn pair_with_listener() -> ([Node; 2], TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let target = node_with(Make::Penstock, &["--cluster-announce-port", &port]);
    let nodes = pair(node_with(Make::Penstock, &HOLD), target);
    nodes[0].ok("SET {a}1 7");
    (nodes, listener)
}

impl Target {
    /// Accepts the source's request, like a target that reports no progress.
    fn accept(listener: &TcpListener) -> Target {
        Target::accept_with(listener, b"-ERR syntax error\r\n")
    }

    /// Accepts the source's request. `answer` is the one to the request for reports.
    fn accept_with(listener: &TcpListener, answer: &[u8]) -> Target {
        let mut target = Target::connected(listener, answer);
        assert_eq!(target.next()[2], "ESTABLISH");
        target.conn.send(b"+OK\r\n").unwrap();
        target.expect("ACK");
        target
    }

    fn connected(listener: &TcpListener, answer: &[u8]) -> Target {
        let conn = Conn::of(listener.accept().unwrap().0).unwrap();
        conn.set_patience(Duration::from_secs(20)).unwrap();
        let mut target = Target { conn };
        assert_eq!(target.next()[2], "REPORT-PROGRESS");
        target.conn.send(answer).unwrap();
        target
    }

    fn next(&mut self) -> Vec<String> {
        self.conn.read().unwrap().items().iter().map(text).collect()
    }

    /// Reads up to a message. Returns the commands before it.
    fn expect(&mut self, message: &str) -> Vec<String> {
        let mut commands = Vec::new();
        loop {
            let words = self.next();
            if words[0] != "CLUSTER" {
                commands.push(words.join(" "));
            } else if words[2] == message {
                return commands;
            } else {
                assert_eq!(words[2], "ACK", "before {message}");
            }
        }
    }

    fn tell(&mut self, message: &str) {
        self.conn.send(&encode(&command(&format!("CLUSTER SYNCSLOTS {message}")))).unwrap();
    }

    /// Reads up to a change, which the function returns.
    fn next_command(&mut self) -> String {
        loop {
            let words = self.next();
            if !["CLUSTER", "SELECT"].contains(&words[0].as_str()) {
                return words.join(" ");
            }
        }
    }

    /// Takes the snapshot, and has writes held.
    fn follow_to_pause(&mut self) {
        assert_eq!(self.expect("SNAPSHOT-EOF"), ["SELECT 0", "SET {a}1 7"]);
        self.tell("REQUEST-PAUSE");
        assert_eq!(self.expect("PAUSED"), Vec::<String>::new());
    }
}

/// Checks that writes to the moving slot wait, and nothing else. Returns a connection whose write waits.
fn check_held(source: &Node) -> Conn {
    let mut held = source.server.connect();
    held.send(&encode(&command("INCR {a}1"))).unwrap();
    assert_eq!(source.text("SET d x"), "OK");
    assert_eq!(source.text("GET {a}1"), "7");
    assert_eq!(source.text("EVAL_RO return(redis.call('GET',KEYS[1])) 1 {a}1"), "7");
    held.set_patience(Duration::from_millis(100)).unwrap();
    assert!(held.read().is_err(), "the write did not wait");
    held.set_patience(Duration::from_secs(20)).unwrap();
    held
}

fn wait_for_failure(source: &Node, message: &str) {
    wait_for_state(source, "failed");
    assert_eq!(job_field(source, "message"), message);
}

#[test]
fn changes_follow_the_snapshot_and_held_writes_go_on_after_a_failure() {
    let ([source, target], listener) = pair_with_listener();
    let slot = slot_of_a(&source);
    for closes in [true, false] {
        migrate(&source, &target, &format!("{slot} {slot}"));
        let mut link = Target::accept(&listener);
        assert_eq!(link.expect("SNAPSHOT-EOF"), ["SELECT 0", "SET {a}1 7"]);
        wait_for_state(&source, "replicating");
        let mut conn = source.server.connect();
        for line in [
            "MULTI",
            "SET {a}2 x",
            "EXPIREAT {a}2 4000000000",
            "EXEC",
            "SET d x",
            "EVAL return(redis.call('DEL',KEYS[1])) 1 {a}2",
        ] {
            conn.cmd(line).unwrap();
        }
        link.tell("REQUEST-PAUSE");
        let changes = link.expect("PAUSED");
        assert_eq!(changes, ["SELECT 0", "SET {a}2 x", "PEXPIREAT {a}2 4000000000000", "DEL {a}2"]);
        let mut held = check_held(&source);
        if closes {
            drop(link);
            wait_for_failure(
                &source,
                "Connection lost to target. Check CLUSTER GETSLOTMIGRATIONS on the target node for more information.",
            );
        } else {
            wait_for_failure(&source, "Timed out before streaming completed");
        }
        assert_eq!(held.read().unwrap().integer(), Some(8));
        source.ok("SET {a}1 7");
    }
}

#[test]
fn a_target_that_does_not_claim_the_slots_ends_the_hold() {
    let ([source, target], listener) = pair_with_listener();
    let slot = slot_of_a(&source);
    for closes in [true, false] {
        migrate(&source, &target, &format!("{slot} {slot}"));
        let mut link = Target::accept(&listener);
        link.follow_to_pause();
        link.tell("REQUEST-FAILOVER");
        link.expect("FAILOVER-GRANTED");
        assert_eq!(job_field(&source, "state"), "failover-granted");
        assert_eq!(source.text("CLUSTER CANCELSLOTMIGRATIONS"), "ERR The target has been granted the slots already");
        // A message out of order, or the end of the connection, does not end the hold.
        link.tell("REQUEST-PAUSE");
        let link = if closes { None } else { Some(link) };
        let mut held = check_held(&source);
        wait_for_failure(
            &source,
            "Unpaused before migration completed (migration may have succeeded with lost writes)",
        );
        assert_eq!(held.read().unwrap().integer(), Some(8));
        source.ok("SET {a}1 7");
        drop(link);
    }
}

#[test]
fn a_target_s_messages_have_an_order() {
    let ([source, target], listener) = pair_with_listener();
    let slot = slot_of_a(&source);
    let unexpected = "Unexpected state machine transition";
    for (messages, message) in [
        (&["REQUEST-FAILOVER"][..], unexpected),
        (&["REQUEST-PAUSE", "REQUEST-PAUSE"], unexpected),
        (&["FINISH"], "Unknown SYNCSLOTS subcommand used"),
    ] {
        migrate(&source, &target, &format!("{slot} {slot}"));
        let mut link = Target::accept(&listener);
        link.expect("SNAPSHOT-EOF");
        messages.iter().for_each(|message| link.tell(message));
        wait_for_failure(&source, message);
    }
    migrate(&source, &target, &format!("{slot} {slot}"));
    let mut link = Target::connected(&listener, b"+OK\r\n");
    link.next();
    link.conn.send(b"-ERR not now\r\n").unwrap();
    wait_for_failure(&source, "Received error during handshake to target: -ERR not now");
    assert_eq!(source.text("SET {a}1 8"), "OK");
}

/// Reports decide when the hold begins. Writers that are too fast are held for moments.
#[test]
fn writes_are_held_once_the_target_has_applied_the_changes() {
    let ([source, target], listener) = pair_with_listener();
    let slot = slot_of_a(&source);
    migrate(&source, &target, &format!("{slot} {slot}"));
    let mut link = Target::accept_with(&listener, b"+OK\r\n");
    link.expect("SNAPSHOT-EOF");
    let mut writer = source.server.connect();
    let value = "x".repeat(100_000);
    let mut applied = 0;
    for number in 0..20 {
        writer.cmd(&format!("SET {{a}}1 {number}{value}")).unwrap();
        let words = link.next_command();
        applied += encode(&command(&words)).len();
    }
    link.tell("REQUEST-PAUSE");
    wait_for_state(&source, "waiting-to-pause");
    source.wait_until("writers were held", |source| job_field(source, "hold_ms") != "0");
    assert_eq!(job_field(&source, "state"), "waiting-to-pause");
    assert_eq!(writer.cmd("APPEND {a}1 x").unwrap().integer(), Some(100_003));
    applied += encode(&command(&link.next_command())).len();
    link.tell(&format!("APPLIED {applied}"));
    assert_eq!(link.expect("PAUSED"), Vec::<String>::new());
    assert_eq!(job_field(&source, "state"), "failover-paused");
    link.tell("APPLIED 1");
    wait_for_failure(&source, "The target has reported an impossible progress");
    assert_eq!(source.text("SET {a}1 7"), "OK");
}

#[test]
fn changes_that_a_target_does_not_take_go_to_disk_up_to_a_limit() {
    let ([source, target], listener) = pair_with_listener();
    for command in ["client-output-buffer-limit replica 0 1mb 60", "reply-spill-limit 64mb"] {
        let (name, value) = command.split_once(' ').unwrap();
        assert_eq!(source.quoted(&format!("CONFIG SET {name} \"{value}\"")).text(), b"OK");
    }
    let slot = slot_of_a(&source);
    migrate(&source, &target, &format!("{slot} {slot}"));
    let mut link = Target::accept(&listener);
    link.expect("SNAPSHOT-EOF");
    let mut writer = source.server.connect();
    let write = |writer: &mut Conn, number: usize| {
        let reply = writer.cmd(&format!("SET {{a}}1 {number}:{}", "x".repeat(1_000_000))).unwrap();
        assert_eq!(reply.text(), b"OK");
    };
    // The kernel holds some megabytes.
    let mut written = 0;
    let remaining = |source: &Node| job_field(source, "remaining_repl_size").parse::<u64>().unwrap();
    while remaining(&source) < 8_000_000 {
        write(&mut writer, written);
        written += 1;
        assert!(written < 200, "the kernel takes everything");
    }
    source.wait_until("a part is on disk", |source| {
        source.server.nameless_files().iter().any(|bytes| *bytes > 4_000_000)
    });
    for number in 0..written {
        let words = link.next_command();
        assert!(words.starts_with(&format!("SET {{a}}1 {number}:x")), "{number}: {}", &words[..20]);
    }
    source
        .wait_until("the disk is free", |source| source.server.nameless_files().iter().all(|bytes| *bytes < 1_000_000));
    for number in 0..200 {
        write(&mut writer, number);
        if job_field(&source, "state") == "failed" {
            break;
        }
    }
    wait_for_failure(
        &source,
        "The target takes changes too slowly: see client-output-buffer-limit and reply-spill-limit",
    );
}

#[test]
fn the_keys_of_all_databases_move() {
    for make in targets() {
        let with = |make| node_with(make, &["--cluster-databases", "16"]);
        let [source, target] = pair(with(Make::Penstock), with(make));
        let slot = slot_of_a(&source);
        let mut conn = source.server.connect();
        for database in [0, 1, 15] {
            for command in [format!("SELECT {database}"), format!("SET {{a}} {database}"), "SET d stays".into()] {
                assert_eq!(conn.cmd(&command).unwrap().text(), b"OK");
            }
        }
        migrate(&source, &target, &format!("{slot} {slot}"));
        wait_for_state(&source, "success");
        settle(&[&source, &target]);
        let mut conn = target.server.connect();
        for database in [0, 1, 15] {
            conn.cmd(&format!("SELECT {database}")).unwrap();
            assert_eq!(conn.cmd("GET {a}").unwrap().text(), database.to_string().as_bytes(), "{make:?}");
            assert_eq!(conn.cmd("DBSIZE").unwrap().integer(), Some(1));
        }
        source.wait_until("it has deleted the keys", |source| keys_in(source, slot) == 0);
    }
}

/// The link is encrypted with `tls-replication`. A target whose authority is unknown gets no slot.
#[test]
fn slots_move_over_encrypted_links() {
    let certificates = Certificates::create();
    let node_of = |certificate: &str| {
        let port = penstock_tests::ports::free_port().unwrap().to_string();
        let files = [format!("{certificate}.pem"), format!("{certificate}.key"), "ca.pem".into()];
        let [cert, key, ca] = files.map(|name| certificates.text(&name));
        let files = ["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
        let more = ["--tls-port", &port, "--tls-replication", "yes", "--tls-auth-clients", "yes"];
        node_with(Make::Penstock, &[&more[..], &files].concat())
    };
    for (certificate, state) in [("node", "success"), ("stranger", "failed")] {
        let [source, target] = pair(node_of("node"), node_of(certificate));
        let slot = slot_of_a(&source);
        for key in 0..2000 {
            source.ok(&format!("SET {{a}}{key} {}", "x".repeat(500)));
        }
        migrate(&source, &target, &format!("{slot} {slot}"));
        source.wait_until("its job has ended", |source| job_field(source, "state") == state);
        let message = job_field(&source, "message");
        assert_eq!(message.starts_with("Unable to connect to target node"), state == "failed", "{message}");
        let owner = if state == "success" { &target } else { &source };
        owner.wait_until("it has the keys", |owner| owner.text("GET {a}1999").len() == 500);
    }
}

/// The source is stopped while the target has the snapshot.
fn prevented(source: &Node, target: &Node) -> u64 {
    let slot = slot_of_a(source);
    source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 1");
    source.ok("SET {a}1 7");
    migrate(source, target, &format!("{slot} {slot}"));
    wait_for_state(source, "waiting-to-pause");
    assert_eq!(keys_in(target, slot), 1);
    slot
}

#[test]
fn a_source_keeps_its_slots_if_the_target_dies() {
    for make in targets() {
        let [source, mut target] = pair(node_with(Make::Penstock, &DEBUGGING), node(make));
        let slot = prevented(&source, &target);
        target.server.kill();
        wait_for_state(&source, "failed");
        source.ok("SET {a}1 8");
        target.server.restart();
        settle(&[&source, &target]);
        source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 0");
        migrate(&source, &target, &format!("{slot} {slot}"));
        wait_for_state(&source, "success");
        settle(&[&source, &target]);
        assert_eq!(Client::new(&target).run("GET {a}1").text(), b"8");
    }
}

#[test]
fn a_source_that_dies_keeps_its_slots() {
    for make in targets() {
        let more = [&DEBUGGING[..], &["--appendonly", "yes", "--appendfsync", "always"]].concat();
        let [mut source, target] = pair(node_with(Make::Penstock, &more), node(make));
        let slot = prevented(&source, &target);
        source.server.kill();
        wait_for_state(&target, "failed");
        assert_eq!(keys_in(&target, slot), 0);
        source.server.restart();
        settle(&[&source, &target]);
        assert_eq!(source.text("GET {a}1"), "7");
        // The file has no key of a slot that is gone.
        migrate(&source, &target, &format!("{slot} {slot}"));
        wait_for_state(&source, "success");
        source.wait_until("it has deleted the key", |source| keys_in(source, slot) == 0);
        source.server.kill();
        source.server.restart();
        settle(&[&source, &target]);
        assert_eq!(keys_in(&source, slot), 0);
        assert_eq!(Client::new(&source).run("GET {a}1").text(), b"7");
    }
}

/// Moves a slot between the first two nodes. A target whose disk stalls for longer than 1.5 s may not claim the slot any more, and the operator
/// begins again.
fn migrate_on_slow_disk(nodes: &[Node; 2], slot: u64) {
    for _ in 0..5 {
        migrate(&nodes[0], &nodes[1], &format!("{slot} {slot}"));
        let has_ended = |node: &Node| ["failed", "success"].contains(&job_field(node, "state").as_str());
        nodes.iter().for_each(|node| node.wait_until("its job has ended", has_ended));
        if job_field(&nodes[0], "state") == "success" {
            return;
        }
        let why = job_field(&nodes[1], "message");
        let logs = || format!("{why}\n{}\n{}", nodes[0].server.log(), nodes[1].server.log());
        assert!(why.contains("could not be claimed in time"), "{}", logs());
        nodes[1].wait_until("no staged key is left", |target| keys_in(target, slot) == 0);
    }
    assert_eq!(job_field(&nodes[0], "state"), "success");
}

/// Either side is killed while the source is in a state. The source has the slot and its key afterwards, and the next move succeeds.
#[test]
fn either_side_may_die_in_any_state() {
    let more = [&DEBUGGING[..], &HOLD, &["--appendonly", "yes", "--appendfsync", "always"]].concat();
    // Each state with the node that keeps the move in it (0: the source, 1: the target), and the commands that begin and end this.
    let states = [
        ("snapshotting", 0, ["CONFIG SET rdb-key-save-delay 100000", "CONFIG SET rdb-key-save-delay 0"]),
        ("waiting-to-pause", 0, ["DEBUG SLOTMIGRATION PREVENT-PAUSE 1", "DEBUG SLOTMIGRATION PREVENT-PAUSE 0"]),
        ("failover-granted", 1, ["DEBUG SLOTMIGRATION PREVENT-FAILOVER 1", "DEBUG SLOTMIGRATION PREVENT-FAILOVER 0"]),
    ];
    for (state, keeper, [keep, end]) in states {
        for killed in [0, 1] {
            let mut nodes = pair(node_with(Make::Penstock, &more), node_with(Make::Penstock, &more));
            let slot = slot_of_a(&nodes[0]);
            for key in 0..100 {
                nodes[0].ok(&format!("SET {{a}}{key} 7"));
            }
            nodes[keeper].ok(keep);
            migrate(&nodes[0], &nodes[1], &format!("{slot} {slot}"));
            wait_for_state(&nodes[0], state);
            nodes[killed].server.kill();
            wait_for_state(&nodes[1 - killed], "failed");
            nodes[killed].server.restart();
            settle(&nodes.each_ref());
            nodes[1].wait_until("no staged key is left", |target| keys_in(target, slot) == 0);
            assert_eq!(nodes[0].text("GET {a}99"), "7", "{state}, {killed}");
            nodes[keeper].ok(end);
            migrate_on_slow_disk(&nodes, slot);
            settle(&nodes.each_ref());
            assert_eq!(nodes[1].text("GET {a}99"), "7", "{state}, {killed}");
            nodes[0].wait_until("it has deleted the keys", |source| keys_in(source, slot) == 0);
        }
    }
}

#[test]
fn a_flush_a_full_target_and_a_wrong_password_end_a_move() {
    for make in targets() {
        let [source, target] = pair(node_with(Make::Penstock, &DEBUGGING), node(make));
        let slot = prevented(&source, &target);
        source.ok("FLUSHALL");
        wait_for_failure(&source, "Data was flushed");
        wait_for_state(&target, "failed");
        source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 0");
        source.ok(&format!("SET {{a}}1 {}", "x".repeat(5000)));
        target.ok("CONFIG SET maxmemory 1");
        migrate(&source, &target, &format!("{slot} {slot}"));
        wait_for_state(&source, "failed");
        assert_eq!(job_field(&target, "message"), "Ran out of memory (OOM) during slot import");
        target.ok("CONFIG SET maxmemory 0");
        target.wait_until("it has deleted the keys", |target| keys_in(target, slot) == 0);
        let again = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", target.id());
        target.ok("CONFIG SET requirepass secret");
        source.ok(&again);
        wait_for_state(&source, "failed");
        assert!(job_field(&source, "message").contains("NOAUTH"), "{}", job_field(&source, "message"));
        source.ok("CONFIG SET masterauth wrong");
        source.ok(&again);
        wait_for_state(&source, "failed");
        assert!(job_field(&source, "message").starts_with("Failed to AUTH to target node: -WRONGPASS"));
        source.ok("CONFIG SET masterauth secret");
        source.ok(&again);
        wait_for_state(&source, "success");
    }
}

#[test]
fn jobs_run_one_after_another_and_groups_go_to_several_targets() {
    let nodes = [node_with(Make::Penstock, &DEBUGGING), node(Make::Penstock), node(Make::Penstock)];
    join(&nodes.each_ref());
    let [source, first, second] = &nodes;
    for key in 0..500 {
        Client::new(source).run(&format!("SET key:{key} {key}"));
    }
    source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 1");
    let (one, two) = (first.id(), second.id());
    let groups = format!(
        "SLOTSRANGE 0 1000 NODE {one} SLOTSRANGE 1001 2000 2100 2200 NODE {two} SLOTSRANGE 3000 3000 NODE {one}"
    );
    source.ok(&format!("CLUSTER MIGRATESLOTS {groups}"));
    source
        .wait_until("the first job waits", |source| job_fields(source, "state").last().unwrap() == "waiting-to-pause");
    assert_eq!(job_fields(source, "state"), ["connecting", "connecting", "waiting-to-pause"]);
    assert_eq!(job_fields(source, "slot_ranges"), ["3000-3000", "1001-2000 2100-2200", "0-1000"]);
    source.ok("CLUSTER CANCELSLOTMIGRATIONS");
    source
        .wait_until("all are cancelled", |source| job_fields(source, "state").iter().all(|state| state == "cancelled"));
    source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 0");
    source.ok(&format!("CLUSTER MIGRATESLOTS {groups}"));
    source.wait_until("three have succeeded", |source| {
        job_fields(source, "state").iter().filter(|state| *state == "success").count() == 3
    });
    settle(&nodes.each_ref());
    let slots = |node: &Node| node.own().slots;
    assert!(
        slots(first).contains(&"0-1000".to_owned()) && slots(first).contains(&"3000".to_owned()),
        "{:?}",
        slots(first)
    );
    assert!(slots(second).contains(&"1001-2000".to_owned()) && slots(second).contains(&"2100-2200".to_owned()));
    let mut client = Client::new(source);
    for key in 0..500 {
        assert_eq!(client.run(&format!("GET key:{key}")).text(), key.to_string().as_bytes());
    }
}

#[test]
fn replicas_of_both_sides_follow_a_move() {
    for make in targets() {
        let [source, target] = pair(node_with(Make::Penstock, &DEBUGGING), node(make));
        let (of_source, of_target) = (node(Make::Penstock), node(make));
        let nodes = [&source, &target, &of_source, &of_target];
        of_source.meet(&source);
        of_target.meet(&source);
        settle(&nodes);
        replicate(&of_source, &source);
        replicate(&of_target, &target);
        settle(&nodes);
        let slot = slot_of_a(&source);
        source.ok("SET d stays");
        source.ok("SET {a}1 7");
        of_source.wait_until("it has the key", |replica| keys_in(replica, slot) == 1);
        migrate(&source, &target, &format!("{slot} {slot}"));
        wait_for_state(&source, "success");
        settle(&nodes);
        of_source.wait_until("the key is deleted", |replica| keys_in(replica, slot) == 0);
        assert_eq!(of_source.reply("DBSIZE").integer(), Some(1));
        of_target.wait_until("it has the key", |replica| keys_in(replica, slot) == 1);
        // A failover of the source ends a move.
        let other = source.reply("CLUSTER KEYSLOT d").integer().unwrap();
        source.ok("DEBUG SLOTMIGRATION PREVENT-PAUSE 1");
        migrate(&source, &target, &format!("{other} {other}"));
        wait_for_state(&source, "waiting-to-pause");
        of_source.ok("CLUSTER FAILOVER");
        of_source.wait_until("it leads", |replica| replica.own().is("master"));
        source.wait_until("its job has failed", |source| job_field(source, "state") == "failed");
        settle(&nodes);
        assert_eq!(Client::new(&target).run("GET d").text(), b"stays");
    }
}

#[test]
fn snapshots_wait_for_each_other() {
    let [source, target] = pair(node(Make::Penstock), node(Make::Penstock));
    let slot = slot_of_a(&source);
    for key in 0..10 {
        source.ok(&format!("SET {{a}}{key} {key}"));
    }
    // A second each.
    source.ok("CONFIG SET rdb-key-save-delay 100000");
    assert_eq!(source.text("BGSAVE"), "Background saving started");
    migrate(&source, &target, &format!("{slot} {slot}"));
    wait_for_state(&source, "waiting-to-snapshot");
    wait_for_state(&source, "snapshotting");
    assert_eq!(source.text("INCR {a}1"), "2");
    source.ok("CLUSTER CANCELSLOTMIGRATIONS");
    wait_for_state(&source, "cancelled");
    wait_for_state(&target, "failed");
    migrate(&source, &target, &format!("{slot} {slot}"));
    wait_for_state(&source, "snapshotting");
    assert_eq!(source.text("BGSAVE SCHEDULE"), "Background saving scheduled");
    assert_eq!(source.text("INCR {a}1"), "3");
    wait_for_state(&source, "success");
    source.wait_until("the scheduled snapshot is saved", |source| {
        source.text("INFO persistence").contains("rdb_saves:2")
    });
    settle(&[&source, &target]);
    assert_eq!(Client::new(&source).run("GET {a}1").text(), b"3");
}

#[test]
fn valkey_cli_reshards_atomically() {
    let has_cli = std::process::Command::new("valkey-cli").arg("--version").output().is_ok();
    if !has_cli {
        return;
    }
    for make in targets() {
        let [source, target] = pair(node(Make::Penstock), node(make));
        source.ok("SET {a}1 7");
        let address = format!("127.0.0.1:{}", source.server.port());
        let (from, to) = (source.id(), target.id());
        let output = std::process::Command::new("valkey-cli")
            .args(["--cluster", "reshard", &address, "--cluster-from", &from, "--cluster-to", &to])
            .args(["--cluster-slots", "8191", "--cluster-yes", "--cluster-use-atomic-slot-migration"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        settle(&[&source, &target]);
        assert_eq!(target.reply("DBSIZE").integer(), Some(1), "{make:?}");
    }
}

/// A source without slots becomes a replica of the target, as in Valkey.
#[test]
fn a_source_may_give_away_its_last_slots() {
    for make in targets() {
        let [source, target] = pair(node(Make::Penstock), node(make));
        source.ok("SET {a}1 7");
        let range = source.own().slots[0].replace('-', " ");
        migrate(&source, &target, &range);
        source.wait_until("its job has succeeded", |source| job_field(source, "state") == "success");
        source.wait_until("it follows the target", |source| source.own().is("slave"));
        source.wait_until_linked();
        settle(&[&source, &target]);
        assert_eq!(Client::new(&source).run("GET {a}1").text(), b"7");
    }
}
