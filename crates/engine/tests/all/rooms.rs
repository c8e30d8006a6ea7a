//! Tests of the engine's rooms: the modules of the crate, their order, and the modules that each may use.
//!
//! The sources are read as text. A file belongs to the room that its path begins with. An arrow is a path
//! (`crate::room` or `super::`), or a call of a method that another room defines for [`SHARED`], which no path shows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Every room, from the bottom to the top, with the rooms that it uses. These all precede it, so there are no cycles. A
/// module that is missing here fails the test, so each new one gets its place.
const ARROWS: &[(&str, &[&str])] = &[
    ("slow_path", &[]),
    ("slots", &["slow_path"]),
    ("machine", &[]),
    ("pause", &["slow_path"]),
    ("journal", &["slow_path"]),
    ("durability", &["slow_path"]),
    ("inbox", &[]),
    ("snapshots", &[]),
    ("replication", &["slow_path", "journal", "inbox", "snapshots"]),
    ("listening", &["slow_path"]),
    ("migrations", &["slow_path", "listening"]),
    ("host", &["slots", "machine", "snapshots", "migrations"]),
    ("replies", &[]),
    ("pubsub", &["slow_path", "inbox"]),
    ("maintenance", &["slow_path", "replication", "inbox", "pubsub"]),
    ("pipelines", &[]),
    ("clients", &["slow_path", "slots", "replication", "inbox", "listening", "pipelines"]),
    ("scripts", &["machine", "host"]),
    ("memory", &[]),
    ("advice", &["clients"]),
    (
        "state",
        &[
            "slow_path",
            "slots",
            "machine",
            "pause",
            "journal",
            "durability",
            "replication",
            "inbox",
            "listening",
            "host",
            "replies",
            "pubsub",
            "maintenance",
            "pipelines",
            "clients",
            "scripts",
            "memory",
            "advice",
            "snapshots",
            "migrations",
        ],
    ),
    (
        "worker",
        &[
            "slow_path",
            "slots",
            "machine",
            "replication",
            "listening",
            "replies",
            "pubsub",
            "clients",
            "scripts",
            "memory",
            "advice",
            "state",
            "snapshots",
        ],
    ),
    (
        "services",
        &[
            "slow_path",
            "slots",
            "machine",
            "pause",
            "inbox",
            "listening",
            "pubsub",
            "clients",
            "scripts",
            "state",
            "worker",
            "snapshots",
            "migrations",
        ],
    ),
    ("commit", &["slow_path", "clients", "worker", "services"]),
    ("script_calls", &["slow_path", "slots", "clients", "scripts", "worker", "services"]),
    ("upkeep", &["slow_path", "slots", "replication", "clients", "memory", "state", "worker", "services", "commit"]),
    (
        "families",
        &[
            "slots",
            "machine",
            "pause",
            "replication",
            "inbox",
            "host",
            "listening",
            "replies",
            "pubsub",
            "pipelines",
            "clients",
            "scripts",
            "state",
            "worker",
            "services",
            "commit",
            "script_calls",
            "snapshots",
            "migrations",
        ],
    ),
    ("registry", &["worker", "families"]),
    (
        "execute",
        &[
            "slow_path",
            "slots",
            "replication",
            "listening",
            "replies",
            "pubsub",
            "clients",
            "advice",
            "state",
            "worker",
            "services",
            "commit",
            "script_calls",
            "upkeep",
            "registry",
            "migrations",
        ],
    ),
    (
        "replay",
        &["slow_path", "replication", "inbox", "clients", "worker", "services", "registry", "execute", "snapshots"],
    ),
    ("slot_moves", &["slots", "pause", "inbox", "snapshots", "state", "replay"]),
];

/// The type with methods in several rooms: calling one is an arrow to the room that defines it.
const SHARED: &str = "Worker";

/// Returns the text of a file without comments and tests. By this project's convention, tests are at a file's end.
fn code(text: &str) -> String {
    let tests = |line: &str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    let lines = text.lines().take_while(|line| !tests(line));
    lines.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Returns the modules of a file's path, from the crate's root. The root itself has none.
fn modules(path: &str) -> Vec<&str> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { Vec::new() } else { path.split('/').collect() }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns the word that a text begins with.
fn word(text: &str) -> &str {
    text.find(|c| !is_word(c)).map_or(text, |end| &text[..end])
}

/// Returns the positions of a whole word in a text.
fn places<'t>(text: &'t str, wanted: &'t str) -> impl Iterator<Item = usize> + 't {
    let is_alone = |&(at, _): &(usize, &str)| !text[..at].chars().next_back().is_some_and(is_word);
    text.match_indices(wanted).filter(is_alone).map(|(at, _)| at)
}

/// Returns the first names of a path's rest: both `a` and `c` for `{a::b, c}`.
fn first_names(rest: &str) -> Vec<&str> {
    let Some(group) = rest.strip_prefix('{') else { return vec![word(rest)] };
    let (mut depth, mut names, mut from) = (0_usize, Vec::new(), 0);
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                names.push(word(group[from..at].trim()));
                from = at + 1;
                if character == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the rooms that a file's paths lead to.
fn rooms_of_paths<'t>(path: &'t str, code: &'t str) -> BTreeSet<&'t str> {
    let own = modules(path);
    let mut rooms = BTreeSet::new();
    for at in places(code, "crate::") {
        rooms.extend(first_names(&code[at + "crate::".len()..]));
    }
    for at in places(code, "super::") {
        let mut rest = &code[at..];
        let mut ups = 0;
        while let Some(behind) = rest.strip_prefix("super::") {
            (rest, ups) = (behind, ups + 1);
        }
        // Each link of a chain matches again; the longest match is the whole chain. A path within an inline module
        // leads less far up, and stays within the file's room.
        if ups >= own.len() && !code[..at].ends_with("super::") {
            rooms.extend(first_names(rest));
        }
    }
    rooms
}

/// Returns the methods that a file defines for [`SHARED`].
fn shared_methods(code: &str) -> BTreeSet<&str> {
    let mut methods = BTreeSet::new();
    let mut rest = code;
    while let Some(at) = rest.find(&format!("\nimpl {SHARED} {{\n")) {
        let block = &rest[at + 1..];
        let end = block.find("\n}").unwrap_or(block.len());
        methods.extend(places(&block[..end], "fn ").map(|at| word(&block[at + "fn ".len()..])));
        rest = &block[end..];
    }
    methods
}

/// Returns the methods of [`SHARED`] that a file calls: on `worker`, on `self` in its own methods, or by the type's
/// name.
fn shared_calls(code: &str) -> BTreeSet<&str> {
    let is_own = !shared_methods(code).is_empty();
    let path = format!("{SHARED}::");
    let receivers = ["worker.", &path].into_iter().chain(is_own.then_some("self."));
    let mut calls = BTreeSet::new();
    for receiver in receivers.collect::<Vec<_>>() {
        for (at, _) in code.match_indices(receiver) {
            if code[..at].chars().next_back().is_some_and(is_word) {
                continue;
            }
            let rest = &code[at + receiver.len()..];
            let name = word(rest);
            let is_call = rest[name.len()..].starts_with(['(', ':', ',', ')']);
            if is_call && !name.is_empty() {
                calls.insert(name);
            }
        }
    }
    calls
}

/// Returns the arrows between rooms in these files. Each file is its path and its text.
fn actual_arrows(files: &[(String, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let codes: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), code(text))).collect();
    let mut givers: BTreeMap<&str, &str> = BTreeMap::new();
    for (path, code) in &codes {
        givers.extend(shared_methods(code).into_iter().map(|method| (method, modules(path)[0])));
    }
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, code) in codes.iter().filter(|(path, _)| !modules(path).is_empty()) {
        let room = modules(path)[0];
        let by_call = shared_calls(code).into_iter().filter_map(|method| givers.get(method).copied());
        let known = arrows.entry(room.to_owned()).or_default();
        known.extend(rooms_of_paths(path, code).into_iter().chain(by_call).map(str::to_owned));
        known.remove(room);
    }
    arrows
}

/// Returns the types other than [`SHARED`] with methods outside of the room that declares them: an arrow that neither
/// paths nor calls show.
fn foreign_methods(files: &[(String, String)]) -> Vec<String> {
    let codes: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), code(text))).collect();
    let named = |code: &str, word_before: &str| -> Vec<String> {
        let lines = code.lines().filter_map(|line| {
            line.split_once(word_before)
                .filter(|(before, _)| before.is_empty() || before.starts_with("pub") && before.ends_with(' '))
        });
        lines.map(|(_, behind)| word(behind).to_owned()).collect()
    };
    let mut homes: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (path, code) in &codes {
        let room = modules(path).first().copied().unwrap_or_default();
        for name in ["struct ", "enum "].iter().flat_map(|kind| named(code, kind)) {
            homes.entry(name).or_default().insert(room);
        }
    }
    let mut found = Vec::new();
    for (path, code) in &codes {
        let room = modules(path).first().copied().unwrap_or_default();
        for line in code.lines().filter(|line| line.starts_with("impl") && !line.contains(" for ")) {
            // The name follows the parameters, if there are any.
            let behind = line.trim_start_matches("impl");
            let name = if behind.starts_with('<') {
                behind.split_once("> ").map_or("", |(_, name)| name)
            } else {
                behind.trim()
            };
            let name = word(name);
            if name != SHARED && homes.get(name).is_some_and(|rooms| !rooms.contains(room)) {
                found.push(format!("{path} has methods of {name}"));
            }
        }
    }
    found
}

/// Returns the errors of actual and declared arrows, as readable lines.
fn violations(actual: &BTreeMap<String, BTreeSet<String>>, declared: &[(&str, &[&str])]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, (room, known)) in declared.iter().enumerate() {
        let below = |other: &str| declared[..at].iter().any(|(name, _)| *name == other);
        found.extend(known.iter().filter(|other| !below(other)).map(|other| format!("{other} is not below {room}")));
        let used = actual.get(*room);
        let idle = known.iter().filter(|other| !used.is_some_and(|used| used.contains(**other)));
        found.extend(idle.map(|other| format!("{room} does not use {other}")));
    }
    for (room, known) in actual {
        match declared.iter().find(|(name, _)| name == room) {
            None => found.push(format!("{room} is not among ARROWS")),
            Some((_, allowed)) => {
                let stray = known.iter().filter(|other| !allowed.contains(&other.as_str()));
                found.extend(stray.map(|other| format!("{room} must not know {other}")));
            }
        }
    }
    found
}

/// Returns every source file of the crate except tests, as its path from `src` and its text.
fn files() -> Vec<(String, String)> {
    fn collect(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    collect(&root, &mut found);
    let named = found.into_iter().map(|path| {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        (name, std::fs::read_to_string(path).unwrap())
    });
    // Test code may use every room.
    let of_tests = ["testing.rs", "tests.rs", "loom_tests.rs", "command/expected.rs"];
    named.filter(|(name, _)| !of_tests.iter().any(|end| name.ends_with(end))).collect()
}

#[test]
fn arrows_go_down_only() {
    let actual = actual_arrows(&files());
    assert!(actual.contains_key("execute") && actual["families"].contains("worker"), "{actual:?}");
    assert_eq!(violations(&actual, ARROWS), Vec::<String>::new());
    assert_eq!(foreign_methods(&files()), Vec::<String>::new());
}

/// Checks the errors of these files, each a path and a text, with the rooms `low` and `high` declared, `high` above.
fn check(files: &[(&str, &str)], expected: &[&str]) {
    let files: Vec<_> = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    assert_eq!(violations(&actual_arrows(&files), &[("low", &[]), ("high", &["low"])]), expected, "{files:?}");
}

#[test]
fn a_stray_arrow_is_seen() {
    const HIGH: (&str, &str) = ("high.rs", "use crate::low::Low;");
    const STRAY: &[&str] = &["low must not know high"];
    check(&[HIGH, ("low.rs", "")], &[]);
    for text in [
        "use crate::high::High;",
        "use crate::{low, high::High};",
        "use crate::{\n    low::{Low, Lower},\n    high,\n};",
        "fn run(high: crate::high::High) {}",
        "use super::high;",
        "pub(crate) use crate::high::deep::Deep;",
    ] {
        check(&[HIGH, ("low.rs", text)], STRAY);
        let deeper = text.replace("super::", "super::super::");
        check(&[HIGH, ("low/inner.rs", &deeper)], STRAY);
        check(&[HIGH, ("low/mod.rs", text)], STRAY);
    }
    // No path here leads out of the room.
    for text in [
        "use super::high::High;",
        "mod inner {\n    use super::high;\n}",
        "use crate::low::high::High;",
        "// See [`crate::high`].",
        "    /// See [`super::super::high`].",
        "#[cfg(test)]\nmod tests {\n    use crate::high::High;\n}",
        "use other_crate::high::High;",
        "fn high() {}",
    ] {
        check(&[HIGH, ("low/inner.rs", text)], &[]);
    }
    check(&[HIGH, ("low.rs", ""), ("new.rs", "use crate::low::Low;")], &["new is not among ARROWS"]);
    check(&[("high.rs", ""), ("low.rs", "")], &["high does not use low"]);
}

#[test]
fn a_call_of_a_shared_method_is_an_arrow_to_its_room() {
    let high = "use crate::low::Low;\n\nimpl Worker {\n    pub(crate) fn rise(&self) {\n        self.sink();\n    }\n}";
    let low = "struct Worker;\n\nimpl Worker {\n    fn sink(&self) {\n        BODY\n    }\n}";
    for body in ["self.rise()", "worker.rise()", "turn.worker.rise()", "Worker::rise(self)", "each(Worker::rise)"] {
        check(&[("high.rs", high), ("low.rs", &low.replace("BODY", body))], &["low must not know high"]);
    }
    for body in ["self.sink()", "other.rise()", "worker.rise", "coworker.rise()", "self.rise_again()"] {
        check(&[("high.rs", high), ("low.rs", &low.replace("BODY", body))], &[]);
    }
}

#[test]
fn methods_of_another_room_s_type_are_seen() {
    let found = |high: &str| {
        let files =
            [("high.rs", high), ("low/a.rs", "pub(crate) struct Low;"), ("low/b.rs", "impl Low {}\nimpl<'a> Low {}")];
        foreign_methods(&files.map(|(path, text)| (path.to_owned(), text.to_owned())))
    };
    for high in ["impl Low {\n}", "impl<'l> Low<'l> {\n}", "impl<T: Into<u8>> Low<T> {\n}"] {
        assert_eq!(found(high), ["high.rs has methods of Low"]);
    }
    for high in
        ["impl Rise for Low {\n}", "struct Lower;\nimpl Lower {\n}", "struct Low;\nimpl Low {\n}", "impl Worker {\n}"]
    {
        assert!(found(high).is_empty(), "{high}");
    }
}

#[test]
fn circles_are_seen() {
    let none = BTreeMap::new();
    let arrows: &[(&str, &[&str])] = &[("first", &["second"]), ("second", &["first"])];
    let found = violations(&none, arrows);
    assert!(found.contains(&"second is not below first".to_owned()), "{found:?}");
}

#[test]
fn the_engine_page_draws_the_same_arrows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/engine.md");
    let page = std::fs::read_to_string(path).unwrap();
    let drawn = |room: &str| {
        let start = format!("| `{room}` |");
        let rows = page.lines().skip_while(|line| !line.starts_with("| room |"));
        let row = rows.filter(|line| line.starts_with(&start)).last()?;
        let known = row.trim_end_matches('|').rsplit('|').next()?;
        Some(known.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
    };
    for (room, known) in ARROWS {
        assert_eq!(
            drawn(room).as_deref(),
            Some(&known.iter().map(|k| (*k).to_owned()).collect::<Vec<_>>()[..]),
            "{room}"
        );
    }
}
