//! Runs the tool like a user.

use std::process::{Command, Output, Stdio};

use tests::server::{Server, subject_program};

/// Returns `penstock bench` with these arguments, ready to start.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(subject_program());
    command.arg("bench").args(args).stdin(Stdio::null());
    command
}

/// Output and exit status of the tool.
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub status: Option<i32>,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            status: output.status.code(),
        }
    }
}

/// Runs the tool to its end.
pub fn run(args: &[&str]) -> Ran {
    command(args).output().unwrap().into()
}

/// Runs the tool, which must succeed without messages, and returns its standard output.
pub fn output(args: &[&str]) -> String {
    let ran = run(args);
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{args:?}\n{}", ran.stdout);
    ran.stdout
}

/// Like `output`, with a server's port.
pub fn at(server: &Server, args: &[&str]) -> String {
    output(&[&["-p", &server.port().to_string()], args].concat())
}

/// Runs `check` with Penstock and with Redis, started with the directives `args`.
pub fn on_both(args: &[&str], check: impl Fn(&Server)) {
    check(&Server::penstock(args));
    check(&Server::oracle(args));
}

/// Sends a signal, by its name, to a process.
pub fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "kill -{name} {pid}");
}

/// Checks that the tool fails with this status, prints one line with these words on standard error, and nothing on
/// standard output.
pub fn check_refusal(args: &[&str], status: i32, words: &str) {
    let ran = run(args);
    assert_eq!(ran.status, Some(status), "{args:?}: {}", ran.stderr);
    assert!(ran.stderr.starts_with("penstock bench: ") && ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {}", ran.stderr);
    assert_eq!(ran.stdout, "", "{args:?}");
}
