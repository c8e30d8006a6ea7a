use std::sync::Arc;

use super::*;
use crate::client::Client;
use crate::findings::Sums;
use crate::waits::Waits;

fn step(text: &str, one_key: bool) -> FindingStep {
    let (command, pattern) = text.split_once(' ').unwrap_or((text, ""));
    FindingStep { command: command.into(), pattern: pattern.into(), one_key, depends: false }
}

pub(super) fn finding(kind: Kind, steps: &[&str], one_key: bool) -> Finding {
    Finding {
        id: 0x1234_5678_9abc_def0,
        kind,
        steps: steps.iter().map(|text| step(text, one_key)).collect(),
        after: None,
        client: Arc::new(Client::default()),
        sums: Sums { count: 2, made: 200, needed: 2, ..Sums::default() },
        samples: Vec::new(),
        waits: Waits::default(),
    }
}

fn check(finding: &Finding, language: Language, expected: &str) {
    assert_eq!(super::code(finding, language).trim_end(), expected);
}

#[test]
fn a_loop_of_gets_is_one_mget() {
    let finding = finding(Kind::Loop, &["GET user:<n>:name"], false);
    check(
        &finding,
        Language::Ruby,
        "# a Rails cache packs its values: Rails.cache.read_multi(*names)\nvalues = redis.mget(items.map { |n| \"user:#{n}:name\" })",
    );
    check(&finding, Language::Python, r#"values = r.mget([f"user:{n}:name" for n in items])"#);
    check(&finding, Language::JavaScript, r#"const values = await redis.mget(items.map((n) => `user:${n}:name`));"#);
    check(
        &finding,
        Language::Go,
        "var keys []string\nfor _, n := range items {\n  keys = append(keys, fmt.Sprintf(\"user:%v:name\", n))\n}\n\
         values, err := rdb.MGet(ctx, keys...).Result()",
    );
    check(
        &finding,
        Language::Java,
        r#"var values = jedis.mget(items.stream().map(n -> "user:" + n + ":name").toArray(String[]::new));"#,
    );
}

#[test]
fn a_loop_of_sets_is_one_mset() {
    let finding = finding(Kind::Loop, &["SET key<n>"], false);
    check(&finding, Language::Ruby, r##"redis.mset(*items.flat_map { |n, value| ["key#{n}", value] })"##);
    check(&finding, Language::Python, r#"r.mset({f"key{n}": value for n, value in items})"#);
}

/// MSET takes no expiry.
#[test]
fn a_loop_of_sets_with_options_is_a_pipeline() {
    let finding = finding(Kind::Loop, &[], false);
    let options =
        FindingStep { command: "SET WITH OPTIONS".into(), pattern: "key<n>".into(), one_key: false, depends: false };
    let finding = Finding { steps: Box::new([options]), ..finding };
    assert_eq!(remedy(&finding), Remedy::Pipeline);
    let code = |language| code::code(language, remedy(&finding), &finding);
    assert!(code(Language::Python).contains(r#"pipe.set(f"key{n}", value, **options)"#), "{}", code(Language::Python));
    assert!(code(Language::Ruby).contains(r##".set("key#{n}", value, **options)"##), "{}", code(Language::Ruby));
    assert!(code(Language::Go).contains(r#"pipe.SetArgs(ctx, fmt.Sprintf("key%v", item.N), item.Value, options)"#));
    assert!(code(Language::Java).contains(r#"pipe.set("key" + item.n(), item.value(), options)"#));
}

#[test]
fn members_of_one_key_are_one_command() {
    check(&finding(Kind::Loop, &["SADD online"], true), Language::Python, r#"r.sadd("online", *members)"#);
    check(
        &finding(Kind::Loop, &["HGET user:<n>"], true),
        Language::Ruby,
        r##"values = redis.hmget("user:#{n}", *members)"##,
    );
    check(
        &finding(Kind::Loop, &["LPOP jobs"], true),
        Language::Go,
        r#"elements, err := rdb.LPopCount(ctx, "jobs", 1000).Result()"#,
    );
    check(
        &finding(Kind::Loop, &["INCR visits"], true),
        Language::Java,
        "// amount: the sum of the loop's increments\njedis.incrBy(\"visits\", amount);",
    );
}

#[test]
fn a_step_that_needs_a_reply_is_in_the_next_pipeline() {
    let mut finding = finding(Kind::InterleavedLoop, &["INCR ids", "HSET obj:<n>"], false);
    finding.steps[1].depends = true;
    assert_eq!(remedy(&finding), Remedy::Stages);
    assert!(words::remedy(Remedy::Stages, &finding).contains("arguments of the next"));
    check(
        &finding,
        Language::Python,
        "# first all commands that need no reply\npipe = r.pipeline(transaction=False)\nfor item in items:\n  pipe.incr(\"ids\")\n\
         replies = pipe.execute()\n# uses the replies of the previous pipeline\npipe = r.pipeline(transaction=False)\n\
         for n, field, value in changes:\n  pipe.hset(f\"obj:{n}\", field, value)\npipe.execute()",
    );
}

#[test]
fn commands_without_a_plural_form_become_a_pipeline() {
    let finding = finding(Kind::Loop, &["HGETALL user:<n>"], false);
    check(
        &finding,
        Language::Ruby,
        "replies = redis.pipelined do |pipe|\n  items.each do |n|\n    pipe.hgetall(\"user:#{n}\")\n  end\nend",
    );
    check(
        &finding,
        Language::Python,
        "pipe = r.pipeline(transaction=False)\nfor n in items:\n  pipe.hgetall(f\"user:{n}\")\nreplies = pipe.execute()",
    );
}

#[test]
fn reads_and_writes_in_turn_are_two_pipelines() {
    let mut finding = finding(Kind::InterleavedLoop, &["ZSCORE index:<word>", "ZADD index:<word>"], false);
    finding.after = Some(step("HSET data:<n>", false));
    finding.sums.followed = 2;
    check(
        &finding,
        Language::Ruby,
        "# first all reads\nreplies = redis.pipelined do |pipe|\n  items.each do |word, member|\n    pipe.zscore(\"index:#{word}\", member)\n  end\nend\n\
         # uses the replies of the previous pipeline\nredis.pipelined do |pipe|\n  changes.each do |word, score, member|\n    pipe.zadd(\"index:#{word}\", score, member)\n  end\n  pipe.hset(\"data:#{n}\", field, value)\nend",
    );
    assert_eq!(
        advice(&finding).seen,
        "ZSCORE index:<word>, ZADD index:<word> in turn, then HSET data:<n>, one by one: 202 round trips where 2 would do"
    );
}

#[test]
fn a_repeated_read_is_made_once() {
    let mut finding = finding(Kind::RepeatedRead, &["ZSCORE index:<word>"], false);
    (finding.sums.made, finding.sums.needed) = (108_840, 10_000);
    let seen = "ZSCORE index:<word>: the same read from one key after the other, always with the same answer: \
                108,840 reads where 10,000 would do, 98,840 too many";
    assert_eq!(advice(&finding).seen, seen);
    finding.sums.without_replies = 5;
    assert_eq!(advice(&finding).seen, seen.replace("always with the same answer", "if the answers agree"));
    check(
        &finding,
        Language::Ruby,
        "# once for each member, with any of its keys; keep the answer\nvalue = redis.zscore(\"index:#{word}\", member)",
    );
}

#[test]
fn a_read_and_a_write_are_one_command_or_a_script() {
    let pair = |read: &str, write: &str| finding(Kind::ReadComputeWrite, &[read, write], false);
    check(&pair("GET token:<n>", "DEL token:<n>"), Language::Python, "value = r.getdel(f\"token:{n}\")");
    check(&pair("GET visits", "SET visits"), Language::Ruby, "value = redis.incrby(\"visits\", amount)");
    check(
        &pair("LRANGE log", "DEL log"),
        Language::Python,
        "script = r.register_script(\"\"\"\n  local value = redis.call('LRANGE', KEYS[1], ARGV[1], ARGV[2])\n  local updated = value -- compute it here\n  return redis.call('DEL', KEYS[1])\n\"\"\")\nscript(keys=[\"log\"], args=[start, stop])",
    );
}

#[test]
fn a_key_is_removed_without_a_question() {
    let finding = finding(Kind::ReadComputeWrite, &["EXISTS cart:<n>", "DEL cart:<n>"], false);
    assert!(advice(&finding).remedy.starts_with("DEL alone"));
    check(&finding, Language::Python, "value = r.delete(f\"cart:{n}\")");
}

/// EXISTS of several keys answers only their number.
#[test]
fn existing_keys_are_asked_for_in_a_pipeline() {
    let finding = finding(Kind::Loop, &["EXISTS online:<n>"], false);
    assert_eq!(advice(&finding).remedy, "one pipeline; or one EXISTS of all keys if their number is enough");
    check(
        &finding,
        Language::Python,
        "pipe = r.pipeline(transaction=False)\nfor n in items:\n  pipe.exists(f\"online:{n}\")\nreplies = pipe.execute()",
    );
}

#[test]
fn an_element_that_goes_to_another_list_is_moved() {
    let mut finding = finding(Kind::InterleavedLoop, &["LPOP failed", "RPUSH ready"], true);
    finding.steps[1].depends = true;
    assert!(advice(&finding).remedy.contains("LMOVE"), "{}", advice(&finding).remedy);
    finding.steps[1].command = "SADD".into();
    assert!(!advice(&finding).remedy.contains("LMOVE"));
}

#[test]
fn pages_become_larger() {
    for (command, method) in [("ZRANGE board", "zrange"), ("ZREVRANGE board", "zrevrange")] {
        let finding = finding(Kind::Loop, &[command], true);
        assert_eq!(advice(&finding).remedy, "ranges of 1,000 elements");
        check(&finding, Language::Python, &format!("elements = r.{method}(\"board\", start, stop)"));
    }
    assert_eq!(advice(&finding(Kind::Loop, &["ZRANGEBYSCORE board"], true)).remedy, "one pipeline");
}

#[test]
fn polling_becomes_waiting() {
    check(&finding(Kind::Polling, &["LPOP jobs"], true), Language::Python, "element = r.blpop(\"jobs\", timeout=5)");
    check(
        &finding(Kind::Polling, &["RPOP jobs"], true),
        Language::JavaScript,
        "const element = await redis.brpop(\"jobs\", 5);",
    );
    for (command, remedy) in [
        ("LMPOP jobs", "BLMPOP, which waits"),
        ("ZMPOP jobs", "BZMPOP, which waits"),
        ("ZREVRANGE jobs", "BZPOPMAX, which waits"),
        ("XREVRANGE jobs", "XREAD with BLOCK"),
        ("XREAD jobs", "XREAD with BLOCK"),
        ("XREADGROUP jobs", "XREADGROUP with BLOCK"),
    ] {
        let remedy_is = advice(&finding(Kind::Polling, &[command], true)).remedy;
        assert!(remedy_is.starts_with(remedy), "{remedy_is}");
    }
    let entries = "element = r.xreadgroup(group, consumer, {\"jobs\": \">\"}, block=5000)";
    check(&finding(Kind::Polling, &["XREADGROUP jobs"], true), Language::Python, entries);
}

#[test]
fn each_library_of_a_language_has_calls_of_its_own() {
    let finding = finding(Kind::Loop, &["ZSCORE board:<n>"], false);
    check(
        &finding,
        Language::Lettuce,
        "var pipe = connection.async();\nvar replies = new ArrayList<RedisFuture<?>>();\nfor (var item : items) {\n  \
         replies.add(pipe.zscore(\"board:\" + item.n(), item.member()));\n}\n\
         LettuceFutures.awaitAll(Duration.ofMinutes(1), replies.toArray(RedisFuture[]::new));",
    );
    check(
        &finding,
        Language::Redigo,
        "for _, item := range items {\n  conn.Send(\"ZSCORE\", fmt.Sprintf(\"board:%v\", item.N), item.Member)\n}\n\
         replies, err := redis.Values(conn.Do(\"\")) // sends all, and reads all replies",
    );
    check(
        &finding,
        Language::Spring,
        "var replies = redis.executePipelined((RedisCallback<Object>) connection -> {\n  \
         var pipe = new DefaultStringRedisConnection(connection);\n  for (var item : items) {\n    \
         pipe.zScore(\"board:\" + item.n(), item.member());\n  }\n  return null;\n});",
    );
    check(
        &finding,
        Language::Redisson,
        "var pipe = redisson.createBatch();\nfor (var item : items) {\n  pipe.<String>getScoredSortedSet(\"board:\" + \
         item.n()).getScoreAsync(item.member());\n}\nvar replies = pipe.execute().getResponses();",
    );
    let php = "$pipe = $redis->pipeline();\nforeach ($items as [$n, $member]) {\n  \
               $pipe->zscore(\"board:{$n}\", $member);\n}\n$replies = $pipe->";
    check(&finding, Language::Php, &format!("{php}exec();"));
    check(&finding, Language::Predis, &format!("{php}execute();"));
}

/// Keys of Django's cache begin with the version, and Sidekiq has a set of queues.
#[test]
fn a_framework_has_calls_of_its_own() {
    let cache = |kind, step: &str| finding(kind, &[step], false);
    let python = Language::Python;
    check(&cache(Kind::Loop, "GET :<n>:page:<n>"), python, "values = cache.get_many([f\"page:{n}\" for n in items])");
    check(
        &cache(Kind::Loop, "SET :<n>:page:<n>"),
        python,
        "cache.set_many({f\"page:{n}\": value for n, value in items}, timeout)",
    );
    check(&cache(Kind::Loop, "DEL :<n>:page:<n>"), python, "cache.delete_many([f\"page:{n}\" for n in items])");
    check(
        &cache(Kind::RepeatedRead, "GET :<n>:flag"),
        python,
        "# once, before the loop; keep the answer\nvalue = cache.get(\"flag\")",
    );
    check(
        &cache(Kind::SmallPipelines, "SADD queues"),
        Language::Ruby,
        "# Job: the class of the jobs; item: the argument of a job\nJob.perform_bulk(items.map { |item| [item] })",
    );
    // redis-rb 4 writes the commands one by one.
    let written_singly = finding(Kind::InterleavedLoop, &["SADD queues", "LPUSH queue:mails"], true);
    assert!(advice(&written_singly).remedy.ends_with("perform_bulk in Sidekiq"));
    assert!(super::code(&written_singly, Language::Ruby).contains("Job.perform_bulk"));
    let code = super::code(&cache(Kind::Loop, "GET :<n>:page:<n>"), Language::Ruby);
    assert!(code.contains("redis.mget(items.map { |n, n2| \":#{n}:page:#{n2}\" })"), "{code}");
}

/// A library sends a command that it does not know by its name. Redisson can do so in a script only.
#[test]
fn a_command_without_a_method_is_sent_by_name() {
    let code = |steps: &str, language| code::code(language, Remedy::Pipeline, &finding(Kind::Loop, &[steps], false));
    let with_key = [
        (Language::Python, "pipe.execute_command(\"OTHER\", f\"a:{n}\", argument)"),
        (Language::Lettuce, ".add(\"a:\" + item.n()).add(String.valueOf(item.argument())))"),
        (Language::Predis, "$pipe->executeCommand(RawCommand::create(\"OTHER\", \"a:{$n}\", $argument));"),
        (
            Language::Redisson,
            "\"return redis.call('OTHER', KEYS[1], ARGV[1])\", RScript.ReturnType.VALUE, List.of(\"a:\"",
        ),
    ];
    for (language, call) in with_key {
        assert!(code("OTHER a:<n>", language).contains(call), "{}", code("OTHER a:<n>", language));
    }
    let keyless = [
        (Language::Python, "pipe.execute_command(\"OTHER\", argument)"),
        (Language::Redigo, "conn.Send(\"OTHER\", argument)"),
        (Language::Redisson, "\"return redis.call('OTHER', ARGV[1])\", RScript.ReturnType.VALUE, List.of(), argument)"),
    ];
    for (language, call) in keyless {
        assert!(code("OTHER", language).contains(call), "{}", code("OTHER", language));
    }
}

/// Holes of templates.
const HOLES: &[&str] = &[
    "<key>",
    "<value>",
    "<method>",
    "<command>",
    "<count>",
    "<binding>",
    "<group>",
    "<body>",
    "<each>",
    "<replies>",
    "<name>",
    "<call>",
    "<mode>",
    "<arguments>",
    "<texts>",
    "<added>",
    "<lua>",
    "<passed>",
    "<variable>",
    "<member>",
    "<score>",
    "<field>",
];

/// No library has two templates for one name, a remedy without a template, or a template with a hole that nothing fills.
#[test]
fn the_tables_of_the_libraries_are_complete() {
    for language in Language::ALL {
        let library = language.table();
        for table in [library.forms, library.calls, library.client_calls.unwrap_or_default()] {
            let names: std::collections::HashSet<&str> = table.iter().map(|(name, _)| *name).collect();
            assert_eq!(names.len(), table.len(), "{language:?} has two templates for a name");
        }
        for kind in Kind::ALL {
            for command in commands().into_iter().chain(["XREADGROUP"]) {
                for one_key in [true, false] {
                    let (command, pattern) = (command.into(), "a:<uuid>".into());
                    let first = FindingStep { command, pattern, one_key, depends: false };
                    let steps = Box::new([first, step("ZADD a:<uuid>", false)]);
                    let code = super::code(&Finding { steps, ..finding(kind, &[], one_key) }, language);
                    assert!(!code.trim().is_empty(), "{language:?} {kind:?}");
                    let unfilled = HOLES.iter().find(|hole| code.contains(**hole));
                    assert_eq!(unfilled, None, "{language:?} {kind:?}:\n{code}");
                }
            }
        }
    }
}

/// Commands that findings may have; the libraries don't know some of them.
const COMMANDS: &[&str] = &[
    "GET",
    "SET",
    "DEL",
    "EXISTS",
    "HGET",
    "HSET",
    "SADD",
    "ZADD",
    "ZSCORE",
    "RPUSH",
    "LPOP",
    "INCR",
    "INCRBY",
    "HGETALL",
    "EXPIRE",
    "PING",
    "KEYS",
    "SMEMBERS",
    "LRANGE",
    "ZRANGE",
    "XADD",
    "JSON.GET",
    "EVAL",
    "RPOPLPUSH",
    "ZPOPMIN",
    "XLEN",
];

#[test]
fn every_finding_has_code_in_every_language() {
    for kind in Kind::ALL {
        for command in COMMANDS {
            for pattern in ["", " a", " a:<n>", " <uuid>", " a:<n>:<word>:<n>"] {
                for one_key in [true, false] {
                    let text = format!("{command}{pattern}");
                    let pair = kind == Kind::ReadComputeWrite || kind == Kind::InterleavedLoop;
                    let steps = if pair { vec![&*text, "SET a:<n>"] } else { vec![&*text] };
                    let finding = finding(kind, &steps, one_key);
                    let advice = advice(&finding);
                    assert!(!advice.seen.is_empty() && !advice.remedy.is_empty());
                    for language in Language::ALL {
                        let code = super::code(&finding, language);
                        assert!(balanced(&code), "{kind:?} {text} {language:?}:\n{code}");
                        assert!(
                            !code.contains("(, ") && !code.contains(", )"),
                            "{kind:?} {text} {language:?}:\n{code}"
                        );
                    }
                }
            }
        }
    }
}

/// True if brackets close in the order in which they open.
fn balanced(code: &str) -> bool {
    let mut open = Vec::new();
    for character in code.chars() {
        match character {
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            ')' | ']' | '}' if open.pop() != Some(character) => return false,
            _ => {}
        }
    }
    open.is_empty()
}
