//! A test that no command is missing.

use crate::registry::table;

/// The promised commands, by group; a bar separates a command from its subcommand.
const EXPECTED: &[&str] = &[
    // Strings.
    "append decr decrby delifeq get getdel getex getrange getset incr incrby incrbyfloat lcs mget mset msetnx psetex \
     set setex setnx setrange strlen substr",
    // Keys of any type, and databases.
    "copy dbsize del dump exists expire expireat expiretime flushall flushdb keys move object object|encoding \
     object|freq object|help object|idletime object|refcount persist pexpire pexpireat pexpiretime pttl randomkey \
     rename renamenx restore scan select sort sort_ro swapdb touch ttl type unlink",
    // Hashes.
    "hdel hexists hget hgetall hincrby hincrbyfloat hkeys hlen hmget hmset hrandfield hscan hset hsetnx hstrlen hvals",
    // Lists.
    "blmove blmpop blpop brpop brpoplpush lindex linsert llen lmove lmpop lpop lpos lpush lpushx lrange lrem lset ltrim \
     rpop rpoplpush rpush rpushx",
    // Sets.
    "sadd scard sdiff sdiffstore sinter sintercard sinterstore sismember smembers smismember smove spop srandmember \
     srem sscan sunion sunionstore",
    // Sorted sets.
    "bzmpop bzpopmax bzpopmin zadd zcard zcount zdiff zdiffstore zincrby zinter zintercard zinterstore zlexcount zmpop \
     zmscore zpopmax zpopmin zrandmember zrange zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex \
     zremrangebyrank zremrangebyscore zrevrange zrevrangebylex zrevrangebyscore zrevrank zscan zscore zunion \
     zunionstore",
    // Streams.
    "xack xadd xautoclaim xclaim xdel xgroup xgroup|create xgroup|createconsumer xgroup|delconsumer xgroup|destroy \
     xgroup|help xgroup|setid xinfo xinfo|consumers xinfo|groups xinfo|help xinfo|stream xlen xpending xrange xread \
     xreadgroup xrevrange xsetid xtrim",
    // Bits.
    "bitcount bitfield bitfield_ro bitop bitpos getbit setbit",
    // HyperLogLogs.
    "pfadd pfcount pfdebug pfmerge pfselftest",
    // Transactions.
    "discard exec multi unwatch watch",
    // Publish and subscribe.
    "psubscribe publish pubsub pubsub|channels pubsub|help pubsub|numpat pubsub|numsub pubsub|shardchannels \
     pubsub|shardnumsub punsubscribe spublish ssubscribe subscribe sunsubscribe unsubscribe",
    // Scripting.
    "fcall fcall_ro function function|delete function|dump function|flush function|help function|kill function|list \
     function|load function|restore function|stats",
    "eval eval_ro evalsha evalsha_ro script script|debug script|exists script|flush script|help script|kill script|load \
     script|show",
    // Connections.
    "auth client client|getname client|getredir client|help client|id client|info client|kill client|list \
     client|no-evict client|no-touch client|pause client|reply client|setinfo client|setname client|unblock \
     client|unpause echo hello ping quit reset",
    // The server.
    "bgrewriteaof bgsave command command|count command|docs command|getkeys command|getkeysandflags command|help command|info command|list \
     config config|get config|help config|resetstat config|rewrite config|set debug info lastsave latency \
     latency|doctor latency|graph latency|help latency|histogram latency|history latency|latest latency|reset lolwut \
     memory memory|help memory|usage monitor role save shutdown slowlog slowlog|get slowlog|help slowlog|len slowlog|reset \
     time",
];

#[test]
fn every_command_is_there() {
    let expected = EXPECTED.iter().flat_map(|group| group.split(' '));
    let missing: Vec<_> = expected.filter(|name| table().find_full(name.as_bytes()).is_none()).collect();
    assert!(missing.is_empty(), "missing: {}", missing.join(" "));
}
