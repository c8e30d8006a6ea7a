use super::{Argument, ArgumentKind, Entry, Manual, expected};
use client::Value;

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

/// Returns a map as RESP2's flat array.
fn flat(pairs: Vec<(&str, Value)>) -> Value {
    Value::Array(pairs.into_iter().flat_map(|(name, value)| [bulk(name), value]).collect())
}

fn value(name: &str) -> Argument {
    Argument { name: name.to_owned(), ..Argument::default() }
}

fn key() -> Argument {
    Argument { kind: ArgumentKind::Key, ..value("key") }
}

fn word(token: &str) -> Argument {
    Argument { kind: ArgumentKind::Token, token: Some(token.to_owned()), ..value("token") }
}

fn with_token(token: &str, argument: Argument) -> Argument {
    Argument { token: Some(token.to_owned()), ..argument }
}

fn optional(argument: Argument) -> Argument {
    Argument { optional: true, ..argument }
}

fn many(argument: Argument) -> Argument {
    Argument { multiple: true, ..argument }
}

fn of(kind: ArgumentKind, parts: Vec<Argument>) -> Argument {
    Argument { kind, parts, ..value("parts") }
}

fn set() -> Vec<Argument> {
    vec![
        key(),
        value("value"),
        optional(of(ArgumentKind::Choice, vec![word("NX"), word("XX")])),
        optional(word("GET")),
        optional(of(ArgumentKind::Choice, vec![with_token("EX", value("seconds")), word("KEEPTTL")])),
    ]
}

fn sort() -> Vec<Argument> {
    let get = Argument { multiple_token: true, ..many(optional(with_token("GET", value("pattern")))) };
    let limit = with_token("LIMIT", of(ArgumentKind::Block, vec![value("offset"), value("count")]));
    vec![key(), optional(limit), get, optional(word("ALPHA"))]
}

fn blpop() -> Vec<Argument> {
    vec![many(key()), value("timeout")]
}

fn xadd() -> Vec<Argument> {
    let trim = of(
        ArgumentKind::Block,
        vec![
            of(ArgumentKind::Choice, vec![word("MAXLEN"), word("MINID")]),
            optional(of(ArgumentKind::Choice, vec![word("="), word("~")])),
            value("threshold"),
        ],
    );
    vec![
        key(),
        optional(trim),
        of(ArgumentKind::Choice, vec![word("*"), value("id")]),
        many(of(ArgumentKind::Block, vec![value("field"), value("value")])),
    ]
}

/// Returns the hint after these words, or "-" if they don't fit.
fn hint(arguments: &[Argument], words: &str) -> String {
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    expected(arguments, &words).map_or("-".to_owned(), |expected| expected.text)
}

#[test]
fn syntax_is_the_manuals() {
    let syntax = |arguments| Entry { arguments, ..Entry::default() }.syntax();
    assert_eq!(syntax(set()), "key value [NX|XX] [GET] [EX seconds|KEEPTTL]");
    assert_eq!(syntax(sort()), "key [LIMIT offset count] [GET pattern [GET pattern ...]] [ALPHA]");
    assert_eq!(syntax(blpop()), "key [key ...] timeout");
    assert_eq!(syntax(xadd()), "key [MAXLEN|MINID [=|~] threshold] *|id field value [field value ...]");
    assert_eq!(syntax(vec![many(with_token("KEYS", key()))]), "KEYS key [key ...]");
    assert_eq!(syntax(vec![]), "");
}

#[test]
fn hints_shrink_as_one_types() {
    for (words, rest) in [
        ("", "key value [NX|XX] [GET] [EX seconds|KEEPTTL]"),
        ("k", "value [NX|XX] [GET] [EX seconds|KEEPTTL]"),
        ("k v", "[NX|XX] [GET] [EX seconds|KEEPTTL]"),
        ("k v ex", "seconds [NX|XX] [GET]"),
        ("k v ex 5 nx", "[GET]"),
        ("k v ex 5 nx get", ""),
        ("k v nonsense", "-"),
    ] {
        assert_eq!(hint(&set(), words), rest, "{words}");
    }
}

#[test]
fn hints_of_repetitions() {
    for (arguments, words, rest) in [
        (blpop(), "a", "[key ...] timeout"),
        (blpop(), "a b c", "[key ...] timeout"),
        (sort(), "k get p", "[GET pattern ...] [LIMIT offset count] [ALPHA]"),
        (sort(), "k get p get q alpha", "[LIMIT offset count]"),
        (sort(), "k limit 0", "count [GET pattern [GET pattern ...]] [ALPHA]"),
        (xadd(), "k maxlen", "[=|~] threshold *|id field value [field value ...]"),
        (xadd(), "k maxlen ~ 5 *", "field value [field value ...]"),
        (xadd(), "k maxlen 5 1-1 f", "value [field value ...]"),
        (xadd(), "k * f v", "[field value ...]"),
        (xadd(), "k * f v g", "value [field value ...]"),
        (vec![], "x", "-"),
    ] {
        assert_eq!(hint(&arguments, words), rest, "{words}");
    }
}

#[test]
fn possible_next_words_are_known() {
    let next = |arguments: &[Argument], words: &str| {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let expected = expected(arguments, &words).unwrap();
        (expected.tokens.join(" "), expected.key)
    };
    assert_eq!(next(&set(), ""), (String::new(), true));
    assert_eq!(next(&set(), "k"), (String::new(), false));
    assert_eq!(next(&set(), "k v"), ("NX XX GET EX KEEPTTL".to_owned(), false));
    assert_eq!(next(&set(), "k v ex"), (String::new(), false));
    assert_eq!(next(&blpop(), "a"), (String::new(), true));
    assert_eq!(next(&xadd(), "k"), ("MAXLEN MINID *".to_owned(), false));
}

#[test]
fn docs_are_read() {
    let argument = flat(vec![("name", bulk("key")), ("type", bulk("key")), ("key_spec_index", Value::Int(0))]);
    let more = flat(vec![
        ("name", bulk("n")),
        ("display_text", bulk("count")),
        ("type", bulk("integer")),
        ("token", bulk("COUNT")),
        ("flags", Value::Array(vec![bulk("optional"), bulk("multiple")])),
    ]);
    let sub = flat(vec![("summary", bulk("Sub.")), ("since", bulk("2")), ("group", bulk("server"))]);
    let docs = flat(vec![
        ("zz", flat(vec![("summary", bulk("Last.")), ("arguments", Value::Array(vec![argument, more]))])),
        ("con", flat(vec![("group", bulk("server")), ("subcommands", flat(vec![("con|sub", sub)]))])),
    ]);
    let manual = Manual::from_docs(&docs).unwrap();
    let names: Vec<&str> = manual.entries().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["con", "con sub", "zz"]);
    assert_eq!(manual.entries()[2].syntax(), "key [COUNT count [count ...]]");
    let find = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        manual.find(&words).map(|(entry, count)| (entry.name.clone(), count))
    };
    assert_eq!(find("CON Sub x"), Some(("con sub".to_owned(), 2)));
    assert_eq!(find("con other"), Some(("con".to_owned(), 1)));
    assert_eq!(find("nope"), None);
    assert!(Manual::from_docs(&Value::Error(b"ERR".to_vec())).is_none());
}

#[test]
fn old_servers_tell_counts() {
    let row = |name: &str, arity: i64, first_key: i64| {
        Value::Array(vec![bulk(name), Value::Int(arity), Value::Array(vec![]), Value::Int(first_key), Value::Int(0)])
    };
    let table = Value::Array(vec![row("MGET", -2, 1), row("get", 2, 1), row("ping", -1, 0), row("eval", -3, 0)]);
    let manual = Manual::from_table(&table);
    let lines: Vec<String> =
        manual.entries().iter().map(|entry| format!("{} {}", entry.name, entry.syntax())).collect();
    assert_eq!(lines, ["eval arg arg [arg [arg ...]]", "get key", "mget key [arg [arg ...]]", "ping [arg [arg ...]]"]);
}
