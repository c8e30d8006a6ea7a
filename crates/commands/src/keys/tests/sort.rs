//! SORT, compared with Redis 7's replies.

use super::NOT_INTEGER;
use crate::testing::{Bench, check};

const NO_NUMBER: &str = "-ERR One or more scores can't be converted into double";

fn bench() -> Bench {
    let mut bench = Bench::default();
    bench.check(&[
        ("rpush l 3 1 2 10", ":4"),
        ("mset w_1 3 w_2 2 w_3 1 w_10 0", "+OK"),
        ("mset o_1 one o_2 two o_3 three", "+OK"),
        ("sadd s 3 1 2", ":3"),
        ("sadd st c b a", ":3"),
        ("zadd z 3 a 1 b 2 c", ":3"),
        ("hset h_1 f 9 n->m one", ":2"),
    ]);
    bench
}

#[test]
fn elements_are_sorted_as_numbers_or_texts() {
    bench().check(&[
        ("sort l", "*4|$1|1|$1|2|$1|3|$2|10"),
        ("sort l desc", "*4|$2|10|$1|3|$1|2|$1|1"),
        ("sort l alpha", "*4|$1|1|$2|10|$1|2|$1|3"),
        ("sort l ALPHA DESC", "*4|$1|3|$1|2|$2|10|$1|1"),
        ("sort l desc asc", "*4|$1|1|$1|2|$1|3|$2|10"),
        ("sort none", "*0"),
        ("set str x", "+OK"),
        ("sort str", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("sort l foo", "-ERR syntax error"),
        ("rpush f 1.5 1.25 -1 1e2 0x10 inf", ":6"),
        ("sort f", "*6|$2|-1|$4|1.25|$3|1.5|$4|0x10|$3|1e2|$3|inf"),
        ("rpush eq 1.0 1 01", ":3"),
        ("sort eq", "*3|$2|01|$1|1|$3|1.0"),
        ("sort eq desc", "*3|$3|1.0|$1|1|$2|01"),
        ("rpush sp \" 1\" 2 \"\"", ":3"),
        ("sort sp", "*3|$0||$2| 1|$1|2"),
        ("rpush words hello world \"\" 10 9", ":5"),
        ("sort words", NO_NUMBER),
        ("sort words alpha", "*5|$0||$2|10|$1|9|$5|hello|$5|world"),
        ("rpush nan nan", ":1"),
        ("sort nan", NO_NUMBER),
        ("rpush big 1e400", ":1"),
        ("sort big", NO_NUMBER),
        ("rpush space \" \"", ":1"),
        ("sort space", NO_NUMBER),
    ]);
}

#[test]
fn nearly_equal_elements_are_distinguished() {
    bench().check(&[
        // As doubles they are equal, so their texts decide.
        ("rpush near 9007199254740993 9007199254740992 -1", ":3"),
        ("sort near", "*3|$2|-1|$16|9007199254740992|$16|9007199254740993"),
        ("sort near desc", "*3|$16|9007199254740993|$16|9007199254740992|$2|-1"),
        ("rpush zeros 0.0 -0 0", ":3"),
        ("sort zeros", "*3|$2|-0|$1|0|$3|0.0"),
        ("sort zeros limit 0 1", "*1|$2|-0"),
        ("rpush long textual-2 textual textual-1 texture 12345678 1234567 12345679", ":7"),
        ("sort long alpha", "*7|$7|1234567|$8|12345678|$8|12345679|$7|textual|$9|textual-1|$9|textual-2|$7|texture"),
        ("sort long alpha desc limit 0 2", "*2|$7|texture|$9|textual-2"),
        ("mset e_1 \"\" e_2 a", "+OK"),
        ("sort l by e_* alpha", "*4|$1|3|$2|10|$1|1|$1|2"),
        ("sort l by e_* alpha desc", "*4|$1|2|$1|1|$1|3|$2|10"),
    ]);
}

#[test]
fn many_keys_are_looked_up_in_the_order_of_the_elements() {
    let mut bench = Bench::default();
    // More keys than are prefetched together.
    let count = 75;
    for i in 0..count {
        bench.run(&format!("rpush many {i}"));
        bench.run(&format!("set w_{i} {}", (i * 7) % count));
        bench.run(&format!("hset h_{i} f v{i}"));
    }
    let mut order: Vec<_> = (0..count).collect();
    order.sort_by_key(|i| (i * 7) % count);
    let mut expected = format!("*{}", 3 * count);
    for i in order {
        for value in [format!("v{i}"), i.to_string(), ((i * 7) % count).to_string()] {
            expected += &format!("|${}|{value}", value.len());
        }
    }
    bench.check(&[("sort many by w_* get h_*->f get # get w_*", &*expected)]);
}

#[test]
fn limit_returns_a_part_of_the_result() {
    bench().check(&[
        ("sort l limit 1 2", "*2|$1|2|$1|3"),
        ("sort l limit -1 2", "*2|$1|1|$1|2"),
        ("sort l limit 1 -1", "*3|$1|2|$1|3|$2|10"),
        ("sort l limit 1 0", "*0"),
        ("sort l limit 10 10", "*0"),
        ("sort l limit 9223372036854775807 9223372036854775807", "*0"),
        ("sort l limit -9223372036854775808 9223372036854775807", "*4|$1|1|$1|2|$1|3|$2|10"),
        ("sort l limit 3 9223372036854775807", "*1|$2|10"),
        ("sort l limit 0 x", NOT_INTEGER),
        ("sort l limit 0", "-ERR syntax error"),
        ("sort l limit", "-ERR syntax error"),
        ("sort l by w_* limit 1 2", "*2|$1|3|$1|2"),
        ("sort l by w_* limit 0 1 get #", "*1|$2|10"),
    ]);
}

#[test]
fn elements_are_sorted_by_other_keys() {
    bench().check(&[
        ("sort l by", "-ERR syntax error"),
        ("sort l by w_*", "*4|$2|10|$1|3|$1|2|$1|1"),
        ("sort l by x_*", "*4|$1|1|$2|10|$1|2|$1|3"),
        ("sort l by x_* desc", "*4|$1|3|$1|2|$2|10|$1|1"),
        ("sort l by o_*", NO_NUMBER),
        ("sort l by o_* alpha", "*4|$2|10|$1|1|$1|3|$1|2"),
        ("sort l by o_* alpha desc", "*4|$1|2|$1|3|$1|1|$2|10"),
        ("sort l by h_*->f", "*4|$2|10|$1|2|$1|3|$1|1"),
        ("sort l by h_*->", "*4|$1|1|$2|10|$1|2|$1|3"),
        ("sort l by h_*", "*4|$1|1|$2|10|$1|2|$1|3"),
        ("sort l by w_*->f", "*4|$1|1|$2|10|$1|2|$1|3"),
    ]);
}

#[test]
fn other_keys_are_returned() {
    bench().check(&[
        ("sort l get", "-ERR syntax error"),
        ("sort l by w_* get o_*", "*4|$-1|$5|three|$3|two|$3|one"),
        (
            "sort l by w_* get # get o_* get nostar",
            "*12|$2|10|$-1|$-1|$1|3|$5|three|$-1|$1|2|$3|two|$-1|$1|1|$3|one|$-1",
        ),
        ("rpush y 1", ":1"),
        ("sort y get h_*->f", "*1|$1|9"),
        ("sort y get h_*->n->m", "*1|$3|one"),
        ("sort y get h_*", "*1|$-1"),
        ("sort y get w_*->f", "*1|$-1"),
        ("mset pre1post v k1*2 w k1-> x ->k1 y", "+OK"),
        ("sort y get pre*post", "*1|$1|v"),
        ("sort y get k**2", "*1|$1|w"),
        ("sort y get k*->", "*1|$1|x"),
        ("sort y get ->k*", "*1|$1|y"),
    ]);
}

#[test]
fn elements_keep_their_order() {
    bench().check(&[
        ("sort l by nosort", "*4|$1|3|$1|1|$1|2|$2|10"),
        ("sort l by nosort desc", "*4|$2|10|$1|2|$1|1|$1|3"),
        ("sort l by nosort limit 1 2", "*2|$1|1|$1|2"),
        ("sort l by nosort desc limit 1 2", "*2|$1|2|$1|1"),
        ("sort l by nosort limit 5 2", "*0"),
        ("sort l by nosort by w_*", "*4|$1|3|$1|1|$1|2|$2|10"),
        ("sort z by nosort", "*3|$1|b|$1|c|$1|a"),
        ("sort z by nosort desc", "*3|$1|a|$1|c|$1|b"),
        ("sort z by nosort limit 1 1", "*1|$1|c"),
        ("sort z by nosort limit 1 -1", "*2|$1|c|$1|a"),
        ("sort z by nosort desc limit 1 -1", "*2|$1|c|$1|b"),
        ("sort z by nosort desc limit 0 2 get o_* get #", "*4|$-1|$1|a|$-1|$1|c"),
        ("sort z alpha desc", "*3|$1|c|$1|b|$1|a"),
        ("sort s by nosort", "*3|$1|1|$1|2|$1|3"),
        ("sort s by nosort limit 1 1", "*1|$1|2"),
        ("sort s desc", "*3|$1|3|$1|2|$1|1"),
        ("sort st alpha", "*3|$1|a|$1|b|$1|c"),
        ("sort st", NO_NUMBER),
        ("sort st by nosort store dst", ":3"),
        ("lrange dst 0 -1", "*3|$1|a|$1|b|$1|c"),
    ]);
}

#[test]
fn a_script_sees_a_set_in_one_order_in_every_encoding() {
    let mut bench = bench();
    bench.run("sadd big z y x w v u t s r q");
    bench.run(&format!("sadd big {}", "x".repeat(100)));
    bench.in_script = true;
    bench.check(&[
        ("sort st by nosort", "*3|$1|a|$1|b|$1|c"),
        ("sort_ro st by nosort desc", "*3|$1|c|$1|b|$1|a"),
        ("sort st by nosort limit 1 1", "*1|$1|b"),
        ("sort big by nosort limit 0 3", "*3|$1|q|$1|r|$1|s"),
        ("sort l by nosort", "*4|$1|3|$1|1|$1|2|$2|10"),
        ("sort z by nosort", "*3|$1|b|$1|c|$1|a"),
    ]);
}

#[test]
fn the_result_is_stored() {
    bench().check(&[
        ("set dst old ex 10", "+OK"),
        ("sort l store dst", ":4"),
        ("ttl dst", ":-1"),
        ("lrange dst 0 -1", "*4|$1|1|$1|2|$1|3|$2|10"),
        ("sort l by w_* get o_* store dst", ":4"),
        ("lrange dst 0 -1", "*4|$0||$5|three|$3|two|$3|one"),
        ("sort l limit 10 10 store dst", ":0"),
        ("exists dst", ":0"),
        ("sort l store x store l", ":4"),
        ("lrange l 0 -1", "*4|$1|1|$1|2|$1|3|$2|10"),
        ("exists x", ":0"),
        ("sort_ro l desc", "*4|$2|10|$1|3|$1|2|$1|1"),
        ("sort_ro l store dst", "-ERR syntax error"),
        ("sort l store", "-ERR syntax error"),
    ]);
}

/// The first few results are found without sorting everything, in the same order.
#[test]
fn limit_on_a_long_list_equals_that_part_of_the_whole() {
    let mut bench = Bench::default();
    let mut random = store::random::Random::new(3);
    let elements: Vec<String> = (0..500).map(|_| random.below(100).to_string()).collect();
    bench.run(&format!("rpush l {}", elements.join(" ")));
    for how in ["", "desc", "alpha", "by *", "by x* alpha"] {
        let whole = bench.run(&format!("sort l {how}"));
        let whole: Vec<&str> = whole.split('|').skip(2).step_by(2).collect();
        for (start, count) in [(0, 1), (0, 10), (100, 50), (499, 5), (250, 250)] {
            let part = bench.run(&format!("sort l {how} limit {start} {count}"));
            let part: Vec<&str> = part.split('|').skip(2).step_by(2).collect();
            assert_eq!(part, whole[start..(start + count).min(500)], "{how} {start} {count}");
        }
    }
}

#[test]
fn keys_of_sort_are_found_among_its_options() {
    let (sort, store) = (find("sort"), ["sort", "abc", "by", "x_*", "limit", "0", "1", "store", "d", "get", "y"]);
    assert_eq!(keys(sort, &store), [1, 8]);
    assert_eq!(keys(sort, &["sort", "abc", "store", "d", "store", "e"]), [1, 5]);
    assert_eq!(keys(sort, &["sort", "abc", "store", "get", "store", "e"]), [1, 5]);
    assert_eq!(keys(sort, &["sort", "abc", "get", "store", "store", "e"]), [1, 5]);
    assert_eq!(keys(sort, &["sort", "abc", "store"]), [1]);
    assert_eq!(keys(find("sort_ro"), &store), [1]);
    check(&[("sort abc get store store e", ":0")]);
}

fn find(name: &str) -> &'static crate::spec::Info {
    &super::super::COMMANDS.iter().find(|s| s.info.name == name).unwrap().info
}

fn keys(info: &crate::spec::Info, words: &[&str]) -> Vec<usize> {
    let args = resp::request::OwnedArgs::new(words.iter().map(|w| w.as_bytes()));
    let mut keys = Vec::new();
    info.visit_keys(args.args(), |i| keys.push(i));
    keys
}
