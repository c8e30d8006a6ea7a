//! The code of a remedy, in each language: the templates of [`super::libraries`], filled with the finding's commands and
//! key patterns.

use super::calls::Site;
use super::library::{Hole, Library, fill};
use super::syntax::variables;
use super::{Language, Remedy, calls, is_of_sidekiq, stages};
use crate::catalogue::SET_WITH_OPTIONS;
use crate::findings::{Finding, FindingStep};
use crate::loops::CHUNK;

/// Returns the code of a remedy. It ends with a line end.
pub fn code(language: Language, remedy: Remedy, finding: &Finding) -> String {
    let writer = Writer { library: language.table(), finding };
    if let Some(lines) = writer.of_framework(remedy) {
        return lines.join("\n") + "\n";
    }
    let lines = match remedy {
        Remedy::ManyKeys(command) => writer.many_keys(command),
        Remedy::ManyMembers(command) => writer.many_members(command),
        Remedy::Sum(command) => writer.sum(command),
        Remedy::Several("XREADGROUP") => writer.several_entries(),
        Remedy::Several(command) => writer.several(command),
        Remedy::Range => writer.range(),
        Remedy::Omit => writer.omit(),
        Remedy::Pipeline | Remedy::Stages => writer.pipelines(),
        Remedy::AskOnce => writer.ask_once(),
        Remedy::OneCommand(command) => writer.one_command(command),
        Remedy::Script => writer.script(),
        Remedy::Wait(command) => writer.wait("element", command),
        Remedy::BeTold => writer.be_told(),
        Remedy::Transaction => writer.transaction(),
        Remedy::LargerPipelines => writer.larger_pipelines(),
        Remedy::ScriptHash => writer.block("script hash"),
        Remedy::ScriptArguments => writer.script_arguments(),
        Remedy::WaitForLock => writer.wait_for_lock(),
        Remedy::WithoutPing => writer.without_ping(),
        Remedy::KeepConnection => writer.keep_connection(),
        Remedy::Chunks => writer.chunks(),
        Remedy::Scan(command @ ("ZRANGE" | "ZREVRANGE")) => writer.finish(vec![writer.call(command)], Some("elements")),
        Remedy::Scan("LRANGE") => writer.finish(writer.block("page"), Some("elements")),
        Remedy::ClusterClient => writer.block("cluster"),
        Remedy::Scan(command) => writer.form(&[command, "scan"], &writer.of(command)),
    };
    lines.join("\n") + "\n"
}

/// The beginning of the keys of Django's cache: a prefix, which is mostly empty, and the version.
const DJANGO_PREFIX: &str = ":<n>:";
/// The comment of a read that is made once.
const ONCE: &str = "once, before the loop; keep the answer";
/// The name of a pipeline's replies.
const REPLIES: &str = "replies";

/// Writes code for a finding.
struct Writer<'f> {
    library: &'static Library,
    finding: &'f Finding,
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
        self.library.syntax.key(self.pattern(), false)
    }

    /// A variable outside a loop.
    fn variable(&self, name: &str) -> String {
        self.library.syntax.variable(name, true)
    }

    /// A line that explains the code.
    fn comment(&self, text: &str) -> String {
        format!("{} {text}", self.library.syntax.comment())
    }

    /// A call of the client with the first step's key, outside a loop.
    fn call(&self, command: &str) -> String {
        self.call_in(false, command)
    }

    /// A call with the first step's key, outside a loop.
    fn call_in(&self, is_queued: bool, command: &str) -> String {
        let site = Site { library: self.library, is_queued, variable: &|name| self.variable(name) };
        site.call(command, &self.key())
    }

    /// A call in a pipeline. `replies` is the name of the replies. `is_record` tells that a loop binds several variables.
    fn call_in_pipeline(&self, replies: &str, step: &FindingStep, is_record: bool) -> String {
        let syntax = self.library.syntax;
        let variable = |name: &str| syntax.variable(name, !is_record);
        let site = Site { library: self.library, is_queued: true, variable: &variable };
        let call = site.call(&step.command, &syntax.key(&step.pattern, is_record));
        fill(self.library.queued, &[("call", call), ("replies", self.variable(replies))]) + syntax.end()
    }

    /// Fills the first template that the library has under these names.
    fn form(&self, names: &[&str], holes: &[Hole<'_>]) -> Vec<String> {
        self.form_with(names, holes, &[], &[])
    }

    /// Fills a template whose loop over `items` binds `variables`. `body` replaces a line that is the hole `body`.
    fn form_with(&self, names: &[&str], holes: &[Hole<'_>], variables: &[String], body: &[String]) -> Vec<String> {
        let mut template = self.library.form(names).unwrap_or_default().lines().peekable();
        let mut lines = Vec::new();
        while let Some(line) = template.next() {
            let text = line.trim_start();
            let (indentation, _) = line.split_at(line.len() - text.len());
            let mut add = |line: &String| lines.push(format!("{indentation}{line}"));
            if text == "<body>" {
                body.iter().for_each(add);
            } else if let Some(first) = text.strip_prefix("<each>") {
                let mut repeated = vec![fill(first, holes)];
                while let Some(next) = template.peek().and_then(|line| line.trim_start().strip_prefix("<each>")) {
                    repeated.push(fill(next, holes));
                    template.next();
                }
                self.library.syntax.each("items", variables, &repeated).iter().for_each(add);
            } else {
                add(&fill(text, holes));
            }
        }
        lines
    }

    /// Fills a template with the first step's key.
    fn block(&self, name: &str) -> Vec<String> {
        self.form(&[name], &self.of(self.command()))
    }

    /// The holes of most templates: the key outside a loop, and the method of a command.
    fn of(&self, command: &str) -> [Hole<'static>; 4] {
        [
            ("key", self.key()),
            ("method", calls::method(self.library, command)),
            ("command", command.to_owned()),
            ("count", CHUNK.to_string()),
        ]
    }

    /// Makes the last line a statement that assigns the reply to a variable, or ignores it.
    fn finish(&self, mut lines: Vec<String>, name: Option<&str>) -> Vec<String> {
        if let Some(call) = lines.pop() {
            let template = if name.is_some() { self.library.assign } else { self.library.statement };
            let name = self.variable(name.unwrap_or_default());
            lines.push(fill(template, &[("name", name), ("call", call)]));
        }
        lines
    }

    /// The call of a framework, if the keys show the framework and the library has a template for it.
    fn of_framework(&self, remedy: Remedy) -> Option<Vec<String>> {
        if is_of_sidekiq(self.finding) {
            let name = matches!(remedy, Remedy::LargerPipelines | Remedy::Pipeline).then_some("sidekiq")?;
            return self.library.form(&[name]).map(|_| self.block(name));
        }
        let key = self.pattern().strip_prefix(DJANGO_PREFIX)?;
        let (name, reply) = match (remedy, self.command()) {
            (Remedy::ManyKeys("MGET"), _) => ("django get_many", Some("values")),
            (Remedy::ManyKeys("MSET"), _) | (Remedy::Pipeline, SET_WITH_OPTIONS) => ("django set_many", None),
            (Remedy::ManyKeys("DEL"), _) => ("django delete_many", None),
            (Remedy::AskOnce, "GET") => ("django get", Some("value")),
            _ => return None,
        };
        self.library.form(&[name])?;
        let mut names = variables(key);
        names.extend((name == "django set_many").then(|| "value".to_owned()));
        let syntax = self.library.syntax;
        let holes = [("key", syntax.key(key, names.len() > 1)), ("binding", syntax.binding(&names))];
        let mut lines = self.finish(self.form(&[name], &holes), reply);
        if remedy == Remedy::AskOnce {
            lines.insert(0, self.comment(ONCE));
        }
        Some(lines)
    }

    /// MGET, MSET, DEL and other commands with many keys.
    fn many_keys(&self, command: &str) -> Vec<String> {
        let syntax = self.library.syntax;
        let mut names = variables(self.pattern());
        if command == "MSET" {
            names.push("value".to_owned());
        }
        let is_record = names.len() > 1;
        let mut holes = self.of(command).to_vec();
        holes.splice(
            ..1,
            [
                ("key", syntax.key(self.pattern(), is_record)),
                ("value", syntax.variable("value", !is_record)),
                ("binding", syntax.binding(&names)),
            ],
        );
        let reply = match command {
            "MGET" => Some("values"),
            "TOUCH" => Some("count"),
            _ => None,
        };
        self.finish(self.form_with(&[command, "keys"], &holes, &names, &[]), reply)
    }

    /// SADD, HMGET, ZMSCORE and other commands with many members of one key.
    fn many_members(&self, command: &str) -> Vec<String> {
        let reads = matches!(command, "HMGET" | "SMISMEMBER" | "ZMSCORE" | "GEOPOS");
        let group = if command == "XACK" { self.variable("group") + ", " } else { String::new() };
        let mut holes = self.of(command).to_vec();
        holes.push(("group", group));
        let names: &[&str] = match command {
            "XACK" | "XDEL" => &[command, "entries"],
            "HMGET" | "SMISMEMBER" | "ZMSCORE" => &[command, "many reads", "members"],
            _ => &[command, "members"],
        };
        self.finish(self.form(names, &holes), reads.then_some("values"))
    }

    /// One increment by the sum.
    fn sum(&self, command: &str) -> Vec<String> {
        let mut lines = self.finish(vec![self.call(command)], None);
        lines.insert(0, self.comment("amount: the sum of the loop's increments"));
        lines
    }

    /// One range in place of single elements.
    fn range(&self) -> Vec<String> {
        let mut lines = self.finish(vec![self.call("LRANGE")], Some("elements"));
        lines.insert(0, self.comment("start, stop: the first and the last index of the loop"));
        lines
    }

    /// No command at all.
    fn omit(&self) -> Vec<String> {
        vec![self.comment("leave it out: on a broken connection the next command fails as well, and is sent again")]
    }

    /// One command that takes several elements.
    fn several(&self, command: &str) -> Vec<String> {
        let names: &[&str] =
            if matches!(command, "LPOP" | "RPOP") { &[command, "pop", "several"] } else { &[command, "several"] };
        self.finish(self.form(names, &self.of(command)), Some("elements"))
    }

    /// XREADGROUP of several entries.
    fn several_entries(&self) -> Vec<String> {
        let pattern = self.finding.steps.iter().find(|step| !step.pattern.is_empty());
        let syntax = self.library.syntax;
        let key = pattern.map_or(self.variable("stream"), |step| syntax.key(&step.pattern, false));
        self.form(&["XREADGROUP"], &[("key", key)])
    }

    /// One pipeline in place of many small ones.
    fn larger_pipelines(&self) -> Vec<String> {
        let mut body = self.stage("items", REPLIES, &self.finding.steps, true);
        body.push(self.comment("and the other commands"));
        self.pipeline(REPLIES, false, &body, true)
    }

    /// A script whose values are arguments.
    fn script_arguments(&self) -> Vec<String> {
        let mut lines = self.block("script arguments");
        lines.insert(0, self.comment("ARGV[1] stands for the value in the text"));
        lines
    }

    /// A lock that waits.
    fn wait_for_lock(&self) -> Vec<String> {
        let mut lines = self.wait("token", "BLPOP");
        lines.insert(0, self.comment("the owner ends with RPUSH of a token to the same list"));
        lines
    }

    /// The loop without its PINGs.
    fn without_ping(&self) -> Vec<String> {
        let steps: Vec<FindingStep> =
            self.finding.steps.iter().filter(|step| &*step.command != "PING").cloned().collect();
        let mut lines = self.omit();
        let reads = steps.iter().all(|step| calls::is_read(&step.command));
        lines.extend(self.pipeline(REPLIES, reads, &self.stage("items", REPLIES, &steps, true), true));
        lines
    }

    /// A pipeline. `is_first` is false if a pipeline stands above it.
    fn pipeline(&self, replies: &str, has_replies: bool, body: &[String], is_first: bool) -> Vec<String> {
        let names: &[&str] = match (is_first, has_replies) {
            (true, false) => &["pipeline"],
            (true, true) => &["pipeline with replies", "pipeline"],
            (false, false) => &["next pipeline", "pipeline"],
            (false, true) => &["next pipeline with replies", "pipeline with replies", "next pipeline", "pipeline"],
        };
        self.form_with(names, &[("replies", self.variable(replies))], &[], body)
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
                lines.push(self.comment(match (index, reads) {
                    (0, true) => "first all reads",
                    (0, false) => "first all commands that need no reply",
                    _ => "uses the replies of the previous pipeline",
                }));
            }
            let name = if index == 0 { REPLIES.to_owned() } else { format!("{REPLIES}{}", index + 1) };
            // The arguments of a later stage are computed from the replies.
            let body = self.stage(if index == 0 { "items" } else { "changes" }, &name, stage, is_last);
            lines.extend(self.pipeline(&name, !is_last || reads, &body, index == 0));
        }
        lines
    }

    /// The calls of a stage, in a loop over a list with their variables.
    fn stage(&self, list: &str, replies: &str, stage: &[FindingStep], is_last: bool) -> Vec<String> {
        let names = self.bound(stage);
        let calls: Vec<String> =
            stage.iter().map(|step| self.call_in_pipeline(replies, step, names.len() > 1)).collect();
        let mut body = self.library.syntax.each(list, &names, &calls);
        if is_last && self.finding.is_followed() {
            body.extend(self.finding.after.iter().map(|step| self.call_in_pipeline(replies, step, false)));
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
        let is_one_key = self.finding.steps.first().is_some_and(|step| step.one_key);
        let comment = match calls::arguments(self.command()).next() {
            Some(argument) if !is_one_key => {
                format!("once for each {argument}, with any of its keys; keep the answer")
            }
            _ => ONCE.to_owned(),
        };
        let mut lines = self.finish(vec![self.call(self.command())], Some("value"));
        lines.insert(0, self.comment(&comment));
        lines
    }

    /// One command that reads and writes.
    fn one_command(&self, command: &str) -> Vec<String> {
        let lines = if command == "GETEX" { self.block("GETEX") } else { vec![self.call(command)] };
        self.finish(lines, Some("value"))
    }

    /// One script.
    fn script(&self) -> Vec<String> {
        let write = self.finding.steps.get(1).map_or("SET", |step| &step.command);
        let (read, mut passed) = calls::in_script(self.command(), true, 0, None);
        let (write, more) = calls::in_script(write, true, passed.len(), Some("updated"));
        passed.extend(more);
        let body = [
            format!("local value = redis.call({read})"),
            "local updated = value -- compute it here".to_owned(),
            format!("return redis.call({write})"),
        ];
        let names: Vec<String> = passed.iter().map(|name| self.variable(name)).collect();
        let texts: Vec<String> = names.iter().map(|name| calls::text_of(self.library, name)).collect();
        let arguments = texts.iter().map(|text| format!(", {text}")).collect();
        let holes = [("key", self.key()), ("texts", texts.join(", ")), ("arguments", arguments)];
        self.form_with(&["script"], &holes, &[], &body)
    }

    /// The blocking command.
    fn wait(&self, reply: &str, command: &str) -> Vec<String> {
        // XREADGROUP alone names the code without a wait.
        let name = if command == "XREADGROUP" { "wait XREADGROUP" } else { command };
        self.finish(self.form(&[name, "wait"], &self.of(command)), Some(reply))
    }

    /// Notifications of changes.
    fn be_told(&self) -> Vec<String> {
        let key = self.library.syntax.key(&format!("__keyspace@0__:{}", self.pattern()), false);
        let mut lines = self.form(&["told"], &[("key", key)]);
        lines.insert(0, self.comment("CONFIG SET notify-keyspace-events K$gxh, then, on a connection of its own:"));
        lines
    }

    /// A transaction in one pipeline.
    fn transaction(&self) -> Vec<String> {
        let call = self.call_in(true, self.command()) + self.library.syntax.end();
        self.form_with(&["transaction"], &[], &[], &[call, self.comment("and the other commands")])
    }

    /// One client for the whole program.
    fn keep_connection(&self) -> Vec<String> {
        let mut lines = self.block("connection");
        let reads = calls::is_read(self.command());
        lines.extend(self.finish(vec![self.call(self.command())], reads.then_some("reply")));
        lines
    }

    /// Pipelines of at most a thousand commands.
    fn chunks(&self) -> Vec<String> {
        let body = self.pipeline(REPLIES, false, &self.stage("items", REPLIES, &self.finding.steps, true), true);
        self.form_with(&["chunks"], &self.of(self.command()), &[], &body)
    }
}
