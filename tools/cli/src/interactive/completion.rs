//! Finds completions for the word at the cursor.

use super::history::is_plain;
use crate::docs::{Manual, expected};
use crate::quote::quoted;
use resp::splitargs::split_args;

/// Commands that the program itself executes.
const OWN: [&str; 6] = ["clear", "connect", "exit", "help", "quit", ":set"];

/// Completions of the word at the cursor.
#[derive(Debug, Default, PartialEq)]
pub struct Completion {
    /// Start of the word in the line.
    pub start: usize,
    /// Candidates for the word.
    pub words: Vec<String>,
    /// Names that the server must be asked for, and the typed prefix.
    pub asked: Option<(Names, String)>,
}

/// Kinds of names that only the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Names of keys.
    Keys,
    /// Names of settings, for CONFIG GET and CONFIG SET.
    Settings,
}

/// A line up to the cursor: its complete words, and the word at the cursor.
struct Typed<'a> {
    words: Vec<String>,
    last: &'a str,
    start: usize,
}

impl<'a> Typed<'a> {
    /// Splits a line. Returns `None` within quotes, because the word isn't known yet.
    fn read(line: &'a str) -> Option<Self> {
        let start = line.rfind([' ', '\t', '\n']).map_or(0, |blank| blank + 1);
        let (before, last) = line.split_at(start);
        if last.contains(['"', '\'']) {
            return None;
        }
        let words = split_args(before.as_bytes()).ok()?;
        let mut words: Vec<String> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        // A number in front is a repeat count.
        if words.first().is_some_and(|first| first.parse::<u64>().is_ok()) {
            words.remove(0);
        }
        Some(Self { words, last, start })
    }
}

/// Returns the completions at the end of a line.
pub fn complete(manual: &Manual, line: &str) -> Completion {
    let Some(typed) = Typed::read(line) else { return Completion::default() };
    let mut completion = Completion { start: typed.start, ..Completion::default() };
    let words = match typed.words.first().map(|word| word.to_ascii_lowercase()).as_deref() {
        None => first_words(manual, true),
        Some("help" | "?") => topics(manual, &typed.words[1..]),
        Some(":set") => vec!["hints".to_owned(), "nohints".to_owned()],
        Some(_) => {
            let (words, names) = arguments(manual, &typed.words);
            completion.asked = names.map(|names| (names, typed.last.to_owned()));
            words
        }
    };
    completion.words = fitting(words, typed.last);
    completion
}

/// Returns the names with the typed prefix, ignoring case.
pub fn names_fitting(names: &[String], typed: &str) -> Vec<String> {
    let begins = |name: &&String| name.get(..typed.len()).is_some_and(|start| start.eq_ignore_ascii_case(typed));
    names.iter().filter(begins).cloned().collect()
}

/// Returns the words with the typed prefix, in the case of the typed letters.
fn fitting(words: Vec<String>, typed: &str) -> Vec<String> {
    let is_lower = !typed.bytes().any(|byte| byte.is_ascii_uppercase());
    let lower = typed.to_ascii_lowercase();
    let mut found: Vec<String> =
        words.into_iter().filter(|word| word.to_ascii_lowercase().starts_with(&lower)).collect();
    for word in &mut found {
        *word = if is_lower && !typed.is_empty() { word.to_ascii_lowercase() } else { word.clone() };
    }
    found.dedup();
    found
}

/// Returns the first words of all commands.
fn first_words(manual: &Manual, with_own: bool) -> Vec<String> {
    let commands = manual.entries().iter().filter_map(|entry| entry.words().next());
    let mut words: Vec<String> = commands.map(str::to_ascii_uppercase).collect();
    words.dedup();
    if with_own {
        words.extend(OWN.map(str::to_owned));
        words.sort_by_key(|word| word.to_ascii_uppercase());
        // The server's commands may include QUIT, too.
        words.dedup_by(|a, b| a.eq_ignore_ascii_case(b));
    }
    words
}

/// Returns the topics of help.
fn topics(manual: &Manual, words: &[String]) -> Vec<String> {
    if !words.is_empty() {
        return subcommands(manual, words);
    }
    let mut topics: Vec<String> = manual.entries().iter().map(|entry| format!("@{}", entry.group)).collect();
    topics.sort();
    topics.extend(first_words(manual, false));
    topics.dedup();
    topics
}

/// Returns the subcommands if `words` is a single container command.
fn subcommands(manual: &Manual, words: &[String]) -> Vec<String> {
    let [container] = words else { return Vec::new() };
    let prefix = format!("{} ", container.to_ascii_lowercase());
    let names = manual.entries().iter().filter_map(|entry| entry.name.strip_prefix(&prefix));
    names.map(str::to_ascii_uppercase).collect()
}

/// Returns options that may follow these words, and the kind of names to ask the server for.
fn arguments(manual: &Manual, words: &[String]) -> (Vec<String>, Option<Names>) {
    let subcommands = subcommands(manual, words);
    if !subcommands.is_empty() {
        return (subcommands, None);
    }
    if takes_setting(words) {
        return (Vec::new(), Some(Names::Settings));
    }
    let found = manual.find(words).and_then(|(entry, count)| expected(&entry.arguments, &words[count..]));
    found.map_or((Vec::new(), None), |expected| (expected.tokens, expected.key.then_some(Names::Keys)))
}

/// Returns true if a setting's name comes next: CONFIG GET takes several names, CONFIG SET alternates names and values.
/// COMMAND DOCS declares these names as plain strings.
fn takes_setting(words: &[String]) -> bool {
    match words {
        [config, verb, rest @ ..] if config.eq_ignore_ascii_case("config") => {
            verb.eq_ignore_ascii_case("get") || verb.eq_ignore_ascii_case("set") && rest.len() % 2 == 0
        }
        _ => false,
    }
}

/// Returns the remaining arguments after a line, for display behind the cursor.
pub fn hint(manual: &Manual, line: &str) -> Option<String> {
    let words = split_args(line.as_bytes()).ok()?;
    let mut words: Vec<String> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    if words.len() > 1 && words[0].parse::<u64>().is_ok() {
        words.remove(0);
    }
    let (entry, count) = manual.find(&words)?;
    let text = expected(&entry.arguments, &words[count..])?.text;
    let gap = if line.ends_with(' ') { "" } else { " " };
    Some(format!("{gap}{text}")).filter(|_| !text.is_empty())
}

/// Returns a key's name, quoted if the command line needs quotes.
pub fn typed_key(key: &[u8]) -> String {
    let text = if is_plain(key) { key.to_vec() } else { quoted(key) };
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::Value;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    fn map(pairs: Vec<(&str, Value)>) -> Value {
        Value::Array(pairs.into_iter().flat_map(|(name, value)| [bulk(name), value]).collect())
    }

    fn manual() -> Manual {
        let argument = |name: &str, kind: &str| map(vec![("name", bulk(name)), ("type", bulk(kind))]);
        let token = |token: &str| {
            let flags = Value::Array(vec![bulk("optional")]);
            map(vec![("name", bulk("t")), ("type", bulk("pure-token")), ("token", bulk(token)), ("flags", flags)])
        };
        let set = vec![argument("key", "key"), argument("value", "string"), token("NX"), token("GET")];
        let client = map(vec![("client|id", map(vec![])), ("client|info", map(vec![])), ("client|list", map(vec![]))]);
        Manual::from_docs(&map(vec![
            ("set", map(vec![("group", bulk("string")), ("arguments", Value::Array(set))])),
            ("sadd", map(vec![("group", bulk("set"))])),
            ("quit", map(vec![("group", bulk("connection"))])),
            ("client", map(vec![("group", bulk("connection")), ("subcommands", client)])),
        ]))
        .unwrap()
    }

    /// Formats the completions of a line. Angle brackets hold the prefix to ask the server for.
    fn shown(line: &str) -> String {
        let completion = complete(&manual(), line);
        let asked = completion.asked.map(|(names, prefix)| match names {
            Names::Keys => format!("<{prefix}>"),
            Names::Settings => format!("<setting {prefix}>"),
        });
        format!("{}: {}", completion.start, completion.words.into_iter().chain(asked).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn words_are_completed() {
        assert_eq!(shown("s"), "0: sadd set");
        assert_eq!(shown("S"), "0: SADD SET");
        assert_eq!(shown("q"), "0: quit");
        assert_eq!(shown("cl"), "0: clear client");
        assert_eq!(shown("3 se"), "2: set");
        assert_eq!(shown("client i"), "7: id info");
        assert_eq!(shown("set "), "4: <>");
        assert_eq!(shown("set us"), "4: <us>");
        assert_eq!(shown("set k v "), "8: NX GET");
        assert_eq!(shown("set k v n"), "8: nx");
        assert_eq!(shown("set k v nx g"), "11: get");
        assert_eq!(shown("set \"a"), "0: ");
        assert_eq!(shown("config get maxm"), "11: <setting maxm>");
        assert_eq!(shown("2 CONFIG GET a b"), "15: <setting b>");
        assert_eq!(shown("config set "), "11: <setting >");
        assert_eq!(shown("config set maxmemory "), "21: ");
        assert_eq!(shown("config set maxmemory 1mb p"), "25: <setting p>");
        assert_eq!(shown("config resetstat "), "17: ");
        assert_eq!(shown("help @s"), "5: @set @string");
        assert_eq!(shown("help client L"), "12: LIST");
        assert_eq!(shown(":set n"), "5: nohints");
        assert_eq!(shown("nonsense "), "9: ");
    }

    #[test]
    fn names_of_settings_fit_in_any_case() {
        let names = ["maxclients", "maxmemory", "port"].map(str::to_owned);
        assert_eq!(names_fitting(&names, "MaxM"), ["maxmemory"]);
        assert_eq!(names_fitting(&names, ""), names);
        assert_eq!(names_fitting(&names, "é"), [""; 0]);
    }

    #[test]
    fn hints_follow_the_line() {
        let hint = |line| hint(&manual(), line).unwrap_or_default();
        assert_eq!(hint("set"), " key value [NX] [GET]");
        assert_eq!(hint("set "), "key value [NX] [GET]");
        assert_eq!(hint("2 set k"), " value [NX] [GET]");
        assert_eq!(hint("SET k \"v w\" "), "[NX] [GET]");
        assert_eq!(hint("set k v nx get"), "");
        assert_eq!(hint("se"), "");
        assert_eq!(hint("set \"k"), "");
    }

    #[test]
    fn keys_are_quoted_where_they_must_be() {
        assert_eq!(typed_key(b"user:1"), "user:1");
        assert_eq!(typed_key(b"two words"), "\"two words\"");
        assert_eq!(typed_key(b"\xff"), "\"\\xff\"");
    }
}
