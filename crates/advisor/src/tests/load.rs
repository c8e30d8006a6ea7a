//! Traffic of a machine that is busy with other work: threads wait for a core at any moment.

use super::movies;
use super::traffic::{Noise, Traffic, steps, trips};
use crate::Connection;
use crate::client::Client;
use crate::findings::{Confidence, Kind};

/// Traffic of a client whose round trip the kernel has measured, on a busy machine.
fn busy(one_of: u64, longest_ms: u64) -> Traffic {
    let mut traffic = Traffic::logged_in();
    traffic.connection.set_round_trip(40_000);
    traffic.noise = Some(Noise::new(one_of, longest_ms));
    traffic
}

#[test]
fn a_loop_goes_on_after_delays() {
    for (one_of, longest_ms) in [(50, 5), (20, 5), (12, 20), (8, 4)] {
        let mut traffic = busy(one_of, longest_ms);
        for number in 0..1000 {
            traffic.send(&format!("SET key:{number} v"), "OK");
        }
        let group = traffic.only();
        let (made, needed) = trips(&group);
        assert!(made >= 980, "{made} with a delay of {longest_ms} ms in {one_of}");
        assert!(needed < 1000 / one_of * 2 + 5, "{needed}");
        assert_eq!(group.total.kind, Kind::Loop);
    }
}

#[test]
fn an_interleaved_loop_goes_on_after_delays() {
    let mut traffic = busy(30, 20);
    for number in 0..500 {
        traffic.send(&format!("HSET item:{number} price 5"), ":1");
        traffic.send(&format!("ZADD items 5 item{number}"), ":1");
    }
    let group = traffic.of_kind(Kind::InterleavedLoop);
    assert!(trips(&group).0 > 950, "{group:#?}");
}

/// A client that writes the commands of a pipeline one by one, and is held up while it does so.
#[test]
fn a_pipeline_that_comes_in_parts_is_no_loop() {
    for (one_of, longest_ms) in [(4, 1), (10, 5), (30, 20), (1000, 5)] {
        let mut traffic = busy(one_of, longest_ms);
        for movie in 0..300 {
            traffic.gap_ns = 60_000;
            traffic.send(&format!("ZSCORE index:th movie{movie}"), "nil");
            for (place, prefix) in ["th", "the", "mo", "mov", "movi", "movie"].iter().enumerate() {
                // The server answers faster or slower than the client writes the next command.
                let random = traffic.noise.as_mut().unwrap().delay_ns();
                (traffic.overlaps, traffic.gap_ns) = if random.is_multiple_of(3) { (true, 0) } else { (false, 25_000) };
                if random.is_multiple_of(7) && place < 4 {
                    traffic.batch(&format!("ZADD index:{prefix} 0 movie{movie}"), 2);
                } else {
                    traffic.send(&format!("ZADD index:{prefix} 0 movie{movie}"), ":1");
                }
                traffic.overlaps = false;
            }
            traffic.send(&format!("HSET data:{movie} movie{movie} text"), ":1");
        }
        traffic.assert_clean();
    }
}

#[test]
fn a_web_worker_of_two_milliseconds_is_clean() {
    let mut traffic = busy(20, 5);
    for number in 0..1000_u64 {
        traffic.gap_ns = 40_000 + 2_000_000 + number * 7919 % 100_003;
        traffic.send(&format!("GET user:{}", number * 7919 % 1009), &format!("name {number}"));
    }
    traffic.assert_clean();
}

/// Some names in hexadecimal look like numbers, so short parts of the chain look like rounds of several steps.
#[test]
fn a_chain_of_keys_of_two_patterns_is_clean() {
    for (first, step) in [(40_000_u64, 7919_u64), (70_001, 104_729), (5_000, 17), (1 << 40, 999_331)] {
        let name = |n: u64| format!("{:x}", n * step + first);
        let mut traffic = Traffic::logged_in();
        for n in (1..120).rev() {
            let document = format!("{{\"text\":\"text {n}\",\"parent\":\"{}\"}}", name(n - 1));
            traffic.send(&format!("GET comment:{}", name(n)), &document);
        }
        let groups = traffic.groups();
        assert!(groups.is_empty(), "{first} {step}: {groups:#?}");
    }
}

#[test]
fn a_chain_of_keys_is_clean() {
    let mut traffic = busy(20, 5);
    let mut node = 7_u64;
    for _ in 0..1000 {
        let next = node * 7919 % 1_000_003;
        traffic.send(&format!("GET node:{node}"), &format!("{{\"next\":{next},\"name\":\"node {node}\"}}"));
        node = next;
    }
    traffic.assert_clean();
}

#[test]
fn small_transactions_in_a_row_are_found() {
    let mut traffic = busy(50, 3);
    for number in 0..500 {
        traffic.batch(&format!("HSET row:{number} value 5"), 4);
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, steps(&group)), (Kind::SmallPipelines, vec!["HSET row:<n>".to_owned()]));
    assert!(trips(&group).0 > 400, "{group:#?}");
    assert_eq!(group.total.sums.confidence(), Confidence::Medium);
}

/// The article's number, which is a matter of order.
#[test]
fn the_movies_are_counted_within_a_five_hundredth() {
    for (one_of, longest_ms) in [(100, 5), (12, 20), (2, 8), (1, 30), (50, 400)] {
        let mut traffic = busy(one_of, longest_ms);
        movies::run(&mut traffic, |_| "nil".to_owned(), 0);
        let wasted = traffic.of_kind(Kind::RepeatedRead).total.sums.wasted();
        assert!(wasted.abs_diff(98_894) * 500 <= 98_894, "{wasted} with a delay of {longest_ms} ms in {one_of}");
    }
}

/// A client that thinks before each command loses no time by that, but its reads are repeated nevertheless.
#[test]
fn the_movies_are_counted_if_the_client_thinks() {
    let mut traffic = Traffic::logged_in();
    traffic.connection.set_round_trip(40_000);
    traffic.gap_ns = 4_060_000;
    movies::run(&mut traffic, |_| "nil".to_owned(), 0);
    let sums = traffic.of_kind(Kind::RepeatedRead).total.sums;
    assert_eq!((sums.wasted(), sums.lost_ns), (98_894, 98_894 * 40_000));
}

#[test]
fn a_value_that_is_read_again_and_again_is_counted_by_order() {
    for (one_of, longest_ms) in [(100, 5), (50, 20), (12, 8)] {
        let mut traffic = busy(one_of, longest_ms);
        for number in 0..1000 {
            traffic.send("GET config:prices", "{...}");
            traffic.send(&format!("RPUSH bill:{number} line"), &format!(":{number}"));
        }
        let wasted = traffic.of_kind(Kind::RepeatedRead).total.sums.wasted();
        assert!(wasted >= 997, "{wasted} with a delay of {longest_ms} ms in {one_of}");
    }
}

/// Without the pauses it would be certain.
#[test]
fn a_counter_of_a_client_that_thinks_is_found() {
    let mut traffic = busy(50, 5);
    traffic.gap_ns = 4_060_000;
    for number in 1000..1100 {
        traffic.send("GET visits", &format!("{number}"));
        traffic.send(&format!("SET visits {}", number + 1), "OK");
    }
    let group = traffic.only();
    assert_eq!((group.total.kind, trips(&group)), (Kind::ReadComputeWrite, (200, 100)));
    assert_eq!(group.total.sums.lost_ns, 100 * 40_000);
    assert_eq!(group.total.sums.confidence(), Confidence::Medium);
}

/// A counter is a matter of order: no pause hides its steps, however long a busy machine holds the client up.
#[test]
fn the_steps_of_a_counter_are_counted_over_long_pauses() {
    for longest_ms in [20, 300, 20_000] {
        let mut traffic = busy(2, longest_ms);
        for number in 1000..1100 {
            traffic.send("GET visits", &format!("{number}"));
            traffic.send(&format!("SET visits {}", number + 1), "OK");
        }
        let group = traffic.only();
        assert_eq!((group.total.kind, trips(&group)), (Kind::ReadComputeWrite, (200, 100)), "{longest_ms}");
        assert_eq!(group.total.sums.confidence(), Confidence::Medium);
    }
}

/// A number that is written again after a pause is no counter: the write lengthens its life.
#[test]
fn a_number_that_is_written_again_after_a_pause_is_clean() {
    let mut traffic = busy(50, 5);
    for number in 0..200 {
        traffic.gap_ns = 150_000_000;
        traffic.send(&format!("GET lease:{number}"), &format!("47{number}"));
        traffic.gap_ns = if number % 2 == 0 { 20_000_000 } else { 300_000_000 };
        traffic.send(&format!("SET lease:{number} 47{number} EX 60"), "OK");
    }
    traffic.assert_clean();
}

/// The work between the commands needs the value, and a command that reads and writes at once would lose it.
#[test]
fn a_value_that_the_client_works_with_is_clean() {
    for write in ["DEL job:{}", "SET job:{} payload{}", "SET job:{} done"] {
        let mut traffic = busy(50, 5);
        traffic.gap_ns = 3_060_000;
        for number in 0..200 {
            traffic.send(&format!("GET job:{number}"), &format!("payload{number}"));
            traffic.send(&write.replace("{}", &number.to_string()), "OK");
        }
        traffic.assert_clean();
    }
}

/// A client writes each transaction of four commands one by one. The server answers the first rows faster than the client writes, so the
/// gaps look like waits. Later a command arrives before the reply to the previous one has left.
fn transactions_written_singly(traffic: &mut Traffic, rows: u32, overlaps_from: u32) {
    for row in 0..rows {
        let commands =
            ["MULTI".to_owned(), format!("INCRBY account:{row} 5"), "SADD accounts 5".to_owned(), "EXEC".to_owned()];
        for (place, command) in commands.iter().enumerate() {
            traffic.gap_ns = if place == 0 { 90_000 } else { 30_000 };
            traffic.overlaps = row >= overlaps_from && place == 2;
            traffic.send(command, ["OK", "QUEUED", "QUEUED", "[]"][place]);
        }
    }
    traffic.overlaps = false;
}

/// The first rows alone are no proof.
#[test]
fn a_client_that_was_seen_to_write_singly_does_not_surely_wait() {
    let mut traffic = busy(1_000_000, 1);
    transactions_written_singly(&mut traffic, 40, 30);
    for group in traffic.groups() {
        assert_eq!(group.total.sums.confidence(), Confidence::Low, "{group:#?}");
    }
}

/// A client that sends the commands behind MULTI at once, if only sometimes and to another key, does not wait for each.
#[test]
fn transactions_that_come_in_different_parts_are_not_in_slices() {
    for begins_with_multi in [true, false] {
        let mut traffic = Traffic::new();
        for row in 0..70 {
            let room = ["lobby", "dev", "ops", "fun"][row % 4];
            let add = format!("ZADD chat:{room} 1 m");
            traffic.send(&format!("INCR chat:{room}:seq"), ":1");
            if room != "fun" {
                traffic.send("MULTI", "OK");
                traffic.send(&add, "QUEUED");
                traffic.send(&format!("PUBLISH chat:{room} 1"), "QUEUED");
                traffic.send("EXEC", "[]");
            } else if begins_with_multi {
                traffic.batch("MULTI", 4);
            } else {
                traffic.send("MULTI", "OK");
                traffic.batch(&add, 3);
            }
            traffic.pause(5);
        }
        for group in traffic.groups() {
            let sums = &group.total.sums;
            assert!(sums.confidence() == Confidence::Low && sums.made <= 2 * 4, "{group:#?}");
        }
    }
}

/// The doubt concerns the whole connection, and later findings, too.
#[test]
fn loops_of_a_client_that_writes_singly_are_never_certain() {
    for is_first in [true, false] {
        let mut traffic = busy(1_000_000, 1);
        if is_first {
            transactions_written_singly(&mut traffic, 2, 1);
        }
        traffic.gap_ns = 60_000;
        for number in 0..100 {
            traffic.send(&format!("SET key:{number} v"), "OK");
        }
        traffic.send("TIME", "[]");
        if !is_first {
            transactions_written_singly(&mut traffic, 2, 1);
        }
        assert_eq!(traffic.of_kind(Kind::Loop).total.sums.confidence(), Confidence::Medium, "{is_first}");
    }
}

/// A thread that waits for a core answers late. Commands that a client sent at once then look as if it had waited for each reply.
#[test]
fn gaps_of_a_busy_machine_are_no_proof() {
    for (busy_ms, expected) in [(None, Confidence::High), (Some(0), Confidence::Medium), (Some(5000), Confidence::High)]
    {
        let mut traffic = Traffic::logged_in();
        if let Some(ago_ms) = busy_ms {
            traffic.advisor.note_busy(traffic.now_ns);
            traffic.pause(ago_ms);
        }
        for number in 0..100 {
            traffic.send(&format!("SET key:{number} v"), "OK");
        }
        assert_eq!(traffic.of_kind(Kind::Loop).total.sums.confidence(), expected, "{busy_ms:?}");
    }
    let mut traffic = Traffic::logged_in();
    traffic.advisor.note_busy(traffic.now_ns);
    transactions_written_singly(&mut traffic, 40, 100);
    for group in traffic.groups() {
        assert_eq!(group.total.sums.confidence(), Confidence::Low, "{group:#?}");
    }
}

/// A busy machine delays each fifth step of a chain, and the server looks at the silent connection meanwhile: so few steps are no evidence.
#[test]
fn a_chain_whose_client_is_held_up_is_clean() {
    let name = |number: u64| format!("{:x}", number * 7919 + 40_000);
    let mut traffic = Traffic::logged_in();
    for number in 0..200 {
        let document = format!("{{\"text\":\"text {number}\",\"parent\":\"{}\"}}", name(number + 1));
        traffic.send(&format!("GET comment:{}", name(number)), &document);
        if number % 5 == 0 {
            traffic.pause(8);
            traffic.advisor.settle(&mut traffic.connection, traffic.now_ns);
        }
    }
    traffic.assert_clean();
}

/// A client that waits for a core before every third command. More than a quarter of the gaps of the loop are pauses, at random places.
#[test]
fn a_loop_goes_on_on_a_machine_with_too_few_cores() {
    for steps in [1, 2, 3] {
        let mut traffic = busy(3, 30);
        for number in 0..400 {
            for step in 0..steps {
                traffic.advisor.note_busy(traffic.now_ns);
                let command =
                    [format!("SET a:{number} v"), format!("HSET b:{number} f v"), format!("SADD c:{number} m")];
                traffic.send(&command[step], "OK");
            }
        }
        let group = traffic.only();
        assert!(trips(&group).0 >= 300 * steps as u64 && trips(&group).1 <= 4, "{group:#?}");
        assert_eq!(group.total.sums.confidence(), Confidence::Medium);
    }
}

/// Each request has a few commands, and waits for a core now and then. The client itself pauses between its requests.
#[test]
fn requests_on_a_machine_with_too_few_cores_are_clean() {
    for (steps, one_of) in [(1, 5), (2, 4), (2, 10), (3, 3), (3, 4), (3, 6), (4, 5)] {
        let mut traffic = busy(one_of, 20);
        for request in 0..400_u64 {
            traffic.pause(10);
            for step in 0..steps {
                traffic.advisor.note_busy(traffic.now_ns);
                let user = request * 7919 % 1009;
                let command = [
                    format!("GET session:{user}"),
                    format!("INCR quota:{user}"),
                    format!("HGETALL user:{user}"),
                    format!("TTL user:{user}"),
                ];
                traffic.send(&command[step], "some text");
            }
        }
        traffic.assert_clean();
    }
}

/// Threads with connections of a pool, on a busy machine: each connection gets requests of all threads, and its pauses come at random.
#[test]
fn a_pool_of_threads_on_a_busy_machine_is_clean() {
    for (others, has_loop) in [(0, true), (2, false)] {
        let mut traffic = busy(6, 30);
        let client = Client { name: "importer".to_owned(), ..Client::default() };
        let mut idle: Vec<_> = (0..others).map(|id| Connection::opened(id + 2, client.clone(), 0)).collect();
        idle.iter_mut().for_each(|connection| connection.set_round_trip(40_000));
        let mut random = 1_u64;
        for number in 0..600 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            traffic.advisor.note_busy(traffic.now_ns);
            traffic.send(&format!("HGETALL driver:{}", 2000 + number * 7919 % 60_007), "[]");
            if let Some(other) = idle.get_mut((random >> 33) as usize % 3) {
                std::mem::swap(other, &mut traffic.connection);
            }
        }
        idle.iter_mut().for_each(|connection| traffic.advisor.closed(connection, traffic.now_ns));
        assert_eq!(traffic.groups().iter().any(|group| group.total.kind == Kind::Loop), has_loop, "{others}");
    }
}
