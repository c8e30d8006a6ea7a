//! Repeated reads, reads that are written back, polling.

use super::traffic::{TRIP_NS, Traffic, reply, steps, trips};
use crate::findings::{Confidence, Kind};

#[test]
fn a_value_that_is_read_again_and_again_is_found() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send("GET config:prices", "{...}");
        traffic.send(&format!("RPUSH bill:{number} line"), &format!(":{number}"));
    }
    let group = traffic.of_kind(Kind::RepeatedRead);
    assert_eq!((steps(&group), trips(&group)), (vec!["GET config:prices".to_owned()], (100, 1)));
    assert_eq!(group.total.sums.lost_ns, 99 * TRIP_NS);
    assert_eq!(group.total.sums.confidence(), Confidence::High);
}

#[test]
fn a_value_that_is_written_between_is_read_for_a_reason() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send("GET state", "idle");
        traffic.send(&format!("SET state step{number}"), "OK");
    }
    let groups = traffic.groups();
    assert!(groups.iter().all(|group| group.total.kind != Kind::RepeatedRead), "{groups:#?}");
}

#[test]
fn a_value_that_others_change_is_read_for_a_reason() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send("GET state", &format!("state {number}"));
        traffic.send(&format!("RPUSH log:{number} x"), ":1");
    }
    let groups = traffic.groups();
    assert!(groups.iter().all(|group| group.total.kind != Kind::RepeatedRead), "{groups:#?}");
}

#[test]
fn reads_in_different_units_of_work_are_not_repeated() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100_u64 {
        traffic.send("HGETALL config", "{...}");
        traffic.send(&format!("SET page:{number} x"), "OK");
        traffic.pause(10 + number * number % 97);
    }
    traffic.assert_clean();
}

/// The numbers of many keys are equal by chance: the client asks for the fields of each key.
#[test]
fn fields_of_many_keys_with_equal_numbers_are_a_loop() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        let command = format!("HMGET coach:{} seats class", 2000 + number * 7919 % 6007);
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        traffic.send_words(&words, 1, b"*2\r\n$2\r\n80\r\n$1\r\n2\r\n");
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, trips(&group)), (Kind::Loop, (100, 1)));
}

#[test]
fn one_field_of_many_keys_with_different_answers_is_a_loop() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send(&format!("HGET user:{number} name"), &format!("name {number}"));
    }
    assert_eq!(traffic.only().total.kind, Kind::Loop);
}

#[test]
fn a_counter_that_is_read_and_written_is_found() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send("GET visits", &format!("{number}"));
        traffic.send(&format!("SET visits {}", number + 1), "OK");
    }
    let group = traffic.only();
    assert_eq!(group.total.kind, Kind::ReadComputeWrite);
    assert_eq!(steps(&group), ["GET visits", "SET visits"]);
    assert_eq!((trips(&group), group.total.sums.lost_ns), ((200, 100), 100 * TRIP_NS));
}

#[test]
fn a_value_that_is_taken_and_deleted_is_found() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100 {
        traffic.pause(5);
        traffic.send(&format!("GET token:{number}"), "secret");
        traffic.send(&format!("DEL token:{number}"), ":1");
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, trips(&group)), (Kind::ReadComputeWrite, (200, 100)));
}

#[test]
fn a_write_of_something_else_is_no_pair() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100 {
        traffic.pause(5);
        traffic.send(&format!("GET cache:{number}"), "nil");
        traffic.send(&format!("SET cache:{number} computed"), "OK");
    }
    traffic.assert_clean();
}

/// The reply names the field that the client then changes, but the new value does not come from the reply.
#[test]
fn a_change_of_a_field_is_no_pair() {
    for change in ["HINCRBY account:$ seen 1", "HSET account:$ seen today", "HSET account:$ plan basic seen today"] {
        let mut traffic = Traffic::logged_in();
        for number in 0..100 {
            traffic.pause(5);
            let reply = b"*4\r\n$4\r\nplan\r\n$3\r\npro\r\n$4\r\nseen\r\n$1\r\n1\r\n";
            traffic.send_words(&[b"HGETALL", format!("account:{number}").as_bytes()], 1, reply);
            traffic.send(&change.replace('$', &number.to_string()), ":1");
        }
        traffic.assert_clean();
    }
}

#[test]
fn a_changed_value_of_a_field_is_a_pair() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100 {
        traffic.pause(5);
        traffic.send(&format!("HGET stock:{number} level"), &format!("{}", number + 500));
        traffic.send(&format!("HSET stock:{number} level {}", number + 501), ":0");
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, trips(&group)), (Kind::ReadComputeWrite, (200, 100)));
}

#[test]
fn a_queue_that_is_polled_is_found() {
    let mut traffic = Traffic::logged_in();
    for number in 0..200 {
        traffic.pause(100);
        traffic.send("LPOP jobs", if number % 20 == 0 { "job" } else { "nil" });
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, steps(&group)), (Kind::Polling, vec!["LPOP jobs".to_owned()]));
    assert!(group.total.sums.wasted() > 170, "{group:?}");
}

/// Streams that the client asks for new entries again and again. A client that waits with BLOCK, that takes entries all the time, or that
/// looks for its own unacknowledged entries does not poll.
#[test]
fn a_stream_that_is_polled_is_found() {
    let group = |options: &str, id: &str| format!("XREADGROUP GROUP g me {options}STREAMS jobs {id}");
    let polled = |command: &str, has_entries: bool| {
        let mut traffic = Traffic::logged_in();
        for number in 0..200 {
            traffic.pause(100);
            let entries = format!("*1\r\n*2\r\n$4\r\njobs\r\n*1\r\n$6\r\n{number:03}-00\r\n");
            let answer = if has_entries || number % 20 == 0 { entries.into_bytes() } else { reply("nil") };
            traffic.send_words(&command.split(' ').map(str::as_bytes).collect::<Vec<_>>(), 1, &answer);
        }
        let groups = traffic.groups();
        groups.iter().map(|group| (group.total.kind, steps(group).join(" "))).collect::<Vec<_>>()
    };
    let read = |options: &str| format!("XREAD {options}STREAMS jobs 5-0");
    for options in ["", "COUNT 100 ", "COUNT 1 "] {
        assert_eq!(polled(&read(options), false), [(Kind::Polling, "XREAD jobs".to_owned())], "{options}");
        let expected = [(Kind::Polling, "XREADGROUP jobs".to_owned())];
        assert_eq!(polled(&group(options, ">"), false), expected, "{options}");
    }
    for command in [read("BLOCK 5000 "), group("BLOCK 5000 ", ">"), group("COUNT 1 BLOCK 5 ", ">"), group("", "0")] {
        assert_eq!(polled(&command, false), [], "{command}");
    }
    for command in [read(""), group("", ">")] {
        assert_eq!(polled(&command, true), [], "{command}");
    }
}

/// Without replies, only the same id again shows that there was no new entry.
#[test]
fn a_stream_that_is_read_on_is_not_polled_as_far_as_ids_tell() {
    for (is_same, expected) in [(true, 1), (false, 0)] {
        let mut traffic = Traffic::logged_in();
        traffic.shows_replies = false;
        for number in 0..200 {
            traffic.pause(100);
            let id = if is_same { 5 } else { number };
            traffic.send(&format!("XREAD COUNT 100 STREAMS jobs {id}-0"), "nil");
        }
        assert_eq!(traffic.groups().len(), expected);
    }
}

#[test]
fn several_queues_that_are_polled_in_turn_are_found() {
    let mut traffic = Traffic::logged_in();
    for _ in 0..200 {
        traffic.pause(100);
        for queue in ["high", "default", "low"] {
            traffic.send(&format!("RPOP queue:{queue}"), "nil");
        }
    }
    let groups = traffic.groups();
    assert_eq!(groups.len(), 3, "{groups:#?}");
    assert!(groups.iter().all(|group| group.total.kind == Kind::Polling));
}

#[test]
fn a_queue_that_is_drained_is_a_loop() {
    let mut traffic = Traffic::new();
    for number in 0..200 {
        traffic.send("LPOP jobs", &format!("job {number}"));
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, group.total.steps[0].one_key), (Kind::Loop, true));
}

#[test]
fn a_blocking_read_is_clean() {
    let mut traffic = Traffic::new();
    for number in 0..200 {
        traffic.send("BLPOP jobs 5", if number % 3 == 0 { "job" } else { "nil" });
    }
    traffic.assert_clean();
}

/// WATCH and GET of a counter, then a transaction that sets the next number.
#[test]
fn a_counter_in_a_transaction_is_found() {
    for (is_watched, made) in [(true, 300), (false, 200)] {
        let mut traffic = Traffic::logged_in();
        for number in 5000..5100 {
            if is_watched {
                traffic.send("WATCH stock", "OK");
            }
            traffic.send("GET stock", &number.to_string());
            traffic.batch(&format!("SET stock {}", number + 1), 3);
        }
        let group = traffic.only();
        assert_eq!((group.total.kind, trips(&group)), (Kind::ReadComputeWrite, (made, 100)));
        assert_eq!(steps(&group), ["GET stock", "SET stock"]);
        assert_eq!(group.total.sums.confidence(), Confidence::Medium);
    }
}

/// The amount depends on the value in another way, or the transaction writes another key.
#[test]
fn other_transactions_behind_a_read_are_clean() {
    for write in ["SET stock {less}", "SET other {next}", "SET stock done"] {
        let mut traffic = Traffic::logged_in();
        for number in 5000..5100 {
            traffic.send("WATCH stock", "OK");
            traffic.send("GET stock", &number.to_string());
            let next = (number + 1).to_string();
            traffic.batch(&write.replace("{less}", &(number - 7).to_string()).replace("{next}", &next), 3);
        }
        traffic.assert_clean();
    }
}

/// A leader asks for its own lease and lengthens it: it does not wait for another client.
#[test]
fn a_key_that_the_client_writes_itself_is_not_polled() {
    let mut traffic = Traffic::logged_in();
    for _ in 0..100 {
        traffic.pause(50);
        traffic.send("GET leader", "node-a1b2");
        traffic.send("PEXPIRE leader 3000", ":1");
    }
    assert!(traffic.groups().iter().all(|group| group.total.kind != Kind::Polling));
}

/// Without a measurement of the network, the pauses of polling look like round trips.
#[test]
fn a_question_that_is_asked_again_is_no_loop() {
    let polled = |command: &str, answer: &str| {
        let mut traffic = Traffic::new();
        traffic.gap_ns = 20_000_000;
        for _ in 0..80 {
            traffic.send(command, answer);
        }
        traffic.only().total.kind
    };
    assert_eq!(polled("GET render:81:state", "running"), Kind::Polling);
    assert_eq!(polled("HGET render:81 state", "running"), Kind::Polling);
    assert_eq!(polled("SET lock:invoice t81 PX 5000 NX", "nil"), Kind::Polling);
}

/// Workers that share an ordered queue: each takes the first member, and the reply to ZREM tells who has it.
#[test]
fn a_member_that_is_claimed_by_its_removal_is_clean() {
    let mut traffic = Traffic::logged_in();
    for number in 0..100 {
        let job = format!("job-{:x}", number * 104_729);
        let due = format!("*1\r\n${}\r\n{job}\r\n", job.len());
        let range: [&[u8]; 7] = [b"ZRANGEBYSCORE", b"delayed", b"0", b"1000", b"LIMIT", b"0", b"1"];
        traffic.send_words(&range, 1, due.as_bytes());
        traffic.send(&format!("ZREM delayed {job}"), ":1");
        traffic.pause(6);
        traffic.send(&format!("RPUSH done {job}"), ":9");
    }
    traffic.assert_clean();
}

/// Django reads a session again before it saves it.
#[test]
fn reads_that_django_repeats_are_no_finding() {
    for prefix in [":1:django.contrib.sessions.cache", ":1:article-"] {
        let mut traffic = Traffic::logged_in();
        for number in 0..40 {
            traffic.pause(20);
            let key = format!("{prefix}abcdefghij0123456789a{number}z{number}");
            traffic.send(&format!("GET {key}"), "a session");
            traffic.send(&format!("GET {key}"), "a session");
            traffic.send(&format!("SET {key} other EX 3600"), "OK");
        }
        let is_django = prefix.contains("django");
        assert_eq!(traffic.groups().is_empty(), is_django, "{prefix}");
    }
}

/// A web framework reads the session of each request after a pause, and writes it with an expiry. A batch job that does the same loses writes.
#[test]
fn sessions_are_no_pairs() {
    for thinks in [true, false] {
        let mut traffic = Traffic::logged_in();
        for number in 0..60_u64 {
            if thinks {
                traffic.pause(8);
            }
            let key = format!("session:{}", number * 7919 % 97);
            traffic.send(&format!("GET {key}"), &format!("{{\"user\":{number},\"seen\":{}}}", number * 31 % 1009));
            traffic.send(&format!("SET {key} {{\"user\":{number},\"seen\":{}}} EX 600", number * 37 % 1009), "OK");
        }
        let pairs = traffic.groups().iter().filter(|group| group.total.kind == Kind::ReadComputeWrite).count();
        assert_eq!(pairs, usize::from(!thinks));
    }
}
