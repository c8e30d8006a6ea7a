//! The tools beside the server: one table for the dispatch, the help, the manual pages and the completions.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;

/// A tool.
pub struct Tool {
    /// The first argument that asks for it.
    pub name: &'static str,
    /// Runs it with the arguments behind the name.
    pub run: fn(Vec<OsString>) -> ExitCode,
    /// The definition of its command line.
    pub command: fn() -> Command,
}

/// All of them, by name.
pub const TOOLS: &[Tool] = &[
    Tool { name: "advise", run: advise::run, command: advise::command },
    Tool { name: "bench", run: generator::run, command: generator::command },
    Tool { name: "check", run: check::run, command: check::command },
    Tool { name: "cli", run: cli::run, command: cli::command },
    Tool { name: "load", run: load::run, command: load::command },
];

/// The word that asks for help, alone or on a tool.
pub const HELP: &str = "help";
/// The word that asks for the server, and may be left out.
pub const SERVER: &str = "server";

/// Words that differ from a known one by more insertions, deletions, replacements and swaps are not taken for it.
const EDITS_MAX: usize = 2;
/// As many for words of so few letters would make most words similar.
const SHORT_WORD: usize = 4;

/// The tool of this name.
pub fn find(name: &OsStr) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| name == tool.name)
}

/// The end of the program's help: what there is beside the server.
pub fn help() -> String {
    let mut text = String::from("\n\nTools (penstock TOOL --help tells more):\n");
    for tool in TOOLS {
        let about = (tool.command)().get_about().map(ToString::to_string).unwrap_or_default();
        text += &format!("  penstock {:<6} {}\n", tool.name, about.trim_end_matches('.'));
    }
    text += "  penstock --generate man|completions DIR   manual pages, completions for shells";
    text
}

/// What is wrong with a first argument that names neither a file nor a tool, but is so near to a tool's name that it was
/// meant to be one; `None` where it may well be a file's name.
pub fn misspelt(word: &OsStr) -> Option<String> {
    let text = std::str::from_utf8(word.as_bytes()).ok()?;
    let is_word = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    if !is_word || text.starts_with('-') || text == SERVER || Path::new(word).exists() {
        return None;
    }
    let meant = nearest(&text.to_ascii_lowercase())?;
    Some(format!(
        "penstock: '{text}' is no tool, and no configuration file of this name is there; did you mean 'penstock {meant}'? \
         (penstock --help lists the tools)"
    ))
}

/// The known word that is most similar, if any is.
fn nearest(word: &str) -> Option<&'static str> {
    let known = TOOLS.iter().map(|tool| tool.name).chain([HELP, SERVER]);
    let edits = |name: &str| if word.starts_with(name) { 0 } else { strsim::osa_distance(word, name) };
    let (edits, name) = known.map(|name| (edits(name), name)).min()?;
    let allowed = if name.len() <= SHORT_WORD { EDITS_MAX - 1 } else { EDITS_MAX };
    (edits <= allowed).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_words_are_taken_for_tools() {
        let check = |word: &str, expected: Option<&str>| assert_eq!(nearest(word), expected, "{word}");
        check("benhc", Some("bench"));
        check("benchmark", Some("bench"));
        check("client", Some("cli"));
        check("lod", Some("load"));
        check("sever", Some("server"));
        check("hlep", Some("help"));
        check("cil", Some("cli"));
        check("redis", None);
        check("conf", None);
        check("x", None);
    }

    #[test]
    fn what_may_be_a_file_is_none_of_them() {
        for word in ["bench.conf", "./benhc", "--benhc", "", "redis", "server"] {
            assert_eq!(misspelt(OsStr::new(word)), None, "{word}");
        }
        let text = misspelt(OsStr::new("Benhc")).unwrap();
        assert!(text.contains("did you mean 'penstock bench'?"), "{text}");
    }

    #[test]
    fn help_names_every_tool() {
        let text = help();
        for tool in TOOLS {
            assert!(text.contains(&format!("penstock {} ", tool.name)), "{text}");
        }
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
