//! `penstock --generate`: the manual pages and completions name every option of every tool.

// Clippy knows that a test may unwrap, but not the functions that only tests call.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;

/// What `penstock --generate WHAT` writes, by file name.
struct Generated(PathBuf);

impl Generated {
    fn new(what: &str) -> Generated {
        let directory = std::env::temp_dir().join(format!("penstock-generate-{what}-{}", std::process::id()));
        let status = Command::new(env!("CARGO_BIN_EXE_penstock")).args(["--generate", what]).arg(&directory).status();
        assert!(status.unwrap().success());
        Generated(directory)
    }

    /// A file's text, without roff's escapes.
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

fn tools() -> Vec<(&'static str, clap::Command)> {
    vec![("bench", bench::command()), ("cli", cli::command()), ("load", load::command())]
}

/// The options of a command line: each with one or two dashes.
fn options(command: &clap::Command) -> Vec<String> {
    let visible = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let all: Vec<_> = visible
        .flat_map(|arg| {
            let long = arg.get_long().map(|long| format!("--{long}"));
            long.into_iter().chain(arg.get_short().map(|short| format!("-{short}")))
        })
        .collect();
    assert!(all.len() > 10, "{all:?}");
    all
}

#[test]
fn manual_pages_name_every_option() {
    let generated = Generated::new("man");
    for (name, command) in tools() {
        let page = generated.text(&format!("penstock-{name}.1"));
        for option in options(&command) {
            assert!(page.contains(&format!("\\fB{option}\\fR")), "{name}: {option}");
        }
        assert!(generated.text("penstock.1").contains(&format!("penstock-{name}(1)")), "{name}");
    }
    let page = generated.text("penstock.1");
    for directive in server::cli_args::directives() {
        assert!(page.contains(&format!("\\fB--{}\\fR", directive.name)), "{}", directive.name);
    }
}

#[test]
fn completions_name_every_option() {
    let generated = Generated::new("completions");
    let files = ["penstock.bash", "_penstock", "penstock.fish", "penstock.elv"];
    for file in files {
        let text = generated.text(file);
        let names = |option: &str| match (file, option.strip_prefix("--")) {
            // Fish has words of its own for the two kinds of options.
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
    // What a shell makes of it: an unfinished option of `penstock load`.
    let script = format!(
        "source {}; COMP_WORDS=(penstock load --stop); COMP_CWORD=2; _penstock penstock --stop load; echo ${{COMPREPLY[@]}}",
        generated.0.join("penstock.bash").display()
    );
    let completed = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&completed.stdout).trim(), "--stop-on-error");
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
