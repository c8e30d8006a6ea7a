use crate::testing::{Bench, check, check_resp3};

const SYNTAX: &str = "-ERR syntax error";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn adding_and_removing() {
    check(&[
        ("zadd z 1 a 2 b", ":2"),
        ("zadd z 1 a 3 b", ":0"),
        ("zadd z ch 1 a 4 b 5 c", ":2"),
        ("zadd z nx 9 a 9 d", ":1"),
        ("zadd z xx 7 a 7 e", ":0"),
        ("zadd z gt ch 6 a 8 a", ":1"),
        ("zadd z lt ch 9 a 7 a", ":1"),
        ("zadd z incr 2.5 a", "$3|9.5"),
        ("zadd z nx incr 2.5 a", "$-1"),
        ("zadd nokey xx incr 1 a", "$-1"),
        ("zadd nokey xx 1 a", ":0"),
        ("exists nokey", ":0"),
        ("zscore z a", "$3|9.5"),
        ("zadd z nx xx 1 a", "-ERR XX and NX options at the same time are not compatible"),
        ("zadd z gt lt 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible"),
        ("zadd z incr 1 a 2 b", "-ERR INCR option supports a single increment-element pair"),
        ("zadd z 1 a 2", SYNTAX),
        ("zadd z 1 a x b", "-ERR value is not a valid float"),
        ("zadd z nan a", "-ERR value is not a valid float"),
        ("zadd z +inf i", ":1"),
        ("zincrby z -inf i", "-ERR resulting score is not a number (NaN)"),
        ("zincrby z 1.5 new", "$3|1.5"),
        ("zrem z a new nothing", ":2"),
        ("zcard z", ":4"),
        ("zrem z b c d i", ":4"),
        ("exists z", ":0"),
        ("set s x", "+OK"),
        ("zadd s 1 a", WRONG_TYPE),
        ("zrem s a", WRONG_TYPE),
    ]);
}

#[test]
fn ranges() {
    check(&[
        ("zadd z 1 a 2 b 3 c 4 d", ":4"),
        ("zrange z 0 -1", "*4|$1|a|$1|b|$1|c|$1|d"),
        ("zrange z 1 2 rev withscores", "*4|$1|c|$1|3|$1|b|$1|2"),
        ("zrange z 5 9", "*0"),
        ("zrange z (1 3 byscore", "*2|$1|b|$1|c"),
        ("zrange z 3 (1 byscore rev", "*2|$1|c|$1|b"),
        ("zrange z -inf +inf byscore limit 1 2", "*2|$1|b|$1|c"),
        ("zrange z +inf -inf byscore rev limit 1 -1", "*3|$1|c|$1|b|$1|a"),
        ("zrange z -inf +inf byscore limit -1 2", "*0"),
        ("zrange z [b (d bylex", "*2|$1|b|$1|c"),
        (
            "zrange z 0 1 limit 0 1",
            "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ),
        ("zrange z - + bylex withscores", "-ERR syntax error, WITHSCORES not supported in combination with BYLEX"),
        ("zrange z a 1", "-ERR value is not an integer or out of range"),
        ("zrange z a 1 byscore", "-ERR min or max is not a float"),
        ("zrange z a b bylex", "-ERR min or max not valid string range item"),
        ("zrange z 0 1 limit 0", SYNTAX),
        ("zrevrange z 0 0", "*1|$1|d"),
        ("zrangebyscore z 2 3 withscores", "*4|$1|b|$1|2|$1|c|$1|3"),
        ("zrevrangebyscore z 3 2", "*2|$1|c|$1|b"),
        ("zrangebyscore z 2 3 rev", SYNTAX),
        ("zrangebylex z - (c", "*2|$1|a|$1|b"),
        ("zrevrangebylex z + [c", "*2|$1|d|$1|c"),
        ("zcount z (1 3", ":2"),
        ("zlexcount z [b +", ":3"),
        ("zrangestore out z 1 2", ":2"),
        ("zrange out 0 -1", "*2|$1|b|$1|c"),
        ("zrangestore out nokey 0 -1", ":0"),
        ("exists out", ":0"),
        ("zremrangebyrank z 0 0", ":1"),
        ("zremrangebyscore z 2 2", ":1"),
        ("zremrangebylex z [c [c", ":1"),
        ("zremrangebyrank z 0 -1", ":1"),
        ("exists z", ":0"),
        ("set s x", "+OK"),
        ("zrange s 0 1", WRONG_TYPE),
        ("zcount s 0 1", WRONG_TYPE),
    ]);
}

#[test]
fn reading_members_scores_and_ranks() {
    check(&[
        ("zadd z 1 a 2.5 b", ":2"),
        ("zrank z b", ":1"),
        ("zrevrank z b", ":0"),
        ("zrank z b withscore", "*2|:1|$3|2.5"),
        ("zrank z x", "$-1"),
        ("zrank z x withscore", "*-1"),
        ("zrank z b wrong", SYNTAX),
        ("zrank z b withscore x", "-ERR wrong number of arguments for 'zrank' command"),
        ("zmscore z a x b", "*3|$1|1|$-1|$3|2.5"),
        ("zmscore nokey a", "*1|$-1"),
        ("zrandmember z -2 withscores x", SYNTAX),
        ("zrandmember z 5 withscores", "*4|$1|a|$1|1|$1|b|$3|2.5"),
        ("zscan z 0", "*2|$1|0|*4|$1|a|$1|1|$1|b|$3|2.5"),
        ("zscan z 0 match b", "*2|$1|0|*2|$1|b|$3|2.5"),
        ("zscan z 0 novalues", SYNTAX),
        ("zscan z 0 noscores bad", SYNTAX),
        ("zscan z 0 noscores", "*2|$1|0|*2|$1|a|$1|b"),
        ("zscan z 0 match b NOSCORES count 5", "*2|$1|0|*1|$1|b"),
    ]);
    check_resp3(&[
        ("zadd z 1 a 2.5 b", ":2"),
        ("zscore z b", ",2.5"),
        ("zrange z 0 -1 withscores", "*2|*2|$1|a|,1|*2|$1|b|,2.5"),
        ("zpopmin z", "*2|$1|a|,1"),
        ("zpopmin z 1", "*1|*2|$1|b|,2.5"),
    ]);
}

#[test]
fn popping() {
    check(&[
        ("zadd z 1 a 2 b 3 c 4 d 5 e", ":5"),
        ("zpopmin z", "*2|$1|a|$1|1"),
        ("zpopmax z 2", "*4|$1|e|$1|5|$1|d|$1|4"),
        ("zpopmin z 0", "*0"),
        ("zpopmin z -1", "-ERR value is out of range, must be positive"),
        ("zpopmin z 1 2", SYNTAX),
        ("zmpop 2 nokey z min count 5", "*2|$1|z|*2|*2|$1|b|$1|2|*2|$1|c|$1|3"),
        ("zmpop 1 z min", "*-1"),
        ("zmpop 0 z min", "-ERR numkeys should be greater than 0"),
        ("zmpop 1 z min count 0", "-ERR count should be greater than 0"),
        ("zmpop 2 z min", SYNTAX),
        ("zmpop 1 z mid", SYNTAX),
        ("zpopmin nokey", "*0"),
    ]);
}

#[test]
fn blocking() {
    let mut bench = Bench::default();
    bench.check(&[("zadd z 1 a 2 b", ":2"), ("bzpopmin nokey z 0", "*3|$1|z|$1|a|$1|1")]);
    assert!(bench.wait.is_none());
    bench.check(&[("bzmpop 0 1 z max", "*2|$1|z|*1|*2|$1|b|$1|2"), ("bzpopmax z 0", "")]);
    assert!(bench.wait.is_some());
}

#[test]
fn combining() {
    check(&[
        ("zadd a 1 x 2 y 3 z", ":3"),
        ("zadd b 10 y 20 z 30 w", ":3"),
        ("sadd s x z", ":2"),
        ("zinter 2 a s withscores", "*4|$1|x|$1|2|$1|z|$1|4"),
        ("zdiffstore out 1 s", ":2"),
        ("zrange out 0 -1 withscores", "*4|$1|x|$1|1|$1|z|$1|1"),
        ("zunion 2 a b withscores", "*8|$1|x|$1|1|$1|y|$2|12|$1|z|$2|23|$1|w|$2|30"),
        ("zinter 2 a b weights 2 1 aggregate max withscores", "*4|$1|y|$2|10|$1|z|$2|20"),
        ("zdiff 2 a b withscores", "*2|$1|x|$1|1"),
        ("zunionstore out 2 a b aggregate min", ":4"),
        ("zrange out 0 -1 withscores", "*8|$1|x|$1|1|$1|y|$1|2|$1|z|$1|3|$1|w|$2|30"),
        ("zinterstore out 2 a nokey", ":0"),
        ("exists out", ":0"),
        ("zintercard 2 a b", ":2"),
        ("zintercard 2 a b limit 1", ":1"),
        ("zintercard 2 a b limit -1", "-ERR LIMIT can't be negative"),
        ("zunion 0 a", "-ERR at least 1 input key is needed for 'zunion' command"),
        ("zunion 3 a b", SYNTAX),
        ("zunion 1 a weights x", "-ERR weight value is not a float"),
        ("zunionstore out 1 a withscores", SYNTAX),
        ("zdiff 1 a weights 1", SYNTAX),
        // AGGREGATE COUNT of Redis 8.8: each input contributes its weight, whatever the scores.
        ("zunion 3 a b s aggregate count withscores", "*8|$1|w|$1|1|$1|x|$1|2|$1|y|$1|2|$1|z|$1|3"),
        ("zinter 2 a b weights 2 -5 aggregate count withscores", "*4|$1|y|$2|-3|$1|z|$2|-3"),
        ("zunionstore out 2 a b weights inf -inf aggregate count", ":4"),
        ("zrange out 0 -1 withscores", "*8|$1|w|$4|-inf|$1|y|$1|0|$1|z|$1|0|$1|x|$3|inf"),
        ("zinterstore out 2 a nokey aggregate count", ":0"),
        ("exists out", ":0"),
        ("zintercard 2 a b aggregate count", SYNTAX),
        ("set str x", "+OK"),
        ("zunion 2 a str", WRONG_TYPE),
    ]);
}

#[test]
fn events() {
    let mut bench = Bench::default();
    bench.check(&[
        ("zadd z 1 a 2 b", ":2"),
        ("zincrby z 1 a", "$1|2"),
        ("zadd z 2 a", ":0"),
        ("zpopmin z 2", "*4|$1|a|$1|2|$1|b|$1|2"),
    ]);
    assert_eq!(bench.events(), ["zadd z", "zincr z", "zpopmin z", "del z"]);
}
