//! The workspace's arrows, as ARCHITECTURE.md draws them: which crate may know which, and what the lower ones never
//! touch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every crate of the workspace and the crates of it that it may know. A crate that isn't here fails the test: a new
/// one needs a decision about where it stands.
const ARROWS: &[(&str, &[&str])] = &[
    ("penstock-resp", &[]),
    ("penstock-store", &[]),
    ("penstock-format", &["penstock-resp", "penstock-store"]),
    ("penstock-journal", &["penstock-resp"]),
    ("penstock-replication", &["penstock-journal", "penstock-resp"]),
    ("penstock-persistence", &["penstock-journal", "penstock-resp"]),
    ("penstock-commands", &["penstock-format", "penstock-journal", "penstock-resp", "penstock-store"]),
    ("penstock-script", &["penstock-resp"]),
    ("penstock-advisor", &["penstock-resp"]),
    ("penstock-front", &["penstock-resp"]),
    (
        "penstock-engine",
        &[
            "penstock-advisor",
            "penstock-commands",
            "penstock-format",
            "penstock-journal",
            "penstock-replication",
            "penstock-script",
            "penstock-resp",
            "penstock-store",
        ],
    ),
    (
        "penstock-server",
        &[
            "penstock-engine",
            "penstock-front",
            "penstock-persistence",
            "penstock-format",
            "penstock-journal",
            "penstock-replication",
            "penstock-commands",
            "penstock-resp",
            "penstock-store",
        ],
    ),
    (
        "penstock-simulator",
        &[
            "penstock-engine",
            "penstock-journal",
            "penstock-persistence",
            "penstock-replication",
            "penstock-resp",
            "penstock-store",
        ],
    ),
    ("penstock-client", &["penstock-advisor", "penstock-resp"]),
    ("penstock-check", &["penstock-format", "penstock-persistence"]),
    ("penstock-cli", &["penstock-client", "penstock-resp"]),
    ("penstock-proxy", &["penstock-client"]),
    ("penstock-generator", &["penstock-client", "penstock-proxy", "penstock-resp"]),
    ("penstock-load", &["penstock-client", "penstock-resp"]),
    ("penstock-advise", &["penstock-advisor", "penstock-client", "penstock-proxy", "penstock-resp"]),
    (
        "penstock",
        &[
            "penstock-server",
            "penstock-advise",
            "penstock-check",
            "penstock-cli",
            "penstock-generator",
            "penstock-load",
        ],
    ),
];

/// Crates whose tests may use anything: they look at all the others from outside.
const TESTS_ONLY: &[&str] = &["penstock-tests"];

/// What the crates below the server must not mention outside their tests: time, randomness and bytes are passed to
/// them, so that a test can choose them. The engine reads the processor's cycle counter, to time commands, and rewrites
/// redis.conf; sockets and the time of day are the server's alone.
const NEVER_MENTIONED: &[(&str, &[&str])] = &[
    ("resp", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("store", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("format", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("journal", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("commands", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("script", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    (
        "advisor",
        &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env", "std::thread"],
    ),
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

/// The part of a file that isn't tests: no comment, nothing of a file called `tests`, and no item that is compiled for tests alone.
fn without_tests(path: &Path) -> String {
    let mut in_crate = path.iter().rev().take_while(|part| *part != "src");
    if in_crate.any(|part| part.to_string_lossy().starts_with("tests")) {
        return String::new();
    }
    code_of(&std::fs::read_to_string(path).unwrap())
}

/// The lines of a source that are neither comments nor for tests alone.
fn code_of(text: &str) -> String {
    let is_for_tests = |line: &str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    // As rustfmt leaves it, the last line of an item stands at the margin.
    let ends_item = |line: &&str| !line.starts_with([' ', '#']) && line.ends_with([';', '}']);
    let (mut code, mut lines) = (Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        if is_for_tests(line) {
            let _ = lines.find(ends_item);
        } else if !line.trim_start().starts_with("//") {
            code.push(line);
        }
    }
    code.join("\n")
}

#[test]
fn code_goes_on_behind_tests() {
    let check = |text: &str, expected: &str| assert_eq!(code_of(text), expected, "{text}");
    check("mod a;\n#[cfg(test)]\nmod tests;\n\n// Why.\nfn b() {}", "mod a;\n\nfn b() {}");
    check(
        "fn a() {}\n#[cfg(all(test, unix))]\n#[path = \"x\"]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}",
        "fn a() {}\nfn c() {}",
    );
    check("#[cfg(test)]\nuse a::{\n    b,\n};\nuse c;", "use c;");
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

/// The lines of a source that open a block of code which rustdoc would run.
fn examples(text: &str) -> Vec<&str> {
    let docs = text.lines().map(str::trim_start).filter(|line| line.starts_with("//!") || line.starts_with("///"));
    let fences = docs.filter(|line| line[3..].trim_start().starts_with("```"));
    fences.step_by(2).filter(|fence| !fence.ends_with("```text")).collect()
}

/// rustdoc reads a whole crate to find the examples in its documentation, so crates without any say so: `doctest = false`. What is
/// added to one of them would not be run.
#[test]
fn examples_are_where_they_are_run() {
    assert_eq!(examples("//! ```text\n//! ```\n/// ```\n/// ```\n"), ["/// ```"]);
    let root = workspace();
    let (mut run, mut not_run) = (0, Vec::new());
    for folder in crates(&root) {
        let is_run =
            !std::fs::read_to_string(root.join(&folder).join("Cargo.toml")).unwrap().contains("doctest = false");
        for path in sources(&root.join(&folder).join("src")) {
            let found = examples(&std::fs::read_to_string(&path).unwrap()).len();
            match is_run {
                true => run += found,
                false => not_run.extend((found > 0).then_some(path)),
            }
        }
    }
    assert_eq!(not_run, Vec::<PathBuf>::new());
    assert!(run >= 3, "{run}");
}

/// Where `unsafe` may be written: files, and folders that end in a slash. ARCHITECTURE.md says what for.
const UNSAFE: &[&str] = &[
    // The cycle counter.
    "crates/engine/src/machine/ticks.rs",
    // What a worker lends to itself in the midst of a script.
    "crates/engine/src/worker/attendant.rs",
    // Lua's interface.
    "crates/script/src/",
    // The allocator and its range of addresses, connections borrowed apart, the title of the process.
    "crates/server/src/allocator.rs",
    "crates/server/src/connections.rs",
    "crates/server/src/heap.rs",
    "crates/server/src/heap/",
    "crates/server/src/title.rs",
    // Locks, hints to the processor and its wider vectors, tagged pointers.
    "crates/store/src/entry.rs",
    "crates/store/src/keyspace.rs",
    "crates/store/src/population.rs",
    "crates/store/src/prefetch.rs",
    "crates/store/src/six_bits/",
    "crates/store/src/sync.rs",
    "crates/store/src/table.rs",
    "crates/store/src/table/",
    "crates/store/src/tight.rs",
    // Thin blocks and records of the big collections.
    "crates/store/src/types/block.rs",
    "crates/store/src/types/block/",
    "crates/store/src/types/thin.rs",
    "crates/store/src/types/zset/",
    "crates/store/src/wide.rs",
];

/// True if a path is an entry of [`UNSAFE`], or in one.
fn is_in(path: &str, allowed: &str) -> bool {
    path == allowed || allowed.ends_with('/') && path.starts_with(allowed)
}

/// True if a source has unsafe code, or allows it again.
fn is_unsafe(text: &str) -> bool {
    let marks =
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait", "unsafe(", "allow(unsafe_code"];
    let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.any(|line| marks.iter().any(|mark| line.contains(mark)))
}

/// The crates' folders, each with a slash at its end.
fn crates(root: &Path) -> Vec<String> {
    let folders = ["crates", "tools"].map(|folder| (folder, std::fs::read_dir(root.join(folder)).unwrap()));
    let names = folders.into_iter().flat_map(|(folder, entries)| {
        entries.map(move |entry| format!("{folder}/{}/", entry.unwrap().file_name().to_str().unwrap()))
    });
    names.collect()
}

#[test]
fn unsafe_is_where_it_may_be() {
    let root = workspace();
    let name = |path: PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let all = ["crates", "tools"].iter().flat_map(|folder| sources(&root.join(folder)));
    // This file has the words without the deed.
    let found = all.filter(|path| is_unsafe(&std::fs::read_to_string(path).unwrap()) && !path.ends_with(file!()));
    let found: Vec<String> = found.map(name).collect();
    let is_stray = |path: &&String| !UNSAFE.iter().any(|allowed| is_in(path, allowed));
    assert_eq!(found.iter().filter(is_stray).collect::<Vec<_>>(), [""; 0], "unsafe, and not in UNSAFE");
    let is_needless = |allowed: &&&str| !found.iter().any(|path| is_in(path, allowed));
    assert_eq!(UNSAFE.iter().filter(is_needless).collect::<Vec<_>>(), [&""; 0], "safe by now: take it out of UNSAFE");
}

#[test]
fn crates_without_unsafe_forbid_it() {
    let root = workspace();
    let is_safe = |folder: &String| !UNSAFE.iter().any(|allowed| allowed.starts_with(folder.as_str()));
    for folder in crates(&root).iter().filter(|folder| is_safe(folder)) {
        let main = ["src/lib.rs", "src/main.rs"].map(|file| root.join(folder).join(file));
        let text = std::fs::read_to_string(main.iter().find(|path| path.exists()).unwrap()).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{folder} has no unsafe code, and doesn't forbid it");
    }
}

/// Names that several types of a crate share, since they are one idea: the iterator of a collection, how a collection is kept, and the iterator
/// of what is kept in that form.
const SHARED: &[(&str, &str)] = &[("crates/store/", "Form"), ("crates/store/", "FormIter"), ("crates/store/", "Iter")];

/// The type that a line at the margin defines; none, if it defines none, or one that only its function knows.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        let within = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        within.map_or(rest, |(_, rest)| rest).trim_start()
    });
    let (kind, rest) = line.strip_prefix("unsafe ").unwrap_or(line).split_once(' ')?;
    let name = rest.split(|character: char| !character.is_alphanumeric() && character != '_').next()?;
    ["struct", "enum", "union", "trait", "type"].contains(&kind).then_some(name)
}

/// The names that stand for several types of a crate, given its sources outside tests, each with the sources that define it.
fn shared_names<'s>(sources: &[(&'s str, &'s str)]) -> BTreeMap<&'s str, Vec<&'s str>> {
    let mut places = BTreeMap::<&str, Vec<&str>>::new();
    for (path, code) in sources {
        for name in code.lines().filter_map(defined_type) {
            places.entry(name).or_default().push(path);
        }
    }
    places.retain(|_, places| places.len() > 1);
    places
}

#[test]
fn a_name_stands_for_one_type_of_its_crate() {
    let root = workspace();
    let (mut stray, mut needed) = (Vec::new(), BTreeSet::new());
    for folder in crates(&root) {
        let paths = sources(&root.join(&folder).join("src"));
        let read = |path: &PathBuf| (path.strip_prefix(&root).unwrap().display().to_string(), without_tests(path));
        let read: Vec<(String, String)> = paths.iter().map(read).collect();
        let all: Vec<(&str, &str)> = read.iter().map(|(path, code)| (&**path, &**code)).collect();
        assert!(
            all.iter().any(|(_, code)| code.lines().any(|line| defined_type(line).is_some())),
            "no types in {folder}"
        );
        for (name, places) in shared_names(&all) {
            match SHARED.iter().find(|shared| **shared == (&folder, name)) {
                Some(shared) => _ = needed.insert(shared),
                None => stray.push(format!("{name}: {}", places.join(", "))),
            }
        }
    }
    assert_eq!(stray, Vec::<String>::new(), "several types of a crate have these names");
    assert_eq!(needed.len(), SHARED.len(), "of SHARED, only these are shared: {needed:?}");
}

#[test]
fn a_shared_name_is_seen() {
    let check = |one: &str, other: &str, expected: &[&str]| {
        let names: Vec<&str> = shared_names(&[("one.rs", one), ("other.rs", other)]).into_keys().collect();
        assert_eq!(names, expected, "{one} and {other}");
    };
    check("pub struct Name<'a> {", "enum Name {", &["Name"]);
    check("pub(in crate::types) type Name = u8;", "pub(super) unsafe trait Name: Sized {", &["Name"]);
    check("struct Name;\nunion Name {}", "", &["Name"]);
    check("struct Name(u8);", "struct Names;\n    struct Name;\nimpl Name {}\nuse other::Name;", &[]);
}
