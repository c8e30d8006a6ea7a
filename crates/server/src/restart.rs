//! DEBUG RESTART and CRASH-AND-RECOVER: the process starts itself anew, with the arguments that it was started with.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// See the module's documentation.
pub struct Restart {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// Set if the process is to start anew once it has ended in good order: after so many milliseconds.
    pub after_ms: OnceLock<u64>,
}

impl Restart {
    /// What is known of this process. Its arguments may be overwritten later, by its title.
    pub fn of_this_process() -> Restart {
        let program = std::env::current_exe().unwrap_or_default();
        Restart { program, arguments: std::env::args_os().skip(1).collect(), after_ms: OnceLock::new() }
    }

    /// Puts the program in this process's place; all threads end with that, and sockets and files are closed. Returns why that failed.
    pub fn start_anew(&self, after_ms: u64) -> String {
        std::thread::sleep(Duration::from_millis(after_ms));
        let error = Command::new(&self.program).args(&self.arguments).exec();
        format!("{} can't be started anew: {error}", self.program.display())
    }
}
