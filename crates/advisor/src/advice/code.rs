//! The code of a remedy, in each language.

use super::calls::Site;
use super::language::variables;
use super::{Language, Remedy, calls, stages};
use crate::findings::{Finding, FindingStep};

/// Returns the code of a remedy. It ends with a line end.
pub fn code(language: Language, remedy: Remedy, finding: &Finding) -> String {
    let writer = Writer { language, finding };
    let lines = match remedy {
        Remedy::ManyKeys(command) => writer.many_keys(command),
        Remedy::ManyMembers(command) => writer.many_members(command),
        Remedy::Sum(command) => writer.sum(command),
        Remedy::Several(command) => writer.several(command),
        Remedy::Range => writer.range(),
        Remedy::Omit => writer.omit(),
        Remedy::Pipeline | Remedy::Stages => writer.pipelines(),
        Remedy::AskOnce => writer.ask_once(),
        Remedy::OneCommand(command) => writer.one_command(command),
        Remedy::Script => writer.script(),
        Remedy::Wait(command) => writer.wait(command),
        Remedy::BeTold => writer.be_told(),
        Remedy::Transaction => writer.transaction(),
        Remedy::LargerPipelines => writer.larger_pipelines(),
        Remedy::ScriptHash => writer.script_hash(),
        Remedy::ScriptArguments => writer.script_arguments(),
        Remedy::WaitForLock => writer.wait_for_lock(),
        Remedy::WithoutPing => writer.without_ping(),
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

    /// The expression of the first step's key, outside a loop.
    fn key(&self) -> String {
        self.language.key_in(self.pattern(), false)
    }

    /// A call of the client, outside a loop.
    fn call(&self, command: &str) -> String {
        self.call_on(self.language.client(), command)
    }

    /// A call with the first step's key, outside a loop.
    fn call_on(&self, receiver: &str, command: &str) -> String {
        let site = Site { language: self.language, receiver, variable: &str::to_owned };
        site.call(command, &self.key())
    }

    /// A call in a pipeline. `is_record` tells that a loop binds several variables.
    fn call_in_pipeline(&self, step: &FindingStep, is_record: bool) -> String {
        let language = self.language;
        let variable = |name: &str| language.variable(name, !is_record);
        let site = Site { language, receiver: calls::PIPE, variable: &variable };
        site.call(&step.command, &language.key_in(&step.pattern, is_record)) + language.end()
    }

    /// MGET, DEL and other commands with many keys.
    fn many_keys(&self, command: &str) -> Vec<String> {
        let (language, variables) = (self.language, variables(self.pattern()));
        if command == "MSET" {
            return self.many_values(variables);
        }
        let key = language.key(self.pattern());
        let mut lines = language.collected(&variables, &key);
        let list = language.list(&variables, &key);
        let call = match language {
            Language::Go if command == "MGET" => format!("rdb.MGet(ctx, {list})"),
            Language::Go => format!("rdb.{}(ctx, {list})", go_name(command)),
            Language::NodeRedis if command == "MGET" => format!("client.mGet({list})"),
            Language::NodeRedis => format!("client.{}({list})", command.to_lowercase()),
            Language::Python if command == "DEL" => format!("r.delete(*{list})"),
            Language::Python if command != "MGET" => format!("r.{}(*{list})", command.to_lowercase()),
            Language::Ruby if command != "MGET" => format!("redis.{}(*{list})", command.to_lowercase()),
            _ => format!("{}.{}({list})", language.client(), command.to_lowercase()),
        };
        lines.push(match command {
            "MGET" => language.assign("values", &call),
            "EXISTS" | "TOUCH" => language.assign("count", &call),
            _ => language.statement(&call),
        });
        lines
    }

    /// MSET.
    fn many_values(&self, mut names: Vec<String>) -> Vec<String> {
        let language = self.language;
        names.push("value".to_owned());
        let is_record = names.len() > 1;
        let (key, value) = (language.key_in(self.pattern(), is_record), language.variable("value", !is_record));
        let binding = names.join(", ");
        match language {
            Language::Ruby => lines(&format!("redis.mset(*items.flat_map {{ |{binding}| [{key}, value] }})")),
            Language::Python => lines(&format!("r.mset({{{key}: value for {binding} in items}})")),
            Language::JavaScript => {
                lines(&format!("await redis.mset(items.flatMap(([{binding}]) => [{key}, value]));"))
            }
            Language::NodeRedis => {
                lines(&format!("await client.mSet(items.map({} => [{key}, value]));", parameters(&names)))
            }
            Language::Go => {
                let mut lines = vec!["var pairs []any".to_owned()];
                lines.extend(language.each(&names, &[format!("pairs = append(pairs, {key}, {value})")]));
                lines.push("err := rdb.MSet(ctx, pairs...).Err()".to_owned());
                lines
            }
            Language::Java => {
                let mut lines = vec!["var pairs = new ArrayList<String>();".to_owned()];
                let body = [format!("pairs.add({key});"), format!("pairs.add({value});")];
                lines.extend(language.each(&names, &body));
                lines.push("jedis.mset(pairs.toArray(String[]::new));".to_owned());
                lines
            }
        }
    }

    /// SADD, HMGET, ZMSCORE and other commands with many members of one key.
    fn many_members(&self, command: &str) -> Vec<String> {
        let (language, key) = (self.language, self.key());
        let client = language.client();
        let name = command.to_lowercase();
        let reads = matches!(command, "HMGET" | "SMISMEMBER" | "ZMSCORE" | "GEOPOS");
        let call = match (command, language) {
            ("XACK" | "XDEL", _) => self.many_entries(command, &key),
            ("GEOADD", Language::Ruby) => format!("redis.geoadd({key}, items.flatten)"),
            ("GEOADD", Language::Python) => format!("r.geoadd({key}, [part for item in items for part in item])"),
            ("GEOADD", Language::JavaScript) => format!("redis.geoadd({key}, ...items.flat())"),
            ("GEOADD", Language::NodeRedis) => format!(
                "client.geoAdd({key}, items.map(([longitude, latitude, member]) => ({{ longitude, latitude, member }})))"
            ),
            ("GEOADD", Language::Go) => format!("rdb.GeoAdd(ctx, {key}, locations...)"),
            ("GEOADD", Language::Java) => format!("jedis.geoadd({key}, coordinates)"),
            ("LPUSH" | "RPUSH", Language::Java) => format!("jedis.{name}({key}, members)"),
            ("HSET", Language::Ruby) => format!("redis.hset({key}, fields)"),
            ("HSET", Language::Python) => format!("r.hset({key}, mapping=fields)"),
            ("HSET", Language::Go) => format!("rdb.HSet(ctx, {key}, fields)"),
            ("HSET", Language::NodeRedis) => format!("client.hSet({key}, fields)"),
            ("HSET", _) => format!("{client}.hset({key}, fields)"),
            ("ZADD", Language::Ruby) => format!("redis.zadd({key}, items.map {{ |member, score| [score, member] }})"),
            ("ZADD", Language::Python) => format!("r.zadd({key}, {{member: score for member, score in items}})"),
            ("ZADD", Language::JavaScript) => {
                format!("redis.zadd({key}, ...items.flatMap(([member, score]) => [score, member]))")
            }
            ("ZADD", Language::NodeRedis) => {
                format!("client.zAdd({key}, items.map(([value, score]) => ({{ score, value }})))")
            }
            ("ZADD", Language::Go) => format!("rdb.ZAdd(ctx, {key}, members...)"),
            ("ZADD", Language::Java) => format!("jedis.zadd({key}, scores)"),
            ("HMGET" | "ZMSCORE" | "SMISMEMBER", Language::Ruby) => format!("redis.{name}({key}, *members)"),
            ("HMGET" | "ZMSCORE" | "SMISMEMBER", Language::Python) => format!("r.{name}({key}, members)"),
            (_, Language::Ruby) => format!("redis.{name}({key}, members)"),
            (_, Language::Python) => format!("r.{name}({key}, *members)"),
            (_, Language::JavaScript) => format!("redis.{name}({key}, ...members)"),
            (_, Language::NodeRedis) => format!("client.{}({key}, members)", calls::node_name(go_name(command))),
            (_, Language::Go) => format!("rdb.{}(ctx, {key}, members...)", go_name(command)),
            (_, Language::Java) => format!("jedis.{name}({key}, members)"),
        };
        vec![if reads { language.assign("values", &call) } else { language.statement(&call) }]
    }

    /// XACK and XDEL of several entries.
    fn many_entries(&self, command: &str, key: &str) -> String {
        let name = command.to_lowercase();
        let group = if command == "XACK" { "group, " } else { "" };
        match self.language {
            Language::Ruby => format!("redis.{name}({key}, {group}*entries)"),
            Language::Python => format!("r.{name}({key}, {group}*entries)"),
            Language::JavaScript => format!("redis.{name}({key}, {group}...entries)"),
            Language::NodeRedis => {
                format!("client.{}({key}, {group}entries)", calls::node_name(go_name(command)))
            }
            Language::Go => format!("rdb.{}(ctx, {key}, {group}entries...)", go_name(command)),
            Language::Java => format!("jedis.{name}({key}, {group}entries)"),
        }
    }

    /// One increment by the sum.
    fn sum(&self, command: &str) -> Vec<String> {
        let language = self.language;
        let comment = format!("{} amount: the sum of the loop's increments", language.comment());
        vec![comment, language.statement(&self.call(command))]
    }

    /// One range in place of single elements.
    fn range(&self) -> Vec<String> {
        let language = self.language;
        let comment = format!("{} start, stop: the first and the last index of the loop", language.comment());
        vec![comment, language.assign("elements", &self.call("LRANGE"))]
    }

    /// No command at all.
    fn omit(&self) -> Vec<String> {
        let comment = self.language.comment();
        vec![format!(
            "{comment} leave it out: on a broken connection the next command fails as well, and is sent again"
        )]
    }

    /// One command that takes several elements.
    fn several(&self, command: &str) -> Vec<String> {
        if command == "XREADGROUP" {
            return self.several_entries();
        }
        let (language, key) = (self.language, self.key());
        let count = crate::loops::CHUNK;
        let is_pop = matches!(command, "LPOP" | "RPOP");
        let call = match language {
            Language::Go if is_pop => format!("rdb.{}Count(ctx, {key}, {count})", go_name(command)),
            Language::NodeRedis if command == "SPOP" => format!("client.sPopCount({key}, {count})"),
            Language::NodeRedis => format!("client.{}Count({key}, {count})", calls::node_name(go_name(command))),
            Language::Go if command == "SPOP" => format!("rdb.SPopN(ctx, {key}, {count})"),
            Language::Go => format!("rdb.{}(ctx, {key}, {count})", go_name(command)),
            _ => format!("{}.{}({key}, {count})", language.client(), command.to_lowercase()),
        };
        vec![language.assign("elements", &call)]
    }

    /// XREADGROUP of several entries.
    fn several_entries(&self) -> Vec<String> {
        let pattern = self.finding.steps.iter().find(|step| !step.pattern.is_empty());
        let key = pattern.map_or("stream".to_owned(), |step| self.language.key_in(&step.pattern, false));
        lines(&match self.language {
            Language::Ruby => format!(
                "entries = redis.xreadgroup(group, consumer, {key}, \">\", count: 100)\nredis.xack({key}, group, *entries.values.flatten(1).map(&:first))"
            ),
            Language::Python => format!(
                "entries = r.xreadgroup(group, consumer, {{{key}: \">\"}}, count=100)\nr.xack({key}, group, *[entry for _, all in entries for entry, _ in all])"
            ),
            Language::JavaScript => format!(
                "const [[, entries]] = await redis.xreadgroup(\"GROUP\", group, consumer, \"COUNT\", 100, \"STREAMS\", {key}, \">\");\nawait redis.xack({key}, group, ...entries.map(([entry]) => entry));"
            ),
            Language::NodeRedis => format!(
                "const [{{ messages }}] = await client.xReadGroup(group, consumer, {{ key: {key}, id: \">\" }}, {{ COUNT: 100 }});\nawait client.xAck({key}, group, messages.map((message) => message.id));"
            ),
            Language::Go => format!(
                "streams, err := rdb.XReadGroup(ctx, &redis.XReadGroupArgs{{Group: group, Consumer: consumer, Streams: []string{{{key}, \">\"}}, Count: 100}}).Result()\nvar entries []string\nfor _, message := range streams[0].Messages {{\n  entries = append(entries, message.ID)\n}}\nerr = rdb.XAck(ctx, {key}, group, entries...).Err()"
            ),
            Language::Java => format!(
                "var streams = jedis.xreadGroup(group, consumer, XReadGroupParams.xReadGroupParams().count(100), Map.of({key}, StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY));\nvar entries = streams.get(0).getValue().stream().map(StreamEntry::getID).toArray(StreamEntryID[]::new);\njedis.xack({key}, group, entries);"
            ),
        })
    }

    /// One pipeline in place of many small ones.
    fn larger_pipelines(&self) -> Vec<String> {
        let mut body = self.stage(&self.finding.steps, true);
        body.push(format!("{} and the other commands", self.language.comment()));
        self.language.pipeline(None, &body, false, true)
    }

    /// A script whose values are arguments.
    fn script_arguments(&self) -> Vec<String> {
        let key = self.key();
        let comment = format!("{} ARGV[1] stands for the value in the text", self.language.comment());
        let mut code = vec![comment];
        code.extend(match self.language {
            Language::Ruby => lines(&format!(
                "SHA = redis.script(:load, SCRIPT)  # once\nredis.evalsha(SHA, keys: [{key}], argv: [value])"
            )),
            Language::Python => {
                lines(&format!("script = r.register_script(SCRIPT)  # once\nscript(keys=[{key}], args=[value])"))
            }
            Language::JavaScript => lines(&format!(
                "redis.defineCommand(\"run\", {{ numberOfKeys: 1, lua: SCRIPT }}); // once\nawait redis.run({key}, value);"
            )),
            Language::NodeRedis => lines(&format!(
                "const sha = await client.scriptLoad(SCRIPT); // once\nawait client.evalSha(sha, {{ keys: [{key}], arguments: [value] }});"
            )),
            Language::Go => lines(&format!(
                "var script = redis.NewScript(text) // once\nerr := script.Run(ctx, rdb, []string{{{key}}}, value).Err()"
            )),
            Language::Java => lines(&format!(
                "var sha = jedis.scriptLoad(SCRIPT); // once\njedis.evalsha(sha, List.of({key}), List.of(value));"
            )),
        });
        code
    }

    /// A lock that waits.
    fn wait_for_lock(&self) -> Vec<String> {
        let (language, key) = (self.language, self.key());
        let comment = language.comment();
        let first = format!("{comment} the owner ends with RPUSH of a token to the same list");
        let wait = match language {
            Language::Ruby => format!("token = redis.blpop({key}, timeout: 5)"),
            Language::Python => format!("token = r.blpop({key}, timeout=5)"),
            Language::JavaScript => format!("const token = await redis.blpop({key}, 5);"),
            Language::NodeRedis => format!("const token = await client.blPop({key}, 5);"),
            Language::Go => format!("token, err := rdb.BLPop(ctx, 5*time.Second, {key}).Result()"),
            Language::Java => format!("var token = jedis.blpop(5.0, {key});"),
        };
        vec![first, wait]
    }

    /// The loop without its PINGs.
    fn without_ping(&self) -> Vec<String> {
        let steps: Vec<FindingStep> =
            self.finding.steps.iter().filter(|step| &*step.command != "PING").cloned().collect();
        let mut lines = self.omit();
        let reads = steps.iter().all(|step| calls::is_read(&step.command));
        lines.extend(self.language.pipeline(reads.then_some("replies"), &self.stage(&steps, true), false, true));
        lines
    }

    /// A pipeline for each stage.
    fn pipelines(&self) -> Vec<String> {
        let stages = stages(&self.finding.steps);
        let count = stages.len();
        let mut lines = Vec::new();
        for (index, stage) in stages.into_iter().enumerate() {
            let is_last = index + 1 == count;
            let reads = stage.iter().all(|step| calls::is_read(&step.command));
            if count > 1 {
                let text = match (index, reads) {
                    (0, true) => "first all reads",
                    (0, false) => "first all commands that need no reply",
                    _ => "uses the replies of the previous pipeline",
                };
                lines.push(format!("{} {text}", self.language.comment()));
            }
            let name = if index == 0 { "replies".to_owned() } else { format!("replies{}", index + 1) };
            let result = (!is_last || reads).then_some(&*name);
            // The arguments of a later stage are computed from the replies.
            let body = self.stage_over(if index == 0 { "items" } else { "changes" }, stage, is_last);
            lines.extend(self.language.pipeline(result, &body, false, index == 0));
        }
        lines
    }

    /// The calls of a stage, in a loop over their variables.
    fn stage(&self, stage: &[FindingStep], is_last: bool) -> Vec<String> {
        self.stage_over("items", stage, is_last)
    }

    /// The calls of a stage, in a loop over a list with their variables.
    fn stage_over(&self, list: &str, stage: &[FindingStep], is_last: bool) -> Vec<String> {
        let names = self.bound(stage);
        let calls: Vec<String> = stage.iter().map(|step| self.call_in_pipeline(step, names.len() > 1)).collect();
        let mut body = self.language.each_of(list, &names, &calls);
        if is_last && self.finding.is_followed() {
            body.extend(self.finding.after.iter().map(|step| self.call_in_pipeline(step, false)));
        }
        body
    }

    /// The variables of a loop over these steps: those of the keys, and the arguments.
    fn bound(&self, steps: &[FindingStep]) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let keys = steps.iter().flat_map(|step| variables(&step.pattern));
        let arguments = steps.iter().flat_map(|step| calls::arguments(&step.command).map(str::to_owned));
        for name in keys.chain(arguments) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The read before the loop.
    fn ask_once(&self) -> Vec<String> {
        let language = self.language;
        let is_one_key = self.finding.steps.first().is_some_and(|step| step.one_key);
        let comment = match calls::arguments(self.command()).next() {
            Some(argument) if !is_one_key => {
                format!("once for each {argument}, with any of its keys; keep the answer")
            }
            _ => "once, before the loop; keep the answer".to_owned(),
        };
        vec![format!("{} {comment}", language.comment()), language.assign("value", &self.call(self.command()))]
    }

    /// One command that reads and writes.
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
                Language::NodeRedis => format!("client.getEx({key}, {{ type: \"EX\", value: seconds }})"),
                Language::Go => format!("rdb.GetEx(ctx, {key}, seconds*time.Second)"),
                Language::Java => format!("jedis.getEx({key}, GetExParams.getExParams().ex(seconds))"),
            };
            return vec![language.assign("value", &call)];
        }
        vec![language.assign("value", &self.call(command))]
    }

    /// One script.
    fn script(&self) -> Vec<String> {
        let write = self.finding.steps.get(1).map_or("SET", |step| &step.command);
        let (read, mut passed) = calls::in_script(self.command(), 0, None);
        let (write, more) = calls::in_script(write, passed.len(), Some("updated"));
        passed.extend(more);
        let first = format!("local value = redis.call({read})\n  local updated = value -- compute it here");
        let rest = format!("return redis.call({write})");
        let (key, arguments) = (self.key(), passed.join(", "));
        match self.language {
            Language::Ruby => lines(&format!(
                "SCRIPT = <<~LUA\n  {first}\n  {rest}\nLUA\nredis.eval(SCRIPT, keys: [{key}], argv: [{arguments}])"
            )),
            Language::Python => lines(&format!(
                "script = r.register_script(\"\"\"\n  {first}\n  {rest}\n\"\"\")\nscript(keys=[{key}], args=[{arguments}])"
            )),
            Language::JavaScript => {
                let arguments: String = passed.iter().map(|name| format!(", {name}")).collect();
                lines(&format!(
                    "redis.defineCommand(\"update\", {{ numberOfKeys: 1, lua: `\n  {first}\n  {rest}\n` }});\nawait redis.update({key}{arguments});"
                ))
            }
            Language::NodeRedis => {
                let arguments: Vec<String> = passed.iter().map(|name| format!("String({name})")).collect();
                lines(&format!(
                    "await client.eval(`\n  {first}\n  {rest}\n`, {{ keys: [{key}], arguments: [{}] }});",
                    arguments.join(", ")
                ))
            }
            Language::Go => {
                let arguments: String = passed.iter().map(|name| format!(", {name}")).collect();
                lines(&format!(
                    "var script = redis.NewScript(`\n  {first}\n  {rest}\n`)\nerr := script.Run(ctx, rdb, []string{{{key}}}{arguments}).Err()"
                ))
            }
            Language::Java => {
                let arguments: Vec<String> = passed.iter().map(|name| format!("String.valueOf({name})")).collect();
                lines(&format!(
                    "var script = \"\"\"\n  {first}\n  {rest}\n  \"\"\";\njedis.eval(script, List.of({key}), List.of({}));",
                    arguments.join(", ")
                ))
            }
        }
    }

    /// The blocking command.
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
            ("BLMOVE", Language::NodeRedis) => format!("client.blMove({key}, destination, \"RIGHT\", \"LEFT\", 5)"),
            ("XREAD", Language::NodeRedis) => format!("client.xRead({{ key: {key}, id: lastId }}, {{ BLOCK: 5000 }})"),
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
            (_, Language::NodeRedis) => format!("client.{}({key}, 5)", blocking_node_name(command)),
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
        let channel = language.key_in(&format!("__keyspace@0__:{}", self.pattern()), false);
        text.extend(match language {
            Language::Ruby => lines(&format!("redis.subscribe({channel}) {{ |on| on.message {{ changed }} }}")),
            Language::Python => lines(&format!(
                "events = r.pubsub()\nevents.subscribe({channel})\nfor message in events.listen():\n  changed()"
            )),
            Language::JavaScript => {
                lines(&format!("await events.subscribe({channel});\nevents.on(\"message\", changed);"))
            }
            Language::NodeRedis => lines(&format!("await events.subscribe({channel}, changed);")),
            Language::Go => lines(&format!("for range rdb.Subscribe(ctx, {channel}).Channel() {{\n  changed()\n}}")),
            Language::Java => lines(&format!("jedis.subscribe(listener, {channel});")),
        });
        text
    }

    /// A transaction in one pipeline.
    fn transaction(&self) -> Vec<String> {
        let language = self.language;
        let call = self.call_on("pipe", self.command()) + language.end();
        let rest = format!("{} and the other commands", language.comment());
        language.pipeline(None, &[call, rest], true, true)
    }

    /// A script that is called by its hash.
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
            Language::NodeRedis => lines(&format!(
                "const sha = await client.scriptLoad(SCRIPT); // once\nawait client.evalSha(sha, {{ keys: [{key}] }});"
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
        let call = self.call(self.command());
        let make = match language {
            Language::Ruby => "redis = Redis.new(url: URL)",
            Language::Python => "r = redis.Redis.from_url(URL)",
            Language::JavaScript => "const redis = new Redis(URL);",
            Language::NodeRedis => "const client = await createClient({ url: URL }).connect();",
            Language::Go => "rdb := redis.NewClient(options)",
            Language::Java => "var jedis = RedisClient.create(URL);",
        };
        let older = if language == Language::Java { "; JedisPooled before Jedis 7.2" } else { "" };
        let comment = language.comment();
        vec![format!("{make}  {comment} once, for the whole program{older}"), language.assign("reply", &call)]
    }

    /// Pipelines of at most a thousand commands.
    fn chunks(&self) -> Vec<String> {
        let language = self.language;
        let count = crate::loops::CHUNK;
        let body = language.pipeline(None, &self.stage(&self.finding.steps, true), false, true);
        let (begin, end) = match language {
            Language::Ruby => (format!("all.each_slice({count}) do |items|"), "end"),
            Language::Python => (format!("for items in batched(all, {count}):"), ""),
            Language::JavaScript | Language::NodeRedis => {
                (format!("for (const items of chunks(all, {count})) {{"), "}")
            }
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
                Language::NodeRedis => format!("client.lRange({key}, start, start + {count} - 1)"),
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
            Language::NodeRedis => {
                let options =
                    if is_scan { format!("MATCH: pattern, COUNT: {count}") } else { format!("COUNT: {count}") };
                let (first, method) = (argument(&key), calls::node_name(go_name(command)));
                lines(&format!(
                    "for await (const elements of client.{method}Iterator({first}{{ {options} }})) {{\n  use(elements);\n}}"
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

/// Returns node-redis's name of a blocking command.
fn blocking_node_name(command: &str) -> String {
    let go = go_name(command);
    match go.strip_prefix("BZ") {
        Some(rest) => format!("bz{rest}"),
        None => go.get(..2).unwrap_or_default().to_lowercase() + go.get(2..).unwrap_or_default(),
    }
}

/// Returns the parameters of an arrow function over the elements of a list.
fn parameters(names: &[String]) -> String {
    match names {
        [one] => format!("({one})"),
        several => format!("([{}])", several.join(", ")),
    }
}

/// Returns go-redis's name of a command.
fn go_name(command: &str) -> &'static str {
    const NAMES: &[(&str, &str)] = &[
        ("DEL", "Del"),
        ("UNLINK", "Unlink"),
        ("EXISTS", "Exists"),
        ("TOUCH", "Touch"),
        ("XACK", "XAck"),
        ("XDEL", "XDel"),
        ("GEOPOS", "GeoPos"),
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
