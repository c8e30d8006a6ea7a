//! The first key of a command, by the server's own table of commands.

use std::collections::HashMap;

use resp::parse::Value;

use super::fields::{array, field, int, text};

/// The places of keys in all commands of a server.
#[derive(Debug, Default)]
pub(super) struct KeyTable {
    commands: HashMap<Vec<u8>, Entry>,
}

#[derive(Debug)]
struct Entry {
    specs: Vec<KeySpec>,
    subcommands: HashMap<Vec<u8>, Vec<KeySpec>>,
}

/// The place of a command's first key.
#[derive(Debug, PartialEq, Eq)]
struct KeySpec {
    begin: Begin,
    find: Find,
}

/// The argument at which keys, or their number, begin.
#[derive(Debug, PartialEq, Eq)]
enum Begin {
    At(usize),
    /// The argument after a word. The search starts at an argument, counted from the end if negative.
    After(Vec<u8>, i64),
}

#[derive(Debug, PartialEq, Eq)]
enum Find {
    /// The first key is the first argument.
    Here,
    /// One argument has the number of keys, another one is the first key.
    Counted { number_at: usize, first: usize },
}

impl KeyTable {
    /// Parses the reply to COMMAND. The table is empty if the reply is an error.
    pub(super) fn parse(reply: &Value) -> Self {
        let entries = array(reply).unwrap_or_default().iter().filter_map(|command| {
            let fields = array(command)?;
            let subcommands = fields.get(9).and_then(array).unwrap_or_default();
            let subcommands = subcommands.iter().filter_map(|command| {
                let fields = array(command)?;
                // The name is `container|subcommand`.
                let name = text(fields.first()?)?.rsplit('|').next()?;
                Some((name.to_ascii_lowercase().into_bytes(), specs(fields)))
            });
            let entry = Entry { specs: specs(fields), subcommands: subcommands.collect() };
            Some((text(fields.first()?)?.to_ascii_lowercase().into_bytes(), entry))
        });
        Self { commands: entries.collect() }
    }

    /// Returns the first key of a command, or a channel that has a slot. Without a table, the first argument counts as
    /// the key: the worst case is a redirection.
    pub(super) fn first_key<'a>(&self, args: &[&'a [u8]]) -> Option<&'a [u8]> {
        if self.commands.is_empty() {
            return args.get(1).copied();
        }
        let entry = self.commands.get(&args.first()?.to_ascii_lowercase())?;
        let subcommand = args.get(1).and_then(|name| entry.subcommands.get(&name.to_ascii_lowercase()));
        let specs = subcommand.unwrap_or(&entry.specs);
        specs.iter().find_map(|spec| spec.first_key(args))
    }
}

impl KeySpec {
    fn first_key<'a>(&self, args: &[&'a [u8]]) -> Option<&'a [u8]> {
        let begin = match &self.begin {
            Begin::At(index) => *index,
            Begin::After(word, from) => position_of(word, *from, args)? + 1,
        };
        match self.find {
            Find::Here => args.get(begin).copied(),
            Find::Counted { number_at, first } => {
                let number = args.get(begin.checked_add(number_at)?)?;
                let number: u64 = std::str::from_utf8(number).ok()?.parse().ok()?;
                args.get(begin.checked_add(first)?).copied().filter(|_| number > 0)
            }
        }
    }
}

/// Returns the position of a word. A negative `from` counts from the end, and the search goes backwards.
fn position_of(word: &[u8], from: i64, args: &[&[u8]]) -> Option<usize> {
    let distance = usize::try_from(from.unsigned_abs()).ok()?;
    let is_word = |at: &usize| args[*at].eq_ignore_ascii_case(word);
    match from < 0 {
        true => (0..=args.len().checked_sub(distance)?).rev().find(is_word),
        false => (distance..args.len()).find(is_word),
    }
}

/// Returns the key specifications of an entry of COMMAND. Servers before 7.0 send only the position of the first key.
fn specs(fields: &[Value]) -> Vec<KeySpec> {
    match fields.get(8).and_then(array) {
        Some(specs) => specs.iter().filter_map(spec).collect(),
        None => {
            let first = fields.get(3).and_then(index).filter(|first| *first > 0);
            first.map(|first| KeySpec { begin: Begin::At(first), find: Find::Here }).into_iter().collect()
        }
    }
}

fn spec(value: &Value) -> Option<KeySpec> {
    let (begin, find) = (field(value, "begin_search")?, field(value, "find_keys")?);
    let (place, rule) = (field(begin, "spec")?, field(find, "spec")?);
    let begin = match text(field(begin, "type")?)? {
        "index" => Begin::At(index(field(place, "index")?)?),
        "keyword" => Begin::After(field(place, "keyword")?.bytes()?.to_vec(), int(field(place, "startfrom")?)?),
        _ => return None,
    };
    let find = match text(field(find, "type")?)? {
        "range" => Find::Here,
        "keynum" => {
            Find::Counted { number_at: index(field(rule, "keynumidx")?)?, first: index(field(rule, "firstkey")?)? }
        }
        _ => return None,
    };
    Some(KeySpec { begin, find })
}

fn index(value: &Value) -> Option<usize> {
    usize::try_from(int(value)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    fn pairs(fields: &[(&str, Value)]) -> Value {
        Value::Array(fields.iter().flat_map(|(name, value)| [bulk(name), value.clone()]).collect())
    }

    fn key_spec(begin: (&str, Value), find: (&str, Value)) -> Value {
        let part = |(kind, spec): (&str, Value)| pairs(&[("type", bulk(kind)), ("spec", spec)]);
        pairs(&[("flags", Value::Array(vec![])), ("begin_search", part(begin)), ("find_keys", part(find))])
    }

    fn entry(name: &str, specs: Vec<Value>, subcommands: Vec<Value>) -> Value {
        let (none, number) = (|| Value::Array(vec![]), || Value::Int(0));
        let fields = [bulk(name), number(), none(), number(), number(), number(), none(), none()];
        Value::Array(fields.into_iter().chain([Value::Array(specs), Value::Array(subcommands)]).collect())
    }

    fn at(index: i64) -> (&'static str, Value) {
        ("index", pairs(&[("index", Value::Int(index))]))
    }

    fn after(word: &str, from: i64) -> (&'static str, Value) {
        ("keyword", pairs(&[("keyword", bulk(word)), ("startfrom", Value::Int(from))]))
    }

    fn range() -> (&'static str, Value) {
        ("range", pairs(&[("lastkey", Value::Int(-1))]))
    }

    fn counted() -> (&'static str, Value) {
        ("keynum", pairs(&[("keynumidx", Value::Int(0)), ("firstkey", Value::Int(1)), ("step", Value::Int(1))]))
    }

    fn table() -> KeyTable {
        KeyTable::parse(&Value::Array(vec![
            entry("get", vec![key_spec(at(1), range())], vec![]),
            entry("eval", vec![key_spec(at(2), counted())], vec![]),
            entry("xread", vec![key_spec(after("STREAMS", 1), range())], vec![]),
            entry("migrate", vec![key_spec(at(3), range()), key_spec(after("KEYS", -2), range())], vec![]),
            entry("object", vec![], vec![entry("object|encoding", vec![key_spec(at(2), range())], vec![])]),
            entry("ping", vec![], vec![]),
            // An entry of a server before 7.0.
            Value::Array(vec![bulk("old"), Value::Int(2), Value::Array(vec![]), Value::Int(1)]),
            Value::Int(7),
        ]))
    }

    #[test]
    fn first_keys_are_found() {
        let table = table();
        let check = |words: &str, expected: Option<&str>| {
            let args: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            assert_eq!(table.first_key(&args), expected.map(str::as_bytes), "{words}");
        };
        check("GET k", Some("k"));
        check("get", None);
        check("EVAL s 2 a b c", Some("a"));
        check("EVAL s 0 a", None);
        check("EVAL s x a", None);
        check("EVAL s", None);
        check("XREAD COUNT 1 streams a b 0 0", Some("a"));
        check("XREAD COUNT 1", None);
        check("MIGRATE h 1 k 0 1", Some("k"));
        check("OBJECT ENCODING k", Some("k"));
        check("OBJECT HELP", None);
        check("OBJECT", None);
        check("PING k", None);
        check("OLD k", Some("k"));
        check("UNKNOWN k", None);
    }

    #[test]
    fn without_a_table_the_first_argument_is_the_key() {
        let table = KeyTable::parse(&Value::Error(b"NOPERM".to_vec()));
        assert_eq!(table.first_key(&[b"GET", b"k"]), Some(&b"k"[..]));
        assert_eq!(table.first_key(&[b"PING"]), None);
    }
}
