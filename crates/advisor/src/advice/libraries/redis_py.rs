//! redis-py, and its fork valkey-py. Keys of Django's cache get calls of the cache, which packs its values.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

pub const LIBRARY: Library = Library {
    language: "Python",
    option: "python",
    library: "redis-py",
    identities: &["redis-py", "valkey-py"],
    syntax: Syntax::Python,
    client: "r.",
    pipe: "pipe.",
    modes: ["", ""],
    context: "",
    naming: Naming::Lower,
    by_name: [r#"execute_command("<command>"<arguments>)"#; 3],
    queued: "<call>",
    text: "<variable>",
    assign: "<name> = <call>",
    statement: "<call>",
    client_calls: None,
    calls: &[
        ("DEL", "delete(<key>)"),
        ("ZADD", "zadd(<key>, {<member>: <score>})"),
        ("SET WITH OPTIONS", "set(<key>, <value>, **options)"),
    ],
    forms: &[
        ("django get_many", "cache.get_many([<key> for <binding> in items])"),
        ("django set_many", "cache.set_many({<key>: value for <binding> in items}, timeout)"),
        ("django delete_many", "cache.delete_many([<key> for <binding> in items])"),
        ("django get", "cache.get(<key>)"),
        ("MGET", "r.mget([<key> for <binding> in items])"),
        ("DEL", "r.delete(*[<key> for <binding> in items])"),
        ("keys", "r.<method>(*[<key> for <binding> in items])"),
        ("MSET", "r.mset({<key>: <value> for <binding> in items})"),
        ("members", "r.<method>(<key>, *members)"),
        ("many reads", "r.<method>(<key>, members)"),
        ("entries", "r.<method>(<key>, <group>*entries)"),
        ("HSET", "r.hset(<key>, mapping=fields)"),
        ("ZADD", "r.zadd(<key>, {member: score for member, score in items})"),
        ("GEOADD", "r.geoadd(<key>, [part for item in items for part in item])"),
        ("several", "r.<method>(<key>, <count>)"),
        (
            "XREADGROUP",
            r#"entries = r.xreadgroup(group, consumer, {<key>: ">"}, count=100)
r.xack(<key>, group, *[entry for _, all in entries for entry, _ in all])"#,
        ),
        ("GETEX", "r.getex(<key>, ex=seconds)"),
        ("wait", "r.<method>(<key>, timeout=5)"),
        ("BLMOVE", r#"r.blmove(<key>, destination, timeout=5, src="RIGHT", dest="LEFT")"#),
        ("BLMPOP", r#"r.blmpop(5, 1, <key>, direction="LEFT")"#),
        ("BZMPOP", "r.bzmpop(5, 1, [<key>], min=True)"),
        ("wait XREADGROUP", r#"r.xreadgroup(group, consumer, {<key>: ">"}, block=5000)"#),
        ("XREAD", "r.xread({<key>: last_id}, block=5000)"),
        (
            "script",
            "script = r.register_script(\"\"\"
  <body>
\"\"\")
script(keys=[<key>], args=[<texts>])",
        ),
        ("script hash", "script = r.register_script(SCRIPT)  # once\nscript(keys=[<key>])"),
        ("script arguments", "script = r.register_script(SCRIPT)  # once\nscript(keys=[<key>], args=[value])"),
        ("told", "events = r.pubsub()\nevents.subscribe(<key>)\nfor message in events.listen():\n  changed()"),
        ("cluster", "r = redis.RedisCluster.from_url(URL)  # once, for the whole program"),
        ("connection", "r = redis.Redis.from_url(URL)  # once, for the whole program"),
        ("pipeline", "pipe = r.pipeline(transaction=False)\n<body>\npipe.execute()"),
        ("pipeline with replies", "pipe = r.pipeline(transaction=False)\n<body>\n<replies> = pipe.execute()"),
        ("transaction", "pipe = r.pipeline(transaction=True)\n<body>\npipe.execute()"),
        ("chunks", "for items in batched(all, <count>):\n  <body>"),
        ("page", "r.lrange(<key>, start, start + <count> - 1)"),
        ("SCAN", "for element in r.scan_iter(match=pattern, count=<count>):\n  use(element)"),
        ("scan", "for element in r.<method>_iter(<key>, count=<count>):\n  use(element)"),
    ],
};
