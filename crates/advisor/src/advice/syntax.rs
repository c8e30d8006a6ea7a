//! The syntax of the languages, as far as the advice needs it: texts with holes, and loops.

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    Ruby,
    Python,
    JavaScript,
    Go,
    Java,
    Php,
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

impl Syntax {
    /// The characters that begin a comment.
    pub fn comment(self) -> &'static str {
        if matches!(self, Syntax::Ruby | Syntax::Python) { "#" } else { "//" }
    }

    /// The end of a statement.
    pub fn end(self) -> &'static str {
        if matches!(self, Syntax::JavaScript | Syntax::Java | Syntax::Php) { ";" } else { "" }
    }

    /// Returns the expression of a key: a text with the pattern's variables in it. `is_record` tells that a loop binds
    /// several variables.
    pub fn key(self, pattern: &str, is_record: bool) -> String {
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
            Syntax::Python if holes > 0 => format!("f\"{text}\""),
            Syntax::JavaScript if holes > 0 => format!("`{text}`"),
            Syntax::Go if holes > 0 => format!("fmt.Sprintf(\"{text}\", {})", values.join(", ")),
            Syntax::Java => format!("\"{text}\"").replace("\"\" + ", "").replace(" + \"\"", ""),
            _ => format!("\"{text}\""),
        }
    }

    /// Returns a variable of a pattern. Languages without tuples use a field of `item` if there are several variables.
    pub fn variable(self, name: &str, is_one: bool) -> String {
        match self {
            Syntax::Go if !is_one => format!("item.{}", capitalized(name)),
            Syntax::Java if !is_one => format!("item.{name}()"),
            Syntax::Php => format!("${name}"),
            _ => name.to_owned(),
        }
    }

    /// Returns a variable within a text.
    fn hole(self, name: &str) -> String {
        match self {
            Syntax::Ruby => format!("#{{{name}}}"),
            Syntax::Python | Syntax::Php => format!("{{{name}}}"),
            Syntax::JavaScript => format!("${{{name}}}"),
            Syntax::Go => "%v".to_owned(),
            Syntax::Java => format!("\" + {name} + \""),
        }
    }

    /// Escapes the bytes of a text for a literal with or without variables.
    fn literal(self, text: &str, has_holes: bool) -> String {
        // Patterns escape a quote that Go must not have escaped.
        let text = &text.replace("\\'", "'");
        match self {
            Syntax::Ruby => text.replace("#{", "\\#{").replace("#$", "\\#$").replace("#@", "\\#@"),
            Syntax::Java => text.replace("\\x", "\\u00"),
            Syntax::Php => text.replace('$', "\\$"),
            Syntax::Python if has_holes => text.replace('{', "{{").replace('}', "}}"),
            Syntax::JavaScript if has_holes => text.replace('`', "\\`").replace("${", "\\${"),
            Syntax::Go if has_holes => text.replace('%', "%%"),
            _ => text.to_owned(),
        }
    }

    /// Returns the variables that a loop binds.
    pub fn binding(self, variables: &[String]) -> String {
        let names: Vec<String> = variables.iter().map(|name| self.variable(name, true)).collect();
        match (self, &names[..]) {
            (_, []) => self.variable("item", true),
            (_, [one]) => one.clone(),
            (Syntax::Ruby | Syntax::Python, several) => several.join(", "),
            (Syntax::JavaScript | Syntax::Php, several) => format!("[{}]", several.join(", ")),
            (Syntax::Go | Syntax::Java, _) => "item".to_owned(),
        }
    }

    /// Returns a loop over a list.
    pub fn each(self, list: &str, variables: &[String], body: &[String]) -> Vec<String> {
        let (binding, list) = (self.binding(variables), self.variable(list, true));
        let (begin, end) = match self {
            Syntax::Ruby => (format!("{list}.each do |{binding}|"), "end"),
            Syntax::Python => (format!("for {binding} in {list}:"), ""),
            Syntax::JavaScript => (format!("for (const {binding} of {list}) {{"), "}"),
            Syntax::Go => (format!("for _, {binding} := range {list} {{"), "}"),
            Syntax::Java => (format!("for (var {binding} : {list}) {{"), "}"),
            Syntax::Php => (format!("foreach ({list} as {binding}) {{"), "}"),
        };
        let mut lines = vec![begin];
        lines.extend(body.iter().map(|line| format!("  {line}")));
        lines.extend((!end.is_empty()).then(|| end.to_owned()));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Syntax; 6] = [Syntax::Ruby, Syntax::Python, Syntax::JavaScript, Syntax::Go, Syntax::Java, Syntax::Php];

    fn keys(pattern: &str) -> [String; 6] {
        ALL.map(|syntax| syntax.key(pattern, variables(pattern).len() > 1))
    }

    #[test]
    fn a_pattern_becomes_an_expression() {
        assert_eq!(
            keys("user:<n>:name"),
            [
                "\"user:#{n}:name\"",
                "f\"user:{n}:name\"",
                "`user:${n}:name`",
                "fmt.Sprintf(\"user:%v:name\", n)",
                "\"user:\" + n + \":name\"",
                "\"user:{$n}:name\""
            ]
        );
        assert_eq!(keys("<uuid>"), ["uuid", "uuid", "uuid", "uuid", "uuid", "$uuid"]);
        assert_eq!(keys("config"), ["\"config\""; 6]);
        assert_eq!(
            keys("a:<n>:<n>"),
            [
                "\"a:#{n}:#{n2}\"",
                "f\"a:{n}:{n2}\"",
                "`a:${n}:${n2}`",
                "fmt.Sprintf(\"a:%v:%v\", item.N, item.N2)",
                "\"a:\" + item.n() + \":\" + item.n2()",
                "\"a:{$n}:{$n2}\""
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
                "fmt.Sprintf(\"{user:%v}:`${100%%}#{x}\", n)",
                "\"{user:\" + n + \"}:`${100%}#{x}\"",
                "\"{user:{$n}}:`\\${100%}#{x}\""
            ]
        );
    }
}
