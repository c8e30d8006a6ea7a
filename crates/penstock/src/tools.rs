//! The table of tools: the dispatch, the help, the manual pages and the completions use it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Command;

/// A tool.
pub struct Tool {
    /// First argument that selects it.
    pub name: &'static str,
    /// Runs it with the arguments after the name.
    pub run: fn(Vec<OsString>) -> ExitCode,
    /// Definition of its command line.
    pub command: fn() -> Command,
}

/// All tools, by name.
pub const TOOLS: &[Tool] = &[
    Tool { name: "advise", run: advise::run, command: advise::command },
    Tool { name: "bench", run: generator::run, command: generator::command },
    Tool { name: "check", run: check::run, command: check::command },
    Tool { name: "cli", run: cli::run, command: cli::command },
    Tool { name: "load", run: load::run, command: load::command },
];

/// Word that prints help for the program or a tool.
pub const HELP: &str = "help";
/// Optional word that selects the server.
pub const SERVER: &str = "server";

/// Largest edit distance (insertions, deletions, replacements and swaps) at which a word counts as a misspelt name.
const EDITS_MAX: usize = 2;
/// Longest word to which a smaller limit applies, since most short words are similar.
const SHORT_WORD: usize = 4;

/// Finds a tool by its name.
pub fn find(name: &OsStr) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| name == tool.name)
}

/// End of the program's help: the list of tools.
pub fn help() -> String {
    let mut text = String::from("\n\nTools (penstock TOOL --help tells more):\n");
    for tool in TOOLS {
        let about = (tool.command)().get_about().map(ToString::to_string).unwrap_or_default();
        text += &format!("  penstock {:<6} {}\n", tool.name, about.trim_end_matches('.'));
    }
    text += "  penstock --generate man|completions DIR   manual pages, completions for shells";
    text
}

/// Returns an error for a first argument that is neither a file nor a tool, but similar to a tool's name; `None` if it
/// may be a file's name.
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

/// Returns the error for a topic of help that is not a tool.
pub fn unknown(topic: &OsStr) -> String {
    let text = topic.to_string_lossy();
    let meant = nearest(&text.to_ascii_lowercase()).filter(|_| !text.is_empty());
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean 'penstock help {meant}'?"));
    format!("penstock: there is no tool '{text}'{meant} (penstock --help lists the tools)")
}

/// The most similar known word, if one is similar enough.
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
    fn similar_words_count_as_misspelt_tools() {
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
    fn possible_file_names_are_not_misspelt_tools() {
        for word in ["bench.conf", "./benhc", "--benhc", "", "redis", "server"] {
            assert_eq!(misspelt(OsStr::new(word)), None, "{word}");
        }
        let text = misspelt(OsStr::new("Benhc")).unwrap();
        assert!(text.contains("did you mean 'penstock bench'?"), "{text}");
    }

    #[test]
    fn help_on_a_misspelt_tool_names_the_similar_one() {
        let check = |topic: &str, end: &str| {
            assert_eq!(unknown(OsStr::new(topic)), format!("penstock: there is no tool {end}"))
        };
        check("Benhc", "'Benhc'; did you mean 'penstock help bench'? (penstock --help lists the tools)");
        check("redis", "'redis' (penstock --help lists the tools)");
        check("", "'' (penstock --help lists the tools)");
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
