//! Jedis.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

pub const LIBRARY: Library = Library {
    language: "Java",
    option: "java",
    library: "Jedis",
    identities: &["jedis"],
    syntax: Syntax::Java,
    client: "jedis.",
    pipe: "pipe.",
    modes: ["", ""],
    context: "",
    naming: Naming::Java,
    by_name: [
        r#"sendCommand(() -> "<command>".getBytes()<arguments>)"#,
        r#"sendCommand(() -> "<command>".getBytes()<arguments>)"#,
        // Without an argument, two methods of a pipeline would fit.
        r#"sendCommand(new CommandArguments(() -> "<command>".getBytes()))"#,
    ],
    queued: "<call>",
    text: "String.valueOf(<variable>)",
    assign: "var <name> = <call>;",
    statement: "<call>;",
    client_calls: None,
    calls: &[
        ("SET WITH OPTIONS", "set(<key>, <value>, options)"),
    ],
    forms: &[
        ("keys", "jedis.<method>(items.stream().map(<binding> -> <key>).toArray(String[]::new))"),
        (
            "MSET",
            "var pairs = new ArrayList<String>();
<each>pairs.add(<key>);
<each>pairs.add(<value>);
jedis.mset(pairs.toArray(String[]::new))",
        ),
        ("members", "jedis.<method>(<key>, members)"),
        ("entries", "jedis.<method>(<key>, <group>entries)"),
        ("HSET", "jedis.hset(<key>, fields)"),
        ("GEOADD", "jedis.geoadd(<key>, coordinates)"),
        ("ZADD", "jedis.zadd(<key>, scores)"),
        ("several", "jedis.<method>(<key>, <count>)"),
        (
            "XREADGROUP",
            "var streams = jedis.xreadGroup(group, consumer, XReadGroupParams.xReadGroupParams().count(100), Map.of(<key>, StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY));
var entries = streams.get(0).getValue().stream().map(StreamEntry::getID).toArray(StreamEntryID[]::new);
jedis.xack(<key>, group, entries);",
        ),
        ("GETEX", "jedis.getEx(<key>, GetExParams.getExParams().ex(seconds))"),
        ("wait", "jedis.<method>(5.0, <key>)"),
        ("BLMOVE", "jedis.blmove(<key>, destination, ListDirection.RIGHT, ListDirection.LEFT, 5)"),
        ("BLMPOP", "jedis.blmpop(5, ListDirection.LEFT, <key>)"),
        ("BZMPOP", "jedis.bzmpop(5, SortedSetOption.MIN, <key>)"),
        (
            "wait XREADGROUP",
            "jedis.xreadGroup(group, consumer, XReadGroupParams.xReadGroupParams().block(5000), Map.of(<key>, StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY))",
        ),
        ("XREAD", "jedis.xread(XReadParams.xReadParams().block(5000), Map.of(<key>, lastId))"),
        (
            "script",
            "var script = \"\"\"
  <body>
  \"\"\";
jedis.eval(script, List.of(<key>), List.of(<texts>));",
        ),
        (
            "script hash",
            "var sha = jedis.scriptLoad(SCRIPT); // once\njedis.evalsha(sha, List.of(<key>), List.of());",
        ),
        (
            "script arguments",
            "var sha = jedis.scriptLoad(SCRIPT); // once\njedis.evalsha(sha, List.of(<key>), List.of(value));",
        ),
        ("told", "jedis.subscribe(listener, <key>);"),
        ("cluster", "// once, for the whole program; JedisCluster before Jedis 7.2\nvar jedis = RedisClusterClient.create(new HostAndPort(host, port));"),
        (
            "connection",
            "var jedis = RedisClient.create(URL);  // once, for the whole program; JedisPooled before Jedis 7.2",
        ),
        ("pipeline", "try (var pipe = jedis.pipelined()) {\n  <body>\n  pipe.sync();\n}"),
        (
            "pipeline with replies",
            "List<Object> <replies>;
try (var pipe = jedis.pipelined()) {
  <body>
  <replies> = pipe.syncAndReturnAll();
}",
        ),
        ("transaction", "try (var pipe = jedis.multi()) {\n  <body>\n  pipe.exec();\n}"),
        ("chunks", "for (var items : Lists.partition(all, <count>)) {\n  <body>\n}"),
        ("page", "jedis.lrange(<key>, start, start + <count> - 1)"),
        (
            "SCAN",
            "var cursor = \"0\";
do {
  var page = jedis.scan(cursor, new ScanParams().match(pattern).count(<count>));
  use(page.getResult());
  cursor = page.getCursor();
} while (!cursor.equals(\"0\"));",
        ),
        (
            "scan",
            "var cursor = \"0\";
do {
  var page = jedis.<method>(<key>, cursor, new ScanParams().count(<count>));
  use(page.getResult());
  cursor = page.getCursor();
} while (!cursor.equals(\"0\"));",
        ),
    ],
};
