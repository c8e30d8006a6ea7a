//! Transactions, scripts, short connections, heavy commands; bounds of memory; bad input.

use super::traffic::{ROUND_TRIP_NS, Traffic, steps, trips};
use crate::client::Client;
use crate::findings::{Confidence, Kind};
use crate::{Advisor, Config, Connection, report};

#[test]
fn a_transaction_in_slices_is_found() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send("MULTI", "OK");
        traffic.send(&format!("INCR a:{number}"), "QUEUED");
        traffic.send(&format!("INCR b:{number}"), "QUEUED");
        traffic.send("EXEC", "[]");
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, trips(&group)), (Kind::TransactionInSlices, (400, 100)));
    assert_eq!(steps(&group), ["INCR a:<n>"]);
}

#[test]
fn a_transaction_that_is_sent_as_one_is_clean() {
    let mut traffic = Traffic::new();
    for _ in 0..100 {
        traffic.send("WATCH a", "OK");
        traffic.batch("MULTI", 4);
    }
    traffic.assert_clean();
}

#[test]
fn a_script_that_is_sent_in_full_is_found() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100 {
        traffic.pause(5);
        traffic.send_words(&[b"EVAL", b"return 1", b"1", format!("lock:{number}").as_bytes()], 1, b":1\r\n");
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, steps(&group)), (Kind::ScriptInFull, vec!["EVAL lock:<n>".to_owned()]));
    assert_eq!((group.total.sums.count, group.total.sums.bytes), (99, 99 * 8));
}

#[test]
fn scripts_that_differ_and_scripts_by_their_hash_are_clean() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100 {
        traffic.pause(5);
        traffic.send_words(&[b"EVAL", format!("return {number}").as_bytes(), b"0"], 1, b":1\r\n");
        traffic.pause(5);
        traffic.send("EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 1 lock", ":1");
    }
    traffic.assert_clean();
}

#[test]
fn a_connection_for_a_command_is_found() {
    let mut traffic = Traffic::new();
    for id in 0..100 {
        traffic.now_ns += ROUND_TRIP_NS;
        traffic.connection = Connection::opened(id, Client::default(), traffic.now_ns);
        traffic.send("AUTH secret", "OK");
        traffic.send("SELECT 1", "OK");
        traffic.send(&format!("GET key:{id}"), "x");
        traffic.close();
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, trips(&group)), (Kind::ConnectionPerCommand, (400, 100)));
    assert_eq!(steps(&group), ["GET key:<n>"]);
    // Connecting takes a round trip and the client's time behind it; AUTH and SELECT take two more.
    assert_eq!(group.total.sums.lost_ns, 100 * 4 * ROUND_TRIP_NS);
}

/// A subscription needs a connection of its own.
#[test]
fn a_connection_for_a_subscription_is_clean() {
    let mut traffic = Traffic::new();
    for id in 0..100 {
        traffic.connection = Connection::opened(id, Client::default(), traffic.now_ns);
        traffic.send(&format!("{} room:{id}", ["SUBSCRIBE", "psubscribe"][id as usize % 2]), "[]");
        traffic.close();
    }
    traffic.assert_clean();
}

/// A pool opens connections for a burst, and closes them when they have been idle.
#[test]
fn connections_that_a_pool_may_have_kept_are_no_proof() {
    let mut traffic = Traffic::new();
    for id in 0..100 {
        traffic.connection = Connection::opened(id, Client::default(), traffic.now_ns);
        traffic.send("SELECT 1", "OK");
        traffic.send(&format!("GET key:{id}"), "x");
        traffic.pause(500);
        traffic.close();
    }
    assert_eq!(traffic.only().total.sums.confidence(), Confidence::Medium);
}

#[test]
fn connections_that_are_kept_are_clean() {
    let mut traffic = Traffic::new();
    for id in 0..100 {
        traffic.connection = Connection::opened(id, Client::default(), traffic.now_ns);
        traffic.send("AUTH secret", "OK");
        for _ in 0..3 {
            traffic.pause(5);
            traffic.send(&format!("GET key:{id}"), "x");
        }
        traffic.close();
    }
    traffic.assert_clean();
}

#[test]
fn heavy_commands_are_found() {
    let mut traffic = Traffic::logged_in();
    let large = format!("*1\r\n$100000\r\n{}\r\n", "x".repeat(100_000));
    for number in 0..10 {
        traffic.pause(5);
        traffic.send("KEYS user:*", "[]");
        traffic.pause(5);
        traffic.send_words(&[b"SMEMBERS", format!("friends:{number}").as_bytes()], 1, large.as_bytes());
        traffic.pause(5);
        traffic.send("SMEMBERS few", "[]");
    }
    let groups = traffic.groups();
    let found: Vec<_> = groups.iter().map(|group| (group.total.kind, steps(group).join(" "))).collect();
    let heavy = |steps: &str| (Kind::HeavyCommand, steps.to_owned());
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.contains(&heavy("KEYS")) && found.contains(&heavy("SMEMBERS friends:<n>")), "{found:?}");
}

#[test]
fn spilled_replies_are_found() {
    let mut traffic = Traffic::new();
    traffic.batch("GET key:5", 1_000_000);
    traffic.advisor.spilled(&mut traffic.connection, 1_000_000, 500 << 20, 5);
    let group = traffic.only();
    assert_eq!((group.total.kind, group.total.sums.bytes), (Kind::TooLongPipeline, 500 << 20));
    assert_eq!(steps(&group), ["GET key:<n>"]);
}

/// The finding names the pipeline's first command, neither an earlier command of the connection nor a later part.
#[test]
fn spilled_replies_name_the_pipeline() {
    let mut traffic = Traffic::logged_in();
    traffic.send("PING", "OK");
    traffic.batch("SET first:1 x", 10);
    traffic.batch("GET key:5", 1000);
    traffic.overlaps = true;
    traffic.batch("HGET later:5 f", 1000);
    traffic.send("LLEN later", ":5");
    traffic.advisor.spilled(&mut traffic.connection, 1_000_000, 500 << 20, 5);
    let spilled = traffic.of_kind(Kind::TooLongPipeline);
    assert_eq!(steps(&spilled), ["GET key:<n>"]);
}

#[test]
fn samples_are_kept_only_where_they_may_be() {
    for samples in [true, false] {
        let mut traffic = Traffic::new();
        traffic.advisor = Advisor::new(Config { samples, ..Config::default() });
        for number in 0..100 {
            traffic.send(&format!("GET key{number}"), "x");
        }
        assert_eq!(traffic.only().total.samples.is_empty(), !samples);
    }
}

#[test]
fn a_million_shapes_stay_within_the_memory() {
    let memory_bytes = 1 << 20;
    let mut traffic = Traffic::new();
    traffic.advisor = Advisor::new(Config { memory_bytes, ..Config::default() });
    let letters = |number: u32| number.to_string().bytes().map(|digit| (digit + 50) as char).collect::<String>();
    for number in 0..1_000_000 {
        let (command, key) = (letters(number / 4), letters(number / 4 % 1000));
        traffic.send(&format!("{command} {key}:x"), ":0");
    }
    traffic.close();
    let findings = traffic.advisor.findings();
    assert!(findings.memory_bytes() <= memory_bytes * 3 / 4, "{}", findings.memory_bytes());
    assert!(findings.iter().count() > 500 && findings.dropped() > 100_000);
    let (shapes, dropped) = traffic.advisor.shapes();
    assert!(shapes <= memory_bytes / 4 / 320 && dropped > 200_000, "{shapes} {dropped}");
}

#[test]
fn the_greatest_losses_stay() {
    let mut traffic = Traffic::new();
    traffic.advisor = Advisor::new(Config { memory_bytes: 64 << 10, ..Config::default() });
    for number in 0..10_000 {
        traffic.send(&format!("GET big:{number}"), "x");
    }
    for number in 0..200_000_u32 {
        let command: String = (number / 5).to_string().bytes().map(|digit| (digit + 50) as char).collect();
        traffic.send(&format!("{command} x"), ":0");
    }
    assert!(traffic.groups().iter().any(|group| steps(group) == ["GET big:<n>"]));
}

#[test]
fn keys_of_any_bytes_and_lengths_are_fine() {
    let mut traffic = Traffic::new();
    let long = vec![b'x'; 1 << 20];
    let binary: Vec<u8> = (0..=255).collect();
    for number in 0..100_u8 {
        traffic.send_words(&[b"SET", &long, b"1"], 1, b"+OK\r\n");
        traffic.send_words(&[b"GET", &binary], 1, &binary);
        traffic.send_words(&[&long, &long], 1, b"");
        traffic.send_words(&[b"GET"], 1, b"-ERR\r\n");
        traffic.send_words(&[b""], 1, b"$5");
        traffic.send_words(&[b"GET", &[number; 300]], 1, b"*3\r\n$3\r\nab");
        traffic.send_words(&[b"EVAL", &long], 1, b"$-1\r\n");
    }
    traffic.groups();
}

/// A sure loss comes before a greater one with low confidence.
#[test]
fn losses_are_ordered_by_their_confidence() {
    let mut sure = Traffic::logged_in();
    let mut unsure = Traffic::logged_in();
    unsure.connection = Connection::new(2, Client { name: "other".to_owned(), ..Client::default() });
    unsure.shows_replies = false;
    for number in 0..3000_u32 {
        // One member of many keys, without replies: the answers may differ.
        unsure.send(&format!("HGET user:{number} field{}", number / 100), "x");
        if number % 3 == 0 {
            sure.send(&format!("SET key:{number} v"), "OK");
        }
    }
    sure.close();
    unsure.close();
    let mut all = unsure.advisor.findings().clone();
    all.merge(&sure.advisor.findings());
    let groups = all.groups();
    let kinds: Vec<Kind> = groups.iter().map(|group| group.total.kind).collect();
    assert_eq!(kinds[..2], [Kind::Loop, Kind::RepeatedRead], "{groups:#?}");
    assert!(groups[0].total.lost_ns() < groups[1].total.lost_ns());
}

#[test]
fn threads_are_merged() {
    let mut first = Traffic::new();
    let mut second = Traffic::new();
    second.connection = Connection::new(2, Client { name: "other".to_owned(), ..Client::default() });
    for number in 0..100 {
        first.send(&format!("GET key{number}"), "x");
    }
    for number in 0..300 {
        second.send(&format!("GET key{number}"), "x");
    }
    first.close();
    second.close();
    let mut all = first.advisor.findings().clone();
    all.merge(&second.advisor.findings());
    let groups = all.groups();
    assert_eq!(groups.len(), 1);
    assert_eq!((trips(&groups[0]), groups[0].clients), ((400, 2), 2));
    assert_eq!(groups[0].total.client.name, "other");
    all.merge(&second.advisor.findings());
    assert_eq!(trips(&all.groups()[0]), (700, 3));
}

/// Jedis 6 sends MULTI and the commands in one batch, and EXEC after their replies.
#[test]
fn transactions_with_a_late_exec_are_small_pipelines() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.batch(&format!("HSET row:{number} value {number}"), 3);
        traffic.send("EXEC", "[]");
    }
    let group = traffic.of_kind(Kind::SmallPipelines);
    assert_eq!((steps(&group), trips(&group)), (vec!["HSET row:<n>".to_owned()], (200, 1)));
}

/// The library writes each command by itself, and the server often answers the first one before the next ones come.
#[test]
fn pipelines_that_come_in_parts_are_small_pipelines() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        match number % 5 {
            0..=2 => traffic.batch("SADD queues mail", 3),
            3 => {
                traffic.send("SADD queues mail", ":0");
                traffic.batch(&format!("LPUSH queue:mail job{number}"), 2);
            }
            _ => {
                traffic.send("SADD queues mail", ":0");
                traffic.send(&format!("LPUSH queue:mail job{number}"), &format!(":{number}"));
                traffic.send("INCR sent", &format!(":{number}"));
            }
        }
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, steps(&group)), (Kind::SmallPipelines, vec!["SADD queues".to_owned()]));
    assert_eq!(trips(&group), (100, 1));
}

/// A client with an old map of the slots loses a round trip for each redirected command, in pipelines, too.
#[test]
fn redirected_commands_are_counted() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100_u64 {
        let moved = if number % 5 < 2 { "-MOVED 5 10.0.0.2:6379" } else { "-ERR no" };
        traffic.send_words(&[b"GET", format!("user:{}", number * 7919 % 101).as_bytes()], 1, moved.as_bytes());
        traffic.pause(5);
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, steps(&group)), (Kind::RedirectedCommands, Vec::new()));
    assert_eq!(trips(&group), (100, 60));
    let seen = crate::advice::advice(&group.total).seen;
    assert!(seen.starts_with("40 % of the commands") && seen.contains("40 of 100"), "{seen}");
    assert_eq!(group.total.sums.lost_ns / ROUND_TRIP_NS, 40);
}

/// A cluster client follows slots that move: each costs it one redirect.
#[test]
fn few_redirected_commands_are_clean() {
    let mut traffic = Traffic::logged_in();
    for number in 0..1000_u64 {
        let reply: &[u8] = if number % 25 == 0 { b"-MOVED 5 10.0.0.2:6379" } else { b"$-1\r\n" };
        traffic.send_words(&[b"GET", format!("user:{}", number * 7919 % 1009).as_bytes()], 1, reply);
        traffic.pause(5);
    }
    traffic.assert_clean();
}

/// The code of another library would not run.
#[test]
fn a_library_without_code_gets_the_commands_alone() {
    for (library, expected) in [
        ("rueidis 1.0", "# there is no code for rueidis 1.0"),
        ("redis-py 8.1.0", "r.mset({"),
        ("penstock-http 0.4.0", ""),
        ("", ""),
    ] {
        let mut traffic = Traffic::new();
        traffic.connection.set_client(Client { library: library.to_owned(), ..Client::default() });
        for number in 0..100 {
            traffic.send(&format!("SET key:{number} v"), "OK");
        }
        traffic.close();
        let findings = traffic.advisor.findings();
        let text = report::text(&findings, &report::Style::default());
        assert!(text.contains(expected), "{text}");
        let has_commands = text.contains("       MSET key:<n> <value> key:<n> <value> ...");
        assert_eq!(has_commands, library.starts_with("rueidis"), "{text}");
        let json = report::json(&findings);
        assert!(json.contains("\"redis-cli\":\"MSET"), "{json}");
        assert_eq!(json.contains("\"Python\":"), !library.starts_with("rueidis"), "{json}");
    }
}

/// Some libraries ask every server for the map of the slots. Only a server outside a cluster refuses it, and MGET may then use any keys.
#[test]
fn a_client_that_asks_for_a_cluster_in_vain_is_outside_one() {
    for (answer, in_cluster) in [("OK", true), ("-ERR This instance has cluster support disabled", false)] {
        let mut traffic = Traffic::new();
        let client = Client { in_cluster: true, ..Client::default() };
        traffic.connection.set_client(client.clone());
        traffic.send_words(&[b"CLUSTER", b"SLOTS"], 1, format!("{answer}\r\n").as_bytes());
        traffic.connection.set_client(client);
        for number in 0..100 {
            traffic.send(&format!("GET label:{number}"), "some text");
        }
        assert_eq!(traffic.only().total.client.in_cluster, in_cluster);
    }
}
