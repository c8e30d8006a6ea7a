//! Whole slots that Penstock takes from Redis 8.4 and later: CLUSTER MIGRATION.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use penstock_tests::cluster_load::Load;
use penstock_tests::nodes::{Client, Make, Node, join, node, node_with, replicate, settle};

use crate::importing::{VALUES, check_hidden, filled, job_field, keys_in, pair, slot_of_a, text, wait_for_state};

/// Directives of a source that takes longer for each key of a snapshot than a test takes.
const SLOW: [&str; 2] = ["--rdb-key-save-delay", "20000000"];
/// Directives of a source that takes some seconds for each key. The process that makes the snapshot keeps the connections of a dead source open
/// for that time.
const SLOW_FOR_SECONDS: [&str; 2] = ["--rdb-key-save-delay", "5000000"];

/// Returns true if Redis 8 is installed.
fn redis_is_here() -> bool {
    let is_here = Make::peers().contains(&Make::Redis8);
    if !is_here {
        eprintln!("skipped: redis8-server is not installed");
    }
    is_here
}

/// Asks a node to import slots once it knows their owner as Redis. Returns the name of the job.
fn import(target: &Node, ranges: &str) -> String {
    let line = format!("CLUSTER MIGRATION IMPORT {ranges}");
    let mut reply = target.text(&line);
    for _ in 0..200 {
        if !reply.contains("is not known as Redis") {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        reply = target.text(&line);
    }
    assert_eq!(reply.len(), 40, "{reply}");
    reply
}

/// The value of a field of a job in Redis's form.
fn task_field(node: &Node, id: &str, name: &str) -> String {
    let tasks = node.reply(&format!("CLUSTER MIGRATION STATUS ID {id}"));
    let texts: Vec<_> = tasks.items()[0].items().iter().map(text).collect();
    texts.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone()).unwrap()
}

fn wait_for_task(node: &Node, id: &str, state: &str) {
    node.wait_until(&format!("the job is in the state {state}"), |node| task_field(node, id, "state") == state);
}

#[test]
fn redis_gives_slots_under_load() {
    if !redis_is_here() {
        return;
    }
    let nodes = [node(Make::Penstock), node(Make::Penstock), node(Make::Redis8)];
    join(&nodes.each_ref());
    let mut client = filled(&nodes[2]);
    for item in 0..700 {
        client.run(&format!("RPUSH {{a}}long {item}"));
        client.run(&format!("HSET {{a}}wide {item} v"));
    }
    let before: Vec<_> = VALUES.iter().map(|(_, read)| client.run(read)).collect();
    let library = r##"FUNCTION LOAD "#!lua name=l\nredis.register_function('f', function() return 1 end)""##;
    assert_eq!(nodes[2].quoted(library).text(), b"l");
    let load = Load::start(&nodes, false);
    std::thread::sleep(Duration::from_millis(300));
    // All but the last slot, in several ranges.
    let id = import(&nodes[0], "10923 12000 16002 16382 12001 16000");
    wait_for_task(&nodes[0], &id, "completed");
    wait_for_task(&nodes[2], &id, "completed");
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
    assert_eq!([client.run("LLEN {a}long").integer(), client.run("HLEN {a}wide").integer()], [Some(700); 2]);
    for (name, value) in
        [("slots", "10923-16000 16002-16382"), ("operation", "import"), ("last_error", ""), ("retries", "0")]
    {
        assert_eq!(task_field(&nodes[0], &id, name), value);
    }
    assert_eq!(
        (task_field(&nodes[0], &id, "source"), task_field(&nodes[0], &id, "dest")),
        (nodes[2].id(), nodes[0].id())
    );
    assert_eq!((job_field(&nodes[0], "name"), job_field(&nodes[0], "state")), (id, "success".into()));
    nodes[2].wait_until("the source has deleted the keys", |node| keys_in(node, slot_of_a(node)) == 0);
}

/// The moved keys are in the append-only file, and a replica has them, too.
#[test]
fn slots_of_redis_are_on_disk_and_on_a_replica() {
    if !redis_is_here() {
        return;
    }
    let files = ["--appendonly", "yes", "--appendfsync", "always"];
    let [source, mut target] = pair(node(Make::Redis8), node_with(Make::Penstock, &files));
    let replica = node(Make::Penstock);
    replica.meet(&target);
    settle(&[&source, &target, &replica]);
    replicate(&replica, &target);
    settle(&[&source, &target, &replica]);
    let mut client = Client::new(&source);
    for (write, _) in VALUES {
        client.run(write);
    }
    let before: Vec<_> = VALUES.iter().map(|(_, read)| client.run(read)).collect();
    let slot = slot_of_a(&target);
    let id = import(&target, &format!("{slot} {slot}"));
    wait_for_task(&target, &id, "completed");
    wait_for_state(&replica, "success");
    settle(&[&source, &target, &replica]);
    let keys = i64::try_from(VALUES.len()).unwrap();
    assert_eq!([keys_in(&target, slot), keys_in(&replica, slot)], [keys; 2]);
    target.server.kill();
    target.server.restart();
    settle(&[&source, &target, &replica]);
    for ((_, read), before) in VALUES.iter().zip(before) {
        assert_eq!(client.run(read), before, "{read}");
    }
}

#[test]
fn an_import_from_redis_can_be_cancelled() {
    if !redis_is_here() {
        return;
    }
    let [source, target] = pair(node_with(Make::Redis8, &SLOW), node(Make::Penstock));
    let slot = slot_of_a(&target);
    source.ok("SET {a}1 7");
    source.ok("SET {a}2 7");
    let id = import(&target, &format!("{slot} {slot}"));
    target.wait_until("the first key is there", |target| keys_in(target, slot) == 1);
    check_hidden(&target);
    assert_eq!(
        (task_field(&target, &id, "state"), task_field(&target, &id, "end_time")),
        ("accumulate-buffer".into(), "-1".into())
    );
    assert_eq!(target.text("CLUSTER MIGRATION IMPORT 16000 16000"), "ERR another ASM task is already in progress");
    let again = format!("CLUSTER MIGRATION IMPORT {slot} {slot}");
    assert_eq!(target.text(&again), format!("ERR overlapping import exists for slot range: {slot}-{slot}"));
    assert_eq!(target.reply(&format!("CLUSTER MIGRATION CANCEL ID {}", "0".repeat(40))).integer(), Some(0));
    assert_eq!(target.reply(&format!("CLUSTER MIGRATION CANCEL ID {id}")).integer(), Some(1));
    wait_for_task(&target, &id, "canceled");
    assert_eq!(task_field(&target, &id, "last_error"), "Cancelled due to user request");
    assert_eq!((job_field(&target, "state"), keys_in(&target, slot)), ("cancelled".into(), 0));
    assert_eq!(target.reply("CLUSTER MIGRATION CANCEL ALL").integer(), Some(0));
    source.ok("CONFIG SET rdb-key-save-delay 0");
    source.ok("SET {a}1 8");
    let id = import(&target, &format!("{slot} {slot}"));
    wait_for_task(&target, &id, "completed");
    settle(&[&source, &target]);
    assert_eq!(Client::new(&target).run("GET {a}1").text(), b"8");
    assert_eq!(target.reply("CLUSTER MIGRATION STATUS ALL").items().len(), 2);
}

/// The source dies while it sends the snapshot, and the target while it receives it. The source keeps the slots.
#[test]
fn redis_keeps_its_slots_if_a_side_dies() {
    if !redis_is_here() {
        return;
    }
    for target_dies in [false, true] {
        let files = ["--appendonly", "yes", "--appendfsync", "always"];
        let [mut source, mut target] =
            pair(node_with(Make::Redis8, &SLOW_FOR_SECONDS), node_with(Make::Penstock, &files));
        let slot = slot_of_a(&target);
        source.ok("SET {a}1 7");
        source.ok("SET {a}2 7");
        let id = import(&target, &format!("{slot} {slot}"));
        target.wait_until("the first key is there", |target| keys_in(target, slot) == 1);
        if target_dies {
            target.server.kill();
            target.server.restart();
            settle(&[&source, &target]);
            assert_eq!(source.text("GET {a}1"), "7");
        } else {
            source.server.kill();
            wait_for_task(&target, &id, "failed");
            assert!(task_field(&target, &id, "last_error").contains("channel - "));
        }
        target.wait_until("the keys are deleted", |target| keys_in(target, slot) == 0);
    }
}

/// The source's writes go on if the target takes no slots behind the hold.
#[test]
fn a_target_without_an_answer_lets_redis_go_on() {
    if !redis_is_here() {
        return;
    }
    let [source, target] =
        pair(node_with(Make::Redis8, &["--cluster-slot-migration-write-pause-timeout", "1000"]), node(Make::Penstock));
    let slot = slot_of_a(&target);
    source.ok("SET {a}1 7");
    // A hold of a second leaves no time for a claim.
    let id = import(&target, &format!("{slot} {slot}"));
    wait_for_task(&target, &id, "failed");
    assert!(task_field(&target, &id, "last_error").contains("cluster-slot-migration-write-pause-timeout"));
    source.wait_until("it takes writes", |source| source.text("SET {a}1 8") == "OK");
    assert_eq!(keys_in(&target, slot), 0);
}

#[test]
fn only_redis_is_asked_for_slots() {
    let [source, target] = pair(node(Make::Penstock), node(Make::Penstock));
    let slot = slot_of_a(&target);
    let refusal = format!(
        "ERR the owner of the slots, {}, is not known as Redis 8.4 or later. Use CLUSTER MIGRATESLOTS at the owner",
        source.id()
    );
    assert_eq!(target.text(&format!("CLUSTER MIGRATION IMPORT {slot} {slot}")), refusal);
    assert!(target.reply("CLUSTER MIGRATION STATUS ALL").items().is_empty());
    // Moves in Valkey's form are listed and cancelled, too.
    source.ok(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {}", target.id()));
    wait_for_state(&target, "success");
    wait_for_state(&source, "success");
    let id = job_field(&target, "name");
    assert_eq!(
        (task_field(&target, &id, "state"), task_field(&target, &id, "operation")),
        ("completed".into(), "import".into())
    );
    assert_eq!(
        (task_field(&source, &id, "state"), task_field(&source, &id, "operation")),
        ("completed".into(), "migrate".into())
    );
}

/// The replies to requests that a target refuses, and to questions.
#[test]
fn refusals_are_those_of_redis() {
    let mut all = Vec::new();
    for make in [Make::Penstock, Make::Redis8] {
        let has_peer = Make::peers().contains(&Make::Redis8);
        if make == Make::Redis8 && !redis_is_here() {
            continue;
        }
        let [source, target] = pair(node(if has_peer { Make::Redis8 } else { Make::Penstock }), node(make));
        let words = [
            "IMPORT",
            "IMPORT 1",
            "IMPORT a b",
            "IMPORT 5 4",
            "IMPORT 0 20000",
            "IMPORT 0 1",
            "IMPORT 0 16383",
            "IMPORT 0 5 3 9",
            "IMPORT 0 5 3",
            "STATUS",
            "STATUS X",
            "STATUS ID",
            "STATUS ALL x",
            "STATUS ID x",
            "STATUS ALL",
            "CANCEL",
            "CANCEL X",
            "CANCEL ALL",
            "CANCEL ID x",
            "CANCEL ID",
            "FOO x",
            "FOO",
        ];
        let reply =
            |node: &Node, words: &str| format!("{words}: {:?}", node.reply(&format!("CLUSTER MIGRATION {words}")));
        let mut replies: Vec<_> = words.iter().map(|words| reply(&target, words)).collect();
        target.ok(&format!("CLUSTER SETSLOT 16000 IMPORTING {}", source.id()));
        replies.push(reply(&target, "IMPORT 16001 16001"));
        target.ok("CLUSTER SETSLOT 16000 STABLE");
        all.push(replies);
    }
    assert!(all.iter().all(|replies| *replies == all[0]), "{all:#?}");
}
