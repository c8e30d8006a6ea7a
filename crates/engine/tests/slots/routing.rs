//! Routing of commands while no slot is open.

use cluster::view::EndpointKind;
use config::{Loader, Settings};

use crate::world::*;

const CROSS_IN_SCRIPT: &str = "attempted to access keys that don't hash to the same slot";

#[test]
fn commands_with_keys_are_checked_in_the_order_of_the_peers() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("set a 1", "+OK"),
            ("get a", "$1|1"),
            ("mget a {a}b", "*2|$1|1|$-1"),
            ("mget a foo", CROSS),
            ("mget a b", CROSS),
            ("mget x43 a", CROSS),
            ("get b", MOVED_B),
            ("set b 1", MOVED_B),
            ("mset b 1 {b}c 2", MOVED_B),
            ("get x43", UNBOUND),
            ("blpop b 0", MOVED_B),
            ("xread block 0 streams b 0", MOVED_B),
            ("object encoding b", MOVED_B),
            ("eval return{1} 1 b", MOVED_B),
            ("watch b", MOVED_B),
            ("migrate h 1 b 0 10", MOVED_B),
            // Commands without keys run on every node, and invalid commands get their error first.
            ("ping", "+PONG"),
            ("get", "-ERR wrong number of arguments for 'get' command"),
            ("nonsense b", "-ERR unknown command 'nonsense', with args beginning with: 'b' "),
            ("dbsize", ":1"),
            ("publish b m", ":0"),
        ],
    );
    let info = node.bench.line(&mut session, "info errorstats");
    assert!(info.contains("errorstat_MOVED:count=") && info.contains("errorstat_CROSSSLOT:count="), "{info}");
    let stats = node.bench.line(&mut session, "info commandstats");
    assert!(stats.contains("cmdstat_blpop:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1"), "{stats}");
}

#[test]
fn a_cluster_that_is_down_serves_commands_that_the_directives_allow() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(&mut session, &[("set a 1", "+OK")]);
    node.see(down(parts()));
    node.check(
        &mut session,
        &[
            ("get a", DOWN),
            ("set a 2", DOWN),
            ("get b", DOWN),
            ("get x43", UNBOUND),
            ("mget a b", CROSS),
            ("ping", "+PONG"),
            ("spublish a m", ":0"),
        ],
    );
    let mut reads = down(parts());
    (reads.reads_when_down, reads.pubsubshard_when_down) = (true, false);
    node.see(reads);
    let writes = "-CLUSTERDOWN The cluster is down and only accepts read commands";
    node.check(
        &mut session,
        &[
            ("get a", "$1|1"),
            ("set a 2", writes),
            ("get b", MOVED_B),
            ("spublish a m", DOWN),
            ("ssubscribe a", DOWN),
            ("eval return{} 1 a", "*0"),
        ],
    );
    let script = "#!lua\nreturn redis.call('set', KEYS[1], 1)";
    assert_eq!(node.words(&mut session, &["eval", script, "1", "a"]), writes);
    let reading = "#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])";
    assert_eq!(node.words(&mut session, &["eval", reading, "1", "a"]), "$1|1");
}

#[test]
fn redirects_keep_their_place_and_the_other_commands_of_a_pipeline_run() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    let replies =
        node.pipeline(&mut session, &["set a 1", "get b", "incr a", "mget a b", "get x43", "ping", "get a", "set b 1"]);
    let expected = format!("+OK|{MOVED_B}|:2|{CROSS}|{UNBOUND}|+PONG|$1|2|{MOVED_B}|");
    assert_eq!(replies, expected);
    // A pipeline that is longer than a window.
    let lines: Vec<&str> = ["set a 1", "get b", "incr a"].into_iter().cycle().take(300).collect();
    let replies = node.pipeline(&mut session, &lines);
    assert_eq!(replies.matches(MOVED_B).count(), 100);
    assert_eq!(replies.matches(":2|").count(), 100);
}

#[test]
fn a_change_of_the_slots_invalidates_planned_windows() {
    let mut node = Node::new(parts());
    let (mut session, mut other) = (node.open(), node.open());
    for round in 0..3 {
        assert_eq!(node.pipeline(&mut session, &["set a 1", "get b"]), format!("+OK|{MOVED_B}|"), "{round}");
        let mut swapped = parts();
        swapped.bound.iter_mut().for_each(|(owner, _)| *owner = if *owner == A { B } else { A });
        node.see(swapped);
        let expected = "$-1|-MOVED 15495 127.0.0.1:7001|";
        assert_eq!(node.pipeline(&mut session, &["get b", "get a"]), expected);
        assert_eq!(node.pipeline(&mut other, &["get b", "get a"]), expected);
        node.see(parts());
    }
}

#[test]
fn the_shown_endpoint_follows_the_preference() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    for (kind, host) in
        [(EndpointKind::Hostname, "b.example"), (EndpointKind::Unknown, ""), (EndpointKind::Ip, "127.0.0.1")]
    {
        let mut parts = parts();
        parts.endpoint_kind = kind;
        node.see(parts);
        node.check(&mut session, &[("get b", &format!("-MOVED 3300 {host}:7001"))]);
    }
    let mut named = parts();
    named.endpoint_kind = EndpointKind::Hostname;
    named.nodes[1].endpoints.hostname.clear();
    node.see(named);
    node.check(&mut session, &[("get b", "-MOVED 3300 ?:7001")]);
    let mut announced = parts();
    announced.nodes[1].endpoints.client_ipv6 = "2001:db8::1".into();
    announced.nodes[1].endpoints.client_ipv4 = "192.0.2.1".into();
    node.see(announced);
    node.check(&mut session, &[("get b", "-MOVED 3300 192.0.2.1:7001")]);
    let mut v6 = node.bench.worker.open("[::1]:5".into(), "[::1]:6379".into(), 8, 0, true);
    node.check(&mut v6, &[("get b", "-MOVED 3300 2001:db8::1:7001")]);
}

#[test]
fn a_transaction_uses_one_slot_of_this_node() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    node.check(
        &mut session,
        &[
            ("multi", "+OK"),
            ("set a 1", "+QUEUED"),
            ("get {a}b", "+QUEUED"),
            ("exec", "*2|+OK|$-1"),
            // A refused command spoils the transaction.
            ("multi", "+OK"),
            ("get b", MOVED_B),
            ("get a", "+QUEUED"),
            ("exec", "-EXECABORT Transaction discarded because of previous errors."),
            ("multi", "+OK"),
            ("get x43", UNBOUND),
            ("discard", "+OK"),
            // EXEC checks the keys of all commands together.
            ("multi", "+OK"),
            ("get a", "+QUEUED"),
            ("get foo", "+QUEUED"),
            ("exec", CROSS),
            ("exec", "-ERR EXEC without MULTI"),
            ("get a", "$1|1"),
            ("multi", "+OK"),
            ("exec", "*0"),
        ],
    );
    // The slot leaves before EXEC: the whole transaction is redirected.
    node.check(&mut session, &[("watch a", "+OK"), ("multi", "+OK"), ("get a", "+QUEUED")]);
    let mut left = parts();
    left.bound = vec![(B, cluster::SlotSet::FULL)];
    node.see(left);
    node.check(
        &mut session,
        &[("exec", "-MOVED 15495 127.0.0.1:7001"), ("exec", "-ERR EXEC without MULTI"), ("unwatch", "+OK")],
    );
    assert_eq!(session.watched.len(), 0);
    node.see(down(parts()));
    node.check(
        &mut session,
        &[("multi", "+OK"), ("get a", DOWN), ("exec", "-EXECABORT Transaction discarded because of previous errors.")],
    );
}

#[test]
fn scripts_use_slots_of_this_node_only() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    let mut eval = |node: &mut Node, script: &str, keys: &[&str]| {
        let count = keys.len().to_string();
        let words: Vec<&str> = ["eval", script, &count].into_iter().chain(keys.iter().copied()).collect();
        node.words(&mut session, &words)
    };
    assert_eq!(eval(&mut node, "return redis.call('set', KEYS[1], 1)", &["a"]), "+OK");
    assert_eq!(eval(&mut node, "return 1", &["a", "foo"]), CROSS);
    let foreign = "-ERR Script attempted to access a non local key in a cluster node script:";
    assert!(eval(&mut node, "return redis.call('get', 'b')", &[]).starts_with(foreign));
    assert!(eval(&mut node, "return redis.call('get', 'b')", &["a"]).starts_with(foreign));
    assert!(
        eval(&mut node, "return redis.call('get', 'x43')", &[])
            .starts_with("-ERR Script attempted to access a slot not served script:")
    );
    assert!(
        eval(&mut node, "return redis.call('mget', 'a', 'foo')", &[])
            .starts_with(&format!("-ERR Command 'mget' in script {CROSS_IN_SCRIPT} script:"))
    );
    // A script without a shebang line may use several slots.
    assert_eq!(eval(&mut node, "redis.call('get', 'a') return redis.call('set', 'foo', 2)", &["a"]), "+OK");
    let other = "-ERR Script attempted to access keys that do not hash to the same slot script:";
    for (keys, script) in [
        (&["a"][..], "#!lua\nreturn redis.call('get', 'foo')"),
        (&[], "#!lua\nredis.call('get', 'a') return redis.call('get', 'foo')"),
    ] {
        assert!(eval(&mut node, script, keys).starts_with(other), "{script}");
    }
    let cross = "#!lua flags=allow-cross-slot-keys\nredis.call('get', 'a') return redis.call('get', 'foo')";
    assert_eq!(eval(&mut node, cross, &["a"]), "$1|2");
    assert_eq!(eval(&mut node, "#!lua\nreturn redis.call('get', '{a}b')", &["a"]), "$-1");
    assert_eq!(
        eval(&mut node, "#!lua flags=no-cluster\nreturn 1", &[]),
        "-ERR Can not run script on cluster, 'no-cluster' flag is set."
    );
    assert_eq!(
        eval(&mut node, "return redis.pcall('get', 'b').err", &[]),
        "$64|ERR Script attempted to access a non local key in a cluster node"
    );
    let mut reads = down(parts());
    reads.reads_when_down = true;
    node.see(reads);
    let readonly = "-ERR Script attempted to execute a write command while the cluster is down and readonly script:";
    assert!(eval(&mut node, "return redis.call('set', 'a', 1)", &[]).starts_with(readonly));
    node.see(down(parts()));
    let down = "-ERR Script attempted to execute a command while the cluster is down script:";
    assert!(eval(&mut node, "return redis.call('get', 'a')", &[]).starts_with(down));
    let library = "#!lua name=l\nredis.register_function{function_name='f', callback=function(k) return redis.call('get', 'foo') end}";
    node.see(parts());
    assert_eq!(node.words(&mut session, &["function", "load", library]), "$1|l");
    assert!(node.words(&mut session, &["fcall", "f", "1", "a"]).starts_with(other));
    assert_eq!(node.words(&mut session, &["fcall", "f", "1", "foo"]), "$1|2");
    assert_eq!(node.words(&mut session, &["fcall", "f", "1", "b"]), MOVED_B);
}

#[test]
fn a_replica_serves_reads_after_readonly() {
    let mut node = Node::new(replica());
    let (mut session, mut other) = (node.open(), node.open());
    let moved = "-MOVED 15495 127.0.0.1:7002";
    node.check(
        &mut session,
        &[
            ("get a", moved),
            ("readonly", "+OK"),
            ("get a", "$-1"),
            ("mget a {a}b", "*2|$-1|$-1"),
            ("set a 1", moved),
            ("get b", MOVED_B),
            ("mget a foo", CROSS),
            ("multi", "+OK"),
            ("get a", "+QUEUED"),
            ("exec", "*1|$-1"),
            ("multi", "+OK"),
            ("get a", "+QUEUED"),
            ("set a 1", moved),
            ("exec", "-EXECABORT Transaction discarded because of previous errors."),
            ("eval return{1} 1 a", "*1|:1"),
            ("spublish a m", ":0"),
        ],
    );
    assert!(node.bench.line(&mut session, "client info").contains(" flags=r "));
    assert_eq!(node.pipeline(&mut session, &["get a", "set a 1", "get a"]), format!("$-1|{moved}|$-1|"));
    node.check(&mut other, &[("get a", moved), ("spublish a m", ":0"), ("set a 1", moved)]);
    node.check(
        &mut session,
        &[("readwrite", "+OK"), ("get a", moved), ("readonly", "+OK"), ("reset", "+RESET"), ("get a", moved)],
    );
    assert!(node.bench.line(&mut session, "client info").contains(" flags=N "));
    // Slots of other nodes are redirected on a replica, too.
    node.check(&mut session, &[("readonly", "+OK")]);
    node.see(down(replica()));
    node.check(&mut session, &[("get a", DOWN)]);
}

#[test]
fn rules_of_users_and_slots_both_apply() {
    let mut node = Node::new(parts());
    let (mut admin, mut session) = (node.open(), node.open());
    node.check(&mut admin, &[("set a 1", "+OK"), ("acl setuser u on nopass ~a ~b +get +mget +multi +exec", "+OK")]);
    node.check(&mut session, &[("auth u x", "+OK")]);
    let denied = "-NOPERM No permissions to access a key";
    let replies =
        node.pipeline(&mut session, &["get a", "get b", "get foo", "get a", "get x43", "mget a b", "set b 1"]);
    let no_command = "-NOPERM User u has no permissions to run the 'set' command";
    assert_eq!(replies, format!("$1|1|{MOVED_B}|{denied}|$1|1|{denied}|{CROSS}|{no_command}|"));
}

#[test]
fn the_slot_is_checked_before_memory() {
    let settings = Settings::new();
    Loader::new(&settings).directive(&[b"maxmemory".to_vec(), b"1".to_vec()]).unwrap();
    let mut node = Node::with(settings, 1, parts());
    let mut session = node.open();
    node.bench.used_memory.store(1000, std::sync::atomic::Ordering::Relaxed);
    node.check(
        &mut session,
        &[("set b 1", MOVED_B), ("set a 1", "-OOM command not allowed when used memory > 'maxmemory'.")],
    );
}

#[test]
fn shard_channels_belong_to_slots() {
    let mut node = Node::new(parts());
    let (mut session, mut other) = (node.open(), node.open());
    node.check(
        &mut session,
        &[
            ("ssubscribe a foo", CROSS),
            ("ssubscribe b", MOVED_B),
            ("ssubscribe x43", UNBOUND),
            ("ssubscribe a {a}b", "*3|$10|ssubscribe|$1|a|:1|*3|$10|ssubscribe|$4|{a}b|:2"),
            ("ssubscribe foo", "*3|$10|ssubscribe|$3|foo|:3"),
        ],
    );
    node.check(
        &mut other,
        &[("spublish a m", ":1"), ("spublish b m", MOVED_B), ("subscribe b", "*3|$9|subscribe|$1|b|:1")],
    );
    // The end of a subscription follows the messages that were published earlier.
    assert_eq!(node.bench.arrived(&mut session), "*3|$8|smessage|$1|a|$1|m");
    let mut left = parts();
    left.bound.push((B, [cluster::key_slot(b"a")].into_iter().collect()));
    node.see(left);
    assert_eq!(node.messages(&mut session), (String::new(), true));
    let pushes: Vec<String> = node
        .bench
        .worker
        .leave_lost_channels(&mut session)
        .into_iter()
        .map(|push| String::from_utf8(push).unwrap().replace("\r\n", "|"))
        .collect();
    assert_eq!(pushes, ["*3|$12|sunsubscribe|$1|a|:2|", "*3|$12|sunsubscribe|$4|{a}b|:1|"]);
    assert_eq!(node.bench.worker.leave_lost_channels(&mut other), Vec::<Vec<u8>>::new());
    node.check(
        &mut session,
        &[("sunsubscribe b", "*3|$12|sunsubscribe|$1|b|:1"), ("sunsubscribe", "*3|$12|sunsubscribe|$3|foo|:0")],
    );
    // No slot with subscribers has gone.
    node.see(parts());
    assert_eq!(node.messages(&mut session), (String::new(), false));
}

#[test]
fn blocked_clients_are_redirected_when_their_slot_goes() {
    let cases = [
        (parts(), None),
        (
            {
                let mut left = parts();
                left.bound = vec![(B, cluster::SlotSet::FULL)];
                left
            },
            Some("-MOVED 15495 127.0.0.1:7001\r\n"),
        ),
        (
            {
                let mut left = parts();
                left.bound.remove(0);
                left
            },
            Some("-CLUSTERDOWN Hash slot not served\r\n"),
        ),
        (down(parts()), Some("-CLUSTERDOWN The cluster is down\r\n")),
    ];
    for command in ["blpop a 0", "bzpopmin a 0", "xread block 0 streams a $", "blmove a {a}b left right 0"] {
        for (view, expected) in &cases {
            let mut node = Node::new(parts());
            let (mut session, mut other) = (node.open(), node.open());
            assert_eq!(node.bench.line(&mut session, command), "", "{command}");
            node.see(view.clone());
            let (reply, _) = node.messages(&mut session);
            assert_eq!(reply, expected.unwrap_or(""), "{command}");
            if expected.is_some() {
                assert_eq!(node.bench.worker.engine.waiters.len(), 0);
                let stats = node.bench.line(&mut other, "info commandstats");
                assert!(stats.contains("failed_calls=1"), "{stats}");
            }
        }
    }
}

#[test]
fn all_threads_use_one_view() {
    let mut node = Node::with(Settings::new(), 2, parts());
    let mut session = node.open();
    let mut other = node.bench.another_worker(1, 3);
    other.begin_turn(node.bench.now_us);
    let mut theirs = other.open("127.0.0.1:2".into(), "127.0.0.1:6379".into(), 9, 0, true);
    let request = engine::testing::request(&["get", "b"]);
    let ask = |worker: &mut engine::worker::Worker, session: &mut engine::clients::session::Session| {
        let mut out = resp::reply::Output::default();
        worker.run(session, request[..].into(), 0, &mut out);
        String::from_utf8(out.slices().collect::<Vec<_>>().concat()).unwrap()
    };
    assert_eq!(ask(&mut other, &mut theirs), format!("{MOVED_B}\r\n"));
    let mut swapped = parts();
    swapped.bound = vec![(A, cluster::SlotSet::FULL)];
    node.see(swapped);
    assert_eq!(ask(&mut other, &mut theirs), "$-1\r\n");
    node.check(&mut session, &[("get b", "$-1"), ("mset b 1 {b}c 2", "+OK"), ("flushall", "+OK")]);
}

#[test]
fn redirects_come_before_the_refusals_for_subscribers() {
    let mut node = Node::new(parts());
    let mut session = node.open();
    let refused = |name: &str| {
        format!(
            "-ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
        )
    };
    node.check(
        &mut session,
        &[
            ("ssubscribe a", "*3|$10|ssubscribe|$1|a|:1"),
            ("get b", MOVED_B),
            ("get a", &refused("get")),
            ("asking", &refused("asking")),
            ("ssubscribe b", MOVED_B),
            ("sunsubscribe b", "*3|$12|sunsubscribe|$1|b|:1"),
            ("sunsubscribe", "*3|$12|sunsubscribe|$1|a|:0"),
        ],
    );
}
