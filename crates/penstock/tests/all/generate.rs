//! `penstock --generate`: the manual pages and completions name every option of every tool.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The files that `penstock --generate` writes; their directory is removed at the end.
struct Generated(PathBuf);

impl Generated {
    fn new(what: &str) -> Generated {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("penstock-generate-{}-{number}", std::process::id()));
        let status = Command::new(env!("CARGO_BIN_EXE_penstock")).args(["--generate", what]).arg(&directory).status();
        assert!(status.unwrap().success());
        Generated(directory)
    }

    /// A file's text without roff's escapes.
    fn text(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.0.join(name)).unwrap();
        if name.ends_with(".1") { text.replace("\\-", "-") } else { text }
    }
}

impl Drop for Generated {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The tools and their subcommands, by the words after `penstock` that call them.
fn tools() -> Vec<(String, clap::Command)> {
    let mut found = Vec::new();
    let mut to_look_at: Vec<(String, clap::Command)> = vec![
        ("advise".into(), advise::command()),
        ("bench".into(), generator::command()),
        ("check".into(), check::command()),
        ("cli".into(), cli::command()),
        ("load".into(), load::command()),
    ];
    while let Some((words, command)) = to_look_at.pop() {
        let subcommands = command.get_subcommands();
        to_look_at.extend(subcommands.map(|sub| (format!("{words} {}", sub.get_name()), sub.clone())));
        found.push((words, command));
    }
    found
}

/// The options of a command line, including their dashes.
fn options(command: &clap::Command) -> Vec<String> {
    let visible = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let all: Vec<_> = visible
        .flat_map(|arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            long.into_iter().chain(arg.get_short().map(|short| format!("-{short}")))
        })
        .collect();
    assert!(all.len() > 4, "{all:?}");
    all
}

#[test]
fn manual_pages_name_every_option() {
    let generated = Generated::new("man");
    for (name, command) in tools() {
        let name = name.replace(' ', "-");
        let page = generated.text(&format!("penstock-{name}.1"));
        for option in options(&command) {
            assert!(page.contains(&format!("\\fB{option}\\fR")), "{name}: {option}");
        }
        let above = name.rsplit_once('-').map_or("penstock.1".to_owned(), |(above, _)| format!("penstock-{above}.1"));
        assert!(generated.text(&above).contains(&format!("penstock-{name}(1)")), "{name}");
    }
    let page = generated.text("penstock-server.1");
    for directive in server::cli_args::directives() {
        assert!(page.contains(&format!("\\fB--{}\\fR", directive.name)), "{}", directive.name);
    }
}

#[test]
fn manual_pages_refer_to_pages_and_keep_the_columns_of_examples() {
    let generated = Generated::new("man");
    for entry in std::fs::read_dir(&generated.0).unwrap() {
        let page = generated.text(entry.unwrap().file_name().to_str().unwrap());
        for reference in page.split_whitespace().filter_map(|word| word.strip_suffix("(1)")) {
            assert!(generated.0.join(format!("{reference}.1")).exists(), "{reference}");
        }
    }
    for (words, command) in tools() {
        let page = generated.text(&format!("penstock-{}.1", words.replace(' ', "-")));
        let page = page.replace("\\*(Aq", "'").replace("\\\\", "\\");
        let help = command.get_after_help().unwrap().to_string();
        let indented: Vec<&str> = help.lines().filter(|line| line.starts_with("  ")).collect();
        let kept: Vec<&str> =
            page.split("\n.nf\n").skip(1).flat_map(|rest| rest.split(".fi\n").next().unwrap().lines()).collect();
        assert_eq!(kept, indented, "{words}");
    }
}

/// The synopsis of a page is a short usage; options have their own section. Text for readers of the source, for example
/// links between modules, appears on no page.
#[test]
fn manual_pages_are_for_users() {
    let generated = Generated::new("man");
    for entry in std::fs::read_dir(&generated.0).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let page = generated.text(&name);
        let synopsis = page.split(".SH SYNOPSIS\n").nth(1).unwrap().split(".SH").next().unwrap();
        assert!(synopsis.lines().count() <= 7 && synopsis.len() < 400, "{name}: {synopsis}");
        assert!(synopsis.contains(&format!("\\fB{}\\fR", name.trim_end_matches(".1").replace('-', " "))), "{synopsis}");
        for link in ["[`", "`]", "crate::", "super::"] {
            assert!(!page.contains(link), "{name}: {link}");
        }
    }
    assert!(generated.text("penstock.1").lines().count() < 80);
}

/// The completions of bash's script for an unfinished command line.
fn completed(generated: &Generated, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let (last, before) = words.split_last().unwrap();
    let script = format!(
        "source {}; compopt() {{ :; }}; COMP_WORDS=({line}{}); COMP_CWORD={}; _penstock penstock '{last}' '{}'; printf '%s\\n' \
         \"${{COMPREPLY[@]}}\"",
        generated.0.join("penstock.bash").display(),
        if last.is_empty() { "''" } else { "" },
        before.len(),
        before.last().unwrap(),
    );
    let output = Command::new("bash").args(["-c", &script]).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.stderr.is_empty(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap().lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The tools are visible beside the server's two hundred options, which need a dash. File names are offered only for
/// files.
#[test]
fn completions_offer_matching_words() {
    let generated = Generated::new("completions");
    assert_eq!(completed(&generated, "penstock "), ["advise", "bench", "check", "cli", "load", "server"]);
    assert_eq!(completed(&generated, "penstock c"), ["check", "cli"]);
    assert_eq!(completed(&generated, "penstock --appendo"), ["--appendonly"]);
    assert_eq!(completed(&generated, "penstock --port 1 --appendonly "), ["yes", "no"]);
    assert_eq!(completed(&generated, "penstock server --loglevel v"), ["verbose"]);
    assert_eq!(completed(&generated, "penstock load --quiet "), [""; 0], "bash offers files");
    assert_eq!(completed(&generated, "penstock bench "), ["pipelining"]);
    assert_eq!(completed(&generated, "penstock cli --color a"), ["auto", "always"]);
    // Elvish filters the offered words, and zsh accepts a tool's or a file's name as its first word.
    assert!(generated.text("penstock.elv").lines().all(|line| !line.trim_start().starts_with("cand -")));
    assert!(generated.text("_penstock").contains("\":: :_penstock_first\""));
    // This package's directory has a Cargo.toml.
    for (line, is_file) in [
        ("penstock load --port Car", false),
        ("penstock load --cacert Car", true),
        ("penstock load --csv Car", true),
        ("penstock cli -h Car", false),
        ("penstock cli --eval Car", true),
        ("penstock bench -n Car", false),
        ("penstock --maxmemory Car", false),
        ("penstock --logfile Car", true),
    ] {
        let found = completed(&generated, line);
        assert_eq!(found == ["Cargo.toml"], is_file, "{line}: {found:?}");
    }
}

#[test]
fn completions_name_every_option() {
    let generated = Generated::new("completions");
    let files = ["penstock.bash", "_penstock", "penstock.fish", "penstock.elv"];
    for file in files {
        let text = generated.text(file);
        let names = |option: &str| match (file, option.strip_prefix("--")) {
            // Fish marks the two kinds of options in its own way.
            ("penstock.fish", Some(long)) => text.contains(&format!("-l {long}")),
            ("penstock.fish", None) => text.contains(&format!("-s {}", &option[1..])),
            _ => text.contains(option),
        };
        for (tool, command) in tools() {
            for option in options(&command) {
                assert!(names(&option), "{file}, {tool}: {option}");
            }
        }
        for directive in server::cli_args::directives() {
            assert!(names(&format!("--{}", directive.name)), "{file}: {}", directive.name);
        }
    }
    // Asks bash to complete an unfinished option of `penstock load`.
    let script = format!(
        "source {}; COMP_WORDS=(penstock load --stop); COMP_CWORD=2; _penstock penstock --stop load; echo ${{COMPREPLY[@]}}",
        generated.0.join("penstock.bash").display()
    );
    let completed = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), "--stop-on-error");
    let script = script.replace("load --stop", "bench pipelining --value").replace("COMP_CWORD=2", "COMP_CWORD=3");
    let script = script.replace("--stop load", "--value pipelining");
    let completed = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), "--value-bytes");
}

#[test]
fn wrong_arguments_are_explained() {
    for args in
        [&["--generate"][..], &["--generate", "man"], &["--generate", "x", "/tmp"], &["--generate", "man", "/dev/null"]]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_penstock")).args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && text.contains("penstock"), "{args:?}: {text}");
    }
}
