//! The workspace's arrows, as ARCHITECTURE.md draws them: which crate may know which, and what the lower ones never
//! touch.

// Clippy knows that a test may unwrap, but not the functions that only tests call.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every crate of the workspace and the crates of it that it may know. A crate that isn't here fails the test: a new
/// one needs a decision about where it stands.
const ARROWS: &[(&str, &[&str])] = &[
    ("penstock-resp", &[]),
    ("penstock-store", &[]),
    ("penstock-journal", &["penstock-resp"]),
    ("penstock-persistence", &["penstock-journal", "penstock-resp"]),
    ("penstock-commands", &["penstock-journal", "penstock-resp", "penstock-store"]),
    ("penstock-script", &["penstock-resp"]),
    (
        "penstock-engine",
        &["penstock-commands", "penstock-journal", "penstock-script", "penstock-resp", "penstock-store"],
    ),
    (
        "penstock-server",
        &[
            "penstock-engine",
            "penstock-persistence",
            "penstock-journal",
            "penstock-commands",
            "penstock-resp",
            "penstock-store",
        ],
    ),
    ("penstock-client", &["penstock-resp"]),
    ("penstock-cli", &["penstock-client", "penstock-resp"]),
    ("penstock-generator", &["penstock-client", "penstock-resp"]),
    ("penstock-load", &["penstock-client", "penstock-resp"]),
    ("penstock", &["penstock-server", "penstock-cli", "penstock-generator", "penstock-load"]),
];

/// Crates whose tests may use anything: they look at all the others from outside.
const TESTS_ONLY: &[&str] = &["penstock-tests"];

/// What the crates below the server must not mention outside their tests: time, randomness and bytes are passed to
/// them, so that a test can choose them. The engine reads the processor's cycle counter, to time commands, and rewrites
/// redis.conf; sockets and the time of day are the server's alone.
const NEVER_MENTIONED: &[(&str, &[&str])] = &[
    ("resp", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("store", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("journal", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("commands", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("script", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("engine", &["SystemTime::now", "std::net", "std::os::unix::net"]),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The crates of the workspace, each with the crates of the workspace that it depends on; those of its tests excluded.
fn actual_arrows() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().iter().map(arrows_of).collect()
}

fn arrows_of(package: &serde_json::Value) -> (String, BTreeSet<String>) {
    let local = package["dependencies"].as_array().unwrap().iter().filter(|dependency| {
        let of_the_workspace = dependency["path"].is_string();
        let of_tests = dependency["kind"] == "dev";
        of_the_workspace && !of_tests
    });
    let names = local.map(|dependency| dependency["name"].as_str().unwrap().to_owned()).collect();
    (package["name"].as_str().unwrap().to_owned(), names)
}

/// The arrows that go where they may not, as readable lines.
fn violations(actual: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, known) in actual.iter().filter(|(name, _)| !TESTS_ONLY.contains(&name.as_str())) {
        match ARROWS.iter().find(|(declared, _)| declared == name) {
            None => found.push(format!("{name} is not among ARROWS")),
            Some((_, allowed)) => {
                let stray = known.iter().filter(|other| !allowed.contains(&other.as_str()));
                found.extend(stray.map(|other| format!("{name} must not know {other}")));
            }
        }
    }
    found
}

#[test]
fn arrows_go_one_way() {
    let actual = actual_arrows();
    assert!(actual.contains_key("penstock") && actual.contains_key("penstock-store"), "{actual:?}");
    assert_eq!(violations(&actual), Vec::<String>::new());
}

#[test]
fn a_stray_arrow_is_seen() {
    let arrow = |name: &str, known: &str| (name.to_owned(), BTreeSet::from([known.to_owned()]));
    let check = |name, known, expected: &[&str]| {
        assert_eq!(violations(&BTreeMap::from([arrow(name, known)])), expected);
    };
    check("penstock-engine", "penstock-commands", &[]);
    check("penstock-store", "penstock-resp", &["penstock-store must not know penstock-resp"]);
    check("penstock-commands", "penstock-engine", &["penstock-commands must not know penstock-engine"]);
    check("penstock-new", "penstock-resp", &["penstock-new is not among ARROWS"]);
    check("penstock-tests", "penstock-engine", &[]);
}

/// Every source file under `directory`.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The part of a file that isn't tests: those stand at its end by this project's habit, or in a file called `tests`.
fn without_tests(path: &Path) -> String {
    if path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests")) {
        return String::new();
    }
    let text = std::fs::read_to_string(path).unwrap();
    let tests = |line: &str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    let lines = text.lines().take_while(|line| !tests(line));
    lines.filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn nothing_below_the_server_asks_the_machine() {
    let root = workspace();
    let mut found = Vec::new();
    for (name, words) in NEVER_MENTIONED {
        for path in sources(&root.join("crates").join(name).join("src")) {
            let text = without_tests(&path);
            let mentioned = words.iter().filter(|word| text.contains(*word));
            found.extend(mentioned.map(|word| format!("{}: {word}", path.strip_prefix(&root).unwrap().display())));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}
