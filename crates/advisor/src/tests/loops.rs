//! Loops, and traffic that only looks like a loop.

use super::traffic::{COMMAND_NS, Noise, ROUND_TRIP_NS, TRIP_NS, Traffic, steps, trips};
use crate::Connection;
use crate::client::Client;
use crate::findings::{Confidence, Kind};

#[test]
fn a_loop_is_found() {
    let mut traffic = Traffic::new();
    for number in 0..1000 {
        traffic.send(&format!("SET key{number} value{number}"), "OK");
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, steps(&group)), (Kind::Loop, vec!["SET key<n>".to_owned()]));
    assert_eq!(trips(&group), (1000, 1));
    assert_eq!(group.total.sums.lost_ns, 999 * TRIP_NS);
    assert_eq!(group.total.sums.confidence(), Confidence::High);
    assert!(!group.total.steps[0].one_key);
    assert_eq!(group.total.samples.len(), 1);
}

#[test]
fn a_long_loop_needs_a_pipeline_for_every_thousand() {
    let mut traffic = Traffic::new();
    for number in 0..100_000 {
        traffic.send(&format!("SET key_{number} value_{number}"), "OK");
    }
    assert_eq!(trips(&traffic.only()), (100_000, 100));
}

#[test]
fn a_loop_over_one_key_differs_from_one_over_many() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send(&format!("SADD users:online member{number}"), ":1");
    }
    let group = traffic.only();
    assert_eq!(steps(&group), ["SADD users:online"]);
    assert!(group.total.steps[0].one_key);
}

#[test]
fn a_counter_that_is_incremented_one_by_one_is_a_loop() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send("INCR visits", &format!(":{number}"));
    }
    let group = traffic.only();
    assert_eq!((steps(&group), trips(&group)), (vec!["INCR visits".to_owned()], (100, 1)));
}

#[test]
fn commands_without_a_key_loop_too() {
    let mut traffic = Traffic::new();
    for _ in 0..10_000 {
        traffic.send("PING", "PONG");
    }
    assert_eq!(trips(&traffic.only()), (10_000, 10));
}

#[test]
fn names_that_vary_are_learned() {
    let mut traffic = Traffic::new();
    for first in b'a'..=b'z' {
        for second in b'a'..=b'z' {
            traffic.send(&format!("GET user:{}{}:mail", first as char, second as char), "x@example.org");
        }
    }
    let group = traffic.only();
    assert_eq!(steps(&group), ["GET user:<word>:mail"]);
    assert!(trips(&group).0 >= 660, "{group:?}");
}

#[test]
fn an_interleaved_loop_is_found_with_its_period() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send(&format!("HSET user:{number} name x"), ":1");
        traffic.send(&format!("SADD users:all u{number}"), ":1");
        traffic.send(&format!("EXPIRE user:{number} 3600"), ":1");
    }
    let group = traffic.only();
    assert_eq!(group.total.kind, Kind::InterleavedLoop);
    assert_eq!(steps(&group), ["HSET user:<n>", "SADD users:all", "EXPIRE user:<n>"]);
    assert_eq!(trips(&group), (300, 1));
}

#[test]
fn steps_that_need_a_reply_are_stages() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send(&format!("GET user:{number}:team"), &format!("{}", 5000 + number * 7));
        traffic.send(&format!("HGETALL team:{}", 5000 + number * 7), "x");
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, trips(&group)), (Kind::InterleavedLoop, (200, 2)));
    assert_eq!(group.total.sums.confidence(), Confidence::High);
}

#[test]
fn a_walk_that_needs_each_reply_is_clean() {
    let mut traffic = Traffic::new();
    let mut node = 1000_u64;
    for _ in 0..1000 {
        let next = node * 7919 % 1_000_003;
        traffic.send(&format!("GET node:{node}"), &format!("{next}"));
        node = next;
    }
    traffic.assert_clean();
}

#[test]
fn a_client_that_thinks_before_each_command_is_clean() {
    let mut traffic = Traffic::logged_in();
    for number in 0..1000 {
        traffic.pause(2);
        traffic.send(&format!("GET session:{number}"), "x");
    }
    traffic.assert_clean();
}

/// On a busy machine a client's thread sometimes waits for a core.
#[test]
fn a_loop_goes_on_where_the_client_is_held_up() {
    let mut traffic = Traffic::new();
    for number in 0..500 {
        if number % 40 == 39 {
            traffic.pause(3);
        }
        traffic.send(&format!("GET user:{number}"), "x");
    }
    assert_eq!(trips(&traffic.only()), (500, 1));
    // A trip after such a wait counts with the usual length.
    let lost_ns = traffic.only().total.sums.lost_ns;
    assert!(lost_ns.abs_diff(499 * TRIP_NS) < TRIP_NS, "{lost_ns}");
}

#[test]
fn a_client_that_thinks_ends_its_loop() {
    for (every, pause_ms) in [(40, 6), (10, 3)] {
        let mut traffic = Traffic::logged_in();
        for number in 0..400 {
            if number % every == 0 {
                traffic.pause(pause_ms);
            }
            traffic.send(&format!("GET user:{number}"), "x");
        }
        assert_eq!(trips(&traffic.only()), (400, 400 / every), "{every} {pause_ms}");
    }
}

#[test]
fn a_slow_network_can_not_be_told_from_a_client_that_thinks() {
    let mut traffic = Traffic::new();
    traffic.gap_ns = 30_000_000;
    for number in 0..1000 {
        traffic.send(&format!("GET session:{number}"), "x");
    }
    assert_eq!(traffic.only().total.sums.confidence(), Confidence::Low);
}

#[test]
fn a_slow_network_that_was_measured_is_sure() {
    let mut traffic = Traffic::new();
    traffic.gap_ns = 30_000_000;
    traffic.connection.set_round_trip(29_000_000);
    for number in 0..1000 {
        traffic.send(&format!("GET session:{number}"), "x");
    }
    let group = traffic.only();
    assert_eq!(group.total.sums.confidence(), Confidence::High);
    assert_eq!(group.total.sums.lost_ns, 999 * (30_000_000 + COMMAND_NS));
}

#[test]
fn the_time_of_pauses_is_not_lost() {
    let mut traffic = Traffic::logged_in();
    for number in 0..1000 {
        if number % 100 == 0 {
            traffic.pause(50);
        }
        traffic.send(&format!("GET session:{number}"), "x");
    }
    let group = traffic.only();
    assert_eq!(trips(&group), (1000, 10));
    assert_eq!(group.total.sums.lost_ns, 990 * TRIP_NS);
}

#[test]
fn pipelines_are_clean() {
    let mut traffic = Traffic::new();
    for number in 0..1000 {
        traffic.batch(&format!("SET key{number} x"), 100);
    }
    traffic.assert_clean();
}

#[test]
fn requests_that_do_not_wait_for_replies_are_clean() {
    let mut traffic = Traffic::new();
    traffic.gap_ns = 0;
    for number in 0..1000 {
        traffic.now_ns -= 1000;
        traffic.send(&format!("SET key{number} x"), "OK");
    }
    traffic.assert_clean();
}

/// A client writes a pipeline of ten one by one, and the server answers each command before the next one arrives.
#[test]
fn a_pipeline_that_is_written_one_by_one_is_clean() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send(&format!("ZSCORE all title{number}"), "1");
        for place in 0..10 {
            traffic.gap_ns = if place == 5 { 0 } else { 30_000 };
            traffic.now_ns -= if place == 5 { 1000 } else { 0 };
            traffic.send(&format!("ZADD prefix:{place} 1 title{number}"), "1");
        }
    }
    traffic.assert_clean();
}

#[test]
fn a_few_different_commands_are_clean() {
    let mut traffic = Traffic::logged_in();
    for request in 0..100 {
        traffic.pause(20);
        traffic.send(&format!("GET session:{request}"), "user-5");
        traffic.send(&format!("HGETALL user:{request}"), "x");
        traffic.send(&format!("LRANGE cart:{request} 0 9"), "[]");
    }
    traffic.assert_clean();
}

#[test]
fn connections_of_one_client_are_added_up() {
    let mut traffic = Traffic::new();
    let mut second = traffic.connection.clone();
    second.id = 2;
    for number in 0..200 {
        traffic.send(&format!("GET key{number}"), "x");
        std::mem::swap(&mut traffic.connection, &mut second);
    }
    traffic.close();
    std::mem::swap(&mut traffic.connection, &mut second);
    let group = traffic.only();
    assert_eq!((trips(&group), group.clients), ((200, 2), 1));
    assert!(group.total.sums.several_connections);
}

/// Four threads run the same loop at the same time. The application waits as long as one of them.
#[test]
fn threads_that_wait_at_the_same_time_lose_time_once() {
    let mut traffic = Traffic::new();
    let mut others: Vec<_> = (2..=4).map(|id| crate::Connection { id, ..traffic.connection.clone() }).collect();
    let began_ns = traffic.now_ns;
    for number in 0..2500 {
        for other in &mut others {
            traffic.gap_ns = ROUND_TRIP_NS / 4;
            traffic.send(&format!("SET key:{number} v"), "OK");
            std::mem::swap(&mut traffic.connection, other);
        }
        traffic.send(&format!("SET key:{number} v"), "OK");
    }
    let passed_ns = traffic.now_ns - began_ns;
    traffic.close();
    for other in others {
        traffic.connection = other;
        traffic.close();
    }
    let group = traffic.only();
    assert_eq!(trips(&group).0, 10_000);
    let lost_ns = group.total.sums.lost_ns;
    assert!(lost_ns <= passed_ns && lost_ns * 10 >= passed_ns * 9, "{lost_ns} of {passed_ns}");
}

#[test]
fn trips_of_different_connections_make_no_loop() {
    // Each connection sends one command of a shape; no connection has a loop.
    let mut traffic = Traffic::new();
    for id in 0..1000 {
        traffic.connection = crate::Connection::new(id, crate::client::Client::default());
        traffic.send(&format!("GET key{id}"), "x");
        traffic.close();
    }
    traffic.assert_clean();
}

#[test]
fn commands_sent_without_waiting_are_no_loop() {
    let mut traffic = Traffic::new();
    traffic.overlaps = true;
    for number in 0..200 {
        traffic.send(&format!("GET key{number}"), "x");
    }
    traffic.assert_clean();
}

#[test]
fn the_loop_of_a_silent_connection_is_reported() {
    let mut traffic = Traffic::new();
    for number in 0..200 {
        traffic.send(&format!("SET key{number} x"), "OK");
    }
    let settle = |traffic: &mut Traffic, after_ns| {
        let now_ns = traffic.now_ns + after_ns;
        traffic.advisor.settle(&mut traffic.connection, now_ns);
        traffic.advisor.findings().groups().len()
    };
    assert_eq!(settle(&mut traffic, super::traffic::ROUND_TRIP_NS), 0);
    assert_eq!(settle(&mut traffic, 1_000_000), 1);
    assert_eq!(trips(&traffic.only()), (200, 1));
}

#[test]
fn sets_with_options_are_commands_of_their_own() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100 {
        traffic.send(&format!("SET key:{number} x"), "OK");
    }
    for number in 0..100 {
        traffic.send(&format!("SET key:{number} x EX 60"), "OK");
    }
    let groups = traffic.groups();
    let mut found: Vec<_> = groups.iter().map(|group| (steps(group), trips(group).0)).collect();
    found.sort();
    assert_eq!(found, [(vec!["SET WITH OPTIONS key:<n>".to_owned()], 100), (vec!["SET key:<n>".to_owned()], 100)]);
}

/// Scripts take and release a lock: the second script may depend on the first one's reply.
#[test]
fn scripts_may_depend_on_each_other() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100 {
        traffic.send(&format!("EVAL lock 1 lock:{number}"), "nil");
        traffic.send(&format!("EVAL unlock 1 lock:{number}"), ":1");
        traffic.send(&format!("DEL waiters:{number}"), ":0");
    }
    let group = traffic.of_kind(Kind::InterleavedLoop);
    assert_eq!(group.total.sums.confidence(), Confidence::Medium);
    assert_eq!(trips(&group), (300, 3));
}

/// The length of a list grows with each command, so it is equal to a counter in the next command by chance.
#[test]
fn a_reply_that_counts_the_commands_is_no_source() {
    let mut traffic = Traffic::new();
    for number in 0..200 {
        traffic.send(&format!("RPUSH jobs job-{number}"), &format!(":{}", number + 1));
    }
    let group = traffic.only();
    assert_eq!((steps(&group), trips(&group)), (vec!["RPUSH jobs".to_owned()], (200, 1)));
}

/// Small numbers that do not grow evenly come from the replies.
#[test]
fn a_list_of_small_numbers_is_no_loop() {
    let mut traffic = Traffic::new();
    let mut node = 1;
    for _ in 0..200 {
        let next = node * 17 % 211;
        traffic.send(&format!("GET node:{node}"), &next.to_string());
        node = next;
    }
    traffic.assert_clean();
}

/// Each entry is read and acknowledged. Its name follows from no earlier round.
#[test]
fn an_id_that_is_read_and_used_within_a_round_is_a_stage() {
    for head in ["*1\r\n*2", "%1"] {
        let mut traffic = Traffic::new();
        for number in 0..100 {
            let name = format!("{}-{}", 1_790_000_000_000_u64 + number / 3, number % 3);
            let fields = format!("*2\r\n$1\r\nn\r\n${}\r\n{number}\r\n", number.to_string().len());
            let entry = format!("{head}\r\n$6\r\nevents\r\n*1\r\n*2\r\n$15\r\n{name}\r\n{fields}");
            let words = ["XREADGROUP", "GROUP", "readers", "one", "COUNT", "1", "STREAMS", "events", ">"];
            traffic.send_words(&words.map(str::as_bytes), 1, entry.as_bytes());
            traffic.send(&format!("XACK events readers {name}"), ":1");
        }
        assert_eq!(steps(&traffic.only()), ["XREADGROUP events", "XACK events"], "{head}");
    }
}

/// A server has no key for PUBLISH. The finding names the channel.
#[test]
fn the_channel_of_a_message_is_shown() {
    for key in [None, Some(0)] {
        let mut traffic = Traffic::new();
        traffic.key = key;
        for number in 0..100 {
            traffic.send(&format!("PUBLISH news item-{number}"), ":0");
        }
        assert_eq!(steps(&traffic.only()), ["PUBLISH news"]);
    }
}

/// Each document names two others, and the client walks through them level by level.
#[test]
fn a_walk_through_a_tree_is_no_loop() {
    let mut traffic = Traffic::new();
    let name = |node: u64| node * 7919 % 100_003;
    for node in 0..100 {
        let document = format!("{{\"children\": [{}, {}]}}", name(2 * node + 1), name(2 * node + 2));
        traffic.send(&format!("GET tree:{}", name(node)), &document);
    }
    traffic.assert_clean();
}

/// The end of each page is beyond the examined bytes. The next page begins there.
#[test]
fn pages_of_a_collection_are_no_loop() {
    let mut traffic = Traffic::new();
    for page in 0..100_u64 {
        let mut reply = "*10\r\n".to_owned();
        (0..10).for_each(|entry| reply += &format!("$40\r\n{:>40}\r\n", page * 10 + entry));
        let last = page * page * 7919 % 100_003;
        let command = format!("ZRANGE feed ({last} +inf BYSCORE LIMIT 0 10");
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        traffic.send_words(&words, 1, reply.as_bytes());
    }
    traffic.assert_clean();
}

/// The ids of a stream that was filled at once are evenly spaced. Windows of time are known before the replies.
#[test]
fn pages_of_a_stream_are_no_loop() {
    for has_windows in [false, true] {
        let mut traffic = Traffic::new();
        for page in 0..100_u64 {
            let mut reply = "*10\r\n".to_owned();
            (0..10).for_each(|entry| reply += &format!("$40\r\n1790000000000-{:>26}\r\n", page * 10 + entry));
            let (begin, end) = (1_790_000_000_000 + page * 60_000, 1_790_000_059_999 + page * 60_000);
            let command = match has_windows {
                true => format!("XRANGE audit {begin} {end} COUNT 10"),
                false => format!("XRANGE audit (1790000000000-{} + COUNT 10", page * 10 + 9),
            };
            let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
            traffic.send_words(&words, 1, reply.as_bytes());
        }
        assert_eq!(traffic.groups().len(), usize::from(has_windows), "{has_windows}");
    }
}

/// A client that writes the commands of a pipeline one by one looks like a loop as long as the server answers faster than it writes.
#[test]
fn a_loop_of_a_shape_that_was_pipelined_is_doubtful() {
    let mut traffic = Traffic::logged_in();
    for number in 0..3000 {
        traffic.overlaps = number < 20;
        traffic.send(&format!("SET key{number} value{number}"), "OK");
    }
    assert_eq!(traffic.of_kind(Kind::Loop).total.sums.confidence(), Confidence::Low);
}

/// A client library may write the two commands of a pipeline one by one. The gap between them is short.
#[test]
fn steps_with_very_different_gaps_are_no_proof() {
    for (second_ns, expected) in [(ROUND_TRIP_NS, Confidence::High), (ROUND_TRIP_NS / 6, Confidence::Medium)] {
        let mut traffic = Traffic::new();
        for number in 0..100 {
            traffic.gap_ns = ROUND_TRIP_NS;
            traffic.send("SADD queues default", ":0");
            traffic.gap_ns = second_ns;
            traffic.send(&format!("LPUSH queue:default job-{number}"), &format!(":{}", number + 1));
        }
        assert_eq!(traffic.of_kind(Kind::InterleavedLoop).total.sums.confidence(), expected);
    }
}

/// The counts in the replies equal the next amounts by chance.
#[test]
fn increments_of_many_keys_are_a_loop() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100 {
        let amount = 1 + number % 3;
        traffic.send(&format!("HINCRBY page:{number} visits {amount}"), &format!(":{amount}"));
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, trips(&group)), (Kind::Loop, (100, 1)));
}

/// A search for the shortest way asks for the neighbours of the nearest node: each small number stands in some earlier reply.
#[test]
fn a_client_that_goes_on_until_a_reply_is_not_empty_does_not_loop() {
    let send = |traffic: &mut Traffic, id: u32, reply| {
        traffic.send(&format!("SET webhook:evt_{:08x} 1 NX EX 86400", id.wrapping_mul(2_654_435_761)), reply);
    };
    let mut traffic = Traffic::logged_in();
    for event in 0..20 {
        (0..5).for_each(|known| send(&mut traffic, event * 7 + known, "nil"));
        send(&mut traffic, event * 7 + 5, "OK");
        traffic.pause(4);
        traffic.send("XADD webhooks * event e", "1-1");
    }
    traffic.assert_clean();
    // Each key is set, whether it exists or not.
    let mut traffic = Traffic::logged_in();
    (0..100).for_each(|id| traffic.send(&format!("SET key:{id} v NX"), if id % 7 == 0 { "OK" } else { "nil" }));
    traffic.send("TIME", "[]");
    assert_eq!(trips(&traffic.of_kind(Kind::Loop)), (100, 1));
}

#[test]
fn a_search_through_a_graph_is_no_loop() {
    use std::cmp::Reverse;
    const NODES: u64 = 400;
    let mut traffic = Traffic::logged_in();
    // The client is held up after each twentieth reply, so that the loop has parts.
    let mut asked = 0;
    let mut open = std::collections::BinaryHeap::from([Reverse((0, 0_u64))]);
    let mut seen = std::collections::HashSet::new();
    while let Some(Reverse((way, node))) = open.pop().filter(|_| seen.len() < 150) {
        if !seen.insert(node) {
            continue;
        }
        let mut fields = String::new();
        for turn in 1..=3 {
            let (next, length) = ((node * turn * 7 + turn * 131 + 1) % NODES, 1 + (node * 31 + turn * 17) % 97);
            open.push(Reverse((way + length, next)));
            for text in [next.to_string(), length.to_string()] {
                fields += &format!("${}\r\n{text}\r\n", text.len());
            }
        }
        let key = format!("node:{node}");
        asked += 1;
        if asked % 20 == 0 {
            traffic.pause(30);
        }
        traffic.send_words(&[b"HGETALL", key.as_bytes()], 1, format!("*6\r\n{fields}").as_bytes());
    }
    traffic.assert_clean();
}

/// Small numbers that stand in the replies by chance, as other small numbers do.
#[test]
fn replies_with_all_small_numbers_show_no_dependence() {
    let mut traffic = Traffic::logged_in();
    for number in 0..200 {
        let (key, friend) = (number * 7919 % 101, number * 104_729 % 101);
        traffic.send(
            &format!("HGET user:{key} friends"),
            &format!("{friend},{},{}", (friend + 31) % 101, (friend + 64) % 101),
        );
    }
    assert_eq!(traffic.of_kind(Kind::Loop).total.sums.confidence(), Confidence::Medium);
}

/// Spring's RedisTemplate serializes keys by default.
#[test]
fn serialized_keys_of_java_have_patterns() {
    let mut traffic = Traffic::logged_in();
    for number in 100..200 {
        let key = [&b"\xac\xed\0\x05t\0\x08user:"[..], number.to_string().as_bytes()].concat();
        traffic.send_words(&[b"GET", &key], 1, b"$1\r\nx\r\n");
    }
    let group = traffic.only();
    assert_eq!(steps(&group), ["GET user:<n>"]);
    assert!(group.total.samples.iter().all(|sample| sample.starts_with(b"user:1")));
}

/// Each key is asked about, and some of them are changed.
#[test]
fn a_step_of_some_rounds_is_a_step() {
    let mut traffic = Traffic::logged_in();
    let mut random = 7_u64;
    for number in 0..400 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let key = format!("upload:{}", number * 37 % 1009);
        let is_orphan = random >> 33 & 3 != 0;
        traffic.send(&format!("TTL {key}"), if is_orphan { ":-1" } else { ":500" });
        if is_orphan {
            traffic.send(&format!("EXPIRE {key} 3600"), ":1");
        }
    }
    let found: Vec<_> = traffic.groups().iter().map(steps).collect();
    assert!(found.contains(&vec!["TTL upload:<n>".to_owned(), "EXPIRE upload:<n>".to_owned()]), "{found:?}");
    assert!(found.iter().all(|steps| steps.len() <= 2), "{found:?}");
}

/// A log shows no network. The gaps of a client that thinks vary by more than those of a slow network.
#[test]
fn a_client_that_thinks_for_varying_times_is_no_slow_network() {
    let mut traffic = Traffic::new();
    (traffic.noise, traffic.gap_ns) = (Some(Noise::new(1, 10)), 2_000_000);
    for number in 0..300 {
        traffic.send(&format!("GET fragment:{}", number * 37 % 71), "some text");
    }
    traffic.assert_clean();
}

/// Each key is the digest of the reply before, so that no reply contains the next key.
#[test]
fn a_chain_of_digests_is_no_loop() {
    for len in [16, 24, 32, 40, 64] {
        let mut traffic = Traffic::new();
        let mut key = "blob:root".to_owned();
        for number in 0..200_u64 {
            let text = format!("entry {}", number * 7919 % 1_000_003);
            traffic.send(&format!("GET {key}"), &text);
            key = format!("blob:{}", crate::digest::digest(text.as_bytes(), len));
        }
        traffic.assert_clean();
    }
}

/// The keys may be digests of a part of the replies.
#[test]
fn a_loop_over_digests_has_low_confidence() {
    for (command, expected) in [("GET", Confidence::Low), ("SET", Confidence::High)] {
        let mut traffic = Traffic::new();
        for number in 0..200_u64 {
            let name = crate::digest::digest(&number.to_le_bytes(), 40);
            let value = if command == "SET" { " x" } else { "" };
            let reply = if command == "SET" { "OK".to_owned() } else { format!("text {number}") };
            traffic.send(&format!("{command} blob:{name}{value}"), &reply);
        }
        assert_eq!(traffic.only().total.sums.confidence(), expected, "{command}");
    }
}

/// The replies of writes are always 1, and a number of the next command is often 1 or 2.
#[test]
fn small_numbers_in_equal_replies_are_no_walk() {
    let mut traffic = Traffic::logged_in();
    for number in 0..110_u64 {
        let digits = (number * 7919 % 1000).to_string();
        let host: String = digits.bytes().map(|digit| (digit + 50) as char).collect();
        traffic.send(&format!("SADD dns:{host}:a 10.{}.{number}.{}", number % 4, number * 7 % 250), ":1");
        traffic.send(&format!("EXPIRE dns:{host}:a 86400"), ":1");
    }
    assert!(trips(&traffic.only()).0 >= 200);
}

/// Pages by place are a loop of ZRANGE. Windows between two scores are one of ZRANGEBYSCORE, whatever the command's name.
#[test]
fn ranges_of_places_and_of_scores_differ() {
    for (options, expected) in
        [("WITHSCORES", "ZRANGE board"), ("BYSCORE", "ZRANGEBYSCORE board"), ("REV BYSCORE", "ZREVRANGEBYSCORE board")]
    {
        let mut traffic = Traffic::new();
        for number in 0..100 {
            traffic.send(&format!("ZRANGE board {} {} {options}", number * 8, number * 8 + 7), "[]");
        }
        let group = traffic.only();
        assert_eq!((group.total.kind, steps(&group)), (Kind::Loop, vec![expected.to_owned()]));
    }
}

/// The length of the list, which each push replies, is the number of the job by chance.
#[test]
fn pushes_of_numbered_jobs_are_a_loop() {
    let mut traffic = Traffic::new();
    for number in 0..100_u64 {
        let job = format!("{{\"image\":\"/img/{number}.jpg\",\"id\":{}}}", number * 7_919_117 % 1_000_003);
        traffic.send(&format!("LPUSH queue:thumbnails {job}"), &format!(":{}", number + 1));
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, trips(&group)), (Kind::Loop, (100, 1)));
}

/// Sends the reads of one thread over two connections, or those of several threads.
fn spread_over_two(threads: bool) -> u64 {
    const NETWORK_NS: u64 = 1_000_000;
    let mut traffic = Traffic::new();
    let mut other = Connection::opened(2, Client { name: "importer".to_owned(), ..Client::default() }, 0);
    traffic.connection.set_round_trip(NETWORK_NS);
    other.set_round_trip(NETWORK_NS);
    for number in 0..400_u64 {
        let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        traffic.gap_ns = if threads { random % 16 * 300_000 } else { NETWORK_NS + 100_000 };
        if random.is_multiple_of(3) {
            std::mem::swap(&mut traffic.connection, &mut other);
        }
        traffic.send(&format!("GET user:{}", number * 7919 % 1009), &format!("name {random}"));
    }
    traffic.advisor.closed(&mut other, traffic.now_ns);
    traffic.groups().iter().map(|group| group.total.sums.made).sum()
}

/// rueidis sends the commands of one thread over several connections, in any order.
#[test]
fn a_loop_over_several_connections_is_found() {
    assert!(spread_over_two(false) > 300);
    assert_eq!(spread_over_two(true), 0);
}
