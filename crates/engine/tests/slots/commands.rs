//! The commands on slots, and other commands that behave differently in a cluster.

use config::{Loader, Settings};
use resp::reply::Proto;

use crate::world::*;

const REPEATED: &str = "-ERR Multiple filters of the same type are disallowed.";

#[test]
fn keys_of_a_slot_are_counted_listed_and_removed() {
    let mut node = Node::new(parts());
    let (mut session, mut watching) = (node.open(), node.open());
    node.check(
        &mut session,
        &[
            ("cluster keyslot a", ":15495"),
            ("cluster keyslot x{a}y", ":15495"),
            ("mset a 1 {a}b 2 {a}c 3", "+OK"),
            ("set foo 1", "+OK"),
            ("cluster countkeysinslot 15495", ":3"),
            ("cluster countkeysinslot 0", ":0"),
            ("cluster countkeysinslot 16384", "-ERR Invalid slot"),
            ("cluster countkeysinslot -1", "-ERR Invalid slot"),
            ("cluster countkeysinslot x", "-ERR value is not an integer or out of range"),
            ("cluster getkeysinslot 12182 10", "*1|$3|foo"),
            ("cluster getkeysinslot 1 10", "*0"),
            ("cluster getkeysinslot 15495 0", "*0"),
            ("cluster getkeysinslot 1 -1", "-ERR Invalid slot or number of keys"),
            ("cluster getkeysinslot 99999 1", "-ERR Invalid slot or number of keys"),
            ("cluster getkeysinslot 1 x", "-ERR value is not an integer or out of range"),
        ],
    );
    assert!(node.bench.line(&mut session, "cluster getkeysinslot 15495 2").starts_with("*2|"));
    // Listeners of the removed keys are informed.
    node.check(&mut watching, &[("watch a", "+OK"), ("multi", "+OK"), ("get a", "+QUEUED")]);
    node.check(
        &mut session,
        &[
            ("cluster flushslot 1 foo", "-ERR syntax error"),
            ("cluster flushslot 99999", "-ERR Invalid or out of range slot"),
            ("cluster flushslot x", "-ERR Invalid or out of range slot"),
            (
                "cluster flushslot 1 sync async",
                "-ERR unknown subcommand or wrong number of arguments for 'flushslot'. Try CLUSTER HELP.",
            ),
            ("cluster flushslot 15495", "+OK"),
            ("cluster countkeysinslot 15495", ":0"),
            ("cluster flushslot 12182 async", "+OK"),
            ("dbsize", ":0"),
            ("cluster flushslot 12182 sync", "+OK"),
        ],
    );
    node.check(&mut watching, &[("exec", "*-1")]);
}

#[test]
fn removed_keys_of_a_slot_are_published_and_invalidated() {
    let settings = Settings::new();
    Loader::new(&settings).directive(&[b"notify-keyspace-events".to_vec(), b"Eg".to_vec()]).unwrap();
    let mut node = Node::with(settings, 1, parts());
    let (mut session, mut hears) = (node.open(), node.bench.open_with(Proto::Resp3));
    node.check(&mut session, &[("set a 1", "+OK")]);
    node.check(
        &mut hears,
        &[
            ("subscribe __keyevent@0__:del", ">3|$9|subscribe|$18|__keyevent@0__:del|:1"),
            ("client tracking on", "+OK"),
            ("get a", "$1|1"),
        ],
    );
    node.check(&mut session, &[("cluster flushslot 15495", "+OK")]);
    let arrived = node.bench.arrived(&mut hears);
    assert!(arrived.contains("$18|__keyevent@0__:del|$1|a") && arrived.contains("invalidate"), "{arrived}");
}

#[test]
fn a_slot_spans_all_databases() {
    let settings = Settings::new();
    Loader::new(&settings).directive(&[b"cluster-databases".to_vec(), b"2".to_vec()]).unwrap();
    let mut node = Node::with(settings, 1, parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("set a 1", "+OK"),
            ("select 1", "+OK"),
            ("set {a}b 1", "+OK"),
            // The selected database counts, as in Valkey.
            ("cluster countkeysinslot 15495", ":1"),
            ("cluster getkeysinslot 15495 9", "*1|$4|{a}b"),
            ("select 2", "-ERR DB index is out of range"),
            ("swapdb 0 1", "-ERR SWAPDB is not allowed in cluster mode"),
            ("cluster flushslot 15495", "+OK"),
            ("cluster countkeysinslot 15495", ":0"),
        ],
    );
    let mut single = Node::new(parts());
    let mut session = single.open();
    single.check(
        &mut session,
        &[
            ("select 0", "+OK"),
            ("select 1", "-ERR DB index is out of range"),
            ("set a 1", "+OK"),
            ("move a 1", "-ERR DB index is out of range"),
            ("copy a {a}b db 1", "-ERR DB index is out of range"),
        ],
    );
}

#[test]
fn commands_that_the_cluster_replaces_are_refused() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("replicaof 127.0.0.1 1", "-ERR REPLICAOF not allowed in cluster mode."),
            ("replicaof no one", "-ERR REPLICAOF not allowed in cluster mode."),
            ("failover", "-ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead."),
            ("info cluster", "$30|# Cluster|cluster_enabled:1|"),
        ],
    );
    assert!(node.bench.line(&mut session, "hello").contains("$4|mode|$7|cluster|"));
    assert!(node.bench.line(&mut session, "info server").contains("redis_mode:cluster|"));
}

#[test]
fn patterns_of_sort_stay_in_the_slot() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    let denied = |option: &str| {
        format!(
            "-ERR {option} option of SORT denied in Cluster mode when keys formed by the pattern may be in different slots."
        )
    };
    node.check(
        &mut session,
        &[
            ("rpush a 2 1", ":2"),
            ("mset {a}w1 5 {a}w2 4", "+OK"),
            ("sort a", "*2|$1|1|$1|2"),
            ("sort a by {a}w*", "*2|$1|2|$1|1"),
            ("sort a by nosort", "*2|$1|2|$1|1"),
            ("sort a by {a}w* get {a}w* get #", "*4|$1|4|$1|2|$1|5|$1|1"),
            ("sort a by w*", &denied("BY")),
            ("sort a by {foo}w*", &denied("BY")),
            ("sort a get w*", &denied("GET")),
            ("sort a get {b}x", &denied("GET")),
            ("sort_ro a by w*", &denied("BY")),
        ],
    );
}

#[test]
fn a_hash_tag_in_a_pattern_limits_the_scan_to_its_slot() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    for i in 0..200 {
        node.bench.line(&mut session, &format!("set {{a}}{i} v"));
        node.bench.line(&mut session, &format!("set {{foo}}{i} v"));
    }
    node.check(
        &mut session,
        &[("keys {b}*", "*0"), ("scan 0 match {b}* count 10", "*2|$1|0|*0"), ("keys {a}7", "*1|$4|{a}7")],
    );
    assert!(node.bench.line(&mut session, "keys {a}*").starts_with("*200|"));
    assert!(node.bench.line(&mut session, "keys *").starts_with("*400|"));
    let (mut cursor, mut found, mut calls) = ("0".to_owned(), 0, 0);
    loop {
        let reply = node.bench.line(&mut session, &format!("scan {cursor} match {{a}}* count 20"));
        found += reply.matches("{a}").count();
        assert!(!reply.contains("{foo}"), "{reply}");
        cursor = reply.split('|').nth(2).unwrap().to_owned();
        calls += 1;
        if cursor == "0" {
            break;
        }
    }
    assert!(found == 200 && calls < 20, "{found} in {calls}");
}

/// Parses a reply of CLUSTERSCAN: the cursor and the names.
fn scanned(reply: &str) -> (String, Vec<String>) {
    let parts: Vec<&str> = reply.split('|').collect();
    (parts[2].to_owned(), parts[4..].iter().skip(1).step_by(2).map(|name| (*name).to_owned()).collect())
}

#[test]
fn a_scan_of_the_cluster_goes_from_slot_to_slot() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    let names: Vec<String> = (0..2000).map(|i| format!("key:{i}")).collect();
    let own = |name: &&String| (8192..=16000).contains(&cluster::key_slot(name.as_bytes()).number());
    let mut expected: Vec<String> = names.iter().filter(own).cloned().collect();
    for name in &expected {
        node.bench.line(&mut session, &format!("set {name} v"));
    }
    let (first, none) = scanned(&node.bench.line(&mut session, "clusterscan 0"));
    assert!(first.starts_with("0-{") && first.ends_with("}-0") && none.is_empty(), "{first}");
    assert_eq!(cluster::key_slot(first.as_bytes()).number(), 0);
    // The first slots belong to another node, which the client continues with.
    assert_eq!(node.bench.line(&mut session, &format!("clusterscan {first}")), "-MOVED 0 127.0.0.1:7001");
    let (at, _) = scanned(&node.bench.line(&mut session, "clusterscan 0 slot 8192"));
    let (mut cursor, mut found, mut calls) = (at, Vec::new(), 0);
    while cluster::key_slot(cursor.as_bytes()).number() <= 16000 {
        let (next, mut names) = scanned(&node.bench.line(&mut session, &format!("clusterscan {cursor} count 50")));
        found.append(&mut names);
        cursor = next;
        calls += 1;
    }
    expected.sort_unstable();
    found.sort_unstable();
    assert!(found == expected && calls < 40, "{} of {} in {calls}", found.len(), expected.len());
    assert_eq!(cluster::key_slot(cursor.as_bytes()).number(), 16001);
    assert_eq!(node.bench.line(&mut session, &format!("clusterscan {cursor}")), UNBOUND);
}

#[test]
fn a_scan_of_the_cluster_takes_what_scan_takes() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("set a 1", "+OK"),
            ("rpush {a}l 1", ":1"),
            ("clusterscan 0-{a}-0 slot 15495 type list", "*2|$1|0|*1|$4|{a}l"),
            ("clusterscan 0-{a}-0 match {a}*", "*2|$1|0|*1|$4|{a}l"),
            ("clusterscan 0-{a}-0 slot 5", "-ERR Cursor slot mismatch with SLOT argument"),
            ("clusterscan 0 slot 99999", "-ERR Invalid or out of range slot"),
            ("clusterscan 0 slot x", "-ERR Invalid or out of range slot"),
            ("clusterscan 0-{a}-0 count 0", "-ERR syntax error"),
            ("clusterscan 0-{a}-0 bogus", "-ERR syntax error"),
            ("clusterscan foo", "-ERR Invalid cursor"),
            ("clusterscan 00", "-ERR Invalid cursor"),
            ("clusterscan foo bogus", "-ERR syntax error"),
            ("clusterscan 0-{a}-0 type bogus", "-ERR unknown type name 'bogus'"),
            ("clusterscan 0-{a}-0 slot 15495 slot 15495", "-ERR SLOT option can only be specified once"),
            ("clusterscan 0-{a}-0 slot x slot 1", "-ERR Invalid or out of range slot"),
            ("clusterscan 0-{a}-x", "-ERR Invalid cursor"),
            // The cursor is routed before it is parsed.
            ("clusterscan 0-{b}-x bogus", MOVED_B),
            ("multi", "+OK"),
            ("clusterscan 0-{a}-0 match nothing", "+QUEUED"),
            ("exec", "*1|*2|$1|0|*0"),
            ("clusterscan 0-{a}-0 match {foo}*", "*2|$1|0|*0"),
            ("clusterscan 0-{a}-0 match {foo}* slot 15495", "*2|$1|0|*0"),
            ("clusterscan 0 match {foo}* slot 15495", "*2|$1|0|*0"),
            ("clusterscan 0 match {a}*", "*2|$7|0-{a}-0|*0"),
            ("multi", "+OK"),
            ("clusterscan 0-{b}-0", MOVED_B),
            ("discard", "+OK"),
            ("clusterscan 0-{b}-0", MOVED_B),
        ],
    );
    let (cursor, _) = scanned(&node.bench.line(&mut session, "clusterscan 0 match {a}*"));
    assert_eq!(cluster::key_slot(cursor.as_bytes()).number(), 15495);
}

#[test]
fn slot_stats_show_the_use_of_slots() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    let keys = |slot: u64, count: usize| format!("*2|:{slot}|*2|$9|key-count|:{count}");
    node.check(
        &mut session,
        &[
            ("mset a 1 {a}b 2", "+OK"),
            ("set foo 1", "+OK"),
            ("cluster slot-stats slotsrange 15495 15496", &format!("*2|{}|{}", keys(15495, 2), keys(15496, 0))),
            // The reply contains slots of this node only.
            ("cluster slot-stats slotsrange 0 100", "*0"),
            ("cluster slot-stats slotsrange 5 3", "-ERR Start slot number 5 is greater than end slot number 3"),
            ("cluster slot-stats slotsrange 0 16384", "-ERR Invalid or out of range slot"),
            (
                "cluster slot-stats slotsrange 1",
                "-ERR unknown subcommand or wrong number of arguments for 'slot-stats'. Try CLUSTER HELP.",
            ),
            ("cluster slot-stats orderby", "-ERR wrong number of arguments for 'cluster|slot-stats' command"),
            (
                "cluster slot-stats bogus 1",
                "-ERR unknown subcommand or wrong number of arguments for 'slot-stats'. Try CLUSTER HELP.",
            ),
            ("cluster slot-stats orderby key-count asc desc", REPEATED),
            ("cluster slot-stats orderby key-count limit 1 limit 2", REPEATED),
            ("cluster slot-stats orderby key-count limit", "-ERR syntax error"),
            (
                "cluster slot-stats orderby key-count limit 3",
                &format!("*3|{}|{}|{}", keys(15495, 2), keys(12182, 1), keys(8192, 0)),
            ),
            ("cluster slot-stats orderby key-count asc limit 1", &format!("*1|{}", keys(8192, 0))),
            ("cluster slot-stats orderby cpu-usec", "-ERR Unrecognized sort metric for ORDERBY."),
            (
                "cluster slot-stats orderby key-count limit 0",
                "-ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
            ),
            ("cluster slot-stats orderby key-count bogus", "-ERR syntax error"),
            ("config set cluster-slot-stats-enabled yes", "+OK"),
            ("get a", "$1|1"),
            ("multi", "+OK"),
            ("get foo", "+QUEUED"),
            ("exec", "*1|$1|1"),
        ],
    );
    let stats = node.bench.line(&mut session, "cluster slot-stats slotsrange 15495 15495");
    assert!(stats.contains("$16|network-bytes-in|:20|$17|network-bytes-out|:7"), "{stats}");
    let stats = node.bench.line(&mut session, "cluster slot-stats orderby network-bytes-in limit 2");
    assert!(stats.starts_with("*2|*2|:12182|*8|$9|key-count|:1|$8|cpu-usec|:"), "{stats}");
    node.check(&mut session, &[("config resetstat", "+OK")]);
    assert!(
        node.bench.line(&mut session, "cluster slot-stats slotsrange 15495 15495").ends_with("network-bytes-out|:0")
    );
}

#[test]
fn a_slot_that_leaves_loses_its_statistics() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[("config set cluster-slot-stats-enabled yes", "+OK"), ("set a 1", "+OK"), ("set foo 1", "+OK")],
    );
    let mut left = parts();
    left.bound = vec![(B, cluster::SlotSet::FULL)];
    node.see(left);
    node.see(parts());
    for slot in [15495, 12182] {
        let stats = node.bench.line(&mut session, &format!("cluster slot-stats slotsrange {slot} {slot}"));
        assert!(stats.ends_with("cpu-usec|:0|$16|network-bytes-in|:0|$17|network-bytes-out|:0"), "{stats}");
    }
}

#[test]
fn a_token_counts_redirects_as_failures_of_its_node() {
    let mut node = Node::new(parts());
    let (mut session, mut other) = (node.open(), node.open());
    node.check(&mut session, &[("pipeline start t", "+OK")]);
    let replies = node.pipeline(&mut session, &["set a 1", "get b", "get a", "mget a b"]);
    assert_eq!(replies, format!("+OK|{MOVED_B}|$1|1|{CROSS}|"));
    let status = node.bench.line(&mut other, "pipeline status t");
    let moved = &MOVED_B[1..];
    assert!(status.contains("executed|:4|") && status.contains("failed|:2|"), "{status}");
    assert!(status.contains(&format!("*2|:2|${}|{moved}|", moved.len())) && status.contains("*2|:4|"), "{status}");
    // The slot moves to another node: the token stays, and counts the redirects.
    let mut left = parts();
    left.bound = vec![(B, cluster::SlotSet::FULL)];
    node.see(left);
    let resumed = node.bench.line(&mut other, "pipeline resume t");
    assert!(resumed.contains("executed|:4|"), "{resumed}");
    node.check(&mut other, &[("get a", "-MOVED 15495 127.0.0.1:7001")]);
    let status = node.bench.line(&mut other, "pipeline status t");
    assert!(status.contains("executed|:5|") && status.contains("failed|:3|"), "{status}");
}

/// Arguments are checked before the bus is asked. There is none behind this bench.
#[test]
fn wrong_arguments_never_reach_the_bus() {
    const NO_BUS: &str = "-ERR The cluster bus does not run here";
    const SETSLOT: &str = "-ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP";
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("cluster info", NO_BUS),
            ("cluster addslots 1 16384", "-ERR Invalid or out of range slot"),
            ("cluster addslots 1 2", NO_BUS),
            ("cluster addslotsrange 1 2 3", "-ERR wrong number of arguments for 'cluster|addslotsrange' command"),
            ("cluster delslotsrange 1 x", "-ERR Invalid or out of range slot"),
            ("cluster meet 127.0.0.1 x", "-ERR Invalid base port specified: x"),
            ("cluster meet 127.0.0.1 1 x", "-ERR Invalid bus port specified: x"),
            ("cluster meet 127.0.0.1 1 2", NO_BUS),
            ("cluster setslot 1 bogus x", SETSLOT),
            ("cluster setslot 1 migrating", SETSLOT),
            ("cluster setslot 1 stable x", SETSLOT),
            ("cluster setslot x stable", "-ERR Invalid or out of range slot"),
            ("cluster setslot 1 stable timeout x", "-ERR timeout is not an integer or out of range"),
            ("cluster setslot 1 stable timeout 5", NO_BUS),
            ("cluster reset bogus", "-ERR syntax error"),
            ("cluster failover bogus", "-ERR syntax error"),
            ("cluster set-config-epoch x", "-ERR value is not an integer or out of range"),
        ],
    );
    // A refused command leaves no wait behind.
    node.check(&mut session, &[("ping", "+PONG")]);
}

/// Keys of lost slots go in steps, with all the slot's databases, and others stay.
#[test]
fn keys_of_lost_slots_are_deleted() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    for key in 0..300 {
        node.check(&mut session, &[(&format!("set {{a}}{key} v"), "+OK")]);
    }
    node.check(&mut session, &[("set foo 1", "+OK")]);
    let deleted = node.bench.worker.engine.slots.dropped.add([slot(15495), slot(3)].into_iter().collect());
    while node.bench.worker.drop_slots() {}
    deleted.wait();
    node.check(&mut session, &[("dbsize", ":1"), ("cluster countkeysinslot 15495", ":0"), ("get foo", "$1|1")]);
}

/// Commands that look at a slot's keys lock them, also as a part of a transaction or a script.
#[test]
fn transactions_and_scripts_look_at_any_slot() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    for command in [
        "cluster countkeysinslot 15495",
        "cluster getkeysinslot 15495 9",
        "cluster slot-stats slotsrange 15495 15495",
        "cluster slot-stats orderby key-count limit 1",
        "clusterscan 0-{a}-0",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        let alone = node.words(&mut session, &words);
        node.words(&mut session, &["multi"]);
        // The transaction has a key of another slot.
        node.words(&mut session, &["get", "{a}"]);
        node.words(&mut session, &words);
        let reply = node.words(&mut session, &["exec"]);
        assert!(reply.ends_with(&alone), "{command}: {reply}, alone {alone}");
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let script = format!("return redis.call({})", quoted.join(","));
        let reply = node.words(&mut session, &["eval", &script, "0"]);
        assert!(!reply.starts_with("-ERR Error"), "{command}: {reply}");
    }
}
