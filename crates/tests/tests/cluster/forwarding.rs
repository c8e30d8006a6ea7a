//! One connection for the whole cluster: `cluster-forward`.
//!
//! With three nodes that have a third of the slots each, `f`, `g` and `foo` are keys of the first, the second and the third node.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use penstock_tests::bytes::{Command, command, encode_all};
use penstock_tests::conn::Conn;
use penstock_tests::nodes::{Make, Node, join, node, node_with, replicate};
use penstock_tests::rng::Rng;
use penstock_tests::server::Server;

use crate::moving::move_slot;

const YES: [&str; 2] = ["--cluster-forward", "yes"];
const STRICT: [&str; 2] = ["--cluster-forward", "strict"];
/// A key of each node.
const KEYS: [&str; 3] = ["f", "g", "foo"];

/// Starts three nodes, of which the first one forwards.
fn cluster(directives: &[&str], others: Make) -> [Node; 3] {
    let nodes = [node_with(Make::Penstock, directives), node(others), node(others)];
    join(&nodes.each_ref());
    nodes
}

fn text(conn: &mut Conn, words: &str) -> String {
    String::from_utf8_lossy(conn.cmd(words).unwrap().text()).into_owned()
}

/// Returns a random command with one key. Its reply is exact.
fn any_command(rng: &mut Rng) -> Command {
    let (kind, number) = (rng.below(14), rng.below(40));
    let n = rng.below(100);
    command(&match kind {
        0 => format!("SET s:{number} {n}"),
        1 => format!("GET s:{number}"),
        2 => format!("INCRBY s:{number} {n}"),
        3 => format!("APPEND a:{number} {n}"),
        4 => format!("RPUSH l:{number} {n} x"),
        5 => format!("LRANGE l:{number} 0 -1"),
        6 => format!("LPUSH s:{number} x"),
        7 => format!("HSET h:{number} f{n} {n}"),
        8 => format!("HGET h:{number} f{n}"),
        9 => format!("ZADD z:{number} {n} m{n}"),
        10 => format!("ZRANGE z:{number} 0 -1 WITHSCORES"),
        11 => format!("DEL s:{number}"),
        12 => format!("EVAL return{{KEYS[1],redis.call('incr',KEYS[1])}} 1 e:{number}"),
        _ => "ECHO here".to_owned(),
    })
}

/// Random pipelines through one node of a cluster get the same replies as from a single server.
#[test]
fn pipelines_through_one_node_get_the_replies_of_a_single_server() {
    for others in Make::peers().into_iter().chain([Make::Penstock]) {
        for (directives, proto) in [(YES, 2), (YES, 3), (STRICT, 3)] {
            let (nodes, alone) = (cluster(&directives, others), Server::penstock(&[]));
            let mut conns = [nodes[0].server.connect(), alone.connect()];
            conns.iter_mut().for_each(|conn| _ = conn.cmd(&format!("HELLO {proto}")).unwrap());
            let mut rng = Rng::new(7);
            for _ in 0..150 {
                let pipeline: Vec<Command> = (0..1 + rng.below(200)).map(|_| any_command(&mut rng)).collect();
                let [there, here] = conns.each_mut().map(|conn| conn.pipeline(&pipeline).unwrap());
                for (at, command) in pipeline.iter().enumerate() {
                    assert_eq!(there[at], here[at], "{others:?} {directives:?} {proto}: {command:?}");
                }
            }
            assert!(nodes[0].server.figure("cluster_forwarded_commands") > 1000);
            assert_eq!(nodes[0].server.figure("cluster_forwarding_failures"), 0);
            for other in &nodes[1..] {
                assert!(other.reply("DBSIZE").integer().unwrap() > 20);
            }
        }
    }
}

/// A pipeline arrives byte by byte, and in one piece with a half command at its end.
#[test]
fn pieces_of_pipelines_are_forwarded_in_order() {
    let nodes = cluster(&YES, Make::Penstock);
    let mut conn = nodes[0].server.connect();
    let pipeline: Vec<Command> = (0..30).map(|at| command(&format!("RPUSH {} {at}", KEYS[at % 3]))).collect();
    let bytes = encode_all(&pipeline);
    for byte in &bytes {
        conn.send(&[*byte]).unwrap();
    }
    let lengths: Vec<i64> = conn.read_n(30).unwrap().iter().map(|reply| reply.integer().unwrap()).collect();
    assert_eq!(lengths, (0..30).map(|at| at / 3 + 1).collect::<Vec<_>>());
    conn.send(&[&bytes[..], &bytes[..bytes.len() - 5]].concat()).unwrap();
    assert_eq!(conn.read_n(59).unwrap().len(), 59);
    conn.send(&bytes[bytes.len() - 5..]).unwrap();
    assert_eq!(conn.read().unwrap().integer().unwrap(), 30);
    // The end of the input is no reason to lose replies.
    conn.send(&bytes).unwrap();
    conn.finish().unwrap();
    assert_eq!(conn.read_n(30).unwrap().last().unwrap().integer().unwrap(), 40);
    assert_eq!(conn.read_to_close().unwrap(), b"");
}

#[test]
fn transactions_of_one_slot_are_forwarded_as_a_whole() {
    for others in Make::peers().into_iter().chain([Make::Penstock]) {
        let nodes = cluster(&YES, others);
        let mut conn = nodes[0].server.connect();
        for key in KEYS {
            let words = format!("MULTI|SET {{{key}}}1 5|INCR {{{key}}}1|LPUSH {{{key}}}1 x|GET {{{key}}}2|EXEC");
            let pipeline: Vec<Command> = words.split('|').map(command).collect();
            let replies = conn.pipeline(&pipeline).unwrap();
            assert!(replies[1..5].iter().all(|reply| reply.text() == b"QUEUED"));
            let results = replies[5].items();
            assert_eq!((results[0].text(), results[1].integer()), (&b"OK"[..], Some(6)), "{others:?}");
            assert!(results[2].text().starts_with(b"WRONGTYPE") && results[3].is_null());
        }
        // A transaction over several slots is refused, and ends.
        let replies = conn.pipeline(&["MULTI", "SET f 1", "SET g 1", "EXEC", "GET g"].map(command)).unwrap();
        assert_eq!(replies[3].text(), b"CROSSSLOT Keys in request don't hash to the same slot");
        assert!(replies[4].is_null());
        // Commands that concern this connection are not forwarded.
        let replies = conn.pipeline(&["MULTI", "SET g 1", "SELECT 0", "EXEC", "GET g"].map(command)).unwrap();
        assert!(replies[3].text().starts_with(b"MOVED "), "{}", replies[3].escaped());
        assert!(replies[4].is_null());
    }
}

/// The replies to commands before HELLO have the form of that time.
#[test]
fn each_reply_has_the_form_of_its_time() {
    let nodes = cluster(&YES, Make::Penstock);
    let mut conn = nodes[0].server.connect();
    conn.send(b"GET g\r\nGET f\r\nHELLO 3\r\nGET g\r\nGET f\r\nHELLO 2\r\nGET foo\r\nPING\r\n").unwrap();
    let replies = conn.read_n(8).unwrap();
    let forms: Vec<Vec<u8>> = [0, 1, 3, 4, 6].iter().map(|&at: &usize| replies[at].encode()).collect();
    let (old, new) = (b"$-1\r\n".to_vec(), b"_\r\n".to_vec());
    assert_eq!(forms, [old.clone(), old.clone(), new.clone(), new, old]);
}

/// A replica forwards writes and reads to its own primary, too.
#[test]
fn replicas_forward() {
    let nodes = cluster(&YES, Make::Penstock);
    let replica = node_with(Make::Penstock, &YES);
    replica.meet(&nodes[0]);
    replicate(&replica, &nodes[0]);
    replica.wait_until("it serves", |node| node.is_ok());
    let mut conn = replica.server.connect();
    for key in KEYS {
        let words = format!("SET {key} 1|MULTI|INCR {key}|GET {key}|EXEC|GET {key}");
        let replies = conn.pipeline(&words.split('|').map(command).collect::<Vec<_>>()).unwrap();
        assert_eq!(replies[0].text(), b"OK", "{key}: {}", replies[0].escaped());
        assert_eq!(replies[4].items()[1].text(), b"2", "{key}: {}", replies[4].escaped());
        assert_eq!(replies[5].text(), b"2");
    }
}

#[test]
fn commands_that_depend_on_the_connection_are_redirected() {
    let nodes = cluster(&YES, Make::Penstock);
    let is_moved = |reply: &str| reply.starts_with("MOVED ");
    let mut conn = nodes[0].server.connect();
    for words in ["BLPOP g 1", "WATCH g", "XREAD BLOCK 10 STREAMS g 0", "SSUBSCRIBE g"] {
        assert!(is_moved(&text(&mut conn, words)), "{words}");
    }
    assert!(conn.cmd("XREAD STREAMS g 0").unwrap().is_null());
    assert_eq!(text(&mut conn, "SET g 1"), "OK");
    assert_eq!(conn.cmd("SPUBLISH g message").unwrap().integer(), Some(0));
    let mut stopping = nodes[0].server.connect();
    stopping.cmd("PIPELINE ABORT ON REDIRECTS").unwrap();
    assert!(is_moved(&text(&mut stopping, "GET g")));
    // Clients that know clusters learn the map by redirects.
    for words in ["CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES", "READONLY", "ASKING"] {
        let mut conn = nodes[0].server.connect();
        assert_eq!(text(&mut conn, "GET g"), "1");
        conn.cmd(words).unwrap();
        conn.cmd("PING").unwrap();
        assert!(is_moved(&text(&mut conn, "GET g")), "{words}");
    }
    let mut caching = nodes[0].server.connect();
    caching.cmd("HELLO 3").unwrap();
    caching.cmd("CLIENT TRACKING ON").unwrap();
    assert!(is_moved(&text(&mut caching, "GET g")));
    // No command is forwarded twice: the link is marked.
    nodes[1].ok("CONFIG SET cluster-forward yes");
    assert!(nodes[1].text("CLIENT LIST").contains("lib-name=penstock-forward"));
    // A switch takes effect at once.
    nodes[0].ok("CONFIG SET cluster-forward no");
    assert!(is_moved(&text(&mut conn, "GET g")));
}

/// A command of a batch changes the connection, so that the next commands of the same batch get redirects.
#[test]
fn the_connection_may_change_within_a_batch() {
    let nodes = cluster(&YES, Make::Penstock);
    assert_eq!(text(&mut nodes[0].server.connect(), "SET g 1"), "OK");
    let changes = ["CLUSTER SLOTS", "READONLY", "CLIENT TRACKING ON", "WATCH f", "PIPELINE ABORT ON REDIRECTS"];
    for change in changes {
        let mut conn = nodes[0].server.connect();
        conn.cmd("HELLO 3").unwrap();
        let batch: Vec<Command> = ["GET g", "GET g", change, "GET g", "GET f"].map(command).into();
        let replies = conn.pipeline(&batch).unwrap();
        assert_eq!([replies[0].text(), replies[1].text()], [b"1", b"1"], "{change}");
        assert!(replies[3].text().starts_with(b"MOVED "), "{change}: {:?}", replies[3]);
    }
    let mut conn = nodes[0].server.connect();
    let batch: Vec<Command> = ["GET g", "MULTI", "GET g", "GET g", "EXEC", "GET g"].map(command).into();
    let replies = conn.pipeline(&batch).unwrap();
    assert_eq!([0, 2, 3, 5].map(|at| replies[at].text()), [&b"1"[..], b"QUEUED", b"QUEUED", b"1"]);
    assert!(replies[4].items().iter().all(|reply| reply.text() == b"1") && replies[4].items().len() == 2);
}

/// A half-moved slot: its owner asks for the keys that have left, whether it is this node or another one.
#[test]
fn keys_that_have_left_an_open_slot_are_found() {
    for others in Make::peers().into_iter().chain([Make::Penstock]) {
        let nodes = cluster(&YES, others);
        let mut conn = nodes[0].server.connect();
        for (key, owner, target) in [("f", 0, 1), ("g", 1, 2), ("foo", 2, 0)] {
            let slot = nodes[0].reply(&format!("CLUSTER KEYSLOT {key}")).integer().unwrap();
            assert_eq!(text(&mut conn, &format!("SET {{{key}}}stays 1")), "OK");
            let (from, to) = (nodes[owner].id(), nodes[target].id());
            nodes[target].ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}"));
            nodes[owner].ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}"));
            let words = format!(
                "INCR {{{key}}}new|INCR {{{key}}}new|INCR {{{key}}}stays|MULTI|INCR {{{key}}}new|GET {{{key}}}new|EXEC"
            );
            let replies = conn.pipeline(&words.split('|').map(command).collect::<Vec<_>>()).unwrap();
            let numbers: Vec<_> = replies[..3].iter().map(|reply| reply.integer()).collect();
            assert_eq!(numbers, [Some(1), Some(2), Some(2)], "{others:?} {key}");
            let last = &replies[6];
            if owner == 0 {
                assert!(last.text().starts_with(b"ASK "), "{}", last.escaped());
            } else {
                assert_eq!(last.items()[0].integer(), Some(3), "{others:?} {key}: {}", last.escaped());
            }
            nodes[target].ok(&format!("CLUSTER SETSLOT {slot} STABLE"));
            nodes[owner].ok(&format!("CLUSTER SETSLOT {slot} STABLE"));
        }
    }
}

/// Counters in a slot that moves around the cluster: each reply of the pipelines is the next number.
#[test]
fn counters_count_exactly_while_their_slot_moves() {
    for directives in [YES, STRICT] {
        let nodes = cluster(&directives, Make::Penstock);
        let slot = nodes[0].reply("CLUSTER KEYSLOT g").integer().unwrap() as u64;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for client in 0..3 {
                let (node, stop) = (&nodes[0], &stop);
                scope.spawn(move || count(node, client, stop));
            }
            for step in 0..9 {
                let [from, to, other] = [1, 2, 3].map(|more| &nodes[(step + more) % 3]);
                move_slot(slot, from, to, &[other]);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(nodes[0].server.figure("cluster_forwarding_failures"), 0);
    }
}

fn count(node: &Node, client: u64, stop: &AtomicBool) {
    let mut conn = node.server.connect();
    let mut expected = 0;
    while !stop.load(Ordering::Relaxed) {
        let pipeline: Vec<Command> =
            (0..60).map(|at| command(&format!("INCR {{g}}{client}:{}", at % 6))).chain([command("PING")]).collect();
        let replies = conn.pipeline(&pipeline).unwrap();
        for (at, reply) in replies[..60].iter().enumerate() {
            assert_eq!(reply.integer(), Some(expected + at as i64 / 6 + 1), "{}", reply.escaped());
        }
        expected += 10;
    }
    assert!(expected > 50, "{expected}");
}

/// Batches that wait for other nodes are in no record, because no part of a batch's time is theirs.
#[test]
fn batches_that_wait_for_other_nodes_are_not_recorded() {
    let nodes = cluster(&YES, Make::Penstock);
    let mut conn = nodes[0].server.connect();
    let depths = |node: &Node| {
        let reply = node.reply("LATENCY BATCHES");
        reply
            .items()
            .iter()
            .step_by(2)
            .map(|depth| String::from_utf8_lossy(depth.text()).into_owned())
            .collect::<Vec<_>>()
    };
    let replies = conn.pipeline(&["SET f 1", "SET g 1", "GET f"].map(command)).unwrap();
    assert_eq!(replies[2].text(), b"1");
    assert!(!depths(&nodes[0]).contains(&"2-15".to_owned()));
    conn.pipeline(&["SET f 1", "GET f"].map(command)).unwrap();
    assert!(depths(&nodes[0]).contains(&"2-15".to_owned()));
}

/// `strict` runs a command after the one before it, although another node runs that.
#[test]
fn strict_forwarding_keeps_the_order_between_nodes() {
    for (directives, runs_early) in [(YES, true), (STRICT, false)] {
        let nodes = cluster(&directives, Make::Penstock);
        let mut conn = nodes[0].server.connect();
        text(&mut conn, "SET g 0");
        nodes[1].ok("CLIENT PAUSE 600 WRITE");
        let began = Instant::now();
        conn.send(&encode_all(&["SET f 1", "SET g 1", "SET f 2", "SET foo 2"].map(command))).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(nodes[0].text("GET f"), if runs_early { "2" } else { "1" });
        assert_eq!(nodes[2].reply("GET foo").is_null(), !runs_early);
        assert!(conn.read_n(4).unwrap().iter().all(|reply| reply.text() == b"OK"));
        assert!(began.elapsed() > Duration::from_millis(500));
        assert_eq!((nodes[0].text("GET f"), nodes[2].text("GET foo")), ("2".into(), "2".into()));
    }
}

/// The outcome of a write is unknown if its node ends before it replies. It is never sent again.
#[test]
fn a_broken_link_says_what_is_unknown() {
    for directives in [YES, STRICT] {
        let mut nodes = cluster(&directives, Make::Penstock);
        let mut conn = nodes[0].server.connect();
        assert_eq!(text(&mut conn, "SET g 1"), "OK");
        nodes[1].signal("STOP");
        conn.send(&encode_all(&["INCR g", "GET g", "SET f 1", "PING"].map(command))).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        nodes[1].server.kill();
        let replies = conn.read_n(4).unwrap();
        let texts: Vec<_> = replies.iter().map(|reply| String::from_utf8_lossy(reply.text()).into_owned()).collect();
        assert!(texts[0].starts_with("ERR The connection to the node 127.0.0.1:"), "{texts:?}");
        assert!(texts[0].contains("unknown whether the command has run"), "{texts:?}");
        assert!(texts[1].starts_with("CLUSTERDOWN The node "), "{texts:?}");
        assert_eq!(texts[2..], ["OK", "PONG"]);
        assert!(text(&mut conn, "GET g").starts_with("CLUSTERDOWN "));
        assert!(nodes[0].server.figure("cluster_forwarding_failures") >= 2);
        nodes[1].server.restart();
        nodes[0].wait_until("the node answers", |node| !node.reply("GET g").is_error());
    }
}

/// A node that hangs is given up after `cluster-node-timeout`, and other nodes' replies are not held up for other clients.
#[test]
fn a_node_that_hangs_is_given_up() {
    let nodes = cluster(&YES, Make::Penstock);
    let mut conn = nodes[0].server.connect();
    assert_eq!(text(&mut conn, "SET g 1"), "OK");
    nodes[1].signal("STOP");
    let began = Instant::now();
    conn.send(b"GET g\r\nGET f\r\n").unwrap();
    let mut other = nodes[0].server.connect();
    assert_eq!(text(&mut other, "SET foo 1"), "OK");
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(conn.read().unwrap().text().starts_with(b"CLUSTERDOWN "));
    assert!(began.elapsed() > Duration::from_secs(1));
    assert!(conn.read().unwrap().is_null());
    nodes[1].signal("CONT");
    nodes[0].wait_until("the node answers", |node| !node.reply("GET g").is_error());
}

#[test]
fn links_log_in_with_their_own_user() {
    let nodes = cluster(&YES, Make::Penstock);
    for node in &nodes {
        node.ok("ACL SETUSER forward on >secret ~allowed:* +@all -flushall");
        node.ok("CONFIG SET requirepass other");
    }
    let mut conn = nodes[0].server.connect();
    assert_eq!(text(&mut conn, "AUTH other"), "OK");
    assert!(text(&mut conn, "GET g").contains("NOAUTH"));
    for (name, value) in [("cluster-forward-user", "forward"), ("cluster-forward-password", "wrong")] {
        assert_eq!(text(&mut conn, &format!("CONFIG SET {name} {value}")), "OK");
    }
    assert_eq!(text(&mut conn, "CONFIG SET cluster-forward-password secret"), "OK");
    // The link that stands has no login.
    assert!(text(&mut conn, "GET g").contains("NOAUTH"));
    let mut killer = nodes[1].server.connect();
    assert_eq!(text(&mut killer, "AUTH other"), "OK");
    killer.cmd("CLIENT KILL TYPE normal SKIPME yes").unwrap();
    let began = Instant::now();
    loop {
        let reply = text(&mut conn, "SET g 1");
        if reply.starts_with("NOPERM") {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{reply}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(text(&mut conn, "SET allowed:2 1"), "OK");
}
