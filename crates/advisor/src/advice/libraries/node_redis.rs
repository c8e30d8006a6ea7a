//! node-redis.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

pub const LIBRARY: Library = Library {
    language: "JavaScript with node-redis",
    option: "node-redis",
    library: "node-redis",
    identities: &["node-redis"],
    syntax: Syntax::JavaScript,
    client: "client.",
    pipe: "pipe.",
    modes: ["", ""],
    context: "",
    naming: Naming::Camel,
    by_name: [
        r#"sendCommand(["<command>"<arguments>])"#,
        r#"addCommand(["<command>"<arguments>])"#,
        r#"addCommand(["<command>"])"#,
    ],
    queued: "<call>",
    text: "String(<variable>)",
    assign: "const <name> = await <call>;",
    statement: "await <call>;",
    client_calls: None,
    calls: &[
        ("SET WITH OPTIONS", "set(<key>, <value>, options)"),
        ("ZADD", "zAdd(<key>, { score: <score>, value: <member> })"),
        ("INCRBYFLOAT", "incrByFloat(<key>, <amount>)"),
        ("HMGET", "hmGet(<key>, fields)"),
    ],
    forms: &[
        ("MGET", "client.mGet(items.map((<binding>) => <key>))"),
        ("keys", "client.<method>(items.map((<binding>) => <key>))"),
        ("MSET", "client.mSet(items.map((<binding>) => [<key>, <value>]))"),
        ("members", "client.<method>(<key>, members)"),
        ("entries", "client.<method>(<key>, <group>entries)"),
        ("HSET", "client.hSet(<key>, fields)"),
        ("ZADD", "client.zAdd(<key>, items.map(([member, score]) => ({ score, value: member })))"),
        (
            "GEOADD",
            "client.geoAdd(<key>, items.map(([longitude, latitude, member]) => ({ longitude, latitude, member })))",
        ),
        ("several", "client.<method>Count(<key>, <count>)"),
        (
            "XREADGROUP",
            r#"const [{ messages }] = await client.xReadGroup(group, consumer, { key: <key>, id: ">" }, { COUNT: 100 });
await client.xAck(<key>, group, messages.map((message) => message.id));"#,
        ),
        ("GETEX", r#"client.getEx(<key>, { type: "EX", value: seconds })"#),
        ("wait", "client.<method>(<key>, 5)"),
        ("BLMOVE", r#"client.blMove(<key>, destination, "RIGHT", "LEFT", 5)"#),
        ("BLMPOP", r#"client.blmPop(5, <key>, "LEFT")"#),
        ("BZMPOP", r#"client.bzmPop(5, <key>, "MIN")"#),
        ("wait XREADGROUP", r#"client.xReadGroup(group, consumer, { key: <key>, id: ">" }, { BLOCK: 5000 })"#),
        ("XREAD", "client.xRead({ key: <key>, id: lastId }, { BLOCK: 5000 })"),
        (
            "script",
            "await client.eval(`
  <body>
`, { keys: [<key>], arguments: [<texts>] });",
        ),
        (
            "script hash",
            "const sha = await client.scriptLoad(SCRIPT); // once\nawait client.evalSha(sha, { keys: [<key>] });",
        ),
        (
            "script arguments",
            "const sha = await client.scriptLoad(SCRIPT); // once
await client.evalSha(sha, { keys: [<key>], arguments: [value] });",
        ),
        ("told", "await events.subscribe(<key>, changed);"),
        (
            "cluster",
            "const client = await createCluster({ rootNodes: [{ url: URL }] }).connect();  // once, for the whole program",
        ),
        ("connection", "const client = await createClient({ url: URL }).connect();  // once, for the whole program"),
        ("pipeline", "let pipe = client.multi();\n<body>\nawait pipe.execAsPipeline();"),
        ("pipeline with replies", "let pipe = client.multi();\n<body>\nconst <replies> = await pipe.execAsPipeline();"),
        ("next pipeline", "pipe = client.multi();\n<body>\nawait pipe.execAsPipeline();"),
        (
            "next pipeline with replies",
            "pipe = client.multi();\n<body>\nconst <replies> = await pipe.execAsPipeline();",
        ),
        ("transaction", "let pipe = client.multi();\n<body>\nawait pipe.exec();"),
        ("chunks", "for (const items of chunks(all, <count>)) {\n  <body>\n}"),
        ("page", "client.lRange(<key>, start, start + <count> - 1)"),
        (
            "SCAN",
            "for await (const elements of client.scanIterator({ MATCH: pattern, COUNT: <count> })) {
  use(elements);
}",
        ),
        (
            "scan",
            "for await (const elements of client.<method>Iterator(<key>, { COUNT: <count> })) {
  use(elements);
}",
        ),
    ],
};
