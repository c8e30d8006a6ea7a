//! Predis.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

/// Commands without a method in Predis 1, or whose method takes its arguments in another form.
const BY_NAME: &[&str] = &[
    "COPY",
    "EXPIRETIME",
    "GEOADD",
    "GETDEL",
    "HMSET",
    "HRANDFIELD",
    "HSCAN",
    "LPOS",
    "MSET",
    "MSETNX",
    "PEXPIRETIME",
    "SCAN",
    "SMISMEMBER",
    "SPUBLISH",
    "SSCAN",
    "SUBSTR",
    "TOUCH",
    "UNLINK",
    "XACK",
    "XDEL",
    "XLEN",
    "XPENDING",
    "ZMSCORE",
    "ZPOPMAX",
    "ZPOPMIN",
    "ZSCAN",
];

pub const LIBRARY: Library = Library {
    language: "PHP with Predis",
    option: "predis",
    library: "Predis",
    identities: &["predis"],
    syntax: Syntax::Php,
    client: "$redis->",
    pipe: "$pipe->",
    modes: ["", ""],
    context: "",
    naming: Naming::Words(BY_NAME),
    by_name: [
        r#"executeCommand(RawCommand::create("<command>"<arguments>))"#,
        r#"executeCommand(RawCommand::create("<command>"<arguments>))"#,
        r#"executeCommand(RawCommand::create("<command>"))"#,
    ],
    queued: "<call>",
    text: "<variable>",
    assign: "<name> = <call>;",
    statement: "<call>;",
    client_calls: None,
    calls: &[
        ("SET WITH OPTIONS", "set(<key>, <value>, ...$options)"),
        ("ZADD", "zadd(<key>, [<member> => <score>])"),
        ("SADD", "sadd(<key>, [<member>])"),
        ("SREM", "srem(<key>, [<member>])"),
        ("HDEL", "hdel(<key>, [<field>])"),
        ("GEOPOS", "geopos(<key>, [<member>])"),
        ("LPUSH", "lpush(<key>, [<value>])"),
        ("RPUSH", "rpush(<key>, [<value>])"),
        ("PFADD", "pfadd(<key>, [<element>])"),
    ],
    forms: &[
        ("TOUCH", "$keys = [];\n<each>$keys[] = <key>;\n$redis->executeCommand(RawCommand::create(\"TOUCH\", ...$keys))"),
        ("UNLINK", "$keys = [];\n<each>$keys[] = <key>;\n$redis->executeCommand(RawCommand::create(\"UNLINK\", ...$keys))"),
        ("keys", "$keys = [];\n<each>$keys[] = <key>;\n$redis-><method>($keys)"),
        ("MSET", "$pairs = [];\n<each>$pairs[<key>] = <value>;\n$redis->mset($pairs)"),
        ("members", "$redis-><method>(<key>, $members)"),
        ("SMISMEMBER", "$redis->executeCommand(RawCommand::create(\"SMISMEMBER\", <key>, ...$members))"),
        ("ZMSCORE", "$redis->executeCommand(RawCommand::create(\"ZMSCORE\", <key>, ...$members))"),
        ("entries", "$redis->executeCommand(RawCommand::create(\"<command>\", <key>, <group>...$entries))"),
        ("HSET", "$redis->hmset(<key>, $fields)"),
        ("ZADD", "$redis->zadd(<key>, array_column($items, 1, 0))"),
        ("GEOADD", "$redis->executeCommand(RawCommand::create(\"GEOADD\", <key>, ...array_merge(...$items)))"),
        ("SPOP", "$redis->spop(<key>, <count>)"),
        ("several", "$redis->executeCommand(RawCommand::create(\"<command>\", <key>, <count>))"),
        (
            "XREADGROUP",
            r#"$streams = $redis->executeCommand(RawCommand::create("XREADGROUP", "GROUP", $group, $consumer, "COUNT", 100, "STREAMS", <key>, ">"));
$entries = array_column($streams[0][1], 0);
$redis->executeCommand(RawCommand::create("XACK", <key>, $group, ...$entries));"#,
        ),
        ("GETEX", r#"$redis->executeCommand(RawCommand::create("GETEX", <key>, "EX", $seconds))"#),
        ("BZPOPMIN", r#"$redis->executeCommand(RawCommand::create("BZPOPMIN", <key>, 5))"#),
        ("BZPOPMAX", r#"$redis->executeCommand(RawCommand::create("BZPOPMAX", <key>, 5))"#),
        ("wait", "$redis-><method>([<key>], 5)"),
        ("BLMOVE", r#"$redis->executeCommand(RawCommand::create("BLMOVE", <key>, $destination, "RIGHT", "LEFT", 5))"#),
        ("BLMPOP", r#"$redis->executeCommand(RawCommand::create("BLMPOP", 5, 1, <key>, "LEFT"))"#),
        ("BZMPOP", r#"$redis->executeCommand(RawCommand::create("BZMPOP", 5, 1, <key>, "MIN"))"#),
        (
            "wait XREADGROUP",
            r#"$redis->executeCommand(RawCommand::create("XREADGROUP", "GROUP", $group, $consumer, "BLOCK", 5000, "STREAMS", <key>, ">"))"#,
        ),
        ("XREAD", r#"$redis->executeCommand(RawCommand::create("XREAD", "BLOCK", 5000, "STREAMS", <key>, $lastId))"#),
        (
            "script",
            "$script = <<<'LUA'
  <body>
  LUA;
$redis->eval($script, 1, <key><arguments>);",
        ),
        ("script hash", "$sha = $redis->script(\"load\", SCRIPT);  // once\n$redis->evalsha($sha, 1, <key>);"),
        (
            "script arguments",
            "$sha = $redis->script(\"load\", SCRIPT);  // once\n$redis->evalsha($sha, 1, <key>, $value);",
        ),
        (
            "told",
            "$events = $redis->pubSubLoop();
$events->subscribe(<key>);
foreach ($events as $message) {
  changed();
}",
        ),
        ("cluster", "$redis = new Predis\\Client([\"tcp://{$host}:{$port}\"], [\"cluster\" => \"redis\"]);  // once, for the whole program"),
        (
            "connection",
            "// the connection is kept for the next requests
$redis = new Predis\\Client([\"host\" => $host, \"port\" => $port, \"persistent\" => true]);",
        ),
        ("pipeline", "$pipe = $redis->pipeline();\n<body>\n$pipe->execute();"),
        ("pipeline with replies", "$pipe = $redis->pipeline();\n<body>\n<replies> = $pipe->execute();"),
        (
            "transaction",
            "// transaction() would wait for the reply of each command
$pipe = $redis->pipeline();
$pipe->multi();
<body>
$pipe->exec();
$pipe->execute();",
        ),
        ("chunks", "foreach (array_chunk($all, <count>) as $items) {\n  <body>\n}"),
        ("page", "$redis->lrange(<key>, $start, $start + <count> - 1)"),
        (
            "SCAN",
            "foreach (new Predis\\Collection\\Iterator\\Keyspace($redis, $pattern, <count>) as $key) {
  handle($key);
}",
        ),
        (
            "HSCAN",
            "foreach (new Predis\\Collection\\Iterator\\HashKey($redis, <key>, null, <count>) as $field => $value) {
  handle($value);
}",
        ),
        (
            "SSCAN",
            "foreach (new Predis\\Collection\\Iterator\\SetKey($redis, <key>, null, <count>) as $member) {
  handle($member);
}",
        ),
        (
            "ZSCAN",
            "foreach (new Predis\\Collection\\Iterator\\SortedSetKey($redis, <key>, null, <count>) as $member => $score) {
  handle($member);
}",
        ),
    ],
};
