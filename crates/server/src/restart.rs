//! DEBUG RESTART and CRASH-AND-RECOVER: the process starts itself anew, with its original arguments.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// The program and arguments of this process.
pub struct Restart {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// The delay in milliseconds before a new start, which follows an orderly end. Set if it was requested.
    pub after_ms: OnceLock<u64>,
}

impl Restart {
    /// Records the program and arguments of this process. Its title may overwrite the arguments later.
    pub fn of_this_process() -> Restart {
        let program = std::env::current_exe().unwrap_or_default();
        Restart { program, arguments: std::env::args_os().skip(1).collect(), after_ms: OnceLock::new() }
    }

    /// Replaces this process by a new start of its program. All threads end, and sockets and files are closed. Returns the reason for a
    /// failure.
    pub fn start_anew(&self, after_ms: u64) -> String {
        std::thread::sleep(Duration::from_millis(after_ms));
        let error = Command::new(&self.program).args(&self.arguments).exec();
        format!("{} can't be started anew: {error}", self.program.display())
    }
}
