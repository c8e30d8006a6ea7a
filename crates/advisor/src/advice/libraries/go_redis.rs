//! go-redis.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

pub const LIBRARY: Library = Library {
    language: "Go",
    option: "go",
    library: "go-redis",
    identities: &["go-redis"],
    syntax: Syntax::Go,
    client: "rdb.",
    pipe: "pipe.",
    modes: ["", ""],
    context: "ctx, ",
    naming: Naming::Go,
    by_name: [r#"Do(ctx, "<command>"<arguments>)"#; 3],
    queued: "<call>",
    text: "<variable>",
    assign: "<name>, err := <call>.Result()",
    statement: "err := <call>.Err()",
    client_calls: None,
    calls: &[
        ("ZADD", "ZAdd(ctx, <key>, redis.Z{Score: <score>, Member: <member>})"),
        ("SET", "Set(ctx, <key>, <value>, 0)"),
        ("SET WITH OPTIONS", "SetArgs(ctx, <key>, <value>, options)"),
        ("SETNX", "SetNX(ctx, <key>, <value>, 0)"),
        ("SETEX", "SetEx(ctx, <key>, <value>, <seconds>*time.Second)"),
        ("EXPIRE", "Expire(ctx, <key>, <seconds>*time.Second)"),
        ("HMGET", "HMGet(ctx, <key>, fields...)"),
    ],
    forms: &[
        ("MGET", "var keys []string\n<each>keys = append(keys, <key>)\nrdb.MGet(ctx, keys...)"),
        ("keys", "var keys []string\n<each>keys = append(keys, <key>)\nrdb.<method>(ctx, keys...)"),
        ("MSET", "var pairs []any\n<each>pairs = append(pairs, <key>, <value>)\nrdb.MSet(ctx, pairs...)"),
        ("members", "rdb.<method>(ctx, <key>, members...)"),
        ("entries", "rdb.<method>(ctx, <key>, <group>entries...)"),
        ("HSET", "rdb.HSet(ctx, <key>, fields)"),
        ("GEOADD", "rdb.GeoAdd(ctx, <key>, locations...)"),
        ("ZADD", "rdb.ZAdd(ctx, <key>, members...)"),
        ("LPOP", "rdb.LPopCount(ctx, <key>, <count>)"),
        ("RPOP", "rdb.RPopCount(ctx, <key>, <count>)"),
        ("SPOP", "rdb.SPopN(ctx, <key>, <count>)"),
        ("several", "rdb.<method>(ctx, <key>, <count>)"),
        (
            "XREADGROUP",
            r#"streams, err := rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: consumer, Streams: []string{<key>, ">"}, Count: 100}).Result()
var entries []string
for _, message := range streams[0].Messages {
  entries = append(entries, message.ID)
}
err = rdb.XAck(ctx, <key>, group, entries...).Err()"#,
        ),
        ("GETEX", "rdb.GetEx(ctx, <key>, seconds*time.Second)"),
        ("wait", "rdb.<method>(ctx, 5*time.Second, <key>)"),
        ("BLMOVE", r#"rdb.BLMove(ctx, <key>, destination, "RIGHT", "LEFT", 5*time.Second)"#),
        ("BLMPOP", r#"rdb.Do(ctx, "BLMPOP", 5, 1, <key>, "LEFT")"#),
        ("BZMPOP", r#"rdb.Do(ctx, "BZMPOP", 5, 1, <key>, "MIN")"#),
        (
            "wait XREADGROUP",
            r#"rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: consumer, Streams: []string{<key>, ">"}, Block: 5 * time.Second})"#,
        ),
        ("XREAD", "rdb.XRead(ctx, &redis.XReadArgs{Streams: []string{<key>, lastID}, Block: 5 * time.Second})"),
        (
            "script",
            "var script = redis.NewScript(`
  <body>
`)
err := script.Run(ctx, rdb, []string{<key>}<arguments>).Err()",
        ),
        (
            "script hash",
            "var script = redis.NewScript(text) // once\nerr := script.Run(ctx, rdb, []string{<key>}).Err()",
        ),
        (
            "script arguments",
            "var script = redis.NewScript(text) // once\nerr := script.Run(ctx, rdb, []string{<key>}, value).Err()",
        ),
        ("told", "for range rdb.Subscribe(ctx, <key>).Channel() {\n  changed()\n}"),
        (
            "cluster",
            "rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{options.Addr}}) // once, for the whole program",
        ),
        ("connection", "rdb := redis.NewClient(options)  // once, for the whole program"),
        ("pipeline", "_, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {\n  <body>\n  return nil\n})"),
        (
            "pipeline with replies",
            "<replies>, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {\n  <body>\n  return nil\n})",
        ),
        ("next pipeline", "_, err = rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {\n  <body>\n  return nil\n})"),
        (
            "transaction",
            "_, err := rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {\n  <body>\n  return nil\n})",
        ),
        ("chunks", "for items := range slices.Chunk(all, <count>) {\n  <body>\n}"),
        ("page", "rdb.LRange(ctx, <key>, start, start+<count>-1)"),
        ("SCAN", "iter := rdb.Scan(ctx, 0, pattern, <count>).Iterator()\nfor iter.Next(ctx) {\n  use(iter.Val())\n}"),
        (
            "scan",
            "iter := rdb.<method>(ctx, <key>, 0, \"\", <count>).Iterator()\nfor iter.Next(ctx) {\n  use(iter.Val())\n}",
        ),
    ],
};
