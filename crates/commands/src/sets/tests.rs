//! Expected replies come from a Redis server. Members of small sets come in insertion order, as since Redis 7.2.

use std::collections::BTreeSet;

use crate::testing::{Bench, check, check_resp3};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "-ERR syntax error";
const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";
const NOT_POSITIVE: &str = "-ERR value is out of range, must be positive";

#[test]
fn adding_and_removing() {
    check(&[
        ("sadd s b a b c", ":3"),
        ("sadd s a", ":0"),
        ("sadd s d a", ":1"),
        ("smembers s", "*4|$1|b|$1|a|$1|c|$1|d"),
        ("scard s", ":4"),
        ("sismember s a", ":1"),
        ("sismember s x", ":0"),
        ("smismember s a x b b", "*4|:1|:0|:1|:1"),
        ("sadd i 3 1 -2 1", ":3"),
        ("smembers i", "*3|$2|-2|$1|1|$1|3"),
        ("sismember i 1", ":1"),
        ("sismember i 01", ":0"),
        ("smismember i 3 x", "*2|:1|:0"),
        ("sadd i 01", ":1"),
        ("scard i", ":4"),
        ("srem i 01 1 7", ":2"),
        ("srem i 5", ":0"),
        ("srem i 3 -2", ":2"),
        ("scard i", ":0"),
        ("srem nokey a", ":0"),
        ("scard nokey", ":0"),
        ("sismember nokey a", ":0"),
        ("smismember nokey a b", "*2|:0|:0"),
        ("smembers nokey", "*0"),
        ("set str x", "+OK"),
        ("sadd str a", WRONG_TYPE),
        ("srem str a", WRONG_TYPE),
        ("scard str", WRONG_TYPE),
        ("sismember str a", WRONG_TYPE),
        ("smismember str a b", WRONG_TYPE),
        ("smembers str", WRONG_TYPE),
        ("sadd s", "-ERR wrong number of arguments for 'sadd' command"),
        ("srem s", "-ERR wrong number of arguments for 'srem' command"),
        ("smove s i", "-ERR wrong number of arguments for 'smove' command"),
    ]);
}

#[test]
fn moving() {
    check(&[
        ("sadd a 1 2 x", ":3"),
        ("sadd b 2", ":1"),
        ("set str x", "+OK"),
        ("smove nokey b 1", ":0"),
        ("smove nokey str 1", ":0"),
        ("smove str nokey 1", WRONG_TYPE),
        ("smove a str 1", WRONG_TYPE),
        ("smove a str nomember", WRONG_TYPE),
        ("smove a a 1", ":1"),
        ("smove a a nomember", ":0"),
        ("smove a b nomember", ":0"),
        ("smove a b 1", ":1"),
        ("smove a b 2", ":1"),
        ("smove a c x", ":1"),
        ("scard a", ":0"),
        ("smembers b", "*2|$1|1|$1|2"),
        ("smembers c", "*1|$1|x"),
        ("scard nokey", ":0"),
    ]);
}

#[test]
fn intersections_unions_and_differences() {
    check(&[
        ("sadd a 1 2 3 4", ":4"),
        ("sadd b 2 3 4 x", ":4"),
        ("sadd c 3 4 5", ":3"),
        ("set str x", "+OK"),
        ("sinter a", "*4|$1|1|$1|2|$1|3|$1|4"),
        ("sinter a b", "*3|$1|2|$1|3|$1|4"),
        ("sinter a b c", "*2|$1|3|$1|4"),
        ("sinter c a a", "*2|$1|3|$1|4"),
        ("sinter a nokey", "*0"),
        ("sinter a str", WRONG_TYPE),
        ("sinter nokey str", WRONG_TYPE),
        ("sinter nokey", "*0"),
        ("sunion a", "*4|$1|1|$1|2|$1|3|$1|4"),
        ("sunion c a", "*5|$1|1|$1|2|$1|3|$1|4|$1|5"),
        ("sunion nokey", "*0"),
        ("sunion nokey a", "*4|$1|1|$1|2|$1|3|$1|4"),
        ("sunion a a", "*4|$1|1|$1|2|$1|3|$1|4"),
        ("sunion a str", WRONG_TYPE),
        ("sunion nokey str", WRONG_TYPE),
        ("sdiff a", "*4|$1|1|$1|2|$1|3|$1|4"),
        ("sdiff a c", "*2|$1|1|$1|2"),
        ("sdiff c a", "*1|$1|5"),
        ("sdiff a nokey b", "*1|$1|1"),
        ("sdiff a b a", "*0"),
        ("sdiff a a", "*0"),
        ("sdiff nokey a", "*0"),
        ("sdiff nokey str", WRONG_TYPE),
        ("sdiff a str", WRONG_TYPE),
        ("sinter", "-ERR wrong number of arguments for 'sinter' command"),
        ("sunionstore d", "-ERR wrong number of arguments for 'sunionstore' command"),
    ]);
}

#[test]
fn storing_results() {
    check(&[
        ("sadd a 1 2 3 4", ":4"),
        ("sadd b 2 3 4 x", ":4"),
        ("set str x", "+OK"),
        ("sinterstore d a b", ":3"),
        ("smembers d", "*3|$1|2|$1|3|$1|4"),
        ("sinterstore d a nokey", ":0"),
        ("scard d", ":0"),
        ("sinterstore d nokey a", ":0"),
        ("sinterstore str a b", ":3"),
        ("scard str", ":3"),
        ("sinterstore a a b", ":3"),
        ("smembers a", "*3|$1|2|$1|3|$1|4"),
        ("set str x", "+OK"),
        ("sinterstore d a str", WRONG_TYPE),
        ("sinterstore d nokey str", WRONG_TYPE),
        ("sunionstore d nokey nokey", ":0"),
        ("sunionstore d a", ":3"),
        ("smembers d", "*3|$1|2|$1|3|$1|4"),
        ("sunionstore str d a", ":3"),
        ("sunionstore d str b", ":4"),
        ("scard d", ":4"),
        ("sdiffstore d d b", ":0"),
        ("scard d", ":0"),
        ("sadd c 1 2 3", ":3"),
        ("sdiffstore d c a", ":1"),
        ("smembers d", "*1|$1|1"),
        ("sdiffstore c c c", ":0"),
        ("scard c", ":0"),
        ("sdiffstore c nokey a", ":0"),
        ("set str x", "+OK"),
        ("sdiffstore c a str", WRONG_TYPE),
        ("sunionstore c str", WRONG_TYPE),
    ]);
}

#[test]
fn sets_of_integers_are_combined_in_their_order() {
    check(&[
        ("sadd a 30 -7 1 2 40000", ":5"),
        ("sadd b 2 -7 5 40000 9", ":5"),
        ("sadd c 40000 2", ":2"),
        ("sinter a b", "*3|$2|-7|$1|2|$5|40000"),
        ("sinter a b c", "*2|$1|2|$5|40000"),
        ("sintercard 3 a b c limit 1", ":1"),
        ("sdiff a b", "*2|$1|1|$2|30"),
        ("sdiff a b c nokey", "*2|$1|1|$2|30"),
        ("sdiffcard 2 a c", ":3"),
        ("sinterstore d a b", ":3"),
        ("smembers d", "*3|$2|-7|$1|2|$5|40000"),
        ("object encoding d", "$6|intset"),
        ("sdiffstore d a c", ":3"),
        ("smembers d", "*3|$2|-7|$1|1|$2|30"),
        ("object encoding d", "$6|intset"),
        ("sadd c x", ":1"),
        ("sinter a c", "*2|$1|2|$5|40000"),
        ("sdiffstore d a b c", ":2"),
        ("smembers d", "*2|$1|1|$2|30"),
    ]);
}

#[test]
fn counting_common_members() {
    check(&[
        ("sadd a 1 2 3 4", ":4"),
        ("sadd b 2 3 4 x", ":4"),
        ("set str x", "+OK"),
        ("sintercard 2 a b", ":3"),
        ("sintercard 2 a b limit 2", ":2"),
        ("sintercard 2 a b LIMIT 9", ":3"),
        ("sintercard 2 a b limit 0", ":3"),
        ("sintercard 2 a b limit 1 limit 2", ":2"),
        ("sintercard 2 a nokey", ":0"),
        ("sintercard 2 nokey str", WRONG_TYPE),
        ("sintercard 1 a", ":4"),
        ("sintercard 0 a", "-ERR numkeys should be greater than 0"),
        ("sintercard -1 a", "-ERR numkeys should be greater than 0"),
        ("sintercard abc a", "-ERR numkeys should be greater than 0"),
        ("sintercard 3 a b", "-ERR Number of keys can't be greater than number of args"),
        ("sintercard 9223372036854775807 a b", "-ERR Number of keys can't be greater than number of args"),
        ("sintercard 9223372036854775808 a b", "-ERR numkeys should be greater than 0"),
        ("sintercard 1 a b", SYNTAX),
        ("sintercard 1 a limit", SYNTAX),
        ("sintercard 1 a limit -1", "-ERR LIMIT can't be negative"),
        ("sintercard 1 a limit abc", "-ERR LIMIT can't be negative"),
        ("sintercard 1 a limit 1 x", SYNTAX),
        ("sintercard 1 str limit -1", "-ERR LIMIT can't be negative"),
        ("sintercard 2 a", "-ERR Number of keys can't be greater than number of args"),
    ]);
}

/// Tests commands of Redis 8.10; their errors are SINTERCARD's.
#[test]
fn unions_and_differences_are_counted() {
    check(&[
        ("sadd a 1 2 3 x", ":4"),
        ("sadd b 3 4 y", ":3"),
        ("sadd c y z", ":2"),
        ("set str x", "+OK"),
        ("sunioncard 3 a b c", ":7"),
        ("sunioncard 2 a nokey", ":4"),
        ("sunioncard 1 nokey", ":0"),
        ("sunioncard 2 a a", ":4"),
        ("sunioncard 3 a b c limit 5", ":5"),
        ("sunioncard 3 a b c limit 2", ":2"),
        ("sunioncard 3 a b c limit 0", ":7"),
        ("sunioncard 3 a b c approx limit 6", ":6"),
        ("sunioncard 3 a b c limit 60 approx", ":7"),
        ("sunioncard 1 str", WRONG_TYPE),
        ("sunioncard 0 a", "-ERR numkeys should be greater than 0"),
        ("sunioncard 2 a", "-ERR Number of keys can't be greater than number of args"),
        ("sunioncard 1 a limit -1", "-ERR LIMIT can't be negative"),
        ("sunioncard 1 a limit", SYNTAX),
        ("sdiffcard 2 a b", ":3"),
        ("sdiffcard 3 a b c", ":3"),
        ("sdiffcard 2 a b limit 2", ":2"),
        ("sdiffcard 2 a b limit 0", ":3"),
        ("sdiffcard 2 a a", ":0"),
        ("sdiffcard 1 a", ":4"),
        ("sdiffcard 2 nokey a", ":0"),
        ("sdiffcard 2 a nokey", ":4"),
        ("sdiffcard 2 a str", WRONG_TYPE),
        ("sdiffcard 1 a approx", SYNTAX),
        ("sdiffcard 1 a b", SYNTAX),
    ]);
}

#[test]
fn random_members() {
    check(&[
        ("sadd o 1", ":1"),
        ("set str x", "+OK"),
        ("srandmember o", "$1|1"),
        ("srandmember nokey", "$-1"),
        ("srandmember str", WRONG_TYPE),
        ("srandmember o 1", "*1|$1|1"),
        ("srandmember o 0", "*0"),
        ("srandmember o 9223372036854775807", "*1|$1|1"),
        ("srandmember o -3", "*3|$1|1|$1|1|$1|1"),
        ("srandmember nokey 3", "*0"),
        ("srandmember nokey -3", "*0"),
        ("srandmember str 3", WRONG_TYPE),
        ("srandmember str abc", NOT_INTEGER),
        ("srandmember o abc", NOT_INTEGER),
        ("srandmember o 99999999999999999999", NOT_INTEGER),
        (
            "srandmember o -9223372036854775808",
            "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ),
        ("srandmember nokey 1 2", SYNTAX),
        ("srandmember nokey abc def", SYNTAX),
        ("spop nokey", "$-1"),
        ("spop str", WRONG_TYPE),
        ("spop nokey 1", "*0"),
        ("spop nokey 0", "*0"),
        ("spop str 1", WRONG_TYPE),
        ("spop o 0", "*0"),
        ("spop o -1", NOT_POSITIVE),
        ("spop o abc", NOT_POSITIVE),
        ("spop str abc", NOT_POSITIVE),
        ("spop nokey -1", NOT_POSITIVE),
        ("spop nokey 99999999999999999999", NOT_POSITIVE),
        ("spop nokey 1 2", SYNTAX),
        ("spop o", "$1|1"),
        ("spop o", "$-1"),
        ("sadd o x", ":1"),
        ("spop o 9223372036854775807", "*1|$1|x"),
        ("scard o", ":0"),
        ("sadd o y", ":1"),
        ("spop o 1", "*1|$1|y"),
        ("scard o", ":0"),
    ]);
}

#[test]
fn scanning() {
    check(&[
        ("sadd s 1 2 10", ":3"),
        ("sadd z a ''", ":2"),
        ("set str x", "+OK"),
        ("sscan s 0", "*2|$1|0|*3|$1|1|$1|2|$2|10"),
        ("sscan s 0 count 1", "*2|$1|0|*3|$1|1|$1|2|$2|10"),
        ("sscan s 0 match 1*", "*2|$1|0|*2|$1|1|$2|10"),
        ("sscan s 0 match '*'", "*2|$1|0|*3|$1|1|$1|2|$2|10"),
        ("sscan z 0 match '**'", "*2|$1|0|*1|$1|a"),
        ("sscan z 0 match '*'", "*2|$1|0|*2|$1|a|$0|"),
        ("sscan s 3", "*2|$1|0|*3|$1|1|$1|2|$2|10"),
        ("sscan s ' 1'", "*2|$1|0|*3|$1|1|$1|2|$2|10"),
        ("sscan s -1", "-ERR invalid cursor"),
        ("sscan s ''", "-ERR invalid cursor"),
        ("sscan nokey -1 bad", "-ERR invalid cursor"),
        ("sscan s 18446744073709551615", "*2|$1|0|*3|$1|1|$1|2|$2|10"),
        ("sscan s 18446744073709551616", "-ERR invalid cursor"),
        ("sscan s abc", "-ERR invalid cursor"),
        ("sscan nokey abc", "-ERR invalid cursor"),
        ("sscan nokey 0 bad", "*2|$1|0|*0"),
        ("sscan str 0 bad", WRONG_TYPE),
        ("sscan str abc", "-ERR invalid cursor"),
        ("sscan s 0 bad", SYNTAX),
        ("sscan s 0 match", SYNTAX),
        ("sscan s 0 count", SYNTAX),
        ("sscan s 0 count 0", SYNTAX),
        ("sscan s 0 count -5", SYNTAX),
        ("sscan s 0 count abc", NOT_INTEGER),
        ("sscan s 0 count 9223372036854775807", "*2|$1|0|*3|$1|1|$1|2|$2|10"),
        ("sscan s 0 type set", SYNTAX),
        ("sscan s 0 novalues", SYNTAX),
    ]);
}

#[test]
fn resp3() {
    check_resp3(&[
        ("sadd a 1 2", ":2"),
        ("sadd b 2", ":1"),
        ("smembers a", "~2|$1|1|$1|2"),
        ("smembers nokey", "~0"),
        ("sinter a b", "~1|$1|2"),
        ("sinter a nokey", "~0"),
        ("sunion a b", "~2|$1|1|$1|2"),
        ("sunion nokey", "~0"),
        ("sunion a", "~2|$1|1|$1|2"),
        ("sdiff a b", "~1|$1|1"),
        ("sdiff a a", "~0"),
        ("sismember a 1", ":1"),
        ("smismember a 1 9", "*2|:1|:0"),
        ("srandmember b", "$1|2"),
        ("srandmember nokey", "_"),
        ("srandmember b 2", "*1|$1|2"),
        ("srandmember b -2", "*2|$1|2|$1|2"),
        ("srandmember nokey 2", "*0"),
        ("spop nokey", "_"),
        ("spop nokey 2", "~0"),
        ("sscan a 0", "*2|$1|0|*2|$1|1|$1|2"),
        ("spop b 5", "~1|$1|2"),
        ("spop b", "_"),
        ("sintercard 1 a", ":2"),
    ]);
}

#[test]
fn each_change_has_its_events() {
    let mut bench = Bench::default();
    bench.check(&[
        ("sadd a 1 2 3 x", ":4"),
        ("sadd a 1", ":0"),
        ("sadd b 3", ":1"),
        ("srem a 9", ":0"),
        ("srem a 1 2", ":2"),
        ("smove a b 3", ":1"),
        ("smove a b x", ":1"),
        ("smove a b x", ":0"),
        ("sinterstore c b b", ":2"),
        ("sunionstore c b", ":2"),
        ("sdiffstore c b", ":2"),
        ("sdiffstore c b c", ":0"),
        ("sinterstore c a b", ":0"),
        ("spop b 0", "*0"),
        ("spop b 9", "*2|$1|3|$1|x"),
        ("sadd d 1", ":1"),
        ("spop d", "$1|1"),
        ("sadd e 1", ":1"),
        ("srem e 1", ":1"),
    ]);
    let events = [
        "sadd a",
        "sadd b",
        "srem a",
        "srem a",
        "srem a",
        "del a",
        "sadd b",
        "sinterstore c",
        "sunionstore c",
        "sdiffstore c",
        "del c",
        "spop b",
        "del b",
        "sadd d",
        "spop d",
        "del d",
        "sadd e",
        "srem e",
        "del e",
    ];
    assert_eq!(bench.events(), events);
}

/// Runs a command on members with the given prefix and numbers from a range.
fn with_members(bench: &mut Bench, command: &str, prefix: &str, numbers: std::ops::Range<usize>) -> String {
    let members = numbers.map(|number| format!("{prefix}{number}"));
    let words: Vec<String> = command.split(' ').map(String::from).chain(members).collect();
    bench.run_args(&words)
}

#[test]
fn results_are_stored_in_the_smallest_encoding() {
    let mut bench = Bench::default();
    with_members(&mut bench, "sadd table", "m", 0..200);
    with_members(&mut bench, "sadd table", "", 0..200);
    with_members(&mut bench, "sadd ints", "", 0..200);
    with_members(&mut bench, "sadd some", "m", 0..10);
    with_members(&mut bench, "sadd some", "", 0..2);
    with_members(&mut bench, "sadd two", "", 0..2);
    for (command, form) in [
        ("sinterstore d table ints", "intset"),
        ("sinterstore d table two some", "intset"),
        ("sinterstore d some ints", "intset"),
        ("sinterstore d table some", "listpack"),
        ("sinterstore d table table", "hashtable"),
        ("sunionstore d ints two", "intset"),
        ("sunionstore d two some", "listpack"),
        ("sunionstore d ints some", "hashtable"),
        ("sunionstore d table", "hashtable"),
        ("sdiffstore d ints two", "intset"),
        ("sdiffstore d some two", "listpack"),
        ("sdiffstore d table ints", "hashtable"),
        ("sdiffstore d table ints some nokey two", "hashtable"),
    ] {
        bench.run(command);
        let encoding = bench.run("object encoding d");
        assert!(encoding.ends_with(&format!("|{form}")), "{command}: {encoding}");
    }
}

/// Unions of integer sets are merged if the result is small enough, and otherwise built member by member.
#[test]
fn unions_of_integers_equal_unions_of_members() {
    let mut bench = Bench::default();
    bench.rules.set.intset_entries = 8;
    bench.check(&[
        ("sadd a 3 1 70000 -5", ":4"),
        ("sadd b 2 3 4 5000000000", ":4"),
        ("sadd c 9 10", ":2"),
        ("sunion a b", "*7|$2|-5|$1|1|$1|2|$1|3|$1|4|$5|70000|$10|5000000000"),
        ("sunionstore d a b a", ":7"),
        ("object encoding d", "$6|intset"),
        ("sismember d 5000000000", ":1"),
        ("sadd d 8", ":1"),
        ("scard d", ":8"),
        ("sunionstore e a b c", ":9"),
        ("object encoding e", "$9|hashtable"),
        ("sdiffcard 2 e d", ":2"),
        ("sadd f x", ":1"),
        ("sunionstore g c f", ":3"),
        ("object encoding g", "$8|listpack"),
    ]);
}

#[test]
fn an_intersection_of_small_sets_keeps_their_order() {
    check(&[
        ("sadd s x 3 1 2", ":4"),
        ("srem s x", ":1"),
        ("sadd s y", ":1"),
        ("smembers s", "*4|$1|3|$1|1|$1|2|$1|y"),
        ("sadd t 1 2 3 4 y", ":5"),
        ("sinterstore d s t", ":4"),
        ("smembers d", "*4|$1|3|$1|1|$1|2|$1|y"),
    ]);
}

#[test]
fn sets_convert_between_encodings() {
    let long = "x".repeat(65);
    for (command, form) in [
        ("sadd s 3 2 1".to_string(), "intset"),
        ("sadd s 1 01".to_string(), "listpack"),
        (format!("sadd s {}", &long[1..]), "listpack"),
        (format!("sadd s {long}"), "hashtable"),
        (format!("sadd s{}", " 1".repeat(512)), "intset"),
        // Redis counts all arguments, including duplicates.
        (format!("sadd s{}", " 1".repeat(513)), "hashtable"),
        (format!("sadd s{}", " a".repeat(128)), "listpack"),
        (format!("sadd s{}", " a".repeat(129)), "hashtable"),
    ] {
        let mut bench = Bench::default();
        bench.run(&command);
        let encoding = bench.run("object encoding s");
        assert!(encoding.ends_with(&format!("|{form}")), "{command}: {encoding}");
    }
}

#[test]
fn lookups_and_removals_give_the_same_difference() {
    let mut bench = Bench::default();
    with_members(&mut bench, "sadd large", "", 0..1000);
    with_members(&mut bench, "sadd large", "x", 0..5);
    let mut line = "sdiff large".to_string();
    for step in 0..20 {
        with_members(&mut bench, &format!("sadd s{step}"), "", step * 50..step * 50 + 49);
        line += &format!(" s{step}");
        // With few sets each member is looked up; with many the sets are subtracted from a copy.
        let left = 1000 - (step + 1) * 49 + 5;
        assert!(bench.run(&line).starts_with(&format!("*{left}|")), "{line}");
        let stored = line.replace("sdiff", "sdiffstore d");
        assert_eq!(bench.run(&stored), format!(":{left}"));
        bench.check(&[("sismember d 0", ":0"), ("sismember d x3", ":1"), ("sismember d 49", ":1")]);
    }
}

/// Returns the members that begin with an m from a reply of SPOP, SRANDMEMBER or SSCAN.
fn members(reply: &str) -> Vec<String> {
    reply.split('|').filter(|part| part.starts_with('m')).map(String::from).collect()
}

#[test]
fn popped_members_are_gone() {
    for size in [20, 100, 1000] {
        for count in [1, 3, size / 2, size - size / 10, size - 1, size, size + 1] {
            let mut bench = Bench::default();
            with_members(&mut bench, "sadd s", "m", 0..size);
            let reply = bench.run(&format!("spop s {count}"));
            let popped = members(&reply);
            assert!(reply.starts_with(&format!("*{}|", count.min(size))));
            assert_eq!(popped.len(), count.min(size));
            let left = members(&bench.run("smembers s"));
            assert_eq!(popped.iter().chain(&left).collect::<BTreeSet<_>>().len(), size, "{count} of {size}");
            assert_eq!(left.len(), size.saturating_sub(count));
        }
    }
}

#[test]
fn few_remaining_members_return_to_a_compact_encoding() {
    for (prefix, left, form) in [("m", 50, "listpack"), ("m", 150, "hashtable"), ("", 150, "intset")] {
        let mut bench = Bench::default();
        bench.rules.set.intset_entries = 1000;
        with_members(&mut bench, "sadd s", prefix, 0..1000);
        bench.run(&format!("spop s {}", 1000 - left));
        assert_eq!(bench.run("scard s"), format!(":{left}"));
        let encoding = bench.run("object encoding s");
        assert!(encoding.ends_with(&format!("|{form}")), "{prefix} {left}: {encoding}");
    }
}

#[test]
fn random_members_of_a_large_set() {
    let mut bench = Bench::default();
    with_members(&mut bench, "sadd s", "m", 0..2000);
    for (count, len, distinct) in [
        ("1", 1, 1),
        ("10", 10, 10),
        ("600", 600, 600),
        ("700", 700, 700),
        ("9999", 2000, 2000),
        ("-100000", 100_000, 2000),
    ] {
        let reply = bench.run(&format!("srandmember s {count}"));
        assert!(reply.starts_with(&format!("*{len}|")), "{count}");
        let members = members(&reply);
        assert_eq!(members.len(), len, "{count}");
        assert_eq!(members.into_iter().collect::<BTreeSet<_>>().len(), distinct, "{count}");
    }
    bench.rules.string_bytes_max = 1000;
    let too_long = crate::sample::too_long(1000);
    let too_long = format!("-{}", String::from_utf8_lossy(too_long.text()));
    bench.check(&[
        ("srandmember s -1001", &too_long),
        ("srandmember s -150", &too_long),
        ("srandmember s -9223372036854775807", &too_long),
    ]);
}

#[test]
fn scanning_while_a_set_grows_and_shrinks() {
    let mut bench = Bench::default();
    with_members(&mut bench, "sadd s", "m", 0..1000);
    let (mut cursor, mut seen, mut calls) = ("0".to_string(), BTreeSet::new(), 0);
    loop {
        let reply = bench.run(&format!("sscan s {cursor} count 20"));
        seen.extend(members(&reply));
        cursor = reply.split('|').nth(2).unwrap_or_default().to_string();
        if cursor == "0" {
            break;
        }
        calls += 1;
        let (command, numbers) = match calls {
            1..10 => ("sadd s", calls * 500..calls * 500 + 500),
            _ => ("srem s", calls * 100..calls * 100 + 100),
        };
        with_members(&mut bench, command, "x", numbers);
    }
    assert_eq!(seen.len(), 1000);
}
