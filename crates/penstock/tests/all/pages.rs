//! The pages under `docs/` name every flag of every tool, and the packages' configuration contains only known
//! directives.

use std::ffi::OsString;
use std::path::Path;

use server::cli_args::{LoadedSettings, load};

/// True if a text contains a flag as a complete word: `--json-lines` doesn't contain `--json`.
fn names(text: &str, flag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    text.match_indices(flag).any(|(at, _)| {
        let (before, behind) = (text[..at].bytes().next_back(), text[at + flag.len()..].bytes().next());
        !before.is_some_and(is_word) && !behind.is_some_and(is_word)
    })
}

/// All flags of a command and its subcommands, in all forms.
fn flags(command: &clap::Command) -> Vec<String> {
    let visible = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let own = visible.flat_map(|arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        long.into_iter().chain(arg.get_short().map(|short| format!("-{short}")))
    });
    own.chain(command.get_subcommands().flat_map(flags)).collect()
}

/// The text between backticks and in code blocks. Elsewhere a dash isn't part of a flag.
fn code(page: &str) -> String {
    page.split('`').skip(1).step_by(2).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_flag_of_a_tool_is_named_on_its_page() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut missing = Vec::new();
    for (page, command, flags_min) in [
        ("advisor.md", advise::command(), 8),
        ("bench.md", generator::command(), 20),
        ("check.md", check::command(), 5),
        ("cli.md", cli::command(), 20),
        ("load.md", load::command(), 20),
    ] {
        let text = code(&std::fs::read_to_string(docs.join(page)).unwrap());
        let flags = flags(&command);
        assert!(flags.len() > flags_min, "{page}: {flags:?}");
        missing.extend(flags.iter().filter(|flag| !names(&text, flag)).map(|flag| format!("{page}: {flag}")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// README names the required compiler. Its sentence about missing features names none whose commands exist.
#[test]
fn readme_names_the_compiler_and_missing_features() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let (readme, commands) = (read("README.md"), read("docs/commands.md"));
    assert!(readme.contains(concat!("Rust ", env!("CARGO_PKG_RUST_VERSION"))), "the compiler's version");
    let missing = readme.split("Penstock has no ").nth(1).and_then(|rest| rest.split('.').next());
    let missing = missing.expect("README has a sentence about missing features");
    for (word, command) in [
        ("JSON", "JSON.SET"),
        ("search", "FT.SEARCH"),
        ("vector sets", "VADD"),
        ("cluster", "CLUSTER NODES"),
        ("snapshots", "BGSAVE"),
        ("replicas", "PSYNC"),
        ("access control lists", "ACL LIST"),
        ("bit", "SETBIT"),
        ("HyperLogLog", "PFADD"),
        ("geo", "GEOADD"),
        ("client tracking", "CLIENT TRACKING"),
    ] {
        let is_there = [' ', '`'].iter().any(|end| commands.contains(&format!("| `{command}{end}")));
        let is_named = missing.split_whitespace().collect::<Vec<_>>().join(" ").contains(word);
        assert_eq!(is_named, !is_there, "{word}");
    }
}

#[test]
fn flags_match_complete_words() {
    assert!(names("--json FILE", "--json") && names("-2", "-2") && names("(-a)", "-a"));
    assert!(!names("--json-lines", "--json") && !names("x-2 --a", "-a"));
}

/// Loads a configuration from text.
fn loaded(text: &str) -> LoadedSettings {
    load(&[OsString::from("-")], &mut text.as_bytes()).unwrap()
}

/// The directives that are commented out: the text after "# " begins with a lower-case letter, unlike a sentence.
fn examples(text: &str) -> Vec<&str> {
    let comments = text.lines().filter_map(|line| line.strip_prefix("# "));
    comments.filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase())).collect()
}

#[test]
fn every_directive_of_the_installed_configuration_is_known() {
    let text = include_str!("../../../../packaging/penstock.conf");
    // The package creates this directory; the server doesn't start without it.
    assert!(text.contains("\ndir /var/lib/penstock\n"));
    let installed = loaded(&text.replace("/var/lib/penstock", std::env::temp_dir().to_str().unwrap()));
    assert!(installed.notes.is_empty(), "{:?}", installed.notes);
    let examples = examples(text);
    assert!(examples.len() >= 8, "{examples:?}");
    assert!(loaded(&examples.join("\n")).notes.is_empty());
}
