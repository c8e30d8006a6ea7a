//! Commands and transactions with keys in several slots, with `cluster-cross-slot local`. The keys `a`, `foo` and `d` are in
//! three slots of this node.

use cluster::view::{Open, ViewParts};
use config::{Loader, Settings};

use crate::world::*;

const MOVED_A: &str = "-MOVED 15495 127.0.0.1:7001";
const MOVED_FOO: &str = "-MOVED 12182 127.0.0.1:7001";

/// Returns a node with these directives.
fn node_with(directives: &[&str], parts: ViewParts) -> Node {
    let settings = Settings::new();
    for directive in directives {
        let words: Vec<Vec<u8>> = directive.split(' ').map(|word| word.into()).collect();
        Loader::new(&settings).directive(&words).unwrap();
    }
    Node::with(settings, 1, parts)
}

fn local(parts: ViewParts) -> Node {
    node_with(&["cluster-cross-slot local"], parts)
}

/// Returns a view in which the slot of a key belongs to the other primary.
fn without(mut parts: ViewParts, key: &str) -> ViewParts {
    parts.bound.push((B, [cluster::key_slot(key.as_bytes())].into_iter().collect()));
    parts
}

fn leaves(key: &str) -> ViewParts {
    with_open(parts(), &[(key, Open::Migrating { to: B })])
}

fn arrives(key: &str) -> ViewParts {
    with_open(without(parts(), key), &[(key, Open::Importing { from: B })])
}

#[test]
fn commands_use_several_slots_of_this_node() {
    let mut node = local(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("mset a 1 foo 2", "+OK"),
            ("mget a foo d", "*3|$1|1|$1|2|$-1"),
            ("msetnx d 1 foo 3", ":0"),
            ("exists a foo d", ":2"),
            ("touch a foo", ":2"),
            ("del a foo", ":2"),
            ("mset a 1 foo 2", "+OK"),
            ("unlink a d foo", ":2"),
            ("sadd a 1 2", ":2"),
            ("sadd foo 2 3", ":2"),
            ("smove a foo 1", ":1"),
            ("sinter a foo", "*1|$1|2"),
            ("sunionstore d a foo", ":3"),
            ("sort d store a", ":3"),
            ("del a foo d", ":3"),
            ("zadd a 1 m", ":1"),
            ("zunionstore foo 2 a d", ":1"),
            ("zrangestore d a 0 -1", ":1"),
            ("geosearchstore d a frommember m bybox 1 1 m", ":1"),
            ("del a foo d", ":3"),
            ("pfadd a 1", ":1"),
            ("pfmerge foo a", "+OK"),
            ("pfcount a foo", ":1"),
            ("mset a x foo yy", "+OK"),
            ("bitop or d a foo", ":2"),
            ("rename d a", "+OK"),
            ("copy a d", ":1"),
            ("renamenx a foo", ":0"),
            ("lcs a foo len", ":2"),
            ("del a foo d", ":3"),
            ("rpush foo 1 2", ":2"),
            ("lmove foo d left right", "$1|1"),
            ("blmpop 0 3 a foo d left", "*2|$3|foo|*1|$1|2"),
            ("blpop a foo d 0", "*2|$1|d|$1|1"),
            ("xadd foo 1-1 f v", "$3|1-1"),
            ("xread streams a foo 0 0", "*1|*2|$3|foo|*1|*2|$3|1-1|*2|$1|f|$1|v"),
        ],
    );
}

#[test]
fn slots_of_other_nodes_and_of_nobody_are_refused() {
    let mut node = local(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("mget a b", CROSS),
            ("mget b a", CROSS),
            ("mget b c", CROSS),
            ("mset a 1 foo 2 b 3", CROSS),
            ("mget a x43", CROSS),
            ("mget b {b}c", MOVED_B),
            ("eval return{1} 2 a b", CROSS),
            ("watch a b", CROSS),
            ("exists a foo d", ":0"),
        ],
    );
    node.see(down(parts()));
    let down = "-CLUSTERDOWN The cluster is down";
    node.check(&mut session, &[("mget a foo", down), ("mget a b", CROSS), ("ping", "+PONG")]);
}

#[test]
fn without_the_directive_commands_have_one_slot() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[("config get cluster-cross-slot", "*2|$18|cluster-cross-slot|$2|no"), ("mget a foo", CROSS)],
    );
}

/// The other commands of a pipeline are planned together with the change.
#[test]
fn a_change_of_the_directive_holds_for_the_next_command() {
    let mut node = Node::new(parts());
    let (mut session, mut other) = (node.open(), node.open());
    let (on, off) = ("config set cluster-cross-slot local", "config set cluster-cross-slot no");
    let replies = node.pipeline(
        &mut session,
        &["mset a 1 foo 2", on, "mset a 1 foo 2", "mget a foo", "get a", off, "mget a foo", "get a", on, "mget foo a"],
    );
    assert_eq!(replies, format!("{CROSS}|+OK|+OK|*2|$1|1|$1|2|$1|1|+OK|{CROSS}|$1|1|+OK|*2|$1|2|$1|1|"));
    node.check(&mut other, &[("mget a foo", "*2|$1|1|$1|2"), ("multi", "+OK"), ("mget a foo", "+QUEUED")]);
    node.check(&mut session, &[(off, "+OK")]);
    node.check(&mut other, &[("exec", CROSS), ("exec", "-ERR EXEC without MULTI")]);
}

#[test]
fn open_slots_are_refused_for_now() {
    for view in [leaves("a"), arrives("a")] {
        let mut node = local(parts());
        let mut session = node.open();
        node.check(&mut session, &[("mset a 1 foo 2 d 3", "+OK")]);
        node.see(view);
        node.check(
            &mut session,
            &[
                ("mget a foo", TRYAGAIN),
                ("mget foo a", TRYAGAIN),
                ("mset foo 1 a 2", TRYAGAIN),
                ("asking", "+OK"),
                ("mget a foo", TRYAGAIN),
                ("rename foo a", TRYAGAIN),
                ("blpop foo a 0", TRYAGAIN),
                ("eval return{1} 2 a foo", TRYAGAIN),
                ("migrate 127.0.0.1 1 \"\" 0 10 keys a foo", TRYAGAIN),
                ("mget a foo b", CROSS),
                ("multi", "+OK"),
                ("mget foo d", "+QUEUED"),
                ("mget a foo", TRYAGAIN),
                ("exec", "-EXECABORT Transaction discarded because of previous errors."),
                ("mget foo d", "*2|$1|2|$1|3"),
            ],
        );
        node.see(parts());
        node.check(&mut session, &[("mget a foo", "*2|$1|1|$1|2")]);
    }
}

/// The slot opens between a command of a transaction and EXEC.
#[test]
fn exec_checks_the_slots_of_all_commands() {
    let mut node = local(parts());
    let mut session = node.open();
    let queue: &[(&str, &str)] = &[("multi", "+OK"), ("set a 1", "+QUEUED"), ("get foo", "+QUEUED")];
    node.check(&mut session, queue);
    node.check(&mut session, &[("exec", "*2|+OK|$-1")]);
    for (view, expected) in [(leaves("foo"), TRYAGAIN), (without(parts(), "foo"), CROSS)] {
        node.see(parts());
        node.check(&mut session, queue);
        node.see(view);
        node.check(&mut session, &[("exec", expected), ("exec", "-ERR EXEC without MULTI"), ("get a", "$1|1")]);
    }
}

/// A watched key that may change on another node is no condition that this node can check.
#[test]
fn watched_keys_count_among_the_keys_of_a_transaction() {
    let mut node = local(parts());
    let (mut session, mut other) = (node.open(), node.open());
    let begin: &[(&str, &str)] = &[("watch a d", "+OK"), ("multi", "+OK"), ("set foo 1", "+QUEUED")];
    node.check(&mut session, begin);
    node.check(&mut session, &[("exec", "*1|+OK"), ("del foo", ":1")]);
    node.check(&mut session, begin);
    node.check(&mut other, &[("set d 1", "+OK")]);
    node.check(&mut session, &[("exec", "*-1"), ("exists foo", ":0")]);
    for (view, expected) in [(leaves("a"), TRYAGAIN), (arrives("a"), TRYAGAIN), (without(parts(), "a"), CROSS)] {
        node.see(parts());
        node.check(&mut session, begin);
        node.see(view);
        node.check(&mut session, &[("exec", expected), ("exists foo", ":0")]);
        assert_eq!(session.watched.len(), 0);
    }
    // Watched keys are no shard channels.
    node.see(parts());
    node.check(&mut session, &[("watch a", "+OK"), ("multi", "+OK"), ("spublish foo m", "+QUEUED"), ("exec", "*1|:0")]);
    // Without the directive only the commands of the transaction count, as in Redis.
    node.check(&mut other, &[("config set cluster-cross-slot no", "+OK")]);
    node.check(&mut session, &[("watch a", "+OK"), ("multi", "+OK"), ("set foo 1", "+QUEUED")]);
    node.see(without(parts(), "a"));
    node.check(&mut session, &[("exec", "*1|+OK")]);
}

#[test]
fn scripts_use_the_slots_of_their_declared_keys() {
    let mut node = local(parts());
    let mut session = node.open();
    node.check(&mut session, &[("mset a 1 foo 2 d 3", "+OK")]);
    let mut eval = |node: &mut Node, script: &str, keys: &[&str]| {
        let count = keys.len().to_string();
        let words: Vec<&str> = ["eval", script, &count].into_iter().chain(keys.iter().copied()).collect();
        node.words(&mut session, &words)
    };
    let other = "-ERR Script attempted to access keys that do not hash to the same slot script:";
    let foreign = "-ERR Script attempted to access a non local key in a cluster node script:";
    let cross = "-ERR Command 'mget' in script attempted to access keys that don't hash to the same slot script:";
    let both = "return redis.call('mget', KEYS[1], KEYS[2])";
    let each = "redis.call('get', 'a') return redis.call('get', 'foo')";
    for begin in ["", "#!lua\n", "#!lua flags=allow-cross-slot-keys\n"] {
        let run =
            |node: &mut Node, body: &str, keys: &[&str], eval: &mut dyn FnMut(&mut Node, &str, &[&str]) -> String| {
                eval(node, &format!("{begin}{body}"), keys)
            };
        assert_eq!(run(&mut node, both, &["a", "foo"], &mut eval), "*2|$1|1|$1|2");
        assert_eq!(run(&mut node, each, &["a", "foo"], &mut eval), "$1|2");
        assert_eq!(run(&mut node, "return redis.call('get', '{a}x')", &["a", "foo"], &mut eval), "$-1");
        assert_eq!(run(&mut node, both, &["a", "b"], &mut eval), CROSS);
        assert!(run(&mut node, "return redis.call('mget', 'a', 'b')", &["a"], &mut eval).starts_with(cross));
        assert!(run(&mut node, "return redis.call('get', 'b')", &["a", "foo"], &mut eval).starts_with(foreign));
        // Undeclared keys in further slots need the flag, or no shebang line.
        let undeclared = run(&mut node, "return redis.call('mget', 'a', 'd')", &["a", "foo"], &mut eval);
        let alone = run(&mut node, each, &["a"], &mut eval);
        match begin {
            "#!lua\n" => assert!(undeclared.starts_with(other) && alone.starts_with(other), "{undeclared} {alone}"),
            _ => assert_eq!((&*undeclared, &*alone), ("*2|$1|1|$1|3", "$1|2")),
        }
    }
    // A script without declared keys stays in the slots of its first command.
    let first = "#!lua\nredis.call('mget', 'a', 'foo') redis.call('get', 'foo') return redis.call('get', 'd')";
    assert!(eval(&mut node, first, &[]).starts_with(other));
    let library =
        "#!lua name=l\nredis.register_function('f', function(keys) return redis.call('mget', unpack(keys)) end)";
    assert_eq!(node.words(&mut session, &["function", "load", library]), "$1|l");
    assert_eq!(node.words(&mut session, &["fcall", "f", "2", "a", "foo"]), "*2|$1|1|$1|2");
    assert_eq!(node.words(&mut session, &["fcall", "f", "2", "a", "b"]), CROSS);
    node.see(leaves("foo"));
    assert_eq!(node.words(&mut session, &["fcall", "f", "2", "a", "foo"]), TRYAGAIN);
}

#[test]
fn a_replica_serves_reads_over_several_slots_after_readonly() {
    let mut node = local(replica());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("mget a foo", CROSS),
            ("readonly", "+OK"),
            ("mget a foo", "*2|$-1|$-1"),
            ("sinter a foo", "*0"),
            ("mget a b", CROSS),
            ("mset a 1 foo 2", CROSS),
            ("multi", "+OK"),
            ("get a", "+QUEUED"),
            ("get foo", "+QUEUED"),
            ("exec", "*2|$-1|$-1"),
        ],
    );
    assert_eq!(
        node.pipeline(&mut session, &["mget a foo", "mset a 1 foo 2", "exists foo a", "mget foo b"]),
        format!("*2|$-1|$-1|{CROSS}|:0|{CROSS}|")
    );
    for open in [Open::Migrating { to: B }, Open::Importing { from: B }] {
        let view = if matches!(open, Open::Importing { .. }) { without(replica(), "a") } else { replica() };
        node.see(with_open(view, &[("a", open)]));
        node.check(&mut session, &[("mget a foo", TRYAGAIN), ("mset a 1 foo 2", CROSS), ("mget foo d", "*2|$-1|$-1")]);
    }
}

#[test]
fn a_wait_ends_when_one_of_its_slots_leaves_or_opens() {
    let cases = [
        (parts(), ""),
        (leaves("d"), ""),
        (without(parts(), "d"), ""),
        (without(parts(), "a"), MOVED_A),
        (without(parts(), "foo"), MOVED_FOO),
        (leaves("a"), TRYAGAIN),
        (leaves("foo"), TRYAGAIN),
        (down(parts()), DOWN),
    ];
    for command in [
        "blpop a foo 0",
        "bzpopmin a foo 0",
        "blmove a foo left right 0",
        "blmpop 0 2 a foo left",
        "xread block 0 streams a foo $ $",
    ] {
        for (view, expected) in &cases {
            let mut node = local(parts());
            let mut session = node.open();
            assert_eq!(node.bench.line(&mut session, command), "", "{command}");
            node.see(view.clone());
            let (reply, _) = node.messages(&mut session);
            assert_eq!(reply.trim_end(), *expected, "{command}");
            assert_eq!(node.bench.worker.engine.waiters.len(), usize::from(expected.is_empty()), "{command}");
        }
    }
}

#[test]
fn a_waiter_is_served_in_another_slot_than_its_first_key() {
    let mut node = local(parts());
    let (mut session, mut other) = (node.open(), node.open());
    assert_eq!(node.bench.line(&mut session, "blpop a foo 0"), "");
    node.check(&mut other, &[("rpush foo 1", ":1")]);
    assert_eq!(node.messages(&mut session).0, "*2\r\n$3\r\nfoo\r\n$1\r\n1\r\n");
    assert_eq!(node.bench.line(&mut session, "blmove a d left right 0"), "");
    node.check(
        &mut other,
        &[("multi", "+OK"), ("rpush a 1", "+QUEUED"), ("get foo", "+QUEUED"), ("exec", "*2|:1|$-1")],
    );
    assert_eq!(node.messages(&mut session).0, "$1\r\n1\r\n");
    node.check(&mut other, &[("lrange d 0 -1", "*1|$1|1")]);
}

/// Clients and nodes find the subscribers of shard channels by one slot.
#[test]
fn shard_channels_of_a_command_have_one_slot() {
    let mut node = local(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("ssubscribe a foo", CROSS),
            ("multi", "+OK"),
            ("spublish a m", "+QUEUED"),
            ("spublish foo m", "+QUEUED"),
            ("exec", CROSS),
            ("multi", "+OK"),
            ("spublish a m", "+QUEUED"),
            ("set foo 1", "+QUEUED"),
            ("exec", CROSS),
            ("multi", "+OK"),
            ("spublish a m", "+QUEUED"),
            ("set {a}b 1", "+QUEUED"),
            ("exec", "*2|:0|+OK"),
        ],
    );
    let pipeline = node.pipeline(&mut session, &["mget a foo", "ssubscribe a foo", "ssubscribe a", "ssubscribe a foo"]);
    assert_eq!(pipeline, format!("*2|$-1|$-1|{CROSS}|*3|$10|ssubscribe|$1|a|:1|{CROSS}|"));
}

#[test]
fn commands_with_several_slots_count_for_none_in_slot_stats() {
    let mut node = node_with(&["cluster-cross-slot local", "cluster-slot-stats-enabled yes"], parts());
    let mut session = node.open();
    let bytes_in = |node: &mut Node, session: &mut _, slot: u16| {
        let stats = node.bench.line(session, &format!("cluster slot-stats slotsrange {slot} {slot}"));
        stats.split("network-bytes-in|:").nth(1).and_then(|rest| rest.split('|').next()).map(str::to_owned)
    };
    node.check(&mut session, &[("mset a 1 foo 2", "+OK"), ("mget a foo", "*2|$1|1|$1|2")]);
    assert_eq!(
        [15495, 12182].map(|slot| bytes_in(&mut node, &mut session, slot)),
        [Some("0".into()), Some("0".into())]
    );
    // Each command of a transaction counts for its own slot.
    node.check(
        &mut session,
        &[("multi", "+OK"), ("get a", "+QUEUED"), ("get foo", "+QUEUED"), ("exec", "*2|$1|1|$1|2")],
    );
    assert_eq!(
        [15495, 12182].map(|slot| bytes_in(&mut node, &mut session, slot)),
        [Some("20".into()), Some("22".into())]
    );
}

#[test]
fn rules_of_users_apply_to_all_keys() {
    let mut node = local(parts());
    let (mut admin, mut session) = (node.open(), node.open());
    node.check(&mut admin, &[("acl setuser u on nopass ~a ~foo ~b +mget", "+OK")]);
    node.check(&mut session, &[("auth u x", "+OK")]);
    let replies = node.pipeline(&mut session, &["mget a foo", "mget a d", "mget a b", "mget a foo"]);
    let denied = "-NOPERM No permissions to access a key";
    assert_eq!(replies, format!("*2|$-1|$-1|{denied}|{CROSS}|*2|$-1|$-1|"));
}

#[test]
fn a_token_counts_commands_with_several_slots() {
    let mut node = local(parts());
    let (mut session, mut other) = (node.open(), node.open());
    node.check(&mut session, &[("pipeline start t", "+OK")]);
    assert_eq!(
        node.pipeline(&mut session, &["mset a 1 foo 2", "mget a b", "mget a foo"]),
        format!("+OK|{CROSS}|*2|$1|1|$1|2|")
    );
    let status = node.bench.line(&mut other, "pipeline status t");
    assert!(status.contains("executed|:3|") && status.contains("failed|:1|"), "{status}");
}

/// MIGRATE sends the keys of several slots. The bench refuses, and names the command that would store them.
#[test]
fn migrate_takes_keys_of_several_slots() {
    let mut node = local(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("mset a 1 foo 2", "+OK"),
            ("migrate 127.0.0.1 1 \"\" 0 10 keys a foo", "-ERR keys can't be migrated here by RESTORE-ASKING"),
            ("migrate 127.0.0.1 1 \"\" 0 10 keys a b", CROSS),
        ],
    );
}

#[test]
fn tracked_keys_of_several_slots_are_invalidated() {
    let mut node = local(parts());
    let (mut session, mut other) = (node.bench.open_with(resp::reply::Proto::Resp3), node.open());
    node.check(&mut session, &[("client tracking on", "+OK"), ("mget a foo", "*2|_|_")]);
    node.check(&mut other, &[("mset a 1 foo 2", "+OK")]);
    assert_eq!(node.bench.arrived(&mut session), ">2|$10|invalidate|*1|$1|a|>2|$10|invalidate|*1|$3|foo");
}
