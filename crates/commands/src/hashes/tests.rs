//! Expected replies come from a Redis server.

use std::collections::BTreeSet;

use crate::testing::{Bench, check, check_resp3};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";
const SYNTAX: &str = "-ERR syntax error";
const NOT_INTEGER: &str = "-ERR value is not an integer or out of range";
const NOT_FLOAT: &str = "-ERR value is not a valid float";
const OUT_OF_RANGE: &str = "-ERR value is out of range";

#[test]
fn setting_and_reading() {
    check(&[
        ("hset h a 1 b", "-ERR wrong number of arguments for 'hset' command"),
        ("hmset h a 1 b", "-ERR wrong number of arguments for 'hmset' command"),
        ("hset s a 1 b", "-ERR wrong number of arguments for 'hset' command"),
        ("hset h a 1 b 2", ":2"),
        ("hset h a 3 c 4", ":1"),
        ("hset h a ''", ":0"),
        ("hmset h d x e 5", "+OK"),
        ("hgetall h", "*10|$1|a|$0||$1|b|$1|2|$1|c|$1|4|$1|d|$1|x|$1|e|$1|5"),
        ("hkeys h", "*5|$1|a|$1|b|$1|c|$1|d|$1|e"),
        ("hvals h", "*5|$0||$1|2|$1|4|$1|x|$1|5"),
        ("hlen h", ":5"),
        ("hget h b", "$1|2"),
        ("hget h nofield", "$-1"),
        ("hmget h a nofield b b", "*4|$0||$-1|$1|2|$1|2"),
        ("hexists h a", ":1"),
        ("hexists h nofield", ":0"),
        ("hstrlen h d", ":1"),
        ("hstrlen h a", ":0"),
        ("hstrlen h nofield", ":0"),
        ("hsetnx h a 9", ":0"),
        ("hsetnx h f 9", ":1"),
        ("hsetnx new f 1", ":1"),
        ("hgetall new", "*2|$1|f|$1|1"),
        ("hdel h a nofield a b", ":2"),
        ("hdel h nofield", ":0"),
        ("hdel nokey a", ":0"),
        ("hdel new f", ":1"),
        ("hlen new", ":0"),
        ("hgetall h", "*8|$1|c|$1|4|$1|d|$1|x|$1|e|$1|5|$1|f|$1|9"),
    ]);
}

#[test]
fn keys_without_a_hash() {
    check(&[
        ("hget nokey a", "$-1"),
        ("hmget nokey a b", "*2|$-1|$-1"),
        ("hexists nokey a", ":0"),
        ("hstrlen nokey a", ":0"),
        ("hlen nokey", ":0"),
        ("hgetall nokey", "*0"),
        ("hkeys nokey", "*0"),
        ("hvals nokey", "*0"),
        ("set s x", "+OK"),
        ("hget s a", WRONG_TYPE),
        ("hmget s a b", WRONG_TYPE),
        ("hexists s a", WRONG_TYPE),
        ("hstrlen s a", WRONG_TYPE),
        ("hlen s", WRONG_TYPE),
        ("hgetall s", WRONG_TYPE),
        ("hkeys s", WRONG_TYPE),
        ("hvals s", WRONG_TYPE),
        ("hset s a 1", WRONG_TYPE),
        ("hset s a 1 b", "-ERR wrong number of arguments for 'hset' command"),
        ("hmset s a 1", WRONG_TYPE),
        ("hsetnx s a 1", WRONG_TYPE),
        ("hdel s a", WRONG_TYPE),
        ("hget h", "-ERR wrong number of arguments for 'hget' command"),
        ("hset h a", "-ERR wrong number of arguments for 'hset' command"),
        ("hset h", "-ERR wrong number of arguments for 'hset' command"),
        ("hdel h", "-ERR wrong number of arguments for 'hdel' command"),
    ]);
}

#[test]
fn adding_to_values() {
    check(&[
        ("set s x", "+OK"),
        ("hset s a", "-ERR wrong number of arguments for 'hset' command"),
        ("hincrby h n 5", ":5"),
        ("hincrby h n -7", ":-2"),
        ("hincrby h n 0", ":-2"),
        ("hget h n", "$2|-2"),
        ("hincrby h n abc", NOT_INTEGER),
        ("hincrby h n 1.5", NOT_INTEGER),
        ("hincrby s n abc", NOT_INTEGER),
        ("hincrby s n 1", WRONG_TYPE),
        (
            "hset h big 9223372036854775807 small -9223372036854775808 text x empty '' float 1.5 inf inf huge 1e4932 space ' 1'",
            ":8",
        ),
        ("hincrby h big 1", "-ERR increment or decrement would overflow"),
        ("hincrby h big -1", ":9223372036854775806"),
        ("hincrby h small -1", "-ERR increment or decrement would overflow"),
        ("hincrby h text 1", "-ERR hash value is not an integer"),
        ("hincrby h empty 1", "-ERR hash value is not an integer"),
        ("hincrby h float 1", "-ERR hash value is not an integer"),
        ("hincrby h space 1", "-ERR hash value is not an integer"),
        ("hincrby new n 9223372036854775807", ":9223372036854775807"),
        ("hincrbyfloat h n 0.1", "$4|-1.9"),
        ("hincrbyfloat h n 5.0e3", "$22|4998.10000000000000009"),
        ("hincrbyfloat h float -1.5", "$1|0"),
        ("hincrbyfloat h nofield 3.0e-2", "$4|0.03"),
        ("hincrbyfloat h float inf", "-ERR value is NaN or Infinity"),
        ("hincrbyfloat h float -infinity", "-ERR value is NaN or Infinity"),
        ("hincrbyfloat h float nan", NOT_FLOAT),
        ("hincrbyfloat h float abc", NOT_FLOAT),
        ("hincrbyfloat h float ''", NOT_FLOAT),
        ("hincrbyfloat s float abc", NOT_FLOAT),
        ("hincrbyfloat s float inf", "-ERR value is NaN or Infinity"),
        ("hincrbyfloat s float 1", WRONG_TYPE),
        ("hincrbyfloat h text 1", "-ERR hash value is not a float"),
        ("hincrbyfloat h empty 1", "-ERR hash value is not a float"),
        ("hincrbyfloat h space 1", "-ERR hash value is not a float"),
        ("hincrbyfloat h inf 1", "-ERR increment would produce NaN or Infinity"),
        ("hincrbyfloat h huge 1e4932", "-ERR increment would produce NaN or Infinity"),
        ("hincrbyfloat h big 1", "$19|9223372036854775807"),
        ("hget h big", "$19|9223372036854775807"),
        ("hlen new2", ":0"),
        ("hincrby new2 n x", NOT_INTEGER),
        ("hlen new2", ":0"),
    ]);
}

#[test]
fn random_fields() {
    check(&[
        ("set s x", "+OK"),
        ("hset r a 1", ":1"),
        ("hrandfield nokey", "$-1"),
        ("hrandfield nokey 5", "*0"),
        ("hrandfield nokey 5 withvalues", "*0"),
        ("hrandfield nokey -5", "*0"),
        ("hrandfield s", WRONG_TYPE),
        ("hrandfield s 1", WRONG_TYPE),
        ("hrandfield r", "$1|a"),
        ("hrandfield r 0", "*0"),
        ("hrandfield r 0 withvalues", "*0"),
        ("hrandfield r 1", "*1|$1|a"),
        ("hrandfield r 9223372036854775807", "*1|$1|a"),
        ("hrandfield r -3", "*3|$1|a|$1|a|$1|a"),
        ("hrandfield r 5 WithValues", "*2|$1|a|$1|1"),
        ("hrandfield r -2 withvalues", "*4|$1|a|$1|1|$1|a|$1|1"),
        ("hrandfield r abc", NOT_INTEGER),
        ("hrandfield r 99999999999999999999", NOT_INTEGER),
        (
            "hrandfield r -9223372036854775808",
            "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ),
        ("hrandfield r -9223372036854775807 withvalues", OUT_OF_RANGE),
        ("hrandfield r 9223372036854775807 withvalues", OUT_OF_RANGE),
        ("hrandfield r 4611686018427387904 withvalues", OUT_OF_RANGE),
        ("hrandfield r 4611686018427387903 withvalues", "*2|$1|a|$1|1"),
        ("hrandfield r 1 withvaluesx", SYNTAX),
        ("hrandfield r 1 withvalues x", SYNTAX),
        ("hrandfield r abc withvaluesx", NOT_INTEGER),
        ("hrandfield s abc", NOT_INTEGER),
    ]);
}

#[test]
fn scanning() {
    check(&[
        ("set s x", "+OK"),
        ("hset c 1 a 2 b ab c '' d", ":4"),
        ("hscan c 0", "*2|$1|0|*8|$1|1|$1|a|$1|2|$1|b|$2|ab|$1|c|$0||$1|d"),
        ("hscan c 0 count 1", "*2|$1|0|*8|$1|1|$1|a|$1|2|$1|b|$2|ab|$1|c|$0||$1|d"),
        ("hscan c 0 match '*'", "*2|$1|0|*8|$1|1|$1|a|$1|2|$1|b|$2|ab|$1|c|$0||$1|d"),
        ("hscan c 0 match '?*'", "*2|$1|0|*6|$1|1|$1|a|$1|2|$1|b|$2|ab|$1|c"),
        ("hscan c 0 match a*", "*2|$1|0|*2|$2|ab|$1|c"),
        ("hscan c 0 match ''", "*2|$1|0|*2|$0||$1|d"),
        ("hscan c 0 match a* count 100 match '[12]'", "*2|$1|0|*4|$1|1|$1|a|$1|2|$1|b"),
        ("hscan c 7", "*2|$1|0|*8|$1|1|$1|a|$1|2|$1|b|$2|ab|$1|c|$0||$1|d"),
        ("hscan c ' 1'", "*2|$1|0|*8|$1|1|$1|a|$1|2|$1|b|$2|ab|$1|c|$0||$1|d"),
        ("hscan c -1", "-ERR invalid cursor"),
        ("hscan c ''", "-ERR invalid cursor"),
        ("hscan nokey -1 bad", "-ERR invalid cursor"),
        ("hscan c 99999999999999999999", "-ERR invalid cursor"),
        ("hscan c abc", "-ERR invalid cursor"),
        ("hscan nokey abc", "-ERR invalid cursor"),
        ("hscan nokey 0 bad", "*2|$1|0|*0"),
        ("hscan nokey 12", "*2|$1|0|*0"),
        ("hscan s 0 bad", WRONG_TYPE),
        ("hscan s abc", "-ERR invalid cursor"),
        ("hscan c 0 bad", SYNTAX),
        ("hscan c 0 match", SYNTAX),
        ("hscan c 0 count", SYNTAX),
        ("hscan c 0 count 0", SYNTAX),
        ("hscan c 0 count -5", SYNTAX),
        ("hscan c 0 count abc", NOT_INTEGER),
        ("hscan c 0 count 9223372036854775807", "*2|$1|0|*8|$1|1|$1|a|$1|2|$1|b|$2|ab|$1|c|$0||$1|d"),
        ("hscan c 0 type hash", SYNTAX),
        ("hscan c 0 novalues", "*2|$1|0|*4|$1|1|$1|2|$2|ab|$0|"),
        ("hscan c 0 NOVALUES match a* count 5", "*2|$1|0|*1|$2|ab"),
        ("hscan c 0 novalues bad", SYNTAX),
    ]);
}

#[test]
fn resp3() {
    check_resp3(&[
        ("hset h a 1 b 2", ":2"),
        ("hgetall h", "%2|$1|a|$1|1|$1|b|$1|2"),
        ("hgetall nokey", "%0"),
        ("hkeys h", "*2|$1|a|$1|b"),
        ("hvals h", "*2|$1|1|$1|2"),
        ("hget h x", "_"),
        ("hmget h a x", "*2|$1|1|_"),
        ("hexists h a", ":1"),
        ("hset r a 1", ":1"),
        ("hrandfield r", "$1|a"),
        ("hrandfield nokey", "_"),
        ("hrandfield nokey 2", "*0"),
        ("hrandfield r 2 withvalues", "*1|*2|$1|a|$1|1"),
        ("hrandfield r -2 withvalues", "*2|*2|$1|a|$1|1|*2|$1|a|$1|1"),
        ("hrandfield r -2", "*2|$1|a|$1|a"),
        ("hrandfield h 2 withvalues", "*2|*2|$1|a|$1|1|*2|$1|b|$1|2"),
        ("hrandfield r 0 withvalues", "*0"),
        ("hrandfield nokey 1 withvalues", "*0"),
        ("hscan h 0", "*2|$1|0|*4|$1|a|$1|1|$1|b|$1|2"),
        ("hscan nokey 0", "*2|$1|0|*0"),
        ("hincrbyfloat r a 0.5", "$3|1.5"),
    ]);
}

#[test]
fn an_emptied_hash_leaves_no_key() {
    let mut bench = Bench::default();
    bench.check(&[
        ("hset h a 1 b 2", ":2"),
        ("hset h a 1", ":0"),
        ("hsetnx h a 1", ":0"),
        ("hincrby h a 1", ":2"),
        ("hincrby h a x", NOT_INTEGER),
        ("hincrbyfloat h a 1", "$1|3"),
        ("hdel h x", ":0"),
        ("hdel h a", ":1"),
        ("hdel h b a", ":1"),
        ("set h string", "+OK"),
    ]);
    let events = ["hset h", "hset h", "hincrby h", "hincrbyfloat h", "hdel h", "hdel h", "del h", "set h"];
    assert_eq!(bench.events(), events);
}

/// Extracts the fields from a reply of HRANDFIELD or HSCAN.
fn fields(reply: &str) -> Vec<&str> {
    reply.split('|').filter(|part| part.starts_with('f')).collect()
}

/// Creates a bench with a hash of 1000 fields.
fn with_large_hash() -> Bench {
    let mut bench = Bench::default();
    let texts = (0..1000).flat_map(|i| [format!("f{i:04}"), "v".to_string()]);
    let words: Vec<String> = ["hset", "h"].map(String::from).into_iter().chain(texts).collect();
    assert_eq!(bench.run_args(&words), ":1000");
    bench
}

#[test]
fn random_fields_of_a_large_hash() {
    let mut bench = with_large_hash();
    for (count, len, distinct) in [
        ("1", 1, 1),
        ("10", 10, 10),
        ("300", 300, 300),
        ("999", 999, 999),
        ("5000", 1000, 1000),
        ("-50000", 50_000, 1000),
    ] {
        let reply = bench.run(&format!("hrandfield h {count}"));
        assert!(reply.starts_with(&format!("*{len}|")), "{count}");
        let fields = fields(&reply);
        assert_eq!(fields.len(), len, "{count}");
        assert_eq!(fields.into_iter().collect::<BTreeSet<_>>().len(), distinct, "{count}");
    }
}

#[test]
fn hashes_convert_between_encodings() {
    let long = "x".repeat(65);
    for (command, form) in [
        (format!("hset h a {}", &long[1..]), "listpack"),
        (format!("hset h a {long}"), "hashtable"),
        (format!("hset h {long} a"), "hashtable"),
        // Redis considers all arguments, including values that a later argument replaces.
        (format!("hset h a {long} a b"), "hashtable"),
        (format!("hsetnx h a {long}"), "hashtable"),
        ("hincrby h a 5".to_string(), "listpack"),
        (format!("hincrbyfloat h {long} 5"), "hashtable"),
        (format!("hset h{}", " a 1".repeat(128)), "listpack"),
        (format!("hmset h{}", " a 1".repeat(129)), "hashtable"),
    ] {
        let mut bench = Bench::default();
        bench.run(&command);
        let encoding = bench.run("object encoding h");
        assert!(encoding.ends_with(&format!("|{form}")), "{command}: {encoding}");
    }
}

#[test]
fn a_random_reply_has_a_limit() {
    let mut bench = Bench::default();
    bench.rules.string_bytes_max = 70;
    let too_long = crate::sample::too_long(70);
    let too_long = format!("-{}", String::from_utf8_lossy(too_long.text()));
    let too_long = too_long.as_str();
    bench.check(&[
        ("hset h f v", ":1"),
        // Each field takes seven bytes, the array's header four.
        ("hrandfield h -9", "*9|$1|f|$1|f|$1|f|$1|f|$1|f|$1|f|$1|f|$1|f|$1|f"),
        ("hrandfield h -10", too_long),
        ("hrandfield h -12", too_long),
        ("hrandfield h -9223372036854775807", too_long),
        ("hrandfield h -5 withvalues", too_long),
        ("hrandfield h -1", "*1|$1|f"),
    ]);
}

#[test]
fn scanning_a_large_hash_in_steps() {
    let mut bench = with_large_hash();
    for (options, least) in [("", 10), ("count 1", 1), ("count 100", 100), ("count 10000", 1000)] {
        let (mut cursor, mut seen) = ("0".to_string(), BTreeSet::new());
        loop {
            let reply = bench.run(&format!("hscan h {cursor} {options}"));
            let found = fields(&reply);
            cursor = reply.split('|').nth(2).unwrap_or_default().to_string();
            assert!(found.len() >= least || cursor == "0", "{reply}");
            assert!(reply.contains(&format!("|*{}|", found.len() * 2)) || found.is_empty(), "{reply}");
            seen.extend(found.into_iter().map(String::from));
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen.len(), 1000, "{options}");
    }
}
