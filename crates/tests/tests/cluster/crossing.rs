//! Commands and transactions over several slots of one node: `cluster-cross-slot local`.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};

use penstock_tests::conn::Conn;
use penstock_tests::nodes::{Make, Node, SLOTS, join, node, node_with, replicate, settle};

use crate::moving::move_slot;

const LOCAL: [&str; 2] = ["--cluster-cross-slot", "local"];
const CROSSSLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
const TRYAGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";

/// Commands with keys in several slots, each with its inputs before it.
const WRITES: &[&str] = &[
    "MSET s1 1 s2 2 s3 3 s4 4",
    "MSETNX n1 1 n2 2",
    "DEL s3 n1",
    "RENAME s4 renamed",
    "COPY s1 copy",
    "SADD set1 a b c",
    "SADD set2 b c d",
    "SMOVE set1 set2 a",
    "SUNIONSTORE union set1 set2",
    "SINTERSTORE inter set1 set2",
    "ZADD z1 1 a 2 b",
    "ZADD z2 3 b 4 c",
    "ZUNIONSTORE zunion 2 z1 z2",
    "ZRANGESTORE zrange z2 0 -1",
    "PFADD h1 a b",
    "PFADD h2 c",
    "PFMERGE h3 h1 h2",
    "BITOP OR bits s1 s2",
    "RPUSH l1 a b c",
    "LMOVE l1 l2 LEFT RIGHT",
    "GEOADD g1 1 2 m",
    "GEOSEARCHSTORE g2 g1 FROMMEMBER m BYBOX 1 1 m",
    "SORT l1 ALPHA STORE sorted",
    "XADD x1 1-1 f v",
    "SET many:1 x EX 10000",
];

/// Starts a node that serves all slots.
fn whole(more: &[&str]) -> Node {
    let node = node_with(Make::Penstock, more);
    node.ok(&format!("CLUSTER ADDSLOTSRANGE 0 {}", SLOTS - 1));
    node.wait_until("it serves", |node| node.is_ok());
    node
}

/// Writes by commands, a transaction, scripts and a served waiter, all over several slots.
fn write(node: &Node) {
    let mut conn = node.server.connect();
    let mut run = |command: &str| {
        let reply = conn.cmd(command).unwrap();
        assert!(!reply.is_error(), "{command}: {}", String::from_utf8_lossy(reply.text()));
    };
    WRITES.iter().for_each(|command| run(command));
    ["MULTI", "SET t1 1", "INCR t2", "MSET t3 3 t4 4", "RENAME t4 t5", "EXEC"].iter().for_each(|command| run(command));
    let script = "\"redis.call('mset', KEYS[1], 1, KEYS[2], 2) redis.call('rename', KEYS[2], KEYS[3])\"";
    assert!(node.quoted(&format!("EVAL {script} 3 e1 e2 e3")).is_null());
    let mut waiting = node.server.connect();
    waiting.send(b"BLMOVE w1 w2 LEFT RIGHT 0\r\n").unwrap();
    node.wait_until("it has a waiter", |node| node.text("INFO clients").contains("blocked_clients:1"));
    run("RPUSH w1 served");
    assert_eq!(waiting.read().unwrap().text(), b"served");
}

/// Returns each key with its type, its slot's number of keys, and its contents.
fn contents(node: &Node, reads_replica: bool) -> Vec<String> {
    let mut conn = node.server.connect();
    if reads_replica {
        conn.cmd("READONLY").unwrap();
    }
    let mut keys: Vec<String> = conn
        .cmd("KEYS *")
        .unwrap()
        .items()
        .iter()
        .map(|key| String::from_utf8_lossy(key.text()).into_owned())
        .collect();
    keys.sort();
    keys.iter().map(|key| shown(&mut conn, key)).collect()
}

fn shown(conn: &mut Conn, key: &str) -> String {
    let mut ask = |command: String| conn.cmd(&command).unwrap();
    let kind = String::from_utf8_lossy(ask(format!("TYPE {key}")).text()).into_owned();
    let slot = ask(format!("CLUSTER KEYSLOT {key}")).integer().unwrap();
    let count = ask(format!("CLUSTER COUNTKEYSINSLOT {slot}")).integer().unwrap();
    let value = match kind.as_str() {
        "string" => ask(format!("GET {key}")),
        "list" => ask(format!("LRANGE {key} 0 -1")),
        "set" => ask(format!("SORT_RO {key} ALPHA")),
        "zset" => ask(format!("ZRANGE {key} 0 -1 WITHSCORES")),
        _ => ask(format!("XRANGE {key} - +")),
    };
    assert!(!value.is_error(), "{key}: {}", String::from_utf8_lossy(value.text()));
    format!("{key} {kind} {count} {}", String::from_utf8_lossy(&value.encode()).replace("\r\n", " "))
}

/// Replicas of each make apply the primary's commands over several slots, and serve their keys after a failover.
#[test]
fn replicas_of_each_make_have_all_keys() {
    for make in Make::peers().into_iter().chain([Make::Penstock]) {
        let (primary, replica) = (whole(&LOCAL), node(make));
        replica.meet(&primary);
        settle(&[&primary, &replica]);
        replicate(&replica, &primary);
        settle(&[&primary, &replica]);
        write(&primary);
        let mut conn = primary.server.connect();
        conn.cmd("SET last 1").unwrap();
        assert_eq!(conn.cmd("WAIT 1 10000").unwrap().integer().unwrap(), 1, "{make:?}");
        let expected = contents(&primary, false);
        assert!(expected.len() > 30, "{expected:?}");
        assert_eq!(contents(&replica, true), expected, "{make:?}");
        replica.ok("CLUSTER FAILOVER");
        replica.wait_until("it leads", |node| node.leads("last"));
        assert_eq!(contents(&replica, false), expected, "{make:?}");
    }
}

/// The append-only file is replayed without the check of slots, even where the directive is off by then.
#[test]
fn the_append_only_file_is_replayed() {
    let mut node = whole(&["--appendonly", "yes", "--appendfsync", "always"]);
    node.ok("CONFIG SET cluster-cross-slot local");
    write(&node);
    let expected = contents(&node, false);
    node.server.kill();
    node.server.restart();
    node.wait_until("it serves", |node| node.is_ok());
    assert_eq!(contents(&node, false), expected);
    assert_eq!(node.text("MGET s1 s2"), CROSSSLOT);
}

/// Returns keys of a node, in this many slots.
fn keys_of(node: &Node, count: usize) -> Vec<String> {
    let mut conn = node.server.connect();
    let mut is_own = |key: &String| !conn.cmd(&format!("GET {key}")).unwrap().is_error();
    (0..1000).map(|number| format!("k{number}")).filter(|key| is_own(key)).take(count).collect()
}

/// The answer follows the layout: all keys here, a slot on its way, a slot elsewhere.
#[test]
fn a_reshard_turns_answers_into_errors() {
    let nodes = [node_with(Make::Penstock, &LOCAL), node_with(Make::Penstock, &LOCAL), node(Make::Penstock)];
    join(&nodes.each_ref());
    let [from, to, other] = &nodes;
    let keys = keys_of(from, 2);
    let (mset, mget) = (format!("MSET {} 1 {} 2", keys[0], keys[1]), format!("MGET {}", keys.join(" ")));
    from.ok(&mset);
    assert_eq!(from.reply(&mget).items().len(), 2);
    assert_eq!(to.text(&mget), CROSSSLOT);
    assert_eq!(from.text(&format!("MGET {} {}", keys[0], keys_of(to, 1)[0])), CROSSSLOT);
    let slot = from.reply(&format!("CLUSTER KEYSLOT {}", keys[1])).integer().unwrap() as u64;
    let mut waiting = from.server.connect();
    waiting.send(format!("BLPOP {{{}}}list {{{}}}list 0\r\n", keys[0], keys[1]).as_bytes()).unwrap();
    from.wait_until("it has a waiter", |node| node.text("INFO clients").contains("blocked_clients:1"));
    from.ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", to.id()));
    assert_eq!(waiting.read().unwrap().text(), TRYAGAIN.as_bytes());
    assert_eq!(from.text(&mget), TRYAGAIN);
    assert_eq!(from.text(&mset), TRYAGAIN);
    from.ok(&format!("CLUSTER SETSLOT {slot} STABLE"));
    assert_eq!(from.reply(&mget).items().len(), 2);
    move_slot(slot, from, to, &[other]);
    assert_eq!(from.text(&mget), CROSSSLOT);
    assert_eq!(to.text(&mget), CROSSSLOT);
    move_slot(slot, to, from, &[other]);
    assert_eq!(from.reply(&mget).items()[1].text(), b"2");
}

/// A client that waits for keys in several slots is redirected when the node loses its slots.
#[test]
fn a_failover_ends_waits_over_several_slots() {
    let (primary, replica) = (whole(&LOCAL), node_with(Make::Penstock, &LOCAL));
    replica.meet(&primary);
    settle(&[&primary, &replica]);
    replicate(&replica, &primary);
    settle(&[&primary, &replica]);
    let mut waiting = primary.server.connect();
    waiting.send(b"BLPOP first second 0\r\n").unwrap();
    primary.wait_until("it has a waiter", |node| node.text("INFO clients").contains("blocked_clients:1"));
    replica.ok("CLUSTER FAILOVER");
    let slot = primary.reply("CLUSTER KEYSLOT first").integer().unwrap();
    let redirect = format!("MOVED {slot} 127.0.0.1:{}", replica.server.port());
    assert_eq!(String::from_utf8_lossy(waiting.read().unwrap().text()), redirect);
    replica.wait_until("it leads", |node| node.leads("first"));
    replica.ok("MSET first 1 second 2");
}

/// Several threads write the same value to keys in several slots at once, and others read all of them.
#[test]
fn commands_and_transactions_over_several_slots_are_atomic() {
    let node = whole(&[&LOCAL[..], &["--threads", "4"]].concat());
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (mut conn, ends) = (node.server.connect(), &ends);
            scope.spawn(move || {
                for round in 0..400 {
                    let value = format!("{writer}:{round}");
                    if round % 2 == 0 {
                        conn.cmd(&format!("MSET a1 {value} a2 {value} a3 {value}")).unwrap();
                        continue;
                    }
                    for command in ["MULTI", &format!("SET a1 {value}"), &format!("MSET a3 {value} a2 {value}"), "EXEC"]
                    {
                        assert!(!conn.cmd(command).unwrap().is_error(), "{command}");
                    }
                }
                ends.store(true, Ordering::Relaxed);
            });
        }
        for _ in 0..2 {
            let (mut conn, ends) = (node.server.connect(), &ends);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let reply = conn.cmd("MGET a3 a1 a2").unwrap();
                    let values: Vec<_> = reply.items().iter().map(|item| item.text().to_vec()).collect();
                    assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{values:?}");
                }
            });
        }
    });
}
