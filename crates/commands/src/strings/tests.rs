//! Expected replies come from Redis 7, except for Valkey's options.

use crate::testing::{Bench, check_resp3};

/// Checks commands on a keyspace that holds only a list, `l`.
fn check(script: &[(&str, &str)]) {
    let mut bench = Bench::default();
    bench.run("rpush l x");
    bench.check(script);
}

#[test]
fn set_applies_its_options() {
    check(&[
        ("get a", "$-1"),
        ("set a hello", "+OK"),
        ("get a", "$5|hello"),
        ("set a 1 ex 10 px 20", "-ERR syntax error"),
        ("set a 1 nx xx", "-ERR syntax error"),
        ("set a 1 xx nx", "-ERR syntax error"),
        ("set a 1 nx ifeq 2", "-ERR syntax error"),
        ("set a 1 ifeq", "-ERR syntax error"),
        ("set a 1 persist", "-ERR syntax error"),
        ("set a 1 nx nx", "$-1"),
        ("set b 1 keepttl ex 5", "-ERR syntax error"),
        ("set b 1 ex", "-ERR syntax error"),
        ("set b 1 nx", "+OK"),
        ("set b 2 nx get", "$1|1"),
        ("set c 2 nx get", "$-1"),
        ("set d 2 xx", "$-1"),
        ("set c 3 xx", "+OK"),
        ("set c 4 get", "$1|3"),
        ("set d 4 xx get", "$-1"),
        ("set d 4 get", "$-1"),
        ("get d", "$1|4"),
    ]);
}

#[test]
fn set_compares_before_it_sets() {
    check(&[
        ("set a 1 ifeq 1", "$-1"),
        ("set a 1", "+OK"),
        ("set a two ifeq 2", "$-1"),
        ("set a two ifeq 1", "+OK"),
        ("set a 3 ifeq two get", "$3|two"),
        ("set a 4 ifeq two get", "$1|3"),
        ("get a", "$1|3"),
        ("set none 4 ifeq two get", "$-1"),
        ("set l 1 ifeq x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("delifeq none x", ":0"),
        ("delifeq a 2", ":0"),
        ("delifeq a 3", ":1"),
        ("get a", "$-1"),
        ("delifeq l x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
}

/// Expected replies come from Redis 8.6.
#[test]
fn set_and_delex_compare_with_values_and_digests() {
    let type_error = "-ERR Key should be of string type if conditions are specified";
    let not_a_digest = "-ERR must be exactly 16 hexadecimal characters";
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    check(&[
        ("set a hello", "+OK"),
        ("digest a", "$16|9555e8555c62dcfd"),
        ("set n 123", "+OK"),
        ("digest n", "$16|404a763b3f4c8c9a"),
        ("set e ''", "+OK"),
        ("digest e", "$16|2d06800538d394c2"),
        ("digest none", "$-1"),
        ("digest l", wrong_type),
        ("set a world ifne hello", "$-1"),
        ("set a world ifne x get", "$5|hello"),
        ("set new v ifne x", "+OK"),
        ("set new2 v ifeq x", "$-1"),
        ("set new2 v ifdeq zz", "$-1"),
        ("set new2 v ifdne zz", "+OK"),
        ("set a x ifdeq zz", not_a_digest),
        ("set a x ifdeq zz get", not_a_digest),
        ("set a x ifdeq zzzzzzzzzzzzzzzz", "$-1"),
        ("set a hello", "+OK"),
        ("set a hello ifdeq 9555E8555C62DCFD", "+OK"),
        ("set a x ifdne 9555e8555c62dcfd", "$-1"),
        ("set a y ifdeq 9555e8555c62dcfd get", "$5|hello"),
        ("set l x ifdeq zz", wrong_type),
        ("set l x ifne x get", wrong_type),
        ("set a x ifne y ifeq y", "-ERR syntax error"),
        ("set a x ifne", "-ERR syntax error"),
        ("delex a ifeq hello", ":0"),
        ("delex a ifdeq 9555e8555c62dcfd", ":0"),
        ("delex a ifdeq zz", not_a_digest),
        ("delex a bogus x", "-ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"),
        ("delex a ifeq", "-ERR wrong number of arguments for 'delex' command"),
        ("delex a ifdne 9555e8555c62dcfd", ":1"),
        ("delex none bogus x", ":0"),
        ("delex none", ":0"),
        ("delex l bogus x", type_error),
        ("delex l", ":1"),
        ("delex new ifne v", ":0"),
        ("delex new ifeq v", ":1"),
        ("exists a l new", ":0"),
    ]);
}

/// Expected replies come from Redis 8.6.
#[test]
fn msetex_sets_all_or_none() {
    let syntax = "-ERR syntax error";
    let numkeys = "-ERR invalid numkeys value";
    check(&[
        ("msetex 2 a 1 b 2", ":1"),
        ("msetex 2 a 3 c 4 nx", ":0"),
        ("msetex 2 a 3 c 4 xx ex 100", ":0"),
        ("msetex 2 a 3 b 4 ex 100 xx", ":1"),
        ("mget a b c", "*3|$1|3|$1|4|$-1"),
        ("ttl b", ":100"),
        ("msetex 2 a 5 d 6 keepttl", ":1"),
        ("ttl a", ":100"),
        ("ttl d", ":-1"),
        ("msetex 2 a 5 a 6", ":1"),
        ("get a", "$1|6"),
        ("ttl a", ":-1"),
        ("msetex 1 l v xx", ":1"),
        ("type l", "+string"),
        ("msetex 1 a 1 ex 10 ex 20", ":1"),
        ("ttl a", ":20"),
        ("msetex 1 a 1 exat 10", ":1"),
        ("get a", "$-1"),
        ("msetex 0 a 1", numkeys),
        ("msetex x a 1", numkeys),
        ("msetex 01 a 1", numkeys),
        ("msetex 3000000000 a 1", numkeys),
        ("msetex 2 a 1", "-ERR wrong number of key-value pairs"),
        ("msetex 2147483647 a 1", "-ERR wrong number of key-value pairs"),
        ("msetex 1 a 1 b 2", syntax),
        ("msetex 1 a 1 nx xx", syntax),
        ("msetex 1 a 1 get", syntax),
        ("msetex 1 a 1 ifeq 1", syntax),
        ("msetex 1 a 1 persist", syntax),
        ("msetex 1 a 1 ex", syntax),
        ("msetex 1 a 1 ex 10 px 10", syntax),
        ("msetex 1 a 1 ex 10 keepttl", syntax),
        ("msetex 1 a 1 ex x", "-ERR value is not an integer or out of range"),
        ("msetex 1 d 1 nx ex 0", "-ERR invalid expire time in 'msetex' command"),
    ]);
}

#[test]
fn msetex_and_delex_publish_events_of_changed_keys() {
    let mut bench = Bench::default();
    bench.check(&[("msetex 2 a 1 b 2 px 10", ":1"), ("msetex 1 a 1 nx", ":0"), ("delex a ifeq 2", ":0")]);
    bench.check(&[("delex a ifeq 1", ":1"), ("delex a ifeq 1", ":0"), ("delex b", ":1")]);
    assert_eq!(bench.events(), ["expire a", "set a", "expire b", "set b", "del a", "del b"]);
    assert_eq!(bench.effects.dirty, 4);
}

#[test]
fn invalid_expiries_are_refused() {
    let invalid = "-ERR invalid expire time in 'set' command";
    check(&[
        ("set a 1 ex 0", invalid),
        ("set a 1 ex -1", invalid),
        ("set a 1 ex x", "-ERR value is not an integer or out of range"),
        ("set a 1 ex 9223372036854775807", invalid),
        ("set a 1 px 9223372036854775807", invalid),
        ("set a 1 exat 9223372036854775807", invalid),
        ("set a 1 pxat 9223372036854775807", "+OK"),
        ("set a 1 exat 9223372036854775", "+OK"),
        ("setex a 0 b", "-ERR invalid expire time in 'setex' command"),
        ("setex a x b", "-ERR value is not an integer or out of range"),
        ("psetex a -1 b", "-ERR invalid expire time in 'psetex' command"),
        ("getex a ex 0", "-ERR invalid expire time in 'getex' command"),
        ("getex none ex 0", "$-1"),
        ("getex a ex 10 persist", "-ERR syntax error"),
        ("getex a keepttl", "-ERR syntax error"),
        ("set l x xx get ex 0", invalid),
        ("set l x nx get", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("getex l ex 0", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("set l x xx", "+OK"),
    ]);
}

#[test]
fn expiries_are_set_kept_and_removed() {
    let mut bench = Bench::default();
    let start = bench.now_ms;
    let alive = |bench: &mut Bench, line: &str, for_ms: Option<u64>| {
        bench.run("set k old ex 1000");
        bench.run(line);
        let end = for_ms.map_or(2_000_000, |ms| ms + 1);
        bench.now_ms = start + end - 1;
        assert_ne!(bench.run("strlen k"), ":0", "{line} is gone too early");
        bench.now_ms = start + end;
        assert_eq!(bench.run("strlen k") == ":0", for_ms.is_some(), "{line}");
        bench.now_ms = start;
    };
    let (seconds, millis) = (start / 1000 + 7, start + 70);
    alive(&mut bench, "set k 1", None);
    alive(&mut bench, "set k 1 ex 10 ex 20", Some(20_000));
    alive(&mut bench, "set k 1 PX 20", Some(20));
    alive(&mut bench, &format!("set k 1 exat {seconds}"), Some(7000 - start % 1000));
    alive(&mut bench, &format!("set k 1 pxat {millis}"), Some(70));
    alive(&mut bench, "set k 1 keepttl", Some(1_000_000));
    alive(&mut bench, "setex k 3 v", Some(3000));
    alive(&mut bench, "psetex k 3 v", Some(3));
    alive(&mut bench, "getset k v", None);
    alive(&mut bench, "mset k v", None);
    alive(&mut bench, "append k v", Some(1_000_000));
    alive(&mut bench, "setrange k 0 v", Some(1_000_000));
    alive(&mut bench, "getex k", Some(1_000_000));
    alive(&mut bench, "getex k persist", None);
    alive(&mut bench, "getex k px 5", Some(5));
    bench.check(&[
        ("set n 1 px 10", "+OK"),
        ("incr n", ":2"),
        ("incrbyfloat n 0.5", "$3|2.5"),
        ("set past 1 exat 1", "+OK"),
        ("get past", "$-1"),
        ("set k old", "+OK"),
        ("getex k exat 1", "$3|old"),
        ("get k", "$-1"),
    ]);
    bench.now_ms += 11;
    bench.check(&[("get n", "$-1")]);
}

#[test]
fn several_keys_at_once() {
    check(&[
        ("mset a 1 b", "-ERR wrong number of arguments for 'mset' command"),
        ("mset a 1 b x", "+OK"),
        ("mget a b c l", "*4|$1|1|$1|x|$-1|$-1"),
        ("msetnx q 1 b 2", ":0"),
        ("msetnx q 1 r", "-ERR wrong number of arguments for 'msetnx' command"),
        ("get q", "$-1"),
        ("msetnx q 1 q 2", ":1"),
        ("get q", "$1|2"),
        ("setnx q 3", ":0"),
        ("setnx r 3", ":1"),
        ("getset r 4", "$1|3"),
        ("getset s 4", "$-1"),
        ("getset l 4", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("getdel r", "$1|4"),
        ("getdel r", "$-1"),
        ("getdel l", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
    check_resp3(&[("set a 1", "+OK"), ("mget a b", "*2|$1|1|_"), ("set a 2 nx", "_"), ("getex b", "_")]);
}

#[test]
fn integers_add_up_within_their_range() {
    check(&[
        ("incr a", ":1"),
        ("set a 9223372036854775807", "+OK"),
        ("incr a", "-ERR increment or decrement would overflow"),
        ("decrby a -1", "-ERR increment or decrement would overflow"),
        ("decrby a -9223372036854775808", "-ERR decrement would overflow"),
        ("decr a", ":9223372036854775806"),
        ("set b -9223372036854775808", "+OK"),
        ("decr b", "-ERR increment or decrement would overflow"),
        ("incrby b 9223372036854775807", ":-1"),
        ("incrby b x", "-ERR value is not an integer or out of range"),
        ("incrby b 9223372036854775808", "-ERR value is not an integer or out of range"),
        ("set c 012", "+OK"),
        ("incr c", "-ERR value is not an integer or out of range"),
        ("append i 1", ":1"),
        ("append i 2", ":2"),
        ("incr i", ":13"),
        ("incr l", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
}

#[test]
fn floats_add_up_as_long_doubles() {
    check(&[
        ("incrbyfloat f 0.1", "$3|0.1"),
        ("incrbyfloat f 0.2", "$3|0.3"),
        ("incrbyfloat f 5e3", "$22|5000.29999999999999982"),
        ("incrbyfloat f inf", "-ERR increment would produce NaN or Infinity"),
        ("incrbyfloat f x", "-ERR value is not a valid float"),
        ("set i 3", "+OK"),
        ("incrbyfloat i 2.0", "$1|5"),
        ("incr i", ":6"),
        ("set s abc", "+OK"),
        ("incrbyfloat s 1", "-ERR value is not a valid float"),
        ("set e \"\"", "+OK"),
        ("incrbyfloat e 1", "-ERR value is not a valid float"),
        ("incrbyfloat l x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
}

#[test]
fn ranges_of_strings() {
    let not_integer = "-ERR value is not an integer or out of range";
    check(&[
        ("set h hello", "+OK"),
        ("getrange h 1 -2", "$3|ell"),
        ("getrange h 0 -100", "$1|h"),
        ("getrange h -3 -5", "$0|"),
        ("getrange h -5 -3", "$3|hel"),
        ("getrange h 3 100", "$2|lo"),
        ("getrange h 5 100", "$0|"),
        ("getrange h -9223372036854775808 9223372036854775807", "$5|hello"),
        ("getrange h x 1", not_integer),
        ("getrange none 0 -1", "$0|"),
        ("set e \"\"", "+OK"),
        ("getrange e 0 -1", "$0|"),
        ("set i -123", "+OK"),
        ("substr i 0 1", "$2|-1"),
        ("strlen i", ":4"),
        ("strlen none", ":0"),
        ("setrange h 1 ELL", ":5"),
        ("get h", "$5|hELLo"),
        ("setrange h 4 O!", ":6"),
        ("setrange h 0 \"\"", ":6"),
        ("setrange i 6 x", ":7"),
        ("get i", "$7|-123\0\0x"),
        ("setrange n 5 \"\"", ":0"),
        ("get n", "$-1"),
        ("setrange n 3 x", ":4"),
        ("setrange n -1 x", "-ERR offset is out of range"),
        ("setrange n x x", not_integer),
        ("setrange n 536870912 x", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("setrange n 9223372036854775807 xx", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
        ("strlen l", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("getrange l 0 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("setrange l 0 \"\"", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("append l x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ]);
}

#[test]
fn a_string_grows_up_to_its_limit() {
    let mut bench = Bench::default();
    bench.rules.string_bytes_max = 3000;
    for i in 1..=30 {
        assert_eq!(bench.run(&format!("append a {}", "x".repeat(100))), format!(":{}", i * 100));
    }
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    bench.check(&[
        ("append a y", too_long),
        ("append a \"\"", ":3000"),
        ("setrange a 2999 y", ":3000"),
        ("setrange a 2999 yy", too_long),
        ("getrange a 2998 -1", "$2|xy"),
    ]);
}

#[test]
fn the_longest_common_subsequence() {
    let both = "*4|$7|matches|*2|*2|*2|:4|:7|*2|:5|:8|*2|*2|:2|:3|*2|:0|:1|$3|len|:6";
    check(&[
        ("mset a ohmytext b mynewtext i 123", "+OK"),
        ("lcs a b", "$6|mytext"),
        ("lcs a b len", ":6"),
        ("lcs a b idx", both),
        ("lcs a b idx minmatchlen -5", both),
        ("lcs a b idx minmatchlen 4", "*4|$7|matches|*1|*2|*2|:4|:7|*2|:5|:8|$3|len|:6"),
        ("lcs a b idx minmatchlen 4 withmatchlen", "*4|$7|matches|*1|*3|*2|:4|:7|*2|:5|:8|:4|$3|len|:6"),
        ("lcs a b withmatchlen", "$6|mytext"),
        ("lcs a b idx len", "-ERR If you want both the length and indexes, please just use IDX."),
        ("lcs a b minmatchlen", "-ERR syntax error"),
        ("lcs a b minmatchlen x", "-ERR value is not an integer or out of range"),
        ("lcs a b foo", "-ERR syntax error"),
        ("lcs a none", "$0|"),
        ("lcs none none len", ":0"),
        ("lcs none none idx", "*4|$7|matches|*0|$3|len|:0"),
        ("lcs i i idx", "*4|$7|matches|*1|*2|*2|:0|:2|*2|:0|:2|$3|len|:3"),
        ("lcs l a foo", "-ERR The specified keys must contain string values"),
    ]);
    check_resp3(&[("lcs a b idx", "%2|$7|matches|*0|$3|len|:0")]);
}

#[test]
fn a_subsequence_beyond_the_memory_limit_is_refused() {
    let mut bench = Bench::default();
    bench.rules.string_bytes_max = 4 * 11 * 11;
    bench.check(&[
        ("mset a 0123456789 b 0123456789 c 0123456789a", "+OK"),
        ("lcs a b len", ":10"),
        ("lcs a c len", "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"),
    ]);
}

/// Compares with a textbook recursion and with Redis's walk back through its table, for strings that need several words
/// of bits.
#[test]
fn subsequences_of_long_strings_match_redis() {
    let mut random = store::random::Random::new(7);
    let mut bench = Bench::default();
    for (len_a, len_b) in [(1, 1), (63, 64), (64, 63), (65, 65), (130, 20), (200, 260), (3, 129)] {
        let mut word = |len| (0..len).map(|_| b'a' + random.below(3) as u8).collect::<Vec<u8>>();
        let (a, b) = (word(len_a), word(len_b));
        let mut lens = vec![vec![0usize; len_b + 1]; len_a + 1];
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                lens[i + 1][j + 1] = if x == y { lens[i][j] + 1 } else { lens[i][j + 1].max(lens[i + 1][j]) };
            }
        }
        let (mut i, mut j, mut common) = (len_a, len_b, Vec::new());
        while i > 0 && j > 0 {
            if a[i - 1] == b[j - 1] {
                common.push(a[i - 1]);
                (i, j) = (i - 1, j - 1);
            } else if lens[i - 1][j] > lens[i][j - 1] {
                i -= 1;
            } else {
                j -= 1;
            }
        }
        common.reverse();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        bench.run(&format!("mset a {} b {}", text(&a), text(&b)));
        assert_eq!(bench.run("lcs a b len"), format!(":{}", lens[len_a][len_b]));
        assert_eq!(bench.run("lcs a b"), format!("${}|{}", common.len(), text(&common)));
    }
}

#[test]
fn events_are_named_as_in_redis() {
    let mut bench = Bench::default();
    for (line, events) in [
        ("set k 1", "set k"),
        ("set k 1 ex 5", "set k,expire k"),
        ("set k 1 nx", ""),
        ("getex k persist", "persist k"),
        ("getex k persist", ""),
        ("getex k px 9", "expire k"),
        ("getex k pxat 9", "del k"),
        ("mset k 1 j 2", "set k,set j"),
        ("decr k", "incrby k"),
        ("incrbyfloat k 1", "incrbyfloat k"),
        ("append k 1", "append k"),
        ("setrange k 1 1", "setrange k"),
        ("setrange k 1 \"\"", ""),
        ("getset k 1", "set k"),
        ("delifeq k 1", "del k"),
        ("getdel j", "del j"),
        ("getdel j", ""),
        ("setex k 1 2", "set k,expire k"),
    ] {
        bench.run(line);
        assert_eq!(bench.events().join(","), events, "{line}");
    }
}

#[test]
fn a_replica_is_sent_the_change_of_getset_alone() {
    let mut bench = Bench::default();
    bench.run("set k old px 1000");
    assert_eq!(bench.recorded("getset k new"), ["*3 $3 SET $1 k $3 new "]);
}
