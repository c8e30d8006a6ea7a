//! Lettuce.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

/// A nested output takes any reply, and holds a list.
const BY_NAME: &str = r#"dispatch(() -> "<command>".getBytes(), new NestedMultiOutput<>(StringCodec.UTF8), new CommandArgs<>(StringCodec.UTF8)<added>)"#;

pub const LIBRARY: Library = Library {
    language: "Java with Lettuce",
    option: "lettuce",
    library: "Lettuce",
    identities: &["lettuce"],
    syntax: Syntax::Java,
    client: "redis.",
    pipe: "pipe.",
    modes: ["", ""],
    context: "",
    naming: Naming::Words(&["SUBSTR", "SCAN", "HSCAN", "SSCAN", "ZSCAN", "HMSET"]),
    by_name: [BY_NAME; 3],
    // Asynchronous commands go out without a wait for the previous reply.
    queued: "<replies>.add(<call>)",
    text: "String.valueOf(<variable>)",
    assign: "var <name> = <call>;",
    statement: "<call>;",
    client_calls: None,
    calls: &[
        ("SET WITH OPTIONS", "set(<key>, <value>, options)"),
        ("ZCOUNT", "zcount(<key>, Range.create(<min>, <max>))"),
        ("GEODIST", "geodist(<key>, <member>, <other>, GeoArgs.Unit.m)"),
        ("MSET", "mset(Map.of(<key>, <value>))"),
        ("MSETNX", "msetnx(Map.of(<key>, <value>))"),
        ("XADD", "xadd(<key>, Map.of(<field>, <value>))"),
    ],
    forms: &[
        ("keys", "redis.<method>(items.stream().map(<binding> -> <key>).toArray(String[]::new))"),
        (
            "MSET",
            "var pairs = new HashMap<String, String>();
<each>pairs.put(<key>, <value>);
redis.mset(pairs)",
        ),
        ("members", "redis.<method>(<key>, members)"),
        ("entries", "redis.<method>(<key>, <group>entries)"),
        ("HSET", "redis.hset(<key>, fields)"),
        ("GEOADD", "redis.geoadd(<key>, places)"),
        ("ZADD", "redis.zadd(<key>, scores)"),
        ("several", "redis.<method>(<key>, <count>)"),
        (
            "XREADGROUP",
            "var messages = redis.xreadgroup(Consumer.from(group, consumer), XReadArgs.Builder.count(100), StreamOffset.lastConsumed(<key>));
redis.xack(<key>, group, messages.stream().map(StreamMessage::getId).toArray(String[]::new));",
        ),
        ("GETEX", "redis.getex(<key>, GetExArgs.Builder.ex(seconds))"),
        ("wait", "// on a connection of its own, because other commands would wait, too\nredis.<method>(5, <key>)"),
        ("BLMOVE", "redis.blmove(<key>, destination, LMoveArgs.Builder.rightLeft(), 5)"),
        ("BLMPOP", "redis.blmpop(5, LMPopArgs.Builder.left(), <key>)"),
        ("BZMPOP", "redis.bzmpop(5, ZPopArgs.Builder.min(), <key>)"),
        (
            "wait XREADGROUP",
            "redis.xreadgroup(Consumer.from(group, consumer), XReadArgs.Builder.block(5000), StreamOffset.lastConsumed(<key>))",
        ),
        ("XREAD", "redis.xread(XReadArgs.Builder.block(5000), StreamOffset.from(<key>, lastId))"),
        (
            "script",
            "var script = \"\"\"
  <body>
  \"\"\";
redis.eval(script, ScriptOutputType.MULTI, new String[] {<key>}<arguments>);",
        ),
        (
            "script hash",
            "var sha = redis.scriptLoad(SCRIPT); // once
redis.evalsha(sha, ScriptOutputType.MULTI, <key>);",
        ),
        (
            "script arguments",
            "var sha = redis.scriptLoad(SCRIPT); // once
redis.evalsha(sha, ScriptOutputType.MULTI, new String[] {<key>}, value);",
        ),
        ("told", "pubsub.addListener(listener);\npubsub.sync().subscribe(<key>);"),
        ("cluster", "// once, for the whole program\nvar cluster = RedisClusterClient.create(URL);\ncluster.setOptions(ClusterClientOptions.builder().topologyRefreshOptions(ClusterTopologyRefreshOptions.builder().enableAllAdaptiveRefreshTriggers().build()).build());\nvar redis = cluster.connect().sync();"),
        (
            "connection",
            "var redis = RedisClient.create(URL).connect().sync();  // once, for the whole program: threads share it",
        ),
        (
            "pipeline",
            "var pipe = connection.async();
var <replies> = new ArrayList<RedisFuture<?>>();
<body>
LettuceFutures.awaitAll(Duration.ofMinutes(1), <replies>.toArray(RedisFuture[]::new));",
        ),
        (
            "next pipeline",
            "var <replies> = new ArrayList<RedisFuture<?>>();
<body>
LettuceFutures.awaitAll(Duration.ofMinutes(1), <replies>.toArray(RedisFuture[]::new));",
        ),
        (
            "transaction",
            "// on a connection of its own, because commands of other threads would join the transaction
var pipe = connection.async();
pipe.multi();
<body>
pipe.exec().get();",
        ),
        ("chunks", "for (var items : Lists.partition(all, <count>)) {\n  <body>\n}"),
        ("page", "redis.lrange(<key>, start, start + <count> - 1)"),
        (
            "SCAN",
            "var iterator = ScanIterator.scan(redis, ScanArgs.Builder.matches(pattern).limit(<count>));
while (iterator.hasNext()) {
  use(iterator.next());
}",
        ),
        (
            "scan",
            "var iterator = ScanIterator.<method>(redis, <key>, ScanArgs.Builder.limit(<count>));
while (iterator.hasNext()) {
  use(iterator.next());
}",
        ),
    ],
};
