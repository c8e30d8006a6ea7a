//! What the server says about its commands: names, summaries, and which arguments they take.
//!
//! Source: the reply of COMMAND DOCS (Redis 7 and newer); for older servers that of COMMAND, which has names and
//! counts.

mod hint;
mod syntax;

pub use hint::{Expected, expected};

use crate::failure::Failure;
use crate::session::CliSession;
use client::Value;

/// All commands, by name.
#[derive(Clone, Debug, Default)]
pub struct Manual {
    entries: Vec<Entry>,
}

/// A command, or one of a container's subcommands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Its name in lower case; a subcommand's words are separated by a blank.
    pub name: String,
    /// What it does.
    pub summary: String,
    /// The version that had it first.
    pub since: String,
    /// The group that it belongs to.
    pub group: String,
    /// What it takes.
    pub arguments: Vec<Argument>,
}

/// An argument of a command, maybe made of others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Argument {
    /// What the manual calls it.
    pub name: String,
    /// What it is.
    pub kind: ArgumentKind,
    /// A word that stands before it, or that it is.
    pub token: Option<String>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may come more than once.
    pub multiple: bool,
    /// Whether the token comes before each of several.
    pub multiple_token: bool,
    /// The parts of a block, or the alternatives of a choice.
    pub parts: Vec<Argument>,
}

/// What an argument is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentKind {
    /// Any value.
    #[default]
    Value,
    /// The name of a key.
    Key,
    /// Nothing but its token.
    Token,
    /// One of its parts.
    Choice,
    /// All its parts, one after the other.
    Block,
}

impl Manual {
    /// Asks the server.
    ///
    /// # Errors
    /// [`Failure`] if the connection breaks. A server that says nothing makes an empty manual.
    pub fn load(session: &mut CliSession<'_>) -> Result<Self, Failure> {
        let docs = session.exchange(&["COMMAND", "DOCS"])?;
        if let Some(manual) = Self::from_docs(&docs) {
            return Ok(manual);
        }
        let table = session.exchange(&["COMMAND"])?;
        Ok(Self::from_table(&table))
    }

    /// The manual that COMMAND DOCS replies, in RESP2 or RESP3; `None` if it is no such reply.
    pub fn from_docs(docs: &Value) -> Option<Self> {
        let mut entries = Vec::new();
        for (name, doc) in pairs(docs)? {
            push_entries(&text(name), doc, &mut entries);
        }
        Some(Self::sorted(entries)).filter(|manual| !manual.entries.is_empty())
    }

    /// The manual that COMMAND replies: each command's name, arity and first key.
    fn from_table(table: &Value) -> Self {
        let rows = elements(table).unwrap_or_default();
        Self::sorted(rows.iter().filter_map(entry_of_row).collect())
    }

    fn sorted(mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Self { entries }
    }

    /// All commands, by name.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The command that begins a line's words, and how many of them are its name.
    pub fn find(&self, words: &[String]) -> Option<(&Entry, usize)> {
        (1..=words.len().min(2)).rev().find_map(|count| {
            let name = words[..count].join(" ").to_ascii_lowercase();
            self.entry(&name).map(|entry| (entry, count))
        })
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        let found = self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name));
        found.ok().map(|index| &self.entries[index])
    }
}

impl Entry {
    /// The words of its name.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.name.split(' ')
    }

    /// Its arguments as the manual writes them: `key value [NX|XX]`.
    pub fn syntax(&self) -> String {
        syntax::all(self.arguments.iter())
    }
}

/// Appends a command's entry and those of its subcommands.
fn push_entries(name: &str, doc: &Value, entries: &mut Vec<Entry>) {
    let field = |wanted| field(doc, wanted);
    let arguments = field("arguments").and_then(elements).unwrap_or_default();
    entries.push(Entry {
        name: name.to_ascii_lowercase().replacen('|', " ", 1),
        summary: field("summary").map(text).unwrap_or_default(),
        since: field("since").map(text).unwrap_or_default(),
        group: field("group").map(text).unwrap_or_default(),
        arguments: arguments.iter().map(argument).collect(),
    });
    for (name, doc) in field("subcommands").and_then(pairs).unwrap_or_default() {
        push_entries(&text(name), doc, entries);
    }
}

fn argument(doc: &Value) -> Argument {
    let flags = field(doc, "flags").and_then(elements).unwrap_or_default();
    let has = |flag: &str| flags.iter().any(|found| found.bytes() == Some(flag.as_bytes()));
    let parts = field(doc, "arguments").and_then(elements).unwrap_or_default();
    let name = field(doc, "display_text").or_else(|| field(doc, "name")).map(text).unwrap_or_default();
    Argument {
        name,
        kind: match field(doc, "type").map(text).unwrap_or_default().as_str() {
            "key" => ArgumentKind::Key,
            "pure-token" => ArgumentKind::Token,
            "oneof" => ArgumentKind::Choice,
            "block" => ArgumentKind::Block,
            _ => ArgumentKind::Value,
        },
        token: field(doc, "token").map(text),
        optional: has("optional"),
        multiple: has("multiple"),
        multiple_token: has("multiple_token"),
        parts: parts.iter().map(argument).collect(),
    }
}

/// An entry of what COMMAND knows: as many arguments as the arity says, the first key among them.
fn entry_of_row(row: &Value) -> Option<Entry> {
    let [name, Value::Int(arity), _, Value::Int(first_key), ..] = elements(row)? else { return None };
    let argument = |index: i64| match index == *first_key {
        true => Argument { name: "key".to_owned(), kind: ArgumentKind::Key, ..Argument::default() },
        false => Argument { name: "arg".to_owned(), ..Argument::default() },
    };
    let mut arguments: Vec<Argument> = (1..arity.unsigned_abs().min(64) as i64).map(argument).collect();
    if *arity < 0 {
        let more = Argument { optional: true, multiple: true, ..argument(arguments.len() as i64 + 1) };
        arguments.push(more);
    }
    Some(Entry { name: text(name).to_ascii_lowercase(), arguments, ..Entry::default() })
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into_owned()
}

fn elements(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(elements) | Value::Set(elements) => Some(elements),
        _ => None,
    }
}

/// The pairs of a map, or of an array that stands for one in RESP2.
fn pairs(value: &Value) -> Option<Vec<(&Value, &Value)>> {
    match value {
        Value::Map(pairs) => Some(pairs.iter().map(|(key, value)| (key, value)).collect()),
        Value::Array(elements) => Some(elements.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect()),
        _ => None,
    }
}

fn field<'a>(map: &'a Value, wanted: &str) -> Option<&'a Value> {
    let found = pairs(map)?.into_iter().find(|(name, _)| name.bytes() == Some(wanted.as_bytes()));
    found.map(|(_, value)| value)
}

#[cfg(test)]
mod tests;
