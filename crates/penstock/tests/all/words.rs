//! The program's first word: a tool, help, or a configuration file.

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_penstock")).args(args).output().unwrap()
}

/// Output of a successful command line.
fn answer(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Error of a refused command line.
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
fn every_version_flag_prints_the_version() {
    let version = answer(&["--version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    for flag in ["-v", "-V"] {
        assert_eq!(answer(&[flag]), version);
    }
}

#[test]
fn a_misspelt_tool_is_not_a_configuration_file() {
    for (word, meant) in [("benhc", "bench"), ("client", "cli"), ("Load", "load"), ("sever", "server")] {
        let text = refusal(&[word, "-q"]);
        assert!(text.contains(&format!("did you mean 'penstock {meant}'?")), "{word}: {text}");
    }
    // A word that isn't similar to a tool's name is a file, as in Redis.
    for word in ["nonsense", "./benhc", "bench.conf"] {
        assert!(refusal(&[word]).starts_with("Fatal error, can't open config file '"), "{word}");
    }
    // An existing file is read, whatever its name.
    let directory = std::env::temp_dir().join(format!("penstock-words-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for name in ["benhc", "help"] {
        std::fs::write(directory.join(name), "nonsense 1\n").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_penstock")).arg(name).current_dir(&directory).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("'nonsense 1'"), "{output:?}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}
