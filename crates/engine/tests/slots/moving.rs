//! Routing while slots move key by key.

use cluster::view::Open;
use config::{Loader, Settings};
use engine::clients::progress::Progress;
use engine::durability::DurabilityTarget;
use engine::testing::request;
use journal::lane::Audience;

use crate::world::*;

const ASK: &str = "-ASK 15495 127.0.0.1:7001";
const MOVED: &str = "-MOVED 15495 127.0.0.1:7001";

fn leaves() -> cluster::view::ViewParts {
    with_open(parts(), &[("a", Open::Migrating { to: B })])
}

/// Returns a view in which `a` imports a slot of `b`.
fn arrives() -> cluster::view::ViewParts {
    let mut parts = parts();
    parts.bound.push((B, [cluster::key_slot(b"a")].into_iter().collect()));
    with_open(parts, &[("a", Open::Importing { from: B })])
}

#[test]
fn a_migrating_slot_serves_its_remaining_keys() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(&mut session, &[("set a 1", "+OK"), ("set {a}there 2", "+OK"), ("set foo 3", "+OK")]);
    node.see(leaves());
    node.check(
        &mut session,
        &[
            ("get a", "$1|1"),
            ("set a 1", "+OK"),
            ("get {a}x", ASK),
            ("set {a}x 1", ASK),
            ("mget a {a}there", "*2|$1|1|$1|2"),
            ("mget a {a}x", TRYAGAIN),
            ("mget {a}y {a}x", ASK),
            ("blpop {a}l 0", ASK),
            ("eval return{1} 1 a", "*1|:1"),
            ("eval return{1} 1 {a}x", ASK),
            ("copy a {a}z", TRYAGAIN),
            ("get foo", "$1|3"),
            ("mget a foo", CROSS),
            ("get b", MOVED_B),
            ("ssubscribe {a}x", "*3|$10|ssubscribe|$4|{a}x|:1"),
            ("sunsubscribe", "*3|$12|sunsubscribe|$4|{a}x|:0"),
            ("spublish a m", ":0"),
        ],
    );
    assert_eq!(
        node.pipeline(&mut session, &["get a", "get {a}x", "incr a", "get foo"]),
        format!("$1|1|{ASK}|:2|$1|3|")
    );
    // An expired key counts as missing.
    node.check(&mut session, &[("pexpire a 1", ":1")]);
    node.bench.now_us += 2000;
    node.check(&mut session, &[("get a", ASK)]);
}

#[test]
fn exec_checks_all_keys_on_a_migrating_slot() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(&mut session, &[("set a 1", "+OK")]);
    node.see(leaves());
    let queued = "+QUEUED";
    node.check(
        &mut session,
        &[
            ("multi", "+OK"),
            ("get a", queued),
            ("exec", "*1|$1|1"),
            ("multi", "+OK"),
            ("get a", queued),
            ("get {a}x", queued),
            ("exec", TRYAGAIN),
            ("multi", "+OK"),
            ("get {a}x", queued),
            ("set {a}x 1", queued),
            ("exec", ASK),
            ("exec", "-ERR EXEC without MULTI"),
            ("watch {a}x", ASK),
            ("watch a", "+OK"),
        ],
    );
}

/// A client that is told to ask the target writes there. A crash of this node must not bring the removed key back.
#[test]
fn ask_waits_until_the_removal_of_the_key_is_durable() {
    let settings = Settings::new();
    Loader::new(&settings).directive(&[b"cluster-forward".to_vec(), b"yes".to_vec()]).unwrap();
    let mut node = Node::with(settings, 1, parts());
    let (mut session, mut forwarded) = (node.open(), node.open());
    let engine = node.bench.worker.engine;
    let _file = engine.journal.read(&engine.keyspace, Audience::File);
    engine.durability.begin_log(std::thread::current(), || true, engine.journal.position());
    node.check(&mut session, &[("set a 1", "+OK"), ("del a", ":1")]);
    let removed = node.bench.worker.take_durable_after();
    assert!(removed > 0);
    node.check(&mut session, &[("set foo 1", "+OK")]);
    assert!(node.bench.worker.take_durable_after() > removed);
    node.see(leaves());
    node.check(&mut session, &[("get a", ASK)]);
    assert_eq!(node.bench.worker.take_durable_after(), removed);
    node.check(&mut session, &[("multi", "+OK"), ("get a", "+QUEUED"), ("exec", ASK)]);
    assert_eq!(node.bench.worker.take_durable_after(), removed);
    node.check(&mut session, &[("get {a}x", ASK)]);
    assert_eq!(node.bench.worker.take_durable_after(), 0);

    engine.durability.note_safe(DurabilityTarget::Log, removed - 1, |_| ());
    forwarded.forwarding.is_possible = true;
    let get = request(&["get", "a"]);
    assert_eq!(node.bench.run(&mut forwarded, &get), (Vec::new(), Progress::Paused));
    assert!(node.bench.worker.take_forwarded().is_none());
    engine.durability.note_safe(DurabilityTarget::Log, removed, |_| ());
    assert_eq!(node.bench.run(&mut forwarded, &get), (Vec::new(), Progress::Ready));
    assert!(node.bench.worker.take_forwarded().is_some());
}

#[test]
fn an_imported_slot_is_served_after_asking() {
    let mut node = Node::new(arrives());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("get a", MOVED),
            ("asking", "+OK"),
            ("get a", "$-1"),
            // ASKING applies to one command only.
            ("get a", MOVED),
            ("asking", "+OK"),
            ("ping", "+PONG"),
            ("get a", MOVED),
            ("asking", "+OK"),
            ("asking", "+OK"),
            ("set a 1", "+OK"),
            ("asking", "+OK"),
            ("mget a {a}x", TRYAGAIN),
            ("asking", "+OK"),
            ("mget {a}x {a}x", "*2|$-1|$-1"),
            ("asking", "+OK"),
            ("mget a a", "*2|$1|1|$1|1"),
            ("asking", "+OK"),
            ("get foo", "$-1"),
            ("asking", "+OK"),
            ("get b", MOVED_B),
            // ASKING before MULTI applies to the whole transaction.
            ("asking", "+OK"),
            ("multi", "+OK"),
            ("get a", "+QUEUED"),
            ("set {a}y 2", "+QUEUED"),
            ("exec", TRYAGAIN),
            ("get a", MOVED),
            ("asking", "+OK"),
            ("multi", "+OK"),
            ("get a", "+QUEUED"),
            ("exec", "*1|$1|1"),
            ("get a", MOVED),
            ("multi", "+OK"),
            ("get a", MOVED),
            ("exec", "-EXECABORT Transaction discarded because of previous errors."),
            ("asking", "+OK"),
            ("eval return{1} 1 a", "*1|:1"),
            ("asking", "+OK"),
            ("ssubscribe a", "*3|$10|ssubscribe|$1|a|:1"),
            ("sunsubscribe", "*3|$12|sunsubscribe|$1|a|:0"),
            ("ssubscribe a", MOVED),
            ("asking", "+OK"),
            ("reset", "+RESET"),
            ("get a", MOVED),
        ],
    );
    let replies = node.pipeline(&mut session, &["asking", "get a", "get a", "asking", "incr a", "get foo"]);
    assert_eq!(replies, format!("+OK|$1|1|{MOVED}|+OK|:2|$-1|"));
    // RESTORE-ASKING implies ASKING.
    node.check(&mut session, &[("asking", "+OK")]);
    let payload = {
        let (reply, _) = node.bench.run(&mut session, &engine::testing::request(&["dump", "a"]));
        let start = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        reply[start..reply.len() - 2].to_vec()
    };
    let restore: [&[u8]; 4] = [b"restore-asking", b"{a}z", b"0", &payload];
    assert_eq!(node.bench.run(&mut session, &engine::testing::request(&restore)).0, b"+OK\r\n");
    let restore: [&[u8]; 4] = [b"restore", b"{a}q", b"0", &payload];
    assert_eq!(node.bench.run(&mut session, &engine::testing::request(&restore)).0, format!("{MOVED}\r\n").as_bytes());
}

#[test]
fn other_databases_are_refused_while_a_slot_is_open() {
    let settings = config::Settings::new();
    config::Loader::new(&settings).directive(&[b"cluster-databases".to_vec(), b"3".to_vec()]).unwrap();
    let mut node = Node::with(settings, 1, parts());
    let mut session = node.open();
    node.check(&mut session, &[("set a 1", "+OK"), ("set foo 1", "+OK")]);
    for view in [leaves(), arrives(), down(leaves())] {
        node.see(view);
        node.check(
            &mut session,
            &[
                ("move a 1", TRYAGAIN),
                ("copy a {a}b db 1", TRYAGAIN),
                ("asking", "+OK"),
                ("copy a {a}b db 1", TRYAGAIN),
            ],
        );
    }
    node.see(leaves());
    node.check(
        &mut session,
        &[
            ("copy a a db 1", TRYAGAIN),
            ("copy a {a}b db 0", TRYAGAIN),
            ("move foo 1", ":1"),
            ("select 2", "+OK"),
            ("get foo", "$-1"),
        ],
    );
}

#[test]
fn migrate_runs_while_a_slot_is_open() {
    let mut node = Node::new(leaves());
    let mut session = node.open();
    // MIGRATE is served: the key does not exist.
    node.check(
        &mut session,
        &[("migrate 127.0.0.1 1 {a}x 0 10", "+NOKEY"), ("migrate 127.0.0.1 1 foo 0 10", "+NOKEY")],
    );
    node.see(arrives());
    node.check(&mut session, &[("migrate 127.0.0.1 1 {a}x 0 10", "+NOKEY")]);
    // The other node imports the slot, and stores its keys only with ASKING.
    node.see(parts());
    node.check(
        &mut session,
        &[
            ("set {a}x 1", "+OK"),
            ("migrate 127.0.0.1 1 {a}x 0 10", "-ERR keys can't be migrated here by RESTORE-ASKING"),
        ],
    );
}

/// A failover has replaced `c` by `b`, to which the slot is migrating now. `c` may not know it.
#[test]
fn migrate_sends_no_key_to_a_former_target() {
    let view = |same_shard: bool| {
        let mut parts = leaves();
        if same_shard {
            parts.nodes[2].shard = parts.nodes[1].shard;
        }
        parts
    };
    let sent = "-ERR keys can't be migrated here by RESTORE-ASKING";
    let refused =
        format!("-ERR Slot 15495 is migrating to node {}, and not to another node of its shard", "b".repeat(40));
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(&mut session, &[("set a 1", "+OK"), ("set foo 1", "+OK")]);
    for (same_shard, reply) in [(true, &*refused), (false, sent)] {
        node.see(view(same_shard));
        for (line, reply) in [
            ("migrate 127.0.0.1 7002 a 0 10", reply),
            ("migrate c.example 7002 \"\" 0 10 keys a", reply),
            ("migrate 127.0.0.1 7001 a 0 10", sent),
            ("migrate 127.0.0.1 7003 a 0 10", sent),
            ("migrate 127.0.0.1 7002 foo 0 10", sent),
            ("migrate 127.0.0.1 7002 {a}x 0 10", "+NOKEY"),
        ] {
            node.check(&mut session, &[(line, reply)]);
        }
    }
}

#[test]
fn scripts_use_the_keys_that_exist() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(&mut session, &[("set a 1", "+OK")]);
    node.see(leaves());
    let mut eval = |script: &str| node.words(&mut session, &["eval", script, "0"]);
    assert_eq!(eval("return redis.call('get', 'a')"), "$1|1");
    let local = "-ERR Script attempted to access a non local key in a cluster node script:";
    assert!(eval("return redis.call('get', '{a}x')").starts_with(local));
    let several = "-ERR Unable to execute command 'mget' in script because undeclared keys were accessed during rehashing of the slot script:";
    assert!(eval("return redis.call('mget', 'a', '{a}x')").starts_with(several));
    // The effects of earlier commands of the script remain.
    assert!(eval("redis.call('set', 'a', 2) return redis.call('get', '{a}x')").starts_with(local));
    node.check(&mut session, &[("get a", "$1|2")]);
}

#[test]
fn a_replica_asks_for_the_keys_that_have_left_a_migrating_slot() {
    let mut view = with_open(replica(), &[("a", Open::Migrating { to: B })]);
    view.edition = 2;
    let mut node = Node::new(view);
    let mut session = node.open();
    node.check(&mut session, &[("get a", "-MOVED 15495 127.0.0.1:7002"), ("readonly", "+OK"), ("get a", ASK)]);
}

#[test]
fn a_cluster_scan_of_an_open_slot_needs_asking_at_its_new_node() {
    let mut node = Node::new(leaves());
    let mut session = node.open();
    node.check(&mut session, &[("clusterscan 0-{a}-0", ASK)]);
    node.see(arrives());
    node.check(
        &mut session,
        &[
            ("clusterscan 0-{a}-0", MOVED),
            ("asking", "+OK"),
            ("clusterscan 0-{a}-0 slot 15495", "*2|$1|0|*0"),
            ("multi", "+OK"),
            ("ping", "+QUEUED"),
            ("exec", "*1|+PONG"),
        ],
    );
}
