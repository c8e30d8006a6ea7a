//! `daemonize`: the server goes on in the background, and the command that started it ends.
//!
//! The command starts itself a second time, in a session of its own and without a terminal, and waits until that process serves, or
//! has said why it can't: what it printed is printed again, and its failure is the command's. Redis forks instead and always
//! ends with success. Started from [`CHILD`], a process knows that it is the one in the background.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use engine::config::Settings;

use crate::supervisor::Supervisor;

/// The first argument of the process in the background; no part of the command line for users.
pub const CHILD: &str = "--in-background";

/// The last byte that the process in the background writes to the command's standard error, once it serves.
const READY: u8 = 0;

/// Whether the settings ask for a process in the background. One that is supervised stays where the supervisor sees it.
#[must_use]
pub fn is_wanted(settings: &Settings) -> bool {
    settings.daemonize.get() && Supervisor::find(settings).name() == "no"
}

/// Starts the process in the background with these arguments, and this for its standard input. Returns once it serves.
///
/// # Errors
/// What that process said before it ended, or why it can't be started.
pub fn start(argv: &[OsString], stdin: &[u8]) -> Result<(), String> {
    let name = std::env::args_os().next().unwrap_or_else(|| OsStr::new("penstock").to_owned());
    let mut command = Command::new(Path::new("/proc/self/exe"));
    command.arg0(name).arg(CHILD).args(argv).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("can't start a process in the background: {e}"))?;
    if let Some(mut pipe) = child.stdin.take() {
        // One that ends before it has read this says why.
        let _ = pipe.write_all(stdin);
    }
    let mut said = Vec::new();
    if let Some(mut pipe) = child.stderr.take() {
        pipe.read_to_end(&mut said).map_err(|e| format!("can't hear from the process in the background: {e}"))?;
    }
    match said.as_slice() {
        [.., READY] => Ok(()),
        [] => Err("the server ended before it served, and said nothing; its log may say why".to_owned()),
        said => Err(String::from_utf8_lossy(said).trim_end().to_owned()),
    }
}

/// Leaves the session and the terminal of the command, in the process in the background.
///
/// # Errors
/// The system refuses it, with what to do.
pub fn enter() -> Result<(), String> {
    rustix::process::setsid().map(drop).map_err(|e| format!("can't leave the terminal: {e}; use daemonize no"))
}

/// Tells the command that the server serves. Standard error leads nowhere from then on.
pub fn serves() {
    let _ = std::io::stderr().write_all(&[READY]);
    if let Ok(nowhere) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stderr(&nowhere);
        let _ = rustix::stdio::dup2_stdin(&nowhere);
    }
}
