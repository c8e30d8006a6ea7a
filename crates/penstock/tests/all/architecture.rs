//! The dependencies between the workspace's crates, as shown in ARCHITECTURE.md, and the things that lower crates never
//! use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each crate of the workspace with the crates that it may depend on. An unlisted crate fails the test: a new crate
/// needs a decision about its place.
const ARROWS: &[(&str, &[&str])] = &[
    ("penstock-resp", &[]),
    ("penstock-store", &[]),
    ("penstock-cluster", &[]),
    ("penstock-format", &["penstock-resp", "penstock-store"]),
    ("penstock-journal", &["penstock-resp"]),
    ("penstock-replication", &["penstock-journal", "penstock-resp"]),
    ("penstock-persistence", &["penstock-journal", "penstock-resp"]),
    ("penstock-commands", &["penstock-format", "penstock-journal", "penstock-resp", "penstock-store"]),
    ("penstock-script", &["penstock-resp"]),
    ("penstock-advisor", &["penstock-resp"]),
    ("penstock-front", &["penstock-resp"]),
    ("penstock-statistics", &["penstock-resp"]),
    // One measurement of the network for the server and the proxy.
    ("penstock-tcp-info", &[]),
    ("penstock-config", &["penstock-cluster", "penstock-commands", "penstock-resp", "penstock-store"]),
    ("penstock-access", &["penstock-commands", "penstock-config", "penstock-resp", "penstock-store"]),
    (
        "penstock-engine",
        &[
            "penstock-access",
            "penstock-advisor",
            "penstock-cluster",
            "penstock-commands",
            "penstock-config",
            "penstock-format",
            "penstock-journal",
            "penstock-replication",
            "penstock-script",
            "penstock-statistics",
            "penstock-resp",
            "penstock-store",
        ],
    ),
    (
        "penstock-server",
        &[
            "penstock-access",
            "penstock-cluster",
            "penstock-config",
            "penstock-statistics",
            "penstock-engine",
            "penstock-front",
            "penstock-persistence",
            "penstock-format",
            "penstock-journal",
            "penstock-replication",
            "penstock-commands",
            "penstock-resp",
            "penstock-store",
            "penstock-tcp-info",
        ],
    ),
    (
        "penstock-simulator",
        &[
            "penstock-cluster",
            "penstock-config",
            "penstock-engine",
            "penstock-journal",
            "penstock-persistence",
            "penstock-replication",
            "penstock-resp",
            "penstock-store",
        ],
    ),
    // The slot of a key: one implementation for servers and clients.
    ("penstock-client", &["penstock-advisor", "penstock-cluster", "penstock-resp"]),
    ("penstock-check", &["penstock-format", "penstock-persistence", "penstock-store"]),
    ("penstock-cli", &["penstock-client", "penstock-resp"]),
    ("penstock-proxy", &["penstock-client", "penstock-tcp-info"]),
    ("penstock-generator", &["penstock-client", "penstock-proxy", "penstock-resp"]),
    ("penstock-load", &["penstock-client", "penstock-resp"]),
    // The demonstration runs a server of its own, as the experiments do.
    (
        "penstock-advise",
        &["penstock-advisor", "penstock-client", "penstock-generator", "penstock-proxy", "penstock-resp"],
    ),
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

/// Crates with tests that may depend on everything, since they test all others from outside.
const TESTS_ONLY: &[&str] = &["penstock-tests"];

/// Items that crates below the server must not mention outside their tests. Time, randomness and bytes are arguments,
/// so that a test can choose them. Exceptions: the engine reads the processor's cycle counter to time commands, and
/// rewrites redis.conf. Only the server uses sockets and the time of day.
const NEVER_MENTIONED: &[(&str, &[&str])] = &[
    ("resp", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("store", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("format", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("journal", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("commands", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("script", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    (
        "cluster",
        &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env", "std::thread"],
    ),
    (
        "advisor",
        &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env", "std::thread"],
    ),
    ("access", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("config", &["SystemTime::now", "Instant::now", "std::net", "std::os::unix::net"]),
    ("statistics", &["SystemTime::now", "std::net", "std::os::unix::net", "std::fs", "std::env"]),
    ("engine", &["SystemTime::now", "std::net", "std::os::unix::net"]),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The crates of the workspace with their dependencies within the workspace, except for tests' dependencies.
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

/// Forbidden dependencies as readable lines.
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
fn a_forbidden_dependency_is_found() {
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

/// All source files under `directory`.
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

/// The text of a file without comments and tests; empty for files of tests.
fn without_tests(path: &Path) -> String {
    let mut in_crate = path.iter().rev().take_while(|part| *part != "src");
    if in_crate.any(|part| part.to_string_lossy().starts_with("tests")) {
        return String::new();
    }
    code_of(&std::fs::read_to_string(path).unwrap())
}

/// The lines of a source file that are neither comments nor compiled only for tests.
fn code_of(text: &str) -> String {
    let is_for_tests = |line: &str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    // After rustfmt, the last line of an item begins at the margin.
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
fn code_after_tests_is_included() {
    let check = |text: &str, expected: &str| assert_eq!(code_of(text), expected, "{text}");
    check("mod a;\n#[cfg(test)]\nmod tests;\n\n// Why.\nfn b() {}", "mod a;\n\nfn b() {}");
    check(
        "fn a() {}\n#[cfg(all(test, unix))]\n#[path = \"x\"]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}",
        "fn a() {}\nfn c() {}",
    );
    check("#[cfg(test)]\nuse a::{\n    b,\n};\nuse c;", "use c;");
}

#[test]
fn crates_below_the_server_use_no_system_interfaces() {
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

/// The files of the server's process that start threads. `server::threads` lists the threads of all of them.
const START_THREADS: &[&str] = &[
    "crates/engine/src/snapshots/reading.rs",
    "crates/front/src/lib.rs",
    "crates/server/src/threads.rs",
    "crates/store/src/reaper.rs",
];

#[test]
fn threads_start_in_the_listed_files_only() {
    let root = workspace();
    let starts = |path: &PathBuf| {
        let text = without_tests(path);
        let calls = ["thread::spawn(", "thread::Builder", "thread::{Builder", "spawn_scoped("];
        !path.to_string_lossy().ends_with("_tests.rs") && calls.iter().any(|call| text.contains(call))
    };
    let crates =
        ["access", "advisor", "cluster", "commands", "config", "engine", "format", "front", "journal", "persistence"];
    let crates = crates.iter().chain(&["replication", "resp", "script", "server", "statistics", "store"]);
    let files = crates.flat_map(|name| sources(&root.join("crates").join(name).join("src")));
    let mut found: Vec<String> =
        files.filter(starts).map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect();
    found.sort();
    assert_eq!(found, START_THREADS);
}

/// The lines of a source file that open a code block which rustdoc would run.
fn examples(text: &str) -> Vec<&str> {
    let docs = text.lines().map(str::trim_start).filter(|line| line.starts_with("//!") || line.starts_with("///"));
    let fences = docs.filter(|line| line[3..].trim_start().starts_with("```"));
    fences.step_by(2).filter(|fence| !fence.ends_with("```text")).collect()
}

/// rustdoc reads a whole crate to find examples in its documentation, so crates without examples set `doctest = false`.
/// An example in one of them would never run.
#[test]
fn examples_are_only_in_crates_that_run_them() {
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

/// Files that may contain `unsafe`, and folders (with a trailing slash). docs/internals/memory.md gives the reasons.
const UNSAFE: &[&str] = &[
    // The cycle counter.
    "crates/statistics/src/ticks.rs",
    // References that a worker lends to itself while a script runs.
    "crates/engine/src/worker/busy_script_handler.rs",
    // Lua's interface.
    "crates/script/src/",
    // The allocator and its address range, separately borrowed connections, the time slice, the title of the process.
    "crates/server/src/allocator.rs",
    "crates/server/src/connections.rs",
    "crates/server/src/huge_pages.rs",
    "crates/server/src/huge_pages/",
    "crates/server/src/time_slice.rs",
    "crates/server/src/title.rs",
    // Locks, hints to the processor and its wider vectors, tagged pointers.
    "crates/store/src/crc64.rs",
    "crates/store/src/entry.rs",
    "crates/store/src/keyspace.rs",
    "crates/store/src/keyspace/hints.rs",
    "crates/store/src/popcount.rs",
    "crates/store/src/prefetch.rs",
    "crates/store/src/hash/slots/carry_less.rs",
    "crates/store/src/six_bits/",
    "crates/store/src/sync.rs",
    "crates/store/src/table.rs",
    "crates/store/src/table/",
    "crates/store/src/unaligned_box.rs",
    // Compact blocks and records of large collections.
    "crates/store/src/types/block.rs",
    "crates/store/src/types/block/",
    "crates/store/src/types/packed_record.rs",
    "crates/store/src/types/zset/",
    "crates/store/src/simd.rs",
];

/// True if a path is an entry of [`UNSAFE`], or in a folder of it.
fn is_in(path: &str, allowed: &str) -> bool {
    path == allowed || allowed.ends_with('/') && path.starts_with(allowed)
}

/// True if a source file contains unsafe code, or allows it again.
fn is_unsafe(text: &str) -> bool {
    let marks =
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern", "unsafe trait", "unsafe(", "allow(unsafe_code"];
    let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.any(|line| marks.iter().any(|mark| line.contains(mark)))
}

/// Folders of the crates, each with a trailing slash.
fn crates(root: &Path) -> Vec<String> {
    let folders = ["crates", "tools"].map(|folder| (folder, std::fs::read_dir(root.join(folder)).unwrap()));
    let names = folders.into_iter().flat_map(|(folder, entries)| {
        entries.map(move |entry| format!("{folder}/{}/", entry.unwrap().file_name().to_str().unwrap()))
    });
    names.collect()
}

#[test]
fn unsafe_code_is_only_in_listed_files() {
    let root = workspace();
    let name = |path: PathBuf| path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
    let all = ["crates", "tools"].iter().flat_map(|folder| sources(&root.join(folder)));
    // This file contains the words but no unsafe code.
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

/// Returns the type that a line at the margin defines. Types within functions and inline modules are indented and do not count.
fn defined_type(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        let within = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        within.map_or(rest, |(_, rest)| rest).trim_start()
    });
    let (kind, rest) = line.strip_prefix("unsafe ").unwrap_or(line).split_once(' ')?;
    let name = rest.split(|character: char| !character.is_alphanumeric() && character != '_').next()?;
    ["struct", "enum", "union", "trait", "type"].contains(&kind).then_some(name)
}

/// Returns the type names that a module defines more than once. `sources` are the module's file and the files directly below it that
/// it re-exports as a whole (`pub use self::part::*`), each as code without tests.
fn repeated_names<'s>(sources: &[&'s str]) -> Vec<&'s str> {
    let (mut seen, mut repeated) = (BTreeSet::new(), Vec::new());
    for name in sources.iter().flat_map(|code| code.lines()).filter_map(defined_type) {
        if !seen.insert(name) {
            repeated.push(name);
        }
    }
    repeated
}

/// Returns the files that a module re-exports as a whole.
fn reexported(path: &Path, code: &str) -> Vec<PathBuf> {
    let stem = path.file_stem().unwrap();
    let is_root = ["lib", "main", "mod"].iter().any(|name| stem == *name);
    let folder = if is_root { path.parent().unwrap().to_owned() } else { path.with_extension("") };
    let parts = code.lines().filter_map(|line| {
        let (_, import) = line.strip_prefix("pub")?.split_once("use self::")?;
        import.strip_suffix("::*;")
    });
    parts.map(|part| folder.join(part).with_extension("rs")).collect()
}

/// A type's name is unique in its module, and clear together with the module's path: `aof::Writer` and `spill::Writer` may both exist.
#[test]
fn a_type_name_is_unique_in_its_module() {
    let root = workspace();
    let (mut repeated, mut modules) = (Vec::new(), 0);
    for path in crates(&root).iter().flat_map(|folder| sources(&root.join(folder).join("src"))) {
        let code = without_tests(&path);
        let parts: Vec<String> = reexported(&path, &code).iter().map(|part| without_tests(part)).collect();
        let all: Vec<&str> = std::iter::once(&*code).chain(parts.iter().map(|part| &**part)).collect();
        modules += usize::from(all.iter().any(|code| code.lines().any(|line| defined_type(line).is_some())));
        repeated.extend(repeated_names(&all).iter().map(|name| format!("{}: {name}", path.display())));
    }
    assert!(modules > 100, "only {modules} modules define types");
    assert_eq!(repeated, Vec::<String>::new());
}

#[test]
fn a_repeated_name_is_found() {
    let check = |one: &str, other: &str, expected: &[&str]| {
        assert_eq!(repeated_names(&[one, other]), expected, "{one} and {other}");
    };
    check("pub struct Name<'a> {", "enum Name {", &["Name"]);
    check("pub(in crate::types) type Name = u8;", "pub(super) unsafe trait Name: Sized {", &["Name"]);
    check("struct Name;\nunion Name {}", "", &["Name"]);
    check("struct Name(u8);", "struct Names;\n    struct Name;\nimpl Name {}\nuse other::Name;", &[]);
    assert_eq!(reexported(Path::new("a/b.rs"), "pub use self::c::*;\npub use self::d::E;"), [Path::new("a/b/c.rs")]);
}
