//! ioredis, and its fork iovalkey.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

pub const LIBRARY: Library = Library {
    language: "JavaScript",
    option: "javascript",
    library: "ioredis",
    identities: &["ioredis", "iovalkey", "bullmq"],
    syntax: Syntax::JavaScript,
    client: "redis.",
    pipe: "pipe.",
    modes: ["", ""],
    context: "",
    naming: Naming::Lower,
    by_name: [r#"call("<command>"<arguments>)"#; 3],
    queued: "<call>",
    text: "<variable>",
    assign: "const <name> = await <call>;",
    statement: "await <call>;",
    client_calls: None,
    calls: &[("SET WITH OPTIONS", "set(<key>, <value>, ...options)"), ("HMGET", "hmget(<key>, ...fields)")],
    forms: &[
        ("keys", "redis.<method>(items.map((<binding>) => <key>))"),
        ("MSET", "redis.mset(items.flatMap((<binding>) => [<key>, <value>]))"),
        ("members", "redis.<method>(<key>, ...members)"),
        ("entries", "redis.<method>(<key>, <group>...entries)"),
        ("HSET", "redis.hset(<key>, fields)"),
        ("ZADD", "redis.zadd(<key>, ...items.flatMap(([member, score]) => [score, member]))"),
        ("GEOADD", "redis.geoadd(<key>, ...items.flat())"),
        ("several", "redis.<method>(<key>, <count>)"),
        (
            "XREADGROUP",
            r#"const [[, entries]] = await redis.xreadgroup("GROUP", group, consumer, "COUNT", 100, "STREAMS", <key>, ">");
await redis.xack(<key>, group, ...entries.map(([entry]) => entry));"#,
        ),
        ("GETEX", r#"redis.getex(<key>, "EX", seconds)"#),
        ("wait", "redis.<method>(<key>, 5)"),
        ("BLMOVE", r#"redis.blmove(<key>, destination, "RIGHT", "LEFT", 5)"#),
        ("BLMPOP", r#"redis.blmpop(5, 1, <key>, "LEFT")"#),
        ("BZMPOP", r#"redis.bzmpop(5, 1, <key>, "MIN")"#),
        ("wait XREADGROUP", r#"redis.xreadgroup("GROUP", group, consumer, "BLOCK", 5000, "STREAMS", <key>, ">")"#),
        ("XREAD", r#"redis.xread("BLOCK", 5000, "STREAMS", <key>, lastId)"#),
        (
            "script",
            r#"redis.defineCommand("update", { numberOfKeys: 1, lua: `
  <body>
` });
await redis.update(<key><arguments>);"#,
        ),
        (
            "script hash",
            r#"redis.defineCommand("run", { numberOfKeys: 1, lua: SCRIPT }); // once
await redis.run(<key>);"#,
        ),
        (
            "script arguments",
            r#"redis.defineCommand("run", { numberOfKeys: 1, lua: SCRIPT }); // once
await redis.run(<key>, value);"#,
        ),
        ("told", "await events.subscribe(<key>);\nevents.on(\"message\", changed);"),
        ("cluster", "const redis = new Redis.Cluster([URL]);  // once, for the whole program"),
        ("connection", "const redis = new Redis(URL);  // once, for the whole program"),
        ("pipeline", "let pipe = redis.pipeline();\n<body>\nawait pipe.exec();"),
        ("pipeline with replies", "let pipe = redis.pipeline();\n<body>\nconst <replies> = await pipe.exec();"),
        ("next pipeline", "pipe = redis.pipeline();\n<body>\nawait pipe.exec();"),
        ("next pipeline with replies", "pipe = redis.pipeline();\n<body>\nconst <replies> = await pipe.exec();"),
        ("transaction", "let pipe = redis.multi();\n<body>\nawait pipe.exec();"),
        ("chunks", "for (const items of chunks(all, <count>)) {\n  <body>\n}"),
        ("page", "redis.lrange(<key>, start, start + <count> - 1)"),
        (
            "SCAN",
            "for await (const elements of redis.scanStream({ match: pattern, count: <count> })) {
  use(elements);
}",
        ),
        (
            "scan",
            "for await (const elements of redis.<method>Stream(<key>, { count: <count> })) {
  use(elements);
}",
        ),
    ],
};
