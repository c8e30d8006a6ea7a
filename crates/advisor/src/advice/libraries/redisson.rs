//! Redisson. It names itself to no server.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

/// Redisson sends no command by its name, except in a script.
const BY_NAME: &str = r#"getScript(StringCodec.INSTANCE).eval<mode>(RScript.Mode.READ_WRITE, "return redis.call(<lua>)", RScript.ReturnType.VALUE, List.of(<key>)<passed>)"#;

pub const LIBRARY: Library = Library {
    language: "Java with Redisson",
    option: "redisson",
    library: "Redisson",
    identities: &["redisson"],
    syntax: Syntax::Java,
    client: "redisson.",
    pipe: "pipe.",
    modes: ["", "Async"],
    context: "",
    naming: Naming::None,
    by_name: [BY_NAME; 3],
    queued: "<call>",
    text: "<variable>",
    assign: "var <name> = <call>;",
    statement: "<call>;",
    client_calls: None,
    calls: &[
        ("GET", "getBucket(<key>).get<mode>()"),
        ("STRLEN", "getBucket(<key>).size<mode>()"),
        ("EXISTS", "getBucket(<key>).isExists<mode>()"),
        ("TOUCH", "getBucket(<key>).touch<mode>()"),
        ("PTTL", "getBucket(<key>).remainTimeToLive<mode>()"),
        ("SET", "getBucket(<key>).set<mode>(<value>)"),
        ("SET WITH OPTIONS", "getBucket(<key>).set<mode>(<value>, timeToLive)"),
        ("SETEX", "getBucket(<key>).set<mode>(<value>, Duration.ofSeconds(<seconds>))"),
        ("SETNX", "getBucket(<key>).setIfAbsent<mode>(<value>)"),
        ("GETSET", "getBucket(<key>).getAndSet<mode>(<value>)"),
        ("GETDEL", "getBucket(<key>).getAndDelete<mode>()"),
        ("DEL", "getBucket(<key>).delete<mode>()"),
        ("UNLINK", "getBucket(<key>).unlink<mode>()"),
        ("EXPIRE", "getBucket(<key>).expire<mode>(Duration.ofSeconds(<seconds>))"),
        ("PERSIST", "getBucket(<key>).clearExpire<mode>()"),
        ("INCR", "getAtomicLong(<key>).incrementAndGet<mode>()"),
        ("DECR", "getAtomicLong(<key>).decrementAndGet<mode>()"),
        ("INCRBY", "getAtomicLong(<key>).addAndGet<mode>(<amount>)"),
        ("DECRBY", "getAtomicLong(<key>).addAndGet<mode>(-<amount>)"),
        ("HGET", "getMap(<key>).get<mode>(<field>)"),
        ("HMGET", "getMap(<key>).getAll<mode>(Set.of(fields))"),
        ("HEXISTS", "getMap(<key>).containsKey<mode>(<field>)"),
        ("HLEN", "getMap(<key>).size<mode>()"),
        ("HGETALL", "getMap(<key>).readAllMap<mode>()"),
        ("HKEYS", "getMap(<key>).readAllKeySet<mode>()"),
        ("HVALS", "getMap(<key>).readAllValues<mode>()"),
        ("HSET", "getMap(<key>).fastPut<mode>(<field>, <value>)"),
        ("HSETNX", "getMap(<key>).fastPutIfAbsent<mode>(<field>, <value>)"),
        ("HDEL", "getMap(<key>).fastRemove<mode>(<field>)"),
        ("HINCRBY", "getMap(<key>).addAndGet<mode>(<field>, <amount>)"),
        ("LLEN", "getList(<key>).size<mode>()"),
        ("LINDEX", "getList(<key>).get<mode>(<index>)"),
        ("LRANGE", "getList(<key>).range<mode>(<start>, <stop>)"),
        ("RPUSH", "getList(<key>).add<mode>(<value>)"),
        ("LPUSH", "getDeque(<key>).addFirst<mode>(<value>)"),
        ("LPOP", "getDeque(<key>).pollFirst<mode>()"),
        ("RPOP", "getDeque(<key>).pollLast<mode>()"),
        ("SADD", "getSet(<key>).add<mode>(<member>)"),
        ("SREM", "getSet(<key>).remove<mode>(<member>)"),
        ("SISMEMBER", "getSet(<key>).contains<mode>(<member>)"),
        ("SMEMBERS", "getSet(<key>).readAll<mode>()"),
        ("SCARD", "getSet(<key>).size<mode>()"),
        ("SPOP", "getSet(<key>).removeRandom<mode>()"),
        ("ZADD", "getScoredSortedSet(<key>).add<mode>(<score>, <member>)"),
        ("ZSCORE", "<String>getScoredSortedSet(<key>).getScore<mode>(<member>)"),
        ("ZREM", "getScoredSortedSet(<key>).remove<mode>(<member>)"),
        ("ZRANK", "getScoredSortedSet(<key>).rank<mode>(<member>)"),
        ("ZREVRANK", "<String>getScoredSortedSet(<key>).revRank<mode>(<member>)"),
        ("ZCARD", "getScoredSortedSet(<key>).size<mode>()"),
        ("ZRANGE", "getScoredSortedSet(<key>).valueRange<mode>(<start>, <stop>)"),
        ("ZREVRANGE", "getScoredSortedSet(<key>).valueRangeReversed<mode>(<start>, <stop>)"),
        ("ZINCRBY", "getScoredSortedSet(<key>).addScore<mode>(<member>, <amount>)"),
        ("ZPOPMIN", "getScoredSortedSet(<key>).pollFirst<mode>()"),
        ("ZPOPMAX", "getScoredSortedSet(<key>).pollLast<mode>()"),
        ("PFADD", "getHyperLogLog(<key>).add<mode>(<element>)"),
        ("GEOADD", "getGeo(<key>).add<mode>(<longitude>, <latitude>, <member>)"),
        ("XADD", "getStream(<key>).add<mode>(StreamAddArgs.entry(<field>, <value>))"),
        ("XLEN", "getStream(<key>).size<mode>()"),
        ("PUBLISH", "getTopic(<key>).publish<mode>(<message>)"),
        // Scripts cannot call scripts.
        (
            "EVAL",
            "getScript(StringCodec.INSTANCE).eval<mode>(RScript.Mode.READ_WRITE, script, RScript.ReturnType.VALUE, List.of(<key>), <argument>)",
        ),
        (
            "EVAL_RO",
            "getScript(StringCodec.INSTANCE).eval<mode>(RScript.Mode.READ_ONLY, script, RScript.ReturnType.VALUE, List.of(<key>), <argument>)",
        ),
        (
            "EVALSHA",
            "getScript(StringCodec.INSTANCE).evalSha<mode>(RScript.Mode.READ_WRITE, sha, RScript.ReturnType.VALUE, List.of(<key>), <argument>)",
        ),
        (
            "EVALSHA_RO",
            "getScript(StringCodec.INSTANCE).evalSha<mode>(RScript.Mode.READ_ONLY, sha, RScript.ReturnType.VALUE, List.of(<key>), <argument>)",
        ),
        (
            "FCALL",
            "getFunction(StringCodec.INSTANCE).call<mode>(FunctionMode.WRITE, procedure, FunctionResult.VALUE, List.of(<key>), <argument>)",
        ),
        (
            "FCALL_RO",
            "getFunction(StringCodec.INSTANCE).call<mode>(FunctionMode.READ, procedure, FunctionResult.VALUE, List.of(<key>), <argument>)",
        ),
    ],
    forms: &[
        ("MGET", "redisson.getBuckets().get(items.stream().map(<binding> -> <key>).toArray(String[]::new))"),
        ("DEL", "redisson.getKeys().delete(items.stream().map(<binding> -> <key>).toArray(String[]::new))"),
        ("UNLINK", "redisson.getKeys().unlink(items.stream().map(<binding> -> <key>).toArray(String[]::new))"),
        ("TOUCH", "redisson.getKeys().touch(items.stream().map(<binding> -> <key>).toArray(String[]::new))"),
        (
            "MSET",
            "var pairs = new HashMap<String, String>();
<each>pairs.put(<key>, <value>);
redisson.getBuckets().set(pairs)",
        ),
        ("HMGET", "redisson.getMap(<key>).getAll(Set.of(members))"),
        ("HSET", "redisson.getMap(<key>).putAll(fields)"),
        ("HDEL", "redisson.<String, String>getMap(<key>).fastRemove(members)"),
        ("SADD", "redisson.getSet(<key>).addAll(List.of(members))"),
        ("SREM", "redisson.getSet(<key>).removeAll(List.of(members))"),
        ("SMISMEMBER", "redisson.getSet(<key>).containsEach(List.of(members))"),
        ("ZADD", "redisson.<String>getScoredSortedSet(<key>).addAll(scores)"),
        ("ZREM", "redisson.getScoredSortedSet(<key>).removeAll(List.of(members))"),
        ("ZMSCORE", "redisson.<String>getScoredSortedSet(<key>).getScore(List.of(members))"),
        ("RPUSH", "redisson.getList(<key>).addAll(List.of(members))"),
        ("LPUSH", "redisson.<String>getDeque(<key>).addFirst(members)"),
        ("PFADD", "redisson.getHyperLogLog(<key>).addAll(List.of(members))"),
        ("GEOADD", "redisson.getGeo(<key>).add(places)"),
        ("GEOPOS", "redisson.<String>getGeo(<key>).pos(members)"),
        ("XACK", "redisson.getStream(<key>).ack(group, entries)"),
        ("XDEL", "redisson.getStream(<key>).remove(entries)"),
        ("LPOP", "redisson.getDeque(<key>).pollFirst(<count>)"),
        ("RPOP", "redisson.getDeque(<key>).pollLast(<count>)"),
        ("SPOP", "redisson.getSet(<key>).removeRandom(<count>)"),
        ("ZPOPMIN", "redisson.getScoredSortedSet(<key>).pollFirst(<count>)"),
        ("ZPOPMAX", "redisson.getScoredSortedSet(<key>).pollLast(<count>)"),
        (
            "XREADGROUP",
            "var messages = redisson.getStream(<key>).readGroup(group, consumer, StreamReadGroupArgs.neverDelivered().count(100));
redisson.getStream(<key>).ack(group, messages.keySet().toArray(StreamMessageId[]::new));",
        ),
        ("GETEX", "redisson.getBucket(<key>).getAndExpire(Duration.ofSeconds(seconds))"),
        ("BLPOP", "redisson.getBlockingDeque(<key>).pollFirst(5, TimeUnit.SECONDS)"),
        ("BRPOP", "redisson.getBlockingDeque(<key>).pollLast(5, TimeUnit.SECONDS)"),
        ("BZPOPMIN", "redisson.getScoredSortedSet(<key>).pollFirst(5, TimeUnit.SECONDS)"),
        ("BZPOPMAX", "redisson.getScoredSortedSet(<key>).pollLast(5, TimeUnit.SECONDS)"),
        (
            "BLMOVE",
            "redisson.getBlockingDeque(<key>).move(Duration.ofSeconds(5), DequeMoveArgs.pollLast().addFirstTo(destination))",
        ),
        ("BLMPOP", "redisson.getBlockingDeque(<key>).pollFirst(5, TimeUnit.SECONDS)"),
        ("BZMPOP", "redisson.getScoredSortedSet(<key>).pollFirst(5, TimeUnit.SECONDS)"),
        (
            "wait XREADGROUP",
            "redisson.getStream(<key>).readGroup(group, consumer, StreamReadGroupArgs.neverDelivered().timeout(Duration.ofSeconds(5)))",
        ),
        ("XREAD", "redisson.getStream(<key>).read(StreamReadArgs.greaterThan(lastId).timeout(Duration.ofSeconds(5)))"),
        (
            "script",
            "var script = \"\"\"
  <body>
  \"\"\";
redisson.getScript(StringCodec.INSTANCE).eval(RScript.Mode.READ_WRITE, script, RScript.ReturnType.VALUE, List.of(<key>)<arguments>);",
        ),
        (
            "script hash",
            "var scripts = redisson.getScript(StringCodec.INSTANCE);
var sha = scripts.scriptLoad(SCRIPT); // once
scripts.evalSha(RScript.Mode.READ_WRITE, sha, RScript.ReturnType.VALUE, List.of(<key>));",
        ),
        (
            "script arguments",
            "var scripts = redisson.getScript(StringCodec.INSTANCE);
var sha = scripts.scriptLoad(SCRIPT); // once
scripts.evalSha(RScript.Mode.READ_WRITE, sha, RScript.ReturnType.VALUE, List.of(<key>), value);",
        ),
        (
            "told",
            "redisson.getTopic(<key>, StringCodec.INSTANCE).addListener(String.class, (channel, event) -> changed());",
        ),
        ("cluster", "// once, for the whole program\nvar config = new Config();\nconfig.useClusterServers().addNodeAddress(URL);\nvar redisson = Redisson.create(config);"),
        ("connection", "var redisson = Redisson.create(config);  // once, for the whole program"),
        ("pipeline", "var pipe = redisson.createBatch();\n<body>\npipe.execute();"),
        (
            "pipeline with replies",
            "var pipe = redisson.createBatch();\n<body>\nvar <replies> = pipe.execute().getResponses();",
        ),
        ("next pipeline", "pipe = redisson.createBatch();\n<body>\npipe.execute();"),
        (
            "next pipeline with replies",
            "pipe = redisson.createBatch();\n<body>\nvar <replies> = pipe.execute().getResponses();",
        ),
        (
            "transaction",
            "var options = BatchOptions.defaults().executionMode(BatchOptions.ExecutionMode.REDIS_WRITE_ATOMIC);
var pipe = redisson.createBatch(options);
<body>
pipe.execute();",
        ),
        ("chunks", "for (var items : Lists.partition(all, <count>)) {\n  <body>\n}"),
        ("page", "redisson.getList(<key>).range(start, start + <count> - 1)"),
        ("SCAN", "redisson.getKeys().getKeysByPattern(pattern, <count>).forEach(key -> use(key));"),
        ("HSCAN", "redisson.getMap(<key>).entrySet(<count>).forEach(entry -> use(entry));"),
        ("SSCAN", "redisson.getSet(<key>).iterator(<count>).forEachRemaining(member -> use(member));"),
        ("ZSCAN", "redisson.getScoredSortedSet(<key>).iterator(<count>).forEachRemaining(member -> use(member));"),
    ],
};
