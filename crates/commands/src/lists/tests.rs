//! Expected replies come from a Redis server.

use store::types::list::ListLimits;

use crate::call::{TimeoutReply, Wait};
use crate::testing::{Bench, check, check_resp3};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "-ERR syntax error";
const NOT_NEGATABLE: &str =
    "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";
const NOT_POSITIVE: &str = "-ERR value is out of range, must be positive";

#[test]
fn adding_at_the_ends() {
    check(&[
        ("rpush l a b c", ":3"),
        ("lpush l 1 2", ":5"),
        ("lrange l 0 -1", "*5|$1|2|$1|1|$1|a|$1|b|$1|c"),
        ("lpushx l 0", ":6"),
        ("rpushx l d e", ":8"),
        ("lpushx nokey a b", ":0"),
        ("rpushx nokey a", ":0"),
        ("set s x", "+OK"),
        ("lpush s a", WRONG_TYPE),
        ("rpushx s a", WRONG_TYPE),
        ("lpush l", "-ERR wrong number of arguments for 'lpush' command"),
        ("rpush", "-ERR wrong number of arguments for 'rpush' command"),
    ]);
}

#[test]
fn inserting_and_replacing() {
    check(&[
        ("linsert nokey middle a b", SYNTAX),
        ("linsert nokey before a b", ":0"),
        ("rpush l a b c b", ":4"),
        ("linsert l BEFORE b x", ":5"),
        ("linsert l after c y", ":6"),
        ("linsert l before zz y", ":-1"),
        ("lrange l 0 -1", "*6|$1|a|$1|x|$1|b|$1|c|$1|y|$1|b"),
        ("set s x", "+OK"),
        ("linsert s before a b", WRONG_TYPE),
        ("lset nokey abc x", "-ERR no such key"),
        ("lset s abc x", WRONG_TYPE),
        ("lset l abc x", NOT_INTEGER),
        ("lset l 6 x", "-ERR index out of range"),
        ("lset l -7 x", "-ERR index out of range"),
        ("lset l -9223372036854775808 x", "-ERR index out of range"),
        ("lset l 0 first", "+OK"),
        ("lset l -1 last", "+OK"),
        ("lrange l 0 -1", "*6|$5|first|$1|x|$1|b|$1|c|$1|y|$4|last"),
    ]);
}

#[test]
fn reading() {
    check(&[
        ("rpush l a b 12 -7", ":4"),
        ("set s x", "+OK"),
        ("llen l", ":4"),
        ("llen nokey", ":0"),
        ("llen s", WRONG_TYPE),
        ("lindex l 0", "$1|a"),
        ("lindex l -1", "$2|-7"),
        ("lindex l 4", "$-1"),
        ("lindex l -5", "$-1"),
        ("lindex l 9223372036854775807", "$-1"),
        ("lindex l -9223372036854775808", "$-1"),
        ("lindex l abc", NOT_INTEGER),
        ("lindex nokey abc", "$-1"),
        ("lindex s abc", WRONG_TYPE),
        ("lrange l 0 -1", "*4|$1|a|$1|b|$2|12|$2|-7"),
        ("lrange l -100 100", "*4|$1|a|$1|b|$2|12|$2|-7"),
        ("lrange l -3 -2", "*2|$1|b|$2|12"),
        ("lrange l 2 2", "*1|$2|12"),
        ("lrange l 3 2", "*0"),
        ("lrange l 4 9", "*0"),
        ("lrange l -9 -5", "*0"),
        ("lrange l -9223372036854775808 9223372036854775807", "*4|$1|a|$1|b|$2|12|$2|-7"),
        ("lrange l 9223372036854775807 -9223372036854775808", "*0"),
        ("lrange nokey 0 -1", "*0"),
        ("lrange nokey abc 1", NOT_INTEGER),
        ("lrange l 0 1.5", NOT_INTEGER),
        ("lrange s 0 1", WRONG_TYPE),
    ]);
}

#[test]
fn finding_positions() {
    check(&[
        ("rpush l a b c 1 2 3 c c", ":8"),
        ("set s x", "+OK"),
        ("lpos l c", ":2"),
        ("lpos l 2", ":4"),
        ("lpos l c rank -1", ":7"),
        ("lpos l c rank 2", ":6"),
        ("lpos l c rank 4", "$-1"),
        ("lpos l c RANK 1 rank -3", ":2"),
        ("lpos l c count 0", "*3|:2|:6|:7"),
        ("lpos l c count 0 rank -1", "*3|:7|:6|:2"),
        ("lpos l c count 2 rank 2", "*2|:6|:7"),
        ("lpos l c maxlen 3", ":2"),
        ("lpos l c maxlen 2", "$-1"),
        ("lpos l c maxlen 0", ":2"),
        ("lpos l c maxlen 1 rank -1 count 0", "*1|:7"),
        ("lpos l zz", "$-1"),
        ("lpos l zz count 0", "*0"),
        ("lpos nokey c", "$-1"),
        ("lpos nokey c count 0", "*0"),
        (
            "lpos nokey c rank 0",
            "-ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
        ),
        ("lpos s c", WRONG_TYPE),
        (
            "lpos l c rank 0",
            "-ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list",
        ),
        ("lpos l c rank abc", NOT_INTEGER),
        // Redis 7.0 accepts it as a rank.
        ("lpos l c rank -9223372036854775808", NOT_NEGATABLE),
        ("lpos l c count -1", "-ERR COUNT can't be negative"),
        ("lpos l c count abc", "-ERR COUNT can't be negative"),
        ("lpos l c maxlen -1", "-ERR MAXLEN can't be negative"),
        ("lpos l c maxlen x", "-ERR MAXLEN can't be negative"),
        ("lpos l c foo 1", SYNTAX),
        ("lpos l c rank", SYNTAX),
    ]);
}

#[test]
fn removing() {
    check(&[
        ("rpush l a b a c a b", ":6"),
        ("set s x", "+OK"),
        ("lrem l abc a", NOT_INTEGER),
        ("lrem nokey abc a", NOT_INTEGER),
        ("lrem nokey 1 a", ":0"),
        ("lrem s 1 a", WRONG_TYPE),
        ("lrem s -9223372036854775808 a", NOT_NEGATABLE),
        ("lrem l -9223372036854775808 a", NOT_NEGATABLE),
        ("lrem l -2 a", ":2"),
        ("lrange l 0 -1", "*4|$1|a|$1|b|$1|c|$1|b"),
        ("lrem l 1 b", ":1"),
        ("lrem l 0 zz", ":0"),
        ("lrange l 0 -1", "*3|$1|a|$1|c|$1|b"),
        ("lrem l 0 a", ":1"),
        ("lrem l 5 c", ":1"),
        ("lrem l -9223372036854775807 b", ":1"),
        ("get l", "$-1"),
        ("rpush l a b c d e", ":5"),
        ("ltrim l abc 1", NOT_INTEGER),
        ("ltrim s 0 1", WRONG_TYPE),
        ("ltrim nokey 0 1", "+OK"),
        ("ltrim l 0 -1", "+OK"),
        ("ltrim l 1 -2", "+OK"),
        ("lrange l 0 -1", "*3|$1|b|$1|c|$1|d"),
        ("ltrim l -1 -1", "+OK"),
        ("lrange l 0 -1", "*1|$1|d"),
        ("ltrim l 1 0", "+OK"),
        ("get l", "$-1"),
    ]);
}

#[test]
fn popping() {
    check(&[
        ("rpush l a b c d e f", ":6"),
        ("set s x", "+OK"),
        ("lpop l", "$1|a"),
        ("rpop l", "$1|f"),
        ("lpop l 1 2", "-ERR wrong number of arguments for 'lpop' command"),
        ("lpop l abc", NOT_POSITIVE),
        ("rpop l -1", NOT_POSITIVE),
        ("lpop nokey abc", NOT_POSITIVE),
        ("lpop nokey", "$-1"),
        ("rpop nokey 0", "*-1"),
        ("lpop nokey 1", "*-1"),
        ("lpop s", WRONG_TYPE),
        ("lpop s 0", WRONG_TYPE),
        ("lpop l 0", "*0"),
        ("lpop l 2", "*2|$1|b|$1|c"),
        ("rpop l 9223372036854775807", "*2|$1|e|$1|d"),
        ("get l", "$-1"),
        ("rpop l", "$-1"),
    ]);
}

#[test]
fn popping_from_the_first_of_several() {
    check(&[
        ("rpush l a b c d e", ":5"),
        ("set s x", "+OK"),
        ("lmpop 0 l left", "-ERR numkeys should be greater than 0"),
        ("lmpop abc l left", "-ERR numkeys should be greater than 0"),
        ("lmpop -1 l left", "-ERR numkeys should be greater than 0"),
        ("lmpop 2 l left", SYNTAX),
        ("lmpop 9223372036854775807 l left", SYNTAX),
        ("lmpop 1 l middle", SYNTAX),
        ("lmpop 1 l left count", SYNTAX),
        ("lmpop 1 l left count 0", "-ERR count should be greater than 0"),
        ("lmpop 1 l left count abc", "-ERR count should be greater than 0"),
        ("lmpop 1 l left count 1 count 2", SYNTAX),
        ("lmpop 1 l left count 1 foo", SYNTAX),
        ("lmpop 1 l left foo 1", SYNTAX),
        ("lmpop 1 nokey right", "*-1"),
        ("lmpop 2 s l right", WRONG_TYPE),
        ("lmpop 2 nokey l RIGHT COUNT 2", "*2|$1|l|*2|$1|e|$1|d"),
        ("lmpop 2 l s left", "*2|$1|l|*1|$1|a"),
        ("lmpop 3 nokey l l left count 100", "*2|$1|l|*2|$1|b|$1|c"),
        ("get l", "$-1"),
        ("lmpop 2 l nokey left", "*-1"),
    ]);
}

#[test]
fn moving() {
    check(&[
        ("rpush l a b c d", ":4"),
        ("set s x", "+OK"),
        ("lmove l m middle left", SYNTAX),
        ("lmove l m left middle", SYNTAX),
        ("lmove nokey s left right", "$-1"),
        ("rpoplpush nokey l", "$-1"),
        ("lmove s l left right", WRONG_TYPE),
        ("lmove l s left right", WRONG_TYPE),
        ("rpoplpush l s", WRONG_TYPE),
        ("lmove l m LEFT right", "$1|a"),
        ("lmove l m right left", "$1|d"),
        ("rpoplpush l m", "$1|c"),
        ("lrange m 0 -1", "*3|$1|c|$1|d|$1|a"),
        ("lmove l m left left", "$1|b"),
        ("get l", "$-1"),
        ("lrange m 0 -1", "*4|$1|b|$1|c|$1|d|$1|a"),
        ("lmove m m left right", "$1|b"),
        ("lmove m m right right", "$1|b"),
        ("lmove m m left left", "$1|c"),
        ("rpoplpush m m", "$1|b"),
        ("lrange m 0 -1", "*4|$1|b|$1|c|$1|d|$1|a"),
        ("rpush one x", ":1"),
        ("lmove one one left right", "$1|x"),
    ]);
}

#[test]
fn blocking_commands_that_find_something() {
    check(&[
        ("rpush l a b c d e f g h", ":8"),
        ("set s x", "+OK"),
        ("blpop nokey l 0", "*2|$1|l|$1|a"),
        ("brpop nokey l s 1.5", "*2|$1|l|$1|h"),
        ("blmpop 0 2 nokey l left", "*2|$1|l|*1|$1|b"),
        ("blmpop 0 1 l RIGHT count 2", "*2|$1|l|*2|$1|g|$1|f"),
        ("blmove l m left left 0", "$1|c"),
        ("brpoplpush l m 0", "$1|e"),
        ("lrange m 0 -1", "*2|$1|e|$1|c"),
        ("lrange l 0 -1", "*1|$1|d"),
        ("blpop nokey s l 0", WRONG_TYPE),
        ("blmpop 0 2 s l left", WRONG_TYPE),
        ("blmove s m left right 0", WRONG_TYPE),
        ("blmove m s left right 0", WRONG_TYPE),
        ("brpoplpush m s 0", WRONG_TYPE),
        ("blpop nokey abc", "-ERR timeout is not a float or out of range"),
        ("blpop m -1", "-ERR timeout is negative"),
        ("blmpop abc 0 l left", "-ERR numkeys should be greater than 0"),
        ("blmpop abc 1 l left", "-ERR timeout is not a float or out of range"),
        ("blmpop -1 1 nokey left", "-ERR timeout is negative"),
        ("blmpop 0 2 nokey left", SYNTAX),
        ("blmove l m left middle abc", SYNTAX),
        ("blmove l m left right abc", "-ERR timeout is not a float or out of range"),
        ("brpoplpush l m abc", "-ERR timeout is not a float or out of range"),
    ]);
}

#[test]
fn missing_values_in_resp3() {
    check_resp3(&[
        ("rpush l a", ":1"),
        ("lindex l 1", "_"),
        ("lpop nokey", "_"),
        ("lpop nokey 1", "_"),
        ("lpos l b", "_"),
        ("lmove nokey l left left", "_"),
        ("lmpop 1 nokey left", "_"),
        ("lmpop 1 l left", "*2|$1|l|*1|$1|a"),
    ]);
}

/// Checks each command's request to block; it must write no reply.
#[test]
fn blocking_commands_that_find_nothing() {
    use TimeoutReply::{Null, NullArray};
    let mut bench = Bench::default();
    bench.check(&[("set s x", "+OK")]);
    for (line, timeout_ms, reply) in [
        ("blpop a b 0", None, NullArray),
        ("brpop a 0.1", Some(100), NullArray),
        ("blmpop 2 2 a b left count 3", Some(2000), NullArray),
        ("blmove a b left right 0", None, Null),
        ("blmove a s left right 0", None, Null),
        ("brpoplpush a b 1", Some(1000), Null),
        ("blmovem a s left right 1 count 5 bulk", Some(1000), NullArray),
    ] {
        assert_eq!(bench.run(line), "", "{line}");
        assert_eq!(bench.wait, Some(Wait { timeout_ms, reply, again_ms: None }), "{line}");
    }
    assert_eq!(bench.run("blpop s 0"), WRONG_TYPE);
    assert_eq!(bench.wait, None);
    bench.check(&[("rpush a x", ":1"), ("blpop b a 0", "*2|$1|a|$1|x")]);
    assert_eq!(bench.wait, None);
}

#[test]
fn each_change_has_its_events() {
    let mut bench = Bench::default();
    for (line, expected) in [
        ("rpush l a b c d", &["rpush l"][..]),
        ("lpushx l z", &["lpush l"]),
        ("lpushx nokey z", &[]),
        ("linsert l before a q", &["linsert l"]),
        ("linsert l before nope q", &[]),
        ("lset l 0 r", &["lset l"]),
        ("lset l 99 r", &[]),
        ("lrem l 0 nope", &[]),
        ("lrem l 0 q", &["lrem l"]),
        ("ltrim l 0 -1", &["ltrim l"]),
        ("ltrim nokey 0 -1", &[]),
        ("ltrim l 0 2", &["ltrim l"]),
        ("lpop l", &["lpop l"]),
        ("lpop l 0", &[]),
        ("rpop l 2", &["rpop l", "del l"]),
        ("rpush l a b", &["rpush l"]),
        ("lmove l m left right", &["rpush m", "lpop l"]),
        ("lmove l l left right", &["rpush l", "lpop l"]),
        ("lmove l m right left", &["lpush m", "rpop l", "del l"]),
        ("rpush l a", &["rpush l"]),
        ("rpoplpush l l", &["lpush l", "rpop l"]),
        ("ltrim l 5 9", &["ltrim l", "del l"]),
        ("rpush l a a", &["rpush l"]),
        ("lrem l 0 a", &["lrem l", "del l"]),
        ("rpush l a b c", &["rpush l"]),
        ("lmpop 2 nokey l left count 2", &["lpop l"]),
        ("blmpop 0 1 l right", &["rpop l", "del l"]),
        ("rpush l a b", &["rpush l"]),
        ("blpop nokey l 0", &["lpop l"]),
        ("brpop l 0", &["rpop l", "del l"]),
        ("rpush l a b", &["rpush l"]),
        ("blmove l m left left 0", &["lpush m", "lpop l"]),
        ("brpoplpush l m 0", &["lpush m", "rpop l", "del l"]),
        ("lrange m 0 -1", &[]),
        ("rpush l a b c", &["rpush l"]),
        ("lmovem l m left right count 2 bulk", &["rpush m", "lpop l"]),
        ("blmovem l m right left 0", &["lpush m", "rpop l", "del l"]),
        ("rpush l a b", &["rpush l"]),
        ("lmovem l l left left count 2 obo", &["lpush l", "lpop l"]),
        ("lmovem l m left left exactly 3 obo", &[]),
    ] {
        bench.run(line);
        assert_eq!(bench.events(), expected, "{line}");
    }
}

/// Compares changes of lists of many nodes with a plain vector.
#[test]
fn long_lists_keep_their_order() {
    let mut bench = Bench::default();
    bench.rules.list = ListLimits::new(4);
    let mut model: Vec<String> = Vec::new();
    for i in 0..100 {
        let line = if i % 3 == 0 { format!("lpush l {i}") } else { format!("rpush l v{i}") };
        if i % 3 == 0 {
            model.insert(0, i.to_string())
        } else {
            model.push(format!("v{i}"))
        }
        assert_eq!(bench.run(&line), format!(":{}", model.len()));
    }
    let array = |items: &[String]| {
        let items = items.iter().map(|item| format!("|${}|{item}", item.len()));
        format!("*{}{}", items.len(), items.collect::<String>())
    };
    assert_eq!(bench.run("lrange l 0 -1"), array(&model));
    assert_eq!(bench.run("lrange l 40 -20"), array(&model[40..=80]));
    assert_eq!(bench.run("lpop l 10"), array(&model[..10]));
    model.drain(..10);
    let last: Vec<String> = model.iter().rev().take(10).cloned().collect();
    assert_eq!(bench.run("rpop l 10"), array(&last));
    model.truncate(80);
    assert_eq!(bench.run("lpos l 3"), format!(":{}", model.iter().position(|item| item == "3").unwrap()));
    assert_eq!(bench.run("ltrim l 7 -9"), "+OK");
    assert_eq!(bench.run("lrange l 0 -1"), array(&model[7..72]));
}

/// Replies and lists are from the tests and the documentation of Redis 8.10.
#[test]
fn several_elements_are_moved_in_either_order() {
    let rows = [
        ("left left count 2 obo", "b a", "b a x y", "c d"),
        ("left right count 2 obo", "a b", "x y a b", "c d"),
        ("right left count 2 obo", "c d", "c d x y", "a b"),
        ("right right count 2 obo", "d c", "x y d c", "a b"),
        ("left left exactly 2 bulk", "a b", "a b x y", "c d"),
        ("left right exactly 2 bulk", "a b", "x y a b", "c d"),
        ("right left exactly 2 bulk", "c d", "c d x y", "a b"),
        ("right right exactly 2 bulk", "c d", "x y c d", "a b"),
        ("left right", "a", "x y a", "b c d"),
        ("right right count 9 bulk", "a b c d", "x y a b c d", ""),
    ];
    let array = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        let items: String = words.iter().map(|word| format!("|$1|{word}")).collect();
        format!("*{}{items}", words.len())
    };
    for (how, reply, destination, source) in rows {
        for name in ["lmovem l m", "blmovem l m"] {
            let mut bench = Bench::default();
            bench.run("rpush l a b c d");
            bench.run("rpush m x y");
            let (ends, rest) = how.split_at(how.find(" count").or(how.find(" exactly")).unwrap_or(how.len()));
            let timeout = if name.starts_with('b') { " 0" } else { "" };
            bench.check(&[
                (&format!("{name} {ends}{timeout}{rest}"), &array(reply)),
                ("lrange m 0 -1", &array(destination)),
                ("lrange l 0 -1", &array(source)),
            ]);
        }
    }
}

/// Expected replies are from the tests and the documentation of Redis 8.10.
#[test]
fn several_elements_of_one_list_are_taken_before_they_are_put_back() {
    let rows = [
        ("left left count 2 obo", "*4|$1|b|$1|a|$1|c|$1|d"),
        ("left left count 2 bulk", "*4|$1|a|$1|b|$1|c|$1|d"),
        ("left right count 2 bulk", "*4|$1|c|$1|d|$1|a|$1|b"),
        ("right left exactly 3 obo", "*4|$1|b|$1|c|$1|d|$1|a"),
        ("right right count 9 obo", "*4|$1|d|$1|c|$1|b|$1|a"),
    ];
    for (how, expected) in rows {
        let mut bench = Bench::default();
        bench.run("rpush l a b c d");
        bench.run("expire l 100");
        bench.run(&format!("lmovem l l {how}"));
        bench.check(&[("lrange l 0 -1", expected), ("ttl l", ":100")]);
    }
}

#[test]
fn too_few_elements_are_not_moved() {
    let positive = "-ERR count should be greater than 0";
    let mut bench = Bench::default();
    bench.check(&[
        ("rpush l a b", ":2"),
        ("set s x", "+OK"),
        ("lmovem l m left right exactly 3 bulk", "*-1"),
        ("lmovem nokey m left right", "*-1"),
        ("lmovem nokey s left right count 5 bulk", "*-1"),
        ("lmovem l s left right count 2 bulk", WRONG_TYPE),
        ("lmovem s l left right", WRONG_TYPE),
        ("lmovem l m left right count 0 bulk", positive),
        ("lmovem l m left right exactly -1 bulk", positive),
        ("lmovem l m left right count a bulk", positive),
        ("lmovem l m left right count 2", SYNTAX),
        ("lmovem l m left right count 2 obo extra", SYNTAX),
        ("lmovem l m left right bad 2 obo", SYNTAX),
        ("lmovem l m left right count 2 bad", SYNTAX),
        ("lmovem l m bad right count 2 obo", SYNTAX),
        ("blmovem l m left right x count 2 obo", "-ERR timeout is not a float or out of range"),
        ("lrange l 0 -1", "*2|$1|a|$1|b"),
        ("exists m", ":0"),
    ]);
}

#[test]
fn a_move_that_may_wait_is_recorded_as_one_that_does_not() {
    let mut bench = Bench::default();
    bench.run("rpush a 1 2 3");
    assert_eq!(bench.recorded("brpoplpush a b 0"), ["*3 $9 RPOPLPUSH $1 a $1 b "]);
    assert_eq!(bench.recorded("blmove a b left right 0"), ["*5 $5 LMOVE $1 a $1 b $4 LEFT $5 RIGHT "]);
}
