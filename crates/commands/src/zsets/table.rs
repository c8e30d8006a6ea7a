//! The family's entries.

use store::value::Type;

use super::{add, combine, pop, range, read};
use crate::Handler;
use crate::spec::flag::{BLOCKING, DENYOOM, FAST, MOVABLEKEYS, READONLY, WRITE};
use crate::spec::key_flag::{ACCESS, DELETE, OW, RO, RW, UPDATE};
use crate::spec::{Group, KeySpec, On, Spec};

/// The family's entries.
pub const COMMANDS: &[Spec<Handler>] = &On(Type::ZSet).entries([
    Spec::new("zadd", -4, WRITE | DENYOOM | FAST, add::zadd as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | UPDATE)])
        .items(3, 2)
        .docs(
            Group::SortedSet,
            "1.2.0",
            "O(log(N)) for each member, where N is the number of members",
            "Adds members to a sorted set, or changes their scores.",
            "key [NX | XX]:condition@3.0.2 [GT | LT]:comparison@6.2.0 [CH:change@3.0.2] [INCR:increment@3.0.2] \
             score:double member [score:double member ...]",
        )
        .history(&[
            ("2.4.0", "Several members."),
            ("3.0.2", "`XX`, `NX`, `CH` and `INCR`."),
            ("6.2.0", "`GT` and `LT`."),
        ]),
    Spec::new("zincrby", 4, WRITE | DENYOOM | FAST, add::zincrby as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | ACCESS | UPDATE)])
        .items(3, 1)
        .docs(
            Group::SortedSet,
            "1.2.0",
            "O(log(N)), where N is the number of members",
            "Increments the score of a member.",
            "key increment:integer member",
        ),
    Spec::new("zrem", -3, WRITE | FAST, add::zrem as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RW | DELETE)])
        .items(2, 1)
        .docs(
            Group::SortedSet,
            "1.2.0",
            "O(M*log(N)), where N is the number of members and M the number removed",
            "Removes members.",
            "key member [member ...]",
        )
        .history(&[("2.4.0", "Several members.")]),
    Spec::new("zcard", 2, READONLY | FAST, read::zcard as Handler).brief().keys(&[KeySpec::at(1, RO)]).docs(
        Group::SortedSet,
        "1.2.0",
        "O(1)",
        "Returns the number of members.",
        "key",
    ),
    Spec::new("zscore", 3, READONLY | FAST, read::zscore as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(2, 1)
        .docs(Group::SortedSet, "1.2.0", "O(1)", "Returns the score of a member.", "key member"),
    Spec::new("zmscore", -3, READONLY | FAST, read::zmscore as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(2, 1)
        .docs(
            Group::SortedSet,
            "6.2.0",
            "O(N), where N is the number of requested members",
            "Returns the scores of members.",
            "key member [member ...]",
        ),
    Spec::new("zrank", -3, READONLY | FAST, read::zrank as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(2, 2)
        .docs(
            Group::SortedSet,
            "2.0.0",
            "O(log(N))",
            "Returns the rank of a member, counted from the lowest score.",
            "key member [WITHSCORE]",
        )
        .history(&[("7.2.0", "`WITHSCORE`.")]),
    Spec::new("zrevrank", -3, READONLY | FAST, read::zrevrank as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .items(2, 2)
        .docs(
            Group::SortedSet,
            "2.0.0",
            "O(log(N))",
            "Returns the rank of a member, counted from the highest score.",
            "key member [WITHSCORE]",
        )
        .history(&[("7.2.0", "`WITHSCORE`.")]),
    Spec::new("zrandmember", -2, READONLY, read::zrandmember as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "6.2.0",
            "O(N), where N is the number of members returned",
            "Returns random members.",
            "key [count:integer [WITHSCORES]]",
        )
        .tips(&["nondeterministic_output"]),
    Spec::new("zscan", -3, READONLY, read::zscan as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "2.8.0",
            "O(1) for every call; O(N) for a complete iteration, where N is the number of members",
            "Iterates over members and scores with a cursor.",
            "key cursor:integer [MATCH pattern:pattern] [COUNT count:integer] [NOSCORES]",
        )
        .history(&[("8.0.0", "`NOSCORES`, in Valkey.")])
        .tips(&["nondeterministic_output"]),
    Spec::new("zcount", 4, READONLY | FAST, range::zcount as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "2.0.0",
            "O(log(N))",
            "Counts the members whose scores are within a range.",
            "key min:double max:double",
        ),
    Spec::new("zlexcount", 4, READONLY | FAST, range::zlexcount as Handler)
        .brief()
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "2.8.9",
            "O(log(N))",
            "Counts the members within a lexicographical range.",
            "key min max",
        ),
    Spec::new("zrange", -4, READONLY, range::zrange as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "1.2.0",
            "O(log(N)+M), where N is the number of members and M the number returned",
            "Returns members within a range of ranks, scores or names.",
            "key start stop [BYSCORE | BYLEX]:sortby@6.2.0 [REV@6.2.0] [LIMIT@6.2.0 offset:integer count:integer] \
             [WITHSCORES]",
        )
        .history(&[("6.2.0", "`REV`, `BYSCORE`, `BYLEX` and `LIMIT`.")]),
    Spec::new("zrangestore", -5, WRITE | DENYOOM, range::zrangestore as Handler)
        .keys(&[KeySpec::at(1, OW | UPDATE), KeySpec::at(2, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "6.2.0",
            "O(log(N)+M), where N is the number of members and M the number stored",
            "Stores the members within a range in a key.",
            "dst src min max [BYSCORE | BYLEX]:sortby [REV] [LIMIT offset:integer count:integer]",
        ),
    Spec::new("zrangebyscore", -4, READONLY, range::zrangebyscore as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "1.0.5",
            "O(log(N)+M), where N is the number of members and M the number returned",
            "Returns the members whose scores are within a range.",
            "key min:double max:double [WITHSCORES@2.0.0] [LIMIT offset:integer count:integer]",
        )
        .history(&[("2.0.0", "`WITHSCORES`.")])
        .deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument"),
    Spec::new("zrevrangebyscore", -4, READONLY, range::zrevrangebyscore as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "2.2.0",
            "O(log(N)+M), where N is the number of members and M the number returned",
            "Returns the members whose scores are within a range, the highest first.",
            "key max:double min:double [WITHSCORES] [LIMIT offset:integer count:integer]",
        )
        .history(&[("2.1.6", "Exclusive bounds.")])
        .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments"),
    Spec::new("zrangebylex", -4, READONLY, range::zrangebylex as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "2.8.9",
            "O(log(N)+M), where N is the number of members and M the number returned",
            "Returns the members within a lexicographical range.",
            "key min max [LIMIT offset:integer count:integer]",
        )
        .deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument"),
    Spec::new("zrevrangebylex", -4, READONLY, range::zrevrangebylex as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "2.8.9",
            "O(log(N)+M), where N is the number of members and M the number returned",
            "Returns the members within a lexicographical range, the last first.",
            "key max min [LIMIT offset:integer count:integer]",
        )
        .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments"),
    Spec::new("zrevrange", -4, READONLY, range::zrevrange as Handler)
        .keys(&[KeySpec::at(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "1.2.0",
            "O(log(N)+M), where N is the number of members and M the number returned",
            "Returns the members within a range of ranks, the highest score first.",
            "key start:integer stop:integer [WITHSCORES]",
        )
        .deprecated("6.2.0", "`ZRANGE` with the `REV` argument"),
    Spec::new("zremrangebyrank", 4, WRITE, range::zremrangebyrank as Handler)
        .keys(&[KeySpec::at(1, RW | DELETE)])
        .docs(
            Group::SortedSet,
            "2.0.0",
            "O(log(N)+M), where N is the number of members and M the number removed",
            "Removes the members within a range of ranks.",
            "key start:integer stop:integer",
        ),
    Spec::new("zremrangebyscore", 4, WRITE, range::zremrangebyscore as Handler)
        .keys(&[KeySpec::at(1, RW | DELETE)])
        .docs(
            Group::SortedSet,
            "1.2.0",
            "O(log(N)+M), where N is the number of members and M the number removed",
            "Removes the members whose scores are within a range.",
            "key min:double max:double",
        ),
    Spec::new("zremrangebylex", 4, WRITE, range::zremrangebylex as Handler).keys(&[KeySpec::at(1, RW | DELETE)]).docs(
        Group::SortedSet,
        "2.8.9",
        "O(log(N)+M), where N is the number of members and M the number removed",
        "Removes the members within a lexicographical range.",
        "key min max",
    ),
    Spec::new("zpopmin", -2, WRITE | FAST, pop::zpopmin as Handler).keys(&[KeySpec::at(1, RW | ACCESS | DELETE)]).docs(
        Group::SortedSet,
        "5.0.0",
        "O(log(N)*M), where N is the number of members and M the number removed",
        "Removes and returns the members with the lowest scores.",
        "key [count:integer]",
    ),
    Spec::new("zpopmax", -2, WRITE | FAST, pop::zpopmax as Handler).keys(&[KeySpec::at(1, RW | ACCESS | DELETE)]).docs(
        Group::SortedSet,
        "5.0.0",
        "O(log(N)*M), where N is the number of members and M the number removed",
        "Removes and returns the members with the highest scores.",
        "key [count:integer]",
    ),
    Spec::new("zmpop", -4, WRITE | MOVABLEKEYS, pop::zmpop as Handler)
        .keys(&[KeySpec::counted(1, RW | ACCESS | DELETE)])
        .docs(
            Group::SortedSet,
            "7.0.0",
            "O(K) + O(M*log(N)), where K is the number of keys, N the number of members and M the number removed",
            "Removes and returns members of the first sorted set that has any.",
            "numkeys:integer key [key ...] <MIN | MAX>:where [COUNT count:integer]",
        ),
    Spec::new("bzpopmin", -3, WRITE | BLOCKING | FAST, pop::bzpopmin as Handler)
        .waits_for(Type::ZSet)
        .keys(&[KeySpec::range(1, -2, 1, RW | ACCESS | DELETE)])
        .docs(
            Group::SortedSet,
            "5.0.0",
            "O(log(N)), where N is the number of members",
            "Removes and returns the lowest member of the first sorted set that has any. Blocks until one has.",
            "key [key ...] timeout:double",
        )
        .history(&[("6.0.0", "Timeouts with fractions of a second.")]),
    Spec::new("bzpopmax", -3, WRITE | BLOCKING | FAST, pop::bzpopmax as Handler)
        .waits_for(Type::ZSet)
        .keys(&[KeySpec::range(1, -2, 1, RW | ACCESS | DELETE)])
        .docs(
            Group::SortedSet,
            "5.0.0",
            "O(log(N)), where N is the number of members",
            "Removes and returns the highest member of the first sorted set that has any. Blocks until one has.",
            "key [key ...] timeout:double",
        )
        .history(&[("6.0.0", "Timeouts with fractions of a second.")]),
    Spec::new("bzmpop", -5, WRITE | BLOCKING | MOVABLEKEYS, pop::bzmpop as Handler)
        .waits_for(Type::ZSet)
        .keys(&[KeySpec::counted(2, RW | ACCESS | DELETE)])
        .docs(
            Group::SortedSet,
            "7.0.0",
            "O(K) + O(M*log(N)), where K is the number of keys, N the number of members and M the number removed",
            "Removes and returns members of the first sorted set that has any. Blocks until one has.",
            "timeout:double numkeys:integer key [key ...] <MIN | MAX>:where [COUNT count:integer]",
        ),
    Spec::new("zunion", -3, READONLY | MOVABLEKEYS, combine::zunion as Handler)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "6.2.0",
            "O(N)+O(M*log(M)), where N is the number of all members and M the size of the result",
            "Returns the union of sorted sets.",
            "numkeys:integer key [key ...] [WEIGHTS weight:integer [weight:integer ...]] [AGGREGATE <SUM | MIN | \
             MAX | COUNT>] [WITHSCORES]",
        ),
    Spec::new("zinter", -3, READONLY | MOVABLEKEYS, combine::zinter as Handler)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "6.2.0",
            "O(N*K)+O(M*log(M)), where N is the size of the smallest of K sorted sets and M the size of the result",
            "Returns the intersection of sorted sets.",
            "numkeys:integer key [key ...] [WEIGHTS weight:integer [weight:integer ...]] [AGGREGATE <SUM | MIN | \
             MAX | COUNT>] [WITHSCORES]",
        ),
    Spec::new("zdiff", -3, READONLY | MOVABLEKEYS, combine::zdiff as Handler)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "6.2.0",
            "O(N*K)+O(M*log(M)), where N is the size of the first of K sorted sets and M the size of the result",
            "Returns the members of the first sorted set that the others don't have.",
            "numkeys:integer key [key ...] [WITHSCORES]",
        ),
    Spec::new("zunionstore", -4, WRITE | DENYOOM | MOVABLEKEYS, combine::zunionstore as Handler)
        .keys(&[KeySpec::at(1, OW | UPDATE), KeySpec::counted(2, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "2.0.0",
            "O(N)+O(M*log(M)), where N is the number of all members and M the size of the result",
            "Stores the union of sorted sets in a key.",
            "destination numkeys:integer key [key ...] [WEIGHTS weight:integer [weight:integer ...]] [AGGREGATE \
             <SUM | MIN | MAX | COUNT>]",
        ),
    Spec::new("zinterstore", -4, WRITE | DENYOOM | MOVABLEKEYS, combine::zinterstore as Handler)
        .keys(&[KeySpec::at(1, OW | UPDATE), KeySpec::counted(2, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "2.0.0",
            "O(N*K)+O(M*log(M)), where N is the size of the smallest of K sorted sets and M the size of the result",
            "Stores the intersection of sorted sets in a key.",
            "destination numkeys:integer key [key ...] [WEIGHTS weight:integer [weight:integer ...]] [AGGREGATE \
             <SUM | MIN | MAX | COUNT>]",
        ),
    Spec::new("zdiffstore", -4, WRITE | DENYOOM | MOVABLEKEYS, combine::zdiffstore as Handler)
        .keys(&[KeySpec::at(1, OW | UPDATE), KeySpec::counted(2, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "6.2.0",
            "O(N*K)+O(M*log(M)), where N is the size of the first of K sorted sets and M the size of the result",
            "Stores the members of the first sorted set that the others don't have in a key.",
            "destination numkeys:integer key [key ...]",
        ),
    Spec::new("zintercard", -3, READONLY | MOVABLEKEYS, combine::zintercard as Handler)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .docs(
            Group::SortedSet,
            "7.0.0",
            "O(N*K), where N is the number of members of the smallest of K sorted sets",
            "Counts the members of the intersection of sorted sets.",
            "numkeys:integer key [key ...] [LIMIT limit:integer]",
        ),
]);
