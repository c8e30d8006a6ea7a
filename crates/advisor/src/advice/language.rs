//! The syntax of the languages and their client libraries, as far as the advice needs it: texts with holes, loops, lists, pipelines.

/// A language, with the client library of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// redis-rb.
    Ruby,
    /// redis-py.
    Python,
    /// ioredis.
    JavaScript,
    /// node-redis.
    NodeRedis,
    /// go-redis.
    Go,
    /// Jedis.
    Java,
}

/// The holes of patterns, each with the name of its variable.
const HOLES: &[(&str, &str)] = &[
    ("<n>", "n"),
    ("<date>", "date"),
    ("<uuid>", "uuid"),
    ("<hash>", "hash"),
    ("<id>", "id"),
    ("<word>", "word"),
    ("<binary>", "bytes"),
    ("<...>", "rest"),
];

/// A part of a pattern.
enum Part<'p> {
    Text(&'p str),
    Hole(String),
}

/// Cuts a pattern into texts and holes. A second hole of the same kind gets a number.
fn parts(pattern: &str) -> Vec<Part<'_>> {
    let (mut parts, mut rest) = (Vec::new(), pattern);
    let mut used: Vec<&str> = Vec::new();
    let next = |text: &str| {
        let holes = HOLES.iter().filter_map(|(hole, name)| Some((text.find(hole)?, *hole, *name)));
        holes.min_by_key(|(at, ..)| *at)
    };
    while let Some((at, hole, name)) = next(rest) {
        let (text, after) = rest.split_at(at);
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        let before = used.iter().filter(|known| **known == name).count();
        used.push(name);
        let number = if before == 0 { String::new() } else { (before + 1).to_string() };
        parts.push(Part::Hole(format!("{name}{number}")));
        rest = after.strip_prefix(hole).unwrap_or_default();
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest));
    }
    parts
}

/// Returns the variables of a pattern.
pub fn variables(pattern: &str) -> Vec<String> {
    let hole = |part| if let Part::Hole(name) = part { Some(name) } else { None };
    parts(pattern).into_iter().filter_map(hole).collect()
}

/// Returns a name with a capital.
fn capitalized(name: &str) -> String {
    let (first, rest) = name.split_at(name.chars().next().map_or(0, char::len_utf8));
    first.to_uppercase() + rest
}

impl Language {
    /// All languages.
    pub const ALL: [Language; 6] =
        [Language::Ruby, Language::Python, Language::JavaScript, Language::NodeRedis, Language::Go, Language::Java];

    /// The language's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Language::Ruby => "Ruby",
            Language::Python => "Python",
            Language::JavaScript => "JavaScript",
            Language::NodeRedis => "JavaScript with node-redis",
            Language::Go => "Go",
            Language::Java => "Java",
        }
    }

    /// The client library's name.
    #[must_use]
    pub fn library(self) -> &'static str {
        match self {
            Language::Ruby => "redis-rb",
            Language::Python => "redis-py",
            Language::JavaScript => "ioredis",
            Language::NodeRedis => "node-redis",
            Language::Go => "go-redis",
            Language::Java => "Jedis",
        }
    }

    /// Returns the language of a library; `library` is a name and version from CLIENT SETINFO.
    #[must_use]
    pub fn of_library(library: &str) -> Option<Language> {
        let library = library.to_lowercase();
        let is = |names: &[&str]| names.iter().any(|name| library.contains(name));
        if is(&["redis-rb", "redis-client", "sidekiq"]) {
            Some(Language::Ruby)
        } else if is(&["redis-py", "valkey-py", "coredis"]) {
            Some(Language::Python)
        } else if is(&["node-redis"]) {
            Some(Language::NodeRedis)
        } else if is(&["ioredis", "iovalkey", "bullmq"]) {
            Some(Language::JavaScript)
        } else if is(&["go-redis", "rueidis", "valkey-go", "redigo"]) {
            Some(Language::Go)
        } else if is(&["jedis", "lettuce", "redisson"]) {
            Some(Language::Java)
        } else {
            None
        }
    }

    /// The name of the client object.
    pub fn client(self) -> &'static str {
        match self {
            Language::Ruby | Language::JavaScript => "redis",
            Language::NodeRedis => "client",
            Language::Python => "r",
            Language::Go => "rdb",
            Language::Java => "jedis",
        }
    }

    /// The characters that begin a comment.
    pub fn comment(self) -> &'static str {
        if matches!(self, Language::Ruby | Language::Python) { "#" } else { "//" }
    }

    /// The end of a statement.
    pub fn end(self) -> &'static str {
        if matches!(self, Language::JavaScript | Language::NodeRedis | Language::Java) { ";" } else { "" }
    }

    /// Returns the expression of a key in a loop over the pattern's variables.
    pub fn key(self, pattern: &str) -> String {
        self.key_in(pattern, variables(pattern).len() > 1)
    }

    /// Returns the expression of a key: a text with the pattern's variables in it. `is_record` tells that a loop binds
    /// several variables.
    pub fn key_in(self, pattern: &str, is_record: bool) -> String {
        let parts = parts(pattern);
        let holes = parts.iter().filter(|part| matches!(part, Part::Hole(_))).count();
        if let [Part::Hole(name)] = &parts[..] {
            return self.variable(name, !is_record);
        }
        let is_one = !is_record;
        let mut text = String::new();
        let mut values = Vec::new();
        for part in &parts {
            match part {
                Part::Text(literal) => text += &self.literal(literal, holes > 0),
                Part::Hole(name) => {
                    let name = self.variable(name, is_one);
                    text += &self.hole(&name);
                    values.push(name);
                }
            }
        }
        match self {
            Language::Python if holes > 0 => format!("f\"{text}\""),
            Language::JavaScript | Language::NodeRedis if holes > 0 => format!("`{text}`"),
            Language::Go if holes > 0 => format!("fmt.Sprintf(\"{text}\", {})", values.join(", ")),
            Language::Java => format!("\"{text}\"").replace("\"\" + ", "").replace(" + \"\"", ""),
            _ => format!("\"{text}\""),
        }
    }

    /// Returns a variable of a pattern. Languages without tuples use a field of `item` if there are several variables.
    pub fn variable(self, name: &str, is_one: bool) -> String {
        match self {
            Language::Go if !is_one => format!("item.{}", capitalized(name)),
            Language::Java if !is_one => format!("item.{name}()"),
            _ => name.to_owned(),
        }
    }

    /// Returns a variable within a text.
    fn hole(self, name: &str) -> String {
        match self {
            Language::Ruby => format!("#{{{name}}}"),
            Language::Python => format!("{{{name}}}"),
            Language::JavaScript | Language::NodeRedis => format!("${{{name}}}"),
            Language::Go => "%v".to_owned(),
            Language::Java => format!("\" + {name} + \""),
        }
    }

    /// Escapes the bytes of a text for a literal with or without variables.
    fn literal(self, text: &str, has_holes: bool) -> String {
        // Patterns escape a quote that Go must not have escaped.
        let text = &text.replace("\\'", "'");
        match self {
            Language::Ruby => text.replace("#{", "\\#{").replace("#$", "\\#$").replace("#@", "\\#@"),
            Language::Java => text.replace("\\x", "\\u00"),
            Language::Python if has_holes => text.replace('{', "{{").replace('}', "}}"),
            Language::JavaScript | Language::NodeRedis if has_holes => text.replace('`', "\\`").replace("${", "\\${"),
            Language::Go if has_holes => text.replace('%', "%%"),
            _ => text.to_owned(),
        }
    }

    /// Returns the variables that a loop binds.
    fn binding(self, variables: &[String]) -> String {
        match (self, variables) {
            (_, []) => "item".to_owned(),
            (_, [one]) => one.clone(),
            (Language::Ruby | Language::Python, several) => several.join(", "),
            (Language::JavaScript | Language::NodeRedis, several) => format!("[{}]", several.join(", ")),
            (Language::Go | Language::Java, _) => "item".to_owned(),
        }
    }

    /// Returns a loop over `items`.
    pub fn each(self, variables: &[String], body: &[String]) -> Vec<String> {
        self.each_of("items", variables, body)
    }

    /// Returns a loop over a list.
    pub fn each_of(self, list: &str, variables: &[String], body: &[String]) -> Vec<String> {
        let binding = self.binding(variables);
        let (begin, end) = match self {
            Language::Ruby => (format!("{list}.each do |{binding}|"), "end"),
            Language::Python => (format!("for {binding} in {list}:"), ""),
            Language::JavaScript | Language::NodeRedis => (format!("for (const {binding} of {list}) {{"), "}"),
            Language::Go => (format!("for _, {binding} := range {list} {{"), "}"),
            Language::Java => (format!("for (var {binding} : {list}) {{"), "}"),
        };
        block(begin, body, end)
    }

    /// Returns a list with an expression for each of `items`.
    pub fn list(self, variables: &[String], expression: &str) -> String {
        let binding = self.binding(variables);
        match self {
            Language::Ruby => format!("items.map {{ |{binding}| {expression} }}"),
            Language::Python => format!("[{expression} for {binding} in items]"),
            Language::JavaScript | Language::NodeRedis => format!("items.map(({binding}) => {expression})"),
            // Go has no such expression: see `collected`.
            Language::Go => "keys...".to_owned(),
            Language::Java => format!("items.stream().map({binding} -> {expression}).toArray(String[]::new)"),
        }
    }

    /// Returns the lines that must stand before [`Language::list`].
    pub fn collected(self, variables: &[String], expression: &str) -> Vec<String> {
        if self != Language::Go {
            return Vec::new();
        }
        let mut lines = vec!["var keys []string".to_owned()];
        lines.extend(self.each(variables, &[format!("keys = append(keys, {expression})")]));
        lines
    }

    /// Returns a pipeline; the calls in its body are made on `pipe`. `is_first` is false if a pipeline stands above it.
    pub fn pipeline(self, result: Option<&str>, body: &[String], is_transaction: bool, is_first: bool) -> Vec<String> {
        let assign = |keyword: &str| result.map_or(String::new(), |name| format!("{keyword}{name} = "));
        match self {
            Language::Ruby => {
                let method = if is_transaction { "multi" } else { "pipelined" };
                block(format!("{}redis.{method} do |pipe|", assign("")), body, "end")
            }
            Language::Python => {
                let argument = if is_transaction { "True" } else { "False" };
                let mut lines = vec![format!("pipe = r.pipeline(transaction={argument})")];
                lines.extend_from_slice(body);
                lines.push(format!("{}pipe.execute()", assign("")));
                lines
            }
            Language::JavaScript | Language::NodeRedis => {
                let (begin, end) = match (self, is_transaction) {
                    (Language::NodeRedis, true) => ("client.multi", "exec"),
                    (Language::NodeRedis, false) => ("client.multi", "execAsPipeline"),
                    (_, true) => ("redis.multi", "exec"),
                    (_, false) => ("redis.pipeline", "exec"),
                };
                let declare = if is_first { "let " } else { "" };
                let mut lines = vec![format!("{declare}pipe = {begin}();")];
                lines.extend_from_slice(body);
                lines.push(format!("{}await pipe.{end}();", assign("const ")));
                lines
            }
            Language::Go => {
                let method = if is_transaction { "TxPipelined" } else { "Pipelined" };
                let name = result.unwrap_or("_");
                // A declaration must have a new variable.
                let declare = if is_first || result.is_some() { ":=" } else { "=" };
                let mut body = body.to_vec();
                body.push("return nil".to_owned());
                block(
                    format!("{name}, err {declare} rdb.{method}(ctx, func(pipe redis.Pipeliner) error {{"),
                    &body,
                    "})",
                )
            }
            Language::Java if is_transaction => {
                let mut body = body.to_vec();
                body.push("pipe.exec();".to_owned());
                block("try (var pipe = jedis.multi()) {".to_owned(), &body, "}")
            }
            Language::Java => {
                // The next pipeline reads the replies, so they are declared outside the block.
                let mut lines: Vec<String> = result.iter().map(|name| format!("List<Object> {name};")).collect();
                let mut body = body.to_vec();
                let all = if result.is_some() { "AndReturnAll" } else { "" };
                body.push(format!("{}pipe.sync{all}();", assign("")));
                lines.extend(block("try (var pipe = jedis.pipelined()) {".to_owned(), &body, "}"));
                lines
            }
        }
    }

    /// Returns the statement that assigns a call's result to the variable `name`.
    pub fn assign(self, name: &str, call: &str) -> String {
        match self {
            Language::Ruby | Language::Python => format!("{name} = {call}"),
            Language::JavaScript | Language::NodeRedis => format!("const {name} = await {call};"),
            Language::Go => format!("{name}, err := {call}.Result()"),
            Language::Java => format!("var {name} = {call};"),
        }
    }

    /// Returns the statement that makes a call and ignores its result.
    pub fn statement(self, call: &str) -> String {
        match self {
            Language::Ruby | Language::Python => call.to_owned(),
            Language::JavaScript | Language::NodeRedis => format!("await {call};"),
            Language::Go => format!("err := {call}.Err()"),
            Language::Java => format!("{call};"),
        }
    }
}

/// Returns the indented lines between a beginning and an end; the end may be empty.
fn block(begin: String, body: &[String], end: &str) -> Vec<String> {
    let mut lines = vec![begin];
    lines.extend(body.iter().map(|line| format!("  {line}")));
    if !end.is_empty() {
        lines.push(end.to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(pattern: &str) -> [String; 6] {
        Language::ALL.map(|language| language.key(pattern))
    }

    #[test]
    fn a_pattern_becomes_an_expression() {
        assert_eq!(
            keys("user:<n>:name"),
            [
                "\"user:#{n}:name\"",
                "f\"user:{n}:name\"",
                "`user:${n}:name`",
                "`user:${n}:name`",
                "fmt.Sprintf(\"user:%v:name\", n)",
                "\"user:\" + n + \":name\""
            ]
        );
        assert_eq!(keys("<uuid>"), ["uuid"; 6]);
        assert_eq!(keys("config"), ["\"config\""; 6]);
        assert_eq!(
            keys("a:<n>:<n>"),
            [
                "\"a:#{n}:#{n2}\"",
                "f\"a:{n}:{n2}\"",
                "`a:${n}:${n2}`",
                "`a:${n}:${n2}`",
                "fmt.Sprintf(\"a:%v:%v\", item.N, item.N2)",
                "\"a:\" + item.n() + \":\" + item.n2()"
            ]
        );
    }

    #[test]
    fn special_characters_of_each_language_are_escaped() {
        assert_eq!(
            keys("{user:<n>}:`${100%}#{x}"),
            [
                "\"{user:#{n}}:`${100%}\\#{x}\"",
                "f\"{{user:{n}}}:`${{100%}}#{{x}}\"",
                "`{user:${n}}:\\`\\${100%}#{x}`",
                "`{user:${n}}:\\`\\${100%}#{x}`",
                "fmt.Sprintf(\"{user:%v}:`${100%%}#{x}\", n)",
                "\"{user:\" + n + \"}:`${100%}#{x}\""
            ]
        );
    }

    #[test]
    fn a_library_implies_its_language() {
        assert_eq!(Language::of_library("redis-py 5.2.0"), Some(Language::Python));
        assert_eq!(Language::of_library("redis-client(redis-rb_v5.0)"), Some(Language::Ruby));
        assert_eq!(Language::of_library("node-redis 5.1.0"), Some(Language::NodeRedis));
        assert_eq!(Language::of_library("ioredis 5.4.1"), Some(Language::JavaScript));
        assert_eq!(Language::of_library("hiredis"), None);
    }
}
