//! The code of a remedy, in each language.

use super::language::variables;
use super::{Language, Remedy, calls, stages};
use crate::findings::{Finding, FindingStep};

/// The code of a remedy; it ends with a line's end.
pub fn code(language: Language, remedy: Remedy, finding: &Finding) -> String {
    let writer = Writer { language, finding };
    let lines = match remedy {
        Remedy::ManyKeys(command) => writer.many_keys(command),
        Remedy::ManyMembers(command) => writer.many_members(command),
        Remedy::Sum(command) => writer.sum(command),
        Remedy::Several(command) => writer.several(command),
        Remedy::Pipeline | Remedy::Stages => writer.pipelines(),
        Remedy::AskOnce => writer.ask_once(),
        Remedy::OneCommand(command) => writer.one_command(command),
        Remedy::Script => writer.script(),
        Remedy::Wait(command) => writer.wait(command),
        Remedy::BeTold => writer.be_told(),
        Remedy::Transaction => writer.transaction(),
        Remedy::ScriptHash => writer.script_hash(),
        Remedy::KeepConnection => writer.keep_connection(),
        Remedy::Chunks => writer.chunks(),
        Remedy::Scan(command) => writer.scan(command),
    };
    lines.join("\n") + "\n"
}

/// Writes code for a finding.
struct Writer<'f> {
    language: Language,
    finding: &'f Finding,
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

impl Writer<'_> {
    fn pattern(&self) -> &str {
        self.finding.steps.first().map_or("", |step| &step.pattern)
    }

    fn command(&self) -> &str {
        self.finding.steps.first().map_or("", |step| &step.command)
    }

    /// The expression of the first step's key.
    fn key(&self) -> String {
        self.language.key(self.pattern())
    }

    /// MGET, MSET, DEL and the like.
    fn many_keys(&self, command: &str) -> Vec<String> {
        let (language, key, variables) = (self.language, self.key(), variables(self.pattern()));
        if command == "MSET" {
            return self.many_values(&key, &variables);
        }
        let mut lines = language.collected(&variables, &key);
        let list = language.list(&variables, &key);
        let call = match language {
            Language::Go if command == "MGET" => format!("rdb.MGet(ctx, {list})"),
            Language::Go => format!("rdb.{}(ctx, {list})", go_name(command)),
            Language::Python if command != "MGET" => format!("r.{}(*{list})", command.to_lowercase()),
            Language::Ruby if command != "MGET" => format!("redis.{}(*{list})", command.to_lowercase()),
            _ => format!("{}.{}({list})", language.client(), command.to_lowercase()),
        };
        lines.push(match command {
            "MGET" => language.assign("values", &call),
            "EXISTS" => language.assign("count", &call),
            _ => language.statement(&call),
        });
        lines
    }

    /// MSET.
    fn many_values(&self, key: &str, variables: &[String]) -> Vec<String> {
        let language = self.language;
        let binding = |with: &str| {
            let mut all = variables.to_vec();
            all.push(with.to_owned());
            all.join(", ")
        };
        match language {
            Language::Ruby => {
                lines(&format!("redis.mset(*items.flat_map {{ |{}| [{key}, value] }})", binding("value")))
            }
            Language::Python => lines(&format!("r.mset({{{key}: value for {} in items}})", binding("value"))),
            Language::JavaScript => {
                lines(&format!("await redis.mset(items.flatMap(([{}]) => [{key}, value]));", binding("value")))
            }
            Language::Go => {
                let mut lines = vec!["var pairs []any".to_owned()];
                lines.extend(language.each(variables, &[format!("pairs = append(pairs, {key}, value)")]));
                lines.push("err := rdb.MSet(ctx, pairs...).Err()".to_owned());
                lines
            }
            Language::Java => {
                let mut lines = vec!["var pairs = new ArrayList<String>();".to_owned()];
                let body = [format!("pairs.add({key});"), "pairs.add(value);".to_owned()];
                lines.extend(language.each(variables, &body));
                lines.push("jedis.mset(pairs.toArray(String[]::new));".to_owned());
                lines
            }
        }
    }

    /// SADD, HMGET, ZMSCORE and the like, on one key.
    fn many_members(&self, command: &str) -> Vec<String> {
        let (language, key) = (self.language, self.key());
        let client = language.client();
        let name = command.to_lowercase();
        let reads = matches!(command, "HMGET" | "SMISMEMBER" | "ZMSCORE");
        let call = match (command, language) {
            ("HSET", Language::Ruby) => format!("redis.hset({key}, fields)"),
            ("HSET", Language::Python) => format!("r.hset({key}, mapping=fields)"),
            ("HSET", Language::Go) => format!("rdb.HSet(ctx, {key}, fields)"),
            ("HSET", _) => format!("{client}.hset({key}, fields)"),
            ("ZADD", Language::Ruby) => format!("redis.zadd({key}, items.map {{ |member, score| [score, member] }})"),
            ("ZADD", Language::Python) => format!("r.zadd({key}, {{member: score for member, score in items}})"),
            ("ZADD", Language::JavaScript) => {
                format!("redis.zadd({key}, ...items.flatMap(([member, score]) => [score, member]))")
            }
            ("ZADD", Language::Go) => format!("rdb.ZAdd(ctx, {key}, members...)"),
            ("ZADD", Language::Java) => format!("jedis.zadd({key}, scores)"),
            ("HMGET" | "ZMSCORE" | "SMISMEMBER", Language::Ruby) => format!("redis.{name}({key}, *members)"),
            ("HMGET" | "ZMSCORE" | "SMISMEMBER", Language::Python) => format!("r.{name}({key}, members)"),
            (_, Language::Ruby) => format!("redis.{name}({key}, members)"),
            (_, Language::Python) => format!("r.{name}({key}, *members)"),
            (_, Language::JavaScript) => format!("redis.{name}({key}, ...members)"),
            (_, Language::Go) => format!("rdb.{}(ctx, {key}, members...)", go_name(command)),
            (_, Language::Java) => format!("jedis.{name}({key}, members)"),
        };
        vec![if reads { language.assign("values", &call) } else { language.statement(&call) }]
    }

    /// One increment by the sum.
    fn sum(&self, command: &str) -> Vec<String> {
        let (language, key) = (self.language, self.key());
        let call = calls::call(language, language.client(), command, &key);
        vec![format!("{} amount: what the loop adds", language.comment()), language.statement(&call)]
    }

    /// Several elements at once.
    fn several(&self, command: &str) -> Vec<String> {
        let (language, key) = (self.language, self.key());
        let count = crate::loops::CHUNK;
        let is_pop = matches!(command, "LPOP" | "RPOP");
        let call = match language {
            Language::Go if is_pop => format!("rdb.{}Count(ctx, {key}, {count})", go_name(command)),
            Language::Go if command == "SPOP" => format!("rdb.SPopN(ctx, {key}, {count})"),
            Language::Go => format!("rdb.{}(ctx, {key}, {count})", go_name(command)),
            _ => format!("{}.{}({key}, {count})", language.client(), command.to_lowercase()),
        };
        vec![language.assign("elements", &call)]
    }

    /// A pipeline for each stage.
    fn pipelines(&self) -> Vec<String> {
        let stages = stages(&self.finding.steps);
        let count = stages.len();
        let mut lines = Vec::new();
        for (index, stage) in stages.into_iter().enumerate() {
            let is_last = index + 1 == count;
            if !is_last || index > 0 {
                let text = if is_last { "with the replies of the pipeline before" } else { "first all reads" };
                lines.push(format!("{} {text}", self.language.comment()));
            }
            lines.extend(self.pipeline(stage, if is_last { None } else { Some("replies") }, is_last));
        }
        lines
    }

    fn pipeline(&self, stage: &[FindingStep], result: Option<&str>, is_last: bool) -> Vec<String> {
        let language = self.language;
        let call = |step: &FindingStep| {
            let call = calls::call(language, "pipe", &step.command, &language.key(&step.pattern));
            call + language.end()
        };
        let mut names = Vec::new();
        for name in stage.iter().flat_map(|step| variables(&step.pattern)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            let arguments = stage.iter().flat_map(|step| calls::arguments(&step.command));
            names.extend(arguments.take(1).map(|name| (*name).to_owned()));
        }
        let body: Vec<String> = stage.iter().map(call).collect();
        let mut body = language.each(&names, &body);
        if is_last && self.finding.is_followed() {
            body.extend(self.finding.after.iter().map(call));
        }
        let is_only_read = stage.iter().all(|step| calls::is_read(&step.command));
        let result = result.or(is_only_read.then_some("replies"));
        language.pipeline(result, &body, false)
    }

    /// The read before the loop.
    fn ask_once(&self) -> Vec<String> {
        let language = self.language;
        let is_one_key = self.finding.steps.first().is_some_and(|step| step.one_key);
        let call = calls::call(language, language.client(), self.command(), &self.key());
        let comment = match calls::arguments(self.command()) {
            [argument, ..] if !is_one_key => format!("once for each {argument}, at any of its keys; keep the answer"),
            _ => "once, before the loop; keep the answer".to_owned(),
        };
        vec![format!("{} {comment}", language.comment()), language.assign("value", &call)]
    }

    /// The command that reads and writes.
    fn one_command(&self, command: &str) -> Vec<String> {
        let (language, key) = (self.language, self.key());
        if command == "GETEX" {
            let call = match language {
                Language::Ruby | Language::Python => format!(
                    "{}.getex({key}, ex{}seconds)",
                    language.client(),
                    if language == Language::Ruby { ": " } else { "=" }
                ),
                Language::JavaScript => format!("redis.getex({key}, \"EX\", seconds)"),
                Language::Go => format!("rdb.GetEx(ctx, {key}, seconds*time.Second)"),
                Language::Java => format!("jedis.getEx({key}, GetExParams.getExParams().ex(seconds))"),
            };
            return vec![language.assign("value", &call)];
        }
        let call = calls::call(language, language.client(), command, &key);
        vec![language.assign("value", &call)]
    }

    /// One script.
    fn script(&self) -> Vec<String> {
        let write = self.finding.steps.get(1).map_or("SET", |step| calls::name(&step.command));
        let read = self.command();
        let first = format!("local value = redis.call('{read}', KEYS[1])");
        let rest = format!("return redis.call('{write}', KEYS[1])  -- with what is made of value");
        let key = self.key();
        match self.language {
            Language::Ruby => {
                lines(&format!("SCRIPT = <<~LUA\n  {first}\n  {rest}\nLUA\nredis.eval(SCRIPT, keys: [{key}])"))
            }
            Language::Python => {
                lines(&format!("script = r.register_script(\"\"\"\n  {first}\n  {rest}\n\"\"\")\nscript(keys=[{key}])"))
            }
            Language::JavaScript => lines(&format!(
                "redis.defineCommand(\"update\", {{ numberOfKeys: 1, lua: `\n  {first}\n  {rest}\n` }});\nawait redis.update({key});"
            )),
            Language::Go => lines(&format!(
                "var script = redis.NewScript(`\n  {first}\n  {rest}\n`)\nerr := script.Run(ctx, rdb, []string{{{key}}}).Err()"
            )),
            Language::Java => lines(&format!(
                "var script = \"\"\"\n  {first}\n  {rest}\n  \"\"\";\njedis.eval(script, List.of({key}), List.of());"
            )),
        }
    }

    /// The command that waits.
    fn wait(&self, command: &str) -> Vec<String> {
        let (language, key) = (self.language, self.key());
        let name = command.to_lowercase();
        let call = match (command, language) {
            ("BLMOVE", Language::Ruby) => format!("redis.blmove({key}, destination, \"RIGHT\", \"LEFT\", timeout: 5)"),
            ("BLMOVE", Language::Python) => {
                format!("r.blmove({key}, destination, timeout=5, src=\"RIGHT\", dest=\"LEFT\")")
            }
            ("BLMOVE", Language::Go) => {
                format!("rdb.BLMove(ctx, {key}, destination, \"RIGHT\", \"LEFT\", 5*time.Second)")
            }
            ("BLMOVE", Language::Java) => {
                format!("jedis.blmove({key}, destination, ListDirection.RIGHT, ListDirection.LEFT, 5)")
            }
            ("BLMOVE", Language::JavaScript) => format!("redis.blmove({key}, destination, \"RIGHT\", \"LEFT\", 5)"),
            ("XREAD", Language::Ruby) => format!("redis.xread({key}, last_id, block: 5000)"),
            ("XREAD", Language::Python) => format!("r.xread({{{key}: last_id}}, block=5000)"),
            ("XREAD", Language::JavaScript) => format!("redis.xread(\"BLOCK\", 5000, \"STREAMS\", {key}, lastId)"),
            ("XREAD", Language::Go) => {
                format!(
                    "rdb.XRead(ctx, &redis.XReadArgs{{Streams: []string{{{key}, lastID}}, Block: 5 * time.Second}})"
                )
            }
            ("XREAD", Language::Java) => {
                format!("jedis.xread(XReadParams.xReadParams().block(5000), Map.of({key}, lastId))")
            }
            (_, Language::Ruby) => format!("redis.{name}({key}, timeout: 5)"),
            (_, Language::Python) => format!("r.{name}({key}, timeout=5)"),
            (_, Language::JavaScript) => format!("redis.{name}({key}, 5)"),
            (_, Language::Go) => format!("rdb.{}(ctx, 5*time.Second, {key})", go_name(command)),
            (_, Language::Java) => format!("jedis.{name}(5.0, {key})"),
        };
        vec![language.assign("element", &call)]
    }

    /// Notifications of changes.
    fn be_told(&self) -> Vec<String> {
        let language = self.language;
        let comment = language.comment();
        let mut text =
            vec![format!("{comment} CONFIG SET notify-keyspace-events K$gxh, then, on a connection of its own:")];
        let channel = language.key(&format!("__keyspace@0__:{}", self.pattern()));
        text.extend(match language {
            Language::Ruby => lines(&format!("redis.subscribe({channel}) {{ |on| on.message {{ changed }} }}")),
            Language::Python => lines(&format!(
                "events = r.pubsub()\nevents.subscribe({channel})\nfor message in events.listen():\n  changed()"
            )),
            Language::JavaScript => {
                lines(&format!("await events.subscribe({channel});\nevents.on(\"message\", changed);"))
            }
            Language::Go => lines(&format!("for range rdb.Subscribe(ctx, {channel}).Channel() {{\n  changed()\n}}")),
            Language::Java => lines(&format!("jedis.subscribe(listener, {channel});")),
        });
        text
    }

    /// A transaction in one pipeline.
    fn transaction(&self) -> Vec<String> {
        let language = self.language;
        let call = calls::call(language, "pipe", self.command(), &self.key()) + language.end();
        let rest = format!("{} and the other commands", language.comment());
        language.pipeline(None, &[call, rest], true)
    }

    /// A script by its hash.
    fn script_hash(&self) -> Vec<String> {
        let key = self.key();
        match self.language {
            Language::Ruby => {
                lines(&format!("SHA = redis.script(:load, SCRIPT)  # once\nredis.evalsha(SHA, keys: [{key}])"))
            }
            Language::Python => lines(&format!("script = r.register_script(SCRIPT)  # once\nscript(keys=[{key}])")),
            Language::JavaScript => lines(&format!(
                "redis.defineCommand(\"run\", {{ numberOfKeys: 1, lua: SCRIPT }}); // once\nawait redis.run({key});"
            )),
            Language::Go => lines(&format!(
                "var script = redis.NewScript(text) // once\nerr := script.Run(ctx, rdb, []string{{{key}}}).Err()"
            )),
            Language::Java => lines(&format!(
                "var sha = jedis.scriptLoad(SCRIPT); // once\njedis.evalsha(sha, List.of({key}), List.of());"
            )),
        }
    }

    /// One client for the whole program.
    fn keep_connection(&self) -> Vec<String> {
        let language = self.language;
        let call = calls::call(language, language.client(), self.command(), &self.key());
        let make = match language {
            Language::Ruby => "redis = Redis.new(url: URL)",
            Language::Python => "r = redis.Redis.from_url(URL)",
            Language::JavaScript => "const redis = new Redis(URL);",
            Language::Go => "rdb := redis.NewClient(options)",
            Language::Java => "var jedis = new JedisPooled(URI.create(URL));",
        };
        let comment = language.comment();
        vec![format!("{make}  {comment} once, for the whole program"), language.assign("value", &call)]
    }

    /// Pipelines of a thousand.
    fn chunks(&self) -> Vec<String> {
        let language = self.language;
        let count = crate::loops::CHUNK;
        let names = variables(self.pattern());
        let call = calls::call(language, "pipe", self.command(), &self.key()) + language.end();
        let body = language.pipeline(None, &language.each(&names, &[call]), false);
        let (begin, end) = match language {
            Language::Ruby => (format!("all.each_slice({count}) do |items|"), "end"),
            Language::Python => (format!("for items in batched(all, {count}):"), ""),
            Language::JavaScript => (format!("for (const items of chunks(all, {count})) {{"), "}"),
            Language::Go => (format!("for items := range slices.Chunk(all, {count}) {{"), "}"),
            Language::Java => (format!("for (var items : Lists.partition(all, {count})) {{"), "}"),
        };
        let mut lines = vec![begin];
        lines.extend(body.iter().map(|line| format!("  {line}")));
        lines.extend((!end.is_empty()).then(|| end.to_owned()));
        lines
    }

    /// The SCAN family, or ranges.
    fn scan(&self, command: &str) -> Vec<String> {
        let (language, key) = (self.language, self.key());
        let count = crate::loops::CHUNK;
        if command == "LRANGE" {
            let call = match language {
                Language::Go => format!("rdb.LRange(ctx, {key}, start, start+{count}-1)"),
                _ => format!("{}.lrange({key}, start, start + {count} - 1)", language.client()),
            };
            return vec![language.assign("elements", &call)];
        }
        let name = command.to_lowercase();
        let is_scan = command == "SCAN";
        let argument = |key: &str| if is_scan { String::new() } else { format!("{key}, ") };
        match language {
            Language::Ruby if is_scan => {
                lines(&format!("redis.scan_each(match: pattern, count: {count}) {{ |key| use(key) }}"))
            }
            Language::Ruby => lines(&format!("redis.{name}_each({key}, count: {count}) {{ |element| use(element) }}")),
            Language::Python => {
                let first = if is_scan { "match=pattern, ".to_owned() } else { argument(&key) };
                lines(&format!("for element in r.{name}_iter({first}count={count}):\n  use(element)"))
            }
            Language::JavaScript => {
                let options =
                    if is_scan { format!("match: pattern, count: {count}") } else { format!("count: {count}") };
                let first = argument(&key);
                lines(&format!(
                    "for await (const elements of redis.{name}Stream({first}{{ {options} }})) {{\n  use(elements);\n}}"
                ))
            }
            Language::Go => {
                let pattern = if is_scan { "pattern" } else { "\"\"" };
                let first = argument(&key);
                lines(&format!(
                    "iter := rdb.{}(ctx, {first}0, {pattern}, {count}).Iterator()\nfor iter.Next(ctx) {{\n  use(iter.Val())\n}}",
                    go_name(command)
                ))
            }
            Language::Java => {
                let first = argument(&key);
                lines(&format!(
                    "var cursor = \"0\";\ndo {{\n  var page = jedis.{name}({first}cursor, new ScanParams().count({count}));\n  use(page.getResult());\n  cursor = page.getCursor();\n}} while (!cursor.equals(\"0\"));"
                ))
            }
        }
    }
}

/// go-redis's method of a command.
fn go_name(command: &str) -> &'static str {
    const NAMES: &[(&str, &str)] = &[
        ("DEL", "Del"),
        ("UNLINK", "Unlink"),
        ("EXISTS", "Exists"),
        ("HMGET", "HMGet"),
        ("HDEL", "HDel"),
        ("SADD", "SAdd"),
        ("SREM", "SRem"),
        ("SMISMEMBER", "SMIsMember"),
        ("ZREM", "ZRem"),
        ("ZMSCORE", "ZMScore"),
        ("RPUSH", "RPush"),
        ("LPUSH", "LPush"),
        ("PFADD", "PFAdd"),
        ("LPOP", "LPop"),
        ("RPOP", "RPop"),
        ("ZPOPMIN", "ZPopMin"),
        ("ZPOPMAX", "ZPopMax"),
        ("BLPOP", "BLPop"),
        ("BRPOP", "BRPop"),
        ("BZPOPMIN", "BZPopMin"),
        ("BZPOPMAX", "BZPopMax"),
        ("SCAN", "Scan"),
        ("HSCAN", "HScan"),
        ("SSCAN", "SScan"),
        ("ZSCAN", "ZScan"),
    ];
    NAMES.iter().find(|(name, _)| *name == command).map_or("Do", |(_, go)| go)
}
