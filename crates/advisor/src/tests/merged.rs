//! Loops over keys with few different words in one place.

use super::traffic::{Traffic, steps, trips};
use crate::findings::{Confidence, Kind};

/// A sequence of numbers below `below` in random order.
fn random(below: u64) -> impl FnMut() -> u64 {
    let mut state = 7_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

const DEPOTS: [&str; 4] = ["HAM", "MUC", "CGN", "LEJ"];

#[test]
fn few_words_in_random_order_make_one_loop() {
    for words in 2..=DEPOTS.len() {
        let (mut traffic, mut next) = (Traffic::new(), random(words as u64));
        for number in 0..200 {
            traffic.send(
                &format!("PFADD visitors:{}:2026-11-25 v{}", DEPOTS[next() as usize], number * 7919 % 1000),
                ":1",
            );
        }
        let groups = traffic.groups();
        let group = groups.iter().find(|group| steps(group) == ["PFADD visitors:<word>:<date>"]).unwrap();
        assert!(trips(group).0 >= 150, "{words}: {group:?}");
        assert_eq!(group.total.sums.confidence(), Confidence::High, "the replies are counts");
        assert!(!group.total.samples.is_empty());
    }
}

/// On a busy machine a client is often held up, and trips between two pauses are too few to show a loop.
#[test]
fn a_loop_over_few_words_is_found_over_pauses() {
    for (pause_after, is_loop) in [(7, true), (12, true), (2, false)] {
        let (mut traffic, mut next) = (Traffic::logged_in(), random(4));
        for number in 0..200 {
            if number % pause_after == 0 {
                traffic.pause(6);
            }
            traffic.send(&format!("PFADD visitors:{} v{}", DEPOTS[next() as usize], number * 7919 % 1000), ":1");
        }
        let groups = traffic.groups();
        let made = groups.iter().filter(|group| steps(group) == ["PFADD visitors:<word>"]).map(|group| trips(group).0);
        assert_eq!(made.sum::<u64>() > 160, is_loop, "{pause_after}: {groups:#?}");
    }
}

#[test]
fn few_words_in_one_step_make_one_interleaved_loop() {
    let (mut traffic, mut next) = (Traffic::new(), random(4));
    for number in 0..100 {
        traffic.send(&format!("HSET parcel:{number} state in"), ":1");
        traffic.send(&format!("SADD depot:{}:stock p{number}", DEPOTS[next() as usize]), ":1");
        traffic.send(&format!("INCRBY intake:grams {}", number * 7919 % 1000), ":5");
    }
    let groups = traffic.groups();
    let found: Vec<_> = groups.iter().filter(|group| group.total.kind == Kind::InterleavedLoop).collect();
    let [group] = found[..] else { panic!("{groups:?}") };
    let mut names = steps(group);
    names.sort();
    assert_eq!(names, ["HSET parcel:<n>", "INCRBY intake:grams", "SADD depot:<word>:stock"]);
    assert!(trips(group).0 >= 280, "{group:?}");
}

#[test]
fn tokens_of_different_forms_make_one_loop() {
    let (mut traffic, mut next) = (Traffic::new(), random(1 << 32));
    for _ in 0..200 {
        // Some of these are numbers, some are words with a number, and most are hashes.
        let id = format!("{:08x}", next());
        let id = if next() % 4 == 0 { format!("x{}", next()) } else { id };
        traffic.send(&format!("HGET album:{id} title"), &format!("the title of {id}"));
    }
    let groups = traffic.groups();
    let made: u64 = groups.iter().map(|group| trips(group).0).sum();
    assert!(made >= 170, "{groups:?}");
    assert!(groups.iter().any(|group| steps(group) == ["HGET album:<id>"]), "{groups:?}");
}

#[test]
fn loops_one_after_the_other_stay_separate() {
    let mut traffic = Traffic::new();
    for word in ["name", "mail"] {
        for number in 0..100 {
            traffic.send(&format!("SET user:{number}:{word} value{number}"), "OK");
        }
    }
    let mut found: Vec<_> = traffic.groups().iter().map(|group| (steps(group), trips(group))).collect();
    found.sort();
    let expected = ["SET user:<n>:mail", "SET user:<n>:name"].map(|step| (vec![step.to_owned()], (100, 1)));
    assert_eq!(found, expected);
}

#[test]
fn a_loop_over_two_words_in_turn_keeps_their_names() {
    let mut traffic = Traffic::new();
    for number in 0..100 {
        traffic.send(&format!("GET user:{}:name", number * 7919 % 1000), "x");
        traffic.send(&format!("GET user:{}:mail", number * 7919 % 1000), "x");
    }
    assert_eq!(steps(&traffic.only()), ["GET user:<n>:name", "GET user:<n>:mail"]);
}

/// The first word of a key names its kind. A client that reads different kinds of keys follows references.
#[test]
fn kinds_of_keys_do_not_merge() {
    let (mut traffic, mut next) = (Traffic::new(), random(4));
    for number in 0..400 {
        let kind = ["user", "order", "cart", "shop"][next() as usize];
        traffic.send(&format!("GET {kind}:{}", number * 7919 % 1000), "x");
    }
    assert!(traffic.groups().iter().all(|group| trips(group).0 < 60));
}

/// Each reply names the next key.
#[test]
fn a_walk_over_few_words_is_clean() {
    let (mut traffic, mut next) = (Traffic::new(), random(4));
    let (mut word, mut number) = ("HAM", 5000);
    for _ in 0..300 {
        let (next_word, next_number) = (DEPOTS[next() as usize], 1000 + next() * 1777 + number * 7919 % 10_000);
        traffic.send(&format!("GET stop:{word}:{number}"), &format!("stop:{next_word}:{next_number}"));
        (word, number) = (next_word, next_number);
    }
    traffic.assert_clean();
}

#[test]
fn pipelines_over_many_words_are_one_row() {
    let (mut traffic, mut next) = (Traffic::logged_in(), random(4));
    for _ in 0..100 {
        traffic.batch(&format!("SADD depot:{}:stock x", DEPOTS[next() as usize]), 3);
    }
    let group = traffic.of_kind(Kind::SmallPipelines);
    assert_eq!((steps(&group), trips(&group).0), (vec!["SADD depot:<word>:stock".to_owned()], 100));
}

/// The record of each state names the next one. The client pauses, so that the parts are short.
#[test]
fn an_automaton_of_few_states_is_clean() {
    for pause_after in [20, 40, 1000] {
        let (mut traffic, mut next) = (Traffic::logged_in(), random(4));
        let states = ["start", "billing", "fault", "agent"];
        let mut state = "start:0".to_owned();
        for number in 0..400_u64 {
            if number % pause_after == 0 {
                traffic.pause(30);
            }
            let reply = format!("{}:{}", states[next() as usize], next() * 10 + number * 7919 % 10);
            traffic.send(&format!("HGET menu:{state} {}", next()), &reply);
            state = reply;
        }
        traffic.assert_clean();
    }
}
