//! Spring Data Redis, above Lettuce or Jedis.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

const BY_NAME: &str = r#"execute("<command>"<arguments>)"#;

/// Above Lettuce, a command by its name has a text as its reply. Other replies need a script.
const LIST: &str = r#"eval("return redis.call(<lua>)", ReturnType.MULTI, 1, <key><passed>)"#;
const NUMBER: &str = r#"eval("return redis.call(<lua>)", ReturnType.INTEGER, 1, <key><passed>)"#;

/// Calls of the template. Calls of a connection are for pipelines.
const OPERATIONS: &[(&str, &str)] = &[
    ("GET", "opsForValue().get(<key>)"),
    ("SET", "opsForValue().set(<key>, <value>)"),
    ("GETDEL", "opsForValue().getAndDelete(<key>)"),
    ("INCRBY", "opsForValue().increment(<key>, <amount>)"),
    ("DECRBY", "opsForValue().decrement(<key>, <amount>)"),
    ("HGET", "opsForHash().get(<key>, <field>)"),
    ("HSET", "opsForHash().put(<key>, <field>, <value>)"),
    ("HGETALL", "opsForHash().entries(<key>)"),
    ("HINCRBY", "opsForHash().increment(<key>, <field>, <amount>)"),
    ("LRANGE", "opsForList().range(<key>, <start>, <stop>)"),
    ("SISMEMBER", "opsForSet().isMember(<key>, <member>)"),
    ("ZADD", "opsForZSet().add(<key>, <member>, <score>)"),
    ("ZSCORE", "opsForZSet().score(<key>, <member>)"),
    ("ZINCRBY", "opsForZSet().incrementScore(<key>, <member>, <amount>)"),
    ("ZRANGE", "opsForZSet().range(<key>, <start>, <stop>)"),
    ("ZREVRANGE", "opsForZSet().reverseRange(<key>, <start>, <stop>)"),
    ("XADD", "opsForStream().add(<key>, Map.of(<field>, <value>))"),
    ("PUBLISH", "convertAndSend(<key>, <message>)"),
];

pub const LIBRARY: Library = Library {
    language: "Java with Spring Data Redis",
    option: "spring",
    library: "Spring Data Redis",
    identities: &["spring-data-redis"],
    syntax: Syntax::Java,
    client: "redis.",
    pipe: "pipe.",
    modes: ["", ""],
    context: "",
    naming: Naming::Camel,
    by_name: [
        r#"execute((RedisCallback<Object>) connection -> new DefaultStringRedisConnection(connection).execute("<command>"<arguments>))"#,
        BY_NAME,
        BY_NAME,
    ],
    queued: "<call>",
    text: "String.valueOf(<variable>)",
    assign: "var <name> = <call>;",
    statement: "<call>;",
    client_calls: Some(OPERATIONS),
    calls: &[
        ("SET WITH OPTIONS", "set(<key>, <value>, SetCondition.upsert(), expiration)"),
        ("PTTL", "pTtl(<key>)"),
        ("HMGET", "hMGet(<key>, fields)"),
        ("DUMP", r#"execute("DUMP", <key>)"#),
        ("MGET", "mGet(<key>)"),
        ("TIME", "time()"),
        ("SMISMEMBER", "sMIsMember(<key>, <member>)"),
        ("ZMSCORE", "zMScore(<key>, <member>)"),
        ("PFMERGE", "pfMerge(<key>, <source>)"),
        ("GEOADD", "geoAdd(<key>, new Point(<longitude>, <latitude>), <member>)"),
        ("GEOPOS", "geoPos(<key>, <member>)"),
        ("EVAL", "eval(script, returnType, 1, <key>, <argument>)"),
        ("EVAL_RO", "eval(script, returnType, 1, <key>, <argument>)"),
        ("EVALSHA", "evalSha(sha, returnType, 1, <key>, <argument>)"),
        ("EVALSHA_RO", "evalSha(sha, returnType, 1, <key>, <argument>)"),
        ("MEMORY", r#"eval("return redis.call('MEMORY', 'USAGE', KEYS[1])", ReturnType.INTEGER, 1, <key>)"#),
        ("BITFIELD", LIST),
        ("BITFIELD_RO", LIST),
        ("GEOSEARCH", LIST),
        ("HSCAN", LIST),
        ("LMPOP", LIST),
        ("SORT_RO", LIST),
        ("SSCAN", LIST),
        ("XINFO", LIST),
        ("XPENDING", LIST),
        ("XRANGE", LIST),
        ("XREAD", LIST),
        ("XREVRANGE", LIST),
        ("ZMPOP", LIST),
        ("ZRANGEBYLEX", LIST),
        ("ZSCAN", LIST),
        ("EXPIRETIME", NUMBER),
        ("PEXPIRETIME", NUMBER),
        ("SINTERCARD", NUMBER),
        ("SPUBLISH", NUMBER),
        ("ZLEXCOUNT", NUMBER),
    ],
    forms: &[
        ("MGET", "redis.opsForValue().multiGet(items.stream().map(<binding> -> <key>).toList())"),
        ("DEL", "redis.delete(items.stream().map(<binding> -> <key>).toList())"),
        ("UNLINK", "redis.unlink(items.stream().map(<binding> -> <key>).toList())"),
        (
            "TOUCH",
            "var keys = items.stream().map(<binding> -> <key>).toArray(String[]::new);
redis.execute((RedisCallback<Long>) connection -> new DefaultStringRedisConnection(connection).touch(keys))",
        ),
        (
            "MSET",
            "var pairs = new HashMap<String, String>();
<each>pairs.put(<key>, <value>);
redis.opsForValue().multiSet(pairs)",
        ),
        ("HMGET", "redis.opsForHash().multiGet(<key>, List.of(members))"),
        ("HSET", "redis.opsForHash().putAll(<key>, fields)"),
        ("HDEL", "redis.opsForHash().delete(<key>, (Object[]) members)"),
        ("SADD", "redis.opsForSet().add(<key>, members)"),
        ("SREM", "redis.opsForSet().remove(<key>, (Object[]) members)"),
        ("SMISMEMBER", "redis.opsForSet().isMember(<key>, (Object[]) members)"),
        ("ZADD", "redis.opsForZSet().add(<key>, scores)"),
        ("ZREM", "redis.opsForZSet().remove(<key>, (Object[]) members)"),
        ("ZMSCORE", "redis.opsForZSet().score(<key>, (Object[]) members)"),
        ("RPUSH", "redis.opsForList().rightPushAll(<key>, members)"),
        ("LPUSH", "redis.opsForList().leftPushAll(<key>, members)"),
        ("PFADD", "redis.opsForHyperLogLog().add(<key>, members)"),
        ("GEOADD", "redis.opsForGeo().add(<key>, places)"),
        ("GEOPOS", "redis.opsForGeo().position(<key>, members)"),
        ("XACK", "redis.opsForStream().acknowledge(<key>, group, entries)"),
        ("XDEL", "redis.opsForStream().delete(<key>, entries)"),
        ("LPOP", "redis.opsForList().leftPop(<key>, <count>)"),
        ("RPOP", "redis.opsForList().rightPop(<key>, <count>)"),
        ("SPOP", "redis.opsForSet().pop(<key>, <count>)"),
        ("ZPOPMIN", "redis.opsForZSet().popMin(<key>, <count>)"),
        ("ZPOPMAX", "redis.opsForZSet().popMax(<key>, <count>)"),
        (
            "XREADGROUP",
            "var messages = redis.opsForStream().read(Consumer.from(group, consumer), StreamReadOptions.empty().count(100), StreamOffset.create(<key>, ReadOffset.lastConsumed()));
redis.opsForStream().acknowledge(<key>, group, messages.stream().map(message -> message.getId()).toArray(RecordId[]::new));",
        ),
        ("GETEX", "redis.opsForValue().getAndExpire(<key>, Duration.ofSeconds(seconds))"),
        ("BLPOP", "redis.opsForList().leftPop(<key>, Duration.ofSeconds(5))"),
        ("BRPOP", "redis.opsForList().rightPop(<key>, Duration.ofSeconds(5))"),
        ("BZPOPMIN", "redis.opsForZSet().popMin(<key>, Duration.ofSeconds(5))"),
        ("BZPOPMAX", "redis.opsForZSet().popMax(<key>, Duration.ofSeconds(5))"),
        (
            "BLMOVE",
            "redis.opsForList().move(<key>, Direction.RIGHT, destination, Direction.LEFT, Duration.ofSeconds(5))",
        ),
        // The template has no method for these two.
        ("BLMPOP", "redis.opsForList().leftPop(<key>, Duration.ofSeconds(5))"),
        ("BZMPOP", "redis.opsForZSet().popMin(<key>, Duration.ofSeconds(5))"),
        (
            "wait XREADGROUP",
            "redis.opsForStream().read(Consumer.from(group, consumer), StreamReadOptions.empty().block(Duration.ofSeconds(5)), StreamOffset.create(<key>, ReadOffset.lastConsumed()))",
        ),
        (
            "XREAD",
            "redis.opsForStream().read(StreamReadOptions.empty().block(Duration.ofSeconds(5)), StreamOffset.create(<key>, ReadOffset.from(lastId)))",
        ),
        (
            "script",
            "// resultType: Long.class if the last command replies with a number, otherwise String.class
var script = RedisScript.of(\"\"\"
  <body>
  \"\"\", resultType);
redis.execute(script, List.of(<key>)<arguments>);",
        ),
        (
            "script hash",
            "// once; calls use EVALSHA. resultType: String.class, Long.class or List.class
var script = RedisScript.of(SCRIPT, resultType);
redis.execute(script, List.of(<key>));",
        ),
        (
            "script arguments",
            "// once; calls use EVALSHA. resultType: String.class, Long.class or List.class
var script = RedisScript.of(SCRIPT, resultType);
redis.execute(script, List.of(<key>), value);",
        ),
        ("told", "listeners.addMessageListener(listener, new ChannelTopic(<key>));"),
        ("cluster", "// once, for the whole program: Spring Boot makes both from spring.data.redis.cluster.nodes\nvar factory = new LettuceConnectionFactory(new RedisClusterConfiguration(List.of(host + \":\" + port)));\nfactory.start();\nvar redis = new StringRedisTemplate(factory);"),
        (
            "connection",
            "// once, for the whole program: Spring Boot makes both
var factory = new LettuceConnectionFactory(host, port);
factory.start();
var redis = new StringRedisTemplate(factory);",
        ),
        (
            "pipeline",
            "redis.executePipelined((RedisCallback<Object>) connection -> {
  var pipe = new DefaultStringRedisConnection(connection);
  <body>
  return null;
});",
        ),
        (
            "pipeline with replies",
            "var <replies> = redis.executePipelined((RedisCallback<Object>) connection -> {
  var pipe = new DefaultStringRedisConnection(connection);
  <body>
  return null;
});",
        ),
        (
            "transaction",
            "redis.executePipelined((RedisCallback<Object>) connection -> {
  var pipe = new DefaultStringRedisConnection(connection);
  pipe.multi();
  <body>
  pipe.exec();
  return null;
});",
        ),
        ("chunks", "for (var items : Lists.partition(all, <count>)) {\n  <body>\n}"),
        ("page", "redis.opsForList().range(<key>, start, start + <count> - 1)"),
        (
            "SCAN",
            "try (var keys = redis.scan(ScanOptions.scanOptions().match(pattern).count(<count>).build())) {
  keys.forEachRemaining(key -> use(key));
}",
        ),
        (
            "HSCAN",
            "try (var entries = redis.opsForHash().scan(<key>, ScanOptions.scanOptions().count(<count>).build())) {
  entries.forEachRemaining(entry -> use(entry));
}",
        ),
        (
            "SSCAN",
            "try (var members = redis.opsForSet().scan(<key>, ScanOptions.scanOptions().count(<count>).build())) {
  members.forEachRemaining(member -> use(member));
}",
        ),
        (
            "ZSCAN",
            "try (var members = redis.opsForZSet().scan(<key>, ScanOptions.scanOptions().count(<count>).build())) {
  members.forEachRemaining(member -> use(member));
}",
        ),
    ],
};
