//! redis-rb. Sidekiq's queues get Sidekiq's call.

use crate::advice::library::{Library, Naming};
use crate::advice::syntax::Syntax;

pub const LIBRARY: Library = Library {
    language: "Ruby",
    option: "ruby",
    library: "redis-rb",
    identities: &["redis-rb", "redis-client", "sidekiq"],
    syntax: Syntax::Ruby,
    client: "redis.",
    pipe: "pipe.",
    modes: ["", ""],
    context: "",
    naming: Naming::Lower,
    by_name: [r#"call("<command>"<arguments>)"#; 3],
    queued: "<call>",
    text: "<variable>",
    assign: "<name> = <call>",
    statement: "<call>",
    client_calls: None,
    calls: &[("SET WITH OPTIONS", "set(<key>, <value>, **options)"), ("HMGET", "hmget(<key>, *fields)")],
    forms: &[
        (
            "sidekiq",
            "# Job: the class of the jobs; item: the argument of a job
Job.perform_bulk(items.map { |item| [item] })",
        ),
        (
            "MGET",
            "# a Rails cache packs its values: Rails.cache.read_multi(*names)\nredis.mget(items.map { |<binding>| <key> })",
        ),
        ("keys", "redis.<method>(*items.map { |<binding>| <key> })"),
        ("MSET", "redis.mset(*items.flat_map { |<binding>| [<key>, <value>] })"),
        ("members", "redis.<method>(<key>, members)"),
        ("many reads", "redis.<method>(<key>, *members)"),
        ("entries", "redis.<method>(<key>, <group>*entries)"),
        ("HSET", "redis.hset(<key>, fields)"),
        ("ZADD", "redis.zadd(<key>, items.map { |member, score| [score, member] })"),
        ("GEOADD", "redis.geoadd(<key>, items.flatten)"),
        ("several", "redis.<method>(<key>, <count>)"),
        (
            "XREADGROUP",
            r#"entries = redis.xreadgroup(group, consumer, <key>, ">", count: 100)
redis.xack(<key>, group, *entries.values.flatten(1).map(&:first))"#,
        ),
        ("GETEX", "redis.getex(<key>, ex: seconds)"),
        ("wait", "redis.<method>(<key>, timeout: 5)"),
        ("BLMOVE", r#"redis.blmove(<key>, destination, "RIGHT", "LEFT", timeout: 5)"#),
        ("BLMPOP", r#"redis.call("BLMPOP", 5, 1, <key>, "LEFT")"#),
        ("BZMPOP", r#"redis.call("BZMPOP", 5, 1, <key>, "MIN")"#),
        ("wait XREADGROUP", r#"redis.xreadgroup(group, consumer, <key>, ">", block: 5000)"#),
        ("XREAD", "redis.xread(<key>, last_id, block: 5000)"),
        (
            "script",
            "SCRIPT = <<~LUA
  <body>
LUA
redis.eval(SCRIPT, keys: [<key>], argv: [<texts>])",
        ),
        ("script hash", "SHA = redis.script(:load, SCRIPT)  # once\nredis.evalsha(SHA, keys: [<key>])"),
        (
            "script arguments",
            "SHA = redis.script(:load, SCRIPT)  # once\nredis.evalsha(SHA, keys: [<key>], argv: [value])",
        ),
        ("told", "redis.subscribe(<key>) { |on| on.message { changed } }"),
        ("cluster", "redis = Redis.new(cluster: [URL])  # once, for the whole program"),
        ("connection", "redis = Redis.new(url: URL)  # once, for the whole program"),
        ("pipeline", "redis.pipelined do |pipe|\n  <body>\nend"),
        ("pipeline with replies", "<replies> = redis.pipelined do |pipe|\n  <body>\nend"),
        ("transaction", "redis.multi do |pipe|\n  <body>\nend"),
        ("chunks", "all.each_slice(<count>) do |items|\n  <body>\nend"),
        ("page", "redis.lrange(<key>, start, start + <count> - 1)"),
        ("SCAN", "redis.scan_each(match: pattern, count: <count>) { |key| use(key) }"),
        ("scan", "redis.<method>_each(<key>, count: <count>) { |element| use(element) }"),
    ],
};
