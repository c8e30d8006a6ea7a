//! `daemonize`: the server runs on in the background after the end of the command that started it.
//!
//! The command starts itself a second time, in a new session and without a terminal. It waits until that process serves or fails. On a
//! failure it repeats the output of that process and exits with the same status. Redis forks instead, and always exits with success. The
//! first argument [`CHILD`] marks the process in the background.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use config::Settings;

use crate::supervisor::Supervisor;

/// The first argument of the process in the background. Internal; no option for users.
pub const CHILD: &str = "--in-background";

/// The last byte that the process in the background writes to the command's standard error, once it serves.
const READY: u8 = 0;

/// Returns true if the settings ask for a process in the background. A supervised process stays in the foreground, visible to its
/// supervisor.
#[must_use]
pub fn is_wanted(settings: &Settings) -> bool {
    settings.daemonize.get() && Supervisor::find(settings).name() == "no"
}

/// Starts the process in the background with the given arguments and standard input. Returns once it serves.
///
/// # Errors
/// The output of the process that ended, or the reason why it can't be started.
pub fn start(argv: &[OsString], stdin: &[u8]) -> Result<(), String> {
    let name = std::env::args_os().next().unwrap_or_else(|| OsStr::new("penstock").to_owned());
    let mut command = Command::new(Path::new("/proc/self/exe"));
    command.arg0(name).arg(CHILD).args(argv).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("can't start a process in the background: {e}"))?;
    if let Some(mut pipe) = child.stdin.take() {
        // The output of a process that ends before it has read this tells the reason.
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

/// Detaches the process in the background from the command's session and terminal.
///
/// # Errors
/// The system refuses it; the text names the remedy.
pub fn enter() -> Result<(), String> {
    rustix::process::setsid().map(drop).map_err(|e| format!("can't leave the terminal: {e}; use daemonize no"))
}

/// Tells the command that the server serves. Standard error is `/dev/null` from then on.
pub fn serves() {
    let _ = std::io::stderr().write_all(&[READY]);
    if let Ok(nowhere) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stderr(&nowhere);
        let _ = rustix::stdio::dup2_stdin(&nowhere);
    }
}
