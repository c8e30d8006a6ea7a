//! What the program makes of its first word: a tool, help, or a configuration file.

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_penstock")).args(args).output().unwrap()
}

/// What is printed by a command line that is answered.
fn answer(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What is said of a command line that is refused.
fn refusal(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn help_names_the_tools() {
    let text = answer(&["--help"]);
    for tool in ["advise", "bench", "check", "cli", "load"] {
        assert!(text.contains(&format!("  penstock {tool} ")), "{text}");
        assert_eq!(answer(&["help", tool]), answer(&[tool, "--help"]), "{tool}");
    }
    for other in [&["-h"][..], &["help"], &["help", "server"], &["server", "--help"]] {
        assert_eq!(answer(other), text, "{other:?}");
    }
    assert!(refusal(&["help", "nonsense"]).contains("no tool 'nonsense'"));
}

#[test]
fn the_version_is_told_by_every_flag_that_asks_for_it() {
    let version = answer(&["--version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    for flag in ["-v", "-V"] {
        assert_eq!(answer(&[flag]), version);
    }
}

#[test]
fn a_misspelt_tool_is_no_configuration_file() {
    for (word, meant) in [("benhc", "bench"), ("client", "cli"), ("Load", "load"), ("sever", "server")] {
        let text = refusal(&[word, "-q"]);
        assert!(text.contains(&format!("did you mean 'penstock {meant}'?")), "{word}: {text}");
    }
    // What is like no tool, or can't be meant for one, is a file as in Redis.
    for word in ["nonsense", "./benhc", "bench.conf"] {
        assert!(refusal(&[word]).starts_with("Fatal error, can't open config file '"), "{word}");
    }
    // A file that is there is read, whatever it is called.
    let directory = std::env::temp_dir().join(format!("penstock-words-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for name in ["benhc", "help"] {
        std::fs::write(directory.join(name), "nonsense 1\n").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_penstock")).arg(name).current_dir(&directory).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("'nonsense 1'"), "{output:?}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}
