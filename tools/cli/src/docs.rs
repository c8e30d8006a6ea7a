//! The server's documentation of its commands: names, summaries and arguments.
//!
//! Source: the reply of COMMAND DOCS (Redis 7 and newer). Older servers answer COMMAND with names and argument counts
//! only.

mod hint;
mod syntax;

pub use hint::{Expected, expected};

use crate::failure::Failure;
use crate::session::CliSession;
use client::Value;

/// All commands, sorted by name.
#[derive(Clone, Debug, Default)]
pub struct Manual {
    entries: Vec<Entry>,
}

/// A command or a subcommand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// Name in lower case. A blank separates a command from its subcommand.
    pub name: String,
    /// Summary of the command.
    pub summary: String,
    /// First server version with the command.
    pub since: String,
    /// Group of the command.
    pub group: String,
    /// Arguments of the command.
    pub arguments: Vec<Argument>,
}

/// An argument of a command. It may consist of other arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Argument {
    /// Name in the manual.
    pub name: String,
    /// Kind of the argument.
    pub kind: ArgumentKind,
    /// Keyword before the value, or the keyword that is the whole argument.
    pub token: Option<String>,
    /// True if the argument is optional.
    pub optional: bool,
    /// True if the argument is repeatable.
    pub multiple: bool,
    /// True if each repetition needs the keyword.
    pub multiple_token: bool,
    /// Parts of a block, or alternatives of a choice.
    pub parts: Vec<Argument>,
}

/// Kind of an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentKind {
    /// Any value.
    #[default]
    Value,
    /// The name of a key.
    Key,
    /// A keyword without a value.
    Token,
    /// One of its parts.
    Choice,
    /// All its parts in sequence.
    Block,
}

impl Manual {
    /// Loads the manual from the server.
    ///
    /// # Errors
    /// Returns [`Failure`] if the connection breaks. A server without documentation gives an empty manual.
    pub fn load(session: &mut CliSession<'_>) -> Result<Self, Failure> {
        let docs = session.exchange(&["COMMAND", "DOCS"])?;
        if let Some(manual) = Self::from_docs(&docs) {
            return Ok(manual);
        }
        let table = session.exchange(&["COMMAND"])?;
        Ok(Self::from_table(&table))
    }

    /// Parses a reply of COMMAND DOCS, in RESP2 or RESP3. Returns `None` for any other reply.
    pub fn from_docs(docs: &Value) -> Option<Self> {
        let mut entries = Vec::new();
        for (name, doc) in pairs(docs)? {
            push_entries(&text(name), doc, &mut entries);
        }
        Some(Self::sorted(entries)).filter(|manual| !manual.entries.is_empty())
    }

    /// Builds a manual from the reply of COMMAND: each command's name, arity and first key.
    fn from_table(table: &Value) -> Self {
        let rows = elements(table).unwrap_or_default();
        Self::sorted(rows.iter().filter_map(entry_of_row).collect())
    }

    fn sorted(mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Self { entries }
    }

    /// Returns all commands, sorted by name.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the command at the beginning of a line, and the number of words in its name.
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
    /// Returns the words of the name.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.name.split(' ')
    }

    /// Returns the arguments in the manual's notation: `key value [NX|XX]`.
    pub fn syntax(&self) -> String {
        syntax::all(self.arguments.iter())
    }
}

/// Appends the entries of a command and its subcommands.
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

/// Builds an entry from a row of COMMAND. The arity gives the number of arguments, and one of them is the first key.
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

/// Returns the pairs of a map, or of the array that represents one in RESP2.
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
