//! Redigo. It names itself to no server.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

pub const LIBRARY: Library = Library {
    language: "Go with Redigo",
    option: "redigo",
    library: "Redigo",
    identities: &["redigo"],
    syntax: Syntax::Go,
    client: "conn.",
    pipe: "conn.",
    modes: ["Do", "Send"],
    context: "",
    naming: Naming::None,
    by_name: [r#"<mode>("<command>"<arguments>)"#; 3],
    queued: "<call>",
    text: "<variable>",
    assign: "<name>, err := <call>",
    statement: "_, err := <call>",
    client_calls: None,
    calls: &[
        ("SET WITH OPTIONS", r#"<mode>("SET", redis.Args{<key>, <value>}.AddFlat(options)...)"#),
        ("HMGET", r#"<mode>("HMGET", redis.Args{<key>}.AddFlat(fields)...)"#),
    ],
    forms: &[
        ("MGET", "var keys redis.Args\n<each>keys = keys.Add(<key>)\nredis.Strings(conn.Do(\"MGET\", keys...))"),
        ("keys", "var keys redis.Args\n<each>keys = keys.Add(<key>)\nconn.Do(\"<command>\", keys...)"),
        ("MSET", "var pairs redis.Args\n<each>pairs = pairs.Add(<key>, <value>)\nconn.Do(\"MSET\", pairs...)"),
        ("GEOPOS", r#"redis.Positions(conn.Do("GEOPOS", redis.Args{<key>}.AddFlat(members)...))"#),
        ("many reads", r#"redis.Values(conn.Do("<command>", redis.Args{<key>}.AddFlat(members)...))"#),
        ("HSET", r#"conn.Do("HSET", redis.Args{<key>}.AddFlat(fields)...)"#),
        ("members", r#"conn.Do("<command>", redis.Args{<key>}.AddFlat(members)...)"#),
        ("XACK", r#"conn.Do("XACK", redis.Args{<key>, group}.AddFlat(entries)...)"#),
        ("XDEL", r#"conn.Do("XDEL", redis.Args{<key>}.AddFlat(entries)...)"#),
        (
            "ZADD",
            "scores := redis.Args{<key>}
for _, item := range items {
  scores = scores.Add(item.Score, item.Member)
}
conn.Do(\"ZADD\", scores...)",
        ),
        (
            "GEOADD",
            "places := redis.Args{<key>}
for _, item := range items {
  places = places.Add(item.Longitude, item.Latitude, item.Member)
}
conn.Do(\"GEOADD\", places...)",
        ),
        ("several", r#"redis.Strings(conn.Do("<command>", <key>, <count>))"#),
        (
            "XREADGROUP",
            r#"streams, err := redis.Values(conn.Do("XREADGROUP", "GROUP", group, consumer, "COUNT", 100, "STREAMS", <key>, ">"))
entries := redis.Args{<key>, group}
for _, entry := range streams[0].([]any)[1].([]any) {
  entries = entries.Add(entry.([]any)[0])
}
_, err = conn.Do("XACK", entries...)"#,
        ),
        ("GETEX", r#"conn.Do("GETEX", <key>, "EX", seconds)"#),
        ("wait", r#"redis.Strings(conn.Do("<command>", <key>, 5))"#),
        ("BLMOVE", r#"redis.String(conn.Do("BLMOVE", <key>, destination, "RIGHT", "LEFT", 5))"#),
        ("BLMPOP", r#"redis.Values(conn.Do("BLMPOP", 5, 1, <key>, "LEFT"))"#),
        ("BZMPOP", r#"redis.Values(conn.Do("BZMPOP", 5, 1, <key>, "MIN"))"#),
        (
            "wait XREADGROUP",
            r#"redis.Values(conn.Do("XREADGROUP", "GROUP", group, consumer, "BLOCK", 5000, "STREAMS", <key>, ">"))"#,
        ),
        ("XREAD", r#"redis.Values(conn.Do("XREAD", "BLOCK", 5000, "STREAMS", <key>, lastID))"#),
        (
            "script",
            "var script = redis.NewScript(1, `
  <body>
`)
_, err := script.Do(conn, <key><arguments>)",
        ),
        ("script hash", "var script = redis.NewScript(1, text) // once\n_, err := script.Do(conn, <key>)"),
        ("script arguments", "var script = redis.NewScript(1, text) // once\n_, err := script.Do(conn, <key>, value)"),
        (
            "told",
            "events := redis.PubSubConn{Conn: conn}
err := events.Subscribe(<key>)
for err == nil {
  switch reply := events.Receive().(type) {
  case redis.Message:
    changed()
  case error:
    err = reply
  }
}",
        ),
        (
            "cluster",
            "// Redigo knows no clusters: keep a connection to each node, and ask for the map again after MOVED\nslots, err := redis.Values(conn.Do(\"CLUSTER\", \"SLOTS\"))",
        ),
        (
            "connection",
            "// once, for the whole program
pool := &redis.Pool{MaxIdle: 10, Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}
conn := pool.Get()
defer conn.Close()",
        ),
        ("pipeline", "<body>\n_, err := conn.Do(\"\") // sends all, and reads all replies"),
        (
            "pipeline with replies",
            "<body>\n<replies>, err := redis.Values(conn.Do(\"\")) // sends all, and reads all replies",
        ),
        ("next pipeline", "<body>\n_, err = conn.Do(\"\")"),
        ("transaction", "conn.Send(\"MULTI\")\n<body>\n_, err := conn.Do(\"EXEC\")"),
        ("chunks", "for items := range slices.Chunk(all, <count>) {\n  <body>\n}"),
        ("page", r#"redis.Strings(conn.Do("LRANGE", <key>, start, start+<count>-1))"#),
        (
            "SCAN",
            r#"cursor := "0"
for {
  page, err := redis.Values(conn.Do("SCAN", cursor, "MATCH", pattern, "COUNT", <count>))
  var keys []string
  if err == nil {
    _, err = redis.Scan(page, &cursor, &keys)
  }
  use(keys)
  if err != nil || cursor == "0" {
    break
  }
}"#,
        ),
        (
            "scan",
            r#"cursor := "0"
for {
  page, err := redis.Values(conn.Do("<command>", <key>, cursor, "COUNT", <count>))
  var elements []string
  if err == nil {
    _, err = redis.Scan(page, &cursor, &elements)
  }
  use(elements)
  if err != nil || cursor == "0" {
    break
  }
}"#,
        ),
    ],
};
