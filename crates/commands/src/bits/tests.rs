//! Expected replies come from Redis 7, or from Redis 8.6 for newer features.

use store::random::Random;

use crate::testing::{Bench, check_resp3};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const BAD_OFFSET: &str = "-ERR bit offset is not an integer or out of range";
const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";
const SYNTAX: &str = "-ERR syntax error";

/// Checks commands on a keyspace that holds a list, `l`, the string "foobar" in `s`, and an integer in `n`.
fn check(script: &[(&str, &str)]) {
    let mut bench = Bench::default();
    bench.run("rpush l x");
    bench.run("mset s foobar n 123");
    bench.check(script);
}

#[test]
fn bits_are_set_and_read() {
    let bad_bit = "-ERR bit is not an integer or out of range";
    check(&[
        ("setbit k 7 1", ":0"),
        ("get k", "$1|\u{1}"),
        ("setbit k 7 1", ":1"),
        ("setbit k 7 0", ":1"),
        ("setbit k 17 0", ":0"),
        ("strlen k", ":3"),
        ("setbit s 0 0", ":0"),
        ("object encoding s", "$3|raw"),
        ("setbit n 3 1", ":1"),
        ("object encoding n", "$3|raw"),
        ("setbit n 4 1", ":0"),
        ("get n", "$3|923"),
        ("getbit n 4", ":1"),
        ("getbit n 5", ":0"),
        ("getbit n 100", ":0"),
        ("getbit none 100", ":0"),
        ("setbit s x 1", BAD_OFFSET),
        ("setbit s -1 1", BAD_OFFSET),
        ("setbit s 4294967296 1", BAD_OFFSET),
        ("setbit s 1 2", bad_bit),
        ("setbit s 1 -1", bad_bit),
        ("setbit s 1 x", bad_bit),
        ("getbit s 4294967296", BAD_OFFSET),
        ("getbit s 4294967295", ":0"),
        ("getbit none x", BAD_OFFSET),
        ("setbit l x 1", BAD_OFFSET),
        ("setbit l 0 1", WRONG_TYPE),
        ("getbit l 0", WRONG_TYPE),
    ]);
}

#[test]
fn a_string_grows_up_to_its_limit() {
    let mut bench = Bench::default();
    bench.rules.string_bytes_max = 5000;
    bench.check(&[
        ("setbit k 39999 1", ":0"),
        ("strlen k", ":5000"),
        ("setbit k 40000 1", BAD_OFFSET),
        ("bitcount k", ":1"),
        ("bitfield k set u8 39999 1", "*1|:128"),
        ("strlen k", ":5001"),
        ("bitfield k get u8 40000", BAD_OFFSET),
        ("bitfield k get u8 #5000", BAD_OFFSET),
    ]);
    assert!(!bench.effects.took_much);
    bench.rules.string_bytes_max = 500_000;
    bench.run("setbit k 3999999 0");
    assert!(bench.effects.took_much);
}

#[test]
fn setbit_copies_a_string_that_a_reply_is_sending() {
    let mut bench = Bench::default();
    bench.run("setbit k 16000 1");
    bench.check(&[("setbit k 16000 1", ":1"), ("setbit k 16000 0", ":1"), ("bitcount k", ":0")]);
}

#[test]
fn bits_are_counted() {
    check(&[
        ("bitcount s", ":26"),
        ("bitcount s 0 0", ":4"),
        ("bitcount s 1 1 BYTE", ":6"),
        ("bitcount s 5 30 bit", ":17"),
        ("bitcount s 1 1 bit", ":1"),
        ("bitcount s -2 -1", ":7"),
        ("bitcount s -100 100", ":26"),
        ("bitcount s 4 3", ":0"),
        ("bitcount s -9 -8", ":4"),
        ("bitcount s -8 -9", ":0"),
        ("bitcount s -1 -2 foo", SYNTAX),
        ("bitcount n", ":10"),
        ("bitcount none 1 2 bit", ":0"),
        ("bitcount none x y z", NOT_INTEGER),
        ("bitcount none 1 2 z", SYNTAX),
        ("bitcount none 1", SYNTAX),
        ("bitcount s 1", SYNTAX),
        ("bitcount s 1 2 foo", SYNTAX),
        ("bitcount s 1 2 bit x", SYNTAX),
        ("bitcount s x 1", NOT_INTEGER),
        ("bitcount s 1 x", NOT_INTEGER),
        ("bitcount l x y", NOT_INTEGER),
        ("bitcount l 1 2 foo", SYNTAX),
        ("bitcount l -1 -2", WRONG_TYPE),
        ("set e \"\"", "+OK"),
        ("bitcount e", ":0"),
        ("bitcount e 0 -1 bit", ":0"),
    ]);
}

#[test]
fn the_first_bit_is_found() {
    check(&[
        ("bitpos s 1", ":1"),
        ("bitpos s 0", ":0"),
        ("bitpos s 1 2", ":17"),
        ("bitpos s 1 2 -1 bit", ":2"),
        ("bitpos s 0 1 2 bit", ":-1"),
        ("bitpos s 1 5 4", ":-1"),
        ("bitpos s 1 -7 -9", ":1"),
        ("bitpos s 1 6", ":-1"),
        ("bitpos none 1", ":-1"),
        ("bitpos none 0 1 2 bit", ":0"),
        ("bitpos none 0 x y z", NOT_INTEGER),
        ("bitpos none 0 1 y z", SYNTAX),
        ("bitpos none 2", "-ERR The bit argument must be 1 or 0."),
        ("bitpos s x", NOT_INTEGER),
        ("bitpos s 1 x", NOT_INTEGER),
        ("bitpos s 1 1 x foo", SYNTAX),
        ("bitpos s 1 1 x", NOT_INTEGER),
        ("bitpos s 1 1 2 bit x", SYNTAX),
        ("bitpos l 1 x", NOT_INTEGER),
        ("bitpos l 1 1 2 foo", SYNTAX),
        ("bitpos l 1 1 2", WRONG_TYPE),
        ("set ones \"\\xff\\xff\"", "+OK"),
        ("bitpos ones 0", ":16"),
        ("bitpos ones 0 1", ":16"),
        ("bitpos ones 0 0 -1", ":-1"),
        ("bitpos ones 0 2", ":-1"),
        ("set e \"\"", "+OK"),
        ("bitpos e 0", ":-1"),
        ("bitpos e 1 0 -1 bit", ":-1"),
    ]);
}

/// Expands bytes into a naive list of bits.
fn bits_of(bytes: &[u8]) -> Vec<bool> {
    bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte & 0x80 >> bit != 0)).collect()
}

#[test]
fn long_strings_are_counted_and_searched_like_short_ones() {
    let mut random = Random::new(3);
    let mut bench = Bench::default();
    for round in 0..60 {
        let len = 1 + random.below(1500);
        // Some strings consist of nearly equal bits, so that long runs are skipped.
        let fill = [None, Some(0), Some(0xff)][round % 3];
        let mut bytes: Vec<u8> = (0..len).map(|_| fill.unwrap_or_else(|| random.below(256) as u8)).collect();
        let at = random.below(len);
        bytes[at] ^= 1 << random.below(8);
        bench.run_args(&[b"set", &b"k"[..], &bytes]);
        let bits = bits_of(&bytes);
        for _ in 0..20 {
            let start = random.below(bits.len());
            let end = start + random.below(bits.len() - start);
            let part = &bits[start..=end];
            let count = part.iter().filter(|bit| **bit).count();
            assert_eq!(bench.run(&format!("bitcount k {start} {end} bit")), format!(":{count}"));
            for wanted in [false, true] {
                let found = part.iter().position(|bit| *bit == wanted).map_or(-1, |at| (start + at) as i64);
                let line = format!("bitpos k {} {start} {end} bit", u8::from(wanted));
                assert_eq!(bench.run(&line), format!(":{found}"), "{line}");
            }
        }
    }
}

#[test]
fn bits_are_combined() {
    let two = |operation: &str| format!("-ERR BITOP {operation} must be called with at least two source keys.");
    let not = "-ERR BITOP NOT must be called with a single source key.";
    check(&[
        ("mset x abcdef y zzz z 12345678", "+OK"),
        ("bitop AND d x y z", ":8"),
        ("get d", "$8| \"\"\0\0\0\0\0"),
        ("bitop or d x y", ":6"),
        ("get d", "$6|{z{def"),
        ("bitop xor d x y", ":6"),
        ("get d", "$6|\u{1b}\u{18}\u{19}def"),
        ("bitop diff d x y z", ":8"),
        ("get d", "$8|\0\0\0@@@\0\0"),
        ("bitop diff1 d x y z", ":8"),
        ("get d", "$8|\u{1a}\u{18}\u{18}\u{10}\u{10}\u{10}78"),
        ("bitop andor d x y z", ":8"),
        ("get d", "$8|abc$%&\0\0"),
        ("bitop one d x y z", ":8"),
        ("get d", "$8|\n\u{8}\u{8}PPP78"),
        ("bitop one d x", ":6"),
        ("get d", "$6|abcdef"),
        ("bitop not d x", ":6"),
        ("bitop not d d", ":6"),
        ("get d", "$6|abcdef"),
        ("bitop or d n", ":3"),
        ("get d", "$3|123"),
        ("object encoding d", "$3|raw"),
        ("expire d 100", ":1"),
        ("bitop or d n n", ":3"),
        ("ttl d", ":-1"),
        ("bitop or l n", ":3"),
        ("type l", "+string"),
        ("bitop or l none none", ":0"),
        ("exists l", ":0"),
        ("bitop diff d x", &two("DIFF")),
        ("bitop diff1 d x", &two("DIFF1")),
        ("bitop andor d none", &two("ANDOR")),
        ("bitop not d x y", not),
        ("bitop foo d x", SYNTAX),
        ("rpush w x", ":1"),
        ("bitop not d w w", not),
        ("bitop or d x w", WRONG_TYPE),
        ("bitop or d w", WRONG_TYPE),
    ]);
}

/// Compares with one bit at a time, for strings of several chunks.
#[test]
fn long_strings_are_combined_like_short_ones() {
    let mut random = Random::new(5);
    let mut bench = Bench::default();
    for operation in ["and", "or", "xor", "diff", "diff1", "andor", "one"] {
        let lens = [20_000, 8192, 9001, random.below(20_000)];
        let strings = lens.map(|len| (0..len).map(|_| random.below(256) as u8).collect::<Vec<_>>());
        for (key, string) in ["a", "b", "c", "d"].iter().zip(&strings) {
            bench.run_args(&[b"set", key.as_bytes(), string]);
        }
        assert_eq!(bench.run(&format!("bitop {operation} r b c a d")), ":20000");
        let order = [1, 2, 0, 3].map(|at: usize| &strings[at]);
        let expected: Vec<u8> = (0..20_000)
            .map(|at| {
                let [x, ys @ ..] = order.map(|string| string.get(at).copied().unwrap_or(0));
                let any = ys.iter().fold(0, |all, y| all | y);
                match operation {
                    "and" => ys.iter().fold(x, |all, y| all & y),
                    "or" => x | any,
                    "xor" => ys.iter().fold(x, |all, y| all ^ y),
                    "diff" => x & !any,
                    "diff1" => any & !x,
                    "andor" => any & x,
                    _ => {
                        let bit = |bit: u32| [x, ys[0], ys[1], ys[2]].iter().filter(|y| **y >> bit & 1 == 1).count();
                        (0..8).filter(|place| bit(*place) == 1).fold(0, |byte, place| byte | 1 << place)
                    }
                }
            })
            .collect();
        bench.run_args(&[&b"set"[..], b"e", &expected]);
        bench.run("bitop xor difference r e");
        assert_eq!(bench.run("bitcount difference"), ":0", "{operation}");
    }
}

#[test]
fn fields_are_read_written_and_added_to() {
    let bad_type = "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
    check(&[
        ("bitfield s get u8 0 get i4 4 get u63 1 get i64 #0", "*4|:102|:6|:7381240782615871488|:7381240782615871488"),
        ("bitfield k set i8 #1 -100 get u8 8 incrby u2 7 5", "*3|:0|:156|:2"),
        ("strlen k", ":2"),
        ("bitfield k incrby i8 8 -100", "*1|:-72"),
        ("bitfield k overflow sat incrby i8 8 -100 overflow fail incrby i8 8 -100", "*2|:-128|$-1"),
        ("bitfield k overflow SAT set u4 0 100 set u4 0 -1 set i4 0 100 set i4 0 -100", "*4|:0|:15|:-1|:7"),
        ("bitfield k overflow wrap set u4 0 100 set u4 0 -1 get u4 0", "*3|:8|:4|:15"),
        ("bitfield k set i64 0 9223372036854775807 incrby i64 0 1", "*2|:-1044835113549955072|:-9223372036854775808"),
        ("bitfield k overflow sat incrby i64 0 -1 incrby i64 0 9223372036854775807", "*2|:-9223372036854775808|:-1"),
        ("bitfield k overflow fail incrby i64 0 -9223372036854775808", "*1|$-1"),
        // A number far below the minimum counts as too large, as in Redis and Valkey.
        ("bitfield f overflow sat set i8 0 -9223372036854775681 get i8 0", "*2|:0|:127"),
        ("bitfield f overflow sat set i8 0 -9223372036854775680 get i8 0", "*2|:127|:-128"),
        ("bitfield f overflow wrap set i8 0 -9223372036854775807 get i8 0", "*2|:-128|:1"),
        (
            "bitfield f overflow sat set i63 0 -9223372036854775807 get i63 0",
            "*2|:36028797018963968|:4611686018427387903",
        ),
        ("bitfield n get u8 0", "*1|:49"),
        ("object encoding n", "$3|int"),
        ("bitfield n set u8 0 50", "*1|:49"),
        ("get n", "$3|223"),
        ("bitfield none", "*0"),
        ("bitfield none get u8 0 get i3 77", "*2|:0|:0"),
        ("exists none", ":0"),
        ("bitfield s get u64 0", bad_type),
        ("bitfield s get i65 0", bad_type),
        ("bitfield s get i0 0", bad_type),
        ("bitfield s get i08 0", bad_type),
        ("bitfield s get I8 0", bad_type),
        ("bitfield s get \"\" 0", bad_type),
        ("bitfield s get u8 #", BAD_OFFSET),
        ("bitfield s get u8 #x", BAD_OFFSET),
        ("bitfield s get u8 -1", BAD_OFFSET),
        ("bitfield s get u8 #9223372036854775807", BAD_OFFSET),
        ("bitfield s get u8", SYNTAX),
        ("bitfield s set u8 0", SYNTAX),
        ("bitfield s foo", SYNTAX),
        ("bitfield s overflow", SYNTAX),
        ("bitfield s overflow foo", "-ERR Invalid OVERFLOW type specified"),
        ("bitfield s set u8 0 x", NOT_INTEGER),
        ("bitfield l", WRONG_TYPE),
        ("bitfield l set u8 0 1", WRONG_TYPE),
        ("bitfield_ro l get u8 0", WRONG_TYPE),
        ("bitfield_ro s set u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
        ("bitfield_ro s set u8 0 x", NOT_INTEGER),
        ("bitfield_ro s overflow sat get u8 0", "*1|:102"),
    ]);
    check_resp3(&[("bitfield k overflow fail set u1 0 2", "*1|_"), ("strlen k", ":1")]);
}

/// Compares with a model that uses one byte per bit.
#[test]
fn fields_of_every_width_and_offset_match_a_model() {
    let mut random = Random::new(11);
    let mut bench = Bench::default();
    bench.run_args(&[&b"set"[..], b"k", &[0x5a; 20]]);
    let mut model = bits_of(&[0x5a; 20]);
    for bits in (1..=63).chain(1..=63) {
        let offset = random.below(160 - bits);
        let value = random.next() & ((1 << bits) - 1);
        let field = &mut model[offset..offset + bits];
        let old = field.iter().fold(0u64, |value, bit| value << 1 | u64::from(*bit));
        field.iter_mut().rev().enumerate().for_each(|(at, bit)| *bit = value >> at & 1 == 1);
        let line = format!("bitfield k set u{bits} {offset} {value} get u{bits} {offset}");
        assert_eq!(bench.run(&line), format!("*2|:{old}|:{value}"), "{line}");
        let all = model.iter().filter(|bit| **bit).count();
        assert_eq!(bench.run("bitcount k"), format!(":{all}"), "{line}");
    }
}

#[test]
fn events_and_counts_of_changes_match_redis() {
    let mut bench = Bench::default();
    for (line, events) in [
        ("setbit k 3 0", "setbit k"),
        ("setbit k 3 0", ""),
        ("setbit k 3 1", "setbit k"),
        ("bitfield k set u4 0 1 set u4 0 1", ""),
        ("bitfield k set u4 0 2 set u4 0 1", "setbit k"),
        ("bitfield k get u4 0", ""),
        ("bitop or d k k", "set d"),
        ("bitop or d none", "del d"),
        ("bitop or d none", ""),
    ] {
        bench.run(line);
        assert_eq!(bench.events().join(","), events, "{line}");
    }
    assert_eq!(std::mem::take(&mut bench.effects.dirty), 6);
    // No change is counted although the string has grown, but it must be recorded.
    bench.effects.recording = true;
    let before = bench.effects.revision();
    bench.effects.begin();
    bench.check(&[("bitfield k overflow fail set u4 100 99", "*1|$-1"), ("strlen k", ":13")]);
    assert_eq!(bench.effects.dirty, 0);
    assert!(bench.effects.must_record() && bench.effects.revision() > before);
    bench.effects.begin();
    bench.check(&[("bitfield k overflow fail set u4 100 99", "*1|$-1")]);
    assert!(!bench.effects.must_record());
}

/// The result reuses the destination's memory, except if the destination is a source or a reply is sending it.
#[test]
fn large_results_are_right_with_and_without_memory_reuse() {
    let mut bench = Bench::default();
    let len = 300_000;
    for (key, at) in [("a", 1_000_000), ("b", 2_000_000), ("d", 100)] {
        bench.run(&format!("setrange {key} {} x", len - 1));
        bench.run(&format!("setbit {key} {at} 1"));
    }
    let expected = |count: usize| format!(":{count}");
    let ones = "x".bytes().map(u8::count_ones).sum::<u32>() as usize;
    bench.check(&[
        ("bitop or d a b", ":300000"),
        ("bitcount d", &expected(ones + 2)),
        ("bitop xor d d a", ":300000"),
        ("bitcount d", ":1"),
        ("getbit d 2000000", ":1"),
        ("bitop and d a a", ":300000"),
        ("bitcount d", &expected(ones + 1)),
        ("copy d e", ":1"),
        ("bitop or d b nokey", ":300000"),
        ("getbit e 1000000", ":1"),
        ("getbit d 2000000", ":1"),
        ("sadd s m", ":1"),
        ("bitop or d a s", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("getbit d 2000000", ":1"),
        ("set short y", "+OK"),
        ("bitop or d short nokey", ":1"),
        ("get d", "$1|y"),
        ("bitop or d nokey nokey", ":0"),
        ("exists d", ":0"),
    ]);
}

/// BITCOUNT recounts only the changed parts of a large string. Each command that changes a string must report the
/// changed part.
#[test]
fn bit_counts_of_a_large_string_follow_every_change() {
    let mut random = Random::new(11);
    let mut bench = Bench::default();
    let len = 200_000;
    bench.run(&format!("setrange k {} x", len - 1));
    bench.run("mset other abc small x");
    for round in 0..400 {
        let [byte, bit] = [random.below(len), random.below(8 * len)];
        match random.below(10) {
            0..3 => bench.run(&format!("setbit k {bit} {}", round % 2)),
            3 => bench.run(&format!("setrange k {byte} {}", "y".repeat(1 + random.below(40_000)))),
            4 => bench.run(&format!("append k {}", "z".repeat(random.below(5000)))),
            5 => bench.run(&format!(
                "bitfield k get u8 {} set u60 {bit} {} incrby i5 {} 3",
                bit / 3,
                random.next() >> 5,
                bit / 2
            )),
            6 => bench.run("bitop xor k k other"),
            7 => bench.run("copy k other replace"),
            8 => bench.run("bitop not k k"),
            _ => bench.run(&format!("setrange k {} end", len + random.below(50_000))),
        };
        // A copy has no cached counts.
        let [start, end] = [byte / 2, byte];
        for range in [String::new(), format!(" {start} {end}"), format!(" {bit} -1 bit")] {
            bench.run("copy k fresh replace");
            assert_eq!(
                bench.run(&format!("bitcount k{range}")),
                bench.run(&format!("bitcount fresh{range}")),
                "{round}"
            );
        }
    }
}
