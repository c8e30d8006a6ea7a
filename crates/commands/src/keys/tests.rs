//! Expected replies come from Redis 7.

mod payload;
mod sort;

use std::collections::BTreeSet;

use crate::testing::{Bench, check, check_resp3};

const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";

#[test]
fn keys_are_counted_and_deleted() {
    check(&[
        ("mset a 1 b 2 c 3", "+OK"),
        ("exists a none a", ":2"),
        ("touch a none a", ":2"),
        ("dbsize", ":3"),
        ("del a none a", ":1"),
        ("unlink b b c", ":2"),
        ("dbsize", ":0"),
        ("set s x", "+OK"),
        ("rpush l x", ":1"),
        ("type s", "+string"),
        ("type l", "+list"),
        ("type none", "+none"),
    ]);
}

#[test]
fn keys_are_renamed() {
    check(&[
        ("set a 1 ex 10", "+OK"),
        ("rename none x", "-ERR no such key"),
        ("renamenx none none", "-ERR no such key"),
        ("rename a a", "+OK"),
        ("renamenx a a", ":0"),
        ("set b 2", "+OK"),
        ("renamenx a b", ":0"),
        ("rename a b", "+OK"),
        ("get a", "$-1"),
        ("get b", "$1|1"),
        ("ttl b", ":10"),
        ("renamenx b c", ":1"),
        ("rpush l x y", ":2"),
        ("rename l c", "+OK"),
        ("lrange c 0 -1", "*2|$1|x|$1|y"),
        ("ttl c", ":-1"),
    ]);
}

#[test]
fn keys_are_copied() {
    let mut bench = Bench::default();
    bench.check(&[
        ("set a 1 ex 10", "+OK"),
        ("copy a a", "-ERR source and destination objects are the same"),
        ("copy a a db 0", "-ERR source and destination objects are the same"),
        ("copy a b db 99", "-ERR DB index is out of range"),
        ("copy a b db -1", "-ERR DB index is out of range"),
        ("copy a b db x", NOT_INTEGER),
        ("copy a b db 99999999999", "-ERR value is out of range, value must between -2147483648 and 2147483647"),
        ("copy a b db", "-ERR syntax error"),
        ("copy a b foo", "-ERR syntax error"),
        ("copy none b", ":0"),
        ("copy a b", ":1"),
        ("ttl b", ":10"),
        ("set b 2", "+OK"),
        ("copy a b", ":0"),
        ("copy a b replace", ":1"),
        ("get b", "$1|1"),
        ("rpush l x", ":1"),
        ("copy l m", ":1"),
        ("rpush m y", ":2"),
        ("llen l", ":1"),
        ("copy a a db 1", ":1"),
        ("copy a a db 1", ":0"),
        ("copy b a db 1 replace", ":1"),
    ]);
    bench.database = 1;
    bench.check(&[("get a", "$1|1"), ("ttl a", ":10"), ("get b", "$-1")]);
}

#[test]
fn keys_are_moved() {
    let mut bench = Bench::default();
    bench.check(&[
        ("set a 1 ex 10", "+OK"),
        ("move a 0", "-ERR source and destination objects are the same"),
        ("move none 0", "-ERR source and destination objects are the same"),
        ("move a x", NOT_INTEGER),
        ("move a 99", "-ERR DB index is out of range"),
        ("move a -1", "-ERR DB index is out of range"),
        ("move none 1", ":0"),
        ("move a 1", ":1"),
        ("get a", "$-1"),
        ("set a 2", "+OK"),
        ("move a 1", ":0"),
    ]);
    bench.database = 1;
    bench.check(&[("get a", "$1|1"), ("ttl a", ":10")]);
}

#[test]
fn expiries_obey_their_conditions() {
    check(&[
        ("rpush l a", ":1"),
        ("expire l 100 xx", ":0"),
        ("expire l 100 gt", ":0"),
        ("expire l 100 lt", ":1"),
        ("expire l 200 LT", ":0"),
        ("expire l 200 nx", ":0"),
        ("expire l 100 gt", ":0"),
        ("expire l 100 lt", ":0"),
        ("expire l 200 gt", ":1"),
        ("expire l 200 xx xx", ":1"),
        ("expire l 300 xx gt", ":1"),
        ("expire l 100 xx lt", ":1"),
        ("ttl l", ":100"),
        ("pexpireat l 33177117420000", ":1"),
        ("pexpiretime l", ":33177117420000"),
        ("expiretime l", ":33177117420"),
        ("pexpire l 1501", ":1"),
        ("ttl l", ":2"),
        ("pttl l", ":1501"),
        ("persist l", ":1"),
        ("persist l", ":0"),
        ("persist none", ":0"),
        ("ttl l", ":-1"),
        ("pttl l", ":-1"),
        ("expiretime l", ":-1"),
        ("pexpiretime l", ":-1"),
        ("ttl none", ":-2"),
        ("pttl none", ":-2"),
        ("expiretime none", ":-2"),
        ("pexpiretime none", ":-2"),
        ("expire l 100 nx", ":1"),
    ]);
}

#[test]
fn invalid_expiries_are_refused() {
    let nx = "-ERR NX and XX, GT or LT options at the same time are not compatible";
    let gt_lt = "-ERR GT and LT options at the same time are not compatible";
    let invalid = "-ERR invalid expire time in 'expire' command";
    check(&[
        ("rpush l a", ":1"),
        ("expire l 10 foo", "-ERR Unsupported option foo"),
        ("expire l 10 nx xx", nx),
        ("expire l 10 gt nx", nx),
        ("expire l x gt lt", gt_lt),
        ("expire l x", NOT_INTEGER),
        ("expire l 9223372036854775807", invalid),
        ("expire l 9223372036854775", invalid),
        ("expire l -9223372036854775807", invalid),
        ("expire none 9223372036854775807", invalid),
        ("pexpire l 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"),
        ("expireat l 9223372036854775807", "-ERR invalid expire time in 'expireat' command"),
        ("pexpireat l 9223372036854775807", ":1"),
        ("expire none -1", ":0"),
        ("ttl l", ":9223370336854776"),
        ("expire l -1 nx", ":0"),
        ("expire l -1 gt", ":0"),
        ("exists l", ":1"),
        ("expire l -9223372036854775", ":1"),
        ("exists l", ":0"),
        ("rpush l a", ":1"),
        ("expireat l -1", ":1"),
        ("exists l", ":0"),
        ("rpush l a", ":1"),
        ("pexpireat l 1700000000000", ":1"),
        ("exists l", ":0"),
    ]);
}

#[test]
fn object_shows_representation_and_use() {
    let mut bench = Bench::default();
    bench.check(&[
        ("set i 123", "+OK"),
        ("set e abc", "+OK"),
        ("set r xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "+OK"),
        ("object encoding i", "$3|int"),
        ("object encoding e", "$6|embstr"),
        ("object encoding r", "$3|raw"),
        ("append i 4", ":4"),
        ("object encoding i", "$3|raw"),
        ("incr i", ":1235"),
        ("object encoding i", "$3|int"),
        ("append new 12", ":2"),
        ("object encoding new", "$3|int"),
        ("incrbyfloat new 2", "$2|14"),
        ("object encoding new", "$6|embstr"),
        ("setrange e 0 x", ":3"),
        ("object encoding e", "$3|raw"),
        ("object encoding none", "$-1"),
        ("object refcount none", "$-1"),
        ("object idletime none", "$-1"),
        ("object freq none", "$-1"),
        ("object refcount e", ":1"),
        ("set i 9999", "+OK"),
        ("object refcount i", ":2147483647"),
        ("set i 10000", "+OK"),
        ("object refcount i", ":1"),
        ("object", "-ERR wrong number of arguments for 'object' command"),
        ("object encoding", "-ERR wrong number of arguments for 'object|encoding' command"),
        ("object foo i", "-ERR unknown subcommand 'foo'. Try OBJECT HELP."),
    ]);
    assert!(bench.run("object freq i").starts_with("-ERR An LFU maxmemory policy is not selected"));
    assert!(bench.run("object help").starts_with("*15|+OBJECT <subcommand> [<arg> [value] [opt] ...]."));
    bench.now_ms += 7_000;
    bench.check(&[
        ("object idletime i", ":7"),
        ("type i", "+string"),
        ("ttl i", ":-1"),
        ("exists i", ":1"),
        ("object idletime i", ":7"),
        ("touch i", ":1"),
        ("object idletime i", ":0"),
    ]);
}

#[test]
fn keys_are_listed_by_pattern() {
    check(&[
        ("keys *", "*0"),
        ("set hello 1", "+OK"),
        ("set he*o 1 px 5", "+OK"),
        ("keys hello", "*1|$5|hello"),
        ("keys none", "*0"),
        ("keys h\\*", "*0"),
        ("keys he\\*o", "*1|$4|he*o"),
        ("keys ?????", "*1|$5|hello"),
        ("set \"\" empty", "+OK"),
        ("keys \"\"", "*1|$0|"),
        ("del hello he*o", ":2"),
        ("keys *", "*1|$0|"),
    ]);
}

#[test]
fn expired_keys_are_not_shown() {
    let mut bench = Bench::default();
    bench.run("set k v px 5");
    bench.now_ms += 6;
    bench.check(&[
        ("keys k", "*0"),
        ("keys *", "*0"),
        ("scan 0", "*2|$1|0|*0"),
        ("randomkey", "$-1"),
        ("rename k j", "-ERR no such key"),
        ("copy k j", ":0"),
        ("expire k 10", ":0"),
        ("ttl k", ":-2"),
        ("type k", "+none"),
        ("dbsize", ":0"),
    ]);
}

#[test]
fn scan_refuses_invalid_arguments() {
    check(&[
        ("set l 1", "+OK"),
        ("scan x", "-ERR invalid cursor"),
        ("scan -1 foo", "-ERR invalid cursor"),
        ("scan ''", "-ERR invalid cursor"),
        ("scan ' 1' count 0", "-ERR syntax error"),
        ("scan 18446744073709551616", "-ERR invalid cursor"),
        ("scan 0 count 0", "-ERR syntax error"),
        ("scan 0 count -1", "-ERR syntax error"),
        ("scan 0 count x", NOT_INTEGER),
        ("scan 0 count", "-ERR syntax error"),
        ("scan 0 type", "-ERR syntax error"),
        ("scan 0 foo bar", "-ERR syntax error"),
        ("scan 0 match l count 1000 type string", "*2|$1|0|*1|$1|l"),
        ("scan 0 count 9223372036854775807", "*2|$1|0|*1|$1|l"),
        ("scan 0 type STRING count 1000", "*2|$1|0|*1|$1|l"),
        ("scan 0 match m count 1000", "*2|$1|0|*0"),
        ("scan 0 type list count 1000", "*2|$1|0|*0"),
        ("scan 0 type list type string count 1000", "*2|$1|0|*1|$1|l"),
        ("scan 0 type foo count 1000", "*2|$1|0|*0"),
    ]);
    check_resp3(&[("scan 0 count 1000", "*2|$1|0|*0")]);
}

#[test]
fn a_scan_returns_every_key_that_stays() {
    let mut bench = Bench::default();
    (0..300).for_each(|i| drop(bench.run(&format!("set stay:{i} x"))));
    let mut seen = BTreeSet::new();
    let mut cursor = "0".to_string();
    let mut calls = 0;
    loop {
        let reply = bench.run(&format!("scan {cursor} match stay:* count 7"));
        let mut words = reply.split('|').skip(2);
        cursor = words.next().unwrap().to_string();
        seen.extend(words.filter(|w| w.starts_with("stay:")).map(str::to_string));
        if cursor == "0" {
            break;
        }
        // Growth during the scan must not lose any key.
        (0..40).for_each(|i| drop(bench.run(&format!("set other:{calls}:{i} x"))));
        calls += 1;
        assert!(calls < 10_000, "the scan doesn't end");
    }
    assert_eq!(seen.len(), 300);
    assert!(calls > 10, "one call returned everything");
}

#[test]
fn databases_are_emptied() {
    let mut bench = Bench::default();
    bench.check(&[
        ("flushall foo", "-ERR syntax error"),
        ("flushall async sync", "-ERR syntax error"),
        ("flushdb foo", "-ERR syntax error"),
        ("set a 1", "+OK"),
        ("copy a a db 1", ":1"),
        ("copy a a db 2", ":1"),
        ("flushdb async", "+OK"),
        ("dbsize", ":0"),
        ("randomkey", "$-1"),
    ]);
    bench.database = 1;
    bench.check(&[("randomkey", "$1|a"), ("flushdb SYNC", "+OK"), ("keys *", "*0"), ("copy a a db 0", ":0")]);
    bench.database = 2;
    bench.check(&[("dbsize", ":1"), ("flushall", "+OK"), ("dbsize", ":0"), ("flushall async", "+OK")]);
    let before = bench.effects.dirty;
    bench.check(&[("flushall sync", "+OK"), ("mset a 1 b 2", "+OK"), ("flushdb", "+OK"), ("flushdb", "+OK")]);
    assert_eq!(bench.effects.dirty, before + 2 + 2);
}

#[test]
fn events_are_named_as_in_redis() {
    let mut bench = Bench::default();
    bench.run("mset k 1 j 2");
    bench.events();
    for (line, events) in [
        ("expire k 10", "expire k"),
        ("expire k 10 nx", ""),
        ("persist k", "persist k"),
        ("persist k", ""),
        ("copy k c", "copy_to c"),
        ("copy k c", ""),
        ("rename k k", ""),
        ("rename k r", "rename_from k,rename_to r"),
        ("renamenx r j", ""),
        ("move r 1", "move_from r,move_to r"),
        ("del c none", "del c"),
        ("unlink j none", "del j"),
        ("rpush l 2 1", "rpush l"),
        ("sort l store s", "sortstore s"),
        ("sort none store s", "del s"),
        ("sort none store s", ""),
        ("pexpireat l 1", "del l"),
        ("flushall", ""),
    ] {
        bench.run(line);
        assert_eq!(bench.events().join(","), events, "{line}");
    }
}

/// Freeing in the background depends on settings and changes no reply.
#[test]
fn lazy_freeing_changes_no_reply() {
    let mut bench = Bench::default();
    bench.rules.lazy_free = crate::call::LazyFree { user_del: true, user_flush: true, server_del: true };
    let large = "x".repeat(100_000);
    bench.run(&format!("mset a {large} b {large} c {large} d {large}"));
    bench.check(&[
        ("set a 1 keepttl get xx", &format!("$100000|{large}")),
        ("get a", "$1|1"),
        ("rpush list x y z", ":3"),
        ("sadd members x y z", ":3"),
        ("mset list 1 members two new 3", "+OK"),
        ("mget list members new", "*3|$1|1|$3|two|$1|3"),
        ("set list 1 ex 100", "+OK"),
        ("mset list 2", "+OK"),
        ("ttl list", ":-1"),
        ("rename a b", "+OK"),
        ("copy b c replace", ":1"),
        ("strlen c", ":1"),
        ("del d", ":1"),
        ("flushall", "+OK"),
        ("dbsize", ":0"),
    ]);
}

/// A writable replica may have keys although its primary has none.
#[test]
fn flushing_is_recorded_even_if_nothing_was_there() {
    let mut bench = Bench::default();
    for line in ["flushall", "flushdb", "flushdb async"] {
        let words: Vec<String> = line.split(' ').map(|word| format!("${} {word} ", word.len())).collect();
        assert_eq!(bench.recorded(line), [format!("*{} {}", words.len(), words.concat())]);
    }
}
