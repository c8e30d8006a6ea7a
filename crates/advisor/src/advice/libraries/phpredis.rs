//! phpredis, the extension `redis` of PHP. It names itself to no server.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

/// Commands without a method in phpredis 5, or whose method takes its arguments in another form.
const BY_NAME: &[&str] = &[
    "COPY",
    "EXPIRETIME",
    "GETDEL",
    "HMSET",
    "HRANDFIELD",
    "HSCAN",
    "LPOS",
    "MSET",
    "MSETNX",
    "PEXPIRETIME",
    "SCAN",
    "SPUBLISH",
    "SSCAN",
    "SUBSTR",
    "TOUCH",
    "ZMSCORE",
    "ZSCAN",
];

pub const LIBRARY: Library = Library {
    language: "PHP",
    option: "php",
    library: "phpredis",
    identities: &["phpredis"],
    syntax: Syntax::Php,
    client: "$redis->",
    pipe: "$pipe->",
    modes: ["", ""],
    context: "",
    naming: Naming::Words(BY_NAME),
    by_name: [r#"rawCommand("<command>"<arguments>)"#; 3],
    queued: "<call>",
    text: "<variable>",
    assign: "<name> = <call>;",
    statement: "<call>;",
    client_calls: None,
    calls: &[
        ("SET WITH OPTIONS", "set(<key>, <value>, $options)"),
        ("LREM", "lrem(<key>, <value>, <count>)"),
        ("MGET", "mget([<key>])"),
        ("PFADD", "pfadd(<key>, [<element>])"),
        ("PFCOUNT", "pfcount([<key>])"),
        ("PFMERGE", "pfmerge(<key>, [<source>])"),
        ("XACK", "xack(<key>, $group, [<entry>])"),
        ("XDEL", "xdel(<key>, [<entry>])"),
    ],
    forms: &[
        ("MGET", "$keys = [];\n<each>$keys[] = <key>;\n$redis->mget($keys)"),
        ("TOUCH", "$keys = [];\n<each>$keys[] = <key>;\n$redis->rawCommand(\"TOUCH\", ...$keys)"),
        ("keys", "$keys = [];\n<each>$keys[] = <key>;\n$redis-><method>(...$keys)"),
        ("MSET", "$pairs = [];\n<each>$pairs[<key>] = <value>;\n$redis->mset($pairs)"),
        ("members", "$redis-><method>(<key>, ...$members)"),
        ("HMGET", "$redis->hmget(<key>, $members)"),
        ("PFADD", "$redis->pfadd(<key>, $members)"),
        ("ZMSCORE", "$redis->rawCommand(\"ZMSCORE\", <key>, ...$members)"),
        ("entries", "$redis-><method>(<key>, <group>$entries)"),
        ("HSET", "$redis->hmset(<key>, $fields)"),
        (
            "ZADD",
            "$scores = [];
foreach ($items as [$member, $score]) {
  array_push($scores, $score, $member);
}
$redis->zadd(<key>, ...$scores)",
        ),
        ("GEOADD", "$redis->geoadd(<key>, ...array_merge(...$items))"),
        ("pop", "$redis->rawCommand(\"<command>\", <key>, <count>)"),
        ("several", "$redis-><method>(<key>, <count>)"),
        (
            "XREADGROUP",
            r#"$streams = $redis->xreadgroup($group, $consumer, [<key> => ">"], 100);
$redis->xack(<key>, $group, array_keys($streams[<key>]));"#,
        ),
        ("GETEX", r#"$redis->rawCommand("GETEX", <key>, "EX", $seconds)"#),
        ("wait", "$redis-><method>(<key>, 5)"),
        ("BLMOVE", r#"$redis->rawCommand("BLMOVE", <key>, $destination, "RIGHT", "LEFT", 5)"#),
        ("BLMPOP", r#"$redis->rawCommand("BLMPOP", 5, 1, <key>, "LEFT")"#),
        ("BZMPOP", r#"$redis->rawCommand("BZMPOP", 5, 1, <key>, "MIN")"#),
        ("wait XREADGROUP", r#"$redis->xreadgroup($group, $consumer, [<key> => ">"], 100, 5000)"#),
        ("XREAD", "$redis->xread([<key> => $lastId], 100, 5000)"),
        (
            "script",
            "$script = <<<'LUA'
  <body>
  LUA;
$redis->eval($script, [<key><arguments>], 1);",
        ),
        ("script hash", "$sha = $redis->script(\"load\", SCRIPT);  // once\n$redis->evalsha($sha, [<key>], 1);"),
        (
            "script arguments",
            "$sha = $redis->script(\"load\", SCRIPT);  // once\n$redis->evalsha($sha, [<key>, $value], 1);",
        ),
        ("told", "$redis->setOption(Redis::OPT_READ_TIMEOUT, -1);\n$redis->subscribe([<key>], fn() => changed());"),
        ("cluster", "$redis = new RedisCluster(null, [\"{$host}:{$port}\"]);  // once, for the whole program"),
        (
            "connection",
            "$redis = new Redis();\n$redis->pconnect($host, $port);  // the connection is kept for the next requests",
        ),
        ("pipeline", "$pipe = $redis->pipeline();\n<body>\n$pipe->exec();"),
        ("pipeline with replies", "$pipe = $redis->pipeline();\n<body>\n<replies> = $pipe->exec();"),
        (
            "transaction",
            "$pipe = $redis->pipeline();
$pipe->multi();
<body>
$pipe->exec();  // ends the transaction
$pipe->exec();  // sends all commands",
        ),
        ("chunks", "foreach (array_chunk($all, <count>) as $items) {\n  <body>\n}"),
        ("page", "$redis->lrange(<key>, $start, $start + <count> - 1)"),
        (
            "SCAN",
            "$redis->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
$cursor = null;
while ($keys = $redis->scan($cursor, $pattern, <count>)) {
  handle($keys);
}",
        ),
        (
            "scan",
            "$redis->setOption(Redis::OPT_SCAN, Redis::SCAN_RETRY);
$cursor = null;
while ($elements = $redis-><method>(<key>, $cursor, \"*\", <count>)) {
  handle($elements);
}",
        ),
    ],
};
